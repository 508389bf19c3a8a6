//! Rows that were copied out of a map of versions or writes, and the ranges that they are asked for
//! by.

use std::ops::Bound;

use crate::key::SmallKey;
use crate::{Key, Value};

/// One key of a batch; `None` is a deletion.
pub(crate) type Entry = (Key, Option<Value>);

/// A key range by reference.
pub(crate) type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Copied rows. The keys lie in one buffer, so that a batch costs few allocations however many rows
/// it has.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    keys: Vec<u8>,
    /// End of the key in the buffer, and the value.
    rows: Vec<(u32, Option<Value>)>,
}

impl Rows {
    pub(crate) fn push(&mut self, key: &[u8], value: Option<Value>) {
        self.keys.extend_from_slice(key);
        self.rows.push((self.keys.len() as u32, value));
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The key of row `index`, if there is such a row.
    #[inline]
    pub(crate) fn key(&self, index: usize) -> Option<&[u8]> {
        let end = self.rows.get(index)?.0 as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.rows[before].0 as usize);
        Some(&self.keys[start..end])
    }

    /// The value of row `index`; none if it is deleted, or there is no such row.
    #[inline]
    pub(crate) fn value(&self, index: usize) -> Option<&Value> {
        self.rows.get(index)?.1.as_ref()
    }

    /// Forgets the rows.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.rows.clear();
    }

    /// The rows in order, and their number.
    pub(crate) fn into_entries(self) -> impl ExactSizeIterator<Item = Entry> {
        let keys = Key::from(self.keys);
        let mut start = 0;
        self.rows.into_iter().map(move |(end, value)| {
            let key = keys.slice(std::mem::replace(&mut start, end as usize)..end as usize);
            (key, value)
        })
    }
}

/// Copies up to `limit` rows. True if there are no more.
pub(crate) fn copy_rows<'a>(
    rows: impl Iterator<Item = (&'a SmallKey, Option<&'a Option<Value>>)>,
    limit: usize,
    into: &mut Rows,
) -> bool {
    for (key, value) in rows {
        if let Some(value) = value {
            into.push(key, value.clone());
            if into.len() == limit {
                return false;
            }
        }
    }
    true
}

/// Whether `BTreeMap::range` would refuse the range (it panics) or find nothing in it.
pub(crate) fn is_empty_range((lower, upper): &Range<'_>) -> bool {
    match (lower, upper) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
        _ => false,
    }
}
