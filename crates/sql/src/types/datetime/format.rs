//! Dates and times as text, dates in ISO style. `style` has the other ones, `interval_style`
//! intervals.

use super::calendar::{Clock, civil_from_days, clock, split};
use super::zone::TimeZone;
use super::{
    DATE_INFINITY, DATE_NEG_INFINITY, SECOND, TIMESTAMP_INFINITY, TIMESTAMP_NEG_INFINITY, style, zone,
};
use crate::types::output::write_integer;
use crate::types::{DateStyle, FormatContext};

pub(super) fn two_digits(value: i64, out: &mut Vec<u8>) {
    out.push(b'0' + (value / 10 % 10) as u8);
    out.push(b'0' + (value % 10) as u8);
}

/// The year of the era it is in; whether that is the one before Christ.
pub(super) fn write_year(year: i32, out: &mut Vec<u8>) -> bool {
    let before_christ = year <= 0;
    let year = if before_christ { 1 - i64::from(year) } else { i64::from(year) };
    if year < 1000 {
        out.extend_from_slice(
            &b"000"[if year < 10 {
                0
            } else if year < 100 {
                1
            } else {
                2
            }..],
        );
    }
    write_integer(year, out);
    before_christ
}

/// Year, month and day; whether the year is one before Christ.
fn write_day(days: i64, out: &mut Vec<u8>) -> bool {
    let civil = civil_from_days(days);
    let before_christ = write_year(civil.year, out);
    out.push(b'-');
    two_digits(i64::from(civil.month), out);
    out.push(b'-');
    two_digits(i64::from(civil.day), out);
    before_christ
}

pub(super) fn write_clock(time: Clock, out: &mut Vec<u8>) {
    if time.hour < 100 {
        two_digits(time.hour, out);
    } else {
        write_integer(time.hour, out);
    }
    write_within_hour(time, out);
}

/// `:05:06.7`
pub(super) fn write_within_hour(time: Clock, out: &mut Vec<u8>) {
    out.push(b':');
    two_digits(time.minute, out);
    out.push(b':');
    two_digits(time.second, out);
    write_fraction(time.micros, out);
}

/// `.5` for half a second; nothing for none.
pub(super) fn write_fraction(micros: i64, out: &mut Vec<u8>) {
    if micros == 0 {
        return;
    }
    out.push(b'.');
    let mut rest = micros;
    let mut unit = SECOND / 10;
    while rest > 0 {
        out.push(b'0' + (rest / unit) as u8);
        rest %= unit;
        unit /= 10;
    }
}

/// Appends a date.
pub(crate) fn write_date(date: i32, context: &FormatContext, out: &mut Vec<u8>) {
    if context.date_style == DateStyle::Iso {
        write_iso_date(date, out);
    } else if !write_special_date(date, out) && style::write_day(i64::from(date), context, out) {
        out.extend_from_slice(b" BC");
    }
}

/// Appends a date as JSON has it.
pub(crate) fn write_iso_date(date: i32, out: &mut Vec<u8>) {
    if !write_special_date(date, out) && write_day(i64::from(date), out) {
        out.extend_from_slice(b" BC");
    }
}

fn write_special_date(date: i32, out: &mut Vec<u8>) -> bool {
    match date {
        DATE_INFINITY => out.extend_from_slice(b"infinity"),
        DATE_NEG_INFINITY => out.extend_from_slice(b"-infinity"),
        _ => return false,
    }
    true
}

/// Appends a time of day.
pub(crate) fn write_time(time: i64, out: &mut Vec<u8>) {
    write_clock(clock(time), out);
}

fn write_special(timestamp: i64, out: &mut Vec<u8>) -> bool {
    match timestamp {
        TIMESTAMP_INFINITY => out.extend_from_slice(b"infinity"),
        TIMESTAMP_NEG_INFINITY => out.extend_from_slice(b"-infinity"),
        _ => return false,
    }
    true
}

/// Appends a timestamp, with this between day and time.
fn write_local(timestamp: i64, separator: u8, out: &mut Vec<u8>) -> bool {
    let (days, micros) = split(timestamp);
    let before_christ = write_day(days, out);
    out.push(separator);
    write_clock(clock(micros), out);
    before_christ
}

/// Appends a timestamp.
pub(crate) fn write_timestamp(timestamp: i64, context: &FormatContext, out: &mut Vec<u8>) {
    if context.date_style == DateStyle::Iso {
        write_iso_timestamp(timestamp, b' ', out);
    } else if !write_special(timestamp, out) {
        style::write_time(timestamp, None, context, out);
    }
}

/// Appends a moment as the local time of the session's zone.
pub(crate) fn write_timestamptz(timestamp: i64, context: &FormatContext, out: &mut Vec<u8>) {
    let zone = context.time_zone;
    if context.date_style == DateStyle::Iso {
        write_iso_timestamptz(timestamp, zone, b' ', out);
    } else if !write_special(timestamp, out) {
        let local = timestamp + i64::from(zone::offset_at(zone, timestamp)) * SECOND;
        style::write_time(local, Some((timestamp, zone)), context, out);
    }
}

/// Appends a timestamp; `separator` is a blank, or `T` in JSON.
pub(crate) fn write_iso_timestamp(timestamp: i64, separator: u8, out: &mut Vec<u8>) {
    if !write_special(timestamp, out) && write_local(timestamp, separator, out) {
        out.extend_from_slice(b" BC");
    }
}

/// Appends a moment as the local time of a zone with its offset. In JSON the separator is `T` and
/// the offset has minutes always.
pub(crate) fn write_iso_timestamptz(timestamp: i64, zone: TimeZone, separator: u8, out: &mut Vec<u8>) {
    if write_special(timestamp, out) {
        return;
    }
    let offset = zone::offset_at(zone, timestamp);
    let before_christ = write_local(timestamp + i64::from(offset) * SECOND, separator, out);
    write_offset(offset, separator == b'T', out);
    if before_christ {
        out.extend_from_slice(b" BC");
    }
}

/// Appends `+02`, `-03:30`, `+00:19:32`.
fn write_offset(offset: i32, minutes_always: bool, out: &mut Vec<u8>) {
    out.push(if offset < 0 { b'-' } else { b'+' });
    let seconds = i64::from(offset.unsigned_abs());
    two_digits(seconds / 3600, out);
    if seconds % 3600 != 0 || minutes_always {
        out.push(b':');
        two_digits(seconds / 60 % 60, out);
    }
    if seconds % 60 != 0 {
        out.push(b':');
        two_digits(seconds % 60, out);
    }
}
