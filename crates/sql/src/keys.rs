//! Keys whose bytes, compared as unsigned bytes, order as the values do.
//!
//! Each column is a marker byte and then, unless NULL, the value. The marker puts NULLs first or
//! last; it is never inverted.
//!
//! ```text
//! 00 NULL, when NULLs come first        01 a value follows        02 NULL, when NULLs come last
//! ```
//!
//! | type | bytes of the value, ascending; all inverted for descending |
//! |---|---|
//! | bool | `00` or `01` |
//! | int2, int4, int8, date, time, timestamp, timestamptz | big-endian with the sign bit flipped |
//! | oid and its aliases | big-endian |
//! | float4, float8 | big-endian bits; sign bit flipped if positive, all bits if negative; -0 as 0; one NaN, above infinity |
//! | numeric | class (`00` -inf, `01` negative, `02` zero, `03` positive, `04` inf, `05` NaN); then for `01` and `03`: the exponent of `0.d × 100^e`, digits base 100 plus one, `00`; inverted for `01` |
//! | text, varchar, name, "char", json | the bytes with `00` as `00 ff`, then `00 01` |
//! | char(n) | the same without the trailing blanks |
//! | bytea | the same |
//! | jsonb | the ordering form (see `types::json::write_key`), escaped the same |
//! | interval | the length in microseconds by which intervals order, 16 bytes big-endian with the sign bit flipped |
//! | uuid | its 16 bytes |
//! | inet, cidr | `02` for IPv4 or `03`; the network, the number of its bits, the address |
//! | enum types | the position, like int8 |
//! | array | each element as an ascending column, then `00`; then the number of dimensions, their lengths, their lower bounds |
//!
//! Texts order by their bytes (collation C). Exponent of a numeric: one byte `80 + e` for |e| <=
//! 100; else `ff` or `00` and four bytes big-endian with the sign bit flipped.
//!
//! Equal values have equal keys, so 1.0 and 1.00, -0 and 0, `'a'` and `'a '` of char(2) are one
//! key; what a value looked like is in the row.

use bytes::Bytes;

use crate::error::{SqlError, sqlstate};
use crate::types::bounds::may_compare;
use crate::types::{Array, Datum, Dimension, EnumValue, Inet, Interval, Numeric, Text, Type, TypeId, json};

/// How a column orders within a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyOrder {
    /// Largest value first.
    pub descending: bool,
    /// NULLs before all values.
    pub nulls_first: bool,
}

impl KeyOrder {
    /// `ASC NULLS LAST`, the default.
    pub const ASCENDING: KeyOrder = KeyOrder { descending: false, nulls_first: false };
    /// `DESC NULLS FIRST`, the default of DESC.
    pub const DESCENDING: KeyOrder = KeyOrder { descending: true, nulls_first: true };
}

const NULL_FIRST: u8 = 0;
const VALUE: u8 = 1;
const NULL_LAST: u8 = 2;

const NUMERIC_NEG_INFINITY: u8 = 0;
const NUMERIC_NEGATIVE: u8 = 1;
const NUMERIC_ZERO: u8 = 2;
const NUMERIC_POSITIVE: u8 = 3;
const NUMERIC_INFINITY: u8 = 4;
const NUMERIC_NAN: u8 = 5;

/// What is longer than this is no key of an entry: nothing behind it matters to any that is one.
const LONGEST: usize = 2 << 20;

/// Appends one column to a key.
#[inline]
pub fn encode_into(out: &mut Vec<u8>, datum: &Datum, order: KeyOrder) {
    encode_column(out, datum, order, usize::MAX);
}

/// The same for an entry, or for finding one by its whole key. A column far longer than entries may
/// be is not finished, so that it is known soon that there is none.
#[inline]
pub(crate) fn encode_entry_into(out: &mut Vec<u8>, datum: &Datum, order: KeyOrder) {
    encode_column(out, datum, order, LONGEST);
}

#[inline]
fn encode_column(out: &mut Vec<u8>, datum: &Datum, order: KeyOrder, longest: usize) {
    if datum.is_null() {
        out.push(if order.nulls_first { NULL_FIRST } else { NULL_LAST });
        return;
    }
    out.push(VALUE);
    let start = out.len();
    encode_value(out, datum, longest);
    if order.descending {
        invert(&mut out[start..]);
    }
}

