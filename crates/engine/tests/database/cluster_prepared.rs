//! Prepared transactions over several nodes: prepared at one, decided at another, in the way of a
//! third.

use std::collections::BTreeMap;

use cognate_engine::{
    Commit, Error, Isolation, LockMode, LockOutcome, Owner, Transaction, TreeMode, WaitPolicy,
};
use cognate_env::SplitMix;

use super::cluster::{Cluster, Commitment, Done, TREE, assert_acyclic, get, overtaken_by, put};
use super::support::{Seed, all, block_on, seeds, value};

pub(super) fn prepare(t: Transaction, name: &str) -> Commitment {
    let name = name.to_owned();
    Commitment::on(async move { t.prepare_in_order(&name, value("note")).await })
}

pub(super) fn decide(cluster: &Cluster, node: u16, name: &str, commits: bool) -> Commitment {
    Commitment::on(cluster.node(node).decide_prepared_in_order(name, commits, None))
}

/// Prepares rows at a node, and lets everybody know.
pub(super) fn prepared(cluster: &Cluster, node: u16, name: &str, rows: &[(&str, &str)]) {
    let mut t = cluster.begin(node, Isolation::Snapshot);
    rows.iter().for_each(|(key, content)| put(&mut t, key, content).unwrap());
    settled(cluster, prepare(t, name)).unwrap();
}

fn settled(cluster: &Cluster, mut asked: Commitment) -> Result<Commit, Error> {
    assert!(asked.poll().is_none(), "nobody has ordered it");
    cluster.settle();
    asked.poll().expect("it was delivered")
}

fn names(cluster: &Cluster, node: u16) -> Vec<String> {
    let name = |owner| match owner {
        Owner::Global(name) => name.to_string(),
        Owner::Instance(..) => panic!("not a family's"),
    };
    let mut names: Vec<String> =
        cluster.node(node).prepared().into_iter().map(|info| name(info.owner)).collect();
    names.sort_unstable();
    names
}

#[test]
fn what_one_node_prepares_another_one_decides() {
    for commits in [true, false] {
        let cluster = Cluster::of(3);
        cluster.write(1, &[("a", "0"), ("b", "0")]);
        prepared(&cluster, 1, "p", &[("a", "1"), ("c", "1")]);
        for node in 1..=3 {
            assert_eq!(all(&cluster.begin(node, Isolation::Snapshot), TREE), "a=0 b=0");
            let info = cluster.node(node).prepared();
            assert_eq!((info.len(), info[0].note.clone()), (1, value("note")), "every node shows it");
            assert!(info[0].locks > 0);
        }
        settled(&cluster, decide(&cluster, 2, "p", commits)).unwrap();
        let expected = if commits { "a=1 b=0 c=1" } else { "a=0 b=0" };
        for node in 1..=3 {
            assert_eq!(all(&cluster.begin(node, Isolation::Snapshot), TREE), expected);
            assert!(names(&cluster, node).is_empty());
        }
        let again = settled(&cluster, decide(&cluster, 3, "p", commits));
        assert!(matches!(again, Err(Error::NotPrepared)), "{again:?}");
        cluster.assert_equal();
        // Nothing is left in the way.
        cluster.write(3, &[("a", "2"), ("c", "2")]);
        cluster.assert_equal();
    }
}

#[test]
fn a_name_is_given_once_in_the_whole_cluster() {
    let cluster = Cluster::of(2);
    let (mut one, mut two) = (cluster.begin(1, Isolation::Snapshot), cluster.begin(2, Isolation::Snapshot));
    put(&mut one, "a", "1").unwrap();
    put(&mut two, "b", "2").unwrap();
    let (mut one, mut two) = (prepare(one, "p"), prepare(two, "p"));
    assert!(one.poll().is_none() && two.poll().is_none());
    cluster.order_one(1);
    cluster.settle();
    two.poll().unwrap().unwrap();
    assert!(matches!(one.poll().unwrap(), Err(Error::AlreadyPrepared)));
    cluster.write(2, &[("a", "free")]);
    settled(&cluster, decide(&cluster, 1, "p", true)).unwrap();
    assert_eq!(all(&cluster.begin(1, Isolation::Snapshot), TREE), "a=free b=2");
    // Free again.
    prepared(&cluster, 1, "p", &[("a", "3")]);
    cluster.assert_equal();
}

