//! One immutable sorted run: opening, verifying, point reads. The byte map is in
//! `docs/log-format.md`.
//!
//! A point read asks, in this order: the greatest key, the top index (in memory), the partition's
//! filter, the partition's index, the block. Only partition and block can cost a read from disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use cognate_env::{Disk, File, OpenMode};

use super::block::Block;
use super::cache::BlockCache;
use super::filter;
use super::frame::{self, FRAME_HEADER, FrameKind};
use super::partition::{FrameAt, IndexTable, Partition};
use super::record::{u32_at, u64_at};
use crate::lent::Lent;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::{Error, TreeId, Value};

/// Length of a run's header; the first frame begins here.
pub const RUN_HEADER: usize = 32;

/// Length of a run's footer, the end of the file.
pub const RUN_FOOTER: usize = 64;

const HEADER_MAGIC: &[u8; 8] = b"COGNRUN1";
const FOOTER_MAGIC: &[u8; 8] = b"COGNRUNE";
const VERSION: u32 = 1;

/// A run as the manifest knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunName {
    /// Its number, never reused while a manifest knows it.
    pub number: u64,
    /// Length of its file in bytes.
    pub length: u64,
}

/// How much of a tree a run holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeShare {
    /// The tree.
    pub tree: TreeId,
    /// Entries, deletions included.
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// What is kept in memory of a run's last frame.
#[derive(Debug)]
pub struct Top {
    /// Index of the partitions.
    pub partitions: IndexTable,
    /// Trees in the run, ascending.
    pub trees: Vec<TreeShare>,
    /// Tree of the last entry.
    pub last_tree: TreeId,
    /// Key of the last entry.
    pub last_key: Bytes,
}

/// An open run. When it is obsolete and the last reader lets go of it, its file is removed.
#[derive(Debug)]
pub struct Run {
    name: RunName,
    path: PathBuf,
    file: Arc<dyn File>,
    disk: Arc<dyn Disk>,
    top: Top,
    top_at: FrameAt,
    /// The partitions, once read, if they stay in memory; empty if they go through the cache.
    pinned: Box<[OnceLock<Arc<Partition>>]>,
    obsolete: AtomicBool,
}

/// A run's file name.
pub fn run_file_name(number: u64) -> String {
    format!("{number:016}.run")
}

/// The number in a run's file name; `None` for other files.
pub fn parse_run_file_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".run")?;
    let number = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_digit());
    number.then(|| digits.parse().ok())?
}

