//! `cognate-bench device`: the three experiments of the PSSI paper (HPTS 2011) on simulated log
//! devices.
//!
//! | clients | locks released | governor |
//! |---|---|---|
//! | as many as the limit | once the commit is durable (late) | off |
//! | as many as the limit | once the commit is ordered (early) | off |
//! | many more | early | the limit |
//!
//! Each on a hard disk (78 ms a flush) and an SSD (2.5 ms). The clients are tasks inside this
//! program: so many connections would measure the network, and the device is to be the limit. How
//! many clients the third row needs follows from Little's law: the rate that the processor could
//! do, times the time that a commit waits for (its own flush, and on average half of the one
//! before).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use cognate::{ActiveLimit, Database, Options};
use cognate_env::RealDisk;
use cognate_env::sim::LogDevice;
use serde_json::json;

use super::{OutputArgs, ServerArgs, client_threads};
use crate::driver::{self, Outcome, Plan};
use crate::error::{Error, Result};
use crate::median::ratio_error;
use crate::peer;
use crate::report::{self, Record, number};
use crate::workload::s3u1::{Embedded, Table};

/// The arguments of the device benchmark.
#[derive(Clone, Debug, Args)]
pub struct DeviceArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Rows of the table.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(1000..=10_000_000))]
    rows: i64,
    /// Transactions that execute at a time, and the clients of the first two experiments.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Clients of the third experiment.
    #[arg(long, default_value_t = 12_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: u32,
    /// Rounds over all experiments; the median of each is reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Length of each measured part, in seconds.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Seed of the keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The devices: name, and the time of a flush.
const DEVICES: [(&str, Duration); 2] =
    [("HDD (78 ms)", Duration::from_millis(78)), ("SSD (2.5 ms)", Duration::from_micros(2500))];

/// The experiments: name, early lock release, governor and many clients.
const EXPERIMENTS: [(&str, bool, bool); 3] = [
    ("late release", false, false),
    ("early release", true, false),
    ("early release + governor", true, true),
];

/// Runs the benchmark.
pub async fn run(args: &DeviceArgs) -> Result<()> {
    let folder = peer::fresh_folder(args.server.directory.as_deref())?;
    let data = folder.path().join("data");
    let table = Table { rows: args.rows, hot_rows: 1, hot_pct: 0, seed: args.seed };
    load(&data, table).await?;
    let mut measured = Vec::new();
    for _ in 0..args.rounds {
        measured.push(round(args, &data, table).await?);
    }
    // The median by rate, cell by cell.
    let mut records = Vec::new();
    for cell in 0..DEVICES.len() * EXPERIMENTS.len() {
        let mut of_rounds: Vec<Record> = measured.iter().map(|round| round[cell].clone()).collect();
        of_rounds.sort_by(|a, b| a.committed_per_s.total_cmp(&b.committed_per_s));
        let rates: Vec<f64> = of_rounds.iter().map(|record| record.committed_per_s).collect();
        let mut median = of_rounds.swap_remove(rates.len() / 2);
        median.params.insert("rates_of_rounds".to_owned(), json!(rates));
        records.push(median);
    }
    println!("{}", pivot(&records));
    let rate = |row: usize| records[row].committed_per_s;
    let (of_ssd, over_late) = (100.0 * rate(2) / rate(5), rate(2) / rate(0));
    let of_rounds =
        |cell: usize| measured.iter().map(|round| round[cell].committed_per_s).collect::<Vec<f64>>();
    let error = |below: usize| ratio_error(&of_rounds(2), &of_rounds(below));
    records[2].measured("of_ssd_pct", of_ssd, 100.0 * error(5));
    records[2].measured("over_late", over_late, error(0));
    println!("{}", report::table(&records, "case"));
    println!("HDD with early release and governor: {of_ssd:.1} % of the SSD, {over_late:.1} × late release");
    args.output.write("Committed a second by log device", &records, "case")
}