/// P writes x at node 1, T at node 3, and P is decided at node 2: whatever the order is, T commits
/// if nothing of P came between what it looked at and its own place.
#[test]
fn a_commit_meets_what_is_prepared_in_every_order() {
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        for commits in [true, false] {
            // T's place among PREPARE and the decision.
            for place in 0..3 {
                let cluster = Cluster::of(3);
                cluster.write(1, &[("x", "0")]);
                let (mut p, mut t) = (cluster.begin(1, isolation), cluster.begin(3, isolation));
                put(&mut p, "x", "p").unwrap();
                put(&mut t, "x", "t").unwrap();
                let (mut p, mut t) = (prepare(p, "p"), Commitment::of(t));
                assert!(p.poll().is_none() && t.poll().is_none());
                let order_first = |of_t: bool| {
                    cluster.order_one(usize::from(of_t));
                };
                if place == 0 {
                    order_first(true);
                    cluster.settle();
                    t.poll().unwrap().unwrap();
                    assert_eq!(overtaken_by(&p.poll().unwrap().unwrap_err()), 3);
                    cluster.write(2, &[("x", "free")]);
                    cluster.assert_equal();
                    continue;
                }
                order_first(false);
                if place == 2 {
                    // The decision overtakes T on the way: nobody but node 1 and 2 has seen P.
                    assert!(cluster.deliver(1) && cluster.deliver(2));
                    let mut decided = decide(&cluster, 2, "p", commits);
                    assert!(decided.poll().is_none());
                    cluster.order_one(1);
                    cluster.settle();
                    decided.poll().unwrap().unwrap();
                } else {
                    cluster.settle();
                }
                p.poll().unwrap().unwrap();
                // What is rolled back was never in the way of who comes after that.
                match t.poll().unwrap() {
                    Ok(_) => assert!(place == 2 && !commits),
                    Err(error) => {
                        assert!(place == 1 || commits, "{error:?}");
                        assert_eq!(overtaken_by(&error), 1);
                    }
                }
                if place == 1 {
                    settled(&cluster, decide(&cluster, 2, "p", commits)).unwrap();
                }
                let expected = match (commits, place) {
                    (true, _) => "p",
                    (false, 2) => "t",
                    (false, _) => "0",
                };
                assert_eq!(get(&cluster.begin(3, Isolation::Snapshot), "x").as_deref(), Some(expected));
                cluster.write(1, &[("x", "free")]);
                cluster.assert_equal();
            }
        }
    }
}

/// Who was on its way with a lock against what is prepared is refused, and not kept until that is
/// decided: the decision comes behind it in the order.
#[test]
fn who_was_on_its_way_to_what_is_prepared_keeps_nobody_waiting() {
    on_its_way_to_what_is_prepared();
}

pub(super) fn on_its_way_to_what_is_prepared() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "0")]);
    let mut late = cluster.begin(2, Isolation::ReadCommitted);
    put(&mut late, "x", "late").unwrap();
    let mut p = cluster.begin(1, Isolation::ReadCommitted);
    put(&mut p, "x", "p").unwrap();
    let (mut p, mut late) = (prepare(p, "p"), Commitment::of(late));
    assert!(p.poll().is_none() && late.poll().is_none());
    cluster.settle();
    p.poll().expect("it was delivered").unwrap();
    let mut decided = decide(&cluster, 2, "p", true);
    assert!(decided.poll().is_none());
    cluster.settle();
    decided.poll().expect("the decision waits for ever").unwrap();
    assert_eq!(overtaken_by(&late.poll().expect("it was delivered").unwrap_err()), 1);
    assert_eq!(all(&cluster.begin(2, Isolation::Snapshot), TREE), "x=p");
    cluster.assert_equal();
}

