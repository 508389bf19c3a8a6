//! Schemas.

use serde::{Deserialize, Serialize};

use super::Home;

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
    /// Where the session is whose temporary objects it has, if it is for these.
    #[serde(default)]
    pub home: Option<Home>,
    /// It was dropped: stored for `public` only, which is there in a catalog that says nothing of
    /// it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
}
