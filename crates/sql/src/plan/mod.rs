//! Plans: how a bound query is executed by the row executor.
//!
//! A [`Plan`] is immutable, shared and free of parameter values; a portal makes a [`Cursor`](crate::oltp::Cursor) from it.
//! A [`Node`] is the plan of one query (of the statement, a subquery, a derived table); its FROM has become a tree of
//! [`Input`]s that fill the query's frame, one relation after the other:
//!
//! ```text
//! SELECT o.id, i.title FROM orders o, item i WHERE o.customer = $1 AND i.id = o.item ORDER BY o.id DESC LIMIT 3
//!   Loop
//!     orders through orders_customer_id (customer = $1), backward      fills o.id, o.item
//!     item through item_pkey (id = o.item)                              fills i.title
//!   no sort: the index gives the order
//! ```
//!
//! An access narrows what is read; the conditions it serves are tested on each row all the same, so that an access
//! may read too much but never decides alone.
//!
//! Invariant: a condition stands at the first place where everything it refers to is filled, and never below an outer
//! join whose missing rows it would judge.

mod access;
mod build;
mod explain;
mod join;

use std::sync::Arc;

use crate::bind::{
    AggregateCall, Distinct, LockWait, SetKind, SetReturning, SortKey, TableFunction, VirtualTable,
};
use crate::catalog::Table;
use crate::expr::Expr;
use crate::session::OutputColumn;
use crate::types::Type;
use crate::types::cast::Cast;

pub use build::plan;

/// A statement's plan.
#[derive(Debug)]
pub struct Plan {
    /// The query.
    pub root: Arc<Node>,
    /// Places for results of subqueries that are evaluated once.
    pub subqueries: usize,
    /// Places for common table expressions.
    pub ctes: usize,
    /// Output columns.
    pub columns: Vec<OutputColumn>,
    /// Types of the parameters.
    pub parameters: Vec<Type>,
    /// Stored tables it reads; those in subqueries too.
    pub tables: Vec<Arc<Table>>,
    /// Row locks to take on each row, in this order. With any, `limit` and `offset` are left to the caller, as a row
    /// counts only once it is locked.
    pub locks: Vec<PlannedLock>,
    /// LIMIT, left to the caller.
    pub limit: Option<Expr>,
    /// OFFSET, left to the caller.
    pub offset: Option<Expr>,
    /// Reads, by estimate, so many rows that threads of connections should not run it.
    pub heavy: bool,
}

/// A row lock of a SELECT.
#[derive(Clone, Debug)]
pub struct PlannedLock {
    /// Whose rows.
    pub table: Arc<Table>,
    /// FOR UPDATE rather than FOR SHARE.
    pub exclusive: bool,
    /// What happens when the row is not free.
    pub wait: LockWait,
    /// Place of the row's key (bytea, or NULL for a missing row of an outer join) among the cursor's values, behind the output columns.
    pub key: usize,
}

/// The plan of one query.
#[derive(Debug)]
pub struct Node {
    pub(crate) body: Body,
    /// What is left to sort.
    pub(crate) sort: Vec<SortKey>,
    pub(crate) limit: Option<Expr>,
    pub(crate) offset: Option<Expr>,
    /// Values to hand out of each row; what is behind them served for sorting.
    pub(crate) width: usize,
    pub(crate) conversions: Vec<Option<Cast>>,
    pub(crate) ctes: Vec<CtePlan>,
    /// References to the frames around: depth (1 is the nearest) and slot.
    pub(crate) outer: Vec<(usize, usize)>,
    /// Rows read, by estimate.
    pub(crate) cost: f64,
}

#[derive(Debug)]
pub(crate) enum Body {
    Select(Box<Select>),
    Values(Vec<Vec<Expr>>),
    SetOperation { kind: SetKind, all: bool, left: Arc<Node>, right: Arc<Node> },
}

#[derive(Debug)]
pub(crate) struct CtePlan {
    pub(crate) number: usize,
    pub(crate) name: String,
    pub(crate) node: Arc<Node>,
    /// The recursive part, and whether equal rows are dropped.
    pub(crate) recursive: Option<(Arc<Node>, bool)>,
}

