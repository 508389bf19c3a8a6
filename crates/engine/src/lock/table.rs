//! All locks: a sharded table of queues, the waits-for graph, and a short cut for locks on trees.
//!
//! A resource is a row (tree and key) or a whole tree. Its queue sits in the shard that its hash
//! selects; a transaction remembers the hashes of what it holds and releases everything in one
//! sweep at its end.
//!
//! # Waiting and deadlocks
//!
//! Only who has to wait takes the `graph` mutex: it enters what it waits for, queues, and looks for
//! a cycle through itself (`deadlock`). While the mutex is held nobody begins or gives up waiting,
//! and a transaction that waits cannot release anything: so edges read one after the other exist at
//! the same time, and a cycle found is real. A cycle that closes is found by its last member. If
//! another order of a queue breaks it, the queue gets that order, and the newcomer waits, or has
//! its lock; else it is refused.
//!
//! # Trees
//!
//! Every statement takes `Read` or `Write` on its tables, and these two go together: they
//! are *weak*. A weak lock is one entry in the list of its owner, with no queue touched, as long as
//! nobody wants a *strong* lock (`Share`, `Exclusive`) on a tree of the same stripe.
//!
//! A strong request first raises the stripe's counter, then moves the weak locks on its tree from
//! the owners' lists into the tree's queue, then asks in that queue like anybody else. A weak
//! request reads the counter inside the mutex of its owner's list; if it is raised, the request
//! goes to the queue as well. Whichever comes to that mutex first, the other sees it. The counter
//! falls when the strong owner has released the queue.
//!
//! Mutex order: `graph`, a shard of `weak`, a shard of `rows`. A ticket's mutex is taken alone.

use std::collections::HashMap;
use std::collections::hash_map::Entry::Occupied;
use std::sync::Arc;

use smallvec::SmallVec;

#[cfg(test)]
use super::deadlock::Edge;
use super::deadlock::{Asked, Move, Whom};
use super::graph::{Graph, Orders, Queues, Standing, describe};
pub(crate) use super::held::{Held, HeldLock};
use super::mode::{FamilySlot, Mode, Modes, TreeMode, WEAK};
use super::queue::{Answer, Queue};
use super::wait::{LockWait, Ticket};
use crate::hash::{ByHash, KeyHash, Seed};
use crate::key::SmallKey;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{CachePadded, Mutex};
use crate::{Error, Key, TransactionId, TreeId};

const SHARDS: usize = 64;
const STRIPES: usize = 64;

/// Bytes that a held row lock costs besides its key.
pub(crate) const LOCK_BYTES: usize = 192;

pub(super) type Granted = Vec<Arc<Ticket>>;
pub(super) type KeyBuf = SmallVec<[u8; 24]>;
pub(super) type WeakList = SmallVec<[Weak; 4]>;

pub(super) struct Entry {
    pub(super) tree: TreeId,
    /// `None`: the tree as a whole.
    pub(super) key: Option<KeyBuf>,
    pub(super) queue: Queue<Arc<Ticket>>,
}

/// A weak lock in its owner's list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weak {
    pub(super) tree: TreeId,
    pub(super) modes: Modes,
    /// Modes held earlier are in the queue now.
    moved: bool,
}

/// Almost always one: entries whose 64-bit hashes are equal.
pub(super) type Bucket = SmallVec<[Entry; 1]>;

pub(super) type Rows = ByHash<KeyHash, Bucket>;
pub(super) type WeakLists = ByHash<TransactionId, WeakList>;

/// The lock table.
pub(crate) struct LockTable {
    /// Of the hashes. Read for every lock and never written.
    seed: CachePadded<Seed>,
    pub(super) rows: [CachePadded<Mutex<Rows>>; SHARDS],
    pub(super) weak: [CachePadded<Mutex<WeakLists>>; SHARDS],
    /// Strong locks requested or held on trees of each stripe.
    strong: [AtomicU32; STRIPES],
    pub(super) graph: Mutex<Graph>,
    pub(crate) waits: AtomicU64,
    pub(crate) deadlocks: AtomicU64,
}

pub(super) fn punch(granted: Granted) {
    for ticket in granted {
        ticket.punch();
    }
}

impl LockTable {
    /// One without locks, that hashes with this seed.
    pub(crate) fn new(seed: &Seed) -> LockTable {
        LockTable {
            seed: CachePadded::new(seed.clone()),
            rows: std::array::from_fn(|_| CachePadded::default()),
            weak: std::array::from_fn(|_| CachePadded::default()),
            strong: std::array::from_fn(|_| AtomicU32::new(0)),
            graph: Mutex::new(Graph::default()),
            waits: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
        }
    }

