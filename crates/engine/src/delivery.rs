//! A node's side of the order: how its transactions are proposed, and what every node does with
//! what the order delivers (`order` has the rules).
//!
//! One thread, the *applier*, calls [`Manager::deliver`] for position after position (`turns`). For
//! each, when it is its turn, it
//! 1. judges locks ([`Standing`]) and reads (the certifier), both functions of the order;
//! 2. if it commits, takes its locks by force, and strikes whoever holds one against them;
//! 3. installs its changes under its position and moves the visible mark;
//! 4. moves `struck`, and lets go of the locks, which wakes who waits for them: they look again,
//!    and see it, and are sealed above it;
//! 5. moves `applied`, and tells the origin's client, if the origin is here.
//!
//! The applier waits for nobody. Whoever has a lock against a delivered request is either running,
//! and is struck, or sealed, and its own delivery will refuse it: it looked (`bot`) before.
//!
//! ```text
//! node 1: T1 has locked x                              running
//! order 7: T9 of node 2, which wrote x
//! node 1: T9 holds x beside T1; T1 is struck           its next step is 40001, naming T9 and x
//! node 1: T9's x is installed and shown, T9 lets go    T3, who waited for x, has it and sees T9's
//! ```
//!
//! *Sealing.* `struck` is read before a transaction is sealed. A stroke that comes in between
//! makes sealing fail; one that comes afterwards finds it sealed, and its position is above `bot`.
//! So it stays where strokes find it until it is sealed: `seal` asserts that.
//!
//! What is too large for one request goes ahead in parts (`ahead`) before it is sealed.
//!
//! Mutex order: `turns`, `standing`, a shard of families, the commit mutex, then those of the lock
//! table and of `fates`, one after the other. Who only asks how things stand has `standing` alone.
//! `sealed` and `given_up` are leaves: nobody is woken, and no lock given back, under them.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use foldhash::fast::RandomState;

use crate::ahead::GivenUp;
use crate::durable::Commit;
use crate::fate::{Fate, Stroke};
use crate::key::SmallKey;
use crate::lock::mode::FamilySlot;
use crate::lock::table::{Held, HeldLock};
use crate::manager::Manager;
use crate::order::{Operation, Purpose, Request, Standing};
use crate::planted::{self, Planted};
use crate::proposed::Sealed;
use crate::storage::images::Images;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{CachePadded, Mutex};
use crate::total_order::Node;
use crate::transaction::Transaction;
use crate::turns::Turns;
use crate::{Csn, Error, Key, TransactionId, TreeId};

/// Shards of the table of running transactions.
const SHARDS: usize = 16;
/// The trees of which it is remembered when they changed: the system's.
pub(crate) const FIRST_TREES: usize = 8;
/// A node that is not heard of for so many positions announces its oldest snapshot.
const ANNOUNCE_AFTER: Csn = crate::order::SILENCE_MAX / 4;

/// What a node of a cluster has besides a database of its own.
pub(crate) struct Cluster {
    pub(crate) node: Node,
    /// What is delivered and waits for its turn. The applier's, and of those who look at it.
    pub(crate) turns: Mutex<Turns>,
    /// How things stand at the last position whose turn it was.
    pub(crate) standing: Mutex<Standing>,
    /// Its horizon, for who must not wait until a request is judged: a large one takes long,
    /// and the thread that asks may be the one that takes part in the order of all nodes.
    horizon: AtomicU64,
    /// How things stood at earlier positions.
    pub(crate) images: Images,
    /// Everything up to here is judged, shown, and has struck whom it strikes.
    pub(crate) applied: CachePadded<AtomicU64>,
    /// Everything up to here is shown, and has struck whom it strikes: one position ahead of
    /// `applied` while that one lets go of its locks.
    struck: CachePadded<AtomicU64>,
    /// Who waits for a position to be applied.
    waiters: Mutex<Waiters>,
    /// The last positions that changed the first trees.
    pub(crate) changed: [AtomicU64; FIRST_TREES],
    pub(crate) sealed: Mutex<HashMap<TransactionId, Sealed, RandomState>>,
    /// Transactions of this node whose parts are of no use, which the order could not be told.
    pub(crate) given_up: Mutex<Vec<GivenUp>>,
    fates: [Mutex<HashMap<TransactionId, Arc<Fate>, RandomState>>; SHARDS],
}

