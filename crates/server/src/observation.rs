//! What a node sees of all nodes: the rows that SQL shows of them, the one that who writes waits
//! for, and whether the others have come to the same.
//!
//! Nodes compare digests: each asks the others for theirs at a position that it has applied, and
//! one whose digest differs from what a majority has, or else most have, stops serving: it takes no
//! writes, shows nobody its rows, sends nobody its state, and lets another node lead. So does a
//! node that cannot apply what is ordered lead no more; what it has is right, and may be read. One
//! of which a statement has met a damaged file is treated as that, and sends nobody its state.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cognate_engine::Database;
use cognate_replication::SlowNode;
use cognate_replication::entry::NodeNumber;
use cognate_replication::order::TotalOrder;
use cognate_replication::status::{NodeState, Role};
use cognate_sql::session::{self, NodeRow, SqlDatabase, hex};
use tokio::sync::watch;

use crate::membership::ClusterConfig;

/// How often SQL is told how the nodes are.
pub(crate) const STATUS_PERIOD: Duration = Duration::from_millis(200);
/// How often digests are compared.
const COMPARE_PERIOD: Duration = Duration::from_secs(1);
/// A node without a majority refuses writes at once after this time; before, they wait.
const PATIENCE: Duration = Duration::from_secs(3);

/// Tells SQL how the nodes are, until the node stops.
pub(crate) async fn show(
    order: TotalOrder,
    database: SqlDatabase,
    config: ClusterConfig,
    mut stopped: watch::Receiver<bool>,
) {
    let mut closing = None;
    let kept = config.log_kept();
    let kept = format!("up to {kept} bytes of the log stay for it (cognate.cluster_log_kept)");
    loop {
        let nodes = database.nodes();
        let (state, reason) = order.state();
        let since = *closing.get_or_insert_with(Instant::now);
        let is_open = match state {
            NodeState::Serving | NodeState::CatchingUp => {
                closing = None;
                true
            }
            // A new leader is there soon, mostly: who writes meanwhile waits.
            NodeState::Minority => since.elapsed() < PATIENCE,
            NodeState::Diverged | NodeState::Stopping => false,
        };
        let why = || format!("Node {} is {}: {reason}.", config.node, state.name());
        nodes.close((!is_open).then(why));
        nodes.cut_off(!is_open && state == NodeState::Minority);
        let rows = order.status().await;
        let slow = order.slow();
        let rows = rows.into_iter().map(|row| NodeRow {
            node: u16::try_from(row.node).unwrap_or(u16::MAX),
            address: row.address.unwrap_or_default(),
            role: row.role.map(|role| role.name()),
            state: row.state.map(|state| state.name()),
            applied: row.applied,
            committed: row.committed,
            lag_bytes: row.lag_bytes,
            lag_ms: row.lag_ms,
            digest_position: None,
            digest: None,
            reason: match (row.reason, row.state, row.role) {
                // It is a member, and does not answer.
                (Some(why), None, Some(_)) => Some(format!("{why}; {kept}")),
                (Some(why), ..) => Some(why),
                (None, ..) => slow.and_then(|slow| waited_for(slow, row.node, &config)),
            },
        });
        let mut rows: Vec<NodeRow> = rows.collect();
        for row in &mut rows {
            let position = match row.node == config.node {
                true => database.engine().applied(),
                false => row.applied.unwrap_or(0),
            };
            let known = digest_of(&order, database.engine(), &config, row.node, position).await;
            (row.digest_position, row.digest) = (known.map(|_| position), known.map(|digest| hex(&digest)));
        }
        nodes.show(rows);
        nodes.wait_for(slow.map(|SlowNode { node, lag_bytes }| session::SlowNode {
            node: u16::try_from(node).unwrap_or(u16::MAX),
            lag_bytes,
        }));
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(STATUS_PERIOD) => {}
        }
    }
}

