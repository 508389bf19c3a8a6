//! An ordered scan of the base store: the runs' cursors merged, the newest run's word on a key
//! taken, deletions left out.
//!
//! The scan owns what it reads: runs that are merged away meanwhile stay readable until it is
//! dropped.

use std::ops::Bound;
use std::sync::Arc;

use super::cache::BlockCache;
use super::cursor::RunCursor;
use super::run::Run;
use crate::{Error, Key, Lent, TreeId, Value};

/// See the module's description.
#[derive(Debug)]
pub struct BaseScan {
    /// Newest run first; used-up cursors are removed.
    cursors: Vec<RunCursor>,
    /// The cursor whose entry is the scan's; those behind it may have older entries of the key.
    current: Option<usize>,
    reverse: bool,
    /// The far end: upper bound, or lower bound in reverse.
    end: Bound<Key>,
}

impl BaseScan {
    pub(crate) fn empty() -> BaseScan {
        BaseScan { cursors: Vec::new(), current: None, reverse: false, end: Bound::Unbounded }
    }

    pub(super) fn new(
        runs: &[Arc<Run>],
        cache: &Arc<BlockCache>,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<BaseScan, Error> {
        let (start, end) = if reverse { (upper, lower) } else { (lower, upper) };
        let mut cursors = Vec::with_capacity(runs.len());
        for run in runs {
            let cursor = RunCursor::new(run, cache, tree, start, reverse)?;
            cursors.extend(cursor.filter(|cursor| cursor.key().is_some()));
        }
        Ok(BaseScan { cursors, current: None, reverse, end: end.map(Key::copy_from_slice) })
    }

    /// Moves to the next present entry in order. False at the end, and from then on.
    pub fn advance(&mut self) -> Result<bool, Error> {
        // Mostly one run alone has the rows.
        if self.cursors.len() == 1 && self.current.is_some() {
            self.cursors[0].advance()?;
            let cursor = &self.cursors[0];
            if cursor.value().is_some() && cursor.key().is_some_and(|key| !self.past_end(key)) {
                return Ok(true);
            }
            self.current = None;
        }
        loop {
            if let Some(current) = self.current.take() {
                self.pass(current)?;
            }
            let Some(best) = self.best() else { return Ok(false) };
            if self.cursors[best].key().is_none_or(|key| self.past_end(key)) {
                self.cursors.clear();
                return Ok(false);
            }
            self.current = Some(best);
            if self.cursors[best].value().is_some() {
                return Ok(true);
            }
        }
    }

    /// Moves the cursors past the current key. Older runs' entries of the same key are outdated.
    fn pass(&mut self, current: usize) -> Result<(), Error> {
        if current + 1 < self.cursors.len() {
            let (newer, older) = self.cursors.split_at_mut(current + 1);
            let key = newer[current].key();
            for cursor in older {
                if cursor.key() == key {
                    cursor.advance()?;
                }
            }
        }
        self.cursors[current].advance()?;
        if self.cursors.iter().any(|cursor| cursor.key().is_none()) {
            self.cursors.retain(|cursor| cursor.key().is_some());
        }
        Ok(())
    }

    /// The key that the scan is at; `None` before the first and after the last.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.cursors[self.current?].key()
    }

    /// The value that the scan is at.
    #[inline]
    pub fn value(&self) -> Option<Lent<'_>> {
        self.cursors[self.current?].value()
    }

    /// The next present entry in order; `None` at the end, and from then on.
    #[allow(clippy::should_implement_trait, reason = "fallible; the name is the engine's for all scans")]
    pub fn next(&mut self) -> Result<Option<(Key, Value)>, Error> {
        if !self.advance()? {
            return Ok(None);
        }
        let entry = self.key().zip(self.value());
        // Keys lie in the same buffer as values.
        Ok(entry.map(|(key, value)| (value.buffer().slice_ref(key), value.share())))
    }

    /// The cursor with the next key; among equals the newest run's.
    fn best(&self) -> Option<usize> {
        let mut best = 0;
        let mut best_key = self.cursors.first()?.key()?;
        for (index, cursor) in self.cursors.iter().enumerate().skip(1) {
            let key = cursor.key()?;
            if if self.reverse { key > best_key } else { key < best_key } {
                (best, best_key) = (index, key);
            }
        }
        Some(best)
    }

    #[inline]
    fn past_end(&self, key: &[u8]) -> bool {
        match (&self.end, self.reverse) {
            (Bound::Unbounded, _) => false,
            (Bound::Included(end), false) => key > &end[..],
            (Bound::Excluded(end), false) => key >= &end[..],
            (Bound::Included(end), true) => key < &end[..],
            (Bound::Excluded(end), true) => key <= &end[..],
        }
    }
}
