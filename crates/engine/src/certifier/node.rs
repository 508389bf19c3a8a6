//! The dependency graph's nodes: committed transactions that may still become part of a cycle.

use std::ops::Bound;

use smallvec::SmallVec;

use super::touches::{Number, is_since};
use crate::key::SmallKey;
use crate::lock::mode::FamilySlot;
use crate::spare::Spares;
use crate::sync::thread_local;
use crate::txn::change::{Effect, Effects};
use crate::txn::readset::{Point, ReadSet};
use crate::txn::writeset::{KeyWrite, KeyWrites};
use crate::{Csn, TransactionId, TreeId};

/// Place of a node.
pub(super) type NodeId = u32;

/// No node.
pub(super) const NONE: NodeId = NodeId::MAX;

/// Stands for the number of a prepared transaction: it will be higher than any that there is.
pub(super) const PREPARED: Csn = Csn::MAX;

/// Who has not ended in real time, or never will have.
pub(super) const NEVER: Csn = Csn::MAX;

/// So many writes are compared with each read.
const FEW_WRITES: usize = 4;

/// Keys that were written, as a range: by a transaction with very many writes, by a DROP, or by
/// what was summarized.
#[derive(Debug, Clone)]
pub(super) struct RangeWrite {
    pub(super) tree: TreeId,
    pub(super) lower: Bound<SmallKey>,
    pub(super) upper: Bound<SmallKey>,
    pub(super) first: Csn,
    pub(super) last: Csn,
}

/// A committed transaction (or, as one node, several that were summarized).
///
/// It goes from processor to processor: one makes it, others walk over it, and one of them removes
/// it. So it takes few lines of memory: in the first is what a walk needs, in the second what its
/// removal needs too, in the third what it did.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Node {
    /// Its number; if it wrote nothing, the last number at the time of its commit; [`PREPARED`]
    /// until it is decided.
    pub(super) commit: Csn,
    /// Its snapshot, at last; of several that were summarized, the latest.
    pub(super) start: Csn,
    /// The first commit that overwrote what it read (for dangerous structures); `Csn::MAX` if none
    /// did.
    pub(super) first_out: Csn,
    pub(super) stamps: Stamps,
    /// Where the search that last came here came from.
    pub(super) from: NodeId,
    /// Number of predecessors.
    pub(super) in_degree: u32,
    /// The number of its first touch; if it has none, no touch of its place has this number or a
    /// higher one.
    pub(super) touches: Number,
    /// No predecessor will be added any more.
    pub(super) closed: bool,
    /// It is logged that somebody committed who comes after it, while it was prepared.
    pub(super) overtaken: bool,
    /// Who came after it is not known any more: it may be anybody.
    pub(super) forgot_successors: bool,
    /// Whether ranges of it are in the index.
    pub(super) has_ranges: bool,
    /// Successors: those that must come later in every serial order.
    pub(super) out: SmallVec<[NodeId; 4]>,
    pub(super) bytes: usize,
    /// 0 for the summary.
    pub(super) id: TransactionId,
    /// Most have none.
    ranges: Option<Box<RangeWrites>>,
    pub(super) effects: Effects,
    pub(super) reads: ReadSet,
    pub(super) writes: KeyWrites,
    /// Only one member of a family ever commits.
    pub(super) family: Option<FamilySlot>,
    /// How far its snapshot is above where it began.
    lag: u32,
}

const _: () = assert!(size_of::<Node>() == 3 * 64);

/// Ranges of writes of a node that has some.
#[derive(Debug)]
struct RangeWrites {
    all: Vec<RangeWrite>,
    /// The first of their numbers when they were set: a summary may have very many, and is asked
    /// under the mutex.
    first: Csn,
}

thread_local! {
    static SPARES: Spares<Node> = const { Spares::new() };
}

impl Default for Node {
    fn default() -> Node {
        Node {
            commit: PREPARED,
            start: 0,
            first_out: Csn::MAX,
            stamps: Stamps::default(),
            from: NONE,
            in_degree: 0,
            touches: 0,
            closed: false,
            overtaken: false,
            forgot_successors: false,
            has_ranges: false,
            out: SmallVec::new(),
            bytes: 0,
            id: 0,
            ranges: None,
            effects: Effects::default(),
            reads: ReadSet::default(),
            writes: KeyWrites::new(),
            family: None,
            lag: 0,
        }
    }
}

