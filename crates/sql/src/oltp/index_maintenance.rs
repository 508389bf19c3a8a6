//! Row keys and index entries: made from a row, written and removed with it.
//!
//! The layout of entries is described with [`Index`](crate::catalog::Index).

use bytes::Bytes;
use cognate_engine::Transaction;

use super::indexed::Indexed;
use crate::catalog::{Index, Table};
use crate::error::Result;
use crate::keys;
use crate::types::{Datum, json};

/// The tree id under which an index's keys are noted as foreign keys refer to them.
pub(crate) fn key_tree(tree: u32) -> u32 {
    cognate_engine::presence_of(tree)
}

/// An index entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Bytes,
    /// An index column is NULL, and NULLs are distinct, so the entry never meets another one.
    pub(crate) has_null: bool,
}

/// Appends what an index's key has of a row. True if a part of it is NULL, and differs from other
/// NULLs.
pub(crate) fn columns_into(index: &Index, row: Indexed<'_>, out: &mut Vec<u8>) -> bool {
    let mut has_null = false;
    for column in &index.columns {
        let datum = row.value(column.key);
        has_null |= datum.is_null();
        keys::encode_entry_into(out, datum, column.order());
    }
    has_null && !index.nulls_not_distinct
}

/// The row's key by its primary key, or `None` if the table has none (it keeps the row id it was
/// given).
pub(crate) fn primary_key(table: &Table, row: &[Datum]) -> Option<Vec<u8>> {
    let index = table.primary_key()?;
    let mut key = Vec::with_capacity(index.columns.len() * 10);
    columns_into(index, Indexed::plain(row), &mut key);
    Some(key)
}

/// A row id as a row key.
pub(crate) fn row_id_key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

/// The row's entry in an index that has a tree of its own; none if the index's predicate leaves it
/// out.
pub(crate) fn entry(index: &Index, row: Indexed<'_>, row_key: &[u8]) -> Option<Entry> {
    if !row.is_in(index) {
        return None;
    }
    let mut key = Vec::with_capacity(index.columns.len() * 10 + row_key.len());
    let has_null = columns_into(index, row, &mut key);
    if index.unique {
        if has_null {
            key.extend_from_slice(row_key);
        }
        return Some(Entry { key, value: Bytes::copy_from_slice(row_key), has_null });
    }
    let columns = u32::try_from(key.len()).unwrap_or(u32::MAX);
    key.extend_from_slice(row_key);
    Some(Entry { key, value: Bytes::copy_from_slice(&columns.to_le_bytes()), has_null })
}

/// Whether two states of a row have different entries in an index, or only one of them has any.
pub(crate) fn differs(index: &Index, before: Indexed<'_>, after: Indexed<'_>) -> bool {
    let (was_in, is_in) = (before.is_in(index), after.is_in(index));
    was_in != is_in
        || is_in
            && index.columns.iter().any(|column| !same(before.value(column.key), after.value(column.key)))
}

/// Equal as keys are: NULL is NULL.
pub(crate) fn same(a: &Datum, b: &Datum) -> bool {
    match (a, b) {
        (Datum::Jsonb(a), Datum::Jsonb(b)) => json::are_equal(a.as_str(), b.as_str()),
        _ => a.compare(b).is_eq(),
    }
}

/// The indexes with trees of their own.
pub(crate) fn secondary(table: &Table) -> impl Iterator<Item = &Index> {
    table.indexes.iter().filter(|index| !index.is_clustered())
}

/// Writes a row's entries in all secondary indexes. Uniqueness was checked.
pub(crate) fn insert_entries(
    transaction: &mut Transaction,
    table: &Table,
    row: Indexed<'_>,
    row_key: &[u8],
) -> Result<()> {
    for index in secondary(table) {
        if let Some(entry) = entry(index, row, row_key) {
            transaction.put(index.tree, &entry.key, entry.value)?;
        }
    }
    Ok(())
}

/// Removes a row's entries from all secondary indexes.
pub(crate) fn delete_entries(
    transaction: &mut Transaction,
    table: &Table,
    row: Indexed<'_>,
    row_key: &[u8],
) -> Result<()> {
    for index in secondary(table) {
        if let Some(entry) = entry(index, row, row_key) {
            transaction.delete(index.tree, &entry.key)?;
        }
    }
    Ok(())
}
