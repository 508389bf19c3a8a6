//! Domains, their constraints, and what has them.

use std::sync::Arc;

use super::super::Source;
use super::super::domain::default;
use super::super::value::NULL;
use super::column::Row;
use super::yes;
use crate::catalog::{Catalog, Domain, DomainCheck, Table};

/// A domain as `columns` would show a column of it.
fn rows<'a>(source: &Source<'a>) -> Vec<(&'a Arc<Domain>, Row<'a>)> {
    let row = |domain: &'a Arc<Domain>| Row::new(source, &domain.schema_name, "", "", 0, domain.ty());
    source.catalog.domains().map(|domain| (domain, row(domain))).collect()
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

system_table! {
    pub(super) static DOMAIN_CONSTRAINTS = 13310 view "information_schema"."domain_constraints",
    |source| constraints(source.catalog).map(|row| (source.database(), row)) => |(database, (domain, check))|,
    constraint_catalog: Name = database.clone(),
    constraint_schema: Name = domain.schema_name.clone(),
    constraint_name: Name = check.name.clone(),
    domain_catalog: Name = database,
    domain_schema: Name = domain.schema_name.clone(),
    domain_name: Name = domain.name.clone(),
    is_deferrable: Varchar = yes(false),
    initially_deferred: Varchar = yes(false),
}

/// Columns of domains.
fn uses(catalog: &Catalog) -> Vec<(&Arc<Domain>, &Arc<Table>, &str)> {
    let columns = catalog.tables().flat_map(|table| table.visible_columns().map(move |(_, c)| (table, c)));
    let of_domains = columns.filter_map(|(table, column)| {
        let domain = catalog.domain_by_oid(column.ty.domain_oid()?)?;
        Some((domain, table, column.name.as_str()))
    });
    of_domains.collect()
}

system_table! {
    pub(super) static COLUMN_DOMAIN_USAGE = 13275 view "information_schema"."column_domain_usage",
    |source| uses(source.catalog).into_iter().map(|row| (source.database(), row))
        => |(database, (domain, table, column))|,
    domain_catalog: Name = database.clone(),
    domain_schema: Name = domain.schema_name.clone(),
    domain_name: Name = domain.name.clone(),
    table_catalog: Name = database,
    table_schema: Name = table.schema_name.clone(),
    table_name: Name = table.name.clone(),
    column_name: Name = column.to_owned(),
}
