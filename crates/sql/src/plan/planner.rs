//! The planner: from bound queries to plans.

use std::collections::HashMap;
use std::sync::Arc;

use super::estimate::UNKNOWN_ROWS;
use super::{CtePlan, CtePlans, Node, Plan, PlannedLock, keyed};
use crate::bind::{Body, Cte, Distinct, Query, RowCounts, RowsCall, SetKind, Source, Taken};
use crate::catalog::Table;
use crate::error::{Result, SqlError};
use crate::expr::{Expr, Subquery, SubqueryBody, SubqueryKind, Typed};
use crate::function::Volatility;
use crate::types::{Type, TypeId, bounds};

/// What a query under EXISTS gives is not computed, and cannot fail, where it has no part in
/// whether there is a row.
fn leave_out_outputs(query: &mut Query) {
    let Body::Select(select) = &mut query.body else { return };
    let makes_rows = select.group.is_some() || select.has_calls_behind();
    if !makes_rows && select.locks.is_empty() {
        select.distinct = Distinct::No;
        select.targets.iter_mut().for_each(|target| target.expr = Expr::NULL);
    }
}

/// State of planning one statement.
pub(super) struct Planner<'a> {
    pub(super) row_counts: &'a dyn RowCounts,
    pub(super) parameters: Vec<TypeId>,
    /// Places handed out for cached results of subqueries.
    subqueries: usize,
    /// Plans of subqueries that several columns share, the places of their results, and whether
    /// they are run once for an execution; by row.
    rows: HashMap<u64, (Arc<Node>, usize, bool)>,
    ctes: HashMap<usize, CteState>,
    /// Recursive parts around what is being planned.
    recursions: usize,
    /// Queries and expressions that it has come to.
    steps: usize,
}

/// Of so many steps one asks whether the statement should stop.
const STEPS_UNASKED: usize = 64;

/// How far a common table expression is planned.
enum CteState {
    /// Not yet: to be planned in place of its only reference.
    Inline(Box<Cte>),
    /// To be read from its rows, of which there are about so many.
    Shared(Arc<CtePlan>, f64),
    /// Its recursive part is being planned.
    Working(f64),
}

/// What a reference to a common table expression is replaced by.
pub(super) enum CteReference {
    /// Its query.
    Inline(Box<Query>),
    /// Its rows, of which there are about so many.
    Rows(f64),
}

/// A planned query with its estimate.
pub(super) struct Planned {
    pub(super) node: Node,
    pub(super) rows: f64,
    pub(super) cost: f64,
}

/// Plans a bound statement. `ctes` is the number of common table expressions the binder numbered.
pub fn plan(
    mut query: Query,
    ctes: usize,
    parameters: Vec<Type>,
    tables: Vec<Arc<Table>>,
    row_counts: &dyn RowCounts,
) -> Result<Plan> {
    let types = parameters.iter().map(|ty| ty.id).collect();
    let columns = query.columns.clone();
    let locks = take_locks(&mut query)?;
    let taken = Taken(row_counts);
    let mut planner = Planner {
        row_counts: if locks.is_empty() { row_counts } else { &taken },
        parameters: types,
        subqueries: 0,
        rows: HashMap::new(),
        ctes: HashMap::new(),
        recursions: 0,
        steps: 0,
    };
    let (mut limit, mut offset) = (None, None);
    if !locks.is_empty() {
        limit = query.limit.take();
        offset = query.offset.take();
        for expr in limit.iter_mut().chain(&mut offset) {
            planner.subqueries(expr)?;
        }
    }
    let planned = planner.query(query)?;
    let cte_plans = planner.cte_plans(ctes)?;
    Ok(Plan {
        root: Arc::new(planned.node),
        subqueries: planner.subqueries,
        ctes,
        cte_plans,
        columns,
        parameters,
        tables,
        routines: vec![],
        locks,
        limit,
        offset,
        cost: planned.cost,
    })
}

