//! Hashes of resources: what a transaction remembers of each of its locks.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::TreeId;

/// A map whose keys are hashes already.
pub(super) type ByHash<V> = HashMap<u64, V, BuildHasherDefault<Identity>>;

/// The keys are hashes already.
#[derive(Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// Mixes eight bytes at a time: multiplication carries low bits up, the fold brings high bits down.
pub(super) fn hash(tree: TreeId, key: Option<&[u8]>) -> u64 {
    fn mix(state: u64, word: u64) -> u64 {
        let product = u128::from(state ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        (product as u64) ^ ((product >> 64) as u64)
    }
    let mut state = mix(0x2545_F491_4F6C_DD1D, u64::from(tree));
    let Some(key) = key else { return state };
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        state = mix(state, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    state = mix(state, u64::from_le_bytes(last));
    mix(state, 0xA5A5_0000_0000_0001 + key.len() as u64)
}
