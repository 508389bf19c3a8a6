//! Settings decoded for those who read them often.

use super::super::replication::Choice;
use crate::catalog::Oid;
use crate::types::{ByteaOutput, DateOrder, DateStyle, IntervalStyle, TimeZone, time_zone};

/// The decoded values.
#[derive(Clone, Debug)]
pub struct Effective {
    /// `current_user`: the role that was set, or the session's user.
    pub user: String,
    /// `session_user`.
    pub session_user: String,
    /// The role that `current_user` was when the session became it; none is that of the connection.
    pub user_role: Option<Oid>,
    /// The same of `session_user`.
    pub session_role: Option<Oid>,
    /// `search_path`'s names, `$user` not replaced.
    pub search_path: Vec<String>,
    /// `TimeZone`.
    pub time_zone: TimeZone,
    /// `DateStyle`'s style.
    pub date_style: DateStyle,
    /// `IntervalStyle`.
    pub interval_style: IntervalStyle,
    /// `DateStyle`'s order.
    pub date_order: DateOrder,
    /// `extra_float_digits`.
    pub extra_float_digits: i32,
    /// `bytea_output`.
    pub bytea_output: ByteaOutput,
    /// `quote_all_identifiers`.
    pub quote_all: bool,
    /// `statement_timeout` in milliseconds, 0 for none.
    pub statement_timeout_ms: u64,
    /// `lock_timeout` in milliseconds, 0 for none.
    pub lock_timeout_ms: u64,
    /// `idle_in_transaction_session_timeout` in milliseconds, 0 for none.
    pub idle_in_transaction_timeout_ms: u64,
    /// `idle_session_timeout` in milliseconds, 0 for none.
    pub idle_timeout_ms: u64,
    /// `default_transaction_isolation`.
    pub default_isolation: String,
    /// `default_transaction_read_only`.
    pub default_read_only: bool,
    /// `default_transaction_deferrable`.
    pub default_deferrable: bool,
    /// `session_replication_role` is `replica`: nobody looks at foreign keys.
    pub is_replica: bool,
    /// `client_min_messages`.
    pub client_min_messages: String,
    /// `cognate.retry_of`: the transaction whose age the next ones have, 0 for none.
    pub retry_of: u64,
    /// `cognate.read_after`.
    pub read_after: String,
    /// `cognate.read_consistency` is `linearizable`.
    pub linearizable_reads: bool,
    /// `cognate.replication`.
    pub replication: Choice,
    /// `cognate.request_id`.
    pub request_id: String,
    /// `cognate.active_steps`.
    pub active_steps: u64,
    /// `cognate.durable_reads`.
    pub durable_reads: bool,
    /// `cognate.statement_retries`.
    pub statement_retries: u32,
}

impl Default for Effective {
    fn default() -> Effective {
        Effective {
            user: String::new(),
            session_user: String::new(),
            user_role: None,
            session_role: None,
            search_path: Vec::new(),
            time_zone: TimeZone::UTC,
            date_style: DateStyle::Iso,
            interval_style: IntervalStyle::Postgres,
            date_order: DateOrder::Mdy,
            extra_float_digits: 1,
            bytea_output: ByteaOutput::Hex,
            quote_all: false,
            statement_timeout_ms: 0,
            lock_timeout_ms: 0,
            idle_in_transaction_timeout_ms: 0,
            idle_timeout_ms: 0,
            default_isolation: String::new(),
            default_read_only: false,
            default_deferrable: false,
            is_replica: false,
            client_min_messages: String::new(),
            retry_of: 0,
            read_after: String::new(),
            linearizable_reads: false,
            replication: Choice::Auto,
            request_id: String::new(),
            active_steps: 0,
            durable_reads: false,
            statement_retries: 0,
        }
    }
}

impl Effective {
    /// Decodes values in their normal form. `named` gives the roles that some of them name.
    pub(super) fn read<'a>(
        value: impl Fn(&'static str) -> &'a str,
        named: impl Fn(&'static str) -> Option<Oid>,
    ) -> Effective {
        let (date_style, date_order) = date_format(value("DateStyle"));
        let milliseconds = |name| value(name).parse().unwrap_or(0);
        let (role, session_user) = (value("role"), value("session_authorization"));
        Effective {
            user: if role == "none" { session_user } else { role }.to_owned(),
            session_user: session_user.to_owned(),
            user_role: named(if role == "none" { "session_authorization" } else { "role" }),
            session_role: named("session_authorization"),
            search_path: crate::identifier::split_names(value("search_path")).unwrap_or_default(),
            time_zone: time_zone(value("TimeZone")).unwrap_or(TimeZone::UTC),
            date_style,
            interval_style: match value("IntervalStyle") {
                "postgres_verbose" => IntervalStyle::PostgresVerbose,
                "sql_standard" => IntervalStyle::SqlStandard,
                "iso_8601" => IntervalStyle::Iso8601,
                _ => IntervalStyle::Postgres,
            },
            date_order,
            extra_float_digits: value("extra_float_digits").parse().unwrap_or(1),
            bytea_output: if value("bytea_output") == "escape" {
                ByteaOutput::Escape
            } else {
                ByteaOutput::Hex
            },
            quote_all: value("quote_all_identifiers") == "on",
            statement_timeout_ms: milliseconds("statement_timeout"),
            lock_timeout_ms: milliseconds("lock_timeout"),
            idle_in_transaction_timeout_ms: milliseconds("idle_in_transaction_session_timeout"),
            idle_timeout_ms: milliseconds("idle_session_timeout"),
            default_isolation: value("default_transaction_isolation").to_owned(),
            default_read_only: value("default_transaction_read_only") == "on",
            default_deferrable: value("default_transaction_deferrable") == "on",
            is_replica: value("session_replication_role") == "replica",
            client_min_messages: value("client_min_messages").to_owned(),
            retry_of: value("cognate.retry_of").parse().unwrap_or(0),
            read_after: value("cognate.read_after").to_owned(),
            linearizable_reads: value("cognate.read_consistency") == "linearizable",
            replication: Choice::of(value("cognate.replication")),
            request_id: value("cognate.request_id").to_owned(),
            active_steps: value("cognate.active_steps").parse().unwrap_or(u64::MAX),
            durable_reads: value("cognate.durable_reads") == "on",
            statement_retries: value("cognate.statement_retries").parse().unwrap_or(0),
        }
    }
}

/// `DateStyle` in its normal form: `Postgres, DMY`.
fn date_format(text: &str) -> (DateStyle, DateOrder) {
    let (style, order) = text.split_once(", ").unwrap_or_default();
    let style = match style {
        "SQL" => DateStyle::Sql,
        "Postgres" => DateStyle::Postgres,
        "German" => DateStyle::German,
        _ => DateStyle::Iso,
    };
    let order = match order {
        "DMY" => DateOrder::Dmy,
        "YMD" => DateOrder::Ymd,
        _ => DateOrder::Mdy,
    };
    (style, order)
}
