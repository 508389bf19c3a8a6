//! A node's durable state on its way to another node: the base store as it was at one moment, and
//! an image that counts there (`crate::image`).
//!
//! ```text
//! magic: 8 bytes       COGNTRN1
//! head: 4 bytes        its length, then: count, for each file: name, length
//! the files' bytes, one after the other: runs, manifest, image
//! ```
//!
//! Who takes it in writes the files into a folder beside its own, flushes them, and then writes
//! down that they are complete. From there on they are its state: the next opening moves them to
//! where they belong (`take_over`) before it looks at anything else, and does so again if it is
//! interrupted. Before there is nothing to be seen of them.
//!
//! Another state may come before that opening. So the names of files begin with a *round*, 0 or 1,
//! and the list of what is complete, whose first line says of which round it is, is replaced as a
//! whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use cognate_env::{Disk, File, OpenMode};

use super::base::BaseView;
use super::checking::Checking;
use super::images;
use super::manifest::{MANIFEST, Manifest};
use super::run::{Run, parse_run_file_name, run_file_name};
use crate::payload::{Encoder, Input};
use crate::{Csn, Error};

const MAGIC: &[u8; 8] = b"COGNTRN1";
/// A head is not longer.
const HEAD_MAX: usize = 1 << 24;
const COMPLETE: &str = "COMPLETE";
const FOLDER: &str = "incoming";

/// The bytes of one file.
enum Source {
    Run(Arc<Run>, Checking),
    Memory(Bytes),
}

/// A state to be sent. Holding it keeps the files of its runs.
pub struct Outgoing {
    position: Csn,
    /// What is still to be sent, the next last.
    sources: Vec<(Source, u64)>,
    /// Bytes of the next one that were sent.
    sent: u64,
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Outgoing {
    /// The state of a view and of an image that counts there, as its file is.
    pub(crate) fn new(view: &BaseView, position: Csn, image: Vec<u8>) -> Result<Outgoing, Error> {
        let version = &view.version;
        if view.newest() > view.watermark() {
            return Err(Error::Defect("a node has no loads that wait for a checkpoint"));
        }
        let names: Vec<_> = version.runs.iter().map(|run| run.name()).collect();
        let manifest = Manifest {
            generation: 1,
            watermark: version.watermark,
            next_run: names.iter().map(|name| name.number + 1).max().unwrap_or(1),
            runs: names,
            staged: Vec::new(),
            dropped: version.dropped().to_vec(),
        };
        let mut files: Vec<(String, Source, u64)> = Vec::new();
        for run in &version.runs {
            let source = Source::Run(Arc::clone(run), Checking::default());
            files.push((run_file_name(run.name().number), source, run.name().length));
        }
        for (name, bytes) in [(MANIFEST.to_owned(), manifest.encode()), (images::file_name(position), image)]
        {
            files.push((name, Source::Memory(bytes.into()), 0));
            let Some((_, Source::Memory(bytes), length)) = files.last_mut() else { continue };
            *length = bytes.len() as u64;
        }
        let mut head = Encoder::with_capacity(1 << 12);
        head.list(&files, |out, (name, _, length)| {
            out.string(name.as_bytes());
            out.varint(*length);
        });
        let head = head.finish();
        let head = [&MAGIC[..], &(head.len() as u32).to_le_bytes(), &head].concat();
        let length = head.len() as u64;
        let mut sources = vec![(Source::Memory(head.into()), length)];
        sources.extend(files.into_iter().map(|(_, source, length)| (source, length)));
        sources.reverse();
        Ok(Outgoing { position, sources, sent: 0 })
    }

    /// Where the order goes on behind this state.
    pub fn position(&self) -> Csn {
        self.position
    }

    /// The next bytes, at most so many; `None` at the end. Reads from the disk.
    ///
    /// # Errors
    /// `Corrupt` naming file and offset, `Io`.
    pub fn next(&mut self, bytes_max: usize) -> Result<Option<Bytes>, Error> {
        self.read_next(bytes_max)
            .inspect_err(|error| tracing::error!(%error, "this node's state cannot be sent to another one"))
    }

    fn read_next(&mut self, bytes_max: usize) -> Result<Option<Bytes>, Error> {
        loop {
            let Some((source, length)) = self.sources.last_mut() else { return Ok(None) };
            let left = *length - self.sent;
            if left == 0 {
                self.sources.pop();
                self.sent = 0;
                continue;
            }
            let count = left.min(bytes_max as u64) as usize;
            let chunk = match source {
                Source::Memory(bytes) => bytes.slice(self.sent as usize..self.sent as usize + count),
                Source::Run(run, checking) => {
                    let mut bytes = vec![0; count];
                    run.read_raw(&mut bytes, self.sent)?;
                    checking.take(run, &bytes)?;
                    bytes.into()
                }
            };
            self.sent += count as u64;
            return Ok(Some(chunk));
        }
    }
}

/// A state that is being taken in. Dropped before [`Incoming::finish`], nothing has changed.
#[derive(Debug)]
pub struct Incoming {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// What the names of its files begin with.
    round: u8,
    /// Bytes of the head, as long as it is not complete.
    head: Option<Vec<u8>>,
    names: Vec<String>,
    /// Files still to come, the next last.
    files: Vec<(String, u64)>,
    open: Option<(PathBuf, Arc<dyn File>, u64)>,
}

fn undecodable(what: impl Into<String>) -> Error {
    Error::undecodable(format!("the state of another node: {}", what.into()))
}

impl Incoming {
    /// Begins to take in a state into the folder of a database, which may be open.
    ///
    /// # Errors
    /// `Io`.
    pub fn begin(disk: Arc<dyn Disk>, database: &Path) -> Result<Incoming, Error> {
        let folder = database.join(FOLDER);
        disk.create_dir_all(&folder).map_err(|cause| Error::io("creating", &folder, cause))?;
        // What is complete stays, until this is.
        let round = complete(disk.as_ref(), &folder)?.map_or(0, |(complete, _)| 1 - complete);
        clear(disk.as_ref(), &folder, |name| is_of_round(name, round))?;
        let (names, files) = (Vec::new(), Vec::new());
        Ok(Incoming { disk, folder, round, head: Some(Vec::new()), names, files, open: None })
    }

