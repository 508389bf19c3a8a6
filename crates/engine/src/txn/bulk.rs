//! Bulk writes: what a transaction writes into trees that it made itself need not stay in memory.
//!
//! Nobody else can see such a *private* tree before the commit, and the committed state has nothing
//! in it. So when the writes of private trees have grown to a share of the budget, they
//! are *spilled*: written in order as a staged run of the base store (`storage::load`), and
//! forgotten here. Own reads look in the write set first, then in what was spilled, and nowhere
//! else. The commit's log record names the runs instead of holding the rows.
//!
//! ```text
//! put … put    spill: run 1     put … put    spill: run 2     put …    commit: run 3, record [1 2 3]
//! savepoint A  put …            spill: runs 4 | 5             the writes before A and those after it
//! rollback to A                 run 5 goes
//! ```
//!
//! A portion never holds writes from both sides of an open savepoint, so rolling back takes whole
//! portions. Eight neighbours of a level are merged into one of the next level, so that a load of
//! any size has few files.
//!
//! Cursors and views that were opened before a spill keep the maps and the portions of their
//! moment. Such a map stays accounted for until the last of them is closed.
//!
//! To write a portion, and more so to merge some, takes longer than whoever cancels the statement
//! should wait. So somebody may be asked in between ([`GoOn`]). What is left half-way has changed
//! nothing: what was to be spilled is still in memory, and what was to be merged still there.

use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Weak};

use super::budget::CHUNK;
use super::writeset::{Changes, Savepoint, TreeWrites, WriteSet};
use crate::key::SmallKey;
use crate::storage::{Base, BaseView, StagedRun};
use crate::{Error, TreeId, Value};

/// Portions of a level that become one of the next.
const FAN_IN: usize = 8;
/// With more open savepoints than this, writes stay in memory.
const SAVEPOINTS_MAX: usize = 64;
/// What is left in memory at the commit of a load goes into the log up to this many bytes, else
/// into a run.
const REST_BYTES: u64 = 1 << 20;
/// Rows of a portion between two questions whether to go on.
const ASK_INTERVAL: u32 = 256;

/// Asked by what works for long; the reason once it is to stop.
pub type GoOn = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Who is asked while a transaction's own trees go to disk; mostly nobody.
#[derive(Clone, Default)]
struct Asked(Option<GoOn>);

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asked").field(&self.0.is_some()).finish()
    }
}

impl Asked {
    fn go_on(&self) -> Result<(), Error> {
        match &self.0 {
            Some(go_on) => go_on().map_err(|reason| Error::Interrupted { reason }),
            None => Ok(()),
        }
    }
}

/// The trees that a transaction made, and what it spilled of them. Never changed, only replaced:
/// views hold on to it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Private {
    /// Ascending.
    trees: Vec<TreeId>,
    spilled: Option<BaseView>,
}

impl Private {
    pub(crate) fn has(&self, tree: TreeId) -> bool {
        self.trees.binary_search(&tree).is_ok()
    }

    /// The portions together, if there are any.
    pub(crate) fn spilled(&self) -> Option<&BaseView> {
        self.spilled.as_ref()
    }

    /// The spilled value of a key.
    pub(crate) fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Value>, Error> {
        self.spilled.as_ref().map_or(Ok(None), |view| view.get(tree, key))
    }
}

/// Takes what was spilled back among the changes, which are newer: for who cannot hand runs on.
///
/// # Errors
/// From the base store.
pub(crate) fn unload(
    base: &Base,
    loads: &[StagedRun],
    changes: &mut Vec<(TreeId, Changes)>,
) -> Result<(), Error> {
    let view = base.view_of(loads);
    let mut trees: Vec<TreeId> = loads.iter().flat_map(StagedRun::trees).collect();
    trees.sort_unstable();
    trees.dedup();
    for tree in trees {
        let mut rows = Vec::new();
        let mut scan = view.scan(tree, Bound::Unbounded, Bound::Unbounded, false)?;
        while let Some((key, value)) = scan.next()? {
            // A value of the base keeps its whole block.
            rows.push((SmallKey::new(&key), Value::copy_from_slice(&value)));
        }
        let place = match changes.binary_search_by_key(&tree, |(tree, _)| *tree) {
            Ok(place) => place,
            Err(place) => {
                changes.insert(place, (tree, Changes::of(Vec::new())));
                place
            }
        };
        changes[place].1.add_missing(rows.into_iter());
    }
    Ok(())
}

/// Writes of private trees in a staged run.
#[derive(Debug)]
pub(super) struct Portion {
    run: StagedRun,
    /// The sequence of its last write.
    upto: u64,
    level: u8,
}

/// The private side of a write set.
#[derive(Debug, Default)]
pub(super) struct Bulk {
    pub(super) private: Option<Arc<Private>>,
    /// Oldest first.
    portions: Vec<Portion>,
    /// Bytes of private writes in memory.
    pub(super) bytes: u64,
    /// Maps that were spilled, and that cursors still hold.
    held: Vec<(Weak<TreeWrites>, u64)>,
    asked: Asked,
}

