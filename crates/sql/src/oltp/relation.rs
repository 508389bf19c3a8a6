//! Rows of one relation, put into the frame and tested.

use std::sync::Arc;

use bytes::Bytes;

use super::access::AccessRows;
use super::input::holds;
use super::rows::Rows;
use super::table_function::CallRows;
use super::{Context, Row, row_bytes};
use crate::catalog::Table;
use crate::error::{Result, SqlError};
use crate::expr::Env;
use crate::plan::{Access, Input, Relation, Source};
use crate::types::Datum;

/// The state of a relation in its place of the join order.
pub(crate) struct RelationRows {
    plan: Arc<Input>,
    rows: State,
    /// Rows kept from the first round, if nothing they depend on can change in the next.
    kept: Option<Arc<Vec<Row>>>,
}

enum State {
    Closed,
    Table(AccessRows),
    Given(Arc<Vec<Row>>, usize),
    Query(Box<Rows>),
    Function(CallRows, i64),
}

impl RelationRows {
    pub(crate) fn new(plan: Arc<Input>) -> RelationRows {
        RelationRows { plan, rows: State::Closed, kept: None }
    }

    pub(crate) fn open(&mut self, frame: &mut Row, context: &Context<'_>) -> Result<()> {
        let plan = self.plan.clone();
        let relation = relation(&plan)?;
        self.rows = match &relation.source {
            Source::Table(table, access) => State::Table(AccessRows::open(table, access, frame, context)?),
            Source::Virtual(table, key) => {
                let read = context.execution.read;
                let by_key = match key {
                    Some((column, value)) => {
                        let value = value.eval(&context.env(frame))?;
                        table.rows_by_key(*column, &value, read)
                    }
                    None => None,
                };
                let rows = match (by_key, &self.kept) {
                    (Some(rows), _) => Arc::new(rows?),
                    (None, Some(kept)) => kept.clone(),
                    (None, None) => {
                        let rows = Arc::new(table.rows(read)?);
                        self.kept = Some(rows.clone());
                        rows
                    }
                };
                State::Given(rows, 0)
            }
            Source::Cte(number) => {
                let states = context.execution.runtime.ctes.borrow();
                let state = states.get(*number).and_then(Option::as_ref);
                let state =
                    state.ok_or_else(|| SqlError::internal("a common table expression is read too early"))?;
                State::Given(state.0.clone(), 0)
            }
            Source::Function(function) => {
                let env = context.env(frame);
                State::Function(CallRows::open(&function.call, &env)?, 0)
            }
            Source::Query(query) => self.open_query(query, relation.keep, frame, context)?,
        };
        Ok(())
    }

    fn open_query(
        &mut self,
        query: &Arc<crate::plan::Node>,
        keep: bool,
        frame: &[Datum],
        context: &Context<'_>,
    ) -> Result<State> {
        // Only what depends on no frame at all is the same in every round.
        let lasting = keep && query.outer.is_empty();
        if let (true, Some(kept)) = (lasting, &self.kept) {
            return Ok(State::Given(kept.clone(), 0));
        }
        let env: Env<'_> = context.env(frame);
        let inner = Context { execution: context.execution, outer: Some(&env) };
        let mut rows = Rows::new(query);
        rows.open(&inner)?;
        if !lasting {
            return Ok(State::Query(Box::new(rows)));
        }
        if self.kept.is_none() && matches!(self.rows, State::Closed) {
            // The first round streams; a second one shows that keeping the rows pays.
            return Ok(State::Query(Box::new(rows)));
        }
        let mut all = vec![];
        while let Some(row) = rows.next(&inner)? {
            context.execution.reserve(row_bytes(&row))?;
            all.push(row);
        }
        let all = Arc::new(all);
        self.kept = Some(all.clone());
        Ok(State::Given(all, 0))
    }

    pub(crate) fn next(&mut self, frame: &mut Row, context: &Context<'_>) -> Result<bool> {
        let plan = self.plan.clone();
        let relation = relation(&plan)?;
        loop {
            context.execution.tick()?;
            let found = match &mut self.rows {
                State::Closed => false,
                State::Table(rows) => match &relation.source {
                    Source::Table(table, access) => {
                        next_stored(rows, relation, table, access, frame, context)?
                    }
                    _ => false,
                },
                State::Given(rows, place) => match rows.get(*place) {
                    None => false,
                    Some(row) => {
                        *place += 1;
                        fill(relation, row, frame);
                        true
                    }
                },
                State::Query(rows) => {
                    let row = {
                        let env = context.env(frame);
                        rows.next(&Context { execution: context.execution, outer: Some(&env) })?
                    };
                    row.map(|row| fill(relation, &row, frame)).is_some()
                }
                State::Function(rows, number) => match rows.next(context)? {
                    None => false,
                    Some(mut row) => {
                        *number += 1;
                        if let Source::Function(function) = &relation.source
                            && function.ordinality
                        {
                            row.push(Datum::Int8(*number));
                        }
                        fill(relation, &row, frame);
                        true
                    }
                },
            };
            if !found {
                return Ok(false);
            }
            if holds(&relation.conditions, frame, context)? {
                return Ok(true);
            }
        }
    }
}

fn relation(plan: &Input) -> Result<&Relation> {
    match plan {
        Input::Relation(relation) => Ok(relation),
        _ => Err(SqlError::internal("a relation's state for another input")),
    }
}

fn fill(relation: &Relation, row: &[Datum], frame: &mut [Datum]) {
    for (column, slot) in &relation.fills {
        frame[*slot] = row.get(*column).cloned().unwrap_or(Datum::Null);
    }
}

fn next_stored(
    rows: &mut AccessRows,
    relation: &Relation,
    table: &Table,
    access: &Access,
    frame: &mut [Datum],
    context: &Context<'_>,
) -> Result<bool> {
    let Some((key, stored)) = rows.next(table, access, context)? else { return Ok(false) };
    fill_stored(relation, table, &stored, frame)?;
    if let Some(slot) = relation.key_slot {
        frame[slot] = Datum::Bytea(key);
    }
    Ok(true)
}

/// Puts the columns that the query reads into the frame.
#[inline]
fn fill_stored(relation: &Relation, table: &Table, stored: &Bytes, frame: &mut [Datum]) -> Result<()> {
    let row = table.layout().open(stored)?;
    for (column, slot) in &relation.fills {
        frame[*slot] = match row.get(*column)? {
            Some(value) => value,
            None => table.columns[*column].missing.clone(),
        };
    }
    Ok(())
}
