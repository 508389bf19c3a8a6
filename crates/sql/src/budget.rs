//! Memory that all statements of a database share: trees of long texts, kept statements, large
//! parameters, what suspended portals and cursors hold, savepoints, checks that wait, notifications
//! and the channels that sessions listen on.
//!
//! Whoever is about to allocate in proportion to what a client sent takes a [`Charge`] first and
//! keeps it as long as the memory. Beyond the limit the statement gets 53200 and nothing was
//! allocated.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Result, SqlError, sqlstate};

/// So many bytes, shared.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    used: AtomicUsize,
}

/// Bytes of a budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget { limit, used: AtomicUsize::new(0) })
    }

    /// All bytes that there are.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Takes bytes for `what`. 53200 if others have too many of them, or there are not so many at
    /// all.
    pub(crate) fn charge(self: &Arc<Budget>, bytes: usize, what: &str) -> Result<Charge> {
        self.take(bytes, what).map(|()| Charge { budget: Arc::clone(self), bytes })
    }

    fn take(&self, bytes: usize, what: &str) -> Result<()> {
        let free = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free) {
            Ok(_) => Ok(()),
            Err(used) => Err(SqlError::new(sqlstate::OUT_OF_MEMORY, "out of memory").with_detail(format!(
                "{what} would take up to {} kB; statements have {} of {} kB already.",
                bytes.div_ceil(1024),
                used / 1024,
                self.limit / 1024
            ))),
        }
    }
}

impl Charge {
    /// How many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// So many bytes instead. 53200 if there are not so many more; then it stays as it is.
    pub(crate) fn resize(&mut self, bytes: usize, what: &str) -> Result<()> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.take(more, what)?,
            None => _ = self.budget.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed),
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn what_is_taken_comes_back() {
        let budget = Budget::new(100);
        let first = budget.charge(60, "A text").expect("room");
        assert_eq!(budget.charge(60, "A text").expect_err("no room").sqlstate, "53200");
        drop(first);
        budget.charge(100, "A text").expect("room again");
    }

    #[test]
    fn a_charge_grows_and_shrinks() {
        let budget = Budget::new(100);
        let mut charge = budget.charge(10, "A cursor").expect("room");
        charge.resize(90, "A cursor").expect("room");
        assert_eq!(charge.resize(101, "A cursor").expect_err("no room").sqlstate, "53200");
        assert_eq!(budget.charge(11, "A text").expect_err("no room").sqlstate, "53200");
        charge.resize(0, "A cursor").expect("less");
        budget.charge(100, "A text").expect("room");
    }
}
