//! The row executor.

pub mod subquery;

pub use subquery::SubqueryResult;

/// A common table expression's rows.
#[derive(Debug)]
pub struct CteState;
