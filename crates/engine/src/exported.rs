//! Snapshots that a transaction lends to others: they begin where it began, however long that is
//! ago.

use std::sync::{Arc, Weak};

use crate::transaction::Transaction;
use crate::txn::snapshot::Pin;

/// A snapshot that a transaction lends, pinned for as long as that transaction is there.
pub struct Exported {
    pin: Pin,
}

impl Transaction {
    /// Lends its snapshot, without what it has written itself. It goes with the transaction.
    pub fn export(&self) -> Weak<Exported> {
        let pin = self.manager.store.snapshots.pin_again(self.sight.pin());
        let exported = Arc::new(Exported { pin });
        let lent = Arc::downgrade(&exported);
        self.lent.lock().push(exported);
        lent
    }

    /// Reads at the snapshot that another one lends, from now on. It has only begun, to read.
    pub fn borrow_snapshot(&mut self, exported: &Exported) {
        let pin = self.manager.store.snapshots.pin_again(&exported.pin);
        self.move_to(pin, None);
    }
}
