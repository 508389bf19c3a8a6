//! Transaction control: when transactions begin and end, blocks, modes. Savepoints are in
//! `savepoint`.
//!
//! The engine's transaction begins with the first statement that needs one, not with BEGIN, and the
//! snapshot is that of the first query: what only locks tables or sets a savepoint takes none, so
//! that what is read under a lock is read behind the wait for it.
//!
//! A statement outside a block opens an implicit transaction. A SELECT there, under READ COMMITTED
//! and SERIALIZABLE, reads at the durable mark: it takes no locks, and its answer never waits for
//! the log.

use cognate_engine::{Access, Isolation};
use sqlparser::ast;

use super::cycle::{explain_newer, explain_replaced, is_of_another, is_overtaken, own_node};
use super::interrupt::{end_of, roll_back};
use super::modes::{Modes, isolation_of};
use super::notify;
use super::state::TransactionState;
use super::{Block, Boxed, Company, Open, Session, SqlDatabase, Statement, TransactionStatus};
use crate::blocking::aside;
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::Command;

impl Session {
    /// Whether a block is open.
    pub fn status(&self) -> TransactionStatus {
        match self.block {
            Block::None | Block::Implicit => TransactionStatus::Idle,
            Block::Explicit => TransactionStatus::InBlock,
            Block::Failed | Block::Decided => TransactionStatus::Failed,
        }
    }

    fn default_modes(&self) -> Modes {
        Modes {
            isolation: isolation_of(&self.effective.default_isolation),
            read_only: self.effective.default_read_only,
            deferrable: self.effective.default_deferrable,
        }
    }

    /// A statement outside a block begins: from here to Sync is one transaction.
    pub(super) fn enter_implicit(&mut self) {
        if self.block == Block::None {
            self.block = Block::Implicit;
            self.modes = self.default_modes();
            self.start_clock();
            self.facts.advisory.begin_journal();
        }
    }

    /// The same for a statement without a plan. EXECUTE does not where every node is to execute
    /// what it names: that is the whole transaction, and begins by itself.
    pub(super) fn enter_for(&mut self, command: &Command) {
        let is_execute = matches!(
            command,
            Command::Sql(sql) if matches!(sql.as_ref(), ast::Statement::Execute { .. })
        );
        if is_execute && self.wants_active() {
            self.begin_program(None);
        } else {
            self.enter_implicit();
        }
    }

    /// A transaction begins that every node is to execute: by this arguments of EXECUTE are
    /// computed, too.
    pub(super) fn begin_program(&mut self, isolation: Option<Isolation>) {
        self.modes = self.default_modes();
        self.modes.isolation = isolation.unwrap_or(self.modes.isolation);
        self.format.transaction_time = self.database.now();
    }

    fn start_clock(&mut self) {
        self.transactions += 1;
        self.format.transaction_time = self.database.now();
        self.facts.activity.begin_transaction(self.format.transaction_time);
        self.settings_mark = Some(self.facts.mark());
    }

    /// BEGIN and START TRANSACTION.
    pub(super) fn begin_block(
        &mut self,
        modes: &[ast::TransactionMode],
        deferrable: Option<bool>,
    ) -> Result<()> {
        match self.block {
            Block::Explicit | Block::Failed | Block::Decided => {
                self.notices.push(SqlError::warning(
                    sqlstate::ACTIVE_SQL_TRANSACTION,
                    "there is already a transaction in progress",
                ));
                // What it says of the transaction holds all the same.
                return self.set_deferrable(deferrable).and_then(|()| self.set_modes(modes));
            }
            // What the message did so far becomes part of the block, as in PostgreSQL.
            Block::Implicit => self.block = Block::Explicit,
            Block::None => {
                self.block = Block::Explicit;
                self.modes = self.default_modes();
                self.start_clock();
                self.facts.advisory.begin_journal();
            }
        }
        let begun = self.set_deferrable(deferrable).and_then(|()| self.set_modes(modes));
        if begun.is_err() {
            // No block is open: what the message did so far is undone with it.
            self.block = Block::Implicit;
        }
        begun
    }

