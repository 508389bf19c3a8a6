//! What a call knows of its arguments: their types, and how many are NULL.

use super::EvalContext;
use super::registry::{Function, plain, typed};
use crate::error::SqlError;
use crate::types::TypeId::{Any, Int4, Regtype};
use crate::types::{Datum, Type};

type Computed = Result<Datum, SqlError>;

fn pg_typeof(_: &[Datum], types: &[Type], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Oid(types[0].oid()))
}

fn num_nulls(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Int4(arguments.iter().filter(|argument| argument.is_null()).count() as i32))
}

fn num_nonnulls(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Int4(arguments.iter().filter(|argument| !argument.is_null()).count() as i32))
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(438, "num_nulls", &[Any], Int4, num_nulls).variadic().called_on_null(),
    plain(440, "num_nonnulls", &[Any], Int4, num_nonnulls).variadic().called_on_null(),
    typed(1619, "pg_typeof", &[Any], Regtype, pg_typeof).called_on_null().stable(),
];
