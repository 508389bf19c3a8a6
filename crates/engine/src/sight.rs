//! What a transaction reads at: its snapshot, and the set of what it has read there.
//!
//! Views and cursors share it, so that each of them holds one thing and whatever they read is
//! noted, wherever they are.

use crate::Csn;
use crate::reads::Reads;
use crate::txn::snapshot::Pin;

/// A pinned snapshot, and what is read there if somebody wants to know.
pub(crate) struct Sight {
    pin: Pin,
    reads: Option<Reads>,
}

impl Sight {
    pub(crate) fn new(pin: Pin, reads: Option<Reads>) -> Sight {
        Sight { pin, reads }
    }

    /// The commit up to which others' changes are seen.
    #[inline]
    pub(crate) fn csn(&self) -> Csn {
        self.pin.csn()
    }

    pub(crate) fn pin(&self) -> &Pin {
        &self.pin
    }

    /// Where reads are noted.
    #[inline]
    pub(crate) fn reads(&self) -> Option<&Reads> {
        self.reads.as_ref()
    }
}
