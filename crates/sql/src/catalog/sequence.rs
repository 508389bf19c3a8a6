//! Sequences. Their current values are not here: see [`sequence`](crate::sequence).

use serde::{Deserialize, Serialize};

use crate::types::Type;

/// A sequence's definition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sequence {
    /// Oid.
    pub oid: u32,
    /// Oid of its schema.
    pub schema: u32,
    /// Name of its schema.
    pub schema_name: String,
    /// Name.
    pub name: String,
    /// smallint, integer or bigint.
    #[serde(with = "super::store::type_document")]
    pub ty: Type,
    /// First value.
    pub start: i64,
    /// Step, not 0.
    pub increment: i64,
    /// Smallest value.
    pub minimum: i64,
    /// Largest value.
    pub maximum: i64,
    /// Values a session would preallocate (accepted; numbers are always handed out one by one).
    pub cache: i64,
    /// Start again at the other end.
    pub cycle: bool,
    /// Which counter holds its current value. RESTART takes a fresh one, so that it can be rolled
    /// back, and so does a change of direction: what was taken ahead leads the other way.
    pub counter: u32,
    /// Where that counter begins: the START value, or RESTART's, or where another one stood.
    pub counter_start: i64,
    /// That value was given out already: the counter began where another one stood.
    #[serde(default)]
    pub counter_called: bool,
    /// Table and place of the column that owns it.
    #[serde(default)]
    pub owner: Option<(u32, usize)>,
    /// It is an identity column's: it cannot be dropped by itself.
    #[serde(default)]
    pub identity: bool,
    /// COMMENT ON SEQUENCE.
    #[serde(default)]
    pub comment: Option<String>,
}

impl Sequence {
    /// It is one session's: its values are known to that one only, and are stored nowhere.
    pub fn is_temporary(&self) -> bool {
        super::is_temporary(&self.schema_name)
    }
}
