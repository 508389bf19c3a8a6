//! Window functions that number rows: all rows of a level are read, then numbered, then given in the last window's order.

use std::cmp::Ordering;

use super::Context;
use super::memory::row_bytes;
use super::sort::{compare_keys, sort_rows};
use crate::bind::{Ranking, RowsCall};
use crate::error::{Result, SqlError};
use crate::expr::Expr;
use crate::types::Datum;

/// The rows of a level, with the numbers behind each one's frame.
#[derive(Default)]
pub(crate) struct WindowRows {
    rows: Vec<Vec<Datum>>,
    /// Their order, last first.
    order: Vec<usize>,
    bytes: usize,
}

impl WindowRows {
    /// Takes one more row: a frame with room for the numbers at its end.
    pub(crate) fn push(&mut self, row: Vec<Datum>, context: Context<'_>) -> Result<()> {
        let bytes = row_bytes(&row);
        context.execution.reserve(bytes)?;
        self.bytes += bytes;
        self.rows.push(row);
        Ok(())
    }

    /// Computes all numbers.
    pub(crate) fn number(&mut self, calls: &[RowsCall], context: Context<'_>) -> Result<()> {
        self.order = (0..self.rows.len()).collect();
        for (place, call) in calls.iter().enumerate() {
            let RowsCall::Ranking { ranking, keys, partition, order } = call else {
                return Err(SqlError::internal("a window function beside a set-returning one"));
            };
            let window = Window { keys, partition: *partition, order };
            let values = self.key_values(&window, context)?;
            sort_rows(&mut self.order, context.execution, |a, b| {
                window.compare(&values[*a], &values[*b], keys.len())
            })?;
            let numbers = window.numbers(*ranking, &self.order, &values);
            for (row, number) in self.order.iter().zip(numbers) {
                let row = &mut self.rows[*row];
                let base = row.len() - calls.len();
                row[base + place] = Datum::Int8(number);
            }
        }
        self.order.reverse();
        Ok(())
    }

    fn key_values(&self, window: &Window<'_>, context: Context<'_>) -> Result<Vec<Vec<Datum>>> {
        let mut values = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            context.execution.tick()?;
            let env = context.env(row);
            values.push(window.keys.iter().map(|key| key.eval(&env)).collect::<Result<Vec<_>>>()?);
        }
        Ok(values)
    }

    /// The next row.
    pub(crate) fn next(&mut self) -> Option<&Vec<Datum>> {
        let at = self.order.pop()?;
        self.rows.get(at)
    }

    /// Gives back the memory it accounts for.
    pub(crate) fn release(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        self.rows.clear();
    }
}

/// PARTITION BY and ORDER BY: the first `partition` keys make the partitions, the rest sort within them.
struct Window<'a> {
    keys: &'a [Expr],
    partition: usize,
    order: &'a [(bool, bool)],
}

impl Window<'_> {
    /// Compares by the first `count` keys.
    fn compare(&self, a: &[Datum], b: &[Datum], count: usize) -> Ordering {
        for key in 0..count {
            let (descending, nulls_first) = match key.checked_sub(self.partition) {
                Some(place) => self.order[place],
                None => (false, false),
            };
            match compare_keys(&a[key], &b[key], descending, nulls_first) {
                Ordering::Equal => {}
                decided => return decided,
            }
        }
        Ordering::Equal
    }

    /// The number of each row in `order`.
    fn numbers(&self, ranking: Ranking, order: &[usize], values: &[Vec<Datum>]) -> Vec<i64> {
        let mut numbers = Vec::with_capacity(order.len());
        let (mut row_number, mut rank, mut dense) = (0, 0, 0);
        let mut before: Option<&Vec<Datum>> = None;
        for row in order {
            let values = &values[*row];
            let same = |count| before.is_some_and(|before| self.compare(before, values, count).is_eq());
            if !same(self.partition) {
                (row_number, rank, dense) = (0, 0, 0);
            }
            row_number += 1;
            if row_number == 1 || !same(self.keys.len()) {
                rank = row_number;
                dense += 1;
            }
            before = Some(values);
            numbers.push(match ranking {
                Ranking::RowNumber => row_number,
                Ranking::Rank => rank,
                Ranking::DenseRank => dense,
            });
        }
        numbers
    }
}
