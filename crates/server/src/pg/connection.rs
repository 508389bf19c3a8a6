//! One connection: its session, and what the messages of its client do. The loop that reads them
//! and sends the answers is [`super::conversation`].
//!
//! An error inside the extended protocol skips everything up to the next Sync. CommandComplete of
//! an Execute is held back until the next message shows whether a Sync follows: then it is only
//! sent once the implicit transaction is committed and durable, and a failing commit is reported in
//! its place.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};

use cognate_sql::session::{CommandTag, Prepared, Session, TransactionStatus};
use cognate_sql::{SqlError, sqlstate};
use tokio::time::timeout;

use super::conversation::{
    End, LINGER, NEXT_MESSAGE, Respondent, attend, await_next, exchange, farewell, flush_all,
};
use super::copy::CopyIn;
use super::frame::{FrameError, Phase};
use super::message::{self, Frontend, MessageError, tag};
use super::registry::{Open, Stop};
use super::response::{self, Report};
use super::row::{Head, RowBuffer};
use super::socket::Socket;
use super::transport::{Broken, Mark, Transport};
use crate::server::Server;

/// What stops a statement: an error to report, or the connection's end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Reported; the connection goes on.
    Sql(SqlError),
    /// It does not.
    End(End),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Failure {
        Failure::Sql(error)
    }
}

impl From<End> for Failure {
    fn from(end: End) -> Failure {
        Failure::End(end)
    }
}

/// A connection whose session has begun.
pub(crate) struct Connection {
    pub(crate) server: Arc<Server>,
    pub(crate) open: Open,
    pub(crate) transport: Transport,
    pub(crate) rows: RowBuffer,
    pub(crate) head: Head,
    /// The head of the rows of the portal that runs, or is run next, as long as it is not written.
    pub(crate) head_due: Option<HeadDue>,
    pub(crate) session: Session,
    /// The unnamed prepared statement; those with names, and portals, are the session's.
    pub(crate) unnamed: Option<Arc<Prepared>>,
    /// The client was told of its columns.
    pub(crate) is_unnamed_told: bool,
    /// CommandComplete of the last Execute, not yet written.
    pub(crate) held: Option<CommandTag>,
    /// An error was reported: everything up to the next Sync is skipped.
    pub(crate) skip_to_sync: bool,
    /// A COPY FROM STDIN that waits for data.
    pub(crate) copy: Option<CopyIn>,
    /// The only statement of the implicit transaction, as long as nothing of its answer was sent:
    /// to be run again if the commit fails because of others.
    pub(crate) rerun: Option<Rerun>,
    /// The message that is run, as long as it may be run again.
    pub(crate) unseen: Option<Unseen>,
    /// It failed because of others, and nothing was said of it.
    pub(crate) is_to_run_again: bool,
    /// So many portals were bound before the end of the last block, which they have ended with.
    pub(crate) ended_portals: u64,
    /// It has waited for its client since the last message.
    has_rested: bool,
    /// When the last statement was done.
    answered: Option<Instant>,
}

/// What is to be written before rows, once it is certain what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadDue {
    /// The head of a statement of the simple protocol.
    Simple,
    /// The answer to the Describe just before the Execute.
    Described,
}

/// A statement that can be run again.
pub(crate) struct Rerun {
    /// The name of its portal, which is there, done, until the transaction ends.
    pub(crate) portal: String,
    pub(crate) head_due: Option<HeadDue>,
    /// What the session had done for good before it.
    pub(crate) commits: u64,
    /// Where its answer begins.
    pub(crate) mark: Mark,
}

/// A message of which nothing was sent and that has committed nothing.
pub(crate) struct Unseen {
    /// How often it may still be run again.
    pub(crate) left: u32,
    /// What the session had done for good before it.
    pub(crate) commits: u64,
    /// Where its answer begins.
    pub(crate) mark: Mark,
}

