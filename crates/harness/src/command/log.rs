//! `cognate-bench log`: durable commits through the engine's log, and what the raw device does with
//! the same batches.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{OutputArgs, ServerArgs};
use crate::error::Result;
use crate::report::{self, LatencyMs, Record};
use crate::workload::log::{LogPlan, measure};

/// The arguments of the log benchmark.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Commits in flight.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    in_flight: u32,
    /// Bytes of each commit's record.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    payload: u32,
    /// Time that the log is measured for, in seconds; the device takes about as long.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
}

/// How many turns the time is cut into.
const TURNS: u32 = 5;

/// Runs the benchmark.
pub async fn run(args: &LogArgs) -> Result<()> {
    let plan = LogPlan {
        in_flight: args.in_flight as usize,
        payload: args.payload as usize,
        turn: Duration::from_secs(u64::from(args.seconds)) / TURNS,
        turns: TURNS,
    };
    let directory = args.server.directory.clone();
    let spinner = crate::progress::spinner("log and raw device in turns");
    // On a thread of its own: it blocks, and Ctrl-C must still be heard.
    let measured = tokio::task::spawn_blocking(move || measure(&plan, directory.as_deref())).await;
    spinner.finish_and_clear();
    let measured = measured
        .map_err(|panic| crate::error::Error::Server(format!("the measurement failed: {panic}")))??;
    let share = 100.0 * measured.log_per_s / measured.device_per_s;
    let of_direct = 100.0 * measured.log_per_s / measured.direct_per_s;
    let record = |system: &str, per_s: f64, latency: LatencyMs| {
        let mut params = serde_json::Map::new();
        params.insert("case".to_owned(), json!(system));
        params.insert("in_flight".to_owned(), json!(args.in_flight));
        params.insert("payload_bytes".to_owned(), json!(args.payload));
        params.insert("seconds".to_owned(), json!(args.seconds));
        params.insert("commits_per_batch".to_owned(), json!(measured.commits_per_batch));
        params.insert("bytes_per_batch".to_owned(), json!(measured.bytes_per_batch));
        Record {
            system: system.to_owned(),
            workload: "log".to_owned(),
            params,
            committed_per_s: per_s,
            aborted_pct: 0.0,
            latency_ms: latency,
        }
    };
    let mut ours = record("cognate", measured.log_per_s, LatencyMs::from_micros(&measured.latency));
    let [of_written, past] = measured.errors.map(|error| 100.0 * error);
    ours.measured("of_device_pct", share, of_written);
    ours.measured("of_direct_pct", of_direct, past);
    ours.params.insert("flush_us".to_owned(), json!(measured.flush_us));
    ours.params.insert("batch_us".to_owned(), json!(measured.batch_us));
    let records = [
        ours,
        record("raw device", measured.device_per_s, LatencyMs::default()),
        record("raw, past cache", measured.direct_per_s, LatencyMs::default()),
    ];
    println!("{}", report::table(&records, "case"));
    println!(
        "{:.1} commits and {:.0} bytes a batch, {:.0} µs from batch to batch, {:.0} of them on the device; the log does {share:.1} % of what the device \
         does with the same batches by write and flush, {of_direct:.1} % of what it does past the cache",
        measured.commits_per_batch, measured.bytes_per_batch, measured.batch_us, measured.flush_us
    );
    args.output.write("Durable commits", &records, "case")
}
