//! Bloom filter of a partition: "is this key surely not here?".
//!
//! Split-block layout (Putze, Sanders, Singler: "Cache-, hash- and space-efficient Bloom filters",
//! 2007): a key belongs to one block of 512 bits and sets one bit in each of its eight 64-bit
//! words, so a question touches one cache line. With 12 bits a key about one absent key in two
//! hundred gets a wrong "maybe".

use super::record::u64_at;
use crate::TreeId;

const BLOCK: usize = 64;
const BITS_PER_KEY: usize = 12;

/// Odd multipliers that pick the bit in each word.
const PICK: [u32; 8] =
    [0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D, 0x27D4_EB2F, 0x1656_67B1, 0xA54F_F53B, 0x510E_527F, 0x9B05_688B];

/// Hash of a key in a tree. Part of the file format.
pub fn hash(tree: TreeId, key: &[u8]) -> u64 {
    const WORD: u64 = 0x9FB2_1C65_1E98_DF25;
    const END: u64 = 0xD6E8_FEB8_6659_FD93;
    let mut state = fold(u64::from(tree) ^ 0xA076_1D64_78BD_642F, WORD);
    let mut words = key.chunks_exact(8);
    for word in &mut words {
        state = fold(state ^ u64_at(word, 0), WORD);
    }
    let mut tail = [0; 8];
    let rest = words.remainder();
    tail[..rest.len()].copy_from_slice(rest);
    state = fold(state ^ u64::from_le_bytes(tail), END ^ key.len() as u64);
    fold(state ^ END, WORD)
}

fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ (product >> 64) as u64
}

/// Builds the filter of these hashes.
pub fn build(hashes: &[u64]) -> Vec<u8> {
    let blocks = (hashes.len() * BITS_PER_KEY).div_ceil(BLOCK * 8).max(1);
    let mut filter = vec![0; blocks * BLOCK];
    for &hash in hashes {
        let start = block_of(hash, blocks) * BLOCK;
        for (word, bit) in bits(hash).enumerate() {
            filter[start + word * 8 + bit / 8] |= 1 << (bit % 8);
        }
    }
    filter
}

/// False only if the key was not among those the filter was built of.
pub fn may_contain(filter: &[u8], hash: u64) -> bool {
    let blocks = filter.len() / BLOCK;
    if blocks == 0 {
        return true;
    }
    let block = &filter[block_of(hash, blocks) * BLOCK..][..BLOCK];
    bits(hash).enumerate().all(|(word, bit)| u64_at(block, word * 8) & (1 << bit) != 0)
}

fn block_of(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

fn bits(hash: u64) -> impl Iterator<Item = usize> {
    PICK.iter().map(move |pick| ((hash as u32).wrapping_mul(*pick) >> 26) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn present_keys_are_found_and_absent_ones_seldom() {
        let hashes: Vec<u64> = (0..10_000_u64).map(|key| hash(7, &key.to_be_bytes())).collect();
        let filter = build(&hashes);
        assert!(hashes.iter().all(|&hash| may_contain(&filter, hash)));
        let wrong =
            (10_000..110_000_u64).filter(|key| may_contain(&filter, hash(7, &key.to_be_bytes()))).count();
        assert!(wrong < 1500, "{wrong} of 100000 absent keys pass");
        assert_ne!(hash(1, b"a"), hash(2, b"a"));
        assert_ne!(hash(1, b"a"), hash(1, b"a\0"));
    }
}
