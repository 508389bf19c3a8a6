//! All locks: a sharded table of queues, the waits-for graph, and the short cut for statements' locks on trees.
//!
//! A resource is a row (tree and key) or a whole tree. Its queue sits in the shard that its hash selects; a transaction
//! remembers the hashes of what it holds and releases everything in one sweep at its end.
//!
//! # Waiting and deadlocks
//!
//! To wait, a transaction takes the `graph` mutex, enters what it waits for, queues, and looks for a cycle through
//! itself. Queues are the truth about who waits for whom; the graph only says in which queue a transaction stands.
//! While the mutex is held nobody begins or gives up waiting, and a transaction that waits cannot release anything:
//! so edges read one after the other exist at the same time, and a cycle found is real. A cycle that closes is found
//! by its last member, which is refused.
//!
//! # Trees
//!
//! Every statement takes `Read` or `Write` on its tables, and these two go together: they are *weak*. A weak lock is
//! one entry in the list of its owner, with no queue touched, as long as nobody wants a *strong* lock (`Share`,
//! `Exclusive`) on a tree of the same stripe.
//!
//! A strong request first raises the stripe's counter, then moves the weak locks on its tree from the owners' lists
//! into the tree's queue, then asks in that queue like anybody else. A weak request reads the counter inside the mutex
//! of its owner's list; if it is raised, the request goes to the queue as well. Whichever comes to that mutex
//! first, the other sees it. The counter falls when the strong owner has released the queue.
//!
//! Mutex order: `graph`, then one shard of `weak`, then one shard of `rows`. A ticket's mutex is taken alone.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;

use super::deadlock::find_cycle;
use super::mode::{FamilySlot, LockMode, Mode, Modes, TreeMode};
use super::queue::{Answer, Queue};
use super::wait::{LockWait, Ticket};
use crate::key::SmallKey;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::{Error, Key, TransactionId, TreeId};

const SHARDS: usize = 64;
const STRIPES: usize = 64;

/// Bytes that a held row lock costs besides its key.
pub(crate) const LOCK_BYTES: usize = 192;

type Granted = Vec<Arc<Ticket>>;
type KeyBuf = SmallVec<[u8; 24]>;
type ByHash<V> = HashMap<u64, V, BuildHasherDefault<Identity>>;
type WeakList = SmallVec<[Weak; 4]>;

/// The keys are hashes already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// Mixes eight bytes at a time: multiplication carries low bits up, the fold brings high bits down.
fn hash(tree: TreeId, key: Option<&[u8]>) -> u64 {
    fn mix(state: u64, word: u64) -> u64 {
        let product = u128::from(state ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        (product as u64) ^ ((product >> 64) as u64)
    }
    let mut state = mix(0x2545_F491_4F6C_DD1D, u64::from(tree));
    let Some(key) = key else { return state };
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        state = mix(state, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    state = mix(state, u64::from_le_bytes(last));
    mix(state, 0xA5A5_0000_0000_0001 + key.len() as u64)
}

struct Entry {
    tree: TreeId,
    /// `None`: the tree as a whole.
    key: Option<KeyBuf>,
    queue: Queue<Arc<Ticket>>,
}

/// A weak lock in its owner's list.
#[derive(Debug, Clone, Copy)]
struct Weak {
    tree: TreeId,
    modes: Modes,
    /// Modes held earlier are in the queue now.
    moved: bool,
}

/// Almost always one: entries whose 64-bit hashes are equal.
type Bucket = SmallVec<[Entry; 1]>;

#[repr(align(128))]
#[derive(Default)]
struct Rows(Mutex<ByHash<Bucket>>);

#[repr(align(128))]
#[derive(Default)]
struct WeakShard(Mutex<ByHash<WeakList>>);

/// In which queue a transaction stands.
struct Standing {
    hash: u64,
    tree: TreeId,
    key: Option<Key>,
    mode: Mode,
}

/// Names of row modes, weakest first: `LockMode` is what was asked for, the kind of transaction decides between S and SS, X and SX.
const ROW_NAMES: [(Mode, &str); 4] = [
    (Mode::Row(LockMode::Shared), "Shared"),
    (Mode::Sibling(LockMode::Shared, FamilySlot::MIN), "SiblingShared"),
    (Mode::Sibling(LockMode::Exclusive, FamilySlot::MIN), "SiblingExclusive"),
    (Mode::Row(LockMode::Exclusive), "Exclusive"),
];

/// What one transaction holds, for its final sweep. Kept by the transaction.
#[derive(Debug, Default)]
pub(crate) struct Held {
    hashes: Vec<u64>,
    strong: Vec<TreeId>,
    weak: bool,
}

impl Held {
    /// Whether anything is held at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.hashes.is_empty() && !self.weak
    }
}

/// A lock that somebody holds, for keeping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldLock {
    pub(crate) tree: TreeId,
    /// `None`: the tree as a whole.
    pub(crate) key: Option<SmallKey>,
    pub(crate) modes: Modes,
}

