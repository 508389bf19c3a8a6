//! What the log holds, in memory: which entries there are, where they stand in the order and in the
//! log, and the newest of them themselves.
//!
//! Pure: records in ([`Slots::replay`], [`Slots::push`]), answers out. Invariants:
//! - indexes have no gap, and the first follows the base (or there is no base yet);
//! - `end` of an entry is the `end` of the one before plus its requests: positions follow from the
//!   order alone;
//! - nothing at or below `committed` is ever cut;
//! - `cold_until` is at most the index after the last entry, so that every entry leaves memory when
//!   its turn comes;
//! - requests whose record is not durable are in memory; so are blanks and members, always.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokio::time::Instant;

use super::record::{Birth, Install, Record, State};
use crate::entry::{Ballot, Base, Content, Entry, EntryId, MembersAt, NodeNumber, Position};
use crate::planted::{self, Planted};

/// An entry, and the position before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) entry: Entry,
    pub(crate) before: Position,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) id: EntryId,
    /// Its record's number.
    pub(super) csn: u64,
    /// Position of its last request, or of the last before it.
    pub(super) end: Position,
    pub(super) count: u64,
    /// Bytes of all requests up to and with it, since the log was opened.
    pub(super) bytes_end: u64,
    pub(super) bytes: usize,
    pub(super) at: Instant,
    /// `None` for requests that are on disk only.
    pub(super) content: Option<Content>,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) birth: Option<Birth>,
    pub(super) ballot: Option<Ballot>,
    pub(super) committed: Option<EntryId>,
    pub(super) base: Base,
    /// The snapshot that the application has taken in last, and one that it may be about to: only
    /// the application knows. Oldest first.
    pub(super) installs: Vec<Install>,
    pub(super) peers: BTreeMap<NodeNumber, u64>,
    slots: VecDeque<Slot>,
    /// Requests of entries below are not in memory.
    cold_until: u64,
    cached: usize,
    bytes_end: u64,
    /// Indexes of the entries that change the membership.
    changes: BTreeSet<u64>,
}

/// A sentence about what does not fit.
pub(super) type Misfit = &'static str;

impl Slots {
    /// A snapshot is about to be taken in. The one before was, or this process would have ended.
    pub(super) fn begin_install(&mut self, install: Install) {
        let before = self.installs.pop();
        self.installs = before.into_iter().chain([install]).collect();
    }

    /// The snapshot that an application which is at this position has taken in last. What did not
    /// come to its end is forgotten.
    pub(super) fn installed(&mut self, applied: Position) -> Option<Install> {
        self.installs.retain(|install| install.position <= applied);
        self.installs.drain(..self.installs.len().saturating_sub(1));
        self.installs.last().cloned()
    }

    pub(super) fn first(&self) -> u64 {
        self.slots.front().map_or(self.base.next_index(), |slot| slot.id.index)
    }

    /// The index after the last entry.
    pub(super) fn next(&self) -> u64 {
        self.slots.back().map_or(self.base.next_index(), |slot| slot.id.index + 1)
    }

    pub(super) fn last(&self) -> Option<EntryId> {
        self.slots.back().map(|slot| slot.id).or(self.base.id)
    }

    /// The last position of all.
    pub(super) fn end(&self) -> Position {
        self.slots.back().map_or(self.base.position, |slot| slot.end)
    }

    pub(super) fn get(&self, index: u64) -> Option<&Slot> {
        self.slots.get(usize::try_from(index.checked_sub(self.first())?).ok()?)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Number of the first record of an entry that is still here.
    pub(super) fn first_csn(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.csn)
    }

    /// The last entry for whose slot (ascending ones first) `is_before` holds.
    pub(super) fn last_where(&self, is_before: impl FnMut(&Slot) -> bool) -> Option<&Slot> {
        self.slots.get(self.slots.partition_point(is_before).checked_sub(1)?)
    }

    /// The first entry that has a request at or after `position`.
    pub(super) fn holding(&self, position: Position) -> Option<&Slot> {
        self.slots.get(self.slots.partition_point(|slot| slot.end < position))
    }

