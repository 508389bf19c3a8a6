//! A cursor over a key range at one snapshot: memory, base store and own writes, merged.
//!
//! The cursor takes committed versions from memory in batches, each under one short lock, and
//! everything else from a scan of the base. It holds no lock between calls, and it owns all it
//! needs (its snapshot is pinned), so it may live as long as its transaction, across statements.
//!
//! # Why a version that moves meanwhile is not missed
//!
//! The checkpoint publishes a new view of the base *before* it drops the versions from memory. The
//! cursor reads a batch of memory first and looks for the current view *after* that. For a key in
//! the batch's range, the version it wants was either in memory then, and is in the batch; or it
//! had been dropped before, and then the view that has it was published before, and is found now. A
//! view never changes, so it stays right for this batch however late its rows are read. With each
//! further batch the view is looked up again, and if a newer one belongs to the snapshot, the base
//! scan is opened anew behind the last key taken from memory.
//!
//! A tree that the transaction itself made has nothing committed in it; there the base's part is
//! what the transaction has spilled.
//!
//! A row of the base is handed out only if the memory batch reaches beyond it or memory is
//! exhausted: that is why a batch is refilled as soon as it is empty, before the next choice.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::divided::{Divided, dividers};
use crate::lent::Lent;
use crate::memory::Tree;
use crate::rows::{Range, Rows, is_empty_range};
use crate::sight::Sight;
use crate::storage::BaseScan;
use crate::store::Store;
use crate::txn::bulk::Private;
use crate::txn::columns::Interest;
use crate::txn::readset::RangePlace;
use crate::txn::writeset::TreeWrites;
use crate::{Csn, Error, Key, TreeId, Value};

/// Rows copied at first; the batch then grows fourfold up to `LAST_BATCH`.
const FIRST_BATCH: usize = 16;
const LAST_BATCH: usize = 256;
const BASE_ONLY: Turn = Turn { base: true, memory: false, own: false };
const MEMORY_ONLY: Turn = Turn { base: false, memory: true, own: false };

/// The watermark of what has all committed rows of its tree, and no other view follows it.
const ALONE: Csn = Csn::MAX;

pub(crate) type OwnedBound = Bound<SmallVec<[u8; 32]>>;

/// Copied rows, lent one after the other.
#[derive(Default)]
struct Batch {
    rows: Rows,
    /// The first row that the cursor has not left behind.
    next: usize,
    /// Nothing comes after these rows.
    exhausted: bool,
    limit: usize,
}

impl Batch {
    fn new() -> Batch {
        Batch { limit: FIRST_BATCH, ..Batch::default() }
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.rows.key(self.next)
    }

    #[inline]
    fn value(&self) -> Option<Lent<'_>> {
        self.rows.value(self.next)
    }

    #[inline]
    fn entry(&self) -> Option<(&[u8], Lent<'_>)> {
        self.rows.entry(self.next)
    }

    /// Moves to the row behind the present one, if that is here and not deleted.
    #[inline]
    fn step(&mut self) -> bool {
        let is_row = self.rows.has_value(self.next + 1);
        self.next += usize::from(is_row);
        is_row
    }

    /// No row is left, and none follows.
    #[inline]
    fn is_used_up(&self) -> bool {
        self.is_empty() && self.exhausted
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.next == self.rows.len()
    }

    /// Where the rows to come begin.
    fn last(&self) -> Option<SmallVec<[u8; 32]>> {
        self.rows.key(self.rows.len().checked_sub(1)?).map(SmallVec::from_slice)
    }

    /// Replaces the rows by those that `read` appends, up to a limit; `read` answers whether these
    /// are the last.
    fn refill(&mut self, read: impl FnOnce(usize, &mut Rows) -> bool) {
        self.rows.restart(self.limit);
        self.exhausted = read(self.limit, &mut self.rows);
        self.rows.seal();
        self.next = 0;
        self.limit = (self.limit * 4).min(LAST_BATCH);
    }
}

