//! One file's bytes, kept twice: as running programs see them, and as the medium holds them.

use std::collections::BTreeSet;

use crate::disk::SECTOR;
use crate::rng::SplitMix;

/// See the module's description. `dirty` are the sectors whose live bytes the next flush would
/// write.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) live: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<u64>,
    /// Least live length since the last flush: what lay behind it is gone, even if the file has
    /// grown again.
    least: usize,
}

impl Content {
    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        let end = offset as usize + data.len();
        if end > self.live.len() {
            lengthen(&mut self.live, end);
        }
        self.live[offset as usize..end].copy_from_slice(data);
        if !data.is_empty() {
            self.dirty.extend(offset / SECTOR..=(end as u64 - 1) / SECTOR);
        }
    }

    pub(super) fn set_len(&mut self, length: u64) {
        let shrinks = length < self.live.len() as u64;
        self.live.truncate(length as usize);
        lengthen(&mut self.live, length as usize);
        if shrinks {
            self.least = self.least.min(length as usize);
            self.dirty.retain(|&sector| sector * SECTOR < length);
            if length > 0 {
                self.dirty.insert((length - 1) / SECTOR);
            }
        }
    }

    pub(super) fn flush(&mut self) {
        self.flush_length(self.live.len());
        for sector in std::mem::take(&mut self.dirty) {
            self.flush_sector(sector);
        }
    }

    /// A flush that fails: some sectors may have been written; the rest stays in the cache, where
    /// it looks clean, so that no later flush writes it. (That is what Linux does.)
    pub(super) fn fail_flush(&mut self, random: &mut SplitMix) {
        if random.one_in(2) {
            self.flush_length(self.live.len());
        }
        for sector in std::mem::take(&mut self.dirty) {
            if random.one_in(3) {
                self.flush_sector(sector);
            }
        }
    }

    /// Power goes: any subset of the dirty sectors was written; the length is the old one, the new
    /// one, or between.
    pub(super) fn lose_power(&mut self, random: &mut SplitMix) {
        let (old, new) = (self.durable.len() as u64, self.live.len() as u64);
        let length = match random.below(4) {
            0 => old,
            1 | 2 => new,
            _ => {
                let (low, high) = (old.min(new), old.max(new));
                (low + random.below(high - low + 1)).next_multiple_of(SECTOR).clamp(low, high)
            }
        };
        if random.one_in(2) {
            // A cut that did not reach the medium: what lay behind it may be there again.
            self.least = self.durable.len();
        }
        self.flush_length(length as usize);
        // Often everything or nothing of a write survives; sometimes a mix.
        let kept_of_8 = [0, 8, 4, 1, 7][random.below(5) as usize];
        for sector in std::mem::take(&mut self.dirty) {
            if random.below(8) < kept_of_8 {
                self.flush_sector(sector);
            }
        }
        self.live.clone_from(&self.durable);
        self.least = self.live.len();
    }

    pub(super) fn flip(&mut self, offset: u64, mask: u8) {
        for bytes in [&mut self.live, &mut self.durable] {
            if let Some(byte) = bytes.get_mut(offset as usize) {
                *byte ^= mask;
            }
        }
    }

    fn flush_length(&mut self, length: usize) {
        self.durable.truncate(self.least);
        self.durable.truncate(length);
        lengthen(&mut self.durable, length);
        self.least = length;
    }

    /// Copies one sector to the medium, as far as the medium's file reaches.
    fn flush_sector(&mut self, sector: u64) {
        let start = (sector * SECTOR) as usize;
        let end = (start + SECTOR as usize).min(self.live.len()).min(self.durable.len());
        if start < end {
            self.durable[start..end].copy_from_slice(&self.live[start..end]);
        }
    }
}

/// Fills up with zeros, in portions: without optimization, `resize` takes a step a byte, and log
/// segments grow by a megabyte.
fn lengthen(bytes: &mut Vec<u8>, length: usize) {
    const ZEROS: [u8; 4096] = [0; 4096];
    while bytes.len() < length {
        let portion = ZEROS.len().min(length - bytes.len());
        bytes.extend_from_slice(&ZEROS[..portion]);
    }
}
