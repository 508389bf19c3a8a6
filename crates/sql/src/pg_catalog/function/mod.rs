//! Functions over the catalog, as the function table lists them.
//!
//! Each is an ordinary function of its arguments and the evaluation context; it finds the catalog through the session.

mod definitions;
mod general;
mod names;
mod privilege;
mod size;

use super::Source;
use crate::error::Result;
use crate::function::{Body, EvalContext, Function, Volatility};
use crate::types::{Datum, TypeId};

/// What computes a function over the catalog.
type CatalogBody = fn(&[Datum], &Source<'_>) -> Result<Datum>;

/// Calls a body with the session's catalog; without one (constants at planning) the result is NULL.
fn with_source(arguments: &[Datum], context: &EvalContext<'_>, body: CatalogBody) -> Result<Datum> {
    let Some(catalog) = context.session.catalog() else { return Ok(Datum::Null) };
    let source = Source { catalog: &catalog, eval: *context, server: context.session.server() };
    body(arguments, &source)
}

/// A strict stable function that needs nothing but its arguments and the context.
const fn plain(
    oid: u32,
    name: &'static str,
    arguments: &'static [TypeId],
    result: TypeId,
    body: fn(&[Datum], &EvalContext<'_>) -> Result<Datum>,
) -> Function {
    Function {
        oid,
        name,
        arguments,
        variadic: false,
        optional: 0,
        result,
        strict: true,
        volatility: Volatility::Stable,
        body: Body::Plain(body),
    }
}

/// A function called with NULLs too.
const fn called_on_null(mut function: Function) -> Function {
    function.strict = false;
    function
}

/// A function that gives rows; the executor knows it by name.
const fn set(oid: u32, name: &'static str, arguments: &'static [TypeId], result: TypeId) -> Function {
    Function {
        oid,
        name,
        arguments,
        variadic: false,
        optional: 0,
        result,
        strict: true,
        volatility: Volatility::Stable,
        body: Body::SetReturning,
    }
}

/// A strict stable function over the catalog.
macro_rules! over_catalog {
    ($oid:literal, $name:literal, $arguments:expr, $result:expr, $body:path) => {
        $crate::pg_catalog::function::plain($oid, $name, $arguments, $result, |arguments, context| {
            $crate::pg_catalog::function::with_source(arguments, context, $body)
        })
    };
}
use over_catalog;

/// Functions that give rows: of what does not exist here, and so none.
static SETS: &[Function] = &[
    set(3425, "pg_partition_ancestors", &[TypeId::Regclass], TypeId::Regclass),
    set(3035, "pg_listening_channels", &[], TypeId::Text),
];

/// The functions that always give no rows.
pub fn is_empty_set(name: &str) -> bool {
    SETS.iter().any(|function| function.name == name)
}

/// Every function of this module.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    let tables: [&'static [Function]; 6] = [
        definitions::FUNCTIONS,
        general::FUNCTIONS,
        names::FUNCTIONS,
        privilege::FUNCTIONS,
        size::FUNCTIONS,
        SETS,
    ];
    tables.into_iter().flatten()
}

/// An oid argument.
fn oid(arguments: &[Datum], place: usize) -> u32 {
    arguments.get(place).and_then(Datum::as_i64).and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
}

/// An integer argument.
fn integer(arguments: &[Datum], place: usize) -> i64 {
    arguments.get(place).and_then(Datum::as_i64).unwrap_or(0)
}

/// A text argument.
fn text(arguments: &[Datum], place: usize) -> &str {
    arguments.get(place).and_then(Datum::as_str).unwrap_or("")
}

/// A bool argument.
fn truth(arguments: &[Datum], place: usize) -> bool {
    arguments.get(place).and_then(Datum::as_bool).unwrap_or(false)
}

/// NULL, whatever the arguments.
fn null(_: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    Ok(Datum::Null)
}
