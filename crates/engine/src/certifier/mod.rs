//! The certifier: precisely serializable snapshot isolation (PSSI; Revilak, O'Neil and O'Neil, ICDE
//! 2011 and HPTS 2011).
//!
//! Snapshot isolation alone lets some histories through that no serial order explains. The
//! certifier keeps the *dependency graph* of committed transactions and lets a candidate commit
//! unless that closes a cycle in the graph. So it aborts exactly where it must. It is pure and
//! synchronous: read set, write set and snapshot in, verdict out. A good verdict is a token
//! ([`Certified`]) that has the graph to itself until it is admitted under its number, or dropped:
//! what was found out cannot become wrong in between.
//!
//! # Edges
//!
//! `A → B`: A comes before B in every serial order.
//! - `wr`: B read a version that A wrote;
//! - `ww`: B overwrote a version that A wrote;
//! - `rw`: A read a version (or a gap) that B replaced, whether they were concurrent or not, and so
//!   that A would have seen a difference: a row may be replaced in other columns than A read, or
//!   outside of A's conditions (`txn::columns`).
//!
//! Edges into the candidate come from the writers of what it read and overwrites and from the
//! readers of what it overwrites; edges out of it can only be `rw`, to those who committed after
//! its snapshot and replaced what it read. In the chain of a key's versions only each writer and
//! the next one are connected, a reader with the writer of its version and with the first later
//! writer that makes a difference to it; whoever is further away is reached through them. So each
//! edge is drawn by whichever of the two is certified last: a candidate looks along the later
//! writers for the first that concerns it, and a writer looks at the readers of the version that
//! it replaces, among whom are those of older versions whom no writer since has concerned
//! (`index`). A reader that some writer has concerned is left out there for good: as long as it is
//! in the graph, that writer is, and the way from it to the newest one, for nobody is removed
//! before his predecessors are.
//!
//! # A worked history
//!
//! ```text
//! x = y = 50; each transaction may take 60 if x + y allows it
//! T1: reads x, y at snapshot 0      T2: reads x, y at snapshot 0
//! T1: writes x, commits as 1        graph: T1                        no edge out: commits
//! T2: writes y, asks to commit      T2 → T1 (rw, x)  T1 → T2 (rw, y)   a cycle: aborted
//! ```
//!
//! Had T1 not read y, there would be `T2 → T1` alone: T2 commits, and is before T1 in the serial
//! order, although its number is higher. Whether real time permits an order is another question,
//! which [`Method::Strict`] asks, too: `search`.
//!
//! # Pruning
//!
//! A committed transaction is *closed* when nobody runs any more whose snapshot does not show it:
//! nobody can get an edge to it any more. A closed one without edges into it can never be in a
//! cycle and is removed, and with it its edges, so that its successors may follow. What wrote
//! nothing is closed from the start, except in real time.
//!
//! # Prepared transactions
//!
//! Who is prepared counts as committed with a number that is higher than all others, until it gets
//! its number or is rolled back: [`prepared`].
//!
//! # Bounded memory
//!
//! One long reader keeps everything after its snapshot open. At the bound, the first half of the
//! graph in topological order becomes one node (`summary`): a path that went through one of them
//! goes through the summary now, so no cycle is missed; a path that enters it where it does not
//! leave may look like a cycle that is none.
//!
//! # What it asserts
//!
//! A lost edge would be a cycle that commits. So nothing here is looked for and passed over when it
//! is missing: a neighbour, a node of a range, of a promise or of the queue of the open is there
//! (`Nodes::at`), and counts do not fall below zero (`node::reduce`), or the certifier panics, and
//! the sequencer stops the log. A *touch* of a key may outlive its node, and says so by its number;
//! only there is a missing node nothing. The branches were there before; they lead elsewhere now.
//!
//! # Comparators
//!
//! For measurements the same module decides by other rules ([`Method`]): *SSI* aborts where two
//! consecutive `rw` edges between concurrent transactions meet of which the last one's target
//! committed first (a dangerous structure; Cahill, Röhm and Fekete; Ports and Grittner), at the
//! candidate's commit.

