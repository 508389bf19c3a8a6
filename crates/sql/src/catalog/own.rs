//! A transaction's own changes to the catalog, over the committed one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Catalog, Changes, Object, Oid};

/// Versions of private catalogs are above all committed ones, and no two are equal.
static PRIVATE_VERSION: AtomicU64 = AtomicU64::new(1 << 63);

/// The changes of one transaction, and the catalog it sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnCatalog {
    changes: Changes,
    /// Another one after each change.
    stamp: u64,
    /// The committed version that `merged` was made from.
    base: u64,
    merged: Option<Arc<Catalog>>,
}

impl OwnCatalog {
    /// No change was made.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Equal to what it was: so are the changes.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// What the transaction sees.
    pub(crate) fn over(&mut self, committed: Arc<Catalog>) -> Arc<Catalog> {
        if self.changes.is_empty() {
            return committed;
        }
        if let Some(merged) = self.merged.as_ref().filter(|_| self.base == committed.version()) {
            return merged.clone();
        }
        let version = PRIVATE_VERSION.fetch_add(1, Ordering::Relaxed);
        let merged = Arc::new(committed.with_changes(version, &self.changes));
        self.base = committed.version();
        self.merged = Some(merged.clone());
        merged
    }

    /// An object that the transaction has made is gone again: it has changed nothing.
    pub(crate) fn forget(&mut self, oid: Oid) {
        self.changes.remove(&oid);
        self.stamp = PRIVATE_VERSION.fetch_add(1, Ordering::Relaxed);
        self.merged = None;
    }

    /// Records a changed (`Some`) or dropped object.
    pub(crate) fn change(&mut self, oid: Oid, object: Option<Object>) {
        self.changes.insert(oid, object);
        self.stamp = PRIVATE_VERSION.fetch_add(1, Ordering::Relaxed);
        self.merged = None;
    }
}
