//! Schemas.

use serde::{Deserialize, Serialize};

/// A schema: a name space of relations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Schema {
    /// Oid.
    pub oid: u32,
    /// Name.
    pub name: String,
    /// COMMENT ON SCHEMA.
    #[serde(default)]
    pub comment: Option<String>,
}