impl Connection {
    pub(crate) fn new(server: Arc<Server>, open: Open, transport: Transport, session: Session) -> Connection {
        Connection {
            server,
            open,
            transport,
            rows: RowBuffer::default(),
            head: Head::default(),
            head_due: None,
            session,
            unnamed: None,
            is_unnamed_told: false,
            held: None,
            skip_to_sync: false,
            copy: None,
            rerun: None,
            unseen: None,
            is_to_run_again: false,
            ended_portals: 0,
            has_rested: false,
            answered: None,
        }
    }

    /// Serves the client until one of both ends it. Everything that can be told is told before this
    /// returns.
    pub(crate) async fn serve(mut self) {
        let end = exchange(&mut self).await;
        let is_stopped = matches!(end, End::Broken(Broken::Stopped));
        let is_busy = is_stopped && self.answered.is_some_and(|at| at.elapsed() < NEXT_MESSAGE);
        let end = match self.open.entry().why() {
            Some(why) if is_stopped => End::Denied(Box::new(why.clone())),
            _ => end,
        };
        // What was answered and not sent yet goes with the farewell, so it must be durable; a log
        // that stands still is not waited for.
        let is_settled = matches!(timeout(LINGER, self.session.settle_answers()).await, Ok(Ok(())));
        // The session goes first, and its place: neither its locks nor who comes next must wait for
        // a farewell that a slow client does not read.
        let phase = self.phase();
        let Connection { session, mut transport, mut open, .. } = self;
        drop(session);
        open.leave();
        if is_settled {
            if is_busy {
                await_next(&mut transport, phase).await;
            }
            farewell(&mut transport, &end).await;
        }
        // Whoever waits until all have gone finds no socket open.
        drop(transport);
        drop(open);
    }

