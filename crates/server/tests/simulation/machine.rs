//! The machine under a node of the simulated cluster: a disk that loses power and may be slow, and
//! a calendar clock that jumps. It outlives the node's processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use cognate_env::sim::SimDisk;
use cognate_env::{Clock, RealClock, SplitMix};
use cognate_replication::FlushTime;

/// The slowest that a disk becomes.
const SLOW: Duration = Duration::from_millis(200);
/// The longest that a node stands still: longer than it takes the others to elect another leader.
const STILL: Duration = Duration::from_secs(4);
/// The farthest that a clock is off.
const OFF: Duration = Duration::from_secs(2 * 3600);

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) disk: SimDisk,
    pub(crate) flushes: FlushTime,
    pub(crate) calendar: Arc<Calendar>,
}

impl Machine {
    pub(crate) fn new(seed: u64) -> Machine {
        let (flushes, calendar) = (FlushTime::default(), Arc::default());
        Machine { disk: SimDisk::new(seed), flushes, calendar }
    }

    /// Its disk becomes slow, or quick again.
    pub(crate) fn slow_down(&self, random: &mut SplitMix) {
        let most = if random.one_in(2) { 0 } else { SLOW.as_micros() as u64 };
        self.flushes.set(Duration::from_micros(random.below(most + 1)));
    }

    /// From its next flush on it stands still for a while.
    pub(crate) fn stand_still(&self, random: &mut SplitMix) {
        self.flushes.delay_next(Duration::from_micros(random.below(STILL.as_micros() as u64)));
    }

    /// Its calendar clock jumps, perhaps backwards.
    pub(crate) fn jump(&self, random: &mut SplitMix) {
        let off = OFF.as_micros() as i64;
        self.calendar.off_us.store(random.below(2 * off as u64) as i64 - off, Ordering::Relaxed);
    }

    /// Its disk is quick from now on. The clock stays wrong.
    pub(crate) fn recover(&self) {
        self.flushes.set(Duration::ZERO);
        self.flushes.delay_next(Duration::ZERO);
    }
}

/// A clock whose calendar is so many microseconds off.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    real: RealClock,
    off_us: AtomicI64,
}

impl Clock for Calendar {
    fn wall_us(&self) -> i64 {
        self.real.wall_us() + self.off_us.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }
}