/// What is said of a node that serves, if who writes waits for it.
fn waited_for(slow: SlowNode, node: NodeNumber, config: &ClusterConfig) -> Option<String> {
    let limit = config.pace().lag_bytes;
    (slow.node == node).then(|| format!("it is slow: who writes waits until it lacks {limit} bytes or less"))
}

/// A node's digest up to a position, if it can be had.
async fn digest_of(
    order: &TotalOrder,
    engine: &Database,
    config: &ClusterConfig,
    node: u16,
    position: u64,
) -> Option<[u8; 32]> {
    if node == config.node {
        return own_digest(engine, position).await;
    }
    let question = Bytes::copy_from_slice(&position.to_be_bytes());
    let asked = order.ask(NodeNumber::from(node), question);
    let answer = tokio::time::timeout(STATUS_PERIOD, asked).await.ok()?.ok()?;
    answer.as_ref().try_into().ok()
}

/// This node's digest up to a position, if it is known. How things stand is locked for as long as
/// an image of it is made, and the threads here are those of the consensus: so another one waits.
pub(crate) async fn own_digest(engine: &Database, position: u64) -> Option<[u8; 32]> {
    let engine = engine.clone();
    tokio::task::spawn_blocking(move || engine.digest_at(position)).await.ok().flatten()
}

/// Compares digests with the others', until the node stops.
pub(crate) async fn compare(
    order: TotalOrder,
    database: SqlDatabase,
    config: ClusterConfig,
    differs: Arc<OnceLock<String>>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(COMPARE_PERIOD) => {}
        }
        if let Some(why) = found(&database, order.members().nodes.len())
            && differs.set(why.clone()).is_ok()
        {
            tracing::error!("this node leaves: {why}");
            order.set_diverged(Some(why));
        }
        if is_to_step_down(order.role(), order.state().0, config.node, &database.nodes().rows()) {
            match order.hand_over().await {
                Ok(leader) if leader == Some(order.node()) => {
                    tracing::warn!("this node cannot go on, and leads: nobody else can be asked to");
                }
                Ok(leader) => tracing::info!(?leader, "this node cannot go on, and lets another one lead"),
                Err(error) => tracing::warn!(%error, "this node cannot go on, and leads all the same"),
            }
        }
        let engine = database.engine();
        let position = engine.applied();
        let Some(own) = own_digest(engine, position).await else { continue };
        let mut others = BTreeMap::new();
        for node in config.peers.keys().filter(|node| **node != config.node) {
            if let Some(digest) = digest_of(&order, engine, &config, *node, position).await {
                others.insert(NodeNumber::from(*node), digest);
            }
        }
        if is_out(own, &others, config.peers.len(), order.leader()) {
            let why = differs_at(position, &database.nodes().defects());
            tracing::error!("this node leaves: {why}");
            let _ = differs.set(why.clone());
            database.nodes().differ(why.clone());
            order.set_diverged(Some(why));
        }
    }
}

/// What the sessions here have come upon, in a cluster of so many members. Who is alone goes on
/// with a damaged file: there is nobody to serve instead, or to rebuild it from.
fn found(database: &SqlDatabase, members: usize) -> Option<String> {
    let nodes = database.nodes();
    nodes.difference().or_else(|| nodes.damage().filter(|_| members > 1))
}

/// Whether this node is to let another one lead: what is a leader's to do besides the order (to
/// send its state, to push what is in doubt) is done by what it has. Where nobody else serves, that
/// would help nobody.
fn is_to_step_down(role: Role, state: NodeState, node: u16, rows: &[NodeRow]) -> bool {
    let serving = |row: &NodeRow| row.node != node && row.state == Some(NodeState::Serving.name());
    let can_lead = |row: &NodeRow| row.role == Some(Role::Follower.name());
    let others_serve = rows.iter().any(|row| serving(row) && can_lead(row));
    role == Role::Leader && state == NodeState::Diverged && others_serve
}