/// The key of several columns, all ascending with NULLs last.
pub fn encode(datums: &[Datum]) -> Vec<u8> {
    let mut out = Vec::with_capacity(datums.len() * 10);
    for datum in datums {
        encode_into(&mut out, datum, KeyOrder::ASCENDING);
    }
    out
}

/// Appends the marker and the bytes that begin the key of every text starting with `prefix`
/// (ascending order only).
pub fn encode_text_prefix_into(out: &mut Vec<u8>, prefix: &str) {
    out.push(VALUE);
    escape_into(out, prefix.as_bytes());
}

/// The marker that stands before every value that is not NULL: the lower bound of `IS NOT NULL`.
pub fn encode_not_null_into(out: &mut Vec<u8>) {
    out.push(VALUE);
}

/// The smallest key greater than every key starting with `prefix`; `None` if there is none.
pub fn next_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|&b| b != 0xff)? + 1;
    let mut next = prefix[..keep].to_vec();
    next[keep - 1] += 1;
    Some(next)
}

fn invert(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

fn encode_value(out: &mut Vec<u8>, datum: &Datum, longest: usize) {
    match datum {
        Datum::Null => {}
        Datum::Bool(value) => out.push(u8::from(*value)),
        Datum::Int2(value) => out.extend_from_slice(&((*value as u16) ^ 0x8000).to_be_bytes()),
        Datum::Int4(value) | Datum::Date(value) => {
            out.extend_from_slice(&((*value as u32) ^ 0x8000_0000).to_be_bytes());
        }
        Datum::Int8(value) | Datum::Time(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) => {
            out.extend_from_slice(&((*value as u64) ^ (1 << 63)).to_be_bytes());
        }
        Datum::Oid(value) => out.extend_from_slice(&value.to_be_bytes()),
        Datum::Unsigned(value) => out.extend_from_slice(&value.to_be_bytes()),
        Datum::Float4(value) => {
            let bits = if value.is_nan() { f32::NAN } else { *value + 0.0 }.to_bits();
            let flipped = if bits >> 31 == 1 && !value.is_nan() { !bits } else { bits | 1 << 31 };
            out.extend_from_slice(&flipped.to_be_bytes());
        }
        Datum::Float8(value) => {
            let bits = if value.is_nan() { f64::NAN } else { *value + 0.0 }.to_bits();
            let flipped = if bits >> 63 == 1 && !value.is_nan() { !bits } else { bits | 1 << 63 };
            out.extend_from_slice(&flipped.to_be_bytes());
        }
        Datum::Numeric(value) => encode_numeric(out, value),
        Datum::Text(text) => terminated_into(out, text.as_bytes()),
        Datum::Bpchar(text) => terminated_into(out, text.trim_end_blanks().as_bytes()),
        Datum::Bytea(bytes) => terminated_into(out, bytes),
        Datum::Jsonb(text) => {
            let mut form = Vec::new();
            json::write_key(text.as_str(), longest, &mut form);
            terminated_into(out, &form);
        }
        Datum::Interval(interval) => {
            let value = interval.ordering_value();
            out.extend_from_slice(&((value as u128) ^ (1 << 127)).to_be_bytes());
        }
        Datum::Uuid(bytes) => out.extend_from_slice(bytes),
        Datum::Inet(value) => value.write_key(out),
        Datum::Enum(value) => out.extend_from_slice(&((value.position as u64) ^ (1 << 63)).to_be_bytes()),
        Datum::Array(array) => encode_array(out, array, longest),
        Datum::Record(record) => encode_items(out, &record.values, longest),
    }
}

fn escape_into(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&b| b == 0) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[0, 0xff]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

fn terminated_into(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 2);
    escape_into(out, bytes);
    out.extend_from_slice(&[0, 1]);
}

