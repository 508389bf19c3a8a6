//! What ends a statement early: a cancel request, `statement_timeout`, `lock_timeout`; and what
//! keeps a long one from holding up others.
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
//! that no other thread can take over. So a statement that has computed for [`PATIENCE`] steps
//! aside: the thread stays with it, and a new thread takes over its other work. This needs no
//! estimate of how long a statement will take.
//!
//! ```text
//! 0 ms      a statement begins to compute
//! 2 ms      asks for somebody to take over; that thread comes too late and finds nothing to do
//! 12 ms     asks again: taken over. From now on it only lets others have the processor, five times a millisecond
//! ```

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

use cognate_engine::Seat;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::active::too_many_steps;
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
            pace: Pace::default(),
        }
    }

    /// Those of a program that every node executes: it ends after so many steps. Time and cancel
    /// requests, which differ from node to node, do not end it.
    pub(crate) fn counting(self, steps: Option<u64>) -> Interrupts {
        Interrupts { steps_left: AtomicU64::new(steps.unwrap_or(NEVER)), ..self }
    }

    /// A statement begins, which may take so many milliseconds (zero is as long as it likes), and
    /// each of its waits for a lock so many.
    pub(crate) fn begin(&self, statement_ms: u64, lock_ms: u64) {
        let deadline = if statement_ms == 0 { NEVER } else { process_us() + statement_ms * 1000 };
        self.deadline_us.store(deadline, Ordering::Relaxed);
        self.lock_timeout_ms.store(lock_ms, Ordering::Relaxed);
        self.pace.begin();
    }

    /// It goes on after a wait; it begins if none has.
    pub(crate) fn resume(&self, statement_ms: u64, lock_ms: u64) {
        match self.deadline_us.load(Ordering::Relaxed) {
            NONE => self.begin(statement_ms, lock_ms),
            _ => self.pace.begin(),
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
        Ok(())
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
        match Handle::try_current() {
            Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
                tokio::task::block_in_place(|| handle.block_on(self.lock(request)))
            }
            _ => Err(SqlError::unsupported(
                "waiting for an advisory lock after the first row, or where rows are written, with one thread",
            )),
        }
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
        };
        self.waited_us.fetch_add(since.elapsed().as_micros() as u64, Ordering::Relaxed);
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
        tokio::select! {
            biased;
            () = self.seat.go(resuming) => Ok(()),
            () = self.cancel.requested() => Err(canceled()),
            () = until(self.deadline()) => Err(timed_out()),
        }
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

/// How long a statement may compute before others need not wait for it any more.
const PATIENCE: Duration = Duration::from_millis(2);

/// Time that the thread which takes over gets to do so.
const HANDOVER: Duration = Duration::from_micros(30);

/// So often a statement that has stepped aside asks again. A thread that was too slow to take over
/// finds the work gone back to where it came from, and nobody would serve it until the statement
/// ends. Where it was taken over long ago, asking costs only the time above.
const AGAIN: Duration = Duration::from_millis(10);

/// A statement that has stepped aside lets others have the processor so often. Otherwise they would
/// wait for the end of its time slice, which is some milliseconds long.
const COURTESY: Duration = Duration::from_micros(200);

/// What a statement steps aside in.
trait World {
    /// Microseconds on a clock, from 1.
    fn now_us(&self) -> u64;

    /// Lets another thread take over what this one serves besides. False where there is none to do
    /// so.
    fn hand_over(&self) -> bool;

    /// Lets others have the processor.
    fn yield_now(&self);
}

/// This process.
struct Process;

static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// Microseconds on the process's clock, from 1.
fn process_us() -> u64 {
    START.elapsed().as_micros() as u64 + 1
}

impl World for Process {
    fn now_us(&self) -> u64 {
        process_us()
    }

    fn hand_over(&self) -> bool {
        let many = Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
        if many {
            tokio::task::block_in_place(|| std::thread::sleep(HANDOVER));
        }
        many
    }

