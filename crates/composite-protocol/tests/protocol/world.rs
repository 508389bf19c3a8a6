//! A world of a few components: their participants, what is durable at each, the messages under way
//! between them, and the work that their participants asked for.
//!
//! A world is a value. [`World::actions`] lists what can happen next, [`World::after`] is the world
//! after one of these. Faults are bounded by a budget; everything else can always happen, in any
//! order.
//!
//! What is durable at a component: its slots, marks, and votes that the slots do not say, and
//! *applied*, the calls whose effects are in its database. Work is one step here: it has been done
//! wholly, or not at all; only slots are freed one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cognate_composite_protocol::matrix::{Declared, Line, Matrix};
use cognate_composite_protocol::name::{CallId, Name, RootId};
use cognate_composite_protocol::participant::{
    Arrival, Effect, Ended, Event, Mark, No, Nonce, Outcome, Participant, Prepare, Remembered, Sent, Settled,
    SlotFacts, Text, Vote, VoteFacts,
};

/// A place in the list of components.
pub(crate) type Place = usize;

/// What a handler does: the calls that it makes, one after the other if nothing else is said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    /// For each call: where it runs, and what it calls in turn.
    pub(crate) calls: BTreeMap<CallId, (Place, Vec<CallId>)>,
    /// The roots' first calls.
    pub(crate) beginnings: Vec<(RootId, CallId)>,
    /// Calls whose handler makes all its calls at once, and fails with the first one that does.
    pub(crate) at_once: BTreeSet<CallId>,
    /// Calls whose handler refuses at its end.
    pub(crate) refusing: BTreeSet<CallId>,
    /// Calls that only read.
    pub(crate) reading: BTreeSet<CallId>,
    /// Calls whose handler goes on when a call of its own has failed.
    pub(crate) tolerant: BTreeSet<CallId>,
    /// Calls without undo: their local transactions are kept prepared.
    pub(crate) closed: BTreeSet<CallId>,
    /// Calls that are answered ahead of their commits, where that may be.
    pub(crate) ahead: BTreeSet<CallId>,
}

/// How many faults of each kind may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Budget {
    pub(crate) lost: u8,
    pub(crate) duplicated: u8,
    pub(crate) crashed: u8,
    pub(crate) deadlines: u8,
    pub(crate) journals_lost: u8,
    /// Commits of calls that were answered ahead of them.
    pub(crate) failed: u8,
    /// A start knows who was promised, unless the journal is lost.
    pub(crate) knows: bool,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Body {
    Call {
        call: CallId,
        ancestors: Vec<CallId>,
    },
    /// The answer, with generation and nonce; or whether anything may be left.
    Answer {
        call: CallId,
        of: CallId,
        said: Result<(u64, Option<Nonce>, Text), bool>,
    },
    Prepare {
        calls: u32,
        generation: Option<u64>,
    },
    Vote(Vote),
    Commit(Option<Nonce>),
    Abort,
    Settled(Settled),
    Ask(Option<Nonce>, Vec<CallId>),
    Outcome(Option<Nonce>, Outcome),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Message {
    pub(crate) root: RootId,
    pub(crate) from: Place,
    pub(crate) to: Place,
    pub(crate) body: Body,
}

/// Where a handler stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Handler {
    /// So many of its calls are answered; whether the next one is under way.
    Calls(usize, bool),
    /// All its calls are sent; these are not answered.
    AtOnce(BTreeSet<CallId>),
    /// It has ended well; its local transaction may be committed.
    Ready,
    /// It has ended well, with this answer; its commit is under way, and whether its caller was
    /// answered ahead of it.
    Committing(Text, bool),
    /// It has ended badly, or was cancelled.
    Failed,
}

/// One component.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// None while it is down.
    pub(crate) participant: Option<Participant>,
    handlers: BTreeMap<CallId, Handler>,
    /// Work that the participant asked for.
    work: BTreeSet<Effect>,
    // What is durable.
    generation: u64,
    slots: BTreeMap<u32, SlotFacts>,
    /// Local transactions that are kept prepared, with what their slots will say.
    prepared: BTreeMap<u32, SlotFacts>,
    votes: BTreeMap<RootId, VoteFacts>,
    marks: BTreeMap<RootId, Mark>,
    /// Who was promised when it ended, if that is known.
    promised: Option<BTreeSet<RootId>>,
    pub(crate) applied: BTreeMap<CallId, u8>,
    /// Calls that were undone, as long as the journal remembers it.
    undone: BTreeSet<CallId>,
    /// Roots of which a start has found slots.
    found: BTreeSet<RootId>,
    nonces: Nonce,
}

/// Something that can happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Begin(RootId),
    Deliver(usize),
    Duplicate(usize),
    Lose(usize),
    Work(Place, Effect),
    Step(Place, CallId),
    /// A commit fails whose call was answered ahead of it.
    Fail(Place, CallId),
    Crash(Place),
    CrashAndLoseJournal(Place),
    Restart(Place),
    Deadline(Place, RootId),
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) messages: Vec<Message>,
    pub(crate) budget: Budget,
    begun: BTreeSet<RootId>,
    /// Of calls whose answer was taken: by which generation it was given, and the answer.
    accepted: BTreeMap<CallId, (u64, Text)>,
    /// How often calls were executed that are answered ahead: no two executions answer the same.
    executed: BTreeMap<CallId, u8>,
    /// Roots whose decision is durable.
    pub(crate) decided: BTreeSet<RootId>,
}

