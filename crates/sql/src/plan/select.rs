//! Planning of one query level.

use super::access::scan;
use super::estimate::{MEMORY_ROW, OPEN, limit_rows};
use super::finish::{converted, distinct, limited, sorted};
use super::group::plan_group;
use super::join::{
    Chosen, Inner, ItemKind, Joiner, LeafEstimate, Method, Problem, Step, hash_key, inside_problem,
};
use super::merge::merged;
use super::path::Path;
use super::planner::{CteReference, Planned, Planner, gives_other_rows};
use super::pushdown::push_down;
use super::relation::{Condition, Mask, bit, filled_slots, mask_of, slots_of, take_volatile};
use super::sides::{by_itself, read_once, renumber};
use super::window::{keep_first, plan_windows};
use super::{GroupNode, HashJoin, Node, SelectNode, SourceNode};
use crate::bind::{
    Body, Distinct, MAX_RELATIONS, Query, Relation, RowCounts, RowsCall, Select, SortKey, Source, Taken,
    too_many_relations,
};
use crate::error::{Result, SqlError};
use crate::expr::Expr;
use crate::types::bounds;

/// Conditions looked at between two questions whether to stop.
const CONDITIONS_UNASKED: usize = 64;

/// A planned FROM with WHERE.
struct PlannedSource {
    node: SourceNode,
    rows: f64,
    cost: f64,
    ordered: bool,
}

