//! Ids of transactions (xid8, and xid, which is its lower half), snapshots that are told by them
//! (pg_snapshot) and places in the log (pg_lsn).
//!
//! A transaction has its id from the beginning, whether it asks for it or not. Which snapshot is
//! the current one says the session.
//!
//! Rows have no ids of transactions, and no id comes again, so nothing grows old here:
//!
//! ```text
//! age(xid)     how many transactions ago that one was, counted from the current one
//! catalogs     xmin, relfrozenxid and datfrozenxid are the current transaction: of age 0
//! ```
//!
//! A tool that asks a catalog what has changed since it last looked is so told that all may have.

use super::EvalContext;
use super::operator::{Operator, infix};
use super::registry::{Function, external, plain, set};
use super::string::str_of;
use crate::error::{SqlError, sqlstate};
use crate::types::TypeId::{
    Bool, Int4, Int8, Numeric as Number, PgLsn, PgSnapshot, Text, TxidSnapshot, Xid, Xid8,
};
use crate::types::input::parse_lsn;
use crate::types::snapshot::Snapshot;
use crate::types::{Datum, Numeric};

type Computed = Result<Datum, SqlError>;

/// The first id that PostgreSQL gives to a transaction: those below never grow old.
const FIRST_NORMAL: u32 = 3;

fn word(datum: &Datum) -> Result<u64, SqlError> {
    match datum {
        Datum::Unsigned(value) => Ok(*value),
        other => Err(SqlError::internal(format!("{other:?} is no unsigned number"))),
    }
}

fn xid(datum: &Datum) -> Result<u32, SqlError> {
    match datum {
        Datum::Oid(value) => Ok(*value),
        other => Err(SqlError::internal(format!("{other:?} is no id of a transaction"))),
    }
}

fn number(datum: &Datum) -> Result<&Numeric, SqlError> {
    match datum {
        Datum::Numeric(value) => Ok(value),
        other => Err(SqlError::internal(format!("{other:?} is no numeric"))),
    }
}

fn current(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(Datum::Unsigned(context.session.transaction_id()))
}

fn current_number(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(Datum::Int8(context.session.transaction_id() as i64))
}

fn current_xid(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(Datum::Oid(context.session.transaction_id() as u32))
}

fn xid_of(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Oid(word(&arguments[0])? as u32))
}

fn age(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let of = xid(&arguments[0])?;
    if of < FIRST_NORMAL {
        return Ok(Datum::Int4(i32::MAX));
    }
    Ok(Datum::Int4((context.session.transaction_id() as u32).wrapping_sub(of) as i32))
}

fn snapshot(datum: &Datum) -> Result<Snapshot, SqlError> {
    Snapshot::parse(str_of(datum)?)
}

/// An id as the functions of a snapshot's type have it: those of txid_snapshot are numbers.
fn id(function: &str, id: u64) -> Datum {
    if function.starts_with("txid_") { Datum::Int8(id as i64) } else { Datum::Unsigned(id) }
}

fn xmin(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(id("pg_", snapshot(&arguments[0])?.xmin))
}

fn xmax(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(id("pg_", snapshot(&arguments[0])?.xmax))
}

fn txid_xmin(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(id("txid_", snapshot(&arguments[0])?.xmin))
}

fn txid_xmax(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(id("txid_", snapshot(&arguments[0])?.xmax))
}

/// The rows of `pg_snapshot_xip` and `txid_snapshot_xip`.
pub(super) fn running(function: &str, arguments: &[Datum]) -> Result<Vec<Datum>, SqlError> {
    let running = snapshot(&arguments[0])?.running;
    Ok(running.into_iter().map(|of| id(function, of)).collect())
}

fn is_visible(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let of = match &arguments[0] {
        Datum::Int8(number) => *number as u64,
        other => word(other)?,
    };
    Ok(Datum::Bool(snapshot(&arguments[1])?.shows(of)))
}

/// There are no multixacts: the next one would be the first.
fn multixact_age(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let of = xid(&arguments[0])?;
    Ok(Datum::Int4(if of == 0 { i32::MAX } else { 1u32.wrapping_sub(of) as i32 }))
}

