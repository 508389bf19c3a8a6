//! A node of the simulated cluster: the engine over the order, over a simulated network and a disk
//! that loses power, on the one thread of the simulation.
//!
//! What goes between order and database is that of `server/src/cluster.rs`, without its threads.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cognate_engine::{
    Database, Error, Executed, Execution, Incoming, LockMode, Node, Options, Outgoing, Progress,
    TransactionId, Value, WaitPolicy,
};
use cognate_env::Disk;
use cognate_env::sim::{Loss, SimDisk, SimRng};
use cognate_replication::{
    Answer, Application, Delivered, Delivery, Failure, FlushTime, NodeNumber, Position, ProposeError,
    Settings, SimNetwork, Snapshot, SnapshotSink, SnapshotSource, TotalOrder,
};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::definition::{CATALOG, tree_of};
use super::machine::Machine;

/// Where a node's data are on its disk.
pub(crate) const FOLDER: &str = "/node";
/// How many nodes.
pub(crate) const NODES: u16 = 3;
/// Pause before a request is proposed again whose answer was lost.
const AGAIN: Duration = Duration::from_millis(50);

/// How often a node looks whether it has something to say by itself: for so long everybody waits
/// for a vote, and so long is remembered what it does not need any more.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// What programs have read, whichever node has executed them.
pub(crate) type Seen = Arc<Mutex<HashMap<TransactionId, Vec<(usize, Option<usize>)>>>>;

/// The engine's way to the order.
struct Link {
    sender: mpsc::UnboundedSender<Bytes>,
    order: Arc<Mutex<Option<TotalOrder>>>,
}

impl cognate_engine::TotalOrder for Link {
    fn propose(&self, request: Bytes) {
        let _ = self.sender.send(request);
    }

    fn request_bytes_max(&self) -> u64 {
        1 << 20
    }

    fn wait_synced(&self, position: u64) -> bool {
        // Flushes are over when a write returns, so there is nothing to wait for.
        let order = self.order.lock().unwrap();
        order.as_ref().is_some_and(|order| order.marks().synced >= position)
    }
}

/// The database's side of snapshots.
struct State {
    engine: Database,
    disk: Arc<dyn Disk>,
}

impl Application for State {
    fn open_snapshot(&self) -> Answer<'_, Result<Snapshot, Failure>> {
        let opened = self.engine.outgoing().map_err(|error| error.to_string());
        Box::pin(async move {
            let outgoing = opened?;
            Ok(Snapshot { position: outgoing.position(), source: Box::new(Source(outgoing)) })
        })
    }

    fn renew_snapshot(&self) {
        // Without one the other node is sent nothing for now; it is asked for again.
        let _ = self.engine.checkpoint();
    }

    fn begin_install(&self, _: Position) -> Answer<'_, Result<Box<dyn SnapshotSink>, Failure>> {
        let begun =
            Incoming::begin(Arc::clone(&self.disk), Path::new(FOLDER)).map_err(|error| error.to_string());
        Box::pin(async move { Ok(Box::new(Sink(begun?)) as Box<dyn SnapshotSink>) })
    }
}

struct Source(Outgoing);

impl SnapshotSource for Source {
    fn next(&mut self) -> Answer<'_, Result<Option<Bytes>, Failure>> {
        let next = self.0.next(500).map_err(|error| error.to_string());
        Box::pin(async { next })
    }
}

struct Sink(Incoming);

impl SnapshotSink for Sink {
    fn put(&mut self, chunk: Bytes) -> Answer<'_, Result<(), Failure>> {
        let put = self.0.put(chunk).map_err(|error| error.to_string());
        Box::pin(async { put })
    }

    fn finish(self: Box<Self>) -> Answer<'static, Result<(), Failure>> {
        let finished = self.0.finish().map_err(|error| error.to_string());
        Box::pin(async { finished })
    }
}

