//! What a participant is told, and what it wants done.
//!
//! Every event and effect names its root. Effects are done in the order in which they come; those
//! that end with a word in brackets are answered by the event of that name, once, whenever it is
//! done.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::locks::{Grant, Item};
use crate::matrix::ServiceId;
use crate::name::{CallId, Name, RootId};

/// A text that is cheap to clone.
pub type Text = Arc<str>;

/// What a yes is known by: the parent's decision names it, so that an outcome meets the vote that
/// it was made for and no other (a late duplicate of a call and its prepare would make another
/// one).
pub type Nonce = u64;

/// The nonce of a yes that was given again where nothing says what it was known by (a slot of an
/// earlier build, a lost journal in another language): it stands for whatever was given before.
pub const ANY_NONCE: Nonce = 0;

/// Number of a slot of the component's pool.
pub type Slot = u32;

/// A call that has come.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arrival {
    /// Its root.
    pub root: RootId,
    /// The call: new in its root, or the same as before if it was sent again.
    pub call: CallId,
    /// The component that calls; none where the root begins.
    pub parent: Option<Name>,
    /// The calls that it is part of, the root's first.
    pub ancestors: Vec<CallId>,
    /// The service.
    pub service: ServiceId,
    /// What it is about.
    pub item: Item,
    /// A hash of the arguments: a call that is sent again has the same ones.
    pub arguments: u64,
}

/// Why a call is refused. None of these has left anything behind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// What was in its way until it had waited long enough.
    Blocked(Grant),
    /// The same call is under way.
    Running,
    /// The root has ended here, or can only be aborted.
    Ended,
    /// The same call was made of another service, or with other arguments.
    OtherArguments,
}

/// What became of a call that was sent to a child.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sent {
    /// It was answered 2xx, by this generation of the child.
    Answered {
        /// The child's generation.
        generation: u64,
        /// What a yes of the child to this root will be known by, if it says so.
        nonce: Option<Nonce>,
    },
    /// It failed, and the answer proves that nothing of it is left.
    LeftNothing,
    /// It could not be sent: the child has not heard of it.
    NotSent,
    /// It failed, or its answer was lost: what it did is unknown.
    Failed,
}

/// How a local transaction ended. As long as that is not known, nothing is said of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ended {
    /// It is committed, with this slot; a call that only read and called nobody has none.
    Committed {
        /// The slot.
        slot: Option<Slot>,
        /// The answer to the call.
        answer: Text,
    },
    /// It has answered and is kept prepared until its root ends: it has no undo.
    Held {
        /// The slot.
        slot: Slot,
        /// The answer to the call.
        answer: Text,
    },
    /// It is rolled back.
    RolledBack,
}

/// Why a component votes no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum No {
    /// Nothing is known of the root, or it was undone here.
    Unknown,
    /// It has ended here.
    Ended,
    /// The caller has counted other calls than this component has executed for it.
    Count,
    /// A call is still under way.
    Running,
    /// A call has failed, so the root can only be aborted.
    Doomed,
    /// A call that only read lost its lock when the component was started again.
    Generation,
    /// A component below has voted no.
    Child,
    /// The vote could not be written, or what it promises could not be kept ready.
    Failed,
}

impl No {
    /// As it is written in a message.
    pub fn as_str(self) -> &'static str {
        match self {
            No::Unknown => "unknown",
            No::Ended => "ended",
            No::Count => "count",
            No::Running => "running",
            No::Doomed => "doomed",
            No::Generation => "generation",
            No::Child => "child",
            No::Failed => "failed",
        }
    }
}

/// A vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vote {
    /// The parent decides from now on.
    Yes(Nonce),
    /// The root cannot be committed.
    No(No),
}

/// Why calls of a root are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub enum Mark {
    /// Nothing was executed for it.
    Empty,
    /// What was executed for it was undone. A yes to that was known by this, or would have been;
    /// by none if nobody was told any, and by any ([`ANY_NONCE`]) if that is not known.
    Undone(Option<Nonce>),
    /// It was committed.
    Committed,
}

impl Mark {
    /// Whether a vote that a parent names can be of what was undone.
    pub(super) fn has_undone(self, named: Option<Nonce>) -> bool {
        matches!(self, Mark::Undone(own) if may_be_of(named, own))
    }
}

/// Whether a vote that a parent names can be of what is known by this, or would be. Who names none
/// may mean any.
pub(super) fn may_be_of(named: Option<Nonce>, own: Option<Nonce>) -> bool {
    match (named, own) {
        (None | Some(ANY_NONCE), _) | (_, Some(ANY_NONCE)) => true,
        (Some(named), own) => own == Some(named),
    }
}

/// A mark as it is written. Earlier builds have not written what was undone, and read nothing else.
#[derive(Serialize, Deserialize)]
enum Written {
    Empty,
    Undone,
    UndoneOf(Option<Nonce>),
    Committed,
}

impl From<Written> for Mark {
    fn from(written: Written) -> Mark {
        match written {
            Written::Empty => Mark::Empty,
            Written::Undone => Mark::Undone(Some(ANY_NONCE)),
            Written::UndoneOf(nonce) => Mark::Undone(nonce),
            Written::Committed => Mark::Committed,
        }
    }
}

impl From<Mark> for Written {
    fn from(mark: Mark) -> Written {
        match mark {
            Mark::Empty => Written::Empty,
            Mark::Undone(Some(ANY_NONCE)) => Written::Undone,
            Mark::Undone(nonce) => Written::UndoneOf(nonce),
            Mark::Committed => Written::Committed,
        }
    }
}

