//! Subqueries.
use crate::error::{Result, SqlError};
use crate::expr::{Env, Subquery};
use crate::types::Datum;

/// A cached result.
#[derive(Debug)]
pub struct SubqueryResult;

pub(crate) fn evaluate(_subquery: &Subquery, _env: &Env<'_>) -> Result<Datum> {
    Err(SqlError::unsupported("a subquery"))
}
