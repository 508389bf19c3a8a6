//! What a session's own views list: `pg_prepared_statements` and `pg_cursors`.
//!
//! Statements and cursors are the session's, and views see only what stays of it ([`Facts`]). So
//! each of them has a row there, which goes when it goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Prepared;
use super::facts::Facts;
use crate::pg_catalog::{CursorRow, StatementRow};

/// The rows, by name.
#[derive(Default)]
pub(super) struct Listing {
    statements: Mutex<BTreeMap<String, StatementRow>>,
    cursors: Mutex<BTreeMap<String, CursorRow>>,
}

impl Listing {
    /// Rows of `pg_prepared_statements`.
    pub(super) fn statements(&self) -> Vec<StatementRow> {
        self.statements.lock().values().cloned().collect()
    }

    /// Rows of `pg_cursors`.
    pub(super) fn cursors(&self) -> Vec<CursorRow> {
        self.cursors.lock().values().cloned().collect()
    }
}

/// A row's stay in the listing.
pub(super) struct Listed {
    facts: Arc<Facts>,
    name: String,
    is_cursor: bool,
}

impl Listed {
    fn statement(facts: &Arc<Facts>, row: StatementRow) -> Listed {
        let name = row.name.clone();
        facts.listing.statements.lock().insert(name.clone(), row);
        Listed { facts: facts.clone(), name, is_cursor: false }
    }

    /// That of a cursor.
    pub(super) fn cursor(facts: &Arc<Facts>, row: CursorRow) -> Listed {
        let name = row.name.clone();
        facts.listing.cursors.lock().insert(name.clone(), row);
        Listed { facts: facts.clone(), name, is_cursor: true }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        match self.is_cursor {
            true => drop(self.facts.listing.cursors.lock().remove(&self.name)),
            false => drop(self.facts.listing.statements.lock().remove(&self.name)),
        }
    }
}

/// A prepared statement with a name.
pub(super) struct Named {
    pub(super) prepared: Arc<Prepared>,
    _listed: Listed,
}

impl Named {
    /// `from_sql`: PREPARE has made it.
    pub(super) fn new(facts: &Arc<Facts>, name: &str, prepared: Arc<Prepared>, from_sql: bool) -> Named {
        let row = StatementRow {
            name: name.to_owned(),
            statement: prepared.statement().map(|statement| statement.source.clone()).unwrap_or_default(),
            prepared: facts.now(),
            parameter_types: prepared.parameter_types().iter().map(|ty| ty.oid()).collect(),
            from_sql,
        };
        Named { prepared, _listed: Listed::statement(facts, row) }
    }
}
