//! The sequencer: the one place where anything gets its number and becomes part of the database.
//!
//! Steps 6 and 7 of the corridor in ARCHITECTURE.md; those below are the sequencer's own.
//!
//! Commits, PREPARE, decisions and the engine's own rows are [`Entry`]s, and there is one way in:
//! [`Sequencer::append`]. The steps are the same for all of them:
//!
//! 1. *Record.* The entry is encoded into a log record's payload, outside every lock. If the graph
//!    is due to be pruned, the oldest snapshot is looked up, too.
//! 2. *Order.* The commit mutex. On a single node the log is the total order; a replication
//!    protocol takes its place between 1 and 2, and hands over entries in the order in which it
//!    delivers them.
//! 3. *Verdict.* The certifier, which lies in this mutex: test and number assignment are one step.
//!    (First updater wins was enforced by row locks before.) The answer is a token that only what
//!    follows can consume. A decision cannot be refused.
//! 4. *Number.* The log takes the record and answers its ordinal: the commit sequence number. With
//!    it the token is admitted to the graph.
//! 5. *Versions.* Staged runs are attached to the base for this number, versions are installed in
//!    memory, then the visible mark moves to the number. Still under the mutex: so the mark moves
//!    in order, and whoever sees the mark sees all versions up to it.
//! 6. The mutex is free; the log thread is woken. Who commits releases the locks before
//!    ([`Sequencer::append_quietly`]): waking is a system call, and who is woken may take the
//!    processor of who wakes, while others wait for a row.
//!
//! ```text
//!            outside             under the commit mutex                                      outside
//! Commit     encode, candidate   certify · overtaken? → queue → admit     · install · show   nudge
//! Prepare    encode, candidate   certify · overtaken? → queue → promise   · install · show   nudge
//! Decide     encode              overtaken?           → queue → fulfil    · install · show   nudge
//! Own        encode                                     queue             · install · show   nudge
//! ```
//!
//! # A reader's commit
//!
//! What wrote nothing gets no number, but its reads must fit into a serial order too. If the graph
//! has nothing that was committed before its snapshot (`quiet_below`), nothing can lead to it, so
//! it is in no cycle, now or later, and ends without the mutex; unless the graph was pruned beyond
//! the snapshot, as it is at a node whose horizon does not wait for that any more (`order`): then
//! the order is asked, which refuses it. What read one key only ends without the mutex, too: it
//! comes after the writer of that version and before the next writer of the key, and these two have
//! an edge of their own, so every cycle through it is one without it. That does not hold where real
//! time counts, too (`certifier::search`).
//!
//! # A defect in here
//!
//! Who panics under the mutex leaves a graph, or versions, that nobody can trust. So the panic is
//! caught, the mutex stays closed for ever, and the log stops as after a failed flush: the entry is
//! refused, and all later ones; readers go on below what is visible and durable. The certifier
//! relies on that where it asserts that its graph is whole.
//!
//! Mutex order: commit, then the base store's `state` and the list of views (only for a commit with
//! staged runs), then a tree's lock, then the snapshot registry's, then the log's. Lock-table
//! mutexes are never taken with any of these held: whoever appends releases the locks afterwards.

mod entry;
mod ordered;
mod payloads;
#[cfg(test)]
mod tests;
mod verdicts;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(crate) use entry::{Decision, Delivery, Entry, Pending, Preparation, Rest, Writing};
pub(crate) use ordered::Place;
use ordered::check_mixing;

use crate::certifier::{Candidate, Certified, Certifier, Cycle, Method, Removed};
use crate::durable::DurableWait;
use crate::late::Late;
use crate::lock::table::Held;
use crate::own::{OwnRow, PREPARED_TREE, overtaken_key};
use crate::pressure::RoundWait;
use crate::storage::StagedRun;
use crate::store::Store;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{CachePadded, Mutex, spin};
use crate::txn::writeset::Changes;
use crate::{Csn, Error, TransactionId, TreeId, Value};

/// The graph is pruned after so many commits, and if it takes more memory than it may, after a
/// quarter of them: often where schedules are explored, since a test has few.
const PRUNE_EVERY: u64 = if cfg!(feature = "shuttle") { 2 } else { 64 };

