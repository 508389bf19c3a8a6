//! A component that is started again: what its slots and its journal say, put together.
//!
//! | slots of the root | journal | it is |
//! |---|---|---|
//! | where it began, with its decision | anything | committed: children are told until they are done |
//! | where it began, without (its other calls) | anything | aborted: it is undone |
//! | noted as committed | anything | committed |
//! | any | marked as undone | aborted: the rest of it is undone |
//! | any | says who was promised, and the root is not among them | as before any question, but takes no further calls |
//! | any | anything else, or lost | in doubt: a yes may have been sent, so parents are asked |
//! | none | a yes | over: it only read, and later calls of it are refused |
//! | kept prepared | as above | as above; committed or rolled back with the root |
//!
//! So a yes is as durable as the slots, and has no record of its own: these say what it is known
//! by, who has called, and what the votes of those are known by who were called. The journal has
//! one only where they do not (`Root::is_in_slots`). Whenever no yes was given for a while it says
//! to whom one was ([`Participant::promised`]), until one is given again: only in between does a
//! start not know it.
//!
//! A root in doubt may never have been asked for its vote. It is voted for like any other if its
//! parent asks: the slots are counted, and the children asked, once more. A parent whose calls have
//! come to nothing does not know it, or not the calls that have called (`Participant::outcome`):
//! then it is aborted. So nobody waits for ever. Of all calls of a root that began elsewhere and
//! whose components are in doubt and wait for each other, take one with the fewest ancestors. Its
//! caller is asked, and is not in doubt with that call, which has one ancestor less: so it knows
//! the outcome, or has lost the call.
//!
//! Locks are there again before the first call is taken; calls that only read have lost theirs,
//! which the count or the generation shows (the vote is no).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::event::{Arrival, Effect, Mark, Nonce, Slot, Text, Vote};
use super::outcome::ask_parents;
use super::root::{Ballot, Call, Phase, Root, Stage};
use super::rule::{Rule, holds};
use super::{Effects, Participant};
use crate::locks::Holding;
use crate::matrix::Matrix;
use crate::name::{Name, RootId};

/// What a slot says: enough to end its call without any other memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotFacts {
    /// The slot.
    pub slot: Slot,
    /// The call.
    pub arrival: Arrival,
    /// The number of its lock.
    pub sequence: u64,
    /// Its answer.
    pub answer: Text,
    /// Whom it has called, and how many of these calls were answered.
    pub children: Vec<(Name, u32)>,
    /// The root began here, so this component decides it.
    pub began_here: bool,
    /// Where the root began: the votes that it was decided by, of all children.
    pub decision: Option<Vec<(Name, Nonce)>>,
    /// The root is known to be committed.
    pub is_noted: bool,
    /// The local transaction is kept prepared; what its slot will say is known from elsewhere.
    pub is_held: bool,
    /// What a yes to the root is known by; slots of earlier builds do not say.
    pub nonce: Option<Nonce>,
    /// The same of those whom it has called, as far as they said so.
    pub nonces: Vec<(Name, Nonce)>,
}

/// Which database a component decides in, and since when: one that was replaced or restored from an
/// earlier copy does not know what it has decided before, so its ignorance means nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The database's mark, made with the component's tables.
    pub database: String,
    /// The component's generation.
    pub generation: u64,
}

impl Origin {
    /// Whether what this one does not know cannot have been decided by the other one, which asked
    /// before.
    pub fn speaks_for(&self, asked: &Origin) -> bool {
        self.database == asked.database && self.generation >= asked.generation
    }
}

/// A yes in the journal: what the slots do not say.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VoteFacts {
    /// The root.
    pub root: RootId,
    /// What it is known by; not known if a slot of an earlier build does not say it.
    pub nonce: Option<Nonce>,
    /// Who was or may have been told.
    pub parents: Vec<Name>,
    /// The votes of the children, as far as they were known.
    pub children: Vec<(Name, Nonce)>,
    /// Where the parents that asked decide, as far as they said so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<(Name, Origin)>,
}

/// Everything that a component remembers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Remembered {
    /// The slots that are in use.
    pub slots: Vec<SlotFacts>,
    /// The votes whose roots have not ended.
    pub votes: Vec<VoteFacts>,
    /// The roots that are refused.
    pub marks: Vec<(RootId, Mark)>,
    /// The roots that a yes may have been given to, beside those with votes; none if it is not
    /// known: then it may have been given to any.
    pub promised: Option<BTreeSet<RootId>>,
}

