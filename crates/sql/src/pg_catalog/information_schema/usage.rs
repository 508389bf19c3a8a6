//! What is granted on routines, domains, sequences and the types of rows, and which tables views
//! read.

use super::super::routine::specific_name;
use super::super::viewer::Viewer;
use super::super::{Source, acl};
use super::yes;
use crate::catalog::{AclItem, Oid, Privileges, Relation, Securable};

/// Something that is granted on an object.
struct Granted {
    grantor: String,
    grantee: String,
    schema: String,
    name: String,
    /// The kind of object, and its name among those of one name.
    kind: &'static str,
    specific: String,
    grantable: bool,
}

/// An object with its list.
struct Listed<'a> {
    oid: Oid,
    schema: &'a str,
    name: &'a str,
    kind: &'static str,
    list: Vec<AclItem>,
}

/// Who has a privilege on these objects, as far as the session counts as one of the two; with those
/// for everybody, if they are asked for.
fn granted<'a>(
    source: &Source<'_>,
    objects: impl Iterator<Item = Listed<'a>>,
    wanted: Privileges,
    of_public: bool,
) -> Vec<Granted> {
    let (catalog, viewer) = (source.catalog, Viewer::new(source));
    let mut rows = Vec::new();
    for object in objects {
        let is_listed = |item: &&AclItem| item.privileges.has_all(wanted) && viewer.is_told(item, of_public);
        for item in object.list.iter().filter(is_listed) {
            let is_public = item.grantee == 0;
            let is_owner = !is_public && catalog.rights(item.grantee).has(catalog.owner(object.oid));
            rows.push(Granted {
                grantor: acl::role_name(source, item.grantor),
                grantee: if is_public { "PUBLIC".to_owned() } else { acl::role_name(source, item.grantee) },
                schema: object.schema.to_owned(),
                name: object.name.to_owned(),
                kind: object.kind,
                specific: format!("{}_{}", object.name, object.oid),
                grantable: is_owner || item.grantable.has_all(wanted),
            });
        }
    }
    rows
}

fn on_routines(source: &Source<'_>, of_public: bool) -> Vec<Granted> {
    let routines = source.catalog.routines().map(|routine| Listed {
        oid: routine.oid,
        schema: &routine.schema_name,
        name: &routine.name,
        kind: "ROUTINE",
        list: source.catalog.list_or_default(routine.oid, Securable::Routine),
    });
    granted(source, routines, Privileges::EXECUTE, of_public)
}

/// Sequences are there once something was granted on them.
fn on_domains_and_sequences(source: &Source<'_>, of_public: bool) -> Vec<Granted> {
    let catalog = source.catalog;
    let domains = catalog.domains().map(|domain| Listed {
        oid: domain.oid,
        schema: &domain.schema_name,
        name: &domain.name,
        kind: "DOMAIN",
        list: catalog.list_or_default(domain.oid, Securable::Type),
    });
    let sequences = catalog.sequences().map(|sequence| Listed {
        oid: sequence.oid,
        schema: &sequence.schema_name,
        name: &sequence.name,
        kind: "SEQUENCE",
        list: catalog.list(sequence.oid).unwrap_or_default(),
    });
    granted(source, domains.chain(sequences), Privileges::USAGE, of_public)
}

/// Nothing can be granted on the type of a table's rows, which everybody may use.
fn on_row_types(source: &Source<'_>, of_public: bool) -> Vec<Granted> {
    let catalog = source.catalog;
    let tables = catalog.tables().map(|table| (table.oid, &table.schema_name, &table.name));
    let views = catalog.views().map(|view| (view.oid, &view.schema_name, &view.name));
    let types = tables.chain(views).map(|(oid, schema, name)| Listed {
        oid,
        schema,
        name,
        kind: "TYPE",
        list: Securable::Type.default_list(catalog.owner(oid)),
    });
    granted(source, types, Privileges::USAGE, of_public)
}

/// A view, and a table or view that its text names: schema and name of both.
fn tables_of_views(source: &Source<'_>) -> Vec<[String; 4]> {
    let (catalog, viewer) = (source.catalog, Viewer::new(source));
    let mut rows = Vec::new();
    for view in catalog.views() {
        for relation in view.names().into_iter().filter_map(|(oid, _)| catalog.relation_by_oid(oid)) {
            let (oid, schema, name) = match relation {
                Relation::Table(table) => (table.oid, &table.schema_name, &table.name),
                Relation::View(read) => (read.oid, &read.schema_name, &read.name),
                _ => continue,
            };
            if viewer.owns(oid) {
                rows.push([&view.schema_name, &view.name, schema, name].map(String::clone));
            }
        }
    }
    rows.sort_unstable();
    rows.dedup();
    rows
}

