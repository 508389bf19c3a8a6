//! Counters and gauges.

use std::time::Duration;

use crate::certifier::CertifierStatistics;
use crate::governor::GovernorInfo;
use crate::recovery::Recovered;
use crate::storage::{BaseStatistics, LogStatistics};
use crate::sync::atomic::Ordering;
use crate::{Database, Error, TreeId};

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

impl Database {
    /// Counters and gauges.
    pub fn statistics(&self) -> Statistics {
        let (manager, upkeep) = (&self.manager, self.upkeep());
        let now = manager.options.clock.monotonic();
        let running = manager.active.list();
        let oldest = running.iter().map(|r| r.began).min().unwrap_or(now);
        Statistics {
            commits: manager.counters.commits.load(Ordering::Relaxed),
            empty_commits: manager.counters.empty_commits.load(Ordering::Relaxed),
            rollbacks: manager.counters.rollbacks.load(Ordering::Relaxed),
            lock_waits: manager.locks.waits.load(Ordering::Relaxed),
            deadlocks: manager.locks.deadlocks.load(Ordering::Relaxed),
            certified: manager.store.log.last(),
            visible: manager.store.visible(),
            durable: manager.store.durable(),
            version_bytes: manager.store.memory.bytes(),
            version_keys: manager.store.memory.entries(),
            active_transactions: running.len() as u64,
            oldest_transaction_age: now.saturating_sub(oldest),
            write_set_bytes: manager.budget.used(),
            recovered: upkeep.recovered,
            read_set_bytes: manager.read_budget.used(),
            waiting_transactions: manager.locks.waiting_count(),
            oldest_snapshot: manager.store.oldest_snapshot(),
            throttled_commits: manager.pressure.throttled.load(Ordering::Relaxed),
            governor: upkeep.governor.info(),
            checkpoints: upkeep.checkpoints.load(Ordering::Relaxed),
            replay_bytes: manager.store.log.size_after(manager.store.base.watermark()),
            cycles: manager.sequencer.cycles(),
            // A node's graph has no limit of its own: the horizon bounds it.
            certifier: CertifierStatistics {
                limit: manager.read_budget.limit(),
                ..manager.sequencer.statistics()
            },
            log: manager.store.log.statistics(),
            log_poisoned: manager.store.log.poisoned(),
            base: manager.store.base.statistics(),
        }
    }

    /// About how many bytes the keys and values of a tree have. As with `approximate_rows`, those
    /// that changed lately, or often, may count more than once.
    pub fn approximate_bytes(&self, tree: TreeId) -> u64 {
        self.manager.store.approximate_bytes(tree)
    }
}
