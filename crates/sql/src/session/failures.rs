//! The serialization failures of late, for `cognate_serialization_failures`.
//!
//! Kept are the last few, and a count for each relation, whether the client saw the failure or the
//! statement was run again for it. A snapshot that could be moved is no failure (`again`).

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use crate::error::{SqlError, sqlstate};

/// So many are kept.
const KEPT: usize = 100;

/// One failure.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Microseconds since 2000-01-01 UTC.
    pub at: i64,
    /// `pg_backend_pid()` of the session.
    pub process_id: i32,
    /// The transaction that failed.
    pub transaction: u64,
    /// `cycle`, `first updater wins`, `deadlock` or `changed table`.
    pub kind: &'static str,
    /// The table concerned, if one is.
    pub relation: Option<String>,
    /// Failures over this table since the start, with this one.
    pub relation_failures: u64,
    /// The error's message.
    pub message: String,
    /// The error's detail: the cycle.
    pub detail: Option<String>,
}

/// The last failures and the counts.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: VecDeque<Failure>,
    counts: HashMap<String, u64>,
}

impl Failures {
    /// Adds one.
    #[cold]
    pub(crate) fn note(&self, at: i64, process_id: i32, transaction: u64, error: &SqlError) {
        let kind = match error.sqlstate {
            sqlstate::DEADLOCK_DETECTED => "deadlock",
            _ if error.message.contains("dependencies") => "cycle",
            _ if error.message.contains("change of table") => "changed table",
            _ => "first updater wins",
        };
        let mut state = self.0.lock();
        let mut relation_failures = 0;
        if let Some(relation) = &error.table {
            let count = state.counts.entry(relation.clone()).or_default();
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
            kind,
            relation: error.table.clone(),
            relation_failures,
            message: error.message.clone(),
            detail: error.detail.clone(),
        });
    }

    /// The last ones, latest first.
    pub(crate) fn list(&self) -> Vec<Failure> {
        self.0.lock().last.iter().rev().cloned().collect()
    }
}
