//! What fills frames: scans, joins, derived tables.

use std::sync::Arc;
use std::time::Duration;

use super::Context;
use super::cte;
use super::hash_join::HashJoinState;
use super::merge_join::MergeJoinState;
use super::node::NodeState;
use super::pages::Rows;
use super::scan::{LateColumns, ScanState, Take};
use super::table_function::TableRows;
use crate::error::{Result, SqlError};
use crate::expr::{Env, Expr, Tally, place_of, since};
use crate::plan::{Scan, SelectNode, SourceNode};
use crate::types::Datum;

/// State of a source.
pub(crate) enum SourceState {
    /// A row without columns, given already or not.
    Unit {
        given: bool,
    },
    Nothing,
    Scan(Box<ScanState>),
    /// Rows held in memory: of a computed table or a common table expression.
    Rows {
        rows: Option<Arc<Vec<Vec<Datum>>>>,
        /// Which chunk of a common table expression they are.
        chunk: usize,
        at: usize,
    },
    Query {
        state: Box<NodeState>,
        row: Vec<Datum>,
    },
    Function {
        rows: Option<TableRows>,
        count: i64,
    },
    Filter(Box<SourceState>),
    First {
        input: Box<SourceState>,
        given: bool,
    },
    Materialize(Box<MaterializeState>),
    Loop(Box<LoopState>),
    HashJoin(Box<HashJoinState>),
    MergeJoin(Box<MergeJoinState>),
}

/// Rows read once and given again and again; on disk if there are too many for memory.
pub(crate) struct MaterializeState {
    input: SourceState,
    /// Values of the places, row by row.
    rows: Rows,
    complete: bool,
    at: usize,
}

/// A nested loop.
pub(crate) struct LoopState {
    outer: SourceState,
    inner: SourceState,
    /// There is an outer row in the frame.
    in_row: bool,
    /// It has found a partner.
    matched: bool,
}

/// The state of a level's source before its first row.
pub(crate) fn new_source(select: &SelectNode) -> SourceState {
    SourceState::new(&select.source)
}

