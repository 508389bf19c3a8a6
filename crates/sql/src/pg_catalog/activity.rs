//! What goes on and how it is set: `pg_stat_activity`, `pg_stat_ssl`, `pg_prepared_statements`,
//! `pg_cursors`, `pg_locks`, `pg_settings`, `pg_timezone_names`.

use chrono::{DateTime, Offset, TimeZone, Utc};
use chrono_tz::{OffsetComponents, OffsetName, TZ_VARIANTS, Tz};

use super::value::{NULL, array};
use super::{LockRow, SessionRow, Source, SystemTable};
use crate::catalog::OWNER_OID;
use crate::session::settings::{Access, Definition, Kind, Unit, definitions};
use crate::types::{Datum, Inet, Interval, TypeId};

pub(super) const TABLES: &[&SystemTable] = &[
    &PG_STAT_ACTIVITY,
    &PG_STAT_SSL,
    &PG_PREPARED_STATEMENTS,
    &PG_CURSORS,
    &PG_LOCKS,
    &PG_SETTINGS,
    &PG_TIMEZONE_NAMES,
    &PG_TIMEZONE_ABBREVS,
];

fn sessions(source: &Source<'_>) -> Vec<SessionRow> {
    let known = source.server.sessions();
    if !known.is_empty() {
        return known;
    }
    // At least the session that asks is there.
    let session = source.eval.session;
    vec![SessionRow {
        process_id: session.process_id(),
        database: source.catalog.database_oid(),
        database_name: source.database(),
        user: session.user(),
        application_name: session.setting("application_name").unwrap_or_default(),
        state: "active",
        transaction_started: Some(source.eval.transaction_time),
        statement_started: Some(source.eval.statement_time),
        state_changed: Some(source.eval.statement_time),
        ..SessionRow::default()
    }]
}

fn time(microseconds: Option<i64>) -> Datum {
    microseconds.map_or(NULL, Datum::Timestamptz)
}

system_table! {
    static PG_STAT_ACTIVITY = 12222 view "pg_catalog"."pg_stat_activity",
    |source| sessions(source).into_iter().map(|s| (source, s)) => |(source, session)|,
    datid: Oid = session.database,
    datname: Name = session.database_name,
    pid: Int4 = session.process_id,
    leader_pid: Int4 = NULL,
    usesysid: Oid = source.catalog.role_oid(&session.user).unwrap_or(OWNER_OID),
    usename: Name = session.user,
    application_name: Text = session.application_name,
    client_addr: Inet = session.client.as_ref().and_then(|(address, _)| Inet::parse(address, false).ok()),
    client_hostname: Text = NULL,
    client_port: Int4 = session.client.map(|(_, port)| port),
    backend_start: Timestamptz = time((session.started != 0).then_some(session.started)),
    xact_start: Timestamptz = time(session.transaction_started),
    query_start: Timestamptz = time(session.statement_started),
    state_change: Timestamptz = time(session.state_changed),
    wait_event_type: Text = match session.state {
        _ if session.waits_for.is_some() => session.waits_for.map(|(kind, _)| kind),
        "active" | "" => None,
        _ => Some("Client"),
    },
    wait_event: Text = match session.state {
        _ if session.waits_for.is_some() => session.waits_for.map(|(_, event)| event),
        "active" | "" => None,
        _ => Some("ClientRead"),
    },
    state: Text = Some(session.state).filter(|state| !state.is_empty()),
    backend_xid: Xid = session.transaction.map(|id| id as u32),
    backend_xmin: Xid = NULL,
    query_id: Int8 = NULL,
    query: Text = session.query,
    backend_type: Text = "client backend",
}

// PostgreSQL's view has none of sessions whose client is not the asker's to see.
system_table! {
    static PG_STAT_SSL = 12249 view "pg_catalog"."pg_stat_ssl",
    |source| sessions(source).into_iter().filter(|session| !session.state.is_empty()) => |session|,
    pid: Int4 = session.process_id,
    ssl: Bool = session.tls.is_some(),
    version: Text = session.tls,
    cipher: Text = NULL,
    bits: Int4 = NULL,
    client_dn: Text = NULL,
    client_serial: Numeric = NULL,
    issuer_dn: Text = NULL,
}

