//! Locks of a transaction: rows and whole trees, until its end, but for rows that it only looks at
//! (`Transaction::unlock_since`). And the way to advisory ones, which
//! a session holds.
//!
//! A transaction that a node of a cluster executes when it is its turn in the order (`turns`) asks
//! nobody: everything before it is decided, nothing behind it is, and whoever runs here gives way
//! once it commits. It only records what it would have locked, for those who come after it.

use std::sync::Arc;

use crate::key::SmallKey;
use crate::lock::advisory::AdvisoryLocks;
use crate::lock::mode::{LockMode, LockOutcome, Mode, TreeMode, WaitPolicy};
use crate::lock::queue::Answer;
use crate::lock::table::{HeldLock, LOCK_BYTES};
use crate::transaction::Transaction;
use crate::txn::writeset::WriteSet;
use crate::{Database, Error, TransactionId, TreeId};

impl Database {
    /// Access to the advisory locks of a space for one more session.
    pub fn advisory_locks(&self, space: u32) -> AdvisoryLocks {
        let manager = self.manager();
        AdvisoryLocks::new(Arc::clone(&manager.locks), manager.transaction_id(), space)
    }
}

impl Transaction {
    /// Locks a row until the end of the transaction. Waits (with `Block`) until it is free;
    /// dropping the future withdraws the request.
    ///
    /// # Errors
    /// `Deadlock` if waiting would never end, `LockNotAvailable` under `NoWait`,
    /// `TransactionTooLarge` if the locks and writes exceed the limit.
    pub async fn lock(
        &mut self,
        tree: TreeId,
        key: &[u8],
        mode: LockMode,
        wait: WaitPolicy,
    ) -> Result<LockOutcome, Error> {
        self.check_member()?;
        let mode = self.row_mode(mode);
        if self.recorded.is_some() {
            self.record(tree, Some(SmallKey::new(key)), mode);
            return Ok(LockOutcome::Granted { waited: false });
        }
        let locks = &self.manager.locks;
        let before = self.held.count();
        let waited = match locks.try_row(self.id, &mut self.held, tree, key, mode) {
            Answer::Held | Answer::Raised(_) => return Ok(LockOutcome::Granted { waited: false }),
            Answer::Granted => false,
            Answer::Busy => match wait {
                WaitPolicy::NoWait => return Err(Error::LockNotAvailable),
                WaitPolicy::SkipLocked => return Ok(LockOutcome::Skipped),
                WaitPolicy::Block => {
                    let waiting = locks.wait_row(self.id, &mut self.held, tree, key, mode)?;
                    if let Some(waiting) = waiting {
                        self.await_lock(waiting).await?;
                    }
                    true
                }
            },
        };
        if self.held.count() > before
            && let Err(error) = self.writes.charge_lock(LOCK_BYTES + key.len())
        {
            self.manager.locks.release_last(self.id, &mut self.held);
            return Err(error);
        }
        Ok(LockOutcome::Granted { waited })
    }

    /// How many locks it holds, for `unlock_since`.
    #[inline]
    pub fn lock_count(&self) -> usize {
        self.held.count()
    }

    /// Lets go of the rows that it has locked since it held so many locks: for who has only looked
    /// under them, and has neither written nor noted anything since. A lock that it held before and
    /// that is stronger now stays so.
    pub fn unlock_since(&mut self, count: usize) {
        let freed = self.manager.locks.release_rows_since(self.id, &mut self.held, count);
        self.writes.refund(freed);
    }

    /// Says that it takes away a row that it has locked, or a key of it: whoever wants the key is
    /// to wait.
    pub fn note_leaving(&self, tree: TreeId, key: &[u8]) {
        self.manager.locks.note_leaving(self.id, tree, key);
    }

    /// Whether another one has said so for whom this one would have to wait if it asked for `mode`.
    pub fn is_leaving(&self, tree: TreeId, key: &[u8], mode: LockMode) -> bool {
        self.manager.locks.is_leaving(self.id, tree, key, self.row_mode(mode))
    }

    /// Locks a whole tree until the end of the transaction; otherwise like `lock`. `Read` and
    /// `Write` cost next to nothing.
    ///
    /// # Errors
    /// As `lock`.
    pub async fn lock_tree(
        &mut self,
        tree: TreeId,
        mode: TreeMode,
        wait: WaitPolicy,
    ) -> Result<LockOutcome, Error> {
        if self.trees.contains(&(tree, mode)) {
            return Ok(LockOutcome::Granted { waited: false });
        }
        if self.member.is_some() && !mode.is_weak() {
            return Err(Error::CannotPrepare { reason: "siblings share rows, not whole tables" });
        }
        if self.recorded.is_some() {
            self.record(tree, None, Mode::Tree(mode));
            self.trees.push((tree, mode));
            return Ok(LockOutcome::Granted { waited: false });
        }
        let locks = &self.manager.locks;
        let mut waited = false;
        if locks.try_tree(self.id, &mut self.held, tree, mode) == Answer::Busy {
            match wait {
                WaitPolicy::NoWait => return Err(Error::LockNotAvailable),
                WaitPolicy::SkipLocked => return Ok(LockOutcome::Skipped),
                WaitPolicy::Block => {
                    let waiting = locks.wait_tree(self.id, &mut self.held, tree, mode)?;
                    if let Some(waiting) = waiting {
                        self.await_lock(waiting).await?;
                    }
                    waited = true;
                }
            }
        }
        self.trees.push((tree, mode));
        Ok(LockOutcome::Granted { waited })
    }

    /// The number by which its session holds advisory locks, if it holds any: whoever waits for one
    /// of these waits for this transaction, too.
    pub fn set_companion(&mut self, owner: Option<TransactionId>) {
        self.held.companion = owner;
    }

    /// From now on it locks nothing, and records what it would have locked.
    pub(crate) fn record_locks(&mut self) {
        self.recorded = Some(Vec::new());
    }

    /// How much it may write is what all nodes know, and not what this one allows. To be said
    /// before it writes, of one that runs when it is its turn in the order of all nodes.
    pub fn bound_writes(&mut self, bytes: u64) {
        let budget = self.manager.budget.apart_with(bytes);
        self.writes = WriteSet::new(Arc::new(budget));
    }

    /// Whether it runs when it is its turn in the order of all nodes, alone.
    pub fn is_ordered(&self) -> bool {
        self.recorded.is_some()
    }

    fn record(&mut self, tree: TreeId, key: Option<SmallKey>, mode: Mode) {
        if let Some(recorded) = &mut self.recorded {
            recorded.push(HeldLock { tree, key, modes: mode.bit() });
        }
    }

    /// What it would have locked, each place once, in the order of trees and keys.
    pub(crate) fn take_recorded(&mut self) -> Vec<HeldLock> {
        let mut all = self.recorded.take().unwrap_or_default();
        all.sort_unstable_by(|a, b| (a.tree, &a.key).cmp(&(b.tree, &b.key)));
        all.dedup_by(|later, first| {
            let same = (later.tree, &later.key) == (first.tree, &first.key);
            if same {
                first.modes |= later.modes;
            }
            same
        });
        all
    }
}
