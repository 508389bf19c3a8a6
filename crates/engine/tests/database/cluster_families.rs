//! Families of siblings over several nodes: begun at one, prepared at another, decided at a third.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cognate_engine::sibling::{Begun, Instance, Limits, Mipt, Refusal, State, Text, Told, Xid};
use cognate_engine::{Error, Isolation, LockMode, Transaction, WaitPolicy};
use cognate_env::sim::SimClock;
use cognate_env::{Clock, SplitMix};

use super::cluster::{Cluster, Commitment, TREE, get, overtaken_by, put};
use super::support::{Seed, all, block_on, seeds, value};

pub(super) fn xid(text: &str) -> Xid {
    Xid::new(text).unwrap()
}

pub(super) fn instance(number: i64) -> Instance {
    Instance::new(number).unwrap()
}

pub(super) fn begin(cluster: &Cluster, node: u16, of: &str, number: i64) -> Transaction {
    match cluster.node(node).begin_instance(xid(of), instance(number), Isolation::Serializable).unwrap() {
        Begun::Active(transaction) => *transaction,
        Begun::Decided(told) => panic!("decided: {told:?}"),
    }
}

pub(super) fn prepare(t: Transaction, result: &str) -> Commitment<Told> {
    let result = Text::from(result);
    Commitment::on(async move {
        t.prepare_instance_in_order(&Text::from("buy"), &result, value(""), Limits::default()).await
    })
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Operation {
    Commit(i64),
    Rollback(i64),
    Refuse(i64),
    Show,
}

pub(super) fn ask(cluster: &Cluster, node: u16, of: &str, operation: Operation) -> Commitment<Told> {
    let (database, of) = (cluster.node(node).clone(), xid(of));
    Commitment::on(async move {
        match operation {
            Operation::Commit(number) => database.commit_instance_in_order(&of, instance(number)).await,
            Operation::Rollback(number) => database.rollback_instance_in_order(&of, instance(number)).await,
            Operation::Refuse(number) => database.refuse_instances_in_order(&of, instance(number)).await,
            Operation::Show => database.family_in_order(&of).await,
        }
    })
}

fn forget(cluster: &Cluster, node: u16, of: &str) -> Commitment<cognate_engine::DurableWait> {
    let (database, of) = (cluster.node(node).clone(), xid(of));
    Commitment::on(async move { database.forget_family_in_order(&of).await })
}

/// Orders and delivers until it is answered: some operations ask twice.
pub(super) fn settled<T>(cluster: &Cluster, mut asked: Commitment<T>) -> Result<T, Error> {
    loop {
        if let Some(answer) = asked.poll() {
            return answer;
        }
        let before = cluster.order.ordered.lock().unwrap().len();
        cluster.settle();
        assert!(cluster.order.ordered.lock().unwrap().len() > before, "nothing is on the way");
    }
}

pub(super) fn shown(cluster: &Cluster, node: u16, of: &str) -> String {
    text(&settled(cluster, ask(cluster, node, of, Operation::Show)).unwrap().table)
}

/// A table in few words: `<floor 1 aborted 2 prepared=result`.
pub(super) fn text(table: &Mipt) -> String {
    let line = |entry: &cognate_engine::sibling::Entry| {
        let state = format!("{:?}", entry.state).to_lowercase();
        match &entry.result {
            Some(result) => format!("{} {state}={result}", entry.instance),
            None => format!("{} {state}", entry.instance),
        }
    };
    std::iter::once(format!("<{}", table.floor))
        .chain(table.entries.iter().map(line))
        .collect::<Vec<_>>()
        .join(" ")
}

pub(super) fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> Refusal {
    match result {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn any_node_prepares_shows_decides_answers_and_forgets() {
    let cluster = Cluster::of(3);
    cluster.write(1, &[("x", "0")]);
    let (mut one, mut two) = (begin(&cluster, 1, "c/1", 1), begin(&cluster, 2, "c/1", 2));
    put(&mut one, "x", "one").unwrap();
    put(&mut two, "x", "two").unwrap();
    // Siblings share the row, at whichever nodes they run.
    assert_eq!(text(&settled(&cluster, prepare(one, "order 1")).unwrap().table), "<1 1 prepared=order 1");
    let told = settled(&cluster, prepare(two, "order 2")).unwrap();
    assert_eq!(text(&told.table), "<2 1 prepared=order 1 2 prepared=order 2");
    for node in 1..=3 {
        assert_eq!(shown(&cluster, node, "c/1"), "<2 1 prepared=order 1 2 prepared=order 2");
        let in_doubt = cluster.node(node).in_doubt();
        assert_eq!(in_doubt.len(), 1);
        assert_eq!(in_doubt[0].instances, [instance(1), instance(2)]);
        assert_eq!(&*in_doubt[0].request, "buy");
        // Strangers wait.
        let mut t = cluster.begin(node, Isolation::ReadCommitted);
        let locked = block_on(t.lock(TREE, b"x", LockMode::NoKeyExclusive, WaitPolicy::NoWait));
        assert!(matches!(locked, Err(Error::LockNotAvailable)), "{locked:?}");
    }
    let told = settled(&cluster, ask(&cluster, 3, "c/1", Operation::Commit(2))).unwrap();
    assert_eq!(text(&told.table), "<2 2 committed=order 2");
    for node in 1..=3 {
        assert_eq!(get(&cluster.begin(node, Isolation::Snapshot), "x").as_deref(), Some("two"));
        assert!(cluster.node(node).in_doubt().is_empty());
        assert!(cluster.node(node).prepared().is_empty());
        let begun = cluster.node(node).begin_instance(xid("c/1"), instance(7), Isolation::Serializable);
        let Begun::Decided(told) = begun.unwrap() else { panic!("it is decided") };
        assert_eq!(text(&told.table), "<2 2 committed=order 2");
        // Again, and otherwise.
        let again = settled(&cluster, ask(&cluster, node, "c/1", Operation::Commit(2))).unwrap();
        assert_eq!(text(&again.table), "<2 2 committed=order 2");
        let other = refusal(settled(&cluster, ask(&cluster, node, "c/1", Operation::Commit(1))));
        assert_eq!(other, Refusal::DecidedOtherwise { winner: instance(2) });
    }
    settled(&cluster, forget(&cluster, 1, "c/1")).unwrap();
    for node in 1..=3 {
        assert_eq!(
            refusal(settled(&cluster, ask(&cluster, node, "c/1", Operation::Show))),
            Refusal::Forgotten
        );
        let begun = cluster.node(node).begin_instance(xid("c/1"), instance(7), Isolation::Serializable);
        assert_eq!(refusal(begun.map(drop)), Refusal::Forgotten);
    }
    cluster.write(2, &[("x", "free")]);
    cluster.assert_equal();
}

#[test]
fn the_first_prepare_of_a_number_wins() {
    let cluster = Cluster::of(2);
    let (mut one, mut two) = (begin(&cluster, 1, "x", 1), begin(&cluster, 2, "x", 1));
    put(&mut one, "a", "one").unwrap();
    put(&mut two, "a", "two").unwrap();
    let (mut one, mut two) = (prepare(one, "one"), prepare(two, "two"));
    assert!(one.poll().is_none() && two.poll().is_none());
    cluster.order_one(1);
    cluster.settle();
    assert_eq!(text(&two.poll().unwrap().unwrap().table), "<1 1 prepared=two");
    assert!(matches!(refusal(one.poll().unwrap()), Refusal::InstanceInUse { .. }));
    // One that was only active is told so.
    let mut three = begin(&cluster, 1, "x", 3);
    let four = begin(&cluster, 2, "x", 3);
    settled(&cluster, prepare(four, "three")).unwrap();
    assert!(matches!(refusal(three.put(TREE, b"a", value(""))), Refusal::InstanceAborted { .. }));
    drop(three);
    settled(&cluster, ask(&cluster, 1, "x", Operation::Commit(1))).unwrap();
    assert_eq!(all(&cluster.begin(1, Isolation::Snapshot), TREE), "a=two");
    cluster.assert_equal();
}

#[test]
fn what_is_below_a_prepared_instance_ends_at_every_node() {
    let cluster = Cluster::of(3);
    let (below, mut sealed) = (begin(&cluster, 1, "x", 1), begin(&cluster, 3, "x", 2));
    put(&mut sealed, "b", "2").unwrap();
    let above = begin(&cluster, 1, "x", 9);
    let mut late = prepare(sealed, "late");
    assert!(late.poll().is_none());
    let mut five = prepare(begin(&cluster, 2, "x", 5), "five");
    assert!(five.poll().is_none());
    cluster.order_one(1);
    cluster.settle();
    assert_eq!(text(&five.poll().unwrap().unwrap().table), "<5 5 prepared=five");
    assert!(matches!(below.check_member(), Err(Error::Refused(Refusal::InstanceAborted { .. }))));
    above.check_member().unwrap();
    // What was on its way is answered by the table.
    assert_eq!(text(&settled(&cluster, late).unwrap().table), "<5 5 prepared=five");
    assert_eq!(shown(&cluster, 1, "x"), "<5 5 prepared=five 9 active", "active here");
    assert_eq!(shown(&cluster, 2, "x"), "<5 5 prepared=five");
    settled(&cluster, ask(&cluster, 3, "x", Operation::Commit(5))).unwrap();
    assert!(above.check_member().is_err());
    drop((below, above));
    cluster.write(1, &[("b", "free")]);
    cluster.assert_equal();
}

/// What runs at a node makes no difference to what is ordered there.
pub(super) fn asked_where_it_does_not_run() {
    let cluster = Cluster::of(2);
    let running = begin(&cluster, 1, "x", 1);
    let asked = settled(&cluster, ask(&cluster, 2, "x", Operation::Rollback(1)));
    assert_eq!(refusal(asked), Refusal::InstanceUnknown { instance: instance(1) });
    cluster.assert_equal();
    running.check_member().unwrap();
}

#[test]
fn what_is_active_is_known_at_its_own_node_only() {
    asked_where_it_does_not_run();
    let cluster = Cluster::of(2);
    let mut t = begin(&cluster, 1, "x", 1);
    put(&mut t, "a", "1").unwrap();
    let commit = |node| refusal(settled(&cluster, ask(&cluster, node, "x", Operation::Commit(1))));
    assert_eq!(commit(1), Refusal::InstanceNotPrepared { instance: instance(1) });
    assert_eq!(commit(2), Refusal::InstanceUnknown { instance: instance(1) });
    let show = refusal(settled(&cluster, ask(&cluster, 2, "x", Operation::Show)));
    assert_eq!(show, Refusal::FamilyUnknown);
    let elsewhere = refusal(settled(&cluster, ask(&cluster, 2, "x", Operation::Rollback(1))));
    assert_eq!(elsewhere, Refusal::InstanceUnknown { instance: instance(1) });
    t.check_member().unwrap();
    let told = settled(&cluster, ask(&cluster, 1, "x", Operation::Rollback(1))).unwrap();
    assert_eq!(text(&told.table), "<0 1 aborted");
    assert!(t.check_member().is_err());
    drop(t);
    assert_eq!(shown(&cluster, 2, "x"), "<0 1 aborted");
    // What was given up is told to nobody before it is ordered.
    drop(begin(&cluster, 2, "x", 2));
    assert_eq!(shown(&cluster, 1, "x"), "<0 1 aborted");
    settled(&cluster, prepare(begin(&cluster, 1, "x", 3), "three")).unwrap();
    let told = settled(&cluster, ask(&cluster, 2, "x", Operation::Rollback(3))).unwrap();
    assert_eq!(text(&told.table), "<3 3 aborted");
    let told = settled(&cluster, ask(&cluster, 1, "x", Operation::Refuse(5))).unwrap();
    assert_eq!(text(&told.table), "<5 5 aborted");
    let begun = cluster.node(2).begin_instance(xid("x"), instance(4), Isolation::Serializable);
    assert!(matches!(refusal(begun.map(drop)), Refusal::InstanceAborted { .. }));
    let forgotten = refusal(settled(&cluster, forget(&cluster, 2, "x")));
    assert_eq!(forgotten, Refusal::NotDecided);
    cluster.assert_equal();
}

#[test]
fn what_fails_to_be_prepared_is_aborted_for_ever_once_that_is_told() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("a", "0")]);
    let mut t = begin(&cluster, 1, "x", 1);
    put(&mut t, "a", "1").unwrap();
    let mut prepared = prepare(t, "one");
    assert!(prepared.poll().is_none());
    // A stranger is faster.
    let mut stranger = cluster.begin(2, Isolation::Snapshot);
    put(&mut stranger, "a", "2").unwrap();
    let mut commit = Commitment::of(stranger);
    assert!(commit.poll().is_none());
    cluster.order_one(1);
    cluster.settle();
    commit.poll().unwrap().unwrap();
    assert_eq!(overtaken_by(&prepared.poll().unwrap().unwrap_err()), 2);
    assert_eq!(shown(&cluster, 1, "x"), "<0 1 aborted");
    assert_eq!(shown(&cluster, 2, "x"), "<0 1 aborted");
    // One that the order never had.
    let mut lost = prepare(begin(&cluster, 1, "x", 2), "two");
    assert!(lost.poll().is_none());
    let request = cluster.order.proposed.lock().unwrap().pop().unwrap();
    cluster.node(1).not_ordered(&request);
    assert!(matches!(lost.poll().unwrap(), Err(Error::NotOrdered)));
    assert_eq!(shown(&cluster, 1, "x"), "<0 1 aborted 2 aborted");
    let other = begin(&cluster, 2, "x", 3);
    settled(&cluster, prepare(other, "three")).unwrap();
    let mut differs = begin(&cluster, 1, "x", 4);
    put(&mut differs, "b", "4").unwrap();
    let asked = Commitment::on(async move {
        let (sell, result) = (Text::from("sell"), Text::from("four"));
        differs.prepare_instance_in_order(&sell, &result, value(""), Limits::default()).await
    });
    assert_eq!(refusal(settled(&cluster, asked)), Refusal::RequestDiffers);
    assert_eq!(shown(&cluster, 1, "x"), "<3 3 prepared=three 4 aborted");
    cluster.write(2, &[("b", "free")]);
    cluster.assert_equal();
}

