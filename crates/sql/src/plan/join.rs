//! Join order and join methods.
//!
//! FROM is flattened into *items*: relations that are joined freely, right sides of left joins
//! (which may come at any time after the relations their ON refers to), and full joins (units).
//! From every possible first item the rest follows greedily, the next item being the one that adds
//! the least cost and rows, by nested loop with an index or by hash join. The cheapest sequence
//! wins; a wanted order that the first item's index gives saves the sort and, with a LIMIT, most of
//! the reading.
//!
//! How many rows a join gives follows from how many different values its keys have. Where that is
//! not known, an item's keys are taken to be unique.
//!
//! A condition is tested as soon as all its relations are there. Conditions of ON in a left join
//! belong to its right side; those of WHERE that look at a left join's right side come after the
//! join, unless they reject NULLs: then the join is an inner one.

use super::estimate::{HASH_ROW, MEMORY_ROW, OPEN, PROBE_ROW, both_equal, selectivity, sort_cost};
use super::path::{Path, Search, WantedOrder, order_of_relation};
use super::relation::{Condition, Mask, base_rows, bit, mask_of, values_of};
use super::sides::{Part, Sides};
use crate::bind::{From, Join, JoinKind, RowCounts, Select, Source};
use crate::error::Result;
use crate::expr::Expr;
use crate::function::operator::Comparison;
use crate::types::TypeId;

/// Relations to be joined and the conditions among them.
#[derive(Clone, Debug, Default)]
pub(super) struct Problem {
    pub(super) items: Vec<Item>,
    pub(super) conditions: Vec<Condition>,
}

/// Something to be joined.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) kind: ItemKind,
    /// Its relations.
    pub(super) provides: Mask,
    /// Relations that must be placed before.
    pub(super) requires: Mask,
    /// Tells the left and full joins of a FROM apart.
    pub(super) number: usize,
}

/// What an item is.
#[derive(Clone, Debug)]
pub(super) enum ItemKind {
    /// A relation.
    Relation(usize),
    /// The right side of a left join; the problem's conditions are those of ON too.
    Left(Box<Problem>),
    /// A full join with its conditions.
    Full(Box<(Problem, Problem, Vec<Condition>)>),
}

/// A sequence of joins.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) steps: Vec<Step>,
    pub(super) rows: f64,
    pub(super) cost: f64,
    /// Gives the wanted order.
    pub(super) ordered: bool,
}

/// One item put in its place.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) item: usize,
    pub(super) method: Method,
    pub(super) inner: Inner,
    /// Rows before this step.
    pub(super) outer_rows: f64,
}

/// How an item is joined to those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// It is the first.
    Start,
    /// Nested loop.
    Loop,
    /// Hash join, the item in the table.
    Hash,
    /// Nested loop over the rows of a left join's right side, which is read once and kept.
    Kept,
}

/// How an item itself is read.
#[derive(Clone, Debug)]
pub(super) enum Inner {
    /// A relation, with its path if it is a stored table.
    Leaf(Option<Box<Path>>),
    /// Joins of its own.
    Nested(Chosen),
    /// Both sides of a full join.
    Full(Box<(Chosen, Chosen)>),
}

/// What is known of the relations while an order is sought.
pub(super) struct Joiner<'a> {
    pub(super) select: &'a Select,
    pub(super) parameters: &'a [TypeId],
    pub(super) row_counts: &'a dyn RowCounts,
    /// Rows, cost and dependencies of the relations that are no stored tables.
    pub(super) leaves: &'a [Option<LeafEstimate>],
    /// The sequences that were chosen for sides of outer joins.
    pub(super) sides: Sides,
}

/// Estimate for a relation that is no stored table.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafEstimate {
    pub(super) rows: f64,
    pub(super) cost: f64,
    /// Relations it refers to (LATERAL).
    pub(super) requires: Mask,
    /// It may give other rows each time it is read.
    pub(super) volatile: bool,
}

/// Wanted order as places of the frame: place, descending, NULLs first.
pub(super) type SlotOrder = [(usize, bool, bool)];

