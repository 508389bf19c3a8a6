//! The order's log: entries, votes and marks of the consensus, in segments of the engine's log.
//!
//! It *is* the log of a node in a cluster. An entry is written once, with its checksum, in a batch
//! with whatever else waits, and one flush makes the batch durable; the engine needs no log of its
//! own beside it, and recovers by being given again what comes after its checkpoint
//! ([`crate::delivery`]). The rules for torn tails and damage are the engine's, too: only the
//! unfinished end of the last segment may be cut, anything else is named with file and offset.
//!
//! What is removed are whole segments from the front, after a record of [`record::State`] has
//! repeated behind them all that is still true ([`OrderLog::purge`]).
//!
//! Two marks: an entry is *synced* once its record is durable here, and *settled* once a majority
//! has it; the application is given settled requests, and may checkpoint what is also synced. So
//! whatever its checkpoint contains is in this log or before it, and is known to be settled.
//!
//! *A lone entry.* A follower to which one entry comes, with everything before it settled, has
//! nothing else to do until the entry is on its disk, and neither has the cluster: it writes the
//! entry on the thread that appends it, and so saves two switches between threads on the way of a
//! commit ([`OrderLog::append`]). Where more is under way, the log's thread flushes while this
//! one takes in what comes next. A leader always leaves it to that: its own flush ends before the
//! others have answered, so mostly it is not waited for, and its thread has to go on sending. For
//! the same reason it sends a lone entry before it wakes the log's thread
//! ([`OrderLog::append_unwoken`]).
//!
//! Mutexes: `slots`, and under it those of the engine's log. Nothing is read or written under it.

pub(crate) mod cold;
pub(crate) mod record;
mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cognate_engine::storage::segment::segment_name;
use cognate_engine::storage::{DurableWait, Log, LogOptions};
use cognate_engine::{Csn, Error};
use cognate_env::Disk;
use parking_lot::Mutex;

use self::cold::Cold;
use self::record::{Birth, Install, Record};
pub(crate) use self::slots::Placed;
use self::slots::Slots;
use crate::codec::Coded;
use crate::entry::{Ballot, Base, Entry, EntryId, MembersAt, NodeNumber, Position};
use crate::error::StartError;
use crate::planted::{self, Planted};

/// A flush that takes longer is left to the log's thread: the one that appends also answers
/// heartbeats, within far less than an election takes.
const SHORT_FLUSH: Duration = Duration::from_millis(1);
/// So is an entry that is longer: it takes longer than those before it have.
const SHORT_ENTRY: usize = 64 << 10;

/// Added to a node's number where it is kept which incarnation of it has lost what it had
/// confirmed. No node has such a number, and who does not know of this forgets it at the next
/// removal.
const LOST: NodeNumber = 1 << 63;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct OrderLog {
    log: Log,
    cold: Cold,
    cache_bytes: usize,
    slots: Mutex<Slots>,
    /// How often nodes were forgotten: each message asks whether its sender was.
    forgettings: AtomicU64,
}

