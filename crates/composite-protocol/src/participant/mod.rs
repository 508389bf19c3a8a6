//! A component's part in composite transactions: call-level locks, the calls of each root, and the
//! cascaded two-phase commit (paper, §§3.2 to 3.5).
//!
//! Pure: [`Participant::handle`] is told what has happened and answers what is to be done. It knows
//! no clock, no network, no disk and no database; so all orders of what can happen are explored in
//! its tests.
//!
//! # Invariants
//!
//! 1. *Locks.* Every call that runs or is answered holds its lock; a root's locks go when it is
//!    committed here (of a call without undo, when its prepared local transaction is), and call by
//!    call as it is undone, in reverse order.
//! 2. *No yes without its promise.* A yes is sent only after it is durable, when no call is under
//!    way, the caller has counted the calls that were executed, and (for the first parent that
//!    asks) all children said yes. It is durable with the slots: a start takes every root that has
//!    some, and no end, for one that it may have said yes to, unless it is known that it has not.
//! 3. *In doubt is in doubt.* Once a yes was sent, or may have been, only a parent's word ends the
//!    root here; and only that of one whose calls are here, if it is that the root is aborted.
//! 4. *Whoever was called is asked.* Every component that a call was sent to is asked and told,
//!    with the number of calls that it has answered, also if it answered none.
//! 5. *Forgetting.* A committed root is forgotten when all children are done and its own slots are
//!    free, in this order; until then who asks is told `committed`. So an unknown root was aborted.
//! 6. *No ghosts.* Whoever says that a root has ended, or that he does not know it, leaves a mark
//!    first: later calls of it are refused, for as long as messages can be late. Only of a root
//!    that began here and called nobody none can come.
//!
//! 7. *Answered ahead.* A call may be answered when its commit is about to be sent. Until that has
//!    ended its conflicting siblings wait, the root is neither voted for nor undone here, and who
//!    sends the call again is answered the same. If it fails, the root has ended here. So an answer
//!    that nothing came of is one of a root that is aborted. It is never given where the root
//!    began, nor within another call of the same component: that one would go on beside a commit
//!    which it has no lock against.
//!
//! # One history
//!
//! `shop` begins root r, calls `stock` and `payment`; both commit at once and keep their locks.
//!
//! ```text
//! shop      Arrive(r.1) ─▶ Run     Finish ─▶ AskVote(stock, 1), AskVote(payment, 1)
//! stock     Arrive(r.2) ─▶ Run     Ended(Committed) ─▶ Answer
//!           Prepare(1) ─▶ WriteVote (it is in the slot)     VoteWritten ─▶ SendVote(yes)
//! payment   the same with r.3
//! shop      Voted, Voted ─▶ Decide     Ended(Committed) ─▶ Answer, TellCommit(stock), TellCommit(payment)
//! stock     Commit ─▶ Free, SendSettled(pending)     Freed ─▶ Forget      Commit ─▶ SendSettled(done)
//! shop      Told(stock, done), Told(payment, done) ─▶ Free     Freed ─▶ Forget
//! ```
//!
//! Had `payment` refused, shop's root would be doomed: TellAbort to both; `stock` undoes r.2 and
//! gives its lock back.

mod calls;
pub mod event;
mod marks;
mod outcome;
mod recover;
mod root;
pub mod rule;
mod vote;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use event::{
    ANY_NONCE, Arrival, Effect, Ended, Event, Mark, No, Nonce, Outcome, Prepare, Refusal, Sent, Settled,
    Slot, Text, Vote,
};
pub use recover::{Origin, Remembered, SlotFacts, VoteFacts};
pub use root::Phase;

use marks::Marks;
use root::Root;
use rule::{Rule, holds};

use crate::locks::LockTable;
use crate::matrix::Matrix;
use crate::name::{CallId, Name, RootId};

/// What is to be done, in this order.
type Effects = Vec<Effect>;

/// One component.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Participant {
    matrix: Arc<Matrix>,
    /// Grows by one with each start of the component.
    generation: u64,
    locks: LockTable,
    roots: BTreeMap<RootId, Root>,
    /// Roots of which no call is taken any more.
    marks: Marks,
    /// Calls that wait for locks, the longest waiting first.
    waiting: Vec<(RootId, CallId)>,
    sequence: u64,
}

/// A root as a person is shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootInfo {
    /// The root.
    pub root: RootId,
    /// How far it has come.
    pub phase: Phase,
    /// Only a parent can end it.
    pub is_in_doubt: bool,
    /// Whether it began here.
    pub began_here: bool,
    /// How many locks it holds.
    pub locks: usize,
}

impl Participant {
    /// A component that remembers nothing.
    pub fn new(matrix: Arc<Matrix>, generation: u64) -> Participant {
        Participant {
            matrix,
            generation,
            locks: LockTable::default(),
            roots: BTreeMap::new(),
            marks: Marks::default(),
            waiting: Vec::new(),
            sequence: 0,
        }
    }

