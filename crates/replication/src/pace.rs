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
//! Little is half of the limit. From anywhere a node that does not take part goes to *away*; one
//! that was level or slow only after it has not been heard, or had no way to a leader, for a moment
//! ([`Phase::Unheard`]). Otherwise a machine that is too busy to answer in time would stop the
//! waiting just where it is needed. Meanwhile it holds up nobody. Each node looks at all, and so
//! they agree but for moments; a node that finds itself behind, or that comes back and lacks more
//! than little, says that it catches up, and the others take its word.

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

/// What a node has found of itself.
#[derive(Debug, Clone)]
pub(crate) struct OwnPace {
    /// It was level with the others, and has not been given up since.
    pub(crate) keeps_up: bool,
    /// Why it is treated as one that catches up, if it was given up.
    pub(crate) behind: Option<String>,
    /// Bytes that a node lacks at most that becomes level.
    pub(crate) little: u64,
}

/// A node counts as away that has not been heard for this part of the patience.
const UNHEARD: u32 = 5;

/// Where a node is, as the module's drawing has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Away,
    Level,
    /// Since when.
    Slow(Duration),
    /// Has not been heard, or had no way to a leader, since then. It was level before, or slow
    /// since another time.
    Unheard {
        since: Duration,
        slow: Option<Duration>,
    },
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
            let before = match self.phases.get(&row.node) {
                Some(Phase::Unheard { since, .. }) if !self.is_moment(*since, now) => Phase::Away,
                phase => phase.copied().unwrap_or(Phase::Away),
            };
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
        let (Some(lag), true) = (row.lag_bytes, votes && is_here) else {
            return self.without(before, now, row);
        };
        // What this node says of itself may be what was found here.
        let catches_up = row.node != self.own && row.state == Some(NodeState::CatchingUp);
        let limit = self.bounds.lag_bytes;
        match before {
            Phase::Away | Phase::Behind(_) if lag <= limit / 2 && !catches_up => Phase::Level,
            Phase::Away | Phase::Behind(_) => before,
            _ if catches_up => Phase::Behind(lag),
            _ if lag <= limit => Phase::Level,
            Phase::Level | Phase::Unheard { slow: None, .. } => Phase::Slow(now),
            Phase::Slow(since) | Phase::Unheard { slow: Some(since), .. } => {
                let is_over = now.saturating_sub(since) >= self.bounds.patience;
                if is_over { Phase::Behind(lag) } else { Phase::Slow(since) }
            }
        }
    }

    /// Where a node is that does not take part at present.
    fn without(&self, before: Phase, now: Duration, row: &NodeRow) -> Phase {
        let is_unheard = row.state.is_none_or(|state| state == NodeState::Minority);
        let is_voter = row.role.is_none_or(|role| role != Role::Learner);
        let (since, slow) = match before {
            Phase::Level => (now, None),
            Phase::Slow(slow) => (now, Some(slow)),
            Phase::Unheard { since, slow } => (since, slow),
            Phase::Away | Phase::Behind(_) => return Phase::Away,
        };
        if is_unheard && is_voter { Phase::Unheard { since, slow } } else { Phase::Away }
    }

    fn is_moment(&self, since: Duration, now: Duration) -> bool {
        now.saturating_sub(since) < self.bounds.patience / UNHEARD
    }

    /// The node that whoever writes should wait for: of several the one that lacks most.
    pub(crate) fn slow(&self) -> Option<SlowNode> {
        self.slow
    }

    /// What this node has found of itself.
    pub(crate) fn own(&self) -> OwnPace {
        OwnPace { keeps_up: self.keeps_up(), behind: self.behind(), little: self.little() }
    }

    fn keeps_up(&self) -> bool {
        let own = self.phases.get(&self.own);
        matches!(own, Some(Phase::Level | Phase::Slow(_) | Phase::Unheard { .. }))
    }

    fn little(&self) -> u64 {
        match self.bounds.lag_bytes {
            0 => u64::MAX,
            limit => limit / 2,
        }
    }

    fn behind(&self) -> Option<String> {
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

    /// On a machine that is too busy a slow node answers late, too, or hears its leader late.
    #[test]
    fn who_is_not_heard_for_a_moment_is_waited_for_as_before() {
        let silent = NodeRow { state: None, role: None, lag_bytes: None, ..row(3, NodeState::Serving, 0) };
        for gone in [silent, row(3, NodeState::Minority, 9 * LIMIT)] {
            for lag in [0, 2 * LIMIT] {
                let mut pace =
                    Pace::new(1, PaceBounds { lag_bytes: LIMIT, patience: Duration::from_secs(5) });
                let mut see = |tenths: u64, third: &NodeRow| {
                    let rows = [row(1, NodeState::Serving, 0), third.clone()];
                    pace.see(Duration::from_millis(100 * tenths), &rows);
                    pace.slow()
                };
                assert_eq!(see(0, &row(3, NodeState::Serving, 0)), None);
                assert_eq!(see(1, &row(3, NodeState::Serving, lag)).is_some(), lag > LIMIT);
                for tenths in 2..11 {
                    assert_eq!(see(tenths, &gone), None, "it holds up nobody meanwhile");
                }
                assert!(see(11, &row(3, NodeState::Serving, 2 * LIMIT)).is_some(), "{gone:?}");
                // A second is more than a moment.
                assert_eq!(see(12, &gone), None);
                assert_eq!(see(22, &gone), None);
                assert_eq!(see(23, &row(3, NodeState::Serving, 2 * LIMIT)), None);
            }
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
