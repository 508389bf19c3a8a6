//! The block cache: data blocks and partitions of all runs, within a bound of bytes.
//!
//! It holds what was read with `read_at`; nothing is mapped into memory, so the process stays
//! within its budget. Blocks of a run that was merged away are never asked for again and fall out.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::block::Block;
use super::partition::Partition;

/// Bytes that an entry costs beyond its content: key, links, allocation headers.
const ENTRY_OVERHEAD: u64 = 120;

#[derive(Debug, Clone)]
enum Cached {
    Block(Block),
    Partition(Arc<Partition>),
}

#[derive(Debug, Clone, Copy)]
struct Weight;

impl Weighter<(u64, u64), Cached> for Weight {
    fn weight(&self, _: &(u64, u64), cached: &Cached) -> u64 {
        ENTRY_OVERHEAD
            + match cached {
                Cached::Block(block) => block.size() as u64,
                Cached::Partition(partition) => partition.size() as u64,
            }
    }
}

/// Keyed by run number and frame offset. Shared by all readers.
#[derive(Debug)]
pub struct BlockCache {
    cache: Cache<(u64, u64), Cached, Weight>,
}

impl BlockCache {
    /// A cache of at most `bytes`.
    pub fn new(bytes: u64) -> BlockCache {
        let items = (bytes / 4096).clamp(16, 1 << 24) as usize;
        BlockCache { cache: Cache::with_weighter(items, bytes, Weight) }
    }

    /// A block, if held.
    pub fn block(&self, run: u64, offset: u64) -> Option<Block> {
        match self.cache.get(&(run, offset))? {
            Cached::Block(block) => Some(block),
            Cached::Partition(_) => None,
        }
    }

    /// A partition, if held.
    pub fn partition(&self, run: u64, offset: u64) -> Option<Arc<Partition>> {
        match self.cache.get(&(run, offset))? {
            Cached::Partition(partition) => Some(partition),
            Cached::Block(_) => None,
        }
    }

    /// Keeps a block.
    pub fn keep_block(&self, run: u64, offset: u64, block: Block) {
        self.cache.insert((run, offset), Cached::Block(block));
    }

    /// Keeps a partition.
    pub fn keep_partition(&self, run: u64, offset: u64, partition: Arc<Partition>) {
        self.cache.insert((run, offset), Cached::Partition(partition));
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// Changes the bound.
    pub fn resize(&self, bytes: u64) {
        self.cache.set_capacity(bytes);
    }
}
