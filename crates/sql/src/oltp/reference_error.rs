//! How a violation of a foreign key reads: 23503, with the tables, the constraint and the key.

use crate::catalog::{ForeignKey, Table};
use crate::error::{SqlError, sqlstate};

/// 23503 for a row that refers to none.
#[cold]
pub(crate) fn no_parent(table: &Table, parent: &Table, key: &ForeignKey, detail: &str) -> SqlError {
    violation(table, key).with_detail(format!("{detail} is not present in table \"{}\".", parent.name))
}

/// 23503 for a row that refers to a key by a part of it.
#[cold]
pub(crate) fn mixed_nulls(table: &Table, key: &ForeignKey) -> SqlError {
    violation(table, key).with_detail("MATCH FULL does not allow mixing of null and nonnull key values.")
}

fn violation(table: &Table, key: &ForeignKey) -> SqlError {
    SqlError::new(
        sqlstate::FOREIGN_KEY_VIOLATION,
        format!(
            "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
            table.name, key.name
        ),
    )
    .with_table(&table.schema_name, &table.name)
    .with_constraint(&key.name)
}

/// 23503 for a row that is referred to.
#[cold]
pub(crate) fn still_referenced(parent: &Table, child: &Table, key: &ForeignKey, detail: &str) -> SqlError {
    SqlError::new(
        sqlstate::FOREIGN_KEY_VIOLATION,
        format!(
            "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
            parent.name, key.name, child.name
        ),
    )
    .with_detail(format!("{detail} is still referenced from table \"{}\".", child.name))
    .with_table(&child.schema_name, &child.name)
    .with_constraint(&key.name)
}