impl Bulk {
    pub(super) fn is_empty(&self) -> bool {
        self.portions.is_empty()
    }

    pub(super) fn has(&self, tree: TreeId) -> bool {
        self.private.as_ref().is_some_and(|private| private.has(tree))
    }

    /// The portions have changed.
    fn refresh(&mut self, base: &Base) {
        let runs: Vec<StagedRun> = self.portions.iter().map(|portion| portion.run.clone()).collect();
        let spilled = (!runs.is_empty()).then(|| base.view_of(&runs));
        if let Some(private) = &mut self.private {
            Arc::make_mut(private).spilled = spilled;
        }
    }
}

impl WriteSet {
    /// The trees that this transaction made, if there are any.
    pub(crate) fn private(&self) -> Option<&Arc<Private>> {
        self.bulk.private.as_ref()
    }

    /// The trees that the transaction has made.
    pub(crate) fn made(&self) -> Vec<TreeId> {
        self.private().map_or_else(Vec::new, |private| private.trees.clone())
    }

    /// Whether anything of it is in staged runs.
    pub(crate) fn has_spilled(&self) -> bool {
        !self.bulk.is_empty()
    }

    /// Bytes of what is in staged runs.
    pub(crate) fn spilled_bytes(&self) -> u64 {
        self.bulk.portions.iter().map(|portion| portion.run.bytes()).sum()
    }

    /// Notes a tree that the transaction has made.
    pub(crate) fn add_private(&mut self, tree: TreeId) {
        let private = Arc::make_mut(self.bulk.private.get_or_insert_default());
        if let Err(index) = private.trees.binary_search(&tree) {
            private.trees.insert(index, tree);
        }
    }

    /// From now on this one is asked while private writes go to disk.
    pub(crate) fn ask(&mut self, go_on: GoOn) {
        self.bulk.asked = Asked(Some(go_on));
    }

    /// Whether the private writes should be spilled before the next one.
    #[inline]
    pub(crate) fn is_spill_due(&self) -> bool {
        self.bulk.bytes >= self.budget.spill_bytes
    }

    /// Whether spilling would free memory.
    pub(crate) fn can_spill(&self) -> bool {
        self.bulk.bytes > 0 || !self.bulk.held.is_empty()
    }

    /// Moves all private writes from memory into staged runs.
    ///
    /// # Errors
    /// `DiskFull` or `Io` from the base store, `Interrupted`; what was written before is still
    /// there then.
    pub(crate) fn spill(&mut self, base: &Base) -> Result<(), Error> {
        self.settle();
        let mut ends: Vec<u64> = self.savepoints().iter().map(Savepoint::sequence).collect();
        ends.push(self.sequence());
        ends.dedup();
        if ends.len() > SAVEPOINTS_MAX || self.bulk.bytes == 0 {
            return Ok(());
        }
        let trees = self.private_writes();
        let portions = self.stage(base, &trees, &ends)?;
        self.bulk.portions.extend(portions);
        self.forget_private(trees);
        self.bulk.refresh(base);
        self.fold(base)
    }

    fn private_writes(&self) -> Vec<(TreeId, Arc<TreeWrites>)> {
        let private = self.trees().iter().filter(|(tree, _)| self.bulk.has(*tree));
        private.map(|(tree, writes)| (*tree, Arc::clone(writes))).collect()
    }

    /// Writes one portion for each stretch of sequences that ends with one of `ends`.
    fn stage(
        &self,
        base: &Base,
        trees: &[(TreeId, Arc<TreeWrites>)],
        ends: &[u64],
    ) -> Result<Vec<Portion>, Error> {
        let mut portions = Vec::new();
        let mut after = 0;
        let mut rows = 0u32;
        for &upto in ends {
            let staged = base.stage_with(&mut |add| {
                trees.iter().try_for_each(|(tree, writes)| {
                    writes.between(after, upto, |key, value| {
                        rows = rows.wrapping_add(1);
                        if rows.is_multiple_of(ASK_INTERVAL) {
                            self.bulk.asked.go_on()?;
                        }
                        add(*tree, key, value)
                    })
                })
            });
            match staged {
                Ok(run) => portions.extend(run.map(|run| Portion { run, upto, level: 0 })),
                Err(error) => {
                    discard(base, portions);
                    return Err(error);
                }
            }
            after = upto;
        }
        Ok(portions)
    }

    /// Forgets the private writes in memory, which were spilled.
    fn forget_private(&mut self, trees: Vec<(TreeId, Arc<TreeWrites>)>) {
        let bulk = &self.bulk;
        self.trees.retain(|(tree, _)| !bulk.has(*tree));
        let mut held = 0;
        for (_, writes) in trees {
            if Arc::strong_count(&writes) > 1 {
                let bytes = writes.bytes();
                held += bytes;
                self.bulk.held.push((Arc::downgrade(&writes), bytes));
            }
        }
        let freed = std::mem::take(&mut self.bulk.bytes);
        self.bytes = (self.bytes + held).saturating_sub(freed);
        self.forget_journal();
        self.shrink();
    }

