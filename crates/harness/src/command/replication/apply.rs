//! How fast one node does what the order delivers: requests of another node, made before the clock
//! runs, are delivered to a database by one thread, as a node's applier does it. Write sets of
//! different transactions are disjoint.
//!
//! Nothing waits for a disk here: what is delivered is in the order's log already, and a checkpoint
//! is nobody's turn. So the rate is what one applier can do at most, to be held against how many
//! requests the order places.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cognate_engine::{
    Access, Database, Isolation, Node, Options, Progress, Replication, TotalOrder, Transaction, Value,
};
use parking_lot::Mutex;
use serde_json::json;

use super::Bench;
use crate::error::{Error, Result};
use crate::peer;
use crate::progress;
use crate::report::{LatencyMs, Record};

const TREE: u32 = 1000;
/// Rows of a write set.
const ROWS: [u64; 4] = [1, 20, 200, 2000];
/// Rows that all write sets of a round have together.
const ROWS_ALL: u64 = 200_000;
const VALUE: Value = Value::from_static(&[7; 60]);

/// Keeps what is proposed.
#[derive(Default)]
struct Kept(Mutex<Vec<Bytes>>);

impl TotalOrder for Kept {
    fn propose(&self, request: Bytes) {
        self.0.lock().push(request);
    }

    fn request_bytes_max(&self) -> u64 {
        16 << 20
    }

    fn wait_synced(&self, _position: u64) -> bool {
        true
    }
}

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let bar = progress::steps("apply", u64::from(bench.args.rounds) * 2 * ROWS.len() as u64);
    for (level, isolation) in
        [("repeatable read", Isolation::Snapshot), ("serializable", Isolation::Serializable)]
    {
        for rows in ROWS {
            let mut per_s = Vec::new();
            for _ in 0..bench.args.rounds {
                bar.set_message(format!("{rows} rows at {level}"));
                let folder = bench.args.server.directory.clone();
                let seed = bench.args.seed;
                let round = move || deliver_all(folder.as_deref(), isolation, rows, seed);
                // On a thread of its own: it blocks, and Ctrl-C must still be heard.
                let took = tokio::task::spawn_blocking(round).await;
                let took = took.map_err(|panic| Error::Server(format!("the applier failed: {panic}")))??;
                per_s.push((ROWS_ALL / rows) as f64 / took.as_secs_f64());
                bar.inc(1);
            }
            bench.records.push(record(bench, level, rows, per_s));
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn record(bench: &Bench<'_>, level: &str, rows: u64, mut per_s: Vec<f64>) -> Record {
    per_s.sort_by(f64::total_cmp);
    let median = per_s[per_s.len() / 2];
    let pairs = [
        ("case", json!(format!("apply, {rows} rows"))),
        ("isolation", json!(level)),
        ("rows", json!(rows)),
        ("rows_per_s", json!((median * rows as f64).round())),
        ("rounds_per_s", json!(per_s.iter().map(|rate| rate.round()).collect::<Vec<f64>>())),
    ];
    Record {
        system: "cognate".to_owned(),
        workload: "replication".to_owned(),
        params: bench.parameters(env!("CARGO_PKG_VERSION"), &pairs),
        committed_per_s: median,
        aborted_pct: 0.0,
        latency_ms: LatencyMs::default(),
    }
}

/// How long one node takes for requests of so many rows each.
fn deliver_all(
    directory: Option<&std::path::Path>,
    isolation: Isolation,
    rows: u64,
    seed: u64,
) -> Result<Duration> {
    let (origin, kept, _origin_folder) = open(1, directory)?;
    let (node, _, _folder) = open(2, directory)?;
    let mut requests = Vec::new();
    for number in 0..ROWS_ALL / rows {
        let mut t = origin.begin(isolation, Access::ReadWrite);
        write(&mut t, number * rows..(number + 1) * rows, seed)?;
        let mut commit = Box::pin(t.commit_by(Replication::Certification));
        let mut context = Context::from_waker(Waker::noop());
        let is_early = commit.as_mut().poll(&mut context).is_ready();
        requests.append(&mut kept.0.lock());
        // So the next one's snapshot has it, and what is old can be forgotten.
        let request = requests.last().filter(|_| !is_early && requests.len() as u64 == number + 1);
        let request = request.ok_or_else(|| Error::Violation("a commit was not proposed".to_owned()))?;
        origin.deliver(number + 1, request).map_err(|error| engine(&error))?;
    }
    let began = Instant::now();
    for (at, request) in requests.iter().enumerate() {
        match node.deliver(at as u64 + 1, request).map_err(|error| engine(&error))? {
            Progress::Decided(delivered) if delivered.committed => {}
            other => return Err(Error::Violation(format!("a disjoint write set did not commit: {other:?}"))),
        }
    }
    let took = began.elapsed();
    let t = node.begin(Isolation::Snapshot, Access::ReadOnly);
    let last = t.get(TREE, &key(ROWS_ALL - 1, seed)).map_err(|error| engine(&error))?;
    if last != Some(VALUE) {
        return Err(Error::Violation("what was delivered is not there".to_owned()));
    }
    Ok(took)
}

fn open(
    number: u16,
    directory: Option<&std::path::Path>,
) -> Result<(Database, Arc<Kept>, tempfile::TempDir)> {
    let (folder, kept) = (peer::fresh_folder(directory)?, Arc::<Kept>::default());
    let mut options = Options::new(folder.path().join("data")).memory(1 << 30);
    options.node = Some(Node { number, start: 1, order: Arc::<Kept>::clone(&kept) });
    let database = Database::open(options).map_err(|error| engine(&error))?;
    Ok((database, kept, folder))
}

/// Keys in no order, as those of a table that is updated at random.
fn key(row: u64, seed: u64) -> [u8; 8] {
    // An odd factor loses nothing: two rows never have the same key.
    (row ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn write(t: &mut Transaction, rows: std::ops::Range<u64>, seed: u64) -> Result<()> {
    for row in rows {
        t.put(TREE, &key(row, seed), VALUE.clone()).map_err(|error| engine(&error))?;
    }
    Ok(())
}

fn engine(error: &cognate_engine::Error) -> Error {
    Error::Server(format!("the database failed: {error}"))
}
