//! What ends a statement early: a cancel request, `statement_timeout`, `lock_timeout`, a sibling
//! that was chosen; and what keeps a long one from holding up others.
//!
//! A session has one [`Interrupts`] for all its statements, one after the other. It is asked by the
//! executor between rows, and by whoever works on a large value between its pieces
//! (`types::bounds`).
//!
//! *Time.* A statement's time begins when it is parsed or bound, and goes on to the end of its
//! answer, however often it waits for its client to take what there is.
//!
//! *Others.* The row executor computes without a pause. On a thread that serves many sessions this
//! would make the others wait, among them one that the thread has already picked as its next and
//! that no other thread can take over. So a session that has computed for 2 ms steps aside: the
//! thread stays with it, and waits until a new thread has taken over its other work ([`pace`]).
//! This needs no estimate of how long a statement will take.
//!
//! *What is left.* A statement that fails is answered before all that it held is given back: that
//! is another thread's work where it may be much ([`reclaim`]).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use cognate_engine::sibling::Prospect;
use cognate_engine::{Seat, Transaction};
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use self::pace::{Handover, Pace, Process, START, World as _, process_us};
use super::Session;
use super::active::too_many_steps;
use crate::error::{Result, SqlError, sqlstate};
use crate::function::Interrupt;
use crate::reclaim;
use crate::types::bounds::Bounds;

mod pace;

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

impl Session {
    /// A message of the client begins to be answered: what was asked to be cancelled before does
    /// not count, nor does time that went by.
    pub fn begin_message(&self) {
        self.cancel.reset();
        self.interrupts.end();
        self.has_rested();
    }

    /// The client is told that a statement was cancelled.
    pub fn forget_cancel(&self) {
        self.cancel.reset();
    }

