//! Memory pressure: when the next checkpoint is due, and who waits for it.
//!
//! Versions in memory may grow to the soft limit freely; then a checkpoint is asked for. Beyond the hard limit they
//! came faster than checkpoints take them away: then a commit's answer waits until one more round of the checkpoint
//! thread is over. It waits behind the durability that it waits for anyway, holding no lock and blocking no thread. It
//! waits for one round, not for memory to be free: so nobody waits for memory that only he himself (a snapshot, an
//! open cursor) keeps in use. If one round could not bring the use below the soft limit, the limits move up for the
//! next one, and down again when they can.
//!
//! If checkpoints fail (no space on the device), commits beyond the hard limit are refused with that failure; reads go
//! on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::Error;

/// Limits of the version store, and the rounds of the checkpoint thread.
#[derive(Debug)]
pub(crate) struct Pressure {
    /// The configured limits.
    soft_least: u64,
    room: u64,
    /// The limits in force.
    soft: AtomicU64,
    wanted: AtomicBool,
    state: Mutex<State>,
    work: Condvar,
    round_ended: Condvar,
    stopping: Condvar,
    pub(crate) throttled: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    round: u64,
    stop: bool,
    failure: Option<Error>,
    waiters: Vec<Waker>,
}

/// What the checkpoint thread is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Nothing was asked for; look whether the log has become long.
    Idle,
    /// Memory is over the soft limit.
    Wanted,
    /// End.
    Stop,
}

impl Pressure {
    /// Limits for a memory budget in bytes: soft at three eighths of it, hard at one half.
    pub(crate) fn new(budget: u64) -> Pressure {
        let soft_least = budget / 8 * 3;
        Pressure {
            soft_least,
            room: budget / 8,
            soft: AtomicU64::new(soft_least),
            wanted: AtomicBool::new(false),
            state: Mutex::default(),
            work: Condvar::new(),
            round_ended: Condvar::new(),
            stopping: Condvar::new(),
            throttled: AtomicU64::new(0),
        }
    }

    pub(crate) fn soft(&self) -> u64 {
        self.soft.load(Ordering::Relaxed)
    }

    fn hard(&self) -> u64 {
        self.soft() + self.room
    }

    /// Below this, a checkpoint has done enough.
    pub(crate) fn target(&self) -> u64 {
        self.soft_least / 2
    }

    /// Refuses a commit if memory is full and cannot be emptied.
    pub(crate) fn admit(&self, bytes: u64) -> Result<(), Error> {
        if bytes <= self.hard() {
            return Ok(());
        }
        self.state.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// Notes how much memory is in use after a commit. The answer is what the commit's answer has to wait for.
    pub(crate) fn note(self: &Arc<Self>, bytes: u64) -> Option<RoundWait> {
        if bytes <= self.soft() {
            return None;
        }
        if !self.wanted.swap(true, Ordering::Relaxed) {
            let _state = self.state.lock();
            self.work.notify_one();
        }
        if bytes <= self.hard() {
            return None;
        }
        self.throttled.fetch_add(1, Ordering::Relaxed);
        let round = self.state.lock().round + 1;
        Some(RoundWait { pressure: Arc::clone(self), round })
    }

    /// Blocks the caller for one round if memory is far beyond the hard limit: the last resort against committers
    /// that never wait for their commits to be durable.
    pub(crate) fn hold_back(&self, bytes: u64) {
        if bytes <= self.hard() + 2 * self.room {
            return;
        }
        let mut state = self.state.lock();
        let round = state.round + 1;
        while state.round < round && !state.stop {
            self.round_ended.wait(&mut state);
        }
    }

    /// The checkpoint thread waits for work, at most `tick`.
    pub(crate) fn wait_for_work(&self, tick: Duration) -> Call {
        let mut state = self.state.lock();
        if !state.stop && !self.wanted.load(Ordering::Relaxed) {
            self.work.wait_for(&mut state, tick);
        }
        match (state.stop, self.wanted.load(Ordering::Relaxed)) {
            (true, _) => Call::Stop,
            (false, true) => Call::Wanted,
            (false, false) => Call::Idle,
        }
    }

    /// The checkpoint thread rests for `time`, whatever is wanted; not if it is to end.
    pub(crate) fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        if !state.stop {
            self.stopping.wait_for(&mut state, time);
        }
    }

    /// A round of the checkpoint thread is over, leaving `bytes` in use.
    pub(crate) fn end_round(&self, bytes: u64, result: Result<(), Error>) {
        let soft = match bytes > self.soft_least {
            true => bytes + self.room / 2,
            false => self.soft_least,
        };
        self.soft.store(soft, Ordering::Relaxed);
        self.wanted.store(false, Ordering::Relaxed);
        let waiters = {
            let mut state = self.state.lock();
            state.round += 1;
            state.failure = result.err();
            std::mem::take(&mut state.waiters)
        };
        self.round_ended.notify_all();
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Ends the checkpoint thread and everybody's waiting.
    pub(crate) fn stop(&self) {
        let waiters = {
            let mut state = self.state.lock();
            state.stop = true;
            std::mem::take(&mut state.waiters)
        };
        self.work.notify_all();
        self.stopping.notify_all();
        self.round_ended.notify_all();
        waiters.into_iter().for_each(Waker::wake);
    }
}

/// Waits for the end of a checkpoint round.
#[derive(Debug)]
pub(crate) struct RoundWait {
    pressure: Arc<Pressure>,
    round: u64,
}

impl Future for RoundWait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.pressure.state.lock();
        if state.stop || state.round >= self.round {
            return Poll::Ready(());
        }
        state.waiters.push(context.waker().clone());
        Poll::Pending
    }
}