// A plan is for all parameters here, and nobody counts how often it is used.
system_table! {
    static PG_PREPARED_STATEMENTS = 12095 view "pg_catalog"."pg_prepared_statements",
    |source| source.server.statements() => |prepared|,
    name: Text = prepared.name,
    statement: Text = prepared.statement.to_string(),
    prepare_time: Timestamptz = time(Some(prepared.prepared)),
    parameter_types: RegtypeArray = array(TypeId::Regtype, prepared.parameter_types),
    from_sql: Bool = prepared.from_sql,
    generic_plans: Int8 = 0,
    custom_plans: Int8 = 0,
}

system_table! {
    static PG_CURSORS = 12077 view "pg_catalog"."pg_cursors",
    |source| source.server.cursors() => |cursor|,
    name: Text = cursor.name,
    statement: Text = cursor.statement.to_string(),
    is_holdable: Bool = cursor.holdable,
    is_binary: Bool = false,
    is_scrollable: Bool = cursor.scrollable,
    creation_time: Timestamptz = time(Some(cursor.declared)),
}

/// What a lock is on; `row` is what one on a row is called.
pub(super) fn kind(lock: &LockRow, row: &'static str) -> &'static str {
    match lock.advisory {
        Some(_) => "advisory",
        None if lock.row => row,
        None => "relation",
    }
}

fn locks(source: &Source<'_>) -> Vec<LockRow> {
    source.server.locks()
}

system_table! {
    static PG_LOCKS = 12073 view "pg_catalog"."pg_locks",
    |source| locks(source) => |lock|,
    locktype: Text = kind(&lock, "tuple"),
    database: Oid = lock.database,
    relation: Oid = lock.relation,
    page: Int4 = NULL,
    tuple: Int2 = NULL,
    virtualxid: Text = NULL,
    transactionid: Xid = NULL,
    classid: Oid = lock.advisory.map(|(class, _, _)| class),
    objid: Oid = lock.advisory.map(|(_, object, _)| object),
    objsubid: Int2 = lock.advisory.map(|(_, _, kind)| kind as i16),
    virtualtransaction: Text = lock.transaction.to_string(),
    pid: Int4 = lock.process_id,
    mode: Text = lock.mode,
    granted: Bool = lock.granted,
    fastpath: Bool = false,
    waitstart: Timestamptz = NULL,
}

fn unit(unit: Unit) -> Option<&'static str> {
    match unit {
        Unit::None => None,
        Unit::Milliseconds => Some("ms"),
        Unit::Seconds => Some("s"),
        Unit::Bytes => Some("B"),
        Unit::Kilobytes => Some("kB"),
        Unit::Blocks => Some("8kB"),
        Unit::Megabytes => Some("MB"),
    }
}

/// `vartype`, `unit`, `min_val`, `max_val`, `enumvals`.
type Range = (&'static str, Option<&'static str>, Option<String>, Option<String>, &'static [&'static str]);

fn range(kind: Kind) -> Range {
    match kind {
        Kind::Bool => ("bool", None, None, None, &[]),
        Kind::Integer { minimum, maximum, unit: given } => {
            ("integer", unit(given), Some(minimum.to_string()), Some(maximum.to_string()), &[])
        }
        Kind::Real { minimum, maximum } => {
            ("real", None, Some(minimum.to_string()), Some(maximum.to_string()), &[])
        }
        Kind::Enum(words) => ("enum", None, None, None, words),
        _ => ("string", None, None, None, &[]),
    }
}