impl Participant {
    /// A component that was started again.
    pub fn recover(
        matrix: Arc<Matrix>,
        generation: u64,
        remembered: Remembered,
    ) -> (Participant, Vec<Effect>) {
        let Remembered { slots, votes, marks, promised } = remembered;
        let mut participant = Participant::new(matrix, generation);
        participant.marks = marks.into_iter().collect();
        let votes: BTreeMap<RootId, VoteFacts> =
            votes.into_iter().map(|vote| (vote.root.clone(), vote)).collect();
        slots.into_iter().for_each(|facts| participant.remember(facts));
        // Who voted and has nothing to end only read: its part is over, and must not begin again.
        let over = votes.keys().filter(|root| !participant.roots.contains_key(*root));
        for root in over.cloned().collect::<Vec<RootId>>() {
            participant.marks.entry(root).or_insert(Mark::Empty);
        }
        let mut out = Vec::new();
        let roots: Vec<RootId> = participant.roots.keys().cloned().collect();
        for root in &roots {
            let is_listed =
                |promised: &BTreeSet<RootId>| promised.contains(root) && holds(Rule::PromisesAreListed);
            let vote = votes.get(root);
            let is_promised = vote.is_some() || promised.as_ref().is_none_or(is_listed);
            participant.resume(root, vote, is_promised, &mut out);
        }
        (participant, out)
    }

    /// Enters an answered call.
    fn remember(&mut self, facts: SlotFacts) {
        let SlotFacts { slot, arrival, sequence, answer, children, is_held, .. } = facts;
        let SlotFacts { began_here, decision, is_noted, nonce, nonces, .. } = facts;
        self.sequence = self.sequence.max(sequence);
        let known = self.roots.entry(arrival.root.clone()).or_insert_with(|| Root::new(None));
        if let Some(parent) = arrival.parent.clone() {
            known.parents.entry(parent).or_default();
        }
        known.is_found = true;
        known.is_doomed |= began_here && known.phase != Phase::Committed;
        for (name, answered) in children.iter().filter(|_| holds(Rule::SlotsNameChildren)) {
            let child = known.children.entry(name.clone()).or_default();
            child.answered += answered;
            child.sent += 1;
        }
        if holds(Rule::SlotsNameVotes) {
            known.nonce = known.nonce.or(nonce);
            known.is_unnamed |= nonce.is_none();
        }
        for (name, nonce) in nonces {
            if let Some(child) = known.children.get_mut(&name) {
                child.known_as.get_or_insert(nonce);
            }
        }
        if let Some(decision) = decision {
            known.is_doomed = false;
            (known.began, known.phase) = (Some(arrival.call.clone()), Phase::Committed);
            for (name, nonce) in decision {
                known.children.entry(name).or_default().vote = Some(Vote::Yes(nonce));
            }
        }
        if is_noted {
            (known.is_noted, known.phase) = (true, Phase::Committed);
        }
        let stage = Stage::Answered { slot: Some(slot), is_held, answer };
        let call = Call { arrival, stage, sequence, children: children.into_iter().collect() };
        self.locks.hold(call.request(), if is_held { Holding::Closed } else { Holding::Open });
        known.calls.insert(call.arrival.call.clone(), call);
    }

    /// Has a mark that says what was undone say it of what a start has found, too. It may be of an
    /// earlier vote, and be there since the journal drops its old parts late; or no slot was
    /// written yet when it was.
    fn widen_mark(&mut self, root: &RootId, out: &mut Effects) {
        let (Some(known), Some(mark)) = (self.roots.get(root), self.marks.get_mut(root)) else { return };
        let (any, is_said) =
            (Mark::Undone(known.known_by()), !known.is_unnamed && mark.has_undone(known.nonce));
        if matches!(mark, Mark::Undone(_)) && *mark != any && !is_said {
            *mark = any;
            out.push(Effect::Mark(root.clone(), any));
        }
    }

    /// Takes up a root where it was left. A yes may have been given to it if it `is_promised`.
    fn resume(&mut self, root: &RootId, vote: Option<&VoteFacts>, is_promised: bool, out: &mut Effects) {
        let is_undone = matches!(self.marks.get(root), Some(Mark::Undone(_)));
        let known = self.roots.get_mut(root).expect("listed before");
        for (name, nonce) in vote.iter().flat_map(|vote| &vote.children) {
            known.children.entry(name.clone()).or_default().vote = Some(Vote::Yes(*nonce));
        }
        if known.phase == Phase::Committed {
            return self.commit(root, None, out);
        }
        // The mark was written before the first undo: how it ends was known.
        if known.is_doomed || is_undone {
            self.widen_mark(root, out);
            return self.abort(root, out);
        }
        if !is_promised || vote.is_none() && !holds(Rule::SlotsAreVotes) {
            return;
        }
        known.phase = Phase::Preparing;
        known.ballot = Ballot::Written;
        known.nonce = vote.and_then(|vote| vote.nonce).or(known.nonce);
        known.is_promised = true;
        for parent in vote.iter().flat_map(|vote| &vote.parents) {
            known.parents.entry(parent.clone()).or_default();
        }
        ask_parents(root, known, out);
    }
}
