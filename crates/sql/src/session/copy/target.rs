//! What COPY says of the table that it reads or fills, and whether that can be.

use sqlparser::ast;

use crate::catalog::Table;
use crate::copy::CopyOptions;
use crate::ddl::names::fold;
use crate::error::{Result, SqlError, sqlstate};
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

/// 42P10 if FORCE_NOT_NULL or FORCE_NULL names a column that is not copied.
pub(super) fn check_forced(table: &Table, places: &[usize], options: &CopyOptions) -> Result<()> {
    for name in options.force_not_null.iter().chain(&options.force_null) {
        let place = crate::ddl::alter_table::column_place(table, name)?;
        if !places.contains(&place) {
            return Err(SqlError::new(
                sqlstate::INVALID_COLUMN_REFERENCE,
                format!("FORCE column \"{name}\" not referenced by COPY"),
            ));
        }
    }
    Ok(())
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
