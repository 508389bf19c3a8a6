//! Which families have been forgotten: the high-water mark of a client.
//!
//! A family outlives its COMMIT, because answers get lost and slow instances arrive late. Once the
//! client has acknowledged the answer nobody needs the result, but the *fact* must stay: a slow
//! application server that began the request again, and found nothing, would execute it a second
//! time. Neither may the fact be dropped after some time, for no pause is long enough.
//!
//! # The rule
//!
//! 1. A client acknowledges what it has the answer to, and an answer is given only once every site
//!    has committed. So *forgotten at one site* implies *decided at every site*: nothing prepared
//!    is left behind by it.
//! 2. A site forgets only what it has decided itself. What it has never heard of cannot be
//!    forgotten, and no acknowledgement covers other requests than the one that it names: a client
//!    may have several in flight, and give up on one.
//! 3. An XID of the form `client/number` leaves a number in its client's record; any other XID
//!    leaves itself (the caller keeps the key).
//! 4. A client numbers its requests 1, 2, 3, … without gaps and, started anew without its numbers,
//!    takes a new client name. The record is the mark, up to which all are forgotten, and ranges
//!    above it. There are never more ranges than requests that were begun and not acknowledged.
//!    A client that does not count so is served, too: what would be one more range than a record
//!    has room for leaves itself, as in 3, until it is next to a range (`stored`).
//! 5. BEGIN, PREPARE, COMMIT and FORGET of what is forgotten are refused with `Forgotten`. Who gets
//!    that for a COMMIT may count it as done, by 1.
//!
//! ```text
//! forget c/1           upto 1
//! forget c/3, c/4      upto 1   3–4        2 is still running, or was given up
//! forget c/2           upto 4
//! ```

use std::collections::BTreeMap;

/// The forgotten requests of one client. Numbers begin at 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Collected {
    upto: u64,
    /// First and last of each range; not adjacent to each other or to the mark.
    ranges: BTreeMap<u64, u64>,
}

impl Collected {
    /// What was kept somewhere else.
    pub(super) fn of(upto: u64, ranges: Vec<(u64, u64)>) -> Collected {
        Collected { upto, ranges: ranges.into_iter().collect() }
    }

    /// All numbers up to this one are forgotten: the high-water mark.
    pub fn upto(&self) -> u64 {
        self.upto
    }

    /// The highest forgotten number, or 0.
    pub(super) fn highest(&self) -> u64 {
        self.ranges.last_key_value().map_or(self.upto, |(_, last)| *last)
    }

    /// Forgotten numbers above the mark, first and last of each range, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().map(|(first, last)| (*first, *last))
    }

    /// Whether the request is forgotten.
    pub fn contains(&self, number: u64) -> bool {
        number <= self.upto
            || self.ranges.range(..=number).next_back().is_some_and(|(_, last)| number <= *last)
    }

    /// First and last of the range around a forgotten request.
    pub(super) fn around(&self, number: u64) -> (u64, u64) {
        let range = self.ranges.range(..=number).next_back();
        range.map_or((1, self.upto), |(first, last)| (*first, *last))
    }

    /// Whether forgetting the request makes no range of its own.
    pub(super) fn extends(&self, number: u64) -> bool {
        let is_neighbour = |of: Option<u64>| of.is_some_and(|of| self.contains(of));
        self.contains(number) || is_neighbour(number.checked_sub(1)) || is_neighbour(number.checked_add(1))
    }

    /// Forgets a request. False if it was forgotten already.
    pub fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        let last = number.checked_add(1).and_then(|next| self.ranges.remove(&next)).unwrap_or(number);
        // Not contained, so above the mark and at least 1.
        if number - 1 == self.upto {
            self.upto = last;
            return true;
        }
        match self.ranges.range_mut(..number).next_back() {
            Some((_, before)) if *before == number - 1 => *before = last,
            _ => drop(self.ranges.insert(number, last)),
        }
        true
    }
}
