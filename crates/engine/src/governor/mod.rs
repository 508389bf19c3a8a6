//! The governor: how many transactions execute at a time, however many clients are connected.
//!
//! More clients than the machine can serve at once do not make it faster: each transaction takes
//! longer, so it meets more others on the rows it wants, and more of them abort. So a transaction
//! needs a *slot* to execute, and there are only as many as the *limit*. The PSSI paper (HPTS 2011,
//! experiment 3) counts `active++; BEGIN; …; active--; COMMIT` and lets many more clients than the
//! limit be in flight; so the machine has something to do while commits wait for a slow log device.
//! Here:
//!
//! - A slot is taken by the first statement of a transaction and given back when its end is
//!   ordered, *before* the commit waits for its flush.
//! - A transaction that waits for its client or for a lock keeps the slot for a moment, since most
//!   such waits are short; if somebody wants it and the wait lasts longer ([`TICK`] to twice that),
//!   the slot is taken away. The same holds for a statement that computes for long and has stepped
//!   aside. Without this escape, idle transactions would bring everything to a stop.
//! - Who lost the slot asks for another one when going on, and goes before newcomers, because
//!   others may wait for the row locks it holds. So that nobody starves, a newcomer is let in after
//!   every [`RESUMED_IN_A_ROW`](gate::RESUMED_IN_A_ROW) of these; each class is first come, first
//!   served.
//! - Ending a transaction needs no slot.
//!
//! ```text
//! limit 2          A, B execute; C waits for a slot
//! A  reads row 1 ── commits: slot to C ── waits 78 ms for the flush ── is answered
//! B  locks row 2 ── client thinks for a second: slot taken away, to D
//! C                          wants row 2: waits for B; slot taken away, to E
//! B  comes back: goes before the newcomers F … Z, commits, and C has its lock: goes before them, too
//! ```
//!
//! Rooms: `gate` counts slots and keeps the queue, `seat` is a session's side of it, `tuner`
//! decides the limit; it is pure: samples in, a limit out, neither clock nor threads. This file is
//! the edge that joins them: a thread ticks it (see `background`).
//!
//! Cost: below the limit, entering and leaving are one atomic operation each on a word that all
//! share, and pausing and resuming one each on a word that only this session touches. No mutex is
//! taken and nothing allocated.
//!
//! Mutexes: `tuning`, then nothing of the gate's held across it; the gate's `queue` and the list of
//! `places` are leaves. Wakers are called with none of them held.

mod gate;
mod limit;
mod seat;
mod tuner;

use std::sync::Arc;
use std::time::Duration;

pub use limit::{ActiveLimit, LimitError};
pub use seat::Seat;

use gate::Gate;
use seat::Place;
use tuner::{Sample, Tuner};

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};

/// How often waits are looked at while somebody wants a slot: a wait that lasts so long (at most
/// twice so long) does not count.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// Length of a sample for the tuner, and how often the thread looks while nobody waits.
const PERIOD: Duration = Duration::from_millis(100);

/// A sample is to span so many flushes, lest it measures the beat of the log device.
const FLUSHES: u32 = 8;

/// The limit matters if more than one in so many transactions had to wait for a slot.
const BINDING_SHARE: u64 = 20;

/// So many ticks without anybody who waits, and the thread ticks slowly.
const QUIET_TICKS: u32 = 100;

/// For the sake of flushes, a sample is not stretched beyond this.
const PERIOD_MAX: Duration = Duration::from_secs(2);

/// A silence of this length, and of so many flushes, is a lull: what was being measured ended with
/// it.
const LULL: Duration = Duration::from_millis(50);
const LULL_FLUSHES: u32 = 4;

/// It is silent if nobody waits for a slot or a row, and transactions end at less than this share
/// of the rate before.
const SILENT_SHARE: f64 = 0.25;

/// Counters of the engine that the tuner looks at; all but `blocked_pct` only grow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Readings {
    pub(crate) committed: u64,
    pub(crate) flushes: u64,
    pub(crate) flush_us: u64,
    /// Transactions that wait for a lock, in percent of the open ones.
    pub(crate) blocked_pct: u32,
}

/// What the governor does, as the view `cognate_governor` shows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GovernorInfo {
    /// What was asked for.
    pub mode: ActiveLimit,
    /// The limit at present; `None` if it is off.
    pub limit: Option<u32>,
    /// Slots taken.
    pub active: u32,
    /// Transactions that wait for a slot.
    pub waiting: u32,
    /// Slots taken since the start.
    pub admitted: u64,
    /// Of these, how many had to wait for it.
    pub queued: u64,
    /// Slots taken away because their transaction waited for its client or for a lock.
    pub given_back: u64,
    /// Aborts of serialization failures and deadlocks.
    pub conflicts: u64,
    /// Steps of the self-tuning limit.
    pub steps: u64,
    /// Multiplicative cuts. One that does not pay is undone, and is no step.
    pub cuts: u64,
}

