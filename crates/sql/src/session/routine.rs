//! Calls that are statements: CALL, and a function that does more than one SELECT.
//!
//! The statements of the body run one after the other, each planned and run like a statement of the
//! client's, in the transaction that is open: nothing is committed between them, no other
//! transaction begins, and they wait for locks only. The routine's inputs are their parameters.
//!
//! ```text
//! BEGIN; CALL move(5)            depth 0: the client's statement
//!     UPDATE account ...         depth 1: $1 = 5
//!     CALL note(amount)          depth 1
//!         INSERT INTO log ...    depth 2: $1 = 5
//! ```
//!
//! What fails is told with the statements around it (CONTEXT), and undone with the client's
//! statement. One that fails for others (40001) is run again like any other, by itself if that is
//! enough (`again`).

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::RwLock;

use super::portal::{PortalState, Tag};
use super::statement::tag;
use super::{Action, CommandTag, Fetch, Format, OutputColumn, Portal, Prepared, RowSink, Session, SinkState};
use crate::bind::{BindContext, Binder, Called, Form, NoRowCounts, NoVirtualTables};
use crate::catalog::{Behavior, Oid, Routine};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, check_held};
use crate::function::{EvalContext, Interrupt as _};
use crate::oltp::memory::row_bytes;
use crate::oltp::run::Run;
use crate::oltp::source::{Pieces, Places};
use crate::parse::CreateRoutine;
use crate::routine::{self, Checks, DEPTH_MAX, Outcome};
use crate::types::cast::Cast;
use crate::types::{Datum, FormatContext, Record, Shape, Type};

/// Stack left before a statement of a body is gone on with on a fresh one, and the size of that.
const RED_ZONE: usize = 512 * 1024;
const FRESH_STACK: usize = 2 * 1024 * 1024;

/// A planned call.
#[derive(Debug)]
pub(crate) struct CallPlan {
    pub(crate) routine: Arc<Routine>,
    /// Values of the routine's inputs.
    arguments: Vec<Expr>,
    places: Places,
    form: Form,
}

impl CallPlan {
    /// Whether it may change the database: what is not volatile must not.
    pub(super) fn may_write(&self) -> bool {
        self.form == Form::Call || self.routine.behavior == Behavior::Volatile
    }

    /// Plans a bound call.
    pub(super) fn new(binder: &Binder<'_>, called: Called) -> Result<CallPlan> {
        let Called { routine, mut arguments, form, .. } = called;
        let mut pieces = Pieces::default();
        pieces.expressions(binder, &mut arguments)?;
        Ok(CallPlan { routine, arguments, places: pieces.finish(binder), form })
    }
}

/// The planned statements of a routine's body.
#[derive(Debug)]
struct Body {
    routine: Arc<Routine>,
    /// The search path that they were bound under, and the state of the catalog.
    search_path: Vec<String>,
    state: u64,
    statements: Vec<Arc<Prepared>>,
    outcome: Outcome,
    /// Of the last statement's columns to the result's.
    conversions: Vec<Option<Cast>>,
    /// What they must meet then, where the result's are of domains.
    checks: Checks,
}

/// Bodies by the oids of their routines, shared by all sessions.
#[derive(Default)]
pub(crate) struct Bodies(RwLock<HashMap<Oid, Arc<Body>>>);

/// So many bodies are kept, and none whose text is longer.
const BODIES_MAX: usize = 1024;
const KEPT_TEXT_MAX: usize = 16 << 10;

impl Bodies {
    fn get(&self, routine: &Arc<Routine>, search_path: &[String], state: u64) -> Option<Arc<Body>> {
        let known = self.0.read().get(&routine.oid).cloned()?;
        let fits =
            Arc::ptr_eq(&known.routine, routine) && known.search_path == search_path && known.state == state;
        fits.then_some(known)
    }

    fn put(&self, body: &Arc<Body>) {
        let mut bodies = self.0.write();
        if bodies.len() >= BODIES_MAX {
            bodies.clear();
        }
        bodies.insert(body.routine.oid, body.clone());
    }
}

