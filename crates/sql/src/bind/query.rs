//! Bound queries: names resolved, types settled, nothing planned yet.
//!
//! A [`Select`] is one query level with its frame. The relations of its FROM, and of subqueries
//! that were merged into it, are listed in `relations`; `from` says how they are joined. A derived
//! table that could not be merged is a [`Query`] of its own, one level in.

use std::sync::Arc;

use cognate_engine::LockMode;

use super::frame::Window;
use super::table_function::RowsPart;
use super::virtual_table::VirtualTable;
use crate::catalog::Table;
use crate::error::{SqlError, sqlstate};
use crate::expr::{Expr, RoutineCall, Typed};
use crate::function::{Function, ResolvedFunction};
use crate::routine::Checks;
use crate::session::OutputColumn;
use crate::types::cast::Cast;
use crate::types::{Shape, Type};

/// Most relations of one level: the planner has a bit for each.
pub(crate) const MAX_RELATIONS: usize = 128;

/// 54001.
pub(crate) fn too_many_relations() -> SqlError {
    let message = format!("more than {MAX_RELATIONS} tables in one FROM");
    SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, message)
}

/// A query: rows of one shape.
#[derive(Clone, Debug)]
pub struct Query {
    /// Where its rows come from.
    pub body: Body,
    /// The order of its rows, over the body's columns (the hidden ones too).
    pub order: Vec<SortKey>,
    /// Largest number of rows; NULL is no limit.
    pub limit: Option<Expr>,
    /// WITH TIES: rows that sort like the last one that the limit allows come too.
    pub ties: bool,
    /// Number of rows left out at the beginning.
    pub offset: Option<Expr>,
    /// The columns of its rows.
    pub columns: Vec<OutputColumn>,
    /// Conversions of the columns, applied last; none, or one for each column.
    pub conversions: Vec<Option<Cast>>,
    /// Common table expressions of its WITH, evaluated at most once for each evaluation of this
    /// query.
    pub ctes: Vec<Cte>,
}

/// A common table expression.
#[derive(Clone, Debug)]
pub struct Cte {
    /// Its number among all of the statement.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// The query; for a recursive one the part that is not.
    pub query: Query,
    /// The recursive part, which reads the same number, and whether equal rows are dropped (UNION
    /// rather than UNION ALL).
    pub recursive: Option<(Query, bool)>,
    /// Those within it have the numbers from its own to this one.
    pub end: usize,
    /// Number of references to it.
    pub references: usize,
    /// MATERIALIZED, or false for NOT MATERIALIZED.
    pub materialized: Option<bool>,
}

/// What gives the rows.
#[derive(Clone, Debug)]
pub enum Body {
    /// SELECT.
    Select(Box<Select>),
    /// VALUES: rows of expressions without a frame.
    Values(Vec<Vec<Expr>>),
    /// UNION, INTERSECT, EXCEPT.
    SetOperation(Box<SetOperation>),
}

/// Two queries combined; they have the same number of columns with the same types.
#[derive(Clone, Debug)]
pub struct SetOperation {
    /// How.
    pub kind: SetKind,
    /// Duplicates stay (as many as each side's counts say).
    pub all: bool,
    /// First operand.
    pub left: Query,
    /// Second operand.
    pub right: Query,
}

/// Set operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SetKind {
    Union,
    Intersect,
    Except,
}

/// One sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The column it sorts by.
    pub column: usize,
    /// Largest first.
    pub descending: bool,
    /// NULLs first.
    pub nulls_first: bool,
}

/// One query level.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// The relations that share the frame.
    pub relations: Vec<Relation>,
    /// What each place of the frame holds.
    pub slots: Vec<Slot>,
    /// The join trees of FROM; their product is taken.
    pub from: Vec<From>,
    /// Conditions of WHERE, all of which must hold.
    pub filter: Vec<Expr>,
    /// Grouping and aggregates. Then `having`, set-returning calls and targets are over the group's
    /// frame: its keys, then its aggregates.
    pub group: Option<Group>,
    /// Windows, in the order they were written. The results of their calls take the places behind
    /// the frame's (or the group's frame's).
    pub windows: Vec<Window>,
    /// Set-returning calls in the targets. Their results take the places behind those of windows.
    pub set_returning: Vec<SetReturning>,
    /// The output, hidden sort columns last.
    pub targets: Vec<Typed>,
    /// Number of targets that are output.
    pub visible: usize,
    /// DISTINCT.
    pub distinct: Distinct,
    /// FOR UPDATE and FOR SHARE.
    pub locks: Vec<RowLock>,
}

/// What a place of the frame holds.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The relation it comes from.
    pub relation: usize,
    /// Which part of its row.
    pub part: SlotPart,
    /// Type of the value.
    pub ty: Type,
}

