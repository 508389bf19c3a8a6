//! A database as all its sessions share it, and the server that it is in.
//!
//! The committed catalog changes only in [`SqlDatabase::commit_with_catalog`]. A statement finds
//! out with one atomic load whether a plan was made for the present catalog: `catalog_state` is
//! twice its version, plus one while a change is being published. A commit raises that bit before
//! the engine lets go of its locks, and takes it away once the new catalog is in place; so whoever
//! gets a table's lock after a change to the table sees the change, or waits for the moment it
//! takes.
//!
//! What changes one session's temporary objects concerns that session alone: others go on with
//! their plans, and with snapshots from before. So there are two such numbers, and two of the
//! commit that last changed the catalog: one of each for all changes, and one for those that are
//! *shared*. A session compares the latter, or those of its own last change if that is later.
//!
//! Each database has such numbers (`databases`). What concerns all databases, a role for example,
//! is published in all of them by the one commit; and a change of the databases themselves makes
//! them and takes them away here.
//!
//! Mutexes: `publishing`, then the engine's; none is taken while `left_behind` or the list of the
//! databases is held.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cognate_engine::{Access, Commit, Csn, Database, Isolation, ReadView, Transaction};
use cognate_env::Clock;
use parking_lot::Mutex;

use super::active::Programs;
use super::databases::{Databases, One, Stored};
use super::documents::{self, decode_placed, place_prepared, stored_objects};
use super::failures::Failures;
use super::gathering::Gathered;
use super::plan_cache::PlanCache;
use super::presence::Presence;
use super::temporary::Temporary;
use super::usage::DatabaseUsage;
use crate::budget::Budget;
use crate::catalog::{Catalog, Changes, DATABASE_OID, Oid, store};
use crate::error::{Result, SqlError, sqlstate};
use crate::monitor::Monitor;
use crate::sequence::Counters;

/// Microseconds from 1970-01-01 to 2000-01-01.
pub(super) const EPOCH_US: i64 = 946_684_800_000_000;

/// A database of a server, over an engine. Clones share it.
#[derive(Clone)]
pub struct SqlDatabase {
    shared: Arc<Shared>,
    one: Arc<One>,
}

/// A database for as long as somebody else has it.
pub(super) struct WeakDatabase {
    shared: Weak<Shared>,
    one: Arc<One>,
}

impl WeakDatabase {
    /// The database, if it is still there.
    pub(super) fn upgrade(&self) -> Option<SqlDatabase> {
        Some(SqlDatabase { shared: self.shared.upgrade()?, one: Arc::clone(&self.one) })
    }

    pub(super) fn gathered(&self) -> &Gathered {
        &self.one.gathered
    }
}

/// What is the whole server's.
struct Shared {
    engine: Database,
    /// Whether others change what is stored here.
    is_node: bool,
    clock: Arc<dyn Clock>,
    /// When it was opened, as [`SqlDatabase::now`] tells.
    started: i64,
    databases: Databases,
    publishing: Mutex<()>,
    /// The last commit that has left a catalog which cannot be read, at a node of a cluster. It is
    /// read once; written under `publishing`.
    unreadable: AtomicU64,
    /// Statements and batches that were run again.
    retries: AtomicU64,
    refreshes: AtomicU64,
    failures: Failures,
    presence: Presence,
    counters: Counters,
    healing: super::Healing,
    nodes: Arc<super::Nodes>,
    programs: Programs,
    protocols: super::Protocols,
    monitor: Monitor,
    advisory: super::AdvisoryShared,
    /// Memory of what statements are, not of what they compute.
    statements: Arc<Budget>,
}

impl SqlDatabase {
    /// Opens the SQL layer over an engine and reads the catalogs. XX001 if they cannot be read.
    /// What is returned is the initial database.
    pub fn open(engine: Database) -> Result<SqlDatabase> {
        SqlDatabase::open_with_clock(engine, Arc::new(cognate_env::RealClock::default()))
    }

