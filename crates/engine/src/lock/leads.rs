//! Where those who wait in one queue lead, told to one search for a deadlock piece by piece.
//!
//! A search comes to a queue with each of its waiters that it reaches, and each waits for all who
//! hold the resource against it and for all ahead of it in the line: looked at one by one, the
//! square of how many there are. But a search need hear of each transaction only once. So a queue
//! remembers what it has told the search that asks:
//!
//! - *Holders, by mode.* Who asks for a mode waits for all who hold a mode that does not go
//!   together with it, but for its *kin*: itself and its siblings. So the first who asks tells of
//!   all but its kin, the next one of another kin tells the rest, and after that there is nothing
//!   left to tell of this mode.
//! - *Waiters, by mode and place.* The same, as far into the line as the one who asks stands.
//! - *The line not at all, if it leads nowhere.* Who waits here leads, by whatever way through the
//!   line, to holders of this queue only. Those that were not told of yet hold some modes; if all
//!   who wait go together with these, the line leads to nobody new.
//!
//! No deadlock is missed: an edge that is left out leads to somebody of whom the search has heard,
//! and whose own edges it follows, or into a line that leads to such only. A cycle ends with an
//! edge to where the search began; that one counts as told of only once it was, which ends the
//! search. Where the search began with somebody who waits in this line, too, the line leads there,
//! and is looked at. And none is invented, as each edge told is one: it is asked of one waiter and
//! one holder, or one who waits ahead of it, whether they go together and are of one kin.
//!
//! Of each mode, each place is gone over at most twice: the work of a search is linear in the
//! number of those who hold and wait in the queues that it comes to. On the rows that others refer
//! to, the line is never gone into:
//!
//! ```text
//! T0 NX, T1 .. T9 KS     holders T0:NX T1:KS .. T9:KS     nine have inserted what refers to the row
//! T1 .. T8 NX            waiting T1:NX .. T8:NX           and go on to change the row
//! T9 NX                  T9 -> T0; not told of: KS. All wait for NX, which goes with KS. T0 does
//!                        not wait: no deadlock, and two were looked at
//! T0 X                   T0 -> T1 .. T9, all of KS; T9 -> T0: a cycle
//! ```
//!
//! What is remembered of the line is a picture of it. While a search goes on, nobody begins or
//! gives up waiting, so it only happens that somebody is granted what it waits for, and nobody who
//! is in a cycle is. Who has come to hold something since the queue was asked first may still be
//! told of as it was, by a soft edge: at worst an order is tried then that changes nothing.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::deadlock::{Asked, Edge};
use super::mode::{FamilySlot, Mode, Modes};
use super::queue::{Holder, Waiting, siblings};
use crate::TransactionId;

/// Who does not wait for whom: the members of a family, or a transaction without one for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kin {
    One(TransactionId),
    Family(FamilySlot),
}

impl Kin {
    fn of(owner: TransactionId, family: Option<FamilySlot>) -> Kin {
        family.map_or(Kin::One(owner), Kin::Family)
    }
}

/// The places of the bits that are set.
fn each(modes: Modes) -> impl Iterator<Item = usize> {
    (0..8_usize).filter(move |at| modes & 1 << at != 0)
}

/// How far a list was told of: all before `all`, and before `but` all who are not of `kin`.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    all: usize,
    but: usize,
    kin: Option<Kin>,
}

impl Told {
    /// All before `upto` are told of who are not of `kin`: where there may be some who were not
    /// before.
    fn tell(&mut self, upto: usize, kin: Kin) -> Range<usize> {
        let same = self.kin == Some(kin);
        let from = if same { self.but } else { self.all };
        if upto <= from {
            return 0..0;
        }
        if same {
            self.but = upto;
        } else if upto <= self.but {
            self.all = upto;
        } else {
            *self = Told { all: self.but, but: upto, kin: Some(kin) };
        }
        from..upto
    }

    /// Whether it was told of somebody of `kin` at this place.
    fn has(&self, place: usize, kin: Kin) -> bool {
        place < self.all || place < self.but && self.kin != Some(kin)
    }
}

/// What one search was told of a queue.
#[derive(Debug, Default)]
pub(super) struct Leads {
    search: u64,
    /// Of the holders of each mode; they are told of all at once, so there is one place.
    holders: [Told; 8],
    /// What those hold who were not told of.
    rest: Modes,
    line: Option<Box<Picture>>,
}

impl Leads {
    fn begin(&mut self, search: u64) {
        if self.search != search {
            *self = Leads { search, ..Leads::default() };
        }
    }

