//! CREATE, ALTER and DROP ROLE.
//!
//! The first CREATE ROLE also makes the role of who gives it (see [`Role::bootstrap`]). From then
//! on names that are no roles do not get in, and what others may do is asked.
//!
//! A role's name is locked by who makes, changes or drops it. What a role owns, or has privileges
//! on, keeps it from being dropped; its memberships and settings go with it. Who makes something
//! for a role, or gives it a privilege, shares a lock on its oid until he commits, and DROP ROLE
//! waits for that lock: so it sees all that keeps the role.

use std::sync::Arc;

use cognate_engine::LockMode;
use sqlparser::ast;

use super::drop::{describe, describe_routine};
use super::permission::denied;
use super::user_type::describe_type;
use crate::catalog::{
    AclItem, Catalog, Membership, OWNER_OID, Object, Oid, PREDEFINED, Role, RoleSettings, Securable, store,
};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::{RoleOption, RoleRef, RoleStatement};
use crate::scram::Verifier;
use crate::session::work::Work;
use crate::types::{Datum, Type, TypeId};

/// The name that two who make the first role lock both; no role can have it.
const BOOTSTRAP_LOCK: &str = "none";

fn undefined(name: &str) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
}

fn duplicate(name: &str) -> SqlError {
    SqlError::new(sqlstate::DUPLICATE_OBJECT, format!("role \"{name}\" already exists"))
}

fn in_use(message: &str) -> SqlError {
    SqlError::new(sqlstate::OBJECT_IN_USE, message)
}

fn reserved(name: &str) -> SqlError {
    SqlError::new(sqlstate::RESERVED_NAME, format!("role name \"{name}\" is reserved"))
}

/// What CREATE and ALTER say of memberships.
#[derive(Default)]
struct Wanted {
    of: Vec<RoleRef>,
    members: Vec<RoleRef>,
    admins: Vec<RoleRef>,
}

