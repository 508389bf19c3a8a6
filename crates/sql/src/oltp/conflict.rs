//! INSERT ... ON CONFLICT.
//!
//! The *arbiters* are the unique indexes whose conflicts the clause is about. Before a row is
//! inserted its keys there are locked; if one is held, DO NOTHING skips the row and DO UPDATE
//! changes the holder. The lock makes sure that the answer stays true, so unlike a plain INSERT the
//! statement never fails on an arbiter. DO NOTHING waits only for who makes, changes or takes away
//! what is in its way, and for nobody who has locked it otherwise. With a row that it skips the
//! locks go that were taken for it, as in PostgreSQL: that somebody has the key is what the
//! snapshot shows, and under READ COMMITTED need be true for a moment only.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use cognate_engine::{Isolation, LockMode};
use sqlparser::ast;

use super::deferred_unique::not_at_once;
use super::index_maintenance::{columns_into, entry};
use super::indexed::Indexed;
use super::inference;
use super::run::{Checks, Run};
use super::source::Pieces;
use super::stored::decode;
use super::subject::{Subject, ViewChecks};
use super::update::{Assignments, assigned_names, bind_assignments};
use super::write::leaving;
use crate::bind::{Binder, Clause};
use crate::catalog::{Index, Table};
use crate::ddl::names::single;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::Expr;
use crate::session::work::Work;
use crate::types::Datum;

/// A bound ON CONFLICT clause.
#[derive(Debug)]
pub(crate) struct Conflict {
    /// Oids of the indexes.
    arbiters: Vec<u32>,
    /// Places of the columns that the clause names them by, if it does.
    target: Option<Vec<usize>>,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Nothing,
    /// Over a frame of the existing row, then, from a slot on, the row that was to be inserted
    /// (`excluded`). What is in between is not read.
    Update {
        excluded: usize,
        assignments: Assignments,
        condition: Option<Expr>,
        /// What the existing row must meet to be in the view that the new one is put into.
        shown: ViewChecks,
    },
}

/// What became of a row that was to be inserted.
pub(crate) enum Outcome {
    /// No conflict: insert it.
    Free,
    /// Nothing was done.
    Skipped,
    /// The existing row was changed to this.
    Updated(Vec<Datum>),
}

impl Conflict {
    /// DO UPDATE?
    pub(crate) fn updates(&self) -> bool {
        matches!(self.action, Action::Update { .. })
    }

    /// Places of the columns that are read to say what is in the way; none if nothing is said.
    pub(crate) fn reads(&self) -> Option<&[usize]> {
        self.target.as_deref()
    }

    /// Places of the columns that DO UPDATE sets.
    pub(crate) fn updated(&self) -> Option<&[usize]> {
        match &self.action {
            Action::Nothing => None,
            Action::Update { assignments, .. } => Some(assignments.places()),
        }
    }

    /// Makes its expressions ready to be evaluated.
    pub(crate) fn plan(&mut self, binder: &Binder<'_>, pieces: &mut Pieces) -> Result<()> {
        let Action::Update { assignments, condition, shown, .. } = &mut self.action else { return Ok(()) };
        assignments.plan(binder, pieces)?;
        shown.plan(binder, pieces)?;
        pieces.expressions(binder, condition.as_mut_slice())
    }
}

/// Binds the clause.
pub(crate) fn bind(
    binder: &mut Binder<'_>,
    subject: &Subject,
    alias: Option<&ast::TableAlias>,
    on: &ast::OnConflict,
) -> Result<Conflict> {
    let (arbiters, target) = arbiters(binder, subject, on)?;
    let action = match &on.action {
        ast::OnConflictAction::DoNothing => Action::Nothing,
        ast::OnConflictAction::DoUpdate(update) => {
            if on.conflict_target.is_none() {
                return Err(SqlError::syntax(
                    "ON CONFLICT DO UPDATE requires inference specification or constraint name",
                )
                .with_hint("For example, ON CONFLICT (column_name)."));
            }
            subject.check_columns(update.assignments.iter().flat_map(assigned_names))?;
            let shown = subject.open_shown(binder, alias)?;
            let bound = bind_update(binder, subject, update, shown);
            binder.pop_level()?;
            bound?
        }
    };
    Ok(Conflict { arbiters, target, action })
}

