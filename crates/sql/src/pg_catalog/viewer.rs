//! What the information schema shows to whom: what the session's role owns, or has some privilege
//! on. Which privileges count, each view says for itself.
//!
//! ```text
//! bob has SELECT on ann's t      tables, columns           t is there
//!                                table_constraints         not: who only reads is shown none
//!                                check_constraints         not: they are shown to owners
//! ```
//!
//! Who has what an owner has by a membership counts as the owner. Temporary objects are their
//! session's, whatever role it acts as.

use std::sync::Arc;

use super::Source;
use crate::catalog::{AclItem, Catalog, Oid, Privileges, Rights, Securable};

/// Whether a computed table has what only superusers may see: `pg_authid` and `pg_shadow`.
pub(crate) fn is_for_superusers(oid: Oid) -> bool {
    [1260, 12005].contains(&oid)
}

/// The session that asks.
pub(super) struct Viewer<'a> {
    catalog: &'a Catalog,
    /// None is everything.
    rights: Option<Arc<Rights>>,
    /// Oid of the schema of its temporary objects.
    temporary: Option<Oid>,
}

impl<'a> Viewer<'a> {
    pub(super) fn new(source: &Source<'a>) -> Viewer<'a> {
        let rights = source.server.rights_of_asker(source.catalog);
        let temporary = source.temporary_schema().map(|schema| schema.oid);
        Viewer { catalog: source.catalog, rights, temporary }
    }

    /// Whether it has what a role has.
    pub(super) fn counts_as(&self, role: Oid) -> bool {
        self.rights.as_deref().is_none_or(|rights| rights.has(role))
    }

    /// Whether it is told what is granted to a role that it counts as, or by one; to everybody,
    /// too, if that is asked for.
    pub(super) fn is_told(&self, item: &AclItem, of_public: bool) -> bool {
        let by_grantee = if item.grantee == 0 { of_public } else { self.counts_as(item.grantee) };
        by_grantee || self.counts_as(item.grantor)
    }

    /// Whether a schema is for another session's temporary objects.
    pub(super) fn is_of_another_session(&self, schema: Oid) -> bool {
        let known = self.catalog.schema_by_oid(schema).filter(|known| known.home.is_some());
        known.is_some_and(|known| self.temporary != Some(known.oid))
    }

    /// Whether an object is temporary, and if so, whether it is this session's.
    fn has_as_temporary(&self, object: Oid) -> Option<bool> {
        let object = self.catalog.object(object).filter(|object| object.is_temporary())?;
        Some(self.temporary == Some(object.schema()))
    }

    /// Whether it has what an object's owner has.
    pub(super) fn owns(&self, object: Oid) -> bool {
        let Some(rights) = self.rights.as_deref() else { return true };
        self.has_as_temporary(object).unwrap_or_else(|| rights.has(self.catalog.owner(object)))
    }

    /// Whether it has one of these privileges on an object.
    pub(super) fn may(&self, object: Oid, kind: Securable, wanted: Privileges) -> bool {
        let Some(rights) = self.rights.as_deref() else { return true };
        let by_list = || !self.catalog.privileges(rights, object, kind, wanted).is_empty();
        self.has_as_temporary(object).unwrap_or_else(by_list)
    }

    /// Whether it owns an object or has one of these privileges on it.
    pub(super) fn sees(&self, object: Oid, kind: Securable, wanted: Privileges) -> bool {
        self.owns(object) || self.may(object, kind, wanted)
    }

    /// The same of a table or view, where a privilege on one of the columns is enough.
    pub(super) fn sees_relation(&self, relation: Oid, wanted: Privileges) -> bool {
        let by_column = |rights: &Rights| self.catalog.has_on_any_column(rights, relation, wanted);
        self.sees(relation, Securable::Table, wanted) || self.rights.as_deref().is_some_and(by_column)
    }

    /// Which columns of a table or view it sees: all of what it owns, and those on which it has one
    /// of these privileges.
    pub(super) fn columns(&self, relation: Oid, wanted: Privileges) -> impl Fn(usize) -> bool {
        let all = self.sees(relation, Securable::Table, wanted);
        let by_column = move |rights: &Rights, column: usize| {
            !self.catalog.column_privileges(rights, relation, column, wanted).is_empty()
        };
        move |column| all || self.rights.as_deref().is_some_and(|rights| by_column(rights, column))
    }

    /// Whether it sees a computed table: everybody may read those that are not about passwords.
    pub(super) fn sees_computed(&self, table: Oid) -> bool {
        self.rights.is_none() || !is_for_superusers(table)
    }
}
