//! The writing end of the log: the active segment, its growth and its rotation. One owner, no
//! locks; the log thread drives it.
//!
//! A flush is fastest when its bytes lie inside the file and were written before, so that no
//! metadata changes. Segments are therefore prepared in the background, full of zeros
//! ([`super::prepare`]). Where none is ready, the segment grows by a chunk of zeros behind the
//! batch that needs room. A new segment's header, and the folder, are flushed before its first
//! batch.
//!
//! Between the two the segment before is told that it was left. Whoever finds that in the last
//! segment knows that one is missing. Every write leaves the room for it in the file, so that it
//! needs none on a full disk.
//!
//! A segment is prepared with twice the length of the one before it, up to that of a full one. So
//! the zeros are in proportion to what is logged: a small database does not write those of a large
//! one, which would take the device for seconds where a process has many of them.
//!
//! Inside the file a batch is written in whole pages, past the operating system's cache and durable
//! in one call ([`super::staging`]). The first of these pages begins with the end of the batch
//! before, unchanged: no sector of it can become anything that it was not.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cognate_env::{Disk, File, OpenMode, Rng};

use super::prepare::{PREPARED, Preparer};
use super::record::{BATCH_HEADER, BatchKind, seal_batch};
use super::segment::{SEGMENT_HEADER, SegmentHeader, encode_header, segment_name};
use super::staging::{PAGE, Staging};
use crate::{Csn, Error};

/// A batch larger than this is not worth a copy.
const STAGED_BYTES: usize = 1 << 20;

/// Bytes of the batch that says that a segment was left.
const LEFT_BYTES: u64 = BATCH_HEADER as u64;

/// Shape of the segments.
#[derive(Debug, Clone, Copy)]
pub struct SegmentShape {
    /// A batch that would end beyond this many bytes goes to a new segment.
    pub segment_bytes: u64,
    /// Zeros written at once when a segment grows.
    pub grow_bytes: u64,
}

/// Appends batches to segment files.
#[derive(Debug)]
pub struct LogWriter {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    shape: SegmentShape,
    rng: Arc<dyn Rng>,
    file: Arc<dyn File>,
    path: PathBuf,
    /// Csn of the first record that the segment may hold, after which it is named.
    first: Csn,
    salt: u64,
    says_when_left: bool,
    chain: u32,
    position: u64,
    length: u64,
    staging: Staging,
    zeros: Vec<u8>,
    preparer: Option<Preparer>,
}

/// Where recovery left the active segment.
#[derive(Debug)]
pub struct Resume {
    /// The segment's file.
    pub file: Arc<dyn File>,
    /// Its path.
    pub path: PathBuf,
    /// Its header.
    pub header: SegmentHeader,
    /// CRC field of the last valid header.
    pub chain: u32,
    /// Where the next batch goes.
    pub position: u64,
}

impl LogWriter {
    /// Continues a recovered segment.
    pub fn resume(
        disk: Arc<dyn Disk>,
        folder: &Path,
        shape: SegmentShape,
        rng: Arc<dyn Rng>,
        at: Resume,
    ) -> Result<LogWriter, Error> {
        let fail = |cause| Error::io("reading", &at.path, cause);
        let length = at.file.len().map_err(fail)?;
        let mut page = [0; PAGE];
        let begun = &mut page[..at.position as usize % PAGE];
        at.file.read_exact_at(begun, at.position - begun.len() as u64).map_err(fail)?;
        let mut staging = Staging::default();
        staging.begin(begun);
        Ok(LogWriter {
            disk,
            folder: folder.to_path_buf(),
            shape,
            rng,
            file: at.file,
            path: at.path,
            first: at.header.first,
            salt: at.header.salt,
            says_when_left: at.header.says_when_left(),
            chain: at.chain,
            position: at.position,
            length,
            staging,
            zeros: Vec::new(),
            preparer: None,
        })
    }

    /// Has segments prepared from now on.
    pub fn with_preparer(mut self, preparer: Option<Preparer>) -> LogWriter {
        self.preparer = preparer;
        self
    }

    /// Begins a log, or goes on after a segment that `chain` ends, with a new segment for `first`.
    pub fn create(
        disk: Arc<dyn Disk>,
        folder: &Path,
        shape: SegmentShape,
        rng: Arc<dyn Rng>,
        first: Csn,
        chain: u32,
    ) -> Result<LogWriter, Error> {
        let (file, path, header) = create_segment(disk.as_ref(), folder, first, chain, rng.next_u64(), None)?;
        let position = SEGMENT_HEADER as u64;
        let resume = Resume { file, path, chain: header.crc, header, position };
        LogWriter::resume(disk, folder, shape, rng, resume)
    }

    /// Seals, writes and flushes one batch of records. `batch` begins with room for its header.
    /// Returns the first csn of a new segment if one was begun. After an error the log must not be
    /// written any more.
    pub fn write(&mut self, batch: &mut Vec<u8>, first: Csn, count: u32) -> Result<Option<Csn>, Error> {
        let end = self.position + batch.len().next_multiple_of(BATCH_HEADER) as u64 + LEFT_BYTES;
        let full = end > self.shape.segment_bytes;
        // Rather than grow, go on in a prepared segment.
        let ready = || self.preparer.as_ref().is_some_and(Preparer::is_ready);
        // One that has no record yet, but the close of a log that was opened for reading only, is
        // not left: the next one would have its name.
        let rotate = first > self.first && (full || (end > self.length && ready()));
        if rotate {
            self.rotate(first)?;
        }
        self.put(batch, BatchKind::Records, first, count)?;
        Ok(rotate.then_some(first))
    }

