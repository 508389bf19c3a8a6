//! Sorting: all rows, or only the first few of them in a bounded heap.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{Context, Row, row_bytes};
use crate::bind::SortKey;
use crate::error::Result;
use crate::types::Datum;

/// Most rows that are kept in a heap rather than sorted all.
const HEAP_ROWS: u64 = 10_000;

/// Compares two values under a sort key.
pub(crate) fn compare_values(a: &Datum, b: &Datum, descending: bool, nulls_first: bool) -> Ordering {
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

fn compare(keys: &[SortKey], a: &[Datum], b: &[Datum]) -> Ordering {
    for key in keys {
        let order = compare_values(&a[key.column], &b[key.column], key.descending, key.nulls_first);
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

/// Collects rows and gives them back sorted. Equal rows stay in the order they came.
pub(crate) struct Sorter<'a> {
    keys: &'a [SortKey],
    wanted: Option<usize>,
    rows: Vec<Row>,
    heap: BinaryHeap<Ranked<'a>>,
    number: u64,
    held: usize,
}

struct Ranked<'a> {
    keys: &'a [SortKey],
    row: Row,
    number: u64,
}

impl Ord for Ranked<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.keys, &self.row, &other.row).then(self.number.cmp(&other.number))
    }
}
impl PartialOrd for Ranked<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Ranked<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Ranked<'_> {}

impl<'a> Sorter<'a> {
    /// A sorter that needs to give back only the first `wanted` rows, if that is known.
    pub(crate) fn new(keys: &'a [SortKey], wanted: Option<u64>) -> Sorter<'a> {
        let wanted =
            wanted.filter(|wanted| *wanted <= HEAP_ROWS).and_then(|wanted| usize::try_from(wanted).ok());
        Sorter { keys, wanted, rows: vec![], heap: BinaryHeap::new(), number: 0, held: 0 }
    }

    pub(crate) fn add(&mut self, row: Row, context: &Context<'_>) -> Result<()> {
        let Some(wanted) = self.wanted else {
            let bytes = row_bytes(&row);
            context.execution.reserve(bytes)?;
            self.held += bytes;
            self.rows.push(row);
            return Ok(());
        };
        self.number += 1;
        if self.heap.len() == wanted {
            match self.heap.peek() {
                Some(worst) if compare(self.keys, &row, &worst.row) == Ordering::Less => self.heap.pop(),
                _ => return Ok(()),
            };
        }
        self.heap.push(Ranked { keys: self.keys, row, number: self.number });
        Ok(())
    }

    /// Bytes accounted for.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    pub(crate) fn finish(mut self) -> Vec<Row> {
        if self.wanted.is_some() {
            return self.heap.into_sorted_vec().into_iter().map(|ranked| ranked.row).collect();
        }
        self.rows.sort_by(|a, b| compare(self.keys, a, b));
        self.rows
    }
}
