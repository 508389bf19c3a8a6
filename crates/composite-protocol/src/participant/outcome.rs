//! The second phase: the outcome is decided, told, learned, carried out and forgotten.

use super::event::{ANY_NONCE, Effect, Mark, No, Nonce, Outcome, Settled, Vote, may_be_of};
use super::root::{Phase, Root, Stage};
use super::rule::{Rule, holds};
use super::vote::refuse_parents;
use super::{Effects, Participant};
use crate::name::{CallId, Name, RootId};

/// A parent that says so again is in no cycle with what it waits for, more often than not.
const COMMITS_BEFORE_NOTE: u8 = 2;

impl Participant {
    /// Calls of this root are refused from now on.
    pub(super) fn mark(&mut self, root: &RootId, mark: Mark, out: &mut Effects) {
        let is_new = match self.marks.get(root) {
            None => true,
            // A start has found it beside slots: it was of a time before these, and is over.
            Some(Mark::Empty) => matches!(mark, Mark::Undone(_)),
            Some(Mark::Undone(_) | Mark::Committed) => false,
        };
        if is_new && holds(Rule::EndedRootsAreMarked) {
            self.marks.insert(root.clone(), mark);
            out.push(Effect::Mark(root.clone(), mark));
        }
    }

    /// The same of a root that is about to be undone here: what is known of it now says which vote
    /// that was.
    pub(super) fn mark_undone(&mut self, root: &RootId, out: &mut Effects) {
        let own = self.roots.get(root).and_then(Root::known_by);
        self.mark(root, Mark::Undone(own), out);
    }

    /// A parent says that the root is committed.
    ///
    /// Nothing is remembered of a committed root after a crash. A call of it that comes late is
    /// executed once more then, with a nonce of its own, and undone. The parent may not have heard
    /// yet that all is done, and says so again: he names the vote of what was committed, which is
    /// none of that.
    pub(super) fn commit_told(
        &mut self,
        root: &RootId,
        parent: &Name,
        nonce: Option<Nonce>,
        out: &mut Effects,
    ) {
        let send = |settled| Effect::SendSettled(root.clone(), parent.clone(), settled);
        let Some(known) = self.roots.get_mut(root) else {
            let is_undone = self.marks.get(root).is_some_and(|mark| mark.has_undone(nonce));
            // It is done already, or there was nothing to do.
            return out.push(send(if is_undone { Settled::Refused } else { Settled::Done }));
        };
        let is_of_this_vote = match (nonce, known.nonce) {
            (Some(named), Some(own)) if holds(Rule::NoncesAreCompared) => named == own || named == ANY_NONCE,
            _ => true,
        };
        match known.phase {
            Phase::Preparing if known.is_in_doubt() && is_of_this_vote => {
                self.commit(root, Some(parent.clone()), out);
                let settled = if self.roots.contains_key(root) { Settled::Pending } else { Settled::Done };
                out.push(send(settled));
            }
            // The yes that is out is another one.
            Phase::Preparing if known.is_in_doubt() => out.push(send(Settled::Refused)),
            // Nobody was promised this, unless an earlier process has, and has ended it.
            Phase::Active | Phase::Preparing | Phase::Aborting => {
                let is_this = may_be_of(nonce, known.known_by());
                out.push(send(if is_this { Settled::Refused } else { Settled::Done }));
            }
            Phase::Deciding => out.push(send(Settled::Pending)),
            Phase::Committed => {
                let settled = self.committed_again(root, parent, out);
                out.push(send(settled));
            }
        }
    }

    /// What a parent is answered that speaks of a root whose commit is being carried out.
    ///
    /// The first one waits until nothing is left to do. If all did, two components that called each
    /// other would wait for each other; so a further one is let go once nobody needs its memory:
    /// the database knows the outcome.
    fn committed_again(&mut self, root: &RootId, parent: &Name, out: &mut Effects) -> Settled {
        let known = self.roots.get_mut(root).expect("looked up before");
        if known.began.is_some() || known.is_noted {
            return Settled::Done;
        }
        if known.told_by.as_ref() == Some(parent) {
            return Settled::Pending;
        }
        // What is kept prepared cannot be written into, and will be committed soon.
        let holds_any = known.holds_any();
        let entry = known.parents.entry(parent.clone()).or_default();
        if entry.commits < COMMITS_BEFORE_NOTE && !holds_any {
            entry.commits += 1;
            if entry.commits == COMMITS_BEFORE_NOTE && !known.is_freeing {
                out.push(Effect::Note(root.clone(), known.slots()));
            }
        }
        Settled::Pending
    }

