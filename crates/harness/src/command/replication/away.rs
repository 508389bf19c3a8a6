//! A node is away while the others work: how far their logs and their memory grow, and how long it
//! takes to be there again.
//!
//! Clients at the two nodes that stay go as fast as they can. Each second the files of the order's
//! log in both folders are counted, and what both processes have in memory. What a log may have is
//! said by settings: what no checkpoint covers yet, and `cluster_log_kept` for nodes that are away.
//! The node that was away lacks more than that, so it is sent another one's state when it comes
//! back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::join::load;
use super::place::{Place, Servers};
use super::throughput::UPDATES;
use super::turns::{Load, Way};
use super::{Bench, NODES};
use crate::error::{Error, Result};
use crate::peer::memory::resident;
use crate::progress;
use crate::report::{LatencyMs, Record};
use crate::workload::bookstore::Isolation;

/// How long all nodes are loaded before one goes, and after it has come back.
const BESIDE: Duration = Duration::from_secs(5);
/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Where a node keeps the order's log, in its folder.
const LOG: &str = "order";
/// What a log may have that no checkpoint covers, in megabytes: the server's default.
const UNCOVERED_MB: f64 = 256.0;
/// `cluster_log_kept`, in megabytes: the server's default.
const KEPT_MB: f64 = 64.0;
/// Segments of 64 MB: the one that is written, and the next one, which is made beforehand.
const SEGMENTS_MB: f64 = 128.0;
const ALLOWED_MB: f64 = UNCOVERED_MB + KEPT_MB + SEGMENTS_MB;

/// What one look has found.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    log_mb: f64,
    resident_mb: f64,
}

/// Measures it.
pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let mut place = Place::cluster(bench.args, NODES).await?;
    place.fill(&bench.shape(UPDATES)).await?;
    let leader = match &place.servers {
        Servers::Cluster(cluster) => cluster.leader(0).await?,
        _ => return Err(Error::Usage("a node is away from a cluster".to_owned())),
    };
    let away = (leader + 1) % NODES;
    let clients = bench.args.connections * (NODES - 1) as u32;
    let way = Way::new(0, String::new(), Isolation::Serializable, clients, Load::Updates(UPDATES));
    let mut all = way.updates(bench, &place, UPDATES, bench.run);
    all.remove(away);
    bench.next_run();

    let seconds = Duration::from_secs(u64::from(bench.args.away_seconds));
    let bar = progress::steps("away: seconds", seconds.as_secs());
    let loaded = load(&all, clients, None);
    tokio::time::sleep(BESIDE).await;
    let staying = staying(&mut place, away);
    let before = look(&staying);
    if let Servers::Cluster(cluster) = &mut place.servers {
        cluster.kill(away)?;
    }
    let (gone, mut looks) = (Instant::now(), Vec::new());
    while gone.elapsed() < seconds {
        tokio::time::sleep(LOOK).await;
        looks.push(look(&staying));
        bar.inc(1);
    }
    let returning = Instant::now();
    if let Servers::Cluster(cluster) = &mut place.servers {
        cluster.restart(away).await?;
    }
    let returned = returning.elapsed();
    bar.finish_and_clear();
    let seen = Arc::clone(&loaded.seen);
    let commits = loaded.after(BESIDE, &mut place).await?;
    place.check().await?;

    let away = Away { before, looks, returned, gone, returning, seconds };
    let errors = json!(*seen.errors.lock());
    let pairs = [
        ("case", json!("a node is away")),
        ("isolation", json!(way.isolation.name())),
        ("durable", json!(place.durable)),
        ("nodes", json!(NODES)),
        ("clients", json!(clients)),
        ("updates", json!(UPDATES)),
        ("errors", errors),
    ];
    let params = bench.parameters(&place.version, &pairs);
    bench.records.push(away.record(params, &commits));
    Ok(())
}

/// What was seen.
struct Away {
    before: Look,
    looks: Vec<Look>,
    gone: Instant,
    returning: Instant,
    returned: Duration,
    seconds: Duration,
}

impl Away {
    fn record(&self, mut params: Map<String, Value>, commits: &[Instant]) -> Record {
        let largest = |of: fn(&Look) -> f64| self.looks.iter().map(of).fold(0.0_f64, f64::max);
        let (log_mb, resident_mb) = (largest(|look| look.log_mb), largest(|look| look.resident_mb));
        println!(
            "a node was away for {} s: the log of the others had {log_mb:.0} MB at most, their memory {resident_mb:.0} \
             MB ({:.0} MB before); it was back in {:.1} s",
            self.seconds.as_secs(),
            self.before.resident_mb,
            self.returned.as_secs_f64()
        );
        for (name, value) in [
            ("away_s", json!(self.seconds.as_secs())),
            ("log_allowed_mb", json!(ALLOWED_MB)),
            ("log_mb_of_seconds", json!(rounded(&self.looks, |look| look.log_mb))),
            ("resident_mb_of_seconds", json!(rounded(&self.looks, |look| look.resident_mb))),
        ] {
            params.insert(name.to_owned(), value);
        }
        let meanwhile = commits.iter().filter(|at| **at >= self.gone && **at < self.returning).count();
        let mut record = Record {
            system: "cognate".to_owned(),
            workload: "replication".to_owned(),
            params,
            committed_per_s: meanwhile as f64 / (self.returning - self.gone).as_secs_f64(),
            aborted_pct: 0.0,
            latency_ms: LatencyMs::default(),
        };
        record.measured("away_log_of_allowed", log_mb / ALLOWED_MB, f64::NAN);
        record.measured("away_memory_of_before", resident_mb / self.before.resident_mb.max(1.0), f64::NAN);
        record.measured("away_return_s", self.returned.as_secs_f64(), f64::NAN);
        record
    }
}

fn rounded(looks: &[Look], of: fn(&Look) -> f64) -> Vec<f64> {
    looks.iter().map(|look| of(look).round()).collect()
}

/// The folders and processes of the nodes that stay.
fn staying(place: &mut Place, away: usize) -> Vec<(PathBuf, u32)> {
    let Servers::Cluster(cluster) = &mut place.servers else { return Vec::new() };
    let mut staying = Vec::new();
    for number in (0..NODES).filter(|number| *number != away) {
        if let Some((data, process)) = cluster.folder_and_process(number) {
            staying.push((data.join(LOG), process));
        }
    }
    staying
}

/// The larger values of the nodes that stay.
fn look(staying: &[(PathBuf, u32)]) -> Look {
    let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut found = Look::default();
    for (log, process) in staying {
        found.log_mb = found.log_mb.max(megabytes(size(log)));
        found.resident_mb = found.resident_mb.max(megabytes(resident(*process).unwrap_or(0)));
    }
    found
}

/// Bytes of the log's segments in a folder; they may go while they are counted. Beside them is a
/// file that counts the node's starts.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let is_segment = |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|end| end == "log");
    let segments = entries.flatten().filter(is_segment);
    segments.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}
