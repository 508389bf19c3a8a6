//! Flow control at a cluster of processes: who writes waits for a node that serves and lacks too
//! much.
//!
//! Two nodes are processes. The third is this test's own part of the order, whose application takes
//! what it is given only when the test lets it: so it is exactly as slow as it should be, it is
//! heard, it votes, and nothing depends on how fast the machine is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cognate_env::RealDisk;
use cognate_replication::{
    Answer, Application, Delivered, Failure, NodeNumber, PaceBounds, Position, Settings, Snapshot,
    SnapshotSink, TcpNetwork, TotalOrder,
};
use tokio::sync::watch;

use crate::cluster::{Cluster, rows};
use crate::wire::{Failure as Refused, Wire};

const SLOW: NodeNumber = 3;
/// What a node may lack.
const LIMIT: u64 = 64 << 10;
/// How long who writes waits for it: long enough that what this test does meanwhile is quick.
const WAIT: Duration = Duration::from_secs(4);

/// An application that has nothing.
struct Nothing;

impl Application for Nothing {
    fn open_snapshot(&self) -> Answer<'_, Result<Snapshot, Failure>> {
        Box::pin(async { Err("there is nothing to send".to_owned()) })
    }

    fn begin_install(&self, _: Position) -> Answer<'_, Result<Box<dyn SnapshotSink>, Failure>> {
        Box::pin(async { Err("nothing is taken in".to_owned()) })
    }

    fn answer(&self, _: NodeNumber, _: Bytes) -> Answer<'_, Result<Bytes, Failure>> {
        Box::pin(async { Err("nobody knows".to_owned()) })
    }
}

/// The node of this test.
struct SlowNode {
    runtime: tokio::runtime::Runtime,
    order: TotalOrder,
    is_held: watch::Sender<bool>,
}

