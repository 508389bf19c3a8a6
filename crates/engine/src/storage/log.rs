//! The log: every commit's record, in commit order, durable before the commit is acknowledged.
//!
//! Opening it is recovery: the segments are verified from the one that holds the first record after
//! the watermark; records are replayed; a torn tail is cut; anything else that is wrong refuses
//! with file and offset. Then the log thread starts ([`super::group_commit`]).
//!
//! Mutexes: `removing` is held while old segments are removed, `writer` while a batch is written.
//! `segments` is a leaf, taken after a flush and by truncation; no I/O happens under it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cognate_env::{Clock, Disk, File, OpenMode, RealClock, RealRng, Rng};

use super::batch_writer::{BatchListener, BatchWriter};
use super::frame::ENTRY_MAX;
use super::group_commit::{DurableWait, GroupCommit, LogStatistics};
use super::log_writer::{LogWriter, Resume, SegmentShape};
use super::prepare::{PREPARED, Preparer};
use super::record::RECORD_HEADER;
use super::segment::{ScanEnd, SegmentReader, parse_segment_name, segment_name};
use crate::sync::thread::JoinHandle;
use crate::sync::{Mutex, thread};
use crate::{Csn, Error};

/// Distance of the samples by which [`Log::size_after`] estimates, in bytes of log.
const SAMPLE_BYTES: u64 = 128 << 10;

/// No record's payload is longer. It may be one entry, which a checkpoint is to take.
const RECORD_BYTES_MAX: u64 = ENTRY_MAX as u64;

/// How a log is kept.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Size at which a segment is full. The first ones are smaller where the next segment is
    /// prepared: each may have twice the bytes of the one before.
    pub segment_bytes: u64,
    /// Bytes by which a segment file grows at once.
    pub grow_bytes: u64,
    /// Whether the next segment is prepared in the background.
    pub prepare: bool,
    /// Largest payload of one record, at most [`ENTRY_MAX`].
    pub record_bytes_max: u64,
    /// After this long without a commit, a mark is written behind the last batch, so that later
    /// damage to it cannot pass for a torn write.
    pub idle_mark: Option<Duration>,
    /// Whether the log was there before, so that it is damaged without a segment.
    pub begun: bool,
    /// Source of the segments' salts.
    pub rng: Arc<dyn Rng>,
    /// Measures flushes.
    pub clock: Arc<dyn Clock>,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            segment_bytes: 64 << 20,
            grow_bytes: 1 << 20,
            prepare: true,
            record_bytes_max: RECORD_BYTES_MAX,
            idle_mark: Some(Duration::from_millis(100)),
            begun: false,
            rng: Arc::new(RealRng),
            clock: Arc::new(RealClock::default()),
        }
    }
}

/// Receives each record of a recovery: csn and payload.
pub type Replay<'a> = dyn FnMut(Csn, &[u8]) -> Result<(), Error> + 'a;

/// Receives each record of a recovery: csn, the last csn that is certainly on the medium, and
/// payload.
///
/// A batch proves that the batches before it were flushed; the last one may be in the operating
/// system's cache only, until opening ends.
pub type ReplaySettled<'a> = dyn FnMut(Csn, Csn, &[u8]) -> Result<(), Error> + 'a;

/// The log of one database. Dropping it closes it.
#[derive(Debug)]
pub struct Log {
    shared: Arc<GroupCommit>,
    /// What writes it: none where records are kept elsewhere, and none once the log is closed.
    writer: Arc<Mutex<Option<BatchWriter>>>,
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    record_bytes_max: u64,
    segments: Arc<Mutex<Segments>>,
    removing: Mutex<()>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Records are kept elsewhere, and come from there with their numbers.
    follows: bool,
}

/// Which segments there are, and how the log's size grew with the csn.
#[derive(Debug, Default)]
struct Segments {
    /// First csn of each segment, ascending; the last is active.
    firsts: VecDeque<Csn>,
    /// (csn, bytes of log up to and with it), ascending, about one per [`SAMPLE_BYTES`].
    samples: VecDeque<(Csn, u64)>,
    bytes: u64,
}

impl Segments {
    fn grown(&mut self, last: Csn, bytes: u64) {
        self.bytes += bytes;
        if self.samples.back().is_none_or(|&(_, sampled)| self.bytes - sampled >= SAMPLE_BYTES) {
            self.samples.push_back((last, self.bytes));
        }
    }
}

struct Listener(Arc<Mutex<Segments>>);

