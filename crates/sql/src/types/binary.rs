//! Values in PostgreSQL's binary format: big-endian, as `typsend` and `typreceive` have it.

use bytes::Bytes;

use std::sync::Arc;

use super::array::check_bounds;
use super::bounds::{Meter, check_written};
use super::input::truncate_name;
use super::malformed::{TOO_LONG, insufficient, invalid, nothing};
use super::snapshot::Snapshot;
use super::{
    Array, Category, Datum, Dimension, EnumValue, FormatContext, Inet, Interval, Numeric, Text, Type, TypeId,
    datetime, json,
};
use crate::error::{SqlError, sqlstate};

impl Datum {
    /// Appends the binary form; nothing for NULL. Values of enum types, alone or in others, are
    /// their positions: as rows hold them, not as clients know them.
    pub fn to_binary(&self, ty: Type, out: &mut Vec<u8>) {
        // A patient meter never fails.
        let _ = self.write_binary(ty, None, out, &mut Meter::patient());
    }

    /// The same for a client: values of enum types are their labels. 57014 once the statement
    /// should stop, 53200 and 54000 if all of `out` is more than it may hold.
    pub fn send(&self, ty: Type, context: &FormatContext, out: &mut Vec<u8>) -> Result<(), SqlError> {
        self.write_binary(ty, Some(context), out, &mut Meter::default())?;
        check_written(out)
    }

    pub(super) fn write_binary(
        &self,
        ty: Type,
        context: Option<&FormatContext>,
        out: &mut Vec<u8>,
        meter: &mut Meter,
    ) -> Result<(), SqlError> {
        match self {
            Datum::Enum(value) => match context {
                Some(context) => value.write(context, out),
                None => out.extend_from_slice(&value.position.to_be_bytes()),
            },
            // A single byte; the empty value is a NUL.
            Datum::Text(text) if ty.id == TypeId::InternalChar => {
                let octal = text.as_str().strip_prefix('\\').and_then(|d| u8::from_str_radix(d, 8).ok());
                out.push(octal.unwrap_or_else(|| text.as_bytes().first().copied().unwrap_or(0)));
            }
            Datum::Null => {}
            Datum::Bool(value) => out.push(u8::from(*value)),
            Datum::Int2(value) => out.extend_from_slice(&value.to_be_bytes()),
            Datum::Int4(value) | Datum::Date(value) => out.extend_from_slice(&value.to_be_bytes()),
            Datum::Int8(value) | Datum::Time(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) => {
                out.extend_from_slice(&value.to_be_bytes());
            }
            Datum::Oid(value) => out.extend_from_slice(&value.to_be_bytes()),
            Datum::Unsigned(value) => out.extend_from_slice(&value.to_be_bytes()),
            Datum::Float4(value) => out.extend_from_slice(&value.to_be_bytes()),
            Datum::Float8(value) => out.extend_from_slice(&value.to_be_bytes()),
            Datum::Numeric(value) => value.write_binary(out),
            Datum::Text(text) if ty.id.is_snapshot() => {
                if let Ok(snapshot) = Snapshot::parse(text.as_str()) {
                    snapshot.write_binary(out);
                }
            }
            Datum::Text(text) | Datum::Bpchar(text) => {
                meter.make_room(text.len(), out)?;
                out.extend_from_slice(text.as_bytes());
            }
            Datum::Jsonb(text) => {
                meter.make_room(text.len() + 1, out)?;
                out.push(1);
                out.extend_from_slice(text.as_bytes());
            }
            Datum::Bytea(bytes) => {
                meter.make_room(bytes.len(), out)?;
                out.extend_from_slice(bytes);
            }
            Datum::Uuid(bytes) => out.extend_from_slice(bytes),
            Datum::Inet(value) => value.write_binary(ty.id == TypeId::Cidr, out),
            Datum::Interval(value) => {
                out.extend_from_slice(&value.micros.to_be_bytes());
                out.extend_from_slice(&value.days.to_be_bytes());
                out.extend_from_slice(&value.months.to_be_bytes());
            }
            Datum::Array(array) => return write_array(array, ty, context, out, meter),
            Datum::Record(record) => return record.write_binary(context, out, meter),
        }
        Ok(())
    }

