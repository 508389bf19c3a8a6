//! The oracle against a judge that tries every serial order.
//!
//! A serial order is equivalent if, executed one after the other, each transaction replaces the
//! versions that it replaced, and each scan returns what it returned, by the same changes of its
//! range: a row that was not there may not have come and gone in between, since that is what a
//! dependency graph means by a predicate read. Nor may a row of which only the existence was told.

use std::collections::{BTreeMap, HashSet};

use cognate_harness::checker::history::{
    Abort, Event, History, Outcome, Predicate, Row, Transaction, standing,
};
use cognate_harness::checker::verdict::Verdict;
use cognate_harness::random::Random;

use super::model::{Model, Snapshots, Step};

const KEYS: i64 = 4;
const GROUPS: i64 = 3;

/// Versions of each key in order: writer (0 for the load) and values; the first is the absence.
type Chains = BTreeMap<i64, Vec<(u64, Option<Row>)>>;

/// Under snapshot isolation; each commit is by chance an abort, as if by a certifier that throws
/// dice.
///
/// With `existence`, some reads tell only that a row is there. With `refreshes`, who meets a newer
/// row goes on at the newest snapshot if all that it has read is still so, and nobody writes what
/// another one has locked.
fn generate(random: &mut Random, existence: bool, refreshes: bool) -> Model {
    let rows: Vec<(i64, i64)> = (0..KEYS)
        .filter_map(|key| {
            let group = random.between(0, GROUPS);
            (group < GROUPS).then_some((key, group))
        })
        .collect();
    let mut model = Model::new(&rows, Snapshots::First);
    let count = random.between(2, 5) as u64;
    let mut left: Vec<(u64, i64)> = (1..=count).map(|id| (id, random.between(1, 4))).collect();
    while !left.is_empty() {
        let at = random.between(0, left.len() as i64 - 1) as usize;
        let (id, steps) = left[at];
        let mut step = step(random, existence);
        if steps == 0 {
            step = if random.chance(30) { Step::Abort(Abort::Certifier) } else { Step::Commit };
        }
        if let Step::Put(key, _) | Step::Delete(key) = step
            && model.conflicts(id, key)
        {
            if refreshes && model.is_locked(id, key) {
                left[at].1 -= 1;
                continue;
            }
            match refreshes && model.is_fresh(id) {
                true => model.refresh(id),
                false => step = Step::Abort(Abort::FirstUpdater),
            }
        }
        model.step(id, step);
        match step {
            Step::Commit | Step::Abort(_) => drop(left.swap_remove(at)),
            _ => left[at].1 -= 1,
        }
    }
    model
}

fn step(random: &mut Random, existence: bool) -> Step {
    let key = random.between(0, KEYS - 1);
    let group = random.between(0, GROUPS - 1);
    match random.between(0, 6) {
        0 if existence => Step::There(key, random.chance(50)),
        0 | 1 => Step::Keys(key, key),
        2 => Step::Keys(key, KEYS),
        3 => Step::Groups(group, group),
        4 => Step::Put(key, group),
        5 if random.chance(50) => Step::Save,
        5 => Step::TakeBack,
        _ if random.chance(60) => Step::Put(key, group),
        _ => Step::Delete(key),
    }
}

fn chains(model: &Model) -> Chains {
    let mut chains = Chains::new();
    for (key, versions) in &model.versions {
        let chain = chains.entry(*key).or_insert_with(|| vec![(0, None)]);
        chain.extend(versions.iter().map(|version| (version.writer, version.row.clone())));
    }
    chains
}

/// How often a row entered or left a range up to a place of its chain.
fn changes(chain: &[(u64, Option<Row>)], predicate: &Predicate, place: usize) -> usize {
    let holds = |version: &(u64, Option<Row>)| predicate.holds(version.1.as_ref());
    chain[..=place].windows(2).filter(|pair| holds(&pair[0]) != holds(&pair[1])).count()
}

