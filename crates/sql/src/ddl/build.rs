//! Filling an index, and rewriting a table: the caller holds it exclusively. Who only looks at all
//! rows holds it in a mode that keeps writers out.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use cognate_engine::Isolation;

use crate::catalog::{Index, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::Interrupt;
use crate::oltp::constraint::key_detail;
use crate::oltp::deferred_unique::meets_none;
use crate::oltp::index_maintenance::{entry, primary_key, row_id_key, secondary};
use crate::oltp::indexed::Indexed;
use crate::oltp::stored::{LatestScan, decode, decode_some, encode};
use crate::session::work::Work;
use crate::types::{Datum, FormatContext};

impl Work<'_> {
    /// Calls `action` with each row's key and stored form, as the newest commits and the own writes
    /// leave them.
    fn for_each_stored(
        &mut self,
        table: &Table,
        mut action: impl FnMut(&mut Work<'_>, &Bytes, Bytes) -> Result<()>,
    ) -> Result<()> {
        let (from, to) = (Bound::Unbounded, Bound::Unbounded);
        let mut scan = LatestScan::open(self.database.engine(), self.engine, table.tree, from, to)?;
        let mut rows = 0u32;
        while let Some((key, value)) = scan.next(self.engine)? {
            rows = rows.wrapping_add(1);
            if rows & 0xff == 0 {
                self.interrupts.check()?;
            }
            action(self, &key, value)?;
        }
        Ok(())
    }

    /// The same with the row's values.
    pub(crate) fn for_each_row(
        &mut self,
        table: &Table,
        mut action: impl FnMut(&mut Work<'_>, &Bytes, Vec<Datum>) -> Result<()>,
    ) -> Result<()> {
        self.for_each_stored(table, |work, key, value| action(work, key, decode(table, &value)?))
    }

    /// Fills a new index of a table with the rows there are. 23505 if it is unique and they are
    /// not.
    pub(crate) fn build_index(&mut self, table: &Table, index: &Index) -> Result<()> {
        let wanted = indexed(table, std::iter::once(index));
        self.for_each_stored(table, |work, row_key, value| {
            let row = decode_some(table, &value, &wanted)?;
            let computed = work.computed_by(table, index, &row)?;
            work.add_entry(table, index, Indexed::new(&row, &computed), row_key)
        })
    }

    /// 23505 if rows have equal keys in the index of a constraint that is DEFERRABLE.
    pub(crate) fn validate_unique(&mut self, table: &Arc<Table>, index: &Index) -> Result<()> {
        let shared = Arc::clone(table);
        self.for_each_row(table, |work, _, row| {
            let values: Vec<Datum> = index.key_columns().map(|place| row[place].clone()).collect();
            if meets_none(index, &values) || work.holders(&shared, index, &values)?.len() < 2 {
                return Ok(());
            }
            Err(not_unique(&shared, index, Indexed::plain(&row), work.format))
        })
    }

    /// Adds a row's entry to an index that is being built. 23505.
    fn add_entry(&mut self, table: &Table, index: &Index, row: Indexed<'_>, row_key: &[u8]) -> Result<()> {
        let Some(entry) = entry(index, row, row_key) else { return Ok(()) };
        if index.unique && !entry.has_null && self.has_own(index.tree, &entry.key)? {
            return Err(not_unique(table, index, row, self.format));
        }
        Ok(self.engine.put(index.tree, &entry.key, entry.value)?)
    }

    fn has_own(&self, tree: u32, key: &[u8]) -> Result<bool> {
        Ok(self.engine.own(tree, key)?.flatten().is_some())
    }

    /// 40001 if the newest rows, which are about to be written anew, are not those that the
    /// snapshot shows. In trees of its own a transaction would see what its snapshot does not show,
    /// and overwrite without a lock what it has never seen. At SERIALIZABLE the scan is noted as
    /// one of the newest rows, and READ COMMITTED shows these to the next statement anyway.
    fn check_none_newer(&mut self, table: &Table) -> Result<()> {
        if self.engine.isolation() != Isolation::Snapshot || !self.is_shared(table) {
            return Ok(());
        }
        if self.state.is_first {
            // It has waited for the table, and read nothing yet.
            self.engine.refresh_snapshot();
            return Ok(());
        }
        self.check_not_moved(table)?;
        // Own writes show through both.
        let (from, to) = (Bound::Unbounded, Bound::Unbounded);
        let mut shown = self.engine.scan_unnoted(table.tree, from, to)?;
        let mut newest = LatestScan::open(self.database.engine(), self.engine, table.tree, from, to)?;
        let mut rows = 0u32;
        loop {
            rows = rows.wrapping_add(1);
            if rows & 0xff == 0 {
                self.interrupts.check()?;
            }
            let (what, key) = match (shown.next()?, newest.next(self.engine)?) {
                (None, None) => return Ok(()),
                (Some(before), Some(now)) if before == now => continue,
                (Some((before, _)), Some((now, _))) if before < now => ("delete", before),
                (Some((before, _)), None) => ("delete", before),
                (_, Some((now, _))) => ("update", now),
            };
            let error = self.newer(what, table.tree, &key);
            return Err(error.with_table(&table.schema_name, &table.name));
        }
    }

    /// Moves the rows of `before` into the trees of `after`, which are fresh, changed by `change`.
    /// `after` may have another primary key, other column types, other indexes. 40001.
    pub(crate) fn rewrite_table(
        &mut self,
        before: &Table,
        after: &Table,
        mut change: impl FnMut(&mut Work<'_>, Vec<Datum>) -> Result<Vec<Datum>>,
    ) -> Result<()> {
        self.check_none_newer(before)?;
        self.for_each_row(before, |work, old_key, row| {
            let row = change(work, row)?;
            let stored = encode(after, &row)?;
            work.move_row((before, after), old_key, &row, stored)
        })
    }

    /// The same for rows that stay as they are, under other keys. `check` sees the columns of
    /// `after`'s keys and indexes only.
    pub(crate) fn rekey_table(
        &mut self,
        before: &Table,
        after: &Table,
        check: impl Fn(&[Datum]) -> Result<()>,
    ) -> Result<()> {
        self.check_none_newer(before)?;
        let wanted = indexed(after, after.indexes.iter());
        self.for_each_stored(before, |work, old_key, stored| {
            let row = decode_some(before, &stored, &wanted)?;
            check(&row)?;
            work.move_row((before, after), old_key, &row, stored)
        })
    }

    fn move_row(
        &mut self,
        (before, after): (&Table, &Table),
        old_key: &Bytes,
        row: &[Datum],
        stored: Bytes,
    ) -> Result<()> {
        let key = match (after.primary_key(), before.primary_key()) {
            (Some(_), _) => primary_key(after, row).map(Bytes::from).unwrap_or_default(),
            (None, None) => old_key.clone(),
            (None, Some(_)) => {
                let id = self.database.counters().allocate_row_ids(1)?;
                Bytes::copy_from_slice(&row_id_key(id))
            }
        };
        if let Some(index) = after.primary_key()
            && self.has_own(after.tree, &key)?
        {
            return Err(not_unique(after, index, Indexed::plain(row), self.format));
        }
        self.engine.put(after.tree, &key, stored)?;
        let computed = self.computed(after, row)?;
        let row = Indexed::new(row, &computed);
        secondary(after).try_for_each(|index| self.add_entry(after, index, row, &key))
    }

    /// Gives a table and all its indexes fresh trees; the old ones go when the transaction commits.
    pub(crate) fn replace_trees(&mut self, table: &mut Table) {
        self.drop_trees(table);
        table.tree = self.allocate_tree();
        for index in &mut table.indexes {
            index.tree = if index.is_clustered() { table.tree } else { self.allocate_tree() };
        }
    }

    /// The trees of a table and its indexes go when the transaction commits.
    pub(crate) fn drop_trees(&mut self, table: &Table) {
        self.engine.drop_tree(table.tree);
        for index in secondary(table) {
            self.engine.drop_tree(index.tree);
        }
    }
}

/// By place: whether a column is in one of the indexes.
fn indexed<'a>(table: &Table, indexes: impl Iterator<Item = &'a Index>) -> Vec<bool> {
    let mut wanted = vec![false; table.columns.len()];
    indexes.flat_map(Index::made_from).for_each(|column| wanted[column] = true);
    wanted
}

fn not_unique(table: &Table, index: &Index, row: Indexed<'_>, format: &FormatContext) -> SqlError {
    SqlError::new(sqlstate::UNIQUE_VIOLATION, format!("could not create unique index \"{}\"", index.name))
        .with_detail(format!("{} is duplicated.", key_detail(table, index, row, format)))
        .with_table(&table.schema_name, &table.name)
        .with_constraint(&index.name)
}
