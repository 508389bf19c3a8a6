//! A vector in segments: it grows without moving what it has.
//!
//! A vector that grows takes its items to a place twice as large. With millions of them that takes
//! tens of milliseconds, in which a statement hears of nothing. Here only the list of segments
//! grows like that. To give everything back takes long as well, so that somebody may say in between
//! that it is enough.

use std::ops::{Index, IndexMut};

use crate::error::Result;

/// Items of a segment.
const SEGMENT: usize = 1 << 12;

/// Items by their places.
pub(super) struct Segmented<T> {
    /// All full but the last, and none empty.
    segments: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Segmented<T> {
    fn default() -> Segmented<T> {
        Segmented { segments: vec![], len: 0 }
    }
}

impl<T> Segmented<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn push(&mut self, item: T) {
        if self.len.is_multiple_of(SEGMENT) {
            // The first one grows as any vector does: most have no other.
            let capacity = if self.segments.is_empty() { 0 } else { SEGMENT };
            self.segments.push(Vec::with_capacity(capacity));
        }
        if let Some(last) = self.segments.last_mut() {
            last.push(item);
            self.len += 1;
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.segments.get_mut(at / SEGMENT)?.get_mut(at % SEGMENT)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.segments.iter_mut().flatten()
    }

    /// Gives all items back, the last one first, and asks for each of them. After an error some are
    /// still there.
    pub(super) fn give_back(&mut self, mut go_on: impl FnMut() -> Result<()>) -> Result<()> {
        while let Some(last) = self.segments.last_mut() {
            drop(last.pop());
            self.len -= 1;
            if last.is_empty() {
                self.segments.pop();
            }
            go_on()?;
        }
        Ok(())
    }
}

impl<T> Index<usize> for Segmented<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.segments[at / SEGMENT][at % SEGMENT]
    }
}

impl<T> IndexMut<usize> for Segmented<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.segments[at / SEGMENT][at % SEGMENT]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{SqlError, sqlstate};

    fn of(count: usize) -> Segmented<usize> {
        let mut items = Segmented::default();
        (0..count).for_each(|n| items.push(n));
        items
    }

    #[test]
    fn it_has_what_was_put_in_and_moves_nothing() {
        let mut items = of(2 * SEGMENT);
        let second: *const usize = &items[SEGMENT];
        (2 * SEGMENT..5 * SEGMENT + 1).for_each(|n| items.push(n));
        assert_eq!(items.len(), 5 * SEGMENT + 1);
        assert!((0..items.len()).all(|n| items[n] == n));
        assert!(std::ptr::eq(second, &items[SEGMENT]), "it was moved");
        items[SEGMENT] = 7;
        assert_eq!(items.get_mut(SEGMENT), Some(&mut 7));
        assert_eq!(items.get_mut(5 * SEGMENT + 1), None);
        assert_eq!(items.iter_mut().count(), items.len());
    }

    #[test]
    fn it_is_asked_for_each_item_that_goes() {
        let count = 2 * SEGMENT + 3;
        for stop in [1, 3, 4, SEGMENT, count] {
            let mut items = of(count);
            let mut asked = 0;
            let stopped = items.give_back(|| {
                asked += 1;
                match asked == stop {
                    true => Err(SqlError::new(sqlstate::QUERY_CANCELED, "stopped")),
                    false => Ok(()),
                }
            });
            assert_eq!(stopped.expect_err("it was stopped").sqlstate, "57014");
            assert_eq!(items.len(), count - stop);
            items.push(9);
            assert_eq!(items[count - stop], 9, "what is left is as before");
            items.give_back(|| Ok(())).expect("nobody stops it");
            assert!(items.is_empty() && items.iter_mut().next().is_none());
        }
    }
}
