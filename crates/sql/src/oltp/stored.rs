//! Stored rows as values, and walks over all rows of a table.

use std::ops::Bound;

use bytes::Bytes;
use cognate_engine::{Access, Database, Isolation, Scan, Transaction};

use crate::catalog::Table;
use crate::error::Result;
use crate::types::Datum;

/// All columns of a stored row by place; those it was stored without have their missing value.
pub(crate) fn decode(table: &Table, bytes: &Bytes) -> Result<Vec<Datum>> {
    let row = table.layout().open(bytes)?;
    // In frames the row's key stands behind its columns.
    let mut datums = Vec::with_capacity(table.columns.len() + 1);
    for (place, column) in table.columns.iter().enumerate() {
        datums.push(row.get(place)?.unwrap_or_else(|| column.missing.clone()));
    }
    Ok(datums)
}

/// The columns that `wanted` says, by place; the others are NULL.
pub(crate) fn decode_some(table: &Table, bytes: &Bytes, wanted: &[bool]) -> Result<Vec<Datum>> {
    let row = table.layout().open(bytes)?;
    let mut datums = Vec::with_capacity(table.columns.len());
    for (place, column) in table.columns.iter().enumerate() {
        datums.push(match wanted[place] {
            true => row.get(place)?.unwrap_or_else(|| column.missing.clone()),
            false => Datum::Null,
        });
    }
    Ok(datums)
}

/// A row as it is stored.
pub(crate) fn encode(table: &Table, row: &[Datum]) -> Result<Bytes> {
    table.layout().encode(row)
}

/// The next entry of a scan.
type Ahead = Option<(Bytes, Bytes)>;

/// Every entry of a part of a tree as the newest commits and the own writes leave it, whatever the
/// transaction's snapshot is: for checks and rewrites that must miss nothing. Whoever calls it
/// holds a lock that keeps the entries of interest as they are.
pub(crate) struct LatestScan {
    tree: u32,
    /// At a snapshot of this moment, without own writes. A tree that the transaction made needs
    /// none.
    newest: Option<Scan>,
    /// At the transaction's snapshot, with own writes: only those are taken from it. Only if there
    /// may be any.
    own: Option<Scan>,
    /// The transaction made the tree: all entries are own ones.
    created: bool,
    ahead: (Ahead, Ahead),
}

impl LatestScan {
    /// A scan between two bounds, ascending.
    pub(crate) fn open(
        database: &Database,
        transaction: &mut Transaction,
        tree: u32,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Result<LatestScan> {
        let created = transaction.has_created(tree);
        let newest = match created {
            true => None,
            false => {
                let fresh = database.begin(Isolation::Snapshot, Access::ReadWrite);
                transaction.rest_on(fresh.snapshot());
                transaction.note_latest_range(tree, (lower, upper), fresh.snapshot())?;
                Some(fresh.scan(tree, lower, upper, false)?)
            }
        };
        let own = match transaction.has_written(tree) {
            true => Some(transaction.scan_unnoted(tree, lower, upper)?),
            false => None,
        };
        let mut scan = LatestScan { tree, newest, own, created, ahead: (None, None) };
        scan.advance_newest(transaction)?;
        scan.advance_own(transaction)?;
        Ok(scan)
    }

    fn advance_newest(&mut self, transaction: &Transaction) -> Result<()> {
        let Some(newest) = &mut self.newest else { return Ok(()) };
        self.ahead.0 = loop {
            match newest.next()? {
                Some((key, _)) if transaction.own(self.tree, &key)?.is_some() => {}
                other => break other,
            }
        };
        Ok(())
    }

    fn advance_own(&mut self, transaction: &Transaction) -> Result<()> {
        let Some(own) = &mut self.own else { return Ok(()) };
        self.ahead.1 = loop {
            match own.next()? {
                Some((key, _)) if !self.created && transaction.own(self.tree, &key)?.is_none() => {}
                other => break other,
            }
        };
        Ok(())
    }

    /// The next entry.
    pub(crate) fn next(&mut self, transaction: &Transaction) -> Result<Option<(Bytes, Bytes)>> {
        let own_first = match &self.ahead {
            (Some((newest, _)), Some((own, _))) => own < newest,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if own_first {
            let entry = self.ahead.1.take();
            self.advance_own(transaction)?;
            Ok(entry)
        } else {
            let entry = self.ahead.0.take();
            if entry.is_some() {
                self.advance_newest(transaction)?;
            }
            Ok(entry)
        }
    }
}
