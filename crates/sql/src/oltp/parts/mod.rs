//! Statements in parts: those with statements in their WITH, or with queries within that lock rows.
//!
//! Each part is run once and to its end, whoever reads how much of its rows; those that others read
//! are given to them as the rows of a WITH query. All read through one view, the statement's: what
//! one part changes no other sees, but for what RETURNING gives. A row that one part has changed
//! or deleted is left alone by the others.
//!
//! *Order.* PostgreSQL runs the statement itself first, what it reads as it asks for it, and what
//! nobody has asked for at the end, the last one first. So it is here, except that a part is run as
//! a whole:
//!
//! 1. queries that lock rows, before anything is changed: if a row has changed meanwhile, all
//!    begins anew;
//! 2. what the statement itself reads, then the statement;
//! 3. the other statements of its WITH from the last to the first, each behind what it reads.
//!
//! Queries that nobody reads are not run. Foreign keys are looked at when all parts have ended.

mod draft;

pub(crate) use draft::bind;

use std::sync::Arc;

use super::delete::DeletePlan;
use super::insert::InsertPlan;
use super::memory::row_bytes;
use super::merge::MergePlan;
use super::returning::{Changed, Returning};
use super::run::Run;
use super::source::Places;
use super::update::UpdatePlan;
use super::{Cursor, Given};
use crate::catalog::{Oid, Table};
use crate::error::{Result, SqlError};
use crate::expr::check_held;
use crate::plan::Plan;
use crate::session::work::Work;
use crate::types::Datum;

/// A planned statement in parts.
#[derive(Debug)]
pub(crate) struct PartsPlan {
    /// In the order in which they are run.
    parts: Vec<Part>,
    /// The place of the statement itself among them.
    main: usize,
}

/// A part.
#[derive(Debug)]
struct Part {
    /// What it is called in WITH, if it stands there.
    name: Option<String>,
    /// The number of the WITH query that its rows are those of, if somebody reads them.
    number: Option<usize>,
    step: Step,
}

/// What a part does.
#[derive(Debug)]
pub(crate) enum Step {
    Select(Arc<Plan>),
    Insert(InsertPlan),
    Update(UpdatePlan),
    Delete(DeletePlan),
    Merge(MergePlan),
}

impl Step {
    /// The table that it changes.
    pub(crate) fn target(&self) -> Option<&Arc<Table>> {
        match self {
            Step::Select(_) => None,
            Step::Insert(plan) => Some(&plan.table),
            Step::Update(plan) => Some(&plan.target.table),
            Step::Delete(plan) => Some(&plan.target.table),
            Step::Merge(plan) => Some(&plan.table),
        }
    }

    fn returning(&self) -> Option<&Returning> {
        match self {
            Step::Select(_) | Step::Merge(_) => None,
            Step::Insert(plan) => plan.returning.as_ref(),
            Step::Update(plan) => plan.returning.as_ref(),
            Step::Delete(plan) => plan.returning.as_ref(),
        }
    }

    /// Its first word, as tags have it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Step::Select(_) => "SELECT",
            Step::Insert(_) => "INSERT",
            Step::Update(_) => "UPDATE",
            Step::Delete(_) => "DELETE",
            Step::Merge(_) => "MERGE",
        }
    }
}

impl PartsPlan {
    /// The statement itself.
    pub(crate) fn main(&self) -> &Step {
        &self.parts[self.main].step
    }