/// In PostgreSQL the integer is taken for the id that has the same bits.
fn equal(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(i64::from(xid(a)? as i32) == b.as_i64().unwrap_or(0)))
}

fn not_equal(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(i64::from(xid(a)? as i32) != b.as_i64().unwrap_or(0)))
}

/// The place that a number stands for, rounded. 0A000, 22003.
fn place(value: &Numeric) -> Computed {
    if !value.is_finite() {
        let what = if value.is_nan() { "NaN" } else { "infinity" };
        let message = format!("cannot convert {what} to pg_lsn");
        return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
    }
    let whole = value.round(0).to_string();
    whole.parse().map(Datum::Unsigned).map_err(|_| SqlError::out_of_range("pg_lsn"))
}

fn place_of_text(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let text = str_of(&arguments[0])?;
    parse_lsn(text).map(Datum::Unsigned).ok_or_else(|| SqlError::invalid_text("pg_lsn", text))
}

fn place_of_number(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    place(number(&arguments[0])?)
}

fn distance(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let apart = i128::from(word(a)?) - i128::from(word(b)?);
    Ok(Datum::Numeric(Numeric::from(apart)))
}

fn difference(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    distance(&arguments[0], &arguments[1], context)
}

fn not_by_nan(by: &Numeric, what: &str) -> Result<(), SqlError> {
    match by.is_nan() {
        true => Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("cannot {what} pg_lsn"))),
        false => Ok(()),
    }
}

fn add(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let by = number(b)?;
    not_by_nan(by, "add NaN to")?;
    place(&Numeric::from(i128::from(word(a)?)).add(by)?)
}

fn added_to(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    add(b, a, context)
}

fn subtract(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let by = number(b)?;
    not_by_nan(by, "subtract NaN from")?;
    place(&Numeric::from(i128::from(word(a)?)).subtract(by)?)
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(5059, "pg_current_xact_id", &[], Xid8, current).stable(),
    plain(5060, "pg_current_xact_id_if_assigned", &[], Xid8, current).stable(),
    plain(3348, "txid_current_if_assigned", &[], Int8, current_number).stable(),
    external(5061, "pg_current_snapshot", &[], PgSnapshot).stable(),
    plain(5062, "pg_snapshot_xmin", &[PgSnapshot], Xid8, xmin),
    plain(5063, "pg_snapshot_xmax", &[PgSnapshot], Xid8, xmax),
    set(5064, "pg_snapshot_xip", &[PgSnapshot], Xid8),
    plain(5065, "pg_visible_in_snapshot", &[Xid8, PgSnapshot], Bool, is_visible),
    external(2944, "txid_current_snapshot", &[], TxidSnapshot).stable(),
    plain(2945, "txid_snapshot_xmin", &[TxidSnapshot], Int8, txid_xmin),
    plain(2946, "txid_snapshot_xmax", &[TxidSnapshot], Int8, txid_xmax),
    set(2947, "txid_snapshot_xip", &[TxidSnapshot], Int8),
    plain(2948, "txid_visible_in_snapshot", &[Int8, TxidSnapshot], Bool, is_visible),
    plain(0, "cognate_xmin", &[], Xid, current_xid).stable(),
    plain(5071, "xid", &[Xid8], Xid, xid_of),
    plain(1181, "age", &[Xid], Int4, age).stable(),
    plain(3939, "mxid_age", &[Xid], Int4, multixact_age).stable(),
    // What a literal of the type is made by in monitors' queries.
    plain(0, "pg_lsn", &[Text], PgLsn, place_of_text),
    plain(6103, "pg_lsn", &[Number], PgLsn, place_of_number),
    plain(3165, "pg_wal_lsn_diff", &[PgLsn, PgLsn], Number, difference),
];

pub(super) fn operators() -> Vec<Operator> {
    vec![
        infix("=", Xid, Int4, Bool, equal),
        infix("<>", Xid, Int4, Bool, not_equal),
        infix("-", PgLsn, PgLsn, Number, distance),
        infix("+", PgLsn, Number, PgLsn, add),
        infix("+", Number, PgLsn, PgLsn, added_to),
        infix("-", PgLsn, Number, PgLsn, subtract),
    ]
}
