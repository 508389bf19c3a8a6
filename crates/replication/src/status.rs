//! What is said of the nodes of a cluster: the rows of `cognate_nodes`, and how a node judges
//! itself. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::codec::{Coded, Malformed, Reader};
use crate::entry::{Members, NodeNumber, Position};
use crate::messages::Report;
use crate::net::{LOST, OTHER_DATA};
use crate::pace::OwnPace;

/// What a node is in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It puts requests into the order.
    Leader,
    /// It votes.
    Follower,
    /// It receives everything and does not vote.
    Learner,
}

/// How a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// It takes part.
    Serving,
    /// It is behind, and comes closer.
    CatchingUp,
    /// It hears no leader, does not reach the one that it hears, or leads and hears no majority.
    Minority,
    /// The application found that its state differs from the others'.
    Diverged,
    /// It is about to end.
    Stopping,
}

impl Role {
    /// As `cognate_nodes` has it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Leader => "leader",
            Role::Follower => "follower",
            Role::Learner => "learner",
        }
    }
}

impl NodeState {
    /// As `cognate_nodes` has it.
    pub fn name(self) -> &'static str {
        match self {
            NodeState::Serving => "serving",
            NodeState::CatchingUp => "catching_up",
            NodeState::Minority => "minority",
            NodeState::Diverged => "diverged",
            NodeState::Stopping => "stopping",
        }
    }
}

impl Coded for Role {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    fn get(from: &mut Reader) -> Result<Role, Malformed> {
        [Role::Leader, Role::Follower, Role::Learner]
            .get(usize::from(u8::get(from)?))
            .copied()
            .ok_or(Malformed("no role"))
    }
}

impl Coded for NodeState {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    fn get(from: &mut Reader) -> Result<NodeState, Malformed> {
        use NodeState::{CatchingUp, Diverged, Minority, Serving, Stopping};
        [Serving, CatchingUp, Minority, Diverged, Stopping]
            .get(usize::from(u8::get(from)?))
            .copied()
            .ok_or(Malformed("no state of a node"))
    }
}

/// A row of `cognate_nodes`, but for what only the application knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// The node's number.
    pub node: NodeNumber,
    /// Its address between nodes, by the list of the node that was asked.
    pub address: Option<String>,
    /// Its role; none if nobody knows.
    pub role: Option<Role>,
    /// How it is; none if it does not answer.
    pub state: Option<NodeState>,
    /// The last position that its application has applied.
    pub applied: Option<Position>,
    /// The last position that it knows to be settled.
    pub committed: Option<Position>,
    /// Bytes of settled requests that it lacks: what it has not got, as the leader sees it, and
    /// what it has not applied, as it says itself.
    pub lag_bytes: Option<u64>,
    /// For how long the first of them has been settled, or with the leader, in milliseconds.
    pub lag_ms: Option<u64>,
    /// Why it is not serving, if it is not.
    pub reason: Option<String>,
}

impl NodeRow {
    /// Whether others refuse the node, since it has not the data with which it was here before.
    pub fn has_lost_data(&self) -> bool {
        let said = |what: &str| format!("node {} {what}", self.node);
        let reason = self.reason.as_deref().unwrap_or_default();
        [OTHER_DATA, LOST].into_iter().any(|what| reason.contains(&said(what)))
    }
}

/// What a node judges itself by.
#[derive(Debug, Clone)]
pub(crate) struct Signs {
    pub(crate) is_leader: bool,
    /// Since when no majority has answered this leader.
    pub(crate) quorum_age: Option<Duration>,
    /// Since when no leader was heard of.
    pub(crate) leader_age: Option<Duration>,
    /// A leader is lost after this time.
    pub(crate) patience: Duration,
    /// The leader, if it has been heard and not reached for longer than a proposal waits.
    pub(crate) unreached: Option<NodeNumber>,
    /// Settled entries that a majority has and this node does not know of.
    pub(crate) entries_behind: u64,
    /// Requests that are settled here and not applied.
    pub(crate) requests_behind: u64,
    /// Bytes of them; not counted for a node that keeps up.
    pub(crate) bytes_behind: u64,
    /// If it keeps up, it was level with the others before: what it lacks now makes it a slow node,
    /// not one that catches up.
    pub(crate) pace: OwnPace,
    pub(crate) is_stopping: bool,
    /// Why the order has ended.
    pub(crate) failure: Option<String>,
    /// What the application found.
    pub(crate) divergence: Option<String>,
}

