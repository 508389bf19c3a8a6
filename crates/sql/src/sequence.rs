//! Counters that transactions do not roll back: values of sequences, oids, row ids.
//!
//! A counter is handed out from memory. What may have been handed out is stored ahead of use, in
//! blocks, each by a small engine transaction of its own; after a restart a counter goes on where
//! its stored block ends. So numbers are never given twice, and a crash or restart skips at most
//! the rest of a block (32 values of a sequence, as in PostgreSQL).
//!
//! ```text
//! nextval 1    stored: 32     in memory: 1
//! nextval 2    stored: 32     in memory: 2           (no write)
//! restart      stored: 32     nextval gives 33       (a gap)
//! ```
//!
//! A value is safe to show once its block is durable. Whoever commits later waits for a later log
//! record, which is enough; who shows a value without committing waits for
//! [`NextValue::stored_at`].
//!
//! At a node of a cluster a block is ordered among all nodes, and whoever needs one waits for that;
//! so does who comes meanwhile, for the counter's mutex (`blocking`). A `setval` concerns the
//! blocks of all nodes: each is counted in the counter's row, and a node forgets a block if the row
//! counts more of them than when the block was taken. So a node looks at the row whenever that of
//! any counter has changed.
//!
//! ```text
//! node 1: nextval          stored: 32, set 0 times     block 1 to 32
//! node 2: setval 100       stored: 100, set 1 time
//! node 1: nextval          its block is forgotten      block 101 to 132
//! ```
//!
//! Mutexes: the registry's, then one counter's; the engine's are taken inside.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cognate_engine::{Access, Commit, Csn, Database, Isolation, ReadView, Transaction};
use parking_lot::{Mutex, MutexGuard};

use crate::blocking::{poll_for, until_done};
use crate::catalog::{FIRST_USER_OID, Sequence, store};
use crate::error::{Result, SqlError, sqlstate};
use crate::place;
use crate::session::Nodes;

/// Values of a sequence stored ahead of use.
const SEQUENCE_BLOCK: i64 = 32;
/// Oids stored ahead of use.
const OID_BLOCK: u64 = 64;
/// Row ids stored ahead of use.
const ROW_ID_BLOCK: u64 = 1 << 16;

const OID_COUNTER: u32 = 1;
pub(crate) const ROW_ID_COUNTER: u32 = 2;

/// All counters of a database.
pub(crate) struct Counters {
    storage: Storage,
    sequences: Mutex<HashMap<u32, Arc<Mutex<Counter>>>>,
    oids: Allocator,
    row_ids: Allocator,
}

/// Where counters are stored.
struct Storage {
    engine: Database,
    /// Whether anything can be stored at present.
    nodes: Arc<Nodes>,
}

/// A number handed out by nextval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextValue {
    /// The number.
    pub(crate) value: i64,
    /// The commit that stored its block.
    pub(crate) stored_at: Csn,
}

/// A sequence's value in memory.
#[derive(Clone, Copy, Debug)]
struct Counter {
    last: i64,
    is_called: bool,
    /// The last value stored ahead, if any is left before it.
    stored: Option<i64>,
    stored_at: Csn,
    /// At a node: how often it had been set when the block was taken, and up to where that is known
    /// to be so still.
    sets: u32,
    known_at: Csn,
}

impl Counter {
    /// Of which no value is stored ahead.
    fn without_block(last: i64, is_called: bool) -> Counter {
        Counter { last, is_called, stored: None, stored_at: 0, sets: 0, known_at: 0 }
    }

    /// Whether a value that comes next is stored ahead.
    fn covers(&self, sequence: &Sequence, value: i64) -> bool {
        self.stored.is_some_and(|stored| match sequence.increment > 0 {
            true => value > self.last && value <= stored,
            false => value < self.last && value >= stored,
        })
    }
}

/// A counter as it is stored: 8 bytes `last`, lowest first, 1 byte `is_called`, and 4 bytes `sets`,
/// lowest first, if that is not 0. In a database of its own it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The last value that may have been given out, or the next one.
    pub(crate) last: i64,
    /// Which of them.
    pub(crate) is_called: bool,
    /// How often nodes have set it. It may come to 0 again: nobody has a block for so long.
    pub(crate) sets: u32,
}

