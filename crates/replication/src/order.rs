//! The order as its application sees it: [`TotalOrder`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cognate_env::Disk;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::application::{Answer, Application};
use crate::changing;
use crate::codec::Coded;
use crate::consensus::{Consensus, NOT_LEADER, Parts, Settled, View};
use crate::delivery::Delivery;
use crate::entry::{ClusterId, Members, NodeNumber, Position};
use crate::error::{OrderError, ProposeError, StartError};
use crate::founding;
use crate::intake::Intake;
use crate::log::OrderLog;
use crate::mark::Mark;
pub use crate::messages::Change;
use crate::messages::{Kind, Nothing, Report, open_answer, request};
use crate::net::{CallError, Identity, Network, Wire};
use crate::pace::{Pace, SlowNode};
use crate::proposer::{self, Waiting};
use crate::serve::Server;
use crate::settings::Settings;
use crate::status::{self, NodeRow, NodeState, Role, Signs, Unreached};

/// Room for requests is counted in pieces of this size.
const PIECE: usize = 1 << 10;
/// How long another node may take to say how it is.
const REPORT: Duration = Duration::from_millis(500);
/// How long a change of the membership, or a question, may take.
const LONG: Duration = Duration::from_secs(60);
/// How long a leader that stops waits for another one.
const HAND_OVER: Duration = Duration::from_secs(2);

/// A node's part in the total order. Clones are the same.
#[derive(Clone)]
pub struct TotalOrder(Arc<Inner>);

/// How far things are, as positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// A majority has them on disk: they are delivered.
    pub settled: Position,
    /// This node has them on disk: up to here, and not beyond what it has applied, the application
    /// may make its own state durable.
    pub synced: Position,
    /// The application has applied them ([`TotalOrder::note_applied`]).
    pub applied: Position,
}

pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) identity: Arc<Identity>,
    pub(crate) log: Arc<OrderLog>,
    pub(crate) consensus: Consensus,
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) application: Arc<dyn Application>,
    pub(crate) settled: watch::Receiver<Settled>,
    pub(crate) stopped: watch::Sender<bool>,
    /// When a leader was heard of last.
    pub(crate) contact: Mutex<Option<Instant>>,
    pub(crate) intake: tokio::sync::Mutex<Intake>,
    pub(crate) founding: tokio::sync::Mutex<()>,
    /// Whoever changes the membership has it.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Where the application was at the start.
    pub(crate) started_at: Position,
    applied: watch::Sender<Position>,
    addresses: RwLock<BTreeMap<NodeNumber, String>>,
    queue: mpsc::UnboundedSender<Waiting>,
    room: Arc<Semaphore>,
    is_stopping: watch::Sender<bool>,
    divergence: Mutex<Option<String>>,
    pace: Mutex<Pace>,
    unreached: Mutex<Unreached>,
    began: Instant,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for TotalOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TotalOrder").field("node", &self.0.identity.node()).finish_non_exhaustive()
    }
}

