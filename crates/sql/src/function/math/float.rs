//! Floats. Results that overflow or vanish are errors, unless an operand explains them.

use super::unexpected;
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::types::Datum;

type Computed = Result<Datum, SqlError>;

#[cold]
pub(super) fn overflow() -> SqlError {
    SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")
}

#[cold]
pub(super) fn underflow() -> SqlError {
    SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: underflow")
}

/// The value of a float of either width.
pub(super) fn float(datum: &Datum) -> Result<f64, SqlError> {
    match datum {
        Datum::Float8(value) => Ok(*value),
        Datum::Float4(value) => Ok(f64::from(*value)),
        other => Err(unexpected(&[other])),
    }
}

pub(super) fn is_narrow(a: &Datum, b: &Datum) -> bool {
    matches!((a, b), (Datum::Float4(_), Datum::Float4(_)))
}

/// A float result: an infinity or zero that the operands do not explain is an error.
pub(super) fn float_result(value: f64, narrow: bool, may_be_infinite: bool, may_be_zero: bool) -> Computed {
    let narrowed = value as f32;
    let (infinite, zero) =
        if narrow { (narrowed.is_infinite(), narrowed == 0.0) } else { (value.is_infinite(), value == 0.0) };
    if infinite && !may_be_infinite {
        return Err(overflow());
    }
    if zero && !may_be_zero {
        return Err(underflow());
    }
    Ok(if narrow { Datum::Float4(narrowed) } else { Datum::Float8(value) })
}

pub(super) fn float_add(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let (x, y) = (float(a)?, float(b)?);
    float_result(x + y, is_narrow(a, b), x.is_infinite() || y.is_infinite(), true)
}

pub(super) fn float_subtract(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let (x, y) = (float(a)?, float(b)?);
    float_result(x - y, is_narrow(a, b), x.is_infinite() || y.is_infinite(), true)
}

pub(super) fn float_multiply(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let (x, y) = (float(a)?, float(b)?);
    float_result(x * y, is_narrow(a, b), x.is_infinite() || y.is_infinite(), x == 0.0 || y == 0.0)
}

pub(super) fn float_divide(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let (x, y) = (float(a)?, float(b)?);
    if y == 0.0 && !x.is_nan() {
        return Err(SqlError::division_by_zero());
    }
    float_result(x / y, is_narrow(a, b), x.is_infinite(), x == 0.0 || y.is_infinite())
}

pub(super) fn float_negate(a: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(match a {
        Datum::Float4(a) => Datum::Float4(-a),
        other => Datum::Float8(-float(other)?),
    })
}

pub(super) fn float_abs(a: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(match a {
        Datum::Float4(a) => Datum::Float4(a.abs()),
        other => Datum::Float8(float(other)?.abs()),
    })
}

pub(super) fn invalid_power(what: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_ARGUMENT_FOR_POWER_FUNCTION, what.to_owned())
}

pub(super) fn float_power(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let (x, y) = (float(a)?, float(b)?);
    if x == 0.0 && y < 0.0 {
        return Err(invalid_power("zero raised to a negative power is undefined"));
    }
    if x < 0.0 && y.is_finite() && y.fract() != 0.0 {
        return Err(invalid_power("a negative number raised to a non-integer power yields a complex result"));
    }
    let value = x.powf(y);
    let unlimited = x.is_infinite() || y.is_infinite();
    float_result(value, false, unlimited, unlimited || x == 0.0)
}

pub(super) fn float_square_root(a: &Datum, _: &EvalContext<'_>) -> Computed {
    let x = float(a)?;
    if x < 0.0 {
        return Err(invalid_power("cannot take square root of a negative number"));
    }
    Ok(Datum::Float8(x.sqrt()))
}

pub(super) fn float_cube_root(a: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Float8(float(a)?.cbrt()))
}

