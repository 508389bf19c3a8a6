//! The functions that the views of `information_schema` are made of in PostgreSQL: what a type and
//! its modifier say of lengths and digits. Programs call them that have copied such a view's query
//! to leave out its conditions, as PostgREST has.
//!
//! ```text
//! information_schema._pg_truetypid(a.*, t.*)          the type of a column, or the one under its domain
//! information_schema._pg_char_max_length(1043, 14)    10: of varchar(10)
//! ```

use super::super::Source;
use super::super::value::attribute_number;
use super::{integer, oid, over_catalog, plain};
use crate::catalog::{IndexKey, Relation};
use crate::error::Result;
use crate::function::{EvalContext, Function};
use crate::types::Datum;
use crate::types::TypeId::{Int2, Int4, Oid, Record};

pub(super) static FUNCTIONS: &[Function] = &[
    plain(13_219, "_pg_truetypid", &[Record, Record], Oid, true_type),
    plain(13_220, "_pg_truetypmod", &[Record, Record], Int4, true_modifier),
    plain(13_221, "_pg_char_max_length", &[Oid, Int4], Int4, characters),
    plain(13_222, "_pg_char_octet_length", &[Oid, Int4], Int4, octets),
    plain(13_223, "_pg_numeric_precision", &[Oid, Int4], Int4, precision),
    plain(13_224, "_pg_numeric_precision_radix", &[Oid, Int4], Int4, radix),
    plain(13_225, "_pg_numeric_scale", &[Oid, Int4], Int4, scale),
    plain(13_226, "_pg_datetime_precision", &[Oid, Int4], Int4, fractional_digits),
    over_catalog!(13_218, "_pg_index_position", &[Oid, Int2], Int4, index_position),
];

/// Octets of a character at most.
const ENCODED: i64 = 4;
/// What half of a modifier there is.
const HALF: i64 = 65535;

/// A field of a row of the catalog.
fn field<'a>(row: &'a Datum, name: &str) -> &'a Datum {
    let Datum::Record(record) = row else { return &Datum::Null };
    record.fields().find(|(known, ..)| *known == name).map_or(&Datum::Null, |(_, _, value)| value)
}

/// A field of the row of `pg_type` for a domain, and else one of that of `pg_attribute`.
fn of_base(arguments: &[Datum], of_domain: &str, of_column: &str) -> Result<Datum> {
    let (column, ty) = (&arguments[0], &arguments[1]);
    let is_domain = field(ty, "typtype").as_str() == Some("d");
    let found = if is_domain { field(ty, of_domain) } else { field(column, of_column) };
    Ok(found.clone())
}

fn true_type(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    of_base(arguments, "typbasetype", "atttypid")
}

fn true_modifier(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    of_base(arguments, "typtypmod", "atttypmod")
}

fn number(value: Option<i64>) -> Result<Datum> {
    Ok(value.and_then(|value| i32::try_from(value).ok()).map_or(Datum::Null, Datum::Int4))
}

/// Oid of the type, and its modifier unless there is none.
fn type_and_modifier(arguments: &[Datum]) -> (u32, Option<i64>) {
    (oid(arguments, 0), Some(integer(arguments, 1)).filter(|modifier| *modifier != -1))
}

fn character_limit(ty: u32, modifier: Option<i64>) -> Option<i64> {
    match ty {
        1042 | 1043 => modifier.map(|modifier| modifier - 4),
        1560 | 1562 => modifier,
        _ => None,
    }
}

fn characters(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    let (ty, modifier) = type_and_modifier(arguments);
    number(character_limit(ty, modifier))
}

fn octets(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    let (ty, modifier) = type_and_modifier(arguments);
    number(match (ty, modifier) {
        (25 | 1042 | 1043, None) => Some(1 << 30),
        (1042 | 1043, modifier) => character_limit(ty, modifier).map(|limit| limit * ENCODED),
        _ => None,
    })
}

fn precision(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    let (ty, modifier) = type_and_modifier(arguments);
    number(match ty {
        21 => Some(16),
        23 => Some(32),
        20 => Some(64),
        700 => Some(24),
        701 => Some(53),
        1700 => modifier.map(|modifier| ((modifier - 4) >> 16) & HALF),
        _ => None,
    })
}

fn radix(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    number(match oid(arguments, 0) {
        20 | 21 | 23 | 700 | 701 => Some(2),
        1700 => Some(10),
        _ => None,
    })
}

fn scale(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    let (ty, modifier) = type_and_modifier(arguments);
    number(match ty {
        20 | 21 | 23 => Some(0),
        1700 => modifier.map(|modifier| (modifier - 4) & HALF),
        _ => None,
    })
}

fn fractional_digits(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    let modifier = integer(arguments, 1);
    number(match oid(arguments, 0) {
        1082 => Some(0),
        1083 | 1114 | 1184 | 1266 => Some(if modifier < 0 { 6 } else { modifier }),
        1186 if modifier < 0 || modifier & HALF == HALF => Some(6),
        1186 => Some(modifier & HALF),
        _ => None,
    })
}

/// Which column of an index is the table's column of this number, from 1.
fn index_position(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let index = match source.catalog.relation_by_oid(oid(arguments, 0)) {
        Some(Relation::Index(table, oid)) => table.index(*oid),
        _ => None,
    };
    let Some(index) = index else { return Ok(Datum::Null) };
    let column = integer(arguments, 1);
    let is_it = |part: IndexKey| i64::from(part.column().map_or(0, attribute_number)) == column;
    number(index.shown().position(is_it).and_then(|place| i64::try_from(place + 1).ok()))
}
