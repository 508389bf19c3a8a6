//! Active replication: a transaction that is known as a whole when it begins goes to every node as
//! its statements, and each node executes them when it is their turn in the order.
//!
//! Fit for it is what comes in one piece: a message of one or several statements, one statement
//! with its parameters, a CALL; and only if every node comes to the same ([`fitness`]). What
//! differs from node to node or from moment to moment goes along in the [`Program`]: the user, the
//! settings that say how texts are read, the time, the seed of random numbers. Sequences and row
//! ids are taken from their stored state when it is the program's turn ([`Fixed`]).
//!
//! ```text
//! session    UPDATE counter SET n = n + 1; INSERT INTO log VALUES (now())
//!            fit? ─▶ Program ─▶ [ order ] ─▶ 7: the applier of each node, everything up to 6 is visible
//!                                                a session of its own over the given transaction
//!            answers ◀──────────────────────────  at the node where it was asked for
//! ```
//!
//! It never fails for others' sake, but for a prepared transaction that holds what it wants: nobody
//! knows yet what becomes of that, and nobody behind it could be told anything meanwhile.
//!
//! An error of a statement ends the program, at every node alike, and it has changed nothing. An
//! error of a node (its disk, its memory) is no answer: that node leaves ([`failure`]). Nobody can
//! stop a program that goes on for long, and all wait for it. So its steps are counted, which are
//! the same at every node, and bounded, and so is what it may hold: by what goes along.

mod failure;
mod fitness;
mod fixed;
mod given;
mod message;
mod program;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use cognate_engine::{Csn, Executed, Execution, TransactionId};
use parking_lot::Mutex;

use super::facts::Facts;
use super::identity::gone;
use super::interrupt::Interrupts;
use super::outcome::{Asked, fitting_name};
use super::portal::{PortalState, Tag};
use super::replication::Choice;
use super::routine::Rows;
use super::settings::Origin;
use super::state::TransactionState;
use super::{
    Action, Authority, Block, Boxed, CommandTag, Company, Fetch, Format, Open, OutputColumn, Portal,
    Prepared, Session, SessionParameters, SqlDatabase, Statement,
};
use crate::catalog::Catalog;
use crate::ddl::database::undefined_database;
use crate::error::{Result, SqlError, sqlstate};
use crate::monitor::{Finished, Protocol};
use crate::types::Datum;
use failure::{caught, is_of_the_node};
pub(super) use fitness::{check, check_parameters, is_under_rules_of_now};
pub(crate) use fixed::Fixed;
use given::Given;
pub(super) use message::is_read_only;
use message::{Message, check_end};
use program::{Program, RULES, Step};

/// What a statement of a program gave.
struct Answer {
    /// As they were when it was its turn: others may have changed its table since it was given.
    columns: Option<Arc<[OutputColumn]>>,
    rows: Vec<Vec<Datum>>,
    tag: CommandTag,
}

impl Answer {
    /// A portal that gives its rows.
    fn into_portal(self, prepared: Arc<Prepared>) -> Portal {
        let columns = self.columns.as_ref().map_or(0, |columns| columns.len());
        let mut portal = Portal::new(prepared, Arc::from([]), vec![Format::Text; columns]);
        portal.columns = self.columns;
        let tag = Tag::Fixed(self.tag);
        portal.state = match columns {
            0 => PortalState::Done(self.tag),
            _ => PortalState::Rows { rows: self.rows.into_iter(), sent: 0, tag },
        };
        portal
    }
}

/// What a program gave, where it was asked for.
struct Answers {
    statements: Vec<Answer>,
    /// What each sequence gave last; the one that was called last comes last.
    sequences: Vec<(u32, i64)>,
}

/// What became of a program here, and what it has cost: one that fails has cost something, too.
struct Ended {
    answers: Result<Answers>,
    /// Microseconds of executing it here.
    took_us: u64,
    /// Bytes of what it has written.
    wrote: u64,
}

/// Programs of this node's sessions that are on their way.
#[derive(Default)]
pub(crate) struct Programs(Mutex<HashMap<TransactionId, Option<Ended>>>);

impl Programs {
    fn expect(&self, id: TransactionId) {
        self.0.lock().insert(id, None);
    }

    /// Nobody is told any more if nobody waits.
    fn tell(&self, id: TransactionId, ended: Ended) {
        if let Some(waiting) = self.0.lock().get_mut(&id) {
            *waiting = Some(ended);
        }
    }

    fn take(&self, id: TransactionId) -> Option<Ended> {
        self.0.lock().remove(&id).flatten()
    }
}