mod admission;
mod candidate;
mod cycle;
#[cfg(test)]
mod faults;
mod image;
mod index;
mod method;
mod node;
#[cfg(test)]
mod precise;
mod prepared;
mod ranges;
mod search;
mod stale;
mod structure;
mod summary;
#[cfg(test)]
mod tests;
mod touches;
mod watch;

use std::collections::VecDeque;

pub(crate) use admission::Certified;
pub(crate) use candidate::Candidate;
pub use cycle::{Cycle, Dependency, Edge, Object};
#[cfg(test)]
pub(crate) use faults::Fault;
pub(crate) use image::overtaken;
use index::{KeyIndex, SPARED_MAX, unmoved};
pub use method::Method;
use node::{Node, NodeId, Nodes, PREPARED, reduce};
pub(crate) use prepared::Promise;
use ranges::Ranged;
use smallvec::SmallVec;
pub(crate) use stale::Mixing;
pub use stale::StaleRead;
use touches::Touch;
pub(crate) use watch::Watch;

use crate::Csn;
use crate::txn::columns::Columns;
use crate::txn::readset::Moment;

/// Bytes that a node costs besides its reads.
const NODE_BYTES: usize = size_of::<Node>() + 64;
/// Bytes that a written key costs here.
const WRITE_BYTES: usize = 224;
/// Bytes that a read costs in the index.
const ENTRY_BYTES: usize = 64;

/// A reading of the certifier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CertifierStatistics {
    /// Transactions in the dependency graph.
    pub nodes: u64,
    /// Memory in use, in bytes, approximately.
    pub bytes: u64,
    /// Memory that it may use, in bytes.
    pub limit: u64,
    /// How often the older half of the graph was summarized to stay within it.
    pub summaries: u64,
}

/// Nodes that can be removed; mostly as many as committed since the last time.
type Removable = SmallVec<[NodeId; 32]>;

/// Nodes that were taken out of the graph.
#[derive(Debug, Default)]
#[allow(clippy::vec_box, reason = "they are what was taken out, and what is kept for others")]
pub(crate) struct Removed {
    nodes: Vec<Box<Node>>,
}

impl Removed {
    /// Adds others.
    pub(crate) fn append(&mut self, mut others: Removed) {
        self.nodes.append(&mut others.nodes);
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        self.nodes.drain(..).for_each(Node::discard);
    }
}

/// The dependency graph, and the edges of the candidate that was certified last.
///
/// It goes from processor to processor with every commit, so what every commit touches lies side by
/// side, at the beginning.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Certifier {
    /// Number of the certification, for the stamps.
    epoch: u64,
    nodes: Nodes,
    index: KeyIndex,
    /// The candidate's predecessors and successors.
    before: Vec<NodeId>,
    after: Vec<NodeId>,
    /// How many readers of what it replaces see no difference.
    spared: usize,
    /// Nodes that are not closed, in the order of their commits; prepared ones are not among them.
    open: VecDeque<NodeId>,
    bytes: usize,
    /// Transactions admitted since it was last pruned.
    unpruned: u64,
    /// How many are prepared, how many have forgotten their successors, and how many are summaries.
    prepared: usize,
    forgetful: usize,
    standing: usize,
    /// Snapshots that are watched, and whether each is still safe.
    watched: Vec<(Watch, Csn, bool)>,
    method: Method,
    limit: usize,
    /// The newest summary.
    summary: Option<NodeId>,
    summaries: u64,
    /// Prepared ones that have successors, and those that have forgotten theirs.
    leading: Vec<NodeId>,
    forgetting: Vec<NodeId>,
    queue: Vec<NodeId>,
    watches: u64,
    /// A fault that tests plant: nobody is reached by real time.
    #[cfg(test)]
    omits_later: bool,
}

