//! The four operations, remainder and rounding, with PostgreSQL's scales.

use num_bigint::{BigInt, Sign};

use super::{Finite, MAX_SCALE, Numeric, Repr, big_power_of_ten, joined, power_of_ten, product};
use crate::error::{SqlError, sqlstate};

/// Fewest significant digits of a quotient.
const MIN_SIGNIFICANT_DIGITS: i64 = 16;
/// Most digits after the point that an operation chooses by itself.
pub(super) const MAX_RESULT_SCALE: i64 = 1000;

impl Numeric {
    /// Sum; scale is the larger of the two.
    pub fn add(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        let (Some(a), Some(b)) = (self.finite(), other.finite()) else {
            return Ok(match (&self.0, &other.0) {
                (Repr::NaN, _) | (_, Repr::NaN) => Numeric::NAN,
                (Repr::PositiveInfinity, Repr::NegativeInfinity)
                | (Repr::NegativeInfinity, Repr::PositiveInfinity) => Numeric::NAN,
                (Repr::PositiveInfinity | Repr::NegativeInfinity, _) => self.clone(),
                _ => other.clone(),
            });
        };
        if let Some((x, y, scale)) = align(&a, &b)
            && let Some(sum) = x.checked_add(y)
        {
            return Ok(Numeric::new(sum, scale as u16));
        }
        let (x, y, scale) = align_big(&a, &b);
        Numeric::from_big(x + y, scale)
    }

    /// Adds a value to this one.
    #[inline]
    pub(crate) fn accumulate(&mut self, value: &Numeric) -> Result<(), SqlError> {
        if let (Repr::Small { high, low, scale }, Repr::Small { high: h, low: l, scale: s }) =
            (&mut self.0, &value.0)
            && scale == s
            && let Some(sum) = joined(*high, *low).checked_add(joined(*h, *l))
        {
            (*high, *low) = ((sum >> 64) as i64, sum as u64);
            return Ok(());
        }
        *self = self.add(value)?;
        Ok(())
    }

    /// Difference.
    pub fn subtract(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        self.add(&other.negate())
    }

    /// The value with the other sign.
    pub fn negate(&self) -> Numeric {
        match (&self.0, self.finite()) {
            (_, Some(Finite::Small(value, scale))) if value != i128::MIN => {
                Numeric::new(-value, scale as u16)
            }
            // A mantissa of the same digits and scale cannot overflow.
            (_, Some(finite)) => {
                Numeric::from_big(-finite.mantissa(), finite.scale()).unwrap_or(Numeric::NAN)
            }
            (Repr::PositiveInfinity, _) => Numeric::NEG_INFINITY,
            (Repr::NegativeInfinity, _) => Numeric::INFINITY,
            _ => Numeric::NAN,
        }
    }

    /// Absolute value.
    pub fn abs(&self) -> Numeric {
        if self.signum() < 0 { self.negate() } else { self.clone() }
    }

    /// Product; scale is the sum of the two.
    pub fn multiply(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        let (Some(a), Some(b)) = (self.finite(), other.finite()) else {
            return Ok(if self.is_nan() || other.is_nan() || self.is_zero() || other.is_zero() {
                Numeric::NAN
            } else if self.signum() == other.signum() {
                Numeric::INFINITY
            } else {
                Numeric::NEG_INFINITY
            });
        };
        let scale = a.scale() + b.scale();
        if let (Finite::Small(x, _), Finite::Small(y, _)) = (&a, &b)
            && let Some(product) = product(*x, *y)
            && scale <= MAX_SCALE
        {
            return Ok(Numeric::new(product, scale as u16));
        }
        let product = a.mantissa() * b.mantissa();
        if scale > MAX_SCALE {
            let rounded = divide_rounding(&product, &big_power_of_ten(scale - MAX_SCALE));
            return Numeric::from_big(rounded, MAX_SCALE);
        }
        Numeric::from_big(product, scale)
    }

    /// Quotient with at least 16 significant digits, rounded. 22012 for a zero divisor.
    pub fn divide(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        if self.is_nan() || other.is_nan() {
            return Ok(Numeric::NAN);
        }
        if other.is_zero() {
            return Err(SqlError::division_by_zero());
        }
        if self.is_infinite() {
            return Ok(match (other.is_infinite(), self.signum() == other.signum()) {
                (true, _) => Numeric::NAN,
                (false, true) => Numeric::INFINITY,
                (false, false) => Numeric::NEG_INFINITY,
            });
        }
        if other.is_infinite() {
            return Ok(Numeric::ZERO);
        }
        self.divide_to_scale(other, quotient_scale(self, other))
    }

