//! What is too large for one request of a node comes to the others in parts: whoever comes, goes,
//! or is faster in between, all have it or nobody has, and nothing else stays of it.
//!
//! A request of these tests has 1 MB at most, so a part has 64 KB.

use cognate_engine::{Commit, Error, Isolation, Replication, Transaction, TreeId};
use cognate_env::SplitMix;

use super::cluster::{Cluster, Commitment, TREE, get, overtaken_by, put};
use super::cluster_prepared::prepare;
use super::support::{Seed, all, rows, seeds, value};

/// Where the engine keeps parts.
pub(super) const PARTS_TREE: TreeId = TreeId::MAX - 5;
const ROW_BYTES: usize = 60_000;
/// Some more than a request may have.
const ROWS: usize = 25;

fn key(row: usize) -> String {
    format!("row {row:03}")
}

/// One that writes so many large rows.
pub(super) fn large(cluster: &Cluster, node: u16, count: usize) -> Transaction {
    let mut t = cluster.begin(node, Isolation::Serializable);
    let content = "x".repeat(ROW_BYTES);
    (0..count).for_each(|row| put(&mut t, &key(row), &content).unwrap());
    t
}

/// Lets so many of its requests come to all nodes, and has it propose the next one.
pub(super) fn advance(cluster: &Cluster, commit: &mut Commitment, count: usize) {
    for _ in 0..count {
        assert!(commit.poll().is_none(), "it has not come as a whole");
        cluster.settle();
    }
    assert!(commit.poll().is_none(), "it has not come as a whole");
}

/// Lets all of it come.
fn complete(cluster: &Cluster, commit: &mut Commitment) -> Result<Commit, Error> {
    loop {
        if let Some(told) = commit.poll() {
            return told;
        }
        assert!(!cluster.order.proposed.lock().unwrap().is_empty(), "it waits for nothing");
        cluster.settle();
    }
}

fn ordered(cluster: &Cluster) -> usize {
    cluster.order.ordered.lock().unwrap().len()
}

/// How many rows a node sees in a tree.
fn count(cluster: &Cluster, node: u16, tree: TreeId) -> usize {
    use std::ops::Bound::Unbounded;
    rows(&cluster.begin(node, Isolation::Snapshot), tree, (Unbounded, Unbounded), false).len()
}

/// Two positions later nobody has any part.
fn assert_nothing_stays(cluster: &Cluster) {
    cluster.write(1, &[("small", "1")]);
    cluster.write(2, &[("small", "2")]);
    for node in 1..=cluster.nodes.len() as u16 {
        assert_eq!(count(cluster, node, PARTS_TREE), 0, "node {node}");
    }
    cluster.assert_equal();
}

#[test]
fn what_is_too_large_for_one_request_comes_in_parts() {
    let cluster = Cluster::of(3);
    let mut commit = Commitment::of(large(&cluster, 1, ROWS));
    advance(&cluster, &mut commit, 3);
    for node in 1..=3 {
        assert_eq!(count(&cluster, node, PARTS_TREE), 3, "node {node}");
        assert_eq!(count(&cluster, node, TREE), 0, "it is not there as a whole");
    }
    let done = complete(&cluster, &mut commit).unwrap();
    assert_eq!(done.csn as usize, ordered(&cluster), "its place is that of the last request");
    let longest = cluster.order.ordered.lock().unwrap().iter().map(bytes::Bytes::len).max();
    assert!(longest.is_some_and(|longest| longest < 1 << 17), "{longest:?}");
    (1..=3).for_each(|node| assert_eq!(count(&cluster, node, TREE), ROWS, "node {node}"));
    assert_nothing_stays(&cluster);
}

#[test]
fn what_it_has_made_itself_comes_in_parts_too() {
    let cluster = Cluster::of(2);
    let mut t = cluster.begin(1, Isolation::Serializable);
    let tree = t.create_tree();
    let content = "x".repeat(ROW_BYTES);
    (0..ROWS).for_each(|row| t.put(tree, key(row).as_bytes(), value(&content)).unwrap());
    put(&mut t, "catalog", "it is there").unwrap();
    complete(&cluster, &mut Commitment::of(t)).unwrap();
    (1..=2).for_each(|node| assert_eq!(count(&cluster, node, tree), ROWS, "node {node}"));
    // It is judged like any other, by who reads it later, too.
    let mut later = cluster.begin(2, Isolation::Serializable);
    assert!(later.get(tree, key(3).as_bytes()).unwrap().is_some());
    put(&mut later, "catalog", "it was read").unwrap();
    complete(&cluster, &mut Commitment::of(later)).unwrap();
    assert_nothing_stays(&cluster);
}

