//! The first start of four nodes over the simulated network.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cognate_env::sim::{SimDisk, SimRng};
use cognate_replication::{FlushTime, NodeNumber, Settings, SimNetwork, TotalOrder};

use crate::recorder::Recorder;
use crate::sim::simulated;
use crate::support::{Running, until};

const NODES: NodeNumber = 4;

/// Starts a node with an empty disk.
async fn start(network: &SimNetwork, disk: &SimDisk, seed: u64, node: NodeNumber) -> Running {
    let peers = (1..=NODES).map(|node| (node, format!("node {node}"))).collect();
    let mut settings = Settings::new(node, peers);
    settings.flushes_inline = Some(FlushTime::default());
    settings.log.prepare = false;
    settings.log.idle_mark = None;
    settings.log.rng = Arc::new(SimRng::new(seed));
    let recorder = Recorder::new(0);
    let application = Arc::new(recorder.clone());
    let network = Box::new(network.clone());
    let started =
        TotalOrder::start(settings, disk.handle(), Path::new("/order"), 0, application, network).await;
    let (order, delivery) = started.unwrap();
    Running::new(order, delivery, recorder, |_, _| {})
}

/// Each of the two may be joined by one of the others, before it hears of the other: two halves, of
/// which none may begin, and none would ever be joined by more.
#[test]
fn two_founders_of_four_that_do_not_hear_each_other_come_to_one_cluster() {
    for seed in 1..=12 {
        simulated(async move {
            let network = SimNetwork::new(seed);
            network.cut(1, 2);
            network.cut(2, 1);
            let disks: Vec<SimDisk> = (1..=NODES).map(|node| SimDisk::new(seed ^ (node << 32))).collect();
            let mut running = Vec::new();
            for node in [3, 4, 2] {
                running.push(start(&network, &disks[node as usize - 1], seed, node).await);
            }
            // So that some of the others may hear of one founder and not yet of the other one.
            tokio::time::sleep(Duration::from_millis(5 * seed)).await;
            running.push(start(&network, &disks[0], seed, 1).await);
            until("all have joined one", || running.iter().all(|node| node.order.cluster().is_some())).await;
            network.heal();
            let last = running[0].order("first").await;
            for node in &running {
                node.until(last).await;
            }
            let clusters: Vec<_> = running.iter().map(|node| node.order.cluster()).collect();
            assert!(clusters.iter().all(|cluster| *cluster == clusters[0]), "seed {seed}: {clusters:?}");
            for node in running {
                node.kill().await;
            }
        });
    }
}
