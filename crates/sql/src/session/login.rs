//! Who may connect, and to what, as far as the catalog knows.
//!
//! As long as nobody has made a role, it knows nobody, and the server's configuration decides
//! alone. From then on a name gets in only if it is a role's that may log in; whoever the
//! configuration names as superuser gets in anyway.
//!
//! It is the same with databases: as long as nobody has made one, the initial database has any name
//! that a client gives it.

use std::sync::Arc;

use super::SqlDatabase;
use crate::catalog::{Catalog, DATABASE_OID, Privileges, Role, Securable};
use crate::ddl::database::undefined_database;
use crate::ddl::names::{MAX_NAME, cut};
use crate::error::{Result, SqlError, sqlstate};
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
        match usize::try_from(known.connection_limit) {
            Ok(limit) if !superuser && self.presence().count_in(database) >= limit => {
                let message = format!("too many connections for database \"{name}\"");
                Err(SqlError::new(sqlstate::TOO_MANY_CONNECTIONS, message))
            }
            _ => Ok(()),
        }
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
            Some(role) => self.check_limit(role).map(|()| Some(role)),
        }
    }

    fn check_limit(&self, role: &Role) -> Result<()> {
        let Ok(limit) = usize::try_from(role.connection_limit) else { return Ok(()) };
        if role.superuser || self.presence().count(&role.name) < limit {
            return Ok(());
        }
        let message = format!("too many connections for role \"{}\"", role.name);
        Err(SqlError::new(sqlstate::TOO_MANY_CONNECTIONS, message))
    }
}
