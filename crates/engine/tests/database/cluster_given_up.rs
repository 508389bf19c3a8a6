//! What becomes of instances that were not prepared, at the nodes of a cluster: who is told that
//! one is aborted is told what every node says, and nothing ends before the order has it.

use cognate_engine::sibling::{Begun, Refusal};
use cognate_engine::{Error, Isolation};

use super::cluster::{Cluster, Commitment, put};
use super::cluster_families::{Operation, ask, begin, instance, prepare, refusal, settled, shown, text, xid};

/// BEGIN MIP as a session says it, which waits for the order if it has to.
fn begin_in_order(cluster: &Cluster, node: u16, of: &str, number: i64) -> Commitment<Begun> {
    let (database, of) = (cluster.node(node).clone(), xid(of));
    Commitment::on(async move {
        database.begin_instance_in_order(of, instance(number), Isolation::Serializable).await
    })
}

/// The table as it is told to who has had an instance that was not prepared.
fn without(cluster: &Cluster, node: u16, of: &str, number: i64) -> String {
    let (database, of) = (cluster.node(node).clone(), xid(of));
    let asked = Commitment::on(async move { database.family_without_in_order(&of, instance(number)).await });
    text(&settled(cluster, asked).unwrap().table)
}

/// The next request that was proposed is lost on its way.
fn lose(cluster: &Cluster, node: u16) {
    let request = cluster.order.proposed.lock().unwrap().pop().unwrap();
    cluster.node(node).not_ordered(&request);
}

#[test]
fn a_rollback_that_is_lost_ends_nothing() {
    let cluster = Cluster::of(2);
    let mut running = begin(&cluster, 1, "x", 1);
    put(&mut running, "a", "1").unwrap();
    let mut rollback = ask(&cluster, 1, "x", Operation::Rollback(1));
    assert!(rollback.poll().is_none());
    running.check_member().unwrap();
    lose(&cluster, 1);
    assert!(matches!(rollback.poll().unwrap(), Err(Error::NotOrdered)));
    running.check_member().unwrap();
    assert_eq!(text(&settled(&cluster, prepare(running, "one")).unwrap().table), "<1 1 prepared=one");
    cluster.assert_equal();
}

#[test]
fn a_rollback_ends_what_runs_at_its_position() {
    let cluster = Cluster::of(2);
    // Before its PREPARE, and behind it.
    for comes_first in [true, false] {
        let family = if comes_first { "first" } else { "second" };
        let mut running = begin(&cluster, 1, family, 1);
        put(&mut running, family, "1").unwrap();
        let mut rollback = ask(&cluster, 1, family, Operation::Rollback(1));
        assert!(rollback.poll().is_none());
        let mut prepared = prepare(running, "one");
        assert!(prepared.poll().is_none());
        if !comes_first {
            cluster.order_one(1);
        }
        cluster.settle();
        let (floor, told) = if comes_first { ("<0", "<0 1 aborted") } else { ("<1", "<1 1 prepared=one") };
        assert_eq!(text(&settled(&cluster, rollback).unwrap().table), format!("{floor} 1 aborted"));
        assert_eq!(text(&settled(&cluster, prepared).unwrap().table), told);
        assert!(cluster.node(2).in_doubt().is_empty());
        cluster.write(2, &[(family, "free")]);
    }
    cluster.assert_equal();
}

#[test]
fn a_begin_that_is_refused_as_aborted_is_so_at_every_node() {
    let cluster = Cluster::of(3);
    drop(begin(&cluster, 1, "x", 1));
    // Only node 1 knows that it was given up. What was ordered is refused at once.
    let begun = settled(&cluster, begin_in_order(&cluster, 1, "x", 1));
    assert!(matches!(refusal(begun), Refusal::InstanceAborted { .. }));
    for node in 1..=3 {
        let begun = begin_in_order(&cluster, node, "x", 1).poll().unwrap();
        assert!(matches!(refusal(begun), Refusal::InstanceAborted { .. }), "at node {node}");
    }
    // Without the order nobody is told that.
    drop(begin(&cluster, 1, "x", 2));
    let mut begun = begin_in_order(&cluster, 1, "x", 2);
    assert!(begun.poll().is_none());
    lose(&cluster, 1);
    assert!(matches!(begun.poll().unwrap(), Err(Error::NotOrdered)));
    // Another node has used the number meanwhile: then it is in use, and nobody withdraws it.
    settled(&cluster, prepare(begin(&cluster, 2, "x", 2), "two")).unwrap();
    let begun = begin_in_order(&cluster, 1, "x", 2).poll().unwrap();
    assert!(matches!(refusal(begun), Refusal::InstanceInUse { .. }));
    cluster.assert_equal();
}

#[test]
fn what_could_not_be_prepared_ends_alone() {
    let mut cluster = Cluster::of(2);
    let slower = begin(&cluster, 2, "x", 1);
    drop(begin(&cluster, 1, "x", 5));
    // Nobody remembers that it was begun.
    cluster.restart(1);
    cluster.settle();
    assert_eq!(without(&cluster, 1, "x", 5), "<0 5 aborted");
    assert_eq!(shown(&cluster, 2, "x"), "<0 1 active 5 aborted");
    slower.check_member().unwrap();
    let told = settled(&cluster, prepare(slower, "one")).unwrap();
    assert_eq!(text(&told.table), "<1 1 prepared=one 5 aborted");
    // What somebody else has prepared under the number stays.
    assert_eq!(without(&cluster, 1, "x", 1), "<1 1 prepared=one 5 aborted");
    cluster.assert_equal();
}