/// Plans the subqueries of expressions that are evaluated beside a query's rows, or by themselves.
/// `subqueries` counts the places for cached results, from those of the query on. The query's
/// common table expressions can be read too. Gives those of the subqueries themselves that are read
/// from their rows, by number, of so many of the statement.
pub fn plan_expressions(
    exprs: &mut [Expr],
    subqueries: &mut usize,
    ctes: usize,
    row_counts: &dyn RowCounts,
) -> Result<CtePlans> {
    let mut planner = Planner {
        row_counts,
        parameters: vec![],
        subqueries: *subqueries,
        rows: HashMap::new(),
        ctes: HashMap::new(),
        recursions: 0,
        steps: 0,
    };
    for expr in exprs {
        planner.subqueries(expr)?;
    }
    let cte_plans = planner.cte_plans(ctes)?;
    *subqueries = planner.subqueries;
    Ok(cte_plans)
}

/// Adds the keys of the rows to lock behind the output.
fn take_locks(query: &mut Query) -> Result<Vec<PlannedLock>> {
    let Body::Select(select) = &mut query.body else { return Ok(vec![]) };
    let mut locks = vec![];
    for lock in std::mem::take(&mut select.locks) {
        let relation = &select.relations[lock.relation];
        let Source::Table(table) = &relation.source else {
            return Err(SqlError::unsupported("FOR UPDATE or FOR SHARE of anything but a table"));
        };
        let slot = relation
            .key_slot
            .ok_or_else(|| SqlError::internal("a relation to be locked has no place for its rows' keys"))?;
        let key = select.targets.len();
        locks.push(PlannedLock { table: table.clone(), mode: lock.mode, wait: lock.wait, key });
        select.targets.push(Typed::new(Expr::Slot(slot), TypeId::Bytea));
        select.visible = select.targets.len();
    }
    Ok(locks)
}

