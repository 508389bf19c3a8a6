//! One connection: its state, and the loop that reads messages and sends answers.
//!
//! ```text
//! receive ──▶ [ message, message, message, part of one ] ──▶ output ──▶ send once
//!                │ handled in order, each to its end
//! ```
//!
//! All complete messages of the input are handled before anything is sent, so a pipeline is answered with one write.
//! Output leaves when the input is used up and contains something that the client awaits (up to a ReadyForQuery, a
//! Flush or a COPY response), or when it grows beyond 64 KB; then the connection waits for the socket, and the
//! statement with it. While a statement waits (for a lock, for the log), awaited output is sent and the socket is
//! read ahead, within bounds, to learn whether the client is still there.
//!
//! A client that vanishes gets its running statement cancelled. The future of a statement is always run to its end,
//! never dropped half-way: a commit that has begun is finished. Then the session is dropped, which rolls back. A
//! client that sent Terminate before it left is not in a hurry: what it sent before is done.
//!
//! An error inside the extended protocol skips everything up to the next Sync. CommandComplete of an Execute is held
//! back until the next message shows whether a Sync follows: then it is only sent once the implicit transaction is
//! committed and durable, and a failing commit is reported in its place.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use cognate_sql::session::{CommandTag, Portal, Prepared, Session, TransactionStatus};
use cognate_sql::{SqlError, sqlstate};
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

use super::copy::CopyIn;
use super::frame::{self, FrameError, HEADER_BYTES, Phase};
use super::message::{self, Frontend, MessageError, tag};
use super::names::Names;
use super::registry::{Open, Stop};
use super::response::{self, Report};
use super::row::{FULL_BYTES, Head, RowBuffer};
use super::transport::{Broken, Mark, Received, Transport};
use crate::server::Server;

/// How long a farewell may take.
const LINGER: Duration = Duration::from_secs(1);
/// Reads (of up to 32 KB) after a farewell.
const LINGER_READS: usize = 1024;

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The client said goodbye, or closed its side between messages.
    Terminated,
    /// The connection broke or is to stop.
    Broken(Broken),
    /// The client did what cannot be followed; it is told, and the connection closed.
    Refused {
        /// Five characters.
        sqlstate: &'static str,
        /// What is wrong.
        message: String,
    },
}

impl From<Broken> for End {
    fn from(broken: Broken) -> End {
        End::Broken(broken)
    }
}

impl From<FrameError> for End {
    fn from(error: FrameError) -> End {
        End::Refused { sqlstate: error.sqlstate(), message: error.to_string() }
    }
}

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
    pub(crate) session: Session,
    /// The unnamed prepared statement; those with names are the session's.
    pub(crate) unnamed: Option<Arc<Prepared>>,
    pub(crate) portals: Names<Portal>,
    /// CommandComplete of the last Execute, not yet written.
    pub(crate) held: Option<CommandTag>,
    /// An error was reported: everything up to the next Sync is skipped.
    pub(crate) skip_to_sync: bool,
    /// A COPY FROM STDIN that waits for data.
    pub(crate) copy: Option<CopyIn>,
    /// The only statement of the implicit transaction, as long as nothing of its answer was sent: to be run again if the commit fails because of others.
    pub(crate) rerun: Option<Rerun>,
    /// The error reported last may be gone when the same is run again.
    pub(crate) retryable: bool,
}

