//! Roles: who may log in, who belongs to whom, and what follows from that.
//!
//! ```text
//! CREATE ROLE staff                          staff   may not log in
//! CREATE USER ann PASSWORD 'x' IN ROLE staff ann     logs in, and has what staff has
//!
//! rights of ann: the roles {ann, staff}, no superuser
//! ```
//!
//! As long as nobody has made a role there are none: whoever gets in is called what he says, and
//! may do everything in the database. The first CREATE ROLE also stores the one who gives it, as
//! the *bootstrap superuser*, who has oid 10 and owns all that was there before.
//!
//! A [`Rights`] is what a check asks: it is made once for each role and state of the catalog. A
//! membership without INHERIT does not count there, but allows SET ROLE.

use serde::{Deserialize, Serialize};

use super::{Catalog, OWNER_OID, Oid};

/// The role that owns the schema `public`, as in PostgreSQL: whoever owns the database is its
/// member.
pub const DATABASE_OWNER_OID: Oid = 6171;
/// Its members may read everything.
pub(super) const READ_ALL_OID: Oid = 6181;
/// Its members may change all rows.
pub(super) const WRITE_ALL_OID: Oid = 6182;
/// Its members may look at what concerns the whole server.
pub const MONITOR_OID: Oid = 3373;
/// Its members see what others do, with the values of keys in it.
pub const STATISTICS_OID: Oid = 3375;
/// Its members may end the statements and sessions of others.
pub const SIGNAL_OID: Oid = 4200;
/// Its members may order a checkpoint.
pub const CHECKPOINT_OID: Oid = 4544;

/// Roles that PostgreSQL has from the beginning. Nobody can log in as one of them.
pub const PREDEFINED: &[(Oid, &str)] = &[
    (DATABASE_OWNER_OID, "pg_database_owner"),
    (READ_ALL_OID, "pg_read_all_data"),
    (WRITE_ALL_OID, "pg_write_all_data"),
    (MONITOR_OID, "pg_monitor"),
    (3374, "pg_read_all_settings"),
    (STATISTICS_OID, "pg_read_all_stats"),
    (3377, "pg_stat_scan_tables"),
    (4569, "pg_read_server_files"),
    (4570, "pg_write_server_files"),
    (4571, "pg_execute_server_program"),
    (SIGNAL_OID, "pg_signal_backend"),
    (CHECKPOINT_OID, "pg_checkpoint"),
];

/// A role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Role {
    /// Oid.
    pub oid: u32,
    /// Name.
    pub name: String,
    /// May do everything.
    #[serde(default)]
    pub superuser: bool,
    /// Has what the roles have that it is a member of, without SET ROLE.
    pub inherit: bool,
    /// May make, change and drop roles that are no superusers.
    #[serde(default)]
    pub create_role: bool,
    /// May make databases.
    #[serde(default)]
    pub create_db: bool,
    /// May connect.
    #[serde(default)]
    pub login: bool,
    /// May replicate: kept and shown only.
    #[serde(default)]
    pub replication: bool,
    /// Row security does not concern it: kept and shown only.
    #[serde(default)]
    pub bypass_rls: bool,
    /// Most sessions at a time; -1 is no limit.
    pub connection_limit: i32,
    /// What its password is checked by: a SCRAM-SHA-256 verifier as PostgreSQL stores it.
    #[serde(default)]
    pub password: Option<String>,
    /// Until when the password counts, in microseconds since 2000-01-01 UTC.
    #[serde(default)]
    pub valid_until: Option<i64>,
    /// The roles that it is a member of, in the order in which it became so.
    #[serde(default)]
    pub member_of: Vec<Membership>,
    /// COMMENT ON ROLE.
    #[serde(default)]
    pub comment: Option<String>,
}

/// One role is a member of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Oid of the other one.
    pub role: u32,
    /// Oid of the role that said so.
    pub grantor: u32,
    /// It may give and take memberships of the other one.
    #[serde(default)]
    pub admin: bool,
}

impl Role {
    /// A role with what CREATE ROLE gives by default.
    pub fn new(oid: Oid, name: String) -> Role {
        Role {
            oid,
            name,
            superuser: false,
            inherit: true,
            create_role: false,
            create_db: false,
            login: false,
            replication: false,
            bypass_rls: false,
            connection_limit: -1,
            password: None,
            valid_until: None,
            member_of: Vec::new(),
            comment: None,
        }
    }

    /// The one who owns what was there before there were roles.
    pub fn bootstrap(name: String) -> Role {
        Role {
            superuser: true,
            create_role: true,
            create_db: true,
            login: true,
            replication: true,
            bypass_rls: true,
            ..Role::new(OWNER_OID, name)
        }
    }

