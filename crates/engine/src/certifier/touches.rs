//! What transactions in the graph read and wrote, by key.
//!
//! A table with a chain for each bucket. Most keys are touched by nobody else, so what matters is to find out *that* with one look: the buckets are at least twice as many
//! as the touches, four bytes each. All touches lie in one array, their places are used again, the one that was freed last first.
//!
//! - The reads and the writes of a key are in two different chains: who looks for writers does not pass thousands of readers.
//! - A chain has what came last at its beginning. Writes come in the order of their numbers, so whoever asks for the newest one, or for the first one after a snapshot of
//!   these days, need not go far.
//! - Each touch is in a list of its node, too; so a node leaves in as many steps as it has touches.
//!
//! ```text
//! buckets  [ · | 2 | · | 0 | · | · | · | 3 ]
//! touches  0: T1 writes a at 9   1: T1 reads a at 8   2: T2 reads a at 9 → 1   3: T2 writes b at 10      T1: 1 0   T2: 3 2
//! ```

use super::node::NodeId;
use crate::Csn;
use crate::txn::readset::KeyHash;

/// Place of a touch.
pub(super) type Place = u32;

/// No touch.
pub(super) const NOWHERE: Place = Place::MAX;
/// Instead of the one before: it is in no chain any more.
const DETACHED: Place = Place::MAX - 1;

/// Buckets at the start. Tests have few touches, and the table is to grow there, too.
const BUCKETS_MIN: usize = if cfg!(test) { 8 } else { 1024 };
/// A table that has become empty keeps memory for so many touches.
const KEPT: usize = 1 << 14;

/// One key that one transaction read, or wrote.
#[derive(Debug, Clone, Copy)]
pub(super) struct Touch {
    /// The key's number without its highest bit, and whether it was written.
    mark: u64,
    /// For a write the commit's number; for a read the last number that it could see.
    pub(super) at: Csn,
    pub(super) node: NodeId,
    /// Neighbours in the bucket's chain: the one that came before it, and the one that came after it.
    older: Place,
    newer: Place,
    /// Another one of the same node.
    of_node: Place,
}

#[inline]
fn mark_of(hash: KeyHash, is_write: bool) -> u64 {
    hash << 1 | u64::from(is_write)
}

/// See the module's prose.
#[derive(Debug, Default)]
pub(super) struct Touches {
    /// First touches of the chains; a power of two.
    buckets: Vec<Place>,
    places: Vec<Touch>,
    /// First of the free places, which are chained by `of_node`.
    free: Option<Place>,
    count: usize,
}

impl Touches {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The writes of a key, the newest first.
    #[inline]
    pub(super) fn writes(&self, hash: KeyHash) -> impl Iterator<Item = &Touch> {
        self.chain(mark_of(hash, true))
    }

    /// The reads of a key, without those that were forgotten.
    #[inline]
    pub(super) fn reads(&self, hash: KeyHash) -> impl Iterator<Item = &Touch> {
        self.chain(mark_of(hash, false))
    }

    #[inline]
    fn chain(&self, mark: u64) -> impl Iterator<Item = &Touch> {
        let mut next = self.first(mark);
        std::iter::from_fn(move || {
            let touch = self.places.get(next as usize)?;
            next = touch.older;
            Some(touch)
        })
        .filter(move |touch| touch.mark == mark)
    }

    #[inline]
    fn first(&self, mark: u64) -> Place {
        // An empty table has no buckets at all.
        self.buckets.get(self.bucket(mark)).copied().unwrap_or(NOWHERE)
    }

    #[inline]
    fn bucket(&self, mark: u64) -> usize {
        mark as usize & self.buckets.len().wrapping_sub(1)
    }

    /// A node read a key. Answers the place, for the node's list, whose first one so far is `of_node`.
    #[inline]
    pub(super) fn read(&mut self, hash: KeyHash, at: Csn, node: NodeId, of_node: Place) -> Place {
        self.add(Touch { mark: mark_of(hash, false), at, node, older: NOWHERE, newer: NOWHERE, of_node })
    }

    /// A node wrote a key: as `read`.
    #[inline]
    pub(super) fn write(&mut self, hash: KeyHash, at: Csn, node: NodeId, of_node: Place) -> Place {
        self.add(Touch { mark: mark_of(hash, true), at, node, older: NOWHERE, newer: NOWHERE, of_node })
    }

    #[inline]
    fn add(&mut self, touch: Touch) -> Place {
        self.count += 1;
        if 2 * self.count > self.buckets.len() {
            self.grow();
        }
        let place = match self.free {
            Some(place) => {
                let free = &mut self.places[place as usize];
                self.free = Some(free.of_node).filter(|&next| next != NOWHERE);
                *free = touch;
                place
            }
            None => {
                self.places.push(touch);
                self.places.len() as Place - 1
            }
        };
        self.attach(place);
        place
    }