/// What clients have of a node that runs.
#[derive(Clone)]
pub(crate) struct Up {
    pub(crate) engine: Database,
    /// Becomes true when the node ends.
    pub(crate) down: watch::Receiver<bool>,
}

/// A node that runs.
pub(crate) struct Running {
    pub(crate) up: Up,
    pub(crate) order: TotalOrder,
    /// Whether another node's state has become this one's, for its next start.
    pub(crate) replaced: watch::Receiver<bool>,
    end: watch::Sender<bool>,
    link: Arc<Mutex<Option<TotalOrder>>>,
    tasks: Vec<JoinHandle<()>>,
}

fn settings(node: NodeNumber, seed: u64, flushes: FlushTime) -> Settings {
    let peers: BTreeMap<NodeNumber, String> =
        (1..=NodeNumber::from(NODES)).map(|node| (node, format!("node {node}"))).collect();
    let mut settings = Settings::new(node, peers);
    settings.flushes_inline = Some(flushes);
    settings.log.prepare = false;
    settings.log.idle_mark = None;
    settings.log.segment_bytes = 8 << 10;
    settings.log.grow_bytes = 8 << 10;
    settings.log.rng = Arc::new(SimRng::new(seed));
    settings.limits.kept_bytes = 1 << 10;
    settings.limits.cache_bytes = 2 << 10;
    settings
}

impl Running {
    /// Starts a node on what its disk has.
    pub(crate) async fn start(
        number: u16,
        start: u32,
        seed: u64,
        machine: &Machine,
        network: &SimNetwork,
        seen: &Seen,
    ) -> Result<Running, String> {
        let (sender, requests) = mpsc::unbounded_channel();
        let link = Arc::new(Mutex::new(None));
        let mut options = Options::new(FOLDER);
        let disk = &machine.disk;
        options.disk = disk.handle();
        options.clock = machine.calendar.clone();
        let way = Arc::new(Link { sender, order: Arc::clone(&link) });
        options.node = Some(Node { number, start, order: way });
        let engine = Database::open(options).map_err(|error| format!("node {number}: {error}"))?;
        let state = State { engine: engine.clone(), disk: disk.handle() };
        let started = TotalOrder::start(
            settings(number.into(), seed, machine.flushes.clone()),
            disk.handle(),
            Path::new("/order"),
            engine.starts_at(),
            Arc::new(state),
            Box::new(network.clone()),
        );
        let (order, delivery) = started.await.map_err(|error| format!("node {number}: {error}"))?;
        *link.lock().unwrap() = Some(order.clone());
        let (end, down) = watch::channel(false);
        let (replace, replaced) = watch::channel(false);
        let tasks = vec![
            tokio::spawn(apply(order.clone(), engine.clone(), delivery, replace, Arc::clone(seen))),
            tokio::spawn(look(engine.clone())),
            tokio::spawn(propose(order.clone(), engine.clone(), requests)),
        ];
        Ok(Running { up: Up { engine, down }, order, replaced, end, link, tasks })
    }

