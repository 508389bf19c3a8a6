//! Moving a serializable transaction's snapshot forward, where a statement meets what is newer.
//!
//! First updater wins would abort the transaction. But if nothing that it has read was replaced
//! since its snapshot, it may as well have read all of it now: then the statement is undone, what
//! it has read itself is forgotten (nobody has seen it), the snapshot becomes the newest one, and
//! the statement is run again. Its locks stay, so nobody is faster a second time. If something was
//! replaced, the transaction cannot go on, and the answer says what.
//!
//! ```text
//! T: begins at snapshot 4, reads a
//! T: updates b, waits for 5's lock; 5 commits: b is newer than the snapshot
//!    a is at 5 what it was at 4     undone, snapshot 5, run again; b is read as 5 left it
//!    5 has written a, too           T has read a before 5 and would write b after it: aborted
//! ```
//!
//! *Why that is sound.* At the later snapshot every key and every range that was noted shows the
//! same, so the transaction is one that ran there from the start: the certifier gets its reads with
//! the later snapshot, and draws the edges that such a transaction has. What was read of the newest
//! commits is under locks, and stays what it is; so are the rows that the transaction has written.
//!
//! *Who holds the old snapshot.* A cursor or a view that is still open would go on reading there
//! while its reads count as of the new one, and so would whoever has borrowed it. So the snapshot
//! moves only if the transaction is the only one that holds it.
//!
//! *When it began* is another matter: whoever ended between the two snapshots has not ended before
//! it began. Where the serial order is one of real time ([`Method::Strict`]) the first snapshot
//! stays pinned to the end, and is told to the certifier beside the one that is read at. The same
//! holds where all of a transaction is run anew ([`Transaction::restart`]): its client asked once.
//!
//! *Pins.* The later snapshot is pinned first, then the certifier is asked, then the old one is let
//! go: in between all commits after the old one stay in the graph, so none is overlooked.

use std::sync::Arc;

use crate::certifier::{Method, StaleRead};
use crate::reads::Reads;
use crate::transaction::Transaction;
use crate::txn::readset::ReadMark;
use crate::txn::snapshot::Pin;
use crate::txn::writeset::Savepoint;
use crate::{Csn, Error};

/// The beginning of a statement that may be undone, and run again at a later snapshot.
#[derive(Debug, Clone, Copy)]
pub struct StatementMark {
    writes: WriteMark,
    /// None: nobody notes what is read, so the snapshot stays.
    reads: Option<ReadMark>,
    notes: usize,
}

/// What it takes to undo the writes of a statement.
#[derive(Debug, Clone, Copy)]
enum WriteMark {
    /// Those after this one are the statement's.
    Sequence(u64),
    /// The transaction has trees of its own, or there are several statements.
    Savepoint(Savepoint),
}

/// What became of a snapshot that was to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refresh {
    /// It is the newest now, and the statement is undone.
    Moved,
    /// It stays, and so does what the statement did: this was read before and has been replaced.
    Stale(Box<StaleRead>),
    /// Likewise: a cursor or a view is open at it, or it is lent.
    Held,
    /// Likewise: the caller did not agree.
    Refused,
    /// Likewise: there is no newer one, or it cannot be told any more what was read before the
    /// statement, or the transaction is not one whose snapshot moves.
    Kept,
}

impl Transaction {
    /// A statement begins. To be followed by `refresh`, if it fails for others, or by
    /// `keep_statement`.
    pub fn mark_statement(&mut self) -> StatementMark {
        let reads = self.sight.reads().map(Reads::mark);
        let writes = match self.writes.begin_statement() {
            Some(sequence) => WriteMark::Sequence(sequence),
            None => WriteMark::Savepoint(self.savepoint()),
        };
        StatementMark { writes, reads, notes: self.notes.len() }
    }

    /// Several statements begin that may be undone together, and each of them by itself, too; the
    /// snapshot may move for one of them meanwhile. To be followed as by `mark_statement`.
    pub fn mark_statements(&mut self) -> StatementMark {
        let reads = self.sight.reads().map(Reads::mark);
        StatementMark { writes: WriteMark::Savepoint(self.savepoint()), reads, notes: self.notes.len() }
    }

    /// The statement has succeeded: it will not be undone by itself any more.
    pub fn keep_statement(&mut self, mark: StatementMark) {
        match mark.writes {
            WriteMark::Sequence(_) => self.writes.end_statement(),
            WriteMark::Savepoint(savepoint) => self.release(savepoint),
        }
    }

