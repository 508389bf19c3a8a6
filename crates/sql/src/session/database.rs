//! The database as all sessions share it.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::catalog::Catalog;

/// A SQL database over an engine. Clones share it.
#[derive(Clone)]
pub struct SqlDatabase {
    shared: Arc<Shared>,
}

struct Shared {
    catalog: ArcSwap<Catalog>,
}

impl SqlDatabase {
    /// The newest committed catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.shared.catalog.load_full()
    }
}