#[test]
fn who_is_faster_in_between_strikes_it() {
    let cluster = Cluster::of(2);
    let mut t = large(&cluster, 1, ROWS);
    t.name_request("large");
    let id = t.id();
    let mut commit = Commitment::of(t);
    advance(&cluster, &mut commit, 2);
    let mut fast = cluster.begin(2, Isolation::Serializable);
    put(&mut fast, &key(7), "fast").unwrap();
    let mut fast = Commitment::of(fast);
    assert!(fast.poll().is_none(), "nobody has ordered it");
    cluster.settle();
    fast.poll().unwrap().unwrap();
    assert_eq!(overtaken_by(&complete(&cluster, &mut commit).unwrap_err()), 2);
    drop(commit);
    cluster.settle();
    for node in [1, 2] {
        let told = cluster.node(node).outcome(id);
        assert!(told.is_some_and(|(_, committed)| !committed), "node {node}: {told:?}");
        assert_eq!(cluster.node(node).outcome_of("large"), told);
    }
    assert_eq!(get(&cluster.begin(1, Isolation::Snapshot), &key(7)).as_deref(), Some("fast"));
    assert_nothing_stays(&cluster);
}

/// Its client has gone, and the part that was on its way comes afterwards.
#[test]
fn a_part_that_comes_after_its_transaction_was_given_up_is_refused() {
    let cluster = Cluster::of(2);
    let mut commit = Commitment::of(large(&cluster, 1, ROWS));
    advance(&cluster, &mut commit, 2);
    drop(commit);
    assert_eq!(cluster.order.proposed.lock().unwrap().len(), 2, "a part, and that it is given up");
    cluster.order_one(1);
    cluster.settle();
    assert_nothing_stays(&cluster);
    // Its locks have gone, too.
    cluster.write(1, &[(&key(0), "1")]);
}

/// The leader changes, answers are lost, and what was proposed is proposed once more: each request
/// comes twice, at once or long afterwards, and counts once.
#[test]
fn what_comes_twice_counts_once() {
    for is_late in [false, true] {
        let cluster = Cluster::of(2);
        let mut commit = Commitment::of(large(&cluster, 1, ROWS));
        let told = loop {
            if let Some(told) = commit.poll() {
                break told;
            }
            cluster.settle();
            if !is_late {
                let again = cluster.order.ordered.lock().unwrap().last().cloned();
                cluster.order.proposed.lock().unwrap().extend(again);
            }
        };
        told.unwrap();
        if is_late {
            let all = cluster.order.ordered.lock().unwrap().clone();
            cluster.order.proposed.lock().unwrap().extend(all);
        }
        cluster.settle();
        (1..=2).for_each(|node| assert_eq!(count(&cluster, node, TREE), ROWS, "node {node}"));
        assert_nothing_stays(&cluster);
    }
}

/// What says so may be lost, at a node that hears nobody; then it is said again.
#[test]
fn that_it_is_given_up_is_said_until_it_is_known() {
    let cluster = Cluster::of(2);
    let mut commit = Commitment::of(large(&cluster, 1, ROWS));
    advance(&cluster, &mut commit, 2);
    drop(commit);
    let lost = std::mem::take(&mut *cluster.order.proposed.lock().unwrap());
    lost.iter().for_each(|request| cluster.node(1).not_ordered(request));
    assert_nothing_stays(&cluster);
}

