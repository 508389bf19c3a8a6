//! Settings that sessions begin with: ALTER ROLE and ALTER DATABASE with SET or RESET, and what a
//! new session makes of them.
//!
//! They are rows of the catalog (see [`RoleSettings`]), so they commit and roll back with
//! everything else, and a cluster's nodes have the same. A session looks at them once, when it
//! begins; what changes later is for sessions that begin later. From the weakest to the strongest:
//!
//! ```text
//! built in < ALTER ROLE ALL < ALTER DATABASE < ALTER ROLE r < ALTER ROLE r IN DATABASE d < start-up packet < SET
//! ```
//!
//! RESET goes back to the strongest of those before SET. A stored value that cannot be used any
//! more, because another build knows other settings, is a warning at the session's start.
//!
//! As long as nobody has made a role, any name is taken for one's.

use std::sync::Arc;

use sqlparser::ast::Ident;

use super::Session;
use super::identity::may_not_set;
use super::settings::{self, Origin, Settings};
use super::variable::{check_retry_of, list_text, object_name};
use super::work::Work;
use crate::Severity;
use crate::catalog::{Catalog, Object, Oid, RoleSettings, SettingList, store};
use crate::ddl::database::undefined_database;
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::{MAX_NAME, cut, fold};
use crate::parse::{AlterSettings, RoleName, SettingChange, SettingScope};

/// Whose sessions a statement is about.
struct Target {
    /// None: all roles.
    role: Option<String>,
    /// None: everywhere.
    database: Option<Oid>,
}

/// What becomes of which setting.
enum Change {
    Set { name: String, value: String },
    Reset(String),
    ResetAll,
}

/// A role's or database's name as statements can write it: start-up packets may have longer ones.
pub(super) fn short(name: &str) -> String {
    let mut name = name.to_owned();
    cut(&mut name, MAX_NAME);
    name
}

/// Gives a new session's settings what is stored for it, and returns warnings about what cannot be
/// used; none if nothing is stored.
pub(super) fn apply(settings: &mut Settings, catalog: &Catalog, user: &str) -> Option<Vec<SqlError>> {
    let (own, all) = (catalog.role_settings(Some(&short(user))), catalog.role_settings(None));
    own.or(all)?;
    let here = Some(catalog.database_oid());
    let levels = [
        (own, here, Origin::RoleInDatabase),
        (own, None, Origin::Role),
        (all, here, Origin::Database),
        (all, None, Origin::AllRoles),
    ];
    let mut warnings = Vec::new();
    // The strongest come first: what a value leaves open (`DateStyle`) is not taken from weaker
    // ones, as in PostgreSQL.
    for (stored, database, origin) in levels {
        for (name, value) in stored.map(|stored| stored.list(database)).into_iter().flatten() {
            if let Err(error) = settings.set_option(name, value, origin) {
                warnings.push(error.with_severity(Severity::Warning));
            }
        }
    }
    Some(warnings)
}

fn denied(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message)
}

/// 42501 unless a user may change the settings of another role: he makes roles, and it is no
/// superuser.
fn check_other_role(catalog: &Catalog, user: &str, role: &str) -> Result<()> {
    if catalog.role(role).is_some_and(|role| role.superuser) {
        return Err(denied("must be superuser to alter superusers"));
    }
    match catalog.role(user).is_some_and(|user| user.create_role) {
        true => Ok(()),
        false => Err(denied("permission denied")),
    }
}

/// A role by its name. 42704, 42939 for names that nobody can have.
fn role(ident: &Ident) -> Result<String> {
    let name = fold(ident);
    let reserved = || SqlError::new(sqlstate::RESERVED_NAME, format!("role name \"{name}\" is reserved"));
    match name.as_str() {
        "" => Err(SqlError::syntax("zero-length delimited identifier at or near \"\"\"\"")),
        "public" => Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))),
        "none" => Err(reserved()),
        _ if name.starts_with("pg_") => Err(reserved().with_detail("Cannot alter reserved roles.")),
        _ => Ok(name),
    }
}

impl Session {
    /// ALTER ROLE and ALTER DATABASE with SET or RESET.
    pub(super) async fn alter_settings(&mut self, alter: &AlterSettings) -> Result<()> {
        self.await_slow_node().await?;
        self.open_transaction(false);
        let interrupts = self.interrupts();
        self.work(&interrupts)?.require_writable(alter.tag())?;
        let target = self.target(&alter.scope)?;
        let change = self.change_of(&alter.change)?;
        self.work(&interrupts)?.change_settings(&target, change).await
    }