fn encode_numeric(out: &mut Vec<u8>, value: &Numeric) {
    if !value.is_finite() {
        out.push(match (value.is_nan(), value.signum()) {
            (true, _) => NUMERIC_NAN,
            (_, -1) => NUMERIC_NEG_INFINITY,
            _ => NUMERIC_INFINITY,
        });
        return;
    }
    let negative = value.signum() < 0;
    let start = out.len() + 1;
    out.push(if negative { NUMERIC_NEGATIVE } else { NUMERIC_POSITIVE });
    let encoded = match value.small() {
        Some((mantissa, scale)) if u64::try_from(mantissa.unsigned_abs()).is_ok() => {
            encode_small_numeric(out, mantissa.unsigned_abs() as u64, scale)
        }
        _ => encode_numeric_digits(out, value),
    };
    if !encoded {
        out[start - 1] = NUMERIC_ZERO;
        return;
    }
    out.push(0);
    if negative {
        invert(&mut out[start..]);
    }
}

/// Exponent and digits of a magnitude that fits a machine word; false for 0.
fn encode_small_numeric(out: &mut Vec<u8>, mut magnitude: u64, scale: u32) -> bool {
    if magnitude == 0 {
        return false;
    }
    let mut scale = i64::from(scale);
    // Pairs are counted from the point, so an odd scale needs one more digit.
    let mut odd_digit = 0;
    if scale % 2 == 1 {
        odd_digit = magnitude % 10;
        magnitude /= 10;
        scale -= 1;
    }
    let mut pairs = [0u8; 12];
    let mut count = 0;
    if scale_was_odd(odd_digit) {
        pairs[count] = (odd_digit * 10) as u8;
        count += 1;
        scale += 2;
    }
    while magnitude > 0 {
        pairs[count] = (magnitude % 100) as u8;
        magnitude /= 100;
        count += 1;
    }
    push_exponent(out, count as i64 - scale / 2);
    let zeros = pairs[..count].iter().take_while(|p| **p == 0).count();
    out.extend(pairs[zeros..count].iter().rev().map(|p| p + 1));
    true
}

/// A zero in the odd place is dropped like every trailing zero.
fn scale_was_odd(odd_digit: u64) -> bool {
    odd_digit != 0
}

/// The same for any magnitude.
fn encode_numeric_digits(out: &mut Vec<u8>, value: &Numeric) -> bool {
    let Some((mut digits, exponent)) = value.key_digits() else { return false };
    if exponent.rem_euclid(2) == 1 {
        digits.insert(0, b'0');
    }
    if digits.len() % 2 == 1 {
        digits.push(b'0');
    }
    push_exponent(out, exponent.div_euclid(2) + exponent.rem_euclid(2));
    out.extend(digits.chunks_exact(2).map(|pair| (pair[0] - b'0') * 10 + (pair[1] - b'0') + 1));
    true
}

fn push_exponent(out: &mut Vec<u8>, exponent: i64) {
    if (-100..=100).contains(&exponent) {
        out.push((0x80 + exponent) as u8);
    } else {
        out.push(if exponent > 0 { 0xff } else { 0 });
        out.extend_from_slice(&((exponent as i32 as u32) ^ 0x8000_0000).to_be_bytes());
    }
}

/// Appends values one after the other. What is behind a length that no entry has is left out: it
/// decides nothing between this and an entry.
fn encode_items(out: &mut Vec<u8>, items: &[Datum], longest: usize) {
    let start = out.len();
    for item in items {
        if out.len() - start > LONGEST || !may_compare(item.compared_bytes()) {
            return;
        }
        encode_column(out, item, KeyOrder::ASCENDING, longest);
    }
}

fn encode_array(out: &mut Vec<u8>, array: &Array, longest: usize) {
    encode_items(out, &array.elements, longest);
    out.push(0);
    out.push(array.dimensions.len() as u8);
    for dimension in &array.dimensions {
        out.extend_from_slice(&(dimension.length as u32).to_be_bytes());
    }
    for dimension in &array.dimensions {
        out.extend_from_slice(&((dimension.lower as u32) ^ 0x8000_0000).to_be_bytes());
    }
}