/// What a component answers when it is told an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Settled {
    /// Nothing is left to do, and nobody will be asked again.
    Done,
    /// It has begun.
    Pending,
    /// The opposite has been done.
    Refused,
}

/// What a component knows of a root's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It is committed.
    Committed,
    /// It is aborted; this is also what nothing being known means.
    Aborted,
    /// It is not known here either.
    Pending,
}

/// A question for a vote.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prepare {
    /// The root.
    pub root: RootId,
    /// Who asks.
    pub parent: Name,
    /// How many distinct calls this component has answered him.
    pub calls: u32,
    /// The oldest generation that was in those answers, if he tells.
    pub generation: Option<u64>,
    /// A number that no earlier vote had; used if this question leads to one.
    pub nonce: Nonce,
}

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// A call has come, or begins a root here.
    Arrive(Arrival),
    /// A call that waits for its lock has waited long enough.
    WaitedEnough(RootId, CallId),
    /// What became of a call that was sent to a child (see [`super::Participant::may_call`]).
    Called(RootId, CallId, Name, Sent),
    /// The handler of the call that began the root has answered: the root is to be committed.
    Finish(RootId),
    /// The handler of a call has answered with this, and its commit is about to be sent. Its caller
    /// may be answered now: that is so if [`Effect::Answer`] comes of it. \[`Ended`\]
    Committing(RootId, CallId, Text),
    /// A local transaction has ended.
    Ended(RootId, CallId, Ended),
    /// A parent asks for a vote.
    Prepare(Prepare),
    /// A child has voted.
    Voted(RootId, Name, Vote),
    /// [`Effect::WriteVote`] is done.
    VoteWritten(RootId),
    /// It could not be done.
    VoteFailed(RootId),
    /// A parent says that the root is committed.
    Commit(RootId, Name, Option<Nonce>),
    /// A parent says that the root is aborted.
    Abort(RootId, Name),
    /// A child was told the outcome and has answered.
    Told(RootId, Name, Settled),
    /// A parent was asked for the outcome of this vote and has answered.
    Learned(RootId, Name, Option<Nonce>, Outcome),
    /// [`Effect::CommitHeld`] is durable.
    HeldCommitted(RootId, CallId),
    /// An undo is durable.
    Undone(RootId, CallId),
    /// The root's slots are durably free.
    Freed(RootId),
    /// It is durable in the database that the root is committed.
    Noted(RootId),
    /// The root's time is over.
    Deadline(RootId),
    /// A mark is as old as any late message can be.
    MarkOver(RootId),
    /// A person has decided for a root that is in doubt.
    Settle(RootId, Outcome),
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Run the handler of a call that has its lock. \[`Ended`, or `Finish` where the root began\]
    Run(RootId, CallId),
    /// The call waits; say so when it has waited long enough. \[`WaitedEnough`\]
    Wait(RootId, CallId),
    /// Answer a call that was answered before.
    Repeat(RootId, CallId, Text),
    /// Answer a call: its local transaction is committed, held, or about to be committed
    /// ([`Event::Committing`]).
    Answer(RootId, CallId, Text),
    /// Answer a call that did not run.
    Refuse(RootId, CallId, Refusal),
    /// Stop a call's handler and roll back what it did. A commit that is under way goes on, and is
    /// not tried again if it fails. \[`Ended`\]
    Cancel(RootId, CallId),
    /// Ask a child for its vote. \[`Voted`\]
    AskVote {
        /// The root.
        root: RootId,
        /// The child.
        child: Name,
        /// The calls that it has answered.
        calls: u32,
        /// The oldest generation in its answers.
        generation: Option<u64>,
    },
    /// Make a yes durable: write it to the journal, unless the slots say all of it
    /// ([`super::Participant::is_in_slots`]). \[`VoteWritten`, `VoteFailed`\]
    WriteVote(RootId, Option<Nonce>),
    /// Answer a parent's question.
    SendVote(RootId, Name, Vote),
    /// Commit the local transaction of the call that began the root: the decision. \[`Ended`\]
    Decide(RootId, CallId),
    /// Tell a child that the root is committed, again and again until it is done. \[`Told`\]
    TellCommit(RootId, Name, Option<Nonce>),
    /// Tell a child that the root is aborted. \[`Told`\]
    TellAbort(RootId, Name),
    /// Answer a parent that told an outcome.
    SendSettled(RootId, Name, Settled),
    /// Commit the local transaction that was kept prepared, again and again until it is done.
    /// \[`HeldCommitted`\]
    CommitHeld(RootId, CallId),
    /// Undo a call, or roll back what was kept prepared, again and again until it is done.
    /// \[`Undone`\]
    Undo(RootId, CallId),
    /// Have the slots of a committed root freed, by their next use or together with others.
    /// \[`Freed`\]
    Free(RootId, Vec<Slot>),
    /// Write into the root's slots that it is committed. \[`Noted`\]
    Note(RootId, Vec<Slot>),
    /// Write that calls of this root are refused from now on, before anything else is said of it,
    /// and say so when that is no longer needed. \[`MarkOver`\]
    Mark(RootId, Mark),
    /// The root is in doubt: ask this parent, again and again until it is known. \[`Learned`\]
    AskOutcome(RootId, Name, Option<Nonce>),
    /// The root has ended with this outcome; nothing is kept of it but that its calls are refused.
    /// \[`MarkOver`\]
    Forget(RootId, Outcome),
}
