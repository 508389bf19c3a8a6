//! The oracle against a judge that tries every serial order.
//!
//! A serial order is equivalent if, executed one after the other, each transaction replaces the
//! versions that it replaced, and each scan returns what it returned, by the same changes of its
//! range: a row that was not there may not have come and gone in between, since that is what a
//! dependency graph means by a predicate read. Nor may a row of which only the existence was told.

use std::collections::{BTreeMap, HashSet};

use cognate_harness::checker::history::{Abort, Event, Outcome, Predicate, Row, Transaction, standing};
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
/// With `existence`, some reads tell only that a row is there.
fn generate(random: &mut Random, existence: bool) -> Model {
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
            step = Step::Abort(Abort::FirstUpdater);
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

/// Whether some order of these, starting from a state, is equivalent.
fn some_order(left: &[&Transaction], model: &Model, chains: &Chains, state: &BTreeMap<i64, usize>) -> bool {
    if left.is_empty() {
        return true;
    }
    (0..left.len()).any(|at| {
        let Some(after) = replay(left[at], model, chains, state) else { return false };
        let rest: Vec<&Transaction> = left.iter().copied().filter(|t| t.id != left[at].id).collect();
        some_order(&rest, model, chains, &after)
    })
}

fn serializable(of: &[&Transaction], model: &Model, chains: &Chains) -> bool {
    let loaded = |chain: &Vec<(u64, Option<Row>)>| usize::from(chain.len() > 1 && chain[1].0 == 0);
    let start = chains.iter().map(|(key, chain)| (*key, loaded(chain))).collect();
    some_order(of, model, chains, &start)
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
    agree(20_000, false);
}

#[test]
fn the_oracle_agrees_about_rows_of_which_only_the_existence_is_known() {
    agree(20_000, true);
}

fn agree(seeds: u64, existence: bool) {
    let first = std::env::var("COGNATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    println!("COGNATE_SEED={first}");
    let (mut anomalies, mut needless, mut justified) = (0, 0, 0);
    for seed in first..first + seeds {
        let model = generate(&mut Random::new(seed), existence);
        // Existence is judged with commit numbers only.
        let verdict = if existence { Verdict::of(&model.history) } else { super::verdict(&model) };
        let committed: Vec<&Transaction> =
            model.history.transactions.iter().filter(|t| t.committed()).collect();
        let sound = serializable(&committed, &model, &chains(&model));
        assert_eq!(verdict.serializable(), sound, "COGNATE_SEED={seed}: {verdict}\n{:#?}", model.history);
        anomalies += u32::from(!sound);
        for victim in &model.history.transactions {
            if victim.outcome != Outcome::Aborted(Abort::Certifier) {
                continue;
            }
            let mut by_then: Vec<&Transaction> =
                committed.iter().copied().filter(|t| t.answered <= victim.asked).collect();
            if !serializable(&by_then, &model, &as_of(&by_then, &model)) {
                continue; // a cycle without the victim says nothing about it
            }
            let chains = with_victim(victim, &by_then, &model);
            by_then.push(victim);
            let closes = !serializable(&by_then, &model, &chains);
            let judged = verdict.needless.contains(&victim.id);
            assert_eq!(
                judged, !closes,
                "COGNATE_SEED={seed}: T{}: {verdict}\n{:#?}",
                victim.id, model.history
            );
            needless += u32::from(judged);
            justified += u32::from(!judged);
        }
    }
    println!("{anomalies} anomalies, {justified} justified aborts, {needless} needless ones");
    assert!(anomalies > 500 && justified > 100 && needless > 1000, "{anomalies} {justified} {needless}");
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