/// Whether this transaction, run alone on a state (the place of each key's version), does what it
/// did; then the state after it.
fn replay(
    transaction: &Transaction,
    model: &Model,
    chains: &Chains,
    state: &BTreeMap<i64, usize>,
) -> Option<BTreeMap<i64, usize>> {
    let own = |events: &[Event]| -> HashSet<i64> {
        standing(events).into_iter().map(|write| write.object.key).collect()
    };
    for (place, event) in transaction.events.iter().enumerate() {
        let (predicate, seen, snapshot, as_it_is) = match event {
            Event::Scan(scan) => (scan.predicate, &scan.seen[..], scan.snapshot, false),
            Event::Exists(exists) => (exists.predicate, &[][..], exists.snapshot, exists.as_it_is),
            Event::Met(_) | Event::Write(_) | Event::TakenBack(_) => continue,
        };
        let own = own(&transaction.events[..place]);
        for (key, chain) in chains.iter().filter(|(key, _)| !own.contains(key)) {
            let now = state[key];
            let held = model.at(*key, snapshot);
            let then = held.map_or(0, |held| {
                1 + model.versions[key].iter().position(|v| v.stamp == held.stamp).unwrap()
            });
            let seen = seen.iter().any(|(seen, _)| seen == key) || as_it_is && predicate.low == *key;
            let same = match seen {
                true => now == then,
                false => changes(chain, &predicate, now) == changes(chain, &predicate, then),
            };
            if !same {
                return None;
            }
        }
    }
    let mut after = state.clone();
    for key in own(&transaction.events) {
        let place = after.get_mut(&key).unwrap();
        *place += 1;
        if chains[&key].get(*place).is_none_or(|(writer, _)| *writer != transaction.id) {
            return None;
        }
    }
    Some(after)
}

/// Whether some order of these, starting from a state, is equivalent; with `strict` one in which
/// who had ended comes before who began afterwards.
fn some_order(
    left: &[&Transaction],
    model: &Model,
    chains: &Chains,
    state: &BTreeMap<i64, usize>,
    strict: bool,
) -> bool {
    if left.is_empty() {
        return true;
    }
    (0..left.len()).any(|at| {
        if strict && left.iter().any(|other| other.answered < left[at].began) {
            return false;
        }
        let Some(after) = replay(left[at], model, chains, state) else { return false };
        let rest: Vec<&Transaction> = left.iter().copied().filter(|t| t.id != left[at].id).collect();
        some_order(&rest, model, chains, &after, strict)
    })
}

fn serializable(of: &[&Transaction], model: &Model, chains: &Chains, strict: bool) -> bool {
    let loaded = |chain: &Vec<(u64, Option<Row>)>| usize::from(chain.len() > 1 && chain[1].0 == 0);
    let start = chains.iter().map(|(key, chain)| (*key, loaded(chain))).collect();
    some_order(of, model, chains, &start, strict)
}

/// Whether a later snapshot would have served a transaction that met a newer row: run alone on what
/// had been committed by then it does what it did.
fn would_fit(victim: &Transaction, by_then: &[&Transaction], model: &Model) -> bool {
    let chains = with_victim(victim, by_then, model);
    let others = |chain: &[(u64, Option<Row>)]| chain.iter().filter(|(id, _)| *id != victim.id).count();
    let newest = chains.iter().map(|(key, chain)| (*key, others(chain) - 1)).collect();
    replay(victim, model, &chains, &newest).is_some()
}

/// The chains as of an abort, with the victim's versions at their ends.
fn with_victim(victim: &Transaction, committed: &[&Transaction], model: &Model) -> Chains {
    let mut chains = as_of(committed, model);
    for write in victim.net_writes() {
        let chain = chains.entry(write.object.key).or_insert_with(|| vec![(0, None)]);
        chain.push((victim.id, write.row));
    }
    chains
}

#[test]
fn the_oracle_agrees_with_every_serial_order() {
    agree(20_000, false, false);
}

#[test]
fn the_oracle_agrees_about_rows_of_which_only_the_existence_is_known() {
    agree(20_000, true, false);
}

#[test]
fn the_oracle_agrees_where_snapshots_move() {
    agree(20_000, false, true);
}

