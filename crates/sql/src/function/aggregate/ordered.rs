//! Ordered-set aggregates: `percentile_cont`, `percentile_disc` and `mode`.
//!
//! ```text
//! percentile_cont(0.5) WITHIN GROUP (ORDER BY x)     arguments 0.5, x, the rows in the order of x
//! ```
//!
//! What stands in WITHIN GROUP is the last argument, and the executor brings the rows in order. The
//! fraction, or the array of fractions, is the same in all rows. Values that are NULL do not count.

use super::Accumulator;
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::oltp::memory::datum_bytes;
use crate::types::{Array, Datum, Type, TypeId, float};

/// Whether the aggregates of this name are called with WITHIN GROUP.
pub(crate) fn is_ordered_set(name: &str) -> bool {
    ["percentile_cont", "percentile_disc", "mode"].contains(&name)
}

/// The values between which, or at which, a fraction of all lies.
struct Percentile {
    continuous: bool,
    /// Type of the values.
    element: TypeId,
    fractions: Datum,
    values: Vec<Datum>,
    bytes: usize,
}

fn percentile(types: &[Type], continuous: bool) -> Box<dyn Accumulator> {
    let element = types.get(1).map_or(TypeId::Text, |ty| ty.id);
    Box::new(Percentile { continuous, element, fractions: Datum::Null, values: vec![], bytes: 0 })
}

pub(super) fn continuous(types: &[Type]) -> Box<dyn Accumulator> {
    percentile(types, true)
}

pub(super) fn discrete(types: &[Type]) -> Box<dyn Accumulator> {
    percentile(types, false)
}

/// The point so far on the way from one value to the next.
fn between(low: &Datum, high: &Datum, part: f64) -> Result<Datum, SqlError> {
    match (low, high) {
        (Datum::Float8(low), Datum::Float8(high)) => Ok(Datum::Float8(low + part * (high - low))),
        (Datum::Interval(low), Datum::Interval(high)) => {
            let way = high.plus(low.negated()?)?.times(part)?;
            Ok(Datum::Interval(low.plus(way)?))
        }
        _ => Err(SqlError::internal("a percentile between values of other types")),
    }
}

/// `extra_float_digits` for six digits of a float8, as C's `%g` prints one.
const SIX_DIGITS: i32 = -9;

#[cold]
fn no_fraction(value: f64) -> SqlError {
    let mut digits = Vec::new();
    float::write_f64(value, SIX_DIGITS, &mut digits);
    let digits = String::from_utf8_lossy(&digits);
    let message = format!("percentile value {digits} is not between 0 and 1");
    SqlError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, message)
}

impl Percentile {
    /// 22003 if it is no fraction.
    fn at(&self, fraction: &Datum) -> Result<Datum, SqlError> {
        let Datum::Float8(fraction) = *fraction else { return Ok(Datum::Null) };
        if !(0.0..=1.0).contains(&fraction) {
            return Err(no_fraction(fraction));
        }
        // There are fewer values than a float counts exactly, and a fraction leads to one of them.
        let value = |place: f64| &self.values[place as usize];
        if self.values.is_empty() {
            return Ok(Datum::Null);
        }
        let count = self.values.len() as f64;
        if !self.continuous {
            return Ok(value((fraction * count).ceil().max(1.0) - 1.0).clone());
        }
        let place = fraction * (count - 1.0);
        let (before, behind) = (place.floor(), place.ceil());
        if behind > before {
            return between(value(before), value(behind), place - before);
        }
        Ok(value(before).clone())
    }
}

impl Accumulator for Percentile {
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Result<(), SqlError> {
        let [fractions, value] = arguments else {
            return Err(SqlError::internal("a percentile of other than two arguments"));
        };
        if self.fractions.is_null() {
            self.fractions = fractions.clone();
        }
        if !value.is_null() {
            self.bytes += datum_bytes(value);
            self.values.push(value.clone());
        }
        Ok(())
    }

    fn result(&self, _: &EvalContext<'_>) -> Result<Datum, SqlError> {
        let Datum::Array(fractions) = &self.fractions else { return self.at(&self.fractions) };
        if self.values.is_empty() {
            return Ok(Datum::Null);
        }
        let elements =
            fractions.elements.iter().map(|fraction| self.at(fraction)).collect::<Result<_, _>>()?;
        let dimensions = fractions.dimensions.clone();
        Ok(Array { element: self.element, dimensions, elements }.into())
    }

    fn memory(&self) -> usize {
        self.bytes
    }
}

/// The most frequent value, the first in the order of several.
#[derive(Default)]
struct Mode {
    best: Option<(Datum, u64)>,
    last: Option<(Datum, u64)>,
}

pub(super) fn mode(_: &[Type]) -> Box<dyn Accumulator> {
    Box::new(Mode::default())
}

impl Accumulator for Mode {
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Result<(), SqlError> {
        let [value] = arguments else { return Err(SqlError::internal("a mode of several arguments")) };
        if value.is_null() {
            return Ok(());
        }
        let last = match self.last.take() {
            Some((known, count)) if known == *value => (known, count + 1),
            _ => (value.clone(), 1),
        };
        if self.best.as_ref().is_none_or(|(_, most)| last.1 > *most) {
            self.best = Some(last.clone());
        }
        self.last = Some(last);
        Ok(())
    }

    fn result(&self, _: &EvalContext<'_>) -> Result<Datum, SqlError> {
        Ok(self.best.as_ref().map_or(Datum::Null, |(value, _)| value.clone()))
    }

    fn memory(&self) -> usize {
        [&self.best, &self.last].into_iter().flatten().map(|(value, _)| datum_bytes(value)).sum()
    }
}
