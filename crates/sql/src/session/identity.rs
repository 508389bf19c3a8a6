//! Who the session is: the user that connected, the one that it was made (SET SESSION AUTHORIZATION),
//! the role that it acts as (SET ROLE), and what that may do.
//!
//! ```text
//! ann connects            session_user ann     current_user ann      rights of ann
//! SET ROLE staff          session_user ann     current_user staff    rights of staff: less, or more
//! RESET ROLE              session_user ann     current_user ann
//! ```
//!
//! Both are settings like others, so that SET LOCAL and ROLLBACK mean the same for them; but nobody
//! gives them a value except here, where it is seen whether he may.
//!
//! What may be done is asked when a statement runs, and not when it is planned: plans are shared. A
//! plan says what it needs ([`Need`]); a session holds its [`Standing`] for one state of the catalog.
//! For superusers, and as long as there are no roles, that is one look at a flag.

use std::sync::Arc;

use super::facts::Facts;
use super::{Authority, Planned, Session, SessionParameters};
use crate::bind::Need;
use crate::catalog::{Catalog, OWNER_OID, Oid, Rights, SIGNAL_OID};
use crate::ddl::permission::{denied, described};
use crate::error::{Result, SqlError, sqlstate};

/// What a session's user is in one state of the catalog, with one setting of its path.
#[derive(Default)]
pub(super) struct Standing {
    state: u64,
    /// There is a schema of the user's name.
    pub(super) has_own_schema: bool,
    /// The path has schemas that the user may not use.
    pub(super) sees_less: bool,
    /// What the user may do; none is everything.
    rights: Option<Arc<Rights>>,
}

fn undefined_role(name: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("role \"{name}\" does not exist"))
}

/// Whether a session begins as a superuser's.
pub(super) fn begins_as_superuser(catalog: &Catalog, parameters: &SessionParameters) -> bool {
    let role = Some(&parameters.user).filter(|_| catalog.has_roles());
    match role.and_then(|user| catalog.role_oid(user)) {
        Some(role) => catalog.rights(role).superuser,
        None => parameters.authority == Authority::Superuser,
    }
}

impl Facts {
    /// `current_user`.
    pub(crate) fn current_user(&self) -> String {
        self.effective().user.clone()
    }

    /// What the session may do in the database; none is everything.
    pub(crate) fn rights(&self, catalog: &Catalog) -> Option<Arc<Rights>> {
        if !catalog.has_roles() {
            return None;
        }
        self.rights_of(catalog, &self.effective().user)
    }

    fn rights_of(&self, catalog: &Catalog, user: &str) -> Option<Arc<Rights>> {
        let rights = match catalog.role_oid(user) {
            Some(role) => catalog.rights(role),
            // The operator, who need be no role.
            None if user == self.user && self.authority == Authority::Superuser => return None,
            None => Arc::default(),
        };
        Some(rights).filter(|rights| !rights.superuser)
    }

    /// Oid of the role that the session acts as: that of the bootstrap superuser as long as there are
    /// no others.
    pub(crate) fn role(&self, catalog: &Catalog) -> Oid {
        match self.rights(catalog) {
            Some(rights) => rights.role,
            None => catalog.role_oid(&self.effective().user).unwrap_or(OWNER_OID),
        }
    }

    /// Whether the session may change what is the whole server's, and make superusers.
    pub(crate) fn is_superuser(&self, catalog: &Catalog) -> bool {
        match catalog.has_roles() {
            true => self.rights(catalog).is_none(),
            false => self.authority == Authority::Superuser,
        }
    }

    /// Whether the session may end statements of another one, or that itself.
    pub(crate) fn may_signal(&self, other: &Facts) -> bool {
        let catalog = self.catalog();
        if !catalog.has_roles() {
            return self.authority == Authority::Superuser || other.user == self.user;
        }
        let Some(rights) = self.rights(&catalog) else { return true };
        let is_superuser = other.rights_of(&catalog, &other.user).is_none();
        let role = catalog.role_oid(&other.user).unwrap_or(0);
        !is_superuser && (rights.has(SIGNAL_OID) || rights.has(role))
    }

    /// Whether the user that connected, or that the session was made, may become a role.
    fn may_become(&self, catalog: &Catalog, role: Oid) -> bool {
        let session_user = self.effective().session_user.clone();
        match self.rights_of(catalog, &session_user) {
            None => true,
            Some(rights) => catalog.memberships(rights.role, false).contains(&role),
        }
    }

