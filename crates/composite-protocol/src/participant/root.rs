//! One root at one component: the calls made here for it, the components that made them (its
//! parents), the components that they called (its children), and how far it has come.
//!
//! # Phases
//!
//! ```text
//!            the handler has answered, or a parent asks          the decision, or a parent says so
//!   Active ───────────────────────────────────────▶ Preparing ─────────────────────────▶ Committed
//!      │                                                │  └──▶ Deciding ──────────────────▲
//!      │ deadline, failure, a parent says so            │       (only where it began)
//!      └───────────────▶ Aborting ◀─────────────────────┘
//! ```
//!
//! A root is *in doubt* here once a yes was sent to any parent, or may have been by an earlier
//! process; from then on only a parent can end it.

use std::collections::BTreeMap;

use super::event::{ANY_NONCE, Arrival, No, Nonce, Prepare, Slot, Text, Vote};
use super::rule::{Rule, holds};
use crate::locks::Request;
use crate::name::{CallId, Name};

/// How far a root has come at this component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Calls come and go.
    Active,
    /// Children are asked, the vote is written or sent.
    Preparing,
    /// Where it began: everybody has voted yes, the local commit is under way.
    Deciding,
    /// It is committed; children are told and slots freed.
    Committed,
    /// It is being undone.
    Aborting,
}

/// Where a call stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Stage {
    /// It waits for its lock.
    Waiting,
    /// Its handler runs, or its local transaction is being ended.
    Running,
    /// It has been answered ahead of its commit, which is under way.
    Committing { answer: Text },
    /// It has been answered.
    Answered {
        /// The slot that remembers it; none if it only read.
        slot: Option<Slot>,
        /// Its local transaction is kept prepared until the root ends.
        is_held: bool,
        answer: Text,
    },
    /// It is being undone.
    Undoing,
}

/// A call of a root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Call {
    pub(super) arrival: Arrival,
    pub(super) stage: Stage,
    /// The order of the locks, which is the order of conflicting calls; undone in reverse.
    pub(super) sequence: u64,
    /// Whom it has called, and how many of these calls were answered.
    pub(super) children: BTreeMap<Name, u32>,
}

impl Call {
    pub(super) fn request(&self) -> Request<'_> {
        let Arrival { root, call, ancestors, service, item, .. } = &self.arrival;
        Request { root, call, ancestors, service: *service, item }
    }

    pub(super) fn is_answered(&self) -> bool {
        matches!(self.stage, Stage::Answered { .. })
    }

    /// Whether its local transaction is kept prepared.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Answered { is_held: true, .. })
    }

    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::Running)
    }

    /// Whether it was answered ahead of its commit, of which nothing is known yet.
    pub(super) fn is_committing(&self) -> bool {
        matches!(self.stage, Stage::Committing { .. })
    }

    /// The slot that remembers it.
    fn slot(&self) -> Option<Slot> {
        match self.stage {
            Stage::Answered { slot, .. } => slot,
            _ => None,
        }
    }
}

/// A component that was called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Child {
    /// Calls that were sent to it, or may have been, or are about to be.
    pub(super) sent: u32,
    /// Distinct calls that it has answered 2xx.
    pub(super) answered: u32,
    /// The oldest generation in those answers.
    pub(super) generation: Option<u64>,
    /// What its yes will be known by, as its answers say.
    pub(super) known_as: Option<Nonce>,
    /// Its vote.
    pub(super) vote: Option<Vote>,
    /// It was told the outcome and has nothing left to do.
    pub(super) is_done: bool,
}

impl Child {
    /// Everybody who was called is asked.
    pub(super) fn is_asked(&self) -> bool {
        self.answered > 0 || holds(Rule::FailedCallsCount)
    }

    pub(super) fn nonce(&self) -> Option<Nonce> {
        match self.vote {
            Some(Vote::Yes(nonce)) => Some(nonce),
            Some(Vote::No(_)) | None => None,
        }
    }

    /// The same, also where the vote itself went with a process.
    pub(super) fn named(&self) -> Option<Nonce> {
        self.nonce().or(self.known_as)
    }
}

