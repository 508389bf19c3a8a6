//! MERGE.
//!
//! The rows of the source are joined with the target, those without a partner too if a WHEN NOT
//! MATCHED asks for them. The frame is that of an UPDATE with a FROM: the target's columns, its row
//! key, then the source's; without a partner the first of these are NULL. For each row the first
//! WHEN of its kind whose condition holds says what is done.
//!
//! ```text
//! MERGE INTO t USING s ON t.id = s.id WHEN MATCHED ... WHEN NOT MATCHED ...
//!   s LEFT JOIN t ON t.id = s.id
//!   frame: [0] t.id  [1] t.a  [2] row key of t  [3] s.id  [4] s.x
//! ```
//!
//! *A row that changed* while its lock was waited for (READ COMMITTED) is looked at again: if it
//! still belongs to the source's row, the WHEN clauses are asked anew of what it is now; if not, or
//! if it is gone, the source's row has no partner. If it may be under another key, the statement is
//! run again first. A row that the statement itself has changed already is 21000.

use std::sync::Arc;

use bytes::Bytes;
use cognate_engine::LockMode;
use sqlparser::ast;

use super::columns::Columns;
use super::returning::Changed;
use super::run::{Checks, Run};
use super::source::{Pieces, Places, WithQueries, share};
use super::stored::decode;
use super::target::{Target, open_table_as};
use super::update::{Assignments, Keys, bind_assignments};
use super::write::Locked;
use crate::bind::{Binder, Clause, From, Join, JoinKind, object_name};
use crate::catalog::{Privileges, Relation, Table};
use crate::ddl::names::Qualified;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::Expr;
use crate::function::Interrupt;
use crate::parse::{Statement, does_nothing};
use crate::plan::Plan;
use crate::session::work::Work;
use crate::types::Datum;

/// A planned MERGE.
#[derive(Debug)]
pub(crate) struct MergePlan {
    pub(crate) table: Arc<Table>,
    pub(crate) source: Arc<Plan>,
    /// Over the frame: whether a row of the target belongs to one of the source.
    on: Expr,
    clauses: Vec<When>,
    checks: Checks,
    pub(crate) places: Places,
}

impl MergePlan {
    /// Whether a row of the target may get another key meanwhile: rows are where their primary key
    /// is.
    pub(crate) fn may_move(&self) -> bool {
        self.table.primary_key().is_some()
    }
}

/// A WHEN clause.
#[derive(Debug)]
struct When {
    matched: bool,
    condition: Expr,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Nothing,
    Delete,
    Update(Assignments, Keys),
    /// A complete row.
    Insert(Vec<Expr>),
}

/// Binds and plans a MERGE.
pub(crate) fn bind(
    binder: &mut Binder<'_>,
    merge: &ast::Merge,
    statement: &Statement,
    with: WithQueries<'_>,
) -> Result<MergePlan> {
    let ast::TableFactor::Table { name, alias, args: None, .. } = &merge.table else {
        return Err(SqlError::syntax("syntax error: MERGE INTO something that is no table"));
    };
    let table = find_target(binder, name)?;
    binder.need(&table, needed(merge));
    let mut parts = None;
    let query = with.bind(binder, |binder| {
        open_table_as(binder, &table, alias.as_ref())?;
        binder.need_what_names_read(&table)?;
        binder.level()?.key_slot(0);
        let on = join(binder, merge)?;
        let clauses = bind_clauses(binder, &table, merge, statement)?;
        let (query, _) = Target::query(binder)?;
        parts = Some((on, clauses));
        Ok(query)
    })?;
    let (mut on, mut clauses) = parts.ok_or_else(|| SqlError::internal("a MERGE was not bound"))?;
    let checks = Checks::bind(binder, &table, |_| true)?.giving(binder.given_columns(&table));
    let mut pieces = Pieces::default();
    let source = pieces.query(binder, query)?;
    pieces.expressions(binder, std::slice::from_mut(&mut on))?;
    for clause in &mut clauses {
        pieces.expressions(binder, std::slice::from_mut(&mut clause.condition))?;
        match &mut clause.action {
            Action::Nothing | Action::Delete => {}
            Action::Update(assignments, _) => assignments.plan(binder, &mut pieces)?,
            Action::Insert(row) => pieces.expressions(binder, row)?,
        }
    }
    let places = pieces.finish(binder);
    Ok(MergePlan { table, source: share(source, &places), on, clauses, checks, places })
}

/// What a MERGE must be allowed to do with its target, beside what it reads of it.
fn needed(merge: &ast::Merge) -> Privileges {
    let changes = merge.clauses.iter().filter(|clause| !does_nothing(&clause.action));
    changes.fold(Privileges::NONE, |needed, clause| {
        needed
            | match &clause.action {
                ast::MergeAction::Insert(_) => Privileges::INSERT,
                ast::MergeAction::Update(_) => Privileges::UPDATE,
                ast::MergeAction::Delete { .. } => Privileges::DELETE,
            }
    })
}

