//! The ways to the other nodes as openraft sees them.

use std::sync::Arc;
use std::time::Duration;

use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{EmptyNode, OptionalSend};
use tokio::time::Instant;

use super::machine::{Parcel, States};
use super::{RaftSnapshot, RaftVote, Types, ballot_of, entry_of, id_of, log_id, vote_of};
use crate::codec::Coded;
use crate::entry::{Ballot, Content, EntryId, NodeNumber};
use crate::messages::{
    Append, Appended, AskVote, HandOver, Kind, Nothing, SnapshotAnswer, SnapshotBegin, SnapshotChunk,
    SnapshotEnd, Vote, open_answer, request,
};
use crate::net::{CallError, Identity, Wire, lost};
use crate::planted::{self, Planted};

/// How long a message without entries may take.
const SHORT: Duration = Duration::from_secs(1);
/// How long a chunk of a snapshot may take.
const CHUNK: Duration = Duration::from_secs(10);
/// How long the question may take whether a snapshot is the other node's state. That one answers
/// sooner, if only that it is not yet: a loss, which not every network tells, costs no more.
const ASK: Duration = Duration::from_secs(5);
/// Pause after such a question that has no such answer.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How long the other node may leave all of them without one: it may be starting again.
const SILENT: Duration = Duration::from_secs(30);
/// How long it may say that a snapshot is not its state yet.
const INSTALL: Duration = Duration::from_secs(300);
/// Pause after a node has refused a snapshot, the first time, and the longest: it doubles. All of
/// it was sent in vain, perhaps, and will be again.
const REFUSED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Bytes of entries for which a second more is granted.
const BYTES_A_SECOND: usize = 4 << 20;

/// Makes the links that openraft asks for.
pub(super) struct Links {
    pub(super) wire: Arc<dyn Wire>,
    pub(super) identity: Arc<Identity>,
    pub(super) states: States,
}

/// The way to one other node.
pub(super) struct Link {
    wire: Arc<dyn Wire>,
    identity: Arc<Identity>,
    states: States,
    target: NodeNumber,
    /// Whether it carries heartbeats only. Each of them names the last entry that the other node
    /// has confirmed.
    is_heartbeat: bool,
    /// The last entry that the other node has confirmed on this link.
    confirmed: Option<EntryId>,
    /// The last entry before it left that the other node is known to have, itself or in a state.
    known_to_have: Option<EntryId>,
    /// Pause after the next snapshot that is refused.
    pause: Duration,
}

impl RaftNetworkFactory<Types> for Links {
    type Network = Link;

    async fn new_client(&mut self, target: u64, _: &EmptyNode) -> Link {
        Link {
            wire: Arc::clone(&self.wire),
            identity: Arc::clone(&self.identity),
            states: self.states.clone(),
            target,
            is_heartbeat: false,
            confirmed: None,
            known_to_have: None,
            pause: REFUSED.0,
        }
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &EmptyNode) -> Link {
        Link { is_heartbeat: true, ..self.new_client(target, node).await }
    }
}

impl Link {
    async fn call<T: Coded>(
        &self,
        kind: Kind,
        body: &impl Coded,
        limit: Duration,
    ) -> Result<T, RPCError<Types>> {
        self.ask(kind, body, limit).await?.map_err(|why| Unreachable::<Types>::from_string(why).into())
    }

    /// The same; that the other node refuses it, and why, is told apart.
    async fn ask<T: Coded>(
        &self,
        kind: Kind,
        body: &impl Coded,
        limit: Duration,
    ) -> Result<Result<T, String>, RPCError<Types>> {
        // Its vote is worth no more than what it confirms.
        if self.identity.has_lost(self.target) {
            return Err(self.disowned());
        }
        let call = self.wire.call(self.target, request(kind, self.identity.cluster(), body));
        match tokio::time::timeout(limit, call).await {
            Ok(Ok(bytes)) => Ok(open_answer(bytes)),
            Ok(Err(CallError::NotSent(why))) => Err(Unreachable::<Types>::from_string(why).into()),
            Ok(Err(CallError::Lost(why))) => Err(NetworkError::<Types>::from_string(why).into()),
            Err(_) => Err(NetworkError::<Types>::from_string("no answer in time").into()),
        }
    }

