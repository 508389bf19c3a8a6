//! Row values in which a star stands for the columns of a table: `ROW(t.*) = ROW(u.*)`,
//! `(t.*, 1) IS NULL`. They are rows of these columns, and no rows within rows. Parentheses around
//! the star change nothing.

use sqlparser::ast::{Expr as Syntax, FunctionArg, FunctionArgExpr, ObjectName};

use super::Binder;
use super::call::plain_arguments;
use super::expression::strip;
use super::operator::{row_items, starred_row};
use crate::error::Result;
use crate::expr::Typed;

/// Whether it is a row value: `(a, b)`, `ROW(a, t.*)`.
pub(super) fn is_row_value(syntax: &Syntax) -> bool {
    starred_row(strip(syntax)).is_some() || row_items(syntax).is_some()
}

/// Whether it is a row value with a star in it.
pub(super) fn has_starred_item(syntax: &Syntax) -> bool {
    let is_star = |item: &&Syntax| matches!(strip(item), Syntax::QualifiedWildcard(..));
    starred_row(strip(syntax)).is_some() || row_items(syntax).is_some_and(|items| items.iter().any(is_star))
}

impl Binder<'_> {
    /// The values of a row value; none if it is none.
    pub(super) fn row_values(&mut self, syntax: &Syntax) -> Result<Option<Vec<Typed>>> {
        if let Some(arguments) = starred_row(strip(syntax)) {
            return self.starred_values(arguments).map(Some);
        }
        let Some(items) = row_items(syntax) else { return Ok(None) };
        let mut values = vec![];
        for item in items {
            match strip(item) {
                Syntax::QualifiedWildcard(table, _) => values.extend(self.starred_columns(table)?),
                _ => values.push(self.expression(item)?),
            }
        }
        Ok(Some(values))
    }

    /// The values of `ROW(a, t.*)`.
    pub(super) fn starred_values(&mut self, arguments: &[FunctionArg]) -> Result<Vec<Typed>> {
        let mut values = vec![];
        for argument in arguments {
            if let FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(table)) = argument {
                values.extend(self.starred_columns(table)?);
                continue;
            }
            for item in plain_arguments(std::slice::from_ref(argument))? {
                match strip(item) {
                    Syntax::QualifiedWildcard(table, _) => values.extend(self.starred_columns(table)?),
                    _ => values.push(self.expression(item)?),
                }
            }
        }
        Ok(values)
    }

    /// The columns that a star within a row stands for.
    pub(super) fn starred_columns(&mut self, table: &ObjectName) -> Result<Vec<Typed>> {
        if self.noting.is_some() {
            // It would be stored as it is, and mean later columns, too.
            return Err(self.lacks("ROW of a star in a view"));
        }
        Ok(self.table_star(table)?.into_iter().map(|(_, column)| column).collect())
    }
}
