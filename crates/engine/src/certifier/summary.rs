//! Bounded memory: many old nodes become one.
//!
//! A *prefix of a topological order* is taken: with a node all its predecessors. So no edge leads
//! from the rest into the summary, and contracting it closes no cycle. Whoever had an edge from one
//! of them has one from the summary. Its reads and writes are those of all of them, joined to
//! ranges until they fit into a part of the bound.
//!
//! ```text
//! A → B → C → D, E → C     prefix A E B:     (A E B) → C → D
//! ```
//!
//! A later transaction with an old snapshot may get an edge to the summary because of A and one
//! from it because of E. It is aborted then, although A does not lead to E: the price of the bound.
//! Prepared transactions are never summarized (`prepared` says what becomes of them). Who takes a
//! snapshot after the summarized ones committed gets no edge to it.

use std::collections::HashMap;
use std::ops::Bound;

use smallvec::SmallVec;

use super::node::{Node, NodeId, RangeWrite, reduce};
use super::{Certifier, ENTRY_BYTES, NODE_BYTES, WRITE_BYTES};
use crate::key::SmallKey;
use crate::txn::readset::{Moment, RangeRead, ReadSet, compare_lower, compare_upper, join_ranges};
use crate::txn::writeset::KeyWrites;
use crate::{Csn, TreeId};

/// Bytes that a range of the summary costs.
const RANGE_BYTES: usize = 256;

impl Certifier {
    /// Makes one node of the older half of the graph.
    pub(super) fn summarize(&mut self) {
        let order = self.topological_prefix();
        if order.len() < 2 {
            return;
        }
        self.summaries += 1;
        let members: HashMap<NodeId, usize> = order.iter().enumerate().map(|(at, &id)| (id, at)).collect();
        let mut parts = Vec::with_capacity(order.len());
        for &id in &order {
            let node = self.nodes.take(id);
            reduce(&mut self.bytes, node.bytes);
            reduce(&mut self.standing, usize::from(node.is_summary()));
            reduce(&mut self.forgetful, usize::from(node.forgot_successors));
            self.index.leave(&node);
            parts.push(node);
        }
        self.index.forget(true, &self.nodes);
        self.nodes.reuse(order);
        self.open.retain(|id| !members.contains_key(id));
        let mut out: SmallVec<[NodeId; 4]> = parts
            .iter()
            .flat_map(|node| node.out.iter().copied())
            .filter(|id| !members.contains_key(id))
            .collect();
        for &successor in &out {
            self.nodes.lose_predecessor(successor);
        }
        out.sort_unstable();
        out.dedup();
        for &successor in &out {
            self.nodes.at_mut(successor).in_degree += 1;
        }
        let node = merge(&parts, out, self.limit / 4);
        let open = !node.closed;
        let commit = node.commit;
        self.forgetful += usize::from(node.forgot_successors);
        let id = self.enter(node, false);
        self.summary = Some(id);
        self.standing += 1;
        if open {
            // The queue stays in the order of the commits.
            let nodes = &self.nodes;
            let at = self.open.partition_point(|&id| nodes.at(id).commit < commit);
            self.open.insert(at, id);
        }
    }

    /// Nodes that hold about half of the memory, each behind all its predecessors.
    fn topological_prefix(&self) -> Vec<NodeId> {
        let mut degrees: HashMap<NodeId, u32> =
            self.nodes.iter().map(|(id, node)| (id, node.in_degree)).collect();
        // Older ones first, and the summary before all.
        let mut ready: std::collections::BinaryHeap<std::cmp::Reverse<(bool, Csn, NodeId)>> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.in_degree == 0 && !node.is_prepared())
            .map(|(id, node)| std::cmp::Reverse((Some(id) != self.summary, node.commit, id)))
            .collect();
        let (mut order, mut bytes) = (Vec::new(), 0);
        while let Some(std::cmp::Reverse((_, _, id))) = ready.pop() {
            let node = self.nodes.at(id);
            order.push(id);
            bytes += node.bytes;
            if bytes * 2 > self.bytes && order.len() > 1 {
                break;
            }
            for &successor in &node.out {
                let next = self.nodes.at(successor);
                let degree = degrees.entry(successor).or_default();
                reduce(degree, 1);
                if *degree == 0 && !next.is_prepared() {
                    ready.push(std::cmp::Reverse((true, next.commit, successor)));
                }
            }
        }
        order
    }
}

