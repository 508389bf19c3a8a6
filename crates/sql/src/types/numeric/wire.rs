//! The binary forms of a numeric: PostgreSQL's wire format (base 10000) and the compact form in
//! stored rows.
//!
//! Stored form, first byte: 0..=239 is the scale of a value whose mantissa follows as little-endian
//! two's complement of as few bytes as it needs (none for 0, at most 16); 240 NaN; 241 infinity;
//! 242 negative infinity; 243 a big value: two bytes of scale, little-endian, then the mantissa
//! likewise.

use num_bigint::BigInt;

use super::super::malformed::{TOO_LONG, insufficient, invalid};
use super::{Finite, MAX_SCALE, Numeric, Repr, Word};
use crate::error::SqlError;

const STORED_NAN: u8 = 240;
const STORED_INFINITY: u8 = 241;
const STORED_NEG_INFINITY: u8 = 242;
const STORED_BIG: u8 = 243;

const SIGN_NEGATIVE: u16 = 0x4000;
const SIGN_NAN: u16 = 0xC000;
const SIGN_INFINITY: u16 = 0xD000;
const SIGN_NEG_INFINITY: u16 = 0xF000;

impl Numeric {
    /// Appends PostgreSQL's binary format.
    pub fn write_binary(&self, out: &mut Vec<u8>) {
        let Some(finite) = self.finite() else {
            let sign = match self.0 {
                Repr::PositiveInfinity => SIGN_INFINITY,
                Repr::NegativeInfinity => SIGN_NEG_INFINITY,
                _ => SIGN_NAN,
            };
            // PostgreSQL's infinities have this scale, which nobody looks at.
            let scale: u16 = if sign == SIGN_NAN { 0 } else { 32 };
            out.extend_from_slice(&[0, 0, 0, 0]);
            out.extend_from_slice(&sign.to_be_bytes());
            out.extend_from_slice(&scale.to_be_bytes());
            return;
        };
        let (groups, weight) = groups(&finite);
        out.extend_from_slice(&(groups.len() as u16).to_be_bytes());
        out.extend_from_slice(&weight.to_be_bytes());
        let sign = if self.signum() < 0 { SIGN_NEGATIVE } else { 0 };
        out.extend_from_slice(&sign.to_be_bytes());
        out.extend_from_slice(&(finite.scale() as u16).to_be_bytes());
        for group in groups {
            out.extend_from_slice(&group.to_be_bytes());
        }
    }

    /// Reads PostgreSQL's binary format. 22P03 if it is not that, 08P01 if it ends too early.
    pub fn read_binary(bytes: &[u8]) -> Result<Numeric, SqlError> {
        let mut words = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        let mut next = || words.next().ok_or_else(insufficient);
        let (count, weight, sign, scale) = (next()?, next()? as i16, next()?, next()?);
        if !matches!(sign, 0 | SIGN_NEGATIVE | SIGN_NAN | SIGN_INFINITY | SIGN_NEG_INFINITY) {
            return Err(invalid("invalid sign in external \"numeric\" value"));
        }
        if u32::from(scale) > MAX_SCALE {
            return Err(invalid("invalid scale in external \"numeric\" value"));
        }
        let expected = 8 + 2 * usize::from(count);
        if bytes.len() != expected {
            return Err(if bytes.len() < expected { insufficient() } else { invalid(TOO_LONG) });
        }
        match sign {
            SIGN_NAN => return Ok(Numeric::NAN),
            SIGN_INFINITY => return Ok(Numeric::INFINITY),
            SIGN_NEG_INFINITY => return Ok(Numeric::NEG_INFINITY),
            _ => {}
        }
        let mut groups = Vec::with_capacity(usize::from(count));
        for group in words {
            if group > 9999 {
                return Err(invalid("invalid digit in external \"numeric\" value"));
            }
            groups.push(group);
        }
        // More digits than the scale shows are dropped, as PostgreSQL does: groups of nothing else
        // at once, since reading very many would take long.
        let shown = i64::from(weight) + 1 + i64::from(scale.div_ceil(4));
        groups.truncate(usize::try_from(shown).unwrap_or(0));
        let small = |value: i128, group: &u16| value.checked_mul(10_000)?.checked_add(i128::from(*group));
        let mantissa = match groups.iter().try_fold(0, small) {
            Some(0) => return Ok(Numeric::new(0, scale)),
            Some(value) => BigInt::from(value),
            None => {
                let digits = |group: &u16| [1000, 100, 10, 1].map(|unit| b'0' + (group / unit % 10) as u8);
                let digits: Vec<u8> = groups.iter().flat_map(digits).collect();
                super::radix::parse(&digits).unwrap_or_default()
            }
        };
        let mantissa = if sign == SIGN_NEGATIVE { -mantissa } else { mantissa };
        // The last group's place, in decimal digits after the point.
        let place = (groups.len() as i64 - 1 - i64::from(weight)) * 4;
        if place >= 0 {
            let wide = u32::try_from(place).unwrap_or(u32::MAX);
            return if wide <= MAX_SCALE {
                Ok(Numeric::from_big(mantissa, wide)?.truncate(i32::from(scale)))
            } else {
                let cut = mantissa / super::big_power_of_ten(wide - MAX_SCALE);
                Ok(Numeric::from_big(cut, MAX_SCALE)?.truncate(i32::from(scale)))
            };
        }
        let factor = super::big_power_of_ten(u32::try_from(-place).unwrap_or(0));
        Ok(Numeric::from_big(mantissa * factor, 0)?.truncate(i32::from(scale)))
    }

