//! The database as all sessions share it.
//!
//! The committed catalog changes only in [`SqlDatabase::commit_with_catalog`]. A statement finds
//! out with one atomic load whether a plan was made for the present catalog: `catalog_state` is
//! twice its version, plus one while a change is being published. A commit raises that bit before
//! the engine lets go of its locks, and takes it away once the new catalog is in place; so whoever
//! gets a table's lock after a change to the table sees the change, or waits for the moment it
//! takes.
//!
//! What changes one session's temporary objects concerns that session alone: others go on with
//! their plans, and with snapshots from before. So there are two such numbers, and two of the commit
//! that last changed the catalog: one of each for all changes, and one for those that are *shared*.
//! A session compares the latter, or those of its own last change if that is later.
//!
//! Mutexes: `publishing`, then the engine's; none is taken while `left_behind` is held.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use cognate_engine::{Access, Commit, Csn, Database, Isolation, ReadView, Transaction};
use cognate_env::Clock;
use parking_lot::Mutex;

use super::active::Programs;
use super::failures::Failures;
use super::plan_cache::PlanCache;
use super::presence::Presence;
use super::temporary::Temporary;
use crate::budget::Budget;
use crate::catalog::{Catalog, Changes, Object, Oid, store};
use crate::error::Result;
use crate::monitor::Monitor;
use crate::place;
use crate::sequence::Counters;

/// Microseconds from 1970-01-01 to 2000-01-01.
pub(super) const EPOCH_US: i64 = 946_684_800_000_000;

/// A SQL database over an engine. Clones share it.
#[derive(Clone)]
pub struct SqlDatabase {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Database,
    /// Whether others change what is stored here.
    is_node: bool,
    clock: Arc<dyn Clock>,
    /// When it was opened, as [`SqlDatabase::now`] tells.
    started: i64,
    catalog: ArcSwap<Catalog>,
    catalog_state: AtomicU64,
    /// The commit that last changed the catalog.
    catalog_csn: AtomicU64,
    /// The same of the last shared change.
    shared_state: AtomicU64,
    shared_csn: AtomicU64,
    publishing: Mutex<()>,
    /// Statements and batches that were run again.
    retries: AtomicU64,
    refreshes: AtomicU64,
    failures: Failures,
    presence: Presence,
    counters: Counters,
    plans: PlanCache,
    /// Of what every node executes, planned alike.
    programs_plans: PlanCache,
    bodies: super::Bodies,
    healing: super::Healing,
    nodes: super::Nodes,
    programs: Programs,
    protocols: super::Protocols,
    monitor: Monitor,
    advisory: super::AdvisoryShared,
    channels: super::Channels,
    /// Schemas of temporary objects whose sessions are no more.
    left_behind: Mutex<Vec<Oid>>,
    /// Memory of what statements are, not of what they compute.
    statements: Arc<Budget>,
}

impl SqlDatabase {
    /// Opens the SQL layer over an engine and reads the catalog. XX001 if it cannot be read.
    pub fn open(engine: Database) -> Result<SqlDatabase> {
        SqlDatabase::open_with_clock(engine, Arc::new(cognate_env::RealClock::default()))
    }

    /// The same with a clock of the caller's.
    pub fn open_with_clock(engine: Database, clock: Arc<dyn Clock>) -> Result<SqlDatabase> {
        let objects = stored_objects(&engine, &engine.begin(Isolation::Snapshot, Access::ReadWrite))?;
        let statements = usize::try_from(engine.memory_bytes() / 2).unwrap_or(usize::MAX);
        let shared = Shared {
            counters: Counters::open(engine.clone())?,
            is_node: engine.is_node(),
            engine,
            started: clock.wall_us() - EPOCH_US,
            clock,
            catalog: ArcSwap::from_pointee(Catalog::new(1, objects)),
            catalog_state: AtomicU64::new(1 << 1),
            catalog_csn: AtomicU64::new(0),
            shared_state: AtomicU64::new(1 << 1),
            shared_csn: AtomicU64::new(0),
            publishing: Mutex::new(()),
            retries: AtomicU64::new(0),
            refreshes: AtomicU64::new(0),
            failures: Failures::default(),
            presence: Presence::default(),
            plans: PlanCache::default(),
            programs_plans: PlanCache::default(),
            bodies: super::Bodies::default(),
            healing: super::Healing::default(),
            nodes: super::Nodes::default(),
            programs: Programs::default(),
            protocols: super::Protocols::default(),
            monitor: Monitor::new(),
            advisory: super::AdvisoryShared::default(),
            channels: super::Channels::default(),
            left_behind: Mutex::default(),
            statements: Budget::new(statements),
        };
        let database = SqlDatabase { shared: Arc::new(shared) };
        if !database.engine().is_node() {
            database.note_left_behind(|_| false);
            database.sweep_now();
            // The first snapshots are to have that, durable or not.
            let shared = &*database.shared;
            shared.shared_csn.store(database.catalog_csn(), Ordering::Release);
        }
        Ok(database)
    }

