//! What indexes compute of a row, their expressions and predicates, and what generated columns are:
//! bound over it.
//!
//! They are bound once for each version of a table, which keeps them ([`bound_computed`]), whoever
//! comes first. So they must mean the same to everybody: the search path is empty while they are
//! bound, and functions of users cannot be called. DDL sees to it that the text names types with
//! their schemas, and that nothing in it depends on a session.
//!
//! The row's frame has the table's columns at their places.

use std::sync::Arc;

use sqlparser::ast::Expr as Syntax;

use super::{BindContext, Binder, Clause, refuse_subquery};
use crate::catalog::{Index, Oid, Table};
use crate::error::Result;
use crate::expr::{Expr, Typed};
use crate::parse::parse_expression;
use crate::types::bounds;
use crate::types::cast::CastContext;

/// What is computed of a table's rows.
#[derive(Debug)]
pub(crate) struct BoundComputed {
    /// Those that compute anything.
    pub(crate) indexes: Vec<BoundIndex>,
    /// Number of places of what they compute.
    pub(crate) places: usize,
    /// Places of generated columns, with what they are.
    pub(crate) generated: Vec<(usize, Expr)>,
}

/// What one index computes.
#[derive(Debug)]
pub(crate) struct BoundIndex {
    /// Oid of the index.
    pub(crate) oid: Oid,
    /// The predicate with its place.
    pub(crate) predicate: Option<(usize, Expr)>,
    /// The parts of the predicate, all of which must be TRUE.
    pub(crate) conjuncts: Vec<Expr>,
    /// The expressions with their places.
    pub(crate) expressions: Vec<(usize, Expr)>,
}

impl BoundComputed {
    /// What this index computes.
    pub(crate) fn of(&self, index: &Index) -> Option<&BoundIndex> {
        self.indexes.iter().find(|bound| bound.oid == index.oid)
    }
}

/// What the table's indexes compute, if somebody has bound that.
pub(crate) fn bound_computed(table: &Table) -> Option<Arc<BoundComputed>> {
    table.bound_computed()?.downcast().ok()
}

/// The same, bound if nobody has.
pub(crate) fn bind_computed(context: &BindContext<'_>, table: &Table) -> Result<Arc<BoundComputed>> {
    if let Some(bound) = bound_computed(table) {
        return Ok(bound);
    }
    let context = BindContext { search_path: &[], ..*context };
    let shared = Arc::new(table.clone());
    let computing = table.indexes.iter().filter(|index| !index.is_plain());
    let indexes = computing.map(|index| bind_index(&context, &shared, index)).collect::<Result<_>>()?;
    let mut generated = Vec::new();
    for (place, column) in table.visible_columns() {
        if let Some(computed) = &column.generated {
            let syntax = parse_expression(&computed.text)?;
            let bound = Binder::new(&context, &[]).generated_column(&shared, place, &syntax)?;
            generated.push((place, bound.expr));
        }
    }
    let bound = Arc::new(BoundComputed { indexes, places: table.free_place(), generated });
    // It is kept for others: a list of constants must not have been put together wrongly.
    bounds::check()?;
    table.keep_bound_computed(bound.clone());
    Ok(bound)
}

fn bind_index(context: &BindContext<'_>, table: &Arc<Table>, index: &Index) -> Result<BoundIndex> {
    let mut binder = Binder::new(context, &[]);
    let predicate = match &index.predicate {
        None => None,
        Some(predicate) => {
            Some((predicate.place, binder.index_predicate(table, &parse_expression(&predicate.text)?)?))
        }
    };
    let mut conjuncts = Vec::new();
    if let Some((_, predicate)) = &predicate {
        predicate.clone().into_conjuncts(&mut conjuncts);
    }
    let mut expressions = Vec::with_capacity(index.expressions.len());
    for expression in &index.expressions {
        let bound = binder.index_expression(table, &parse_expression(&expression.text)?)?;
        expressions.push((expression.place, bound.expr));
    }
    Ok(BoundIndex { oid: index.oid, predicate, conjuncts, expressions })
}

impl Binder<'_> {
    /// An expression of an index over a row of the table. 0A000, 42803 and the like for what cannot
    /// be computed from a row.
    pub(crate) fn index_expression(&mut self, table: &Arc<Table>, syntax: &Syntax) -> Result<Typed> {
        self.over_row(table, Clause::INDEX_EXPRESSION, |binder| binder.row_expression(syntax))
    }

    /// The same over the row of the open level.
    pub(crate) fn row_expression(&mut self, syntax: &Syntax) -> Result<Typed> {
        let typed = self.expression(syntax)?;
        let typed = self.settle(typed)?;
        refuse_subquery(&typed.expr, "index expression")?;
        Ok(typed)
    }

    /// The predicate of an index, likewise. 42804 if it is not boolean.
    pub(crate) fn index_predicate(&mut self, table: &Arc<Table>, syntax: &Syntax) -> Result<Expr> {
        self.over_row(table, Clause::INDEX_PREDICATE, |binder| binder.row_predicate(syntax))
    }

    /// The same over the row of the open level.
    pub(crate) fn row_predicate(&mut self, syntax: &Syntax) -> Result<Expr> {
        let typed = self.expression(syntax)?;
        let condition = self.condition(typed, "WHERE")?;
        refuse_subquery(&condition, "index predicate")?;
        Ok(condition)
    }

    /// What a generated column is, likewise, as a value of the column's type.
    pub(crate) fn generated_column(
        &mut self,
        table: &Arc<Table>,
        place: usize,
        syntax: &Syntax,
    ) -> Result<Typed> {
        let column = &table.columns[place];
        self.over_row(table, Clause::GENERATED_COLUMN, |binder| {
            let typed = binder.expression(syntax)?;
            refuse_subquery(&typed.expr, "column generation expression")?;
            let from = typed.ty;
            // What the column's domain asks of it is tested with the row.
            let coerced = binder.coerce_unchecked(typed, column.ty, CastContext::Assignment)?;
            coerced.ok_or_else(|| binder.unlike_column(&column.name, column.ty, from))
        })
    }

    fn over_row<T>(
        &mut self,
        table: &Arc<Table>,
        clause: Clause,
        bind: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        // The text is the catalog's, or not where the statement's parser left it.
        let positions = std::mem::replace(&mut self.positions, false);
        self.push_level();
        let bound = self.open_row(table).and_then(|()| self.in_clause(clause, bind));
        self.pop_level()?;
        self.positions = positions;
        bound
    }

    fn open_row(&mut self, table: &Arc<Table>) -> Result<()> {
        let (tree, names) = self.stored_relation(table, None, false)?;
        let level = self.level()?;
        level.select.from.push(tree);
        level.namespace.extend(names)?;
        for place in 0..table.columns.len() {
            level.slot(0, place);
        }
        Ok(())
    }
}
