//! Schemas, tables, views, sequences and what a user may do with them.

use std::sync::Arc;

use super::super::relation::schemas;
use super::super::value::NULL;
use super::super::viewer::Viewer;
use super::super::{Source, acl, all, definition, role};
use super::yes;
use crate::catalog::{CheckOption, Collation, Oid, Privileges, Securable, Sequence, View};
use crate::oltp::subject::updatable_columns;

system_table! {
    pub(super) static CATALOG_NAME = 13227 view "information_schema"."information_schema_catalog_name",
    |source| [source.database()] => |name|,
    catalog_name: Name = name,
}

fn shown_schemas(source: &Source<'_>) -> Vec<(Oid, String)> {
    let (viewer, kind) = (Viewer::new(source), Securable::Schema);
    let mut shown = schemas(source.catalog);
    shown.retain(|(oid, _)| viewer.sees(*oid, kind, kind.all()));
    shown
}

system_table! {
    pub(super) static SCHEMATA = 13382 view "information_schema"."schemata",
    |source| shown_schemas(source).into_iter().map(|schema| (source, schema)) => |(source, (oid, name))|,
    catalog_name: Name = source.database(),
    schema_name: Name = name,
    schema_owner: Name = acl::owner(source, oid),
    default_character_set_catalog: Name = NULL,
    default_character_set_schema: Name = NULL,
    default_character_set_name: Name = NULL,
    sql_path: Varchar = NULL,
}

/// A row of `tables`.
struct Row {
    schema: String,
    name: String,
    kind: &'static str,
    insertable: bool,
}

fn relations(source: &Source<'_>) -> Vec<Row> {
    let viewer = Viewer::new(source);
    let is_shown = |oid: Oid, schema: Oid| {
        !viewer.is_of_another_session(schema) && viewer.sees_relation(oid, Securable::Table.all())
    };
    let tables = source.catalog.tables().filter(|table| is_shown(table.oid, table.schema));
    let tables = tables.map(|table| Row {
        schema: table.schema_name.clone(),
        name: table.name.clone(),
        kind: if table.temporary { "LOCAL TEMPORARY" } else { "BASE TABLE" },
        insertable: true,
    });
    let views = source.catalog.views().filter(|view| is_shown(view.oid, view.schema));
    let views = views.map(|view| Row {
        schema: view.schema_name.clone(),
        name: view.name.clone(),
        kind: "VIEW",
        insertable: updatable_columns(view, source.catalog).contains(&true),
    });
    let built_in = all().filter(|table| viewer.sees_computed(table.oid)).map(|table| Row {
        schema: table.schema.to_owned(),
        name: table.name.to_owned(),
        kind: if table.view { "VIEW" } else { "BASE TABLE" },
        insertable: false,
    });
    tables.chain(views).chain(built_in).collect()
}

system_table! {
    pub(super) static TABLES = 13425 view "information_schema"."tables",
    |source| relations(source).into_iter().map(|row| (source, row)) => |(source, row)|,
    table_catalog: Name = source.database(),
    table_schema: Name = row.schema,
    table_name: Name = row.name,
    table_type: Varchar = row.kind,
    self_referencing_column_name: Name = NULL,
    reference_generation: Varchar = NULL,
    user_defined_type_catalog: Name = NULL,
    user_defined_type_schema: Name = NULL,
    user_defined_type_name: Name = NULL,
    is_insertable_into: Varchar = yes(row.insertable),
    is_typed: Varchar = yes(false),
    commit_action: Varchar = (row.kind == "LOCAL TEMPORARY").then_some("PRESERVE"),
}

/// WITH CHECK OPTION, as the standard writes it.
fn check_word(option: CheckOption) -> &'static str {
    match option {
        CheckOption::Local => "LOCAL",
        CheckOption::Cascaded => "CASCADED",
    }
}

