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
        // As in PostgreSQL ten letters tell.
        let word = word.get(..10).unwrap_or(word);
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

/// Abbreviations of time zones and their minutes east of UTC: PostgreSQL's default set.
const ABBREVIATIONS: &str = "\
    eat 180, sast 120, wat 60, act -300, akdt -480, akst -540, bot -240, bra -180, brst -120, \
    brt -180, cot -300, cdt -300, clst -180, cst -360, edt -240, egst 0, egt -60, est -300, \
    fnt -120, fnst -60, gft -180, mdt -360, mst -420, ndt -150, nft -210, nst -210, pet -300, \
    pdt -420, pmdt -120, pmst -180, pst -480, pyst -180, uyst -120, uyt -180, wgst -120, \
    wgt -180, ddut 600, aft 270, almt 360, almst 420, amt -240, bdt 360, bnt 480, bort 480, \
    btt 360, cct 480, hkt 480, ict 420, idt 180, irt 210, ist 120, jayt 540, jst 540, kdt 600, \
    kgst 360, kst 540, mmt 390, myt 480, npt 345, pht 480, pkt 300, pkst 360, tjt 300, \
    ulast 540, uzst 360, uzt 300, xjt 360, yekst 360, adt -180, ast -240, azost 0, azot -60, \
    acsst 630, acdt 630, acst 570, acwst 525, aesst 660, aedt 660, aest 600, awsst 540, \
    awst 480, cadt 630, cast 570, lhst 630, ligt 600, nzt 720, sadt 630, wadt 480, wast 420, \
    wdt 540, gmt 0, uct 0, ut 0, utc 0, z 0, zulu 0, bst 60, bdst 120, cest 120, cet 60, \
    cetdst 120, eest 180, eet 120, eetdst 180, fet 180, mest 120, mesz 120, met 60, metdst 120, \
    mez 60, msd 240, wet 0, wetdst 60, cxt 420, mut 240, must 300, mvt 300, ret 240, sct 240, \
    tft 300, chadt 825, chast 765, chut 600, fjst 780, fjt 720, galt -360, gamt -540, gilt 720, \
    hst -600, mart -570, mht 720, mpt 600, nzdt 780, nzst 720, pgt 600, pont 660, pwt 540, \
    taht -600, tot 780, trut 600, tvt 720, vut 660, wakt 720, wft 720, yapt 600";

/// Abbreviations whose offset was another one at other times: the zone tells it.
const CHANGING_ABBREVIATIONS: &str = "\
    art America/Argentina/Buenos_Aires, arst America/Argentina/Buenos_Aires, \
    clt America/Santiago, gyt America/Guyana, pyt America/Asuncion, vet America/Caracas, \
    davt Antarctica/Davis, mawt Antarctica/Mawson, amst Asia/Yerevan, anast Asia/Anadyr, \
    anat Asia/Anadyr, azst Asia/Baku, azt Asia/Baku, gest Asia/Tbilisi, get Asia/Tbilisi, \
    irkst Asia/Irkutsk, irkt Asia/Irkutsk, kgt Asia/Bishkek, krast Asia/Krasnoyarsk, \
    krat Asia/Krasnoyarsk, lkt Asia/Colombo, magst Asia/Magadan, magt Asia/Magadan, \
    novst Asia/Novosibirsk, novt Asia/Novosibirsk, omsst Asia/Omsk, omst Asia/Omsk, \
    petst Asia/Kamchatka, pett Asia/Kamchatka, sgt Asia/Singapore, tmt Asia/Ashgabat, \
    ulat Asia/Ulaanbaatar, vlast Asia/Vladivostok, vlat Asia/Vladivostok, yakst Asia/Yakutsk, \
    yakt Asia/Yakutsk, yekt Asia/Yekaterinburg, fkst Atlantic/Stanley, fkt Atlantic/Stanley, \
    lhdt Australia/Lord_Howe, msk Europe/Moscow, volt Europe/Volgograd, iot Indian/Chagos, \
    ckt Pacific/Rarotonga, easst Pacific/Easter, east Pacific/Easter, kost Pacific/Kosrae, \
    lint Pacific/Kiritimati, nut Pacific/Niue, tkt Pacific/Fakaofo";

/// Seconds east of UTC for an abbreviation, lower case.
pub(super) fn zone_abbreviation(word: &str) -> Option<i32> {
    static TABLE: OnceLock<HashMap<&str, i32>> = OnceLock::new();
    let entry = |entry: &'static str| {
        let (name, minutes) = entry.split_once(' ')?;
        Some((name, minutes.parse::<i32>().ok()? * 60))
    };
    TABLE.get_or_init(|| ABBREVIATIONS.split(", ").filter_map(entry).collect()).get(word).copied()
}

/// An abbreviation, lower case, with the name of the zone that tells its offset.
pub(super) fn changing_abbreviation(word: &str) -> Option<(&'static str, &'static str)> {
    let mut entries = CHANGING_ABBREVIATIONS.split(", ").filter_map(|entry| entry.split_once(' '));
    entries.find(|(name, _)| *name == word)
}

/// Whether a lower-case word means something in a date by itself, so that what is joined to it is
/// no part of a zone's name.
pub(super) fn is_keyword(word: &str) -> bool {
    month(word).is_some()
        || is_weekday(word)
        || matches!(
            word,
            "am" | "pm"
                | "ad"
                | "bc"
                | "at"
                | "on"
                | "t"
                | "y"
                | "m"
                | "mm"
                | "d"
                | "h"
                | "s"
                | "j"
                | "jd"
                | "julian"
                | "epoch"
                | "infinity"
                | "now"
                | "today"
                | "tomorrow"
                | "yesterday"
                | "allballs"
                | "dst"
        )
}