    /// Appends the stored form.
    pub fn write_stored(&self, out: &mut Vec<u8>) {
        match self.finite() {
            None => out.push(match self.0 {
                Repr::PositiveInfinity => STORED_INFINITY,
                Repr::NegativeInfinity => STORED_NEG_INFINITY,
                _ => STORED_NAN,
            }),
            Some(Finite::Small(value, scale)) if scale < u32::from(STORED_NAN) => {
                out.push(scale as u8);
                if value != 0 {
                    let used = significant_bytes(value);
                    out.extend_from_slice(&value.to_le_bytes()[..used]);
                }
            }
            Some(finite) => {
                out.push(STORED_BIG);
                out.extend_from_slice(&(finite.scale() as u16).to_le_bytes());
                out.extend_from_slice(&finite.mantissa().to_signed_bytes_le());
            }
        }
    }

    /// Reads the stored form of a number with few digits; `None` of all else.
    #[inline]
    pub(crate) fn read_word(bytes: &[u8]) -> Option<Word> {
        let (&scale, rest) = bytes.split_first()?;
        if scale >= STORED_NAN || rest.len() > size_of::<i64>() {
            return None;
        }
        // Byte by byte, from the sign on: mostly there are few.
        let sign = if rest.last().is_some_and(|b| b & 0x80 != 0) { -1 } else { 0 };
        let mantissa = rest.iter().rev().fold(sign, |word: i64, byte| word << 8 | i64::from(*byte));
        Some(Word { mantissa, scale: u16::from(scale) })
    }

    /// Reads the stored form; `None` if it is not one.
    pub fn read_stored(bytes: &[u8]) -> Option<Numeric> {
        if let Some(word) = Numeric::read_word(bytes) {
            return Some(word.into());
        }
        let (&first, rest) = bytes.split_first()?;
        match first {
            STORED_NAN => rest.is_empty().then_some(Numeric::NAN),
            STORED_INFINITY => rest.is_empty().then_some(Numeric::INFINITY),
            STORED_NEG_INFINITY => rest.is_empty().then_some(Numeric::NEG_INFINITY),
            STORED_BIG => {
                let (scale, mantissa) = rest.split_first_chunk::<2>()?;
                let scale = u32::from(u16::from_le_bytes(*scale));
                Numeric::from_big(BigInt::from_signed_bytes_le(mantissa), scale).ok()
            }
            scale if scale < STORED_NAN && rest.len() <= 16 => {
                let negative = rest.last().is_some_and(|b| b & 0x80 != 0);
                let mut wide = [if negative { 0xff } else { 0 }; 16];
                wide[..rest.len()].copy_from_slice(rest);
                Some(Numeric::new(i128::from_le_bytes(wide), u16::from(scale)))
            }
            _ => None,
        }
    }

    /// Decimal digits without zeros at either end, and the exponent n of `0.digits × 10^n`; for the
    /// key codec. `None` if the value is not finite or is 0.
    pub(crate) fn key_digits(&self) -> Option<(Vec<u8>, i64)> {
        let exponent = self.decimal_exponent()?;
        let mut digits = self.finite()?.digits();
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        Some((digits, exponent))
    }

    /// Decimal digits of the magnitude from the first that is not 0, at least one, and the exponent
    /// n of `0.digits × 10^n`; for 0, one zero and 1. Finite values only.
    pub(crate) fn key_digits_for_display(&self) -> (String, i64) {
        match self.key_digits() {
            Some((digits, exponent)) => (String::from_utf8_lossy(&digits).into_owned(), exponent),
            None => ("0".to_owned(), 1),
        }
    }

    /// The value of `±0.digits × 10^exponent`, for the key codec; the scale is as small as
    /// possible.
    pub(crate) fn from_key_digits(negative: bool, digits: &[u8], exponent: i64) -> Option<Numeric> {
        let magnitude = super::radix::parse(digits)?;
        let mantissa = if negative { -magnitude } else { magnitude };
        let scale = digits.len() as i64 - exponent;
        if scale >= 0 {
            Numeric::from_big(mantissa, u32::try_from(scale).ok()?).ok()
        } else {
            let factor = u32::try_from(-scale).ok().filter(|f| i64::from(*f) <= super::MAX_INTEGER_DIGITS)?;
            Numeric::from_big(mantissa * super::big_power_of_ten(factor), 0).ok()
        }
    }
}

/// Bytes that a two's complement number needs.
fn significant_bytes(value: i128) -> usize {
    let magnitude_bits = 128 - if value < 0 { (!value).leading_zeros() } else { value.leading_zeros() };
    magnitude_bits as usize / 8 + 1
}

/// Base-10000 groups without zero groups at either end, and the weight of the first.
fn groups(finite: &Finite<'_>) -> (Vec<u16>, i16) {
    if let Finite::Small(0, _) = finite {
        return (vec![], 0);
    }
    let mut digits = finite.digits();
    let pad = (4 - finite.scale() % 4) % 4;
    digits.resize(digits.len() + pad as usize, b'0');
    let fraction_groups = (finite.scale() + pad) / 4;
    let mut groups: Vec<u16> =
        digits.rchunks(4).map(|chunk| chunk.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0'))).collect();
    groups.reverse();
    let mut weight = groups.len() as i64 - 1 - i64::from(fraction_groups);
    let leading = groups.iter().take_while(|g| **g == 0).count();
    groups.drain(..leading);
    weight -= leading as i64;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    (groups, weight as i16)
}