/// See the module's prose.
pub(crate) struct Sequencer {
    store: Arc<Store>,
    method: Method,
    /// The commit mutex.
    order: CachePadded<Mutex<Order>>,
    graph: CachePadded<Graph>,
    /// Present if locks are released late.
    late: Option<Arc<Late>>,
    /// Entries and readers refused by the certifier.
    cycles: AtomicU64,
}

/// What the commit mutex protects.
struct Order {
    certifier: Certifier,
    /// Somebody panicked in here.
    is_broken: bool,
}

/// What is known of the certifier's graph without its mutex.
#[derive(Debug)]
struct Graph {
    /// It has no transaction that a snapshot below this shows.
    quiet_below: AtomicU64,
    /// Of what was committed up to here it may have forgotten what those below depend on. In a
    /// database of its own nobody is below.
    pruned_upto: AtomicU64,
    /// Whether who commits next shall prune it.
    prune_due: AtomicBool,
}

impl Sequencer {
    /// One with an empty graph that may take `certifier_bytes`.
    pub(crate) fn new(
        store: Arc<Store>,
        method: Method,
        certifier_bytes: u64,
        early_release: bool,
    ) -> Sequencer {
        let last = store.log.last();
        let certifier = Certifier::new(method, certifier_bytes as usize);
        Sequencer {
            store,
            method,
            order: CachePadded::new(Mutex::new(Order { certifier, is_broken: false })),
            graph: CachePadded::new(Graph {
                quiet_below: AtomicU64::new(Csn::MAX),
                pruned_upto: AtomicU64::new(0),
                prune_due: AtomicBool::new(false),
            }),
            late: (!early_release).then(|| Arc::new(Late::new(last))),
            cycles: AtomicU64::new(0),
        }
    }

    /// Gives the entry its place in the order, or refuses it. The answer is its number; it is in
    /// the log and visible then, and not yet durable. On an error nothing has happened, unless the
    /// error is the log's: then nobody knows.
    ///
    /// # Errors
    /// `DependencyCycle`, except for decisions and own rows; `LogPoisoned`, `ShuttingDown`,
    /// `TransactionTooLarge`.
    #[inline]
    pub(crate) fn append(&self, entry: Entry<'_, '_>) -> Result<Csn, Error> {
        let (verdict, _rest) = self.append_quietly(entry);
        verdict
    }

    /// As [`Sequencer::append`]; but the log thread may sleep on until the rest is dropped. That is
    /// to be soon: whoever has seen what this made visible waits for it.
    #[inline]
    pub(crate) fn append_quietly(&self, entry: Entry<'_, '_>) -> (Result<Csn, Error>, Rest<'_>) {
        let mut removed = Removed::default();
        let verdict = match entry {
            Entry::Commit(commit) => self.commit(commit, &mut removed),
            Entry::Prepare(preparation) => self.prepare(preparation, &mut removed),
            Entry::Decide(decision) => self.decide(decision, &mut removed),
            Entry::Own(rows) => self.own(rows),
        };
        (verdict, Rest::new(&self.store.log, removed))
    }

    fn commit(&self, commit: &mut Writing<'_>, removed: &mut Removed) -> Result<Csn, Error> {
        let payload = self.encode(commit);
        let prune = self.prune_to();
        self.in_order(|order| {
            let mut certified = self.certify(order, commit.candidate.take())?;
            if let Some(certified) = &mut certified {
                self.mark_overtaken(&certified.overtaken())?;
            }
            let csn = self.number(&payload)?;
            if let Some(certified) = certified {
                certified.admit(csn);
                *removed = self.prune(order, prune);
            }
            self.install(csn, commit.loads, std::mem::take(&mut commit.changes), commit.dropped);
            self.show(csn, commit.id, &mut commit.held);
            Ok(csn)
        })
    }

    fn prepare(&self, preparation: &mut Preparation, removed: &mut Removed) -> Result<Csn, Error> {
        let mut rows = std::mem::take(&mut preparation.rows);
        let mut payload = self.encode_own(preparation.id, false, &mut rows);
        let prune = self.prune_to();
        self.in_order(|order| {
            let certified = self.certify(order, preparation.candidate.take())?;
            // Rare, and known under the mutex only. In the same record: neither is there alone.
            if certified.as_ref().is_some_and(Certified::is_overtaken) {
                rows.push((PREPARED_TREE, overtaken_key(preparation.id), Some(Value::new())));
                payload = self.encode_own(preparation.id, false, &mut rows);
            }
            let csn = self.number(&payload)?;
            if let Some(certified) = certified {
                preparation.promise = certified.admit_prepared(false);
            }
            *removed = self.prune(order, prune);
            self.install_own(csn, rows);
            self.show(csn, preparation.id, &mut None);
            Ok(csn)
        })
    }

