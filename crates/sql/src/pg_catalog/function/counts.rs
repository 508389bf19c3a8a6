//! What was read and written of tables, by indexes, and in databases: what PostgreSQL's views of
//! statistics are made of, and monitors ask for, too.

use super::super::Source;
use super::super::statistics::{count, since};
use super::{called_on_null, oid, over_catalog, plain, volatile};
use crate::ddl::permission::denied;
use crate::error::Result;
use crate::expr::Counts;
use crate::function::{EvalContext, Function};
use crate::types::Datum;
use crate::types::TypeId::{Int8, Oid, Timestamptz, Void};

pub(super) static FUNCTIONS: &[Function] = &[
    over_catalog!(1928, "pg_stat_get_numscans", &[Oid], Int8, scans),
    over_catalog!(1929, "pg_stat_get_tuples_returned", &[Oid], Int8, read),
    over_catalog!(1930, "pg_stat_get_tuples_fetched", &[Oid], Int8, fetched),
    over_catalog!(1931, "pg_stat_get_tuples_inserted", &[Oid], Int8, inserted),
    over_catalog!(1932, "pg_stat_get_tuples_updated", &[Oid], Int8, updated),
    over_catalog!(1933, "pg_stat_get_tuples_deleted", &[Oid], Int8, deleted),
    over_catalog!(2758, "pg_stat_get_db_tuples_returned", &[Oid], Int8, read_in),
    over_catalog!(2759, "pg_stat_get_db_tuples_fetched", &[Oid], Int8, fetched_in),
    over_catalog!(2760, "pg_stat_get_db_tuples_inserted", &[Oid], Int8, inserted_in),
    over_catalog!(2761, "pg_stat_get_db_tuples_updated", &[Oid], Int8, updated_in),
    over_catalog!(2762, "pg_stat_get_db_tuples_deleted", &[Oid], Int8, deleted_in),
    over_catalog!(3074, "pg_stat_get_db_stat_reset_time", &[Oid], Timestamptz, counted_since),
    called_on_null(volatile(over_catalog!(2274, "pg_stat_reset", &[], Void, reset))),
    volatile(over_catalog!(3776, "pg_stat_reset_single_table_counters", &[Oid], Void, reset_relation)),
    called_on_null(volatile(plain(2137, "pg_stat_force_next_flush", &[], Void, nothing))),
    called_on_null(volatile(plain(2230, "pg_stat_clear_snapshot", &[], Void, nothing))),
];

fn number(of: u64) -> Result<Datum> {
    Ok(Datum::Int8(count(of)))
}

/// What was counted of a table or an index: nothing of what is none.
fn of(arguments: &[Datum], source: &Source<'_>) -> Counts {
    source.server.usage_of(oid(arguments, 0))
}

fn scans(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    number(of(arguments, source).scans)
}

fn read(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    number(of(arguments, source).read)
}

fn fetched(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    number(of(arguments, source).fetched)
}

fn inserted(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    number(of(arguments, source).inserted)
}

fn updated(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    number(of(arguments, source).updated)
}

fn deleted(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    number(of(arguments, source).deleted)
}

/// The same of a database.
fn within(arguments: &[Datum], source: &Source<'_>) -> Counts {
    source.server.usage_in(oid(arguments, 0)).counts
}

fn read_in(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    number(within(arguments, source).read)
}

fn fetched_in(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    number(within(arguments, source).fetched)
}

fn inserted_in(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    number(within(arguments, source).inserted)
}

fn updated_in(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    number(within(arguments, source).updated)
}

fn deleted_in(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    number(within(arguments, source).deleted)
}

fn counted_since(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let database = oid(arguments, 0);
    Ok(match source.catalog.database_by_oid(database) {
        Some(_) => since(source, &source.server.usage_in(database)),
        None => Datum::Null,
    })
}

/// 42501 unless a superuser asks: whoever watches the server rests on what it counts.
fn check_may_reset(source: &Source<'_>, function: &str) -> Result<()> {
    match source.server.may_administer() {
        true => Ok(()),
        false => Err(denied(format!("permission denied for function {function}"))),
    }
}

fn reset(_: &[Datum], source: &Source<'_>) -> Result<Datum> {
    check_may_reset(source, "pg_stat_reset")?;
    source.server.reset_usage(None);
    Ok(Datum::text(""))
}

fn reset_relation(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    check_may_reset(source, "pg_stat_reset_single_table_counters")?;
    source.server.reset_usage(Some(oid(arguments, 0)));
    Ok(Datum::text(""))
}

/// What is counted is there once a transaction has ended, and is looked at as it is.
fn nothing(_: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    Ok(Datum::text(""))
}
