//! The row executor: runs plans row by row over the transaction's own view of the data.
//!
//! ```text
//! Cursor ─▶ Rows (sort, limit, set operations) ─▶ Select (group, project, distinct) ─▶ Inputs (joins) ─▶ Relation (reads)
//! ```
//!
//! Everything is pulled, one row at a time; only sorting, grouping and hash tables hold rows, and account for them.
//! Operators keep their state between calls and borrow nothing: what they need of the session comes with each call, in a
//! [`ReadContext`](crate::expr::ReadContext). So a portal may rest between two rows for as long as its client likes.
//!
//! *Open* starts an operator (again), *next* gives a row. A join's right side is opened anew for each left row and sees
//! that row in the frame, which is how look-ups by key work.

mod access;
mod aggregate;
mod cursor;
mod input;
mod relation;
mod rows;
mod select;
mod sort;
pub mod subquery;
mod table_function;

pub use cursor::Cursor;
pub use subquery::SubqueryResult;

use std::sync::Arc;

use crate::expr::{Env, Execution};
use crate::types::Datum;

/// Values of one row.
pub type Row = Vec<Datum>;

/// A common table expression's rows, while its query runs.
#[derive(Clone, Debug)]
pub struct CteState(pub(crate) Arc<Vec<Row>>);

/// What comes with each call: the execution and the frames around the query.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) execution: Execution<'a>,
    pub(crate) outer: Option<&'a Env<'a>>,
}

impl<'a> Context<'a> {
    /// An environment over a frame of this query.
    #[inline]
    pub(crate) fn env(&self, row: &'a [Datum]) -> Env<'a> {
        Env { row, outer: self.outer, execution: self.execution }
    }
}

/// Bytes a row occupies, roughly.
pub(crate) fn row_bytes(row: &[Datum]) -> usize {
    let inner = |datum: &Datum| match datum {
        Datum::Text(text) | Datum::Bpchar(text) | Datum::Jsonb(text) => text.len(),
        Datum::Bytea(bytes) => bytes.len(),
        Datum::Numeric(_) => 16,
        Datum::Array(array) => array.elements.len() * size_of::<Datum>(),
        _ => 0,
    };
    size_of::<Row>() + row.iter().map(|datum| size_of::<Datum>() + inner(datum)).sum::<usize>()
}

#[cfg(test)]
mod tests;