/// A component that asks or tells.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Parent {
    /// It has asked, and the answer waits for the children, unless it is a further parent.
    pub(super) asked: Option<Asked>,
    /// What it was answered.
    pub(super) vote: Option<Vote>,
    /// How often it has said that the root is committed.
    pub(super) commits: u8,
}

/// How a parent's question is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Asked {
    /// Once the children have voted.
    First,
    /// From what is known here: the first one's answer speaks for the children. This is what lets a
    /// cycle of components end.
    Further,
}

/// The component's own yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Ballot {
    /// There is none.
    None,
    /// It is being written.
    Writing,
    /// It is durable.
    Written,
}

/// One root at one component.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Root {
    pub(super) phase: Phase,
    /// The call that began it, where that is here.
    pub(super) began: Option<CallId>,
    /// It can only be aborted.
    pub(super) is_doomed: bool,
    pub(super) calls: BTreeMap<CallId, Call>,
    pub(super) children: BTreeMap<Name, Child>,
    pub(super) parents: BTreeMap<Name, Parent>,
    pub(super) ballot: Ballot,
    /// What its yes is known by, from the first slot, answer or question on.
    pub(super) nonce: Option<Nonce>,
    /// A slot that was found at the start does not say that: one of an earlier build.
    pub(super) is_unnamed: bool,
    /// A start has found slots of it: an earlier process has executed its calls.
    pub(super) is_found: bool,
    /// A yes was sent, or may have been before a restart: only a parent's word ends the root.
    pub(super) is_promised: bool,
    /// Parents are being asked for the outcome.
    pub(super) is_asking: bool,
    /// The parent that told the outcome first.
    pub(super) told_by: Option<Name>,
    /// The database says that it is committed.
    pub(super) is_noted: bool,
    /// Its slots are being freed.
    pub(super) is_freeing: bool,
    /// Questions for its vote that wait for commits under way.
    pub(super) questions: Vec<Prepare>,
}

impl Root {
    pub(super) fn new(began: Option<CallId>) -> Root {
        Root {
            phase: Phase::Active,
            began,
            is_doomed: false,
            calls: BTreeMap::new(),
            children: BTreeMap::new(),
            parents: BTreeMap::new(),
            ballot: Ballot::None,
            nonce: None,
            is_unnamed: false,
            is_found: false,
            is_promised: false,
            is_asking: false,
            told_by: None,
            is_noted: false,
            is_freeing: false,
            questions: Vec::new(),
        }
    }

    /// Whether calls were answered ahead of commits that are still under way.
    pub(super) fn is_committing(&self) -> bool {
        self.calls.values().any(Call::is_committing)
    }

