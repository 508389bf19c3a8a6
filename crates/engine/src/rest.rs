//! What an answer rests on: the last commit that a transaction has looked at.
//!
//! Locks are released before a commit is durable, so a transaction may look at what a crash could
//! still take back: by its snapshot and, where it asks for the newest version under a lock, by
//! later commits. It carries the last of them along. Whoever is told how the transaction ended, be
//! it by a commit, a rollback or an error, must wait until that is durable
//! (`Database::wait_durable`), or the crash would take the answer back as well.

use crate::Csn;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A commit number that only grows. Its owner's alone, so raising it costs nobody else anything.
#[derive(Debug, Default)]
pub(crate) struct LastSeen(AtomicU64);

impl LastSeen {
    #[inline]
    pub(crate) fn raise(&self, csn: Csn) {
        if csn > self.last() {
            self.0.fetch_max(csn, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn last(&self) -> Csn {
        self.0.load(Ordering::Relaxed)
    }
}
