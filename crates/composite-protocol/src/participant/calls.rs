//! Calls come, wait for locks, run, call others and end.

use std::collections::BTreeMap;

use super::event::{Arrival, Effect, Ended, No, Refusal, Sent};
use super::root::{Ballot, Call, Phase, Root, Stage};
use super::rule::{Rule, holds};
use super::{Effects, Participant};
use crate::locks::{Grant, Holding};
use crate::name::{CallId, Name, RootId};

impl Participant {
    pub(super) fn arrive(&mut self, arrival: Arrival, out: &mut Effects) {
        let (root, call) = (arrival.root.clone(), arrival.call.clone());
        let refuse = |why| Effect::Refuse(root.clone(), call.clone(), why);
        if self.marks.contains_key(&root) {
            return out.push(refuse(Refusal::Ended));
        }
        if let Some(known) = self.roots.get(&root) {
            if let Some(before) = known.calls.get(&call) {
                let is_same = before.arrival.service == arrival.service
                    && before.arrival.arguments == arrival.arguments;
                return out.push(match &before.stage {
                    _ if !is_same => refuse(Refusal::OtherArguments),
                    Stage::Answered { answer, .. } | Stage::Committing { answer } => {
                        Effect::Repeat(root, call, answer.clone())
                    }
                    Stage::Waiting | Stage::Running => refuse(Refusal::Running),
                    Stage::Undoing => refuse(Refusal::Ended),
                });
            }
            // What an earlier process has answered and lost would be executed again, and counted.
            if known.phase != Phase::Active || known.is_doomed || known.is_found {
                return out.push(refuse(Refusal::Ended));
            }
        }
        let request = Call { arrival, stage: Stage::Running, sequence: 0, children: BTreeMap::new() };
        let grant = self.locks.acquire(&self.matrix, request.request());
        let mut entered = request;
        match grant {
            Grant::Granted => {
                self.sequence += 1;
                entered.sequence = self.sequence;
                out.push(Effect::Run(root.clone(), call.clone()));
            }
            // Neither ends before this call does.
            Grant::Ancestor(_) | Grant::ClosedSibling(_) => {
                return out.push(refuse(Refusal::Blocked(grant)));
            }
            Grant::Sibling(_) | Grant::Conflict { .. } => {
                entered.stage = Stage::Waiting;
                self.waiting.push((root.clone(), call.clone()));
                out.push(Effect::Wait(root.clone(), call.clone()));
            }
        }
        let began = entered.arrival.parent.is_none().then(|| call.clone());
        let known = self.roots.entry(root).or_insert_with(|| Root::new(began));
        if let Some(parent) = entered.arrival.parent.clone() {
            known.parents.entry(parent).or_default();
        }
        known.calls.insert(call, entered);
    }

    /// Whether a call waits for another one of its own root, and for nobody else.
    pub fn waits_for_sibling(&self, root: &RootId, call: &CallId) -> bool {
        let known = self.roots.get(root).and_then(|known| known.calls.get(call));
        let waiting = known.filter(|call| call.stage == Stage::Waiting);
        let in_its_way = waiting.map(|call| self.locks.look(&self.matrix, call.request()));
        matches!(in_its_way, Some(Grant::Sibling(_)))
    }

    pub(super) fn waited_enough(&mut self, root: &RootId, call: &CallId, out: &mut Effects) {
        let Some(known) = self.roots.get_mut(root) else { return };
        let Some(waiting) = known.calls.get(call).filter(|call| call.stage == Stage::Waiting) else { return };
        let grant = self.locks.look(&self.matrix, waiting.request());
        debug_assert_ne!(grant, Grant::Granted, "who can run has been let run");
        known.calls.remove(call);
        self.stop_waiting(root, call);
        out.push(Effect::Refuse(root.clone(), call.clone(), Refusal::Blocked(grant)));
        self.drop_if_empty(root);
    }

    pub(super) fn stop_waiting(&mut self, root: &RootId, call: &CallId) {
        self.waiting.retain(|(its_root, its_call)| its_root != root || its_call != call);
    }

    /// Lets those run whose locks have become free, the longest waiting first. Who waits for a call
    /// that is kept prepared now would wait for his own root's end, and hears so.
    pub(super) fn wake(&mut self, out: &mut Effects) {
        let mut place = 0;
        while let Some((root, call)) = self.waiting.get(place).cloned() {
            let known = self.roots.get_mut(&root).and_then(|root| root.calls.get_mut(&call));
            let waiting = known.expect("who waits is known");
            match self.locks.acquire(&self.matrix, waiting.request()) {
                Grant::Granted => {
                    self.sequence += 1;
                    (waiting.stage, waiting.sequence) = (Stage::Running, self.sequence);
                    self.waiting.remove(place);
                    out.push(Effect::Run(root, call));
                }
                grant @ (Grant::Ancestor(_) | Grant::ClosedSibling(_)) => {
                    self.waiting.remove(place);
                    // What is in its way is of the same root, which is not empty without it.
                    if let Some(known) = self.roots.get_mut(&root) {
                        known.calls.remove(&call);
                    }
                    out.push(Effect::Refuse(root, call, Refusal::Blocked(grant)));
                }
                Grant::Sibling(_) | Grant::Conflict { .. } => place += 1,
            }
        }
    }

    /// Whether a call that runs may call this child now. From then on the child belongs to the
    /// root.
    pub fn may_call(&mut self, root: &RootId, call: &CallId, child: &Name) -> bool {
        let Some(known) = self.roots.get_mut(root) else { return false };
        if known.phase != Phase::Active || known.is_doomed {
            return false;
        }
        match known.calls.get_mut(call) {
            Some(call) if call.stage == Stage::Running => {
                call.children.entry(child.clone()).or_default();
            }
            _ => return false,
        }
        known.children.entry(child.clone()).or_default().sent += 1;
        true
    }

