//! Whose turn it is among the requests that a node is delivered, and what happens then.
//!
//! Requests are decided in the order of their positions, one after the other, and each when
//! everything before it is decided and shown. Most are decided as they are delivered. Two kinds are
//! not: a weak voting transaction waits for its vote, which is a request of a later position, and
//! an active one waits until its statements are executed, which the SQL layer does. What is
//! delivered behind them waits in a queue; meanwhile the metaprotocol's lists
//! (`order::metaprotocol`) say who depends on whom, so that votes about transactions of this node
//! go out as early as may be, and not one after the other.
//!
//! ```text
//! deliver 5   W1 of node 2        waits for its vote
//! deliver 6   W2 of node 1        waits behind it; at node 1 it meets nobody, so node 1 votes: 8
//! deliver 7   node 2's vote       5 is decided, and shown
//! deliver 8   node 1's vote       6 is decided, and shown; then 7 and 8, which have done their part
//! ```
//!
//! The queue is not in a node's image: an image stands at a position that is decided, and a start
//! is delivered all that comes behind. So is a voter of this node from before a start; nobody knows
//! its reads any more, and the node votes against it. If a node stays away, others vote against its
//! pending transactions: the first vote in the order counts.
//!
//! Nobody executes while an active transaction is executed: the applier does it itself
//! ([`Progress::Execute`], [`Manager::finish`]), and everything before is visible, nothing behind.

mod alone;
mod program;
mod progress;
mod verdict;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::alone::{Alone, is_alone};
pub use self::progress::{Delivered, Executed, Execution, Lists, Pause, Progress};
use self::verdict::{is_verdict, keep_reads, refused};
use crate::ahead::not_whole;
use crate::delivery::{Cluster, FIRST_TREES};
use crate::hash::Seed;
use crate::lock::table::{Held, HeldLock};
use crate::manager::Manager;
use crate::order::metaprotocol::active::Active;
use crate::order::metaprotocol::certification::Certification;
use crate::order::metaprotocol::weak_voting::WeakVoting;
use crate::order::metaprotocol::{self, Delivery as Listed, Effect, Protocol, Turn};
use crate::order::{Footprint, Level, Purpose, Refusal, Request, Standing};
use crate::planted::{self, Planted};
use crate::prepared::ordered::Arrived;
use crate::sequencer::{Delivery, Place};
use crate::sync::atomic::Ordering;
use crate::total_order::node_of;
use crate::transaction::Transaction;
use crate::txn::writeset::key_writes;
use crate::{Csn, Database, Error, TransactionId};

/// The graph is pruned at every so manieth position, and where a node only says what it needs.
const PRUNE_EVERY: Csn = 64;
/// But for positions where somebody is refused. So what was large may be in the graph for some more
/// of these positions once the window has forgotten it.
const PRUNES_WITHIN: Csn = 16 * PRUNE_EVERY;

/// A request that was delivered.
#[derive(Debug)]
struct Waiting {
    position: Csn,
    request: Request,
    locks: Vec<(HeldLock, bool)>,
    bytes: Bytes,
    /// It is in the lists.
    is_listed: bool,
    /// Voted against.
    is_refused: bool,
    /// When it was delivered, if it is of this node and waits for its vote.
    since: Option<Duration>,
    /// Begun too early, where that fault is planted.
    early: Option<Box<Transaction>>,
    /// What its protocol knows of it where that is alone.
    alone: Option<Box<Alone>>,
}

/// See the module's prose.
#[derive(Debug)]
pub(crate) struct Turns {
    /// The last position that was delivered.
    delivered: Csn,
    queue: VecDeque<Waiting>,
    lists: metaprotocol::Lists<Footprint>,
    /// Who is first and waits, and since when.
    paused: Option<(Csn, Duration)>,
    /// Since when the first one is executed, if it is.
    executing: Option<Duration>,
    /// Who is to have the place of its vote, where that fault is planted.
    put_back: Vec<Waiting>,
}

impl Turns {
    pub(crate) fn new(node: u16) -> Turns {
        let lists = metaprotocol::Lists::new(node);
        let (paused, executing) = (None, None);
        Turns { delivered: 0, queue: VecDeque::new(), lists, paused, executing, put_back: Vec::new() }
    }

