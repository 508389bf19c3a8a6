//! IN lists.
//!
//! As in PostgreSQL, what has no columns in it is brought to a common type with the operand, if
//! there are several such items. An item with columns is compared by itself: of what type it is
//! says nothing of how the others are read.
//!
//! ```text
//! d IN ('2024-02-29', '2024-03-01', t)     d IN ('2024-02-29', '2024-03-01') OR d = t
//! ```

use std::sync::Arc;

use sqlparser::ast::Expr as Syntax;

use super::expression::boolean;
use super::{Binder, common_type};
use crate::error::{Result, SqlError};
use crate::expr::{Expr, InList, Typed, fold};
use crate::function::operator::has_no_order;
use crate::types::{Type, TypeId};

/// Longer IN lists of constants are looked up in a hash table.
const HASHED_LIST: usize = 16;

impl Binder<'_> {
    /// `operand IN (list)`.
    pub(super) fn in_list(&mut self, operand: &Syntax, list: &[Syntax], negated: bool) -> Result<Typed> {
        if let Some(operands) = self.row_values(operand)? {
            return self.rows_in_list(operands, list, negated);
        }
        let operand = self.expression(operand)?;
        let items = list.iter().map(|item| self.expression(item)).collect::<Result<Vec<_>>>()?;
        let alone = items.iter().filter(|item| self.has_columns(&item.expr)).count();
        if alone == 0 {
            return self.in_values(operand, items, negated);
        }
        if items.len() - alone < 2 {
            return self.one_by_one(operand, items, negated, vec![]);
        }
        let (alone, several): (Vec<Typed>, Vec<Typed>) =
            items.into_iter().partition(|item| self.has_columns(&item.expr));
        let copy = self.copy(&operand)?;
        let among = self.in_values(copy, several, negated)?.expr;
        self.one_by_one(operand, alone, negated, vec![among])
    }

    /// Whether columns of the level that an expression stands in have a part in it.
    fn has_columns(&self, expr: &Expr) -> bool {
        let mut found = false;
        expr.for_each_reference(0, &mut |depth, _| found |= depth == 0);
        found || expr.any(&mut |part| self.is_over_columns(part))
    }

    /// The same of a call whose arguments are not in the expression: an aggregate, a window
    /// function, a set-returning one.
    fn is_over_columns(&self, part: &Expr) -> bool {
        let Some(level) = self.levels.last() else { return false };
        let is_over = |expr: &Expr| self.has_columns(expr);
        match part {
            Expr::Aggregate { depth: 0, place } => {
                level.aggregates.get(*place).is_some_and(|call| call.exprs().any(is_over))
            }
            Expr::SetResult(place) => {
                level.set_returning.get(*place).is_some_and(|set| set.call.exprs().iter().any(is_over))
            }
            Expr::WindowResult(place) => {
                let mut calls = level.select.windows.iter().flat_map(|window| &window.calls);
                let call = calls.find(|call| call.place == *place);
                call.is_some_and(|call| call.arguments.iter().chain(&call.filter).any(is_over))
            }
            _ => false,
        }
    }

    /// Compares the operand with each item by itself, behind what is tested already.
    fn one_by_one(
        &mut self,
        operand: Typed,
        mut items: Vec<Typed>,
        negated: bool,
        mut tests: Vec<Expr>,
    ) -> Result<Typed> {
        let name = if negated { "<>" } else { "=" };
        let last = items.pop();
        for item in items {
            let copy = self.copy(&operand)?;
            tests.push(self.operate(name, copy, item)?.expr);
        }
        if let Some(item) = last {
            tests.push(self.operate(name, operand, item)?.expr);
        }
        let expr = if negated { Expr::And(tests) } else { Expr::Or(tests) };
        Ok(boolean(fold(expr, self.context)))
    }

    /// `operand IN (items)`, none of which has columns in it.
    fn in_values(&mut self, operand: Typed, items: Vec<Typed>, negated: bool) -> Result<Typed> {
        let mut types: Vec<Type> = vec![operand.ty];
        types.extend(items.iter().map(|item| item.ty));
        let common = if items.len() > 1 { common_type(&types).ok() } else { None };
        let Some(ty) = common else {
            // No common type: each item for itself, if each can be compared.
            return self.one_by_one(operand, items, negated, vec![]);
        };
        // Integers of all widths compare with one another as they are, so an index on the operand
        // stays usable.
        let integers = types.iter().all(|ty| ty.id.is_integer() || ty.id == TypeId::Unknown)
            && operand.ty.id.is_integer();
        let ty = if ty.id == TypeId::Unknown { Self::UNSETTLED } else { ty.plain() };
        self.equality(ty)?;
        if ty.id == TypeId::Record || has_no_order(ty) {
            // Whether they can be compared is only known once they are there.
            return self.one_by_one(operand, items, negated, vec![]);
        }
        let operand = if integers { operand } else { self.convert(operand, ty)? };
        let items = items
            .into_iter()
            .map(|item| {
                let stays = integers && item.ty.id != TypeId::Unknown;
                if stays { Ok(item.expr) } else { Ok(self.convert(item, ty)?.expr) }
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(boolean(fold(make_in_list(operand.expr, items, negated), self.context)))
    }

    fn rows_in_list(&mut self, operands: Vec<Typed>, list: &[Syntax], negated: bool) -> Result<Typed> {
        let mut tests = vec![];
        for row in list {
            let Some(values) = self.row_values(row)?.filter(|values| values.len() == operands.len()) else {
                return Err(SqlError::syntax("unequal number of entries in row expressions"));
            };
            let pairs = operands
                .iter()
                .zip(values)
                .map(|(operand, value)| Ok((self.copy(operand)?, value)))
                .collect::<Result<Vec<_>>>()?;
            tests.push(self.compare_rows(if negated { "<>" } else { "=" }, pairs)?.expr);
        }
        let expr = if negated { Expr::And(tests) } else { Expr::Or(tests) };
        Ok(boolean(fold(expr, self.context)))
    }
}

/// An IN list; long ones of constants get a hash table.
fn make_in_list(operand: Expr, items: Vec<Expr>, negated: bool) -> Expr {
    let mut list = InList { operand, items, negated, constants: None };
    let is_value = |item: &Expr| matches!(item, Expr::Constant(value) if !value.is_null());
    if list.items.iter().filter(|item| is_value(item)).count() > HASHED_LIST {
        let (constants, rest): (Vec<Expr>, Vec<Expr>) = list.items.into_iter().partition(is_value);
        let constants = constants.into_iter().filter_map(|item| match item {
            Expr::Constant(value) => Some(value),
            _ => None,
        });
        list.constants = Some(Arc::new(constants.collect()));
        list.items = rest;
    }
    Expr::InList(Box::new(list))
}