/// Who waits for a position: by the position, and by who came first.
#[derive(Default)]
struct Waiters {
    all: BTreeMap<(Csn, u64), Waker>,
    /// How many have come.
    count: u64,
}

impl Cluster {
    /// One that begins with the first position.
    pub(crate) fn new(node: Node, images: Images) -> Cluster {
        Cluster {
            turns: Mutex::new(Turns::new(node.number)),
            node,
            images,
            standing: Mutex::default(),
            horizon: AtomicU64::new(0),
            applied: CachePadded::new(AtomicU64::new(0)),
            struck: CachePadded::new(AtomicU64::new(0)),
            waiters: Mutex::default(),
            changed: std::array::from_fn(|_| AtomicU64::new(0)),
            sealed: Mutex::default(),
            given_up: Mutex::default(),
            fates: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Goes on where an image says how things stand, and when the first trees changed last.
    pub(crate) fn begin_at(&self, standing: Standing, changed: &[Csn]) {
        self.note_struck(standing.applied());
        self.applied.store(standing.applied(), Ordering::Release);
        self.turns.lock().begin_at(standing.applied());
        self.note_horizon(&standing);
        *self.standing.lock() = standing;
        for (last, position) in self.changed.iter().zip(changed) {
            last.store(*position, Ordering::Release);
        }
    }

    /// How things stand has changed. To be noted before the graph is pruned up to there, which is
    /// with the next position.
    pub(crate) fn note_horizon(&self, standing: &Standing) {
        self.horizon.store(standing.horizon(), Ordering::Release);
    }

    /// Blocks until everything up to a position is on this node's disk.
    ///
    /// # Errors
    /// `ShuttingDown` if that will not be.
    pub(crate) fn wait_synced(&self, position: Csn) -> Result<(), Error> {
        if self.node.order.wait_synced(position) { Ok(()) } else { Err(Error::ShuttingDown) }
    }

    /// The last positions that changed the first trees.
    pub(crate) fn changed_at(&self) -> [Csn; FIRST_TREES] {
        std::array::from_fn(|tree| self.changed[tree].load(Ordering::Acquire))
    }

    /// Everything up to here is shown, and has struck whom it strikes. To be noted before locks are
    /// let go: who gets one of them sees what was written, and must be sealed above it.
    pub(crate) fn note_struck(&self, position: Csn) {
        self.struck.store(position, Ordering::Release);
    }

    /// Everything up to here is judged and shown.
    pub(crate) fn apply(&self, position: Csn) {
        self.note_struck(position);
        self.applied.store(position, Ordering::Release);
        let woken: Vec<Waker> = {
            let mut waiters = self.waiters.lock();
            let due = || {
                let first = waiters.all.first_entry()?;
                (first.key().0 <= position).then(|| first.remove())
            };
            std::iter::from_fn(due).collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    fn fates(&self, id: TransactionId) -> &Mutex<HashMap<TransactionId, Arc<Fate>, RandomState>> {
        &self.fates[id as usize % SHARDS]
    }

    /// A transaction begins.
    pub(crate) fn enter(&self, id: TransactionId) -> Arc<Fate> {
        let fate = Arc::<Fate>::default();
        self.fates(id).lock().insert(id, Arc::clone(&fate));
        fate
    }

    /// A transaction is sealed: up to where positions had struck at this node before that. Until
    /// then it has to be found by who strikes, or what is delivered in between would neither strike
    /// it nor be above its `bot`.
    ///
    /// # Errors
    /// Who was faster.
    pub(crate) fn seal(&self, id: TransactionId) -> Result<Csn, Error> {
        let bot = self.struck.load(Ordering::Acquire);
        let fate = self.fates(id).lock().get(&id).cloned();
        let fate = fate.unwrap_or_else(|| unreachable!("{id} is sealed where nobody can strike it"));
        fate.seal().map_err(overtaken)?;
        planted::sealing();
        match planted::is(Planted::LooksAfterSealing) {
            true => Ok(self.struck.load(Ordering::Acquire)),
            false => Ok(bot),
        }
    }

    /// A transaction has ended.
    pub(crate) fn leave(&self, id: TransactionId) {
        self.fates(id).lock().remove(&id);
    }

    fn strike(&self, victim: TransactionId, stroke: Stroke) -> bool {
        let fate = self.fates(victim).lock().get(&victim).cloned();
        fate.is_some_and(|fate| fate.strike(stroke))
    }
}

/// Who was faster, as an error.
pub(crate) fn overtaken(stroke: Stroke) -> Error {
    let Stroke { by, position, tree, key } = stroke;
    Error::Overtaken { by, position, tree, key: key.map(|key| Key::copy_from_slice(&key)) }
}

/// Ready once a position is judged and shown; at once in a database of its own. Who gives up is
/// forgotten: clients may wait for what never comes, again and again.
pub(crate) struct Applied {
    manager: Arc<Manager>,
    position: Csn,
    /// Its place among those who wait.
    place: Option<u64>,
}

impl Applied {
    pub(crate) fn new(manager: Arc<Manager>, position: Csn) -> Applied {
        Applied { manager, position, place: None }
    }
}

impl Future for Applied {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Applied { manager, position, place } = &mut *self;
        let Some(cluster) = &manager.cluster else { return Poll::Ready(Ok(())) };
        if cluster.applied.load(Ordering::Acquire) >= *position {
            return Poll::Ready(Ok(()));
        }
        let mut waiters = cluster.waiters.lock();
        // Again under the mutex: who moved the mark in between has not seen this one.
        if cluster.applied.load(Ordering::Acquire) >= *position {
            return Poll::Ready(Ok(()));
        }
        let number = place.unwrap_or(waiters.count);
        if place.is_none() {
            waiters.count += 1;
            *place = Some(number);
        }
        let before = waiters.all.insert((*position, number), context.waker().clone());
        drop(waiters);
        // Whatever ends with it looks at nothing that is locked here.
        drop(before);
        Poll::Pending
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        if let (Some(place), Some(cluster)) = (self.place, &self.manager.cluster) {
            let waker = cluster.waiters.lock().all.remove(&(self.position, place));
            drop(waker);
        }
    }
}

/// How a transaction that has run at one node comes to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// With its reads: every node judges them.
    Certification,
    /// Without its reads: this node judges them, and votes. At levels that do not judge reads, and
    /// for a transaction that has read nothing but what it has written, there is nothing to vote
    /// about.
    WeakVoting,
}

impl Transaction {
    /// What its client calls it: no two transactions of one name commit in a cluster, and its
    /// outcome can be asked for by it. One that commits and has written nothing leaves the name to
    /// others. Without effect in a database of its own.
    pub fn name_request(&mut self, name: &str) {
        self.name = Some(name.into());
    }

    /// Bytes of what it has read, as far as that is noted.
    pub fn read_bytes(&self) -> u64 {
        self.sight.reads().map_or(0, |reads| reads.bytes() as u64)
    }

    /// Commits, in a cluster as elsewhere: resolves once the transaction has its place in the
    /// order and its verdict.
    ///
    /// # Errors
    /// As `commit`; `Overtaken`.
    pub async fn commit_in_order(self) -> Result<Commit, Error> {
        self.commit_by(Replication::Certification).await
    }

    /// The same by one of the protocols.
    ///
    /// # Errors
    /// As `commit`; `Overtaken`.
    pub async fn commit_by(mut self, protocol: Replication) -> Result<Commit, Error> {
        if self.manager.cluster.is_none() {
            return self.commit();
        }
        self.send_ahead().await?;
        let proposed = self.propose(match protocol {
            Replication::Certification => Purpose::Commit,
            Replication::WeakVoting => Purpose::Voting,
        });
        let manager = Arc::clone(&self.manager);
        drop(self);
        let proposed = proposed?;
        let outcome = Arc::clone(&proposed.0);
        let commit = manager.committed(proposed.await?)?;
        Ok(Commit { vote_wait: outcome.vote_wait(), ..commit })
    }

    /// The same for callers that may block their thread.
    pub(crate) fn commit_in_order_blocking(mut self) -> Result<Commit, Error> {
        crate::durable::block_on(Box::pin(self.send_ahead()))?;
        let proposed = self.propose(Purpose::Commit);
        let manager = Arc::clone(&self.manager);
        drop(self);
        manager.committed(crate::durable::block_on(proposed?)?)
    }
}

impl Manager {
    pub(crate) fn committed(&self, csn: Csn) -> Result<Commit, Error> {
        Ok(Commit::new(csn, self.wait_durable_with_room(csn)))
    }

    /// Takes a delivered request's locks, and strikes whoever holds one against them.
    pub(crate) fn grant(
        &self,
        cluster: &Cluster,
        position: Csn,
        id: TransactionId,
        family: Option<FamilySlot>,
        locks: &[(HeldLock, bool)],
    ) -> Held {
        let mut against = Vec::new();
        let mut held = self.locks.force(id, family, locks.iter().map(|(lock, _)| lock), &mut against);
        if planted::is(Planted::LetsGoBeforeShowing) {
            self.release(id, std::mem::take(&mut held));
        }
        let writes = |tree: TreeId, key: &Option<SmallKey>| {
            locks.iter().any(|(lock, writes)| *writes && (lock.tree, &lock.key) == (tree, key))
        };
        against.retain(|(_, tree, key)| {
            !planted::is(Planted::StrikesNobody)
                && (!planted::is(Planted::StrikesForWritesOnly) || writes(*tree, key))
        });
        for (victim, tree, key) in against {
            cluster.strike(victim, Stroke { by: id, position, tree, key });
        }
        held
    }

    /// A request of this node was granted.
    pub(crate) fn count(&self, request: &Request) {
        match &request.purpose {
            Purpose::Commit | Purpose::Execute(_) if !request.writes() => {}
            Purpose::Commit
            | Purpose::Voting
            | Purpose::Execute(_)
            | Purpose::Decide { commits: true, .. } => {
                self.counters.commits.fetch_add(1, Ordering::Relaxed);
            }
            Purpose::Decide { commits: false, .. } => self.rolled_back(),
            Purpose::OnFamily(on) if matches!(on.operation, Operation::Commit(_)) => {
                self.counters.commits.fetch_add(1, Ordering::Relaxed);
            }
            Purpose::Prepare(_)
            | Purpose::OnFamily(_)
            | Purpose::Vote { .. }
            | Purpose::Void { .. }
            | Purpose::Part(_)
            | Purpose::Whole(_)
            | Purpose::GiveUp { .. } => {}
        }
    }

    /// Says which snapshots there are here, if nobody here has said so for long.
    pub(crate) fn announce(&self, cluster: &Cluster, standing: &Standing) {
        let silent = standing.applied().saturating_sub(standing.announced(cluster.node.number).1);
        if silent < ANNOUNCE_AFTER || !silent.is_multiple_of(ANNOUNCE_AFTER) {
            return;
        }
        let request = self.request_about(standing.applied(), Purpose::Commit);
        cluster.node.order.propose(request.encode(0).into());
    }

    /// The same if what is in the graph is remembered for this node, which does not need it any
    /// more, and has had nothing to say since. Nothing is added to the graph by that, so it is said
    /// once. Waits for who delivers.
    pub(crate) fn announce_late(&self) {
        let Some(cluster) = &self.cluster else { return };
        let Some(newest) = self.sequencer.newest_open() else { return };
        let oldest = self.store.oldest_snapshot();
        let (applied, said) = {
            let standing = cluster.standing.lock();
            (standing.applied(), standing.announced(cluster.node.number).0)
        };
        if said < newest && said < oldest {
            let request = self.request_about(applied, Purpose::Commit);
            cluster.node.order.propose(request.encode(0).into());
        }
    }

    /// Everything up to here is judged and shown. 0 in a database of its own.
    pub(crate) fn applied(&self) -> Csn {
        self.cluster.as_ref().map_or(0, |cluster| cluster.applied.load(Ordering::Acquire))
    }

    /// What was committed before is not in the graph any more; 0 in a database of its own. Who asks
    /// waits for nobody.
    pub(crate) fn horizon(&self) -> Csn {
        self.cluster.as_ref().map_or(0, |cluster| cluster.horizon.load(Ordering::Acquire))
    }

    /// The last position that changed one of the first trees.
    pub(crate) fn changed_at(&self, tree: TreeId) -> Csn {
        let changed = self.cluster.as_ref().and_then(|cluster| cluster.changed.get(tree as usize));
        changed.map_or(0, |position| position.load(Ordering::Acquire))
    }

    /// Who was the last to change a key, or to have a tree to itself, as long as that is known.
    pub(crate) fn last_at(&self, tree: TreeId, key: Option<&[u8]>) -> Option<TransactionId> {
        self.cluster.as_ref()?.standing.lock().window().last_at(tree, key)
    }

    /// The last position that was delivered, and the digest of all requests and verdicts up to it.
    pub(crate) fn digest(&self) -> Option<(Csn, [u8; 32])> {
        let cluster = self.cluster.as_ref()?;
        let standing = cluster.standing.lock();
        Some((standing.applied(), standing.digest()))
    }

    /// The digest up to one of the last positions.
    pub(crate) fn digest_at(&self, position: Csn) -> Option<[u8; 32]> {
        self.cluster.as_ref()?.standing.lock().digest_at(position)
    }

    /// A proposal was never ordered, and never will be.
    pub(crate) fn not_ordered(&self, bytes: &[u8]) {
        let request = Request::decode(bytes, &self.seed);
        let (Some(cluster), Ok(request)) = (&self.cluster, request) else { return };
        self.parts_not_ordered(cluster, &request);
        let sealed = cluster.sealed.lock().remove(&request.id);
        let Some(sealed) = sealed.filter(|_| !planted::is(Planted::KeepsWhatIsLost)) else { return };
        self.give_back(&request, sealed);
    }

    /// Ends what was proposed and has no place in the order.
    pub(crate) fn give_back(&self, request: &Request, sealed: Sealed) {
        self.release(request.id, sealed.held);
        if request.purpose.is_of_transaction() {
            self.rolled_back();
        }
        if let Some(member) = sealed.member {
            self.part_sibling(&member, request.id);
        }
        sealed.outcome.tell(Err(Error::NotOrdered));
    }

    /// The same of a request by the name that its client has given it.
    pub(crate) fn outcome_of(&self, name: &str) -> Option<(Csn, bool)> {
        self.cluster.as_ref()?.standing.lock().outcome_of(name)
    }

    /// What became of a transaction, as long as it is remembered: its position, and whether it
    /// committed.
    pub(crate) fn outcome(&self, id: TransactionId) -> Option<(Csn, bool)> {
        self.cluster.as_ref()?.standing.lock().outcome(id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Wake;
    use std::time::Duration;

    use bytes::Bytes;
    use cognate_env::SplitMix;
    use cognate_env::sim::SimDisk;

    use super::*;
    use crate::hash::{FIXED, Seed};
    use crate::order::Level;
    use crate::sync::atomic::AtomicBool;
    use crate::txn::columns::Columns;
    use crate::txn::readset::{Moment, ReadSet};
    use crate::txn::writeset::Changes;
    use crate::{Options, TotalOrder, Value};

    /// An order that nothing comes back from.
    struct Nowhere;

    impl TotalOrder for Nowhere {
        fn propose(&self, _request: Bytes) {}

        fn request_bytes_max(&self) -> u64 {
            1 << 20
        }

        fn wait_synced(&self, _position: u64) -> bool {
            true
        }
    }

    fn open(number: u16, seed: Seed) -> Arc<Manager> {
        let mut options = Options::new("/node");
        options.disk = SimDisk::new(1).handle();
        options.node = Some(Node { number, start: 1, order: Arc::new(Nowhere) });
        Arc::new(Manager::open_with(options, seed).expect("opened").0)
    }

    /// Each node hashes with a seed of its own, and nothing of that is in a verdict.
    #[test]
    fn nodes_with_different_seeds_come_to_the_same_verdicts() {
        const TREE: TreeId = 1001;
        const REQUESTS: u64 = 300;
        let nodes = [open(1, Seed::of(1, 2)), open(2, Seed::of(3, 4))];
        let seed = 7;
        println!("seed {seed}");
        let (mut random, mut commits) = (SplitMix::new(seed), 0);
        for position in 1..=REQUESTS {
            let mut key = || [random.below(16) as u8];
            let mut reads = ReadSet::default();
            for _ in 0..2 {
                reads.add_point(&FIXED, TREE, &key(), Moment::Snapshot, Columns::ALL);
            }
            let written = (SmallKey::new(&key()), Some(Value::from_static(b"v")));
            let snapshot = (position - 1).saturating_sub(random.below(8));
            let mut request = nodes[0].request_about(position - 1, Purpose::Commit);
            request.id = 3 << 52 | position;
            request.level = Level::Serializable;
            (request.snapshot, request.began, request.oldest) = (snapshot, snapshot, 0);
            request.parts.reads = Some(reads);
            request.parts.changes = vec![(TREE, Changes::of(vec![written]))];
            let bytes = request.encode(0);
            for node in &nodes {
                node.deliver(position, &bytes).expect("delivered");
            }
            assert_eq!(nodes[0].digest(), nodes[1].digest(), "position {position}");
            commits += u64::from(nodes[0].outcome(request.id).is_some_and(|(_, commits)| commits));
        }
        assert!((1..REQUESTS).contains(&commits), "{commits} of {REQUESTS} commit");
        let numbers = [0, 1].map(|node: usize| nodes[node].seed.hash_of(TREE, b"k"));
        assert_ne!(numbers[0], numbers[1]);
    }

    /// A large request is judged for seconds, and it may be the thread of the order that asks.
    #[test]
    fn who_asks_for_the_horizon_does_not_wait_until_a_request_is_judged() {
        let manager = open(1, FIXED.clone());
        for position in 1..=3 {
            let request = manager.request_about(position - 1, Purpose::Commit).encode(0);
            manager.deliver(position, &request).expect("delivered");
        }
        let cluster = manager.cluster.as_ref().expect("a node");
        let judging = cluster.standing.lock();
        assert!(judging.horizon() > 0, "each request says what is needed at its node");
        let (tell, told) = mpsc::channel();
        let asks = Arc::clone(&manager);
        std::thread::spawn(move || tell.send(asks.horizon()));
        let horizon = told.recv_timeout(Duration::from_secs(60)).expect("it waits");
        assert_eq!(horizon, judging.horizon());
    }

    /// Looks, when it is woken, whether the table of what is sealed is free.
    struct Looks {
        manager: Arc<Manager>,
        is_free: AtomicBool,
    }

    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            let cluster = self.manager.cluster.as_ref().expect("a node");
            self.is_free.store(cluster.sealed.try_lock().is_some(), Ordering::Release);
        }
    }

    /// Whoever commits beside it needs the table, and would wait for whatever the waking takes.
    #[test]
    fn who_is_told_a_verdict_is_woken_with_the_table_of_what_is_sealed_free() {
        let manager = open(1, FIXED.clone());
        let cluster = manager.cluster.as_ref().expect("a node");
        let request = manager.request_about(0, Purpose::Commit);
        let mut proposed = manager.propose_request(cluster, &request).expect("proposed");
        let looks = Arc::new(Looks { manager: Arc::clone(&manager), is_free: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&looks));
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut proposed).poll(&mut context).is_pending(), "nothing is delivered yet");
        manager.deliver(1, &request.encode(0)).expect("delivered");
        assert!(looks.is_free.load(Ordering::Acquire));
        assert!(Pin::new(&mut proposed).poll(&mut context).is_ready());
    }
}