impl Planner<'_> {
    /// It has come to one more query or expression: now and then it asks whether to go on.
    pub(super) fn step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_UNASKED) { bounds::ask() } else { Ok(()) }
    }

    /// Plans the subqueries within an expression.
    pub(super) fn subqueries(&mut self, expr: &mut Expr) -> Result<()> {
        let mut result = Ok(());
        expr.for_each_child_mut(&mut |child| {
            if result.is_ok() {
                result = self.subqueries(child);
            }
        });
        result?;
        if let Expr::Subquery(subquery) = expr {
            self.subquery(subquery)?;
        }
        Ok(())
    }

    fn subquery(&mut self, subquery: &mut Subquery) -> Result<()> {
        let SubqueryBody::Bound(query) = &mut subquery.body else { return Ok(()) };
        if let SubqueryKind::Shared { row, once, .. } = &mut subquery.kind
            && let Some((node, place, is_once)) = self.rows.get(&*row)
        {
            // The first column may be there twice, where what it is part of was written out twice.
            *once = *is_once;
            subquery.body = SubqueryBody::Planned { node: node.clone(), cache: Some(*place) };
            return Ok(());
        }
        let empty = Query::of(Body::Values(vec![]), vec![]);
        let mut query = std::mem::replace(query.as_mut(), empty);
        let is_exists = matches!(subquery.kind, SubqueryKind::Exists);
        let keyed = keyed::keyed(&subquery.kind, &query);
        // EXISTS asks for one row in any order.
        if is_exists && query.limit.is_none() && query.offset.is_none() {
            query.order.clear();
            query.limit = Some(Expr::Constant(1i64.into()));
            leave_out_outputs(&mut query);
        }
        // One that refers to nothing around it is run once, volatile or not: `(SELECT random())`
        // is one number for all rows. What a step of a recursion has computed is around it.
        let changes = self.recursions > 0 && reads_cte(&query);
        let once = !query.is_correlated() && !changes;
        let node = Arc::new(self.query(query)?.node);
        if let SubqueryKind::Shared { column, in_order: false, .. } = subquery.kind
            && !once
        {
            subquery.kind = SubqueryKind::Column(column);
        }
        if let Some(keyed) = keyed {
            self.subqueries += 1;
            subquery.kind = SubqueryKind::Sought(Box::new(self.sought(keyed, self.subqueries - 1)?));
        }
        let is_shared = matches!(subquery.kind, SubqueryKind::Shared { .. });
        let cache = (once || is_shared).then(|| {
            self.subqueries += 1;
            self.subqueries - 1
        });
        if let (SubqueryKind::Shared { row, once: is_once, .. }, Some(place)) = (&mut subquery.kind, cache) {
            *is_once = once;
            self.rows.insert(*row, (node.clone(), place, once));
        }
        subquery.body = SubqueryBody::Planned { node, cache };
        Ok(())
    }

    /// Plans a query.
    pub(super) fn query(&mut self, mut query: Query) -> Result<Planned> {
        self.step()?;
        stacker::maybe_grow(256 * 1024, 4 * 1024 * 1024, || {
            let mut tied = vec![];
            for cte in std::mem::take(&mut query.ctes) {
                let number = cte.number;
                self.cte(cte)?;
                if let Some(CteState::Shared(plan, _)) = self.ctes.get(&number)
                    && plan.correlated
                {
                    tied.push(Arc::clone(plan));
                }
            }
            for expr in query.limit.iter_mut().chain(&mut query.offset) {
                self.subqueries(expr)?;
            }
            let planned = match query.body {
                Body::Select(_) => self.select_query(query)?,
                _ => self.plain_query(query)?,
            };
            if tied.is_empty() {
                return Ok(planned);
            }
            let node = Node::With { input: Box::new(planned.node), ctes: tied.into() };
            Ok(Planned { node, ..planned })
        })
    }

    /// VALUES and set operations.
    fn plain_query(&mut self, query: Query) -> Result<Planned> {
        let width = query.columns.len();
        let ties = query.tied();
        let planned = match query.body {
            Body::Values(mut rows) => {
                for expr in rows.iter_mut().flatten() {
                    self.subqueries(expr)?;
                }
                let count = rows.len() as f64;
                Planned { node: Node::Values(rows), rows: count, cost: count * 0.05 }
            }
            Body::SetOperation(operation) => {
                let left = self.query(operation.left)?;
                let right = self.query(operation.right)?;
                let rows = match operation.kind {
                    SetKind::Union => left.rows + right.rows,
                    _ => left.rows,
                };
                let is_union = operation.kind == SetKind::Union;
                let mut node = Node::SetOperation {
                    kind: operation.kind,
                    all: operation.all || is_union,
                    left: Box::new(left.node),
                    right: Box::new(right.node),
                };
                if is_union && !operation.all {
                    node = Node::Distinct { input: Box::new(node), columns: (0..width).collect() };
                }
                let cost = left.cost + right.cost + if operation.all { 0.0 } else { rows * 0.4 };
                Planned { rows, cost, node }
            }
            Body::Select(_) => return Err(SqlError::internal("a SELECT planned as something else")),
        };
        let stop = query.limit.as_ref().filter(|_| ties.is_empty());
        let planned = super::finish::sorted(planned, query.order, stop, query.offset.as_ref());
        let planned = super::finish::limited(planned, query.limit, query.offset, ties);
        Ok(super::finish::converted(planned, query.conversions, width, width))
    }

    fn cte(&mut self, cte: Cte) -> Result<()> {
        let inline = cte.recursive.is_none()
            && cte.references <= 1
            && cte.materialized != Some(true)
            && !is_volatile_query(&cte.query);
        if inline {
            self.ctes.insert(cte.number, CteState::Inline(Box::new(cte)));
            return Ok(());
        }
        self.shared_cte(cte)
    }

    /// Plans a common table expression that is read from its rows.
    fn shared_cte(&mut self, cte: Cte) -> Result<()> {
        let correlated = cte.query.is_correlated()
            || cte.recursive.as_ref().is_some_and(|(recursive, _)| recursive.is_correlated());
        let base = self.query(cte.query)?;
        let (recursive, rows) = match cte.recursive {
            Some((query, distinct)) => {
                self.ctes.insert(cte.number, CteState::Working(base.rows));
                self.recursions += 1;
                let planned = self.query(query)?;
                self.recursions -= 1;
                (Some((planned.node, distinct)), base.rows * 10.0)
            }
            None => (None, base.rows),
        };
        let plan = Arc::new(CtePlan {
            number: cte.number,
            name: cte.name,
            node: base.node,
            recursive,
            end: cte.end,
            correlated,
        });
        self.ctes.insert(cte.number, CteState::Shared(plan, rows));
        Ok(())
    }

    /// What to put in place of a reference.
    pub(super) fn cte_reference(&mut self, number: usize) -> CteReference {
        match self.ctes.remove(&number) {
            Some(CteState::Inline(cte)) => CteReference::Inline(Box::new(cte.query)),
            Some(state) => {
                let (CteState::Shared(_, rows) | CteState::Working(rows)) = &state else {
                    return CteReference::Rows(UNKNOWN_ROWS);
                };
                let rows = *rows;
                self.ctes.insert(number, state);
                CteReference::Rows(rows)
            }
            // Of the query beside which this expression is evaluated.
            None => CteReference::Rows(UNKNOWN_ROWS),
        }
    }

    /// The common table expressions that are read from their rows. Those that the query itself does
    /// not refer to may be read by expressions beside it.
    fn cte_plans(&mut self, count: usize) -> Result<CtePlans> {
        let mut plans = vec![None; count];
        while let Some(number) = self.ctes.keys().next().copied() {
            match self.ctes.remove(&number) {
                Some(CteState::Inline(cte)) if cte.references > 0 => self.shared_cte(*cte)?,
                Some(CteState::Shared(plan, _)) => {
                    if let Some(place) = plans.get_mut(number) {
                        *place = Some(plan);
                    }
                }
                _ => {}
            }
        }
        Ok(plans.into())
    }
}

