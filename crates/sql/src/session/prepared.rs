//! Prepared statements and their plans.
//!
//! What a statement *is* (its text, the types of its parameters and columns) is settled when it is
//! prepared. How it is carried out, its [`Planned`] form, belongs to a state of the catalog and is
//! made again when that has changed. Both are shared by all sessions that prepare the same text.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use cognate_engine::Database;

use super::SqlDatabase;
use super::gathering::Gathered;
use crate::bind::Need;
use crate::budget::{Budget, Charge};
use crate::catalog::{Oid, Table, View};
use crate::error::Result;
use crate::expr::RoutineBody;
use crate::oltp::delete::DeletePlan;
use crate::oltp::insert::InsertPlan;
use crate::oltp::parts::PartsPlan;
use crate::oltp::update::UpdatePlan;
use crate::parse::{self, Statement};
use crate::plan::Plan;
use crate::reclaim;
use crate::session::routine::CallPlan;
use crate::types::Type;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    /// Name.
    pub name: String,
    /// Type.
    pub ty: Type,
    /// Oid of the table it comes from unchanged, else 0.
    pub table_oid: u32,
    /// Attribute number in that table, else 0.
    pub attribute_number: i16,
}

/// A statement that was parsed, bound and planned, to be executed any number of times.
#[derive(Debug)]
pub struct Prepared {
    /// None: the text was empty.
    statement: Option<Statement>,
    /// Parameter types the client declared.
    declared: Vec<Option<Type>>,
    parameter_types: Vec<Type>,
    columns: Option<Arc<[OutputColumn]>>,
    first: Arc<Planned>,
    /// For its memory, if a session has given it a name.
    kept: OnceLock<Charge>,
    /// What took the place of the first. Such a cell looks at all readers when it is dropped, so it
    /// is made only for the few statements that live to see another plan.
    later: OnceLock<ArcSwap<Planned>>,
}

/// How a statement is carried out, as long as the catalog stays as it is.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) action: Action,
    pub(crate) parameter_types: Vec<Type>,
    pub(crate) columns: Option<Arc<[OutputColumn]>>,
    /// Tables read or changed.
    pub(crate) tables: Vec<Arc<Table>>,
    /// Views by way of which it reads or changes them.
    pub(crate) views: Vec<Arc<View>>,
    /// The functions of users that it calls: they live as long as it.
    pub(crate) routines: Vec<Arc<RoutineBody>>,
    /// It asks by ids which transactions its snapshot shows.
    pub(crate) tells_ids: bool,
    /// It asks what became of a request of a cluster.
    pub(crate) asks_outcome: bool,
    /// It reads tables of the catalog.
    pub(crate) reads_catalog: bool,
    /// What who runs it must be allowed to do, and what the owners of its views and functions must;
    /// empty as long as there are no roles. It is asked when the statement is run.
    pub(crate) needs: Vec<Need>,
    pub(crate) needs_of_owners: Vec<Need>,
    /// The state of the catalog it was made for, and what its names were looked up by: the
    /// session's schema of temporary objects, and `search_path` with the user's own schema in the
    /// place of `$user`, if there is one.
    state: AtomicU64,
    namespace: Oid,
    path: Vec<String>,
    /// It reads or changes temporary tables; what it changes, or whose rows it locks, are such.
    pub(crate) meets_temporary: bool,
    pub(crate) changes_temporary: bool,
    /// The database's growth when the tables last had about the size that they were planned for,
    /// and that size.
    growth: AtomicU64,
    rows: Vec<u64>,
    /// The ordinal of the last statistics that were there when it was made, or later, of other
    /// tables.
    learned: AtomicU64,
}

/// A plan is made anew when one of its tables has become larger or smaller by this factor.
const OUTGROWN: u64 = 4;

/// About what a statement takes that is kept: so much, and for each letter of its text so much
/// more (`SELECT 1` 8 kB, one of 180 letters with a join 19 kB, thirty constants 24 kB). The tree
/// of a long one is counted besides.
const KEPT_BYTES: usize = 8192;
const KEPT_FACTOR: usize = 96;

/// What a statement does.
#[derive(Debug)]
pub(crate) enum Action {
    /// Nothing: an empty query.
    Empty,
    /// SELECT.
    Select(Arc<Plan>),
    Insert(InsertPlan),
    Update(UpdatePlan),
    Delete(DeletePlan),
    /// A statement in parts, and MERGE.
    Parts(Box<PartsPlan>),
    /// A call that is the whole statement.
    Call(CallPlan),
    /// Everything else: done from the syntax tree.
    Utility,
}

