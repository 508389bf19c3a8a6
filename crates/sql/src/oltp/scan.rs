//! Reading a stored table: by key, by ranges of the table's tree, or by ranges of an index.

use std::ops::Bound;

use bytes::Bytes;

use super::Context;
use super::key_range::{self, Prefixes, Range};
use crate::error::Result;
use crate::expr::{Env, RowScan};
use crate::plan::{AccessKind, Scan};
use crate::types::Datum;

/// State of reading a table.
pub(crate) struct ScanState {
    stage: Stage,
    /// What is still to be read, the next one last.
    pending: Prefixes,
}

enum Stage {
    /// Nothing computed yet.
    Fresh,
    /// Single keys, from `pending`.
    Keys,
    /// Within a range.
    Range(Box<dyn RowScan>),
    /// Between two ranges.
    Between,
    Done,
}

impl ScanState {
    pub(crate) fn new() -> ScanState {
        ScanState { stage: Stage::Fresh, pending: Prefixes::new() }
    }

    /// Starts again, with the frame's values then.
    pub(crate) fn rewind(&mut self) {
        self.stage = Stage::Fresh;
    }

    /// Puts the next row that passes the filter into the frame.
    pub(crate) fn next(&mut self, scan: &Scan, context: Context<'_>, frame: &mut [Datum]) -> Result<bool> {
        loop {
            let Some((key, row)) = self.fetch(scan, context, frame)? else { return Ok(false) };
            context.execution.tick()?;
            load(scan, &key, &row, frame)?;
            if passes(scan, &context.env(frame))? {
                return Ok(true);
            }
        }
    }

    /// The next row's key and bytes.
    fn fetch(
        &mut self,
        scan: &Scan,
        context: Context<'_>,
        frame: &[Datum],
    ) -> Result<Option<(Bytes, Bytes)>> {
        let reader = context.execution.read.reader;
        loop {
            match &mut self.stage {
                Stage::Fresh => {
                    let mut prefixes = key_range::prefixes(&scan.access, &context.env(frame))?;
                    // Taken from the end.
                    if !scan.access.reverse {
                        prefixes.reverse();
                    }
                    self.pending = prefixes;
                    self.stage = if scan.access.unique { Stage::Keys } else { Stage::Between };
                }
                Stage::Keys => {
                    let Some(key) = self.pending.pop() else {
                        self.stage = Stage::Done;
                        continue;
                    };
                    let found = match &scan.access.kind {
                        AccessKind::Table => {
                            reader.get(scan.table.tree, &key)?.map(|row| (Bytes::from(key), row))
                        }
                        AccessKind::Index(index) => match reader.get(index.tree, &key)? {
                            Some(entry) => {
                                let row_key = index.row_key(&Bytes::from(key), &entry)?;
                                by_entry(scan, row_key, context)?
                            }
                            None => None,
                        },
                    };
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                Stage::Between => {
                    let Some(prefix) = self.pending.pop() else {
                        self.stage = Stage::Done;
                        continue;
                    };
                    let range = key_range::range(&prefix, scan.access.range.as_ref(), &context.env(frame))?;
                    if let Some(range) = range {
                        self.stage = Stage::Range(open(scan, &range, context)?);
                    }
                }
                Stage::Range(open) => match open.next()? {
                    Some((key, value)) => {
                        let found = match &scan.access.kind {
                            AccessKind::Table => Some((key, value)),
                            AccessKind::Index(index) => {
                                by_entry(scan, index.row_key(&key, &value)?, context)?
                            }
                        };
                        if found.is_some() {
                            return Ok(found);
                        }
                    }
                    None => self.stage = Stage::Between,
                },
                Stage::Done => return Ok(None),
            }
        }
    }
}

fn open(scan: &Scan, range: &Range, context: Context<'_>) -> Result<Box<dyn RowScan>> {
    let tree = match &scan.access.kind {
        AccessKind::Table => scan.table.tree,
        AccessKind::Index(index) => index.tree,
    };
    let lower =
        if range.lower.is_empty() { Bound::Unbounded } else { Bound::Included(range.lower.as_slice()) };
    let upper = match &range.upper {
        Some(upper) => Bound::Excluded(upper.as_slice()),
        None => Bound::Unbounded,
    };
    context.execution.read.reader.scan(tree, lower, upper, scan.access.reverse)
}

/// The row an index entry leads to; none if the transaction itself has deleted it since the scan was opened.
fn by_entry(scan: &Scan, row_key: Bytes, context: Context<'_>) -> Result<Option<(Bytes, Bytes)>> {
    let row = context.execution.read.reader.get(scan.table.tree, &row_key)?;
    Ok(row.map(|row| (row_key, row)))
}

/// Reads the needed columns of a row into the frame.
#[inline]
pub(crate) fn load(scan: &Scan, key: &Bytes, row: &Bytes, frame: &mut [Datum]) -> Result<()> {
    if !scan.columns.is_empty() {
        let stored = scan.table.layout().open(row)?;
        for column in &scan.columns {
            frame[column.slot] = match stored.get(column.column)? {
                Some(value) => value,
                None => column.missing.clone(),
            };
        }
    }
    if let Some(slot) = scan.key_slot {
        frame[slot] = Datum::Bytea(key.clone());
    }
    Ok(())
}

fn passes(scan: &Scan, env: &Env<'_>) -> Result<bool> {
    for condition in &scan.filter {
        if !condition.test(env)? {
            return Ok(false);
        }
    }
    Ok(true)
}
