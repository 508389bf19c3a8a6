//! Subqueries within expressions.

use std::sync::atomic::{AtomicU64, Ordering};

use sqlparser::ast::{Expr as Syntax, Query as QuerySyntax};

use super::{Binder, Query};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Subquery, SubqueryBody, SubqueryKind, Typed};
use crate::function::operator::{self, Comparison};
use crate::session::OutputColumn;
use crate::types::{Type, TypeId};

/// Numbers for rows whose columns belong together: plans are shared, and views are bound on their
/// own.
static ROWS: AtomicU64 = AtomicU64::new(0);

fn subquery(kind: SubqueryKind, query: Query) -> Expr {
    Expr::Subquery(Box::new(Subquery { kind, body: SubqueryBody::Bound(Box::new(query)) }))
}

/// 0A000 if there is a subquery where none can be.
pub(crate) fn refuse_subquery(expr: &Expr, what: &str) -> Result<()> {
    if !expr.has_subquery() {
        return Ok(());
    }
    Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("cannot use subquery in {what}")))
}

impl Binder<'_> {
    /// A query within an expression.
    fn query_within(&mut self, syntax: &QuerySyntax) -> Result<Query> {
        self.out_of_recursion("a subquery", |binder| binder.query_in_statement(syntax, false))
    }

    /// A query used as a value.
    pub(crate) fn scalar_subquery(&mut self, syntax: &QuerySyntax) -> Result<Typed> {
        let query = self.query_within(syntax)?;
        let ty = single_column(&query)?;
        Ok(Typed::new(subquery(SubqueryKind::Scalar, query), ty))
    }

    pub(crate) fn exists(&mut self, syntax: &QuerySyntax, negated: bool) -> Result<Typed> {
        let query = self.query_within(syntax)?;
        let exists = subquery(SubqueryKind::Exists, query);
        let expr = if negated { Expr::Not(Box::new(exists)) } else { exists };
        Ok(Typed::new(expr, TypeId::Bool))
    }

    pub(crate) fn array_subquery(&mut self, syntax: &QuerySyntax) -> Result<Typed> {
        let query = self.query_within(syntax)?;
        let element = single_column(&query)?;
        // Arrays are stacked up to one with a dimension more.
        let plain = if element.id.is_array() { element.plain() } else { element.parameter() };
        let ty = super::type_name::array(plain)?;
        Ok(Typed::new(subquery(SubqueryKind::Array(element.id), query), ty))
    }

    pub(crate) fn in_subquery(
        &mut self,
        operand: &Syntax,
        syntax: &QuerySyntax,
        negated: bool,
    ) -> Result<Typed> {
        let any = self.quantified_subquery(operand, "=", syntax, false)?;
        let expr = if negated { Expr::Not(Box::new(any.expr)) } else { any.expr };
        Ok(Typed::new(expr, TypeId::Bool))
    }

    /// `operand operator ANY (subquery)` or ALL.
    pub(crate) fn quantified_subquery(
        &mut self,
        operand: &Syntax,
        name: &str,
        syntax: &QuerySyntax,
        all: bool,
    ) -> Result<Typed> {
        let operands = match self.row_values(operand)? {
            Some(values) => values,
            None => vec![self.expression(operand)?],
        };
        if operands.len() > 1 && !matches!(name, "=" | "<>") {
            return Err(self.lacks("an ordering comparison of a row with ANY or ALL of a subquery"));
        }
        let query = self.query_within(syntax)?;
        check_width(operands.len(), query.columns.len())?;
        // A row differs from another if one pair does: <> ALL is NOT (= ANY), <> ANY is NOT (=
        // ALL).
        let (name, all, negated) =
            if operands.len() > 1 && name == "<>" { ("=", !all, true) } else { (name, all, false) };
        let mut operators = vec![];
        let mut converted = vec![];
        let mut wanted = vec![];
        for (operand, column) in operands.into_iter().zip(&query.columns) {
            let operator = operator::resolve(name, Some(operand.ty), column.ty)?;
            let left = operator.left.unwrap_or(operand.ty);
            converted.push(self.convert(operand, left)?.expr);
            wanted.push(operator.right);
            operators.push(operator);
        }
        let hashable = !all
            && operators.iter().all(|operator| {
                operator.comparison() == Some(Comparison::Equal)
                    && operator.left.is_some_and(|left| {
                        left.id == operator.right.id
                            || (left.id.is_integer() && operator.right.id.is_integer())
                    })
            });
        let query = self.convert_columns(query, &wanted)?;
        let any = subquery(SubqueryKind::Any { operands: converted, operators, hashable, all }, query);
        let expr = if negated { Expr::Not(Box::new(any)) } else { any };
        Ok(Typed::new(expr, TypeId::Bool))
    }

    /// `(a, b) = (SELECT ...)`: compares with the only row.
    pub(crate) fn row_against_subquery(
        &mut self,
        operands: Vec<Typed>,
        name: &str,
        syntax: &QuerySyntax,
    ) -> Result<Typed> {
        let query = self.row_query(syntax, operands.len())?;
        let comparison = match name {
            "=" => Comparison::Equal,
            "<>" => Comparison::NotEqual,
            // The others look at the columns in order.
            _ => {
                let pairs = operands.into_iter().zip(row_columns(&query, true)).collect();
                return self.compare_rows(name, pairs);
            }
        };
        let is_plain = |(operand, column): (&Typed, &OutputColumn)| {
            let operator = self.operator(name, operand.ty, column.ty);
            operator.is_ok_and(|operator| operator.comparison() == Some(comparison))
        };
        // A comparison that falls into parts can be looked up in an index, but its parts come in
        // any order.
        let is_whole = !operands.is_empty()
            && is_for_each_row(&query)
            && operands.iter().zip(&query.columns).all(is_plain);
        let pairs = operands.into_iter().zip(row_columns(&query, is_whole)).collect();
        match is_whole {
            true => self.compare_in_order(comparison, pairs),
            false => self.compare_rows(name, pairs),
        }
    }

    /// The columns of a subquery's only row, as values. `in_order` says that they will be evaluated
    /// one after the other, the first one first.
    pub fn row_subquery(&mut self, syntax: &QuerySyntax, width: usize, in_order: bool) -> Result<Vec<Typed>> {
        let query = self.row_query(syntax, width)?;
        Ok(row_columns(&query, in_order))
    }

    /// A subquery of so many columns. 42601.
    fn row_query(&mut self, syntax: &QuerySyntax, width: usize) -> Result<Query> {
        let query = self.query_within(syntax)?;
        check_width(width, query.columns.len())?;
        Ok(query)
    }
}

