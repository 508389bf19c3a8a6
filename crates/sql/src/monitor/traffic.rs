//! What all transactions that are ordered have in common: how many there are, how long the order
//! takes, and what keeps the applier busy.
//!
//! *In flight* are by Little's law as many transactions as end in a microsecond, times the
//! microseconds that one takes.
//!
//! *What keeps the applier busy* is guessed: by message and byte, and by what is executed there.
//! The guess is corrected by how busy the applier is told to be, or at least by the fact that it
//! cannot be busy for longer than there is time.
//!
//! *The quickest* delay of the last minutes is the order's without a queue. Nothing else tells a
//! long way from a long queue once the applier is never idle.

use super::decayed::{Decayed, fading};
use super::report::{Finished, Protocol, figure};
use super::slope::BYTE_US;

/// What a message takes at each node, besides what depends on its size and what executes it: to be
/// sent, logged, decoded, certified.
pub(super) const MESSAGE_US: f64 = 20.0;
/// So many attempts make up the averages: more than of a class, for they are of many classes.
const WINDOW: f64 = 512.0;
/// The share of time that an applier can be busy for.
const FULL: f64 = 0.98;
/// Who is told how busy it is corrects what is guessed by so much at most.
const GUESS_MAX: f64 = 4.0;
/// The quickest delay is one of this time, or of twice as much.
const QUICKEST_FOR_US: i64 = 120_000_000;

/// The nodes, as they are told to the monitor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Surroundings {
    /// How many nodes there are.
    pub nodes: u32,
    /// The share of time for which this node's applier is busy, from 0 to 1, if that is known.
    pub applier_busy: Option<f64>,
}

impl Default for Surroundings {
    fn default() -> Surroundings {
        Surroundings { nodes: 1, applier_busy: None }
    }
}

/// Averages over all attempts at this node.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    last_us: Option<i64>,
    /// From the end of one attempt to that of the next.
    gap_us: Decayed,
    attempt_us: Decayed,
    /// What keeps an applier busy: guessed, and executed.
    guessed_us: Decayed,
    executed_us: Decayed,
    order_us: Decayed,
    /// Of the time before, and of now.
    quickest_us: [Option<f64>; 2],
    quickest_since_us: i64,
}

/// All that the model wants of the traffic, for the whole cluster: the other nodes are taken to do
/// as much as this one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    pub(super) nodes: f64,
    /// From the end of one attempt to that of the next, at this node.
    pub(super) gap_us: f64,
    /// Attempts for each microsecond, at all nodes.
    pub(super) rate: f64,
    pub(super) in_flight: f64,
    /// What an attempt keeps an applier busy for.
    pub(super) serial_us: f64,
    /// By how much what is guessed of that has to be multiplied.
    pub(super) guess: f64,
    /// How busy the applier is said to be.
    pub(super) told: Option<f64>,
    /// The order's delay.
    pub(super) order_us: f64,
    pub(super) quickest_us: f64,
}

impl Traffic {
    pub(super) fn new() -> Traffic {
        Traffic::default()
    }

    /// Adds an attempt.
    pub(super) fn note(&mut self, finished: &Finished, now_us: i64) {
        let gap_us = self.last_us.map_or(0, |last_us| now_us.saturating_sub(last_us)).max(0);
        self.fade(fading(gap_us));
        if self.last_us.replace(now_us).is_some() {
            self.gap_us.add(gap_us as f64, WINDOW);
        }
        let (execution, order) = (figure(finished.execution_us), figure(finished.order_us));
        let wait = figure(finished.lock_wait_us) + figure(finished.vote_us);
        self.attempt_us.add(execution + order + wait, WINDOW);
        // What was not proposed has kept no applier busy.
        let was_ordered = order > 0.0;
        let at_delivery = if finished.protocol == Protocol::Active { execution } else { 0.0 };
        self.executed_us.add(if was_ordered { at_delivery } else { 0.0 }, WINDOW);
        let (write, read) = (figure(finished.write_bytes), figure(finished.read_bytes));
        let guessed = guessed_us(finished.protocol, write, read);
        self.guessed_us.add(if was_ordered { guessed } else { 0.0 }, WINDOW);
        if was_ordered {
            self.note_order(finished, order, now_us);
        }
    }

    fn note_order(&mut self, finished: &Finished, order: f64, now_us: i64) {
        self.order_us.add(order, WINDOW);
        let age = now_us.saturating_sub(self.quickest_since_us);
        if !(0..QUICKEST_FOR_US).contains(&age) {
            self.quickest_us = [self.quickest_us[1], None];
            self.quickest_since_us = now_us;
        }
        let empty_us = (order - BYTE_US * finished.ordered_bytes()).max(0.3 * order);
        let quickest = &mut self.quickest_us[1];
        *quickest = Some(quickest.map_or(empty_us, |quickest_us| quickest_us.min(empty_us)));
    }

    fn fade(&mut self, fading: f64) {
        for average in [
            &mut self.gap_us,
            &mut self.attempt_us,
            &mut self.guessed_us,
            &mut self.executed_us,
            &mut self.order_us,
        ] {
            average.fade(fading);
        }
    }

    pub(super) fn sight(&self, surroundings: Surroundings) -> Sight {
        let nodes = f64::from(surroundings.nodes.clamp(1, 1000));
        let gap_us = if self.gap_us.weight() > 0.0 { self.gap_us.mean().max(0.01) } else { f64::MAX };
        let rate = nodes / gap_us;
        let told = surroundings.applier_busy.filter(|busy| busy.is_finite());
        let told = told.map(|busy| busy.clamp(0.0, FULL));
        let (guessed_us, executed_us) = (self.guessed_us.mean(), self.executed_us.mean());
        let busy_us = told.unwrap_or(FULL) / rate;
        let guess = (busy_us - executed_us).max(0.0) / guessed_us.max(1.0);
        // Who is not told knows only that it is not busy for longer than there is time.
        let guess = guess.min(if told.is_some() { GUESS_MAX } else { 1.0 });
        let order_us = self.order_us.mean();
        let quickest = self.quickest_us.into_iter().flatten().min_by(f64::total_cmp);
        Sight {
            nodes,
            gap_us,
            rate,
            in_flight: rate * self.attempt_us.mean(),
            guess,
            told,
            serial_us: guess * guessed_us + executed_us,
            order_us,
            quickest_us: quickest.unwrap_or(order_us),
        }
    }
}

/// Microseconds for which an attempt keeps each node's applier busy, besides executing it: a guess.
/// Half of what a byte adds to the delay counts for what is installed, which is what is written
/// under every protocol; all of it for reads that are certified.
pub(super) fn guessed_us(protocol: Protocol, write_bytes: f64, read_bytes: f64) -> f64 {
    let installed = 0.5 * BYTE_US * write_bytes;
    match protocol {
        Protocol::Certification => MESSAGE_US + installed + BYTE_US * read_bytes,
        Protocol::WeakVoting => 2.0 * MESSAGE_US + installed,
        Protocol::Active => MESSAGE_US + installed,
    }
}