/// Takes the rows of a body's last statement, or drops those of another one.
pub(super) struct Rows {
    pub(super) rows: Vec<Vec<Datum>>,
    /// How many there were, if any are wanted.
    pub(super) count: u64,
    bytes: usize,
    limit: usize,
    /// So many are kept.
    wanted: usize,
    refused: Option<SqlError>,
}

impl Rows {
    pub(super) fn new(limit: usize, is_wanted: bool) -> Rows {
        Rows::first(limit, if is_wanted { usize::MAX } else { 0 })
    }

    /// The first so many rows.
    pub(super) fn first(limit: usize, wanted: usize) -> Rows {
        Rows { rows: Vec::new(), count: 0, bytes: 0, limit, wanted, refused: None }
    }

    /// What they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl RowSink for Rows {
    fn row(
        &mut self,
        _: &[OutputColumn],
        _: &[Format],
        row: &[Datum],
        _: &FormatContext,
    ) -> Result<SinkState> {
        if self.wanted == 0 {
            return Ok(SinkState::Ready);
        }
        self.count += 1;
        if self.rows.len() >= self.wanted {
            return Ok(SinkState::Ready);
        }
        self.bytes += row_bytes(row);
        if let Err(refused) = check_held(self.bytes, self.limit) {
            self.refused = Some(refused);
            return Ok(SinkState::Full);
        }
        self.rows.push(row.to_vec());
        Ok(SinkState::Ready)
    }

    fn copy_out(&mut self, _: &[u8]) -> SinkState {
        SinkState::Ready
    }
}

impl Session {
    /// The trees of the tables that a CALL, or a function called alone, looks at, but for what
    /// functions in its expressions read.
    ///
    /// # Errors
    ///
    /// Those of planning the statements, as they are by now.
    pub(super) fn routine_trees(&mut self, prepared: &Arc<Prepared>) -> Result<Vec<u32>> {
        let mut trees = Vec::new();
        let mut left = vec![prepared.clone()];
        let mut seen = Vec::new();
        while let Some(prepared) = left.pop() {
            let planned = self.planned_of(&prepared);
            trees.extend(planned.tables.iter().map(|table| table.tree));
            if let Action::Call(call) = &planned.action
                && !seen.contains(&call.routine.oid)
            {
                seen.push(call.routine.oid);
                left.extend(self.body(&call.routine.clone())?.statements.iter().cloned());
            }
        }
        Ok(trees)
    }

    /// The planned statements of a body. 0A000 for those that no body can have, 42P13 if the last
    /// one does not give what the routine is to give back.
    fn body(&mut self, routine: &Arc<Routine>) -> Result<Arc<Body>> {
        let (catalog, state) = self.catalog_with_state();
        let search_path = self.facts.binding_path(&catalog);
        // Every node plans for itself what every node executes.
        let is_shared = self.own_catalog_is_empty() && !self.is_ordered();
        if is_shared && let Some(known) = self.database.bodies().get(routine, &search_path, state) {
            return Ok(known);
        }
        let declared: Vec<Option<Type>> = routine.inputs().map(|argument| Some(argument.ty)).collect();
        let name = &routine.name;
        let mut statements = Vec::new();
        for statement in routine::statements(routine)? {
            let command = tag(&statement.command);
            super::utility::check_stored_depth(&statement)?;
            let prepared = self.plan_prepared(Some(statement), declared.clone());
            let prepared = prepared.map_err(|error| routine::within(error, name, None))?;
            check_command(routine, &prepared, command).map_err(|error| routine::within(error, name, None))?;
            statements.push(Arc::new(prepared));
        }
        let outcome = Outcome::of(routine, &catalog)?;
        let last = statements.last().and_then(|last| last.columns());
        let conversions = routine::conversions(routine, &outcome, last, self.format_context())?;
        let checks = self.result_checks(&outcome, last)?;
        let routine = routine.clone();
        let body = Arc::new(Body { routine, search_path, state, statements, outcome, conversions, checks });
        if is_shared && body.routine.body.len() <= KEPT_TEXT_MAX {
            self.database.bodies().put(&body);
        }
        Ok(body)
    }

