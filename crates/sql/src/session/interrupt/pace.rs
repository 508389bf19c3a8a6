//! When a session that computes lets others have its thread, and how.
//!
//! ```text
//! 0 ms      a statement begins to compute
//! 2 ms      asks for somebody to take over; that thread comes too late and finds nothing to do
//! 12 ms     asks again: taken over. From now on it only lets others have the processor, five times a millisecond
//! ```
//!
//! What counts is how long the session has had its thread, and not how long one statement: a
//! message of a thousand short ones, a loop in a DO block, or rows that the client takes as fast as
//! they come hold up others no less. So the time begins anew only when the session has waited: for
//! its client, a lock, a slot, or the log. Where nobody says when it waits for its client, each
//! statement begins with patience.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};

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
pub(super) trait World {
    /// Microseconds on a clock, from 1.
    fn now_us(&self) -> u64;

    /// Lets another thread take over what this one serves besides. False where there is none to do
    /// so.
    fn hand_over(&self) -> bool;

    /// Lets others have the processor.
    fn yield_now(&self);
}

/// This process.
pub(super) struct Process;

pub(super) static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// Microseconds on the process's clock, from 1.
pub(super) fn process_us() -> u64 {
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

/// When the statement last stepped aside.
///
/// Only the statement's own thread comes here, one at a time: nothing is added atomically.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Microseconds on the clock at the last check; zero before the first.
    checked_us: AtomicU64,
    /// The same when it last let others go before; zero before the first check.
    last_us: AtomicU64,
    /// Another thread was asked to take over the connections that this one serves.
    aside: AtomicBool,
    /// The same clock when it was asked last.
    asked_us: AtomicU64,
    /// Whoever serves the session says when it has waited for its client.
    is_served: AtomicBool,
}

impl Pace {
    /// As when it was new.
    pub(super) fn begin(&self) {
        self.checked_us.store(0, Ordering::Relaxed);
        self.last_us.store(0, Ordering::Relaxed);
        self.asked_us.store(0, Ordering::Relaxed);
        self.aside.store(false, Ordering::Relaxed);
    }

    /// The session has waited for its client. From now on it says so each time.
    pub(super) fn rest(&self) {
        self.is_served.store(true, Ordering::Relaxed);
        self.begin();
    }

    /// A statement begins. Where nobody says when the session waits for its client, it is taken to
    /// have done so before.
    pub(super) fn begin_statement(&self) {
        if self.is_served.load(Ordering::Relaxed) { self.begin_piece() } else { self.begin() }
    }

    /// A piece of work begins that asks for itself: what was before it says nothing of how often.
    pub(super) fn begin_piece(&self) {
        self.checked_us.store(0, Ordering::Relaxed);
    }

    /// Looks at the clock. The time since the last look, and whether the statement has just stepped
    /// aside.
    pub(super) fn look(&self, world: &impl World) -> (Duration, bool) {
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
    pub(super) fn let_others(&self, world: &impl World, now: u64) -> bool {
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
    fn many_short_pieces_step_aside_like_a_long_one() {
        let (script, pace) = (Script::new(&[]), Pace::default());
        let mut aside = 0;
        for _ in 0..10 {
            pace.begin_piece();
            aside += script.compute(&pace, PATIENCE / 2, STEP);
        }
        assert_eq!(aside, 1);
        let first = script.asked.borrow()[0];
        assert!(first.1 && first.0 <= (PATIENCE + 2 * STEP).as_micros() as u64, "{first:?}");
    }

    #[test]
    fn who_is_served_has_patience_after_a_rest_and_not_with_each_statement() {
        let (script, pace) = (Script::new(&[]), Pace::default());
        pace.rest();
        for _ in 0..10 {
            pace.begin_statement();
            script.compute(&pace, PATIENCE / 2, STEP);
        }
        assert_eq!(script.asked.borrow().len(), 1);
        pace.rest();
        pace.begin_statement();
        assert_eq!(script.compute(&pace, PATIENCE / 2, STEP), 0);
        assert_eq!(script.asked.borrow().len(), 1);
        // Where nobody says when the session rests, each statement begins with patience.
        let (script, pace) = (Script::new(&[]), Pace::default());
        for _ in 0..10 {
            pace.begin_statement();
            assert_eq!(script.compute(&pace, PATIENCE / 2, STEP), 0);
        }
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
