//! A seat: a session's side of the governor, and what its word says.
//!
//! ```text
//!           take a slot             pause
//!   Out ───────────────▶ Running ◀───────▶ Paused since tick n
//!    ▲                      │      resume      │
//!    └──────────────────────┴──────────────────┘
//!         leave                     leave, or taken away by the ticking thread
//! ```
//!
//! Only the session's own statement moves the word, with two exceptions: the gate grants a slot to
//! a place in its queue (whose owner does nothing but wait then), and the ticking thread takes it
//! from a place that is paused, by compare and exchange; the owner resumes the same way. So the
//! slot has one owner at any time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Governor;
use super::gate::Class;
use crate::sync::atomic::{AtomicU64, Ordering};

const OUT: u64 = 0;
const RUNNING: u64 = 1;
/// Larger words: paused; the tick is in the bits above.
const PAUSED: u64 = 2;

/// The part of a seat that others see.
#[derive(Debug, Default)]
pub(super) struct Place {
    word: AtomicU64,
    /// Written by the owner only.
    admitted: AtomicU64,
}

impl Place {
    pub(super) fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    /// The gate gives the place a slot.
    pub(super) fn grant(&self) {
        self.word.store(RUNNING, Ordering::Release);
    }

    /// Takes the slot away if its owner has been paused for a whole tick. True if there is a slot
    /// to give back.
    pub(super) fn take_away(&self, epoch: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word >= PAUSED
            && (word >> 2) + 2 <= epoch
            && self.word.compare_exchange(word, OUT, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn count(&self) {
        self.admitted.store(self.admitted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// A session's seat. Dropping it gives the slot back.
#[derive(Debug)]
pub struct Seat {
    governor: Arc<Governor>,
    place: Arc<Place>,
    index: usize,
}

impl Seat {
    pub(super) fn new(governor: Arc<Governor>, place: Arc<Place>, index: usize) -> Seat {
        Seat { governor, place, index }
    }

    /// The governor.
    pub fn governor(&self) -> &Arc<Governor> {
        &self.governor
    }

    /// Goes on if the slot is still there, or takes one if there is one and nobody waits.
    #[inline]
    pub fn try_go(&self) -> bool {
        let word = self.place.word.load(Ordering::Acquire);
        if word == RUNNING {
            return true;
        }
        if word != OUT {
            let resumed =
                self.place.word.compare_exchange(word, RUNNING, Ordering::AcqRel, Ordering::Acquire);
            if resumed.is_ok() {
                return true;
            }
        }
        if !self.governor.gate.try_enter() {
            return false;
        }
        self.place.word.store(RUNNING, Ordering::Release);
        self.place.count();
        true
    }

    /// Goes on, or waits for a slot; a transaction that is `resuming` goes before those that begin.
    /// Dropping the future withdraws the request.
    pub fn go(&self, resuming: bool) -> Go<'_> {
        let class = if resuming { Class::Resuming } else { Class::Newcomer };
        Go { seat: self, class, ticket: 0 }
    }

    /// The statement ends, or waits: the slot may be taken away if that takes long.
    #[inline]
    pub fn pause(&self) {
        if self.place.word.load(Ordering::Relaxed) == RUNNING {
            let epoch = self.governor.epoch.load(Ordering::Relaxed);
            self.place.word.store(PAUSED | epoch << 2, Ordering::Release);
        }
    }

    /// The transaction ends: gives the slot back, if there still is one.
    #[inline]
    pub fn leave(&self) {
        if self.place.word.load(Ordering::Relaxed) != OUT
            && self.place.word.swap(OUT, Ordering::AcqRel) != OUT
        {
            self.governor.gate.leave();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
        self.governor.vacate(self.index);
    }
}

/// Waits for a slot.
#[derive(Debug)]
#[must_use = "nothing is asked for until it is awaited"]
pub struct Go<'a> {
    seat: &'a Seat,
    class: Class,
    /// 0 while not in the queue.
    ticket: u64,
}

impl Future for Go<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let seat = self.seat;
        if self.ticket == 0 {
            if seat.try_go() {
                return Poll::Ready(());
            }
            let (ticket, first) = seat.governor.gate.queue(self.class, &seat.place, context.waker());
            self.ticket = ticket;
            if first {
                seat.governor.rouse();
            }
        } else if seat.governor.gate.rewake(self.class, self.ticket, context.waker()) {
            return Poll::Pending;
        }
        if seat.place.word.load(Ordering::Acquire) != RUNNING {
            return Poll::Pending;
        }
        self.ticket = 0;
        seat.place.count();
        Poll::Ready(())
    }
}

impl Drop for Go<'_> {
    fn drop(&mut self) {
        if self.ticket != 0 && !self.seat.governor.gate.withdraw(self.class, self.ticket) {
            // Let in and never told: the slot goes to the next.
            self.seat.leave();
        }
    }
}
