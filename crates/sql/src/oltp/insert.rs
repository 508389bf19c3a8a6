//! INSERT.

use std::collections::HashSet;
use std::sync::Arc;

use sqlparser::ast;

use super::conflict::{Conflict, Outcome};
use super::literal_rows::LiteralRows;
use super::returning::{Changed, Returning};
use super::run::{Checks, Run, default_of, generated_always, is_default, is_generated};
use super::source::{Pieces, Places, WithQueries, share};
use super::subject::{Change, Subject, ViewChecks};
use crate::bind::{Binder, Body, Clause, Query, names_columns};
use crate::catalog::{Identity, Privileges, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::explain::Outline;
use crate::expr::{Expr, Typed};
use crate::function::Interrupt;
use crate::parse::{self, Overriding, marked};
use crate::plan::Plan;
use crate::session::OutputColumn;
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

/// One row of a list of values, or many.
#[derive(Debug)]
enum Rows {
    One(Vec<Expr>),
    Literal(Box<LiteralRows>),
}

/// The same before the whole statement is planned.
enum BoundSource {
    Values(Vec<Rows>),
    Query(Box<Plan>, Vec<Result<usize, Expr>>),
}

/// A query of rows; for each place of the table the number of its output column, or the default.
type Mapped = (Query, Vec<Result<usize, Expr>>);

/// What the statement says about its target's columns.
pub(crate) struct Columns {
    table: Arc<Table>,
    /// Places in the order of the column list.
    places: Vec<usize>,
    /// For each of them the subscripts of the part that is meant; empty if none has any.
    parts: Vec<Vec<ast::AccessExpr>>,
    /// Which of them may not be given values, and why.
    fixed: Vec<(usize, SqlError)>,
    overriding: Option<Overriding>,
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
        BoundSource::Query(plan, map) => Source::Query(share(*plan, places), map),
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

/// The rows of VALUES without anything around them; none for DEFAULT VALUES.
fn plain_values(statement: &ast::Insert) -> Option<&[ast::Parens<Vec<ast::Expr>>]> {
    let Some(query) = &statement.source else { return Some(&[]) };
    let plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty();
    match query.body.as_ref() {
        ast::SetExpr::Values(values) if plain => Some(&values.rows),
        _ => None,
    }
}

/// How many values rows have; none, if there is no row.
fn rows_width(rows: &[ast::Parens<Vec<ast::Expr>>]) -> usize {
    rows.first().map_or(0, |row| width_of(&row.content))
}

/// How many values a row has.
fn width_of(row: &[ast::Expr]) -> usize {
    marked(row).map_or(row.len(), |run| run.width)
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

/// Names of columns, and for each the subscripts of the part of it that is meant.
type Listed = (Vec<ast::ObjectName>, Vec<Vec<ast::AccessExpr>>);

/// What a list of columns says; without subscripts if none has any.
fn listed(names: &[ast::ObjectName]) -> Result<Listed> {
    let mut listed: Listed = (Vec::with_capacity(names.len()), Vec::new());
    for name in names {
        match parse::part_of_column(name)? {
            None => listed.0.push(name.clone()),
            Some((column, subscripts)) => {
                listed.1.resize(listed.0.len(), Vec::new());
                listed.0.push(column);
                listed.1.push(subscripts);
            }
        }
    }
    Ok(listed)
}

/// Places of the listed columns, or of all. 42703, 42701 unless it is parts of one that are listed.
fn column_list(
    table: &Table,
    names: &[ast::ObjectName],
    parts: &[Vec<ast::AccessExpr>],
) -> Result<Vec<usize>> {
    if names.is_empty() {
        return Ok(table.visible_columns().map(|(place, _)| place).collect());
    }
    let is_whole = |at: usize| parts.get(at).is_none_or(Vec::is_empty);
    let mut places: Vec<usize> = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        let name = crate::ddl::names::single(name)?;
        let place = crate::ddl::alter_table::column_place(table, &name)?;
        let known = |(before, known): (usize, &usize)| *known == place && (is_whole(at) || is_whole(before));
        if places.iter().enumerate().any(known) {
            return Err(SqlError::new(
                sqlstate::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            ));
        }
        places.push(place);
    }
    Ok(places)
}

impl Columns {
    /// The listed columns of a table, or all. 42703, 42701.
    pub(crate) fn new(
        table: &Arc<Table>,
        names: &[ast::ObjectName],
        overriding: Option<Overriding>,
    ) -> Result<Columns> {
        let (names, parts) = listed(names)?;
        let places = column_list(table, &names, &parts)?;
        Ok(Columns { places, parts, table: table.clone(), fixed: Vec::new(), overriding })
    }

    /// The same of what may be a view. 0A000 for columns of it that are none of a table.
    fn of(subject: &Subject, names: &[ast::ObjectName], overriding: Option<Overriding>) -> Result<Columns> {
        let table = &subject.named;
        if !names.is_empty() {
            subject.check_columns(&listed(names)?.0)?;
            return Columns::new(table, names, overriding);
        }
        let (places, fixed) = subject.all_columns();
        Ok(Columns { places, parts: Vec::new(), table: table.clone(), fixed, overriding })
    }

    /// The rows of VALUES, complete; a single one of defaults if there are none.
    fn values(
        &self,
        binder: &mut Binder<'_>,
        rows: &[ast::Parens<Vec<ast::Expr>>],
        listed: bool,
    ) -> Result<Vec<Rows>> {
        let Some(first) = rows.first() else { return Ok(vec![Rows::One(self.row(binder, &[])?)]) };
        let width = width_of(&first.content);
        if rows.iter().any(|row| width_of(&row.content) != width) {
            return Err(SqlError::syntax("VALUES lists must all be the same length"));
        }
        self.check_width(width, listed)?;
        let rows = rows.iter().map(|row| match marked(&row.content) {
            Some(_) if !self.parts.is_empty() => {
                Err(SqlError::unsupported("a list of literal rows for parts of columns"))
            }
            Some(run) => self.literal_rows(binder, run).map(Box::new).map(Rows::Literal),
            None => self.row(binder, &row.content).map(Rows::One),
        });
        rows.collect()
    }

    /// The query that gives the rows, and for each place of the table its output column or the
    /// default. VALUES are complete rows, as DEFAULT may stand in them.
    fn query(&self, binder: &mut Binder<'_>, statement: &ast::Insert) -> Result<Mapped> {
        let listed = !statement.columns.is_empty();
        let values =
            plain_values(statement).filter(|rows| rows.iter().all(|row| marked(&row.content).is_none()));
        if let Some(rows) = values {
            let rows = self.values(binder, rows, listed)?.into_iter().filter_map(|row| match row {
                Rows::One(row) => Some(row),
                Rows::Literal(_) => None,
            });
            let body = Body::Values(rows.collect());
            let columns = self.table.columns.iter().map(|column| OutputColumn {
                name: column.name.clone(),
                ty: column.ty,
                table_oid: 0,
                attribute_number: 0,
            });
            let map = (0..self.table.columns.len()).map(Ok).collect();
            return Ok((Query::of(body, columns.collect()), map));
        }
        let Some(query) = &statement.source else { return Err(SqlError::internal("no source of rows")) };
        if !self.parts.is_empty() {
            return Err(SqlError::unsupported("INSERT of a query's rows into parts of columns"));
        }
        let query = binder.query_in_statement(query, true)?;
        self.check_width(query.columns.len(), listed)?;
        let places = &self.places[..query.columns.len()];
        for &place in places {
            self.check_generated(place)?;
        }
        let columns = || places.iter().map(|&place| &self.table.columns[place]);
        let types: Vec<_> = columns().map(|column| column.ty).collect();
        let names: Vec<&str> = columns().map(|column| column.name.as_str()).collect();
        let query = binder.assign_query(query, &types, &names)?;
        let map = (0..self.table.columns.len())
            .map(|place| match places.iter().position(|&given| given == place && !self.ignores(place)) {
                Some(output) => Ok(Ok(output)),
                None => default_of(binder, &self.table, place).map(Err),
            })
            .collect::<Result<Vec<_>>>()?;
        Ok((query, map))
    }

    /// Places of the columns that so many values are for.
    pub(crate) fn given(&self, width: usize) -> &[usize] {
        self.places.get(..width).unwrap_or(&self.places)
    }

    /// 42601 if there are more values than columns, or fewer than are listed.
    pub(crate) fn check_width(&self, width: usize, listed: bool) -> Result<()> {
        if width > self.places.len() {
            return Err(SqlError::syntax("INSERT has more expressions than target columns"));
        }
        if listed && width < self.places.len() {
            return Err(SqlError::syntax("INSERT has more target columns than expressions"));
        }
        match self.fixed.iter().find(|(at, _)| *at < width) {
            Some((_, refusal)) => Err(refusal.clone()),
            None => Ok(()),
        }
    }

    /// A given value for this column is dropped: OVERRIDING USER VALUE.
    fn ignores(&self, place: usize) -> bool {
        self.overriding == Some(Overriding::UserValue) && self.table.columns[place].identity.is_some()
    }

    /// 428C9 if the column may not be given a value.
    fn check_generated(&self, place: usize) -> Result<()> {
        let column = &self.table.columns[place];
        if column.identity == Some(Identity::Always) && self.overriding.is_none() {
            return Err(generated_always(&column.name, false));
        }
        if column.generated.is_some() {
            return Err(is_generated(&column.name, false));
        }
        Ok(())
    }

    /// Rows of literals that stay text.
    fn literal_rows(&self, binder: &mut Binder<'_>, run: parse::Run) -> Result<LiteralRows> {
        let null = ast::Expr::Value(ast::Value::Null.into());
        let complete = self.row(binder, &vec![null; run.width])?;
        let places = self.places.iter().take(run.width);
        let targets = places.map(|&place| {
            let column = &self.table.columns[place];
            (!self.ignores(place)).then(|| (place, column.ty, column.name.clone()))
        });
        LiteralRows::bind(binder, run, complete, targets.collect())
    }

    /// A complete row of these expressions, those missing by default.
    fn row(&self, binder: &mut Binder<'_>, values: &[ast::Expr]) -> Result<Vec<Expr>> {
        binder.push_level();
        let row = self.row_in_level(binder, values);
        binder.pop_level()?;
        row
    }

    /// The same over the frame of the open level.
    pub(crate) fn row_in_level(&self, binder: &mut Binder<'_>, values: &[ast::Expr]) -> Result<Vec<Expr>> {
        let mut row: Vec<Option<Expr>> = vec![None; self.table.columns.len()];
        binder.in_clause(Clause::Values, |binder| {
            for (at, (value, &place)) in values.iter().zip(&self.places).enumerate() {
                let part = self.parts.get(at).map_or(&[][..], Vec::as_slice);
                if is_default(value) && part.is_empty() {
                    continue;
                }
                self.check_generated(place)?;
                if self.ignores(place) {
                    continue;
                }
                let column = &self.table.columns[place];
                if !part.is_empty() {
                    if is_default(value) {
                        let message = "cannot set an array element to DEFAULT";
                        return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
                    }
                    let before = row[place].take().unwrap_or(Expr::Constant(Datum::Null));
                    let before = Typed::new(before, column.ty);
                    row[place] = Some(binder.put_element(before, &column.name, (part, value))?);
                    continue;
                }
                let typed = binder.expression(value)?;
                row[place] = Some(binder.assign(typed, column.ty, &column.name)?.expr);
            }
            Ok(())
        })?;
        let complete = row.into_iter().enumerate().map(|(place, expr)| match expr {
            Some(expr) => Ok(expr),
            None => default_of(binder, &self.table, place),
        });
        complete.collect()
    }
}

impl InsertPlan {
    /// Whether its rows come from tables, or some value does.
    pub(crate) fn reads_tables(&self) -> bool {
        matches!(self.source, Source::Query(..)) || self.places.subqueries > 0
    }

    /// Where its rows come from, for EXPLAIN.
    pub(crate) fn source_lines(&self, verbose: bool) -> Vec<String> {
        match &self.source {
            Source::Values(rows) => {
                let count = rows.iter().map(|rows| match rows {
                    Rows::One(_) => 1,
                    Rows::Literal(rows) => rows.count(),
                });
                vec![format!("Values: {} rows", count.sum::<usize>())]
            }
            Source::Query(plan, _) => plan.explain(verbose),
        }
    }

    /// The same as a tree.
    pub(crate) fn source_outline(&self, verbose: bool) -> Outline {
        match &self.source {
            Source::Values(_) => Outline { kind: "Values Scan", ..Outline::default() },
            Source::Query(plan, _) => plan.outline(verbose),
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
                        }
                        Rows::Literal(rows) => {
                            self.insert_literal_rows(plan, rows, run, &mut touched, &mut changed).await?;
                        }
                    }
                    if is_load {
                        self.check_load().await?;
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
    ) -> Result<()> {
        let (mut reader, mut literals) = (rows.reader(), Vec::new());
        while reader.next_row(&mut literals) {
            self.interrupts.check()?;
            let mut row = run.evaluate(self, &rows.complete, &[])?;
            self.read(|read| rows.fill(&literals, read, &mut row))?;
            self.insert_one(plan, run, row, touched, changed).await?;
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
