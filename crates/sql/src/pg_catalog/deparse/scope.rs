//! What an expression is over: a table's columns, or the value of a domain.

use crate::catalog::Table;
use crate::types::Type;

/// What names in an expression are.
#[derive(Clone, Copy)]
pub(super) enum Names<'a> {
    /// The columns of a table.
    Columns(&'a Table),
    /// VALUE, of this type.
    Value(Type),
}
