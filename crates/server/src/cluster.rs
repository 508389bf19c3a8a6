//! A node of a cluster: ties the engine to the order of all nodes, and tells SQL how the nodes are.
//!
//! ```text
//! session ─ seal ─▶ engine ─ propose ─▶ [order] ─▶ applier ─ deliver ─▶ engine ─▶ session
//! ```
//!
//! Requests go out by a queue, so that whoever commits never blocks; a task hands each of them to
//! the order and tries again where an answer was lost, which is safe because requests say who they
//! are: what is delivered twice counts once. What certainly was not ordered is given back to the
//! engine, and its client is told (25006).
//!
//! The *applier* ([`crate::applier`]) takes what is delivered and gives it to the engine, position
//! after position. If the engine cannot go on, the node leaves: it says why and serves no more
//! writes.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cognate_engine::{Database, Node, TransactionId};
use cognate_env::Disk;
use cognate_replication::entry::NodeNumber;
use cognate_replication::error::ProposeError;
use cognate_replication::net::tcp::{TcpNetwork, Tls};
use cognate_replication::order::TotalOrder;
use cognate_replication::settings::Settings;
use cognate_sql::monitor::Surroundings;
use cognate_sql::session::{Barrier, SqlDatabase, hex};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::application::NodeData;
use crate::applier::Applier;
use crate::assemble::StartError;
use crate::membership::ClusterConfig;
use crate::node_tls;
use crate::observation::{STATUS_PERIOD, compare, show};

/// Where the order keeps its log, in the data folder.
const FOLDER: &str = "order";
/// Where the number of the node's starts is.
const STARTS: &str = "starts";
/// Pause before temporary objects are looked at again that could not be dropped.
const SWEEP_PAUSE: Duration = Duration::from_secs(5);
/// How often it is looked how busy the applier is, and whether the log may be cut.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// So long this node waits for a majority before it looks at temporary objects.
const PATIENCE: Duration = Duration::from_secs(3);
/// So long everybody waits for the vote of a transaction's node.
const VOTE_PATIENCE: Duration = Duration::from_secs(1);
/// A vote against a transaction that still keeps everybody waiting after this time has come to
/// nothing.
const VOTE_AGAIN: Duration = Duration::from_secs(5);
/// Pause before it is looked again whether this node has something on its disk.
const SYNC_PAUSE: Duration = Duration::from_millis(1);
/// Pause before a proposal is tried again whose answer was lost.
const AGAIN: Duration = Duration::from_millis(50);

/// The engine's way to the order: requests wait here until the order is open.
pub(crate) struct Proposals {
    sender: mpsc::UnboundedSender<Bytes>,
    limit: u64,
    synced: Arc<Mutex<Synced>>,
}

/// What is known of this node's own disk.
enum Synced {
    /// The order is not open yet.
    Unknown,
    /// The order knows.
    Order(TotalOrder),
    /// The order has ended, and everything up to here is on the disk.
    Upto(u64),
}

impl cognate_engine::TotalOrder for Proposals {
    fn propose(&self, request: Bytes) {
        // Without a receiver the node is ending, and so is whoever waits for the answer.
        let _ = self.sender.send(request);
    }

    fn request_bytes_max(&self) -> u64 {
        self.limit
    }

    fn wait_synced(&self, position: u64) -> bool {
        loop {
            match &*self.synced.lock() {
                Synced::Order(order) if order.marks().synced >= position => return true,
                Synced::Upto(synced) => return *synced >= position,
                Synced::Unknown | Synced::Order(_) => {}
            }
            // A checkpoint waits here, which takes longer than this anyway.
            std::thread::sleep(SYNC_PAUSE);
        }
    }
}

/// A node before its database is open.
pub(crate) struct Joining {
    config: ClusterConfig,
    settings: Settings,
    requests: mpsc::UnboundedReceiver<Bytes>,
    synced: Arc<Mutex<Synced>>,
    tls: Option<Tls>,
}

