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
//! A UNIQUE constraint that is DEFERRABLE has the entries of an index that is not unique: equal
//! keys may stand beside each other until it is looked at. So has a primary key that is DEFERRABLE:
//! two rows may have it for a while, so it cannot order the table and has a tree of its own, and
//! the table is ordered by row ids.
//!
//! So a unique violation is a meeting of keys, except where NULLs are distinct. [`Index::row_key`]
//! reads all three.
//!
//! A key may have values of *expressions* beside columns, and a *predicate* says which rows have an
//! entry at all. Both are computed from the row alone, by what is immutable, and stored as text;
//! `bind::computed` binds them. What a table's indexes compute of a row has places of its own,
//! counted through all its indexes:
//!
//! ```text
//! t (a, b, c)   i1 ON t (a, lower(b))          place 0  lower(b)
//!               i2 ON t (c) WHERE a > 0        place 1  a > 0
//! ```

use serde::{Deserialize, Serialize};

use super::Collation;
use crate::error::{Result, SqlError, sqlstate};
use crate::keys::KeyOrder;
use crate::types::Type;

/// An index, stored with its table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Index {
    /// Oid of the index.
    pub oid: u32,
    /// Name; unique among the relations of the table's schema.
    pub name: String,
    /// Its tree; the table's own for the clustered primary key.
    pub tree: u32,
    /// What the key has, in order.
    pub columns: Vec<IndexColumn>,
    /// The expressions among that, in order.
    #[serde(default)]
    pub expressions: Vec<Computed>,
    /// WHERE: the rows that have an entry; all, if there is none.
    #[serde(default)]
    pub predicate: Option<Computed>,
    /// Refuses equal keys (NULLs are distinct, unless they are said not to be).
    pub unique: bool,
    /// It is of a UNIQUE or PRIMARY KEY constraint that is DEFERRABLE, perhaps INITIALLY DEFERRED;
    /// then it is not `unique`.
    #[serde(default)]
    pub deferrable: Option<Deferrable>,
    /// NULLS NOT DISTINCT: to a unique index NULLs are equal.
    #[serde(default)]
    pub nulls_not_distinct: bool,
    /// INCLUDE: places of columns that are shown with it. Its entries do not have them.
    #[serde(default)]
    pub included: Vec<usize>,
    /// Storage parameters as given (`fillfactor=70`): hints that have no effect.
    #[serde(default)]
    pub options: Vec<String>,
    /// USING hash: so it is told. It is stored and used like all others.
    #[serde(default)]
    pub hash: bool,
    /// Is the primary key.
    pub primary: bool,
    /// Oid of the PRIMARY KEY or UNIQUE constraint it stands for, if any; the constraint has the
    /// index's name.
    #[serde(default)]
    pub constraint: Option<u32>,
    /// COMMENT ON INDEX.
    #[serde(default)]
    pub comment: Option<String>,
    /// COMMENT ON CONSTRAINT, of the constraint that it stands for.
    #[serde(default)]
    pub constraint_comment: Option<String>,
}

/// When a UNIQUE or PRIMARY KEY constraint is looked at that is DEFERRABLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deferrable {
    /// At the end of the statement.
    Immediate,
    /// INITIALLY DEFERRED: at the end of the transaction.
    Deferred,
}

/// One part of an index's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexColumn {
    /// What it has.
    #[serde(flatten)]
    pub key: IndexKey,
    /// DESC.
    #[serde(default)]
    pub descending: bool,
    /// NULLs before all values; by default they are where DESC is.
    #[serde(default)]
    pub nulls_first: bool,
    /// An operator class that is not the type's own. Keys are ordered all the same.
    #[serde(default)]
    pub class: Option<OperatorClass>,
    /// COLLATE, if it was said; else it has the column's.
    #[serde(default)]
    pub collation: Option<Collation>,
}

/// What a part of a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexKey {
    /// A column: its place in [`Table::columns`](super::Table::columns).
    Column(usize),
    /// An expression's value: its place among what the table's indexes compute.
    Expression(usize),
}

/// Operator classes that say that an index serves the search for beginnings of texts. Every index
/// over texts does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorClass {
    /// Of text.
    TextPatternOps,
    /// The same under another name.
    VarcharPatternOps,
    /// Of char(n).
    BpcharPatternOps,
}

/// What an index computes of a row: the value of an expression, or whether its predicate holds. Or
/// the value of a generated column, whose place is the column's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Computed {
    /// Its place among what the table's indexes compute.
    pub place: usize,
    /// Name of the index's column; of a predicate none.
    #[serde(default)]
    pub name: String,
    /// The expression as SQL text over the table's columns.
    pub text: String,
    /// Type of its values.
    #[serde(with = "super::store::type_document")]
    pub ty: Type,
    /// Places in [`Table::columns`](super::Table::columns) that the expression reads.
    pub columns: Vec<usize>,
}

