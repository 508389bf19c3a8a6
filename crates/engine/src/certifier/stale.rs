//! Whether what a running transaction has read is still so: what it takes to move its snapshot.
//!
//! A read is *stale* if somebody replaced what was read and committed after the transaction's
//! snapshot. Those are its successors by `rw`, found as for a candidate, by the same indexes; only
//! that no way back is looked for. If none of them has committed up to a later snapshot, everything
//! that was read is there what it was, and the transaction may as well have read it there.
//!
//! ```text
//! T: reads x at snapshot 4      5 writes y      6 writes x      T: asks whether x is the same at 5 (yes), at 6 (no)
//! ```
//!
//! Who is prepared is not visible at any snapshot yet. Ranges and summaries stand for more than was
//! read and written: there a read may be called stale that is not.

use super::admission::Certified;
use super::cycle::{Deeds, Dependency, Edge, Object, edge};
use super::node::{Node, NodeId};
use super::{Candidate, Certifier};
use crate::{Csn, TransactionId};

/// A read that is not true any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleRead {
    /// What was read, if that is known.
    pub object: Option<Object>,
    /// Who replaced it; 0 stands for transactions that were summarized to bound memory.
    pub writer: TransactionId,
    /// Reads or transactions were joined to bound memory: perhaps nothing was replaced that was
    /// read.
    pub is_summarized: bool,
}

impl Certifier {
    /// What of the reads at the reader's snapshot was replaced by a commit up to `until`.
    pub(crate) fn stale_read(&mut self, reader: &mut Candidate, until: Csn) -> Option<Box<StaleRead>> {
        self.draw(reader);
        self.replaced(reader, |node| node.commit <= until || node.is_summary())
    }

    /// The first of those who replaced what was read, as far as they count.
    fn replaced(&self, reader: &Candidate, counts: impl Fn(&Node) -> bool) -> Option<Box<StaleRead>> {
        let replaced = |id: &NodeId| counts(self.nodes.at(*id));
        let node = self.nodes.at(self.after.iter().copied().find(replaced)?);
        let Edge { dependency, object, .. } = edge(Deeds::from(&*reader.node), Deeds::from(node), false);
        Some(Box::new(StaleRead {
            object: object.filter(|_| dependency == Dependency::ReadWrite),
            writer: node.id,
            is_summarized: node.is_summary() || reader.node.reads.is_coarse(),
        }))
    }
}

/// Up to where a candidate's reads must hold, because somebody is there whose own reads nobody
/// knows (`order`: the mixing rule).
pub(crate) struct Mixing<'a> {
    pub(crate) upto: Csn,
    /// Where those who are prepared, or were before somebody like that, have their place.
    pub(crate) prepared_at: &'a dyn Fn(TransactionId) -> Option<Csn>,
}

impl Certified<'_> {
    /// What of its reads was replaced at or before the position up to which they must hold.
    pub(crate) fn reaches_back(&self, mixing: &Mixing<'_>) -> Option<Box<StaleRead>> {
        let counts = |node: &Node| match (mixing.prepared_at)(node.id) {
            Some(prepared) => prepared <= mixing.upto,
            None => node.commit <= mixing.upto || node.is_prepared() || node.is_summary(),
        };
        self.graph.replaced(&self.candidate, counts)
    }
}