/// A node that takes part.
pub(crate) struct Member {
    order: TotalOrder,
    synced: Arc<Mutex<Synced>>,
    /// Whether another node's state has become this one's, once it is opened again.
    replaced: watch::Receiver<bool>,
    tasks: Vec<JoinHandle<()>>,
    applier: Option<std::thread::JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

/// Prepares a node: what the engine is opened with, and the rest.
pub(crate) fn join(config: &ClusterConfig, data: &Path) -> Result<(Node, Joining), StartError> {
    let peers: BTreeMap<NodeNumber, String> =
        config.peers.iter().map(|(node, address)| (NodeNumber::from(*node), address.clone())).collect();
    let mut settings = Settings::new(NodeNumber::from(config.node), peers);
    if let Some(bytes) = config.log_kept {
        settings.limits.kept_bytes = bytes;
    }
    settings.pace = config.pace();
    let tls = config.tls.as_ref().map(node_tls::between_nodes).transpose().map_err(StartError)?;
    let (sender, requests) = mpsc::unbounded_channel();
    let limit = settings.limits.request_bytes as u64;
    let start = count_start(data)?;
    let synced = Arc::new(Mutex::new(Synced::Unknown));
    let proposals = Proposals { sender, limit, synced: Arc::clone(&synced) };
    let node = Node { number: config.node, start, order: Arc::new(proposals) };
    Ok((node, Joining { config: config.clone(), settings, requests, synced, tls }))
}

/// Counts this start of the node, durably, before anything gets a number by it.
fn count_start(data: &Path) -> Result<u32, StartError> {
    let folder = data.join(FOLDER);
    let path = folder.join(STARTS);
    let failed =
        |error: std::io::Error| StartError(format!("cannot count the start in {}: {error}", path.display()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let before: u32 = match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| {
            StartError(format!("{}: not the number of a node's starts: {:?}", path.display(), text.trim()))
        })?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(failed(error)),
    };
    // A folder that was lost has forgotten its starts, and the cluster still knows transactions of
    // them: the clock tells that this is another one. In seconds, since a node may be lost and
    // rebuilt in less than a minute. The engine takes the last bits, which come again after 34
    // years.
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let start = (before + 1).max(u32::try_from(since.as_secs()).unwrap_or(u32::MAX / 2));
    let fresh = folder.join("starts.new");
    let write = || {
        let mut file = std::fs::File::create(&fresh)?;
        file.write_all(start.to_string().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        std::fs::File::open(&folder)?.sync_all()
    };
    write().map_err(failed)?;
    Ok(start)
}

impl Joining {
    /// Takes part: opens the order and starts what goes between it and the database.
    pub(crate) async fn start(
        self,
        database: &SqlDatabase,
        data: &Path,
        disk: Arc<dyn Disk>,
    ) -> Result<Member, StartError> {
        let Joining { config, settings, requests, synced, tls } = self;
        let engine = database.engine().clone();
        let network = TcpNetwork {
            peers: settings.peers.clone(),
            secret: Bytes::from(config.secret.clone()),
            tls,
            frame_bytes: settings.limits.frame_bytes(),
            listener: None,
        };
        let differs = Arc::<OnceLock<String>>::default();
        let application = Arc::new(NodeData {
            engine: engine.clone(),
            disk: Arc::clone(&disk),
            data: data.to_path_buf(),
            chunk_bytes: settings.limits.chunk_bytes,
            differs: Arc::clone(&differs),
            is_renewing: Arc::default(),
        });
        let (folder, starts_at) = (data.join(FOLDER), engine.starts_at());
        let opened =
            TotalOrder::start(settings, disk, &folder, starts_at, application, Box::new(network)).await;
        let (order, delivery) =
            opened.map_err(|error| StartError(format!("node {}: {error}", config.node)))?;
        *synced.lock() = Synced::Order(order.clone());
        database.nodes().ask_by(barrier(order.clone()));
        database.nodes().configure_flow(config.flow());
        let (stop, stopped) = watch::channel(false);
        let (replace, replaced) = watch::channel(false);
        let busy = Arc::new(AtomicU64::new(0));
        let applier = Applier::new(order.clone(), database.clone(), delivery, replace, Arc::clone(&busy));
        let applier =
            applier.start().map_err(|error| StartError(format!("cannot start the applier: {error}")))?;
        let nodes = config.peers.len() as u32;
        let tasks = vec![
            tokio::spawn(propose(order.clone(), engine.clone(), requests)),
            tokio::spawn(show(order.clone(), database.clone(), config.clone(), stopped.clone())),
            tokio::spawn(sweep(order.clone(), database.clone(), stopped.clone())),
            tokio::spawn(compare(order.clone(), database.clone(), config, differs, stopped.clone())),
            tokio::spawn(urge(order.clone(), database.clone(), stopped.clone())),
            tokio::spawn(measure(database.clone(), nodes, busy, stopped.clone())),
            tokio::spawn(cut(order.clone(), engine, starts_at, stopped)),
        ];
        Ok(Member { order, synced, replaced, tasks, applier: Some(applier), stop })
    }
}

impl Member {
    /// Resolves once this node has everything that was settled when it asked a majority, or the
    /// state of another one. Says whether it is the former.
    pub(crate) async fn caught_up(&self, database: &SqlDatabase) -> bool {
        loop {
            let reached = async {
                let barrier = self.order.read_barrier().await?;
                self.order.until_applied(barrier).await?;
                // Before anybody begins what others would take for too old.
                database.engine().introduce().await?;
                Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
            };
            let reached = tokio::select! {
                biased;
                () = self.until_replaced() => return false,
                reached = reached => reached,
            };
            match reached {
                Ok(()) => {
                    // What was said of it while it waited for a majority holds no more.
                    database.nodes().close(None);
                    database.nodes().cut_off(false);
                    // Before the first client comes: tokens name the cluster.
                    if let Some(cluster) = self.order.cluster() {
                        database.nodes().identify(hex(&cluster));
                    }
                    return true;
                }
                Err(error) => {
                    tracing::info!(%error, "waiting for a majority of the cluster");
                    tokio::time::sleep(STATUS_PERIOD).await;
                }
            }
        }
    }

    /// The order that it takes part in.
    pub(crate) fn order(&self) -> TotalOrder {
        self.order.clone()
    }

    /// Resolves once another node's state has become this one's, for the next opening.
    pub(crate) async fn until_replaced(&self) {
        let mut replaced = self.replaced.clone();
        // Without a sender the applier has ended for another reason.
        if replaced.wait_for(|replaced| *replaced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Tells whether this node leads now.
    pub(crate) fn leadership(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let order = self.order.clone();
        move || order.leader() == Some(order.node())
    }

    /// Leaves as planned: another node leads first.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        self.order.stop().await;
        *self.synced.lock() = Synced::Upto(self.order.marks().synced);
        for task in self.tasks {
            task.abort();
            // Its share of the database is gone then.
            let _ = task.await;
        }
        if let Some(applier) = self.applier.take() {
            let joined = tokio::task::spawn_blocking(move || applier.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                tracing::error!("the applier panicked");
            }
        }
    }
}

/// Hands proposals to the order, each on its own: one that waits holds up no other.
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
                engine.not_ordered(&request);
                return;
            }
            Err(ProposeError::TooLarge { .. }) => return,
            Err(ProposeError::NotProposed(_)) => {}
            Err(ProposeError::Unknown(_)) => may_come = true,
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Tells the monitor how many nodes there are, and how busy this one's applier is, and the others
/// what they need not remember for this node, until it stops.
async fn measure(
    database: SqlDatabase,
    nodes: u32,
    busy: Arc<AtomicU64>,
    mut stopped: watch::Receiver<bool>,
) {
    let (mut before, mut since) = (0, Instant::now());
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(LOOK_PERIOD) => {}
        }
        let (now, elapsed) = (busy.load(Ordering::Relaxed), since.elapsed().as_micros() as u64);
        let share = (now - before) as f64 / elapsed.max(1) as f64;
        database.monitor().tell(Surroundings { nodes, applier_busy: Some(share.min(1.0)) });
        (before, since) = (now, Instant::now());
        // Without a majority it would be proposed again and again.
        if !database.nodes().is_alone() {
            let engine = database.engine().clone();
            let announced = tokio::task::spawn_blocking(move || engine.announce_late());
            if announced.await.is_err() {
                return;
            }
        }
    }
}

