//! The certifier against a certifier that forgets nothing and looks at every pair.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use cognate_env::SplitMix;

use super::*;
use crate::hash::hash_of;
use crate::key::SmallKey;
use crate::lock::mode::FamilySlot;
use crate::txn::readset::{RangeRead, ReadSet};
use crate::txn::writeset::KeyWrites;
use crate::{TransactionId, TreeId};

const TREE: TreeId = 1;

fn candidate(
    id: TransactionId,
    start: Csn,
    reads: Option<ReadSet>,
    writes: impl IntoIterator<Item = (TreeId, SmallKey)>,
) -> Candidate {
    let mut writes: KeyWrites =
        writes.into_iter().map(|(tree, key)| (tree, key.clone(), hash_of(tree, &key), 0)).collect();
    writes.sort();
    Candidate::new(id, start, reads, writes, Vec::new())
}

fn key(number: u8) -> SmallKey {
    SmallKey::new(&[number])
}

/// A transaction of the model: keys are numbers.
#[derive(Debug, Clone, Default)]
struct Deed {
    id: TransactionId,
    start: Csn,
    commit: Csn,
    points: HashSet<u8>,
    ranges: Vec<(u8, u8)>,
    writes: HashSet<u8>,
    certified: bool,
    /// 0: of none.
    family: u32,
}

impl Deed {
    fn reads(&self, key: u8) -> bool {
        self.certified
            && (self.points.contains(&key)
                || self.ranges.iter().any(|&(low, high)| low <= key && key <= high))
    }

    fn read_set(&self) -> ReadSet {
        let mut reads = ReadSet::default();
        for &point in &self.points {
            reads.add_point(TREE, &[point], Moment::Snapshot, Columns::ALL);
        }
        for &(low, high) in &self.ranges {
            reads.add_range(TREE, Bound::Included(&[low]), Bound::Included(&[high]), Moment::Snapshot, None);
        }
        reads
    }

    fn candidate(&self) -> Candidate {
        let reads = self.certified.then(|| self.read_set());
        let writes = self.writes.iter().map(|&number| (TREE, key(number)));
        candidate(self.id, self.start, reads, writes).of_family(self.slot())
    }

    fn slot(&self) -> Option<FamilySlot> {
        FamilySlot::new(self.family)
    }

    fn is_sibling(&self, other: &Deed) -> bool {
        self.id != other.id && prepared::siblings(self.slot(), other.slot())
    }
}

/// Every dependency between two transactions, by the definition.
fn depends(a: &Deed, b: &Deed) -> bool {
    a.writes
        .iter()
        .any(|&key| (b.reads(key) && a.commit <= b.start) || (b.writes.contains(&key) && a.commit < b.commit))
        || b.writes.iter().any(|&key| a.reads(key) && a.start < b.commit)
}

/// Whether a way leads from the last of them back to itself, whichever members of the families will
/// commit.
fn closes_cycle(all: &[Deed]) -> bool {
    let Some(own) = all.last() else { return false };
    // Of the first family with several members that are left, one commits.
    let rival = |deed: &&Deed| all.iter().any(|other| deed.is_sibling(other));
    let Some(first) = all.iter().filter(|deed| !deed.is_sibling(own) && deed.id != own.id).find(rival) else {
        let mut left: Vec<Deed> = all.to_vec();
        left.retain(|deed| !deed.is_sibling(own));
        return closes_cycle_of(&left);
    };
    let members: Vec<u64> =
        all.iter().filter(|deed| deed.family == first.family).map(|deed| deed.id).collect();
    members.iter().any(|chosen| {
        let mut left: Vec<Deed> = all.to_vec();
        left.retain(|deed| deed.family != first.family || deed.id == *chosen);
        closes_cycle(&left)
    })
}