impl Stored {
    fn of(row: &[u8]) -> Option<Stored> {
        let (last, rest) = row.split_first_chunk::<8>()?;
        let (is_called, sets) = rest.split_first()?;
        let sets = match sets {
            [] => 0,
            sets => u32::from_le_bytes(sets.try_into().ok()?),
        };
        Some(Stored { last: i64::from_le_bytes(*last), is_called: *is_called != 0, sets })
    }

    fn row(self) -> Vec<u8> {
        let mut row = self.last.to_le_bytes().to_vec();
        row.push(u8::from(self.is_called));
        if self.sets != 0 {
            row.extend_from_slice(&self.sets.to_le_bytes());
        }
        row
    }
}

impl Counters {
    /// The counters of this engine.
    pub(crate) fn open(engine: Database, nodes: Arc<Nodes>) -> Result<Counters> {
        let oids = Allocator::open(&engine, OID_COUNTER, u64::from(FIRST_USER_OID), OID_BLOCK)?;
        let row_ids = Allocator::open(&engine, ROW_ID_COUNTER, 1, ROW_ID_BLOCK)?;
        let storage = Storage { engine, nodes };
        Ok(Counters { storage, sequences: Mutex::default(), oids, row_ids })
    }

    /// A fresh oid.
    pub(crate) fn allocate_oid(&self) -> Result<u32> {
        let oid = self.oids.allocate(&self.storage, 1)?;
        u32::try_from(oid)
            .map_err(|_| SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "out of object identifiers"))
    }

    /// The first of `count` fresh row ids.
    pub(crate) fn allocate_row_ids(&self, count: u64) -> Result<u64> {
        self.row_ids.allocate(&self.storage, count)
    }

    fn counter(&self, sequence: &Sequence) -> Result<Arc<Mutex<Counter>>> {
        let mut sequences = self.sequences.lock();
        if let Some(counter) = sequences.get(&sequence.counter) {
            return Ok(counter.clone());
        }
        let counter = match load(&self.storage.engine, sequence.counter)? {
            Some(Stored { last, is_called, .. }) => Counter::without_block(last, is_called),
            None => Counter::without_block(sequence.counter_start, sequence.counter_called),
        };
        let counter = Arc::new(Mutex::new(counter));
        sequences.insert(sequence.counter, counter.clone());
        Ok(counter)
    }

    /// nextval. 2200H at the end of a sequence that does not cycle.
    pub(crate) fn next(&self, sequence: &Sequence) -> Result<NextValue> {
        let counter = self.counter(sequence)?;
        let mut counter = self.storage.lock(&counter)?;
        if self.storage.engine.is_node() {
            return self.next_at_node(sequence, &mut counter);
        }
        let value = match counter.is_called {
            true => successor(sequence, counter.last)?,
            false => counter.last,
        };
        if !counter.covers(sequence, value) {
            let ahead = sequence.increment.saturating_mul(SEQUENCE_BLOCK - 1);
            let stored = value.saturating_add(ahead).clamp(sequence.minimum, sequence.maximum);
            // Only whole steps are ever given out, so the last of the block is a whole number of
            // steps away.
            let stored = value + (stored - value) / sequence.increment * sequence.increment;
            counter.stored_at = self.storage.save(sequence.counter, stored, true)?;
            counter.stored = Some(stored);
        }
        counter.last = value;
        counter.is_called = true;
        Ok(NextValue { value, stored_at: counter.stored_at })
    }

    /// nextval at a node of a cluster. What is not in the node's own block, others may have given
    /// out, or set: so only what is stored tells whether the sequence has come to its end.
    fn next_at_node(&self, sequence: &Sequence, counter: &mut Counter) -> Result<NextValue> {
        self.storage.forget_if_set(sequence.counter, counter)?;
        let next = successor(sequence, counter.last).ok();
        match next.filter(|value| counter.is_called && counter.covers(sequence, *value)) {
            Some(value) => {
                counter.last = value;
                Ok(NextValue { value, stored_at: counter.stored_at })
            }
            None => self.next_block(sequence, counter),
        }
    }

    /// nextval at a node of a cluster whose block is used up: takes the next block behind what any
    /// node has stored. Blocks its thread until that is ordered.
    fn next_block(&self, sequence: &Sequence, counter: &mut Counter) -> Result<NextValue> {
        let (mut value, mut end) = (0, 0);
        let (stored_at, sets) = self.storage.reserve(sequence.counter, |stored| {
            value = after(sequence, stored)?;
            let ahead = sequence.increment.saturating_mul(SEQUENCE_BLOCK - 1);
            let stored = value.saturating_add(ahead).clamp(sequence.minimum, sequence.maximum);
            end = value + (stored - value) / sequence.increment * sequence.increment;
            Ok(end)
        })?;
        let known_at = stored_at;
        *counter = Counter { last: value, is_called: true, stored: Some(end), stored_at, sets, known_at };
        Ok(NextValue { value, stored_at })
    }

    /// setval. The range was checked.
    pub(crate) fn set(&self, sequence: &Sequence, value: i64, is_called: bool) -> Result<NextValue> {
        let counter = self.counter(sequence)?;
        let mut counter = self.storage.lock(&counter)?;
        let stored_at = self.storage.save(sequence.counter, value, is_called)?;
        *counter = Counter { stored_at, ..Counter::without_block(value, is_called) };
        Ok(NextValue { value, stored_at })
    }

    /// `last_value` and `is_called`.
    pub(crate) fn state(&self, sequence: &Sequence) -> Result<(NextValue, bool)> {
        let counter = self.counter(sequence)?;
        if self.storage.engine.is_node() {
            return self.state_at_node(sequence, &counter);
        }
        let counter = counter.lock();
        Ok((NextValue { value: counter.last, stored_at: counter.stored_at }, counter.is_called))
    }

    /// The same at a node of a cluster: where the last block is this node's, the last value of it
    /// that was given out; else all of what is stored, which nodes may have given out. So a
    /// sequence that is set to this gives no number again. Waits for nobody who takes a block.
    fn state_at_node(&self, sequence: &Sequence, counter: &Mutex<Counter>) -> Result<(NextValue, bool)> {
        let own = counter.try_lock().map(|counter| *counter);
        let engine = &self.storage.engine;
        let transaction = engine.begin(Isolation::Snapshot, Access::ReadWrite);
        let stored = read(engine, &transaction, sequence.counter)?;
        let is_last = |own: &Counter| {
            stored.is_some_and(|stored| {
                stored.is_called && own.stored == Some(stored.last) && own.sets == stored.sets
            })
        };
        let (value, is_called) = match (own.filter(is_last), stored) {
            (Some(own), _) => (own.last, own.is_called),
            (None, Some(stored)) => (stored.last, stored.is_called),
            (None, None) => (sequence.counter_start, sequence.counter_called),
        };
        Ok((NextValue { value, stored_at: transaction.snapshot() }, is_called))
    }
}

