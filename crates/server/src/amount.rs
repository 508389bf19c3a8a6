//! Amounts as the configuration writes them: a number with a unit.

use std::time::Duration;

/// A number with a unit: `us`, `ms` or `s`; 0 needs none.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let factor = match unit.trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "" if number == 0.0 => 0.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * factor).ok()
}

/// Bytes from a number with an optional unit: `B`, `kB`, `MB`, `GB`, `TB` (powers of 1024, any
/// case, `i` allowed).
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is not a size; write for example 256MB or 2GB");
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("\"{text}\" is too large"))
}