/// A session's wait for a program, which ends with it.
struct Expected {
    database: SqlDatabase,
    id: TransactionId,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.database.programs().0.lock().remove(&self.id);
    }
}

impl Session {
    /// Whether statements outside a block are to be executed at every node, if that is possible.
    pub fn wants_active(&self) -> bool {
        self.effective.replication == Choice::Active
            && self.company != Company::Some
            && self.may_begin_active()
    }

    /// Executes the statements of a message as one transaction at every node, and gives the portals
    /// from which their answers come. Nothing if no statement of it changes anything, or it is a
    /// single one that does not concern the database, or if only the monitor has wanted it and it
    /// is refused there: then it runs here as ever.
    ///
    /// # Errors
    /// 0A000 for what cannot be executed at every node alike; what the statements fail with; 40001
    /// if a prepared transaction is in the way.
    #[inline(never)]
    pub fn run_active<'a>(&'a mut self, statements: &'a [Statement]) -> Boxed<'a, Option<Vec<Portal>>> {
        Box::pin(self.run_active_here(statements))
    }

    async fn run_active_here(&mut self, statements: &[Statement]) -> Result<Option<Vec<Portal>>> {
        if !statements.iter().any(|statement| self.may_write(statement)) {
            return Ok(None);
        }
        let message = Message::of(statements);
        let is_about_rows = |statement: &Statement| fitness::is_about_rows(self.meant(statement));
        // Who says it for what follows in the session may define tables before.
        let says = message.said.is_some() || message.request.is_some();
        if says && !message.statements.iter().any(is_about_rows) {
            return Ok(None);
        }
        self.begin_program(message.isolation);
        self.attempt.is_fit = true;
        let given = match self.given_of(message.statements).await {
            Ok(given) => given,
            Err(error) => return self.not_executed(&message, error, true),
        };
        if !given.iter().any(|given| writes(&given.prepared)) {
            return Ok(None);
        }
        let mut before = Vec::new();
        for statement in &message.before {
            before.push(self.done(statement)?);
        }
        let commit = message.commit.map(|statement| self.done(statement)).transpose()?;
        let name = message.request.as_ref().map(|request| request.value.as_str());
        let mut portals = match self.run_program(given, name).await {
            Ok(Ok(portals)) => portals,
            Ok(Err(error)) => return self.not_executed(&message, error, true),
            Err(error) => return self.not_executed(&message, error, false),
        };
        if let Some(said) = message.said.filter(|said| !said.is_local) {
            self.set(said.set, said.statement)?;
        }
        if let Some(request) = message.request.filter(|request| !request.is_local) {
            self.set(request.set, request.statement)?;
        }
        portals.extend(commit);
        portals.splice(..0, before);
        Ok(Some(portals))
    }

    /// The statements of a message, as the parts of a program.
    async fn given_of(&mut self, statements: &[Statement]) -> Result<Vec<Given>> {
        check_end(statements)?;
        let mut given = Vec::with_capacity(statements.len());
        for statement in statements {
            let one = match self.given(statement) {
                // It may be about what this node has not seen yet, and is to see.
                Err(refusal) if self.reads_after() => {
                    Box::pin(self.look_again(refusal)).await?;
                    self.given(statement)?
                }
                one => one?,
            };
            self.note_statement(&one.prepared);
            given.push(one);
        }
        Ok(given)
    }

    /// A message does not go to every node, or has come to nothing there. Nothing if it runs here
    /// instead. `is_of_statement`: one of its statements has failed, so that it has not come to its
    /// COMMIT; a block that it has begun is a failed one then.
    fn not_executed(
        &mut self,
        message: &Message<'_>,
        error: SqlError,
        is_of_statement: bool,
    ) -> Result<Option<Vec<Portal>>> {
        if message.said.is_none() && self.runs_here_instead(&error) {
            return Ok(None);
        }
        if is_of_statement && message.commit.is_some() {
            self.begin_block(&[], None)?;
            self.fail();
        }
        Err(error)
    }

    /// A statement that stands around a program, as one that is done.
    fn done(&mut self, statement: &Statement) -> Result<Portal> {
        let prepared = self.prepare_statement(statement.clone())?;
        let mut portal = Portal::new(prepared, Arc::from([]), Vec::new());
        portal.state = PortalState::Done(CommandTag::Plain(super::statement::tag(&statement.command)));
        Ok(portal)
    }

