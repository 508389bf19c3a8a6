//! The lock table as views show it.

use super::advisory::ADVISORY_TREE;
use super::mode::names;
use super::table::{LockTable, Weak};
use crate::{Key, TransactionId, TreeId};

/// A lock or a wait for one, as seen by a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// Holder or waiter.
    pub transaction: TransactionId,
    /// The tree concerned.
    pub tree: TreeId,
    /// The row's key; `None` for a lock on the whole tree.
    pub key: Option<Key>,
    /// Modes by name, weakest first: those of `LockMode`, with `Sibling` before it if the
    /// transaction is one, or of `TreeMode`.
    pub modes: Vec<&'static str>,
    /// Held, or waited for.
    pub granted: bool,
}

impl LockTable {
    /// For which resource a transaction waits.
    pub(crate) fn waiting(&self, owner: TransactionId) -> Option<(TreeId, Option<Key>)> {
        self.graph.lock().standing_of(owner).map(|s| (s.tree, s.key.clone()))
    }

    /// How many transactions wait.
    pub(crate) fn waiting_count(&self) -> u64 {
        self.graph.lock().standing.len() as u64
    }

    /// Every lock held and waited for. Not one moment's picture: shards are read one after the
    /// other.
    pub(crate) fn list(&self) -> Vec<LockInfo> {
        let mut all = Vec::new();
        for shard in &self.weak {
            for (&transaction, list) in shard.lock().iter() {
                for &Weak { tree, modes, .. } in list.iter().filter(|weak| weak.modes != 0) {
                    let modes = names(false, modes);
                    all.push(LockInfo { transaction, tree, key: None, modes, granted: true });
                }
            }
        }
        for shard in &self.rows {
            for entry in shard.lock().values().flatten() {
                let key = entry.key.as_ref().map(|k| Key::copy_from_slice(k));
                let info = |transaction, modes, granted| {
                    let of_row = key.is_some() && entry.tree != ADVISORY_TREE;
                    let (key, modes) = (key.clone(), names(of_row, modes));
                    LockInfo { transaction, tree: entry.tree, key, modes, granted }
                };
                all.extend(entry.queue.holders().iter().map(|h| info(h.owner, h.modes, true)));
                all.extend(entry.queue.waiting().map(|w| info(w.owner, w.mode.bit(), false)));
            }
        }
        all
    }
}
