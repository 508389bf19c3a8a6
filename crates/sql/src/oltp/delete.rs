//! DELETE.

use cognate_engine::LockMode;
use sqlparser::ast;

use super::returning::{Changed, Returning};
use super::run::Run;
use super::source::{Pieces, Places, WithQueries};
use super::subject::{Change, Subject};
use super::target::{Access, Target};
use super::update::frame_key;
use crate::bind::Binder;
use crate::catalog::Privileges;
use crate::error::{Result, SqlError};
use crate::function::Interrupt;
use crate::parse::current_of;
use crate::session::work::Work;
use crate::types::Datum;

/// A planned DELETE.
#[derive(Debug)]
pub(crate) struct DeletePlan {
    pub(crate) target: Target,
    pub(crate) returning: Option<Returning>,
    pub(crate) places: Places,
}

/// Binds and plans a DELETE.
pub(crate) fn bind(
    binder: &mut Binder<'_>,
    statement: &ast::Delete,
    with: WithQueries<'_>,
) -> Result<DeletePlan> {
    if !statement.tables.is_empty() || !statement.order_by.is_empty() || statement.limit.is_some() {
        return Err(SqlError::syntax("syntax error in DELETE: a clause of another dialect"));
    }
    let from = match &statement.from {
        ast::FromTable::WithFromKeyword(from) => from,
        ast::FromTable::WithoutKeyword(_) => {
            return Err(SqlError::syntax("syntax error: DELETE without FROM"));
        }
    };
    let [ast::TableWithJoins { relation: ast::TableFactor::Table { name, alias, .. }, joins }] =
        from.as_slice()
    else {
        return Err(SqlError::syntax("syntax error: DELETE takes one table"));
    };
    if !joins.is_empty() {
        return Err(SqlError::syntax("syntax error at or near \"JOIN\""));
    }
    let cursor = statement.selection.as_ref().and_then(current_of);
    let condition = statement.selection.as_ref().filter(|_| cursor.is_none());
    let reads = condition.is_some() || statement.returning.is_some() || statement.using.is_some();
    let read = if reads { Privileges::SELECT } else { Privileges::NONE };
    let subject = Subject::find(binder, name, Change::Delete, Privileges::DELETE | read)?;
    if cursor.is_some() {
        subject.check_current(statement.using.is_none() && with.is_empty())?;
    }
    let table = subject.table.clone();
    let mut parts = None;
    let query = with.bind(binder, |binder| {
        subject.open(binder, alias.as_ref())?;
        binder.from_beside_target(statement.using.as_deref().unwrap_or_default())?;
        if let Some(condition) = condition {
            binder.where_clause(condition)?;
        }
        let returning = match &statement.returning {
            None => None,
            Some(items) => {
                let (columns, exprs) = binder.returning(items)?;
                Some(Returning { columns, exprs })
            }
        };
        let (query, filter) = Target::query(binder)?;
        parts = Some((returning, filter));
        Ok(query)
    })?;
    let (mut returning, filter) = parts.ok_or_else(|| SqlError::internal("a DELETE was not bound"))?;
    let mut pieces = Pieces::default();
    let target = Target::plan(binder, &mut pieces, table, query, filter)?.at_cursor(cursor);
    if let Some(returning) = &mut returning {
        pieces.expressions(binder, &mut returning.exprs)?;
    }
    let places = pieces.finish(binder);
    Ok(DeletePlan { target: target.finish(&places), returning, places })
}

impl Work<'_> {
    /// Runs a DELETE.
    pub(crate) async fn delete(&mut self, plan: &DeletePlan, run: &mut Run) -> Result<Changed> {
        let mut changed = Changed::default();
        if let Access::Query(source) = &plan.target.access {
            run.open(source);
            while let Some(frame) = run.next(self)? {
                self.interrupts.check()?;
                let row_key = frame_key(&plan.target, &frame)?;
                self.delete_one(plan, run, row_key, frame, &mut changed).await?;
            }
        } else if let Some((row_key, frame)) = self.one_row(&plan.target, LockMode::Exclusive, run).await? {
            self.delete_one(plan, run, row_key, frame, &mut changed).await?;
        }
        Ok(changed)
    }

    async fn delete_one(
        &mut self,
        plan: &DeletePlan,
        run: &mut Run,
        row_key: bytes::Bytes,
        mut frame: Vec<Datum>,
        changed: &mut Changed,
    ) -> Result<()> {
        let table = &plan.target.table;
        if !self.lock_target(&plan.target, LockMode::Exclusive, run, &row_key, &mut frame).await? {
            return Ok(());
        }
        self.delete_row(table, &row_key, &frame[..table.columns.len()]).await?;
        run.give_back(self, plan.returning.as_ref(), &frame, changed)
    }
}
