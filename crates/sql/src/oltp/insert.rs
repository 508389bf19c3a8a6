//! INSERT.

use std::collections::HashSet;
use std::sync::Arc;

use sqlparser::ast;

use super::columns::{Columns, Rows, plain_values, rows_width};
use super::conflict::{Conflict, Outcome};
use super::literal_rows::LiteralRows;
use super::returning::{Changed, Returning};
use super::run::{Checks, Run};
use super::source::{Pieces, Places, WithQueries, share};
use super::subject::{Change, Subject, ViewChecks};
use crate::bind::{Binder, names_columns};
use crate::catalog::{Privileges, Table};
use crate::error::{Result, SqlError};
use crate::explain::{Outline, Telling};
use crate::expr::Expr;
use crate::function::Interrupt;
use crate::parse::Overriding;
use crate::plan::Plan;
use crate::session::work::Work;
use crate::types::Datum;

/// A planned INSERT.
#[derive(Debug)]
pub(crate) struct InsertPlan {
    pub(crate) table: Arc<Table>,
    source: Source,
    checks: Checks,
    /// What it must meet to be in the view that it is put into.
    view_checks: ViewChecks,
    conflict: Option<Conflict>,
    pub(crate) returning: Option<Returning>,
    pub(crate) places: Places,
}

/// Where the rows come from.
#[derive(Debug)]
enum Source {
    /// Complete rows: an expression for each column's place.
    Values(Vec<Rows>),
    /// A query; for each place the number of its output column, or the default.
    Query(Arc<Plan>, Vec<Result<usize, Expr>>),
}

/// The same before the whole statement is planned.
enum BoundSource {
    Values(Vec<Rows>),
    Query(Box<Plan>, Vec<Result<usize, Expr>>),
}

/// What stands behind the rows.
#[derive(Default)]
struct Behind {
    conflict: Option<Conflict>,
    returning: Option<Returning>,
}

/// Binds and plans an INSERT.
pub(crate) fn bind(
    binder: &mut Binder<'_>,
    statement: &ast::Insert,
    overriding: Option<Overriding>,
    with: WithQueries<'_>,
) -> Result<InsertPlan> {
    refuse(statement)?;
    let ast::TableObject::TableName(name) = &statement.table else {
        return Err(SqlError::unsupported("INSERT into anything but a table"));
    };
    let subject = Subject::find(binder, name, Change::Insert, needed(statement))?;
    let table = subject.table.clone();
    binder.note_table(&table);
    let columns = Columns::of(&subject, &statement.columns, overriding)?;
    let mut view_checks = subject.checks(binder)?;
    let mut pieces = Pieces::default();
    let mut given: Vec<usize> = Vec::new();
    let (source, mut behind) = match plain_values(statement).filter(|_| with.is_empty()) {
        Some(rows) => {
            given.extend(columns.given(rows_width(rows)));
            let rows = columns.values(binder, rows, !statement.columns.is_empty())?;
            subject.need_columns(binder, Privileges::INSERT, &given);
            (BoundSource::Values(rows), bind_behind(binder, &subject, statement)?)
        }
        None => {
            let mut rest = None;
            let query = with.bind(binder, |binder| {
                let (query, map) = columns.query(binder, statement)?;
                let width = plain_values(statement).map_or(query.columns.len(), rows_width);
                given.extend(columns.given(width));
                subject.need_columns(binder, Privileges::INSERT, &given);
                rest = Some((map, bind_behind(binder, &subject, statement)?));
                Ok(query)
            })?;
            let (map, behind) = rest.ok_or_else(|| SqlError::internal("an INSERT was not bound"))?;
            (BoundSource::Query(Box::new(pieces.query(binder, query)?), map), behind)
        }
    };
    given.extend(behind.conflict.iter().filter_map(Conflict::updated).flatten());
    let checks = Checks::bind(binder, &table, |_| true)?.giving(given);
    view_checks.plan(binder, &mut pieces)?;
    if let Some(conflict) = &mut behind.conflict {
        conflict.plan(binder, &mut pieces)?;
    }
    if let Some(returning) = &mut behind.returning {
        pieces.expressions(binder, &mut returning.exprs)?;
    }
    let source = match source {
        BoundSource::Values(mut rows) => {
            for row in &mut rows {
                let row = match row {
                    Rows::One(row) => row,
                    Rows::Literal(rows) => &mut rows.complete,
                };
                pieces.expressions(binder, row)?;
            }
            BoundSource::Values(rows)
        }
        query => query,
    };
    let places = pieces.finish(binder);
    let source = match source {
        BoundSource::Values(rows) => Source::Values(rows),
        BoundSource::Query(plan, map) => Source::Query(share(*plan, &places), map),
    };
    let Behind { conflict, returning } = behind;
    Ok(InsertPlan { table, source, checks, view_checks, conflict, returning, places })
}