impl Certifier {
    /// An empty graph that may take `limit` bytes.
    pub(crate) fn new(method: Method, limit: usize) -> Certifier {
        Certifier {
            method,
            limit,
            nodes: Nodes::default(),
            index: KeyIndex::default(),
            open: VecDeque::new(),
            prepared: 0,
            forgetful: 0,
            leading: Vec::new(),
            forgetting: Vec::new(),
            bytes: 0,
            epoch: 0,
            before: Vec::new(),
            after: Vec::new(),
            spared: 0,
            queue: Vec::new(),
            summary: None,
            standing: 0,
            summaries: 0,
            unpruned: 0,
            watched: Vec::new(),
            watches: 0,
            #[cfg(test)]
            omits_later: false,
        }
    }

    /// Size of the graph.
    pub(crate) fn statistics(&self) -> CertifierStatistics {
        CertifierStatistics {
            nodes: self.nodes.len() as u64,
            bytes: self.bytes as u64,
            limit: self.limit as u64,
            summaries: self.summaries,
        }
    }

    /// Transactions admitted since it was last pruned.
    pub(crate) fn unpruned(&self) -> u64 {
        self.unpruned
    }

    /// Whether it takes more memory than it may.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes > self.limit
    }

    /// The last commit of those that are not closed.
    pub(crate) fn newest_open(&self) -> Option<Csn> {
        self.open.back().map(|&id| self.nodes.at(id).commit)
    }

    /// Who reads at a snapshot below this has no edge into it.
    pub(crate) fn quiet_below(&self) -> Csn {
        match self.open.front().map(|&id| self.nodes.at(id)) {
            _ if self.nodes.len() == 0 => Csn::MAX,
            // A summary's number is its last. Dangerous structures outlive their third, whom
            // nothing keeps here.
            _ if self.standing + self.forgetful > 0 || self.method == Method::Ssi => 0,
            // No snapshot shows what is prepared.
            None if self.nodes.len() == self.prepared => Csn::MAX,
            // What is closed and lingers was committed at any time before.
            Some(first) if self.nodes.len() == self.open.len() + self.prepared => first.commit,
            _ => 0,
        }
    }

    /// Changes the memory that the graph may take.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// May the candidate commit as the next one? Who holds the answer is the only one who can do
    /// anything to the graph until it is used, or dropped.
    ///
    /// # Errors
    /// The cycle that it would close.
    pub(crate) fn certify(&mut self, mut candidate: Candidate) -> Result<Certified<'_>, Box<Cycle>> {
        self.draw(&mut candidate);
        match self.refusal(&candidate) {
            Some(cycle) => Err(cycle),
            None => Ok(Certified { graph: self, candidate }),
        }
    }

    /// The same of one that was certified before a crash: nothing is refused, and no cycle comes of
    /// it (`prepared`).
    pub(crate) fn connect(&mut self, mut candidate: Candidate) -> Certified<'_> {
        self.draw(&mut candidate);
        let leads_on = !self.before.is_empty() && !self.after.is_empty();
        if leads_on && self.search(&candidate).is_some() {
            self.after.clear();
            candidate.node.forgot_successors = true;
        }
        Certified { graph: self, candidate }
    }

    /// Finds the candidate's edges.
    fn draw(&mut self, candidate: &mut Candidate) {
        self.epoch += 1;
        self.spared = 0;
        self.before.clear();
        self.after.clear();
        if self.nodes.len() == 0 {
            return;
        }
        self.connect_reads(candidate);
        self.connect_writes(candidate);
        if self.prepared > 0 {
            self.connect_prepared(candidate);
        }
    }

    /// The cycle that the candidate, whose edges are drawn, would close.
    fn refusal(&mut self, candidate: &Candidate) -> Option<Box<Cycle>> {
        match self.method {
            Method::Ssi => self.dangerous_structure(candidate),
            _ if self.after.is_empty() => None,
            // In real time whoever had ended precedes it.
            Method::Strict => self.search(candidate),
            _ if self.before.is_empty() && self.forgetful == 0 => None,
            _ => self.search(candidate),
        }
    }

    fn precede(nodes: &mut Nodes, before: &mut Vec<NodeId>, epoch: u64, id: NodeId) {
        let node = nodes.at_mut(id);
        if node.stamps.precedes != epoch {
            node.stamps.precedes = epoch;
            before.push(id);
        }
    }

    fn succeed(nodes: &mut Nodes, after: &mut Vec<NodeId>, epoch: u64, id: NodeId) {
        let node = nodes.at_mut(id);
        if node.stamps.succeeds != epoch {
            node.stamps.succeeds = epoch;
            after.push(id);
        }
    }

    /// Edges by what the candidate read.
    fn connect_reads(&mut self, candidate: &Candidate) {
        let (reads, start) = (&candidate.node.reads, candidate.node.start);
        let Certifier { nodes, index, before, after, epoch, .. } = self;
        let shown = |moment: Moment| if moment == Moment::Latest { Csn::MAX } else { start };
        for point in reads.points() {
            let start = shown(point.moment());
            let differs = |touch: &Touch| touch.columns.meet(reads.columns(point));
            let around = index.writers_around(nodes, point.hash, start, differs);
            Certifier::connect_key(nodes, before, after, *epoch, around);
            if let Some(tree) = index.with_ranges(point.tree).filter(|tree| !tree.writes.is_empty()) {
                tree.writes.covering(reads.key(point), &mut |item| {
                    Certifier::connect_range(nodes, before, after, *epoch, item, start);
                });
            }
        }
        if !reads.ranges().is_empty() {
            index.sort(nodes);
        }
        for range in reads.ranges() {
            let start = shown(range.moment);
            let Some(tree) = index.trees.get(&range.tree) else { continue };
            for (key, hash) in tree.written_in(&range.lower, &range.upper) {
                let differs = |touch: &Touch| match range.interest.as_deref() {
                    None => touch.columns != Columns::NONE,
                    Some(interest) => {
                        touch.columns.meet(interest.columns())
                            && nodes.at(touch.node).effect_on(range.tree, key).may_meet(interest.conditions())
                    }
                };
                let around = index.writers_around(nodes, hash, start, differs);
                Certifier::connect_key(nodes, before, after, *epoch, around);
            }
            tree.writes.overlapping(&range.lower, &range.upper, &mut |item| {
                Certifier::connect_range(nodes, before, after, *epoch, item, start);
            });
        }
    }

    /// The writer of the version that was read comes before; after it comes the next one whose
    /// write makes a difference.
    #[inline]
    fn connect_key(
        nodes: &mut Nodes,
        before: &mut Vec<NodeId>,
        after: &mut Vec<NodeId>,
        epoch: u64,
        (upto, later): (Option<NodeId>, Option<NodeId>),
    ) {
        if let Some(id) = upto {
            Certifier::precede(nodes, before, epoch, id);
        }
        if let Some(id) = later {
            Certifier::succeed(nodes, after, epoch, id);
        }
    }

    /// The same of writes in a range: some may be before what was read, and others after it. What
    /// is prepared is not to be seen, also by who reads the newest.
    fn connect_range(
        nodes: &mut Nodes,
        before: &mut Vec<NodeId>,
        after: &mut Vec<NodeId>,
        epoch: u64,
        item: &Ranged,
        start: Csn,
    ) {
        let is_prepared = item.first == PREPARED;
        if item.first <= start && !is_prepared {
            Certifier::precede(nodes, before, epoch, item.node);
        }
        if item.last > start || is_prepared {
            Certifier::succeed(nodes, after, epoch, item.node);
        }
    }

    /// Edges by what the candidate writes. A write that would leave too many readers behind it as
    /// they were counts as one of the whole row from now on, for those who have read it as for
    /// those who will.
    fn connect_writes(&mut self, candidate: &mut Candidate) {
        let Certifier { nodes, index, before, spared, epoch, .. } = self;
        let Node { writes, effects, .. } = &mut *candidate.node;
        for (tree, key, hash, effect) in writes {
            let last = index.last_writer(nodes, *hash);
            let readers = index.readers(nodes, *hash, last);
            if let Some((_, touch)) = last {
                Certifier::precede(nodes, before, *epoch, touch.node);
            }
            let changed = effects.at(*effect).columns();
            match unmoved(&readers, changed, SPARED_MAX).len() {
                unmoved if unmoved > SPARED_MAX => *effect = 0,
                unmoved => *spared += unmoved,
            }
            let effect = effects.at(*effect);
            for (id, _) in readers.into_iter().filter(|(_, read)| effect.columns().meet(*read)) {
                Certifier::precede(nodes, before, *epoch, id);
            }
            if let Some(tree) = index.with_ranges(*tree) {
                let mut precede = |item: &Ranged| Certifier::precede(nodes, before, *epoch, item.node);
                tree.writes.covering(key, &mut precede);
                tree.reads.covering(key, &mut |item| {
                    if item.minds(effect) {
                        precede(item);
                    }
                });
            }
        }
        for &tree in &candidate.dropped {
            // Rare; so nothing is kept for it.
            let touches = |node: &Node| {
                node.reads.points().iter().any(|point| point.tree == tree)
                    || node.reads.ranges().iter().any(|range| range.tree == tree)
                    || node.writes.iter().any(|(written, ..)| *written == tree)
                    || node.range_writes().iter().any(|write| write.tree == tree)
            };
            let touching: Vec<NodeId> =
                nodes.iter().filter(|(_, node)| touches(node)).map(|(id, _)| id).collect();
            touching.into_iter().for_each(|id| Certifier::precede(nodes, before, *epoch, id));
        }
    }

    /// Nobody certifies any more with a snapshot below `oldest`: closes, removes what can be in no
    /// cycle, and keeps to the bound of memory. What was removed is the caller's, to be freed
    /// without the mutex.
    pub(crate) fn advance(&mut self, oldest: Csn) -> Removed {
        self.unpruned = 0;
        let mut removable = Removable::new();
        while let Some(&id) = self.open.front() {
            let node = self.nodes.at_mut(id);
            if node.commit > oldest {
                break;
            }
            node.closed = true;
            if node.in_degree == 0 {
                removable.push(id);
            }
            self.open.pop_front();
        }
        let removed = self.remove(removable);
        if self.is_full() {
            self.summarize();
            if self.is_full() {
                self.forget_successors_of_prepared();
            }
        }
        removed
    }

    /// Removes nodes without predecessors, then those that have none any more.
    fn remove(&mut self, mut removable: Removable) -> Removed {
        let (mut places, mut removed) = (Removable::new(), Vec::with_capacity(removable.len()));
        let mut ranges = false;
        while let Some(id) = removable.pop() {
            let node = self.nodes.take(id);
            reduce(&mut self.bytes, node.bytes);
            for &successor in &node.out {
                if self.nodes.lose_predecessor(successor) {
                    removable.push(successor);
                }
            }
            self.index.leave(&node);
            ranges |= node.has_ranges;
            self.summary = self.summary.filter(|&newest| newest != id);
            reduce(&mut self.standing, usize::from(node.is_summary()));
            reduce(&mut self.forgetful, usize::from(node.forgot_successors));
            places.push(id);
            removed.push(node);
        }
        if !removed.is_empty() {
            // Trees go with their last key, for all removed nodes in one walk.
            self.index.forget(ranges || self.nodes.len() == 0, &self.nodes);
        }
        self.nodes.reuse(places);
        Removed { nodes: removed }
    }
}