    /// What the columns of a body's last statement must meet where the result's are of domains.
    fn result_checks(&mut self, outcome: &Outcome, columns: Option<&[OutputColumn]>) -> Result<Checks> {
        let (catalog, _) = self.catalog_with_state();
        self.facts.set_catalog(&catalog);
        let search_path = self.facts.binding_path(&catalog);
        let interrupts = self.interrupts();
        let context = BindContext {
            catalog: &catalog,
            search_path: &search_path,
            eval: EvalContext { interrupt: &*interrupts, ..self.eval() },
            virtual_tables: &NoVirtualTables,
            row_counts: &NoRowCounts,
            source: &"".into(),
        };
        let mut binder = Binder::new(&context, &[]);
        routine::checks(&mut binder, outcome, columns)
    }

    /// 23502 or 23514 for converted rows of a body's last statement that are not of the result's
    /// domains.
    fn test_result(&mut self, body: &Body, rows: &[Vec<Datum>]) -> Result<()> {
        if body.checks.is_empty() || rows.is_empty() {
            return Ok(());
        }
        let interrupts = self.interrupts();
        let work = self.work(&interrupts)?;
        work.read(|read| rows.iter().try_for_each(|row| routine::test_row(row, &body.checks, read)))
    }

    /// CREATE FUNCTION and CREATE PROCEDURE. The body is looked at when the routine is there: it
    /// may call itself. With `check_function_bodies` off it may name what is not there yet, as in
    /// dumps, which have functions before tables; who calls it looks again.
    pub(super) async fn create_routine(&mut self, create: &CreateRoutine, words: &str) -> Result<()> {
        self.await_slow_node().await?;
        self.open_transaction(false);
        let interrupts = self.interrupts();
        let mut work = self.work(&interrupts)?;
        work.require_writable(words)?;
        work.hold_own_role().await?;
        let routine = work.create_routine(create).await?;
        let is_off = self.eval().session.setting("check_function_bodies").as_deref() == Some("off");
        if is_off && !routine.atomic {
            return routine::statements(&routine).map(drop);
        }
        self.body(&routine).map(drop)
    }

    /// Runs a call. `depth` is the number of calls around it.
    pub(super) async fn call(
        &mut self,
        plan: &CallPlan,
        parameters: &Arc<[Datum]>,
        depth: usize,
    ) -> Result<PortalState> {
        let routine = &plan.routine;
        let arguments: Arc<[Datum]> = {
            let run = Run::new(parameters.clone(), &plan.places);
            let interrupts = self.interrupts();
            let work = self.work(&interrupts)?;
            run.evaluate(&work, &plan.arguments, &[])?.into()
        };
        let is_null = routine.strict && arguments.iter().any(Datum::is_null);
        let (outcome, rows) = match is_null {
            true => (Outcome::of(routine, &self.catalog_with_state().0)?, Vec::new()),
            false if routine.security_definer => self.run_as_owner(routine, arguments, depth).await?,
            false => self.run_body(routine, arguments, depth).await?,
        };
        result(plan, &outcome, rows)
    }

    /// Runs the statements of a body as the role that owns it.
    async fn run_as_owner(
        &mut self,
        routine: &Arc<Routine>,
        arguments: Arc<[Datum]>,
        depth: usize,
    ) -> Result<(Outcome, Vec<Vec<Datum>>)> {
        let (catalog, _) = self.catalog_with_state();
        // What ends the statement before that is put back puts all settings back.
        let mark = self.facts.mark();
        self.facts.act_as(&catalog, catalog.owner(routine.oid));
        self.refresh_settings();
        let ran = self.run_body(routine, arguments, depth).await;
        self.facts.with_settings(|settings| settings.act_as_before(&mark));
        self.refresh_settings();
        ran
    }

