//! When a learner may vote.
//!
//! From when it votes it may be needed for a majority: of two nodes at once, of four as soon as
//! another one is away. What it lacks then, whoever writes waits for; and if it is not there,
//! nothing is ordered any more, not even that its vote is taken back. So the leader lets it vote
//! once it answers, its order has not ended, and it lacks next to nothing. It waits for that, but
//! not for long: a state may be on its way for hours, and who asks is told.

use std::time::Duration;

use tokio::time::Instant;

use crate::consensus::NOT_LEADER;
use crate::entry::NodeNumber;
use crate::messages::{Kind, Nothing, Report};
use crate::order::Inner;
use crate::status::goes_on;

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// Pause before it is looked again.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits for a bounded time until a learner may vote; or else says why it may not. For the leader.
pub(crate) async fn until_near(inner: &Inner, node: NodeNumber) -> Result<(), String> {
    let deadline = Instant::now() + inner.settings.timing.answer;
    loop {
        let view = inner.consensus.view();
        if !view.is_leader {
            return Err(NOT_LEADER.to_owned());
        }
        if view.members.is_voter(node) {
            return Ok(());
        }
        if !view.members.nodes.contains(&node) {
            return Err(format!("node {node} is no member"));
        }
        // Of one that has gone it may be known that it lacked nothing.
        let answer = inner.call::<Report>(node, Kind::Report, &Nothing {}, PATIENCE).await;
        let report =
            answer.map_err(|why| format!("node {node} does not answer, so it cannot vote: {why}"))?;
        if !goes_on(&report) {
            // It answers, and confirms nothing any more.
            let why = if report.reason.is_empty() { "as planned" } else { report.reason.as_str() };
            return Err(format!("node {node} cannot vote yet: it is stopping: {why}"));
        }
        let matched = view.matched.get(&node).copied().flatten();
        let Some(missing) = lacks(inner, matched) else { return Ok(()) };
        if Instant::now() >= deadline {
            return Err(format!("node {node} cannot vote yet: it lacks {missing}"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What keeps a node from voting that has everything up to and with the entry at `matched`. It may
/// lack what one message can hold.
fn lacks(inner: &Inner, matched: Option<u64>) -> Option<String> {
    // What it has not got and the log has not any more is in a state, which it is sent first.
    let Some(matched) = matched.filter(|index| index + 1 >= inner.log.base().next_index()) else {
        return Some("the state of the others".to_owned());
    };
    let (bytes, _) = inner.log.lag_between(Some(matched), inner.settled.borrow().index);
    let most = inner.settings.limits.append_bytes as u64;
    (bytes > most).then(|| format!("{bytes} bytes of what the others have, and may lack {most}"))
}