#[test]
fn a_restart_leaves_families_as_they_were() {
    for checkpoints in [0, 1, 2] {
        let mut cluster = Cluster::of(3);
        let prepared = |cluster: &Cluster, node, of: &str, number: i64| {
            let mut t = begin(cluster, node, of, number);
            put(&mut t, of, &number.to_string()).unwrap();
            settled(cluster, prepare(t, &format!("result {number}"))).unwrap();
        };
        prepared(&cluster, 1, "c/1", 1);
        settled(&cluster, ask(&cluster, 2, "c/1", Operation::Commit(1))).unwrap();
        settled(&cluster, forget(&cluster, 3, "c/1")).unwrap();
        prepared(&cluster, 1, "c/2", 1);
        prepared(&cluster, 2, "c/2", 2);
        settled(&cluster, ask(&cluster, 3, "c/2", Operation::Commit(1))).unwrap();
        if checkpoints == 2 {
            (1..=3).for_each(|node| cluster.node(node).checkpoint().unwrap());
        }
        prepared(&cluster, 1, "c/3", 4);
        prepared(&cluster, 1, "c/4", 1);
        settled(&cluster, ask(&cluster, 2, "c/4", Operation::Rollback(1))).unwrap();
        settled(&cluster, ask(&cluster, 2, "d", Operation::Refuse(6))).unwrap();
        if checkpoints > 0 {
            (1..=3).for_each(|node| cluster.node(node).checkpoint().unwrap());
        }
        for node in 1..=3 {
            // Some by a power failure.
            cluster.start_again(node, node == checkpoints + 1);
        }
        cluster.settle();
        for node in 1..=3 {
            let forgotten = refusal(settled(&cluster, ask(&cluster, node, "c/1", Operation::Show)));
            assert_eq!(forgotten, Refusal::Forgotten);
            assert_eq!(shown(&cluster, node, "c/2"), "<2 1 committed=result 1");
            assert_eq!(shown(&cluster, node, "c/3"), "<4 4 prepared=result 4");
            assert_eq!(shown(&cluster, node, "c/4"), "<1 1 aborted");
            assert_eq!(shown(&cluster, node, "d"), "<6 6 aborted");
            assert_eq!(all(&cluster.begin(node, Isolation::Snapshot), TREE), "c/1=1 c/2=1");
            let begun = cluster.node(node).begin_instance(xid("c/1"), instance(7), Isolation::Serializable);
            assert_eq!(refusal(begun.map(drop)), Refusal::Forgotten);
        }
        cluster.assert_equal();
        // A sibling that runs now shares what was prepared before.
        let mut sibling = begin(&cluster, 2, "c/3", 5);
        put(&mut sibling, "c/3", "5").unwrap();
        settled(&cluster, prepare(sibling, "result 5")).unwrap();
        settled(&cluster, ask(&cluster, 3, "c/3", Operation::Commit(4))).unwrap();
        settled(&cluster, forget(&cluster, 3, "c/2")).unwrap();
        (1..=3).for_each(|node| cluster.restart(node));
        cluster.settle();
        for node in 1..=3 {
            assert_eq!(shown(&cluster, node, "c/3"), "<5 4 committed=result 4");
            let forgotten = refusal(settled(&cluster, ask(&cluster, node, "c/2", Operation::Show)));
            assert_eq!(forgotten, Refusal::Forgotten);
            assert_eq!(all(&cluster.begin(node, Isolation::Snapshot), TREE), "c/1=1 c/2=1 c/3=4");
        }
        cluster.assert_equal();
    }
}