    /// Rolling back finds spilled writes by their portions, not by the journal.
    fn forget_journal(&mut self) {
        let journal = std::mem::take(&mut self.journal);
        let mut savepoints = self.savepoints.iter_mut().peekable();
        for (at, entry) in journal.into_iter().enumerate() {
            while let Some(savepoint) = savepoints.next_if(|savepoint| savepoint.journal <= at) {
                savepoint.journal = self.journal.len();
            }
            if !self.bulk.has(entry.0) {
                self.journal.push(entry);
            }
        }
        savepoints.for_each(|savepoint| savepoint.journal = self.journal.len());
    }

    /// Takes maps that no cursor holds any more out of the account.
    fn settle(&mut self) {
        let bytes = &mut self.bytes;
        self.bulk.held.retain(|(writes, size)| {
            let held = writes.strong_count() > 0;
            if !held {
                *bytes = bytes.saturating_sub(*size);
            }
            held
        });
    }

    /// Gives what is not used any more back to the budget.
    pub(super) fn shrink(&mut self) {
        let needed = self.bytes.saturating_sub(CHUNK).next_multiple_of(CHUNK);
        if needed < self.taken {
            self.budget.give_back(self.taken - needed);
            self.taken = needed;
        }
    }

    /// Merges the newest portions while there are enough of a level, with no open savepoint between
    /// them.
    fn fold(&mut self, base: &Base) -> Result<(), Error> {
        while let Some(level) = self.bulk.portions.last().map(|last| last.level) {
            let portions = &self.bulk.portions;
            let same = portions.iter().rev().take_while(|portion| portion.level == level).count();
            if same < FAN_IN {
                break;
            }
            let start = portions.len() - FAN_IN;
            let (first, last) = (portions[start].upto, portions[portions.len() - 1].upto);
            if self.savepoints().iter().any(|savepoint| (first..last).contains(&savepoint.sequence())) {
                break;
            }
            let runs: Vec<StagedRun> = portions[start..].iter().map(|portion| portion.run.clone()).collect();
            let merged = base.restage(&runs, start == 0, &mut || self.bulk.asked.go_on())?;
            self.bulk.portions.truncate(start);
            self.bulk.portions.extend(merged.map(|run| Portion { run, upto: last, level: level + 1 }));
            self.bulk.refresh(base);
        }
        Ok(())
    }

    /// The second half of rolling back to a savepoint: discards what was spilled of later writes.
    pub(crate) fn rollback_spilled(&mut self, savepoint: Savepoint, base: &Base) {
        let stays = self.bulk.portions.partition_point(|portion| portion.upto <= savepoint.sequence());
        if stays < self.bulk.portions.len() {
            discard(base, self.bulk.portions.split_off(stays));
            self.bulk.refresh(base);
        }
    }

    /// Takes the runs that the commit is to attach, oldest first. If there are any, a large rest in
    /// memory becomes the last of them.
    ///
    /// # Errors
    /// `DiskFull` or `Io` from the base store, also if it is in doubt whether a start would find
    /// them; nothing is taken then.
    pub(crate) fn take_loads(&mut self, base: &Base) -> Result<Vec<StagedRun>, Error> {
        // What ends the transaction is not stopped.
        self.bulk.asked = Asked::default();
        if self.bulk.portions.is_empty() {
            return Ok(Vec::new());
        }
        if self.bulk.bytes > REST_BYTES.min(self.budget.spill_bytes / 4) {
            self.savepoints.clear();
            self.spill(base)?;
        }
        let loads: Vec<StagedRun> = self.bulk.portions.iter().map(|portion| portion.run.clone()).collect();
        base.check_named(&loads)?;
        self.bulk.portions.clear();
        Ok(loads)
    }

    /// Trees that come or go as a whole, by the view of who has read there: those that were
    /// dropped, and with bulk loads those that the transaction made.
    pub(crate) fn whole_trees(&self, loads: &[StagedRun]) -> Vec<TreeId> {
        let mut trees = self.dropped().to_vec();
        if let Some(private) = self.private().filter(|_| !loads.is_empty()) {
            trees.extend_from_slice(&private.trees);
        }
        trees
    }

    /// Discards what was spilled: the transaction is rolled back. The files go now, but for those
    /// that a cursor still reads, and not when the rest of the write set does.
    pub(crate) fn discard_spilled(&mut self, base: &Base) {
        if !self.bulk.portions.is_empty() {
            discard(base, std::mem::take(&mut self.bulk.portions));
            self.bulk.refresh(base);
        }
    }
}

/// Removes portions. If that fails, because a full disk has no room for a manifest either, it is
/// tried again behind the database (`background`).
fn discard(base: &Base, portions: Vec<Portion>) {
    let runs: Vec<StagedRun> = portions.into_iter().map(|portion| portion.run).collect();
    if let Err(error) = base.discard(&runs) {
        tracing::warn!(%error, "could not discard what a transaction had spilled");
    }
}
