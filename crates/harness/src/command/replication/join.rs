//! A node without anything joins while the others work: what clients lose of the throughput that
//! they ask for.
//!
//! Clients are at the two nodes that stay. First they go as fast as they can, which says what the
//! two bear; then at a fixed pace of half of that, before the third node comes, while it receives
//! everything, and after it. Transactions are due whether the nodes keep up or not, so whatever is
//! lost while it joins shows, and so does whatever is made up for later.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::leader::{Seen, client};
use super::place::{Place, Servers};
use super::throughput::UPDATES;
use super::turns::{Load, Way};
use super::{Bench, NODES};
use crate::error::{Error, Result};
use crate::progress;
use crate::report::{LatencyMs, Record};
use crate::workload::bookstore::Isolation;
use crate::workload::pace::Pace;
use crate::workload::updates::Updates;

/// How long the load goes on before the node comes, and after it.
const BESIDE: Duration = Duration::from_secs(5);
/// How long a node may take to join, for each gigabyte.
const LIMIT: Duration = Duration::from_secs(300);
/// How long a client may take to hear that the load is over.
const END_LIMIT: Duration = Duration::from_secs(30);
/// Rows of a thousand bytes that one statement inserts: far less than the largest request.
const ROWS_AT_ONCE: u32 = 4_000;
/// In how many pieces the time of joining is looked at for the worst one.
const PIECE: Duration = Duration::from_secs(1);

/// Measures it.
pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let mut place = Place::cluster(bench.args, NODES).await?;
    place.fill(&bench.shape(UPDATES)).await?;
    let megabytes = bench.args.join_megabytes;
    fill_up(&place, megabytes).await?;
    let leader = match &place.servers {
        Servers::Cluster(cluster) => cluster.leader(0).await?,
        _ => return Err(Error::Usage("a node joins a cluster".to_owned())),
    };
    let (joining, asked) = ((leader + 1) % NODES, leader);
    if let Servers::Cluster(cluster) = &mut place.servers {
        cluster.kill(joining)?;
    }
    let clients = bench.args.connections * (NODES - 1) as u32;
    let way = Way::new(0, String::new(), Isolation::Serializable, clients, Load::Updates(UPDATES));
    let mut all = way.updates(bench, &place, UPDATES, bench.run);
    all.remove(joining);
    bench.next_run();

    let spinner = progress::spinner("join: what two nodes bear");
    let commits = load(&all, clients, None).after(BESIDE, &mut place).await?;
    let bears = commits.len() as f64 / BESIDE.as_secs_f64();
    spinner.finish_and_clear();

    let spinner = progress::spinner(&format!("join: {megabytes} MB under {:.0} a second", bears / 2.0));
    let loaded = load(&all, clients, Some(Pace::new(Duration::from_secs_f64(2.0 / bears.max(1.0)))));
    tokio::time::sleep(BESIDE).await;
    let from = Instant::now();
    if let Servers::Cluster(cluster) = &mut place.servers {
        cluster.join_empty(joining, asked, LIMIT * megabytes.div_ceil(1000)).await?;
    }
    let took = from.elapsed();
    let seen = Arc::clone(&loaded.seen);
    let commits = loaded.after(BESIDE, &mut place).await?;
    spinner.finish_and_clear();
    place.check().await?;

    let errors = json!(*seen.errors.lock());
    let pairs = [
        ("case", json!("an empty node joins")),
        ("isolation", json!(way.isolation.name())),
        ("durable", json!(place.durable)),
        ("nodes", json!(NODES)),
        ("clients", json!(clients)),
        ("updates", json!(UPDATES)),
        ("megabytes", json!(megabytes)),
        ("two_nodes_bear_per_s", json!(bears.round())),
        ("errors", errors),
    ];
    let params = bench.parameters(&place.version, &pairs);
    bench.records.push(record(params, &commits, from, took));
    Ok(())
}

/// What was lost of the throughput between `from` and the end of `took`.
fn record(params: Map<String, Value>, commits: &[Instant], from: Instant, took: Duration) -> Record {
    let rate = |begin: Instant, length: Duration| {
        let within = |at: &&Instant| (begin..begin + length).contains(*at);
        commits.iter().filter(within).count() as f64 / length.as_secs_f64()
    };
    let (before, during) = (rate(from - BESIDE / 2, BESIDE / 2), rate(from, took));
    // Whole ones, so that none is short for its end.
    let pieces = (took.as_secs_f64() / PIECE.as_secs_f64()).floor().max(1.0) as u32;
    let rates: Vec<f64> = (0..pieces).map(|at| rate(from + PIECE * at, PIECE)).collect();
    let worst = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let dip = |rate: f64| (100.0 * (1.0 - rate / before)).max(0.0);
    println!(
        "a node joined in {:.1} s; {before:.0} a second before, {during:.0} meanwhile, {worst:.0} in the worst second",
        took.as_secs_f64()
    );
    let mut record = Record {
        system: "cognate".to_owned(),
        workload: "replication".to_owned(),
        params,
        committed_per_s: during,
        aborted_pct: 0.0,
        latency_ms: LatencyMs::default(),
    };
    record.params.insert("before_per_s".to_owned(), json!(before.round()));
    record.params.insert("per_s_of_seconds".to_owned(), json!(rates));
    record.measured("join_s", took.as_secs_f64(), f64::NAN);
    record.measured("join_dip_pct", dip(during), f64::NAN);
    record.measured("join_worst_dip_pct", dip(worst), f64::NAN);
    record
}

/// Clients at work.
pub(super) struct Loaded {
    pub(super) seen: Arc<Seen>,
    tasks: JoinSet<()>,
}

pub(super) fn load(all: &[Updates], clients: u32, pace: Option<Pace>) -> Loaded {
    let seen = Arc::new(Seen { pace, ..Seen::default() });
    let mut tasks = JoinSet::new();
    for index in 0..clients as usize {
        tasks.spawn(client(all.to_vec(), index, Arc::clone(&seen)));
    }
    Loaded { seen, tasks }
}

impl Loaded {
    /// Ends them after a time, and notes what they have done; when commits were acknowledged.
    pub(super) async fn after(mut self, time: Duration, place: &mut Place) -> Result<Vec<Instant>> {
        tokio::time::sleep(time).await;
        self.seen.over.store(true, Ordering::Relaxed);
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(END_LIMIT, ended).await.is_err() {
            return Err(Error::Timeout("clients were still busy long after the load was over".to_owned()));
        }
        let commits = self.seen.commits.lock().clone();
        place.note_committed((commits.len() * UPDATES) as u64);
        place.note_unknown(*self.seen.unknown.lock() * UPDATES as u64);
        Ok(commits)
    }
}

/// Makes a table of so many megabytes beside the one that is updated, at every node.
async fn fill_up(place: &Place, megabytes: u32) -> Result<()> {
    let rows = megabytes * 1_000;
    let bar = progress::steps("join: rows to be sent", u64::from(rows));
    place.execute(&["CREATE TABLE ballast (id int PRIMARY KEY, filler text)".to_owned()]).await?;
    for first in (1..=rows).step_by(ROWS_AT_ONCE as usize) {
        let last = rows.min(first + ROWS_AT_ONCE - 1);
        // Every row is another one, and hardly shorter when compressed.
        let filler = "(SELECT string_agg(md5(n::text || '/' || k::text), '') FROM generate_series(1, 31) k)";
        let text = format!("INSERT INTO ballast SELECT n, {filler} FROM generate_series({first}, {last}) n");
        place.execute(&[text]).await?;
        bar.inc(u64::from(last - first + 1));
    }
    bar.finish_and_clear();
    place.settle().await
}