pub(crate) fn name(place: Place) -> Name {
    Name::new(&format!("c{place}")).expect("a name")
}

fn place(name: &Name) -> Place {
    name.as_str()[1..].parse().expect("a name that was made above")
}

/// One service; calls conflict as the line says.
pub(crate) fn matrix(lines: &[Line]) -> Arc<Matrix> {
    let service =
        Declared { name: "s".to_owned(), has_item: true, reads: false, has_undo: true, begins_only: false };
    Arc::new(Matrix::new(vec![service], lines).expect("a matrix"))
}

impl Node {
    /// What a yes to a root is known by, from now on at the latest.
    fn nonce(&mut self, root: &RootId) -> Option<Nonce> {
        let new = self.nonces + 1;
        let nonce = self.participant.as_mut().and_then(|participant| participant.nonce(root, new));
        if nonce == Some(new) {
            self.nonces = new;
        }
        nonce
    }
}

impl World {
    pub(crate) fn new(places: usize, matrix: &Arc<Matrix>, budget: Budget) -> World {
        let node = |_| Node {
            participant: Some(Participant::new(Arc::clone(matrix), 1)),
            handlers: BTreeMap::new(),
            work: BTreeSet::new(),
            generation: 1,
            slots: BTreeMap::new(),
            prepared: BTreeMap::new(),
            votes: BTreeMap::new(),
            marks: BTreeMap::new(),
            promised: None,
            applied: BTreeMap::new(),
            undone: BTreeSet::new(),
            found: BTreeSet::new(),
            nonces: 0,
        };
        World {
            nodes: (0..places).map(node).collect(),
            messages: Vec::new(),
            budget,
            begun: BTreeSet::new(),
            accepted: BTreeMap::new(),
            executed: BTreeMap::new(),
            decided: BTreeSet::new(),
        }
    }

    /// What can happen. `faults` are among it as far as the budget reaches.
    pub(crate) fn actions(&self, plan: &Plan) -> Vec<Action> {
        let mut actions = Vec::new();
        let to_begin = plan.beginnings.iter().filter(|(root, call)| {
            !self.begun.contains(root) && self.nodes[plan.calls[call].0].participant.is_some()
        });
        actions.extend(to_begin.map(|(root, _)| Action::Begin(root.clone())));
        for (index, message) in self.messages.iter().enumerate() {
            if index > 0 && self.messages[index - 1] == *message {
                continue;
            }
            let is_up = self.nodes[message.to].participant.is_some();
            if is_up {
                actions.push(Action::Deliver(index));
            }
            // What is sent to a component that is down is lost without further fault.
            if self.budget.lost > 0 || !is_up {
                actions.push(Action::Lose(index));
            }
            if self.budget.duplicated > 0 && is_up {
                actions.push(Action::Duplicate(index));
            }
        }
        for (place, node) in self.nodes.iter().enumerate() {
            let Some(participant) = &node.participant else {
                actions.push(Action::Restart(place));
                continue;
            };
            actions.extend(
                node.work
                    .iter()
                    .filter(|work| self.is_possible(place, work))
                    .map(|work| Action::Work(place, work.clone())),
            );
            let is_idle = |handler: &Handler| matches!(handler, Handler::Ready | Handler::Committing(..));
            let idle = node.handlers.iter().filter(|(_, handler)| is_idle(handler));
            actions.extend(idle.map(|(call, _)| Action::Step(place, call.clone())));
            if self.budget.failed > 0 {
                let is_said = |handler: &Handler| matches!(handler, Handler::Committing(_, true));
                let said = node.handlers.iter().filter(|(_, handler)| is_said(handler));
                actions.extend(said.map(|(call, _)| Action::Fail(place, call.clone())));
            }
            if self.budget.crashed > 0 {
                actions.push(Action::Crash(place));
                // Without its journal a component that has prepared something does not start.
                if self.budget.journals_lost > 0 && node.prepared.is_empty() {
                    actions.push(Action::CrashAndLoseJournal(place));
                }
            }
            for info in participant.roots() {
                let asks = |work: &Effect| matches!(work, Effect::AskOutcome(root, ..) if *root == info.root);
                // A time that is over while things go on is a fault; when nothing else can happen,
                // it will be.
                let is_due = match info.is_in_doubt {
                    true => !node.work.iter().any(asks),
                    false => self.budget.deadlines > 0 || self.is_quiet(),
                };
                if is_due {
                    actions.push(Action::Deadline(place, info.root));
                }
            }
        }
        actions
    }

    /// Whether nothing goes on, but that questions and outcomes are repeated.
    fn is_quiet(&self) -> bool {
        let repeats = |work: &Effect| matches!(work, Effect::TellCommit(..) | Effect::AskOutcome(..));
        let is_quiet = |node: &Node| {
            node.participant.is_some() && node.work.iter().all(repeats) && node.handlers.is_empty()
        };
        let is_repeated = |message: &Message| {
            matches!(message.body, Body::Commit(_) | Body::Settled(_) | Body::Ask(..) | Body::Outcome(..))
        };
        self.messages.iter().all(is_repeated) && self.nodes.iter().all(is_quiet)
    }

