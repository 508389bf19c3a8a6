//! Group commit as a pipeline: committers put records into a pending batch and go on; one log
//! thread writes and flushes batch after batch.
//!
//! Step 8 of the corridor in ARCHITECTURE.md.
//!
//! ```text
//! committers          pending batch            log thread                 waiters
//! append 1 ─────────▶ [1]
//! append 2 ─────────▶ [1 2]
//!                     [] ◀──── swap buffers ── write [1 2], flush …       1, 2 registered
//! append 3 ─────────▶ [3]                      …
//! append 4 ─────────▶ [3 4]                    flushed: durable = 2 ────▶ 1, 2 woken in one sweep
//!                     [] ◀──── swap buffers ── write [3 4], flush …
//! ```
//!
//! Waking costs time that the device would be idle. So when the next batch is waiting already, the
//! log thread leaves the sweep to a second thread and writes on; otherwise it sweeps itself, which
//! answers soonest. That is so for a few waiters, too, although to wake a thread costs more than to
//! wake them: at a node of a cluster who is woken may be the consensus, which works on this thread.
//!
//! A record that nobody waits for ([`GroupCommit::queue_along`]) begins no batch: it goes along
//! with the next one that is queued otherwise. A pause after which a mark is due has it written,
//! too, and so has the close. So no commit waits for a flush that nobody has asked for.
//!
//! Who waits for the flush of a lone record, and has nothing to do meanwhile, may write it on its
//! own thread (`flush_here`), as PostgreSQL's backends do: to wake the log thread and to be woken
//! by it are two switches between threads, which together take a good part of what a fast flush
//! takes. The `BatchWriter` is behind a mutex for that: who has it takes what is pending and writes
//! it, so batches come into the file in the order of their numbers, whoever writes them.
//!
//! Nobody sleeps per commit: a [`DurableWait`] is a future, ready at once if its csn is durable.
//! The batch grows as long as the flush before it takes, so a slower disk gets larger batches. In
//! steady state nothing is allocated: two buffers take turns, and the list of waiters keeps its
//! capacity.
//!
//! Failure: the first failed write or flush *poisons* the log. What was durable stays so; every
//! other wait, and every later append, fails with [`Error::LogPoisoned`]. A failed flush is never
//! retried (nothing is known about the bytes it covered).
//!
//! Mutexes: the writer's, and under it one of `pending`, `waiters` and `sweeping`, which are never
//! held together. Nobody is woken under the writer's but by a failure. `durable` and `poisoned` are
//! written before the sweep takes `waiters`, and read again by a waiter that holds `waiters` before
//! it registers; so no wake-up is lost.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::batch_writer::{BatchWriter, Taken};
use super::record::{BATCH_HEADER, RECORD_HEADER, encode_record};
use super::waking::Waking;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::thread::Thread;
use crate::sync::{CachePadded, Condvar, Mutex, thread, thread_local};
use crate::{Csn, Error};

/// A pending batch larger than this makes appends wait for the log thread. Far below the 4 GB a
/// batch header can express.
const PENDING_BYTES_MAX: usize = 1 << 30;

/// Buffers larger than this are given back after the batch that needed them.
const KEPT_BUFFER_BYTES: usize = 8 << 20;

/// State shared by committers, waiters and the log thread.
#[derive(Debug)]
pub struct GroupCommit {
    pending: CachePadded<Mutex<Pending>>,
    /// Signals the log thread: records are pending, or the log closes.
    work: Condvar,
    /// Signals appends that found the pending batch full.
    room: Condvar,
    waiters: CachePadded<Mutex<Waiters>>,
    sweeping: Mutex<Sweeping>,
    /// Signals the second thread: a sweep is wanted, or the log thread has ended.
    sweep: Condvar,
    durable: CachePadded<AtomicU64>,
    last: CachePadded<AtomicU64>,
    poisoned: OnceLock<Error>,
    counters: Counters,
}