    /// Notes what the other node confirms, and whether it has lost what it had confirmed: the end
    /// of its log, to a disk that lied, or all since an older copy of its folder was made. Nothing
    /// else makes an entry disappear that was confirmed to a leader who still leads. openraft has
    /// no answer to that: such a node would be sent nothing any more, and be waited for.
    fn watch(&mut self, previous: Option<EntryId>, last: Option<EntryId>, appended: &Appended) -> bool {
        match appended {
            Appended::All => self.confirmed = self.confirmed.max(last),
            Appended::UpTo(id) => self.confirmed = self.confirmed.max(*id),
            Appended::Higher(_) => {}
            Appended::Conflict => {
                let had = previous.is_some() && (self.is_heartbeat || previous <= self.confirmed);
                // By the rules that are left out a node loses what it has confirmed, or is taken
                // for one that has.
                let is_planted = [Planted::ConfirmsUnflushed, Planted::CountsTheSilent].map(planted::is);
                return had && !is_planted.contains(&true);
            }
        }
        false
    }

    /// That the other node has lost what it had confirmed.
    fn disowned(&self) -> RPCError<Types> {
        Unreachable::<Types>::from_string(lost(self.target)).into()
    }

    /// Sends a part of a snapshot. Says whether what follows is wanted. If it is refused, as by a
    /// node whose disk is full, the next try has to wait: what was sent and the state that it was
    /// read from are given up before.
    async fn send_part(&self, kind: Kind, part: &impl Coded) -> Result<bool, Unsent> {
        let answer = self.ask::<SnapshotAnswer>(kind, part, CHUNK).await.map_err(Unsent::Failed)?;
        match answer.map_err(Unsent::Refused)? {
            SnapshotAnswer::Taken => Ok(true),
            SnapshotAnswer::Here => Ok(false),
            SnapshotAnswer::Installing => Err(Unsent::later("another snapshot is becoming its state")),
            SnapshotAnswer::Unknown | SnapshotAnswer::Installed(_) => Err(Unsent::unknown()),
        }
    }

    /// Sends nothing behind an entry: the other node answers whether it has everything up to that.
    async fn ask_whether_it_has(
        &self,
        vote: RaftVote,
        last: Option<EntryId>,
        limit: Duration,
    ) -> Result<Appended, RPCError<Types>> {
        let (ballot, entries) = (ballot_of(vote), Vec::new());
        let append = Append { ballot, previous: last, committed: None, entries };
        self.call(Kind::Append, &append, limit).await
    }

    /// Asks the other node's consensus whether it follows this leader and has everything up to an
    /// entry, durably. That it has said so as a node alone is not enough: an answer to a snapshot
    /// counts as a heartbeat's, and so would make a leader believe that it still leads after the
    /// other node has given its vote to the next one.
    async fn confirm(&self, vote: RaftVote, last: Option<EntryId>) -> Result<RaftVote, Unsent> {
        match self.ask_whether_it_has(vote, last, CHUNK).await.map_err(Unsent::Failed)? {
            Appended::All => Ok(vote),
            Appended::Higher(ballot) => Ok(vote_of(ballot)),
            Appended::UpTo(_) | Appended::Conflict => {
                Err(Unsent::later("it has not what it says that it has"))
            }
        }
    }

