//! What a delivered transaction has to do with others that are delivered and not yet decided: its
//! locks, what it changes, and, at its origin, what it read. Beside the certifier's graph, which
//! knows those only that are decided.

use std::collections::HashMap;
use std::ops::{Bound, RangeBounds as _};

use foldhash::fast::RandomState;

use super::metaprotocol;
use super::request::Place;
use super::window::{against, strengths};
use crate::TreeId;
use crate::hash::KeyHash;
use crate::key::SmallKey;
use crate::lock::mode::Modes;
use crate::lock::table::HeldLock;
use crate::txn::readset::ReadSet;
use crate::txn::writeset::KeyWrites;

/// See the module's prose.
#[derive(Debug)]
pub(crate) struct Footprint {
    /// What each lock keeps out.
    asked: Vec<(Place, Modes)>,
    held: HashMap<Place, Modes, RandomState>,
    writes: KeyWrites,
    dropped: Vec<TreeId>,
    reads: Option<Read>,
}

#[derive(Debug)]
struct Read {
    set: ReadSet,
    /// Of its points, in order.
    hashes: Vec<KeyHash>,
}

impl Footprint {
    /// Of a transaction with these locks, that writes these keys and drops these trees.
    pub(crate) fn new(locks: &[(HeldLock, bool)], writes: KeyWrites, dropped: &[TreeId]) -> Footprint {
        let place = |lock: &HeldLock| (lock.tree, lock.key.clone());
        Footprint {
            asked: locks.iter().map(|(lock, _)| (place(lock), against(lock))).collect(),
            held: locks.iter().map(|(lock, _)| (place(lock), strengths(lock))).collect(),
            writes,
            dropped: dropped.to_vec(),
            reads: None,
        }
    }

    /// The same with what it read.
    pub(crate) fn with_reads(mut self, set: ReadSet) -> Footprint {
        let mut hashes: Vec<KeyHash> = set.points().iter().map(|point| point.hash).collect();
        hashes.sort_unstable();
        self.reads = Some(Read { set, hashes });
        self
    }

    /// What it read, if that is known; it is not any more then.
    pub(crate) fn take_reads(&mut self) -> Option<ReadSet> {
        self.reads.take().map(|reads| reads.set)
    }
}

impl Read {
    fn meets(&self, earlier: &Footprint) -> bool {
        let is_in = |tree: TreeId, key: &SmallKey, hash: KeyHash| {
            let within = |lower: &Bound<SmallKey>, upper: &Bound<SmallKey>| {
                (lower.as_ref(), upper.as_ref()).contains(key)
            };
            let covers = self.set.ranges().iter().filter(|range| range.tree == tree);
            self.hashes.binary_search(&hash).is_ok()
                || covers.into_iter().any(|range| within(&range.lower, &range.upper))
        };
        let touches = |tree: TreeId| {
            self.set.points().iter().any(|point| point.tree == tree)
                || self.set.ranges().iter().any(|range| range.tree == tree)
        };
        earlier.writes.iter().any(|(tree, key, hash, ..)| is_in(*tree, key, *hash))
            || earlier.dropped.iter().any(|tree| touches(*tree))
    }
}

impl metaprotocol::Footprint for Footprint {
    fn meets(&self, earlier: &Footprint) -> bool {
        let conflicts =
            |(place, out): &(Place, Modes)| earlier.held.get(place).is_some_and(|modes| modes & out != 0);
        self.asked.iter().any(conflicts) || self.reads.as_ref().is_some_and(|reads| reads.meets(earlier))
    }
}

#[cfg(test)]
mod tests {
    use super::super::metaprotocol::Footprint as _;
    use super::*;
    use crate::hash::FIXED;
    use crate::lock::mode::{LockMode, Mode};
    use crate::txn::columns::Columns;
    use crate::txn::readset::Moment;

    fn writer(key: &str) -> Footprint {
        let name = SmallKey::new(key.as_bytes());
        let lock =
            HeldLock { tree: 7, key: Some(name.clone()), modes: Mode::Row(LockMode::NoKeyExclusive).bit() };
        let hash = FIXED.hash_of(7, &name);
        Footprint::new(&[(lock, true)], KeyWrites::from_vec(vec![(7, name, hash, 0)]), &[])
    }

    fn reader(point: &str, range: Option<(&str, &str)>) -> Footprint {
        let mut set = ReadSet::default();
        set.add_point(&FIXED, 7, point.as_bytes(), Moment::Snapshot, Columns::ALL);
        if let Some((from, to)) = range {
            let (from, to) = (Bound::Included(from.as_bytes()), Bound::Excluded(to.as_bytes()));
            set.add_range(7, from, to, Moment::Snapshot, None);
        }
        writer("own").with_reads(set)
    }

    #[test]
    fn locks_and_reads_meet_what_was_delivered_before() {
        assert!(writer("a").meets(&writer("a")) && !writer("a").meets(&writer("b")));
        assert!(reader("a", None).meets(&writer("a")) && !reader("b", None).meets(&writer("a")));
        assert!(reader("x", Some(("b", "d"))).meets(&writer("c")));
        assert!(!reader("x", Some(("b", "d"))).meets(&writer("d")), "the end is not of it");
        assert!(!writer("a").meets(&reader("a", None)), "what an earlier one has read is in nobody's way");
        let dropping = Footprint::new(&[], KeyWrites::new(), &[7]);
        assert!(reader("x", None).meets(&dropping) && !writer("x").meets(&dropping));
    }
}
