//! Which protocol a class has, and when it changes.
//!
//! Costs are estimates and they scatter, and a change has a price of its own: what is in flight
//! goes on as it began, and everybody's figures move. So another protocol is taken only if it was
//! clearly cheaper ([`GAIN`]) for a while ([`PATIENCE_US`]) and over some transactions
//! ([`PATIENCE_FINISHED`]); for a shorter while if it would cost less than half ([`HALF`]), as it
//! would where everybody wants the same few rows: each moment of patience is paid with refusals
//! there.
//!
//! *Nothing is tried out for its own sake.* What was not used lately is calculated from what was
//! (`model`), so a class need not spend transactions on protocols that are not good for it. Whether
//! the conflicts have ended that drove a class to active the engine tells with each commit. Where
//! nobody has told for a while, the knowledge fades with its averages, and then the class comes
//! back to look. If it was wrong it leaves again at once, and the protocol is *distrusted*: it is
//! not taken again for a time that doubles with each such failure, up to ten minutes. The same
//! bounds what noise can do that is just as slow as the patience.
//!
//! *Where clients are told of refusals*, a class begins with active, and no cost speaks against it
//! while it executes for no longer than [`TOLD_US`]: nothing else is sure to refuse nobody. Tried
//! out, certification would be chosen wherever a repeat is cheaper than executing at every node;
//! each trial is paid by clients, and while the class is active nobody knows what trials would
//! cost, for only what it has written is compared with others. The bound is what one transaction
//! may make all others wait. What this gives away is what nodes could have executed side by side.
//!
//! A class that executes for longer has begun with active all the same, and is left there only if
//! active is clearly cheaper, as if it had begun elsewhere; on a single node nothing else would
//! drive it away. It leaves once all have waited for it for [`PATIENCE_US`], be that for a few
//! transactions only, and for whatever protocol is cheapest. It is the way back that distrust
//! bounds: at delivery a class may execute for longer than where it begins.
//!
//! ```text
//! certification 3000 us, active 1900 us    32 transactions and half a second later: active
//! certification 1700 us, active 1900 us    no change: that is not clearly cheaper
//! ```

use super::model::{Estimate, Estimates, Parts};
use super::report::Protocol;

/// Another protocol is clearly cheaper if it costs less than this share.
const GAIN: f64 = 0.87;
/// For how long it has to be.
const PATIENCE_US: i64 = 500_000;
/// The same where the other one costs less than this share.
const HALF: f64 = 0.5;
const PATIENCE_FOR_HALF_US: i64 = 50_000;
/// Over how many transactions.
const PATIENCE_FINISHED: u32 = 32;
/// How long a protocol is not taken again after it was left, at first.
const DISTRUST_US: i64 = 1_000_000;
const DISTRUST_MAX_US: i64 = 600_000_000;
/// A protocol that was left before so many times its distrust has failed.
const FAILED: i64 = 4;
/// For how long, in microseconds, what is kept at active for its clients' sake executes at most;
/// it comes back to it once it takes half of that.
const TOLD_US: f64 = 10_000.0;

/// The protocol that a class has, and what it is judged by.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    chosen: Protocol,
    since_us: i64,
    /// None yet: the class is new.
    estimates: Option<Estimates>,
    better: Option<Better>,
    distrust: [Distrust; 3],
    /// Its clients are told of refusals.
    is_told: bool,
}

/// Since when, and for how many transactions, some other protocol has been clearly cheaper.
#[derive(Clone, Copy, Debug)]
struct Better {
    since_us: i64,
    finished: u32,
}

#[derive(Clone, Copy, Debug)]
struct Distrust {
    span_us: i64,
    left_us: Option<i64>,
}

impl Distrust {
    fn is_on(&self, now_us: i64) -> bool {
        self.left_us.is_some_and(|left_us| (0..self.span_us).contains(&now_us.saturating_sub(left_us)))
    }
}

impl Choice {
    /// A new class begins with certification, which fits every transaction and tells most.
    pub(super) fn new(now_us: i64) -> Choice {
        Choice {
            chosen: Protocol::Certification,
            since_us: now_us,
            estimates: None,
            better: None,
            distrust: [Distrust { span_us: DISTRUST_US, left_us: None }; 3],
            is_told: false,
        }
    }