/// The table. 0A000 for what has no rows of its own.
fn find_target(binder: &mut Binder<'_>, name: &ast::ObjectName) -> Result<Arc<Table>> {
    let qualified = Qualified::from_object_name(name)?;
    qualified.check_database(binder.context.catalog)?;
    let kind = match binder.find_relation(qualified.schema.as_deref(), &qualified.name) {
        Some(Relation::View(_)) => "views",
        Some(Relation::Sequence(_)) => "sequences",
        _ => return super::target::find_table(binder, name),
    };
    let message = format!("cannot execute MERGE on relation \"{}\"", qualified.name);
    Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
        .with_detail(format!("This operation is not supported for {kind}.")))
}

/// Joins the source to the target, which is in the open level already; the condition.
fn join(binder: &mut Binder<'_>, merge: &ast::Merge) -> Result<Expr> {
    let target = binder.level()?.namespace.tables.first().map(|table| table.name.clone());
    let source_name = match &merge.source {
        ast::TableFactor::Table { alias: Some(alias), .. }
        | ast::TableFactor::Derived { alias: Some(alias), .. } => Some(object_name(&alias.name)),
        ast::TableFactor::Table { name, .. } => {
            name.0.last().and_then(|part| part.as_ident()).map(object_name)
        }
        _ => None,
    };
    if source_name.is_some() && source_name == target {
        let message = format!("name \"{}\" specified more than once", source_name.unwrap_or_default());
        return Err(SqlError::new(sqlstate::DUPLICATE_ALIAS, message)
            .with_detail("The name is used both as MERGE target table and data source."));
    }
    let keeps = merge.clauses.iter().any(|clause| clause.clause_kind != ast::MergeClauseKind::Matched);
    let level = binder.level()?;
    level.mentioned.extend(target);
    level.select.relations[0].nullable = keeps;
    let right = level.select.from.pop().unwrap_or(From::Unit);
    let source = ast::TableWithJoins { relation: merge.source.clone(), joins: Vec::new() };
    binder.from_beside_target(std::slice::from_ref(&source))?;
    let condition = binder.in_clause(Clause::JoinOn, |binder| {
        let typed = binder.expression(&merge.on)?;
        binder.condition(typed, "JOIN/ON")
    })?;
    let mut on = vec![];
    condition.clone().into_conjuncts(&mut on);
    let level = binder.level()?;
    let left = level.select.from.pop().unwrap_or(From::Unit);
    let kind = if keeps { JoinKind::Left } else { JoinKind::Inner };
    level.select.from.push(From::Join(Box::new(Join { kind, left, right, on })));
    Ok(condition)
}

fn bind_clauses(
    binder: &mut Binder<'_>,
    table: &Arc<Table>,
    merge: &ast::Merge,
    statement: &Statement,
) -> Result<Vec<When>> {
    let mut ended = [false; 2];
    let mut clauses = vec![];
    for clause in &merge.clauses {
        let matched = clause.clause_kind == ast::MergeClauseKind::Matched;
        if ended[usize::from(matched)] {
            return Err(SqlError::syntax(
                "unreachable WHEN clause specified after unconditional WHEN clause",
            ));
        }
        ended[usize::from(matched)] = clause.predicate.is_none();
        let all = binder.level()?.namespace.clone();
        if !matched {
            // There is no row of the target.
            let names = &mut binder.level()?.namespace;
            let target = names.tables.remove(0);
            names.star.drain(..target.columns.len());
        }
        let bound = bind_clause(binder, table, clause, matched, statement);
        binder.level()?.namespace = all;
        clauses.push(bound?);
    }
    Ok(clauses)
}

fn bind_clause(
    binder: &mut Binder<'_>,
    table: &Arc<Table>,
    clause: &ast::MergeClause,
    matched: bool,
    statement: &Statement,
) -> Result<When> {
    let condition = match &clause.predicate {
        None => Expr::Constant(Datum::Bool(true)),
        Some(predicate) => binder.in_clause(Clause::Other("MERGE WHEN conditions"), |binder| {
            let typed = binder.expression(predicate)?;
            binder.condition(typed, "WHEN")
        })?,
    };
    let action = match &clause.action {
        action if does_nothing(action) => Action::Nothing,
        ast::MergeAction::Delete { .. } => Action::Delete,
        ast::MergeAction::Update(update) => {
            let assignments = bind_assignments(binder, table, &update.assignments)?;
            binder.need_columns(&[], table, Privileges::UPDATE, assignments.places());
            let keys = assignments.keys(table);
            Action::Update(assignments, keys)
        }
        ast::MergeAction::Insert(insert) => {
            let overriding = statement.overriding(&insert.insert_token);
            let columns = Columns::new(table, &insert.columns, overriding)?;
            let values: &[ast::Expr] = match &insert.kind {
                ast::MergeInsertKind::Row => &[],
                ast::MergeInsertKind::Values(values) => match values.rows.as_slice() {
                    [row] => &row.content,
                    _ => return Err(SqlError::syntax("syntax error at or near \",\"")),
                },
            };
            if !matches!(insert.kind, ast::MergeInsertKind::Row) {
                columns.check_width(values.len(), !insert.columns.is_empty())?;
            }
            binder.need_columns(&[], table, Privileges::INSERT, columns.given(values.len()));
            Action::Insert(columns.row_in_level(binder, values)?)
        }
    };
    Ok(When { matched, condition, action })
}

