//! A connection's socket and its two byte queues.
//!
//! Input is read through one scratch buffer per thread and appended to the connection's own, which
//! is as large as what the client has sent and not yet been answered: thousands of idle connections
//! cost no read buffers. Output is collected and written when the connection says so; a write that
//! the socket does not take waits, which is the back-pressure that a slow reader feels. Memory for
//! input beyond [`FREE_BYTES`] is drawn from a budget that all connections share.
//!
//! There are two ways to read, and neither can leave a connection waiting for bytes that it has
//! already:
//!
//! - [`Transport::poll_message`] waits until a *whole message* is there, and looks at what has been
//!   received before it looks at the socket. Nothing waits for mere bytes.
//! - [`Transport::poll_lost`] takes what arrives while a statement runs, within bounds, and only to
//!   learn whether the client is still there. What it takes is seen by the next `poll_message`.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use super::frame::{self, FrameError, Phase};
use super::socket::{Look, Socket, Stream};

/// Bytes of input that a connection may hold without drawing on the shared budget.
const FREE_BYTES: usize = 64 * 1024;
/// What is drawn from the budget at a time.
const CHARGE_BYTES: usize = 1024 * 1024;
/// Read-ahead while a statement runs: beyond it the socket is left to fill up. One more read stays
/// within [`FREE_BYTES`].
pub(crate) const AHEAD_BYTES: usize = FREE_BYTES - SCRATCH_BYTES;
/// A buffer with more room than this gives it back when the connection goes idle.
pub(crate) const IDLE_BYTES: usize = 4 * 1024;
/// Size of the scratch buffer of a thread.
const SCRATCH_BYTES: usize = 32 * 1024;

/// A whole Terminate message.
const TERMINATE: &[u8] = b"X\0\0\0\x04";

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

/// Memory for large messages, shared by all connections.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget { limit, used: AtomicU64::new(0) })
    }

    fn charge(&self, bytes: u64) -> bool {
        let free = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// Why a connection cannot go on. There may be nobody left to tell.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The client is gone or the network failed.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// The server stops; the client is to be told.
    #[error("terminating connection due to administrator command")]
    Stopped,
    /// The shared budget for large messages is used up.
    #[error("too much memory is in use for large messages")]
    Budget,
    /// What the client sent cannot be followed; it is to be told.
    #[error("{0}")]
    Frame(#[from] FrameError),
}

/// What a wait for input ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// A whole message is there, of so many bytes.
    Message(usize),
    /// The client closed its side, and what it sent last is no whole message.
    End,
}

/// A place in the output to go back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    sent_total: u64,
    length: usize,
}

/// Socket, input and output of one connection.
pub(crate) struct Transport<S = Socket> {
    socket: S,
    /// Bytes received and not yet taken.
    received: Vec<u8>,
    ended: bool,
    /// Whether the client is known to be gone without a goodbye.
    lost: bool,
    look: Look,
    /// Whether the bytes taken last ended with a Terminate.
    taken_terminate: bool,
    /// Bytes to send. `sent` of them are gone already.
    output: Vec<u8>,
    sent: usize,
    /// Bytes sent so far.
    sent_total: u64,
    /// Whether the socket may still hold back some of what was written to it.
    unflushed: bool,
    /// Bytes at the start of `output` that must not wait for what follows: they end a unit that the
    /// client awaits.
    urgent: usize,
    /// The first byte of the message behind the one that is answered, if that is here.
    next: Option<u8>,
    /// The same of the first one that does something for the transaction.
    next_acting: Option<u8>,
    budget: Arc<Budget>,
    charged: usize,
}

impl Transport {
    /// Where the client is, over a network.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.socket.peer()
    }

    /// The version of TLS, if the connection is encrypted.
    pub(crate) fn tls(&self) -> Option<&'static str> {
        self.socket.tls()
    }
}

impl<S: Stream> Transport<S> {
    pub(crate) fn new(socket: S, budget: Arc<Budget>) -> Transport<S> {
        Transport {
            socket,
            received: Vec::new(),
            ended: false,
            lost: false,
            look: None,
            taken_terminate: false,
            output: Vec::new(),
            sent: 0,
            sent_total: 0,
            unflushed: false,
            urgent: 0,
            next: None,
            next_acting: None,
            budget,
            charged: 0,
        }
    }

