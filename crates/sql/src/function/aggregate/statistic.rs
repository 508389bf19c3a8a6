//! Variances and standard deviations: exact for integers and numerics, by Youngs and Cramer's
//! updating formula for floats. The averages of floats come out of the same state, so that they
//! fail where the squares overflow, as in PostgreSQL.

use super::Accumulator;
use super::sum::Scales;
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::types::{Datum, Moments, Numeric, Type};

/// What is asked for.
#[derive(Clone, Copy)]
struct Wanted {
    sample: bool,
    root: bool,
}

/// Moments of the finite values; what is not finite is counted.
struct Exact {
    moments: Moments,
    /// NaNs and infinities.
    infinite: i64,
    scales: Scales,
    wanted: Wanted,
}

impl Exact {
    /// The number of an argument; none for NULL.
    fn value(argument: &Datum) -> Option<Numeric> {
        match argument {
            Datum::Null => None,
            Datum::Numeric(value) => Some(value.clone()),
            other => Some(Numeric::from(other.as_i64().unwrap_or(0))),
        }
    }
}

impl Accumulator for Exact {
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Result<(), SqlError> {
        let Some(value) = Exact::value(&arguments[0]) else { return Ok(()) };
        self.scales.add(&value);
        if value.is_finite() {
            self.moments.add(&value);
        } else {
            self.infinite += 1;
        }
        Ok(())
    }

    fn result(&self, _: &EvalContext<'_>) -> Result<Datum, SqlError> {
        let Wanted { sample, root } = self.wanted;
        let count = self.moments.count() + self.infinite;
        if count == 0 || (sample && count == 1) {
            return Ok(Datum::Null);
        }
        if self.infinite > 0 {
            return Ok(Datum::Numeric(Numeric::NAN));
        }
        let variance = self.moments.variance(if sample { count - 1 } else { count })?;
        let has_root = root && variance.signum() > 0;
        Ok(Datum::Numeric(if has_root { variance.sqrt_to_scale(variance.scale())? } else { variance }))
    }

    fn remove(&mut self, arguments: &[Datum]) -> Result<bool, SqlError> {
        let Some(value) = Exact::value(&arguments[0]) else { return Ok(true) };
        if !self.scales.remove(&value) {
            return Ok(false);
        }
        if value.is_finite() {
            self.moments.remove(&value);
        } else {
            self.infinite -= 1;
        }
        Ok(true)
    }
}

fn exact(sample: bool, root: bool) -> Box<dyn Accumulator> {
    let scales = Scales::default();
    Box::new(Exact { moments: Moments::default(), infinite: 0, scales, wanted: Wanted { sample, root } })
}

pub(super) fn sample_variance(_: &[Type]) -> Box<dyn Accumulator> {
    exact(true, false)
}

pub(super) fn population_variance(_: &[Type]) -> Box<dyn Accumulator> {
    exact(false, false)
}

pub(super) fn sample_deviation(_: &[Type]) -> Box<dyn Accumulator> {
    exact(true, true)
}

pub(super) fn population_deviation(_: &[Type]) -> Box<dyn Accumulator> {
    exact(false, true)
}

/// Count, sum, and sum of squared distances from the mean.
struct Float {
    count: f64,
    sum: f64,
    distances: f64,
    /// None for the average.
    wanted: Option<Wanted>,
}

impl Accumulator for Float {
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Result<(), SqlError> {
        let value = match &arguments[0] {
            Datum::Float4(value) => f64::from(*value),
            Datum::Float8(value) => *value,
            _ => return Ok(()),
        };
        let (before, was_finite) = (self.count, !self.sum.is_infinite());
        self.count += 1.0;
        self.sum += value;
        if before > 0.0 {
            let distance = value * self.count - self.sum;
            self.distances += distance * distance / (self.count * before);
            if self.sum.is_infinite() || self.distances.is_infinite() {
                // Only an infinity explains another one.
                if was_finite && !value.is_infinite() {
                    let message = "value out of range: overflow";
                    return Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, message));
                }
                self.distances = f64::NAN;
            }
        } else if !value.is_finite() {
            // An infinity or NaN makes the result NaN.
            self.distances = f64::NAN;
        }
        Ok(())
    }

    fn result(&self, _: &EvalContext<'_>) -> Result<Datum, SqlError> {
        if self.count == 0.0 {
            return Ok(Datum::Null);
        }
        let Some(Wanted { sample, root }) = self.wanted else {
            return Ok(Datum::Float8(self.sum / self.count));
        };
        if sample && self.count <= 1.0 {
            return Ok(Datum::Null);
        }
        let variance = self.distances / if sample { self.count - 1.0 } else { self.count };
        Ok(Datum::Float8(if root { variance.sqrt() } else { variance }))
    }

    fn is_flat(&self) -> bool {
        true
    }
}

fn float(sample: bool, root: bool) -> Box<dyn Accumulator> {
    Box::new(Float { count: 0.0, sum: 0.0, distances: 0.0, wanted: Some(Wanted { sample, root }) })
}

pub(super) fn float_average(_: &[Type]) -> Box<dyn Accumulator> {
    Box::new(Float { count: 0.0, sum: 0.0, distances: 0.0, wanted: None })
}

pub(super) fn float_sample_variance(_: &[Type]) -> Box<dyn Accumulator> {
    float(true, false)
}

pub(super) fn float_population_variance(_: &[Type]) -> Box<dyn Accumulator> {
    float(false, false)
}

pub(super) fn float_sample_deviation(_: &[Type]) -> Box<dyn Accumulator> {
    float(true, true)
}

pub(super) fn float_population_deviation(_: &[Type]) -> Box<dyn Accumulator> {
    float(false, true)
}
