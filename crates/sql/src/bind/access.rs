//! Parts of values: elements and slices of arrays, fields of rows.

use sqlparser::ast::{AccessExpr, Expr as Syntax, Subscript};

use super::Binder;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed, fold};
use crate::pg_catalog::EXPANDED_ARRAY;
use crate::types::{Datum, TypeId};

impl Binder<'_> {
    /// `array[i]`, `array[i:j]`.
    pub(super) fn access(&mut self, root: &Syntax, chain: &[AccessExpr]) -> Result<Typed> {
        let mut columns = vec![];
        let mut rest = chain;
        // `t.a[1]` comes as an access to a field.
        if let Syntax::Identifier(table) = root {
            columns.push(table.clone());
            while let [AccessExpr::Dot(Syntax::Identifier(field)), after @ ..] = rest {
                columns.push(field.clone());
                rest = after;
            }
        }
        let typed = if columns.is_empty() { self.settled_expression(root)? } else { self.column(&columns)? };
        if rest.is_empty() {
            return Ok(typed);
        }
        if typed.ty == EXPANDED_ARRAY
            && let [AccessExpr::Dot(Syntax::Identifier(field))] = rest
        {
            return expanded_array_field(typed, &super::object_name(field));
        }
        if let (Expr::Row(items, shape), [AccessExpr::Dot(Syntax::Identifier(field))]) = (&typed.expr, rest) {
            let name = super::object_name(field);
            let place = shape.iter().position(|(known, _)| *known == name).ok_or_else(|| {
                SqlError::new(
                    sqlstate::UNDEFINED_COLUMN,
                    format!("could not identify column \"{name}\" in record data type"),
                )
            })?;
            return Ok(Typed::new(items[place].clone(), shape[place].1));
        }
        let Some(element) = typed.ty.element() else {
            return Err(match rest[0] {
                AccessExpr::Dot(_) => self.lacks("selecting a field of a composite value"),
                AccessExpr::Subscript(_) => SqlError::new(
                    sqlstate::DATATYPE_MISMATCH,
                    format!(
                        "cannot subscript type {} because it does not support subscripting",
                        typed.ty.id.sql_name()
                    ),
                ),
            });
        };
        if rest.iter().any(|access| matches!(access, AccessExpr::Subscript(Subscript::Slice { .. }))) {
            let bounds = rest.iter().map(|access| self.slice_bounds(access)).collect::<Result<_>>()?;
            let expr = Expr::Slice(Box::new((typed.expr, bounds)));
            return Ok(Typed::new(fold(expr, self.context), typed.ty));
        }
        let mut subscripts = vec![];
        for access in rest {
            let AccessExpr::Subscript(Subscript::Index { index }) = access else {
                return Err(self.lacks("this kind of subscript"));
            };
            let index = self.expression(index)?;
            subscripts.push(self.convert(index, TypeId::Int4.into())?.expr);
        }
        let expr = Expr::Subscript(Box::new((typed.expr, subscripts)));
        Ok(Typed::new(fold(expr, self.context), element))
    }

    /// The bounds of one dimension. Beside a slice, a single subscript is the upper bound of one from 1.
    fn slice_bounds(&mut self, access: &AccessExpr) -> Result<[Option<Expr>; 2]> {
        match access {
            AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None }) => {
                Ok([self.slice_bound(lower_bound.as_ref())?, self.slice_bound(upper_bound.as_ref())?])
            }
            AccessExpr::Subscript(Subscript::Index { index }) => {
                Ok([Some(Expr::Constant(Datum::Int4(1))), self.slice_bound(Some(index))?])
            }
            _ => Err(self.lacks("this kind of subscript")),
        }
    }

    fn slice_bound(&mut self, bound: Option<&Syntax>) -> Result<Option<Expr>> {
        let Some(syntax) = bound else { return Ok(None) };
        let typed = self.expression(syntax)?;
        Ok(Some(self.convert(typed, TypeId::Int4.into())?.expr))
    }
}

/// A field of a record that `_pg_expandarray` gives.
fn expanded_array_field(record: Typed, field: &str) -> Result<Typed> {
    let (place, ty) = match field {
        "x" => (1, TypeId::Int2),
        "n" => (2, TypeId::Int4),
        _ => {
            let message = format!("could not identify column \"{field}\" in record data type");
            return Err(SqlError::new(sqlstate::UNDEFINED_COLUMN, message));
        }
    };
    let places = vec![Expr::Constant(Datum::Int4(place))];
    Ok(Typed::new(Expr::Subscript(Box::new((record.expr, places))), ty))
}
