//! GRANT and REVOKE of roles: who is a member of whom.
//!
//! ```text
//! GRANT staff TO ann WITH ADMIN OPTION     ann has what staff has, and may give it to others
//! GRANT ann TO staff                       refused: staff would be its own member
//! ```
//!
//! A membership is part of the role that is the member, which is locked.

use super::permission::denied;
use crate::catalog::{DATABASE_OWNER_OID, Membership, OWNER_OID, Object, Oid, Role};
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::{RoleRef, RoleStatement};
use crate::session::work::Work;

impl Work<'_> {
    /// GRANT and REVOKE of roles, and ALTER GROUP.
    pub(super) async fn change_members(&mut self, statement: &RoleStatement) -> Result<()> {
        let RoleStatement::Members { grant, roles, members, admin, granted_by, .. } = statement else {
            return Err(SqlError::internal("no membership"));
        };
        // Before there are roles, nothing is kept of who is to be in which.
        if let Some(unknown) = roles.iter().chain(members).find(|role| self.is_before_roles(role)) {
            return Err(self.role_named(unknown).err().unwrap_or_else(|| SqlError::internal("no role")));
        }
        if let Some(grantor) = granted_by {
            let grantor = self.role_named(grantor)?;
            if grantor != self.facts.role(&self.catalog) && !self.is_superuser() {
                return Err(denied("must be superuser to set grantor"));
            }
        }
        for role in roles {
            let role = self.locked_member_role(role).await?;
            for member in members {
                let member = self.locked_role(member).await?.oid;
                match grant {
                    true => self.add_member(role, member, *admin)?,
                    false => self.drop_member(role, member, *admin)?,
                }
            }
        }
        Ok(())
    }

    /// A role that others become members of: a predefined one may be that, too.
    pub(super) async fn locked_member_role(&mut self, role: &RoleRef) -> Result<Oid> {
        let oid = self.role_named(role)?;
        if oid == DATABASE_OWNER_OID {
            let message = "role \"pg_database_owner\" cannot have explicit members";
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        if self.catalog.role_by_oid(oid).is_some() || oid == OWNER_OID {
            return self.locked_role(role).await.map(|role| role.oid);
        }
        Ok(oid)
    }

    fn name_of(&self, role: Oid) -> String {
        self.catalog.role_name(role).unwrap_or_default().to_owned()
    }

    /// 42501 unless the session may give and take memberships of a role.
    fn require_admin(&self, role: Oid) -> Result<()> {
        if self.is_superuser() {
            return Ok(());
        }
        if role == OWNER_OID || self.catalog.role_by_oid(role).is_some_and(|role| role.superuser) {
            return Err(denied("must be superuser to alter superusers"));
        }
        let own = self.facts.role(&self.catalog);
        match self.may_create_roles() || self.catalog.is_admin_of(own, role) {
            true => Ok(()),
            false => Err(denied(format!("must have admin option on role \"{}\"", self.name_of(role)))),
        }
    }

    /// Makes a role a member of another.
    pub(super) fn add_member(&mut self, role: Oid, member: Oid, admin: bool) -> Result<()> {
        self.require_admin(role)?;
        let (role_name, member_name) = (self.name_of(role), self.name_of(member));
        if self.catalog.memberships(role, false).contains(&member) {
            let message = format!("role \"{role_name}\" is a member of role \"{member_name}\"");
            return Err(SqlError::new(sqlstate::INVALID_GRANT_OPERATION, message));
        }
        let grantor = self.facts.role(&self.catalog);
        self.change_memberships(member, |work, list| match list.iter_mut().find(|known| known.role == role) {
            Some(known) if admin && !known.admin => *known = Membership { role, grantor, admin },
            Some(_) => {
                let message = format!("role \"{member_name}\" is already a member of role \"{role_name}\"");
                work.notice(SqlError::notice(message));
            }
            None => list.push(Membership { role, grantor, admin }),
        })
    }

    /// Takes a membership away, or only its ADMIN OPTION.
    fn drop_member(&mut self, role: Oid, member: Oid, admin: bool) -> Result<()> {
        self.require_admin(role)?;
        let (role_name, member_name) = (self.name_of(role), self.name_of(member));
        self.change_memberships(member, |work, list| match list.iter_mut().find(|known| known.role == role) {
            Some(known) if admin => known.admin = false,
            Some(_) => list.retain(|known| known.role != role),
            None => {
                let message = format!("role \"{member_name}\" is not a member of role \"{role_name}\"");
                work.notice(SqlError::warning(sqlstate::WARNING, message));
            }
        })
    }

    fn change_memberships(
        &mut self,
        member: Oid,
        change: impl FnOnce(&mut Self, &mut Vec<Membership>),
    ) -> Result<()> {
        let known = self.catalog.role_by_oid(member).cloned();
        let known = known.ok_or_else(|| SqlError::internal("a member is no role"))?;
        let mut list = known.member_of.clone();
        change(self, &mut list);
        match list == known.member_of {
            true => Ok(()),
            false => self.change(Object::Role(Role { member_of: list, ..Role::clone(&known) }.into())),
        }
    }
}