    /// The number of a row, or of a tree.
    #[inline]
    pub(crate) fn hash(&self, tree: TreeId, key: Option<&[u8]>) -> KeyHash {
        match key {
            Some(key) => self.seed.hash_of(tree, key),
            None => self.seed.hash_of_tree(tree),
        }
    }

    pub(super) fn shard(&self, hash: KeyHash) -> &Mutex<Rows> {
        &self.rows[(hash >> 32) as usize % SHARDS]
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
        let hash = self.hash(tree, Some(key));
        let answer = self.request(owner, hash, tree, Some(key), mode);
        match answer {
            Answer::Granted => held.hashes.push(hash),
            Answer::Raised(before) => held.note_raised(hash, before),
            Answer::Held | Answer::Busy => {}
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
        let hash = self.hash(tree, None);
        let answer = self.request(owner, hash, tree, None, Mode::Tree(mode));
        match answer {
            Answer::Busy if !mode.is_weak() => self.retract(tree),
            Answer::Busy => {}
            Answer::Granted | Answer::Raised(_) | Answer::Held => {
                // Weak locks that were moved are released by way of their list.
                match answer {
                    Answer::Granted => held.hashes.push(hash),
                    Answer::Raised(before) => held.note_raised(hash, before),
                    Answer::Held | Answer::Busy => {}
                }
                if !mode.is_weak() {
                    held.strong.push(tree);
                }
            }
        }
        answer
    }

    pub(super) fn try_weak(&self, owner: TransactionId, tree: TreeId, mode: TreeMode) -> bool {
        let mut lists = self.weak[owner as usize % SHARDS].lock();
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

    /// Sends weak requests on `tree` to the queue from now on, and the weak locks held so far.
    pub(super) fn announce(&self, tree: TreeId) {
        self.stripe(tree).fetch_add(1, Ordering::Relaxed);
        let hash = self.hash(tree, None);
        for shard in &self.weak {
            for (owner, list) in shard.lock().iter_mut() {
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
        self.wait(owner, held, tree, Some(key), mode)
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
            // Given back at the end of the transaction even if the wait fails: until then
            // statements on this tree go through the queue, which is slower but right.
            held.strong.push(tree);
        }
        self.wait(owner, held, tree, None, Mode::Tree(mode))
    }

    pub(super) fn wait(
        self: &Arc<Self>,
        owner: TransactionId,
        held: &mut Held,
        tree: TreeId,
        key: Option<&[u8]>,
        mode: Mode,
    ) -> Result<Option<LockWait>, Error> {
        let hash = self.hash(tree, key);
        let ticket = Arc::new(Ticket::default());
        let companion = held.companion;
        let standing = Standing { hash, tree, key: key.map(Key::copy_from_slice), mode, companion };
        let mut graph = self.graph.lock();
        {
            let mut rows = self.shard(hash).lock();
            let queue = &mut entry(&mut rows, hash, tree, key).queue;
            // Noted before it is granted, as nobody else could: it is released in any case.
            match queue.held_by(owner) {
                0 => held.hashes.push(hash),
                before => held.note_raised(hash, before),
            }
            if queue.request(owner, mode) != Answer::Busy {
                return Ok(None);
            }
            queue.enqueue(owner, mode, Arc::clone(&ticket));
        }
        graph.enter(owner, standing);
        self.waits.fetch_add(1, Ordering::Relaxed);
        let result = self.break_cycle(&mut graph, owner);
        let (granted, error) = match result {
            Ok(granted) => (granted, None),
            Err((granted, error)) => (granted, Some(error)),
        };
        drop(graph);
        punch(granted);
        match error {
            None => Ok(Some(LockWait::new(Arc::clone(self), owner, ticket))),
            Some(error) => Err(error),
        }
    }

    /// Breaks a cycle that the newcomer closes: by another order of a queue, else by refusing it.
    fn break_cycle(&self, graph: &mut Graph, owner: TransactionId) -> Result<Granted, (Granted, Error)> {
        let Graph { standing, companions, search } = graph;
        let mut orders = Orders::new(self, standing, companions);
        let Some(cycle) = search.find_cycle(owner, &mut orders) else { return Ok(Granted::new()) };
        if let Some(moves) = search.resolve(owner, &cycle, &mut orders) {
            return Ok(self.reorder(standing, &moves));
        }
        self.deadlocks.fetch_add(1, Ordering::Relaxed);
        let cycle: Vec<TransactionId> = cycle.iter().map(|step| step.waiter).collect();
        let detail = describe(standing, &cycle);
        Err((self.withdraw(graph, owner), Error::Deadlock { cycle, detail }))
    }

    /// Gives queues another order. Who has been granted a lock meanwhile needs no place any more.
    fn reorder(&self, standing: &HashMap<TransactionId, Standing>, moves: &[Move]) -> Granted {
        let mut granted = Granted::new();
        for one in moves {
            let Some(standing) = standing.get(&one.owner) else { continue };
            self.with_queue(standing, |queue| queue.move_ahead(one.owner, one.before));
        }
        for standing in moves.iter().filter_map(|one| standing.get(&one.owner)) {
            self.with_queue(standing, |queue| queue.settle(&mut granted));
        }
        granted
    }

    /// Lends the queue in which somebody stands, if there is one.
    fn with_queue<T>(
        &self,
        standing: &Standing,
        action: impl FnOnce(&mut Queue<Arc<Ticket>>) -> T,
    ) -> Option<T> {
        let mut rows = self.shard(standing.hash).lock();
        let bucket = rows.get_mut(&standing.hash)?;
        let key = standing.key.as_deref();
        let entry = bucket.iter_mut().find(|e| e.tree == standing.tree && e.key.as_deref() == key)?;
        Some(action(&mut entry.queue))
    }

    fn withdraw(&self, graph: &mut Graph, owner: TransactionId) -> Granted {
        let mut granted = Granted::new();
        if let Some(standing) = graph.leave(owner) {
            self.with_queue(&standing, |queue| queue.withdraw(owner, &mut granted));
            sweep(&mut self.shard(standing.hash).lock(), standing.hash);
        }
        granted
    }

    /// `owner` waits no longer, since it has its lock.
    pub(crate) fn end_wait(&self, owner: TransactionId) {
        let standing = self.graph.lock().leave(owner);
        drop(standing);
    }

    /// `owner` gives up waiting. It may have its lock for all that.
    pub(crate) fn give_up(&self, owner: TransactionId) {
        let granted = self.withdraw(&mut self.graph.lock(), owner);
        punch(granted);
    }

    /// Transactions that searches for deadlocks have looked at so far, and the holders and places
    /// of lines that they have gone over for that.
    #[cfg(test)]
    pub(super) fn searched(&self) -> (u64, u64) {
        let graph = self.graph.lock();
        (graph.search.visited, graph.search.steps())
    }

    /// Everybody for whom a transaction waits.
    #[cfg(test)]
    pub(super) fn every_blocker(&self, owner: TransactionId) -> Vec<Edge> {
        let graph = self.graph.lock();
        let standing = graph.standing.get(&owner);
        standing.and_then(|at| self.with_queue(at, |queue| queue.every_blocker(owner))).unwrap_or_default()
    }

    /// Releases what was locked since a savepoint, but for what is pinned and weak locks on trees.
    /// Answers the bytes that those locks were charged.
    pub(crate) fn release_since(&self, owner: TransactionId, held: &mut Held, savepoint: u64) -> usize {
        let Some(undone) = held.undo(savepoint) else { return 0 };
        let (mut granted, mut bytes) = (Granted::new(), 0);
        for (hash, before) in undone.raised.into_iter().rev() {
            self.lower(owner, hash, before, &mut granted);
        }
        for hash in undone.hashes {
            match self.lower(owner, hash, 0, &mut granted) {
                Some(freed) => bytes += freed,
                None => held.hashes.push(hash),
            }
        }
        for tree in undone.strong {
            self.retract(tree);
        }
        punch(granted);
        bytes
    }

    /// The lock on this row stays until the end of who holds it.
    #[inline]
    pub(crate) fn keep_row(&self, held: &mut Held, tree: TreeId, key: &[u8]) {
        held.keep(|| self.hash(tree, Some(key)));
    }

    /// `owner` lets go of the row that it has locked last.
    pub(crate) fn release_last(&self, owner: TransactionId, held: &mut Held) {
        let Some(hash) = held.hashes.pop() else { return };
        let mut granted = Granted::new();
        if self.lower(owner, hash, 0, &mut granted).is_none() {
            held.hashes.push(hash);
        }
        punch(granted);
    }

    /// `owner` lets go of what it has locked since it held so many locks, all of it rows. Answers
    /// the bytes that those locks were charged.
    pub(crate) fn release_rows_since(&self, owner: TransactionId, held: &mut Held, count: usize) -> usize {
        let since = held.hashes.split_off(count.min(held.hashes.len()));
        let (mut granted, mut bytes) = (Granted::new(), 0);
        for hash in since {
            match self.lower(owner, hash, 0, &mut granted) {
                Some(freed) => bytes += freed,
                None => held.hashes.push(hash),
            }
        }
        punch(granted);
        bytes
    }

    /// `owner` goes back to what it held before in one queue: the bytes of a row's lock that is
    /// gone. None if something is still held.
    fn lower(&self, owner: TransactionId, hash: u64, before: Modes, granted: &mut Granted) -> Option<usize> {
        let mut rows = self.shard(hash).lock();
        let mut bytes = Some(0);
        if let Some(bucket) = rows.get_mut(&hash) {
            let mut own = bucket.iter_mut().filter(|entry| entry.queue.held_by(owner) != 0);
            match (own.next(), own.next()) {
                (None, _) => {}
                (Some(entry), None) => {
                    let weak = if entry.key.is_none() { WEAK } else { 0 };
                    entry.queue.lower(owner, before | weak, granted);
                    bytes = match (&entry.key, entry.queue.held_by(owner)) {
                        (Some(key), 0) => Some(LOCK_BYTES + key.len()),
                        (None, 0) => Some(0),
                        _ => None,
                    };
                }
                // Two with the same hash: which of them is meant is not known, so both stay.
                (Some(_), Some(_)) => bytes = None,
            }
        }
        sweep(&mut rows, hash);
        bytes
    }

    /// Releases everything that `owner` holds. It must not be waiting.
    pub(crate) fn release_all(&self, owner: TransactionId, held: Held) {
        let mut granted = Vec::new();
        if held.weak {
            let list = self.weak[owner as usize % SHARDS].lock().remove(&owner).unwrap_or_default();
            for weak in list.into_iter().filter(|weak| weak.moved) {
                self.release(owner, self.hash(weak.tree, None), &mut granted);
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
            for weak in self.weak[owner as usize % SHARDS].lock().get(&owner).into_iter().flatten() {
                if weak.modes != 0 {
                    locks.push(HeldLock { tree: weak.tree, key: None, modes: weak.modes });
                }
                if weak.moved {
                    hashes.push(self.hash(weak.tree, None));
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
        // The same in every process, for they are stored.
        locks.sort_unstable_by(|a, b| (a.tree, &a.key).cmp(&(b.tree, &b.key)));
        locks
    }

    /// Gives `owner` locks that it held before a crash; nobody else has any yet that would
    /// conflict.
    pub(crate) fn restore(
        &self,
        owner: TransactionId,
        family: Option<FamilySlot>,
        locks: &[HeldLock],
    ) -> Held {
        const STRONG: Modes = !WEAK;
        let mut held = Held::default();
        for lock in locks {
            let key = lock.key.as_deref();
            if key.is_none() && lock.modes & STRONG != 0 {
                self.announce(lock.tree);
                held.strong.push(lock.tree);
            }
            if key.is_none() && lock.modes & STRONG == 0 {
                let weak = [TreeMode::Read, TreeMode::RowShare, TreeMode::Write];
                for mode in weak.into_iter().filter(|mode| Mode::Tree(*mode).bit() & lock.modes != 0) {
                    self.try_tree(owner, &mut held, lock.tree, mode);
                }
                continue;
            }
            let hash = self.hash(lock.tree, key);
            let mut rows = self.shard(hash).lock();
            let queue = &mut entry(&mut rows, hash, lock.tree, key).queue;
            queue.hold(owner, lock.modes, family.filter(|_| key.is_some()));
            queue.note_leaving(owner);
            held.hashes.push(hash);
        }
        held
    }

    fn release(&self, owner: TransactionId, hash: u64, granted: &mut Granted) {
        let mut rows = self.shard(hash).lock();
        // One look-up: the end of a large transaction is mostly this.
        let Occupied(mut bucket) = rows.entry(hash) else { return };
        for entry in bucket.get_mut().iter_mut() {
            entry.queue.release(owner, granted);
        }
        bucket.get_mut().retain(|e| !e.queue.is_unused());
        if bucket.get().is_empty() {
            bucket.remove();
        }
    }
}

impl Queues for LockTable {
    fn blockers(&self, standing: &Standing, waiter: TransactionId, whom: Whom, asked: &mut Asked) -> bool {
        let told = self.with_queue(standing, |queue| queue.blockers(waiter, standing.mode, whom, asked));
        told.unwrap_or_default()
    }

    fn sketch(&self, standing: &Standing) -> Option<Queue<()>> {
        self.with_queue(standing, |queue| queue.sketch())
    }
}

pub(super) fn entry<'a>(rows: &'a mut Rows, hash: u64, tree: TreeId, key: Option<&[u8]>) -> &'a mut Entry {
    let bucket = rows.entry(hash).or_default();
    let found = bucket.iter().position(|e| e.tree == tree && e.key.as_deref() == key);
    let index = found.unwrap_or_else(|| {
        bucket.push(Entry { tree, key: key.map(KeyBuf::from_slice), queue: Queue::new() });
        bucket.len() - 1
    });
    &mut bucket[index]
}

pub(super) fn sweep(rows: &mut Rows, hash: u64) {
    if let Some(bucket) = rows.get_mut(&hash) {
        bucket.retain(|e| !e.queue.is_unused());
        if bucket.is_empty() {
            rows.remove(&hash);
        }
    }
}