/// Views, and whether they are the session's own, which it is shown the queries of.
fn views<'a>(source: &Source<'a>) -> Vec<(&'a Arc<View>, bool)> {
    let (viewer, all) = (Viewer::new(source), Securable::Table.all());
    let shown = source
        .catalog
        .views()
        .filter(|view| !viewer.is_of_another_session(view.schema) && viewer.sees_relation(view.oid, all));
    shown.map(|view| (view, viewer.owns(view.oid))).collect()
}

system_table! {
    pub(super) static VIEWS = 13483 view "information_schema"."views",
    |source| views(source).into_iter().map(|row| (source, row)) => |(source, (view, is_own))|,
    table_catalog: Name = source.database(),
    table_schema: Name = view.schema_name.clone(),
    table_name: Name = view.name.clone(),
    view_definition: Varchar = is_own.then(|| definition::view(view, source)),
    check_option: Varchar = view.check_option.map_or("NONE", check_word),
    is_updatable: Varchar = yes(updatable_columns(view, source.catalog).contains(&true)),
    is_insertable_into: Varchar = yes(updatable_columns(view, source.catalog).contains(&true)),
    is_trigger_updatable: Varchar = yes(false),
    is_trigger_deletable: Varchar = yes(false),
    is_trigger_insertable_into: Varchar = yes(false),
}

/// Those of identity columns are parts of their tables.
fn sequences<'a>(source: &Source<'a>) -> Vec<&'a Arc<Sequence>> {
    let (viewer, kind) = (Viewer::new(source), Securable::Sequence);
    let shown = source.catalog.sequences().filter(|sequence| {
        !sequence.identity
            && !viewer.is_of_another_session(sequence.schema)
            && viewer.sees(sequence.oid, kind, kind.all())
    });
    shown.collect()
}

system_table! {
    pub(super) static SEQUENCES = 13386 view "information_schema"."sequences",
    |source| sequences(source).into_iter().map(|s| (source, s)) => |(source, sequence)|,
    sequence_catalog: Name = source.database(),
    sequence_schema: Name = sequence.schema_name.clone(),
    sequence_name: Name = sequence.name.clone(),
    data_type: Varchar = sequence.ty.id.sql_name(),
    numeric_precision: Int4 = i32::from(sequence.ty.id.length()) * 8,
    numeric_precision_radix: Int4 = 2,
    numeric_scale: Int4 = 0,
    start_value: Varchar = sequence.start.to_string(),
    minimum_value: Varchar = sequence.minimum.to_string(),
    maximum_value: Varchar = sequence.maximum.to_string(),
    increment: Varchar = sequence.increment.to_string(),
    cycle_option: Varchar = yes(sequence.cycle),
}

/// A row of `table_privileges`.
struct Granted {
    grantor: String,
    grantee: String,
    schema: String,
    name: String,
    privilege: &'static str,
    grantable: bool,
}

/// What is granted on tables and views to roles that the session counts as, or by them; to
/// everybody, too, if that is asked for.
fn privileges(source: &Source<'_>, of_public: bool) -> Vec<Granted> {
    let (catalog, viewer) = (source.catalog, Viewer::new(source));
    let tables = catalog.tables().map(|table| (table.oid, &table.schema_name, &table.name));
    let views = catalog.views().map(|view| (view.oid, &view.schema_name, &view.name));
    let mut rows = Vec::new();
    for (oid, schema, name) in tables.chain(views) {
        let owner = catalog.owner(oid);
        let mut items = catalog.list_or_default(oid, Securable::Table);
        items.retain(|item| viewer.is_told(item, of_public));
        for item in items {
            let is_public = item.grantee == 0;
            let grantee = if is_public { "PUBLIC".to_owned() } else { acl::role_name(source, item.grantee) };
            for privilege in item.privileges.words() {
                let bit = Privileges::of_word(privilege).unwrap_or_default();
                rows.push(Granted {
                    grantor: acl::role_name(source, item.grantor),
                    grantee: grantee.clone(),
                    schema: schema.clone(),
                    name: name.clone(),
                    privilege,
                    grantable: item.grantable.has_all(bit)
                        || (!is_public && catalog.rights(item.grantee).has(owner)),
                });
            }
        }
    }
    rows
}

