//! Seeded storms over a simulated network and disks that lose power, on one thread whose clock
//! stands still while anything is done.
//!
//! In each round something happens: nodes lose their power and come back, directions are cut and
//! heal, the weather changes, requests are proposed anywhere, checkpoints are made. Then everything
//! heals, and it is looked whether
//! - all nodes were given the same at every position, also those that have died since;
//! - everything that was acknowledged is where it was said to be, at every node, once;
//! - nothing is there twice, and nothing that was said not to be proposed;
//! - new requests are ordered.
//!
//! `COGNATE_SEEDS=500 cargo test -p cognate-replication sim` runs as many.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cognate_env::SplitMix;
use cognate_env::sim::{Loss, SimDisk, SimRng};
use cognate_replication::{
    FlushTime, NodeNumber, PaceBounds, Position, ProposeError, Settings, SimNetwork, TotalOrder, Weather,
};

use crate::recorder::Recorder;
use crate::support::{Running, trace};

/// What became of a request, as far as its proposer was told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    At(Position),
    Refused,
    Unknown,
}

type Seen = Arc<Mutex<BTreeMap<Position, Bytes>>>;

pub(crate) struct Storm {
    random: SplitMix,
    pub(crate) network: SimNetwork,
    pub(crate) disks: BTreeMap<NodeNumber, SimDisk>,
    pub(crate) recorders: BTreeMap<NodeNumber, Recorder>,
    pub(crate) running: BTreeMap<NodeNumber, Running>,
    /// What any node was ever given.
    seen: Seen,
    told: Arc<Mutex<HashMap<Bytes, Told>>>,
    next_request: u64,
    seed: u64,
    pub(crate) pace: PaceBounds,
}

pub(crate) const NODES: NodeNumber = 3;

impl Storm {
    pub(crate) fn new(seed: u64) -> Storm {
        Storm::of(seed, NODES)
    }

    /// One of so many nodes. Rounds are for those of [`NODES`].
    pub(crate) fn of(seed: u64, nodes: NodeNumber) -> Storm {
        Storm {
            random: SplitMix::new(seed),
            network: SimNetwork::new(seed),
            disks: (1..=nodes).map(|node| (node, SimDisk::new(seed ^ (node << 32)))).collect(),
            recorders: (1..=nodes).map(|node| (node, Recorder::new(0))).collect(),
            running: BTreeMap::new(),
            seen: Seen::default(),
            told: Arc::default(),
            next_request: 0,
            seed,
            pace: PaceBounds::default(),
        }
    }

    pub(crate) async fn start(&mut self, node: NodeNumber) {
        let peers = self.disks.keys().map(|node| (*node, format!("node {node}"))).collect();
        let mut settings = Settings::new(node, peers);
        settings.flushes_inline = Some(FlushTime::default());
        settings.log.prepare = false;
        settings.log.idle_mark = None;
        settings.log.segment_bytes = 4 << 10;
        settings.log.grow_bytes = 4 << 10;
        settings.log.rng = Arc::new(SimRng::new(self.seed));
        settings.pace = self.pace;
        settings.limits.kept_bytes = 500;
        settings.limits.cache_bytes = 1 << 10;
        let recorder = self.recorders[&node].clone();
        let started = TotalOrder::start(
            settings,
            self.disks[&node].handle(),
            Path::new("/order"),
            recorder.applied(),
            Arc::new(recorder.clone()),
            Box::new(self.network.clone()),
        );
        let (order, delivery) = match started.await {
            Ok(started) => started,
            Err(error) => panic!("seed {}: node {node}: {error}", self.seed),
        };
        let (seen, seed) = (Arc::clone(&self.seen), self.seed);
        let look = move |position, request: &Bytes| {
            let mut seen = seen.lock().unwrap();
            let known = seen.entry(position).or_insert_with(|| request.clone());
            assert_eq!(known, request, "seed {seed}: node {node} is given another request at {position}");
        };
        self.running.insert(node, Running::new(order, delivery, recorder, look));
    }

    async fn crash(&mut self, node: NodeNumber) {
        if self.running.contains_key(&node) {
            let loss = if self.random.one_in(3) { Loss::Process } else { Loss::Power };
            self.lose(node, loss).await;
        }
    }

    /// A node that runs ends at once.
    pub(crate) async fn lose(&mut self, node: NodeNumber, loss: Loss) {
        let running = self.running.remove(&node).expect("it runs");
        self.network.remove(node);
        self.disks[&node].restart(loss);
        running.kill().await.crash();
    }

    fn propose(&mut self) {
        let nodes: Vec<&Running> = self.running.values().collect();
        let Some(node) = nodes.get(self.random.below(nodes.len() as u64) as usize) else { return };
        self.next_request += 1;
        let padding = "-".repeat(self.random.below(120) as usize);
        let request = Bytes::from(format!("{}{padding}", self.next_request));
        let (order, told) = (node.order.clone(), Arc::clone(&self.told));
        told.lock().unwrap().insert(request.clone(), Told::Unknown);
        tokio::spawn(async move {
            let outcome = match order.propose(request.clone()).await {
                Ok(position) => Told::At(position),
                Err(ProposeError::NotProposed(_)) => Told::Refused,
                Err(_) => Told::Unknown,
            };
            told.lock().unwrap().insert(request, outcome);
        });
    }