/// A lock or a wait for one, as seen by a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// Holder or waiter.
    pub transaction: TransactionId,
    /// The tree concerned.
    pub tree: TreeId,
    /// The row's key; `None` for a lock on the whole tree.
    pub key: Option<Key>,
    /// Modes by name, strongest last: `Shared`, `SiblingShared`, `SiblingExclusive`, `Exclusive`, `Read`, `Write`, `Share`.
    pub modes: Vec<&'static str>,
    /// Held, or waited for.
    pub granted: bool,
}

/// The lock table.
pub(crate) struct LockTable {
    rows: [Rows; SHARDS],
    weak: [WeakShard; SHARDS],
    /// Strong locks requested or held on trees of each stripe.
    strong: [AtomicU32; STRIPES],
    graph: Mutex<HashMap<TransactionId, Standing>>,
    pub(crate) waits: AtomicU64,
    pub(crate) deadlocks: AtomicU64,
}

fn names(of: Mode, modes: Modes) -> Vec<&'static str> {
    let all: &[(Mode, &'static str)] = match of {
        Mode::Row(_) | Mode::Sibling(..) => &ROW_NAMES,
        Mode::Tree(_) => &[
            (Mode::Tree(TreeMode::Read), "Read"),
            (Mode::Tree(TreeMode::Write), "Write"),
            (Mode::Tree(TreeMode::Share), "Share"),
            (Mode::Tree(TreeMode::Exclusive), "Exclusive"),
        ],
    };
    all.iter().filter(|(m, _)| m.bit() & modes != 0).map(|(_, name)| *name).collect()
}

fn punch(granted: Granted) {
    for ticket in granted {
        ticket.punch();
    }
}

impl LockTable {
    pub(crate) fn new() -> LockTable {
        LockTable {
            rows: std::array::from_fn(|_| Rows::default()),
            weak: std::array::from_fn(|_| WeakShard::default()),
            strong: std::array::from_fn(|_| AtomicU32::new(0)),
            graph: Mutex::new(HashMap::new()),
            waits: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
        }
    }

    fn shard(&self, hash: u64) -> &Mutex<ByHash<Bucket>> {
        &self.rows[(hash >> 32) as usize % SHARDS].0
    }

    fn stripe(&self, tree: TreeId) -> &AtomicU32 {
        &self.strong[tree as usize % STRIPES]
    }

    /// Asks for a row without waiting. `Busy` changes nothing.
    pub(crate) fn try_row(
        &self,
        owner: TransactionId,
        held: &mut Held,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
    ) -> Answer {
        let hash = hash(tree, Some(key));
        let answer = self.request(owner, hash, tree, Some(key), mode);
        if answer == Answer::Granted {
            held.hashes.push(hash);
        }
        answer
    }

    /// Asks for a tree without waiting. `Busy` leaves nothing behind that blocks others.
    pub(crate) fn try_tree(
        &self,
        owner: TransactionId,
        held: &mut Held,
        tree: TreeId,
        mode: TreeMode,
    ) -> Answer {
        if mode.is_weak() && self.try_weak(owner, tree, mode) {
            held.weak = true;
            return Answer::Granted;
        }
        if !mode.is_weak() {
            self.announce(tree);
        }
        let hash = hash(tree, None);
        let answer = self.request(owner, hash, tree, None, Mode::Tree(mode));
        match answer {
            Answer::Busy if !mode.is_weak() => self.retract(tree),
            Answer::Busy => {}
            Answer::Granted | Answer::Held => {
                // Moved weak locks are released by the list of weak locks; twice does no harm.
                held.hashes.push(hash);
                if !mode.is_weak() {
                    held.strong.push(tree);
                }
            }
        }
        answer
    }