#[test]
fn who_holds_a_lock_against_it_is_struck_and_who_asks_later_waits() {
    use std::task::{Context, Waker};
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "0")]);
    let (mut struck, mut waits) =
        (cluster.begin(2, Isolation::ReadCommitted), cluster.begin(2, Isolation::ReadCommitted));
    put(&mut struck, "x", "struck").unwrap();
    prepared(&cluster, 1, "p", &[("x", "p")]);
    assert_eq!(overtaken_by(&struck.put(TREE, b"y", value("")).unwrap_err()), 1);
    drop(struck);
    let mut context = Context::from_waker(Waker::noop());
    {
        let mut waiting = Box::pin(waits.lock(TREE, b"x", LockMode::Exclusive, WaitPolicy::Block));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        // Neither does the end of another commit let it through.
        cluster.write(2, &[("y", "2")]);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        settled(&cluster, decide(&cluster, 1, "p", true)).unwrap();
        let std::task::Poll::Ready(locked) = waiting.as_mut().poll(&mut context) else { panic!("it waits") };
        assert_eq!(locked.unwrap(), LockOutcome::Granted { waited: true });
    }
    assert_eq!(waits.get_latest(TREE, b"x").unwrap().value, Some(value("p")));
    waits.put(TREE, b"x", value("waited")).unwrap();
    settled(&cluster, Commitment::of(waits)).unwrap();
    cluster.assert_equal();
}

#[test]
fn locks_on_trees_and_on_rows_that_it_only_locked_are_held_everywhere() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("parent", "1")]);
    let mut p = cluster.begin(1, Isolation::ReadCommitted);
    block_on(p.lock(TREE, b"parent", LockMode::KeyShared, WaitPolicy::NoWait)).unwrap();
    block_on(p.lock_tree(1009, TreeMode::Exclusive, WaitPolicy::NoWait)).unwrap();
    put(&mut p, "child", "1").unwrap();
    settled(&cluster, prepare(p, "p")).unwrap();
    let mut running = [1, 2].map(|node| cluster.begin(node, Isolation::ReadCommitted));
    for t in &mut running {
        let refused = block_on(t.lock(TREE, b"parent", LockMode::Exclusive, WaitPolicy::NoWait));
        assert!(matches!(refused, Err(Error::LockNotAvailable)), "{refused:?}");
        let refused = block_on(t.lock_tree(1009, TreeMode::Write, WaitPolicy::NoWait));
        assert!(matches!(refused, Err(Error::LockNotAvailable)), "{refused:?}");
    }
    settled(&cluster, decide(&cluster, 2, "p", false)).unwrap();
    for t in &mut running {
        block_on(t.lock(TREE, b"parent", LockMode::Exclusive, WaitPolicy::NoWait)).unwrap();
        block_on(t.lock_tree(1009, TreeMode::Write, WaitPolicy::NoWait)).unwrap();
    }
    cluster.assert_equal();
}

#[test]
fn nobody_commits_who_would_close_a_cycle_through_what_is_prepared() {
    let cluster = Cluster::of(3);
    cluster.write(1, &[("x", "50"), ("y", "50")]);
    let (mut p, mut t) =
        (cluster.begin(1, Isolation::Serializable), cluster.begin(3, Isolation::Serializable));
    for one in [&p, &t] {
        assert!(get(one, "x").is_some() && get(one, "y").is_some());
    }
    put(&mut p, "x", "-10").unwrap();
    put(&mut t, "y", "-10").unwrap();
    settled(&cluster, prepare(p, "p")).unwrap();
    let refused = settled(&cluster, Commitment::of(t));
    assert!(matches!(refused, Err(Error::DependencyCycle { .. })), "{refused:?}");
    settled(&cluster, decide(&cluster, 2, "p", true)).unwrap();
    cluster.assert_equal();
}