/// Own writes as of the cursor's opening.
struct Own {
    writes: Arc<TreeWrites>,
    sequence: u64,
    batch: Batch,
}

/// The base's part: a scan of one view, at its next row.
struct BasePart {
    watermark: Csn,
    scan: BaseScan,
}

/// Which sources have the key that the cursor is at. Own writes win over memory over base.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Turn {
    base: bool,
    memory: bool,
    own: bool,
}

/// As what a cursor's range is noted.
pub(crate) enum Noted {
    /// Not at all.
    Not,
    /// All of it is read.
    Whole,
    /// This is of interest in it.
    For(Arc<Interest>),
}

/// An ordered cursor over one tree.
pub struct Scan {
    store: Arc<Store>,
    sight: Arc<Sight>,
    id: TreeId,
    tree: Option<Arc<Tree>>,
    lower: OwnedBound,
    upper: OwnedBound,
    reverse: bool,
    memory: Batch,
    base: Option<BasePart>,
    own: Option<Own>,
    turn: Turn,
    /// Where the range that is read is noted, until the end of it is reached.
    noted: Option<RangePlace>,
}

/// A cursor that is left before its end has read as far as it is.
impl Drop for Scan {
    fn drop(&mut self) {
        if let (Some(place), Some(reads)) = (self.noted.take(), self.sight.reads()) {
            let key = self.key();
            // One that has failed on its way is nowhere, and has read who knows how far: all of its
            // range stays noted.
            if key.is_some() || self.base.is_none() {
                reads.stopped(place, self.reverse, key);
            }
        }
    }
}

fn own_bound(bound: Bound<&[u8]>) -> OwnedBound {
    bound.map(SmallVec::from_slice)
}

fn remaining<'a>(
    lower: &'a OwnedBound,
    upper: &'a OwnedBound,
    last: Option<&'a [u8]>,
    reverse: bool,
) -> Range<'a> {
    let lower = lower.as_ref().map(|b| &b[..]);
    let upper = upper.as_ref().map(|b| &b[..]);
    match (last, reverse) {
        (None, _) => (lower, upper),
        (Some(key), false) => (Bound::Excluded(key), upper),
        (Some(key), true) => (lower, Bound::Excluded(key)),
    }
}

impl Scan {
    #[expect(clippy::too_many_arguments, reason = "each is another part of what a cursor sees")]
    pub(crate) fn open(
        store: Arc<Store>,
        sight: Arc<Sight>,
        id: TreeId,
        range: Range<'_>,
        reverse: bool,
        own: Option<(Arc<TreeWrites>, u64)>,
        private: Option<&Private>,
        noted: Noted,
    ) -> Result<Scan, Error> {
        let reads = sight.reads().filter(|_| private.is_none() && !is_empty_range(&range));
        let noted = match noted {
            Noted::Not => None,
            Noted::Whole => reads.map(|reads| reads.range(id, range.0, range.1, None)),
            Noted::For(interest) => reads.map(|reads| reads.range(id, range.0, range.1, Some(interest))),
        };
        let tree = store.memory.tree(id);
        let own = own.map(|(writes, sequence)| Own { writes, sequence, batch: Batch::new() });
        let mut scan = Scan {
            store,
            sight,
            id,
            tree,
            lower: own_bound(range.0),
            upper: own_bound(range.1),
            reverse,
            memory: Batch::new(),
            base: None,
            own,
            turn: Turn::default(),
            noted,
        };
        if is_empty_range(&range) {
            scan.read_base(BaseScan::empty())?;
            scan.own = None;
        } else if let Some(private) = private {
            let spilled = private.spilled().map(|view| view.scan(id, range.0, range.1, reverse));
            scan.read_base(spilled.unwrap_or_else(|| Ok(BaseScan::empty()))?)?;
        }
        Ok(scan)
    }

