//! Exact decimals.
//!
//! A finite value is `mantissa × 10^-scale`. Up to 38 digits the mantissa is an `i128` held inline,
//! which is every amount of money there is; above that it is a shared big integer. The scale is
//! what is displayed: 1.50 and 1.5 are equal and print differently. Scale rules and rounding (half
//! away from zero) are PostgreSQL's.

mod arithmetic;
mod convert;
mod math;
mod moments;
mod radix;
mod series;
mod wire;
mod word;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use num_bigint::{BigInt, Sign};

pub(crate) use self::moments::Moments;
pub use self::series::Check;
pub use self::word::Arithmetic;
pub(crate) use self::word::Word;

use crate::error::{SqlError, sqlstate};

/// Most digits after the decimal point that a value can carry.
const MAX_SCALE: u32 = 16383;
/// Most digits before the decimal point.
const MAX_INTEGER_DIGITS: i64 = 131_072;

/// An exact decimal, NaN, or an infinity.
#[derive(Clone)]
pub struct Numeric(Repr);

#[derive(Clone)]
enum Repr {
    /// The halves of an `i128`, so that the value keeps the alignment of a word.
    Small {
        high: i64,
        low: u64,
        scale: u16,
    },
    /// A mantissa outside `i128`.
    Big(Arc<Big>),
    NaN,
    PositiveInfinity,
    NegativeInfinity,
}

struct Big {
    mantissa: BigInt,
    scale: u16,
}

/// A finite value taken apart.
enum Finite<'a> {
    Small(i128, u32),
    Big(&'a BigInt, u32),
}

impl Finite<'_> {
    fn scale(&self) -> u32 {
        match self {
            Finite::Small(_, scale) | Finite::Big(_, scale) => *scale,
        }
    }

    fn mantissa(&self) -> BigInt {
        match self {
            Finite::Small(value, _) => BigInt::from(*value),
            Finite::Big(value, _) => (*value).clone(),
        }
    }
}

/// The mantissa of these halves.
#[inline]
fn joined(high: i64, low: u64) -> i128 {
    (i128::from(high) << 64) | i128::from(low)
}

/// The product, if it stays small. Of factors that fit a word each it always does, and no check is
/// needed.
#[inline]
fn product(x: i128, y: i128) -> Option<i128> {
    match (i64::try_from(x), i64::try_from(y)) {
        (Ok(x), Ok(y)) => Some(i128::from(x) * i128::from(y)),
        _ => x.checked_mul(y),
    }
}

/// `10^n` for n up to 38.
#[inline]
fn power_of_ten(n: u32) -> Option<i128> {
    const TABLE: [i128; 39] = {
        let mut table = [1i128; 39];
        let mut i = 1;
        while i < 39 {
            table[i] = table[i - 1] * 10;
            i += 1;
        }
        table
    };
    TABLE.get(n as usize).copied()
}

fn big_power_of_ten(n: u32) -> BigInt {
    match power_of_ten(n) {
        Some(power) => BigInt::from(power),
        None => BigInt::from(10u8).pow(n),
    }
}

/// Number of decimal digits of a magnitude; 1 for 0.
fn decimal_digits(magnitude: u128) -> u32 {
    magnitude.checked_ilog10().map_or(1, |log| log + 1)
}

#[cold]
fn overflow() -> SqlError {
    SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
}

impl Numeric {
    /// Not a number; greater than everything else in sorting.
    pub const NAN: Numeric = Numeric(Repr::NaN);
    /// Positive infinity.
    pub const INFINITY: Numeric = Numeric(Repr::PositiveInfinity);
    /// Negative infinity.
    pub const NEG_INFINITY: Numeric = Numeric(Repr::NegativeInfinity);
    /// 0.
    pub const ZERO: Numeric = Numeric(Repr::Small { high: 0, low: 0, scale: 0 });

