//! Transactions that lock what they read: all of them under strict two-phase locking
//! (`cognate.serializable = 2pl`, what the certifier is measured against), and under the certifier
//! those that carry their age (`cognate.retry_of`).
//!
//! *Age.* A long transaction that the certifier has aborted may lose again and again to short ones.
//! Run again with the first attempt's number in `cognate.retry_of`, it locks what it reads: nobody
//! can replace that any more before it has committed, so no edge leads out of it and it is in no
//! cycle; the younger ones wait for it. Its statements see the newest commits, each at its own
//! moment. What it reads is noted as read under a lock, so the certifier knows it like any other.
//!
//! A SELECT is run first and locks afterwards what it has read: keys shared,
//! and the table where more than keys were read. If any of that changed before its lock was there,
//! the statement is run again with what is locked kept, until nothing has. So what it answers is
//! what the rows are while they are locked. Every other statement locks the tables it reads from
//! the start. All locks stay to the end of the transaction, and each statement sees the newest
//! commits: that is read committed, with nothing left that could change.
//!
//! ```text
//! T1: SELECT x           reads x, locks x shared, x is still the same: answers
//! T2: UPDATE x           waits for T1
//! ```

use std::sync::Arc;

use cognate_engine::{Isolation, LockMode, Method, TrackedView, TreeMode};

use super::portal::{PortalState, Tag};
use super::work::Work;
use super::{Block, Planned, Session};
use crate::bind::LockWait;
use crate::catalog::Oid;
use crate::error::{Result, SqlError};
use crate::oltp::Cursor;
use crate::plan::Plan;
use crate::session::Action;
use crate::types::Datum;

impl Session {
    /// Whether transactions are made serializable by locks.
    pub(super) fn is_two_phase(&self) -> bool {
        self.modes.isolation == Isolation::Serializable
            && self.database.engine().serializable() == Method::TwoPhaseLocking
    }

    /// Whether the transaction carries an age, and so goes before others.
    pub(super) fn is_aged(&self) -> bool {
        // What it is at its first statement it stays.
        if let Some(open) = &self.open {
            return open.state.aged;
        }
        self.asks_for_age()
    }

    /// Whether a transaction that begins now does.
    pub(super) fn asks_for_age(&self) -> bool {
        self.effective.retry_of > 0
            && self.block == Block::Explicit
            && self.modes.isolation == Isolation::Serializable
            && !self.modes.read_only
            && self.database.engine().serializable().certifies()
    }

    /// Whether statements lock what they read.
    pub(super) fn locks_reads(&self) -> bool {
        self.is_two_phase() || self.is_aged()
    }

    /// What the engine is asked for.
    pub(super) fn engine_isolation(&self) -> Isolation {
        if self.is_two_phase() { Isolation::ReadCommitted } else { self.modes.isolation }
    }

    /// The tables that a statement locks as a whole because it reads them.
    pub(super) fn shared_tables(&self, planned: &Planned) -> Vec<Oid> {
        let reads_rows = match &planned.action {
            // Locks what it reads afterwards.
            Action::Select(_) => false,
            Action::Update(plan) => !plan.target.is_point() || plan.places.subqueries > 0,
            Action::Delete(plan) => !plan.target.is_point() || plan.places.subqueries > 0,
            Action::Insert(plan) => planned.tables.len() > 1 || plan.reads_tables(),
            _ => true,
        };
        let is_select = matches!(planned.action, Action::Select(_));
        let reads_rows = reads_rows || (!is_select && !planned.routines.is_empty());
        if !reads_rows || !self.locks_reads() {
            return Vec::new();
        }
        planned.tables.iter().map(|table| table.oid).collect()
    }

    /// Runs a SELECT and locks what it read.
    pub(super) async fn select_two_phase(
        &mut self,
        plan: &Arc<Plan>,
        parameters: &Arc<[Datum]>,
    ) -> Result<PortalState> {
        let (interrupts, beginning) = (self.interrupts(), self.beginning());
        loop {
            let mut work = self.work(&interrupts)?;
            let tracked = work.engine.tracked_view();
            let mut cursor = Cursor::new(plan, parameters.clone());
            let rows = work.read_at(tracked.view(), |read| {
                let mut rows = Vec::new();
                while let Some(row) = cursor.next_row(read)? {
                    rows.push(row.to_vec());
                }
                Ok::<_, SqlError>(rows)
            })?;
            if work.lock_seen(plan, Some(&tracked)).await? {
                return Ok(PortalState::Rows { rows: rows.into_iter(), sent: 0, tag: Tag::Sent("SELECT") });
            }
            self.look_anew(&beginning);
        }
    }
}

impl Work<'_> {
    /// A view for a locking query of a transaction that locks what it reads, so that what is not
    /// there is locked, too. One with an age waits also where it has said SKIP LOCKED: its snapshot
    /// moves, so what it had read unlocked the certifier would take for read at a later moment.
    /// Under two-phase locking SKIP LOCKED waits for nobody, and its answer is of no one moment.
    pub(super) fn tracked(&self, plan: &Plan) -> Option<TrackedView> {
        let waits = plan.locks.iter().all(|lock| lock.wait != LockWait::SkipLocked);
        (self.state.aged || (self.state.locks_reads && waits)).then(|| self.engine.tracked_view())
    }

    /// Locks all that was read through a view. False if some of it has changed since.
    pub(super) async fn lock_seen(&mut self, plan: &Plan, tracked: Option<&TrackedView>) -> Result<bool> {
        let Some(tracked) = tracked else { return Ok(true) };
        let (keys, trees) = tracked.seen();
        let snapshot = tracked.view().snapshot();
        let of_tree = |tree: u32| {
            let mut tables = plan.tables.iter();
            tables.find(|table| table.tree == tree || table.indexes.iter().any(|index| index.tree == tree))
        };
        let mut changed = false;
        for table in trees.into_iter().filter_map(of_tree) {
            if !self.state.held.contains(&(table.oid, TreeMode::Share)) {
                self.hold_table(table.oid, TreeMode::Share).await?;
                changed |= self.database.engine().visible() != snapshot;
            }
        }
        for (tree, key) in keys {
            self.lock_key(tree, &key, LockMode::Shared).await?;
            changed |= self.engine.own(tree, &key)?.is_none() && self.engine.changed(tree, &key)?.is_some();
        }
        if !changed {
            self.engine.note_locked(tracked);
        }
        Ok(!changed)
    }
}
