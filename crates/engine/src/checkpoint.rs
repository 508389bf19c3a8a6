//! Checkpoints: committed versions move from memory into the base store, and the log is cut.
//!
//! # One checkpoint, to watermark `W`
//!
//! 1. `W` is chosen and pinned like a reader's snapshot, so that no version visible at `W` is
//!    collected meanwhile. It is at most the durable mark: the base never has what a crash could
//!    take back.
//! 2. For every key that changed since the last watermark, the version visible at `W` goes into one
//!    sorted stream, copied from memory in slices under short locks. Commits go on: their versions
//!    are above `W` and are not looked at.
//! 3. `Base::apply` writes the stream and switches to it together with the watermark, in one
//!    atomic, durable step.
//! 4. The new view is published. From here on, readers at or above `W` find the same in either
//!    place.
//! 5. Memory is swept in slices: what nobody needs there any more goes (`txn::version` has the
//!    rule).
//! 6. Dropped trees that no snapshot can see are forgotten, and log segments up to `W` are removed.
//!
//! A crash before 3 ends leaves the old base and the whole log; after it, the new base and a log of
//! which recovery skips what is at or below `W`. There is nothing in between.
//!
//! # Which watermark
//!
//! (In a database of its own. A node's is its present position, see `image`.)
//!
//! First the oldest active snapshot (or the durable mark, if that is lower). After it, every active
//! snapshot's versions up to there are in the base, so even the oldest reader needs nothing more
//! than the base at exactly its own point. If memory is still over its share, because that reader
//! is long and much has been written since, a second checkpoint goes to the durable mark. So it
//! does if the log is still longer than it may be (the same few rows, written again and again, take
//! little memory, and as much log as any others), or if there are many loads behind that reader.
//! The long reader continues with the view that the first one left; memory keeps only what the
//! *other*, short-lived snapshots need. So a long reader costs disk space and one extra pass, not
//! memory and not log; except one that begins after the first checkpoint has chosen its watermark
//! and before the second has: no view is at its point, and what was committed between that
//! watermark and its snapshot stays in memory as long as it is open.
//!
//! One consequence: a key that is not in memory may have changed after an old snapshot, in the
//! base. `Store::changed` compares the two views then.

use crate::delivery::Cluster;
use crate::key::SmallKey;
use crate::manager::Manager;
use crate::own::{ENGINE_TREE, NUMBERS_KEY, SavedNumbers};
use crate::rows::{Entry, Rows};
use crate::sync::atomic::Ordering;
use crate::sync::thread;
use crate::txn::snapshot::Pin;
use crate::upkeep::Upkeep;
use crate::{Csn, Error, Key, TreeId, Value};

/// Keys looked at under one lock.
const SLICE: usize = 256;
/// So many runs of bulk loads may wait for a reader that is older than they. Each read of any row
/// looks at all of them, and each has a file open.
const LOADS_MAX: usize = 64;
/// So many dropped trees may wait for a checkpoint to forget them. Whoever writes the first row of
/// a tree copies the map of all trees, and all other commits wait for him.
const DROPPED_MAX: u64 = 4096;

/// The changes of a checkpoint in order, copied from memory slice by slice.
struct Changes<'a> {
    manager: &'a Manager,
    watermark: Csn,
    since: Csn,
    /// Trees still to do, the next one last.
    trees: Vec<TreeId>,
    tree: TreeId,
    after: Option<SmallKey>,
    /// The tree is not exhausted.
    open: bool,
    slice: std::vec::IntoIter<Entry>,
    numbers: Option<SavedNumbers>,
}