    pub(crate) fn begin_at(&mut self, position: Csn) {
        self.delivered = position;
    }
}

impl Manager {
    /// Delivers position `position` of the order, the next one. To be called by one thread at a
    /// time.
    ///
    /// # Errors
    /// `Undecodable` if the bytes are no request; `LogPoisoned`. This node must not go on then.
    pub(crate) fn deliver(self: &Arc<Self>, position: Csn, bytes: &[u8]) -> Result<Progress, Error> {
        let Some(cluster) = &self.cluster else {
            return Err(Error::Defect("a database of its own has no order to follow"));
        };
        let request = self.assembled(cluster, position, decode(position, bytes, &self.seed)?)?;
        let locks = request.all_locks();
        let mut turns = cluster.turns.lock();
        assert_eq!(position, turns.delivered + 1, "requests are delivered one by one");
        turns.delivered = position;
        let (mut request, mut locks) = (request, locks);
        if let Purpose::Vote { of, commits: true } = request.purpose
            && let Some(at) = turns.put_back.iter().position(|first| first.request.id == of)
        {
            Waiting { request, locks, .. } = turns.put_back.swap_remove(at);
            request.purpose = Purpose::Commit;
        }
        let takes_turns = matches!(request.purpose, Purpose::Voting | Purpose::Execute(_));
        let is_queued = planted::is(Planted::QueuesBehindPrepared)
            && cluster.standing.lock().meets_prepared(&request, &locks);
        if turns.queue.is_empty() && !takes_turns && !is_queued {
            return self.decide_next(cluster, position, request, &locks, bytes, false).map(Progress::Decided);
        }
        let bytes = Bytes::copy_from_slice(bytes);
        let (is_listed, is_refused, since, early, alone) = (false, false, None, None, None);
        let waiting = Waiting { position, request, locks, bytes, is_listed, is_refused, since, early, alone };
        self.line_up(cluster, &mut turns, waiting)?;
        self.advance(cluster, &mut turns)
    }

    /// The same of a commit that needs no turn, if nobody has to be waited for, and nothing
    /// large is forgotten with it. False if nothing was done. What was prepared before is left,
    /// however short its decision is, and so are reads that a vote is about: how long these take
    /// their requests do not show.
    fn deliver_light(&self, position: Csn, bytes: &[u8]) -> Result<bool, Error> {
        let Some(cluster) = &self.cluster else { return Ok(false) };
        let turns = cluster.turns.try_lock().filter(|turns| turns.queue.is_empty());
        let Some(mut turns) = turns else { return Ok(false) };
        let request = decode(position, bytes, &self.seed)?;
        let is_commit = matches!(request.purpose, Purpose::Commit) && request.dropped.is_empty();
        if !is_commit || planted::is(Planted::QueuesBehindPrepared) {
            return Ok(false);
        }
        // Whoever makes an image has it for as long as that takes. What was large takes long to be
        // forgotten, too, by however little that comes after it.
        let since = position.is_multiple_of(PRUNE_EVERY).then(|| position.saturating_sub(PRUNES_WITHIN));
        let standing = cluster.standing.try_lock();
        if standing.is_none_or(|standing| standing.forgets_much(&request, since)) {
            return Ok(false);
        }
        assert_eq!(position, turns.delivered + 1, "requests are delivered one by one");
        turns.delivered = position;
        let locks = request.all_locks();
        self.decide_next(cluster, position, request, &locks, bytes, false)?;
        Ok(true)
    }

