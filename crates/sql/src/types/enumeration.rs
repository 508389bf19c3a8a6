//! Values of enum types.
//!
//! A value is its type's oid and a *position*, a 64-bit integer: the labels of a type have growing
//! positions in their declared order, with wide gaps between them, so that a label added in between
//! gets a position in between and no other one moves. So rows and keys, which hold nothing but the
//! position, order as the labels do, without a look at the catalog, and stay as they are whatever
//! is added or renamed. The labels are in the catalog ([`crate::catalog::EnumType`]); values turn
//! into them and back where they are read and printed, by the names in the [`FormatContext`].
//!
//! ```text
//! CREATE TYPE mood AS ENUM ('sad', 'happy')     sad 1 << 40, happy 2 << 40
//! ALTER TYPE mood ADD VALUE 'ok' AFTER 'sad'    ok  3 << 39
//! ```

use super::FormatContext;
use crate::error::{SqlError, sqlstate};

/// A value of an enum type. Values of one type order by their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnumValue {
    /// Oid of the type.
    pub ty: u32,
    /// What it orders by.
    pub position: i64,
}

impl EnumValue {
    /// The value with this label. 22P02 if the type has none.
    pub(super) fn parse(ty: u32, label: &str, context: &FormatContext) -> Result<EnumValue, SqlError> {
        let Some(objects) = context.objects.as_deref() else {
            // As it is written where there is no catalog.
            let read = label.split_once(':').and_then(|(ty, position)| {
                Some(EnumValue { ty: ty.parse().ok()?, position: position.parse().ok()? })
            });
            return read.ok_or_else(|| SqlError::internal("a malformed enum value"));
        };
        let position = objects.enum_position(ty, label);
        position.map(|position| EnumValue { ty, position }).ok_or_else(|| {
            let name = objects.type_name(ty).unwrap_or_else(|| ty.to_string());
            let message = format!("invalid input value for enum {name}: \"{label}\"");
            SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, message)
        })
    }

    /// Appends the label; where there is no catalog that knows it, the type's oid and the position.
    pub(super) fn write(self, context: &FormatContext, out: &mut Vec<u8>) {
        let objects = context.objects.as_deref();
        let label = objects.and_then(|objects| objects.enum_label(self.ty, self.position));
        let label = label.unwrap_or_else(|| format!("{}:{}", self.ty, self.position));
        out.extend_from_slice(label.as_bytes());
    }
}