/// How aborts were judged.
#[derive(Debug, Default)]
struct Tally {
    anomalies: u32,
    /// Serializable, but not in the order of real time.
    out_of_time: u32,
    justified: u32,
    needless: u32,
    /// Justified by real time alone.
    by_time: u32,
    stale: u32,
    needless_conflicts: u32,
}

fn agree(seeds: u64, existence: bool, refreshes: bool) {
    let first = std::env::var("COGNATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    println!("COGNATE_SEED={first}");
    let mut tally = Tally::default();
    for seed in first..first + seeds {
        let model = generate(&mut Random::new(seed), existence, refreshes);
        // Existence is judged with commit numbers only.
        let exact = |judge: fn(&History) -> Verdict| judge(&model.history);
        let [verdict, strict] = match existence {
            true => [exact(Verdict::of), exact(Verdict::strictly)],
            false => [super::verdict(&model), super::judged_twice(&model, Verdict::strictly)],
        };
        let told = || format!("COGNATE_SEED={seed}: {verdict}\n{strict}\n{:#?}", model.history);
        let committed: Vec<&Transaction> =
            model.history.transactions.iter().filter(|t| t.committed()).collect();
        let sound = serializable(&committed, &model, &chains(&model), false);
        assert_eq!(verdict.serializable(), sound, "{}", told());
        let in_time = serializable(&committed, &model, &chains(&model), true);
        assert_eq!(verdict.strictly_serializable(), in_time, "{}", told());
        tally.anomalies += u32::from(!sound);
        tally.out_of_time += u32::from(sound && !in_time);
        for victim in &model.history.transactions {
            let by_then: Vec<&Transaction> =
                committed.iter().copied().filter(|t| t.answered <= victim.asked).collect();
            match victim.outcome {
                Outcome::Aborted(Abort::FirstUpdater) => {
                    let needless = verdict.conflicts.needless.contains(&victim.id);
                    assert_eq!(needless, would_fit(victim, &by_then, &model), "T{}: {}", victim.id, told());
                    tally.needless_conflicts += u32::from(needless);
                    tally.stale += u32::from(!needless);
                }
                Outcome::Aborted(Abort::Certifier) => {
                    let closes = |strict| closes(victim, &by_then, &model, strict);
                    let needless = verdict.needless.contains(&victim.id);
                    let Some(closes_one) = closes(false) else { continue };
                    assert_eq!(needless, !closes_one, "T{}: {}", victim.id, told());
                    tally.needless += u32::from(needless);
                    tally.justified += u32::from(!needless);
                    let Some(closes_one) = closes(true) else { continue };
                    let strictly = strict.needless.contains(&victim.id);
                    assert_eq!(strictly, !closes_one, "strictly, T{}: {}", victim.id, told());
                    tally.by_time += u32::from(needless && !strictly);
                }
                _ => {}
            }
        }
        if refreshes {
            assert_eq!(verdict.conflicts.needless, Vec::<u64>::new(), "{}", told());
        }
    }
    println!("{tally:?}");
    let Tally { anomalies, out_of_time, justified, needless, .. } = tally;
    assert!(anomalies > 500 && out_of_time > 10 && justified > 100 && needless > 1000, "{tally:?}");
    assert!(
        tally.stale > 100 && (refreshes || tally.needless_conflicts > 100 && tally.by_time > 5),
        "{tally:?}"
    );
}

/// Whether the victim closes a cycle among those that had committed by then; `None` if there is one
/// without it, which says nothing about it.
fn closes(victim: &Transaction, by_then: &[&Transaction], model: &Model, strict: bool) -> Option<bool> {
    if !serializable(by_then, model, &as_of(by_then, model), strict) {
        return None;
    }
    let with: Vec<&Transaction> = by_then.iter().copied().chain([victim]).collect();
    Some(!serializable(&with, model, &with_victim(victim, by_then, model), strict))
}

/// The chains as of some commits.
fn as_of(committed: &[&Transaction], model: &Model) -> Chains {
    let known: HashSet<u64> = committed.iter().map(|t| t.id).chain([0]).collect();
    let mut chains = chains(model);
    for chain in chains.values_mut() {
        chain.retain(|(writer, _)| known.contains(writer));
    }
    chains
}