impl OrderLog {
    /// Opens the log in `folder`, or makes one. `applied` is the position that the application's
    /// own durable state has.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        folder: &Path,
        options: LogOptions,
        cache_bytes: usize,
        applied: Position,
    ) -> Result<OrderLog, StartError> {
        disk.create_dir_all(folder).map_err(|cause| Error::io("creating", folder, cause))?;
        let cold = Cold::new(Arc::clone(disk), folder.to_path_buf());
        let after = cold.before_first()?;
        let (mut slots, mut kept_from) = (Slots::default(), 1);
        let undecodable = |what: String| Error::Undecodable { what, row: None };
        let log = Log::open(Arc::clone(disk), folder, after, options, &mut |csn, payload| {
            let record = Record::decode(Bytes::copy_from_slice(payload));
            let record = record.map_err(|malformed| undecodable(malformed.to_string()))?;
            if let Record::State(state) = &record {
                kept_from = state.kept_from;
            }
            slots.replay(csn, record).map_err(|misfit| undecodable(misfit.to_owned()))?;
            slots.evict(cache_bytes, csn);
            Ok(())
        })?;
        if after + 1 > kept_from {
            let file = folder.join(segment_name(kept_from));
            let what = format!("the log segment of records {kept_from} to {after} is missing");
            return Err(Error::Corrupt { file, offset: 0, what }.into());
        }
        let began = slots.base.id;
        settle(&mut slots, applied)?;
        let (slots, forgettings) = (Mutex::new(slots), AtomicU64::new(0));
        let log = OrderLog { log, cold, cache_bytes, slots, forgettings };
        log.note_base(began)?;
        Ok(log)
    }

    /// If the log begins elsewhere than its records say, says so behind them: what comes next
    /// follows a snapshot, and who reads the records would take it for what follows, or replaces,
    /// the entries that stand before it.
    fn note_base(&self, began: Option<EntryId>) -> Result<(), Error> {
        let slots = self.slots.lock();
        if slots.base.id == began {
            return Ok(());
        }
        let kept_from = slots.first_csn().unwrap_or(self.log.last() + 1);
        // Whatever comes later is durable later.
        self.write(&Record::State(Box::new(slots.state(kept_from)))).map(drop)
    }

    fn write(&self, record: &Record) -> Result<DurableWait, Error> {
        let csn = self.log.append(&[&record.encode()])?;
        Ok(self.log.wait_durable(csn))
    }

    /// Which node of which cluster this is.
    pub(crate) fn birth(&self) -> Option<Birth> {
        self.slots.lock().birth
    }

    /// Says which node of which cluster this is.
    pub(crate) fn set_birth(&self, birth: Birth) -> Result<DurableWait, Error> {
        let mut slots = self.slots.lock();
        let wait = self.write(&Record::Birth(birth))?;
        // As at the next start: a node that has not what its cluster began with begins there.
        slots.replay(self.log.last(), Record::Birth(birth)).map_err(Error::Defect)?;
        Ok(wait)
    }

    /// Whether `node` is the one that was met under this number before; a new number is noted.
    pub(crate) fn meet(&self, node: NodeNumber, incarnation: u64) -> bool {
        let mut slots = self.slots.lock();
        match slots.peers.get(&node) {
            Some(&known) => known == incarnation || planted::is(Planted::MeetsAnybody),
            None => {
                slots.peers.insert(node, incarnation);
                // It goes along with the next record that somebody waits for.
                self.log.queue(&[&Record::Peer(node, incarnation).encode()]).is_ok()
            }
        }
    }

    /// The incarnation of a node, if it was met before.
    pub(crate) fn met(&self, node: NodeNumber) -> Option<u64> {
        self.slots.lock().peers.get(&node).copied()
    }

    /// Notes that an incarnation of a node has lost what it had confirmed, which holds until the
    /// node is removed. Says whether that is new.
    pub(crate) fn note_lost(&self, node: NodeNumber, incarnation: u64) -> Result<bool, Error> {
        let mut slots = self.slots.lock();
        if slots.peers.insert(node | LOST, incarnation) == Some(incarnation) {
            return Ok(false);
        }
        // Nobody waits for it: it is found again, as long as the same node leads. It is written
        // soon all the same, by a thread that is woken once the mutex is free.
        self.log.queue(&[&Record::Peer(node | LOST, incarnation).encode()])?;
        drop(slots);
        self.log.nudge();
        Ok(true)
    }

    /// Whether a node has lost what it had confirmed, and is still the same one.
    pub(crate) fn has_lost(&self, node: NodeNumber) -> bool {
        let slots = self.slots.lock();
        let known = slots.peers.get(&node).copied().unwrap_or_default();
        slots.peers.get(&(node | LOST)) == Some(&known)
    }

    /// The nodes that have lost what they had confirmed, each with the incarnation that has.
    pub(crate) fn lost(&self) -> BTreeMap<NodeNumber, u64> {
        let slots = self.slots.lock();
        slots.peers.range(LOST..).map(|(node, incarnation)| (node & !LOST, *incarnation)).collect()
    }

    /// Whether a member was not met, or forgotten when it was removed before. Only what is settled
    /// makes it one: an entry that is cut again would leave it noted, and refused with other data.
    pub(crate) fn is_unmet_member(&self, node: NodeNumber) -> bool {
        let slots = self.slots.lock();
        if slots.peers.contains_key(&node) {
            return false;
        }
        let settled = slots.committed.map_or(0, |id| id.index);
        slots.members_at(settled).members.nodes.contains(&node)
    }

    /// How often nodes were forgotten since this was opened. Who was met is known as long as that
    /// stays.
    pub(crate) fn forgettings(&self) -> u64 {
        self.forgettings.load(Ordering::Acquire)
    }

    /// Members as of `base`, or later ones, who were removed since, and may have come again.
    pub(crate) fn left_since(&self, base: &Base) -> BTreeSet<NodeNumber> {
        self.slots.lock().left_since(base)
    }

    /// The last change of the members that a node can have had before the next one left it out;
    /// none if the log has no such change.
    pub(crate) fn last_before_it_left(&self, node: NodeNumber) -> Option<EntryId> {
        self.slots.lock().last_before_it_left(node)
    }

    /// Forgets nodes that are no members: their numbers may come again with new data.
    pub(crate) fn forget_others(&self, members: &BTreeSet<NodeNumber>) -> Result<(), Error> {
        let mut slots = self.slots.lock();
        let before = slots.peers.len();
        slots.peers.retain(|node, _| members.contains(&(node & !LOST)));
        if slots.peers.len() < before {
            self.forgettings.fetch_add(1, Ordering::Release);
            let kept_from = slots.first_csn().unwrap_or(self.log.last() + 1);
            self.log.queue(&[&Record::State(Box::new(slots.state(kept_from))).encode()])?;
        }
        Ok(())
    }

    /// The vote that this node has given last.
    pub(crate) fn ballot(&self) -> Option<Ballot> {
        self.slots.lock().ballot
    }

    /// Writes a vote. It must not be told before the answer is over.
    pub(crate) fn save_ballot(&self, ballot: Ballot) -> Result<DurableWait, Error> {
        let mut slots = self.slots.lock();
        let record = Record::Ballot(ballot);
        let wait = match planted::is(Planted::VotesUnflushed) {
            true => self.log.wait_durable(self.log.queue(&[&record.encode()])?),
            false => self.write(&record)?,
        };
        slots.ballot = Some(ballot);
        Ok(wait)
    }

    /// The last entry that is known to be settled.
    pub(crate) fn committed(&self) -> Option<EntryId> {
        self.slots.lock().committed
    }

    /// Up to where a start delivers what is here at once. What stands behind may be replaced: it
    /// waits for a mark, or for the leader.
    pub(crate) fn settled_at_start(&self) -> Option<EntryId> {
        match planted::is(Planted::DeliversTheTail) {
            true => self.last(),
            false => self.committed(),
        }
    }

    /// Notes what is settled. Nobody waits for that: it goes along with the next record.
    pub(crate) fn note_committed(&self, id: EntryId) -> Result<(), Error> {
        let mut slots = self.slots.lock();
        if slots.committed < Some(id) {
            self.log.queue_along(&[&Record::Committed(id).encode()])?;
            slots.committed = Some(id);
        }
        Ok(())
    }

    /// Whether an entry was first written by this node, which led then.
    pub(crate) fn is_own(&self, id: EntryId) -> bool {
        self.slots.lock().birth.is_some_and(|birth| birth.node == id.leadership.node)
    }

    /// The last entry, or the base.
    pub(crate) fn last(&self) -> Option<EntryId> {
        self.slots.lock().last()
    }

    /// Where the log begins.
    pub(crate) fn base(&self) -> Base {
        self.slots.lock().base.clone()
    }

    /// Whether the consensus has never written anything here.
    pub(crate) fn is_untouched(&self) -> bool {
        let slots = self.slots.lock();
        slots.last().is_none() && slots.ballot.is_none()
    }

    /// Adds entries; they can be read at once, and the answer says when they are durable. A lone
    /// one of another node's leadership mostly is when this returns.
    pub(crate) fn append(&self, entries: impl Iterator<Item = Entry>) -> Result<DurableWait, Error> {
        let (wait, is_unwoken) = self.append_unwoken(entries)?;
        if is_unwoken {
            self.wake();
        }
        Ok(wait)
    }

    /// The same. If it answers true, the log's thread is to be woken soon ([`OrderLog::wake`]): it
    /// is a lone entry of this node's leadership.
    pub(crate) fn append_unwoken(
        &self,
        entries: impl Iterator<Item = Entry>,
    ) -> Result<(DurableWait, bool), Error> {
        let mut slots = self.slots.lock();
        // Without entries there is nothing to wait for.
        let mut csn = self.log.durable();
        let settled_before = slots.next() == slots.committed.map_or(0, |id| id.index + 1);
        let own = slots.birth.map(|birth| birth.node);
        let (mut count, mut bytes, mut is_own) = (0, 0, false);
        for entry in entries {
            let (head, rest) = Record::entry_head(&entry);
            csn = self.log.queue(&[&head, &rest])?;
            (count, bytes) = (count + 1, bytes + rest.len());
            is_own |= own == Some(entry.id.leadership.node);
            slots.push(entry, csn).map_err(Error::Defect)?;
        }
        slots.evict(self.cache_bytes, self.log.durable());
        drop(slots);
        if planted::is(Planted::ConfirmsUnflushed) {
            return Ok((self.log.wait_durable(csn), false));
        }
        let is_lone = count == 1 && bytes <= SHORT_ENTRY && settled_before;
        let is_unwoken = is_lone && is_own;
        let is_cared_for = is_unwoken || (is_lone && self.log.flush_here(SHORT_FLUSH));
        if !is_cared_for {
            self.log.nudge();
        }
        Ok((self.log.wait_durable(csn), is_unwoken))
    }

    /// Wakes the log's thread for what was added.
    pub(crate) fn wake(&self) {
        self.log.nudge();
    }

    /// Makes the entries after `last` void.
    pub(crate) fn cut_after(&self, last: Option<EntryId>) -> Result<(), Error> {
        let from = last.map_or(0, |id| id.index + 1);
        let mut slots = self.slots.lock();
        if slots.cut(from).map_err(Error::Defect)? {
            self.log.queue(&[&Record::Cut(from).encode()])?;
        }
        Ok(())
    }

    /// Lets the log begin after `id`. The answer says when that is durable, and the record before
    /// the first that is needed from then on ([`OrderLog::remove_before`]).
    pub(crate) fn purge(&self, id: EntryId) -> Result<Option<(DurableWait, Csn)>, Error> {
        let mut slots = self.slots.lock();
        if slots.base.id >= Some(id) {
            return Ok(None);
        }
        let installed = slots.installs.iter().map(|install| &install.base).find(|base| base.id == Some(id));
        let base = match (slots.get(id.index), installed) {
            (Some(slot), _) if slot.id == id => {
                Base { id: Some(id), position: slot.end, members: slots.members_at(id.index) }
            }
            (_, Some(base)) => base.clone(),
            _ => {
                let position = slots.end().min(slots.get(id.index).map_or(slots.end(), |slot| slot.end));
                Base { id: Some(id), position, members: slots.members_at(id.index) }
            }
        };
        slots.rebase(base);
        let kept_from = slots.first_csn().unwrap_or(self.log.last() + 1);
        let wait = self.write(&Record::State(Box::new(slots.state(kept_from))))?;
        Ok(Some((wait, kept_from - 1)))
    }

    /// Removes the segments that hold only records up to `csn`. Blocks.
    pub(crate) fn remove_before(&self, csn: Csn) -> Result<(), Error> {
        self.log.remove_before(csn)
    }

    /// Notes that a snapshot is about to become the application's state.
    pub(crate) fn begin_install(&self, install: Install) -> Result<DurableWait, Error> {
        let mut slots = self.slots.lock();
        let wait = self.write(&Record::Install(Box::new(install.clone())))?;
        slots.begin_install(install);
        Ok(wait)
    }

    /// Reads entries of `range` that are there, up to `bytes_max` bytes of requests, one at least.
    pub(crate) async fn read(
        self: &Arc<Self>,
        range: Range<u64>,
        bytes_max: usize,
    ) -> Result<Vec<Placed>, Error> {
        let mut found = Vec::new();
        let mut missing: Option<(Csn, Csn)> = None;
        {
            let slots = self.slots.lock();
            let mut bytes = 0;
            for index in range.start.max(slots.first())..range.end.min(slots.next()) {
                let Some(slot) = slots.get(index) else { break };
                if bytes > 0 && bytes + slot.bytes > bytes_max {
                    break;
                }
                bytes += slot.bytes;
                if slot.content.is_none() {
                    missing = Some((missing.map_or(slot.csn, |(first, _)| first), slot.csn));
                }
                found.push((slot.id, slot.csn, slot.end - slot.count, slot.content.clone()));
            }
        }
        if let Some((first, last)) = missing {
            let log = Arc::clone(self);
            let wanted: Vec<Csn> = found.iter().filter(|slot| slot.3.is_none()).map(|slot| slot.1).collect();
            let read = tokio::task::spawn_blocking(move || log.read_cold(first, last, &wanted)).await;
            let read = read.map_err(|_| Error::Defect("reading the log panicked"))??;
            let without = found.iter_mut().filter(|slot| slot.3.is_none());
            for (slot, entry) in without.zip(read) {
                if slot.0 != entry.id {
                    return Err(Error::Defect("a record of the log holds another entry"));
                }
                slot.3 = Some(entry.content);
            }
        }
        let placed = found.into_iter().filter_map(|(id, _, before, content)| {
            content.map(|content| Placed { entry: Entry { id, content }, before })
        });
        Ok(placed.collect())
    }

    /// The last entry of all, if it is the one at `index` and in memory.
    pub(crate) fn last_at(&self, index: u64) -> Option<Placed> {
        let slots = self.slots.lock();
        let slot = slots.get(index).filter(|slot| slot.id.index + 1 == slots.next())?;
        let entry = Entry { id: slot.id, content: slot.content.clone()? };
        Some(Placed { entry, before: slot.end - slot.count })
    }

    fn read_cold(&self, first: Csn, last: Csn, wanted: &[Csn]) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::with_capacity(wanted.len());
        self.cold.read(first, last, &mut |csn, payload| {
            if wanted.binary_search(&csn).is_err() {
                return Ok(());
            }
            match Record::decode(Bytes::copy_from_slice(payload)) {
                Ok(Record::Entry(entry)) => entries.push(entry),
                Ok(_) => return Err(Error::Defect("a record of the log holds no entry")),
                Err(malformed) => {
                    return Err(Error::Undecodable { what: malformed.to_string(), row: None });
                }
            }
            Ok(())
        })?;
        Ok(entries)
    }

    /// The position of the first request of the entry at `index`, or of the next after it.
    pub(crate) fn first_position(&self, index: u64) -> Option<Position> {
        self.slots.lock().get(index).map(|slot| slot.end - slot.count + 1)
    }

    /// The last position up to and with the entry at `index`.
    pub(crate) fn end_of(&self, index: u64) -> Option<Position> {
        let slots = self.slots.lock();
        let at_base = slots.base.id.filter(|id| id.index == index).map(|_| slots.base.position);
        slots.get(index).map(|slot| slot.end).or(at_base)
    }

    /// The index at which an application goes on that has everything up to `position`: of the entry
    /// that holds the position, if more follows in it, or else the next one. What stands behind may
    /// be replaced as long as it is not settled, also by requests where there was none; so nothing
    /// behind is looked at. Nor is an entry that holds the position and is not settled: a snapshot
    /// may stand within another one of the same index.
    pub(crate) fn index_after(&self, position: Position) -> u64 {
        let slots = self.slots.lock();
        let next = slots.committed.map_or(0, |id| id.index + 1);
        match slots.holding(position).filter(|slot| slot.id.index < next) {
            Some(slot) if slot.count > 0 => slot.id.index + u64::from(slot.end == position),
            // The application has nothing that is here, or a part of an entry that has not come
            // yet; whatever it is given again it passes over.
            _ => slots.first(),
        }
    }

    /// A base at the last settled entry that ends at or before `position`.
    pub(crate) fn base_at(&self, position: Position) -> Option<Base> {
        self.slots.lock().base_at(position)
    }

    /// The members as of an entry.
    pub(crate) fn members_at(&self, index: u64) -> MembersAt {
        self.slots.lock().members_at(index)
    }

    /// The last position that is durable here.
    pub(crate) fn synced(&self) -> Position {
        let durable = self.log.durable();
        let slots = self.slots.lock();
        slots.last_where(|slot| slot.csn <= durable).map_or(slots.base.position, |slot| slot.end)
    }

    /// The last entry up to `settled` that is durable here: if those are settled, they stay.
    pub(crate) fn synced_upto(&self, settled: Option<u64>) -> Option<u64> {
        let durable = self.log.durable();
        let slots = self.slots.lock();
        let synced = slots.last_where(|slot| slot.csn <= durable).map(|slot| slot.id);
        settled.min(synced.or(slots.base.id).map(|id| id.index))
    }

    /// The last index up to `limit` behind which at least `bytes` of requests are kept.
    pub(crate) fn index_keeping(&self, bytes: u64, limit: u64) -> Option<u64> {
        let slots = self.slots.lock();
        let found =
            slots.last_where(|slot| slot.id.index <= limit && slots.bytes_after(slot.id.index) >= bytes);
        found.map(|slot| slot.id.index)
    }

    /// Bytes of requests after `after` up to and with `last`, and for how long the first of them
    /// has been here.
    pub(crate) fn lag_between(&self, after: Option<u64>, last: Option<u64>) -> (u64, Duration) {
        let slots = self.slots.lock();
        let next = after.map_or(slots.first(), |index| index + 1);
        let Some(last) = last.filter(|last| *last >= next && !slots.is_empty()) else {
            return (0, Duration::ZERO);
        };
        let bytes = slots.bytes_after(next.wrapping_sub(1)).saturating_sub(slots.bytes_after(last));
        (bytes, slots.get(next).map_or(Duration::ZERO, |slot| slot.at.elapsed()))
    }

    /// The last entry of which an application that has applied everything up to `position` lacks
    /// nothing; none if that is before all that is here.
    pub(crate) fn index_applied(&self, position: Position) -> Option<u64> {
        let slots = self.slots.lock();
        let found = slots.last_where(|slot| slot.end <= position).map(|slot| slot.id.index);
        found.or(slots.base.id.map(|id| id.index))
    }

    /// Writes what is pending and ends the log's threads.
    pub(crate) fn close(&self) -> Result<(), Error> {
        self.log.close()
    }
}

