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
use crate::manager::Manager;
use crate::pressure::Call;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::thread::{self, Builder, JoinHandle};
use crate::sync::{Condvar, Mutex, lower_thread_priority};

/// How often the length of the log is looked at, and the caches' share of memory adjusted.
const TICK: Duration = Duration::from_millis(200);
/// Pause after a checkpoint that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The running threads. Dropping it ends them.
pub(crate) struct Background {
    manager: Arc<Manager>,
    merging: Arc<Merging>,
    threads: Vec<JoinHandle<()>>,
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
    pub(crate) fn start(manager: &Arc<Manager>) -> Result<Background, Error> {
        let merging = Arc::new(Merging {
            state: Mutex::new(MergingState { due: true, stop: false }),
            ..Merging::default()
        });
        let mut background =
            Background { manager: Arc::clone(manager), merging: Arc::clone(&merging), threads: Vec::new() };
        let (m, s) = (Arc::clone(manager), Arc::clone(&merging));
        background.spawn("checkpoint", move || checkpoints(&m, &s))?;
        let m = Arc::clone(manager);
        background.spawn("merge", move || merges(&m, &merging))?;
        let m = Arc::clone(manager);
        background.spawn("governor", move || governor(&m))?;
        if let Some(late) = manager.sequencer.late().cloned() {
            let m = Arc::clone(manager);
            background.spawn("release", move || late.run(&m.store, &m.locks))?;
        }
        Ok(background)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let guard = EndGuard(Arc::clone(&self.manager));
        let thread = Builder::new().name(name.into()).spawn(move || {
            let _guard = guard;
            body();
        });
        let path = &self.manager.options.path;
        self.threads.push(thread.map_err(|cause| Error::io("starting a thread for", path, cause))?);
        Ok(())
    }

    /// Ends the threads and waits for them.
    pub(crate) fn stop(&mut self) {
        self.manager.store.base.stop();
        self.manager.pressure.stop();
        self.manager.governor.stop();
        self.merging.state.lock().stop = true;
        self.merging.work.notify_all();
        if let Some(late) = self.manager.sequencer.late() {
            late.stop();
        }
        for thread in self.threads.drain(..) {
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
struct EndGuard(Arc<Manager>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        self.0.store.log.fail(Error::Defect("a background thread panicked"));
        self.0.pressure.stop();
        self.0.governor.set_limit(ActiveLimit::Off);
    }
}

fn checkpoints(manager: &Manager, merging: &Merging) {
    let mut failed = false;
    loop {
        let call = manager.pressure.wait_for_work(TICK);
        manager.share_memory();
        let due = match call {
            Call::Stop => return,
            // Asked for while the round before was at it: it may have done enough.
            Call::Wanted if manager.store.memory.bytes() <= manager.pressure.soft() => {
                manager.pressure.skip_round();
                manager.checkpoint_is_due()
            }
            Call::Wanted => true,
            Call::Idle => failed || manager.checkpoint_is_due(),
        };
        if !due {
            continue;
        }
        let result = manager.checkpoint(manager.pressure.target());
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

fn governor(manager: &Manager) {
    while manager.governor.wait_for_tick() {
        manager.governor.tick(manager.options.clock.monotonic(), || manager.readings());
    }
}

fn merges(manager: &Manager, merging: &Merging) {
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
            match manager.store.base.compact_step() {
                Ok(true) => manager.store.views.publish(&manager.store.base),
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

impl Manager {
    /// What the governor looks at.
    pub(crate) fn readings(&self) -> Readings {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let log = self.store.log.statistics();
        let open = self.active.count().max(1);
        Readings {
            committed: count(&self.counters.commits) + count(&self.counters.empty_commits),
            flushes: log.batches,
            flush_us: log.flush_us,
            blocked_pct: (100 * self.locks.waiting_count() / open).min(100) as u32,
        }
    }

    /// Gives the base store's cache what the versions leave of the budget.
    pub(crate) fn share_memory(&self) {
        let budget = self.options.memory_bytes;
        let cache =
            (budget / 8 * 7).saturating_sub(self.store.memory.bytes()).clamp(budget / 8, budget / 4 * 3);
        self.store.base.resize_cache(cache);
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
        drop(EndGuard(Arc::clone(database.manager())));
        assert!(!database.is_poisoned(), "a thread that was asked to end");
        assert_eq!(database.governor().info().limit, Some(1));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _guard = EndGuard(Arc::clone(database.manager()));
            assert!(database.is_poisoned(), "the planted defect");
        }));
        assert!(panicked.is_err() && database.is_poisoned());
        assert_eq!(database.governor().info().limit, None);
    }
}