    /// Puts a request behind those that wait, and into the lists if it is a transaction of its own.
    fn line_up(
        self: &Arc<Self>,
        cluster: &Cluster,
        turns: &mut Turns,
        mut waiting: Waiting,
    ) -> Result<(), Error> {
        let (position, request) = (waiting.position, &waiting.request);
        let is_repeated = cluster.standing.lock().knows(request.id)
            || turns.queue.iter().any(|earlier| earlier.request.id == request.id);
        if is_alone() {
            return self.line_up_alone(cluster, turns, waiting, is_repeated);
        }
        let mut effects = Vec::new();
        if let Purpose::Vote { of, commits } = request.purpose {
            turns.lists.vote(of, commits, &mut effects);
        }
        if let Some(protocol) = protocol_of(&request.purpose).filter(|_| !is_repeated) {
            let origin = node_of(request.id);
            let (mut footprint, mut is_overtaken) = (None, false);
            if !matches!(request.purpose, Purpose::Execute(_)) {
                let writes = key_writes(&self.seed, &request.parts.changes, request.parts.notes.clone());
                footprint = Some(Footprint::new(&waiting.locks, writes, &request.dropped));
            }
            if matches!(request.purpose, Purpose::Voting) && origin == cluster.node.number {
                waiting.since = Some(self.options.clock.monotonic());
                match self.look_back(cluster, request, &waiting.locks)? {
                    Some(reads) => footprint = footprint.map(|footprint| footprint.with_reads(reads)),
                    None => is_overtaken = true,
                }
            }
            let at_turn = protocol.commit() == Turn::Install;
            let (id, bot) = (request.id, request.bot);
            let listed = Listed { position, id, bot, origin, protocol, footprint, is_overtaken, at_turn };
            turns.lists.deliver(listed, &mut effects);
            waiting.is_listed = true;
        }
        if planted::is(Planted::ExecutesAtOnce) && matches!(waiting.request.purpose, Purpose::Execute(_)) {
            waiting.early = Some(Box::new(self.begin_ordered(Level::Snapshot)));
        }
        turns.queue.push_back(waiting);
        self.carry_out(cluster, turns, effects)
    }

    /// What a voter of this node has read, unless it is known by now that it must not commit.
    fn look_back(
        &self,
        cluster: &Cluster,
        request: &Request,
        locks: &[(HeldLock, bool)],
    ) -> Result<Option<crate::txn::readset::ReadSet>, Error> {
        let reads = cluster.sealed.lock().get_mut(&request.id).and_then(|sealed| sealed.reads.take());
        // It ran before this node's start.
        let Some(reads) = reads else { return Ok(None) };
        if cluster.standing.lock().judge(request, locks).is_err() {
            return Ok(None);
        }
        let (reads, holds) = self.sequencer.holds(request.id, request.snapshot, reads)?;
        if holds {
            return Ok(Some(reads));
        }
        // They say why, at its turn.
        if let Some(sealed) = cluster.sealed.lock().get_mut(&request.id) {
            sealed.reads = Some(reads);
        }
        Ok(None)
    }

    /// Does what the lists ask for.
    fn carry_out(
        self: &Arc<Self>,
        cluster: &Cluster,
        turns: &mut Turns,
        mut effects: Vec<Effect>,
    ) -> Result<(), Error> {
        while let Some(effect) = effects.pop() {
            match effect {
                Effect::Vote { id, commits } => {
                    if !commits {
                        keep_reads(cluster, turns, id);
                    }
                    if planted::is(Planted::VotesUnordered) {
                        turns.lists.vote(id, commits, &mut effects);
                    }
                    self.vote(cluster, id, commits);
                }
                Effect::Refuse { position, .. } => {
                    let refused = turns.queue.iter_mut().find(|waiting| waiting.position == position);
                    if let Some(waiting) = refused {
                        waiting.is_refused = matches!(waiting.request.purpose, Purpose::Voting);
                    }
                }
            }
        }
        Ok(())
    }

    /// Has a vote ordered.
    fn vote(&self, cluster: &Cluster, of: TransactionId, commits: bool) {
        let applied = cluster.applied.load(Ordering::Acquire);
        let request = self.request_about(applied, Purpose::Vote { of, commits });
        cluster.node.order.propose(request.encode(0).into());
    }

    /// Votes against a transaction whose origin keeps everybody waiting. Whichever vote is ordered
    /// first counts.
    pub(crate) fn vote_against(&self, transaction: TransactionId) {
        if let Some(cluster) = &self.cluster {
            self.vote(cluster, transaction, false);
        }
    }

