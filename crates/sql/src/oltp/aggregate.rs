//! Grouping: one set of accumulators for each combination of keys.
//!
//! Without keys there is one group, even over no rows. Groups come out in the order in which they were first met.

use std::collections::{HashMap, HashSet};

use super::sort::compare_values;
use super::{Context, Row, row_bytes};
use crate::bind::AggregateCall;
use crate::error::{Result, SqlError};
use crate::function::aggregate::Accumulator;
use crate::plan::Group;
use crate::types::Datum;

/// Bytes a group costs besides its key and what its accumulators say.
const GROUP_BYTES: usize = 128;

/// All groups of one query level.
pub(crate) struct Groups<'a> {
    plan: &'a Group,
    places: HashMap<Row, usize>,
    groups: Vec<(Row, Vec<State>)>,
}

/// One aggregate over one group.
struct State {
    accumulator: Box<dyn Accumulator>,
    seen: Option<HashSet<Row>>,
    /// Rows kept until the end, because the call has an ORDER BY: arguments, then sort values.
    rows: Vec<(Row, Row)>,
}

impl State {
    fn new(call: &AggregateCall) -> Result<State> {
        let accumulator = call
            .function
            .accumulator()
            .ok_or_else(|| SqlError::internal("an aggregate without an accumulator"))?;
        Ok(State { accumulator, seen: call.distinct.then(HashSet::new), rows: vec![] })
    }
}

impl<'a> Groups<'a> {
    pub(crate) fn new(plan: &'a Group) -> Groups<'a> {
        Groups { plan, places: HashMap::new(), groups: vec![] }
    }

    fn states(&self) -> Result<Vec<State>> {
        self.plan.aggregates.iter().map(State::new).collect()
    }

    /// Adds one frame to its group.
    pub(crate) fn add(&mut self, frame: &[Datum], context: &Context<'_>) -> Result<()> {
        let env = context.env(frame);
        let key = self.plan.keys.iter().map(|key| key.eval(&env)).collect::<Result<Row>>()?;
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None => {
                let states = self.states()?;
                context.execution.reserve(2 * row_bytes(&key) + GROUP_BYTES * (1 + states.len()))?;
                self.places.insert(key.clone(), self.groups.len());
                self.groups.push((key, states));
                self.groups.len() - 1
            }
        };
        for (call, state) in self.plan.aggregates.iter().zip(&mut self.groups[place].1) {
            if let Some(filter) = &call.filter
                && !filter.test(&env)?
            {
                continue;
            }
            let arguments = call.arguments.iter().map(|expr| expr.eval(&env)).collect::<Result<Row>>()?;
            if let Some(seen) = &mut state.seen {
                if seen.contains(&arguments) {
                    continue;
                }
                context.execution.reserve(row_bytes(&arguments))?;
                seen.insert(arguments.clone());
            }
            if call.order.is_empty() {
                let before = state.accumulator.memory();
                state.accumulator.add(&arguments, &context.execution.read.eval)?;
                let grown = state.accumulator.memory().saturating_sub(before);
                if grown > 0 {
                    context.execution.reserve(grown)?;
                }
            } else {
                let order = call.order.iter().map(|(expr, _, _)| expr.eval(&env)).collect::<Result<Row>>()?;
                context.execution.reserve(row_bytes(&arguments) + row_bytes(&order))?;
                state.rows.push((arguments, order));
            }
        }
        Ok(())
    }

    /// The groups' frames: keys, then results.
    pub(crate) fn finish(mut self, context: &Context<'_>) -> Result<Vec<Row>> {
        if self.plan.keys.is_empty() && self.groups.is_empty() {
            let states = self.states()?;
            self.groups.push((vec![], states));
        }
        let mut frames = Vec::with_capacity(self.groups.len());
        for (mut frame, states) in self.groups {
            for (call, mut state) in self.plan.aggregates.iter().zip(states) {
                state.rows.sort_by(|a, b| {
                    let keys = call.order.iter().zip(a.1.iter().zip(&b.1));
                    let mut orders = keys.map(|((_, descending, nulls_first), (a, b))| {
                        compare_values(a, b, *descending, *nulls_first)
                    });
                    orders.find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
                });
                for (arguments, _) in &state.rows {
                    state.accumulator.add(arguments, &context.execution.read.eval)?;
                }
                frame.push(state.accumulator.finish(&context.execution.read.eval)?);
            }
            frames.push(frame);
        }
        Ok(frames)
    }
}
