//! UPDATE.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use cognate_engine::LockMode;
use sqlparser::ast;

use super::assigned_list::bind_list;
use super::index_maintenance::differs;
use super::indexed::Indexed;
use super::returning::{Changed, Returning};
use super::run::{Checks, Run, default_of, generated_always, is_default, is_generated};
use super::source::{Pieces, Places, WithQueries};
use super::stored::decode;
use super::subject::{Change, Subject, ViewChecks};
use super::target::{Access, Target, as_key};
use super::write::Locked;
use crate::bind::{Binder, Clause, names_columns};
use crate::catalog::{Column, Identity, Index, Privileges, Table};
use crate::error::{Result, SqlError};
use crate::expr::{Expr, Typed, place_of, since};
use crate::function::Interrupt;
use crate::function::puts_element;
use crate::keys;
use crate::parse::{current_of, element};
use crate::session::work::Work;
use crate::types::{Datum, bounds};

/// A planned UPDATE.
#[derive(Debug)]
pub(crate) struct UpdatePlan {
    pub(crate) target: Target,
    assignments: Assignments,
    /// Whether a unique key is assigned to.
    keys: Keys,
    checks: Checks,
    /// What a row must meet to stay in the view that is changed.
    view_checks: ViewChecks,
    pub(crate) returning: Option<Returning>,
    pub(crate) places: Places,
}

/// What an UPDATE does to unique keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Nothing.
    Kept,
    /// It assigns to one; whether that changes anything can be seen before the row is locked.
    Assigned,
    /// It assigns what can be evaluated once only.
    Unforeseeable,
}

/// `SET` over a frame.
#[derive(Debug)]
pub(crate) struct Assignments {
    pub(super) places: Vec<usize>,
    pub(super) exprs: Vec<Expr>,
}

impl Assignments {
    /// Makes the expressions ready to be evaluated.
    pub(crate) fn plan(&mut self, binder: &Binder<'_>, pieces: &mut Pieces) -> Result<()> {
        pieces.expressions(binder, &mut self.exprs)
    }

    /// Places of the columns that they set.
    pub(crate) fn places(&self) -> &[usize] {
        &self.places
    }

    /// Changes a row by what the expressions give over the frame.
    pub(crate) fn apply(
        &self,
        work: &Work<'_>,
        run: &mut Run,
        frame: &[Datum],
        row: &mut [Datum],
    ) -> Result<()> {
        let values = run.evaluate(work, &self.exprs, frame)?;
        for (&place, value) in self.places.iter().zip(values) {
            row[place] = value;
        }
        Ok(())
    }
}

/// The columns that one of the items of SET assigns to.
pub(crate) fn assigned_names(assignment: &ast::Assignment) -> &[ast::ObjectName] {
    match &assignment.target {
        ast::AssignmentTarget::ColumnName(name) => std::slice::from_ref(name),
        ast::AssignmentTarget::Tuple(names) => names.as_slice(),
    }
}

/// Binds SET in the open level.
pub(crate) fn bind_assignments(
    binder: &mut Binder<'_>,
    table: &Arc<Table>,
    assignments: &[ast::Assignment],
) -> Result<Assignments> {
    let mut bound = Assignments { places: Vec::new(), exprs: Vec::new() };
    for assignment in assignments {
        match &assignment.target {
            ast::AssignmentTarget::ColumnName(name) => {
                if bound.put_another(binder, table, name, &assignment.value)? {
                    continue;
                }
                let place = bound.claim(table, name)?;
                let expr = assigned(binder, table, place, &assignment.value)?;
                bound.exprs.push(expr);
            }
            ast::AssignmentTarget::Tuple(names) => {
                bind_list(binder, table, names, &assignment.value, &mut bound)?
            }
        }
    }
    Ok(bound)
}

