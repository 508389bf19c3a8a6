//! Keys as the maps in memory hold them: short ones in place.
//!
//! Searching a map compares many keys, each at another place in memory; what counts is not to
//! follow a pointer for each of them. Up to `INLINE` bytes are kept in the node itself, padded with
//! zeros, so that two such keys are mostly ordered by one comparison of their first sixteen bytes.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Deref;

/// Keys up to this length need no memory of their own.
const INLINE: usize = 30;

/// A key in a map.
#[derive(Debug, Clone)]
pub(crate) enum SmallKey {
    Inline { length: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

impl SmallKey {
    #[inline]
    pub(crate) fn new(key: &[u8]) -> SmallKey {
        if key.len() > INLINE {
            return SmallKey::Heap(key.into());
        }
        let mut bytes = [0; INLINE];
        bytes[..key.len()].copy_from_slice(key);
        SmallKey::Inline { length: key.len() as u8, bytes }
    }

    /// The parts one behind the other.
    pub(crate) fn concat(parts: &[&[u8]]) -> SmallKey {
        if parts.iter().map(|part| part.len()).sum::<usize>() > INLINE {
            return SmallKey::Heap(parts.concat().into());
        }
        let (mut bytes, mut length) = ([0; INLINE], 0);
        for part in parts {
            bytes[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        }
        SmallKey::Inline { length: length as u8, bytes }
    }

    /// Bytes of memory beside the value itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            SmallKey::Inline { .. } => 0,
            SmallKey::Heap(bytes) => bytes.len() + 16,
        }
    }
}

impl Deref for SmallKey {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            SmallKey::Inline { length, bytes } => &bytes[..usize::from(*length)],
            SmallKey::Heap(bytes) => bytes,
        }
    }
}

impl Ord for SmallKey {
    #[inline]
    fn cmp(&self, other: &SmallKey) -> Ordering {
        if let (SmallKey::Inline { bytes: a, .. }, SmallKey::Inline { bytes: b, .. }) = (self, other)
            && let (Some(a), Some(b)) = (a.first_chunk::<16>(), b.first_chunk::<16>())
            // Padding is zero, so a difference in the padding has the sign that the lengths would
            // give.
            && let order @ (Ordering::Less | Ordering::Greater) = u128::from_be_bytes(*a).cmp(&u128::from_be_bytes(*b))
        {
            return order;
        }
        self[..].cmp(&other[..])
    }
}

impl PartialOrd for SmallKey {
    fn partial_cmp(&self, other: &SmallKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SmallKey {
    fn eq(&self, other: &SmallKey) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for SmallKey {}

/// As that of the bytes.
impl std::hash::Hash for SmallKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl Borrow<[u8]> for SmallKey {
    fn borrow(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn order_is_that_of_the_bytes(
            a in proptest::collection::vec(0u8..3, 0..40),
            b in proptest::collection::vec(0u8..3, 0..40),
            common in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let (a, b) = ([&common[..], &a].concat(), [&common[..], &b].concat());
            let (small_a, small_b) = (SmallKey::new(&a), SmallKey::new(&b));
            prop_assert_eq!(&small_a[..], &a[..]);
            prop_assert_eq!(small_a.cmp(&small_b), a.cmp(&b));
            prop_assert_eq!(small_a == small_b, a == b);
            prop_assert!(SmallKey::concat(&[&common, &a[common.len()..]]) == small_a);
        }
    }
}
