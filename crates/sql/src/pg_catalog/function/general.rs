//! Facts about the server and its state, and what does not apply here.

use std::sync::Arc;

use super::super::Source;
use super::super::statistics::gathered_at;
use super::super::value::array;
use super::super::viewer::Viewer;
use super::{called_on_null, integer, null, oid, over_catalog, plain, text, volatile};
use crate::bind::base_table;
use crate::catalog::{Privileges, Relation, Securable, Sequence};
use crate::ddl::permission::denied;
use crate::error::{Result, SqlError, sqlstate};
use crate::function::{EvalContext, Function};
use crate::oltp::subject::updatable_columns;
use crate::types::Datum;
use crate::types::TypeId::{
    Bool, Float8, Inet, Int2, Int4, Int4Array, Int8, Name, Oid, Regclass, Text, Timestamptz,
};

pub(super) static FUNCTIONS: &[Function] = &[
    plain(1597, "pg_encoding_to_char", &[Int4], Name, encoding_to_char),
    plain(1264, "pg_char_to_encoding", &[Name], Int4, char_to_encoding),
    plain(1039, "getdatabaseencoding", &[], Name, encoding),
    plain(810, "pg_client_encoding", &[], Name, encoding),
    over_catalog!(2560, "pg_postmaster_start_time", &[], Timestamptz, started),
    over_catalog!(2034, "pg_conf_load_time", &[], Timestamptz, started),
    plain(3778, "pg_tablespace_location", &[Oid], Text, nothing),
    over_catalog!(2854, "pg_my_temp_schema", &[], Oid, my_temp_schema),
    over_catalog!(2855, "pg_is_other_temp_schema", &[Oid], Bool, is_other_temp_schema),
    plain(3163, "pg_trigger_depth", &[], Int4, zero),
    plain(315, "pg_jit_available", &[], Bool, no),
    plain(3298, "row_security_active", &[Oid], Bool, no),
    plain(3299, "row_security_active", &[Text], Bool, no),
    over_catalog!(6121, "pg_relation_is_publishable", &[Regclass], Bool, is_publishable),
    over_catalog!(3842, "pg_relation_is_updatable", &[Regclass, Bool], Int4, is_updatable),
    over_catalog!(3843, "pg_column_is_updatable", &[Regclass, Int2, Bool], Bool, column_is_updatable),
    plain(3424, "pg_partition_root", &[Regclass], Regclass, null),
    plain(3448, "pg_collation_actual_version", &[Oid], Text, null),
    plain(6249, "pg_database_collation_actual_version", &[Oid], Text, null),
    volatile(over_catalog!(4032, "pg_sequence_last_value", &[Regclass], Int8, last_value)),
    volatile(over_catalog!(3296, "pg_notification_queue_usage", &[], Float8, notification_usage)),
    called_on_null(over_catalog!(2196, "inet_client_addr", &[], Inet, client_address)),
    called_on_null(over_catalog!(2197, "inet_client_port", &[], Int4, client_port)),
    called_on_null(plain(2198, "inet_server_addr", &[], Inet, null)),
    called_on_null(plain(2199, "inet_server_port", &[], Int4, null)),
    over_catalog!(2878, "pg_stat_get_live_tuples", &[Oid], Int8, live_rows),
    plain(2879, "pg_stat_get_dead_tuples", &[Oid], Int8, null),
    plain(2781, "pg_stat_get_last_vacuum_time", &[Oid], Timestamptz, null),
    plain(2782, "pg_stat_get_last_autovacuum_time", &[Oid], Timestamptz, null),
    over_catalog!(2783, "pg_stat_get_last_analyze_time", &[Oid], Timestamptz, analyzed),
    over_catalog!(2784, "pg_stat_get_last_autoanalyze_time", &[Oid], Timestamptz, analyzed_by_itself),
    over_catalog!(1941, "pg_stat_get_db_numbackends", &[Oid], Int4, sessions),
    volatile(over_catalog!(2561, "pg_blocking_pids", &[Int4], Int4Array, blocking)),
    volatile(over_catalog!(
        3378,
        "pg_isolation_test_session_is_blocked",
        &[Int4, Int4Array],
        Bool,
        is_blocked
    )),
];

/// The sessions that a session waits for. Few wait, so that is asked of all others together first.
fn blocking(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let process_id = i32::try_from(integer(arguments, 0)).unwrap_or_default();
    let sessions = source.server.sessions();
    let others = sessions.iter().map(|session| session.process_id);
    let mut others: Vec<i32> = others.filter(|other| *other != process_id).collect();
    match source.server.is_blocked_by(process_id, &others) {
        true => others.retain(|other| source.server.is_blocked_by(process_id, &[*other])),
        false => others.clear(),
    }
    Ok(array(Int4, others))
}

/// What PostgreSQL's isolation tester asks while a step seems to hang.
fn is_blocked(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let others: Vec<i32> = match arguments.get(1) {
        Some(Datum::Array(array)) => {
            array.elements.iter().filter_map(Datum::as_i64).filter_map(|id| i32::try_from(id).ok()).collect()
        }
        _ => Vec::new(),
    };
    let process_id = i32::try_from(integer(arguments, 0)).unwrap_or_default();
    Ok(Datum::Bool(source.server.is_blocked_by(process_id, &others)))
}

/// Address and port of the session's client; none if it is not connected over a network.
fn client(source: &Source<'_>) -> Option<(String, i32)> {
    let process_id = source.eval.session.process_id();
    source.server.sessions().into_iter().find(|session| session.process_id == process_id)?.client
}