    /// Decides whose turn it is, as long as it is somebody's.
    fn advance(self: &Arc<Self>, cluster: &Cluster, turns: &mut Turns) -> Result<Progress, Error> {
        let mut last = None;
        while let Some(first) = turns.queue.front() {
            let (position, turn) = (first.position, self.turn_of(cluster, turns, first));
            match turn {
                Some(Turn::Install) => {}
                Some(Turn::Execute) => return self.execution(cluster, turns),
                None if planted::is(Planted::VisibleByVote) => {
                    self.put_back(cluster, turns)?;
                    continue;
                }
                None => {
                    self.vote_at_turn(cluster, turns)?;
                    let now = self.options.clock.monotonic();
                    if turns.paused.is_none_or(|(paused, _)| paused != position) {
                        turns.paused = Some((position, now));
                    }
                    return Ok(Progress::Waits);
                }
            }
            let Some(waiting) = turns.queue.pop_front() else { break };
            let Waiting { request, locks, bytes, is_listed, is_refused, since, .. } = waiting;
            if let (Some(since), Some(sealed)) = (since, cluster.sealed.lock().get(&request.id)) {
                sealed.outcome.note_vote_wait(self.options.clock.monotonic().saturating_sub(since));
            }
            let delivered = self.decide_next(cluster, position, request, &locks, &bytes, is_refused)?;
            if is_listed {
                let mut effects = Vec::new();
                turns.lists.end(position, delivered.committed, None, &mut effects);
                self.carry_out(cluster, turns, effects)?;
            }
            last = Some(delivered);
        }
        turns.paused = None;
        Ok(last.map_or(Progress::Waits, Progress::Decided))
    }

    /// What the turn of the first in the queue is, unless it waits.
    fn turn_of(&self, cluster: &Cluster, turns: &Turns, first: &Waiting) -> Option<Turn> {
        let standing = cluster.standing.lock();
        if planted::is(Planted::QueuesBehindPrepared) && standing.meets_prepared(&first.request, &first.locks)
        {
            return None;
        }
        match &first.request.purpose {
            // What is so late may have been executed before, or its name closed: it is refused for
            // its age, which would not show any more once it has been executed.
            Purpose::Execute(_)
                if !standing.knows(first.request.id) && !standing.may_have_forgotten(&first.request) =>
            {
                Some(Turn::Execute)
            }
            Purpose::Voting if is_alone() => alone::turn_of(first, &standing),
            Purpose::Voting if first.is_listed && !first.is_refused => {
                match turns.lists.head() {
                    Some((position, turn)) if position == first.position => Some(turn),
                    // Nobody need vote about what is refused anyway.
                    _ => standing.judge(&first.request, &first.locks).is_err().then_some(Turn::Install),
                }
            }
            _ => Some(Turn::Install),
        }
    }

    /// Decides the next position, and tells the origin's client, if the origin is here.
    fn decide_next(
        &self,
        cluster: &Cluster,
        position: Csn,
        mut request: Request,
        locks: &[(HeldLock, bool)],
        bytes: &[u8],
        is_refused: bool,
    ) -> Result<Delivered, Error> {
        let mut standing = cluster.standing.lock();
        self.remove_parts(position, standing.take_left_parts())?;
        let verdict = match standing.judge(&request, locks) {
            Ok(()) if is_refused => Err(self.explain_vote(cluster, &request)?),
            Ok(()) => self.do_what_it_asks(cluster, &standing, position, &mut request, locks, bytes.len()),
            Err(Refusal::Known { position: first, committed }) => {
                tracing::debug!(position, first, committed, "a request was delivered again");
                standing.pass(position, bytes);
                cluster.note_horizon(&standing);
                self.pass(cluster, position, bytes.len())?;
                self.not_this_one(cluster, &request, first);
                return Ok(Delivered { transaction: request.id, committed });
            }
            Err(refusal) => Err(refused(refusal)),
        };
        self.conclude(cluster, &mut standing, position, &request, locks, bytes, verdict)
    }

    /// A request is passed by, since one of its number was decided before, at `first`. If it still
    /// waits here, that was another one: this node has lost its folder, and has given the number
    /// before that.
    fn not_this_one(&self, cluster: &Cluster, request: &Request, first: Csn) {
        let sealed = cluster.sealed.lock().remove(&request.id);
        if let Some(sealed) = sealed {
            if planted::is(Planted::TakesTheNumberForIt) {
                self.release(request.id, sealed.held);
                sealed.outcome.tell(Ok(first));
                return;
            }
            tracing::warn!(id = request.id, "a transaction has the number of an earlier one");
            self.give_back(request, sealed);
        }
    }

