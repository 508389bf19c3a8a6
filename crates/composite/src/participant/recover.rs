//! A component that is started again: what its slots and its journal say, put together.
//!
//! | slots of the root | journal | it is |
//! |---|---|---|
//! | where it began, with its decision | anything | committed: children are told until they are done |
//! | where it began, without (its other calls) | anything | aborted: it is undone |
//! | noted as committed | anything | committed |
//! | any | a yes | in doubt: parents are asked |
//! | any | lost, or another one's | in doubt: a yes may have been sent |
//! | none | a yes | over: it only read, and later calls of it are refused |
//! | kept prepared | as above | as above; committed or rolled back with the root |
//! | any | no yes | active: nobody was promised anything, so it may go on, or be given up at its deadline |
//!
//! Locks are there again before the first call is taken; calls that only read have lost theirs,
//! which the generation shows (the vote is no).

use std::collections::BTreeMap;
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

/// A yes in the journal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VoteFacts {
    /// The root.
    pub root: RootId,
    /// What it is known by; not known any more if an earlier journal was lost.
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
    /// The journal is the one that this database was used with, and whole.
    pub is_journal_whole: bool,
}

impl Participant {
    /// A component that was started again.
    pub fn recover(
        matrix: Arc<Matrix>,
        generation: u64,
        remembered: Remembered,
    ) -> (Participant, Vec<Effect>) {
        let Remembered { slots, votes, marks, is_journal_whole } = remembered;
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
            participant.resume(root, votes.get(root), is_journal_whole, &mut out);
        }
        (participant, out)
    }

    /// Enters an answered call.
    fn remember(&mut self, facts: SlotFacts) {
        let SlotFacts { slot, arrival, sequence, answer, children, began_here, decision, is_noted, is_held } =
            facts;
        self.sequence = self.sequence.max(sequence);
        let known = self.roots.entry(arrival.root.clone()).or_insert_with(|| Root::new(None));
        if let Some(parent) = arrival.parent.clone() {
            known.parents.entry(parent).or_default();
        }
        known.is_doomed |= began_here && known.phase != Phase::Committed;
        for (name, answered) in children.iter().filter(|_| holds(Rule::SlotsNameChildren)) {
            known.children.entry(name.clone()).or_default().answered += answered;
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

    /// Takes up a root where it was left.
    fn resume(&mut self, root: &RootId, vote: Option<&VoteFacts>, is_journal_whole: bool, out: &mut Effects) {
        let known = self.roots.get_mut(root).expect("listed before");
        for (name, nonce) in vote.iter().flat_map(|vote| &vote.children) {
            known.children.entry(name.clone()).or_default().vote = Some(Vote::Yes(*nonce));
        }
        if known.phase == Phase::Committed {
            return self.commit(root, None, out);
        }
        if known.is_doomed {
            return self.abort(root, out);
        }
        if vote.is_none() && (is_journal_whole || !holds(Rule::LostJournalIsAYes)) {
            return;
        }
        known.phase = Phase::Preparing;
        known.ballot = Ballot::Written;
        known.nonce = vote.and_then(|vote| vote.nonce);
        if vote.is_none() {
            // The new journal has to say so before it counts as this database's: who is in doubt
            // stays so.
            out.push(Effect::WriteVote(root.clone(), None));
        }
        known.is_promised = true;
        for parent in vote.iter().flat_map(|vote| &vote.parents) {
            known.parents.entry(parent.clone()).or_default();
        }
        ask_parents(root, known, out);
    }
}
