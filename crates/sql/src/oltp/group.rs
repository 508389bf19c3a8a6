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
    groups: Vec<(Vec<Datum>, Vec<AggregateState>)>,
    at: usize,
    built: bool,
    bytes: usize,
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
        group.aggregates.iter().map(AggregateState::new).collect()
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
        let mut places: HashMap<Vec<Datum>, usize, Seeded> = HashMap::default();
        let mut key = Vec::with_capacity(group.keys.len());
        if group.keys.is_empty() {
            // There is one group even without a row.
            self.groups.push((vec![], GroupState::states(group)?));
        }
        while source.next(&select.source, context, frame)? {
            let env = context.env(frame);
            let mut place = 0;
            if !group.keys.is_empty() {
                key.clear();
                for expr in &group.keys {
                    key.push(expr.eval(&env)?);
                }
                place = match places.get(&key) {
                    Some(place) => *place,
                    None => {
                        let place = self.groups.len();
                        let states = GroupState::states(group)?;
                        self.reserve(2 * row_bytes(&key) + 64 + 96 * states.len(), context)?;
                        places.insert(key.clone(), place);
                        self.groups.push((key.clone(), states));
                        place
                    }
                };
            }
            let mut held = 0;
            for (state, node) in self.groups[place].1.iter_mut().zip(&group.aggregates) {
                held += state.add(node, &env)?;
            }
            self.reserve(held, context)?;
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
        while let Some((key, states)) = self.groups.get_mut(self.at) {
            self.at += 1;
            for (place, value) in grouped.iter_mut().zip(key.iter_mut()) {
                *place = std::mem::take(value);
            }
            let aggregates = grouped[group.keys.len()..].iter_mut();
            for ((place, state), node) in aggregates.zip(states.iter_mut()).zip(&group.aggregates) {
                *place = state.finish(node, context)?;
            }
            if holds(&group.having, &context.env(grouped))? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
