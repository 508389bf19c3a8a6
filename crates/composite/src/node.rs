//! A running component: its participant, and everything that the participant's effects are done
//! with.
//!
//! The participant is told under one mutex, and what it wants done is begun under the same one, in
//! its order: work that takes time becomes a task, and tells the participant when it is done.
//! Nothing waits under the mutex.
//!
//! Mutex order: `Node::core`, then those of `Slots`, `Journal` and `Peers`, which are leaves.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use cognate_client_protocol::backoff::Backoff;
use futures_util::future::join_all;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::courier::When;
use crate::database::Pool;
use crate::fault;
use crate::journal::Journal;
use crate::name::{CallId, Name, RootId};
use crate::options::Options;
use crate::participant::{Effect, Event, Nonce, Origin, Outcome, Participant, Refusal, Settled, Slot, Vote};
use crate::peers::Peers;
use crate::problem::Problem;
use crate::service::Erased;
use crate::slots::{Facts, Slots};
use crate::wire::DEADLINE_MAX;

/// How long marks outlast the deadline of their roots.
const LATE: Duration = Duration::from_secs(10);
/// How long the abort of a root is waited for before its retry begins, or its client is answered.
const ABORT: Duration = Duration::from_secs(1);
/// How much longer a call waits for another one of its own root. To begin the root again would not
/// help it: they would meet again. Two that wait for each other, by way of others, end so.
const SIBLING: Duration = Duration::from_secs(5);
/// How often timers are looked at, and slots that nobody uses.
const TICK: Duration = Duration::from_millis(25);
/// How often answers whose time is over are removed.
const TICKS_A_SWEEP: u64 = 2400;
/// How often a process that nobody asks looks whether a later one has taken the component over.
const TICKS_A_LOOK: u64 = 200;
/// Pauses between repetitions of what must get through.
pub(crate) const AGAIN: Backoff = Backoff {
    patience: Duration::from_secs(5),
    patience_max: Duration::from_secs(5),
    pause: Duration::from_millis(50),
    pause_max: Duration::from_secs(2),
};
/// Pauses until a component that carries out a commit is asked once more whether it is done.
const UNDONE: Backoff = Backoff { pause: Duration::from_millis(100), ..AGAIN };
/// Pauses between attempts, of local transactions and of roots.
pub(crate) const RETRY: Backoff = Backoff {
    patience: Duration::from_secs(1),
    patience_max: Duration::from_secs(1),
    pause: Duration::from_millis(4),
    pause_max: Duration::from_millis(250),
};

/// A call under way: what its task listens to.
pub(crate) struct UnderWay {
    pub(crate) start: Option<oneshot::Sender<Result<(), Refusal>>>,
    pub(crate) cancel: Arc<Notify>,
    pub(crate) decide: Option<oneshot::Sender<()>>,
}

/// What happens later.
enum Timer {
    Deadline(RootId),
    MarkOver(RootId),
}

/// An undo that does not succeed.
#[derive(Debug, Clone)]
pub(crate) struct Parked {
    pub(crate) root: RootId,
    pub(crate) call: CallId,
    pub(crate) slot: Slot,
    pub(crate) why: String,
    pub(crate) resume: Arc<Notify>,
    /// A person has undone it: nothing is left but to free its slot.
    pub(crate) is_by_hand: Arc<AtomicBool>,
}

pub(crate) struct Core {
    pub(crate) participant: Participant,
    pub(crate) under_way: HashMap<(RootId, CallId), UnderWay>,
    /// Who waits for a vote.
    votes: HashMap<(RootId, Name), Vec<oneshot::Sender<Vote>>>,
    /// Where the parents decide that have asked for votes, or whose calls were here before a start,
    /// as far as they said so.
    pub(crate) origins: HashMap<RootId, Vec<(Name, Origin)>>,
    /// Roots in doubt whose parent is not what it was: it knows nothing of them, and that means
    /// nothing.
    pub(crate) forsaken: HashMap<RootId, Name>,
    /// Why roots can only be aborted: the first call that has failed, or a component's no.
    pub(crate) noes: HashMap<RootId, Problem>,
    /// What the slots of answered calls say.
    pub(crate) facts: HashMap<RootId, HashMap<CallId, (Slot, Facts)>>,
    /// Abort messages under way, of the roots that begin here: their clients are answered after
    /// them.
    pub(crate) aborts: HashMap<RootId, Vec<JoinHandle<()>>>,
    /// When roots began here, and when their time is over.
    pub(crate) times: HashMap<RootId, (Instant, Instant)>,
    timers: BTreeMap<(Instant, u64), Timer>,
    timer_count: u64,
    pub(crate) parked: Vec<Parked>,
    /// Calls that a person has undone by hand, of roots whose slots are being freed.
    pub(crate) by_hand: HashMap<RootId, Vec<CallId>>,
    /// When the last yes was given, until the journal says who has one.
    pub(crate) voted: Option<Instant>,
}

