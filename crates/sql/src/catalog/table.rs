//! Tables.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::{Check, Column, ForeignKey, Hints, Index, IndexKey, OnCommit, Reference};
use crate::row::RowLayout;
use crate::types::{Type, TypeId};

/// A table. A stored row holds one value per place in `columns`, dropped columns as NULL; it may be
/// shorter than `columns`, and what it lacks has the value [`Column::missing`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Oid; also the number by which the table is locked as a whole.
    pub oid: u32,
    /// Oid of its schema.
    pub schema: u32,
    /// Name of its schema.
    pub schema_name: String,
    /// Name.
    pub name: String,
    /// Where its rows are. TRUNCATE and rewriting ALTER TABLE give it a fresh one.
    pub tree: u32,
    /// All columns, dropped ones too.
    pub columns: Vec<Column>,
    /// All indexes, oldest first, the primary key's included.
    pub indexes: Vec<Index>,
    /// CHECK constraints, sorted by name as they are checked.
    pub checks: Vec<Check>,
    /// Foreign keys from here.
    pub foreign_keys: Vec<ForeignKey>,
    /// Foreign keys to here.
    pub referenced_by: Vec<Reference>,
    /// Session-local (CREATE TEMPORARY TABLE).
    #[serde(default)]
    pub temporary: bool,
    /// ON COMMIT of a temporary table; without it rows stay.
    #[serde(default)]
    pub on_commit: Option<OnCommit>,
    /// Storage parameters as given (`fillfactor=100`): hints that have no effect.
    #[serde(default)]
    pub options: Vec<String>,
    /// COMMENT ON TABLE.
    #[serde(default)]
    pub comment: Option<String>,
    /// What is said of it besides, without an effect.
    #[serde(default)]
    pub hints: Hints,
    /// What follows from the columns, made when first used.
    #[serde(skip)]
    pub derived: Derived,
}

/// What follows from a table's definition. A clone of a table starts without it, so it may be
/// changed before it is used.
#[derive(Default)]
pub struct Derived {
    layout: OnceLock<RowLayout>,
    /// What its indexes and generated columns compute, bound: its type is the binder's.
    computed: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Derived {
    /// The same whether it was made or not: definitions that are compared as they are written out
    /// are the same ones.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Derived")
    }
}

impl Clone for Derived {
    fn clone(&self) -> Derived {
        Derived::default()
    }
}

impl Table {
    /// The layout of its stored rows.
    pub fn layout(&self) -> &RowLayout {
        self.derived.layout.get_or_init(|| {
            let types: Vec<Type> = self.columns.iter().map(|column| column.ty).collect();
            RowLayout::new(&types)
        })
    }

    /// What the binder made of what is computed, once it has.
    pub(crate) fn bound_computed(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.derived.computed.get().cloned()
    }

    /// Keeps that.
    pub(crate) fn keep_bound_computed(&self, bound: Arc<dyn Any + Send + Sync>) {
        // Of two who bound them at the same time, the first one's stay.
        let _ = self.derived.computed.set(bound);
    }

    /// Whether its indexes compute anything of a row.
    pub fn has_computed(&self) -> bool {
        !self.indexes.iter().all(Index::is_plain)
    }

    /// Whether columns of it are computed from others.
    pub fn has_generated(&self) -> bool {
        self.columns.iter().any(|column| column.generated.is_some())
    }

    /// Whether the column at this place is made from that at another.
    pub fn is_generated_from(&self, place: usize, base: usize) -> bool {
        let generated = self.columns.get(place).and_then(|column| column.generated.as_ref());
        generated.is_some_and(|generated| generated.columns.contains(&base))
    }

    /// Whether a row's value at this place changes with those at others.
    pub fn changes_with(&self, place: usize, others: &[usize]) -> bool {
        others.contains(&place) || others.iter().any(|&base| self.is_generated_from(place, base))
    }

    /// The first place that is free for what indexes compute.
    pub fn free_place(&self) -> usize {
        let taken = self.indexes.iter().flat_map(Index::computed).map(|computed| computed.place + 1);
        taken.max().unwrap_or(0)
    }

    /// Type of a part of an index's key.
    pub fn key_type(&self, index: &Index, key: IndexKey) -> Type {
        let ty = match key {
            IndexKey::Column(place) => self.columns.get(place).map(|column| column.ty),
            IndexKey::Expression(place) => index.expression(place).map(|expression| expression.ty),
        };
        ty.unwrap_or(Type::new(TypeId::Unknown))
    }

    /// The visible columns with their places, in order.
    pub fn visible_columns(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(|(_, column)| !column.dropped)
    }

    /// The place of a visible column.
    pub fn column_place(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| !column.dropped && column.name == name)
    }

    /// The primary key's index, by which the table's tree is ordered. A table without one is
    /// ordered by a hidden row id: 8 bytes, big-endian. So is one whose primary key is DEFERRABLE,
    /// which is not this one.
    pub fn primary_key(&self) -> Option<&Index> {
        self.indexes.iter().find(|index| index.is_clustered())
    }

    /// The index of what was declared PRIMARY KEY, DEFERRABLE or not.
    pub fn declared_primary_key(&self) -> Option<&Index> {
        self.indexes.iter().find(|index| index.primary)
    }

    /// The index with this oid.
    pub fn index(&self, oid: u32) -> Option<&Index> {
        self.indexes.iter().find(|index| index.oid == oid)
    }

    /// The foreign key with this oid.
    pub fn foreign_key(&self, oid: u32) -> Option<&ForeignKey> {
        self.foreign_keys.iter().find(|key| key.oid == oid)
    }

    /// Whether any constraint has this name.
    pub fn has_constraint(&self, name: &str) -> bool {
        self.checks.iter().any(|check| check.name == name)
            || self.foreign_keys.iter().any(|key| key.name == name)
            || self.indexes.iter().any(|index| index.constraint.is_some() && index.name == name)
    }
}