    pub(super) fn called(&mut self, root: &RootId, call: &CallId, child: &Name, sent: &Sent) {
        // The root may have been aborted while the answer was on its way.
        let Some(known) = self.roots.get_mut(root) else { return };
        if let (Some(call), Sent::Answered { .. }) = (known.calls.get_mut(call), sent) {
            *call.children.entry(child.clone()).or_default() += 1;
        }
        if *sent == Sent::NotSent {
            return known.not_sent(child);
        }
        let child = known.children.get_mut(child).expect("who is called is noted before");
        match sent {
            Sent::Answered { generation, nonce } => {
                child.answered += 1;
                child.known_as = child.known_as.or(*nonce);
                child.generation = Some(child.generation.map_or(*generation, |seen| seen.min(*generation)));
                // A call that its caller had given up has been executed after all.
                known.is_doomed |= known.phase != Phase::Active;
            }
            Sent::LeftNothing | Sent::NotSent => {}
            Sent::Failed => known.is_doomed |= holds(Rule::FailedCallsCount),
        }
    }

    /// The commit of a call is about to be sent: its caller is answered, if whatever he does next
    /// may go on beside it.
    pub(super) fn committing(
        &mut self,
        root: &RootId,
        call: &CallId,
        answer: super::Text,
        out: &mut Effects,
    ) {
        let known = self.roots.get_mut(root).expect("a root lives as long as its calls run");
        let entry = known.calls.get(call).expect("a call that runs is known");
        assert_eq!(entry.stage, Stage::Running, "a call is answered once");
        let mut ancestors = entry.arrival.ancestors.iter();
        let is_within = ancestors.any(|ancestor| known.calls.contains_key(ancestor));
        if known.phase != Phase::Active || known.is_doomed || known.began.is_some() || is_within {
            return;
        }
        let entry = known.calls.get_mut(call).expect("looked up before");
        entry.stage = Stage::Committing { answer: answer.clone() };
        out.push(Effect::Answer(root.clone(), call.clone(), answer));
    }

    pub(super) fn ended(&mut self, root: &RootId, call: &CallId, ended: Ended, out: &mut Effects) {
        let known = self.roots.get_mut(root).expect("a root lives as long as its calls run");
        let phase = known.phase;
        let is_beginning = known.began.as_ref() == Some(call);
        let entry = known.calls.get_mut(call).expect("a call that runs is known");
        let is_said = entry.is_committing();
        assert!(entry.stage == Stage::Running || is_said, "a local transaction that has ended was under way");
        match ended {
            Ended::RolledBack => self.rolled_back(root, call, out),
            Ended::Committed { slot, answer } => {
                entry.stage = Stage::Answered { slot, is_held: false, answer: answer.clone() };
                self.answered(root, call, Holding::Open);
                if is_beginning {
                    assert_eq!(phase, Phase::Deciding, "only the decision commits where a root began");
                    out.push(Effect::Answer(root.clone(), call.clone(), answer));
                    return self.commit(root, None, out);
                }
                self.answer(root, call, (!is_said).then_some(answer), out);
            }
            Ended::Held { slot, answer } => {
                assert!(!is_beginning, "where a root began its local transaction is the decision");
                entry.stage = Stage::Answered { slot: Some(slot), is_held: true, answer: answer.clone() };
                self.answered(root, call, Holding::Closed);
                self.answer(root, call, Some(answer), out);
            }
        }
    }

    fn answered(&mut self, root: &RootId, call: &CallId, holding: Holding) {
        let entry = &self.roots[root].calls[call].arrival;
        self.locks.answered(root, call, entry.service, &entry.item, holding);
    }

    /// A call is committed, or held. Its caller is answered, unless that was done ahead.
    fn answer(&mut self, root: &RootId, call: &CallId, answer: Option<super::Text>, out: &mut Effects) {
        let (its, called) = (root.clone(), call.clone());
        if self.roots[root].phase == Phase::Aborting {
            out.extend(answer.map(|_| Effect::Refuse(its, called, Refusal::Ended)));
            return self.undo_next(root, out);
        }
        out.extend(answer.map(|answer| Effect::Answer(its, called, answer)));
        // A sibling may have waited for this commit, and so may a question.
        self.wake(out);
        self.ask_again(root, out);
    }

    fn rolled_back(&mut self, root: &RootId, call: &CallId, out: &mut Effects) {
        let known = self.roots.get_mut(root).expect("a root lives as long as its calls run");
        let entry = known.calls.remove(call).expect("a call that runs is known");
        self.locks.release(root, call, entry.arrival.service, &entry.arrival.item);
        // Somebody goes on with an answer that nothing has come of. Only a root that has ended
        // refuses the same call when it comes late: executed again it would be counted.
        let is_missed = entry.is_committing() && holds(Rule::FailedCommitsEndRoots);
        // What it called elsewhere is still there.
        known.is_doomed |= !entry.children.is_empty();
        let began = known.began.as_ref() == Some(call);
        match known.phase {
            Phase::Aborting => self.undo_next(root, out),
            _ if began => self.abort(root, out),
            _ if is_missed => self.fail(root, No::Failed, out),
            _ => self.drop_if_empty(root),
        }
        self.wake(out);
        self.ask_again(root, out);
    }

    /// A call that left nothing has not been here.
    pub(super) fn drop_if_empty(&mut self, root: &RootId) {
        let is_empty =
            |known: &Root| known.phase == Phase::Active && known.is_empty() && known.ballot == Ballot::None;
        if self.roots.get(root).is_some_and(is_empty) {
            self.roots.remove(root);
        }
    }
}
