//! Roots, powers, exponentials and logarithms of numerics.
//!
//! Computed in fixed point over big integers with guard digits, then rounded. The scales of the results are PostgreSQL's:
//! about 16 significant digits, and no fewer than the operands show.

use num_bigint::{BigInt, Sign};

use super::arithmetic::{MAX_RESULT_SCALE, divide_rounding};
use super::{Numeric, big_power_of_ten, overflow};
use crate::error::{SqlError, sqlstate};

const LOG10_E: f64 = std::f64::consts::LOG10_E;
/// Digits beyond the result's that intermediate values carry.
const GUARD: u32 = 12;
/// Largest power of e that is computed.
const MAX_EXPONENT: f64 = 6000.0;
/// Largest number of digits that a power is computed with exactly.
const EXACT_DIGITS: u64 = 8_000;

fn result_scale(digits_before: i64, shown: u32) -> u32 {
    (16 - digits_before).max(i64::from(shown)).clamp(0, MAX_RESULT_SCALE) as u32
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
        let root = self.fixed(exact).sqrt();
        Numeric::from_fixed(root, exact / 2, scale)
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
        exp_to_scale(self, scale)
    }

    /// Natural logarithm. 2201E for numbers that are not positive.
    pub fn ln(&self) -> Result<Numeric, SqlError> {
        if let Some(special) = self.check_logarithm()? {
            return Ok(special);
        }
        let scale = result_scale(self.ln_weight(), self.scale());
        let work = scale + GUARD;
        Numeric::from_fixed(ln_fixed(self, work), work, scale)
    }

    /// Logarithm to a base. 2201E for numbers that are not positive, 22012 for base 1.
    pub fn log(&self, base: &Numeric) -> Result<Numeric, SqlError> {
        let base_special = base.check_logarithm()?;
        let special = self.check_logarithm()?;
        if base_special.is_some() || special.is_some() {
            if base.is_nan() || self.is_nan() || (base.is_infinite() && self.is_infinite()) {
                return Ok(Numeric::NAN);
            }
            return Ok(if self.is_infinite() { Numeric::INFINITY } else { Numeric::ZERO });
        }
        let weight = self.ln_weight() - base.ln_weight();
        let scale = result_scale(weight, self.scale().max(base.scale()));
        let work = scale + GUARD + 8 + weight.unsigned_abs() as u32;
        let divisor = ln_fixed(base, work);
        if divisor.sign() == Sign::NoSign {
            return Err(SqlError::division_by_zero());
        }
        let quotient = divide_rounding(&(ln_fixed(self, work) * big_power_of_ten(work)), &divisor);
        Numeric::from_fixed(quotient, work, scale)
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

    /// This number to a power. 2201F for 0 to a negative power and for a negative number to a fraction; 22003 if it overflows.
    pub fn power(&self, exponent: &Numeric) -> Result<Numeric, SqlError> {
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
            return self.integer_power(n);
        }
        if self.is_zero() {
            return Numeric::ZERO.rescaled(16);
        }
        let weight = self.abs().to_f64().log10() * exponent.to_f64();
        let limit = MAX_EXPONENT * LOG10_E * 1.003;
        if weight > limit {
            return Err(overflow());
        }
        if weight < -limit {
            return Numeric::ZERO.rescaled(MAX_RESULT_SCALE as u32);
        }
        let scale = result_scale(weight as i64, self.scale().max(exponent.scale()));
        let negative = self.signum() < 0 && exponent.remainder(&Numeric::from(2i64))?.signum() != 0;
        // The error of the logarithm is multiplied by the exponent and the result.
        let work = scale
            + GUARD
            + 8
            + exponent.decimal_exponent().unwrap_or(0).max(0) as u32
            + weight.max(0.0) as u32;
        let ln = Numeric::from_fixed(ln_fixed(&self.abs(), work), work, work)?;
        let product = ln.multiply(exponent)?;
        let result = exp_to_scale(&product, scale)?;
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
        if exponent.signum() < 0 {
            return Ok(Some(Numeric::ZERO));
        }
        if self.signum() > 0 {
            return Ok(Some(Numeric::INFINITY));
        }
        if exponent.truncate(0) != *exponent {
            return Err(SqlError::new(
                sqlstate::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
                "a negative number raised to a non-integer power yields a complex result",
            ));
        }
        let odd = exponent.remainder(&Numeric::from(2i64))?.signum() != 0;
        Ok(Some(if odd { Numeric::NEG_INFINITY } else { Numeric::INFINITY }))
    }

    fn integer_power(&self, n: i32) -> Result<Numeric, SqlError> {
        let digits = self.key_digits();
        let weight = match &digits {
            None => 0.0,
            Some((digits, exponent)) => {
                let leading = digits.len().min(16);
                let value: f64 = String::from_utf8_lossy(&digits[..leading]).parse().unwrap_or(1.0);
                f64::from(n) * (value.log10() + (*exponent - leading as i64) as f64)
            }
        };
        if weight > 131_076.0 {
            return Err(overflow());
        }
        // Whatever the size of the result, 16 digits after the point.
        let scale = self.scale().clamp(16, MAX_RESULT_SCALE as u32);
        let count = digits.as_ref().map_or(1, |(d, _)| d.len() as u64) + u64::from(self.scale());
        if count * u64::from(n.unsigned_abs()) <= EXACT_DIGITS {
            let Some(base) = self.finite() else { return Ok(Numeric::NAN) };
            let power = base.mantissa().pow(n.unsigned_abs());
            let fraction = base.scale() * n.unsigned_abs();
            return if n >= 0 {
                Numeric::from_fixed(power, fraction, scale)
            } else {
                let numerator = big_power_of_ten(fraction + scale);
                Numeric::from_big(divide_rounding(&numerator, &power), scale)
            };
        }
        let negative = self.signum() < 0 && n % 2 != 0;
        let work = scale + GUARD + 12 + weight.max(0.0) as u32;
        let ln = Numeric::from_fixed(ln_fixed(&self.abs(), work), work, work)?;
        let result = exp_to_scale(&ln.multiply(&Numeric::from(n))?, scale)?;
        Ok(if negative { result.negate() } else { result })
    }
}

