//! Writing one row: locks, uniqueness, the row itself, its index entries, and the foreign keys to
//! be checked.
//!
//! Order of locks for one row: the row (by its key), then entries of unique indexes in index order.
//! Who finds an entry there and has to wait for its row gives the entry back meanwhile.
//! A table that the transaction holds exclusively (made, truncated or altered by it) needs no row
//! locks.
//!
//! *Strengths.* A foreign key's check must keep the referenced row from going, but not from
//! changing in other columns: it locks the row KEY SHARE. So does FOR KEY SHARE. Who deletes a row
//! or changes a unique key of it needs it alone; an UPDATE of other columns, and the claim to a key
//! that is new, lock NO KEY UPDATE and meet neither. An UPDATE that can change a key asks for the
//! stronger lock at once if it will, since raising it later may be a deadlock.
//!
//! *What a failure tells* is read, and known to a client that rolls back to a savepoint and goes
//! on. If it is newer than the snapshot of a serializable transaction, it must stay true until the
//! end: the row that is told of is locked SHARE, since who takes it away asks for no other lock.
//!
//! *Keys as such.* For the certifier, that a key exists is a thing of its own, under a tree id of
//! its own ([`key_tree`](super::index_maintenance::key_tree)): a child depends on it, and not on
//! what else is in the row. One that goes and comes again has not changed.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use cognate_engine::{Change, Isolation, LockMode, LockOutcome, WaitPolicy};

