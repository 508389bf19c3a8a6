//! Takes in the stream of a backup, cut anywhere: into a folder, or only to see whether it is
//! whole.
//!
//! Files are written as they come, flushed when they are complete, and compared with the list when
//! the stream has ended. The list is kept in memory and is written last; then `INCOMPLETE` goes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use cognate_env::{Disk, File, OpenMode};

use super::archive::{BLOCK, Header, decode, padding};
use super::contents::{Contents, FileSum};
use super::{INCOMPLETE, LIST, RESTORING, is_known};
use crate::Error;

/// A list is not longer.
const LIST_MAX: u64 = 1 << 26;
const NEW: &str = "backup.new";
const BEGUN: &str = "This backup was begun and has not come to its end. It cannot be restored.\n";

/// Where files are written.
struct Target {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
}

/// What the next bytes are.
enum State {
    /// A header, of which these are here.
    Header(Vec<u8>),
    /// Those of a file.
    File { sum: FileSum, to: To, left: u64 },
    /// So many zeros.
    Padding(usize),
    /// Zeros: the end. So many are here, and two blocks are the least.
    End(u64),
}

/// Where the bytes of a file go.
enum To {
    Disk(Arc<dyn File>, PathBuf),
    Nowhere,
    List(Vec<u8>),
}

/// See the module's prose.
pub struct Intake {
    target: Option<Target>,
    state: State,
    files: Vec<FileSum>,
    list: Option<Vec<u8>>,
}

impl std::fmt::Debug for Intake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intake").field("files", &self.files).finish_non_exhaustive()
    }
}

fn wrong(what: impl std::fmt::Display) -> Error {
    Error::undecodable(format!("this is no sound backup: {what}"))
}

impl Intake {
    /// Begins to take in a backup into a folder, which is made if it is not there. It has a file
    /// that says that it is incomplete until [`Intake::finish`].
    ///
    /// # Errors
    /// `InvalidArgument` if there is something in the folder, `Io`.
    pub fn begin(disk: Arc<dyn Disk>, folder: &Path) -> Result<Intake, Error> {
        refuse_occupied(disk.as_ref(), folder)?;
        for folder in [folder, &folder.join("base")] {
            disk.create_dir_all(folder).map_err(|cause| Error::io("creating", folder, cause))?;
        }
        write(disk.as_ref(), &folder.join(INCOMPLETE), BEGUN.as_bytes())?;
        disk.sync_dir(folder).map_err(|cause| Error::io("flushing", folder, cause))?;
        Ok(Intake::into(Some(Target { disk, folder: folder.to_path_buf() })))
    }

    /// Begins to look at a backup that goes elsewhere.
    pub fn looking() -> Intake {
        Intake::into(None)
    }

