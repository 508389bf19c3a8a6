//! Who may connect, and to what, as far as the catalog knows.
//!
//! As long as nobody has made a role, it knows nobody, and the server's configuration decides
//! alone. From then on a name gets in only if it is a role's that may log in; whoever the
//! configuration names as superuser gets in anyway.
//!
//! It is the same with databases: as long as nobody has made one, the initial database has any name
//! that a client gives it.

use std::sync::Arc;

use super::{Authority, Session, SqlDatabase};
use crate::catalog::{Catalog, DATABASE_OID, Oid, Privileges, Role, Securable};
use crate::ddl::database::undefined_database;
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::{MAX_NAME, cut};
use crate::scram::Verifier;

/// What the catalog says of a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredPassword {
    /// The role has none, or there is no such role.
    None,
    /// It is checked by this.
    Verifier(Verifier),
    /// It does not count any more.
    Expired,
}

impl SqlDatabase {
    /// The password of a role.
    pub fn stored_password(&self, user: &str) -> StoredPassword {
        let catalog = self.catalog();
        let Some(role) = catalog.role(user) else { return StoredPassword::None };
        let verifier = role.password.as_deref().and_then(Verifier::parse);
        match verifier {
            Some(_) if role.valid_until.is_some_and(|until| until < self.now()) => StoredPassword::Expired,
            Some(verifier) => StoredPassword::Verifier(verifier),
            None => StoredPassword::None,
        }
    }

    /// Sees whether a user may have one more session. `is_operator`: the configuration says that he
    /// is the superuser.
    ///
    /// # Errors
    /// 28000 if there are roles, and his is none of them or may not log in; 3D000 if there is no
    /// such database; 55000 if nobody may connect to it, and 42501 if he may not; 53300 if his role
    /// or the database has as many sessions as it may have.
    pub fn admit(&self, user: &str, database: &str, is_operator: bool) -> Result<()> {
        let catalog = self.catalog();
        let role = if is_operator { None } else { self.admitted_role(&catalog, user)?.cloned() };
        let (own, given) = (self.called(database)?, database);
        let (catalog, database) = (own.catalog(), own.oid());
        let Some(known) = catalog.database_by_oid(database) else { return Ok(()) };
        let name = catalog.own_name(given);
        if !known.allows_connections {
            let message = format!("database \"{name}\" is not currently accepting connections");
            return Err(SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let superuser =
            if catalog.has_roles() { role.as_ref().is_none_or(|role| role.superuser) } else { is_operator };
        let rights = role.map(|role| catalog.rights(role.oid));
        let kind = Securable::Database;
        if rights
            .is_some_and(|rights| catalog.privileges(&rights, database, kind, Privileges::CONNECT).is_empty())
        {
            let message = format!("permission denied for database \"{name}\"");
            return Err(SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message)
                .with_detail("User does not have CONNECT privilege."));
        }
        if superuser { Ok(()) } else { self.check_limit_in(database, known.connection_limit, name, 0) }
    }

    /// The database that a client calls by a name. 3D000.
    pub(super) fn called(&self, name: &str) -> Result<SqlDatabase> {
        if name.is_empty() {
            return Ok(self.clone());
        }
        let mut name = name.to_owned();
        cut(&mut name, MAX_NAME);
        let catalog = self.catalog();
        let oid = catalog.database_named(&name).map(|known| known.oid);
        let oid = oid.or_else(|| catalog.has_aliases().then_some(DATABASE_OID));
        oid.and_then(|oid| self.of(oid)).ok_or_else(|| {
            let initial = catalog.database_by_oid(DATABASE_OID).map_or("", |known| &known.name);
            undefined_database(&name).with_hint(format!(
                "The initial database is \"{initial}\". It had any other name, too, before there was another one."
            ))
        })
    }

    /// The role of a user who may connect; none if there are no roles yet.
    fn admitted_role<'a>(&self, catalog: &'a Catalog, user: &str) -> Result<Option<&'a Arc<Role>>> {
        if !catalog.has_roles() {
            return Ok(None);
        }
        let refused =
            |message: String| Err(SqlError::new(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, message));
        match catalog.role(user) {
            None => refused(format!("role \"{user}\" does not exist")),
            Some(role) if !role.login => refused(format!("role \"{user}\" is not permitted to log in")),
            Some(role) => self.check_limit(role, 0).map(|()| Some(role)),
        }
    }

    /// 53300 if a role has as many sessions as it may have, beside so many of `own`.
    fn check_limit(&self, role: &Role, own: usize) -> Result<()> {
        let Ok(limit) = usize::try_from(role.connection_limit) else { return Ok(()) };
        if role.superuser || self.presence().count(&role.name) < limit + own {
            return Ok(());
        }
        let message = format!("too many connections for role \"{}\"", role.name);
        Err(SqlError::new(sqlstate::TOO_MANY_CONNECTIONS, message))
    }

    /// The same of a database.
    fn check_limit_in(&self, database: Oid, limit: i32, name: &str, own: usize) -> Result<()> {
        let Ok(limit) = usize::try_from(limit) else { return Ok(()) };
        if self.presence().count_in(database) < limit + own {
            return Ok(());
        }
        let message = format!("too many connections for database \"{name}\"");
        Err(SqlError::new(sqlstate::TOO_MANY_CONNECTIONS, message))
    }
}

impl Session {
    /// Sees once more whether there is room for this session, which is counted itself by now. Of
    /// those who come at once each has seen only who was there before ([`SqlDatabase::admit`]). As
    /// in PostgreSQL it may be that none of them gets the last place.
    ///
    /// # Errors
    /// 53300.
    pub fn check_room(&self) -> Result<()> {
        let (catalog, is_operator) = (self.database.catalog(), self.facts.authority == Authority::Superuser);
        let has_roles = catalog.has_roles();
        let role = catalog.role(&self.facts.user).filter(|_| has_roles && !is_operator);
        if let Some(role) = role {
            self.database.check_limit(role, 1)?;
        }
        let superuser = if has_roles { role.is_none_or(|role| role.superuser) } else { is_operator };
        let oid = self.database.oid();
        match catalog.database_by_oid(oid) {
            Some(known) if !superuser => {
                let name = catalog.own_name(&self.facts.given_database);
                self.database.check_limit_in(oid, known.connection_limit, name, 1)
            }
            _ => Ok(()),
        }
    }
}