/// Part of a relation's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotPart {
    /// A column.
    Column(usize),
    /// The row's key in its table's tree, as bytea; NULL if the relation is null-extended.
    Key,
}

/// DISTINCT of a SELECT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Distinct {
    /// None.
    #[default]
    No,
    /// Over all visible targets.
    All,
    /// DISTINCT ON: over these targets.
    On(Vec<usize>),
}

/// A relation of FROM.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Its alias or name, for messages and EXPLAIN.
    pub alias: String,
    /// What it is.
    pub source: Source,
    /// Types of all its columns, dropped ones too.
    pub types: Vec<Type>,
    /// Names of its columns, for EXPLAIN; none of a table, which has them itself.
    pub columns: Option<Arc<[String]>>,
    /// Place in the frame of each column, if the query reads it.
    pub slots: Vec<Option<usize>>,
    /// Place in the frame of the row's key, if it is needed.
    pub key_slot: Option<usize>,
    /// Is on the side of an outer join that may be missing.
    pub nullable: bool,
}

/// Where a relation's rows come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A stored table.
    Table(Arc<Table>),
    /// A table that is computed.
    Virtual(Arc<dyn VirtualTable>),
    /// A derived table, one level in.
    Query(Box<Query>),
    /// A common table expression, by number.
    Cte(usize),
    /// Functions in FROM, one level in... whose arguments are over this level's frame (LATERAL is
    /// implied).
    Function(TableFunction),
    /// Nothing: the planner has taken it out.
    Taken,
}

/// A function in FROM.
#[derive(Clone, Debug)]
pub struct TableFunction {
    /// What gives the rows.
    pub call: RowsCall,
    /// WITH ORDINALITY: a last column counts the rows.
    pub ordinality: bool,
}

/// A call that gives rows.
#[derive(Clone, Debug)]
pub enum RowsCall {
    /// A set-returning function.
    Set {
        /// Which.
        function: &'static Function,
        /// Arguments, over the frame.
        arguments: Vec<Expr>,
        /// Number of columns of its rows.
        width: usize,
    },
    /// Several arrays side by side: unnest(a, b).
    Unnest(Vec<Expr>),
    /// Several calls side by side: ROWS FROM (f(a), g(b)).
    Together {
        /// What they are.
        parts: Vec<RowsPart>,
        /// Their arguments, over the frame, those of one behind those of the other.
        arguments: Vec<Expr>,
    },
    /// A scalar function: one row of one column.
    Scalar(Expr),
    /// A function that a user has defined.
    Routine(Box<RoutineCall>),
    /// A JSON value as rows.
    Records(Box<JsonRecords>),
}

/// A JSON value as rows of columns that the statement says.
#[derive(Clone, Debug)]
pub struct JsonRecords {
    /// The function's name: which of several, and for messages.
    pub name: &'static str,
    /// The value, over the frame.
    pub value: Expr,
    /// Names and types.
    pub columns: Vec<(String, Type)>,
    /// They stand in the alias.
    pub defined: bool,
    /// What the values of domains must meet, by place.
    pub(crate) checks: Checks,
}

/// A set-returning call among the targets.
#[derive(Clone, Debug)]
pub struct SetReturning {
    /// The call, over the frame.
    pub call: RowsCall,
    /// Type of its values.
    pub ty: Type,
    /// Names and types of the fields, if its values are rows of several columns.
    pub shape: Option<Shape>,
}

/// How relations are joined.
#[derive(Clone, Debug)]
pub enum From {
    /// One row without columns.
    Unit,
    /// A relation, by its place.
    Relation(usize),
    /// A join.
    Join(Box<Join>),
}

/// A join. RIGHT joins have their sides exchanged.
#[derive(Clone, Debug)]
pub struct Join {
    /// Kind.
    pub kind: JoinKind,
    /// Left side.
    pub left: From,
    /// Right side: the one that may be missing in a left join.
    pub right: From,
    /// Conditions, all of which must hold.
    pub on: Vec<Expr>,
}

/// Kind of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Inner and cross.
    Inner,
    /// Every row of the left side, with NULLs if the right has none.
    Left,
    /// Every row of both sides.
    Full,
}

/// Grouping.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Keys, over the frame: the first places of the group's frame.
    pub keys: Vec<Expr>,
    /// GROUPING SETS, with ROLLUP and CUBE written out: for each set the places of its keys; the
    /// other keys are NULL in its groups. None if the rows are grouped once, by all keys.
    pub sets: Option<Vec<Vec<usize>>>,
    /// Aggregates: the places after the keys.
    pub aggregates: Vec<AggregateCall>,
    /// HAVING, over the group's frame.
    pub having: Vec<Expr>,
}