    /// A new class whose clients are told of refusals, and which can be active.
    pub(super) fn told(now_us: i64) -> Choice {
        Choice { chosen: Protocol::Active, is_told: true, ..Choice::new(now_us) }
    }

    pub(super) fn chosen(&self) -> Protocol {
        self.chosen
    }

    /// When it was chosen.
    pub(super) fn since_us(&self) -> i64 {
        self.since_us
    }

    /// Looks at new estimates, after so many more transactions. True: the protocol has changed.
    pub(super) fn consider(&mut self, estimates: Estimates, finished: u32, now_us: i64) -> bool {
        self.estimates = Some(estimates);
        let Some(best) = self.best(&estimates, now_us) else {
            self.better = None;
            return false;
        };
        // Which one is best may change meanwhile, as long as one of them is.
        let better = match &mut self.better {
            Some(better) => {
                better.finished = better.finished.saturating_add(finished);
                better
            }
            none => none.insert(Better { since_us: now_us, finished: 0 }),
        };
        // A clock that was set back goes on from there.
        better.since_us = better.since_us.min(now_us);
        let waited_us = now_us.saturating_sub(better.since_us);
        let share = estimates.cost(best).zip(estimates.cost(self.chosen)).map(|(best, own)| best / own);
        let patience_us = match share.is_some_and(|share| share < HALF) {
            true => PATIENCE_FOR_HALF_US,
            false => PATIENCE_US,
        };
        // For so long all others have waited for it since then.
        let stalled_us = match self.is_told && self.chosen == Protocol::Active {
            true => f64::from(better.finished) * estimates.active_us,
            false => 0.0,
        };
        let is_sure = better.finished >= PATIENCE_FINISHED || stalled_us >= PATIENCE_US as f64;
        if !is_sure || waited_us < patience_us {
            return false;
        }
        self.leave(best, &estimates, now_us);
        self.chosen = best;
        self.since_us = now_us;
        self.better = None;
        true
    }

    /// Notes that what is chosen is left for another protocol, and whether it has failed.
    fn leave(&mut self, next: Protocol, estimates: &Estimates, now_us: i64) {
        let held_us = now_us.saturating_sub(self.since_us);
        let left = &mut self.distrust[self.chosen.index()];
        let has_failed = held_us < left.span_us * FAILED;
        left.span_us = if has_failed { (left.span_us * 2).min(DISTRUST_MAX_US) } else { DISTRUST_US };
        left.left_us = Some(now_us);
        // Conflicts that speak against one of the two that can be refused speak against the other.
        let left = *left;
        let costs = estimates.of(self.chosen).zip(estimates.of(next));
        let for_conflicts = costs.is_some_and(|(own, next)| worst(&own.parts, &next.parts) == Part::Repeats);
        if next == Protocol::Active && for_conflicts {
            for protocol in [Protocol::Certification, Protocol::WeakVoting] {
                self.distrust[protocol.index()] = left;
            }
        }
    }

    /// Active is to be had, whatever it costs.
    fn is_spared(&self, estimates: &Estimates, now_us: i64) -> bool {
        let is_short = match self.chosen {
            Protocol::Active => estimates.active_us <= TOLD_US,
            _ => {
                let distrust = &self.distrust[Protocol::Active.index()];
                estimates.active_us <= TOLD_US / 2.0 && !distrust.is_on(now_us)
            }
        };
        self.is_told && is_short
    }