system_table! {
    pub(super) static ROUTINE_PRIVILEGES = 13353 view "information_schema"."routine_privileges",
    |source| on_routines(source, true).into_iter().map(|row| (source, row)) => |(source, row)|,
    grantor: Name = row.grantor,
    grantee: Name = row.grantee,
    specific_catalog: Name = source.database(),
    specific_schema: Name = row.schema.clone(),
    specific_name: Name = row.specific,
    routine_catalog: Name = source.database(),
    routine_schema: Name = row.schema,
    routine_name: Name = row.name,
    privilege_type: Varchar = "EXECUTE",
    is_grantable: Varchar = yes(row.grantable),
}

system_table! {
    pub(super) static ROLE_ROUTINE_GRANTS = 13358 view "information_schema"."role_routine_grants",
    |source| on_routines(source, false).into_iter().map(|row| (source, row)) => |(source, row)|,
    grantor: Name = row.grantor,
    grantee: Name = row.grantee,
    specific_catalog: Name = source.database(),
    specific_schema: Name = row.schema.clone(),
    specific_name: Name = row.specific,
    routine_catalog: Name = source.database(),
    routine_schema: Name = row.schema,
    routine_name: Name = row.name,
    privilege_type: Varchar = "EXECUTE",
    is_grantable: Varchar = yes(row.grantable),
}

system_table! {
    pub(super) static UDT_PRIVILEGES = 13445 view "information_schema"."udt_privileges",
    |source| on_row_types(source, true).into_iter().map(|row| (source, row)) => |(source, row)|,
    grantor: Name = row.grantor,
    grantee: Name = row.grantee,
    udt_catalog: Name = source.database(),
    udt_schema: Name = row.schema,
    udt_name: Name = row.name,
    privilege_type: Varchar = "TYPE USAGE",
    is_grantable: Varchar = yes(row.grantable),
}

system_table! {
    pub(super) static ROLE_UDT_GRANTS = 13450 view "information_schema"."role_udt_grants",
    |source| on_row_types(source, false).into_iter().map(|row| (source, row)) => |(source, row)|,
    grantor: Name = row.grantor,
    grantee: Name = row.grantee,
    udt_catalog: Name = source.database(),
    udt_schema: Name = row.schema,
    udt_name: Name = row.name,
    privilege_type: Varchar = "TYPE USAGE",
    is_grantable: Varchar = yes(row.grantable),
}

system_table! {
    pub(super) static USAGE_PRIVILEGES = 13454 view "information_schema"."usage_privileges",
    |source| on_domains_and_sequences(source, true).into_iter().map(|row| (source, row)) => |(source, row)|,
    grantor: Name = row.grantor,
    grantee: Name = row.grantee,
    object_catalog: Name = source.database(),
    object_schema: Name = row.schema,
    object_name: Name = row.name,
    object_type: Varchar = row.kind,
    privilege_type: Varchar = "USAGE",
    is_grantable: Varchar = yes(row.grantable),
}

system_table! {
    pub(super) static ROLE_USAGE_GRANTS = 13459 view "information_schema"."role_usage_grants",
    |source| on_domains_and_sequences(source, false).into_iter().map(|row| (source, row)) => |(source, row)|,
    grantor: Name = row.grantor,
    grantee: Name = row.grantee,
    object_catalog: Name = source.database(),
    object_schema: Name = row.schema,
    object_name: Name = row.name,
    object_type: Varchar = row.kind,
    privilege_type: Varchar = "USAGE",
    is_grantable: Varchar = yes(row.grantable),
}

system_table! {
    pub(super) static VIEW_TABLE_USAGE = 13478 view "information_schema"."view_table_usage",
    |source| tables_of_views(source).into_iter().map(|row| (source, row)) =>
        |(source, [view_schema, view, schema, name])|,
    view_catalog: Name = source.database(),
    view_schema: Name = view_schema,
    view_name: Name = view,
    table_catalog: Name = source.database(),
    table_schema: Name = schema,
    table_name: Name = name,
}

/// A view, and a routine that its text calls: schema and name of the view, schema and specific
/// name of the routine.
fn routines_of_views(source: &Source<'_>) -> Vec<[String; 4]> {
    let (catalog, viewer) = (source.catalog, Viewer::new(source));
    let mut rows = Vec::new();
    for view in catalog.views() {
        let called = view.names().into_iter().filter_map(|(oid, _)| catalog.routine_by_oid(oid));
        for routine in called.filter(|routine| viewer.owns(routine.oid)) {
            let specific = specific_name(routine);
            rows.push([&view.schema_name, &view.name, &routine.schema_name, &specific].map(String::clone));
        }
    }
    rows.sort_unstable();
    rows.dedup();
    rows
}

system_table! {
    pub(super) static VIEW_ROUTINE_USAGE = 13473 view "information_schema"."view_routine_usage",
    |source| routines_of_views(source).into_iter().map(|row| (source, row)) =>
        |(source, [view_schema, view, schema, specific])|,
    table_catalog: Name = source.database(),
    table_schema: Name = view_schema,
    table_name: Name = view,
    specific_catalog: Name = source.database(),
    specific_schema: Name = schema,
    specific_name: Name = specific,
}
