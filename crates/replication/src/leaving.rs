//! When a voter may leave.
//!
//! Of the voters that are left a majority has to be there: without one nothing is ordered any more,
//! not even that the voter comes back. So the leader lets a voter leave only if enough of the
//! others answer: who is lost is removed before who is well. It waits for them, but not for long.
//! Who answers that its order has ended, as on a disk that is full, or that it is about to stop,
//! confirms nothing, and is as good as lost.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::consensus::NOT_LEADER;
use crate::entry::NodeNumber;
use crate::messages::{Kind, Nothing, Report};
use crate::order::Inner;
use crate::status::goes_on;

/// How long each of them may take to answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long it is looked whether enough of them do.
const LOOKS: Duration = Duration::from_secs(1);
/// Pause before it is looked again.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits for a bounded time until a node may leave; or else says why it may not. For the leader.
pub(crate) async fn until_spared(inner: &Inner, node: NodeNumber) -> Result<(), String> {
    let deadline = Instant::now() + LOOKS;
    loop {
        let view = inner.consensus.view();
        if !view.is_leader {
            return Err(NOT_LEADER.to_owned());
        }
        if !view.members.is_voter(node) {
            return Ok(());
        }
        // While the voters change there are two sets of them; the last one is to stay.
        let mut left = view.members.voters.last().cloned().unwrap_or_default();
        left.remove(&node);
        if left.is_empty() {
            return Err(format!("node {node} is the only one that votes"));
        }
        let present = present(inner, &left).await;
        if present > left.len() / 2 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let voters = left.len();
            return Err(format!(
                "node {node} cannot be removed now: {present} of the {voters} that would vote then take \
                 part, which is no majority"
            ));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// How many of these nodes are there, this one included.
async fn present(inner: &Inner, nodes: &BTreeSet<NodeNumber>) -> usize {
    let own = inner.identity.node();
    let others: Vec<NodeNumber> = nodes.iter().copied().filter(|node| *node != own).collect();
    let calls = others.iter().map(|node| inner.call::<Report>(*node, Kind::Report, &Nothing {}, PATIENCE));
    let answers = futures_util::future::join_all(calls).await;
    let there = answers.iter().flatten().filter(|report| goes_on(report));
    there.count() + usize::from(nodes.contains(&own))
}