impl Joiner<'_> {
    fn requires(&self, relation: usize) -> Mask {
        self.leaves[relation].map_or(0, |leaf| leaf.requires)
    }

    /// Flattens join trees and the conditions on them.
    pub(super) fn problem(&self, trees: &[From], mut conditions: Vec<Condition>) -> Result<Problem> {
        let mut items = vec![];
        for tree in trees {
            self.flatten(tree, &mut items, &mut conditions)?;
        }
        Ok(Problem { items, conditions })
    }

    fn flatten(&self, tree: &From, items: &mut Vec<Item>, conditions: &mut Vec<Condition>) -> Result<()> {
        match tree {
            From::Unit => {}
            From::Relation(relation) => items.push(Item {
                kind: ItemKind::Relation(*relation),
                provides: bit(*relation),
                requires: self.requires(*relation),
                number: 0,
            }),
            From::Join(join) => match join.kind {
                JoinKind::Inner => self.flatten_inner(join, items, conditions)?,
                JoinKind::Left => {
                    self.sides.look_at_item(conditions.len())?;
                    let right = relations(&join.right);
                    if conditions.iter().any(|condition| rejects_nulls(self.select, &condition.expr, right)) {
                        return self.flatten_inner(join, items, conditions);
                    }
                    self.flatten(&join.left, items, conditions)?;
                    items.push(self.left_item(join, right)?);
                }
                JoinKind::Full => {
                    let side = |tree: &From| self.problem(std::slice::from_ref(tree), vec![]);
                    let on = self.conditions(&join.on)?;
                    let sides = (side(&join.left)?, side(&join.right)?, on);
                    let provides = relations(tree);
                    // LATERAL items in it may refer to what stands before it.
                    let of_sides = sides.0.items.iter().chain(&sides.1.items);
                    let requires = of_sides.fold(0, |mask, item| mask | item.requires) & !provides;
                    let (kind, number) = (ItemKind::Full(Box::new(sides)), self.sides.number());
                    items.push(Item { provides, requires, kind, number });
                }
            },
        }
        Ok(())
    }

    fn flatten_inner(
        &self,
        join: &Join,
        items: &mut Vec<Item>,
        conditions: &mut Vec<Condition>,
    ) -> Result<()> {
        // The conditions first: they may make left joins below inner ones.
        conditions.extend(self.conditions(&join.on)?);
        self.flatten(&join.left, items, conditions)?;
        self.flatten(&join.right, items, conditions)
    }

    fn left_item(&self, join: &Join, right: Mask) -> Result<Item> {
        let left = relations(&join.left);
        let problem = self.problem(std::slice::from_ref(&join.right), self.conditions(&join.on)?)?;
        let mut requires = 0;
        for condition in &problem.conditions {
            requires |= condition.mask & left;
        }
        // LATERAL items also refer to what stands before the whole join.
        for item in &problem.items {
            requires |= item.requires & !right;
        }
        // ON without the left side: any place after all of it.
        if requires == 0 {
            requires = left;
        }
        let (kind, number) = (ItemKind::Left(Box::new(problem)), self.sides.number());
        Ok(Item { kind, provides: right, requires, number })
    }

    fn conditions(&self, on: &[Expr]) -> Result<Vec<Condition>> {
        let condition = |expr: &Expr| -> Result<Condition> {
            self.sides.look_at_condition()?;
            Ok(Condition::new(self.select, expr.clone()))
        };
        on.iter().map(condition).collect()
    }

    /// The cheapest sequence. `available` relations are known from outside.
    pub(super) fn choose(
        &self,
        problem: &Problem,
        available: Mask,
        wanted: Option<&SlotOrder>,
        limit: Option<f64>,
    ) -> Result<Chosen> {
        if problem.items.is_empty() {
            return Ok(Chosen { steps: vec![], rows: 1.0, cost: 0.0, ordered: false });
        }
        let mut best: Option<(f64, Chosen)> = None;
        for (first, item) in problem.items.iter().enumerate() {
            if item.requires & !available != 0 {
                continue;
            }
            self.sides.look_at_item(problem.conditions.len())?;
            for start in self.starts(problem, first, item, available, wanted)? {
                let mut chosen = start;
                self.extend(problem, &mut chosen, available)?;
                let total = total_cost(&chosen, wanted.is_some(), limit);
                if best.as_ref().is_none_or(|(cost, _)| total < *cost) {
                    best = Some((total, chosen));
                }
            }
        }
        match best {
            Some((_, chosen)) => Ok(chosen),
            // A circle of LATERAL references cannot be bound; take the items as they come.
            None => self.in_sequence(problem, available),
        }
    }

    fn in_sequence(&self, problem: &Problem, available: Mask) -> Result<Chosen> {
        let mut chosen = Chosen { steps: vec![], rows: 1.0, cost: 0.0, ordered: false };
        self.extend(problem, &mut chosen, available)?;
        Ok(chosen)
    }

    /// Ways to begin with an item.
    fn starts(
        &self,
        problem: &Problem,
        place: usize,
        item: &Item,
        available: Mask,
        wanted: Option<&SlotOrder>,
    ) -> Result<Vec<Chosen>> {
        let step = |inner, rows, cost, ordered| Chosen {
            steps: vec![Step { item: place, method: Method::Start, inner, outer_rows: 1.0 }],
            rows,
            cost,
            ordered,
        };
        Ok(match &item.kind {
            ItemKind::Relation(relation) => {
                let wanted = wanted.and_then(|wanted| order_of_relation(self.select, *relation, wanted));
                let paths = self.paths(*relation, &problem.conditions, available, wanted.as_ref());
                match paths {
                    None => {
                        let (rows, cost) = self.leaf_estimate(*relation, &problem.conditions, available);
                        vec![step(Inner::Leaf(None), rows, cost, false)]
                    }
                    Some(paths) => {
                        let cheapest = cheapest(&paths);
                        (paths.into_iter().enumerate())
                            .filter(|(i, path)| *i == cheapest || path.ordered)
                            .map(|(_, path)| {
                                let (rows, cost, ordered) = (path.rows, path.cost, path.ordered);
                                step(Inner::Leaf(Some(Box::new(path))), rows, cost, ordered)
                            })
                            .collect()
                    }
                }
            }
            // A left join's right side is never first.
            ItemKind::Left(_) => vec![],
            ItemKind::Full(full) => {
                let left = self.side(item, Part::FullLeft, &full.0, available)?;
                let right = self.side(item, Part::FullRight, &full.1, available)?;
                let rows = left.rows + right.rows;
                let cost = left.cost + right.cost + right.rows * HASH_ROW + left.rows * PROBE_ROW;
                vec![step(Inner::Full(Box::new((left, right))), rows, cost, false)]
            }
        })
    }

    /// Places the other items one after the other.
    fn extend(&self, problem: &Problem, chosen: &mut Chosen, available: Mask) -> Result<()> {
        let mut placed: Mask = chosen.steps.iter().map(|step| problem.items[step.item].provides).sum();
        while chosen.steps.len() < problem.items.len() {
            let mut best: Option<(f64, Step, f64, f64)> = None;
            for (place, item) in problem.items.iter().enumerate() {
                let is_placed = chosen.steps.iter().any(|step| step.item == place);
                let is_ready = item.requires & !(placed | available) == 0;
                if is_placed || (!is_ready && best_possible(problem, chosen, placed | available)) {
                    continue;
                }
                self.sides.look_at_item(problem.conditions.len())?;
                let (step, rows, cost) = self.next(problem, place, item, placed, available, chosen.rows)?;
                let weight = cost + rows;
                if best.as_ref().is_none_or(|(known, ..)| weight < *known) {
                    best = Some((weight, step, rows, cost));
                }
            }
            let Some((_, step, rows, cost)) = best else { break };
            placed |= problem.items[step.item].provides;
            chosen.rows = rows;
            chosen.cost += cost;
            chosen.steps.push(step);
        }
        Ok(())
    }

    /// The better way to join one more item: the step, rows after it, its cost.
    fn next(
        &self,
        problem: &Problem,
        place: usize,
        item: &Item,
        placed: Mask,
        available: Mask,
        rows: f64,
    ) -> Result<(Step, f64, f64)> {
        let step = |method, inner| Step { item: place, method, inner, outer_rows: rows };
        Ok(match &item.kind {
            ItemKind::Relation(relation) => {
                let (path, loop_rows, loop_cost) =
                    self.read(*relation, &problem.conditions, placed | available);
                let looped = (
                    step(Method::Loop, Inner::Leaf(path)),
                    rows * loop_rows,
                    rows * (loop_cost + MEMORY_ROW),
                );
                let lateral = self.requires(*relation) & placed != 0;
                let has_keys =
                    !lateral && has_hash_keys(self.select, &problem.conditions, placed, item.provides);
                if !has_keys {
                    let kept =
                        self.maybe_materialized(looped, *relation, problem, placed, available, rows, place);
                    return Ok(kept);
                }
                let (path, inner_rows, inner_cost) = self.read(*relation, &problem.conditions, available);
                let base = base_rows(&self.select.relations[*relation], |table| self.row_counts.rows(table));
                let all = rows * inner_rows;
                let if_unique = all / base.max(1.0);
                let share = self.key_share(&problem.conditions, placed, item.provides);
                let joined = share.map_or(if_unique, |share| (all * share).max(if_unique));
                let joined = joined.max(1.0).min(all);
                let cost = inner_cost + inner_rows * HASH_ROW + rows * PROBE_ROW;
                let hashed = (step(Method::Hash, Inner::Leaf(path)), joined.min(looped.1.max(1.0)), cost);
                if hashed.2 < looped.2 { hashed } else { looped }
            }
            ItemKind::Left(inner) => {
                let looped = self.side(item, Part::Looped, inner, placed | available)?;
                let loop_cost = rows * (looped.cost + MEMORY_ROW);
                let loop_rows = rows * looped.rows.max(1.0);
                let looped = (step(Method::Loop, Inner::Nested(looped)), loop_rows, loop_cost);
                let lateral = inner.items.iter().any(|item| item.requires & placed != 0);
                if lateral || !has_hash_keys(self.select, &inner.conditions, placed, item.provides) {
                    let kept = self.kept(item, inner, rows, looped.2)?;
                    let step = |chosen| step(Method::Kept, Inner::Nested(chosen));
                    return Ok(kept.map_or(looped, |(chosen, cost)| (step(chosen), loop_rows, cost)));
                }
                let hashed = self.side(item, Part::Hashed, inner, available)?;
                let cost = hashed.cost + hashed.rows * HASH_ROW + rows * PROBE_ROW;
                if cost < looped.2 || self.is_read_once(item.provides) {
                    let is_known = self.key_share(&inner.conditions, placed, item.provides).is_some();
                    let joined = if is_known { loop_rows } else { loop_rows.min(rows * 2.0) };
                    (step(Method::Hash, Inner::Nested(hashed)), joined, cost)
                } else {
                    looped
                }
            }
            ItemKind::Full(full) => {
                let known = if item.requires & placed == 0 { available } else { placed | available };
                let left = self.side(item, Part::FullLeft, &full.0, known)?;
                let right = self.side(item, Part::FullRight, &full.1, known)?;
                let inner_rows = left.rows + right.rows;
                let cost = left.cost + right.cost + inner_rows * (HASH_ROW + rows * MEMORY_ROW);
                let inner = Inner::Full(Box::new((left, right)));
                (step(Method::Loop, inner), rows * inner_rows, cost)
            }
        })
    }

    /// The share of the pairs in which the keys of a hash join are equal; none if nothing is known
    /// of the values of a key on the right. What is not known of the left one is taken to be the
    /// same there.
    fn key_share(&self, conditions: &[Condition], left: Mask, right: Mask) -> Option<f64> {
        let mut share = None;
        for condition in conditions {
            let Some((outer, inner)) = hash_key(self.select, condition, left, right) else { continue };
            let inner = values_of(self.select, self.row_counts, inner)?;
            let of_key = match values_of(self.select, self.row_counts, outer) {
                Some(outer) => both_equal(outer, inner),
                None => inner.share_of_one(),
            };
            share = Some(share.unwrap_or(1.0) * of_key);
        }
        share
    }

    /// A loop over an inner side that does not depend on the outer one reads it once only.
    #[allow(clippy::too_many_arguments)]
    fn maybe_materialized(
        &self,
        looped: (Step, f64, f64),
        relation: usize,
        problem: &Problem,
        placed: Mask,
        available: Mask,
        rows: f64,
        place: usize,
    ) -> (Step, f64, f64) {
        if self.requires(relation) & placed != 0 {
            return looped;
        }
        let (path, inner_rows, inner_cost) = self.read(relation, &problem.conditions, available);
        let cost = inner_cost + rows * inner_rows * MEMORY_ROW;
        if cost >= looped.2 {
            return looped;
        }
        let step = Step { item: place, method: Method::Loop, inner: Inner::Leaf(path), outer_rows: rows };
        (step, looped.1, cost)
    }

    /// The cheapest way to read a relation: its path, rows, cost.
    fn read(
        &self,
        relation: usize,
        conditions: &[Condition],
        available: Mask,
    ) -> (Option<Box<Path>>, f64, f64) {
        match self.paths(relation, conditions, available, None) {
            Some(mut paths) => {
                let path = paths.swap_remove(cheapest(&paths));
                let (rows, cost) = (path.rows, path.cost);
                (Some(Box::new(path)), rows, cost)
            }
            None => {
                let (rows, cost) = self.leaf_estimate(relation, conditions, available);
                (None, rows, cost)
            }
        }
    }

    /// The paths of a stored table; none for other relations.
    fn paths(
        &self,
        relation: usize,
        conditions: &[Condition],
        available: Mask,
        wanted: Option<&WantedOrder>,
    ) -> Option<Vec<Path>> {
        if !matches!(self.select.relations[relation].source, Source::Table(_)) {
            return None;
        }
        let rows = base_rows(&self.select.relations[relation], |table| self.row_counts.rows(table));
        let search = Search {
            select: self.select,
            parameters: self.parameters,
            relation,
            conditions,
            available,
            rows,
            row_counts: self.row_counts,
        };
        Some(search.paths(wanted))
    }

    /// Rows and cost of a relation that is no stored table.
    fn leaf_estimate(&self, relation: usize, conditions: &[Condition], available: Mask) -> (f64, f64) {
        let (rows, cost) = self.leaves[relation].map_or((1.0, OPEN), |leaf| (leaf.rows, leaf.cost));
        let here = available | bit(relation);
        let share: f64 = (conditions.iter())
            .filter(|condition| condition.mask & !here == 0 && condition.mask & bit(relation) != 0)
            .map(|condition| selectivity(&condition.expr))
            .product();
        ((rows * share).max(1.0), cost)
    }
}

