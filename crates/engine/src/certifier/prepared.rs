//! Prepared transactions in the graph: who has promised to commit, and may yet be rolled back.
//!
//! Nobody may commit who would close a cycle through a prepared transaction, for that can no longer
//! give way. So it is certified when it is prepared, and is a node from then on, with a number
//! above all others ([`PREPARED`](super::node::PREPARED)): who reads a key that it wrote reads the
//! version before and gets an edge to it, however late it reads; who replaces what it read gets an
//! edge from it. When it is decided the node gets the commit's number, or loses all its edges.
//!
//! ```text
//! P reads x, writes y, is prepared      P
//! T1: reads y, commits                  T1 → P (rw)        y is what it was before P
//! T2: writes x, commits                 T1 → P → T2
//! T3: reads y and the new x             T3 → P → T2 → T3   a cycle: T3 is aborted, whatever becomes of P
//! ```
//!
//! # In the index
//!
//! The other keys are kept in the order of commits, of which a prepared transaction has no part
//! yet. So its keys are in two maps of their own, and only move to the others with the decision.
//! What happened between the two has its edges already. Range reads need no order and are where all
//! are. Whether a reader sees a difference is asked as of everybody else; who read something of a
//! row and sees none by the prepared write is a reader of the version that the decision makes.
//!
//! # Siblings
//!
//! Of a family of siblings one commits at most. So no edge is drawn between two of them, and no
//! search goes through a sibling of the candidate. A way through two members of *another* family is
//! no way either, but is taken for one: that costs an abort where two siblings are prepared and a
//! third party lies between them.
//!
//! # Forgotten successors
//!
//! A prepared transaction stays for as long as it is in doubt, and everything that comes after it
//! stays with it. At the bound of memory its successors are let go, and a mark says that anybody
//! may have come after it: who leads to it is refused from then on. The same mark is on what a
//! crash left prepared and that had read something which was replaced before the crash, for the
//! graph of that time is gone: by who committed after it was prepared, or before, but after its
//! snapshot. The mark stays when it commits. Nothing that was committed before the crash can be
//! reached from what runs after it, so this is all that was lost. Who has forgotten his successors
//! is marked when another prepared one commits: until then a crash finds both, and draws the edge.
//!
//! What a crash has left prepared counts as having changed whole rows. So edges are drawn between
//! two of them that there were not when they were certified, and they may close a cycle, of which
//! nobody could be removed any more, nor anybody behind it. Where one would close, the last one's
//! successors are forgotten at once ([`Certifier::connect`]).

use smallvec::SmallVec;

use super::node::{Node, NodeId, Nodes, reduce};
use super::ranges::minds;
use super::{Candidate, Certifier, Method, Removable, Removed};
use crate::hash::{ByHash, KeyHash};
use crate::lock::mode::FamilySlot;
use crate::txn::change::Effects;
use crate::txn::columns::Columns;
use crate::txn::readset::ReadSet;
use crate::{Csn, TransactionId};

/// The node of a prepared transaction; to be given back by `fulfil` or `withdraw`. `None`: there is
/// no certifier.
#[derive(Debug, Default)]
pub(crate) struct Promise(pub(super) Option<NodeId>);

/// Whether both are members of one family.
#[inline]
pub(super) fn siblings(one: Option<FamilySlot>, other: Option<FamilySlot>) -> bool {
    one.is_some() && one == other
}

/// Who touched a key, and which columns of it.
type ByKey = ByHash<KeyHash, SmallVec<[(NodeId, Columns); 1]>>;

/// Keys that prepared transactions read and wrote.
#[derive(Debug, Default)]
pub(super) struct Promised {
    readers: ByKey,
    writers: ByKey,
}

fn leave(map: &mut ByKey, hash: KeyHash, id: NodeId) {
    if let Some(nodes) = map.get_mut(&hash) {
        nodes.retain(|(node, _)| *node != id);
        if nodes.is_empty() {
            map.remove(&hash);
        }
    }
}

impl Promised {
    pub(super) fn reads(&mut self, hash: KeyHash, columns: Columns, id: NodeId) {
        self.readers.entry(hash).or_default().push((id, columns));
    }

    pub(super) fn writes(&mut self, hash: KeyHash, columns: Columns, id: NodeId) {
        self.writers.entry(hash).or_default().push((id, columns));
    }

    pub(super) fn unreads(&mut self, hash: KeyHash, id: NodeId) {
        leave(&mut self.readers, hash, id);
    }

    pub(super) fn unwrites(&mut self, hash: KeyHash, id: NodeId) {
        leave(&mut self.writers, hash, id);
    }