    /// The same of one bound statement, outside a block. False if it changes nothing, or is to run
    /// here instead.
    pub(super) async fn run_portal_active(&mut self, portal: &mut Portal) -> Result<bool> {
        if !writes(&portal.prepared) {
            return Ok(false);
        }
        self.attempt.is_fit = true;
        let prepared = portal.prepared.clone();
        self.note_statement(&prepared);
        // What EXECUTE names has begun with its arguments.
        if portal.depth == 0 {
            self.begin_program(None);
        }
        let mut given = match self.given_bound(&prepared, &portal.parameters) {
            Err(error) if self.runs_here_instead(&error) => return Ok(false),
            given => given?,
        };
        if !portal.is_open() {
            given.step.told = portal.columns().map(Step::types_of);
        }
        let answers = match self.run_program(vec![given], None).await.flatten() {
            Err(error) if self.runs_here_instead(&error) => return Ok(false),
            answers => answers?,
        };
        // It is committed: what comes before Sync would be part of it.
        self.has_run_active = true;
        if let Some(answer) = answers.into_iter().next() {
            let Portal { formats, .. } = portal;
            let formats = std::mem::take(formats);
            *portal = answer;
            portal.spread_formats(&formats);
        }
        Ok(true)
    }

    /// 0A000 if a statement that writes is to be executed at every node and is part of a
    /// transaction that nobody knows as a whole; or the COMMIT of such a one, of which that was
    /// said afterwards.
    pub(super) fn check_replication(&mut self, command: &str) -> Result<()> {
        if !self.database.engine().is_node() || self.is_ordered() {
            return Ok(());
        }
        if self.effective.replication != Choice::Active {
            self.attempt.has_changed_here = true;
            return Ok(());
        }
        Err(fitness::unfit(format_args!(
            "{command} in a transaction that is not known as a whole when it begins"
        ))
        .with_hint(
            "Send the whole transaction as one message without BEGIN, or as a procedure by CALL, or SET \
                 LOCAL cognate.replication = auto.",
        ))
    }

    /// Whether it executes a program whose turn it is.
    pub(super) fn is_ordered(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.engine.is_ordered())
    }

    /// What keeps a program from being ordered keeps its first statement from being executed.
    async fn check_program(&mut self) -> Result<()> {
        self.check_majority()?;
        self.await_slow_node().await?;
        self.check_is_role()
    }

    /// The portals from which the answers come, or the error of a statement, which has kept the
    /// program from its commit. `named`: what the message says that its request is called.
    async fn run_program(&mut self, given: Vec<Given>, named: Option<&str>) -> Result<Result<Vec<Portal>>> {
        if let Err(refusal) = self.check_program().await {
            return Ok(Err(refusal));
        }
        let (isolation, now) = (self.modes.isolation, self.format.transaction_time);
        let (statements, steps): (Vec<Arc<Prepared>>, Vec<Step>) =
            given.into_iter().map(|given| (given.prepared, given.step)).unzip();
        let settings = self.facts.with_settings(|settings| program::settings(settings));
        let (catalog, _) = self.catalog_with_state();
        let program = Program {
            steps,
            // Every node asks what this role may do.
            user: self.facts.current_user(),
            role: self.facts.current_role(&catalog),
            session: self.facts.acts_for(&catalog),
            database: self.facts.database_name(),
            database_oid: self.database.oid(),
            settings,
            now,
            seed: super::facts::random_u64(),
            memory: Some(self.memory_limit as u64),
            writes_max: Some(self.database.engine().transaction_bytes()),
            steps_max: Some(self.effective.active_steps),
            rules: RULES,
        };
        let database = self.database.clone();
        let engine = database.engine();
        let id = engine.program_id();
        database.programs().expect(id);
        let _expected = Expected { database: database.clone(), id };
        let given = named.map_or_else(|| self.given_name(), fitting_name)?;
        let (name, program) = (given.as_deref(), program.encode()?);
        // Ordered once it is waited for: behind the position that the hint of 08007 names.
        let ordered = async { engine.order_program(id, isolation, name, &program)?.await };
        let shown = name.map_or_else(|| id.to_string(), str::to_owned);
        self.seat.pause();
        let asked = database.now();
        let outcome = self.in_order(Asked::Request(&shown), ordered).await?;
        let ended = database.programs().take(id);
        let (taken, wrote) = ended.as_ref().map_or((0, 0), |ended| (ended.took_us, ended.wrote));
        let waited = database.now().saturating_sub(asked).max(0).unsigned_abs();
        self.note_protocol(&Finished {
            committed: outcome.is_ok(),
            conflict: outcome.as_ref().ok().and_then(|commit| commit.was_met),
            execution_us: taken,
            write_bytes: wrote,
            order_us: waited.saturating_sub(taken),
            ..self.finished(None, Protocol::Active)
        });
        let (commit, answers) = match (ended.map(|ended| ended.answers), outcome) {
            (Some(Err(error)), _) => return Ok(Err(error)),
            (_, Err(error)) => return Err(self.name_failure(error)),
            (None, Ok(_)) => return Err(SqlError::internal("a program that was executed has no answer")),
            (Some(Ok(answers)), Ok(commit)) => {
                for (sequence, value) in &answers.sequences {
                    self.facts.note_sequence(*sequence, *value, true);
                }
                self.commits += 1;
                self.keep_token_at_node(commit.csn);
                self.facts.rest_on(commit.csn);
                (commit, answers)
            }
        };
        commit.durable.await?;
        let answers = statements.into_iter().zip(answers.statements);
        Ok(Ok(answers.map(|(prepared, answer)| answer.into_portal(prepared)).collect()))
    }
}