impl IndexColumn {
    /// A column in the usual order.
    pub fn ascending(column: usize) -> IndexColumn {
        let key = IndexKey::Column(column);
        IndexColumn { key, descending: false, nulls_first: false, class: None, collation: None }
    }

    /// The order within the key.
    pub fn order(self) -> KeyOrder {
        KeyOrder { descending: self.descending, nulls_first: self.nulls_first }
    }
}

impl IndexKey {
    /// The place of the column, if it is one.
    pub fn column(self) -> Option<usize> {
        match self {
            IndexKey::Column(place) => Some(place),
            IndexKey::Expression(_) => None,
        }
    }
}

impl OperatorClass {
    /// All.
    pub const ALL: [OperatorClass; 3] =
        [OperatorClass::TextPatternOps, OperatorClass::VarcharPatternOps, OperatorClass::BpcharPatternOps];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            OperatorClass::TextPatternOps => "text_pattern_ops",
            OperatorClass::VarcharPatternOps => "varchar_pattern_ops",
            OperatorClass::BpcharPatternOps => "bpchar_pattern_ops",
        }
    }
}

impl Index {
    /// What is shown with it: what the key has, and the columns of INCLUDE.
    pub fn shown(&self) -> impl Iterator<Item = IndexKey> {
        let included = self.included.iter().copied().map(IndexKey::Column);
        self.columns.iter().map(|column| column.key).chain(included)
    }

    /// Places of the columns that are parts of the key.
    pub fn key_columns(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().filter_map(|column| column.key.column())
    }

    /// What it computes: its predicate, then its expressions.
    pub fn computed(&self) -> impl Iterator<Item = &Computed> {
        self.predicate.iter().chain(&self.expressions)
    }

    /// The same, to change it.
    pub fn computed_mut(&mut self) -> impl Iterator<Item = &mut Computed> {
        self.predicate.iter_mut().chain(&mut self.expressions)
    }

    /// The expression whose values have this place.
    pub fn expression(&self, place: usize) -> Option<&Computed> {
        self.expressions.iter().find(|expression| expression.place == place)
    }

    /// Whether it computes nothing: its entries have columns only, and all rows have one.
    pub fn is_plain(&self) -> bool {
        self.expressions.is_empty() && self.predicate.is_none()
    }

    /// Whether equal keys are refused, at some time.
    pub fn is_unique(&self) -> bool {
        self.unique || self.deferrable.is_some()
    }

    /// Whether it is a key that others may refer to.
    pub fn is_key(&self) -> bool {
        self.unique && self.is_plain()
    }

    /// Places of the columns that its entries are made from; some more than once.
    pub fn made_from(&self) -> impl Iterator<Item = usize> {
        let computed = self.computed().flat_map(|computed| computed.columns.iter().copied());
        self.key_columns().chain(computed)
    }

    /// Whether it says anything of a column.
    pub fn mentions(&self, column: usize) -> bool {
        self.made_from().any(|place| place == column) || self.included.contains(&column)
    }

    /// Is the table's own tree (the clustered primary key)? Every primary key is that is not
    /// DEFERRABLE.
    pub fn is_clustered(&self) -> bool {
        self.primary && self.deferrable.is_none()
    }

    /// The row key an entry leads to. For the clustered primary key it is the key itself.
    pub fn row_key<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Result<&'a [u8]> {
        if self.is_clustered() {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds that knew columns only wrote them like this, and read what is written for them.
    #[test]
    fn parts_of_keys_that_are_columns_are_written_as_ever() {
        let written = r#"{"column":3,"descending":true,"nulls_first":false}"#;
        let column: IndexColumn = serde_json::from_str(written).expect("a column");
        let expected = IndexColumn { descending: true, ..IndexColumn::ascending(3) };
        assert_eq!(column, expected);
        let again = serde_json::to_value(column).expect("a document");
        assert_eq!((&again["column"], &again["descending"]), (&3.into(), &true.into()));
        let (class, collation) = (Some(OperatorClass::TextPatternOps), Some(Collation::Posix));
        for part in [
            IndexColumn { key: IndexKey::Expression(2), class, ..IndexColumn::ascending(0) },
            IndexColumn { collation, ..IndexColumn::ascending(1) },
            IndexColumn { nulls_first: true, ..IndexColumn::ascending(7) },
        ] {
            let text = serde_json::to_string(&part).expect("a document");
            assert_eq!(serde_json::from_str::<IndexColumn>(&text).expect(&text), part);
        }
    }
}
