//! Window functions.
//!
//! The windows of a level are computed one after the other: each [`Stage`] takes the rows that the
//! stage before gives, sorts them if they do not come in its order, reads one partition at a time,
//! and gives each row with the results of its calls put in their places.
//!
//! ```text
//! sum(x) OVER (PARTITION BY a ORDER BY b), rank() OVER (ORDER BY c)
//!
//! frame [a b c x]  ──▶  stage: sort by c, rank  ──▶  stage: sort by a, b, sum  ──▶  [a b c x | sum rank]
//! ```
//!
//! A row's frame is a range of places in its partition, found by two ends that only move forward
//! ([`frame`]), so aggregates add each row once; where the start moves they take rows back if the
//! aggregate can do that exactly, and begin anew if it cannot ([`running`]).

mod call;
mod first;
mod frame;
mod range;
mod running;
mod stage;

use super::Context;
use crate::error::Result;
use crate::expr::place_of;
use crate::plan::{WindowNode, WindowsNode};
use crate::types::Datum;
use stage::Stage;

/// Puts the next row of a level into the given place; false at the end.
pub(super) type Input<'a> = &'a mut dyn FnMut(&mut Vec<Datum>) -> Result<bool>;

/// State of all windows of a level.
pub(crate) struct WindowState {
    stages: Vec<Stage>,
}

impl WindowState {
    pub(crate) fn new(node: &WindowsNode) -> WindowState {
        WindowState { stages: node.stages.iter().map(Stage::new).collect() }
    }

    /// Gives back the memory it accounts for.
    pub(crate) fn release(&mut self, context: Context<'_>) {
        self.stages.iter_mut().for_each(|stage| stage.release(context));
    }

    /// The next row with all results; `input` gives the rows without.
    pub(crate) fn next(
        &mut self,
        node: &WindowsNode,
        context: Context<'_>,
        input: Input<'_>,
    ) -> Result<Option<Vec<Datum>>> {
        let mut with_keys = |row: &mut Vec<Datum>| {
            if !input(row)? {
                return Ok(false);
            }
            for (place, key) in node.computed.iter().enumerate() {
                let value = key.eval(&context.env(&row[..row.len() - place]))?;
                row.push(value);
            }
            Ok(true)
        };
        let mut row = vec![];
        Ok(pull(&mut self.stages, &node.stages, context, &mut with_keys, &mut row)?.then_some(row))
    }
}

/// The next row of the last of these stages.
fn pull(
    stages: &mut [Stage],
    nodes: &[WindowNode],
    context: Context<'_>,
    input: Input<'_>,
    row: &mut Vec<Datum>,
) -> Result<bool> {
    let (Some((stage, stages)), Some((node, nodes))) = (stages.split_last_mut(), nodes.split_last()) else {
        return input(row);
    };
    let mut next = || stage.next(node, context, &mut |row| pull(stages, nodes, context, input, row), row);
    match context.execution.read.tally {
        Some(tally) => tally.row(place_of(node), next),
        None => next(),
    }
}
