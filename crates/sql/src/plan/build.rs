//! From a bound query to its plan.

use std::sync::Arc;

use super::join::{self, JoinPlanner};
use super::{Body, CtePlan, Group, Node, Plan, PlannedLock, Select};
use crate::bind::{self, Distinct, Query, RowCounts, SlotPart, Source};
use crate::catalog::Table;
use crate::error::{Result, SqlError};
use crate::expr::{Expr, SubqueryBody, SubqueryKind, Typed};
use crate::session::OutputColumn;
use crate::types::{Type, TypeId};

/// Rows read from which a plan counts as heavy.
const HEAVY_ROWS: f64 = 50_000.0;

/// Plans a bound statement. `ctes` is the number of common table expressions the binder numbered.
pub fn plan(
    mut query: Query,
    ctes: usize,
    parameters: Vec<Type>,
    tables: Vec<Arc<Table>>,
    counts: &dyn RowCounts,
) -> Result<Plan> {
    let columns: Vec<OutputColumn> = query.columns.clone();
    let locks = planned_locks(&mut query)?;
    let (mut limit, mut offset) = (None, None);
    let mut builder = Builder { counts, subqueries: 0 };
    if !locks.is_empty() {
        limit = query.limit.take();
        offset = query.offset.take();
        for expr in limit.iter_mut().chain(&mut offset) {
            builder.subqueries_of(expr)?;
        }
    }
    let mut root = builder.query(&query)?;
    if !locks.is_empty() {
        let hidden = locks.iter().map(|lock| lock.key + 1).max().unwrap_or(0);
        let node = Arc::get_mut(&mut root).ok_or_else(|| SqlError::internal("a fresh plan is not shared"))?;
        node.width = node.width.max(hidden);
    }
    let heavy = root.cost > HEAVY_ROWS;
    Ok(Plan {
        root,
        subqueries: builder.subqueries,
        ctes,
        columns,
        parameters,
        tables,
        locks,
        limit,
        offset,
        heavy,
    })
}

/// Adds the keys of the rows to lock to the targets.
fn planned_locks(query: &mut Query) -> Result<Vec<PlannedLock>> {
    let bind::Body::Select(select) = &mut query.body else { return Ok(vec![]) };
    let mut locks = vec![];
    for lock in select.locks.clone() {
        let relation = &select.relations[lock.relation];
        let Source::Table(table) = &relation.source else {
            return Err(SqlError::unsupported("FOR UPDATE or FOR SHARE of anything but a table"));
        };
        let slot = relation
            .key_slot
            .ok_or_else(|| SqlError::internal("a relation to be locked has no place for its rows' keys"))?;
        let key = select.targets.len();
        locks.push(PlannedLock { table: table.clone(), exclusive: lock.exclusive, wait: lock.wait, key });
        select.targets.push(Typed::new(Expr::Slot(slot), TypeId::Bytea));
    }
    Ok(locks)
}

/// What is the same for all queries of a statement.
pub(super) struct Builder<'a> {
    pub(super) counts: &'a dyn RowCounts,
    subqueries: usize,
}

