//! Prepared statements by text, shared by all sessions.
//!
//! Found by a hash of text, declared types, search path and schema of temporary objects; a bounded
//! number is kept, in shards with a lock each, and a full shard drops what it has: statements in
//! use live on in their sessions, and come back with their next preparation.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::RwLock;

use super::Prepared;
use crate::catalog::Oid;
use crate::types::Type;

const SHARDS: usize = 16;
/// Statements kept in one shard.
const SHARD_CAPACITY: usize = 256;
/// Longest text kept, in bytes.
const MAX_TEXT: usize = 16 * 1024;

/// The cache.
#[derive(Default)]
pub(crate) struct PlanCache {
    hasher: RandomState,
    shards: [RwLock<HashMap<u64, Arc<Prepared>>>; SHARDS],
}

/// What a statement is found by.
#[derive(Clone, Copy, Hash)]
pub(crate) struct Key<'a> {
    pub(crate) text: &'a str,
    pub(crate) declared: &'a [Option<Type>],
    /// With the user's own schema in the place of `$user`.
    pub(crate) search_path: &'a [String],
    /// The session's schema of temporary objects, 0 if it has none.
    pub(crate) namespace: Oid,
}

impl PlanCache {
    fn shard(&self, hash: u64) -> &RwLock<HashMap<u64, Arc<Prepared>>> {
        &self.shards[hash as usize % SHARDS]
    }

    /// The statement of this key.
    pub(crate) fn get(&self, key: Key<'_>) -> Option<Arc<Prepared>> {
        let hash = self.hasher.hash_one(key);
        let shard = self.shard(hash).read();
        let found = shard.get(&hash)?;
        let statement = found.statement()?;
        let same = *statement.source == *key.text
            && found.declared() == key.declared
            && found.first_path() == (key.namespace, key.search_path);
        same.then(|| found.clone())
    }

    /// Keeps a statement that is worth it.
    pub(crate) fn put(&self, key: Key<'_>, prepared: &Arc<Prepared>) {
        if key.text.len() > MAX_TEXT {
            return;
        }
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash).write();
        if shard.len() >= SHARD_CAPACITY {
            shard.clear();
        }
        shard.insert(hash, prepared.clone());
    }
}
