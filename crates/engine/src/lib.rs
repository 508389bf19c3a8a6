//! The transaction engine: a durable, versioned, ordered store of `(tree, key) -> value`.
//!
//! `storage` keeps bytes safe: the log of commits and the base store of immutable sorted runs.
//! Everything above it (versions, locks, transactions) lives in memory and can be rebuilt from
//! `storage`.
//!
//! Vocabulary shared by all modules:
//! - a *tree* is one ordered key space (a table, an index, the catalog);
//! - a key is memcomparable: unsigned lexicographic byte order is its order;
//! - a *commit sequence number* ([`Csn`]) is at once the ordinal of a commit's record in the log,
//!   the number of the versions it installs, and a snapshot.

mod active;
mod ahead;
mod background;
mod backup;
mod certifier;
mod checkpoint;
mod damage;
mod database;
mod delivery;
mod divided;
mod durable;
pub mod error;
mod exported;
mod fate;
mod governor;
mod hash;
mod image;
mod key;
mod late;
mod lent;
mod level;
mod lock;
mod locking;
mod manager;
mod memory;
mod notes;
mod options;
mod order;
mod own;
mod payload;
mod planted;
mod prepared;
mod pressure;
mod proposed;
mod read_view;
mod reads;
mod recovery;
mod refresh;
mod rest;
mod restoration;
mod rows;
mod savepoint;
mod scan;
#[cfg(feature = "shuttle")]
#[cfg(test)]
mod schedules;
mod sealing;
mod sequencer;
pub mod sibling;
mod sight;
mod snapshot_ids;
mod spare;
mod statistics;
pub mod storage;
mod store;
mod sync;
mod temporary;
mod total_order;
mod tracked;
mod transaction;
mod turns;
mod txn;
mod upkeep;
mod view;
mod void;

pub use active::TransactionInfo;
pub use certifier::{CertifierStatistics, Cycle, Dependency, Edge, Method, Object, StaleRead};
pub use database::Database;
pub use delivery::Replication;
pub use divided::Divided;
pub use durable::{Commit, DurableWait};
pub use error::Error;
pub use exported::Exported;
pub use governor::{ActiveLimit, Governor, GovernorInfo, LimitError, Seat};
pub use lent::Lent;
pub use level::{Access, Isolation};
pub use lock::advisory::{ADVISORY_TREE, AdvisoryKey, AdvisoryLocks, AdvisoryMode, AdvisoryWait};
pub use lock::mode::{LockMode, LockOutcome, TreeMode, WaitPolicy};
pub use lock::view::LockInfo;
pub use notes::presence_of;
pub use options::Options;
#[cfg(feature = "planted-faults")]
pub use planted::{Planted, plant, while_sealing};
pub use prepared::{Owner, PreparedInfo};
pub use read_view::ReadView;
pub use recovery::Recovered;
pub use refresh::{Refresh, StatementMark};
pub use restoration::{Restoration, Restored};
pub use scan::Scan;
pub use snapshot_ids::SnapshotIds;
pub use statistics::Statistics;
pub use storage::backup::verify as verify_backup;
pub use storage::{Backup, Contents, FileSum, Incoming, Intake, Outgoing};
pub use store::{Latest, is_open};
pub use temporary::TemporaryFile;
pub use total_order::{NODE_MAX, Node, TotalOrder, node_of};
pub use tracked::TrackedView;
pub use transaction::{Remains, Transaction};
pub use turns::{Delivered, Executed, Execution, Lists, Pause, Progress};
pub use txn::bulk::GoOn;
pub use txn::change::Change;
pub use txn::columns::{Columns, Condition, Interest, Known, Test};
pub use txn::writeset::Savepoint;

/// Number of a tree. Trees below 1000 belong to the system (catalog, sequences), the others to
/// users.
pub type TreeId = u32;

/// Commit sequence number: ordinal of the commit's record in the log, counted from 1. 0 means
/// "nothing yet".
pub type Csn = u64;

/// Number of a transaction, unique in the life of a database.
pub type TransactionId = u64;

/// A memcomparable key; cheap to clone.
pub type Key = bytes::Bytes;

/// A stored value; cheap to clone. The engine never looks inside.
pub type Value = bytes::Bytes;