    /// Reads the binary form of a value of type `ty`. 22P03 if it is not that, 08P01 if it ends too
    /// early; 22021 for texts that are not UTF-8.
    pub fn from_binary(ty: Type, bytes: &[u8]) -> Result<Datum, SqlError> {
        Datum::read_binary(ty, bytes, None)
    }

    /// The same from a client, which sends values of enum types as their labels.
    pub fn receive(ty: Type, bytes: &[u8], context: &FormatContext) -> Result<Datum, SqlError> {
        Datum::read_binary(ty, bytes, Some(context))
    }

    fn read_binary(ty: Type, bytes: &[u8], context: Option<&FormatContext>) -> Result<Datum, SqlError> {
        // What rows hold was looked at when it came, and is read whatever it is: rounded up, a
        // time may be behind the last that can be written.
        let is_new = context.is_some();
        Ok(match ty.id {
            TypeId::Enum => Datum::Enum(match context {
                Some(context) => EnumValue::parse(ty.bare().oid(), text(bytes)?.as_str(), context)?,
                None => EnumValue { ty: ty.bare().oid(), position: i64::from_be_bytes(fixed(bytes)?) },
            }),
            TypeId::Bool => Datum::Bool(fixed::<1>(bytes)?[0] != 0),
            TypeId::Int2 => Datum::Int2(i16::from_be_bytes(fixed(bytes)?)),
            TypeId::Int4 => Datum::Int4(i32::from_be_bytes(fixed(bytes)?)),
            TypeId::Int8 => Datum::Int8(i64::from_be_bytes(fixed(bytes)?)),
            TypeId::Float4 => Datum::Float4(f32::from_be_bytes(fixed(bytes)?)),
            TypeId::Float8 => Datum::Float8(f64::from_be_bytes(fixed(bytes)?)),
            TypeId::Numeric => Datum::Numeric(Numeric::read_binary(bytes)?),
            TypeId::Text | TypeId::Varchar | TypeId::Unknown => Datum::Text(text(bytes)?),
            TypeId::Name => Datum::Text(read_name(bytes)?),
            TypeId::Bpchar => Datum::Bpchar(text(bytes)?),
            TypeId::InternalChar => Datum::Text(read_char(fixed(bytes)?)?),
            TypeId::Json => Datum::Text(read_json(bytes, is_new)?),
            TypeId::Jsonb => Datum::Jsonb(read_jsonb(bytes, is_new)?),
            TypeId::Date => Datum::Date(read_date(i32::from_be_bytes(fixed(bytes)?))?),
            TypeId::Time => Datum::Time(read_time(i64::from_be_bytes(fixed(bytes)?))?),
            TypeId::Timestamp => Datum::Timestamp(read_timestamp(bytes, is_new)?),
            TypeId::Timestamptz => Datum::Timestamptz(read_timestamp(bytes, is_new)?),
            TypeId::Interval => {
                let all: [u8; 16] = fixed(bytes)?;
                Datum::Interval(Interval {
                    micros: i64::from_be_bytes(fixed(&all[..8])?),
                    days: i32::from_be_bytes(fixed(&all[8..12])?),
                    months: i32::from_be_bytes(fixed(&all[12..])?),
                })
            }
            TypeId::Void => Datum::Text(Text::default()),
            TypeId::Bytea => Datum::Bytea(Bytes::copy_from_slice(bytes)),
            TypeId::Uuid => Datum::Uuid(fixed(bytes)?),
            TypeId::Inet | TypeId::Cidr => Datum::Inet(Inet::read_binary(bytes, ty.id == TypeId::Cidr)?),
            TypeId::Xid => Datum::Oid(u32::from_be_bytes(fixed(bytes)?)),
            TypeId::PgLsn | TypeId::Xid8 => Datum::Unsigned(u64::from_be_bytes(fixed(bytes)?)),
            id if id.is_snapshot() => Datum::Text(Snapshot::read_binary(bytes)?.to_string().into()),
            id if id.is_oid() => Datum::Oid(u32::from_be_bytes(fixed(bytes)?)),
            id if id.category() == Category::Array => read_array(bytes, ty, context)?,
            id => {
                return Err(SqlError::new(
                    sqlstate::UNDEFINED_FUNCTION,
                    format!("no binary input function available for type {}", id.sql_name()),
                ));
            }
        })
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], SqlError> {
    bytes.try_into().map_err(|_| match bytes.len() {
        0 if N == 1 => nothing(),
        length if length < N => insufficient(),
        _ => invalid(TOO_LONG),
    })
}

fn text(bytes: &[u8]) -> Result<Text, SqlError> {
    Text::read(bytes)
}

/// 42622 for a name that is too long, which is cut where it is read as text.
fn read_name(bytes: &[u8]) -> Result<Text, SqlError> {
    let name = text(bytes)?;
    if truncate_name(name.as_str()).len() == name.len() {
        return Ok(name);
    }
    Err(SqlError::new(sqlstate::NAME_TOO_LONG, "identifier too long")
        .with_detail("Identifier must be less than 64 characters."))
}

/// A byte that is no character stays written as it is where it is read as text.
fn read_char(byte: [u8; 1]) -> Result<Text, SqlError> {
    match byte {
        [0] => Ok(Text::default()),
        [high] if high >= 0x80 => Ok(format!("\\{high:03o}").into()),
        byte => text(&byte),
    }
}

fn read_json(bytes: &[u8], is_new: bool) -> Result<Text, SqlError> {
    let text = text(bytes)?;
    if is_new {
        json::validate(text.as_str())?;
    }
    Ok(text)
}

fn read_jsonb(bytes: &[u8], is_new: bool) -> Result<Text, SqlError> {
    let (&version, rest) = bytes.split_first().ok_or_else(insufficient)?;
    if version != 1 {
        return Err(SqlError::new(
            sqlstate::INTERNAL_ERROR,
            format!("unsupported jsonb version number {version}"),
        ));
    }
    let text = text(rest)?;
    if is_new { Ok(json::normalize(text.as_str())?.into()) } else { Ok(text) }
}

fn read_date(date: i32) -> Result<i32, SqlError> {
    if datetime::is_finite_date(date) { datetime::check_date(Some(date)) } else { Ok(date) }
}

fn read_time(time: i64) -> Result<i64, SqlError> {
    if (0..=datetime::DAY).contains(&time) { Ok(time) } else { Err(datetime::out_of_range("time")) }
}

fn read_timestamp(bytes: &[u8], is_new: bool) -> Result<i64, SqlError> {
    let timestamp = i64::from_be_bytes(fixed(bytes)?);
    if is_new && datetime::is_finite_timestamp(timestamp) {
        datetime::check_timestamp(Some(timestamp))
    } else {
        Ok(timestamp)
    }
}

fn write_array(
    array: &Array,
    ty: Type,
    context: Option<&FormatContext>,
    out: &mut Vec<u8>,
    meter: &mut Meter,
) -> Result<(), SqlError> {
    // Which enum type the elements are of, only the array's type says.
    let element_type = match ty.element() {
        Some(element) if element.id == array.element => element,
        _ => Type::new(array.element),
    };
    let mut word = |value: i32| out.extend_from_slice(&value.to_be_bytes());
    word(array.dimensions.len() as i32);
    word(i32::from(array.elements.iter().any(Datum::is_null)));
    word(element_type.oid() as i32);
    for dimension in &array.dimensions {
        word(dimension.length as i32);
        word(dimension.lower);
    }
    for element in &array.elements {
        if element.is_null() {
            out.extend_from_slice(&(-1i32).to_be_bytes());
            continue;
        }
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        element.write_binary(element_type, context, out, meter)?;
        let length = (out.len() - start - 4) as i32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        meter.wrote(out.len() - start, out)?;
    }
    Ok(())
}

/// Most elements of an array.
const ARRAY_MAX: usize = 134_217_727;

/// The first oid of users' types.
const FIRST_USER_OID: u32 = 16384;

/// 42804 for an array of another built-in type than its own. Of what users make a client may say
/// what it is made of, and so do rows.
fn check_element(oid: u32, expected: Type) -> Result<(), SqlError> {
    if oid == expected.oid() || oid >= FIRST_USER_OID || expected.oid() >= FIRST_USER_OID {
        return Ok(());
    }
    let name = TypeId::from_oid(oid).map_or("???", TypeId::sql_name);
    let message = format!(
        "binary data has array element type {oid} ({name}) instead of expected {} ({})",
        expected.oid(),
        expected.format()
    );
    Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message))
}

