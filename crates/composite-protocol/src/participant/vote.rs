//! The first phase: who was called is asked, and answers.

use super::event::{ANY_NONCE, Effect, Mark, No, Nonce, Prepare, Vote};
use super::root::{Asked, Ballot, Child, Phase, Root};
use super::rule::{Rule, holds};
use super::{Effects, Participant};
use crate::name::{Name, RootId};

impl Participant {
    /// The handler of the call that began the root has answered.
    pub(super) fn finish(&mut self, root: &RootId, out: &mut Effects) {
        let known = self.roots.get_mut(root).expect("a root lives as long as its calls run");
        if known.phase != Phase::Active {
            // It was aborted while the handler ended; its call is being rolled back.
            return;
        }
        let began = known.began.clone().expect("only where it began");
        let is_under_way = known.calls.iter().any(|(call, entry)| *call != began && entry.is_under_way());
        if known.is_doomed || is_under_way {
            return self.abort(root, out);
        }
        known.phase = Phase::Preparing;
        ask_children(root, known, out);
        self.proceed(root, out);
    }

    /// A parent asks for a vote. Whether commits under way succeed is a part of the answer, so the
    /// question waits for them: it might as well have come later.
    pub(super) fn ask(&mut self, prepare: Prepare, out: &mut Effects) {
        if let Some(known) = self.roots.get_mut(&prepare.root)
            && known.phase == Phase::Active
            && known.is_committing()
            && holds(Rule::VotesWaitForCommits)
        {
            // The same question again waits for the same answer.
            let is_same = |before: &Prepare| {
                before.parent == prepare.parent
                    && before.calls == prepare.calls
                    && before.generation == prepare.generation
            };
            if !known.questions.iter().any(is_same) {
                known.questions.push(prepare);
            }
            return;
        }
        self.prepare(prepare, out);
    }

    fn prepare(&mut self, prepare: Prepare, out: &mut Effects) {
        let Prepare { root, parent, calls, generation, nonce } = prepare;
        let own = self.generation;
        let send = |vote| Effect::SendVote(root.clone(), parent.clone(), vote);
        let Some(known) = self.roots.get_mut(&root) else {
            let vote = match (self.marks.get(&root), calls) {
                // Nothing was executed for it here, and nothing will be. A further parent whose
                // calls were all refused hears the same as the first one.
                (None | Some(Mark::Empty), 0) => Vote::Yes(nonce),
                (Some(_), _) => Vote::No(No::Ended),
                (None, _) => Vote::No(No::Unknown),
            };
            self.mark(&root, Mark::Empty, out);
            return out.push(send(vote));
        };
        // As its answers have announced it.
        let named = known.nonce.unwrap_or(nonce);
        let checked = known.check(&parent, calls, generation, own);
        let before = known.parents.get(&parent).and_then(|parent| parent.vote);
        // Who has a yes has it: the same question again changes nothing, whatever came in between.
        let is_repeated = matches!(before, Some(Vote::Yes(_)))
            && known.check_calls(&parent, calls, generation, own).is_ok();
        match known.phase {
            Phase::Aborting => out.push(send(Vote::No(No::Ended))),
            Phase::Committed => out.push(send(before.unwrap_or(Vote::Yes(named)))),
            Phase::Active if known.began.is_some() => out.push(send(Vote::No(No::Running))),
            // Where the root began it is never in doubt, so nothing has to be written.
            Phase::Preparing | Phase::Deciding if known.began.is_some() => {
                out.push(send(checked.map_or_else(Vote::No, |()| Vote::Yes(named))));
                if let (Phase::Preparing, Err(no)) = (known.phase, checked) {
                    self.fail(&root, no, out);
                }
            }
            Phase::Deciding => unreachable!("only where a root began is it decided"),
            Phase::Active | Phase::Preparing => {
                if let (Err(no), false) = (checked, is_repeated) {
                    out.push(send(Vote::No(no)));
                    return self.fail(&root, no, out);
                }
                if let Some(vote) = before {
                    return out.push(send(vote));
                }
                let is_first = known.is_first_question();
                let waits = is_first || !holds(Rule::FurtherParentsNeedNotWait);
                // Where a slot does not say it, the yes may have been given under any nonce.
                if !known.is_promised {
                    known.nonce.get_or_insert(nonce);
                }
                if known.is_asking && !known.parents.contains_key(&parent) {
                    out.push(Effect::AskOutcome(root.clone(), parent.clone(), known.nonce));
                }
                let entry = known.parents.entry(parent).or_default();
                // The same question again waits for the same answer.
                let asked = *entry.asked.get_or_insert(if waits { Asked::First } else { Asked::Further });
                if is_first {
                    known.phase = Phase::Preparing;
                    ask_children(&root, known, out);
                }
                let is_due = asked == Asked::Further || known.are_children_ready();
                if known.ballot == Ballot::None && is_due {
                    write(&root, known, out);
                }
                self.answer_parents(&root, out);
            }
        }
    }

