//! What a transaction sees at one moment, to be read for as long as one likes.
//!
//! A view holds the snapshot and the own writes made before it. What the transaction writes later,
//! and snapshots it moves to, do not change it: a statement that reads through a view never meets
//! its own effects, and a portal that rests between two rows goes on where it was.

use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::lent::Lent;
use crate::reads::Reads;
use crate::rows::Range;
use crate::scan::{Noted, Scan};
use crate::sight::Sight;
use crate::store::Store;
use crate::temporary::TemporaryFile;
use crate::txn::bulk::Private;
use crate::txn::columns::{Columns, Interest};
use crate::txn::writeset::TreeWrites;
use crate::{Csn, Error, TreeId, Value};

/// A transaction's sight at one moment. Clones share it.
#[derive(Clone)]
pub struct ReadView {
    store: Arc<Store>,
    /// Where it reads, and where that is noted if the transaction will be certified.
    sight: Arc<Sight>,
    /// The trees with own writes, and the sequence up to which those count.
    own: SmallVec<[(TreeId, Arc<TreeWrites>); 4]>,
    sequence: u64,
    /// The trees that the transaction made.
    private: Option<Arc<Private>>,
}

impl ReadView {
    pub(crate) fn new(
        store: Arc<Store>,
        sight: Arc<Sight>,
        own: SmallVec<[(TreeId, Arc<TreeWrites>); 4]>,
        sequence: u64,
        private: Option<Arc<Private>>,
    ) -> ReadView {
        ReadView { store, sight, own, sequence, private }
    }

    /// The own write up to which those count.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The commit up to which others' changes are seen.
    pub fn snapshot(&self) -> Csn {
        self.sight.csn()
    }

    pub(crate) fn reads(&self) -> Option<&Reads> {
        self.sight.reads()
    }

    fn writes(&self, tree: TreeId) -> Option<&Arc<TreeWrites>> {
        self.own.iter().find(|(own, _)| *own == tree).map(|(_, writes)| writes)
    }

    fn private(&self, tree: TreeId) -> Option<&Private> {
        self.private.as_deref().filter(|private| private.has(tree))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from the base store.
    #[inline]
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Value>, Error> {
        self.get_columns(tree, key, Columns::ALL)
    }

    #[inline]
    fn get_columns(&self, tree: TreeId, key: &[u8], columns: Columns) -> Result<Option<Value>, Error> {
        if let Some(own) = self.writes(tree).and_then(|writes| writes.get(key, self.sequence)) {
            return Ok(own);
        }
        match self.private(tree) {
            None => {
                self.note(tree, key, columns);
                self.store.get(tree, key, self.sight.csn())
            }
            Some(private) => private.get(tree, key),
        }
    }

    #[inline]
    fn note(&self, tree: TreeId, key: &[u8], columns: Columns) {
        if let Some(reads) = self.sight.reads() {
            reads.point_of(tree, key, columns);
        }
    }

    /// Lends `read` the value of a key; false if there is none. `read` may be called under a lock:
    /// it must not use the database.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from the base store.
    #[inline]
    pub fn lend(&self, tree: TreeId, key: &[u8], read: &mut dyn FnMut(Lent<'_>)) -> Result<bool, Error> {
        self.lend_columns(tree, key, Columns::ALL, read)
    }

    /// The same for who makes use of these columns of the row only, and of whether it is there.
    ///
    /// # Errors
    /// As `lend`.
    #[inline]
    pub fn lend_columns(
        &self,
        tree: TreeId,
        key: &[u8],
        columns: Columns,
        read: &mut dyn FnMut(Lent<'_>),
    ) -> Result<bool, Error> {
        if self.own.is_empty() && self.private.is_none() {
            self.note(tree, key, columns);
            return self.store.lend(tree, key, self.sight.csn(), read);
        }
        Ok(self.get_columns(tree, key, columns)?.map(|value| read(Lent::from(&value))).is_some())
    }

    /// A cursor over the keys between the bounds, ascending or (with `reverse`) descending.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from the base store.
    pub fn scan(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<Scan, Error> {
        self.open(tree, (lower, upper), reverse, Noted::Whole)
    }

    /// The same for who makes use of a part of the rows only. What that is is asked for where it is
    /// noted at all.
    ///
    /// # Errors
    /// As `scan`.
    pub fn scan_for(
        &self,
        tree: TreeId,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        interest: &dyn Fn() -> Interest,
    ) -> Result<Scan, Error> {
        let interest = self.sight.reads().map(|_| interest()).filter(|interest| !interest.is_whole());
        let noted = interest.map_or(Noted::Whole, |interest| Noted::For(Arc::new(interest)));
        self.open(tree, (lower, upper), reverse, noted)
    }

    fn open(&self, tree: TreeId, range: Range<'_>, reverse: bool, noted: Noted) -> Result<Scan, Error> {
        let own = self.writes(tree).map(|writes| (Arc::clone(writes), self.sequence));
        let (store, sight) = (Arc::clone(&self.store), Arc::clone(&self.sight));
        Scan::open(store, sight, tree, range, reverse, own, self.private(tree), noted)
    }

    /// A file for what a statement cannot hold in memory.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub fn temporary_file(&self) -> Result<TemporaryFile, Error> {
        self.store.temporary.create()
    }
}

impl std::fmt::Debug for ReadView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadView").field("snapshot", &self.sight.csn()).finish_non_exhaustive()
    }
}
