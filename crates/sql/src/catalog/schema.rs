//! Schemas.

use serde::{Deserialize, Serialize};

use super::Home;

/// An extension, as CREATE EXTENSION has noted it. What it has is there without that, too.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Extension {
    /// Oid.
    pub oid: u32,
    /// Name.
    pub name: String,
}

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
    /// The extensions that were made in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<Extension>,
}

impl Schema {
    /// A schema with nothing said of it.
    pub fn new(oid: u32, name: impl Into<String>) -> Schema {
        Schema { oid, name: name.into(), comment: None, home: None, dropped: false, extensions: Vec::new() }
    }
}