/// A statement that can be run again.
pub(crate) struct Rerun {
    pub(crate) portal: Portal,
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
            session,
            unnamed: None,
            portals: Names::default(),
            held: None,
            skip_to_sync: false,
            copy: None,
            rerun: None,
            retryable: false,
        }
    }

    /// Serves the client until one of both ends it. Everything that can be told is told before this returns.
    pub(crate) async fn serve(mut self) {
        let end = match self.exchange().await {
            Ok(never) => match never {},
            Err(end) => end,
        };
        // The session goes first: its locks must not wait for a farewell that a slow client does not read.
        let Connection { session, mut transport, portals, .. } = self;
        drop((portals, session));
        farewell(&mut transport, &end).await;
    }

    async fn exchange(&mut self) -> Result<std::convert::Infallible, End> {
        loop {
            self.flush().await?;
            self.receive().await?;
            self.process().await?;
        }
    }

    /// Waits for input. Ends the connection when the client or the server does.
    async fn receive(&mut self) -> Result<(), End> {
        let Connection { transport, open, rows, head, session, .. } = self;
        transport.shrink();
        rows.shrink();
        head.shrink();
        let (mut doomed, idle_ms) = (session.doomed(), session.idle_timeout_ms());
        let received = poll_fn(|cx| {
            if open.entry().stop() != Stop::No {
                return Poll::Ready(Err(Broken::Stopped));
            }
            if let Poll::Ready(received) = transport.poll_receive(cx) {
                return Poll::Ready(received);
            }
            // A sibling was chosen: what this one holds is given back now, not when its client comes.
            if doomed.as_mut().is_some_and(|doomed| Pin::new(doomed).poll(cx).is_ready()) {
                doomed = None;
                session.fail();
            }
            Poll::Pending
        });
        let received = match idle_ms {
            None => received.await,
            Some(idle_ms) => match timeout(Duration::from_millis(idle_ms), received).await {
                Ok(received) => received,
                Err(_) => return Err(idle_too_long(session.status())),
            },
        };
        match received? {
            Received::Bytes => Ok(()),
            Received::End => Err(End::Terminated),
        }
    }

    /// Handles all complete messages that have been received.
    async fn process(&mut self) -> Result<(), End> {
        let phase = Phase::Session { message_bytes_max: self.server.message_bytes_max };
        let input = self.transport.take_received();
        let mut at = 0;
        while let Some(header) = frame::header(&input[at..], phase)? {
            let Some(message) = input.get(at..at + header.total) else { break };
            if self.open.entry().stop() == Stop::Now {
                return Err(Broken::Stopped.into());
            }
            at += header.total;
            // A client with a long pipeline lets others have their turn.
            consume_budget().await;
            self.message(header.tag, &message[HEADER_BYTES..]).await?;
            if self.transport.unsent() > FULL_BYTES {
                self.flush_all().await?;
            }
        }
        self.transport.put_back(input, at);
        Ok(())
    }

    async fn message(&mut self, first: u8, body: &[u8]) -> Result<(), End> {
        if self.skip_to_sync && first != tag::SYNC && first != tag::TERMINATE {
            return Ok(());
        }
        if self.copy.is_some() {
            return self.copy_message(first, body).await;
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
                self.server.metrics.statement(self.open.entry().process_id, started.elapsed());
                Ok(())
            }
            Frontend::Execute { portal, max_rows } => {
                let started = Instant::now();
                let result = self.execute(portal, max_rows).await;
                self.server.metrics.statement(self.open.entry().process_id, started.elapsed());
                self.settle(result)
            }
            Frontend::Bind(bind) => {
                let result = self.bind(&bind);
                self.settle(result)
            }
            Frontend::Parse { name, text, parameter_oids } => {
                let result = self.parse(name, text, &parameter_oids);
                self.settle(result)
            }
            Frontend::Describe(target, name) => {
                let result = self.describe(target, name);
                self.settle(result)
            }
            Frontend::Close(target, name) => {
                self.close(target, name);
                Ok(())
            }
            Frontend::Sync => self.sync().await,
            Frontend::Flush => {
                self.transport.mark_urgent();
                Ok(())
            }
            Frontend::Terminate => Err(End::Terminated),
            // Left over from a COPY that failed on our side while the client was still sending.
            Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_) => Ok(()),
            Frontend::FunctionCall => {
                self.report(&SqlError::unsupported("the function call protocol"));
                self.end_simple().await
            }
            Frontend::Password(_) => Err(FrameError::UnknownTag(first).into()),
        }
    }

    /// Answers a message whose body is wrong.
    async fn malformed(&mut self, first: u8, error: &MessageError) -> Result<(), End> {
        let error = SqlError::new(error.sqlstate(), error.to_string());
        if first == tag::QUERY || first == tag::SYNC {
            self.report(&error);
            return self.end_simple().await;
        }
        self.settle(Err(Failure::Sql(error)))
    }

    /// Ends a message of the extended protocol: an error is reported and the rest of the unit skipped.
    pub(crate) fn settle(&mut self, result: Result<(), Failure>) -> Result<(), End> {
        match result {
            Ok(()) => Ok(()),
            Err(Failure::Sql(error)) => {
                self.report(&error);
                self.skip_to_sync = true;
                // A client may wait for it: the Flush that it sent is skipped too.
                self.transport.mark_urgent();
                Ok(())
            }
            Err(Failure::End(end)) => Err(end),
        }
    }

    /// Reports an error of a statement and tells the session of it.
    pub(crate) fn report(&mut self, error: &SqlError) {
        self.write_notices();
        let mut report = Report::from(error);
        if error.sqlstate == sqlstate::QUERY_CANCELED && self.open.entry().stop() == Stop::Now {
            report.sqlstate = sqlstate::ADMIN_SHUTDOWN;
            report.message = "canceling statement due to administrator command";
        }
        response::error(self.transport.output(), &report);
        self.held = None;
        self.retryable = error.is_retryable();
        self.session.fail();
        self.server.metrics.error(self.open.entry().process_id);
    }

    /// Writes notices that have gathered.
    pub(crate) fn write_notices(&mut self) {
        for notice in self.session.take_notices() {
            response::notice(self.transport.output(), &Report::from(&notice));
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
        let output = self.transport.output();
        for (name, value) in self.session.take_parameter_changes() {
            response::parameter_status(output, name, &value);
        }
        let status = match self.session.status() {
            TransactionStatus::Idle => b'I',
            TransactionStatus::InBlock => b'T',
            TransactionStatus::Failed => b'E',
        };
        response::ready_for_query(output, status);
        self.transport.mark_urgent();
        if status == b'I' {
            self.portals.clear();
        }
    }

    /// Ends the implicit transaction, holding its answer back until it is durable.
    pub(crate) async fn end_transaction(&mut self) -> Result<(), SqlError> {
        attend(&mut self.transport, &self.open, self.session.sync()).await
    }

    /// Sends the output if the client awaits any of it.
    async fn flush(&mut self) -> Result<(), End> {
        if self.transport.is_urgent() { self.flush_all().await } else { Ok(()) }
    }

    /// Sends all output, waiting for the socket as long as it takes.
    pub(crate) async fn flush_all(&mut self) -> Result<(), End> {
        let Connection { transport, open, .. } = self;
        let flushed = poll_fn(|cx| {
            let poll = transport.poll_flush(cx);
            if poll.is_pending() && open.entry().stop() == Stop::Now {
                return Poll::Ready(Err(Broken::Stopped));
            }
            poll
        });
        Ok(flushed.await?)
    }
}