    pub(super) fn has_writers(&self, hash: KeyHash) -> bool {
        !self.writers.is_empty() && self.writers.contains_key(&hash)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.readers.is_empty() && self.writers.is_empty()
    }

    fn readers_of(&self, hash: KeyHash) -> &[(NodeId, Columns)] {
        self.readers.get(&hash).map_or(&[], |nodes| nodes.as_slice())
    }

    fn writers_of(&self, hash: KeyHash) -> &[(NodeId, Columns)] {
        self.writers.get(&hash).map_or(&[], |nodes| nodes.as_slice())
    }
}

/// Marks a node; its transaction, if it is prepared and was not marked.
fn overtake(nodes: &mut Nodes, id: NodeId) -> Option<TransactionId> {
    let node = nodes.at_mut(id);
    let first = node.is_prepared() && !node.overtaken;
    node.overtaken |= first;
    first.then_some(node.id)
}

impl Certifier {
    /// Edges between the candidate and prepared transactions, over single keys; those over ranges
    /// of theirs are drawn with all others.
    pub(super) fn connect_prepared(&mut self, candidate: &Candidate) {
        let Certifier { nodes, index, before, after, epoch, .. } = self;
        let (epoch, promised) = (*epoch, &index.promised);
        let reads = &candidate.node.reads;
        for point in reads.points() {
            for &(id, changed) in promised.writers_of(point.hash) {
                if changed.meet(reads.columns(point)) {
                    Certifier::succeed(nodes, after, epoch, id);
                }
            }
        }
        for range in reads.ranges() {
            // Its keys were put in order when the edges to the committed were drawn.
            let Some(tree) = index.trees.get(&range.tree) else { continue };
            for (key, hash) in tree.written_in(&range.lower, &range.upper) {
                for &(id, _) in promised.writers_of(hash) {
                    if minds(range.interest.as_deref(), nodes.at(id).effect_on(range.tree, key)) {
                        Certifier::succeed(nodes, after, epoch, id);
                    }
                }
            }
        }
        for write in &candidate.node.writes {
            let changed = candidate.node.effect(write).columns();
            for &(id, read) in promised.readers_of(write.2) {
                if changed.meet(read) {
                    Certifier::precede(nodes, before, epoch, id);
                }
            }
            // Its lock keeps writers of rows away until it is decided; whoever needs no lock for a
            // key is before it.
            for &(id, _) in promised.writers_of(write.2) {
                Certifier::succeed(nodes, after, epoch, id);
            }
        }
        let family = candidate.node.family;
        if family.is_some() {
            let stranger = |id: &NodeId| !siblings(nodes.at(*id).family, family);
            before.retain(stranger);
            after.retain(stranger);
        }
    }

    /// Whether somebody who has committed comes after the candidate, whose edges are drawn, and it
    /// matters once it is prepared: nobody gets an edge to what wrote nothing. Those behind it who
    /// are prepared are met again after a crash.
    pub(super) fn leads_to_committed(&self, candidate: &Candidate) -> bool {
        !candidate.is_read_only() && self.after.iter().any(|&id| !self.nodes.at(id).is_prepared())
    }

    /// Prepared transactions that the candidate whose edges are drawn comes after, where it is the
    /// first such one.
    pub(super) fn overtaken(&mut self) -> SmallVec<[TransactionId; 2]> {
        if self.prepared == 0 {
            return SmallVec::new();
        }
        let Certifier { nodes, before, .. } = self;
        let overtaken = |id: &NodeId| overtake(nodes, *id);
        before.iter().filter_map(overtaken).collect()
    }

    /// The same of a prepared transaction that is about to commit. Whoever has forgotten his
    /// successors may have forgotten this one.
    pub(crate) fn overtaken_by(&mut self, promise: &Promise) -> SmallVec<[TransactionId; 2]> {
        let Some(id) = promise.0.filter(|_| self.prepared > 1) else { return SmallVec::new() };
        let (mut leading, family) = (self.leading_to(id), self.nodes.at(id).family);
        let may_lead = |other: &NodeId| *other != id && !siblings(self.nodes.at(*other).family, family);
        leading.extend(self.forgetting.iter().copied().filter(may_lead));
        leading.into_iter().filter_map(|id| overtake(&mut self.nodes, id)).collect()
    }

    /// Whether it may be logged that somebody came after it.
    pub(crate) fn is_marked(&self, promise: &Promise) -> bool {
        promise.0.is_none_or(|id| self.nodes.at(id).overtaken)
    }