impl<'a> Changes<'a> {
    fn new(manager: &'a Manager, watermark: Csn, since: Csn, dropped: &[TreeId]) -> Changes<'a> {
        let mut trees = manager.store.memory.ids();
        trees.retain(|tree| dropped.binary_search(tree).is_err());
        trees.reverse();
        let numbers = Some(manager.numbers());
        let slice = Vec::new().into_iter();
        Changes { manager, watermark, since, trees, tree: 0, after: None, open: false, slice, numbers }
    }

    /// Reads slices until one has something in it. False at the end of all trees.
    fn refill(&mut self) -> bool {
        loop {
            if !self.open {
                let Some(tree) = self.trees.pop() else { return false };
                (self.tree, self.after, self.open) = (tree, None, true);
            }
            let mut slice = Rows::default();
            let (after, watermark, since) = (self.after.as_ref(), self.watermark, self.since);
            let tree = self.manager.store.memory.tree(self.tree);
            let next = tree.and_then(|tree| tree.changes(after, watermark, since, SLICE, &mut slice));
            self.open = next.is_some();
            self.after = next;
            if !slice.is_empty() {
                self.slice = slice.into_entries().collect::<Vec<_>>().into_iter();
                return true;
            }
        }
    }
}

impl Iterator for Changes<'_> {
    type Item = (TreeId, Key, Option<Value>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.slice.next() {
                return Some((self.tree, key, value));
            }
            if !self.refill() {
                let numbers = self.numbers.take()?;
                return Some((ENGINE_TREE, Key::from_static(NUMBERS_KEY), Some(numbers.encode())));
            }
        }
    }
}

impl Upkeep {
    /// Whether recovery would have to replay more log than the options allow, or a bulk load waits
    /// to become an ordinary part of the base, and a checkpoint could get there, or many dropped
    /// trees wait to be forgotten, and nobody needs them.
    pub(crate) fn checkpoint_is_due(&self) -> bool {
        let store = &self.manager.store;
        self.is_behind()
            || store.base.first_attached().is_some_and(|csn| csn <= store.oldest_snapshot())
            || store.memory.dropped_count() > DROPPED_MAX
                && store.memory.dropped(store.oldest_snapshot()).len() as u64 > DROPPED_MAX
    }

    /// Whether recovery would have to replay more log than the options allow, or so many runs of
    /// loads are not merged that a checkpoint is worth going past the oldest reader.
    fn is_behind(&self) -> bool {
        let store = &self.manager.store;
        store.log.size_after(store.base.watermark()) > self.manager.options.checkpoint_log_bytes
            || store.base.attached_until(store.floor()) > LOADS_MAX
    }

    /// Moves what is durable into the base, as far as readers let it; further, if memory stays
    /// above `target` bytes, or the base far behind. Returns the bytes that had to stay in
    /// memory although the base had them before: snapshots need them that are older than that. What
    /// younger ones need, a transaction's that was just at work, is gone after the next sweep.
    ///
    /// # Errors
    /// From the base store or the log; nothing is lost, and the next checkpoint tries again.
    pub(crate) fn checkpoint(&self, target: u64) -> Result<u64, Error> {
        let _one = self.checkpointing.lock();
        self.manager.discard_left();
        self.checkpoint_further_if(|| self.manager.store.memory.bytes() > target || self.is_behind())
    }

    /// The same for who holds `checkpointing`. Goes on to the durable mark if `further` says so
    /// after the first part; a node's checkpoint goes there always.
    pub(crate) fn checkpoint_further_if(&self, further: impl FnOnce() -> bool) -> Result<u64, Error> {
        let store = &self.manager.store;
        let before = store.base.watermark();
        if let Some(cluster) = &self.manager.cluster {
            let kept = self.checkpoint_node(cluster, before)?;
            self.checkpoints.fetch_add(1, Ordering::Relaxed);
            return Ok(kept);
        }
        let oldest = store.snapshots.pin_oldest(|| store.floor());
        let mut kept = self.checkpoint_to(&oldest, before)?;
        drop(oldest);
        if further() {
            let floor = store.snapshots.pin(|| store.floor());
            self.checkpoint_to(&floor, before)?;
            drop(floor);
            // What only the pin kept.
            kept = self.sweep(before);
        }
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(kept)
    }

