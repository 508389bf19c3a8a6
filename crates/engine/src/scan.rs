//! A cursor over a key range at one snapshot: memory, base store and own writes, merged.
//!
//! The cursor takes committed versions from memory in batches, each under one short lock, and everything else from a
//! scan of the base. It holds no lock between calls, and it owns all it needs (its snapshot is pinned), so it may live
//! as long as its transaction, across statements.
//!
//! # Why a version that moves meanwhile is not missed
//!
//! The checkpoint publishes a new view of the base *before* it drops the versions from memory. The cursor reads a
//! batch of memory first and looks for the current view *after* that. For a key in the batch's range, the version it
//! wants was either in memory then, and is in the batch; or it had been dropped before, and then the view that has it
//! was published before, and is found now. A view never changes, so it stays right for this batch however late its
//! rows are read. With each further batch the view is looked up again, and if a newer one belongs to the snapshot, the
//! base scan is opened anew behind the last key taken from memory.
//!
//! A tree that the transaction itself made has nothing committed in it; there the base's part is what the transaction has spilled.
//!
//! A row of the base is handed out only if the memory batch reaches beyond it or memory is exhausted: that is why a
//! batch is refilled as soon as it is empty, before the next choice.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::manager::Manager;
use crate::memory::{Entry, Range, Rows, Tree, is_empty_range};
use crate::storage::BaseScan;
use crate::txn::bulk::Private;
use crate::txn::snapshot::Pin;
use crate::txn::writeset::TreeWrites;
use crate::{Csn, Error, Key, TreeId, Value};

/// Rows copied at first; the batch then grows fourfold up to `LAST_BATCH`.
const FIRST_BATCH: usize = 16;
const LAST_BATCH: usize = 256;

type OwnedBound = Bound<SmallVec<[u8; 32]>>;

/// Copied rows, taken from the front.
#[derive(Default)]
struct Batch {
    rows: Vec<Entry>,
    next: usize,
    /// The last key of the batch, unless that is the last of the range.
    last: Option<Key>,
    /// Nothing comes after these rows.
    exhausted: bool,
    limit: usize,
}

impl Batch {
    fn new() -> Batch {
        Batch { limit: FIRST_BATCH, ..Batch::default() }
    }

    fn head(&self) -> Option<&Key> {
        self.rows.get(self.next).map(|row| &row.0)
    }

    fn is_empty(&self) -> bool {
        self.next == self.rows.len()
    }

    fn take(&mut self) -> Entry {
        let row = std::mem::take(&mut self.rows[self.next]);
        self.next += 1;
        row
    }

    /// Replaces the rows by those that `read` appends, up to a limit; `read` answers whether these are the last.
    fn refill(&mut self, read: impl FnOnce(usize, &mut Rows) -> bool) {
        let mut rows = Rows::default();
        self.exhausted = read(self.limit, &mut rows);
        self.rows.clear();
        self.rows.extend(rows.into_entries());
        self.next = 0;
        self.last = if self.exhausted { None } else { self.rows.last().map(|row| row.0.clone()) };
        self.limit = (self.limit * 4).min(LAST_BATCH);
    }
}

/// Own writes as of the cursor's opening.
struct Own {
    writes: Arc<TreeWrites>,
    sequence: u64,
    batch: Batch,
}

/// The base's part: an open scan of one view and its next row.
struct BasePart {
    watermark: Csn,
    scan: BaseScan,
    head: Option<(Key, Value)>,
}

/// An ordered cursor over one tree.
pub struct Scan {
    manager: Arc<Manager>,
    snapshot: Arc<Pin>,
    id: TreeId,
    tree: Option<Arc<Tree>>,
    lower: OwnedBound,
    upper: OwnedBound,
    reverse: bool,
    memory: Batch,
    base: Option<BasePart>,
    own: Option<Own>,
}

fn own_bound(bound: Bound<&[u8]>) -> OwnedBound {
    bound.map(SmallVec::from_slice)
}

fn remaining<'a>(
    lower: &'a OwnedBound,
    upper: &'a OwnedBound,
    last: Option<&'a Key>,
    reverse: bool,
) -> Range<'a> {
    let lower = lower.as_ref().map(|b| &b[..]);
    let upper = upper.as_ref().map(|b| &b[..]);
    match (last, reverse) {
        (None, _) => (lower, upper),
        (Some(key), false) => (Bound::Excluded(&key[..]), upper),
        (Some(key), true) => (lower, Bound::Excluded(&key[..])),
    }
}

