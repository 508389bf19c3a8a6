//! What transactions saw and did, and the judge of it.
//!
//! The judge knows nothing of the engine but the meaning of its numbers: a value names the attempt
//! that wrote it, a key's versions are ordered by the numbers of their commits. From that it tells
//! what each read had to find, and which transaction has to come before which. It keeps no graph
//! while the history runs, prunes nothing and summarizes nothing.
//!
//! 1. *Numbers*: those that were answered are all that the log gave out, each once.
//! 2. *Visibility*: who reads at snapshot s finds each key's newest version up to s, whatever ran
//!    beside it: nothing above s (it is not visible yet), and nothing older (the snapshot shows a
//!    commit if and only if it shows all before it; no version is lost once it was visible).
//! 3. *Snapshots* show every commit that had been answered when they were taken.
//! 4. *Serializability*: the dependencies of all that committed, readers included, have no cycle;
//!    where that is promised, also with real time among them: who knew of a commit comes after it.

use std::collections::{BTreeMap, BTreeSet};

use crate::Csn;

/// A key of the tests.
pub(super) type K = u8;
/// What a write wrote: the number of its attempt; `None` is no row.
pub(super) type Content = Option<u64>;

/// A transaction that committed.
#[derive(Debug, Clone)]
pub(super) struct Done {
    pub(super) attempt: u64,
    /// Where all of it was read, if it was moved meanwhile.
    pub(super) snapshot: Csn,
    /// None if it wrote nothing.
    pub(super) commit: Option<Csn>,
    /// The newest commit that was known to be visible before it began.
    pub(super) known: Csn,
    pub(super) reads: Vec<(K, Content)>,
    pub(super) writes: BTreeMap<K, Content>,
}

/// All that committed.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) done: Vec<Done>,
    /// How often a snapshot was moved.
    pub(super) moves: u64,
}

impl History {
    /// What is wrong with it, if anything; `last` is the last number given out. With `strict` real
    /// time counts.
    pub(super) fn judge(&self, last: Csn, strict: bool) -> Result<(), String> {
        let numbers: Vec<Csn> = self.by_number().keys().copied().collect();
        if numbers != (1..=last).collect::<Vec<_>>() {
            return Err(format!("numbers answered: {numbers:?}, given out: 1 to {last}\n{self:#?}"));
        }
        self.judge_reads(strict)
    }

    /// The same where numbers are also given to what does not commit: the order's.
    pub(super) fn judge_reads(&self, strict: bool) -> Result<(), String> {
        for done in &self.done {
            self.visibility(done)?;
        }
        match self.cycle(strict) {
            Some(cycle) => Err(format!("attempts {cycle:?} are a cycle of dependencies\n{self:#?}")),
            None => Ok(()),
        }
    }

    fn by_number(&self) -> BTreeMap<Csn, &Done> {
        self.done.iter().filter_map(|done| Some((done.commit?, done))).collect()
    }

    /// Commits that wrote `key`, in their order, with what they wrote.
    fn versions(&self, key: K) -> Vec<(Csn, usize, Content)> {
        let writes = self.done.iter().enumerate();
        let writes = writes.filter_map(|(at, done)| Some((done.commit?, at, *done.writes.get(&key)?)));
        let mut versions: Vec<_> = writes.collect();
        versions.sort_unstable();
        // A deletion of what is not there changes nothing.
        let mut before = None;
        versions.retain(|&(_, _, content)| {
            std::mem::replace(&mut before, content).is_some() || content.is_some()
        });
        versions
    }

    fn visibility(&self, done: &Done) -> Result<(), String> {
        if done.snapshot < done.known {
            return Err(format!("{done:?}\nbegan after commit {} was answered\n{self:#?}", done.known));
        }
        if done.commit.is_some_and(|commit| commit <= done.snapshot) {
            return Err(format!("{done:?}\nis numbered below its snapshot"));
        }
        for &(key, found) in &done.reads {
            let versions = self.versions(key);
            let shown = versions.iter().rev().find(|(commit, ..)| *commit <= done.snapshot);
            let due = shown.and_then(|&(_, _, content)| content);
            if found != due {
                return Err(format!("{done:?}\nfound {found:?} under key {key}, not {due:?}\n{self:#?}"));
            }
        }
        Ok(())
    }

    /// Who must come before whom.
    fn edges(&self, strict: bool) -> Vec<BTreeSet<usize>> {
        let mut after = vec![BTreeSet::new(); self.done.len()];
        let mut edge = |from: usize, to: usize| {
            if from != to {
                after[from].insert(to);
            }
        };
        let keys = self
            .done
            .iter()
            .flat_map(|done| done.writes.keys().copied().chain(done.reads.iter().map(|(key, _)| *key)));
        for key in keys.collect::<BTreeSet<_>>() {
            let versions = self.versions(key);
            versions.windows(2).for_each(|pair| edge(pair[0].1, pair[1].1));
            for (reader, done) in self.done.iter().enumerate() {
                if done.reads.iter().any(|(read, _)| *read == key) {
                    let next = versions.partition_point(|(commit, ..)| *commit <= done.snapshot);
                    next.checked_sub(1).iter().for_each(|&at| edge(versions[at].1, reader));
                    versions.get(next).iter().for_each(|version| edge(reader, version.1));
                }
            }
        }
        let commits = self.done.iter().enumerate().filter_map(|(at, done)| Some((at, done.commit?)));
        for (first, commit) in commits.filter(|_| strict) {
            let later = self.done.iter().enumerate().filter(|(_, done)| commit <= done.known);
            after[first].extend(later.map(|(at, _)| at));
        }
        after
    }

    /// Attempts that nobody outside them comes before, and that no order explains; empty sets
    /// removed one after the other.
    fn cycle(&self, strict: bool) -> Option<Vec<u64>> {
        let after = self.edges(strict);
        let mut left: BTreeSet<usize> = (0..self.done.len()).collect();
        loop {
            let preceded: BTreeSet<usize> = left.iter().flat_map(|&at| after[at].iter().copied()).collect();
            let first: Vec<usize> = left.difference(&preceded).copied().collect();
            if first.is_empty() {
                return (!left.is_empty()).then(|| left.iter().map(|&at| self.done[at].attempt).collect());
            }
            first.iter().for_each(|at| {
                left.remove(at);
            });
        }
    }
}