    /// Bytes of requests after `index`.
    pub(super) fn bytes_after(&self, index: u64) -> u64 {
        let known = self.get(index).map(|slot| slot.bytes_end);
        let before = || self.slots.front().map_or(self.bytes_end, |slot| slot.bytes_end - slot.bytes as u64);
        self.bytes_end - known.unwrap_or_else(before)
    }

    /// Adds the next entry.
    pub(super) fn push(&mut self, entry: Entry, csn: u64) -> Result<(), Misfit> {
        let index = entry.id.index;
        if !self.slots.is_empty() && index != self.next() || index < self.base.next_index() {
            return Err("an entry that does not follow the one before");
        }
        let bytes = match &entry.content {
            Content::Requests(requests) => requests.bytes(),
            Content::Blank => 0,
            Content::Members(_) => {
                self.changes.insert(index);
                0
            }
        };
        let count = match &entry.content {
            Content::Blank if planted::is(Planted::BlanksTakePositions) => 1,
            content => content.count(),
        };
        self.bytes_end += bytes as u64;
        self.cached += bytes;
        self.slots.push_back(Slot {
            id: entry.id,
            csn,
            end: self.end() + count,
            count,
            bytes_end: self.bytes_end,
            bytes,
            at: Instant::now(),
            content: Some(entry.content),
        });
        Ok(())
    }

    /// Removes the entries from `from` on. Says whether there were any.
    pub(super) fn cut(&mut self, from: u64) -> Result<bool, Misfit> {
        if self.next() <= from {
            return Ok(false);
        }
        let is_settled = self.committed.max(self.base.id).is_some_and(|committed| committed.index >= from);
        if is_settled && !planted::is(Planted::CutsTheSettled) {
            return Err("a cut of entries that are settled");
        }
        while self.slots.back().is_some_and(|slot| slot.id.index >= from) {
            let slot = self.slots.pop_back();
            self.leave(slot.as_ref());
            self.bytes_end -= slot.map_or(0, |slot| slot.bytes as u64);
        }
        self.changes.split_off(&from);
        self.cold_until = self.cold_until.min(from);
        Ok(true)
    }

    /// Lets the log begin after `base`: entries that it covers leave, and the positions of the
    /// others follow from it.
    pub(super) fn rebase(&mut self, base: Base) {
        let next = base.next_index();
        let conflicts = base.id.is_some_and(|id| self.get(id.index).is_some_and(|slot| slot.id != id));
        while self.slots.front().is_some_and(|slot| conflicts || slot.id.index < next) {
            let slot = self.slots.pop_front();
            self.leave(slot.as_ref());
        }
        if self.slots.front().is_some_and(|slot| slot.id.index > next) {
            // They follow something that is not here: nobody can have confirmed them.
            self.slots.clear();
            self.cached = 0;
        }
        let first = self.first().max(next);
        self.changes = self.changes.split_off(&first);
        if self.slots.is_empty() {
            self.changes.clear();
            // What comes next has its own requests, also under numbers that were here before.
            self.cold_until = self.cold_until.min(next);
        }
        let mut end = base.position;
        for slot in &mut self.slots {
            end += slot.count;
            slot.end = end;
        }
        self.base = base;
    }

    /// Lets requests leave memory, the oldest first, until no more than `limit` bytes are left or
    /// only such as are not durable.
    pub(super) fn evict(&mut self, limit: usize, durable: u64) {
        while self.cached > limit {
            let at = self.cold_until.max(self.first());
            let place = (at - self.first()) as usize;
            let Some(slot) = self.slots.get_mut(place).filter(|slot| slot.csn <= durable) else { return };
            if matches!(slot.content, Some(Content::Requests(_))) {
                slot.content = None;
                self.cached -= slot.bytes;
            }
            self.cold_until = at + 1;
        }
    }

    fn leave(&mut self, slot: Option<&Slot>) {
        if let Some(slot) = slot
            && slot.content.is_some()
        {
            self.cached -= slot.bytes;
        }
    }

