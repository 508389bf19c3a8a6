//! Rows as bytes, for the process that wrote them only: each value with its variant, so that no
//! types are needed to read it.

use std::sync::Arc;

use bytes::Bytes;

use crate::types::{
    Array, Datum, Dimension, EnumValue, Inet, Interval, Numeric, Record, Shape, Text, TypeId,
};

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT2: u8 = 3;
const INT4: u8 = 4;
const INT8: u8 = 5;
const FLOAT4: u8 = 6;
const FLOAT8: u8 = 7;
const NUMERIC: u8 = 8;
const TEXT: u8 = 9;
const BPCHAR: u8 = 10;
const JSONB: u8 = 11;
const BYTEA: u8 = 12;
const DATE: u8 = 13;
const TIME: u8 = 14;
const TIMESTAMP: u8 = 15;
const TIMESTAMPTZ: u8 = 16;
const INTERVAL: u8 = 17;
const UUID: u8 = 18;
const OID: u8 = 19;
const ARRAY: u8 = 20;
const RECORD: u8 = 21;
const ENUM: u8 = 22;
const INET: u8 = 23;
const UNSIGNED: u8 = 24;

/// Appends a row.
pub(super) fn put_row(row: &[Datum], shapes: &mut Vec<Shape>, out: &mut Vec<u8>) {
    out.extend_from_slice(&(row.len() as u32).to_le_bytes());
    for datum in row {
        put(datum, shapes, out);
    }
}

/// Takes a row off the front. None if the bytes are none.
pub(super) fn take_row(bytes: &mut &[u8], shapes: &[Shape], row: &mut Vec<Datum>) -> Option<()> {
    let count = take_length(bytes)?;
    row.clear();
    row.reserve_exact(count.min(bytes.len()));
    for _ in 0..count {
        row.push(take(bytes, shapes)?);
    }
    Some(())
}

fn put(datum: &Datum, shapes: &mut Vec<Shape>, out: &mut Vec<u8>) {
    match datum {
        Datum::Null => out.push(NULL),
        Datum::Bool(value) => out.push(if *value { TRUE } else { FALSE }),
        Datum::Int2(value) => fixed(INT2, &value.to_le_bytes(), out),
        Datum::Int4(value) => fixed(INT4, &value.to_le_bytes(), out),
        Datum::Int8(value) => fixed(INT8, &value.to_le_bytes(), out),
        Datum::Float4(value) => fixed(FLOAT4, &value.to_le_bytes(), out),
        Datum::Float8(value) => fixed(FLOAT8, &value.to_le_bytes(), out),
        Datum::Numeric(value) => {
            out.extend_from_slice(&[NUMERIC, 0, 0, 0, 0]);
            let start = out.len();
            value.write_stored(out);
            let length = (out.len() - start) as u32;
            out[start - 4..start].copy_from_slice(&length.to_le_bytes());
        }
        Datum::Text(text) => variable(TEXT, text.as_bytes(), out),
        Datum::Bpchar(text) => variable(BPCHAR, text.as_bytes(), out),
        Datum::Jsonb(text) => variable(JSONB, text.as_bytes(), out),
        Datum::Bytea(bytes) => variable(BYTEA, bytes, out),
        Datum::Date(value) => fixed(DATE, &value.to_le_bytes(), out),
        Datum::Time(value) => fixed(TIME, &value.to_le_bytes(), out),
        Datum::Timestamp(value) => fixed(TIMESTAMP, &value.to_le_bytes(), out),
        Datum::Timestamptz(value) => fixed(TIMESTAMPTZ, &value.to_le_bytes(), out),
        Datum::Interval(value) => {
            fixed(INTERVAL, &value.micros.to_le_bytes(), out);
            out.extend_from_slice(&value.days.to_le_bytes());
            out.extend_from_slice(&value.months.to_le_bytes());
        }
        Datum::Uuid(value) => fixed(UUID, value, out),
        Datum::Inet(value) => fixed(INET, &value.to_bytes(), out),
        Datum::Enum(value) => {
            fixed(ENUM, &value.ty.to_le_bytes(), out);
            out.extend_from_slice(&value.position.to_le_bytes());
        }
        Datum::Oid(value) => fixed(OID, &value.to_le_bytes(), out),
        Datum::Unsigned(value) => fixed(UNSIGNED, &value.to_le_bytes(), out),
        Datum::Array(array) => {
            fixed(ARRAY, &array.element.oid().to_le_bytes(), out);
            out.extend_from_slice(&(array.dimensions.len() as u32).to_le_bytes());
            for dimension in &array.dimensions {
                out.extend_from_slice(&(dimension.length as u64).to_le_bytes());
                out.extend_from_slice(&dimension.lower.to_le_bytes());
            }
            put_row(&array.elements, shapes, out);
        }
        Datum::Record(record) => {
            fixed(RECORD, &(shape_number(&record.shape, shapes) as u32).to_le_bytes(), out);
            put_row(&record.values, shapes, out);
        }
    }
}