/// Whom this node has voted against last, and when.
#[derive(Default)]
struct Urged(Option<(TransactionId, Instant)>);

impl Urged {
    /// Whether this one is to be voted against now: again and again, since a vote is lost if there
    /// is no majority for a while that could order it.
    fn is_due(&mut self, transaction: TransactionId, now: Instant) -> bool {
        let is_under_way = |(urged, since): (TransactionId, Instant)| {
            urged == transaction && now.duration_since(since) < VOTE_AGAIN
        };
        if self.0.is_some_and(is_under_way) {
            return false;
        }
        self.0 = Some((transaction, now));
        true
    }
}

/// Votes against who keeps everybody waiting for too long, until the node stops: its node is lost,
/// or has lost what it voted by. The leader also gives up what removed nodes have sent in parts.
async fn urge(order: TotalOrder, database: SqlDatabase, mut stopped: watch::Receiver<bool>) {
    let (mut urged, mut gave_up) = (Urged::default(), None::<Instant>);
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(STATUS_PERIOD) => {}
        }
        let engine = database.engine().clone();
        // Who delivers has them, also while an image is made.
        let Ok(lists) = tokio::task::spawn_blocking(move || engine.lists()).await else { continue };
        let pause = lists.pause.filter(|pause| pause.since >= VOTE_PATIENCE);
        if let Some(pause) = pause.filter(|pause| urged.is_due(pause.transaction, Instant::now())) {
            tracing::info!(
                position = pause.position,
                transaction = pause.transaction,
                "a transaction's node does not vote: it is voted against"
            );
            database.engine().vote_against(pause.transaction);
        }
        // As seldom as votes are repeated: that request may be lost as they may be.
        if order.leader() == Some(order.node()) && gave_up.is_none_or(|at| at.elapsed() >= VOTE_AGAIN) {
            gave_up = Some(Instant::now());
            give_up_of_removed(&order, &database).await;
        }
    }
}

