//! Columns and conditions: random histories over rows with a few columns, against definitions that
//! know all values.
//!
//! Three judges. *By columns*: each column of a row is an object with versions of its own, and a
//! reader depends on the columns that it looked at: a cycle of these dependencies must never
//! commit. *By rows*: the same, but `wr` and `ww` between all neighbours of a row, as the certifier
//! draws them: nobody may be refused without a cycle of these. *By running it again*: what has
//! committed is run one after the other in an order that the dependencies leave, and every reader
//! must get the answer that it got. Snapshots move past what a write meets, exactly where nobody
//! has changed what was seen.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use cognate_env::SplitMix;

use super::*;
use crate::hash::FIXED;
use crate::key::SmallKey;
use crate::txn::change::{Change, Effects};
use crate::txn::columns::{Condition, Interest, Known, Test};
use crate::txn::readset::ReadSet;
use crate::txn::writeset::KeyWrites;
use crate::{TransactionId, TreeId};

const TREE: TreeId = 1;
const WIDTH: usize = 3;

/// A row, if it is there. A value of 0 is NULL.
type Row = Option<[u64; WIDTH]>;
type Answer = Vec<(u8, Vec<u64>)>;

fn known(value: u64) -> Known {
    if value == 0 { Known::Null } else { Known::Code(value) }
}

/// What one statement looks at.
#[derive(Debug, Clone)]
struct Look {
    low: u8,
    high: u8,
    columns: Vec<usize>,
    conditions: Vec<Condition>,
}

impl Look {
    fn is_point(&self) -> bool {
        self.low == self.high && self.conditions.is_empty()
    }

    fn covers(&self, key: u8) -> bool {
        (self.low..=self.high).contains(&key)
    }

    /// What it gets of one row.
    fn of(&self, row: &Row) -> Option<Vec<u64>> {
        let row = row.as_ref()?;
        let met = |one: &Condition| one.may_hold(known(row[one.column as usize]));
        self.conditions.iter().all(met).then(|| self.columns.iter().map(|column| row[*column]).collect())
    }

    fn answer(&self, rows: &BTreeMap<u8, Row>) -> Answer {
        let in_range = rows.range(self.low..=self.high);
        in_range.filter_map(|(key, row)| Some((*key, self.of(row)?))).collect()
    }

    fn interest(&self) -> Interest {
        let columns = self.columns.iter().fold(Columns::NONE, |columns, column| columns.with(*column));
        Interest::new(columns, self.conditions.iter().copied())
    }

    /// The columns that decide the answer; [`WIDTH`] stands for the row's being there.
    fn objects(&self) -> HashSet<usize> {
        let looked_at = self.conditions.iter().map(|one| one.column as usize);
        self.columns.iter().copied().chain(looked_at).chain([WIDTH]).collect()
    }
}

#[derive(Debug, Clone, Default)]
struct Deed {
    id: TransactionId,
    start: Csn,
    commit: Csn,
    looks: Vec<(Look, Answer)>,
    /// Before and after, and whether that is told to the certifier.
    writes: BTreeMap<u8, (Row, Row, bool)>,
    certified: bool,
}

/// The objects that a write changes.
fn changed((before, after, _): &(Row, Row, bool)) -> HashSet<usize> {
    match (before, after) {
        (Some(before), Some(after)) => (0..WIDTH).filter(|place| before[*place] != after[*place]).collect(),
        (None, None) => HashSet::new(),
        _ => (0..=WIDTH).collect(),
    }
}

