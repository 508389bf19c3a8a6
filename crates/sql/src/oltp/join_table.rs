//! The table of a hash join: rows one after the other, and chains of places with one hash.
//!
//! It is filled first and indexed afterwards, when the number of rows is known. A chain goes
//! through its rows in the order they came.
//!
//! Keys and values lie in blocks of some rows each, which are not moved when the table grows: with
//! all of them in one vector a statement would hear of nothing meanwhile.

use std::hash::{BuildHasher, Hash, Hasher};

use super::hash::Seeded;
use super::memory::datum_bytes;
use crate::error::Result;
use crate::types::Datum;

/// No place: the end of a chain.
pub(super) const NONE: u32 = u32::MAX;

/// Rows of a block.
const BLOCK: usize = 1 << 10;

/// Values of rows of one width, in blocks.
struct Blocks {
    width: usize,
    blocks: Vec<Vec<Datum>>,
}

impl Blocks {
    fn new(width: usize) -> Blocks {
        Blocks { width, blocks: vec![] }
    }

    /// Adds the row of this place, which is behind all others, and leaves `row` empty.
    fn push(&mut self, place: usize, row: &mut Vec<Datum>) {
        if place.is_multiple_of(BLOCK) {
            // The first one grows as any vector does: most tables have no other.
            let capacity = if place == 0 { 0 } else { BLOCK * self.width };
            self.blocks.push(Vec::with_capacity(capacity));
        }
        if let Some(last) = self.blocks.last_mut() {
            last.append(row);
        }
    }

    #[inline]
    fn row(&self, place: usize) -> &[Datum] {
        let begin = place % BLOCK * self.width;
        &self.blocks[place / BLOCK][begin..begin + self.width]
    }

    /// Gives all values back, the last one first, and asks for each of them.
    fn give_back(&mut self, mut go_on: impl FnMut() -> Result<()>) -> Result<()> {
        while let Some(mut last) = self.blocks.pop() {
            while last.pop().is_some() {
                go_on()?;
            }
        }
        Ok(())
    }
}

/// Rows by their keys.
pub(super) struct Table {
    seed: Seeded,
    keys: Blocks,
    values: Blocks,
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
            keys: Blocks::new(key_width),
            values: Blocks::new(value_width),
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
        let place = self.len();
        self.keys.push(place, key);
        self.values.push(place, values);
        self.hashes.push(hash);
    }

    pub(super) fn clear(&mut self) {
        *self = Table { seed: self.seed.clone(), ..Table::new(self.keys.width, self.values.width) };
    }

    /// The same, and asks for each value that is given back. After an error the table is of no use.
    pub(super) fn give_back(&mut self, mut go_on: impl FnMut() -> Result<()>) -> Result<()> {
        self.keys.give_back(&mut go_on)?;
        self.values.give_back(&mut go_on)?;
        self.clear();
        Ok(())
    }

    /// Makes the chains: no row follows. It asks for each row.
    pub(super) fn index(&mut self, is_marking: bool, mut go_on: impl FnMut() -> Result<()>) -> Result<()> {
        let rows = self.len();
        self.heads = vec![NONE; (rows * 2).next_power_of_two()];
        self.next = vec![NONE; rows];
        let mask = self.heads.len() as u64 - 1;
        for place in (0..rows).rev() {
            go_on()?;
            if let Some(hash) = self.hashes[place] {
                let head = &mut self.heads[(hash & mask) as usize];
                self.next[place] = std::mem::replace(head, place as u32);
            }
        }
        self.marked = if is_marking { vec![false; rows] } else { vec![] };
        Ok(())
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
        self.keys.row(place)
    }

    #[inline]
    pub(super) fn values(&self, place: usize) -> &[Datum] {
        self.values.row(place)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{SqlError, sqlstate};

    /// Two rows with each key, through some blocks.
    fn filled(count: i64) -> Table {
        let mut table = Table::new(1, 2);
        for n in 0..count {
            let mut key = vec![Datum::Int8(n / 2)];
            let mut values = vec![Datum::Int8(n), Datum::text("value")];
            let hash = table.hash(&key);
            table.push(hash, &mut key, &mut values);
            assert!(key.is_empty() && values.is_empty());
        }
        table
    }

    #[test]
    fn rows_of_all_blocks_are_found_in_their_order() {
        let count = 3 * BLOCK as i64 + 4;
        let mut table = filled(count);
        let mut asked = 0;
        let counting = || {
            asked += 1;
            Ok(())
        };
        table.index(false, counting).expect("nobody stops it");
        assert_eq!(asked, table.len(), "each row is asked for");
        for n in 0..count / 2 {
            let key = [Datum::Int8(n)];
            let hash = table.hash(&key).expect("no NULL");
            let (mut place, mut found) = (table.first(hash), vec![]);
            while let Some(at) = table.partner(place, hash, &key) {
                found.extend(table.values(at)[0].as_i64());
                place = table.following(at);
            }
            assert_eq!(found, [2 * n, 2 * n + 1]);
        }
    }

    #[test]
    fn to_index_a_table_and_to_give_it_back_can_be_left_half_way() {
        let count = 2 * BLOCK as i64;
        let stop = |left: &mut usize| {
            *left -= 1;
            match left {
                0 => Err(SqlError::new(sqlstate::QUERY_CANCELED, "stopped")),
                _ => Ok(()),
            }
        };
        let mut left = BLOCK;
        let stopped = filled(count).index(false, || stop(&mut left));
        assert_eq!(stopped.expect_err("it was stopped").sqlstate, "57014");
        let mut left = 3 * BLOCK;
        let mut table = filled(count);
        let stopped = table.give_back(|| stop(&mut left));
        assert_eq!(stopped.expect_err("it was stopped").sqlstate, "57014");
        table.clear();
        assert_eq!(table.len(), 0);
    }
}
