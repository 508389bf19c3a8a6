//! Grouping: a hash table of keys, an accumulator for each aggregate.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::Context;
use super::hash::Seeded;
use super::input::{SourceState, holds};
use super::memory::row_bytes;
use super::sort::{compare_keys, sort_rows};
use crate::error::{Result, SqlError};
use crate::expr::Env;
use crate::function::Accumulator;
use crate::plan::{AggregateNode, GroupNode, SelectNode};
use crate::types::Datum;

/// Groups, in the order their first rows came.
pub(crate) struct GroupState {
    groups: Vec<Grouped>,
    at: usize,
    built: bool,
    bytes: usize,
}

/// One group.
struct Grouped {
    /// Its grouping set.
    set: usize,
    /// Its keys; those that the set has not are NULL.
    key: Vec<Datum>,
    states: Vec<AggregateState>,
}

/// Arguments of an aggregate that are so large are asked for before they are added, not after.
const LARGE_ROW: usize = 64 << 10;

/// One aggregate of one group.
struct AggregateState {
    accumulator: Box<dyn Accumulator>,
    /// Memory the accumulator said it has, as accounted for.
    bytes: usize,
    /// Arguments seen, for DISTINCT.
    seen: Option<HashSet<Vec<Datum>, Seeded>>,
    /// Sort keys and arguments, for ORDER BY.
    pending: Vec<(Vec<Datum>, Vec<Datum>)>,
}

impl AggregateState {
    fn new(node: &AggregateNode) -> Result<AggregateState> {
        let accumulator = node
            .function
            .accumulator()
            .ok_or_else(|| SqlError::internal(format!("{} is no aggregate", node.function.function.name)))?;
        Ok(AggregateState {
            accumulator,
            bytes: 0,
            seen: node.distinct.then(HashSet::default),
            pending: vec![],
        })
    }

    /// Takes a row; gives the bytes it holds more than before.
    fn add(&mut self, node: &AggregateNode, env: &Env<'_>) -> Result<usize> {
        if let Some(filter) = &node.filter
            && !filter.test(env)?
        {
            return Ok(0);
        }
        let mut arguments = smallvec::SmallVec::<[Datum; 2]>::new();
        for argument in &node.arguments {
            arguments.push(argument.eval(env)?);
        }
        let mut held = 0;
        if let Some(seen) = &mut self.seen {
            let key = arguments.to_vec();
            let bytes = row_bytes(&key);
            if !seen.insert(key) {
                return Ok(0);
            }
            held += bytes;
        }
        if !node.order.is_empty() {
            let mut keys = Vec::with_capacity(node.order.len());
            for (key, ..) in &node.order {
                keys.push(key.eval(env)?);
            }
            held += row_bytes(&keys) + row_bytes(&arguments);
            self.pending.push((keys, arguments.into_vec()));
            return Ok(held);
        }
        self.make_room(&arguments, env)?;
        self.accumulator.add(&arguments, &env.execution.read.eval)?;
        Ok(held + self.grown())
    }

    /// Large values may make the accumulator move what it has to a place twice as large: asks first whether that may be.
    fn make_room(&self, arguments: &[Datum], env: &Env<'_>) -> Result<()> {
        let coming = row_bytes(arguments);
        if coming < LARGE_ROW {
            return Ok(());
        }
        let bytes = self.bytes.max(self.accumulator.memory()) + coming;
        env.execution.reserve(bytes)?;
        env.execution.runtime.release(bytes);
        Ok(())
    }

    /// Bytes the accumulator has more than when asked before.
    fn grown(&mut self) -> usize {
        let bytes = self.accumulator.memory();
        let grown = bytes.saturating_sub(self.bytes);
        self.bytes = self.bytes.max(bytes);
        grown
    }

    fn finish(&mut self, node: &AggregateNode, context: Context<'_>) -> Result<Datum> {
        let eval = &context.execution.read.eval;
        if !node.order.is_empty() {
            let mut pending = std::mem::take(&mut self.pending);
            sort_rows(&mut pending, context.execution, |(a, _), (b, _)| {
                for ((a, b), (_, descending, nulls_first)) in a.iter().zip(b).zip(&node.order) {
                    match compare_keys(a, b, *descending, *nulls_first) {
                        Ordering::Equal => {}
                        decided => return decided,
                    }
                }
                Ordering::Equal
            })?;
            for (_, arguments) in &pending {
                context.execution.tick()?;
                self.accumulator.add(arguments, eval)?;
            }
        }
        self.accumulator.finish(eval)
    }
}

