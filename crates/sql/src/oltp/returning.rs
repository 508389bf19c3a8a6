//! RETURNING.

use crate::expr::Expr;
use crate::session::OutputColumn;
use crate::types::Datum;

/// A RETURNING list over a statement's frame.
#[derive(Debug)]
pub(crate) struct Returning {
    pub(crate) columns: Vec<OutputColumn>,
    pub(crate) exprs: Vec<Expr>,
}

/// What a statement that changes rows did.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Number of rows.
    pub(crate) rows: u64,
    /// What RETURNING gave, row by row.
    pub(crate) returned: Vec<Vec<Datum>>,
    /// Bytes of that.
    pub(crate) returned_bytes: usize,
}
