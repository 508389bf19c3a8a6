//! Prepared transactions: everything of them is decided but whether they commit.
//!
//! PREPARE TRANSACTION and PREPARE MIP end a transaction as an activity and leave it as
//! a *promise*: its writes are durable and invisible, its locks are held, the certifier counts it
//! as committed, and whoever decides, whenever that is, cannot be refused. A crash changes nothing
//! of that.
//!
//! # One record each
//!
//! *Prepare* is an ordinary commit record that writes one row into the engine's own tree of
//! prepared transactions (`own`, `record`): owner, note, locks, reads, writes; of an instance also
//! the family's request and its result. *Commit prepared* is a record that names the prepared one,
//! and deletes the row; replay finds the writes in the row. *Rollback prepared* only deletes the
//! row. So checkpoints need not know of prepared transactions: the row is a row.
//!
//! ```text
//! record 7   row 31 = {'order 5', locks, reads, a := 1, b := 2}      PREPARE TRANSACTION 'order 5'
//! record 8   x := 9                                                  somebody else
//! record 9   of 31: a := 1, b := 2; row 31 deleted                   COMMIT PREPARED 'order 5': versions 9 of a and b
//! ```
//!
//! # Who came after it
//!
//! If somebody commits who replaced what a prepared transaction P read, P must come before him, and
//! before all who read what he wrote. The graph knows; a crash forgets the graph. So the first time
//! that this happens a *mark* is logged just before that commit; and if he had committed already
//! when P was prepared, after P's snapshot, the record that prepares P has the mark. What a crash
//! leaves prepared and marked has, for the certifier, everybody behind it: who would have to come
//! before it is refused until it is decided. Without a mark nothing is lost. Where a database is
//! opened without a certifier, nobody would notice, and what has reads is marked at once.
//!
//! # Order
//!
//! An owner is reserved in the table before anything is logged, so it is never given twice. Who
//! decides takes the transaction out of the table first: nobody else can decide it meanwhile; if
//! the log refuses, it is put back.
//!
//! At a node of a cluster the same is done with what the order of all nodes says (`ordered`).
//!
//! Mutex order: the table's three mutexes are taken alone, one after the other; a shard of families
//! may be held.

mod decision;
pub(crate) mod ordered;
pub(crate) mod record;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cognate_env::Clock;
use foldhash::fast::RandomState;

use crate::key::SmallKey;
use crate::own::{PREPARED_TREE, prepared_key};
pub use record::Owner;

use crate::sequencer::Pending;
use crate::storage::StagedRun;
use crate::sync::Mutex;
use crate::txn::writeset::WriteSet;
use crate::{Csn, Error, Key, TransactionId, TreeId, Value};

/// What the world sees of a prepared transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedInfo {
    /// Its id, under which its locks are listed.
    pub transaction: TransactionId,
    /// By what it is found.
    pub owner: Owner,
    /// What the caller gave for keeping.
    pub note: Value,
    /// When it was prepared: wall clock, microseconds since 1970.
    pub prepared_us: i64,
    /// Time since then by the wall clock, and at least the time for which this process has known
    /// of it: wall clocks are set, and those of nodes differ.
    pub age: Duration,
    /// How many locks it holds.
    pub locks: usize,
}

impl PreparedInfo {
    /// Tree and key of the row that has what it writes: for who finds that this makes no sense.
    pub fn row(&self) -> (TreeId, Key) {
        (PREPARED_TREE, Key::copy_from_slice(&prepared_key(self.transaction)))
    }
}

/// A prepared transaction.
pub(crate) struct Prepared {
    note: Value,
    /// What its client calls it, at a node of a cluster.
    name: Option<Box<str>>,
    prepared_us: i64,
    /// Since when this process has known of it, by the clock that nobody sets.
    known_since: Duration,
    /// The number of the record that prepared it.
    csn: Csn,
    locks: usize,
    part: Pending,
    /// What it has of the budget.
    _writes: Option<WriteSet>,
}

/// All prepared transactions; `None` stands for one that is on its way.
#[derive(Default)]
pub(crate) struct PreparedTable {
    known: Mutex<HashMap<Owner, Option<Prepared>, RandomState>>,
    decisions: Mutex<Decisions>,
    /// Loads of those that were rolled back, and the number of the record that says so: until that
    /// is durable a crash brings them back, and they need what they had loaded.
    left: Mutex<Vec<(Csn, Vec<StagedRun>)>>,
}

#[derive(Debug, Default)]
struct Decisions {
    count: u64,
    /// Who waits for the next one: by who came first.
    waiters: BTreeMap<u64, Waker>,
    /// How many have come.
    came: u64,
}

impl PreparedTable {
    /// Keeps an owner for a transaction that is about to be prepared.
    fn reserve(&self, owner: &Owner) -> Result<(), Error> {
        match self.known.lock().entry(owner.clone()) {
            std::collections::hash_map::Entry::Occupied(_) => Err(Error::AlreadyPrepared),
            std::collections::hash_map::Entry::Vacant(vacant) => {
                vacant.insert(None);
                Ok(())
            }
        }
    }

    fn unreserve(&self, owner: &Owner) {
        self.known.lock().remove(owner);
    }

    fn enter(&self, owner: Owner, prepared: Prepared) {
        self.known.lock().insert(owner, Some(prepared));
    }

