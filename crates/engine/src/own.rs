//! The engine's own trees: rows that the engine keeps for itself, in the store that it keeps
//! everything in.
//!
//! They are versions in memory, records in the log and rows of the base like all others, so
//! checkpoints and recovery need to know nothing of them. No transaction writes them; an operation
//! of the engine does, in its one record.

use crate::key::SmallKey;
use crate::{TransactionId, TreeId, Value};

/// The allocators' marks. It must be the last.
pub(crate) const ENGINE_TREE: TreeId = TreeId::MAX;
/// Prepared transactions by id (`prepared::record`).
pub(crate) const PREPARED_TREE: TreeId = TreeId::MAX - 1;
/// Families of siblings by XID (`sibling::stored`).
pub(crate) const FAMILIES_TREE: TreeId = TreeId::MAX - 2;
/// What is forgotten of them, by client (`sibling::stored`).
pub(crate) const COLLECTED_TREE: TreeId = TreeId::MAX - 3;

// The number below is that of advisory locks (`lock::advisory`), which are no rows.

/// Requests that come in parts, by transaction and number of the part (`order::arriving`).
pub(crate) const PARTS_TREE: TreeId = TreeId::MAX - 5;

/// A change of such a row; `None` deletes it.
pub(crate) type OwnRow = (TreeId, SmallKey, Option<Value>);

/// The key of a prepared transaction's record.
pub(crate) fn prepared_key(id: TransactionId) -> SmallKey {
    SmallKey::new(&id.to_be_bytes())
}

/// The key of the mark that somebody committed who comes after a prepared transaction.
pub(crate) fn overtaken_key(id: TransactionId) -> SmallKey {
    let mut key = [1; 9];
    key[..8].copy_from_slice(&id.to_be_bytes());
    SmallKey::new(&key)
}

/// The key of a part of a transaction's request.
pub(crate) fn part_key(of: TransactionId, number: u64) -> SmallKey {
    SmallKey::concat(&[&of.to_be_bytes(), &number.to_be_bytes()])
}

/// The one key of the engine's tree.
pub(crate) const NUMBERS_KEY: &[u8] = b"numbers";

/// The allocators' marks as the base store keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SavedNumbers {
    pub(crate) transaction: u64,
    pub(crate) next_tree: u64,
}

impl SavedNumbers {
    pub(crate) fn encode(self) -> Value {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[8..].copy_from_slice(&self.next_tree.to_be_bytes());
        Value::copy_from_slice(&bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<SavedNumbers> {
        let (transaction, next_tree) = bytes.split_first_chunk::<8>()?;
        let next_tree = next_tree.try_into().ok()?;
        Some(SavedNumbers {
            transaction: u64::from_be_bytes(*transaction),
            next_tree: u64::from_be_bytes(next_tree),
        })
    }
}