/// A wall clock that is so many microseconds ahead.
#[derive(Debug)]
struct Ahead(Arc<SimClock>, i64);

impl Clock for Ahead {
    fn wall_us(&self) -> i64 {
        self.0.wall_us() + self.1
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
}

/// It holds its locks, and whoever leads is to see to it, also if it was prepared where it is an
/// hour later.
#[test]
fn what_was_prepared_by_a_clock_that_is_ahead_grows_older_at_every_node() {
    const HOUR_US: i64 = 3600 * 1_000_000;
    let mut cluster = Cluster::of(3);
    cluster.write(1, &[("a", "0")]);
    let clock = Arc::<SimClock>::default();
    for (node, ahead_us) in [(1, HOUR_US), (2, 0), (3, 0)] {
        cluster.clocks.insert(node, Arc::new(Ahead(Arc::clone(&clock), ahead_us)));
        cluster.restart(node);
    }
    let mut t = begin(&cluster, 1, "c/1", 1);
    put(&mut t, "a", "1").unwrap();
    settled(&cluster, prepare(t, "done")).unwrap();
    clock.advance(Duration::from_secs(20));
    let ages = |cluster: &Cluster, node| {
        let (families, prepared) = (cluster.node(node).in_doubt(), cluster.node(node).prepared());
        let families: Vec<i64> = families.iter().map(|family| family.age_us).collect();
        (families, prepared.iter().map(|one| one.age).collect::<Vec<Duration>>())
    };
    for node in 1..=3 {
        let expected = (vec![20_000_000], vec![Duration::from_secs(20)]);
        assert_eq!(ages(&cluster, node), expected, "node {node}");
    }
    // Also since a start.
    cluster.node(2).checkpoint().unwrap();
    cluster.restart(2);
    clock.advance(Duration::from_secs(15));
    assert_eq!(ages(&cluster, 2), (vec![15_000_000], vec![Duration::from_secs(15)]));
    settled(&cluster, ask(&cluster, 3, "c/1", Operation::Commit(1))).unwrap();
    assert_eq!(ages(&cluster, 2), (vec![], vec![]));
}

/// Families at random nodes, with strangers in their way, restarts and requests that come late: one
/// winner each, whose writes are there and nobody else's; what anybody was shown as ended stays so;
/// and all nodes show the same.
#[test]
fn random_families_over_three_nodes_have_one_winner_each() {
    let mut totals = [0; 3];
    for seed in seeds(25) {
        let _seed = Seed(seed);
        totals.iter_mut().zip(random_families(seed)).for_each(|(total, count)| *total += count);
    }
    assert!(totals.iter().all(|total| *total > 10), "{totals:?} prepared, decided, forgotten");
}

const FAMILIES: usize = 4;

type Own = (u16, usize, i64, Transaction);

struct Families {
    cluster: Cluster,
    rng: SplitMix,
    active: Vec<Own>,
    asked: Vec<(usize, Commitment<Told>)>,
    forgetting: Vec<(usize, Commitment<cognate_engine::DurableWait>)>,
    strangers: Vec<Commitment>,
    /// Shown as aborted, and as committed, by family.
    aborted: BTreeSet<(usize, i64)>,
    won: BTreeMap<usize, i64>,
    prepared: usize,
    forgotten: BTreeSet<usize>,
}

fn random_families(seed: u64) -> [usize; 3] {
    let mut families = Families {
        cluster: Cluster::of(3),
        rng: SplitMix::new(seed),
        active: Vec::new(),
        asked: Vec::new(),
        forgetting: Vec::new(),
        strangers: Vec::new(),
        aborted: BTreeSet::new(),
        won: BTreeMap::new(),
        prepared: 0,
        forgotten: BTreeSet::new(),
    };
    (0..400).for_each(|_| families.step());
    families.active.clear();
    families.finish();
    families.compare();
    if families.pick(2) == 0 {
        families.cluster.node(1).checkpoint().unwrap();
    }
    families.cluster.restart(1);
    families.cluster.settle();
    families.compare();
    [families.prepared, families.won.len(), families.forgotten.len()]
}

fn name(family: usize) -> String {
    if family.is_multiple_of(2) { format!("c/{}", family + 1) } else { format!("x{family}") }
}

impl Families {
    fn pick(&mut self, below: usize) -> usize {
        self.rng.below(below as u64) as usize
    }

