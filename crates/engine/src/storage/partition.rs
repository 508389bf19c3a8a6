//! Index tables: which frame holds a key. A *partition* indexes some hundred data blocks and has
//! their Bloom filter; a run's *top* index says which partition to ask. Partitions go through the
//! cache like blocks, so a run of any size costs little memory that cannot be evicted.

use std::cmp::Ordering;

use bytes::Bytes;

use super::block::{common_prefix, partition_point};
use super::record::{u32_at, u64_at};
use crate::TreeId;

const ENTRY_FIXED: usize = 16;

/// Where a frame lies in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameAt {
    /// Offset of the frame.
    pub offset: u64,
    /// Length of its body.
    pub length: u32,
}

/// An index table under construction.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    offsets: Vec<u32>,
    entries: Vec<u8>,
}

impl IndexBuilder {
    /// Adds the frame that holds keys from (`tree`, `separator`) on.
    pub fn add(&mut self, at: FrameAt, tree: TreeId, separator: &[u8]) {
        self.offsets.push(self.entries.len() as u32);
        self.entries.extend_from_slice(&at.offset.to_le_bytes());
        self.entries.extend_from_slice(&at.length.to_le_bytes());
        self.entries.extend_from_slice(&tree.to_le_bytes());
        self.entries.extend_from_slice(separator);
    }

    /// Number of frames so far.
    pub fn count(&self) -> usize {
        self.offsets.len()
    }

    /// Bytes of the entries so far.
    pub fn size(&self) -> usize {
        self.entries.len()
    }

    /// Appends the table to `out` and starts over.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.offsets.len() as u32).to_le_bytes());
        for offset in self.offsets.drain(..) {
            out.extend_from_slice(&offset.to_le_bytes());
        }
        out.append(&mut self.entries);
    }
}

/// An index table in memory.
#[derive(Debug, Clone)]
pub struct IndexTable {
    bytes: Bytes,
    count: usize,
    /// If all entries are of one tree: that tree, the prefix that all separators but the first
    /// share, and of each separator (but the first) the eight bytes behind that prefix, as numbers
    /// that sort like them. A search stays in these few cache lines.
    words: Option<Words>,
}

#[derive(Debug, Clone)]
struct Words {
    tree: TreeId,
    common: usize,
    words: Box<[u64]>,
}

impl IndexTable {
    /// Takes verified bytes, checking their shape.
    pub fn decode(bytes: Bytes) -> Result<IndexTable, &'static str> {
        if bytes.len() < 4 {
            return Err("index is too short");
        }
        let count = u32_at(&bytes, 0) as usize;
        let base = count.checked_mul(4).and_then(|slots| slots.checked_add(4));
        let Some(base) = base.filter(|&base| base <= bytes.len()) else {
            return Err("index with an impossible number of entries");
        };
        let mut table = IndexTable { bytes, count, words: None };
        let mut least = 0;
        for index in 0..count {
            let offset = u32_at(&table.bytes, 4 + index * 4) as usize;
            if offset < least || offset + ENTRY_FIXED > table.bytes.len() - base {
                return Err("index with a wrong entry offset");
            }
            least = offset + ENTRY_FIXED;
        }
        table.words = table.words();
        Ok(table)
    }

    fn words(&self) -> Option<Words> {
        let tree = self.separator(self.count.checked_sub(1)?).0;
        // Entries ascend, so the first and the last tell about all.
        if self.separator(0).0 != tree || self.count < 3 {
            return None;
        }
        let common = common_prefix(self.separator(1).1, self.separator(self.count - 1).1);
        let word_of = |index| {
            let key = self.separator(index).1;
            word(&key[common.min(key.len())..])
        };
        Some(Words { tree, common, words: (1..self.count).map(word_of).collect() })
    }

    /// Number of frames.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        self.bytes.len() + self.words.as_ref().map_or(0, |words| words.words.len() * 8)
    }

    /// Where frame `index` lies.
    pub fn frame(&self, index: usize) -> FrameAt {
        let entry = self.entry(index);
        FrameAt { offset: u64_at(entry, 0), length: u32_at(entry, 8) }
    }

    /// First tree and separator of frame `index`.
    pub fn separator(&self, index: usize) -> (TreeId, &[u8]) {
        let entry = self.entry(index);
        (u32_at(entry, 12), &entry[ENTRY_FIXED..])
    }

    /// The only frame that may hold the key; `None` if all keys of the table are greater.
    pub fn find(&self, tree: TreeId, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.count);
        if let Some(words) = &self.words {
            (low, high) = self.narrow(words, tree, key);
        }
        partition_point(low, high, |index| self.separator(index) <= (tree, key)).checked_sub(1)
    }

    /// Bounds of what [`IndexTable::find`] has to look at: separators before are not greater than
    /// the key, those from the second bound on are.
    fn narrow(&self, words: &Words, tree: TreeId, key: &[u8]) -> (usize, usize) {
        let prefix = &self.separator(1).1[..words.common];
        let order = tree.cmp(&words.tree).then_with(|| key[..words.common.min(key.len())].cmp(prefix));
        match order {
            Ordering::Less => (0, 1),
            Ordering::Greater => (self.count, self.count),
            Ordering::Equal => {
                let wanted = word(&key[words.common..]);
                let low = words.words.partition_point(|&word| word < wanted);
                let equal = words.words[low..].iter().take_while(|&&word| word == wanted).count();
                // Words begin with the second separator.
                if low == 0 { (0, equal + 1) } else { (low + 1, low + equal + 1) }
            }
        }
    }

    fn entry(&self, index: usize) -> &[u8] {
        let base = 4 + self.count * 4;
        let start = base + u32_at(&self.bytes, 4 + index * 4) as usize;
        let end = if index + 1 < self.count {
            base + u32_at(&self.bytes, 8 + index * 4) as usize
        } else {
            self.bytes.len()
        };
        &self.bytes[start..end]
    }
}

/// The first eight bytes as a number that sorts like them; a shorter key is filled up with zeros.
fn word(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let count = key.len().min(8);
    bytes[..count].copy_from_slice(&key[..count]);
    u64::from_be_bytes(bytes)
}

/// A partition in memory: filter and index of some data blocks.
#[derive(Debug)]
pub struct Partition {
    /// Bloom filter of all keys in the partition's blocks.
    pub filter: Bytes,
    /// The partition's data blocks.
    pub blocks: IndexTable,
}

impl Partition {
    /// Takes a verified body: filter length, filter, index table.
    pub fn decode(body: Bytes) -> Result<Partition, &'static str> {
        if body.len() < 4 {
            return Err("partition is too short");
        }
        let length = u32_at(&body, 0) as usize;
        if length > body.len() - 4 {
            return Err("partition with an impossible filter length");
        }
        let blocks = IndexTable::decode(body.slice(4 + length..))?;
        if blocks.count() == 0 {
            return Err("partition without blocks");
        }
        Ok(Partition { filter: body.slice(4..4 + length), blocks })
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        self.filter.len() + self.blocks.size()
    }
}