impl Deed {
    fn candidate(&self) -> Candidate {
        let mut reads = ReadSet::default();
        for (look, _) in &self.looks {
            let interest = look.interest();
            if look.is_point() {
                reads.add_point(&FIXED, TREE, &[look.low], Moment::Snapshot, interest.columns());
                continue;
            }
            let (lower, upper) = ([look.low], [look.high]);
            let (lower, upper) = (Bound::Included(&lower[..]), Bound::Included(&upper[..]));
            reads.add_range(TREE, lower, upper, Moment::Snapshot, Some(Arc::new(interest)));
        }
        let (mut writes, mut effects) = (KeyWrites::new(), Effects::default());
        for (key, (before, after, told)) in &self.writes {
            let of = |row: Row| move |column: usize| row.map_or(Known::Unknown, |row| known(row[column]));
            let change = match (before, after) {
                (Some(was), Some(is)) => {
                    Change::update(WIDTH, |column| was[column] != is[column], of(*before), of(*after))
                }
                (None, _) => Change::insert(WIDTH, of(*after)),
                (_, None) => Change::delete(WIDTH, of(*before)),
            };
            let place = if *told { effects.add(&change) } else { 0 };
            writes.push((TREE, SmallKey::new(&[*key]), FIXED.hash_of(TREE, &[*key]), place));
        }
        let reads = self.certified.then_some(reads);
        Candidate::new(self.id, self.start, reads, writes, Vec::new()).with_effects(effects)
    }

    /// Whether another one's later write makes a difference to it.
    fn minds(&self, other: &Deed) -> bool {
        let differs = |look: &Look, key: &u8, write: &(Row, Row, bool)| {
            look.covers(*key)
                && (!write.2
                    || (look.of(&write.0).is_some() || look.of(&write.1).is_some())
                        && !look.objects().is_disjoint(&changed(write)))
        };
        other.writes.iter().any(|(key, write)| self.looks.iter().any(|(look, _)| differs(look, key, write)))
    }

    fn reads(&self, key: u8) -> bool {
        self.looks.iter().any(|(look, _)| look.covers(key))
    }
}

/// As the certifier draws them, between all and not only neighbours.
fn depends_by_rows(a: &Deed, b: &Deed) -> bool {
    let before = |key: &u8| {
        b.certified && b.reads(*key) && a.commit <= b.start
            || b.writes.contains_key(key) && a.commit < b.commit
    };
    a.writes.keys().any(before) || a.certified && a.start < b.commit && a.minds(b)
}

/// Each column for itself.
fn depends_by_columns(a: &Deed, b: &Deed) -> bool {
    let objects = |look: &Look, key: u8| if look.covers(key) { look.objects() } else { HashSet::new() };
    a.writes.iter().any(|(key, write)| {
        let mine = changed(write);
        let read = |(look, _): &(Look, Answer)| !objects(look, *key).is_disjoint(&mine);
        let wrote = |other: &(Row, Row, bool)| !changed(other).is_disjoint(&mine);
        b.certified
            && a.commit <= b.start
            && b.looks.iter().any(read)
            // What left the conditions, or never met them, is not told by columns.
            && b.looks.iter().any(|(look, _)| look.of(&write.0).is_some() || look.of(&write.1).is_some())
            || a.commit < b.commit && b.writes.get(key).is_some_and(wrote)
    }) || a.certified && a.start < b.commit && differs_by_columns(a, b)
}

fn differs_by_columns(reader: &Deed, writer: &Deed) -> bool {
    let differs = |(look, _): &(Look, Answer), key: &u8, write: &(Row, Row, bool)| {
        look.covers(*key) && look.of(&write.0) != look.of(&write.1)
    };
    writer.writes.iter().any(|(key, write)| reader.looks.iter().any(|look| differs(look, key, write)))
}

/// Whether a way leads from the last of them back to itself.
fn closes_cycle(all: &[Deed], depends: fn(&Deed, &Deed) -> bool) -> bool {
    let last = all.len() - 1;
    let (mut visited, mut stack) = (HashSet::new(), vec![last]);
    while let Some(at) = stack.pop() {
        for next in 0..all.len() {
            if next != at && depends(&all[at], &all[next]) {
                if next == last {
                    return true;
                }
                if visited.insert(next) {
                    stack.push(next);
                }
            }
        }
    }
    false
}