/// The header of run `number`.
pub fn encode_run_header(number: u64) -> [u8; RUN_HEADER] {
    let mut bytes = [0; RUN_HEADER];
    bytes[..8].copy_from_slice(HEADER_MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The footer of a run whose top index lies at `top`.
pub fn encode_run_footer(name: RunName, top: FrameAt) -> [u8; RUN_FOOTER] {
    let mut bytes = [0; RUN_FOOTER];
    bytes[..8].copy_from_slice(FOOTER_MAGIC);
    bytes[8..16].copy_from_slice(&name.number.to_le_bytes());
    bytes[16..24].copy_from_slice(&top.offset.to_le_bytes());
    bytes[24..28].copy_from_slice(&top.length.to_le_bytes());
    bytes[32..40].copy_from_slice(&name.length.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

impl Top {
    /// The body of a top frame.
    pub fn encode(trees: &[TreeShare], last: (TreeId, &[u8]), partitions: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&(trees.len() as u32).to_le_bytes());
        for share in trees {
            out.extend_from_slice(&share.tree.to_le_bytes());
            out.extend_from_slice(&share.entries.to_le_bytes());
            out.extend_from_slice(&share.bytes.to_le_bytes());
        }
        out.extend_from_slice(&last.0.to_le_bytes());
        out.extend_from_slice(&(last.1.len() as u32).to_le_bytes());
        out.extend_from_slice(last.1);
        out.extend_from_slice(partitions);
    }

    /// Takes a verified body, checking its shape.
    pub fn decode(body: &[u8]) -> Result<Top, &'static str> {
        const SHORT: &str = "top index is too short";
        let need = |end: usize| if end <= body.len() { Ok(()) } else { Err(SHORT) };
        need(4)?;
        let count = u32_at(body, 0) as usize;
        let after = count.checked_mul(20).and_then(|bytes| bytes.checked_add(4)).ok_or(SHORT)?;
        need(after.saturating_add(8))?;
        let trees = body[4..after].chunks_exact(20).map(|share| TreeShare {
            tree: u32_at(share, 0),
            entries: u64_at(share, 4),
            bytes: u64_at(share, 12),
        });
        let key = after + 8;
        let key_end = key + u32_at(body, after + 4) as usize;
        need(key_end)?;
        let partitions = IndexTable::decode(Bytes::copy_from_slice(&body[key_end..]))?;
        if partitions.count() == 0 {
            return Err("run without entries");
        }
        Ok(Top {
            partitions,
            trees: trees.collect(),
            last_tree: u32_at(body, after),
            last_key: Bytes::copy_from_slice(&body[key..key_end]),
        })
    }
}

impl Top {
    /// About the bytes that all partitions take in memory.
    fn partition_bytes(&self) -> u64 {
        let frames = (0..self.partitions.count()).map(|index| self.partitions.frame(index));
        // The search words come on top of what is stored: a third of an index entry or less.
        frames.map(|at| u64::from(at.length) * 5 / 4 + 256).sum()
    }
}

impl Run {
    /// Entries of a tree.
    pub fn entries(&self, tree: TreeId) -> u64 {
        let trees = &self.top.trees;
        trees.binary_search_by_key(&tree, |share| share.tree).map_or(0, |at| trees[at].entries)
    }

    /// Bytes of a tree's keys and values.
    pub fn tree_bytes(&self, tree: TreeId) -> u64 {
        let trees = &self.top.trees;
        trees.binary_search_by_key(&tree, |share| share.tree).map_or(0, |at| trees[at].bytes)
    }

    /// Opens a run that a manifest names, checking header, footer and top index. If its partitions
    /// together are not larger than `pinned_bytes_max`, they stay in memory once read, which saves
    /// each read a question to the cache.
    pub fn open(
        disk: &Arc<dyn Disk>,
        folder: &Path,
        name: RunName,
        pinned_bytes_max: u64,
    ) -> Result<Run, Error> {
        let path = folder.join(run_file_name(name.number));
        let file = disk.open(&path, OpenMode::Read).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::NotFound => Error::corrupt(&path, 0, "the file is missing"),
            _ => Error::io("opening", &path, cause),
        })?;
        let length = file.len().map_err(|cause| Error::io("reading", &path, cause))?;
        if length != name.length || length < (RUN_HEADER + RUN_FOOTER) as u64 {
            let what = format!("the file has {length} bytes, expected {}", name.length);
            return Err(Error::corrupt(&path, length.min(name.length), what));
        }
        let read = |offset: u64, bytes: &mut [u8]| {
            file.read_exact_at(bytes, offset).map_err(|cause| Error::io("reading", &path, cause))
        };
        let mut header = [0; RUN_HEADER];
        read(0, &mut header)?;
        if header != encode_run_header(name.number) {
            return Err(Error::corrupt(&path, 0, "the run's header is damaged"));
        }
        let mut footer = [0; RUN_FOOTER];
        let footer_at = length - RUN_FOOTER as u64;
        read(footer_at, &mut footer)?;
        let top_at = FrameAt { offset: u64_at(&footer, 16), length: u32_at(&footer, 24) };
        if footer != encode_run_footer(name, top_at)
            || top_at.offset.saturating_add(FRAME_HEADER as u64 + u64::from(top_at.length)) != footer_at
        {
            return Err(Error::corrupt(&path, footer_at, "the run's footer is damaged"));
        }
        let frame = frame::read(file.as_ref(), &path, name.number, top_at, FrameKind::Top)?;
        let top =
            Top::decode(&frame[FRAME_HEADER..]).map_err(|what| Error::corrupt(&path, top_at.offset, what))?;
        let (disk, obsolete) = (Arc::clone(disk), AtomicBool::new(false));
        let pinned_count = if top.partition_bytes() <= pinned_bytes_max { top.partitions.count() } else { 0 };
        let pinned = (0..pinned_count).map(|_| OnceLock::new()).collect();
        Ok(Run { name, path, file, disk, top, top_at, pinned, obsolete })
    }

    /// Number and length.
    pub fn name(&self) -> RunName {
        self.name
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The part that is always in memory.
    pub fn top(&self) -> &Top {
        &self.top
    }

    /// Whether the run has entries of the tree.
    pub fn has_tree(&self, tree: TreeId) -> bool {
        self.top.trees.binary_search_by_key(&tree, |share| share.tree).is_ok()
    }

    /// Bytes that pinned partitions may take in memory; 0 if they go through the cache.
    pub fn pinned_bytes(&self) -> u64 {
        if self.pinned.is_empty() { 0 } else { self.top.partition_bytes() }
    }

    /// Bytes in memory outside the cache, without pinned partitions.
    pub fn memory_bytes(&self) -> u64 {
        (self.top.partitions.size() + self.top.trees.len() * 24 + self.top.last_key.len() + 256) as u64
    }

    /// Marks the file for removal as soon as nobody reads it.
    pub fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// What the run knows of a key: nothing, its deletion (`Some(None)`), or its value. `hash` is
    /// the key's.
    pub fn get(
        &self,
        cache: &BlockCache,
        tree: TreeId,
        key: &[u8],
        hash: u64,
    ) -> Result<Option<Option<Value>>, Error> {
        let found = self.find(cache, tree, key, hash)?;
        Ok(found.map(|(block, index, _)| block.owned_value(index)))
    }

    /// Lends `read` the value instead: `None` if the run does not know the key, false if it is
    /// deleted.
    pub fn lend(
        &self,
        cache: &BlockCache,
        tree: TreeId,
        key: &[u8],
        hash: u64,
        read: &mut dyn FnMut(Lent<'_>),
    ) -> Result<Option<bool>, Error> {
        let found = self.find(cache, tree, key, hash)?;
        Ok(found.map(|(block, index, _)| block.lend(index, read)))
    }

    /// Where the block with the key begins in the file, if the run knows the key.
    pub fn offset_of(
        &self,
        cache: &BlockCache,
        tree: TreeId,
        key: &[u8],
        hash: u64,
    ) -> Result<Option<u64>, Error> {
        Ok(self.find(cache, tree, key, hash)?.map(|(_, _, offset)| offset))
    }

    /// The block with the key, the entry's place in it, and the block's in the file.
    fn find(
        &self,
        cache: &BlockCache,
        tree: TreeId,
        key: &[u8],
        hash: u64,
    ) -> Result<Option<(Block, usize, u64)>, Error> {
        let top = &self.top;
        if (tree, key) > (top.last_tree, &top.last_key) {
            return Ok(None);
        }
        let Some(index) = top.partitions.find(tree, key) else { return Ok(None) };
        let held;
        let partition: &Partition = match self.pinned.get(index).and_then(OnceLock::get) {
            Some(pinned) => pinned,
            None => {
                held = self.partition(cache, index)?;
                &held
            }
        };
        if !filter::may_contain(&partition.filter, hash) {
            return Ok(None);
        }
        let Some(index) = partition.blocks.find(tree, key) else { return Ok(None) };
        let at = partition.blocks.frame(index);
        let block = self.block(cache, at)?;
        if block.tree() != tree {
            return Ok(None);
        }
        Ok(block.search(key).ok().map(|index| (block, index, at.offset)))
    }

    /// Partition `index` of the top index.
    pub fn partition(&self, cache: &BlockCache, index: usize) -> Result<Arc<Partition>, Error> {
        let at = self.top.partitions.frame(index);
        let pinned = self.pinned.get(index);
        let known = match pinned {
            Some(pinned) => pinned.get().cloned(),
            None => cache.partition(self.name.number, at.offset),
        };
        if let Some(partition) = known {
            return Ok(partition);
        }
        let frame = Bytes::from(self.read(at, FrameKind::Partition)?);
        let partition = Partition::decode(frame.slice(FRAME_HEADER..))
            .map_err(|what| Error::corrupt(&self.path, at.offset, what))?;
        let partition = Arc::new(partition);
        match pinned {
            Some(pinned) => return Ok(Arc::clone(pinned.get_or_init(|| partition))),
            None => cache.keep_partition(self.name.number, at.offset, Arc::clone(&partition)),
        }
        Ok(partition)
    }

    /// The data block at `at`, which a partition of this run says.
    pub fn block(&self, cache: &BlockCache, at: FrameAt) -> Result<Block, Error> {
        if let Some(block) = cache.block(self.name.number, at.offset) {
            return Ok(block);
        }
        let frame = self.read(at, FrameKind::Block)?;
        let block = Block::decode(frame).map_err(|what| Error::corrupt(&self.path, at.offset, what))?;
        cache.keep_block(self.name.number, at.offset, block.clone());
        Ok(block)
    }

    fn read(&self, at: FrameAt, kind: FrameKind) -> Result<Vec<u8>, Error> {
        if at.offset + u64::from(at.length) > self.name.length {
            return Err(Error::corrupt(&self.path, at.offset, "an index points behind the end of the file"));
        }
        frame::read(self.file.as_ref(), &self.path, self.name.number, at, kind)
    }

    /// Fills the buffer with bytes of the file from an offset on, as they are.
    pub(super) fn read_raw(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        self.file.read_exact_at(buffer, offset).map_err(|cause| Error::io("reading", &self.path, cause))
    }

    /// How many of the bytes from `position` on say how long the part of the file is that begins
    /// there: the header, a frame or the footer. Header and footer are no longer than that.
    pub(super) fn part_head(&self, position: u64) -> usize {
        match position {
            0 => RUN_HEADER,
            _ if position >= self.footer_at() => RUN_FOOTER,
            _ => FRAME_HEADER,
        }
    }

    /// Checks such a head. Of a frame, the answer is what its checksum has to be, what it is as far
    /// as the head goes, and how many bytes follow; `None` of header and footer.
    pub(super) fn check_head(&self, head: &[u8], position: u64) -> Result<Option<(u32, u32, usize)>, Error> {
        let footer_at = self.footer_at();
        let is_sound = match position {
            0 => head == encode_run_header(self.name.number),
            _ if position >= footer_at => head == encode_run_footer(self.name, self.top_at),
            _ => {
                let claim = frame::claim(head).map(|(_, length)| length);
                let room = footer_at - position;
                let Some(length) = claim.filter(|&length| (FRAME_HEADER + length) as u64 <= room) else {
                    let what = "block header with an impossible kind or length";
                    return Err(Error::corrupt(&self.path, position, what));
                };
                let so_far = frame::begun_checksum(head, self.name.number, position);
                return Ok(Some((u32_at(head, 0), so_far, length)));
            }
        };
        match is_sound {
            true => Ok(None),
            false => Err(Error::corrupt(&self.path, position, "the run's header or footer is damaged")),
        }
    }

    fn footer_at(&self) -> u64 {
        self.name.length - RUN_FOOTER as u64
    }

    /// Reads the whole file front to back and checks every frame.
    pub fn verify(&self) -> Result<(), Error> {
        let mut frames = self.frames();
        while let Some((kind, frame, at)) = frames.next_frame()? {
            let shape = match kind {
                FrameKind::Block => Block::decode(frame.to_vec()).map(drop),
                FrameKind::Partition => {
                    Partition::decode(Bytes::copy_from_slice(&frame[FRAME_HEADER..])).map(drop)
                }
                FrameKind::Top => Err("a second top index"),
            };
            shape.map_err(|what| Error::corrupt(&self.path, at, what))?;
        }
        Ok(())
    }

    /// All frames before the top index, front to back, past the cache.
    pub fn frames(&self) -> Frames<'_> {
        Frames { run: self, position: RUN_HEADER as u64, window: Vec::new(), start: 0 }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire)
            && let Err(error) = self.disk.remove(&self.path)
        {
            // Harmless: the next start removes files that no manifest names.
            tracing::debug!(file = %self.path.display(), %error, "could not remove a merged run");
        }
    }
}

