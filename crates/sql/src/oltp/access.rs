//! Reading a table through an access: values become key bytes, key bytes become rows.
//!
//! ```text
//! index (a, b)    a = 7 AND b > 3       from  next(enc 7 ++ enc 3)        to  next(enc 7 ++ value marker)
//!                 a = 7                 from  enc 7                       to  next(enc 7)
//!                 a IN (1, 2)           the ranges of a = 1 and of a = 2, one after the other
//! ```
//!
//! Conditions are tested on every row afterwards, so a range may be wider than its conditions: where a value does not fit the
//! column's type (a bound beyond int4, say) the bound is left away if nothing is lost by that, and the range is
//! empty if nothing can match.

use std::ops::Bound;

use bytes::Bytes;

use super::Context;
use crate::catalog::{Index, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, RowScan};
use crate::keys;
use crate::plan::{Access, AnyOf};
use crate::types::{Datum, Type, TypeId};

/// An open access: gives stored rows with their keys.
pub(crate) struct AccessRows {
    /// Values still to be looked up, the last first.
    prefixes: Vec<Vec<u8>>,
    scan: Option<Box<dyn RowScan>>,
    /// A single row found by key.
    found: Option<(Bytes, Bytes)>,
}

/// A value in the type of the column it is compared with.
enum Fitted {
    Value(Datum),
    /// Equal to no value of the column: NULL, or outside its type.
    Nothing,
    /// Below, or above, all values of the column.
    Below,
    Above,
    /// Of another kind, which the key does not order: the column's bound is not used.
    Unfit,
}

fn fit(value: Datum, ty: Type) -> Fitted {
    if value.is_null() {
        return Fitted::Nothing;
    }
    if !ty.id.is_integer() {
        return if ty.id.holds(&value) { Fitted::Value(value) } else { Fitted::Unfit };
    }
    let Some(number) = value.as_i64() else { return Fitted::Unfit };
    let fitted = match ty.id {
        TypeId::Int2 => i16::try_from(number).ok().map(Datum::Int2),
        TypeId::Int4 => i32::try_from(number).ok().map(Datum::Int4),
        _ => Some(Datum::Int8(number)),
    };
    match fitted {
        Some(value) => Fitted::Value(value),
        None if number < 0 => Fitted::Below,
        None => Fitted::Above,
    }
}

impl AccessRows {
    /// Finds where to read, given the frame as it is.
    pub(crate) fn open(
        table: &Table,
        access: &Access,
        frame: &[Datum],
        context: &Context<'_>,
    ) -> Result<AccessRows> {
        let mut rows = AccessRows { prefixes: vec![], scan: None, found: None };
        let reader = context.execution.read.reader;
        let Some(index) = access.index.and_then(|place| table.indexes.get(place)) else {
            rows.scan = Some(reader.scan(table.tree, Bound::Unbounded, Bound::Unbounded, access.reverse)?);
            return Ok(rows);
        };
        let env = context.env(frame);
        let mut prefix = Vec::with_capacity(16);
        let mut fitted = 0;
        for (expr, column) in access.equal.iter().zip(&index.columns) {
            match fit(expr.value(&env)?.into_owned(), table.columns[column.column].ty) {
                Fitted::Value(value) => keys::encode_into(&mut prefix, &value, column.order()),
                Fitted::Unfit => {
                    rows.range(
                        table,
                        index,
                        &prefix,
                        Bound::Unbounded,
                        Bound::Unbounded,
                        access.reverse,
                        context,
                    )?;
                    return Ok(rows);
                }
                _ => return Ok(rows),
            }
            fitted += 1;
        }
        if let Some(any) = &access.any {
            rows.each(table, index, any, &prefix, fitted, frame, context)?;
            return Ok(rows);
        }
        if access.unique {
            rows.found = point(table, index, &prefix, context)?;
            return Ok(rows);
        }
        let Some((lower, upper)) = bounds(table, index, access, fitted, &prefix, frame, context)? else {
            return Ok(rows);
        };
        let lower = lower.as_ref().map(Vec::as_slice);
        let upper = upper.as_ref().map(Vec::as_slice);
        rows.range(table, index, &prefix, lower, upper, access.reverse, context)?;
        Ok(rows)
    }

    /// Notes one prefix for each of several values of the column after the fixed ones.
    #[allow(clippy::too_many_arguments)]
    fn each(
        &mut self,
        table: &Table,
        index: &Index,
        any: &AnyOf,
        prefix: &[u8],
        fixed: usize,
        frame: &[Datum],
        context: &Context<'_>,
    ) -> Result<()> {
        let column = &index.columns[fixed];
        for value in any_values(any, frame, context)? {
            match fit(value, table.columns[column.column].ty) {
                Fitted::Value(value) => {
                    let mut key = prefix.to_vec();
                    keys::encode_into(&mut key, &value, column.order());
                    self.prefixes.push(key);
                }
                Fitted::Unfit => {
                    self.prefixes.clear();
                    return self.range(
                        table,
                        index,
                        prefix,
                        Bound::Unbounded,
                        Bound::Unbounded,
                        false,
                        context,
                    );
                }
                _ => {}
            }
        }
        // Each value once, and in key order, which is kinder to the store.
        self.prefixes.sort_unstable_by(|a, b| b.cmp(a));
        self.prefixes.dedup();
        Ok(())
    }

