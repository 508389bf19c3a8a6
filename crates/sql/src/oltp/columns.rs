//! The columns that an INSERT gives values for: those that it lists, or all of its target, and what
//! each row of values, or each place of a query's rows, is for them.

use std::sync::Arc;

use sqlparser::ast;

use super::literal_rows::LiteralRows;
use super::run::{default_of, generated_always, is_default, is_generated};
use super::subject::Subject;
use crate::bind::{Binder, Body, Clause, Query};
use crate::catalog::{Identity, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed};
use crate::parse::{self, Overriding, marked};
use crate::session::OutputColumn;
use crate::types::Datum;

/// One row of a list of values, or many.
#[derive(Debug)]
pub(super) enum Rows {
    One(Vec<Expr>),
    Literal(Box<LiteralRows>),
}

/// A query of rows; for each place of the table the number of its output column, or the default.
pub(super) type Mapped = (Query, Vec<Result<usize, Expr>>);

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
    pub(super) fn of(
        subject: &Subject,
        names: &[ast::ObjectName],
        overriding: Option<Overriding>,
    ) -> Result<Columns> {
        let table = &subject.named;
        if !names.is_empty() {
            subject.check_columns(&listed(names)?.0)?;
            return Columns::new(table, names, overriding);
        }
        let (places, fixed) = subject.all_columns();
        Ok(Columns { places, parts: Vec::new(), table: table.clone(), fixed, overriding })
    }

    /// The rows of VALUES, complete; a single one of defaults if there are none.
    pub(super) fn values(
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
    pub(super) fn query(&self, binder: &mut Binder<'_>, statement: &ast::Insert) -> Result<Mapped> {
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

/// The rows of VALUES without anything around them; none for DEFAULT VALUES.
pub(super) fn plain_values(statement: &ast::Insert) -> Option<&[ast::Parens<Vec<ast::Expr>>]> {
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

/// How many values a row has.
fn width_of(row: &[ast::Expr]) -> usize {
    marked(row).map_or(row.len(), |run| run.width)
}

/// How many values rows have; none, if there is no row.
pub(super) fn rows_width(rows: &[ast::Parens<Vec<ast::Expr>>]) -> usize {
    rows.first().map_or(0, |row| width_of(&row.content))
}