    fn try_weak(&self, owner: TransactionId, tree: TreeId, mode: TreeMode) -> bool {
        let mut lists = self.weak[owner as usize % SHARDS].0.lock();
        if self.stripe(tree).load(Ordering::Relaxed) != 0 {
            return false;
        }
        let list = lists.entry(owner).or_default();
        let bit = Mode::Tree(mode).bit();
        match list.iter_mut().find(|weak| weak.tree == tree) {
            Some(weak) => weak.modes |= bit,
            None => list.push(Weak { tree, modes: bit, moved: false }),
        }
        true
    }

    /// Sends weak requests on `tree` to the queue from now on, and moves the weak locks held so far there.
    fn announce(&self, tree: TreeId) {
        self.stripe(tree).fetch_add(1, Ordering::Relaxed);
        let hash = hash(tree, None);
        for shard in &self.weak {
            for (owner, list) in shard.0.lock().iter_mut() {
                for weak in list.iter_mut().filter(|weak| weak.tree == tree && weak.modes != 0) {
                    let mut rows = self.shard(hash).lock();
                    entry(&mut rows, hash, tree, None).queue.hold(
                        *owner,
                        std::mem::take(&mut weak.modes),
                        None,
                    );
                    weak.moved = true;
                }
            }
        }
    }

    fn retract(&self, tree: TreeId) {
        self.stripe(tree).fetch_sub(1, Ordering::Relaxed);
    }

    fn request(
        &self,
        owner: TransactionId,
        hash: u64,
        tree: TreeId,
        key: Option<&[u8]>,
        mode: Mode,
    ) -> Answer {
        let mut rows = self.shard(hash).lock();
        entry(&mut rows, hash, tree, key).queue.request(owner, mode)
    }

    /// Queues for a row that `try_row` refused. `None`: it was free after all.
    ///
    /// # Errors
    /// `Deadlock` if waiting would close a cycle; nothing is queued then.
    pub(crate) fn wait_row(
        self: &Arc<Self>,
        owner: TransactionId,
        held: &mut Held,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
    ) -> Result<Option<LockWait>, Error> {
        held.hashes.push(hash(tree, Some(key)));
        self.wait(owner, tree, Some(key), mode)
    }

    /// Queues for a tree that `try_tree` refused. `None`: it was free after all.
    ///
    /// # Errors
    /// `Deadlock` if waiting would close a cycle; nothing is queued then.
    pub(crate) fn wait_tree(
        self: &Arc<Self>,
        owner: TransactionId,
        held: &mut Held,
        tree: TreeId,
        mode: TreeMode,
    ) -> Result<Option<LockWait>, Error> {
        if !mode.is_weak() {
            self.announce(tree);
            // Given back at the end of the transaction even if the wait fails: until then statements on this tree
            // go through the queue, which is slower but right.
            held.strong.push(tree);
        }
        held.hashes.push(hash(tree, None));
        self.wait(owner, tree, None, Mode::Tree(mode))
    }

    fn wait(
        self: &Arc<Self>,
        owner: TransactionId,
        tree: TreeId,
        key: Option<&[u8]>,
        mode: Mode,
    ) -> Result<Option<LockWait>, Error> {
        let hash = hash(tree, key);
        let ticket = Arc::new(Ticket::default());
        let mut graph = self.graph.lock();
        {
            let mut rows = self.shard(hash).lock();
            let queue = &mut entry(&mut rows, hash, tree, key).queue;
            if queue.request(owner, mode) != Answer::Busy {
                return Ok(None);
            }
            queue.enqueue(owner, mode, Arc::clone(&ticket));
        }
        graph.insert(owner, Standing { hash, tree, key: key.map(Key::copy_from_slice), mode });
        self.waits.fetch_add(1, Ordering::Relaxed);
        match find_cycle(owner, |waiter| self.blockers(&graph, waiter)) {
            None => Ok(Some(LockWait::new(Arc::clone(self), owner, ticket))),
            Some(cycle) => {
                self.deadlocks.fetch_add(1, Ordering::Relaxed);
                let detail = describe(&graph, &cycle);
                let granted = self.withdraw(&mut graph, owner);
                drop(graph);
                punch(granted);
                Err(Error::Deadlock { cycle, detail })
            }
        }
    }