impl Core {
    fn later(&mut self, at: Instant, timer: Timer) {
        self.timer_count += 1;
        self.timers.insert((at, self.timer_count), timer);
    }

    /// The root's time at this component.
    pub(crate) fn time(&mut self, root: &RootId, deadline: Instant) {
        let known = self.times.entry(root.clone()).or_insert((Instant::now(), deadline));
        known.1 = known.1.max(deadline);
        self.later(deadline, Timer::Deadline(root.clone()));
    }
}

/// Pauses before an attempt; the first one begins at once (a timer would round up).
pub(crate) async fn pause(backoff: Backoff, attempt: u32) {
    let pause = backoff.pause(attempt, rand::random::<u64>());
    if !pause.is_zero() {
        sleep(pause).await;
    }
}

/// When the mark of a root is over that ends now. One that was in doubt may have ended long after
/// its time: its parent, who is back, is not to hear at once that all is done.
fn mark_over(deadline: Instant) -> Instant {
    deadline.max(Instant::now()) + LATE
}

/// A running component.
pub(crate) struct Node {
    pub(crate) name: Name,
    pub(crate) services: Vec<Erased>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) slots: Slots,
    pub(crate) journal: Journal,
    peers: Arc<Peers>,
    pub(crate) options: Options,
    core: Mutex<Core>,
    /// Another process has taken the component over.
    pub(crate) fenced: Notify,
    pub(crate) is_fenced: std::sync::atomic::AtomicBool,
    /// Requests with a key take turns.
    pub(crate) turns: Mutex<HashMap<String, Weak<Turn>>>,
    /// Roots that were begun here.
    pub(crate) begun: std::sync::atomic::AtomicU64,
}

/// One of the requests with a key has it.
pub(crate) type Turn = tokio::sync::Mutex<()>;

impl Node {
    #[expect(clippy::too_many_arguments, reason = "each is a part of the component, made in another place")]
    pub(crate) fn new(
        name: Name,
        services: Vec<Erased>,
        pool: Arc<Pool>,
        slots: Slots,
        journal: Journal,
        peers: Arc<Peers>,
        options: Options,
        participant: Participant,
    ) -> Arc<Node> {
        let core = Core {
            participant,
            under_way: HashMap::new(),
            votes: HashMap::new(),
            noes: HashMap::new(),
            origins: HashMap::new(),
            forsaken: HashMap::new(),
            facts: HashMap::new(),
            aborts: HashMap::new(),
            times: HashMap::new(),
            timers: BTreeMap::new(),
            timer_count: 0,
            parked: Vec::new(),
            by_hand: HashMap::new(),
            voted: None,
        };
        let (fenced, is_fenced) = (Notify::new(), false.into());
        let (core, turns) = (Mutex::new(core), Mutex::default());
        Arc::new(Node {
            name,
            services,
            pool,
            slots,
            journal,
            peers,
            options,
            core,
            fenced,
            is_fenced,
            turns,
            begun: 0.into(),
        })
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        // A panic under this mutex is a defect of the protocol: nothing may be said after it.
        self.core.lock().expect("the component has failed before, and says nothing more")
    }

    pub(crate) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    pub(crate) fn generation(&self) -> u64 {
        *self.slots.generation() as u64
    }

    pub(crate) fn may_call(&self, root: &RootId, call: &CallId, child: &Name) -> bool {
        self.core().participant.may_call(root, call, child)
    }

    /// Tells the participant what has happened; what it wants done is begun. Answers what that is.
    pub(crate) fn tell(self: &Arc<Self>, event: Event) -> Vec<Effect> {
        let mut core = self.core();
        let effects = core.participant.handle(event);
        self.perform(&mut core, &effects);
        effects
    }

