//! The threads behind a database: checkpoints, merging of runs, the governor's ticks, and late lock
//! release.
//!
//! They end when the last handle to the database goes. Merging runs at low priority and only after
//! a checkpoint has changed something; it can always be interrupted.
//!
//! A thread that panics is a defect, and says so to every commit: nobody must wait for ever for the
//! checkpoint, the slot or the lock that it does not get to any more ([`EndGuard`]).

use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::governor::{ActiveLimit, Readings};
use crate::pressure::Call;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::thread::{self, Builder, JoinHandle};
use crate::sync::{Condvar, Mutex, lower_thread_priority};
use crate::upkeep::Upkeep;

/// How often the length of the log is looked at, and the caches' share of memory adjusted.
const TICK: Duration = Duration::from_millis(200);
/// Pause after a checkpoint that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// Rounds without another attempt to forget what nobody wants, after one that failed: each writes
/// a manifest, and what fails in the middle of that leaves the base in doubt.
const RESTS: u32 = 5;

/// The running threads. Dropping it ends them.
pub(crate) struct Background {
    upkeep: Arc<Upkeep>,
    merging: Arc<Merging>,
    /// Locked by who waits for their end.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Wakes the merging thread.
#[derive(Default)]
struct Merging {
    state: Mutex<MergingState>,
    work: Condvar,
}

#[derive(Default)]
struct MergingState {
    due: bool,
    stop: bool,
}

impl Background {
    pub(crate) fn start(upkeep: &Arc<Upkeep>) -> Result<Background, Error> {
        let merging = Arc::new(Merging {
            state: Mutex::new(MergingState { due: true, stop: false }),
            ..Merging::default()
        });
        let background = Background {
            upkeep: Arc::clone(upkeep),
            merging: Arc::clone(&merging),
            threads: Mutex::new(Vec::new()),
        };
        let (u, s) = (Arc::clone(upkeep), Arc::clone(&merging));
        background.spawn("checkpoint", move || checkpoints(&u, &s))?;
        let u = Arc::clone(upkeep);
        background.spawn("merge", move || merges(&u, &merging))?;
        let u = Arc::clone(upkeep);
        background.spawn("governor", move || governor(&u))?;
        if let Some(late) = upkeep.manager.sequencer.late().cloned() {
            let m = Arc::clone(&upkeep.manager);
            background.spawn("release", move || late.run(&m.store, &m.locks))?;
        }
        Ok(background)
    }

