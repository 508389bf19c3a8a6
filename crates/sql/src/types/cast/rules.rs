//! The table of casts, as `pg_cast` has it.

use super::convert as c;
use super::{CastContext, Convert};
use crate::types::TypeId;

/// One cast.
pub(super) struct Rule {
    /// Where it applies by itself.
    pub(super) context: CastContext,
    /// What converts; none if the value is the same.
    pub(super) convert: Option<Convert>,
}

const fn function(context: CastContext, convert: Convert) -> Option<Rule> {
    Some(Rule { context, convert: Some(convert) })
}

const fn binary(context: CastContext) -> Option<Rule> {
    Some(Rule { context, convert: None })
}

/// The rule for a pair of different types.
pub(super) fn find(from: TypeId, to: TypeId) -> Option<Rule> {
    use CastContext::{Assignment, Explicit, Implicit};
    use TypeId as T;
    match (from, to) {
        (T::Bool, T::Int4) => function(Explicit, c::bool_to_int4),
        (T::Bool, T::Text | T::Varchar) => function(Assignment, c::bool_to_text),
        (T::Bool, T::Bpchar) => function(Assignment, c::bool_to_bpchar),

        (T::InternalChar, T::Int4) => function(Explicit, c::char_to_int4),
        (T::InternalChar, T::Text) => Some(Rule { context: Implicit, convert: None }),
        (T::InternalChar, T::Varchar) => Some(Rule { context: Assignment, convert: None }),
        (T::InternalChar, T::Bpchar) => function(Assignment, c::text_to_bpchar),

        (T::Name, T::Text) => Some(Rule { context: Implicit, convert: None }),
        (T::Name, T::Varchar) => Some(Rule { context: Assignment, convert: None }),
        (T::Name, T::Bpchar) => function(Assignment, c::text_to_bpchar),

        (T::Text | T::Varchar, T::InternalChar) => function(Assignment, c::text_to_char),
        (T::Text | T::Varchar, T::Name) => function(Implicit, c::text_to_name),
        (T::Text | T::Varchar, T::Bpchar) => {
            Some(Rule { context: Implicit, convert: Some(c::text_to_bpchar) })
        }
        (T::Text, T::Varchar) | (T::Varchar, T::Text) => binary(Implicit),
        (T::Text | T::Varchar, T::Regclass) => function(Implicit, c::text_to_regclass),
        (T::Bpchar, T::InternalChar) => function(Assignment, c::text_to_char),
        (T::Bpchar, T::Name) => function(Implicit, c::bpchar_to_name),
        (T::Bpchar, T::Text | T::Varchar) => function(Implicit, c::bpchar_to_text),

        (T::Cidr, T::Inet) => binary(Implicit),
        (T::Inet, T::Cidr) => function(Assignment, c::inet_to_cidr),
        (T::Inet | T::Cidr, T::Text | T::Varchar) => function(Assignment, c::inet_to_text),
        (T::Inet | T::Cidr, T::Bpchar) => function(Assignment, c::inet_to_bpchar),

        (T::Json, T::Jsonb) => function(Assignment, c::json_to_jsonb),
        (T::Jsonb, T::Json) => function(Assignment, c::jsonb_to_json),
        (T::Jsonb, T::Bool) => function(Explicit, c::jsonb_to_bool),
        (T::Jsonb, T::Int2) => function(Explicit, c::jsonb_to_int2),
        (T::Jsonb, T::Int4) => function(Explicit, c::jsonb_to_int4),
        (T::Jsonb, T::Int8) => function(Explicit, c::jsonb_to_int8),
        (T::Jsonb, T::Float4) => function(Explicit, c::jsonb_to_float4),
        (T::Jsonb, T::Float8) => function(Explicit, c::jsonb_to_float8),
        (T::Jsonb, T::Numeric) => function(Explicit, c::jsonb_to_numeric),

        (T::Date, T::Timestamp) => function(Implicit, c::date_to_timestamp),
        (T::Date, T::Timestamptz) => function(Implicit, c::date_to_timestamptz),
        (T::Time, T::Interval) => function(Implicit, c::time_to_interval),
        (T::Timestamp, T::Date) => function(Assignment, c::timestamp_to_date),
        (T::Timestamp, T::Time) => function(Assignment, c::timestamp_to_time),
        (T::Timestamp, T::Timestamptz) => function(Implicit, c::timestamp_to_timestamptz),
        (T::Timestamptz, T::Date) => function(Assignment, c::timestamptz_to_date),
        (T::Timestamptz, T::Time) => function(Assignment, c::timestamptz_to_time),
        (T::Timestamptz, T::Timestamp) => function(Assignment, c::timestamptz_to_timestamp),
        (T::Interval, T::Time) => function(Assignment, c::interval_to_time),
        (T::Xid8, T::Xid) => function(Explicit, c::xid8_to_xid),
        _ => numbers(from, to),
    }
}

/// Casts among numbers and oids.
fn numbers(from: TypeId, to: TypeId) -> Option<Rule> {
    use CastContext::{Assignment, Explicit, Implicit};
    use TypeId as T;
    match (from, to) {
        (T::Int4, T::Bool) => function(Explicit, c::int4_to_bool),
        (T::Int4, T::InternalChar) => function(Explicit, c::int4_to_char),

        (T::Int2, T::Int4) => function(Implicit, c::to_int4),
        (T::Int2 | T::Int4, T::Int8) => function(Implicit, c::to_int8),
        (T::Int4 | T::Int8, T::Int2) => function(Assignment, c::to_int2),
        (T::Int8, T::Int4) => function(Assignment, c::to_int4),
        (T::Int2 | T::Int4 | T::Int8 | T::Numeric, T::Float4) => function(Implicit, c::to_float4),
        (T::Int2 | T::Int4 | T::Int8 | T::Numeric | T::Float4, T::Float8) => function(Implicit, c::to_float8),
        (T::Int2 | T::Int4 | T::Int8, T::Numeric) => function(Implicit, c::to_numeric),
        (T::Float4 | T::Float8 | T::Numeric, T::Int2) => function(Assignment, c::to_int2),
        (T::Float4 | T::Float8 | T::Numeric, T::Int4) => function(Assignment, c::to_int4),
        (T::Float4 | T::Float8 | T::Numeric, T::Int8) => function(Assignment, c::to_int8),
        (T::Float4 | T::Float8, T::Numeric) => function(Assignment, c::to_numeric),
        (T::Float8, T::Float4) => function(Assignment, c::to_float4),

        (T::Int2 | T::Int8, id) if id.is_oid() => function(Implicit, c::to_oid),
        // One representation in PostgreSQL, two here.
        (T::Int4, id) if id.is_oid() => Some(Rule { context: Implicit, convert: Some(c::to_oid) }),
        (id, T::Int8) if id.is_oid() => function(Assignment, c::to_int8),
        (id, T::Int4) if id.is_oid() => Some(Rule { context: Assignment, convert: Some(c::oid_to_int4) }),
        (T::Oid, id) | (id, T::Oid) if id.is_oid() => binary(Implicit),
        (T::Regproc, T::Regprocedure) | (T::Regprocedure, T::Regproc) => binary(Implicit),
        (T::Regoper, T::Regoperator) | (T::Regoperator, T::Regoper) => binary(Implicit),
        _ => None,
    }
}
