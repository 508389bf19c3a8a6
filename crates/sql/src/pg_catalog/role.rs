//! Roles, databases, tablespaces: `pg_roles`, `pg_database` and what belongs to them.
//!
//! As long as nobody has made a role, those that a session sees are its own, which owns everything,
//! and those that settings are stored for. From the first CREATE ROLE on they are those of the
//! catalog, and those that PostgreSQL has from the beginning.

use super::value::{NULL, array};
use super::{Source, SystemTable, acl};
pub(super) use crate::catalog::DATABASE_OWNER_OID;
use crate::catalog::{Catalog, OWNER_OID, Oid, PREDEFINED, Role as Stored};
use crate::types::{Datum, TypeId};

pub(super) const TABLES: &[&SystemTable] = &[
    &PG_AUTHID,
    &PG_ROLES,
    &PG_USER,
    &PG_SHADOW,
    &PG_GROUP,
    &PG_DATABASE,
    &PG_DB_ROLE_SETTING,
    &PG_TABLESPACE,
];

const DATABASE_OWNER: &str = "pg_database_owner";
/// Oid of the tablespace all is in.
const DEFAULT_TABLESPACE_OID: Oid = 1663;
/// `pg_char_to_encoding('UTF8')`.
const UTF8: i32 = 6;

/// A row of `pg_authid`, and its settings, wherever it connects to.
struct Role {
    role: Stored,
    config: Datum,
}

/// Settings as they are written: `name=value`.
fn config(settings: &[(String, String)]) -> Datum {
    if settings.is_empty() {
        return NULL;
    }
    array(TypeId::Text, settings.iter().map(|(name, value)| format!("{name}={value}")))
}

/// One of PostgreSQL's own.
fn predefined(oid: Oid, name: &str) -> Role {
    Role { role: Stored::new(oid, name.to_owned()), config: NULL }
}

/// Those of the catalog.
fn made(catalog: &Catalog) -> Vec<Role> {
    let made = catalog.roles().map(|role| {
        let stored = catalog.role_settings(Some(&role.name));
        let config = stored.map_or(NULL, |stored| config(&stored.everywhere));
        Role { role: Stored::clone(role), config }
    });
    made.chain(PREDEFINED.iter().map(|(oid, name)| predefined(*oid, name))).collect()
}

/// Those that there are before anybody has made any.
fn roles(catalog: &Catalog, user: &str) -> Vec<Role> {
    if catalog.has_roles() {
        return made(catalog);
    }
    let everywhere = catalog.role_settings(Some(user)).map(|stored| config(&stored.everywhere));
    let own = Role { role: Stored::bootstrap(user.to_owned()), config: everywhere.unwrap_or(NULL) };
    let mut roles = vec![own, predefined(DATABASE_OWNER_OID, DATABASE_OWNER)];
    for stored in catalog.all_role_settings() {
        if let Some(name) = stored.role.as_ref().filter(|name| *name != user) {
            let role = Stored { login: true, ..Stored::new(stored.oid, name.clone()) };
            roles.push(Role { role, config: config(&stored.everywhere) });
        }
    }
    roles
}

/// The roles as the session sees them: before there are roles, its own may be an ordinary one.
fn listed(source: &Source<'_>) -> impl Iterator<Item = Role> {
    let ordinary =
        !source.catalog.has_roles() && source.eval.session.setting("is_superuser").as_deref() == Some("off");
    let roles = roles(source.catalog, &source.user()).into_iter();
    roles.map(move |mut role| {
        if ordinary {
            role.role = Stored { login: role.role.login, ..Stored::new(role.role.oid, role.role.name) };
        }
        role
    })
}

/// Oids and names of all roles.
pub(super) fn named(source: &Source<'_>) -> impl Iterator<Item = (Oid, String)> {
    listed(source).map(|listed| (listed.role.oid, listed.role.name))
}

/// The role of this name.
pub(super) fn oid(catalog: &Catalog, user: &str, name: &str) -> Option<Oid> {
    if catalog.has_roles() {
        return catalog.role_oid(name);
    }
    roles(catalog, user).into_iter().find(|role| role.role.name == name).map(|role| role.role.oid)
}

/// The name of the role with this oid.
pub(super) fn name(catalog: &Catalog, user: &str, oid: Oid) -> Option<String> {
    if catalog.has_roles() {
        return catalog.role_name(oid).map(str::to_owned);
    }
    roles(catalog, user).into_iter().find(|role| role.role.oid == oid).map(|role| role.role.name)
}

/// Database (0: wherever), role (0: all), settings.
fn stored_settings(source: &Source<'_>) -> Vec<(Oid, Oid, Datum)> {
    let user = source.user();
    let mut rows = Vec::new();
    for stored in source.catalog.all_role_settings() {
        let role = match &stored.role {
            None => 0,
            Some(name) if source.catalog.has_roles() => source.catalog.role_oid(name).unwrap_or(stored.oid),
            Some(name) if *name == user => OWNER_OID,
            Some(_) => stored.oid,
        };
        if !stored.everywhere.is_empty() {
            rows.push((0, role, config(&stored.everywhere)));
        }
        for database in stored.databases() {
            rows.push((database, role, config(stored.list(Some(database)))));
        }
    }
    rows
}

