//! The families that are in memory: all that have a member which is active or prepared, and a few besides.
//!
//! Operations on one family come one after the other: each holds the family's shard from looking at it until its record has its number. Families of one client's
//! numbered requests are in one shard, since they share the record of what is forgotten.
//!
//! A family's [`FamilySlot`] stands for it in locks and in the certifier as long as it has a member; members are transactions that have not ended, struck
//! or not, and prepared instances. A family without members is what is stored, except that nobody stores that an instance was begun and given up. So such families stay for a
//! while, and a number that was used is not used again soon; they are small, and few.
//!
//! Mutex order: a shard, then whatever an operation of the manager takes. No transaction may end while its shard is held: it comes here itself.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::doom::Doom;
use super::{Family, Instance, Xid};
use crate::lock::mode::FamilySlot;
use crate::sync::{Mutex, MutexGuard};
use crate::{Csn, TransactionId};

const SHARDS: usize = 64;
/// Families without members that a shard keeps, each with a request of at most so many bytes.
const IDLE_MAX: usize = 256;
const IDLE_REQUEST_MAX: usize = 256;

/// A family in memory.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) family: Family,
    /// The number of its last record.
    pub(super) last: Csn,
    slot: Option<FamilySlot>,
    members: usize,
    dooms: BTreeMap<TransactionId, Arc<Doom>>,
}

/// The families of one shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    live: HashMap<Xid, Live>,
    idle: VecDeque<Xid>,
}

#[derive(Debug, Default)]
struct Slots {
    used: u32,
    free: Vec<FamilySlot>,
}

/// See the module's prose.
pub(crate) struct Families {
    shards: Vec<Mutex<Shard>>,
    slots: Mutex<Slots>,
    hasher: RandomState,
}

impl Default for Families {
    fn default() -> Families {
        let shards = std::iter::repeat_with(Mutex::default).take(SHARDS).collect();
        Families { shards, slots: Mutex::default(), hasher: RandomState::new() }
    }
}

impl Families {
    pub(super) fn shard(&self, xid: &Xid) -> MutexGuard<'_, Shard> {
        let owner = xid.numbered().map_or(xid.as_str(), |(client, _)| client);
        self.shards[self.hasher.hash_one(owner) as usize % SHARDS].lock()
    }

    /// Counts a member; the answer is its family's slot.
    pub(super) fn join(&self, live: &mut Live) -> FamilySlot {
        live.members += 1;
        *live.slot.get_or_insert_with(|| {
            let mut slots = self.slots.lock();
            slots.free.pop().unwrap_or_else(|| {
                slots.used += 1;
                FamilySlot::MIN.saturating_add(slots.used - 1)
            })
        })
    }

    /// Members have ended; their locks are free and the certifier does not know them any more.
    pub(super) fn part(&self, shard: &mut Shard, xid: &Xid, members: usize) {
        let Some(live) = shard.live.get_mut(xid) else { return };
        live.members -= members;
        if live.members > 0 {
            return;
        }
        if let Some(slot) = live.slot.take() {
            self.slots.lock().free.push(slot);
        }
        shard.rest(xid);
    }
}

impl Live {
    pub(super) fn new(family: Family, last: Csn) -> Live {
        Live { family, last, slot: None, members: 0, dooms: BTreeMap::new() }
    }

    /// Watches over an active member.
    pub(super) fn doom(&mut self, owner: TransactionId) -> Arc<Doom> {
        Arc::clone(self.dooms.entry(owner).or_default())
    }

    /// An active member has ended, or is prepared.
    pub(super) fn release(&mut self, owner: TransactionId) {
        self.dooms.remove(&owner);
    }

    /// Strikes active members.
    pub(super) fn strike(&mut self, ended: &[(Instance, TransactionId)]) {
        for (instance, owner) in ended {
            if let Some(doom) = self.dooms.remove(owner) {
                let highest = Instance::new(self.family.highest()).unwrap_or(*instance);
                doom.strike(highest.max(*instance));
            }
        }
    }
}

impl Shard {
    pub(super) fn get(&mut self, xid: &Xid) -> Option<&mut Live> {
        self.live.get_mut(xid)
    }

    pub(super) fn enter(&mut self, xid: &Xid, live: Live) -> &mut Live {
        self.live.entry(xid.clone()).or_insert(live)
    }

    pub(super) fn remove(&mut self, xid: &Xid) {
        self.live.remove(xid);
    }

    /// A family without members: what is decided is stored; of the others a few stay.
    pub(super) fn rest(&mut self, xid: &Xid) {
        let Some(live) = self.live.get(xid).filter(|live| live.members == 0) else { return };
        let small = live.family.request().is_none_or(|request| request.len() <= IDLE_REQUEST_MAX);
        if live.family.outcome().is_some() || live.family.knows_nothing() || !small {
            self.live.remove(xid);
            return;
        }
        self.idle.push_back(xid.clone());
        if self.idle.len() > IDLE_MAX
            && let Some(oldest) = self.idle.pop_front()
            && self.live.get(&oldest).is_some_and(|live| live.members == 0)
            && !self.idle.contains(&oldest)
        {
            self.live.remove(&oldest);
        }
    }
}
