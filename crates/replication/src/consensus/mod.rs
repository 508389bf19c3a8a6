//! The consensus: openraft, which is known in this room and nowhere else (docs/decisions/0014).
//!
//! It decides which entry has which index, and when a majority has it. Everything around it is
//! ours: the log ([`storage`] is [`OrderLog`] seen by openraft), the network ([`links`] sends
//! [`crate::messages`] over a [`Wire`]), and what is done with settled entries. [`machine`], the
//! state machine that openraft knows, does nothing but move the mark of what is settled: the
//! application reads behind that mark from the log, at its own pace, so a slow one holds back
//! neither votes nor heartbeats. Mostly the mark is there already: openraft has the storage note
//! what is settled before it tells anybody else, and who waits for a commit is woken by that. If
//! nobody at the leader waits, the other nodes are told first.
//!
//! ```text
//! write ──▶ openraft ──▶ Storage.append ──▶ OrderLog ──▶ flush ──▶ callback ┐
//!                  └───▶ Link.append_entries ──▶ followers ──▶ their flush ─┤ majority
//! Delivery ◀── OrderLog ◀── mark of what is settled ◀── save_committed ◀────┘
//! ```
//!
//! Its traps, and what is done about them: a vote is durable before it is told; an append can be
//! read at once and is confirmed after its flush; what is settled is noted in the log, and so is
//! never less after a restart than what the application holds; a restarted leader leads again only
//! after an election; pre-votes keep a node that comes back from deposing anybody; a leader that a
//! majority does not answer stops its heartbeats for a while, so that one that can send and not
//! hear is replaced; snapshots are made when the application says so, and never by a policy.

mod links;
mod machine;
mod storage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver as _;
use openraft::errors::{ClientWriteError, RaftError};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest};
use openraft::type_config::alias::WatchReceiverOf;
use openraft::{
    ChangeMembers, EmptyNode, EntryPayload, Instant as _, RaftMetrics, ReadPolicy, SnapshotPolicy,
};
use tokio::time::timeout;

use self::links::Links;
use self::machine::{Awaited, Machine, Parcel, Shared};
use self::storage::{Storage, Unconfirmed};
use crate::application::{Application, SnapshotSink};
use crate::entry::{
    Ballot, Base, Content, Entry, EntryId, Leadership, Members, MembersAt, NodeNumber, Position, Requests,
};
use crate::error::StartError;
use crate::log::OrderLog;
use crate::mark::Mark;
use crate::messages::{Append, Appended, AskVote, Change, HandOver, Nothing, Proposed, Vote};
use crate::net::{Identity, Wire};
use crate::settings::{FlushTime, Limits, Timing};

/// How long it is waited for a snapshot before it is asked for again.
const SNAPSHOT_AGAIN: Duration = Duration::from_millis(50);

/// The part of the consensus library that, where the consensus has ended (by a full disk perhaps),
/// tells so in the log of whatever it is asked, many times a second. Whoever asks is told, too.
pub const TOLD_WITHOUT_END: &str = "openraft::raft::raft_inner";

openraft::declare_raft_types!(
    /// The types that openraft is given.
    pub(crate) Types:
        D = Requests,
        R = Position,
        NodeId = u64,
        Node = EmptyNode,
        AsyncRuntime = openraft_rt_tokio::TokioRuntime,
);

type LeaderId = openraft::impls::leader_id_adv::LeaderId<u64, u64>;
type LogId = openraft::LogId<LeaderId>;
type RaftVote = openraft::Vote<LeaderId>;
type Membership = openraft::Membership<u64, EmptyNode>;
type Stored = openraft::StoredMembership<LeaderId, u64, EmptyNode>;
type Meta = openraft::SnapshotMeta<LeaderId, u64, EmptyNode>;
type RaftSnapshot = openraft::Snapshot<LeaderId, u64, EmptyNode, Parcel>;
type RaftEntry = openraft::Entry<LeaderId, EntryPayload<Requests, u64, EmptyNode>>;
type Raft = openraft::Raft<Types, Machine>;

/// Why a node that does not lead has done nothing.
pub(crate) const NOT_LEADER: &str = "this node does not lead";