/// A function of floats that is defined everywhere.
macro_rules! float_functions {
    ($($name:ident = $body:expr;)*) => {
        $(pub(super) fn $name(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
            let body: fn(f64) -> f64 = $body;
            Ok(Datum::Float8(body(float(&arguments[0])?)))
        })*
    };
}
float_functions! {
    float_round = f64::round_ties_even;
    float_truncate = f64::trunc;
    float_ceil = f64::ceil;
    float_floor = f64::floor;
    float_sign = |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { 0.0 };
    arc_tangent = f64::atan;
    hyperbolic_sine = f64::sinh;
    hyperbolic_cosine = f64::cosh;
    hyperbolic_tangent = f64::tanh;
    arc_hyperbolic_sine = |x| if x.is_finite() { hyperbolic_area(x.abs(), 1.0).copysign(x) } else { x };
}

/// A degree in radians. Angles are divided and multiplied by it, as in PostgreSQL: other ways round
/// otherwise.
const RADIANS_PER_DEGREE: f64 = 0.017_453_292_519_943_295;

pub(super) fn degrees(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let x = float(&arguments[0])?;
    float_result(x / RADIANS_PER_DEGREE, false, x.is_infinite(), x == 0.0)
}

pub(super) fn radians(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let x = float(&arguments[0])?;
    float_result(x * RADIANS_PER_DEGREE, false, x.is_infinite(), x == 0.0)
}

/// A function of an angle, which an infinity is not.
macro_rules! angle_functions {
    ($($name:ident = $body:expr;)*) => {
        $(pub(super) fn $name(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
            let body: fn(f64) -> f64 = $body;
            let x = float(&arguments[0])?;
            in_domain(!x.is_infinite(), body(x))
        })*
    };
}
angle_functions! {
    sine = f64::sin;
    cosine = f64::cos;
    tangent = f64::tan;
    cotangent = |x| 1.0 / x.tan();
}

pub(super) fn float_exp(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let x = float(&arguments[0])?;
    float_result(x.exp(), false, x.is_infinite(), x.is_infinite())
}

pub(super) fn check_logarithm(x: f64) -> Result<f64, SqlError> {
    let problem = if x == 0.0 {
        "cannot take logarithm of zero"
    } else if x < 0.0 {
        "cannot take logarithm of a negative number"
    } else {
        return Ok(x);
    };
    Err(SqlError::new(sqlstate::INVALID_ARGUMENT_FOR_LOGARITHM, problem))
}

pub(super) fn float_ln(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Float8(check_logarithm(float(&arguments[0])?)?.ln()))
}

pub(super) fn float_log10(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Float8(check_logarithm(float(&arguments[0])?)?.log10()))
}

pub(super) fn in_domain(inside: bool, value: f64) -> Computed {
    if inside {
        return Ok(Datum::Float8(value));
    }
    Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range"))
}

pub(super) fn arc_sine(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let x = float(&arguments[0])?;
    in_domain(x.is_nan() || (-1.0..=1.0).contains(&x), x.asin())
}

pub(super) fn arc_cosine(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let x = float(&arguments[0])?;
    in_domain(x.is_nan() || (-1.0..=1.0).contains(&x), x.acos())
}

/// `ln(x + sqrt(x² + sign))`: the inverse of the hyperbolic sine for 1, of the cosine for -1; in
/// the form that loses the fewest digits.
fn hyperbolic_area(x: f64, sign: f64) -> f64 {
    const FAR: f64 = (1 << 28) as f64;
    if x > FAR {
        return x.ln() + std::f64::consts::LN_2;
    }
    let square = x * x;
    let root = (square + sign).sqrt();
    if x > 2.0 {
        return (2.0 * x + sign / (root + x)).ln();
    }
    if sign > 0.0 {
        return (x + square / (1.0 + root)).ln_1p();
    }
    let above = x - 1.0;
    (above + (2.0 * above + above * above).sqrt()).ln_1p()
}

pub(super) fn arc_hyperbolic_cosine(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let x = float(&arguments[0])?;
    let value = if x.is_finite() { hyperbolic_area(x, -1.0) } else { x };
    in_domain(x.is_nan() || x >= 1.0, value)
}

pub(super) fn arc_hyperbolic_tangent(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let x = float(&arguments[0])?;
    in_domain(x.is_nan() || x.abs() <= 1.0, x.atanh())
}

pub(super) fn arc_tangent_2(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Float8(float(&arguments[0])?.atan2(float(&arguments[1])?)))
}

pub(super) fn pi(_: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Float8(std::f64::consts::PI))
}
