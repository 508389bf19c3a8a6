//! What nodes say to each other, once they know each other.
//!
//! ```text
//! request   kind (1) · cluster (16, zero if none) · body
//! answer    0 · body                refused: 1 · why, as text
//! ```
//!
//! A request of another cluster is refused, whatever connection it came by.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::codec::{Coded, Malformed, Reader, coded_fields};
use crate::entry::{Ballot, Base, ClusterId, Entry, EntryId, Members, NodeNumber, Position, Requests};
use crate::status::{NodeState, Role};

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// [`Append`], answered by [`Appended`].
    Append,
    /// [`AskVote`], answered by [`Vote`].
    Vote,
    /// [`AskVote`], answered by [`Vote`]: would it be given?
    PreVote,
    /// [`HandOver`], answered by nothing.
    HandOver,
    /// [`SnapshotBegin`], answered by [`SnapshotAnswer`].
    SnapshotBegin,
    /// [`SnapshotChunk`], answered by [`SnapshotAnswer`].
    SnapshotChunk,
    /// [`SnapshotEnd`], answered by [`SnapshotAnswer`].
    SnapshotEnd,
    /// Packed requests, answered by [`Proposed`].
    Propose,
    /// Answered by the index up to which a reader must wait.
    ReadIndex,
    /// [`Change`], answered by nothing.
    Change,
    /// Answered by [`Report`].
    Report,
    /// The application's own question.
    Question,
    /// [`Newborn`], answered by [`Newborn`].
    Newborn,
}

const KINDS: [Kind; 13] = [
    Kind::Append,
    Kind::Vote,
    Kind::PreVote,
    Kind::HandOver,
    Kind::SnapshotBegin,
    Kind::SnapshotChunk,
    Kind::SnapshotEnd,
    Kind::Propose,
    Kind::ReadIndex,
    Kind::Change,
    Kind::Report,
    Kind::Question,
    Kind::Newborn,
];

impl Kind {
    /// Whether a second copy of such a request does no harm: a network may then lose or repeat it.
    pub(crate) fn is_repeatable(self) -> bool {
        matches!(
            self,
            Kind::Append
                | Kind::Vote
                | Kind::PreVote
                | Kind::SnapshotEnd
                | Kind::ReadIndex
                | Kind::Report
                | Kind::Newborn
        )
    }

    /// Whether the consensus does all that there is to do: whoever asks it only waits.
    pub(crate) fn is_of_consensus(self) -> bool {
        matches!(
            self,
            Kind::Append | Kind::Vote | Kind::PreVote | Kind::HandOver | Kind::Propose | Kind::ReadIndex
        )
    }

    /// The kind of a request's bytes.
    pub(crate) fn of(request: &Bytes) -> Option<Kind> {
        KINDS.get(usize::from(*request.first()?)).copied()
    }
}

/// The bytes of a request.
pub(crate) fn request(kind: Kind, cluster: Option<ClusterId>, body: &impl Coded) -> Bytes {
    let mut out = vec![KINDS.iter().position(|known| *known == kind).unwrap_or_default() as u8];
    cluster.unwrap_or_default().put(&mut out);
    body.put(&mut out);
    Bytes::from(out)
}

/// Whether a request's sender belongs to a cluster.
pub(crate) fn names_cluster(request: &Bytes) -> bool {
    request.get(1..17).is_some_and(|cluster| cluster.iter().any(|byte| *byte != 0))
}

/// A request's kind, its cluster and its body.
pub(crate) fn open_request(bytes: Bytes) -> Result<(Kind, Option<ClusterId>, Bytes), Malformed> {
    let kind = Kind::of(&bytes).ok_or(Malformed("a request of no known kind"))?;
    let mut reader = Reader::new(bytes);
    u8::get(&mut reader)?;
    let cluster = ClusterId::get(&mut reader)?;
    Ok((kind, Some(cluster).filter(|cluster| *cluster != [0; 16]), reader.rest()))
}

/// An answer's bytes.
pub(crate) fn answer(body: Result<impl Coded, String>) -> Bytes {
    let mut out = Vec::new();
    match body {
        Ok(body) => {
            out.push(0);
            body.put(&mut out);
        }
        Err(why) => {
            out.push(1);
            why.put(&mut out);
        }
    }
    Bytes::from(out)
}

/// What an answer says: the body, or why the request was refused.
pub(crate) fn open_answer<T: Coded>(bytes: Bytes) -> Result<T, String> {
    let mut reader = Reader::new(bytes);
    let malformed = |malformed: Malformed| format!("an answer that is {malformed}");
    match u8::get(&mut reader).map_err(malformed)? {
        0 => T::decode(reader.rest()).map_err(malformed),
        _ => Err(String::decode(reader.rest()).map_err(malformed)?),
    }
}

/// Nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nothing {}