impl Planner<'_> {
    /// A query whose body is a SELECT.
    pub(super) fn select_query(&mut self, query: Query) -> Result<Planned> {
        let ties = query.tied();
        let Query { body: Body::Select(select), order, limit, offset, conversions, .. } = query else {
            return Err(SqlError::internal("no SELECT"));
        };
        let mut select = *select;
        self.level_subqueries(&mut select)?;
        let visible = select.visible;
        let width = select.targets.len();
        let plain = select.group.is_none() && !select.has_calls_behind() && select.distinct == Distinct::No;
        let wanted = if plain { slot_order(&select, &order) } else { None };
        let first = minimum_or_maximum(&select);
        let limit_hint = if plain { limit_rows(limit.as_ref(), offset.as_ref()) } else { None };
        let source = match &first {
            Some((slot, descending)) => {
                let extreme = [(*slot, *descending, *descending)];
                let not_null = Expr::IsNull { operand: Box::new(Expr::Slot(*slot)), negated: true };
                let with_order =
                    self.source(&mut select.clone(), Some(&extreme), Some(1.0), Some(not_null))?;
                if with_order.ordered {
                    PlannedSource {
                        node: SourceNode::First(Box::new(with_order.node)),
                        rows: 1.0,
                        cost: OPEN + 1.0,
                        ..with_order
                    }
                } else {
                    self.source(&mut select, None, None, None)?
                }
            }
            None => self.source(&mut select, wanted.as_deref(), limit_hint, None)?,
        };
        let (mut rows, mut cost) = (source.rows, source.cost);
        let group = select.group.take().map(|group| plan_group(group, select.slots.len()));
        if let Some(group) = &group {
            cost += rows * (MEMORY_ROW + 0.1 * group.aggregates.len() as f64);
            rows = if group.keys.is_empty() { 1.0 } else { (rows * 0.3).max(1.0) };
        }
        if let (Some(limit), true) = (limit_hint, source.ordered || order.is_empty()) {
            cost *= (limit / rows.max(1.0)).min(1.0);
        }
        let base = group.as_ref().map_or(select.slots.len(), GroupNode::width);
        let (windows, more, in_order) = plan_windows(&mut select, &order, base, rows);
        let ordered = source.ordered || in_order;
        if !select.set_returning.is_empty() {
            rows *= 10.0;
        }
        let node = Node::Select(Box::new(SelectNode {
            frame: select.slots.len(),
            source: source.node,
            group,
            windows,
            set_returning: select.set_returning,
            targets: select.targets.into_iter().map(|target| target.expr).collect(),
        }));
        let mut planned = Planned { node, rows, cost: cost + more };
        if select.distinct == Distinct::All {
            planned = distinct(planned, (0..visible).collect());
        }
        if !ordered {
            // DISTINCT ON takes the first of each kind after the sort.
            let is_cut = ties.is_empty() && !matches!(select.distinct, Distinct::On(_));
            planned = sorted(planned, order, limit.as_ref().filter(|_| is_cut), offset.as_ref());
        }
        if let Distinct::On(columns) = select.distinct {
            planned = distinct(planned, columns);
        }
        let planned = limited(planned, limit, offset, ties);
        Ok(converted(planned, conversions, visible, width))
    }

    /// Plans the subqueries in a level's expressions.
    fn level_subqueries(&mut self, select: &mut Select) -> Result<()> {
        if select.relations.len() > MAX_RELATIONS {
            return Err(too_many_relations());
        }
        let mut result = Ok(());
        let mut plan = |expr: &mut Expr, planner: &mut Self| {
            if result.is_ok() {
                result = planner.step().and_then(|()| planner.subqueries(expr));
            }
        };
        for tree in &mut select.from {
            tree.for_each_condition_mut(&mut |expr| plan(expr, self));
        }
        for expr in &mut select.filter {
            plan(expr, self);
        }
        for relation in &mut select.relations {
            if let Source::Function(function) = &mut relation.source {
                function.call.exprs_mut().iter_mut().for_each(|expr| plan(expr, self));
            }
        }
        if let Some(group) = &mut select.group {
            group.keys.iter_mut().for_each(|expr| plan(expr, self));
            for aggregate in &mut group.aggregates {
                aggregate.arguments.iter_mut().for_each(|expr| plan(expr, self));
                aggregate.order.iter_mut().for_each(|(expr, ..)| plan(expr, self));
                aggregate.filter.iter_mut().for_each(|expr| plan(expr, self));
            }
            group.having.iter_mut().for_each(|expr| plan(expr, self));
        }
        for window in &mut select.windows {
            window.for_each_expr_mut(&mut |expr| plan(expr, self));
        }
        for set in &mut select.set_returning {
            set.call.exprs_mut().iter_mut().for_each(|expr| plan(expr, self));
        }
        for target in &mut select.targets {
            plan(&mut target.expr, self);
        }
        result
    }

    /// FROM and WHERE. `extra` is one more condition.
    fn source(
        &mut self,
        select: &mut Select,
        wanted: Option<&[(usize, bool, bool)]>,
        limit: Option<f64>,
        extra: Option<Expr>,
    ) -> Result<PlannedSource> {
        let filter = std::mem::take(&mut select.filter);
        let mut conditions: Vec<Condition> = vec![];
        for (place, expr) in filter.into_iter().chain(extra).enumerate() {
            ask_now_and_then(place)?;
            conditions.push(Condition::new(select, expr));
        }
        push_down(select, &mut conditions);
        // Conditions on no relation decide before anything is read.
        let (mut gates, conditions): (Vec<_>, Vec<_>) =
            conditions.into_iter().partition(|condition| condition.mask == 0 && !condition.volatile);
        if gates
            .iter()
            .any(|gate| matches!(&gate.expr, Expr::Constant(value) if value.as_bool() != Some(true)))
        {
            return Ok(PlannedSource { node: SourceNode::Nothing, rows: 0.0, cost: 0.0, ordered: true });
        }
        let mut leaves = vec![];
        let mut nodes = vec![];
        for relation in 0..select.relations.len() {
            let (estimate, node) = self.leaf(select, relation)?;
            leaves.push(estimate);
            nodes.push(node);
        }
        let trees = std::mem::take(&mut select.from);
        let parameters = self.parameters.clone();
        let taken = Taken(self.row_counts);
        let row_counts: &dyn RowCounts = if limit.is_some() { &taken } else { self.row_counts };
        let joiner = Joiner::new(select, &parameters, row_counts, &leaves);
        let mut problem = joiner.problem(&trees, conditions)?;
        let volatile: Vec<Expr> = take_volatile(&mut problem.conditions);
        let chosen = joiner.choose(&problem, 0, wanted, limit)?;
        // The first relation is read with those of inner joins, if the sequence begins with one.
        if chosen.steps.first().is_none_or(|step| step.method != Method::Start) {
            gates.extend(problem.conditions.iter().filter(|condition| condition.mask == 0).cloned());
        }
        let (rows, cost, ordered) = (chosen.rows, chosen.cost, wanted.is_some() && chosen.ordered);
        let requires = leaves.iter().map(|leaf| leaf.map_or(0, |leaf| leaf.requires)).collect();
        let mut builder = Builder { select, nodes, requires, once: read_once(&leaves) };
        let mut node = builder.sequence(&problem, chosen, 0)?;
        node = filtered(node, volatile);
        if ordered {
            node.keep_order();
        }
        if !gates.is_empty() {
            let gate = filtered(SourceNode::Unit, gates.into_iter().map(|gate| gate.expr).collect());
            node = SourceNode::NestedLoop {
                outer: Box::new(gate),
                inner: Box::new(node),
                on: vec![],
                nulls: None,
            };
        }
        Ok(PlannedSource { node, rows, cost, ordered })
    }

    /// The node and estimate of a relation that is no stored table.
    fn leaf(
        &mut self,
        select: &mut Select,
        relation: usize,
    ) -> Result<(Option<LeafEstimate>, Option<SourceNode>)> {
        let slots = filled_slots(&select.relations[relation]);
        let name = select.relations[relation].alias.clone();
        let columns = select.relations[relation].columns.clone();
        let source = std::mem::replace(&mut select.relations[relation].source, Source::Taken);
        let volatile = gives_other_rows(&source);
        let mut requires: Mask = 0;
        let (node, rows, cost) = match source {
            Source::Table(table) => {
                select.relations[relation].source = Source::Table(table);
                return Ok((None, None));
            }
            Source::Taken => return Err(SqlError::internal("a relation that nothing reads in FROM")),
            Source::Virtual(table) => (SourceNode::Virtual { table, slots, key: None }, 100.0, 20.0),
            Source::Query(query) => {
                query.for_each_expr(&mut |expr, nested| {
                    expr.for_each_reference(nested + 1, &mut |depth, slot| {
                        if depth == 0 {
                            requires |= bit(select.slots[slot].relation);
                        }
                    });
                });
                let planned = self.query(*query)?;
                let node = SourceNode::Query { node: Box::new(planned.node), slots, name, columns };
                (node, planned.rows, planned.cost)
            }
            Source::Cte(number) => match self.cte_reference(number) {
                CteReference::Inline(query) => {
                    let planned = self.query(*query)?;
                    let node = SourceNode::Query { node: Box::new(planned.node), slots, name, columns };
                    (node, planned.rows, planned.cost)
                }
                CteReference::Rows(rows) => {
                    (SourceNode::Cte { number, name, columns, slots }, rows, rows * MEMORY_ROW)
                }
            },
            Source::Function(function) => {
                for expr in function.call.exprs() {
                    requires |= mask_of(select, expr);
                }
                let width = select.relations[relation].types.len();
                let ordinality = function.ordinality.then(|| width - 1);
                let rows = match &function.call {
                    RowsCall::Scalar(_) => 1.0,
                    RowsCall::Routine(call) if !call.is_set => 1.0,
                    RowsCall::Records(records) if !records.is_set() => 1.0,
                    _ => 100.0,
                };
                let call = function.call;
                (SourceNode::Function { call, ordinality, slots, name, columns }, rows, rows * 0.1)
            }
        };
        Ok((Some(LeafEstimate { rows, cost, requires, volatile }), Some(node)))
    }
}