    /// Writes and flushes a mark or a close, which prove that everything before `next` was durable.
    pub fn write_proof(&mut self, kind: BatchKind, next: Csn) -> Result<(), Error> {
        self.put(&mut vec![0; BATCH_HEADER], kind, next, 0)
    }

    fn put(&mut self, batch: &mut Vec<u8>, kind: BatchKind, first: Csn, count: u32) -> Result<(), Error> {
        self.flush(batch, kind, first, count)?;
        if self.position >= self.length / 4
            && let Some(preparer) = &self.preparer
        {
            let bytes = (2 * self.length).next_multiple_of(PAGE as u64);
            preparer.want(bytes.min(self.shape.segment_bytes));
        }
        Ok(())
    }

    /// Writes and flushes a batch. Unless it is the last one of the segment, room for that one is
    /// left in the file behind it.
    fn flush(&mut self, batch: &mut Vec<u8>, kind: BatchKind, first: Csn, count: u32) -> Result<(), Error> {
        let chain = seal_batch(batch, kind, first, count, self.chain, self.salt);
        let fail = |cause| Error::io("writing", &self.path, cause);
        let end = self.position + batch.len() as u64;
        let needed = if kind == BatchKind::Left { end } else { end + LEFT_BYTES };
        let begin = self.position - self.position % PAGE as u64;
        if batch.len() <= STAGED_BYTES && needed.next_multiple_of(PAGE as u64) <= self.length {
            let pages = self.staging.stage(batch);
            self.file.write_durable(pages, begin).map_err(fail)?;
            self.staging.keep_last_page();
        } else {
            self.file.write_all_at(batch, self.position).map_err(fail)?;
            if needed > self.length {
                // Whole pages, so that the file never ends within a sector: a torn batch then loses
                // whole sectors, whatever happens to the length.
                let target = (end + self.shape.grow_bytes).min(self.shape.segment_bytes).max(needed);
                let target = target.next_multiple_of(PAGE as u64);
                let grown = (target - end) as usize;
                if self.zeros.len() < grown {
                    self.zeros = vec![0; grown];
                }
                self.file.write_all_at(&self.zeros[..grown], end).map_err(fail)?;
                self.length = target;
            }
            self.file.sync_data().map_err(|cause| Error::io("flushing", &self.path, cause))?;
            self.staging.pass(batch);
        }
        self.position = end;
        self.chain = chain;
        Ok(())
    }

    fn rotate(&mut self, first: Csn) -> Result<(), Error> {
        let salt = self.rng.next_u64();
        let prepared = self.preparer.as_ref().and_then(Preparer::take);
        let length = prepared.as_ref().map_or(SEGMENT_HEADER as u64, |(_, bytes)| *bytes);
        let prepared = prepared.map(|(file, _)| file);
        let chain = self.chain;
        let (file, path, header) =
            create_segment(self.disk.as_ref(), &self.folder, first, chain, salt, prepared)?;
        self.leave(first)?;
        (self.file, self.path, self.length) = (file, path, length);
        self.staging.begin(&encode_header(first, chain, salt).0);
        (self.first, self.salt, self.chain) = (first, header.salt, header.crc);
        self.says_when_left = header.says_when_left();
        self.position = SEGMENT_HEADER as u64;
        Ok(())
    }

    /// Says in this segment that the next one is there, which it is, durably.
    fn leave(&mut self, next: Csn) -> Result<(), Error> {
        // A recovery may have cut the file behind its last batch: then it goes without.
        if !self.says_when_left || self.position + LEFT_BYTES > self.length {
            return Ok(());
        }
        self.flush(&mut vec![0; BATCH_HEADER], BatchKind::Left, next, 0)
    }
}

type Created = (Arc<dyn File>, PathBuf, SegmentHeader);

/// Makes a segment of a prepared file, or a new one.
fn create_segment(
    disk: &dyn Disk,
    folder: &Path,
    first: Csn,
    chain: u32,
    salt: u64,
    prepared: Option<Arc<dyn File>>,
) -> Result<Created, Error> {
    let path = folder.join(segment_name(first));
    let (bytes, header) = encode_header(first, chain, salt);
    let fail = |cause| Error::io("creating", &path, cause);
    let file = match &prepared {
        Some(file) => Arc::clone(file),
        None => disk.open(&path, OpenMode::CreateNew).map_err(fail)?,
    };
    file.write_all_at(&bytes, 0).map_err(fail)?;
    file.sync_data().map_err(fail)?;
    if prepared.is_some() {
        disk.rename(&folder.join(PREPARED), &path).map_err(fail)?;
    }
    disk.sync_dir(folder).map_err(|cause| Error::io("flushing", folder, cause))?;
    Ok((file, path, header))
}