    /// Work that repeats itself waits for the answer to what it has sent.
    fn is_possible(&self, place: Place, work: &Effect) -> bool {
        let under_way =
            |root: &RootId, other: &Name, is_question: fn(&Body) -> bool, is_answer: fn(&Body) -> bool| {
                let other = self::place(other);
                self.messages.iter().any(|message| {
                    message.root == *root
                        && (message.from == place && message.to == other && is_question(&message.body)
                            || message.from == other && message.to == place && is_answer(&message.body))
                })
            };
        match work {
            Effect::TellCommit(root, child, _) => !under_way(
                root,
                child,
                |body| matches!(body, Body::Commit(_)),
                |body| matches!(body, Body::Settled(_)),
            ),
            Effect::AskOutcome(root, parent, _) => !under_way(
                root,
                parent,
                |body| matches!(body, Body::Ask(..)),
                |body| matches!(body, Body::Outcome(..)),
            ),
            _ => true,
        }
    }

    /// The world after an action.
    pub(crate) fn after(&self, plan: &Plan, action: &Action) -> World {
        let mut world = self.clone();
        match action {
            Action::Begin(root) => {
                let call = plan.beginnings.iter().find(|(its, _)| its == root).map(|(_, call)| call);
                let call = call.expect("a root of the plan").clone();
                world.begun.insert(root.clone());
                let place = plan.calls[&call].0;
                let arrival = arrival(root, &call, None, Vec::new());
                world.tell(plan, place, Event::Arrive(arrival));
            }
            Action::Deliver(index) => {
                let message = world.messages.remove(*index);
                world.deliver(plan, message);
            }
            Action::Duplicate(index) => {
                world.budget.duplicated -= 1;
                let message = world.messages[*index].clone();
                world.deliver(plan, message);
            }
            Action::Lose(index) => {
                let message = world.messages.remove(*index);
                if world.nodes[message.to].participant.is_some() {
                    world.budget.lost -= 1;
                }
                world.lost(plan, message);
            }
            Action::Work(place, work) => world.work(plan, *place, work.clone()),
            Action::Step(place, call) => world.step(plan, *place, call),
            Action::Fail(place, call) => {
                world.budget.failed -= 1;
                world.nodes[*place].handlers.remove(call);
                let root = world.root_of(plan, call);
                world.tell(plan, *place, Event::Ended(root, call.clone(), Ended::RolledBack));
            }
            Action::Crash(place) => world.crash(plan, *place, false),
            Action::CrashAndLoseJournal(place) => world.crash(plan, *place, true),
            Action::Restart(place) => world.restart(plan, *place),
            Action::Deadline(place, root) => {
                world.budget.deadlines = world.budget.deadlines.saturating_sub(1);
                world.tell(plan, *place, Event::Deadline(root.clone()));
            }
        }
        world.go_on(plan);
        world.messages.sort_unstable();
        world
    }

    /// Lets handlers go on as far as they can without anything becoming durable. These steps are
    /// nobody else's business, so doing them at once leaves out no history.
    fn go_on(&mut self, plan: &Plan) {
        for place in 0..self.nodes.len() {
            while let Some(call) = self.nodes[place].handlers.iter().find(|(call, handler)| {
                let begins = plan.beginnings.iter().any(|(_, began)| began == *call);
                match handler {
                    Handler::Calls(_, is_waiting) => !is_waiting,
                    Handler::Ready => begins,
                    Handler::AtOnce(_) | Handler::Committing(..) => false,
                    Handler::Failed => true,
                }
            }) {
                let call = call.0.clone();
                self.step(plan, place, &call);
            }
        }
    }

    fn send(&mut self, root: &RootId, from: Place, to: Place, body: Body) {
        self.messages.push(Message { root: root.clone(), from, to, body });
    }

    /// Tells a participant, and takes in what it wants done. Who is down hears nothing.
    fn tell(&mut self, plan: &Plan, place: Place, event: Event) {
        let Some(participant) = &mut self.nodes[place].participant else { return };
        let effects = participant.handle(event);
        effects.into_iter().for_each(|effect| self.take(plan, place, effect));
    }