    /// Second part of the verdict, and what comes of it.
    fn do_what_it_asks(
        &self,
        cluster: &Cluster,
        standing: &Standing,
        position: Csn,
        request: &mut Request,
        locks: &[(HeldLock, bool)],
        bytes: usize,
    ) -> Result<(), Error> {
        let horizon = match position.is_multiple_of(PRUNE_EVERY) {
            true if planted::is(Planted::PrunesByItself) => Some(self.store.oldest_snapshot()),
            true => Some(standing.horizon()),
            // Nothing of it is judged, and who comes behind it is judged by that horizon.
            false => request.only_announces().then(|| standing.horizon_behind(request)),
        };
        let prepared_at = |id| standing.prepared_at(id);
        // The graph has forgotten who ended before the horizon: whoever began before it, and has
        // moved its snapshot since, counts as having begun there.
        request.began = request.began.max(standing.horizon());
        let upto = standing.mixed_upto(request);
        let mixing = upto.map(|upto| crate::certifier::Mixing { upto, prepared_at: &prepared_at });
        let place = Place { csn: position, bytes: bytes as u64, horizon };
        match &request.purpose {
            Purpose::Commit | Purpose::Voting | Purpose::Execute(_) => {
                self.commit_at(cluster, place, request, locks, mixing)
            }
            Purpose::Part(part) => self.keep_part(place, part),
            Purpose::Whole(_) => Err(not_whole()),
            // They have done their part when they were delivered, or do it when they are entered.
            Purpose::Vote { .. } | Purpose::Void { .. } | Purpose::GiveUp { .. } => {
                self.sequencer.pass(position, bytes as u64)
            }
            Purpose::Prepare(_) | Purpose::Decide { .. } | Purpose::OnFamily(_) => {
                let arrived = Arrived { place, mixing, request, locks };
                self.decide_prepared(cluster, standing.undecided(), &arrived)
            }
        }
    }

    /// A position is decided: what it leaves behind, and who is told.
    #[allow(clippy::too_many_arguments, reason = "the parts of one decision, each used once")]
    fn conclude(
        &self,
        cluster: &Cluster,
        standing: &mut Standing,
        position: Csn,
        request: &Request,
        locks: &[(HeldLock, bool)],
        bytes: &[u8],
        verdict: Result<(), Error>,
    ) -> Result<Delivered, Error> {
        let committed = match &verdict {
            Ok(()) => true,
            Err(error) if is_verdict(error) => false,
            Err(error) => return Err(error.clone()),
        };
        standing.enter(position, request, locks, committed, bytes);
        cluster.note_horizon(standing);
        self.store.trees.raise(request.next_tree);
        match committed {
            true => cluster.apply(position),
            false => self.pass(cluster, position, bytes.len())?,
        }
        let sealed = cluster.sealed.lock().remove(&request.id);
        if let Some(sealed) = sealed {
            self.release(request.id, sealed.held);
            match committed {
                true => self.count(request),
                false if request.purpose.is_of_transaction() => self.rolled_back(),
                false => {}
            }
            if let Some(member) = sealed.member.filter(|_| !committed) {
                self.part_sibling(&member, request.id);
            }
            sealed.outcome.tell(verdict.map(|()| position));
        }
        self.announce(cluster, standing);
        self.give_up_again(cluster);
        Ok(Delivered { transaction: request.id, committed })
    }

    /// A transaction commits at this place, unless its reads fit into no order.
    fn commit_at(
        &self,
        cluster: &Cluster,
        place: Place,
        request: &mut Request,
        locks: &[(HeldLock, bool)],
        mixing: Option<crate::certifier::Mixing<'_>>,
    ) -> Result<(), Error> {
        let position = place.csn;
        // What ran here has its locks itself, unless that was before this start.
        let is_here = node_of(request.id) == cluster.node.number;
        let is_applied = protocol_of(&request.purpose).is_none_or(|protocol| protocol.apply(is_here));
        let holds = !is_applied && cluster.sealed.lock().contains_key(&request.id);
        let candidate = self.sequencer.certifies().then(|| request.take_candidate(&self.seed));
        let changes = request.take_changes();
        let request = &*request;
        let delivery = Delivery { candidate, mixing, changes, dropped: &request.dropped, bytes: place.bytes };
        let trees = request.parts.changes.iter().map(|(tree, _)| *tree as usize);
        let first = trees.filter(|tree| *tree < FIRST_TREES);
        let mut granted = Held::default();
        if planted::is(Planted::MarksBeforeShowing) {
            cluster.note_struck(position);
        }
        let verdict = self.sequencer.deliver(position, delivery, place.horizon, || {
            if !holds && request.writes() {
                granted = self.grant(cluster, position, request.id, None, locks);
            }
            // Before it can be seen.
            first.for_each(|tree| cluster.changed[tree].store(position, Ordering::Release));
        });
        if verdict.is_ok() {
            cluster.note_struck(position);
        }
        self.release(request.id, granted);
        verdict
    }