    /// Tells of the holders for whom `owner` waits. Answers whether those ahead of it lead further,
    /// if `waiting` is what the line waits for.
    pub(super) fn holders(
        &mut self,
        holders: &[Holder],
        waiting: Modes,
        (owner, mode): (TransactionId, Mode),
        asked: &mut Asked,
    ) -> bool {
        self.begin(asked.search);
        let kin = Kin::of(owner, mode.family());
        let new = each(mode.conflicts()).filter(|at| !self.holders[*at].tell(1, kin).is_empty());
        let new: Modes = new.fold(0, |set: Modes, at| set | 1 << at);
        if new != 0 {
            asked.steps += holders.len() as u64;
            self.rest = 0;
            for holder in holders {
                let of = Kin::of(holder.owner, holder.family);
                if holder.modes & new != 0 && of != kin && holder.owner != owner {
                    asked.edges.push(Edge { to: holder.owner, soft: false });
                }
                if !each(holder.modes).any(|at| self.holders[at].has(0, of)) {
                    self.rest |= holder.modes;
                }
            }
        }
        self.lead_further(waiting, mode, asked)
    }

    fn lead_further(&self, waiting: Modes, mode: Mode, asked: &Asked) -> bool {
        asked.beside || self.rest & mode.keeps_out(waiting) != 0
    }

    /// Tells of those ahead of `owner` in the line for whom it waits.
    pub(super) fn ahead<T>(
        &mut self,
        holders: &[Holder],
        line: &VecDeque<Waiting<T>>,
        waiting: Modes,
        (owner, mode): (TransactionId, Mode),
        asked: &mut Asked,
    ) {
        self.begin(asked.search);
        // What has been told since may have been all that was left.
        if !self.lead_further(waiting, mode, asked) {
            return;
        }
        let picture = self.line.get_or_insert_with(|| {
            asked.steps += (holders.len() + line.len()) as u64;
            Box::new(Picture::of(holders, line))
        });
        picture.ahead(owner, asked);
    }
}

/// A line at one moment.
#[derive(Debug)]
struct Picture {
    /// Who waits, for what, and how many of the line are ahead of it.
    line: Vec<(TransactionId, Mode, usize)>,
    places: HashMap<TransactionId, usize>,
    told: [Told; 8],
}

impl Picture {
    fn of<T>(holders: &[Holder], waiting: &VecDeque<Waiting<T>>) -> Picture {
        let mut held: HashMap<FamilySlot, Modes> = HashMap::new();
        for holder in holders {
            if let Some(family) = holder.family {
                *held.entry(family).or_default() |= holder.modes;
            }
        }
        let (mut line, mut firsts) = (Vec::with_capacity(waiting.len()), [Firsts::default(); 8]);
        for (place, Waiting { owner, mode, .. }) in waiting.iter().enumerate() {
            // As `Queue::ahead`: a sibling goes ahead of who waits for its family.
            let family = mode.family();
            let held = family.and_then(|family| held.get(&family)).copied().unwrap_or_default();
            let strangers = each(mode.keeps_out(held)).filter_map(|at| firsts[at].stranger_to(family));
            let ahead = strangers.min().unwrap_or(place);
            line.push((*owner, *mode, ahead));
            firsts[mode.bit().ilog2() as usize].note(place, family);
        }
        let places = line.iter().enumerate().map(|(place, (owner, ..))| (*owner, place)).collect();
        Picture { line, places, told: [Told::default(); 8] }
    }

    fn ahead(&mut self, owner: TransactionId, asked: &mut Asked) {
        let Some(&place) = self.places.get(&owner) else { return };
        let (_, mode, upto) = self.line[place];
        let kin = Kin::of(owner, mode.family());
        for at in each(mode.conflicts()) {
            let span = self.told[at].tell(upto, kin);
            asked.steps += span.len() as u64;
            // The first in the line is told last and looked at first: who goes ahead of it passes
            // all.
            for (to, other, _) in self.line[span].iter().rev() {
                if other.bit() == 1 << at && Kin::of(*to, other.family()) != kin {
                    asked.edges.push(Edge { to: *to, soft: true });
                }
            }
        }
    }
}

/// Where the first stands who waits for a mode, and the first who is no sibling of that one.
#[derive(Debug, Clone, Copy, Default)]
struct Firsts {
    first: Option<(usize, Option<FamilySlot>)>,
    other: Option<usize>,
}

impl Firsts {
    fn note(&mut self, place: usize, family: Option<FamilySlot>) {
        match self.first {
            None => self.first = Some((place, family)),
            Some((_, first)) if siblings(first, family) => {}
            Some(_) => self.other = self.other.or(Some(place)),
        }
    }

    /// The first who is no sibling of a member of `family`.
    fn stranger_to(&self, family: Option<FamilySlot>) -> Option<usize> {
        match self.first {
            Some((_, first)) if siblings(first, family) => self.other,
            first => first.map(|(place, _)| place),
        }
    }
}
