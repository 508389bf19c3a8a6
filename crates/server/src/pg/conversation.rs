//! The loop of a connection: waits for messages, has each of them answered, sends the answers. It
//! does not know what the messages mean; that is the [`Respondent`]'s part.
//!
//! ```text
//! receive ──▶ [ message, message, message, part of one ] ──▶ output ──▶ send once
//!                │ answered in order, each to its end
//! ```
//!
//! All complete messages of the input are answered before anything is sent, so a pipeline is
//! answered with one write. Output leaves when the input is used up and contains something that the
//! client awaits (up to a ReadyForQuery, a Flush or a COPY response), or when it grows beyond 64
//! KB; then the connection waits for the socket, and the statement with it. While a statement waits
//! (for a lock, for the log), awaited output is sent and the socket is read ahead, within bounds,
//! to learn whether the client is still there.
//!
//! # No wake-up is lost
//!
//! A connection is one task, and it waits in three places only. Each of them polls all that can let
//! it go on, every time before it is left waiting, so that each of these has the task's waker:
//!
//! | where | what it waits for | what wakes it |
//! |---|---|---|
//! | [`receive`] | a whole message | the socket's reading side, the order to stop, the time limit of an idle session, what happens to its transaction meanwhile, its mailbox |
//! | [`attend`] | a statement | all that the statement waits for (a lock, the log, a cancel request, a timeout); while read-ahead has room, the reading side; beyond, the client's close; the writing side while awaited output is unsent |
//! | [`flush_all`] | room in the socket | the writing side, the order to stop, what happens to its transaction meanwhile |
//!
//! **Invariant.** A connection waits in `receive` only if its input holds no whole message. This
//! cannot be got wrong from here, as there is no way to wait for bytes: [`Transport::poll_message`]
//! is ready as long as a whole message is there, however it came there, and only then asks the
//! socket. So what was read ahead while a statement waited is answered after it, and the bytes that
//! follow are not needed for that.
//!
//! **Invariant.** What a mailbox brings (notifications) is written by nobody who waits: `receive`
//! is left for it, and `exchange` writes it, flushes, and waits again. A letter that comes before
//! the mailbox is polled is found by that, one that comes afterwards has the waker; only a session
//! without a transaction looks.
//!
//! **Invariant.** Nothing urgent is unsent when a connection waits in `receive`: [`exchange`]
//! flushes first, and `receive` writes nothing.
//!
//! `conversation/tests.rs` runs this loop over a scripted socket in every order of what can happen
//! while it waits, and compares it after each event with a model that has no wake-ups.
//!
//! # Clients that vanish
//!
//! A client that vanishes gets its running statement cancelled, and nothing that it sent after it
//! is begun. The future of a statement is always run to its end, never dropped half-way: a commit
//! that has begun is finished. Then the session is dropped, which rolls back. A client that sent
//! Terminate before it left is not in a hurry: what it sent before is done, however its socket was
//! closed, and whether it has read its answers or not. Only a statement with more rows than are
//! gathered ends the connection, as nobody takes them.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use cognate_sql::{SqlError, sqlstate};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout};

use super::frame::{self, FrameError, HEADER_BYTES, Phase};
use super::message::tag;
use super::registry::{Open, Stop};
use super::response::{self, Report};
use super::row::FULL_BYTES;
use super::socket::Stream;
use super::transport::{Broken, Input, Transport};

/// How long a farewell may take.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
/// A client that was answered less than this ago may be about to ask again; and so long its next
/// message is waited for.
pub(crate) const NEXT_MESSAGE: Duration = Duration::from_millis(50);
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
    /// The session cannot begin or go on, for a reason that more is known about.
    Denied(Box<SqlError>),
}

impl From<Broken> for End {
    fn from(broken: Broken) -> End {
        match broken {
            Broken::Frame(error) => error.into(),
            broken => End::Broken(broken),
        }
    }
}

impl From<FrameError> for End {
    fn from(error: FrameError) -> End {
        End::Refused { sqlstate: error.sqlstate(), message: error.to_string() }
    }
}

/// What others may ask of a connection, and it of them.
pub(crate) trait Orders: Sync {
    /// The order in force.
    fn stop(&self) -> Stop;

    /// Interrupts the statement that runs, if one does.
    fn cancel_statement(&self);
}

impl Orders for Open {
    fn stop(&self) -> Stop {
        self.entry().stop()
    }

    fn cancel_statement(&self) {
        self.entry().cancel_statement();
    }
}

/// Who answers the messages of a connection.
pub(crate) trait Respondent: Send {
    /// The network.
    type Stream: Stream;
    /// Where orders come from.
    type Orders: Orders;

    /// Buffers and socket, and the orders in force.
    fn parts(&mut self) -> (&mut Transport<Self::Stream>, &Self::Orders);

    /// What messages may look like.
    fn phase(&self) -> Phase;