impl Node {
    /// That of a transaction which asks to commit. Its number and its place in the graph follow.
    pub(super) fn new(id: TransactionId, start: Csn, reads: Option<ReadSet>, writes: KeyWrites) -> Box<Node> {
        let spare = SPARES.try_with(Spares::take).ok().flatten();
        let mut node = spare.unwrap_or_default();
        (node.id, node.start, node.reads, node.writes) = (id, start, reads.unwrap_or_default(), writes);
        node
    }

    /// A node that is not needed any more.
    pub(super) fn discard(mut self: Box<Node>) {
        *self = Node::default();
        SPARES.try_with(|spares| spares.keep(self)).ok();
    }

    /// Whether it wrote the key that it read: then whoever overwrites the key comes after that
    /// write, and nobody needs to know of the read. Only looked for where it is a matter of a few
    /// comparisons.
    #[inline]
    pub(super) fn overwrites(&self, point: &Point) -> bool {
        self.writes.len() <= FEW_WRITES && self.writes.iter().any(|write| write.2 == point.hash)
    }

    /// The ranges of its writes.
    #[inline]
    pub(super) fn range_writes(&self) -> &[RangeWrite] {
        self.ranges.as_ref().map_or(&[], |ranges| &ranges.all)
    }

    /// The same, to be changed.
    pub(super) fn range_writes_mut(&mut self) -> &mut [RangeWrite] {
        self.ranges.as_mut().map_or(&mut [], |ranges| &mut ranges.all)
    }

    /// Gives it ranges of writes.
    pub(super) fn set_range_writes(&mut self, ranges: Vec<RangeWrite>) {
        let first = ranges.iter().map(|write| write.first).min();
        self.ranges = first.map(|first| Box::new(RangeWrites { all: ranges, first }));
    }

    /// What one of its writes changed.
    #[inline]
    pub(super) fn effect(&self, write: &KeyWrite) -> Effect<'_> {
        self.effects.at(write.3)
    }

    /// What it changed of a row.
    pub(super) fn effect_on(&self, tree: TreeId, key: &SmallKey) -> Effect<'_> {
        // Ascending by tree and key; what is no row comes behind all rows, in any order.
        let place = self.writes.binary_search_by(|write| (write.0, &write.1).cmp(&(tree, key)));
        self.effects.at(place.map_or(0, |place| self.writes[place].3))
    }

    /// Whether it stands for several.
    pub(super) fn is_summary(&self) -> bool {
        self.id == 0
    }

    /// Whoever has this number or a higher one as its snapshot began after it had ended (`search`).
    /// [`NEVER`] if it is prepared or was rolled back.
    #[inline]
    pub(super) fn ended(&self) -> Csn {
        match self.commit {
            0 => NEVER,
            // Nobody changes the numbers of a summary's ranges.
            commit if self.is_summary() => self.ranges.as_ref().map_or(commit, |ranges| ranges.first),
            commit => commit,
        }
    }

    /// Where it began in real time: its first snapshot, where that has moved since; of several that
    /// were summarized, the latest. Whoever had ended by then precedes it.
    #[inline]
    pub(super) fn began(&self) -> Csn {
        self.start - u64::from(self.lag)
    }

    /// Says where it began, once its snapshot is known. What would be too far from that counts as
    /// later: an edge too many, never one too few.
    pub(super) fn set_began(&mut self, began: Csn) {
        let lag = self.start.saturating_sub(began);
        self.lag = u32::try_from(lag).unwrap_or(u32::MAX);
    }

    /// Whether it is not decided yet.
    #[inline]
    pub(super) fn is_prepared(&self) -> bool {
        self.commit == PREPARED
    }
}

/// Something leads to a node that is not there: an edge is lost, and a cycle may be.
#[cold]
#[inline(never)]
#[track_caller]
fn missing(id: NodeId) -> ! {
    panic!("the dependency graph is broken: something leads to node {id}, which is not in it")
}