impl Planned {
    pub(crate) fn new(
        action: Action,
        parameter_types: Vec<Type>,
        columns: Option<Arc<[OutputColumn]>>,
        tables: Vec<Arc<Table>>,
        state: u64,
    ) -> Planned {
        let (state, growth) = (AtomicU64::new(state), AtomicU64::new(0));
        let (views, routines, rows) = (Vec::new(), Vec::new(), Vec::new());
        let meets_temporary = tables.iter().any(|table| table.temporary);
        let mut planned = Planned {
            action,
            parameter_types,
            columns,
            tables,
            views,
            routines,
            tells_ids: false,
            asks_outcome: false,
            reads_catalog: false,
            needs: Vec::new(),
            needs_of_owners: Vec::new(),
            state,
            namespace: 0,
            path: Vec::new(),
            meets_temporary,
            changes_temporary: false,
            growth,
            rows,
            learned: AtomicU64::new(0),
        };
        planned.changes_temporary = meets_temporary && planned.changes_temporary_only();
        planned
    }

    /// Notes what its names were looked up by.
    pub(crate) fn within(mut self, namespace: Oid, path: Vec<String>) -> Planned {
        (self.namespace, self.path) = (namespace, path);
        self
    }

    /// Whether a session looks names up as this plan's were. `own` is its user's schema, if there
    /// is one. Statements that use no plan fit every session.
    pub(crate) fn is_found_by(&self, namespace: Oid, search_path: &[String], own: Option<&str>) -> bool {
        let same = |(name, known): (&String, &String)| match own {
            Some(own) if name == "$user" => known == own,
            _ => known == name,
        };
        matches!(self.action, Action::Utility | Action::Empty)
            || (self.namespace == namespace
                && self.path.len() == search_path.len()
                && search_path.iter().zip(&self.path).all(same))
    }

    /// The same, given the path as a plan would note it.
    pub(crate) fn is_of_path(&self, namespace: Oid, path: &[String]) -> bool {
        matches!(self.action, Action::Utility | Action::Empty)
            || (self.namespace == namespace && self.path == path)
    }

    fn changes_temporary_only(&self) -> bool {
        let touched = |table: &&Arc<Table>| self.changes(table.oid) || self.locks(table.oid);
        let mut touched = self.tables.iter().filter(touched).peekable();
        touched.peek().is_some() && touched.all(|table| table.temporary)
    }

    /// Notes the size of the tables, so that it can be told when the plan is outgrown, and what had
    /// been gathered of their columns.
    pub(crate) fn sized(mut self, database: &SqlDatabase, learned: u64) -> Planned {
        let engine = database.engine();
        self.growth = AtomicU64::new(engine.growth());
        self.rows = self.tables.iter().map(|table| planned_rows(engine, table)).collect();
        self.learned = AtomicU64::new(learned);
        self
    }

    /// Whether another plan may be better: a table has changed its size by much, or more is known
    /// of its columns.
    pub(crate) fn is_outgrown(&self, database: &SqlDatabase) -> bool {
        let has_tables = !self.rows.is_empty();
        has_tables && (self.is_resized(database.engine()) || self.is_overtaken(database.gathered()))
    }

    fn is_resized(&self, engine: &Database) -> bool {
        let growth = engine.growth();
        if self.growth.load(Ordering::Relaxed) == growth {
            return false;
        }
        let resized = self.tables.iter().zip(&self.rows).any(|(table, &then)| {
            let now = planned_rows(engine, table);
            now / OUTGROWN > then || then / OUTGROWN > now
        });
        if !resized {
            self.growth.store(growth, Ordering::Relaxed);
        }
        resized
    }

    fn is_overtaken(&self, gathered: &Gathered) -> bool {
        let newest = gathered.ordinal();
        let learned = self.learned.load(Ordering::Relaxed);
        if newest == learned {
            return false;
        }
        let is_newer = |table: &Arc<Table>| gathered.of(table.tree).is_some_and(|of| of.ordinal > learned);
        let overtaken = self.tables.iter().any(is_newer);
        if !overtaken {
            self.learned.store(newest, Ordering::Relaxed);
        }
        overtaken
    }

    /// Whether it was made for this state of the catalog. Statements that use no plan fit every
    /// state.
    pub(crate) fn is_for(&self, state: u64) -> bool {
        self.state.load(Ordering::Relaxed) == state || matches!(self.action, Action::Utility | Action::Empty)
    }

    /// Whether it is carried out by a plan: not from its syntax tree, and not at all empty.
    pub(crate) fn has_plan(&self) -> bool {
        !matches!(self.action, Action::Utility | Action::Empty)
    }

    /// It calls a function whose body could not be bound. That says what names and settings were
    /// when it was planned: who runs it plans it anew, and it is kept for nobody else.
    pub(crate) fn calls_unbound(&self) -> bool {
        self.routines.iter().any(|body| body.is_unbound())
    }

    /// Oids of the routines whose definitions it rests on.
    pub(crate) fn routine_oids(&self) -> impl Iterator<Item = Oid> {
        let called = match &self.action {
            Action::Call(plan) => Some(plan.routine.oid),
            _ => None,
        };
        self.routines.iter().map(|body| body.routine.oid).chain(called)
    }

    /// It is a SELECT without row locks.
    pub(crate) fn is_reading(&self) -> bool {
        match &self.action {
            Action::Select(plan) => !plan.has_locks(),
            _ => false,
        }
    }