    fn take(&mut self, plan: &Plan, place: Place, effect: Effect) {
        match effect {
            Effect::Run(_, call) => {
                self.nodes[place].handlers.insert(call, Handler::Calls(0, false));
            }
            Effect::Cancel(_, call) => {
                // A handler that is being decided about has no transaction to roll back but that
                // one. A commit that its caller was answered ahead of goes on.
                let handlers = &mut self.nodes[place].handlers;
                if !matches!(handlers.get(&call), Some(Handler::Committing(_, true))) {
                    handlers.insert(call, Handler::Failed);
                }
            }
            // A call does not wait for ever, so the end of its patience is no fault.
            Effect::Wait(..) | Effect::Decide(..) | Effect::WriteVote(..) => {
                self.nodes[place].work.insert(effect);
            }
            Effect::Undo(..) | Effect::CommitHeld(..) => {
                self.nodes[place].work.insert(effect);
            }
            Effect::Free(..) | Effect::Note(..) | Effect::TellCommit(..) | Effect::AskOutcome(..) => {
                self.nodes[place].work.insert(effect);
            }
            Effect::Answer(root, call, answer) | Effect::Repeat(root, call, answer) => {
                let nonce = self.nodes[place].nonce(&root);
                let generation = self.nodes[place].generation;
                self.reply(plan, place, &root, &call, Ok((generation, nonce, answer)));
            }
            Effect::Refuse(root, call, _) => self.reply(plan, place, &root, &call, Err(false)),
            Effect::AskVote { root, child, calls, generation } => {
                self.send(&root, place, self::place(&child), Body::Prepare { calls, generation });
            }
            Effect::SendVote(root, parent, vote) => {
                if matches!(vote, Vote::Yes(_)) {
                    self.check_that_locks_are_held(plan, place, &root);
                }
                self.send(&root, place, self::place(&parent), Body::Vote(vote));
            }
            Effect::TellAbort(root, child) => self.send(&root, place, self::place(&child), Body::Abort),
            Effect::SendSettled(root, parent, settled) => {
                self.send(&root, place, self::place(&parent), Body::Settled(settled));
            }
            Effect::Mark(root, mark) => {
                self.nodes[place].marks.insert(root, mark);
            }
            Effect::Forget(root, outcome) => {
                let node = &mut self.nodes[place];
                node.work.retain(|work| !is_about(work, &root));
                if node.votes.remove(&root).is_some() && outcome == Outcome::Committed {
                    node.marks.insert(root.clone(), Mark::Committed);
                }
                if outcome == Outcome::Aborted && self.decided.contains(&root) {
                    self.check_that_all_is_there(plan, place, &root);
                }
                assert!(
                    outcome == Outcome::Aborted || self.decided.contains(&root),
                    "{root} is not decided, and was committed at {place}"
                );
            }
        }
    }

    /// Who says yes has held the lock of every call that its caller counts on, from its beginning.
    fn check_that_locks_are_held(&self, plan: &Plan, place: Place, root: &RootId) {
        let node = &self.nodes[place];
        for (call, (generation, _)) in &self.accepted {
            if plan.calls[call].0 != place || self.root_of(plan, call) != *root {
                continue;
            }
            assert!(!node.undone.contains(call), "a yes for {call}, which was undone at {place}");
            let only_reads = plan.reading.contains(call) && plan.calls[call].1.is_empty();
            assert!(
                !only_reads || *generation == node.generation,
                "a yes for {call}, which has lost its lock at {place}"
            );
        }
    }

    /// What is undone of a root that is decided may be a late duplicate only, whose mark went with
    /// a journal: each call that was decided about is still there.
    fn check_that_all_is_there(&self, plan: &Plan, place: Place, root: &RootId) {
        for (call, (its_place, _)) in &plan.calls {
            if *its_place == place && self.root_of(plan, call) == *root && !plan.reading.contains(call) {
                let node = &self.nodes[place];
                let is_held = node.prepared.values().any(|facts| facts.arrival.call == *call);
                let times = node.applied.get(call).copied().unwrap_or(0);
                assert!(times > 0 || is_held, "{root} is decided, and {call} was undone at {place}");
            }
        }
    }

    /// Each call whose answer was taken is there, as it was answered.
    fn check_that_answers_hold(&self, plan: &Plan, root: &RootId) {
        for (call, (_, answer)) in &self.accepted {
            let (place, calls) = &plan.calls[call];
            let only_reads = plan.reading.contains(call) && calls.is_empty();
            if only_reads || self.root_of(plan, call) != *root {
                continue;
            }
            let node = &self.nodes[*place];
            let is_it = |facts: &SlotFacts| facts.arrival.call == *call && facts.answer == *answer;
            let is_there = node.slots.values().chain(node.prepared.values()).any(is_it);
            assert!(is_there, "{root} is decided, and {call} is not what was answered");
        }
    }

    /// Answers a call to where it came from.
    fn reply(
        &mut self,
        plan: &Plan,
        place: Place,
        root: &RootId,
        call: &CallId,
        said: Result<(u64, Option<Nonce>, Text), bool>,
    ) {
        let of = plan.calls.iter().find(|(_, (_, calls))| calls.contains(call));
        if let Some((of, (caller, _))) = of {
            let body = Body::Answer { call: call.clone(), of: of.clone(), said };
            self.send(root, place, *caller, body);
        }
    }

    fn deliver(&mut self, plan: &Plan, message: Message) {
        let Message { root, from, to, body } = message;
        let other = name(from);
        match body {
            Body::Call { call, ancestors } => {
                self.tell(plan, to, Event::Arrive(arrival(&root, &call, Some(other), ancestors)));
            }
            // A second answer, or one to a handler that was given up.
            Body::Answer { call, of, .. } if !self.awaits(plan, to, &of, &call) => {}
            Body::Answer { call, of, said } => {
                let sent = match said {
                    Ok((generation, nonce, answer)) => {
                        self.accepted.insert(call.clone(), (generation, answer));
                        Sent::Answered { generation, nonce }
                    }
                    Err(false) => Sent::LeftNothing,
                    Err(true) => Sent::Failed,
                };
                self.answered(plan, to, &root, (&of, &call), sent);
            }
            Body::Prepare { calls, generation } => {
                self.nodes[to].nonces += 1;
                let nonce = self.nodes[to].nonces;
                self.tell(
                    plan,
                    to,
                    Event::Prepare(Prepare { root, parent: other, calls, generation, nonce }),
                );
            }
            Body::Vote(vote) => self.tell(plan, to, Event::Voted(root, other, vote)),
            Body::Commit(nonce) => self.commit_told(plan, &root, (from, to), nonce),
            Body::Abort => self.tell(plan, to, Event::Abort(root, other)),
            Body::Settled(settled) => {
                if settled != Settled::Pending && self.decided.contains(&root) {
                    self.check_that_all_is_there(plan, from, &root);
                }
                if settled != Settled::Pending {
                    let told = |work: &Effect| matches!(work, Effect::TellCommit(its, child, _) if *its == root && *child == other);
                    self.nodes[to].work.retain(|work| !told(work));
                }
                self.tell(plan, to, Event::Told(root, other, settled));
            }
            Body::Ask(nonce, callers) => {
                let Some(participant) = &self.nodes[to].participant else { return };
                let outcome = participant.outcome(&root, &other, nonce, &callers);
                self.send(&root, to, from, Body::Outcome(nonce, outcome));
            }
            Body::Outcome(nonce, outcome) => {
                self.tell(plan, to, Event::Learned(root.clone(), other, nonce, outcome));
                // It is asked again as long as the doubt lasts.
                let node = &mut self.nodes[to];
                let is_in_doubt = |participant: &Participant| participant.is_in_doubt(&root);
                if !node.participant.as_ref().is_some_and(is_in_doubt) {
                    node.work.retain(|work| !matches!(work, Effect::AskOutcome(its, ..) if *its == root));
                }
            }
        }
    }

