//! The databases of a server, each with what its sessions share and nobody else sees: its catalog,
//! the plans that were made with it, its channels.
//!
//! ```text
//! per database   catalog and its state, plans, bodies of routines, channels of LISTEN, temporary objects left behind;
//!                statistics of columns (`gathering`), and of what is read and written (`usage`);
//!                advisory locks, by the space of their keys (`advisory`); lent snapshots (`snapshot`)
//! the server's   engine, clock, oids and counters, presence, failures, families of siblings and prepared transactions,
//!                nodes, programs, monitor, memory of statements
//! ```
//!
//! What is *shared* in the catalog, such as roles, is in the catalog of each. Who changes it
//! publishes it in all of them, under one mutex (`database`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use cognate_engine::Csn;
use parking_lot::{Mutex, RwLock};

use super::gathering::Gathered;
use super::plan_cache::PlanCache;
use super::usage::DatabaseUsage;
use crate::catalog::{Catalog, Object, Oid};

/// One database.
pub(super) struct One {
    pub(super) oid: Oid,
    pub(super) catalog: ArcSwap<Catalog>,
    /// Twice the catalog's version, plus one while a change is being published.
    pub(super) catalog_state: AtomicU64,
    /// The commit that last changed the catalog.
    pub(super) catalog_csn: AtomicU64,
    /// The same two of the last change that concerned more than one session's temporary objects.
    pub(super) shared_state: AtomicU64,
    pub(super) shared_csn: AtomicU64,
    pub(super) plans: PlanCache,
    /// Of what every node executes, planned alike.
    pub(super) programs_plans: PlanCache,
    /// What is known of the tables' columns.
    pub(super) gathered: Gathered,
    /// What is read and written of its tables.
    pub(super) usage: Arc<DatabaseUsage>,
    pub(super) bodies: super::Bodies,
    pub(super) channels: super::Channels,
    pub(super) exports: super::Exports,
    /// Schemas of temporary objects whose sessions are no more.
    pub(super) left_behind: Mutex<Vec<Oid>>,
}

impl One {
    /// A database that has this catalog since a commit.
    pub(super) fn new(catalog: Catalog, csn: Csn) -> One {
        let state = catalog.version() << 1;
        One {
            oid: catalog.database_oid(),
            catalog: ArcSwap::from_pointee(catalog),
            catalog_state: AtomicU64::new(state),
            catalog_csn: AtomicU64::new(csn),
            shared_state: AtomicU64::new(state),
            shared_csn: AtomicU64::new(csn),
            plans: PlanCache::default(),
            programs_plans: PlanCache::default(),
            gathered: Gathered::default(),
            usage: Arc::default(),
            bodies: super::Bodies::default(),
            channels: super::Channels::default(),
            exports: super::Exports::default(),
            left_behind: Mutex::default(),
        }
    }

    /// Raises the bits that say so: also that of shared changes, if this is one.
    pub(super) fn begin_publishing(&self, is_shared: bool) {
        self.catalog_state.fetch_or(1, Ordering::AcqRel);
        if is_shared {
            self.shared_state.fetch_or(1, Ordering::AcqRel);
        }
    }

    /// The catalog of these versions is in place.
    pub(super) fn end_publishing(&self, version: u64, shared_version: u64) {
        self.shared_state.store(shared_version << 1, Ordering::Release);
        self.catalog_state.store(version << 1, Ordering::Release);
    }

    /// Puts a new catalog, which a commit has made, in the place of the present one.
    pub(super) fn replace(&self, catalog: Catalog, csn: Csn) {
        let version = catalog.version();
        self.usage.forget_gone(&catalog);
        // First the number: whoever has the catalog finds a number that is not below its.
        self.catalog_csn.store(csn, Ordering::Release);
        self.shared_csn.store(csn, Ordering::Release);
        self.catalog.store(Arc::new(catalog));
        self.end_publishing(version, version);
    }

    /// The catalog stays as it is.
    pub(super) fn keep(&self) {
        let catalog = self.catalog.load();
        self.end_publishing(catalog.version(), catalog.shared_version());
    }
}

/// The objects of all catalogs, as they are stored.
#[derive(Default)]
pub(super) struct Stored {
    /// What all databases have.
    shared: Vec<Object>,
    /// What each of them has.
    own: BTreeMap<Oid, Vec<Object>>,
}

impl Stored {
    /// Objects with the databases that their keys name.
    pub(super) fn new(objects: Vec<(Oid, Object)>) -> Stored {
        let databases = objects.iter().filter(|(_, object)| matches!(object, Object::Database(_)));
        let known = Catalog::new(0, databases.map(|(_, object)| object.clone()));
        let mut stored = Stored::default();
        for (database, object) in objects {
            match known.shares(&object) {
                true => stored.shared.push(object),
                false => stored.own.entry(database).or_default().push(object),
            }
        }
        stored
    }

    /// The catalog of a database: with nothing of its own, if it is gone.
    pub(super) fn catalog(&mut self, database: Oid, version: u64) -> Catalog {
        let own = self.own.remove(&database).unwrap_or_default();
        Catalog::of_database(database, version, self.shared.iter().cloned().chain(own))
    }
}

/// All databases.
#[derive(Default)]
pub(super) struct Databases(RwLock<BTreeMap<Oid, Arc<One>>>);

impl Databases {
    pub(super) fn get(&self, oid: Oid) -> Option<Arc<One>> {
        self.0.read().get(&oid).cloned()
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.read().len()
    }

    /// Each shares so many bytes with the others by now: prepared statements go that are kept
    /// beyond its part of them.
    pub(super) fn shrink_plans(&self, bytes: usize) {
        let all = self.all();
        let each = bytes / all.len().max(1);
        for one in all {
            one.plans.shrink(each);
            one.programs_plans.shrink(each);
        }
    }

    /// All of them by oid.
    pub(super) fn all(&self) -> Vec<Arc<One>> {
        self.0.read().values().cloned().collect()
    }

    pub(super) fn add(&self, one: One) -> Arc<One> {
        let one = Arc::new(one);
        self.0.write().insert(one.oid, one.clone());
        one
    }

    pub(super) fn remove(&self, oid: Oid) {
        self.0.write().remove(&oid);
    }
}
