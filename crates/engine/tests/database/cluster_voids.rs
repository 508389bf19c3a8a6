//! Names that are closed because nothing was ordered under them: whatever comes later does not
//! commit, at no node, and who asks is told the same everywhere, behind images, too.

use cognate_engine::{Database, Error, Isolation, Replication};
use cognate_env::SplitMix;

use super::cluster::{Cluster, Commitment, TREE, get, program, put};
use super::cluster_prepared::{decide, prepare};
use super::support::{Seed, seeds};

/// A commit under a name, which nobody has ordered.
fn named(cluster: &Cluster, node: u16, name: &str, key: &str) -> Commitment {
    let mut t = cluster.begin(node, Isolation::Snapshot);
    t.name_request(name);
    put(&mut t, key, "1").unwrap();
    let mut commit = Commitment::of(t);
    assert!(commit.poll().is_none(), "nobody has ordered it");
    commit
}

/// Asks a node to close a name, of something that came later than a position.
fn closing(cluster: &Cluster, node: u16, name: &str, since: u64) -> Commitment<bool> {
    let (node, name) = (cluster.node(node).clone(), name.to_owned());
    let mut closing = Commitment::on(async move { node.close_name(&name, since).await });
    assert!(closing.poll().is_none(), "nobody has ordered it");
    closing
}

/// What all nodes say of a name: whether it has committed, if that is known.
fn told(cluster: &Cluster, name: &str) -> Option<bool> {
    let told: Vec<Option<bool>> =
        cluster.nodes.iter().map(|node: &Database| node.outcome_of(name).map(|outcome| outcome.1)).collect();
    assert!(told.windows(2).all(|pair| pair[0] == pair[1]), "{name}: {told:?}");
    told[0]
}

fn assert_void(verdict: Option<Result<impl Sized, Error>>) {
    match verdict {
        Some(Err(Error::RequestVoid { .. })) => {}
        Some(Err(error)) => panic!("{error:?}"),
        Some(Ok(_)) => panic!("it has committed"),
        None => panic!("nobody has decided it"),
    }
}

/// The origin of a request is lost before that is ordered, and its name is closed. One node has the
/// void from an image, and one from another node's state, when the request comes all the same.
pub(super) fn closed_and_late() {
    let mut cluster = Cluster::of(3);
    cluster.write(2, &[("x", "0")]);
    drop(named(&cluster, 1, "n", "x"));
    let late = cluster.order.proposed.lock().unwrap().remove(0);
    cluster.start_again(1, false);
    assert_eq!(told(&cluster, "n"), None);
    let mut closed = closing(&cluster, 2, "n", 0);
    cluster.settle();
    assert!(closed.poll().unwrap().unwrap());
    drop(closed);
    assert_eq!(told(&cluster, "n"), Some(false));
    cluster.start_again(2, true);
    assert!(cluster.transfer(2, 3, 1000));
    assert_eq!(told(&cluster, "n"), Some(false));
    cluster.order.ordered.lock().unwrap().push(late);
    cluster.settle();
    assert_eq!(told(&cluster, "n"), Some(false));
    let found = get(&cluster.begin(2, Isolation::Snapshot), "x");
    assert_eq!(found.as_deref(), Some("0"), "it has committed after all");
    cluster.assert_equal();
    // Nor does it under the same name from another node.
    let mut again = named(&cluster, 3, "n", "x");
    cluster.settle();
    assert_void(again.poll());
    let mut other = named(&cluster, 3, "m", "x");
    cluster.settle();
    other.poll().unwrap().unwrap();
    assert_eq!((told(&cluster, "n"), told(&cluster, "m")), (Some(false), Some(true)));
    cluster.assert_equal();
}

#[test]
fn a_request_that_comes_after_its_name_was_closed_does_not_commit() {
    closed_and_late();
}

/// Its locks go, and its client is told why.
#[test]
fn of_a_request_and_its_void_the_first_in_the_order_counts() {
    let cluster = Cluster::of(2);
    for (name, voided) in [("first", true), ("second", false)] {
        let mut commit = named(&cluster, 1, name, "x");
        let mut closed = closing(&cluster, 2, name, 0);
        cluster.order_one(usize::from(voided));
        cluster.settle();
        assert_eq!(closed.poll().unwrap().unwrap(), voided);
        match voided {
            true => assert_void(commit.poll()),
            false => {
                commit.poll().unwrap().unwrap();
            }
        }
        assert_eq!(told(&cluster, name), Some(!voided));
        cluster.write(2, &[("x", "2")]);
        cluster.assert_equal();
    }
}