    /// One checkpoint of a node, to its present position. Returns the bytes that had to stay in
    /// memory although the base had them before.
    ///
    /// # Errors
    /// As `checkpoint`.
    fn checkpoint_node(&self, cluster: &Cluster, before: Csn) -> Result<u64, Error> {
        let store = &self.manager.store;
        if let Some(error) = store.base.doubt() {
            return Err(error);
        }
        let (pin, content) = {
            // Nothing is delivered meanwhile.
            let standing = cluster.standing.lock();
            let pin = store.snapshots.pin(|| store.floor());
            if pin.csn() != standing.applied() {
                return Err(Error::Defect("what was delivered is not what can be seen"));
            }
            let is_new = pin.csn() > before;
            (pin, is_new.then(|| self.manager.encode_image(cluster, &standing)).transpose()?)
        };
        let moved = self.checkpoint_with_image(cluster, &pin, content, before);
        // After a failure, too: each attempt would leave its image, until the disk is full of them.
        // But not if nobody knows which one the manifest asks for.
        let kept = match store.base.doubt() {
            None => cluster.images.keep_only(store.base.watermark()),
            Some(error) => Err(error),
        };
        moved.and(kept)?;
        drop(pin);
        // What only the pin kept.
        Ok(self.sweep(before))
    }

    /// Keeps an image of the pinned position, if that is new, and moves the base there.
    fn checkpoint_with_image(
        &self,
        cluster: &Cluster,
        pin: &Pin,
        content: Option<Vec<u8>>,
        before: Csn,
    ) -> Result<(), Error> {
        if let Some(content) = content {
            cluster.images.write(pin.csn(), &content)?;
            cluster.wait_synced(pin.csn())?;
        }
        self.checkpoint_to(pin, before).map(drop)
    }

    fn checkpoint_to(&self, pin: &Pin, before: Csn) -> Result<u64, Error> {
        let store = &self.manager.store;
        let (watermark, since) = (pin.csn(), store.base.watermark());
        let mut removed = Ok(());
        if watermark > since {
            let dropped: Vec<TreeId> =
                store.memory.dropped(watermark).into_iter().map(|(tree, _)| tree).collect();
            let mut changes = Changes::new(&self.manager, watermark, since, &dropped);
            store.base.apply(watermark, &mut changes, &dropped)?;
            store.views.publish(&store.base);
            removed = store.log.remove_before(watermark);
        }
        // What was moved does not stay in memory because a file of the log stays.
        let kept = self.sweep(before);
        removed.map(|()| kept)
    }

