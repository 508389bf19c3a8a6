//! What SQL adds to an engine transaction: own catalog changes, access mode, savepoints, deferred
//! checks.

use std::sync::Arc;

use cognate_engine::{Savepoint, TreeMode};
use smallvec::SmallVec;

use super::moves::Moves;
use super::settings::Mark;
use super::usage::{SessionUsage, TransactionUsage};
use crate::budget::Charge;
use crate::catalog::{Deferrable, ForeignKey, Index, Oid, OwnCatalog, Table, View};
use crate::oltp::foreign_key::{Check, DeferredChecks};
use crate::oltp::pending::Pending;

/// The SQL side of an open transaction.
pub(crate) struct TransactionState {
    /// Own changes to the catalog.
    pub(crate) catalog: OwnCatalog,
    /// Declared READ ONLY.
    pub(crate) read_only: bool,
    /// It has changed or locked something, and waits for no slow node any more.
    pub(crate) is_admitted: bool,
    /// It carries an age, and so goes before others.
    pub(crate) aged: bool,
    /// It was begun ahead of its first query, whose snapshot it is to have.
    pub(crate) begun_ahead: bool,
    /// Nothing was read at its snapshot before the statement that runs: another one would do.
    pub(crate) is_first: bool,
    /// Its statements lock what they read.
    pub(crate) locks_reads: bool,
    /// It began with reading at the durable mark, without locks on the tables.
    pub(crate) reads_unlocked: bool,
    /// It has read tables of the catalog, of which nothing is noted.
    pub(crate) reads_catalog: bool,
    /// Tables that it has read without a lock on them, as they were then.
    pub(crate) seen: Vec<Arc<Table>>,
    /// The same of views.
    pub(crate) seen_views: Vec<Arc<View>>,
    /// Its snapshot is one that no cycle can go through.
    pub(crate) is_safe: bool,
    /// It has met temporary objects: it cannot be prepared.
    pub(crate) is_temporary: bool,
    /// Bytes one statement may hold for sorts and hash tables.
    pub(crate) memory_limit: usize,
    /// Open savepoints, oldest first.
    pub(crate) savepoints: Vec<SavepointFrame>,
    /// Tables held as a whole, and how.
    pub(crate) held: SmallVec<[(Oid, TreeMode); 4]>,
    /// Checks for the end of the statement.
    pub(crate) checks: Vec<Check>,
    /// Checks for the end of the transaction.
    pub(crate) deferred: DeferredChecks,
    /// What both take.
    pub(crate) pending: Pending,
    /// SET CONSTRAINTS: ALL, then single ones by oid.
    pub(crate) all_deferred: Option<bool>,
    pub(crate) constraints_deferred: Vec<(Oid, bool)>,
    /// Rows that were given other keys, or deleted, while cursors were open.
    pub(crate) moved: Moves,
    /// What it has read and written, for statistics. It stays whatever is undone.
    pub(crate) usage: TransactionUsage,
}

/// How far what is noted beside the engine's transaction had come when a statement began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    deferred: usize,
    moved: usize,
}

/// A savepoint: where to go back to.
pub(crate) struct SavepointFrame {
    pub(crate) name: String,
    pub(crate) engine: Savepoint,
    pub(crate) catalog: OwnCatalog,
    pub(crate) settings: Mark,
    pub(crate) deferred: DeferredChecks,
    /// What SET CONSTRAINTS had said: for ALL, and for single ones.
    pub(crate) constraints: (Option<bool>, Vec<(Oid, bool)>),
    /// How many rows had been given other keys, or deleted, while cursors were open.
    pub(crate) moved: usize,
    pub(crate) read_only: bool,
    /// How many advisory locks the transaction had.
    pub(crate) advisory: usize,
    /// What it had to say.
    pub(crate) news: (usize, usize),
    /// Whether rows had been locked or changed at this node.
    pub(crate) has_changed_here: bool,
    /// How many portals the session had bound.
    pub(crate) bound: u64,
    /// For all of this.
    pub(crate) _charge: Charge,
}

impl TransactionState {
    /// That of a fresh transaction.
    pub(crate) fn new(read_only: bool, memory_limit: usize, usage: &Arc<SessionUsage>) -> TransactionState {
        TransactionState {
            catalog: OwnCatalog::default(),
            read_only,
            is_admitted: false,
            aged: false,
            begun_ahead: false,
            is_first: false,
            locks_reads: false,
            reads_unlocked: false,
            reads_catalog: false,
            seen: Vec::new(),
            seen_views: Vec::new(),
            is_safe: false,
            is_temporary: false,
            memory_limit,
            savepoints: Vec::new(),
            held: SmallVec::new(),
            checks: Vec::new(),
            deferred: Vec::new(),
            pending: Pending::default(),
            all_deferred: None,
            constraints_deferred: Vec::new(),
            moved: Moves::default(),
            usage: TransactionUsage::new(usage),
        }
    }

    /// What is noted so far.
    pub(super) fn noted(&self) -> Noted {
        Noted { deferred: self.deferred.len(), moved: self.moved.count() }
    }

    /// Forgets what a statement has noted that is undone.
    pub(super) fn undo_noted(&mut self, noted: Noted) {
        self.checks.clear();
        self.deferred.truncate(noted.deferred);
        self.moved.truncate(noted.moved);
    }

    /// The same of all that the transaction has noted.
    pub(super) fn undo_all_noted(&mut self) {
        self.undo_noted(Noted { deferred: 0, moved: 0 });
    }

    /// The transaction has let go of all its locks.
    pub(super) fn forget_locks(&mut self) {
        self.held.clear();
    }

    /// Whether a transaction that has read nothing may get a newer snapshot: one that locks what it
    /// reads sees the newest commits anyway, and a safe one is to stay so.
    pub(crate) fn may_begin_later(&self) -> bool {
        !self.locks_reads && !self.begun_ahead && !self.is_safe
    }

    /// Whether a foreign key's checks wait for the end of the transaction.
    pub(crate) fn is_deferred(&self, key: &ForeignKey) -> bool {
        key.deferrable && self.waits(key.oid, key.initially_deferred)
    }

    /// The same of a UNIQUE constraint's.
    pub(crate) fn is_unique_deferred(&self, index: &Index) -> bool {
        let constraint = index.constraint.unwrap_or(index.oid);
        index.deferrable.is_some_and(|when| self.waits(constraint, when == Deferrable::Deferred))
    }

    /// Whether the checks of a constraint that is DEFERRABLE do.
    fn waits(&self, constraint: Oid, initially: bool) -> bool {
        let single = self.constraints_deferred.iter().rev().find(|(oid, _)| *oid == constraint);
        single.map(|(_, deferred)| *deferred).or(self.all_deferred).unwrap_or(initially)
    }
}
