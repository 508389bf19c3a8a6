//! `cognate-bench point-read`: what one point read costs in the embedded library.

use clap::Args;
use serde_json::json;

use super::{OutputArgs, ServerArgs};
use crate::error::{Error, Result};
use crate::report::{self, LatencyMs, Record};
use crate::workload::point_read::{PointReadPlan, measure};

/// The arguments of the point-read benchmark.
#[derive(Clone, Debug, Args)]
pub struct PointReadArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Rows of the table.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    rows: u32,
    /// Reads that are measured.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(10..))]
    reads: u32,
    /// Seed of the keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the benchmark.
pub async fn run(args: &PointReadArgs) -> Result<()> {
    let plan = PointReadPlan { rows: i64::from(args.rows), reads: args.reads, seed: args.seed };
    let directory = args.server.directory.clone();
    let spinner = crate::progress::spinner("loading and reading");
    // On a thread of its own: the embedded library waits on the calling thread.
    let measured = tokio::task::spawn_blocking(move || measure(&plan, directory.as_deref())).await;
    spinner.finish_and_clear();
    let measured = measured.map_err(|panic| Error::Server(format!("the measurement failed: {panic}")))??;
    let records: Vec<Record> = measured
        .into_iter()
        .map(|(case, reads)| {
            let mut params = serde_json::Map::new();
            params.insert("case".to_owned(), json!(case));
            params.insert("isolation".to_owned(), json!("serializable"));
            params.insert("rows".to_owned(), json!(args.rows));
            params.insert("reads".to_owned(), json!(args.reads));
            params.insert("seed".to_owned(), json!(args.seed));
            let seconds = reads.elapsed.as_secs_f64();
            let at = |quantile: f64| reads.latency.value_at_quantile(quantile) as f64 / 1e6;
            Record {
                system: "cognate".to_owned(),
                workload: "point-read".to_owned(),
                params,
                committed_per_s: f64::from(args.reads) / seconds,
                aborted_pct: 0.0,
                latency_ms: LatencyMs {
                    mean: 1000.0 * seconds / f64::from(args.reads),
                    p50: at(0.50),
                    p95: at(0.95),
                    p99: at(0.99),
                },
            }
        })
        .collect();
    println!("{}", report::table(&records, "case"));
    for record in &records {
        println!("{}: {:.2} µs a read", record.param("case"), 1000.0 * record.latency_ms.mean);
    }
    args.output.write("Point reads in the embedded library", &records, "case")
}
