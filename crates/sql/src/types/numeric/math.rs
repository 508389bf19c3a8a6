//! Roots, powers, exponentials and logarithms of numerics.
//!
//! The scales of the results are PostgreSQL's: about 16 significant digits, and no fewer than the
//! operands show. They also say how many digits the computation carries, with some to guard the
//! last one; [`super::series`] computes.

use num_bigint::{BigInt, BigUint};

use super::arithmetic::{MAX_RESULT_SCALE, divide_rounding};
use super::series::{self, Binary, Check};
use super::{Numeric, big_power_of_ten, overflow};
use crate::error::{SqlError, sqlstate};

const LOG10_E: f64 = std::f64::consts::LOG10_E;
/// Digits beyond the result's that intermediate values carry.
const GUARD: u32 = 12;
/// Largest power of e that is computed.
const MAX_EXPONENT: f64 = 6000.0;
/// Bits of the largest power that is computed exactly: somewhat more than the type can hold.
const EXACT_BITS: u64 = 500_000;

fn result_scale(digits_before: i64, shown: u32) -> u32 {
    (16 - digits_before).max(i64::from(shown)).clamp(0, MAX_RESULT_SCALE) as u32
}

/// Bits that so many decimal digits need.
fn bits_of(digits: u32) -> u64 {
    u64::from(digits) * 3322 / 1000 + 8
}

impl Numeric {
    /// Value times `10^scale`, rounded. Finite values only.
    fn fixed(&self, scale: u32) -> BigInt {
        let rounded = self.round(scale as i32);
        rounded.finite().map_or(BigInt::ZERO, |f| f.mantissa() * big_power_of_ten(scale - f.scale()))
    }

    fn from_fixed(value: BigInt, from: u32, scale: u32) -> Result<Numeric, SqlError> {
        let rounded = if from > scale {
            divide_rounding(&value, &big_power_of_ten(from - scale))
        } else {
            value * big_power_of_ten(scale - from)
        };
        Numeric::from_big(rounded, scale)
    }

    /// Square root. 2201F for a negative number.
    pub fn sqrt(&self) -> Result<Numeric, SqlError> {
        if self.is_nan() || (self.is_infinite() && self.signum() > 0) {
            return Ok(self.clone());
        }
        if self.signum() < 0 {
            return Err(SqlError::new(
                sqlstate::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
                "cannot take square root of a negative number",
            ));
        }
        let weight = self.leading_group().0;
        let digits_before = ((weight + 1) * 4).div_euclid(2) - 1;
        let scale = result_scale(digits_before, self.scale());
        self.sqrt_to_scale(scale)
    }

    /// Square root of a finite number that is not negative, rounded to a scale.
    pub(crate) fn sqrt_to_scale(&self, scale: u32) -> Result<Numeric, SqlError> {
        let work = scale + 2;
        let exact = self.scale().max(work * 2).next_multiple_of(2);
        let root = series::square_root(self.fixed(exact).magnitude());
        Numeric::from_fixed(BigInt::from(root), exact / 2, scale)
    }

    /// e to this power. 22003 if it overflows.
    pub fn exp(&self) -> Result<Numeric, SqlError> {
        if !self.is_finite() {
            return Ok(if self.is_nan() || self.signum() > 0 { self.clone() } else { Numeric::ZERO });
        }
        let weight = (self.to_f64() * LOG10_E).clamp(-2000.0, 2000.0);
        let scale = result_scale(weight as i64, self.scale());
        if self.to_f64().abs() >= MAX_EXPONENT {
            return if self.signum() > 0 { Err(overflow()) } else { Numeric::ZERO.rescaled(scale) };
        }
        let rough = self.to_f64();
        let digits = (rough * LOG10_E + f64::from(scale)).max(0.0) as u32 + GUARD;
        let bits = bits_of(digits) + 16;
        let Some(finite) = self.finite() else { return Ok(Numeric::NAN) };
        let fixed = (finite.mantissa() << bits) / big_power_of_ten(finite.scale());
        exp_of_fixed(&fixed, bits, rough, scale)
    }