#[test]
fn a_restart_leaves_it_prepared_and_the_loss_of_its_node_does_not_matter() {
    for (checkpoint, is_planned) in [(false, false), (true, false), (true, true), (false, true)] {
        let mut cluster = Cluster::of(3);
        cluster.write(1, &[("x", "0"), ("y", "0")]);
        prepared(&cluster, 1, "before", &[("y", "1")]);
        settled(&cluster, decide(&cluster, 3, "before", true)).unwrap();
        prepared(&cluster, 1, "p", &[("x", "p")]);
        prepared(&cluster, 2, "q", &[("z", "q")]);
        cluster.write(2, &[("w", "1")]);
        if checkpoint {
            (1..=3).for_each(|node| cluster.node(node).checkpoint().unwrap());
        }
        for node in 1..=3 {
            let begins = cluster.start_again(node, is_planned);
            let all: &[&str] = if begins > 0 { &["p", "q"] } else { &[] };
            assert_eq!(names(&cluster, node), all, "from its image, which is at {begins}");
            assert_eq!(begins > 0, checkpoint || is_planned);
        }
        cluster.settle();
        for node in 1..=3 {
            assert_eq!(names(&cluster, node), ["p", "q"]);
            assert_eq!(all(&cluster.begin(node, Isolation::Snapshot), TREE), "w=1 x=0 y=1");
            let mut t = cluster.begin(node, Isolation::ReadCommitted);
            let refused = block_on(t.lock(TREE, b"x", LockMode::Shared, WaitPolicy::NoWait));
            assert!(matches!(refused, Err(Error::LockNotAvailable)), "{refused:?}");
        }
        cluster.assert_equal();
        settled(&cluster, decide(&cluster, 3, "p", true)).unwrap();
        if checkpoint {
            cluster.node(2).checkpoint().unwrap();
        }
        cluster.restart(2);
        settled(&cluster, decide(&cluster, 1, "q", false)).unwrap();
        for node in 1..=3 {
            assert!(names(&cluster, node).is_empty());
            assert_eq!(all(&cluster.begin(node, Isolation::Snapshot), TREE), "w=1 x=p y=1");
        }
        cluster.assert_equal();
    }
}

#[test]
fn a_request_that_comes_twice_counts_once() {
    let cluster = Cluster::of(2);
    prepared(&cluster, 1, "p", &[("x", "1")]);
    let again = |at: usize| {
        let request = cluster.order.ordered.lock().unwrap()[at].clone();
        cluster.order.ordered.lock().unwrap().push(request);
        cluster.settle();
        cluster.assert_equal();
    };
    again(0);
    assert_eq!(names(&cluster, 2), ["p"]);
    settled(&cluster, decide(&cluster, 2, "p", true)).unwrap();
    again(0);
    assert!(names(&cluster, 1).is_empty());
    prepared(&cluster, 2, "p", &[("x", "2")]);
    // The decision about the first one of the name.
    again(2);
    assert_eq!(names(&cluster, 1), ["p"]);
}

#[test]
fn its_outcome_is_that_of_the_decision() {
    let cluster = Cluster::of(2);
    for commits in [true, false] {
        let mut t = cluster.begin(1, Isolation::Snapshot);
        let (id, name) = (t.id(), if commits { "first" } else { "second" });
        t.name_request(name);
        put(&mut t, "x", "1").unwrap();
        settled(&cluster, prepare(t, "p")).unwrap();
        for node in [cluster.node(1), cluster.node(2)] {
            assert_eq!((node.outcome(id), node.outcome_of(name)), (None, None), "nobody knows yet");
            assert_eq!(node.prepared_name(&Owner::Global("p".into())).as_deref(), Some(name));
        }
        settled(&cluster, decide(&cluster, 2, "p", commits)).unwrap();
        for node in [cluster.node(1), cluster.node(2)] {
            assert_eq!(node.outcome(id).map(|outcome| outcome.1), Some(commits));
            assert_eq!(node.outcome_of(name).map(|outcome| outcome.1), Some(commits));
        }
    }
}

/// A decision that its client names is made once, and known by that name.
#[test]
fn a_decision_that_is_named_counts_once() {
    let cluster = Cluster::of(2);
    let named = |node: u16, commits: bool, name: &str| {
        Commitment::on(cluster.node(node).decide_prepared_in_order("p", commits, Some(name)))
    };
    prepared(&cluster, 1, "p", &[("x", "1")]);
    settled(&cluster, named(2, false, "d")).unwrap();
    for node in [cluster.node(1), cluster.node(2)] {
        assert_eq!(node.outcome_of("d").map(|outcome| outcome.1), Some(true), "it was rolled back");
    }
    prepared(&cluster, 1, "p", &[("x", "2")]);
    let again = settled(&cluster, named(1, false, "d")).unwrap_err();
    assert!(matches!(again, Error::RequestKnown { .. }), "{again:?}");
    assert_eq!(names(&cluster, 2), ["p"], "this is another one");
    settled(&cluster, named(1, true, "e")).unwrap();
    assert_eq!(get(&cluster.begin(2, Isolation::Snapshot), "x").as_deref(), Some("2"));
    cluster.assert_equal();
}

