//! The cursors of a session: those that DECLARE made, and the portals that its client has bound.
//!
//! A portal with a name is a cursor, too, for FETCH, MOVE and CLOSE (drivers skip rows with MOVE),
//! and is listed in `pg_cursors`. It goes forwards only, as PostgreSQL's does. The client's
//! protocol says what becomes of it.
//!
//! ```text
//! Bind p: SELECT * FROM t      t is what p reads until p is closed, executed or not
//! ALTER TABLE t ...            55006, in this session
//! ```

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

use super::{Gather, Kept, NamedCursor, Names, no_cursor};
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::FetchCount;
use crate::pg_catalog::CursorRow;
use crate::session::listing::{CursorPlace, Listed};
use crate::session::portal::PortalState;
use crate::session::{Action, Fetch, OutputColumn, Portal, Session};

/// Those that DECLARE made, by name; and the client's portals.
#[derive(Default)]
pub(in crate::session) struct Cursors {
    declared: HashMap<String, NamedCursor>,
    portals: Names<Portal>,
}

impl Deref for Cursors {
    type Target = HashMap<String, NamedCursor>;

    fn deref(&self) -> &HashMap<String, NamedCursor> {
        &self.declared
    }
}

impl DerefMut for Cursors {
    fn deref_mut(&mut self) -> &mut HashMap<String, NamedCursor> {
        &mut self.declared
    }
}

impl Cursors {
    /// Whether a cursor or a portal has this name.
    pub(super) fn is_taken(&self, name: &str) -> bool {
        self.declared.contains_key(name) || self.portal(name).is_some()
    }

    /// The portal of this name.
    pub(super) fn portal(&self, name: &str) -> Option<&Portal> {
        if name.is_empty() { None } else { self.portals.get(name) }
    }

    /// The columns that FETCH gives of what has this name.
    pub(super) fn columns(&self, name: &str) -> Option<&[OutputColumn]> {
        match self.declared.get(name) {
            Some(cursor) => cursor.columns(),
            None => self.portal(name)?.columns(),
        }
    }

    /// Whether one that has outlived its transaction has this name, or any.
    pub(super) fn has_held(&self, name: Option<&str>) -> bool {
        match name {
            Some(name) => self.declared.get(name).is_some_and(|cursor| cursor.held),
            None => self.declared.values().any(|cursor| cursor.held),
        }
    }

    /// Closes what has this name; whether anything had.
    pub(super) fn close(&mut self, name: &str) -> bool {
        let is_portal = !self.declared.contains_key(name) && self.portal(name).is_some();
        if is_portal {
            self.portals.remove(name);
        }
        is_portal || self.declared.remove(name).is_some()
    }

    /// Closes all of them.
    pub(super) fn close_all(&mut self) {
        self.declared.clear();
        self.portals.clear();
    }
}

impl Session {
    /// What the client has bound. What it executes is to be taken out meanwhile.
    pub fn portals(&self) -> &Names<Portal> {
        &self.cursors.portals
    }

    /// The same, to be changed.
    pub fn portals_mut(&mut self) -> &mut Names<Portal> {
        &mut self.cursors.portals
    }

    /// A portal is to be kept under a name. 53200 if there is no memory for that.
    pub fn name_portal(&self, portal: &mut Portal, name: &str) -> Result<()> {
        portal.charge_name(name.len(), self.database.statement_budget())?;
        self.list_portal(portal, name);
        Ok(())
    }

    /// A portal is among the cursors as long as it is there. A query that gives its rows as they
    /// are asked for reads its tables all the time; what changes rows does so at once.
    fn list_portal(&self, portal: &mut Portal, name: &str) {
        let text = portal.prepared.statement().map(|statement| statement.source.clone());
        let row = CursorRow {
            name: name.to_owned(),
            statement: text.unwrap_or_default(),
            declared: self.facts.now(),
            ..CursorRow::default()
        };
        let listed = Listed::cursor(&self.facts, row);
        let planned = self.planned_of(&portal.prepared);
        if matches!(planned.action, Action::Select(_)) {
            let tables = planned.tables.iter().map(|table| table.oid).collect();
            listed.stands(CursorPlace { tables, ..CursorPlace::default() });
        }
        portal.listed = Some(listed);
    }

    /// The client's portal of this name begins to run. Beside one with a name the unnamed one, if
    /// it is still there, is a cursor like others.
    pub fn begins_portal(&mut self, name: &str) {
        self.facts.listing.set_runs_unnamed(name.is_empty());
        if name.is_empty() {
            return;
        }
        if let Some(mut unnamed) = self.cursors.portals.take("") {
            if unnamed.listed.is_none() {
                self.list_portal(&mut unnamed, "");
            }
            self.cursors.portals.put("", unnamed);
        }
    }

    /// It has come as far as it was to.
    pub fn ends_portal(&self) {
        self.facts.listing.set_runs_unnamed(false);
    }

    /// FETCH and MOVE of a portal. 34000, 0A000, 55000.
    pub(super) async fn fetch_portal(
        &mut self,
        name: &str,
        count: &FetchCount,
        counted_only: bool,
    ) -> Result<Kept> {
        let portal = self.cursors.portal(name).ok_or_else(|| no_cursor(name))?;
        let is_query = match &portal.state {
            PortalState::Ready => matches!(self.planned_of(&portal.prepared).action, Action::Select(_)),
            PortalState::Cursor { .. } | PortalState::Rows { .. } | PortalState::Done(_) => true,
            _ => false,
        };
        if !is_query || portal.columns().is_none() {
            return Err(SqlError::unsupported("FETCH from a portal that is no query"));
        }
        let wanted = match count {
            FetchCount::Forward(count) if *count > 0 => *count as u64,
            FetchCount::Backward(count) if *count < 0 => count.unsigned_abs(),
            FetchCount::Relative(1) => 1,
            FetchCount::All => 0,
            _ => {
                return Err(SqlError::new(
                    sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    "cursor can only scan forward",
                )
                .with_hint("Declare it with SCROLL option to enable backward scan."));
            }
        };
        // Out of the map while it runs: one whose statement fails is gone.
        let mut portal = self.cursors.portals.take(name).ok_or_else(|| no_cursor(name))?;
        portal.close_columns();
        let budget = self.database.statement_budget().clone();
        let mut sink = Gather::new(counted_only, &budget)?;
        let fetch = Box::pin(self.advance(&mut portal, &mut sink, wanted)).await?;
        let kept = sink.finish()?;
        match fetch {
            Fetch::Complete(_) => portal.end(),
            _ => portal.charge_held(&budget)?,
        }
        self.cursors.portals.put(name, portal);
        Ok(kept)
    }
}
