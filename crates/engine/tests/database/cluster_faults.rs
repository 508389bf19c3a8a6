//! Rules of a cluster that are left out, one at a time: the random histories, or a history that was
//! made for the rule, must notice each of them within a bounded number of seeds.
//!
//! | | rule | fault | noticed by |
//! |---|---|---|---|
//! | 1 | a delivered request strikes by all its locks | `SendsNoLocks`, `StrikesForWritesOnly` | `orphan` |
//! | | | `StrikesNobody` | `counter` |
//! | | all of them are in the window | `WindowOfWrites` | `orphan` |
//! | | PREPARE's locks keep others out, too | `PreparedKeepsNobodyOut` | histories with PREPARE |
//! | 2 | it has its locks from before it strikes until it is shown | `LetsGoBeforeShowing` | `given_by_who_is_struck` |
//! | 3 | `bot` is read before a transaction is sealed | `LooksAfterSealing` | `delivered_while_sealing` |
//! | | from a mark that follows strokes, installation and showing | `MarksBeforeShowing` | `sealed_between_strokes` |
//! | 4 | what was delivered behind `bot` counts | `LooksAtDelivery` | `counter` |
//! | | that window is in the image | `WindowNotInImage` | histories |
//! | | who looked below its floor is refused | `JudgesTheOld` | `late` |
//! | 5 | the horizon follows from the order | `PrunesByItself` | long histories |
//! | | who is prepared is in the image | `UndecidedNotInImage` | histories with PREPARE |
//! | 6 | readers are judged in everybody's graph, or need not be | `ReadersStayHome` | histories |
//! | | | `ReadersGoUnjudged` | `read_only_anomaly` |
//! | 7 | the order's log | in the crate `cognate-replication` | its `faults` |
//! | 8 | a start begins where base and image both stand | `BeginsAtNewestImage` | `interrupted_checkpoint` |
//! | | with the graph of that position | `GraphNotInImage` | histories |
//! | 9 | families follow the order, not what runs at a node | `FamiliesByMemory` | `asked_where_it_does_not_run` |
//! | 10 | who meets what is prepared is refused, never queued | `QueuesBehindPrepared` | `on_its_way_to_what_is_prepared` |
//! | 11 | a request that comes again has its first verdict | `KnowsNoRequest` | histories |
//! | | also behind an image | `OutcomesNotInImage` | `again_behind_an_image` |
//! | | of two of one name one commits | `KnowsNoName` | histories |
//! | | under a name that was closed nobody does, also behind an image | `ForgetsVoids` | `closed_and_late` |
//! | | a number that is given twice is nobody's verdict | `TakesTheNumberForIt` | `number_given_twice` |
//! | | what is lost is told so, and lets go | `KeepsWhatIsLost` | `lost` |
//! | 12 | weak voting | `MixesFreely`, `VotesUnordered`, `VisibleByVote` | histories of all protocols |
//! | 13 | active replication | `ExecutesAtOnce` | histories of all protocols |
//! | none | what has come in parts is in the image | `PartsNotInImage` | `others_start_again` |
//! | | reads are judged as of the snapshot, not of `bot` | `CertifiesAgainstBot` | histories |
//!
//! Numbers are those of the rules that counterexamples have forced on the design; *histories* are
//! the random ones of `cluster`.
//!
//! Of rule 10, tables have no fences here: a lock on a whole table is in the request as others are,
//! and a bulk load is as other writes. So no commit names one, and there is nothing to leave out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc;

use cognate_engine::{Error, Isolation, LockMode, Planted, Transaction, WaitPolicy, plant, while_sealing};
use cognate_env::SplitMix;
use cognate_env::sim::Loss;

use super::cluster::{
    Cluster, Commitment, ROW, TREE, Totals, get, number_given_twice, put, random_history, random_history_of,
};
use super::cluster_families;
use super::cluster_large;
use super::cluster_prepared;
use super::cluster_protocols;
use super::cluster_voids;
use super::cluster_waits::AtOnce;
use super::support::{block_on, value};

/// Within so many seeds it must be found.
const SEEDS: u64 = 300;