#[derive(Debug)]
struct Pending {
    /// Room for the batch header, then records.
    buffer: Vec<u8>,
    first: Csn,
    count: u32,
    /// There is a record that is to be written now. Then `count` is not 0.
    is_wanted: bool,
    closing: bool,
    /// How many batches were taken so far, by whomever.
    batches: u64,
    /// The log thread sleeps without a limit, and would not know that a mark is due.
    dozes: bool,
}

#[derive(Debug, Default)]
struct Sweeping {
    wanted: bool,
    ended: bool,
}

#[derive(Debug, Default)]
struct Waiters {
    list: Vec<Waiter>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Waiter {
    csn: Csn,
    ticket: u64,
    waker: Waker,
}

/// What the log thread knows from one step to the next.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// So many batches are followed by a mark, or were never written here.
    marked: u64,
    woken: Vec<Waker>,
}

#[derive(Debug, Default)]
struct Counters {
    batches: AtomicU64,
    bytes: AtomicU64,
    flush_us: AtomicU64,
    flush_us_max: AtomicU64,
    /// About the longest of the last ones: an eighth less with each that is shorter. Whoever has
    /// the writer writes it.
    flush_us_lately: AtomicU64,
}

/// What the log thread has done since the log was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Batches written and flushed.
    pub batches: u64,
    /// Bytes of these batches.
    pub bytes: u64,
    /// Microseconds spent writing and flushing them.
    pub flush_us: u64,
    /// The longest of these, in microseconds.
    pub flush_us_max: u64,
    /// Who waits for a flush now.
    pub waiting: u64,
}

impl GroupCommit {
    /// A pipeline that goes on after `last`, which is durable.
    pub fn new(last: Csn) -> GroupCommit {
        let buffer = vec![0; BATCH_HEADER];
        GroupCommit {
            pending: CachePadded::new(Mutex::new(Pending {
                buffer,
                first: last + 1,
                count: 0,
                is_wanted: false,
                closing: false,
                batches: 0,
                dozes: false,
            })),
            work: Condvar::new(),
            room: Condvar::new(),
            waiters: CachePadded::default(),
            sweeping: Mutex::default(),
            sweep: Condvar::new(),
            durable: CachePadded::new(AtomicU64::new(last)),
            last: CachePadded::new(AtomicU64::new(last)),
            poisoned: OnceLock::new(),
            counters: Counters::default(),
        }
    }

    /// Numbers a record and adds it to the pending batch. The log thread may sleep on until
    /// [`GroupCommit::nudge`]: waking is a system call, after which the woken thread may take the
    /// caller's processor; so it is not done under the caller's mutex.
    pub fn queue(&self, payload: &[&[u8]], record_bytes_max: u64) -> Result<Csn, Error> {
        self.add(payload, record_bytes_max, true)
    }

    /// As [`GroupCommit::queue`], for a record that nobody waits for.
    pub fn queue_along(&self, payload: &[&[u8]], record_bytes_max: u64) -> Result<Csn, Error> {
        self.add(payload, record_bytes_max, false)
    }

    fn add(&self, payload: &[&[u8]], record_bytes_max: u64, is_wanted: bool) -> Result<Csn, Error> {
        let length: usize = payload.iter().map(|part| part.len()).sum();
        if length as u64 > record_bytes_max {
            return Err(Error::TransactionTooLarge { limit: record_bytes_max });
        }
        let mut pending = self.pending.lock();
        while pending.buffer.len() + RECORD_HEADER + length > PENDING_BYTES_MAX
            && pending.count > 0
            && self.poisoned.get().is_none()
        {
            pending.is_wanted = true;
            self.work.notify_one();
            self.room.wait(&mut pending);
        }
        if let Some(error) = self.poisoned.get() {
            return Err(error.clone());
        }
        if pending.closing {
            return Err(Error::ShuttingDown);
        }
        let csn = pending.first + u64::from(pending.count);
        encode_record(&mut pending.buffer, csn, payload);
        pending.count += 1;
        pending.is_wanted |= is_wanted;
        self.last.store(csn, Ordering::Release);
        Ok(csn)
    }