    /// It changes or locks rows.
    pub(crate) fn is_changing(&self) -> bool {
        match &self.action {
            Action::Insert(_) | Action::Update(_) | Action::Delete(_) | Action::Parts(_) => true,
            Action::Select(plan) => plan.has_locks(),
            Action::Call(_) | Action::Empty | Action::Utility => false,
        }
    }

    /// Whether it changes rows of a table.
    pub(crate) fn changes(&self, table: Oid) -> bool {
        match &self.action {
            Action::Insert(plan) => plan.table.oid == table,
            Action::Update(plan) => plan.target.table.oid == table,
            Action::Delete(plan) => plan.target.table.oid == table,
            Action::Parts(plan) => plan.targets().any(|target| target.oid == table),
            _ => false,
        }
    }

    /// Whether it locks rows of a table without changing them.
    pub(crate) fn locks(&self, table: Oid) -> bool {
        match &self.action {
            Action::Select(plan) => plan.locks.iter().any(|lock| lock.table.oid == table),
            Action::Parts(plan) => plan.locks(table),
            _ => false,
        }
    }
}

/// Small tables are all the same to the planner.
fn planned_rows(engine: &Database, table: &Table) -> u64 {
    engine.approximate_rows(table.tree).max(1000)
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let depth = self.depth();
        let is_deep = depth > parse::SHALLOW;
        let is_long =
            self.statement.as_ref().is_some_and(|statement| statement.text.len() >= reclaim::LONG_TEXT_BYTES);
        if !is_deep && !is_long {
            return;
        }
        let nothing = Planned::new(Action::Empty, Vec::new(), None, Vec::new(), 0);
        let planned = (std::mem::replace(&mut self.first, Arc::new(nothing)), self.later.take());
        match is_deep {
            true => parse::on_large_stack(depth, || drop(planned)),
            false => reclaim::elsewhere(planned),
        }
    }
}

impl Prepared {
    /// A bound on the depth of its trees.
    pub(crate) fn depth(&self) -> usize {
        self.statement.as_ref().map_or(0, Statement::depth)
    }

    pub(crate) fn new(
        statement: Option<Statement>,
        declared: Vec<Option<Type>>,
        planned: Planned,
    ) -> Prepared {
        Prepared {
            statement,
            declared,
            parameter_types: planned.parameter_types.clone(),
            columns: planned.columns.clone(),
            first: Arc::new(planned),
            kept: OnceLock::new(),
            later: OnceLock::new(),
        }
    }

    /// Bytes that it takes, about, and may be charged for as long as it is there.
    pub(super) fn weight(&self) -> usize {
        let of = |statement: &Statement| statement.charged() + statement.text.len() * KEPT_FACTOR;
        KEPT_BYTES + self.statement.as_ref().map_or(0, of)
    }

    /// A session is about to keep it under a name: takes memory for it, unless somebody has. 53200
    /// if there is not so much.
    pub(crate) fn keep(&self, budget: &Arc<Budget>) -> Result<()> {
        if self.kept.get().is_none() {
            let text = self.statement.as_ref().map_or(0, |statement| statement.text.len());
            let charge = budget.charge(KEPT_BYTES + text * KEPT_FACTOR, "A prepared statement")?;
            // Another session may have been faster.
            let _ = self.kept.set(charge);
        }
        Ok(())
    }

    /// Types of `$1`, `$2`, ...
    pub fn parameter_types(&self) -> &[Type] {
        &self.parameter_types
    }

    /// The columns of the rows it returns, or `None` if it returns none.
    pub fn columns(&self) -> Option<&[OutputColumn]> {
        self.columns.as_deref()
    }

    /// The text held no statement at all.
    pub fn is_empty(&self) -> bool {
        self.statement.is_none()
    }

    pub(crate) fn shared_columns(&self) -> Option<Arc<[OutputColumn]>> {
        self.columns.clone()
    }

    pub(crate) fn statement(&self) -> Option<&Statement> {
        self.statement.as_ref()
    }

    pub(crate) fn declared(&self) -> &[Option<Type>] {
        &self.declared
    }

    /// What the names of its first plan were looked up by.
    pub(crate) fn first_path(&self) -> (Oid, &[String]) {
        (self.first.namespace, &self.first.path)
    }

    pub(crate) fn planned(&self) -> Arc<Planned> {
        self.later.get().map_or_else(|| Arc::clone(&self.first), ArcSwap::load_full)
    }

    /// Whether it is carried out by a plan. Asked before each execution, so without a look at how
    /// many have that plan: those who share it would take the line of that count from each other.
    pub(crate) fn has_plan(&self) -> bool {
        self.later.get().map_or_else(|| self.first.has_plan(), |later| later.load().has_plan())
    }

    pub(crate) fn replan(&self, planned: Planned) -> Arc<Planned> {
        let planned = Arc::new(planned);
        self.later.get_or_init(|| ArcSwap::new(planned.clone())).store(planned.clone());
        planned
    }
}