/// Faults whose history is that of another one, too. While nothing is planted, it is enough to look
/// at the other one's.
const ALIKE: [Planted; 11] = [
    Planted::StrikesForWritesOnly,
    Planted::LooksAtDelivery,
    Planted::WindowNotInImage,
    Planted::GraphNotInImage,
    Planted::KnowsNoRequest,
    Planted::KnowsNoName,
    Planted::UndecidedNotInImage,
    Planted::ReadersStayHome,
    Planted::VisibleByVote,
    Planted::ExecutesAtOnce,
    Planted::WindowOfWrites,
];

/// What is to notice that a rule is left out.
fn history(fault: Planted, seed: u64) {
    match fault {
        Planted::SendsNoLocks | Planted::StrikesForWritesOnly | Planted::WindowOfWrites => orphan(seed),
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
        Planted::LetsGoBeforeShowing => given_by_who_is_struck(),
        Planted::LooksAfterSealing => delivered_while_sealing(),
        Planted::MarksBeforeShowing => sealed_between_strokes(),
        Planted::BeginsAtNewestImage => interrupted_checkpoint(seed),
        Planted::FamiliesByMemory => cluster_families::asked_where_it_does_not_run(),
        Planted::QueuesBehindPrepared => cluster_prepared::on_its_way_to_what_is_prepared(),
        Planted::OutcomesNotInImage => again_behind_an_image(),
        Planted::PartsNotInImage => cluster_large::others_start_again(seed),
        Planted::TakesTheNumberForIt => number_given_twice(),
        Planted::KeepsWhatIsLost => lost(),
        Planted::ForgetsVoids => cluster_voids::closed_and_late(),
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

/// Two count up at READ COMMITTED, at two nodes, as a statement does: under the row's lock, from
/// the latest value. No count may be lost, whatever is delivered between.
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
            count_up(t, "x");
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

fn latest(t: &Transaction, key: &str) -> u64 {
    let latest = t.get_latest(TREE, key.as_bytes()).unwrap().value.unwrap();
    std::str::from_utf8(&latest).unwrap().parse().unwrap()
}

/// As a statement does: under the row's lock, from the latest value.
fn count_up(t: &mut Transaction, key: &str) {
    block_on(t.lock(TREE, key.as_bytes(), ROW, WaitPolicy::NoWait)).unwrap();
    let next = latest(t, key) + 1;
    t.put(TREE, key.as_bytes(), value(&next.to_string())).unwrap();
}

/// A row that began with 0 was counted up so many times.
fn assert_counted(cluster: &Cluster, key: &str, times: usize) {
    let t = cluster.begin(1, Isolation::Snapshot);
    assert_eq!(get(&t, key), Some(times.to_string()), "a count was lost");
}

/// One at a node has a row, and another one there waits for it, when a third one's change of it is
/// delivered. The first gives way at once. Whoever has the row then must see the change: who has
/// looked at what was there before it counts up from that.
fn given_by_who_is_struck() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "0")]);
    let mut holds = cluster.begin(1, Isolation::ReadCommitted);
    count_up(&mut holds, "x");
    let mut waits = cluster.begin(1, Isolation::ReadCommitted);
    let (sender, given) = mpsc::channel();
    AtOnce::begin(async move {
        waits.lock(TREE, b"x", ROW, WaitPolicy::Block).await.unwrap();
        let seen = latest(&waits, "x");
        sender.send((waits, seen)).unwrap();
    });
    AtOnce::begin(async move {
        holds.doomed().unwrap().await;
        drop(holds);
    });
    let mut third = cluster.begin(2, Isolation::ReadCommitted);
    count_up(&mut third, "x");
    let mut third = Commitment::of(third);
    assert!(third.poll().is_none(), "nobody has ordered it");
    cluster.settle();
    third.poll().unwrap().unwrap();
    let (mut waited, seen) = given.try_recv().unwrap();
    waited.put(TREE, b"x", value(&(seen + 1).to_string())).unwrap();
    let mut waited = Commitment::of(waited);
    assert!(waited.poll().is_none(), "it was not struck");
    cluster.settle();
    waited.poll().unwrap().unwrap();
    assert_counted(&cluster, "x", 2);
}

