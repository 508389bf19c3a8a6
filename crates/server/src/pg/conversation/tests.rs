//! Every order of what can happen while a connection waits.
//!
//! The loop runs over a socket, statements and a log that do nothing by themselves: each *event*
//! (bytes arrive, a lock is granted, a flush is done, somebody cancels, a timeout passes, the
//! socket takes no more bytes or takes them again, a notification comes, the server stops, the
//! client goes) is a step of the test. The task is polled only if it was woken, and a waker is good
//! for one wake, as in the real ones. [`Model`] says what is to be seen after each event; it looks
//! at everything each time, so it has no wake-ups to lose.
//!
//! ```text
//! client    E(lock) ──▶ half of S ──▶ its rest ──▶ X ──▶ gone
//! others         lock        flush      cancel       timeout         all interleavings that keep the order within a line
//! ```

use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::socket::{Look, Stream};
use super::super::transport::Budget;
use super::*;

const PHASE: Phase = Phase::Session { message_bytes_max: 1 << 20 };
/// Polls that one event may cause.
const POLLS_MAX: usize = 200;

/// What happens.
#[derive(Clone, PartialEq, Eq)]
enum Event {
    /// Bytes of the client arrive.
    Bytes(Vec<u8>),
    /// One wait for a lock may end.
    Lock,
    /// One wait for the log may end.
    Flush,
    /// The running statement, if there is one, ends with this error.
    Interrupt(u8),
    /// Something to tell the client comes.
    Letter,
    /// The socket takes no more bytes.
    Full,
    /// It does again.
    Room,
    /// The server's order.
    Stop(Stop),
    /// The client closes its side.
    Gone,
    /// The connection is reset.
    Reset,
}
use Event::{Bytes, Flush, Full, Gone, Interrupt, Letter, Lock, Reset, Room};

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bytes(bytes) => write!(f, "{} bytes {:?}", bytes.len(), text(&bytes[..bytes.len().min(8)])),
            Lock => f.write_str("lock"),
            Flush => f.write_str("flush"),
            Interrupt(letter) => write!(f, "interrupt {}", char::from(*letter)),
            Letter => f.write_str("letter"),
            Full => f.write_str("full"),
            Room => f.write_str("room"),
            Event::Stop(how) => write!(f, "stop {how:?}"),
            Gone => f.write_str("gone"),
            Reset => f.write_str("reset"),
        }
    }
}

/// What a statement waits for, in this order.
fn needs(body: &[u8]) -> VecDeque<u8> {
    body.iter().copied().filter(|need| matches!(need, b'l' | b'f')).collect()
}

// ---- The world: what the loop is run against.

