//! Reading and printing the values of settings.

use super::definition::Unit;
use super::{Definition, Kind};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::{quote_identifier, split_names};
use crate::types::datetime;

fn invalid(definition: &Definition, text: &str) -> SqlError {
    SqlError::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"{}\": \"{text}\"", definition.name),
    )
}

/// Checks a value and brings it to its normal form: numbers in the setting's own unit, booleans as
/// `on` and `off`. `current` is what the setting is now.
pub(super) fn normalize(definition: &Definition, text: &str, current: &str) -> Result<String> {
    match definition.kind {
        Kind::Bool => match parse_bool(text) {
            Some(value) => Ok(if value { "on" } else { "off" }.to_owned()),
            None => Err(SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("parameter \"{}\" requires a Boolean value", definition.name),
            )),
        },
        Kind::Integer { minimum, maximum, unit } => integer(definition, text, minimum, maximum, unit),
        Kind::Real { minimum, maximum } => {
            let value: f64 = text.trim().parse().map_err(|_| invalid(definition, text))?;
            if value.is_nan() || value < minimum || value > maximum {
                let upper = if maximum == f64::MAX { "1.79769e+308".to_owned() } else { maximum.to_string() };
                return Err(outside(definition, &value.to_string(), &minimum.to_string(), &upper));
            }
            Ok(value.to_string())
        }
        Kind::Enum(values) => enumerated(definition, text, values),
        Kind::Text if definition.name == "application_name" => Ok(printable(text)),
        Kind::Text if definition.name == "cognate.read_after" => token(definition, text),
        Kind::Text => Ok(text.to_owned()),
        Kind::Only(value) => match parse_bool(text) {
            _ if text.eq_ignore_ascii_case(value) => Ok(value.to_owned()),
            Some(given) if parse_bool(value) == Some(given) => Ok(value.to_owned()),
            _ => Err(SqlError::unsupported(format_args!("parameter \"{}\" = \"{text}\"", definition.name))),
        },
        Kind::Names => split_names(text)
            .map(|names| names.iter().map(|name| quote_identifier(name)).collect::<Vec<_>>().join(", "))
            .map_err(|()| invalid(definition, text).with_detail("List syntax is invalid.")),
        Kind::TimeZone => datetime::zone::setting_of(text).ok_or_else(|| invalid(definition, text)),
        Kind::DateStyle => date_style(definition, text, current),
        Kind::Encoding => match encoding_name(text).as_str() {
            "utf8" | "unicode" => Ok("UTF8".to_owned()),
            "sqlascii" | "latin1" | "iso88591" | "win1252" | "latin9" => {
                Err(SqlError::unsupported(format_args!("client encoding \"{text}\"")))
            }
            _ => Err(invalid(definition, text)),
        },
    }
}

/// A text that is shown to others and in logs: as in PostgreSQL each byte that is not printable
/// ASCII is a question mark, so nobody's name begins a new line there.
fn printable(text: &str) -> String {
    text.bytes().map(|byte| if matches!(byte, b' '..=b'~') { char::from(byte) } else { '?' }).collect()
}

/// The token of a commit, as `cognate.commit_token` shows it: a cluster's id and a position. Empty
/// for none.
fn token(definition: &Definition, text: &str) -> Result<String> {
    let parts = text.split_once('/');
    if text.is_empty() || parts.is_some_and(|(id, at)| !id.is_empty() && at.parse::<u64>().is_ok()) {
        return Ok(text.to_owned());
    }
    Err(invalid(definition, text).with_detail(
        "A token has the form <id of the cluster>/<position>, as SHOW cognate.commit_token tells it.",
    ))
}

/// An encoding's name with nothing but its letters and digits, which is how PostgreSQL compares
/// them: some clients quote it.
fn encoding_name(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// The normal form as SHOW prints it.
pub(super) fn display(definition: &Definition, value: &str) -> String {
    if let (Kind::Integer { unit, .. }, Ok(number)) = (definition.kind, value.parse::<i64>()) {
        return unit.display(number);
    }
    value.to_owned()
}

/// `on`, `off`, `true`, `false`, `yes`, `no`, `1`, `0` and their unambiguous prefixes.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    let text = text.trim().to_ascii_lowercase();
    let is = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    if is("true", 1) || is("yes", 1) || is("on", 2) || text == "1" {
        return Some(true);
    }
    (is("false", 1) || is("no", 1) || is("off", 2) || text == "0").then_some(false)
}