impl BatchListener for Listener {
    fn written(&mut self, last: Csn, bytes: u64, segment: Option<Csn>) {
        let mut segments = self.0.lock();
        segments.firsts.extend(segment);
        segments.grown(last, bytes);
    }
}

impl Log {
    /// Opens the log in `folder`, creating it if there is none, and calls `replay(csn, payload)`
    /// for each record after `after`, in order. What `replay` calls [`Error::Undecodable`] is
    /// reported with the record's place.
    ///
    /// A torn tail is cut. [`Error::Corrupt`] names file and offset of any other damage, of a
    /// missing segment, and of a log that ends before `after`; and the folder of a log that was
    /// begun and is not there.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        after: Csn,
        options: LogOptions,
        replay: &mut Replay<'_>,
    ) -> Result<Log, Error> {
        Log::recover(disk, folder, after, options, &mut |csn, _, payload| replay(csn, payload))
    }

    /// As [`Log::open`]; `replay` also learns up to which record it may already checkpoint.
    pub fn recover(
        disk: Arc<dyn Disk>,
        folder: &Path,
        after: Csn,
        options: LogOptions,
        replay: &mut ReplaySettled<'_>,
    ) -> Result<Log, Error> {
        let begun = options.begun;
        if begun && !disk.exists(folder).map_err(|cause| Error::io("looking for", folder, cause))? {
            return Err(Error::corrupt(folder, 0, "the log is missing, and there was one"));
        }
        disk.create_dir_all(folder).map_err(|cause| Error::io("creating", folder, cause))?;
        let mut segments = Segments::default();
        let recovered = Recovery { disk: &disk, folder, after, begun }.run(&mut segments, replay)?;
        let shape = SegmentShape { segment_bytes: options.segment_bytes, grow_bytes: options.grow_bytes };
        let rng = Arc::clone(&options.rng);
        let (writer, last) = match recovered {
            Some((resume, next)) => {
                (LogWriter::resume(Arc::clone(&disk), folder, shape, rng, resume)?, next - 1)
            }
            None => {
                segments.firsts.push_back(after + 1);
                (LogWriter::create(Arc::clone(&disk), folder, shape, rng, after + 1, 0)?, after)
            }
        };
        let preparer = options.prepare.then(|| Preparer::start(&disk, folder));
        let preparer =
            preparer.transpose().map_err(|cause| Error::io("starting a thread of", folder, cause))?;
        let writer = writer.with_preparer(preparer);
        let shared = Arc::new(GroupCommit::new(last));
        let segments = Arc::new(Mutex::new(segments));
        let listener = Box::new(Listener(Arc::clone(&segments)));
        let writer = BatchWriter::new(writer, listener, options.clock);
        let writer = Arc::new(Mutex::new(Some(writer)));
        let log = Log {
            shared: Arc::clone(&shared),
            writer: Arc::clone(&writer),
            disk,
            folder: folder.to_path_buf(),
            record_bytes_max: options.record_bytes_max.min(RECORD_BYTES_MAX),
            segments,
            removing: Mutex::default(),
            threads: Mutex::default(),
            follows: false,
        };
        let (idle_mark, sweeper) = (options.idle_mark, Arc::clone(&shared));
        log.start("log", move || {
            shared.run(&writer, idle_mark);
            // Who closes the log finds its files closed, and the thread ended that prepares them.
            let ended = writer.lock().take();
            drop(ended);
        })?;
        log.start("log-sweeps", move || sweeper.run_sweeps())?;
        Ok(log)
    }

    /// Begins a log in a folder that has none, for a base store that came from elsewhere and has
    /// everything up to `after`.
    pub(crate) fn begin(disk: Arc<dyn Disk>, folder: &Path, after: Csn) -> Result<(), Error> {
        disk.create_dir_all(folder).map_err(|cause| Error::io("creating", folder, cause))?;
        let LogOptions { segment_bytes, grow_bytes, rng, .. } = LogOptions::default();
        let shape = SegmentShape { segment_bytes, grow_bytes };
        LogWriter::create(disk, folder, shape, rng, after + 1, 0).map(drop)
    }

    /// The log of a node whose records are kept by a total order: nothing is written here, and
    /// what comes by [`Log::follow`] is durable already. It goes on after `after`.
    pub(crate) fn following(disk: Arc<dyn Disk>, folder: &Path, after: Csn) -> Log {
        Log {
            shared: Arc::new(GroupCommit::new(after)),
            writer: Arc::default(),
            disk,
            folder: folder.to_path_buf(),
            record_bytes_max: RECORD_BYTES_MAX,
            segments: Arc::default(),
            removing: Mutex::default(),
            threads: Mutex::default(),
            follows: true,
        }
    }

    /// Record `csn` has come from where records are kept, with so many bytes.
    ///
    /// # Errors
    /// [`Error::LogPoisoned`] after a defect elsewhere.
    pub(crate) fn follow(&self, csn: Csn, bytes: u64) -> Result<(), Error> {
        assert!(self.follows, "a log of its own numbers its records itself");
        if let Some(error) = self.poisoned() {
            return Err(error);
        }
        self.segments.lock().grown(csn, bytes);
        self.shared.follow(csn);
        Ok(())
    }

    fn start(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let thread = thread::Builder::new().name(name.into()).spawn(run);
        let thread = thread.map_err(|cause| Error::io("starting a thread of", &self.folder, cause))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Gives the record the next csn and queues it; the parts form one payload. Cheap: one copy
    /// into the pending batch.
    ///
    /// [`Error::LogPoisoned`] after a failed flush, [`Error::TransactionTooLarge`] beyond the
    /// record limit, [`Error::ShuttingDown`] after a close.
    pub fn append(&self, payload: &[&[u8]]) -> Result<Csn, Error> {
        let csn = self.queue(payload)?;
        self.nudge();
        Ok(csn)
    }

    /// As [`Log::append`], but nobody writes the record before [`Log::nudge`] or another append.
    /// For callers that hold a mutex.
    pub fn queue(&self, payload: &[&[u8]]) -> Result<Csn, Error> {
        self.check_numbers()?;
        self.shared.queue(payload, self.record_bytes_max)
    }

    /// As [`Log::queue`], for a record that nobody waits for: it is written with the next one that
    /// is queued or appended otherwise, or when the log closes; or earlier, in a pause.
    pub fn queue_along(&self, payload: &[&[u8]]) -> Result<Csn, Error> {
        self.check_numbers()?;
        self.shared.queue_along(payload, self.record_bytes_max)
    }

    /// Whether records get their numbers here.
    fn check_numbers(&self) -> Result<(), Error> {
        if self.follows {
            return Err(Error::Defect("a record was to be numbered by a node of a cluster on its own"));
        }
        Ok(())
    }

    /// Has the records written that were queued.
    pub fn nudge(&self) {
        self.shared.nudge();
    }

    /// Writes and flushes what was queued on the calling thread, instead of having the log thread
    /// do it: for who waits for a lone record, and so can spare two switches between threads.
    /// Nothing is done, which is told by `false`, while the log thread writes, and where a flush
    /// took longer than `limit` lately, since a thread that has other work, too, must not be kept
    /// from it for long; then [`Log::nudge`] is the way.
    pub fn flush_here(&self, limit: Duration) -> bool {
        self.shared.flush_here(&self.writer, limit)
    }

    /// The last csn given out; 0 if none ever was.
    pub fn last(&self) -> Csn {
        self.shared.last()
    }

    /// The last csn that is known to survive a crash.
    pub fn durable(&self) -> Csn {
        self.shared.durable()
    }

    /// A future that resolves when `csn` is durable, or with [`Error::LogPoisoned`]. Ready at once,
    /// without allocation, if it is already.
    pub fn wait_durable(&self, csn: Csn) -> DurableWait {
        self.shared.wait_durable(csn)
    }

    /// The failure that stopped the log, if any.
    pub fn poisoned(&self) -> Option<Error> {
        self.shared.poison().cloned()
    }

    /// Stops the log because of a defect elsewhere, as a failed flush would. The answer is the
    /// failure that everybody gets from now on, which is an earlier one if there was one.
    pub(crate) fn fail(&self, cause: Error) -> Error {
        self.shared.fail(cause)
    }

    /// Counters since the log was opened.
    pub fn statistics(&self) -> LogStatistics {
        self.shared.statistics()
    }

    /// Removes the segments that hold only records up to `csn`. The active segment stays.
    ///
    /// After an error all that is left is still a log: with a gap between its segments it would not
    /// open. The next call tries again.
    pub fn remove_before(&self, csn: Csn) -> Result<(), Error> {
        let _removing = self.removing.lock();
        let mut removed = false;
        loop {
            let first = {
                let segments = self.segments.lock();
                match segments.firsts.get(1) {
                    Some(&second) if second <= csn.saturating_add(1) => segments.firsts.front().copied(),
                    _ => None,
                }
            };
            let Some(first) = first else { break };
            let path = self.folder.join(segment_name(first));
            match self.disk.remove(&path) {
                Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("removing", &path, cause));
                }
                _ => removed = true,
            }
            self.segments.lock().firsts.pop_front();
        }
        let mut segments = self.segments.lock();
        while segments.samples.get(1).is_some_and(|&(sampled, _)| sampled <= csn) {
            segments.samples.pop_front();
        }
        drop(segments);
        if removed {
            self.disk.sync_dir(&self.folder).map_err(|cause| Error::io("flushing", &self.folder, cause))?;
        }
        Ok(())
    }

    /// The file and the offset of a record, if it is in the log and written. For reports of damage:
    /// reads the segment up to there.
    pub fn place_of(&self, csn: Csn) -> Option<(PathBuf, u64)> {
        let first = {
            let segments = self.segments.lock();
            let after = segments.firsts.partition_point(|&first| first <= csn);
            *segments.firsts.get(after.checked_sub(1)?)?
        };
        let path = self.folder.join(segment_name(first));
        let file = self.disk.open(&path, OpenMode::Read).ok()?;
        let mut reader = SegmentReader::open(file, &path, first).ok()??;
        let scanned = reader.scan(None, &mut |_, found, _| match found == csn {
            true => Err(Error::undecodable("it")),
            false => Ok(()),
        });
        match scanned {
            Err(Error::Corrupt { file, offset, .. }) => Some((file, offset)),
            _ => None,
        }
    }

    /// About how many bytes of log a recovery from watermark `csn` would replay.
    pub fn size_after(&self, csn: Csn) -> u64 {
        if csn >= self.durable() {
            return 0;
        }
        let segments = self.segments.lock();
        let known = segments.samples.partition_point(|&(sampled, _)| sampled <= csn);
        let before = known.checked_sub(1).map_or(0, |index| segments.samples[index].1);
        segments.bytes - before
    }

    /// Writes and flushes what is pending and a close marker, and ends the log thread. Later
    /// appends fail.
    pub fn close(&self) -> Result<(), Error> {
        self.shared.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                let cause = Arc::new(Error::Defect("the log thread panicked"));
                return Err(self.poisoned().unwrap_or(Error::LogPoisoned { cause }));
            }
        }
        self.poisoned().map_or(Ok(()), Err)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::debug!(%error, "the log was closed after a failure");
        }
    }
}