    /// SET ROLE and SET SESSION AUTHORIZATION, if the setting is of these; none is DEFAULT. 22023,
    /// 42501.
    pub(crate) fn set_identity(&self, name: &str, value: Option<&str>, local: bool) -> Result<bool> {
        if name.eq_ignore_ascii_case("role") {
            self.set_role(value.unwrap_or("none"), local)?;
            return Ok(true);
        }
        if name.eq_ignore_ascii_case("session_authorization") {
            self.set_session_user(value, local)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn set_role(&self, name: &str, local: bool) -> Result<()> {
        let catalog = self.catalog();
        let user = if name == "none" { self.effective().session_user.clone() } else { name.to_owned() };
        if name != "none" && user != self.effective().session_user {
            let role = catalog.role_oid(name).filter(|_| catalog.has_roles());
            let role = role.ok_or_else(|| undefined_role(name))?;
            if !self.may_become(&catalog, role) {
                return Err(denied(format!("permission denied to set role \"{name}\"")));
            }
        }
        self.put_identity(&catalog, &[("role", name)], &user, local);
        Ok(())
    }

    fn set_session_user(&self, name: Option<&str>, local: bool) -> Result<()> {
        let catalog = self.catalog();
        let name = name.unwrap_or(&self.user);
        if name != self.user {
            let role = catalog.role_oid(name).filter(|_| catalog.has_roles());
            role.ok_or_else(|| undefined_role(name))?;
            if self.rights_of(&catalog, &self.user).is_some() {
                return Err(denied("permission denied to set session authorization"));
            }
        }
        self.put_identity(&catalog, &[("session_authorization", name), ("role", "none")], name, local);
        Ok(())
    }

    fn put_identity(&self, catalog: &Catalog, values: &[(&str, &str)], user: &str, local: bool) {
        let superuser = match catalog.has_roles() {
            true => self.rights_of(catalog, user).is_none(),
            false => self.authority == Authority::Superuser,
        };
        self.with_settings(|settings| {
            for (name, value) in values {
                settings.put(name, value, local);
            }
            settings.put("is_superuser", if superuser { "on" } else { "off" }, local);
        });
    }

    /// Acts as a role until the settings are put back: a function runs with its owner's rights.
    pub(super) fn act_as(&self, catalog: &Catalog, role: Oid) {
        if let Some(name) = catalog.role_name(role).filter(|_| catalog.has_roles()) {
            self.put_identity(catalog, &[("role", name)], name, true);
        }
    }
}

impl Session {
    /// Looks at who the user is, unless that is done for this state of the catalog.
    #[inline]
    pub(super) fn stand_at(&mut self, state: u64) {
        self.take_over_settings();
        if self.standing.state != state {
            self.stand_anew();
        }
    }

    /// Takes over settings that a function has changed.
    #[inline]
    pub(super) fn take_over_settings(&mut self) {
        if self.facts.take_has_set() {
            self.refresh_settings();
        }
    }

    #[cold]
    fn stand_anew(&mut self) {
        let (catalog, state) = self.catalog_with_state();
        self.facts.set_catalog(&catalog);
        let rights = match catalog.has_roles() {
            true => self.facts.rights_of(&catalog, &self.effective.user),
            false => None,
        };
        let sees_less = rights.as_deref().is_some_and(|rights| {
            let mut path = self.effective.search_path.iter();
            path.any(|name| {
                let name = if name == "$user" { &self.effective.user } else { name };
                catalog.schema(name).is_some_and(|schema| !catalog.may_use(rights, schema))
            })
        });
        let has_own_schema = catalog.schema(&self.effective.user).is_some();
        self.standing = Standing { state, has_own_schema, sees_less, rights };
    }

    /// 42501 unless the session, and the owners of what the statement reads through, may do what it
    /// does. The plan is that of the present catalog.
    #[inline]
    pub(super) fn check_needs(&mut self, planned: &Planned) -> Result<()> {
        if planned.needs_of_owners.is_empty() && (self.standing.rights.is_none() || planned.needs.is_empty())
        {
            return Ok(());
        }
        self.check_each(planned)
    }

    /// 42501 for a session whose role has gone: at other nodes it would be anybody.
    pub(super) fn check_is_role(&mut self) -> Result<()> {
        let (catalog, _) = self.catalog_with_state();
        match self.facts.rights(&catalog).is_some_and(|rights| rights.role == 0) {
            true => Err(denied(format!("role \"{}\" does not exist", self.effective.user))),
            false => Ok(()),
        }
    }

    #[cold]
    fn check_each(&mut self, planned: &Planned) -> Result<()> {
        let (catalog, _) = self.catalog_with_state();
        if let Some(rights) = &self.standing.rights {
            planned.needs.iter().try_for_each(|need| check(&catalog, rights, need))?;
        }
        let mut owners = planned.needs_of_owners.iter();
        owners.try_for_each(|need| check(&catalog, &catalog.rights(need.role.unwrap_or(OWNER_OID)), need))
    }
}

fn check(catalog: &Catalog, rights: &Rights, need: &Need) -> Result<()> {
    let found = catalog.privileges(rights, need.object, need.kind, need.privileges);
    if found.has_all(need.privileges) {
        return Ok(());
    }
    Err(denied(format!("permission denied for {}", described(catalog, need.object, need.kind))))
}
