//! Numbers: arithmetic operators and mathematical functions.

mod degrees;
mod float;

use self::float::*;
use super::EvalContext;
use super::operator::{Operator, infix, infix_exact, prefix};
use super::registry::{Function, plain};
use crate::error::{SqlError, sqlstate};
use crate::types::TypeId::{Float4, Float8, Int2, Int4, Int8, Numeric as Num};
use crate::types::{Arithmetic, Datum, Numeric};

type Computed = Result<Datum, SqlError>;

#[cold]
pub(super) fn unexpected(values: &[&Datum]) -> SqlError {
    SqlError::internal(format!("a function got unexpected arguments {values:?}"))
}

/// Integer arithmetic with the checked operation of the wider type.
macro_rules! integer_operation {
    ($name:ident, $checked:ident) => {
        fn $name(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
            match (a, b) {
                (Datum::Int4(a), Datum::Int4(b)) => {
                    a.$checked(*b).map(Datum::Int4).ok_or_else(|| SqlError::out_of_range("integer"))
                }
                (Datum::Int2(a), Datum::Int2(b)) => {
                    a.$checked(*b).map(Datum::Int2).ok_or_else(|| SqlError::out_of_range("smallint"))
                }
                (Datum::Int8(_), _) | (_, Datum::Int8(_)) => {
                    let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) else {
                        return Err(unexpected(&[a, b]));
                    };
                    a.$checked(b).map(Datum::Int8).ok_or_else(|| SqlError::out_of_range("bigint"))
                }
                (Datum::Int2(a), Datum::Int4(b)) => i32::from(*a)
                    .$checked(*b)
                    .map(Datum::Int4)
                    .ok_or_else(|| SqlError::out_of_range("integer")),
                (Datum::Int4(a), Datum::Int2(b)) => a
                    .$checked(i32::from(*b))
                    .map(Datum::Int4)
                    .ok_or_else(|| SqlError::out_of_range("integer")),
                _ => Err(unexpected(&[a, b])),
            }
        }
    };
}

integer_operation!(int_add, checked_add);
integer_operation!(int_subtract, checked_sub);
integer_operation!(int_multiply, checked_mul);
integer_operation!(int_divide_unchecked, checked_div);
integer_operation!(int_remainder_unchecked, checked_rem);

fn int_divide(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    if b.as_i64() == Some(0) {
        return Err(SqlError::division_by_zero());
    }
    int_divide_unchecked(a, b, context)
}

fn int_remainder(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    match b.as_i64() {
        Some(0) => Err(SqlError::division_by_zero()),
        // The smallest integer modulo -1 is 0, though its quotient overflows.
        Some(-1) => int_subtract(a, a, context),
        _ => int_remainder_unchecked(a, b, context),
    }
}

fn int_modulo(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    int_remainder(&arguments[0], &arguments[1], context)
}

fn int_quotient(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    int_divide(&arguments[0], &arguments[1], context)
}

fn int_negate(a: &Datum, _: &EvalContext<'_>) -> Computed {
    match a {
        Datum::Int2(a) => a.checked_neg().map(Datum::Int2).ok_or_else(|| SqlError::out_of_range("smallint")),
        Datum::Int4(a) => a.checked_neg().map(Datum::Int4).ok_or_else(|| SqlError::out_of_range("integer")),
        Datum::Int8(a) => a.checked_neg().map(Datum::Int8).ok_or_else(|| SqlError::out_of_range("bigint")),
        _ => Err(unexpected(&[a])),
    }
}

fn int_abs(a: &Datum, context: &EvalContext<'_>) -> Computed {
    if a.as_i64().is_some_and(|v| v < 0) { int_negate(a, context) } else { Ok(a.clone()) }
}

fn plus(a: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(a.clone())
}

/// Bit operations on integers of one width.
macro_rules! bit_operation {
    ($name:ident, $operator:tt) => {
        fn $name(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
            Ok(match (a, b) {
                (Datum::Int2(a), Datum::Int2(b)) => Datum::Int2(a $operator b),
                (Datum::Int4(a), Datum::Int4(b)) => Datum::Int4(a $operator b),
                (Datum::Int8(a), Datum::Int8(b)) => Datum::Int8(a $operator b),
                _ => return Err(unexpected(&[a, b])),
            })
        }
    };
}
bit_operation!(bit_and, &);
bit_operation!(bit_or, |);
bit_operation!(bit_xor, ^);