    /// Keeps the next bytes. If that fails, what was kept is given up at once: a disk that it has
    /// filled is needed for other things.
    ///
    /// # Errors
    /// `Undecodable`, `Io`, `DiskFull`.
    pub fn put(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.keep(bytes).inspect_err(|_| {
            self.open = None;
            let round = self.round;
            if let Err(error) = clear(self.disk.as_ref(), &self.folder, |name| is_of_round(name, round)) {
                tracing::warn!(%error, "a part of another node's state stays until the next one comes");
            }
        })
    }

    fn keep(&mut self, mut bytes: Bytes) -> Result<(), Error> {
        while !bytes.is_empty() {
            if self.head.is_some() {
                self.put_head(&mut bytes)?;
                continue;
            }
            if self.open.is_none() {
                self.open_next()?;
            }
            let Some((name, length)) = self.files.last() else { return Err(undecodable("it is too long")) };
            let Some((path, file, written)) = &mut self.open else { continue };
            let count = (length - *written).min(bytes.len() as u64) as usize;
            let part = bytes.split_to(count);
            file.write_all_at(&part, *written).map_err(|cause| Error::io("writing", path, cause))?;
            *written += count as u64;
            if *written == *length {
                tracing::debug!(name, length, "a file of another node's state is here");
                self.close_file()?;
            }
        }
        Ok(())
    }

    fn put_head(&mut self, bytes: &mut Bytes) -> Result<(), Error> {
        let Some(head) = &mut self.head else { return Ok(()) };
        let wanted = |head: &[u8]| match head.get(8..12) {
            Some(length) => 12 + u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize,
            None => 12,
        };
        let missing = wanted(head) - head.len();
        head.extend_from_slice(&bytes.split_to(missing.min(bytes.len())));
        let wanted = wanted(head);
        if wanted > HEAD_MAX {
            return Err(undecodable("its head is too long"));
        }
        if head.len() < wanted {
            return Ok(());
        }
        if &head[..8] != MAGIC {
            return Err(undecodable("not one that this version knows"));
        }
        let mut input = Input::of(&head[12..]);
        let decoded = input.list(|input| {
            let name = std::str::from_utf8(input.string()?).map_err(|_| "a name that is not UTF-8")?;
            Ok((name.to_owned(), input.varint()?))
        });
        let mut files = decoded.and_then(|files| input.end().map(|()| files)).map_err(undecodable)?;
        if let Some((name, _)) = files.iter().find(|(name, _)| home(name).is_none()) {
            return Err(undecodable(format!("a file {name:?}")));
        }
        self.names = files.iter().map(|(name, _)| name.clone()).collect();
        files.reverse();
        self.files = files;
        self.head = None;
        Ok(())
    }

    fn open_next(&mut self) -> Result<(), Error> {
        while let Some((name, length)) = self.files.last() {
            let path = self.folder.join(of_round(self.round, name));
            let file = self.disk.open(&path, OpenMode::Truncate);
            let file = file.map_err(|cause| Error::io("creating", &path, cause))?;
            let is_empty = *length == 0;
            self.open = Some((path, file, 0));
            if !is_empty {
                return Ok(());
            }
            self.close_file()?;
        }
        Ok(())
    }

    fn close_file(&mut self) -> Result<(), Error> {
        if let Some((path, file, _)) = self.open.take() {
            file.sync_data().map_err(|cause| Error::io("flushing", &path, cause))?;
            self.files.pop();
        }
        Ok(())
    }

