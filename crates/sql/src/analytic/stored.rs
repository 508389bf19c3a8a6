//! The rows of a stored table, by ranges of its keys or of an index.

use std::sync::Arc;

use cognate_engine::Lent;

use crate::bind::RowCounts;
use crate::catalog::Table;
use crate::error::Result;
use crate::expr::{Reader, RowScan};
use crate::oltp::key_range::{self, Range};
use crate::plan::{Access, AccessKind};

/// What queries read: the data of one snapshot with the transaction's own writes, from any thread; and how much there is.
pub trait Source: Reader + RowCounts + Send + Sync {}

impl<T: Reader + RowCounts + Send + Sync> Source for T {}

/// Reads the rows that an access finds. Nothing is opened, nor noted as read, before it is asked for.
pub(super) struct StoredRows {
    source: Arc<dyn Source>,
    table: Arc<Table>,
    kind: AccessKind,
    /// What is still to be read, the next one last.
    pending: Vec<Range>,
    open: Option<Box<dyn RowScan>>,
}

impl StoredRows {
    pub(super) fn new(source: Arc<dyn Source>, table: Arc<Table>, access: &Access) -> Result<StoredRows> {
        let mut pending = key_range::constant_ranges(access)?;
        pending.reverse();
        Ok(StoredRows { source, table, kind: access.kind.clone(), pending, open: None })
    }

    /// Lends `read` the next row; false at the end.
    pub(super) fn next(&mut self, read: &mut dyn FnMut(Lent<'_>)) -> Result<bool> {
        loop {
            let Some(open) = &mut self.open else {
                let Some(range) = self.pending.pop() else { return Ok(false) };
                self.open = Some(self.scan(&range)?);
                continue;
            };
            let entry = if open.advance()? { open.entry() } else { None };
            let Some((key, value)) = entry else {
                self.open = None;
                continue;
            };
            match &self.kind {
                AccessKind::Table => {
                    read(value);
                    return Ok(true);
                }
                AccessKind::Index(index) => {
                    if self.source.lend(self.table.tree, index.row_key(key, &value)?, read)? {
                        return Ok(true);
                    }
                }
            }
        }
    }

    fn scan(&self, range: &Range) -> Result<Box<dyn RowScan>> {
        let tree = match &self.kind {
            AccessKind::Table => self.table.tree,
            AccessKind::Index(index) => index.tree,
        };
        let (lower, upper) = range.bounds();
        self.source.scan(tree, lower, upper, false)
    }
}
