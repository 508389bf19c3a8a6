//! What a call knows of its arguments: their types, and how many are NULL.

use super::EvalContext;
use super::registry::{Function, plain, typed};
use crate::error::SqlError;
use crate::types::TypeId::{Any, Int4, Regtype};
use crate::types::{Datum, Type, TypeId};

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

/// About what a value takes in a row of PostgreSQL: the length of the type, or what there is of it
/// behind a length of one byte, or of four. Nothing is compressed here.
fn column_size(arguments: &[Datum], types: &[Type], _: &EvalContext<'_>) -> Computed {
    /// More takes a longer length.
    const SHORT: usize = 126;
    let ty = types[0];
    let bytes = match &arguments[0] {
        _ if ty.id == TypeId::Enum => return Ok(Datum::Int4(4)),
        _ if ty.id.length() > 0 => return Ok(Datum::Int4(ty.id.length().into())),
        Datum::Text(text) | Datum::Bpchar(text) | Datum::Jsonb(text) => text.len(),
        Datum::Bytea(bytes) => bytes.len(),
        value => {
            let mut out = Vec::new();
            value.to_binary(ty, &mut out);
            // A number's head takes two bytes there, and eight on its way to a client.
            if matches!(value, Datum::Numeric(_)) { out.len().saturating_sub(6) } else { out.len() }
        }
    };
    let all = bytes + if bytes <= SHORT { 1 } else { 4 };
    Ok(Datum::Int4(i32::try_from(all).unwrap_or(i32::MAX)))
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(438, "num_nulls", &[Any], Int4, num_nulls).variadic().called_on_null(),
    plain(440, "num_nonnulls", &[Any], Int4, num_nonnulls).variadic().called_on_null(),
    typed(1269, "pg_column_size", &[Any], Int4, column_size).stable(),
    typed(1619, "pg_typeof", &[Any], Regtype, pg_typeof).called_on_null().stable(),
];