/// Whether a query calls volatile functions, in subqueries of its expressions, too.
pub(crate) fn is_volatile_query(query: &Query) -> bool {
    let mut found = reads_volatile(query);
    query.for_each_expr(&mut |expr, _| {
        found = found || expr.is_volatile() || expr.any(&mut is_volatile_subquery);
    });
    found
}

fn is_volatile_subquery(expr: &Expr) -> bool {
    match expr {
        Expr::Subquery(subquery) => match &subquery.body {
            SubqueryBody::Bound(query) => is_volatile_query(query),
            SubqueryBody::Planned { .. } => false,
        },
        _ => false,
    }
}

/// Whether a relation's rows may be others each time it is read. Those of a WITH query are computed
/// once in any case.
pub(super) fn gives_other_rows(source: &Source) -> bool {
    match source {
        Source::Query(query) => is_volatile_query(query),
        Source::Function(function) => {
            gives_rows_anew(&function.call) || function.call.exprs().iter().any(Expr::is_volatile)
        }
        _ => false,
    }
}

/// Whether a function in FROM is volatile, whatever its arguments are.
fn gives_rows_anew(call: &RowsCall) -> bool {
    match call {
        RowsCall::Set { function, .. } => function.volatility == Volatility::Volatile,
        RowsCall::Routine(call) => call.volatility == Volatility::Volatile,
        _ => false,
    }
}

/// Whether it reads rows of a volatile function.
fn reads_volatile(query: &Query) -> bool {
    match &query.body {
        Body::Select(select) => select.relations.iter().any(|relation| match &relation.source {
            Source::Function(function) => gives_rows_anew(&function.call),
            Source::Query(query) => reads_volatile(query),
            _ => false,
        }),
        Body::SetOperation(operation) => reads_volatile(&operation.left) || reads_volatile(&operation.right),
        Body::Values(_) => false,
    }
}

/// Whether a query reads a common table expression, or has one.
fn reads_cte(query: &Query) -> bool {
    let in_body = match &query.body {
        Body::Select(select) => select.relations.iter().any(|relation| match &relation.source {
            Source::Cte(_) => true,
            Source::Query(query) => reads_cte(query),
            _ => false,
        }),
        Body::SetOperation(operation) => reads_cte(&operation.left) || reads_cte(&operation.right),
        Body::Values(_) => false,
    };
    let mut found = in_body || !query.ctes.is_empty();
    query.for_each_expr(&mut |expr, _| {
        expr.visit(&mut |part| {
            if let Expr::Subquery(subquery) = part
                && let SubqueryBody::Bound(query) = &subquery.body
            {
                found = found || reads_cte(query);
            }
        });
    });
    found
}
