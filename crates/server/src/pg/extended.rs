//! The extended protocol: Parse, Bind, Describe, Execute, Close, Sync.
//!
//! A prepared statement lives until it is closed, a portal until its transaction ends, or that
//! goes back to a savepoint which is older. A portal with a row limit stays where it is between two
//! Executes; nothing of it is buffered here. Portals are the session's, since SQL knows those with
//! a name as cursors.
//!
//! PostgreSQL waits in Parse for who changes a statement's tables, and this server in Execute. So
//! that a client sees no difference, a portal whose columns nobody was told of has those that there
//! are after the wait, and a Describe with an Execute behind it is answered when that has begun.

use std::pin::pin;
use std::sync::Arc;

use cognate_sql::session::{CommandTag, Company, Fetch, Portal, Prepared, Taken};
use cognate_sql::{SqlError, sqlstate};

use super::connection::{Connection, Failure, HeadDue, Rerun};
use super::conversation::{End, attend};
use super::message::tag;
use super::message::{Bind, Target};
use super::response;
use super::row::describe_columns;

/// How far a portal came.
pub(crate) enum Ran {
    /// To its end.
    Complete(CommandTag),
    /// To its row limit.
    Suspended,
    /// There was nothing to run.
    Empty,
    /// It waits for COPY data; the response is written.
    CopyIn,
}

impl Connection {
    pub(crate) async fn parse(
        &mut self,
        name: &str,
        text: &str,
        parameter_oids: &[u32],
    ) -> Result<(), Failure> {
        if name.is_empty() {
            // The one before it goes first: two long ones need not have room beside each other.
            self.unnamed = None;
        }
        let prepared = match self.session.prepare(text, parameter_oids) {
            Ok(prepared) => prepared,
            Err(refusal) => {
                self.session.look_again(refusal).await?;
                self.session.prepare(text, parameter_oids)?
            }
        };
        let prepared = match self.session.reads_after() {
            true => Box::pin(self.session.prepare_as_seen(prepared, text, parameter_oids)).await?,
            false => prepared,
        };
        if name.is_empty() {
            self.unnamed = Some(prepared);
            self.is_unnamed_told = false;
        } else {
            self.session.name_statement(name.to_owned(), prepared)?;
        }
        response::parse_complete(self.transport.output());
        Ok(())
    }

    /// The prepared statement of this name; SQL's PREPARE and DEALLOCATE share the names.
    fn statement(&self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        if !name.is_empty() {
            return self.session.named_statement(name).cloned();
        }
        self.unnamed.clone().ok_or_else(|| {
            SqlError::new(sqlstate::INVALID_SQL_STATEMENT_NAME, "unnamed prepared statement does not exist")
        })
    }

