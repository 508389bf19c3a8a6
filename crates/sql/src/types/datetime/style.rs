//! Dates and timestamps as text in the styles other than ISO (`DateStyle`).
//!
//! ```text
//! ISO        1997-12-17   1997-12-17 07:37:16-08
//! SQL        12/17/1997   12/17/1997 07:37:16 PST            DMY: 17/12/1997 …
//! Postgres   12-17-1997   Wed Dec 17 07:37:16 1997 PST       DMY: 17-12-1997, Wed 17 Dec …
//! German     17.12.1997   17.12.1997 07:37:16 PST
//! ```
//!
//! Zones have their abbreviations here, or their offset where the zone has none. JSON is ISO
//! always.

use super::calendar::{Civil, civil_from_days, clock, split, weekday};
use super::format::{two_digits, write_clock, write_year};
use super::zone::TimeZone;
use super::{MONTHS, WEEKDAYS, zone};
use crate::types::{DateOrder, DateStyle, FormatContext};

/// A date; it says whether its year is one before Christ, for which ` BC` follows at the end.
pub(super) fn write_day(days: i64, context: &FormatContext, out: &mut Vec<u8>) -> bool {
    let Civil { year, month, day } = civil_from_days(days);
    let separator = match context.date_style {
        DateStyle::Sql => b'/',
        DateStyle::German => b'.',
        DateStyle::Iso | DateStyle::Postgres => b'-',
    };
    let (first, second) = if is_day_first(context) { (day, month) } else { (month, day) };
    two_digits(i64::from(first), out);
    out.push(separator);
    two_digits(i64::from(second), out);
    out.push(separator);
    write_year(year, out)
}

fn is_day_first(context: &FormatContext) -> bool {
    context.date_style == DateStyle::German || context.date_order == DateOrder::Dmy
}

/// A local time, and of a moment the zone that it is in.
pub(super) fn write_time(
    local: i64,
    moment: Option<(i64, TimeZone)>,
    context: &FormatContext,
    out: &mut Vec<u8>,
) {
    let (days, micros) = split(local);
    let before_christ = if context.date_style == DateStyle::Postgres {
        let Civil { year, month, day } = civil_from_days(days);
        out.extend_from_slice(&WEEKDAYS[weekday(days) as usize].as_bytes()[..3]);
        out.push(b' ');
        let name = &MONTHS[month as usize - 1].as_bytes()[..3];
        if is_day_first(context) {
            two_digits(i64::from(day), out);
            out.push(b' ');
            out.extend_from_slice(name);
        } else {
            out.extend_from_slice(name);
            out.push(b' ');
            two_digits(i64::from(day), out);
        }
        out.push(b' ');
        write_clock(clock(micros), out);
        out.push(b' ');
        write_year(year, out)
    } else {
        let before_christ = write_day(days, context, out);
        out.push(b' ');
        write_clock(clock(micros), out);
        before_christ
    };
    if let Some((timestamp, tz)) = moment {
        out.push(b' ');
        out.extend_from_slice(zone::abbreviation_at(tz, timestamp).as_bytes());
    }
    if before_christ {
        out.extend_from_slice(b" BC");
    }
}