    /// Its membership of another role.
    pub fn membership(&self, of: Oid) -> Option<&Membership> {
        self.member_of.iter().find(|membership| membership.role == of)
    }
}

/// What checks ask of a role: whether it is a superuser, and in whose names it acts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Its oid; 0 for somebody who is no role any more.
    pub role: Oid,
    /// It may do everything.
    pub superuser: bool,
    /// The roles whose privileges it has, its own oid among them, sorted.
    roles: Vec<Oid>,
}

impl Rights {
    /// Whether it has what a role has.
    pub fn has(&self, role: Oid) -> bool {
        self.superuser || self.roles.binary_search(&role).is_ok()
    }

    /// The same of one who is no superuser, whatever it is.
    pub(super) fn acts_as(&self, role: Oid) -> bool {
        self.roles.binary_search(&role).is_ok()
    }
}

impl Catalog {
    /// The rights of a role.
    pub(super) fn make_rights(&self, role: Oid) -> Rights {
        let superuser = role == OWNER_OID || self.role_by_oid(role).is_some_and(|role| role.superuser);
        let mut roles = self.memberships(role, true);
        roles.sort_unstable();
        Rights { role, superuser, roles }
    }

    /// The roles that a role is a member of, itself first, also through others; with `inherited`
    /// only those whose privileges it has by that.
    pub fn memberships(&self, role: Oid, inherited: bool) -> Vec<Oid> {
        let mut found = vec![role];
        let mut at = 0;
        while let Some(&member) = found.get(at) {
            at += 1;
            let mut of: Vec<Oid> = Vec::new();
            match self.role_by_oid(member) {
                Some(known) if inherited && !known.inherit => {}
                Some(known) => of.extend(known.member_of.iter().map(|membership| membership.role)),
                // Of the predefined roles one is a member of others.
                None if member == MONITOR_OID => of.extend([3374, STATISTICS_OID, 3377]),
                None => {}
            }
            if self.owner(self.database_oid()) == member {
                of.push(DATABASE_OWNER_OID);
            }
            of.retain(|oid| !found.contains(oid));
            found.extend(of);
        }
        found
    }

    /// Whether a role may give and take memberships of another one: it has been told so, or one of
    /// those that it is a member of.
    pub fn is_admin_of(&self, member: Oid, role: Oid) -> bool {
        self.memberships(member, false).into_iter().any(|member| {
            let known = self.role_by_oid(member);
            known.and_then(|known| known.membership(role)).is_some_and(|membership| membership.admin)
        })
    }

    /// The name of a role, a predefined one too.
    pub fn role_name(&self, oid: Oid) -> Option<&str> {
        let predefined = || PREDEFINED.iter().find(|(known, _)| *known == oid).map(|(_, name)| *name);
        self.role_by_oid(oid).map(|role| role.name.as_str()).or_else(predefined)
    }

    /// The oid of a role by its name, a predefined one too.
    pub fn role_oid(&self, name: &str) -> Option<Oid> {
        let predefined = || PREDEFINED.iter().find(|(_, known)| *known == name).map(|(oid, _)| *oid);
        self.role(name).map(|role| role.oid).or_else(predefined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Object;

    fn catalog(roles: Vec<Role>) -> Catalog {
        Catalog::new(1, roles.into_iter().map(|role| Object::Role(role.into())))
    }

    fn role(oid: Oid, of: &[Oid]) -> Role {
        let member_of =
            of.iter().map(|role| Membership { role: *role, grantor: 10, admin: *role % 2 == 1 }).collect();
        Role { member_of, ..Role::new(oid, format!("r{oid}")) }
    }

    #[test]
    fn rights_go_through_memberships_that_inherit() {
        let mut middle = role(101, &[102]);
        let all = catalog(vec![role(100, &[101]), middle.clone(), role(102, &[])]);
        let rights = all.make_rights(100);
        assert!([100, 101, 102].into_iter().all(|oid| rights.has(oid)) && !rights.superuser);
        middle.inherit = false;
        let all = catalog(vec![role(100, &[101]), middle, role(102, &[])]);
        let rights = all.make_rights(100);
        assert!(rights.has(101) && !rights.has(102));
        assert_eq!(all.memberships(100, false), [100, 101, 102]);
        assert!(all.is_admin_of(100, 101) && !all.is_admin_of(100, 102));
    }

    #[test]
    fn a_superuser_has_everything_and_a_stranger_nothing() {
        let all = catalog(vec![Role::bootstrap("me".to_owned()), role(100, &[])]);
        assert!(all.make_rights(OWNER_OID).has(100));
        assert!(!Rights::default().has(100));
        assert_eq!(all.role_oid("pg_monitor"), Some(3373));
        assert_eq!(all.role_name(100), Some("r100"));
    }
}
