//! A fast hash for values that users choose: multiply and fold, from a random start for each table.
//!
//! Rows that do not fit into memory are divided by it, and come back part by part. So where every
//! node executes the same, all tables have a start that all nodes know ([`alike`]).

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

thread_local! {
    /// The start of the tables that are made here.
    static ALIKE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// While it lives, tables that this thread makes have one start. It does not leave the thread.
pub(crate) struct Alike {
    before: Option<u64>,
    stays: PhantomData<*const ()>,
}

/// From now on tables that this thread makes have this start.
pub(crate) fn alike(start: u64) -> Alike {
    Alike { before: ALIKE.replace(Some(start)), stays: PhantomData }
}

impl Drop for Alike {
    fn drop(&mut self) {
        ALIKE.set(self.before);
    }
}

/// Makes hashers with a common random start.
#[derive(Clone, Debug)]
pub(crate) struct Seeded(u64);

impl Default for Seeded {
    fn default() -> Seeded {
        // The standard library's keys are random; one hash of them serves as our start.
        Seeded(ALIKE.get().unwrap_or_else(|| RandomState::new().hash_one(0u8)))
    }
}

impl BuildHasher for Seeded {
    type Hasher = Folding;
    fn build_hasher(&self) -> Folding {
        Folding { state: self.0, seed: self.0 | 1 }
    }
}

/// The hasher.
pub(crate) struct Folding {
    state: u64,
    seed: u64,
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word) ^ ((rest.len() as u64) << 56));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.state = fold(self.state ^ value ^ self.seed, MULTIPLIER ^ self.seed.rotate_left(32));
    }

    fn write_u128(&mut self, value: u128) {
        self.write_u64(value as u64);
        self.write_u64((value >> 64) as u64);
    }

    fn write_i64(&mut self, value: i64) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        fold(self.state, MULTIPLIER)
    }
}