/// Entries after `previous`, and up to where they are settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Append {
    pub(crate) ballot: Ballot,
    pub(crate) previous: Option<EntryId>,
    pub(crate) committed: Option<EntryId>,
    pub(crate) entries: Vec<Entry>,
}

/// What became of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Appended {
    All,
    UpTo(Option<EntryId>),
    Conflict,
    Higher(Ballot),
}

/// A candidate asks for a vote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskVote {
    pub(crate) ballot: Ballot,
    pub(crate) last: Option<EntryId>,
    pub(crate) is_hand_over: bool,
}

/// The answer to a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vote {
    pub(crate) ballot: Ballot,
    pub(crate) is_granted: bool,
    pub(crate) last: Option<EntryId>,
}

/// A leader wants another one to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandOver {
    pub(crate) from: Ballot,
    pub(crate) to: NodeNumber,
    pub(crate) last: Option<EntryId>,
}

/// A snapshot begins; one that was under way before is given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotBegin {
    pub(crate) transfer: u64,
    pub(crate) base: Base,
    pub(crate) position: Position,
}

/// A part of a snapshot; they are numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotChunk {
    pub(crate) transfer: u64,
    pub(crate) number: u64,
    pub(crate) bytes: Bytes,
}

/// A snapshot is complete: it may become the state. Said again, it asks whether it is by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotEnd {
    pub(crate) transfer: u64,
    pub(crate) chunks: u64,
    pub(crate) ballot: Ballot,
}

/// What became of a snapshot, or of a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SnapshotAnswer {
    /// The beginning or the part was taken: what follows may come.
    Taken,
    /// All that the snapshot covers is settled at the receiver: nothing of it need come.
    Here,
    /// To an end: it is becoming the receiver's state. To a beginning: another one is.
    Installing,
    /// It is the receiver's state, unless this is the ballot of a later leader.
    Installed(Ballot),
    /// The receiver does not know it any more: it has started again, or was sent another one.
    Unknown,
}

/// What became of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proposed {
    /// It is settled; its first request has this position.
    At(Position),
    /// It was not proposed: another node leads, perhaps this one.
    NotLeader(Option<NodeNumber>),
    /// Nobody knows.
    Unknown(String),
}

/// A change of the membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Add a node that receives everything and does not vote.
    AddLearner(NodeNumber),
    /// Let a learner vote, which must be there and lack next to nothing.
    Promote(NodeNumber),
    /// Remove a node.
    Remove(NodeNumber),
}

/// What a node says of itself, and a leader of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) node: NodeNumber,
    pub(crate) role: Role,
    pub(crate) state: NodeState,
    pub(crate) applied: Position,
    pub(crate) committed: Position,
    pub(crate) reason: String,
    /// Its order has ended: it answers, and confirms nothing any more.
    pub(crate) has_ended: bool,
    pub(crate) members: Members,
    /// Bytes of settled requests that it has and has not applied, and for how many milliseconds it
    /// has had the first of them.
    pub(crate) unapplied: (u64, u64),
    /// A leader's: bytes of settled requests that each other node has not got, and for how many
    /// milliseconds the first of them has been here.
    pub(crate) lags: BTreeMap<NodeNumber, (u64, u64)>,
    /// Nodes that have lost what they had confirmed, each with the incarnation that has.
    pub(crate) lost: BTreeMap<NodeNumber, u64>,
    /// The last entry that is settled and on its disk: from now on it has that.
    pub(crate) kept: Option<u64>,
}

/// What a node says of itself before the cluster is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Newborn {
    /// The numbers of its list.
    pub(crate) numbers: BTreeSet<NodeNumber>,
    /// The cluster that it belongs to, or is about to found.
    pub(crate) cluster: Option<ClusterId>,
    /// Whether that cluster has had its first entry.
    pub(crate) is_initialized: bool,
    /// The position before the first request.
    pub(crate) began: Position,
    /// Whether who hears this should join that cluster.
    pub(crate) invites: bool,
}

coded_fields!(Nothing {});
coded_fields!(Append { ballot, previous, committed, entries });
coded_fields!(AskVote { ballot, last, is_hand_over });
coded_fields!(Vote { ballot, is_granted, last });
coded_fields!(HandOver { from, to, last });
coded_fields!(SnapshotBegin { transfer, base, position });
coded_fields!(SnapshotChunk { transfer, number, bytes });
coded_fields!(SnapshotEnd { transfer, chunks, ballot });
coded_fields!(Report {
    node,
    role,
    state,
    applied,
    committed,
    reason,
    has_ended,
    members,
    unapplied,
    lags,
    lost,
    kept
});
coded_fields!(Newborn { numbers, cluster, is_initialized, began, invites });

impl<A: Coded, B: Coded> Coded for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(from: &mut Reader) -> Result<(A, B), Malformed> {
        Ok((A::get(from)?, B::get(from)?))
    }
}