    /// The client was waited for in the middle of a COPY: others had the thread meanwhile.
    pub fn has_rested(&self) {
        self.interrupts.has_rested();
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

/// How often a wait that cannot be woken looks whether to stop.
const GLANCE: Duration = Duration::from_millis(5);

/// No statement has begun.
const NONE: u64 = 0;
/// It may take as long as it likes.
const NEVER: u64 = u64::MAX;

/// What may interrupt the statements of a session.
#[derive(Debug)]
pub(crate) struct Interrupts {
    cancel: CancelHandle,
    /// Given back by whoever waits or computes for long.
    seat: Arc<Seat>,
    /// Bytes that a value may take.
    memory: usize,
    /// When `statement_timeout` ends the statement, in microseconds on the process's clock; or
    /// [`NEVER`], or [`NONE`].
    deadline_us: AtomicU64,
    /// `lock_timeout` for each wait, in milliseconds; zero for none.
    lock_timeout_ms: AtomicU64,
    /// How long its statements have waited, microseconds.
    waited_us: AtomicU64,
    /// How many steps they may still take together; or [`NEVER`], and nobody counts them.
    steps_left: AtomicU64,
    /// Its statements are executed by every node. What one of them has read when it fails must not
    /// depend on how many threads a node has for it.
    is_everywhere: bool,
    /// Whether the instance of a family that runs has a future. Its locks are others' as soon as it
    /// has none, and it may compute for hours.
    prospect: Mutex<Option<Prospect>>,
    /// There is such an instance.
    has_prospect: AtomicBool,
    pace: Pace,
}

impl Interrupts {
    pub(crate) fn new(cancel: CancelHandle, seat: Arc<Seat>, memory: usize) -> Interrupts {
        Interrupts {
            cancel,
            seat,
            memory,
            deadline_us: AtomicU64::new(NONE),
            lock_timeout_ms: AtomicU64::new(0),
            waited_us: AtomicU64::new(0),
            steps_left: AtomicU64::new(NEVER),
            is_everywhere: false,
            prospect: Mutex::new(None),
            has_prospect: AtomicBool::new(false),
            pace: Pace::default(),
        }
    }

    /// From now on a statement ends early if this tells that its transaction has no future; `None`
    /// for what goes on to its end, and between statements.
    pub(crate) fn attend(&self, prospect: Option<Prospect>) {
        let is_one = prospect.is_some();
        if is_one || self.has_prospect.load(Ordering::Relaxed) {
            *self.prospect.lock() = prospect;
            self.has_prospect.store(is_one, Ordering::Release);
        }
    }

    /// In a box: whoever waits is in many futures, and mostly there is none.
    fn prospect(&self) -> Option<Box<Prospect>> {
        let is_one = self.has_prospect.load(Ordering::Acquire);
        is_one.then(|| self.prospect.lock().clone().map(Box::new)).flatten()
    }

    /// Those of a program that every node executes: it ends after so many steps. Time and cancel
    /// requests, which differ from node to node, do not end it.
    pub(crate) fn counting(self, steps: Option<u64>) -> Interrupts {
        Interrupts { steps_left: AtomicU64::new(steps.unwrap_or(NEVER)), is_everywhere: true, ..self }
    }

    /// A statement begins, which may take so many milliseconds (zero is as long as it likes), and
    /// each of its waits for a lock so many.
    pub(crate) fn begin(&self, statement_ms: u64, lock_ms: u64) {
        let deadline = if statement_ms == 0 { NEVER } else { process_us() + statement_ms * 1000 };
        self.deadline_us.store(deadline, Ordering::Relaxed);
        self.lock_timeout_ms.store(lock_ms, Ordering::Relaxed);
        self.pace.begin_statement();
    }

    /// It goes on; it begins if none has.
    pub(crate) fn resume(&self, statement_ms: u64, lock_ms: u64) {
        match self.deadline_us.load(Ordering::Relaxed) {
            NONE => self.begin(statement_ms, lock_ms),
            _ => self.pace.begin_piece(),
        }
    }

    /// The session has waited for its client.
    pub(crate) fn has_rested(&self) {
        self.pace.rest();
    }

    /// The session has waited, so that others had its thread: its time begins anew.
    pub(crate) fn has_waited(&self) {
        self.pace.begin();
    }

    /// The session computes for long: another thread serves the others.
    pub(crate) fn is_aside(&self) -> bool {
        self.pace.is_aside()
    }

    /// Between two pieces of work: others go before if it is time.
    pub(crate) fn make_way(&self) {
        if self.pace.look(&Process).1 {
            self.seat.pause();
        }
    }

    /// The statement has been answered.
    pub(crate) fn end(&self) {
        self.deadline_us.store(NONE, Ordering::Relaxed);
    }

    /// When the statement ends at the latest.
    fn deadline(&self) -> Option<Instant> {
        match self.deadline_us.load(Ordering::Relaxed) {
            NONE | NEVER => None,
            deadline => Some((*START + Duration::from_micros(deadline)).into()),
        }
    }

    /// Fails once the statement should stop.
    fn check_stop(&self) -> Result<()> {
        if self.cancel.is_requested() {
            return Err(canceled());
        }
        let deadline = self.deadline_us.load(Ordering::Relaxed);
        if deadline != NONE && deadline != NEVER && process_us() >= deadline {
            return Err(timed_out());
        }
        if self.has_prospect.load(Ordering::Acquire) {
            return self.check_prospect();
        }
        Ok(())
    }

    #[cold]
    fn check_prospect(&self) -> Result<()> {
        match &*self.prospect.lock() {
            Some(prospect) => prospect.check().map_err(SqlError::from),
            None => Ok(()),
        }
    }

    /// How long statements have waited so far, microseconds.
    pub(crate) fn waited_us(&self) -> u64 {
        self.waited_us.load(Ordering::Relaxed)
    }

    /// Waits for a lock. One that is free costs neither a timer nor a waiter.
    pub(crate) async fn lock<T, E: Into<SqlError>>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T> {
        let timeout_ms = self.lock_timeout_ms.load(Ordering::Relaxed);
        self.wait_for(request, (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms))).await
    }

    /// Waits for a lock in this thread, which another one relieves of what it serves besides. 0A000
    /// where there is none to do so.
    pub(crate) fn lock_in_thread<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        in_thread(
            "waiting for an advisory lock after the first row, or where rows are written, with one thread",
            self.lock(request),
        )
    }

    /// The same for what is no lock. `what`: what is not supported where there is one thread.
    pub(crate) fn wait_in_thread<T>(
        &self,
        what: &str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        in_thread(what, self.wait(request))
    }

    /// Waits for what is no lock.
    pub(crate) async fn wait<T, E: Into<SqlError>>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T> {
        self.wait_for(request, None).await
    }

    async fn wait_for<T, E: Into<SqlError>>(
        &self,
        request: impl Future<Output = Result<T, E>>,
        lock_timeout: Option<Duration>,
    ) -> Result<T> {
        let mut request = pin!(request);
        if let Poll::Ready(answer) = poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await {
            return answer.map_err(Into::into);
        }
        self.seat.pause();
        let since = Instant::now();
        let lock_deadline = lock_timeout.map(|timeout| Instant::now() + timeout);
        let answer = tokio::select! {
            biased;
            answer = &mut request => answer.map_err(Into::into),
            () = self.cancel.requested() => Err(canceled()),
            () = until(self.deadline()) => Err(timed_out()),
            () = until(lock_deadline) => Err(SqlError::new(
                sqlstate::LOCK_NOT_AVAILABLE,
                "canceling statement due to lock timeout",
            )),
            error = lost(self.prospect()) => Err(error),
        };
        self.waited_us.fetch_add(since.elapsed().as_micros() as u64, Ordering::Relaxed);
        self.has_waited();
        let answer = answer?;
        if !self.seat.try_go() {
            // Others may wait for what it has just got.
            self.slot(true).await?;
        }
        Ok(answer)
    }

