//! Reading everything that is stored: every row and every index entry, as the catalog names them.
//!
//! It is done with a database that has just been restored. A row is taken apart, so that each of
//! its values is looked at; an entry must lead to a row; and an index has as many entries as its
//! table has rows, or at most as many if it has a predicate. What makes no sense is named with its
//! table, and with the file and the offset where it lies.

use std::ops::Bound;

use cognate_engine::{Access, Database, Isolation, Transaction};

use super::SqlDatabase;
use crate::catalog::{Index, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::oltp::index_maintenance::secondary;
use crate::oltp::stored::decode;
use crate::place;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadBack {
    /// Tables.
    pub tables: u64,
    /// Their rows.
    pub rows: u64,
    /// Indexes that are not their tables themselves.
    pub indexes: u64,
    /// Their entries.
    pub entries: u64,
}

impl SqlDatabase {
    /// Reads every table and every index of all databases. Blocks.
    ///
    /// # Errors
    /// XX001 for a row and XX002 for an index that makes no sense, with file and offset of the row
    /// or the entry; whatever the storage reports.
    pub fn read_back(&self) -> Result<ReadBack> {
        let transaction = self.engine().begin(Isolation::Snapshot, Access::ReadWrite);
        let mut read = ReadBack::default();
        let catalogs: Vec<_> = self.all().iter().map(SqlDatabase::catalog).collect();
        for table in catalogs.iter().flat_map(|catalog| catalog.tables()) {
            let rows = read_rows(self.engine(), &transaction, table)?;
            (read.tables, read.rows) = (read.tables + 1, read.rows + rows);
            for index in secondary(table) {
                let entries = read_entries(self.engine(), &transaction, table, index)?;
                (read.indexes, read.entries) = (read.indexes + 1, read.entries + entries);
                if entries > rows || (entries < rows && index.predicate.is_none()) {
                    let (index, table) = (&index.name, &table.name);
                    let what = format!("has {entries} entries, table \"{table}\" {rows} rows");
                    return Err(corrupted(format!("index \"{index}\" {what}")));
                }
            }
        }
        Ok(read)
    }
}

fn read_rows(engine: &Database, transaction: &Transaction, table: &Table) -> Result<u64> {
    let mut rows = 0;
    let mut scan = transaction.scan_unnoted(table.tree, Bound::Unbounded, Bound::Unbounded)?;
    while let Some((key, row)) = scan.next()? {
        if let Err(error) = decode(table, &row) {
            let error = error.with_table(&table.schema_name, &table.name);
            return Err(place::located(engine, table.tree, &key, transaction.snapshot(), error));
        }
        rows += 1;
    }
    Ok(rows)
}

fn read_entries(engine: &Database, transaction: &Transaction, table: &Table, index: &Index) -> Result<u64> {
    let mut entries = 0;
    let mut scan = transaction.scan_unnoted(index.tree, Bound::Unbounded, Bound::Unbounded)?;
    while let Some((key, value)) = scan.next()? {
        let damaged = |error: SqlError| {
            let error = error.with_table(&table.schema_name, &table.name);
            place::located(engine, index.tree, &key, transaction.snapshot(), error)
        };
        let row = index.row_key(&key, &value).map_err(damaged)?;
        if transaction.get(table.tree, row)?.is_none() {
            let (index, table) = (&index.name, &table.name);
            let what = format!("index \"{index}\" has an entry for a row that table \"{table}\" has not");
            return Err(damaged(corrupted(what)));
        }
        entries += 1;
    }
    Ok(entries)
}

fn corrupted(message: String) -> SqlError {
    SqlError::new(sqlstate::INDEX_CORRUPTED, message)
}