    pub(crate) fn bind(&mut self, bind: &Bind<'_>) -> Result<(), Failure> {
        let prepared = self.statement(bind.statement)?;
        let mut free = self.session.portals().check_free(bind.portal);
        if self.session.cursor_columns(bind.portal).is_some() {
            // A cursor made by DECLARE is a portal too.
            free = Err(Taken::Exists);
        }
        free.map_err(|taken| match taken {
            Taken::Exists => SqlError::new(
                sqlstate::DUPLICATE_CURSOR,
                format!("cursor \"{}\" already exists", bind.portal),
            ),
            Taken::Full => SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "too many portals"),
        })?;
        let mut portal = self.session.bind(&prepared, &bind.values, &bind.formats, &bind.result_formats)?;
        if !bind.portal.is_empty() {
            self.session.name_portal(&mut portal, bind.portal)?;
        }
        if bind.statement.is_empty() && !self.is_unnamed_told && bind.result_formats.len() <= 1 {
            portal.leave_open();
        }
        self.session.portals_mut().put(bind.portal, portal);
        response::bind_complete(self.transport.output());
        Ok(())
    }

    pub(crate) fn describe(&mut self, target: Target, name: &str) -> Result<(), Failure> {
        match target {
            Target::Statement => {
                let prepared = self.statement(name)?;
                self.session.check_describes(&prepared)?;
                if name.is_empty() {
                    self.is_unnamed_told = true;
                    // So is who has bound it already and executes that next.
                    self.session.portals_mut().for_each(|portal| {
                        if portal.is_of(&prepared) {
                            portal.close_columns();
                        }
                    });
                }
                let output = self.transport.output();
                let oids = prepared.parameter_types().iter().map(|ty| ty.oid());
                response::parameter_description(output, oids);
                describe_columns(output, prepared.columns(), &[]);
            }
            Target::Portal => {
                let portal = self.session.portals().get(name).map(Portal::prepared);
                if let Some(prepared) = portal.or_else(|| self.session.cursor_prepared(name)) {
                    self.session.check_describes(prepared)?;
                }
                let is_run_next = name.is_empty() && self.transport.next() == Some(tag::EXECUTE);
                let output = self.transport.output();
                if let Some(portal) = self.session.portals_mut().get_mut(name) {
                    // It may be that statement's, of which more portals may be made.
                    self.is_unnamed_told = true;
                    if is_run_next && portal.is_open() {
                        self.head_due = Some(HeadDue::Described);
                        return Ok(());
                    }
                    portal.close_columns();
                    describe_columns(output, portal.columns(), portal.formats());
                } else {
                    // A cursor made by DECLARE is a portal too.
                    let columns = self.session.cursor_columns(name).ok_or_else(|| no_portal(name))?;
                    describe_columns(output, Some(columns), &[]);
                }
            }
        }
        Ok(())
    }

    /// Closing what does not exist is no error.
    pub(crate) fn close(&mut self, target: Target, name: &str) {
        match target {
            Target::Statement if name.is_empty() => self.unnamed = None,
            Target::Statement => self.session.forget_statement(name),
            Target::Portal if self.session.portals().get(name).is_some() => {
                self.session.portals_mut().remove(name);
            }
            Target::Portal => self.session.forget_cursor(name),
        }
        response::close_complete(self.transport.output());
    }

    pub(crate) async fn execute(&mut self, name: &str, max_rows: u32) -> Result<(), Failure> {
        if !name.is_empty() {
            self.describe_now();
        }
        // Out of the map while it runs: a portal whose statement fails is gone.
        let Some(mut portal) = self.session.portals_mut().take(name) else {
            return self.execute_cursor(name, max_rows).await;
        };
        self.session.set_company(match self.transport.next_acting() {
            Some(tag::SYNC) => Company::None,
            None => Company::Unknown,
            Some(_) => Company::Some,
        });
        self.rerun = None;
        if max_rows == 0 && self.session.is_fresh() && self.session.retries() > 0 {
            let (head_due, mark) = (self.head_due, self.transport.mark());
            let commits = self.session.commits();
            self.rerun = Some(Rerun { portal: name.to_owned(), head_due, commits, mark });
        }
        self.session.begins_portal(name);
        let ran = self.run(&mut portal, u64::from(max_rows)).await;
        self.session.ends_portal();
        self.head_due = None;
        let ran = ran?;
        // What has ended a block was bound in it, and is gone with it.
        if portal.bound() > self.ended_portals {
            self.session.portals_mut().put(name, portal);
        }
        match ran {
            Ran::Complete(command_tag) => self.held = Some(command_tag),
            Ran::Suspended => response::portal_suspended(self.transport.output()),
            Ran::Empty => response::empty_query(self.transport.output()),
            Ran::CopyIn => {
                // Its data cannot be had again.
                self.rerun = None;
                self.copy = Some(super::copy::CopyIn::Extended);
            }
        }
        Ok(())
    }

    /// Another portal is executed than the one that was described just before.
    fn describe_now(&mut self) {
        if self.head_due.take().is_some()
            && let Some(portal) = self.session.portals_mut().get_mut("")
        {
            portal.close_columns();
            describe_columns(self.transport.output(), portal.columns(), portal.formats());
        }
    }

    /// Execute by the name of a cursor that DECLARE made: the next rows of it.
    async fn execute_cursor(&mut self, name: &str, max_rows: u32) -> Result<(), Failure> {
        if self.session.cursor_columns(name).is_none() {
            return Err(no_portal(name).into());
        }
        let count = if max_rows == 0 { "ALL".to_owned() } else { max_rows.to_string() };
        let text = format!("FETCH {count} FROM \"{}\"", name.replace('"', "\"\""));
        let prepared = self.session.prepare(&text, &[])?;
        let mut portal = self.session.bind(&prepared, &[], &[], &[])?;
        self.rerun = None;
        match self.run(&mut portal, 0).await? {
            Ran::Complete(CommandTag::Rows(_, rows)) if max_rows != 0 && rows == u64::from(max_rows) => {
                response::portal_suspended(self.transport.output());
            }
            Ran::Complete(CommandTag::Rows(_, rows)) => self.held = Some(CommandTag::Rows("SELECT", rows)),
            // Nothing would be answered.
            _ => return Err(SqlError::internal("FETCH gave no rows").into()),
        }
        Ok(())
    }

    pub(crate) async fn sync(&mut self) -> Result<(), End> {
        let held = self.held.take();
        self.head_due = None;
        let lost = self.session.take_lost();
        let ended = match self.end_transaction().await.and_then(|()| lost.map_or(Ok(()), Err)) {
            Ok(()) => Ok(held),
            Err(error) => self.run_again(error).await,
        };
        self.rerun = None;
        match ended {
            Ok(Some(command_tag)) => self.write_complete(&command_tag),
            Ok(None) => {}
            Err(Failure::Sql(error)) if self.may_run_again(&error) => {
                self.is_to_run_again = true;
                return Ok(());
            }
            Err(Failure::Sql(error)) => self.report(error).await,
            Err(Failure::End(end)) => return Err(end),
        }
        self.skip_to_sync = false;
        self.write_ready();
        Ok(())
    }

    /// A commit failed: runs its only statement again as long as the failure is others' doing and
    /// nothing of the answer was sent.
    async fn run_again(&mut self, mut error: SqlError) -> Result<Option<CommandTag>, Failure> {
        let Some(rerun) = self.rerun.take() else { return Err(error.into()) };
        let Rerun { portal, head_due, commits, mark } = rerun;
        let Some(portal) = self.session.portals().get(&portal).map(Portal::again) else {
            return Err(error.into());
        };
        for _ in 0..self.session.retries() {
            let is_undone = self.session.commits() == commits;
            if !is_undone || !self.session.may_run_again(&error) || !self.transport.rewind(mark) {
                break;
            }
            self.session.abandon();
            // It was alone, and is again.
            self.session.set_company(Company::None);
            let mut portal = portal.again();
            self.head_due = head_due;
            let ran = self.run(&mut portal, 0).await;
            self.head_due = None;
            let ran = match ran {
                Ok(Ran::Complete(command_tag)) => Some(command_tag),
                Ok(_) => None,
                Err(Failure::Sql(again)) => {
                    error = again;
                    continue;
                }
                Err(end) => return Err(end),
            };
            match self.end_transaction().await {
                Ok(()) => return Ok(ran),
                Err(again) => error = again,
            }
        }
        Err(error.into())
    }

    /// Runs a portal to its end or row limit, sending rows whenever many have gathered.
    pub(crate) async fn run(&mut self, portal: &mut Portal, max_rows: u64) -> Result<Ran, Failure> {
        self.rows.rows = 0;
        let mut copying_out = false;
        loop {
            // The limit counts rows of this Execute, however often the buffer fills meanwhile.
            let left = if max_rows == 0 { 0 } else { max_rows - self.rows.rows };
            let fetched = {
                let fetch = pin!(self.session.fetch(portal, &mut self.rows, left));
                attend(&mut self.transport, &self.open, fetch).await
            };
            if let Some(bound) = self.session.take_undone_portals() {
                self.session.portals_mut().retain(|portal| portal.bound() <= bound);
            }
            if let Some(bound) = self.session.take_ended_portals() {
                self.session.portals_mut().retain(|portal| portal.bound() > bound);
                self.ended_portals = bound;
            }
            self.write_due_head(portal, fetched.is_ok());
            self.transport.append(&mut self.rows.bytes);
            match fetched? {
                Fetch::Complete(mut command_tag) => {
                    self.write_notices();
                    if let CommandTag::Rows(_, rows) | CommandTag::Insert(rows) = &mut command_tag
                        && portal.columns().is_some()
                        && !copying_out
                    {
                        // Of this Execute, not of the portal's whole life: also of what a statement
                        // that changes rows gives of them.
                        *rows = self.rows.rows;
                    }
                    if copying_out {
                        response::copy_done(self.transport.output());
                    }
                    return Ok(Ran::Complete(command_tag));
                }
                Fetch::Suspended => return Ok(Ran::Suspended),
                Fetch::Empty => return Ok(Ran::Empty),
                Fetch::SinkFull if max_rows != 0 && self.rows.rows >= max_rows => return Ok(Ran::Suspended),
                Fetch::SinkFull => {
                    // They need not wait for the rest of the rows.
                    self.write_notices();
                    self.settle_answers().await?;
                    self.flush_all().await?;
                }
                Fetch::CopyOut(format) => {
                    copying_out = true;
                    // The statement before it in the same message is complete.
                    self.release_held();
                    super::copy::write_response(self.transport.output(), b'H', format);
                }
                Fetch::CopyIn(format) => {
                    self.settle_answers().await?;
                    self.release_held();
                    super::copy::write_response(self.transport.output(), b'G', format);
                    self.transport.mark_urgent();
                    return Ok(Ran::CopyIn);
                }
            }
        }
    }
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}
