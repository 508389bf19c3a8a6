//! Sorting, in memory.
//!
//! Rows are sorted in runs of [`RUN_ROWS`], and runs are merged two by two. A comparison may cost anything
//! (two long texts), and the standard library's sort cannot be left half-way; so each run and each row of a
//! merge asks whether to stop.
//!
//! ```text
//! d b | c a | f e        rows
//! b d | a c | e f        runs, each sorted
//! a b c d   | e f        first pass
//! a b c d e f            second pass
//! ```

use std::cmp::Ordering;

use super::Context;
use super::memory::row_bytes;
use super::node::{NodeState, evaluate_limit};
use crate::bind::SortKey;
use crate::error::Result;
use crate::expr::{Execution, Expr};
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

/// Rows of a run: its sort is the longest step without a question whether to stop.
const RUN_ROWS: usize = 1024;

/// Sorts `rows`; what compares equal keeps its order. After an error some of them are gone.
pub(crate) fn sort_rows<T: Default>(
    rows: &mut Vec<T>,
    execution: Execution<'_>,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Result<()> {
    for run in rows.chunks_mut(RUN_ROWS) {
        execution.tick()?;
        run.sort_by(&compare);
    }
    let mut length = RUN_ROWS;
    while length < rows.len() {
        let mut merged = Vec::with_capacity(rows.len());
        for pair in rows.chunks_mut(2 * length) {
            let (left, right) = pair.split_at_mut(length.min(pair.len()));
            merge(left, right, &mut merged, execution, &compare)?;
        }
        *rows = merged;
        length *= 2;
    }
    Ok(())
}

/// Moves two sorted runs to the end of `merged`, in order.
fn merge<T: Default>(
    left: &mut [T],
    right: &mut [T],
    merged: &mut Vec<T>,
    execution: Execution<'_>,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Result<()> {
    let (mut at_left, mut at_right) = (0, 0);
    // Runs of rows that came in order need no further comparison.
    let apart = match (left.last(), right.first()) {
        (Some(last), Some(first)) => compare(last, first).is_le(),
        _ => true,
    };
    while !apart && at_left < left.len() && at_right < right.len() {
        execution.tick()?;
        let next = if compare(&left[at_left], &right[at_right]).is_le() {
            at_left += 1;
            &mut left[at_left - 1]
        } else {
            at_right += 1;
            &mut right[at_right - 1]
        };
        merged.push(std::mem::take(next));
    }
    merged.extend(left[at_left..].iter_mut().map(std::mem::take));
    merged.extend(right[at_right..].iter_mut().map(std::mem::take));
    Ok(())
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
                sort_rows(&mut rows, context.execution, |a, b| compare_rows(a, b, keys))?;
                for dropped in rows.drain(bound..) {
                    let bytes = row_bytes(&dropped);
                    context.execution.runtime.release(bytes);
                    self.bytes -= bytes;
                }
            }
        }
        sort_rows(&mut rows, context.execution, |a, b| compare_rows(a, b, keys))?;
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
