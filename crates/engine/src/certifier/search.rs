//! The search for a cycle through the candidate: from whom it precedes back to whom it succeeds.
//!
//! # Real time
//!
//! A serial order may put a transaction before another one that was acknowledged before it began.
//! Under [`Method::Strict`] it may not: `A → B` also where A's number is not above B's first
//! snapshot (`commit(A) <= began(B)`), since whoever begins after A was acknowledged has at least
//! A's number as its snapshot: the visible mark had come there before A was answered, and so had
//! the durable mark, at which READ ONLY reads. A snapshot that moves later (`refresh`), or a
//! transaction that is run anew, changes what it sees, and not when it began: `began(B) <=
//! start(B)`. That is why the first snapshot stays pinned: who ended after it is still in the
//! graph.
//!
//! ```text
//! T3: reads x at snapshot 0            T3 runs long
//! T1: writes x, commits as 1           T3 → T1 (rw, x)
//! T2: begins at 1, reads y, ends       T1 → T2 (real time)
//! T3: writes y, asks to commit         T2 → T3 (rw, y)       serially: T2, T3, T1; strictly: none
//! ```
//!
//! There would be too many of these edges to store them. The search knows them by the numbers:
//! 1. Whomever it reaches that had ended when the candidate C began precedes C, and closes a cycle.
//! 2. When it has gone to all that stored edges lead to, it goes on to all that began after the
//!    first of these had ended. By 1 that one ended after C began. So they are among those that
//!    committed during C's life: the end of the queue of the open.
//!
//! That is enough: what is committed has no cycle in it, so on a way from C whoever comes after an
//! edge of real time `A → B` ended after B began, or there would be an edge back to B. So whatever
//! a second such edge leads to began after A had ended, too; and who had ended when C began does
//! not come behind such an edge unless A had, as well.
//!
//! # Readers
//!
//! What wrote nothing has no number of its own. Its edges *out* by real time lead nowhere that
//! those of its predecessors do not: these are whom it saw, and who had ended when it began; they
//! had ended when it did, so whoever began after it began after them. So the number that it is
//! given, which is not below theirs, changes nothing above. Its edges *in* by real time do matter,
//! as T2's. So readers enter the graph, those of one key too, and stay until all have ended that
//! began before they had ([`Certifier::advance`]). Only those need not that have nobody at or below
//! their last snapshot in the graph ([`Certifier::quiet_below`]), nor below their first one, then.
//!
//! # Removal
//!
//! What is closed and has no stored edge into it may go, as it may without real time. Suppose that
//! on a way from C it is the first, X, that has gone, and W → X is of real time. Then `commit(W) <=
//! began(X) < commit(X) <= oldest <= began(C)`: W closes a cycle with C by itself, and W is there.
//!
//! # Summaries, prepared transactions, other levels
//!
//! A summary has ended when the first of its writers had, and began when the last of them did: that
//! may be an edge too many, never one too few. Who is prepared has not ended: PREPARE is nothing
//! that others come after. With its number it precedes those who begin after the decision. Whom it
//! comes after follows from where it began, as for anybody.
//!
//! At the lower levels transactions take part with what they write, from the snapshot of their last
//! statement to their commit. What they read is not explained. So the order is strict among those
//! at SERIALIZABLE, and has a place for what others wrote.

use super::cycle::{Deeds, edge};
use super::node::{NEVER, NONE, Node, NodeId};
use super::{Candidate, Certifier, Cycle, Method, prepared};
use crate::Csn;
use crate::lock::mode::FamilySlot;

impl Certifier {
    /// Looks for a way from a successor to a predecessor, shortest first; with an edge of real time
    /// in it only if there is none without.
    pub(super) fn search(&mut self, candidate: &Candidate) -> Option<Box<Cycle>> {
        self.queue.clear();
        let epoch = self.epoch;
        for &id in &self.after {
            let node = self.nodes.at_mut(id);
            node.stamps.visited = epoch;
            node.from = NONE;
            self.queue.push(id);
        }
        let mut first = (NEVER, NONE);
        let strict = self.method == Method::Strict;
        let mut last = self.follow(candidate, 0, strict.then_some(&mut first));
        let leads_back = !self.before.is_empty() || self.forgetful > 0;
        if last.is_none() && first.0 < NEVER && leads_back {
            let followed = self.queue.len();
            self.reach_later(first, candidate.node.family);
            last = self.follow(candidate, followed, None);
        }
        last.map(|last| Box::new(self.describe(candidate, last)))
    }

