//! What is chosen for the classes, to be read without a lock.
//!
//! A class has one place, found by its key, which it may have to share; then the one that was asked
//! for last has it. An entry is key and protocol in one word, so it is never half of one class and
//! half of another. Entries of a class are written under the lock of its classes only, so none
//! outlives a change.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Key;
use super::report::Protocol;

/// Four times as many as classes, most of which are of one kind.
const PLACES: usize = 2048;
/// The bits that a key leaves to the protocol.
const PROTOCOL: u64 = 0b11;

/// The places.
#[derive(Debug)]
pub(super) struct Published(Box<[AtomicU64]>);

impl Published {
    pub(super) fn new() -> Published {
        Published((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }

    fn place(&self, key: Key) -> &AtomicU64 {
        &self.0[(key.number() >> 2) as usize % PLACES]
    }

    pub(super) fn get(&self, key: Key) -> Option<Protocol> {
        let entry = self.place(key).load(Ordering::Relaxed);
        if entry & !PROTOCOL != key.number() {
            return None;
        }
        // 0 is no protocol: an empty place is the entry of no class.
        Protocol::ALL.into_iter().find(|protocol| code(*protocol) == entry & PROTOCOL)
    }

    pub(super) fn put(&self, key: Key, protocol: Protocol) {
        self.place(key).store(key.number() | code(protocol), Ordering::Relaxed);
    }

    /// The class is no longer known. Somebody else's entry stays.
    pub(super) fn forget(&self, key: Key) {
        let place = self.place(key);
        let entry = place.load(Ordering::Relaxed);
        if entry & !PROTOCOL == key.number() {
            // If it fails, another class has taken the place.
            let _ = place.compare_exchange(entry, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

fn code(protocol: Protocol) -> u64 {
    protocol.index() as u64 + 1
}
