//! What a session's own views list: `pg_prepared_statements` and `pg_cursors`.
//!
//! Statements, cursors and portals are the session's, and views see only what stays of it
//! ([`Facts`]). So each of them has a row there, which goes when it goes. So it is with the places
//! of cursors, which WHERE CURRENT OF asks for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::Prepared;
use super::activity::Activity;
use super::cursor::no_cursor;
use super::facts::Facts;
use crate::catalog::{Oid, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::pg_catalog::{CursorRow, StatementRow};

/// The rows, by name.
#[derive(Default)]
pub(super) struct Listing {
    statements: Mutex<BTreeMap<String, StatementRow>>,
    cursors: Mutex<BTreeMap<String, CursorRow>>,
    places: Mutex<BTreeMap<String, CursorPlace>>,
    /// How many places are in one table: each row that goes asks, and hardly ever there is any.
    placed: AtomicUsize,
    /// The client's unnamed portal runs. Most statements come in one, and only those that ask for
    /// the rows see it: it has none of its own.
    runs_unnamed: AtomicBool,
}

/// Where a cursor stands.
#[derive(Clone, Debug, Default)]
pub(super) struct CursorPlace {
    /// It has outlived its transaction.
    pub(super) is_held: bool,
    /// It locks the rows that it gives.
    pub(super) has_locks: bool,
    /// The table that it reads, if it reads one and nothing else.
    pub(super) table: Option<Oid>,
    /// The key of the row that it gave last; none before the first one, and behind the last.
    pub(super) row: Option<Bytes>,
    /// How many rows had moved when it was declared.
    pub(super) moved: usize,
    /// All tables that it reads, which are not made others meanwhile.
    pub(super) tables: SmallVec<[Oid; 4]>,
}

impl Facts {
    /// The key of the row of a table at which a cursor stands, as it was when the cursor was
    /// declared, and how many rows had moved then. 34000, 24000.
    pub(crate) fn current_row(&self, cursor: &str, table: &Table) -> Result<(Bytes, usize)> {
        let place = self.listing.places.lock().get(cursor).cloned();
        let place = place.ok_or_else(|| no_cursor(cursor))?;
        let wrong = match place.row {
            _ if place.is_held => "is held from a previous transaction".to_owned(),
            Some(row) if place.table == Some(table.oid) => return Ok((row, place.moved)),
            None if place.table == Some(table.oid) => "is not positioned on a row".to_owned(),
            _ if place.has_locks && place.table.is_some() => {
                format!("does not have a FOR UPDATE/SHARE reference to table \"{}\"", table.name)
            }
            _ => format!("is not a simply updatable scan of table \"{}\"", table.name),
        };
        Err(SqlError::new(sqlstate::INVALID_CURSOR_STATE, format!("cursor \"{cursor}\" {wrong}")))
    }

    /// Whether a cursor of the transaction reads a table.
    pub(crate) fn has_cursor_reading(&self, table: Oid) -> bool {
        let places = self.listing.places.lock();
        places.values().any(|place| !place.is_held && place.tables.contains(&table))
    }

    /// Whether a cursor of the transaction may stand at a row of a table.
    #[inline]
    pub(crate) fn has_cursor_over(&self, table: Oid) -> bool {
        self.listing.placed.load(Ordering::Relaxed) > 0 && self.listing.has_place_in(table)
    }
}

impl Listing {
    #[cold]
    fn has_place_in(&self, table: Oid) -> bool {
        let places = self.places.lock();
        places.values().any(|place| place.table == Some(table) && !place.is_held)
    }

    fn put_place(&self, name: String, place: CursorPlace) {
        let is_in_one = place.table.is_some();
        let mut places = self.places.lock();
        let before = places.insert(name, place);
        self.count_places(before.as_ref(), is_in_one);
    }

    fn remove_place(&self, name: &str) {
        let mut places = self.places.lock();
        let before = places.remove(name);
        self.count_places(before.as_ref(), false);
    }

    /// A place has come in the place of another one, or of none. Who calls has the places.
    fn count_places(&self, before: Option<&CursorPlace>, is_in_one: bool) {
        let was_in_one = before.is_some_and(|before| before.table.is_some());
        let others = self.placed.load(Ordering::Relaxed) - usize::from(was_in_one);
        self.placed.store(others + usize::from(is_in_one), Ordering::Relaxed);
    }

    /// Rows of `pg_prepared_statements`.
    pub(super) fn statements(&self) -> Vec<StatementRow> {
        self.statements.lock().values().cloned().collect()
    }

    /// Rows of `pg_cursors`, for a session that does this.
    pub(super) fn cursors(&self, activity: &Activity) -> Vec<CursorRow> {
        let listed = self.cursors.lock();
        let runs_unnamed = self.runs_unnamed.load(Ordering::Relaxed) && !listed.contains_key("");
        let unnamed = runs_unnamed.then(|| {
            let doing = activity.look();
            let statement = doing.text.unwrap_or_default();
            CursorRow { statement, declared: doing.began, ..CursorRow::default() }
        });
        unnamed.into_iter().chain(listed.values().cloned()).collect()
    }

    /// Whether the client's unnamed portal runs.
    pub(super) fn set_runs_unnamed(&self, runs: bool) {
        self.runs_unnamed.store(runs, Ordering::Relaxed);
    }
}

/// A row's stay in the listing.
pub(super) struct Listed {
    facts: Arc<Facts>,
    name: String,
    is_cursor: bool,
}

impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listed").field("name", &self.name).finish_non_exhaustive()
    }
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

    /// Says where the cursor stands.
    pub(super) fn stands(&self, place: CursorPlace) {
        self.facts.listing.put_place(self.name.clone(), place);
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        match self.is_cursor {
            true => {
                self.facts.listing.cursors.lock().remove(&self.name);
                self.facts.listing.remove_place(&self.name);
            }
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
