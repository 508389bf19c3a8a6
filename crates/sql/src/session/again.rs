//! Statements that failed because of others before anything of them was seen, and are run again.
//!
//! | the statement is | failed with | before it is run again |
//! |---|---|---|
//! | outside a block, alone so far | 40001 | the transaction begins anew, with its locks and the newest snapshot |
//! | | 40P01 | the transaction begins anew, without its locks |
//! | this, or the next | 40001, as a delivered transaction has overtaken it | the same, once this node shows that one |
//! | the first of a block at SERIALIZABLE | 40001 | the transaction begins anew, with its locks |
//! | a later one at SERIALIZABLE | 40001 | it is undone, and the snapshot moves to now (the engine's `refresh`); if something was replaced that was read before, the failure stands, and names it |
//! | a row of a COPY at SERIALIZABLE | 40001, before it was written | the snapshot moves likewise, and the row is inserted again behind those before it |
//! | a call, or a DO in a block, for a statement of its body that could not | 40001 | the same with all of the body: what it has read itself does not count. Not a DO that has executed what has no plan |
//! | of a transaction with an age | 40001 | it is undone; its reads are of the newest commits anyway |
//! | UPDATE, DELETE, also in WITH, or MERGE at READ COMMITTED | a row has gone from where its primary key was | it is undone; under another key its new snapshot shows the row |
//! | a definition (DDL) outside a block, alone so far | 40001, 40P01 | the transaction begins anew, without its locks: the definitions that it has seen are old |
//!
//! Locks stay where 40001 is the reason, so that nobody can be faster again.
//! `cognate.statement_retries` says how often; a hundred times as often, where the reason is a row
//! that is newer: a statement may meet many, and has locked one more each time. Whole messages and
//! batches that failed at their end are run again by the server (`server/src/pg`).
//!
//! REPEATABLE READ keeps its snapshot, as in PostgreSQL. So do an instance of a family, a
//! transaction of which a cursor or a suspended portal is open (that reads on where it began), one
//! that has lent its snapshot, and, if definitions have changed since, one that has read some
//! without a lock: it began with reading alone, or has read tables of the catalog.
//!
//! What locks the rows that it reads may *look again* without having failed: a row has changed
//! while its lock was waited for. Whichever way a statement is computed more than once, what was
//! given up of it has said nothing (`pg_notify`), has set nothing (`set_config`), and holds no
//! advisory lock that it does not ask for again.

use std::sync::Arc;

use cognate_engine::{Access, Csn, Isolation, Method, Refresh, Savepoint, StatementMark, TrackedView};
use sqlparser::ast;

use super::cluster::until_seen;
use super::execute::outcome;
use super::governed::executes;
use super::portal::{PortalState, Tag};
use super::settings::Mark;
use super::state::Noted;
use super::{Action, Block, Boxed, CommandTag, Fetch, Planned, Portal, Session, cycle};
use crate::error::{Result, SqlError, sqlstate};
use crate::oltp::Given;
use crate::oltp::parts::PartsPlan;
use crate::parse::{Command, Statement};
use crate::plan::Plan;
use crate::types::Datum;

/// So many times as often as for other reasons, a statement is run again for rows that are newer.
const MOVES_A_RETRY: u32 = 100;

/// How often a statement may be run again for rows that are newer.
pub(super) fn moves(retries: u32) -> u32 {
    retries.saturating_mul(MOVES_A_RETRY)
}

/// How a statement is run again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Again {
    /// It is not.
    Never,
    /// It is all that the transaction has done; and the transaction, if it is implicit, is all that
    /// the client waits for.
    Anew { implicit: bool },
    /// It is undone.
    Aged(Savepoint, Noted),
    /// It is undone, and the snapshot moves.
    Later(StatementMark, Noted),
    /// Only for a row that has gone: it is undone; or all that the transaction has done, if it
    /// begins with the statement.
    Moved(Option<(StatementMark, Noted)>),
}