    /// Takes in what has happened; answers what is to be done.
    pub fn handle(&mut self, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        match event {
            Event::Arrive(arrival) => self.arrive(arrival, &mut out),
            Event::WaitedEnough(root, call) => self.waited_enough(&root, &call, &mut out),
            Event::Called(root, call, child, sent) => self.called(&root, &call, &child, &sent),
            Event::Finish(root) => self.finish(&root, &mut out),
            Event::Committing(root, call, answer) => self.committing(&root, &call, answer, &mut out),
            Event::Ended(root, call, ended) => self.ended(&root, &call, ended, &mut out),
            Event::Prepare(prepare) => self.ask(prepare, &mut out),
            Event::Voted(root, child, vote) => self.voted(&root, &child, vote, &mut out),
            Event::VoteWritten(root) => self.vote_written(&root, &mut out),
            Event::VoteFailed(root) => self.fail(&root, No::Failed, &mut out),
            Event::Commit(root, parent, nonce) => self.commit_told(&root, &parent, nonce, &mut out),
            Event::Abort(root, parent) => self.abort_told(&root, &parent, &mut out),
            Event::Told(root, child, settled) => self.told(&root, &child, settled, &mut out),
            Event::Learned(root, parent, nonce, outcome) => {
                self.learned(&root, &parent, nonce, outcome, &mut out);
            }
            Event::HeldCommitted(root, call) => self.held_committed(&root, &call, &mut out),
            Event::Undone(root, call) => self.undone(&root, &call, &mut out),
            Event::Freed(root) => self.freed(&root, &mut out),
            Event::Noted(root) => self.noted(&root, &mut out),
            Event::Deadline(root) => self.deadline(&root, &mut out),
            Event::MarkOver(root) => {
                // What is still being undone needs it: a start would be in doubt about the rest.
                if !self.roots.contains_key(&root) {
                    self.marks.remove(&root);
                }
            }
            Event::Settle(root, outcome) => self.settle(&root, outcome, &mut out),
        }
        out
    }

    /// What is known here of a root's outcome, for a child that holds this vote and was called by
    /// these calls. If one of them is not here any more, it was never answered, or the child has
    /// ended long ago and executed a late duplicate: what it asks about can only be aborted.
    pub fn outcome(&self, root: &RootId, child: &Name, nonce: Option<Nonce>, callers: &[CallId]) -> Outcome {
        let Some(known) = self.roots.get(root) else { return Outcome::Aborted };
        let is_gone = |caller: &CallId| !known.calls.contains_key(caller);
        if holds(Rule::CallersAreNamed) && callers.iter().any(is_gone) {
            return Outcome::Aborted;
        }
        match known.phase {
            Phase::Active | Phase::Preparing | Phase::Deciding => Outcome::Pending,
            Phase::Aborting => Outcome::Aborted,
            Phase::Committed => {
                let decided = known.children.get(child).and_then(root::Child::named);
                match (nonce, decided) {
                    (Some(asked), Some(decided)) if holds(Rule::NoncesAreCompared) => {
                        let is_it = asked == decided || decided == ANY_NONCE;
                        if is_it { Outcome::Committed } else { Outcome::Aborted }
                    }
                    _ => Outcome::Committed,
                }
            }
        }
    }

    /// The component's generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a root can only be aborted, or is being so: its handlers' results do not count any
    /// more.
    pub fn is_lost(&self, root: &RootId) -> bool {
        self.roots.get(root).is_none_or(|root| root.is_doomed || root.phase == Phase::Aborting)
    }

    /// The roots that a yes was given to, or may be without a further [`Effect::WriteVote`]; where
    /// a root began it is never in doubt.
    pub fn promised(&self) -> Vec<RootId> {
        let may_be =
            |known: &Root| known.is_promised || known.began.is_none() && known.phase == Phase::Preparing;
        self.roots.iter().filter(|(_, known)| may_be(known)).map(|(root, _)| root.clone()).collect()
    }

    /// Whether only a parent can end this root here.
    pub fn is_in_doubt(&self, root: &RootId) -> bool {
        self.roots.get(root).is_some_and(Root::is_in_doubt)
    }

    /// Whether a person has committed this root here, and nothing says so as yet but this process.
    pub fn is_settled(&self, root: &RootId) -> bool {
        self.roots.get(root).is_some_and(Root::is_settled)
    }

    /// Whether one of these calls runs here.
    pub fn is_within(&self, root: &RootId, ancestors: &[CallId]) -> bool {
        let known = self.roots.get(root);
        known.is_some_and(|known| ancestors.iter().any(|call| known.calls.contains_key(call)))
    }

    /// Whether anything of a root is here.
    pub fn knows(&self, root: &RootId) -> bool {
        self.roots.contains_key(root)
    }

