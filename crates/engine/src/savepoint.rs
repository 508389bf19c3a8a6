//! Points to roll back to. What was written since one is taken back, and what was noted of it; what
//! was locked is released, but for what has to stay (`lock::held`). What was read stays read.
//!
//! A key that was written and that the snapshot does not show was free: whoever wrote it was told
//! so, which stays true whatever becomes of the write. As long as the write stands nobody else can
//! have the key; once it is taken back, that is a read. So T1, which inserts 6, rolls that back and
//! goes on, comes before T2, which has inserted 6 meanwhile.

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
        self.note_free_keys(savepoint);
        self.take_back(savepoint);
    }

    /// Notes as read which keys were free that were written first since then.
    fn note_free_keys(&self, savepoint: Savepoint) {
        let Some(reads) = self.sight.reads() else { return };
        self.writes.for_each_first_since(savepoint, |tree, key| {
            // Where that cannot be told it is noted, too.
            if !matches!(self.manager.store.get(tree, key, self.sight.csn()), Ok(Some(_))) {
                reads.point(tree, key);
            }
        });
    }

    /// The same without a look at what was written: nobody was told anything of it.
    pub(crate) fn take_back(&mut self, savepoint: Savepoint) {
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
