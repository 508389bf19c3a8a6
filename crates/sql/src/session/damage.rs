//! Naming damage: a statement met a row or a key that makes no sense, and its error is to say which
//! one, and where it lies.
//!
//! Who decodes a row does not know where it came from, and rightly so: it is read for every
//! statement. So the place is looked for afterwards, by reading the statement's tables once more.

use std::ops::Bound;

use super::{Planned, Session};
use crate::catalog::{Index, Table};
use crate::error::{SqlError, sqlstate};
use crate::function::Interrupt;
use crate::oltp::stored;
use crate::{keys, place};

/// Rows between two looks at whether the statement is to go on.
const ROWS: u64 = 1 << 12;

impl Session {
    /// The error with table, file and offset of the first damaged row of the plan's tables, or else
    /// of all others: what refers to a row is looked at, too, and not every statement has a plan.
    #[cold]
    pub(super) fn name_damage(&mut self, error: SqlError, planned: &Planned) -> SqlError {
        let is_damage = matches!(error.sqlstate, sqlstate::DATA_CORRUPTED | sqlstate::INDEX_CORRUPTED);
        if error.is_corrupt_file && self.database.engine().is_node() {
            self.database.nodes().note_damage(&error);
            return error.with_hint(place::remedy(self.database.engine()));
        }
        if !is_damage || error.detail.is_some() {
            return error;
        }
        let catalog = self.database.catalog();
        let is_own = |table: &Table| planned.tables.iter().any(|own| own.oid == table.oid);
        let others = catalog.tables().filter(|table| !is_own(table));
        let all: Vec<_> = planned.tables.iter().chain(others).cloned().collect();
        for table in all {
            if let Some((tree, key)) = self.find_damage(&table)
                && let Some(open) = &self.open
            {
                let error = error.with_table(&table.schema_name, &table.name);
                return place::located(self.database.engine(), tree, &key, open.engine.snapshot(), error);
            }
        }
        error
    }

    /// The tree and the key of the first damaged row or entry of a table.
    fn find_damage(&self, table: &Table) -> Option<(u32, Vec<u8>)> {
        let interrupts = self.interrupts();
        let engine = &self.open.as_ref()?.engine;
        let damaged = |tree: u32, is_sound: &dyn Fn(&[u8], &bytes::Bytes) -> bool| {
            let mut scan = engine.scan_unnoted(tree, Bound::Unbounded, Bound::Unbounded).ok()?;
            let mut seen = 0;
            while let Some((key, value)) = scan.next().ok()? {
                if !is_sound(&key, &value) {
                    return Some((tree, key.to_vec()));
                }
                seen += 1;
                if seen % ROWS == 0 && interrupts.check().is_err() {
                    return None;
                }
            }
            None
        };
        let row = damaged(table.tree, &|_, row| stored::decode(table, row).is_ok());
        let entry = |index: &Index| damaged(index.tree, &|key, _| is_entry(table, index, key));
        row.or_else(|| table.indexes.iter().filter(|index| index.tree != table.tree).find_map(entry))
    }
}

/// Whether a key has the columns of an index.
fn is_entry(table: &Table, index: &Index, key: &[u8]) -> bool {
    let mut rest = key;
    let mut columns = index.columns.iter();
    columns.all(|column| keys::skip(&mut rest, table.key_type(index, column.key), column.order()).is_ok())
}