    /// Takes up the questions that have waited for commits, if none is under way any more.
    pub(super) fn ask_again(&mut self, root: &RootId, out: &mut Effects) {
        let Some(known) = self.roots.get_mut(root).filter(|known| !known.is_committing()) else { return };
        for question in std::mem::take(&mut known.questions) {
            self.prepare(question, out);
        }
    }

    pub(super) fn voted(&mut self, root: &RootId, child: &Name, vote: Vote, out: &mut Effects) {
        let Some(known) = self.roots.get_mut(root).filter(|root| root.phase == Phase::Preparing) else {
            return;
        };
        let child = known.children.get_mut(child).expect("only children are asked");
        // Otherwise the calls that were answered are gone, and the same ones were executed again.
        let announced = child.known_as;
        let is_other = |nonce: Nonce| nonce != ANY_NONCE && announced.is_some_and(|known| known != nonce);
        let vote = match vote {
            Vote::Yes(nonce) if is_other(nonce) && holds(Rule::NoncesAreCompared) => Vote::No(No::Child),
            vote => vote,
        };
        child.vote = Some(vote);
        match vote {
            Vote::Yes(_) => self.proceed(root, out),
            Vote::No(_) => self.fail(root, No::Child, out),
        }
    }

    /// Goes on once all children have voted yes.
    fn proceed(&mut self, root: &RootId, out: &mut Effects) {
        let known = self.roots.get_mut(root).expect("a root that is prepared is known");
        if !known.are_children_ready() {
            return;
        }
        if let Some(began) = known.began.clone() {
            known.phase = Phase::Deciding;
            return out.push(Effect::Decide(root.clone(), began));
        }
        let is_first =
            |parent: &super::root::Parent| parent.asked == Some(Asked::First) && parent.vote.is_none();
        if !known.parents.values().any(is_first) {
            // The question was asked before a restart, which has put the root in doubt as it was.
            return;
        }
        // The children's votes are part of what is durable, so what was written early for a further
        // parent is written again.
        write(root, known, out);
        self.answer_parents(root, out);
    }

    pub(super) fn vote_written(&mut self, root: &RootId, out: &mut Effects) {
        // It may have been aborted meanwhile, since nobody had the yes yet.
        let Some(known) = self.roots.get_mut(root).filter(|root| root.phase == Phase::Preparing) else {
            return;
        };
        if known.ballot == Ballot::Writing {
            known.ballot = Ballot::Written;
        }
        self.answer_parents(root, out);
    }

    /// Sends the yes to whom it is due.
    fn answer_parents(&mut self, root: &RootId, out: &mut Effects) {
        let known = self.roots.get_mut(root).expect("a root that is prepared is known");
        if known.ballot != Ballot::Written {
            return;
        }
        // Where a slot does not say it any decision is believed, so the yes need not be told from
        // others.
        let nonce = known.nonce.unwrap_or(ANY_NONCE);
        let are_ready = known.are_children_ready();
        for (name, parent) in &mut known.parents {
            let is_due = match parent.asked {
                Some(Asked::First) => are_ready,
                Some(Asked::Further) => true,
                None => false,
            };
            if is_due && parent.vote.is_none() {
                parent.vote = Some(Vote::Yes(nonce));
                known.is_promised = true;
                out.push(Effect::SendVote(root.clone(), name.clone(), Vote::Yes(nonce)));
            }
        }
    }

    /// The root cannot be committed: undoes it, or, if a yes is out, says no to all others and
    /// waits to be told.
    pub(super) fn fail(&mut self, root: &RootId, no: No, out: &mut Effects) {
        let Some(known) = self.roots.get_mut(root) else { return };
        if !matches!(known.phase, Phase::Active | Phase::Preparing) {
            return;
        }
        if !known.is_in_doubt() {
            self.mark_undone(root, out);
            return self.abort_because(root, no, out);
        }
        known.is_doomed = true;
        refuse_parents(root, known, no, out);
    }
}

/// Asks everybody who was called and whose yes is not known.
fn ask_children(root: &RootId, known: &Root, out: &mut Effects) {
    let unknown = known.children.iter().filter(|(_, child)| child.nonce().is_none() && child.is_asked());
    for (name, Child { answered, generation, .. }) in unknown {
        let (root, child) = (root.clone(), name.clone());
        out.push(Effect::AskVote { root, child, calls: *answered, generation: *generation });
    }
}

fn write(root: &RootId, known: &mut Root, out: &mut Effects) {
    let nonce = known.nonce;
    known.ballot = Ballot::Writing;
    out.push(Effect::WriteVote(root.clone(), nonce));
}

/// Says no to the parents that have asked and were not answered.
pub(super) fn refuse_parents(root: &RootId, known: &mut Root, no: No, out: &mut Effects) {
    for (name, parent) in &mut known.parents {
        if parent.asked.is_some() && parent.vote.is_none() {
            parent.vote = Some(Vote::No(no));
            out.push(Effect::SendVote(root.clone(), name.clone(), Vote::No(no)));
        }
    }
}