    /// Answers one message, to its end. Waits go through [`attend`] and [`flush_all`].
    fn message(&mut self, first: u8, body: &[u8]) -> impl Future<Output = Result<(), End>> + Send;

    /// Called before answers leave that nobody has waited for: afterwards all of them may, or an
    /// error follows them. What rests on a commit that a crash could take back waits here.
    fn settle(&mut self) -> impl Future<Output = Result<(), End>> + Send {
        std::future::ready(Ok(()))
    }

    /// Called when the client has nothing to be answered: gives memory back, and returns how long
    /// it may stay so.
    fn rest(&mut self) -> Option<Duration>;

    /// The end of a client that stayed so for longer.
    fn idle_too_long(&self) -> End;

    /// What is to be polled while it stays so, and while it does not take what it is sent: the
    /// transport, the orders, and what happens to the transaction. What is polled besides says
    /// whether there is something to tell the client.
    fn idle(
        &mut self,
    ) -> (&mut Transport<Self::Stream>, &Self::Orders, impl FnMut(&mut Context<'_>) -> bool + Send);

    /// Writes what there is to tell a client that asks nothing.
    fn tell(&mut self) {}
}

/// Serves a client until one side ends it.
pub(crate) async fn exchange<R: Respondent>(respondent: &mut R) -> End {
    let mut idle_since = None;
    loop {
        let turn = async {
            flush(respondent).await?;
            match receive(respondent, &mut idle_since).await? {
                Received::Message => {
                    idle_since = None;
                    process(respondent).await
                }
                Received::News => {
                    respondent.tell();
                    Ok(())
                }
            }
        };
        if let Err(end) = turn.await {
            return end;
        }
    }
}

/// What a connection has waited for.
enum Received {
    /// A whole message.
    Message,
    /// There is something to tell the client.
    News,
}

/// Waits for a whole message, or for something to tell. Ends the connection when the client or the
/// server does, or has asked nothing for too long: what it is told meanwhile changes nothing in
/// that, so `idle_since` goes from one wait to the next.
async fn receive<R: Respondent>(
    respondent: &mut R,
    idle_since: &mut Option<Instant>,
) -> Result<Received, End> {
    let phase = respondent.phase();
    if respondent.parts().0.holds_message(phase)? {
        return Ok(Received::Message);
    }
    let limit = respondent.rest();
    let left = limit.map(|limit| {
        let idle = idle_since.get_or_insert_with(Instant::now).elapsed();
        limit.saturating_sub(idle)
    });
    // Whoever hears something all the time is told of it only until its time is up.
    let is_overdue = left == Some(Duration::ZERO);
    let (transport, orders, mut meanwhile) = respondent.idle();
    let received = poll_fn(|cx| {
        if orders.stop() != Stop::No {
            return Poll::Ready(Err(Broken::Stopped));
        }
        match transport.poll_message(phase, cx) {
            Poll::Ready(received) => Poll::Ready(received.map(Some)),
            Poll::Pending if meanwhile(cx) && !is_overdue => Poll::Ready(Ok(None)),
            Poll::Pending => Poll::Pending,
        }
    });
    let received = match left {
        None => Ok(received.await),
        Some(left) => timeout(left, received).await,
    };
    drop(meanwhile);
    match received.map_err(|_| respondent.idle_too_long())?? {
        Some(Input::Message(_)) => Ok(Received::Message),
        Some(Input::End) => Err(End::Terminated),
        None => Ok(Received::News),
    }
}

/// Has all whole messages answered that have been received. What arrives meanwhile is for the next
/// turn.
async fn process<R: Respondent>(respondent: &mut R) -> Result<(), End> {
    let phase = respondent.phase();
    let input = respondent.parts().0.take_received();
    let mut at = 0;
    while let Some(header) = frame::header(&input[at..], phase)? {
        let Some(message) = input.get(at..at + header.total) else { break };
        let (transport, orders) = respondent.parts();
        if orders.stop() == Stop::Now {
            return Err(Broken::Stopped.into());
        }
        if transport.is_lost() {
            return Err(Broken::Io(io::ErrorKind::ConnectionReset.into()).into());
        }
        at += header.total;
        // Who executes asks whether that is all; others need not look.
        let acting = (header.tag == tag::EXECUTE).then(|| frame::first_acting(&input[at..], phase)).flatten();
        respondent.parts().0.note_next(input.get(at).copied(), acting);
        // A client with a long pipeline lets others have their turn.
        consume_budget().await;
        respondent.message(header.tag, &message[HEADER_BYTES..]).await?;
        if respondent.parts().0.unsent() > FULL_BYTES {
            send(respondent).await?;
        }
    }
    respondent.parts().0.put_back(input, at);
    Ok(())
}

/// Sends the output if the client awaits any of it.
async fn flush<R: Respondent>(respondent: &mut R) -> Result<(), End> {
    if respondent.parts().0.is_urgent() { send(respondent).await } else { Ok(()) }
}

/// Sends all output as soon as it may leave. If it cannot, as the client has left after a goodbye,
/// the answers are dropped, and what it has sent is done all the same.
async fn send<R: Respondent>(respondent: &mut R) -> Result<(), End> {
    respondent.settle().await?;
    let (transport, orders, meanwhile) = respondent.idle();
    let sent = flush_all(transport, orders, meanwhile).await;
    if !matches!(sent, Err(End::Broken(Broken::Io(_)))) {
        return sent;
    }
    let transport = respondent.parts().0;
    // How it left shows in what it sent last. That is there, but may not be known to be yet.
    let known = poll_fn(|cx| match transport.poll_lost(cx) {
        Poll::Pending if !transport.has_left() => Poll::Pending,
        _ => Poll::Ready(()),
    });
    let _ = timeout(LINGER, known).await;
    if !transport.has_left() {
        return sent;
    }
    transport.drop_output();
    Ok(())
}

/// Sends all output, waiting for the socket as long as it takes. What there is to tell the client
/// has to wait, too; what `meanwhile` says of that is not looked at.
pub(crate) async fn flush_all<S: Stream>(
    transport: &mut Transport<S>,
    orders: &impl Orders,
    mut meanwhile: impl FnMut(&mut Context<'_>) -> bool + Send,
) -> Result<(), End> {
    let flushed = poll_fn(|cx| {
        let poll = transport.poll_flush(cx);
        if poll.is_pending() && orders.stop() == Stop::Now {
            return Poll::Ready(Err(Broken::Stopped));
        }
        if poll.is_pending() {
            meanwhile(cx);
        }
        poll
    });
    Ok(flushed.await?)
}

/// Runs a future of the session to its end. While it waits, sends what the client awaits and
/// watches whether the client is still there; if it is not, cancels the statement. A socket that
/// cannot be written to is one that has ended, and its reading side says whether with a goodbye.
/// What went wrong shows again at the next use. The future stays where it was made: it has
/// thousands of bytes, and a statement has several.
pub(crate) async fn attend<S: Stream, F: Future>(
    transport: &mut Transport<S>,
    orders: &impl Orders,
    mut future: Pin<&mut F>,
) -> F::Output {
    let mut alone = false;
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        if alone {
            return Poll::Pending;
        }
        // Both, always: each has to have the waker.
        transport.send_urgent(cx);
        if transport.poll_lost(cx).is_ready() {
            alone = true;
            orders.cancel_statement();
            // The statement may have ended the moment before it would have noticed.
            return future.as_mut().poll(cx);
        }
        Poll::Pending
    })
    .await
}

/// Waits for a moment for the next message of a client that asks one thing after the other, so that
/// the farewell is the answer to it: some drivers pass over an error that comes right behind an
/// answer, and their user hears of a lost connection only. A client that waits for what was not
/// sent yet gets that and the farewell at once.
pub(crate) async fn await_next<S: Stream>(transport: &mut Transport<S>, phase: Phase) {
    if transport.unsent() == 0 {
        let _ = timeout(NEXT_MESSAGE, poll_fn(|cx| transport.poll_message(phase, cx))).await;
    }
}

/// Tells the client why the connection ends, if there is something to tell, and closes it. Bounded
/// in time: a client that does not read is not waited for.
pub(crate) async fn farewell<S: Stream>(transport: &mut Transport<S>, end: &End) {
    let (sqlstate, message) = match end {
        End::Broken(Broken::Io(_)) => return,
        End::Terminated => {
            // What was answered in the same turn as the goodbye: a client may read on after it.
            if transport.is_urgent() {
                let _ = timeout(LINGER, poll_fn(|cx| transport.poll_flush(cx))).await;
            }
            return;
        }
        End::Broken(broken @ Broken::Stopped) => (sqlstate::ADMIN_SHUTDOWN, broken.to_string()),
        End::Broken(broken @ Broken::Budget) => (sqlstate::OUT_OF_MEMORY, broken.to_string()),
        End::Broken(Broken::Frame(error)) => (error.sqlstate(), error.to_string()),
        End::Refused { sqlstate, message } => (*sqlstate, message.clone()),
        End::Denied(error) => (error.sqlstate, error.message.clone()),
    };
    let mut report = Report::fatal(sqlstate, &message);
    if let End::Denied(error) = end {
        (report.detail, report.hint) = (error.detail.as_deref(), error.hint.as_deref());
    }
    response::error(transport.output(), &report);
    let goodbye = async {
        if poll_fn(|cx| transport.poll_flush(cx)).await.is_err()
            || poll_fn(|cx| transport.poll_close(cx)).await.is_err()
        {
            return;
        }
        // Closing a socket with unread input resets it, and the farewell may be lost on the way:
        // read what the client had on its way, within bounds.
        transport.drain(LINGER_READS).await;
    };
    let _ = timeout(LINGER, goodbye).await;
}

#[cfg(test)]
mod tests;
