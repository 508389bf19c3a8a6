//! ALTER DEFAULT PRIVILEGES, and what a new object has from it.
//!
//! ```text
//! ALTER DEFAULT PRIVILEGES IN SCHEMA s GRANT SELECT ON TABLES TO bob     by ann
//! CREATE TABLE s.t ...                                                   by ann: {ann=arwdDxt/ann, bob=r/ann}
//! ```
//!
//! What is said for all schemas takes the place of what the kind gives; what is said for one schema
//! comes in addition.

use std::sync::Arc;

use super::grant::{change, wanted};
use super::resolve::undefined_schema;
use crate::catalog::{
    Access, AclItem, Catalog, DefaultAccess, OWNER_OID, Object, Oid, Privileges, Securable, access_list,
    store,
};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::{DefaultPrivileges, Objects};
use crate::session::work::Work;

fn stored(catalog: &Catalog, role: Oid, schema: Oid, kind: Securable) -> Option<&Arc<DefaultAccess>> {
    let mut all = catalog.default_accesses();
    all.find(|known| (known.role, known.schema, known.kind) == (role, schema, kind))
}

/// The list of a new object of a role; none if it is what the kind gives.
fn list_of_new(catalog: &Catalog, owner: Oid, schema: Oid, kind: Securable) -> Option<Vec<AclItem>> {
    let everywhere = stored(catalog, owner, 0, kind).map(|known| known.list.clone());
    let here = stored(catalog, owner, schema, kind).filter(|_| kind != Securable::Schema);
    if everywhere.is_none() && here.is_none() {
        return None;
    }
    let plain = kind.default_list(owner);
    let mut list = everywhere.unwrap_or_else(|| plain.clone());
    for item in here.iter().flat_map(|here| &here.list) {
        // What is in addition comes from the owner, who may give everything.
        let _ = access_list::grant(&mut list, owner, *item);
    }
    (list != plain).then_some(list)
}

impl Work<'_> {
    /// A new object belongs to the role that makes it, and has what that one said of such.
    pub(crate) fn own_new(&mut self, oid: Oid) -> Result<()> {
        let Some(object) = self.catalog.object(oid).filter(|object| !object.is_temporary()) else {
            return Ok(());
        };
        let (schema, kind) = (object.schema(), object.securable());
        let Some(kind) = kind else { return Ok(()) };
        let owner = self.facts.role(&self.catalog);
        let list = list_of_new(&self.catalog, owner, schema, kind);
        if owner == OWNER_OID && list.is_none() {
            return Ok(());
        }
        let access = Access { oid: self.allocate_oid()?, object: oid, owner, list, columns: Vec::new() };
        self.change(Object::Access(access.into()))
    }

    /// ALTER DEFAULT PRIVILEGES.
    pub(crate) async fn default_privileges(&mut self, statement: &DefaultPrivileges) -> Result<()> {
        let grant = &statement.grant;
        let Objects::ToCome(kind) = grant.objects else {
            return Err(SqlError::internal("ALTER DEFAULT PRIVILEGES without a kind"));
        };
        if statement.roles.iter().chain(&grant.grantees).any(|role| self.is_before_roles(role)) {
            let message = "there are no roles yet, and everybody may do everything: privileges are not kept";
            self.notice(SqlError::notice(message));
            return Ok(());
        }
        if !grant.columns.is_empty() {
            let message = "default privileges cannot be set for columns";
            return Err(SqlError::new(sqlstate::INVALID_GRANT_OPERATION, message));
        }
        self.require_own_grantor(grant.granted_by.as_ref())?;
        let noun = match kind {
            Securable::Table => "relation",
            Securable::Sequence => "sequence",
            Securable::Routine => "function",
            Securable::Type => "type",
            Securable::Schema | Securable::Database => "schema",
        };
        let wanted = wanted(grant.privileges.as_deref(), kind, noun)?.unwrap_or(kind.all()) & kind.all();
        let mut schemas = vec![0];
        if !statement.schemas.is_empty() {
            if kind == Securable::Schema {
                let message = "cannot use IN SCHEMA clause when using GRANT/REVOKE ON SCHEMAS";
                return Err(SqlError::new(sqlstate::INVALID_GRANT_OPERATION, message));
            }
            let oid = |name: &sqlparser::ast::Ident| {
                let name = fold(name);
                self.catalog.schema(&name).map(|schema| schema.oid).ok_or_else(|| undefined_schema(&name))
            };
            schemas = statement.schemas.iter().map(oid).collect::<Result<_>>()?;
        }
        for role in self.roles_of_default(statement)? {
            for &schema in &schemas {
                self.change_default(role, schema, kind, wanted, statement).await?;
            }
        }
        Ok(())
    }

    /// The roles whose objects it is about. 42501 for one that the session may not become.
    fn roles_of_default(&self, statement: &DefaultPrivileges) -> Result<Vec<Oid>> {
        if statement.roles.is_empty() {
            return Ok(vec![self.facts.role(&self.catalog)]);
        }
        let mut roles = Vec::new();
        for role in &statement.roles {
            let role = self.role_named(role)?;
            self.require_member(role)?;
            roles.push(role);
        }
        Ok(roles)
    }

    async fn change_default(
        &mut self,
        role: Oid,
        schema: Oid,
        kind: Securable,
        wanted: Privileges,
        statement: &DefaultPrivileges,
    ) -> Result<()> {
        let grantees = self.grantees(&statement.grant)?;
        self.hold_role(role).await?;
        self.hold_grantees(&statement.grant, &grantees).await?;
        self.lock_name(store::ACCESS_LISTS, &format!("{role} {schema} {}", kind.letter())).await?;
        let known = stored(&self.catalog, role, schema, kind).cloned();
        let plain = if schema == 0 { kind.default_list(role) } else { Vec::new() };
        let mut list = known.as_ref().map_or_else(|| plain.clone(), |known| known.list.clone());
        for grantee in grantees {
            change(&mut list, role, (grantee, role), wanted, &statement.grant)?;
        }
        let is_plain = {
            let sorted = |list: &[AclItem]| {
                let mut list = list.to_vec();
                list.sort_by_key(|item| (item.grantee, item.grantor));
                list
            };
            sorted(&list) == sorted(&plain)
        };
        match known {
            Some(known) if is_plain => self.remove(known.oid),
            None if is_plain => Ok(()),
            Some(known) => self
                .change(Object::DefaultAccess(DefaultAccess { list, ..DefaultAccess::clone(&known) }.into())),
            None => {
                let oid = self.allocate_oid()?;
                self.change(Object::DefaultAccess(DefaultAccess { oid, role, schema, kind, list }.into()))
            }
        }
    }
}
