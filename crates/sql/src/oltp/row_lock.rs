//! SELECT ... FOR UPDATE, NO KEY UPDATE, SHARE and KEY SHARE, with NOWAIT and SKIP LOCKED.
//!
//! The rows of the query are read and locked one by one; a row counts against LIMIT only once it is
//! locked. If, under READ COMMITTED, a row turns out to have changed while its lock was waited for,
//! the whole query is asked again with a new snapshot: what was locked stays locked, so each round
//! has fewer rows that can change, and what is returned is what the rows are while they are locked.
//! FOR KEY SHARE lets others change what is no key; so it keeps to what the snapshot shows unless a
//! key has changed, at every level.

use std::sync::Arc;

use bytes::Bytes;
use cognate_engine::{LockMode, LockOutcome, ReadView, WaitPolicy};

use super::index_maintenance::differs;
use super::indexed::Indexed;
use super::stored::decode;
use super::write::Locked;
use super::{Cursor, Given};
use crate::bind::LockWait;
use crate::catalog::Table;
use crate::error::{Result, SqlError, sqlstate};
use crate::plan::{Plan, PlannedLock};
use crate::session::work::Work;
use crate::types::Datum;

impl Work<'_> {
    /// All rows of a locking query, locked; `None` if one of them changed meanwhile. They are read
    /// through `view`, if there is one. `given` are rows of other parts of the statement.
    pub(crate) async fn select_and_lock(
        &mut self,
        plan: &Arc<Plan>,
        parameters: &Arc<[Datum]>,
        view: Option<&ReadView>,
        given: &Given,
    ) -> Result<Option<Vec<Vec<Datum>>>> {
        let mut cursor = Cursor::new(plan, parameters.clone());
        cursor.give(given);
        let (mut offset, limit) = self.read(|read| cursor.limits(read))?;
        let limit = limit.unwrap_or(u64::MAX);
        let mut rows = Vec::new();
        while (rows.len() as u64) < limit {
            let next = match view {
                Some(view) => self.read_at(view, |read| cursor.next(read))?,
                None => self.read(|read| cursor.next(read))?,
            };
            let Some(mut row) = next else { break };
            match self.lock_rows(plan, &row).await? {
                RowLock::Skipped => continue,
                RowLock::Changed => return Ok(None),
                RowLock::Locked => {}
            }
            if offset > 0 {
                offset -= 1;
                continue;
            }
            row.truncate(plan.columns.len());
            rows.push(row);
        }
        Ok(Some(rows))
    }

    async fn lock_rows(&mut self, plan: &Plan, row: &[Datum]) -> Result<RowLock> {
        for lock in &plan.locks {
            let key = match &row[lock.key] {
                Datum::Bytea(key) => key.clone(),
                // A missing row of an outer join.
                _ => continue,
            };
            match self.lock_one(lock, &key).await? {
                RowLock::Locked => {}
                other => return Ok(other),
            }
        }
        Ok(RowLock::Locked)
    }

    async fn lock_one(&mut self, lock: &PlannedLock, key: &Bytes) -> Result<RowLock> {
        let table = &lock.table;
        if !self.is_shared(table) {
            return Ok(RowLock::Locked);
        }
        // What is read under two-phase locking nobody changes.
        let mode = match self.state.locks_reads {
            true => lock.mode.max(LockMode::Shared),
            false => lock.mode,
        };
        let policy = match lock.wait {
            LockWait::Block => WaitPolicy::Block,
            LockWait::NoWait => WaitPolicy::NoWait,
            LockWait::SkipLocked => WaitPolicy::SkipLocked,
        };
        self.note_companion();
        let request = self.engine.lock(table.tree, key, mode, policy);
        let outcome = self.interrupts.lock(request).await.map_err(|error| match error.sqlstate {
            sqlstate::LOCK_NOT_AVAILABLE if lock.wait == LockWait::NoWait => SqlError::new(
                sqlstate::LOCK_NOT_AVAILABLE,
                format!("could not obtain lock on row in relation \"{}\"", table.name),
            ),
            _ => error,
        })?;
        if outcome == LockOutcome::Skipped {
            return Ok(RowLock::Skipped);
        }
        if mode == LockMode::KeyShared && self.keeps_its_keys(table, key)? {
            return Ok(RowLock::Locked);
        }
        match self.recheck(table, key)? {
            Locked::Unchanged => Ok(RowLock::Locked),
            Locked::Changed(_) | Locked::Gone => Ok(RowLock::Changed),
        }
    }
}

impl Work<'_> {
    /// Whether the row's unique keys are what the statement's snapshot shows.
    fn keeps_its_keys(&self, table: &Table, key: &[u8]) -> Result<bool> {
        if self.engine.own(table.tree, key)?.is_some() {
            return Ok(true);
        }
        let Some(latest) = self.engine.changed(table.tree, key)? else { return Ok(true) };
        let (Some(now), Some(then)) = (latest.value, self.view.get(table.tree, key)?) else {
            return Ok(false);
        };
        let (now, then) = (decode(table, &now)?, decode(table, &then)?);
        let (then, now) = (Indexed::plain(&then), Indexed::plain(&now));
        Ok(!table.indexes.iter().any(|index| index.is_key() && differs(index, then, now)))
    }
}

enum RowLock {
    Locked,
    /// Held by another transaction, and SKIP LOCKED was said.
    Skipped,
    /// Not what the snapshot showed.
    Changed,
}