impl Work<'_> {
    /// A statement about roles.
    pub(crate) async fn role_statement(&mut self, statement: &RoleStatement) -> Result<()> {
        match statement {
            RoleStatement::Create { kind, name, options } => self.create_role(kind, name, options).await,
            RoleStatement::Alter { role, options } => self.alter_role(role, options).await,
            RoleStatement::Rename { role, name } => self.rename_role(role, name).await,
            RoleStatement::Drop { roles, if_exists } => self.drop_roles(roles, *if_exists).await,
            RoleStatement::Members { .. } => self.change_members(statement).await,
            RoleStatement::Comment { role, comment } => {
                let role = self.locked_role(role).await?;
                self.require_role_power(&role)?;
                let comment = comment.clone().filter(|comment| !comment.is_empty());
                self.change(Object::Role(Role { comment, ..Role::clone(&role) }.into()))
            }
        }
    }

    /// The oid of a role that a statement names. 42704.
    pub(crate) fn role_named(&self, role: &RoleRef) -> Result<Oid> {
        let name = match role {
            RoleRef::CurrentUser => return Ok(self.facts.role(&self.catalog)),
            RoleRef::SessionUser => match self.facts.session_role(&self.catalog) {
                Some(role) => return Ok(role),
                None => self.facts.effective().session_user.clone(),
            },
            RoleRef::Public => "public".to_owned(),
            RoleRef::Named(name) => fold(name),
        };
        if let Some(oid) = self.catalog.role_oid(&name) {
            return Ok(oid);
        }
        // Before there are roles, who asks is the one that there is.
        match !self.catalog.has_roles() && name == self.facts.user {
            true => Ok(OWNER_OID),
            false => Err(undefined(&name)),
        }
    }

    /// Whether a statement names a role that nobody has made, before anybody has made any.
    pub(crate) fn is_before_roles(&self, role: &RoleRef) -> bool {
        !self.catalog.has_roles() && *role != RoleRef::Public && self.role_named(role).is_err()
    }

    /// The name that CURRENT_USER and its like stand for, where the parser takes them for a name.
    pub(crate) fn role_word(&self, name: &ast::Ident) -> Option<String> {
        let is = |word: &str| name.quote_style.is_none() && name.value.eq_ignore_ascii_case(word);
        if is("current_user") || is("current_role") {
            return Some(self.facts.current_user());
        }
        is("session_user").then(|| self.facts.effective().session_user.clone())
    }

    /// A role that is to change, its name locked. 42704; 42939 for a predefined one.
    pub(super) async fn locked_role(&mut self, role: &RoleRef) -> Result<Arc<Role>> {
        let oid = self.role_named(role)?;
        let name = self.catalog.role_name(oid).unwrap_or_default().to_owned();
        if PREDEFINED.iter().any(|(known, _)| *known == oid) {
            return Err(reserved(&name).with_detail("Cannot alter reserved roles."));
        }
        if oid == OWNER_OID {
            self.bootstrap().await?;
        }
        self.lock_shared_name(store::ROLE_NAMES, &name).await?;
        self.catalog.role_by_oid(oid).cloned().ok_or_else(|| undefined(&name))
    }

    /// Locks that a role is there. Its oid stays when its name changes; no name has a NUL in it.
    async fn lock_role(&mut self, role: Oid, mode: LockMode) -> Result<()> {
        self.lock_shared_name_as(store::ROLE_NAMES, &format!("\0{role}"), mode).await
    }

    /// Keeps a role from being dropped before the transaction ends: it is to own something, or to
    /// have privileges. 42704 if it has gone.
    pub(super) async fn hold_role(&mut self, role: Oid) -> Result<()> {
        if always_stays(role) {
            return Ok(());
        }
        let name = self.catalog.role_name(role).map_or_else(|| role.to_string(), str::to_owned);
        self.lock_role(role, LockMode::Shared).await?;
        match self.catalog.role_by_oid(role) {
            Some(_) => Ok(()),
            None => Err(undefined(&name)),
        }
    }

    /// The same of the role that the session acts as, which is to own what is made, and of those
    /// that have privileges on what it makes.
    pub(crate) async fn hold_own_role(&mut self) -> Result<()> {
        if !self.catalog.has_roles() {
            return Ok(());
        }
        let own = self.facts.role(&self.catalog);
        self.hold_role(own).await?;
        self.facts.check_is_there(&self.catalog)?;
        let defaults = self.catalog.default_accesses().filter(|default| default.role == own);
        let mut grantees: Vec<Oid> =
            defaults.flat_map(|default| default.list.iter().map(|item| item.grantee)).collect();
        grantees.sort_unstable();
        grantees.dedup();
        for grantee in grantees {
            // One that has gone meanwhile is in no default any more.
            if grantee != own && !always_stays(grantee) {
                self.lock_role(grantee, LockMode::Shared).await?;
            }
        }
        Ok(())
    }

    /// Makes the role of who was there before all roles, unless there are some.
    async fn bootstrap(&mut self) -> Result<()> {
        if self.catalog.has_roles() {
            return Ok(());
        }
        self.lock_shared_name(store::ROLE_NAMES, BOOTSTRAP_LOCK).await?;
        match self.catalog.has_roles() {
            true => Ok(()),
            false => self.change(Object::Role(Role::bootstrap(self.facts.user.clone()).into())),
        }
    }

    fn own_role(&self) -> Option<&Arc<Role>> {
        self.catalog.role_by_oid(self.facts.role(&self.catalog))
    }

    /// Whether the session may make and change roles.
    pub(super) fn may_create_roles(&self) -> bool {
        self.is_superuser() || self.own_role().is_some_and(|role| role.create_role)
    }

    /// 42501 unless the session may change a role.
    fn require_role_power(&self, role: &Role) -> Result<()> {
        if role.superuser && !self.is_superuser() {
            return Err(denied("must be superuser to alter superusers"));
        }
        if self.may_create_roles() { Ok(()) } else { Err(denied("permission denied")) }
    }

    async fn create_role(&mut self, kind: &str, name: &RoleRef, options: &[RoleOption]) -> Result<()> {
        let name = match name {
            RoleRef::Named(name) => fold(name),
            RoleRef::Public => return Err(reserved("public")),
            RoleRef::CurrentUser => return Err(no_name("CURRENT_USER")),
            RoleRef::SessionUser => return Err(no_name("SESSION_USER")),
        };
        match name.as_str() {
            "" => return Err(SqlError::syntax("zero-length delimited identifier at or near \"\"\"\"")),
            "none" => return Err(reserved(&name)),
            _ => {}
        }
        let mut role = Role::new(0, name.clone());
        role.login = kind == "USER";
        let wanted = self.apply(&mut role, options)?;
        self.require_creation(&role)?;
        if name.starts_with("pg_") {
            let detail = "Role names starting with \"pg_\" are reserved.";
            return Err(reserved(&name).with_detail(detail));
        }
        self.bootstrap().await?;
        self.lock_shared_name(store::ROLE_NAMES, &name).await?;
        if self.catalog.role(&name).is_some() {
            return Err(duplicate(&name));
        }
        role.oid = self.allocate_oid()?;
        let oid = role.oid;
        self.change(Object::Role(role.into()))?;
        for of in &wanted.of {
            let of = self.locked_member_role(of).await?;
            self.add_member(of, oid, false)?;
        }
        for (members, admin) in [(&wanted.admins, true), (&wanted.members, false)] {
            for member in members {
                let member = self.locked_role(member).await?.oid;
                self.add_member(oid, member, admin)?;
            }
        }
        Ok(())
    }

    /// 42501 unless the session may make such a role.
    fn require_creation(&self, role: &Role) -> Result<()> {
        let is_superuser = self.is_superuser();
        let kinds = [
            (role.superuser, "superusers"),
            (role.replication, "replication users"),
            (role.bypass_rls, "bypassrls users"),
        ];
        if let Some((_, kind)) = kinds.iter().find(|(asked, _)| *asked && !is_superuser) {
            return Err(denied(format!("must be superuser to create {kind}")));
        }
        if self.may_create_roles() { Ok(()) } else { Err(denied("permission denied to create role")) }
    }

    /// Gives a role what options say. 42601 for what is said twice.
    fn apply(&mut self, role: &mut Role, options: &[RoleOption]) -> Result<Wanted> {
        let mut wanted = Wanted::default();
        for (at, option) in options.iter().enumerate() {
            let is_same =
                |known: &RoleOption| std::mem::discriminant(known) == std::mem::discriminant(option);
            if options[..at].iter().any(is_same) {
                return Err(SqlError::syntax("conflicting or redundant options"));
            }
            match option {
                RoleOption::Superuser(on) => role.superuser = *on,
                RoleOption::CreateDb(on) => role.create_db = *on,
                RoleOption::CreateRole(on) => role.create_role = *on,
                RoleOption::Inherit(on) => role.inherit = *on,
                RoleOption::Login(on) => role.login = *on,
                RoleOption::Replication(on) => role.replication = *on,
                RoleOption::BypassRls(on) => role.bypass_rls = *on,
                RoleOption::ConnectionLimit(limit) => role.connection_limit = connection_limit(*limit)?,
                RoleOption::Password(password) => role.password = self.stored(password.as_deref())?,
                RoleOption::ValidUntil(until) => role.valid_until = Some(self.moment(until)?),
                RoleOption::In(of) => wanted.of.clone_from(of),
                RoleOption::Members(members) => wanted.members.clone_from(members),
                RoleOption::Admins(admins) => wanted.admins.clone_from(admins),
                RoleOption::SysId => {
                    self.notice(SqlError::notice("SYSID can no longer be specified"));
                }
            }
        }
        Ok(wanted)
    }

    /// What is kept of a password. 0A000 for one that was hashed with MD5.
    fn stored(&mut self, password: Option<&str>) -> Result<Option<String>> {
        let Some(password) = password else { return Ok(None) };
        let is_md5 = |rest: &str| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
        if password.strip_prefix("md5").is_some_and(is_md5) {
            return Err(SqlError::unsupported("a password that was hashed with MD5")
                .with_hint("Give the password itself, or a SCRAM-SHA-256 verifier."));
        }
        if password.is_empty() {
            let message = "empty string is not a valid password, clearing password";
            self.notice(SqlError::notice(message));
            return Ok(None);
        }
        Ok(Some(Verifier::from_secret(password).text()))
    }

    fn moment(&self, text: &str) -> Result<i64> {
        match Datum::from_text(Type::new(TypeId::Timestamptz), text, self.format)? {
            Datum::Timestamptz(moment) => Ok(moment),
            _ => Err(SqlError::internal("a moment is no timestamp")),
        }
    }

    async fn alter_role(&mut self, role: &RoleRef, options: &[RoleOption]) -> Result<()> {
        let known = self.locked_role(role).await?;
        let mut role = Role::clone(&known);
        let wanted = self.apply(&mut role, options)?;
        if !wanted.of.is_empty() || !wanted.admins.is_empty() {
            return Err(SqlError::syntax("syntax error in ALTER ROLE: an option of CREATE ROLE"));
        }
        self.require_alteration(&known, options)?;
        let oid = role.oid;
        self.change(Object::Role(role.into()))?;
        for member in &wanted.members {
            let member = self.locked_role(member).await?.oid;
            self.add_member(oid, member, false)?;
        }
        Ok(())
    }

    /// 42501 unless the session may change that of a role. Its own password everybody may change.
    fn require_alteration(&self, known: &Role, options: &[RoleOption]) -> Result<()> {
        if self.is_superuser() {
            return Ok(());
        }
        let says = |found: fn(&RoleOption) -> bool| options.iter().any(found);
        if known.superuser || says(|option| matches!(option, RoleOption::Superuser(_))) {
            return Err(denied("must be superuser to alter superuser roles or change superuser attribute"));
        }
        if known.replication || says(|option| matches!(option, RoleOption::Replication(_))) {
            return Err(denied(
                "must be superuser to alter replication roles or change replication attribute",
            ));
        }
        if says(|option| matches!(option, RoleOption::BypassRls(_))) {
            return Err(denied("must be superuser to change bypassrls attribute"));
        }
        let is_own = known.oid == self.facts.role(&self.catalog);
        let is_password = options.iter().all(|option| matches!(option, RoleOption::Password(_)));
        match self.may_create_roles() || (is_own && is_password && !options.is_empty()) {
            true => Ok(()),
            false => Err(denied("permission denied")),
        }
    }

    async fn rename_role(&mut self, role: &RoleRef, new: &ast::Ident) -> Result<()> {
        let new = fold(new);
        let known = self.locked_role(role).await?;
        if known.name == self.facts.effective().session_user {
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "session user cannot be renamed"));
        }
        if known.name == self.facts.current_user() {
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "current user cannot be renamed"));
        }
        if new.starts_with("pg_") {
            return Err(reserved(&new).with_detail("Role names starting with \"pg_\" are reserved."));
        }
        if new == "none" || new == "public" {
            return Err(reserved(&new));
        }
        self.lock_shared_name(store::ROLE_NAMES, &new).await?;
        if self.catalog.role(&new).is_some() {
            return Err(duplicate(&new));
        }
        if known.superuser && !self.is_superuser() {
            return Err(denied("must be superuser to rename superusers"));
        }
        if !self.may_create_roles() {
            return Err(denied("permission denied to rename role"));
        }
        if let Some(settings) = self.catalog.role_settings(Some(&known.name)).cloned() {
            let settings = RoleSettings { role: Some(new.clone()), ..RoleSettings::clone(&settings) };
            self.change(Object::RoleSettings(settings.into()))?;
        }
        self.change(Object::Role(Role { name: new, ..Role::clone(&known) }.into()))
    }

    async fn drop_roles(&mut self, roles: &[RoleRef], if_exists: bool) -> Result<()> {
        if !self.may_create_roles() {
            return Err(denied("permission denied to drop role"));
        }
        let mut dropped: Vec<Arc<Role>> = Vec::new();
        for role in roles {
            match self.role_to_drop(role).await {
                Ok(role) => {
                    self.lock_role(role.oid, LockMode::Exclusive).await?;
                    dropped.push(role);
                }
                Err(error) if if_exists && error.sqlstate == sqlstate::UNDEFINED_OBJECT => {
                    self.notice(SqlError::notice(format!("{}, skipping", error.message)));
                }
                Err(error) => return Err(error),
            }
        }
        // What one of them was a member of, or has given, is nothing that keeps another.
        for role in &dropped {
            self.forget_memberships(role.oid)?;
        }
        for role in dropped {
            let mut dependants = self.dependants_of(role.oid);
            dependants.extend(self.dependants_elsewhere(role.oid));
            if !dependants.is_empty() {
                let message =
                    format!("role \"{}\" cannot be dropped because some objects depend on it", role.name);
                return Err(SqlError::new(sqlstate::DEPENDENT_OBJECTS_STILL_EXIST, message)
                    .with_detail(dependants.join("\n")));
            }
            if let Some(settings) = self.catalog.role_settings(Some(&role.name)).map(|stored| stored.oid) {
                self.remove(settings)?;
            }
            self.remove(role.oid)?;
        }
        Ok(())
    }

    /// A role that may be dropped, as far as it itself says. 55006, 2BP01.
    async fn role_to_drop(&mut self, role: &RoleRef) -> Result<Arc<Role>> {
        if matches!(role, RoleRef::CurrentUser | RoleRef::SessionUser | RoleRef::Public) {
            let message = "cannot use special role specifier in DROP ROLE";
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
        }
        let oid = self.role_named(role)?;
        let name = self.catalog.role_name(oid).unwrap_or(&self.facts.user).to_owned();
        if name == self.facts.current_user() {
            return Err(in_use("current user cannot be dropped"));
        }
        if name == self.facts.effective().session_user {
            return Err(in_use("session user cannot be dropped"));
        }
        if oid == OWNER_OID || self.catalog.role_by_oid(oid).is_none() {
            let message = format!("cannot drop role {name} because it is required by the database system");
            return Err(SqlError::new(sqlstate::DEPENDENT_OBJECTS_STILL_EXIST, message));
        }
        let role = self.locked_role(role).await?;
        match role.superuser && !self.is_superuser() {
            true => Err(denied("must be superuser to drop superusers")),
            false => Ok(role),
        }
    }

    /// A role is no member of others any more, and has none.
    fn forget_memberships(&mut self, gone: Oid) -> Result<()> {
        let members: Vec<Arc<Role>> = self.catalog.roles().cloned().collect();
        for role in members {
            let mut left = role.member_of.clone();
            if role.oid == gone {
                left.clear();
            }
            left.retain(|membership| membership.role != gone);
            for membership in &mut left {
                if membership.grantor == gone {
                    *membership = Membership { grantor: OWNER_OID, ..membership.clone() };
                }
            }
            if left != role.member_of {
                self.change(Object::Role(Role { member_of: left, ..Role::clone(&role) }.into()))?;
            }
        }
        Ok(())
    }

    /// An object as the DETAIL names it.
    fn shown(&self, object: Oid) -> String {
        let catalog = &self.catalog;
        if let Some(schema) = catalog.schema_by_oid(object) {
            return format!("schema {}", schema.name);
        }
        if let Some(routine) = catalog.routine_by_oid(object) {
            return describe_routine(self, routine);
        }
        if let Some(ty) = catalog.user_type_by_oid(object) {
            return describe_type(self, &ty);
        }
        match catalog.relation_by_oid(object) {
            Some(relation) => describe(self, relation),
            None => format!("database {}", self.name_of_database(object)),
        }
    }

    /// How much keeps a role from being dropped in other databases.
    fn dependants_elsewhere(&self, role: Oid) -> Vec<String> {
        let mut lines = Vec::new();
        for other in self.database.all().iter().filter(|other| other.oid() != self.database.oid()) {
            let catalog = other.catalog();
            let own = catalog.accesses().filter(|access| {
                catalog.database_by_oid(access.object).is_none() && catalog.securable(access.object).is_some()
            });
            let is_of_role = |items: &[AclItem]| items.iter().any(|item| item.is_about(role));
            let accesses = own.map(|access| {
                if access.owner == role {
                    return 1;
                }
                let columns = catalog.column_lists(access.object).filter(|of| is_of_role(&of.list));
                usize::from(access.list.as_deref().is_some_and(is_of_role)) + columns.count()
            });
            let defaults = catalog.default_accesses();
            let defaults = defaults.filter(|default| default.role == role || is_of_role(&default.list));
            let name = catalog.database_by_oid(other.oid()).map_or("", |known| &known.name);
            match accesses.sum::<usize>() + defaults.count() {
                0 => {}
                1 => lines.push(format!("1 object in database {name}")),
                count => lines.push(format!("{count} objects in database {name}")),
            }
        }
        lines
    }

    /// What keeps a role from being dropped, as PostgreSQL lists it.
    fn dependants_of(&self, role: Oid) -> Vec<String> {
        let catalog = &self.catalog;
        let mut found: Vec<(Oid, usize, String)> = Vec::new();
        // One may be left of an object that went while its privileges changed.
        let known = catalog.accesses().filter(|access| catalog.securable(access.object).is_some());
        for access in known {
            let what = || self.shown(access.object);
            let is_of_role = |items: &[AclItem]| items.iter().any(|item| item.is_about(role));
            if access.owner == role {
                found.push((access.object, 0, format!("owner of {}", what())));
                continue;
            }
            if access.list.as_deref().is_some_and(is_of_role) {
                found.push((access.object, 0, format!("privileges for {}", what())));
            }
            for of in catalog.column_lists(access.object).filter(|of| is_of_role(&of.list)) {
                let column = catalog.column_name(access.object, of.column).unwrap_or_default();
                let what = format!("privileges for column {column} of {}", what());
                found.push((access.object, of.column + 1, what));
            }
        }
        for default in catalog.default_accesses() {
            let of = || described_default(catalog, default.role, default.schema, default.kind);
            if default.role == role {
                found.push((default.oid, 0, format!("owner of {}", of())));
            } else if default.list.iter().any(|item| item.grantee == role) {
                found.push((default.oid, 0, format!("privileges for {}", of())));
            }
        }
        found.sort();
        found.into_iter().map(|(_, _, line)| line).collect()
    }
}