/// The order of a query as places of the frame, if all its keys are such.
fn slot_order(select: &Select, order: &[SortKey]) -> Option<Vec<(usize, bool, bool)>> {
    if order.is_empty() {
        return None;
    }
    order
        .iter()
        .map(|key| match select.targets[key.column].expr {
            Expr::Slot(slot) => Some((slot, key.descending, key.nulls_first)),
            _ => None,
        })
        .collect()
}

/// The place whose smallest or largest value is all that is asked for, and whether it is the
/// largest.
fn minimum_or_maximum(select: &Select) -> Option<(usize, bool)> {
    let group = select.group.as_ref()?;
    let [aggregate] = group.aggregates.as_slice() else { return None };
    let descending = match aggregate.function.function.name {
        "min" => false,
        "max" => true,
        _ => return None,
    };
    let plain = group.keys.is_empty()
        && group.sets.is_none()
        && aggregate.filter.is_none()
        && matches!(select.relations.as_slice(), [Relation { source: Source::Table(_), .. }]);
    match aggregate.arguments.as_slice() {
        [Expr::Slot(slot)] if plain => Some((*slot, descending)),
        _ => None,
    }
}

/// Asks whether the statement should stop, of many conditions now and then.
fn ask_now_and_then(place: usize) -> Result<()> {
    if place % CONDITIONS_UNASKED == CONDITIONS_UNASKED - 1 { bounds::ask() } else { Ok(()) }
}