/// The value behind what is stored: the last one, and whether it was given out.
pub(crate) fn after(sequence: &Sequence, stored: Option<Stored>) -> Result<i64> {
    match stored {
        Some(Stored { last, is_called: true, .. }) => successor(sequence, last),
        Some(Stored { last: next, .. }) => Ok(next),
        None if sequence.counter_called => successor(sequence, sequence.counter_start),
        None => Ok(sequence.counter_start),
    }
}

/// A counter as it is stored.
pub(crate) fn stored(engine: &Database, view: &ReadView, counter: u32) -> Result<Option<Stored>> {
    let row = view.get(store::COUNTER_TREE, &counter.to_be_bytes())?;
    row.map(|row| decode(engine, counter, &row, view.snapshot())).transpose()
}

/// The value behind the last one. 2200H at the end of a sequence that does not cycle.
pub(crate) fn successor(sequence: &Sequence, last: i64) -> Result<i64> {
    let next = last.checked_add(sequence.increment);
    let inside = next.filter(|next| (sequence.minimum..=sequence.maximum).contains(next));
    if let Some(next) = inside {
        return Ok(next);
    }
    let (end, limit, again) = match sequence.increment > 0 {
        true => ("maximum", sequence.maximum, sequence.minimum),
        false => ("minimum", sequence.minimum, sequence.maximum),
    };
    if sequence.cycle {
        return Ok(again);
    }
    Err(SqlError::new(
        sqlstate::SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
        format!("nextval: reached {end} value of sequence \"{}\" ({limit})", sequence.name),
    ))
}