    /// The same with a clock of the caller's.
    pub fn open_with_clock(engine: Database, clock: Arc<dyn Clock>) -> Result<SqlDatabase> {
        let mut stored = stored_objects(&engine, &engine.begin(Isolation::Snapshot, Access::ReadWrite))?;
        let statements = usize::try_from(engine.memory_bytes() / 2).unwrap_or(usize::MAX);
        let one = One::new(stored.catalog(DATABASE_OID, 1), 0);
        let databases = Databases::default();
        for other in one.catalog.load().databases().filter(|other| other.oid != DATABASE_OID) {
            databases.add(One::new(stored.catalog(other.oid, 1), 0));
        }
        let one = databases.add(one);
        let nodes = Arc::new(super::Nodes::default());
        let shared = Shared {
            counters: Counters::open(engine.clone(), Arc::clone(&nodes))?,
            is_node: engine.is_node(),
            engine,
            started: clock.wall_us() - EPOCH_US,
            clock,
            databases,
            publishing: Mutex::new(()),
            unreadable: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            refreshes: AtomicU64::new(0),
            failures: Failures::default(),
            presence: Presence::default(),
            healing: super::Healing::default(),
            nodes,
            programs: Programs::default(),
            protocols: super::Protocols::default(),
            monitor: Monitor::new(),
            advisory: super::AdvisoryShared::default(),
            statements: Budget::new(statements),
        };
        let database = SqlDatabase { shared: Arc::new(shared), one };
        if !database.engine().is_node() {
            database.note_left_behind(|_| false);
            for database in database.all() {
                database.sweep_now();
                // The first snapshots are to have that, durable or not.
                database.one.shared_csn.store(database.catalog_csn(), Ordering::Release);
            }
        }
        Ok(database)
    }

    /// All databases of the server by oid.
    pub(crate) fn all(&self) -> Vec<SqlDatabase> {
        self.follow();
        let of = |one: Arc<One>| SqlDatabase { shared: self.shared.clone(), one };
        self.shared.databases.all().into_iter().map(of).collect()
    }

    /// The database of this oid.
    pub(crate) fn of(&self, oid: Oid) -> Option<SqlDatabase> {
        self.follow();
        let one = self.shared.databases.get(oid)?;
        Some(SqlDatabase { shared: self.shared.clone(), one })
    }

    /// Rows of its tables, approximately.
    pub(crate) fn approximate_rows(&self) -> u64 {
        self.catalog().tables().map(|table| self.engine().approximate_rows(table.tree)).sum()
    }

