//! Functions that stand behind operators, aggregates and the protocol in PostgreSQL, and that some
//! call by name: `int8send(x)` gives the bytes of a number, which programs make ids of, and
//! `textcat(a, b)` was written in indexes where `a || b` could not be.

use super::EvalContext;
use super::math::unexpected;
use super::registry::{Function, plain, typed};
use crate::error::SqlError;
use crate::types::TypeId::{
    Bool, Bpchar, Bytea, Cidr, Date, Float4, Float8, Inet, Int2, Int4, Int8, InternalChar, Interval, Json,
    Jsonb, Name, Numeric as N, Oid, PgLsn, Text as T, Time, Timestamp, Timestamptz, Uuid, Varchar,
};
use crate::types::{Datum, Numeric, Type, TypeId};

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

/// A value as the binary format of the protocol has it.
fn send(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    let mut bytes = Vec::new();
    arguments[0].send(types[0], context.format, &mut bytes)?;
    context.check_size(bytes.len())?;
    Ok(Datum::Bytea(bytes.into()))
}

/// Texts are sent in the encoding that the client wants, so by their functions they are stable.
const fn sends(oid: u32, name: &'static str, of: &'static [TypeId]) -> Function {
    typed(oid, name, of, Bytea, send)
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(60, "booleq", &[Bool, Bool], Bool, bool_equal),
    plain(84, "boolne", &[Bool, Bool], Bool, bool_not_equal),
    plain(141, "int4mul", &[Int4, Int4], Int4, int4_multiply),
    plain(1258, "textcat", &[T, T], T, text_concatenate),
    plain(1764, "numeric_inc", &[N], N, numeric_increment),
    sends(324, "json_send", &[Json]),
    sends(2405, "int2send", &[Int2]),
    sends(2407, "int4send", &[Int4]),
    sends(2409, "int8send", &[Int8]),
    sends(2413, "byteasend", &[Bytea]),
    sends(2415, "textsend", &[T]).stable(),
    sends(2419, "oidsend", &[Oid]),
    sends(2423, "namesend", &[Name]).stable(),
    sends(2425, "float4send", &[Float4]),
    sends(2427, "float8send", &[Float8]),
    sends(2431, "bpcharsend", &[Bpchar]).stable(),
    sends(2433, "varcharsend", &[Varchar]).stable(),
    sends(2435, "charsend", &[InternalChar]),
    sends(2437, "boolsend", &[Bool]),
    sends(2461, "numeric_send", &[N]),
    sends(2469, "date_send", &[Date]),
    sends(2471, "time_send", &[Time]),
    sends(2475, "timestamp_send", &[Timestamp]),
    sends(2477, "timestamptz_send", &[Timestamptz]),
    sends(2479, "interval_send", &[Interval]),
    sends(2497, "inet_send", &[Inet]),
    sends(2499, "cidr_send", &[Cidr]),
    sends(2962, "uuid_send", &[Uuid]),
    sends(3239, "pg_lsn_send", &[PgLsn]),
    sends(3803, "jsonb_send", &[Jsonb]),
    plain(2515, "booland_statefunc", &[Bool, Bool], Bool, bool_and),
    plain(2516, "boolor_statefunc", &[Bool, Bool], Bool, bool_or),
];