    /// Begins what a recovered participant wants done, and looks at timers from now on.
    pub(crate) fn begin(self: &Arc<Self>, effects: &[Effect]) {
        {
            let mut core = self.core();
            let is_known = |root: &RootId| core.participant.knows(root) || core.participant.is_marked(root);
            self.journal.forget_others(is_known);
            let over = Instant::now() + DEADLINE_MAX + LATE;
            let marked: Vec<RootId> = core.participant.marked().cloned().collect();
            marked.into_iter().for_each(|root| core.later(over, Timer::MarkOver(root)));
            self.perform(&mut core, effects);
        }
        let node = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                sleep(TICK).await;
                let Some(node) = node.upgrade() else { return };
                node.tick();
            }
        });
        // What waits for the database must not hold up deadlines.
        let (node, mut swept) = (Arc::downgrade(self), String::new());
        tokio::spawn(async move {
            for tick in 1u64.. {
                sleep(TICK).await;
                let Some(node) = node.upgrade() else { return };
                for root in node.slots.free_now(&node.pool).await {
                    node.tell(Event::Freed(root));
                }
                if tick.is_multiple_of(TICKS_A_SWEEP) {
                    node.sweep_answers(&mut swept).await;
                }
                if tick.is_multiple_of(TICKS_A_LOOK) {
                    node.is_current().await;
                }
            }
        });
    }

    /// Does what is due.
    fn tick(self: &Arc<Self>) {
        let now = Instant::now();
        self.note_quiet(now);
        loop {
            let due = {
                let mut core = self.core();
                match core.timers.first_key_value() {
                    Some((&(at, _), _)) if at <= now => core.timers.pop_first().map(|(_, timer)| timer),
                    _ => None,
                }
            };
            match due {
                Some(Timer::Deadline(root)) => drop(self.tell(Event::Deadline(root))),
                Some(Timer::MarkOver(root)) => {
                    self.tell(Event::MarkOver(root.clone()));
                    // As long as anything is left of it a start needs what the journal says; and
                    // what it says of a call that comes now is not to be forgotten with that.
                    let mut core = self.core();
                    match core.participant.knows(&root) {
                        true => core.later(now + LATE, Timer::MarkOver(root)),
                        false => self.journal.forget(&root),
                    }
                }
                None => break,
            }
        }
    }

    /// Begins what is to be done, in its order.
    pub(crate) fn perform(self: &Arc<Self>, core: &mut Core, effects: &[Effect]) {
        // What is said of a root after its mark is said once the mark is durable.
        let mut is_marked = false;
        let (mut asking, mut telling) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::AskVote { root, child, calls, generation } => {
                    let (root, child) = (root.clone(), child.clone());
                    asking.push(Arc::clone(self).ask_vote(root, child, *calls, *generation));
                }
                Effect::TellCommit(root, child, nonce) => {
                    telling.push(Arc::clone(self).tell_commit(root.clone(), child.clone(), *nonce));
                }
                Effect::Mark(root, mark) => {
                    let (_, deadline) = core.times.get(root).copied().unwrap_or_else(|| {
                        let now = Instant::now();
                        (now, now + DEADLINE_MAX)
                    });
                    core.later(mark_over(deadline), Timer::MarkOver(root.clone()));
                    is_marked = true;
                    fault::point("mark-write-before");
                    if let Err(error) = self.journal.mark(root, *mark) {
                        tracing::error!("the journal cannot be written: {error}");
                    }
                }
                Effect::SendVote(root, parent, vote) => {
                    let waiting = core.votes.remove(&(root.clone(), parent.clone())).unwrap_or_default();
                    let vote = *vote;
                    fault::point("vote-send-before");
                    let send = move || {
                        waiting.into_iter().for_each(|waiting| {
                            let _ = waiting.send(vote);
                        })
                    };
                    // Its mark may have been left by an earlier message, and not be durable yet.
                    match is_marked || core.participant.is_marked(root) {
                        false => send(),
                        true => {
                            let written = self.journal.written();
                            tokio::spawn(async move {
                                if written.await.is_ok() {
                                    send();
                                }
                            });
                        }
                    }
                }
                effect => self.perform_one(core, effect),
            }
        }
        // One task for all children, which wakes one thread and not several.
        if !asking.is_empty() {
            tokio::spawn(join_all(asking));
        }
        if !telling.is_empty() {
            tokio::spawn(join_all(telling));
        }
    }

    fn perform_one(self: &Arc<Self>, core: &mut Core, effect: &Effect) {
        let node = Arc::clone(self);
        match effect.clone() {
            Effect::Run(root, call) => core.start(&root, &call, Ok(())),
            Effect::Refuse(root, call, why) => core.start(&root, &call, Err(why)),
            Effect::Wait(root, call) => drop(tokio::spawn(node.wait(root, call))),
            // Whoever has told the event takes these from the answer.
            Effect::Repeat(..) | Effect::Answer(..) | Effect::SendSettled(..) => {}
            Effect::Cancel(root, call) => {
                if let Some(under_way) = core.under_way.get(&(root, call)) {
                    under_way.cancel.notify_one();
                }
            }
            Effect::Decide(root, call) => {
                let under_way = core.under_way.get_mut(&(root, call));
                if let Some(decide) = under_way.and_then(|under_way| under_way.decide.take()) {
                    let _ = decide.send(());
                }
            }
            Effect::WriteVote(root, nonce) => self.write_vote(core, root, nonce),
            Effect::TellAbort(root, child) => {
                let task = tokio::spawn(node.tell_abort(root.clone(), child));
                if let Some(waited_for) = core.aborts.get_mut(&root) {
                    waited_for.push(task);
                }
            }
            Effect::CommitHeld(root, call) => drop(tokio::spawn(node.commit_held(root, call))),
            Effect::Undo(root, call) => drop(tokio::spawn(node.undo(root, call))),
            Effect::Free(root, slots) => self.slots.free_later(&root, &slots),
            Effect::Note(root, slots) => {
                tokio::spawn(async move {
                    for attempt in 1.. {
                        pause(AGAIN, attempt).await;
                        match node.slots.note(&node.pool, &root, &slots).await {
                            Ok(true) => return drop(node.tell(Event::Noted(root))),
                            // It is over, which is more than was to be said.
                            Ok(false) => return,
                            Err(problem) => tracing::warn!(%root, "slots cannot be written yet: {problem}"),
                        }
                    }
                });
            }
            Effect::AskOutcome(root, parent, nonce) => {
                tokio::spawn(node.ask_outcome(root, parent, nonce));
            }
            Effect::Forget(root, outcome) => self.forget(core, &root, outcome),
            Effect::Mark(..) | Effect::SendVote(..) | Effect::AskVote { .. } | Effect::TellCommit(..) => {
                unreachable!("done above")
            }
        }
    }

    /// Has a call wait for its lock, within a bound.
    async fn wait(self: Arc<Self>, root: RootId, call: CallId) {
        sleep(self.options.lock_wait).await;
        let is_behind = self.core().participant.waits_for_sibling(&root, &call);
        if is_behind {
            sleep(SIBLING).await;
        }
        self.tell(Event::WaitedEnough(root, call));
    }

    /// Has a child vote.
    pub(crate) async fn ask_vote(
        self: Arc<Self>,
        root: RootId,
        child: Name,
        calls: u32,
        generation: Option<u64>,
    ) {
        fault::point("vote-ask-before");
        let (vote, why) = self.peers.prepare(&child, &root, calls, generation).await;
        fault::point("vote-ask-after");
        self.core().note_no(&root, why);
        self.tell(Event::Voted(root, child, vote));
    }

    async fn tell_commit(self: Arc<Self>, root: RootId, child: Name, nonce: Option<Nonce>) {
        let mut when = When::Along;
        for attempt in 2.. {
            fault::point("commit-tell-before");
            match self.peers.commit(&child, &root, nonce, when).await {
                Some(settled @ (Settled::Done | Settled::Refused)) => {
                    fault::point("commit-tell-after");
                    if settled == Settled::Refused {
                        tracing::error!(%root, %child, "is committed, and the component says that it has undone it");
                    }
                    self.tell(Event::Told(root, child, settled));
                    return;
                }
                // It is done soon, and nobody waits for that.
                Some(Settled::Pending) => {
                    when = When::After(UNDONE.pause(attempt, rand::random::<u64>()));
                }
                None => {
                    sleep(AGAIN.pause(attempt, rand::random::<u64>())).await;
                    when = When::Now;
                }
            }
        }
    }

    async fn tell_abort(self: Arc<Self>, root: RootId, child: Name) {
        // If it does not get through, the component finds out by its deadline, or asks.
        for attempt in 1..=5 {
            pause(AGAIN, attempt).await;
            // A later process may have found its decision.
            if self.is_fenced.load(Ordering::SeqCst) {
                return;
            }
            fault::point("abort-tell-before");
            let settled = self.peers.abort(&child, &root).await;
            fault::point("abort-tell-after");
            if matches!(settled, Some(Settled::Done | Settled::Refused)) {
                return;
            }
        }
    }

    async fn ask_outcome(self: Arc<Self>, root: RootId, parent: Name, nonce: Option<Nonce>) {
        for attempt in 1.. {
            pause(AGAIN, attempt).await;
            let callers = {
                let core = self.core();
                if !core.participant.is_in_doubt(&root) {
                    return;
                }
                core.participant.callers(&root, &parent)
            };
            fault::point("outcome-ask-before");
            if let Some((outcome, origin)) = self.peers.outcome(&parent, &root, nonce, callers).await {
                fault::point("outcome-ask-after");
                if outcome == Outcome::Aborted && !self.core().may_believe(&root, &parent, origin.as_ref()) {
                    continue;
                }
                self.tell(Event::Learned(root.clone(), parent.clone(), nonce, outcome));
            }
        }
    }

    fn forget(&self, core: &mut Core, root: &RootId, outcome: Outcome) {
        let (_, deadline) = core.times.remove(root).unwrap_or_else(|| (Instant::now(), Instant::now()));
        core.facts.remove(root);
        core.origins.remove(root);
        core.forsaken.remove(root);
        core.noes.remove(root);
        core.by_hand.remove(root);
        if outcome == Outcome::Committed && !core.participant.is_marked(root) {
            // It called nobody: nothing is refused for it, and the journal has never heard of it.
            return;
        }
        core.later(mark_over(deadline), Timer::MarkOver(root.clone()));
        self.journal.end(root, outcome == Outcome::Committed);
    }

    /// Waits until the abort messages of a root were answered, within a bound.
    pub(crate) async fn aborted(&self, root: &RootId) {
        let tasks = self.core().aborts.remove(root).unwrap_or_default();
        if tasks.is_empty() {
            return;
        }
        let all = async {
            for task in tasks {
                let _ = task.await;
            }
        };
        let _ = timeout(ABORT, all).await;
    }

    /// Who asks for a vote waits for it here.
    pub(crate) fn vote(
        self: &Arc<Self>,
        prepare: crate::participant::Prepare,
        origin: Option<Origin>,
    ) -> oneshot::Receiver<Vote> {
        let (sender, receiver) = oneshot::channel();
        let mut core = self.core();
        if let Some(origin) = origin
            && core.participant.knows(&prepare.root)
        {
            let origins = core.origins.entry(prepare.root.clone()).or_default();
            match origins.iter_mut().find(|(parent, _)| *parent == prepare.parent) {
                // A question of an earlier process that comes late.
                Some((_, known)) if known.speaks_for(&origin) => {}
                Some((_, known)) => *known = origin,
                None => origins.push((prepare.parent.clone(), origin)),
            }
        }
        core.votes.entry((prepare.root.clone(), prepare.parent.clone())).or_default().push(sender);
        let effects = core.participant.handle(Event::Prepare(prepare));
        self.perform(&mut core, &effects);
        receiver
    }
}

impl Core {
    /// A call is not under way any more. The same call may have come again meanwhile, which is
    /// another one.
    pub(crate) fn ended(&mut self, root: &RootId, call: &CallId, cancel: &Arc<Notify>) {
        let key = (root.clone(), call.clone());
        if self.under_way.get(&key).is_some_and(|known| Arc::ptr_eq(&known.cancel, cancel)) {
            self.under_way.remove(&key);
        }
        // Nothing was left of a root whose calls were all refused.
        if !self.participant.knows(root) {
            self.times.remove(root);
        }
    }

    /// Keeps why a root can only be aborted, as it was said first.
    pub(crate) fn note_no(&mut self, root: &RootId, why: Option<Problem>) {
        if let Some(why) = why.filter(|_| self.participant.knows(root)) {
            self.noes.entry(root.clone()).or_insert(why);
        }
    }

    fn start(&mut self, root: &RootId, call: &CallId, outcome: Result<(), Refusal>) {
        let under_way = self.under_way.get_mut(&(root.clone(), call.clone()));
        if let Some(start) = under_way.and_then(|under_way| under_way.start.take()) {
            let _ = start.send(outcome);
        }
    }
}