/// Why a node leaves whose digest differs. Where statements of the order have met defects here that
/// others may not have met, they are the likely cause.
fn differs_at(position: u64, defects: &[String]) -> String {
    let why = format!("its digest at position {position} differs from the others'");
    match defects {
        [] => why,
        defects => {
            format!("{why}; statements have failed here with internal errors at {}", defects.join("; at "))
        }
    }
}

/// Whether this node is to leave, by its digest and those of others of so many nodes: a majority
/// has another one. Where no majority has the same, those leave who are fewer; and of two halves
/// the one without the leader, since a cluster of two has no other majority.
fn is_out(
    own: [u8; 32],
    others: &BTreeMap<NodeNumber, [u8; 32]>,
    nodes: usize,
    leader: Option<NodeNumber>,
) -> bool {
    let majority = nodes / 2 + 1;
    let having = |digest: &[u8; 32]| others.values().filter(|other| *other == digest).count();
    let equal = 1 + having(&own);
    others.values().filter(|digest| **digest != own).any(|digest| {
        let count = having(digest);
        let leads = leader.is_some_and(|leader| others.get(&leader) == Some(digest));
        count >= majority || equal < majority && (count > equal || count == equal && leads)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether node 1 leaves, if its digest is 0 and those of the nodes from 2 on are these.
    fn leaves(others: &[u8], nodes: usize, leader: NodeNumber) -> bool {
        let others: BTreeMap<NodeNumber, [u8; 32]> =
            (2..).zip(others).map(|(node, digest)| (node, [*digest; 32])).collect();
        is_out([0; 32], &others, nodes, Some(leader))
    }

    #[test]
    fn who_differs_from_the_others_leaves() {
        assert!(!leaves(&[0, 0], 3, 2));
        assert!(leaves(&[7, 7], 3, 1), "whoever leads");
        assert!(!leaves(&[7, 0], 3, 2), "the other one does");
        assert!(!leaves(&[], 3, 2), "nobody answers");
        assert!(leaves(&[7, 7], 5, 1), "more have it, although no majority answers");
        assert!(!leaves(&[7, 8], 3, 1), "all differ: the others go by the leader");
    }

    #[test]
    fn who_differs_says_where_it_has_met_a_defect() {
        assert_eq!(differs_at(9, &[]), "its digest at position 9 differs from the others'");
        let defects = ["position 5: no such node".to_owned(), "position 7: no place".to_owned()];
        let why = differs_at(9, &defects);
        assert!(why.starts_with("its digest at position 9 differs"), "{why}");
        assert!(why.ends_with("at position 5: no such node; at position 7: no place"), "{why}");
    }

    #[test]
    fn who_differs_does_not_lead_if_another_one_can() {
        let row = |node, role: Role, state: NodeState| NodeRow {
            node,
            role: Some(role.name()),
            state: Some(state.name()),
            ..NodeRow::default()
        };
        let own = row(1, Role::Leader, NodeState::Diverged);
        let goes = |role, state, third| {
            let away = NodeRow { node: 2, role: Some(Role::Follower.name()), ..NodeRow::default() };
            is_to_step_down(role, state, 1, &[own.clone(), away, third])
        };
        let serving = row(3, Role::Follower, NodeState::Serving);
        assert!(goes(Role::Leader, NodeState::Diverged, serving.clone()));
        assert!(!goes(Role::Leader, NodeState::Serving, serving.clone()));
        assert!(!goes(Role::Follower, NodeState::Diverged, serving));
        assert!(!goes(Role::Leader, NodeState::Diverged, row(3, Role::Learner, NodeState::Serving)));
        assert!(!goes(Role::Leader, NodeState::Diverged, row(3, Role::Follower, NodeState::Diverged)));
    }

    /// Two truths are served by nobody.
    #[test]
    fn of_two_halves_the_one_without_the_leader_leaves() {
        assert!(leaves(&[7], 2, 2));
        assert!(!leaves(&[7], 2, 1));
        assert!(leaves(&[0, 7, 7], 4, 4));
        assert!(!leaves(&[0, 7, 7], 4, 2));
    }
}