    /// The first statement of a serializable, read-only and deferrable transaction waits until
    /// there is a snapshot that no cycle can ever go through. The transaction then needs no
    /// certification.
    pub(super) async fn await_safe_snapshot(&mut self) -> Result<()> {
        let Modes { isolation, read_only, deferrable } = self.modes;
        let wanted = deferrable && read_only && isolation == Isolation::Serializable;
        if !wanted || self.is_two_phase() || self.open.is_some() || self.block != Block::Explicit {
            return Ok(());
        }
        let interrupts = self.interrupts();
        self.facts.set_awaiting_safety(true);
        let begun = interrupts.wait(self.database.engine().begin_deferrable()).await;
        self.facts.set_awaiting_safety(false);
        let engine = begun?;
        self.facts.set_transaction_id(engine.id());
        let state = TransactionState::new(true, self.memory_limit, &self.facts.usage);
        let state = TransactionState { is_safe: true, ..state };
        self.open = Some(Open { engine, state });
        Ok(())
    }

    /// SET TRANSACTION.
    pub(super) fn set_transaction(
        &mut self,
        modes: &[ast::TransactionMode],
        statement: &Statement,
    ) -> Result<()> {
        if !self.shares_block(statement) {
            self.notices.push(SqlError::warning(
                sqlstate::NO_ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION can only be used in transaction blocks",
            ));
            return Ok(());
        }
        self.set_deferrable(statement.deferrable)?;
        self.set_modes(modes)
    }

    /// The engine's transaction for the next statement. `reading`: the statement is a SELECT
    /// without row locks.
    pub(super) fn open_transaction(&mut self, reading: bool) {
        let isolation = self.engine_isolation();
        let read_committed = isolation == Isolation::ReadCommitted;
        let short = isolation != Isolation::Snapshot && !self.is_two_phase();
        let moves = read_committed || self.is_aged();
        // A snapshot at the durable mark must not be older than the catalog that the statement was
        // planned with.
        let durable = self.database.engine().durable() >= self.changed_at();
        // Who locks what it reads must see what the locks protect: commits whose locks are free may
        // not be durable yet.
        let declared = self.block == Block::Explicit && self.modes.read_only && !self.is_two_phase();
        // What is not alone may go on with writing, which is to see what its locks protect, too.
        let alone = self.block == Block::Implicit && self.company != Company::Some;
        let at_durable_mark = durable && (declared || (alone && reading && short));
        match &mut self.open {
            None => {
                let aged = self.is_aged();
                let access = if at_durable_mark { Access::ReadOnly } else { Access::ReadWrite };
                let engine = self.database.engine().begin(isolation, access);
                self.facts.set_transaction_id(engine.id());
                let mut state =
                    TransactionState::new(self.modes.read_only, self.memory_limit, &self.facts.usage);
                state.is_first = true;
                state.aged = aged;
                state.locks_reads = aged || self.is_two_phase();
                self.open = Some(Open { engine, state });
            }
            // The implicit transaction began with reading and goes on with writing: what it read
            // must stay what it is.
            Some(open)
                if !read_committed && open.engine.access() == Access::ReadOnly && !reading && !declared =>
            {
                open.engine.allow_writes();
                open.state.reads_unlocked = true;
                open.state.is_first = false;
            }
            Some(open) if open.engine.access() == Access::ReadOnly && !reading && !declared => {
                self.facts.rest_on(open.engine.rests_on());
                let fresh = self.database.engine().begin(isolation, Access::ReadWrite);
                self.facts.set_transaction_id(fresh.id());
                open.engine = fresh;
            }
            Some(open) => {
                let ahead = std::mem::take(&mut open.state.begun_ahead);
                open.state.is_first = ahead;
                if moves || ahead {
                    open.engine.refresh_snapshot();
                }
            }
        }
    }

    /// The same for a statement that reads nothing (SAVEPOINT, LOCK TABLE, SET CONSTRAINTS): the
    /// snapshot stays that of the first one that does.
    pub(super) fn open_ahead(&mut self) {
        let ahead = self.open.as_ref().is_none_or(|open| open.state.begun_ahead);
        self.open_transaction(false);
        if let Some(open) = &mut self.open {
            open.state.begun_ahead = ahead;
        }
    }