fn outside(definition: &Definition, value: &str, minimum: &str, maximum: &str) -> SqlError {
    SqlError::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        format!(
            "{value} is outside the valid range for parameter \"{}\" ({minimum} .. {maximum})",
            definition.name
        ),
    )
}

fn integer(definition: &Definition, text: &str, minimum: i64, maximum: i64, unit: Unit) -> Result<String> {
    let trimmed = text.trim();
    let digits = trimmed
        .char_indices()
        .take_while(|(at, c)| c.is_ascii_digit() || *c == '.' || (*at == 0 && matches!(c, '-' | '+')))
        .count();
    let (number, suffix) = trimmed.split_at(digits);
    let number: f64 = number.parse().map_err(|_| invalid(definition, text))?;
    let suffix = suffix.trim();
    let factor = match suffix {
        "" => 1.0,
        _ => unit.factor(suffix).ok_or_else(|| {
            let error = invalid(definition, text);
            if unit.suffixes().is_empty() { error } else { error.with_hint(unit.hint()) }
        })?,
    };
    let value = (number * factor).round_ties_even();
    if value.abs() > f64::from(i32::MAX) {
        return Err(invalid(definition, text).with_hint("Value exceeds integer range."));
    }
    let value = value as i64;
    if value < minimum || value > maximum {
        let shown =
            if unit.name().is_empty() { value.to_string() } else { format!("{value} {}", unit.name()) };
        return Err(outside(definition, &shown, &minimum.to_string(), &maximum.to_string()));
    }
    Ok(value.to_string())
}

fn enumerated(definition: &Definition, text: &str, values: &[&str]) -> Result<String> {
    if let Some(value) = values.iter().find(|value| value.eq_ignore_ascii_case(text.trim())) {
        return Ok((*value).to_owned());
    }
    // Enumerations with on and off take the other words for them too.
    if let Some(value) = parse_bool(text).map(|value| if value { "on" } else { "off" })
        && values.contains(&value)
    {
        return Ok(value.to_owned());
    }
    Err(invalid(definition, text).with_hint(format!("Available values: {}.", values.join(", "))))
}

/// `Postgres, DMY`. What the text does not name is as it is now; German dates have the day first
/// unless it says otherwise.
fn date_style(definition: &Definition, text: &str, current: &str) -> Result<String> {
    let (mut style, mut order): (Option<&str>, Option<&str>) = (None, None);
    let mut conflict = false;
    let mut choose = |place: &mut Option<&'static str>, value: &'static str| {
        conflict |= place.replace(value).is_some_and(|before| before != value);
    };
    if text.trim().is_empty() {
        return Ok(current.to_owned());
    }
    for word in text.split(',') {
        let word = word.trim().to_ascii_lowercase();
        match word.as_str() {
            "iso" => choose(&mut style, "ISO"),
            "sql" => choose(&mut style, "SQL"),
            "german" => choose(&mut style, "German"),
            "ymd" => choose(&mut order, "YMD"),
            "dmy" => choose(&mut order, "DMY"),
            "mdy" | "us" => choose(&mut order, "MDY"),
            "default" => {
                let (default_style, default_order) = definition.default.split_once(", ").unwrap_or_default();
                style.get_or_insert(default_style);
                order.get_or_insert(default_order);
            }
            word if word.starts_with("postgres") => choose(&mut style, "Postgres"),
            word if word.starts_with("euro") => choose(&mut order, "DMY"),
            word if word.starts_with("noneuro") => choose(&mut order, "MDY"),
            word => {
                return Err(
                    invalid(definition, text).with_detail(format!("Unrecognized key word: \"{word}\"."))
                );
            }
        }
    }
    if conflict {
        return Err(invalid(definition, text).with_detail("Conflicting \"datestyle\" specifications."));
    }
    let (current_style, current_order) = current.split_once(", ").unwrap_or(("ISO", "MDY"));
    let unnamed_order = if style == Some("German") { "DMY" } else { current_order };
    Ok(format!("{}, {}", style.unwrap_or(current_style), order.unwrap_or(unnamed_order)))
}
