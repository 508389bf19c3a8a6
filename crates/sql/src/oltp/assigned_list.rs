//! The lists that SET assigns to: `SET (a, b[1]) = (x, y)`, `= ROW(x, y)` or `= (SELECT ...)`.

use std::sync::Arc;

use sqlparser::ast;

use super::run::is_default;
use super::update::{Assignments, assigned, refuse_generated};
use crate::bind::{Binder, Clause, starred_row};
use crate::catalog::Table;
use crate::ddl::alter_table::column_place;
use crate::ddl::names::single;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed};
use crate::function::puts_element;
use crate::parse::part_of_column;

/// One column of a list, or a part of it.
struct Item {
    /// Which one of the assignments is its column's.
    at: usize,
    place: usize,
    /// The subscripts of the part that is meant; none for the whole.
    part: Vec<ast::AccessExpr>,
}

impl Item {
    /// The item of this name, behind those `before` in its list. Several parts of a column are
    /// one assignment.
    fn claim(
        bound: &mut Assignments,
        table: &Table,
        name: &ast::ObjectName,
        before: &[Item],
    ) -> Result<Item> {
        let Some((column, part)) = part_of_column(name)? else {
            let place = bound.claim(table, name)?;
            return Ok(Item { at: bound.places.len() - 1, place, part: Vec::new() });
        };
        let place = column_place(table, &single(&column)?)?;
        let is_in_parts = |at: &usize| match bound.exprs.get(*at) {
            Some(expr) => puts_element(expr),
            None => before.iter().any(|item| item.at == *at && !item.part.is_empty()),
        };
        let known = bound.places.iter().position(|known| *known == place).filter(is_in_parts);
        let at = match known {
            Some(at) => at,
            None => {
                bound.claim(table, &column)?;
                bound.places.len() - 1
            }
        };
        Ok(Item { at, place, part })
    }

    /// Assigns a value that is bound already.
    fn assign(
        &self,
        binder: &mut Binder<'_>,
        table: &Table,
        value: Typed,
        bound: &mut Assignments,
    ) -> Result<()> {
        let column = &table.columns[self.place];
        refuse_generated(column)?;
        if self.part.is_empty() {
            bound.exprs.push(binder.assign(value, column.ty, &column.name)?.expr);
            return Ok(());
        }
        // In the frame the target's columns come first.
        let before = bound.exprs.get(self.at).cloned().unwrap_or(Expr::Slot(self.place));
        let before = Typed::new(before, column.ty);
        let put = binder
            .in_clause(Clause::Update, |binder| binder.put_value(before, &column.name, &self.part, value))?;
        match bound.exprs.get_mut(self.at) {
            Some(known) => *known = put,
            None => bound.exprs.push(put),
        }
        Ok(())
    }
}

/// Binds what is assigned to a list.
pub(super) fn bind_list(
    binder: &mut Binder<'_>,
    table: &Arc<Table>,
    names: &[ast::ObjectName],
    value: &ast::Expr,
    bound: &mut Assignments,
) -> Result<()> {
    let mut items: Vec<Item> = Vec::with_capacity(names.len());
    for name in names {
        items.push(Item::claim(bound, table, name, &items)?);
    }
    let mismatch = || SqlError::syntax("number of columns does not match number of values");
    if let ast::Expr::Subquery(query) = value {
        let columns =
            binder.in_clause(Clause::Update, |binder| binder.row_subquery(query, items.len(), true));
        let columns = columns.map_err(|error| match error.sqlstate {
            sqlstate::SYNTAX_ERROR => mismatch(),
            _ => error,
        })?;
        return assign_fields(binder, table, &items, columns, bound);
    }
    if let Some(fields) = starred_row(value) {
        let fields = binder.in_clause(Clause::Update, |binder| binder.row_fields(fields))?;
        if fields.len() != items.len() {
            return Err(mismatch());
        }
        return assign_fields(binder, table, &items, fields, bound);
    }
    let values: Vec<&ast::Expr> = match value {
        ast::Expr::Tuple(values) => values.iter().collect(),
        ast::Expr::Nested(_) => return Err(not_a_row()),
        other => match crate::bind::row_items(other) {
            Some(items) => items,
            None => {
                return Err(not_a_row());
            }
        },
    };
    if values.len() != items.len() {
        return Err(mismatch());
    }
    for (item, value) in items.iter().zip(values) {
        if item.part.is_empty() {
            let expr = assigned(binder, table, item.place, value)?;
            bound.exprs.push(expr);
        } else if is_default(value) {
            let message = "cannot set an array element to DEFAULT";
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        } else {
            let value = binder.in_clause(Clause::Update, |binder| binder.expression(value))?;
            item.assign(binder, table, value, bound)?;
        }
    }
    Ok(())
}

/// Assigns the fields of one row.
fn assign_fields(
    binder: &mut Binder<'_>,
    table: &Table,
    items: &[Item],
    fields: impl IntoIterator<Item = Typed>,
    bound: &mut Assignments,
) -> Result<()> {
    for (item, value) in items.iter().zip(fields) {
        item.assign(binder, table, value, bound)?;
    }
    Ok(())
}

fn not_a_row() -> SqlError {
    SqlError::new(
        sqlstate::FEATURE_NOT_SUPPORTED,
        "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression",
    )
}