impl Group {
    /// The keys that all groups have.
    pub(crate) fn common_keys(&self) -> Vec<Expr> {
        let in_all = |place: usize| self.sets.iter().flatten().all(|set| set.contains(&place));
        let keys = self.keys.iter().enumerate().filter(|(place, _)| in_all(*place));
        keys.map(|(_, key)| key.clone()).collect()
    }
}

/// A call of an aggregate.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// The aggregate.
    pub function: ResolvedFunction,
    /// Arguments over the frame; none is `count(*)`.
    pub arguments: Vec<Expr>,
    /// DISTINCT.
    pub distinct: bool,
    /// ORDER BY within the call: expression, descending, NULLs first.
    pub order: Vec<(Expr, bool, bool)>,
    /// FILTER.
    pub filter: Option<Expr>,
    /// It is no aggregate but GROUPING; the arguments' places among the keys, once these are known.
    pub grouping: Option<Vec<usize>>,
}

impl AggregateCall {
    /// The expressions in it.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let order = self.order.iter().map(|(key, ..)| key);
        self.arguments.iter().chain(order).chain(&self.filter)
    }
}

impl PartialEq for AggregateCall {
    fn eq(&self, other: &AggregateCall) -> bool {
        std::ptr::eq(self.function.function, other.function.function)
            && self.function.arguments == other.function.arguments
            && self.arguments == other.arguments
            && self.distinct == other.distinct
            && self.order == other.order
            && self.filter == other.filter
            && self.grouping == other.grouping
    }
}

/// A lock that reading rows takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLock {
    /// The relation whose rows are locked.
    pub relation: usize,
    /// How strongly.
    pub mode: LockMode,
    /// What happens when another transaction holds the row.
    pub wait: LockWait,
}

/// What a row lock does when it is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// Waits.
    Block,
    /// Fails with 55P03.
    NoWait,
    /// Leaves the row out.
    SkipLocked,
}

impl Query {
    /// A query that is this body and nothing more.
    pub(crate) fn of(body: Body, columns: Vec<OutputColumn>) -> Query {
        Query {
            body,
            order: vec![],
            limit: None,
            ties: false,
            offset: None,
            columns,
            conversions: vec![],
            ctes: vec![],
        }
    }

    /// The columns in which rows behind the last one may equal it, to come too; none if the limit
    /// is strict.
    pub(crate) fn tied(&self) -> Vec<usize> {
        let keys = self.order.iter().filter(|_| self.ties);
        keys.map(|key| key.column).collect()
    }

    /// Calls `visit(expression, nested)` with every outermost expression in the query, where
    /// `nested` is the number of frames between the query's own and the expression's.
    pub fn for_each_expr(&self, visit: &mut dyn FnMut(&Expr, usize)) {
        self.walk(0, visit);
    }

    fn walk(&self, nested: usize, visit: &mut dyn FnMut(&Expr, usize)) {
        for cte in &self.ctes {
            cte.query.walk(nested, visit);
            if let Some((recursive, _)) = &cte.recursive {
                recursive.walk(nested, visit);
            }
        }
        self.limit.iter().chain(&self.offset).for_each(|expr| visit(expr, nested));
        match &self.body {
            Body::Select(select) => select.walk(nested, visit),
            Body::Values(rows) => rows.iter().flatten().for_each(|expr| visit(expr, nested)),
            Body::SetOperation(operation) => {
                operation.left.walk(nested, visit);
                operation.right.walk(nested, visit);
            }
        }
    }

    /// The same, to change the expressions.
    pub fn for_each_expr_mut(&mut self, visit: &mut dyn FnMut(&mut Expr, usize)) {
        self.walk_mut(0, visit);
    }

    fn walk_mut(&mut self, nested: usize, visit: &mut dyn FnMut(&mut Expr, usize)) {
        for cte in &mut self.ctes {
            cte.query.walk_mut(nested, visit);
            if let Some((recursive, _)) = &mut cte.recursive {
                recursive.walk_mut(nested, visit);
            }
        }
        self.limit.iter_mut().chain(&mut self.offset).for_each(|expr| visit(expr, nested));
        match &mut self.body {
            Body::Select(select) => select.walk_mut(nested, visit),
            Body::Values(rows) => rows.iter_mut().flatten().for_each(|expr| visit(expr, nested)),
            Body::SetOperation(operation) => {
                operation.left.walk_mut(nested, visit);
                operation.right.walk_mut(nested, visit);
            }
        }
    }