/// What is settled: the application is given everything up to `index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Settled {
    /// The last settled index.
    pub(crate) index: Option<u64>,
    /// How many snapshots were taken in since the start.
    pub(crate) installs: u64,
    /// The position of the last of them.
    pub(crate) installed: Position,
    /// The index of the first entry after it.
    pub(crate) next_index: u64,
}

/// What the consensus says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct View {
    pub(crate) leader: Option<NodeNumber>,
    pub(crate) is_leader: bool,
    pub(crate) term: u64,
    /// What a majority has, as the leader said last.
    pub(crate) cluster_committed: Option<u64>,
    pub(crate) members: Members,
    /// A leader's: the last entry that each other node is known to have.
    pub(crate) matched: BTreeMap<NodeNumber, Option<u64>>,
    /// A leader's: since when no majority has answered.
    pub(crate) quorum_age: Option<Duration>,
    pub(crate) snapshot: Option<u64>,
    /// Why it has ended, if it has.
    pub(crate) failure: Option<String>,
}

fn id_of(id: LogId) -> EntryId {
    let leadership = Leadership { term: id.leader_id.term, node: id.leader_id.node_id };
    EntryId { leadership, index: id.index }
}

fn log_id(id: EntryId) -> LogId {
    let leader_id = LeaderId { term: id.leadership.term, node_id: id.leadership.node };
    LogId { leader_id, index: id.index }
}

fn ballot_of(vote: RaftVote) -> Ballot {
    let leadership = Leadership { term: vote.leader_id.term, node: vote.leader_id.node_id };
    Ballot { leadership, is_elected: vote.committed }
}

fn vote_of(ballot: Ballot) -> RaftVote {
    let leader_id = LeaderId { term: ballot.leadership.term, node_id: ballot.leadership.node };
    RaftVote { leader_id, committed: ballot.is_elected }
}

fn members_of(membership: &Membership) -> Members {
    let nodes = membership.nodes().map(|(node, _)| *node).collect();
    Members { voters: membership.get_joint_config().clone(), nodes }
}

fn membership_of(members: &Members) -> Membership {
    Membership::new_with_defaults(members.voters.clone(), members.nodes.clone())
}

fn stored(members: &MembersAt) -> Stored {
    match members.at {
        None => Stored::default(),
        Some(at) => Stored::new(Some(log_id(at)), membership_of(&members.members)),
    }
}

fn meta_of(base: &Base) -> Meta {
    Meta { last_log_id: base.id.map(log_id), last_membership: stored(&base.members) }
}

fn entry_of(entry: RaftEntry) -> Entry {
    let content = match entry.payload {
        EntryPayload::Blank => Content::Blank,
        EntryPayload::Normal(requests) => Content::Requests(requests),
        EntryPayload::Membership(membership) => Content::Members(members_of(&membership)),
    };
    Entry { id: id_of(entry.log_id), content }
}

fn raft_entry(entry: Entry) -> RaftEntry {
    let payload = match entry.content {
        Content::Blank => EntryPayload::Blank,
        Content::Requests(requests) => EntryPayload::Normal(requests),
        Content::Members(members) => EntryPayload::Membership(membership_of(&members)),
    };
    RaftEntry { log_id: log_id(entry.id), payload }
}

/// What a consensus is made of.
pub(crate) struct Parts {
    pub(crate) log: Arc<OrderLog>,
    pub(crate) application: Arc<dyn Application>,
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) settled: Mark,
    pub(crate) flushes_inline: Option<FlushTime>,
}

/// Tells when the view may have changed: several times with each entry, so nobody should wait here
/// who need not.
pub(crate) struct Changes(WatchReceiverOf<Types, RaftMetrics<Types>>);