    /// Record `csn`, the next one or a later one, is durable elsewhere. For a log without a thread
    /// of its own.
    pub(crate) fn follow(&self, csn: Csn) {
        assert!(csn > self.last(), "records come in the order of their numbers");
        self.pending.lock().first = csn + 1;
        self.last.store(csn, Ordering::Release);
        self.durable.store(csn, Ordering::Release);
    }

    /// Wakes the log thread, if it sleeps, for what was queued.
    pub fn nudge(&self) {
        self.work.notify_one();
    }

    /// The last csn given out.
    pub fn last(&self) -> Csn {
        self.last.load(Ordering::Acquire)
    }

    /// The last csn known to survive a crash.
    pub fn durable(&self) -> Csn {
        self.durable.load(Ordering::Acquire)
    }

    /// The failure that stopped the log, if any.
    pub fn poison(&self) -> Option<&Error> {
        self.poisoned.get()
    }

    /// Counters since the log was opened.
    pub fn statistics(&self) -> LogStatistics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStatistics {
            batches: load(&self.counters.batches),
            bytes: load(&self.counters.bytes),
            flush_us: load(&self.counters.flush_us),
            flush_us_max: load(&self.counters.flush_us_max),
            waiting: self.waiters.lock().list.len() as u64,
        }
    }

    /// A future of `csn`'s durability.
    pub fn wait_durable(self: &Arc<Self>, csn: Csn) -> DurableWait {
        match self.outcome(csn) {
            Some(outcome) => DurableWait { state: State::Known(outcome) },
            None => DurableWait { state: State::Waiting { log: Arc::clone(self), csn, ticket: 0 } },
        }
    }

    /// Asks the log thread to write what is pending, then a close, and to end.
    pub fn close(&self) {
        self.pending.lock().closing = true;
        self.work.notify_one();
    }

    fn outcome(&self, csn: Csn) -> Option<Result<(), Error>> {
        if self.durable() >= csn {
            return Some(Ok(()));
        }
        self.poisoned.get().map(|error| Err(error.clone()))
    }

    /// Poisons the log from outside, for a defect that lies elsewhere. What the log thread has not
    /// begun to write stays unwritten. The answer is what everybody gets from now on.
    pub(crate) fn fail(&self, cause: Error) -> Error {
        if self.poison().is_none() {
            tracing::error!(%cause, "the log accepts no more commits");
            self.poison_with(cause.clone(), &mut Vec::new());
            self.work.notify_one();
        }
        self.poison().cloned().unwrap_or(cause)
    }

    fn poison_with(&self, cause: Error, woken: &mut Vec<Waker>) {
        let _ = self.poisoned.set(Error::LogPoisoned { cause: Arc::new(cause) });
        // An append that already holds the mutex has its record in a batch that will never be
        // written; its wait fails.
        drop(self.pending.lock());
        self.room.notify_all();
        self.sweep_waiters(woken);
    }

    /// The log thread: runs until [`GroupCommit::close`] or a failure.
    pub(crate) fn run(&self, writer: &Mutex<Option<BatchWriter>>, idle_mark: Option<Duration>) {
        let _guard = EndGuard(self);
        let mut turn = Turn::default();
        while self.step(writer, idle_mark, &mut turn) {}
    }

    /// Waits for work and does it: a batch, a mark, or the close. False after that, or a failure.
    pub(crate) fn step(
        &self,
        writer: &Mutex<Option<BatchWriter>>,
        idle_mark: Option<Duration>,
        turn: &mut Turn,
    ) -> bool {
        let paused = self.wait_for_work(idle_mark, turn.marked);
        let mut guard = writer.lock();
        // Somebody else may have found that what is pending must not be written.
        let (None, Some(writer)) = (self.poisoned.get(), guard.as_mut()) else { return false };
        let Some(taken) = self.take(&mut writer.batch, paused) else { return true };
        if !self.write(writer, taken) {
            return false;
        }
        drop(guard);
        match taken {
            Taken::Records { .. } => {
                if self.pending.lock().is_wanted {
                    self.sweeping.lock().wanted = true;
                    self.sweep.notify_one();
                } else {
                    self.sweep_waiters(&mut turn.woken);
                }
            }
            Taken::Idle { .. } => turn.marked = paused.unwrap_or(turn.marked),
            Taken::Closing { .. } => return false,
        }
        true
    }

    /// Writes and flushes on the calling thread what was queued and is to be written now, unless
    /// the log thread is writing, or a flush has taken longer than `limit` lately. False if it has
    /// done nothing; then the log thread has to be woken ([`GroupCommit::nudge`]).
    pub(crate) fn flush_here(&self, writer: &Mutex<Option<BatchWriter>>, limit: Duration) -> bool {
        let lately = self.counters.flush_us_lately.load(Ordering::Relaxed);
        if u128::from(lately) > limit.as_micros() {
            return false;
        }
        let Some(mut guard) = writer.try_lock() else { return false };
        let (None, Some(writer)) = (self.poisoned.get(), guard.as_mut()) else { return false };
        // Nothing of a close is taken away from the log thread: that is no batch of records.
        let Some(taken @ Taken::Records { .. }) = self.take(&mut writer.batch, None) else { return false };
        let is_written = self.write(writer, taken);
        drop(guard);
        if is_written {
            self.sweep_waiters(&mut Vec::new());
            self.wake_for_mark();
        }
        true
    }

    /// The log thread is to write a mark if a pause follows. If it sleeps without a limit, it does
    /// not know of what others have written.
    fn wake_for_mark(&self) {
        let dozes = mem::take(&mut self.pending.lock().dozes);
        if dozes {
            self.work.notify_one();
        }
    }

    /// Writes and flushes what was taken. False if the log has failed.
    fn write(&self, writer: &mut BatchWriter, taken: Taken) -> bool {
        let _guard = PanicGuard(self, "writing the log panicked");
        let start = writer.clock.monotonic();
        if let Err(cause) = writer.write(taken) {
            tracing::error!(%cause, "the log failed and accepts no more commits");
            self.poison_with(cause, &mut Vec::new());
            return false;
        }
        if let Taken::Records { first, count } = taken {
            // First: whoever waits for it and then looks whether flushes are slow knows of this
            // one.
            self.count(writer.batch.len() as u64, writer.clock.monotonic().saturating_sub(start));
            self.durable.store(first + u64::from(count) - 1, Ordering::Release);
        }
        true
    }

    /// The second thread: sweeps when the log thread has no time for it, until that ends.
    pub fn run_sweeps(&self) {
        let _guard = PanicGuard(self, "the log's sweeping thread panicked");
        let mut woken = Vec::new();
        while self.sweep_step(&mut woken) {}
    }

    /// Waits until a sweep is wanted, and sweeps. False once none will be.
    pub(crate) fn sweep_step(&self, woken: &mut Vec<Waker>) -> bool {
        let mut sweeping = self.sweeping.lock();
        while !sweeping.wanted && !sweeping.ended {
            self.sweep.wait(&mut sweeping);
        }
        let is_wanted = mem::take(&mut sweeping.wanted);
        drop(sweeping);
        if is_wanted {
            self.sweep_waiters(woken);
        }
        is_wanted
    }

    /// Waits for work. If there is none, but a pause behind batches that no mark follows, says so:
    /// how many batches there were as it began.
    fn wait_for_work(&self, idle_mark: Option<Duration>, marked: u64) -> Option<u64> {
        let mut pending = self.pending.lock();
        while !pending.is_wanted && !pending.closing {
            let batches = pending.batches;
            match idle_mark.filter(|_| batches != marked) {
                None => {
                    pending.dozes = idle_mark.is_some();
                    self.work.wait(&mut pending);
                    pending.dozes = false;
                }
                Some(idle) => {
                    let timed_out = self.work.wait_for(&mut pending, idle).timed_out();
                    if timed_out && pending.batches == batches {
                        return Some(batches);
                    }
                }
            }
        }
        None
    }

    /// Swaps the buffers, if there is something to write, and nobody else has taken it. To be
    /// called by who has the writer.
    fn take(&self, batch: &mut Vec<u8>, paused: Option<u64>) -> Option<Taken> {
        if batch.capacity() > KEPT_BUFFER_BYTES {
            *batch = Vec::new();
        }
        batch.clear();
        batch.resize(BATCH_HEADER, 0);
        let mut pending = self.pending.lock();
        let next = pending.first;
        let is_pause = paused == Some(pending.batches);
        if !pending.is_wanted && pending.count == 0 {
            let idle = is_pause.then_some(Taken::Idle { next });
            return if pending.closing { Some(Taken::Closing { next }) } else { idle };
        }
        if !pending.is_wanted && !pending.closing && !is_pause {
            return None;
        }
        let count = pending.count;
        mem::swap(&mut pending.buffer, batch);
        pending.first += u64::from(count);
        pending.count = 0;
        pending.is_wanted = false;
        pending.batches += 1;
        drop(pending);
        self.room.notify_all();
        Some(Taken::Records { first: next, count })
    }

    /// Wakes everybody whose question is answered.
    fn sweep_waiters(&self, woken: &mut Vec<Waker>) {
        let durable = self.durable();
        let poisoned = self.poisoned.get().is_some();
        let mut waiters = self.waiters.lock();
        let answered = waiters.list.extract_if(.., |waiter| poisoned || waiter.csn <= durable);
        woken.extend(answered.map(|waiter| waiter.waker));
        drop(waiters);
        Waking(woken.drain(..)).wake();
    }

    fn count(&self, bytes: u64, took: Duration) {
        let us = took.as_micros() as u64;
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.counters.flush_us.fetch_add(us, Ordering::Relaxed);
        self.counters.flush_us_max.fetch_max(us, Ordering::Relaxed);
        let lately = self.counters.flush_us_lately.load(Ordering::Relaxed);
        self.counters.flush_us_lately.store(us.max(lately - lately / 8), Ordering::Relaxed);
    }
}

