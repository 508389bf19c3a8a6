//! What a class would cost under each protocol.
//!
//! A cost is microseconds for one *committed* transaction: those that its client waits, and those
//! that processors work for it at all nodes. One counts like the other, as on machines whose
//! processors are half busy. What every protocol does alike (installing what was written) is left
//! out. With
//!
//! ```text
//! n   nodes                                E   execution once, us     L   waiting for locks, us
//! W   bytes written, R bytes read          O   the order's delay but for bytes and queue, us
//! b   bytes ordered: W + R, W, 0           c   what a byte adds to the delay, us
//! m   a message's work at a node, us       w   a byte's work at a node, us
//! V   from the writes' delivery to the vote's, us
//! N   transactions in flight, all nodes    r   attempts for each us, all nodes
//! s   what an attempt keeps an applier busy for, us (`traffic`): by messages and bytes, and by E
//!     under active
//! S   the same, averaged over all that is ordered, if this class had this protocol
//! ```
//!
//! an attempt is made of
//!
//! | part | certification, weak voting | active |
//! |---|---|---|
//! | execution | (E + L) + E | E + n E |
//! | ordering | O + n m | O + n m |
//! | bytes | c b + n w b | 0 |
//! | queue | max(0, N S − (E + L + O + c b)) | max(0, N S − (E + O)) |
//!
//! The queue is what is known of closed systems: an applier that serves one after the other lets N
//! transactions take N S at least, however little they have to do else. Where the applier is hardly
//! ever idle, O is not what is measured, most of which is queue, but the quickest of late.
//!
//! An attempt is refused with the probability p = 1 − exp(−h √(T / T')), where T is its time at
//! risk, from its beginning to the verdict, T' that of the attempts that h is known from, and
//! exp(−h) the share of those that nothing refused or, under active, would have refused. The root
//! stands between two truths: conflicts with others come as often as there is time for them;
//! conflicts within a class come once a round, however long that is. So a transaction needs A = 1 /
//! (1 − p) attempts; under active, one. Its cost is
//!
//! ```text
//! attempt + repeats + votes + others
//! repeats = (A − 1) (attempt + its client's messages)
//! votes   = V + A n m + V min(1, r' V / 2)     weak voting only; r' without this class
//! others  = A s min(N, r s / 2)
//! ```
//!
//! Before the vote nothing is seen of what comes behind it; and who comes while the applier is busy
//! with an attempt waits for half of it.
//!
//! Example: three nodes, E = 200, O = 1000, W + R = 1 kB, p = 1/2, m = 20; little else is going on.
//! An attempt costs 400 + 1060 + 16 under certification and 800 + 1060 under active; the repeats
//! add as much again to certification, and 200 for its client: 3150 against 1860.
//!
//! What was not tried lately is calculated from what was: a class that runs under active was
//! executed, and that tells what it would cost elsewhere; a vote that nobody has seen takes as long
//! as a message. Nothing here looks at a clock, and every figure is finite whatever was reported.
//!
//! Where the figures come from: those of bytes and messages are guesses, which the measured delays
//! and the applier's load correct. What decides most often is measured: E, O and p.

use super::decayed::Decayed;
use super::measures::Measures;
use super::report::Protocol;
use super::traffic::{MESSAGE_US, Sight, guessed_us};

/// Work of a byte at each node, in microseconds: to be copied, checked and written.
const BYTE_WORK_US: f64 = 0.002;
/// What a message of its client adds to a transaction that is repeated.
const CLIENT_US: f64 = 200.0;
/// The highest probability of being refused: twenty attempts.
const REFUSED_MAX: f64 = 0.95;
/// A class of which nothing is known counts as so many attempts without waiting,
const CALM: f64 = 8.0;
/// and as so many without a conflict.
const PEACE: f64 = 2.0;
/// What is known of one time at risk is stretched to another one by this factor at most.
const STRETCH_MAX: f64 = 16.0;
/// A higher share than this is not told from all by averages of so few.
const SURELY: f64 = 0.998;
/// What executing at delivery tells of executing at once, and the other way round.
const OTHER_WAY: f64 = 0.1;