    fn pass(&self, cluster: &Cluster, position: Csn, bytes: usize) -> Result<(), Error> {
        self.sequencer.pass(position, bytes as u64)?;
        cluster.apply(position);
        Ok(())
    }

    /// The last position that was delivered; 0 in a database of its own.
    pub(crate) fn delivered(&self) -> Csn {
        self.cluster.as_ref().map_or(0, |cluster| cluster.turns.lock().delivered)
    }

    /// How long the lists are.
    pub(crate) fn lists(&self) -> Lists {
        let Some(cluster) = &self.cluster else { return Lists::default() };
        let turns = cluster.turns.lock();
        let counts = turns.lists.counts();
        let pause = turns.paused.zip(turns.lists.pauses().or_else(|| alone::pauses(&turns)));
        let now = self.options.clock.monotonic();
        let pause = pause.map(|((_, since), (position, transaction, protocol))| {
            let since = now.saturating_sub(since);
            Pause { position, transaction, protocol, since }
        });
        let executing = turns.executing.zip(turns.queue.front()).map(|(since, first)| Pause {
            position: first.position,
            transaction: first.request.id,
            protocol: Active.name(),
            since: now.saturating_sub(since),
        });
        Lists {
            log: counts.log,
            to_commit: counts.tocommit,
            c_pending: counts.c_pending,
            w_pending: counts.w_pending,
            pause,
            executing,
        }
    }

    /// The fault [`Planted::VisibleByVote`]: the first one passes, and takes the place of its vote.
    fn put_back(&self, cluster: &Cluster, turns: &mut Turns) -> Result<(), Error> {
        let Some(first) = turns.queue.pop_front() else { return Ok(()) };
        let mut standing = cluster.standing.lock();
        standing.pass(first.position, &first.bytes);
        cluster.note_horizon(&standing);
        drop(standing);
        self.pass(cluster, first.position, first.bytes.len())?;
        turns.lists.end(first.position, false, None, &mut Vec::new());
        turns.put_back.push(first);
        Ok(())
    }
}

impl Database {
    /// As [`Database::deliver`], for who has other work, too: decides a commit that nobody's turn
    /// depends on, and by which nothing is dropped, so that it takes about as long as its bytes
    /// say. False, and nothing is done, if the request is another one, or if it would have to wait:
    /// for somebody's turn, or until an image of this node is made.
    ///
    /// # Errors
    /// As `deliver`.
    pub fn deliver_light(&self, position: Csn, request: &[u8]) -> Result<bool, Error> {
        self.manager.deliver_light(position, request)
    }
}

fn decode(position: Csn, bytes: &[u8], seed: &Seed) -> Result<Request, Error> {
    Request::decode(bytes, seed)
        .map_err(|what| Error::undecodable(format!("the request at position {position}: {what}")))
}

/// The protocol of a request, if it is one of a transaction.
fn protocol_of(purpose: &Purpose) -> Option<&'static dyn Protocol> {
    match purpose {
        Purpose::Commit | Purpose::Prepare(_) => Some(&Certification),
        Purpose::Voting => Some(&WeakVoting),
        Purpose::Execute(_) => Some(&Active),
        Purpose::Vote { .. }
        | Purpose::Decide { .. }
        | Purpose::OnFamily(_)
        | Purpose::Void { .. }
        | Purpose::Part(_)
        | Purpose::Whole(_)
        | Purpose::GiveUp { .. } => None,
    }
}