    /// Natural logarithm. 2201E for numbers that are not positive.
    pub fn ln(&self) -> Result<Numeric, SqlError> {
        if let Some(special) = self.check_logarithm()? {
            return Ok(special);
        }
        let scale = result_scale(self.ln_weight(), self.scale());
        self.ln_to_scale(scale)
    }

    /// Logarithm to a base. 2201E for numbers that are not positive, 22012 for base 1.
    pub fn log(&self, base: &Numeric) -> Result<Numeric, SqlError> {
        if base.is_nan() || self.is_nan() {
            return Ok(Numeric::NAN);
        }
        let base_special = base.check_logarithm()?;
        let special = self.check_logarithm()?;
        if base_special.is_some() || special.is_some() {
            if base.is_infinite() && self.is_infinite() {
                return Ok(Numeric::NAN);
            }
            return Ok(if self.is_infinite() { Numeric::INFINITY } else { Numeric::ZERO });
        }
        let weight = self.ln_weight() - base.ln_weight();
        let scale = result_scale(weight, self.scale().max(base.scale()));
        // Both logarithms with more significant digits than the quotient has.
        let digits =
            i64::from(scale) + weight.max(0) + 8 + (-base.ln_weight()).max(0) + (-self.ln_weight()).max(0);
        let digits = u32::try_from(digits).unwrap_or(0) + GUARD;
        let (divisor, _) = base.ln_fixed(digits)?;
        if *base == Numeric::from(1i64) {
            return Err(SqlError::division_by_zero());
        }
        let (dividend, _) = self.ln_fixed(digits)?;
        Numeric::from_big(divide_rounding(&(dividend * big_power_of_ten(scale)), &divisor), scale)
    }

    fn check_logarithm(&self) -> Result<Option<Numeric>, SqlError> {
        if self.is_nan() {
            return Ok(Some(Numeric::NAN));
        }
        let problem = match self.signum() {
            0 => "cannot take logarithm of zero",
            -1 => "cannot take logarithm of a negative number",
            _ => return Ok(self.is_infinite().then_some(Numeric::INFINITY)),
        };
        Err(SqlError::new(sqlstate::INVALID_ARGUMENT_FOR_LOGARITHM, problem))
    }

    /// About the decimal exponent of the natural logarithm.
    fn ln_weight(&self) -> i64 {
        let one = Numeric::from(1i64);
        if *self >= Numeric::new(9, 1) && *self <= Numeric::new(11, 1) {
            let Ok(distance) = self.subtract(&one) else { return 0 };
            let (weight, group) = distance.leading_group();
            return if group > 0 { weight * 4 + i64::from(group.ilog10()) } else { 0 };
        }
        let Some(exponent) = self.decimal_exponent() else { return 0 };
        // 0.d × 10^exponent, with the leading digits as a float.
        let Some((digits, _)) = self.key_digits() else { return 0 };
        let leading: f64 =
            format!("0.{}", String::from_utf8_lossy(&digits[..digits.len().min(16)])).parse().unwrap_or(0.5);
        let ln = leading.ln() + exponent as f64 * std::f64::consts::LN_10;
        ln.abs().log10() as i64
    }