    /// A prepared transaction commits, and is a node like others. Its siblings are withdrawn before
    /// the mutex is free.
    pub(crate) fn fulfil(&mut self, promise: Promise, commit: Csn) -> Removed {
        let Certifier { nodes, index, open, .. } = self;
        let Some(id) = promise.0 else { return Removed::default() };
        let node = nodes.at_mut(id);
        index.unpromise(node, id);
        self.leading.retain(|other| *other != id);
        self.forgetting.retain(|other| *other != id);
        node.commit = commit;
        node.family = None;
        for write in node.range_writes_mut() {
            (write.first, write.last) = (commit, commit);
        }
        if !node.range_writes().is_empty() {
            index.number_ranges(id, commit);
        }
        // Of those who came since it was prepared nobody was counted.
        index.keep(nodes, id, true);
        index.settle();
        reduce(&mut self.prepared, 1);
        let node = nodes.at_mut(id);
        let is_writer = !node.writes.is_empty() || !node.range_writes().is_empty();
        if is_writer || self.method != Method::Pssi {
            open.push_back(id);
            self.lead_to(id, commit);
            return Removed::default();
        }
        // As any reader: nobody can get an edge to it any more, except in real time.
        node.closed = true;
        if node.in_degree == 0 { self.remove(Removable::from_slice(&[id])) } else { Removed::default() }
    }

    /// Prepared transactions that lead to a node.
    fn leading_to(&self, id: NodeId) -> SmallVec<[NodeId; 4]> {
        let leads = |other: &NodeId| self.nodes.at(*other).out.contains(&id);
        self.leading.iter().copied().filter(leads).collect()
    }

    /// Others that are prepared may lead to one that has its number now.
    fn lead_to(&mut self, id: NodeId, commit: Csn) {
        if self.prepared == 0 {
            return;
        }
        for id in self.leading_to(id) {
            let node = self.nodes.at_mut(id);
            node.first_out = node.first_out.min(commit);
        }
    }

    /// A prepared transaction is rolled back. Its node loses all that could bring it into a way,
    /// and goes when its predecessors have gone.
    pub(crate) fn withdraw(&mut self, promise: Promise) -> Removed {
        let Certifier { nodes, index, .. } = self;
        let Some(id) = promise.0 else { return Removed::default() };
        let node = nodes.at_mut(id);
        index.unpromise(node, id);
        if node.has_ranges {
            index.leave_ranges(id);
        }
        node.closed = true;
        node.commit = 0;
        node.first_out = Csn::MAX;
        node.family = None;
        node.reads = ReadSet::default();
        node.writes.clear();
        node.effects = Effects::default();
        node.set_range_writes(Vec::new());
        node.has_ranges = false;
        reduce(&mut self.prepared, 1);
        reduce(&mut self.forgetful, usize::from(std::mem::take(&mut node.forgot_successors)));
        let is_last = node.in_degree == 0;
        self.forgetting.retain(|other| *other != id);
        let mut removable = self.let_go(id);
        if is_last {
            removable.push(id);
        }
        self.remove(removable)
    }

    /// Takes away a node's edges to its successors. Answers those that have to stay for nobody now.
    fn let_go(&mut self, id: NodeId) -> Removable {
        self.leading.retain(|other| *other != id);
        let out = std::mem::take(&mut self.nodes.at_mut(id).out);
        let mut removable = Removable::new();
        for successor in out {
            if self.nodes.lose_predecessor(successor) {
                removable.push(successor);
            }
        }
        removable
    }

    /// Makes room: whoever waits for a prepared transaction only need not stay.
    pub(super) fn forget_successors_of_prepared(&mut self) {
        if self.prepared == 0 || self.method == Method::Ssi {
            return;
        }
        let prepared = std::mem::take(&mut self.leading);
        let mut removable = Removable::new();
        for id in prepared {
            let node = self.nodes.at_mut(id);
            if !std::mem::replace(&mut node.forgot_successors, true) {
                self.forgetful += 1;
                self.forgetting.push(id);
            }
            removable.extend(self.let_go(id));
        }
        drop(self.remove(removable));
    }

    /// Whether a prepared transaction keeps readers at this snapshot from being safe: not before it
    /// is decided will any snapshot from here on be.
    pub(crate) fn is_in_doubt(&self, snapshot: Csn) -> bool {
        let unsafe_ =
            |node: &Node| node.is_prepared() && (node.first_out <= snapshot || node.forgot_successors);
        self.prepared > 0 && self.nodes.iter().any(|(_, node)| unsafe_(node))
    }
}
