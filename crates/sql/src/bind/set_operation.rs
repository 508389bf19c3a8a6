//! UNION, INTERSECT, EXCEPT, and conversions of whole queries.

use sqlparser::ast::{SetExpr, SetOperator, SetQuantifier};

use super::select::output_column;
use super::sortable::check_sortable_column;
use super::{Binder, Body, Distinct, Query, SetKind, SetOperation};
use crate::error::{Result, SqlError};
use crate::expr::{Expr, Typed};
use crate::types::cast::{self, CastContext};
use crate::types::{Type, TypeId};

impl Binder<'_> {
    pub(super) fn set_operation(
        &mut self,
        op: SetOperator,
        quantifier: SetQuantifier,
        left: &SetExpr,
        right: &SetExpr,
        keep_unknown: bool,
    ) -> Result<Query> {
        let kind = match op {
            SetOperator::Union => SetKind::Union,
            SetOperator::Intersect => SetKind::Intersect,
            SetOperator::Except => SetKind::Except,
            SetOperator::Minus => return Err(SqlError::syntax("syntax error at or near \"MINUS\"")),
        };
        let all = match quantifier {
            SetQuantifier::All => true,
            SetQuantifier::Distinct | SetQuantifier::None => false,
            _ => return Err(SqlError::syntax("syntax error at or near \"BY\"")),
        };
        let name = match kind {
            SetKind::Union => "UNION",
            SetKind::Intersect => "INTERSECT",
            SetKind::Except => "EXCEPT",
        };
        let (left, right) = match kind {
            SetKind::Except if all => (
                self.out_of_recursion(name, |binder| binder.set_operand(left))?,
                self.out_of_recursion(name, |binder| binder.set_operand(right))?,
            ),
            SetKind::Except => {
                (self.set_operand(left)?, self.out_of_recursion(name, |binder| binder.set_operand(right))?)
            }
            SetKind::Intersect if all => (
                self.out_of_recursion(name, |binder| binder.set_operand(left))?,
                self.out_of_recursion(name, |binder| binder.set_operand(right))?,
            ),
            _ => (self.set_operand(left)?, self.set_operand(right)?),
        };
        if left.columns.len() != right.columns.len() {
            return Err(SqlError::syntax(format!("each {name} query must have the same number of columns")));
        }
        let mut types = vec![];
        for (place, (of_left, of_right)) in left.columns.iter().zip(&right.columns).enumerate() {
            let open = of_left.ty.id == TypeId::Unknown && of_right.ty.id == TypeId::Unknown;
            let ty = if open && keep_unknown && all {
                TypeId::Unknown.into()
            } else {
                self.common(&[of_left.ty, of_right.ty], name)?
            };
            if !all {
                self.check_sortable(ty, "equality")?;
                check_sortable_column(&left, place, "equality")?;
                check_sortable_column(&right, place, "equality")?;
            }
            types.push(ty);
        }
        let columns = (left.columns.iter().zip(&types))
            .map(|(column, ty)| output_column(column.name.clone(), *ty))
            .collect();
        let left = self.convert_columns(left, &types)?;
        let right = self.convert_columns(right, &types)?;
        Ok(Query::of(Body::SetOperation(Box::new(SetOperation { kind, all, left, right })), columns))
    }

    fn set_operand(&mut self, operand: &SetExpr) -> Result<Query> {
        stacker::maybe_grow(256 * 1024, 4 * 1024 * 1024, || match operand {
            SetExpr::Query(query) if !query.locks.is_empty() => {
                Err(super::select::lock_not_allowed(&query.locks[0], "with UNION/INTERSECT/EXCEPT"))
            }
            operand => self.set_expr(operand, true),
        })
    }

    /// Converts the columns of a query implicitly.
    pub(super) fn convert_columns(&mut self, query: Query, types: &[Type]) -> Result<Query> {
        self.convert_query(query, types, CastContext::Implicit, |_, from, to| cast::cannot_cast(from, to))
    }

    /// Converts the columns of a query that feeds an INSERT; `names` are the target columns'. 42804
    /// if a column cannot be.
    pub fn assign_query(&mut self, query: Query, types: &[Type], names: &[&str]) -> Result<Query> {
        self.convert_query(query, types, CastContext::Assignment, |place, from, to| {
            SqlError::new(
                crate::error::sqlstate::DATATYPE_MISMATCH,
                format!(
                    "column \"{}\" is of type {} but expression is of type {}",
                    names.get(place).copied().unwrap_or("?"),
                    to.id.sql_name(),
                    from.id.sql_name()
                ),
            )
            .with_hint("You will need to rewrite or cast the expression.")
        })
    }

    fn convert_query(
        &mut self,
        mut query: Query,
        types: &[Type],
        how: CastContext,
        error: impl Fn(usize, Type, Type) -> SqlError,
    ) -> Result<Query> {
        for (place, ty) in types.iter().enumerate() {
            let from = query.columns[place].ty;
            if from == *ty {
                continue;
            }
            if !self.convert_in_place(&mut query, place, *ty, how)? {
                let found = cast::find(from.bare(), ty.bare(), how).ok_or_else(|| error(place, from, *ty))?;
                if !found.is_noop() {
                    query.conversions.resize(query.columns.len(), None);
                    query.conversions[place] = Some(found);
                }
            }
            query.columns[place].ty = *ty;
        }
        Ok(query)
    }

    /// Converts the expressions that give a column, where nothing looks at them in between. False
    /// if that is not possible.
    fn convert_in_place(
        &mut self,
        query: &mut Query,
        place: usize,
        ty: Type,
        how: CastContext,
    ) -> Result<bool> {
        if query.conversions.get(place).is_some_and(Option::is_some) {
            return Ok(false);
        }
        let from = query.columns[place].ty;
        let sorted = query.order.iter().any(|key| key.column == place);
        let mut convert = |expr: &mut Expr, from: Type| -> Result<bool> {
            let typed = Typed::new(std::mem::replace(expr, Expr::NULL), from);
            let before = typed.expr.clone();
            // What goes into a column is tested with the row.
            match self.coerce_unchecked(typed, ty, how)? {
                Some(converted) => *expr = converted.expr,
                None => {
                    *expr = before;
                    return Ok(false);
                }
            }
            Ok(true)
        };
        match &mut query.body {
            Body::Select(select) if select.distinct == Distinct::No && !sorted => {
                let converted = convert(&mut select.targets[place].expr, from)?;
                if converted {
                    select.targets[place].ty = ty;
                }
                Ok(converted)
            }
            Body::Values(rows) if !sorted => {
                for row in rows {
                    if !convert(&mut row[place], from)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            // UNION ALL of open literals hands them down.
            Body::SetOperation(operation) if from.id == TypeId::Unknown && operation.all => {
                let left = self.convert_in_place(&mut operation.left, place, ty, how)?;
                let right = self.convert_in_place(&mut operation.right, place, ty, how)?;
                operation.left.columns[place].ty = ty;
                operation.right.columns[place].ty = ty;
                Ok(left && right)
            }
            _ => Ok(false),
        }
    }
}