use super::change::{deleted, inserted, updated};
use super::constraint::unique_violation;
use super::index_maintenance::{
    columns_into, differs, entry, insert_entries, primary_key, row_id_key, secondary,
};
use super::indexed::Indexed;
use super::stored::{decode, encode};
use crate::catalog::{Index, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::session::cycle::{explain, explain_changed};
use crate::session::work::Work;
use crate::types::Datum;

/// A row whose lock was taken.
pub(crate) enum Locked {
    /// As the snapshot (or the own writes) showed it.
    Unchanged,
    /// Changed meanwhile; this is what it is now (READ COMMITTED only).
    Changed(Bytes),
    /// Deleted meanwhile (READ COMMITTED only).
    Gone,
}

impl Work<'_> {
    /// Whether others may have written rows of the table: its rows need locks, and may be newer
    /// than the snapshot, also for who holds the table as a whole by now. The transaction has not
    /// made it, nor emptied it, nor written all its rows anew.
    #[inline]
    pub(crate) fn is_shared(&self, table: &Table) -> bool {
        !self.engine.has_created(table.tree)
    }

    /// Locks a row that is to be changed and says whether it is still what the snapshot shows.
    /// Under snapshot isolation a changed row is a serialization failure: first updater wins.
    pub(crate) async fn lock_row(&mut self, table: &Table, row_key: &[u8], mode: LockMode) -> Result<Locked> {
        if !self.is_shared(table) {
            return Ok(Locked::Unchanged);
        }
        // What was written is locked NO KEY UPDATE at least.
        if mode <= LockMode::NoKeyExclusive && self.engine.own(table.tree, row_key)?.is_some() {
            return Ok(Locked::Unchanged);
        }
        self.lock_key(table.tree, row_key, mode).await?;
        self.recheck(table, row_key)
    }

    /// Locks a row that is locked already, perhaps more strongly.
    pub(crate) async fn lock_again(&mut self, table: &Table, row_key: &[u8], mode: LockMode) -> Result<()> {
        if self.is_shared(table) {
            self.lock_key(table.tree, row_key, mode).await?;
        }
        Ok(())
    }

    /// Compares a locked row with the snapshot.
    pub(crate) fn recheck(&self, table: &Table, row_key: &[u8]) -> Result<Locked> {
        if self.engine.own(table.tree, row_key)?.is_some() {
            return Ok(Locked::Unchanged);
        }
        let Some(latest) = self.engine.changed(table.tree, row_key)? else {
            return Ok(Locked::Unchanged);
        };
        if self.engine.isolation() != Isolation::ReadCommitted {
            let what = if latest.value.is_some() { "update" } else { "delete" };
            let error = self.newer(what, table.tree, row_key);
            return Err(error.with_table(&table.schema_name, &table.name));
        }
        Ok(latest.value.map_or(Locked::Gone, Locked::Changed))
    }

    /// 40001, in PostgreSQL's words, for a key that is newer than the snapshot.
    #[cold]
    pub(crate) fn newer(&self, what: &str, tree: u32, key: &[u8]) -> SqlError {
        let message = format!("could not serialize access due to concurrent {what}");
        self.met_at(SqlError::new(sqlstate::SERIALIZATION_FAILURE, message), tree, key)
    }

    /// 40001 if a locked key is newer than the snapshot, unless the level is READ COMMITTED. It
    /// says which key: the statement may name another table than the key is of.
    pub(crate) fn check_unchanged(&self, tree: u32, key: &[u8]) -> Result<()> {
        match self.engine.check_unchanged(tree, key) {
            Ok(()) => Ok(()),
            Err(error) if error.is_retryable() => {
                let (error, reader) = (self.newer("update", tree, key), self.rights());
                Err(explain_changed(error, (tree, key), &self.catalog, self.format, reader.as_deref()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// At a node, its session finds out who has changed the key, if the failure stands.
    #[cold]
    fn met_at(&self, error: SqlError, tree: u32, key: &[u8]) -> SqlError {
        match self.database.engine().is_node() {
            true => error.met_at(tree, Some(key)),
            false => error,
        }
    }

    /// Notes that keys which others may refer to come or go, for the dependencies of who checks
    /// foreign keys.
    fn note_referenced_keys(&mut self, table: &Table, row: &[Datum], changed: impl Fn(&Index) -> bool) {
        if table.referenced_by.is_empty() {
            return;
        }
        for index in table.indexes.iter().filter(|index| index.is_key() && changed(index)) {
            let mut key = Vec::new();
            if !columns_into(index, Indexed::plain(row), &mut key) {
                self.engine.note_presence(index.tree, &key);
            }
        }
    }

    /// Whether a key is by now another one than the snapshot shows to a serializable transaction:
    /// whoever is told of it has read what has to stay as it is.
    fn is_newer(&self, tree: u32, key: &[u8]) -> Result<bool> {
        Ok(self.engine.isolation() == Isolation::Serializable
            && self.engine.own(tree, key)?.is_none()
            && self.engine.changed(tree, key)?.is_some())
    }

    /// A locked key is taken: 23505. That somebody has it is read; 40001 if no order explains that
    /// together with what was read before, as when the snapshot showed a serializable transaction
    /// that nobody has it.
    fn duplicate(
        &mut self,
        table: &Table,
        index: &Index,
        row: Indexed<'_>,
        tree: u32,
        key: &[u8],
    ) -> Result<SqlError> {
        if self.engine.own(tree, key)?.is_none() {
            if self.engine.changed(tree, key)?.is_none() {
                self.engine.note_read(tree, key);
            } else {
                self.note_holder(table, tree, key)?;
                match self.engine.check_reads() {
                    Ok(()) => {}
                    Err(cognate_engine::Error::DependencyCycle { cycle }) => {
                        let reader = self.rights();
                        return Ok(explain(&cycle, &self.catalog, self.format, reader.as_deref()));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(self.tell_key(unique_violation(table, index, row, self.format), table, index))
    }

    /// Notes that a key is taken by what is newer than the snapshot, and locked. Who deletes the
    /// row of an entry has the row's lock and not the key's, so there it is that one which stays.
    fn note_holder(&mut self, table: &Table, tree: u32, key: &[u8]) -> Result<()> {
        let row_key = if tree == table.tree { None } else { self.key_holder(tree, key)? };
        let locked = row_key.as_deref().map_or((tree, key), |row_key| (table.tree, row_key));
        Ok(self.engine.note_latest_under(tree, key, locked)?)
    }

    /// Stores a row, with what that changes. Nobody has read what is in a tree that the transaction
    /// made.
    fn put_row(
        &mut self,
        table: &Table,
        row_key: &[u8],
        row: &[Datum],
        change: impl FnOnce() -> Change,
    ) -> Result<()> {
        let value = encode(table, row)?;
        match self.is_shared(table) {
            true => self.engine.put_change(table.tree, row_key, value, &change())?,
            false => self.engine.put(table.tree, row_key, value)?,
        }
        Ok(())
    }

    /// Removes a row, likewise.
    fn remove_row(&mut self, table: &Table, row_key: &[u8], row: &[Datum]) -> Result<()> {
        match self.is_shared(table) {
            true => self.engine.delete_change(table.tree, row_key, &deleted(row))?,
            false => self.engine.delete(table.tree, row_key)?,
        }
        Ok(())
    }

    /// Inserts a complete, checked row; its row key. 23505 if a key exists.
    pub(crate) async fn insert_row(&mut self, table: &Arc<Table>, row: &[Datum]) -> Result<Bytes> {
        let computed = self.computed(table, row)?;
        let indexed = Indexed::new(row, &computed);
        let row_key = match primary_key(table, row) {
            Some(key) => {
                self.claim_row_key(table, indexed, &key).await?;
                Bytes::from(key)
            }
            None => {
                let id = match self.facts.fixed() {
                    Some(fixed) => fixed.row_ids(1)?,
                    None => self.database.counters().allocate_row_ids(1)?,
                };
                Bytes::copy_from_slice(&row_id_key(id))
            }
        };
        for index in secondary(table).filter(|index| index.unique) {
            self.claim_entry(table, index, indexed, &row_key).await?;
        }
        self.put_row(table, &row_key, row, || inserted(row))?;
        self.state.usage.of(table.oid).inserted += 1;
        insert_entries(self.engine, table, indexed, &row_key)?;
        self.note_referenced_keys(table, row, |_| true);
        self.queue_parent_checks(table, row, |_| true)?;
        self.queue_unique_checks(table, row, |_| true)?;
        Ok(row_key)
    }

    /// Locks the primary key of a row to come and sees that it is free. 23505; 40001 if the
    /// snapshot shows a row there, or one came and went since: it cannot be replaced by a new one,
    /// for the snapshot's index entries would lead to that.
    async fn claim_row_key(&mut self, table: &Arc<Table>, row: Indexed<'_>, key: &[u8]) -> Result<()> {
        let locks = self.is_shared(table);
        if locks {
            let request = self.engine.lock(table.tree, key, LockMode::NoKeyExclusive, WaitPolicy::SkipLocked);
            // Nobody is waited for who has only locked a row that is there.
            if self.interrupts.lock(request).await? == LockOutcome::Skipped && !self.has_row_at(table, key)? {
                self.lock_key(table.tree, key, LockMode::NoKeyExclusive).await?;
            }
        }
        if self.key_holder(table.tree, key)?.is_some() {
            let index = table.primary_key().ok_or_else(|| SqlError::internal("no primary key"))?;
            return Err(self.duplicate(table, index, row, table.tree, key)?);
        }
        if locks {
            self.recheck(table, key)?;
        }
        Ok(())
    }

    /// Locks a row's key in a unique index and sees that it is free. 23505; 40001 if the snapshot
    /// shows another row there: the new entry would hide that row from whoever goes by the index.
    async fn claim_entry(
        &mut self,
        table: &Arc<Table>,
        index: &Index,
        row: Indexed<'_>,
        row_key: &[u8],
    ) -> Result<()> {
        let Some(entry) = entry(index, row, row_key).filter(|entry| !entry.has_null) else { return Ok(()) };
        let mut holder = match self.is_shared(table) {
            true => self.lock_unique_key(table, index.tree, &entry.key, leaving(index)).await?,
            false => self.key_holder(index.tree, &entry.key)?,
        };
        // The answer that somebody has it must stay true if it is not the snapshot's.
        while let Some(other) = holder.clone().filter(|other| other != row_key)
            && self.is_shared(table)
            && self.is_newer(index.tree, &entry.key)?
        {
            self.lock_key(table.tree, &other, LockMode::Shared).await?;
            holder = self.key_holder(index.tree, &entry.key)?;
            if holder.as_ref() == Some(&other) {
                break;
            }
        }
        match holder {
            Some(holder) if holder != row_key => {
                Err(self.duplicate(table, index, row, index.tree, &entry.key)?)
            }
            None if self.shows_entry(index.tree, &entry.key)? => {
                let error = self.newer("update", index.tree, &entry.key);
                Err(error.with_table(&table.schema_name, &table.name))
            }
            _ => Ok(()),
        }
    }

    /// Whether a key that is free by now is not so in the snapshot. Under READ COMMITTED the next
    /// statement's is another one.
    fn shows_entry(&self, tree: u32, key: &[u8]) -> Result<bool> {
        if self.engine.isolation() == Isolation::ReadCommitted || self.engine.changed(tree, key)?.is_none() {
            return Ok(false);
        }
        let mut shown = self.engine.scan_unnoted(tree, Bound::Included(key), Bound::Included(key))?;
        Ok(shown.next()?.is_some())
    }

    /// Replaces a row that is locked FOR NO KEY UPDATE. Its new key, if the primary key
    /// changed. 23505.
    pub(crate) async fn update_row(
        &mut self,
        table: &Arc<Table>,
        row_key: &Bytes,
        before: &[Datum],
        after: &[Datum],
    ) -> Result<Bytes> {
        let (old_computed, new_computed) = (self.computed(table, before)?, self.computed(table, after)?);
        let old = Indexed::new(before, &old_computed);
        let new = Indexed::new(after, &new_computed);
        let moved = table.primary_key().is_some_and(|index| differs(index, old, new));
        let mut keys = table.indexes.iter().filter(|index| index.is_key());
        if keys.any(|index| differs(index, old, new)) && self.is_shared(table) {
            self.lock_key(table.tree, row_key, LockMode::Exclusive).await?;
        }
        self.note_referenced_keys(table, before, |index| differs(index, old, new));
        self.note_referenced_keys(table, after, |index| differs(index, old, new));
        let new_key = match primary_key(table, after).filter(|_| moved) {
            None => row_key.clone(),
            Some(key) => {
                self.claim_row_key(table, new, &key).await?;
                self.note_leaving(table, row_key);
                Bytes::from(key)
            }
        };
        for index in secondary(table) {
            let changed = differs(index, old, new);
            if changed && index.unique {
                self.claim_entry(table, index, new, row_key).await?;
                self.note_leaving(table, row_key);
            }
        }
        for index in secondary(table) {
            if !moved && !differs(index, old, new) {
                continue;
            }
            if let Some(gone) = entry(index, old, row_key) {
                self.engine.delete(index.tree, &gone.key)?;
            }
            if let Some(come) = entry(index, new, &new_key) {
                self.engine.put(index.tree, &come.key, come.value)?;
            }
        }
        if moved {
            self.note_moved(table, row_key, Some(&new_key))?;
            self.remove_row(table, row_key, before)?;
            self.put_row(table, &new_key, after, || inserted(after))?;
        } else {
            self.put_row(table, row_key, after, || updated(before, after))?;
        }
        self.state.usage.of(table.oid).updated += 1;
        if !table.foreign_keys.is_empty() {
            let changed = |places: &[usize]| {
                places.iter().any(|&place| !super::index_maintenance::same(&before[place], &after[place]))
            };
            self.queue_parent_checks(table, after, |key| changed(&key.columns))?;
        }
        self.queue_unique_checks(table, after, |index| {
            index.key_columns().any(|place| !super::index_maintenance::same(&before[place], &after[place]))
        })?;
        self.queue_child_checks(table, before, Some(after))?;
        Ok(new_key)
    }

    /// Notes for cursors that a row has another key by now, or is gone. 53200.
    #[inline]
    fn note_moved(&mut self, table: &Table, from: &[u8], to: Option<&Bytes>) -> Result<()> {
        if !self.facts.has_cursor_over(table.oid) {
            return Ok(());
        }
        self.state.moved.note(table.oid, Bytes::copy_from_slice(from), to.cloned());
        self.state.moved.pay(self.database.statement_budget())
    }

    /// Says to who finds a key of a locked row taken in a unique index, or its row key, that the
    /// key may become free (`lock_unique_key`, `has_row_at`).
    fn note_leaving(&self, table: &Table, row_key: &[u8]) {
        if self.is_shared(table) {
            self.engine.note_leaving(table.tree, row_key);
        }
    }

    /// Deletes a row that is locked FOR UPDATE.
    pub(crate) async fn delete_row(
        &mut self,
        table: &Arc<Table>,
        row_key: &[u8],
        row: &[Datum],
    ) -> Result<()> {
        self.note_referenced_keys(table, row, |_| true);
        if table.indexes.iter().any(|index| index.unique) {
            self.note_leaving(table, row_key);
        }
        let computed = self.computed(table, row)?;
        self.note_moved(table, row_key, None)?;
        self.remove_row(table, row_key, row)?;
        self.state.usage.of(table.oid).deleted += 1;
        let indexed = Indexed::new(row, &computed);
        super::index_maintenance::delete_entries(self.engine, table, indexed, row_key)?;
        self.queue_child_checks(table, row, None)
    }

    /// The row of this key as the newest commits and own writes leave it.
    pub(crate) fn latest_row(&self, table: &Table, row_key: &[u8]) -> Result<Option<Vec<Datum>>> {
        self.key_holder(table.tree, row_key)?.map(|bytes| decode(table, &bytes)).transpose()
    }
}

/// What whoever takes a key of this index from a row has locked the row against: who deletes it, or
/// changes a key that others may refer to, needs it alone.
pub(crate) fn leaving(index: &Index) -> LockMode {
    match index.is_key() {
        true => LockMode::KeyShared,
        false => LockMode::Shared,
    }
}

/// The keys that begin with `prefix`.
pub(crate) fn prefix_range(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let upper = crate::keys::next_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.to_vec()), upper)
}