    /// Notes which message comes next, and which is the next one that does something for the
    /// transaction.
    pub(crate) fn note_next(&mut self, first: Option<u8>, acting: Option<u8>) {
        (self.next, self.next_acting) = (first, acting);
    }

    /// The first byte of the message behind the one that is answered, if that is here.
    pub(crate) fn next(&self) -> Option<u8> {
        self.next
    }

    /// The same of the first one that does something for the transaction. Behind Execute only.
    pub(crate) fn next_acting(&self) -> Option<u8> {
        self.next_acting
    }

    /// Takes the bytes received, to be worked on while more may arrive.
    pub(crate) fn take_received(&mut self) -> Vec<u8> {
        self.taken_terminate = self.received.ends_with(TERMINATE);
        std::mem::take(&mut self.received)
    }

    /// Puts back what is left of taken bytes: `taken[used..]`. Bytes that arrived meanwhile come
    /// after it.
    pub(crate) fn put_back(&mut self, mut taken: Vec<u8>, used: usize) {
        taken.drain(..used);
        taken.append(&mut self.received);
        self.received = taken;
    }

    /// The bytes to send; whole messages are appended to it.
    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// The end of the output as it is now.
    pub(crate) fn mark(&self) -> Mark {
        Mark { sent_total: self.sent_total, length: self.output.len() }
    }

    /// Whether nothing was sent since `mark`.
    pub(crate) fn is_unsent_since(&self, mark: Mark) -> bool {
        self.sent_total == mark.sent_total
    }

    /// Takes back the output since `mark`. False, with nothing changed, if anything was sent since.
    pub(crate) fn rewind(&mut self, mark: Mark) -> bool {
        if !self.is_unsent_since(mark) {
            return false;
        }
        self.output.truncate(mark.length);
        self.urgent = self.urgent.min(mark.length);
        true
    }

    /// Bytes that wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Marks all output so far as awaited by the client: it is sent even while the next statement
    /// waits.
    pub(crate) fn mark_urgent(&mut self) {
        self.urgent = self.output.len();
    }

    /// Appends `rows` to the output and empties it, without copying where the output is empty.
    pub(crate) fn append(&mut self, rows: &mut Vec<u8>) {
        if self.output.is_empty() {
            std::mem::swap(&mut self.output, rows);
        } else {
            self.output.append(rows);
        }
    }

    /// Bytes of the message at the start of what was received, if it is there whole.
    fn whole(&self, phase: Phase) -> Result<Option<usize>, FrameError> {
        let header = frame::header(&self.received, phase)?;
        Ok(header.map(|header| header.total).filter(|&total| total <= self.received.len()))
    }

    /// Whether a whole message is there.
    pub(crate) fn holds_message(&self, phase: Phase) -> Result<bool, FrameError> {
        Ok(self.whole(phase)?.is_some())
    }

    /// Waits until a whole message is there: the only way to wait for input. Ready with
    /// [`Input::End`] once the client has closed its side, each time.
    pub(crate) fn poll_message(&mut self, phase: Phase, cx: &mut Context<'_>) -> Poll<Result<Input, Broken>> {
        loop {
            if let Some(total) = self.whole(phase)? {
                return Poll::Ready(Ok(Input::Message(total)));
            }
            if ready!(self.poll_read(cx))? == 0 {
                return Poll::Ready(Ok(Input::End));
            }
        }
    }

    /// Reads and drops what arrives, to the end of the stream or to so many reads.
    pub(crate) async fn drain(&mut self, reads: usize) {
        for _ in 0..reads {
            self.received.clear();
            if !matches!(poll_fn(|cx| self.poll_read(cx)).await, Ok(1..)) {
                return;
            }
        }
    }