/// The end of a session that its settings do not let idle any longer.
fn idle_too_long(status: TransactionStatus) -> End {
    let (sqlstate, what) = match status {
        TransactionStatus::Idle => ("57P05", "idle-session"),
        _ => (sqlstate::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, "idle-in-transaction"),
    };
    End::Refused { sqlstate, message: format!("terminating connection due to {what} timeout") }
}

/// Runs a future of the session to its end. While it waits, sends what the client awaits and watches whether the client
/// is still there; if it is not, cancels the statement. What went wrong with the socket shows again at its next use.
pub(crate) async fn attend<F: Future>(transport: &mut Transport, open: &Open, future: F) -> F::Output {
    let mut future = pin!(future);
    let mut alone = false;
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        if alone {
            return Poll::Pending;
        }
        let sent = transport.poll_send_urgent(cx);
        let gone = match transport.poll_read_ahead(cx) {
            Poll::Pending => matches!(sent, Poll::Ready(Err(_))),
            Poll::Ready(Err(_)) => true,
            Poll::Ready(Ok(_)) => !transport.ends_with_terminate(),
        };
        if gone {
            alone = true;
            open.entry().cancel_statement();
            // The statement may have ended the moment before it would have noticed.
            return future.as_mut().poll(cx);
        }
        Poll::Pending
    })
    .await
}

/// Tells the client why the connection ends, if there is something to tell, and closes it. Bounded in time: a client that
/// does not read is not waited for.
pub(crate) async fn farewell(transport: &mut Transport, end: &End) {
    let (sqlstate, message) = match end {
        End::Terminated | End::Broken(Broken::Io(_)) => return,
        End::Broken(broken @ Broken::Stopped) => (sqlstate::ADMIN_SHUTDOWN, broken.to_string()),
        End::Broken(broken @ Broken::Budget) => (sqlstate::OUT_OF_MEMORY, broken.to_string()),
        End::Refused { sqlstate, message } => (*sqlstate, message.clone()),
    };
    response::error(transport.output(), &Report::fatal(sqlstate, &message));
    let goodbye = async {
        if poll_fn(|cx| transport.poll_flush(cx)).await.is_err()
            || poll_fn(|cx| transport.poll_close(cx)).await.is_err()
        {
            return;
        }
        // Closing a socket with unread input resets it, and the farewell may be lost on the way: read what the
        // client had on its way, within bounds.
        for _ in 0..LINGER_READS {
            if !matches!(poll_fn(|cx| transport.poll_receive(cx)).await, Ok(Received::Bytes)) {
                break;
            }
            drop(transport.take_received());
        }
    };
    let _ = timeout(LINGER, goodbye).await;
}
