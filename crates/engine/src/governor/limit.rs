//! `cognate.active_limit`: what the governor is asked to do.

use std::fmt;
use std::str::FromStr;

/// How many transactions may execute at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ActiveLimit {
    /// As many as give the best throughput.
    #[default]
    Auto,
    /// So many.
    Fixed(u32),
    /// Any number.
    Off,
}

/// A limit that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A number beyond the range.
    #[error("{0} is outside the valid range (1 .. {max})", max = ActiveLimit::MAX)]
    OutOfRange(String),
    /// Something else.
    #[error("\"{0}\" is neither auto, off nor a number (1 .. {max})", max = ActiveLimit::MAX)]
    Unknown(String),
}

impl ActiveLimit {
    /// The largest number.
    pub const MAX: u32 = 100_000;
}

impl FromStr for ActiveLimit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<ActiveLimit, LimitError> {
        let text = text.trim();
        match text.to_ascii_lowercase().as_str() {
            "auto" => return Ok(ActiveLimit::Auto),
            "off" => return Ok(ActiveLimit::Off),
            _ => {}
        }
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(LimitError::Unknown(text.to_owned()));
        }
        match text.parse() {
            Ok(limit) if (1..=ActiveLimit::MAX).contains(&limit) => Ok(ActiveLimit::Fixed(limit)),
            _ => Err(LimitError::OutOfRange(text.to_owned())),
        }
    }
}

impl fmt::Display for ActiveLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ActiveLimit::Auto => f.write_str("auto"),
            ActiveLimit::Fixed(limit) => limit.fmt(f),
            ActiveLimit::Off => f.write_str("off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_refused_with_their_range() {
        for (text, expected) in [
            ("auto", "auto"),
            (" OFF ", "off"),
            ("80", "80"),
            ("100000", "100000"),
            ("0", "0 is outside the valid range (1 .. 100000)"),
            ("-3", "-3 is outside the valid range (1 .. 100000)"),
            ("99999999999999999999", "99999999999999999999 is outside the valid range (1 .. 100000)"),
            ("", "\"\" is neither auto, off nor a number (1 .. 100000)"),
            ("2.5", "\"2.5\" is neither auto, off nor a number (1 .. 100000)"),
        ] {
            let read = text.parse::<ActiveLimit>();
            assert_eq!(read.map_or_else(|error| error.to_string(), |limit| limit.to_string()), expected);
        }
    }
}