    fn node(&mut self) -> u16 {
        1 + self.pick(3) as u16
    }

    fn step(&mut self) {
        let (family, number, node) = (self.pick(FAMILIES), 1 + self.pick(6) as i64, self.node());
        match self.pick(30) {
            0..=4 => {
                let begun = self.cluster.node(node).begin_instance(
                    xid(&name(family)),
                    instance(number),
                    Isolation::Serializable,
                );
                match begun {
                    Ok(Begun::Active(t)) => self.active.push((node, family, number, *t)),
                    Ok(Begun::Decided(told)) => self.look(family, &told.table),
                    Err(Error::Refused(_)) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            5..=12 if !self.active.is_empty() => self.work(),
            13 | 14 => {
                let operation = match self.pick(5) {
                    0 | 1 => Operation::Commit(number),
                    2 => Operation::Rollback(number),
                    3 => Operation::Show,
                    _ if number < 3 => Operation::Refuse(number),
                    _ => Operation::Show,
                };
                self.asked.push((family, ask(&self.cluster, node, &name(family), operation)));
            }
            15 if self.pick(4) == 0 => {
                self.forgetting.push((family, forget(&self.cluster, node, &name(family))));
            }
            16 => {
                let mut t = self.cluster.begin(node, Isolation::Snapshot);
                let locked =
                    block_on(t.lock(TREE, b"shared", LockMode::NoKeyExclusive, WaitPolicy::NoWait)).is_ok();
                if locked && t.check_unchanged(TREE, b"shared").is_ok() {
                    t.put(TREE, b"shared", value("stranger")).unwrap();
                    self.strangers.push(Commitment::of(t));
                }
            }
            17..=20 => {
                let proposed = self.cluster.order.proposed.lock().unwrap().len();
                if proposed > 0 {
                    let which = self.pick(proposed);
                    self.cluster.order_one(which);
                }
            }
            21 if self.pick(20) == 0 => self.restart(node),
            _ => drop(self.cluster.deliver(node)),
        }
        self.poll();
    }

    fn work(&mut self) {
        let at = self.pick(self.active.len());
        let (node, family, number, mut t) = self.active.swap_remove(at);
        let key = format!("family {family}");
        match self.pick(6) {
            0 => drop(t),
            1..=3 => {
                let key = if self.pick(3) == 0 { "shared" } else { &key[..] };
                let locked =
                    block_on(t.lock(TREE, key.as_bytes(), LockMode::NoKeyExclusive, WaitPolicy::NoWait));
                let wrote = locked.and_then(|_| {
                    t.check_unchanged(TREE, key.as_bytes())?;
                    t.put(TREE, key.as_bytes(), value(&number.to_string()))
                });
                if wrote.is_ok() {
                    self.active.push((node, family, number, t));
                }
            }
            // Whoever commits has written its number.
            _ => {
                let wrote =
                    block_on(t.lock(TREE, key.as_bytes(), LockMode::NoKeyExclusive, WaitPolicy::NoWait))
                        .and_then(|_| {
                            t.check_unchanged(TREE, key.as_bytes())?;
                            t.put(TREE, key.as_bytes(), value(&number.to_string()))
                        });
                if wrote.is_ok() {
                    self.asked.push((family, prepare(t, &number.to_string())));
                }
            }
        }
    }

    fn poll(&mut self) {
        let (mut asked, mut forgetting) =
            (std::mem::take(&mut self.asked), std::mem::take(&mut self.forgetting));
        asked.retain_mut(|(family, one)| match one.poll() {
            None => true,
            Some(Ok(told)) => {
                self.look(*family, &told.table);
                false
            }
            Some(Err(error)) => {
                assert!(matches!(error, Error::Refused(_)) || error.is_retryable(), "{error:?}");
                false
            }
        });
        forgetting.retain_mut(|(family, one)| match one.poll() {
            None => true,
            Some(Ok(_)) => {
                self.forgotten.insert(*family);
                false
            }
            Some(Err(error)) => {
                assert!(matches!(error, Error::Refused(_)), "{error:?}");
                false
            }
        });
        self.strangers.retain_mut(|one| one.poll().is_none());
        (self.asked, self.forgetting) = (asked, forgetting);
    }

    /// What a table tells stays true.
    fn look(&mut self, family: usize, table: &Mipt) {
        for entry in &table.entries {
            let number = entry.instance.get();
            match entry.state {
                State::Aborted => drop(self.aborted.insert((family, number))),
                State::Committed => {
                    let winner = *self.won.entry(family).or_insert(number);
                    assert_eq!(winner, number, "two winners of family {family}");
                    assert_eq!(entry.result, Some(Arc::from(number.to_string())));
                }
                State::Prepared => self.prepared += 1,
                State::Active | State::Unknown => {}
            }
        }
        if let Some(winner) = self.won.get(&family) {
            assert!(!self.aborted.contains(&(family, *winner)), "the winner of {family} was told as aborted");
        }
    }

    /// Until nothing is on its way: some operations ask twice.
    fn finish(&mut self) {
        while !(self.asked.is_empty() && self.forgetting.is_empty() && self.strangers.is_empty()) {
            self.cluster.settle();
            self.poll();
        }
        self.cluster.settle();
    }

    fn restart(&mut self, node: u16) {
        self.active.retain(|own| own.0 != node);
        self.finish();
        if self.pick(2) == 0 {
            self.cluster.node(node).checkpoint().unwrap();
        }
        match self.pick(3) {
            0 => _ = self.cluster.start_again(node, true),
            1 => _ = self.cluster.start_again(node, false),
            _ => _ = self.cluster.transfer(1 + node % 3, node, 1 + 100 * node as usize),
        }
        self.cluster.settle();
    }

    fn compare(&mut self) {
        self.cluster.assert_equal();
        for family in 0..FAMILIES {
            // What a node has given up is ordered when it is asked.
            for node in 1..=3 {
                drop(settled(&self.cluster, ask(&self.cluster, node, &name(family), Operation::Show)));
            }
            let tables: Vec<Result<String, Refusal>> = (1..=3)
                .map(|node| {
                    match settled(&self.cluster, ask(&self.cluster, node, &name(family), Operation::Show)) {
                        Ok(told) => {
                            self.look(family, &told.table);
                            Ok(text(&told.table))
                        }
                        other => Err(refusal(other)),
                    }
                })
                .collect();
            assert!(tables.windows(2).all(|pair| pair[0] == pair[1]), "{tables:?}");
            assert_eq!(self.forgotten.contains(&family), tables[0] == Err(Refusal::Forgotten));
            let row = get(&self.cluster.begin(1, Isolation::Snapshot), &format!("family {family}"));
            assert_eq!(row, self.won.get(&family).map(i64::to_string), "family {family}");
        }
        self.cluster.assert_equal();
    }
}
