//! The bytes of a backup, one after the other: of a base store that is in use, or of a backup in a
//! folder, which is restored as if it came from a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use cognate_env::{Disk, File, OpenMode};

use super::archive::{BLOCK, header, padding};
use super::contents::{Contents, FileSum, time};
use super::folder::verify;
use super::{LIST, MANIFEST};
use crate::storage::base::BaseView;
use crate::storage::checking::Checking;
use crate::storage::images;
use crate::storage::load::StagedRun;
use crate::storage::manifest::Manifest;
use crate::storage::run::{Run, run_file_name};
use crate::{Csn, Error};

/// The bytes of one file.
enum Source {
    Run(Arc<Run>, Checking),
    File(Arc<dyn File>, PathBuf),
    Memory(Bytes),
}

impl Source {
    /// Fills the buffer from an offset on, where the call before ended.
    fn read(&mut self, bytes: &mut [u8], offset: u64) -> Result<(), Error> {
        match self {
            Source::Run(run, checking) => {
                run.read_raw(bytes, offset)?;
                checking.take(run, bytes)
            }
            Source::File(file, path) => {
                file.read_exact_at(bytes, offset).map_err(|cause| Error::io("reading", path, cause))
            }
            Source::Memory(all) => {
                let start = offset as usize;
                bytes.copy_from_slice(&all[start..start + bytes.len()]);
                Ok(())
            }
        }
    }
}

/// A file that is being sent.
struct Sending {
    name: String,
    source: Source,
    length: u64,
    sent: u64,
    crc: u32,
}

/// A backup to be sent. Holding it keeps the files of its runs.
pub struct Backup {
    /// Its files are those that were sent.
    contents: Contents,
    seconds: u64,
    /// Files still to be sent, the next last.
    files: Vec<(String, Source, u64)>,
    open: Option<Sending>,
    /// Bytes between files: the next to be sent.
    between: Bytes,
    has_list: bool,
}

impl std::fmt::Debug for Backup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backup").field("commit", &self.contents.commit).finish_non_exhaustive()
    }
}

impl Backup {
    /// A view of the base, and the loads that prepared transactions of it would attach; at a node
    /// of a cluster an image that counts there, as its file is. The clock says `wall_us`.
    pub(crate) fn of_base(
        view: &BaseView,
        loads: &[StagedRun],
        is_node: bool,
        image: Option<Vec<u8>>,
        wall_us: i64,
    ) -> Backup {
        let loads: Vec<Arc<Run>> = loads.iter().map(StagedRun::run).collect();
        let version = &view.version;
        let live = &version.runs[version.attached.len()..];
        let names = |runs: &[Arc<Run>]| runs.iter().map(|run| run.name()).collect::<Vec<_>>();
        let greatest = live.iter().chain(&loads).map(|run| run.name().number).max();
        let manifest = Manifest {
            generation: 1,
            watermark: version.watermark,
            next_run: greatest.map_or(1, |number| number + 1),
            runs: names(live),
            staged: names(&loads),
            dropped: version.dropped().to_vec(),
        };
        let run = |run: &Arc<Run>| {
            let name = format!("base/{}", run_file_name(run.name().number));
            (name, Source::Run(Arc::clone(run), Checking::default()), run.name().length)
        };
        let mut files: Vec<(String, Source, u64)> = live.iter().chain(&loads).map(run).collect();
        let mut add = |name: String, bytes: Vec<u8>| {
            let length = bytes.len() as u64;
            files.push((name, Source::Memory(bytes.into()), length));
        };
        add(format!("base/{MANIFEST}"), manifest.encode());
        if let Some(image) = image {
            add(format!("images/{}", images::file_name(version.watermark)), image);
        }
        let commit = version.watermark;
        Backup::of(Contents { commit, time: time(wall_us), is_node, files: Vec::new() }, files, wall_us)
    }

    /// A backup that lies in a folder, verified.
    ///
    /// # Errors
    /// As [`verify`].
    pub fn of_folder(disk: &Arc<dyn Disk>, folder: &Path) -> Result<Backup, Error> {
        let mut contents = verify(disk, folder)?;
        let mut files = Vec::with_capacity(contents.files.len());
        for FileSum { name, length, .. } in std::mem::take(&mut contents.files) {
            let path = folder.join(&name);
            let file = disk.open(&path, OpenMode::Read);
            let file = file.map_err(|cause| Error::io("opening", &path, cause))?;
            files.push((name, Source::File(file, path), length));
        }
        Ok(Backup::of(contents, files, 0))
    }

    fn of(contents: Contents, mut files: Vec<(String, Source, u64)>, wall_us: i64) -> Backup {
        files.reverse();
        let seconds = u64::try_from(wall_us / 1_000_000).unwrap_or(0);
        Backup { contents, seconds, files, open: None, between: Bytes::new(), has_list: false }
    }

    /// Everything up to this commit is in it.
    pub fn commit(&self) -> Csn {
        self.contents.commit
    }

    /// The next bytes, at most so many; `None` at the end. Reads from the disk.
    ///
    /// # Errors
    /// `Corrupt` naming file and offset, `Io`.
    pub fn next(&mut self, bytes_max: usize) -> Result<Option<Bytes>, Error> {
        loop {
            if !self.between.is_empty() {
                let count = self.between.len().min(bytes_max);
                return Ok(Some(self.between.split_to(count)));
            }
            match &mut self.open {
                Some(file) if file.sent < file.length => {
                    let mut bytes = vec![0; (file.length - file.sent).min(bytes_max as u64) as usize];
                    file.source.read(&mut bytes, file.sent)?;
                    file.sent += bytes.len() as u64;
                    file.crc = crc32c::crc32c_append(file.crc, &bytes);
                    return Ok(Some(bytes.into()));
                }
                Some(_) => self.close_file(),
                None => {
                    if !self.open_next() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn close_file(&mut self) {
        let Some(Sending { name, length, crc, .. }) = self.open.take() else { return };
        self.contents.files.push(FileSum { name, length, crc });
        self.between = vec![0; padding(length)].into();
    }

    /// Begins the next file, or writes the list behind the last one; false at the end.
    fn open_next(&mut self) -> bool {
        if let Some((name, source, length)) = self.files.pop() {
            self.between = Bytes::copy_from_slice(&header(&name, length, self.seconds));
            self.open = Some(Sending { name, source, length, sent: 0, crc: 0 });
            return true;
        }
        if std::mem::replace(&mut self.has_list, true) {
            return false;
        }
        let list = self.contents.encode().into_bytes();
        let length = list.len() as u64;
        let end = vec![0; padding(length) + 2 * BLOCK];
        self.between = [&header(LIST, length, self.seconds)[..], &list, &end].concat().into();
        true
    }
}
