//! What COPY says of the table that it reads or fills, and whether that can be.

use std::sync::Arc;

use sqlparser::ast;

use crate::catalog::{Privileges, Table};
use crate::copy::CopyOptions;
use crate::ddl::expression::bind_copy_where;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::Expr;
use crate::identifier::fold;
use crate::session::OutputColumn;
use crate::session::work::Work;

/// The places of these columns, or of all that are not computed. 42703, 42701.
pub(super) fn copy_columns(table: &Table, columns: &[ast::Ident]) -> Result<Vec<usize>> {
    if columns.is_empty() {
        let columns = table.visible_columns().filter(|(_, column)| column.generated.is_none());
        return Ok(columns.map(|(place, _)| place).collect());
    }
    let mut places = Vec::with_capacity(columns.len());
    for column in columns {
        let name = fold(column);
        let place = crate::ddl::alter_table::column_place(table, &name)?;
        if table.columns[place].generated.is_some() {
            return Err(SqlError::new(
                sqlstate::INVALID_COLUMN_REFERENCE,
                format!("column \"{name}\" is a generated column"),
            )
            .with_detail("Generated columns cannot be used in COPY."));
        }
        if places.contains(&place) {
            return Err(SqlError::new(
                sqlstate::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            ));
        }
        places.push(place);
    }
    Ok(places)
}

/// 42703 if an option names a column that is not there, 42701 if one twice, and 42P10 if one that
/// is not copied.
pub(super) fn check_forced(table: &Table, places: &[usize], option: &str, columns: &[String]) -> Result<()> {
    check_once(columns)?;
    for name in columns {
        let place = crate::ddl::alter_table::column_place(table, name)?;
        if !places.contains(&place) {
            return Err(SqlError::new(
                sqlstate::INVALID_COLUMN_REFERENCE,
                format!("{option} column \"{name}\" not referenced by COPY"),
            ));
        }
    }
    Ok(())
}

/// The same for FORCE_QUOTE of a query, which has no other columns than it gives.
pub(super) fn check_quoted(columns: &[OutputColumn], options: &CopyOptions) -> Result<()> {
    check_once(&options.force_quote)?;
    let is_there = |name: &&String| columns.iter().any(|column| column.name == **name);
    match options.force_quote.iter().find(|name| !is_there(name)) {
        None => Ok(()),
        Some(name) => {
            Err(SqlError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")))
        }
    }
}

/// 42701 for a column that is named twice.
fn check_once(columns: &[String]) -> Result<()> {
    let twice = columns.iter().enumerate().find(|(at, name)| columns[..*at].contains(name));
    match twice {
        None => Ok(()),
        Some((_, name)) => Err(SqlError::new(
            sqlstate::DUPLICATE_COLUMN,
            format!("column \"{name}\" specified more than once"),
        )),
    }
}

/// The bound condition of WHERE. 42P10 for a generated column, which has no value yet; 42501 unless
/// the session may read the columns that it names.
pub(super) fn bind_where(work: &Work<'_>, table: &Arc<Table>, condition: &ast::Expr) -> Result<Expr> {
    let bound = work.bind(|binder| bind_copy_where(binder, table, condition))?;
    let mut places = Vec::new();
    bound.for_each_slot(&mut |place| {
        if !places.contains(&place) {
            places.push(place);
        }
    });
    places.sort_unstable();
    let mut columns = places.iter().filter_map(|place| table.columns.get(*place));
    if let Some(column) = columns.find(|column| column.generated.is_some()) {
        return Err(SqlError::new(
            sqlstate::INVALID_COLUMN_REFERENCE,
            "generated columns are not supported in COPY FROM WHERE conditions",
        )
        .with_detail(format!("Column \"{}\" is a generated column.", column.name)));
    }
    if !places.is_empty() {
        work.require_on_columns(table, &places, Privileges::SELECT)?;
    }
    Ok(bound)
}

/// 55000 for FREEZE unless the table, or what is in it, is the transaction's alone. Rows need no
/// freezing here, but a program that asks for it means a table that nobody sees yet.
pub(super) fn check_frozen(table: &Table, work: &Work<'_>) -> Result<()> {
    if work.engine.has_created(table.tree) {
        return Ok(());
    }
    Err(SqlError::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "cannot perform COPY FREEZE because the table was not created or truncated in the current subtransaction",
    ))
}
