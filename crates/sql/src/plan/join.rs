//! The join order: FROM and WHERE become a tree of inputs.
//!
//! Inner joins are taken apart into their relations and put together again one by one, always the one that is cheapest to
//! read given what is already there; so a chain of keys becomes index look-ups, whichever way it was written. An outer
//! join stays a unit: its left side is planned like a FROM of its own, its right side given the left.
//!
//! A relation without a usable index that shares an equality with what is there is joined through a hash table; any
//! other is read again (from memory, where it does not depend on what is there) for each row.

use std::sync::Arc;

use super::access::{self, Situation, WantedOrder};
use super::build::Builder;
use super::{Access, Input, Relation, Source};
use crate::bind::{self, From, Join, JoinKind, SlotPart};
use crate::error::Result;
use crate::expr::Expr;
use crate::function::operator::Comparison;

/// Above this many rows read for one left row, a hash table is worth building.
const HASH_FROM: f64 = 30.0;

/// What is joined as one: a relation, or an outer join with all below it.
enum Unit<'a> {
    Relation(usize),
    Outer(&'a Join),
}

/// A planned part with the number of rows it gives and whether they come in the wanted order.
pub(super) struct Joined {
    pub(super) input: Arc<Input>,
    pub(super) rows: f64,
    pub(super) cost: f64,
    pub(super) ordered: bool,
}

/// Plans the joins of one SELECT.
pub(super) struct JoinPlanner<'a, 'b> {
    pub(super) builder: &'a mut Builder<'b>,
    pub(super) select: &'a bind::Select,
    /// Slots filled so far.
    pub(super) bound: Vec<bool>,
    /// Order that saves a sort, by slot: slot, descending, NULLs first.
    pub(super) wanted: Vec<(usize, bool, bool)>,
    pub(super) limited: bool,
}

impl JoinPlanner<'_, '_> {
    /// Plans these join trees and places `conditions`.
    pub(super) fn plan(&mut self, from: &[From], mut conditions: Vec<Expr>) -> Result<Joined> {
        let mut units = Vec::new();
        for tree in from {
            flatten(tree, &mut units, &mut conditions);
        }
        self.order(units, conditions)
    }

    fn order(&mut self, mut units: Vec<Unit<'_>>, mut conditions: Vec<Expr>) -> Result<Joined> {
        let mut joined: Option<Joined> = None;
        if units.is_empty() {
            let input = filtered(Arc::new(Input::Once), std::mem::take(&mut conditions));
            return Ok(Joined { input, rows: 1.0, cost: 1.0, ordered: true });
        }
        while !units.is_empty() {
            let place = self.cheapest(&units, &conditions, joined.is_none());
            let unit = units.remove(place);
            joined = Some(self.attach(joined, &unit, &mut conditions)?);
        }
        let mut joined =
            joined.unwrap_or(Joined { input: Arc::new(Input::Once), rows: 1.0, cost: 1.0, ordered: true });
        if !conditions.is_empty() {
            joined.input = filtered(joined.input, conditions);
        }
        Ok(joined)
    }