    /// Reads once and returns how many bytes: 0 once the client has closed its side, each time.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Broken>> {
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        let Transport { socket, received, .. } = self;
        let count = ready!(SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut *socket).poll_read(cx, &mut buffer))?;
            received.extend_from_slice(buffer.filled());
            Poll::Ready(io::Result::Ok(buffer.filled().len()))
        }))?;
        self.ended = count == 0;
        if self.received.len() > FREE_BYTES + self.charged {
            self.charge()?;
        }
        Poll::Ready(Ok(count))
    }

    /// Reads ahead while a statement runs. Ready once the client is gone without a goodbye. At the
    /// bound the socket is only asked whether it was closed; what a closed socket still holds is
    /// read, as its last bytes tell whether they are a goodbye.
    pub(crate) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.lost && !self.ended {
            if self.received.len() > AHEAD_BYTES {
                ready!(self.socket.poll_closed(&mut self.look, cx));
            }
            match ready!(self.poll_read(cx)) {
                Ok(_) => {}
                // A socket that is closed with unread answers in it is reset, and one may be closed
                // without TLS's own end. As with any close, what came before it counts.
                Err(Broken::Io(_)) => self.ended = true,
                Err(_) => self.lost = true,
            }
        }
        self.look = None;
        self.lost |= !self.ends_with_terminate();
        if self.lost { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether the client is known to be gone after a goodbye: it does not want its answers.
    pub(crate) fn has_left(&self) -> bool {
        self.ended && self.ends_with_terminate()
    }

    /// Drops what was to be sent: for whoever asks, it has been.
    pub(crate) fn drop_output(&mut self) {
        self.sent_total += self.unsent() as u64;
        self.output.clear();
        (self.sent, self.urgent, self.unflushed) = (0, 0, false);
    }

    /// Whether the client is known to be gone without a goodbye.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Writes output until `end` bytes of it are sent.
    fn poll_send(&mut self, cx: &mut Context<'_>, end: usize) -> Poll<Result<(), Broken>> {
        while self.sent < end {
            match ready!(Pin::new(&mut self.socket).poll_write(cx, &self.output[self.sent..end]))? {
                0 => return Poll::Ready(Err(Broken::Io(io::ErrorKind::WriteZero.into()))),
                count => {
                    self.sent += count;
                    self.sent_total += count as u64;
                }
            }
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
            self.unflushed = false;
        }
        if self.sent == self.output.len() {
            self.output.clear();
            (self.sent, self.urgent) = (0, 0);
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what the client awaits, as far as the socket takes it, while a statement runs.
    pub(crate) fn send_urgent(&mut self, cx: &mut Context<'_>) {
        let _ = self.poll_send(cx, self.urgent);
    }

    /// Writes all output.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.poll_send(cx, self.output.len())
    }

    /// Closes the sending side, so that the client reads the farewell before the end.
    pub(crate) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    /// Whether the last thing received is a Terminate: the client left in an orderly way.
    fn ends_with_terminate(&self) -> bool {
        if self.received.is_empty() { self.taken_terminate } else { self.received.ends_with(TERMINATE) }
    }

    /// Whether anything is to be sent that the client awaits, or was written and may not have left.
    pub(crate) fn is_urgent(&self) -> bool {
        self.sent < self.urgent || self.unflushed
    }

    /// Gives memory back before the connection goes idle.
    pub(crate) fn shrink(&mut self) {
        if self.received.is_empty() {
            if self.received.capacity() > IDLE_BYTES {
                self.received = Vec::new();
            }
            self.give_back();
        }
        if self.output.is_empty() && self.output.capacity() > IDLE_BYTES {
            self.output = Vec::new();
        }
    }

    /// Gives back what was drawn from the budget. Nearly all draw nothing, and leave alone what all
    /// connections share.
    fn give_back(&mut self) {
        if self.charged > 0 {
            self.budget.give_back(std::mem::take(&mut self.charged) as u64);
        }
    }

    #[cold]
    fn charge(&mut self) -> Result<(), Broken> {
        let wanted = (self.received.len() - FREE_BYTES).div_ceil(CHARGE_BYTES) * CHARGE_BYTES;
        if !self.budget.charge((wanted - self.charged) as u64) {
            return Err(Broken::Budget);
        }
        self.charged = wanted;
        Ok(())
    }
}

impl<S> Drop for Transport<S> {
    fn drop(&mut self) {
        self.budget.give_back(self.charged as u64);
    }
}