    /// Its oid.
    pub(crate) fn oid(&self) -> Oid {
        self.one.oid
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

    /// The snapshots that its transactions lend.
    pub(crate) fn exports(&self) -> &super::Exports {
        &self.one.exports
    }

    /// Who listens on which channels.
    pub(crate) fn channels(&self) -> &super::Channels {
        &self.one.channels
    }

    /// Schemas of temporary objects whose sessions are no more.
    pub(super) fn left_behind(&self) -> &Mutex<Vec<Oid>> {
        &self.one.left_behind
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
        self.one.catalog.load_full()
    }

    /// Whether this is the newest committed catalog, as far as that can be said by a look at it. No
    /// mutex is taken, and nobody else's count of it is touched.
    pub(crate) fn is_newest(&self, catalog: &Arc<Catalog>) -> bool {
        !self.shared.is_node
            && self.one.catalog_state.load(Ordering::Acquire) & 1 == 0
            && Arc::ptr_eq(&self.one.catalog.load(), catalog)
    }

    /// The catalog as a transaction sees it at its snapshot, which is older than the present one.
    pub(crate) fn catalog_at(&self, view: &ReadView) -> Result<Catalog> {
        let mut scan = view.scan(store::CATALOG_TREE, Bound::Unbounded, Bound::Unbounded, false)?;
        let mut objects = Vec::new();
        while let Some((key, document)) = scan.next()? {
            objects.push(decode_placed(self.engine(), &key, &document, view.snapshot())?);
        }
        Ok(Stored::new(objects).catalog(self.one.oid, 0))
    }

    /// Equal to what it was: the catalog is still the same. See the module's prose.
    pub(crate) fn catalog_state(&self) -> u64 {
        self.follow();
        self.one.catalog_state.load(Ordering::Acquire)
    }

    /// The same as a session compares it, whose own temporary objects are these.
    #[inline]
    pub(crate) fn state_for(&self, own: &Temporary) -> u64 {
        self.follow();
        let shared = self.one.shared_state.load(Ordering::Acquire);
        // A change that is being published goes before what the session has done later.
        if shared & 1 == 0 { shared.max(own.state()) } else { shared }
    }

    /// The catalog, and the state it stands for to such a session.
    pub(crate) fn catalog_for(&self, own: &Temporary) -> (Arc<Catalog>, u64) {
        let catalog = self.catalog();
        let state = (catalog.shared_version() << 1).max(own.state());
        (catalog, state)
    }

    /// The commit that last changed the catalog for such a session: a snapshot before it may not
    /// fit what it sees.
    #[inline]
    pub(crate) fn changed_for(&self, own: &Temporary) -> Csn {
        self.one.shared_csn.load(Ordering::Acquire).max(own.changed_at())
    }

    /// The catalog and the state it stands for.
    pub(crate) fn catalog_with_state(&self) -> (Arc<Catalog>, u64) {
        let catalog = self.catalog();
        let state = catalog.version() << 1;
        (catalog, state)
    }

    /// The commit that last changed the catalog: a snapshot before it may not fit the catalog.
    pub(crate) fn catalog_csn(&self) -> Csn {
        self.one.catalog_csn.load(Ordering::Acquire)
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

    /// Commits a prepared transaction of this database; what it changed in the catalog is
    /// published.
    pub(crate) fn commit_prepared(
        &self,
        identifier: &str,
    ) -> Result<std::result::Result<Commit, cognate_engine::Error>> {
        let engine = self.engine();
        let mut changes = Changes::new();
        for (key, document) in engine.prepared_rows(identifier, store::CATALOG_TREE) {
            let change = document.map(|document| documents::decode(&key, &document)).transpose();
            let change = change.and_then(|object| Ok((store::place_of(&key)?.1, object)));
            let (oid, object) = change.map_err(|error| place_prepared(engine, identifier, error))?;
            changes.insert(oid, object);
        }
        let commit = || engine.commit_prepared(identifier);
        Ok(if changes.is_empty() { commit() } else { self.publish(&changes, None, commit) })
    }

    /// At a node of a cluster the catalog changes by what is delivered, also for who changed it:
    /// who looks at it next takes it over.
    #[inline]
    fn follow(&self) {
        let shared = &*self.shared;
        if shared.is_node && shared.engine.changed_at(store::CATALOG_TREE) > self.catalog_csn() {
            self.take_over();
        }
    }

    /// XX001 if a catalog was delivered that cannot be read: what is executed by the one before is
    /// not what other nodes execute.
    pub(super) fn check_catalog(&self) -> Result<()> {
        self.follow();
        // One that comes only now is the next one's matter.
        if self.shared.unreadable.load(Ordering::Relaxed) > self.catalog_csn() {
            let what = "the catalog that was delivered cannot be read";
            return Err(SqlError::new(sqlstate::DATA_CORRUPTED, what));
        }
        Ok(())
    }

    #[cold]
    fn take_over(&self) {
        let shared = &*self.shared;
        let _publishing = shared.publishing.lock();
        if shared.databases.get(self.one.oid).is_none() {
            // It is gone, and its sessions are about to end.
            return;
        }
        loop {
            let changed = shared.engine.changed_at(store::CATALOG_TREE);
            if changed <= self.catalog_csn().max(shared.unreadable.load(Ordering::Relaxed)) {
                return;
            }
            let transaction = shared.engine.begin(Isolation::Snapshot, Access::ReadWrite);
            if transaction.snapshot() < changed {
                // It is being shown.
                std::thread::yield_now();
                continue;
            }
            match stored_objects(&shared.engine, &transaction) {
                Ok(stored) => return self.take_all(stored, changed),
                Err(error) => {
                    // By the catalog before, this node would answer what the others do not.
                    let reason = format!("the catalog that was delivered cannot be read: {error}");
                    tracing::error!(position = changed, "{reason}");
                    shared.unreadable.store(changed, Ordering::Relaxed);
                    shared.nodes.differ(reason);
                    return;
                }
            }
        }
    }

    /// Publishes what is stored in all databases, as a commit has left it.
    fn take_all(&self, mut stored: Stored, csn: Csn) {
        let shared = &*self.shared;
        for one in shared.databases.all() {
            one.begin_publishing(true);
            let before = one.catalog.load_full();
            let mut after = stored.catalog(one.oid, before.version() + 1);
            after.note_moved(&before, csn);
            one.replace(after, csn);
        }
        let catalog = self.initial_catalog();
        for new in catalog.databases().filter(|new| shared.databases.get(new.oid).is_none()) {
            shared.databases.add(One::new(stored.catalog(new.oid, 1), csn));
            shared.databases.shrink_plans(shared.statements.limit());
        }
        self.remove_gone(&catalog);
    }

    /// What the initial database knows, which never goes; a session may be one of a database that
    /// has gone.
    fn initial_catalog(&self) -> Arc<Catalog> {
        let initial = self.shared.databases.get(DATABASE_OID);
        initial.map_or_else(|| self.one.catalog.load_full(), |one| one.catalog.load_full())
    }

    /// Takes away the databases that a catalog does not know any more, and ends their sessions.
    fn remove_gone(&self, catalog: &Catalog) {
        let shared = &*self.shared;
        for gone in shared.databases.all().iter().filter(|one| catalog.database_by_oid(one.oid).is_none()) {
            shared.databases.remove(gone.oid);
            shared.presence.end_all_of(gone.oid);
        }
    }

    fn publish(
        &self,
        changes: &Changes,
        own: Option<&Temporary>,
        commit: impl FnOnce() -> std::result::Result<Commit, cognate_engine::Error>,
    ) -> std::result::Result<Commit, cognate_engine::Error> {
        let (shared, one) = (&*self.shared, &*self.one);
        let _publishing = shared.publishing.lock();
        let before = one.catalog.load_full();
        let own = own.filter(|own| own.has_all(changes, &before));
        let for_all = before.shared_among(changes);
        let mut others = if for_all.is_empty() { Vec::new() } else { shared.databases.all() };
        others.retain(|other| other.oid != one.oid);
        one.begin_publishing(own.is_none());
        others.iter().for_each(|other| other.begin_publishing(true));
        let committed = commit();
        let Ok(Commit { csn, .. }) = committed else {
            one.keep();
            others.iter().for_each(|other| other.keep());
            return committed;
        };
        let version = before.version() + 1;
        let mut after = before.with_changes(version, changes);
        after.note_moved(&before, csn);
        match own {
            Some(own) => {
                one.catalog_csn.store(csn, Ordering::Release);
                own.note_change(version << 1, csn);
                after.keep_shared_version(&before);
                one.usage.forget_gone(&after);
                one.catalog.store(Arc::new(after));
                one.end_publishing(version, before.shared_version());
            }
            None => one.replace(after, csn),
        }
        for other in &others {
            let before = other.catalog.load_full();
            let version = before.version() + 1;
            let mut after = before.with_changes(version, &for_all);
            if after.database_by_oid(other.oid).is_none() {
                after = after.without_own(version);
            }
            after.note_moved(&before, csn);
            other.replace(after, csn);
        }
        if !for_all.is_empty() {
            self.adjust_databases(csn);
        }
        committed
    }

    /// Makes the databases that the catalog knows by now, and takes away those that it does not.
    fn adjust_databases(&self, csn: Csn) {
        let databases = &self.shared.databases;
        let catalog = self.initial_catalog();
        for new in catalog.databases().filter(|new| databases.get(new.oid).is_none()) {
            let objects = catalog.objects().filter(|object| catalog.shares(object)).cloned();
            databases.add(One::new(Catalog::of_database(new.oid, 1, objects), csn));
            databases.shrink_plans(self.shared.statements.limit());
        }
        self.remove_gone(&catalog);
    }

    /// After a failure of the log: if the last changes of the catalogs will never be durable,
    /// readers go on with the ones below them, as they do with the rows.
    #[cold]
    pub(crate) fn fall_back(&self) -> Result<()> {
        let shared = &*self.shared;
        let _publishing = shared.publishing.lock();
        let transaction = self.engine().begin(Isolation::Snapshot, Access::ReadOnly);
        let newest = shared.databases.all().iter().map(|one| one.catalog_csn.load(Ordering::Acquire)).max();
        if !self.engine().is_poisoned() || newest.unwrap_or(0) <= self.engine().durable() {
            return Ok(());
        }
        let stored = stored_objects(self.engine(), &transaction)?;
        self.take_all(stored, transaction.snapshot());
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

    /// Its part of what statements share, some of which those take that are kept.
    pub(crate) fn plans_budget(&self) -> usize {
        self.shared.statements.limit() / self.shared.databases.count().max(1)
    }

    pub(crate) fn plans_of_programs(&self) -> &PlanCache {
        &self.one.programs_plans
    }

    pub(crate) fn plans(&self) -> &PlanCache {
        &self.one.plans
    }

    /// The same for who does not keep it open.
    pub(super) fn downgrade(&self) -> WeakDatabase {
        WeakDatabase { shared: Arc::downgrade(&self.shared), one: Arc::clone(&self.one) }
    }

    /// What is known of its tables' columns.
    pub(crate) fn gathered(&self) -> &Gathered {
        &self.one.gathered
    }

    /// What is read and written of its tables.
    pub(crate) fn usage(&self) -> &Arc<DatabaseUsage> {
        &self.one.usage
    }

    pub(crate) fn bodies(&self) -> &super::Bodies {
        &self.one.bodies
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
