//! Memory pressure: when the next checkpoint is due, and who waits for it.
//!
//! Versions in memory may grow to the soft limit freely; then a checkpoint is asked for. Beyond the
//! hard limit they came faster than checkpoints take them away: then a commit's answer waits until
//! one more round of the checkpoint thread is over. It waits behind the durability that it waits
//! for anyway, holding no lock and blocking no thread. It waits for one round, not for memory to be
//! free: so nobody waits for memory that only he himself (a snapshot, an open cursor) keeps in use.
//! What a round had to leave in memory although the base had it before (*kept*: an older snapshot
//! needs it there) moves the limits up for the next one, and down again when it can. What was
//! written meanwhile moves them, too, so that not every commit waits for a round, but by no more
//! than [`LEEWAY`]: writers cannot push the limits away however slow the rounds are.
//!
//! If checkpoints fail (no space on the device), commits beyond the hard limit are refused with
//! that failure; reads go on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::Error;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};

/// How far what was written in a round moves the limits up, in rooms (the distance of the limits,
/// an eighth of the budget).
const LEEWAY: u64 = 2;

/// Limits of the version store, and the rounds of the checkpoint thread.
#[derive(Debug)]
pub(crate) struct Pressure {
    /// The configured limits.
    soft_least: u64,
    room: u64,
    /// The limits in force.
    soft: AtomicU64,
    state: Mutex<State>,
    work: Condvar,
    round_ended: Condvar,
    stopping: Condvar,
    pub(crate) throttled: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Rounds that have ended.
    round: u64,
    /// A round is to begin after now; reset when one begins.
    wanted: bool,
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

    /// Notes how much memory is in use after a commit. The answer is what the commit's answer has
    /// to wait for.
    pub(crate) fn note(self: &Arc<Self>, bytes: u64) -> Option<RoundWait> {
        if bytes <= self.soft() {
            return None;
        }
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.wanted, true) {
            self.work.notify_one();
        }
        // After a failure waiting would not help; the next commit is refused.
        if bytes <= self.hard() || state.failure.is_some() {
            return None;
        }
        self.throttled.fetch_add(1, Ordering::Relaxed);
        Some(RoundWait { pressure: Arc::clone(self), round: state.round + 1 })
    }

    /// Blocks the caller for one round if memory is far beyond the hard limit: the last resort
    /// against committers that never wait for their commits to be durable.
    pub(crate) fn hold_back(&self, bytes: u64) {
        if bytes <= self.hard() + 2 * self.room {
            return;
        }
        let mut state = self.state.lock();
        state.wanted = true;
        self.work.notify_one();
        let round = state.round + 1;
        while state.round < round && !state.stop && state.failure.is_none() {
            self.round_ended.wait(&mut state);
        }
    }

    /// The checkpoint thread waits for work, at most `tick`.
    pub(crate) fn wait_for_work(&self, tick: Duration) -> Call {
        let mut state = self.state.lock();
        if !state.stop && !state.wanted {
            self.work.wait_for(&mut state, tick);
        }
        match (state.stop, std::mem::take(&mut state.wanted)) {
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

    /// A round of the checkpoint thread is over, leaving `bytes` in use, of which so many were
    /// kept.
    pub(crate) fn end_round(&self, bytes: u64, kept: Result<u64, Error>) {
        if let Ok(kept) = &kept {
            let soft = match bytes > self.soft_least {
                true => (bytes + self.room / 2).min(self.soft_least.max(*kept) + LEEWAY * self.room),
                false => self.soft_least,
            };
            self.soft.store(soft, Ordering::Relaxed);
        }
        self.release(kept.err());
    }

    /// A round that was asked for is not needed any more.
    pub(crate) fn skip_round(&self) {
        self.release(None);
    }

    /// Lets those go on who wait for a round.
    fn release(&self, failure: Option<Error>) {
        let waiters = {
            let mut state = self.state.lock();
            state.round += 1;
            state.failure = failure;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::DurableWait;
    use crate::storage;

    /// Threads that are always over the hard limit, against the rounds that they wait for: nobody
    /// waits for a round that never comes.
    #[test]
    fn every_wait_ends() {
        let pressure = Arc::new(Pressure::new(800));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        for n in 0..2000 {
                            let bytes = if n % 3 == 0 { 5000 } else { 450 };
                            pressure.hold_back(bytes / (1 + n % 2));
                            let room = pressure.note(bytes);
                            DurableWait::log(storage::DurableWait::ready(), room).wait().unwrap();
                        }
                    })
                })
                .collect();
            let rounds = scope.spawn(|| {
                // So long a tick that a lost call would show.
                while pressure.wait_for_work(Duration::from_secs(3600)) != Call::Stop {
                    pressure.end_round(0, Ok(0));
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            pressure.stop();
            rounds.join().unwrap();
        });
        assert!(pressure.throttled.load(Ordering::Relaxed) > 0);
    }

    #[test]
    fn limits_follow_what_cannot_be_freed() {
        let pressure = Arc::new(Pressure::new(800));
        assert!(pressure.note(300).is_none() && pressure.note(400).is_none() && pressure.note(401).is_some());
        pressure.end_round(500, Ok(500));
        assert!(pressure.note(540).is_none(), "somebody keeps 500 in use");
        pressure.end_round(900, Ok(500));
        assert_eq!(pressure.soft(), 700, "what is new does not move it without end");
        pressure.end_round(500, Ok(500));
        pressure.end_round(540, Err(Error::ShuttingDown));
        assert!(pressure.admit(600).is_ok() && pressure.admit(700).is_err());
        pressure.end_round(10, Ok(0));
        assert_eq!(pressure.soft(), 300);
        assert!(pressure.admit(700).is_ok());
    }
}