/// Reads the segments of a folder at start.
struct Recovery<'a> {
    disk: &'a Arc<dyn Disk>,
    folder: &'a Path,
    after: Csn,
    begun: bool,
}

/// What a folder has of segments.
struct Names {
    /// First csns of the segments to read, ascending.
    firsts: Vec<Csn>,
    /// Those behind them that have nothing but zeros, or nothing at all.
    unwritten: Vec<Csn>,
}

impl Recovery<'_> {
    /// Returns where to go on and the next csn; `None` if there is no log yet.
    fn run(
        &self,
        segments: &mut Segments,
        replay: &mut ReplaySettled<'_>,
    ) -> Result<Option<(Resume, Csn)>, Error> {
        let Names { firsts, unwritten } = self.segment_names()?;
        let mut settled = self.after;
        let mut chain = None;
        for (index, &first) in firsts.iter().enumerate() {
            let (file, path) = self.open(first)?;
            let Some(mut reader) = SegmentReader::open(Arc::clone(&file), &path, first)? else {
                return Err(Error::corrupt(&path, 0, "the log segment's header is missing"));
            };
            if chain.is_some_and(|chain| chain != reader.header().chain) {
                return Err(Error::corrupt(&path, 12, "the log segment does not continue the one before"));
            }
            let next_segment = firsts.get(index + 1).copied();
            let mut batch = 0;
            let end = reader.scan(next_segment, &mut |position, csn, payload| {
                if position != batch {
                    (batch, settled) = (position, settled.max(csn - 1));
                }
                segments.grown(csn, (RECORD_HEADER + payload.len()) as u64);
                if csn > self.after { replay(csn, settled, payload) } else { Ok(()) }
            })?;
            segments.firsts.push_back(first);
            chain = Some(end.chain);
            if next_segment.is_none() {
                let next = end.next;
                if end.left {
                    return Err(self.lost(next, &unwritten));
                }
                let resume = self.settle(reader, file, path, &end)?;
                self.remove_unwritten(&unwritten)?;
                return Ok(Some((resume, next)));
            }
        }
        self.remove_unwritten(&unwritten)?;
        Ok(None)
    }

    /// The writer left the last segment that is there, which it does only once the next one is
    /// durable.
    fn lost(&self, next: Csn, unwritten: &[Csn]) -> Error {
        let what = match unwritten.contains(&next) {
            true => format!("the log segment of record {next} and after has lost its header"),
            false => format!("the log segment of record {next} and after is missing"),
        };
        Error::corrupt(&self.folder.join(segment_name(next)), 0, what)
    }

    /// Removes segments whose creation was interrupted.
    fn remove_unwritten(&self, unwritten: &[Csn]) -> Result<(), Error> {
        for &first in unwritten {
            self.remove(&self.folder.join(segment_name(first)))?;
        }
        if unwritten.is_empty() { Ok(()) } else { self.flush_folder() }
    }

    fn flush_folder(&self) -> Result<(), Error> {
        self.disk.sync_dir(self.folder).map_err(|cause| Error::io("flushing", self.folder, cause))
    }

    /// The segments, without a gap at the watermark. Removes those wholly before the watermark.
    fn segment_names(&self) -> Result<Names, Error> {
        let fail = |cause| Error::io("listing", self.folder, cause);
        let others = self.disk.list_others(self.folder).map_err(fail)?;
        if let Some(name) = others.iter().find(|name| parse_segment_name(name).is_some()) {
            return Err(Error::corrupt(&self.folder.join(name), 0, "the log segment is no plain file"));
        }
        let names = self.disk.list(self.folder).map_err(fail)?;
        if names.iter().any(|name| name == PREPARED) {
            self.remove(&self.folder.join(PREPARED))?;
        }
        let mut firsts: Vec<Csn> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
        firsts.sort_unstable();
        let mut unwritten = Vec::new();
        while let Some(&last) = firsts.last() {
            let (file, path) = self.open(last)?;
            if SegmentReader::open(file, &path, last)?.is_some() {
                break;
            }
            unwritten.extend(firsts.pop());
        }
        let next = self.after + 1;
        let needed = firsts.partition_point(|&first| first <= next);
        for first in firsts.drain(..needed.saturating_sub(1)) {
            self.remove(&self.folder.join(segment_name(first)))?;
        }
        let found = firsts.first().copied();
        if found.map_or(self.after > 0, |first| first > next) {
            let path = self.folder.join(segment_name(next));
            let what = match found {
                Some(first) => format!("the log segment of records {next} to {} is missing", first - 1),
                None => format!("the log segment of record {} and after is missing", self.after),
            };
            return Err(Error::corrupt(&path, 0, what));
        }
        if self.begun && found.is_none() {
            return Err(Error::corrupt(self.folder, 0, "the log has no segment, and there was one"));
        }
        // The process before may have ended between creating a segment and flushing the folder; and
        // what was removed here must stay so.
        self.flush_folder()?;
        Ok(Names { firsts, unwritten })
    }

    /// Cuts what a torn batch left, and makes sure that the last batch is on the medium and not
    /// only in the cache of an operating system whose flush failed.
    fn settle(
        &self,
        mut reader: SegmentReader,
        file: Arc<dyn File>,
        path: PathBuf,
        end: &ScanEnd,
    ) -> Result<Resume, Error> {
        if end.next <= self.after {
            let what = format!("the log ends with record {}, before {}", end.next - 1, self.after);
            return Err(Error::corrupt(&path, end.position, what));
        }
        if end.remains {
            tracing::info!(file = %path.display(), offset = end.position, "cut a torn batch");
            file.set_len(end.position).map_err(|cause| Error::io("cutting", &path, cause))?;
        }
        if let Some(last) = end.last_batch {
            let batch = reader.bytes(last, (end.position - last) as usize)?;
            file.write_all_at(batch, last).map_err(|cause| Error::io("writing", &path, cause))?;
        }
        file.sync_data().map_err(|cause| Error::io("flushing", &path, cause))?;
        let header = *reader.header();
        Ok(Resume { file, path, header, chain: end.chain, position: end.position })
    }

    fn open(&self, first: Csn) -> Result<(Arc<dyn File>, PathBuf), Error> {
        let path = self.folder.join(segment_name(first));
        let file = self.disk.open(&path, OpenMode::ReadWrite);
        Ok((file.map_err(|cause| Error::io("opening", &path, cause))?, path))
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        self.disk.remove(path).map_err(|cause| Error::io("removing", path, cause))
    }
}
