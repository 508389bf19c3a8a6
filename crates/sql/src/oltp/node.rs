//! What gives rows: query levels, VALUES, and steps over rows.

use std::sync::Arc;

use super::Context;
use super::cte;
use super::distinct::DistinctState;
use super::group::GroupState;
use super::input::{SourceState, new_source};
use super::limit::LimitState;
use super::set_operation::SetState;
use super::sort::SortState;
use super::table_function::TableRows;
use super::window::WindowState;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Env, Expr, Tally, place_of};
use crate::plan::{CtePlan, Node, SelectNode};
use crate::types::bounds::PIECE;
use crate::types::{Datum, Record};

/// State of a node.
pub(crate) enum NodeState {
    Select(Box<SelectState>),
    Values {
        at: usize,
    },
    Set(Box<SetState>),
    Sort(Box<SortState>),
    Distinct(Box<DistinctState>),
    Limit(Box<LimitState>),
    Convert(Box<NodeState>),
    With {
        input: Box<NodeState>,
        /// WITH queries whose rows are this run's only.
        ctes: Arc<[Arc<CtePlan>]>,
        begun: bool,
    },
}

/// State of a query level.
pub(crate) struct SelectState {
    source: SourceState,
    frame: Vec<Datum>,
    group: Option<GroupState>,
    /// The group's frame; with set-returning calls also their results.
    grouped: Vec<Datum>,
    /// Rows of the set-returning calls for the current frame, and how many were given.
    sets: Option<Vec<TableRows>>,
    /// With windows: their state, and the row with all results.
    windows: Option<(WindowState, Vec<Datum>)>,
}

/// The number a LIMIT or OFFSET stands for; none for NULL. 2201W and 2201X if it is negative.
pub(crate) fn evaluate_limit(expr: &Expr, what: &str, context: Context<'_>) -> Result<Option<i64>> {
    match expr.eval(&context.env(&[]))?.as_i64() {
        Some(number) if number < 0 => {
            let state = if what == "LIMIT" {
                sqlstate::INVALID_ROW_COUNT_IN_LIMIT_CLAUSE
            } else {
                sqlstate::INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE
            };
            Err(SqlError::new(state, format!("{what} must not be negative")))
        }
        number => Ok(number),
    }
}

fn mismatch() -> SqlError {
    SqlError::internal("a plan and its state differ")
}

impl NodeState {
    pub(crate) fn new(node: &Node) -> NodeState {
        match node {
            Node::Select(select) => NodeState::Select(Box::new(SelectState::new(select))),
            Node::Values(_) => NodeState::Values { at: 0 },
            Node::SetOperation { left, right, .. } => NodeState::Set(Box::new(SetState::new(left, right))),
            Node::Sort { input, .. } => NodeState::Sort(Box::new(SortState::new(input))),
            Node::Distinct { input, .. } => NodeState::Distinct(Box::new(DistinctState::new(input))),
            Node::Limit { input, .. } => NodeState::Limit(Box::new(LimitState::new(input))),
            Node::Convert { input, .. } => NodeState::Convert(Box::new(NodeState::new(input))),
            Node::With { input, ctes } => {
                NodeState::With { input: Box::new(NodeState::new(input)), ctes: ctes.clone(), begun: false }
            }
        }
    }

    /// Gives back the memory it accounts for.
    pub(crate) fn release(&mut self, context: Context<'_>) {
        match self {
            NodeState::Select(state) => {
                state.source.release(context);
                if let Some(group) = &mut state.group {
                    group.release(context);
                }
                if let Some((windows, _)) = &mut state.windows {
                    windows.release(context);
                }
            }
            NodeState::Values { .. } => {}
            NodeState::Set(state) => state.release(context),
            NodeState::Sort(state) => state.release(context),
            NodeState::Distinct(state) => state.release(context),
            NodeState::Limit(state) => state.release(context),
            NodeState::Convert(input) => input.release(context),
            NodeState::With { input, ctes, begun } => {
                input.release(context);
                if *begun {
                    cte::forget(ctes.iter().map(|cte| cte.number), context);
                }
            }
        }
    }