    /// Quotient with this scale, rounded. Both finite, the divisor not zero.
    pub(super) fn divide_to_scale(&self, other: &Numeric, scale: u32) -> Result<Numeric, SqlError> {
        let (Some(a), Some(b)) = (self.finite(), other.finite()) else { return Ok(Numeric::NAN) };
        // a / 10^s / (b / 10^t) × 10^scale = a × 10^(scale + t - s) / b
        let shift = i64::from(scale) + i64::from(b.scale()) - i64::from(a.scale());
        if let (Finite::Small(x, _), Finite::Small(y, _)) = (&a, &b)
            && let Ok(up) = u32::try_from(shift)
            && let Some(x) = power_of_ten(up).and_then(|p| x.checked_mul(p))
            // The smallest of all has no quotient by -1 that fits.
            && x != i128::MIN
        {
            return Ok(Numeric::new(divide_rounding_small(x, *y), scale as u16));
        }
        let (mut x, mut y) = (a.mantissa(), b.mantissa());
        if shift >= 0 {
            x *= big_power_of_ten(shift as u32);
        } else {
            y *= big_power_of_ten(-shift as u32);
        }
        Numeric::from_big(divide_rounding(&x, &y), scale)
    }

    /// Quotient without its fraction. 22012 for a zero divisor.
    pub fn divide_truncating(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        let (Some(a), Some(b)) = (self.finite(), other.finite()) else { return self.divide(other) };
        if other.is_zero() {
            return Err(SqlError::division_by_zero());
        }
        let (x, y, _) = align_big(&a, &b);
        Numeric::from_big(x / y, 0)
    }

    /// Remainder with the dividend's sign; scale is the larger of the two. 22012 for a zero
    /// divisor.
    pub fn remainder(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        if self.is_nan() || other.is_nan() {
            return Ok(Numeric::NAN);
        }
        if other.is_zero() {
            return Err(SqlError::division_by_zero());
        }
        let (Some(a), Some(b)) = (self.finite(), other.finite()) else {
            return Ok(if self.is_infinite() { Numeric::NAN } else { self.clone() });
        };
        if let Some((x, y, scale)) = align(&a, &b)
            && let Some(remainder) = x.checked_rem(y)
        {
            return Ok(Numeric::new(remainder, scale as u16));
        }
        let (x, y, scale) = align_big(&a, &b);
        Numeric::from_big(x % y, scale)
    }

    /// Rounded half away from zero to `scale` digits after the point; negative scales round before
    /// it.
    pub fn round(&self, scale: i32) -> Numeric {
        self.try_round(scale).unwrap_or(Numeric::NAN)
    }

    /// The same; 22003 if what it is rounded up to is beyond the type.
    pub fn try_round(&self, scale: i32) -> Result<Numeric, SqlError> {
        self.rescale(scale, true)
    }

    /// Cut to `scale` digits after the point.
    pub fn truncate(&self, scale: i32) -> Numeric {
        // Fewer digits cannot overflow.
        self.rescale(scale, false).unwrap_or(Numeric::NAN)
    }

    fn rescale(&self, scale: i32, rounding: bool) -> Result<Numeric, SqlError> {
        let Some(finite) = self.finite() else { return Ok(self.clone()) };
        let scale = scale.clamp(-(super::MAX_INTEGER_DIGITS as i32) - 1, MAX_SCALE as i32);
        let display = scale.max(0) as u32;
        let drop = i64::from(finite.scale()) - i64::from(scale);
        if drop == 0 {
            return Ok(self.clone());
        }
        if drop < 0 {
            let up = -drop as u32;
            if let Finite::Small(value, _) = finite
                && let Some(value) = power_of_ten(up).and_then(|p| value.checked_mul(p))
            {
                return Ok(Numeric::new(value, display as u16));
            }
            return Numeric::from_big(finite.mantissa() * big_power_of_ten(up), display);
        }
        let drop = drop as u32;
        if let Finite::Small(value, _) = finite {
            let Some(power) = power_of_ten(drop) else {
                return Ok(Numeric::new(0, display as u16));
            };
            let quotient = if rounding { divide_rounding_small(value, power) } else { value / power };
            let back = scale.min(0).unsigned_abs();
            if let Some(result) = power_of_ten(back).and_then(|p| quotient.checked_mul(p)) {
                return Ok(Numeric::new(result, display as u16));
            }
        }
        let power = big_power_of_ten(drop);
        let mantissa = finite.mantissa();
        let quotient = if rounding { divide_rounding(&mantissa, &power) } else { mantissa / power };
        let back = big_power_of_ten(scale.min(0).unsigned_abs());
        Numeric::from_big(quotient * back, display)
    }

    /// Smallest integer not below.
    pub fn ceil(&self) -> Numeric {
        let truncated = self.truncate(0);
        if self.signum() > 0 && truncated < *self { truncated.add_one() } else { truncated }
    }

    /// Largest integer not above.
    pub fn floor(&self) -> Numeric {
        let truncated = self.truncate(0);
        if self.signum() < 0 && truncated > *self { truncated.negate().add_one().negate() } else { truncated }
    }

    fn add_one(&self) -> Numeric {
        self.add(&Numeric::from(1i64)).unwrap_or(Numeric::NAN)
    }

