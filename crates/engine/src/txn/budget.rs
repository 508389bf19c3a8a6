//! How much memory the write sets of all transactions may take, and that of each.

use crate::Error;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Memory of all write sets together.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicU64,
    limit: u64,
    /// What one transaction may use.
    pub(super) limit_each: u64,
    /// So much of its own trees a transaction keeps in memory.
    pub(super) spill_bytes: u64,
}

/// Taken from the budget at once; so much every transaction has for free.
pub(super) const CHUNK: u64 = 64 << 10;

impl Budget {
    pub(crate) fn new(limit: u64, limit_each: u64, spill_bytes: u64) -> Budget {
        Budget { used: AtomicU64::new(0), limit, limit_each, spill_bytes }
    }

    /// One with the same bound for each transaction, of which others have taken nothing.
    pub(crate) fn apart(&self) -> Budget {
        self.apart_with(self.limit_each)
    }

    /// The same with another bound.
    pub(crate) fn apart_with(&self, limit_each: u64) -> Budget {
        Budget::new(u64::MAX, limit_each, self.spill_bytes)
    }

    /// Bytes that transactions have taken.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes` for a transaction that has `has` already. When all is taken, the larger
    /// transactions are refused more; a small one always gets its share.
    pub(super) fn take(&self, bytes: u64, has: u64) -> Result<(), Error> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.limit && has > self.limit / 64 {
            self.give_back(bytes);
            return Err(Error::TransactionTooLarge { limit: has });
        }
        Ok(())
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}