fn bit_not(a: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(match a {
        Datum::Int2(a) => Datum::Int2(!a),
        Datum::Int4(a) => Datum::Int4(!a),
        Datum::Int8(a) => Datum::Int8(!a),
        _ => return Err(unexpected(&[a])),
    })
}

fn shift(a: &Datum, b: &Datum, left: bool) -> Computed {
    let Datum::Int4(by) = b else { return Err(unexpected(&[a, b])) };
    // The hardware takes the count modulo the width; so does PostgreSQL on the usual machines.
    let by = *by as u32;
    Ok(match a {
        Datum::Int2(a) => {
            let wide = i32::from(*a);
            Datum::Int2(if left { wide.wrapping_shl(by) } else { wide.wrapping_shr(by) } as i16)
        }
        Datum::Int4(a) => Datum::Int4(if left { a.wrapping_shl(by) } else { a.wrapping_shr(by) }),
        Datum::Int8(a) => Datum::Int8(if left { a.wrapping_shl(by) } else { a.wrapping_shr(by) }),
        _ => return Err(unexpected(&[a])),
    })
}

fn shift_left(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    shift(a, b, true)
}

fn shift_right(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    shift(a, b, false)
}

fn gcd(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let (Some(a), Some(b)) = (arguments[0].as_i64(), arguments[1].as_i64()) else {
        return Err(unexpected(&[&arguments[0]]));
    };
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    integer_like(&arguments[0], i128::from(a))
}

fn lcm(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let (Some(a), Some(b)) = (arguments[0].as_i64(), arguments[1].as_i64()) else {
        return Err(unexpected(&[&arguments[0]]));
    };
    if a == 0 || b == 0 {
        return integer_like(&arguments[0], 0);
    }
    let divisor = gcd(arguments, context)?.as_i64().unwrap_or(1);
    integer_like(&arguments[0], (i128::from(a) / i128::from(divisor) * i128::from(b)).abs())
}

/// The value as the integer type of `model`.
fn integer_like(model: &Datum, value: i128) -> Computed {
    match model {
        Datum::Int4(_) => {
            i32::try_from(value).map(Datum::Int4).map_err(|_| SqlError::out_of_range("integer"))
        }
        _ => i64::try_from(value).map(Datum::Int8).map_err(|_| SqlError::out_of_range("bigint")),
    }
}

/// The numeric of a datum.
pub(super) fn numeric(datum: &Datum) -> Result<&Numeric, SqlError> {
    if let Datum::Numeric(value) = datum { Ok(value) } else { Err(unexpected(&[datum])) }
}

/// Bits of two numbers together from which on an operation takes milliseconds.
const LONG_NUMBERS: u64 = 60_000;

/// Before an operation that takes milliseconds and cannot ask in between: asks, and lets others go
/// on meanwhile.
fn announce(a: &Numeric, b: &Numeric, context: &EvalContext<'_>) -> Result<(), SqlError> {
    if a.bits() + b.bits() > LONG_NUMBERS {
        context.check_interrupt()?;
        context.interrupt.step_aside();
    }
    Ok(())
}

macro_rules! numeric_operation {
    ($name:ident, $method:ident) => {
        fn $name(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
            let (a, b) = (numeric(a)?, numeric(b)?);
            announce(a, b, context)?;
            a.$method(b).map(Datum::Numeric)
        }
    };
}
numeric_operation!(numeric_add, add);
numeric_operation!(numeric_subtract, subtract);
numeric_operation!(numeric_multiply, multiply);
numeric_operation!(numeric_divide, divide);
numeric_operation!(numeric_remainder, remainder);

fn numeric_power(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    numeric(a)?.power(numeric(b)?, &|| context.check_interrupt()).map(Datum::Numeric)
}

fn numeric_negate(a: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Numeric(numeric(a)?.negate()))
}

fn numeric_abs(a: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Numeric(numeric(a)?.abs()))
}

