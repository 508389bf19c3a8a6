//! Numbers that are handed out once: transaction ids and tree ids.
//!
//! A transaction id names a transaction in lock waits, views and messages. It says nothing about
//! the order of commits; that is the commit sequence number's job.
//!
//! Every commit's record carries its transaction id and the next tree id; a checkpoint keeps both
//! in the base store. So no number that anything durable may name is handed out again after a
//! crash.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Hands out numbers, ascending.
#[derive(Debug)]
pub(crate) struct Numbers(AtomicU64);

impl Numbers {
    pub(crate) fn starting_at(next: u64) -> Numbers {
        Numbers(AtomicU64::new(next))
    }

    /// A number that was not handed out before.
    pub(crate) fn take(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// All numbers below are in use somewhere else, too.
    pub(crate) fn raise(&self, next: u64) {
        self.0.fetch_max(next, Ordering::Relaxed);
    }

    /// All numbers below may be in use.
    pub(crate) fn next(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
