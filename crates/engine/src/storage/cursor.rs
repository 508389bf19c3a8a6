//! A position among one run's entries of one tree, moving forward or backward through the cache.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::block::{Block, Entry};
use super::cache::BlockCache;
use super::partition::Partition;
use super::run::Run;
use crate::{Error, Lent, TreeId};

/// See the module's description. Keeps its run alive.
#[derive(Debug)]
pub struct RunCursor {
    run: Arc<Run>,
    cache: Arc<BlockCache>,
    tree: TreeId,
    reverse: bool,
    partition: Arc<Partition>,
    partition_index: usize,
    block_index: usize,
    /// The block under the cursor; `None` once the entries are used up.
    block: Option<Open>,
}

/// A block and the place in it.
#[derive(Debug)]
struct Open {
    block: Block,
    /// Its body, to slice keys and values from.
    body: Bytes,
    count: usize,
    index: usize,
    /// Where the entry at `index` lies.
    entry: Entry,
}

impl Open {
    fn place(&mut self, index: usize) {
        self.index = index;
        self.entry = self.block.entry(index);
    }
}

impl RunCursor {
    /// A cursor on the first entry of `tree` within `start`: the least at or above a lower bound,
    /// or, in reverse, the greatest at or below an upper bound. `None` if the run has nothing of
    /// the tree.
    pub fn new(
        run: &Arc<Run>,
        cache: &Arc<BlockCache>,
        tree: TreeId,
        start: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<Option<RunCursor>, Error> {
        if !run.has_tree(tree) {
            return Ok(None);
        }
        let (seek_tree, seek_key): (TreeId, &[u8]) = match start {
            Bound::Included(key) | Bound::Excluded(key) => (tree, key),
            Bound::Unbounded if reverse => (tree.saturating_add(1), &[]),
            Bound::Unbounded => (tree, &[]),
        };
        let partition_index = run.top().partitions.find(seek_tree, seek_key).unwrap_or(0);
        let partition = run.partition(cache, partition_index)?;
        let block_index = partition.blocks.find(seek_tree, seek_key).unwrap_or(0);
        let mut cursor = RunCursor {
            run: Arc::clone(run),
            cache: Arc::clone(cache),
            tree,
            reverse,
            partition,
            partition_index,
            block_index,
            block: None,
        };
        if tree == TreeId::MAX && reverse && start == Bound::Unbounded {
            cursor.partition_index = run.top().partitions.count() - 1;
            cursor.partition = run.partition(cache, cursor.partition_index)?;
            cursor.block_index = cursor.partition.blocks.count() - 1;
        }
        cursor.seek(start)?;
        Ok(Some(cursor))
    }

    /// From the block that the indexes named to the first entry within `start`.
    fn seek(&mut self, start: Bound<&[u8]>) -> Result<(), Error> {
        let tree = self.partition.blocks.separator(self.block_index).0;
        if tree != self.tree {
            // The block before the tree's first (forward), or the one after its last (reverse).
            let beside = if self.reverse { tree > self.tree } else { tree < self.tree };
            return if beside { self.next_block() } else { Ok(()) };
        }
        let block = self.run.block(&self.cache, self.partition.blocks.frame(self.block_index))?;
        let count = block.count();
        let index = match (start, self.reverse) {
            (Bound::Unbounded, false) => Some(0),
            (Bound::Unbounded, true) => Some(count - 1),
            (Bound::Included(key), false) => Some(block.search(key).unwrap_or_else(|index| index)),
            (Bound::Excluded(key), false) => {
                Some(block.search(key).map_or_else(|index| index, |index| index + 1))
            }
            (Bound::Included(key), true) => block.search(key).map_or_else(|index| index.checked_sub(1), Some),
            (Bound::Excluded(key), true) => block.search(key).unwrap_or_else(|index| index).checked_sub(1),
        };
        match index.filter(|&index| index < count) {
            Some(index) => {
                self.enter(block, count, index);
                Ok(())
            }
            None => self.next_block(),
        }
    }

    fn enter(&mut self, block: Block, count: usize, index: usize) {
        let (body, entry) = (block.share(), block.entry(index));
        self.block = Some(Open { block, body, count, index, entry });
    }

    /// The block on the cursor's far side, or the end.
    fn next_block(&mut self) -> Result<(), Error> {
        self.block = None;
        let step = if self.reverse {
            self.block_index.checked_sub(1)
        } else {
            Some(self.block_index + 1).filter(|&index| index < self.partition.blocks.count())
        };
        match step {
            Some(index) => self.block_index = index,
            None => {
                let partitions = &self.run.top().partitions;
                let next = if self.reverse {
                    self.partition_index.checked_sub(1)
                } else {
                    Some(self.partition_index + 1).filter(|&index| index < partitions.count())
                };
                let Some(next) = next else { return Ok(()) };
                // A partition that begins with a later tree has nothing for us; do not read it.
                if !self.reverse && partitions.separator(next).0 > self.tree {
                    return Ok(());
                }
                self.partition_index = next;
                self.partition = self.run.partition(&self.cache, next)?;
                self.block_index = if self.reverse { self.partition.blocks.count() - 1 } else { 0 };
            }
        }
        if self.partition.blocks.separator(self.block_index).0 == self.tree {
            let block = self.run.block(&self.cache, self.partition.blocks.frame(self.block_index))?;
            let count = block.count();
            self.enter(block, count, if self.reverse { count - 1 } else { 0 });
        }
        Ok(())
    }

    /// The key under the cursor; `None` at the end.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.block.as_ref().map(|open| &open.body[open.entry.key.clone()])
    }

    /// The value under the cursor, a part of the block's body. `None` if deleted, or at the end.
    #[inline]
    pub fn value(&self) -> Option<Lent<'_>> {
        let open = self.block.as_ref()?;
        Some(Lent::new(&open.body[open.entry.value.clone()?], &open.body))
    }

    /// Moves on by one entry.
    #[inline]
    pub fn advance(&mut self) -> Result<(), Error> {
        let reverse = self.reverse;
        let Some(open) = &mut self.block else { return Ok(()) };
        let next = if reverse {
            open.index.checked_sub(1)
        } else {
            Some(open.index + 1).filter(|&index| index < open.count)
        };
        match next {
            Some(index) => {
                open.place(index);
                Ok(())
            }
            None => self.next_block(),
        }
    }
}
