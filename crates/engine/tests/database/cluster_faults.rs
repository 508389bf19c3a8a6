//! Rules of a cluster that are left out, one at a time: the random histories, or a history that was
//! made for the rule, must notice each of them within a bounded number of seeds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cognate_engine::{Error, Isolation, LockMode, Planted, Transaction, WaitPolicy, plant};
use cognate_env::SplitMix;
use cognate_env::sim::Loss;

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
        Planted::ReadersGoUnjudged => read_only_anomaly(),
        Planted::JudgesTheOld => late(seed),
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

/// One reads both rows and writes one of them; another one, meanwhile, writes the other; and a reader sees
/// the second and not the first. The first must come before the second, which it has not seen, and behind
/// the reader, who has not seen it, and the reader behind the second: one of the three has to fail.
fn read_only_anomaly() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "0"), ("y", "0")]);
    let mut first = cluster.begin(1, Isolation::Serializable);
    assert_eq!([get(&first, "x"), get(&first, "y")], [Some("0".to_owned()), Some("0".to_owned())]);
    let mut second = cluster.begin(2, Isolation::Serializable);
    put(&mut second, "y", "1").unwrap();
    let mut second = Commitment::of(second);
    assert!(second.poll().is_none(), "nobody has ordered it");
    cluster.settle();
    second.poll().unwrap().unwrap();
    let reader = cluster.begin(2, Isolation::Serializable);
    assert_eq!([get(&reader, "x"), get(&reader, "y")], [Some("0".to_owned()), Some("1".to_owned())]);
    let mut reader = Commitment::of(reader);
    let at_once = reader.poll();
    cluster.settle();
    let read = at_once.or_else(|| reader.poll()).unwrap().is_ok();
    // It may be too late for it by now.
    let first = put(&mut first, "x", "1").and_then(|()| {
        let mut first = Commitment::of(first);
        let at_once = first.poll();
        cluster.settle();
        at_once.or_else(|| first.poll()).unwrap()
    });
    assert!(!read || first.is_err(), "no order explains what was read");
}

/// A node that nobody has heard of changes what it has seen, and what was changed since then is known no more
/// when its request comes.
fn late(seed: u64) {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "0")]);
    let mut late = cluster.begin(2, Isolation::Snapshot);
    assert_eq!(get(&late, "x").as_deref(), Some("0"));
    put(&mut late, "x", "of the late one").unwrap();
    let mut late = Commitment::of(late);
    assert!(late.poll().is_none(), "nobody has ordered it");
    for (key, content) in [("x", "1")].into_iter().chain((0..1 + seed % 8).map(|_| ("y", "1"))) {
        let mut t = cluster.begin(1, Isolation::Snapshot);
        put(&mut t, key, content).unwrap();
        let mut commit = Commitment::of(t);
        assert!(commit.poll().is_none(), "nobody has ordered it");
        // Before that of the late one.
        cluster.order_one(1);
        while cluster.deliver(1) {}
        commit.poll().unwrap().unwrap();
    }
    cluster.settle();
    assert!(late.poll().unwrap().is_err(), "a change was lost");
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

#[test]
fn a_request_that_makes_no_sense_is_named_by_its_position() {
    let cluster = Cluster::of(1);
    cluster.write(1, &[("x", "1")]);
    let error = cluster.node(1).deliver(2, b"nonsense").err().unwrap();
    assert!(error.to_string().contains("the request at position 2"), "{error}");
}

/// What is undecided is there, and the graph says nothing of it.
#[test]
fn an_image_that_does_not_fit_what_is_prepared_is_named() {
    let mut cluster = Cluster::of(1);
    cluster_prepared::prepared(&cluster, 1, "p", &[("x", "p")]);
    plant(Some(Planted::GraphNotInImage));
    cluster.node(1).checkpoint().unwrap();
    plant(None);
    drop(cluster.nodes.remove(0));
    cluster.disk(1).restart(Loss::Power);
    let Err(Error::Corrupt { file, .. }) = cluster.open(1) else { panic!("it opened") };
    assert!(file.extension().is_some_and(|extension| extension == "image"), "{file:?}");
}