    /// The root is committed: locks go, children are told. Calls whose effects are kept prepared
    /// have their locks until these are there: who came next would not see them, and take a place
    /// before this root.
    pub(super) fn commit(&mut self, root: &RootId, told_by: Option<Name>, out: &mut Effects) {
        let known = self.roots.get_mut(root).expect("a root that is committed is known");
        known.phase = Phase::Committed;
        known.told_by = told_by;
        for (call, entry) in &known.calls {
            assert!(entry.is_answered(), "a root is committed with all its calls");
            match entry.is_held() {
                true => out.push(Effect::CommitHeld(root.clone(), call.clone())),
                false => self.locks.release(root, call, entry.arrival.service, &entry.arrival.item),
            }
        }
        for (name, child) in &known.children {
            out.push(Effect::TellCommit(root.clone(), name.clone(), child.named()));
        }
        self.wake(out);
        self.free(root, out);
    }

    /// What a call has kept prepared is committed.
    pub(super) fn held_committed(&mut self, root: &RootId, call: &CallId, out: &mut Effects) {
        let known = self.roots.get_mut(root).expect("a root is known until all its calls are committed");
        assert_eq!(known.phase, Phase::Committed, "only a committed root's calls are committed");
        let entry = known.calls.get_mut(call).expect("a call is known as long as its root");
        let Stage::Answered { is_held, .. } = &mut entry.stage else { panic!("it was answered") };
        assert!(std::mem::replace(is_held, false), "a call is committed once");
        self.locks.release(root, call, entry.arrival.service, &entry.arrival.item);
        self.wake(out);
        self.free(root, out);
        self.note_settled(root, out);
    }

    /// Has the slots freed once all children are done. What a person has decided is in all slots
    /// before the first one is free: a start that found the others only would be in doubt about
    /// these.
    fn free(&mut self, root: &RootId, out: &mut Effects) {
        let known = self.roots.get_mut(root).expect("a root that is committed is known");
        let are_done = known.children.values().all(|child| child.is_done) || !holds(Rule::ForgetsLast);
        if known.is_freeing || known.holds_any() || !are_done || known.is_settled() {
            return;
        }
        known.is_freeing = true;
        self.free_next(root, out);
    }

    /// Has freed what is left; forgets the root when that is nothing.
    fn free_next(&mut self, root: &RootId, out: &mut Effects) {
        let known = self.roots.get(root).expect("a root is known until its slots are free");
        assert_eq!(known.phase, Phase::Committed, "only a committed root's slots are freed at once");
        let next = known.next_to_free();
        match next.is_empty() {
            true => self.forget(root, out),
            false => out.push(Effect::Free(root.clone(), next)),
        }
    }

    /// What was to be freed is free.
    pub(super) fn freed(&mut self, root: &RootId, out: &mut Effects) {
        let known = self.roots.get_mut(root).expect("a root is known until its slots are free");
        let freed = known.next_to_free();
        known.is_rid_of(&freed);
        self.free_next(root, out);
    }

    fn forget(&mut self, root: &RootId, out: &mut Effects) {
        let known = self.roots.remove(root).expect("a root is known until its slots are free");
        // Nobody has heard of a root that began here and called nobody, so nothing can come of it.
        // Of others this mark needs no record: what comes late and is executed once more is known
        // by another nonce than the one that was committed, so it can only be undone.
        if known.began.is_none() || !known.children.is_empty() {
            self.marks.insert(root.clone(), Mark::Committed);
        }
        out.push(Effect::Forget(root.clone(), Outcome::Committed));
    }