    /// Whether anything in it refers to a query around it.
    pub fn is_correlated(&self) -> bool {
        let mut found = false;
        self.for_each_expr(&mut |expr, nested| {
            expr.for_each_reference(nested + 1, &mut |_, _| found = true);
            expr.for_each_aggregate(nested + 1, &mut |_| found = true);
        });
        found
    }
}

impl JsonRecords {
    /// It gives a row for each object of an array.
    pub fn is_set(&self) -> bool {
        self.name.ends_with("recordset")
    }
}

impl RowsCall {
    /// The expressions in it.
    pub fn exprs(&self) -> &[Expr] {
        match self {
            RowsCall::Set { arguments, .. }
            | RowsCall::Unnest(arguments)
            | RowsCall::Together { arguments, .. } => arguments,
            RowsCall::Routine(call) => &call.arguments,
            RowsCall::Scalar(expr) => std::slice::from_ref(expr),
            RowsCall::Records(records) => std::slice::from_ref(&records.value),
        }
    }

    /// The expressions in it, to change them.
    pub fn exprs_mut(&mut self) -> &mut [Expr] {
        match self {
            RowsCall::Set { arguments, .. }
            | RowsCall::Unnest(arguments)
            | RowsCall::Together { arguments, .. } => arguments,
            RowsCall::Routine(call) => &mut call.arguments,
            RowsCall::Scalar(expr) => std::slice::from_mut(expr),
            RowsCall::Records(records) => std::slice::from_mut(&mut records.value),
        }
    }
}

/// The traversal of a SELECT's expressions, for shared and for exclusive references.
macro_rules! select_exprs {
    ($select:ident, $nested:ident, $visit:ident, $iter:ident, $exprs:ident, $walk:ident, $from:ident, $window:ident, [$($mutable:tt)?]) => {
        for relation in $select.relations.$iter() {
            match & $($mutable)? relation.source {
                Source::Query(query) => query.$walk($nested + 1, $visit),
                Source::Function(function) => {
                    function.call.$exprs().$iter().for_each(|expr| $visit(expr, $nested));
                }
                _ => {}
            }
        }
        for from in $select.from.$iter() {
            from.$from(&mut |expr| $visit(expr, $nested));
        }
        $select.filter.$iter().for_each(|expr| $visit(expr, $nested));
        if let Some(group) = & $($mutable)? $select.group {
            group.keys.$iter().for_each(|expr| $visit(expr, $nested));
            for aggregate in group.aggregates.$iter() {
                aggregate.arguments.$iter().for_each(|expr| $visit(expr, $nested));
                for order in aggregate.order.$iter() {
                    $visit(& $($mutable)? order.0, $nested);
                }
                aggregate.filter.$iter().for_each(|expr| $visit(expr, $nested));
            }
            group.having.$iter().for_each(|expr| $visit(expr, $nested));
        }
        for window in $select.windows.$iter() {
            window.$window(&mut |expr| $visit(expr, $nested));
        }
        for set in $select.set_returning.$iter() {
            set.call.$exprs().$iter().for_each(|expr| $visit(expr, $nested));
        }
        for target in $select.targets.$iter() {
            $visit(& $($mutable)? target.expr, $nested);
        }
    };
}

impl Select {
    /// Whether windows or set-returning calls take its rows.
    pub(crate) fn has_calls_behind(&self) -> bool {
        !self.windows.is_empty() || !self.set_returning.is_empty()
    }

    fn walk(&self, nested: usize, visit: &mut dyn FnMut(&Expr, usize)) {
        select_exprs!(self, nested, visit, iter, exprs, walk, for_each_condition, for_each_expr, []);
    }

    fn walk_mut(&mut self, nested: usize, visit: &mut dyn FnMut(&mut Expr, usize)) {
        select_exprs!(self, nested, visit, iter_mut, exprs_mut, walk_mut, for_each_condition_mut, for_each_expr_mut, [mut]);
    }
}

impl From {
    /// Calls `visit` with each join condition.
    pub fn for_each_condition(&self, visit: &mut dyn FnMut(&Expr)) {
        if let From::Join(join) = self {
            join.left.for_each_condition(visit);
            join.right.for_each_condition(visit);
            join.on.iter().for_each(visit);
        }
    }

    /// The same, to change them.
    pub fn for_each_condition_mut(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        if let From::Join(join) = self {
            join.left.for_each_condition_mut(visit);
            join.right.for_each_condition_mut(visit);
            join.on.iter_mut().for_each(visit);
        }
    }

    /// Calls `visit` with each relation.
    pub fn for_each_relation(&self, visit: &mut dyn FnMut(usize)) {
        match self {
            From::Unit => {}
            From::Relation(relation) => visit(*relation),
            From::Join(join) => {
                join.left.for_each_relation(visit);
                join.right.for_each_relation(visit);
            }
        }
    }
}