/// Since when this node has heard the one that leads, and not reached it: connections are those of
/// who dials.
#[derive(Debug, Default)]
pub(crate) struct Unreached(Option<(NodeNumber, Duration)>);

impl Unreached {
    /// Takes in which leader is heard and cannot be reached now, if so. Returns it if that has been
    /// so for longer than `patience`: who was away is dialed again within a second.
    pub(crate) fn see(
        &mut self,
        now: Duration,
        patience: Duration,
        leader: Option<NodeNumber>,
    ) -> Option<NodeNumber> {
        let since = |leader: NodeNumber| match self.0 {
            Some((before, since)) if before == leader => since,
            _ => now,
        };
        self.0 = leader.map(|leader| (leader, since(leader)));
        let (leader, since) = self.0?;
        (now.saturating_sub(since) > patience).then_some(leader)
    }
}

/// Entries a node may be behind when it begins to serve.
const ENTRIES: u64 = 256;
/// Requests it may still have to apply then.
const REQUESTS: u64 = 50_000;
/// What is said of a node that is on the list and does not belong to the cluster.
const NO_MEMBER: &str = "it is no member of the cluster";
/// What is said of a member that this node never dials.
const NOT_LISTED: &str = "it is not on this node's list";

/// How a node is, and why.
pub(crate) fn judge(signs: &Signs) -> (NodeState, String) {
    let is_recent = |age: Option<Duration>| age.is_some_and(|age| age <= signs.patience);
    let ended = signs.failure.as_ref().map(|why| format!("the order has ended: {why}"));
    match (&signs.divergence, ended) {
        (Some(why), Some(ended)) => return (NodeState::Diverged, format!("{why}; {ended}")),
        (Some(why), None) => return (NodeState::Diverged, why.clone()),
        (None, Some(ended)) => return (NodeState::Stopping, ended),
        (None, None) => {}
    }
    if signs.is_stopping {
        return (NodeState::Stopping, String::new());
    }
    if signs.is_leader && !is_recent(signs.quorum_age) {
        return (NodeState::Minority, "no majority answers this leader".to_owned());
    }
    if !signs.is_leader && !is_recent(signs.leader_age) {
        return (NodeState::Minority, "no leader is heard".to_owned());
    }
    if let Some(leader) = signs.unreached {
        return (NodeState::Minority, format!("nothing reaches node {leader}, which leads"));
    }
    let OwnPace { keeps_up, behind, little } = &signs.pace;
    if let Some(why) = behind {
        return (NodeState::CatchingUp, why.clone());
    }
    if *keeps_up {
        return (NodeState::Serving, String::new());
    }
    if signs.entries_behind > ENTRIES {
        return (NodeState::CatchingUp, format!("{} entries behind", signs.entries_behind));
    }
    if signs.requests_behind > REQUESTS {
        return (NodeState::CatchingUp, format!("{} requests are not applied", signs.requests_behind));
    }
    if signs.bytes_behind > *little {
        let (bytes, why) = (signs.bytes_behind, "nobody waits for it until it lacks");
        return (NodeState::CatchingUp, format!("{bytes} bytes are not applied: {why} {little} or less"));
    }
    (NodeState::Serving, String::new())
}

/// Whether a node that says this of itself goes on to confirm what is ordered. One whose order has
/// ended answers still, and so does one that is about to stop. One that differs confirms all the
/// same. Its reason is for people, and may quote what other nodes say.
pub(crate) fn goes_on(report: &Report) -> bool {
    report.state != NodeState::Stopping && !report.has_ended
}

/// Why other nodes are not heard, to be added to a reason: those of the list cannot be reached, and
/// members that are not on it are not dialed, nor let in by themselves.
pub(crate) fn problems(
    own: NodeNumber,
    peers: &BTreeMap<NodeNumber, String>,
    members: &Members,
    problem: impl Fn(NodeNumber) -> Option<String>,
) -> String {
    let all: BTreeSet<NodeNumber> = peers.keys().chain(&members.nodes).copied().collect();
    let why = |node: &NodeNumber| match peers.contains_key(node) {
        true => problem(*node),
        false => Some(NOT_LISTED.to_owned()),
    };
    let said = |node: NodeNumber| Some(format!("; node {node}: {}", why(&node)?));
    all.into_iter().filter(|node| *node != own).filter_map(said).collect()
}

