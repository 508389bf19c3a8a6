//! Exact amounts: cents in an `i64`, sent and received as PostgreSQL's binary `numeric`.
//!
//! The driver has no type of its own for `numeric`. An order's total must not pass through a
//! floating-point number, so this file carries the binary format: four 16-bit words (digit count,
//! weight of the first digit, sign, display scale), then the digits in base 10,000, most
//! significant first. The scale here is always 2.

use std::error::Error;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Mul, Sub};

use bytes::{Buf, BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// An amount of money in cents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(pub i64);

const NEGATIVE: u16 = 0x4000;
const SPECIAL: u16 = 0xc000;

impl Money {
    /// `percent` of this amount, in hundredths of a percent so that 8.25 % is 825; halves round up.
    pub fn share(self, hundredths_of_percent: i64) -> Money {
        let exact = i128::from(self.0) * i128::from(hundredths_of_percent);
        Money(((exact + 5_000).div_euclid(10_000)) as i64)
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}.{:02}", self.0.unsigned_abs() / 100, self.0.unsigned_abs() % 100)
    }
}

impl Add for Money {
    type Output = Money;
    fn add(self, other: Money) -> Money {
        Money(self.0 + other.0)
    }
}

impl Sub for Money {
    type Output = Money;
    fn sub(self, other: Money) -> Money {
        Money(self.0 - other.0)
    }
}

impl Mul<i64> for Money {
    type Output = Money;
    fn mul(self, n: i64) -> Money {
        Money(self.0 * n)
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Money>>(iter: I) -> Money {
        iter.fold(Money(0), Add::add)
    }
}

impl ToSql for Money {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        // The fraction is one base-10,000 digit: cents times 100. The rest are the whole units.
        let cents = self.0.unsigned_abs();
        let mut digits = vec![(cents % 100 * 100) as u16];
        let mut units = cents / 100;
        while units > 0 {
            digits.push((units % 10_000) as u16);
            units /= 10_000;
        }
        let weight = digits.len() as i16 - 2;
        digits.reverse();
        let used = digits.iter().rposition(|d| *d != 0).map_or(0, |last| last + 1);
        out.put_u16(used as u16);
        out.put_i16(if used == 0 { 0 } else { weight });
        out.put_u16(if self.0 < 0 { NEGATIVE } else { 0 });
        out.put_u16(2);
        for digit in &digits[..used] {
            out.put_u16(*digit);
        }
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::NUMERIC
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Money {
    fn from_sql(_: &Type, mut raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        if raw.len() < 8 {
            return Err("a numeric shorter than its header".into());
        }
        let count = raw.get_u16();
        let weight = i32::from(raw.get_i16());
        let sign = raw.get_u16();
        let _scale = raw.get_u16();
        if sign & SPECIAL == SPECIAL {
            return Err("not a finite amount".into());
        }
        if raw.len() != usize::from(count) * 2 {
            return Err("a numeric whose length and digit count disagree".into());
        }
        // Sum every digit at its power of 10,000, in units of a hundredth of a cent (exponent -1 is
        // one digit).
        let mut total: i128 = 0;
        for place in 0..i32::from(count) {
            let digit = i128::from(raw.get_u16());
            let exponent = weight - place + 1;
            if exponent < 0 {
                if digit != 0 {
                    return Err("an amount finer than a hundredth of a cent".into());
                }
                continue;
            }
            let power = 10_000_i128.checked_pow(exponent as u32).ok_or("an amount too large")?;
            total += digit.checked_mul(power).ok_or("an amount too large")?;
        }
        if total % 100 != 0 {
            return Err("an amount finer than a cent".into());
        }
        let cents = i64::try_from(total / 100)?;
        Ok(Money(if sign == NEGATIVE { -cents } else { cents }))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::NUMERIC
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(cents: i64) -> (Vec<u8>, i64) {
        let mut out = BytesMut::new();
        Money(cents).to_sql(&Type::NUMERIC, &mut out).unwrap();
        let back = Money::from_sql(&Type::NUMERIC, &out).unwrap();
        (out.to_vec(), back.0)
    }

    #[test]
    fn amounts_survive_the_wire() {
        for cents in [0, 1, 99, 100, 101, 999_999, 1_000_000, 1_000_001, 123_456_789_012, -1, -250, i64::MAX]
        {
            assert_eq!(round_trip(cents).1, cents, "{cents} cents");
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        // 12345.60 = digits 1, 2345, 6000; weight 1; scale 2.
        assert_eq!(
            round_trip(1_234_560).0,
            [0, 3, 0, 1, 0, 0, 0, 2, 0, 1, 0x09, 0x29, 0x17, 0x70],
            "12345.60"
        );
        assert_eq!(round_trip(0).0, [0, 0, 0, 0, 0, 0, 0, 2], "zero has no digit");
    }

    #[test]
    fn values_that_are_no_amount_are_refused() {
        assert!(Money::from_sql(&Type::NUMERIC, &[0, 0, 0, 0, 0xc0, 0, 0, 0]).is_err(), "NaN");
        assert!(Money::from_sql(&Type::NUMERIC, &[0, 1, 0xff, 0xff, 0, 0, 0, 4, 0, 1]).is_err(), "0.0001");
        assert!(Money::from_sql(&Type::NUMERIC, &[0, 9, 0, 0]).is_err(), "cut short");
    }

    #[test]
    fn shares_round_to_the_nearest_cent() {
        assert_eq!(Money(1000).share(825), Money(83), "8.25 % of 10.00");
        assert_eq!(Money(100).share(10_000), Money(100));
        assert_eq!(Money(101).share(5_000), Money(51), "halves round up");
        assert_eq!(Money(-5).to_string(), "-0.05");
    }
}