    fn blockers(
        &self,
        graph: &HashMap<TransactionId, Standing>,
        waiter: TransactionId,
    ) -> SmallVec<[TransactionId; 4]> {
        let Some(standing) = graph.get(&waiter) else { return SmallVec::new() };
        let rows = self.shard(standing.hash).lock();
        let bucket = rows.get(&standing.hash).map_or(&[][..], |bucket| bucket.as_slice());
        bucket.iter().flat_map(|entry| entry.queue.blockers(waiter)).collect()
    }

    fn withdraw(&self, graph: &mut HashMap<TransactionId, Standing>, owner: TransactionId) -> Granted {
        let mut granted = Vec::new();
        if let Some(standing) = graph.remove(&owner) {
            let mut rows = self.shard(standing.hash).lock();
            if let Some(bucket) = rows.get_mut(&standing.hash) {
                for entry in bucket.iter_mut() {
                    entry.queue.withdraw(owner, &mut granted);
                }
            }
            sweep(&mut rows, standing.hash);
        }
        granted
    }

    /// `owner` waits no longer, granted or not.
    pub(crate) fn end_wait(&self, owner: TransactionId) {
        let granted = self.withdraw(&mut self.graph.lock(), owner);
        punch(granted);
    }

    /// Releases everything that `owner` holds. It must not be waiting.
    pub(crate) fn release_all(&self, owner: TransactionId, held: Held) {
        let mut granted = Vec::new();
        if held.weak {
            let list = self.weak[owner as usize % SHARDS].0.lock().remove(&owner).unwrap_or_default();
            for weak in list.into_iter().filter(|weak| weak.moved) {
                self.release(owner, hash(weak.tree, None), &mut granted);
            }
        }
        for hash in held.hashes {
            self.release(owner, hash, &mut granted);
        }
        for tree in held.strong {
            self.retract(tree);
        }
        punch(granted);
    }

    /// What `owner` holds.
    pub(crate) fn held_by(&self, owner: TransactionId, held: &Held) -> Vec<HeldLock> {
        let (mut locks, mut hashes) = (Vec::with_capacity(held.hashes.len()), held.hashes.clone());
        if held.weak {
            for weak in self.weak[owner as usize % SHARDS].0.lock().get(&owner).into_iter().flatten() {
                if weak.modes != 0 {
                    locks.push(HeldLock { tree: weak.tree, key: None, modes: weak.modes });
                }
                if weak.moved {
                    hashes.push(hash(weak.tree, None));
                }
            }
        }
        hashes.sort_unstable();
        hashes.dedup();
        for hash in hashes {
            let rows = self.shard(hash).lock();
            for entry in rows.get(&hash).into_iter().flatten() {
                let modes = entry.queue.held_by(owner);
                if modes != 0 {
                    locks.push(HeldLock {
                        tree: entry.tree,
                        key: entry.key.as_deref().map(SmallKey::new),
                        modes,
                    });
                }
            }
        }
        locks
    }

    /// Gives `owner` locks that it held before a crash; nobody else has any yet that would conflict.
    pub(crate) fn restore(
        &self,
        owner: TransactionId,
        family: Option<FamilySlot>,
        locks: &[HeldLock],
    ) -> Held {
        const STRONG: Modes = 4 | 8;
        let mut held = Held::default();
        for lock in locks {
            let key = lock.key.as_deref();
            if key.is_none() && lock.modes & STRONG != 0 {
                self.announce(lock.tree);
                held.strong.push(lock.tree);
            }
            let weak: Option<&[TreeMode]> =
                (key.is_none() && lock.modes & STRONG == 0).then_some(&[TreeMode::Read, TreeMode::Write]);
            if let Some(modes) = weak {
                for mode in modes.iter().filter(|mode| Mode::Tree(**mode).bit() & lock.modes != 0) {
                    self.try_tree(owner, &mut held, lock.tree, *mode);
                }
                continue;
            }
            let hash = hash(lock.tree, key);
            let mut rows = self.shard(hash).lock();
            let queue = &mut entry(&mut rows, hash, lock.tree, key).queue;
            queue.hold(owner, lock.modes, family.filter(|_| key.is_some()));
            held.hashes.push(hash);
        }
        held
    }