    /// Whether a yes was sent, so that only a parent can end the root.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_promised && self.phase == Phase::Preparing
    }

    /// Whether a call of a component is here. Such a one knows how a promise ends: it has the root
    /// until that has ended here, or the call that has called has come to nothing. One that has
    /// only asked may have executed a late call of a root that it had forgotten, and give that up.
    pub(super) fn is_called_by(&self, parent: &Name) -> bool {
        self.calls.values().any(|call| call.arrival.parent.as_ref() == Some(parent))
    }

    /// What a yes to what is here is known by, or would be; none as long as nobody was told any.
    ///
    /// Any may be meant where the root began, since each question is answered there under a number
    /// of its own. And of what a start has found: that a vote was of something else is known for
    /// certain only of calls that this process has executed itself. And where a call was answered
    /// and nothing has asked for the number yet: the caller may be told one after this.
    pub(super) fn known_by(&self) -> Option<Nonce> {
        let is_untold = self.nonce.is_none() && self.calls.values().any(Call::is_answered);
        match self.began.is_some() || self.is_found || is_untold {
            true => Some(ANY_NONCE),
            false => self.nonce,
        }
    }

    /// Whether it is committed because a person has said so, which nothing says as yet but this
    /// process. Of what has no slot nothing is left to be said.
    pub(super) fn is_settled(&self) -> bool {
        let is_told = self.told_by.is_some() || self.began.is_some() || self.is_noted;
        self.phase == Phase::Committed && !is_told && self.calls.values().any(|call| call.slot().is_some())
    }

    /// Whether nothing holds it: no call is left, and nobody was called.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.children.is_empty()
    }

    /// A call could not be sent to a child. If none was, that one is neither asked nor told: it has
    /// nothing of the root, and may be away for long, while whoever has called it does without.
    pub(super) fn not_sent(&mut self, child: &Name) {
        let Some(known) = self.children.get_mut(child) else { return };
        known.sent = known.sent.saturating_sub(1);
        // Once votes are asked for, its own is waited for.
        if known.sent > 0 || self.phase != Phase::Active {
            return;
        }
        self.children.remove(child);
        for call in self.calls.values_mut() {
            call.children.remove(child);
        }
    }

    /// Whether a parent that asks now is the first one, whose answer waits for the children. After
    /// a restart it is unknown who asked before, so the children are asked once more.
    pub(super) fn is_first_question(&self) -> bool {
        self.parents.values().all(|parent| parent.asked.is_none())
    }

    /// Whether all children have voted yes.
    pub(super) fn are_children_ready(&self) -> bool {
        let mut asked = self.children.values().filter(|child| child.is_asked());
        asked.all(|child| matches!(child.vote, Some(Vote::Yes(_))))
    }

    /// Whether this component, by itself, could say yes to a parent that has counted so many
    /// answers.
    pub(super) fn check(
        &self,
        parent: &Name,
        calls: u32,
        generation: Option<u64>,
        own: u64,
    ) -> Result<(), No> {
        if self.is_doomed {
            return Err(No::Doomed);
        }
        self.check_calls(parent, calls, generation, own)
    }

    /// The same as far as the calls say.
    pub(super) fn check_calls(
        &self,
        parent: &Name,
        calls: u32,
        generation: Option<u64>,
        own: u64,
    ) -> Result<(), No> {
        // Where it began, the call that began it waits for its own commit.
        let others = self.calls.iter().filter(|(call, _)| self.began.as_ref() != Some(call));
        if others.clone().any(|(_, call)| call.is_under_way()) {
            return Err(No::Running);
        }
        let of_parent = others.filter(|(_, call)| call.arrival.parent.as_ref() == Some(parent));
        let mut counted = 0;
        for (_, call) in of_parent {
            let is_slotless = match &call.stage {
                Stage::Answered { slot, .. } => slot.is_none(),
                // Only without the rule that has the question wait for it.
                Stage::Committing { .. } => false,
                _ => return Err(No::Ended),
            };
            let is_older = generation.is_some_and(|seen| seen != own);
            if is_slotless && is_older && holds(Rule::GenerationsAreCompared) {
                return Err(No::Generation);
            }
            counted += 1;
        }
        let is_counted = counted == calls || !holds(Rule::CallsAreCounted);
        if is_counted { Ok(()) } else { Err(No::Count) }
    }

    /// Whether a start finds in the slots all that a yes says: what it is known by, and what those
    /// of the children are. Calls without slots leave nothing that a start would have to end.
    pub(super) fn is_in_slots(&self) -> bool {
        let is_told = |child: &Child| child.nonce().is_none_or(|nonce| child.known_as == Some(nonce));
        !self.is_unnamed && self.children.values().all(is_told)
    }

    /// All slots of the root.
    pub(super) fn slots(&self) -> Vec<Slot> {
        self.calls.values().filter_map(Call::slot).collect()
    }

    /// What is to be freed next. They are freed one by one, and a start that finds one without the
    /// decision undoes it: so that of the decision waits for all others.
    pub(super) fn next_to_free(&self) -> Vec<Slot> {
        let others = self.calls.iter().filter(|(call, _)| self.began.as_ref() != Some(call));
        let others: Vec<Slot> = others.filter_map(|(_, call)| call.slot()).collect();
        if others.is_empty() || !holds(Rule::DecisionsAreFreedLast) { self.slots() } else { others }
    }

    /// These slots are the root's no more.
    pub(super) fn is_rid_of(&mut self, freed: &[Slot]) {
        for call in self.calls.values_mut() {
            if let Stage::Answered { slot, .. } = &mut call.stage
                && slot.is_some_and(|slot| freed.contains(&slot))
            {
                *slot = None;
            }
        }
    }

    /// Whether local transactions are kept prepared.
    pub(super) fn holds_any(&self) -> bool {
        self.calls.values().any(Call::is_held)
    }
}