/// A function of one argument that is an operator's body too.
macro_rules! as_function {
    ($($name:ident = $unary:ident;)*) => {
        $(fn $name(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
            $unary(&arguments[0], context)
        })*
    };
}
as_function! {
    int_abs_function = int_abs;
    float_abs_function = float_abs;
    numeric_abs_function = numeric_abs;
    square_root = float_square_root;
    cube_root = float_cube_root;
}

/// A function of two arguments that is an operator's body too.
macro_rules! as_binary_function {
    ($($name:ident = $binary:ident;)*) => {
        $(fn $name(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
            $binary(&arguments[0], &arguments[1], context)
        })*
    };
}
as_binary_function! {
    power_function = float_power;
    numeric_power_function = numeric_power;
    numeric_modulo = numeric_remainder;
}

fn numeric_sqrt(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let value = numeric(&arguments[0])?;
    announce(value, value, context)?;
    value.sqrt().map(Datum::Numeric)
}

fn numeric_exp(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    numeric(&arguments[0])?.exp().map(Datum::Numeric)
}

fn numeric_ln(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    numeric(&arguments[0])?.ln().map(Datum::Numeric)
}

fn numeric_log10(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    numeric(&arguments[0])?.log(&Numeric::from(10i64)).map(Datum::Numeric)
}

fn numeric_log(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    numeric(&arguments[1])?.log(numeric(&arguments[0])?).map(Datum::Numeric)
}

fn numeric_sign(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let value = numeric(&arguments[0])?;
    Ok(Datum::Numeric(if value.is_nan() { Numeric::NAN } else { Numeric::from(value.signum()) }))
}

fn numeric_ceil(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Numeric(numeric(&arguments[0])?.ceil()))
}

fn numeric_floor(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Numeric(numeric(&arguments[0])?.floor()))
}

/// The wanted number of digits, 0 if not given, within what `round` and `trunc` take.
fn digits(arguments: &[Datum]) -> i32 {
    arguments.get(1).and_then(Datum::as_i64).map_or(0, |d| d as i32)
}

fn numeric_round(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    numeric(&arguments[0])?.try_round(digits(arguments)).map(Datum::Numeric)
}

fn numeric_truncate(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Numeric(numeric(&arguments[0])?.truncate(digits(arguments))))
}

fn numeric_quotient(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    numeric(&arguments[0])?.divide_truncating(numeric(&arguments[1])?).map(Datum::Numeric)
}

fn numeric_scale(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let value = numeric(&arguments[0])?;
    Ok(if value.is_finite() { Datum::Int4(value.scale() as i32) } else { Datum::Null })
}

fn numeric_min_scale(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let value = numeric(&arguments[0])?;
    Ok(if value.is_finite() { Datum::Int4(value.normalized().scale() as i32) } else { Datum::Null })
}

fn numeric_trim_scale(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Numeric(numeric(&arguments[0])?.normalized()))
}

fn factorial(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let n = arguments[0].as_i64().ok_or_else(|| unexpected(&[&arguments[0]]))?;
    if n < 0 {
        return Err(SqlError::new(
            sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
            "factorial of a negative number is undefined",
        ));
    }
    if n > 32_177 {
        return Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format"));
    }
    product(1, n, context).map(Datum::Numeric)
}

/// The product of the numbers above one up to another. Halves are of about one size, which
/// multiplies fastest.
fn product(above: i64, to: i64, context: &EvalContext<'_>) -> Result<Numeric, SqlError> {
    if to - above <= 8 {
        let small: i128 = (above + 1..=to).map(i128::from).product();
        return Ok(Numeric::from(small));
    }
    context.check_interrupt()?;
    let middle = above + (to - above) / 2;
    product(above, middle, context)?.multiply(&product(middle, to, context)?)
}

fn invalid_bucket(what: &str) -> SqlError {
    SqlError::new("2201G", what.to_owned())
}

