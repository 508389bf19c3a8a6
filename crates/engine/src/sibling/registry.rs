//! The families that are in memory: all that have a member which is active or prepared, and a few
//! besides.
//!
//! Operations on one family come one after the other: each holds the family's shard from looking at
//! it until its record has its number. Families of one client's numbered requests are in one shard,
//! since they share the record of what is forgotten.
//!
//! A family's [`FamilySlot`] stands for it in locks and in the certifier as long as it has a
//! member; members are transactions that have not ended, struck or not, and prepared instances. A
//! family without members is what is stored, except that nobody stores that an instance was begun
//! and given up. So such families stay for a while, and a number that was used is not used again
//! soon; they are small, and few.
//!
//! The maps hash with `foldhash`, which the lock file had already: each begins with a number that
//! it has drawn, so that nobody can choose XIDs that collide, and cheaper than the standard
//! library's way, for each operation looks here several times.
//!
//! Mutex order: a shard, then whatever an operation of the manager takes. No transaction may end
//! while its shard is held: it comes here itself.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::clients::Clients;
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
    /// Something was stored of it since it was last counted.
    pub(super) is_stored: bool,
    slot: Option<FamilySlot>,
    members: usize,
    /// Of the active members, in no order.
    dooms: SmallVec<[(TransactionId, Arc<Doom>); 1]>,
}

/// The families of one shard.
#[derive(Debug)]
pub(super) struct Shard {
    live: HashMap<Xid, Live, RandomState>,
    idle: VecDeque<Xid>,
    slots: Slots,
    pub(super) clients: Clients,
}

/// Each shard has every so many-th slot.
#[derive(Debug)]
struct Slots {
    next: FamilySlot,
    free: Vec<FamilySlot>,
}

/// See the module's prose.
pub(crate) struct Families {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
}

impl Default for Families {
    fn default() -> Families {
        let shard = |number| {
            let slots = Slots { next: FamilySlot::MIN.saturating_add(number), free: Vec::new() };
            Mutex::new(Shard {
                live: HashMap::default(),
                idle: VecDeque::new(),
                slots,
                clients: Clients::default(),
            })
        };
        Families { shards: (0..SHARDS as u32).map(shard).collect(), hasher: RandomState::default() }
    }
}

impl Slots {
    fn take(&mut self) -> FamilySlot {
        self.free.pop().unwrap_or_else(|| {
            let slot = self.next;
            self.next = slot.saturating_add(SHARDS as u32);
            slot
        })
    }
}

impl Families {
    pub(super) fn shard(&self, xid: &Xid) -> MutexGuard<'_, Shard> {
        // Of a numbered XID, that is its client.
        let owner = xid.as_str().rsplit_once('/').map_or(xid.as_str(), |(client, _)| client);
        self.shards[self.hasher.hash_one(owner) as usize % SHARDS].lock()
    }
}

impl Live {
    pub(super) fn new(family: Family, last: Csn) -> Live {
        Live { family, last, is_stored: false, slot: None, members: 0, dooms: SmallVec::new() }
    }

    /// Watches over an active member.
    pub(super) fn doom(&mut self, owner: TransactionId) -> Arc<Doom> {
        let doom = Arc::<Doom>::default();
        self.dooms.push((owner, Arc::clone(&doom)));
        doom
    }

    /// An active member has ended, or is prepared.
    pub(super) fn release(&mut self, owner: TransactionId) -> Option<Arc<Doom>> {
        let place = self.dooms.iter().position(|doom| doom.0 == owner)?;
        Some(self.dooms.swap_remove(place).1)
    }

    /// Strikes active members.
    pub(super) fn strike(&mut self, ended: &[(Instance, TransactionId)]) {
        for (instance, owner) in ended {
            if let Some(doom) = self.release(*owner) {
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

    /// Counts a member of a family that is in memory; the answer is the family's slot.
    pub(super) fn join(&mut self, xid: &Xid) -> Option<FamilySlot> {
        let live = self.live.get_mut(xid)?;
        live.members += 1;
        Some(*live.slot.get_or_insert_with(|| self.slots.take()))
    }

    /// The end of an operation: so many members have ended; their locks are free and the certifier
    /// does not know them any more.
    pub(super) fn part(&mut self, xid: &Xid, members: usize) {
        let Some(live) = self.live.get_mut(xid) else { return };
        let is_stored = std::mem::take(&mut live.is_stored);
        if let Some((client, number)) = xid.numbered().filter(|_| is_stored) {
            self.clients.raise(client, number);
        }
        live.members -= members;
        if live.members == 0 {
            self.slots.free.extend(live.slot.take());
            self.rest(xid);
        }
    }

    /// A family without members: what is decided is stored; of the others a few stay.
    fn rest(&mut self, xid: &Xid) {
        let Some(live) = self.live.get(xid) else { return };
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
