//! What ends a statement early: a cancel request, `statement_timeout`, `lock_timeout`; and what keeps a long one from
//! holding up others.
//!
//! The row executor computes without a pause. On a thread that serves many sessions this would make the others wait, among
//! them one that the thread has already picked as its next and that no other thread can take over. So a statement that
//! has computed for [`PATIENCE`] steps aside: the thread stays with it, and a new thread takes over its other work.
//! This needs no estimate of how long a statement will take.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use cognate_engine::Seat;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::error::{Result, SqlError, sqlstate};
use crate::function::Interrupt;
use crate::types::bounds::Bounds;

/// Interrupts the statement that its session runs. Any thread may use it.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle {
    state: Arc<CancelState>,
}

#[derive(Debug, Default)]
struct CancelState {
    requested: AtomicBool,
    wake: Notify,
}

/// The bounds of a session's statements while they read large values.
#[derive(Debug)]
pub(crate) struct Watch {
    cancel: CancelHandle,
    /// Microseconds on the process's clock when `statement_timeout` ends the statement; zero for never.
    deadline_us: AtomicU64,
    pace: Pace,
    memory: usize,
}

impl Watch {
    pub(crate) fn new(cancel: CancelHandle, memory: usize) -> Watch {
        Watch { cancel, deadline_us: AtomicU64::new(0), pace: Pace::default(), memory }
    }

    /// A statement begins, which may take so long.
    pub(crate) fn begin(&self, timeout: Option<Duration>) {
        let deadline_us = timeout.map_or(0, |timeout| now_us() + timeout.as_micros() as u64);
        self.deadline_us.store(deadline_us, Ordering::Relaxed);
        self.pace.begin();
    }
}

impl Bounds for Watch {
    fn go_on(&self) -> Result<()> {
        if self.cancel.is_requested() {
            return Err(canceled());
        }
        let deadline_us = self.deadline_us.load(Ordering::Relaxed);
        if deadline_us != 0 && now_us() >= deadline_us {
            return Err(timed_out());
        }
        self.pace.look();
        Ok(())
    }

    fn memory(&self) -> usize {
        self.memory
    }
}

impl CancelHandle {
    /// Ends the running statement with 57014. Without one, nothing happens.
    pub fn cancel(&self) {
        self.state.requested.store(true, Ordering::Release);
        self.state.wake.notify_waiters();
    }

    /// A statement begins: what was asked before does not count.
    pub(crate) fn reset(&self) {
        if self.state.requested.load(Ordering::Relaxed) {
            self.state.requested.store(false, Ordering::Relaxed);
        }
    }

    fn is_requested(&self) -> bool {
        self.state.requested.load(Ordering::Acquire)
    }

    async fn requested(&self) {
        let mut wake = pin!(self.state.wake.notified());
        wake.as_mut().enable();
        if !self.is_requested() {
            wake.await;
        }
    }
}

/// How long a statement may compute before others need not wait for it any more.
const PATIENCE: Duration = Duration::from_millis(2);

/// Time that the thread which takes over gets to do so.
const HANDOVER: Duration = Duration::from_micros(30);

/// So often a statement that has stepped aside asks again. A thread that was too slow to take over finds the work gone back to where it came from, and nobody
/// would serve it until the statement ends. Where it was taken over long ago, asking costs only the time above.
const AGAIN: Duration = Duration::from_millis(10);

/// A statement that has stepped aside lets others have the processor so often. Otherwise they would wait for the end of its time slice,
/// which is some milliseconds long.
const COURTESY: Duration = Duration::from_micros(200);

/// How often a wait that cannot be woken looks whether to stop.
const GLANCE: Duration = Duration::from_millis(5);

/// The limits of the running statement.
#[derive(Debug)]
pub(crate) struct Interrupts {
    pub(crate) cancel: CancelHandle,
    /// When `statement_timeout` ends the statement.
    pub(crate) deadline: Option<Instant>,
    /// `lock_timeout`, for each wait.
    pub(crate) lock_timeout: Option<Duration>,
    /// Given back by whoever waits for long.
    pub(crate) seat: Arc<Seat>,
    pub(crate) pace: Pace,
    /// The same for values that are read.
    pub(crate) watch: Arc<Watch>,
}

/// When the statement last stepped aside.
///
/// Only the statement's own thread comes here, one at a time: nothing is added atomically.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Microseconds on the process's clock at the last check; zero before the first.
    checked_us: AtomicU64,
    /// The same when it last let others go before; zero before the first check.
    last_us: AtomicU64,
    /// Another thread was asked to take over the connections that this one serves.
    aside: AtomicBool,
    /// The same clock when it was asked last.
    asked_us: AtomicU64,
}

/// Microseconds on the process's clock, from 1.
fn now_us() -> u64 {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed().as_micros() as u64 + 1
}