    /// Goes along stored edges from the nodes in the queue, from this place on. Answers the one
    /// that closes a cycle. With `first`, real time that leads back to the candidate closes one,
    /// too; and if nothing does, `first` is who ended first of those that it came to.
    #[inline]
    fn follow(
        &mut self,
        candidate: &Candidate,
        mut next: usize,
        mut first: Option<&mut (Csn, NodeId)>,
    ) -> Option<NodeId> {
        let (epoch, family, began) = (self.epoch, candidate.node.family, candidate.node.began());
        while let Some(&id) = self.queue.get(next) {
            next += 1;
            let node = self.nodes.at_mut(id);
            if node.stamps.precedes == epoch || node.forgot_successors {
                return Some(id);
            }
            if let Some(first) = first.as_deref_mut() {
                let ended = node.ended();
                if ended <= began {
                    return Some(id);
                }
                *first = (*first).min((ended, id));
            }
            // Taken out and put back: the successors are marked meanwhile.
            let out = std::mem::take(&mut node.out);
            for &successor in &out {
                let node = self.nodes.at_mut(successor);
                if node.stamps.visited != epoch && !prepared::siblings(node.family, family) {
                    node.stamps.visited = epoch;
                    node.from = id;
                    self.queue.push(successor);
                }
            }
            self.nodes.at_mut(id).out = out;
        }
        None
    }

    /// Puts into the queue whoever began after `from` had ended, which the candidate runs longer
    /// than: nobody of them is closed.
    fn reach_later(&mut self, (ended, from): (Csn, NodeId), family: Option<FamilySlot>) {
        #[cfg(test)]
        if self.omits_later {
            return;
        }
        let Certifier { nodes, open, queue, epoch, prepared, .. } = self;
        let epoch = *epoch;
        let mut reach = |id: NodeId, node: &mut Node| {
            // The snapshot first: it lies beside the stamps, and is not below the beginning.
            if node.start >= ended && node.began() >= ended && node.stamps.visited != epoch {
                node.stamps.visited = epoch;
                node.from = from;
                queue.push(id);
            }
        };
        for &id in open.iter().rev() {
            let node = nodes.at_mut(id);
            // Nobody's number is below its snapshot, nor below where it began.
            if node.commit < ended {
                break;
            }
            reach(id, node);
        }
        if *prepared > 0 {
            let in_doubt = |node: &Node| node.is_prepared() && !prepared::siblings(node.family, family);
            nodes.iter_mut().filter(|(_, node)| in_doubt(node)).for_each(|(id, node)| reach(id, node));
        }
    }

    /// The cycle whose last node before the candidate is `last`.
    fn describe(&self, candidate: &Candidate, last: NodeId) -> Cycle {
        let mut path = Vec::new();
        let mut at = last;
        while at != NONE {
            path.push(at);
            at = self.nodes.at(at).from;
        }
        path.reverse();
        self.cycle_of(candidate, &path)
    }

    /// The cycle from the candidate through these nodes and back.
    pub(super) fn cycle_of(&self, candidate: &Candidate, path: &[NodeId]) -> Cycle {
        let own = Deeds::from(&*candidate.node);
        let nodes: Vec<&Node> = path.iter().map(|&id| self.nodes.at(id)).collect();
        let mut stations = vec![own];
        stations.extend(nodes.iter().map(|node| Deeds::from(*node)));
        stations.push(own);
        let strict = self.method == Method::Strict;
        Cycle {
            victim: candidate.node.id,
            edges: stations.windows(2).map(|pair| edge(pair[0], pair[1], strict)).collect(),
            in_doubt: nodes.iter().find(|node| node.is_prepared()).map(|node| node.id),
            is_summarized: nodes
                .iter()
                .any(|node| node.is_summary() || node.forgot_successors || node.reads.is_coarse())
                || candidate.node.reads.is_coarse(),
        }
    }
}