    /// A parent says that the root is committed. Nothing of a root that is decided was undone, so
    /// nobody refuses. But who has the yes to a late duplicate out, or was started when its slot
    /// was there, cannot tell it from what was committed.
    fn commit_told(&mut self, plan: &Plan, root: &RootId, (from, to): (Place, Place), nonce: Option<Nonce>) {
        let node = &self.nodes[to];
        let is_in_doubt = node.participant.as_ref().is_some_and(|known| known.is_in_doubt(root));
        let is_exact = nonce.is_some() && !is_in_doubt && !node.found.contains(root);
        let before = self.messages.len();
        self.tell(plan, to, Event::Commit(root.clone(), name(from), nonce));
        let refused = Body::Settled(Settled::Refused);
        let is_refused = self.messages[before..].iter().any(|message| message.body == refused);
        let is_wrong = is_exact && is_refused && self.decided.contains(root);
        assert!(!is_wrong, "{root} is decided, and its commit is refused at {to}");
    }

    /// The calls whose answers a handler waits for.
    fn awaited<'a>(&'a self, plan: &'a Plan, place: Place, of: &CallId) -> Vec<&'a CallId> {
        match self.nodes[place].handlers.get(of) {
            Some(Handler::Calls(answered, true)) => plan.calls[of].1.get(*answered).into_iter().collect(),
            Some(Handler::AtOnce(left)) => left.iter().collect(),
            _ => Vec::new(),
        }
    }

    fn awaits(&self, plan: &Plan, place: Place, of: &CallId, call: &CallId) -> bool {
        self.awaited(plan, place, of).contains(&call)
    }

    /// A call was answered, or will not be.
    fn answered(
        &mut self,
        plan: &Plan,
        place: Place,
        root: &RootId,
        (of, call): (&CallId, &CallId),
        sent: Sent,
    ) {
        // A second answer, or one to a handler that was given up.
        if !self.awaits(plan, place, of, call) {
            return;
        }
        let handler = self.nodes[place].handlers.get(of).cloned().expect("it waits");
        let goes_on = matches!(sent, Sent::Answered { .. }) || plan.tolerant.contains(of);
        let called = |call: &CallId, sent: Sent| {
            Event::Called(root.clone(), of.clone(), name(plan.calls[call].0), sent)
        };
        self.tell(plan, place, called(call, sent));
        let next = match handler {
            Handler::AtOnce(mut left) => {
                left.remove(call);
                match (goes_on, left.is_empty()) {
                    (true, true) => Handler::Calls(plan.calls[of].1.len(), false),
                    (true, false) => Handler::AtOnce(left),
                    (false, _) => {
                        // What becomes of the others is not waited for.
                        left.iter().for_each(|other| self.tell(plan, place, called(other, Sent::Failed)));
                        Handler::Failed
                    }
                }
            }
            Handler::Calls(answered, _) if goes_on => Handler::Calls(answered + 1, false),
            _ => Handler::Failed,
        };
        if self.nodes[place].handlers.contains_key(of) {
            self.nodes[place].handlers.insert(of.clone(), next);
        }
    }

    /// Who sent a message that got lost notices it, or does not care.
    fn lost(&mut self, plan: &Plan, message: Message) {
        let Message { root, from, to, body } = message;
        match body {
            Body::Call { call, .. } => {
                let of = plan.calls.iter().find(|(_, (_, calls))| calls.contains(&call));
                let of = of.map(|(of, _)| of.clone()).expect("a call of the plan");
                self.answered(plan, from, &root, (&of, &call), Sent::Failed);
            }
            Body::Answer { call, of, .. } => {
                self.answered(plan, to, &root, (&of, &call), Sent::Failed);
            }
            Body::Prepare { .. } => {
                self.tell(plan, from, Event::Voted(root, name(to), Vote::No(No::Failed)));
            }
            Body::Vote(_) => self.tell(plan, to, Event::Voted(root, name(from), Vote::No(No::Failed))),
            // These are said again, or asked for.
            Body::Commit(_) | Body::Abort | Body::Settled(_) | Body::Ask(..) | Body::Outcome(..) => {}
        }
    }

