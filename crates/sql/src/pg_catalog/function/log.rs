//! Places in the log, and recovery, as monitoring asks for them.
//!
//! A place is a commit's number, written like PostgreSQL's `pg_lsn`: what it counts are commits
//! rather than bytes. There is no such type, so a place is a text. No node is a standby: each takes
//! writes, and what a standby would say is NULL or an error, as at PostgreSQL's primary.

use super::super::Source;
use super::{null, over_catalog, plain, text, volatile};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::{EvalContext, Function};
use crate::types::TypeId::{Bool, Numeric, Text, Timestamptz, Void};
use crate::types::{Datum, Numeric as Number};

pub(super) static FUNCTIONS: &[Function] = &[
    volatile(over_catalog!(2849, "pg_current_wal_lsn", &[], Text, last_commit)),
    volatile(over_catalog!(2852, "pg_current_wal_insert_lsn", &[], Text, last_commit)),
    volatile(over_catalog!(3330, "pg_current_wal_flush_lsn", &[], Text, durable_commit)),
    volatile(plain(3820, "pg_last_wal_receive_lsn", &[], Text, null)),
    volatile(plain(3821, "pg_last_wal_replay_lsn", &[], Text, null)),
    volatile(plain(3830, "pg_last_xact_replay_timestamp", &[], Timestamptz, null)),
    // What a literal of the type is made by in monitors' queries.
    plain(3229, "pg_lsn", &[Text], Text, literal),
    plain(3165, "pg_wal_lsn_diff", &[Text, Text], Numeric, difference),
    volatile(plain(3810, "pg_is_in_recovery", &[], Bool, no)),
    volatile(plain(3073, "pg_is_wal_replay_paused", &[], Bool, no_recovery)),
    volatile(plain(1137, "pg_get_wal_replay_pause_state", &[], Text, no_recovery)),
    volatile(plain(3071, "pg_wal_replay_pause", &[], Void, no_recovery)),
    volatile(plain(3072, "pg_wal_replay_resume", &[], Void, no_recovery)),
];

fn no(_: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    Ok(Datum::Bool(false))
}

fn no_recovery(_: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    Err(SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, "recovery is not in progress")
        .with_hint("Recovery control functions can only be executed during recovery."))
}

fn place(commit: u64) -> Datum {
    format!("{:X}/{:X}", commit >> 32, commit & 0xffff_ffff).into()
}

fn last_commit(_: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(place(source.server.commits().0))
}

fn durable_commit(_: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(place(source.server.commits().1))
}

/// Reads what [`place`] writes. 22P02.
fn parse(text: &str) -> Result<u64> {
    let half = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true if (1..=8).contains(&digits.len()) => u64::from_str_radix(digits, 16).ok(),
        _ => None,
    };
    let halves = text.split_once('/').and_then(|(high, low)| Some(half(high)? << 32 | half(low)?));
    halves.ok_or_else(|| SqlError::invalid_text("pg_lsn", text))
}

fn literal(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    parse(text(arguments, 0)).map(place)
}

fn difference(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    let difference = i128::from(parse(text(arguments, 0))?) - i128::from(parse(text(arguments, 1))?);
    Ok(Datum::from(Number::from(difference)))
}
