//! The schemas `pg_catalog` and `information_schema`: what clients ask to learn what there is.
//!
//! Nothing of them is stored. Each relation here is a [`SystemTable`]: names and types of columns
//! as PostgreSQL 15 has them, and a function that makes its rows from a [`Source`]: the catalog
//! snapshot, the session and the server. The catalog [`functions`] read the same source, so what
//! they say agrees with what the tables say.
//!
//! ```text
//! SELECT relname FROM pg_class WHERE pg_table_is_visible(oid)
//!   binder    table("pg_catalog", "pg_class")       -> a SystemTable: columns, oid 1259
//!   executor  (table.rows)(&source)                 -> one Vec<Datum> for each relation, users' and built-in ones
//!             the function's body                   -> finds the same catalog through the session
//! ```
//!
//! Invariants: a row has one value for each column, of the column's type; oids of built-in objects
//! are PostgreSQL's; types PostgreSQL has and we do not (`pg_node_tree`, `aclitem`, `xid` ...) show
//! as the type that prints alike. A table of a feature that does not exist here (triggers,
//! policies, publications ...) is there and empty, because clients join it.
//!
//! As long as nobody has made a role, the session's user owns everything, and other roles are known
//! only where settings are stored for them (`role`). There is one database, the one the client
//! asked for by whatever name.

#[macro_use]
mod define;

mod absent;
mod acl;
mod activity;
mod binding;
mod cognate;
mod constraint;
mod definition;
mod deparse;
mod dependency;
mod domain;
mod empty;
mod function;
mod governor;
mod index;
mod information_schema;
mod keywords;
mod names;
mod operation;
mod procedure;
mod relation;
mod role;
mod routine;
mod source;
mod statistics;
mod type_facts;
mod types;
mod value;
mod viewer;

use std::collections::HashMap;
use std::sync::LazyLock;

pub(crate) use absent::absent_relation;
pub(crate) use acl::{EXPLODED, EXPLODED_ROW, explode};
pub use binding::SystemTables;
pub use define::{Rows, SystemTable};
pub(crate) use deparse::{Style, index_expression};
pub(crate) use function::other_type;
pub(crate) use function::sequence_parameters;
pub use function::{EXPANDED_ARRAY, functions, log_files, set_rows};
pub(crate) use index::{class_accepts, has_operator_class, is_operator_class};
pub(crate) use keywords::{is_no_relation, is_reserved};
pub use names::CatalogNames;
pub use source::{
    CountsReset, CursorRow, DatabaseCounts, FamilyRow, LockRow, NoServer, PreparedRow, ServerView,
    SessionRow, Source, StatementRow, TransactionRow,
};
pub(crate) use type_facts::{is_collatable, storage_of};
pub(crate) use viewer::is_for_superusers;

/// All relations of the two schemas.
pub fn all() -> impl Iterator<Item = &'static SystemTable> {
    let groups: [&[&'static SystemTable]; 16] = [
        relation::TABLES,
        index::TABLES,
        constraint::TABLES,
        dependency::TABLES,
        types::TABLES,
        operation::TABLES,
        procedure::TABLES,
        routine::TABLES,
        role::TABLES,
        acl::TABLES,
        activity::TABLES,
        cognate::TABLES,
        governor::TABLES,
        statistics::TABLES,
        information_schema::TABLES,
        empty::TABLES,
    ];
    groups.into_iter().flatten().copied()
}

static BY_NAME: LazyLock<HashMap<(&'static str, &'static str), &'static SystemTable>> =
    LazyLock::new(|| all().map(|table| ((table.schema, table.name), table)).collect());

static BY_OID: LazyLock<HashMap<u32, &'static SystemTable>> =
    LazyLock::new(|| all().map(|table| (table.oid, table)).collect());

/// The relation of this name in this schema.
pub fn table(schema: &str, name: &str) -> Option<&'static SystemTable> {
    // The key's lifetime is that of the argument: the map's keys are static, and so live longer.
    let by_name: &HashMap<(&str, &str), &'static SystemTable> = &BY_NAME;
    by_name.get(&(schema, name)).copied()
}

/// The relation of this oid.
pub fn table_by_oid(oid: u32) -> Option<&'static SystemTable> {
    BY_OID.get(&oid).copied()
}

#[cfg(test)]
mod tests;
