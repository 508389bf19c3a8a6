//! When a session that computes lets others have its thread, and how.
//!
//! ```text
//! 0 ms      a statement begins to compute
//! 2 ms      asks for somebody to take over, and waits; no thread has come after another 2 ms
//! 4 ms      goes on
//! 6 ms      asks again: taken over. From now on it only lets others have the processor, five times a millisecond
//! ```
//!
//! **Invariant.** A statement counts as having stepped aside only once another thread has done a
//! piece of what this one served besides. To ask is not enough: on cores that are all busy the
//! other thread may come after the work has gone back to where it came from, which nobody can see
//! from here but by having some of it done. Until it is, the statement waits idly, which gives the
//! other thread a processor to come on.
//!
//! What counts is how long the session has had its thread, and not how long one statement: a
//! message of a thousand short ones, a loop in a DO block, or rows that the client takes as fast as
//! they come hold up others no less. So the time begins anew only when the session has waited: for
//! its client, a lock, a slot, or the log. Where nobody says when it waits for its client, each
//! statement begins with patience.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};

/// How long a statement may compute before others need not wait for it any more.
const PATIENCE: Duration = Duration::from_millis(2);

/// Time that the thread which takes over gets at most. Mostly it needs some ten microseconds; where
/// it needs all, the statement computes half of the time.
const HANDOVER: Duration = Duration::from_millis(2);

/// So often a statement that has stepped aside asks again. It may have waited without a word, for
/// its client to take rows, say, and then its thread may have others to serve again. Where it has
/// not, the other thread answers at once.
const AGAIN: Duration = Duration::from_millis(10);

/// A statement that has stepped aside lets others have the processor so often. Otherwise they would
/// wait for the end of its time slice, which is some milliseconds long.
const COURTESY: Duration = Duration::from_micros(200);

/// What came of asking another thread to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handover {
    /// There is no other thread to do so.
    Nobody,
    /// It did not come in time: this thread serves the others as before.
    Late,
    /// It serves them.
    Taken,
}

/// What a statement steps aside in.
pub(super) trait World {
    /// Microseconds on a clock, from 1.
    fn now_us(&self) -> u64;

    /// Lets another thread take over what this one serves besides, and waits for it.
    fn hand_over(&self) -> Handover;

    /// Lets others have the processor.
    fn yield_now(&self);
}

/// This process.
pub(super) struct Process;

pub(super) static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Microseconds on the process's clock, from 1.
pub(super) fn process_us() -> u64 {
    START.elapsed().as_micros() as u64 + 1
}

impl World for Process {
    fn now_us(&self) -> u64 {
        process_us()
    }

    fn hand_over(&self) -> Handover {
        match Handle::try_current() {
            Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
                // Outside of a task the thread serves nobody, like the one that applies what all
                // nodes execute, which should not wait for those that are served.
                if tokio::task::try_id().is_none() {
                    return Handover::Taken;
                }
                match tokio::task::block_in_place(|| is_served(&runtime)) {
                    true => Handover::Taken,
                    false => Handover::Late,
                }
            }
            _ => Handover::Nobody,
        }
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }
}