    /// The statement met what is newer than the snapshot: moves that to the newest commits, if
    /// nothing that was read before has changed, and undoes the statement. Instances of a family
    /// keep their snapshot.
    ///
    /// # Errors
    /// `LogPoisoned`.
    pub fn refresh(&mut self, mark: &StatementMark) -> Result<Refresh, Error> {
        self.refresh_if(mark, || true)
    }

    /// The same, if the caller still agrees once the later snapshot is taken: he may have read what
    /// is noted nowhere. All that is committed up to there is installed by then.
    ///
    /// # Errors
    /// `LogPoisoned`.
    pub fn refresh_if(
        &mut self,
        mark: &StatementMark,
        agrees: impl FnOnce() -> bool,
    ) -> Result<Refresh, Error> {
        let (Some(reads), Some(before)) = (self.sight.reads(), mark.reads) else { return Ok(Refresh::Kept) };
        // Whoever borrows the snapshot shows the same as this transaction.
        if Arc::strong_count(&self.sight) > 1 || !self.lent.lock().is_empty() {
            return Ok(Refresh::Held);
        }
        let Some(reads) = reads.copy_upto(before).filter(|_| self.member.is_none()) else {
            return Ok(Refresh::Kept);
        };
        let pin = self.manager.store.pin(self.access(), true);
        let (from, to) = (self.snapshot(), pin.csn());
        // Not below, either, where readers are after a failure of the log.
        if to <= from {
            return Ok(Refresh::Kept);
        }
        if !agrees() {
            return Ok(Refresh::Refused);
        }
        let (reads, stale) = self.manager.sequencer.stale_read(self.id(), from, to, reads)?;
        // In a cluster the graph has forgotten what was before the horizon. Asked afterwards, for
        // the horizon only grows.
        if from < self.manager.horizon() {
            return Ok(Refresh::Kept);
        }
        if let Some(stale) = stale {
            self.rest_on(to);
            return Ok(Refresh::Stale(stale));
        }
        self.undo_statement(mark);
        let reads = Reads::of(reads, &self.manager.read_budget);
        self.go_on_at(pin, Some(reads));
        Ok(Refresh::Moved)
    }

    /// The position of who has overtaken it, if somebody has. Once that is applied here
    /// (`Database::wait_applied`), a snapshot shows what was written there.
    pub fn overtaken_at(&self) -> Option<Csn> {
        self.fate.as_ref()?.struck().map(|stroke| stroke.position)
    }

    /// Begins anew like [`Transaction::restart`] after it was overtaken. Its locks have kept nobody
    /// out, so it lets go of them, and waits for them again like anybody else: behind whoever was
    /// faster, also if that one is prepared.
    pub fn restart_overtaken(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.held.companion = held.companion;
        self.manager.release(self.id, held);
        self.trees.clear();
        // All that was charged for locks.
        self.writes.refund(usize::MAX);
        if let Some(fate) = &self.fate {
            fate.forget();
        }
        self.restart();
    }

    /// Reads at a later snapshot from now on, without having begun later.
    pub(crate) fn go_on_at(&mut self, pin: Pin, reads: Option<Reads>) {
        let counts = reads.is_some() && self.manager.sequencer.method() == Method::Strict;
        let first = (counts && self.first_sight.is_none()).then(|| Arc::clone(&self.sight));
        self.move_to(pin, reads);
        if let Some(first) = first {
            // Only its pin matters: what was read there is taken over, or forgotten. A cursor that
            // is still open notes it there until it is closed.
            if Arc::strong_count(&first) == 1 {
                drop(first.reads().map(Reads::take));
            }
            self.first_sight = Some(first);
        }
    }

    /// The snapshot at which it began: whoever had ended by then precedes it in real time.
    pub(crate) fn first_snapshot(&self) -> Csn {
        self.first_sight.as_ref().map_or_else(|| self.sight.csn(), |first| first.csn())
    }

    /// Undoes the statement, which may be run again, and leaves the snapshot alone: under read
    /// committed it gets another one anyway. Its locks stay.
    pub fn undo_statement(&mut self, mark: &StatementMark) {
        self.pin_locks();
        match mark.writes {
            WriteMark::Sequence(begin) => self.writes.undo_statement(begin),
            WriteMark::Savepoint(savepoint) => self.take_back(savepoint),
        }
        self.notes.truncate(mark.notes);
    }
}