/// What was read and written so far.
#[derive(Default)]
struct SoFar {
    read: Vec<(usize, Option<usize>)>,
    wrote: Vec<usize>,
}

enum Ending {
    Commits,
    Prepares,
}

struct Going {
    id: usize,
    asked: Commitment,
    so_far: SoFar,
    ending: Ending,
}

const KEYS: usize = 6;

/// Transactions at random nodes, some of which are prepared there and decided anywhere; nodes start
/// again in between. Whoever committed fits into one serial order, and all nodes have the same.
#[test]
fn random_histories_with_prepared_transactions_are_serializable_as_one_copy() {
    let mut totals = [0; 3];
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let counts = random_history(seed);
        totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    let [committed, decided, refused] = totals;
    assert!(committed > 200 && decided > 100 && refused > 50, "{totals:?}");
}

struct History {
    cluster: Cluster,
    rng: SplitMix,
    running: Vec<(usize, u16, Transaction, SoFar)>,
    going: Vec<Going>,
    /// Prepared, by name: what they have read and written.
    promised: BTreeMap<usize, SoFar>,
    deciding: Vec<(usize, bool, Commitment)>,
    done: Vec<Done>,
    decided: usize,
    refused: usize,
    next: usize,
}

pub(super) fn random_history(seed: u64) -> [usize; 3] {
    let mut history = History {
        cluster: Cluster::of(3),
        rng: SplitMix::new(seed),
        running: Vec::new(),
        going: Vec::new(),
        promised: BTreeMap::new(),
        deciding: Vec::new(),
        done: Vec::new(),
        decided: 0,
        refused: 0,
        next: 0,
    };
    (0..500).for_each(|_| history.step());
    history.running.clear();
    history.cluster.settle();
    history.poll();
    for name in history.promised.keys().copied().collect::<Vec<_>>() {
        let commits = history.pick(2) == 0;
        history.decide(name, commits);
    }
    history.cluster.settle();
    history.poll();
    assert!(history.going.is_empty() && history.deciding.is_empty() && history.promised.is_empty());
    history.cluster.assert_equal();
    assert_acyclic(&history.done);
    // A node that starts with nothing but the order comes to the same.
    history.cluster.restart(1);
    history.cluster.settle();
    history.cluster.assert_equal();
    [history.done.len(), history.decided, history.refused]
}

impl History {
    fn pick(&mut self, below: usize) -> usize {
        self.rng.below(below as u64) as usize
    }

    fn node(&mut self) -> u16 {
        1 + self.pick(3) as u16
    }

    fn step(&mut self) {
        match self.pick(24) {
            0..=5 if self.running.len() < 6 => {
                let node = self.node();
                let t = self.cluster.begin(node, Isolation::Serializable);
                self.running.push((self.next, node, t, SoFar::default()));
                self.next += 1;
            }
            6..=11 if !self.running.is_empty() => self.work(),
            12..=14 if !self.running.is_empty() => {
                let at = self.pick(self.running.len());
                let (id, _, t, so_far) = self.running.swap_remove(at);
                let (asked, ending) = match self.pick(2) {
                    0 => (Commitment::of(t), Ending::Commits),
                    _ => (prepare(t, &id.to_string()), Ending::Prepares),
                };
                self.going.push(Going { id, asked, so_far, ending });
            }
            15 | 16 if !self.promised.is_empty() => {
                let at = self.pick(self.promised.len());
                let name = *self.promised.keys().nth(at).unwrap();
                let commits = self.pick(3) > 0;
                self.decide(name, commits);
            }
            17 | 18 => {
                let proposed = self.cluster.order.proposed.lock().unwrap().len();
                if proposed > 0 {
                    let which = self.pick(proposed);
                    self.cluster.order_one(which);
                }
            }
            19 if self.pick(12) == 0 => self.restart(),
            _ => {
                let node = self.node();
                self.cluster.deliver(node);
            }
        }
        self.poll();
    }

