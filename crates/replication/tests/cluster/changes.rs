//! Changes of the members over the simulated network: two at the same time, and beside members that
//! answer and confirm nothing any more.

use std::time::Duration;

use cognate_replication::{Change, NodeNumber, NodeState, OrderError, Role};

use crate::sim::{Storm, simulated};
use crate::support::FOR_EVER;

/// Less than it takes until nobody waits any more for a node that does not answer.
const MEANWHILE: Duration = Duration::from_millis(250);

/// Nodes that have the same: which one leads, and the others.
async fn level(seed: u64, nodes: NodeNumber) -> (Storm, NodeNumber, Vec<NodeNumber>) {
    println!("seed {seed}");
    let mut storm = Storm::of(seed, nodes);
    for node in 1..=nodes {
        storm.start(node).await;
    }
    let first = storm.running[&1].order("first").await;
    for node in storm.running.values() {
        node.until(first).await;
    }
    let leads = |node: &NodeNumber| storm.running[node].order.role() == Role::Leader;
    let leader = (1..=nodes).find(leads).unwrap();
    let others = (1..=nodes).filter(|node| *node != leader).collect();
    (storm, leader, others)
}

/// What becomes of a change, which comes to its end.
async fn told(storm: &Storm, leader: NodeNumber, change: Change) -> Result<(), OrderError> {
    let changed = storm.running[&leader].order.change(change);
    tokio::time::timeout(FOR_EVER, changed).await.expect("it comes to its end")
}

fn is_refused(told: &Result<(), OrderError>, expected: &str) -> bool {
    matches!(told, Err(OrderError::Refused(why)) if why.contains(expected))
}

/// One of four is lost. Either of two could be spared, as long as the other one stays: without both
/// nothing would be ordered any more, not even that one of them comes back.
#[test]
fn who_leaves_is_counted_on_by_nobody() {
    simulated(async {
        let (storm, leader, others) = level(31, 4).await;
        let (one, two, lost) = (others[0], others[1], others[2]);
        for node in [leader, one, two] {
            storm.network.cut(node, lost);
            storm.network.cut(lost, node);
        }
        let later = async {
            // Whoever answers has told that it is there, and who is lost is waited for.
            tokio::time::sleep(MEANWHILE).await;
            told(&storm, leader, Change::Remove(two)).await
        };
        let (first, second) = tokio::join!(told(&storm, leader, Change::Remove(one)), later);
        first.unwrap();
        assert!(is_refused(&second, "1 of the 2 that would vote"), "{second:?}");
        storm.running[&leader].order("after").await;
        storm.end().await;
    });
}

/// A disk has failed: the node says so, and that is all that it still does.
#[test]
fn who_confirms_nothing_is_not_counted_on() {
    simulated(async {
        let (storm, leader, others) = level(32, 3).await;
        let (well, broken) = (others[0], others[1]);
        storm.disks[&broken].fail_sync_after(0);
        storm.running[&leader].order("noticed").await;
        storm.running[&broken].until_state(NodeState::Stopping).await;
        let refused = told(&storm, leader, Change::Remove(well)).await;
        assert!(is_refused(&refused, "1 of the 2 that would vote"), "{refused:?}");
        storm.running[&well].order("after").await;
        told(&storm, leader, Change::Remove(broken)).await.unwrap();
        storm.running[&well].order("of two").await;
        storm.end().await;
    });
}

/// The same of one that is to vote: it lacks next to nothing, and never gets it.
#[test]
fn who_confirms_nothing_does_not_come_to_vote() {
    simulated(async {
        let (storm, leader, others) = level(33, 3).await;
        let learner = others[0];
        told(&storm, leader, Change::Remove(learner)).await.unwrap();
        told(&storm, leader, Change::AddLearner(learner)).await.unwrap();
        let last = storm.running[&leader].order("for a learner").await;
        storm.running[&learner].until(last).await;
        storm.disks[&learner].fail_sync_after(0);
        storm.running[&leader].order("noticed").await;
        storm.running[&learner].until_state(NodeState::Stopping).await;
        let refused = told(&storm, leader, Change::Promote(learner)).await;
        assert!(is_refused(&refused, "cannot vote yet: it is stopping: the order has ended"), "{refused:?}");
        storm.running[&leader].order("after").await;
        storm.end().await;
    });
}