/// The place of a shape. The records of one column share theirs, so there are few.
fn shape_number(shape: &Shape, shapes: &mut Vec<Shape>) -> usize {
    let known = shapes.iter().rposition(|known| Arc::ptr_eq(known, shape) || **known == **shape);
    known.unwrap_or_else(|| {
        shapes.push(shape.clone());
        shapes.len() - 1
    })
}

fn fixed(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

fn variable(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    fixed(tag, &(bytes.len() as u32).to_le_bytes(), out);
    out.extend_from_slice(bytes);
}

fn take_fixed<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (value, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*value)
}

fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    take_fixed(bytes).map(|length| u32::from_le_bytes(length) as usize)
}

fn take_variable<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_length(bytes)?;
    let (value, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(value)
}

fn take_text(bytes: &mut &[u8]) -> Option<Text> {
    take_variable(bytes).map(|text| Text::from_stored(Bytes::copy_from_slice(text)))
}

fn take(bytes: &mut &[u8], shapes: &[Shape]) -> Option<Datum> {
    let [tag] = take_fixed::<1>(bytes)?;
    Some(match tag {
        NULL => Datum::Null,
        FALSE => Datum::Bool(false),
        TRUE => Datum::Bool(true),
        INT2 => Datum::Int2(i16::from_le_bytes(take_fixed(bytes)?)),
        INT4 => Datum::Int4(i32::from_le_bytes(take_fixed(bytes)?)),
        INT8 => Datum::Int8(i64::from_le_bytes(take_fixed(bytes)?)),
        FLOAT4 => Datum::Float4(f32::from_le_bytes(take_fixed(bytes)?)),
        FLOAT8 => Datum::Float8(f64::from_le_bytes(take_fixed(bytes)?)),
        NUMERIC => Datum::Numeric(Numeric::read_stored(take_variable(bytes)?)?),
        TEXT => Datum::Text(take_text(bytes)?),
        BPCHAR => Datum::Bpchar(take_text(bytes)?),
        JSONB => Datum::Jsonb(take_text(bytes)?),
        BYTEA => Datum::Bytea(Bytes::copy_from_slice(take_variable(bytes)?)),
        DATE => Datum::Date(i32::from_le_bytes(take_fixed(bytes)?)),
        TIME => Datum::Time(i64::from_le_bytes(take_fixed(bytes)?)),
        TIMESTAMP => Datum::Timestamp(i64::from_le_bytes(take_fixed(bytes)?)),
        TIMESTAMPTZ => Datum::Timestamptz(i64::from_le_bytes(take_fixed(bytes)?)),
        INTERVAL => Datum::Interval(Interval {
            micros: i64::from_le_bytes(take_fixed(bytes)?),
            days: i32::from_le_bytes(take_fixed(bytes)?),
            months: i32::from_le_bytes(take_fixed(bytes)?),
        }),
        UUID => Datum::Uuid(take_fixed(bytes)?),
        INET => Datum::Inet(Inet::from_bytes(take_fixed(bytes)?)),
        ENUM => Datum::Enum(EnumValue {
            ty: u32::from_le_bytes(take_fixed(bytes)?),
            position: i64::from_le_bytes(take_fixed(bytes)?),
        }),
        OID => Datum::Oid(u32::from_le_bytes(take_fixed(bytes)?)),
        UNSIGNED => Datum::Unsigned(u64::from_le_bytes(take_fixed(bytes)?)),
        ARRAY => take_array(bytes, shapes)?,
        RECORD => {
            let shape = shapes.get(take_length(bytes)?)?.clone();
            let mut values = vec![];
            take_row(bytes, shapes, &mut values)?;
            Datum::Record(Arc::new(Record { shape, values }))
        }
        _ => return None,
    })
}

fn take_array(bytes: &mut &[u8], shapes: &[Shape]) -> Option<Datum> {
    let element = TypeId::from_oid(u32::from_le_bytes(take_fixed(bytes)?))?;
    let mut dimensions = vec![];
    for _ in 0..take_length(bytes)? {
        let length = usize::try_from(u64::from_le_bytes(take_fixed(bytes)?)).ok()?;
        dimensions.push(Dimension { length, lower: i32::from_le_bytes(take_fixed(bytes)?) });
    }
    let mut elements = vec![];
    take_row(bytes, shapes, &mut elements)?;
    Some(Datum::Array(Arc::new(Array { element, dimensions, elements })))
}