    fn decide(&self, decision: &mut Decision<'_>, removed: &mut Removed) -> Result<Csn, Error> {
        let (commits, id) = (decision.commits, decision.id());
        let mut rows = std::mem::take(&mut decision.rows);
        let mut payload = self.encode_own(id, commits, &mut rows);
        let prune = self.prune_to();
        self.in_order(|order| {
            // Rare, and known under the mutex only: the marks go, too.
            let before = rows.len();
            let decided = decision.decided.iter();
            let marked = decided.filter(|one| order.is_marked(&one.promise)).map(|one| overtaken_key(one.id));
            rows.extend(marked.map(|key| (PREPARED_TREE, key, None)));
            if rows.len() > before {
                payload = self.encode_own(id, commits, &mut rows);
            }
            if let Some(winner) = decision.winner() {
                let overtaken = order.overtaken_by(&winner.promise);
                self.mark_overtaken(&overtaken)?;
            }
            let csn = self.number(&payload)?;
            for (place, one) in decision.decided.iter_mut().enumerate() {
                let promise = std::mem::take(&mut one.promise);
                if commits && place == 0 {
                    removed.append(order.fulfil(promise, csn));
                    self.install(csn, &one.loads, std::mem::take(&mut one.changes), &one.dropped);
                } else {
                    removed.append(order.withdraw(promise));
                }
            }
            removed.append(self.prune(order, prune));
            self.install_own(csn, rows);
            self.show_decided(csn, decision);
            Ok(csn)
        })
    }

    /// The next place in the order of all nodes is this one's: judges its reads, and shows what it
    /// changed. `grant` takes its locks, once it is known that it commits and before anybody can
    /// see what it wrote. Up to `horizon` the graph is pruned.
    ///
    /// # Errors
    /// `DependencyCycle`, `SerializationFailure`; `LogPoisoned`.
    pub(crate) fn deliver(
        &self,
        csn: Csn,
        delivery: Delivery<'_>,
        horizon: Option<Csn>,
        grant: impl FnOnce(),
    ) -> Result<(), Error> {
        let Delivery { candidate, mixing, changes, dropped, bytes } = delivery;
        let removed = self.in_order(|order| {
            if let Some(certified) = self.certify(order, candidate)? {
                check_mixing(&certified, mixing.as_ref())?;
                certified.admit(csn);
            }
            // Before it is shown: who sees it must not take the graph for empty.
            let removed = self.prune(order, horizon);
            grant();
            self.store.log.follow(csn, bytes)?;
            self.install(csn, &[], changes, dropped);
            self.store.show(csn);
            Ok(removed)
        })?;
        drop(removed);
        Ok(())
    }

    /// The next place in the order of all nodes is that of a request that does not commit.
    ///
    /// # Errors
    /// `LogPoisoned`.
    pub(crate) fn pass(&self, csn: Csn, bytes: u64) -> Result<(), Error> {
        self.in_order(|_| {
            self.store.log.follow(csn, bytes)?;
            self.store.show(csn);
            Ok(())
        })
    }

    fn own(&self, mut rows: Vec<OwnRow>) -> Result<Csn, Error> {
        let payload = self.encode_own(0, false, &mut rows);
        self.in_order(|_| self.place_own(&payload, rows))
    }

    /// Steps 4 and 5 of a record of own rows.
    fn place_own(&self, payload: &[u8], rows: Vec<OwnRow>) -> Result<Csn, Error> {
        let csn = self.number(payload)?;
        self.install_own(csn, rows);
        self.show(csn, 0, &mut None);
        Ok(csn)
    }

    /// Runs a step under the commit mutex. If it panics, it was the last.
    #[inline]
    fn in_order<R>(&self, step: impl FnOnce(&mut Certifier) -> Result<R, Error>) -> Result<R, Error> {
        let mut order = spin::lock(&self.order);
        if order.is_broken {
            return Err(self.refuse_all());
        }
        let certifier = &mut order.certifier;
        match catch_unwind(AssertUnwindSafe(|| step(certifier))) {
            Ok(done) => done,
            Err(_) => {
                order.is_broken = true;
                Err(self.refuse_all())
            }
        }
    }

