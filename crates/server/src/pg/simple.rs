//! The simple protocol: one message with any number of statements, one ReadyForQuery.
//!
//! The statements run in one implicit transaction unless they open and close blocks themselves. The
//! first error ends the message. The last CommandComplete is written once the implicit transaction
//! is durable. A message that fails because of others before it has committed anything, and of
//! whose answer nothing was sent, is run again, a bounded number of times.

use cognate_sql::session::{Company, Portal, Statement};
use cognate_sql::{SqlError, sqlstate};

use super::connection::{Connection, Failure, HeadDue, Unseen};
use super::conversation::End;
use super::copy::CopyIn;
use super::extended::Ran;
use super::response;
use super::row::{FULL_BYTES, describe_columns};

/// Statements of a message that are still to run.
pub(crate) type Rest = std::vec::IntoIter<Statement>;

impl Connection {
    pub(crate) async fn query(&mut self, text: &str) -> Result<(), End> {
        self.unnamed = None;
        self.session.portals_mut().remove("");
        let statements = match self.session.split(text) {
            Ok(statements) if statements.is_empty() => {
                response::empty_query(self.transport.output());
                return self.end_simple().await;
            }
            Ok(statements) => statements,
            Err(error) => {
                self.report(error).await;
                return self.end_simple().await;
            }
        };
        let left = if self.session.is_fresh() { self.session.retries() } else { 0 };
        let (mark, commits) = (self.transport.mark(), self.session.commits());
        self.rerun = None;
        self.unseen = Some(Unseen { left, commits, mark });
        let mut statements = statements;
        loop {
            if statements.len() > 1 && self.session.wants_all_active(&statements) {
                match self.session.run_active(&statements).await {
                    Ok(None) => {}
                    Ok(Some(portals)) => return self.send_all(portals).await,
                    Err(error) => {
                        self.unseen = None;
                        self.report(error).await;
                        return self.end_simple().await;
                    }
                }
            }
            let company = if statements.len() == 1 { Company::None } else { Company::Some };
            self.session.set_company(company);
            self.run_statements(statements.into_iter()).await?;
            if !std::mem::take(&mut self.is_to_run_again) {
                break;
            }
            if let Some(unseen) = &mut self.unseen {
                unseen.left -= 1;
            }
            self.transport.rewind(mark);
            self.held = None;
            self.session.abandon();
            statements = match self.session.split(text) {
                Ok(statements) => statements,
                Err(error) => {
                    self.report(error).await;
                    return self.end_simple().await;
                }
            };
        }
        self.unseen = None;
        Ok(())
    }

    /// Whether the message is run again instead of reporting this error of it.
    pub(crate) fn may_run_again(&self, error: &SqlError) -> bool {
        self.session.may_run_again(error)
            && self.unseen.as_ref().is_some_and(|unseen| {
                unseen.left > 0
                    && unseen.commits == self.session.commits()
                    && self.transport.is_unsent_since(unseen.mark)
            })
    }

    /// Runs statements until one fails, waits for COPY data, or none is left.
    pub(crate) async fn run_statements(&mut self, mut rest: Rest) -> Result<(), End> {
        while let Some(statement) = rest.next() {
            match self.run_statement(statement).await {
                Ok(Ran::Complete(command_tag)) => {
                    self.release_held();
                    self.held = Some(command_tag);
                }
                Ok(Ran::CopyIn) => {
                    self.unseen = None;
                    self.copy = Some(CopyIn::Simple(rest));
                    return Ok(());
                }
                Ok(Ran::Empty) => response::empty_query(self.transport.output()),
                Ok(Ran::Suspended) => debug_assert!(false, "there was no row limit"),
                Err(Failure::Sql(error)) if self.may_run_again(&error) => {
                    self.is_to_run_again = true;
                    return Ok(());
                }
                Err(Failure::Sql(error)) => {
                    self.release_held();
                    self.report(error).await;
                    break;
                }
                Err(Failure::End(end)) => return Err(end),
            }
        }
        self.end_simple().await
    }

    /// Answers a message whose statements were executed as one.
    async fn send_all(&mut self, portals: Vec<Portal>) -> Result<(), End> {
        self.unseen = None;
        for mut portal in portals {
            if let Some(columns) = portal.shared_columns() {
                self.release_held();
                self.head.write(self.transport.output(), columns);
            }
            let ran = match self.send_gathered().await {
                Ok(()) => self.run(&mut portal, 0).await,
                Err(failure) => Err(failure),
            };
            match ran {
                Ok(Ran::Complete(command_tag)) => {
                    self.release_held();
                    self.held = Some(command_tag);
                }
                Ok(_) => debug_assert!(false, "it was executed"),
                Err(Failure::Sql(error)) => {
                    self.release_held();
                    self.report(error).await;
                    break;
                }
                Err(Failure::End(end)) => return Err(end),
            }
        }
        self.end_simple().await
    }

    /// Sends what the statements of a message so far have answered, if that is much: there may be
    /// any number of them, none of which fills a buffer of its own.
    async fn send_gathered(&mut self) -> Result<(), Failure> {
        if self.transport.unsent() > FULL_BYTES {
            self.settle_answers().await?;
            self.flush_all().await?;
        }
        Ok(())
    }

    async fn run_statement(&mut self, statement: Statement) -> Result<Ran, Failure> {
        self.send_gathered().await?;
        let again = self.session.reads_after().then(|| statement.clone());
        let prepared = match (self.session.prepare_statement(statement), again) {
            (Err(refusal), Some(statement)) => {
                self.session.look_again(refusal).await?;
                self.session.prepare_statement(statement)?
            }
            (prepared, _) => prepared?,
        };
        if !prepared.parameter_types().is_empty() {
            // The message has no values for them.
            return Err(SqlError::new(sqlstate::UNDEFINED_PARAMETER, "there is no parameter $1").into());
        }
        let mut portal = self.session.bind(&prepared, &[], &[], &[])?;
        // It may wait for who changes its tables: the head says what they are afterwards.
        portal.leave_open();
        self.head_due = Some(HeadDue::Simple);
        let ran = self.run(&mut portal, 0).await;
        self.head_due = None;
        ran
    }

    /// Writes the head of a portal's rows if it is due, and certain by now.
    pub(crate) fn write_due_head(&mut self, portal: &Portal, is_ok: bool) {
        let Some(due) = self.head_due.take_if(|_| is_ok || portal.has_begun()) else { return };
        match (due, portal.shared_columns()) {
            (HeadDue::Described, _) => {
                describe_columns(self.transport.output(), portal.columns(), portal.formats());
            }
            (HeadDue::Simple, None) => {}
            (HeadDue::Simple, Some(columns)) => {
                self.release_held();
                self.head.write(self.transport.output(), columns);
            }
        }
    }

    /// Ends the message: commits or rolls back the implicit transaction and writes ReadyForQuery.
    pub(crate) async fn end_simple(&mut self) -> Result<(), End> {
        self.sync().await
    }
}
