//! The version order of each row, from the links that its writers recorded, and what a scan saw of
//! it.
//!
//! ```text
//!   key 7:  absent ── load's version ── T4's (replaced load's) ── T9's deletion ── T12's (an insert)
//!   place:    0             1                  2                       3               4
//! ```
//!
//! Links make chains; a chain begins with an insert and ends with the newest version or a deletion.
//! Several chains of one key (it was deleted and inserted again) are put in the order of their
//! first commits.
//!
//! *What a scan did not return.* A row that is missing in an answer was not there yet, or was there
//! no longer, or was elsewhere. Which of its versions the snapshot held follows from snapshots
//! alone: a version's writer committed after its own snapshot, and no later than the snapshot of
//! the next version's writer, since the first updater wins. So only two neighbouring versions are
//! possible; if one of them is in the range, it was the other, and if neither is, both give the
//! same edges.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::history::{Exists, History, Object, Predicate, Row, Scan, Stamp, Write, writer};
use super::verdict::Violation;

/// A committed version.
#[derive(Clone, Debug)]
pub struct Version {
    /// Its place in the history's transactions; `None` for the load and for what was never there.
    pub writer: Option<usize>,
    /// Its stamp; 0 for what was never there.
    pub stamp: Stamp,
    /// Its values, unless the row does not exist.
    pub row: Option<Row>,
    /// Commit number, if it is known.
    commit: Option<u64>,
    /// The writer's snapshot; it committed later.
    snapshot: u64,
}

/// What a scan knows of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The row.
    pub object: Object,
    /// The place of the version in its chain.
    pub place: usize,
    /// What was told of it.
    pub told: Told,
}

/// What a reader was told of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Its version: the row was returned.
    Version,
    /// That it is in the range.
    Existence,
    /// That it is not: it was not returned.
    Absence,
}

/// The version orders of all rows.
#[derive(Debug, Default)]
pub struct Versions {
    chains: BTreeMap<Object, Vec<Version>>,
    places: HashMap<(Object, Stamp), usize>,
    /// Rows by the values that any of their versions has in an indexed column.
    values: BTreeMap<(u32, usize, i64), Vec<Object>>,
    /// Versions that their own writer replaced, or whose writer did not commit.
    hidden: HashSet<(Object, Stamp)>,
}

impl Versions {
    /// Orders the versions; what contradicts itself is a violation.
    pub fn new(history: &History, violations: &mut Vec<Violation>) -> Versions {
        let mut versions = Versions::default();
        let mut written: BTreeMap<Object, Vec<(Option<usize>, Write)>> = BTreeMap::new();
        for write in &history.loaded {
            written.entry(write.object).or_default().push((None, write.clone()));
        }
        for (index, transaction) in history.transactions.iter().enumerate() {
            let net = if transaction.committed() { transaction.net_writes() } else { Vec::new() };
            for event in &transaction.events {
                if let super::history::Event::Write(write) = event
                    && !net.iter().any(|net| net.stamp == write.stamp && net.object == write.object)
                {
                    versions.hidden.insert((write.object, write.stamp));
                }
            }
            for write in net {
                written.entry(write.object).or_default().push((Some(index), write));
            }
        }
        for (object, writes) in written {
            let chain = order(history, object, writes, violations);
            versions.add(object, chain);
        }
        versions
    }

    fn add(&mut self, object: Object, chain: Vec<Version>) {
        let mut values = HashSet::new();
        for (place, version) in chain.iter().enumerate() {
            self.places.insert((object, version.stamp), place);
            for (column, value) in version.row.iter().flatten().enumerate() {
                if values.insert((column, *value)) {
                    self.values.entry((object.table, column, *value)).or_default().push(object);
                }
            }
        }
        self.chains.insert(object, chain);
    }

    /// The versions of a row in order; the first is its absence before everything.
    pub fn chain(&self, object: Object) -> &[Version] {
        self.chains.get(&object).map_or(&[], Vec::as_slice)
    }

    /// All rows.
    pub fn objects(&self) -> impl Iterator<Item = (&Object, &Vec<Version>)> {
        self.chains.iter()
    }

    /// Why a version that was read or replaced has no place.
    pub fn why_unknown(&self, reader: u64, object: Object, stamp: Stamp) -> Violation {
        let hidden = self.hidden.contains(&(object, stamp));
        Violation::ReadOfUncommitted { reader, writer: writer(stamp), object, known: hidden }
    }

    /// Which version of each row that could matter a scan saw. `own` are the rows as the reader
    /// itself had written them.
    pub fn sights(
        &self,
        reader: u64,
        scan: &Scan,
        own: &HashMap<Object, Option<Row>>,
        violations: &mut Vec<Violation>,
    ) -> Vec<Sight> {
        let mut sights = Vec::new();
        let mut known: HashSet<Object> = own.keys().copied().collect();
        for &(key, stamp) in &scan.seen {
            let object = Object { table: scan.predicate.table, key };
            if let Some(row) = own.get(&object) {
                if !scan.predicate.holds(row.as_ref()) {
                    violations.push(Violation::RowOutOfRange { reader, object });
                }
                continue;
            }
            if !known.insert(object) || writer(stamp) == reader {
                continue;
            }
            match self.places.get(&(object, stamp)) {
                Some(&place) => {
                    if !scan.predicate.holds(self.chain(object)[place].row.as_ref()) {
                        violations.push(Violation::RowOutOfRange { reader, object });
                    }
                    sights.push(Sight { object, place, told: Told::Version });
                }
                None => violations.push(self.why_unknown(reader, object, stamp)),
            }
        }
        for object in self.candidates(&scan.predicate) {
            if !known.insert(object) {
                continue;
            }
            match unseen(self.chain(object), scan) {
                Some(place) => sights.push(Sight { object, place, told: Told::Absence }),
                None => violations.push(Violation::RowMissed { reader, object }),
            }
        }
        sights
    }

