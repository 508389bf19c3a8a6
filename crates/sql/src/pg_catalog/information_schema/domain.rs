//! Domains, their constraints, and what has them.

use std::sync::Arc;

use super::super::Source;
use super::super::domain::default;
use super::super::value::NULL;
use super::super::viewer::Viewer;
use super::column::Row;
use super::yes;
use crate::catalog::{Catalog, Domain, DomainCheck, Privileges, Securable, Table};

/// Who may use a domain is shown it, and its constraints.
fn sees(viewer: &Viewer<'_>, domain: &Domain) -> bool {
    viewer.sees(domain.oid, Securable::Type, Privileges::USAGE)
}

/// A domain as `columns` would show a column of it.
fn rows<'a>(source: &Source<'a>) -> Vec<(&'a Arc<Domain>, Row<'a>)> {
    let row = |domain: &'a Arc<Domain>| Row::new(source, &domain.schema_name, "", "", 0, domain.ty());
    let viewer = Viewer::new(source);
    let shown = source.catalog.domains().filter(|domain| sees(&viewer, domain));
    shown.map(|domain| (domain, row(domain))).collect()
}

system_table! {
    pub(super) static DOMAINS = 13320 view "information_schema"."domains",
    |source| rows(source).into_iter().map(|row| (source.database(), row)) => |(database, (domain, row))|,
    domain_catalog: Name = database.clone(),
    domain_schema: Name = domain.schema_name.clone(),
    domain_name: Name = domain.name.clone(),
    data_type: Varchar = row.domain_type_name(),
    character_maximum_length: Int4 = row.character_length(),
    character_octet_length: Int4 = row.octet_length(),
    character_set_catalog: Name = NULL,
    character_set_schema: Name = NULL,
    character_set_name: Name = NULL,
    collation_catalog: Name = row.collation().map(|_| database.clone()),
    collation_schema: Name = row.collation().map(|_| "pg_catalog"),
    collation_name: Name = row.collation(),
    numeric_precision: Int4 = row.numeric().0,
    numeric_precision_radix: Int4 = row.numeric().1,
    numeric_scale: Int4 = row.numeric().2,
    datetime_precision: Int4 = row.datetime_precision(),
    interval_type: Varchar = row.interval_type(),
    interval_precision: Int4 = NULL,
    domain_default: Varchar = default(source, domain),
    udt_catalog: Name = database,
    udt_schema: Name = row.udt(source).0,
    udt_name: Name = row.udt(source).1,
    scope_catalog: Name = NULL,
    scope_schema: Name = NULL,
    scope_name: Name = NULL,
    maximum_cardinality: Int4 = NULL,
    dtd_identifier: Name = "1",
}

/// All constraints of domains.
pub(super) fn constraints(catalog: &Catalog) -> impl Iterator<Item = (&Arc<Domain>, &DomainCheck)> {
    catalog.domains().flat_map(|domain| domain.checks.iter().map(move |check| (domain, check)))
}

fn shown_constraints<'a>(source: &Source<'a>) -> Vec<(&'a Arc<Domain>, &'a DomainCheck)> {
    let viewer = Viewer::new(source);
    constraints(source.catalog).filter(|(domain, _)| sees(&viewer, domain)).collect()
}

system_table! {
    pub(super) static DOMAIN_CONSTRAINTS = 13310 view "information_schema"."domain_constraints",
    |source| shown_constraints(source).into_iter().map(|row| (source.database(), row))
        => |(database, (domain, check))|,
    constraint_catalog: Name = database.clone(),
    constraint_schema: Name = domain.schema_name.clone(),
    constraint_name: Name = check.name.clone(),
    domain_catalog: Name = database,
    domain_schema: Name = domain.schema_name.clone(),
    domain_name: Name = domain.name.clone(),
    is_deferrable: Varchar = yes(false),
    initially_deferred: Varchar = yes(false),
}

/// Columns of domains that are the session's own.
fn uses<'a>(source: &Source<'a>) -> Vec<(&'a Arc<Domain>, &'a Arc<Table>, &'a str)> {
    let (catalog, viewer) = (source.catalog, Viewer::new(source));
    let columns = catalog.tables().flat_map(|table| table.visible_columns().map(move |(_, c)| (table, c)));
    let of_domains = columns.filter_map(|(table, column)| {
        let domain = catalog.domain_by_oid(column.ty.domain_oid()?);
        let domain = domain.filter(|domain| viewer.owns(domain.oid))?;
        Some((domain, table, column.name.as_str()))
    });
    of_domains.collect()
}

system_table! {
    pub(super) static COLUMN_DOMAIN_USAGE = 13275 view "information_schema"."column_domain_usage",
    |source| uses(source).into_iter().map(|row| (source.database(), row))
        => |(database, (domain, table, column))|,
    domain_catalog: Name = database.clone(),
    domain_schema: Name = domain.schema_name.clone(),
    domain_name: Name = domain.name.clone(),
    table_catalog: Name = database,
    table_schema: Name = table.schema_name.clone(),
    table_name: Name = table.name.clone(),
    column_name: Name = column.to_owned(),
}
