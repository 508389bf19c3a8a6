//! What transactions in the graph read and wrote, by key.
//!
//! A table with a chain for each bucket, over a ring of touches in the order in which they came.
//! Most keys are touched by nobody else, so what matters is to find out *that* with one look: there
//! are at least twice as many buckets as touches of nodes that are there, when the table is made,
//! four bytes each.
//!
//! - Touches are numbered. Those between `head` and `tail` are in the ring; a chain ends where it
//!   leaves it. So nothing has to be taken out of a chain: a commit writes its touches behind each
//!   other, at the tail, and who removes nodes moves the head.
//! - A touch counts as long as its node is there, which knows the number of its first one: where
//!   somebody else has its place by now, that number is higher.
//! - The reads and the writes of a key are in two different chains: who looks for writers does not
//!   pass thousands of readers.
//! - A touch says which columns it is of (`txn::columns`). A reader whom a write did not touch has
//!   a second touch behind that write, as if it had read that version.
//! - A chain has what came last at its beginning. Writes come in the order of their numbers, so
//!   whoever asks for the newest one, or for the first one after a snapshot of these days, need not
//!   go far; and who asks for the readers of a version is done where its writer came.
//! - A node that stays keeps the head where it is. When the ring is full, it and the chains are
//!   made anew of what counts.
//!
//! ```text
//! buckets  [ · | 9 | · | 7 | · | · | · | 10 ]      head 7, tail 11: what points to 6 and below is nothing
//! ring     7: T1 reads a at 8   8: T1 writes a at 9   9: T2 reads a at 9 → 7   10: T2 writes b at 10      T1: from 7   T2: from 9
//! ```

use super::node::{NodeId, Nodes};
use crate::Csn;
use crate::hash::KeyHash;
use crate::txn::columns::Columns;

/// Number of a touch. They wrap around; those in the ring, and what is compared with them, are
/// never half of all apart.
pub(super) type Number = u32;

/// Places at the start. Tests have few touches, and the table is to grow there, too.
const PLACES_MIN: usize = if cfg!(test) { 8 } else { 1024 };
/// A table that has become empty keeps memory for so many touches.
const KEPT: usize = 1 << 14;

/// One key that one transaction read, or wrote.
#[derive(Debug, Clone, Copy)]
pub(super) struct Touch {
    /// The key's number without its highest bit, and whether it was written.
    mark: u64,
    /// For a write the commit's number; for a read the last number that it could see.
    pub(super) at: Csn,
    /// What was read of it, or changed.
    pub(super) columns: Columns,
    pub(super) node: NodeId,
    /// The one that came before it in the bucket's chain.
    older: Number,
}

const _: () = assert!(size_of::<Touch>() == 32);

/// Of nothing.
const EMPTY: Touch = Touch { mark: 0, at: 0, columns: Columns::NONE, node: 0, older: 0 };

#[inline]
fn mark_of(hash: KeyHash, is_write: bool) -> u64 {
    hash << 1 | u64::from(is_write)
}

/// Whether a touch came later than another one, or is the same.
#[inline]
pub(super) fn is_since(number: Number, other: Number) -> bool {
    number.wrapping_sub(other).cast_signed() >= 0
}

/// See the module's prose.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Touches {
    head: Number,
    tail: Number,
    /// The newest touch of each chain; as many as the ring has places, a power of two.
    buckets: Vec<Number>,
    ring: Vec<Touch>,
}

/// The touches of a chain that have one mark.
#[derive(Debug)]
pub(super) struct Chain<'a> {
    touches: &'a Touches,
    mark: u64,
    next: Number,
}

impl<'a> Iterator for Chain<'a> {
    type Item = (Number, &'a Touch);

    #[inline]
    fn next(&mut self) -> Option<(Number, &'a Touch)> {
        while self.touches.has(self.next) {
            let (number, touch) = (self.next, &self.touches.ring[self.touches.place(self.next)]);
            self.next = touch.older;
            if touch.mark == self.mark {
                return Some((number, touch));
            }
        }
        None
    }
}

impl Touches {
    /// The number of the touch that comes next.
    #[inline]
    pub(super) fn next(&self) -> Number {
        self.tail
    }

    fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    /// Whether nothing is kept, once it is trimmed.
    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Whether the touch with this number is in the ring.
    #[inline]
    fn has(&self, number: Number) -> bool {
        number.wrapping_sub(self.head) < self.tail.wrapping_sub(self.head)
    }

    #[inline]
    fn place(&self, number: Number) -> usize {
        number as usize & self.ring.len().wrapping_sub(1)
    }

    #[inline]
    fn bucket(&self, mark: u64) -> usize {
        mark as usize & self.buckets.len().wrapping_sub(1)
    }

    /// The writes of a key, the newest first, with their numbers; also those of nodes that have
    /// left.
    #[inline]
    pub(super) fn writes(&self, hash: KeyHash) -> Chain<'_> {
        self.chain(mark_of(hash, true))
    }

    /// The reads of a key, likewise.
    #[inline]
    pub(super) fn reads(&self, hash: KeyHash) -> Chain<'_> {
        self.chain(mark_of(hash, false))
    }

    #[inline]
    fn chain(&self, mark: u64) -> Chain<'_> {
        // An empty table has no buckets at all. A bucket that was not written for very long may
        // seem to point into the ring again: to touches of other buckets, which have other marks.
        let next = self.buckets.get(self.bucket(mark)).copied().unwrap_or(self.tail);
        Chain { touches: self, mark, next }
    }

    /// A node read a key. There is room ([`Touches::make_room`]), and so for `write`.
    #[inline]
    pub(super) fn read(&mut self, hash: KeyHash, columns: Columns, at: Csn, node: NodeId) {
        self.add(Touch { mark: mark_of(hash, false), at, columns, node, older: 0 });
    }

    /// A node wrote a key.
    #[inline]
    pub(super) fn write(&mut self, hash: KeyHash, columns: Columns, at: Csn, node: NodeId) {
        self.add(Touch { mark: mark_of(hash, true), at, columns, node, older: 0 });
    }

    #[inline]
    fn add(&mut self, touch: Touch) {
        let (bucket, place) = (self.bucket(touch.mark), self.place(self.tail));
        let older = std::mem::replace(&mut self.buckets[bucket], self.tail);
        // So that chains only lead back, whatever the bucket had.
        let older = if self.has(older) { older } else { self.head.wrapping_sub(1) };
        self.ring[place] = Touch { older, ..touch };
        self.tail = self.tail.wrapping_add(1);
    }

    /// Makes room for so many touches. It may give those that are there other numbers.
    #[inline]
    pub(super) fn make_room(&mut self, nodes: &mut Nodes, count: usize) {
        if self.len() + count > self.ring.len() {
            self.rebuild(nodes, count);
        }
    }

    /// Makes the table anew, at most half full of touches that count.
    #[cold]
    fn rebuild(&mut self, nodes: &mut Nodes, count: usize) {
        let touch_of = |table: &Touches, number: Number| table.ring[table.place(number)];
        let numbers = |table: &Touches| {
            let (head, length) = (table.head, table.len() as Number);
            (0..length).map(move |step| head.wrapping_add(step))
        };
        let counts = |number: &Number| nodes.has_touched(touch_of(self, *number).node, *number);
        let room = 2 * (numbers(self).filter(counts).count() + count);
        let places = room.max(PLACES_MIN).next_power_of_two();
        let (buckets, ring) = (vec![self.tail.wrapping_sub(1); places], vec![EMPTY; places]);
        let new = Touches { head: self.tail, tail: self.tail, buckets, ring };
        let old = std::mem::replace(self, new);
        for number in numbers(&old) {
            let touch = touch_of(&old, number);
            if nodes.has_touched(touch.node, number) {
                self.add(touch);
            }
        }
        // Only now: until here the nodes are found by the old numbers. The first of a node's
        // counts.
        for number in numbers(self).rev() {
            nodes.renumber(touch_of(self, number).node, number);
        }
    }

    /// Moves the head past touches of nodes that have left.
    pub(super) fn trim(&mut self, nodes: &Nodes) {
        while self.head != self.tail && !nodes.has_touched(self.ring[self.place(self.head)].node, self.head) {
            self.head = self.head.wrapping_add(1);
        }
        if self.is_empty() && self.ring.len() > KEPT {
            *self = Touches { head: self.tail, tail: self.tail, ..Touches::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::node::Node;
    use super::*;
    use crate::txn::writeset::KeyWrites;

    /// A naive table: all touches in the order in which they came.
    #[derive(Default)]
    struct Naive(Vec<(KeyHash, bool, Csn, NodeId)>);

    impl Naive {
        fn found(&self, hash: KeyHash, is_write: bool) -> Vec<(Csn, NodeId)> {
            let same = |touch: &&(KeyHash, bool, Csn, NodeId)| touch.0 == hash && touch.1 == is_write;
            self.0.iter().rev().filter(same).map(|&(.., at, node)| (at, node)).collect()
        }

        /// The reads that came after the last write.
        fn after_last_write(&self, hash: KeyHash) -> Vec<(Csn, NodeId)> {
            let of_key = self.0.iter().rev().filter(|touch| touch.0 == hash);
            of_key.take_while(|touch| !touch.1).map(|&(.., at, node)| (at, node)).collect()
        }
    }

    proptest! {
        #[test]
        fn as_a_list_would_do(
            keys_of_nodes in prop::collection::vec(prop::collection::vec((0..40_u64, any::<bool>()), 0..6), 1..200),
            leaves in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
            first in prop_oneof![Just(0), Just(Number::MAX - 20), Just(Number::MAX / 2 - 20)],
        ) {
            let (mut touches, mut naive) = (Touches { head: first, tail: first, ..Touches::default() }, Naive::default());
            let (mut nodes, mut ids) = (Nodes::default(), Vec::new());
            for (at, keys) in keys_of_nodes.iter().enumerate() {
                let at = at as Csn;
                let mut node = Node::new(at, 0, None, KeyWrites::new());
                node.touches = touches.next();
                let id = nodes.insert(node);
                touches.make_room(&mut nodes, keys.len());
                for &(hash, is_write) in keys {
                    match is_write {
                        true => touches.write(hash, Columns::ALL, at, id),
                        false => touches.read(hash, Columns::ALL, at, id),
                    }
                    naive.0.push((hash, is_write, at, id));
                }
                ids.push(id);
                if let Some(leave) = leaves.get(at as usize) {
                    let id = ids.swap_remove(leave.index(ids.len()));
                    nodes.take(id);
                    touches.trim(&nodes);
                    nodes.reuse([id]);
                    naive.0.retain(|touch| touch.3 != id);
                }
                prop_assert!(touches.ring.len() <= PLACES_MIN.max(4 * (naive.0.len() + 6)));
                for hash in 0..40 {
                    let of = |(number, touch): (Number, &Touch)| {
                        nodes.has_touched(touch.node, number).then_some((touch.at, touch.node))
                    };
                    let found = |chain: Chain<'_>| chain.filter_map(of).collect::<Vec<_>>();
                    prop_assert_eq!(found(touches.writes(hash)), naive.found(hash, true));
                    prop_assert_eq!(found(touches.reads(hash)), naive.found(hash, false));
                    let last = touches.writes(hash).find(|touch| of(*touch).is_some());
                    let after = |touch: &(Number, &Touch)| last.is_none_or(|last| is_since(touch.0, last.0));
                    let reads: Vec<_> = touches.reads(hash).take_while(after).filter_map(of).collect();
                    prop_assert_eq!(reads, naive.after_last_write(hash));
                }
            }
            ids.into_iter().for_each(|id| drop(nodes.take(id)));
            touches.trim(&nodes);
            prop_assert!(touches.is_empty());
        }
    }
}