impl Assignments {
    /// What they do to unique keys.
    pub(crate) fn keys(&self, table: &Table) -> Keys {
        let mut keys = table.indexes.iter().filter(|index| index.is_key()).flat_map(Index::key_columns);
        if !keys.any(|column| table.changes_with(column, &self.places)) {
            return Keys::Kept;
        }
        if table.has_generated() {
            return Keys::Unforeseeable;
        }
        let once = |expr: &Expr| expr.is_volatile() || expr.has_subquery();
        if self.exprs.iter().any(once) { Keys::Unforeseeable } else { Keys::Assigned }
    }

    /// How a row is to be locked: alone if a unique key of it will change.
    pub(crate) fn mode(
        &self,
        keys: Keys,
        table: &Table,
        work: &Work<'_>,
        run: &mut Run,
        frame: &[Datum],
    ) -> Result<LockMode> {
        match keys {
            Keys::Kept => Ok(LockMode::NoKeyExclusive),
            Keys::Unforeseeable => Ok(LockMode::Exclusive),
            Keys::Assigned => {
                let before = &frame[..table.columns.len()];
                let mut after = before.to_vec();
                self.apply(work, run, frame, &mut after)?;
                let (before, after) = (Indexed::plain(before), Indexed::plain(&after));
                let mut keys = table.indexes.iter().filter(|index| index.is_key());
                let changes = keys.any(|index| differs(index, before, after));
                Ok(if changes { LockMode::Exclusive } else { LockMode::NoKeyExclusive })
            }
        }
    }

    /// Assigns to one more element of a column of which another one is assigned to already.
    fn put_another(
        &mut self,
        binder: &mut Binder<'_>,
        table: &Table,
        name: &ast::ObjectName,
        value: &ast::Expr,
    ) -> Result<bool> {
        let Some(element) = element(value) else { return Ok(false) };
        let parts = crate::ddl::names::parts(name)?;
        let [column] = parts.as_slice() else { return Ok(false) };
        let place = crate::ddl::alter_table::column_place(table, column)?;
        let known = self.places.iter().position(|known| *known == place);
        let Some(at) = known.filter(|at| puts_element(&self.exprs[*at])) else { return Ok(false) };
        let array = Typed::new(self.exprs[at].clone(), table.columns[place].ty);
        self.exprs[at] =
            binder.in_clause(Clause::Update, |binder| binder.put_element(array, column, element))?;
        Ok(true)
    }

    /// The place of a column that is assigned to. 42703, 42601.
    pub(super) fn claim(&mut self, table: &Table, name: &ast::ObjectName) -> Result<usize> {
        let parts = crate::ddl::names::parts(name)?;
        let [column] = parts.as_slice() else {
            // PostgreSQL reads t.c as column t's field c.
            let first = parts.first().map_or("", String::as_str);
            return Err(crate::ddl::resolve::undefined_column(first, &table.name));
        };
        let place = crate::ddl::alter_table::column_place(table, column)?;
        if self.places.contains(&place) {
            return Err(SqlError::syntax(format!("multiple assignments to same column \"{column}\"")));
        }
        self.places.push(place);
        Ok(place)
    }
}

pub(super) fn assigned(
    binder: &mut Binder<'_>,
    table: &Arc<Table>,
    place: usize,
    value: &ast::Expr,
) -> Result<Expr> {
    let column = &table.columns[place];
    if is_default(value) {
        // Without a default it is a view's column, which would be NULL.
        if column.identity.is_some() && column.default.is_none() {
            refuse_generated(column)?;
        }
        return default_of(binder, table, place);
    }
    refuse_generated(column)?;
    binder.in_clause(Clause::Update, |binder| {
        if let Some(element) = element(value) {
            // In the frame the target's columns come first.
            return binder.put_element(Typed::new(Expr::Slot(place), column.ty), &column.name, element);
        }
        let typed = binder.expression(value)?;
        Ok(binder.assign(typed, column.ty, &column.name)?.expr)
    })
}

