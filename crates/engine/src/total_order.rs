//! What a node of a cluster has from outside: a total order that takes its requests to every node,
//! and numbers of its own, by which its transactions are told from those of other nodes.

use std::sync::Arc;

use bytes::Bytes;

use crate::TransactionId;

/// Bits of a transaction's id that number it at its node since the node's start.
const COUNTER_BITS: u32 = 32;
/// Bits that number the starts of a node.
const START_BITS: u32 = 20;

/// Nodes are numbered from 1 up to this.
pub const NODE_MAX: u16 = 15;

/// Takes requests to every node, in one order.
pub trait TotalOrder: Send + Sync {
    /// Has the request delivered at every node, this one included, some time. Never blocks. It may
    /// be delivered more than once, since requests say who they are; it is lost only if this node
    /// ends before it was told of the delivery.
    fn propose(&self, request: Bytes);

    /// The largest request that can be ordered, in bytes.
    fn request_bytes_max(&self) -> u64;

    /// Blocks until this node has everything up to a position on its own disk, as the base store
    /// must not be ahead of it. `false` if that will not be: the order has ended.
    fn wait_synced(&self, position: u64) -> bool;
}

/// A database's part in a cluster.
#[derive(Clone)]
pub struct Node {
    /// Its number, from 1 to [`NODE_MAX`], unique in the cluster.
    pub number: u16,
    /// How often it was started before: greater at each start.
    pub start: u32,
    /// Where its requests go.
    pub order: Arc<dyn TotalOrder>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("number", &self.number)
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// The first id that it gives to a transaction.
    pub(crate) fn first_id(&self) -> TransactionId {
        assert!((1..=NODE_MAX).contains(&self.number), "nodes are numbered from 1 to {NODE_MAX}");
        let start = u64::from(self.start) & ((1 << START_BITS) - 1);
        u64::from(self.number) << (START_BITS + COUNTER_BITS) | start << COUNTER_BITS | 1
    }
}

/// The start of a node during which a transaction ran, told from all others of all nodes.
pub(crate) fn start_of(id: TransactionId) -> u64 {
    id >> COUNTER_BITS
}

/// The node at which a transaction ran.
pub fn node_of(id: TransactionId) -> u16 {
    (id >> (START_BITS + COUNTER_BITS)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl TotalOrder for Nowhere {
        fn propose(&self, _request: Bytes) {}

        fn request_bytes_max(&self) -> u64 {
            0
        }

        fn wait_synced(&self, _position: u64) -> bool {
            true
        }
    }

    #[test]
    fn ids_tell_their_node_and_never_meet() {
        let first = |number, start| Node { number, start, order: Arc::new(Nowhere) }.first_id();
        assert_eq!(node_of(first(3, 9)), 3);
        assert!(first(3, 9) < first(3, 10) && first(3, 10) < first(4, 0));
        assert_eq!(start_of(first(3, 9)), start_of(first(3, 9) + 7));
        assert_ne!(start_of(first(3, 9)), start_of(first(3, 10)));
        assert_eq!(node_of(first(NODE_MAX, u32::MAX) + u64::from(u32::MAX) - 1), NODE_MAX);
    }
}