    async fn handle(&mut self, first: u8, body: &[u8]) -> Result<(), End> {
        if self.skip_to_sync && first != tag::SYNC && first != tag::TERMINATE {
            return Ok(());
        }
        // Cancelling reaches the statement that is under way, or else the first one of those that
        // a client has sent and that are not yet answered. While it sends data, that is a COPY.
        match std::mem::take(&mut self.has_rested) {
            true if self.copy.is_none() => self.session.begin_message(),
            true => self.session.has_rested(),
            false => {}
        }
        if self.copy.is_some() {
            return self.copy_message(first, body).await;
        }
        if let Some(lost) = self.lost_before(first) {
            return self.refuse(first, lost).await;
        }
        if first != tag::SYNC {
            self.release_held();
            // What this message answers could not be taken back with the statement's answer.
            self.rerun = None;
        }
        let message = match message::decode(first, body) {
            Ok(message) => message,
            Err(error) => return self.malformed(first, &error).await,
        };
        match message {
            Frontend::Query(text) => {
                let started = Instant::now();
                self.query(text).await?;
                self.note_answered(started);
                Ok(())
            }
            Frontend::Execute { portal, max_rows } => {
                let started = Instant::now();
                let result = self.execute(portal, max_rows).await;
                self.note_answered(started);
                self.settle(result).await
            }
            Frontend::Bind(bind) => {
                let result = self.bind(&bind);
                self.settle(result).await
            }
            Frontend::Parse { name, text, parameter_oids } => {
                let result = self.parse(name, text, &parameter_oids).await;
                self.settle(result).await
            }
            Frontend::Describe(target, name) => {
                let result = self.describe(target, name);
                self.settle(result).await
            }
            Frontend::Close(target, name) => {
                self.close(target, name);
                Ok(())
            }
            Frontend::Sync => self.sync().await,
            Frontend::Flush => {
                let settled = self.settle_answers().await.map_err(Failure::from);
                self.transport.mark_urgent();
                self.settle(settled).await
            }
            Frontend::Terminate => Err(End::Terminated),
            // Left over from a COPY that failed on our side while the client was still sending.
            Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_) => Ok(()),
            Frontend::FunctionCall => {
                self.refuse(first, SqlError::unsupported("the function call protocol")).await
            }
            Frontend::Password(_) => Err(FrameError::UnknownTag(first).into()),
        }
    }

    fn note_answered(&mut self, started: Instant) {
        let now = Instant::now();
        self.server.metrics.statement(self.open.entry().process_id, now - started);
        self.answered = Some(now);
    }

    /// Why the transaction has ended that a message was to be part of, if it has while the client
    /// was not asking. Sync, which is the end of it, asks for itself.
    fn lost_before(&mut self, first: u8) -> Option<SqlError> {
        if matches!(first, tag::SYNC | tag::TERMINATE) { None } else { self.session.take_lost() }
    }

    /// Answers a message whose body is wrong.
    async fn malformed(&mut self, first: u8, error: &MessageError) -> Result<(), End> {
        if matches!(first, tag::COPY_DONE | tag::COPY_FAIL) {
            // What is left over from a COPY that failed on our side is not answered, whatever it
            // says: a client of the simple protocol sends no Sync behind it.
            return Ok(());
        }
        self.refuse(first, SqlError::new(error.sqlstate(), error.to_string())).await
    }

    /// Answers a message by an error.
    async fn refuse(&mut self, first: u8, error: SqlError) -> Result<(), End> {
        if matches!(first, tag::QUERY | tag::SYNC | tag::FUNCTION_CALL) {
            self.report(error).await;
            return self.end_simple().await;
        }
        self.settle(Err(Failure::Sql(error))).await
    }

    /// Ends a message of the extended protocol: an error is reported and the rest of the unit
    /// skipped.
    pub(crate) async fn settle(&mut self, result: Result<(), Failure>) -> Result<(), End> {
        match result {
            Ok(()) => Ok(()),
            Err(Failure::Sql(error)) => {
                self.report(error).await;
                self.skip_to_sync = true;
                // A client may wait for it: the Flush that it sent is skipped too.
                self.transport.mark_urgent();
                Ok(())
            }
            Err(Failure::End(end)) => Err(end),
        }
    }

    /// Waits until what is about to be sent may be sent: see the session's `durability`.
    pub(crate) async fn settle_answers(&mut self) -> Result<(), SqlError> {
        let settled = pin!(self.session.settle_answers());
        attend(&mut self.transport, &self.open, settled).await
    }

    /// Tells the session of a statement's error, and reports it once what it rests on is durable.
    pub(crate) async fn report(&mut self, error: SqlError) {
        self.held = None;
        let error = {
            let failed = pin!(self.session.failed(error));
            attend(&mut self.transport, &self.open, failed).await
        };
        self.write_notices();
        let mut report = Report::from(&error);
        if error.sqlstate == sqlstate::QUERY_CANCELED && self.open.entry().stop() == Stop::Now {
            report.sqlstate = sqlstate::ADMIN_SHUTDOWN;
            report.message = match self.open.entry().why() {
                None => "canceling statement due to administrator command",
                Some(_) => "canceling statement because its connection is terminated",
            };
        }
        if error.sqlstate == sqlstate::QUERY_CANCELED {
            // Statements that the client has sent behind it are others.
            self.session.forget_cancel();
        }
        response::error(self.transport.output(), &report);
        self.server.metrics.error(self.open.entry().process_id);
    }

    /// Writes notices that have gathered.
    pub(crate) fn write_notices(&mut self) {
        let notices = self.session.take_notices();
        if !notices.is_empty() {
            // They are of what came after the statement whose answer is held back.
            self.release_held();
        }
        for notice in notices {
            response::notice(self.transport.output(), &Report::from(&notice));
        }
    }

    /// Writes notifications that have come.
    fn write_notifications(&mut self) {
        for one in self.session.take_notifications() {
            response::notification(self.transport.output(), one.process_id, &one.channel, &one.payload);
        }
    }

    /// Writes a CommandComplete that was held back.
    pub(crate) fn release_held(&mut self) {
        if let Some(command_tag) = self.held.take() {
            self.write_complete(&command_tag);
        }
    }

    pub(crate) fn write_complete(&mut self, command_tag: &CommandTag) {
        response::command_complete(self.transport.output(), command_tag);
    }

    /// Writes ReadyForQuery, and before it what is to be known by then.
    pub(crate) fn write_ready(&mut self) {
        self.write_notices();
        self.write_notifications();
        let output = self.transport.output();
        for (name, value) in self.session.take_parameter_changes() {
            response::parameter_status(output, name, &value);
        }
        let status = match self.session.tell_status() {
            TransactionStatus::Idle => b'I',
            TransactionStatus::InBlock => b'T',
            TransactionStatus::Failed => b'E',
        };
        response::ready_for_query(output, status);
        self.transport.mark_urgent();
        if status == b'I' {
            self.session.portals_mut().clear();
        }
    }

    /// Ends the implicit transaction, holding its answer back until it is durable.
    pub(crate) async fn end_transaction(&mut self) -> Result<(), SqlError> {
        let synced = pin!(self.session.sync());
        attend(&mut self.transport, &self.open, synced).await
    }

    /// Sends all output of a statement that goes on afterwards, waiting for the socket as long as
    /// it takes. A block that has no future meanwhile is given up, and the statement says so.
    pub(crate) async fn flush_all(&mut self) -> Result<(), End> {
        let Connection { transport, open, session, .. } = self;
        let is_block = session.status() == TransactionStatus::InBlock;
        let mut doomed = None;
        let meanwhile = move |cx: &mut Context<'_>| {
            if is_block {
                give_back(session, &mut doomed, cx);
            }
            false
        };
        flush_all(transport, &*open, meanwhile).await
    }
}

