//! Prepared statements by text, shared by all sessions.
//!
//! Found by a hash of text, declared types, search path and schema of temporary objects; a bounded
//! number is kept, in shards with a lock each. Statements in use live on in their sessions, and
//! come back with their next preparation.
//!
//! What is kept is charged for as long as it is: the trees of long texts, and whatever a session
//! has had under a name. So a bounded part of the memory is kept that all statements share. It
//! would be nobody's otherwise, however few of them are in use.
//!
//! Where there is no room for one more, those go that nobody has asked for since they were put, or
//! since others had to go the last time (second chance, Corbató 1968). So statements that clients
//! prepare again and again stay, however many are prepared once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::RwLock;

use super::Prepared;
use crate::catalog::Oid;
use crate::types::Type;

const SHARDS: usize = 16;
/// Statements kept in one shard.
const SHARD_CAPACITY: usize = 256;
/// Longest text kept, in bytes.
const MAX_TEXT: usize = 16 * 1024;
/// What is kept takes at most this part of what statements of a database share.
const SHARE: usize = 4;
/// One statement takes at most this part of that.
const MAX_PART: usize = 4;

/// The cache.
#[derive(Default)]
pub(crate) struct PlanCache {
    hasher: RandomState,
    shards: [RwLock<HashMap<u64, Kept>>; SHARDS],
    /// Bytes that all of them weigh.
    bytes: AtomicUsize,
}

/// A statement that is kept.
struct Kept {
    prepared: Arc<Prepared>,
    weight: usize,
    /// It has been asked for since it was put, or since others had to go.
    wanted: AtomicBool,
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
    fn shard(&self, hash: u64) -> &RwLock<HashMap<u64, Kept>> {
        &self.shards[hash as usize % SHARDS]
    }

    /// The statement of this key.
    pub(crate) fn get(&self, key: Key<'_>) -> Option<Arc<Prepared>> {
        let hash = self.hasher.hash_one(key);
        let shard = self.shard(hash).read();
        let kept = shard.get(&hash)?;
        let found = &kept.prepared;
        let statement = found.statement()?;
        let same = *statement.source == *key.text
            && found.declared() == key.declared
            && found.first_path() == (key.namespace, key.search_path);
        if !same {
            return None;
        }
        // Written once only: those who share it would take the line from each other.
        if !kept.wanted.load(Ordering::Relaxed) {
            kept.wanted.store(true, Ordering::Relaxed);
        }
        Some(found.clone())
    }

    /// Keeps a statement that is worth it. `budget`: bytes that statements of a database share.
    pub(crate) fn put(&self, key: Key<'_>, prepared: &Arc<Prepared>, budget: usize) {
        let (room, weight) = (budget / SHARE, prepared.weight());
        if key.text.len() > MAX_TEXT || weight > room / MAX_PART {
            return;
        }
        let hash = self.hasher.hash_one(key);
        let place = hash as usize % SHARDS;
        for _ in 0..2 {
            if self.shards[place].read().len() >= SHARD_CAPACITY {
                self.let_go(place);
            }
        }
        self.make_room(place, room - weight);
        let kept = Kept { prepared: prepared.clone(), weight, wanted: AtomicBool::new(false) };
        let mut shard = self.shard(hash).write();
        self.bytes.fetch_add(weight, Ordering::Relaxed);
        let before = shard.insert(hash, kept);
        if let Some(before) = &before {
            self.bytes.fetch_sub(before.weight, Ordering::Relaxed);
        }
        drop(shard);
        drop(before);
    }

    /// Statements of the database share so many bytes by now: lets go what is too much.
    pub(crate) fn shrink(&self, budget: usize) {
        self.make_room(0, budget / SHARE);
    }

    /// Lets statements go, those of this shard first, until all weigh so much at most. In the
    /// second turn none is wanted that was not asked for meanwhile.
    fn make_room(&self, place: usize, most: usize) {
        for place in place..place + 2 * SHARDS {
            if self.bytes.load(Ordering::Relaxed) <= most {
                return;
            }
            self.let_go(place % SHARDS);
        }
    }

    /// Lets those of a shard go that nobody wanted; the others are to be asked for again.
    fn let_go(&self, place: usize) {
        let mut shard = self.shards[place].write();
        let unwanted = shard.extract_if(|_, kept| !std::mem::take(kept.wanted.get_mut()));
        let gone: Vec<Kept> = unwanted.map(|(_, kept)| kept).collect();
        let bytes: usize = gone.iter().map(|kept| kept.weight).sum();
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        // Their trees are taken apart when others can use the shard again.
        drop(shard);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse_single;
    use crate::session::{Action, Planned};

    /// What statements share, so much that a few are kept.
    const BUDGET: usize = 4 << 20;

    fn key(text: &str) -> Key<'_> {
        Key { text, declared: &[], search_path: &[], namespace: 0 }
    }

    fn put(cache: &PlanCache, text: &str) {
        let planned = Planned::new(Action::Empty, Vec::new(), None, Vec::new(), 0);
        let statement = parse_single(text).expect("a statement");
        cache.put(key(text), &Arc::new(Prepared::new(statement, Vec::new(), planned)), BUDGET);
    }

    /// What is kept weighs what is said, and no more than it may.
    fn check(cache: &PlanCache) {
        let mut weight = 0;
        for shard in &cache.shards {
            let shard = shard.read();
            assert!(shard.len() <= SHARD_CAPACITY);
            weight += shard.values().map(|kept| kept.weight).sum::<usize>();
        }
        let bytes = cache.bytes.load(Ordering::Relaxed);
        assert_eq!(weight, bytes);
        assert!(bytes <= BUDGET / SHARE, "{bytes}");
    }

    #[test]
    fn statements_that_are_asked_for_outlast_those_that_are_not() {
        let cache = PlanCache::default();
        let wanted: Vec<String> = (0..20).map(|number| format!("SELECT {number}")).collect();
        wanted.iter().for_each(|text| put(&cache, text));
        for number in 0..3000 {
            for text in &wanted {
                assert!(cache.get(key(text)).is_some(), "{text}, after {number}");
            }
            put(&cache, &format!("SELECT 'once', {number}"));
            check(&cache);
        }
        // The same text takes the place of what was there.
        for _ in 0..1000 {
            put(&cache, "SELECT 'again'");
        }
        check(&cache);
        assert!(cache.get(key("SELECT 'again'")).is_some());
    }

    #[test]
    fn what_is_wanted_goes_too_if_it_is_too_much() {
        let cache = PlanCache::default();
        for number in 0..3000 {
            let text = format!("SELECT {number}");
            put(&cache, &text);
            assert!(cache.get(key(&text)).is_some(), "{text}");
            check(&cache);
        }
        cache.shrink(BUDGET / 8);
        assert!(cache.bytes.load(Ordering::Relaxed) <= BUDGET / 8 / SHARE);
        cache.shrink(0);
        assert!(cache.shards.iter().all(|shard| shard.read().is_empty()));
        assert_eq!(cache.bytes.load(Ordering::Relaxed), 0);
    }
}