fn client_address(_: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let address = client(source).and_then(|(address, _)| crate::types::Inet::parse(&address, false).ok());
    Ok(address.map_or(Datum::Null, Datum::Inet))
}

fn client_port(_: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(client(source).map_or(Datum::Null, |(_, port)| Datum::Int4(port)))
}

fn encoding_to_char(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    Ok(match integer(arguments, 0) {
        0 => "SQL_ASCII",
        6 => "UTF8",
        _ => "",
    }
    .into())
}

fn char_to_encoding(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    let name: String = text(arguments, 0).chars().filter(char::is_ascii_alphanumeric).collect();
    Ok(Datum::Int4(match name.to_ascii_lowercase().as_str() {
        "utf8" | "unicode" => 6,
        "sqlascii" => 0,
        _ => -1,
    }))
}

fn encoding(_: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    Ok("UTF8".into())
}

fn no(_: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    Ok(Datum::Bool(false))
}

fn nothing(_: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    Ok("".into())
}

fn zero(_: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    Ok(Datum::Int4(0))
}

fn my_temp_schema(_: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(Datum::Oid(source.temporary_schema().map_or(0, |schema| schema.oid)))
}

fn is_other_temp_schema(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(Datum::Bool(Viewer::new(source).is_of_another_session(oid(arguments, 0))))
}

fn notification_usage(_: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(Datum::Float8(source.server.notification_usage()))
}

fn started(_: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(Datum::Timestamptz(source.server.started()))
}

fn is_publishable(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let table = source.catalog.table_by_oid(oid(arguments, 0));
    Ok(Datum::Bool(table.is_some_and(|table| !table.temporary)))
}

/// The bits of UPDATE, INSERT and DELETE for a table, or a view that stands for one; for DELETE its
/// columns do not matter.
fn is_updatable(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let all = (1 << 2) | (1 << 3) | (1 << 4);
    Ok(Datum::Int4(match source.catalog.relation_by_oid(oid(arguments, 0)) {
        Some(Relation::Table(_)) => all,
        Some(Relation::View(view)) => match base_table(view, source.catalog, false) {
            Ok(base) if base.columns.iter().any(|(_, column)| column.is_ok()) => all,
            Ok(_) => 1 << 4,
            Err(_) => 0,
        },
        _ => 0,
    }))
}

fn column_is_updatable(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(Datum::Bool(match source.catalog.relation_by_oid(oid(arguments, 0)) {
        Some(Relation::Table(_)) => true,
        Some(Relation::View(view)) => {
            let number = arguments[1].as_i64().and_then(|number| usize::try_from(number - 1).ok());
            let columns = updatable_columns(view, source.catalog);
            number.and_then(|at| columns.get(at).copied()).unwrap_or(false)
        }
        _ => false,
    }))
}

fn sequence<'a>(source: &Source<'a>, oid: u32) -> Result<&'a Arc<Sequence>> {
    match source.catalog.relation_by_oid(oid) {
        Some(Relation::Sequence(sequence)) => Ok(sequence),
        Some(other) => {
            let message = format!("\"{}\" is not a sequence", other.name());
            Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message))
        }
        None => {
            let message = format!("could not open relation with OID {oid}");
            Err(SqlError::new(sqlstate::UNDEFINED_TABLE, message))
        }
    }
}

/// What a sequence was made with.
pub(super) fn sequence_parameters(arguments: &[Datum], source: &Source<'_>) -> Result<Vec<Datum>> {
    let sequence = sequence(source, oid(arguments, 0))?;
    let wanted = Privileges::SELECT | Privileges::USAGE | Privileges::UPDATE;
    if !Viewer::new(source).may(sequence.oid, Securable::Sequence, wanted) {
        return Err(denied(format!("permission denied for sequence {}", sequence.name)));
    }
    Ok(vec![
        Datum::Int8(sequence.start),
        Datum::Int8(sequence.minimum),
        Datum::Int8(sequence.maximum),
        Datum::Int8(sequence.increment),
        Datum::Bool(sequence.cycle),
        Datum::Int8(sequence.cache),
        Datum::Oid(sequence.ty.oid()),
    ])
}

fn last_value(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let sequence = sequence(source, oid(arguments, 0))?;
    let wanted = Privileges::SELECT | Privileges::USAGE;
    if !Viewer::new(source).may(sequence.oid, Securable::Sequence, wanted) {
        return Err(denied(format!("permission denied for sequence {}", sequence.name)));
    }
    Ok(source.server.last_value(sequence).into())
}

/// What `pg_stat_all_tables` tells of a table; of none that there are no rows.
fn live_rows(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let table = source.catalog.table_by_oid(oid(arguments, 0));
    let rows = table.map_or(0, |table| source.server.approximate_rows(table.tree));
    Ok(Datum::Int8(i64::try_from(rows).unwrap_or(i64::MAX)))
}

fn gathered(arguments: &[Datum], source: &Source<'_>, automatic: bool) -> Datum {
    let table = source.catalog.table_by_oid(oid(arguments, 0));
    table.map_or(Datum::Null, |table| gathered_at(source.server, table, automatic))
}

fn analyzed(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(gathered(arguments, source, false))
}

fn analyzed_by_itself(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(gathered(arguments, source, true))
}

fn sessions(_: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(Datum::Int4(i32::try_from(source.server.sessions().len()).unwrap_or(i32::MAX)))
}
