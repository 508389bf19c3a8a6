//! What is granted on columns: what their tables' lists say, of each column, and what their own do.

use std::collections::BTreeSet;

use super::super::viewer::Viewer;
use super::super::{Source, acl};
use super::yes;
use crate::catalog::{AclItem, Oid, Privileges, Securable};

/// A row of `column_privileges`.
struct Granted {
    grantor: String,
    grantee: String,
    schema: String,
    table: String,
    column: String,
    privilege: &'static str,
    grantable: bool,
}

/// What is granted on columns to roles that the session counts as, or by them; to everybody, too,
/// if that is asked for.
fn privileges(source: &Source<'_>, of_public: bool) -> Vec<Granted> {
    let (catalog, viewer) = (source.catalog, Viewer::new(source));
    let is_shown = |item: &AclItem| viewer.is_told(item, of_public);
    let tables = catalog.tables().map(|table| (table.oid, &table.schema_name, &table.name));
    let views = catalog.views().map(|view| (view.oid, &view.schema_name, &view.name));
    let mut rows = Vec::new();
    for (oid, schema, table) in tables.chain(views) {
        let mut of_table = catalog.list_or_default(oid, Securable::Table);
        of_table.retain(is_shown);
        for place in catalog.column_places(oid) {
            let mut items = of_table.clone();
            let of_column = catalog.access(oid).map_or(&[][..], |access| access.column_list(place));
            items.extend(of_column.iter().filter(|item| is_shown(item)));
            for (item, privilege, grantable) in each(&items) {
                let grantee = match item.grantee {
                    0 => "PUBLIC".to_owned(),
                    grantee => acl::role_name(source, grantee),
                };
                let is_owner = item.grantee != 0 && catalog.rights(item.grantee).has(catalog.owner(oid));
                rows.push(Granted {
                    grantor: acl::role_name(source, item.grantor),
                    grantee,
                    schema: schema.clone(),
                    table: table.clone(),
                    column: catalog.column_name(oid, place).unwrap_or_default().to_owned(),
                    privilege,
                    grantable: grantable || is_owner,
                });
            }
        }
    }
    rows
}

/// What lists say one by one, each once: an item, a word of it, and whether it may be given on.
fn each(items: &[AclItem]) -> Vec<(AclItem, &'static str, bool)> {
    let mut said: BTreeSet<(Oid, Oid, &'static str, bool)> = BTreeSet::new();
    let mut rows = Vec::new();
    for item in items {
        for privilege in (item.privileges & Privileges::COLUMN).words() {
            let bit = Privileges::of_word(privilege).unwrap_or_default();
            let grantable = item.grantable.has_all(bit);
            if said.insert((item.grantee, item.grantor, privilege, grantable)) {
                rows.push((*item, privilege, grantable));
            }
        }
    }
    rows
}

system_table! {
    pub(super) static COLUMN_PRIVILEGES = 13285 view "information_schema"."column_privileges",
    |source| privileges(source, true).into_iter().map(|row| (source, row)) => |(source, row)|,
    grantor: Name = row.grantor,
    grantee: Name = row.grantee,
    table_catalog: Name = source.database(),
    table_schema: Name = row.schema,
    table_name: Name = row.table,
    column_name: Name = row.column,
    privilege_type: Varchar = row.privilege,
    is_grantable: Varchar = yes(row.grantable),
}

system_table! {
    pub(super) static ROLE_COLUMN_GRANTS = 13344 view "information_schema"."role_column_grants",
    |source| privileges(source, false).into_iter().map(|row| (source, row)) => |(source, row)|,
    grantor: Name = row.grantor,
    grantee: Name = row.grantee,
    table_catalog: Name = source.database(),
    table_schema: Name = row.schema,
    table_name: Name = row.table,
    column_name: Name = row.column,
    privilege_type: Varchar = row.privilege,
    is_grantable: Varchar = yes(row.grantable),
}
