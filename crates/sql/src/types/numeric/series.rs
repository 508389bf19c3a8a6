//! Exponentials, logarithms and powers in binary fixed point, where a rounding is a shift.
//!
//! A number here is an integer times a power of two. Arguments are brought near the place where a
//! series converges fast, by powers of two and by roots or squarings; how many of those pay is
//! about the root of the number of bits. With 12,000 bits (3,600 digits, the most that
//! [`super::math`] asks for except for numbers next to one) each takes some milliseconds. For a
//! logarithm to a base next to one it may be 110,000 bits, which take seconds: what is computed is
//! counted as [`Work`], and asks now and then whether to go on.
//!
//! ```text
//! e^x  = 2^k · (e^((x - k·ln 2) / 2^j))^(2^j)
//! ln x = k·ln 2 + 2^(j+1) · artanh((y - 1) / (y + 1)),   y = (x / 2^k)^(1 / 2^j)
//! ```

use num_bigint::{BigInt, BigUint, Sign};

use crate::error::SqlError;
use crate::types::bounds::ask;

/// Asked between the steps of a computation that takes long; what it fails with ends the
/// computation.
pub type Check<'a> = &'a dyn Fn() -> Result<(), SqlError>;

/// Products of two words between two questions: about a millisecond.
const UNASKED: u64 = 1 << 20;

/// Counts what has been computed.
#[derive(Default)]
struct Work {
    unasked: u64,
}

impl Work {
    /// A number of so many bits comes that is divided by a small one. Fails once the statement
    /// should stop.
    fn short(&mut self, bits: u64) -> Result<(), SqlError> {
        self.add(bits / 64 + 1)
    }

    /// Two of so many bits are multiplied or divided.
    fn long(&mut self, bits: u64) -> Result<(), SqlError> {
        let words = bits / 64 + 1;
        self.add(words * words)
    }

    fn add(&mut self, products: u64) -> Result<(), SqlError> {
        self.unasked += products;
        if self.unasked < UNASKED {
            return Ok(());
        }
        self.unasked = 0;
        ask()
    }
}

/// `value × 2^shift`, rounded down.
fn shifted(value: BigInt, shift: i64) -> BigInt {
    if shift >= 0 { value << shift as u64 } else { value >> shift.unsigned_abs() }
}

/// `artanh(1 / n) × 2^bits`.
fn artanh_of_reciprocal(n: u32, bits: u64, work: &mut Work) -> Result<BigInt, SqlError> {
    let mut term = (BigInt::from(1) << bits) / n;
    let square = n * n;
    let mut sum = term.clone();
    let mut divisor = 3u32;
    while term.sign() != Sign::NoSign {
        work.short(bits)?;
        term /= square;
        sum += &term / divisor;
        divisor += 2;
    }
    Ok(sum)
}

/// `ln 2 × 2^bits`, by Machin's kind of formula: 18 artanh(1/26) - 2 artanh(1/4801) + 8
/// artanh(1/8749).
fn ln_two(bits: u64, work: &mut Work) -> Result<BigInt, SqlError> {
    let bits = bits + 32;
    let sum = artanh_of_reciprocal(26, bits, work)? * 18 - artanh_of_reciprocal(4801, bits, work)? * 2
        + artanh_of_reciprocal(8749, bits, work)? * 8;
    Ok(sum >> 32u32)
}

/// The integer part of a root. Each step doubles the number of right digits, so all of them cost
/// about as much as the last.
pub(super) fn square_root(value: &BigUint) -> BigUint {
    let bits = value.bits();
    if bits <= 1024 {
        return value.sqrt();
    }
    let half = bits / 4 - 8;
    let guess = square_root(&(value >> (2 * half))) << half;
    let mut root: BigUint = (&guess + value / &guess) >> 1u32;
    while &root * &root > *value {
        root -= 1u32;
    }
    loop {
        let next = &root + 1u32;
        if &next * &next > *value {
            return root;
        }
        root = next;
    }
}

/// `e^x` for `x = mantissa / 2^bits`: an integer and the power of two that it is times, right to
/// nearly `bits` bits.
///
/// # Errors
/// What ends the statement.
pub(super) fn exponential(mantissa: &BigInt, bits: u64) -> Result<(BigInt, i64), SqlError> {
    let mut work = Work::default();
    let halvings = (bits as f64).sqrt() as u64 / 2 + 8;
    let extra = 2 * halvings + 32;
    let carried = bits + extra;
    let x = mantissa << extra;
    // The nearest multiple of ln 2; its number has few bits.
    let two = ln_two(carried + 32, &mut work)?;
    let k = ((&x << 33u32) / &two + 1i32) >> 1u32;
    let rest = x - ((two * &k) >> 32u32);
    let small = rest >> halvings;
    let one = BigInt::from(1) << carried;
    let mut sum = &one + &small;
    let mut term = small.clone();
    let mut n = 2u32;
    loop {
        work.long(carried)?;
        term = ((term * &small) >> carried) / n;
        // Shifting a negative number down ends at -1, not at 0.
        if term.magnitude().bits() <= 1 {
            break;
        }
        sum += &term;
        n += 1;
    }
    for _ in 0..halvings {
        work.long(carried)?;
        sum = (&sum * &sum) >> carried;
    }
    let k = i64::try_from(&k).unwrap_or(0);
    Ok((sum, k - carried as i64))
}

