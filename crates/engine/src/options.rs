//! How a database is opened.

use std::path::PathBuf;
use std::sync::Arc;

use cognate_env::{Clock, Disk, RealClock, RealDisk};

use crate::certifier::Method;
use crate::governor::ActiveLimit;
use crate::total_order::Node;

/// How a database is opened; `new` fills in everything but the folder.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of the data; created if missing.
    pub path: PathBuf,
    /// Budget for versions, write sets, locks and the base store's cache, in bytes.
    pub memory_bytes: u64,
    /// The largest write set (with its locks) of one transaction, in bytes.
    pub transaction_bytes: u64,
    /// So many bytes of what a transaction writes into trees of its own stay in memory before they
    /// go to disk. That may happen any number of times, so such writes are not bounded by
    /// `transaction_bytes`.
    pub spill_bytes: u64,
    /// Release locks and show versions when the commit is ordered (true), or only when it is
    /// durable (false).
    pub early_lock_release: bool,
    /// How transactions at `SERIALIZABLE` are made so.
    pub serializable: Method,
    /// Memory of the certifier, in bytes. At the bound it summarizes old transactions, which may
    /// cost needless aborts and never a missed cycle.
    pub certifier_bytes: u64,
    /// How many transactions may execute at a time.
    pub active_limit: ActiveLimit,
    /// A checkpoint begins when recovery would replay more than this many bytes of log.
    pub checkpoint_log_bytes: u64,
    /// Its part in a cluster: then what commits is decided by the order of all nodes' requests,
    /// and the log is that order's. `None`: a database of its own.
    pub node: Option<Node>,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Options {
    /// Defaults: 256 MiB of memory, the real disk and clock, early lock release.
    pub fn new(path: impl Into<PathBuf>) -> Options {
        let memory_bytes = 256 << 20;
        Options {
            path: path.into(),
            memory_bytes,
            transaction_bytes: memory_bytes / 2,
            spill_bytes: spill_bytes(memory_bytes),
            early_lock_release: true,
            serializable: Method::default(),
            certifier_bytes: 32 << 20,
            active_limit: ActiveLimit::Auto,
            checkpoint_log_bytes: 256 << 20,
            node: None,
            disk: Arc::new(RealDisk),
            clock: Arc::new(RealClock::default()),
        }
    }

    /// Sets the memory budget and the limits derived from it.
    pub fn memory(mut self, bytes: u64) -> Options {
        self.memory_bytes = bytes;
        self.transaction_bytes = bytes / 2;
        self.spill_bytes = spill_bytes(bytes);
        self
    }
}

/// An eighth of the budget; larger portions would not make a load faster.
fn spill_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / 8).min(64 << 20)
}