    /// Takes the committed rows from this scan alone, to its end.
    fn read_base(&mut self, mut scan: BaseScan) -> Result<(), Error> {
        self.memory = Batch { exhausted: true, ..Batch::default() };
        scan.advance()?;
        self.base = Some(BasePart { watermark: ALONE, scan });
        Ok(())
    }

    /// Divides what is left behind the row that the cursor is at into so many parts at most. All of
    /// it counts as read then, and the cursor is not to be moved any more. None if there is nothing
    /// to divide, or the transaction has written in the tree: the cursor goes on as before.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from the base store.
    pub fn divide(&mut self, parts: usize) -> Result<Option<Divided>, Error> {
        let is_alone = self.base.as_ref().is_none_or(|base| base.watermark == ALONE);
        if self.reverse || self.own.is_some() || is_alone {
            return Ok(None);
        }
        let Some(at) = self.key() else { return Ok(None) };
        let (lower, upper) = (Bound::Excluded(SmallVec::from_slice(at)), self.upper.clone());
        let (store, sight) = (Arc::clone(&self.store), Arc::clone(&self.sight));
        let range = remaining(&lower, &upper, None, false);
        let mut back = Scan::open(store, sight, self.id, range, true, None, None, Noted::Not)?;
        if !back.advance()? {
            return Ok(None);
        }
        let dividers = back.key().map(|last| dividers(at, last, parts)).unwrap_or_default();
        if dividers.is_empty() {
            return Ok(None);
        }
        // As if this cursor had come to its end.
        self.noted = None;
        let (store, sight) = (Arc::clone(&self.store), Arc::clone(&self.sight));
        Ok(Some(Divided::new(store, sight, self.id, (lower, upper), dividers)))
    }

