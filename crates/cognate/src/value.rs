//! Rust values as SQL values, both ways.
//!
//! A parameter becomes a value of its own kind (`i64` an int8, `&str` a text) and is converted to
//! what the statement expects through its text form where the two differ, exactly as a literal in
//! quotes would be. A result is taken as the Rust type asked for if nothing of it can be lost: any
//! integer as a wider one, anything textual as `String`.

use bytes::Bytes;
use cognate_sql::types::{Datum, TypeId};

use crate::{Error, Result, sqlstate};

/// A Rust value that can be given for `$1`, `$2`, ...
pub trait Parameter {
    /// The value and its own type, `TypeId::Unknown` if it fits any.
    fn to_value(&self) -> (Datum, TypeId);
}

/// A Rust type that a result's column can be taken as.
pub trait FromValue: Sized {
    /// What it is called in errors.
    const NAME: &'static str;

    /// Takes the value, if it fits.
    fn from_value(value: &Datum) -> Option<Self>;
}

macro_rules! parameters {
    ($($source:ty, $ty:ident, |$value:ident| $datum:expr;)*) => {
        $(impl Parameter for $source {
            fn to_value(&self) -> (Datum, TypeId) {
                let $value = self;
                ($datum, TypeId::$ty)
            }
        })*
    };
}

parameters! {
    bool, Bool, |v| Datum::Bool(*v);
    i16, Int2, |v| Datum::Int2(*v);
    i32, Int4, |v| Datum::Int4(*v);
    i64, Int8, |v| Datum::Int8(*v);
    u32, Int8, |v| Datum::Int8(i64::from(*v));
    f32, Float4, |v| Datum::Float4(*v);
    f64, Float8, |v| Datum::Float8(*v);
    str, Text, |v| Datum::from(v);
    String, Text, |v| Datum::from(v.as_str());
    [u8], Bytea, |v| Datum::Bytea(Bytes::copy_from_slice(v));
    Vec<u8>, Bytea, |v| Datum::Bytea(Bytes::copy_from_slice(v));
    [u8; 16], Uuid, |v| Datum::Uuid(*v);
}

impl<P: Parameter + ?Sized> Parameter for &P {
    fn to_value(&self) -> (Datum, TypeId) {
        (**self).to_value()
    }
}

impl<P: Parameter> Parameter for Option<P> {
    fn to_value(&self) -> (Datum, TypeId) {
        self.as_ref().map_or((Datum::Null, TypeId::Unknown), Parameter::to_value)
    }
}

impl FromValue for Datum {
    const NAME: &'static str = "any value";

    fn from_value(value: &Datum) -> Option<Datum> {
        Some(value.clone())
    }
}

impl<V: FromValue> FromValue for Option<V> {
    const NAME: &'static str = V::NAME;

    fn from_value(value: &Datum) -> Option<Option<V>> {
        if value.is_null() { Some(None) } else { V::from_value(value).map(Some) }
    }
}

macro_rules! from_values {
    ($($target:ty, $name:literal, $($pattern:pat => $taken:expr),+;)*) => {
        $(impl FromValue for $target {
            const NAME: &'static str = $name;

            fn from_value(value: &Datum) -> Option<$target> {
                match value {
                    $($pattern => Some($taken),)+
                    _ => None,
                }
            }
        })*
    };
}

from_values! {
    bool, "bool", Datum::Bool(v) => *v;
    i16, "i16", Datum::Int2(v) => *v;
    i32, "i32", Datum::Int4(v) => *v, Datum::Int2(v) => i32::from(*v);
    i64, "i64", Datum::Int8(v) => *v, Datum::Int4(v) => i64::from(*v), Datum::Int2(v) => i64::from(*v),
        Datum::Oid(v) => i64::from(*v);
    u32, "u32", Datum::Oid(v) => *v;
    f32, "f32", Datum::Float4(v) => *v;
    f64, "f64", Datum::Float8(v) => *v, Datum::Float4(v) => f64::from(*v);
    String, "String", Datum::Text(v) | Datum::Bpchar(v) | Datum::Jsonb(v) => v.as_str().to_owned();
    Vec<u8>, "Vec<u8>", Datum::Bytea(v) => v.to_vec();
    [u8; 16], "[u8; 16]", Datum::Uuid(v) => *v;
}

/// Takes a value as `V`, or says why not.
pub(crate) fn take<V: FromValue>(value: &Datum, column: &str, ty: &str) -> Result<V> {
    V::from_value(value).ok_or_else(|| {
        let what = if value.is_null() { "NULL".to_owned() } else { format!("a value of type {ty}") };
        Error::new(
            sqlstate::DATATYPE_MISMATCH,
            format!("column \"{column}\" holds {what}, which cannot be taken as {}", V::NAME),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_widen_and_never_narrow() {
        assert_eq!(i64::from_value(&Datum::Int2(7)), Some(7));
        assert_eq!(i32::from_value(&Datum::Int8(7)), None);
        assert_eq!(Option::<i32>::from_value(&Datum::Null), Some(None));
        assert_eq!(i32::from_value(&Datum::Null), None);
    }
}
