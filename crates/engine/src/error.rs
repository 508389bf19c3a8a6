//! What can go wrong in the engine, and what the caller should do about it: retry the transaction,
//! free space, wait, or restore. The mapping to SQLSTATE lives in the SQL layer; see
//! [`Error::is_retryable`] for the part that matters to embedders.
//!
//! Errors are `Clone`, because one failed flush is the answer to every commit that waited for it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::certifier::{Cycle, StaleRead};
use crate::sibling::Refusal;
use crate::total_order::node_of;
use crate::{Csn, Key, TransactionId, TreeId};

/// Any failure of the engine.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The transaction cannot be ordered with those that committed meanwhile. Roll back and retry.
    #[error("could not serialize access: {detail}")]
    SerializationFailure {
        /// Which rule, in words.
        detail: String,
        /// What of its reads was replaced, if that is the reason and known.
        read: Option<Box<StaleRead>>,
    },
    /// The commit would have closed a cycle of dependencies: no serial order explains what the
    /// transactions in it saw. Roll back and retry.
    #[error("could not serialize access: the commit of transaction {} would close a cycle of dependencies", cycle.victim)]
    DependencyCycle {
        /// The cycle.
        cycle: Arc<Cycle>,
    },
    /// Another node's transaction, which comes before this one in the order of all nodes, locks
    /// what this one has locked. Roll back and retry.
    #[error("could not serialize access: transaction {by} of node {} was faster", node_of(*by))]
    Overtaken {
        /// The other transaction.
        by: TransactionId,
        /// Its place in the order.
        position: Csn,
        /// Where the two meet.
        tree: TreeId,
        /// `None`: at the tree as a whole.
        key: Option<Key>,
    },
    /// The client has given the request the name of one that has committed. Do not execute it
    /// again.
    #[error("a request of this name has committed already")]
    RequestKnown {
        /// Where it is in the order.
        position: Csn,
    },
    /// The client has given the request the name of one that is prepared, which may commit yet.
    /// Decide that one; do not execute it again.
    #[error("a request of this name is prepared, and nobody has decided it yet")]
    RequestPrepared {
        /// Where it is in the order.
        position: Csn,
    },
    /// Somebody who asked what became of the request has had its name closed: it has not happened,
    /// and under this name it never will.
    #[error("the request was given up by who asked for its outcome")]
    RequestVoid {
        /// Where it was closed in the order.
        position: Csn,
    },
    /// The node has no way to a majority of its cluster, so the transaction could not be ordered.
    /// It is rolled back.
    #[error("the transaction was not ordered: this node has no way to a majority of its cluster")]
    NotOrdered,
    /// Waiting would never end; this transaction is the victim. Roll back and retry.
    #[error("deadlock detected: transactions {cycle:?} wait for one another")]
    Deadlock {
        /// The cycle, starting with the victim; each waits for the next, the last for the first.
        cycle: Vec<TransactionId>,
        /// A line for each member: what it waits for, held by whom; shown to the client as DETAIL.
        detail: String,
    },
    /// A lock was held by somebody else and the caller asked not to wait.
    #[error("could not obtain lock: it is held by another transaction")]
    LockNotAvailable,
    /// The transaction's writes exceed its memory limit. Split it.
    #[error("transaction too large: its writes exceed the limit of {limit} bytes")]
    TransactionTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The key of a row, or of an index's entry, is longer than any may be.
    #[error("a key of {bytes} bytes is longer than {limit} bytes")]
    KeyTooLong {
        /// Its bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A node's transaction does not fit into a request to the other nodes, or, to commit, into as
    /// many parts as one may have. Split it.
    #[error("transaction too large: the cluster orders at most {limit} bytes of it")]
    RequestTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// Stored bytes are not what was written. Restore from a backup; the engine refuses to guess.
    #[error("corrupt file {}: at byte {offset}: {what}", file.display())]
    Corrupt {
        /// The damaged (or missing) file.
        file: PathBuf,
        /// Byte offset of the damaged structure from the start of the file.
        offset: u64,
        /// What was expected and what was found.
        what: String,
    },
    /// Stored bytes whose checksum is right do not say anything that this version understands: they
    /// were written wrongly, or by another one. Where file and offset are known it becomes
    /// [`Error::Corrupt`].
    #[error("{what}")]
    Undecodable {
        /// What was expected and what was found.
        what: String,
        /// The row that they are, if they are one.
        row: Option<(TreeId, Key)>,
    },
    /// Whoever was asked whether to go on with what takes long said no.
    #[error("{reason}")]
    Interrupted {
        /// Why.
        reason: String,
    },
    /// The program has a defect.
    #[error("{0}")]
    Defect(&'static str),
    /// An earlier write or flush of the log failed, so no commit can be made durable any more.
    /// Reads go on; restart the process once the cause is gone.
    #[error("the log stopped accepting commits after a failure: {cause}")]
    LogPoisoned {
        /// The first failure.
        cause: Arc<Error>,
    },
    /// No space left on the device. Free space, then restart (if the log was hit) or retry.
    #[error("disk full while {operation} {}", file.display())]
    DiskFull {
        /// The file that could not grow.
        file: PathBuf,
        /// What was being done, as a participle ("writing").
        operation: &'static str,
    },
    /// The operating system reported a failure.
    #[error("input/output error while {operation} {}: {cause}", file.display())]
    Io {
        /// The file or folder concerned.
        file: PathBuf,
        /// What was being done, as a participle ("flushing").
        operation: &'static str,
        /// The operating system's answer.
        cause: Arc<io::Error>,
    },
    /// The data folder is open in another process.
    #[error("data folder {} is in use by another process", path.display())]
    InUse {
        /// The data folder.
        path: PathBuf,
    },
    /// The identifier is that of a prepared transaction. Choose another one, or finish that
    /// transaction.
    #[error("the identifier of the prepared transaction is already in use")]
    AlreadyPrepared,
    /// No prepared transaction has this identifier.
    #[error("there is no such prepared transaction")]
    NotPrepared,
    /// The transaction did something that cannot be prepared.
    #[error("cannot prepare the transaction: {reason}")]
    CannotPrepare {
        /// Why.
        reason: &'static str,
    },
    /// An operation on a family of siblings was refused, and changed nothing.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A write was attempted in a read-only transaction.
    #[error("cannot write in a read-only transaction")]
    ReadOnly,
    /// The database is closing; no new work is accepted.
    #[error("the database is shutting down")]
    ShuttingDown,
    /// An argument that can never work.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
}

impl Error {
    /// Wraps an operating system error, telling a full disk from other failures.
    pub fn io(operation: &'static str, file: &Path, cause: io::Error) -> Error {
        match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::DiskFull { file: file.to_path_buf(), operation }
            }
            _ => Error::Io { file: file.to_path_buf(), operation, cause: Arc::new(cause) },
        }
    }

    /// It cannot be ordered with others, by this rule.
    pub(crate) fn unserializable(detail: impl Into<String>) -> Error {
        Error::SerializationFailure { detail: detail.into(), read: None }
    }

    /// Bytes that are no row and cannot be understood.
    pub(crate) fn undecodable(what: impl Into<String>) -> Error {
        Error::Undecodable { what: what.into(), row: None }
    }

    /// A row that cannot be understood.
    pub(crate) fn undecodable_row(tree: TreeId, key: &[u8], what: impl Into<String>) -> Error {
        Error::Undecodable { what: what.into(), row: Some((tree, Key::copy_from_slice(key))) }
    }

    /// What cannot be understood lies in `file` at byte `offset`; other errors stay what they are.
    pub(crate) fn at(self, file: &Path, offset: u64) -> Error {
        match self {
            Error::Undecodable { what, .. } => Error::corrupt(file, offset, what),
            other => other,
        }
    }

    /// Damage found in `file` at byte `offset`.
    pub fn corrupt(file: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Corrupt { file: file.to_path_buf(), offset, what: what.into() }
    }

    /// Whether the same transaction, run again from its start, may well succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::SerializationFailure { .. }
                | Error::DependencyCycle { .. }
                | Error::Overtaken { .. }
                | Error::Deadlock { .. }
        )
    }
}
