//! Whose keys and requests a session is shown in the views of what goes on, and in a family's
//! table: those of roles that it counts as. They are parts of rows that it may have no right to
//! read.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use cognate_engine::sibling::{Mipt, State, Xid};
use cognate_engine::{Owner, PreparedInfo};

use super::facts::Facts;
use super::prepare_transaction::Note;
use super::{Session, SqlDatabase};
use crate::catalog::{Catalog, Oid, Privileges, Rights, STATISTICS_OID, Securable};

/// Whether a session may read a column of a table, and so may know what was gathered of it.
pub(super) fn may_read(asking: &Facts, table: Oid, column: usize) -> bool {
    let (catalog, select) = (asking.catalog(), Privileges::SELECT);
    asking.rights(&catalog).is_none_or(|rights| {
        !catalog.privileges(&rights, table, Securable::Table, select).is_empty()
            || !catalog.column_privileges(&rights, table, column, select).is_empty()
    })
}

/// See the module's description.
pub(super) struct Insight {
    catalog: Arc<Catalog>,
    /// None is everything: what superusers see, and who may read all statistics.
    rights: Option<Arc<Rights>>,
}

/// What is shown with all that belongs to it; none is everything.
pub(super) struct Shown<T>(Option<HashSet<T>>);

impl<T: Eq + Hash> Shown<T> {
    /// Whether this one is.
    pub(super) fn has<Q>(&self, one: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.0.as_ref().is_none_or(|shown| shown.contains(one))
    }
}

impl Insight {
    /// That of the session that asks.
    pub(super) fn new(asking: &Facts) -> Insight {
        let catalog = asking.catalog();
        let rights = asking.rights(&catalog).filter(|rights| !rights.has(STATISTICS_OID));
        Insight { catalog, rights }
    }

    /// Whether it is shown what is this role's, if it is a role's.
    pub(super) fn covers(&self, role: Option<Oid>) -> bool {
        self.rights.as_deref().is_none_or(|rights| role.is_some_and(|role| rights.has(role)))
    }

    /// Transactions, running and prepared ones.
    pub(super) fn transactions(&self, database: &SqlDatabase) -> Shown<u64> {
        if self.rights.is_none() {
            return Shown(None);
        }
        let sessions = database.presence().list().into_iter();
        let of_role = sessions.filter(|facts| self.covers(facts.connected_role(&self.catalog)));
        let mut shown: HashSet<u64> = of_role.map(|facts| facts.transaction()).collect();
        shown.extend(self.prepared(database).map(|info| info.transaction));
        Shown(Some(shown))
    }

    /// Families, by their XIDs.
    pub(super) fn families(&self, database: &SqlDatabase) -> Shown<String> {
        if self.rights.is_none() {
            return Shown(None);
        }
        let xid = |info: PreparedInfo| match info.owner {
            Owner::Instance(xid, _) => Some(xid.to_string()),
            Owner::Global(_) => None,
        };
        Shown(Some(self.prepared(database).filter_map(xid).collect()))
    }

    /// Whether it is shown what was prepared with this note.
    fn covers_note(&self, note: &[u8]) -> bool {
        self.covers(Note::of(note).role_in(&self.catalog))
    }

    /// What its roles have prepared.
    fn prepared(&self, database: &SqlDatabase) -> impl Iterator<Item = PreparedInfo> {
        let all = database.engine().prepared().into_iter();
        all.filter(|info| self.covers_note(&info.note))
    }
}

impl Session {
    /// Takes out of a family's table what others have prepared: their results, and the request if
    /// nothing of it is this session's. Once the family is decided, or an instance has come to
    /// nothing, nobody knows any more whose it was; and whoever names a decided family is to have
    /// its result, for a retry may come from anywhere.
    pub(super) fn veil_family(&self, xid: &Xid, table: &mut Mipt) {
        let insight = Insight::new(&self.facts);
        let is_decided = table.entries.iter().any(|entry| entry.state == State::Committed);
        if insight.rights.is_none() || is_decided {
            return;
        }
        let engine = self.database.engine();
        let (mut is_known, mut is_veiled) = (false, false);
        for entry in table.entries.iter_mut().filter(|entry| entry.state == State::Prepared) {
            let note = engine.prepared_note(&Owner::Instance(xid.clone(), entry.instance));
            // What is not there any more was decided meanwhile.
            if note.is_none_or(|note| insight.covers_note(&note)) {
                is_known = true;
            } else {
                is_veiled = true;
                entry.result = None;
            }
        }
        if is_veiled && !is_known {
            table.request = None;
        }
    }
}