    fn into(target: Option<Target>) -> Intake {
        Intake { target, state: State::Header(Vec::new()), files: Vec::new(), list: None }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// `Undecodable` if they cannot be a backup's, `Io`, `DiskFull`.
    pub fn put(&mut self, mut bytes: Bytes) -> Result<(), Error> {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Header(begun) => {
                    let count = (BLOCK - begun.len()).min(bytes.len());
                    begun.extend_from_slice(&bytes.split_to(count));
                    if begun.len() == BLOCK {
                        self.take_header()?;
                    }
                }
                State::File { sum, to, left } => {
                    let count = (*left).min(bytes.len() as u64) as usize;
                    let part = bytes.split_to(count);
                    to.write(&part, sum.length - *left)?;
                    sum.crc = crc32c::crc32c_append(sum.crc, &part);
                    *left -= count as u64;
                    if *left == 0 {
                        self.close_file()?;
                    }
                }
                State::Padding(left) => {
                    let count = (*left).min(bytes.len());
                    zeros(&bytes.split_to(count))?;
                    *left -= count;
                    if *left == 0 {
                        self.state = State::Header(Vec::new());
                    }
                }
                State::End(count) => {
                    zeros(&bytes)?;
                    *count += bytes.len() as u64;
                    bytes.clear();
                }
            }
        }
        Ok(())
    }

    fn take_header(&mut self) -> Result<(), Error> {
        let end = State::End(BLOCK as u64);
        let State::Header(block) = std::mem::replace(&mut self.state, end) else { return Ok(()) };
        let block: [u8; BLOCK] = block.try_into().map_err(|_| wrong("a header of another size"))?;
        let (name, length) = match decode(&block).map_err(wrong)? {
            Header::End => return Ok(()),
            Header::Folder => {
                self.state = State::Header(Vec::new());
                return Ok(());
            }
            Header::File { name, length } => (name, length),
        };
        let is_again = self.files.iter().any(|file| file.name == name);
        let to = match name.as_str() {
            LIST if self.list.is_none() && length <= LIST_MAX => To::List(Vec::new()),
            _ if is_known(&name) && !is_again => self.create(&name)?,
            _ => return Err(wrong(format!("there is a file {name:?} in it"))),
        };
        self.state = State::File { sum: FileSum { name, length, crc: 0 }, to, left: length };
        if length == 0 { self.close_file() } else { Ok(()) }
    }

    fn create(&self, name: &str) -> Result<To, Error> {
        let Some(Target { disk, folder }) = &self.target else { return Ok(To::Nowhere) };
        let path = folder.join(name);
        if let Some(home) = path.parent() {
            disk.create_dir_all(home).map_err(|cause| Error::io("creating", home, cause))?;
        }
        let file = disk.open(&path, OpenMode::CreateNew);
        Ok(To::Disk(file.map_err(|cause| Error::io("creating", &path, cause))?, path))
    }

    fn close_file(&mut self) -> Result<(), Error> {
        let next = match &self.state {
            State::File { sum, .. } if padding(sum.length) > 0 => State::Padding(padding(sum.length)),
            _ => State::Header(Vec::new()),
        };
        let State::File { sum, to, .. } = std::mem::replace(&mut self.state, next) else { return Ok(()) };
        match to {
            To::List(text) => self.list = Some(text),
            To::Nowhere => self.files.push(sum),
            To::Disk(file, path) => {
                file.sync_data().map_err(|cause| Error::io("flushing", &path, cause))?;
                self.files.push(sum);
            }
        }
        Ok(())
    }

    /// The stream has ended: compares what came with the list, and makes it a backup, durably.
    ///
    /// # Errors
    /// `Undecodable` if it is not complete or not what the list says; `Io`.
    pub fn finish(mut self) -> Result<Contents, Error> {
        let list = match (&self.state, &self.list) {
            (State::End(count), Some(list)) if *count >= 2 * BLOCK as u64 => list,
            _ => return Err(wrong("it has not come to its end")),
        };
        let contents = Contents::decode(list).map_err(wrong)?;
        let mut expected = contents.files.clone();
        expected.sort();
        self.files.sort();
        if let Some((found, _)) = self.files.iter().zip(&expected).find(|(found, listed)| found != listed) {
            return Err(wrong(format!("{} is not as it was sent", found.name)));
        }
        if self.files.len() != expected.len() {
            return Err(wrong("it has other files than its list"));
        }
        if let Some(Target { disk, folder }) = &self.target {
            let flush =
                |folder: &Path| disk.sync_dir(folder).map_err(|cause| Error::io("flushing", folder, cause));
            flush(&folder.join("base"))?;
            if contents.files.iter().any(|file| file.name.starts_with("images/")) {
                flush(&folder.join("images"))?;
            }
            let (fresh, path) = (folder.join(NEW), folder.join(LIST));
            write(disk.as_ref(), &fresh, list)?;
            disk.rename(&fresh, &path).map_err(|cause| Error::io("renaming", &path, cause))?;
            flush(folder)?;
            let begun = folder.join(INCOMPLETE);
            disk.remove(&begun).map_err(|cause| Error::io("removing", &begun, cause))?;
            flush(folder)?;
        }
        Ok(contents)
    }
}

impl To {
    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        match self {
            To::Disk(file, path) => {
                file.write_all_at(bytes, offset).map_err(|cause| Error::io("writing", path, cause))
            }
            To::Nowhere => Ok(()),
            To::List(text) => {
                text.extend_from_slice(bytes);
                Ok(())
            }
        }
    }
}

fn zeros(bytes: &[u8]) -> Result<(), Error> {
    match bytes.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(wrong("there is something between or behind its files")),
    }
}

/// Writes a small file and flushes it.
pub(crate) fn write(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let file = disk.open(path, OpenMode::Truncate).map_err(|cause| Error::io("creating", path, cause))?;
    file.write_all_at(bytes, 0).map_err(|cause| Error::io("writing", path, cause))?;
    file.sync_data().map_err(|cause| Error::io("flushing", path, cause))
}

/// Refuses a folder that has something in it already, as far as a backup or a database could be
/// meant.
///
/// # Errors
/// `InvalidArgument`, `Io`.
pub(crate) fn refuse_occupied(disk: &dyn Disk, folder: &Path) -> Result<(), Error> {
    let fail = |cause| Error::io("listing", folder, cause);
    if !disk.exists(folder).map_err(fail)? {
        return Ok(());
    }
    match disk.list(folder).map_err(fail)?.is_empty() {
        true => refuse_begun(disk, folder),
        false => Err(occupied(folder)),
    }
}

/// Refuses a folder in which a backup or a database is, was, or is about to be.
///
/// # Errors
/// As [`refuse_occupied`].
pub(crate) fn refuse_begun(disk: &dyn Disk, folder: &Path) -> Result<(), Error> {
    for inner in ["base", "images", "log", "incoming", "restored", RESTORING] {
        if disk.exists(&folder.join(inner)).map_err(|cause| Error::io("listing", folder, cause))? {
            return Err(occupied(folder));
        }
    }
    Ok(())
}

fn occupied(folder: &Path) -> Error {
    Error::InvalidArgument(format!("{}: the folder is not empty", folder.display()))
}