/// Whether a statement changes anything, or may.
pub(super) fn writes(prepared: &Prepared) -> bool {
    match &prepared.planned().action {
        Action::Insert(_) | Action::Update(_) | Action::Delete(_) | Action::Parts(_) => true,
        Action::Select(plan) => plan.has_locks(),
        Action::Call(plan) => plan.may_write(),
        Action::Empty | Action::Utility => false,
    }
}

/// Whether one of them may change the database.
pub(super) fn may_write(statements: &[Statement]) -> bool {
    statements.iter().any(fitness::may_write)
}

/// The statements between a BEGIN and a COMMIT that enclose all; else all. Without what is said
/// first of how they come to the other nodes.
pub(super) fn within_block(statements: &[Statement]) -> &[Statement] {
    Message::of(statements).statements
}

/// What a message says first of how it comes to the other nodes.
pub(super) fn said_first(statements: &[Statement]) -> Option<Choice> {
    Message::of(statements).said.map(|said| said.value)
}

/// Whether every node that executes a statement comes to the same.
pub(super) fn is_fit(catalog: &Catalog, facts: &Facts, statement: &Statement) -> bool {
    fitness::check(catalog, facts, statement).is_ok()
}

impl SqlDatabase {
    /// Executes an active transaction whose turn it is. To be called by who delivers; the answer
    /// goes back to the engine.
    ///
    /// # Errors
    /// What keeps this node from executing what others may have executed: it must not go on.
    #[inline(never)]
    pub fn execute_program(
        &self,
        execution: Execution,
    ) -> Pin<Box<dyn Future<Output = Result<Executed>> + '_>> {
        Box::pin(self.execute_program_here(execution))
    }

    async fn execute_program_here(&self, execution: Execution) -> Result<Executed> {
        let began = std::time::Instant::now();
        let Execution { position, id, is_here, isolation, program, mut transaction } = execution;
        let program = Program::decode(&program)?;
        self.check_catalog()?;
        // Who has gone ahead of it in the order has so at all nodes: its database, and its role,
        // and whoever is called so by now is somebody else.
        let session = match self.of(program.database_oid) {
            None => Err(undefined_database(&program.database)),
            Some(database) => match database.user_of(&program) {
                None => Err(gone(&program.user)),
                Some(user) => database.session_of(&program, user),
            },
        };
        let mut session = match session {
            Ok(session) => session,
            Err(error) if is_of_the_node(&error) => return Err(error),
            Err(error) => {
                self.note_if_defect(position, &error);
                if is_here {
                    let took_us = began.elapsed().as_micros() as u64;
                    self.programs().tell(id, Ended { answers: Err(error), took_us, wrote: 0 });
                }
                return Ok(Executed { transaction, trees: Vec::new(), commits: false });
            }
        };
        // Where rows go that are divided by their hashes must not depend on the node either.
        let _alike = crate::oltp::hash::alike(program.seed);
        if let Some(bytes) = program.writes_max {
            transaction.bound_writes(bytes);
        }
        session.modes = super::modes::Modes { isolation, read_only: false, deferrable: false };
        session.block = Block::Implicit;
        let fixed = Fixed::new(program.now, self.engine().clone(), transaction.view());
        session.facts.fix(fixed.under(program.rules));
        session.facts.seed(program.seed);
        // Its number is that of its request, which all nodes know.
        session.facts.set_transaction_id(id);
        // Others who look see a session that executes, and none that waits in a transaction.
        session.facts.activity.begin(None, self.now());
        session.format.transaction_time = program.now;
        let state = TransactionState::new(false, session.memory_limit, &session.facts.usage);
        session.open = Some(Open { engine: transaction, state });
        let mut trees = Vec::new();
        let done = caught(session.execute_steps(&program, &mut trees)).await;
        let Some(Open { engine: mut transaction, .. }) = session.open.take() else {
            return Err(SqlError::internal("a program has ended its transaction"));
        };
        let done =
            done.and_then(|statements| session.facts.write_fixed(&mut transaction).map(|()| statements));
        let done = match done {
            Err(error) if is_of_the_node(&error) => return Err(error),
            Ok(statements) => Ok(Answers { statements, sequences: session.facts.given_values() }),
            // It would be one in the program's text, which is not the client's.
            Err(mut error) => {
                self.note_if_defect(position, &error);
                error.position = None;
                Err(error)
            }
        };
        let commits = done.is_ok();
        if is_here {
            let took_us = began.elapsed().as_micros() as u64;
            self.programs().tell(id, Ended { answers: done, took_us, wrote: transaction.bytes() });
        }
        Ok(Executed { transaction, trees, commits })
    }

    /// If only this node has met an internal error, it has come to something else than the others,
    /// and its operator is to know where and why.
    fn note_if_defect(&self, position: Csn, error: &SqlError) {
        if error.is_defect {
            self.nodes().note_defect(position, error);
        }
    }

    /// What the role that asks for a program is called now; nothing if it has gone.
    fn user_of(&self, program: &Program) -> Option<String> {
        match program.role {
            Some(role) => self.catalog().role_name(role).map(str::to_owned),
            None => Some(program.user.clone()),
        }
    }

    fn session_of(&self, program: &Program, user: String) -> Result<Session> {
        // A role that has gone since is nobody at all nodes, and not the operator of any.
        let is_of_role = self.catalog().has_roles();
        let parameters = SessionParameters {
            user,
            database: program.database.clone(),
            authority: if is_of_role { Authority::Ordinary } else { Authority::Superuser },
            ..SessionParameters::default()
        };
        let mut session = Session::for_another(self.clone(), parameters)?;
        session.facts.with_settings(|settings| {
            let mut given = program.settings.iter();
            given.try_for_each(|(name, value)| settings.set_default(name, value, Origin::Fact))
        })?;
        if let Some((name, role)) = &program.session {
            // Called so now, as what it acts as is.
            let catalog = self.catalog();
            let name = role.and_then(|role| catalog.role_name(role)).unwrap_or(name);
            session.facts.act_for(&catalog, name, *role);
        }
        // What it may take is what it might have taken where it was asked for.
        if let Some(memory) = program.memory.and_then(|memory| usize::try_from(memory).ok()) {
            session.memory_limit = memory;
        }
        let interrupts =
            Interrupts::new(session.cancel.clone(), Arc::clone(&session.seat), session.memory_limit);
        session.interrupts = Arc::new(interrupts.counting(program.steps_max));
        Ok(session)
    }
}