    /// COMMIT.
    pub(super) async fn commit_block(&mut self, chain: bool) -> Result<&'static str> {
        match self.block {
            Block::None | Block::Implicit => {
                if chain {
                    return Err(not_in_block("COMMIT AND CHAIN"));
                }
                self.notices.push(no_transaction());
                if self.block == Block::Implicit {
                    self.commit().await?;
                }
                Ok("COMMIT")
            }
            Block::Failed => {
                let overtaken = self.overtaken.take();
                // A COMMIT that fails leaves no transaction open, be it told to chain.
                self.rollback_block(chain && overtaken.is_none()).await?;
                // Its client has not heard of it yet.
                overtaken.map_or(Ok("ROLLBACK"), Err)
            }
            // What the block was opened for is committed.
            Block::Decided => {
                self.rollback_block(chain).await?;
                Ok("COMMIT")
            }
            Block::Explicit if self.sibling.is_some() => Err(SqlError::new(
                sqlstate::MIP_OTHER_TRANSACTION,
                "COMMIT does not fit an instance of a family",
            )
            .with_hint("End it with PREPARE MIP, and decide with COMMIT MIP; or roll it back.")),
            Block::Explicit => {
                let modes = self.modes;
                self.commit().await?;
                self.chain(chain, modes);
                Ok("COMMIT")
            }
        }
    }

    fn chain(&mut self, chain: bool, modes: Modes) {
        if chain {
            self.block = Block::Explicit;
            self.modes = modes;
            self.start_clock();
            self.facts.advisory.begin_journal();
        }
    }

    /// ROLLBACK.
    pub(super) async fn rollback_block(&mut self, chain: bool) -> Result<()> {
        // Locks of the session outlive it: what takes them or lets go of them is not done again.
        let has_lasting = self.block != Block::None && self.facts.advisory.has_lasting();
        self.commits += u64::from(has_lasting);
        match self.block {
            Block::None | Block::Implicit => {
                if chain {
                    return Err(not_in_block("ROLLBACK AND CHAIN"));
                }
                self.notices.push(no_transaction());
                self.rollback();
            }
            Block::Explicit | Block::Failed | Block::Decided => {
                let modes = self.modes;
                self.rollback();
                self.chain(chain, modes);
            }
        }
        self.await_durable().await
    }

    /// Commits what is open and waits until it is durable. On an error everything is rolled back.
    pub(super) async fn commit(&mut self) -> Result<()> {
        let transaction = self.facts.transaction();
        if let Err(error) = self.before_commit().await {
            self.rollback();
            return Err(self.name_newer(self.name_deadlock(error)));
        }
        self.note_rests();
        let defines_temporary = self.defines_temporary();
        let telling = self.facts.news.is_pending().then(|| self.database.clone());
        let channels = telling.as_ref().map(SqlDatabase::channels);
        let order = match self.await_line(channels).await {
            Ok(order) => order,
            Err(error) => {
                self.rollback();
                return Err(error);
            }
        };
        let committed = match self.open.take() {
            None => Ok(None),
            Some(Open { engine, .. }) if self.database.engine().is_node() => {
                self.commit_at_node(engine).await
            }
            Some(Open { engine, state }) if state.catalog.is_empty() => {
                let committed = end_of(engine.bytes(), || engine.commit());
                committed.map(Some).map_err(|error| self.name_failure(error))
            }
            Some(Open { engine, state }) => {
                let changes = state.catalog.changes();
                let committed = end_of(engine.bytes(), || {
                    self.database.commit_with_catalog(engine, changes, &self.facts.temporary)
                });
                committed.map(Some).map_err(|error| self.name_failure(error))
            }
        };
        match committed {
            Ok(commit) => {
                let place = channels.map(|channels| self.facts.news.enter(&self.facts, channels));
                drop(order);
                self.end(false);
                if defines_temporary && let Some(commit) = &commit {
                    self.forget_temporary(commit.csn);
                }
                self.commits += 1;
                let durable = match commit {
                    Some(commit) => {
                        self.keep_token_at_node(commit.csn);
                        let durable = commit.durable.await;
                        self.interrupts.has_waited();
                        durable
                    }
                    None => Ok(()),
                };
                // Whoever waits for them reads what is durable, and is to see this transaction.
                self.facts.advisory.end_transaction(0, self.database.advisory());
                durable?;
                self.await_durable().await?;
                place.into_iter().for_each(notify::Place::settled);
                Ok(())
            }
            Err(error) => {
                self.facts.rest_on_everything();
                self.note_failure(&error, transaction);
                self.failure_noted = error.is_retryable();
                self.note_conflict(&error);
                self.rollback();
                Err(error)
            }
        }
    }

    /// A commit's failure, in terms of tables.
    #[cold]
    pub(super) fn name_failure(&self, error: cognate_engine::Error) -> SqlError {
        match &error {
            cognate_engine::Error::DependencyCycle { cycle } => {
                let catalog = self.database.catalog();
                let reader = self.facts.rights(&catalog);
                super::cycle::explain(cycle, &catalog, &self.format, reader.as_deref())
            }
            cognate_engine::Error::SerializationFailure { read: Some(read), .. } => {
                let (catalog, own) = (self.database.catalog(), own_node(&self.database));
                let (reader, error) = (self.facts.rights(&catalog), error.clone().into());
                explain_replaced(error, read, own, &catalog, &self.format, reader.as_deref())
            }
            cognate_engine::Error::Overtaken { by, tree, key, .. } => {
                let (catalog, own) = (self.database.catalog(), own_node(&self.database));
                let (reader, at) = (self.facts.rights(&catalog), (*tree, key.as_deref()));
                super::cycle::explain_overtaken(*by, own, at, &catalog, &self.format, reader.as_deref())
            }
            _ => error.into(),
        }
    }

    /// What is newer than the snapshot, with the transaction that has changed it, if that was
    /// another node's and is still known; any other error as it is.
    pub(super) fn name_newer(&self, mut error: SqlError) -> SqlError {
        let own = own_node(&self.database);
        let Some(met) = error.met.take().filter(|_| own != 0) else { return error };
        let by = aside(|| self.database.engine().last_at(met.tree, met.key.as_deref()));
        let Some(by) = by.filter(|by| is_of_another(*by, own)) else { return error };
        let catalog = self.database.catalog();
        let reader = self.facts.rights(&catalog);
        explain_newer(error, by, own, &met, &catalog, &self.format, reader.as_deref())
    }

    /// A deadlock, in terms of tables; any other error as it is.
    pub(super) fn name_deadlock(&self, error: SqlError) -> SqlError {
        if error.sqlstate != sqlstate::DEADLOCK_DETECTED {
            return error;
        }
        let catalog = self.database.catalog();
        let reader = self.facts.rights(&catalog);
        super::cycle::explain_deadlock(error, &catalog, &self.format, reader.as_deref())
    }

    /// What must happen inside the transaction before it ends: deferred checks, rows of cursors
    /// that outlive it. Mostly nothing.
    pub(super) async fn before_commit(&mut self) -> Result<()> {
        let has_deferred = self.open.as_ref().is_some_and(|open| !open.state.deferred.is_empty());
        if has_deferred || self.has_cursors_to_hold() || self.facts.temporary.namespace() != 0 {
            return self.end_work().await;
        }
        Ok(())
    }

    /// Waits for those who commit before a transaction that has something to say, if it has.
    async fn await_line<'a>(
        &mut self,
        channels: Option<&'a notify::Channels>,
    ) -> Result<Option<tokio::sync::MutexGuard<'a, ()>>> {
        let Some(channels) = channels else { return Ok(None) };
        let interrupts = self.interrupts();
        // Few wait, and all others need not carry what that takes.
        Box::pin(channels.order(&interrupts)).await.map(Some)
    }

    #[inline(never)]
    fn end_work(&mut self) -> Boxed<'_, ()> {
        Box::pin(self.end_work_here())
    }

    async fn end_work_here(&mut self) -> Result<()> {
        if self.open.as_ref().is_some_and(|open| !open.state.deferred.is_empty()) {
            let interrupts = self.interrupts();
            let mut work = self.work(&interrupts)?;
            work.run_deferred_checks().await?;
        }
        self.hold_cursors().await?;
        match self.facts.temporary.namespace() {
            0 => Ok(()),
            _ => self.run_on_commit().await,
        }
    }

    /// Rolls back what is open.
    pub(super) fn rollback(&mut self) {
        self.note_rests();
        if let Some(open) = self.open.take() {
            roll_back(open.engine);
        }
        if let Some(mark) = self.settings_mark.take() {
            self.facts.with_settings(|settings| settings.restore(&mark));
        }
        self.facts.advisory.end_transaction(0, self.database.advisory());
        self.facts.news.undo((0, 0));
        self.end(true);
    }

    pub(super) fn end(&mut self, rolled_back: bool) {
        // Before the commit waits for its flush.
        self.seat.leave();
        if matches!(self.block, Block::Explicit | Block::Failed | Block::Decided) {
            self.ended_portals = Some(self.bound);
        }
        self.block = Block::None;
        (self.sibling, self.decided) = (None, None);
        (self.overtaken, self.struck) = (None, None);
        self.settings_mark = None;
        self.forget_attempt();
        self.facts.with_settings(super::settings::Settings::end_transaction);
        self.facts.set_transaction_id(0);
        self.facts.activity.end_transaction();
        self.facts.advisory.settle(self.database.advisory());
        self.refresh_settings();
        self.take_newest_catalog();
        self.facts.forget_shown_catalog();
        self.drop_cursors(rolled_back);
        self.copy = None;
    }

    /// From here on functions see the newest committed catalog: mostly the one that they saw.
    fn take_newest_catalog(&self) {
        let is_newest = self.database.is_newest(&self.facts.catalog.lock());
        if !is_newest {
            self.facts.set_catalog(&self.database.catalog());
        }
    }

    /// Ends the implicit transaction (Sync, or the end of a simple query): commits it and waits
    /// until it is durable.
    pub async fn sync(&mut self) -> Result<()> {
        (self.has_run_active, self.was_refused, self.company) = (false, false, Company::Unknown);
        if self.block == Block::None {
            self.forget_attempt();
        }
        match self.block {
            Block::Implicit => {
                let ended = self.commit().await;
                // What its commit has waited for may have begun the time of a statement.
                self.interrupts.end();
                self.failure_noted = false;
                ended
            }
            Block::None | Block::Explicit | Block::Failed | Block::Decided => self.settle_answers().await,
        }
    }

    /// What is open must not go on, and nobody is asking: lets go of what it holds. Its client is
    /// told with its next statement.
    pub fn give_up(&mut self) {
        let doom = self.open.as_ref().and_then(|open| open.engine.check_member().err());
        let doom = doom.map(|error| self.name_failure(error));
        let (is_implicit, is_copying) = (self.block == Block::Implicit, self.copy.is_some());
        let is_sibling = self.sibling.is_some();
        if doom.is_some() {
            self.forget_savepoints();
        }
        self.fail();
        let is_failed = self.block == Block::Failed;
        self.lost = doom.clone().filter(|_| is_implicit || is_copying);
        self.overtaken = doom.clone().filter(|_| !is_copying && !is_sibling && is_failed);
        self.struck = doom.filter(|_| is_failed);
    }

    /// As [`Session::fail`], for an error that the client is told of. Whoever has heard that
    /// another transaction was faster is in a failed block like any other, but for its savepoints:
    /// what was before them is overtaken, too.
    pub(super) fn fail_by(&mut self, error: &SqlError) {
        self.fail();
        if is_overtaken(error) {
            if self.block == Block::Failed && self.open.is_some() {
                self.give_up();
            }
            self.overtaken = None;
        }
    }

    /// No savepoint brings back what has no future: it keeps no locks from before one, also in a
    /// block that had failed already.
    fn forget_savepoints(&mut self) {
        if let Some(open) = &mut self.open {
            open.state.savepoints.clear();
            if self.block == Block::Failed {
                self.block = Block::Explicit;
            }
        }
    }

    /// Why the implicit transaction was given up that the last messages were of: no failed block is
    /// left to say so, and what comes next must not be taken for its end.
    pub fn take_lost(&mut self) -> Option<SqlError> {
        self.lost.take()
    }

    /// An error was met: an open block becomes failed, an implicit transaction is rolled back. A
    /// failed block holds nothing any more that no savepoint can bring back: others need not wait
    /// until its client says ROLLBACK.
    pub fn fail(&mut self) {
        match self.block {
            Block::None | Block::Failed | Block::Decided => {}
            Block::Implicit => self.rollback(),
            Block::Explicit => {
                self.block = Block::Failed;
                self.note_rests();
                let frame = self.open.as_ref().and_then(|open| open.state.savepoints.last());
                let left = frame.map_or(0, |frame| frame.advisory);
                let settings =
                    frame.map(|frame| frame.settings.clone()).or_else(|| self.settings_mark.clone());
                self.facts.advisory.end_transaction(left, self.database.advisory());
                self.facts.news.undo(frame.map_or((0, 0), |frame| frame.news));
                if let Some(open) = self.open.take_if(|open| open.state.savepoints.is_empty()) {
                    roll_back(open.engine);
                } else if let Some(open) = &mut self.open {
                    end_of(open.engine.bytes(), || open.undo_to_last_savepoint());
                }
                // What was set since goes at once, and the client is told of it with the error.
                if let Some(mark) = settings {
                    self.facts.with_settings(|settings| settings.restore(&mark));
                    self.refresh_settings();
                }
            }
        }
        self.copy = None;
    }
}

pub(super) fn not_in_block(what: &str) -> SqlError {
    SqlError::new(
        sqlstate::NO_ACTIVE_SQL_TRANSACTION,
        format!("{what} can only be used in transaction blocks"),
    )
}

pub(super) fn no_transaction() -> SqlError {
    SqlError::warning(sqlstate::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress")
}
