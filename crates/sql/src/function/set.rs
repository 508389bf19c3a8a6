//! Functions that give rows.

use super::registry::Function;
use super::{EvalContext, array, json, regexp, string};
use crate::error::SqlError;
use crate::types::{Datum, TypeId};

/// The rows of a set-returning function, each with its columns; `None` for `generate_series`, which the executor counts by itself, and
/// for what the session implements. Strict functions give no rows if an argument is NULL.
pub fn rows(
    function: &Function,
    arguments: &[Datum],
    context: &EvalContext<'_>,
) -> Result<Option<Vec<Vec<Datum>>>, SqlError> {
    if function.strict && arguments.iter().any(Datum::is_null) {
        return Ok((function.name != "pg_show_all_settings").then(Vec::new));
    }
    let single = |values: Vec<Datum>| Some(values.into_iter().map(|value| vec![value]).collect());
    Ok(match function.name {
        "unnest" => single(array::array_of(&arguments[0])?.elements.clone()),
        "generate_subscripts" => single(array::subscripts(arguments)?),
        "string_to_table" => single(string::parts(arguments, context)?),
        "regexp_matches" => single(regexp::regexp_matches(arguments, context)?),
        "regexp_split_to_table" => single(regexp::regexp_split(arguments, function.name, context)?),
        name => json::rows(name, arguments)?,
    })
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
