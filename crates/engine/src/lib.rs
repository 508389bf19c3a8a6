//! The transaction engine: a durable, versioned, ordered store of `(tree, key) -> value`.
//!
//! `storage` keeps bytes safe: the log of commits and the base store of immutable sorted runs. Everything above it
//! (versions, locks, transactions) lives in memory and can be rebuilt from `storage`.
//!
//! Vocabulary shared by all modules:
//! - a *tree* is one ordered key space (a table, an index, the catalog);
//! - a key is memcomparable: unsigned lexicographic byte order is its order;
//! - a *commit sequence number* ([`Csn`]) is at once the ordinal of a commit's record in the log, the number of the
//!   versions it installs, and a snapshot.

pub mod error;
pub mod storage;

pub use error::Error;

/// Number of a tree. Trees below 1000 belong to the system (catalog, sequences), the others to users.
pub type TreeId = u32;

/// Commit sequence number: ordinal of the commit's record in the log, counted from 1. 0 means "nothing yet".
pub type Csn = u64;

/// Number of a transaction, unique while the process lives.
pub type TransactionId = u64;

/// A memcomparable key; cheap to clone.
pub type Key = bytes::Bytes;

/// A stored value; cheap to clone. The engine never looks inside.
pub type Value = bytes::Bytes;