/// Whoever has given it no name asks by its number.
#[test]
fn a_transaction_without_a_name_is_closed_by_its_id() {
    let cluster = Cluster::of(2);
    for protocol in [Replication::Certification, Replication::WeakVoting] {
        let mut t = cluster.begin(1, Isolation::Serializable);
        let id = t.id().to_string();
        t.get(TREE, b"other").unwrap();
        put(&mut t, "x", "1").unwrap();
        let mut commit = Commitment::by(t, protocol);
        assert!(commit.poll().is_none(), "nobody has ordered it");
        let mut closed = closing(&cluster, 2, &id, 0);
        cluster.order_one(1);
        cluster.settle();
        assert!(closed.poll().unwrap().unwrap());
        assert_void(commit.poll());
        assert_eq!(told(&cluster, &id), Some(false));
        cluster.assert_equal();
    }
}

/// A program is executed before its verdict, and what it did counts for nothing.
#[test]
fn a_program_whose_name_was_closed_does_nothing() {
    let cluster = Cluster::of(2);
    cluster.write(2, &[("k1", "0")]);
    let id = cluster.node(1).program_id();
    let ordered = cluster.node(1).order_program(id, Isolation::Snapshot, Some("n"), &program(7, &[], &[1]));
    let mut ordered = Commitment::on(ordered.unwrap());
    let mut closed = closing(&cluster, 2, "n", 0);
    cluster.order_one(1);
    cluster.settle();
    assert!(closed.poll().unwrap().unwrap());
    assert_void(ordered.poll());
    assert_eq!(told(&cluster, "n"), Some(false));
    assert_eq!(get(&cluster.begin(1, Isolation::Snapshot), "k1").as_deref(), Some("0"));
    cluster.assert_equal();
}

/// What is prepared is not closed; what was rolled back is, and nobody tries it again.
#[test]
fn what_is_prepared_is_told_by_its_decision_alone() {
    let cluster = Cluster::of(2);
    for commits in [true, false] {
        let name = if commits { "first" } else { "second" };
        let mut t = cluster.begin(1, Isolation::Snapshot);
        t.name_request(name);
        put(&mut t, "x", "1").unwrap();
        let mut prepared = prepare(t, "p");
        assert!(prepared.poll().is_none(), "nobody has ordered it");
        cluster.settle();
        prepared.poll().unwrap().unwrap();
        let mut closed = closing(&cluster, 2, name, 0);
        cluster.settle();
        assert!(!closed.poll().unwrap().unwrap(), "it may commit");
        assert_eq!(told(&cluster, name), None, "nobody knows yet");
        let mut again = named(&cluster, 2, name, "y");
        cluster.settle();
        assert!(matches!(again.poll(), Some(Err(Error::RequestPrepared { .. }))), "it has not committed");
        let mut decided = decide(&cluster, 2, "p", commits);
        assert!(decided.poll().is_none(), "nobody has ordered it");
        cluster.settle();
        decided.poll().unwrap().unwrap();
        assert_eq!(told(&cluster, name), Some(commits));
        let mut closed = closing(&cluster, 1, name, 0);
        cluster.settle();
        assert_eq!(closed.poll().unwrap().unwrap(), !commits);
        assert_eq!(told(&cluster, name), Some(commits));
        let mut again = named(&cluster, 2, name, "y");
        cluster.settle();
        match commits {
            true => assert!(matches!(again.poll(), Some(Err(Error::RequestKnown { .. })))),
            false => assert_void(again.poll()),
        }
        cluster.assert_equal();
    }
}

