//! How a base store is kept, and what it says of itself.

/// How a base store is kept.
#[derive(Debug, Clone)]
pub struct BaseOptions {
    /// Bound of block cache and pinned partitions in bytes. Top indexes of the runs (about one
    /// entry per megabyte of data) come on top.
    pub cache_bytes: u64,
    /// More runs than this are merged even if their sizes differ.
    pub runs_max: usize,
    /// Whether opening reads and checks every block. Without it damage is found when it is read.
    pub verify: bool,
}

impl Default for BaseOptions {
    fn default() -> BaseOptions {
        BaseOptions { cache_bytes: 64 << 20, runs_max: 8, verify: true }
    }
}

/// Sizes and counts of a base store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BaseStatistics {
    /// Live runs.
    pub runs: u64,
    /// Runs of bulk loads that wait for a checkpoint to become live.
    pub attached: u64,
    /// Bytes of both's files.
    pub bytes: u64,
    /// Bytes in the block cache.
    pub cache_bytes: u64,
    /// Bytes in memory beside the cache: top indexes and pinned partitions.
    pub index_bytes: u64,
}
