//! Functions that stand behind operators, aggregates and the protocol in PostgreSQL, and that some
//! call by name: `float4send(x)` shows the bits of a float, `textcat(a, b)` was written in indexes
//! where `a || b` could not be.

use super::EvalContext;
use super::math::unexpected;
use super::registry::{Function, plain};
use crate::error::SqlError;
use crate::types::TypeId::{Bool, Bytea, Float4, Float8, Int4, Numeric as N, Text as T};
use crate::types::{Datum, Numeric};

type Computed = Result<Datum, SqlError>;

fn bools(arguments: &[Datum]) -> Result<(bool, bool), SqlError> {
    match arguments {
        [Datum::Bool(a), Datum::Bool(b)] => Ok((*a, *b)),
        other => Err(unexpected(&other.iter().collect::<Vec<_>>())),
    }
}

fn bool_equal(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    bools(arguments).map(|(a, b)| Datum::Bool(a == b))
}

fn bool_not_equal(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    bools(arguments).map(|(a, b)| Datum::Bool(a != b))
}

fn bool_and(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    bools(arguments).map(|(a, b)| Datum::Bool(a && b))
}

fn bool_or(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    bools(arguments).map(|(a, b)| Datum::Bool(a || b))
}

fn int4_multiply(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    match arguments {
        [Datum::Int4(a), Datum::Int4(b)] => {
            a.checked_mul(*b).map(Datum::Int4).ok_or_else(|| SqlError::out_of_range("integer"))
        }
        other => Err(unexpected(&other.iter().collect::<Vec<_>>())),
    }
}

fn numeric_increment(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    match &arguments[0] {
        Datum::Numeric(value) => value.add(&Numeric::from(1i64)).map(Datum::Numeric),
        other => Err(unexpected(&[other])),
    }
}

fn text_concatenate(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    match (arguments[0].as_str(), arguments[1].as_str()) {
        (Some(a), Some(b)) => {
            context.check_size(a.len() + b.len())?;
            Ok([a, b].concat().into())
        }
        _ => Err(unexpected(&arguments.iter().collect::<Vec<_>>())),
    }
}

fn float_send(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    match &arguments[0] {
        Datum::Float4(value) => Ok(Datum::Bytea(value.to_be_bytes().to_vec().into())),
        Datum::Float8(value) => Ok(Datum::Bytea(value.to_be_bytes().to_vec().into())),
        other => Err(unexpected(&[other])),
    }
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(60, "booleq", &[Bool, Bool], Bool, bool_equal),
    plain(84, "boolne", &[Bool, Bool], Bool, bool_not_equal),
    plain(141, "int4mul", &[Int4, Int4], Int4, int4_multiply),
    plain(1258, "textcat", &[T, T], T, text_concatenate),
    plain(1764, "numeric_inc", &[N], N, numeric_increment),
    plain(2425, "float4send", &[Float4], Bytea, float_send),
    plain(2427, "float8send", &[Float8], Bytea, float_send),
    plain(2515, "booland_statefunc", &[Bool, Bool], Bool, bool_and),
    plain(2516, "boolor_statefunc", &[Bool, Bool], Bool, bool_or),
];