/// Every experiment on every device, once.
async fn round(args: &DeviceArgs, data: &Path, table: Table) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for (device, latency) in DEVICES {
        for (experiment, early, governed) in EXPERIMENTS {
            let mut options = Options::new(data);
            options.disk = Arc::new(LogDevice::new(Arc::new(RealDisk), latency));
            options.early_lock_release = early;
            options.active_limit = if governed { ActiveLimit::Fixed(args.limit) } else { ActiveLimit::Off };
            let clients = if governed { args.clients } else { args.limit };
            let label = format!("{device}: {experiment}");
            let (outcome, per_flush) = measure(args, options, table, clients, label, records.len()).await?;
            records.push(record(args, (device, experiment), clients, &outcome, per_flush));
        }
    }
    Ok(records)
}

async fn load(data: &Path, table: Table) -> Result<()> {
    let mut options = Options::new(data);
    options.disk = Arc::new(LogDevice::new(Arc::new(RealDisk), Duration::ZERO));
    blocking(move || {
        let database = open(options)?;
        Embedded::load(&database, table)?;
        database.close().map_err(|error| Error::Server(error.to_string()))
    })
    .await
}

fn open(options: Options) -> Result<Database> {
    Database::open_with(options).map_err(|error| Error::Server(error.to_string()))
}

/// On a thread where waiting is allowed.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|panic| Error::Server(format!("the database failed: {panic}")))?
}

/// One cell of the table, and how many commits shared a flush. Checks that what was acknowledged is
/// there, and nothing else.
async fn measure(
    args: &DeviceArgs,
    options: Options,
    table: Table,
    clients: u32,
    label: String,
    round: usize,
) -> Result<(Outcome, f64)> {
    let (database, before) = blocking(move || {
        let database = open(options)?;
        let before = Embedded::sum(&database)?;
        Ok((database, before))
    })
    .await?;
    let plan = Plan {
        label,
        clients: clients as usize,
        threads: client_threads(),
        warmup: Duration::from_secs(2),
        measured: Duration::from_secs(u64::from(args.seconds)),
    };
    let load = Arc::new(Embedded { database: database.clone(), table, round: round as u64 });
    let outcome = driver::run(load, &plan).await?;
    blocking(move || {
        let after = Embedded::sum(&database)?;
        let acknowledged = outcome.total().acknowledged as i64;
        if after - before != acknowledged {
            return Err(Error::Violation(format!(
                "{acknowledged} TRANSACTIONS WERE ACKNOWLEDGED, AND {} ARE THERE",
                after - before
            )));
        }
        let statistics = database.sql().engine().statistics();
        let per_flush = statistics.commits as f64 / statistics.log.batches.max(1) as f64;
        database.close().map_err(|error| Error::Server(error.to_string()))?;
        Ok((outcome, per_flush))
    })
    .await
}

fn record(
    args: &DeviceArgs,
    (device, experiment): (&str, &str),
    clients: u32,
    outcome: &Outcome,
    per_flush: f64,
) -> Record {
    let mut params = serde_json::Map::new();
    params.insert("case".to_owned(), json!(format!("{device}, {experiment}")));
    params.insert("device".to_owned(), json!(device));
    params.insert("experiment".to_owned(), json!(experiment));
    params.insert("clients".to_owned(), json!(clients));
    params.insert("active_limit".to_owned(), json!(args.limit));
    params.insert("rows".to_owned(), json!(args.rows));
    params.insert("seconds".to_owned(), json!(args.seconds));
    params.insert("isolation".to_owned(), json!("serializable"));
    params.insert("commits_per_flush".to_owned(), json!(per_flush));
    report::records("cognate", "device", &params, outcome).remove(0)
}

/// The paper's table: devices down, experiments across.
fn pivot(records: &[Record]) -> String {
    let mut rows =
        vec![["committed/s", "late release", "early release", "early + governor"].map(str::to_owned)];
    for cells in records.chunks(EXPERIMENTS.len()) {
        let rate = |cell: usize| number(cells[cell].committed_per_s);
        rows.push([cells[0].param("device").to_owned(), rate(0), rate(1), rate(2)]);
    }
    report::align(&rows, 1)
}