/// Puts `excluded` beside what is changed: qualified names only. Its first slot.
fn add_excluded(binder: &mut Binder<'_>, subject: &Subject) -> Result<usize> {
    let alias =
        ast::TableAlias { explicit: true, name: ast::Ident::new("excluded"), columns: Vec::new(), at: None };
    let (_, names) = binder.stored_table(&subject.table, Some(&alias), false)?;
    let level = binder.level()?;
    let start = level.select.slots.len();
    let relation = level.select.relations.len() - 1;
    for place in 0..subject.table.columns.len() {
        level.slot(relation, place);
    }
    match subject.is_view() {
        true => binder.name_excluded(start)?,
        false => {
            // An unqualified name means the existing row.
            level.namespace.tables.extend(names.tables);
            // Who reads a column of `excluded` needs that of the table.
            binder.need_what_names_read(&subject.table)?;
        }
    }
    Ok(start)
}

fn bind_update(
    binder: &mut Binder<'_>,
    subject: &Subject,
    update: &ast::DoUpdate,
    shown: ViewChecks,
) -> Result<Action> {
    let excluded = add_excluded(binder, subject)?;
    let assignments = bind_assignments(binder, &subject.assigned(), &update.assignments)?;
    let condition = match &update.selection {
        None => None,
        Some(condition) => Some(binder.in_clause(Clause::Where, |binder| {
            let typed = binder.expression(condition)?;
            binder.condition(typed, "WHERE")
        })?),
    };
    Ok(Action::Update { excluded, assignments, condition, shown })
}

/// 55000 if one of these indexes is a constraint's that may be checked later.
pub(super) fn check_at_once<'a>(table: &Table, indexes: impl IntoIterator<Item = &'a Index>) -> Result<()> {
    let Some(index) = indexes.into_iter().find(|index| index.deferrable.is_some()) else { return Ok(()) };
    let what = "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters";
    Err(not_at_once(what).with_table(&table.schema_name, &table.name).with_constraint(&index.name))
}

/// Oids of the indexes, and places of the columns that they are named by.
type Arbiters = (Vec<u32>, Option<Vec<usize>>);

fn arbiters(binder: &mut Binder<'_>, subject: &Subject, on: &ast::OnConflict) -> Result<Arbiters> {
    let table = &subject.table;
    match &on.conflict_target {
        None => {
            check_at_once(table, &table.indexes)?;
            let unique = table.indexes.iter().filter(|index| index.unique);
            Ok((unique.map(|index| index.oid).collect(), None))
        }
        Some(ast::ConflictTarget::OnConstraint(name)) => {
            let name = single(name)?;
            let is_meant = |index: &&Index| index.constraint.is_some() && index.name == name;
            // A view has no constraints of its own.
            let index = table.indexes.iter().find(is_meant).filter(|_| !subject.is_view());
            check_at_once(table, index)?;
            index.map(|index| (vec![index.oid], Some(index.key_columns().collect()))).ok_or_else(|| {
                SqlError::new(
                    sqlstate::UNDEFINED_OBJECT,
                    format!("constraint \"{name}\" for table \"{}\" does not exist", subject.named.name),
                )
            })
        }
        Some(ast::ConflictTarget::Columns(columns)) => {
            let (arbiters, read) = inference::arbiters(binder, subject, columns)?;
            Ok((arbiters, Some(read)))
        }
    }
}