type Doomed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// While a client is waited for: a sibling was chosen, or another node's transaction was faster;
/// what this one holds is given back now, not when its client comes. `doomed` is what tells so,
/// asked for with the first look.
fn give_back(session: &mut Session, doomed: &mut Option<Option<Doomed>>, cx: &mut Context<'_>) {
    let doomed = doomed.get_or_insert_with(|| session.doomed());
    if doomed.as_mut().is_some_and(|doomed| Pin::new(doomed).poll(cx).is_ready()) {
        *doomed = None;
        session.give_up();
    }
}

impl Respondent for Connection {
    type Stream = Socket;
    type Orders = Open;

    fn parts(&mut self) -> (&mut Transport, &Open) {
        (&mut self.transport, &self.open)
    }

    fn phase(&self) -> Phase {
        Phase::Session { message_bytes_max: self.server.message_bytes_max }
    }

    fn message(&mut self, first: u8, body: &[u8]) -> impl Future<Output = Result<(), End>> + Send {
        self.handle(first, body)
    }

    async fn settle(&mut self) -> Result<(), End> {
        if let Err(lost) = self.settle_answers().await {
            self.report(lost).await;
            self.skip_to_sync = true;
        }
        Ok(())
    }

    fn rest(&mut self) -> Option<Duration> {
        self.has_rested = true;
        self.transport.shrink();
        self.rows.shrink();
        self.head.shrink();
        if self.copy.is_some() {
            // Who sends data takes his time between two rows, and is not idle.
            return None;
        }
        self.session.idle_timeout_ms().map(Duration::from_millis)
    }

    fn tell(&mut self) {
        self.write_notifications();
        self.transport.mark_urgent();
    }

    fn idle_too_long(&self) -> End {
        idle_too_long(self.session.is_fresh())
    }

    fn idle(&mut self) -> (&mut Transport, &Open, impl FnMut(&mut Context<'_>) -> bool + Send) {
        let Connection { transport, open, session, .. } = self;
        let mut doomed = None;
        let meanwhile = move |cx: &mut Context<'_>| {
            give_back(session, &mut doomed, cx);
            session.poll_notifications(cx).is_ready()
        };
        (transport, open, meanwhile)
    }
}

/// The end of a session that its settings do not let idle any longer.
fn idle_too_long(between_transactions: bool) -> End {
    let (sqlstate, what) = match between_transactions {
        true => ("57P05", "idle-session"),
        false => (sqlstate::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, "idle-in-transaction"),
    };
    End::Refused { sqlstate, message: format!("terminating connection due to {what} timeout") }
}