/// Ends the second thread with the log thread. A defect that ends the log thread must not leave
/// committers waiting for ever.
struct EndGuard<'a>(&'a GroupCommit);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.sweeping.lock().ended = true;
        self.0.sweep.notify_one();
        if thread::panicking() {
            self.0.poison_with(Error::Defect("the log thread panicked"), &mut Vec::new());
        }
    }
}

/// Nor must a defect that ends the second thread, or a write, on whichever thread. After that the
/// log is poisoned before the writer is free: or else somebody would write the next batch, and what
/// was lost would pass for durable.
struct PanicGuard<'a>(&'a GroupCommit, &'static str);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.poison_with(Error::Defect(self.1), &mut Vec::new());
        }
    }
}

/// Resolves once a commit is durable, or with [`Error::LogPoisoned`] if it never will be. Dropping
/// it changes nothing about the commit.
#[derive(Debug)]
pub struct DurableWait {
    state: State,
}

#[derive(Debug)]
enum State {
    Known(Result<(), Error>),
    /// `ticket` is 0 until the waiter is in the list.
    Waiting {
        log: Arc<GroupCommit>,
        csn: Csn,
        ticket: u64,
    },
}

impl DurableWait {
    /// A wait that is over.
    pub fn ready() -> DurableWait {
        DurableWait { state: State::Known(Ok(())) }
    }

