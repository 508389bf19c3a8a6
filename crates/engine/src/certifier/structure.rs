//! Serializable snapshot isolation by dangerous structures: what the precise certifier is measured
//! against.
//!
//! ```text
//! T1 ─rw→ T2 ─rw→ T3      each pair concurrent, T3 committed before the others
//! ```
//!
//! Every cycle of a history under snapshot isolation has such a structure in it (Fekete et al.),
//! and T3 commits first (Ports and Grittner). Not every such structure is in a cycle: those aborts
//! are the needless ones. The candidate is T2 or T1 here; as T3 it would commit last. If T1 only
//! reads, T3 must have committed before T1's snapshot.

use super::node::{Node, NodeId};
use super::{Candidate, Certifier, Cycle};

impl Certifier {
    /// The structure that the candidate's commit would complete.
    pub(super) fn dangerous_structure(&self, candidate: &Candidate) -> Option<Box<Cycle>> {
        let path = self.as_pivot(candidate).or_else(|| self.as_first(candidate))?;
        let mut cycle = self.cycle_of(candidate, &path);
        // What leads back was not looked for.
        cycle.edges.truncate(2);
        Some(Box::new(cycle))
    }

    /// T1 → candidate → T3.
    fn as_pivot(&self, candidate: &Candidate) -> Option<Vec<NodeId>> {
        // Of a summary it is the first of its writers that may have committed first.
        let third = *self.after.iter().min_by_key(|&&id| self.nodes.at(id).ended())?;
        let third_commit = self.nodes.at(third).ended();
        let dangerous = |first: &Node| {
            let concurrent = first.commit > candidate.node.start;
            let wrote = !first.writes.is_empty() || !first.range_writes().is_empty();
            let read = !first.reads.is_empty();
            concurrent
                && read
                && if wrote { third_commit <= first.commit } else { third_commit <= first.start }
        };
        let first = self.before.iter().find(|&&id| dangerous(self.nodes.at(id)))?;
        Some(if *first == third { vec![third] } else { vec![third, *first] })
    }

    /// candidate → T2 → T3.
    fn as_first(&self, candidate: &Candidate) -> Option<Vec<NodeId>> {
        let writes = !candidate.is_read_only();
        let pivot = self.after.iter().find(|&&id| {
            let pivot = self.nodes.at(id);
            pivot.first_out < pivot.commit && (writes || pivot.first_out <= candidate.node.start)
        })?;
        Some(vec![*pivot])
    }
}
