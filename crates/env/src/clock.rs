//! Time: the calendar for timestamps, and a monotonic clock for durations.

use std::fmt;
use std::time::Duration;

/// A source of time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall clock: microseconds since 1970-01-01 00:00:00 UTC. May jump, also backwards.
    fn wall_us(&self) -> i64;

    /// Time since an arbitrary fixed point. Never goes backwards.
    fn monotonic(&self) -> Duration;
}
