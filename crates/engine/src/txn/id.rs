//! Transaction ids: unique numbers that name a transaction in lock waits, views and messages.
//!
//! An id says nothing about order of commit (that is the commit sequence number's job). Ids are handed out from a
//! block that recovery knows the end of, so an id is not given out again after a crash.

use std::sync::atomic::{AtomicU64, Ordering};

/// Hands out numbers from a reserved block.
///
/// `limit` is what recovery will continue from; a number at or above it must not be used before a new limit is in
/// the log.
#[derive(Debug)]
pub(crate) struct Numbers {
    next: AtomicU64,
    limit: AtomicU64,
}

impl Numbers {
    pub(crate) fn new(next: u64) -> Numbers {
        Numbers { next: AtomicU64::new(next), limit: AtomicU64::new(next) }
    }

    /// The next number, and whether the block is used up: then the caller logs a new limit before using the number.
    pub(crate) fn next(&self) -> (u64, bool) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number, number >= self.limit.load(Ordering::Acquire))
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire)
    }

    pub(crate) fn raise_limit(&self, limit: u64) {
        self.limit.fetch_max(limit, Ordering::AcqRel);
    }
}