/// Whether some item not yet placed has all it requires (so that those which do not can wait).
fn best_possible(problem: &Problem, chosen: &Chosen, known: Mask) -> bool {
    problem.items.iter().enumerate().any(|(place, item)| {
        item.requires & !known == 0 && !chosen.steps.iter().any(|step| step.item == place)
    })
}

fn cheapest(paths: &[Path]) -> usize {
    let cost = |path: &Path| path.cost + path.rows * 0.001;
    let mut best = 0;
    for (i, path) in paths.iter().enumerate() {
        if cost(path) < cost(&paths[best]) {
            best = i;
        }
    }
    best
}

/// Cost with what comes after: a sort, or a LIMIT that stops early.
fn total_cost(chosen: &Chosen, wanted: bool, limit: Option<f64>) -> f64 {
    let cost = chosen.cost + chosen.rows * 0.01;
    if wanted && !chosen.ordered {
        return cost + sort_cost(chosen.rows);
    }
    match limit {
        Some(limit) => (cost * (limit / chosen.rows.max(1.0)).min(1.0)).max(OPEN),
        None => cost,
    }
}

/// The relations of a join tree.
pub(super) fn relations(tree: &From) -> Mask {
    let mut mask = 0;
    tree.for_each_relation(&mut |relation| mask |= bit(relation));
    mask
}

