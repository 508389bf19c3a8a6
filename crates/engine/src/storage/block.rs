//! A data block: some entries of one tree, ascending by key. The byte map is in `docs/log-format.md`.
//!
//! Keys are stored whole, so that a scan hands out keys and values as slices of the block, without copying. Entry offsets in front make a
//! point read a binary search.

use std::cmp::Ordering;
use std::ops::Range;

use bytes::Bytes;

use super::record::u32_at;
use crate::{Key, TreeId, Value};

const FIXED: usize = 8;

/// A block under construction.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    offsets: Vec<u32>,
    entries: Vec<u8>,
}

impl BlockBuilder {
    /// Adds an entry; the caller keeps keys ascending. `None` is a deletion.
    pub fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.offsets.push(self.entries.len() as u32);
        put_varint(&mut self.entries, key.len() as u32);
        put_varint(&mut self.entries, value.map_or(0, |value| value.len() as u32 + 1));
        self.entries.extend_from_slice(key);
        self.entries.extend_from_slice(value.unwrap_or(&[]));
    }

    /// Bytes that [`BlockBuilder::finish`] would write.
    pub fn size(&self) -> usize {
        FIXED + self.offsets.len() * 4 + self.entries.len()
    }

    /// Number of entries so far.
    pub fn count(&self) -> usize {
        self.offsets.len()
    }

    /// Appends the block's body to `out` and starts over.
    pub fn finish(&mut self, tree: TreeId, out: &mut Vec<u8>) {
        let base = (FIXED + self.offsets.len() * 4) as u32;
        out.extend_from_slice(&tree.to_le_bytes());
        out.extend_from_slice(&(self.offsets.len() as u32).to_le_bytes());
        for offset in self.offsets.drain(..) {
            out.extend_from_slice(&(base + offset).to_le_bytes());
        }
        out.extend_from_slice(&self.entries);
        self.entries.clear();
    }
}

/// A block in memory. Cheap to clone; its entries keep it alive.
#[derive(Debug, Clone)]
pub struct Block {
    body: Bytes,
}

/// Where an entry's parts lie in the body.
struct Entry {
    key: Range<usize>,
    value: Option<Range<usize>>,
}

impl Block {
    /// Takes a verified body, checking its shape, so that later accesses cannot go wrong.
    pub fn decode(body: Bytes) -> Result<Block, &'static str> {
        if body.len() < FIXED {
            return Err("data block is too short");
        }
        let block = Block { body };
        let count = block.count();
        let base = count.checked_mul(4).and_then(|slots| slots.checked_add(FIXED));
        let Some(mut expected) = base.filter(|&base| count > 0 && base <= block.body.len()) else {
            return Err("data block with an impossible number of entries");
        };
        for index in 0..count {
            if u32_at(&block.body, FIXED + index * 4) as usize != expected {
                return Err("data block with a wrong entry offset");
            }
            let Some(entry) = block.parse(expected) else {
                return Err("data block with a wrong entry length");
            };
            expected = entry.value.map_or(entry.key.end, |value| value.end);
        }
        if expected == block.body.len() { Ok(block) } else { Err("data block with bytes behind its entries") }
    }

    /// The tree that all entries belong to.
    pub fn tree(&self) -> TreeId {
        u32_at(&self.body, 0)
    }

    /// Number of entries, at least 1.
    pub fn count(&self) -> usize {
        u32_at(&self.body, 4) as usize
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        self.body.len()
    }

    /// Key of entry `index`, which is below [`Block::count`].
    pub fn key(&self, index: usize) -> &[u8] {
        &self.body[self.entry(index).key]
    }

    /// Key of entry `index` as a slice of this block.
    pub fn owned_key(&self, index: usize) -> Key {
        self.body.slice(self.entry(index).key)
    }

    /// Value of entry `index` as a slice of this block; `None` if deleted.
    pub fn owned_value(&self, index: usize) -> Option<Value> {
        self.entry(index).value.map(|range| self.body.slice(range))
    }

    /// Value of entry `index`; `None` if deleted.
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        self.entry(index).value.map(|range| &self.body[range])
    }

    /// The entry with this key, or the index where it would be.
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = (low + high) / 2;
            match self.key(middle).cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    fn entry(&self, index: usize) -> Entry {
        let offset = u32_at(&self.body, FIXED + index * 4) as usize;
        self.parse(offset).expect("the block's shape was checked when it was decoded")
    }

    fn parse(&self, offset: usize) -> Option<Entry> {
        let (key_length, at) = get_varint(&self.body, offset)?;
        let (value_length, at) = get_varint(&self.body, at)?;
        let key = at..at.checked_add(key_length as usize)?;
        let value = match value_length {
            0 => None,
            length => Some(key.end..key.end.checked_add(length as usize - 1)?),
        };
        let end = value.as_ref().map_or(key.end, |value| value.end);
        (end <= self.body.len()).then_some(Entry { key, value })
    }
}

fn put_varint(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The number at `offset`, and the offset behind it.
fn get_varint(bytes: &[u8], mut offset: usize) -> Option<(u32, usize)> {
    let first = *bytes.get(offset)?;
    offset += 1;
    if first < 0x80 {
        return Some((u32::from(first), offset));
    }
    let mut number = u32::from(first & 0x7F);
    for shift in [7, 14, 21, 28] {
        let byte = *bytes.get(offset)?;
        offset += 1;
        if shift == 28 && byte > 0x0F {
            return None;
        }
        number |= u32::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some((number, offset));
        }
    }
    None
}