    pub(super) fn noted(&mut self, root: &RootId, out: &mut Effects) {
        let Some(known) = self.roots.get_mut(root) else { return };
        let is_waited_for = known.is_settled();
        known.is_noted = true;
        if is_waited_for {
            self.free(root, out);
        }
    }

    pub(super) fn told(&mut self, root: &RootId, child: &Name, settled: Settled, out: &mut Effects) {
        let Some(known) = self.roots.get_mut(root).filter(|root| root.phase == Phase::Committed) else {
            return;
        };
        if settled == Settled::Pending {
            return;
        }
        // A refusal is somebody's defect. It is reported where it is heard, and asking again would
        // change nothing.
        known.children.get_mut(child).expect("only children are told").is_done = true;
        self.free(root, out);
    }

    /// A parent says that the root is aborted.
    pub(super) fn abort_told(&mut self, root: &RootId, parent: &Name, out: &mut Effects) {
        let send = |settled| Effect::SendSettled(root.clone(), parent.clone(), settled);
        let known = self.roots.get(root);
        let may_say = known.is_none_or(|known| !known.is_in_doubt() || known.is_called_by(parent));
        match known.map(|known| known.phase) {
            // The root may be committed all the same.
            _ if !may_say => out.push(send(Settled::Pending)),
            None if self.marks.get(root) == Some(&Mark::Committed) => out.push(send(Settled::Refused)),
            None => {
                self.mark(root, Mark::Empty, out);
                out.push(send(Settled::Done));
            }
            Some(Phase::Active | Phase::Preparing) => {
                self.mark_undone(root, out);
                self.abort(root, out);
                let settled = if self.roots.contains_key(root) { Settled::Pending } else { Settled::Done };
                out.push(send(settled));
            }
            Some(Phase::Aborting | Phase::Deciding) => out.push(send(Settled::Pending)),
            Some(Phase::Committed) => out.push(send(Settled::Refused)),
        }
    }

    /// Undoes a root, and has its children do so.
    pub(super) fn abort(&mut self, root: &RootId, out: &mut Effects) {
        self.abort_because(root, No::Ended, out);
    }

    pub(super) fn abort_because(&mut self, root: &RootId, no: No, out: &mut Effects) {
        let known = self.roots.get_mut(root).expect("a root that is aborted is known");
        known.phase = Phase::Aborting;
        refuse_parents(root, known, no, out);
        for question in std::mem::take(&mut known.questions) {
            out.push(Effect::SendVote(root.clone(), question.parent, Vote::No(no)));
        }
        for name in known.children.keys() {
            out.push(Effect::TellAbort(root.clone(), name.clone()));
        }
        let is_waiting = |entry: &super::root::Call| entry.stage == Stage::Waiting;
        let waiting: Vec<CallId> =
            known.calls.iter().filter(|(_, entry)| is_waiting(entry)).map(|(call, _)| call.clone()).collect();
        for call in &waiting {
            known.calls.remove(call);
            out.push(Effect::Refuse(root.clone(), call.clone(), super::Refusal::Ended));
        }
        // A commit under way is not stopped; but if it fails, its handler is not to run once more.
        let is_running = |entry: &super::root::Call| entry.stage == Stage::Running || entry.is_committing();
        let running = known.calls.iter().filter(|(_, entry)| is_running(entry));
        out.extend(running.map(|(call, _)| Effect::Cancel(root.clone(), call.clone())));
        waiting.iter().for_each(|call| self.stop_waiting(root, call));
        self.undo_next(root, out);
    }

    /// Undoes the last call that is left, once none is under way; forgets the root after the first
    /// one. What is kept prepared goes first: it conflicts with no other call of the root, and its
    /// row locks may be in the way of their undos.
    pub(super) fn undo_next(&mut self, root: &RootId, out: &mut Effects) {
        loop {
            let known = self.roots.get_mut(root).expect("a root that is undone is known");
            let is_open = |call: &super::root::Call| {
                matches!(call.stage, Stage::Running | Stage::Committing { .. } | Stage::Undoing)
            };
            if known.calls.values().any(is_open) {
                return;
            }
            let last = known.calls.iter_mut().max_by_key(|(_, call)| (call.is_held(), call.sequence));
            let Some((call, entry)) = last.map(|(call, entry)| (call.clone(), entry)) else { break };
            match entry.stage {
                Stage::Answered { slot: None, .. } => self.drop_call(root, &call, out),
                _ => {
                    entry.stage = Stage::Undoing;
                    return out.push(Effect::Undo(root.clone(), call));
                }
            }
        }
        self.roots.remove(root);
        out.push(Effect::Forget(root.clone(), Outcome::Aborted));
    }