    /// Puts the next row into `out`.
    pub(crate) fn next(&mut self, node: &Node, context: Context<'_>, out: &mut Vec<Datum>) -> Result<bool> {
        match context.execution.step()? {
            None => self.give(node, context, out),
            Some(tally) => self.next_counted(node, tally, context, out),
        }
    }

    #[cold]
    fn next_counted(
        &mut self,
        node: &Node,
        tally: &Tally,
        context: Context<'_>,
        out: &mut Vec<Datum>,
    ) -> Result<bool> {
        tally.row(place_of(node), || self.give(node, context, out))
    }

    // It is there twice, so that an execution in which nothing is counted takes no call more.
    #[inline(always)]
    fn give(&mut self, node: &Node, context: Context<'_>, out: &mut Vec<Datum>) -> Result<bool> {
        match (self, node) {
            (NodeState::Select(state), Node::Select(select)) => state.next(select, context, out),
            (NodeState::Sort(state), Node::Sort { input, keys, limit }) => {
                state.next(input, keys, limit.as_ref(), context, out)
            }
            (NodeState::Limit(state), Node::Limit { input, limit, offset, ties }) => {
                state.next(input, (limit.as_ref(), offset.as_ref()), ties, context, out)
            }
            (NodeState::Distinct(state), Node::Distinct { input, columns }) => {
                state.next(input, columns, context, out)
            }
            (NodeState::Convert(input), Node::Convert { input: node, casts }) => {
                if !input.next(node, context, out)? {
                    return Ok(false);
                }
                out.truncate(casts.len());
                for (value, cast) in out.iter_mut().zip(casts) {
                    if let Some(cast) = cast {
                        *value = cast.apply(value, context.execution.read.eval.format)?;
                    }
                }
                Ok(true)
            }
            (NodeState::Values { at }, Node::Values(rows)) => {
                let Some(row) = rows.get(*at) else { return Ok(false) };
                *at += 1;
                project(row, &[], context, out)?;
                Ok(true)
            }
            (NodeState::With { input, ctes, begun }, Node::With { input: node, .. }) => {
                if !std::mem::replace(begun, true) {
                    cte::forget(ctes.iter().map(|cte| cte.number), context);
                }
                input.next(node, context, out)
            }
            (NodeState::Set(state), Node::SetOperation { kind, all, left, right }) => {
                state.next(*kind, *all, left, right, context, out)
            }
            _ => Err(mismatch()),
        }
    }
}

impl SelectState {
    fn new(select: &SelectNode) -> SelectState {
        // Places for the results of windows and sets.
        let results = match &select.windows {
            Some(windows) => windows.results,
            None => select.set_returning.len(),
        };
        let (frame, grouped) = match &select.group {
            Some(group) => {
                (select.frame + group.computed.len(), group.keys.len() + group.aggregates.len() + results)
            }
            None => (select.frame + results, 0),
        };
        SelectState {
            source: new_source(select),
            frame: vec![Datum::Null; frame],
            group: select.group.as_ref().map(|_| GroupState::new()),
            grouped: vec![Datum::Null; grouped],
            sets: None,
            windows: select.windows.as_ref().map(|windows| (WindowState::new(windows), vec![])),
        }
    }

    fn next(&mut self, select: &SelectNode, context: Context<'_>, out: &mut Vec<Datum>) -> Result<bool> {
        if !select.set_returning.is_empty() {
            return self.next_of_sets(select, context, out);
        }
        if !self.advance(select, context)? {
            return Ok(false);
        }
        project(&select.targets, self.row(), context, out)?;
        Ok(true)
    }

    /// The row that the output is made of.
    fn row(&self) -> &[Datum] {
        match (&self.windows, &self.group) {
            (Some((_, row)), _) => row,
            (None, Some(_)) => &self.grouped,
            (None, None) => &self.frame,
        }
    }