impl TotalOrder {
    /// Opens a node's part of the order: its log in `folder`, and the network. `applied` is the
    /// position up to which the application's own state is durable; delivery begins behind it.
    ///
    /// The order may have no leader yet, and the cluster may not exist yet: it is founded in the
    /// background once a majority is there. It lives until [`TotalOrder::stop`] or
    /// [`TotalOrder::abandon`], whatever is dropped before.
    ///
    /// Boxed in a function that is no future itself, the consensus is compiled in this crate only.
    #[inline(never)]
    pub fn start(
        settings: Settings,
        disk: Arc<dyn Disk>,
        folder: &Path,
        applied: Position,
        application: Arc<dyn Application>,
        network: Box<dyn Network>,
    ) -> Answer<'_, Result<(TotalOrder, Delivery), StartError>> {
        Box::pin(TotalOrder::begin(settings, disk, folder, applied, application, network))
    }

    async fn begin(
        settings: Settings,
        disk: Arc<dyn Disk>,
        folder: &Path,
        applied: Position,
        application: Arc<dyn Application>,
        network: Box<dyn Network>,
    ) -> Result<(TotalOrder, Delivery), StartError> {
        settings.check()?;
        let limits = &settings.limits;
        let log = OrderLog::open(&disk, folder, settings.log.clone(), limits.cache_bytes, applied)?;
        let log = Arc::new(log);
        let born = log.birth().map(|birth| birth.check(settings.node)).transpose()?;
        let incarnation = born.unwrap_or_else(rand::random);
        let identity = Identity::new(settings.node, incarnation, settings.numbers(), Arc::clone(&log));
        let identity = Arc::new(identity);
        let server = Arc::new(Server::default());
        let wire = network.open(Arc::clone(&identity), Arc::clone(&server) as _).await?;
        let settled = Settled { index: log.settled_at_start().map(|id| id.index), ..Settled::default() };
        let mark = Mark::new(settled);
        let (settled, told) = (mark.subscribe(), mark.told());
        let parts = Parts {
            log: Arc::clone(&log),
            application: Arc::clone(&application),
            wire: Arc::clone(&wire),
            identity: Arc::clone(&identity),
            settled: mark,
            flushes_inline: settings.flushes_inline.clone(),
        };
        let consensus = match Consensus::start(parts, &settings.timing, limits).await {
            Ok(consensus) => consensus,
            Err(error) => {
                wire.close().await;
                return Err(error);
            }
        };
        let (queue, waiting) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner {
            room: Arc::new(Semaphore::new(limits.waiting_bytes / PIECE + 1)),
            addresses: RwLock::new(settings.peers.clone()),
            pace: Mutex::new(Pace::new(settings.node, settings.pace)),
            settings,
            identity,
            log: Arc::clone(&log),
            consensus,
            wire,
            application,
            settled: settled.clone(),
            stopped: watch::channel(false).0,
            contact: Mutex::new(None),
            intake: tokio::sync::Mutex::default(),
            founding: tokio::sync::Mutex::new(()),
            changing: tokio::sync::Mutex::new(()),
            started_at: applied,
            applied: watch::channel(applied).0,
            queue,
            is_stopping: watch::channel(false).0,
            divergence: Mutex::new(None),
            unreached: Mutex::default(),
            began: Instant::now(),
            tasks: Mutex::default(),
        });
        server.set(&inner);
        let tasks = [
            tokio::spawn(proposer::run(Arc::clone(&inner), waiting)),
            tokio::spawn(founding::run(Arc::clone(&inner))),
        ];
        inner.tasks.lock().extend(tasks);
        Ok((TotalOrder(inner), Delivery::new(log, settled, applied).told_by(told)))
    }

    /// Puts a request into the order, from any node. Resolves once it is settled, with its
    /// position; then it has been or will be delivered at every node.
    ///
    /// Waits while too much waits already. [`ProposeError::Unknown`] means that the request may
    /// still come; nothing is ever proposed twice by the order itself. Dropping the future after it
    /// was polled changes nothing about the request.
    pub async fn propose(&self, request: Bytes) -> Result<Position, ProposeError> {
        let limits = &self.0.settings.limits;
        if request.len() > limits.request_bytes {
            return Err(ProposeError::TooLarge { bytes: request.len(), limit: limits.request_bytes });
        }
        let ended = |_| ProposeError::NotProposed("this node has ended".to_owned());
        let pieces = (request.len() / PIECE + 1) as u32;
        let room = Arc::clone(&self.0.room).acquire_many_owned(pieces).await;
        let room = room.map_err(|_| ended(()))?;
        let (reply, answer) = oneshot::channel();
        self.0.queue.send(Waiting { request, reply, room }).map_err(|_| ended(()))?;
        let lost = |_| Err(ProposeError::Unknown("this node has ended".to_owned()));
        answer.await.unwrap_or_else(lost)
    }

    /// How far things are.
    pub fn marks(&self) -> Marks {
        self.0.marks()
    }

    /// Says up to where the application has applied what was delivered.
    pub fn note_applied(&self, position: Position) {
        self.0.applied.send_if_modified(|applied| {
            let is_later = position > *applied;
            *applied = position.max(*applied);
            is_later
        });
    }

    /// Waits until the application has applied everything up to `position`.
    pub async fn until_applied(&self, position: Position) -> Result<(), OrderError> {
        let mut applied = self.0.applied.subscribe();
        tokio::select! {
            biased;
            () = self.0.until_stopped() => Err(OrderError::Ended("this node has ended".to_owned())),
            found = applied.wait_for(|applied| *applied >= position) => {
                found.map(drop).map_err(|_| OrderError::Ended("this node has ended".to_owned()))
            }
        }
    }

    /// Says that the application's own state is durable up to `position`, which must be synced here
    /// ([`Marks::synced`]). Log that is not needed any more is removed.
    pub async fn checkpointed(&self, position: Position) -> Result<(), OrderError> {
        let inner = &self.0;
        let marks = inner.marks();
        if position > marks.synced.min(marks.settled) {
            let what = format!("position {position} is not settled, or not on this node's disk");
            return Err(OrderError::Refused(what));
        }
        let Some(base) = inner.log.base_at(position) else { return Ok(()) };
        let Some(limit) = base.id.map(|id| id.index) else { return Ok(()) };
        // Who is sent a snapshot needs what follows it.
        let limit = inner.consensus.sent_from().map_or(limit, |sent| sent.min(limit));
        let kept = inner.settings.limits.kept_bytes;
        let Some(upto) = inner.log.index_keeping(kept, limit) else { return Ok(()) };
        inner.consensus.compact(base, upto).await.map_err(OrderError::Ended)
    }

    /// The position that who wants to read what is newest must wait for
    /// ([`TotalOrder::until_applied`]): everything that anybody was told to be settled before this
    /// call is at or below it.
    pub async fn read_barrier(&self) -> Result<Position, OrderError> {
        let inner = &self.0;
        let index: u64 =
            inner
                .with_leader(Kind::ReadIndex, &Nothing {}, |inner| async move {
                    inner.consensus.read_index().await
                })
                .await?;
        let mut settled = inner.settled.clone();
        let reached = settled.wait_for(|settled| settled.index >= Some(index));
        let reached = timeout(inner.settings.timing.answer, reached).await;
        match reached {
            Ok(Ok(settled)) => Ok(inner.log.end_of(index).unwrap_or(settled.installed)),
            Ok(Err(_)) => Err(OrderError::Ended("the consensus has ended".to_owned())),
            Err(_) => Err(OrderError::NoLeader("this node does not catch up in time".to_owned())),
        }
    }

    /// Changes the membership, at any node.
    pub async fn change(&self, change: Change) -> Result<(), OrderError> {
        let changed = self.0.with_leader(Kind::Change, &change, |inner| changing::change(inner, change));
        changed.await.map(|Nothing {}| ())
    }

    /// Lets another node lead, if this one does: the one that has most. Returns which one leads.
    pub async fn hand_over(&self) -> Result<Option<NodeNumber>, OrderError> {
        let inner = &self.0;
        let view = inner.consensus.view();
        if !view.is_leader {
            return Ok(view.leader);
        }
        let own = inner.identity.node();
        let is_fit = |node: NodeNumber| {
            node != own && view.members.is_voter(node) && inner.wire.problem(node).is_none()
        };
        let others = view.matched.iter().filter(|(node, _)| is_fit(**node));
        let Some((&next, _)) = others.max_by_key(|(_, matched)| **matched) else { return Ok(Some(own)) };
        inner.consensus.let_lead(next).await.map_err(OrderError::Ended)?;
        let mut changes = inner.consensus.changes();
        let others_lead = async {
            loop {
                let view = inner.consensus.view();
                if view.leader != Some(own) && view.leader.is_some() {
                    return view.leader;
                }
                if !changes.next().await {
                    return None;
                }
            }
        };
        match timeout(HAND_OVER, others_lead).await {
            Ok(leader) => Ok(leader),
            Err(_) => Err(OrderError::NoLeader(format!("node {next} did not take over in time"))),
        }
    }

    /// This node's number.
    pub fn node(&self) -> NodeNumber {
        self.0.identity.node()
    }

    /// Which cluster this is; none before it was founded.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.0.identity.cluster()
    }

    /// Who leads; none if no leader with a majority is known.
    pub fn leader(&self) -> Option<NodeNumber> {
        self.0.leader()
    }

    /// The term of the last election that this node knows of.
    pub fn term(&self) -> u64 {
        self.0.consensus.view().term
    }

    /// This node's role.
    pub fn role(&self) -> Role {
        self.0.role(&self.0.consensus.view())
    }

    /// How this node is, and why, if it is not serving.
    pub fn state(&self) -> (NodeState, String) {
        self.0.state()
    }

    /// The members, as this node knows them.
    pub fn members(&self) -> Members {
        self.0.consensus.view().members
    }

    /// Rows of `cognate_nodes`: what every node says of itself, and the leader of the others. It is
    /// also how this node notices that one is slow, or hears that one has lost what it confirmed,
    /// so it has to be asked at intervals.
    pub async fn status(&self) -> Vec<NodeRow> {
        let inner = &self.0;
        let addresses = inner.addresses.read().clone();
        let own = inner.identity.node();
        let others: Vec<NodeNumber> = addresses.keys().copied().filter(|node| *node != own).collect();
        // Before they are asked: whoever comes in the place of one of them has not said it.
        let met: Vec<Option<u64>> = others.iter().map(|node| inner.identity.met(*node)).collect();
        let calls = others.iter().map(|node| inner.call::<Report>(*node, Kind::Report, &Nothing {}, REPORT));
        let answers = futures_util::future::join_all(calls).await;
        let mut answers: BTreeMap<_, _> = others.into_iter().zip(answers).collect();
        for ((node, answer), met) in answers.iter().zip(met) {
            let Ok(report) = answer else { continue };
            inner.identity.learn_lost(&report.lost);
            inner.identity.note_kept(*node, met, report.kept);
        }
        answers.insert(own, Ok(inner.report()));
        let rows = status::rows(&addresses, &answers);
        inner.pace.lock().see(inner.began.elapsed(), &rows);
        rows
    }

    /// The node that whoever writes should wait for, as of the last [`TotalOrder::status`].
    pub fn slow(&self) -> Option<SlowNode> {
        self.0.pace.lock().slow()
    }

    /// Asks the application of another node.
    pub async fn ask(&self, node: NodeNumber, question: Bytes) -> Result<Bytes, OrderError> {
        let answer = if node == self.0.identity.node() {
            self.0.application.answer(node, question).await
        } else {
            self.0.call(node, Kind::Question, &question, LONG).await
        };
        answer.map_err(OrderError::Refused)
    }

    /// Says that the application's state differs from the others'; `None` takes it back.
    pub fn set_diverged(&self, why: Option<String>) {
        *self.0.divergence.lock() = why;
    }

    /// Ends this node's part as planned: another node leads first, if this one does.
    pub async fn stop(&self) {
        self.0.is_stopping.send_replace(true);
        if let Err(error) = self.hand_over().await {
            tracing::warn!(%error, "this node stops without another one that leads");
        }
        self.abandon().await;
    }

    /// Ends this node's part at once.
    pub async fn abandon(&self) {
        let inner = &self.0;
        inner.is_stopping.send_replace(true);
        inner.stopped.send_replace(true);
        inner.room.close();
        inner.wire.close().await;
        inner.consensus.stop().await;
        let tasks = std::mem::take(&mut *inner.tasks.lock());
        for task in tasks {
            task.abort();
        }
        if let Err(error) = inner.log.close() {
            tracing::debug!(%error, "the order's log was closed after a failure");
        }
    }
}

