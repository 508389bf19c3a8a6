//! Which unique indexes ON CONFLICT means by what it says of them: those over just these columns
//! and expressions, and of the partial ones those whose predicate follows from its WHERE.

use std::sync::Arc;

use sqlparser::ast;

use super::conflict::check_at_once;
use super::subject::Subject;
use crate::bind::{Binder, BoundComputed, Clause, bind_computed};
use crate::catalog::{Index, IndexKey, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed, same};
use crate::identifier::fold;
use crate::parse::{ConflictTarget, conflict_target};
use crate::plan::implies;

/// What the clause says, bound.
#[derive(Default)]
struct Wanted {
    /// Columns, in order, each once.
    columns: Vec<usize>,
    expressions: Vec<Expr>,
    /// The parts of its WHERE.
    conditions: Vec<Expr>,
}

/// Oids of the indexes, and places of the columns that the clause reads. 42P10 if there is no
/// index.
pub(super) fn arbiters(
    binder: &mut Binder<'_>,
    subject: &Subject,
    columns: &[ast::Ident],
) -> Result<(Vec<u32>, Vec<usize>)> {
    let table = &subject.table;
    let wanted = match conflict_target(columns)? {
        target if subject.is_view() => {
            let target = target.unwrap_or_else(|| ConflictTarget {
                parts: columns.iter().cloned().map(ast::Expr::Identifier).collect(),
                predicate: None,
            });
            bind_of_view(binder, subject, &target)?
        }
        None => {
            let places = columns.iter().map(|name| place(binder, table, name)).collect::<Result<Vec<_>>>()?;
            Wanted { columns: places, ..Wanted::default() }.in_order()
        }
        Some(target) => bind(binder, table, &target)?,
    };
    let bound = if table.has_computed() { Some(bind_computed(binder.context, table)?) } else { None };
    let fits = |index: &&Index| wanted.fits(index, bound.as_deref());
    let found: Vec<&Index> = table.indexes.iter().filter(fits).collect();
    check_at_once(table, found.iter().copied())?;
    if found.is_empty() {
        return Err(SqlError::new(
            sqlstate::INVALID_COLUMN_REFERENCE,
            "there is no unique or exclusion constraint matching the ON CONFLICT specification",
        ));
    }
    Ok((found.iter().map(|index| index.oid).collect(), wanted.read()))
}

fn place(binder: &Binder<'_>, table: &Table, name: &ast::Ident) -> Result<usize> {
    let name = fold(name);
    let place = table.column_place(&name).ok_or_else(|| {
        SqlError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))
    })?;
    // It is an expression: in a DO block a variable's name is as ambiguous as anywhere.
    binder.check_variable(&[name])?;
    Ok(place)
}

fn bind(binder: &mut Binder<'_>, table: &Arc<Table>, target: &ConflictTarget) -> Result<Wanted> {
    let mut wanted = Wanted::default();
    for part in &target.parts {
        let typed = binder.index_expression(table, part)?;
        wanted.add(table, typed);
    }
    if let Some(predicate) = &target.predicate {
        binder.index_predicate(table, predicate)?.into_conjuncts(&mut wanted.conditions);
    }
    Ok(wanted.in_order())
}

/// The same for a view, whose columns may be expressions over the table's.
fn bind_of_view(binder: &mut Binder<'_>, subject: &Subject, target: &ConflictTarget) -> Result<Wanted> {
    subject.open(binder, None)?;
    let bound = bind_over_view(binder, &subject.table, target);
    binder.pop_level()?;
    bound.map_err(|mut error| {
        // The text may be another one than the statement's.
        error.position = None;
        error
    })
}

fn bind_over_view(binder: &mut Binder<'_>, table: &Table, target: &ConflictTarget) -> Result<Wanted> {
    let mut wanted = Wanted::default();
    for part in &target.parts {
        let typed = binder.in_clause(Clause::INDEX_EXPRESSION, |binder| binder.row_expression(part))?;
        wanted.add(table, typed);
    }
    if let Some(predicate) = &target.predicate {
        let predicate =
            binder.in_clause(Clause::INDEX_PREDICATE, |binder| binder.row_predicate(predicate))?;
        predicate.into_conjuncts(&mut wanted.conditions);
    }
    Ok(wanted.in_order())
}

impl Wanted {
    /// One more part: a column of the table, or an expression.
    fn add(&mut self, table: &Table, part: Typed) {
        match part.expr {
            Expr::Slot(place) if table.columns[place].ty == part.ty => self.columns.push(place),
            expr => self.expressions.push(expr),
        }
    }

    fn in_order(mut self) -> Wanted {
        self.columns.sort_unstable();
        self.columns.dedup();
        self
    }

    /// Places of all columns that are named.
    fn read(&self) -> Vec<usize> {
        let mut read = self.columns.clone();
        for expr in self.expressions.iter().chain(&self.conditions) {
            expr.for_each_slot(&mut |slot| read.push(slot));
        }
        read
    }

    fn fits(&self, index: &Index, bound: Option<&BoundComputed>) -> bool {
        if !index.is_unique() {
            return false;
        }
        let mut columns: Vec<usize> = index.key_columns().collect();
        columns.sort_unstable();
        columns.dedup();
        let computing = bound.and_then(|bound| bound.of(index));
        let expressions = computing.map_or(&[][..], |computing| &computing.expressions);
        let conjuncts = computing.map_or(&[][..], |computing| &computing.conjuncts);
        debug_assert!(
            computing.is_some() || index.columns.iter().all(|c| matches!(c.key, IndexKey::Column(_)))
        );
        let conditions: Vec<(usize, &Expr)> = self.conditions.iter().enumerate().collect();
        columns == self.columns
            && expressions.iter().all(|(_, one)| self.expressions.iter().any(|asked| same(asked, one)))
            && self.expressions.iter().all(|asked| expressions.iter().any(|(_, one)| same(asked, one)))
            && conjuncts.iter().all(|conjunct| implies(&conditions, conjunct).is_some())
    }
}
