//! Plans: how bound queries are executed. A plan is immutable, shared, and does not depend on
//! parameter values.
//!
//! A part of step 3 of the corridor in ARCHITECTURE.md, between `bind` and `oltp`.
//!
//! Two kinds of nodes. A [`Node`] gives rows: it is a whole query, or one step over a query's rows
//! (sort, distinct, limit). A [`SourceNode`] fills places of a frame: it is the FROM of one query
//! level, joins and all, and sits in a [`SelectNode`], which groups and projects. Since all
//! relations of a level write to their own places of one frame, a nested-loop join copies nothing,
//! and the inner side reads the outer side's columns where they are.
//!
//! ```text
//! SELECT c.name, count(*) FROM c JOIN o ON o.c_id = c.id WHERE c.id = $1 GROUP BY c.name ORDER BY 1
//!
//! Sort 0
//!  └ Select  group by Slot(1), count(*)  →  Slot(0), Slot(1)
//!     └ NestedLoop
//!        ├ Scan c   point c_pkey [$1]          writes slots 0 (id), 1 (name)
//!        └ Scan o   range o_c_id_idx [Slot 0]  writes nothing
//! ```

mod access;
mod backward;
mod columns;
mod common;
mod estimate;
mod explain;
mod finish;
mod group;
mod join;
mod keyed;
mod merge;
mod outputs;
mod partial;
mod path;
mod planner;
mod pushdown;
mod relation;
mod select;
mod shown;
mod sides;
mod walk;
mod window;

pub use access::{Access, AccessKind, KeyPart, KeyRange, KeyValues, RangeBound, Scan, ScanColumn};
pub(crate) use partial::implies;
pub(crate) use planner::is_volatile_query;
pub use planner::{plan, plan_expressions};

use std::sync::Arc;

use cognate_engine::LockMode;

use crate::bind::{Frame, LockWait, RowsCall, SetKind, SetReturning, SortKey, VirtualTable, WindowCall};
use crate::catalog::Table;
use crate::explain::{Outline, Telling};
use crate::expr::{Expr, RoutineBody};
use crate::function::ResolvedFunction;
use crate::session::OutputColumn;
use crate::types::cast::Cast;
use crate::types::{FormatContext, Type};

/// A statement's plan.
#[derive(Debug)]
pub struct Plan {
    /// The query.
    pub root: Arc<Node>,
    /// Places for results of subqueries that are evaluated once.
    pub subqueries: usize,
    /// Places for common table expressions.
    pub ctes: usize,
    /// Those common table expressions that are read from their rows, by number.
    pub cte_plans: CtePlans,
    /// Output columns.
    pub columns: Vec<OutputColumn>,
    /// Types of the parameters.
    pub parameters: Vec<Type>,
    /// Stored tables it reads, as they were in the catalog it was planned with; those in subqueries
    /// too.
    pub tables: Vec<Arc<Table>>,
    /// The functions of users that it calls, those that these call too: they live as long as it.
    pub routines: Vec<Arc<RoutineBody>>,
    /// Row locks to take on each row, in this order. With any, `limit` and `offset` are left to the
    /// caller, as a row counts only once it is locked.
    pub locks: Vec<PlannedLock>,
    /// LIMIT, left to the caller.
    pub limit: Option<Expr>,
    /// OFFSET, left to the caller.
    pub offset: Option<Expr>,
    /// Estimated work; a unit is about one row looked up by its key.
    pub cost: f64,
}

/// A row lock of a SELECT.
#[derive(Clone, Debug)]
pub struct PlannedLock {
    /// Whose rows.
    pub table: Arc<Table>,
    /// How strongly.
    pub mode: LockMode,
    /// What happens when the row is not free.
    pub wait: LockWait,
    /// Place of the row's key (bytea, or NULL for a missing row of an outer join) among the
    /// cursor's values, behind the output columns.
    pub key: usize,
}

impl Plan {
    /// The plan as text, a line a node, indented; if asked for, with what the nodes give. Values
    /// are printed as `format` has it.
    pub fn explain(&self, verbose: bool, format: &FormatContext) -> Vec<String> {
        self.told(Telling::plainly(verbose, format))
    }

    /// The same, with what was counted.
    pub(crate) fn told(&self, telling: Telling<'_>) -> Vec<String> {
        explain::explain(self, telling)
    }

    /// The same as a tree.
    pub(crate) fn outline(&self, telling: Telling<'_>) -> Outline {
        explain::outline(self, telling)
    }

    /// Whether rows are to be locked, and LIMIT and OFFSET left to the caller.
    pub fn has_locks(&self) -> bool {
        !self.locks.is_empty()
    }
}