/// The parts of a cost, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    pub(super) execution: f64,
    pub(super) ordering: f64,
    pub(super) bytes: f64,
    pub(super) queue: f64,
    pub(super) repeats: f64,
    pub(super) votes: f64,
    pub(super) others: f64,
}

impl Parts {
    pub(super) fn sum(&self) -> f64 {
        let attempt = self.execution + self.ordering + self.bytes + self.queue;
        attempt + self.repeats + self.votes + self.others
    }
}

/// What one protocol would cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    pub(super) parts: Parts,
    /// Share of attempts that are refused.
    pub(super) refused: f64,
    /// Bytes that are ordered.
    pub(super) bytes: f64,
}

/// What each protocol would cost; none for active if it is not possible.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimates {
    of: [Option<Estimate>; 3],
    /// E, as it is at delivery.
    pub(super) active_us: f64,
    pub(super) nodes: f64,
    pub(super) round_trips: f64,
}

impl Estimates {
    /// With costs that are known.
    #[cfg(test)]
    pub(super) fn known(costs: [Option<f64>; 3]) -> Estimates {
        let parts = |execution| Parts { execution, ..Parts::default() };
        let of = costs.map(|cost| cost.map(|cost| Estimate { parts: parts(cost), ..Estimate::default() }));
        Estimates { of, active_us: 0.0, nodes: 3.0, round_trips: 1.0 }
    }

    pub(super) fn of(&self, protocol: Protocol) -> Option<&Estimate> {
        self.of[protocol.index()].as_ref()
    }

    pub(super) fn cost(&self, protocol: Protocol) -> Option<f64> {
        self.of(protocol).map(|estimate| estimate.parts.sum())
    }
}

/// What a class would cost that now has one protocol.
pub(super) fn estimate(measures: &Measures, sight: &Sight, chosen: Protocol, fit: bool) -> Estimates {
    let class = Known::new(measures, sight, chosen);
    let mut of = [None; 3];
    for protocol in Protocol::ALL {
        if protocol != Protocol::Active || fit {
            of[protocol.index()] = Some(class.estimate(protocol));
        }
    }
    let round_trips = measures.round_trips.mean();
    Estimates { of, active_us: class.active_us, nodes: sight.nodes, round_trips }
}

/// What is known of a class, as far as protocols have it in common.
struct Known<'a> {
    measures: &'a Measures,
    sight: &'a Sight,
    chosen: Protocol,
    /// E, as it is at delivery and elsewhere.
    active_us: f64,
    local_us: f64,
    lock_wait_us: f64,
    /// O.
    order_us: f64,
    /// The order's delay as it was measured, with everything.
    delay_us: f64,
    /// How much of the traffic this class is.
    share: f64,
}