impl GroupState {
    pub(crate) fn new() -> GroupState {
        GroupState { groups: vec![], at: 0, built: false, bytes: 0 }
    }

    pub(crate) fn release(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
    }

    fn reserve(&mut self, bytes: usize, context: Context<'_>) -> Result<()> {
        if bytes > 0 {
            context.execution.reserve(bytes)?;
            self.bytes += bytes;
        }
        Ok(())
    }

    fn states(group: &GroupNode) -> Result<Vec<AggregateState>> {
        group.aggregates.iter().filter(|node| node.grouping.is_none()).map(AggregateState::new).collect()
    }

    /// Makes the group of a key, if it is not there yet; its place.
    fn place(
        &mut self,
        places: &mut HashMap<Vec<Datum>, usize, Seeded>,
        set: usize,
        key: &Vec<Datum>,
        group: &GroupNode,
        context: Context<'_>,
    ) -> Result<usize> {
        if let Some(place) = places.get(key) {
            return Ok(*place);
        }
        let place = self.groups.len();
        let states = GroupState::states(group)?;
        self.reserve(2 * row_bytes(key) + 64 + 96 * states.len(), context)?;
        places.insert(key.clone(), place);
        self.groups.push(Grouped { set, key: key.clone(), states });
        Ok(place)
    }

    /// Reads all input rows.
    fn build(
        &mut self,
        select: &SelectNode,
        group: &GroupNode,
        source: &mut SourceState,
        context: Context<'_>,
        frame: &mut [Datum],
    ) -> Result<()> {
        let all = [vec![true; group.keys.len()]];
        let sets: &[Vec<bool>] = group.sets.as_deref().unwrap_or(&all);
        // The groups of each set by their keys. A set without keys has one group, even without a row.
        let mut places: Vec<HashMap<Vec<Datum>, usize, Seeded>> =
            sets.iter().map(|_| HashMap::default()).collect();
        let no_key = vec![Datum::Null; group.keys.len()];
        for (set, keys) in sets.iter().enumerate() {
            if !keys.contains(&true) {
                self.place(&mut places[set], set, &no_key, group, context)?;
            }
        }
        let mut values = Vec::with_capacity(group.keys.len());
        let mut key = Vec::with_capacity(group.keys.len());
        while source.next(&select.source, context, frame)? {
            let env = context.env(frame);
            values.clear();
            for expr in &group.keys {
                values.push(expr.eval(&env)?);
            }
            for (set, keys) in sets.iter().enumerate() {
                let place = match group.sets {
                    None => self.place(&mut places[set], set, &values, group, context)?,
                    Some(_) => {
                        key.clear();
                        let given = values.iter().zip(keys);
                        key.extend(given.map(|(value, has)| if *has { value.clone() } else { Datum::Null }));
                        self.place(&mut places[set], set, &key, group, context)?
                    }
                };
                let mut held = 0;
                let nodes = group.aggregates.iter().filter(|node| node.grouping.is_none());
                for (state, node) in self.groups[place].states.iter_mut().zip(nodes) {
                    held += state.add(node, &env)?;
                }
                self.reserve(held, context)?;
            }
        }
        self.built = true;
        Ok(())
    }

    /// Puts the next group that satisfies HAVING into `grouped`, its keys first.
    pub(crate) fn next(
        &mut self,
        select: &SelectNode,
        group: &GroupNode,
        source: &mut SourceState,
        context: Context<'_>,
        frame: &mut [Datum],
        grouped: &mut [Datum],
    ) -> Result<bool> {
        if !self.built {
            self.build(select, group, source, context, frame)?;
        }
        while let Some(Grouped { set, key, states }) = self.groups.get_mut(self.at) {
            self.at += 1;
            for (place, value) in grouped.iter_mut().zip(key.iter_mut()) {
                *place = std::mem::take(value);
            }
            let mut states = states.iter_mut();
            for (place, node) in grouped[group.keys.len()..].iter_mut().zip(&group.aggregates) {
                *place = match &node.grouping {
                    Some(values) => Datum::Int4(values[*set]),
                    None => match states.next() {
                        Some(state) => state.finish(node, context)?,
                        None => return Err(SqlError::internal("a group without one of its aggregates")),
                    },
                };
            }
            if holds(&group.having, &context.env(grouped))? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