/// What both forms of `width_bucket` refuse; gives the number of buckets.
fn check_buckets(count: &Datum, any_nan: bool, endless: bool, empty: bool) -> Result<i64, SqlError> {
    let count = count.as_i64().ok_or_else(|| unexpected(&[count]))?;
    let problem = if count <= 0 {
        "count must be greater than zero"
    } else if any_nan {
        "operand, lower bound, and upper bound cannot be NaN"
    } else if endless {
        "lower and upper bounds must be finite"
    } else if empty {
        "lower bound cannot equal upper bound"
    } else {
        return Ok(count);
    };
    Err(invalid_bucket(problem))
}

/// The bucket of a histogram with equal buckets between two bounds; `inside` tells which of a value
/// between them.
fn bucket<T: PartialOrd>(
    [operand, low, high]: [T; 3],
    count: i64,
    inside: impl FnOnce() -> Result<i64, SqlError>,
) -> Computed {
    let ascending = low < high;
    let bucket = if (ascending && operand < low) || (!ascending && operand > low) {
        0
    } else if (ascending && operand >= high) || (!ascending && operand <= high) {
        count + 1
    } else {
        inside()? + 1
    };
    i32::try_from(bucket).map(Datum::Int4).map_err(|_| SqlError::out_of_range("integer"))
}

fn width_bucket(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let [operand, low, high] = [numeric(&arguments[0])?, numeric(&arguments[1])?, numeric(&arguments[2])?];
    let any_nan = operand.is_nan() || low.is_nan() || high.is_nan();
    let count = check_buckets(&arguments[3], any_nan, low.is_infinite() || high.is_infinite(), low == high)?;
    bucket([operand, low, high], count, || {
        // Rounded as any quotient is, which may lead into the next bucket; PostgreSQL 15 does so.
        let distance = operand.subtract(low)?.multiply(&Numeric::from(count))?;
        distance.divide(&high.subtract(low)?)?.floor().to_i64("integer")
    })
}

fn float_width_bucket(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let [operand, low, high] = [float(&arguments[0])?, float(&arguments[1])?, float(&arguments[2])?];
    let any_nan = operand.is_nan() || low.is_nan() || high.is_nan();
    let count = check_buckets(&arguments[3], any_nan, low.is_infinite() || high.is_infinite(), low == high)?;
    bucket([operand, low, high], count, || {
        // Halved, so that bounds far apart have a distance.
        let scale = if (high - low).is_infinite() { 2.0 } else { 1.0 };
        let part = (operand / scale - low / scale) / (high / scale - low / scale);
        // The quotient may have been rounded up to one.
        Ok(((count as f64 * part) as i64).min(count - 1))
    })
}

/// Euclid's algorithm; digits after the point as many as either has.
fn numeric_divisor(a: &Numeric, b: &Numeric, context: &EvalContext<'_>) -> Result<Numeric, SqlError> {
    let scale = a.scale().max(b.scale()) as i32;
    let (mut a, mut b) = (a.abs(), b.abs());
    while !b.is_zero() {
        context.check_interrupt()?;
        let rest = a.remainder(&b)?;
        (a, b) = (b, rest);
    }
    Ok(a.round(scale))
}

fn numeric_gcd(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let (a, b) = (numeric(&arguments[0])?, numeric(&arguments[1])?);
    if !a.is_finite() || !b.is_finite() {
        return Ok(Datum::Numeric(Numeric::NAN));
    }
    numeric_divisor(a, b, context).map(Datum::Numeric)
}