    /// The engine below.
    pub fn engine(&self) -> &Database {
        &self.shared.engine
    }

    /// Memory that statements share for what they are: trees of long texts, large parameters.
    pub(crate) fn statement_budget(&self) -> &Arc<Budget> {
        &self.shared.statements
    }

    /// What all sessions have of advisory locks.
    pub(crate) fn advisory(&self) -> &super::AdvisoryShared {
        &self.shared.advisory
    }

    /// Who listens on which channels.
    pub(crate) fn channels(&self) -> &super::Channels {
        &self.shared.channels
    }

    /// Schemas of temporary objects whose sessions are no more.
    pub(super) fn left_behind(&self) -> &Mutex<Vec<Oid>> {
        &self.shared.left_behind
    }

    /// How families that were left prepared heal.
    pub fn healing(&self) -> &super::Healing {
        &self.shared.healing
    }

    /// What is known of the cluster that this is a node of.
    pub fn nodes(&self) -> &super::Nodes {
        &self.shared.nodes
    }

    /// Programs of this node's sessions that are on their way.
    pub(crate) fn programs(&self) -> &Programs {
        &self.shared.programs
    }

    /// How many transactions of this node have come to their ends, by protocol.
    pub(crate) fn ended(&self) -> &super::Protocols {
        &self.shared.protocols
    }

    /// What chooses the protocols of transactions in a cluster.
    pub fn monitor(&self) -> &Monitor {
        &self.shared.monitor
    }

