//! A node that hears the others, and finds them at wrong addresses itself.

use cognate_replication::{NodeNumber, NodeState, OrderError, ProposeError};

use crate::support::until;
use crate::tcp::Trio;

/// It has everything, and nothing that is written there would be ordered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hears_a_leader_and_does_not_reach_it_says_so() {
    let mut trio = Trio::new(3);
    trio.start_all().await;
    trio.node(3).order("before").await;
    trio.same(1).await;
    trio.kill(3).await;
    for (node, other) in [(1, 2), (2, 1)] {
        trio.detours.insert((3, node), trio.addresses[&other]);
    }
    trio.start(3).await;
    let says_so = || {
        let (state, reason) = trio.node(3).order.state();
        let names = |node: NodeNumber| {
            let why = format!("nothing reaches node {node}, which leads; node ");
            reason.starts_with(&why) && reason.contains(&format!("; node {node}: "))
        };
        state == NodeState::Minority && (names(1) || names(2))
    };
    until("it says that it does not reach who leads", says_so).await;
    let proposed = trio.node(3).propose("nothing").await;
    assert!(matches!(proposed, Err(ProposeError::NotProposed(_))), "{proposed:?}");
    let barrier = trio.node(3).order.read_barrier().await;
    assert!(matches!(barrier, Err(OrderError::NoLeader(_))), "{barrier:?}");
    // What the others order comes to it all the same.
    trio.node(1).order("meanwhile").await;
    trio.same(2).await;
    trio.kill(3).await;
    trio.detours.clear();
    trio.start(3).await;
    trio.node(3).order("after").await;
    assert_eq!(trio.same(3).await, ["before", "meanwhile", "after"]);
}
