//! Roles, the one database, the tablespaces: `pg_roles`, `pg_database` and what belongs to them.
//!
//! Nobody keeps a list of roles. Those that a session sees are its own, which owns everything, and
//! those that settings are stored for.

use super::value::{NULL, array};
use super::{Source, SystemTable};
use crate::catalog::{Catalog, OWNER_OID, Oid};
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

/// The role that owns the schema `public`, as in PostgreSQL: whoever owns the database is its
/// member.
pub(super) const DATABASE_OWNER_OID: Oid = 6171;
const DATABASE_OWNER: &str = "pg_database_owner";
/// Oid of the one database.
pub(super) const DATABASE_OID: Oid = 5;
/// Oid of the tablespace all is in.
const DEFAULT_TABLESPACE_OID: Oid = 1663;
/// `pg_char_to_encoding('UTF8')`.
const UTF8: i32 = 6;

/// A row of `pg_authid`.
struct Role {
    oid: Oid,
    name: String,
    superuser: bool,
    login: bool,
    /// Its settings, wherever it connects to.
    config: Datum,
}

/// Settings as they are written: `name=value`.
fn config(settings: &[(String, String)]) -> Datum {
    if settings.is_empty() {
        return NULL;
    }
    array(TypeId::Text, settings.iter().map(|(name, value)| format!("{name}={value}")))
}

fn roles(catalog: &Catalog, user: &str) -> Vec<Role> {
    let everywhere = catalog.role_settings(Some(user)).map(|stored| config(&stored.everywhere));
    let mut roles = vec![
        Role {
            oid: OWNER_OID,
            name: user.to_owned(),
            superuser: true,
            login: true,
            config: everywhere.unwrap_or(NULL),
        },
        Role {
            oid: DATABASE_OWNER_OID,
            name: DATABASE_OWNER.to_owned(),
            superuser: false,
            login: false,
            config: NULL,
        },
    ];
    for stored in catalog.all_role_settings() {
        if let Some(name) = stored.role.as_ref().filter(|name| *name != user) {
            let (name, config) = (name.clone(), config(&stored.everywhere));
            roles.push(Role { oid: stored.oid, name, superuser: false, login: true, config });
        }
    }
    roles
}

/// The roles as the session sees them: its own may be an ordinary one.
fn listed(source: &Source<'_>) -> impl Iterator<Item = Role> {
    let ordinary = source.eval.session.setting("is_superuser").as_deref() == Some("off");
    let roles = roles(source.catalog, &source.user()).into_iter();
    roles.map(move |role| Role { superuser: role.superuser && !ordinary, ..role })
}

/// The role of this name.
pub(super) fn oid(catalog: &Catalog, user: &str, name: &str) -> Option<Oid> {
    roles(catalog, user).into_iter().find(|role| role.name == name).map(|role| role.oid)
}

/// The name of the role with this oid.
pub(super) fn name(catalog: &Catalog, user: &str, oid: Oid) -> Option<String> {
    roles(catalog, user).into_iter().find(|role| role.oid == oid).map(|role| role.name)
}

/// Database (0: wherever), role (0: all), settings.
fn stored_settings(source: &Source<'_>) -> Vec<(Oid, Oid, Datum)> {
    let user = source.user();
    let mut rows = Vec::new();
    for stored in source.catalog.all_role_settings() {
        let role = match &stored.role {
            None => 0,
            Some(name) if *name == user => OWNER_OID,
            Some(_) => stored.oid,
        };
        for (database, settings) in [(0, &stored.everywhere), (DATABASE_OID, &stored.in_database)] {
            if !settings.is_empty() {
                rows.push((database, role, config(settings)));
            }
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

system_table! {
    static PG_AUTHID = 1260 table "pg_catalog"."pg_authid",
    |source| listed(source) => |role|,
    oid: Oid = role.oid,
    rolname: Name = role.name,
    rolsuper: Bool = role.superuser,
    rolinherit: Bool = true,
    rolcreaterole: Bool = role.superuser,
    rolcreatedb: Bool = role.superuser,
    rolcanlogin: Bool = role.login,
    rolreplication: Bool = role.superuser,
    rolbypassrls: Bool = role.superuser,
    rolconnlimit: Int4 = -1,
    rolpassword: Text = NULL,
    rolvaliduntil: Timestamptz = NULL,
}

system_table! {
    static PG_ROLES = 12000 view "pg_catalog"."pg_roles",
    |source| listed(source) => |role|,
    rolname: Name = role.name,
    rolsuper: Bool = role.superuser,
    rolinherit: Bool = true,
    rolcreaterole: Bool = role.superuser,
    rolcreatedb: Bool = role.superuser,
    rolcanlogin: Bool = role.login,
    rolreplication: Bool = role.superuser,
    rolconnlimit: Int4 = -1,
    rolpassword: Text = "********",
    rolvaliduntil: Timestamptz = NULL,
    rolbypassrls: Bool = role.superuser,
    rolconfig: TextArray = role.config,
    oid: Oid = role.oid,
}

/// The roles that can log in.
fn users(source: &Source<'_>) -> impl Iterator<Item = Role> {
    listed(source).filter(|role| role.login)
}

system_table! {
    static PG_USER = 12014 view "pg_catalog"."pg_user",
    |source| users(source) => |role|,
    usename: Name = role.name,
    usesysid: Oid = role.oid,
    usecreatedb: Bool = role.superuser,
    usesuper: Bool = role.superuser,
    userepl: Bool = role.superuser,
    usebypassrls: Bool = role.superuser,
    passwd: Text = "********",
    valuntil: Timestamptz = NULL,
    useconfig: TextArray = role.config,
}

system_table! {
    static PG_SHADOW = 12005 view "pg_catalog"."pg_shadow",
    |source| users(source) => |role|,
    usename: Name = role.name,
    usesysid: Oid = role.oid,
    usecreatedb: Bool = role.superuser,
    usesuper: Bool = role.superuser,
    userepl: Bool = role.superuser,
    usebypassrls: Bool = role.superuser,
    passwd: Text = NULL,
    valuntil: Timestamptz = NULL,
    useconfig: TextArray = role.config,
}

system_table! {
    static PG_GROUP = 12010 view "pg_catalog"."pg_group",
    |source| listed(source).filter(|role| !role.login) => |role|,
    groname: Name = role.name,
    grosysid: Oid = role.oid,
    grolist: OidArray = array::<u32>(TypeId::Oid, []),
}

system_table! {
    static PG_DATABASE = 1262 table "pg_catalog"."pg_database",
    |source| [source.database()] => |name|,
    oid: Oid = DATABASE_OID,
    datname: Name = name,
    datdba: Oid = OWNER_OID,
    encoding: Int4 = UTF8,
    datlocprovider: InternalChar = 'c',
    datistemplate: Bool = false,
    datallowconn: Bool = true,
    datconnlimit: Int4 = -1,
    datfrozenxid: Oid = 3,
    datminmxid: Oid = 1,
    dattablespace: Oid = DEFAULT_TABLESPACE_OID,
    datcollate: Text = "C",
    datctype: Text = "C",
    daticulocale: Text = NULL,
    datcollversion: Text = NULL,
    datacl: TextArray = NULL,
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
