//! Hashes of keys: by them the lock table finds its queues, and the certifier who touched a key.
//!
//! One hash for both, `foldhash`'s, in a few steps, since it is computed for every lock and every
//! read. Its seed is drawn once for each process, so that nobody can choose keys whose hashes meet:
//! such keys would make one queue's shard, or one chain of the certifier, as slow as all of them
//! together, and cost aborts. Nothing that is stored or sent depends on it, and no verdict does,
//! but for two keys that meet by chance. The engine's own tests, and the schedules that are
//! explored, have the fixed seed, so that each run is the one before.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

use crate::TreeId;

/// A key's number. Two keys with one number count as one key in the certifier: that could cost an
/// abort, and hides nothing.
pub(crate) type KeyHash = u64;

/// A map whose keys are hashes already, or small numbers of trees.
pub(crate) type ByHash<K, V> = HashMap<K, V, BuildHasherDefault<Identity>>;

/// The number of a row's key.
#[inline]
pub(crate) fn hash_of(tree: TreeId, key: &[u8]) -> KeyHash {
    let mut hasher = hasher_of(u64::from(tree));
    hasher.write(key);
    hasher.finish()
}

/// The number of a tree as a whole.
#[inline]
pub(crate) fn hash_of_tree(tree: TreeId) -> KeyHash {
    hasher_of(u64::from(tree) | 1 << 32).finish()
}

#[inline]
fn hasher_of(space: u64) -> impl Hasher {
    let seed = match cfg!(any(test, feature = "shuttle")) {
        true => SharedSeed::global_fixed(),
        false => SharedSeed::global_random(),
    };
    // Spread, so that keys of neighbouring trees that differ by little do not meet.
    let space = space.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    SeedableRandomState::with_seed(space, seed).build_hasher()
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
    use super::*;

    /// Another seed, other hashes: what meets under one does not meet under another.
    #[test]
    fn the_seed_decides_which_keys_meet() {
        let of = |seed: &'static SharedSeed, key: u64| {
            SeedableRandomState::with_seed(7, seed).hash_one(key.to_be_bytes())
        };
        let fixed = SharedSeed::global_fixed();
        let drawn = SharedSeed::global_random();
        let low = |hash: u64| hash % 1024;
        let wanted = low(of(fixed, 0));
        let chosen: Vec<u64> = (0..200_000).filter(|key| low(of(fixed, *key)) == wanted).collect();
        assert!(chosen.len() > 100);
        let places: std::collections::HashSet<u64> = chosen.iter().map(|key| low(of(drawn, *key))).collect();
        assert!(places.len() > 50, "{} of {} chosen keys stay apart", places.len(), chosen.len());
    }

    #[test]
    fn a_tree_is_not_a_row_of_it() {
        assert_ne!(hash_of(7, b""), hash_of_tree(7));
        assert_ne!(hash_of(7, b"k"), hash_of(8, b"k"));
    }
}