impl Again {
    /// Whether that helps against a failure.
    pub(super) fn is_for(self, error: &SqlError) -> bool {
        match self {
            Again::Never => false,
            Again::Anew { implicit: true } => error.is_retryable(),
            Again::Moved(_) => error.is_of_gone_row,
            _ => error.sqlstate == sqlstate::SERIALIZATION_FAILURE,
        }
    }

    /// What that takes of [`moves`]. Little, if the statement has met a row that was newer: it has
    /// locked one row more, so it comes on, and ends with its last row.
    pub(super) fn costs(self, error: &SqlError) -> u32 {
        let comes_on = matches!(self, Again::Later(..) | Again::Anew { .. })
            && error.sqlstate == sqlstate::SERIALIZATION_FAILURE
            && cycle::is_of_newer_row(error);
        if comes_on { 1 } else { MOVES_A_RETRY }
    }

    /// Whether it is if a row has gone.
    pub(super) fn follows(self) -> bool {
        matches!(self, Again::Moved(_) | Again::Anew { implicit: true })
    }
}

impl Session {
    /// How the statement that begins now is to be run again; `is_first`: it opens the implicit
    /// transaction.
    pub(super) fn again(&mut self, is_first: bool, planned: &Planned) -> Again {
        let aged = self.is_aged();
        // Who only reads meets nothing that is newer, but for definitions.
        let meets = meets_newer(&planned.action) || self.meets_definitions(&planned.action);
        if self.open.is_some() && !aged && !meets {
            return Again::Never;
        }
        let certified = self.is_certified();
        let follows = self.modes.isolation == Isolation::ReadCommitted && finds_rows(&planned.action);
        // What has only read so far, and was not told to do no more, goes on with writing.
        let goes_on = self.block == Block::Implicit && !self.modes.read_only;
        let Some(open) = &mut self.open else {
            return match is_first || aged || certified {
                true => Again::Anew { implicit: is_first },
                false if follows => Again::Moved(None),
                false => Again::Never,
            };
        };
        if aged {
            return Again::Aged(open.engine.savepoint(), open.state.noted());
        }
        let is_instance = open.engine.instance().is_some();
        if follows && !is_instance {
            return match open.engine.access() {
                Access::ReadWrite => Again::Moved(Some((open.engine.mark_statement(), open.state.noted()))),
                // What has only read so far goes on in a transaction that begins here.
                Access::ReadOnly => Again::Moved(None),
            };
        }
        let only_reads = open.engine.access() == Access::ReadOnly && !goes_on;
        if only_reads || is_instance || !certified {
            return Again::Never;
        }
        let mark = match &planned.action {
            // Each statement of its body may be undone by itself, too.
            Action::Call(_) => open.engine.mark_statements(),
            _ => open.engine.mark_statement(),
        };
        Again::Later(mark, open.state.noted())
    }

    /// The same of a DO, which has no plan: in a block, like a call.
    pub(super) fn again_inline(&mut self) -> Again {
        if matches!(self.block, Block::None | Block::Implicit) || self.is_aged() || !self.is_certified() {
            return Again::Never;
        }
        let Some(open) = &mut self.open else { return Again::Anew { implicit: false } };
        let is_instance = open.engine.instance().is_some();
        if open.engine.access() == Access::ReadOnly || is_instance {
            return Again::Never;
        }
        // Each statement of it may be undone by itself, too.
        Again::Later(open.engine.mark_statements(), open.state.noted())
    }

    /// Whether a query may find that a table was truncated or rewritten since the snapshot.
    fn meets_definitions(&self, action: &Action) -> bool {
        matches!(action, Action::Select(_))
            && self.open.as_ref().is_some_and(|open| self.changed_at() > open.engine.snapshot())
    }

    /// Whether the transaction is serializable by the certifier.
    fn is_certified(&self) -> bool {
        self.modes.isolation == Isolation::Serializable
            && matches!(self.database.engine().serializable(), Method::Pssi | Method::Strict | Method::Ssi)
    }

