//! Rows that were copied out of a map of versions or writes, and the ranges that they are asked for
//! by.
//!
//! Keys and short values lie in one buffer, one behind the other. Copying so few bytes costs less
//! than counting one more reference to each of them, and taking it back later, which is another
//! place in memory for every row.

use std::ops::Bound;

use bytes::Bytes;

use crate::key::SmallKey;
use crate::lent::Lent;
use crate::{Key, Value};

/// Values up to this many bytes are copied; longer ones are shared.
const COPIED_MAX: usize = 512;
/// About so many bytes a row has, before anything is known of the rows.
const USUAL: usize = 96;

/// One key of a batch; `None` is a deletion.
pub(crate) type Entry = (Key, Option<Value>);

/// A key range by reference.
pub(crate) type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Copied rows. They can be read once they are sealed.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    rows: Vec<Row>,
    /// Values too long to be copied.
    shared: Vec<Value>,
    /// What is copied, until the rows are sealed, and from then on.
    filling: Vec<u8>,
    sealed: Bytes,
    /// So many bytes will be copied, as far as one can tell.
    expected: usize,
}

/// Where a row is in the buffer: its key from `start` to `middle`, its value from there to `end`.
#[derive(Debug)]
struct Row {
    start: u32,
    middle: u32,
    end: u32,
    held: Held,
}

#[derive(Clone, Copy, Debug)]
enum Held {
    Deleted,
    Copied,
    /// Its place among those that are shared.
    Shared(u32),
}

impl Rows {
    pub(crate) fn push(&mut self, key: &[u8], value: Option<&Value>) {
        if self.filling.is_empty() {
            self.filling.reserve(self.expected);
        }
        let start = self.filling.len() as u32;
        self.filling.extend_from_slice(key);
        let middle = self.filling.len() as u32;
        let held = match value {
            None => Held::Deleted,
            Some(value) if value.len() <= COPIED_MAX => {
                self.filling.extend_from_slice(value);
                Held::Copied
            }
            Some(value) => {
                self.shared.push(value.clone());
                Held::Shared(self.shared.len() as u32 - 1)
            }
        };
        self.rows.push(Row { start, middle, end: self.filling.len() as u32, held });
    }

    /// No row follows: from now on they can be read.
    pub(crate) fn seal(&mut self) {
        self.sealed = Bytes::from(std::mem::take(&mut self.filling));
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
        let row = self.rows.get(index)?;
        Some(&self.sealed[row.start as usize..row.middle as usize])
    }

    /// The value of row `index`; none if it is deleted, or there is no such row.
    #[inline]
    pub(crate) fn value(&self, index: usize) -> Option<Lent<'_>> {
        let row = self.rows.get(index)?;
        match row.held {
            Held::Copied => {
                Some(Lent::new(&self.sealed[row.middle as usize..row.end as usize], &self.sealed))
            }
            Held::Shared(place) => self.shared.get(place as usize).map(Lent::from),
            Held::Deleted => None,
        }
    }

    /// Both of row `index`; none if it is deleted, or there is no such row.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Option<(&[u8], Lent<'_>)> {
        let row = self.rows.get(index)?;
        let key = &self.sealed[row.start as usize..row.middle as usize];
        let value = match row.held {
            Held::Copied => Lent::new(&self.sealed[row.middle as usize..row.end as usize], &self.sealed),
            Held::Shared(place) => Lent::from(self.shared.get(place as usize)?),
            Held::Deleted => return None,
        };
        Some((key, value))
    }

    /// Whether there is a row `index` that is not deleted.
    #[inline]
    pub(crate) fn has_value(&self, index: usize) -> bool {
        self.rows.get(index).is_some_and(|row| !matches!(row.held, Held::Deleted))
    }

    /// Forgets the rows. Up to `limit` others of their kind come next.
    pub(crate) fn restart(&mut self, limit: usize) {
        let each = self.sealed.len().checked_div(self.rows.len()).unwrap_or(USUAL);
        self.expected = (each + each / 8) * limit;
        self.rows.clear();
        self.shared.clear();
        self.filling.clear();
        self.sealed = Bytes::new();
    }

    /// The rows in order, and their number.
    pub(crate) fn into_entries(mut self) -> impl ExactSizeIterator<Item = Entry> {
        self.seal();
        let Rows { rows, shared, sealed, .. } = self;
        rows.into_iter().map(move |row| {
            let (start, middle, end) = (row.start as usize, row.middle as usize, row.end as usize);
            let value = match row.held {
                Held::Deleted => None,
                Held::Copied => Some(sealed.slice(middle..end)),
                Held::Shared(place) => shared.get(place as usize).cloned(),
            };
            (sealed.slice(start..middle), value)
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
            into.push(key, value.as_ref());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Short values, long ones and deletions come back as they were put, by place and as entries,
    /// again after a restart.
    #[test]
    fn rows_come_back_as_they_were_put() {
        let mut rows = Rows::default();
        for round in 0..2u8 {
            let value = |index: usize| match index % 3 {
                0 => None,
                1 => Some(Value::from(vec![round; index])),
                _ => Some(Value::from(vec![round; COPIED_MAX + index])),
            };
            rows.restart(30);
            (0..30).for_each(|index| rows.push(&[index as u8; 5], value(index).as_ref()));
            rows.seal();
            for index in 0..30 {
                assert_eq!(rows.key(index), Some(&[index as u8; 5][..]));
                assert_eq!(rows.value(index).map(Lent::own), value(index));
                assert_eq!(rows.has_value(index), index % 3 != 0);
                let both = rows.entry(index).map(|(key, value)| (key, value.own()));
                assert_eq!(both, rows.key(index).zip(rows.value(index).map(Lent::own)));
            }
            assert!(rows.key(30).is_none() && rows.value(30).is_none() && !rows.has_value(30));
        }
        let mut rows = Rows::default();
        rows.push(b"a", Some(&Value::from_static(b"short")));
        rows.push(b"b", None);
        rows.push(b"c", Some(&Value::from(vec![7; 2 * COPIED_MAX])));
        let entries: Vec<Entry> = rows.into_entries().collect();
        assert_eq!(entries[0], (Key::from_static(b"a"), Some(Value::from_static(b"short"))));
        assert_eq!(entries[1], (Key::from_static(b"b"), None));
        assert_eq!(entries[2].1.as_ref().map(Value::len), Some(2 * COPIED_MAX));
    }
}