    /// `mantissa × 10^-scale`; `scale` at most `MAX_SCALE`.
    pub fn new(mantissa: i128, scale: u16) -> Numeric {
        debug_assert!(u32::from(scale) <= MAX_SCALE);
        Numeric(Repr::Small { high: (mantissa >> 64) as i64, low: mantissa as u64, scale })
    }

    /// The same of any size. Fails with 22003 beyond the limits of the type.
    fn from_big(mantissa: BigInt, scale: u32) -> Result<Numeric, SqlError> {
        let scale16 = u16::try_from(scale).ok().filter(|_| scale <= MAX_SCALE).ok_or_else(overflow)?;
        if let Ok(small) = i128::try_from(&mantissa) {
            return Ok(Numeric::new(small, scale16));
        }
        // bits / log2(10) bounds the digits; only near the limit are they counted.
        let bits = mantissa.bits();
        if bits > 430_000
            && radix::digits(mantissa.magnitude()) > MAX_INTEGER_DIGITS as u64 + u64::from(scale)
        {
            return Err(overflow());
        }
        Ok(Numeric(Repr::Big(Arc::new(Big { mantissa, scale: scale16 }))))
    }

    /// A number that may be beyond the limits of the type, for what comes out of it. The scale is
    /// at most twice the type's.
    fn beyond(mantissa: BigInt, scale: u32) -> Numeric {
        let scale = scale.min(2 * MAX_SCALE) as u16;
        match i128::try_from(&mantissa) {
            Ok(small) => Numeric(Repr::Small { high: (small >> 64) as i64, low: small as u64, scale }),
            Err(_) => Numeric(Repr::Big(Arc::new(Big { mantissa, scale }))),
        }
    }

    #[inline]
    fn finite(&self) -> Option<Finite<'_>> {
        match &self.0 {
            Repr::Small { high, low, scale } => Some(Finite::Small(joined(*high, *low), u32::from(*scale))),
            Repr::Big(big) => Some(Finite::Big(&big.mantissa, u32::from(big.scale))),
            _ => None,
        }
    }

    /// Is it NaN?
    pub fn is_nan(&self) -> bool {
        matches!(self.0, Repr::NaN)
    }

    /// Is it one of the infinities?
    pub fn is_infinite(&self) -> bool {
        matches!(self.0, Repr::PositiveInfinity | Repr::NegativeInfinity)
    }

    /// Neither NaN nor infinite?
    pub fn is_finite(&self) -> bool {
        matches!(self.0, Repr::Small { .. } | Repr::Big(_))
    }

    /// Is it 0 (of any scale)?
    pub fn is_zero(&self) -> bool {
        matches!(self.0, Repr::Small { high: 0, low: 0, .. })
    }

    /// -1, 0 or 1; 1 for NaN.
    pub fn signum(&self) -> i32 {
        match &self.0 {
            Repr::NaN | Repr::PositiveInfinity => 1,
            Repr::NegativeInfinity => -1,
            Repr::Small { high, low, .. } => {
                if *high < 0 {
                    -1
                } else {
                    i32::from(*high != 0 || *low != 0)
                }
            }
            Repr::Big(big) => {
                if big.mantissa.sign() == Sign::Minus {
                    -1
                } else {
                    1
                }
            }
        }
    }

    /// Digits after the decimal point that are displayed; 0 if not finite.
    #[inline]
    pub fn scale(&self) -> u32 {
        match &self.0 {
            Repr::Small { scale, .. } => u32::from(*scale),
            Repr::Big(big) => u32::from(big.scale),
            _ => 0,
        }
    }

    /// Mantissa and scale if the value is finite and the mantissa fits.
    pub fn small(&self) -> Option<(i128, u32)> {
        match self.finite() {
            Some(Finite::Small(value, scale)) => Some((value, scale)),
            _ => None,
        }
    }

    /// Bits of a mantissa that is not small; 0 of another.
    pub fn bits(&self) -> u64 {
        if let Repr::Big(big) = &self.0 { big.mantissa.bits() } else { 0 }
    }

    /// The same value with no zeros at the end of the fraction.
    pub fn normalized(&self) -> Numeric {
        match self.finite() {
            None => self.clone(),
            Some(Finite::Small(mut value, mut scale)) => {
                if value == 0 {
                    return Numeric::ZERO;
                }
                while scale > 0 && value % 10 == 0 {
                    value /= 10;
                    scale -= 1;
                }
                Numeric::new(value, scale as u16)
            }
            Some(Finite::Big(value, mut scale)) => {
                let mut value = value.clone();
                let zero = BigInt::ZERO;
                // Many zeros at a time, then half as many: one by one, those of a long number would
                // take seconds. A scale has no more bits than that.
                for places in (0..15).rev().map(|bit| 1u32 << bit) {
                    if places > scale || &value % 10u32 != zero {
                        continue;
                    }
                    let power = big_power_of_ten(places);
                    if &value % &power == zero {
                        value /= power;
                        scale -= places;
                    }
                }
                // Fewer digits at the same scale or less cannot overflow.
                Numeric::from_big(value, scale).unwrap_or(Numeric::NAN)
            }
        }
    }

    /// Position of the first digit: the value is `0.d… × 10^n` for the returned n. `None` for 0 and
    /// non-finite values.
    fn decimal_exponent(&self) -> Option<i64> {
        match self.finite()? {
            Finite::Small(0, _) => None,
            Finite::Small(value, scale) => {
                Some(i64::from(decimal_digits(value.unsigned_abs())) - i64::from(scale))
            }
            Finite::Big(value, scale) => Some(radix::digits(value.magnitude()) as i64 - i64::from(scale)),
        }
    }

    fn rank(&self) -> i8 {
        match self.0 {
            Repr::NegativeInfinity => -1,
            Repr::PositiveInfinity => 1,
            Repr::NaN => 2,
            _ => 0,
        }
    }
}