    /// The cheapest protocol that may be taken, if it is clearly cheaper than what is chosen; or
    /// the one that refuses nobody, if it is to be had.
    fn best(&self, estimates: &Estimates, now_us: i64) -> Option<Protocol> {
        if self.is_spared(estimates, now_us) {
            return (self.chosen != Protocol::Active).then_some(Protocol::Active);
        }
        let own = estimates.cost(self.chosen)?;
        // What keeps all waiting and was not chosen for its cost has to be clearly cheaper itself.
        let is_too_long = self.is_told && self.chosen == Protocol::Active;
        let most = if is_too_long { own / GAIN } else { GAIN * own };
        let is_trusted = |protocol: &Protocol| !self.distrust[protocol.index()].is_on(now_us);
        let may = |protocol: &Protocol| *protocol != self.chosen && (is_too_long || is_trusted(protocol));
        let costs = Protocol::ALL.into_iter().filter(may).filter_map(|protocol| {
            let cost = estimates.cost(protocol)?;
            (cost < most).then_some((protocol, cost))
        });
        costs.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(protocol, _)| protocol)
    }

    /// The estimates in words, and what speaks for the choice.
    pub(super) fn explanation(&self) -> String {
        let Some(estimates) = &self.estimates else {
            return format!("new: a class begins with {}", self.chosen.name());
        };
        let figure = |protocol: Protocol| match estimates.cost(protocol) {
            Some(cost) => format!("{} {cost:.0} us", protocol.name()),
            None => format!("{} not possible", protocol.name()),
        };
        let figures = Protocol::ALL.map(figure).join(", ");
        format!("{figures}: {} because {}", self.chosen.name(), self.reason(estimates))
    }

    fn reason(&self, estimates: &Estimates) -> String {
        // Where it is active already no time is asked for.
        if self.chosen == Protocol::Active && self.is_spared(estimates, 0) {
            return "its client would be told of a refusal".to_owned();
        }
        let others = Protocol::ALL.into_iter().filter(|protocol| *protocol != self.chosen);
        let rivals = others.filter_map(|protocol| Some((protocol, estimates.cost(protocol)?)));
        let rival = rivals.min_by(|(_, one), (_, other)| one.total_cmp(other));
        let (Some((rival, cost)), Some(own)) = (rival, estimates.of(self.chosen)) else {
            return "nothing else is possible".to_owned();
        };
        let Some(of_rival) = estimates.of(rival) else { return String::new() };
        let mut reason = if cost < GAIN * own.parts.sum() {
            format!("{} has not been clearly cheaper for long enough", rival.name())
        } else if cost < own.parts.sum() {
            format!("{} is not clearly cheaper", rival.name())
        } else {
            let what = worst(&of_rival.parts, &own.parts).says(rival, of_rival, estimates);
            format!("{} {what}", rival.name())
        };
        if estimates.of(Protocol::Active).is_none() && own.refused >= 0.05 {
            reason.push_str(&format!(
                "; {:.0} % are repeated, of {:.0} messages of the client each: \
                 one message, or CALL, could be active",
                100.0 * own.refused,
                estimates.round_trips,
            ));
        }
        reason
    }
}

/// A part of a cost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Execution,
    Ordering,
    Bytes,
    Queue,
    Repeats,
    Votes,
    Others,
}

/// The part by which one cost exceeds another most.
fn worst(more: &Parts, less: &Parts) -> Part {
    let parts = [
        (Part::Execution, more.execution - less.execution),
        (Part::Ordering, more.ordering - less.ordering),
        (Part::Bytes, more.bytes - less.bytes),
        (Part::Queue, more.queue - less.queue),
        (Part::Repeats, more.repeats - less.repeats),
        (Part::Votes, more.votes - less.votes),
        (Part::Others, more.others - less.others),
    ];
    parts
        .into_iter()
        .max_by(|(_, one), (_, other)| one.total_cmp(other))
        .map_or(Part::Ordering, |(part, _)| part)
}

impl Part {
    fn says(self, rival: Protocol, of: &Estimate, estimates: &Estimates) -> String {
        match self {
            Part::Execution if rival == Protocol::Active => {
                format!("executes at {:.0} nodes", estimates.nodes)
            }
            Part::Execution => "takes longer to execute".to_owned(),
            Part::Ordering => "takes longer to be ordered".to_owned(),
            Part::Bytes => format!("orders {:.0} bytes", of.bytes),
            Part::Queue | Part::Others => "would keep the appliers busy".to_owned(),
            Part::Repeats => format!("would repeat {:.0} % of its attempts", 100.0 * of.refused),
            Part::Votes => "waits for a vote".to_owned(),
        }
    }
}