/// Whether decoding a key of this type gives back the value exactly as it was, not merely an equal
/// one.
pub fn is_exact(ty: Type) -> bool {
    match ty.id {
        // -0, and the scale and the blanks that the type does not fix, are lost.
        TypeId::Float4 | TypeId::Float8 | TypeId::Jsonb | TypeId::Interval => false,
        TypeId::Numeric => ty.precision_and_scale().is_some_and(|(_, scale)| scale >= 0),
        TypeId::Bpchar => ty.character_limit().is_some(),
        _ => ty.element().is_none_or(is_exact),
    }
}

/// Reads one column from the front of `key` and moves past it. Types for which [`is_exact`] is
/// false give an equal value, and jsonb cannot be read back at all. XX002 if the bytes are no such
/// key.
pub fn decode(key: &mut &[u8], ty: Type, order: KeyOrder) -> Result<Datum, SqlError> {
    let mut reader = Reader { bytes: key, mask: if order.descending { 0xff } else { 0 }, skipping: false };
    let datum = reader.column(ty).ok_or_else(corrupt)?;
    *key = reader.bytes;
    Ok(datum)
}

/// Moves past one column. XX002 if the bytes are no such key.
pub fn skip(key: &mut &[u8], ty: Type, order: KeyOrder) -> Result<(), SqlError> {
    let mut reader = Reader { bytes: key, mask: if order.descending { 0xff } else { 0 }, skipping: true };
    reader.column(ty).ok_or_else(corrupt)?;
    *key = reader.bytes;
    Ok(())
}

#[cold]
fn corrupt() -> SqlError {
    SqlError::new(sqlstate::INDEX_CORRUPTED, "malformed key")
}

