//! Operands that are written once but needed twice: BETWEEN, and what else is made of several
//! comparisons.

use sqlparser::ast::Expr as Syntax;

use super::Binder;
use super::expression::boolean;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, SubqueryBody, Typed, fold};

/// The most expressions that are copied in one statement.
const MOST_COPIED: usize = 200_000;

/// The number of expressions in this one, those in subqueries too.
fn size(expr: &Expr) -> usize {
    let mut count = 0;
    expr.visit(&mut |inner| {
        count += 1;
        if let Expr::Subquery(subquery) = inner
            && let SubqueryBody::Bound(query) = &subquery.body
        {
            query.for_each_expr(&mut |within, _| count += size(within));
        }
    });
    count
}

impl Binder<'_> {
    /// The operand once more, for an expression that is written out with it twice. 54001 where such
    /// expressions within each other would grow without bound.
    pub(super) fn copy(&mut self, operand: &Typed) -> Result<Typed> {
        self.copied += size(&operand.expr);
        if self.copied > MOST_COPIED {
            return Err(SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, "statement is too complex"));
        }
        Ok(operand.clone())
    }

    pub(super) fn between(
        &mut self,
        operand: &Syntax,
        negated: bool,
        low: &Syntax,
        high: &Syntax,
    ) -> Result<Typed> {
        let operand = self.expression(operand)?;
        let low = self.expression(low)?;
        let high = self.expression(high)?;
        let (first, second) = if negated { ("<", ">") } else { (">=", "<=") };
        let copy = self.copy(&operand)?;
        let low = self.operate(first, copy, low)?.expr;
        let high = self.operate(second, operand, high)?.expr;
        let expr = if negated { Expr::Or(vec![low, high]) } else { Expr::And(vec![low, high]) };
        Ok(boolean(fold(expr, self.context)))
    }
}