/// What gives rows.
#[derive(Debug)]
pub enum Node {
    /// One query level.
    Select(Box<SelectNode>),
    /// VALUES.
    Values(Vec<Vec<Expr>>),
    /// UNION, INTERSECT, EXCEPT.
    SetOperation {
        /// Which.
        kind: SetKind,
        /// Duplicates stay.
        all: bool,
        /// First operand.
        left: Box<Node>,
        /// Second operand.
        right: Box<Node>,
    },
    /// Sorts; only the first rows if a limit is known.
    Sort {
        /// Its rows.
        input: Box<Node>,
        /// By what.
        keys: Vec<SortKey>,
        /// LIMIT and OFFSET around it: no more rows than both together are kept.
        limit: Option<(Expr, Option<Expr>)>,
    },
    /// Drops rows that are equal in these columns to an earlier one.
    Distinct {
        /// Its rows.
        input: Box<Node>,
        /// The columns compared.
        columns: Vec<usize>,
    },
    /// LIMIT and OFFSET.
    Limit {
        /// Its rows.
        input: Box<Node>,
        /// Largest number of rows; NULL is no limit.
        limit: Option<Expr>,
        /// Rows left out first.
        offset: Option<Expr>,
        /// WITH TIES: the columns in which rows behind the last one may equal it, to come too.
        ties: Vec<usize>,
    },
    /// Converts columns, and drops those behind the conversions' number.
    Convert {
        /// Its rows.
        input: Box<Node>,
        /// One for each column that stays.
        casts: Vec<Option<Cast>>,
    },
    /// A query with common table expressions that refer to queries around it. It computes their
    /// rows anew each time it runs, and once however often it reads them.
    With {
        /// Its rows.
        input: Box<Node>,
        /// Those.
        ctes: Arc<[Arc<CtePlan>]>,
    },
}

/// One query level: a source, grouped and projected.
#[derive(Debug)]
pub struct SelectNode {
    /// Number of places in the frame.
    pub frame: usize,
    /// What fills them.
    pub source: SourceNode,
    /// Grouping.
    pub group: Option<GroupNode>,
    /// Windows; the results of their calls stand behind the (group's) frame.
    pub windows: Option<WindowsNode>,
    /// Set-returning calls; their results stand behind those of windows.
    pub set_returning: Vec<SetReturning>,
    /// The output.
    pub targets: Vec<Expr>,
}

/// Grouping.
#[derive(Debug)]
pub struct GroupNode {
    /// Keys over the frame.
    pub keys: Vec<Expr>,
    /// Grouping sets: which of the keys each has.
    pub sets: Option<Vec<Vec<bool>>>,
    /// What several aggregates compute of a row; the values stand behind the frame.
    pub computed: Vec<Expr>,
    /// Aggregates.
    pub aggregates: Vec<AggregateNode>,
    /// Conditions over the group's frame.
    pub having: Vec<Expr>,
}

/// An aggregate.
#[derive(Debug)]
pub struct AggregateNode {
    /// Which.
    pub function: ResolvedFunction,
    /// Arguments over the frame.
    pub arguments: Vec<Expr>,
    /// DISTINCT.
    pub distinct: bool,
    /// ORDER BY: expression, descending, NULLs first.
    pub order: Vec<(Expr, bool, bool)>,
    /// FILTER.
    pub filter: Option<Expr>,
    /// It is no aggregate but GROUPING: its value in each grouping set.
    pub grouping: Option<Vec<i32>>,
    /// It is the average of what another one sums up: of that one's place among those that have a
    /// state.
    pub average_of: Option<usize>,
}

impl AggregateNode {
    /// Whether it takes rows itself.
    pub(crate) fn has_state(&self) -> bool {
        self.grouping.is_none() && self.average_of.is_none()
    }
}

/// The windows of a query level, in the order they are computed: each reads the rows that the one
/// before gives.
#[derive(Debug)]
pub struct WindowsNode {
    /// Number of results, and of those of set-returning calls behind them.
    pub results: usize,
    /// Keys that are no places of the frame. Their values stand behind everything else.
    pub computed: Vec<Expr>,
    /// The windows.
    pub stages: Vec<WindowNode>,
}

/// One window.
#[derive(Debug)]
pub struct WindowNode {
    /// The keys to sort by first; none if the rows come in this order.
    pub sort: Vec<SortKey>,
    /// Only the first rows of each partition are wanted.
    pub first: Option<FirstRows>,
    /// PARTITION BY.
    pub partition: Vec<SortKey>,
    /// ORDER BY.
    pub order: Vec<SortKey>,
    /// The frame.
    pub frame: Frame,
    /// The calls; their places are those of the whole row.
    pub calls: Vec<WindowCall>,
}

/// How many of the first rows of a partition are wanted, where it is known; the others may be
/// given, too.
#[derive(Debug)]
pub struct FirstRows {
    /// A constant or a parameter.
    pub bound: Expr,
    /// As many as it says, less one.
    pub less: bool,
}