    /// The members as of the entry at `index`.
    pub(super) fn members_at(&self, index: u64) -> MembersAt {
        let change = self.changes.range(..=index).next_back().and_then(|&change| self.get(change));
        match change.map(|slot| (slot.id, &slot.content)) {
            Some((id, Some(Content::Members(members)))) => {
                MembersAt { at: Some(id), members: members.clone() }
            }
            _ => self.base.members.clone(),
        }
    }

    /// Members as of `base`, or of a later entry, whom one behind it leaves out: they were removed
    /// since, and may have come again.
    pub(super) fn left_since(&self, base: &Base) -> BTreeSet<NodeNumber> {
        let (mut before, mut left) = (&base.members.members.nodes, BTreeSet::new());
        for &index in self.changes.range(base.next_index()..) {
            let content = self.get(index).and_then(|slot| slot.content.as_ref());
            if let Some(Content::Members(later)) = content {
                left.extend(before.difference(&later.nodes));
                before = &later.nodes;
            }
        }
        left
    }

    /// The last entry that a node can have had before it left, of those that change the members:
    /// the next one leaves it out. None if it has not left.
    pub(super) fn last_before_it_left(&self, node: NodeNumber) -> Option<EntryId> {
        let MembersAt { at, members } = &self.base.members;
        let mut before = at.or(self.base.id).filter(|_| members.nodes.contains(&node));
        let mut last = None;
        for slot in self.changes.iter().filter_map(|index| self.get(*index)) {
            if let Some(Content::Members(members)) = &slot.content {
                let is_member = members.nodes.contains(&node);
                if !is_member && before.is_some() {
                    last = before;
                }
                before = is_member.then_some(slot.id);
            }
        }
        last
    }

    /// A base at the last entry that ends at or before `position` and is settled.
    pub(super) fn base_at(&self, position: Position) -> Option<Base> {
        let committed = self.committed?.index;
        let slot = self.last_where(|slot| slot.end <= position && slot.id.index <= committed);
        match slot {
            Some(slot) => {
                Some(Base { id: Some(slot.id), position: slot.end, members: self.members_at(slot.id.index) })
            }
            None => (self.base.id.is_some() && self.base.position <= position).then(|| self.base.clone()),
        }
    }

    /// All that must survive the removal of records before `kept_from`.
    pub(super) fn state(&self, kept_from: u64) -> State {
        State {
            birth: self.birth,
            ballot: self.ballot,
            committed: self.committed,
            base: self.base.clone(),
            installs: self.installs.clone(),
            peers: self.peers.clone(),
            kept_from,
        }
    }

    /// Takes in a record at start.
    pub(super) fn replay(&mut self, csn: u64, record: Record) -> Result<(), Misfit> {
        match record {
            Record::Entry(entry) => {
                // Earlier builds did not write down that they had gone on behind a snapshot.
                let index = entry.id.index;
                let is_behind = |install: &&Install| install.base.next_index() == index;
                if index > self.next()
                    && let Some(install) = self.installs.iter().rev().find(is_behind)
                {
                    self.rebase(install.base.clone());
                }
                return self.push(entry, csn);
            }
            Record::Cut(from) => return self.cut(from).map(drop),
            Record::Ballot(ballot) => self.ballot = Some(ballot),
            Record::Committed(id) => self.committed = self.committed.max(Some(id)),
            Record::Birth(birth) => {
                self.birth = Some(birth);
                if self.base.id.is_none() && self.slots.is_empty() {
                    self.base.position = birth.began;
                }
            }
            Record::Peer(node, incarnation) => drop(self.peers.insert(node, incarnation)),
            // Any of them may be the last that came to its end.
            Record::Install(install) => self.installs.push(*install),
            Record::State(state) => {
                let State { birth, ballot, committed, base, installs, peers, kept_from: _ } = *state;
                (self.birth, self.ballot, self.committed) = (birth, ballot, committed);
                (self.installs, self.peers) = (installs, peers);
                // Of an earlier state the entries that follow it may be gone already; then those
                // that are here follow a later one, which comes.
                match self.slots.front().is_some_and(|slot| slot.id.index > base.next_index()) {
                    true => self.base = base,
                    false => self.rebase(base),
                }
            }
        }
        Ok(())
    }
}