    /// Brings the next input row, or group, with the results of windows.
    fn advance(&mut self, select: &SelectNode, context: Context<'_>) -> Result<bool> {
        let SelectState { source, frame, group, grouped, windows, .. } = self;
        let mut advance =
            |frame: &mut Vec<Datum>, grouped: &mut Vec<Datum>| match (&mut *group, &select.group) {
                (Some(state), Some(group)) => {
                    let mut next = || state.next(select, group, source, context, frame, grouped);
                    match context.execution.read.tally {
                        Some(tally) => tally.row(place_of(group), next),
                        None => next(),
                    }
                }
                _ => source.next(&select.source, context, frame),
            };
        let (Some((state, row)), Some(node)) = (windows, &select.windows) else {
            return advance(frame, grouped);
        };
        let is_grouped = select.group.is_some();
        let next = state.next(node, context, &mut |row: &mut Vec<Datum>| {
            let found = advance(frame, grouped)?;
            if found {
                row.clear();
                row.reserve_exact(if is_grouped { grouped.len() } else { frame.len() } + node.computed.len());
                row.extend_from_slice(if is_grouped { grouped } else { frame });
            }
            Ok(found)
        })?;
        match next {
            Some(next) => *row = next,
            None => return Ok(false),
        }
        Ok(true)
    }

    /// With set-returning calls: as many rows for each frame as the longest set has, shorter ones
    /// filled up with NULLs.
    fn next_of_sets(
        &mut self,
        select: &SelectNode,
        context: Context<'_>,
        out: &mut Vec<Datum>,
    ) -> Result<bool> {
        loop {
            if let Some(sets) = &mut self.sets {
                let (row, behind) = match (&mut self.windows, &select.windows) {
                    (Some((_, row)), Some(node)) => (row, node.computed.len()),
                    _ if self.group.is_some() => (&mut self.grouped, 0),
                    _ => (&mut self.frame, 0),
                };
                context.execution.tick()?;
                let base = row.len() - behind - select.set_returning.len();
                if next_of_each(sets, select, &mut row[base..])? {
                    project(&select.targets, row, context, out)?;
                    return Ok(true);
                }
                self.sets = None;
            }
            if !self.advance(select, context)? {
                return Ok(false);
            }
            let env = context.env(self.row());
            let sets = select.set_returning.iter().map(|set| TableRows::open(&set.call, &env));
            self.sets = Some(sets.collect::<Result<_>>()?);
        }
    }
}

/// Puts the next value of each set into its place, NULL for one that is at its end. False if all
/// are.
fn next_of_each(sets: &mut [TableRows], select: &SelectNode, places: &mut [Datum]) -> Result<bool> {
    let mut found = false;
    for ((set, call), place) in sets.iter_mut().zip(&select.set_returning).zip(places) {
        *place = match (set.next()?, &call.shape) {
            (Some(values), Some(shape)) => {
                found = true;
                Datum::Record(Arc::new(Record { shape: shape.clone(), values }))
            }
            (Some(mut values), None) => {
                found = true;
                values.first_mut().map(std::mem::take).unwrap_or(Datum::Null)
            }
            (None, _) => Datum::Null,
        };
    }
    Ok(found)
}

/// Evaluates the output. 53200 if the large values that are made for it are together more than the
/// statement may hold.
#[inline]
pub(crate) fn project(
    targets: &[Expr],
    row: &[Datum],
    context: Context<'_>,
    out: &mut Vec<Datum>,
) -> Result<()> {
    out.clear();
    let env = context.env(row);
    let mut made = 0;
    for target in targets {
        let value = target.eval(&env)?;
        if value.bulk() > PIECE {
            count_made(target, &value, &env, &mut made)?;
        }
        out.push(value);
    }
    Ok(())
}

/// Counts a large value of a row, unless it is one that is there anyway.
#[cold]
fn count_made(target: &Expr, value: &Datum, env: &Env<'_>, made: &mut usize) -> Result<()> {
    if target.stored(env).is_none() {
        *made += value.bulk();
    }
    env.execution.read.eval.check_size(*made)
}