    /// Makes it the database's state from its next opening on, durably.
    ///
    /// # Errors
    /// `Undecodable` if it is not complete; `Io`.
    pub fn finish(self) -> Result<(), Error> {
        if self.head.is_some() || !self.files.is_empty() {
            return Err(undecodable("it is not complete"));
        }
        let path = self.folder.join(COMPLETE);
        let fail = |cause| Error::io("writing", &path, cause);
        let sync = || self.disk.sync_dir(&self.folder);
        sync().map_err(|cause| Error::io("flushing", &self.folder, cause))?;
        let list = format!("{}\n{}", self.round, self.names.join("\n"));
        let fresh = self.folder.join("complete.new");
        let file = self.disk.open(&fresh, OpenMode::Truncate).map_err(fail)?;
        file.write_all_at(list.as_bytes(), 0).map_err(fail)?;
        file.sync_data().map_err(fail)?;
        self.disk.rename(&fresh, &path).map_err(fail)?;
        sync().map_err(|cause| Error::io("flushing", &self.folder, cause))
    }
}

/// The folder where a file of a state belongs.
fn home(name: &str) -> Option<&'static str> {
    match name {
        MANIFEST => Some("base"),
        _ if parse_run_file_name(name).is_some() => Some("base"),
        _ => images::parse_file_name(name).map(|_| "images"),
    }
}

/// A file's name in the folder.
fn of_round(round: u8, name: &str) -> String {
    format!("{round}-{name}")
}

fn is_of_round(name: &str, round: u8) -> bool {
    name.strip_prefix(&of_round(round, "")).is_some()
}

/// The round of the state that is complete, and its files, if there is one.
fn complete(disk: &dyn Disk, folder: &Path) -> Result<Option<(u8, Vec<String>)>, Error> {
    let path = folder.join(COMPLETE);
    let fail = |cause| Error::io("reading", &path, cause);
    if !disk.exists(&path).map_err(fail)? {
        return Ok(None);
    }
    let file = disk.open(&path, OpenMode::Read).map_err(fail)?;
    let mut text = vec![0; file.len().map_err(fail)? as usize];
    file.read_exact_at(&mut text, 0).map_err(fail)?;
    let damaged = || Error::corrupt(&path, 0, "not a list of files");
    let text = String::from_utf8(text).map_err(|_| damaged())?;
    let (round, names) = text.split_once('\n').ok_or_else(damaged)?;
    let round = round.parse().ok().filter(|round| *round <= 1).ok_or_else(damaged)?;
    Ok(Some((round, names.lines().map(str::to_owned).collect())))
}

/// Removes the files of these names.
fn clear(disk: &dyn Disk, folder: &Path, is_gone: impl Fn(&str) -> bool) -> Result<(), Error> {
    let fail = |cause| Error::io("clearing", folder, cause);
    for name in disk.list(folder).map_err(fail)?.iter().filter(|name| is_gone(name)) {
        disk.remove(&folder.join(name)).map_err(fail)?;
    }
    disk.sync_dir(folder).map_err(fail)
}

/// Moves a state that was taken in completely to where it belongs, before the database is opened.
/// Says whether there was one.
///
/// # Errors
/// `Io`; the next opening goes on with it.
pub(crate) fn take_over(disk: &dyn Disk, database: &Path) -> Result<bool, Error> {
    let folder = database.join(FOLDER);
    let path = folder.join(COMPLETE);
    let fail = |cause| Error::io("taking over", &path, cause);
    if !disk.exists(&folder).map_err(fail)? {
        return Ok(false);
    }
    let Some((round, names)) = complete(disk, &folder)? else {
        clear(disk, &folder, |_| true)?;
        return Ok(false);
    };
    let (base, images) = (database.join("base"), database.join("images"));
    for home in [&base, &images] {
        disk.create_dir_all(home).map_err(fail)?;
    }
    // The manifest comes after its runs, as they were listed. Runs of the state before that have
    // other numbers are removed when the base store is opened; those of the same are replaced.
    let mut gone: Vec<PathBuf> =
        disk.list(&images).map_err(fail)?.iter().map(|name| images.join(name)).collect();
    for name in &names {
        let Some(home) = home(name) else {
            return Err(Error::corrupt(&path, 0, format!("a list of files with {name:?}")));
        };
        let (from, to) = (folder.join(of_round(round, name)), database.join(home).join(name));
        gone.retain(|image| *image != to);
        if disk.exists(&from).map_err(fail)? {
            if name == MANIFEST {
                disk.sync_dir(&base).map_err(fail)?;
            }
            disk.rename(&from, &to).map_err(fail)?;
        }
    }
    for image in gone {
        disk.remove(&image).map_err(fail)?;
    }
    disk.sync_dir(&base).map_err(fail)?;
    disk.sync_dir(&images).map_err(fail)?;
    clear(disk, &folder, |name| name == COMPLETE)?;
    clear(disk, &folder, |_| true)?;
    tracing::info!("the state that another node sent is this database's now");
    Ok(true)
}