impl Changes {
    /// Waits for the next change, if there was none since the last time. False once the consensus
    /// has ended.
    pub(crate) async fn next(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

/// Has it noted if the consensus ends by a panic: its last metrics would say for ever that it runs,
/// and leads, perhaps. The task wakes with elections only, and ends with the consensus.
fn watch_end(raft: &Raft) -> Arc<OnceLock<String>> {
    let panicked = Arc::<OnceLock<String>>::default();
    let (noted, metrics, mut known) = (Arc::clone(&panicked), raft.metrics(), raft.server_metrics());
    tokio::spawn(async move {
        while known.changed().await.is_ok() {}
        let is_silent = metrics.borrow_watched().running_state.is_ok();
        if is_silent && noted.set("the consensus has panicked".to_owned()).is_ok() {
            tracing::error!("the consensus has panicked: this node takes no part any more");
        }
    });
    panicked
}

/// See the module's description.
pub(crate) struct Consensus {
    raft: Raft,
    /// That it has ended without a word, if it has.
    panicked: Arc<OnceLock<String>>,
    shared: Arc<Shared>,
    own: NodeNumber,
}

impl Consensus {
    pub(crate) async fn start(
        parts: Parts,
        timing: &Timing,
        limits: &Limits,
    ) -> Result<Consensus, StartError> {
        let failed = |what: String| StartError::Consensus(what);
        let ms = |time: Duration| time.as_millis() as u64;
        let config = openraft::Config {
            cluster_name: "cognate".to_owned(),
            heartbeat_interval: ms(timing.heartbeat),
            election_timeout_min: ms(timing.election_min),
            election_timeout_max: ms(timing.election_max),
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            replication_lag_threshold: u64::MAX,
            max_payload_entries: 1024,
            api_channel_size: Some(1024),
            enable_pre_vote: Some(true),
            quorum_loss_probe_interval: Some(2 * ms(timing.election_max)),
            broadcast_submitted_on_append: Some(true),
            enable_leader_restore: Some(false),
            backoff: "20ms 40ms ...400ms".to_owned(),
            ..openraft::Config::default()
        };
        let config = config.validate().map_err(|error| failed(error.to_string()))?;
        let log = Arc::clone(&parts.log);
        let shared = Arc::new(Shared::default());
        let settled = Arc::new(parts.settled);
        let storage = Storage {
            log: Arc::clone(&log),
            flushes_inline: parts.flushes_inline.clone(),
            append_bytes: limits.append_bytes,
            unconfirmed: Unconfirmed::start(),
            shared: Arc::clone(&shared),
            settled: Arc::downgrade(&settled),
        };
        let applied = log.committed();
        let base = log.base();
        let machine = Machine {
            application: parts.application,
            settled,
            shared: Arc::clone(&shared),
            flushes_inline: parts.flushes_inline.clone(),
            applied,
            members: applied.map_or_else(MembersAt::default, |id| log.members_at(id.index)),
            snapshot: base.id.is_some().then_some(base),
            log,
        };
        let identity = Arc::clone(&parts.identity);
        let links = Links { wire: parts.wire, identity, states: machine.states() };
        let own = parts.identity.node();
        let raft = Raft::new(own, Arc::new(config), links, storage, machine).await;
        let raft = raft.map_err(|error| failed(error.to_string()))?;
        shared.is_running.store(true, Ordering::Release);
        let panicked = watch_end(&raft);
        Ok(Consensus { raft, panicked, shared, own })
    }

    /// Somebody at this node waits for an entry that is about to be proposed.
    pub(crate) fn expect(&self) -> Awaited {
        Awaited::of(&self.shared)
    }

    /// Puts requests into the order, if this node leads.
    pub(crate) async fn write(&self, requests: Requests) -> Proposed {
        match self.raft.client_write(requests).await {
            Ok(written) => Proposed::At(written.data),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(to))) => {
                Proposed::NotLeader(to.leader_id)
            }
            Err(other) => Proposed::Unknown(other.to_string()),
        }
    }

    pub(crate) async fn append(&self, append: Append) -> Result<Appended, String> {
        let asked = AppendEntriesRequest {
            vote: vote_of(append.ballot),
            prev_log_id: append.previous.map(log_id),
            leader_commit: append.committed.map(log_id),
            entries: append.entries.into_iter().map(raft_entry).collect(),
        };
        match self.raft.append_entries(asked).await.map_err(|error| error.to_string())? {
            AppendEntriesResponse::Success => Ok(Appended::All),
            AppendEntriesResponse::PartialSuccess(id) => Ok(Appended::UpTo(id.map(id_of))),
            AppendEntriesResponse::Conflict => Ok(Appended::Conflict),
            AppendEntriesResponse::HigherVote(vote) => Ok(Appended::Higher(ballot_of(vote))),
        }
    }