/// The natural logarithm of a positive mantissa divided by a power of ten, times `2^bits`.
///
/// # Errors
/// What ends the statement.
pub(super) fn logarithm(mantissa: &BigUint, power_of_ten: &BigUint, bits: u64) -> Result<BigInt, SqlError> {
    let mut work = Work::default();
    let extra = 64 + (bits as f64).sqrt() as u64 / 2;
    let carried = bits + extra;
    // x / 2^k between about 2/3 and 4/3, with `carried` bits after the point.
    let mut k = mantissa.bits() as i64 - power_of_ten.bits() as i64;
    let quotient = |k: i64| -> BigUint {
        let shift = carried as i64 - k;
        if shift >= 0 {
            (mantissa << shift as u64) / power_of_ten
        } else {
            (mantissa >> shift.unsigned_abs()) / power_of_ten
        }
    };
    let one = BigUint::from(1u8) << carried;
    let four_thirds = &one + &one / 3u8;
    let two_thirds = &one - &one / 3u8;
    let mut y = quotient(k);
    if y > four_thirds {
        k += 1;
        y = quotient(k);
    } else if y < two_thirds {
        k -= 1;
        y = quotient(k);
    }
    let y = BigInt::from(y);
    let one = BigInt::from(one);
    let mut result = near_one(y, &one, carried, bits, &mut work)?;
    if k != 0 {
        result += ln_two(carried, &mut work)? * k;
    }
    Ok(result >> extra)
}

/// The logarithm of a fixed-point number not far from one.
fn near_one(
    mut y: BigInt,
    one: &BigInt,
    carried: u64,
    bits: u64,
    work: &mut Work,
) -> Result<BigInt, SqlError> {
    let distance = carried.saturating_sub((&y - one).bits());
    let roots = ((bits as f64).sqrt() as u64 / 3).saturating_sub(distance);
    for _ in 0..roots {
        work.long(2 * carried)?;
        y = BigInt::from(square_root((y << carried).magnitude()));
    }
    let z = ((&y - one) << carried) / (&y + one);
    let square = (&z * &z) >> carried;
    let mut power = z.clone();
    let mut sum = z;
    let mut n = 3u32;
    while power.magnitude().bits() > 1 {
        work.long(carried)?;
        power = (power * &square) >> carried;
        sum += &power / n;
        n += 2;
    }
    Ok(sum << (roots + 1))
}

/// A positive number as mantissa times a power of two, cut to a number of bits.
#[derive(Clone)]
pub(super) struct Binary {
    pub(super) mantissa: BigUint,
    pub(super) exponent: i64,
}

impl Binary {
    fn cut(mantissa: BigUint, exponent: i64, bits: u64) -> Binary {
        match mantissa.bits().checked_sub(bits).filter(|excess| *excess > 0) {
            Some(excess) => Binary { mantissa: mantissa >> excess, exponent: exponent + excess as i64 },
            None => Binary { mantissa, exponent },
        }
    }

    /// A number to a power, right to nearly `bits` bits.
    pub(super) fn power(base: &BigUint, n: u64, bits: u64, check: Check<'_>) -> Result<Binary, SqlError> {
        let bits = bits + 2 * u64::from(u64::BITS - n.leading_zeros()) + 8;
        let mut result = Binary { mantissa: BigUint::from(1u8), exponent: 0 };
        let base = Binary::cut(base.clone(), 0, bits);
        for place in (0..u64::BITS - n.leading_zeros()).rev() {
            check()?;
            let square = &result.mantissa * &result.mantissa;
            result = Binary::cut(square, 2 * result.exponent, bits);
            if n >> place & 1 == 1 {
                let product = result.mantissa * &base.mantissa;
                result = Binary::cut(product, result.exponent + base.exponent, bits);
            }
        }
        Ok(result)
    }

    /// The quotient times a power of ten, rounded to an integer.
    pub(super) fn quotient(&self, divisor: &Binary, times: &BigUint) -> BigInt {
        let dividend = &self.mantissa * times;
        // Doubled, so that the last bit tells how to round.
        let shift = self.exponent - divisor.exponent + 1;
        let doubled = if shift >= 0 {
            (dividend << shift as u64) / &divisor.mantissa
        } else {
            dividend / (&divisor.mantissa << shift.unsigned_abs())
        };
        BigInt::from((doubled + 1u32) >> 1u32)
    }
}

/// `value × 2^exponent × ten`, rounded to an integer, half away from zero.
pub(super) fn to_decimal(value: &BigInt, exponent: i64, ten: &BigInt) -> BigInt {
    let doubled = shifted(value * ten, exponent + 1);
    (doubled + 1i32) >> 1u32
}