    /// The newest committed catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.follow();
        if self.catalog_state() & 1 != 0 {
            drop(self.shared.publishing.lock());
        }
        self.shared.catalog.load_full()
    }

    /// The catalog as a transaction sees it at its snapshot, which is older than the present one.
    pub(crate) fn catalog_at(&self, view: &ReadView) -> Result<Catalog> {
        let mut scan = view.scan(store::CATALOG_TREE, Bound::Unbounded, Bound::Unbounded, false)?;
        let mut objects = Vec::new();
        while let Some((key, document)) = scan.next()? {
            objects.push(decode(self.engine(), &key, &document, view.snapshot())?);
        }
        Ok(Catalog::new(0, objects))
    }

    /// Equal to what it was: the catalog is still the same. See the module's prose.
    pub(crate) fn catalog_state(&self) -> u64 {
        self.follow();
        self.shared.catalog_state.load(Ordering::Acquire)
    }

    /// The same as a session compares it, whose own temporary objects are these.
    #[inline]
    pub(crate) fn state_for(&self, own: &Temporary) -> u64 {
        self.follow();
        let shared = self.shared.shared_state.load(Ordering::Acquire);
        // A change that is being published goes before what the session has done later.
        if shared & 1 == 0 { shared.max(own.state()) } else { shared }
    }

    /// The catalog, and the state it stands for to such a session.
    pub(crate) fn catalog_for(&self, own: &Temporary) -> (Arc<Catalog>, u64) {
        let catalog = self.catalog();
        let state = (catalog.shared_version() << 1).max(own.state());
        (catalog, state)
    }

    /// The commit that last changed the catalog for such a session: a snapshot before it may not fit
    /// what it sees.
    #[inline]
    pub(crate) fn changed_for(&self, own: &Temporary) -> Csn {
        self.shared.shared_csn.load(Ordering::Acquire).max(own.changed_at())
    }

    /// The catalog and the state it stands for.
    pub(crate) fn catalog_with_state(&self) -> (Arc<Catalog>, u64) {
        let catalog = self.catalog();
        let state = catalog.version() << 1;
        (catalog, state)
    }

    /// The commit that last changed the catalog: a snapshot before it may not fit the catalog.
    pub(crate) fn catalog_csn(&self) -> Csn {
        self.shared.catalog_csn.load(Ordering::Acquire)
    }

    /// Commits a transaction that changed the catalog, and publishes the change. `own` are the
    /// temporary objects of its session.
    pub(crate) fn commit_with_catalog(
        &self,
        transaction: Transaction,
        changes: &Changes,
        own: &Temporary,
    ) -> Result<Commit, cognate_engine::Error> {
        self.publish(changes, Some(own), || transaction.commit())
    }

    /// Commits a prepared transaction; what it changed in the catalog is published.
    pub(crate) fn commit_prepared(
        &self,
        identifier: &str,
    ) -> Result<std::result::Result<Commit, cognate_engine::Error>> {
        let engine = self.engine();
        let mut changes = Changes::new();
        for (key, document) in engine.prepared_rows(identifier, store::CATALOG_TREE) {
            let object = document.map(|document| store::decode(&document)).transpose()?;
            changes.insert(store::oid_of(&key)?, object);
        }
        let commit = || engine.commit_prepared(identifier);
        Ok(if changes.is_empty() { commit() } else { self.publish(&changes, None, commit) })
    }

    /// At a node of a cluster the catalog changes by what is delivered, also for who changed it: who
    /// looks at it next takes it over.
    #[inline]
    fn follow(&self) {
        let shared = &*self.shared;
        if shared.is_node && shared.engine.changed_at(store::CATALOG_TREE) > self.catalog_csn() {
            self.take_over();
        }
    }

    #[cold]
    fn take_over(&self) {
        let shared = &*self.shared;
        let _publishing = shared.publishing.lock();
        loop {
            let changed = shared.engine.changed_at(store::CATALOG_TREE);
            if changed <= self.catalog_csn() {
                return;
            }
            let transaction = shared.engine.begin(Isolation::Snapshot, Access::ReadWrite);
            if transaction.snapshot() < changed {
                // It is being shown.
                std::thread::yield_now();
                continue;
            }
            let objects = match stored_objects(&shared.engine, &transaction) {
                Ok(objects) => objects,
                Err(error) => {
                    tracing::error!(%error, "the catalog that was delivered cannot be read");
                    return;
                }
            };
            let before = shared.catalog.load_full();
            let version = before.version() + 1;
            let changes: Changes =
                objects.iter().map(|object| (object.oid(), Some(object.clone()))).collect();
            let mut after = Catalog::new(version, objects);
            after.note_moved(&before, &changes, changed);
            shared.begin_publishing(true);
            shared.catalog_csn.store(changed, Ordering::Release);
            shared.shared_csn.store(changed, Ordering::Release);
            shared.catalog.store(Arc::new(after));
            shared.end_publishing(version, version);
        }
    }

    fn publish(
        &self,
        changes: &Changes,
        own: Option<&Temporary>,
        commit: impl FnOnce() -> std::result::Result<Commit, cognate_engine::Error>,
    ) -> std::result::Result<Commit, cognate_engine::Error> {
        let shared = &*self.shared;
        let _publishing = shared.publishing.lock();
        let before = shared.catalog.load_full();
        let own = own.filter(|own| own.has_all(changes, &before));
        shared.begin_publishing(own.is_none());
        let committed = commit();
        let (mut version, mut shared_version) = (before.version(), before.shared_version());
        if let Ok(commit) = &committed {
            version += 1;
            let mut after = before.with_changes(version, changes);
            after.note_moved(&before, changes, commit.csn);
            // First the number: whoever has the catalog finds a number that is not below its.
            shared.catalog_csn.store(commit.csn, Ordering::Release);
            match own {
                Some(own) => {
                    own.note_change(version << 1, commit.csn);
                    after.keep_shared_version(&before);
                }
                None => {
                    shared.shared_csn.store(commit.csn, Ordering::Release);
                    shared_version = version;
                }
            }
            shared.catalog.store(Arc::new(after));
        }
        shared.end_publishing(version, shared_version);
        committed
    }

    /// After a failure of the log: if the last changes of the catalog will never be durable,
    /// readers go on with the one below them, as they do with the rows.
    #[cold]
    pub(crate) fn fall_back(&self) -> Result<()> {
        let shared = &*self.shared;
        let _publishing = shared.publishing.lock();
        let transaction = self.engine().begin(Isolation::Snapshot, Access::ReadOnly);
        if !self.engine().is_poisoned() || self.catalog_csn() <= self.engine().durable() {
            return Ok(());
        }
        let objects = stored_objects(self.engine(), &transaction)?;
        shared.begin_publishing(true);
        let before = shared.catalog.load_full();
        let version = before.version() + 1;
        let mut durable = Catalog::new(version, objects);
        durable.note_moved(&before, &Changes::new(), 0);
        shared.catalog.store(Arc::new(durable));
        shared.catalog_csn.store(transaction.snapshot(), Ordering::Release);
        shared.shared_csn.store(transaction.snapshot(), Ordering::Release);
        shared.end_publishing(version, version);
        Ok(())
    }

    pub(crate) fn failures(&self) -> &Failures {
        &self.shared.failures
    }

    pub(crate) fn presence(&self) -> &Presence {
        &self.shared.presence
    }

    pub(crate) fn note_retry(&self) {
        self.shared.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// How often statements and batches were run again after 40001 or 40P01, unseen by the client.
    pub fn retries(&self) -> u64 {
        self.shared.retries.load(Ordering::Relaxed)
    }

    pub(crate) fn note_refresh(&self) {
        self.shared.refreshes.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a serializable transaction's snapshot was moved past what a statement had met;
    /// each time the statement was run again.
    pub fn refreshes(&self) -> u64 {
        self.shared.refreshes.load(Ordering::Relaxed)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    pub(crate) fn plans_of_programs(&self) -> &PlanCache {
        &self.shared.programs_plans
    }

    pub(crate) fn plans(&self) -> &PlanCache {
        &self.shared.plans
    }

    pub(crate) fn bodies(&self) -> &super::Bodies {
        &self.shared.bodies
    }

    /// When the database was opened.
    pub(crate) fn started(&self) -> i64 {
        self.shared.started
    }

    /// Now, in microseconds since 2000-01-01 UTC.
    pub(crate) fn now(&self) -> i64 {
        self.shared.clock.wall_us() - EPOCH_US
    }
}

impl Shared {
    /// Raises the bits that say so: also that of shared changes, if this is one.
    fn begin_publishing(&self, is_shared: bool) {
        self.catalog_state.fetch_or(1, Ordering::AcqRel);
        if is_shared {
            self.shared_state.fetch_or(1, Ordering::AcqRel);
        }
    }

    /// The catalog of these versions is in place.
    fn end_publishing(&self, version: u64, shared_version: u64) {
        self.shared_state.store(shared_version << 1, Ordering::Release);
        self.catalog_state.store(version << 1, Ordering::Release);
    }
}

/// The objects of the catalog as a transaction's snapshot has them.
fn stored_objects(engine: &Database, transaction: &Transaction) -> Result<Vec<Object>> {
    let mut scan = transaction.scan_unnoted(store::CATALOG_TREE, Bound::Unbounded, Bound::Unbounded)?;
    let mut objects = Vec::new();
    while let Some((key, document)) = scan.next()? {
        objects.push(decode(engine, &key, &document, transaction.snapshot())?);
    }
    Ok(objects)
}

/// An object of the catalog. XX001 with file and offset if it cannot be read.
fn decode(engine: &Database, key: &[u8], document: &[u8], snapshot: Csn) -> Result<Object> {
    store::decode(document).map_err(|error| place::located(engine, store::CATALOG_TREE, key, snapshot, error))
}