fn read_array(bytes: &[u8], ty: Type, context: Option<&FormatContext>) -> Result<Datum, SqlError> {
    let mut rest = bytes;
    let word = |rest: &mut &[u8]| -> Result<i32, SqlError> {
        let (first, tail) = rest.split_first_chunk::<4>().ok_or_else(insufficient)?;
        *rest = tail;
        Ok(i32::from_be_bytes(*first))
    };
    let count = word(&mut rest)?;
    let element = ty.element().ok_or_else(|| SqlError::internal("an array type without elements"))?;
    if count < 0 {
        return Err(invalid(format!("invalid number of dimensions: {count}")));
    }
    if count > 6 {
        return Err(SqlError::new(
            sqlstate::PROGRAM_LIMIT_EXCEEDED,
            format!("number of array dimensions ({count}) exceeds the maximum allowed (6)"),
        ));
    }
    if !(0..=1).contains(&word(&mut rest)?) {
        return Err(invalid("invalid array flags"));
    }
    check_element(word(&mut rest)? as u32, element)?;
    let mut dimensions = Vec::new();
    let mut total = 1usize;
    for _ in 0..count {
        let (length, lower) = (word(&mut rest)?, word(&mut rest)?);
        let length = usize::try_from(length).ok();
        let size = length.and_then(|length| total.checked_mul(length)).filter(|size| *size <= ARRAY_MAX);
        let (Some(length), Some(size)) = (length, size) else {
            return Err(SqlError::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                format!("array size exceeds the maximum allowed ({ARRAY_MAX})"),
            ));
        };
        total = size;
        dimensions.push(Dimension { length, lower });
    }
    if context.is_some() {
        // Rows that earlier builds have stored are read as they are.
        check_bounds(&dimensions)?;
    }
    if count == 0 || total == 0 {
        let empty = || Datum::Array(Arc::new(Array::new(element.id, vec![])));
        return rest.is_empty().then(empty).ok_or_else(|| invalid(TOO_LONG));
    }
    // Each element has at least its length word: no more memory is taken than what has come fills.
    let mut elements = Vec::with_capacity(total.min(rest.len() / 4));
    for place in 1..=total {
        let length = word(&mut rest)?;
        if length == -1 {
            elements.push(Datum::Null);
            continue;
        }
        let length = usize::try_from(length).ok().filter(|l| *l <= rest.len());
        let (item, tail) = rest.split_at(length.ok_or_else(|| invalid("insufficient data left in message"))?);
        let value = Datum::read_binary(element.plain(), item, context);
        elements.push(value.map_err(|error| match error.message.as_str() {
            TOO_LONG => invalid(format!("improper binary format in array element {place}")),
            _ => error,
        })?);
        rest = tail;
    }
    if !rest.is_empty() {
        return Err(invalid(TOO_LONG));
    }
    Ok(Datum::Array(Arc::new(Array { element: element.id, dimensions, elements })))
}