/// Waits until another thread does what there is to do in this runtime: a task, which this thread
/// cannot do as it waits, says so. False if none does for as long as a handover may take.
fn is_served(runtime: &Handle) -> bool {
    let served = Arc::new(AtomicBool::new(false));
    let (said, waiting) = (Arc::clone(&served), std::thread::current());
    runtime.spawn(async move {
        said.store(true, Ordering::Release);
        waiting.unpark();
    });
    let begun = Instant::now();
    while !served.load(Ordering::Acquire) {
        let left = HANDOVER.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return false;
        }
        std::thread::park_timeout(left);
    }
    true
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
    /// Another thread has taken over the connections that this one served.
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

    /// Whether the statement has stepped aside.
    pub(super) fn is_aside(&self) -> bool {
        self.aside.load(Ordering::Relaxed)
    }

    /// A piece of work begins that asks for itself: what was before it says nothing of how often.
    pub(super) fn begin_piece(&self) {
        self.checked_us.store(0, Ordering::Relaxed);
    }

    /// Looks at the clock. The time since the last look, and whether the statement has just stepped
    /// aside, or tried to: its slot is for others then.
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
    /// Whether its slot is for others, as with `look`.
    pub(super) fn let_others(&self, world: &impl World, now: u64) -> bool {
        self.last_us.store(now, Ordering::Relaxed);
        let is_aside = self.aside.load(Ordering::Relaxed);
        if is_aside && now < self.asked_us.load(Ordering::Relaxed) + AGAIN.as_micros() as u64 {
            world.yield_now();
            return false;
        }
        let handover = world.hand_over();
        // What was waited is no time that the statement has computed.
        let now = world.now_us();
        self.checked_us.store(now, Ordering::Relaxed);
        self.last_us.store(now, Ordering::Relaxed);
        self.asked_us.store(now, Ordering::Relaxed);
        self.aside.store(handover == Handover::Taken, Ordering::Relaxed);
        // Those that wait for its slot need not wait for the other thread as well.
        handover != Handover::Nobody && !is_aside
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// What the thread that takes over needs in the scripts, if it is in time.
    const TAKING: Duration = Duration::from_micros(50);

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

        fn hand_over(&self) -> Handover {
            if !self.many {
                return Handover::Nobody;
            }
            let taken = self.in_time.borrow_mut().pop().unwrap_or(true);
            self.asked.borrow_mut().push((self.now.get(), taken));
            let waited = if taken { TAKING } else { HANDOVER };
            self.now.set(self.now.get() + waited.as_micros() as u64);
            if taken { Handover::Taken } else { Handover::Late }
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
            let aside = script.compute(&pace, Duration::from_secs(1), STEP);
            assert_eq!(aside, late + 1, "each time its slot is for others");
            let latest = PATIENCE + (HANDOVER + PATIENCE + STEP) * late as u32 + STEP;
            let served =
                script.served_at().expect("the statement still computes, so somebody else must serve");
            assert!(served <= latest.as_micros() as u64, "{late} came too late: served at {served} us");
        }
    }

    /// Its thread has others to serve again, as after a wait that nobody spoke of, and the thread
    /// that is asked does not come at once: they wait for no more than if it had just begun.
    #[test]
    fn who_has_others_again_hands_them_over_like_the_first_time() {
        let (script, pace) = (Script::new(&[true, false]), Pace::default());
        let aside = script.compute(&pace, Duration::from_millis(30), STEP);
        assert_eq!(aside, 2, "it had them back meanwhile");
        let asked = script.asked.borrow();
        assert_eq!(asked.iter().map(|(_, taken)| *taken).take(3).collect::<Vec<_>>(), [true, false, true]);
        let again = Duration::from_micros(asked[2].0 - asked[1].0);
        assert!(again >= HANDOVER + PATIENCE && again <= HANDOVER + PATIENCE + STEP, "{again:?}");
    }

    #[test]
    fn the_wait_for_another_thread_is_no_time_computed() {
        let (script, pace) = (Script::new(&[false]), Pace::default());
        pace.look(&script);
        script.now.set(script.now.get() + PATIENCE.as_micros() as u64);
        assert_eq!(pace.look(&script), (PATIENCE, true));
        script.now.set(script.now.get() + 100);
        assert_eq!(pace.look(&script).0, Duration::from_micros(100));
    }

    /// With one serving thread, as each member of the server's crew has. The statement's thread
    /// does not return to the runtime before the task behind it is done.
    #[test]
    fn what_waits_behind_a_statement_is_done_once_it_is_taken_over() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("threads");
        let statement = async {
            let (done, behind) = std::sync::mpsc::channel();
            tokio::spawn(async move { done.send(std::thread::current().id()) });
            // As often as it takes: on a busy machine the other thread may be late.
            while Process.hand_over() != Handover::Taken {}
            let by = behind.recv_timeout(Duration::from_secs(60)).expect("somebody else does it");
            assert_ne!(by, std::thread::current().id());
        };
        runtime.block_on(async { tokio::spawn(statement).await.expect("no panic") });
    }

    /// The only thread that serves is busy, and nobody can take its work over before it says so.
    #[test]
    fn who_serves_nobody_waits_for_nobody() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("threads");
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let (begun, beginning) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            begun.send(()).expect("it is waited for");
            wait.recv()
        });
        beginning.recv().expect("the thread begins");
        assert_eq!(runtime.block_on(async { Process.hand_over() }), Handover::Taken);
        go_on.send(()).expect("it is still busy");
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
