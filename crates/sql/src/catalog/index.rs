//! Indexes and the layout of their entries.
//!
//! A table with a primary key is clustered: its own tree is ordered by the primary key, and the
//! primary key's index has no tree of its own (`tree` is the table's). Every other index is a tree
//! of entries that lead to the *row key*, the key of the row in the table's tree:
//!
//! ```text
//! unique index, no NULL among the columns   key = columns             value = row key
//! unique index, with a NULL                 key = columns ++ row key  value = row key
//! unique index, NULLS NOT DISTINCT          key = columns             value = row key
//! any other index                           key = columns ++ row key  value = length of columns, u32 little-endian
//! ```
//!
//! So a unique violation is a meeting of keys, except where NULLs are distinct. [`Index::row_key`]
//! reads all three.

use serde::{Deserialize, Serialize};

use crate::error::{Result, SqlError, sqlstate};
use crate::keys::KeyOrder;

/// An index, stored with its table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Index {
    /// Oid of the index.
    pub oid: u32,
    /// Name; unique among the relations of the table's schema.
    pub name: String,
    /// Its tree; the table's own for the clustered primary key.
    pub tree: u32,
    /// Key columns in order.
    pub columns: Vec<IndexColumn>,
    /// Refuses equal keys (NULLs are distinct, unless they are said not to be).
    pub unique: bool,
    /// NULLS NOT DISTINCT: to a unique index NULLs are equal.
    #[serde(default)]
    pub nulls_not_distinct: bool,
    /// INCLUDE: places of columns that are shown with it. Its entries do not have them.
    #[serde(default)]
    pub included: Vec<usize>,
    /// Is the primary key.
    pub primary: bool,
    /// Oid of the PRIMARY KEY or UNIQUE constraint it stands for, if any; the constraint has the
    /// index's name.
    #[serde(default)]
    pub constraint: Option<u32>,
    /// COMMENT ON INDEX.
    #[serde(default)]
    pub comment: Option<String>,
}

/// One key column of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexColumn {
    /// Place in [`Table::columns`](super::Table::columns).
    pub column: usize,
    /// DESC.
    #[serde(default)]
    pub descending: bool,
    /// NULLs before all values; by default they are where DESC is.
    #[serde(default)]
    pub nulls_first: bool,
}

impl IndexColumn {
    /// The order within the key.
    pub fn order(self) -> KeyOrder {
        KeyOrder { descending: self.descending, nulls_first: self.nulls_first }
    }
}

impl Index {
    /// Places of the columns that are shown with it: those of the key, and those of INCLUDE.
    pub fn shown(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().map(|column| column.column).chain(self.included.iter().copied())
    }

    /// Is the table's own tree (the clustered primary key)?
    pub fn is_clustered(&self) -> bool {
        self.primary
    }

    /// The row key an entry leads to. For the clustered primary key it is the key itself.
    pub fn row_key<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Result<&'a [u8]> {
        if self.primary {
            return Ok(key);
        }
        if self.unique {
            return Ok(value);
        }
        let length = <[u8; 4]>::try_from(value).map(u32::from_le_bytes).ok().map(|length| length as usize);
        match length {
            Some(length) if length <= key.len() => Ok(&key[length..]),
            _ => Err(SqlError::new(
                sqlstate::INDEX_CORRUPTED,
                format!("index \"{}\" contains an entry that does not lead to a row", self.name),
            )),
        }
    }
}