    /// A handler goes on.
    fn step(&mut self, plan: &Plan, place: Place, call: &CallId) {
        let root = self.root_of(plan, call);
        let node = &mut self.nodes[place];
        let Some(participant) = &mut node.participant else { return };
        let calls = &plan.calls[call].1;
        match node.handlers.get(call).cloned() {
            Some(Handler::Calls(0, false)) if plan.at_once.contains(call) && !calls.is_empty() => {
                let mut children = calls.iter().map(|next| name(plan.calls[next].0));
                if !children.all(|child| participant.may_call(&root, call, &child)) {
                    node.handlers.insert(call.clone(), Handler::Failed);
                    return;
                }
                node.handlers.insert(call.clone(), Handler::AtOnce(calls.iter().cloned().collect()));
                for next in calls {
                    let body = Body::Call { call: next.clone(), ancestors: self.ancestors(plan, next) };
                    self.send(&root, place, plan.calls[next].0, body);
                }
            }
            Some(Handler::Calls(done, false)) if done < calls.len() => {
                let next = &calls[done];
                let child = plan.calls[next].0;
                if !participant.may_call(&root, call, &name(child)) {
                    node.handlers.insert(call.clone(), Handler::Failed);
                    return;
                }
                node.handlers.insert(call.clone(), Handler::Calls(done, true));
                let ancestors = self.ancestors(plan, next);
                self.send(&root, place, child, Body::Call { call: next.clone(), ancestors });
            }
            Some(Handler::Calls(..)) => {
                let fails = plan.refusing.contains(call) || participant.is_lost(&root);
                let next = if fails { Handler::Failed } else { Handler::Ready };
                node.handlers.insert(call.clone(), next);
            }
            Some(Handler::Ready) => {
                node.handlers.remove(call);
                if plan.beginnings.iter().any(|(_, began)| began == call) {
                    self.tell(plan, place, Event::Finish(root));
                } else if self.nodes[place].participant.as_ref().is_some_and(|known| known.is_lost(&root)) {
                    self.roll_back(plan, place, &root, call);
                } else if plan.ahead.contains(call) {
                    self.answer_ahead(plan, place, root, call);
                } else {
                    self.commit(plan, place, root, call, "".into());
                }
            }
            Some(Handler::Committing(answer, _)) => {
                node.handlers.remove(call);
                self.commit(plan, place, root, call, answer);
            }
            Some(Handler::Failed) => {
                node.handlers.remove(call);
                self.roll_back(plan, place, &root, call);
            }
            None | Some(Handler::AtOnce(_)) => unreachable!("only handlers step"),
        }
    }

    /// Says that a call's commit is under way.
    fn answer_ahead(&mut self, plan: &Plan, place: Place, root: RootId, call: &CallId) {
        let times = self.executed.entry(call.clone()).or_default();
        *times += 1;
        let answer = Text::from(times.to_string());
        let Some(participant) = &mut self.nodes[place].participant else { return };
        let effects = participant.handle(Event::Committing(root, call.clone(), Arc::clone(&answer)));
        let handler = Handler::Committing(answer, !effects.is_empty());
        self.nodes[place].handlers.insert(call.clone(), handler);
        effects.into_iter().for_each(|effect| self.take(plan, place, effect));
    }

    /// A call's local transaction ends well.
    fn commit(&mut self, plan: &Plan, place: Place, root: RootId, call: &CallId, answer: Text) {
        let slot = self.apply(plan, place, (&root, call, &answer), None);
        let ended = match slot.filter(|_| plan.closed.contains(call)) {
            Some(slot) => Ended::Held { slot, answer },
            None => Ended::Committed { slot, answer },
        };
        self.tell(plan, place, Event::Ended(root, call.clone(), ended));
    }

    fn roll_back(&mut self, plan: &Plan, place: Place, root: &RootId, call: &CallId) {
        // Where it called others, something may be left there.
        let may_be_left = !plan.calls[call].1.is_empty();
        self.nodes[place].work.retain(|work| !matches!(work, Effect::Decide(_, its) if its == call));
        self.tell(plan, place, Event::Ended(root.clone(), call.clone(), Ended::RolledBack));
        self.reply(plan, place, root, call, Err(may_be_left));
    }

    /// Commits a call's local transaction.
    fn apply(
        &mut self,
        plan: &Plan,
        place: Place,
        (root, call, answer): (&RootId, &CallId, &Text),
        decision: Option<Vec<(Name, Nonce)>>,
    ) -> Option<u32> {
        let ancestors = self.ancestors(plan, call);
        let node = &mut self.nodes[place];
        let nonce = node.nonce(root);
        let participant = node.participant.as_ref().expect("who commits is up");
        let nonces = participant.nonces_of(root, call);
        let sequence = participant.sequence(root, call).expect("a call that runs has a lock");
        let children = participant.children_of(root, call);
        if plan.reading.contains(call) && plan.calls[call].1.is_empty() {
            return None;
        }
        let is_closed = plan.closed.contains(call);
        if !is_closed {
            *node.applied.entry(call.clone()).or_default() += 1;
        }
        let caller = plan
            .calls
            .iter()
            .find(|(_, (_, calls))| calls.contains(call))
            .map(|(_, (caller, _))| name(*caller));
        let is_free = |slot: &u32| !node.slots.contains_key(slot) && !node.prepared.contains_key(slot);
        let slot = (0..).find(is_free).expect("there is always one more");
        let began_here = self.began_at(plan, root) == place;
        let facts = SlotFacts {
            slot,
            arrival: arrival(root, call, caller, ancestors),
            sequence,
            answer: Arc::clone(answer),
            children,
            began_here,
            decision,
            is_noted: false,
            is_held: is_closed,
            nonce,
            nonces,
        };
        let node = &mut self.nodes[place];
        if is_closed { &mut node.prepared } else { &mut node.slots }.insert(slot, facts);
        Some(slot)
    }

