//! Rules of a cluster that are left out, one at a time: the random histories, or a history that was
//! made for the rule, must notice each of them within a bounded number of seeds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cognate_engine::{Error, Isolation, LockMode, Planted, Transaction, WaitPolicy, plant};
use cognate_env::SplitMix;

use super::cluster::{Cluster, Commitment, TREE, Totals, get, put, random_history, random_history_of};
use super::cluster_prepared;
use super::cluster_protocols;
use super::support::{block_on, value};

/// Within so many seeds it must be found.
const SEEDS: u64 = 300;

/// What is to notice that a rule is left out.
fn history(fault: Planted, seed: u64) {
    match fault {
        Planted::SendsNoLocks | Planted::StrikesForWritesOnly => orphan(seed),
        Planted::StrikesNobody | Planted::LooksAtDelivery => counter(seed),
        Planted::PreparedKeepsNobodyOut | Planted::UndecidedNotInImage => {
            cluster_prepared::random_history(seed);
        }
        Planted::PrunesByItself => random_history(seed, 3000, &mut Totals::default()),
        Planted::MixesFreely => cluster_protocols::small_histories(seed),
        Planted::VotesUnordered | Planted::VisibleByVote | Planted::ExecutesAtOnce => {
            random_history_of(seed, 600, true, &mut Totals::default());
        }
        _ => random_history(seed, 600, &mut Totals::default()),
    }
}

/// One deletes a row that nothing refers to, and another one, at another node, lets a new row refer
/// to it, which it only locks. Whichever comes first, there must be no row that refers to nothing.
fn orphan(seed: u64) {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("parent", "0")]);
    let lock = |t: &mut Transaction, mode| -> Result<(), Error> {
        block_on(t.lock(TREE, b"parent", mode, WaitPolicy::NoWait)).map(drop)
    };
    let mut deletes = cluster.begin(1, Isolation::ReadCommitted);
    let mut refers = cluster.begin(2, Isolation::ReadCommitted);
    lock(&mut deletes, LockMode::Exclusive).unwrap();
    assert_eq!(deletes.get_latest(TREE, b"child").unwrap().value, None);
    lock(&mut refers, LockMode::KeyShared).unwrap();
    assert!(refers.get_latest(TREE, b"parent").unwrap().value.is_some());
    put(&mut refers, "child", "of the parent").unwrap();
    let mut refers = Commitment::of(refers);
    assert!(refers.poll().is_none());
    let delete = |mut t: Transaction| {
        // Struck, it fails here already.
        if t.delete(TREE, b"parent").is_ok() {
            let _ = Commitment::of(t).poll();
        }
    };
    if seed.is_multiple_of(2) {
        // It comes to the other node while that one computes.
        cluster.settle();
        delete(deletes);
    } else {
        delete(deletes);
    }
    cluster.settle();
    let t = cluster.begin(1, Isolation::Snapshot);
    assert!(get(&t, "child").is_none() || get(&t, "parent").is_some(), "it refers to nothing");
}

/// Two count up at READ COMMITTED, at two nodes, as a statement does: under the row's lock, from the
/// latest value. No count may be lost, whatever is delivered between.
fn counter(seed: u64) {
    let mut random = SplitMix::new(seed);
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "0")]);
    let mut counted = 0;
    for _ in 0..6 {
        let mut running: Vec<Transaction> =
            [1, 2].map(|node| cluster.begin(node, Isolation::ReadCommitted)).into();
        let mut going = Vec::new();
        for t in &mut running {
            block_on(t.lock(TREE, b"x", LockMode::NoKeyExclusive, WaitPolicy::NoWait)).unwrap();
            let latest = t.get_latest(TREE, b"x").unwrap().value.unwrap();
            let next = std::str::from_utf8(&latest).unwrap().parse::<u64>().unwrap() + 1;
            t.put(TREE, b"x", value(&next.to_string())).unwrap();
        }
        while !running.is_empty() {
            let mut commit = Commitment::of(running.remove(random.below(running.len() as u64) as usize));
            match commit.poll() {
                None => going.push(commit),
                Some(ended) => assert!(ended.is_err(), "it was not ordered"),
            }
            if random.one_in(2) {
                cluster.settle();
            }
        }
        cluster.settle();
        counted += going.into_iter().filter_map(|mut one| one.poll()?.ok()).count();
    }
    let t = cluster.begin(1, Isolation::Snapshot);
    assert_eq!(get(&t, "x"), Some(counted.to_string()), "a count was lost");
}

#[test]
fn each_rule_that_is_left_out_is_noticed() {
    let mut unnoticed = Vec::new();
    for fault in Planted::ALL {
        plant(Some(fault));
        let found =
            (1..=SEEDS).find(|seed| catch_unwind(AssertUnwindSafe(|| history(fault, *seed))).is_err());
        plant(None);
        match found {
            Some(seed) => println!("{fault:?} is noticed with seed {seed}"),
            None => unnoticed.push(fault),
        }
    }
    assert!(unnoticed.is_empty(), "not noticed within {SEEDS} seeds: {unnoticed:?}");
}

#[test]
fn with_all_rules_nothing_is_noticed() {
    for fault in Planted::ALL {
        (1..=6).for_each(|seed| history(fault, seed));
    }
}