struct Reader<'a> {
    bytes: &'a [u8],
    mask: u8,
    /// The values do not matter, so even jsonb can be passed over.
    skipping: bool,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first ^ self.mask)
    }

    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        let mut array = *first;
        for byte in &mut array {
            *byte ^= self.mask;
        }
        Some(array)
    }

    fn marker(&mut self) -> Option<bool> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        match first {
            VALUE => Some(true),
            NULL_FIRST | NULL_LAST => Some(false),
            _ => None,
        }
    }

    fn column(&mut self, ty: Type) -> Option<Datum> {
        if self.marker()? { self.value(ty) } else { Some(Datum::Null) }
    }

    fn value(&mut self, ty: Type) -> Option<Datum> {
        use TypeId as T;
        Some(match ty.id {
            T::Bool => Datum::Bool(match self.byte()? {
                0 => false,
                1 => true,
                _ => return None,
            }),
            T::Int2 => Datum::Int2((u16::from_be_bytes(self.fixed()?) ^ 0x8000) as i16),
            T::Int4 => Datum::Int4(self.int4()?),
            T::Date => Datum::Date(self.int4()?),
            T::Int8 => Datum::Int8(self.int8()?),
            T::Time => Datum::Time(self.int8()?),
            T::Timestamp => Datum::Timestamp(self.int8()?),
            T::Timestamptz => Datum::Timestamptz(self.int8()?),
            T::Xid => Datum::Oid(u32::from_be_bytes(self.fixed()?)),
            T::PgLsn | T::Xid8 => Datum::Unsigned(u64::from_be_bytes(self.fixed()?)),
            id if id.is_oid() => Datum::Oid(u32::from_be_bytes(self.fixed()?)),
            T::Float4 => {
                let bits = u32::from_be_bytes(self.fixed()?);
                Datum::Float4(f32::from_bits(if bits >> 31 == 1 { bits ^ (1 << 31) } else { !bits }))
            }
            T::Float8 => {
                let bits = u64::from_be_bytes(self.fixed()?);
                Datum::Float8(f64::from_bits(if bits >> 63 == 1 { bits ^ (1 << 63) } else { !bits }))
            }
            T::Numeric => {
                let value = self.numeric()?;
                Datum::Numeric(match ty.precision_and_scale() {
                    Some((_, scale)) if scale > 0 => value.round(scale),
                    _ => value,
                })
            }
            T::Text | T::Varchar | T::Name | T::InternalChar | T::Json | T::Unknown => {
                Datum::Text(self.text()?)
            }
            T::Bpchar => Datum::Bpchar(crate::types::pad(self.text()?, ty)),
            T::Bytea => Datum::Bytea(Bytes::from(self.terminated()?)),
            T::Interval => {
                let value = (u128::from_be_bytes(self.fixed()?) ^ (1 << 127)) as i128;
                Datum::Interval(Interval::from_ordering_value(value)?)
            }
            T::Uuid => Datum::Uuid(self.fixed()?),
            T::Inet | T::Cidr => Datum::Inet(self.inet()?),
            T::Enum => Datum::Enum(EnumValue { ty: ty.bare().oid(), position: self.int8()? }),
            T::Jsonb if self.skipping => {
                self.terminated()?;
                Datum::Null
            }
            _ => self.array(ty.element()?)?,
        })
    }

    fn int4(&mut self) -> Option<i32> {
        Some((u32::from_be_bytes(self.fixed()?) ^ 0x8000_0000) as i32)
    }

    fn int8(&mut self) -> Option<i64> {
        Some((u64::from_be_bytes(self.fixed()?) ^ (1 << 63)) as i64)
    }

    fn inet(&mut self) -> Option<Inet> {
        match self.byte()? {
            2 => {
                self.fixed::<4>()?;
                let bits = self.byte()?;
                Inet::v4(self.fixed()?, bits)
            }
            3 => {
                self.fixed::<16>()?;
                let bits = self.byte()?;
                Inet::v6(self.fixed()?, bits)
            }
            _ => None,
        }
    }

    fn terminated(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            match self.byte()? {
                0 => match self.byte()? {
                    1 => return Some(out),
                    0xff => out.push(0),
                    _ => return None,
                },
                byte => out.push(byte),
            }
        }
    }

    fn text(&mut self) -> Option<Text> {
        Text::from_utf8(Bytes::from(self.terminated()?))
    }

    fn numeric(&mut self) -> Option<Numeric> {
        let negative = match self.byte()? {
            NUMERIC_NEG_INFINITY => return Some(Numeric::NEG_INFINITY),
            NUMERIC_INFINITY => return Some(Numeric::INFINITY),
            NUMERIC_NAN => return Some(Numeric::NAN),
            NUMERIC_ZERO => return Some(Numeric::ZERO),
            NUMERIC_NEGATIVE => true,
            NUMERIC_POSITIVE => false,
            _ => return None,
        };
        if negative {
            self.mask = !self.mask;
        }
        let value = self.numeric_magnitude(negative);
        if negative {
            self.mask = !self.mask;
        }
        value
    }

    fn numeric_magnitude(&mut self, negative: bool) -> Option<Numeric> {
        let exponent = match self.byte()? {
            0 | 0xff => i64::from(self.int4()?),
            byte => i64::from(byte) - 0x80,
        };
        let mut digits = Vec::new();
        loop {
            match self.byte()? {
                0 => break,
                pair @ 1..=100 => digits.extend_from_slice(&[b'0' + (pair - 1) / 10, b'0' + (pair - 1) % 10]),
                _ => return None,
            }
        }
        let mut exponent = exponent * 2;
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        if digits.first() == Some(&b'0') {
            digits.remove(0);
            exponent -= 1;
        }
        Numeric::from_key_digits(negative, &digits, exponent)
    }

    fn array(&mut self, element: Type) -> Option<Datum> {
        let mut elements = Vec::new();
        while (self.bytes.first()? ^ self.mask) != 0 {
            // Inside an array the markers are inverted with the rest.
            let datum = match self.byte()? {
                VALUE => self.value(element)?,
                NULL_LAST => Datum::Null,
                _ => return None,
            };
            elements.push(datum);
        }
        self.byte()?;
        let count = usize::from(self.byte()?);
        let mut dimensions = Vec::with_capacity(count);
        for _ in 0..count {
            dimensions.push(Dimension { length: u32::from_be_bytes(self.fixed()?) as usize, lower: 1 });
        }
        for dimension in &mut dimensions {
            dimension.lower = self.int4()?;
        }
        let total = dimensions.iter().try_fold(1usize, |n, d| n.checked_mul(d.length))?;
        if total != elements.len() && !(dimensions.is_empty() && elements.is_empty()) {
            return None;
        }
        Some(Datum::Array(std::sync::Arc::new(Array { element: element.id, dimensions, elements })))
    }
}