/// Binds ON CONFLICT and RETURNING.
fn bind_behind(binder: &mut Binder<'_>, subject: &Subject, statement: &ast::Insert) -> Result<Behind> {
    let alias = statement.table_alias.as_ref().map(|alias| ast::TableAlias {
        explicit: true,
        name: alias.alias.clone(),
        columns: Vec::new(),
        at: None,
    });
    let conflict = match &statement.on {
        None => None,
        Some(ast::OnInsert::OnConflict(on)) => {
            let conflict = super::conflict::bind(binder, subject, alias.as_ref(), on)?;
            // What says which rows of a view are meant was resolved by the view's names.
            if let Some(read) = conflict.reads().filter(|_| !subject.is_view()) {
                subject.need_columns(binder, Privileges::SELECT, read);
            }
            if let Some(updated) = conflict.updated() {
                subject.need_columns(binder, Privileges::UPDATE, updated);
            }
            Some(conflict)
        }
        Some(_) => return Err(SqlError::syntax("syntax error at or near \"DUPLICATE\"")),
    };
    let returning = match &statement.returning {
        None => None,
        Some(items) => {
            subject.open(binder, alias.as_ref())?;
            let bound = binder.returning(items);
            binder.pop_level()?;
            let (columns, exprs) = bound?;
            Some(Returning { columns, exprs })
        }
    };
    Ok(Behind { conflict, returning })
}

/// What an INSERT must be allowed: to read, too, where it gives rows back or says which rows may be
/// in its way: by columns, or by a constraint, which is of columns.
fn needed(statement: &ast::Insert) -> Privileges {
    let mut privileges = Privileges::INSERT;
    if statement.returning.is_some() {
        privileges = privileges | Privileges::SELECT;
    }
    if let Some(ast::OnInsert::OnConflict(on)) = &statement.on {
        if on.conflict_target.is_some() {
            privileges = privileges | Privileges::SELECT;
        }
        if let ast::OnConflictAction::DoUpdate(update) = &on.action {
            let reads = update.selection.is_some()
                || update.assignments.iter().any(|assignment| names_columns(&assignment.value));
            privileges = privileges | Privileges::UPDATE;
            privileges = if reads { privileges | Privileges::SELECT } else { privileges };
        }
    }
    privileges
}

fn refuse(statement: &ast::Insert) -> Result<()> {
    let foreign = statement.or.is_some()
        || statement.ignore
        || statement.overwrite
        || statement.replace_into
        || statement.partitioned.is_some()
        || !statement.after_columns.is_empty()
        || !statement.assignments.is_empty()
        || statement.priority.is_some()
        || statement.insert_alias.is_some()
        || statement.output.is_some()
        || statement.multi_table_insert_type.is_some();
    if foreign {
        Err(SqlError::syntax("syntax error in INSERT: a clause of another dialect"))
    } else {
        Ok(())
    }
}

impl InsertPlan {
    /// Whether its rows come from tables, or some value does.
    pub(crate) fn reads_tables(&self) -> bool {
        matches!(self.source, Source::Query(..)) || self.places.subqueries > 0
    }