    /// The row that a reader knows to be there. `None` if it is the reader's own, if there are
    /// several of which any would do, or if commit numbers are not known well enough.
    pub fn existence(
        &self,
        reader: u64,
        exists: &Exists,
        own: &HashMap<Object, Option<Row>>,
        violations: &mut Vec<Violation>,
    ) -> Option<Sight> {
        let Exists { predicate, snapshot, as_it_is } = exists;
        let told = if *as_it_is { Told::Version } else { Told::Existence };
        if own.iter().any(|(object, row)| object.table == predicate.table && predicate.holds(row.as_ref())) {
            return None;
        }
        let mut known = HashSet::new();
        let mut there = Vec::new();
        for object in self.candidates(predicate).filter(|object| !own.contains_key(object)) {
            let chain = self.chain(object);
            if chain.iter().any(|version| version.commit.is_none()) {
                return None;
            }
            let place = chain.iter().rposition(|version| version.commit.is_some_and(|at| at <= *snapshot))?;
            if predicate.holds(chain[place].row.as_ref()) && known.insert(object) {
                there.push(Sight { object, place, told });
            }
        }
        if there.is_empty() {
            violations.push(Violation::NobodyThere { reader, table: predicate.table, low: predicate.low });
        }
        there.pop().filter(|_| there.is_empty())
    }

    /// Rows of which some version is in the range.
    fn candidates(&self, predicate: &Predicate) -> impl Iterator<Item = Object> + '_ {
        let Predicate { table, column, low, high } = *predicate;
        // An empty range is asked for, too, when a client's ends are the wrong way round.
        let range = (table, column, low)..=(table, column, high.max(low));
        self.values.range(range).filter(move |_| low <= high).flat_map(|(_, objects)| objects.iter().copied())
    }
}

/// The place of the version that a scan held, of a row that it did not return; `None` if it had to
/// return it.
fn unseen(chain: &[Version], scan: &Scan) -> Option<usize> {
    let visible = |version: &Version| match version.commit {
        Some(commit) => commit <= scan.snapshot,
        None => version.snapshot < scan.snapshot,
    };
    let place = chain.iter().rposition(|version| version.writer.is_none() || visible(version))?;
    let held = &chain[place];
    if !scan.predicate.holds(held.row.as_ref()) {
        return Some(place);
    }
    // Its writer may have committed after the scan's snapshot, unless the number says otherwise.
    let certain = held.writer.is_none() || held.commit.is_some();
    let before = place.checked_sub(1).filter(|_| !certain)?;
    (!scan.predicate.holds(chain[before].row.as_ref())).then_some(before)
}

/// Puts one row's versions in order.
fn order(
    history: &History,
    object: Object,
    writes: Vec<(Option<usize>, Write)>,
    violations: &mut Vec<Violation>,
) -> Vec<Version> {
    let id = |writer: Option<usize>| writer.map_or(0, |index| history.transactions[index].id);
    let mut firsts = Vec::new();
    let mut next: HashMap<Stamp, (Option<usize>, Write)> = HashMap::new();
    let all: HashSet<Stamp> = writes.iter().map(|(_, write)| write.stamp).collect();
    for (writer, write) in writes {
        match write.replaced {
            None => firsts.push((writer, write)),
            Some(replaced) if all.contains(&replaced) => {
                if let Some((other, _)) = next.insert(replaced, (writer, write)) {
                    let writers = [id(other), id(writer)];
                    violations.push(Violation::LostUpdate { object, writers });
                }
            }
            Some(replaced) => {
                let other = super::history::writer(replaced);
                violations.push(Violation::ReadOfUncommitted {
                    reader: id(writer),
                    writer: other,
                    object,
                    known: false,
                });
                firsts.push((writer, write));
            }
        }
    }
    firsts.sort_by_key(|(writer, _)| {
        writer.map(|index| {
            let transaction = &history.transactions[index];
            (transaction.commit.unwrap_or(transaction.snapshot), transaction.asked)
        })
    });
    let mut chain = vec![Version { writer: None, stamp: 0, row: None, commit: Some(0), snapshot: 0 }];
    for first in firsts {
        if chain.last().is_some_and(|version| version.row.is_some()) {
            violations.push(Violation::InsertedTwice { object, writer: id(first.0) });
        }
        let mut one = Some(first);
        while let Some((writer, write)) = one {
            one = next.remove(&write.stamp);
            let of = writer.map(|index| &history.transactions[index]);
            chain.push(Version {
                writer,
                stamp: write.stamp,
                row: write.row,
                commit: of.map_or(Some(0), |transaction| transaction.commit),
                snapshot: of.map_or(0, |transaction| transaction.snapshot),
            });
        }
    }
    chain
}