/// Makes rows of what the nodes have answered: `Err` is why one has not.
pub(crate) fn rows(
    addresses: &BTreeMap<NodeNumber, String>,
    answers: &BTreeMap<NodeNumber, Result<Report, String>>,
) -> Vec<NodeRow> {
    let reports = || answers.values().filter_map(|answer| answer.as_ref().ok());
    let leader = reports()
        .filter(|report| report.role == Role::Leader && report.state != NodeState::Minority)
        .max_by_key(|report| report.committed);
    let members = leader.or(reports().next()).map(|report| report.members.clone()).unwrap_or_default();
    let mut nodes: Vec<NodeNumber> = members.nodes.iter().chain(addresses.keys()).copied().collect();
    nodes.sort_unstable();
    nodes.dedup();
    let row = |node: NodeNumber| {
        let answer = answers.get(&node);
        let report = answer.and_then(|answer| answer.as_ref().ok());
        // Who was removed, or not added yet, does not know it by itself.
        let is_member = leader.is_none() || members.nodes.contains(&node);
        let not_got = match leader {
            Some(leader) if leader.node == node => Some((0, 0)),
            Some(leader) => leader.lags.get(&node).copied(),
            None => None,
        };
        let lag = not_got.map(|(bytes, ms)| {
            let (more, longer) = report.map_or((0, 0), |report| report.unapplied);
            (bytes + more, ms.max(longer))
        });
        NodeRow {
            node,
            address: addresses.get(&node).cloned(),
            role: match report.map(|report| report.role) {
                _ if !is_member => None,
                // Who was removed and added again does not know yet that it votes no more.
                Some(role) if leader.is_none() || role == Role::Leader => Some(role),
                _ => role_of(&members, node),
            },
            state: report.map(|report| report.state),
            applied: report.map(|report| report.applied),
            committed: report.map(|report| report.committed),
            lag_bytes: lag.map(|(bytes, _)| bytes),
            lag_ms: lag.map(|(_, ms)| ms),
            reason: match is_member {
                true => reason_of(answer),
                false => Some(match reason_of(answer) {
                    Some(why) => format!("{NO_MEMBER}; {why}"),
                    None => NO_MEMBER.to_owned(),
                }),
            },
        }
    };
    nodes.into_iter().map(row).collect()
}

/// Why a node does not serve, by its answer.
fn reason_of(answer: Option<&Result<Report, String>>) -> Option<String> {
    match answer {
        Some(Ok(report)) => Some(report.reason.clone()).filter(|reason| !reason.is_empty()),
        Some(Err(why)) => Some(why.clone()),
        None => Some(NOT_LISTED.to_owned()),
    }
}