    /// Whose settings change, if this session may do that. 3D000, 42501.
    fn target(&mut self, scope: &SettingScope) -> Result<Target> {
        let current = self.facts.current_user();
        let (role, database) = match scope {
            SettingScope::Database(name) => (None, Some(name)),
            SettingScope::Role { role: RoleName::All, database } => (None, database.as_ref()),
            SettingScope::Role { role: RoleName::Current, database } => {
                (Some(short(&current)), database.as_ref())
            }
            SettingScope::Role { role: RoleName::Named(name), database } => {
                (Some(role(name)?), database.as_ref())
            }
        };
        let (catalog, _) = self.catalog_with_state();
        let is_superuser = self.facts.is_superuser(&catalog);
        if let Some(role) = role.as_ref().filter(|role| !is_superuser && **role != short(&current)) {
            check_other_role(&catalog, &current, role)?;
        }
        if let Some(role) = role.as_ref().filter(|role| catalog.has_roles() && catalog.role(role).is_none()) {
            let message = format!("role \"{role}\" does not exist");
            return Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message));
        }
        let database = match database.map(fold) {
            Some(name) => {
                let known = catalog.database_called(&name, &short(&self.facts.given_database));
                let known = known.ok_or_else(|| undefined_database(&name))?.oid;
                Some((known, name))
            }
            None => None,
        };
        match &database {
            _ if is_superuser || role.is_some() => {}
            Some((oid, _))
                if self.facts.rights(&catalog).is_some_and(|rights| rights.has(catalog.owner(*oid))) => {}
            Some((_, name)) => return Err(denied(format!("must be owner of database {name}"))),
            None => return Err(denied("must be superuser to alter settings globally")),
        }
        Ok(Target { role, database: database.map(|(oid, _)| oid) })
    }

    fn change_of(&self, change: &SettingChange) -> Result<Change> {
        Ok(match change {
            SettingChange::Set(name, values) => {
                let name = object_name(name)?;
                match list_text(&name, values)? {
                    Some(value) => Change::Set { name, value },
                    None => Change::Reset(name),
                }
            }
            SettingChange::FromCurrent(name) => {
                let name = object_name(name)?;
                Change::Set { value: self.variable(&name)?, name }
            }
            SettingChange::Reset(name) => Change::Reset(object_name(name)?),
            SettingChange::ResetAll => Change::ResetAll,
        })
    }
}

impl Work<'_> {
    /// Stores the change, if it is one.
    async fn change_settings(&mut self, target: &Target, change: Change) -> Result<()> {
        let role = target.role.as_deref();
        // No role has an empty name.
        self.lock_shared_name(store::ROLE_NAMES, role.unwrap_or_default()).await?;
        let stored = self.catalog.role_settings(role).map(|stored| RoleSettings::clone(stored));
        let before = stored.as_ref().map_or(&[][..], |stored| stored.list(target.database));
        let list = self.changed(before, change)?;
        if list == before {
            return Ok(());
        }
        let mut stored = match stored {
            Some(stored) => stored,
            None => {
                let oid = self.allocate_oid()?;
                RoleSettings { oid, role: target.role.clone(), ..RoleSettings::default() }
            }
        };
        stored.set_list(target.database, list);
        if stored.is_empty() {
            return self.remove(stored.oid);
        }
        self.change(Object::RoleSettings(Arc::new(stored)))
    }

    fn changed(&self, before: &[(String, String)], change: Change) -> Result<SettingList> {
        let mut list = before.to_vec();
        match change {
            Change::Set { name, value } => {
                let (name, value) = self.facts.with_settings(|settings| settings.storable(&name, &value))?;
                self.permit(&name)?;
                if name == "cognate.retry_of" {
                    check_retry_of(&value)?;
                }
                match list.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, known)) => *known = value,
                    None => list.push((name, value)),
                }
            }
            // As PostgreSQL has it: a name is only looked at where there are others.
            Change::Reset(_) if list.is_empty() => {}
            Change::Reset(name) => match list.iter().position(|(known, _)| known.eq_ignore_ascii_case(&name))
            {
                Some(at) => {
                    self.permit(&name)?;
                    list.remove(at);
                }
                None => {
                    self.facts.with_settings(|settings| settings.canonical_name(&name))?;
                }
            },
            Change::ResetAll => list.retain(|(name, _)| self.permit(name).is_err()),
        }
        Ok(list)
    }

    /// 42501 for a setting that is the superusers', or of which nobody knows yet who may set it,
    /// unless this is one.
    fn permit(&self, name: &str) -> Result<()> {
        let is_restricted =
            settings::is_custom(name) || settings::is_superusers(name, self.catalog.has_roles());
        if !is_restricted || self.facts.is_superuser(&self.catalog) {
            return Ok(());
        }
        Err(may_not_set(name))
    }
}
