//! Counts, sums and averages.

use super::{Accumulator, Partial, not_divisible};
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::types::{Datum, Interval, Numeric, Type, TypeId};

type Added = Result<(), SqlError>;
type Finished = Result<Datum, SqlError>;

/// `count(*)` and `count(x)`.
struct Count {
    rows: i64,
    skip_nulls: bool,
}

impl Accumulator for Count {
    fn is_flat(&self) -> bool {
        true
    }
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Added {
        if !self.skip_nulls || !arguments[0].is_null() {
            self.rows += 1;
        }
        Ok(())
    }
    fn result(&self, _: &EvalContext<'_>) -> Finished {
        Ok(Datum::Int8(self.rows))
    }
    fn remove(&mut self, arguments: &[Datum]) -> Result<bool, SqlError> {
        if !self.skip_nulls || !arguments[0].is_null() {
            self.rows -= 1;
        }
        Ok(true)
    }
    fn partial(&self) -> Option<Partial> {
        Some(Partial::Rows(self.rows))
    }
    fn absorb(&mut self, later: Partial) -> Added {
        let Partial::Rows(rows) = later else { return Err(not_divisible()) };
        self.rows += rows;
        Ok(())
    }
}

pub(super) fn count_rows(_: &[Type]) -> Box<dyn Accumulator> {
    Box::new(Count { rows: 0, skip_nulls: false })
}

pub(super) fn count_values(_: &[Type]) -> Box<dyn Accumulator> {
    Box::new(Count { rows: 0, skip_nulls: true })
}

/// Integers of any width: the sum in 128 bits, which no number of rows overflows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IntegerResult {
    Int8,
    Numeric,
    Average,
}

struct IntegerSum {
    sum: i128,
    count: i64,
    result: IntegerResult,
}

impl Accumulator for IntegerSum {
    fn is_flat(&self) -> bool {
        true
    }
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Added {
        if let Some(value) = arguments[0].as_i64() {
            self.sum += i128::from(value);
            self.count += 1;
        }
        Ok(())
    }
    fn result(&self, context: &EvalContext<'_>) -> Finished {
        if self.count == 0 {
            return Ok(Datum::Null);
        }
        match self.result {
            IntegerResult::Int8 => {
                i64::try_from(self.sum).map(Datum::Int8).map_err(|_| SqlError::out_of_range("bigint"))
            }
            IntegerResult::Numeric => Ok(Datum::Numeric(Numeric::from(self.sum))),
            IntegerResult::Average => self.average(context),
        }
    }
    fn average(&self, _: &EvalContext<'_>) -> Finished {
        if self.count == 0 {
            return Ok(Datum::Null);
        }
        Numeric::from(self.sum).divide(&Numeric::from(self.count)).map(Datum::Numeric)
    }
    fn remove(&mut self, arguments: &[Datum]) -> Result<bool, SqlError> {
        if let Some(value) = arguments[0].as_i64() {
            self.sum -= i128::from(value);
            self.count -= 1;
        }
        Ok(true)
    }
    fn partial(&self) -> Option<Partial> {
        Some(Partial::Integers(self.sum, self.count))
    }
    fn absorb(&mut self, later: Partial) -> Added {
        let Partial::Integers(sum, count) = later else { return Err(not_divisible()) };
        self.sum += sum;
        self.count += count;
        Ok(())
    }
}

fn integers(result: IntegerResult) -> Box<dyn Accumulator> {
    Box::new(IntegerSum { sum: 0, count: 0, result })
}

pub(super) fn sum_of_narrow(_: &[Type]) -> Box<dyn Accumulator> {
    integers(IntegerResult::Int8)
}

pub(super) fn sum_of_wide(_: &[Type]) -> Box<dyn Accumulator> {
    integers(IntegerResult::Numeric)
}

pub(super) fn average_of_integer(_: &[Type]) -> Box<dyn Accumulator> {
    integers(IntegerResult::Average)
}

/// How many of the values have the most digits behind the point. A sum shows as many; once the last
/// such value goes, it would show too many.
#[derive(Clone, Copy, Default)]
pub(super) struct Scales {
    most: u32,
    count: i64,
}

impl Scales {
    pub(super) fn add(&mut self, value: &Numeric) {
        let scale = value.scale();
        if scale > self.most {
            *self = Scales { most: scale, count: 0 };
        }
        self.count += i64::from(scale == self.most);
    }

    /// False if the values that are left have fewer digits, no one knows how many, or if the value
    /// is no number: what was added to it is lost.
    pub(super) fn remove(&mut self, value: &Numeric) -> bool {
        if !value.is_finite() {
            return false;
        }
        self.count -= i64::from(value.scale() == self.most);
        self.count > 0 || self.most == 0
    }
}