impl Work<'_> {
    /// Looks for a row in the way of `row`, and does what the clause says about it.
    pub(crate) async fn resolve_conflict(
        &mut self,
        table: &Arc<Table>,
        conflict: &Conflict,
        checks: &Checks,
        run: &mut Run,
        row: &[Datum],
        touched: &mut HashSet<Bytes>,
    ) -> Result<Outcome> {
        let computed = self.computed(table, row)?;
        let indexed = Indexed::new(row, &computed);
        loop {
            let locks = self.engine.lock_count();
            let Some(holder) = self.holder(table, conflict, indexed).await? else {
                return Ok(Outcome::Free);
            };
            let Action::Update { excluded, assignments, condition, shown } = &conflict.action else {
                return self.skip(table, &holder, locks);
            };
            let Some(existing) = self.lock_holder(table, conflict, &holder, indexed, touched).await? else {
                continue;
            };
            shown.test_shown(self, run, &existing)?;
            let mut frame = existing.clone();
            frame.resize(*excluded, Datum::Null);
            frame.extend_from_slice(row);
            if let Some(condition) = condition
                && !run.holds(self, condition, &frame)?
            {
                return Ok(Outcome::Skipped);
            }
            let mut updated = existing.clone();
            assignments.apply(self, run, &frame, &mut updated)?;
            checks.complete(self, table, &mut updated)?;
            let new_key = self.update_row(table, &holder, &existing, &updated).await?;
            touched.insert(new_key);
            return Ok(Outcome::Updated(updated));
        }
    }

    /// DO NOTHING under snapshot isolation must not hide a row that the snapshot cannot see.
    /// Nothing is held for one that is skipped: so many `locks` were held before. What the answer
    /// rests on is noted without them (`Transaction::rest_on`, `note_read`).
    fn skip(&mut self, table: &Table, holder: &[u8], locks: usize) -> Result<Outcome> {
        if self.engine.isolation() != Isolation::ReadCommitted
            && self.engine.own(table.tree, holder)?.is_none()
            && self.engine.changed(table.tree, holder)?.is_some()
        {
            return Err(self.newer("update", table.tree, holder));
        }
        if !self.state.locks_reads {
            self.engine.unlock_since(locks);
        }
        Ok(Outcome::Skipped)
    }

    /// The row key of the first row that has one of the row's keys in an arbiter; locks the keys.
    async fn holder(
        &mut self,
        table: &Table,
        conflict: &Conflict,
        row: Indexed<'_>,
    ) -> Result<Option<Bytes>> {
        for oid in &conflict.arbiters {
            let Some(index) = table.index(*oid) else { continue };
            if index.is_clustered() {
                let mut key = Vec::new();
                columns_into(index, row, &mut key);
                if !conflict.updates() && self.has_row_at(table, &key)? {
                    self.engine.note_read(table.tree, &key);
                    return Ok(Some(key.into()));
                }
                if self.lock_unique_key(table, table.tree, &key, LockMode::NoKeyExclusive).await?.is_some() {
                    self.engine.note_read(table.tree, &key);
                    return Ok(Some(key.into()));
                }
                continue;
            }
            let Some(entry) = entry(index, row, &[]).filter(|entry| !entry.has_null) else { continue };
            let against = match conflict.updates() {
                true => LockMode::NoKeyExclusive,
                false => leaving(index),
            };
            if let Some(holder) = self.lock_unique_key(table, index.tree, &entry.key, against).await? {
                self.engine.note_read(index.tree, &entry.key);
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }

    /// Locks the row in the way; what it is now, or `None` if it is not in the way any more.
    async fn lock_holder(
        &mut self,
        table: &Arc<Table>,
        conflict: &Conflict,
        holder: &Bytes,
        row: Indexed<'_>,
        touched: &HashSet<Bytes>,
    ) -> Result<Option<Vec<Datum>>> {
        if touched.contains(holder) || self.engine.has_written_since(&self.view, table.tree, holder) {
            return Err(SqlError::new(
                sqlstate::CARDINALITY_VIOLATION,
                "ON CONFLICT DO UPDATE command cannot affect row a second time",
            )
            .with_hint(
                "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
            ));
        }
        // Under READ COMMITTED the newest version counts; otherwise one that the snapshot cannot
        // see is a failure.
        self.lock_row(table, holder, LockMode::NoKeyExclusive).await?;
        let Some(bytes) = self.key_holder(table.tree, holder)? else { return Ok(None) };
        self.engine.note_read(table.tree, holder);
        let existing = decode(table, &bytes)?;
        let computed = self.computed(table, &existing)?;
        let now = Indexed::new(&existing, &computed);
        let in_the_way = conflict.arbiters.iter().filter_map(|oid| table.index(*oid)).any(|index| {
            let (mut theirs, mut ours) = (Vec::new(), Vec::new());
            let both = now.is_in(index) && row.is_in(index);
            both && !(columns_into(index, now, &mut theirs) | columns_into(index, row, &mut ours))
                && theirs == ours
        });
        Ok(in_the_way.then_some(existing))
    }
}
