//! The way of a certified candidate into the graph.
//!
//! The edges that [`Certifier::certify`] found lie in the certifier until the candidate is
//! admitted. So the verdict is a token that borrows the certifier: nobody else is certified
//! meanwhile, nobody is removed, and a candidate that was not certified cannot be admitted at all.
//!
//! ```text
//! certify(candidate) ─▶ Certified ─▶ overtaken()      whom a record has to mark before this one
//!                                ├─▶ is_overtaken()   whether its own record has to mark it, too
//!                                ├─▶ admit(number)    a node with its edges
//!                                ├─▶ admit_prepared() a node that is promised, and the promise
//!                                └─▶ dropped          as if it had never asked
//! ```

use smallvec::SmallVec;

use super::candidate::ranges_of_many;
use super::node::{Node, NodeId, PREPARED};
use super::ranges::Ranged;
use super::{Candidate, Certifier, ENTRY_BYTES, Method, NODE_BYTES, Promise, WRITE_BYTES};
use crate::{Csn, TransactionId};

/// A candidate that may commit. See the module's prose.
#[derive(Debug)]
#[must_use = "it is not in the graph before it is admitted"]
pub(crate) struct Certified<'a> {
    pub(super) graph: &'a mut Certifier,
    pub(super) candidate: Candidate,
}

impl Certified<'_> {
    /// Prepared transactions that it comes after, where it is the first such one.
    #[inline]
    pub(crate) fn overtaken(&mut self) -> SmallVec<[TransactionId; 2]> {
        self.graph.overtaken()
    }

    /// Whether somebody has committed who comes after it, if it is prepared now.
    pub(crate) fn is_overtaken(&self) -> bool {
        self.graph.leads_to_committed(&self.candidate)
    }

    /// Enters it under its number; for one that wrote nothing, `commit` is the last number given
    /// out.
    #[inline]
    pub(crate) fn admit(self, commit: Csn) {
        self.graph.admit(self.candidate, commit);
    }

    /// Enters it as prepared. With `forgot_successors` anybody may have come after it.
    pub(crate) fn admit_prepared(self, forgot_successors: bool) -> Promise {
        self.graph.admit_prepared(self.candidate, forgot_successors)
    }
}

impl Certifier {
    fn admit_prepared(&mut self, candidate: Candidate, forgot_successors: bool) -> Promise {
        self.unpruned += 1;
        let is_overtaken = forgot_successors || self.leads_to_committed(&candidate);
        let mut node = self.node_of(candidate, PREPARED);
        // It may be marked already by who drew its edges, of which nothing is logged.
        node.forgot_successors |= forgot_successors;
        (node.overtaken, node.closed) = (is_overtaken, false);
        self.prepared += 1;
        self.forgetful += usize::from(node.forgot_successors);
        let (leads, forgot) = (!node.out.is_empty(), node.forgot_successors);
        let id = self.join(node);
        if leads {
            self.leading.push(id);
        }
        if forgot {
            self.forgetting.push(id);
        }
        Promise(Some(id))
    }

    fn admit(&mut self, candidate: Candidate, commit: Csn) {
        self.unpruned += 1;
        // Nothing can get an edge to it any more, and nothing has one, except in real time.
        if candidate.is_read_only() && self.method == Method::Pssi && self.before.is_empty() {
            return;
        }
        let node = self.node_of(candidate, commit);
        let open = !node.closed;
        let id = self.join(node);
        if open {
            self.open.push_back(id);
        }
    }

    /// The node of the candidate whose edges are drawn, with its number.
    fn node_of(&mut self, candidate: Candidate, commit: Csn) -> Box<Node> {
        let read_only = candidate.is_read_only();
        let first_out = self.first_commit(&self.after);
        // A reader without an edge into it is led to in real time only, by those who had ended when
        // it began: it is not the first to lead to before a snapshot.
        let may_cross = !read_only || !self.before.is_empty();
        for (_, snapshot, safe) in &mut self.watched {
            *safe &= commit <= *snapshot || first_out > *snapshot || !may_cross;
        }
        let Candidate { mut node, dropped } = candidate;
        ranges_of_many(&mut node, &dropped, commit);
        (node.commit, node.first_out) = (commit, first_out);
        node.bytes = NODE_BYTES
            + node.reads.bytes()
            + node.reads.points().len() * ENTRY_BYTES
            + node.effects.bytes()
            + self.spared * ENTRY_BYTES
            + (node.writes.len() + node.range_writes().len()) * WRITE_BYTES
            + (self.before.len() + self.after.len()) * size_of::<NodeId>();
        if self.method != Method::Ssi {
            node.closed = read_only && self.method != Method::Strict;
            if !self.after.is_empty() {
                node.out.extend_from_slice(&self.after);
            }
            node.in_degree = self.before.len() as u32;
        }
        node
    }

    /// Puts the node of the candidate into the graph, with its edges.
    fn join(&mut self, node: Box<Node>) -> NodeId {
        let commit = node.commit;
        let id = self.enter(node, self.spared > 0);
        if self.method != Method::Ssi {
            for &before in &self.before {
                let node = self.nodes.at_mut(before);
                node.out.push(id);
                if node.is_prepared() {
                    node.first_out = node.first_out.min(commit);
                    if node.out.len() == 1 {
                        self.leading.push(before);
                    }
                }
            }
            for &after in &self.after {
                self.nodes.at_mut(after).in_degree += 1;
            }
        }
        id
    }

    /// Puts a node into graph and index; `spares`: see [`super::index::KeyIndex::keep`].
    pub(super) fn enter(&mut self, mut node: Box<Node>, spares: bool) -> NodeId {
        self.bytes += node.bytes;
        let Certifier { nodes, index, .. } = self;
        node.touches = index.next_touch();
        let id = nodes.insert(node);
        match nodes.at(id).is_prepared() {
            true => index.promise(nodes.at(id), id),
            false => index.keep(nodes, id, spares),
        }
        let node = nodes.at_mut(id);
        node.has_ranges = !node.reads.ranges().is_empty() || !node.range_writes().is_empty();
        if !node.has_ranges {
            return id;
        }
        for range in node.reads.ranges() {
            index.read_range(
                range.tree,
                Ranged {
                    lower: range.lower.clone(),
                    upper: range.upper.clone(),
                    node: id,
                    first: node.start,
                    last: node.start,
                    interest: range.interest.clone(),
                },
            );
        }
        for write in node.range_writes() {
            index.write_range(
                write.tree,
                Ranged {
                    lower: write.lower.clone(),
                    upper: write.upper.clone(),
                    node: id,
                    first: write.first,
                    last: write.last,
                    interest: None,
                },
            );
        }
        index.settle();
        id
    }

    /// The first commit of these nodes: of a summary, whose number is its last, that of the first
    /// of its writers.
    fn first_commit(&self, nodes: &[NodeId]) -> Csn {
        let commits = nodes.iter().map(|&id| self.nodes.at(id).ended());
        commits.min().unwrap_or(Csn::MAX)
    }
}