/// Whether all conditions hold.
#[inline]
pub(crate) fn holds(conditions: &[Expr], env: &Env<'_>) -> Result<bool> {
    for condition in conditions {
        if !condition.test(env)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn mismatch() -> SqlError {
    SqlError::internal("a plan and its state differ")
}

impl SourceState {
    pub(crate) fn new(node: &SourceNode) -> SourceState {
        match node {
            SourceNode::Unit => SourceState::Unit { given: false },
            SourceNode::Nothing => SourceState::Nothing,
            SourceNode::Scan(_) => SourceState::Scan(Box::new(ScanState::new())),
            SourceNode::Virtual { .. } | SourceNode::Cte { .. } => {
                SourceState::Rows { rows: None, chunk: 0, at: 0 }
            }
            SourceNode::Query { node, .. } => {
                SourceState::Query { state: Box::new(NodeState::new(node)), row: vec![] }
            }
            SourceNode::Function { .. } => SourceState::Function { rows: None, count: 0 },
            SourceNode::Filter { input, .. } => SourceState::Filter(Box::new(SourceState::new(input))),
            SourceNode::First(input) => {
                SourceState::First { input: Box::new(SourceState::new(input)), given: false }
            }
            SourceNode::Materialize { input, .. } => SourceState::Materialize(Box::new(MaterializeState {
                input: SourceState::new(input),
                rows: Rows::default(),
                complete: false,
                at: 0,
            })),
            SourceNode::NestedLoop { outer, inner, .. } => SourceState::Loop(Box::new(LoopState {
                outer: SourceState::new(outer),
                inner: SourceState::new(inner),
                in_row: false,
                matched: false,
            })),
            SourceNode::HashJoin(join) => SourceState::HashJoin(Box::new(HashJoinState::new(join))),
            SourceNode::MergeJoin(join) => SourceState::MergeJoin(Box::new(MergeJoinState::new(join))),
        }
    }

    /// Starts again, with the frame's values then.
    pub(crate) fn rewind(&mut self, node: &SourceNode, context: Context<'_>) {
        if let Some(tally) = context.execution.read.tally {
            tally.end_loop(place_of(node));
        }
        match (self, node) {
            (SourceState::Unit { given }, _) => *given = false,
            (SourceState::Nothing, _) => {}
            (SourceState::Scan(scan), _) => scan.rewind(context),
            (SourceState::Rows { rows, chunk, at }, _) => {
                *rows = None;
                *chunk = 0;
                *at = 0;
            }
            (SourceState::Query { state, .. }, SourceNode::Query { node, .. }) => {
                state.release(context);
                **state = NodeState::new(node);
                if let Some(tally) = context.execution.read.tally {
                    node.for_each_place(&mut |place| tally.end_loop(place));
                }
            }
            (SourceState::Function { rows, count }, _) => {
                *rows = None;
                *count = 0;
            }
            (SourceState::Filter(input), SourceNode::Filter { input: node, .. }) => {
                input.rewind(node, context)
            }
            (SourceState::First { input, given }, SourceNode::First(node)) => {
                *given = false;
                input.rewind(node, context);
            }
            // The rows stay: what they depend on has not changed, or the planner would not have put
            // the node here.
            (SourceState::Materialize(state), SourceNode::Materialize { input, .. }) => {
                state.at = 0;
                if !state.complete {
                    state.rows.clear(context);
                    state.input.rewind(input, context);
                }
            }
            (SourceState::Loop(state), SourceNode::NestedLoop { outer, inner, .. }) => {
                state.in_row = false;
                state.outer.rewind(outer, context);
                state.inner.rewind(inner, context);
            }
            (SourceState::HashJoin(state), SourceNode::HashJoin(join)) => state.rewind(join, context),
            (SourceState::MergeJoin(state), SourceNode::MergeJoin(join)) => state.rewind(join, context),
            _ => {}
        }
    }

    /// Gives back the memory it accounts for.
    pub(crate) fn release(&mut self, context: Context<'_>) {
        match self {
            SourceState::Scan(state) => state.release(context),
            SourceState::Materialize(state) => {
                state.rows.clear(context);
                state.input.release(context);
            }
            SourceState::Query { state, .. } => state.release(context),
            SourceState::Filter(input) | SourceState::First { input, .. } => input.release(context),
            SourceState::Loop(state) => {
                state.outer.release(context);
                state.inner.release(context);
            }
            SourceState::HashJoin(state) => state.release(context),
            SourceState::MergeJoin(state) => state.release(context),
            _ => {}
        }
    }

    /// Gives `take` each row that is left, in the frame. A scan may leave columns to it, and may
    /// pause once `most` rows of a range were read: true, and there may be more. Where rows are
    /// counted it does not, so that one thread counts all of them, in one loop.
    pub(crate) fn for_each(
        &mut self,
        node: &SourceNode,
        late: Option<&LateColumns<'_>>,
        most: usize,
        context: Context<'_>,
        frame: &mut [Datum],
        take: &mut Take<'_>,
    ) -> Result<bool> {
        if let (SourceState::Scan(state), SourceNode::Scan(scan)) = (&mut *self, node) {
            return match context.execution.read.tally {
                None => state.for_each(scan, late, most, context, frame, take),
                Some(tally) => {
                    for_each_counted(state, scan, (place_of(node), tally), late, context, frame, take)
                }
            };
        }
        while self.next(node, context, frame)? {
            take(None, frame)?;
        }
        Ok(false)
    }

    /// Puts the next row into the frame.
    pub(crate) fn next(
        &mut self,
        node: &SourceNode,
        context: Context<'_>,
        frame: &mut [Datum],
    ) -> Result<bool> {
        match context.execution.step()? {
            None => self.give(node, context, frame),
            Some(tally) => self.next_counted(node, tally, context, frame),
        }
    }

    #[cold]
    fn next_counted(
        &mut self,
        node: &SourceNode,
        tally: &Tally,
        context: Context<'_>,
        frame: &mut [Datum],
    ) -> Result<bool> {
        tally.row(place_of(node), || self.give(node, context, frame))
    }

    // It is there twice, so that an execution in which nothing is counted takes no call more.
    #[inline(always)]
    fn give(&mut self, node: &SourceNode, context: Context<'_>, frame: &mut [Datum]) -> Result<bool> {
        match (self, node) {
            (SourceState::Scan(state), SourceNode::Scan(scan)) => state.next(scan, context, frame),
            (SourceState::Loop(state), SourceNode::NestedLoop { outer, inner, on, nulls }) => {
                state.next(outer, inner, on, nulls.as_deref(), context, frame)
            }
            (SourceState::HashJoin(state), SourceNode::HashJoin(join)) => state.next(join, context, frame),
            (SourceState::MergeJoin(state), SourceNode::MergeJoin(join)) => state.next(join, context, frame),
            (SourceState::Filter(state), SourceNode::Filter { input, conditions }) => {
                while state.next(input, context, frame)? {
                    if holds(conditions, &context.env(frame))? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (SourceState::Unit { given }, SourceNode::Unit) => Ok(!std::mem::replace(given, true)),
            (SourceState::Nothing, _) => Ok(false),
            (SourceState::First { input, given }, SourceNode::First(node)) => {
                if *given {
                    return Ok(false);
                }
                *given = true;
                input.next(node, context, frame)
            }
            (SourceState::Materialize(state), SourceNode::Materialize { input, slots }) => {
                state.next(input, slots, context, frame)
            }
            (SourceState::Query { state, row }, SourceNode::Query { node, slots, .. }) => {
                let inner_env = context.env(frame);
                let inner = Context { execution: context.execution, outer: Some(&inner_env) };
                if !state.next(node, inner, row)? {
                    return Ok(false);
                }
                for (column, slot) in slots {
                    frame[*slot] = std::mem::take(&mut row[*column]);
                }
                Ok(true)
            }
            (SourceState::Rows { rows, chunk, at }, node) => {
                next_of_rows(rows, (chunk, at), node, context, frame)
            }
            (SourceState::Function { rows, count }, SourceNode::Function { call, ordinality, slots, .. }) => {
                if rows.is_none() {
                    *rows = Some(TableRows::open(call, &context.env(frame))?);
                }
                let Some(next) = rows.as_mut().map(TableRows::next).transpose()?.flatten() else {
                    return Ok(false);
                };
                *count += 1;
                for (column, slot) in slots {
                    frame[*slot] = if *ordinality == Some(*column) {
                        Datum::Int8(*count)
                    } else {
                        next.get(*column).cloned().unwrap_or(Datum::Null)
                    };
                }
                Ok(true)
            }
            _ => Err(mismatch()),
        }
    }
}

/// Gives each row of a scan away, and counts it. The time that it takes to be taken is not the
/// scan's.
fn for_each_counted(
    state: &mut ScanState,
    scan: &Scan,
    (place, tally): (usize, &Tally),
    late: Option<&LateColumns<'_>>,
    context: Context<'_>,
    frame: &mut [Datum],
    take: &mut Take<'_>,
) -> Result<bool> {
    let began = tally.now();
    let (mut rows, mut first, mut elsewhere) = (0, None, Duration::ZERO);
    let given = state.for_each(scan, late, usize::MAX, context, frame, &mut |row, frame| {
        rows += 1;
        first.get_or_insert_with(|| since(began));
        let began = tally.now();
        let taken = take(row, frame);
        elsewhere += since(began);
        taken
    });
    let all = since(began).saturating_sub(elsewhere);
    tally.note(place, rows, (first.unwrap_or(all), all), true);
    given
}

/// The next row of a table that is held in memory.
fn next_of_rows(
    rows: &mut Option<Arc<Vec<Vec<Datum>>>>,
    (chunk, at): (&mut usize, &mut usize),
    node: &SourceNode,
    context: Context<'_>,
    frame: &mut [Datum],
) -> Result<bool> {
    let read = context.execution.read;
    let (slots, held) = match node {
        SourceNode::Virtual { table, slots, key } => {
            if rows.is_none() {
                let found = match key {
                    Some((column, value)) => {
                        let value = value.eval(&context.env(frame))?;
                        table.rows_by_key(*column, &value, read).transpose()?
                    }
                    None => None,
                };
                *rows = Some(Arc::new(match found {
                    Some(found) => found,
                    None => table.rows(read)?,
                }));
            }
            (slots, rows)
        }
        SourceNode::Cte { number, slots, .. } => {
            // The next chunk once this one is read.
            while rows.as_ref().is_none_or(|held| held.len() <= *at) {
                if rows.is_some() {
                    (*chunk, *at) = (*chunk + 1, 0);
                }
                *rows = cte::chunk(*number, *chunk, context)?;
                if rows.is_none() {
                    return Ok(false);
                }
            }
            (slots, rows)
        }
        _ => return Err(mismatch()),
    };
    let Some(row) = held.as_ref().and_then(|held| held.get(*at)) else { return Ok(false) };
    *at += 1;
    for (column, slot) in slots {
        frame[*slot] = row[*column].clone();
    }
    Ok(true)
}

impl MaterializeState {
    fn next(
        &mut self,
        input: &SourceNode,
        slots: &[usize],
        context: Context<'_>,
        frame: &mut [Datum],
    ) -> Result<bool> {
        if self.at < self.rows.len() {
            let row = self.rows.row(self.at)?;
            for (slot, value) in slots.iter().zip(row.iter()) {
                frame[*slot] = value.clone();
            }
            self.at += 1;
            return Ok(true);
        }
        if self.complete || !self.input.next(input, context, frame)? {
            self.complete = true;
            return Ok(false);
        }
        let row: Vec<Datum> = slots.iter().map(|slot| frame[*slot].clone()).collect();
        self.rows.push(row, false, context)?;
        self.at += 1;
        Ok(true)
    }
}

impl LoopState {
    fn next(
        &mut self,
        outer: &SourceNode,
        inner: &SourceNode,
        on: &[Expr],
        nulls: Option<&[usize]>,
        context: Context<'_>,
        frame: &mut [Datum],
    ) -> Result<bool> {
        loop {
            if !self.in_row {
                if !self.outer.next(outer, context, frame)? {
                    return Ok(false);
                }
                self.in_row = true;
                self.matched = false;
                self.inner.rewind(inner, context);
            }
            while self.inner.next(inner, context, frame)? {
                if holds(on, &context.env(frame))? {
                    self.matched = true;
                    return Ok(true);
                }
            }
            self.in_row = false;
            if let (Some(slots), false) = (nulls, self.matched) {
                for slot in slots {
                    frame[*slot] = Datum::Null;
                }
                return Ok(true);
            }
        }
    }
}
