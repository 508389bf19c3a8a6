//! A node whose memory is full, and whose checkpoints fail.

use std::path::PathBuf;

use cognate_engine::{Error, Isolation};

use super::cluster::{Cluster, Commitment, program, put};
use super::support::value;

/// The files of runs on a node's disk.
fn runs(cluster: &Cluster, node: u16) -> Vec<PathBuf> {
    let files = cluster.disk(node).files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.extension().is_some_and(|extension| extension == "run")).collect()
}

/// What runs there is refused. What the order says is done: other nodes have room for it.
#[test]
fn a_node_without_room_refuses_its_own_and_follows_the_order() {
    let cluster = Cluster::with_memory(2, 1 << 20);
    let large = "x".repeat(1 << 16);
    let mut spilled = cluster.begin(1, Isolation::Snapshot);
    let tree = spilled.create_tree();
    for key in ["a", "b", "c", "d"] {
        spilled.put(tree, key.as_bytes(), value(&large)).unwrap();
    }
    assert!(!runs(&cluster, 1).is_empty(), "nothing was spilled");
    cluster.disk(1).set_quota(Some(cluster.disk(1).used_bytes()));
    (0..10).for_each(|number| cluster.write(2, &[(&format!("large {number}"), &large)]));
    // Nobody has asked for a checkpoint at this node so far: this one waits for it.
    let mut t = cluster.begin(1, Isolation::Snapshot);
    put(&mut t, "asks", "1").unwrap();
    let mut asks = Commitment::of(t);
    assert!(asks.poll().is_none());
    cluster.settle();
    asks.poll().unwrap().unwrap().durable.wait().unwrap();

    let mut own = cluster.begin(1, Isolation::Snapshot);
    put(&mut own, "own", "1").unwrap();
    let refused = Commitment::of(own).poll().unwrap().unwrap_err();
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused:?}");
    let engine = cluster.node(2);
    let text = program(8, &[], &[1]);
    let ordered = engine.order_program(engine.program_id(), Isolation::Serializable, None, &text);
    let mut executed = Commitment::on(ordered.unwrap());
    assert!(executed.poll().is_none());
    cluster.settle();
    executed.poll().unwrap().unwrap();
    cluster.assert_equal();

    let refused = Commitment::of(spilled).poll().unwrap().unwrap_err();
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused:?}");
}