fn closes_cycle_of(all: &[Deed]) -> bool {
    let candidate = all.len() - 1;
    let (mut visited, mut stack) = (HashSet::new(), vec![candidate]);
    while let Some(at) = stack.pop() {
        for next in 0..all.len() {
            if next != at && depends(&all[at], &all[next]) {
                if next == candidate {
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

fn listed(all: &[Deed]) -> String {
    all.iter().map(|deed| format!("{deed:?}\n")).collect()
}

#[derive(Clone, Copy)]
struct Shape {
    keys: u64,
    transactions: usize,
    active: usize,
    /// One transaction stays open for the whole history.
    long_reader: bool,
    advance: bool,
    limit: usize,
    /// Some are prepared first, and decided later.
    prepares: bool,
    /// Some of these are siblings.
    siblings: bool,
}

/// A history of transactions that commit at once.
const PLAIN: Shape = Shape {
    keys: 8,
    transactions: 60,
    active: 4,
    long_reader: false,
    advance: true,
    limit: usize::MAX,
    prepares: false,
    siblings: false,
};

#[derive(Default, Debug)]
struct Tally {
    commits: u64,
    aborts: u64,
    needless: u64,
    nodes_max: usize,
    bytes_max: usize,
    summaries: u64,
    quiet: u64,
    fulfilled: u64,
    withdrawn: u64,
}

/// Runs a random history; panics where the certifier misses a cycle.
fn run(seed: u64, shape: Shape) -> Tally {
    let mut random = SplitMix::new(seed);
    let mut below = |limit: u64| random.below(limit);
    let mut certifier = Certifier::new(Method::Pssi, shape.limit);
    let mut committed: Vec<Deed> = Vec::new();
    let mut last_writer: BTreeMap<u8, Csn> = BTreeMap::new();
    let (mut active, mut last, mut tally) = (Vec::<Deed>::new(), 0, Tally::default());
    let mut begun = 0;
    let mut in_doubt: Vec<(Deed, Promise)> = Vec::new();
    let mut families = [1, 2];
    while begun < shape.transactions || !active.is_empty() || !in_doubt.is_empty() {
        if active.len() < shape.active && begun < shape.transactions {
            begun += 1;
            let certified = below(10) > 0;
            let family = if shape.siblings && below(2) == 0 { families[below(2) as usize] } else { 0 };
            active.push(Deed { id: begun as u64, start: last, certified, family, ..Deed::default() });
            continue;
        }
        if !in_doubt.is_empty() && (active.is_empty() || below(12) == 0) {
            let (mut deed, promise) = in_doubt.swap_remove(below(in_doubt.len() as u64) as usize);
            let place = committed.iter().position(|other| other.id == deed.id).expect("it is prepared");
            if below(3) == 0 {
                certifier.withdraw(promise);
                committed.remove(place);
                tally.withdrawn += 1;
                continue;
            }
            if !deed.writes.is_empty() {
                last += 1;
                committed[place].commit = last;
            }
            last_writer.extend(deed.writes.iter().map(|&key| (key, last)));
            deed.commit = last;
            committed[place].family = 0;
            certifier.fulfil(promise, last);
            tally.fulfilled += 1;
            families.iter_mut().filter(|family| **family == deed.family).for_each(|family| *family += 2);
            // The winner's siblings are aborted in the same step.
            active.retain(|other| !other.is_sibling(&deed));
            for (loser, promise) in in_doubt.extract_if(.., |(other, _)| other.is_sibling(&deed)) {
                certifier.withdraw(promise);
                committed.retain(|other| other.id != loser.id);
            }
            continue;
        }
        let first = usize::from(shape.long_reader && active.len() > 1 && begun < shape.transactions);
        let at = first + below((active.len() - first) as u64) as usize;
        let number = below(shape.keys) as u8;
        if first == 1 && below(8) == 0 {
            active[0].points.insert(number);
        }
        match below(8) {
            0..=2 => {
                active[at].points.insert(number);
            }
            3 => {
                let high = number.saturating_add(below(3) as u8);
                active[at].ranges.push((number, high));
            }
            4..=5 => {
                let mut others = active.iter().chain(in_doubt.iter().map(|(deed, _)| deed));
                let locked = others.any(|other| {
                    let own = other.id == active[at].id || other.is_sibling(&active[at]);
                    !own && other.writes.contains(&number)
                });
                let changed = last_writer.get(&number).is_some_and(|&commit| commit > active[at].start);
                if changed {
                    active.remove(at);
                } else if !locked {
                    active[at].writes.insert(number);
                }
            }
            _ => {
                let mut deed = active.remove(at);
                let oldest = active.iter().map(|other| other.start).min().unwrap_or(last).min(deed.start);
                if shape.advance && below(3) == 0 {
                    certifier.advance(oldest);
                }
                deed.commit = if deed.writes.is_empty() { last } else { last + 1 };
                let candidate = deed.candidate();
                if deed.writes.is_empty() && deed.family == 0 && candidate.node.reads.is_one_key() {
                    // As the manager does: it commits unseen by the graph, and must be in no cycle,
                    // now or later.
                    committed.push(Deed { commit: 0, ..deed });
                    assert!(!closes_cycle(&committed), "seed {seed}: a reader of one key closes a cycle");
                    tally.commits += 1;
                    continue;
                }
                // As the manager does: who reads below everything in the graph is not certified.
                let quiet =
                    deed.writes.is_empty() && deed.family == 0 && deed.start < certifier.quiet_below();
                tally.quiet += u64::from(quiet);
                let verdict = if quiet { Ok(None) } else { certifier.certify(candidate).map(Some) };
                // To whoever reads, it is the last; a reader's number is not one of a version.
                let mut asked = deed.clone();
                asked.commit = if deed.writes.is_empty() { 0 } else { last + 1 };
                committed.push(asked);
                let cycle = closes_cycle(&committed);
                match verdict {
                    Ok(certified) => {
                        assert!(
                            !cycle,
                            "seed {seed}: transaction {} closes a cycle:\n{}",
                            deed.id,
                            listed(&committed)
                        );
                        // Who is a member of a family never commits otherwise.
                        if let Some(certified) = certified {
                            if deed.family > 0 || shape.prepares && below(3) == 0 {
                                if let Some(own) = committed.last_mut().filter(|own| !own.writes.is_empty()) {
                                    own.commit = Csn::MAX;
                                }
                                in_doubt.push((deed, certified.admit_prepared(false)));
                                continue;
                            }
                            certified.admit(deed.commit);
                        }
                        last = deed.commit;
                        deed.writes.iter().for_each(|&key| {
                            last_writer.insert(key, deed.commit);
                        });
                        tally.commits += 1;
                    }
                    Err(found) => {
                        committed.pop();
                        tally.aborts += 1;
                        tally.needless += u64::from(!cycle);
                        check_description(seed, &found, deed.id);
                    }
                }
                tally.nodes_max = tally.nodes_max.max(certifier.nodes.len());
                tally.bytes_max = tally.bytes_max.max(certifier.bytes);
            }
        }
    }
    tally.summaries = certifier.summaries;
    certifier.advance(last);
    assert_eq!(
        (certifier.nodes.len(), certifier.bytes),
        (0, 0),
        "seed {seed}: everything is pruned in the end"
    );
    assert!(certifier.index.is_empty(), "seed {seed}");
    tally
}

fn check_description(seed: u64, cycle: &Cycle, victim: TransactionId) {
    assert_eq!(cycle.victim, victim);
    assert_eq!(cycle.edges.first().map(|edge| edge.from), Some(victim), "seed {seed}");
    assert_eq!(cycle.edges.last().map(|edge| edge.to), Some(victim), "seed {seed}");
    assert!(cycle.edges.windows(2).all(|pair| pair[0].to == pair[1].from), "seed {seed}: {cycle:?}");
    assert!(
        cycle.is_summarized || cycle.edges.iter().all(|edge| edge.object.is_some()),
        "seed {seed}: {cycle:?}"
    );
    assert_eq!(cycle.edges[0].dependency, Dependency::ReadWrite, "seed {seed}: the victim committed last");
}

#[test]
fn verdicts_are_those_of_the_definition() {
    let mut total = Tally::default();
    for seed in 0..400 {
        let shape = Shape {
            keys: 3 + seed % 12,
            transactions: 60,
            active: 2 + (seed as usize) % 7,
            long_reader: seed % 4 == 0,
            advance: seed % 3 > 0,
            ..PLAIN
        };
        let tally = run(seed, shape);
        assert_eq!(tally.needless, 0, "seed {seed}: an abort was needless");
        total.commits += tally.commits;
        total.aborts += tally.aborts;
        total.quiet += tally.quiet;
    }
    assert!(
        total.aborts > 200 && total.commits > 5000 && total.quiet > 100,
        "the histories were too tame: {total:?}"
    );
}

#[test]
fn a_bound_of_memory_misses_no_cycle() {
    let mut total = Tally::default();
    for seed in 0..200 {
        let limit = 3000 + (seed as usize % 5) * 3000;
        let shape = Shape { transactions: 120, active: 6, long_reader: seed % 2 == 0, limit, ..PLAIN };
        let tally = run(seed, shape);
        total.aborts += tally.aborts;
        total.needless += tally.needless;
        total.summaries += tally.summaries;
    }
    assert!(total.summaries > 200 && total.aborts > total.needless, "{total:?}");
}

#[test]
fn prepared_transactions_count_as_committed_ones() {
    let mut total = Tally::default();
    for seed in 0..400 {
        let shape = Shape {
            keys: 3 + seed % 12,
            active: 2 + (seed as usize) % 7,
            long_reader: seed % 4 == 0,
            advance: seed % 3 > 0,
            prepares: true,
            ..PLAIN
        };
        let tally = run(seed, shape);
        assert_eq!(tally.needless, 0, "seed {seed}: an abort was needless");
        total.aborts += tally.aborts;
        total.fulfilled += tally.fulfilled;
        total.withdrawn += tally.withdrawn;
    }
    assert!(total.aborts > 200 && total.fulfilled > 1000 && total.withdrawn > 500, "{total:?}");
}

#[test]
fn siblings_are_in_nobodys_way() {
    let mut total = Tally::default();
    for seed in 0..400 {
        let shape = Shape {
            keys: 3 + seed % 9,
            active: 3 + (seed as usize) % 6,
            prepares: seed % 2 == 0,
            siblings: true,
            ..PLAIN
        };
        let tally = run(seed, shape);
        total.aborts += tally.aborts;
        total.needless += tally.needless;
        total.fulfilled += tally.fulfilled;
        total.withdrawn += tally.withdrawn;
    }
    // Needless where a way leads through two members of another family.
    assert!(total.needless * 20 < total.aborts && total.fulfilled > 1000, "{total:?}");
}

#[test]
fn in_doubt_within_a_bound_of_memory_misses_no_cycle() {
    let mut total = Tally::default();
    for seed in 0..200 {
        let limit = 3000 + (seed as usize % 5) * 3000;
        let siblings = seed % 2 == 0;
        let shape = Shape { transactions: 120, active: 6, limit, prepares: true, siblings, ..PLAIN };
        let tally = run(seed, shape);
        total.aborts += tally.aborts;
        total.summaries += tally.summaries;
    }
    assert!(total.summaries > 100 && total.aborts > 100, "{total:?}");
}

#[test]
fn what_is_in_doubt_for_long_keeps_memory_within_the_bound() {
    let limit = 200_000;
    let mut certifier = Certifier::new(Method::Pssi, limit);
    let read = |number: u64| {
        let mut reads = ReadSet::default();
        reads.add_point(TREE, &number.to_be_bytes(), Moment::Snapshot, Columns::ALL);
        Some(reads)
    };
    let prepared = candidate(1, 0, read(7), [(TREE, SmallKey::new(b"doubt"))]);
    let promise = certifier.certify(prepared).expect("nobody is there").admit_prepared(false);
    // All of these come after it, one after the other.
    for number in 1..=20_000_u64 {
        let own = [(TREE, SmallKey::new(&7_u64.to_be_bytes()))];
        let next = candidate(number + 1, number - 1, read(7), own);
        certifier.certify(next).expect("a transaction with a new snapshot commits").admit(number);
        certifier.advance(number);
        assert!(certifier.bytes <= limit, "{} bytes after {number}", certifier.bytes);
    }
    let late = || {
        let mut reads = ReadSet::default();
        reads.add_point(TREE, b"doubt", Moment::Snapshot, Columns::ALL);
        reads.add_point(TREE, &7_u64.to_be_bytes(), Moment::Snapshot, Columns::ALL);
        candidate(30_000, 20_000, Some(reads), [(TREE, key(1))])
    };
    certifier.certify(late()).expect_err("before the prepared one, and after those that come after it");
    certifier.withdraw(promise);
    certifier.certify(late()).expect("nothing is in doubt any more").admit(20_001);
    certifier.advance(20_001);
    assert_eq!((certifier.nodes.len(), certifier.forgetful), (0, 0));
}

#[test]
fn a_long_reader_keeps_memory_within_the_bound_and_fails_nobody_else() {
    let limit = 200_000;
    let mut certifier = Certifier::new(Method::Pssi, limit);
    // A reader with snapshot 0 runs for the whole time; the others come one after the other.
    for number in 1..=20_000_u64 {
        let mut reads = ReadSet::default();
        let hot = SmallKey::new(&(number % 5000).to_be_bytes());
        reads.add_point(TREE, &hot, Moment::Snapshot, Columns::ALL);
        let candidate = candidate(number, number - 1, Some(reads), [(TREE, hot)]);
        certifier.certify(candidate).expect("a transaction with a new snapshot commits").admit(number);
        certifier.advance(0);
        assert!(certifier.bytes <= limit, "{} bytes after {number}", certifier.bytes);
    }
    assert!(certifier.summaries > 1);
    certifier.advance(20_000);
    assert_eq!(certifier.nodes.len(), 0);
}

/// Runs transactions one after the other: (start, reads, writes), each asking to commit in this
/// order.
fn verdicts(method: Method, history: &[(Csn, &[u8], &[u8])]) -> Vec<bool> {
    let mut certifier = Certifier::new(method, usize::MAX);
    let mut last = 0;
    let verdict = |(place, &(start, reads, writes)): (usize, &(Csn, &[u8], &[u8]))| {
        let deed = Deed {
            id: place as u64 + 1,
            start,
            points: reads.iter().copied().collect(),
            writes: writes.iter().copied().collect(),
            certified: true,
            ..Deed::default()
        };
        let candidate = deed.candidate();
        let Ok(certified) = certifier.certify(candidate) else { return false };
        last += u64::from(!deed.writes.is_empty());
        certified.admit(last);
        true
    };
    history.iter().enumerate().map(verdict).collect()
}

#[test]
fn write_skew_and_its_look_alike() {
    let skew: &[(Csn, &[u8], &[u8])] = &[(0, &[1, 2], &[1]), (0, &[1, 2], &[2])];
    assert_eq!(verdicts(Method::Pssi, skew), [true, false]);
    assert_eq!(verdicts(Method::Ssi, skew), [true, false]);
    let harmless: &[(Csn, &[u8], &[u8])] = &[(0, &[1], &[1]), (0, &[1, 2], &[2])];
    assert_eq!(verdicts(Method::Pssi, harmless), [true, true]);
}

#[test]
fn the_read_only_anomaly() {
    // T1 and T2 start at 0; T2 commits; T3 reads what T2 wrote and what T1 will write; T1 has read
    // what T2 wrote.
    let anomaly: &[(Csn, &[u8], &[u8])] = &[(0, &[2], &[2]), (1, &[1, 2], &[]), (0, &[1, 2], &[1])];
    assert_eq!(verdicts(Method::Pssi, anomaly), [true, true, false]);
    // Without the reader there is an order: T1, T2.
    let harmless: &[(Csn, &[u8], &[u8])] = &[(0, &[2], &[2]), (0, &[1, 2], &[1])];
    assert_eq!(verdicts(Method::Pssi, harmless), [true, true]);
}

#[test]
fn a_dangerous_structure_without_a_cycle() {
    // T1 -rw-> T2 -rw-> T3, T3 first; nothing leads back.
    let chain: &[(Csn, &[u8], &[u8])] = &[(0, &[], &[3]), (0, &[3], &[2]), (0, &[2], &[1])];
    assert_eq!(verdicts(Method::Pssi, chain), [true, true, true]);
    assert_eq!(verdicts(Method::Ssi, chain), [true, true, false]);
}

#[test]
fn an_edge_between_transactions_that_were_not_concurrent() {
    // T1 reads x and commits before T2, which overwrites x, begins. T0, with an old snapshot, reads
    // y, which T1 wrote, and writes w, which T2 read: T0 -> T1 -> T2 -> T0.
    let cycle: &[(Csn, &[u8], &[u8])] = &[(0, &[1], &[2]), (1, &[5], &[1]), (0, &[2], &[5])];
    assert_eq!(verdicts(Method::Pssi, cycle), [true, true, false]);
    // T2 writes something else: nothing leads from T1 to T2. Dangerous structures see only T2 ->
    // T0 -> T1.
    let harmless: &[(Csn, &[u8], &[u8])] = &[(0, &[1], &[2]), (1, &[5], &[9]), (0, &[2], &[5])];
    assert_eq!(verdicts(Method::Pssi, harmless), [true, true, true]);
    assert_eq!(verdicts(Method::Ssi, harmless), [true, true, false]);
}

#[test]
fn latest_reads_come_behind_their_writer() {
    // T2 reads x at snapshot 0, and, under a lock, the newest y, which T1 wrote together with x.
    let mut certifier = Certifier::new(Method::Pssi, usize::MAX);
    let first = candidate(1, 0, None, [(TREE, key(1)), (TREE, key(2))]);
    certifier.certify(first).expect("nobody is there").admit(1);
    let reads = |latest: bool| {
        let mut reads = ReadSet::default();
        reads.add_point(TREE, &[1], Moment::Snapshot, Columns::ALL);
        if latest {
            reads.add_point(TREE, &[2], Moment::Latest, Columns::ALL);
        }
        Some(reads)
    };
    drop(certifier.certify(candidate(2, 0, reads(false), [(TREE, key(3))])).expect("an order exists: 2, 1"));
    let cycle =
        certifier.certify(candidate(2, 0, reads(true), [(TREE, key(3))])).expect_err("2 before 1 before 2");
    let kinds: Vec<_> = cycle.edges.iter().map(|edge| edge.dependency.short_name()).collect();
    assert_eq!(kinds, ["rw", "wr"]);
}

#[test]
fn a_dropped_tree_was_read_before() {
    let mut certifier = Certifier::new(Method::Pssi, usize::MAX);
    let mut reads = ReadSet::default();
    reads.add_point(TREE, &[1], Moment::Snapshot, Columns::ALL);
    let reader = candidate(1, 0, Some(reads), [(2, key(9))]);
    certifier.certify(reader).expect("nobody is there").admit(1);
    let mut reads = ReadSet::default();
    reads.add_point(2, &[9], Moment::Snapshot, Columns::ALL);
    let dropper = Candidate { dropped: vec![TREE], ..candidate(2, 0, Some(reads), []) };
    certifier.certify(dropper).expect_err("it read what 1 overwrote, and drops what 1 read");
}

#[test]
fn very_many_writes_are_ranges() {
    let mut certifier = Certifier::new(Method::Pssi, usize::MAX);
    let many = (0..10_000_u32).map(|number| (TREE, SmallKey::new(&number.to_be_bytes())));
    let loader = candidate(1, 0, None, many);
    certifier.certify(loader).expect("nobody is there").admit(1);
    assert!(certifier.bytes < 100_000, "{}", certifier.bytes);
    let mut reads = ReadSet::default();
    reads.add_point(TREE, &77_u32.to_be_bytes(), Moment::Snapshot, Columns::ALL);
    let late = candidate(2, 0, Some(reads), [(TREE, SmallKey::new(&78_u32.to_be_bytes()))]);
    certifier.certify(late).expect_err("it read before and writes after");
}

#[test]
fn range_reads_of_a_set_are_ranges_of_the_index() {
    let range = RangeRead {
        tree: TREE,
        moment: Moment::Snapshot,
        lower: Bound::Excluded(key(3)),
        upper: Bound::Included(key(5)),
        interest: None,
    };
    let index = index::TreeIndex::default();
    assert_eq!(index.written_in(&range.lower, &range.upper).count(), 0);
    assert_eq!(
        index.written_in(&range.upper, &range.lower).count(),
        0,
        "a range that ends before it begins is empty"
    );
}
