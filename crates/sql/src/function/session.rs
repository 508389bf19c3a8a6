//! What the session knows: users, settings, ids, random numbers. Functions that need the catalog are only declared here;
//! the session implements them.

use super::EvalContext;
use super::registry::{Function, external, plain, set, typed};
use super::string::{integer, str_of};
use crate::error::{SqlError, sqlstate};
use crate::types::TypeId::{
    self, Any, Bool, Float8, Int2, Int4, Int8, Name, NameArray, Oid, Regclass, Regtype, Text as T, TextArray,
    Uuid, Void,
};
use crate::types::{Array, Datum, Type};

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
    let value = arguments[1].as_str().unwrap_or_default();
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

fn pg_typeof(_: &[Datum], types: &[Type], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Oid(types[0].id.oid()))
}

/// A type's SQL name with its modifier.
fn format_type(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let Some(oid) = arguments[0].as_i64() else { return Ok(Datum::Null) };
    let Some(id) = u32::try_from(oid).ok().and_then(TypeId::from_oid) else {
        return Ok(if oid == 0 { "-" } else { "???" }.into());
    };
    // Without a modifier given, the plain name.
    Ok(match arguments[1].as_i64() {
        None => id.sql_name().into(),
        Some(modifier) => Type { id, modifier: modifier as i32 }.format().into(),
    })
}

fn pg_encoding_to_char(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(if integer(&arguments[0])? == 6 { "UTF8" } else { "" }.into())
}

fn pg_client_encoding(_: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok("UTF8".into())
}

/// Everything here may be seen and used by everybody.
fn always_true(_: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(true))
}

fn always_false(_: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(false))
}

fn no_address(_: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Null)
}

fn pg_size_pretty(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let mut size = i128::from(integer(&arguments[0])?);
    if size.abs() < 10 * 1024 {
        return Ok(format!("{size} bytes").into());
    }
    // One bit is kept for rounding at each step.
    size >>= 9;
    for unit in ["kB", "MB", "GB", "TB", "PB"] {
        if size.abs() < 2 * 10 * 1024 - 1 || unit == "PB" {
            let rounded = if size < 0 { (size - 1) / 2 } else { (size + 1) / 2 };
            return Ok(format!("{rounded} {unit}").into());
        }
        size >>= 10;
    }
    Ok(Datum::Null)
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(0, "version", &[], T, version).stable(),
    plain(0, "current_user", &[], Name, current_user).stable(),
    plain(0, "session_user", &[], Name, session_user).stable(),
    plain(0, "user", &[], Name, current_user).stable(),
    plain(0, "current_role", &[], Name, current_user).stable(),
    plain(0, "getpgusername", &[], Name, current_user).stable(),
    plain(0, "current_database", &[], Name, current_database).stable(),
    plain(0, "current_catalog", &[], Name, current_database).stable(),
    plain(0, "current_schema", &[], Name, current_schema).stable(),
    plain(0, "current_schemas", &[Bool], NameArray, current_schemas).stable(),
    plain(0, "current_setting", &[T], T, current_setting).stable(),
    plain(0, "current_setting", &[T, Bool], T, current_setting).stable(),
    plain(0, "set_config", &[T, T, Bool], T, set_config).called_on_null().volatile(),
    plain(0, "pg_backend_pid", &[], Int4, pg_backend_pid).stable(),
    plain(0, "txid_current", &[], Int8, txid_current).stable(),
    plain(0, "random", &[], Float8, random).volatile(),
    plain(0, "setseed", &[Float8], Void, setseed).volatile(),
    plain(0, "gen_random_uuid", &[], Uuid, gen_random_uuid).volatile(),
    typed(0, "pg_typeof", &[Any], Regtype, pg_typeof).called_on_null().stable(),
    plain(0, "format_type", &[Oid, Int4], T, format_type).called_on_null().stable(),
    plain(0, "pg_encoding_to_char", &[Int4], Name, pg_encoding_to_char).stable(),
    plain(0, "pg_client_encoding", &[], Name, pg_client_encoding).stable(),
    plain(0, "pg_is_in_recovery", &[], Bool, always_false).volatile(),
    plain(0, "pg_is_other_temp_schema", &[Oid], Bool, always_false).stable(),
    plain(0, "pg_size_pretty", &[Int8], T, pg_size_pretty),
    plain(0, "inet_server_addr", &[], T, no_address).stable(),
    plain(0, "inet_server_port", &[], Int4, no_address).stable(),
    plain(0, "inet_client_addr", &[], T, no_address).stable(),
    plain(0, "inet_client_port", &[], Int4, no_address).stable(),
    plain(0, "pg_function_is_visible", &[Oid], Bool, always_true).stable(),
    plain(0, "pg_type_is_visible", &[Oid], Bool, always_true).stable(),
    plain(0, "pg_operator_is_visible", &[Oid], Bool, always_true).stable(),
    plain(0, "pg_opclass_is_visible", &[Oid], Bool, always_true).stable(),
    plain(0, "pg_collation_is_visible", &[Oid], Bool, always_true).stable(),
    plain(0, "pg_statistics_obj_is_visible", &[Oid], Bool, always_true).stable(),
    plain(0, "has_table_privilege", &[Oid, T], Bool, always_true).stable(),
    plain(0, "has_table_privilege", &[T, T], Bool, always_true).stable(),
    plain(0, "has_table_privilege", &[Name, Oid, T], Bool, always_true).stable(),
    plain(0, "has_schema_privilege", &[Oid, T], Bool, always_true).stable(),
    plain(0, "has_schema_privilege", &[T, T], Bool, always_true).stable(),
    plain(0, "has_database_privilege", &[T, T], Bool, always_true).stable(),
    plain(0, "has_database_privilege", &[Oid, T], Bool, always_true).stable(),
    plain(0, "has_column_privilege", &[Oid, Int2, T], Bool, always_true).stable(),
    plain(0, "has_sequence_privilege", &[Oid, T], Bool, always_true).stable(),
    plain(0, "has_function_privilege", &[Oid, T], Bool, always_true).stable(),
    plain(0, "pg_has_role", &[Oid, T], Bool, always_true).stable(),
    plain(0, "pg_has_role", &[Name, T], Bool, always_true).stable(),
    plain(0, "row_security_active", &[Oid], Bool, always_false).stable(),
];

