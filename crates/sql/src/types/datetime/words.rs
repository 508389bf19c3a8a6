//! The words of dates and times: months, weekdays, units, abbreviations of time zones.

use std::collections::HashMap;
use std::sync::OnceLock;

/// Full names, January first.
pub(crate) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Full names, Sunday first.
pub(crate) const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A unit of time, as intervals, `extract` and `date_trunc` name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    Epoch,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Julian,
    Timezone,
    TimezoneHour,
    TimezoneMinute,
}

/// Every spelling, lower case.
const UNITS: &[(&str, Unit)] = &[
    ("us", Unit::Microsecond),
    ("usec", Unit::Microsecond),
    ("usecs", Unit::Microsecond),
    ("usecond", Unit::Microsecond),
    ("useconds", Unit::Microsecond),
    ("microsecon", Unit::Microsecond),
    ("microsecond", Unit::Microsecond),
    ("microseconds", Unit::Microsecond),
    ("ms", Unit::Millisecond),
    ("msec", Unit::Millisecond),
    ("msecs", Unit::Millisecond),
    ("msecond", Unit::Millisecond),
    ("mseconds", Unit::Millisecond),
    ("millisecon", Unit::Millisecond),
    ("millisecond", Unit::Millisecond),
    ("milliseconds", Unit::Millisecond),
    ("s", Unit::Second),
    ("sec", Unit::Second),
    ("secs", Unit::Second),
    ("second", Unit::Second),
    ("seconds", Unit::Second),
    ("m", Unit::Minute),
    ("min", Unit::Minute),
    ("mins", Unit::Minute),
    ("minute", Unit::Minute),
    ("minutes", Unit::Minute),
    ("h", Unit::Hour),
    ("hr", Unit::Hour),
    ("hrs", Unit::Hour),
    ("hour", Unit::Hour),
    ("hours", Unit::Hour),
    ("d", Unit::Day),
    ("day", Unit::Day),
    ("days", Unit::Day),
    ("w", Unit::Week),
    ("week", Unit::Week),
    ("weeks", Unit::Week),
    ("mon", Unit::Month),
    ("mons", Unit::Month),
    ("month", Unit::Month),
    ("months", Unit::Month),
    ("qtr", Unit::Quarter),
    ("quarter", Unit::Quarter),
    ("y", Unit::Year),
    ("yr", Unit::Year),
    ("yrs", Unit::Year),
    ("year", Unit::Year),
    ("years", Unit::Year),
    ("dec", Unit::Decade),
    ("decs", Unit::Decade),
    ("decade", Unit::Decade),
    ("decades", Unit::Decade),
    ("c", Unit::Century),
    ("cent", Unit::Century),
    ("century", Unit::Century),
    ("centuries", Unit::Century),
    ("mil", Unit::Millennium),
    ("mils", Unit::Millennium),
    ("millennia", Unit::Millennium),
    ("millennium", Unit::Millennium),
    ("epoch", Unit::Epoch),
    ("dow", Unit::DayOfWeek),
    ("isodow", Unit::IsoDayOfWeek),
    ("doy", Unit::DayOfYear),
    ("isoyear", Unit::IsoYear),
    ("julian", Unit::Julian),
    ("j", Unit::Julian),
    ("jd", Unit::Julian),
    ("timezone", Unit::Timezone),
    ("timezone_h", Unit::TimezoneHour),
    ("timezone_hour", Unit::TimezoneHour),
    ("timezone_m", Unit::TimezoneMinute),
    ("timezone_minute", Unit::TimezoneMinute),
];

impl Unit {
    /// The unit of a lower-case word.
    pub(crate) fn from_word(word: &str) -> Option<Unit> {
        UNITS.iter().find(|(spelling, _)| *spelling == word).map(|(_, unit)| *unit)
    }
}

/// 1 to 12 for a month's name or its abbreviation, lower case.
pub(super) fn month(word: &str) -> Option<u32> {
    if word == "sept" {
        return Some(9);
    }
    let index = MONTHS.iter().position(|name| {
        let name = name.to_ascii_lowercase();
        word == name || word == &name[..3]
    })?;
    Some(index as u32 + 1)
}

/// Is the lower-case word a weekday's name or an abbreviation of one?
pub(super) fn is_weekday(word: &str) -> bool {
    matches!(word, "tues" | "weds" | "wednes" | "thur" | "thurs")
        || WEEKDAYS.iter().any(|name| {
            let name = name.to_ascii_lowercase();
            word == name || word == &name[..3]
        })
}

/// Abbreviations of time zones and their minutes east of UTC; the common ones of PostgreSQL's default set.
const ABBREVIATIONS: &str = "\
    utc 0, ut 0, uct 0, gmt 0, z 0, zulu 0, wet 0, west 60, wetdst 60, bst 60, bdst 120, cet 60, \
    cest 120, cetdst 120, met 60, mest 120, metdst 120, mez 60, mesz 120, eet 120, eest 180, eetdst 180, \
    sast 120, ist 120, idt 180, eat 180, msk 180, msd 240, pkt 300, pkst 360, npt 345, bdt 360, mmt 390, \
    ict 420, wast 120, hkt 480, pht 480, sgt 480, myt 480, awst 480, wst 480, awsst 540, jst 540, \
    kst 540, kdt 600, acst 570, acdt 630, aest 600, aedt 660, east 600, aesst 660, ligt 600, nzst 720, \
    nzt 720, nzdt 780, azot -60, egt -60, egst 0, fnt -120, brt -180, brst -120, art -180, arst -120, \
    gft -180, nst -210, nft -210, ndt -150, ast -240, adt -180, clst -180, bot -240, est -300, edt -240, \
    cot -300, pet -300, cst -360, cdt -300, easst -360, galt -360, mst -420, mdt -360, pst -480, \
    pdt -420, akst -540, akdt -480, hst -600, taht -600";

/// Seconds east of UTC for an abbreviation, lower case.
pub(super) fn zone_abbreviation(word: &str) -> Option<i32> {
    static TABLE: OnceLock<HashMap<&str, i32>> = OnceLock::new();
    let entry = |entry: &'static str| {
        let (name, minutes) = entry.split_once(' ')?;
        Some((name, minutes.parse::<i32>().ok()? * 60))
    };
    TABLE.get_or_init(|| ABBREVIATIONS.split(", ").filter_map(entry).collect()).get(word).copied()
}