/// `e^x` rounded to a scale.
fn exp_to_scale(x: &Numeric, scale: u32) -> Result<Numeric, SqlError> {
    let estimate = x.to_f64() * LOG10_E;
    if estimate > 131_080.0 {
        return Err(overflow());
    }
    if estimate < -f64::from(scale) - 10.0 {
        return Ok(Numeric::new(0, scale as u16));
    }
    // e^x = (e^(x / 2^halvings))^(2^halvings); each squaring doubles the error.
    let halvings = (x.to_f64().abs().max(1.0).log2().ceil() as u32) + 8;
    let work = scale + GUARD + estimate.max(0.0) as u32 + halvings;
    let one = big_power_of_ten(work);
    let small = x.fixed(work) >> halvings;
    let mut sum = one.clone();
    let mut term = one.clone();
    let mut n = 1u32;
    while term.sign() != Sign::NoSign {
        term = term * &small / &one / n;
        sum += &term;
        n += 1;
        // Shifting a negative number down ends at -1, not at 0.
        if term.magnitude().bits() <= 1 {
            break;
        }
    }
    for _ in 0..halvings {
        sum = &sum * &sum / &one;
    }
    Numeric::from_fixed(sum, work, scale)
}

/// Natural logarithm of a positive number, times `10^work`.
fn ln_fixed(x: &Numeric, work: u32) -> BigInt {
    let Some(exponent) = x.decimal_exponent() else { return BigInt::ZERO };
    let extra = 24;
    let scale = work + extra;
    let one = big_power_of_ten(scale);
    // Mantissa in [0.1, 1), times 10 for numbers near 1 from above to keep ln(10) out where it can be.
    let near_one = exponent == 1 && *x < Numeric::from(2i64);
    let shift = if near_one { 0 } else { exponent };
    let mantissa = match (shift, x.finite()) {
        (_, None) => return BigInt::ZERO,
        (shift, Some(f)) => {
            let up = i64::from(scale) - i64::from(f.scale()) - shift;
            if up >= 0 {
                f.mantissa() * big_power_of_ten(up as u32)
            } else {
                divide_rounding(&f.mantissa(), &big_power_of_ten(-up as u32))
            }
        }
    };
    let mut result = ln_of_fixed(mantissa, &one, scale);
    if shift != 0 {
        // ln(10) = -ln(0.1)
        let ln_ten = -ln_of_fixed(&one / 10u32, &one, scale);
        result += ln_ten * shift;
    }
    divide_rounding(&result, &big_power_of_ten(extra))
}

/// Logarithm in fixed point: square roots bring the number near 1, then `2·artanh((x-1)/(x+1))`.
fn ln_of_fixed(mut x: BigInt, one: &BigInt, scale: u32) -> BigInt {
    let mut roots = 0u32;
    let near = one / 1000u32;
    while (&x - one).magnitude() > near.magnitude() && roots < 40 {
        x = (x * big_power_of_ten(scale)).sqrt();
        roots += 1;
    }
    let z = (&x - one) * one / (&x + one);
    let square = &z * &z / one;
    let mut term = z.clone();
    let mut sum = z;
    let mut n = 3u32;
    while term.magnitude().bits() > 1 {
        term = term * &square / one;
        sum += &term / n;
        n += 2;
    }
    (sum * 2u32) << roots
}
