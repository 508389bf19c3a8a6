//! Sorting, in memory.

use std::cmp::Ordering;

use super::Context;
use super::memory::row_bytes;
use super::node::{NodeState, evaluate_limit};
use crate::bind::SortKey;
use crate::error::Result;
use crate::expr::Expr;
use crate::plan::Node;
use crate::types::Datum;

/// Orders two values as a sort key wants.
pub(crate) fn compare_keys(a: &Datum, b: &Datum, descending: bool, nulls_first: bool) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) => {
            if nulls_first {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (false, true) => {
            if nulls_first {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
        (false, false) => {
            if descending {
                b.compare(a)
            } else {
                a.compare(b)
            }
        }
    }
}

pub(crate) fn compare_rows(a: &[Datum], b: &[Datum], keys: &[SortKey]) -> Ordering {
    for key in keys {
        match compare_keys(&a[key.column], &b[key.column], key.descending, key.nulls_first) {
            Ordering::Equal => {}
            decided => return decided,
        }
    }
    Ordering::Equal
}

/// State of a sort.
pub(crate) struct SortState {
    input: NodeState,
    rows: std::vec::IntoIter<Vec<Datum>>,
    built: bool,
    bytes: usize,
}

impl SortState {
    pub(crate) fn new(input: &Node) -> SortState {
        SortState { input: NodeState::new(input), rows: vec![].into_iter(), built: false, bytes: 0 }
    }

    pub(crate) fn release(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        self.input.release(context);
    }

    /// The number of rows that can come out: LIMIT and OFFSET together.
    fn bound(limit: Option<&(Expr, Option<Expr>)>, context: Context<'_>) -> Result<Option<usize>> {
        let Some((limit, offset)) = limit else { return Ok(None) };
        let Some(limit) = evaluate_limit(limit, "LIMIT", context)? else { return Ok(None) };
        let offset = match offset {
            Some(offset) => evaluate_limit(offset, "OFFSET", context)?.unwrap_or(0),
            None => 0,
        };
        Ok(usize::try_from(limit.saturating_add(offset)).ok())
    }

    fn build(
        &mut self,
        input: &Node,
        keys: &[SortKey],
        limit: Option<&(Expr, Option<Expr>)>,
        context: Context<'_>,
    ) -> Result<()> {
        let bound = Self::bound(limit, context)?;
        let mut rows: Vec<Vec<Datum>> = vec![];
        let mut row = vec![];
        while self.input.next(input, context, &mut row)? {
            let bytes = row_bytes(&row);
            context.execution.reserve(bytes)?;
            self.bytes += bytes;
            rows.push(std::mem::take(&mut row));
            // Twice the rows wanted are there: the worse half can go.
            if let Some(bound) = bound
                && rows.len() >= bound.saturating_mul(2).max(1024)
            {
                rows.sort_by(|a, b| compare_rows(a, b, keys));
                for dropped in rows.drain(bound..) {
                    let bytes = row_bytes(&dropped);
                    context.execution.runtime.release(bytes);
                    self.bytes -= bytes;
                }
            }
        }
        rows.sort_by(|a, b| compare_rows(a, b, keys));
        self.rows = rows.into_iter();
        self.built = true;
        Ok(())
    }

    pub(crate) fn next(
        &mut self,
        input: &Node,
        keys: &[SortKey],
        limit: Option<&(Expr, Option<Expr>)>,
        context: Context<'_>,
        out: &mut Vec<Datum>,
    ) -> Result<bool> {
        if !self.built {
            self.build(input, keys, limit, context)?;
        }
        match self.rows.next() {
            Some(row) => {
                *out = row;
                Ok(true)
            }
            None => Ok(false),
        }
    }
}
