//! Intervals as text, in each of the styles of `IntervalStyle`.
//!
//! ```text
//! postgres           1 year 2 mons -3 days +04:05:06.7
//! postgres_verbose   @ 1 year 2 mons -3 days 4 hours 5 mins 6.7 secs
//! sql_standard       +1-2 -3 +4:05:06.7          without mixed parts: 1-2, and 3 4:05:06.7
//! iso_8601           P1Y2M-3DT4H5M6.7S
//! ```

use super::SECOND;
use super::calendar::Clock;
use super::format::{write_clock, write_fraction, write_within_hour};
use crate::types::output::write_integer;
use crate::types::{Interval, IntervalStyle};

/// An interval's parts: years, months and days, and of its time hours, minutes, seconds and
/// microseconds, which all have the same sign.
struct Parts {
    years: i64,
    months: i64,
    days: i64,
    time: Clock,
}

impl Parts {
    fn of(interval: Interval) -> Parts {
        let (months, micros) = (i64::from(interval.months), interval.micros);
        let time = Clock {
            hour: micros / (3600 * SECOND),
            minute: micros / (60 * SECOND) % 60,
            second: micros / SECOND % 60,
            micros: micros % SECOND,
        };
        Parts { years: months / 12, months: months % 12, days: i64::from(interval.days), time }
    }

    fn each(&self) -> [i64; 7] {
        let Clock { hour, minute, second, micros } = self.time;
        [self.years, self.months, self.days, hour, minute, second, micros]
    }
}

/// Without its sign.
fn without_sign(time: Clock) -> Clock {
    Clock {
        hour: time.hour.abs(),
        minute: time.minute.abs(),
        second: time.second.abs(),
        micros: time.micros.abs(),
    }
}

/// Appends an interval.
pub(crate) fn write_interval(interval: Interval, style: IntervalStyle, out: &mut Vec<u8>) {
    let parts = Parts::of(interval);
    match style {
        IntervalStyle::Postgres => postgres(&parts, out),
        IntervalStyle::PostgresVerbose => verbose(&parts, out),
        IntervalStyle::SqlStandard => standard(&parts, out),
        IntervalStyle::Iso8601 => iso(&parts, out),
    }
}

/// `1 day`, `-2 days`.
fn write_part(value: i64, unit: &str, out: &mut Vec<u8>) {
    write_integer(value, out);
    out.push(b' ');
    out.extend_from_slice(unit.as_bytes());
    if value != 1 {
        out.push(b's');
    }
}

fn postgres(parts: &Parts, out: &mut Vec<u8>) {
    let mut empty = true;
    let mut previous_negative = false;
    for (value, unit) in [(parts.years, "year"), (parts.months, "mon"), (parts.days, "day")] {
        if value == 0 {
            continue;
        }
        if !empty {
            out.push(b' ');
        }
        if previous_negative && value > 0 {
            out.push(b'+');
        }
        write_part(value, unit, out);
        previous_negative = value < 0;
        empty = false;
    }
    let time = &parts.each()[3..];
    if !empty && time.iter().all(|&value| value == 0) {
        return;
    }
    if !empty {
        out.push(b' ');
    }
    if time.iter().any(|&value| value < 0) {
        out.push(b'-');
    } else if previous_negative {
        out.push(b'+');
    }
    write_clock(without_sign(parts.time), out);
}

/// The first part that is not zero says whether the interval is one `ago`; signs are relative to
/// that.
fn verbose(parts: &Parts, out: &mut Vec<u8>) {
    out.push(b'@');
    let units = ["year", "mon", "day", "hour", "min"];
    let values = parts.each();
    let ago = values.iter().find(|&&value| value != 0).is_some_and(|&value| value < 0);
    for (&value, unit) in values.iter().zip(units) {
        if value == 0 {
            continue;
        }
        out.push(b' ');
        write_part(if ago { -value } else { value }, unit, out);
    }
    let Clock { second, micros, .. } = without_sign(parts.time);
    if second != 0 || micros != 0 {
        out.push(b' ');
        if (parts.time.second < 0 || parts.time.micros < 0) != ago {
            out.push(b'-');
        }
        write_integer(second, out);
        write_fraction(micros, out);
        out.extend_from_slice(if second == 1 && micros == 0 { b" sec" } else { b" secs" });
    }
    if values == [0; 7] {
        out.extend_from_slice(b" 0");
    }
    if ago {
        out.extend_from_slice(b" ago");
    }
}

/// The standard has one sign for all, and either years and months or days and times. Where that
/// does not do, all three parts stand with their signs.
fn standard(parts: &Parts, out: &mut Vec<u8>) {
    let values = parts.each();
    let (negative, positive) = (values.iter().any(|&value| value < 0), values.iter().any(|&value| value > 0));
    let has_months = values[..2].iter().any(|&value| value != 0);
    let has_time = values[2..].iter().any(|&value| value != 0);
    let clock = |out: &mut Vec<u8>| {
        let time = without_sign(parts.time);
        write_integer(time.hour, out);
        write_within_hour(time, out);
    };
    if !negative && !positive {
        out.push(b'0');
    } else if (negative && positive) || (has_months && has_time) {
        let sign = |values: &[i64]| if values.iter().any(|&value| value < 0) { b'-' } else { b'+' };
        out.push(sign(&values[..2]));
        write_integer(parts.years.abs(), out);
        out.push(b'-');
        write_integer(parts.months.abs(), out);
        out.extend_from_slice(&[b' ', sign(&values[2..3])]);
        write_integer(parts.days.abs(), out);
        out.extend_from_slice(&[b' ', sign(&values[3..])]);
        clock(out);
    } else {
        if negative {
            out.push(b'-');
        }
        if has_months {
            write_integer(parts.years.abs(), out);
            out.push(b'-');
            write_integer(parts.months.abs(), out);
            return;
        }
        if parts.days != 0 {
            write_integer(parts.days.abs(), out);
            out.push(b' ');
        }
        clock(out);
    }
}

fn iso(parts: &Parts, out: &mut Vec<u8>) {
    let values = parts.each();
    if values == [0; 7] {
        out.extend_from_slice(b"PT0S");
        return;
    }
    let write = |values: &[i64], letters: &[u8], out: &mut Vec<u8>| {
        for (&value, &letter) in values.iter().zip(letters).filter(|(value, _)| **value != 0) {
            write_integer(value, out);
            out.push(letter);
        }
    };
    out.push(b'P');
    write(&values[..3], b"YMD", out);
    if values[3..].iter().any(|&value| value != 0) {
        out.push(b'T');
    }
    write(&values[3..5], b"HM", out);
    let Clock { second, micros, .. } = without_sign(parts.time);
    if second != 0 || micros != 0 {
        if parts.time.second < 0 || parts.time.micros < 0 {
            out.push(b'-');
        }
        write_integer(second, out);
        write_fraction(micros, out);
        out.push(b'S');
    }
}