struct NumericSum {
    sum: Numeric,
    count: i64,
    scales: Scales,
    average: bool,
}

impl Accumulator for NumericSum {
    fn is_flat(&self) -> bool {
        true
    }
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Added {
        if let Datum::Numeric(value) = &arguments[0] {
            self.sum.accumulate(value)?;
            self.scales.add(value);
            self.count += 1;
        }
        Ok(())
    }
    fn result(&self, context: &EvalContext<'_>) -> Finished {
        match (self.count, self.average) {
            (0, _) => Ok(Datum::Null),
            (_, true) => self.average(context),
            (_, false) => Ok(Datum::Numeric(self.sum.clone())),
        }
    }
    fn average(&self, _: &EvalContext<'_>) -> Finished {
        if self.count == 0 {
            return Ok(Datum::Null);
        }
        self.sum.divide(&Numeric::from(self.count)).map(Datum::Numeric)
    }
    fn remove(&mut self, arguments: &[Datum]) -> Result<bool, SqlError> {
        let Datum::Numeric(value) = &arguments[0] else { return Ok(true) };
        if !self.scales.remove(value) {
            return Ok(false);
        }
        self.sum = self.sum.subtract(value)?;
        self.count -= 1;
        Ok(true)
    }
    fn partial(&self) -> Option<Partial> {
        Some(Partial::Numerics(self.sum.clone(), self.count))
    }
    fn absorb(&mut self, later: Partial) -> Added {
        let Partial::Numerics(sum, count) = later else { return Err(not_divisible()) };
        // The sum shows as many digits behind the point as any of the values.
        self.sum.accumulate(&sum)?;
        self.count += count;
        Ok(())
    }
}

pub(super) fn sum_of_numeric(_: &[Type]) -> Box<dyn Accumulator> {
    Box::new(NumericSum { sum: Numeric::ZERO, count: 0, scales: Scales::default(), average: false })
}

pub(super) fn average_of_numeric(_: &[Type]) -> Box<dyn Accumulator> {
    Box::new(NumericSum { sum: Numeric::ZERO, count: 0, scales: Scales::default(), average: true })
}

/// Floats, summed in the order they come. The sum of float4 rounds at each step.
struct FloatSum {
    /// Before the first value it is -0, to which anything is added unchanged, even another -0.
    sum: f64,
    count: i64,
    narrow: bool,
    infinite: bool,
}

impl Accumulator for FloatSum {
    fn is_flat(&self) -> bool {
        true
    }
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Added {
        let value = match &arguments[0] {
            Datum::Float4(value) => f64::from(*value),
            Datum::Float8(value) => *value,
            _ => return Ok(()),
        };
        self.infinite |= value.is_infinite();
        self.sum += value;
        if self.narrow {
            self.sum = f64::from(self.sum as f32);
        }
        self.count += 1;
        if self.sum.is_infinite() && !self.infinite {
            return Err(SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
        }
        Ok(())
    }
    fn result(&self, _: &EvalContext<'_>) -> Finished {
        Ok(if self.count == 0 {
            Datum::Null
        } else if self.narrow {
            Datum::Float4(self.sum as f32)
        } else {
            Datum::Float8(self.sum)
        })
    }
}

pub(super) fn sum_of_float(types: &[Type]) -> Box<dyn Accumulator> {
    let narrow = types.first().is_some_and(|ty| ty.id == TypeId::Float4);
    Box::new(FloatSum { sum: -0.0, count: 0, narrow, infinite: false })
}

struct IntervalSum {
    sum: Interval,
    count: i64,
    average: bool,
}

impl Accumulator for IntervalSum {
    fn is_flat(&self) -> bool {
        true
    }
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Added {
        if let Datum::Interval(value) = &arguments[0] {
            self.sum = self.sum.plus(*value)?;
            self.count += 1;
        }
        Ok(())
    }
    fn result(&self, _: &EvalContext<'_>) -> Finished {
        if self.count == 0 {
            return Ok(Datum::Null);
        }
        Ok(Datum::Interval(if self.average { self.sum.divided_by(self.count as f64)? } else { self.sum }))
    }
    fn remove(&mut self, arguments: &[Datum]) -> Result<bool, SqlError> {
        if let Datum::Interval(value) = &arguments[0] {
            self.sum = self.sum.plus(value.negated()?)?;
            self.count -= 1;
        }
        Ok(true)
    }
}

pub(super) fn sum_of_interval(_: &[Type]) -> Box<dyn Accumulator> {
    Box::new(IntervalSum { sum: Interval::default(), count: 0, average: false })
}

pub(super) fn average_of_interval(_: &[Type]) -> Box<dyn Accumulator> {
    Box::new(IntervalSum { sum: Interval::default(), count: 0, average: true })
}
