//! Trigonometry in degrees.
//!
//! An angle is brought into the first quadrant, where sine and cosine are quotients of what is
//! computed in radians and the same of an angle whose value is known: so `sind(30)` is 0.5 and
//! `tand(45)` is 1, to the last bit.

use super::float::{float, in_domain};
use crate::error::SqlError;
use crate::function::EvalContext;
use crate::types::Datum;

type Computed = Result<Datum, SqlError>;

/// Up to 30 degrees.
fn low_sine(x: f64) -> f64 {
    x.to_radians().sin() / 30_f64.to_radians().sin() / 2.0
}

/// Up to 60 degrees.
fn low_cosine(x: f64) -> f64 {
    1.0 - (1.0 - x.to_radians().cos()) / (1.0 - 60_f64.to_radians().cos()) / 2.0
}

/// Sine and cosine in the first quadrant.
fn quadrant(x: f64) -> (f64, f64) {
    let sine = if x <= 30.0 { low_sine(x) } else { low_cosine(90.0 - x) };
    let cosine = if x <= 60.0 { low_cosine(x) } else { low_sine(90.0 - x) };
    (sine, cosine)
}

/// Sine and cosine of any angle.
fn sine_and_cosine(x: f64) -> (f64, f64) {
    let turned = x % 360.0;
    let (angle, mut sine_sign) = (turned.abs(), if turned.is_sign_negative() { -1.0 } else { 1.0 });
    let angle = if angle > 180.0 {
        sine_sign = -sine_sign;
        360.0 - angle
    } else {
        angle
    };
    let (angle, cosine_sign) = if angle > 90.0 { (180.0 - angle, -1.0) } else { (angle, 1.0) };
    let (sine, cosine) = quadrant(angle);
    (sine_sign * sine, cosine_sign * cosine)
}

/// The arc sine of a number from 0 to 1; what is missing to 90 is the arc cosine.
fn low_arc_sine(x: f64) -> f64 {
    if x <= 0.5 { x.asin() / 0.5_f64.asin() * 30.0 } else { 90.0 - x.acos() / 0.5_f64.acos() * 60.0 }
}

fn low_arc_cosine(x: f64) -> f64 {
    if x <= 0.5 { 90.0 - x.asin() / 0.5_f64.asin() * 30.0 } else { x.acos() / 0.5_f64.acos() * 60.0 }
}

fn of_angle(arguments: &[Datum], body: fn(f64) -> f64) -> Computed {
    let x = float(&arguments[0])?;
    in_domain(!x.is_infinite(), if x.is_nan() { x } else { body(x) })
}

pub(super) fn sine(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    of_angle(arguments, |x| sine_and_cosine(x).0)
}

pub(super) fn cosine(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    of_angle(arguments, |x| sine_and_cosine(x).1)
}

pub(super) fn tangent(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    of_angle(arguments, |x| {
        let (sine, cosine) = quadrant(45.0);
        let (x, y) = sine_and_cosine(x);
        // A zero has no sign here.
        x / y / (sine / cosine) + 0.0
    })
}

pub(super) fn cotangent(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    of_angle(arguments, |x| {
        let (sine, cosine) = quadrant(45.0);
        let (x, y) = sine_and_cosine(x);
        y / x / (cosine / sine) + 0.0
    })
}

pub(super) fn arc_sine(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let x = float(&arguments[0])?;
    let value = if x < 0.0 { -low_arc_sine(-x) } else { low_arc_sine(x) };
    in_domain(x.is_nan() || x.abs() <= 1.0, value)
}

pub(super) fn arc_cosine(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let x = float(&arguments[0])?;
    let value = if x < 0.0 { 90.0 + low_arc_sine(-x) } else { low_arc_cosine(x) };
    in_domain(x.is_nan() || x.abs() <= 1.0, value)
}

pub(super) fn arc_tangent(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Float8(float(&arguments[0])?.atan() / 1_f64.atan() * 45.0))
}

pub(super) fn arc_tangent_2(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let angle = float(&arguments[0])?.atan2(float(&arguments[1])?);
    Ok(Datum::Float8(angle / 1_f64.atan() * 45.0))
}