    #[inline]
    pub(crate) fn upkeep(&self) -> &Arc<Upkeep> {
        &self.upkeep
    }

    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let guard = EndGuard(Arc::clone(&self.upkeep));
        let thread = Builder::new().name(name.into()).spawn(move || {
            let _guard = guard;
            body();
        });
        let path = &self.upkeep.manager.options.path;
        let thread = thread.map_err(|cause| Error::io("starting a thread for", path, cause))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Ends the threads and waits for them.
    pub(crate) fn stop(&self) {
        let mut threads = self.threads.lock();
        let manager = &self.upkeep.manager;
        manager.store.base.stop();
        manager.pressure.stop();
        self.upkeep.governor.stop();
        self.merging.state.lock().stop = true;
        self.merging.work.notify_all();
        if let Some(late) = manager.sequencer.late() {
            late.stop();
        }
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A defect that ends a thread stops the log, as one under the commit mutex does, and lets go who
/// waits for a checkpoint. Nobody waits for a slot from now on: without ticks none is taken away
/// from who keeps it and idles. Who waits for a late release is let go in `late`.
struct EndGuard(Arc<Upkeep>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        self.0.manager.store.log.fail(Error::Defect("a background thread panicked"));
        self.0.manager.pressure.stop();
        self.0.governor.set_limit(ActiveLimit::Off);
    }
}

fn checkpoints(upkeep: &Upkeep, merging: &Merging) {
    let manager = &upkeep.manager;
    let (mut failed, mut rests) = (false, 0);
    loop {
        let call = manager.pressure.wait_for_work(TICK);
        upkeep.share_memory();
        // Whether or not a checkpoint is due: on a full disk that may fail before it comes to the
        // manifest that would make room.
        if rests > 0 {
            rests -= 1;
        } else if let Err(error) = manager.store.base.discard_unwanted() {
            tracing::debug!(%error, "what a transaction had spilled stays on the disk for now");
            rests = RESTS;
        }
        let due = match call {
            Call::Stop => return,
            // Asked for while the round before was at it: it may have done enough.
            Call::Wanted if manager.store.memory.bytes() <= manager.pressure.soft() => {
                manager.pressure.skip_round();
                upkeep.checkpoint_is_due()
            }
            Call::Wanted => true,
            Call::Idle => failed || upkeep.checkpoint_is_due(),
        };
        if !due {
            continue;
        }
        let result = upkeep.checkpoint(manager.pressure.target());
        if let Err(error) = &result {
            tracing::error!(%error, "a checkpoint failed");
        }
        failed = result.is_err();
        manager.pressure.end_round(manager.store.memory.bytes(), result);
        if failed {
            // Not in a tight loop: what failed will mostly fail again at once.
            manager.pressure.pause(PAUSE);
        } else {
            merging.state.lock().due = true;
            merging.work.notify_one();
        }
    }
}

fn governor(upkeep: &Upkeep) {
    while upkeep.governor.wait_for_tick() {
        upkeep.governor.tick(upkeep.manager.options.clock.monotonic(), || upkeep.readings());
    }
}

fn merges(upkeep: &Upkeep, merging: &Merging) {
    let store = &upkeep.manager.store;
    lower_thread_priority();
    loop {
        {
            let mut state = merging.state.lock();
            while !state.due && !state.stop {
                merging.work.wait(&mut state);
            }
            if state.stop {
                return;
            }
            state.due = false;
        }
        loop {
            match store.base.compact_step() {
                Ok(true) => store.views.publish(&store.base),
                Ok(false) => break,
                Err(Error::ShuttingDown) => return,
                Err(error) => {
                    tracing::error!(%error, "merging runs failed");
                    break;
                }
            }
        }
    }
}

impl Upkeep {
    /// What the governor looks at.
    fn readings(&self) -> Readings {
        let manager = &self.manager;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let log = manager.store.log.statistics();
        let open = manager.active.count().max(1);
        Readings {
            committed: count(&manager.counters.commits) + count(&manager.counters.empty_commits),
            flushes: log.batches,
            flush_us: log.flush_us,
            blocked_pct: (100 * manager.locks.waiting_count() / open).min(100) as u32,
        }
    }

    /// Gives the base store's cache what the versions leave of the budget.
    fn share_memory(&self) {
        let (budget, store) = (self.manager.options.memory_bytes, &self.manager.store);
        let cache = (budget / 8 * 7).saturating_sub(store.memory.bytes()).clamp(budget / 8, budget / 4 * 3);
        store.base.resize_cache(cache);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use cognate_env::sim::SimDisk;

    use super::*;
    use crate::{Database, Options};

    /// Without ticks nobody takes a slot away from who keeps it and idles: readers would wait, too.
    #[test]
    fn a_thread_that_panics_leaves_nobody_waiting_for_a_slot() {
        let options = Options { disk: SimDisk::new(1).handle(), ..Options::new("data") };
        let database = Database::open(options).expect("opened");
        database.governor().set_limit(ActiveLimit::Fixed(1));
        drop(EndGuard(Arc::clone(database.upkeep())));
        assert!(!database.is_poisoned(), "a thread that was asked to end");
        assert_eq!(database.governor().info().limit, Some(1));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _guard = EndGuard(Arc::clone(database.upkeep()));
            assert!(database.is_poisoned(), "the planted defect");
        }));
        assert!(panicked.is_err() && database.is_poisoned());
        assert_eq!(database.governor().info().limit, None);
    }
}