/// 428C9 if the column is computed.
pub(super) fn refuse_generated(column: &Column) -> Result<()> {
    if column.identity == Some(Identity::Always) {
        return Err(generated_always(&column.name, true));
    }
    if column.generated.is_some() {
        return Err(is_generated(&column.name, true));
    }
    Ok(())
}

/// Binds and plans an UPDATE.
pub(crate) fn bind(
    binder: &mut Binder<'_>,
    statement: &ast::Update,
    with: WithQueries<'_>,
) -> Result<UpdatePlan> {
    if statement.or.is_some() || !statement.order_by.is_empty() || statement.limit.is_some() {
        return Err(SqlError::syntax("syntax error in UPDATE: a clause of another dialect"));
    }
    let ast::TableFactor::Table { name, alias, .. } = &statement.table.relation else {
        return Err(SqlError::syntax("syntax error: UPDATE of something that is no table"));
    };
    if !statement.table.joins.is_empty() {
        return Err(SqlError::syntax("syntax error at or near \"JOIN\""));
    }
    let from: &[ast::TableWithJoins] = match &statement.from {
        None => &[],
        Some(ast::UpdateTableFromKind::AfterSet(from)) => from,
        Some(ast::UpdateTableFromKind::BeforeSet(_)) => {
            return Err(SqlError::syntax("syntax error at or near \"FROM\""));
        }
    };
    let cursor = statement.selection.as_ref().and_then(current_of);
    let condition = statement.selection.as_ref().filter(|_| cursor.is_none());
    let reads = condition.is_some()
        || statement.returning.is_some()
        || statement.assignments.iter().any(|assignment| names_columns(&assignment.value));
    let read = if reads { Privileges::SELECT } else { Privileges::NONE };
    let subject = Subject::find(binder, name, Change::Update, Privileges::UPDATE | read)?;
    if cursor.is_some() {
        subject.check_current(from.is_empty() && with.is_empty())?;
    }
    let table = subject.table.clone();
    subject.check_columns(statement.assignments.iter().flat_map(assigned_names))?;
    let mut parts = None;
    let query = with.bind(binder, |binder| {
        let view_checks = subject.open(binder, alias.as_ref())?;
        binder.from_beside_target(from)?;
        if let Some(condition) = condition {
            binder.where_clause(condition)?;
        }
        let assignments = bind_assignments(binder, &subject.assigned(), &statement.assignments)?;
        subject.need_columns(binder, Privileges::UPDATE, &assignments.places);
        let returning = match &statement.returning {
            None => None,
            Some(items) => {
                let (columns, exprs) = binder.returning(items)?;
                Some(Returning { columns, exprs })
            }
        };
        let (query, filter) = Target::query(binder)?;
        parts = Some((assignments, view_checks, returning, filter));
        Ok(query)
    })?;
    let (mut assignments, mut view_checks, mut returning, filter) =
        parts.ok_or_else(|| SqlError::internal("an UPDATE was not bound"))?;
    let places = assignments.places.clone();
    let checks = Checks::bind(binder, &table, |place| table.changes_with(place, &places))?.giving(places);
    let keys = assignments.keys(&table);
    let mut pieces = Pieces::default();
    let target = Target::plan(binder, &mut pieces, table, query, filter)?.at_cursor(cursor);
    assignments.plan(binder, &mut pieces)?;
    view_checks.plan(binder, &mut pieces)?;
    if let Some(returning) = &mut returning {
        pieces.expressions(binder, &mut returning.exprs)?;
    }
    let places = pieces.finish(binder);
    let target = target.finish(&places);
    Ok(UpdatePlan { target, assignments, keys, checks, view_checks, returning, places })
}

