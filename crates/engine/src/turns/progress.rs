//! What a delivery leads to, as whoever delivers is told.

use std::time::Duration;

use bytes::Bytes;

use crate::level::Isolation;
use crate::transaction::Transaction;
use crate::{Csn, TransactionId, TreeId};

/// What became of a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// The transaction whose request it was.
    pub transaction: TransactionId,
    /// Whether it commits.
    pub committed: bool,
}

/// What a delivery has led to.
#[derive(Debug)]
pub enum Progress {
    /// The last position that was delivered is decided, and all before it.
    Decided(Delivered),
    /// A position waits for what is yet to be delivered.
    Waits,
    /// It is an active transaction's turn: whoever delivers executes it, and says what came of it
    /// ([`crate::Database::finish`]).
    Execute(Box<Execution>),
}

/// An active transaction whose turn it is.
#[derive(Debug)]
pub struct Execution {
    /// Its place in the order.
    pub position: Csn,
    /// Who it is.
    pub id: TransactionId,
    /// Whether it was asked for at this node.
    pub is_here: bool,
    /// Its level.
    pub isolation: Isolation,
    /// What is to be executed, as it was given to [`crate::Database::order_program`].
    pub program: Bytes,
    /// To execute it in: sees everything before its position. It waits for nobody, and is not to be
    /// committed but given back.
    pub transaction: Transaction,
}

/// What came of an active transaction.
#[derive(Debug)]
pub struct Executed {
    /// As it was given.
    pub transaction: Transaction,
    /// The trees of the tables that its statements look at.
    pub trees: Vec<TreeId>,
    /// Whether it is to commit; it has failed otherwise, as it does at every node.
    pub commits: bool,
}

/// How long the lists of the metaprotocol are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lists {
    /// Delivered and not decided.
    pub log: usize,
    /// Of them, those that are still to commit.
    pub to_commit: usize,
    /// What they write is known, and not whether they commit.
    pub c_pending: usize,
    /// What they write is not known.
    pub w_pending: usize,
    /// Who keeps the others waiting, since it waits for its vote.
    pub pause: Option<Pause>,
    /// Who does, since its statements are executed.
    pub executing: Option<Pause>,
}

/// A transaction that waits for its vote, or is executed, and all others wait behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Its place in the order.
    pub position: Csn,
    /// Who it is.
    pub transaction: TransactionId,
    /// By which protocol it comes to the nodes.
    pub protocol: &'static str,
    /// For how long it has been first.
    pub since: Duration,
}