    /// Makes ready for running the statement once more after this failure. If that cannot be, the
    /// failure comes back.
    pub(super) async fn begin_again(&mut self, error: SqlError, again: Again) -> Result<()> {
        if error.is_of_gone_row {
            self.follow(again);
            return Ok(());
        }
        let error = match self.overtaken_instead(&error) {
            Some(overtaken) => overtaken,
            None => self.name_deadlock(error),
        };
        match again {
            Again::Never | Again::Moved(_) => return Err(error),
            Again::Anew { implicit } => self.begin_anew(&error, implicit).await?,
            // What it has done before is overtaken, too.
            Again::Aged(..) | Again::Later(..) if self.overtaken_at().is_some() => return Err(error),
            Again::Aged(savepoint, noted) => {
                self.note_failure(&error, self.facts.transaction());
                if let Some(open) = &mut self.open {
                    open.engine.pin_locks();
                    open.engine.rollback_to(savepoint);
                    open.state.undo_noted(noted);
                }
            }
            Again::Later(mark, noted) => self.refresh(error, &mark, noted)?,
        }
        self.database.note_retry();
        Ok(())
    }

    /// Undoes a statement that has met a row which has gone. That is no failure, and none is noted.
    fn follow(&mut self, again: Again) {
        let Some(open) = &mut self.open else { return };
        match again {
            Again::Moved(Some((mark, noted))) => {
                open.engine.undo_statement(&mark);
                open.state.undo_noted(noted);
            }
            _ => {
                open.engine.restart();
                open.state.undo_all_noted();
            }
        }
    }

    /// Begins the transaction anew. Whom a deadlock chose lets go of its locks, and so does who was
    /// overtaken. That one waits until the other can be seen: it would only meet it again.
    async fn begin_anew(&mut self, error: &SqlError, implicit: bool) -> Result<()> {
        self.note_failure(error, self.facts.transaction());
        let overtaken_at = self.overtaken_at();
        if let Some(position) = overtaken_at {
            let (database, interrupts) = (self.database.clone(), self.interrupts());
            interrupts.wait(until_seen(&database, position)).await?;
        }
        match &mut self.open {
            Some(open) if error.sqlstate == sqlstate::SERIALIZATION_FAILURE => {
                if overtaken_at.is_some() {
                    open.engine.restart_overtaken();
                    open.state.forget_locks();
                } else {
                    open.engine.restart();
                }
                open.state.undo_all_noted();
            }
            _ if implicit => {
                self.rollback();
                self.enter_implicit();
            }
            // Nothing was opened for the block yet.
            _ => {}
        }
        Ok(())
    }

    /// The position of who has overtaken the open transaction, if somebody has.
    fn overtaken_at(&self) -> Option<Csn> {
        self.open.as_ref()?.engine.overtaken_at()
    }

    /// Undoes the statement, and moves the snapshot past what it failed for. That is no failure,
    /// and none is noted.
    fn refresh(&mut self, error: SqlError, mark: &StatementMark, noted: Noted) -> Result<()> {
        self.move_snapshot(error, mark)?;
        if let Some(open) = &mut self.open {
            open.state.undo_noted(noted);
        }
        Ok(())
    }

    /// Moves the snapshot past what a row has met that is to be inserted now, unless that has been
    /// done so often that nothing is `left`: it has written nothing, and read nothing, so all that
    /// the transaction has done so far stays.
    pub(super) fn move_past(&mut self, error: SqlError, left: &mut u32) -> Result<()> {
        let (aged, certified) = (self.is_aged(), self.is_certified());
        let Some(open) = &mut self.open else { return Err(error) };
        let stays = open.engine.instance().is_some() || !certified;
        if *left == 0 || !aged && stays || open.engine.overtaken_at().is_some() {
            return Err(error);
        }
        *left -= 1;
        if aged {
            // What it has read is locked, and of the newest commits anyway.
            self.open_transaction(false);
            return Ok(());
        }
        let mark = open.engine.mark_statement();
        self.move_snapshot(error, &mark)?;
        if let Some(open) = &mut self.open {
            open.engine.keep_statement(mark);
        }
        Ok(())
    }

