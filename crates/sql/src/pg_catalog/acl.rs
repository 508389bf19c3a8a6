//! Lists of privileges as clients read them, and the catalog tables about memberships and
//! privileges of objects to come.
//!
//! ```text
//! {ann=arwdDxt/ann,bob=r*/ann,=r/ann}      bob may give SELECT on, and everybody has it
//! ```

use super::value::{NULL, array};
use super::{Source, SystemTable, role};
use crate::catalog::{AclItem, Membership, Oid, Role};
use crate::types::{Datum, TypeId};

pub(super) const TABLES: &[&SystemTable] = &[&PG_AUTH_MEMBERS, &PG_DEFAULT_ACL];

/// A role's name as lists print it: in quotes unless it is plain.
pub(super) fn shown(source: &Source<'_>, role: Oid) -> String {
    let name = role_name(source, role);
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if plain { name } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A role's name, or its oid if there is none.
pub(super) fn role_name(source: &Source<'_>, role: Oid) -> String {
    role::name(source.catalog, &source.user(), role).unwrap_or_else(|| role.to_string())
}

/// A list.
pub(super) fn list(source: &Source<'_>, items: &[AclItem]) -> Datum {
    let item = |item: &AclItem| {
        let grantee = if item.grantee == 0 { String::new() } else { shown(source, item.grantee) };
        format!("{grantee}={}/{}", item.letters(), shown(source, item.grantor))
    };
    array(TypeId::Text, items.iter().map(item))
}

/// The list of an object; NULL if it has none.
pub(super) fn of(source: &Source<'_>, object: Oid) -> Datum {
    source.catalog.list(object).map_or(NULL, |items| list(source, &items))
}

/// The list of a column, by its number; NULL if it has none.
pub(super) fn of_column(source: &Source<'_>, relation: Oid, number: i16) -> Datum {
    let place = usize::try_from(number - 1).ok();
    let found = source.catalog.column_lists(relation).find(|of| Some(of.column) == place);
    found.map_or(NULL, |of| list(source, &of.list))
}

/// The name of an object's owner.
pub(super) fn owner(source: &Source<'_>, object: Oid) -> String {
    role_name(source, source.catalog.owner(object))
}

fn memberships<'a>(source: &Source<'a>) -> impl Iterator<Item = (&'a Role, &'a Membership)> {
    let roles = source.catalog.roles().map(|role| &**role);
    roles.flat_map(|role: &Role| role.member_of.iter().map(move |membership| (role, membership)))
}

system_table! {
    static PG_AUTH_MEMBERS = 1261 table "pg_catalog"."pg_auth_members",
    |source| memberships(source) => |(role, membership)|,
    roleid: Oid = membership.role,
    member: Oid = role.oid,
    grantor: Oid = membership.grantor,
    admin_option: Bool = membership.admin,
}

system_table! {
    static PG_DEFAULT_ACL = 826 table "pg_catalog"."pg_default_acl",
    |source| source.catalog.default_accesses().map(|default| (source, default)) => |(source, default)|,
    oid: Oid = default.oid,
    defaclrole: Oid = default.role,
    defaclnamespace: Oid = default.schema,
    defaclobjtype: InternalChar = default.kind.letter(),
    defaclacl: TextArray = list(source, &default.list),
}