/// Whether nobody can drop a role. 0 is everybody, or somebody who is no role.
fn always_stays(role: Oid) -> bool {
    role == 0 || role == OWNER_OID || PREDEFINED.iter().any(|(known, _)| *known == role)
}

/// `default privileges on new relations belonging to role ann in schema s`.
fn described_default(catalog: &Catalog, role: Oid, schema: Oid, kind: Securable) -> String {
    let kind = match kind {
        Securable::Table => "relations",
        Securable::Sequence => "sequences",
        Securable::Routine => "functions",
        Securable::Type => "types",
        Securable::Schema | Securable::Database => "schemas",
    };
    let role = catalog.role_name(role).unwrap_or_default();
    let place = catalog.schema_by_oid(schema).map(|schema| format!(" in schema {}", schema.name));
    format!("default privileges on new {kind} belonging to role {role}{}", place.unwrap_or_default())
}

fn connection_limit(limit: i64) -> Result<i32> {
    let known = i32::try_from(limit).ok().filter(|limit| *limit >= -1);
    known.ok_or_else(|| {
        SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("invalid connection limit: {limit}"))
    })
}

fn no_name(word: &str) -> SqlError {
    SqlError::new(sqlstate::RESERVED_NAME, format!("{word} cannot be used as a role name here"))
}
