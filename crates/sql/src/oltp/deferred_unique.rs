//! UNIQUE and PRIMARY KEY constraints that are DEFERRABLE: looked at when the statement has ended,
//! or the transaction.
//!
//! Rows with equal keys may stand beside each other until then, so the index is one that is not
//! unique, and nobody is refused while a row is written. The check then locks the key, so that of
//! two transactions that have made it one waits for the other, and counts the rows that have it in
//! the newest committed state with the own writes. A row that somebody else is about to take away
//! is waited for.
//!
//! ```text
//! t (place int UNIQUE DEFERRABLE)     rows 1, 2, 3
//! UPDATE t SET place = place + 1      1 becomes 2 beside the other 2, ...; at the end 2, 3, 4: nothing is equal
//! ```

use std::sync::Arc;

use cognate_engine::{Isolation, LockMode};

use super::constraint::unique_violation;
use super::foreign_key::Check;
use super::index_maintenance::columns_into;
use super::indexed::Indexed;
use crate::catalog::{Index, Oid, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::session::work::Work;
use crate::types::Datum;

impl Work<'_> {
    /// Queues the checks of a new or changed row's keys.
    pub(super) fn queue_unique_checks(
        &mut self,
        table: &Table,
        row: &[Datum],
        wanted: impl Fn(&Index) -> bool,
    ) -> Result<()> {
        for index in &table.indexes {
            if index.deferrable.is_none() || !wanted(index) {
                continue;
            }
            let values: Vec<Datum> = index.key_columns().map(|place| row[place].clone()).collect();
            if meets_none(index, &values) {
                continue;
            }
            let check = Check::Unique { table: table.oid, index: index.oid, values };
            self.keep_check(check, self.state.is_unique_deferred(index))?;
        }
        Ok(())
    }

    /// 23505 if more than one row has these values.
    pub(super) async fn check_unique(&mut self, table: Oid, index: Oid, values: &[Datum]) -> Result<()> {
        // Either may be gone by the end of the transaction.
        let Some(table) = self.catalog.table_by_oid(table).cloned() else { return Ok(()) };
        let Some(index) = table.index(index).cloned() else { return Ok(()) };
        let mut row = vec![Datum::Null; table.columns.len()];
        for (place, value) in index.key_columns().zip(values) {
            row[place] = value.clone();
        }
        let mut key = Vec::new();
        columns_into(&index, Indexed::plain(&row), &mut key);
        let is_shared = self.is_shared(&table);
        if is_shared {
            self.lock_key(index.tree, &key, LockMode::NoKeyExclusive).await?;
        }
        // For the certifier what a failure says is read for good: so it is looked at once more
        // under the locks, which then stay, whatever savepoint is rolled back to.
        let mut is_kept = self.engine.isolation() != Isolation::Serializable;
        loop {
            let holders = self.holders(&table, &index, values)?;
            if holders.len() < 2 {
                return Ok(());
            }
            let mut waited = false;
            for row_key in holders.iter().filter(|_| is_shared) {
                if self.engine.own(table.tree, row_key)?.is_none() {
                    waited |= self.lock_key(table.tree, row_key, LockMode::Shared).await?;
                }
            }
            if waited {
                continue;
            }
            if is_kept {
                let error = unique_violation(&table, &index, Indexed::plain(&row), self.format);
                return Err(self.tell_key(error, &table, &index));
            }
            is_kept = true;
        }
    }

    /// Row keys of the rows that have these values.
    pub(crate) fn holders(
        &mut self,
        table: &Arc<Table>,
        index: &Index,
        values: &[Datum],
    ) -> Result<Vec<bytes::Bytes>> {
        let places: Vec<usize> = index.key_columns().collect();
        self.rows_with(table, &places, values, false)
    }
}

/// Whether no row can be in the way of one with these values: one of them is NULL, and NULLs are
/// distinct.
pub(crate) fn meets_none(index: &Index, values: &[Datum]) -> bool {
    !index.nulls_not_distinct && values.iter().any(Datum::is_null)
}

/// 55000 for what only a constraint that is enforced at once can be used for.
pub(crate) fn not_at_once(what: &str) -> SqlError {
    SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, what)
}