    fn release(&self, owner: TransactionId, hash: u64, granted: &mut Granted) {
        let mut rows = self.shard(hash).lock();
        if let Some(bucket) = rows.get_mut(&hash) {
            for entry in bucket.iter_mut() {
                entry.queue.release(owner, granted);
            }
        }
        sweep(&mut rows, hash);
    }

    /// For which resource a transaction waits.
    pub(crate) fn waiting(&self, owner: TransactionId) -> Option<(TreeId, Option<Key>)> {
        self.graph.lock().get(&owner).map(|s| (s.tree, s.key.clone()))
    }

    /// How many transactions wait.
    pub(crate) fn waiting_count(&self) -> u64 {
        self.graph.lock().len() as u64
    }

    /// Every lock held and waited for. Not one moment's picture: shards are read one after the other.
    pub(crate) fn list(&self) -> Vec<LockInfo> {
        let mut all = Vec::new();
        for shard in &self.weak {
            for (&transaction, list) in shard.0.lock().iter() {
                for &Weak { tree, modes, .. } in list.iter().filter(|weak| weak.modes != 0) {
                    let modes = names(Mode::Tree(TreeMode::Read), modes);
                    all.push(LockInfo { transaction, tree, key: None, modes, granted: true });
                }
            }
        }
        for shard in &self.rows {
            for entry in shard.0.lock().values().flatten() {
                let key = entry.key.as_ref().map(|k| Key::copy_from_slice(k));
                let of = match key {
                    Some(_) => Mode::Row(LockMode::Shared),
                    None => Mode::Tree(TreeMode::Read),
                };
                let info = |transaction, modes, granted| {
                    let (key, modes) = (key.clone(), names(of, modes));
                    LockInfo { transaction, tree: entry.tree, key, modes, granted }
                };
                all.extend(entry.queue.holders().iter().map(|h| info(h.owner, h.modes, true)));
                all.extend(entry.queue.waiting().map(|w| info(w.owner, w.mode.bit(), false)));
            }
        }
        all
    }
}

fn entry<'a>(rows: &'a mut ByHash<Bucket>, hash: u64, tree: TreeId, key: Option<&[u8]>) -> &'a mut Entry {
    let bucket = rows.entry(hash).or_default();
    let found = bucket.iter().position(|e| e.tree == tree && e.key.as_deref() == key);
    let index = found.unwrap_or_else(|| {
        bucket.push(Entry { tree, key: key.map(KeyBuf::from_slice), queue: Queue::new() });
        bucket.len() - 1
    });
    &mut bucket[index]
}

fn sweep(rows: &mut ByHash<Bucket>, hash: u64) {
    if let Some(bucket) = rows.get_mut(&hash) {
        bucket.retain(|e| !e.queue.is_unused());
        if bucket.is_empty() {
            rows.remove(&hash);
        }
    }
}

fn describe(graph: &HashMap<TransactionId, Standing>, cycle: &[TransactionId]) -> String {
    let next = cycle.iter().cycle().skip(1);
    let lines = cycle.iter().zip(next).filter_map(|(waiter, blocker)| {
        let standing = graph.get(waiter)?;
        let mode = names(standing.mode, standing.mode.bit()).concat();
        let what = match &standing.key {
            Some(key) => format!("key {} of tree {}", Hex(key), standing.tree),
            None => format!("tree {}", standing.tree),
        };
        Some(format!(
            "Transaction {waiter} waits for {mode} lock on {what}; blocked by transaction {blocker}."
        ))
    });
    lines.collect::<Vec<_>>().join("\n")
}

struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("\\x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