    /// Moves to the next row in the cursor's direction. False at the end.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from the base store.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, Error> {
        // Mostly one source has all rows: memory if they are new, the base if they are old.
        if let (None, Some(base)) = (&self.own, &mut self.base) {
            if self.turn == MEMORY_ONLY && base.scan.key().is_none() && self.memory.step() {
                return Ok(true);
            }
            if self.turn == BASE_ONLY && self.memory.is_used_up() {
                self.turn = Turn::default();
                if base.scan.advance()? {
                    self.turn = BASE_ONLY;
                    return Ok(true);
                }
                self.noted = None;
                return Ok(false);
            }
        }
        loop {
            self.leave()?;
            self.refill()?;
            self.turn = self.choose();
            if self.turn == Turn::default() {
                self.noted = None;
                return Ok(false);
            }
            if self.value().is_some() {
                return Ok(true);
            }
        }
    }

    /// Moves to the next row that `accept` takes. False at the end.
    ///
    /// # Errors
    /// As `advance`, and what `accept` fails with; then the cursor is at that row.
    #[inline]
    pub fn find<E: From<Error>>(
        &mut self,
        mut accept: impl FnMut(&[u8], Lent<'_>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        while self.advance()? {
            if let (Some(key), Some(value)) = (self.key(), self.value())
                && accept(key, value)?
            {
                return Ok(true);
            }
            // If nothing but memory has rows, what is left of its batch comes row after row.
            if self.is_memory_alone() {
                while self.memory.step() {
                    if let Some((key, value)) = self.memory.entry()
                        && accept(key, value)?
                    {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// The cursor is at a row of memory, and neither the base nor the transaction itself has any
    /// that is left.
    #[inline]
    fn is_memory_alone(&self) -> bool {
        let is_base_read = self.base.as_ref().is_some_and(|base| base.scan.key().is_none());
        self.turn == MEMORY_ONLY && self.own.is_none() && is_base_read
    }

    /// The key of the row that the cursor is at; `None` before the first and after the last.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        match self.turn {
            Turn { own: true, .. } => self.own.as_ref()?.batch.key(),
            Turn { memory: true, .. } => self.memory.key(),
            Turn { base: true, .. } => self.base.as_ref()?.scan.key(),
            _ => None,
        }
    }

    /// The value of that row.
    #[inline]
    pub fn value(&self) -> Option<Lent<'_>> {
        match self.turn {
            Turn { own: true, .. } => self.own.as_ref()?.batch.value(),
            Turn { memory: true, .. } => self.memory.value(),
            Turn { base: true, .. } => self.base.as_ref()?.scan.value(),
            _ => None,
        }
    }

    /// The next row, to keep, or `None` at the end.
    ///
    /// # Errors
    /// As `advance`.
    #[expect(clippy::should_implement_trait, reason = "fails, so it cannot be an iterator")]
    pub fn next(&mut self) -> Result<Option<(Key, Value)>, Error> {
        if !self.advance()? {
            return Ok(None);
        }
        let Some((key, value)) = self.key().zip(self.value()) else { return Ok(None) };
        // The base's keys lie in the same buffer as its values.
        Ok(Some(match self.turn {
            BASE_ONLY => (value.buffer().slice_ref(key), value.share()),
            _ => (Key::copy_from_slice(key), value.own()),
        }))
    }

    /// Moves the sources past the row that was lent.
    #[inline]
    fn leave(&mut self) -> Result<(), Error> {
        let turn = std::mem::take(&mut self.turn);
        if turn.base
            && let Some(base) = &mut self.base
        {
            base.scan.advance()?;
        }
        if turn.memory {
            self.memory.next += 1;
        }
        if turn.own
            && let Some(own) = &mut self.own
        {
            own.batch.next += 1;
        }
        Ok(())
    }

    #[inline]
    fn refill(&mut self) -> Result<(), Error> {
        if self.memory.is_empty() && !(self.memory.exhausted && self.base.is_some()) {
            let (tree, snapshot, reverse) = (&self.tree, self.sight.csn(), self.reverse);
            let after = self.memory.last();
            let range = remaining(&self.lower, &self.upper, after.as_deref(), reverse);
            self.memory.refill(|limit, rows| match tree {
                Some(tree) if !is_empty_range(&range) => tree.batch(range, reverse, snapshot, limit, rows),
                _ => true,
            });
            let open = self.base.as_ref().map(|base| base.watermark);
            let id = self.id;
            let base = self.store.views.with(snapshot, |view| {
                if open == Some(view.watermark()) {
                    return Ok(None);
                }
                let mut scan = view.scan_at(id, range, reverse, snapshot)?;
                scan.advance()?;
                Ok::<_, Error>(Some(BasePart { watermark: view.watermark(), scan }))
            })?;
            if base.is_some() {
                self.base = base;
            }
        }
        if let Some(own) = &mut self.own
            && own.batch.is_empty()
            && !own.batch.exhausted
        {
            let (writes, sequence, reverse) = (&own.writes, own.sequence, self.reverse);
            let after = own.batch.last();
            let range = remaining(&self.lower, &self.upper, after.as_deref(), reverse);
            own.batch.refill(|limit, rows| {
                is_empty_range(&range) || writes.batch(range, reverse, sequence, limit, rows)
            });
        }
        Ok(())
    }

    /// The sources with the first key.
    #[inline]
    fn choose(&self) -> Turn {
        let memory = self.memory.key();
        let base = self.base.as_ref().and_then(|base| base.scan.key());
        let own = self.own.as_ref().and_then(|own| own.batch.key());
        let committed = self.order(memory, base);
        let turn = self.order(own, if committed.is_gt() { base } else { memory });
        Turn {
            base: base.is_some() && turn.is_ge() && committed.is_ge(),
            memory: memory.is_some() && turn.is_ge() && committed.is_le(),
            own: own.is_some() && turn.is_le(),
        }
    }

    /// Which key's turn it is: `Less` the first's, `Greater` the second's, `Equal` both. A missing
    /// key comes last.
    #[inline]
    fn order(&self, a: Option<&[u8]>, b: Option<&[u8]>) -> Ordering {
        match (a, b) {
            (None, None) => Ordering::Equal,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) if self.reverse => b.cmp(a),
            (Some(a), Some(b)) => a.cmp(b),
        }
    }
}