    fn work(&mut self, plan: &Plan, place: Place, work: Effect) {
        let node = &mut self.nodes[place];
        match &work {
            // These stay until they are answered.
            Effect::TellCommit(root, child, nonce) => {
                return self.send(root, place, self::place(child), Body::Commit(*nonce));
            }
            Effect::AskOutcome(root, parent, nonce) => {
                let participant = node.participant.as_ref().expect("who works is up");
                let callers = participant.callers(root, parent);
                return self.send(root, place, self::place(parent), Body::Ask(*nonce, callers));
            }
            _ => node.work.remove(&work),
        };
        match work {
            Effect::Wait(root, call) => self.tell(plan, place, Event::WaitedEnough(root, call)),
            Effect::WriteVote(root, nonce) => {
                let participant = node.participant.as_ref().expect("who works is up");
                let children = participant.children(&root).into_iter();
                let children = children.filter_map(|(name, _, nonce)| Some((name, nonce?))).collect();
                let parents = participant.parents(&root);
                let origins = Vec::new();
                if !participant.is_in_slots(&root) {
                    let facts = VoteFacts { root: root.clone(), nonce, parents, children, origins };
                    node.votes.insert(root.clone(), facts);
                }
                self.tell(plan, place, Event::VoteWritten(root));
            }
            Effect::Decide(root, call) => {
                let participant = node.participant.as_ref().expect("who works is up");
                let children = participant.children(&root).into_iter();
                let decision = children.filter_map(|(name, _, nonce)| Some((name, nonce?))).collect();
                let slot = self.apply(plan, place, (&root, &call, &"".into()), Some(decision));
                self.check_that_answers_hold(plan, &root);
                assert!(self.decided.insert(root.clone()), "a root is decided once");
                self.tell(
                    plan,
                    place,
                    Event::Ended(root, call, Ended::Committed { slot, answer: "".into() }),
                );
            }
            Effect::CommitHeld(root, call) => {
                let held = node.prepared.iter().find(|(_, facts)| facts.arrival.call == call);
                let slot = *held.expect("what is committed was prepared").0;
                let mut facts = node.prepared.remove(&slot).expect("found before");
                facts.is_held = false;
                node.slots.insert(slot, facts);
                *node.applied.entry(call.clone()).or_default() += 1;
                self.tell(plan, place, Event::HeldCommitted(root, call));
            }
            Effect::Undo(root, call) if node.prepared.values().any(|facts| facts.arrival.call == call) => {
                node.prepared.retain(|_, facts| facts.arrival.call != call);
                node.undone.insert(call.clone());
                self.tell(plan, place, Event::Undone(root, call));
            }
            Effect::Undo(root, call) => {
                node.slots.retain(|_, facts| facts.arrival.call != call);
                node.undone.insert(call.clone());
                let applied = node.applied.get_mut(&call).filter(|times| **times > 0);
                *applied.expect("what is undone was there") -= 1;
                self.tell(plan, place, Event::Undone(root, call));
            }
            // By their next uses, one after the other.
            Effect::Free(root, mut slots) => {
                let slot = slots.remove(0);
                assert!(node.slots.remove(&slot).is_some(), "a slot that is freed was in use");
                match slots.is_empty() {
                    true => self.tell(plan, place, Event::Freed(root)),
                    false => {
                        node.work.insert(Effect::Free(root, slots));
                    }
                }
            }
            Effect::Note(root, slots) => {
                for slot in slots {
                    if let Some(facts) = node.slots.get_mut(&slot) {
                        facts.is_noted = true;
                    }
                }
                self.tell(plan, place, Event::Noted(root));
            }
            other => unreachable!("not work: {other:?}"),
        }
    }