    /// Removes from memory what nobody needs there. Returns the bytes of what stays although it is
    /// from `before` or older.
    pub(crate) fn sweep(&self, before: Csn) -> u64 {
        let store = &self.manager.store;
        let needs = store.needs();
        let mut kept = 0;
        for id in store.memory.ids() {
            let Some(tree) = store.memory.tree(id) else { continue };
            let mut after = None;
            loop {
                let (next, stays) = store.memory.trim(&tree, after.as_ref(), &needs, before, SLICE);
                (after, kept) = (next, kept + stays);
                if after.is_none() {
                    break;
                }
                thread::yield_now();
            }
        }
        let oldest = needs.active.first().copied();
        let dropped = store.memory.dropped(store.base.watermark()).into_iter();
        let unseen = dropped.filter(|(_, dropped_at)| oldest.is_none_or(|oldest| oldest >= *dropped_at));
        store.memory.forget(&unseen.map(|(tree, _)| tree).collect::<Vec<_>>());
        store.views.prune(&needs.active);
        kept
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cognate_env::sim::SimDisk;

    use super::{DROPPED_MAX, LOADS_MAX};
    use crate::manager::Manager;
    use crate::transaction::Transaction;
    use crate::upkeep::Upkeep;
    use crate::{Access, Database, Isolation, Options, Value};

    /// They take little memory and log: a program that makes a temporary table for each of its
    /// transactions would come to a hundred thousand of them.
    #[test]
    fn dropped_trees_are_forgotten_when_they_are_many() {
        let options = Options { disk: SimDisk::new(1).handle(), ..Options::new("data") };
        // Nothing works behind it.
        let (manager, recovered) = Manager::open(options).unwrap();
        let manager = Arc::new(manager);
        let upkeep = Upkeep::new(Arc::clone(&manager), recovered);
        let begin = || Transaction::begin(Arc::clone(&manager), Isolation::Snapshot, Access::ReadWrite);
        let reader = begin();
        let mut last = None;
        for _ in 0..=DROPPED_MAX {
            let mut t = begin();
            let tree = t.create_tree();
            t.put(tree, b"k", Value::from_static(b"v")).unwrap();
            t.commit().unwrap();
            let mut t = begin();
            t.drop_tree(tree);
            last = Some(t.commit().unwrap());
        }
        last.unwrap().durable.wait().unwrap();
        assert!(!upkeep.checkpoint_is_due(), "somebody may still need them");
        drop(reader);
        assert!(upkeep.checkpoint_is_due());
        upkeep.checkpoint(u64::MAX).unwrap();
        assert_eq!(manager.store.memory.dropped_count(), 0);
        assert!(!upkeep.checkpoint_is_due());
    }

    /// They take neither memory nor log; but all reads look at their runs, which have files open.
    #[test]
    fn a_long_reader_does_not_keep_loads_from_being_merged() {
        let mut options = Options::new("data");
        options.disk = SimDisk::new(1).handle();
        options.spill_bytes = 4 << 10;
        let database = Database::open(options).unwrap();
        let reader = database.begin(Isolation::Snapshot, Access::ReadOnly);
        let content = Value::from(vec![7; 1000]);
        let mut trees = Vec::new();
        for _ in 0..=LOADS_MAX {
            let mut t = database.begin(Isolation::Snapshot, Access::ReadWrite);
            let tree = t.create_tree();
            (0..10u8).for_each(|key| t.put(tree, &[key], content.clone()).unwrap());
            t.commit().unwrap().durable.wait().unwrap();
            trees.push(tree);
        }
        let manager = database.manager();
        database.upkeep().checkpoint(manager.pressure.target()).unwrap();
        assert_eq!(database.statistics().base.attached, 0);
        let new = database.begin(Isolation::Snapshot, Access::ReadOnly);
        for tree in trees {
            assert_eq!(reader.get(tree, &[5]).unwrap(), None);
            assert_eq!(new.get(tree, &[5]).unwrap(), Some(content.clone()));
        }
    }

    /// What is written takes little memory here, and much log.
    #[test]
    fn a_long_reader_does_not_keep_the_log() {
        const LOG_BYTES: u64 = 64 << 10;
        let mut options = Options::new("data");
        options.disk = SimDisk::new(1).handle();
        options.checkpoint_log_bytes = LOG_BYTES;
        let database = Database::open(options).unwrap();
        let content = |round: u8| Value::from(vec![round; 1000]);
        let write = |round: u8| {
            let mut t = database.begin(Isolation::Snapshot, Access::ReadWrite);
            t.put(1, b"key", content(round)).unwrap();
            t.commit().unwrap().durable.wait().unwrap();
        };
        write(0);
        let reader = database.begin(Isolation::Snapshot, Access::ReadOnly);
        (1..=200).for_each(write);
        let manager = database.manager();
        assert!(manager.store.memory.bytes() < manager.pressure.target());
        database.upkeep().checkpoint(manager.pressure.target()).unwrap();
        let left = database.statistics().replay_bytes;
        assert!(left <= LOG_BYTES, "a recovery would replay {left} bytes");
        assert_eq!(reader.get(1, b"key").unwrap(), Some(content(0)));
        let new = database.begin(Isolation::Snapshot, Access::ReadOnly);
        assert_eq!(new.get(1, b"key").unwrap(), Some(content(200)));
    }
}
