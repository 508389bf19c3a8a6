//! How a stored table is read: whole, or by an index with values for its first columns.

use std::sync::Arc;

use cognate_engine::Columns;

use super::relation::filled_slots;
use crate::bind::{Relation, Source};
use crate::catalog::{Index, Table};
use crate::error::{Result, SqlError};
use crate::expr::Expr;
use crate::function::operator::Comparison;
use crate::keys::KeyOrder;
use crate::types::{Datum, TypeId};

/// A stored table being read.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The table.
    pub table: Arc<Table>,
    /// Name for EXPLAIN.
    pub name: String,
    /// How its rows are found.
    pub access: Access,
    /// What is read of a row.
    pub columns: Vec<ScanColumn>,
    /// The same for the certifier: nothing else of the table's rows has an influence.
    pub reads: Columns,
    /// Place for the row's key.
    pub key_slot: Option<usize>,
    /// Conditions on each row, beyond those the access fulfils.
    pub filter: Vec<Expr>,
    /// How many of the columns each condition and those before it look at: the others need not be
    /// read of a row that does not pass.
    pub looked_at: Vec<usize>,
}

impl Scan {
    /// Adds conditions, and puts the columns that the first ones look at first.
    pub(super) fn add_filter(&mut self, conditions: Vec<Expr>) {
        self.filter.extend(conditions);
        self.looked_at.clear();
        let mut known = 0;
        for condition in &self.filter {
            condition.for_each_slot(&mut |slot| {
                let place = self.columns[known..].iter().position(|column| column.slot == slot);
                if let Some(place) = place {
                    self.columns.swap(known, known + place);
                    known += 1;
                }
            });
            self.looked_at.push(known);
        }
    }
}

/// A scan of a stored table that reads what the level needs.
pub(super) fn scan(relation: &Relation, access: Access) -> Result<Scan> {
    let Source::Table(table) = &relation.source else {
        return Err(SqlError::internal("a scan of what is no stored table"));
    };
    let columns: Vec<ScanColumn> = filled_slots(relation)
        .into_iter()
        .map(|(column, slot)| ScanColumn { column, slot, missing: table.columns[column].missing.clone() })
        .collect();
    let reads = match columns.len() < table.columns.len() {
        true => columns.iter().fold(Columns::PRESENCE, |reads, column| reads.with(column.column)),
        false => Columns::ALL,
    };
    Ok(Scan {
        table: table.clone(),
        name: relation.alias.clone(),
        access,
        columns,
        reads,
        key_slot: relation.key_slot,
        filter: vec![],
        looked_at: vec![],
    })
}

/// A column that is read.
#[derive(Clone, Debug)]
pub struct ScanColumn {
    /// Place in the stored row.
    pub column: usize,
    /// Place in the frame.
    pub slot: usize,
    /// The value of rows that were stored before the column was added.
    pub missing: Datum,
}

/// How rows are found.
#[derive(Clone, Debug)]
pub struct Access {
    /// By what.
    pub kind: AccessKind,
    /// Values for the first key columns.
    pub parts: Vec<KeyPart>,
    /// A range of the key column after those.
    pub range: Option<KeyRange>,
    /// From the end to the beginning.
    pub reverse: bool,
    /// Chosen for its order, so that nothing is left to sort.
    pub ordered: bool,
    /// There is one value for every column of a unique key: at most one row for each combination.
    pub unique: bool,
}

/// By what rows are found.
#[derive(Clone, Debug)]
pub enum AccessKind {
    /// By the table's own tree: the primary key, or everything.
    Table,
    /// By a secondary index.
    Index(Box<Index>),
}

/// Values of one key column.
#[derive(Clone, Debug)]
pub struct KeyPart {
    /// The values: a row's must be one of them.
    pub values: KeyValues,
    /// Type of the column.
    pub ty: TypeId,
    /// Order of the column in the key.
    pub order: KeyOrder,
}

/// Values a key column may have.
#[derive(Clone, Debug)]
pub enum KeyValues {
    /// This one; no row if it is NULL.
    One(Expr),
    /// Any of these that are not NULL.
    List(Vec<Expr>),
    /// Any of the elements of this array.
    Array(Expr),
    /// Any value the only column of this subquery has.
    Subquery(Expr),
    /// NULL itself.
    Null,
}

/// A range of one key column.
#[derive(Clone, Debug)]
pub struct KeyRange {
    /// Lower bound: `>` or `>=`.
    pub lower: Option<RangeBound>,
    /// Upper bound: `<` or `<=`.
    pub upper: Option<RangeBound>,
    /// A pattern of LIKE, whose fixed beginning bounds the range.
    pub pattern: Option<Expr>,
    /// Type of the column.
    pub ty: TypeId,
    /// Order of the column in the key.
    pub order: KeyOrder,
}

/// A bound of a range.
#[derive(Clone, Debug)]
pub struct RangeBound {
    /// `<`, `<=`, `>` or `>=`, as seen from the column.
    pub comparison: Comparison,
    /// The value; no row if it is NULL.
    pub value: Expr,
}

impl Access {
    /// Everything, in key order.
    pub fn everything(reverse: bool) -> Access {
        Access { kind: AccessKind::Table, parts: vec![], range: None, reverse, ordered: false, unique: false }
    }

    /// Every expression in it.
    pub fn for_each_expr(&self, visit: &mut dyn FnMut(&Expr)) {
        for part in &self.parts {
            match &part.values {
                KeyValues::One(expr) | KeyValues::Array(expr) | KeyValues::Subquery(expr) => visit(expr),
                KeyValues::List(items) => items.iter().for_each(&mut *visit),
                KeyValues::Null => {}
            }
        }
        if let Some(range) = &self.range {
            range.lower.iter().chain(&range.upper).for_each(|bound| visit(&bound.value));
            range.pattern.iter().for_each(visit);
        }
    }
}

impl KeyPart {
    /// Whether it is a single value, so that an order of the following columns holds for all rows.
    pub fn is_single(&self) -> bool {
        matches!(self.values, KeyValues::One(_) | KeyValues::Null)
    }
}