    /// The value as numeric(precision, scale) holds it. 22003 if it has too many digits before the
    /// point.
    pub fn fit(&self, precision: i32, scale: i32) -> Result<Numeric, SqlError> {
        if self.is_nan() {
            return Ok(Numeric::NAN);
        }
        if self.is_infinite() {
            return Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
                .with_detail(format!(
                    "A field with precision {precision}, scale {scale} cannot hold an infinite value."
                )));
        }
        let limit = i64::from(precision) - i64::from(scale);
        let fits = |rounded: &Numeric| match rounded.small() {
            Some((value, actual)) if limit >= 0 => {
                match power_of_ten((limit as u32).saturating_add(actual)) {
                    Some(bound) => value.unsigned_abs() < bound.unsigned_abs(),
                    None => rounded.decimal_exponent().is_none_or(|digits| digits <= limit),
                }
            }
            _ => rounded.decimal_exponent().is_none_or(|digits| digits <= limit),
        };
        // What is rounded up beyond the type has too many digits for any column.
        if let Some(rounded) = self.try_round(scale).ok().filter(fits) {
            return Ok(rounded);
        }
        let bound = if limit == 0 { "1".to_owned() } else { format!("10^{limit}") };
        Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").with_detail(format!(
            "A field with precision {precision}, scale {scale} must round to an absolute value less than {bound}."
        )))
    }

    /// First base-10000 digit and its weight, as PostgreSQL stores numbers; its scale rules are
    /// written in them.
    pub(super) fn leading_group(&self) -> (i64, i64) {
        let Some(exponent) = self.decimal_exponent() else { return (0, 0) };
        let top = exponent - 1;
        let wanted = top.rem_euclid(4) + 1;
        let group = match self.finite() {
            Some(Finite::Small(value, scale)) => {
                let digits = exponent + i64::from(scale);
                let magnitude = value.unsigned_abs();
                let shift = |n: i64| power_of_ten(n.unsigned_abs() as u32).map_or(1, i128::unsigned_abs);
                if digits >= wanted {
                    magnitude / shift(digits - wanted)
                } else {
                    magnitude * shift(wanted - digits)
                }
            }
            Some(Finite::Big(value, scale)) => {
                // The quotient has a few digits, so that this division is a short one.
                let digits = exponent + i64::from(scale);
                let top = value.magnitude() / big_power_of_ten((digits - wanted) as u32).magnitude();
                u128::try_from(top).unwrap_or(0)
            }
            None => 0,
        };
        (top.div_euclid(4), group as i64)
    }
}

/// Scale of a quotient: enough for 16 significant digits, and no fewer than either operand's.
fn quotient_scale(a: &Numeric, b: &Numeric) -> u32 {
    let (weight_a, first_a) = a.leading_group();
    let (weight_b, first_b) = b.leading_group();
    let mut weight = weight_a - weight_b;
    if first_a <= first_b {
        weight -= 1;
    }
    let scale = (MIN_SIGNIFICANT_DIGITS - weight * 4).max(i64::from(a.scale())).max(i64::from(b.scale()));
    scale.clamp(0, MAX_RESULT_SCALE) as u32
}

/// Both mantissas at the larger scale, if they stay small.
#[inline]
fn align(a: &Finite<'_>, b: &Finite<'_>) -> Option<(i128, i128, u32)> {
    let (Finite::Small(x, s), Finite::Small(y, t)) = (a, b) else { return None };
    match s.cmp(t) {
        std::cmp::Ordering::Equal => Some((*x, *y, *s)),
        std::cmp::Ordering::Less => Some((product(*x, power_of_ten(t - s)?)?, *y, *t)),
        std::cmp::Ordering::Greater => Some((*x, product(*y, power_of_ten(s - t)?)?, *s)),
    }
}

fn align_big(a: &Finite<'_>, b: &Finite<'_>) -> (BigInt, BigInt, u32) {
    let scale = a.scale().max(b.scale());
    let x = a.mantissa() * big_power_of_ten(scale - a.scale());
    let y = b.mantissa() * big_power_of_ten(scale - b.scale());
    (x, y, scale)
}

/// `x / y` rounded half away from zero.
fn divide_rounding_small(x: i128, y: i128) -> i128 {
    let (quotient, remainder) = match (i64::try_from(x), i64::try_from(y)) {
        (Ok(x), Ok(y)) if y != -1 => (i128::from(x / y), i128::from(x % y)),
        _ => (x / y, x % y),
    };
    let doubled = remainder.unsigned_abs() * 2;
    if doubled >= y.unsigned_abs() { quotient + if (x < 0) == (y < 0) { 1 } else { -1 } } else { quotient }
}

/// The same for any size.
pub(super) fn divide_rounding(x: &BigInt, y: &BigInt) -> BigInt {
    let quotient = x / y;
    let remainder = x - &quotient * y;
    if remainder.magnitude() * 2u32 < *y.magnitude() {
        return quotient;
    }
    if (x.sign() == Sign::Minus) == (y.sign() == Sign::Minus) { quotient + 1 } else { quotient - 1 }
}