impl SlowNode {
    fn start(cluster: &Cluster) -> SlowNode {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let peers = cluster.between().into_iter().enumerate();
        let peers = peers.map(|(at, address)| (at as NodeNumber + 1, address.to_string())).collect();
        let mut settings = Settings::new(SLOW, peers);
        settings.pace = PaceBounds { lag_bytes: LIMIT, patience: 3 * WAIT };
        let network = TcpNetwork {
            peers: settings.peers.clone(),
            secret: Bytes::from_static(b"a secret of tests"),
            tls: None,
            frame_bytes: settings.limits.frame_bytes(),
            listener: None,
        };
        let folder = cluster.data(SLOW as usize);
        let disk = Arc::new(RealDisk);
        let started = TotalOrder::start(settings, disk, &folder, 0, Arc::new(Nothing), Box::new(network));
        let (order, mut delivery) = runtime.block_on(started).expect("started");
        let is_held = watch::Sender::new(false);
        let (mut held, own) = (is_held.subscribe(), order.clone());
        runtime.spawn(async move {
            while let Ok(Delivered::Request { position, .. }) = delivery.next().await {
                held.wait_for(|is_held| !is_held).await.expect("the test goes on");
                own.note_applied(position);
            }
        });
        // It looks at the nodes, as each does.
        let own = order.clone();
        runtime.spawn(async move {
            loop {
                own.status().await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        SlowNode { runtime, order, is_held }
    }

    fn stop(self) {
        self.is_held.send_replace(false);
        self.runtime.block_on(self.order.abandon());
    }
}

/// Asks until the answer is this one.
fn until(wire: &mut Wire, text: &str, expected: &str) {
    while rows(wire, text) != [[expected]] {}
}

/// Adds a row that is larger than what a node may lack, or a small one.
fn insert(wire: &mut Wire, size: u64) -> Result<(), (String, String)> {
    let text = format!("INSERT INTO item (content) VALUES (repeat('x', {size}))");
    match wire.query(&text) {
        Ok(_) => Ok(()),
        Err(Refused::Error { sqlstate, message, .. }) => Err((sqlstate, message)),
        Err(other) => panic!("{other:?}"),
    }
}

const WAITED_FOR: &str =
    "SELECT count(*) FROM cognate_nodes WHERE node = 3 AND state = 'serving' AND reason LIKE 'it is slow:%'";
const CATCHES_UP: &str = "SELECT count(*) FROM cognate_nodes WHERE node = 3 AND state = 'catching_up'";
const LEVEL: &str = "SELECT count(*) FROM cognate_nodes WHERE node = 3 AND state = 'serving' AND lag_bytes = 0 AND reason IS NULL";

#[test]
fn who_writes_waits_for_a_slow_node_and_is_told_for_which() {
    let mut cluster = Cluster::prepare();
    let wait = format!("{}ms", WAIT.as_millis());
    cluster.say(&["--cluster-lag-limit", "64kB", "--cluster-lag-wait", &wait]);
    let slow = SlowNode::start(&cluster);
    cluster.restart(&[1, 2]);
    let (mut one, mut two) = (cluster.connect(1), cluster.connect(2));
    assert_eq!(rows(&mut one, "SHOW cognate.cluster_lag_limit"), [["64kB"]]);
    assert_eq!(rows(&mut one, "SHOW cognate.cluster_lag_wait"), [["4s"]]);
    one.query("CREATE TABLE item (id serial PRIMARY KEY, content text)").expect("made");
    until(&mut one, LEVEL, "1");
    until(&mut two, LEVEL, "1");

    // It takes nothing any more. The next write is more than it may lack.
    let mut begun = cluster.connect(1);
    begun.query("BEGIN; INSERT INTO item (content) VALUES ('begun before')").expect("begun");
    slow.is_held.send_replace(true);
    insert(&mut one, 2 * LIMIT).expect("nobody is slow yet");
    until(&mut one, WAITED_FOR, "1");
    until(&mut two, WAITED_FOR, "1");
    // Whoever writes waits, at any node, and is refused in the end. Those who read go on.
    let refused = std::thread::scope(|scope| {
        let others = [1, 2].map(|node| {
            let mut wire = cluster.connect(node);
            scope.spawn(move || insert(&mut wire, 1))
        });
        let create = one.query("CREATE TABLE other (id int)");
        assert!(
            matches!(create, Err(Refused::Error { ref sqlstate, .. }) if sqlstate == "53400"),
            "{create:?}"
        );
        others.map(|other| other.join().expect("answered"))
    });
    for refused in refused {
        let (sqlstate, message) = refused.expect_err("it is slow");
        assert_eq!(sqlstate, "53400");
        assert_eq!(message, "node 3 is slower than those who write: nothing can be changed at present");
    }
    assert_eq!(rows(&mut two, "SELECT count(*) FROM item"), [["1"]]);
    // Who has changed something already may end what it began.
    begun.query("INSERT INTO item (content) VALUES ('and after'); COMMIT").expect("committed");

    // It is slow for too long although nobody writes: it is given up.
    until(&mut one, CATCHES_UP, "1");
    until(&mut two, CATCHES_UP, "1");
    insert(&mut one, 2 * LIMIT).expect("nobody waits for it");
    insert(&mut two, 2 * LIMIT).expect("nobody waits for it");

    // It catches up, and is waited for again: who waits goes on as soon as it does.
    slow.is_held.send_replace(false);
    until(&mut one, LEVEL, "1");
    slow.is_held.send_replace(true);
    insert(&mut one, 2 * LIMIT).expect("nobody is slow yet");
    until(&mut one, WAITED_FOR, "1");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| insert(&mut two, 1));
        let mut reading = cluster.connect(1);
        assert_eq!(rows(&mut reading, "SELECT count(*) FROM item WHERE length(content) > 100"), [["4"]]);
        slow.is_held.send_replace(false);
        waiting.join().expect("answered").expect("it went on in time");
    });
    slow.stop();
    let count = "SELECT count(*) FROM item";
    assert_eq!(rows(&mut one, count), [["7"]]);
}
