//! Stored expressions as PostgreSQL prints them.

use super::Source;
use crate::catalog::Table;

/// How much is written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Every operation in parentheses.
    Plain,
    /// Only the parentheses that are needed.
    Pretty,
}

/// A column's DEFAULT.
pub(super) fn default(source: &Source<'_>, table: &Table, place: usize, text: &str, style: Style) -> String {
    let _ = (source, table, place, style);
    text.to_owned()
}

/// A CHECK's expression.
pub(super) fn check(source: &Source<'_>, table: &Table, text: &str, style: Style) -> String {
    let _ = (source, table);
    match style {
        Style::Plain => format!("({text})"),
        Style::Pretty => text.to_owned(),
    }
}

/// Any stored expression over the columns of a table.
pub(super) fn expression(source: &Source<'_>, table: &Table, text: &str, style: Style) -> String {
    let _ = (source, table, style);
    text.to_owned()
}