    /// Says that a snapshot is complete, again and again until it is known what became of it.
    async fn send_end(&self, end: &SnapshotEnd) -> Result<Ballot, Unsent> {
        let began = Instant::now();
        let mut heard = began;
        while began.elapsed() < INSTALL {
            let failed = match self.ask::<SnapshotAnswer>(Kind::SnapshotEnd, end, ASK).await {
                Ok(Ok(SnapshotAnswer::Installed(ballot))) => return Ok(ballot),
                Ok(Ok(SnapshotAnswer::Installing)) => {
                    heard = Instant::now();
                    continue;
                }
                Ok(Ok(_)) => return Err(Unsent::unknown()),
                // It ends, perhaps, to start again with the state that it was sent.
                Ok(Err(why)) => Unsent::Refused(why),
                Err(error) => Unsent::Failed(error),
            };
            if heard.elapsed() >= SILENT {
                return Err(failed);
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
        Err(Unsent::later("a snapshot does not become its state in time"))
    }

    async fn ask_vote(
        &self,
        kind: Kind,
        asked: VoteRequest<Types>,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let ask = AskVote {
            ballot: ballot_of(asked.vote),
            last: asked.last_log_id.map(id_of),
            is_hand_over: asked.leadership_transfer,
        };
        // Of before it is asked: what it says meanwhile may be of behind its answer.
        let kept = self.identity.kept(self.target);
        let vote: Vote = self.call(kind, &ask, SHORT).await?;
        if let Some((incarnation, last)) = kept
            && vote.last.is_none_or(|id| id.index < last)
        {
            self.identity.disown(self.target, Some(incarnation));
            return Err(self.disowned());
        }
        Ok(VoteResponse::new(vote_of(vote.ballot), vote.last.map(log_id), vote.is_granted))
    }

    async fn send_snapshot(&self, vote: RaftVote, parcel: Parcel) -> Result<RaftVote, Unsent> {
        let (base, position, mut source, _sending) = match parcel {
            Parcel::Outgoing { left, .. } if left.contains(&self.target) => {
                return Err(Unsent::later("it was removed since that state; a newer one is made"));
            }
            Parcel::Outgoing { base, position, source, sending, .. } => (base, position, source, sending),
            // It is asked for again after a pause.
            Parcel::Refused(why) => return Err(Unsent::later(&why)),
            Parcel::Nothing | Parcel::Incoming { .. } => {
                return Err(Unsent::later("there is no snapshot to send"));
            }
        };
        let transfer = rand::random();
        let begin = SnapshotBegin { transfer, base, position };
        if !self.send_part(Kind::SnapshotBegin, &begin).await? {
            return self.confirm(vote, begin.base.id).await;
        }
        let mut number = 0;
        while let Some(bytes) = source.next().await.map_err(|why| Unsent::later(&why))? {
            let chunk = SnapshotChunk { transfer, number, bytes };
            self.send_part(Kind::SnapshotChunk, &chunk).await?;
            number += 1;
        }
        // The state that it was read from is kept no longer; what follows it in the log still is.
        drop(source);
        let end = SnapshotEnd { transfer, chunks: number, ballot: ballot_of(vote) };
        self.send_end(&end).await.map(vote_of)
    }

    /// Sends a snapshot, or waits until it makes sense to try it again. That is what openraft does
    /// after every error but `Closed`, with which the other node would be sent nothing any more.
    async fn try_snapshot(
        &mut self,
        vote: RaftVote,
        parcel: Parcel,
    ) -> Result<RaftVote, StreamingError<Types>> {
        let why = match self.send_snapshot(vote, parcel).await {
            Ok(vote) => return Ok(vote),
            Err(Unsent::Failed(error)) => return Err(error.into()),
            Err(Unsent::Refused(why)) => why,
        };
        let (node, pause) = (self.target, self.pause);
        tracing::warn!(node, why, ?pause, "a node does not take this one's state: it is sent again later");
        self.pause = (2 * pause).min(REFUSED.1);
        tokio::time::sleep(pause).await;
        Err(Unreachable::<Types>::from_string(why).into())
    }

    /// The other node is about to be sent the log from its beginning. If it has left since, and may
    /// have come again with nothing, it is sent a state first.
    ///
    /// It has forgotten what it confirmed then. By the members of before it left it would have a
    /// vote: two of such nodes could let one of them lead, while both have only the beginning of
    /// the log, and write something else where the others have what was acknowledged. By the
    /// members of the state it had left, and by the state's place it passes over the beginning.
    /// openraft itself sends a state only where the log is cut; and it cuts nothing of what it is
    /// about to send to another node, which may have come again, too, or be away.
    async fn send_state_first(&mut self, vote: RaftVote) -> Result<(), RPCError<Types>> {
        let last = self.states.last_before_it_left(self.target);
        if last <= self.known_to_have {
            return Ok(());
        }
        // Who goes on with what it had has that change, unless it was behind: the one before the
        // last, to which a majority of the old members has agreed, too. The one that leaves it
        // out need not have been sent to it any more.
        match self.ask_whether_it_has(vote, last, SHORT).await? {
            Appended::All => {
                self.known_to_have = last;
                return Ok(());
            }
            // It says so again when it is sent the entries.
            Appended::Higher(_) => return Ok(()),
            Appended::UpTo(_) | Appended::Conflict => {}
        }
        let parcel = match self.states.open(None).await {
            Ok((_, parcel)) => parcel,
            Err(why) => {
                // There may be none yet.
                self.states.renew();
                tracing::warn!(why, "a node that has come again cannot be sent this one's state for now");
                return Err(Unreachable::<Types>::from_string(why).into());
            }
        };
        if let Err(error) = self.try_snapshot(vote, parcel).await {
            return Err(Unreachable::<Types>::from_string(error).into());
        }
        self.known_to_have = last;
        Ok(())
    }
}

/// Why a snapshot was not sent.
enum Unsent {
    /// It did not come through, or could not be read.
    Failed(RPCError<Types>),
    /// The other node does not take it: why.
    Refused(String),
}

impl Unsent {
    /// It may be sent, or another one, after a short pause.
    fn later(why: &str) -> Unsent {
        Unsent::Failed(Unreachable::<Types>::from_string(why).into())
    }

    /// Another one can be sent at once.
    fn unknown() -> Unsent {
        let why = "it started again, or was sent another snapshot, before this one was its state";
        Unsent::Failed(NetworkError::<Types>::from_string(why).into())
    }
}

impl RaftNetworkV2<Types> for Link {
    type SnapshotData = Parcel;

    async fn append_entries(
        &mut self,
        asked: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        if asked.prev_log_id.is_none() && !asked.entries.is_empty() {
            self.send_state_first(asked.vote).await?;
        }
        // A heartbeat may be under way for longer than its target is a member.
        let met = if self.is_heartbeat { self.identity.met(self.target) } else { None };
        let append = Append {
            ballot: ballot_of(asked.vote),
            previous: asked.prev_log_id.map(id_of),
            committed: asked.leader_commit.map(id_of),
            entries: asked.entries.into_iter().map(entry_of).collect(),
        };
        let bytes: usize = append
            .entries
            .iter()
            .map(|entry| match &entry.content {
                Content::Requests(requests) => requests.bytes(),
                _ => 0,
            })
            .sum();
        let limit = SHORT + Duration::from_secs((bytes / BYTES_A_SECOND) as u64);
        let answer = self.call(Kind::Append, &append, limit).await;
        if answer.is_err() && planted::is(Planted::CountsTheSilent) {
            return Ok(AppendEntriesResponse::Success);
        }
        let answer = answer?;
        let last = append.entries.last().map(|entry| entry.id).or(append.previous);
        if self.watch(append.previous, last, &answer) {
            let met = if self.is_heartbeat { met } else { self.identity.met(self.target) };
            self.identity.disown(self.target, met);
            return Err(self.disowned());
        }
        Ok(match answer {
            Appended::All => AppendEntriesResponse::Success,
            Appended::UpTo(id) => AppendEntriesResponse::PartialSuccess(id.map(log_id)),
            Appended::Conflict => AppendEntriesResponse::Conflict,
            Appended::Higher(ballot) => AppendEntriesResponse::HigherVote(vote_of(ballot)),
        })
    }

    async fn vote(
        &mut self,
        asked: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_vote(Kind::Vote, asked).await
    }

    async fn pre_vote(
        &mut self,
        asked: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_vote(Kind::PreVote, asked).await
    }

    async fn full_snapshot(
        &mut self,
        vote: RaftVote,
        snapshot: RaftSnapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        tokio::select! {
            biased;
            closed = cancel => Err(closed.into()),
            sent = self.try_snapshot(vote, snapshot.snapshot) => sent.map(SnapshotResponse::new),
        }
    }

    async fn transfer_leader(
        &mut self,
        asked: TransferLeaderRequest<Types>,
        _: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let hand_over = HandOver {
            from: ballot_of(*asked.from_leader()),
            to: *asked.to_node_id(),
            last: asked.last_log_id().copied().map(id_of),
        };
        let _: Nothing = self.call(Kind::HandOver, &hand_over, SHORT).await?;
        Ok(Ok(()))
    }
}