    /// Waits for the right to execute. A transaction that is `resuming` goes before those that
    /// begin.
    pub(crate) async fn slot(&self, resuming: bool) -> Result<()> {
        let mut going = pin!(self.seat.go(resuming));
        if poll_fn(|context| Poll::Ready(going.as_mut().poll(context))).await.is_ready() {
            return Ok(());
        }
        let went = tokio::select! {
            biased;
            () = &mut going => Ok(()),
            () = self.cancel.requested() => Err(canceled()),
            () = until(self.deadline()) => Err(timed_out()),
            error = lost(self.prospect()) => Err(error),
        };
        self.has_waited();
        went
    }
}

impl Interrupt for Interrupts {
    fn check(&self) -> Result<Duration> {
        self.check_stop()?;
        let (since, aside) = self.pace.look(&Process);
        if aside {
            // It computes for long: its slot is for others, if they want it.
            self.seat.pause();
        }
        Ok(since)
    }

    fn count(&self, steps: u32) -> Result<bool> {
        let left = self.steps_left.load(Ordering::Relaxed);
        if left == NEVER {
            return Ok(false);
        }
        let left = left.checked_sub(u64::from(steps)).ok_or_else(too_many_steps)?;
        self.steps_left.store(left, Ordering::Relaxed);
        Ok(true)
    }

    fn step_aside(&self) {
        if self.pace.let_others(&Process, process_us()) {
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
                            () = until(self.deadline()) => Err(timed_out()),
                            error = lost(self.prospect()) => Err(error),
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

impl Bounds for Interrupts {
    fn go_on(&self) -> Result<()> {
        self.check().map(drop)
    }

    fn memory(&self) -> usize {
        self.memory
    }

    fn is_shared(&self) -> bool {
        !self.is_everywhere
    }

    fn stop(&self) -> Result<()> {
        self.check_stop()
    }
}

/// Waits in this thread. 0A000 where no other one takes over what it serves besides.
fn in_thread<T>(what: &str, answer: impl Future<Output = Result<T>>) -> Result<T> {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(|| handle.block_on(answer))
        }
        _ => Err(SqlError::unsupported(what)),
    }
}

fn canceled() -> SqlError {
    SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to user request")
}

fn timed_out() -> SqlError {
    SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to statement timeout")
}

/// Why the transaction has no future any more, once it has none.
async fn lost(prospect: Option<Box<Prospect>>) -> SqlError {
    let Some(prospect) = prospect else { return std::future::pending().await };
    prospect.doomed().await;
    let lost = prospect.check().err().map(SqlError::from);
    match lost {
        Some(lost) => lost,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The end of a transaction that holds this many bytes may take longer than others should wait.
const MUCH_BYTES: u64 = 1 << 20;

/// Ends a transaction that holds so many bytes. Nobody can interrupt that, and with many rows it
/// takes long, if only to forget them: another thread serves the other sessions meanwhile.
pub(super) fn end_of<T>(bytes: u64, end: impl FnOnce() -> T) -> T {
    let others = |handle: Handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread;
    if bytes >= MUCH_BYTES && Handle::try_current().is_ok_and(others) {
        tokio::task::block_in_place(end)
    } else {
        end()
    }
}

/// Rolls a transaction back. Its locks are free then; what it has written takes about as long to
/// forget, and nobody waits for that.
pub(super) fn roll_back(transaction: Transaction) {
    let bytes = transaction.bytes();
    let remains = end_of(bytes, || transaction.abandon());
    if bytes >= MUCH_BYTES {
        reclaim::elsewhere(remains);
    }
}

/// Texts longer than this take so long to be read and planned that others need not wait for it.
const LONG_TEXT_BYTES: usize = 32 << 10;

/// So often it is tried to step aside before such work. It begins even if nobody has come.
const ATTEMPTS: usize = 5;

/// Steps aside before work that cannot be left half-way.
fn step_aside_before_work() {
    let mut attempts = 0..ATTEMPTS;
    while attempts.next().is_some() && Process.hand_over() == Handover::Late {}
}

/// Steps aside before work on a statement's text that cannot be left half-way, if the text is long.
pub(crate) fn step_aside_for(text: &str) {
    if text.len() >= LONG_TEXT_BYTES {
        step_aside_before_work();
    }
}

/// The same before a transaction that holds so many bytes is made a request to all nodes.
pub(super) fn step_aside_for_request(bytes: u64) {
    if bytes >= MUCH_BYTES {
        step_aside_before_work();
    }
}
