//! Who may connect, as far as the catalog knows.
//!
//! As long as nobody has made a role, it knows nobody, and the server's configuration decides alone.
//! From then on a name gets in only if it is a role's that may log in; whoever the configuration names
//! as superuser gets in anyway.

use super::SqlDatabase;
use crate::catalog::{DATABASE_OID, Privileges, Role, Securable};
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

    /// Sees whether a user may have one more session. `is_operator`: the configuration says that he is
    /// the superuser.
    ///
    /// # Errors
    /// 28000 if there are roles, and his is none of them or may not log in; 42501 if it may not connect
    /// to the database; 53300 if it has as many sessions as it may have.
    pub fn admit(&self, user: &str, database: &str, is_operator: bool) -> Result<()> {
        let catalog = self.catalog();
        if !catalog.has_roles() || is_operator {
            return Ok(());
        }
        let refused =
            |message: String| Err(SqlError::new(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, message));
        match catalog.role(user) {
            None => refused(format!("role \"{user}\" does not exist")),
            Some(role) if !role.login => refused(format!("role \"{user}\" is not permitted to log in")),
            Some(role) => {
                let (kind, rights) = (Securable::Database, catalog.rights(role.oid));
                if catalog.privileges(&rights, DATABASE_OID, kind, Privileges::CONNECT).is_empty() {
                    let message = format!("permission denied for database \"{database}\"");
                    return Err(SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message)
                        .with_detail("User does not have CONNECT privilege."));
                }
                self.check_limit(role)
            }
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
