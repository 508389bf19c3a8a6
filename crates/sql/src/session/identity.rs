//! Who the session is: the user that connected, the one that it was made (SET SESSION
//! AUTHORIZATION), the role that it acts as (SET ROLE), and what that may do.
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
//! A session has a role by its oid ([`Facts::role_of`]): of a name that becomes another role's, it
//! has nothing. That of the connection is the one that had its name when the session began, or the
//! first one afterwards.
//!
//! What may be done is asked when a statement runs, and not when it is planned: plans are shared. A
//! plan says what it needs ([`Need`]); a session holds its [`Standing`] for one state of the
//! catalog. For superusers, and as long as there are no roles, that is one look at a flag.

use std::sync::Arc;

use super::facts::Facts;
use super::{Authority, Planned, Session, SessionParameters};
use crate::bind::{Binder, Need};
use crate::catalog::{Catalog, OWNER_OID, Oid, Privileges, Rights, SIGNAL_OID, STATISTICS_OID, Securable};
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
    /// The role that the session acts as was dropped.
    is_gone: bool,
}

fn undefined_role(name: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("role \"{name}\" does not exist"))
}

/// 42704 for what a session does whose role was dropped.
pub(super) fn gone(name: &str) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
}

/// 42501 for a setting that is not this user's to change.
pub(super) fn may_not_set(name: &str) -> SqlError {
    denied(format!("permission denied to set parameter \"{name}\""))
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
        let effective = self.effective();
        self.rights_of(catalog, &effective.user, effective.user_role)
    }

    /// The role that the session has by a name; `role` is its oid, if the session has become it.
    fn role_of(&self, catalog: &Catalog, user: &str, role: Option<Oid>) -> Option<Oid> {
        match role.or_else(|| self.known_role(user)) {
            Some(role) => Some(role).filter(|role| catalog.role_name(*role).is_some()),
            None => catalog.role_oid(user),
        }
    }

    /// The role of who connected, if that is one.
    pub(super) fn connected_role(&self, catalog: &Catalog) -> Option<Oid> {
        self.role_of(catalog, &self.user, None)
    }

    /// The role of the connection, if that is meant and the session knows it.
    fn known_role(&self, user: &str) -> Option<Oid> {
        self.connected.get().copied().filter(|_| user == self.user)
    }

    /// Remembers which role the name of the connection is, unless that is known or there is none.
    pub(super) fn know_role(&self) {
        if self.connected.get().is_none()
            && let Some(role) = self.database.catalog().role(&self.user)
        {
            // Another thread could only have found the same.
            let _ = self.connected.set(role.oid);
        }
    }

    /// Whether the session acts as a role that was dropped: it is nobody.
    fn is_gone(&self, catalog: &Catalog) -> bool {
        let effective = self.effective();
        let known = effective.user_role.or_else(|| self.known_role(&effective.user));
        known.is_some()
            && self.rights(catalog).is_some()
            && self.role_of(catalog, &effective.user, known).is_none()
    }

    /// 42704 for a session that acts as a role that was dropped.
    pub(crate) fn check_is_there(&self, catalog: &Catalog) -> Result<()> {
        if self.is_gone(catalog) { Err(gone(&self.current_user())) } else { Ok(()) }
    }

    fn rights_of(&self, catalog: &Catalog, user: &str, role: Option<Oid>) -> Option<Arc<Rights>> {
        let rights = match self.role_of(catalog, user, role) {
            Some(role) => catalog.rights(role),
            // The operator, who need be no role.
            None if user == self.user && self.authority == Authority::Superuser => return None,
            None => Arc::default(),
        };
        Some(rights).filter(|rights| !rights.superuser)
    }

    /// Oid of the role that the session acts as: that of the bootstrap superuser as long as there
    /// are no others.
    pub(crate) fn role(&self, catalog: &Catalog) -> Oid {
        match self.rights(catalog) {
            Some(rights) => rights.role,
            None => {
                let effective = self.effective();
                self.role_of(catalog, &effective.user, effective.user_role).unwrap_or(OWNER_OID)
            }
        }
    }

    /// The role that the session acts as, if that is one.
    pub(super) fn current_role(&self, catalog: &Catalog) -> Option<Oid> {
        let effective = self.effective();
        self.role_of(catalog, &effective.user, effective.user_role).filter(|_| catalog.has_roles())
    }

    /// Oid of `session_user`, if that is a role.
    pub(crate) fn session_role(&self, catalog: &Catalog) -> Option<Oid> {
        let effective = self.effective();
        self.role_of(catalog, &effective.session_user, effective.session_role)
    }

    /// `session_user`, and the role that this is, if the session acts as another one.
    pub(super) fn acts_for(&self, catalog: &Catalog) -> Option<(String, Option<Oid>)> {
        let effective = self.effective();
        let is_another = effective.session_user != effective.user;
        is_another.then(|| (effective.session_user.clone(), self.session_role(catalog)))
    }

    /// Stays what it is, and `session_user` is another one, who has become this.
    pub(super) fn act_for(&self, catalog: &Catalog, session_user: &str, session_role: Option<Oid>) {
        let (user, role) = (self.current_user(), self.current_role(catalog));
        self.with_settings(|settings| {
            settings.put("session_authorization", session_user, session_role, false);
            settings.put("role", &user, role, false);
        });
    }

    /// Whether the session may change what is the whole server's, and make superusers.
    pub(crate) fn is_superuser(&self, catalog: &Catalog) -> bool {
        match catalog.has_roles() {
            true => self.rights(catalog).is_none(),
            false => self.authority == Authority::Superuser,
        }
    }

    /// 42501 for a setting that is the superusers' to change, unless the session is one of theirs.
    pub(super) fn check_may_set(&self, name: &str) -> Result<()> {
        let catalog = self.catalog();
        if !super::settings::is_superusers(name, catalog.has_roles()) || self.is_superuser(&catalog) {
            return Ok(());
        }
        Err(may_not_set(name))
    }

    /// Whether the session may end statements of another one, or that itself.
    pub(crate) fn may_signal(&self, other: &Facts) -> bool {
        let catalog = self.catalog();
        if !catalog.has_roles() {
            return self.authority == Authority::Superuser || other.user == self.user;
        }
        let Some(rights) = self.rights(&catalog) else { return true };
        let is_superuser = other.rights_of(&catalog, &other.user, None).is_none();
        let role = other.connected_role(&catalog).unwrap_or(0);
        !is_superuser && (rights.has(SIGNAL_OID) || rights.has(role))
    }

    /// Whether the session may see what another one does: one of its role's, or of a role whose
    /// privileges it has; or it reads all statistics.
    pub(crate) fn may_read_of(&self, other: &Facts) -> bool {
        let catalog = self.catalog();
        if !catalog.has_roles() {
            return true;
        }
        let Some(rights) = self.rights(&catalog) else { return true };
        let of_role = other.connected_role(&catalog).is_some_and(|role| rights.has(role));
        of_role || rights.has(STATISTICS_OID)
    }

    /// Whether the user that connected, or that the session was made, may become a role.
    fn may_become(&self, catalog: &Catalog, role: Oid) -> bool {
        let effective = self.effective();
        match self.rights_of(catalog, &effective.session_user, effective.session_role) {
            None => true,
            Some(rights) => catalog.memberships(rights.role, false).contains(&role),
        }
    }

    /// SET ROLE and SET SESSION AUTHORIZATION, if the setting is of these; none is DEFAULT. 22023,
    /// 42501, as for all who run with the rights of a procedure's owner.
    pub(crate) fn set_identity(&self, name: &str, value: Option<&str>, local: bool) -> Result<bool> {
        let is_role = name.eq_ignore_ascii_case("role");
        if !is_role && !name.eq_ignore_ascii_case("session_authorization") {
            return Ok(false);
        }
        if self.with_settings(|settings| settings.is_acting()) {
            let message = format!("cannot set parameter \"{name}\" within security-definer function");
            return Err(denied(message));
        }
        match is_role {
            true => self.set_role(value.unwrap_or("none"), local)?,
            false => self.set_session_user(value, local)?,
        }
        Ok(true)
    }

    fn set_role(&self, name: &str, local: bool) -> Result<()> {
        let catalog = self.catalog();
        let effective = self.effective();
        let mut become_role = effective.session_role;
        if name != "none" && name != effective.session_user {
            let role = catalog.role_oid(name).filter(|_| catalog.has_roles());
            let role = role.ok_or_else(|| undefined_role(name))?;
            if !self.may_become(&catalog, role) {
                return Err(denied(format!("permission denied to set role \"{name}\"")));
            }
            become_role = Some(role);
        }
        let user = if name == "none" { effective.session_user.as_str() } else { name };
        self.put_identity(&catalog, &[("role", name)], (user, become_role), local);
        Ok(())
    }

    fn set_session_user(&self, name: Option<&str>, local: bool) -> Result<()> {
        let catalog = self.catalog();
        let name = name.unwrap_or(&self.user);
        let mut role = None;
        if name != self.user {
            role = catalog.role_oid(name).filter(|_| catalog.has_roles());
            role.ok_or_else(|| undefined_role(name))?;
            if self.rights_of(&catalog, &self.user, None).is_some() {
                return Err(denied("permission denied to set session authorization"));
            }
        }
        let values = [("session_authorization", name), ("role", "none")];
        self.put_identity(&catalog, &values, (name, role), local);
        Ok(())
    }

    /// Gives settings their values. The session acts as `user` then, which is this role; none is
    /// that of the connection.
    fn put_identity(
        &self,
        catalog: &Catalog,
        values: &[(&str, &str)],
        (user, role): (&str, Option<Oid>),
        local: bool,
    ) {
        let superuser = match catalog.has_roles() {
            true => self.rights_of(catalog, user, role).is_none(),
            false => self.authority == Authority::Superuser,
        };
        self.with_settings(|settings| {
            for (name, value) in values {
                settings.put(name, value, role.filter(|_| *value != "none"), local);
            }
            settings.put("is_superuser", if superuser { "on" } else { "off" }, None, local);
        });
    }

    /// Acts as a role until the settings are put back: a function runs with its owner's rights.
    pub(super) fn act_as(&self, catalog: &Catalog, role: Oid) {
        self.with_settings(|settings| settings.begin_acting());
        if let Some(name) = catalog.role_name(role).filter(|_| catalog.has_roles()) {
            self.put_identity(catalog, &[("role", name)], (name, Some(role)), true);
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
        self.facts.know_role();
        let rights = self.facts.rights(&catalog);
        let is_gone = self.facts.is_gone(&catalog);
        let sees_less = rights.as_deref().is_some_and(|rights| {
            let mut path = self.effective.search_path.iter();
            path.any(|name| {
                let name = if name == "$user" { &self.effective.user } else { name };
                catalog.schema(name).is_some_and(|schema| !catalog.may_use(rights, schema))
            })
        });
        let has_own_schema = catalog.schema(&self.effective.user).is_some();
        self.standing = Standing { state, has_own_schema, sees_less, rights, is_gone };
    }

    /// 42501 unless the session, and the owners of what the statement reads through, may do what it
    /// does. The plan is that of the present catalog.
    #[inline]
    pub(super) fn check_needs(&mut self, planned: &Planned) -> Result<()> {
        if self.standing.is_gone {
            return Err(gone(&self.effective.user));
        }
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
        check_all(&catalog, self.standing.rights.as_deref(), (&planned.needs, &planned.needs_of_owners))
    }

    /// The same for an expression that is computed without a plan: an argument of EXECUTE.
    pub(super) fn check_bound(&self, catalog: &Catalog, binder: &Binder<'_>) -> Result<()> {
        let (own, of_owners) = binder.needs();
        check_all(catalog, self.facts.rights(catalog).as_deref(), (&own, &of_owners))
    }
}

