//! Places in the log, and recovery, as monitoring asks for them.
//!
//! A place is a commit's number as a `pg_lsn`: what it counts are commits rather than bytes. No
//! node is a standby: each takes writes, and what a standby would say is NULL or an error, as at
//! PostgreSQL's primary.

use super::super::Source;
use super::{null, over_catalog, plain, volatile};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::{EvalContext, Function};
use crate::types::Datum;
use crate::types::TypeId::{Bool, PgLsn, Text, Timestamptz, Void};

pub(super) static FUNCTIONS: &[Function] = &[
    volatile(over_catalog!(2849, "pg_current_wal_lsn", &[], PgLsn, last_commit)),
    volatile(over_catalog!(2852, "pg_current_wal_insert_lsn", &[], PgLsn, last_commit)),
    volatile(over_catalog!(3330, "pg_current_wal_flush_lsn", &[], PgLsn, durable_commit)),
    volatile(plain(3820, "pg_last_wal_receive_lsn", &[], PgLsn, null)),
    volatile(plain(3821, "pg_last_wal_replay_lsn", &[], PgLsn, null)),
    volatile(plain(3830, "pg_last_xact_replay_timestamp", &[], Timestamptz, null)),
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

fn last_commit(_: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(Datum::Unsigned(source.server.commits().0))
}

fn durable_commit(_: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(Datum::Unsigned(source.server.commits().1))
}
