//! Watched snapshots: is a reader there safe, whoever commits later? What READ ONLY DEFERRABLE
//! waits for.

use super::Certifier;
use super::node::{Node, NodeId};
use crate::Csn;

/// A watched snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watch(u64);

impl Certifier {
    /// Watches whether a reader at this snapshot could ever be part of a cycle. It could only be if
    /// somebody with a higher number has an edge to somebody at or below the snapshot: the way back
    /// has to cross it. Real time does not: it leads from lower numbers to higher ones, and to a
    /// reader from those who had ended when it began, which are below all that it leads back to.
    /// Who has forgotten his successors may lead to anybody.
    pub(crate) fn watch(&mut self, snapshot: Csn) -> Watch {
        self.watches += 1;
        let crosses = |(_, node): (NodeId, &Node)| {
            node.commit > snapshot && (node.first_out <= snapshot || node.forgot_successors)
        };
        let safe = !self.nodes.iter().any(crosses);
        self.watched.push((Watch(self.watches), snapshot, safe));
        Watch(self.watches)
    }

    /// Ends a watch, once everybody has ended who was running at the snapshot: is it safe?
    pub(crate) fn end_watch(&mut self, watch: Watch) -> bool {
        match self.watched.iter().position(|(known, ..)| *known == watch) {
            Some(place) => self.watched.swap_remove(place).2,
            None => false,
        }
    }
}