fn numeric_lcm(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let (a, b) = (numeric(&arguments[0])?, numeric(&arguments[1])?);
    if !a.is_finite() || !b.is_finite() {
        return Ok(Datum::Numeric(Numeric::NAN));
    }
    let scale = a.scale().max(b.scale()) as i32;
    if a.is_zero() || b.is_zero() {
        return Ok(Datum::Numeric(Numeric::ZERO.round(scale)));
    }
    let divisor = numeric_divisor(a, b, context)?;
    let multiple = a.divide_truncating(&divisor)?.multiply(b)?.abs();
    multiple.try_round(scale).map(Datum::Numeric)
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(1398, "abs", &[Int2], Int2, int_abs_function),
    plain(1397, "abs", &[Int4], Int4, int_abs_function),
    plain(1396, "abs", &[Int8], Int8, int_abs_function),
    plain(1394, "abs", &[Float4], Float4, float_abs_function),
    plain(1395, "abs", &[Float8], Float8, float_abs_function),
    plain(1705, "abs", &[Num], Num, numeric_abs_function),
    plain(940, "mod", &[Int2, Int2], Int2, int_modulo),
    plain(941, "mod", &[Int4, Int4], Int4, int_modulo),
    plain(947, "mod", &[Int8, Int8], Int8, int_modulo),
    plain(1728, "mod", &[Num, Num], Num, numeric_modulo),
    plain(1973, "div", &[Num, Num], Num, numeric_quotient),
    plain(154, "int4div", &[Int4, Int4], Int4, int_quotient),
    plain(5044, "gcd", &[Int4, Int4], Int4, gcd),
    plain(5045, "gcd", &[Int8, Int8], Int8, gcd),
    plain(5046, "lcm", &[Int4, Int4], Int4, lcm),
    plain(5047, "lcm", &[Int8, Int8], Int8, lcm),
    plain(5048, "gcd", &[Num, Num], Num, numeric_gcd),
    plain(5049, "lcm", &[Num, Num], Num, numeric_lcm),
    plain(1342, "round", &[Float8], Float8, float_round),
    plain(1708, "round", &[Num], Num, numeric_round),
    plain(1707, "round", &[Num, Int4], Num, numeric_round),
    plain(1343, "trunc", &[Float8], Float8, float_truncate),
    plain(1710, "trunc", &[Num], Num, numeric_truncate),
    plain(1709, "trunc", &[Num, Int4], Num, numeric_truncate),
    plain(2308, "ceil", &[Float8], Float8, float_ceil),
    plain(1711, "ceil", &[Num], Num, numeric_ceil),
    plain(2320, "ceiling", &[Float8], Float8, float_ceil),
    plain(2167, "ceiling", &[Num], Num, numeric_ceil),
    plain(2309, "floor", &[Float8], Float8, float_floor),
    plain(1712, "floor", &[Num], Num, numeric_floor),
    plain(2310, "sign", &[Float8], Float8, float_sign),
    plain(1706, "sign", &[Num], Num, numeric_sign),
    plain(1344, "sqrt", &[Float8], Float8, square_root),
    plain(1730, "sqrt", &[Num], Num, numeric_sqrt),
    plain(1345, "cbrt", &[Float8], Float8, cube_root),
    plain(1347, "exp", &[Float8], Float8, float_exp),
    plain(1732, "exp", &[Num], Num, numeric_exp),
    plain(1341, "ln", &[Float8], Float8, float_ln),
    plain(1734, "ln", &[Num], Num, numeric_ln),
    plain(1340, "log", &[Float8], Float8, float_log10),
    plain(1741, "log", &[Num], Num, numeric_log10),
    plain(1736, "log", &[Num, Num], Num, numeric_log),
    plain(1194, "log10", &[Float8], Float8, float_log10),
    plain(1481, "log10", &[Num], Num, numeric_log10),
    plain(1368, "power", &[Float8, Float8], Float8, power_function),
    plain(2169, "power", &[Num, Num], Num, numeric_power_function),
    plain(1346, "pow", &[Float8, Float8], Float8, power_function),
    plain(1738, "pow", &[Num, Num], Num, numeric_power_function),
    plain(1610, "pi", &[], Float8, pi),
    plain(1608, "degrees", &[Float8], Float8, degrees),
    plain(1609, "radians", &[Float8], Float8, radians),
    plain(1604, "sin", &[Float8], Float8, sine),
    plain(1605, "cos", &[Float8], Float8, cosine),
    plain(1606, "tan", &[Float8], Float8, tangent),
    plain(1607, "cot", &[Float8], Float8, cotangent),
    plain(1600, "asin", &[Float8], Float8, arc_sine),
    plain(1601, "acos", &[Float8], Float8, arc_cosine),
    plain(1602, "atan", &[Float8], Float8, arc_tangent),
    plain(1603, "atan2", &[Float8, Float8], Float8, arc_tangent_2),
    plain(2462, "sinh", &[Float8], Float8, hyperbolic_sine),
    plain(2463, "cosh", &[Float8], Float8, hyperbolic_cosine),
    plain(2464, "tanh", &[Float8], Float8, hyperbolic_tangent),
    plain(2465, "asinh", &[Float8], Float8, arc_hyperbolic_sine),
    plain(2466, "acosh", &[Float8], Float8, arc_hyperbolic_cosine),
    plain(2467, "atanh", &[Float8], Float8, arc_hyperbolic_tangent),
    plain(2735, "sind", &[Float8], Float8, degrees::sine),
    plain(2736, "cosd", &[Float8], Float8, degrees::cosine),
    plain(2737, "tand", &[Float8], Float8, degrees::tangent),
    plain(2738, "cotd", &[Float8], Float8, degrees::cotangent),
    plain(2731, "asind", &[Float8], Float8, degrees::arc_sine),
    plain(2732, "acosd", &[Float8], Float8, degrees::arc_cosine),
    plain(2733, "atand", &[Float8], Float8, degrees::arc_tangent),
    plain(2734, "atan2d", &[Float8, Float8], Float8, degrees::arc_tangent_2),
    plain(3281, "scale", &[Num], Int4, numeric_scale),
    plain(5042, "min_scale", &[Num], Int4, numeric_min_scale),
    plain(5043, "trim_scale", &[Num], Num, numeric_trim_scale),
    plain(1376, "factorial", &[Int8], Num, factorial),
    plain(2170, "width_bucket", &[Num, Num, Num, Int4], Int4, width_bucket),
    plain(320, "width_bucket", &[Float8, Float8, Float8, Int4], Int4, float_width_bucket),
];

