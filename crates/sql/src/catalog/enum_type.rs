//! Enum types that users make.
//!
//! ```text
//! CREATE TYPE mood AS ENUM ('sad', 'happy')
//! ALTER TYPE mood ADD VALUE 'ok' BEFORE 'happy'
//!
//! labels   sad at 1 << 40, ok at 3 << 39, happy at 2 << 40
//! ```
//!
//! What rows and keys hold of a value is its label's position
//! ([`EnumValue`](crate::types::EnumValue) says why), so a position is never given to another label
//! and never changes. A label at the end is `STEP` from the last one, one in between half-way
//! between its neighbours: a gap can be halved about forty times, and there is room for millions of
//! labels at the ends.

use serde::{Deserialize, Serialize};

use crate::error::{Result, SqlError, sqlstate};

/// From one label to the next.
const STEP: i64 = 1 << 40;

/// An enum type.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EnumType {
    /// Oid.
    pub oid: u32,
    /// Oid of its schema.
    pub schema: u32,
    /// Name of its schema.
    pub schema_name: String,
    /// Name.
    pub name: String,
    /// Its labels, in order.
    pub labels: Vec<EnumLabel>,
    /// COMMENT ON TYPE.
    #[serde(default)]
    pub comment: Option<String>,
}

/// A label of an enum type.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EnumLabel {
    /// Oid, for `pg_enum`.
    pub oid: u32,
    /// What stands for it in rows and keys.
    pub position: i64,
    /// The text.
    pub label: String,
}

impl EnumType {
    /// The place of a label.
    pub fn place(&self, label: &str) -> Option<usize> {
        self.labels.iter().position(|known| known.label == label)
    }

    /// The label at a position.
    pub fn label_at(&self, position: i64) -> Option<&str> {
        let place = self.labels.binary_search_by_key(&position, |label| label.position).ok()?;
        Some(&self.labels[place].label)
    }

    /// Adds a label before the one at `place`, or at the end. 54000 if there is no room for it.
    pub fn insert(&mut self, place: usize, oid: u32, label: String) -> Result<()> {
        let before = place.checked_sub(1).map(|before| self.labels[before].position);
        let after = self.labels.get(place).map(|after| after.position);
        let position = match (before, after) {
            (None, None) => Some(STEP),
            (Some(before), None) => before.checked_add(STEP),
            (None, Some(after)) => after.checked_sub(STEP),
            (Some(before), Some(after)) => {
                let between = before.midpoint(after);
                (between != before && between != after).then_some(between)
            }
        };
        let position = position.ok_or_else(|| {
            let message =
                format!("there is no room for another label at this place of enum type {}", self.name);
            SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message)
        })?;
        self.labels.insert(place, EnumLabel { oid, position, label });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> EnumType {
        let (schema_name, name) = ("public".to_owned(), "mood".to_owned());
        EnumType { oid: 1, schema: 2, schema_name, name, labels: vec![], comment: None }
    }

    #[test]
    fn positions_keep_the_order_of_labels() {
        let mut ty = empty();
        for (place, label) in [(0, "c"), (1, "f"), (0, "a"), (1, "b"), (3, "d"), (4, "e")] {
            ty.insert(place, 0, label.to_owned()).unwrap();
        }
        let labels: String = ty.labels.iter().map(|label| label.label.as_str()).collect();
        assert_eq!(labels, "abcdef");
        assert!(ty.labels.is_sorted_by(|a, b| a.position < b.position));
        assert!(ty.labels.iter().all(|label| ty.label_at(label.position) == Some(&label.label)));
    }

    #[test]
    fn a_gap_that_is_used_up_is_an_error() {
        let mut ty = empty();
        ty.insert(0, 0, "first".to_owned()).unwrap();
        ty.insert(1, 0, "last".to_owned()).unwrap();
        let added = (0..100).take_while(|n| ty.insert(1, 0, n.to_string()).is_ok()).count();
        assert_eq!(added, 40);
        assert!(ty.labels.is_sorted_by(|a, b| a.position < b.position));
    }
}
