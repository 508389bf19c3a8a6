//! Rows that somebody is about to take away, or to give another key.
//!
//! A lock says what its holder may do, not what it does: `FOR UPDATE` and DELETE have the same.
//! Who finds a unique key taken waits for who takes it from its row, and for nobody else.

use super::mode::Mode;
use super::table::LockTable;
use crate::{TransactionId, TreeId};

impl LockTable {
    /// `owner`, who has the lock on a row, takes away the row or a key of it. That stands until the
    /// lock goes, even if the write is undone before.
    pub(crate) fn note_leaving(&self, owner: TransactionId, tree: TreeId, key: &[u8]) {
        let hash = self.hash(tree, Some(key));
        let mut rows = self.shard(hash).lock();
        let bucket = rows.get_mut(&hash).into_iter().flatten();
        for entry in bucket.filter(|entry| entry.tree == tree && entry.key.as_deref() == Some(key)) {
            entry.queue.note_leaving(owner);
        }
    }

    /// Whether somebody does whom `owner` would have to wait for if it asked for `mode`.
    pub(crate) fn is_leaving(&self, owner: TransactionId, tree: TreeId, key: &[u8], mode: Mode) -> bool {
        let hash = self.hash(tree, Some(key));
        let rows = self.shard(hash).lock();
        let mut bucket = rows.get(&hash).into_iter().flatten();
        bucket.any(|entry| {
            entry.tree == tree && entry.key.as_deref() == Some(key) && entry.queue.is_leaving(owner, mode)
        })
    }
}
