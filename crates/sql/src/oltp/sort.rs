//! Sorting.
//!
//! Rows in memory are sorted in runs of [`RUN_ROWS`], and runs are merged two by two. A comparison may cost anything
//! (two long texts), and the standard library's sort cannot be left half-way; so each run and each row of a
//! merge asks whether to stop.
//!
//! ```text
//! d b | c a | f e        rows
//! b d | a c | e f        runs, each sorted
//! a b c d   | e f        first pass
//! a b c d e f            second pass
//! ```
//!
//! What moves is not the row but its place and the first bytes of its keys in the form that orders by bytes (`keys`): they decide most comparisons.
//!
//! Rows that do not fit into memory go to disk as a sorted run (`sorter`); in the end all runs are merged.

use std::cmp::Ordering;

use super::Context;
use super::node::{NodeState, evaluate_limit};
use super::sorter::Sorter;
use crate::bind::SortKey;
use crate::error::Result;
use crate::expr::{Execution, Expr};
use crate::keys::{self, KeyOrder};
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

/// The first bytes of a row's keys in the form that orders by bytes, as a number. If those of two rows differ, so do the rows, in that order.
/// `key` is a place to work in.
pub(crate) fn key_prefix(row: &[Datum], keys: &[SortKey], key: &mut Vec<u8>) -> u128 {
    key.clear();
    for part in keys {
        let order = KeyOrder { descending: part.descending, nulls_first: part.nulls_first };
        keys::encode_into(key, &row[part.column], order);
        if key.len() >= size_of::<u128>() {
            break;
        }
    }
    let mut prefix = [0; size_of::<u128>()];
    let length = key.len().min(prefix.len());
    prefix[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(prefix)
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
    let mut merged = Vec::new();
    while length < rows.len() {
        merged.clear();
        merged.reserve_exact(rows.len());
        for pair in rows.chunks_mut(2 * length) {
            let (left, right) = pair.split_at_mut(length.min(pair.len()));
            merge(left, right, &mut merged, execution, &compare)?;
        }
        std::mem::swap(rows, &mut merged);
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
    sorter: Sorter,
    built: bool,
}

impl SortState {
    pub(crate) fn new(input: &Node) -> SortState {
        SortState { input: NodeState::new(input), sorter: Sorter::default(), built: false }
    }

    pub(crate) fn release(&mut self, context: Context<'_>) {
        self.sorter.release(context);
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

    pub(crate) fn next(
        &mut self,
        input: &Node,
        keys: &[SortKey],
        limit: Option<&(Expr, Option<Expr>)>,
        context: Context<'_>,
        out: &mut Vec<Datum>,
    ) -> Result<bool> {
        if !self.built {
            let bound = Self::bound(limit, context)?;
            let mut row = vec![];
            while self.input.next(input, context, &mut row)? {
                self.sorter.push(std::mem::take(&mut row), keys, bound, context)?;
            }
            self.sorter.finish(keys, context)?;
            self.built = true;
        }
        self.sorter.next(keys, context, out)
    }
}
