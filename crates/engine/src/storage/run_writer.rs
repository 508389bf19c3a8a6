//! Writes a run: entries in ascending order go in, one durable file comes out. Memory stays
//! bounded: one block, one partition's index and hashes, one write buffer.
//!
//! The file is flushed in portions while it grows, so that the device's queue stays short and a log
//! flush beside it is not held up for long.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cognate_env::{Disk, File, OpenMode};

use super::block::{BlockBuilder, common_prefix};
use super::filter;
use super::frame::{self, BODY_MAX, ENTRY_MAX, FRAME_HEADER, FrameKind};
use super::partition::{FrameAt, IndexBuilder};
use super::reserve;
use super::run::{RUN_FOOTER, RunName, Top, TreeShare};
use super::run::{encode_run_footer, encode_run_header, run_file_name};
use crate::{Error, TreeId};

/// Body size at which a data block is full.
const BLOCK_BYTES: usize = 4096 - FRAME_HEADER;

/// Data blocks in a partition, at most.
const PARTITION_BLOCKS: usize = 256;

/// Keys in a partition, at most (they bound the filter's size).
const PARTITION_KEYS: usize = 16 << 10;

/// Bytes of a partition's index, at most, but for those of one more key: it is read as a whole.
/// With keys of megabytes that begin alike it would become too large for any frame.
const PARTITION_BYTES: usize = 16 << 20;

/// Bytes written at once.
const WRITE_BYTES: usize = 256 << 10;

/// Bytes written between flushes.
const FLUSH_BYTES: u64 = 4 << 20;

/// A run under construction. Dropped before it is finished, it removes its file.
#[derive(Debug)]
pub struct RunWriter {
    disk: Arc<dyn Disk>,
    file: Arc<dyn File>,
    path: PathBuf,
    number: u64,
    /// Not yet written; begins at `written` in the file.
    buffer: Vec<u8>,
    written: u64,
    flushed: u64,
    block: BlockBuilder,
    /// Tree and separator of the block under construction.
    block_start: (TreeId, Vec<u8>),
    /// The last entry added.
    last: Option<(TreeId, Vec<u8>)>,
    hashes: Vec<u64>,
    blocks: IndexBuilder,
    /// Tree and separator of the partition under construction.
    partition_start: Option<(TreeId, Vec<u8>)>,
    partitions: IndexBuilder,
    trees: Vec<TreeShare>,
    /// It takes nothing of what is left to commits.
    leaves_reserve: bool,
    finished: bool,
}

impl RunWriter {
    /// Begins run `number` in `folder`. A leftover file of that name is replaced.
    pub fn create(disk: &Arc<dyn Disk>, folder: &Path, number: u64) -> Result<RunWriter, Error> {
        let path = folder.join(run_file_name(number));
        let file = disk.open(&path, OpenMode::Truncate);
        let file = file.map_err(|cause| Error::io("creating", &path, cause))?;
        Ok(RunWriter {
            disk: Arc::clone(disk),
            file,
            path,
            number,
            buffer: encode_run_header(number).to_vec(),
            written: 0,
            flushed: 0,
            block: BlockBuilder::default(),
            block_start: (0, Vec::new()),
            last: None,
            hashes: Vec::new(),
            blocks: IndexBuilder::default(),
            partition_start: None,
            partitions: IndexBuilder::default(),
            trees: Vec::new(),
            leaves_reserve: false,
            finished: false,
        })
    }

    /// Fails rather than take what is left to commits: for what may as well fail or wait.
    pub fn leaving_reserve(mut self) -> RunWriter {
        self.leaves_reserve = true;
        self
    }