    /// A component stops in the middle of whatever it does. Who waits for it notices.
    fn crash(&mut self, plan: &Plan, place: Place, journal_too: bool) {
        self.budget.crashed -= 1;
        let knows = self.budget.knows && !journal_too;
        let node = &mut self.nodes[place];
        let participant = node.participant.take().filter(|_| knows);
        node.promised = participant.map(|participant| participant.promised().into_iter().collect());
        node.handlers.clear();
        node.work.clear();
        if journal_too {
            self.budget.journals_lost -= 1;
            node.votes.clear();
            node.marks.clear();
            node.undone.clear();
        }
        // Answers that it has not sent will never come.
        for other in 0..self.nodes.len() {
            if other == place {
                continue;
            }
            let is_under_way = |callee: &CallId| {
                self.messages.iter().any(|message| match &message.body {
                    Body::Answer { call, .. } | Body::Call { call, .. } => call == callee,
                    _ => false,
                })
            };
            let mut waiting: Vec<(CallId, CallId)> = Vec::new();
            for of in self.nodes[other].handlers.keys() {
                let awaited = self.awaited(plan, other, of).into_iter();
                let lost = awaited.filter(|call| plan.calls[*call].0 == place && !is_under_way(call));
                waiting.extend(lost.map(|call| (of.clone(), call.clone())));
            }
            for (of, call) in waiting {
                let root = self.root_of(plan, &of);
                self.answered(plan, other, &root, (&of, &call), Sent::Failed);
            }
            let asked: Vec<RootId> = self.nodes[other]
                .participant
                .iter()
                .flat_map(|participant| {
                    participant
                        .roots()
                        .into_iter()
                        .filter(|info| {
                            let of_it = participant
                                .children(&info.root)
                                .into_iter()
                                .any(|(child, _, vote)| child == name(place) && vote.is_none());
                            let is_under_way = self.messages.iter().any(|message| {
                                message.root == info.root
                                    && (message.from == place
                                        && message.to == other
                                        && matches!(message.body, Body::Vote(_))
                                        || message.from == other
                                            && message.to == place
                                            && matches!(message.body, Body::Prepare { .. }))
                            });
                            info.phase == cognate_composite_protocol::participant::Phase::Preparing
                                && of_it
                                && !is_under_way
                        })
                        .map(|info| info.root)
                        .collect::<Vec<_>>()
                })
                .collect();
            for root in asked {
                self.tell(plan, other, Event::Voted(root, name(place), Vote::No(No::Failed)));
            }
        }
    }

    fn restart(&mut self, plan: &Plan, place: Place) {
        let node = &mut self.nodes[place];
        node.generation += 1;
        let slots = node.slots.values().chain(node.prepared.values());
        node.found.extend(slots.map(|facts| facts.arrival.root.clone()));
        let remembered = Remembered {
            slots: node.slots.values().chain(node.prepared.values()).cloned().collect(),
            votes: node.votes.values().cloned().collect(),
            marks: node.marks.iter().map(|(root, mark)| (root.clone(), *mark)).collect(),
            promised: node.promised.take(),
        };
        let matrix = matrix(&plan_lines());
        let (participant, effects) = Participant::recover(matrix, node.generation, remembered);
        node.participant = Some(participant);
        effects.into_iter().for_each(|effect| self.take(plan, place, effect));
    }

    fn began_at(&self, plan: &Plan, root: &RootId) -> Place {
        let call = plan.beginnings.iter().find(|(its, _)| its == root).map(|(_, call)| call);
        plan.calls[call.expect("a root of the plan")].0
    }

    /// The root of a call: calls are named after their roots.
    fn root_of(&self, plan: &Plan, call: &CallId) -> RootId {
        let root = call.as_str().split('.').next().expect("a part");
        plan.beginnings
            .iter()
            .map(|(its, _)| its)
            .find(|its| its.as_str() == root)
            .expect("a root of the plan")
            .clone()
    }

    /// The calls that a call is part of, the root's first.
    fn ancestors(&self, plan: &Plan, call: &CallId) -> Vec<CallId> {
        let mut chain = Vec::new();
        let mut at = call;
        while let Some((caller, _)) = plan.calls.iter().find(|(_, (_, calls))| calls.contains(at)) {
            chain.insert(0, caller.clone());
            at = caller;
        }
        chain
    }

    /// What must hold when nothing can happen any more.
    pub(crate) fn check_end(&self, plan: &Plan) -> Result<(), String> {
        for (place, node) in self.nodes.iter().enumerate() {
            let participant = node.participant.as_ref().ok_or("a component is down at the end")?;
            if !participant.is_idle() {
                return Err(format!("component {place} has not ended: {:?}", participant.roots()));
            }
            if !node.prepared.is_empty() {
                return Err(format!(
                    "component {place} keeps something prepared: {:?}",
                    node.prepared.keys()
                ));
            }
            if !node.slots.is_empty() {
                return Err(format!("component {place} has slots in use: {:?}", node.slots.keys()));
            }
        }
        for (root, _) in &plan.beginnings {
            for (call, (place, _)) in &plan.calls {
                if self.root_of(plan, call) != *root || plan.reading.contains(call) {
                    continue;
                }
                let times = self.nodes[*place].applied.get(call).copied().unwrap_or(0);
                if times != u8::from(self.decided.contains(root)) {
                    return Err(format!("{root} is not whole: {call} at {place}: {times} times"));
                }
            }
        }
        Ok(())
    }
}

/// The lines that all these worlds' components declare.
pub(crate) fn plan_lines() -> Vec<Line> {
    vec![cognate_composite_protocol::matrix::same_item("s", "s")]
}

fn is_about(work: &Effect, root: &RootId) -> bool {
    match work {
        Effect::TellCommit(its, ..) | Effect::AskOutcome(its, ..) | Effect::WriteVote(its, _) => its == root,
        Effect::Note(its, _) | Effect::Free(its, _) => its == root,
        _ => false,
    }
}

/// Items are named at the end of a call's name: `r.1:7` is about item 7.
fn arrival(root: &RootId, call: &CallId, parent: Option<Name>, ancestors: Vec<CallId>) -> Arrival {
    let item = call.as_str().split(':').nth(1).unwrap_or("");
    Arrival {
        root: root.clone(),
        call: call.clone(),
        parent,
        ancestors,
        service: 0,
        item: item.into(),
        arguments: 0,
    }
}