/// 42501 unless one with these rights (none is all), and owners, may each do what is theirs.
fn check_all(catalog: &Catalog, rights: Option<&Rights>, (own, of_owners): (&[Need], &[Need])) -> Result<()> {
    if let Some(rights) = rights {
        own.iter().try_for_each(|need| check(catalog, rights, need))?;
    }
    let mut of_owners = of_owners.iter();
    of_owners.try_for_each(|need| check(catalog, &catalog.rights(need.role.unwrap_or(OWNER_OID)), need))
}

/// Whether one who may not do something with a table may do it with the columns that it is about.
fn has_on_columns(catalog: &Catalog, rights: &Rights, need: &Need, missing: Privileges) -> bool {
    let by_column = [
        (Privileges::SELECT, &need.columns.read),
        (Privileges::INSERT, &need.columns.inserted),
        (Privileges::UPDATE, &need.columns.updated),
    ];
    let all = by_column.iter().fold(Privileges::NONE, |all, (privilege, _)| all | *privilege);
    let mut asked = by_column.into_iter().filter(|(privilege, _)| missing.has_all(*privilege));
    need.kind == Securable::Table
        && all.has_all(missing)
        && asked.all(|(privilege, columns)| {
            catalog.has_on_columns(rights, need.object, columns.iter().copied(), privilege)
        })
}

fn check(catalog: &Catalog, rights: &Rights, need: &Need) -> Result<()> {
    let found = catalog.privileges(rights, need.object, need.kind, need.privileges);
    let missing = need.privileges & !found;
    if missing.is_empty() || has_on_columns(catalog, rights, need, missing) {
        return Ok(());
    }
    Err(denied(format!("permission denied for {}", described(catalog, need.object, need.kind))))
}