#[test]
fn a_part_that_is_lost_ends_it_and_so_does_the_whole() {
    let cluster = Cluster::of(2);
    let before = ordered(&cluster);
    complete(&cluster, &mut Commitment::of(large(&cluster, 1, ROWS))).unwrap();
    let requests = ordered(&cluster) - before;
    for come in [1, requests - 1] {
        let mut commit = Commitment::of(large(&cluster, 1, ROWS));
        advance(&cluster, &mut commit, come);
        let lost = cluster.order.proposed.lock().unwrap().pop().unwrap();
        cluster.node(1).not_ordered(&lost);
        let told = commit.poll().expect("it is told");
        assert!(matches!(told, Err(Error::NotOrdered)), "{told:?}");
        drop(commit);
        assert_nothing_stays(&cluster);
        cluster.write(2, &[(&key(0), "1")]);
    }
}

/// The node where it runs has a power failure; the others hear of that by its next start.
#[test]
fn what_a_lost_node_has_sent_of_it_goes_with_its_next_start() {
    let mut cluster = Cluster::of(2);
    let mut commit = Commitment::of(large(&cluster, 1, ROWS));
    advance(&cluster, &mut commit, 4);
    cluster.node(2).checkpoint().unwrap();
    drop(commit);
    // It has not come to say so.
    cluster.order.proposed.lock().unwrap().clear();
    cluster.start_again(1, false);
    cluster.settle();
    assert_eq!((count(&cluster, 1, PARTS_TREE), count(&cluster, 2, PARTS_TREE)), (4, 4));
    assert_nothing_stays(&cluster);
    assert_eq!(count(&cluster, 1, TREE), 1, "nothing of it was seen");
}

/// The node where it runs is lost and removed from the cluster: no later start of it is heard of.
#[test]
fn what_a_removed_node_has_sent_of_it_goes_when_another_one_says_so() {
    let cluster = Cluster::of(3);
    let t = large(&cluster, 3, ROWS);
    let id = t.id();
    let mut commit = Commitment::of(t);
    advance(&cluster, &mut commit, 4);
    drop(commit);
    let late = cluster.order.proposed.lock().unwrap().drain(..).next().expect("a part is on its way");
    cluster.write(1, &[("small", "0")]);
    assert_eq!(cluster.node(1).give_up_of_others(|_| true), 0, "it is a member");
    assert_eq!(count(&cluster, 1, PARTS_TREE), 4);
    assert_eq!(cluster.node(1).give_up_of_others(|node| node != 3), 1);
    // Others say so, too.
    assert_eq!(cluster.node(2).give_up_of_others(|node| node != 3), 1);
    cluster.settle();
    assert_eq!(cluster.node(2).give_up_of_others(|node| node != 3), 0, "it is known");
    for node in 1..=3 {
        let told = cluster.node(node).outcome(id);
        assert!(told.is_some_and(|(_, committed)| !committed), "node {node}: {told:?}");
    }
    // What it had sent before comes afterwards.
    cluster.order.proposed.lock().unwrap().push(late);
    cluster.settle();
    assert_nothing_stays(&cluster);
}

/// Its node has started again before the whole comes. Nobody has decided that yet when the whole is
/// delivered: both wait behind somebody who waits for its vote. A node that begins at an image in
/// between knows it then. So all nodes ask at its turn.
#[test]
fn whether_its_parts_are_there_is_asked_at_its_turn() {
    let mut cluster = Cluster::of(3);
    cluster.write(2, &[("read", "0")]);
    let before = ordered(&cluster);
    complete(&cluster, &mut Commitment::of(large(&cluster, 1, ROWS))).unwrap();
    let parts = ordered(&cluster) - before - 1;
    // By this one its snapshot is not too old.
    let old = cluster.begin(2, Isolation::Snapshot);
    let t = large(&cluster, 1, ROWS);
    let id = t.id();
    let mut commit = Commitment::of(t);
    advance(&cluster, &mut commit, parts);
    let whole = cluster.order.proposed.lock().unwrap().pop().unwrap();
    drop(commit);
    assert!(cluster.order.proposed.lock().unwrap().is_empty(), "it was sealed: nobody gives it up");
    cluster.start_again(1, false);
    cluster.settle();
    let mut voter = cluster.begin(2, Isolation::Serializable);
    assert_eq!(get(&voter, "read").as_deref(), Some("0"));
    put(&mut voter, "written", "1").unwrap();
    let mut voter = Commitment::by(voter, Replication::WeakVoting);
    let mut heard = cluster.begin(1, Isolation::Snapshot);
    put(&mut heard, "heard", "1").unwrap();
    let mut heard = Commitment::of(heard);
    assert!(voter.poll().is_none() && heard.poll().is_none());
    cluster.order.proposed.lock().unwrap().push(whole);
    cluster.settle();
    voter.poll().unwrap().unwrap();
    heard.poll().unwrap().unwrap();
    for node in 1..=3 {
        let told = cluster.node(node).outcome(id);
        assert!(told.is_some_and(|(_, committed)| !committed), "node {node}: {told:?}");
    }
    drop(old);
    assert_nothing_stays(&cluster);
}

