//! A node that takes what is ordered more slowly than the others order it, over the simulated
//! network: who is said to be slow, for how long, and who never is.

use std::time::Duration;

use cognate_replication::{NodeNumber, NodeState, PaceBounds};

use crate::sim::{NODES, Storm, simulated};
use crate::support::{FOR_EVER, Running};

const LIMIT: u64 = 10_000;
const PATIENCE: Duration = Duration::from_secs(3);
const SLOW: NodeNumber = 3;

/// Nodes of which all are level.
async fn level(seed: u64) -> Storm {
    let mut storm = Storm::new(seed);
    storm.pace = PaceBounds { lag_bytes: LIMIT, patience: PATIENCE };
    for node in 1..=NODES {
        storm.start(node).await;
    }
    let last = storm.running[&1].order("first").await;
    for node in storm.running.values() {
        node.until(last).await;
    }
    until_said(&storm, NodeState::Serving).await;
    storm
}

/// What each node says of the slow one: the bytes that writers wait for, and its state.
async fn said(storm: &Storm) -> Vec<(Option<u64>, Option<NodeState>)> {
    let mut all = Vec::new();
    for node in storm.running.values() {
        let rows = node.order.status().await;
        let row = rows.into_iter().find(|row| row.node == SLOW).unwrap();
        let slow = node.order.slow();
        assert!(slow.is_none_or(|slow| slow.node == SLOW), "{slow:?}");
        all.push((slow.map(|slow| slow.lag_bytes), row.state));
    }
    all
}

/// Waits until all nodes say this of the slow one, and that nobody waits for it; that it serves
/// also that it lacks little.
async fn until_said(storm: &Storm, state: NodeState) {
    let is_said = async |node: &Running| {
        let rows = node.order.status().await;
        let row = rows.into_iter().find(|row| row.node == SLOW).unwrap();
        let is_level = row.lag_bytes.is_some_and(|lag| lag <= LIMIT / 2);
        node.order.slow().is_none() && row.state == Some(state) && (state != NodeState::Serving || is_level)
    };
    let looking = async {
        loop {
            // All look each time, as nodes do.
            let mut all = true;
            for node in storm.running.values() {
                all &= is_said(node).await;
            }
            if all {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(FOR_EVER, looking).await.is_ok(), "{:?}", said(storm).await);
}

/// Orders more than the slow one may lack.
async fn order(storm: &Storm) {
    let long = "x".repeat(1000);
    let mut last = 0;
    for _ in 0..12 {
        last = storm.running[&1].order(&format!("{last}{long}")).await;
    }
    storm.running[&1].until(last).await;
    storm.running[&2].until(last).await;
    let has_it = async {
        while storm.running[&SLOW].order.marks().settled < last {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(FOR_EVER, has_it).await.is_ok(), "the slow one is sent everything");
}

#[test]
fn a_node_that_applies_slowly_is_waited_for_until_it_is_given_up() {
    simulated(async {
        let storm = level(11).await;
        // It is a little behind: nobody minds.
        storm.recorders[&SLOW].hold(true);
        let little = storm.running[&1].order("little").await;
        storm.running[&2].until(little).await;
        assert!(said(&storm).await.iter().all(|said| *said == (None, Some(NodeState::Serving))));
        // It is behind by more than the limit: all see that, itself included.
        order(&storm).await;
        for (slow, state) in said(&storm).await {
            assert!(slow.is_some_and(|lag| lag > 12_000), "{slow:?}");
            assert_eq!(state, Some(NodeState::Serving));
        }
        // It goes on, so nobody waits.
        storm.recorders[&SLOW].hold(false);
        storm.running[&SLOW].until(little + 12).await;
        assert!(said(&storm).await.iter().all(|said| *said == (None, Some(NodeState::Serving))));
        // It does not go on, although nobody writes: it is given up, and says so.
        storm.recorders[&SLOW].hold(true);
        order(&storm).await;
        assert!(said(&storm).await.iter().all(|(slow, _)| slow.is_some()));
        tokio::time::sleep(PATIENCE).await;
        said(&storm).await;
        until_said(&storm, NodeState::CatchingUp).await;
        let (_, reason) = storm.running[&SLOW].order.state();
        assert!(reason.contains("nobody waits for it"), "{reason}");
        order(&storm).await;
        assert!(said(&storm).await.iter().all(|(slow, _)| slow.is_none()), "nobody waits for it");
        // It catches up, and counts again.
        storm.recorders[&SLOW].hold(false);
        until_said(&storm, NodeState::Serving).await;
        storm.recorders[&SLOW].hold(true);
        order(&storm).await;
        assert!(said(&storm).await.iter().all(|(slow, _)| slow.is_some()));
        storm.recorders[&SLOW].hold(false);
        storm.end().await;
    });
}

#[test]
fn a_node_that_is_away_is_waited_for_by_nobody() {
    simulated(async {
        let mut storm = level(12).await;
        storm.recorders[&SLOW].hold(true);
        order(&storm).await;
        assert!(said(&storm).await.iter().all(|(slow, _)| slow.is_some()));
        // Cut off while others wait for it.
        for other in [1, 2] {
            storm.network.cut(SLOW, other);
            storm.network.cut(other, SLOW);
        }
        for node in [1, 2] {
            storm.running[&node].order.status().await;
            assert_eq!(storm.running[&node].order.slow(), None, "node {node}");
        }
        // Back after more than a moment, for which it counts as where it was, it has to come level.
        tokio::time::sleep(PATIENCE / 5).await;
        storm.network.heal();
        for node in [1, 2] {
            storm.running[&node].order.status().await;
            assert_eq!(storm.running[&node].order.slow(), None, "node {node}");
        }
        storm.recorders[&SLOW].hold(false);
        until_said(&storm, NodeState::Serving).await;
        // Dead, it is missed by nobody, either.
        storm.recorders[&SLOW].hold(true);
        order(&storm).await;
        assert!(said(&storm).await.iter().all(|(slow, _)| slow.is_some()));
        storm.lose(SLOW, cognate_env::sim::Loss::Process).await;
        for node in [1, 2] {
            storm.running[&node].order.status().await;
            assert_eq!(storm.running[&node].order.slow(), None, "node {node}");
        }
        storm.end().await;
    });
}