impl Session {
    async fn execute_steps(&mut self, program: &Program, trees: &mut Vec<u32>) -> Result<Vec<Answer>> {
        self.refresh_settings();
        let mut answers = Vec::with_capacity(program.steps.len());
        // Each node holds all rows until the end, be they for its own client or for nobody.
        let mut left = self.memory_limit;
        for step in &program.steps {
            // The catalog is another one than where it was asked for, perhaps.
            let prepared = self.prepare_alike(&step.text, &step.types)?;
            step.check_told(prepared.columns())?;
            trees.extend(self.routine_trees(&prepared)?);
            let values: Vec<Option<&[u8]>> =
                step.parameters.iter().map(|value| value.as_deref().map(str::as_bytes)).collect();
            let mut portal = self.bind(&prepared, &values, &[Format::Text], &[])?;
            let mut rows = Rows::new(left, true);
            let tag = loop {
                match self.run_statement(&mut portal, &mut rows, 0).await? {
                    Fetch::Complete(tag) => break tag,
                    Fetch::Empty => break CommandTag::Plain(""),
                    Fetch::SinkFull | Fetch::Suspended => {}
                    Fetch::CopyIn(_) | Fetch::CopyOut(_) => return Err(fitness::unfit("COPY")),
                }
            };
            left = left.saturating_sub(rows.bytes());
            answers.push(Answer { columns: prepared.shared_columns(), rows: rows.rows, tag });
        }
        self.before_commit().await?;
        Ok(answers)
    }
}

/// 54000: it would keep everybody waiting.
#[cold]
pub(super) fn too_many_steps() -> SqlError {
    SqlError::new(
        sqlstate::PROGRAM_LIMIT_EXCEEDED,
        "the transaction takes more steps than every node is to take for it (cognate.replication = active)",
    )
    .with_hint(
        "SET cognate.replication = auto, or certification, for this transaction, or raise \
         cognate.active_steps: nobody else's commits are decided meanwhile.",
    )
}
