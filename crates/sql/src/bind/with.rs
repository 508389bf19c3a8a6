//! WITH: common table expressions.

use sqlparser::ast::{self, SetExpr, SetOperator, SetQuantifier, TableAlias};

use super::from::{Item, NewRelation};
use super::scope::object_name;
use super::{Binder, Cte, Query, Source};
use crate::error::{Result, SqlError, sqlstate};
use crate::types::Type;

/// A common table expression that names can refer to.
#[derive(Clone, Debug)]
pub(super) struct CteInSight {
    name: String,
    number: usize,
    columns: Vec<(String, Type)>,
    references: usize,
    /// How many queries are around it.
    level: usize,
    /// It refers to one of those.
    correlated: bool,
}

impl Binder<'_> {
    /// The place of the innermost common table expression of this name.
    pub(super) fn cte_in_sight(&self, name: &str) -> Option<usize> {
        self.ctes.iter().rposition(|cte| cte.name == name)
    }

    /// How often each one in sight is referred to.
    pub(super) fn cte_references(&self) -> Vec<usize> {
        self.ctes.iter().map(|cte| cte.references).collect()
    }

    pub(super) fn set_cte_references(&mut self, references: Vec<usize>) {
        for (cte, references) in self.ctes.iter_mut().zip(references) {
            cte.references = references;
        }
    }

    fn correlated_references(&self) -> usize {
        self.ctes.iter().filter(|cte| cte.correlated).map(|cte| cte.references).sum()
    }

    /// A reference to a common table expression.
    pub(super) fn cte(&mut self, place: usize, alias: Option<&TableAlias>, nullable: bool) -> Result<Item> {
        let cte = &self.ctes[place];
        // Its rows belong to one row of the query around it, which only the query it belongs to can tell.
        if cte.correlated && self.levels.len() != cte.level + 1 {
            return Err(
                self.lacks("a WITH query that refers to a query around it, read from a query within,")
            );
        }
        let cte = &mut self.ctes[place];
        cte.references += 1;
        let (number, name) = (cte.number, cte.name.clone());
        let types = cte.columns.iter().map(|(_, ty)| *ty).collect();
        let columns = cte.columns.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)).collect();
        let source = Source::Cte(number);
        self.add_relation(NewRelation { source, schema: None, name: &name, columns, types }, alias, nullable)
    }

    /// Binds WITH and the query it belongs to; the expressions are in sight of `bind` only.
    pub(crate) fn with_ctes(
        &mut self,
        with: &ast::With,
        bind: impl FnOnce(&mut Self) -> Result<Query>,
    ) -> Result<Query> {
        let before = self.ctes.len();
        let mut bound = vec![];
        for cte in &with.cte_tables {
            let name = object_name(&cte.alias.name);
            if self.ctes[before..].iter().any(|known| known.name == name) {
                return Err(SqlError::new(
                    sqlstate::DUPLICATE_ALIAS,
                    format!("WITH query name \"{name}\" specified more than once"),
                ));
            }
            let read = self.correlated_references();
            bound.push(self.bind_cte(cte, name, with.recursive)?);
            if self.correlated_references() != read {
                return Err(
                    self.lacks("a WITH query that refers to a query around it, read from another one,")
                );
            }
        }
        let mut query = bind(self)?;
        for (cte, seen) in bound.iter_mut().zip(self.ctes.drain(before..)) {
            cte.references = seen.references;
        }
        bound.append(&mut query.ctes);
        query.ctes = bound;
        Ok(query)
    }

    fn bind_cte(&mut self, cte: &ast::Cte, name: String, recursive: bool) -> Result<Cte> {
        let number = self.cte_count;
        self.cte_count += 1;
        let materialized = cte.materialized.as_ref().map(|how| *how == ast::CteAsMaterialized::Materialized);
        let query = match cte.query.body.as_ref() {
            SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right } if recursive => {
                let levels = self.ctes.len();
                let left = self.set_expr(left, false)?;
                let columns = cte_columns(&left, &cte.alias, &name)?;
                let level = self.levels.len();
                self.ctes.push(CteInSight {
                    name: name.clone(),
                    number,
                    columns,
                    references: 0,
                    level,
                    correlated: false,
                });
                let bound = self.set_expr(right, true);
                let refers = self.ctes[levels].references > 0;
                self.ctes[levels].references = 0;
                let right = self.recursive_term(&name, &left, bound?)?;
                let distinct = !matches!(set_quantifier, SetQuantifier::All);
                if !refers {
                    // Not recursive after all.
                    return self.plain_union(number, name, left, right, distinct, materialized);
                }
                let plain = cte.query.order_by.is_none() && cte.query.limit_clause.is_none();
                if !plain || cte.query.with.is_some() {
                    return Err(self.lacks("ORDER BY, LIMIT or WITH in a recursive query"));
                }
                self.ctes[levels].correlated = left.is_correlated() || right.is_correlated();
                return Ok(Cte {
                    number,
                    name,
                    query: left,
                    recursive: Some((right, distinct)),
                    references: 0,
                    materialized: Some(true),
                });
            }
            _ => self.query(&cte.query, false)?,
        };
        let correlated = query.is_correlated();
        let level = self.levels.len();
        let columns = cte_columns(&query, &cte.alias, &name)?;
        self.ctes.push(CteInSight { name: name.clone(), number, columns, references: 0, level, correlated });
        // Put in place of a reference it would be one query further in.
        let materialized = if correlated { Some(true) } else { materialized };
        Ok(Cte { number, name, query, recursive: None, references: 0, materialized })
    }

    fn plain_union(
        &mut self,
        number: usize,
        name: String,
        left: Query,
        right: Query,
        distinct: bool,
        materialized: Option<bool>,
    ) -> Result<Cte> {
        let columns = left.columns.clone();
        let operation = super::SetOperation { kind: super::SetKind::Union, all: !distinct, left, right };
        let query = Query::of(super::Body::SetOperation(Box::new(operation)), columns);
        Ok(Cte { number, name, query, recursive: None, references: 0, materialized })
    }

    /// The recursive term must have the shape of the other one.
    fn recursive_term(&mut self, name: &str, left: &Query, right: Query) -> Result<Query> {
        if left.columns.len() != right.columns.len() {
            return Err(SqlError::syntax("each UNION query must have the same number of columns"));
        }
        let wanted: Vec<Type> = left.columns.iter().map(|column| column.ty).collect();
        for (i, (own, other)) in left.columns.iter().zip(&right.columns).enumerate() {
            let common = self.common(&[own.ty, other.ty], "UNION")?;
            if common.id != own.ty.id {
                return Err(SqlError::new(
                    sqlstate::DATATYPE_MISMATCH,
                    format!(
                        "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} overall",
                        i + 1,
                        own.ty.id.sql_name(),
                        common.id.sql_name()
                    ),
                )
                .with_hint("Cast the output of the non-recursive term to the correct type."));
            }
        }
        self.convert_columns(right, &wanted)
    }
}

/// Names and types of the columns, with the alias's names.
fn cte_columns(query: &Query, alias: &TableAlias, name: &str) -> Result<Vec<(String, Type)>> {
    if alias.columns.len() > query.columns.len() {
        return Err(SqlError::new(
            sqlstate::INVALID_COLUMN_REFERENCE,
            format!(
                "WITH query \"{name}\" has {} columns available but {} columns specified",
                query.columns.len(),
                alias.columns.len()
            ),
        ));
    }
    let mut columns: Vec<(String, Type)> =
        query.columns.iter().map(|column| (column.name.clone(), column.ty)).collect();
    for (column, alias) in columns.iter_mut().zip(&alias.columns) {
        column.0 = object_name(&alias.name);
    }
    Ok(columns)
}
