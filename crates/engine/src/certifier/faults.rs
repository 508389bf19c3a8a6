//! Faults that tests plant in a graph, as a defect might leave it. Each must be said where the
//! graph is next walked over; `sequencer::tests` asks what becomes of the database then.

use super::Certifier;
use super::node::NodeId;
use crate::TransactionId;

/// A place that was never used.
const NOWHERE: NodeId = 99_999;

/// What may be wrong with a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A node is gone, and its edges with it.
    Node(TransactionId),
    /// The same, and nobody but a range of its reads knows of it any more.
    RangeOf(TransactionId),
    /// An edge of a node leads nowhere.
    Edge(TransactionId),
    /// An edge into a node was not counted.
    Degree(TransactionId),
    /// The queue of the open names nobody.
    Queue,
    /// More bytes are there than were counted.
    Bytes,
    /// The search goes to nobody by real time.
    Later,
}

impl Certifier {
    /// Plants a fault.
    pub(crate) fn plant(&mut self, fault: Fault) {
        match fault {
            Fault::Node(id) => {
                let place = self.place_of(id);
                self.nodes.take(place);
            }
            Fault::RangeOf(id) => {
                let place = self.place_of(id);
                assert!(self.nodes.take(place).has_ranges, "it has read a range");
                self.open.retain(|open| *open != place);
                let of_others: Vec<NodeId> = self.nodes.iter().map(|(id, _)| id).collect();
                of_others.into_iter().for_each(|id| self.nodes.at_mut(id).out.retain(|to| *to != place));
            }
            Fault::Edge(id) => {
                let place = self.place_of(id);
                self.nodes.at_mut(place).out.push(NOWHERE);
            }
            Fault::Degree(id) => {
                let place = self.place_of(id);
                let degree = &mut self.nodes.at_mut(place).in_degree;
                assert!(std::mem::take(degree) > 0, "somebody comes before it");
            }
            Fault::Queue => self.open.push_front(NOWHERE),
            Fault::Bytes => self.bytes = 1,
            Fault::Later => self.omits_later = true,
        }
    }

    fn place_of(&self, transaction: TransactionId) -> NodeId {
        self.nodes.iter().find(|(_, node)| node.id == transaction).expect("it is in the graph").0
    }
}
