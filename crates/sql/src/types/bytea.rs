//! Byte strings as text: `\x00ff`, or the older form with octal escapes.

use super::ByteaOutput;
use super::bounds::{Meter, PIECE};
use crate::error::{SqlError, sqlstate};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends hexadecimal digits.
pub(crate) fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() * 2);
    for byte in bytes {
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}

/// Appends the text form.
pub(crate) fn write(
    bytes: &[u8],
    style: ByteaOutput,
    out: &mut Vec<u8>,
    meter: &mut Meter,
) -> Result<(), SqlError> {
    meter.make_room(2 * bytes.len() + 2, out)?;
    if style == ByteaOutput::Hex {
        out.extend_from_slice(b"\\x");
    }
    for part in bytes.chunks(PIECE) {
        meter.wrote(2 * part.len(), out)?;
        match style {
            ByteaOutput::Hex => write_hex(part, out),
            ByteaOutput::Escape => write_escaped(part, out),
        }
    }
    Ok(())
}

/// Appends printable bytes as they are, a backslash doubled, others as `\ooo`.
fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x20..=0x7e => out.push(byte),
            _ => {
                out.extend_from_slice(&[b'\\', b'0' + (byte >> 6), b'0' + (byte >> 3 & 7), b'0' + (byte & 7)])
            }
        }
    }
}

/// Reads hexadecimal digits, blanks between pairs of them allowed. 22023.
pub(crate) fn parse_hex(text: &str) -> Result<Vec<u8>, SqlError> {
    let mut out = Vec::with_capacity(text.len() / 2);
    let mut chars = text.chars();
    let digit = |c: char| {
        c.to_digit(16).map(|d| d as u8).ok_or_else(|| {
            SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("invalid hexadecimal digit: \"{c}\""))
        })
    };
    let mut meter = Meter::default();
    while let Some(high) = chars.next() {
        meter.add(0)?;
        if matches!(high, ' ' | '\n' | '\t' | '\r') {
            continue;
        }
        let high = digit(high)?;
        let low = chars.next().ok_or_else(|| {
            SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "invalid hexadecimal data: odd number of digits")
        })?;
        out.push(high << 4 | digit(low)?);
    }
    Ok(out)
}

/// Reads the form with octal escapes. 22P02.
pub(crate) fn parse_escaped(text: &str) -> Result<Vec<u8>, SqlError> {
    let invalid =
        || SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type bytea");
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let (mut at, mut meter) = (0, Meter::default());
    while at < bytes.len() {
        meter.add(0)?;
        match bytes[at..] {
            [b'\\', b'\\', ..] => {
                out.push(b'\\');
                at += 2;
            }
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                at += 4;
            }
            [b'\\', ..] => return Err(invalid()),
            [byte, ..] => {
                out.push(byte);
                at += 1;
            }
            [] => break,
        }
    }
    Ok(out)
}

/// Reads either form.
pub(crate) fn parse(text: &str) -> Result<Vec<u8>, SqlError> {
    match text.strip_prefix("\\x") {
        Some(digits) => parse_hex(digits),
        None => parse_escaped(text),
    }
}