    fn yield_now(&self) {
        std::thread::yield_now();
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

/// When the statement last stepped aside.
///
/// Only the statement's own thread comes here, one at a time: nothing is added atomically.
#[derive(Debug, Default)]
struct Pace {
    /// Microseconds on the clock at the last check; zero before the first.
    checked_us: AtomicU64,
    /// The same when it last let others go before; zero before the first check.
    last_us: AtomicU64,
    /// Another thread was asked to take over the connections that this one serves.
    aside: AtomicBool,
    /// The same clock when it was asked last.
    asked_us: AtomicU64,
}

impl Pace {
    /// As when it was new.
    fn begin(&self) {
        self.checked_us.store(0, Ordering::Relaxed);
        self.last_us.store(0, Ordering::Relaxed);
        self.asked_us.store(0, Ordering::Relaxed);
        self.aside.store(false, Ordering::Relaxed);
    }

    /// Looks at the clock. The time since the last look, and whether the statement has just stepped
    /// aside.
    fn look(&self, world: &impl World) -> (Duration, bool) {
        let now = world.now_us();
        let checked = self.checked_us.swap(now, Ordering::Relaxed);
        let since = if checked == 0 { 0 } else { now.saturating_sub(checked) };
        (Duration::from_micros(since), self.step_aside(world, now))
    }

    fn step_aside(&self, world: &impl World, now: u64) -> bool {
        let last = self.last_us.load(Ordering::Relaxed);
        let aside = self.aside.load(Ordering::Relaxed);
        let due = last + if aside { COURTESY } else { PATIENCE }.as_micros() as u64;
        if last == 0 {
            self.last_us.store(now, Ordering::Relaxed);
        } else if now >= due {
            return self.let_others(world, now);
        }
        false
    }

    /// Lets others go on: gives them the thread's other work, or if they have it the processor.
    fn let_others(&self, world: &impl World, now: u64) -> bool {
        self.last_us.store(now, Ordering::Relaxed);
        let is_aside = self.aside.load(Ordering::Relaxed);
        if is_aside && now < self.asked_us.load(Ordering::Relaxed) + AGAIN.as_micros() as u64 {
            world.yield_now();
            return false;
        }
        self.asked_us.store(now, Ordering::Relaxed);
        let is_asked = world.hand_over();
        self.aside.store(is_asked, Ordering::Relaxed);
        is_asked && !is_aside
    }
}

/// Texts longer than this take so long to be read and planned that others need not wait for it.
const LONG_TEXT_BYTES: usize = 32 << 10;

/// Steps aside before work on a statement's text that cannot be left half-way, if the text is long.
pub(crate) fn step_aside_for(text: &str) {
    if text.len() >= LONG_TEXT_BYTES {
        Process.hand_over();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// A thread whose clock goes when it is told to, with work besides that others wait for.
    struct Script {
        now: Cell<u64>,
        /// Whether the thread that is asked to take over comes in time, each time; afterwards
        /// always.
        in_time: RefCell<Vec<bool>>,
        /// There is another thread at all.
        many: bool,
        /// When it was asked, and whether the work was taken over then.
        asked: RefCell<Vec<(u64, bool)>>,
        yields: Cell<u32>,
    }

    impl Script {
        fn new(in_time: &[bool]) -> Script {
            Script {
                now: Cell::new(1),
                in_time: RefCell::new(in_time.iter().rev().copied().collect()),
                many: true,
                asked: RefCell::default(),
                yields: Cell::new(0),
            }
        }

        /// A statement computes for so long, and looks so often.
        fn compute(&self, pace: &Pace, time: Duration, step: Duration) -> usize {
            let end = self.now.get() + time.as_micros() as u64;
            let mut aside = 0;
            while self.now.get() < end {
                aside += usize::from(pace.look(self).1);
                self.now.set(self.now.get() + step.as_micros() as u64);
            }
            aside
        }

        /// When the work besides was served at last.
        fn served_at(&self) -> Option<u64> {
            self.asked.borrow().iter().find(|(_, taken)| *taken).map(|(at, _)| *at)
        }
    }

    impl World for Script {
        fn now_us(&self) -> u64 {
            self.now.get()
        }

        fn hand_over(&self) -> bool {
            if !self.many {
                return false;
            }
            let taken = self.in_time.borrow_mut().pop().unwrap_or(true);
            self.asked.borrow_mut().push((self.now.get(), taken));
            self.now.set(self.now.get() + HANDOVER.as_micros() as u64);
            true
        }

        fn yield_now(&self) {
            self.yields.set(self.yields.get() + 1);
        }
    }

    const STEP: Duration = Duration::from_micros(100);

    #[test]
    fn a_short_statement_asks_nobody() {
        let (script, pace) = (Script::new(&[]), Pace::default());
        assert_eq!(script.compute(&pace, PATIENCE, STEP), 0);
        assert!(script.asked.borrow().is_empty());
    }

    #[test]
    fn who_comes_too_late_is_asked_again() {
        for late in [0, 1, 2, 7] {
            let (script, pace) = (Script::new(&vec![false; late]), Pace::default());
            assert_eq!(script.compute(&pace, Duration::from_secs(1), STEP), 1, "it steps aside once");
            let latest = PATIENCE + (AGAIN + 3 * STEP) * late as u32 + STEP;
            let served =
                script.served_at().expect("the statement still computes, so somebody else must serve");
            assert!(served <= latest.as_micros() as u64, "{late} came too late: served at {served} us");
        }
    }

    #[test]
    fn it_asks_every_ten_milliseconds_and_lets_others_have_the_processor_meanwhile() {
        let (script, pace) = (Script::new(&[]), Pace::default());
        script.compute(&pace, Duration::from_secs(1), STEP);
        let asked = script.asked.borrow();
        let apart = asked.windows(2).map(|pair| Duration::from_micros(pair[1].0 - pair[0].0));
        assert!(apart.clone().all(|apart| apart >= AGAIN && apart <= AGAIN + 3 * STEP), "{asked:?}");
        assert!(asked.len() >= 95, "{}", asked.len());
        // A look at each courtesy but those at which it asks.
        assert!(script.yields.get() > 4000, "{}", script.yields.get());
    }

    #[test]
    fn after_a_wait_it_has_patience_again() {
        let (script, pace) = (Script::new(&[]), Pace::default());
        script.compute(&pace, Duration::from_millis(5), STEP);
        pace.begin();
        let before = script.asked.borrow().len();
        script.compute(&pace, PATIENCE, STEP);
        assert_eq!(script.asked.borrow().len(), before);
        assert_eq!(script.compute(&pace, PATIENCE, STEP), 1);
    }

    #[test]
    fn where_nobody_else_is_it_goes_on() {
        let (script, pace) = (Script { many: false, ..Script::new(&[]) }, Pace::default());
        assert_eq!(script.compute(&pace, Duration::from_millis(50), STEP), 0);
        assert_eq!(script.yields.get(), 0);
    }

    #[test]
    fn a_look_says_how_long_ago_the_last_one_was() {
        let (script, pace) = (Script::new(&[]), Pace::default());
        assert_eq!(pace.look(&script).0, Duration::ZERO);
        script.now.set(script.now.get() + 300);
        assert_eq!(pace.look(&script).0, Duration::from_micros(300));
    }
}
