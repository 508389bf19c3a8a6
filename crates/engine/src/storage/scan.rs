//! An ordered scan of the base store: the runs' cursors merged, the newest run's word on a key taken, deletions left out.
//!
//! The scan owns what it reads: runs that are merged away meanwhile stay readable until it is dropped.

use std::ops::Bound;
use std::sync::Arc;

use super::cache::BlockCache;
use super::cursor::RunCursor;
use super::run::Run;
use crate::{Error, Key, TreeId, Value};

/// See the module's description.
#[derive(Debug)]
pub struct BaseScan {
    /// Newest run first; used-up cursors are removed.
    cursors: Vec<RunCursor>,
    reverse: bool,
    /// The far end: upper bound, or lower bound in reverse.
    end: Bound<Key>,
}

impl BaseScan {
    pub(crate) fn empty() -> BaseScan {
        BaseScan { cursors: Vec::new(), reverse: false, end: Bound::Unbounded }
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
        Ok(BaseScan { cursors, reverse, end: end.map(Key::copy_from_slice) })
    }

    /// The next present entry in order; `None` at the end, and from then on.
    #[allow(clippy::should_implement_trait, reason = "fallible; the name is the engine's for all scans")]
    pub fn next(&mut self) -> Result<Option<(Key, Value)>, Error> {
        loop {
            let Some(best) = self.best() else { return Ok(None) };
            let Some((key, value)) = self.cursors[best].entry() else { return Ok(None) };
            if self.past_end(&key) {
                self.cursors.clear();
                return Ok(None);
            }
            // Older runs' entries of the same key are outdated. Backward, so that removal leaves the indexes ahead alone.
            for index in (best..self.cursors.len()).rev() {
                if index == best || self.cursors[index].key() == Some(&key[..]) {
                    self.cursors[index].advance()?;
                    if self.cursors[index].key().is_none() {
                        self.cursors.remove(index);
                    }
                }
            }
            if let Some(value) = value {
                return Ok(Some((key, value)));
            }
        }
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
