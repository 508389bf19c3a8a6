//! A cursor's range in parts, to be read by several threads.
//!
//! Nothing is known of how the keys lie. So the first and the last one are taken as numbers, from
//! the first byte in which they differ on, and the numbers between them are divided evenly:
//!
//! ```text
//! 00 00 00 07 … 00 0f 42 40, in four      from 00 00 00 07, 00 03 d0 95, 00 07 a1 23, 00 0b 71 b1
//! ```
//!
//! Keys that are counted up come out evenly, others as they may: the parts are right in any case,
//! only some are large and others empty. So there should be several for each thread.
//!
//! Invariant: each key of the range is in exactly one part, and those of a part come before those
//! of the next.

use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::scan::{Noted, OwnedBound, Scan};
use crate::sight::Sight;
use crate::store::Store;
use crate::{Error, TreeId};

/// Where a part begins.
pub(crate) type Divider = SmallVec<[u8; 32]>;

/// Parts of what was left of a cursor, in the order of their keys. What is read of them is noted
/// already.
pub struct Divided {
    store: Arc<Store>,
    sight: Arc<Sight>,
    id: TreeId,
    lower: OwnedBound,
    upper: OwnedBound,
    dividers: Vec<Divider>,
}

impl Divided {
    pub(crate) fn new(
        store: Arc<Store>,
        sight: Arc<Sight>,
        id: TreeId,
        (lower, upper): (OwnedBound, OwnedBound),
        dividers: Vec<Divider>,
    ) -> Divided {
        Divided { store, sight, id, lower, upper, dividers }
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.dividers.len() + 1
    }

    /// An ascending cursor over a part, from 0.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from the base store.
    pub fn open(&self, part: usize) -> Result<Scan, Error> {
        let lower = match part.checked_sub(1).and_then(|before| self.dividers.get(before)) {
            Some(divider) => Bound::Included(&divider[..]),
            None => self.lower.as_ref().map(|key| &key[..]),
        };
        let upper = match self.dividers.get(part) {
            Some(divider) => Bound::Excluded(&divider[..]),
            None => self.upper.as_ref().map(|key| &key[..]),
        };
        let (store, sight) = (Arc::clone(&self.store), Arc::clone(&self.sight));
        Scan::open(store, sight, self.id, (lower, upper), false, None, None, Noted::Not)
    }
}

impl std::fmt::Debug for Divided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Divided").field("parts", &self.parts()).finish_non_exhaustive()
    }
}

/// Keys, ascending, that divide those behind `first` up to `last` into so many parts, or fewer if
/// there is no room for as many. All of them are between the two.
pub(crate) fn dividers(first: &[u8], last: &[u8], parts: usize) -> Vec<Divider> {
    let common = first.iter().zip(last).take_while(|(one, other)| one == other).count();
    let number = |key: &[u8]| {
        let mut number = [0; 8];
        for (place, byte) in number.iter_mut().zip(&key[common..]) {
            *place = *byte;
        }
        u64::from_be_bytes(number)
    };
    let (low, high) = (number(first), number(last));
    let (width, parts) = (u128::from(high.saturating_sub(low)), parts as u128);
    let mut dividers: Vec<Divider> = Vec::new();
    let mut before = low;
    for part in 1..parts {
        let at = low + (width * part / parts) as u64;
        if at > before {
            let mut divider = Divider::from_slice(&first[..common]);
            divider.extend_from_slice(&at.to_be_bytes());
            dividers.push(divider);
            before = at;
        }
    }
    dividers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dividers_ascend_between_the_first_key_and_the_last() {
        let keys: [(&[u8], &[u8]); 7] = [
            (&[0, 0, 0, 7], &[0, 15, 66, 64]),
            (b"a", b"b"),
            (b"a", b"a\0"),
            (b"", b"z"),
            (b"same and then one", b"same and then two"),
            (&[1; 40], &[2; 40]),
            (&[0; 9], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ];
        for (first, last) in keys {
            for parts in [1, 2, 7, 32] {
                let dividers = dividers(first, last, parts);
                assert!(dividers.len() < parts, "{first:?} {last:?}: {dividers:?}");
                assert!(dividers.windows(2).all(|pair| pair[0] < pair[1]), "{dividers:?}");
                assert!(dividers.iter().all(|key| first < &key[..] && &key[..] < last), "{dividers:?}");
            }
        }
        let even = dividers(&[0, 0, 0, 0], &[0, 0, 4, 0], 4);
        let starts: Vec<&[u8]> = even.iter().map(|key| &key[..4]).collect();
        assert_eq!(starts, [[0, 0, 1, 0], [0, 0, 2, 0], [0, 0, 3, 0]]);
        assert!(dividers(b"b", b"a", 4).is_empty(), "there is nothing between them");
    }
}
