//! The table of a hash join: rows one after the other in two long vectors, and chains of places
//! with one hash.
//!
//! It is filled first and indexed afterwards, when the number of rows is known. A chain goes
//! through its rows in the order they came.

use std::hash::{BuildHasher, Hash, Hasher};

use super::hash::Seeded;
use super::memory::datum_bytes;
use crate::types::Datum;

/// No place: the end of a chain.
pub(super) const NONE: u32 = u32::MAX;

/// Rows by their keys.
pub(super) struct Table {
    seed: Seeded,
    key_width: usize,
    value_width: usize,
    keys: Vec<Datum>,
    values: Vec<Datum>,
    /// One for each row; none for a key with NULL, which equals nothing.
    hashes: Vec<Option<u64>>,
    /// Where the chain of each bucket begins, and for each row where it goes on.
    heads: Vec<u32>,
    next: Vec<u32>,
    /// Rows that have found a partner, if that is asked for.
    marked: Vec<bool>,
}

impl Table {
    pub(super) fn new(key_width: usize, value_width: usize) -> Table {
        Table {
            seed: Seeded::default(),
            key_width,
            value_width,
            keys: vec![],
            values: vec![],
            hashes: vec![],
            heads: vec![],
            next: vec![],
            marked: vec![],
        }
    }

    /// Bytes of a row that is held.
    pub(super) fn bytes_of(key: &[Datum], values: &[Datum]) -> usize {
        key.iter().chain(values).map(datum_bytes).sum::<usize>() + 32
    }

    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// The hash of a key; none if a part is NULL.
    #[inline]
    pub(super) fn hash(&self, key: &[Datum]) -> Option<u64> {
        let mut hasher = self.seed.build_hasher();
        for value in key {
            match (value, value.as_i64()) {
                (Datum::Null, _) => return None,
                // Integers of any width may be equal.
                (_, Some(number)) => hasher.write_i64(number),
                _ => value.hash(&mut hasher),
            }
        }
        Some(hasher.finish())
    }

    /// Adds a row, and leaves `key` and `values` empty.
    pub(super) fn push(&mut self, hash: Option<u64>, key: &mut Vec<Datum>, values: &mut Vec<Datum>) {
        self.hashes.push(hash);
        self.keys.append(key);
        self.values.append(values);
    }

    pub(super) fn clear(&mut self) {
        *self = Table { seed: self.seed.clone(), ..Table::new(self.key_width, self.value_width) };
    }

    /// Makes the chains: no row follows.
    pub(super) fn index(&mut self, is_marking: bool) {
        let rows = self.len();
        self.heads = vec![NONE; (rows * 2).next_power_of_two()];
        self.next = vec![NONE; rows];
        let mask = self.heads.len() as u64 - 1;
        for place in (0..rows).rev() {
            if let Some(hash) = self.hashes[place] {
                let head = &mut self.heads[(hash & mask) as usize];
                self.next[place] = std::mem::replace(head, place as u32);
            }
        }
        self.marked = if is_marking { vec![false; rows] } else { vec![] };
    }

    /// Where the rows of a hash begin.
    #[inline]
    pub(super) fn first(&self, hash: u64) -> u32 {
        match self.heads.len() {
            0 => NONE,
            buckets => self.heads[(hash & (buckets as u64 - 1)) as usize],
        }
    }

    /// The first row with this key, from a place of its chain on.
    #[inline]
    pub(super) fn partner(&self, mut place: u32, hash: u64, key: &[Datum]) -> Option<usize> {
        while place != NONE {
            let at = place as usize;
            if self.hashes[at] == Some(hash) && self.key(at) == key {
                return Some(at);
            }
            place = self.next[at];
        }
        None
    }

    /// The place after a row in its chain.
    #[inline]
    pub(super) fn following(&self, place: usize) -> u32 {
        self.next[place]
    }

    pub(super) fn hash_at(&self, place: usize) -> Option<u64> {
        self.hashes[place]
    }

    #[inline]
    pub(super) fn key(&self, place: usize) -> &[Datum] {
        &self.keys[place * self.key_width..(place + 1) * self.key_width]
    }

    #[inline]
    pub(super) fn values(&self, place: usize) -> &[Datum] {
        &self.values[place * self.value_width..(place + 1) * self.value_width]
    }

    /// A row has found a partner.
    pub(super) fn mark(&mut self, place: usize) {
        self.marked[place] = true;
    }

    /// The first row from a place on that has not.
    pub(super) fn unmarked(&self, from: usize) -> Option<usize> {
        (from..self.marked.len()).find(|place| !self.marked[*place])
    }
}