#[derive(Debug)]
pub(crate) struct Select {
    /// Places of the frame.
    pub(crate) frame: usize,
    pub(crate) input: Arc<Input>,
    pub(crate) group: Option<Group>,
    pub(crate) set_returning: Vec<SetReturning>,
    pub(crate) targets: Vec<Expr>,
    pub(crate) distinct: Distinct,
    /// Number of targets that DISTINCT looks at.
    pub(crate) visible: usize,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) keys: Vec<Expr>,
    pub(crate) aggregates: Vec<AggregateCall>,
    pub(crate) having: Vec<Expr>,
}

/// What fills the frame.
#[derive(Debug)]
pub(crate) enum Input {
    /// One row of nothing: SELECT without FROM.
    Once,
    /// Rows of one relation.
    Relation(Relation),
    /// Drops rows.
    Filter { input: Arc<Input>, conditions: Vec<Expr> },
    /// For each row of `left`, the rows of `right`; `missing` are the slots set to NULL where there are none (left join).
    Loop { left: Arc<Input>, right: Arc<Input>, missing: Option<Vec<usize>> },
    /// The same through a hash table of `right`, which does not depend on `left`.
    Hash {
        left: Arc<Input>,
        right: Arc<Input>,
        left_keys: Vec<Expr>,
        right_keys: Vec<Expr>,
        /// Tested on each pair.
        conditions: Vec<Expr>,
        /// Slots that `right` fills.
        fills: Vec<usize>,
        outer: bool,
    },
    /// A full join.
    Full {
        left: Arc<Input>,
        right: Arc<Input>,
        conditions: Vec<Expr>,
        left_slots: Vec<usize>,
        right_slots: Vec<usize>,
    },
}

/// One relation in its place of the join order.
#[derive(Debug)]
pub(crate) struct Relation {
    pub(crate) alias: String,
    pub(crate) source: Source,
    /// Columns to put into the frame, and where.
    pub(crate) fills: Vec<(usize, usize)>,
    pub(crate) key_slot: Option<usize>,
    pub(crate) conditions: Vec<Expr>,
    /// Depends on nothing filled before it, so that its rows can be kept for the next round.
    pub(crate) keep: bool,
}

#[derive(Debug)]
pub(crate) enum Source {
    Table(Arc<Table>, Access),
    Virtual(Arc<dyn VirtualTable>, Option<(usize, Expr)>),
    Query(Arc<Node>),
    Cte(usize),
    Function(TableFunction),
}

/// How a table's rows are found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// Place among the table's indexes; none is the table's own tree from end to end.
    pub(crate) index: Option<usize>,
    /// Values of the index's first columns.
    pub(crate) equal: Vec<Expr>,
    /// Several values for the column after those, each looked up by itself: a list, or one array.
    pub(crate) any: Option<AnyOf>,
    /// Bounds of the column after `equal`, and whether the bound itself is inside.
    pub(crate) lower: Option<(Expr, bool)>,
    /// The other bound.
    pub(crate) upper: Option<(Expr, bool)>,
    /// `equal` names at most one row.
    pub(crate) unique: bool,
    pub(crate) reverse: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum AnyOf {
    List(Vec<Expr>),
    Array(Expr),
}

impl Node {
    /// Calls `visit(depth, slot)` with every reference to the frames around; depth 1 is the nearest.
    pub fn for_each_outer_reference(&self, visit: &mut dyn FnMut(usize, usize)) {
        self.outer.iter().for_each(|(depth, slot)| visit(*depth, *slot));
    }

    /// Rows it reads, by estimate.
    pub fn cost(&self) -> f64 {
        self.cost
    }
}

impl Plan {
    /// The plan as text, a line a node, indented.
    pub fn explain(&self) -> Vec<String> {
        explain::lines(self)
    }

    /// The caller's part of a locking plan, or 0 and no limit.
    pub fn has_locks(&self) -> bool {
        !self.locks.is_empty()
    }
}