/// Takes `amount` off a count of nodes, edges or bytes, which must be as high at least.
#[inline]
#[track_caller]
pub(super) fn reduce<N: Count>(count: &mut N, amount: N) {
    match count.less(amount) {
        Some(rest) => *count = rest,
        None => uncounted(),
    }
}

/// A count that was never as high as what is taken off it.
#[cold]
#[inline(never)]
#[track_caller]
fn uncounted() -> ! {
    panic!("the dependency graph is broken: more leaves it than was counted in")
}

/// What is counted.
pub(super) trait Count: Copy {
    /// The difference, if it is not negative.
    fn less(self, amount: Self) -> Option<Self>;
}

impl Count for u32 {
    #[inline]
    fn less(self, amount: u32) -> Option<u32> {
        self.checked_sub(amount)
    }
}

impl Count for usize {
    #[inline]
    fn less(self, amount: usize) -> Option<usize> {
        self.checked_sub(amount)
    }
}

/// Marks of the certification that last met the node.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Stamps {
    /// It precedes the candidate.
    pub(super) precedes: u64,
    /// It succeeds the candidate.
    pub(super) succeeds: u64,
    /// The search came here.
    pub(super) visited: u64,
}

/// The nodes, in reused places. Each stays where it was made, before the mutex was taken: the
/// places are a dense array that stays in the caches.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    places: Vec<Option<Box<Node>>>,
    free: Vec<NodeId>,
    count: usize,
}

impl Nodes {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn insert(&mut self, node: Box<Node>) -> NodeId {
        self.count += 1;
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Some(node);
                place
            }
            None => {
                self.places.push(Some(node));
                self.places.len() as NodeId - 1
            }
        }
    }

    #[inline]
    pub(super) fn has(&self, id: NodeId) -> bool {
        self.places.get(id as usize).is_some_and(Option::is_some)
    }

    /// A node that may have left.
    #[inline]
    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        self.places.get(id as usize)?.as_deref()
    }

    /// A node that something refers to which would have gone with it: it is there, or the graph is
    /// broken.
    #[inline]
    #[track_caller]
    pub(super) fn at(&self, id: NodeId) -> &Node {
        match self.places.get(id as usize) {
            Some(Some(node)) => node,
            _ => missing(id),
        }
    }

    /// The same, to be changed.
    #[inline]
    #[track_caller]
    pub(super) fn at_mut(&mut self, id: NodeId) -> &mut Node {
        match self.places.get_mut(id as usize) {
            Some(Some(node)) => node,
            _ => missing(id),
        }
    }

    /// Whether it is the node in this place that touched a key under this number, and not one that
    /// has left.
    #[inline]
    pub(super) fn has_touched(&self, id: NodeId, number: Number) -> bool {
        self.get(id).is_some_and(|node| is_since(number, node.touches))
    }

    /// A node's touches have other numbers, of which this is the first.
    pub(super) fn renumber(&mut self, id: NodeId, first: Number) {
        self.at_mut(id).touches = first;
    }

    /// Takes a node out that must be there. Its place is not used again before `reuse`.
    #[track_caller]
    pub(super) fn take(&mut self, id: NodeId) -> Box<Node> {
        let Some(node) = self.places.get_mut(id as usize).and_then(Option::take) else { missing(id) };
        self.count -= 1;
        node
    }

    /// A node has one predecessor less. Whether it can be removed now.
    #[inline]
    pub(super) fn lose_predecessor(&mut self, id: NodeId) -> bool {
        let node = self.at_mut(id);
        reduce(&mut node.in_degree, 1);
        node.in_degree == 0 && node.closed
    }

    /// Gives places back, once nothing refers to them.
    pub(super) fn reuse(&mut self, ids: impl IntoIterator<Item = NodeId>) {
        self.free.extend(ids);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(id, node)| node.as_deref().map(|node| (id as NodeId, node)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (NodeId, &mut Node)> {
        let places = self.places.iter_mut().enumerate();
        places.filter_map(|(id, node)| node.as_deref_mut().map(|node| (id as NodeId, node)))
    }
}
