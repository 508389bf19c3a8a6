//! What a replication protocol is to the metaprotocol: five operations, none of which knows of
//! other protocols. Tables 1 and 2 of the paper are [`Turn`] and [`Kind`].

/// The state of an entry of the log (Table 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It commits, and what it writes is known.
    Resolved,
    /// What it writes is known, and not whether it commits.
    CPending,
    /// It is not known yet what it writes.
    WPending,
}

/// What a transaction has met among those that it did not know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nobody is in its way.
    Nothing,
    /// Somebody may be: whose end, or whose writes, nobody knows yet.
    Pending,
    /// Somebody who commits.
    Resolved,
}

/// A transaction that is delivered, or that nothing pending is in the way of any more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// The node at which it ran.
    pub(crate) origin: u16,
    /// The node that asks.
    pub(crate) node: u16,
    pub(crate) found: Found,
}

impl Arrival {
    /// Whether it ran at the node that asks.
    pub(crate) fn is_here(&self) -> bool {
        self.origin == self.node
    }
}

/// How a transaction enters the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// It does not.
    Refused,
    Resolved,
    CPending,
    WPending,
}

/// What happens when it is a transaction's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Its write set becomes visible.
    Install,
    /// Its statements are executed.
    Execute,
}

/// The five operations of a protocol.
pub(crate) trait Protocol: Sync + std::fmt::Debug {
    /// Its name in settings and views.
    fn name(&self) -> &'static str;

    /// How a delivered transaction enters the lists. The same at every node.
    fn validate(&self, arrival: &Arrival) -> Entrance;

    /// This node's vote about the transaction, if it has one, and knows it by now.
    fn vote(&self, arrival: &Arrival) -> Option<bool>;

    /// Whether the write set of a transaction that ran here, or elsewhere, is to be applied here.
    fn apply(&self, is_here: bool) -> bool;

    /// What its turn is.
    fn commit(&self) -> Turn;

    /// Whether a transaction that is refused has anything to be undone here.
    fn rollback(&self, is_here: bool) -> bool;

    /// Whether its transactions wait for a vote.
    fn is_voting(&self) -> bool {
        false
    }
}