fn role_of(members: &Members, node: NodeNumber) -> Option<Role> {
    let role = if members.is_voter(node) { Role::Follower } else { Role::Learner };
    members.nodes.contains(&node).then_some(role)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving() -> Signs {
        Signs {
            is_leader: false,
            quorum_age: None,
            leader_age: Some(Duration::from_millis(40)),
            patience: Duration::from_millis(600),
            unreached: None,
            entries_behind: 0,
            requests_behind: 0,
            bytes_behind: 0,
            pace: OwnPace { keeps_up: false, behind: None, little: 1000 },
            is_stopping: false,
            failure: None,
            divergence: None,
        }
    }

    #[test]
    fn a_node_judges_itself() {
        let judged = |signs: Signs| judge(&signs).0;
        assert_eq!(judged(serving()), NodeState::Serving);
        assert_eq!(judged(Signs { leader_age: None, ..serving() }), NodeState::Minority);
        let late = Some(Duration::from_secs(1));
        assert_eq!(judged(Signs { leader_age: late, ..serving() }), NodeState::Minority);
        assert_eq!(judged(Signs { is_leader: true, ..serving() }), NodeState::Minority);
        let heard = Some(Duration::ZERO);
        assert_eq!(judged(Signs { is_leader: true, quorum_age: heard, ..serving() }), NodeState::Serving);
        let unreached = judge(&Signs { unreached: Some(2), ..serving() });
        assert_eq!(unreached, (NodeState::Minority, "nothing reaches node 2, which leads".to_owned()));
        assert_eq!(judged(Signs { entries_behind: 1000, ..serving() }), NodeState::CatchingUp);
        let pace = |keeps_up: bool, behind: Option<&str>| OwnPace {
            keeps_up,
            behind: behind.map(str::to_owned),
            little: 1000,
        };
        let slow = Signs { entries_behind: 1000, pace: pace(true, None), ..serving() };
        assert_eq!(judged(slow), NodeState::Serving);
        // Nobody waits for one that was not level since it came back, so it must not say it serves.
        assert_eq!(judged(Signs { bytes_behind: 1000, ..serving() }), NodeState::Serving);
        assert_eq!(judged(Signs { bytes_behind: 1001, ..serving() }), NodeState::CatchingUp);
        let behind = Signs { pace: pace(false, Some("slow")), ..serving() };
        assert_eq!(judge(&behind), (NodeState::CatchingUp, "slow".to_owned()));
        let why = Some("digest".to_owned());
        assert_eq!(
            judge(&Signs { divergence: why, ..serving() }),
            (NodeState::Diverged, "digest".to_owned())
        );
    }

    #[test]
    fn a_leader_is_not_reached_once_that_has_lasted() {
        let mut unreached = Unreached::default();
        let patience = Duration::from_millis(900);
        let mut see = |now, leader| unreached.see(Duration::from_millis(now), patience, leader);
        assert_eq!(see(100, Some(1)), None);
        assert_eq!(see(1000, Some(1)), None);
        assert_eq!(see(1001, Some(1)), Some(1));
        // It is there again, and another one leads then.
        assert_eq!(see(1100, None), None);
        assert_eq!(see(1200, Some(1)), None);
        assert_eq!(see(2000, Some(2)), None);
        assert_eq!(see(2900, Some(2)), None);
        assert_eq!(see(2901, Some(2)), Some(2));
    }

    /// It may have found before that it differs, and still says so.
    #[test]
    fn who_has_no_order_any_more_does_not_go_on() {
        let goes = |signs: Signs| {
            let (state, reason) = judge(&signs);
            let has_ended = signs.failure.is_some();
            let report = Report {
                node: 2,
                role: Role::Follower,
                state,
                applied: 9,
                committed: 9,
                reason,
                has_ended,
                members: Members::default(),
                unapplied: (0, 0),
                lags: BTreeMap::new(),
                lost: BTreeMap::new(),
                kept: None,
            };
            goes_on(&report)
        };
        let (failure, divergence) = (Some("no space".to_owned()), Some("digest".to_owned()));
        assert!(goes(serving()) && goes(Signs { leader_age: None, ..serving() }));
        assert!(goes(Signs { divergence: divergence.clone(), ..serving() }), "it confirms all the same");
        let quoted = Some("node 3 says that the order has ended".to_owned());
        assert!(goes(Signs { divergence: quoted, ..serving() }), "that is another one's");
        assert!(!goes(Signs { is_stopping: true, ..serving() }));
        assert!(!goes(Signs { failure: failure.clone(), ..serving() }));
        let both = Signs { failure, divergence, ..serving() };
        assert_eq!(judge(&both), (NodeState::Diverged, "digest; the order has ended: no space".to_owned()));
        assert!(!goes(both));
    }

    #[test]
    fn rows_join_what_each_says_with_what_the_leader_sees() {
        let members = Members { voters: vec![BTreeSet::from([1, 2, 3])], nodes: BTreeSet::from([1, 2, 3]) };
        let report = |node, role, committed| Report {
            node,
            role,
            state: NodeState::Serving,
            applied: committed,
            committed,
            reason: String::new(),
            has_ended: false,
            members: members.clone(),
            unapplied: (node, 25),
            lags: BTreeMap::from([(2, (10, 20)), (3, (30, 40))]),
            lost: BTreeMap::new(),
            kept: None,
        };
        let addresses = BTreeMap::from([(1, "a".to_owned()), (2, "b".to_owned()), (3, "c".to_owned())]);
        let answers = BTreeMap::from([
            (1, Ok(report(1, Role::Leader, 9))),
            (2, Ok(report(2, Role::Follower, 8))),
            (3, Err("connection refused".to_owned())),
        ]);
        let rows = rows(&addresses, &answers);
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0].role, rows[0].lag_bytes), (Some(Role::Leader), Some(1)));
        assert_eq!((rows[1].applied, rows[1].lag_bytes, rows[1].lag_ms), (Some(8), Some(12), Some(25)));
        assert_eq!((rows[2].state, rows[2].role, rows[2].lag_bytes), (None, Some(Role::Follower), Some(30)));
        assert_eq!(rows[2].reason.as_deref(), Some("connection refused"));
    }

    /// A node says of others, too, why it does not hear them.
    #[test]
    fn who_has_lost_its_data_is_known_by_what_is_said_of_it() {
        let addresses = BTreeMap::from([(2, "b".to_owned())]);
        let has_lost = |why: &str| {
            let answers = BTreeMap::from([(2, Err(why.to_owned()))]);
            rows(&addresses, &answers)[0].has_lost_data()
        };
        assert!(has_lost(&format!("node 2 {OTHER_DATA}: if they are lost, remove the node")));
        assert!(has_lost(&crate::net::lost(2)));
        assert!(!has_lost(&crate::net::lost(12)) && !has_lost(&crate::net::lost(1)));
        assert!(!has_lost(&format!("no leader is heard; node 3: node 3 {OTHER_DATA}")));
        assert!(!has_lost("connection refused"));
    }

    /// Whoever leads may be the one that a list has forgotten.
    #[test]
    fn a_node_that_hears_nobody_names_members_that_are_not_on_its_list() {
        let members = Members { voters: vec![BTreeSet::from([1, 2, 3])], nodes: BTreeSet::from([1, 2, 3]) };
        let peers = BTreeMap::from([(1, "a".to_owned()), (3, "c".to_owned()), (4, "d".to_owned())]);
        let problem = |node: NodeNumber| (node == 4).then(|| "connection refused".to_owned());
        assert_eq!(
            problems(3, &peers, &members, problem),
            "; node 2: it is not on this node's list; node 4: connection refused"
        );
        assert_eq!(problems(3, &peers, &Members::default(), problem), "; node 4: connection refused");
    }

    /// A node that was removed still takes itself for a follower; the leader knows better.
    #[test]
    fn who_is_no_member_has_no_role_and_is_told_why() {
        let members = Members { voters: vec![BTreeSet::from([1])], nodes: BTreeSet::from([1]) };
        let report = |node, role, state, reason: &str| Report {
            node,
            role,
            state,
            applied: 9,
            committed: 9,
            reason: reason.to_owned(),
            has_ended: false,
            members: members.clone(),
            unapplied: (0, 0),
            lags: BTreeMap::new(),
            lost: BTreeMap::new(),
            kept: None,
        };
        let addresses = BTreeMap::from([(1, "a".to_owned()), (2, "b".to_owned()), (3, "c".to_owned())]);
        let removed = report(2, Role::Follower, NodeState::Minority, "no leader is heard");
        let mut answers = BTreeMap::from([
            (1, Ok(report(1, Role::Leader, NodeState::Serving, ""))),
            (2, Ok(removed)),
            (3, Err("connection refused".to_owned())),
        ]);
        let seen = rows(&addresses, &answers);
        assert_eq!((seen[0].role, seen[0].reason.as_deref()), (Some(Role::Leader), None));
        assert_eq!((seen[1].role, seen[1].state), (None, Some(NodeState::Minority)));
        let said = |row: &NodeRow| row.reason.clone().unwrap_or_default();
        assert_eq!(said(&seen[1]), "it is no member of the cluster; no leader is heard");
        assert_eq!(said(&seen[2]), "it is no member of the cluster; connection refused");
        // It is let in again, and has not heard of that yet, either.
        let mut leader = report(1, Role::Leader, NodeState::Serving, "");
        leader.members.nodes.insert(2);
        answers.insert(1, Ok(leader));
        assert_eq!(rows(&addresses, &answers)[1].role, Some(Role::Learner));
        // Without a leader nobody knows who belongs to it.
        answers.remove(&1);
        let seen = rows(&addresses, &answers);
        assert_eq!((seen[1].role, said(&seen[1])), (Some(Role::Follower), "no leader is heard".to_owned()));
    }
}
