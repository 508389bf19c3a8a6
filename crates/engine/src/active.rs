//! The transactions that are running, for views and gauges.

use std::time::Duration;

use crate::level::{Access, Isolation};
use crate::sync::{CachePadded, Mutex};
use crate::{Csn, Key, TransactionId, TreeId};

const SHARDS: usize = 16;

/// A running transaction, as seen by a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionInfo {
    /// Its id.
    pub id: TransactionId,
    /// Its isolation level.
    pub isolation: Isolation,
    /// Whether it may write.
    pub access: Access,
    /// Its snapshot (the latest, under read committed).
    pub snapshot: Csn,
    /// Time since it began.
    pub age: Duration,
    /// The tree, and the key unless it is the whole tree, of the lock that it waits for.
    pub waits_for: Option<(TreeId, Option<Key>)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Running {
    pub(crate) id: TransactionId,
    pub(crate) isolation: Isolation,
    pub(crate) access: Access,
    pub(crate) snapshot: Csn,
    /// Monotonic time.
    pub(crate) began: Duration,
}

#[derive(Default)]
struct Slots {
    running: Vec<Option<Running>>,
    free: Vec<u32>,
}

/// Running transactions in sharded slots; a transaction keeps the number of its slot.
#[derive(Default)]
pub(crate) struct Active {
    shards: [CachePadded<Mutex<Slots>>; SHARDS],
}

impl Active {
    fn slots(&self, id: TransactionId) -> crate::sync::MutexGuard<'_, Slots> {
        self.shards[id as usize % SHARDS].lock()
    }

    /// Enters a transaction; the answer is its slot.
    pub(crate) fn enter(&self, running: Running) -> u32 {
        let mut slots = self.slots(running.id);
        match slots.free.pop() {
            Some(slot) => {
                slots.running[slot as usize] = Some(running);
                slot
            }
            None => {
                slots.running.push(Some(running));
                slots.running.len() as u32 - 1
            }
        }
    }

    pub(crate) fn set_snapshot(&self, id: TransactionId, slot: u32, snapshot: Csn) {
        if let Some(running) = &mut self.slots(id).running[slot as usize] {
            running.snapshot = snapshot;
        }
    }

    pub(crate) fn set_isolation(&self, id: TransactionId, slot: u32, isolation: Isolation) {
        if let Some(running) = &mut self.slots(id).running[slot as usize] {
            running.isolation = isolation;
        }
    }

    pub(crate) fn leave(&self, id: TransactionId, slot: u32) {
        let mut slots = self.slots(id);
        slots.running[slot as usize] = None;
        slots.free.push(slot);
    }

    /// How many are running.
    pub(crate) fn count(&self) -> u64 {
        let running = |shard: &CachePadded<Mutex<Slots>>| {
            let slots = shard.lock();
            (slots.running.len() - slots.free.len()) as u64
        };
        self.shards.iter().map(running).sum()
    }

    /// All running transactions by id.
    pub(crate) fn list(&self) -> Vec<Running> {
        let shards = self.shards.iter();
        let mut all: Vec<Running> = shards.flat_map(|s| s.lock().running.clone()).flatten().collect();
        all.sort_unstable_by_key(|running| running.id);
        all
    }
}