    /// Ends it as its process would end: nothing is finished.
    pub(crate) async fn kill(self, network: &SimNetwork, disk: &SimDisk, loss: Loss) {
        network.remove(self.order.node());
        disk.restart(loss);
        self.end.send_replace(true);
        for task in self.tasks {
            task.abort();
            if let Err(error) = task.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        self.order.abandon().await;
        *self.link.lock().unwrap() = None;
    }

    /// A checkpoint, and a shorter log after it.
    pub(crate) async fn checkpoint(&self) {
        // Refused while its disk lacks what a majority has.
        if let Err(error) = self.up.engine.checkpoint() {
            assert!(matches!(error, Error::ShuttingDown | Error::Io { .. }), "{error}");
            return;
        }
        // It waits for the consensus, which may have no time for it.
        let cut = self.order.checkpointed(self.up.engine.starts_at());
        let _ = tokio::time::timeout(Duration::from_secs(1), cut).await;
    }
}

/// Votes against who keeps everybody waiting for too long, and says that the node does not need
/// any more what the others remember for it.
async fn look(engine: Database) {
    let mut before = None;
    loop {
        tokio::time::sleep(LOOK_PERIOD).await;
        engine.announce_late();
        let pause = engine.lists().pause.map(|pause| pause.transaction);
        if let Some(transaction) = pause.filter(|_| pause == before) {
            engine.vote_against(transaction);
        }
        before = pause;
    }
}

/// A program that reads keys and then writes its number to others.
pub(crate) fn program(id: usize, reads: &[usize], writes: &[usize]) -> Vec<u8> {
    let list = |keys: &[usize]| keys.iter().map(usize::to_string).collect::<Vec<String>>().join(",");
    format!("{id} {} {}", list(reads), list(writes)).into_bytes()
}

/// Does what a program says.
async fn execute(execution: Execution, seen: &Seen) -> Executed {
    let Execution { id, program, mut transaction, .. } = execution;
    let text = std::str::from_utf8(&program).unwrap();
    let mut words = text.split(' ');
    let number = words.next().unwrap();
    let mut keys =
        || -> Vec<usize> { words.next().unwrap().split(',').filter_map(|word| word.parse().ok()).collect() };
    let (reads, writes) = (keys(), keys());
    let tree = tree_of(&mut transaction).await.unwrap();
    let read = |key: &usize| {
        let found = transaction.get(tree, &super::key(*key)).unwrap();
        (*key, found.map(|value| super::writer_of(&value)))
    };
    let read: Vec<_> = reads.iter().map(read).collect();
    let before = seen.lock().unwrap().insert(id, read.clone());
    assert!(before.is_none_or(|before| before == read), "two nodes have read different things");
    for key in writes {
        let key = super::key(key);
        transaction.lock(tree, &key, LockMode::NoKeyExclusive, WaitPolicy::NoWait).await.unwrap();
        transaction.put(tree, &key, Value::copy_from_slice(number.as_bytes())).unwrap();
    }
    Executed { transaction, trees: vec![CATALOG, tree], commits: true }
}

async fn apply(
    order: TotalOrder,
    engine: Database,
    mut delivery: Delivery,
    replace: watch::Sender<bool>,
    seen: Seen,
) {
    loop {
        match delivery.next().await {
            Ok(Delivered::Request { position, request }) => {
                let mut progress =
                    engine.deliver(position, &request).expect("whatever is settled can be delivered");
                while let Progress::Execute(execution) = progress {
                    let executed = execute(*execution, &seen).await;
                    progress = engine.finish(executed).expect("whatever is executed can be finished");
                }
                order.note_applied(engine.applied());
            }
            Ok(Delivered::Installed { .. }) => {
                replace.send_replace(true);
                return;
            }
            Err(_) => return,
        }
    }
}

async fn propose(order: TotalOrder, engine: Database, mut requests: mpsc::UnboundedReceiver<Bytes>) {
    // They end with this one: each has its share of the database.
    let mut under_way = JoinSet::new();
    while let Some(request) = requests.recv().await {
        while under_way.try_join_next().is_some() {}
        under_way.spawn(propose_one(order.clone(), engine.clone(), request));
    }
}

async fn propose_one(order: TotalOrder, engine: Database, request: Bytes) {
    let mut may_come = false;
    loop {
        match order.propose(request.clone()).await {
            Ok(_) => return,
            Err(ProposeError::TooLarge { .. } | ProposeError::NotProposed(_)) if !may_come => {
                return engine.not_ordered(&request);
            }
            Err(ProposeError::TooLarge { .. }) => return,
            Err(ProposeError::NotProposed(_)) => {}
            Err(ProposeError::Unknown(_)) => may_come = true,
        }
        tokio::time::sleep(AGAIN).await;
    }
}