impl<'a> Known<'a> {
    fn new(measures: &'a Measures, sight: &'a Sight, chosen: Protocol) -> Known<'a> {
        let active_us = either(&measures.active_us, &measures.local_us);
        let local_us = either(&measures.local_us, &measures.active_us);
        let delay_us = measures.order_us.or(sight.order_us, 1.0);
        let bytes_us = measures.slope.byte_us() * measures.ordered_bytes.mean();
        let share = (sight.gap_us / measures.gap_us.mean().max(0.01)).min(1.0);
        let mut class = Known {
            measures,
            sight,
            chosen,
            active_us,
            local_us,
            lock_wait_us: measures.lock_wait_us.or(0.0, CALM),
            order_us: (delay_us - bytes_us).max(0.1 * delay_us),
            delay_us,
            share,
        };
        // If the applier is hardly ever idle, most of the delay may be its queue.
        let saturation = ((sight.rate * sight.serial_us - 0.5) / 0.4).clamp(0.0, 1.0);
        let idle = 1.0 - sight.told.unwrap_or(0.0);
        let unqueued_us = class.order_us.min(1.2 * sight.quickest_us).min(3.0 * idle * delay_us);
        class.order_us += saturation * (unqueued_us - class.order_us);
        class
    }

    /// Time from a transaction's beginning to where it is proposed; under active, its execution.
    fn executed(&self, protocol: Protocol) -> f64 {
        match protocol {
            Protocol::Active => self.active_us,
            _ => self.local_us + self.lock_wait_us,
        }
    }

    fn bytes(&self, protocol: Protocol) -> f64 {
        match protocol {
            Protocol::Certification => self.measures.write_bytes.mean() + self.measures.read_bytes.mean(),
            Protocol::WeakVoting => self.measures.write_bytes.mean(),
            Protocol::Active => 0.0,
        }
    }

    /// What an attempt keeps each applier busy for.
    fn serial(&self, protocol: Protocol) -> f64 {
        let (written, read) = (self.measures.write_bytes.mean(), self.measures.read_bytes.mean());
        let guessed = self.sight.guess * guessed_us(protocol, written, read);
        if protocol == Protocol::Active { guessed + self.active_us } else { guessed }
    }

    /// Probability of being refused in a time at risk.
    fn refused(&self, at_risk_us: f64) -> f64 {
        let (refused, met) = (&self.measures.refused, &self.measures.met);
        // Under active nothing is at risk before the transaction is submitted.
        let stretched = |known: &Decayed, risk_us: f64| {
            let stretch = (at_risk_us / risk_us.max(1.0)).clamp(1.0 / STRETCH_MAX, STRETCH_MAX).sqrt();
            -(1.0 - known.mean().min(SURELY)).ln() * stretch
        };
        let local = stretched(refused, self.executed(Protocol::Certification) + self.delay_us);
        let active = stretched(met, self.delay_us);
        let weight = refused.weight() + met.weight() + PEACE;
        let risk = (refused.weight() * local + met.weight() * active) / weight;
        (1.0 - (-risk).exp()).min(REFUSED_MAX)
    }

    fn estimate(&self, protocol: Protocol) -> Estimate {
        let sight = self.sight;
        let (nodes, bytes, serial) = (sight.nodes, self.bytes(protocol), self.serial(protocol));
        let is_active = protocol == Protocol::Active;
        let worked = if is_active { nodes * self.active_us } else { self.local_us };
        let bytes_us = self.measures.slope.byte_us() * bytes;
        let unqueued = self.executed(protocol) + self.order_us + bytes_us;
        let average = sight.serial_us + self.share * (serial - self.serial(self.chosen));
        let queue = (sight.in_flight * average - unqueued).max(0.0);

        let refused = if is_active { 0.0 } else { self.refused(unqueued + queue) };
        let attempts = 1.0 / (1.0 - refused);
        let mut parts = Parts {
            execution: self.executed(protocol) + worked,
            ordering: self.order_us + nodes * MESSAGE_US,
            bytes: bytes_us + nodes * BYTE_WORK_US * bytes,
            queue,
            ..Parts::default()
        };
        let client = self.measures.round_trips.mean() * CLIENT_US;
        parts.repeats = (attempts - 1.0) * (parts.sum() + client);
        if protocol == Protocol::WeakVoting {
            let vote = self.measures.vote_us.or(self.order_us + queue, CALM);
            let others = sight.rate * (1.0 - self.share);
            let blocking = vote * (others * vote / 2.0).min(1.0);
            parts.votes = vote + attempts * nodes * MESSAGE_US + blocking;
        }
        parts.others = attempts * serial * (sight.rate * serial / 2.0).min(sight.in_flight);
        Estimate { parts, refused, bytes }
    }
}

/// An average, or what another one tells of it once that is worth more.
fn either(own: &Decayed, other: &Decayed) -> f64 {
    if own.weight() + other.weight() > 0.0 { own.or(other.mean(), OTHER_WAY * other.weight()) } else { 0.0 }
}
