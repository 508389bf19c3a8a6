//! The gate: counts the slots that are taken, and keeps those who wait for one in two queues.
//!
//! One word holds both counts, so that entering and leaving below the limit are one atomic
//! operation each:
//!
//! ```text
//! 63 ─────── waiting ─────── 32 31 ─────── active ─────── 0
//! ```
//!
//! Nobody enters past somebody who waits. *No wake-up is lost*: who finds the gate full counts
//! itself in `waiting` first and looks at `active` again afterwards, in the same word. So either it
//! sees the slot that was given back, or who gave it back saw it waiting and lets it in.
//!
//! `waiting` changes only under the mutex; `active` grows only below the limit, or by letting a
//! waiter in.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use super::seat::Place;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// After so many who resumed, one newcomer is let in.
pub(super) const RESUMED_IN_A_ROW: u32 = 8;

const ONE_WAITING: u64 = 1 << 32;

/// Slots and queues.
#[derive(Debug)]
pub(super) struct Gate {
    word: AtomicU64,
    limit: AtomicU32,
    queued: AtomicU64,
    queue: Mutex<Queue>,
}

/// Whether a transaction begins or goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Newcomer,
    Resuming,
}

/// Those who wait, in the order in which they came.
#[derive(Debug, Default)]
struct Queue {
    newcomers: VecDeque<Waiter>,
    resuming: VecDeque<Waiter>,
    resumed_in_a_row: u32,
    tickets: u64,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    place: Arc<Place>,
    waker: Waker,
}

impl Queue {
    fn of(&mut self, class: Class) -> &mut VecDeque<Waiter> {
        match class {
            Class::Newcomer => &mut self.newcomers,
            Class::Resuming => &mut self.resuming,
        }
    }

    fn push(&mut self, class: Class, place: &Arc<Place>, waker: &Waker) -> u64 {
        self.tickets += 1;
        let waiter = Waiter { ticket: self.tickets, place: Arc::clone(place), waker: waker.clone() };
        self.of(class).push_back(waiter);
        self.tickets
    }

    /// Tickets grow along each queue.
    fn find(&mut self, class: Class, ticket: u64) -> Option<usize> {
        self.of(class).binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }

    fn pop(&mut self) -> Option<Waiter> {
        let newcomers_turn = self.resumed_in_a_row >= RESUMED_IN_A_ROW && !self.newcomers.is_empty();
        if !newcomers_turn && let Some(waiter) = self.resuming.pop_front() {
            self.resumed_in_a_row = self.resumed_in_a_row.saturating_add(1);
            return Some(waiter);
        }
        self.resumed_in_a_row = 0;
        self.newcomers.pop_front()
    }
}

fn active(word: u64) -> u32 {
    word as u32
}

fn waiting(word: u64) -> u32 {
    (word >> 32) as u32
}

impl Gate {
    pub(super) fn new() -> Gate {
        Gate {
            word: AtomicU64::new(0),
            limit: AtomicU32::new(u32::MAX),
            queued: AtomicU64::new(0),
            queue: Mutex::default(),
        }
    }

    /// Slots taken, and those who wait for one.
    pub(super) fn counts(&self) -> (u32, u32) {
        let word = self.word.load(Ordering::Acquire);
        (active(word), waiting(word))
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// How many ever had to wait.
    pub(super) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }

    /// Changes the limit. Below what is taken, nobody enters until enough have left.
    pub(super) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::SeqCst);
        self.let_in();
    }

    /// Takes a slot if there is one and nobody waits.
    #[inline]
    pub(super) fn try_enter(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let mut word = self.word.load(Ordering::Relaxed);
        while waiting(word) == 0 && active(word) < limit {
            match self.word.compare_exchange_weak(word, word + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Gives a slot back.
    #[inline]
    pub(super) fn leave(&self) {
        let before = self.word.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(active(before) > 0, "a slot was given back twice");
        if waiting(before) > 0 {
            self.let_in();
        }
    }

    /// Queues a place whose owner found no slot. The ticket, and whether nobody waited before; the
    /// place may have its slot already.
    #[cold]
    pub(super) fn queue(&self, class: Class, place: &Arc<Place>, waker: &Waker) -> (u64, bool) {
        let (ticket, first) = {
            let mut queue = self.queue.lock();
            let ticket = queue.push(class, place, waker);
            (ticket, waiting(self.word.fetch_add(ONE_WAITING, Ordering::AcqRel)) == 0)
        };
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.let_in();
        (ticket, first)
    }

    /// The owner is polled by another task now. False if it is not in the queue any more.
    pub(super) fn rewake(&self, class: Class, ticket: u64, waker: &Waker) -> bool {
        let mut queue = self.queue.lock();
        let Some(at) = queue.find(class, ticket) else { return false };
        queue.of(class)[at].waker.clone_from(waker);
        true
    }

    /// The owner waits no longer. False if it had been let in already.
    pub(super) fn withdraw(&self, class: Class, ticket: u64) -> bool {
        let mut queue = self.queue.lock();
        let Some(at) = queue.find(class, ticket) else { return false };
        queue.of(class).remove(at);
        self.word.fetch_sub(ONE_WAITING, Ordering::AcqRel);
        true
    }

    /// Lets in as many as there are slots.
    #[cold]
    fn let_in(&self) {
        loop {
            let waiter = {
                let mut queue = self.queue.lock();
                let limit = self.limit.load(Ordering::SeqCst);
                let mut word = self.word.load(Ordering::Acquire);
                let taken = loop {
                    if waiting(word) == 0 || active(word) >= limit {
                        break false;
                    }
                    let next = word - ONE_WAITING + 1;
                    match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                        Ok(_) => break true,
                        Err(now) => word = now,
                    }
                };
                if !taken {
                    return;
                }
                let waiter = queue.pop();
                debug_assert!(waiter.is_some(), "whoever is counted as waiting is in a queue");
                if let Some(waiter) = &waiter {
                    waiter.place.grant();
                }
                waiter
            };
            if let Some(waiter) = waiter {
                waiter.waker.wake();
            }
        }
    }
}