impl Coded for Appended {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Appended::All => out.push(0),
            Appended::UpTo(id) => {
                out.push(1);
                id.put(out);
            }
            Appended::Conflict => out.push(2),
            Appended::Higher(ballot) => {
                out.push(3);
                ballot.put(out);
            }
        }
    }

    fn get(from: &mut Reader) -> Result<Appended, Malformed> {
        match u8::get(from)? {
            0 => Ok(Appended::All),
            1 => Coded::get(from).map(Appended::UpTo),
            2 => Ok(Appended::Conflict),
            3 => Coded::get(from).map(Appended::Higher),
            _ => Err(Malformed("no answer to entries")),
        }
    }
}

impl Coded for SnapshotAnswer {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            SnapshotAnswer::Taken => out.push(0),
            SnapshotAnswer::Here => out.push(1),
            SnapshotAnswer::Installing => out.push(2),
            SnapshotAnswer::Installed(ballot) => {
                out.push(3);
                ballot.put(out);
            }
            SnapshotAnswer::Unknown => out.push(4),
        }
    }

    fn get(from: &mut Reader) -> Result<SnapshotAnswer, Malformed> {
        match u8::get(from)? {
            0 => Ok(SnapshotAnswer::Taken),
            1 => Ok(SnapshotAnswer::Here),
            2 => Ok(SnapshotAnswer::Installing),
            3 => Coded::get(from).map(SnapshotAnswer::Installed),
            4 => Ok(SnapshotAnswer::Unknown),
            _ => Err(Malformed("no answer to a snapshot")),
        }
    }
}

impl Coded for Proposed {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Proposed::At(position) => {
                out.push(0);
                position.put(out);
            }
            Proposed::NotLeader(leader) => {
                out.push(1);
                leader.put(out);
            }
            Proposed::Unknown(why) => {
                out.push(2);
                why.put(out);
            }
        }
    }

    fn get(from: &mut Reader) -> Result<Proposed, Malformed> {
        match u8::get(from)? {
            0 => Coded::get(from).map(Proposed::At),
            1 => Coded::get(from).map(Proposed::NotLeader),
            2 => Coded::get(from).map(Proposed::Unknown),
            _ => Err(Malformed("no answer to a proposal")),
        }
    }
}

impl Coded for Change {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, node) = match self {
            Change::AddLearner(node) => (0, node),
            Change::Promote(node) => (1, node),
            Change::Remove(node) => (2, node),
        };
        out.push(kind);
        node.put(out);
    }

    fn get(from: &mut Reader) -> Result<Change, Malformed> {
        match (u8::get(from)?, u64::get(from)?) {
            (0, node) => Ok(Change::AddLearner(node)),
            (1, node) => Ok(Change::Promote(node)),
            (2, node) => Ok(Change::Remove(node)),
            _ => Err(Malformed("no change of the membership")),
        }
    }
}

/// Requests alone are their packed bytes.
impl Coded for Requests {
    fn put(&self, out: &mut Vec<u8>) {
        self.packed().put(out);
    }

    fn get(from: &mut Reader) -> Result<Requests, Malformed> {
        Bytes::get(from).and_then(Requests::unpack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Leadership;

    #[test]
    fn requests_and_answers_are_opened_as_they_were_closed() {
        let requests = Requests::pack(&[Bytes::from_static(b"x")]);
        let bytes = request(Kind::Propose, Some([7; 16]), &requests);
        assert!(names_cluster(&bytes) && !names_cluster(&request(Kind::Newborn, None, &Nothing {})));
        let (kind, cluster, body) = open_request(bytes).unwrap();
        assert_eq!((kind, cluster), (Kind::Propose, Some([7; 16])));
        assert_eq!(Requests::decode(body).unwrap(), requests);
        let at = answer(Ok(Proposed::At(9)));
        assert_eq!(open_answer::<Proposed>(at), Ok(Proposed::At(9)));
        let ballot = Ballot { leadership: Leadership { term: 3, node: 1 }, is_elected: true };
        for known in [
            SnapshotAnswer::Taken,
            SnapshotAnswer::Here,
            SnapshotAnswer::Installing,
            SnapshotAnswer::Installed(ballot),
            SnapshotAnswer::Unknown,
        ] {
            assert_eq!(open_answer::<SnapshotAnswer>(answer(Ok(known))), Ok(known));
        }
        let refused = answer(Err::<Nothing, _>("because".to_owned()));
        assert_eq!(open_answer::<Nothing>(refused), Err("because".to_owned()));
        assert!(open_request(Bytes::from_static(&[200])).is_err());
        assert_eq!(Kind::of(&request(Kind::Newborn, None, &Nothing {})), Some(Kind::Newborn));
    }

    #[test]
    fn what_may_come_twice_does_no_harm() {
        assert!(Kind::Append.is_repeatable() && Kind::Vote.is_repeatable());
        assert!(Kind::SnapshotEnd.is_repeatable() && !Kind::SnapshotChunk.is_repeatable());
        assert!(!Kind::Propose.is_repeatable() && !Kind::Change.is_repeatable());
    }
}