/// Runs them one after the other in an order that the dependencies leave.
fn run_again(seed: u64, all: &[Deed], loaded: &BTreeMap<u8, Row>) {
    let mut left: Vec<&Deed> = all.iter().collect();
    let mut rows = loaded.clone();
    while !left.is_empty() {
        // The youngest of those that nobody must precede: as far from the order of the commits as
        // it may be.
        let free = |one: &&Deed| !left.iter().any(|other| other.id != one.id && depends_by_rows(other, one));
        let next = left.iter().copied().filter(free).max_by_key(|one| one.id);
        let next = next.unwrap_or_else(|| panic!("seed {seed}: no order is left of {left:?}"));
        left.retain(|other| other.id != next.id);
        for (look, answer) in next.looks.iter().filter(|_| next.certified) {
            assert_eq!(look.answer(&rows), *answer, "seed {seed}: {next:?} looked at something else");
        }
        for (key, (before, after, _)) in &next.writes {
            assert_eq!(rows.insert(*key, *after), Some(*before), "seed {seed}: row {key}, {next:?}");
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    keys: u8,
    transactions: u64,
    active: usize,
    long_reader: bool,
    prepares: bool,
    limit: usize,
    /// One write of so many is not told.
    untold: u64,
}

const PLAIN: Shape = Shape {
    keys: 4,
    transactions: 60,
    active: 5,
    long_reader: false,
    prepares: false,
    limit: usize::MAX,
    untold: 8,
};

#[derive(Debug, Default)]
struct Tally {
    commits: u64,
    aborts: u64,
    needless: u64,
    /// Of those that committed, how many a certifier of whole rows would have refused.
    gained: u64,
    /// Snapshots that moved past what a write had met, and those that could not.
    moved: u64,
    stale: u64,
    summaries: u64,
}

struct World {
    random: SplitMix,
    seed: u64,
    shape: Shape,
    certifier: Certifier,
    /// All versions of all rows, the oldest first.
    versions: BTreeMap<u8, Vec<(Csn, Row)>>,
    loaded: BTreeMap<u8, Row>,
    committed: Vec<Deed>,
    active: Vec<Deed>,
    in_doubt: Vec<(Deed, Promise)>,
    last: Csn,
    tally: Tally,
}

impl World {
    fn new(seed: u64, shape: Shape) -> World {
        let mut random = SplitMix::new(seed);
        let mut row = || (random.below(4) > 0).then(|| std::array::from_fn(|_| random.below(4)));
        let loaded: BTreeMap<u8, Row> = (0..shape.keys).map(|key| (key, row())).collect();
        let versions = loaded.iter().map(|(key, row)| (*key, vec![(0, *row)])).collect();
        World {
            random,
            seed,
            shape,
            certifier: Certifier::new(Method::Pssi, shape.limit),
            versions,
            loaded,
            committed: Vec::new(),
            active: Vec::new(),
            in_doubt: Vec::new(),
            last: 0,
            tally: Tally::default(),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.below(limit)
    }

    fn shown(&self, start: Csn) -> BTreeMap<u8, Row> {
        let at =
            |list: &Vec<(Csn, Row)>| list.iter().rev().find(|version| version.0 <= start).expect("loaded").1;
        self.versions.iter().map(|(key, list)| (*key, at(list))).collect()
    }

    fn look(&mut self) -> Look {
        let low = self.below(u64::from(self.shape.keys)) as u8;
        let is_point = self.below(2) == 0;
        let high = if is_point { low } else { low + self.below(3) as u8 };
        let columns = (0..WIDTH).filter(|_| self.random.below(3) == 0).collect();
        let count = if is_point { 0 } else { self.below(3) };
        let tests = [Test::Less, Test::Equal, Test::Different, Test::AtLeast, Test::IsNull, Test::IsNotNull];
        let mut condition = || Condition {
            column: self.random.below(WIDTH as u64) as u32,
            test: tests[self.random.below(tests.len() as u64) as usize],
            code: 1 + self.random.below(3),
        };
        let conditions = (0..count).map(|_| condition()).collect();
        Look { low, high, columns, conditions }
    }

    /// A transaction looks at something, as its snapshot and its own writes show it. What it wrote
    /// itself, it need not remember.
    fn read(&mut self, at: usize) {
        let look = self.look();
        let shown = self.shown(self.active[at].start);
        if (look.low..=look.high).any(|key| self.active[at].writes.contains_key(&key)) {
            return;
        }
        let answer = look.answer(&shown);
        self.active[at].looks.push((look, answer));
    }

    /// A transaction writes a row; first updater wins, unless the snapshot can move.
    fn write(&mut self, at: usize) {
        let key = self.below(u64::from(self.shape.keys)) as u8;
        let (id, start) = (self.active[at].id, self.active[at].start);
        let mut others = self.active.iter().chain(self.in_doubt.iter().map(|(deed, _)| deed));
        if others.any(|other| other.id != id && other.writes.contains_key(&key))
            || self.active[at].writes.contains_key(&key)
        {
            return;
        }
        let (csn, before) = *self.versions[&key].last().expect("loaded");
        if csn > start && !self.moves(at) {
            self.active.remove(at);
            return;
        }
        let kind = self.below(8);
        let after = match before {
            None => Some(std::array::from_fn(|_| self.random.below(4))),
            Some(_) if kind == 0 => None,
            Some(mut row) => {
                let column = self.below(WIDTH as u64) as usize;
                row[column] = self.below(4);
                Some(row)
            }
        };
        let told = self.below(self.shape.untold) > 0;
        self.active[at].writes.insert(key, (before, after, told));
    }

    /// A transaction has met what is newer than its snapshot: whether that moves to the newest one.
    /// It does exactly if nobody since has changed what it saw.
    fn moves(&mut self, at: usize) -> bool {
        if !self.active[at].certified {
            return false;
        }
        let (seed, last) = (self.seed, self.last);
        let reader = Deed { writes: BTreeMap::new(), ..self.active[at].clone() };
        let mut asks = reader.candidate();
        let stale = self.certifier.stale_read(&mut asks, last);
        drop(asks.into_reads());
        let since = |other: &&Deed| other.commit > reader.start && other.commit <= last;
        let is_replaced = self.committed.iter().filter(since).any(|other| reader.minds(other));
        if let Some(read) = stale {
            assert!(is_replaced || read.is_summarized, "seed {seed}: {read:?} of {reader:?}");
            self.tally.stale += 1;
            return false;
        }
        assert!(!is_replaced, "seed {seed}: {reader:?} has seen what is not so any more");
        let shown = self.shown(last);
        for (look, answer) in &reader.looks {
            assert_eq!(look.answer(&shown), *answer, "seed {seed}: {reader:?}");
        }
        self.active[at].start = last;
        self.tally.moved += 1;
        true
    }

    fn install(&mut self, deed: &Deed) {
        for (key, write) in &deed.writes {
            self.versions.get_mut(key).expect("loaded").push((deed.commit, write.1));
        }
    }

    fn decide(&mut self) {
        let at = self.below(self.in_doubt.len() as u64) as usize;
        let (mut deed, promise) = self.in_doubt.swap_remove(at);
        let place = self.committed.iter().position(|other| other.id == deed.id).expect("it is prepared");
        if self.below(3) == 0 {
            self.certifier.withdraw(promise);
            self.committed.remove(place);
            return;
        }
        self.last += u64::from(!deed.writes.is_empty());
        deed.commit = self.last;
        if !deed.writes.is_empty() {
            self.committed[place].commit = self.last;
        }
        self.install(&deed);
        self.certifier.fulfil(promise, deed.commit);
    }

    fn commit(&mut self, at: usize) {
        let mut deed = self.active.remove(at);
        let starts = self.active.iter().map(|other| other.start);
        let oldest = starts.min().unwrap_or(self.last).min(deed.start);
        if self.below(3) == 0 {
            self.certifier.advance(oldest);
        }
        deed.commit = self.last + u64::from(!deed.writes.is_empty());
        let asked = Deed { commit: if deed.writes.is_empty() { 0 } else { deed.commit }, ..deed.clone() };
        self.committed.push(asked);
        let seed = self.seed;
        let by_rows = closes_cycle(&self.committed, depends_by_rows);
        let by_columns = closes_cycle(&self.committed, depends_by_columns);
        let prepares = self.shape.prepares && self.below(3) == 0;
        match self.certifier.certify(deed.candidate()) {
            Err(cycle) => {
                self.committed.pop();
                self.tally.aborts += 1;
                self.tally.needless += u64::from(!by_rows);
                let named = cycle.edges.iter().all(|edge| edge.object.is_some());
                assert!(cycle.is_summarized || named, "seed {seed}: {cycle:?}");
            }
            Ok(certified) => {
                assert!(!by_columns, "seed {seed}: {deed:?} closes a cycle:\n{:?}", self.committed);
                assert!(!by_rows, "seed {seed}: {deed:?} closes a cycle of rows:\n{:?}", self.committed);
                if prepares {
                    let own = self.committed.last_mut().expect("it was pushed");
                    own.commit = if deed.writes.is_empty() { 0 } else { Csn::MAX };
                    let promise = certified.admit_prepared(false);
                    self.in_doubt.push((deed, promise));
                    return;
                }
                certified.admit(deed.commit);
                self.last = deed.commit;
                self.install(&deed);
                self.tally.commits += 1;
                self.tally.gained += u64::from(closes_cycle(&self.committed, depends_as_whole));
            }
        }
    }

    fn run(mut self) -> Tally {
        let mut begun = 0;
        while begun < self.shape.transactions || !self.active.is_empty() || !self.in_doubt.is_empty() {
            if self.active.len() < self.shape.active && begun < self.shape.transactions {
                begun += 1;
                let certified = self.below(10) > 0;
                self.active.push(Deed { id: begun, start: self.last, certified, ..Deed::default() });
                continue;
            }
            if !self.in_doubt.is_empty() && (self.active.is_empty() || self.below(12) == 0) {
                self.decide();
                continue;
            }
            let stays = self.shape.long_reader && self.active.len() > 1 && begun < self.shape.transactions;
            let first = usize::from(stays);
            let at = first + self.below((self.active.len() - first) as u64) as usize;
            if stays && self.below(8) == 0 {
                self.read(0);
            }
            match self.below(8) {
                0..=3 => self.read(at),
                4..=5 => self.write(at),
                _ => self.commit(at),
            }
        }
        run_again(self.seed, &self.committed, &self.loaded);
        self.certifier.advance(self.last);
        assert_eq!((self.certifier.nodes.len(), self.certifier.bytes), (0, 0), "seed {}", self.seed);
        assert!(self.certifier.index.is_empty(), "seed {}", self.seed);
        self.tally.summaries = self.certifier.summaries;
        self.tally
    }
}

/// As if every read and every write were of whole rows.
fn depends_as_whole(a: &Deed, b: &Deed) -> bool {
    depends_by_rows(a, b) || a.certified && a.start < b.commit && b.writes.keys().any(|key| a.reads(*key))
}

fn total(seeds: u64, shape: impl Fn(u64) -> Shape) -> Tally {
    let mut total = Tally::default();
    for seed in 0..seeds {
        let tally = World::new(seed, shape(seed)).run();
        total.commits += tally.commits;
        total.aborts += tally.aborts;
        total.needless += tally.needless;
        total.gained += tally.gained;
        total.moved += tally.moved;
        total.stale += tally.stale;
        total.summaries += tally.summaries;
    }
    total
}

#[test]
fn verdicts_are_those_of_columns_and_conditions() {
    let total = total(400, |seed| Shape {
        keys: 2 + (seed % 5) as u8,
        active: 2 + (seed as usize) % 6,
        long_reader: seed % 4 == 0,
        untold: if seed % 3 == 0 { u64::MAX } else { 8 },
        ..PLAIN
    });
    assert_eq!(total.needless, 0, "{total:?}");
    assert!(total.aborts > 200 && total.commits > 5000 && total.gained > 500, "{total:?}");
    assert!(total.moved > 100 && total.stale > 100, "{total:?}");
}

#[test]
fn prepared_transactions_leave_readers_as_they_were() {
    let total = total(400, |seed| Shape {
        keys: 2 + (seed % 4) as u8,
        active: 3 + (seed as usize) % 4,
        long_reader: seed % 4 == 0,
        prepares: true,
        ..PLAIN
    });
    assert_eq!(total.needless, 0, "{total:?}");
    assert!(total.aborts > 200 && total.gained > 300, "{total:?}");
}

/// Summaries: some are refused needlessly, and nobody is let through.
#[test]
fn a_bound_of_memory_costs_precision_only() {
    let total = total(100, |seed| Shape {
        transactions: 120,
        active: 6,
        long_reader: seed % 2 == 0,
        prepares: seed % 3 == 0,
        limit: 3000 + (seed as usize % 5) * 3000,
        ..PLAIN
    });
    assert!(total.summaries > 100 && total.aborts > total.needless, "{total:?}");
}

/// A write leaves so many readers behind it as they were; with more, it comes after all of them.
#[test]
fn a_write_leaves_a_few_readers_as_they_were() {
    for (readers, preceding) in [(3, 0), (SPARED_MAX, 0), (SPARED_MAX + 1, SPARED_MAX as u32 + 1)] {
        let mut certifier = Certifier::new(Method::Pssi, usize::MAX);
        let write = |key: &[u8], place| (TREE, SmallKey::new(key), FIXED.hash_of(TREE, key), place);
        for number in 1..=readers as u64 {
            let mut reads = ReadSet::default();
            reads.add_point(&FIXED, TREE, b"row", Moment::Snapshot, Columns::PRESENCE.with(1));
            let own = [write(&number.to_be_bytes(), 0)].into_iter().collect();
            let reader = Candidate::new(number, 0, Some(reads), own, Vec::new());
            certifier.certify(reader).expect("nothing leads to it").admit(number);
        }
        // Twice: they are readers of the first one's version, too.
        for (id, start) in [(1000, readers as u64), (1001, readers as u64 + 1)] {
            let mut effects = Effects::default();
            let change = Change::update(2, |column| column == 0, |_| Known::Code(1), |_| Known::Code(2));
            let writes = [write(b"row", effects.add(&change))].into_iter().collect();
            let writer = Candidate::new(id, start, None, writes, Vec::new()).with_effects(effects);
            certifier.certify(writer).expect("it has read nothing").admit(start + 1);
            let degree =
                |id| certifier.nodes.iter().find(|(_, node)| node.id == id).map(|(_, node)| node.in_degree);
            // The second one comes after the first.
            assert_eq!(degree(id), Some(if id == 1000 { preceding } else { 1 }), "{readers} readers");
        }
        // Now the column that they have read: whom nobody has concerned yet precedes this one.
        let last = readers as u64 + 2;
        let writes = [write(b"row", 0)].into_iter().collect();
        let writer = Candidate::new(1002, last, None, writes, Vec::new());
        certifier.certify(writer).expect("it has read nothing").admit(last + 1);
        let degree = certifier.nodes.iter().find(|(_, node)| node.id == 1002).map(|(_, node)| node.in_degree);
        assert_eq!(degree, Some(1 + readers as u32 - preceding), "{readers} readers");
    }
}
