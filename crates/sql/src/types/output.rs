//! Values to their text form.

use super::bounds::{Meter, check_written};
use super::{Datum, FormatContext, Type, TypeId, array_text, bytea, datetime, float, object};
use crate::error::SqlError;

impl Datum {
    /// Appends the text form; nothing for NULL.
    #[inline]
    pub fn to_text(&self, ty: Type, context: &FormatContext, out: &mut Vec<u8>) {
        // A patient meter never fails.
        let _ = self.write(ty, context, out, &mut Meter::patient());
    }

    /// The same where the value may be large and its text is to be kept or sent: 57014 once the
    /// statement should stop, 53200 and 54000 if all of `out` is more than it may hold.
    #[inline]
    pub fn write_text(&self, ty: Type, context: &FormatContext, out: &mut Vec<u8>) -> Result<(), SqlError> {
        self.write(ty, context, out, &mut Meter::default())?;
        check_written(out)
    }

    /// Appends the text form of a value that may be part of another one.
    #[inline]
    pub(super) fn write(
        &self,
        ty: Type,
        context: &FormatContext,
        out: &mut Vec<u8>,
        meter: &mut Meter,
    ) -> Result<(), SqlError> {
        match self {
            Datum::Null => {}
            Datum::Int4(value) => write_integer(i64::from(*value), out),
            Datum::Int8(value) => write_integer(*value, out),
            Datum::Text(text) | Datum::Bpchar(text) | Datum::Jsonb(text) => {
                meter.make_room(text.len(), out)?;
                out.extend_from_slice(text.as_bytes());
            }
            _ => return self.write_other(ty, context, out, meter),
        }
        Ok(())
    }

    fn write_other(
        &self,
        ty: Type,
        context: &FormatContext,
        out: &mut Vec<u8>,
        meter: &mut Meter,
    ) -> Result<(), SqlError> {
        match self {
            Datum::Bool(value) => out.push(if *value { b't' } else { b'f' }),
            Datum::Int2(value) => write_integer(i64::from(*value), out),
            Datum::Float4(value) => float::write_f32(*value, context.extra_float_digits, out),
            Datum::Float8(value) => float::write_f64(*value, context.extra_float_digits, out),
            Datum::Numeric(value) => value.write_text(out),
            Datum::Bytea(bytes) => return bytea::write(bytes, context.bytea_output, out, meter),
            Datum::Date(date) => datetime::write_date(*date, context, out),
            Datum::Time(time) => datetime::write_time(*time, out),
            Datum::Timestamp(timestamp) => datetime::write_timestamp(*timestamp, context, out),
            Datum::Timestamptz(timestamp) => datetime::write_timestamptz(*timestamp, context, out),
            Datum::Interval(interval) => datetime::write_interval(*interval, context.interval_style, out),
            Datum::Uuid(bytes) => write_uuid(bytes, out),
            Datum::Inet(value) => value.write(ty.id == TypeId::Cidr, out),
            Datum::Enum(value) => value.write(context, out),
            Datum::Unsigned(place) if ty.id == TypeId::PgLsn => {
                out.extend_from_slice(format!("{:X}/{:X}", place >> 32, place & 0xffff_ffff).as_bytes());
            }
            Datum::Unsigned(value) => out.extend_from_slice(value.to_string().as_bytes()),
            Datum::Oid(oid) if matches!(ty.id, TypeId::Oid | TypeId::Xid) => {
                write_integer(i64::from(*oid), out);
            }
            Datum::Oid(oid) => object::write(ty.id, *oid, context, out),
            Datum::Array(array) if matches!(ty.id, TypeId::Int2vector | TypeId::Oidvector) => {
                for (i, element) in array.elements.iter().enumerate() {
                    if i > 0 {
                        out.push(b' ');
                    }
                    write_integer(element.as_i64().unwrap_or(0), out);
                }
            }
            Datum::Array(array) => return array_text::write(array, context, out, meter),
            Datum::Record(record) => return record.write_text(context, out, meter),
            Datum::Null
            | Datum::Int4(_)
            | Datum::Int8(_)
            | Datum::Text(_)
            | Datum::Bpchar(_)
            | Datum::Jsonb(_) => {}
        }
        Ok(())
    }

    /// The text form as a string.
    pub fn to_text_string(&self, ty: Type, context: &FormatContext) -> String {
        let mut out = Vec::new();
        self.to_text(ty, context, &mut out);
        String::from_utf8(out).unwrap_or_default()
    }
}

fn write_uuid(bytes: &[u8; 16], out: &mut Vec<u8>) {
    for (i, part) in
        [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]].into_iter().enumerate()
    {
        if i > 0 {
            out.push(b'-');
        }
        bytea::write_hex(part, out);
    }
}

const PAIRS: &[u8; 200] =
    b"0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849\
5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

/// Appends a decimal integer.
#[inline]
pub(crate) fn write_integer(value: i64, out: &mut Vec<u8>) {
    let mut buffer = [0u8; 20];
    let mut at = buffer.len();
    let mut rest = value.unsigned_abs();
    while rest >= 100 {
        let pair = (rest % 100) as usize * 2;
        rest /= 100;
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if rest >= 10 {
        let pair = rest as usize * 2;
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        at -= 1;
        buffer[at] = b'0' + rest as u8;
    }
    if value < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    out.extend_from_slice(&buffer[at..]);
}