    /// Where its rows come from, for EXPLAIN.
    pub(crate) fn source_lines(&self, telling: Telling<'_>) -> Vec<String> {
        match &self.source {
            Source::Values(rows) => {
                let count = rows.iter().map(|rows| match rows {
                    Rows::One(_) => 1,
                    Rows::Literal(rows) => rows.count(),
                });
                vec![format!("Values: {} rows", count.sum::<usize>())]
            }
            Source::Query(plan, _) => plan.told(telling),
        }
    }

    /// The same as a tree.
    pub(crate) fn source_outline(&self, telling: Telling<'_>) -> Outline {
        match &self.source {
            Source::Values(_) => Outline { kind: "Values Scan", ..Outline::default() },
            Source::Query(plan, _) => plan.outline(telling),
        }
    }
}

impl Work<'_> {
    /// Runs an INSERT. `alone`: it is the whole statement.
    pub(crate) async fn insert(&mut self, plan: &InsertPlan, run: &mut Run, alone: bool) -> Result<Changed> {
        let is_load = alone && plan.conflict.is_none();
        let mut changed = Changed::default();
        let mut touched = HashSet::new();
        match &plan.source {
            Source::Values(rows) => {
                for rows in rows {
                    match rows {
                        Rows::One(row) => {
                            let row = run.evaluate(self, row, &[])?;
                            self.insert_one(plan, run, row, &mut touched, &mut changed).await?;
                            if is_load {
                                self.check_load().await?;
                            }
                        }
                        Rows::Literal(rows) => {
                            self.insert_literal_rows(plan, rows, run, &mut touched, &mut changed, is_load)
                                .await?;
                        }
                    }
                }
            }
            Source::Query(source, map) => {
                run.open(source);
                while let Some(values) = run.next(self)? {
                    self.interrupts.check()?;
                    let mut row = Vec::with_capacity(map.len());
                    for source in map {
                        match source {
                            Ok(output) => row.push(values[*output].clone()),
                            Err(Expr::Constant(value)) => row.push(value.clone()),
                            Err(default) => row.push(self.evaluate(default, &[])?),
                        }
                    }
                    self.insert_one(plan, run, row, &mut touched, &mut changed).await?;
                    if is_load {
                        self.check_load().await?;
                    }
                }
            }
        }
        Ok(changed)
    }

    async fn insert_literal_rows(
        &mut self,
        plan: &InsertPlan,
        rows: &LiteralRows,
        run: &mut Run,
        touched: &mut HashSet<bytes::Bytes>,
        changed: &mut Changed,
        is_load: bool,
    ) -> Result<()> {
        let (mut reader, mut literals) = (rows.reader(), Vec::new());
        while reader.next_row(&mut literals) {
            self.interrupts.check()?;
            let mut row = run.evaluate(self, &rows.complete, &[])?;
            self.read(|read| rows.fill(&literals, read, &mut row))?;
            self.insert_one(plan, run, row, touched, changed).await?;
            if is_load {
                self.check_load().await?;
            }
        }
        Ok(())
    }

    async fn insert_one(
        &mut self,
        plan: &InsertPlan,
        run: &mut Run,
        mut row: Vec<Datum>,
        touched: &mut HashSet<bytes::Bytes>,
        changed: &mut Changed,
    ) -> Result<()> {
        plan.checks.complete(self, &plan.table, &mut row)?;
        if let Some(conflict) = &plan.conflict {
            match self.resolve_conflict(&plan.table, conflict, &plan.checks, run, &row, touched).await? {
                Outcome::Free => {}
                Outcome::Skipped => return Ok(()),
                Outcome::Updated(updated) => {
                    row = updated;
                    plan.view_checks.test(self, run, &plan.checks, &plan.table, &row)?;
                    return run.give_back(self, plan.returning.as_ref(), &row, changed);
                }
            }
        }
        let row_key = self.insert_row(&plan.table, &row).await?;
        plan.view_checks.test(self, run, &plan.checks, &plan.table, &row)?;
        if plan.conflict.as_ref().is_some_and(Conflict::updates) {
            touched.insert(row_key);
        }
        run.give_back(self, plan.returning.as_ref(), &row, changed)
    }
}
