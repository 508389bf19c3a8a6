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

/// The files of images on a node's disk.
fn images(cluster: &Cluster, node: u16) -> usize {
    let files = cluster.disk(node).files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.parent().is_some_and(|folder| folder.ends_with("images"))).count()
}

/// They are tried again every second. What each of them left would take the disk from the order's
/// log.
#[test]
fn checkpoints_that_fail_leave_no_images() {
    let cluster = Cluster::of(1);
    let disk = cluster.disk(1);
    for round in 0..3 {
        let large = round.to_string().repeat(1 << 18);
        cluster.write(1, &[("key", &large)]);
        cluster.settle();
        // An image has room, and the row has not; or neither has.
        for room in [1 << 17, 10] {
            disk.set_quota(Some(disk.used_bytes() + room));
            let failed = cluster.node(1).checkpoint();
            assert!(matches!(failed, Err(Error::DiskFull { .. })), "{failed:?}");
            assert_eq!(images(&cluster, 1), 0, "with room for {room} bytes");
        }
    }
    disk.set_quota(None);
    cluster.node(1).checkpoint().unwrap();
    assert_eq!((images(&cluster, 1), runs(&cluster, 1).len()), (1, 1));
}