    pub(crate) async fn vote(&self, ask: AskVote, is_trial: bool) -> Result<Vote, String> {
        let mut asked = VoteRequest::new(vote_of(ask.ballot), ask.last.map(log_id));
        asked.leadership_transfer = ask.is_hand_over;
        let given = if is_trial { self.raft.pre_vote(asked).await } else { self.raft.vote(asked).await };
        let given = given.map_err(|error| error.to_string())?;
        let ballot = ballot_of(given.vote);
        Ok(Vote { ballot, is_granted: given.vote_granted, last: given.last_log_id.map(id_of) })
    }

    pub(crate) async fn hand_over(&self, asked: HandOver) -> Result<Nothing, String> {
        let asked = TransferLeaderRequest::new(vote_of(asked.from), asked.to, asked.last.map(log_id));
        match self.raft.handle_transfer_leader(asked).await {
            Ok(Ok(())) => Ok(Nothing {}),
            Ok(Err(refused)) => Err(refused.to_string()),
            Err(ended) => Err(ended.to_string()),
        }
    }

    /// Whether this node would vote alone by a state that it is sent. Nobody who votes alone is
    /// sent one: it is from before this node has lost its data, and it would lead itself.
    pub(crate) fn votes_alone_by(&self, base: &Base) -> bool {
        let voters = &base.members.members.voters;
        !voters.is_empty() && voters.iter().all(|set| set.iter().all(|node| *node == self.own))
    }

    /// Makes a snapshot that has come completely this node's state.
    pub(crate) async fn install(
        &self,
        ballot: Ballot,
        base: Base,
        position: Position,
        sink: Box<dyn SnapshotSink>,
    ) -> Result<Ballot, String> {
        self.shared.takes_snapshots.store(true, Ordering::Release);
        let meta = meta_of(&base);
        let snapshot = RaftSnapshot { meta, snapshot: Parcel::Incoming { base, position, sink } };
        let installed = self.raft.install_full_snapshot(vote_of(ballot), snapshot).await;
        installed.map(|response| ballot_of(response.vote)).map_err(|error| error.to_string())
    }

    /// Founds the cluster with these voters, unless it was.
    pub(crate) async fn initialize(&self, voters: BTreeSet<NodeNumber>) -> Result<(), String> {
        self.raft.initialize(voters).await.map_err(|error| error.to_string())
    }

    /// The index up to which who reads now must have come, if this node leads.
    pub(crate) async fn read_index(&self) -> Result<u64, String> {
        let read = self.raft.get_read_log_id(ReadPolicy::ReadIndex).await;
        read.map(|(id, _)| id.index()).map_err(|error| error.to_string())
    }

    /// Changes the membership, if this node leads. A leader that votes no more leads on until its
    /// removal is committed, and for good once it was added without a vote: it lets a voter lead,
    /// which makes the change.
    pub(crate) async fn change(&self, change: Change) -> Result<Nothing, String> {
        let view = self.view();
        if !view.members.is_voter(self.own) {
            let voters = view.matched.iter().filter(|(node, _)| view.members.is_voter(**node));
            if let Some((&next, _)) = voters.max_by_key(|(_, matched)| **matched) {
                self.let_lead(next).await?;
            }
            return Err(NOT_LEADER.to_owned());
        }
        let changed = match change {
            Change::AddLearner(node) => self.raft.add_learner(node, EmptyNode::new(), false).await,
            Change::Promote(node) => {
                let voters = ChangeMembers::AddVoterIds(BTreeSet::from([node]));
                self.raft.change_membership(voters, true).await
            }
            Change::Remove(node) => {
                let nodes = BTreeSet::from([node]);
                let is_voter = self.view().members.is_voter(node);
                let change = if is_voter {
                    ChangeMembers::RemoveVoters(nodes)
                } else {
                    ChangeMembers::RemoveNodes(nodes)
                };
                self.raft.change_membership(change, false).await
            }
        };
        let changed = changed.map_err(|error| match error {
            RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => NOT_LEADER.to_owned(),
            other => other.to_string(),
        })?;
        if changed.membership.is_some() {
            self.until_members_of(changed.log_id.index()).await;
        }
        Ok(Nothing {})
    }