/// Nodes stop, lose their power, and are given another one's state while it comes: they have
/// the same parts then as all others.
pub(super) fn others_start_again(seed: u64) {
    let mut random = SplitMix::new(seed);
    let mut cluster = Cluster::of(3);
    cluster.write(1, &[("small", "0")]);
    let mut commit = Commitment::of(large(&cluster, 1, ROWS));
    let told = loop {
        if let Some(told) = commit.poll() {
            break told;
        }
        cluster.settle();
        match random.below(6) {
            0 => {
                cluster.start_again(2, false);
            }
            1 => {
                cluster.node(2).checkpoint().unwrap();
                cluster.start_again(2, random.below(2) == 0);
            }
            2 => {
                cluster.transfer(2, 3, 10_000);
            }
            _ => {}
        }
    };
    told.unwrap();
    cluster.settle();
    (1..=3).for_each(|node| assert_eq!(count(&cluster, node, TREE), ROWS + 1, "node {node}"));
    cluster.start_again(1, seed.is_multiple_of(2));
    cluster.settle();
    assert_nothing_stays(&cluster);
}

#[test]
fn nodes_that_start_again_in_between_have_it_as_the_others() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        others_start_again(seed);
    }
}

/// The bound is that of so many parts, and what is to be prepared comes as one request.
#[test]
fn what_is_larger_than_all_parts_is_refused_with_the_limit() {
    let cluster = Cluster::of(2);
    let refused = Commitment::of(large(&cluster, 1, 150)).poll().expect("it goes nowhere");
    assert!(matches!(refused, Err(Error::RequestTooLarge { limit }) if limit == 8 << 20), "{refused:?}");
    let refused = prepare(large(&cluster, 1, ROWS), "p").poll().expect("it goes nowhere");
    assert!(matches!(refused, Err(Error::RequestTooLarge { limit }) if limit == 1 << 20), "{refused:?}");
    assert_eq!(ordered(&cluster), 0);
    cluster.write(2, &[(&key(0), "1")]);
    cluster.write(1, &[(&key(0), "2")]);
    assert_eq!(all(&cluster.begin(2, Isolation::Snapshot), TREE), "row 000=2");
    cluster.assert_equal();
}

/// What a transaction loads into trees of its own is refused once it is larger than all parts, and
/// not only at its commit: an index of a large table is not built to its end in vain.
#[test]
fn what_becomes_larger_than_all_parts_is_refused_on_the_way() {
    let cluster = Cluster::with_memory(2, 16 << 20);
    let mut t = cluster.begin(1, Isolation::Serializable);
    let tree = t.create_tree();
    let content = value(&"x".repeat(ROW_BYTES));
    t.put(tree, b"first", content.clone()).unwrap();
    let before = t.savepoint();
    let refused = (0..1000).find_map(|row| {
        let written = t.put(tree, key(row).as_bytes(), content.clone());
        written.err().map(|error| (row, error))
    });
    let (row, refused) = refused.expect("it is too large");
    assert!(matches!(refused, Error::RequestTooLarge { limit } if limit == 8 << 20), "{refused:?}");
    assert!(row * ROW_BYTES > 7 << 20 && row * ROW_BYTES < 14 << 20, "refused at row {row}");
    assert_eq!(ordered(&cluster), 0);
    // What is undone does not count.
    t.rollback_to(before);
    (0..ROWS).for_each(|row| t.put(tree, key(row).as_bytes(), content.clone()).unwrap());
    complete(&cluster, &mut Commitment::of(t)).unwrap();
    (1..=2).for_each(|node| assert_eq!(count(&cluster, node, tree), ROWS + 1, "node {node}"));
    assert_nothing_stays(&cluster);
}