fn words(words: &[&'static str]) -> Datum {
    if words.is_empty() { NULL } else { array(TypeId::Text, words.iter().copied()) }
}

/// Settings are kept in their base unit, which is also what this view shows.
fn in_base_unit(definition: &Definition, shown: String) -> String {
    let Kind::Integer { unit, .. } = definition.kind else { return shown };
    let end = shown.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(shown.len());
    let (number, suffix) = shown.split_at(end);
    match (number.trim().parse::<f64>(), unit.factor(suffix)) {
        (Ok(number), Some(factor)) if !suffix.is_empty() => format!("{:.0}", number * factor),
        _ => shown,
    }
}

/// A row of `pg_settings`.
struct Setting {
    definition: &'static Definition,
    value: String,
    source: &'static str,
    reset: String,
    range: Range,
}

/// Where a value comes from, and what RESET would make of it. What is the whole server's is in no
/// session's settings: its start has said it, if SET has not.
fn origin(source: &Source<'_>, definition: &Definition, value: &str) -> (&'static str, String) {
    let default = || definition.default.to_owned();
    match definition.access {
        Access::Server | Access::Start if value == definition.default => ("default", default()),
        Access::Server => ("session", default()),
        Access::Start => ("command line", value.to_owned()),
        _ => source.eval.session.setting_source(definition.name).unwrap_or_else(|| ("default", default())),
    }
}

fn settings(source: &Source<'_>) -> Vec<Setting> {
    let mut all: Vec<Setting> = definitions()
        .iter()
        .filter(|definition| definition.access != Access::Hidden)
        .map(|definition| {
            let shown = source.eval.session.setting(definition.name);
            let value = in_base_unit(definition, shown.unwrap_or_else(|| definition.default.to_owned()));
            let (source, reset) = origin(source, definition, &value);
            Setting { definition, value, source, reset, range: range(definition.kind) }
        })
        .collect();
    all.sort_by_key(|setting| setting.definition.name.to_ascii_lowercase());
    all
}

system_table! {
    static PG_SETTINGS = 12104 view "pg_catalog"."pg_settings",
    |source| settings(source) => |setting|,
    name: Text = setting.definition.name,
    setting: Text = setting.value,
    unit: Text = setting.range.1,
    category: Text = "Client Connection Defaults",
    short_desc: Text = "",
    extra_desc: Text = NULL,
    context: Text = match setting.definition.access {
        Access::Internal => "internal",
        Access::Start => "postmaster",
        Access::Server | Access::Superuser => "superuser",
        Access::User | Access::Hidden => "user",
    },
    vartype: Text = setting.range.0,
    source: Text = setting.source,
    min_val: Text = setting.range.2,
    max_val: Text = setting.range.3,
    enumvals: TextArray = words(setting.range.4),
    boot_val: Text = setting.definition.default,
    reset_val: Text = setting.reset,
    sourcefile: Text = NULL,
    sourceline: Int4 = NULL,
    pending_restart: Bool = false,
}

/// Microseconds from 1970 to 2000.
const EPOCH: i64 = 946_684_800_000_000;

fn interval(seconds: i32) -> Datum {
    Datum::Interval(Interval { months: 0, days: 0, micros: i64::from(seconds) * 1_000_000 })
}

/// Abbreviation, offset and whether it is summer time, now.
fn zones(source: &Source<'_>) -> Vec<(Tz, String, Datum, bool)> {
    let now = source.eval.transaction_time.saturating_add(EPOCH);
    let now: DateTime<Utc> = DateTime::from_timestamp_micros(now).unwrap_or_default();
    let zones = TZ_VARIANTS.iter().map(|zone| {
        let offset = zone.offset_from_utc_datetime(&now.naive_utc());
        let abbreviation = offset.abbreviation().unwrap_or("").to_owned();
        let summer = !offset.dst_offset().is_zero();
        (*zone, abbreviation, interval(offset.fix().local_minus_utc()), summer)
    });
    zones.collect()
}

system_table! {
    static PG_TIMEZONE_NAMES = 12126 view "pg_catalog"."pg_timezone_names",
    |source| zones(source) => |(zone, abbreviation, offset, summer)|,
    name: Text = zone.name(),
    abbrev: Text = abbreviation,
    utc_offset: Interval = offset,
    is_dst: Bool = summer,
}

system_table! {
    static PG_TIMEZONE_ABBREVS = 12122 view "pg_catalog"."pg_timezone_abbrevs",
    |_source| [("UTC", 0), ("GMT", 0), ("Z", 0)] => |(name, offset)|,
    abbrev: Text = name,
    utc_offset: Interval = interval(offset),
    is_dst: Bool = false,
}
