//! A data block: some entries of one tree, ascending by key. The byte map is in
//! `docs/log-format.md`.
//!
//! Keys are stored whole, so that a scan hands out keys and values as slices of the block, without
//! copying. Slots in front, each with an entry's offset and four bytes of its key, make a point
//! read a binary search through few cache lines.

use std::cmp::Ordering;
use std::ops::Range;

use bytes::Bytes;

use super::frame::FRAME_HEADER;
use super::record::u32_at;
use crate::lent::Lent;
use crate::{TreeId, Value};

/// Tree, count, length of the common prefix.
const FIXED: usize = 12;

/// Entry offset, and the first four bytes of its key behind the common prefix.
const SLOT: usize = 8;

/// Values up to this many bytes are copied out of their block rather than keeping it in memory.
const COPIED_MAX: usize = 1024;

/// A block under construction.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    /// Of each entry: where it begins, and its key.
    slots: Vec<(u32, Range<usize>)>,
    entries: Vec<u8>,
}

impl BlockBuilder {
    /// Adds an entry; the caller keeps keys ascending. `None` is a deletion.
    pub fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        let offset = self.entries.len() as u32;
        put_varint(&mut self.entries, key.len() as u32);
        put_varint(&mut self.entries, value.map_or(0, |value| value.len() as u32 + 1));
        let start = self.entries.len();
        self.slots.push((offset, start..start + key.len()));
        self.entries.extend_from_slice(key);
        self.entries.extend_from_slice(value.unwrap_or(&[]));
    }

    /// Bytes that [`BlockBuilder::finish`] would write.
    pub fn size(&self) -> usize {
        FIXED + self.slots.len() * SLOT + self.entries.len()
    }

    /// Number of entries so far.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Appends the block's body to `out` and starts over.
    pub fn finish(&mut self, tree: TreeId, out: &mut Vec<u8>) {
        let base = (FIXED + self.slots.len() * SLOT) as u32;
        let key =
            |slot: Option<&(u32, Range<usize>)>| slot.map_or(&[][..], |slot| &self.entries[slot.1.clone()]);
        let common = common_prefix(key(self.slots.first()), key(self.slots.last()));
        out.extend_from_slice(&tree.to_le_bytes());
        out.extend_from_slice(&(self.slots.len() as u32).to_le_bytes());
        out.extend_from_slice(&(common as u32).to_le_bytes());
        for (offset, key) in self.slots.drain(..) {
            out.extend_from_slice(&(base + offset).to_le_bytes());
            out.extend_from_slice(&word(&self.entries[key][common..]).to_le_bytes());
        }
        out.extend_from_slice(&self.entries);
        self.entries.clear();
    }
}

/// Length of the longest common prefix.
pub fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// The first four bytes as a number that sorts like them; a shorter key is filled up with zeros.
fn word(key: &[u8]) -> u32 {
    let mut bytes = [0; 4];
    let count = key.len().min(4);
    bytes[..count].copy_from_slice(&key[..count]);
    u32::from_be_bytes(bytes)
}

/// A block in memory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Block {
    body: Bytes,
}

/// Where an entry's parts lie in the body.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key.
    pub key: Range<usize>,
    /// The value; `None` if deleted.
    pub value: Option<Range<usize>>,
}