pub(super) fn operators() -> Vec<Operator> {
    let mut all = Vec::new();
    let widths = [Int2, Int4, Int8];
    for (i, left) in widths.into_iter().enumerate() {
        for (j, right) in widths.into_iter().enumerate() {
            let wider = widths[i.max(j)];
            all.push(infix("+", left, right, wider, int_add));
            all.push(infix("-", left, right, wider, int_subtract));
            all.push(infix("*", left, right, wider, int_multiply));
            all.push(infix("/", left, right, wider, int_divide));
        }
        all.push(infix("%", left, left, left, int_remainder));
        all.push(infix("&", left, left, left, bit_and));
        all.push(infix("|", left, left, left, bit_or));
        all.push(infix("#", left, left, left, bit_xor));
        all.push(infix("<<", left, Int4, left, shift_left));
        all.push(infix(">>", left, Int4, left, shift_right));
        all.push(prefix("~", left, left, bit_not));
        all.push(prefix("-", left, left, int_negate));
        all.push(prefix("+", left, left, plus));
        all.push(prefix("@", left, left, int_abs));
    }
    for (left, right, result) in [
        (Float4, Float4, Float4),
        (Float4, Float8, Float8),
        (Float8, Float4, Float8),
        (Float8, Float8, Float8),
    ] {
        all.push(infix("+", left, right, result, float_add));
        all.push(infix("-", left, right, result, float_subtract));
        all.push(infix("*", left, right, result, float_multiply));
        all.push(infix("/", left, right, result, float_divide));
    }
    for ty in [Float4, Float8] {
        all.push(prefix("-", ty, ty, float_negate));
        all.push(prefix("+", ty, ty, plus));
        all.push(prefix("@", ty, ty, float_abs));
    }
    all.push(infix("^", Float8, Float8, Float8, float_power));
    all.push(prefix("|/", Float8, Float8, float_square_root));
    all.push(prefix("||/", Float8, Float8, float_cube_root));
    all.push(infix_exact("+", Arithmetic::Add, numeric_add));
    all.push(infix_exact("-", Arithmetic::Subtract, numeric_subtract));
    all.push(infix_exact("*", Arithmetic::Multiply, numeric_multiply));
    all.push(infix("/", Num, Num, Num, numeric_divide));
    all.push(infix("%", Num, Num, Num, numeric_remainder));
    all.push(infix("^", Num, Num, Num, numeric_power));
    all.push(prefix("-", Num, Num, numeric_negate));
    all.push(prefix("+", Num, Num, plus));
    all.push(prefix("@", Num, Num, numeric_abs));
    all
}
