//! Running portals.

use std::future::Future as _;
use std::sync::Arc;

use cognate_engine::{Access, LockMode};

use super::again::{Again, defines, moves};
use super::portal::{PortalState, Tag, changed_result};
use super::{
    Action, Block, Boxed, CommandTag, Fetch, Planned, Portal, Prepared, RowSink, Session, Statement,
};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::Interrupt as _;
use crate::oltp::Cursor;
use crate::oltp::returning::Changed;
use crate::oltp::run::Run;
use crate::parse;
use crate::types::Datum;

impl Session {
    /// Runs the portal until it is done, has given `max_rows` rows (0 is no limit), or the sink is
    /// full.
    #[inline(never)]
    pub fn fetch<'a>(
        &'a mut self,
        portal: &'a mut Portal,
        sink: &'a mut (dyn RowSink + Send),
        max_rows: u64,
    ) -> Boxed<'a, Fetch> {
        Box::pin(self.fetch_here(portal, sink, max_rows))
    }

    async fn fetch_here(
        &mut self,
        portal: &mut Portal,
        sink: &mut (dyn RowSink + Send),
        max_rows: u64,
    ) -> Result<Fetch> {
        let text = portal.prepared.statement().map(|statement| &statement.source);
        self.facts.activity.begin(text, self.database.now());
        let passed = self.passed();
        self.attend_sibling(portal);
        let mut fetched = self.advance(portal, sink, max_rows).await;
        self.interrupts.attend(None);
        // What functions have set counts for what comes next, be it bound only: its parameters are
        // read by that, and its time goes by it.
        self.take_over_settings();
        self.note_passed(passed);
        self.facts.activity.end(self.database.now());
        match fetched {
            Ok(Fetch::Suspended) => {
                fetched = portal.charge_held(self.database.statement_budget()).map(|()| Fetch::Suspended);
            }
            Ok(Fetch::Complete(_)) => portal.end(),
            _ => {}
        }
        if matches!(fetched, Err(_) | Ok(Fetch::Complete(_) | Fetch::Empty)) {
            self.interrupts.end();
            self.facts.advisory.settle(self.database.advisory());
        }
        let fetched = fetched.map_err(|error| match self.overtaken_instead(&error) {
            Some(overtaken) => overtaken,
            None => {
                let error = self.name_damage(error, &self.planned_of(&portal.prepared));
                self.name_newer(self.name_deadlock(error))
            }
        });
        if let Err(error) = &fetched {
            portal.abandon(self.interrupts.is_aside());
            self.note_failure(error, self.facts.transaction());
            self.note_conflict(error);
            self.note_lost(error);
            self.fail_by(error);
        }
        if self.effective.durable_reads && self.is_in_block() {
            self.seat.pause();
            if let Err(lost) = self.await_durable().await {
                self.fail();
                return Err(lost);
            }
        }
        // From here on the client is waited for.
        self.seat.pause();
        fetched
    }

    /// Stops the portal that runs now as soon as the open instance of a family has no future: it
    /// may compute for hours, with locks that others want. What ends the block goes on: its answer
    /// is what became of the family.
    fn attend_sibling(&self, portal: &Portal) {
        let ends_block = || {
            let statement = portal.prepared.statement();
            statement.is_some_and(|statement| super::statement::ends_failed_block(&statement.command))
        };
        let prospect = self.open.as_ref().and_then(|open| open.engine.prospect());
        self.interrupts.attend(prospect.filter(|_| !ends_block()));
    }

    /// Runs the portal; a deep statement on a stack that fits it.
    pub(super) async fn advance(
        &mut self,
        portal: &mut Portal,
        sink: &mut (dyn RowSink + Send),
        max_rows: u64,
    ) -> Result<Fetch> {
        let depth = portal.prepared.depth();
        if depth <= parse::SHALLOW {
            return self.advance_here(portal, sink, max_rows).await;
        }
        let mut going = Box::pin(self.advance_here(portal, sink, max_rows));
        std::future::poll_fn(|context| parse::on_large_stack(depth, || going.as_mut().poll(context))).await
    }

    async fn advance_here(
        &mut self,
        portal: &mut Portal,
        sink: &mut (dyn RowSink + Send),
        max_rows: u64,
    ) -> Result<Fetch> {
        if matches!(portal.state, PortalState::Ready) {
            self.check_not_failed(portal.prepared.statement())?;
            self.ask_before(&portal.prepared)?;
            if let Some(fetch) = self.start(portal).await? {
                return Ok(fetch);
            }
            portal.begun_in = self.transactions;
        } else if portal.is_told
            && let Some(answer) = portal.done_before()
        {
            return answer;
        } else if !matches!(portal.state, PortalState::Done(_)) {
            self.check_goes_on(portal)?;
            self.go().await?;
        }
        match &mut portal.state {
            PortalState::Cursor { .. } => self.give(portal, sink, max_rows).await,
            PortalState::Rows { sent, .. } => {
                // Each time that a buffer was full. What tells of a commit is not stopped any more:
                // its client would take it for rolled back. Neither is the first buffer.
                match *sent > 0 && self.open.is_some() {
                    true => _ = self.interrupts.check()?,
                    false => self.interrupts.make_way(),
                }
                self.send_rows(portal, sink, max_rows)
            }
            PortalState::Family(_) => self.send_family(portal, sink, max_rows),
            PortalState::Inner(inner) => Box::pin(self.advance(inner, sink, max_rows)).await,
            PortalState::CopyOut(_) => self.copy_out(portal, sink),
            PortalState::Backup(_) => self.give_backup(portal, sink),
            PortalState::Done(tag) => Ok(Fetch::Complete(*tag)),
            PortalState::Ready => Err(SqlError::internal("a portal did not start")),
        }
    }

    /// Before each statement of a message or a body, as each of them may be too short to ask: lets
    /// others go before, and fails if the session is to stop. What ends a transaction is not
    /// stopped.
    fn ask_before(&self, prepared: &Prepared) -> Result<()> {
        match prepared.has_plan() {
            true => self.interrupts.check().map(drop),
            false => {
                self.interrupts.make_way();
                Ok(())
            }
        }
    }

    /// 25P02 in a block that has failed. 34000 for a portal that reads for a transaction which has
    /// ended: the next one may have begun before the server looked (COMMIT AND CHAIN, or COMMIT and
    /// BEGIN in one message).
    fn check_goes_on(&self, portal: &Portal) -> Result<()> {
        if self.block == Block::Failed {
            // An instance's block says so as often as it is asked.
            if let Some(struck) = self.struck.as_ref().filter(|_| self.sibling.is_some()) {
                return Err(struck.clone());
            }
            self.check_not_failed(portal.prepared.statement())?;
        }
        if matches!(portal.state, PortalState::Cursor { .. }) && portal.begun_in != self.transactions {
            return Err(SqlError::new(
                sqlstate::INVALID_CURSOR_NAME,
                "the portal does not exist any more: its transaction has ended",
            ));
        }
        Ok(())
    }

    /// Begins a portal: afterwards its state says where rows come from, unless the answer is here
    /// already.
    async fn start(&mut self, portal: &mut Portal) -> Result<Option<Fetch>> {
        let mut prepared = portal.prepared.clone();
        let planned = self.planned_of(&prepared);
        self.opens = self.open.is_none();
        match &planned.action {
            Action::Empty => Ok(Some(Fetch::Empty)),
            Action::Utility if self.block == Block::None && prepared.statement().is_some_and(defines) => {
                self.start_definition(portal).await
            }
            Action::Utility => self.start_utility(portal).await,
            _ => {
                let is_first = self.block == Block::None;
                let is_active = self.wants_active() || self.monitor_wants_active(&prepared);
                if is_active && Box::pin(self.run_portal_active(portal)).await? {
                    return Ok(None);
                }
                self.note_statement(&prepared);
                self.enter_implicit();
                self.go().await?;
                let again = self.again(is_first, &planned);
                let mut left = moves(self.effective.statement_retries);
                let taken = self.facts.advisory.begin_statement();
                let released = self.facts.advisory.releases();
                let told = if is_first { (0, 0) } else { self.facts.news.mark() };
                let is_alone = is_first || matches!(again, Again::Never);
                let settings = (!is_alone).then(|| self.facts.mark());
                let (depth, is_open) = (portal.depth, portal.is_open());
                let mut first = Some(planned);
                loop {
                    self.follows = left > 0 && again.follows();
                    let planned = first.take().unwrap_or_else(|| self.planned_of(&prepared));
                    let parameters = &portal.parameters;
                    let started = self.start_planned(&mut prepared, planned, parameters, depth, is_open);
                    match started.await {
                        Err(error)
                            if left > 0
                                && again.is_for(&error)
                                && self.facts.advisory.releases() == released =>
                        {
                            self.interrupts.check()?;
                            left = left.saturating_sub(again.costs(&error));
                            self.facts.advisory.undo_to(taken);
                            self.facts.news.undo(told);
                            self.undo_settings(settings.as_ref());
                            Box::pin(self.begin_again(error, again)).await?;
                            self.tally.iter().for_each(|tally| tally.clear());
                        }
                        started => {
                            portal.state = started?;
                            if !Arc::ptr_eq(&prepared, &portal.prepared) {
                                portal.renew(prepared);
                            }
                            self.keep(again);
                            return Ok(None);
                        }
                    }
                }
            }
        }
    }

    /// Begins a portal of a query, so that its snapshot is taken, without giving a row.
    pub(super) async fn start_cursor(&mut self, portal: &mut Portal) -> Result<()> {
        if matches!(portal.state, PortalState::Ready) {
            Box::pin(self.start(portal)).await?;
            portal.begun_in = self.transactions;
        }
        Ok(())
    }

    /// `prepared` is another statement afterwards if the portal is to take its columns.
    async fn start_planned(
        &mut self,
        prepared: &mut Arc<Prepared>,
        planned: Arc<Planned>,
        parameters: &Arc<[Datum]>,
        depth: usize,
        is_open: bool,
    ) -> Result<PortalState> {
        if planned.asks_outcome {
            Box::pin(self.await_ordered()).await?;
        }
        let planned = self.settle(prepared, planned, is_open).await?;
        if self.tally.is_some() {
            self.counted = Some(Arc::clone(&planned));
        }
        match &planned.action {
            Action::Select(plan) if plan.has_locks() => self.select_locking(plan, parameters).await,
            Action::Select(plan) if self.locks_reads() => self.select_two_phase(plan, parameters).await,
            Action::Select(plan) => {
                let cursor = Box::new(Cursor::new(plan, parameters.clone()));
                let open = self.open.as_ref().ok_or_else(|| SqlError::internal("no transaction is open"))?;
                Ok(PortalState::Cursor { cursor, view: open.engine.view(), rows: 0 })
            }
            Action::Insert(plan) => {
                let mut run = Run::new(parameters.clone(), &plan.places);
                let interrupts = self.interrupts();
                let mut work = self.work(&interrupts)?;
                let changed = work.insert(plan, &mut run, true).await?;
                work.run_checks().await?;
                Ok(outcome(changed, plan.returning.is_some(), CommandTag::Insert))
            }
            Action::Update(plan) => {
                let mut run = Run::new(parameters.clone(), &plan.places).following(self.follows);
                let interrupts = self.interrupts();
                let mut work = self.work(&interrupts)?;
                let changed = work.update(plan, &mut run).await?;
                work.run_checks().await?;
                Ok(outcome(changed, plan.returning.is_some(), |rows| CommandTag::Rows("UPDATE", rows)))
            }
            Action::Delete(plan) => {
                let mut run = Run::new(parameters.clone(), &plan.places).following(self.follows);
                let interrupts = self.interrupts();
                let mut work = self.work(&interrupts)?;
                let changed = work.delete(plan, &mut run).await?;
                work.run_checks().await?;
                Ok(outcome(changed, plan.returning.is_some(), |rows| CommandTag::Rows("DELETE", rows)))
            }
            Action::Parts(plan) => Box::pin(self.run_parts(plan, parameters)).await,
            Action::Call(plan) => self.call(plan, parameters, depth).await,
            Action::Empty | Action::Utility => Err(SqlError::internal("the statement has no plan")),
        }
    }

    /// Opens the transaction, locks the plan's tables and sees that the plan is that of the present
    /// catalog. `is_open`: if the columns have changed meanwhile, the statement is prepared anew.
    async fn settle(
        &mut self,
        prepared: &mut Arc<Prepared>,
        mut planned: Arc<Planned>,
        is_open: bool,
    ) -> Result<Arc<Planned>> {
        loop {
            let is_stale = !self.fits(&planned) || planned.is_outgrown(&self.database);
            if is_stale || planned.calls_unbound() {
                planned = match self.replan_alike(prepared)? {
                    Some(planned) => planned,
                    None if is_open => self.prepare_anew(prepared)?,
                    None => return Err(changed_result()),
                };
            }
            // Who tells ids reads all that is committed: what is known of them is known of that.
            let reading = planned.is_reading() && !planned.tells_ids;
            self.check_sibling()?;
            self.check_tables_alike(&planned)?;
            if self.reads_after() {
                Box::pin(self.await_reads()).await?;
            }
            self.await_safe_snapshot().await?;
            if planned.is_changing() && self.may_await_nodes() {
                Box::pin(self.await_slow_node()).await?;
            }
            if planned.tells_ids && !self.database.engine().is_node() {
                self.database.engine().note_ids();
            }
            self.open_transaction(reading);
            if planned.is_changing() {
                self.admit();
            }
            self.check_writable(&planned)?;
            if planned.meets_temporary {
                self.meet_temporary(&planned);
            }
            let snapshot_only =
                self.open.as_ref().is_some_and(|open| open.engine.access() == Access::ReadOnly);
            let waited = if snapshot_only { false } else { self.lock_tables(&planned).await? };
            if waited || self.locks_reads() {
                // What the wait was for is to be seen, and what came before the locks. Before the
                // plan is looked at: at a node of a cluster a snapshot may show what locks would
                // have kept away.
                self.open_transaction(reading);
            }
            if self.fits(&planned) {
                self.check_needs(&planned)?;
                self.check_snapshot(&planned)?;
                self.check_seen(&planned)?;
                self.note_tables(&planned);
                if planned.reads_catalog
                    && let Some(open) = &mut self.open
                {
                    open.state.reads_catalog = true;
                }
                return Ok(planned);
            }
        }
    }

    fn check_writable(&mut self, planned: &Planned) -> Result<()> {
        let command = match &planned.action {
            Action::Insert(_) => "INSERT",
            Action::Update(_) => "UPDATE",
            Action::Delete(_) => "DELETE",
            Action::Parts(plan) => plan.command(),
            Action::Select(plan) => match plan.locks.first().map(|lock| lock.mode) {
                None => return Ok(()),
                Some(LockMode::Exclusive) => "SELECT FOR UPDATE",
                Some(LockMode::NoKeyExclusive) => "SELECT FOR NO KEY UPDATE",
                Some(LockMode::Shared) => "SELECT FOR SHARE",
                Some(LockMode::KeyShared) => "SELECT FOR KEY SHARE",
            },
            _ => return Ok(()),
        };
        if planned.changes_temporary || !self.open.as_ref().is_some_and(|open| open.state.read_only) {
            self.check_replication(command)?;
            return self.check_majority();
        }
        Err(SqlError::new(
            sqlstate::READ_ONLY_SQL_TRANSACTION,
            format!("cannot execute {command} in a read-only transaction"),
        ))
    }

    /// Gives rows from a cursor. If it has to wait for an advisory lock before the first one, it is
    /// begun once more, and has said nothing.
    async fn give(
        &mut self,
        portal: &mut Portal,
        sink: &mut (dyn RowSink + Send),
        max_rows: u64,
    ) -> Result<Fetch> {
        let (taken, told) = (self.facts.advisory.begin_statement(), self.facts.news.mark());
        loop {
            let given = self.pump(portal, sink, max_rows);
            let Err(error) = given else { return given };
            let Some(lock) = self.facts.advisory.take_wanted() else { return Err(error) };
            self.await_advisory(lock, taken).await?;
            self.facts.news.undo(told);
            let PortalState::Cursor { cursor, view, .. } = &mut portal.state else { return Err(error) };
            **cursor = Cursor::new(cursor.plan(), cursor.parameters().clone());
            self.tally.iter().for_each(|tally| tally.clear());
            if let Some(open) = &mut self.open
                && self.opens
                && open.state.may_begin_later()
            {
                // Nothing was read before: it sees what was done under the lock.
                open.engine.restart();
                *view = open.engine.view();
            }
        }
    }

    /// Gives rows from a cursor.
    fn pump(&mut self, portal: &mut Portal, sink: &mut (dyn RowSink + Send), max_rows: u64) -> Result<Fetch> {
        let PortalState::Cursor { cursor, view, rows } = &mut portal.state else {
            return Err(SqlError::internal("the portal has no cursor"));
        };
        let columns = portal.columns.as_deref().unwrap_or_default();
        let interrupts = self.interrupts();
        // The rows of one buffer may be too few to ask.
        interrupts.check()?;
        let work = self.work_at(&interrupts, Some(&*view))?;
        let mut given = 0;
        let advisory = &work.facts.advisory;
        advisory.allow_unwinding(*rows == 0);
        let fetch = work.read(|read| {
            loop {
                let Some(row) = cursor.next_row(read)? else {
                    return Ok(Fetch::Complete(CommandTag::Rows("SELECT", *rows)));
                };
                if given == 0 {
                    advisory.allow_unwinding(false);
                }
                given += 1;
                *rows += 1;
                let state = sink.row(columns, &portal.formats, row, work.format)?;
                if let Some(stop) = Fetch::stop(given, max_rows, state) {
                    return Ok(stop);
                }
            }
        });
        self.facts.advisory.allow_unwinding(false);
        if let Ok(Fetch::Complete(tag)) = fetch {
            portal.state = PortalState::Done(tag);
        }
        fetch
    }

    /// Gives rows that were made at once. What they take was counted then, so that what tells of a
    /// commit is not refused for want of memory; only no message can hold more than 1 GB. 54000.
    fn send_rows(
        &mut self,
        portal: &mut Portal,
        sink: &mut (dyn RowSink + Send),
        max_rows: u64,
    ) -> Result<Fetch> {
        let PortalState::Rows { rows, sent, tag } = &mut portal.state else { return Ok(Fetch::Empty) };
        let columns = portal.columns.as_deref().unwrap_or_default();
        let mut given = 0;
        for row in rows.by_ref() {
            given += 1;
            *sent += 1;
            let state = sink.row(columns, &portal.formats, &row, &self.format)?;
            if let Some(stop) = Fetch::stop(given, max_rows, state) {
                return Ok(stop);
            }
        }
        let tag = match tag {
            Tag::Sent(words) => CommandTag::Rows(words, *sent),
            Tag::Fixed(tag) => *tag,
        };
        portal.state = PortalState::Done(tag);
        Ok(Fetch::Complete(tag))
    }

    /// A message of several statements goes on in the same implicit transaction; in a block nothing
    /// changes.
    pub(super) fn is_in_block(&self) -> bool {
        self.block == Block::Explicit
    }

    /// Whether a statement that is of use in a block only is in one: also in that of a message of
    /// several statements, or of a DO, which ends with it.
    pub(super) fn shares_block(&self, statement: &Statement) -> bool {
        let has_others = statement.has_company || statement.scope.is_some();
        self.is_in_block() || (self.block == Block::Implicit && has_others)
    }
}

/// What a statement that changes rows answers.
pub(super) fn outcome(changed: Changed, returning: bool, tag: impl Fn(u64) -> CommandTag) -> PortalState {
    let tag = tag(changed.rows);
    if returning {
        PortalState::Rows { rows: changed.returned.into_iter(), sent: 0, tag: Tag::Fixed(tag) }
    } else {
        PortalState::Done(tag)
    }
}
