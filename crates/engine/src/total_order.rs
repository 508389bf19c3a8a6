//! What a node of a cluster has from outside: a total order that takes its requests to every node,
//! and numbers of its own, by which its transactions are told from those of other nodes.

use std::sync::Arc;

use bytes::Bytes;

use crate::TransactionId;

/// Bits of a transaction's id that number it at its node since the node's start. Who goes beyond
/// them takes numbers of later starts, of which there is one a second at most: no node is as fast.
const COUNTER_BITS: u32 = 29;
/// Bits that number the starts of a node. They are seconds of a clock, mostly, so they must not
/// come again while anything is remembered of an earlier start, however long a cluster rests: these
/// do after 34 years. With those of the node an id is below 2^63, as clients are shown it.
const START_BITS: u32 = 30;
/// Ids of builds that spoke an earlier version between nodes, which may stand in the order and in
/// images, are below: 20 bits were for starts, and 32 for who ran since.
const NOW_FROM: TransactionId = 1 << (START_BITS + COUNTER_BITS);
const EARLIER_COUNTER_BITS: u32 = 32;
const EARLIER_NODE_FROM: u32 = 52;

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

/// The start of a node during which a transaction ran, told from all others of all nodes. Those of
/// an earlier build were before all others.
pub(crate) fn start_of(id: TransactionId) -> u64 {
    match id < NOW_FROM {
        true => id >> EARLIER_COUNTER_BITS,
        false => id >> COUNTER_BITS,
    }
}

/// The node at which a transaction ran.
pub fn node_of(id: TransactionId) -> u16 {
    let from = if id < NOW_FROM { EARLIER_NODE_FROM } else { START_BITS + COUNTER_BITS };
    (id >> from) as u16
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
        let last = first(NODE_MAX, u32::MAX) + (1 << COUNTER_BITS) - 2;
        assert_eq!(node_of(last), NODE_MAX);
        assert!(i64::try_from(last).is_ok(), "clients are shown it as a bigint");
    }

    /// A node starts in this second, and again 2^20 seconds later, which are twelve days. Little
    /// was ordered meanwhile: what became of the transactions of its earlier start is remembered.
    #[test]
    fn a_start_is_told_from_those_of_weeks_and_years_before() {
        let first = |start| Node { number: 2, start, order: Arc::new(Nowhere) }.first_id();
        let now = 1_795_000_000;
        for since in [1, 1 << 19, 1 << 20, (1 << 20) + 1, 1 << 24, 1 << 28] {
            let (before, after) = (first(now - since), first(now));
            assert!(start_of(before) < start_of(after), "{since} seconds");
        }
    }

    /// What an earlier build has left in the order is judged alike by who has an image of behind it
    /// and who has none.
    #[test]
    fn ids_of_earlier_builds_tell_their_node_and_were_before() {
        let first = |number| Node { number, start: 1, order: Arc::new(Nowhere) }.first_id();
        for number in 1..=NODE_MAX {
            let earlier = u64::from(number) << 52 | ((1 << 20) - 1) << 32 | u64::from(u32::MAX);
            assert_eq!((node_of(earlier), node_of(first(number))), (number, number));
            assert!(start_of(earlier) < start_of(first(number)));
            assert_ne!(start_of(earlier), start_of(earlier - (1 << 32)));
        }
        assert_eq!(node_of(7), 0, "of a single database");
    }
}