    /// Blocks the calling thread until the answer is known. For synchronous callers; never inside
    /// an async task.
    pub fn wait(mut self) -> Result<(), Error> {
        thread_local! {
            static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
        }
        let waker = WAKER.with(Waker::clone);
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => thread::park(),
            }
        }
    }
}

impl Future for DurableWait {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            State::Known(outcome) => Poll::Ready(outcome.clone()),
            State::Waiting { log, csn, ticket } => {
                if let Some(outcome) = log.outcome(*csn) {
                    return Poll::Ready(outcome);
                }
                let mut waiters = log.waiters.lock();
                // Again under the mutex: a sweep that came between did not see this waiter.
                if let Some(outcome) = log.outcome(*csn) {
                    return Poll::Ready(outcome);
                }
                waiters.register(*csn, ticket, context.waker());
                Poll::Pending
            }
        }
    }
}

impl Waiters {
    fn register(&mut self, csn: Csn, ticket: &mut u64, waker: &Waker) {
        if *ticket != 0
            && let Some(known) = self.list.iter_mut().find(|waiter| waiter.ticket == *ticket)
        {
            known.waker.clone_from(waker);
            return;
        }
        self.next_ticket += 1;
        *ticket = self.next_ticket;
        self.list.push(Waiter { csn, ticket: *ticket, waker: waker.clone() });
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;

    use cognate_env::RealClock;
    use cognate_env::sim::{SimDisk, SimRng};

    use super::*;
    use crate::storage::batch_writer::BatchListener;
    use crate::storage::log_writer::{LogWriter, SegmentShape};
    use crate::sync::atomic::AtomicBool;

    /// Whoever wakes it panics.
    struct Bomb;

    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("the planted defect");
        }
    }

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }

    /// Those behind it are woken, and later ones get an answer, although nobody sweeps any more.
    #[test]
    fn a_waker_that_panics_in_the_second_thread_keeps_nobody_waiting() {
        let log = Arc::new(GroupCommit::new(0));
        let csn = log.queue(&[&b"record"[..]], 1 << 10).expect("numbered");
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let wakers = [Waker::from(Arc::new(Bomb)), Waker::from(Arc::clone(&woken))];
        let mut waits = [log.wait_durable(csn), log.wait_durable(csn)];
        for (wait, waker) in waits.iter_mut().zip(&wakers) {
            assert!(Pin::new(wait).poll(&mut Context::from_waker(waker)).is_pending());
        }
        log.durable.store(csn, Ordering::Release);
        log.sweeping.lock().wanted = true;
        catch_unwind(AssertUnwindSafe(|| log.run_sweeps())).expect_err("the planted defect");
        assert!(woken.0.load(Ordering::Acquire), "the one behind it");
        assert!(log.poison().is_some());
        assert!(log.queue(&[&b"later"[..]], 1 << 10).is_err());
    }

    struct Nobody;

    impl BatchListener for Nobody {
        fn written(&mut self, _last: Csn, _bytes: u64, _segment: Option<Csn>) {}
    }

    /// Whoever drives the log has it write when he wants, on his own thread.
    #[test]
    fn a_driver_takes_the_place_of_the_log_thread() {
        let (disk, folder) = (SimDisk::new(1).handle(), Path::new("/log"));
        disk.create_dir_all(folder).expect("a folder");
        let shape = SegmentShape { segment_bytes: 1 << 20, grow_bytes: 1 << 16 };
        let rng = Arc::new(SimRng::new(1));
        let segments = LogWriter::create(disk, folder, shape, rng, 1, 0).expect("a segment");
        let batches = BatchWriter::new(segments, Box::new(Nobody), Arc::new(RealClock::default()));
        let (log, writer) = (Arc::new(GroupCommit::new(0)), Mutex::new(Some(batches)));
        let mut turn = Turn::default();
        for round in 1..=3 {
            let csn = log.queue(&[&b"record"[..]], 1 << 10).expect("numbered");
            assert_eq!((csn, log.durable()), (round, round - 1));
            assert!(log.step(&writer, None, &mut turn));
            log.wait_durable(csn).wait().expect("durable");
        }
        log.close();
        assert!(!log.step(&writer, None, &mut turn), "it is closed");
        assert!(log.queue(&[&b"late"[..]], 1 << 10).is_err());
    }
}