/// See the module's prose.
#[derive(Debug)]
pub struct Governor {
    gate: Gate,
    places: Mutex<Places>,
    /// Ticks so far, in the form in which seats note them.
    epoch: AtomicU64,
    conflicts: AtomicU64,
    given_back: AtomicU64,
    tuning: Mutex<Tuning>,
    clockwork: Mutex<Clockwork>,
    /// The thread is to tick faster, or to end.
    work: Condvar,
    /// The thread ticks slowly, since nobody waits.
    calm: AtomicBool,
}

/// Every seat there is.
#[derive(Debug, Default)]
struct Places {
    list: Vec<Option<Arc<Place>>>,
    free: Vec<usize>,
    /// Admissions of seats that are gone.
    admitted: u64,
}

/// Makes samples of ticks. A sample tells something about a limit only if there was work all the
/// time: clients come in bursts, and a sample that is partly of a pause looks like a bad limit. So
/// no sample ends in silence: after a short one it goes on, and with a lull it is dropped.
#[derive(Debug)]
struct Tuning {
    configured: ActiveLimit,
    mode: ActiveLimit,
    tuner: Tuner,
    began: Duration,
    base: Readings,
    base_seen: Seen,
    blocked_pct: u64,
    ticks: u32,
    /// The last tick: when, and the transactions that had ended until then.
    last: (Duration, u64),
    /// The last tick that was not silent, if one was since.
    silent_since: Option<Duration>,
    /// Transactions that ended in a second of the last sample.
    rate: f64,
    /// Mean time of a flush in the last sample.
    flush: Duration,
}

/// What the governor itself has counted.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    queued: u64,
    conflicts: u64,
    active: u32,
    waiting: u32,
}

#[derive(Debug, Default)]
struct Clockwork {
    stop: bool,
    roused: bool,
    /// Ticks since somebody waited.
    quiet: u32,
}

impl Governor {
    /// A governor for a machine with so many cores.
    pub(crate) fn new(mode: ActiveLimit, cores: u32) -> Governor {
        let governor = Governor {
            gate: Gate::new(),
            places: Mutex::default(),
            epoch: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            given_back: AtomicU64::new(0),
            tuning: Mutex::new(Tuning::new(mode, cores)),
            clockwork: Mutex::default(),
            work: Condvar::new(),
            calm: AtomicBool::new(false),
        };
        governor.set_limit(mode);
        governor
    }

    /// A seat for a session: it executes one transaction at a time.
    pub fn seat(self: &Arc<Governor>) -> Seat {
        let mut places = self.places.lock();
        let place = Arc::new(Place::default());
        let index = places.free.pop().unwrap_or(places.list.len());
        match places.list.get_mut(index) {
            Some(free) => *free = Some(Arc::clone(&place)),
            None => places.list.push(Some(Arc::clone(&place))),
        }
        Seat::new(Arc::clone(self), place, index)
    }

    fn vacate(&self, index: usize) {
        let mut places = self.places.lock();
        if let Some(place) = places.list.get_mut(index).and_then(Option::take) {
            places.admitted += place.admitted();
            places.free.push(index);
        }
    }

    /// What is asked for at present.
    pub fn mode(&self) -> ActiveLimit {
        self.tuning.lock().mode
    }

    /// What was asked for when the database was opened.
    pub fn configured(&self) -> ActiveLimit {
        self.tuning.lock().configured
    }

    /// Changes the limit, for everybody and at once.
    pub fn set_limit(&self, mode: ActiveLimit) {
        let limit = {
            let mut tuning = self.tuning.lock();
            let before = std::mem::replace(&mut tuning.mode, mode);
            match mode {
                ActiveLimit::Auto if before == ActiveLimit::Auto => tuning.tuner.limit(),
                ActiveLimit::Auto => tuning.tuner.resume(),
                ActiveLimit::Fixed(limit) => limit,
                ActiveLimit::Off => u32::MAX,
            }
        };
        self.gate.set_limit(limit);
    }

    /// A transaction was aborted by a serialization failure or a deadlock.
    pub fn note_conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    /// The present state.
    pub fn info(&self) -> GovernorInfo {
        let (mode, steps, cuts) = {
            let tuning = self.tuning.lock();
            (tuning.mode, tuning.tuner.steps(), tuning.tuner.cuts())
        };
        let admitted = {
            let places = self.places.lock();
            places.admitted + places.list.iter().flatten().map(|place| place.admitted()).sum::<u64>()
        };
        let (active, waiting) = self.gate.counts();
        let limit = self.gate.limit();
        GovernorInfo {
            mode,
            limit: (limit != u32::MAX).then_some(limit),
            active,
            waiting,
            admitted,
            queued: self.gate.queued(),
            given_back: self.given_back.load(Ordering::Relaxed),
            conflicts: self.conflicts.load(Ordering::Relaxed),
            steps,
            cuts,
        }
    }

    /// Somebody begins to wait for a slot.
    fn rouse(&self) {
        if self.calm.swap(false, Ordering::AcqRel) {
            self.clockwork.lock().roused = true;
            self.work.notify_one();
        }
    }