/// What fills places of a frame.
#[derive(Debug)]
pub enum SourceNode {
    /// One row of nothing.
    Unit,
    /// No row at all.
    Nothing,
    /// Rows of a stored table.
    Scan(Box<Scan>),
    /// Rows of a computed table.
    Virtual {
        /// The table.
        table: Arc<dyn VirtualTable>,
        /// Column and place of what is read.
        slots: Vec<(usize, usize)>,
        /// A column that must equal a value, if the table can look it up.
        key: Option<(usize, Expr)>,
    },
    /// Rows of a query one level in.
    Query {
        /// The query.
        node: Box<Node>,
        /// Column and place of what is read.
        slots: Vec<(usize, usize)>,
        /// Name for EXPLAIN.
        name: String,
        /// Names of its columns, for EXPLAIN.
        columns: Option<Arc<[String]>>,
    },
    /// Rows of a common table expression; within its own recursive part, the rows the last step
    /// gave.
    Cte {
        /// Its number.
        number: usize,
        /// Its name.
        name: String,
        /// Names of its columns, for EXPLAIN.
        columns: Option<Arc<[String]>>,
        /// Column and place of what is read.
        slots: Vec<(usize, usize)>,
    },
    /// Rows of a function.
    Function {
        /// The call, over the frame.
        call: RowsCall,
        /// The column that counts the rows.
        ordinality: Option<usize>,
        /// Column and place of what is read.
        slots: Vec<(usize, usize)>,
        /// Name for EXPLAIN.
        name: String,
        /// Names of its columns, for EXPLAIN.
        columns: Option<Arc<[String]>>,
    },
    /// The rows that satisfy conditions.
    Filter {
        /// Its rows.
        input: Box<SourceNode>,
        /// All must hold.
        conditions: Vec<Expr>,
    },
    /// At most one row.
    First(Box<SourceNode>),
    /// Remembers the rows, for being read again.
    Materialize {
        /// Its rows.
        input: Box<SourceNode>,
        /// The places it fills.
        slots: Vec<usize>,
    },
    /// For each outer row the inner rows.
    NestedLoop {
        /// Outer side.
        outer: Box<SourceNode>,
        /// Inner side: opened anew for each outer row.
        inner: Box<SourceNode>,
        /// Conditions on a pair.
        on: Vec<Expr>,
        /// A left join: the places to set to NULL for an outer row without partner.
        nulls: Option<Vec<usize>>,
    },
    /// Pairs with equal keys.
    HashJoin(Box<HashJoin>),
    /// The same of two sides in the order of these keys.
    MergeJoin(Box<MergeJoin>),
}

impl SourceNode {
    /// Has it give its rows in the order in which the first relation is read, which nobody sorts by
    /// again.
    pub(crate) fn keep_order(&mut self) {
        match self {
            SourceNode::HashJoin(join) => {
                join.keeps_order = true;
                join.probe.keep_order();
            }
            SourceNode::NestedLoop { outer: first, .. } | SourceNode::Filter { input: first, .. } => {
                first.keep_order();
            }
            _ => {}
        }
    }
}

/// A hash join: the build side is read into a hash table first.
#[derive(Debug)]
pub struct HashJoin {
    /// Side whose rows look up the table; its order stays as long as the table fits into memory.
    pub probe: SourceNode,
    /// Side in the table.
    pub build: SourceNode,
    /// Keys over the probe side.
    pub probe_keys: Vec<Expr>,
    /// Keys over the build side.
    pub build_keys: Vec<Expr>,
    /// More conditions on a pair.
    pub on: Vec<Expr>,
    /// Places the build side fills.
    pub build_slots: Vec<usize>,
    /// Places the probe side fills.
    pub probe_slots: Vec<usize>,
    /// Probe rows without partner stay.
    pub left: bool,
    /// Build rows without partner stay.
    pub full: bool,
    /// What is around it relies on the order of the probe side, also if the table does not fit.
    pub keeps_order: bool,
}

/// A merge join: both sides come in ascending order of their keys, and no two inner rows have the
/// same.
#[derive(Debug)]
pub struct MergeJoin {
    /// Side whose rows look for a partner; its order stays.
    pub outer: SourceNode,
    /// Side that each of them finds at most one row of.
    pub inner: SourceNode,
    /// Places of the keys: outer and inner.
    pub keys: Vec<(usize, usize)>,
    /// More conditions on a pair.
    pub on: Vec<Expr>,
    /// Places the inner side fills.
    pub inner_slots: Vec<usize>,
    /// Outer rows without partner stay.
    pub left: bool,
}

/// Those common table expressions of a statement that are read from their rows, by number.
pub type CtePlans = Arc<[Option<Arc<CtePlan>>]>;

/// A common table expression that is read from its rows.
#[derive(Debug)]
pub struct CtePlan {
    /// Its number.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// The query; the part that is not recursive.
    pub node: Node,
    /// The recursive part, and whether equal rows are dropped.
    pub recursive: Option<(Node, bool)>,
    /// Those within it have the numbers from its own to this one: each step of the recursion
    /// computes them anew.
    pub end: usize,
    /// It refers to the query around the one it belongs to, so its rows are those of one row there.
    pub correlated: bool,
}
