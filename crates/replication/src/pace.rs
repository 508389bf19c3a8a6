//! Which node is so slow that whoever writes should wait for it. Pure: what is seen of the nodes,
//! and when, goes in; the verdict comes out.
//!
//! A node that applies more slowly than the others order lets its log grow, and what its readers
//! see grow old. So writers wait for it, for a bounded time, as long as it lacks more than a limit.
//! Others must not wait for it, whatever it lacks: a node that is away, has just come back, or
//! learns, is a minority's affair. Nor may one node hold up everybody for ever: one that does not
//! come below the limit for a bounded time, although those who write wait, is treated as one that
//! catches up.
//!
//! ```text
//!               lacks little                lacks more than the limit
//!    ┌──────┐ ──────────────▶ ┌───────┐ ─────────────────────────────▶ ┌──────────────┐
//!    │ away │                 │ level │                                │ slow: it     │
//!    └──────┘ ◀────────────── └───────┘ ◀───────────────────────────── │ holds up     │
//!               is not heard,   ▲     lacks no more than the limit     │ who writes   │
//!               learns, stops   │                                      └──────┬───────┘
//!                               │ lacks little    ┌────────┐                  │
//!                               └──────────────── │ behind │ ◀────────────────┘
//!                                                 └────────┘   for too long
//! ```
//!
//! Little is half of the limit. From anywhere a node that does not take part goes to *away*. Each
//! node looks at all, and so they agree but for moments; a node that finds itself behind says that
//! it catches up, and the others take its word.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::entry::NodeNumber;
use crate::status::{NodeRow, NodeState, Role};

/// When a node counts as slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceBounds {
    /// Bytes of settled requests that a node may lack, be it that it has not got them or that it
    /// has not applied them; 0: whatever it lacks.
    pub lag_bytes: u64,
    /// For how long a node may lack more before it is treated as one that catches up.
    pub patience: Duration,
}

impl Default for PaceBounds {
    fn default() -> PaceBounds {
        PaceBounds { lag_bytes: 64 << 20, patience: Duration::from_secs(15) }
    }
}

/// The node that whoever writes should wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowNode {
    /// Its number.
    pub node: NodeNumber,
    /// Bytes of settled requests that it lacks.
    pub lag_bytes: u64,
}

/// Where a node is, as the module's drawing has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Away,
    Level,
    /// Since when.
    Slow(Duration),
    /// What it lacked when it was given up.
    Behind(u64),
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Pace {
    own: NodeNumber,
    bounds: PaceBounds,
    phases: BTreeMap<NodeNumber, Phase>,
    slow: Option<SlowNode>,
}

impl Pace {
    pub(crate) fn new(own: NodeNumber, bounds: PaceBounds) -> Pace {
        Pace { own, bounds, phases: BTreeMap::new(), slow: None }
    }

    /// Takes what was seen of all nodes at a time, which never goes back.
    pub(crate) fn see(&mut self, now: Duration, rows: &[NodeRow]) {
        self.phases.retain(|node, _| rows.iter().any(|row| row.node == *node));
        self.slow = None;
        if self.bounds.lag_bytes == 0 {
            return;
        }
        for row in rows {
            let before = self.phases.get(&row.node).copied().unwrap_or(Phase::Away);
            let phase = self.next(before, now, row);
            self.phases.insert(row.node, phase);
            let lag_bytes = row.lag_bytes.unwrap_or(0);
            let is_slower = self.slow.is_none_or(|slow| slow.lag_bytes < lag_bytes);
            if matches!(phase, Phase::Slow(_)) && is_slower {
                self.slow = Some(SlowNode { node: row.node, lag_bytes });
            }
        }
    }

