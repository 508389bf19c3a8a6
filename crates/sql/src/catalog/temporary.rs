//! Schemas of temporary objects: each session that makes any has one of its own, and it goes with
//! the session.
//!
//! ```text
//! CREATE TEMP TABLE t (n int)      schema pg_temp_16391, which is oid 16391, and its table t
//! SELECT * FROM t                  that one, whatever else is called t: pg_temp_16391 is in front
//! SELECT * FROM pg_temp.t          the same: pg_temp stands for the schema of who asks
//! ```
//!
//! The schema and what is in it are objects of the catalog like others. So transactions, savepoints
//! and locks need no rule of their own for them, and two sessions, also of different nodes, never
//! meet: no oid is given out twice. What the schema knows besides is its [`Home`], so that whoever
//! starts finds what was left behind by sessions that no longer are.

use serde::{Deserialize, Serialize};

use super::Oid;

/// What the schema of a session's own temporary objects is called by it.
pub(crate) const ALIAS: &str = "pg_temp";
/// How the names of such schemas begin. Users cannot make any that begins with `pg_`.
const PREFIX: &str = "pg_temp_";

/// Where the session is that temporary objects belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The node of the cluster; 0 is a database of its own.
    pub node: u16,
    /// How often the node had been started before.
    pub start: u32,
}

/// What is done with a temporary table's rows when a transaction commits, if they do not stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnCommit {
    /// They go.
    DeleteRows,
    /// The table goes with them.
    Drop,
}

/// The name of the schema of this oid.
pub(crate) fn schema_name(oid: Oid) -> String {
    format!("{PREFIX}{oid}")
}

/// Whether a schema of this name is one of temporary objects, by its name.
pub(crate) fn is_temporary(schema: &str) -> bool {
    schema.starts_with(PREFIX)
}

/// The schema that `pg_temp` stands for to who searches these schemas.
pub(super) fn own(search_path: &[String]) -> Option<&str> {
    search_path.iter().map(String::as_str).find(|schema| is_temporary(schema))
}

/// What a schema that is named stands for to who searches these schemas.
pub(crate) fn resolve<'a>(search_path: &'a [String], schema: &'a str) -> &'a str {
    if schema == ALIAS { own(search_path).unwrap_or(schema) } else { schema }
}
