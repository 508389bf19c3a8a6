//! Savepoints: SAVEPOINT, RELEASE, ROLLBACK TO; and those that a DO block sets for its handlers,
//! which need no block.

use super::interrupt::end_of;
use super::settings::Mark;
use super::state::{SavepointFrame, TransactionState};
use super::transaction::not_in_block;
use super::{Block, Open, Session};
use crate::error::{Result, SqlError, sqlstate};

/// What a savepoint takes beside its copies of what may change behind it, about.
const FRAME_BYTES: usize = 1024;
/// The same of each thing that is copied.
const COPIED_BYTES: usize = 128;

/// About what a savepoint of this name takes.
fn frame_bytes(name: &str, state: &TransactionState, settings: &Mark) -> usize {
    let before = state.savepoints.last().map(|frame| &frame.settings);
    let copied = state.catalog.changes().len() + state.deferred.len() + state.constraints_deferred.len();
    FRAME_BYTES + name.len() + copied * COPIED_BYTES + settings.bytes_beside(before)
}

impl Session {
    /// SAVEPOINT. 53200 if there is no memory for one more.
    pub(super) fn savepoint(&mut self, name: String) -> Result<()> {
        if self.block != Block::Explicit {
            return Err(not_in_block("SAVEPOINT"));
        }
        self.set_savepoint(name).map(drop)
    }

    /// Sets a savepoint, also outside a block; its place among those of the transaction.
    pub(super) fn set_savepoint(&mut self, name: String) -> Result<usize> {
        self.open_ahead();
        let settings = self.facts.mark();
        let open = self.open.as_mut().ok_or_else(|| SqlError::internal("no transaction is open"))?;
        let bytes = frame_bytes(&name, &open.state, &settings);
        let charge = self.database.statement_budget().charge(bytes, "A savepoint")?;
        let frame = SavepointFrame {
            name,
            engine: open.engine.savepoint(),
            catalog: open.state.catalog.clone(),
            settings,
            deferred: open.state.deferred.clone(),
            constraints: (open.state.all_deferred, open.state.constraints_deferred.clone()),
            moved: open.state.moved.count(),
            read_only: open.state.read_only,
            advisory: self.facts.advisory.taken(),
            news: self.facts.news.mark(),
            has_changed_here: self.attempt.has_changed_here,
            bound: self.bound,
            _charge: charge,
        };
        open.state.savepoints.push(frame);
        Ok(open.state.savepoints.len() - 1)
    }

    /// After a ROLLBACK TO: portals that were bound after so many others are of what was undone.
    /// They are to be dropped, with what they hold and read.
    pub fn take_undone_portals(&mut self) -> Option<u64> {
        self.undone_portals.take()
    }

    /// After the end of a block: the portals that were bound first, so many, were of it. They are
    /// to be dropped although another block may have begun at once.
    pub fn take_ended_portals(&mut self) -> Option<u64> {
        self.ended_portals.take()
    }

    fn find_savepoint(&self, name: &str) -> Result<usize> {
        let savepoints = self.open.as_ref().map_or(&[][..], |open| &open.state.savepoints);
        savepoints.iter().rposition(|frame| frame.name == name).ok_or_else(|| {
            SqlError::new(sqlstate::SAVEPOINT_EXCEPTION, format!("savepoint \"{name}\" does not exist"))
        })
    }

    /// RELEASE SAVEPOINT.
    pub(super) fn release(&mut self, name: &str) -> Result<()> {
        if self.block != Block::Explicit {
            return Err(not_in_block("RELEASE SAVEPOINT"));
        }
        let at = self.find_savepoint(name)?;
        self.release_savepoint(at);
        Ok(())
    }

    /// Releases the savepoint at this place, and those after it.
    pub(super) fn release_savepoint(&mut self, at: usize) {
        if let Some(open) = &mut self.open {
            let frame = open.state.savepoints.swap_remove(at);
            open.engine.release(frame.engine);
            open.state.savepoints.truncate(at);
            // READ ONLY that was set after the savepoint ends with it.
            open.state.read_only = frame.read_only;
            self.modes.read_only = frame.read_only;
        }
        self.keep_cursors_after(at);
    }

    /// ROLLBACK TO SAVEPOINT.
    pub(super) fn rollback_to(&mut self, name: &str) -> Result<()> {
        if self.block != Block::Explicit && self.block != Block::Failed {
            return Err(not_in_block("ROLLBACK TO SAVEPOINT"));
        }
        if let Some(struck) = &self.struck {
            return Err(struck.clone());
        }
        let at = self.find_savepoint(name)?;
        self.undo_to_savepoint(at);
        self.block = Block::Explicit;
        Ok(())
    }

    /// Undoes what was done since the savepoint at this place, which stays.
    pub(super) fn undo_to_savepoint(&mut self, at: usize) {
        let mut settings: Option<Mark> = None;
        if let Some(open) = &mut self.open {
            open.state.savepoints.truncate(at + 1);
            end_of(open.engine.bytes(), || open.undo_to_last_savepoint());
            let frame = &open.state.savepoints[at];
            self.facts.advisory.end_transaction(frame.advisory, self.database.advisory());
            self.facts.news.undo(frame.news);
            self.attempt.has_changed_here = frame.has_changed_here;
            open.state.catalog = frame.catalog.clone();
            open.state.deferred = frame.deferred.clone();
            (open.state.all_deferred, open.state.constraints_deferred) = frame.constraints.clone();
            open.state.moved.truncate(frame.moved);
            open.state.read_only = frame.read_only;
            open.state.checks.clear();
            self.modes.read_only = frame.read_only;
            self.undone_portals =
                Some(self.undone_portals.map_or(frame.bound, |bound| bound.min(frame.bound)));
            settings = Some(frame.settings.clone());
        }
        if let Some(mark) = settings {
            self.facts.with_settings(|settings| settings.restore(&mark));
            self.refresh_settings();
        }
        self.close_cursors_after(at);
    }
}

impl Open {
    /// Undoes what was written, and releases what was locked, since the last savepoint.
    pub(super) fn undo_to_last_savepoint(&mut self) {
        let Some(frame) = self.state.savepoints.last() else { return };
        // Two-phase locking releases nothing before the end: what was read stays read.
        if self.state.locks_reads {
            self.engine.pin_locks();
        }
        self.engine.rollback_to(frame.engine);
        self.state.held.retain(|(_, mode)| mode.is_weak());
    }
}