/// The columns of a query's only row, as values.
fn row_columns(query: &Query, in_order: bool) -> Vec<Typed> {
    let row = ROWS.fetch_add(1, Ordering::Relaxed);
    let value = |(column, output): (usize, &OutputColumn)| {
        let kind = SubqueryKind::Shared { column, row, in_order, once: false };
        Typed::new(subquery(kind, query.clone()), output.ty)
    };
    query.columns.iter().enumerate().map(value).collect()
}

/// Whether a subquery is to be run for each row of the level that it stands in: it refers to the
/// row, or to one further out and gives another result each time.
fn is_for_each_row(query: &Query) -> bool {
    let (mut reads_row, mut is_volatile) = (false, false);
    query.for_each_expr(&mut |expr, nested| {
        is_volatile |= expr.is_volatile();
        expr.for_each_aggregate(nested + 1, &mut |depth| reads_row |= depth == 0);
        expr.for_each_reference(nested + 1, &mut |depth, _| reads_row |= depth == 0);
    });
    reads_row || (is_volatile && query.is_correlated())
}

fn single_column(query: &Query) -> Result<Type> {
    match query.columns.as_slice() {
        [column] => Ok(column.ty),
        _ => Err(SqlError::syntax("subquery must return only one column")),
    }
}

fn check_width(operands: usize, columns: usize) -> Result<()> {
    match columns.cmp(&operands) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => Err(SqlError::syntax("subquery has too few columns")),
        std::cmp::Ordering::Greater => Err(SqlError::syntax("subquery has too many columns")),
    }
}
