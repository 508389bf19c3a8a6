//! What is settled on the syntax tree before DataFusion plans it: PostgreSQL's names of output columns, and what DataFusion would
//! pass over in silence.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, SetExpr, Statement, TableFactor, VisitMut, VisitorMut,
};

use super::mapping;
use crate::bind::{figure_name, resolve_type};
use crate::error::{Result, SqlError};
use crate::types::TypeId;

/// Ends the name of an output column that another one has too; DataFusion wants them distinct.
const MARK: char = '\u{1}';

/// The statement with every output column named. 0A000.
pub(super) fn prepare(statement: &Statement) -> Result<Statement> {
    let mut statement = statement.clone();
    match statement.visit(&mut Prepare) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(statement),
    }
}

/// An output column's name without what [`prepare`] put behind it.
pub(super) fn shown_name(name: &str) -> &str {
    name.split(MARK).next().unwrap_or(name)
}

struct Prepare;

impl VisitorMut for Prepare {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        if let Some(lock) = query.locks.first() {
            return refuse(lock);
        }
        if let Some(fetch) = query.fetch.as_ref().filter(|fetch| fetch.with_ties || fetch.percent) {
            return refuse(fetch);
        }
        name_outputs(&mut query.body)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        match factor {
            TableFactor::Table { sample: None, args: None, with_hints, .. } if with_hints.is_empty() => {}
            TableFactor::Derived { .. } | TableFactor::NestedJoin { .. } => {}
            other => return refuse(other),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let data_type = match expr {
            Expr::Cast { data_type, .. } => data_type,
            Expr::TypedString(literal) => &literal.data_type,
            Expr::AtTimeZone { .. } | Expr::Collate { .. } => return refuse(expr),
            _ => return ControlFlow::Continue(()),
        };
        let ty = match resolve_type(data_type) {
            Ok(ty) => ty,
            Err(error) => return ControlFlow::Break(error),
        };
        if ty.modifier >= 0 && ty.id != TypeId::Numeric {
            return refuse(format!("type {}", ty.format()));
        }
        match mapping::arrow_type(ty) {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn refuse(what: impl std::fmt::Display) -> ControlFlow<SqlError> {
    ControlFlow::Break(SqlError::unsupported(format!("\"{what}\" in this kind of query")))
}

fn name_outputs(body: &mut SetExpr) -> ControlFlow<SqlError> {
    match body {
        SetExpr::Select(select) => name_targets(select),
        SetExpr::SetOperation { left, right, .. } => {
            name_outputs(left)?;
            name_outputs(right)
        }
        // A query within parentheses is visited by itself.
        _ => ControlFlow::Continue(()),
    }
}

fn name_targets(select: &mut Select) -> ControlFlow<SqlError> {
    if let Some(into) = &select.into {
        return refuse(into);
    }
    let mut names: HashSet<String> = HashSet::new();
    for item in &mut select.projection {
        let name = match item {
            SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => continue,
            SelectItem::UnnamedExpr(expr) => figure_name(expr),
            SelectItem::ExprWithAlias { alias, .. } => crate::bind::object_name(alias),
            _ => continue,
        };
        let mut distinct = name.clone();
        while !names.insert(distinct.clone()) {
            distinct.push(MARK);
        }
        let alias = Ident::with_quote('"', distinct);
        *item = match std::mem::replace(item, SelectItem::Wildcard(Default::default())) {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                SelectItem::ExprWithAlias { expr, alias }
            }
            other => other,
        };
    }
    ControlFlow::Continue(())
}