impl Inner {
    pub(crate) async fn until_stopped(&self) {
        let mut stopped = self.stopped.subscribe();
        // An error means that the sender is gone, which is stopped enough.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }

    pub(crate) fn draw_cluster(&self) -> ClusterId {
        rand::random()
    }

    /// Whether this node has not what its cluster began with.
    pub(crate) fn needs_snapshot(&self) -> bool {
        let began = self.log.birth().map_or(0, |birth| birth.began);
        began > self.started_at && self.log.base().id.is_none()
    }

    fn marks(&self) -> Marks {
        let settled = *self.settled.borrow();
        let end = settled.index.and_then(|index| self.log.end_of(index));
        let end = end.unwrap_or_else(|| self.log.base().position);
        Marks {
            settled: end.max(settled.installed),
            synced: self.log.synced().max(settled.installed),
            applied: *self.applied.borrow(),
        }
    }

    fn role(&self, view: &View) -> Role {
        let is_voter = view.members.is_voter(self.identity.node());
        match (view.is_leader, is_voter) {
            (true, _) => Role::Leader,
            (false, true) => Role::Follower,
            (false, false) => Role::Learner,
        }
    }

    fn judge(&self, view: &View) -> (NodeState, String) {
        let next = |index: Option<u64>| index.map_or(0, |index| index + 1);
        let marks = self.marks();
        let pace = self.pace.lock().own();
        let bytes_behind = if pace.keeps_up { 0 } else { self.unapplied(marks.applied).0 };
        let (own, timing) = (self.identity.node(), &self.settings.timing);
        let patience = 3 * timing.election_max;
        let leader_age = self.contact.lock().map(|contact| contact.elapsed());
        // Who was away is heard before it is dialed again, so its absence does not count.
        let is_heard = leader_age.is_some_and(|age| age <= patience);
        let is_unreached = |node: &NodeNumber| *node != own && self.wire.problem(*node).is_some();
        let leader = view.leader.filter(|node| is_heard && is_unreached(node));
        let (state, reason) = status::judge(&Signs {
            is_leader: view.is_leader,
            quorum_age: view.quorum_age,
            leader_age,
            patience,
            unreached: self.unreached.lock().see(self.began.elapsed(), timing.no_leader, leader),
            entries_behind: next(view.cluster_committed).saturating_sub(next(self.settled.borrow().index)),
            requests_behind: marks.settled.saturating_sub(marks.applied),
            bytes_behind,
            pace,
            is_stopping: *self.is_stopping.borrow(),
            failure: view.failure.clone(),
            divergence: self.divergence.lock().clone(),
        });
        match state {
            NodeState::Minority => {
                let problem = |node: NodeNumber| self.wire.problem(node);
                (state, reason + &status::problems(own, &self.settings.peers, &view.members, problem))
            }
            _ => (state, reason),
        }
    }

    pub(crate) fn state(&self) -> (NodeState, String) {
        self.judge(&self.consensus.view())
    }

    /// Who leads and is followed by a majority, as far as this node knows.
    pub(crate) fn leader(&self) -> Option<NodeNumber> {
        let view = self.consensus.view();
        let (state, _) = self.judge(&view);
        if state == NodeState::Minority || view.failure.is_some() { None } else { view.leader }
    }

    pub(crate) fn report(&self) -> Report {
        let view = self.consensus.view();
        let (state, reason) = self.judge(&view);
        let marks = self.marks();
        Report {
            node: self.identity.node(),
            role: self.role(&view),
            state,
            applied: marks.applied,
            committed: marks.settled,
            reason,
            has_ended: view.failure.is_some(),
            unapplied: self.unapplied(marks.applied),
            lags: view.matched.iter().map(|(node, matched)| (*node, self.lag(*matched))).collect(),
            members: view.members,
            lost: self.identity.lost(),
            kept: self.log.synced_upto(self.settled.borrow().index),
        }
    }

    /// Bytes that are settled behind an entry, and for how many milliseconds the first are here.
    fn lag(&self, after: Option<u64>) -> (u64, u64) {
        let (bytes, waiting) = self.log.lag_between(after, self.settled.borrow().index);
        (bytes, waiting.as_millis() as u64)
    }

    fn unapplied(&self, applied: Position) -> (u64, u64) {
        self.lag(self.log.index_applied(applied))
    }

    /// Asks another node, and waits for a bounded time.
    pub(crate) async fn call<T: Coded>(
        &self,
        node: NodeNumber,
        kind: Kind,
        body: &impl Coded,
        limit: Duration,
    ) -> Result<T, String> {
        let call = self.wire.call(node, request(kind, self.identity.cluster(), body));
        match timeout(limit, call).await {
            Ok(Ok(bytes)) => open_answer(bytes),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// Has the leader do something, wherever it is; waits for one for a bounded time.
    async fn with_leader<'a, T, F>(
        &'a self,
        kind: Kind,
        body: &impl Coded,
        here: impl Fn(&'a Inner) -> F,
    ) -> Result<T, OrderError>
    where
        T: Coded,
        F: Future<Output = Result<T, String>>,
    {
        let deadline = Instant::now() + self.settings.timing.no_leader;
        loop {
            // What was certainly not done is tried again; so is what does no harm.
            let (done, may_repeat) = match self.leader() {
                Some(leader) if leader == self.identity.node() => (here(self).await, false),
                Some(leader) => {
                    let call = self.wire.call(leader, request(kind, self.identity.cluster(), body));
                    match timeout(LONG, call).await {
                        Ok(Ok(bytes)) => (open_answer(bytes), false),
                        Ok(Err(error @ CallError::NotSent(_))) => (Err(error.to_string()), true),
                        Ok(Err(error)) => (Err(error.to_string()), false),
                        Err(_) => (Err("no answer in time".to_owned()), false),
                    }
                }
                None => (Err(self.state().1), true),
            };
            match done {
                Ok(done) => return Ok(done),
                Err(why) if !may_repeat && !kind.is_repeatable() && why != NOT_LEADER => {
                    return Err(OrderError::Refused(why));
                }
                Err(why) if Instant::now() >= deadline => return Err(OrderError::NoLeader(why)),
                Err(_) => {
                    let pause = tokio::time::sleep(Duration::from_millis(10));
                    tokio::select! {
                        biased;
                        () = self.until_stopped() => {
                            return Err(OrderError::Ended("this node has ended".to_owned()));
                        }
                        () = pause => {}
                    }
                }
            }
        }
    }
}
