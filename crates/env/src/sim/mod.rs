//! A machine that fails on demand, the same way for the same seed: power loss with torn writes and
//! lost renames, failed flushes, a full disk, unreadable and rotten bytes, a clock that stands
//! still. Beside it, a log device with a fixed flush time, for experiments in real time.

mod content;
mod disk;
mod log_device;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::rng::{Rng, SplitMix};

pub use disk::{Loss, SimDisk};
pub use log_device::LogDevice;

/// Random numbers that repeat for the same seed and order of calls.
#[derive(Debug)]
pub struct SimRng(Mutex<SplitMix>);

impl SimRng {
    /// A generator for `seed`.
    pub fn new(seed: u64) -> SimRng {
        SimRng(Mutex::new(SplitMix::new(seed)))
    }
}

impl Rng for SimRng {
    fn next_u64(&self) -> u64 {
        self.0.lock().bits()
    }
}

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct SimClock(AtomicU64);

impl SimClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_micros() as u64, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn wall_us(&self) -> i64 {
        self.0.load(Ordering::Relaxed) as i64
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}