/// What is delivered while one is being sealed does not strike it any more, and has not been seen
/// by it: it must refuse it.
fn delivered_while_sealing() {
    let cluster = Rc::new(Cluster::of(2));
    cluster.write(1, &[("x", "0")]);
    let mut here = cluster.begin(1, Isolation::ReadCommitted);
    let mut there = cluster.begin(2, Isolation::ReadCommitted);
    count_up(&mut here, "x");
    count_up(&mut there, "x");
    let mut there = Commitment::of(there);
    assert!(there.poll().is_none(), "nobody has ordered it");
    cluster.order_one(0);
    let delivers = Rc::clone(&cluster);
    while_sealing(move || assert!(delivers.deliver(1)));
    let mut here = Commitment::of(here);
    assert!(here.poll().is_none(), "it was struck before it was sealed");
    cluster.settle();
    there.poll().unwrap().unwrap();
    assert_counted(&cluster, "x", 1 + usize::from(here.poll().unwrap().is_ok()));
}

/// Two at a node each have a row that a delivered one changes. Before the second is struck it is
/// sealed, and has seen nothing of the change: that must refuse it.
fn sealed_between_strokes() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "0"), ("y", "0")]);
    let mut first = cluster.begin(1, Isolation::ReadCommitted);
    let mut second = cluster.begin(1, Isolation::ReadCommitted);
    count_up(&mut first, "x");
    count_up(&mut second, "y");
    let (sender, ended) = mpsc::channel();
    AtOnce::begin(async move {
        first.doomed().unwrap().await;
        sender.send(second.commit_in_order().await.is_ok()).unwrap();
        drop(first);
    });
    let mut both = cluster.begin(2, Isolation::ReadCommitted);
    count_up(&mut both, "x");
    count_up(&mut both, "y");
    let mut both = Commitment::of(both);
    assert!(both.poll().is_none(), "nobody has ordered it");
    cluster.settle();
    both.poll().unwrap().unwrap();
    assert_counted(&cluster, "x", 1);
    assert_counted(&cluster, "y", 1 + usize::from(ended.try_recv().unwrap()));
}

/// The power fails in a checkpoint, after so many operations of the disk: its image may be there
/// then, and the base not where it stands.
fn interrupted_checkpoint(operations: u64) {
    let mut cluster = Cluster::of(2);
    cluster.write(1, &[("x", "1")]);
    cluster.node(2).checkpoint().unwrap();
    cluster.write(1, &[("x", "2"), ("y", "2")]);
    cluster.disk(2).power_off_after(operations);
    // Unless it comes to its end before that.
    let _ = cluster.node(2).checkpoint();
    cluster.start_again(2, false);
    cluster.settle();
    cluster.assert_equal();
}

/// A request comes again, and a node has its verdict from an image only.
fn again_behind_an_image() {
    let mut cluster = Cluster::of(2);
    cluster.write(1, &[("x", "1")]);
    let node = cluster.node(1).clone();
    // It has no locks, so nothing but its first verdict is in its way.
    let mut introducing = Commitment::on(async move { node.introduce().await });
    assert!(introducing.poll().is_none(), "nobody has ordered it");
    cluster.settle();
    introducing.poll().unwrap().unwrap();
    assert_eq!(cluster.start_again(2, true), 2);
    let again = cluster.order.ordered.lock().unwrap()[1].clone();
    cluster.order.ordered.lock().unwrap().push(again);
    cluster.settle();
    cluster.assert_equal();
}

/// Who was proposed and is certainly not ordered is told so, and is in nobody's way.
fn lost() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "0")]);
    let mut t = cluster.begin(1, Isolation::ReadCommitted);
    count_up(&mut t, "x");
    let mut commit = Commitment::of(t);
    assert!(commit.poll().is_none(), "nobody has ordered it");
    let request = cluster.order.proposed.lock().unwrap().pop().unwrap();
    cluster.node(1).not_ordered(&request);
    let told = commit.poll().expect("it is told");
    assert!(matches!(told, Err(Error::NotOrdered)), "{told:?}");
    cluster.write(1, &[("x", "1")]);
}

/// One reads both rows and writes one of them; another one, meanwhile, writes the other; and a
/// reader sees the second and not the first. The first must come before the second, which it has
/// not seen, and behind the reader, who has not seen it, and the reader behind the second: one of
/// the three has to fail.
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

/// A node that nobody has heard of changes what it has seen, and what was changed since then is
/// known no more when its request comes.
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
    for fault in Planted::ALL.into_iter().filter(|fault| !ALIKE.contains(fault)) {
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
