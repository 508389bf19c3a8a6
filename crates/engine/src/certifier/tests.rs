//! The certifier against a certifier that forgets nothing and looks at every pair.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use cognate_env::SplitMix;

use super::*;
use crate::hash::FIXED;
use crate::key::SmallKey;
use crate::lock::mode::FamilySlot;
use crate::payload::{Encoder, Input};
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
        writes.into_iter().map(|(tree, key)| (tree, key.clone(), FIXED.hash_of(tree, &key), 0)).collect();
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
    /// How far its snapshot has moved.
    lag: Csn,
    commit: Csn,
    points: HashSet<u8>,
    ranges: Vec<(u8, u8)>,
    writes: HashSet<u8>,
    certified: bool,
    /// 0: of none.
    family: u32,
    /// When it began and when it had ended, on a clock of the test's own.
    began: u64,
    ended: Option<u64>,
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
            reads.add_point(&FIXED, TREE, &[point], Moment::Snapshot, Columns::ALL);
        }
        for &(low, high) in &self.ranges {
            reads.add_range(TREE, Bound::Included(&[low]), Bound::Included(&[high]), Moment::Snapshot, None);
        }
        reads
    }

    fn candidate(&self) -> Candidate {
        let reads = self.certified.then(|| self.read_set());
        let writes = self.writes.iter().map(|&number| (TREE, key(number)));
        candidate(self.id, self.start, reads, writes).begun_at(self.first()).of_family(self.slot())
    }

    /// The snapshot at which it began.
    fn first(&self) -> Csn {
        self.start - self.lag
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

/// Whether one had ended before the other began.
fn is_earlier(a: &Deed, b: &Deed) -> bool {
    a.ended.is_some_and(|ended| ended < b.began)
}

/// Whether a way leads from the last of them back to itself, whichever members of the families will
/// commit; with `strict` real time leads on, too.
fn closes_cycle(all: &[Deed], strict: bool) -> bool {
    let Some(own) = all.last() else { return false };
    // Of the first family with several members that are left, one commits.
    let rival = |deed: &&Deed| all.iter().any(|other| deed.is_sibling(other));
    let Some(first) = all.iter().filter(|deed| !deed.is_sibling(own) && deed.id != own.id).find(rival) else {
        let mut left: Vec<Deed> = all.to_vec();
        left.retain(|deed| !deed.is_sibling(own));
        return closes_cycle_of(&left, strict);
    };
    let members: Vec<u64> =
        all.iter().filter(|deed| deed.family == first.family).map(|deed| deed.id).collect();
    members.iter().any(|chosen| {
        let mut left: Vec<Deed> = all.to_vec();
        left.retain(|deed| deed.family != first.family || deed.id == *chosen);
        closes_cycle(&left, strict)
    })
}

fn closes_cycle_of(all: &[Deed], strict: bool) -> bool {
    let candidate = all.len() - 1;
    let (mut visited, mut stack) = (HashSet::new(), vec![candidate]);
    while let Some(at) = stack.pop() {
        for next in 0..all.len() {
            let leads = |a: &Deed, b: &Deed| depends(a, b) || strict && is_earlier(a, b);
            if next != at && leads(&all[at], &all[next]) {
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
    /// Snapshots move past what a write meets, where all that was read still holds.
    moves: bool,
    /// The order has to be one of real time.
    strict: bool,
    /// What the certifier is kept from.
    omission: Option<Omission>,
}

/// A fault that the test has to find.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Omission {
    /// Nobody is reached by real time.
    Later,
    /// Readers that nothing leads to do not enter the graph.
    Readers,
    /// Readers of one key are not certified.
    OneKey,
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
    moves: false,
    strict: false,
    omission: None,
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
    /// Snapshots that moved.
    moved: u64,
    /// Cycles that were told with an edge of real time.
    real_time: u64,
    /// A cycle was let through, as was to be with an omission.
    missed: bool,
}

/// A transaction has met what is newer than its snapshot: whether that moves to the newest one,
/// since nobody has replaced what it has read.
fn move_snapshot(certifier: &mut Certifier, deed: &mut Deed, last: Csn) -> bool {
    // Instances of a family keep theirs.
    if !deed.certified || deed.family > 0 {
        return false;
    }
    let mut reader = Deed { writes: HashSet::new(), ..deed.clone() }.candidate();
    let moves = certifier.stale_read(&mut reader, last).is_none();
    drop(reader.into_reads());
    if moves {
        deed.lag += last - deed.start;
        deed.start = last;
    }
    moves
}

/// Runs a random history; panics where the certifier misses a cycle.
fn run(seed: u64, shape: Shape) -> Tally {
    let mut random = SplitMix::new(seed);
    let mut below = |limit: u64| random.below(limit);
    let strict = shape.strict;
    let method = if strict { Method::Strict } else { Method::Pssi };
    let mut certifier = Certifier::new(method, shape.limit);
    if shape.omission == Some(Omission::Later) {
        certifier.plant(Fault::Later);
    }
    let mut clock = 0;
    let mut committed: Vec<Deed> = Vec::new();
    let mut last_writer: BTreeMap<u8, Csn> = BTreeMap::new();
    let (mut active, mut last, mut tally) = (Vec::<Deed>::new(), 0, Tally::default());
    let mut begun = 0;
    let mut in_doubt: Vec<(Deed, Promise)> = Vec::new();
    let mut families = [1, 2];
    while begun < shape.transactions || !active.is_empty() || !in_doubt.is_empty() {
        clock += 1;
        if active.len() < shape.active && begun < shape.transactions {
            begun += 1;
            let certified = below(10) > 0;
            let family = if shape.siblings && below(2) == 0 { families[below(2) as usize] } else { 0 };
            let began = clock;
            active.push(Deed { id: begun as u64, start: last, certified, family, began, ..Deed::default() });
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
            committed[place].ended = Some(clock);
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
                let moves = changed && shape.moves && move_snapshot(&mut certifier, &mut active[at], last);
                tally.moved += u64::from(moves);
                if changed && !moves {
                    active.remove(at);
                } else if !locked {
                    active[at].writes.insert(number);
                }
            }
            _ => {
                let mut deed = active.remove(at);
                let oldest = active.iter().map(Deed::first).min().unwrap_or(last).min(deed.first());
                if shape.advance && below(3) == 0 {
                    certifier.advance(oldest);
                }
                deed.commit = if deed.writes.is_empty() { last } else { last + 1 };
                let candidate = deed.candidate();
                let one_key = deed.writes.is_empty() && deed.family == 0 && candidate.node.reads.is_one_key();
                if one_key && (!strict || shape.omission == Some(Omission::OneKey)) {
                    // As the sequencer does: it commits unseen by the graph, and must be in no
                    // cycle, now or later.
                    committed.push(Deed { commit: 0, ..deed });
                    tally.missed = closes_cycle(&committed, strict);
                    assert!(
                        !tally.missed || shape.omission.is_some(),
                        "seed {seed}: a reader of one key closes a cycle"
                    );
                    if tally.missed {
                        return tally;
                    }
                    tally.commits += 1;
                    if let Some(own) = committed.last_mut() {
                        own.ended = Some(clock);
                    }
                    continue;
                }
                // As the sequencer does: who reads below everything in the graph is not certified.
                let quiet =
                    deed.writes.is_empty() && deed.family == 0 && deed.start < certifier.quiet_below();
                tally.quiet += u64::from(quiet);
                let verdict = if quiet { Ok(None) } else { certifier.certify(candidate).map(Some) };
                // To whoever reads, it is the last; a reader's number is not one of a version.
                let mut asked = deed.clone();
                asked.commit = if deed.writes.is_empty() { 0 } else { last + 1 };
                committed.push(asked);
                let cycle = closes_cycle(&committed, strict);
                match verdict {
                    Ok(_) if cycle && shape.omission.is_some() => {
                        tally.missed = true;
                        return tally;
                    }
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
                            let alone = deed.writes.is_empty() && certified.graph.before.is_empty();
                            match shape.omission {
                                Some(Omission::Readers) if alone => drop(certified),
                                _ => certified.admit(deed.commit),
                            }
                        }
                        if let Some(own) = committed.last_mut() {
                            own.ended = Some(clock);
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
                        let of_time = |edge: &Edge| edge.dependency == Dependency::RealTime;
                        tally.real_time += u64::from(found.edges.iter().any(of_time));
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
        cycle.is_summarized
            || cycle
                .edges
                .iter()
                .all(|edge| edge.object.is_some() != (edge.dependency == Dependency::RealTime)),
        "seed {seed}: {cycle:?}"
    );
    let of_time = cycle.edges.iter().filter(|edge| edge.dependency == Dependency::RealTime);
    assert!(of_time.count() <= 1 || cycle.is_summarized, "seed {seed}: one is enough: {cycle:?}");
    assert_eq!(cycle.edges[0].dependency, Dependency::ReadWrite, "seed {seed}: the victim committed last");
}

/// Histories of many seeds, without real time and with it; their sum.
fn runs(seeds: u64, strict: bool, shape: impl Fn(u64) -> Shape, mut judge: impl FnMut(u64, &Tally)) -> Tally {
    let mut total = Tally::default();
    for seed in 0..seeds {
        let tally = run(seed, Shape { strict, ..shape(seed) });
        judge(seed, &tally);
        total.commits += tally.commits;
        total.aborts += tally.aborts;
        total.needless += tally.needless;
        total.summaries += tally.summaries;
        total.quiet += tally.quiet;
        total.fulfilled += tally.fulfilled;
        total.withdrawn += tally.withdrawn;
        total.moved += tally.moved;
        total.real_time += tally.real_time;
        total.missed |= tally.missed;
    }
    println!("strict {strict}: {total:?}");
    total
}

fn none_needless(seed: u64, tally: &Tally) {
    assert_eq!(tally.needless, 0, "seed {seed}: an abort was needless");
}

fn mixed(seed: u64) -> Shape {
    Shape {
        keys: 3 + seed % 12,
        active: 2 + (seed as usize) % 7,
        long_reader: seed.is_multiple_of(4),
        advance: !seed.is_multiple_of(3),
        ..PLAIN
    }
}

#[test]
fn verdicts_are_those_of_the_definition() {
    for strict in [false, true] {
        let total = runs(400, strict, mixed, none_needless);
        assert!(
            total.aborts > 200 && total.commits > 5000 && total.quiet > 100,
            "the histories were too tame: {total:?}"
        );
        assert_eq!(total.real_time > 100, strict, "{total:?}");
    }
}

/// Whose snapshot has moved has not begun later: whoever ended in between need not precede it, and
/// whoever had ended before must.
#[test]
fn moved_snapshots_are_no_later_beginnings() {
    for (strict, prepares) in [(false, false), (true, false), (true, true)] {
        let total = runs(400, strict, |seed| Shape { moves: true, prepares, ..mixed(seed) }, none_needless);
        assert!(total.moved > 100 && total.aborts > 100, "{total:?}");
        assert_eq!(total.real_time > 0, strict, "{total:?}");
    }
}

#[test]
fn moved_snapshots_within_a_bound_of_memory_miss_no_cycle() {
    let shape = |seed: u64| {
        let limit = 3000 + (seed as usize % 5) * 3000;
        let long_reader = seed.is_multiple_of(2);
        Shape { transactions: 120, active: 6, long_reader, moves: true, limit, ..PLAIN }
    };
    let total = runs(200, true, shape, |_, _| {});
    assert!(total.summaries > 100 && total.moved > 100 && total.aborts > total.needless, "{total:?}");
}

#[test]
fn a_bound_of_memory_misses_no_cycle() {
    for strict in [false, true] {
        let shape = |seed: u64| {
            let limit = 3000 + (seed as usize % 5) * 3000;
            Shape { transactions: 120, active: 6, long_reader: seed.is_multiple_of(2), limit, ..PLAIN }
        };
        let total = runs(200, strict, shape, |_, _| {});
        assert!(total.summaries > 200 && total.aborts > total.needless, "{total:?}");
    }
}

#[test]
fn prepared_transactions_count_as_committed_ones() {
    for strict in [false, true] {
        let total = runs(400, strict, |seed| Shape { prepares: true, ..mixed(seed) }, none_needless);
        assert!(total.aborts > 200 && total.fulfilled > 1000 && total.withdrawn > 500, "{total:?}");
    }
}

#[test]
fn siblings_are_in_nobodys_way() {
    for strict in [false, true] {
        let shape = |seed: u64| Shape {
            keys: 3 + seed % 9,
            active: 3 + (seed as usize) % 6,
            prepares: seed.is_multiple_of(2),
            siblings: true,
            ..PLAIN
        };
        let total = runs(400, strict, shape, |_, _| {});
        // Needless where a way leads through two members of another family.
        assert!(total.needless * 20 < total.aborts && total.fulfilled > 1000, "{total:?}");
    }
}

#[test]
fn in_doubt_within_a_bound_of_memory_misses_no_cycle() {
    for strict in [false, true] {
        let shape = |seed: u64| {
            let limit = 3000 + (seed as usize % 5) * 3000;
            let siblings = seed.is_multiple_of(2);
            Shape { transactions: 120, active: 6, limit, prepares: true, siblings, ..PLAIN }
        };
        let total = runs(200, strict, shape, |_, _| {});
        assert!(total.summaries > 100 && total.aborts > 100, "{total:?}");
    }
}

/// What the histories above prove: without any of these the certifier lets something through.
#[test]
fn histories_find_what_real_time_needs() {
    for omission in [Omission::Later, Omission::Readers, Omission::OneKey] {
        let total = runs(400, true, |seed| Shape { omission: Some(omission), ..mixed(seed) }, |_, _| {});
        assert!(total.missed, "{omission:?}");
    }
}

#[test]
fn what_is_in_doubt_for_long_keeps_memory_within_the_bound() {
    let limit = 200_000;
    let mut certifier = Certifier::new(Method::Pssi, limit);
    let read = |number: u64| {
        let mut reads = ReadSet::default();
        reads.add_point(&FIXED, TREE, &number.to_be_bytes(), Moment::Snapshot, Columns::ALL);
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
        reads.add_point(&FIXED, TREE, b"doubt", Moment::Snapshot, Columns::ALL);
        reads.add_point(&FIXED, TREE, &7_u64.to_be_bytes(), Moment::Snapshot, Columns::ALL);
        candidate(30_000, 20_000, Some(reads), [(TREE, key(1))])
    };
    certifier.certify(late()).expect_err("before the prepared one, and after those that come after it");
    certifier.withdraw(promise);
    certifier.certify(late()).expect("nothing is in doubt any more").admit(20_001);
    certifier.advance(20_001);
    assert_eq!((certifier.nodes.len(), certifier.forgetful), (0, 0));
}

/// Q comes before P, and both are prepared. At the bound of memory Q forgets that: P's commit marks
/// it all the same, once.
#[test]
fn who_has_forgotten_a_prepared_successor_is_marked_when_that_commits() {
    let mut certifier = Certifier::new(Method::Pssi, 0);
    let mut reads = ReadSet::default();
    reads.add_point(&FIXED, TREE, &key(1), Moment::Snapshot, Columns::ALL);
    let prepared = candidate(1, 0, None, [(TREE, key(1))]);
    let p = certifier.certify(prepared).expect("nobody is there").admit_prepared(false);
    let prepared = candidate(2, 0, Some(reads), [(TREE, key(2))]);
    let q = certifier.certify(prepared).expect("before P").admit_prepared(false);
    certifier.advance(0);
    assert_eq!((certifier.forgetful, certifier.is_marked(&q)), (1, false));
    assert_eq!(certifier.overtaken_by(&p).to_vec(), [2]);
    assert!(certifier.is_marked(&q) && certifier.overtaken_by(&p).is_empty());
    certifier.fulfil(p, 1);
    certifier.withdraw(q);
    assert_eq!((certifier.forgetful, certifier.forgetting.len()), (0, 0));
}

#[test]
fn a_long_reader_keeps_memory_within_the_bound_and_fails_nobody_else() {
    let limit = 200_000;
    let mut certifier = Certifier::new(Method::Pssi, limit);
    // A reader with snapshot 0 runs for the whole time; the others come one after the other.
    for number in 1..=20_000_u64 {
        let mut reads = ReadSet::default();
        let hot = SmallKey::new(&(number % 5000).to_be_bytes());
        reads.add_point(&FIXED, TREE, &hot, Moment::Snapshot, Columns::ALL);
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

/// How a history ends under both: (start, reads, writes), each asking to commit in this order.
#[track_caller]
fn differ(history: &[(Csn, &[u8], &[u8])], refused: usize) {
    let all = vec![true; history.len()];
    assert_eq!(verdicts(Method::Pssi, history), all);
    let strictly: Vec<bool> = (0..history.len()).map(|place| place != refused).collect();
    assert_eq!(verdicts(Method::Strict, history), strictly);
}

#[test]
fn who_began_after_another_was_acknowledged_comes_after_it() {
    let (x, y) = (1, 2);
    // T3 runs long and reads x; T1 writes x; T2 begins then and reads y; T3 writes y. Serially T2,
    // T3, T1: a reader of one key, one of two, and a writer.
    differ(&[(0, &[], &[x]), (1, &[y], &[]), (0, &[x], &[y])], 2);
    differ(&[(0, &[], &[x]), (1, &[y, 3], &[]), (0, &[x], &[y])], 2);
    differ(&[(0, &[], &[x]), (1, &[y], &[9]), (0, &[x], &[y])], 2);
    // T3 commits before T2 does, and not after T2 began: it is T2's turn to be refused.
    differ(&[(0, &[], &[x]), (0, &[x], &[y]), (1, &[y], &[])], 2);
    differ(&[(0, &[], &[x]), (0, &[x], &[y]), (1, &[y, 3], &[9])], 2);
    // T2 began before T1 was there: it may come before it.
    let concurrent: &[(Csn, &[u8], &[u8])] = &[(0, &[], &[x]), (0, &[y], &[]), (0, &[x], &[y])];
    assert_eq!(verdicts(Method::Strict, concurrent), [true, true, true]);
    // T2 sees what T3 wrote: T3 before T1 contradicts nothing, since both ran at once.
    let seen: &[(Csn, &[u8], &[u8])] = &[(0, &[], &[x]), (0, &[x], &[y]), (2, &[y], &[])];
    assert_eq!(verdicts(Method::Strict, seen), [true, true, true]);
}

#[test]
fn one_edge_of_real_time_stands_for_several() {
    // A ends, then B runs, then D: real time leads from A to B to D, and so from A to D. The long
    // one reads what A wrote, and writes what D read.
    let (a, b, d) = (1, 2, 3);
    differ(&[(0, &[], &[a]), (1, &[9], &[b]), (2, &[d], &[]), (0, &[a], &[d])], 3);
    // Real time, then dependencies: B begins after A, B -rw-> E, E -rw-> the long one.
    differ(&[(0, &[], &[a]), (1, &[b], &[8]), (0, &[d], &[b]), (0, &[a], &[d])], 3);
    // A dependency, then real time back: the long one -rw-> E -rw-> A, and A had ended when the
    // long one began.
    differ(&[(0, &[], &[a]), (0, &[a], &[b]), (1, &[b], &[8])], 2);
}

#[test]
fn who_wrote_nothing_and_lies_between() {
    // R sees A, and had ended when B began; the long one reads what A wrote and writes what B read.
    differ(&[(0, &[], &[1]), (1, &[1, 5], &[]), (1, &[2], &[8]), (0, &[1], &[2])], 3);
    // A ends after B began, whatever R has seen: nothing leads to B.
    let apart: &[(Csn, &[u8], &[u8])] = &[(0, &[5], &[]), (0, &[2], &[8]), (0, &[], &[1]), (0, &[1], &[2])];
    assert_eq!(verdicts(Method::Strict, apart), [true, true, true, true]);
}

#[test]
fn a_cycle_of_real_time_is_told_as_one() {
    let mut certifier = Certifier::new(Method::Strict, usize::MAX);
    let deed = |id, start, reads: &[u8], writes: &[u8]| Deed {
        id,
        start,
        points: reads.iter().copied().collect(),
        writes: writes.iter().copied().collect(),
        certified: true,
        ..Deed::default()
    };
    certifier.certify(deed(1, 0, &[], &[1]).candidate()).expect("alone").admit(1);
    certifier.certify(deed(2, 1, &[2], &[]).candidate()).expect("it began later").admit(1);
    let cycle = certifier.certify(deed(3, 0, &[1], &[2]).candidate()).expect_err("2 after 1");
    let told = |edge: &Edge| (edge.from, edge.dependency.short_name(), edge.to);
    let told: Vec<_> = cycle.edges.iter().map(told).collect();
    assert_eq!(told, [(3, "rw", 1), (1, "real time", 2), (2, "rw", 3)]);
    assert_eq!((cycle.edges[1].object.as_ref(), cycle.is_summarized), (None, false));
}

/// The first writes 1 and commits; the second reads 2 at a snapshot that shows it, and began at
/// `began`; the third has read 1 before, and writes 2. Serially the second, the third, the first.
fn around_a_moved_snapshot(began: Csn, image: bool) -> Result<(), Box<Cycle>> {
    let deed = |id, start, reads: &[u8], writes: &[u8]| Deed {
        id,
        start,
        points: reads.iter().copied().collect(),
        writes: writes.iter().copied().collect(),
        certified: true,
        ..Deed::default()
    };
    let mut certifier = Certifier::new(Method::Strict, usize::MAX);
    certifier.certify(deed(1, 0, &[], &[1]).candidate()).expect("alone").admit(1);
    let moved = Deed { lag: 1 - began, ..deed(2, 1, &[2], &[]) };
    certifier.certify(moved.candidate()).expect("nothing leads back").admit(1);
    if image {
        let mut out = Encoder::with_capacity(256);
        certifier.encode(&mut out);
        let bytes = out.finish();
        certifier = Certifier::new(Method::Strict, usize::MAX);
        let mut input = Input::of(&bytes);
        assert!(certifier.restore(&mut input, &FIXED).expect("it was encoded").is_empty());
        input.end().expect("it is all");
    }
    certifier.certify(deed(3, 0, &[1], &[2]).candidate()).map(drop)
}

#[test]
fn who_ended_before_a_snapshot_moved_need_not_precede_it() {
    for image in [false, true] {
        let refused = around_a_moved_snapshot(1, image).expect_err("it began after the first had ended");
        assert!(refused.edges.iter().any(|edge| edge.dependency == Dependency::RealTime), "{refused:?}");
        assert_eq!(around_a_moved_snapshot(0, image), Ok(()), "it began before; in an image: {image}");
    }
}

/// An edge of real time too many, never one too few.
#[test]
fn a_beginning_that_is_too_far_back_counts_as_later() {
    let start = Csn::from(u32::MAX) + 10;
    let began = |began| {
        let candidate = Candidate::new(1, start, None, KeyWrites::new(), Vec::new()).begun_at(began);
        candidate.node.began()
    };
    assert_eq!([3, 10, 11, start, start + 1].map(began), [10, 10, 11, start, start]);
}

/// The same where it is the moved one that asks last.
#[test]
fn a_moved_snapshot_refuses_nobody_for_real_time() {
    let verdict = |lag| {
        let mut certifier = Certifier::new(Method::Strict, usize::MAX);
        let deed = |id, start, reads: &[u8], writes: &[u8]| Deed {
            id,
            start,
            lag: if id == 3 { lag } else { 0 },
            points: reads.iter().copied().collect(),
            writes: writes.iter().copied().collect(),
            certified: true,
            ..Deed::default()
        };
        certifier.certify(deed(1, 0, &[], &[1]).candidate()).expect("alone").admit(1);
        certifier.certify(deed(2, 0, &[1], &[2]).candidate()).expect("before the first").admit(2);
        certifier.certify(deed(3, 1, &[2], &[3]).candidate()).map(drop)
    };
    assert!(verdict(0).is_err(), "3 → 2 → 1 → 3: it began when 1 had ended");
    assert_eq!(verdict(1), Ok(()), "it began before 1 ended");
}

#[test]
fn real_time_of_what_was_summarized() {
    // As above, but that 1 and 2 are one node, of which only 1 had ended when 3 began.
    let mut certifier = Certifier::new(Method::Strict, 1);
    let reads = |key: u8| {
        let mut reads = ReadSet::default();
        reads.add_point(&FIXED, TREE, &[key], Moment::Snapshot, Columns::ALL);
        Some(reads)
    };
    certifier.certify(candidate(1, 0, None, [(TREE, key(1))])).expect("alone").admit(1);
    certifier.certify(candidate(2, 0, None, [(TREE + 1, key(1))])).expect("apart").admit(2);
    certifier.certify(candidate(3, 1, reads(2), [])).expect("it began later").admit(2);
    certifier.advance(0);
    assert_eq!((certifier.summaries, certifier.nodes.len()), (1, 2));
    let late = candidate(4, 0, reads(1), [(TREE, key(2))]);
    let cycle = certifier.certify(late).expect_err("3 after 1");
    assert!(cycle.is_summarized);
    // Who has a new snapshot is not concerned.
    certifier.certify(candidate(5, 2, reads(1), [(TREE, key(2))])).expect("it began last").admit(3);
}

/// Of what was summarized it is the first commit that counts: who leads to that leads to before all
/// snapshots that show it.
#[test]
fn a_watched_snapshot_is_not_safe_from_who_leads_to_a_summary() {
    let reads = |key: u8| {
        let mut reads = ReadSet::default();
        reads.add_point(&FIXED, TREE, &[key], Moment::Snapshot, Columns::ALL);
        Some(reads)
    };
    let mut certifier = Certifier::new(Method::Pssi, 1);
    // A reader at 1 sees what 1 wrote. 2 commits later, and both become one node.
    certifier.certify(candidate(1, 0, None, [(TREE, key(1))])).expect("alone").admit(1);
    let watch = certifier.watch(1);
    certifier.certify(candidate(2, 1, None, [(TREE + 1, key(1))])).expect("apart").admit(2);
    certifier.advance(0);
    assert_eq!((certifier.summaries, certifier.nodes.len()), (1, 1));
    // 3 comes before 1, and replaces what the reader has seen: 3 → 1 → reader → 3.
    certifier.certify(candidate(3, 0, reads(1), [(TREE, key(2))])).expect("nobody precedes it").admit(3);
    assert!(!certifier.end_watch(watch));
    // Who sees all of them leads nowhere.
    let watch = certifier.watch(3);
    certifier.certify(candidate(4, 3, reads(1), [(TREE, key(2))])).expect("it is the last").admit(4);
    assert!(certifier.end_watch(watch));
}

#[test]
fn who_is_prepared_has_not_ended() {
    let reads = |key: u8| {
        let mut reads = ReadSet::default();
        reads.add_point(&FIXED, TREE, &[key], Moment::Snapshot, Columns::ALL);
        Some(reads)
    };
    for decided in [false, true] {
        let mut certifier = Certifier::new(Method::Strict, usize::MAX);
        // P writes x and is prepared; what commits meanwhile is no business of its.
        let prepared = candidate(1, 0, None, [(TREE, key(1))]);
        let promise = certifier.certify(prepared).expect("alone").admit_prepared(false);
        certifier.certify(candidate(2, 0, None, [(TREE, key(7))])).expect("apart").admit(1);
        let promise = if decided {
            certifier.fulfil(promise, 2);
            None
        } else {
            Some(promise)
        };
        // R begins after the decision, or after the PREPARE only.
        let start = if decided { 2 } else { 1 };
        certifier.certify(candidate(3, start, reads(2), [])).expect("nothing is out of order").admit(start);
        // The long one reads x as it was before P, and writes what R read.
        let long = certifier.certify(candidate(4, 0, reads(1), [(TREE, key(2))]));
        assert_eq!(long.is_ok(), !decided, "P precedes R only if it was decided when R began");
        drop(long);
        if let Some(promise) = promise {
            // Rolled back, it is before nobody.
            certifier.withdraw(promise);
            certifier.certify(candidate(4, 0, reads(1), [(TREE, key(2))])).expect("P never was").admit(2);
        }
        certifier.advance(3);
        assert_eq!((certifier.nodes.len(), certifier.bytes), (0, 0));
    }
}

#[test]
fn real_time_leads_to_who_is_prepared() {
    let reads = |key: u8| {
        let mut reads = ReadSet::default();
        reads.add_point(&FIXED, TREE, &[key], Moment::Snapshot, Columns::ALL);
        Some(reads)
    };
    let mut certifier = Certifier::new(Method::Strict, usize::MAX);
    certifier.certify(candidate(1, 0, None, [(TREE, key(1))])).expect("alone").admit(1);
    // P begins after 1 had committed, reads y and is prepared.
    let prepared = candidate(2, 1, reads(2), [(TREE, key(9))]);
    let promise = certifier.certify(prepared).expect("it began later").admit_prepared(false);
    let cycle = certifier.certify(candidate(3, 0, reads(1), [(TREE, key(2))])).expect_err("P after 1");
    assert_eq!(cycle.in_doubt, Some(2));
    certifier.withdraw(promise);
    drop(certifier.certify(candidate(3, 0, reads(1), [(TREE, key(2))])).expect("P never was"));
}

#[test]
fn latest_reads_come_behind_their_writer() {
    // T2 reads x at snapshot 0, and, under a lock, the newest y, which T1 wrote together with x.
    let mut certifier = Certifier::new(Method::Pssi, usize::MAX);
    let first = candidate(1, 0, None, [(TREE, key(1)), (TREE, key(2))]);
    certifier.certify(first).expect("nobody is there").admit(1);
    let reads = |latest: bool| {
        let mut reads = ReadSet::default();
        reads.add_point(&FIXED, TREE, &[1], Moment::Snapshot, Columns::ALL);
        if latest {
            reads.add_point(&FIXED, TREE, &[2], Moment::Latest, Columns::ALL);
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
    reads.add_point(&FIXED, TREE, &[1], Moment::Snapshot, Columns::ALL);
    let reader = candidate(1, 0, Some(reads), [(2, key(9))]);
    certifier.certify(reader).expect("nobody is there").admit(1);
    let mut reads = ReadSet::default();
    reads.add_point(&FIXED, 2, &[9], Moment::Snapshot, Columns::ALL);
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
    reads.add_point(&FIXED, TREE, &77_u32.to_be_bytes(), Moment::Snapshot, Columns::ALL);
    let late = candidate(2, 0, Some(reads), [(TREE, SmallKey::new(&78_u32.to_be_bytes()))]);
    certifier.certify(late).expect_err("it read before and writes after");
}

/// What a prepared transaction has written in ranges is not to be seen, also by who reads the
/// newest.
#[test]
fn latest_reads_come_before_ranges_that_are_prepared() {
    let number = |number: u32| SmallKey::new(&number.to_be_bytes());
    for is_range in [false, true] {
        let mut certifier = Certifier::new(Method::Pssi, usize::MAX);
        let point = |tree: TreeId, key: &SmallKey, moment| {
            let mut reads = ReadSet::default();
            reads.add_point(&FIXED, tree, key, moment, Columns::ALL);
            reads
        };
        // P reads x and writes very much. What is written after that in place of x comes after P.
        let many = (0..10_000).map(|at| (TREE, number(at)));
        let prepared = candidate(1, 0, Some(point(2, &key(1), Moment::Snapshot)), many);
        let promise = certifier.certify(prepared).expect("nobody is there").admit_prepared(false);
        // R reads the newest of what P writes, which is what was there before P, and writes x.
        let mut reads = ReadSet::default();
        if is_range {
            let (low, high) = (number(77), number(78));
            let (low, high) = (Bound::Included(&low[..]), Bound::Included(&high[..]));
            reads.add_range(TREE, low, high, Moment::Latest, None);
        } else {
            reads = point(TREE, &number(77), Moment::Latest);
        }
        let reader = || candidate(2, 0, Some(reads.copy()), [(2, key(1))]);
        let cycle = certifier.certify(reader()).expect_err("before P, and after it");
        assert_eq!(cycle.in_doubt, Some(1));
        certifier.withdraw(promise);
        drop(certifier.certify(reader()).expect("P never was"));
    }
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
