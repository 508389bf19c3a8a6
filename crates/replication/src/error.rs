//! What can go wrong, and what the caller should do about it.

use crate::entry::Position;

/// Why an order could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    /// The log could not be opened or read: it is damaged, or the disk failed.
    #[error(transparent)]
    Log(#[from] cognate_engine::Error),
    /// The application's state is older than where the log begins. Rebuild the node.
    #[error("the data are at position {applied}, and the log begins after {begins}: rebuild this node")]
    Behind {
        /// Where the application is.
        applied: Position,
        /// Up to where the log was removed.
        begins: Position,
    },
    /// The application's state is newer than its own log: one of them belongs to other data.
    #[error("the data are at position {applied}, beyond the end of their log at {ends}")]
    Ahead {
        /// Where the application is.
        applied: Position,
        /// Where the log ends.
        ends: Position,
    },
    /// The log belongs to another node, or was written by another version.
    #[error("the log in this folder {0}")]
    Foreign(String),
    /// The settings contradict themselves.
    #[error("settings: {0}")]
    Settings(String),
    /// The network could not be opened.
    #[error("cannot listen for other nodes: {0}")]
    Network(String),
    /// The consensus could not be started.
    #[error("the order could not be started: {0}")]
    Consensus(String),
}

/// Why a request has no known place in the order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// It is too large; it was not proposed.
    #[error("a request of {bytes} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// It was not proposed, and never will be. It may be proposed again.
    #[error("not proposed: {0}")]
    NotProposed(String),
    /// Its answer was lost: it may be in the order, or come into it, or neither. Only the
    /// application can find out, by an id in the request; it must not just be proposed again.
    #[error("it is unknown whether the request is ordered: {0}")]
    Unknown(String),
}

/// Why a question to the order has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// No leader answers, within the bounded wait.
    #[error("no leader of a majority answers: {0}")]
    NoLeader(String),
    /// The change of the membership was refused.
    #[error("refused: {0}")]
    Refused(String),
    /// The node is stopping, or its order failed.
    #[error("the order has ended: {0}")]
    Ended(String),
    /// What is settled cannot be read from this node's log: nothing more is delivered to it.
    #[error("what was ordered cannot be read: {0}")]
    Unreadable(String),
}