system_table! {
    pub(super) static TABLE_PRIVILEGES = 13416 view "information_schema"."table_privileges",
    |source| privileges(source, true).into_iter().map(|row| (source, row)) => |(source, row)|,
    grantor: Name = row.grantor,
    grantee: Name = row.grantee,
    table_catalog: Name = source.database(),
    table_schema: Name = row.schema,
    table_name: Name = row.name,
    privilege_type: Varchar = row.privilege,
    is_grantable: Varchar = yes(row.grantable),
    with_hierarchy: Varchar = yes(row.privilege == "SELECT"),
}

system_table! {
    pub(super) static ROLE_TABLE_GRANTS = 13421 view "information_schema"."role_table_grants",
    |source| privileges(source, false).into_iter().map(|row| (source, row)) => |(source, row)|,
    grantor: Name = row.grantor,
    grantee: Name = row.grantee,
    table_catalog: Name = source.database(),
    table_schema: Name = row.schema,
    table_name: Name = row.name,
    privilege_type: Varchar = row.privilege,
    is_grantable: Varchar = yes(row.grantable),
    with_hierarchy: Varchar = yes(row.privilege == "SELECT"),
}

/// Names of the roles that the session counts as.
fn enabled(source: &Source<'_>) -> Vec<String> {
    let viewer = Viewer::new(source);
    role::named(source).filter(|(oid, _)| viewer.counts_as(*oid)).map(|(_, name)| name).collect()
}

/// Who is a member of what, and may give that on, of those. Nobody needs to say that who owns the
/// database is a member of the role that stands for that.
fn applicable(source: &Source<'_>) -> Vec<(String, String, bool)> {
    let (catalog, viewer) = (source.catalog, Viewer::new(source));
    let owner = catalog.owner(catalog.database_oid());
    let members = catalog.roles().filter(|role| viewer.counts_as(role.oid));
    let of = members.flat_map(|role| role.member_of.iter().map(move |membership| (role, membership)));
    let told = of.map(|(role, membership)| {
        (role.name.clone(), acl::role_name(source, membership.role), membership.admin)
    });
    let of_owner = (acl::role_name(source, owner), "pg_database_owner".to_owned(), false);
    told.chain(viewer.counts_as(owner).then_some(of_owner)).collect()
}

system_table! {
    pub(super) static ENABLED_ROLES = 13325 view "information_schema"."enabled_roles",
    |source| enabled(source) => |name|,
    role_name: Name = name,
}

system_table! {
    pub(super) static APPLICABLE_ROLES = 13236 view "information_schema"."applicable_roles",
    |source| applicable(source) => |(grantee, role, admin)|,
    grantee: Name = grantee,
    role_name: Name = role,
    is_grantable: Varchar = yes(admin),
}

system_table! {
    pub(super) static ADMINISTRABLE_ROLES = 13241 view
        "information_schema"."administrable_role_authorizations",
    |source| applicable(source).into_iter().filter(|(_, _, admin)| *admin) => |(grantee, role, admin)|,
    grantee: Name = grantee,
    role_name: Name = role,
    is_grantable: Varchar = yes(admin),
}

system_table! {
    pub(super) static COLLATIONS = 13265 view "information_schema"."collations",
    |source| Collation::ALL.into_iter().map(|one| (source, one.name())) => |(source, name)|,
    collation_catalog: Name = source.database(),
    collation_schema: Name = "pg_catalog",
    collation_name: Name = name,
    pad_attribute: Varchar = "NO PAD",
}

system_table! {
    pub(super) static CHARACTER_SETS = 13250 view "information_schema"."character_sets",
    |source| [source.database()] => |name|,
    character_set_catalog: Name = NULL,
    character_set_schema: Name = NULL,
    character_set_name: Name = "UTF8",
    character_repertoire: Name = "UCS",
    form_of_use: Name = "UTF8",
    default_collate_catalog: Name = name,
    default_collate_schema: Name = "pg_catalog",
    default_collate_name: Name = "C",
}
