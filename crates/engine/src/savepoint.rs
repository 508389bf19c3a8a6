//! Points to roll back to. What was written since one is taken back, and what was noted of it; what
//! was locked is released, but for what has to stay (`lock::held`). What was read stays read.

use crate::transaction::Transaction;
use crate::txn::writeset::Savepoint;

impl Transaction {
    /// Marks a point to roll back to.
    pub fn savepoint(&mut self) -> Savepoint {
        let savepoint = self.writes.savepoint();
        self.held.mark(savepoint.ordinal());
        if !self.notes.is_empty() {
            self.noted.push((savepoint, self.notes.len()));
        }
        savepoint
    }

    /// Undoes the writes made since `savepoint`, which stays valid, and releases the locks taken
    /// since; later ones are gone.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        self.noted.truncate(self.noted.partition_point(|(mark, _)| *mark <= savepoint));
        // Whoever has noted nothing before it is not among them.
        let upto = self.noted.last().filter(|(mark, _)| *mark == savepoint).map_or(0, |(_, upto)| *upto);
        self.notes.truncate(upto);
        self.writes.rollback_to(savepoint);
        self.writes.rollback_spilled(savepoint, &self.manager.store.base);
        // Asked for again where they are needed again; those that stay are granted at once.
        self.trees.retain(|(_, mode)| mode.is_weak());
        let freed = self.manager.locks.release_since(self.id, &mut self.held, savepoint.ordinal());
        self.writes.refund(freed);
    }

    /// Forgets `savepoint` and later ones; the writes stay, and the locks.
    pub fn release(&mut self, savepoint: Savepoint) {
        self.noted.truncate(self.noted.partition_point(|(mark, _)| *mark < savepoint));
        self.writes.release(savepoint);
        self.held.unmark(savepoint.ordinal());
    }
}