    fn next(&self, before: Phase, now: Duration, row: &NodeRow) -> Phase {
        let votes = matches!(row.role, Some(Role::Leader | Role::Follower));
        let is_here = matches!(row.state, Some(NodeState::Serving | NodeState::CatchingUp));
        let (Some(lag), true) = (row.lag_bytes, votes && is_here) else { return Phase::Away };
        // What this node says of itself may be what was found here.
        let catches_up = row.node != self.own && row.state == Some(NodeState::CatchingUp);
        let limit = self.bounds.lag_bytes;
        match before {
            Phase::Away | Phase::Behind(_) if lag <= limit / 2 && !catches_up => Phase::Level,
            Phase::Away | Phase::Behind(_) => before,
            Phase::Level | Phase::Slow(_) if catches_up => Phase::Behind(lag),
            Phase::Level | Phase::Slow(_) if lag <= limit => Phase::Level,
            Phase::Slow(since) if now.saturating_sub(since) >= self.bounds.patience => Phase::Behind(lag),
            Phase::Slow(since) => Phase::Slow(since),
            Phase::Level => Phase::Slow(now),
        }
    }

    /// The node that whoever writes should wait for: of several the one that lacks most.
    pub(crate) fn slow(&self) -> Option<SlowNode> {
        self.slow
    }

    /// Whether this node was level with the others, and has not been given up since.
    pub(crate) fn keeps_up(&self) -> bool {
        matches!(self.phases.get(&self.own), Some(Phase::Level | Phase::Slow(_)))
    }