    /// The unit to take next. The first may be chosen for its order.
    fn cheapest(&mut self, units: &[Unit<'_>], conditions: &[Expr], first: bool) -> usize {
        let mut best = (usize::MAX, f64::INFINITY);
        for (place, unit) in units.iter().enumerate() {
            let ready = self.is_ready(unit);
            let rows = match unit {
                _ if !ready => f64::MAX,
                Unit::Relation(relation) => self.estimate(*relation, conditions, first),
                // An outer join is cheap to reach only through its left side.
                Unit::Outer(join) => {
                    let mut relations = vec![];
                    join.left.for_each_relation(&mut |relation| relations.push(relation));
                    relations
                        .iter()
                        .map(|relation| self.estimate(*relation, conditions, first))
                        .fold(f64::INFINITY, f64::min)
                        * 2.0
                }
            };
            // Unconnected relations multiply: take them last.
            let connected = first || self.is_connected(unit, conditions);
            let rows = if connected { rows } else { rows * 1_000.0 };
            if best.0 == usize::MAX || rows < best.1 {
                best = (place, rows);
            }
        }
        best.0
    }

    fn estimate(&self, relation: usize, conditions: &[Expr], first: bool) -> f64 {
        match &self.select.relations[relation].source {
            bind::Source::Table(_) => {
                let wanted = if first { self.wanted_of(relation) } else { vec![] };
                let choice = self.access(relation, conditions, &wanted);
                // Conditions that no index serves still leave fewer rows to join.
                choice.rows * if first && !choice.ordered { 1.3 } else { 1.0 }
            }
            bind::Source::Virtual(_) => 300.0,
            bind::Source::Query(_) | bind::Source::Cte(_) => 1_000.0,
            bind::Source::Function(_) => 100.0,
            bind::Source::Given => 1.0,
        }
    }

    /// Whether all the slots that a function or a lateral query needs are filled.
    fn is_ready(&self, unit: &Unit<'_>) -> bool {
        match unit {
            Unit::Relation(relation) => self.dependencies(*relation).iter().all(|slot| self.bound[*slot]),
            Unit::Outer(join) => {
                let mut inside = vec![];
                From::Join(Box::new((*join).clone()))
                    .for_each_relation(&mut |relation| inside.push(relation));
                inside.iter().all(|relation| {
                    self.dependencies(*relation)
                        .iter()
                        .all(|slot| self.bound[*slot] || inside.contains(&self.select.slots[*slot].relation))
                })
            }
        }
    }

    fn is_connected(&self, unit: &Unit<'_>, conditions: &[Expr]) -> bool {
        let mut inside = vec![];
        match unit {
            Unit::Relation(relation) => inside.push(*relation),
            Unit::Outer(join) => {
                From::Join(Box::new((*join).clone())).for_each_relation(&mut |r| inside.push(r))
            }
        }
        conditions.iter().any(|condition| {
            let (mut touches, mut reaches) = (false, false);
            condition.for_each_slot(&mut |slot| {
                touches |= inside.contains(&self.select.slots[slot].relation);
                reaches |= self.bound[slot];
            });
            touches && reaches
        })
    }

    /// Slots of this frame that the relation's own rows depend on.
    fn dependencies(&self, relation: usize) -> Vec<usize> {
        let mut slots = vec![];
        match &self.select.relations[relation].source {
            bind::Source::Function(function) => {
                for expr in function.call.exprs() {
                    expr.for_each_slot(&mut |slot| slots.push(slot));
                }
            }
            bind::Source::Query(query) => query.for_each_expr(&mut |expr, nested| {
                expr.for_each_reference(nested + 1, &mut |depth, slot| {
                    if depth == 0 {
                        slots.push(slot);
                    }
                });
            }),
            _ => {}
        }
        slots
    }

    fn wanted_of(&self, relation: usize) -> Vec<(usize, bool, bool)> {
        let mut columns = vec![];
        for (slot, descending, nulls_first) in &self.wanted {
            let slot = &self.select.slots[*slot];
            match slot.part {
                SlotPart::Column(column) if slot.relation == relation => {
                    columns.push((column, *descending, *nulls_first));
                }
                _ => return vec![],
            }
        }
        columns
    }

    fn access(&self, relation: usize, conditions: &[Expr], wanted: &WantedOrder) -> access::Choice {
        let bind::Source::Table(table) = &self.select.relations[relation].source else {
            return access::Choice { access: Access::default(), rows: 1_000.0, ordered: false };
        };
        let situation = Situation {
            slots: &self.select.relations[relation].slots,
            bound: &|slot| self.bound[slot],
            conditions,
        };
        access::choose(table, &situation, wanted, self.limited, self.builder.counts)
    }

    /// Joins `unit` to what is there, and places the conditions that it makes testable.
    fn attach(
        &mut self,
        joined: Option<Joined>,
        unit: &Unit<'_>,
        conditions: &mut Vec<Expr>,
    ) -> Result<Joined> {
        let relation = match unit {
            Unit::Relation(relation) => *relation,
            Unit::Outer(join) => {
                let inner = self.outer_join(join, conditions, joined.is_none())?;
                return Ok(match joined {
                    None => self.settle(inner, conditions),
                    Some(left) => {
                        let looped = looped(left, inner);
                        self.settle(looped, conditions)
                    }
                });
            }
        };
        let first = joined.is_none();
        let wanted = if first && !self.wanted.is_empty() { self.wanted_of(relation) } else { vec![] };
        let choice = self.access(relation, conditions, &wanted);
        let hash = joined.is_some()
            && choice.access.equal.is_empty()
            && choice.access.any.is_none()
            && choice.rows > HASH_FROM
            && self.dependencies(relation).is_empty();
        if hash
            && let Some(left) = &joined
            && let Some(hashed) = self.hash_join(left, relation, conditions, &choice)?
        {
            return Ok(hashed);
        }
        let ordered = (!wanted.is_empty() && choice.ordered) || self.wanted.is_empty();
        let (rows, access) = (choice.rows, choice.access);
        self.fill(relation);
        let mine = self.testable(conditions);
        let narrowed = if mine.is_empty() { rows } else { (rows / 3.0).max(1.0) };
        let input = self.relation(relation, access, mine)?;
        let right = Joined { input, rows: narrowed, cost: rows, ordered };
        Ok(match joined {
            None => right,
            Some(left) => looped(left, right),
        })
    }

    /// Tests what has become testable.
    fn settle(&self, mut joined: Joined, conditions: &mut Vec<Expr>) -> Joined {
        let mine = self.testable(conditions);
        if !mine.is_empty() {
            joined.input = filtered(joined.input, mine);
        }
        joined
    }

    /// Takes the conditions whose slots are all filled out of the list.
    fn testable(&self, conditions: &mut Vec<Expr>) -> Vec<Expr> {
        let (mine, rest) = std::mem::take(conditions).into_iter().partition(|condition| {
            let mut all = true;
            condition.for_each_slot(&mut |slot| all &= self.bound[slot]);
            all
        });
        *conditions = rest;
        mine
    }

    fn fill(&mut self, relation: usize) {
        let relation = &self.select.relations[relation];
        for slot in relation.slots.iter().flatten().chain(&relation.key_slot) {
            self.bound[*slot] = true;
        }
    }

    fn relation(&mut self, place: usize, access: Access, conditions: Vec<Expr>) -> Result<Arc<Input>> {
        let keep = self.dependencies(place).is_empty();
        let relation = &self.select.relations[place];
        let source = match &relation.source {
            bind::Source::Table(table) => Source::Table(table.clone(), access),
            bind::Source::Virtual(table) => {
                Source::Virtual(table.clone(), self.virtual_key(place, &conditions))
            }
            bind::Source::Query(query) => Source::Query(self.builder.query(query)?),
            bind::Source::Cte(number) => Source::Cte(*number),
            bind::Source::Function(function) => Source::Function(function.clone()),
            bind::Source::Given => return Ok(filtered(Arc::new(Input::Once), conditions)),
        };
        let fills =
            relation.slots.iter().enumerate().filter_map(|(column, slot)| Some((column, (*slot)?))).collect();
        Ok(Arc::new(Input::Relation(Relation {
            alias: relation.alias.clone(),
            keep: keep && !matches!(source, Source::Table(..) | Source::Virtual(_, Some(_))),
            source,
            fills,
            key_slot: relation.key_slot,
            conditions,
        })))
    }

    /// An equality by which a computed table can find its rows.
    fn virtual_key(&self, relation: usize, conditions: &[Expr]) -> Option<(usize, Expr)> {
        let slots = &self.select.relations[relation].slots;
        conditions.iter().find_map(|condition| {
            let Expr::Compare(Comparison::Equal, operands) = condition else { return None };
            let [left, right] = &**operands;
            for (slot, value) in [(left, right), (right, left)] {
                let Expr::Slot(slot) = slot else { continue };
                let Some(column) = slots.iter().position(|s| *s == Some(*slot)) else { continue };
                let mut before = true;
                value.for_each_slot(&mut |slot| {
                    before &= self.bound[slot] && self.select.slots[slot].relation != relation;
                });
                let is_subquery = value.any(&mut |expr| matches!(expr, Expr::Subquery(_)));
                if before && !is_subquery && !value.is_volatile() {
                    return Some((column, value.clone()));
                }
            }
            None
        })
    }

    /// A hash join of `relation` to what is there, if they share an equality.
    fn hash_join(
        &mut self,
        left: &Joined,
        relation: usize,
        conditions: &mut Vec<Expr>,
        choice: &access::Choice,
    ) -> Result<Option<Joined>> {
        let (left_keys, right_keys) = self.hash_keys(&[relation], conditions);
        if left_keys.is_empty() {
            return Ok(None);
        }
        let before = self.bound.clone();
        // Conditions of the relation alone are tested while it is read.
        self.bound = self.only(&[relation]);
        let own = self.testable(conditions);
        self.bound = vec![false; before.len()];
        let access = self.access(relation, &own, &[]).access;
        let input = self.relation(relation, access, own)?;
        self.bound = before;
        self.fill(relation);
        let conditions = self.testable(conditions);
        let fills = self.slots_of(&[relation]);
        let rows = left.rows.max(choice.rows / 10.0);
        Ok(Some(Joined {
            input: Arc::new(Input::Hash {
                left: left.input.clone(),
                right: input,
                left_keys,
                right_keys,
                conditions,
                fills,
                outer: false,
            }),
            rows,
            cost: left.cost + choice.rows,
            ordered: left.ordered,
        }))
    }

    /// Both sides of the equalities between what is filled and these relations.
    fn hash_keys(&self, relations: &[usize], conditions: &[Expr]) -> (Vec<Expr>, Vec<Expr>) {
        let (mut left_keys, mut right_keys) = (vec![], vec![]);
        for condition in conditions {
            let Expr::Compare(Comparison::Equal, operands) = condition else { continue };
            let [a, b] = &**operands;
            for (there, here) in [(a, b), (b, a)] {
                let (mut filled, mut mine, mut any_there, mut any_here) = (true, true, false, false);
                there.for_each_slot(&mut |slot| {
                    filled &= self.bound[slot];
                    any_there = true;
                });
                here.for_each_slot(&mut |slot| {
                    mine &= relations.contains(&self.select.slots[slot].relation);
                    any_here = true;
                });
                if filled && mine && any_there && any_here && !there.is_volatile() && !here.is_volatile() {
                    left_keys.push(there.clone());
                    right_keys.push(here.clone());
                    break;
                }
            }
        }
        (left_keys, right_keys)
    }

    fn only(&self, relations: &[usize]) -> Vec<bool> {
        self.select.slots.iter().map(|slot| relations.contains(&slot.relation)).collect()
    }

    fn slots_of(&self, relations: &[usize]) -> Vec<usize> {
        let slots = self.select.slots.iter().enumerate();
        slots.filter(|(_, slot)| relations.contains(&slot.relation)).map(|(place, _)| place).collect()
    }

    /// Plans an outer join. Conditions of WHERE go down its left side only.
    fn outer_join(&mut self, join: &Join, conditions: &mut Vec<Expr>, first: bool) -> Result<Joined> {
        let (mut left_relations, mut right_relations) = (vec![], vec![]);
        join.left.for_each_relation(&mut |relation| left_relations.push(relation));
        join.right.for_each_relation(&mut |relation| right_relations.push(relation));
        let wanted = if first { self.wanted.clone() } else { std::mem::take(&mut self.wanted) };
        let full = join.kind == JoinKind::Full;
        let pushed = if full { vec![] } else { self.pushable(&left_relations, conditions) };
        let left = self.plan(std::slice::from_ref(&join.left), pushed)?;
        self.wanted = vec![];
        let planned = if full {
            self.full_join(left, join, &left_relations, &right_relations)?
        } else {
            self.left_join(left, join, &right_relations)?
        };
        self.wanted = wanted;
        Ok(planned)
    }

    fn left_join(&mut self, left: Joined, join: &Join, right_relations: &[usize]) -> Result<Joined> {
        let missing = self.slots_of(right_relations);
        if let From::Relation(relation) = &join.right
            && self.dependencies(*relation).is_empty()
        {
            let choice = self.access(*relation, &join.on, &[]);
            let (left_keys, right_keys) = self.hash_keys(right_relations, &join.on);
            if choice.access.equal.is_empty() && !left_keys.is_empty() && left.rows > 3.0 {
                let before = self.bound.clone();
                self.bound = self.only(right_relations);
                let mut conditions = join.on.clone();
                let own = self.testable(&mut conditions);
                self.bound = vec![false; before.len()];
                let access = self.access(*relation, &own, &[]).access;
                let right = self.relation(*relation, access, own)?;
                self.bound = before;
                self.fill(*relation);
                return Ok(Joined {
                    rows: left.rows,
                    cost: left.cost + choice.rows,
                    ordered: left.ordered,
                    input: Arc::new(Input::Hash {
                        left: left.input,
                        right,
                        left_keys,
                        right_keys,
                        conditions,
                        fills: missing,
                        outer: true,
                    }),
                });
            }
        }
        let right = self.plan(std::slice::from_ref(&join.right), join.on.clone())?;
        Ok(Joined {
            rows: left.rows * right.rows.max(1.0),
            cost: left.cost + left.rows * right.cost,
            ordered: left.ordered,
            input: Arc::new(Input::Loop { left: left.input, right: right.input, missing: Some(missing) }),
        })
    }

    fn full_join(&mut self, left: Joined, join: &Join, lefts: &[usize], rights: &[usize]) -> Result<Joined> {
        let before = std::mem::replace(&mut self.bound, vec![false; self.select.slots.len()]);
        let right = self.plan(std::slice::from_ref(&join.right), vec![])?;
        self.bound = before;
        for relation in rights {
            self.fill(*relation);
        }
        Ok(Joined {
            rows: left.rows + right.rows,
            cost: left.cost + right.cost + left.rows * right.rows,
            ordered: false,
            input: Arc::new(Input::Full {
                left: left.input,
                right: right.input,
                conditions: join.on.clone(),
                left_slots: self.slots_of(lefts),
                right_slots: self.slots_of(rights),
            }),
        })
    }

    /// Takes the conditions out that only refer to these relations and to what is filled.
    fn pushable(&self, relations: &[usize], conditions: &mut Vec<Expr>) -> Vec<Expr> {
        let (mine, rest) = std::mem::take(conditions).into_iter().partition(|condition| {
            let (mut all, mut touches) = (true, false);
            condition.for_each_slot(&mut |slot| {
                let inside = relations.contains(&self.select.slots[slot].relation);
                touches |= inside;
                all &= inside || self.bound[slot];
            });
            all && touches
        });
        *conditions = rest;
        mine
    }
}

fn flatten<'a>(from: &'a From, units: &mut Vec<Unit<'a>>, conditions: &mut Vec<Expr>) {
    match from {
        From::Unit => {}
        From::Relation(relation) => units.push(Unit::Relation(*relation)),
        From::Join(join) if join.kind == JoinKind::Inner => {
            flatten(&join.left, units, conditions);
            flatten(&join.right, units, conditions);
            conditions.extend(join.on.iter().cloned());
        }
        From::Join(join) => units.push(Unit::Outer(join)),
    }
}

fn looped(left: Joined, right: Joined) -> Joined {
    Joined {
        rows: left.rows * right.rows.max(1.0),
        cost: left.cost + left.rows * right.cost,
        ordered: left.ordered,
        input: Arc::new(Input::Loop { left: left.input, right: right.input, missing: None }),
    }
}

pub(super) fn filtered(input: Arc<Input>, conditions: Vec<Expr>) -> Arc<Input> {
    if conditions.is_empty() { input } else { Arc::new(Input::Filter { input, conditions }) }
}
