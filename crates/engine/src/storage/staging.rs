//! Pages of the log about to be written: the page that the batch before left unfinished, the batch,
//! and zeros up to a whole page.
//!
//! A write past the operating system's cache needs an aligned address and whole pages. Behind the
//! last batch the segment holds zeros, so writing zeros there changes nothing.

use cognate_env::disk::DIRECT;

/// Unit of the writes.
pub const PAGE: usize = DIRECT;

/// The buffer: whole pages at an aligned address.
#[derive(Debug, Default)]
pub struct Staging {
    /// One page longer than is used, so that some address in the first page is aligned.
    buffer: Vec<u8>,
    /// Where the used part begins.
    start: usize,
    /// Bytes of the used part that are in the log.
    filled: usize,
}

impl Staging {
    /// Begins in a page of which `begun` is in the log already.
    pub fn begin(&mut self, begun: &[u8]) {
        self.reserve(PAGE);
        self.buffer[self.start..self.start + begun.len()].copy_from_slice(begun);
        self.filled = begun.len();
    }

    /// Adds a batch; returns the pages that hold it.
    pub fn stage(&mut self, batch: &[u8]) -> &[u8] {
        let end = self.filled + batch.len();
        let whole = end.next_multiple_of(PAGE);
        self.reserve(whole);
        let used = &mut self.buffer[self.start..self.start + whole];
        used[self.filled..end].copy_from_slice(batch);
        used[end..].fill(0);
        self.filled = end;
        used
    }

    /// Forgets the pages that are full.
    pub fn keep_last_page(&mut self) {
        let last = self.filled - self.filled % PAGE;
        self.buffer.copy_within(self.start + last..self.start + self.filled, self.start);
        self.filled -= last;
    }

    /// Goes past a batch that was written without staging.
    pub fn pass(&mut self, batch: &[u8]) {
        let end = self.filled + batch.len();
        if end < PAGE {
            self.stage(batch);
        } else {
            self.begin(&batch[batch.len() - end % PAGE..]);
        }
    }

    /// Makes room for `bytes`; what is filled stays.
    fn reserve(&mut self, bytes: usize) {
        if self.buffer.len() >= self.start + bytes && !self.buffer.is_empty() {
            return;
        }
        let mut grown = vec![0; bytes.next_power_of_two() + PAGE];
        let start = grown.as_ptr().align_offset(PAGE).min(PAGE);
        grown[start..start + self.filled].copy_from_slice(&self.buffer[self.start..self.start + self.filled]);
        (self.buffer, self.start) = (grown, start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_everything_since_the_last_whole_one() {
        let mut staging = Staging::default();
        let mut log: Vec<u8> = vec![7; 64];
        staging.begin(&log);
        let lengths = [32, 4000, 32, 4096, 96, 20_000, 4096, 1 << 20, 32, 8032, 64, 4032, 4096, 32];
        for (number, length) in lengths.into_iter().cycle().take(500).enumerate() {
            let first = log.len() - log.len() % PAGE;
            let batch = vec![number as u8 | 1; length];
            log.extend(&batch);
            if number % 3 == 1 {
                staging.pass(&batch);
                continue;
            }
            let pages = staging.stage(&batch);
            assert_eq!(pages.as_ptr().addr() % PAGE, 0);
            assert_eq!(pages.len(), (log.len() - first).next_multiple_of(PAGE));
            let (written, padding) = pages.split_at(log.len() - first);
            assert!(written == &log[first..], "batch {number}");
            assert!(padding.iter().all(|&byte| byte == 0));
            staging.keep_last_page();
        }
    }
}
