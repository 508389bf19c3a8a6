//! Snapshots as values: `xmin:xmax:xip,...` (types pg_snapshot and txid_snapshot).
//!
//! Below `xmin` every transaction had ended, from `xmax` on none had; between them those of the
//! list still ran. Values are kept as their text in this one form. As `xid8funcs.c` reads and
//! sends them.

use std::fmt;

use super::malformed::{TOO_LONG, insufficient, invalid};
use crate::error::SqlError;

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) xmin: u64,
    pub(crate) xmax: u64,
    /// Ascending, each once, from `xmin` on and below `xmax`.
    pub(crate) running: Vec<u64>,
}

/// A number as `strtoull` reads it, 0 where there is none, and what stands behind.
fn number(text: &str) -> (u64, &str) {
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let digits = text.strip_prefix('+').unwrap_or(text);
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    let value = digits[..length]
        .bytes()
        .fold(0u64, |value, digit| value.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    if length == 0 { (0, text) } else { (value, &digits[length..]) }
}

impl Snapshot {
    /// 22P02 if the text is none.
    pub(crate) fn parse(text: &str) -> Result<Snapshot, SqlError> {
        Snapshot::read(text).ok_or_else(|| SqlError::invalid_text("pg_snapshot", text))
    }

    fn read(text: &str) -> Option<Snapshot> {
        let (xmin, rest) = number(text);
        let (xmax, rest) = number(rest.strip_prefix(':')?);
        let mut rest = rest.strip_prefix(':')?;
        let mut snapshot = Snapshot::bounded(xmin, xmax)?;
        while !rest.is_empty() {
            let (id, behind) = number(rest);
            // PostgreSQL takes a list that ends with a comma.
            rest = match behind.strip_prefix(',') {
                Some(behind) => behind,
                None if behind.is_empty() => behind,
                None => return None,
            };
            snapshot.add(id, id < xmax)?;
        }
        Some(snapshot)
    }

    fn bounded(xmin: u64, xmax: u64) -> Option<Snapshot> {
        let running = Vec::new();
        (xmin > 0 && xmin <= xmax).then_some(Snapshot { xmin, xmax, running })
    }

    /// Adds an id to those that are there already, unless it is out of order.
    fn add(&mut self, id: u64, is_below: bool) -> Option<()> {
        let last = self.running.last().copied().unwrap_or(0);
        if id < self.xmin || id < last || !is_below {
            return None;
        }
        if id != last {
            self.running.push(id);
        }
        Some(())
    }

    /// Whether a transaction had ended.
    pub(crate) fn shows(&self, id: u64) -> bool {
        id < self.xmin || (id < self.xmax && self.running.binary_search(&id).is_err())
    }

    pub(super) fn write_binary(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.running.len() as u32).to_be_bytes());
        for id in [self.xmin, self.xmax].iter().chain(&self.running) {
            out.extend_from_slice(&id.to_be_bytes());
        }
    }

    /// 22P03 if the bytes are none, 08P01 if they end too early.
    pub(super) fn read_binary(bytes: &[u8]) -> Result<Snapshot, SqlError> {
        let wrong = || invalid("invalid external pg_snapshot data");
        let (count, mut rest) = bytes.split_first_chunk::<4>().ok_or_else(insufficient)?;
        let count = i32::from_be_bytes(*count);
        let mut next = || {
            let (id, behind) = rest.split_first_chunk::<8>().ok_or_else(insufficient)?;
            rest = behind;
            Ok::<u64, SqlError>(u64::from_be_bytes(*id))
        };
        if count < 0 {
            return Err(wrong());
        }
        let mut snapshot = Snapshot::bounded(next()?, next()?).ok_or_else(wrong)?;
        for _ in 0..count {
            let id = next()?;
            // Here PostgreSQL takes `xmax` itself, too.
            let is_below = id <= snapshot.xmax;
            snapshot.add(id, is_below).ok_or_else(wrong)?;
        }
        if rest.is_empty() { Ok(snapshot) } else { Err(invalid(TOO_LONG)) }
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.xmin, self.xmax)?;
        for (place, id) in self.running.iter().enumerate() {
            write!(f, "{}{id}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_and_text_tell_the_same() {
        for text in ["1:1:", "12:20:12,15,19", "12:18446744073709551615:13"] {
            let snapshot = Snapshot::parse(text).expect(text);
            let mut bytes = Vec::new();
            snapshot.write_binary(&mut bytes);
            assert_eq!(Snapshot::read_binary(&bytes).expect(text), snapshot);
            assert_eq!(snapshot.to_string(), text);
            assert!(Snapshot::read_binary(&bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn what_is_out_of_order_is_none() {
        for text in ["", "31:12:", "0:1:", "12:13:0", "12:16:14,13", "12:16:16", "1:2", "1:2:x", "1:5:2,,3"] {
            assert!(Snapshot::parse(text).is_err(), "{text}");
        }
        assert_eq!(Snapshot::parse(" 12:+16:14,14,").expect("a snapshot").to_string(), "12:16:14");
    }
}
