//! Counters and gauges.

use std::time::Duration;

use crate::Error;
use crate::certifier::CertifierStatistics;
use crate::governor::GovernorInfo;
use crate::recovery::Recovered;
use crate::storage::{BaseStatistics, LogStatistics};

/// A reading of the database's counters (since it was opened) and gauges.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    /// Commits that wrote.
    pub commits: u64,
    /// Commits without writes.
    pub empty_commits: u64,
    /// Transactions rolled back.
    pub rollbacks: u64,
    /// Lock requests that had to wait.
    pub lock_waits: u64,
    /// Lock requests refused because they would have closed a cycle.
    pub deadlocks: u64,
    /// The last commit that has a number.
    pub certified: u64,
    /// The last commit that new transactions see.
    pub visible: u64,
    /// The last commit that a crash cannot take back.
    pub durable: u64,
    /// Bytes of versions in memory.
    pub version_bytes: u64,
    /// Keys with versions in memory.
    pub version_keys: u64,
    /// Running transactions.
    pub active_transactions: u64,
    /// Age of the oldest running transaction.
    pub oldest_transaction_age: Duration,
    /// Bytes of write sets and locks, beyond a small amount for each transaction.
    pub write_set_bytes: u64,
    /// What opening the database has read again.
    pub recovered: Recovered,
    /// Bytes of what running serializable transactions have read, beyond a small amount for each.
    pub read_set_bytes: u64,
    /// Transactions that wait for a lock.
    pub waiting_transactions: u64,
    /// The oldest snapshot that a transaction or an open cursor reads at.
    pub oldest_snapshot: u64,
    /// Commits whose answer had to wait for a checkpoint to make room in memory.
    pub throttled_commits: u64,
    /// What the governor does.
    pub governor: GovernorInfo,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Bytes of log that a recovery would replay.
    pub replay_bytes: u64,
    /// Commits refused by the certifier.
    pub cycles: u64,
    /// The certifier's graph.
    pub certifier: CertifierStatistics,
    /// What the log's thread has done.
    pub log: LogStatistics,
    /// Why the log refuses commits, if it does.
    pub log_poisoned: Option<Error>,
    /// The base store's files and memory.
    pub base: BaseStatistics,
}