impl Builder<'_> {
    /// Plans one query and everything in it.
    pub(super) fn query(&mut self, query: &Query) -> Result<Arc<Node>> {
        let outer = outer_references(query);
        let ctes = query.ctes.iter().map(|cte| self.cte(cte)).collect::<Result<Vec<_>>>()?;
        let (mut limit, mut offset) = (query.limit.clone(), query.offset.clone());
        for expr in limit.iter_mut().chain(&mut offset) {
            self.subqueries_of(expr)?;
        }
        let mut sort = query.order.clone();
        let (body, cost) = match &query.body {
            bind::Body::Select(select) => {
                let (select, cost, ordered) = self.select(select, &sort, limit.is_some())?;
                if ordered {
                    sort.clear();
                }
                (Body::Select(Box::new(select)), cost)
            }
            bind::Body::Values(rows) => {
                let mut rows = rows.clone();
                for expr in rows.iter_mut().flatten() {
                    self.subqueries_of(expr)?;
                }
                let cost = rows.len() as f64;
                (Body::Values(rows), cost)
            }
            bind::Body::SetOperation(operation) => {
                let (left, right) = (self.query(&operation.left)?, self.query(&operation.right)?);
                let cost = left.cost + right.cost;
                (Body::SetOperation { kind: operation.kind, all: operation.all, left, right }, cost)
            }
        };
        let cost = cost + ctes.iter().map(|cte| cte.node.cost).sum::<f64>();
        Ok(Arc::new(Node {
            body,
            sort,
            limit,
            offset,
            width: query.columns.len(),
            conversions: query.conversions.clone(),
            ctes,
            outer,
            cost,
        }))
    }

    fn cte(&mut self, cte: &bind::Cte) -> Result<CtePlan> {
        let recursive = match &cte.recursive {
            Some((query, distinct)) => Some((self.query(query)?, *distinct)),
            None => None,
        };
        Ok(CtePlan { number: cte.number, name: cte.name.clone(), node: self.query(&cte.query)?, recursive })
    }

    /// Plans one query level; also its cost, and whether its rows come in the order asked for.
    fn select(
        &mut self,
        bound: &bind::Select,
        order: &[bind::SortKey],
        limited: bool,
    ) -> Result<(Select, f64, bool)> {
        let mut select = bound.clone();
        self.subqueries_of_level(&mut select)?;
        let wanted = wanted_order(&select, order);
        let conditions = std::mem::take(&mut select.filter);
        let (conditions, volatile): (Vec<_>, Vec<_>) =
            conditions.into_iter().partition(|condition| !condition.is_volatile());
        let mut planner = JoinPlanner {
            bound: vec![false; select.slots.len()],
            select: &select,
            builder: self,
            limited: limited && wanted.is_some(),
            wanted: wanted.clone().unwrap_or_default(),
        };
        let joined = planner.plan(&select.from, conditions)?;
        let ordered = !order.is_empty() && wanted.is_some() && joined.ordered;
        let input = join::filtered(joined.input, volatile);
        let group = select.group.take().map(|group| Group {
            keys: group.keys,
            aggregates: group.aggregates,
            having: group.having,
        });
        let planned = Select {
            frame: select.slots.len(),
            input,
            group,
            set_returning: select.set_returning,
            targets: select.targets.into_iter().map(|target| target.expr).collect(),
            distinct: select.distinct,
            visible: select.visible,
        };
        Ok((planned, joined.cost, ordered))
    }

    /// Plans the subqueries in a SELECT's own expressions.
    fn subqueries_of_level(&mut self, select: &mut bind::Select) -> Result<()> {
        for relation in &mut select.relations {
            if let Source::Function(function) = &mut relation.source {
                for expr in function.call.exprs_mut() {
                    self.subqueries_of(expr)?;
                }
            }
        }
        let mut failed = None;
        for from in &mut select.from {
            from.for_each_condition_mut(&mut |expr| {
                if let Err(error) = self.subqueries_of(expr) {
                    failed = Some(error);
                }
            });
        }
        if let Some(error) = failed {
            return Err(error);
        }
        for expr in &mut select.filter {
            self.subqueries_of(expr)?;
        }
        if let Some(group) = &mut select.group {
            for expr in group.keys.iter_mut().chain(&mut group.having) {
                self.subqueries_of(expr)?;
            }
            for aggregate in &mut group.aggregates {
                for expr in aggregate.arguments.iter_mut().chain(&mut aggregate.filter) {
                    self.subqueries_of(expr)?;
                }
                for (expr, _, _) in &mut aggregate.order {
                    self.subqueries_of(expr)?;
                }
            }
        }
        for set in &mut select.set_returning {
            for expr in set.call.exprs_mut() {
                self.subqueries_of(expr)?;
            }
        }
        for target in &mut select.targets {
            self.subqueries_of(&mut target.expr)?;
        }
        Ok(())
    }

    /// Plans the subqueries in an expression.
    pub(crate) fn subqueries_of(&mut self, expr: &mut Expr) -> Result<()> {
        let mut failed = None;
        expr.for_each_child_mut(&mut |child| {
            if let Err(error) = self.subqueries_of(child) {
                failed = Some(error);
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let Expr::Subquery(subquery) = expr else { return Ok(()) };
        let SubqueryBody::Bound(query) = &subquery.body else { return Ok(()) };
        let mut volatile = false;
        query.for_each_expr(&mut |expr, _| volatile |= expr.is_volatile());
        let mut once = !query.is_correlated() && !volatile;
        if let SubqueryKind::Any { hashable, .. } = &subquery.kind {
            once &= *hashable || !volatile;
        }
        let node = if matches!(subquery.kind, SubqueryKind::Exists) && query.limit.is_none() {
            let mut query = query.clone();
            query.order.clear();
            self.query(&query)?
        } else {
            self.query(query)?
        };
        let cache = once.then(|| {
            self.subqueries += 1;
            self.subqueries - 1
        });
        subquery.body = SubqueryBody::Planned { node, cache };
        Ok(())
    }
}

/// The order as slots of the frame, if all that sorts is columns handed through.
fn wanted_order(select: &bind::Select, order: &[bind::SortKey]) -> Option<Vec<(usize, bool, bool)>> {
    let plain = select.group.is_none() && select.set_returning.is_empty() && select.distinct == Distinct::No;
    if order.is_empty() || !plain {
        return None;
    }
    order
        .iter()
        .map(|key| match &select.targets.get(key.column)?.expr {
            Expr::Slot(slot) if matches!(select.slots[*slot].part, SlotPart::Column(_)) => {
                Some((*slot, key.descending, key.nulls_first))
            }
            _ => None,
        })
        .collect()
}

fn outer_references(query: &Query) -> Vec<(usize, usize)> {
    let mut outer = vec![];
    query.for_each_expr(&mut |expr, nested| {
        expr.for_each_reference(nested + 1, &mut |depth, slot| outer.push((depth + 1, slot)));
    });
    outer.sort_unstable();
    outer.dedup();
    outer
}
