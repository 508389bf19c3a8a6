//! Distances of RANGE: whether a value lies within an offset of another one.
//!
//! A sum that leaves a type's range is no error where the answer does not depend on it.

use crate::error::{Result, SqlError, sqlstate};
use crate::oltp::Context;
use crate::types::datetime::arithmetic::{add_to_timestamp, add_to_timestamptz, date_to_timestamp};
use crate::types::{Datum, Interval, Numeric};

fn invalid() -> SqlError {
    SqlError::new(
        sqlstate::INVALID_PRECEDING_OR_FOLLOWING_SIZE,
        "invalid preceding or following size in window function",
    )
}

/// Whether `value` is at most (or at least) `base` plus (or minus) `offset`. 22013 for a negative
/// offset.
pub(super) fn in_range(
    value: &Datum,
    base: &Datum,
    offset: &Datum,
    subtract: bool,
    at_most: bool,
    context: Context<'_>,
) -> Result<bool> {
    let test = Test { subtract, at_most };
    match (value, base, offset) {
        (Datum::Numeric(value), Datum::Numeric(base), Datum::Numeric(offset)) => {
            test.numeric(value, base, offset)
        }
        (Datum::Float8(value), Datum::Float8(base), Datum::Float8(offset)) => {
            test.float(*value, *base, *offset)
        }
        (Datum::Float4(value), Datum::Float4(base), Datum::Float8(offset)) => {
            test.float(f64::from(*value), f64::from(*base), *offset)
        }
        (Datum::Date(value), Datum::Date(base), Datum::Interval(offset)) => {
            let (value, base) = (date_to_timestamp(*value)?, date_to_timestamp(*base)?);
            test.moment(value, base, *offset, add_to_timestamp)
        }
        (Datum::Timestamp(value), Datum::Timestamp(base), Datum::Interval(offset)) => {
            test.moment(*value, *base, *offset, add_to_timestamp)
        }
        (Datum::Timestamptz(value), Datum::Timestamptz(base), Datum::Interval(offset)) => {
            let zone = context.execution.read.eval.format.time_zone;
            test.moment(*value, *base, *offset, |at, by| add_to_timestamptz(at, by, zone))
        }
        (Datum::Interval(value), Datum::Interval(base), Datum::Interval(offset)) => {
            if offset.ordering_value() < 0 {
                return Err(invalid());
            }
            let offset = if subtract { offset.negated()? } else { *offset };
            Ok(test.holds(value, &base.plus(offset)?))
        }
        (Datum::Time(value), Datum::Time(base), Datum::Interval(offset)) => {
            if offset.micros < 0 {
                return Err(invalid());
            }
            let offset = i128::from(offset.micros) * if subtract { -1 } else { 1 };
            Ok(test.holds(&i128::from(*value), &(i128::from(*base) + offset)))
        }
        _ => match (value.as_i64(), base.as_i64(), offset.as_i64()) {
            (Some(value), Some(base), Some(offset)) => {
                if offset < 0 {
                    return Err(invalid());
                }
                let offset = i128::from(offset) * if subtract { -1 } else { 1 };
                Ok(test.holds(&i128::from(value), &(i128::from(base) + offset)))
            }
            _ => Err(SqlError::internal("a distance between values without one")),
        },
    }
}

#[derive(Clone, Copy)]
struct Test {
    subtract: bool,
    at_most: bool,
}

impl Test {
    fn holds<T: PartialOrd>(self, value: &T, limit: &T) -> bool {
        if self.at_most { value <= limit } else { value >= limit }
    }

    fn float(self, value: f64, base: f64, offset: f64) -> Result<bool> {
        if offset.is_nan() || offset < 0.0 {
            return Err(invalid());
        }
        // NaN comes after everything and is at no distance from itself.
        match (value.is_nan(), base.is_nan()) {
            (true, true) => return Ok(true),
            (true, false) => return Ok(!self.at_most),
            (false, true) => return Ok(self.at_most),
            (false, false) => {}
        }
        // Infinity less infinity could be anything.
        if offset.is_infinite() && base.is_infinite() && (base > 0.0) == self.subtract {
            return Ok(true);
        }
        let limit = if self.subtract { base - offset } else { base + offset };
        Ok(self.holds(&value, &limit))
    }

    fn numeric(self, value: &Numeric, base: &Numeric, offset: &Numeric) -> Result<bool> {
        if offset.is_nan() || offset.signum() < 0 {
            return Err(invalid());
        }
        // NaN comes after everything and is at no distance from itself.
        if value.is_nan() || base.is_nan() {
            return Ok(self.holds(value, base));
        }
        // Infinity less infinity could be anything.
        if offset.is_infinite() && base.is_infinite() && (base.signum() > 0) == self.subtract {
            return Ok(true);
        }
        let limit = if self.subtract { base.subtract(offset) } else { base.add(offset) };
        // A limit that is too large to be a value lies beyond all of them, but for an infinite one.
        Ok(match limit {
            Ok(limit) => self.holds(value, &limit),
            Err(_) if value.is_infinite() => self.holds(&value.signum(), &0),
            Err(_) => self.at_most != self.subtract,
        })
    }

    fn moment(
        self,
        value: i64,
        base: i64,
        offset: Interval,
        add: impl Fn(i64, Interval) -> Result<i64>,
    ) -> Result<bool> {
        if offset.ordering_value() < 0 {
            return Err(invalid());
        }
        let limit = add(base, if self.subtract { offset.negated()? } else { offset })?;
        Ok(self.holds(&value, &limit))
    }
}