/// What became of a row of the target.
enum Fate {
    /// It is done with.
    Done,
    /// It does not belong to the source's row any more.
    Lost,
}

impl Work<'_> {
    /// Runs a MERGE.
    pub(crate) async fn merge(&mut self, plan: &MergePlan, run: &mut Run) -> Result<Changed> {
        let mut changed = Changed::default();
        run.open(&plan.source);
        let key = plan.table.columns.len();
        while let Some(mut frame) = run.next(self)? {
            self.interrupts.check()?;
            if let Datum::Bytea(row_key) = &frame[key] {
                let row_key = row_key.clone();
                match self.merge_matched(plan, run, &row_key, &mut frame, &mut changed).await? {
                    Fate::Done => continue,
                    Fate::Lost => frame[..=key].fill(Datum::Null),
                }
            }
            self.merge_unmatched(plan, run, &frame, &mut changed).await?;
        }
        Ok(changed)
    }

    async fn merge_matched(
        &mut self,
        plan: &MergePlan,
        run: &mut Run,
        row_key: &Bytes,
        frame: &mut [Datum],
        changed: &mut Changed,
    ) -> Result<Fate> {
        let (table, width) = (&plan.table, plan.table.columns.len());
        let mut is_locked = false;
        loop {
            let Some(action) = self.choose(plan, run, true, frame)? else { return Ok(Fate::Done) };
            let mode = match action {
                Action::Nothing | Action::Insert(_) => return Ok(Fate::Done),
                Action::Delete => LockMode::Exclusive,
                Action::Update(assignments, keys) => assignments.mode(*keys, table, self, run, frame)?,
            };
            if is_locked {
                // Nobody else has changed it since; perhaps it is to be locked more strongly.
                self.lock_again(table, row_key, mode).await?;
            } else {
                match self.lock_row(table, row_key, mode).await? {
                    Locked::Unchanged => self.check_once(table, row_key)?,
                    Locked::Gone if plan.may_move() && self.may_follow(run) => {
                        return Err(SqlError::gone_row());
                    }
                    Locked::Gone => return Ok(Fate::Lost),
                    Locked::Changed(bytes) => {
                        is_locked = true;
                        for (place, value) in frame.iter_mut().zip(decode(table, &bytes)?) {
                            *place = value;
                        }
                        match run.holds(self, &plan.on, frame)? {
                            true => continue,
                            false => return Ok(Fate::Lost),
                        }
                    }
                }
            }
            match action {
                Action::Update(assignments, _) => {
                    let mut after = frame[..width].to_vec();
                    assignments.apply(self, run, frame, &mut after)?;
                    plan.checks.complete(self, table, &mut after)?;
                    self.update_row(table, row_key, &frame[..width], &after).await?;
                }
                _ => self.delete_row(table, row_key, &frame[..width]).await?,
            }
            changed.rows += 1;
            return Ok(Fate::Done);
        }
    }

    async fn merge_unmatched(
        &mut self,
        plan: &MergePlan,
        run: &mut Run,
        frame: &[Datum],
        changed: &mut Changed,
    ) -> Result<()> {
        let Some(Action::Insert(row)) = self.choose(plan, run, false, frame)? else { return Ok(()) };
        let mut row = run.evaluate(self, row, frame)?;
        plan.checks.complete(self, &plan.table, &mut row)?;
        self.insert_row(&plan.table, &row).await?;
        changed.rows += 1;
        Ok(())
    }

    /// The action of the first clause that is for the row.
    fn choose<'p>(
        &self,
        plan: &'p MergePlan,
        run: &Run,
        matched: bool,
        frame: &[Datum],
    ) -> Result<Option<&'p Action>> {
        for clause in plan.clauses.iter().filter(|clause| clause.matched == matched) {
            if run.holds(self, &clause.condition, frame)? {
                return Ok(Some(&clause.action));
            }
        }
        Ok(None)
    }

    /// 21000 if the statement itself has changed the row.
    fn check_once(&self, table: &Table, row_key: &[u8]) -> Result<()> {
        if !self.engine.has_written_since(&self.view, table.tree, row_key) {
            return Ok(());
        }
        Err(SqlError::new(sqlstate::CARDINALITY_VIOLATION, "MERGE command cannot affect row a second time")
            .with_hint("Ensure that not more than one source row matches any one target row."))
    }
}
