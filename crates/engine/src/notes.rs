//! What a transaction notes for its certification besides the reads that its views and cursors note
//! by themselves.
//!
//! Of a row that it writes it may say what changes (`txn::columns`): whoever has read other columns
//! of the row, or was not interested in it, need not come before.
//!
//! Mostly a transaction depends on what its snapshot shows. Some checks look at the newest commits
//! instead (uniqueness, foreign keys, the catalog): under a lock that keeps the answer true until
//! the end. The certifier relies on that, so such a lock outlives the savepoint that it was taken
//! after (`lock::held`). But where nothing has changed since the snapshot, the newest commits say
//! what the snapshot says; after a savepoint that is looked at, and noted as a read of the
//! snapshot, whose locks go with the savepoint: whoever changes it afterwards comes later.

use std::ops::Bound;

use crate::key::SmallKey;
use crate::reads::Reads;
use crate::tracked::TrackedView;
use crate::transaction::Transaction;
use crate::txn::change::Change;
use crate::txn::readset::ReadSet;
use crate::{Csn, Error, TreeId, Value};

/// Above the ids of trees.
const PRESENCE: TreeId = 1 << 31;

/// The tree id under which it is noted which keys of a tree are there.
pub fn presence_of(tree: TreeId) -> TreeId {
    tree | PRESENCE
}

/// The tree whose keys are noted under this id.
pub(crate) fn noted_tree(noted: TreeId) -> TreeId {
    noted & !PRESENCE
}

impl Transaction {
    /// Writes a key, like `put`, and says what that changes of the row that the key has now, own
    /// writes included. The row is locked, and what it is now was read under the lock or is what
    /// the snapshot shows.
    ///
    /// # Errors
    /// As `put`.
    pub fn put_change(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: Value,
        change: &Change,
    ) -> Result<(), Error> {
        self.write(tree, key, Some(value), Some(change))
    }

    /// Deletes a key, likewise.
    ///
    /// # Errors
    /// As `put`.
    pub fn delete_change(&mut self, tree: TreeId, key: &[u8], change: &Change) -> Result<(), Error> {
        self.write(tree, key, None, Some(change))
    }

    /// Notes that the transaction depends on the version of a key that its snapshot shows. Reading
    /// does this by itself.
    #[inline]
    pub fn note_read(&self, tree: TreeId, key: &[u8]) {
        if let Some(reads) = self.sight.reads() {
            reads.point(tree, key);
        }
    }

    /// Notes that the transaction depends on the newest version of a key, and holds a lock that
    /// keeps it so until the end: all its locks stay from now on, whatever savepoint is rolled back
    /// to. Unless it is what the snapshot shows of the key that is `at` there: then the snapshot
    /// was read, and nothing need stay.
    ///
    /// # Errors
    /// As `changed`.
    pub fn note_latest(&mut self, tree: TreeId, key: &[u8], at: (TreeId, &[u8])) -> Result<(), Error> {
        let Some(reads) = self.sight.reads() else { return Ok(()) };
        if self.held.has_marks() && self.changed(at.0, at.1)?.is_none() {
            reads.point(tree, key);
        } else {
            reads.latest(tree, key);
            self.held.pin();
        }
        Ok(())
    }

    /// The same where it is the lock on one row that keeps it so. The key is new if the row is.
    ///
    /// # Errors
    /// As `changed`.
    pub fn note_latest_under(
        &mut self,
        tree: TreeId,
        key: &[u8],
        (locked, row): (TreeId, &[u8]),
    ) -> Result<(), Error> {
        let Some(reads) = self.sight.reads() else { return Ok(()) };
        if self.held.has_marks() && self.changed(locked, row)?.is_none() {
            reads.point(tree, key);
        } else {
            reads.latest(tree, key);
            self.manager.locks.keep_row(&mut self.held, locked, row);
        }
        Ok(())
    }

    /// The same where it is the lock on a tree that every statement has.
    pub fn note_latest_of_tree(&self, tree: TreeId, key: &[u8]) {
        if let Some(reads) = self.sight.reads() {
            reads.latest(tree, key);
        }
    }

    /// The same of all keys of a range, and of the gaps between them, under all locks held, as they
    /// are at a later snapshot, which is still pinned.
    ///
    /// # Errors
    /// `LogPoisoned`.
    pub fn note_latest_range(
        &mut self,
        tree: TreeId,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        at: Csn,
    ) -> Result<(), Error> {
        if self.sight.reads().is_none() {
            return Ok(());
        }
        let is_unchanged = self.held.has_marks() && {
            let asked = Reads::of(ReadSet::default(), &self.manager.read_budget);
            asked.range(tree, lower, upper, None);
            let (id, from) = (self.id(), self.snapshot());
            let (_, stale) = self.manager.sequencer.stale_read(id, from, at, asked.copy())?;
            // In a cluster the graph has forgotten what was before the horizon.
            stale.is_none() && from >= self.manager.horizon()
        };
        let Some(reads) = self.sight.reads() else { return Ok(()) };
        if is_unchanged {
            reads.range(tree, lower, upper, None);
        } else {
            reads.latest_range(tree, lower, upper);
            self.held.pin();
        }
        Ok(())
    }

    /// Asks the certifier whether any order explains what was read up to now. To be asked before
    /// the client is told of a newer state than the snapshot's.
    ///
    /// # Errors
    /// `DependencyCycle` if there is none: the transaction cannot commit any more.
    pub fn check_reads(&self) -> Result<(), Error> {
        match self.sight.reads() {
            None => Ok(()),
            Some(reads) => {
                let (id, snapshot) = (self.id, self.sight.csn());
                self.manager.sequencer.check_reads(id, snapshot, self.first_snapshot(), reads.copy())
            }
        }
    }

    /// Whether what was read up to now fits into the order whatever else there is: who has written
    /// nothing then asks nobody at its end.
    pub fn is_free_to_read(&self) -> bool {
        let is_free = |reads: ReadSet| self.manager.sequencer.is_free_to_read(self.sight.csn(), &reads);
        self.sight.reads().is_none_or(|reads| is_free(reads.copy()))
    }

    /// All locks held now stay until the end: what was read under them was read for good.
    pub fn pin_locks(&mut self) {
        self.held.pin();
    }

    /// Notes that a key comes or goes, for who depends on whether it is there and on nothing else
    /// of it: they note [`presence_of`] its tree (`note_latest`). The key is written, too.
    pub fn note_presence(&mut self, tree: TreeId, key: &[u8]) {
        if self.manager.sequencer.certifies() {
            self.notes.push((presence_of(tree), SmallKey::new(key)));
        }
    }

    /// Notes that everything read through the view is locked, and as new as its lock.
    pub fn note_locked(&mut self, tracked: &TrackedView) {
        if let (Some(reads), Some(locked)) = (self.sight.reads(), tracked.reads()) {
            reads.adopt_locked(locked);
        }
        self.held.pin();
    }
}