    /// Runs the statements of a body; the rows of the last one, converted.
    async fn run_body(
        &mut self,
        routine: &Arc<Routine>,
        arguments: Arc<[Datum]>,
        depth: usize,
    ) -> Result<(Outcome, Vec<Vec<Datum>>)> {
        if depth >= DEPTH_MAX {
            return Err(routine::too_deep());
        }
        self.interrupts.count(1)?;
        let body = self.body(routine)?;
        let mut rows = Vec::new();
        for (place, prepared) in body.statements.iter().enumerate() {
            let is_last = place + 1 == body.statements.len();
            let is_wanted = is_last && body.outcome != Outcome::Nothing;
            let most = if is_wanted && !routine.returns_set { 1 } else { 0 };
            let mut portal = Portal::new(prepared.clone(), arguments.clone(), Vec::new());
            portal.depth = depth + 1;
            let limit = self.memory_limit;
            let mut sink = Rows::new(limit, is_wanted);
            let ran = self.run_statement(&mut portal, &mut sink, most).await;
            ran.map_err(|error| routine::within(error, &routine.name, Some(place + 1)))?;
            rows = sink.rows;
        }
        for row in &mut rows {
            routine::convert(row, &body.conversions, &self.format)?;
        }
        let tested = self.test_result(&body, &rows);
        tested.map_err(|error| routine::within(error, &routine.name, Some(body.statements.len())))?;
        Ok((body.outcome.clone(), rows))
    }

    /// Runs a statement of a body, on a stack that is large enough for the calls in it.
    pub(super) async fn run_statement(
        &mut self,
        portal: &mut Portal,
        sink: &mut Rows,
        most: u64,
    ) -> Result<Fetch> {
        let fetch = on_enough_stack(Box::pin(self.advance(portal, sink, most))).await?;
        sink.refused.take().map_or(Ok(fetch), Err)
    }
}

/// Polls a future on a stack that is large enough for what it calls.
pub(super) async fn on_enough_stack<F: Future + ?Sized>(mut going: Pin<Box<F>>) -> F::Output {
    let poll = |context: &mut std::task::Context<'_>| {
        stacker::maybe_grow(RED_ZONE, FRESH_STACK, || going.as_mut().poll(context))
    };
    std::future::poll_fn(poll).await
}

/// 0A000 for what a body cannot do.
fn check_command(routine: &Routine, prepared: &Prepared, command: &str) -> Result<()> {
    let not_supported = |message: String| Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
    let changes = match &prepared.planned().action {
        Action::Empty | Action::Utility => {
            return match super::statement::controls_transaction(command) {
                true => not_supported(format!("{command} is not allowed in an SQL function")),
                false => Err(SqlError::unsupported(format!("{command} in a function or procedure"))),
            };
        }
        Action::Select(plan) => plan.has_locks(),
        Action::Insert(_) | Action::Update(_) | Action::Delete(_) => true,
        Action::Parts(_) | Action::Call(_) => true,
    };
    if changes && routine.behavior != Behavior::Volatile {
        return not_supported(format!("{command} is not allowed in a non-volatile function"));
    }
    Ok(())
}

/// What a call gives its statement.
fn result(plan: &CallPlan, outcome: &Outcome, mut rows: Vec<Vec<Datum>>) -> Result<PortalState> {
    let routine = &plan.routine;
    let done = |rows: Vec<Vec<Datum>>, tag| PortalState::Rows { rows: rows.into_iter(), sent: 0, tag };
    if plan.form == Form::Call {
        if *outcome == Outcome::Nothing {
            return Ok(PortalState::Done(CommandTag::Plain("CALL")));
        }
        if rows.is_empty() {
            return Err(SqlError::new(sqlstate::INTERNAL_ERROR, "procedure returned null record"));
        }
        return Ok(done(rows, Tag::Fixed(CommandTag::Plain("CALL"))));
    }
    // One that gives no set has one row in any case.
    let is_missing = rows.is_empty() && !routine.returns_set;
    if plan.form == Form::Values
        && let (Outcome::Row(columns), false) = (outcome, is_missing)
    {
        let shape: Shape = columns.clone().into();
        let record = |values| vec![Datum::Record(Record { shape: shape.clone(), values }.into())];
        rows = rows.into_iter().map(record).collect();
    }
    if is_missing {
        let width = match (plan.form, outcome) {
            (Form::Rows, Outcome::Row(columns)) => columns.len(),
            _ => 1,
        };
        rows.push(vec![Datum::Null; width]);
    }
    Ok(done(rows, Tag::Sent("SELECT")))
}