    /// The log accepts nothing any more, because of a defect here.
    #[cold]
    fn refuse_all(&self) -> Error {
        self.store.log.fail(Error::Defect(
            "the order of commits is broken: a defect, whose message is in the server's log",
        ))
    }

    /// Step 4, the only place where the log takes a record.
    #[inline]
    fn number(&self, payload: &[u8]) -> Result<Csn, Error> {
        self.store.log.queue(&[payload])
    }

    /// Step 3.
    #[inline]
    fn certify<'a>(
        &self,
        certifier: &'a mut Certifier,
        candidate: Option<Candidate>,
    ) -> Result<Option<Certified<'a>>, Error> {
        let Some(candidate) = candidate else { return Ok(None) };
        certifier.certify(candidate).map(Some).map_err(|cycle| self.refused(cycle))
    }

    #[cold]
    fn refused(&self, cycle: Box<Cycle>) -> Error {
        self.cycles.fetch_add(1, Ordering::Relaxed);
        Error::DependencyCycle { cycle: cycle.into() }
    }

    /// Logs, before the commit of who comes after them, that prepared transactions have been
    /// overtaken. Under the mutex. If the log then refuses the commit, because its record is too
    /// long, the mark is one too many; the graph has it, too, and it goes with the decision.
    #[inline]
    fn mark_overtaken(&self, overtaken: &[TransactionId]) -> Result<(), Error> {
        if overtaken.is_empty() {
            return Ok(());
        }
        let mark = |id: &TransactionId| (PREPARED_TREE, overtaken_key(*id), Some(Value::new()));
        let mut rows: Vec<OwnRow> = overtaken.iter().map(mark).collect();
        let payload = self.encode_own(0, false, &mut rows);
        self.place_own(&payload, rows).map(drop)
    }

    /// Step 5 but for the mark: what commit `csn` wrote.
    fn install(&self, csn: Csn, loads: &[StagedRun], changes: Vec<(TreeId, Changes)>, dropped: &[TreeId]) {
        let store = &*self.store;
        if !loads.is_empty() {
            store.base.attach_staged(loads, csn);
            store.views.publish(&store.base);
        }
        for (tree, changes) in changes {
            store.memory.install(tree, csn, changes.into_iter(), &|| store.needs());
        }
        for tree in dropped {
            store.memory.drop_tree(*tree, csn);
        }
    }

    fn install_own(&self, csn: Csn, rows: Vec<OwnRow>) {
        let store = &*self.store;
        let mut rows = rows.into_iter().peekable();
        while let Some(tree) = rows.peek().map(|row| row.0) {
            let of_tree = std::iter::from_fn(|| rows.next_if(|row| row.0 == tree));
            let versions = of_tree.map(|(_, key, value)| (key, value));
            store.memory.install(tree, csn, versions, &|| store.needs());
        }
    }

    /// The end of step 5: shows commit `csn`, now or when it is durable. Locks that are released
    /// then are taken; after a failure they may stay with who commits.
    #[inline]
    fn show(&self, csn: Csn, id: TransactionId, held: &mut Option<Held>) {
        match &self.late {
            None => self.store.show(csn),
            Some(late) => late.queue(csn, id, held),
        }
    }

    fn show_decided(&self, csn: Csn, decision: &mut Decision<'_>) {
        match decision.winner() {
            None => self.show(csn, 0, &mut None),
            Some(winner) => {
                let mut held = Some(std::mem::take(&mut winner.held));
                self.show(csn, winner.id, &mut held);
                winner.held = held.unwrap_or_default();
            }
        }
    }

    /// What shows commits and releases their locks once they are durable, if that is late.
    pub(crate) fn late(&self) -> Option<&Arc<Late>> {
        self.late.as_ref()
    }

    /// The wait until commit `csn` is durable, and for `room`.
    pub(crate) fn wait_durable(&self, csn: Csn, room: Option<RoundWait>) -> DurableWait {
        match &self.late {
            None => DurableWait::log(self.store.log.wait_durable(csn), room),
            Some(late) => DurableWait::late(late.wait(csn), room),
        }
    }
}
