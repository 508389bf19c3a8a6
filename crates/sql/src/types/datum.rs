//! One value of any type.
//!
//! `Eq`, `Ord` and `Hash` are those of sorting and grouping: NULL equals NULL and comes last, NaN
//! equals NaN and is greater than every number, -0 equals 0, numeric 1.0 equals 1.00, char(n)
//! ignores trailing blanks. SQL's `=`, which yields NULL for NULL, is the operators' business.

use std::sync::Arc;

use bytes::Bytes;

use super::{Array, EnumValue, Inet, Interval, Numeric, Record, Text};

/// A value. The variant follows from the type; see [`TypeId::holds`](super::TypeId::holds).
#[derive(Clone, Debug, Default)]
pub enum Datum {
    /// NULL of any type.
    #[default]
    Null,
    /// bool.
    Bool(bool),
    /// int2.
    Int2(i16),
    /// int4.
    Int4(i32),
    /// int8.
    Int8(i64),
    /// float4.
    Float4(f32),
    /// float8.
    Float8(f64),
    /// numeric.
    Numeric(Numeric),
    /// text, varchar, name, "char", json, unknown.
    Text(Text),
    /// char(n): padded with blanks, which do not count in comparisons.
    Bpchar(Text),
    /// jsonb, in its normal text form.
    Jsonb(Text),
    /// bytea.
    Bytea(Bytes),
    /// date: days since 2000-01-01; `i32::MIN` and `MAX` are the infinities.
    Date(i32),
    /// time: microseconds since midnight, 0 to 24:00:00 inclusive.
    Time(i64),
    /// timestamp: microseconds since 2000-01-01; `i64::MIN` and `MAX` are the infinities.
    Timestamp(i64),
    /// timestamptz: the same, in UTC.
    Timestamptz(i64),
    /// interval.
    Interval(Interval),
    /// uuid.
    Uuid([u8; 16]),
    /// inet, cidr.
    Inet(Inet),
    /// A value of an enum type.
    Enum(EnumValue),
    /// oid, regclass, regtype, regproc, regprocedure, regnamespace, regrole, xid.
    Oid(u32),
    /// pg_lsn, xid8.
    Unsigned(u64),
    /// An array, int2vector or oidvector.
    Array(Arc<Array>),
    /// A composite value.
    Record(Arc<Record>),
}

impl Datum {
    /// A text value.
    pub fn text(text: impl Into<Text>) -> Datum {
        Datum::Text(text.into())
    }

    /// NULL?
    pub fn is_null(&self) -> bool {
        matches!(self, Datum::Null)
    }

    /// The bool, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Datum::Bool(value) = self { Some(*value) } else { None }
    }

    /// The integer of any width (or oid), if it is one.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Datum::Int2(value) => Some(i64::from(*value)),
            Datum::Int4(value) => Some(i64::from(*value)),
            Datum::Int8(value) => Some(*value),
            Datum::Oid(value) => Some(i64::from(*value)),
            _ => None,
        }
    }

    /// The characters, if it is one of the text-like values.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Datum::Text(text) | Datum::Bpchar(text) | Datum::Jsonb(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// Bytes of a text or a byte string, or of an array's elements without their own; 0 for others,
    /// which are small, or made of these.
    #[inline]
    pub(crate) fn bulk(&self) -> usize {
        match self {
            Datum::Text(text) | Datum::Bpchar(text) | Datum::Jsonb(text) => text.len(),
            Datum::Bytea(bytes) => bytes.len(),
            Datum::Array(array) => array.elements.len().saturating_mul(size_of::<Datum>()),
            _ => 0,
        }
    }

    /// The shared text, if it is one of the text-like values.
    pub fn as_text(&self) -> Option<&Text> {
        match self {
            Datum::Text(text) | Datum::Bpchar(text) | Datum::Jsonb(text) => Some(text),
            _ => None,
        }
    }
}

macro_rules! from {
    ($($source:ty => $variant:ident),*) => {
        $(impl From<$source> for Datum {
            fn from(value: $source) -> Datum {
                Datum::$variant(value)
            }
        })*
    };
}
from!(bool => Bool, i16 => Int2, i32 => Int4, i64 => Int8, f32 => Float4, f64 => Float8, Numeric => Numeric, Text => Text,
    Interval => Interval, Inet => Inet, Bytes => Bytea);

impl From<&str> for Datum {
    fn from(value: &str) -> Datum {
        Datum::Text(value.into())
    }
}

impl From<String> for Datum {
    fn from(value: String) -> Datum {
        Datum::Text(value.into())
    }
}

impl From<Array> for Datum {
    fn from(value: Array) -> Datum {
        Datum::Array(Arc::new(value))
    }
}

impl<T: Into<Datum>> From<Option<T>> for Datum {
    fn from(value: Option<T>) -> Datum {
        value.map_or(Datum::Null, Into::into)
    }
}