impl Scan {
    pub(crate) fn open(
        manager: Arc<Manager>,
        snapshot: Arc<Pin>,
        id: TreeId,
        range: Range<'_>,
        reverse: bool,
        own: Option<(Arc<TreeWrites>, u64)>,
        private: Option<&Private>,
    ) -> Result<Scan, Error> {
        let tree = manager.memory.tree(id);
        let own = own.map(|(writes, sequence)| Own { writes, sequence, batch: Batch::new() });
        let mut scan = Scan {
            manager,
            snapshot,
            id,
            tree,
            lower: own_bound(range.0),
            upper: own_bound(range.1),
            reverse,
            memory: Batch::new(),
            base: None,
            own,
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
        let head = scan.next()?;
        self.base = Some(BasePart { watermark: Csn::MAX, scan, head });
        Ok(())
    }

    /// The next row in the cursor's direction, or `None` at the end.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from the base store.
    #[expect(clippy::should_implement_trait, reason = "fails, so it cannot be an iterator")]
    pub fn next(&mut self) -> Result<Option<(Key, Value)>, Error> {
        loop {
            self.refill()?;
            let Some(entry) = self.take_first()? else { return Ok(None) };
            if let (key, Some(value)) = entry {
                return Ok(Some((key, value)));
            }
        }
    }

    fn refill(&mut self) -> Result<(), Error> {
        if self.memory.is_empty() && !(self.memory.exhausted && self.base.is_some()) {
            let (tree, snapshot, reverse) = (&self.tree, self.snapshot.csn(), self.reverse);
            let after = self.memory.last.take();
            let range = remaining(&self.lower, &self.upper, after.as_ref(), reverse);
            self.memory.refill(|limit, rows| match tree {
                Some(tree) if !is_empty_range(&range) => tree.batch(range, reverse, snapshot, limit, rows),
                _ => true,
            });
            let open = self.base.as_ref().map(|base| base.watermark);
            let id = self.id;
            let base = self.manager.views.with(snapshot, |view| {
                if open == Some(view.watermark()) {
                    return Ok(None);
                }
                let mut scan = view.scan_at(id, range, reverse, snapshot)?;
                let head = scan.next()?;
                Ok::<_, Error>(Some(BasePart { watermark: view.watermark(), scan, head }))
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
            let after = own.batch.last.take();
            let range = remaining(&self.lower, &self.upper, after.as_ref(), reverse);
            own.batch.refill(|limit, rows| {
                is_empty_range(&range) || writes.batch(range, reverse, sequence, limit, rows)
            });
        }
        Ok(())
    }

    /// Takes the first key of the three sources; where several have it, own writes win over memory over base.
    fn take_first(&mut self) -> Result<Option<Entry>, Error> {
        let memory = self.memory.head();
        let base = self.base.as_ref().and_then(|base| base.head.as_ref()).map(|row| &row.0);
        let own = self.own.as_ref().and_then(|own| own.batch.head());
        let committed = self.order(memory, base);
        let turn = self.order(own, if committed.is_gt() { base } else { memory });
        let mut entry = None;
        if turn.is_ge() && committed.is_ge() {
            entry = self.take_base()?;
        }
        if turn.is_ge() && committed.is_le() && !self.memory.is_empty() {
            entry = Some(self.memory.take());
        }
        if turn.is_le()
            && let Some(own) = &mut self.own
            && !own.batch.is_empty()
        {
            entry = Some(own.batch.take());
        }
        Ok(entry)
    }

    /// Which key's turn it is: `Less` the first's, `Greater` the second's, `Equal` both. A missing key comes last.
    fn order(&self, a: Option<&Key>, b: Option<&Key>) -> Ordering {
        match (a, b) {
            (None, None) => Ordering::Equal,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) if self.reverse => b.cmp(a),
            (Some(a), Some(b)) => a.cmp(b),
        }
    }

    fn take_base(&mut self) -> Result<Option<Entry>, Error> {
        let Some(base) = &mut self.base else { return Ok(None) };
        if base.head.is_none() {
            return Ok(None);
        }
        let next = base.scan.next()?;
        Ok(std::mem::replace(&mut base.head, next).map(|(key, value)| (key, Some(value))))
    }
}