    /// Resolves once the view has the members of the entry at this index, which is committed, or
    /// the consensus has ended. Views are published behind the answer, and the next change may
    /// depend on this one: who was added is promoted.
    async fn until_members_of(&self, index: u64) {
        let mut metrics = self.raft.metrics();
        let is_earlier = |known: &RaftMetrics<Types>| {
            known.membership_config.log_id().as_ref().is_none_or(|id| id.index() < index)
        };
        while is_earlier(&metrics.borrow_watched()) {
            if metrics.changed().await.is_err() {
                return;
            }
        }
    }

    /// Asks another node to lead.
    pub(crate) async fn let_lead(&self, node: NodeNumber) -> Result<(), String> {
        self.raft.trigger().transfer_leader(node).await.map_err(|error| error.to_string())
    }

    /// Has the log begin after `upto`, which the application's checkpoint at `base` covers.
    pub(crate) async fn compact(&self, base: Base, upto: u64) -> Result<(), String> {
        let Some(id) = base.id else { return Ok(()) };
        {
            let mut checkpoint = self.shared.checkpoint.lock();
            if checkpoint.as_ref().is_none_or(|known| known.id < base.id) {
                *checkpoint = Some(base);
            }
        }
        let ended = |error: &dyn std::fmt::Display| error.to_string();
        let mut metrics = self.raft.metrics();
        let is_behind = |known: &RaftMetrics<Types>| known.snapshot.map(|known| known.index) < Some(id.index);
        while is_behind(&metrics.borrow_watched()) {
            // Again after a while: one that was under way may have looked at an earlier checkpoint.
            // Not at each change of the view: what is asked changes the view, and while the machine
            // takes another node's state, for minutes perhaps, nothing comes of it.
            self.raft.trigger().snapshot().await.map_err(|error| ended(&error))?;
            let known = metrics.wait_until(|known| !is_behind(known));
            if let Ok(Err(error)) = timeout(SNAPSHOT_AGAIN, known).await {
                return Err(ended(&error));
            }
        }
        self.raft.trigger().purge_log(upto).await.map_err(|error| ended(&error))
    }

    /// The entry behind which the earliest snapshot stands that is being sent.
    pub(crate) fn sent_from(&self) -> Option<u64> {
        self.shared.sending.lock().iter().min().copied()
    }

    pub(crate) fn view(&self) -> View {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let members = members_of(metrics.membership_config.membership());
        let is_leader = metrics.state.is_leader();
        let is_alone = members.voters.iter().all(|set| set.iter().all(|node| *node == metrics.id));
        let quorum_age = metrics.last_quorum_acked.map(|acked| acked.elapsed());
        let matched = metrics.replication.iter().flatten();
        let failure = metrics.running_state.as_ref().err().map(ToString::to_string);
        View {
            // One that was removed goes on naming itself, since nobody tells it of another.
            leader: metrics.current_leader.filter(|leader| is_leader || *leader != metrics.id),
            is_leader,
            term: metrics.current_term,
            cluster_committed: metrics.cluster_committed.map(|id| id.index),
            matched: matched.map(|(node, id)| (*node, id.map(|id| id.index))).collect(),
            quorum_age: if is_alone { Some(Duration::ZERO) } else { quorum_age },
            snapshot: metrics.snapshot.map(|id| id.index),
            failure: failure.or_else(|| self.panicked.get().cloned()),
            members,
        }
    }

    /// Resolves once the consensus calls another node the leader, or has ended. Unlike the view,
    /// this changes with elections only, and not with every entry.
    pub(crate) async fn until_other_leader(&self, leader: NodeNumber) {
        let mut known = self.raft.server_metrics();
        loop {
            let named = known.borrow_watched().current_leader;
            if named.is_some_and(|named| named != leader) || known.changed().await.is_err() {
                return;
            }
        }
    }

    /// Tells when the view may have changed from now on.
    pub(crate) fn changes(&self) -> Changes {
        Changes(self.raft.metrics())
    }

    pub(crate) async fn stop(&self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::debug!(?error, "the consensus ended with a failure");
        }
    }
}

#[cfg(test)]
mod tests;