/// Who only reads is in the order for that to be judged, and its client may give all its requests
/// one name.
#[test]
fn who_only_reads_leaves_its_name_to_who_writes() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "0"), ("y", "0")]);
    for protocol in [Replication::Certification, Replication::WeakVoting] {
        let mut reader = cluster.begin(1, Isolation::Serializable);
        let id = reader.id();
        reader.name_request("n");
        assert!(get(&reader, "x").is_some() && get(&reader, "y").is_some());
        let mut reader = Commitment::by(reader, protocol);
        assert!(reader.poll().is_none(), "others judge it, too");
        cluster.settle();
        reader.poll().unwrap().unwrap();
        assert_eq!(told(&cluster, "n"), None);
        assert_eq!(cluster.node(2).outcome(id).map(|outcome| outcome.1), Some(true));
    }
    let mut writer = named(&cluster, 2, "n", "x");
    cluster.settle();
    writer.poll().unwrap().unwrap();
    assert_eq!(told(&cluster, "n"), Some(true));
    cluster.assert_equal();
}

/// How often a name was closed, and how often somebody had it.
#[derive(Default)]
struct Totals {
    void: usize,
    committed: usize,
}

/// Transactions of few names at two nodes, and questions about these, in any order and some of them
/// twice; a third node stops and starts all the while, also with the state of another one. What was
/// said for good stays so, and is what has happened.
fn random_history(seed: u64, totals: &mut Totals) {
    let mut random = SplitMix::new(seed);
    let mut pick = |below: usize| random.below(below as u64) as usize;
    let mut cluster = Cluster::of(3);
    let names: Vec<String> = (0..12).map(|number| format!("name {number}")).collect();
    let (mut commits, mut closings, mut said) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..300 {
        let (name, node) = (names[pick(names.len())].as_str(), 1 + pick(2) as u16);
        match pick(9) {
            0 | 1 => {
                let mut t = cluster.begin(node, Isolation::Serializable);
                t.name_request(name);
                // Nobody writes it, but a voter has to say so.
                t.get(TREE, b"read").unwrap();
                put(&mut t, &format!("k{step}"), "1").unwrap();
                let protocol = [Replication::Certification, Replication::WeakVoting][pick(2)];
                let mut commit = Commitment::by(t, protocol);
                assert!(commit.poll().is_none(), "nobody has ordered it");
                commits.push((name, commit));
            }
            2 => closings.push((name, node, closing(&cluster, node, name, 0))),
            3 | 4 => {
                let proposed = cluster.order.proposed.lock().unwrap().len();
                if proposed > 0 {
                    cluster.order_one(pick(proposed));
                }
                let mut ordered = cluster.order.ordered.lock().unwrap();
                if pick(6) == 0 && !ordered.is_empty() {
                    let again = ordered[pick(ordered.len())].clone();
                    ordered.push(again);
                }
            }
            5 if pick(3) == 0 => {
                cluster.start_again(3, pick(2) == 0);
            }
            5 if pick(3) == 0 => {
                cluster.transfer(node, 3, 500);
            }
            _ => {
                cluster.deliver(1 + pick(3) as u16);
            }
        }
        closings.retain_mut(|(name, node, closing)| {
            let Some(closed) = closing.poll() else { return true };
            let outcome = cluster.node(*node).outcome_of(name).expect("nothing is forgotten");
            assert_eq!(outcome.1, !closed.unwrap(), "nobody is prepared");
            said.push((*name, outcome.1));
            false
        });
    }
    cluster.settle();
    cluster.assert_equal();
    for (name, committed) in said {
        assert_eq!(told(&cluster, name), Some(committed), "{name}");
        totals.void += usize::from(!committed);
    }
    let polled = commits.into_iter().map(|(name, mut one)| (name, one.poll().expect("it was delivered")));
    let committed: Vec<&str> = polled.filter(|(_, verdict)| verdict.is_ok()).map(|(name, _)| name).collect();
    for name in &names {
        let times = committed.iter().filter(|other| *other == name).count();
        assert_eq!(times, usize::from(told(&cluster, name) == Some(true)), "{name}");
        totals.committed += times;
    }
}

#[test]
fn what_is_said_for_good_is_what_happens() {
    let mut totals = Totals::default();
    for seed in seeds(20) {
        let _seed = Seed(seed);
        random_history(seed, &mut totals);
    }
    let Totals { void, committed } = totals;
    assert!(void > 20 && committed > 20, "{void} were closed, {committed} have committed");
}