/// One node of many.
fn merge(parts: &[Box<Node>], out: SmallVec<[NodeId; 4]>, limit: usize) -> Box<Node> {
    let commit = parts.iter().map(|node| node.commit).max().unwrap_or(0);
    // The latest: whoever had ended then may have been there before one of them.
    let start = parts.iter().map(|node| node.start).max().unwrap_or(0);
    let began = parts.iter().map(|node| node.began()).max().unwrap_or(0);
    let closed = parts.iter().all(|node| node.closed);
    let first_out = parts.iter().map(|node| node.first_out).min().unwrap_or(Csn::MAX);
    let forgot_successors = parts.iter().any(|node| node.forgot_successors);
    let mut reads: Vec<RangeRead> = Vec::new();
    let mut writes: Vec<RangeWrite> = Vec::new();
    for node in parts {
        reads.extend(node.reads.ranges().iter().cloned());
        reads.extend(node.reads.points().iter().map(|point| {
            let bound = Bound::Included(SmallKey::new(node.reads.key(point)));
            let (lower, upper) = (bound.clone(), bound);
            RangeRead { tree: point.tree, moment: Moment::Latest, lower, upper, interest: None }
        }));
        writes.extend(node.range_writes().iter().cloned());
        writes.extend(node.writes.iter().map(|(tree, key, ..)| {
            let bound = Bound::Included(key.clone());
            let (lower, upper) = (bound.clone(), bound);
            RangeWrite { tree: *tree, lower, upper, first: node.commit, last: node.commit }
        }));
    }
    // What was read at which snapshot does not matter any more, nor what of it: whoever replaces it
    // comes later.
    reads.iter_mut().for_each(|range| (range.moment, range.interest) = (Moment::Latest, None));
    let target = (limit / 2 / RANGE_BYTES).max(1);
    join_ranges(&mut reads, target);
    join_writes(&mut writes, target);
    let bytes =
        NODE_BYTES + reads.len() * (RANGE_BYTES + ENTRY_BYTES) + writes.len() * WRITE_BYTES + out.len() * 4;
    let mut node = Node::new(0, start, Some(ReadSet::of_ranges(reads)), KeyWrites::new());
    (node.commit, node.first_out, node.closed) = (commit, first_out, closed);
    (node.forgot_successors, node.out, node.bytes) = (forgot_successors, out, bytes);
    node.set_range_writes(writes);
    node.set_began(began);
    node
}

/// Joins writes of the same key, then neighbours, until there are at most `target`, or one a tree.
fn join_writes(writes: &mut Vec<RangeWrite>, target: usize) {
    fn group(write: &RangeWrite) -> TreeId {
        write.tree
    }
    fn absorb(into: &mut RangeWrite, from: RangeWrite) {
        if compare_upper(&from.upper, &into.upper).is_gt() {
            into.upper = from.upper;
        }
        into.first = into.first.min(from.first);
        into.last = into.last.max(from.last);
    }
    writes.sort_by(|a, b| group(a).cmp(&group(b)).then_with(|| compare_lower(&a.lower, &b.lower)));
    let mut distinct: Vec<RangeWrite> = Vec::with_capacity(writes.len());
    for write in writes.drain(..) {
        match distinct.last_mut() {
            Some(last)
                if last.tree == write.tree && last.lower == write.lower && last.upper == write.upper =>
            {
                absorb(last, write);
            }
            _ => distinct.push(write),
        }
    }
    *writes = distinct;
    while writes.len() > target {
        let before = writes.len();
        let mut joined: Vec<RangeWrite> = Vec::with_capacity(before / 2 + 1);
        let mut fresh = false;
        for write in writes.drain(..) {
            match joined.last_mut().filter(|last| fresh && last.tree == write.tree) {
                Some(last) => {
                    absorb(last, write);
                    fresh = false;
                }
                None => {
                    joined.push(write);
                    fresh = true;
                }
            }
        }
        *writes = joined;
        if writes.len() == before {
            return;
        }
    }
}
