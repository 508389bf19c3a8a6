//! Values in PostgreSQL's binary format: big-endian, as `typsend` and `typreceive` have it.

use bytes::Bytes;

use super::{Datum, Numeric, Text, Type, TypeId};
use crate::error::{SqlError, sqlstate};

impl Datum {
    /// Appends the binary form; nothing for NULL.
    pub fn to_binary(&self, ty: Type, out: &mut Vec<u8>) {
        match self {
            Datum::Null => {}
            Datum::Bool(value) => out.push(u8::from(*value)),
            Datum::Int2(value) => out.extend_from_slice(&value.to_be_bytes()),
            Datum::Int4(value) | Datum::Date(value) => out.extend_from_slice(&value.to_be_bytes()),
            Datum::Int8(value) | Datum::Time(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) => {
                out.extend_from_slice(&value.to_be_bytes());
            }
            Datum::Oid(value) => out.extend_from_slice(&value.to_be_bytes()),
            Datum::Float4(value) => out.extend_from_slice(&value.to_be_bytes()),
            Datum::Float8(value) => out.extend_from_slice(&value.to_be_bytes()),
            Datum::Numeric(value) => value.write_binary(out),
            Datum::Text(text) | Datum::Bpchar(text) => out.extend_from_slice(text.as_bytes()),
            Datum::Jsonb(text) => {
                out.push(1);
                out.extend_from_slice(text.as_bytes());
            }
            Datum::Bytea(bytes) => out.extend_from_slice(bytes),
            Datum::Uuid(bytes) => out.extend_from_slice(bytes),
            Datum::Interval(value) => {
                out.extend_from_slice(&value.micros.to_be_bytes());
                out.extend_from_slice(&value.days.to_be_bytes());
                out.extend_from_slice(&value.months.to_be_bytes());
            }
            Datum::Array(array) => {
                let _ = (ty, array);
            }
        }
    }

    /// Reads the binary form of a value of type `ty`. 22P03 if it is not that; 22021 for texts that are not UTF-8.
    pub fn from_binary(ty: Type, bytes: &[u8]) -> Result<Datum, SqlError> {
        Ok(match ty.id {
            TypeId::Bool => Datum::Bool(fixed::<1>(bytes)?[0] != 0),
            TypeId::Int2 => Datum::Int2(i16::from_be_bytes(fixed(bytes)?)),
            TypeId::Int4 => Datum::Int4(i32::from_be_bytes(fixed(bytes)?)),
            TypeId::Int8 => Datum::Int8(i64::from_be_bytes(fixed(bytes)?)),
            TypeId::Float4 => Datum::Float4(f32::from_be_bytes(fixed(bytes)?)),
            TypeId::Float8 => Datum::Float8(f64::from_be_bytes(fixed(bytes)?)),
            TypeId::Numeric => Datum::Numeric(Numeric::read_binary(bytes)?),
            TypeId::Text | TypeId::Varchar | TypeId::Unknown | TypeId::Name | TypeId::Json => {
                Datum::Text(text(bytes)?)
            }
            TypeId::Bpchar => Datum::Bpchar(text(bytes)?),
            TypeId::Bytea => Datum::Bytea(Bytes::copy_from_slice(bytes)),
            TypeId::Uuid => Datum::Uuid(fixed(bytes)?),
            id if id.is_oid() => Datum::Oid(u32::from_be_bytes(fixed(bytes)?)),
            _ => return Err(SqlError::unsupported(format!("reading type {} in binary", ty.format()))),
        })
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], SqlError> {
    bytes.try_into().map_err(|_| {
        let what = if bytes.len() < N {
            "insufficient data left in message"
        } else {
            "incorrect binary data format"
        };
        SqlError::new(sqlstate::INVALID_BINARY_REPRESENTATION, what)
    })
}

fn text(bytes: &[u8]) -> Result<Text, SqlError> {
    Text::from_utf8(Bytes::copy_from_slice(bytes)).filter(|t| !t.as_bytes().contains(&0)).ok_or_else(|| {
        SqlError::new(sqlstate::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"")
    })
}
