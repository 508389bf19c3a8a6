//! A fixed pace: transactions are due one after the other, and each is taken by the next client
//! that is free. Whoever takes one that was due before begins at once, and its wait counts.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// See the module's prose.
#[derive(Debug)]
pub struct Pace {
    interval: Duration,
    from: OnceLock<Instant>,
    next: AtomicU64,
}

impl Pace {
    /// One transaction each `interval`.
    pub fn new(interval: Duration) -> Pace {
        Pace { interval, from: OnceLock::new(), next: AtomicU64::new(0) }
    }

    /// When the next transaction that nobody has taken is due.
    pub fn take(&self) -> Instant {
        let from = *self.from.get_or_init(Instant::now);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        from + Duration::from_nanos((self.interval.as_nanos() as u64).saturating_mul(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_due_one_after_the_other() {
        let pace = Pace::new(Duration::from_millis(20));
        let due: Vec<Instant> = (0..4).map(|_| pace.take()).collect();
        let between: Vec<Duration> = due.windows(2).map(|two| two[1] - two[0]).collect();
        assert_eq!(between, [Duration::from_millis(20); 3]);
    }
}
