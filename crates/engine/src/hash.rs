//! Hashes of keys: by them the lock table finds its queues, and the certifier who touched a key.
//!
//! One hash for both, `foldhash`'s, in a few steps, since it is computed for every lock and every
//! read. Each database draws a seed when it opens ([`Seed`]), so that nobody can choose keys whose
//! hashes meet: such keys would make one queue's shard, or one chain of the certifier, as slow as
//! all of them together, and cost aborts. The engine's own tests, and the schedules that are
//! explored, have the fixed seed, so that each run is the one before.
//!
//! # What must not depend on the seed
//!
//! The nodes of a cluster have different seeds and come to the same verdicts, and what one has
//! stored another one reads. So a hash is looked up and compared with hashes of the same database,
//! and does nothing else:
//!
//! - It is neither stored nor sent. Whoever decodes reads or writes hashes their keys anew, with
//!   the seed of the database that he decodes them for.
//! - Nothing that is stored, sent or decided follows the order of hashes, or the order in which a
//!   map of hashes lists what it has. Reads and writes keep the order in which they came; a chain
//!   of touches has them in the order of commits, whichever bucket it begins at (`touches`); locks
//!   are sorted by tree and key before they leave the table (`LockTable::held_by`). What lists a
//!   map is for people to read, or does the same to all.
//! - How much is counted as used does not depend on it either.
//!
//! Two keys that meet by chance, one pair in 2^63, are one key to the certifier: that could refuse
//! somebody at one node only, which then differs by its digest and leaves. The maps of the order
//! and of families (`foldhash::fast::RandomState`) each draw what they begin with, so they differ
//! from database to database anyway, and the same holds for the order in which they list.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use cognate_env::{RealRng, Rng};
use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

use crate::TreeId;

/// A key's number. Two keys with one number count as one key in the certifier: that could cost an
/// abort, and hides nothing.
pub(crate) type KeyHash = u64;

/// A map whose keys are hashes already, or small numbers of trees.
pub(crate) type ByHash<K, V> = HashMap<K, V, BuildHasherDefault<Identity>>;

/// What the hashes of one database depend on besides the keys.
#[derive(Debug, Clone)]
pub(crate) struct Seed {
    /// With what each hash begins. If that were known, keys could be chosen that take it back to
    /// nothing: whatever comes after that is lost.
    start: u64,
    shared: SharedSeed,
}

/// Where each run is to be like the one before.
pub(crate) static FIXED: Seed = Seed::of(0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344);

impl Seed {
    /// Of two numbers.
    pub(crate) const fn of(start: u64, shared: u64) -> Seed {
        Seed { start, shared: SharedSeed::from_u64(shared) }
    }

    /// For a database that opens.
    pub(crate) fn of_database() -> Seed {
        match cfg!(any(test, feature = "shuttle")) {
            true => FIXED.clone(),
            false => Seed::drawn(),
        }
    }

    /// One that nobody knows.
    pub(crate) fn drawn() -> Seed {
        Seed::of(RealRng.next_u64(), RealRng.next_u64())
    }

    /// The number of a row's key.
    #[inline]
    pub(crate) fn hash_of(&self, tree: TreeId, key: &[u8]) -> KeyHash {
        let mut hasher = self.hasher_of(u64::from(tree));
        hasher.write(key);
        hasher.finish()
    }

    /// The number of a tree as a whole.
    #[inline]
    pub(crate) fn hash_of_tree(&self, tree: TreeId) -> KeyHash {
        self.hasher_of(u64::from(tree) | 1 << 32).finish()
    }

    #[inline]
    fn hasher_of(&self, space: u64) -> FoldHasher<'_> {
        // Spread, so that keys of neighbouring trees that differ by little do not meet.
        let space = space.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        FoldHasher::with_seed(self.start ^ space, &self.shared)
    }
}

/// Leaves hashes as they are, and spreads small numbers.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    static OTHER: Seed = Seed::of(3, 4);

    /// Another seed, other hashes: what meets under one does not meet under another.
    #[test]
    fn the_seed_decides_which_keys_meet() {
        let low = |seed: &Seed, key: u64| seed.hash_of(7, &key.to_be_bytes()) % 1024;
        let wanted = low(&FIXED, 0);
        let chosen: Vec<u64> = (0..200_000).filter(|key| low(&FIXED, *key) == wanted).collect();
        assert!(chosen.len() > 100);
        let places: HashSet<u64> = chosen.iter().map(|key| low(&OTHER, *key)).collect();
        assert!(places.len() > 50, "{} of {} chosen keys stay apart", places.len(), chosen.len());
    }

    /// Keys of two halves, of which the first one takes back what the hash begins with: all of them
    /// have one hash, whatever the rest of the seed is. So the beginning is drawn, too.
    #[test]
    fn keys_that_were_chosen_for_one_start_do_not_meet_under_another() {
        let start = FIXED.start ^ 7_u64.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let first = start.rotate_right(16).to_ne_bytes();
        let numbers = |seed: &Seed| {
            let key = |second: u64| [first, second.to_ne_bytes()].concat();
            (0..1000).map(|second| seed.hash_of(7, &key(second))).collect::<HashSet<u64>>()
        };
        assert_eq!((numbers(&FIXED).len(), numbers(&OTHER).len()), (1, 1000));
    }

    #[test]
    fn each_seed_that_is_drawn_is_another() {
        let numbers: HashSet<u64> = (0..100).map(|_| Seed::drawn().hash_of(7, b"k")).collect();
        assert_eq!(numbers.len(), 100);
    }

    #[test]
    fn a_tree_is_not_a_row_of_it() {
        assert_ne!(FIXED.hash_of(7, b""), FIXED.hash_of_tree(7));
        assert_ne!(FIXED.hash_of(7, b"k"), FIXED.hash_of(8, b"k"));
    }
}