    /// This number to a power. 2201F for 0 to a negative power and for a negative number to a
    /// fraction; 22003 if it overflows. A power of many digits takes long: `check` is asked in
    /// between.
    pub fn power(&self, exponent: &Numeric, check: Check<'_>) -> Result<Numeric, SqlError> {
        let invalid =
            |what: &str| SqlError::new(sqlstate::INVALID_ARGUMENT_FOR_POWER_FUNCTION, what.to_owned());
        if let Some(special) = self.special_power(exponent)? {
            return Ok(special);
        }
        if self.is_zero() && exponent.signum() < 0 {
            return Err(invalid("zero raised to a negative power is undefined"));
        }
        let is_integer = exponent.truncate(0) == *exponent;
        if self.signum() < 0 && !is_integer {
            return Err(invalid("a negative number raised to a non-integer power yields a complex result"));
        }
        if is_integer && let Some(n) = exponent.truncate(0).small().and_then(|(n, _)| i32::try_from(n).ok()) {
            return self.integer_power(n, check);
        }
        if self.is_zero() {
            return Numeric::ZERO.rescaled(16);
        }
        let negative = self.signum() < 0 && exponent.remainder(&Numeric::from(2i64))?.signum() != 0;
        let base = self.abs();
        // About the product of the logarithm and the exponent; both tell the scales.
        let ln_weight = base.ln_weight();
        let rough_scale = u32::try_from(8 - ln_weight).unwrap_or(0);
        let rough = base.ln_to_scale(rough_scale)?.multiply(exponent)?;
        let rough = rough.round(i32::try_from(rough_scale).unwrap_or(i32::MAX)).to_f64();
        if rough.abs() > MAX_EXPONENT * 1.003_333 {
            return if rough > 0.0 {
                Err(overflow())
            } else {
                Numeric::ZERO.rescaled(MAX_RESULT_SCALE as u32)
            };
        }
        let weight = (rough * LOG10_E) as i64;
        let scale = result_scale(weight, self.scale().max(exponent.scale()));
        let significant = (i64::from(scale) + weight).max(0);
        // The logarithm's error is multiplied by the exponent; relative to the product it stays.
        let work = u32::try_from(significant - ln_weight + 8).unwrap_or(0) + GUARD;
        check()?;
        let (ln, bits) =
            base.ln_fixed(work + exponent.decimal_exponent().unwrap_or(0).clamp(0, 20_000) as u32)?;
        let Some(finite) = exponent.finite() else { return Ok(Numeric::NAN) };
        let product = ln * finite.mantissa() / big_power_of_ten(finite.scale());
        check()?;
        let result = exp_of_fixed(&product, bits, rough, scale)?;
        Ok(if negative { result.negate() } else { result })
    }

    fn rescaled(&self, scale: u32) -> Result<Numeric, SqlError> {
        Ok(self.round(scale as i32))
    }

    /// Powers with NaN or an infinity in them.
    fn special_power(&self, exponent: &Numeric) -> Result<Option<Numeric>, SqlError> {
        let one = Numeric::from(1i64);
        if self.is_finite() && exponent.is_finite() {
            return Ok(None);
        }
        if *self == one || exponent.is_zero() {
            return Ok(Some(one));
        }
        if self.is_nan() || exponent.is_nan() {
            return Ok(Some(Numeric::NAN));
        }
        if exponent.is_infinite() {
            let magnitude = self.abs();
            if magnitude == one {
                return Ok(Some(one));
            }
            if self.is_zero() && exponent.signum() < 0 {
                return Err(SqlError::new(
                    sqlstate::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
                    "zero raised to a negative power is undefined",
                ));
            }
            let grows = (magnitude > one) == (exponent.signum() > 0);
            return Ok(Some(if grows { Numeric::INFINITY } else { Numeric::ZERO }));
        }
        if self.signum() < 0 && exponent.truncate(0) != *exponent {
            return Err(SqlError::new(
                sqlstate::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
                "a negative number raised to a non-integer power yields a complex result",
            ));
        }
        if exponent.signum() < 0 {
            return Ok(Some(Numeric::ZERO));
        }
        if self.signum() > 0 {
            return Ok(Some(Numeric::INFINITY));
        }
        let odd = exponent.remainder(&Numeric::from(2i64))?.signum() != 0;
        Ok(Some(if odd { Numeric::NEG_INFINITY } else { Numeric::INFINITY }))
    }

