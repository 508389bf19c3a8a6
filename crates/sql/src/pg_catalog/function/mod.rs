//! Functions over the catalog, as the function table lists them.
//!
//! Each is an ordinary function of its arguments and the evaluation context; it finds the catalog
//! through the session.

mod counts;
mod definitions;
mod describe;
mod general;
mod log;
mod names;
mod privilege;
mod property;
mod size;
mod type_numbers;

pub(crate) use names::other_type;
pub(super) use names::{other_type_name, type_name};

use super::{ServerView, Source};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::{Body, EvalContext, Function, Volatility};
use crate::types::{Array, Datum, Type, TypeId};

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
    Function::new(oid, name, arguments, result, Body::Plain(body)).stable()
}

/// A function called with NULLs too.
const fn called_on_null(mut function: Function) -> Function {
    function.strict = false;
    function
}

/// A function that may say something else at each call.
const fn volatile(mut function: Function) -> Function {
    function.volatility = Volatility::Volatile;
    function
}

/// A function that gives rows; the executor knows it by name.
const fn set(oid: u32, name: &'static str, arguments: &'static [TypeId], result: TypeId) -> Function {
    Function::new(oid, name, arguments, result, Body::SetReturning).stable()
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

/// Functions that give rows.
static SETS: &[Function] = &[
    set(3425, "pg_partition_ancestors", &[TypeId::Regclass], TypeId::Regclass),
    set(3423, "pg_partition_tree", &[TypeId::Regclass], TypeId::Record),
    set(3078, "pg_sequence_parameters", &[TypeId::Oid], TypeId::Record),
    set(3035, "pg_listening_channels", &[], TypeId::Text),
    set(1686, "pg_get_keywords", &[], TypeId::Record),
    set(3318, "pg_stat_get_progress_info", &[TypeId::Text], TypeId::Record),
    set(3354, "pg_ls_waldir", &[], TypeId::Record),
    set(2289, "pg_options_to_table", &[TypeId::TextArray], TypeId::Record),
    set(1689, "aclexplode", &[TypeId::TextArray], TypeId::Record),
    set(EXPAND_ARRAY_OID, "_pg_expandarray", &[TypeId::Int2vector], TypeId::Record),
    set(13_217, "_pg_expandarray", &[TypeId::AnyArray], TypeId::Record),
];

/// `pg_proc.oid` of `information_schema._pg_expandarray`.
const EXPAND_ARRAY_OID: u32 = 13_216;

/// The type of `information_schema._pg_expandarray`'s rows: records with the fields `x`, an
/// element, and `n`, its number from 1. As in PostgreSQL, what a record is made of is in its
/// modifier. The value is an array of the two.
pub const EXPANDED_ARRAY: Type = Type::modified(TypeId::Record, 1);

/// The rows of a function of this module that gives rows; none if it is not of this module.
pub fn set_rows(name: &str, arguments: &[Datum]) -> Option<Vec<Vec<Datum>>> {
    match (name, arguments) {
        // There are no partitions.
        ("pg_partition_ancestors" | "pg_partition_tree", _) => Some(Vec::new()),
        ("pg_get_keywords", _) => Some(super::keywords::rows()),
        // Nothing of what it tells of takes long here.
        ("pg_stat_get_progress_info", _) => Some(Vec::new()),
        ("pg_options_to_table", [Datum::Array(options)]) => {
            let options = options.elements.iter().filter_map(Datum::as_str);
            Some(options.map(option).collect())
        }
        ("_pg_expandarray", [Datum::Array(array)]) => {
            let numbered = (1i32..).zip(&array.elements);
            let record = |(number, element): (i32, &Datum)| {
                vec![Array::new(array.element, vec![element.clone(), Datum::Int4(number)]).into()]
            };
            Some(numbered.map(record).collect())
        }
        _ => None,
    }
}

/// The row of `pg_sequence_parameters`. 42501 for whom PostgreSQL does not let look at the
/// sequence.
pub(crate) fn sequence_parameters(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Vec<Vec<Datum>>> {
    let Some(catalog) = context.session.catalog() else { return Ok(Vec::new()) };
    let source = Source { catalog: &catalog, eval: *context, server: context.session.server() };
    Ok(vec![general::sequence_parameters(arguments, &source)?])
}

/// What the log is called among PostgreSQL's files, as one of which it counts. Who asks for their
/// number and size looks only at names of this form.
const LOG_FILE: &str = "000000010000000000000001";

/// The rows of `pg_ls_waldir()`: all of the log that is not in the base yet counts as one file.
/// 42501 for whom PostgreSQL does not let call it.
pub fn log_files(server: &dyn ServerView) -> Result<Vec<Vec<Datum>>> {
    if !server.may_monitor() {
        let message = "permission denied for function pg_ls_waldir";
        return Err(SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message));
    }
    let bytes = i64::try_from(server.statistics().replay_bytes).unwrap_or(i64::MAX);
    Ok(vec![vec![LOG_FILE.into(), Datum::Int8(bytes), Datum::Null]])
}

/// Name and value of an option that is stored as `name=value`.
fn option(text: &str) -> Vec<Datum> {
    match text.split_once('=') {
        Some((name, value)) => vec![name.into(), value.into()],
        None => vec![text.into(), Datum::Null],
    }
}

/// Every function of this module.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    let tables: [&'static [Function]; 12] = [
        counts::FUNCTIONS,
        definitions::FUNCTIONS,
        describe::FUNCTIONS,
        general::FUNCTIONS,
        log::FUNCTIONS,
        names::FUNCTIONS,
        privilege::DEFAULTS,
        privilege::FUNCTIONS,
        property::FUNCTIONS,
        size::FUNCTIONS,
        type_numbers::FUNCTIONS,
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