impl Work<'_> {
    /// Runs an UPDATE.
    pub(crate) async fn update(&mut self, plan: &UpdatePlan, run: &mut Run) -> Result<Changed> {
        let mut changed = Changed::default();
        if let Access::Query(source) = &plan.target.access {
            run.open(source);
            let mut seen = HashSet::new();
            while let Some(frame) = run.next(self)? {
                self.interrupts.check()?;
                let row_key = frame_key(&plan.target, &frame)?;
                let joined = plan.target.is_joined.then(|| row_key.clone());
                if joined.as_ref().is_some_and(|key| seen.contains(key)) {
                    continue;
                }
                let before = changed.rows;
                self.update_one(plan, run, row_key, frame, &mut changed).await?;
                // A row that has changed meanwhile, so that it does not belong to these rows
                // of the others any more, may still belong to those that follow.
                if let Some(key) = joined.filter(|_| changed.rows > before) {
                    seen.insert(key);
                }
            }
        } else if let Some((row_key, frame)) =
            self.one_row(&plan.target, LockMode::NoKeyExclusive, run).await?
        {
            self.update_one(plan, run, row_key, frame, &mut changed).await?;
        }
        Ok(changed)
    }

    /// Updates a row that was found.
    async fn update_one(
        &mut self,
        plan: &UpdatePlan,
        run: &mut Run,
        row_key: Bytes,
        mut frame: Vec<Datum>,
        changed: &mut Changed,
    ) -> Result<()> {
        let table = &plan.target.table;
        let mode = plan.assignments.mode(plan.keys, table, self, run, &frame)?;
        if !self.lock_target(&plan.target, mode, run, &row_key, &mut frame).await? {
            return Ok(());
        }
        let width = table.columns.len();
        let mut after = frame[..width].to_vec();
        plan.assignments.apply(self, run, &frame, &mut after)?;
        plan.checks.complete(self, table, &mut after)?;
        self.update_row(table, &row_key, &frame[..width], &after).await?;
        plan.view_checks.test(self, run, &plan.checks, table, &after)?;
        if plan.returning.is_some() {
            frame.splice(..width, after);
        }
        run.give_back(self, plan.returning.as_ref(), &frame, changed)
    }

    /// The row to change where it is found without a query: by its primary key, or by a cursor. Its
    /// key and frame.
    pub(super) async fn one_row(
        &mut self,
        target: &Target,
        mode: LockMode,
        run: &mut Run,
    ) -> Result<Option<(Bytes, Vec<Datum>)>> {
        let began = self.tally.as_ref().and_then(|tally| tally.now());
        let found = match &target.access {
            Access::Point(key) => self.point_row(target, key, mode, run).await?,
            Access::Current(cursor) => self.current_row(target, cursor, mode).await?,
            Access::Query(_) => None,
        };
        self.note_found(target, began, found.is_some());
        Ok(found)
    }

    /// Counts the row to change that was looked for without a query, if rows are counted.
    fn note_found(&self, target: &Target, began: Option<Instant>, is_found: bool) {
        if let Some(tally) = &self.tally {
            let took = since(began);
            tally.note(place_of(target), u64::from(is_found), (took, took), true);
        }
    }

    /// The row of a primary key, if there is one ([`Work::row_at`]) and it meets the condition: its
    /// key and frame.
    async fn point_row(
        &mut self,
        target: &Target,
        key: &[Expr],
        mode: LockMode,
        run: &mut Run,
    ) -> Result<Option<(Bytes, Vec<Datum>)>> {
        let table = &target.table;
        let Some(index) = table.primary_key() else { return Ok(None) };
        let values = run.evaluate(self, key, &[])?;
        let mut row_key = Vec::with_capacity(values.len() * 10);
        for (value, column) in values.into_iter().zip(&index.columns) {
            let Some(value) = as_key(value, table.key_type(index, column.key)) else { return Ok(None) };
            keys::encode_entry_into(&mut row_key, &value, column.order());
        }
        let found = self.row_at(table, row_key.into(), mode).await?;
        self.state.usage.of(index.oid).add_key(found.is_some());
        match &found {
            Some((_, frame)) if !run.holds(self, &target.filter, frame)? => Ok(None),
            _ => Ok(found),
        }
    }

    /// The row at which a cursor stands, if it is still there, whatever its key has become in the
    /// transaction: its key and frame. 34000, 24000.
    async fn current_row(
        &mut self,
        target: &Target,
        cursor: &str,
        mode: LockMode,
    ) -> Result<Option<(Bytes, Vec<Datum>)>> {
        let (row_key, known) = self.facts.current_row(cursor, &target.table)?;
        match self.state.moved.follow(target.table.oid, row_key, known) {
            Some(row_key) => self.row_at(&target.table, row_key, mode).await,
            None => Ok(None),
        }
    }

    /// The row of a key, if the snapshot has one, as a frame. A transaction that locks what it
    /// reads locks the key, row or not, and looks at the newest version.
    async fn row_at(
        &mut self,
        table: &Table,
        row_key: Bytes,
        mode: LockMode,
    ) -> Result<Option<(Bytes, Vec<Datum>)>> {
        let found = match self.state.locks_reads {
            false => self.view.get(table.tree, &row_key)?,
            true => {
                self.lock_key(table.tree, &row_key, mode).await?;
                self.engine.note_latest(table.tree, &row_key, (table.tree, &row_key))?;
                self.key_holder(table.tree, &row_key)?
            }
        };
        let Some(bytes) = found else { return Ok(None) };
        let mut frame = decode(table, &bytes)?;
        frame.push(Datum::Bytea(row_key.clone()));
        Ok(Some((row_key, frame)))
    }

    /// Locks a row that was found. If it changed meanwhile, the frame gets what it is now; false if
    /// the condition does not hold any more, or the row is gone. 40001 for a row that has gone and
    /// may be under another key, if the statement is run again for that: it is not once it has let
    /// go of an advisory lock.
    pub(crate) async fn lock_target(
        &mut self,
        target: &Target,
        mode: LockMode,
        run: &mut Run,
        row_key: &Bytes,
        frame: &mut Vec<Datum>,
    ) -> Result<bool> {
        match self.lock_row(&target.table, row_key, mode).await? {
            Locked::Unchanged => self.still_there(target, row_key, frame),
            Locked::Gone if target.may_move() && self.may_follow(run) => Err(SqlError::gone_row()),
            Locked::Gone => Ok(false),
            Locked::Changed(bytes) => {
                let row = decode(&target.table, &bytes)?;
                frame.splice(..target.table.columns.len(), row);
                run.holds(self, &target.filter, frame)
            }
        }
    }

    /// Whether the statement is run again if a row has gone: not once it has let go of an advisory
    /// lock.
    pub(super) fn may_follow(&self, run: &Run) -> bool {
        run.follows() && !self.facts.advisory.statement_has_released()
    }

    /// A row that this statement itself (or its foreign keys) already changed or deleted is left
    /// alone, as in PostgreSQL.
    fn still_there(&self, target: &Target, row_key: &Bytes, frame: &[Datum]) -> Result<bool> {
        match self.engine.own(target.table.tree, row_key)? {
            // In a tree of the transaction's own every row is an own one, so this was one.
            None => Ok(!self.engine.has_created(target.table.tree)),
            Some(None) => Ok(false),
            // Also by another part of the statement, with the same values.
            Some(_) if self.engine.has_written_since(&self.view, target.table.tree, row_key) => Ok(false),
            Some(Some(bytes)) => {
                let row = decode(&target.table, &bytes)?;
                let is_same = |(now, then): (&Datum, &Datum)| super::index_maintenance::same(now, then);
                bounds::within(self.interrupts.clone(), || Ok(row.iter().zip(frame).all(is_same)))
            }
        }
    }
}

/// The row key in a target's frame.
pub(crate) fn frame_key(target: &Target, frame: &[Datum]) -> Result<Bytes> {
    match &frame[target.key_slot()] {
        Datum::Bytea(key) => Ok(key.clone()),
        _ => Err(SqlError::internal("a target's row has no key")),
    }
}