system_table! {
    static PG_DB_ROLE_SETTING = 2964 table "pg_catalog"."pg_db_role_setting",
    |source| stored_settings(source) => |(database, role, config)|,
    setdatabase: Oid = database,
    setrole: Oid = role,
    setconfig: TextArray = config,
}

fn until(role: &Stored) -> Datum {
    role.valid_until.map_or(NULL, Datum::Timestamptz)
}

system_table! {
    static PG_AUTHID = 1260 table "pg_catalog"."pg_authid",
    |source| listed(source).map(|listed| listed.role) => |role|,
    oid: Oid = role.oid,
    rolname: Name = role.name.clone(),
    rolsuper: Bool = role.superuser,
    rolinherit: Bool = role.inherit,
    rolcreaterole: Bool = role.create_role,
    rolcreatedb: Bool = role.create_db,
    rolcanlogin: Bool = role.login,
    rolreplication: Bool = role.replication,
    rolbypassrls: Bool = role.bypass_rls,
    rolconnlimit: Int4 = role.connection_limit,
    rolpassword: Text = role.password.clone(),
    rolvaliduntil: Timestamptz = until(&role),
}

system_table! {
    static PG_ROLES = 12000 view "pg_catalog"."pg_roles",
    |source| listed(source) => |Role { role, config }|,
    rolname: Name = role.name.clone(),
    rolsuper: Bool = role.superuser,
    rolinherit: Bool = role.inherit,
    rolcreaterole: Bool = role.create_role,
    rolcreatedb: Bool = role.create_db,
    rolcanlogin: Bool = role.login,
    rolreplication: Bool = role.replication,
    rolconnlimit: Int4 = role.connection_limit,
    rolpassword: Text = "********",
    rolvaliduntil: Timestamptz = until(&role),
    rolbypassrls: Bool = role.bypass_rls,
    rolconfig: TextArray = config,
    oid: Oid = role.oid,
}

/// The roles that can log in.
fn users(source: &Source<'_>) -> impl Iterator<Item = Role> {
    listed(source).filter(|listed| listed.role.login)
}

system_table! {
    static PG_USER = 12014 view "pg_catalog"."pg_user",
    |source| users(source) => |Role { role, config }|,
    usename: Name = role.name.clone(),
    usesysid: Oid = role.oid,
    usecreatedb: Bool = role.create_db,
    usesuper: Bool = role.superuser,
    userepl: Bool = role.replication,
    usebypassrls: Bool = role.bypass_rls,
    passwd: Text = "********",
    valuntil: Timestamptz = until(&role),
    useconfig: TextArray = config,
}

system_table! {
    static PG_SHADOW = 12005 view "pg_catalog"."pg_shadow",
    |source| users(source) => |Role { role, config }|,
    usename: Name = role.name.clone(),
    usesysid: Oid = role.oid,
    usecreatedb: Bool = role.create_db,
    usesuper: Bool = role.superuser,
    userepl: Bool = role.replication,
    usebypassrls: Bool = role.bypass_rls,
    passwd: Text = role.password.clone(),
    valuntil: Timestamptz = until(&role),
    useconfig: TextArray = config,
}

/// Oids of the members of a role.
fn members(catalog: &Catalog, of: Oid) -> Datum {
    let members = catalog.roles().filter(|role| role.membership(of).is_some());
    array(TypeId::Oid, members.map(|role| role.oid))
}

system_table! {
    static PG_GROUP = 12010 view "pg_catalog"."pg_group",
    |source| listed(source).filter(|listed| !listed.role.login).map(|listed| (source, listed.role))
        => |(source, role)|,
    groname: Name = role.name.clone(),
    grosysid: Oid = role.oid,
    grolist: OidArray = members(source.catalog, role.oid),
}

system_table! {
    static PG_DATABASE = 1262 table "pg_catalog"."pg_database",
    |source| source.databases().into_iter().map(|known| (source, known)) => |(source, known)|,
    oid: Oid = known.oid,
    datname: Name = known.name.clone(),
    datdba: Oid = source.catalog.owner(known.oid),
    encoding: Int4 = UTF8,
    datlocprovider: InternalChar = 'c',
    datistemplate: Bool = known.is_template,
    datallowconn: Bool = known.allows_connections,
    datconnlimit: Int4 = known.connection_limit,
    datfrozenxid: Xid = source.eval.session.transaction_id() as u32,
    datminmxid: Xid = 1,
    dattablespace: Oid = DEFAULT_TABLESPACE_OID,
    datcollate: Text = "C",
    datctype: Text = "C",
    daticulocale: Text = NULL,
    datcollversion: Text = NULL,
    datacl: TextArray = acl::of(source, known.oid),
}

system_table! {
    static PG_TABLESPACE = 1213 table "pg_catalog"."pg_tablespace",
    |_source| [(DEFAULT_TABLESPACE_OID, "pg_default"), (1664, "pg_global")] => |(oid, name)|,
    oid: Oid = oid,
    spcname: Name = name,
    spcowner: Oid = OWNER_OID,
    spcacl: TextArray = NULL,
    spcoptions: TextArray = NULL,
}