    /// What is undone for that is what the transaction has written and read since the mark.
    fn move_snapshot(&mut self, error: SqlError, mark: &StatementMark) -> Result<()> {
        let Some(open) = &mut self.open else { return Err(error) };
        // Of definitions nothing is noted that was read without a lock on them.
        let from = open.engine.snapshot();
        let has_noted_all = !open.state.reads_unlocked && !open.state.reads_catalog;
        let (database, temporary) = (&self.database, &self.facts.temporary);
        let agrees = || has_noted_all || database.changed_for(temporary) <= from;
        match open.engine.refresh_if(mark, agrees)? {
            Refresh::Moved => {
                self.database.note_refresh();
                Ok(())
            }
            Refresh::Stale(read) => {
                let (catalog, own) = (self.database.catalog(), cycle::own_node(&self.database));
                let reader = self.facts.rights(&catalog);
                Err(cycle::explain_stale(error, &read, own, &catalog, &self.format, reader.as_deref()))
            }
            Refresh::Held => Err(cycle::explain_held(error)),
            Refresh::Refused => Err(cycle::explain_definitions(error)),
            Refresh::Kept => Err(error),
        }
    }

    /// Starts a definition (DDL) that stands by itself so far. If others were in its way it is made
    /// anew, as a statement with a plan is: nobody has seen anything of it.
    #[inline(never)]
    pub(super) fn start_definition<'a>(&'a mut self, portal: &'a mut Portal) -> Boxed<'a, Option<Fetch>> {
        Box::pin(self.start_definition_here(portal))
    }

    async fn start_definition_here(&mut self, portal: &mut Portal) -> Result<Option<Fetch>> {
        for _ in 0..self.effective.statement_retries {
            let error = match self.start_utility(portal).await {
                Err(error) => self.overtaken_instead(&error).unwrap_or(error),
                started => return started,
            };
            if !self.may_run_again(&error) {
                return Err(error);
            }
            let error = self.name_deadlock(error);
            self.note_failure(&error, self.facts.transaction());
            self.abandon();
        }
        self.start_utility(portal).await
    }

    /// The statement has begun, and will not be run again.
    pub(super) fn keep(&mut self, again: Again) {
        let Some(open) = &mut self.open else { return };
        match again {
            Again::Never | Again::Anew { .. } | Again::Moved(None) => {}
            Again::Aged(savepoint, _) => open.engine.release(savepoint),
            Again::Later(mark, _) | Again::Moved(Some((mark, _))) => open.engine.keep_statement(mark),
        }
    }
}

/// Where a statement begins in what it says, sets and locks outside of the engine's transaction.
#[derive(Clone, Debug)]
pub(super) struct Beginning {
    advisory: usize,
    news: (usize, usize),
    settings: Mark,
}

impl Session {
    /// A statement begins that may look again.
    pub(super) fn beginning(&self) -> Beginning {
        Beginning {
            advisory: self.facts.advisory.begin_statement(),
            news: self.facts.news.mark(),
            settings: self.facts.mark(),
        }
    }

    /// Takes back what a statement that is run again has set: settings are what they were before
    /// it or, if it began the transaction, before that.
    pub(super) fn undo_settings(&mut self, before: Option<&Mark>) {
        if let Some(mark) = before.or(self.settings_mark.as_ref()) {
            self.facts.with_settings(|settings| settings.restore(mark));
        }
        self.refresh_settings();
    }

    /// The statement looks again, with what is locked now kept: at a newer snapshot, if it has one.
    pub(super) fn look_anew(&mut self, beginning: &Beginning) {
        // What it has let go of itself is not to be had back.
        if !self.facts.advisory.statement_has_released() {
            self.facts.advisory.undo_to(beginning.advisory);
        }
        self.facts.news.undo(beginning.news);
        self.undo_settings(Some(&beginning.settings));
        self.tally.iter().for_each(|tally| tally.clear());
        self.open_transaction(false);
    }