    /// Why this node is treated as one that catches up, if it was given up.
    pub(crate) fn behind(&self) -> Option<String> {
        let Some(Phase::Behind(lag)) = self.phases.get(&self.own) else { return None };
        let PaceBounds { lag_bytes, patience } = self.bounds;
        Some(format!(
            "it lacked {lag} bytes after {} s, the limit is {lag_bytes}: nobody waits for it until it lacks half of that",
            patience.as_secs_f64()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1000;

    fn row(node: NodeNumber, state: NodeState, lag: u64) -> NodeRow {
        NodeRow {
            node,
            address: None,
            role: Some(if node == 1 { Role::Leader } else { Role::Follower }),
            state: Some(state),
            applied: None,
            committed: None,
            lag_bytes: Some(lag),
            lag_ms: None,
            reason: None,
        }
    }

    /// What node 1 sees, second by second.
    struct Watch {
        pace: Pace,
        second: u64,
    }

    impl Watch {
        fn of(own: NodeNumber) -> Watch {
            let bounds = PaceBounds { lag_bytes: LIMIT, patience: Duration::from_secs(3) };
            Watch { pace: Pace::new(own, bounds), second: 0 }
        }

        /// Node 3 is seen so; the others are level. The answer: what it holds writers up with.
        fn see(&mut self, third: NodeRow) -> Option<u64> {
            self.second += 1;
            let rows = [row(1, NodeState::Serving, 0), row(2, NodeState::Serving, 3), third];
            self.pace.see(Duration::from_secs(self.second), &rows);
            self.pace.slow().map(|slow| {
                assert_eq!(slow.node, 3);
                slow.lag_bytes
            })
        }

        fn serving(&mut self, lag: u64) -> Option<u64> {
            self.see(row(3, NodeState::Serving, lag))
        }
    }

    #[test]
    fn a_node_that_serves_and_lacks_more_than_the_limit_holds_writers_up() {
        let mut watch = Watch::of(1);
        assert_eq!(watch.serving(0), None);
        assert_eq!(watch.serving(LIMIT), None);
        assert_eq!(watch.serving(LIMIT + 1), Some(LIMIT + 1));
        assert_eq!(watch.serving(LIMIT + 9), Some(LIMIT + 9));
        assert_eq!(watch.serving(LIMIT), None);
    }

    #[test]
    fn one_that_is_slow_and_goes_on_is_waited_for_again_and_again() {
        let mut watch = Watch::of(1);
        watch.serving(0);
        for _ in 0..20 {
            assert_eq!(watch.serving(2 * LIMIT), Some(2 * LIMIT));
            assert_eq!(watch.serving(LIMIT + 1), Some(LIMIT + 1));
            assert_eq!(watch.serving(LIMIT - 1), None);
        }
    }

    #[test]
    fn one_that_stays_above_the_limit_is_given_up_until_it_lacks_little() {
        for own in [1, 3] {
            let mut watch = Watch::of(own);
            watch.serving(0);
            for _ in 0..3 {
                assert_eq!(watch.serving(5 * LIMIT), Some(5 * LIMIT));
            }
            assert_eq!(watch.serving(6 * LIMIT), None, "three seconds are over");
            assert_eq!(watch.pace.behind().is_some(), own == 3);
            assert_eq!(watch.pace.keeps_up(), own == 1);
            // From then on it says that it catches up, until it finds that it has.
            let state = if own == 3 { NodeState::CatchingUp } else { NodeState::Serving };
            assert_eq!(watch.see(row(3, state, LIMIT + 1)), None);
            assert_eq!(watch.see(row(3, state, LIMIT / 2 + 1)), None);
            assert_eq!(watch.see(row(3, state, LIMIT / 2)), None);
            assert_eq!(watch.pace.behind(), None);
            assert_eq!(watch.serving(2 * LIMIT), Some(2 * LIMIT), "it is waited for again");
        }
    }

    #[test]
    fn who_is_away_or_catches_up_or_learns_holds_up_nobody() {
        let silent = NodeRow { state: None, ..row(3, NodeState::Serving, 9 * LIMIT) };
        let unknown = NodeRow { lag_bytes: None, ..row(3, NodeState::Serving, 0) };
        let learner = NodeRow { role: Some(Role::Learner), ..row(3, NodeState::Serving, 9 * LIMIT) };
        let others = [NodeState::Minority, NodeState::Diverged, NodeState::Stopping];
        let others = others.map(|state| row(3, state, 9 * LIMIT));
        for gone in [silent, unknown, learner].into_iter().chain(others) {
            let mut watch = Watch::of(1);
            watch.serving(0);
            assert!(watch.serving(9 * LIMIT).is_some());
            assert_eq!(watch.see(gone), None);
            // Back, it has to come level first, whatever it calls itself.
            assert_eq!(watch.serving(9 * LIMIT), None);
            assert_eq!(watch.see(row(3, NodeState::CatchingUp, 0)), None);
            assert_eq!(watch.serving(2 * LIMIT), None);
            assert_eq!(watch.serving(LIMIT / 2), None);
            assert!(watch.serving(2 * LIMIT).is_some());
            // And its word that it catches up is taken.
            assert_eq!(watch.see(row(3, NodeState::CatchingUp, 2 * LIMIT)), None);
        }
    }

    #[test]
    fn of_several_the_slowest_is_named_and_without_a_limit_nobody() {
        let rows = |second, third| {
            [
                row(1, NodeState::Serving, 0),
                row(2, NodeState::Serving, second),
                row(3, NodeState::Serving, third),
            ]
        };
        let mut pace = Watch::of(1).pace;
        pace.see(Duration::ZERO, &rows(0, 0));
        pace.see(Duration::ZERO, &rows(LIMIT + 2, LIMIT + 1));
        assert_eq!(pace.slow(), Some(SlowNode { node: 2, lag_bytes: LIMIT + 2 }));
        pace.see(Duration::ZERO, &rows(LIMIT + 2, LIMIT + 3));
        assert_eq!(pace.slow(), Some(SlowNode { node: 3, lag_bytes: LIMIT + 3 }));
        let mut pace = Pace::new(1, PaceBounds { lag_bytes: 0, patience: Duration::ZERO });
        pace.see(Duration::ZERO, &rows(0, 0));
        pace.see(Duration::ZERO, &rows(u64::MAX, 9));
        assert_eq!(pace.slow(), None);
    }
}