    /// Puts a touch at the beginning of its chain.
    #[inline]
    fn attach(&mut self, place: Place) {
        let bucket = self.bucket(self.places[place as usize].mark);
        let older = std::mem::replace(&mut self.buckets[bucket], place);
        let touch = &mut self.places[place as usize];
        (touch.older, touch.newer) = (older, NOWHERE);
        if let Some(older) = self.places.get_mut(older as usize) {
            older.newer = place;
        }
    }

    /// Takes a touch out of its chain.
    #[inline]
    fn detach(&mut self, place: Place) {
        let Touch { mark, older, newer, .. } = self.places[place as usize];
        match newer {
            DETACHED => return,
            NOWHERE => {
                let bucket = self.bucket(mark);
                self.buckets[bucket] = older;
            }
            newer => self.places[newer as usize].older = older,
        }
        if let Some(older) = self.places.get_mut(older as usize) {
            older.newer = newer;
        }
        self.places[place as usize].newer = DETACHED;
    }

    /// Nobody needs the reads of a key any more: it is overwritten.
    #[inline]
    pub(super) fn forget_reads(&mut self, hash: KeyHash) {
        let mark = mark_of(hash, false);
        let mut next = self.first(mark);
        while let Some(&Touch { mark: other, older, .. }) = self.places.get(next as usize) {
            if other == mark {
                self.detach(next);
            }
            next = older;
        }
    }

    /// Forgets a node's touches, of which this is the first.
    pub(super) fn leave(&mut self, first: Place) {
        let mut next = first;
        while next != NOWHERE {
            self.detach(next);
            self.count -= 1;
            let touch = &mut self.places[next as usize];
            let free = self.free.replace(next);
            next = std::mem::replace(&mut touch.of_node, free.unwrap_or(NOWHERE));
        }
        if self.count == 0 && self.places.len() > KEPT {
            *self = Touches::default();
        }
    }

    /// Doubles the buckets.
    #[cold]
    fn grow(&mut self) {
        let buckets = (2 * self.buckets.len()).max(BUCKETS_MIN);
        let before = std::mem::replace(&mut self.buckets, vec![NOWHERE; buckets]);
        let mut chain = Vec::new();
        for first in before {
            let mut next = first;
            while let Some(touch) = self.places.get(next as usize) {
                chain.push(next);
                next = touch.older;
            }
            // The oldest first, so that the order stays.
            chain.drain(..).rev().for_each(|place| self.attach(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A naive table: all touches in the order in which they came.
    #[derive(Default)]
    struct Naive(Vec<(KeyHash, bool, Csn, NodeId)>);

    impl Naive {
        fn found(&self, hash: KeyHash, is_write: bool) -> Vec<(Csn, NodeId)> {
            let same = |touch: &&(KeyHash, bool, Csn, NodeId)| touch.0 == hash && touch.1 == is_write;
            self.0.iter().rev().filter(same).map(|&(.., at, node)| (at, node)).collect()
        }
    }

    proptest! {
        #[test]
        fn as_a_list_would_do(
            nodes in prop::collection::vec(prop::collection::vec((0..40_u64, any::<bool>()), 0..6), 1..200),
            leaves in prop::collection::vec(any::<prop::sample::Index>(), 0..150),
        ) {
            let (mut touches, mut naive) = (Touches::default(), Naive::default());
            let mut firsts = Vec::new();
            for (id, keys) in nodes.iter().enumerate() {
                let (id, at, mut first) = (id as NodeId, id as Csn, NOWHERE);
                for &(hash, is_write) in keys {
                    if is_write {
                        touches.forget_reads(hash);
                        naive.0.retain(|touch| touch.0 != hash || touch.1);
                        first = touches.write(hash, at, id, first);
                    } else {
                        first = touches.read(hash, at, id, first);
                    }
                    naive.0.push((hash, is_write, at, id));
                }
                firsts.push((id, first));
                if let Some(leave) = leaves.get(id as usize) {
                    let (id, first) = firsts.swap_remove(leave.index(firsts.len()));
                    touches.leave(first);
                    naive.0.retain(|touch| touch.3 != id);
                }
                for hash in 0..40 {
                    let of = |touch: &Touch| (touch.at, touch.node);
                    prop_assert_eq!(touches.writes(hash).map(of).collect::<Vec<_>>(), naive.found(hash, true));
                    prop_assert_eq!(touches.reads(hash).map(of).collect::<Vec<_>>(), naive.found(hash, false));
                }
            }
            firsts.into_iter().for_each(|(_, first)| touches.leave(first));
            prop_assert_eq!(touches.len(), 0);
            prop_assert!(touches.buckets.iter().all(|&first| first == NOWHERE));
        }
    }
}
