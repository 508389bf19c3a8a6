//! The engine's own trees: rows that the engine keeps for itself, in the store that it keeps everything in.
//!
//! They are versions in memory, records in the log and rows of the base like all others, so checkpoints and recovery need to know nothing of
//! them. No transaction writes them; an operation of the engine does, in its one record.

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