#[derive(Default)]
struct World {
    arrived: VecDeque<u8>,
    closed: Option<Event>,
    full: bool,
    sent: Vec<u8>,
    locks: usize,
    flushes: usize,
    letters: usize,
    interrupt: Option<u8>,
    stop: u8,
    reader: Option<Waker>,
    closing: Option<Waker>,
    writer: Option<Waker>,
    statement: Option<Waker>,
    mailbox: Option<Waker>,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<World>>);

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the event says and wakes whom it concerns. `task` is what a stop wakes.
    fn apply(&self, event: &Event, task: &Waker) {
        let mut world = self.world();
        let woken = match event {
            Bytes(bytes) => {
                world.arrived.extend(bytes);
                vec![world.reader.take()]
            }
            Gone => {
                world.closed = Some(Gone);
                vec![world.reader.take(), world.closing.take()]
            }
            Reset => {
                world.closed = Some(Reset);
                vec![world.reader.take(), world.closing.take(), world.writer.take()]
            }
            Lock => {
                world.locks += 1;
                vec![world.statement.take()]
            }
            Flush => {
                world.flushes += 1;
                vec![world.statement.take()]
            }
            Interrupt(letter) => {
                world.interrupt = Some(*letter);
                vec![world.statement.take()]
            }
            Letter => {
                world.letters += 1;
                vec![world.mailbox.take()]
            }
            Full => {
                world.full = true;
                vec![]
            }
            Room => {
                world.full = false;
                vec![world.writer.take()]
            }
            Event::Stop(how) => {
                world.stop = *how as u8;
                if *how == Stop::Now {
                    world.interrupt = Some(b's');
                }
                vec![world.statement.take(), Some(task.clone())]
            }
        };
        drop(world);
        woken.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Stream for Shared {
    fn poll_closed(&self, _look: &mut Look, cx: &mut Context<'_>) -> Poll<()> {
        let mut world = self.world();
        if world.closed.is_some() {
            return Poll::Ready(());
        }
        world.closing = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncRead for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut world = self.world();
        if world.arrived.is_empty() {
            match world.closed {
                Some(Gone) => return Poll::Ready(Ok(())),
                Some(_) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                None => world.reader = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        let count = buffer.remaining().min(world.arrived.len());
        let bytes: Vec<u8> = world.arrived.drain(..count).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let mut world = self.world();
        if world.closed == Some(Reset) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if world.full {
            world.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        world.sent.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Orders for Shared {
    fn stop(&self) -> Stop {
        match self.world().stop {
            0 => Stop::No,
            1 => Stop::WhenIdle,
            _ => Stop::Now,
        }
    }

    fn cancel_statement(&self) {
        self.world().interrupt = Some(b'g');
    }
}

/// Answers `Q` with `C` and `Z`; `E` with a `C` that is held back; `S` with `Z` once the log has
/// what `E` did; `H` by sending what is there. A body says what is waited for: `l` a lock, `f` the
/// log. An interrupted statement answers `e` and the letter of who interrupted it; after an `E`
/// that was, everything up to `S` is skipped.
///
/// A letter is `A`, when nothing else is to be done.
struct Fake {
    transport: Transport<Shared>,
    shared: Shared,
    held: bool,
    skip: bool,
}

impl Fake {
    async fn statement(&mut self, mut needs: VecDeque<u8>) -> Result<(), u8> {
        let shared = self.shared.clone();
        // As a session does: what was asked before does not count.
        shared.world().interrupt = None;
        let statement = poll_fn(|cx| {
            let mut world = shared.world();
            while let Some(&need) = needs.front() {
                if let Some(letter) = world.interrupt.take() {
                    return Poll::Ready(Err(letter));
                }
                let tokens = if need == b'l' { &mut world.locks } else { &mut world.flushes };
                if *tokens == 0 {
                    world.statement = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                *tokens -= 1;
                needs.pop_front();
            }
            Poll::Ready(Ok(()))
        });
        attend(&mut self.transport, &self.shared, pin!(statement)).await
    }

    fn write(&mut self, bytes: &[u8]) {
        self.transport.output().extend_from_slice(bytes);
    }

    fn write_urgent(&mut self, bytes: &[u8]) {
        self.write(bytes);
        self.transport.mark_urgent();
    }
}

impl Respondent for Fake {
    type Stream = Shared;
    type Orders = Shared;

    fn parts(&mut self) -> (&mut Transport<Shared>, &Shared) {
        (&mut self.transport, &self.shared)
    }

    fn phase(&self) -> Phase {
        PHASE
    }

    async fn message(&mut self, first: u8, body: &[u8]) -> Result<(), End> {
        if self.skip && !matches!(first, b'S' | b'X') {
            return Ok(());
        }
        if first != b'S' && std::mem::take(&mut self.held) {
            self.write(b"C");
        }
        match first {
            b'Q' => match self.statement(needs(body)).await {
                Ok(()) => self.write_urgent(b"CZ"),
                Err(letter) => self.write_urgent(&[b'e', letter, b'Z']),
            },
            b'E' => match self.statement(needs(body)).await {
                Ok(()) => self.held = true,
                Err(letter) => {
                    self.write_urgent(&[b'e', letter]);
                    self.skip = true;
                }
            },
            b'S' => {
                let held = std::mem::take(&mut self.held);
                self.skip = false;
                let log = if held { b"f".to_vec().into() } else { VecDeque::new() };
                match self.statement(log).await {
                    Ok(()) if held => self.write_urgent(b"CZ"),
                    Ok(()) => self.write_urgent(b"Z"),
                    Err(letter) => self.write_urgent(&[b'e', letter, b'Z']),
                }
            }
            b'H' => self.transport.mark_urgent(),
            b'd' => drop(self.statement(needs(body)).await),
            _ => return Err(End::Terminated),
        }
        Ok(())
    }

    fn rest(&mut self) -> Option<Duration> {
        self.transport.shrink();
        None
    }

    fn idle_too_long(&self) -> End {
        End::Terminated
    }

    fn idle(&mut self) -> (&mut Transport<Shared>, &Shared, impl FnMut(&mut Context<'_>) -> bool + Send) {
        let shared = self.shared.clone();
        let has_letters = move |cx: &mut Context<'_>| {
            let mut world = shared.world();
            world.mailbox = Some(cx.waker().clone());
            world.letters > 0
        };
        (&mut self.transport, &self.shared, has_letters)
    }

    fn tell(&mut self) {
        let letters = std::mem::take(&mut self.shared.world().letters);
        self.write_urgent(&vec![b'A'; letters]);
    }
}

// ---- The model: the same conversation as a function of all that has happened.

#[derive(Default)]
struct Model {
    /// Everything received and not taken.
    input: Vec<u8>,
    /// Messages of the turn at hand.
    turn: VecDeque<(u8, Vec<u8>)>,
    running: Option<(u8, VecDeque<u8>)>,
    output: Vec<u8>,
    urgent: usize,
    sent: Vec<u8>,
    held: bool,
    skip: bool,
    full: bool,
    closed: Option<Event>,
    /// The last bytes ever sent are a goodbye.
    goodbye: bool,
    lost: bool,
    locks: usize,
    flushes: usize,
    letters: usize,
    stop: u8,
    /// The goodbye was reached: nothing more is done, but what was answered is sent.
    leaving: bool,
    done: bool,
}

impl Model {
    fn apply(&mut self, event: &Event) {
        let mut interrupt = None;
        match event {
            Bytes(bytes) => {
                self.input.extend(bytes);
                self.goodbye = self.input.ends_with(b"X\0\0\0\x04");
            }
            Lock => self.locks += 1,
            Flush => self.flushes += 1,
            Letter => self.letters += 1,
            Interrupt(letter) => interrupt = Some(*letter),
            Full => self.full = true,
            Room => self.full = false,
            Event::Stop(how) => {
                self.stop = *how as u8;
                interrupt = (*how == Stop::Now).then_some(b's');
            }
            Gone | Reset => self.closed = Some(event.clone()),
        }
        if let Some(letter) = interrupt
            && let Some((first, _)) = self.running.take()
        {
            self.finish(first, Err(letter));
        }
        while !self.done && self.step() {}
    }

    fn is_reset(&self) -> bool {
        self.closed == Some(Reset)
    }

    /// Does one thing that can be done now; false if there is none.
    fn step(&mut self) -> bool {
        if let Some((first, mut needs)) = self.running.take() {
            let tokens = match needs.front() {
                None => {
                    self.finish(first, Ok(()));
                    return true;
                }
                Some(b'l') => &mut self.locks,
                Some(_) => &mut self.flushes,
            };
            if *tokens > 0 {
                *tokens -= 1;
                needs.pop_front();
                self.running = Some((first, needs));
                return true;
            }
            if !self.full && !self.is_reset() {
                self.sent.extend(self.output.drain(..self.urgent));
                self.urgent = 0;
            }
            self.lost = self.closed.is_some() && !self.goodbye;
            if self.lost {
                self.finish(first, Err(b'g'));
                return true;
            }
            self.running = Some((first, needs));
            return false;
        }
        if self.leaving {
            self.done = self.urgent == 0 || self.is_reset() || !self.full;
            if self.urgent > 0 && !self.is_reset() && !self.full {
                self.sent.append(&mut self.output);
            }
            return self.done;
        }
        if let Some((first, body)) = self.turn.pop_front() {
            if self.stop == 2 || self.lost {
                self.done = true;
            } else {
                self.begin(first, &body);
            }
            return true;
        }
        // Between two turns: what is awaited leaves, then a whole message is needed.
        if self.urgent > 0 {
            if self.is_reset() {
                self.done = !self.goodbye;
                self.output.clear();
            } else if self.full {
                self.done = self.stop == 2;
            } else {
                self.sent.append(&mut self.output);
            }
            if self.done || !self.output.is_empty() {
                return self.done;
            }
            self.urgent = 0;
        }
        self.take_turn();
        if !self.turn.is_empty() {
            return true;
        }
        if self.stop > 0 || self.closed.is_some() {
            self.done = true;
        } else if self.letters > 0 {
            self.output.resize(self.output.len() + self.letters, b'A');
            (self.urgent, self.letters) = (self.output.len(), 0);
            return true;
        }
        self.done
    }

    fn take_turn(&mut self) {
        while let Some(length) = self.input.get(1..5) {
            let total = 1 + u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
            if self.input.len() < total {
                return;
            }
            let message: Vec<u8> = self.input.drain(..total).collect();
            self.turn.push_back((message[0], message[5..].to_vec()));
        }
    }

    fn begin(&mut self, first: u8, body: &[u8]) {
        if self.skip && !matches!(first, b'S' | b'X') {
            return;
        }
        if first != b'S' && std::mem::take(&mut self.held) {
            self.output.push(b'C');
        }
        match first {
            b'Q' | b'E' | b'd' => self.running = Some((first, needs(body))),
            b'S' => self.running = Some((first, if self.held { needs(b"f") } else { VecDeque::new() })),
            b'H' => self.urgent = self.output.len(),
            _ => self.leaving = true,
        }
    }

    fn finish(&mut self, first: u8, result: Result<(), u8>) {
        let held = first == b'S' && std::mem::take(&mut self.held);
        self.skip &= first != b'S';
        let answer = match (first, result) {
            (b'd', _) => return,
            (b'E', Ok(())) => {
                self.held = true;
                return;
            }
            (b'E', Err(letter)) => {
                self.skip = true;
                vec![b'e', letter]
            }
            (b'S', Ok(())) if !held => vec![b'Z'],
            (_, Ok(())) => vec![b'C', b'Z'],
            (_, Err(letter)) => vec![b'e', letter, b'Z'],
        };
        self.output.extend(answer);
        self.urgent = self.output.len();
    }
}

// ---- All orders.

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs one order and compares after each event. Returns what the client got, and whether the
/// connection ended.
fn run(order: &[&Event]) -> (String, bool) {
    let shared = Shared::default();
    let transport = Transport::new(shared.clone(), Budget::new(1 << 30));
    let mut fake = Fake { transport, shared: shared.clone(), held: false, skip: false };
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    let waker = Waker::from(flag.clone());
    let mut task = pin!(async {
        let end = exchange(&mut fake).await;
        if matches!(end, End::Terminated) {
            farewell(&mut fake.transport, &end).await;
        }
    });
    let (mut model, mut ended) = (Model::default(), false);
    for at in 0..=order.len() {
        if at > 0 {
            model.apply(order[at - 1]);
            shared.apply(order[at - 1], &waker);
        }
        let mut polls = 0;
        while !ended && flag.0.swap(false, Ordering::Relaxed) {
            ended = task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            polls += 1;
            assert!(polls < POLLS_MAX, "it spins after {:?}", &order[..at]);
        }
        let world = shared.world();
        let (sent, wanted) = (text(&world.sent), text(&model.sent));
        assert_eq!((sent, ended), (wanted, model.done), "after {:?}", &order[..at]);
    }
    (text(&shared.world().sent), ended)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs every interleaving of these lines that keeps the order within each, and returns how many.
fn every_order(lines: &[Vec<Event>], check: &mut impl FnMut(&(String, bool))) -> usize {
    // For timers that are set and never pass.
    let clock = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a clock");
    let _clock = clock.enter();
    fn go<'e>(
        rest: &mut [&'e [Event]],
        order: &mut Vec<&'e Event>,
        check: &mut impl FnMut(&(String, bool)),
    ) -> usize {
        let mut count = 0;
        for line in 0..rest.len() {
            let Some((event, later)) = rest[line].split_first() else { continue };
            let before = std::mem::replace(&mut rest[line], later);
            order.push(event);
            count += go(rest, order, check);
            order.pop();
            rest[line] = before;
        }
        if rest.iter().all(|line| line.is_empty()) {
            check(&run(order));
            count = 1;
        }
        count
    }
    let mut rest: Vec<_> = lines.iter().map(Vec::as_slice).collect();
    go(&mut rest, &mut Vec::new(), check)
}

fn message(first: u8, body: &[u8]) -> Vec<u8> {
    [&[first][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

fn whole(first: u8, body: &[u8]) -> Event {
    Bytes(message(first, body))
}

/// A message in two pieces.
fn halves(first: u8, body: &[u8]) -> [Event; 2] {
    let message = message(first, body);
    let (one, two) = message.split_at(message.len() / 2);
    [Bytes(one.to_vec()), Bytes(two.to_vec())]
}

const CANCEL: Event = Interrupt(b'c');
const TIMEOUT: Event = Interrupt(b't');

#[test]
fn everything_is_answered_in_every_order() {
    let [half, rest] = halves(b'S', b"");
    let client = vec![whole(b'E', b"l"), half, rest, whole(b'Q', b"f")];
    let lines = [client, vec![Lock], vec![Flush, Flush], vec![Full, Room]];
    let count = every_order(&lines, &mut |(sent, ended)| {
        // The statement's answer, and that of the next, without a further byte.
        assert_eq!((sent.as_str(), *ended), ("CZCZ", false));
    });
    assert_eq!(count, 3780);
}

#[test]
fn cancel_and_timeout_end_one_statement_and_lose_no_other() {
    let [half, rest] = halves(b'Q', b"lf");
    let client = vec![whole(b'Q', b"lf"), half, rest, whole(b'S', b"")];
    let lines = [client, vec![Lock, Lock], vec![Flush, Flush], vec![CANCEL], vec![TIMEOUT]];
    let count = every_order(&lines, &mut |(sent, ended)| {
        assert_eq!(sent.matches('Z').count(), 3, "{sent}");
        assert!(!ended);
    });
    assert_eq!(count, 37_800);
}

#[test]
fn notifications_come_in_every_order_and_hold_up_nobody() {
    let [half, rest] = halves(b'Q', b"f");
    let client = vec![whole(b'Q', b"l"), half, rest];
    let letters = vec![Letter, Letter];
    let lines = [client, vec![Lock], vec![Flush], letters.clone(), vec![Full, Room]];
    let count = every_order(&lines, &mut |(sent, ended)| {
        assert!(!ended);
        let answers = sent.replace('A', "");
        assert_eq!((sent.len() - answers.len(), answers.as_str()), (2, "CZCZ"), "{sent}");
    });
    assert_eq!(count, 15_120);
    for end in [Gone, Reset, Event::Stop(Stop::Now)] {
        let lines = [vec![whole(b'Q', b"l"), end], vec![Lock], letters.clone(), vec![Full, Room]];
        assert_eq!(every_order(&lines, &mut |(_, ended)| assert!(ended)), 630);
    }
}

#[test]
fn a_client_that_says_goodbye_is_served_to_its_end() {
    // Who closes its socket with answers in it that it has not read resets the connection.
    for end in [Gone, Reset] {
        let [half, rest] = halves(b'Q', b"f");
        let client = vec![whole(b'Q', b"l"), half, rest, whole(b'X', b""), end.clone()];
        let lines = [client, vec![Lock], vec![Flush], vec![Full, Room]];
        let count = every_order(&lines, &mut |(sent, ended)| {
            // No answer reaches who has left so, but each is waited for, as the model says.
            let is_told = if end == Reset { "CZCZ".starts_with(sent.as_str()) } else { sent == "CZCZ" };
            assert!(is_told && *ended, "{sent}");
        });
        assert_eq!(count, 1512);
    }
}

#[test]
fn a_client_that_vanishes_ends_its_connection_in_every_order() {
    for end in [Gone, Reset] {
        let [half, rest] = halves(b'S', b"");
        let client = vec![whole(b'E', b"l"), half, rest, whole(b'Q', b"f"), end];
        let lines = [client, vec![Lock], vec![Flush], vec![CANCEL], vec![Full, Room]];
        let count = every_order(&lines, &mut |(_, ended)| assert!(ended));
        assert_eq!(count, 15_120);
    }
}

#[test]
fn errors_skip_to_a_sync_that_was_read_ahead() {
    let client = vec![whole(b'E', b"l"), whole(b'E', b"f"), whole(b'H', b""), whole(b'S', b"")];
    let lines = [client, vec![Lock], vec![CANCEL], vec![Flush, Flush], vec![TIMEOUT]];
    every_order(&lines, &mut |(sent, ended)| {
        assert!(sent.ends_with('Z') && sent.matches('Z').count() == 1, "{sent}");
        assert!(!ended);
    });
}

#[test]
fn copied_data_that_arrives_during_a_wait_is_taken() {
    let [half, rest] = halves(b'd', b"l");
    let client = vec![whole(b'Q', b"f"), whole(b'd', b"l"), half, rest, whole(b'E', b""), whole(b'S', b"")];
    let lines = [client, vec![Lock, Lock], vec![Flush, Flush]];
    every_order(&lines, &mut |(sent, ended)| assert_eq!((sent.as_str(), *ended), ("CZCZ", false)));
}

#[test]
fn more_than_is_read_ahead_is_left_in_the_socket_and_answered_later() {
    let long = |first| whole(first, &vec![b'.'; 30_000]);
    for end in [None, Some(Gone), Some(Reset)] {
        for goodbye in [None, Some(whole(b'X', b""))] {
            let mut client = vec![whole(b'Q', b"l"), long(b'Q'), long(b'Q'), long(b'Q'), whole(b'S', b"")];
            client.extend(goodbye.into_iter().chain(end.clone()));
            every_order(&[client, vec![Lock], vec![CANCEL]], &mut |(sent, ended)| {
                assert!(*ended || sent.matches('Z').count() == 5, "{sent}");
            });
        }
    }
}

#[test]
fn a_stop_is_heard_in_every_wait() {
    let [half, rest] = halves(b'S', b"");
    let stops = vec![Event::Stop(Stop::WhenIdle), Event::Stop(Stop::Now)];
    let client = vec![whole(b'E', b"l"), half, rest, whole(b'Q', b"f")];
    let lines = [client, vec![Lock], vec![Flush], stops, vec![Full]];
    let count = every_order(&lines, &mut |(_, ended)| assert!(ended));
    assert_eq!(count, 7_560);
}

/// Whoever asks one thing after the other is told with the answer to the next one.
#[tokio::test(start_paused = true)]
async fn the_next_message_of_a_busy_client_is_waited_for_a_moment() {
    let (shared, begun) = (Shared::default(), Instant::now());
    let mut transport = Transport::new(shared.clone(), Budget::new(1 << 30));
    // Who waits for what was not sent yet is told at once.
    transport.output().push(b'Z');
    await_next(&mut transport, PHASE).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    transport.drop_output();
    await_next(&mut transport, PHASE).await;
    assert_eq!(begun.elapsed(), NEXT_MESSAGE);
    shared.apply(&whole(b'Q', b""), Waker::noop());
    await_next(&mut transport, PHASE).await;
    assert_eq!(begun.elapsed(), NEXT_MESSAGE);
}