    /// SELECT FOR UPDATE or SHARE: the rows are locked before the first is sent.
    pub(super) async fn select_locking(
        &mut self,
        plan: &Arc<Plan>,
        parameters: &Arc<[Datum]>,
    ) -> Result<PortalState> {
        let (interrupts, beginning) = (self.interrupts(), self.beginning());
        loop {
            let mut work = self.work(&interrupts)?;
            let tracked = work.tracked(plan);
            let view = tracked.as_ref().map(TrackedView::view);
            if let Some(rows) = work.select_and_lock(plan, parameters, view, &Given::new()).await?
                && work.lock_seen(plan, tracked.as_ref()).await?
            {
                return Ok(PortalState::Rows { rows: rows.into_iter(), sent: 0, tag: Tag::Sent("SELECT") });
            }
            // A row changed while its lock was waited for: under READ COMMITTED, or where what is
            // read is locked.
            self.look_anew(&beginning);
        }
    }

    /// Runs a statement in parts: anew, at a newer snapshot, while rows have changed that it waited
    /// for before it changed any.
    pub(super) async fn run_parts(
        &mut self,
        plan: &PartsPlan,
        parameters: &Arc<[Datum]>,
    ) -> Result<PortalState> {
        let (interrupts, beginning, follows) = (self.interrupts(), self.beginning(), self.follows);
        loop {
            let mut work = self.work(&interrupts)?;
            if let Some(changed) = work.run_parts(plan, parameters, follows).await? {
                return Ok(outcome(changed, plan.gives_rows(), |rows| match plan.main().word() {
                    "INSERT" => CommandTag::Insert(rows),
                    word => CommandTag::Rows(word, rows),
                }));
            }
            self.look_anew(&beginning);
        }
    }
}

/// Whether a statement changes rows that it finds otherwise than by their primary key.
fn finds_rows(action: &Action) -> bool {
    match action {
        Action::Update(plan) => plan.target.may_move(),
        Action::Delete(plan) => plan.target.may_move(),
        Action::Parts(plan) => plan.finds_rows(),
        _ => false,
    }
}

/// Whether a statement looks at more than its snapshot.
fn meets_newer(action: &Action) -> bool {
    match action {
        Action::Insert(_) | Action::Update(_) | Action::Delete(_) | Action::Parts(_) => true,
        Action::Select(plan) => plan.has_locks(),
        // A statement of its body looks after itself first. What the body has read before that one
        // is told to nobody if all of it is run again.
        Action::Call(plan) => plan.may_write(),
        Action::Empty | Action::Utility => false,
    }
}

/// Whether a statement is a definition, and nothing of it is left if its transaction is rolled
/// back.
pub(super) fn defines(statement: &Statement) -> bool {
    use ast::Statement as S;
    match &statement.command {
        Command::Sql(sql) => {
            executes(&statement.command)
                && !matches!(
                    sql.as_ref(),
                    S::StartTransaction { .. }
                        | S::Commit { .. }
                        | S::Rollback { .. }
                        | S::Savepoint { .. }
                        | S::ReleaseSavepoint { .. }
                        | S::Copy { .. }
                        | S::Declare { .. }
                        | S::Execute { .. }
                        | S::Explain { .. }
                        | S::Lock(_)
                )
        }
        Command::CreateSequence { .. }
        | Command::AlterSequence { .. }
        | Command::AlterRelation(_)
        | Command::CreateRoutine(_)
        | Command::DropRoutine(_)
        | Command::Role(_)
        | Command::Grant(_)
        | Command::DefaultPrivileges(_)
        | Command::Owner(_)
        | Command::Comment(_)
        | Command::Domain(_)
        | Command::CreateSchema(_) => true,
        _ => false,
    }
}