fn load(engine: &Database, counter: u32) -> Result<Option<Stored>> {
    read(engine, &engine.begin(Isolation::Snapshot, Access::ReadWrite), counter)
}

fn read(engine: &Database, transaction: &Transaction, counter: u32) -> Result<Option<Stored>> {
    let row = transaction.get(store::COUNTER_TREE, &counter.to_be_bytes())?;
    row.map(|row| decode(engine, counter, &row, transaction.snapshot())).transpose()
}

/// XX001 with file and offset for a row that is no counter's.
fn decode(engine: &Database, counter: u32, row: &[u8], snapshot: Csn) -> Result<Stored> {
    Stored::of(row).ok_or_else(|| {
        let error = SqlError::new(sqlstate::DATA_CORRUPTED, format!("counter {counter} cannot be read"));
        place::located(engine, store::COUNTER_TREE, &counter.to_be_bytes(), snapshot, error)
    })
}

/// Stores a counter.
pub(crate) fn put(transaction: &mut Transaction, counter: u32, stored: Stored) -> Result<()> {
    Ok(transaction.put(store::COUNTER_TREE, &counter.to_be_bytes(), stored.row().into())?)
}

/// How often a counter was set.
fn sets_of(stored: Option<Stored>) -> u32 {
    stored.map_or(0, |stored| stored.sets)
}