    /// Adds an entry, which must be greater than the one before it. `None` records a deletion.
    pub fn add(&mut self, tree: TreeId, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        let length = key.len() + value.map_or(0, <[u8]>::len);
        if length > ENTRY_MAX {
            return Err(Error::InvalidArgument(format!("an entry of {length} bytes is too large")));
        }
        if self.last.as_ref().is_some_and(|(last_tree, last)| (*last_tree, &last[..]) >= (tree, key)) {
            return Err(Error::InvalidArgument(format!("entries of tree {tree} are not in ascending order")));
        }
        let full = self.block.size() + length + 18 > BLOCK_BYTES;
        let other_tree = self.last.as_ref().is_none_or(|(last, _)| *last != tree);
        if self.block.count() > 0 && (full || other_tree) {
            self.finish_block()?;
        }
        if self.block.count() == 0 {
            self.block_start = (tree, self.separator(tree, key));
            self.partition_start.get_or_insert_with(|| self.block_start.clone());
        }
        self.block.add(key, value);
        self.hashes.push(filter::hash(tree, key));
        if other_tree {
            self.trees.push(TreeShare { tree, entries: 0, bytes: 0 });
        }
        if let Some(share) = self.trees.last_mut() {
            share.entries += 1;
            share.bytes += length as u64;
        }
        let (last_tree, last) = self.last.get_or_insert_default();
        *last_tree = tree;
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    /// The shortest prefix of `key` that is greater than the last key of the tree; empty if `key`
    /// is the tree's first.
    fn separator(&self, tree: TreeId, key: &[u8]) -> Vec<u8> {
        match &self.last {
            Some((last_tree, last)) if *last_tree == tree => {
                key[..(common_prefix(last, key) + 1).min(key.len())].to_vec()
            }
            _ => Vec::new(),
        }
    }

    fn finish_block(&mut self) -> Result<(), Error> {
        let tree = self.block_start.0;
        let start = self.open_frame();
        self.block.finish(tree, &mut self.buffer);
        let at = self.close_frame(start, FrameKind::Block)?;
        self.blocks.add(at, tree, &self.block_start.1);
        let is_full = self.blocks.count() >= PARTITION_BLOCKS || self.blocks.size() >= PARTITION_BYTES;
        if is_full || self.hashes.len() >= PARTITION_KEYS {
            self.finish_partition()?;
        }
        Ok(())
    }

    fn finish_partition(&mut self) -> Result<(), Error> {
        let Some((tree, separator)) = self.partition_start.take() else { return Ok(()) };
        let filter = filter::build(&self.hashes);
        self.hashes.clear();
        let start = self.open_frame();
        self.buffer.extend_from_slice(&(filter.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(&filter);
        self.blocks.finish(&mut self.buffer);
        let at = self.close_frame(start, FrameKind::Partition)?;
        self.partitions.add(at, tree, &separator);
        Ok(())
    }

    /// Completes the file and makes its bytes durable. Its name becomes durable with the next flush
    /// of the folder. `None` if nothing was added.
    pub fn finish(mut self) -> Result<Option<RunName>, Error> {
        if self.block.count() > 0 {
            self.finish_block()?;
        }
        self.finish_partition()?;
        let Some((last_tree, last)) = self.last.take() else { return Ok(None) };
        let mut partitions = Vec::new();
        self.partitions.finish(&mut partitions);
        let start = self.open_frame();
        Top::encode(&self.trees, (last_tree, &last), &partitions, &mut self.buffer);
        let top = self.close_frame(start, FrameKind::Top)?;
        let length = self.size() + RUN_FOOTER as u64;
        let name = RunName { number: self.number, length };
        self.buffer.extend_from_slice(&encode_run_footer(name, top));
        self.write()?;
        self.file.sync_data().map_err(|cause| Error::io("flushing", &self.path, cause))?;
        self.finished = true;
        Ok(Some(name))
    }

    /// Bytes of the file so far.
    pub fn size(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn open_frame(&mut self) -> usize {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; FRAME_HEADER]);
        start
    }

    fn close_frame(&mut self, start: usize, kind: FrameKind) -> Result<FrameAt, Error> {
        if self.buffer.len() - start - FRAME_HEADER > BODY_MAX {
            return Err(Error::InvalidArgument("an index of the run is too large".into()));
        }
        let offset = self.written + start as u64;
        let at = frame::seal(&mut self.buffer, start, kind, self.number, offset);
        if self.buffer.len() >= WRITE_BYTES {
            self.write()?;
        }
        Ok(at)
    }

    fn write(&mut self) -> Result<(), Error> {
        if self.leaves_reserve {
            reserve::check(self.disk.as_ref(), &self.path, self.buffer.len() as u64, "writing")?;
        }
        let result = self.file.write_all_at(&self.buffer, self.written);
        result.map_err(|cause| Error::io("writing", &self.path, cause))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        if self.written - self.flushed >= FLUSH_BYTES {
            self.file.sync_data().map_err(|cause| Error::io("flushing", &self.path, cause))?;
            self.flushed = self.written;
        }
        Ok(())
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if !self.finished
            && let Err(error) = self.disk.remove(&self.path)
        {
            tracing::debug!(file = %self.path.display(), %error, "could not remove an unfinished run");
        }
    }
}

#[cfg(test)]
mod tests {
    use cognate_env::sim::SimDisk;

    use super::super::cache::BlockCache;
    use super::super::run::Run;
    use super::*;

    /// The separators of keys that begin alike are as long as the keys.
    #[test]
    fn partitions_of_long_keys_have_fewer_blocks() {
        let (disk, folder) = (SimDisk::new(1).handle(), Path::new("base"));
        disk.create_dir_all(folder).unwrap();
        let key = |number: u8| [&vec![b'k'; 1 << 20][..], &[number]].concat();
        let mut writer = RunWriter::create(&disk, folder, 1).unwrap();
        for number in 0..24 {
            writer.add(7, &key(number), Some(&[number][..])).unwrap();
        }
        let name = writer.finish().unwrap().unwrap();
        let run = Run::open(&disk, folder, name, 0).unwrap();
        let partitions = &run.top().partitions;
        assert!(partitions.count() > 1);
        for index in 0..partitions.count() {
            assert!((partitions.frame(index).length as usize) < PARTITION_BYTES + (2 << 20));
        }
        let cache = BlockCache::new(1 << 20);
        for number in [0, 15, 16, 17, 23] {
            let key = key(number);
            let found = run.get(&cache, 7, &key, filter::hash(7, &key)).unwrap();
            assert_eq!(found.flatten().as_deref(), Some(&[number][..]));
        }
    }
}