impl Block {
    /// Takes a verified frame, checking the shape of its body, so that later accesses cannot go
    /// wrong.
    pub fn decode(frame: Vec<u8>) -> Result<Block, &'static str> {
        if frame.len() < FRAME_HEADER + FIXED {
            return Err("data block is too short");
        }
        let block = Block { body: Bytes::from(frame).slice(FRAME_HEADER..) };
        let (body, count) = (block.body(), block.count());
        let base = count.checked_mul(SLOT).and_then(|slots| slots.checked_add(FIXED));
        let Some(mut expected) = base.filter(|&base| count > 0 && base <= body.len()) else {
            return Err("data block with an impossible number of entries");
        };
        for index in 0..count {
            if u32_at(body, FIXED + index * SLOT) as usize != expected {
                return Err("data block with a wrong entry offset");
            }
            let Some(entry) = parse(body, expected) else {
                return Err("data block with a wrong entry length");
            };
            expected = entry.value.map_or(entry.key.end, |value| value.end);
        }
        if expected == body.len() { Ok(block) } else { Err("data block with bytes behind its entries") }
    }

    fn body(&self) -> &[u8] {
        &self.body
    }

    /// The block's body, to be sliced by the ranges of its entries. Keeps the block in memory.
    pub fn share(&self) -> Bytes {
        self.body.clone()
    }

    /// The tree that all entries belong to.
    pub fn tree(&self) -> TreeId {
        u32_at(self.body(), 0)
    }

    /// Number of entries, at least 1.
    pub fn count(&self) -> usize {
        u32_at(self.body(), 4) as usize
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        FRAME_HEADER + self.body.len()
    }

    /// Key of entry `index`, which is below [`Block::count`].
    pub fn key(&self, index: usize) -> &[u8] {
        &self.body()[self.entry(index).key]
    }

    /// Value of entry `index`; `None` if deleted.
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        self.entry(index).value.map(|range| &self.body()[range])
    }

    /// Value of entry `index`, to keep: a copy if it is small, else a slice that keeps the block in
    /// memory. `None` if deleted.
    pub fn owned_value(&self, index: usize) -> Option<Value> {
        let range = self.entry(index).value?;
        if range.len() <= COPIED_MAX {
            Some(Value::copy_from_slice(&self.body()[range]))
        } else {
            Some(self.share().slice(range))
        }
    }

    /// Lends `read` the value of entry `index`; false if it is deleted.
    pub fn lend(&self, index: usize, read: &mut dyn FnMut(Lent<'_>)) -> bool {
        match self.entry(index).value {
            Some(range) => {
                read(Lent::new(&self.body[range], &self.body));
                true
            }
            None => false,
        }
    }

    /// The entry with this key, or the index where it would be.
    ///
    /// Slots carry the four bytes behind the block's common prefix, so that the search stays in a
    /// few neighbouring cache lines and looks into entries only where these four bytes are equal.
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (body, count) = (self.body(), self.count());
        let common = u32_at(body, 8) as usize;
        if common > 0 {
            let prefix = self.key(0);
            let prefix = &prefix[..common.min(prefix.len())];
            match key[..common.min(key.len())].cmp(prefix) {
                Ordering::Less => return Err(0),
                Ordering::Greater => return Err(count),
                Ordering::Equal => {}
            }
        }
        let wanted = word(&key[common.min(key.len())..]);
        let word_of = |index: usize| u32_at(body, FIXED + index * SLOT + 4);
        let mut low = partition_point(0, count, |index| word_of(index) < wanted);
        let mut high = low;
        if low < count && word_of(low) == wanted {
            high = if low + 1 < count && word_of(low + 1) == wanted {
                partition_point(low + 1, count, |index| word_of(index) == wanted)
            } else {
                low + 1
            };
        }
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

    /// Where entry `index` lies in the body.
    pub fn entry(&self, index: usize) -> Entry {
        let body = self.body();
        let offset = u32_at(body, FIXED + index * SLOT) as usize;
        parse(body, offset).expect("the block's shape was checked when it was decoded")
    }
}

/// The first index in `low..high` for which `before` does not hold; it holds for a prefix of them.
pub fn partition_point(mut low: usize, mut high: usize, before: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = (low + high) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

fn parse(body: &[u8], offset: usize) -> Option<Entry> {
    let (key_length, at) = get_varint(body, offset)?;
    let (value_length, at) = get_varint(body, at)?;
    let key = at..at.checked_add(key_length as usize)?;
    let value = match value_length {
        0 => None,
        length => Some(key.end..key.end.checked_add(length as usize - 1)?),
    };
    let end = value.as_ref().map_or(key.end, |value| value.end);
    (end <= body.len()).then_some(Entry { key, value })
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
