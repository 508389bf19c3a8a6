//! What reading and printing values depends on: the session's settings, and names of catalog
//! objects.

use std::fmt;
use std::sync::Arc;

use super::Type;
use super::datetime::zone::TimeZone;
use crate::identifier::{in_quotes, quote_identifier};

/// How bytea prints (`bytea_output`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ByteaOutput {
    /// `\x00ff`.
    #[default]
    Hex,
    /// `\000\377`.
    Escape,
}

/// Which number comes first in an ambiguous date (`DateStyle`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DateOrder {
    /// Month, day, year.
    #[default]
    Mdy,
    /// Day, month, year.
    Dmy,
    /// Year, month, day.
    Ymd,
}

/// How dates and timestamps print (`DateStyle`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DateStyle {
    /// `1997-12-17 07:37:16-08`.
    #[default]
    Iso,
    /// `12/17/1997 07:37:16 PST`.
    Sql,
    /// `Wed Dec 17 07:37:16 1997 PST`.
    Postgres,
    /// `17.12.1997 07:37:16 PST`.
    German,
}

/// How intervals print (`IntervalStyle`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IntervalStyle {
    /// `1 year 2 mons -3 days +04:05:06`.
    #[default]
    Postgres,
    /// `@ 1 year 2 mons -3 days 4 hours 5 mins 6 secs`.
    PostgresVerbose,
    /// `+1-2 -3 +4:05:06`. Such a text's first sign is that of all its parts, if they have none.
    SqlStandard,
    /// `P1Y2M-3DT4H5M6S`.
    Iso8601,
}

/// Finds catalog objects for the types that print as names (`regclass` and its like).
pub trait ObjectNames: Send + Sync {
    /// Oid of a relation by its possibly qualified, possibly quoted name.
    fn relation_oid(&self, name: &str) -> Option<u32>;
    /// Name of a relation as `regclass` prints it: qualified and quoted where needed.
    fn relation_name(&self, oid: u32) -> Option<String>;
    /// Whether a name that stands before a schema is that of the database.
    fn is_own_database(&self, _name: &str) -> bool {
        true
    }
    /// Oid of the only function of a possibly qualified name.
    fn function_oid(&self, name: &str) -> Option<u32>;
    /// Whether it is the name of several.
    fn has_several_functions(&self, _name: &str) -> bool {
        false
    }
    /// Name of a function as `regproc` prints it.
    fn function_name(&self, oid: u32) -> Option<String>;
    /// Oid of a function by its possibly qualified name and the types of its arguments.
    fn procedure_oid(&self, _name: &str, _arguments: &[u32]) -> Option<u32> {
        None
    }
    /// Name of a function and the types of its arguments, as `regprocedure` prints them.
    fn procedure_name(&self, _oid: u32) -> Option<String> {
        None
    }
    /// Name of an operator as `regoper` prints it, or with its operands' types as `regoperator`.
    fn operator_name(&self, _oid: u32, _with_operands: bool) -> Option<String> {
        None
    }
    /// Oid of a schema.
    fn schema_oid(&self, name: &str) -> Option<u32>;
    /// Name of a schema.
    fn schema_name(&self, oid: u32) -> Option<String>;
    /// Oid of a role.
    fn role_oid(&self, name: &str) -> Option<u32>;
    /// Name of a role.
    fn role_name(&self, oid: u32) -> Option<String>;
    /// A type that a user made.
    fn user_type(&self, schema: Option<&str>, name: &str) -> Option<Type>;
    /// Oid of one, or of an array type over one, by its possibly qualified, possibly quoted name.
    fn named_type_oid(&self, name: &str) -> Option<u32>;
    /// Name of a type that a user made, or of an array type over one, qualified and quoted where
    /// needed.
    fn type_name(&self, oid: u32) -> Option<String>;
    /// The position of an enum type's label.
    fn enum_position(&self, ty: u32, label: &str) -> Option<i64>;
    /// The label at a position of an enum type.
    fn enum_label(&self, ty: u32, position: i64) -> Option<String>;
    /// All positions of an enum type, in order.
    fn enum_positions(&self, ty: u32) -> Vec<i64>;
}

/// The settings that decide how values read and print.
#[derive(Clone)]
pub struct FormatContext {
    /// `TimeZone`.
    pub time_zone: TimeZone,
    /// `DateStyle`'s style of what is printed.
    pub date_style: DateStyle,
    /// `DateStyle`'s order, of what is read and of what is printed in the styles other than ISO.
    pub date_order: DateOrder,
    /// `IntervalStyle`.
    pub interval_style: IntervalStyle,
    /// `extra_float_digits`: above 0 the shortest exact form, else rounded to 15 (6 for float4)
    /// plus this many digits.
    pub extra_float_digits: i32,
    /// `bytea_output`.
    pub bytea_output: ByteaOutput,
    /// `quote_all_identifiers`: names print in quotes also where they need none.
    pub quote_all: bool,
    /// Start of the transaction, microseconds since 2000-01-01 UTC: what `now` and `today` mean.
    pub transaction_time: i64,
    /// Catalog names, if there is a catalog.
    pub objects: Option<Arc<dyn ObjectNames>>,
}

impl Default for FormatContext {
    fn default() -> FormatContext {
        FormatContext {
            time_zone: TimeZone::UTC,
            date_style: DateStyle::Iso,
            date_order: DateOrder::Mdy,
            interval_style: IntervalStyle::Postgres,
            extra_float_digits: 1,
            bytea_output: ByteaOutput::Hex,
            quote_all: false,
            transaction_time: 0,
            objects: None,
        }
    }
}

impl FormatContext {
    /// A name as SQL text.
    pub fn quoted(&self, name: &str) -> String {
        if self.quote_all { in_quotes(name) } else { quote_identifier(name) }
    }
}

impl fmt::Debug for FormatContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FormatContext")
            .field("time_zone", &self.time_zone)
            .field("date_style", &self.date_style)
            .field("date_order", &self.date_order)
            .field("interval_style", &self.interval_style)
            .field("extra_float_digits", &self.extra_float_digits)
            .field("bytea_output", &self.bytea_output)
            .field("quote_all", &self.quote_all)
            .field("transaction_time", &self.transaction_time)
            .finish_non_exhaustive()
    }
}