    /// Opens a scan between two full keys; an unbounded side is bounded by the prefix.
    #[allow(clippy::too_many_arguments)]
    fn range(
        &mut self,
        table: &Table,
        index: &Index,
        prefix: &[u8],
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        reverse: bool,
        context: &Context<'_>,
    ) -> Result<()> {
        let tree = if index.is_clustered() { table.tree } else { index.tree };
        let end = keys::next_prefix(prefix);
        let lower = match lower {
            Bound::Unbounded if !prefix.is_empty() => Bound::Included(prefix),
            lower => lower,
        };
        let upper = match (&upper, &end) {
            (Bound::Unbounded, Some(end)) if !prefix.is_empty() => Bound::Excluded(end.as_slice()),
            _ => upper,
        };
        self.scan = Some(context.execution.read.reader.scan(tree, lower, upper, reverse)?);
        Ok(())
    }

    /// The next row's key in the table's tree and its stored bytes.
    pub(crate) fn next(
        &mut self,
        table: &Table,
        access: &Access,
        context: &Context<'_>,
    ) -> Result<Option<(Bytes, Bytes)>> {
        let index = access.index.and_then(|place| table.indexes.get(place));
        loop {
            if let Some(row) = self.found.take() {
                return Ok(Some(row));
            }
            if let Some(scan) = &mut self.scan {
                match scan.next()? {
                    None => self.scan = None,
                    Some((key, value)) => {
                        return match index {
                            None => Ok(Some((key, value))),
                            Some(index) => lookup(table, index, key, value, context).map(Some),
                        };
                    }
                }
            }
            let (Some(prefix), Some(index)) = (self.prefixes.pop(), index) else { return Ok(None) };
            if access.unique {
                self.found = point(table, index, &prefix, context)?;
            } else {
                self.range(table, index, &prefix, Bound::Unbounded, Bound::Unbounded, false, context)?;
            }
        }
    }
}

fn any_values(any: &AnyOf, frame: &[Datum], context: &Context<'_>) -> Result<Vec<Datum>> {
    let env = context.env(frame);
    match any {
        AnyOf::List(items) => items.iter().map(|item| item.eval(&env)).collect(),
        AnyOf::Array(array) => match &*array.value(&env)? {
            Datum::Array(array) => Ok(array.elements.clone()),
            _ => Ok(vec![]),
        },
    }
}

/// The row of a full key of a unique index.
fn point(table: &Table, index: &Index, key: &[u8], context: &Context<'_>) -> Result<Option<(Bytes, Bytes)>> {
    let reader = context.execution.read.reader;
    if index.is_clustered() {
        let row = reader.get(table.tree, key)?;
        return Ok(row.map(|row| (Bytes::copy_from_slice(key), row)));
    }
    match reader.get(index.tree, key)? {
        None => Ok(None),
        Some(row_key) => lookup(table, index, Bytes::copy_from_slice(key), row_key, context).map(Some),
    }
}

/// The row that an index entry leads to.
fn lookup(
    table: &Table,
    index: &Index,
    key: Bytes,
    value: Bytes,
    context: &Context<'_>,
) -> Result<(Bytes, Bytes)> {
    if index.is_clustered() {
        return Ok((key, value));
    }
    let row_key = index.row_key(&key, &value)?;
    match context.execution.read.reader.get(table.tree, &row_key)? {
        Some(row) => Ok((row_key, row)),
        None => Err(SqlError::new(
            sqlstate::INDEX_CORRUPTED,
            format!(
                "index \"{}\" has an entry for a row that table \"{}\" does not have",
                index.name, table.name
            ),
        )),
    }
}

type KeyBound = Bound<Vec<u8>>;

/// The bounds of the column after the fixed ones as bounds of keys; none if nothing can match.
fn bounds(
    table: &Table,
    index: &Index,
    access: &Access,
    fixed: usize,
    prefix: &[u8],
    frame: &[Datum],
    context: &Context<'_>,
) -> Result<Option<(KeyBound, KeyBound)>> {
    let Some(column) = index.columns.get(fixed).filter(|_| access.lower.is_some() || access.upper.is_some())
    else {
        return Ok(Some((Bound::Unbounded, Bound::Unbounded)));
    };
    let ty = table.columns[column.column].ty;
    let order = column.order();
    let env = context.env(frame);
    // A comparison never holds for NULL: begin and end within the values.
    let mut values = prefix.to_vec();
    keys::encode_not_null_into(&mut values);
    let end = keys::next_prefix(&values);
    let mut lower = Bound::Included(values);
    let mut upper = end.map_or(Bound::Unbounded, Bound::Excluded);
    let sides: [(Option<&(Expr, bool)>, bool); 2] =
        [(access.lower.as_ref(), true), (access.upper.as_ref(), false)];
    for (bound, is_lower) in sides {
        let Some((expr, inclusive)) = bound else { continue };
        let value = match fit(expr.value(&env)?.into_owned(), ty) {
            Fitted::Value(value) => value,
            Fitted::Nothing => return Ok(None),
            Fitted::Unfit => continue,
            Fitted::Below if is_lower => continue,
            Fitted::Above if !is_lower => continue,
            Fitted::Below | Fitted::Above => return Ok(None),
        };
        let mut key = prefix.to_vec();
        keys::encode_into(&mut key, &value, order);
        let after = || keys::next_prefix(&key).map_or(Bound::Unbounded, Bound::Included);
        // In a descending column the larger values have the smaller keys.
        if is_lower != order.descending {
            lower = if *inclusive { Bound::Included(key) } else { after() };
        } else {
            upper = if *inclusive {
                keys::next_prefix(&key).map_or(Bound::Unbounded, Bound::Excluded)
            } else {
                Bound::Excluded(key)
            };
        }
    }
    Ok(Some((lower, upper)))
}
