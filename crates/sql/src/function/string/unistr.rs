//! `unistr`: a text with escapes for characters.

use super::{Computed, from_utf8, str_of};
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::types::Datum;
use crate::types::bounds::{Meter, append};

fn invalid_pair() -> SqlError {
    SqlError::syntax("invalid Unicode surrogate pair")
}

/// The number of an escape behind its backslash, and what follows. 42601, 22023.
fn code_point(escape: &str) -> Result<(u32, &str), SqlError> {
    let (start, digits) = match escape.as_bytes().first() {
        Some(b'u') => (1, 4),
        Some(b'+') => (1, 6),
        Some(b'U') => (1, 8),
        _ => (0, 4),
    };
    let end = start + digits;
    let number = escape.get(start..end).filter(|number| number.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let Some(code) = number.and_then(|number| u32::from_str_radix(number, 16).ok()) else {
        return Err(SqlError::syntax("invalid Unicode escape")
            .with_hint("Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX."));
    };
    if code == 0 || code > u32::from(char::MAX) {
        let message = format!("invalid Unicode code point: {code:04X}");
        return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
    }
    Ok((code, &escape[end..]))
}

pub(super) fn unistr(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let mut rest = str_of(&arguments[0])?;
    let mut out = Vec::with_capacity(rest.len());
    // The first half of a pair, while the second one is awaited.
    let mut half: Option<u32> = None;
    let mut meter = Meter::default();
    while !rest.is_empty() {
        meter.add(0)?;
        let plain = match rest.strip_prefix('\\') {
            None => &rest[..rest.find('\\').unwrap_or(rest.len())],
            Some(escape) if escape.starts_with('\\') => &rest[..1],
            Some(escape) => {
                let (code, behind) = code_point(escape)?;
                rest = behind;
                let character = match (half.take(), code) {
                    (Some(high), 0xdc00..=0xdfff) => 0x10000 + ((high - 0xd800) << 10) + (code - 0xdc00),
                    (None, 0xd800..=0xdbff) => {
                        half = Some(code);
                        continue;
                    }
                    (Some(_), _) | (None, 0xdc00..=0xdfff) => return Err(invalid_pair()),
                    (None, code) => code,
                };
                let character = char::from_u32(character).ok_or_else(invalid_pair)?;
                append(character.encode_utf8(&mut [0; 4]).as_bytes(), &mut out)?;
                continue;
            }
        };
        if half.is_some() {
            return Err(invalid_pair());
        }
        append(plain.as_bytes(), &mut out)?;
        // Two backslashes are one.
        rest = &rest[plain.len() + usize::from(plain == "\\")..];
    }
    if half.is_some() { Err(invalid_pair()) } else { from_utf8(out) }
}