    /// Takes a transaction out, and leaves its owner reserved.
    fn take(&self, owner: &Owner) -> Option<Prepared> {
        self.known.lock().get_mut(owner)?.take()
    }

    /// The note and the number of a prepared transaction.
    pub(crate) fn note(&self, owner: &Owner) -> Option<(Value, Csn)> {
        let known = self.known.lock();
        let prepared = known.get(owner)?.as_ref()?;
        Some((prepared.note.clone(), prepared.csn))
    }

    /// By what the outcome of a prepared transaction is asked for: what its client calls it, or its
    /// id.
    pub(crate) fn name(&self, owner: &Owner) -> Option<String> {
        let known = self.known.lock();
        let prepared = known.get(owner)?.as_ref()?;
        Some(prepared.name.as_deref().map_or_else(|| prepared.part.id.to_string(), str::to_owned))
    }

    /// What a prepared transaction writes in one tree.
    pub(crate) fn rows(&self, owner: &Owner, tree: TreeId) -> Vec<(Key, Option<Value>)> {
        let known = self.known.lock();
        let Some(Some(prepared)) = known.get(owner) else { return Vec::new() };
        let of_tree = prepared.part.changes.iter().filter(|(of, _)| *of == tree);
        let row = |(key, value): (&SmallKey, Option<&Value>)| (Key::copy_from_slice(key), value.cloned());
        of_tree.flat_map(|(_, changes)| changes.iter().map(row)).collect()
    }

    /// Those that are prepared, by id.
    pub(crate) fn list(&self, clock: &dyn Clock) -> Vec<PreparedInfo> {
        let (now_us, now) = (clock.wall_us(), clock.monotonic());
        let known = self.known.lock();
        let info = |(owner, prepared): (&Owner, &Option<Prepared>)| {
            let prepared = prepared.as_ref()?;
            let by_wall = u64::try_from(now_us - prepared.prepared_us).unwrap_or(0);
            Some(PreparedInfo {
                transaction: prepared.part.id,
                owner: owner.clone(),
                note: prepared.note.clone(),
                prepared_us: prepared.prepared_us,
                age: Duration::from_micros(by_wall).max(now.saturating_sub(prepared.known_since)),
                locks: prepared.locks,
            })
        };
        let mut all: Vec<PreparedInfo> = known.iter().filter_map(info).collect();
        all.sort_unstable_by_key(|info| info.transaction);
        all
    }

    /// Ids of those that are prepared; `None` while one is on its way in or out.
    pub(crate) fn ids(&self) -> Option<Vec<TransactionId>> {
        let known = self.known.lock();
        known.values().map(|prepared| prepared.as_ref().map(|prepared| prepared.part.id)).collect()
    }

    /// Keeps what was loaded by one that is rolled back by record `csn`.
    fn leave(&self, csn: Csn, loads: Vec<StagedRun>) {
        if !loads.is_empty() {
            self.left.lock().push((csn, loads));
        }
    }

    /// What nobody can need any more, now that so much is durable.
    fn take_left(&self, durable: Csn) -> Vec<StagedRun> {
        let mut left = self.left.lock();
        left.extract_if(.., |(csn, _)| *csn <= durable).flat_map(|(_, loads)| loads).collect()
    }

    /// Decisions so far.
    pub(crate) fn decisions(&self) -> u64 {
        self.decisions.lock().count
    }

    /// Resolves once there were more than `known` decisions.
    pub(crate) fn decided_since(&self, known: u64) -> DecidedSince<'_> {
        DecidedSince { table: self, known, place: None }
    }

    fn note_decision(&self) {
        let waiters = {
            let mut decisions = self.decisions.lock();
            decisions.count += 1;
            std::mem::take(&mut decisions.waiters)
        };
        waiters.into_values().for_each(Waker::wake);
    }
}

/// See [`PreparedTable::decided_since`]. Who gives up is forgotten: what is in doubt may stay so,
/// and others may wait for it again and again.
pub(crate) struct DecidedSince<'a> {
    table: &'a PreparedTable,
    known: u64,
    /// Its place among those who wait.
    place: Option<u64>,
}

impl Future for DecidedSince<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let DecidedSince { table, known, place } = &mut *self;
        let mut decisions = table.decisions.lock();
        if decisions.count > *known {
            return Poll::Ready(());
        }
        let number = *place.get_or_insert_with(|| {
            decisions.came += 1;
            decisions.came
        });
        let before = decisions.waiters.insert(number, context.waker().clone());
        drop(decisions);
        // Whatever ends with it looks at nothing that is locked here.
        drop(before);
        Poll::Pending
    }
}

impl Drop for DecidedSince<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let waker = self.table.decisions.lock().waiters.remove(&place);
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_up_waiting_for_a_decision_is_forgotten() {
        let table = PreparedTable::default();
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            let mut waiting = table.decided_since(0);
            assert!(Pin::new(&mut waiting).poll(&mut context).is_pending());
            assert!(Pin::new(&mut waiting).poll(&mut context).is_pending());
            assert_eq!(table.decisions.lock().waiters.len(), 1, "polled again it is the same one");
        }
        assert!(table.decisions.lock().waiters.is_empty());
        let mut waiting = table.decided_since(0);
        assert!(Pin::new(&mut waiting).poll(&mut context).is_pending());
        table.note_decision();
        assert!(Pin::new(&mut waiting).poll(&mut context).is_ready());
        assert!(table.decisions.lock().waiters.is_empty());
    }
}