/// The two sides of an equality between the relations `left` and `right`, in this order, if it can
/// be a key of a hash join.
pub(super) fn hash_key<'a>(
    select: &Select,
    condition: &'a Condition,
    left: Mask,
    right: Mask,
) -> Option<(&'a Expr, &'a Expr)> {
    if condition.volatile || condition.has_subquery {
        return None;
    }
    let Expr::Compare(Comparison::Equal, operands) = &condition.expr else { return None };
    let [a, b] = operands.as_ref();
    let (mask_a, mask_b) = (mask_of(select, a), mask_of(select, b));
    let within = |mask: Mask, side: Mask| mask & side != 0 && mask & !side == 0;
    if within(mask_a, left) && within(mask_b, right) {
        Some((a, b))
    } else if within(mask_b, left) && within(mask_a, right) {
        Some((b, a))
    } else {
        None
    }
}

fn has_hash_keys(select: &Select, conditions: &[Condition], left: Mask, right: Mask) -> bool {
    conditions.iter().any(|condition| hash_key(select, condition, left, right).is_some())
}

/// The right side of a left join with only those conditions that look at nothing but `known`.
pub(super) fn inside_problem(problem: &Problem, known: Mask) -> Problem {
    Problem {
        items: problem.items.clone(),
        conditions: problem
            .conditions
            .iter()
            .filter(|condition| condition.mask & !known == 0)
            .cloned()
            .collect(),
    }
}

/// Whether a condition cannot be TRUE when all columns of these relations are NULL.
fn rejects_nulls(select: &Select, expr: &Expr, relations: Mask) -> bool {
    let is_null = |expr: &Expr| match expr {
        Expr::Slot(slot) => relations & bit(select.slots[*slot].relation) != 0,
        Expr::Cast(cast) => {
            matches!(cast.0, Expr::Slot(slot) if relations & bit(select.slots[slot].relation) != 0)
        }
        _ => false,
    };
    match expr {
        Expr::Compare(_, operands) => operands.iter().any(is_null),
        Expr::IsNull { operand, negated: true } => is_null(operand),
        Expr::InList(list) => is_null(&list.operand),
        Expr::Operator(call) => call.operator.strict && (is_null(&call.left) || is_null(&call.right)),
        Expr::And(parts) => parts.iter().any(|part| rejects_nulls(select, part, relations)),
        Expr::Or(parts) => parts.iter().all(|part| rejects_nulls(select, part, relations)),
        Expr::Slot(_) => is_null(expr),
        _ => false,
    }
}