    /// Whether a root's commit is carried out here, or was: that all of it is done is known then,
    /// and not a guess of one who knows nothing of it.
    pub fn has_committed(&self, root: &RootId) -> bool {
        match self.roots.get(root) {
            Some(known) => known.phase == Phase::Committed,
            None => self.marks.get(root) == Some(&Mark::Committed),
        }
    }

    /// Whether calls of this root are refused because it has ended here.
    pub fn is_marked(&self, root: &RootId) -> bool {
        self.marks.contains_key(root)
    }

    /// The roots whose calls are refused.
    pub fn marked(&self) -> impl Iterator<Item = &RootId> {
        self.marks.keys()
    }

    /// The children of a root, with the numbers of the calls that they have answered, and their
    /// votes.
    pub fn children(&self, root: &RootId) -> Vec<(Name, u32, Option<Nonce>)> {
        let Some(root) = self.roots.get(root) else { return Vec::new() };
        let child = |(name, child): (&Name, &root::Child)| (name.clone(), child.answered, child.nonce());
        root.children.iter().map(child).collect()
    }

    /// Whom a call has called, and how many of these calls were answered.
    pub fn children_of(&self, root: &RootId, call: &CallId) -> Vec<(Name, u32)> {
        let call = self.roots.get(root).and_then(|root| root.calls.get(call));
        let children =
            call.map(|call| call.children.iter().map(|(name, answered)| (name.clone(), *answered)));
        children.map(Iterator::collect).unwrap_or_default()
    }

    /// What the yes of each of these is known by, as far as its answers said so.
    pub fn nonces_of(&self, root: &RootId, call: &CallId) -> Vec<(Name, Nonce)> {
        let Some(root) = self.roots.get(root) else { return Vec::new() };
        let children = root.calls.get(call).into_iter().flat_map(|call| call.children.keys());
        let nonce = |name: &Name| Some((name.clone(), root.children.get(name)?.known_as?));
        children.filter_map(nonce).collect()
    }

    /// What a yes to this root is known by; this number, which no earlier yes had, if it has to be
    /// known now: a slot is written, or a call answered.
    pub fn nonce(&mut self, root: &RootId, new: Nonce) -> Option<Nonce> {
        let known = self.roots.get_mut(root)?;
        if !known.is_promised {
            known.nonce.get_or_insert(new);
        }
        known.nonce
    }

    /// Whether a start would find in the slots of a root all that a yes says, so that it needs no
    /// record.
    pub fn is_in_slots(&self, root: &RootId) -> bool {
        self.roots.get(root).is_some_and(Root::is_in_slots)
    }

    /// The calls of a parent that have called here for a root, as far as they said so.
    pub fn callers(&self, root: &RootId, parent: &Name) -> Vec<CallId> {
        let calls = self.roots.get(root).into_iter().flat_map(|known| known.calls.values());
        let of_parent = calls.filter(|call| call.arrival.parent.as_ref() == Some(parent));
        let callers: BTreeSet<&CallId> = of_parent.filter_map(|call| call.arrival.ancestors.last()).collect();
        callers.into_iter().cloned().collect()
    }

    /// Whether a root began at this component.
    pub fn began_here(&self, root: &RootId) -> bool {
        self.roots.get(root).is_some_and(|root| root.began.is_some())
    }

    /// The parents that a yes to this root was or will be sent to.
    pub fn parents(&self, root: &RootId) -> Vec<Name> {
        self.roots.get(root).map(|root| root.parents.keys().cloned().collect()).unwrap_or_default()
    }

    /// The number of a call's lock.
    pub fn sequence(&self, root: &RootId, call: &CallId) -> Option<u64> {
        self.roots.get(root)?.calls.get(call).map(|call| call.sequence)
    }

    /// The roots that have not ended, by their names.
    pub fn roots(&self) -> Vec<RootInfo> {
        let info = |(root, known): (&RootId, &Root)| RootInfo {
            root: root.clone(),
            phase: known.phase,
            is_in_doubt: known.is_in_doubt(),
            began_here: known.began.is_some(),
            locks: match known.phase {
                Phase::Committed => known.calls.values().filter(|call| call.is_held()).count(),
                _ => known.calls.values().filter(|call| call.stage != root::Stage::Waiting).count(),
            },
        };
        self.roots.iter().map(info).collect()
    }

    /// Whether a start would find anything of a root.
    pub fn has_slots(&self, root: &RootId) -> bool {
        self.roots.get(root).is_some_and(|known| !known.slots().is_empty())
    }

    /// Whether answered calls of a root have left nothing in the database: what they read is
    /// protected by their locks here, and by nothing else.
    pub fn has_slotless(&self, root: &RootId) -> bool {
        let is_slotless = |call: &root::Call| matches!(call.stage, root::Stage::Answered { slot: None, .. });
        self.roots.get(root).is_some_and(|known| known.calls.values().any(is_slotless))
    }

    /// Whether nothing is known of any root, nothing is locked and nobody waits.
    pub fn is_idle(&self) -> bool {
        self.roots.is_empty() && self.locks.is_empty() && self.waiting.is_empty()
    }
}
