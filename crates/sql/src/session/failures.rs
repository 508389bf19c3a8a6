//! The serialization failures of late, for `cognate_serialization_failures` and the live page.
//!
//! Kept are the last few, a count for each cause, and one for each relation, whether the client saw
//! the failure or the statement was run again for it. A snapshot that could be moved is no failure
//! (`again`).

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use super::database::EPOCH_US;
use super::{Session, SqlDatabase};
use crate::catalog::Oid;
use crate::error::{SqlError, sqlstate};

/// So many are kept.
const KEPT: usize = 100;
/// What a transaction may fail for, as the views say it.
const KINDS: [&str; 5] = ["cycle", "first updater wins", "another node", "deadlock", "changed table"];

/// One failure.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Microseconds since 2000-01-01 UTC.
    pub at: i64,
    /// `pg_backend_pid()` of the session.
    pub process_id: i32,
    /// The transaction that failed.
    pub transaction: u64,
    /// `cycle`, `first updater wins` (also one of this node that was ordered before), `another
    /// node` (one of its transactions was faster),
    /// `deadlock` or `changed table`.
    pub kind: &'static str,
    /// The database in which it was.
    pub database: Oid,
    /// The role of who connected, 0 if that was none.
    pub role: Oid,
    /// The table concerned, if one is.
    pub relation: Option<String>,
    /// Failures over this table since the start, with this one.
    pub relation_failures: u64,
    /// The error's message.
    pub message: String,
    /// The error's detail: the cycle.
    pub detail: Option<String>,
}

impl Failure {
    /// Milliseconds since 1970-01-01 UTC, if the time is known.
    pub fn unix_ms(&self) -> Option<i64> {
        (self.at != 0).then(|| self.at.saturating_add(EPOCH_US) / 1000)
    }
}

/// The last failures and the counts.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: VecDeque<Failure>,
    relations: HashMap<(Oid, String), u64>,
    /// In the order of [`KINDS`].
    kinds: [u64; KINDS.len()],
}

/// The place in [`KINDS`] of what an error says.
fn kind_of(error: &SqlError) -> usize {
    match error.sqlstate {
        sqlstate::DEADLOCK_DETECTED => 3,
        // First what names a table or a view, for its name may be anything.
        _ if error.message.contains("change of table") || error.message.contains("change of view") => 4,
        _ if error.message.contains("dependencies") => 0,
        _ if error.message.contains("of another node") => 2,
        _ => 1,
    }
}

impl Failures {
    /// Adds one.
    #[cold]
    pub(crate) fn note(
        &self,
        at: i64,
        (process_id, database, role): (i32, Oid, Oid),
        transaction: u64,
        error: &SqlError,
    ) {
        let kind = kind_of(error);
        let mut state = self.0.lock();
        state.kinds[kind] += 1;
        let mut relation_failures = 0;
        if let Some(relation) = &error.table {
            let count = state.relations.entry((database, relation.clone())).or_default();
            *count += 1;
            relation_failures = *count;
        }
        if state.last.len() == KEPT {
            state.last.pop_front();
        }
        state.last.push_back(Failure {
            at,
            process_id,
            transaction,
            kind: KINDS[kind],
            database,
            role,
            relation: error.table.clone(),
            relation_failures,
            message: error.message.clone(),
            detail: error.detail.clone(),
        });
    }

    /// The last ones of a database, latest first.
    pub(crate) fn list(&self, database: Oid) -> Vec<Failure> {
        let last = &self.0.lock().last;
        last.iter().rev().filter(|failure| failure.database == database).cloned().collect()
    }

    fn latest(&self, most: usize) -> Vec<Failure> {
        self.0.lock().last.iter().rev().take(most).cloned().collect()
    }
}

impl SqlDatabase {
    /// The last serialization failures and deadlocks, so many at most, latest first.
    pub fn last_failures(&self, most: usize) -> Vec<Failure> {
        self.failures().latest(most)
    }

    /// How many there were since the start, by what they failed for: every cause is named.
    pub fn failure_counts(&self) -> [(&'static str, u64); KINDS.len()] {
        let counts = self.failures().0.lock().kinds;
        std::array::from_fn(|at| (KINDS[at], counts[at]))
    }
}

impl Session {
    /// Keeps a serialization failure for the views, unless that was done.
    pub(super) fn note_failure(&mut self, error: &SqlError, transaction: u64) {
        if error.is_retryable() && !std::mem::take(&mut self.failure_noted) {
            let role = self.facts.connected_role(&self.facts.catalog()).unwrap_or_default();
            let session = (self.facts.process_id, self.database.oid(), role);
            let now = self.database.now();
            self.database.failures().note(now, session, transaction, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_apart_and_the_last_are_kept() {
        let failures = Failures::default();
        let error = |message: &str| SqlError::new(sqlstate::SERIALIZATION_FAILURE, message);
        let named = [
            crate::session::dependency_failure(String::new()),
            error("could not serialize access due to concurrent update"),
            crate::session::overtaken(0, None, None),
            SqlError::new(sqlstate::DEADLOCK_DETECTED, "deadlock detected"),
            error("could not serialize access due to a concurrent change of table \"t\""),
        ];
        for (at, error) in (1..).zip(&named) {
            failures.note(at, (7, 5, 0), 8, error);
        }
        let kinds: Vec<_> = failures.list(5).iter().rev().map(|failure| failure.kind).collect();
        assert_eq!(kinds, KINDS);
        for at in 0..2 * KEPT as i64 {
            failures.note(at, (7, 5, 0), 8, &named[1].clone().with_table("public", "t"));
        }
        let (list, two) = (failures.list(5), failures.latest(2));
        assert_eq!((list.len(), two.len()), (KEPT, 2));
        assert_eq!(two[0].at, 2 * KEPT as i64 - 1);
        assert_eq!(two[0].relation_failures, 2 * KEPT as u64);
        assert_eq!(two[0].unix_ms(), Some(946_684_800_000));
        assert_eq!(failures.0.lock().kinds, [1, 1 + 2 * KEPT as u64, 1, 1, 1]);
    }
}