impl Ord for Numeric {
    #[inline]
    fn cmp(&self, other: &Numeric) -> Ordering {
        match (self.word(), other.word()) {
            (Some(a), Some(b)) if a.scale == b.scale => a.mantissa.cmp(&b.mantissa),
            _ => self.compare_any(other),
        }
    }
}

impl Numeric {
    fn compare_any(&self, other: &Numeric) -> Ordering {
        let (Some(a), Some(b)) = (self.finite(), other.finite()) else {
            return self.rank().cmp(&other.rank());
        };
        if let (Finite::Small(x, s), Finite::Small(y, t)) = (&a, &b) {
            if s == t {
                return x.cmp(y);
            }
            if x.signum() != y.signum() {
                return x.cmp(y);
            }
            let aligned = if s < t {
                power_of_ten(t - s).and_then(|p| product(*x, p)).map(|x| x.cmp(y))
            } else {
                power_of_ten(s - t).and_then(|p| product(*y, p)).map(|y| x.cmp(&y))
            };
            if let Some(ordering) = aligned {
                return ordering;
            }
        }
        let scale = a.scale().max(b.scale());
        let x = a.mantissa() * big_power_of_ten(scale - a.scale());
        let y = b.mantissa() * big_power_of_ten(scale - b.scale());
        x.cmp(&y)
    }
}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Numeric) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Numeric) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

impl Hash for Numeric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let normal = self.normalized();
        match normal.finite() {
            None => state.write_i8(normal.rank()),
            Some(Finite::Small(value, scale)) => {
                state.write_u32(scale);
                state.write_i128(value);
            }
            Some(Finite::Big(value, scale)) => {
                state.write_u32(scale);
                value.hash(state);
            }
        }
    }
}

impl fmt::Debug for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Vec::new();
        self.write_text(&mut out);
        f.pad(std::str::from_utf8(&out).unwrap_or_default())
    }
}