    /// What it is called where it may not be executed.
    pub(crate) fn command(&self) -> &'static str {
        match self.main() {
            Step::Select(_) if self.targets().next().is_none() => "SELECT FOR UPDATE",
            step => step.word(),
        }
    }

    /// Whether the statement itself gives rows.
    pub(crate) fn gives_rows(&self) -> bool {
        matches!(self.main(), Step::Select(_)) || self.main().returning().is_some()
    }

    /// The tables that its parts change.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.parts.iter().filter_map(|part| part.step.target())
    }

    /// Whether a part changes rows that it finds otherwise than by their primary key.
    pub(crate) fn finds_rows(&self) -> bool {
        self.parts.iter().any(|part| match &part.step {
            Step::Select(_) | Step::Insert(_) => false,
            Step::Update(plan) => plan.target.may_move(),
            Step::Delete(plan) => plan.target.may_move(),
            Step::Merge(plan) => plan.may_move(),
        })
    }

    /// Whether a part locks rows of a table.
    pub(crate) fn locks(&self, table: Oid) -> bool {
        self.parts.iter().any(|part| match &part.step {
            Step::Select(plan) => plan.locks.iter().any(|lock| lock.table.oid == table),
            _ => false,
        })
    }

    /// The parts that stand in WITH, and what each does.
    pub(crate) fn of_with(&self) -> impl Iterator<Item = (&str, &Step)> {
        let others = self.parts.iter().enumerate().filter(|(place, _)| *place != self.main);
        others.map(|(_, part)| (part.name.as_deref().unwrap_or("FOR UPDATE"), &part.step))
    }
}

impl Work<'_> {
    /// Runs a statement in parts: what the statement itself did, with its rows. None if a row that
    /// was to be locked has changed meanwhile: then nothing is done, and it is to be run at a newer
    /// snapshot. With `follows` it is run again, too, if a row has gone that may be under another
    /// key.
    pub(crate) async fn run_parts(
        &mut self,
        plan: &PartsPlan,
        parameters: &Arc<[Datum]>,
        follows: bool,
    ) -> Result<Option<Changed>> {
        let (mut given, mut held) = (Given::new(), 0);
        let mut result = Changed::default();
        for (place, part) in plan.parts.iter().enumerate() {
            let run = |places: &Places| Run::part(parameters.clone(), places, &given).following(follows);
            let done = match &part.step {
                Step::Select(plan) => self.run_select(plan, parameters, &given).await?,
                step => Some(self.run_change(step, run).await?),
            };
            let Some(done) = done else { return Ok(None) };
            let is_main = place == plan.main;
            if is_main || part.number.is_some() {
                held += done.returned_bytes;
                check_held(held, self.state.memory_limit)?;
            }
            if is_main {
                result = done;
            } else if let Some(number) = part.number {
                given.push((number, Arc::new(done.returned)));
            }
        }
        self.run_checks().await?;
        Ok(Some(result))
    }

    async fn run_change(&mut self, step: &Step, run: impl Fn(&Places) -> Run) -> Result<Changed> {
        match step {
            Step::Insert(plan) => self.insert(plan, &mut run(&plan.places), false).await,
            Step::Update(plan) => self.update(plan, &mut run(&plan.places)).await,
            Step::Delete(plan) => self.delete(plan, &mut run(&plan.places)).await,
            Step::Merge(plan) => self.merge(plan, &mut run(&plan.places)).await,
            Step::Select(_) => Err(SqlError::internal("a part that changes nothing")),
        }
    }

    async fn run_select(
        &mut self,
        plan: &Arc<Plan>,
        parameters: &Arc<[Datum]>,
        given: &Given,
    ) -> Result<Option<Changed>> {
        if plan.has_locks() {
            let rows = self.select_and_lock(plan, parameters, None, given).await?;
            return rows.map(|rows| self.selected(rows)).transpose();
        }
        let cursor = Cursor::new(plan, parameters.clone());
        cursor.give(given);
        self.all_rows(cursor).map(Some)
    }

    fn selected(&self, rows: Vec<Vec<Datum>>) -> Result<Changed> {
        let returned_bytes = rows.iter().map(|row| row_bytes(row)).sum();
        check_held(returned_bytes, self.state.memory_limit)?;
        Ok(Changed { rows: rows.len() as u64, returned: rows, returned_bytes })
    }

    fn all_rows(&self, mut cursor: Cursor) -> Result<Changed> {
        let mut all = Changed::default();
        self.read(|read| {
            while let Some(row) = cursor.next(read)? {
                all.returned_bytes += row_bytes(&row);
                check_held(all.returned_bytes, read.memory_limit)?;
                all.returned.push(row);
            }
            Ok::<_, SqlError>(())
        })?;
        all.rows = all.returned.len() as u64;
        Ok(all)
    }
}