/// Brings what the log says and where the application is together, at start.
fn settle(slots: &mut Slots, applied: Position) -> Result<(), StartError> {
    slots.rebase(slots.base.clone());
    if slots.birth.is_none() && slots.last().is_none() {
        // Nothing was ordered yet: the order goes on behind what is there.
        slots.base.position = applied;
        return Ok(());
    }
    let install = slots.installed(applied);
    if let Some(install) = &install
        && slots.base.id < install.base.id
    {
        // The snapshot was taken in, and the process ended before the log knew.
        slots.rebase(install.base.clone());
    }
    if applied < slots.base.position && slots.last().is_some() {
        return Err(StartError::Behind { applied, begins: slots.base.position });
    }
    // A snapshot may stand within the entry that follows it, which may not have come yet.
    let installed = install.map_or(0, |install| install.position);
    let end = installed.max(slots.end());
    if applied > end {
        return Err(StartError::Ahead { applied, ends: end });
    }
    // What the application has checkpointed was settled. Of what it has by a snapshot the log may
    // hold something else, the end of a deposed leader's, which is cut once the leader is heard.
    if applied > slots.base.position.max(installed) {
        let holding = slots.holding(applied).map(|slot| slot.id);
        slots.committed = slots.committed.max(holding);
    }
    slots.committed = slots.committed.max(slots.base.id);
    Ok(())
}

#[cfg(test)]
mod tests;
