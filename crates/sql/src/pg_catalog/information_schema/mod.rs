//! The standard's information schema, over the same catalog as `pg_catalog`.
//!
//! Its domains show as the types they are over: `sql_identifier` as name, `character_data` and
//! `yes_or_no` as varchar, `cardinal_number` as integer.

mod column;
mod constraint;
mod domain;
mod privilege;
mod relation;
mod usage;

use super::SystemTable;

pub(super) const TABLES: &[&SystemTable] = &[
    &relation::CATALOG_NAME,
    &relation::SCHEMATA,
    &relation::TABLES,
    &relation::VIEWS,
    &relation::SEQUENCES,
    &relation::TABLE_PRIVILEGES,
    &relation::ROLE_TABLE_GRANTS,
    &privilege::COLUMN_PRIVILEGES,
    &privilege::ROLE_COLUMN_GRANTS,
    &relation::ENABLED_ROLES,
    &relation::APPLICABLE_ROLES,
    &relation::ADMINISTRABLE_ROLES,
    &relation::COLLATIONS,
    &relation::CHARACTER_SETS,
    &column::COLUMNS,
    &constraint::TABLE_CONSTRAINTS,
    &constraint::KEY_COLUMN_USAGE,
    &constraint::CONSTRAINT_COLUMN_USAGE,
    &constraint::CONSTRAINT_TABLE_USAGE,
    &constraint::REFERENTIAL_CONSTRAINTS,
    &constraint::CHECK_CONSTRAINTS,
    &domain::DOMAINS,
    &domain::DOMAIN_CONSTRAINTS,
    &domain::COLUMN_DOMAIN_USAGE,
    &usage::ROUTINE_PRIVILEGES,
    &usage::ROLE_ROUTINE_GRANTS,
    &usage::UDT_PRIVILEGES,
    &usage::ROLE_UDT_GRANTS,
    &usage::USAGE_PRIVILEGES,
    &usage::ROLE_USAGE_GRANTS,
    &usage::VIEW_TABLE_USAGE,
    &usage::VIEW_ROUTINE_USAGE,
];

/// A truth value of the standard.
pub(super) fn yes(value: bool) -> &'static str {
    if value { "YES" } else { "NO" }
}
