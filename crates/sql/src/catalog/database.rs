//! Databases: name spaces beside each other in one server, none of which sees another's objects.
//!
//! Three are there from the beginning, and are objects of the catalog only once something about
//! them was changed: `postgres`, in which everything is that was stored before there were others,
//! and two empty ones, as in PostgreSQL. Roles, databases and what is said of them are *shared*:
//! each database's catalog has them.
//!
//! As long as nobody has made a fourth one, a client may call the initial database whatever it
//! likes (docs/decisions/0021-databases.md).

use serde::{Deserialize, Serialize};

use super::{Catalog, Changes, DATABASE_OID, Object, Oid};

/// Oid of `template1`, as in PostgreSQL.
pub const TEMPLATE1_OID: Oid = 1;
/// Oid of `template0`.
pub const TEMPLATE0_OID: Oid = 4;
/// Databases that are there from the beginning.
const INITIAL: usize = 3;

/// A database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Database {
    /// Oid.
    pub oid: u32,
    /// Name.
    pub name: String,
    /// COMMENT ON DATABASE.
    #[serde(default)]
    pub comment: Option<String>,
    /// Everybody who may make databases may take it as a template.
    #[serde(default)]
    pub is_template: bool,
    /// Somebody may connect.
    #[serde(default = "yes")]
    pub allows_connections: bool,
    /// How many sessions it may have; -1 is any number.
    #[serde(default = "any_number")]
    pub connection_limit: i32,
}

fn yes() -> bool {
    true
}

fn any_number() -> i32 {
    -1
}

impl Database {
    /// One that nothing special is said of.
    pub fn new(oid: Oid, name: impl Into<String>) -> Database {
        let name = name.into();
        Database {
            oid,
            name,
            comment: None,
            is_template: false,
            allows_connections: true,
            connection_limit: -1,
        }
    }

    /// Those that are there from the beginning.
    pub fn initial() -> [Database; INITIAL] {
        let of = |oid, name, comment: &str| Database {
            comment: Some(comment.to_owned()),
            is_template: oid != DATABASE_OID,
            allows_connections: oid != TEMPLATE0_OID,
            ..Database::new(oid, name)
        };
        [
            of(DATABASE_OID, "postgres", "default administrative connection database"),
            of(TEMPLATE1_OID, "template1", "default template for new databases"),
            of(TEMPLATE0_OID, "template0", "unmodifiable empty database"),
        ]
    }
}

impl Catalog {
    /// Oid of the database that this is the catalog of.
    pub fn database_oid(&self) -> Oid {
        self.database
    }

    /// The database of this name.
    pub fn database_named(&self, name: &str) -> Option<&Database> {
        self.databases().find(|database| database.name == name)
    }

    /// The database of this oid.
    pub fn database_by_oid(&self, oid: Oid) -> Option<&Database> {
        match self.objects.get(&oid)? {
            Object::Database(database) => Some(database),
            _ => None,
        }
    }

    /// All databases by oid.
    pub fn databases(&self) -> impl Iterator<Item = &Database> {
        self.databases.iter().filter_map(|oid| self.database_by_oid(*oid))
    }

    /// Whether the initial database is called whatever a client calls it: nobody has made another.
    pub fn has_aliases(&self) -> bool {
        self.databases.len() <= INITIAL
    }

    /// The name of the database that this is the catalog of, to a client that has called it
    /// `given`.
    pub fn own_name<'a>(&'a self, given: &'a str) -> &'a str {
        if self.has_aliases() && self.database == DATABASE_OID && !given.is_empty() {
            return given;
        }
        self.database_by_oid(self.database).map_or(given, |database| &database.name)
    }

    /// The database that a client means which has called its own one `given`.
    pub fn database_called(&self, name: &str, given: &str) -> Option<&Database> {
        match name == self.own_name(given) {
            true => self.database_by_oid(self.database),
            false => self.database_named(name),
        }
    }

    /// Whether a name that a statement writes before a schema means the database that this is the
    /// catalog of.
    pub fn is_own_name(&self, name: &str) -> bool {
        match self.database_named(name) {
            Some(database) => database.oid == self.database,
            None => self.has_aliases() && self.database == DATABASE_OID,
        }
    }

    /// Whether all databases have an object.
    pub(crate) fn shares(&self, object: &Object) -> bool {
        match object {
            Object::Role(_) | Object::RoleSettings(_) | Object::Database(_) => true,
            Object::Access(access) => self.databases.contains(&access.object),
            _ => false,
        }
    }

    /// Those of the changes that concern what all databases have.
    pub(crate) fn shared_among(&self, changes: &Changes) -> Changes {
        let is_shared = |oid: &Oid, after: &Option<Object>| match after {
            // Who owns a database that is made now is said of an object that nobody knows yet.
            Some(Object::Access(access)) => {
                self.shares(&Object::Access(access.clone()))
                    || matches!(changes.get(&access.object), Some(Some(Object::Database(_))))
            }
            Some(object) => self.shares(object),
            None => self.objects.get(oid).is_some_and(|object| self.shares(object)),
        };
        let shared = changes.iter().filter(|(oid, after)| is_shared(oid, after));
        shared.map(|(oid, after)| (*oid, after.clone())).collect()
    }

    /// The catalog of a database that is gone: what is shared, and what is built in.
    pub(crate) fn without_own(&self, version: u64) -> Catalog {
        let shared = self.objects.values().filter(|object| self.shares(object));
        Catalog::of_database(self.database, version, shared.cloned())
    }

    /// The database that an object belongs to, as its key says it; 0 is all.
    pub(crate) fn home_of(&self, object: &Object) -> Oid {
        if self.shares(object) { 0 } else { self.database }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fourth_database_takes_the_aliases_away() {
        let one = Catalog::new(1, []);
        assert!(one.has_aliases());
        assert_eq!(one.own_name("shop"), "shop");
        assert_eq!(one.database_called("shop", "shop").map(|database| database.oid), Some(DATABASE_OID));
        assert_eq!(one.database_called("postgres", "shop").map(|database| database.oid), Some(DATABASE_OID));
        assert_eq!(one.database_called("stall", "shop"), None);
        let two = Catalog::new(2, [Object::Database(Database::new(16384, "shop").into())]);
        assert!(!two.has_aliases());
        assert_eq!(two.own_name("shop"), "postgres");
        assert_eq!(two.database_called("shop", "shop").map(|database| database.oid), Some(16384));
    }
}
