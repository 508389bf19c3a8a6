//! The transactions that are running, for views and gauges.

use std::time::Duration;

use crate::level::{Access, Isolation};
use crate::sync::{CachePadded, Mutex};
use crate::txn::id::Numbers;
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

/// Where a transaction stands among those that run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    shard: u32,
    place: u32,
}

/// Running transactions in sharded slots; a transaction keeps its slot.
#[derive(Default)]
pub(crate) struct Active {
    shards: [CachePadded<Mutex<Slots>>; SHARDS],
}

impl Active {
    fn slots(&self, slot: Slot) -> crate::sync::MutexGuard<'_, Slots> {
        self.shards[slot.shard as usize].lock()
    }

    /// Gives a transaction its id and enters it, both under the lock of one shard: whoever knows
    /// the next id, and then goes through all shards, misses no transaction with a lower one.
    pub(crate) fn enter(&self, ids: &Numbers, running: Running) -> (TransactionId, Slot) {
        // The shard is guessed from the next id, so that those who begin together are spread.
        let shard = ids.next() as usize % SHARDS;
        let mut slots = self.shards[shard].lock();
        let id = ids.take();
        let running = Some(Running { id, ..running });
        let place = match slots.free.pop() {
            Some(place) => {
                slots.running[place as usize] = running;
                place
            }
            None => {
                slots.running.push(running);
                slots.running.len() as u32 - 1
            }
        };
        (id, Slot { shard: shard as u32, place })
    }

    pub(crate) fn set_snapshot(&self, slot: Slot, snapshot: Csn) {
        if let Some(running) = &mut self.slots(slot).running[slot.place as usize] {
            running.snapshot = snapshot;
        }
    }

    pub(crate) fn set_isolation(&self, slot: Slot, isolation: Isolation) {
        if let Some(running) = &mut self.slots(slot).running[slot.place as usize] {
            running.isolation = isolation;
        }
    }

    pub(crate) fn leave(&self, slot: Slot) {
        let mut slots = self.slots(slot);
        slots.running[slot.place as usize] = None;
        slots.free.push(slot.place);
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
