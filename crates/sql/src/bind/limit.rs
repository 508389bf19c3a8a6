//! LIMIT, OFFSET and FETCH FIRST.

use sqlparser::ast::{self, Expr as Syntax, LimitClause, LockClause, Query as QuerySyntax};

use super::select::lock_name;
use super::{Binder, Body, Clause, Query};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::Expr;
use crate::types::cast::CastContext;
use crate::types::{Datum, TypeId};

impl Binder<'_> {
    /// LIMIT, OFFSET and FETCH FIRST.
    pub(super) fn limits(&mut self, syntax: &QuerySyntax) -> Result<(Option<Expr>, Option<Expr>)> {
        let (mut limit, offset) = match &syntax.limit_clause {
            None => (None, None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
            }
            Some(_) => {
                return Err(SqlError::syntax("LIMIT #,# syntax is not supported")
                    .with_hint("Use separate LIMIT and OFFSET clauses."));
            }
        };
        let one = Syntax::value(ast::Value::Number("1".to_owned(), false));
        if let Some(fetch) = &syntax.fetch {
            if fetch.percent {
                return Err(SqlError::syntax("syntax error at or near \"PERCENT\""));
            }
            limit = Some(fetch.quantity.as_ref().unwrap_or(&one));
        }
        let mut bind = |syntax: Option<&Syntax>, what| match syntax {
            Some(syntax) => self.limit(syntax, what).map(Some),
            None => Ok(None),
        };
        Ok((bind(limit, "LIMIT")?, bind(offset, "OFFSET")?))
    }

    /// What WITH TIES asks for: an order, and a number. 42601, 2201W.
    pub(super) fn check_ties(&self, query: &Query, locks: &[LockClause]) -> Result<()> {
        if query.order.is_empty() {
            return Err(SqlError::syntax("WITH TIES cannot be specified without ORDER BY clause"));
        }
        if matches!(query.limit, Some(Expr::Constant(Datum::Null))) {
            return Err(SqlError::new(
                sqlstate::INVALID_ROW_COUNT_IN_LIMIT_CLAUSE,
                "row count cannot be null in FETCH FIRST ... WITH TIES clause",
            ));
        }
        match locks.first() {
            Some(lock) => Err(self.lacks(format!("{} of FETCH FIRST ... WITH TIES", lock_name(lock)))),
            // Those of a query in parentheses are its own.
            None if matches!(&query.body, Body::Select(select) if !select.locks.is_empty()) => {
                Err(self.lacks("row locks of FETCH FIRST ... WITH TIES"))
            }
            None => Ok(()),
        }
    }

    fn limit(&mut self, syntax: &Syntax, what: &'static str) -> Result<Expr> {
        self.push_level();
        let bound = self.in_clause(Clause::Other(what), |binder| {
            let typed = binder.expression(syntax)?;
            let from = typed.ty;
            let converted = binder.coerce(typed, TypeId::Int8.into(), CastContext::Assignment)?;
            converted.ok_or_else(|| {
                SqlError::new(
                    sqlstate::DATATYPE_MISMATCH,
                    format!("argument of {what} must be type bigint, not type {}", from.id.sql_name()),
                )
            })
        });
        self.pop_level()?;
        Ok(bound?.expr)
    }
}