    async fn checkpoint(&mut self) {
        let place = self.random.below(NODES) + 1;
        let Some(running) = self.running.get(&place) else { return };
        let marks = running.order.marks();
        let position = running.recorder.applied().min(marks.synced).min(marks.settled);
        running.recorder.checkpoint(position);
        // It waits for the consensus, which may have no time for it.
        let removed = running.order.checkpointed(position);
        let _ = tokio::time::timeout(Duration::from_secs(1), removed).await;
    }

    async fn round(&mut self) {
        match self.random.below(20) {
            0 => {
                let node = self.random.below(NODES) + 1;
                self.crash(node).await;
            }
            1 if self.random.one_in(4) => {
                for node in 1..=NODES {
                    self.crash(node).await;
                }
            }
            2..=4 => {
                let down: Vec<NodeNumber> =
                    (1..=NODES).filter(|node| !self.running.contains_key(node)).collect();
                if let Some(node) = down.get(self.random.below(down.len().max(1) as u64) as usize) {
                    self.start(*node).await;
                }
            }
            5 => {
                let (from, to) = (self.random.below(NODES) + 1, self.random.below(NODES) + 1);
                self.network.cut(from, to);
                if self.random.one_in(2) {
                    self.network.cut(to, from);
                }
            }
            6..=7 => self.network.heal(),
            8 => {
                let most = 500 + self.random.below(30_000);
                let (losses, repetitions) = (self.random.below(60), self.random.below(60));
                self.network.set_weather(Weather { delay_us: (50, most), losses, repetitions });
            }
            9 => self.checkpoint().await,
            _ => {
                for _ in 0..=self.random.below(4) {
                    self.propose();
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(self.random.below(300))).await;
    }

    /// Lets everything heal, and looks at what is there.
    async fn calm(mut self) {
        let seed = self.seed;
        self.network.heal();
        self.network.set_weather(Weather::fair());
        for node in 1..=NODES {
            if !self.running.contains_key(&node) {
                self.start(node).await;
            }
        }
        self.running[&2].order("calm").await;
        // Whatever was under way has been answered by then.
        tokio::time::sleep(Duration::from_secs(12)).await;
        let last = self.running[&1].order("the last one").await;
        for node in self.running.values() {
            node.until(last).await;
        }
        let histories: Vec<Vec<Bytes>> = self.running.values().map(|node| node.recorder.history()).collect();
        let first = &histories[0];
        assert!(histories.iter().all(|history| history == first), "seed {seed}: {histories:?}");
        let different: BTreeSet<&Bytes> = first.iter().collect();
        assert_eq!(different.len(), first.len(), "seed {seed}: a request was delivered twice");
        for (request, told) in self.told.lock().unwrap().iter() {
            match told {
                Told::At(position) => {
                    assert_eq!(
                        first.get(*position as usize - 1),
                        Some(request),
                        "seed {seed}: lost at {position}"
                    );
                }
                Told::Refused => {
                    assert!(!different.contains(request), "seed {seed}: {request:?} was refused")
                }
                Told::Unknown => {}
            }
        }
        let count =
            |is_so: fn(&Told) -> bool| self.told.lock().unwrap().values().filter(|told| is_so(told)).count();
        println!(
            "seed {seed}: {} acknowledged, {} refused, {} unknown, {} snapshots",
            count(|told| matches!(told, Told::At(_))),
            count(|told| *told == Told::Refused),
            count(|told| *told == Told::Unknown),
            self.recorders.values().map(|recorder| recorder.snapshots().1).sum::<u64>(),
        );
        for (position, request) in self.seen.lock().unwrap().iter() {
            assert_eq!(first.get(*position as usize - 1), Some(request), "seed {seed}: {position}");
        }
        self.end().await;
    }

    pub(crate) async fn end(mut self) {
        for (_, running) in std::mem::take(&mut self.running) {
            running.kill().await;
        }
    }
}

/// Runs something on a thread of its own clock.
pub(crate) fn simulated(what: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    trace();
    runtime.block_on(what);
}

pub(crate) fn run(seed: u64, rounds: u64) {
    simulated(async {
        let mut storm = Storm::new(seed);
        for node in 1..=NODES {
            storm.start(node).await;
        }
        for round in 0..rounds {
            tracing::info!(seed, round, "a round");
            storm.round().await;
        }
        tracing::info!(seed, "calm");
        storm.calm().await;
    });
}

#[test]
fn storms_pass_and_the_order_stays() {
    let seeds = std::env::var("COGNATE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(4);
    let first = std::env::var("COGNATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + seeds {
        run(seed, 60);
    }
}
