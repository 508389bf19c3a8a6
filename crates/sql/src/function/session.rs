//! What the session knows: users, settings, ids, random numbers. Sequences and waiting are only
//! declared here; the session implements them. Functions over the catalog are in
//! [`pg_catalog`](crate::pg_catalog).

use super::EvalContext;
use super::registry::{Function, external, plain};
use super::string::str_of;
use crate::error::{SqlError, sqlstate};
use crate::types::TypeId::{
    self, Bool, Float8, Int4, Int8, Name, NameArray, Regclass, Text as T, Uuid, Void,
};
use crate::types::{Array, Datum};

type Computed = Result<Datum, SqlError>;

fn version(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(context.session.version().into())
}

fn current_user(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(context.session.user().into())
}

fn session_user(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(context.session.session_user().into())
}

fn current_database(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(context.session.database().into())
}

fn current_schema(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(context.session.search_path(false).into_iter().next().into())
}

fn current_schemas(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let path = context.session.search_path(arguments[0].as_bool() == Some(true));
    Ok(Array::new(TypeId::Name, path.into_iter().map(Datum::from).collect()).into())
}

#[cold]
fn unknown_setting(name: &str) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

fn current_setting(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let name = str_of(&arguments[0])?;
    let missing_ok = arguments.get(1).and_then(Datum::as_bool) == Some(true);
    match context.session.setting(&name.to_ascii_lowercase()) {
        Some(value) => Ok(value.into()),
        None if missing_ok => Ok(Datum::Null),
        None => Err(unknown_setting(name)),
    }
}

fn set_config(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let Some(name) = arguments[0].as_str() else {
        return Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "SET requires parameter name"));
    };
    // NULL is DEFAULT.
    let value = arguments[1].as_str();
    let local = arguments[2].as_bool() == Some(true);
    Ok(context.session.set_setting(&name.to_ascii_lowercase(), value, local)?.into())
}

fn pg_backend_pid(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(Datum::Int4(context.session.process_id()))
}

fn txid_current(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(Datum::Int8(context.session.transaction_id() as i64))
}

fn random(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(Datum::Float8(context.session.random()))
}

fn setseed(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let Datum::Float8(seed) = arguments[0] else { return Ok(Datum::Null) };
    if !(-1.0..=1.0).contains(&seed) {
        return Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("setseed parameter {seed} is out of allowed range [-1,1]"),
        ));
    }
    context.session.set_seed(seed);
    Ok(Datum::text(""))
}

/// A random UUID, version 4.
fn gen_random_uuid(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    let mut bytes = context.session.random_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Datum::Uuid(bytes))
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(89, "version", &[], T, version).stable(),
    plain(745, "current_user", &[], Name, current_user).stable(),
    plain(746, "session_user", &[], Name, session_user).stable(),
    plain(710, "getpgusername", &[], Name, current_user).stable(),
    plain(861, "current_database", &[], Name, current_database).stable(),
    plain(1402, "current_schema", &[], Name, current_schema).stable(),
    plain(1403, "current_schemas", &[Bool], NameArray, current_schemas).stable(),
    plain(2077, "current_setting", &[T], T, current_setting).stable(),
    plain(3294, "current_setting", &[T, Bool], T, current_setting).stable(),
    plain(2078, "set_config", &[T, T, Bool], T, set_config).called_on_null().volatile(),
    plain(2026, "pg_backend_pid", &[], Int4, pg_backend_pid).stable(),
    plain(2943, "txid_current", &[], Int8, txid_current).stable(),
    plain(1598, "random", &[], Float8, random).volatile(),
    plain(1599, "setseed", &[Float8], Void, setseed).volatile(),
    plain(3432, "gen_random_uuid", &[], Uuid, gen_random_uuid).volatile(),
];

/// What an identity column takes its numbers by, which no call finds by its name: who may insert a
/// row needs no right on the column's sequence.
pub static IDENTITY_NEXTVAL: Function =
    external(0, "nextval of an identity column", &[Regclass], Int8).volatile();

/// Declared here, implemented by the session: sequences, waiting, advisory locks.
pub(super) static EXTERNAL: &[Function] = &[
    external(1574, "nextval", &[Regclass], Int8).volatile(),
    external(1575, "currval", &[Regclass], Int8).volatile(),
    external(1576, "setval", &[Regclass, Int8], Int8).volatile(),
    external(1765, "setval", &[Regclass, Int8, Bool], Int8).volatile(),
    external(2559, "lastval", &[], Int8).volatile(),
    external(2626, "pg_sleep", &[Float8], Void).volatile(),
    external(3935, "pg_sleep_for", &[TypeId::Interval], Void).volatile(),
    external(3936, "pg_sleep_until", &[TypeId::Timestamptz], Void).volatile(),
    external(817, "current_query", &[], T).called_on_null().volatile(),
    external(3809, "pg_export_snapshot", &[], T).volatile(),
    external(15931, "cognate_digest", &[Int8], T).volatile(),
    external(15932, "cognate_outcome", &[T], T).volatile(),
    external(15933, "cognate_outcome", &[T, T], T).volatile(),
    external(15934, "cognate_token", &[], T).volatile(),
    external(2171, "pg_cancel_backend", &[Int4], Bool).volatile(),
    external(2096, "pg_terminate_backend", &[Int4], Bool).volatile(),
    external(2880, "pg_advisory_lock", &[Int8], Void).volatile(),
    external(2886, "pg_advisory_lock", &[Int4, Int4], Void).volatile(),
    external(2881, "pg_advisory_lock_shared", &[Int8], Void).volatile(),
    external(2887, "pg_advisory_lock_shared", &[Int4, Int4], Void).volatile(),
    external(2882, "pg_try_advisory_lock", &[Int8], Bool).volatile(),
    external(2888, "pg_try_advisory_lock", &[Int4, Int4], Bool).volatile(),
    external(2883, "pg_try_advisory_lock_shared", &[Int8], Bool).volatile(),
    external(2889, "pg_try_advisory_lock_shared", &[Int4, Int4], Bool).volatile(),
    external(3089, "pg_advisory_xact_lock", &[Int8], Void).volatile(),
    external(3093, "pg_advisory_xact_lock", &[Int4, Int4], Void).volatile(),
    external(3090, "pg_advisory_xact_lock_shared", &[Int8], Void).volatile(),
    external(3094, "pg_advisory_xact_lock_shared", &[Int4, Int4], Void).volatile(),
    external(3091, "pg_try_advisory_xact_lock", &[Int8], Bool).volatile(),
    external(3095, "pg_try_advisory_xact_lock", &[Int4, Int4], Bool).volatile(),
    external(3092, "pg_try_advisory_xact_lock_shared", &[Int8], Bool).volatile(),
    external(3096, "pg_try_advisory_xact_lock_shared", &[Int4, Int4], Bool).volatile(),
    external(2884, "pg_advisory_unlock", &[Int8], Bool).volatile(),
    external(2890, "pg_advisory_unlock", &[Int4, Int4], Bool).volatile(),
    external(2885, "pg_advisory_unlock_shared", &[Int8], Bool).volatile(),
    external(2891, "pg_advisory_unlock_shared", &[Int4, Int4], Bool).volatile(),
    external(3036, "pg_notify", &[T, T], Void).called_on_null().volatile(),
    external(2892, "pg_advisory_unlock_all", &[], Void).volatile(),
];