    fn drop_call(&mut self, root: &RootId, call: &CallId, out: &mut Effects) {
        let known = self.roots.get_mut(root).expect("a root that is undone is known");
        let entry = known.calls.remove(call).expect("a call that is undone is known");
        self.locks.release(root, call, entry.arrival.service, &entry.arrival.item);
        self.wake(out);
    }

    pub(super) fn undone(&mut self, root: &RootId, call: &CallId, out: &mut Effects) {
        self.drop_call(root, call, out);
        self.undo_next(root, out);
    }

    /// The root's time is over: whoever may, gives up; who is in doubt begins to ask.
    pub(super) fn deadline(&mut self, root: &RootId, out: &mut Effects) {
        // Who waits for a lock until then hears what is in his way.
        let waiting = self.waiting.iter().filter(|(its, _)| its == root);
        let waiting: Vec<CallId> = waiting.map(|(_, call)| call.clone()).collect();
        waiting.iter().for_each(|call| self.waited_enough(root, call, out));
        let Some(known) = self.roots.get_mut(root) else { return };
        match known.phase {
            Phase::Active => {}
            Phase::Preparing if !known.is_in_doubt() => {}
            Phase::Preparing if holds(Rule::InDoubtIsInDoubt) => return ask_parents(root, known, out),
            Phase::Preparing => {}
            Phase::Deciding | Phase::Committed | Phase::Aborting => return,
        }
        self.mark_undone(root, out);
        self.abort(root, out);
    }

    pub(super) fn learned(
        &mut self,
        root: &RootId,
        parent: &Name,
        asked: Option<Nonce>,
        outcome: Outcome,
        out: &mut Effects,
    ) {
        let Some(known) = self.roots.get(root).filter(|root| root.is_in_doubt()) else { return };
        if asked != known.nonce && holds(Rule::NoncesAreCompared) {
            // The answer to a question about an earlier vote.
            return;
        }
        match outcome {
            Outcome::Pending => {}
            Outcome::Committed => self.commit(root, Some(parent.clone()), out),
            Outcome::Aborted if !known.is_called_by(parent) => {}
            Outcome::Aborted => {
                self.mark_undone(root, out);
                self.abort(root, out);
            }
        }
    }

    /// A person decides what no parent has said.
    pub(super) fn settle(&mut self, root: &RootId, outcome: Outcome, out: &mut Effects) {
        if !self.roots.get(root).is_some_and(Root::is_in_doubt) {
            return;
        }
        match outcome {
            Outcome::Committed => {
                self.commit(root, None, out);
                self.note_settled(root, out);
            }
            Outcome::Aborted | Outcome::Pending => {
                self.mark_undone(root, out);
                self.abort(root, out);
            }
        }
    }

    /// Has the database know what a person has decided: a parent that tells an outcome remembers it
    /// until all is done, and a person tells it once. What is kept prepared cannot be written into,
    /// and is committed first.
    fn note_settled(&self, root: &RootId, out: &mut Effects) {
        let settled = self.roots.get(root).filter(|known| known.is_settled() && !known.holds_any());
        out.extend(settled.map(|known| Effect::Note(root.clone(), known.slots())));
    }
}

/// Asks all parents, also those that have no yes yet: any of them that knows ends the doubt. Two
/// components that called each other would otherwise ask only each other.
pub(super) fn ask_parents(root: &RootId, known: &mut Root, out: &mut Effects) {
    if known.is_asking {
        return;
    }
    known.is_asking = true;
    let ask = |name: &Name| Effect::AskOutcome(root.clone(), name.clone(), known.nonce);
    out.extend(known.parents.keys().map(ask));
}
