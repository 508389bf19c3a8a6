//! How long to wait before the next attempt: exponential, capped, with jitter. Pure: chance is
//! given from outside.
//!
//! A retry aborts a slower predecessor where it overtakes it (the tombstones of MIP), so clients
//! that retry faster than a request takes would keep each other's attempts from finishing. So both
//! the patience with an answer and the pause before the next attempt double with each attempt.

use std::time::Duration;

/// The policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// How long the first attempt may take.
    pub patience: Duration,
    /// The longest that any attempt may take.
    pub patience_max: Duration,
    /// The longest pause before the second attempt.
    pub pause: Duration,
    /// The longest pause before any attempt.
    pub pause_max: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff {
            patience: Duration::from_secs(2),
            patience_max: Duration::from_secs(60),
            pause: Duration::from_millis(50),
            pause_max: Duration::from_secs(10),
        }
    }
}

fn doubled(first: Duration, times: u32, most: Duration) -> Duration {
    first.checked_mul(1u32.checked_shl(times.min(31)).unwrap_or(u32::MAX)).unwrap_or(most).min(most)
}

impl Backoff {
    /// How long to wait for the answer to an attempt, counted from 1.
    pub fn patience(&self, attempt: u32) -> Duration {
        doubled(self.patience, attempt.saturating_sub(1), self.patience_max)
    }

    /// How long to pause before an attempt, counted from 1; the first begins at once. `chance` is
    /// any number; it chooses between half of the pause and all of it.
    pub fn pause(&self, attempt: u32, chance: u64) -> Duration {
        let Some(times) = attempt.checked_sub(2) else { return Duration::ZERO };
        let whole = doubled(self.pause, times, self.pause_max);
        let half = whole / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX - 1);
        half + Duration::from_nanos(chance % (nanos + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_and_patience_double_up_to_their_bounds() {
        let backoff = Backoff::default();
        assert_eq!(backoff.pause(1, 7), Duration::ZERO);
        let mut before = Duration::ZERO;
        for attempt in 2..100 {
            let (least, most) = (backoff.pause(attempt, 0), backoff.pause(attempt, u64::MAX));
            assert!(
                least <= most && most <= backoff.pause_max && most <= least * 2 + Duration::from_nanos(1)
            );
            assert!(least >= before.min(backoff.pause_max / 2), "attempt {attempt}");
            assert!(backoff.patience(attempt) >= backoff.patience(attempt - 1));
            before = least;
        }
        assert_eq!(backoff.patience(1), backoff.patience);
        assert_eq!(backoff.patience(u32::MAX), backoff.patience_max);
    }
}