/// Reads a run's frames in file order, in large portions.
#[derive(Debug)]
pub struct Frames<'a> {
    run: &'a Run,
    position: u64,
    window: Vec<u8>,
    start: u64,
}

const WINDOW: u64 = 256 << 10;

/// A verified frame: its kind, its bytes with the frame header, its offset.
pub type Frame<'a> = (FrameKind, &'a [u8], u64);

impl Frames<'_> {
    /// The next frame's kind, bytes and offset; verified.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Error> {
        let (run, position) = (self.run, self.position);
        if position == run.top_at.offset {
            return Ok(None);
        }
        let room = run.top_at.offset - position;
        let damaged = |what: &str| Error::corrupt(&run.path, position, what);
        if room < FRAME_HEADER as u64 {
            return Err(damaged("blocks do not fill the file"));
        }
        let claim = frame::claim(self.bytes(position, FRAME_HEADER)?);
        let length = claim.map(|(_, length)| FRAME_HEADER + length);
        let Some(length) = length.filter(|&length| length as u64 <= room) else {
            return Err(damaged("block header with an impossible kind or length"));
        };
        self.position += length as u64;
        let frame = self.bytes(position, length)?;
        let kind = frame::verify(frame, run.name.number, position);
        let kind = kind.map_err(|what| Error::corrupt(&run.path, position, what))?;
        Ok(Some((kind, frame, position)))
    }

    fn bytes(&mut self, offset: u64, count: usize) -> Result<&[u8], Error> {
        let end = offset + count as u64;
        if offset < self.start || end > self.start + self.window.len() as u64 {
            let wanted = WINDOW.max(count as u64).min(self.run.name.length - offset);
            self.window.resize(wanted as usize, 0);
            let read = self.run.file.read_exact_at(&mut self.window, offset);
            read.map_err(|cause| Error::io("reading", &self.run.path, cause))?;
            self.start = offset;
        }
        let begin = (offset - self.start) as usize;
        Ok(&self.window[begin..begin + count])
    }
}
