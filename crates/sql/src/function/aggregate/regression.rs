//! Aggregates over pairs of floats: `corr`, `covar_pop`, `covar_samp` and `regr_*`, by Youngs and
//! Cramer's updating formula. Pairs of which one is NULL do not count.

use super::Accumulator;
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::types::Datum;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Count,
    SquaresOfX,
    SquaresOfY,
    Products,
    AverageOfX,
    AverageOfY,
    Determination,
    Slope,
    Intercept,
    PopulationCovariance,
    SampleCovariance,
    Correlation,
}

/// Count, sums, and sums of squared distances from the means and of their products.
struct Pairs {
    wanted: Wanted,
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

pub(super) fn pairs(wanted: Wanted) -> Box<dyn Accumulator> {
    Box::new(Pairs { wanted, count: 0.0, x: 0.0, y: 0.0, xx: 0.0, yy: 0.0, xy: 0.0 })
}

impl Pairs {
    fn take(&mut self, y: f64, x: f64) -> Result<(), SqlError> {
        let before = self.count;
        let (was_finite_x, was_finite_y) = (!self.x.is_infinite(), !self.y.is_infinite());
        self.count += 1.0;
        self.x += x;
        self.y += y;
        if before == 0.0 {
            // An infinity or NaN makes all NaN that it is part of.
            if !x.is_finite() {
                (self.xx, self.xy) = (f64::NAN, f64::NAN);
            }
            if !y.is_finite() {
                (self.yy, self.xy) = (f64::NAN, f64::NAN);
            }
            return Ok(());
        }
        let from_x = x * self.count - self.x;
        let from_y = y * self.count - self.y;
        let scale = 1.0 / (self.count * before);
        self.xx += from_x * from_x * scale;
        self.yy += from_y * from_y * scale;
        self.xy += from_x * from_y * scale;
        let is_finite_x = was_finite_x && !x.is_infinite();
        let is_finite_y = was_finite_y && !y.is_infinite();
        let overflows = ((self.x.is_infinite() || self.xx.is_infinite()) && is_finite_x)
            || ((self.y.is_infinite() || self.yy.is_infinite()) && is_finite_y)
            || (self.xy.is_infinite() && is_finite_x && is_finite_y);
        if overflows {
            let message = "value out of range: overflow";
            return Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        for sum in [&mut self.xx, &mut self.yy, &mut self.xy] {
            if sum.is_infinite() {
                *sum = f64::NAN;
            }
        }
        Ok(())
    }

    /// None where there is no such number.
    fn value(&self) -> Option<f64> {
        let needed = if self.wanted == Wanted::SampleCovariance { 2.0 } else { 1.0 };
        if self.count < needed {
            return None;
        }
        let (flat_x, flat_y) = (self.xx == 0.0, self.yy == 0.0);
        Some(match self.wanted {
            Wanted::Count => self.count,
            Wanted::SquaresOfX => self.xx,
            Wanted::SquaresOfY => self.yy,
            Wanted::Products => self.xy,
            Wanted::AverageOfX => self.x / self.count,
            Wanted::AverageOfY => self.y / self.count,
            Wanted::PopulationCovariance => self.xy / self.count,
            Wanted::SampleCovariance => self.xy / (self.count - 1.0),
            Wanted::Correlation if flat_x || flat_y => return None,
            Wanted::Determination | Wanted::Slope | Wanted::Intercept if flat_x => return None,
            Wanted::Correlation => self.xy / (self.xx * self.yy).sqrt(),
            Wanted::Determination if flat_y => 1.0,
            Wanted::Determination => (self.xy * self.xy) / (self.xx * self.yy),
            Wanted::Slope => self.xy / self.xx,
            Wanted::Intercept => (self.y - self.x * self.xy / self.xx) / self.count,
        })
    }
}

impl Accumulator for Pairs {
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Result<(), SqlError> {
        match arguments {
            // Counting alone cannot overflow.
            [Datum::Float8(_), Datum::Float8(_)] if self.wanted == Wanted::Count => {
                self.count += 1.0;
                Ok(())
            }
            [Datum::Float8(y), Datum::Float8(x)] => self.take(*y, *x),
            _ => Ok(()),
        }
    }

    fn result(&self, _: &EvalContext<'_>) -> Result<Datum, SqlError> {
        if self.wanted == Wanted::Count {
            return Ok(Datum::Int8(self.count as i64));
        }
        Ok(self.value().map_or(Datum::Null, Datum::Float8))
    }

    fn is_flat(&self) -> bool {
        true
    }
}