impl Storage {
    /// A counter for this thread alone. At a node somebody else may wait for the order with it.
    fn lock<'a, T>(&self, counter: &'a Mutex<T>) -> Result<MutexGuard<'a, T>> {
        match self.engine.is_node() {
            true => until_done(&self.nodes, |time| counter.try_lock_for(time)),
            false => Ok(counter.lock()),
        }
    }

    fn save(&self, counter: u32, last: i64, is_called: bool) -> Result<Csn> {
        loop {
            let mut transaction = self.engine.begin(Isolation::Snapshot, Access::ReadWrite);
            let sets = match self.engine.is_node() {
                // Blocks that nodes have taken before hold no more.
                true => sets_of(read(&self.engine, &transaction, counter)?).wrapping_add(1),
                false => 0,
            };
            put(&mut transaction, counter, Stored { last, is_called, sets })?;
            match self.commit(transaction)? {
                Ok(commit) => return Ok(commit.csn),
                // Another node's was ordered first; this one is the last word.
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Stores what `next` makes of a counter's stored state, as the next one after it among all
    /// nodes. Says where, and how often the counter had been set then.
    fn reserve(
        &self,
        counter: u32,
        mut next: impl FnMut(Option<Stored>) -> Result<i64>,
    ) -> Result<(Csn, u32)> {
        loop {
            let mut transaction = self.engine.begin(Isolation::Snapshot, Access::ReadWrite);
            let stored = read(&self.engine, &transaction, counter)?;
            let (last, sets) = (next(stored)?, sets_of(stored));
            put(&mut transaction, counter, Stored { last, is_called: true, sets })?;
            match self.commit(transaction)? {
                Ok(commit) => return Ok((commit.csn, sets)),
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// At a node: forgets the rest of a block if the counter was set since it was taken.
    fn forget_if_set(&self, number: u32, counter: &mut Counter) -> Result<()> {
        if counter.stored.is_none() || self.engine.changed_at(store::COUNTER_TREE) <= counter.known_at {
            return Ok(());
        }
        let transaction = self.engine.begin(Isolation::Snapshot, Access::ReadWrite);
        if sets_of(read(&self.engine, &transaction, number)?) != counter.sets {
            counter.stored = None;
        }
        // A change that is about to be shown is behind it, and is looked for again.
        counter.known_at = transaction.snapshot();
        Ok(())
    }

    /// Commits; at a node the thread waits until that is ordered, for a bounded time. If it is
    /// ordered later, the numbers in between are given to nobody.
    fn commit(&self, transaction: Transaction) -> Result<std::result::Result<Commit, cognate_engine::Error>> {
        if !self.engine.is_node() {
            return Ok(transaction.commit());
        }
        self.nodes.check_open()?;
        let mut ordered = pin!(transaction.commit_in_order());
        until_done(&self.nodes, |time| poll_for(ordered.as_mut(), time))
    }
}

/// Numbers from one up, never given twice. Within a block one atomic addition.
struct Allocator {
    counter: u32,
    /// The first number of all.
    first: u64,
    block: u64,
    next: AtomicU64,
    /// Numbers below this are stored as given out.
    limit: AtomicU64,
    refill: Mutex<()>,
}

impl Allocator {
    fn open(engine: &Database, counter: u32, first: u64, block: u64) -> Result<Allocator> {
        let next = load(engine, counter)?.map_or(first, |stored| stored.last as u64);
        let (next, limit) = (AtomicU64::new(next), AtomicU64::new(next));
        Ok(Allocator { counter, first, block, next, limit, refill: Mutex::new(()) })
    }

    fn allocate(&self, storage: &Storage, count: u64) -> Result<u64> {
        if storage.engine.is_node() {
            return self.allocate_in_order(storage, count);
        }
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        let end = first + count;
        if end > self.limit.load(Ordering::Acquire) {
            let _refill = self.refill.lock();
            if end > self.limit.load(Ordering::Acquire) {
                let limit = end + self.block;
                storage.save(self.counter, limit as i64, true)?;
                self.limit.store(limit, Ordering::Release);
            }
        }
        Ok(first)
    }

    /// The same at a node of a cluster: blocks are taken behind what any node has stored. Blocks
    /// its thread until that is ordered.
    fn allocate_in_order(&self, storage: &Storage, count: u64) -> Result<u64> {
        let _refill = storage.lock(&self.refill)?;
        let (next, limit) = (self.next.load(Ordering::Relaxed), self.limit.load(Ordering::Acquire));
        if next + count <= limit {
            self.next.store(next + count, Ordering::Relaxed);
            return Ok(next);
        }
        let (mut first, mut end) = (0, 0);
        storage.reserve(self.counter, |stored| {
            first = stored.map_or(self.first, |stored| stored.last as u64).max(self.first);
            end = first + count + self.block;
            Ok(end as i64)
        })?;
        self.next.store(first + count, Ordering::Relaxed);
        self.limit.store(end, Ordering::Release);
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use cognate_engine::Options;
    use cognate_env::sim::SimDisk;

    use super::*;

    /// As whoever executes what every node executes finds it.
    #[test]
    fn a_counter_that_cannot_be_read_is_named_also_by_a_view() {
        let options = Options { disk: SimDisk::new(1).handle(), ..Options::new("data") };
        let engine = Database::open(options).unwrap();
        let mut spoiling = engine.begin(Isolation::Snapshot, Access::ReadWrite);
        spoiling.put(store::COUNTER_TREE, &7_u32.to_be_bytes(), vec![1, 2].into()).unwrap();
        engine.wait_durable(spoiling.commit().unwrap().csn).wait().unwrap();
        let looking = engine.begin(Isolation::Snapshot, Access::ReadWrite);
        let error = stored(&engine, &looking.view(), 7).unwrap_err();
        assert_eq!(error.sqlstate, sqlstate::DATA_CORRUPTED);
        assert!(error.detail.as_ref().is_some_and(|detail| detail.contains(".log, at byte ")), "{error:?}");
        assert_eq!(stored(&engine, &looking.view(), 8).unwrap(), None);
    }

    /// A row of a database that has never been a node's has no count, also that of an older build.
    #[test]
    fn a_counter_is_read_as_it_was_stored() {
        let never_set = Stored { last: -2, is_called: true, sets: 0 };
        assert_eq!(never_set.row(), [0xfe, 255, 255, 255, 255, 255, 255, 255, 1]);
        let set_often = Stored { last: 258, is_called: false, sets: 1 << 20 | 128 };
        assert_eq!(set_often.row(), [2, 1, 0, 0, 0, 0, 0, 0, 0, 128, 0, 16, 0]);
        for counter in [never_set, set_often] {
            assert_eq!(Stored::of(&counter.row()), Some(counter));
            assert_eq!(Stored::of(&counter.row()[..8]), None);
            assert_eq!(Stored::of(&[&counter.row()[..], &[0]].concat()), None);
        }
    }
}
