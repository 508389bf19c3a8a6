//! Sorting.
//!
//! Rows in memory are sorted by `merge_sort`, which can be left half-way. What moves is not the row
//! but its place and the first bytes of its keys in the form that orders by bytes (`keys`): they
//! decide most comparisons.
//!
//! Rows that do not fit into memory go to disk as a sorted run (`sorter`); in the end all runs are
//! merged.

use std::cmp::Ordering;

use super::Context;
use super::node::{NodeState, evaluate_limit};
use super::sorter::Sorter;
use crate::bind::SortKey;
use crate::error::Result;
use crate::expr::Expr;
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

/// The first bytes of a row's keys in the form that orders by bytes, as a number. If those of two
/// rows differ, so do the rows, in that order. `key` is a place to work in.
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
