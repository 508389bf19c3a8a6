//! Conditions as DataFusion hands them to a table, as conditions on its keys.
//!
//! A table reads only the ranges of keys that its conditions leave, so only these are in the transaction's read set. DataFusion tests every
//! condition again on the rows (`Inexact`), so a range may be too wide; too narrow it must not be. So a condition counts only where the
//! order of keys is certainly that in which DataFusion compares:
//!
//! - `=`, `<`, `<=`, `>`, `>=`, `BETWEEN` and `IN` of a column with literals (parameters have become literals by then) of exactly the column's Arrow type;
//!   a literal of another type has been converted by DataFusion where that loses nothing, else the column stands in a cast and the condition does not count;
//! - columns of the types in [`KEYED`]. Left out are floats (-0 and NaN), numerics (1.0 and 1.00 are one key; without precision they travel as
//!   text), intervals, json, and what Arrow cannot hold at all.
//!
//! NULL fulfils none of these conditions, and lies outside the ranges. Columns that order descending are the business of `key_range`, as for the row executor.
//!
//! *What is still read whole*: tables without such a condition on the first column of the primary key or of an index that is worth it (few rows
//! of many, as for the row executor); and the inner tables of joins, since DataFusion's joins read both sides and look up nothing.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::decode;
use crate::catalog::Table;
use crate::function::operator::Comparison;
use crate::plan::KeyCondition;
use crate::types::{Datum, TypeId};

/// Types whose keys order as Arrow orders their values.
const KEYED: &[TypeId] = &[
    TypeId::Bool,
    TypeId::Int2,
    TypeId::Int4,
    TypeId::Int8,
    TypeId::Date,
    TypeId::Time,
    TypeId::Timestamp,
    TypeId::Timestamptz,
    TypeId::Text,
    TypeId::Varchar,
    TypeId::Name,
    TypeId::Uuid,
    TypeId::Bytea,
];

/// A table's columns as DataFusion names them.
pub(super) struct Columns<'a> {
    pub(super) table: &'a Table,
    /// Places in the table, by place in the schema.
    pub(super) places: &'a [usize],
    pub(super) schema: &'a SchemaRef,
}

impl Columns<'_> {
    /// What the condition says about one column, if it counts.
    pub(super) fn condition(&self, filter: &Expr) -> Option<(usize, KeyCondition)> {
        match filter {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                let (column, left) = self.condition(left)?;
                let (other, right) = self.condition(right)?;
                match (left, right) {
                    (KeyCondition::OneOf(mut values), KeyCondition::OneOf(more)) if column == other => {
                        values.extend(more);
                        Some((column, KeyCondition::OneOf(values)))
                    }
                    _ => None,
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let comparison = comparison(*op)?;
                let (column, comparison, literal) = match (left.as_ref(), right.as_ref()) {
                    (Expr::Column(column), Expr::Literal(literal, _)) => (column, comparison, literal),
                    (Expr::Literal(literal, _), Expr::Column(column)) => {
                        (column, comparison.commuted(), literal)
                    }
                    _ => return None,
                };
                let (place, value) = self.value(column, literal)?;
                let condition = match comparison {
                    Comparison::Equal => KeyCondition::OneOf(vec![value]),
                    other => KeyCondition::Compare(other, value),
                };
                Some((place, condition))
            }
            Expr::InList(InList { expr, list, negated: false }) => {
                let Expr::Column(column) = expr.as_ref() else { return None };
                let values = list.iter().map(|item| match item {
                    Expr::Literal(literal, _) => self.value(column, literal),
                    _ => None,
                });
                let values: Vec<(usize, Datum)> = values.collect::<Option<_>>()?;
                let place = values.first()?.0;
                Some((place, KeyCondition::OneOf(values.into_iter().map(|(_, value)| value).collect())))
            }
            _ => None,
        }
    }

    /// The column's place in the table and the literal as its value, unless it is NULL or of another type.
    fn value(&self, column: &Column, literal: &ScalarValue) -> Option<(usize, Datum)> {
        let at = self.schema.index_of(&column.name).ok()?;
        let place = *self.places.get(at)?;
        let ty = self.table.columns[place].ty;
        if !KEYED.contains(&ty.id)
            || literal.is_null()
            || literal.data_type() != *self.schema.field(at).data_type()
        {
            return None;
        }
        let value = decode::column(&literal.to_array().ok()?, ty).ok()?.pop()?;
        (!value.is_null()).then_some((place, value))
    }
}

fn comparison(operator: Operator) -> Option<Comparison> {
    Some(match operator {
        Operator::Eq => Comparison::Equal,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}