    /// The thread: waits for the next tick, at least [`TICK`]. False: it is to end.
    pub(crate) fn wait_for_tick(&self) -> bool {
        let mut clockwork = self.clockwork.lock();
        clockwork.quiet = if self.gate.counts().1 > 0 { 0 } else { clockwork.quiet.saturating_add(1) };
        if clockwork.quiet > QUIET_TICKS && !clockwork.stop {
            clockwork.roused = false;
            self.calm.store(true, Ordering::Release);
            // Whoever came before this look is seen now, and whoever comes later sees the flag.
            if self.gate.counts().1 == 0 {
                while !clockwork.stop
                    && !clockwork.roused
                    && !self.work.wait_for(&mut clockwork, PERIOD).timed_out()
                {}
            }
            self.calm.store(false, Ordering::Release);
        }
        if !clockwork.stop {
            self.work.wait_for(&mut clockwork, TICK);
        }
        !clockwork.stop
    }

    pub(crate) fn stop(&self) {
        self.clockwork.lock().stop = true;
        self.work.notify_one();
    }

    /// One tick: takes slots away from those who have waited too long, if somebody wants them, and
    /// tells the tuner what was done since its last sample, once that is long enough ago.
    pub(crate) fn tick(&self, now: Duration, readings: impl FnOnce() -> Readings) {
        let wanted = self.gate.counts().1 > 0;
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        if wanted {
            self.take_away(epoch);
        }
        let limit = {
            let mut tuning = self.tuning.lock();
            let (active, waiting) = self.gate.counts();
            let conflicts = self.conflicts.load(Ordering::Relaxed);
            let seen = Seen { queued: self.gate.queued(), conflicts, active, waiting };
            tuning.tick(now, readings(), seen)
        };
        if let Some(limit) = limit {
            self.gate.set_limit(limit);
        }
    }

    fn take_away(&self, epoch: u64) {
        let mut taken = 0;
        for place in self.places.lock().list.iter().flatten() {
            taken += u64::from(place.take_away(epoch));
        }
        self.given_back.fetch_add(taken, Ordering::Relaxed);
        for _ in 0..taken {
            self.gate.leave();
        }
    }
}

impl Tuning {
    fn new(mode: ActiveLimit, cores: u32) -> Tuning {
        Tuning {
            configured: mode,
            mode,
            tuner: Tuner::new(cores),
            began: Duration::ZERO,
            base: Readings::default(),
            base_seen: Seen::default(),
            blocked_pct: 0,
            ticks: 0,
            last: (Duration::ZERO, 0),
            silent_since: None,
            rate: 0.0,
            flush: Duration::ZERO,
        }
    }

    /// Counts a tick; the new limit if this ended a sample and the tuner wants another one.
    fn tick(&mut self, now: Duration, readings: Readings, seen: Seen) -> Option<u32> {
        self.ticks += 1;
        self.blocked_pct += u64::from(readings.blocked_pct);
        let ended = readings.committed + seen.conflicts;
        let (before, ended_before) = std::mem::replace(&mut self.last, (now, ended));
        let usual = self.rate * now.saturating_sub(before).as_secs_f64();
        let few = ended.saturating_sub(ended_before) as f64 <= SILENT_SHARE * usual;
        if seen.waiting == 0 && readings.blocked_pct == 0 && few {
            self.silent_since.get_or_insert(before);
            return None;
        }
        let silence = self.silent_since.take().map_or(Duration::ZERO, |since| now.saturating_sub(since));
        if silence >= LULL.max(self.flush * LULL_FLUSHES) {
            self.begin(now, readings, seen);
            self.tuner.interrupt();
            return None;
        }
        let elapsed = now.saturating_sub(self.began);
        let flushes = readings.flushes.saturating_sub(self.base.flushes);
        let flush_us = readings.flush_us.saturating_sub(self.base.flush_us);
        let flush = Duration::from_micros(flush_us.checked_div(flushes).unwrap_or(0));
        if elapsed < (flush * FLUSHES).clamp(PERIOD, PERIOD_MAX) {
            return None;
        }
        let committed = readings.committed.saturating_sub(self.base.committed);
        let aborted = seen.conflicts.saturating_sub(self.base_seen.conflicts);
        let queued = seen.queued.saturating_sub(self.base_seen.queued);
        let sample = Sample {
            committed_per_s: committed as f64 / elapsed.as_secs_f64(),
            aborted_share: aborted as f64 / (committed + aborted).max(1) as f64,
            blocked_share: self.blocked_pct as f64 / 100.0 / f64::from(self.ticks),
            active: seen.active,
            binding: queued > 0 && BINDING_SHARE * queued > committed + aborted,
        };
        (self.rate, self.flush) = ((committed + aborted) as f64 / elapsed.as_secs_f64(), flush);
        self.begin(now, readings, seen);
        if self.mode != ActiveLimit::Auto {
            return None;
        }
        let before = self.tuner.limit();
        let after = self.tuner.observe(sample);
        (after != before).then_some(after)
    }

    /// Begins a sample.
    fn begin(&mut self, now: Duration, readings: Readings, seen: Seen) {
        (self.began, self.base, self.base_seen) = (now, readings, seen);
        (self.blocked_pct, self.ticks) = (0, 0);
    }
}

#[cfg(test)]
mod tests;