    fn work(&mut self) {
        let at = self.pick(self.running.len());
        let (id, node, mut t, mut so_far) = self.running.swap_remove(at);
        let number = self.pick(KEYS);
        let key = format!("k{number}");
        // Whoever prepares holds its locks for long: nobody waits here.
        let step = match self.pick(3) {
            0 => put_now(&mut t, &key, &id.to_string()).map(|()| {
                if !so_far.wrote.contains(&number) {
                    so_far.wrote.push(number);
                }
            }),
            _ if so_far.wrote.contains(&number) => Ok(()),
            _ => {
                so_far.read.push((number, get(&t, &key).map(|text| text.parse().unwrap())));
                Ok(())
            }
        };
        match step {
            Ok(()) => self.running.push((id, node, t, so_far)),
            Err(_) => self.refused += 1,
        }
    }

    fn decide(&mut self, name: usize, commits: bool) {
        let node = self.node();
        let mut asked = decide(&self.cluster, node, &name.to_string(), commits);
        assert!(asked.poll().is_none());
        self.deciding.push((name, commits, asked));
    }

    /// A node loses what runs there; what it had proposed goes its way.
    fn restart(&mut self) {
        let node = self.node();
        let lost = self.running.extract_if(.., |(_, of, ..)| *of == node);
        self.refused += lost.count();
        // Whoever waits there for an answer would wait for ever: let the order get on first.
        self.cluster.settle();
        self.poll();
        if self.pick(2) == 0 {
            self.cluster.node(node).checkpoint().unwrap();
        }
        match self.pick(3) {
            0 => _ = self.cluster.start_again(node, true),
            1 => _ = self.cluster.start_again(node, false),
            _ => _ = self.cluster.transfer(1 + node % 3, node, 1 + 100 * node as usize),
        }
        let position = self.cluster.order.ordered.lock().unwrap().len();
        // Up to some position that it had already; clients come when it has all of that.
        while self.cluster.node(node).applied() < position as u64 {
            self.cluster.deliver(node);
        }
    }

    fn poll(&mut self) {
        let (mut going, mut deciding) = (std::mem::take(&mut self.going), std::mem::take(&mut self.deciding));
        going.retain_mut(|one| match one.asked.poll() {
            None => true,
            Some(Ok(commit)) => {
                let so_far = std::mem::take(&mut one.so_far);
                match one.ending {
                    Ending::Commits => self.commit(one.id, so_far, commit.csn),
                    Ending::Prepares => drop(self.promised.insert(one.id, so_far)),
                }
                false
            }
            Some(Err(error)) => {
                assert!(error.is_retryable(), "{error:?}");
                self.refused += 1;
                false
            }
        });
        deciding.retain_mut(|(name, commits, asked)| match asked.poll() {
            None => true,
            Some(Ok(commit)) => {
                let so_far = self.promised.remove(name).expect("it was prepared");
                self.decided += 1;
                if *commits {
                    self.commit(*name, so_far, commit.csn);
                }
                false
            }
            // Somebody else has decided it, and perhaps not heard of that yet.
            Some(Err(error)) => {
                assert!(matches!(error, Error::NotPrepared), "{error:?}");
                false
            }
        });
        (self.going, self.deciding) = (going, deciding);
    }

    fn commit(&mut self, id: usize, so_far: SoFar, position: u64) {
        self.done.push(Done { id, read: so_far.read, wrote: so_far.wrote, position });
    }
}

fn put_now(t: &mut Transaction, key: &str, content: &str) -> Result<(), Error> {
    block_on(t.lock(TREE, key.as_bytes(), LockMode::NoKeyExclusive, WaitPolicy::NoWait))?;
    t.check_unchanged(TREE, key.as_bytes())?;
    t.put(TREE, key.as_bytes(), value(content))
}
