//! The row executor: pulls rows through plans, one at a time, on the caller's thread. Others help
//! it where a large table is aggregated (`parallel`).
//!
//! A [`Cursor`] owns all its state and borrows the session only while it is called, so a portal can
//! keep one across messages: scans are positions in a snapshot, parameters are values.
//!
//! The state of a plan is a tree of the plan's shape: `node` for what gives rows, `input` for what
//! fills frames. A frame belongs to its query level's state; sources write their places and return
//! whether there is a row. Nothing is computed before it is asked for.
//!
//! Sorts, hash tables and everything else that holds rows accounts for them (see
//! [`Execution::reserve`](crate::expr::Execution)).

mod aggregate;
mod assigned_list;
mod change;
mod columns;
pub(crate) mod conflict;
pub(crate) mod constraint;
mod cte;
mod cursor;
pub(crate) mod deferred_unique;
pub(crate) mod delete;
mod distinct;
pub(crate) mod foreign_key;
mod group;
pub(crate) mod hash;
mod hash_join;
pub(crate) mod index_maintenance;
pub(crate) mod indexed;
mod inference;
mod input;
pub(crate) mod insert;
mod join_table;
pub(crate) mod key_range;
mod keyed;
mod limit;
mod literal_rows;
pub(crate) mod memory;
pub(crate) mod merge;
mod merge_join;
mod node;
mod packed;
mod pages;
mod parallel;
pub(crate) mod parts;
pub(crate) mod pending;
pub(crate) mod reference_error;
pub(crate) mod returning;
pub(crate) mod routine;
pub(crate) mod row_lock;
pub(crate) mod run;
mod scan;
mod segmented;
mod set_operation;
mod sort;
mod sorter;
pub(crate) mod source;
mod spill;
pub(crate) mod stored;
pub(crate) mod subject;
pub(crate) mod subquery;
mod table_function;
pub(crate) mod target;
pub(crate) mod update;
mod window;
pub(crate) mod write;

pub(crate) use cte::{CteState, Given};
pub use cursor::Cursor;
pub(crate) use subquery::SubqueryResult;

/// Values of one row.
pub type Row = Vec<Datum>;

use crate::expr::{Env, Execution};
use crate::types::Datum;

/// What executing a node needs: the execution, and the frames around it.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) execution: Execution<'a>,
    /// The frame of the query around.
    pub(crate) outer: Option<&'a Env<'a>>,
}

impl<'a> Context<'a> {
    /// The frame `row` of this level.
    #[inline]
    pub(crate) fn env(&self, row: &'a [Datum]) -> Env<'a> {
        Env { row, outer: self.outer, execution: self.execution, held: None }
    }
}

#[cfg(test)]
mod tests;