/// Declared here, implemented by the session: sequences, the catalog, waiting.
pub(super) static EXTERNAL: &[Function] = &[
    external(0, "nextval", &[Regclass], Int8).volatile(),
    external(0, "currval", &[Regclass], Int8).volatile(),
    external(0, "setval", &[Regclass, Int8], Int8).volatile(),
    external(0, "setval", &[Regclass, Int8, Bool], Int8).volatile(),
    external(0, "lastval", &[], Int8).volatile(),
    external(0, "pg_sleep", &[Float8], Void).volatile(),
    external(0, "pg_cancel_backend", &[Int4], Bool).volatile(),
    external(0, "pg_terminate_backend", &[Int4], Bool).volatile(),
    external(0, "pg_get_expr", &[TypeId::Text, Oid], T).stable(),
    external(0, "pg_get_expr", &[TypeId::Text, Oid, Bool], T).stable(),
    external(0, "pg_get_userbyid", &[Oid], Name).stable(),
    external(0, "pg_get_indexdef", &[Oid], T).stable(),
    external(0, "pg_get_indexdef", &[Oid, Int4, Bool], T).stable(),
    external(0, "pg_get_constraintdef", &[Oid], T).stable(),
    external(0, "pg_get_constraintdef", &[Oid, Bool], T).stable(),
    external(0, "pg_get_viewdef", &[Oid], T).stable(),
    external(0, "pg_get_viewdef", &[Oid, Bool], T).stable(),
    external(0, "pg_get_functiondef", &[Oid], T).stable(),
    external(0, "pg_get_function_result", &[Oid], T).stable(),
    external(0, "pg_get_function_arguments", &[Oid], T).stable(),
    external(0, "pg_get_function_identity_arguments", &[Oid], T).stable(),
    external(0, "pg_get_triggerdef", &[Oid], T).stable(),
    external(0, "pg_get_triggerdef", &[Oid, Bool], T).stable(),
    external(0, "pg_get_ruledef", &[Oid], T).stable(),
    external(0, "pg_get_ruledef", &[Oid, Bool], T).stable(),
    external(0, "pg_get_partkeydef", &[Oid], T).stable(),
    external(0, "pg_get_partition_constraintdef", &[Oid], T).stable(),
    external(0, "pg_get_statisticsobjdef_columns", &[Oid], T).stable(),
    external(0, "pg_get_serial_sequence", &[T, T], T).stable(),
    external(0, "pg_get_keywords", &[], T).stable(),
    external(0, "pg_table_is_visible", &[Oid], Bool).stable(),
    external(0, "pg_relation_is_publishable", &[Regclass], Bool).stable(),
    external(0, "pg_relation_size", &[Regclass], Int8).volatile(),
    external(0, "pg_relation_size", &[Regclass, T], Int8).volatile(),
    external(0, "pg_table_size", &[Regclass], Int8).volatile(),
    external(0, "pg_indexes_size", &[Regclass], Int8).volatile(),
    external(0, "pg_total_relation_size", &[Regclass], Int8).volatile(),
    external(0, "pg_database_size", &[Name], Int8).volatile(),
    external(0, "pg_database_size", &[Oid], Int8).volatile(),
    external(0, "pg_tablespace_location", &[Oid], T).stable(),
    external(0, "pg_postmaster_start_time", &[], TypeId::Timestamptz).stable(),
    external(0, "pg_conf_load_time", &[], TypeId::Timestamptz).stable(),
    external(0, "obj_description", &[Oid], T).stable(),
    external(0, "obj_description", &[Oid, Name], T).stable(),
    external(0, "col_description", &[Oid, Int4], T).stable(),
    external(0, "shobj_description", &[Oid, Name], T).stable(),
    external(0, "to_regclass", &[T], Regclass).stable(),
    external(0, "to_regtype", &[T], Regtype).stable(),
    external(0, "pg_options_to_table", &[TextArray], T).stable(),
    external(0, "pg_advisory_lock", &[Int8], Void).volatile(),
    external(0, "pg_advisory_unlock", &[Int8], Bool).volatile(),
    external(0, "pg_advisory_xact_lock", &[Int8], Void).volatile(),
    external(0, "pg_try_advisory_lock", &[Int8], Bool).volatile(),
    external(0, "pg_try_advisory_xact_lock", &[Int8], Bool).volatile(),
    set(0, "pg_show_all_settings", &[], T).stable(),
];