/// What removed nodes have sent in parts keeps its share of what all may send until it is given up.
async fn give_up_of_removed(order: &TotalOrder, database: &SqlDatabase) {
    let (members, engine) = (order.members().nodes, database.engine().clone());
    // A leader that has just begun to be one may know of none yet.
    if !members.contains(&order.node()) {
        return;
    }
    let is_member = move |node: u16| members.contains(&NodeNumber::from(node));
    let given_up = tokio::task::spawn_blocking(move || engine.give_up_of_others(is_member)).await;
    if let Ok(count @ 1..) = given_up {
        tracing::info!(count, "transactions of removed nodes had come in parts: they are given up");
    }
}

/// Drops temporary objects whose sessions are no more, until the node stops: first those of its own
/// earlier starts and of nodes that are no members, then those of sessions that end.
async fn sweep(order: TotalOrder, database: SqlDatabase, mut stopped: watch::Receiver<bool>) {
    let (mut has_looked, mut pause) = (false, STATUS_PERIOD);
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = STATUS_PERIOD;
        if !has_looked {
            let reached = async { order.until_applied(order.read_barrier().await?).await };
            has_looked = matches!(tokio::time::timeout(PATIENCE, reached).await, Ok(Ok(())));
            // Not those on the list: who was removed may stay there until the next start.
            let members = order.members().nodes;
            has_looked &= members.contains(&order.node());
            if has_looked {
                database.note_left_behind(|node| members.contains(&NodeNumber::from(node)));
            } else {
                pause = SWEEP_PAUSE;
            }
        }
        if database.has_left_behind()
            && database.nodes().closed().is_none()
            && let Err(error) = database.sweep_temporary().await
        {
            tracing::info!(%error, "temporary objects are left behind for now");
            pause = SWEEP_PAUSE;
        }
    }
}

/// Asks the order how far it is, from whatever thread a session runs on. A member that has ended is
/// not asked.
fn barrier(order: TotalOrder) -> Barrier {
    let runtime = tokio::runtime::Handle::current();
    Box::new(move || {
        let order = order.clone();
        let asked = runtime.spawn(async move { order.read_barrier().await.map_err(|e| e.to_string()) });
        Box::pin(async move { asked.await.unwrap_or_else(|e| Err(e.to_string())) })
    })
}

/// Lets the order forget what no start needs any more, after each checkpoint.
async fn cut(order: TotalOrder, engine: Database, mut before: u64, mut stopped: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(LOOK_PERIOD) => {}
        }
        let starts_at = engine.starts_at();
        if starts_at > before {
            match order.checkpointed(starts_at).await {
                Ok(()) => before = starts_at,
                Err(error) => tracing::warn!(%error, "the order's log is not cut"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Votes that were made while there was no majority are in no order: who keeps everybody
    /// waiting must not do so for ever.
    #[test]
    fn who_keeps_everybody_waiting_is_voted_against_until_that_counts() {
        let (mut urged, began) = (Urged::default(), Instant::now());
        assert!(urged.is_due(7, began));
        assert!(!urged.is_due(7, began + VOTE_AGAIN / 2), "the vote is under way");
        assert!(urged.is_due(7, began + VOTE_AGAIN), "it has come to nothing");
        assert!(!urged.is_due(7, began + VOTE_AGAIN + VOTE_AGAIN / 2));
        assert!(urged.is_due(9, began + VOTE_AGAIN + VOTE_AGAIN / 2), "another one");
        assert!(urged.is_due(7, began + 2 * VOTE_AGAIN));
    }
}