/// Conditions in the order of their cost: subqueries last.
fn ordered_conditions(conditions: Vec<&Condition>) -> Vec<Expr> {
    let (slow, fast): (Vec<_>, Vec<_>) = conditions.into_iter().partition(|condition| condition.has_subquery);
    fast.into_iter().chain(slow).map(|condition| condition.expr.clone()).collect()
}

fn filtered(node: SourceNode, conditions: Vec<Expr>) -> SourceNode {
    if conditions.is_empty() {
        return node;
    }
    match node {
        SourceNode::Scan(mut scan) => {
            scan.add_filter(conditions);
            SourceNode::Scan(scan)
        }
        mut node => {
            keep_first(&mut node, &conditions);
            SourceNode::Filter { input: Box::new(node), conditions }
        }
    }
}

/// Turns chosen joins into nodes.
struct Builder<'a> {
    select: &'a Select,
    /// Nodes of the relations that are no stored tables, each used once.
    nodes: Vec<Option<SourceNode>>,
    /// What each relation refers to (LATERAL). A node alone does not tell: WITH queries are planned
    /// beside it.
    requires: Vec<Mask>,
    /// Those that must not be read again for the next row of others.
    once: Mask,
}

impl Builder<'_> {
    fn sequence(&mut self, problem: &Problem, chosen: Chosen, available: Mask) -> Result<SourceNode> {
        let mut node = SourceNode::Unit;
        let mut placed: Mask = 0;
        for step in chosen.steps {
            let item = &problem.items[step.item];
            let before = placed | available;
            placed |= item.provides;
            let here = placed | available;
            // Conditions that can be tested from here on.
            let fresh: Vec<(usize, &Condition)> = (problem.conditions.iter().enumerate())
                .filter(|(_, condition)| {
                    condition.mask & !here == 0
                        && (condition.mask & !before != 0 || step.method == Method::Start)
                })
                .collect();
            node = match &item.kind {
                ItemKind::Relation(relation) => {
                    self.inner_step(node, *relation, step, &fresh, before, available)?
                }
                ItemKind::Left(inner) => {
                    let joined = self.left_step(node, inner, item.provides, step, before, available)?;
                    filtered(joined, ordered_conditions(fresh.into_iter().map(|(_, c)| c).collect()))
                }
                ItemKind::Full(full) => {
                    let is_first = step.method == Method::Start;
                    // Also if what it refers to is around this sequence, which is opened often.
                    let dependent = item.requires & before != 0;
                    let joined = self.full(full, step, if dependent { before } else { available })?;
                    let joined = if is_first {
                        joined
                    } else if dependent {
                        looped(node, joined, vec![])
                    } else {
                        let slots = slots_of(self.select, item.provides);
                        let inner = SourceNode::Materialize { input: Box::new(joined), slots };
                        SourceNode::NestedLoop {
                            outer: Box::new(node),
                            inner: Box::new(inner),
                            on: vec![],
                            nulls: None,
                        }
                    };
                    filtered(joined, ordered_conditions(fresh.into_iter().map(|(_, c)| c).collect()))
                }
            };
        }
        Ok(node)
    }

    fn inner_step(
        &mut self,
        outer: SourceNode,
        relation: usize,
        step: Step,
        fresh: &[(usize, &Condition)],
        before: Mask,
        available: Mask,
    ) -> Result<SourceNode> {
        let Inner::Leaf(path) = step.inner else {
            return Err(SqlError::internal("a relation with joins in it"));
        };
        let consumed: Vec<usize> = path.as_ref().map_or(vec![], |path| path.consumed.clone());
        let rest =
            fresh.iter().filter(|(place, _)| !consumed.contains(place)).map(|(_, condition)| *condition);
        let own = bit(relation) | available;
        match step.method {
            Method::Start => {
                let rest = ordered_conditions(rest.collect());
                Ok(filtered(self.leaf(relation, path)?, rest))
            }
            Method::Loop => {
                // Whether opening the inner side needs columns from outside, which change from one
                // opening to the next.
                let dependent = (fresh.iter())
                    .any(|(place, condition)| consumed.contains(place) && condition.mask & before != 0)
                    || self.refers_to(relation, before);
                let node = self.leaf(relation, path)?;
                if dependent || (step.outer_rows <= 1.0 && self.once & bit(relation) == 0) {
                    let inner = filtered(node, ordered_conditions(rest.collect()));
                    return Ok(looped(outer, inner, vec![]));
                }
                let (inside, on): (Vec<_>, Vec<_>) =
                    rest.partition(|condition| condition.mask == bit(relation));
                let inner = filtered(node, ordered_conditions(inside));
                let slots = slots_of(self.select, bit(relation));
                let inner = SourceNode::Materialize { input: Box::new(inner), slots };
                Ok(looped(outer, inner, ordered_conditions(on)))
            }
            Method::Hash => {
                let (inside, between): (Vec<_>, Vec<_>) =
                    rest.partition(|condition| condition.mask & !own == 0);
                let node = self.leaf(relation, path)?;
                let build = filtered(node, ordered_conditions(inside));
                let left = before & !available;
                Ok(merged(self.hash_join(outer, build, &between, left, bit(relation), false)?))
            }
            Method::Kept => Err(SqlError::internal("a relation that is kept without a left join")),
        }
    }

    /// Whether a relation that is no stored table refers to these.
    fn refers_to(&self, relation: usize, known: Mask) -> bool {
        let mut mask = self.requires[relation];
        if let Some(node) = &self.nodes[relation] {
            node.for_each_reference(&mut |depth, slot| {
                if depth == 0 {
                    mask |= bit(self.select.slots[slot].relation);
                }
            });
        }
        mask & known & !bit(relation) != 0
    }

    fn left_step(
        &mut self,
        outer: SourceNode,
        problem: &Problem,
        provides: Mask,
        step: Step,
        before: Mask,
        available: Mask,
    ) -> Result<SourceNode> {
        let Inner::Nested(chosen) = step.inner else {
            return Err(SqlError::internal("a left join without joins"));
        };
        let slots = slots_of(self.select, provides);
        if step.method == Method::Hash {
            let known = provides | available;
            let inside = inside_problem(problem, known);
            let build = self.sequence(&inside, chosen, available)?;
            let between: Vec<&Condition> =
                problem.conditions.iter().filter(|condition| condition.mask & !known != 0).collect();
            return Ok(merged(self.hash_join(
                outer,
                build,
                &between,
                before & !available,
                provides,
                true,
            )?));
        }
        if step.method == Method::Kept {
            return self.kept_step(outer, by_itself(problem, provides, chosen), slots);
        }
        // Conditions on the outer side only (ON a.x = 1) are tested on the pair.
        let (on, rest): (Vec<_>, Vec<_>) =
            problem.conditions.iter().cloned().partition(|condition| condition.mask & provides == 0);
        let renumbered = renumber(problem, chosen, |condition| condition.mask & provides != 0);
        let inside = Problem { items: problem.items.clone(), conditions: rest };
        let inner = self.sequence(&inside, renumbered, before)?;
        let on = on.into_iter().map(|condition| condition.expr).collect();
        Ok(SourceNode::NestedLoop { outer: Box::new(outer), inner: Box::new(inner), on, nulls: Some(slots) })
    }

    /// A left join whose right side is read once: it depends on nothing outside, and what else ON
    /// asks is tested on the pairs.
    fn kept_step(
        &mut self,
        outer: SourceNode,
        (inside, chosen, on): (Problem, Chosen, Vec<Condition>),
        slots: Vec<usize>,
    ) -> Result<SourceNode> {
        let input = Box::new(self.sequence(&inside, chosen, 0)?);
        Ok(SourceNode::NestedLoop {
            outer: Box::new(outer),
            inner: Box::new(SourceNode::Materialize { input, slots: slots.clone() }),
            on: ordered_conditions(on.iter().collect()),
            nulls: Some(slots),
        })
    }

    fn full(
        &mut self,
        full: &(Problem, Problem, Vec<Condition>),
        step: Step,
        available: Mask,
    ) -> Result<SourceNode> {
        let Inner::Full(chosen) = step.inner else {
            return Err(SqlError::internal("a full join without sides"));
        };
        let (left_problem, right_problem, on) = full;
        let mask = |problem: &Problem| problem.items.iter().fold(0, |mask, item| mask | item.provides);
        let (left_mask, right_mask) = (mask(left_problem), mask(right_problem));
        let (left, right) = *chosen;
        let probe = self.sequence(left_problem, left, available)?;
        let build = self.sequence(right_problem, right, available)?;
        let on: Vec<&Condition> = on.iter().collect();
        let join = self.hash_join(probe, build, &on, left_mask, right_mask, true)?;
        Ok(SourceNode::HashJoin(Box::new(HashJoin { full: true, ..join })))
    }

    fn hash_join(
        &self,
        probe: SourceNode,
        build: SourceNode,
        conditions: &[&Condition],
        left: Mask,
        right: Mask,
        keep_left: bool,
    ) -> Result<HashJoin> {
        let mut join = HashJoin {
            probe,
            build,
            probe_keys: vec![],
            build_keys: vec![],
            on: vec![],
            build_slots: slots_of(self.select, right),
            probe_slots: slots_of(self.select, left),
            left: keep_left,
            full: false,
            keeps_order: false,
        };
        let mut rest = vec![];
        for (place, condition) in conditions.iter().enumerate() {
            ask_now_and_then(place)?;
            match hash_key(self.select, condition, left, right) {
                Some((probe, build)) => {
                    join.probe_keys.push(probe.clone());
                    join.build_keys.push(build.clone());
                }
                None => rest.push(*condition),
            }
        }
        join.on = ordered_conditions(rest);
        Ok(join)
    }

    /// The node that reads a relation.
    fn leaf(&mut self, relation: usize, path: Option<Box<Path>>) -> Result<SourceNode> {
        match path {
            Some(path) => {
                Ok(SourceNode::Scan(Box::new(scan(&self.select.relations[relation], path.access)?)))
            }
            None => self.nodes[relation].take().ok_or_else(|| SqlError::internal("a relation planned twice")),
        }
    }
}

fn looped(outer: SourceNode, inner: SourceNode, on: Vec<Expr>) -> SourceNode {
    if matches!(outer, SourceNode::Unit) && on.is_empty() {
        return inner;
    }
    SourceNode::NestedLoop { outer: Box::new(outer), inner: Box::new(inner), on, nulls: None }
}