impl Pace {
    /// As when it was new.
    fn begin(&self) {
        self.checked_us.store(0, Ordering::Relaxed);
        self.last_us.store(0, Ordering::Relaxed);
        self.asked_us.store(0, Ordering::Relaxed);
        self.aside.store(false, Ordering::Relaxed);
    }

    /// Looks at the clock. The time since the last look, and whether the statement has just stepped aside.
    fn look(&self) -> (Duration, bool) {
        let now = now_us();
        let checked = self.checked_us.swap(now, Ordering::Relaxed);
        let since = if checked == 0 { 0 } else { now.saturating_sub(checked) };
        (Duration::from_micros(since), self.step_aside(now))
    }

    fn step_aside(&self, now: u64) -> bool {
        let last = self.last_us.load(Ordering::Relaxed);
        let aside = self.aside.load(Ordering::Relaxed);
        let due = last + if aside { COURTESY } else { PATIENCE }.as_micros() as u64;
        if last == 0 {
            self.last_us.store(now, Ordering::Relaxed);
        } else if now >= due {
            return self.let_others(now);
        }
        false
    }

    /// Lets others go on: gives them the thread's other work, or if they have it the processor.
    fn let_others(&self, now: u64) -> bool {
        self.last_us.store(now, Ordering::Relaxed);
        let is_due = now >= self.asked_us.load(Ordering::Relaxed) + AGAIN.as_micros() as u64;
        if is_due {
            self.asked_us.store(now, Ordering::Relaxed);
        }
        if self.aside.load(Ordering::Relaxed) {
            match is_due {
                true => _ = hand_over(),
                false => std::thread::yield_now(),
            }
        } else if hand_over() {
            self.aside.store(true, Ordering::Relaxed);
            return true;
        }
        false
    }
}

/// Texts longer than this take so long to be read and planned that others need not wait for it.
const LONG_TEXT_BYTES: usize = 32 << 10;

/// Steps aside before work on a statement's text that cannot be left half-way, if the text is long.
pub(crate) fn step_aside_for(text: &str) {
    if text.len() >= LONG_TEXT_BYTES {
        hand_over();
    }
}

/// Lets another thread take over what this one serves besides. False where there is none to do so.
fn hand_over() -> bool {
    let many = Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
    if many {
        tokio::task::block_in_place(|| std::thread::sleep(HANDOVER));
    }
    many
}

impl Interrupts {
    /// Waits for a lock. One that is free costs neither a timer nor a waiter.
    pub(crate) async fn lock<T, E: Into<SqlError>>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T> {
        let mut request = pin!(request);
        if let Poll::Ready(answer) = poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await {
            return answer.map_err(Into::into);
        }
        self.seat.pause();
        let lock_deadline = self.lock_timeout.map(|timeout| Instant::now() + timeout);
        let answer = tokio::select! {
            biased;
            answer = &mut request => answer.map_err(Into::into),
            () = self.cancel.requested() => Err(canceled()),
            () = until(self.deadline) => Err(timed_out()),
            () = until(lock_deadline) => Err(SqlError::new(
                sqlstate::LOCK_NOT_AVAILABLE,
                "canceling statement due to lock timeout",
            )),
        }?;
        if !self.seat.try_go() {
            // Others may wait for what it has just got.
            self.slot(true).await?;
        }
        Ok(answer)
    }

    /// Waits for the right to execute. A transaction that is `resuming` goes before those that begin.
    pub(crate) async fn slot(&self, resuming: bool) -> Result<()> {
        tokio::select! {
            biased;
            () = self.seat.go(resuming) => Ok(()),
            () = self.cancel.requested() => Err(canceled()),
            () = until(self.deadline) => Err(timed_out()),
        }
    }
}

impl Interrupt for Interrupts {
    fn check(&self) -> Result<Duration> {
        if self.cancel.is_requested() {
            return Err(canceled());
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(timed_out());
        }
        let (since, aside) = self.pace.look();
        if aside {
            // It computes for long: its slot is for others, if they want it.
            self.seat.pause();
        }
        Ok(since)
    }

    fn step_aside(&self) {
        if self.pace.let_others(now_us()) {
            self.seat.pause();
        }
    }

    fn pause(&self, time: Duration) -> Result<()> {
        match Handle::try_current() {
            Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
                tokio::task::block_in_place(|| {
                    handle.block_on(async {
                        tokio::select! {
                            biased;
                            () = self.cancel.requested() => Err(canceled()),
                            () = until(self.deadline) => Err(timed_out()),
                            () = tokio::time::sleep(time) => Ok(()),
                        }
                    })
                })
            }
            // One thread has all the work: looks now and then whether to stop.
            _ => {
                let end = std::time::Instant::now() + time;
                loop {
                    self.check()?;
                    let left = end.saturating_duration_since(std::time::Instant::now());
                    if left.is_zero() {
                        return Ok(());
                    }
                    std::thread::sleep(left.min(GLANCE));
                }
            }
        }
    }
}

fn canceled() -> SqlError {
    SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to user request")
}

fn timed_out() -> SqlError {
    SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to statement timeout")
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
