//! Intervals: months, days and microseconds, kept apart because a month has no fixed number of days
//! and a day no fixed number of hours.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// A span of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    /// Whole months; years are twelve of them.
    pub months: i32,
    /// Whole days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

impl Interval {
    /// The length used for ordering: a month is 30 days and a day 24 hours. In microseconds.
    pub fn ordering_value(self) -> i128 {
        let days = i128::from(self.months) * 30 + i128::from(self.days);
        days * 86_400_000_000 + i128::from(self.micros)
    }

    /// An interval of this ordering value, with as many whole months and days as it holds.
    pub(crate) fn from_ordering_value(value: i128) -> Option<Interval> {
        let days = value / 86_400_000_000;
        let months = days / 30;
        let mut interval = Interval {
            months: i32::try_from(months.clamp(i128::from(i32::MIN), i128::from(i32::MAX))).ok()?,
            ..Interval::default()
        };
        let rest = value - i128::from(interval.months) * 30 * 86_400_000_000;
        let days = rest / 86_400_000_000;
        interval.days = i32::try_from(days.clamp(i128::from(i32::MIN), i128::from(i32::MAX))).ok()?;
        interval.micros = i64::try_from(rest - i128::from(interval.days) * 86_400_000_000).ok()?;
        Some(interval)
    }
}

impl PartialEq for Interval {
    fn eq(&self, other: &Interval) -> bool {
        self.ordering_value() == other.ordering_value()
    }
}

impl Eq for Interval {}

impl PartialOrd for Interval {
    fn partial_cmp(&self, other: &Interval) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Interval {
    fn cmp(&self, other: &Interval) -> Ordering {
        self.ordering_value().cmp(&other.ordering_value())
    }
}

impl Hash for Interval {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ordering_value().hash(state);
    }
}
