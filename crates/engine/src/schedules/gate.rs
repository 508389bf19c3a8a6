//! The governor's gate: seats that take slots, pause, lose them to the ticking thread, give up
//! waiting, while the limit moves.
//!
//! What is checked: no more slots are in use than the limit allows; nobody is forgotten (a schedule
//! in which all wait fails); in the end no slot is taken and nobody counted as waiting.

use std::pin::pin;
use std::sync::Arc;
// Not the scheduler's: see `programs`.
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::thread;

use super::explore;
use crate::governor::Readings;
use crate::{ActiveLimit, Governor, Seat};

/// Those who execute, and the most that may.
#[derive(Default)]
struct Inside {
    now: AtomicU32,
    most: AtomicU32,
}

impl Inside {
    fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        let most = self.most.load(Ordering::Relaxed);
        assert!(now <= most, "{now} execute, {most} may");
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Transactions of one session: each begins, maybe waits for its client, goes on and ends.
fn session(seat: &Seat, inside: &Inside, pauses: bool) {
    for _ in 0..2 {
        block_on(seat.go(false));
        inside.enter();
        thread::yield_now();
        if pauses {
            inside.leave();
            seat.pause();
            thread::yield_now();
            block_on(seat.go(true));
            inside.enter();
        }
        inside.leave();
        seat.leave();
    }
}

/// Asks once, gives up unless it was let in at once, and asks again.
fn impatient(seat: &Seat, inside: &Inside) {
    for _ in 0..2 {
        {
            let mut go = pin!(seat.go(false));
            if go.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                inside.enter();
                inside.leave();
            }
        }
        seat.leave();
        block_on(seat.go(false));
        inside.enter();
        inside.leave();
        seat.leave();
    }
}

struct Stage {
    governor: Arc<Governor>,
    inside: Arc<Inside>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Stage {
    fn new(limit: u32, most: u32) -> Stage {
        let governor = Arc::new(Governor::new(ActiveLimit::Fixed(limit), 2));
        let inside = Arc::new(Inside { most: AtomicU32::new(most), ..Inside::default() });
        Stage { governor, inside, threads: Vec::new() }
    }

    fn sit(&mut self, work: impl FnOnce(&Seat, &Inside) + Send + 'static) {
        let (seat, inside) = (self.governor.seat(), Arc::clone(&self.inside));
        self.threads.push(thread::spawn(move || work(&seat, &inside)));
    }

    /// The ticking thread's work, without its waiting.
    fn tick(&mut self, times: u64) {
        let governor = Arc::clone(&self.governor);
        let ticks = move || {
            for _ in 0..times {
                governor.tick(Duration::ZERO, Readings::default);
                thread::yield_now();
            }
        };
        self.threads.push(thread::spawn(ticks));
    }

    fn end(self) {
        for thread in self.threads {
            thread.join().unwrap();
        }
        let info = self.governor.info();
        assert_eq!((info.active, info.waiting), (0, 0), "{info:?}");
    }
}

#[test]
fn nobody_executes_beyond_the_limit() {
    for limit in [1, 2] {
        explore("gate", 2000, move |_| {
            let mut stage = Stage::new(limit, limit);
            (0..4).for_each(|_| stage.sit(|seat, inside| session(seat, inside, false)));
            stage.end();
        });
    }
}

/// Who pauses may lose the slot to somebody who waits, and has exactly one again when going on.
#[test]
fn slots_that_are_taken_away_have_one_owner() {
    explore("gate with ticks", 2000, |_| {
        let mut stage = Stage::new(1, 1);
        (0..3).for_each(|_| stage.sit(|seat, inside| session(seat, inside, true)));
        stage.tick(6);
        // A slot that its owner keeps over the last tick comes back when it goes on: nobody needs
        // one more.
        stage.end();
    });
}

#[test]
fn who_gives_up_waiting_takes_no_slot_along() {
    explore("gate with withdrawals", 2000, |_| {
        let mut stage = Stage::new(1, 1);
        (0..2).for_each(|_| stage.sit(impatient));
        stage.sit(|seat, inside| session(seat, inside, false));
        stage.end();
    });
}

/// The limit falls and rises while they wait: all get in, never more than the highest limit, and in
/// the end it is the last one that holds.
#[test]
fn a_moving_limit_forgets_nobody() {
    explore("gate with a moving limit", 2000, |_| {
        let mut stage = Stage::new(2, 3);
        (0..3).for_each(|_| stage.sit(|seat, inside| session(seat, inside, false)));
        stage.sit(impatient);
        let governor = Arc::clone(&stage.governor);
        let moves = move || [1, 3, 1].into_iter().for_each(|n| governor.set_limit(ActiveLimit::Fixed(n)));
        stage.threads.push(thread::spawn(moves));
        let governor = Arc::clone(&stage.governor);
        stage.end();
        let (first, second) = (governor.seat(), governor.seat());
        assert!(first.try_go() && !second.try_go(), "the last limit is 1");
        governor.set_limit(ActiveLimit::Fixed(2));
        assert!(second.try_go());
    });
}

/// The one who has the slot keeps it until the other has one, too: only the new limit can let that
/// one in.
#[test]
fn a_raised_limit_lets_in_who_waits() {
    explore("gate with a raised limit", 500, |_| {
        let mut stage = Stage::new(1, 2);
        let first = stage.governor.seat();
        block_on(first.go(false));
        stage.sit(|seat, inside| session(seat, inside, false));
        stage.governor.set_limit(ActiveLimit::Fixed(2));
        stage.threads.drain(..).for_each(|thread| thread.join().unwrap());
        drop(first);
        stage.end();
    });
}
