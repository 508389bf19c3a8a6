//! Functions that give rows.

use super::registry::Function;
use super::{EvalContext, array, json, regexp, string, transaction};
use crate::error::SqlError;
use crate::types::{Datum, TypeId};

/// The rows of a set-returning function.
pub enum Rows {
    /// Rows of one value.
    Values(Vec<Datum>),
    /// Rows of several.
    Rows(Vec<Vec<Datum>>),
}

/// The rows of a set-returning function; `None` for `generate_series` and `unnest`, which the
/// executor counts by itself, and for what the session implements. Strict functions give no rows if
/// an argument is NULL.
pub fn rows(
    function: &Function,
    arguments: &[Datum],
    context: &EvalContext<'_>,
) -> Result<Option<Rows>, SqlError> {
    if function.strict && arguments.iter().any(Datum::is_null) {
        return Ok((function.name != "pg_show_all_settings").then(|| Rows::Values(vec![])));
    }
    let values = match function.name {
        "generate_subscripts" => array::subscripts(arguments)?,
        "pg_snapshot_xip" | "txid_snapshot_xip" => transaction::running(function.name, arguments)?,
        "string_to_table" => string::parts(arguments, context)?,
        "regexp_matches" => regexp::regexp_matches(arguments, context)?,
        "regexp_split_to_table" => regexp::regexp_split(arguments, function.name, context)?,
        name => return Ok(json::rows(name, arguments)?.map(Rows::Rows)),
    };
    Ok(Some(Rows::Values(values)))
}

/// Names and types of the columns of a function that gives several; empty if it gives one.
pub fn columns(function: &Function) -> &'static [(&'static str, TypeId)] {
    match function.name {
        "json_each" => &[("key", TypeId::Text), ("value", TypeId::Json)],
        "jsonb_each" => &[("key", TypeId::Text), ("value", TypeId::Jsonb)],
        "json_each_text" | "jsonb_each_text" => &[("key", TypeId::Text), ("value", TypeId::Text)],
        _ => &[],
    }
}