    fn integer_power(&self, n: i32, check: Check<'_>) -> Result<Numeric, SqlError> {
        // Whatever the size of the result, 16 digits after the point.
        let scale = self.scale().clamp(16, MAX_RESULT_SCALE as u32);
        match n {
            0 => return Numeric::from(1i64).rescaled(scale),
            1 => return self.rescaled(scale),
            -1 => return Numeric::from(1i64).divide_to_scale(self, scale),
            _ => {}
        }
        let Some(base) = self.finite().filter(|_| !self.is_zero()) else {
            return Numeric::ZERO.rescaled(scale);
        };
        let weight = f64::from(n) * self.common_logarithm();
        if weight > f64::from(super::MAX_INTEGER_DIGITS as i32) + 1.0 {
            return Err(overflow());
        }
        if weight + 1.0 < -f64::from(scale) {
            return Numeric::ZERO.rescaled(scale);
        }
        let negative = self.signum() < 0 && n % 2 != 0;
        let (times, fraction) = (u64::from(n.unsigned_abs()), u64::from(base.scale()));
        let mantissa = base.mantissa().magnitude().clone();
        // mantissa^times / 10^(fraction × times), or its reciprocal, with `scale` digits after the
        // point.
        let significant = (weight + f64::from(scale)).max(0.0) as u32 + 1;
        let bits = if mantissa.bits().max(fraction * 4).saturating_mul(times) <= EXACT_BITS {
            2 * EXACT_BITS
        } else {
            bits_of(significant + GUARD) + 64
        };
        let power = Binary::power(&mantissa, times, bits, check)?;
        let five = Binary::power(&BigUint::from(5u8), fraction * times, bits, check)?;
        let ten = Binary { exponent: five.exponent + (fraction * times) as i64, ..five };
        let places = big_power_of_ten(scale).magnitude().clone();
        check()?;
        let rounded = if n > 0 { power.quotient(&ten, &places) } else { ten.quotient(&power, &places) };
        Numeric::from_big(if negative { -rounded } else { rounded }, scale)
    }

    /// The logarithm to base 10 of the magnitude, of a finite number that is not zero.
    fn common_logarithm(&self) -> f64 {
        let Some(finite) = self.finite() else { return 0.0 };
        let mantissa = finite.mantissa();
        let excess = mantissa.bits().saturating_sub(64);
        let top = (mantissa.magnitude() >> excess).iter_u64_digits().next().unwrap_or(1);
        (top as f64).log10() + excess as f64 * std::f64::consts::LOG10_2 - f64::from(finite.scale())
    }

    /// `ln(self) × 2^bits` and the bits, which are enough for so many digits after the point.
    /// Positive finite numbers.
    fn ln_fixed(&self, digits: u32) -> Result<(BigInt, u64), SqlError> {
        let bits = bits_of(digits) + 16;
        let Some(finite) = self.finite() else { return Ok((BigInt::ZERO, bits)) };
        let mantissa = finite.mantissa();
        let ten = big_power_of_ten(finite.scale());
        Ok((series::logarithm(mantissa.magnitude(), ten.magnitude(), bits)?, bits))
    }

    fn ln_to_scale(&self, scale: u32) -> Result<Numeric, SqlError> {
        let (ln, bits) = self.ln_fixed(scale + GUARD)?;
        // A number next to one has a logarithm of more digits than a numeric shows.
        let scale = scale.min(super::MAX_SCALE);
        Numeric::from_big(series::to_decimal(&ln, -(bits as i64), &big_power_of_ten(scale)), scale)
    }
}

/// `e^(product / 2^bits)` rounded to a scale; `rough` is about `product / 2^bits`.
fn exp_of_fixed(product: &BigInt, bits: u64, rough: f64, scale: u32) -> Result<Numeric, SqlError> {
    if rough.abs() >= MAX_EXPONENT {
        return if rough > 0.0 { Err(overflow()) } else { Numeric::ZERO.rescaled(scale) };
    }
    let weight = rough * LOG10_E;
    if weight < -f64::from(scale) - 2.0 {
        return Numeric::ZERO.rescaled(scale);
    }
    let digits = (weight + f64::from(scale)).max(0.0) as u32 + GUARD;
    // The whole part of the product needs its bits, too.
    let wanted = bits_of(digits) + 16;
    let product = if bits > wanted { product >> (bits - wanted) } else { product << (wanted - bits) };
    let (value, exponent) = series::exponential(&product, wanted)?;
    Numeric::from_big(series::to_decimal(&value, exponent, &big_power_of_ten(scale)), scale)
}
