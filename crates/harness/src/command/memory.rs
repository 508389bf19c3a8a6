//! `cognate-bench memory`: data four times the memory budget, random reads, the server's resident
//! size.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{OutputArgs, ServerArgs, client_threads, parameters, parse_size};
use crate::driver::{self, Plan};
use crate::error::{Error, Result};
use crate::peer::System;
use crate::peer::memory::MemoryWatch;
use crate::report;
use crate::workload::keyed::{Keyed, KeyedReads};

/// The budget when none is given.
const DEFAULT_BUDGET: &str = "256MB";
/// What the resident size may be, as a multiple of the budget.
const ALLOWED: f64 = 1.5;

/// The arguments of the memory benchmark.
#[derive(Clone, Debug, Args)]
pub struct MemoryArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// How many times the budget the data are.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    times: u32,
    /// Bytes of each row's payload.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(i32).range(10..=100_000))]
    payload: i32,
    /// Length of the random reads, in seconds.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Reading clients.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=290))]
    clients: u32,
    /// Seed of the data and the reads.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the benchmark; a resident size beyond 1.5 times the budget is an error.
pub async fn run(args: &MemoryArgs) -> Result<()> {
    let mut options = args.server.cognate();
    let budget_text = options.memory.get_or_insert_with(|| DEFAULT_BUDGET.to_owned()).clone();
    let budget = parse_size(&budget_text)?;
    let rows = (budget * u64::from(args.times) / args.payload as u64) as i64;
    let table = Keyed { rows, payload: args.payload, seed: args.seed };
    let mut system = System::start_cognate(&options).await?;
    let process = system.cognate().map_or(0, |server| server.process_id());
    let watch = MemoryWatch::start(process);
    let started = std::time::Instant::now();
    table.load(&system).await?;
    let load_seconds = started.elapsed().as_secs_f64();
    let loading = watch.take_highest();
    let reads = KeyedReads { system: system.name.clone(), config: system.config().clone(), table, round: 0 };
    let plan = Plan {
        label: format!("{}: random reads", system.name),
        clients: args.clients as usize,
        threads: client_threads(),
        warmup: Duration::ZERO,
        measured: Duration::from_secs(u64::from(args.seconds)),
    };
    let outcome = driver::run(Arc::new(reads), &plan).await?;
    let reading = watch.take_highest();
    let peak = watch.peak();
    let ratio = peak as f64 / budget as f64;
    let params = parameters(
        &system,
        &[
            ("budget_bytes", json!(budget)),
            ("data_bytes", json!(table.bytes())),
            ("payload_bytes", json!(args.payload)),
            ("clients", json!(args.clients)),
            ("isolation", json!("serializable")),
            ("seconds", json!(args.seconds)),
            ("load_seconds", json!(load_seconds)),
            ("resident_bytes_loading", json!(loading)),
            ("resident_bytes_reading", json!(reading)),
            ("resident_bytes_peak", json!(peak)),
            ("resident_to_budget", json!(ratio)),
        ],
    );
    let mut records = report::records(&system.name, "memory", &params, &outcome);
    records.pop(); // the one kind is the total
    println!("{}", report::table(&records, "interaction"));
    let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "budget {budget_text}, data {:.0} MB loaded in {load_seconds:.1} s; resident {:.0} MB loading, {:.0} MB reading, \
         peak {:.0} MB = {ratio:.2} of the budget",
        megabytes(table.bytes()),
        megabytes(loading),
        megabytes(reading),
        megabytes(peak),
    );
    args.output.write("Random reads, data beyond memory", &records, "interaction")?;
    let total = outcome.total();
    if total.errors_total() > 0 || total.committed == 0 {
        let first = outcome.first_error.as_deref().unwrap_or("none");
        return Err(Error::Violation(format!(
            "{} errors while reading; first: {first}",
            total.errors_total()
        )));
    }
    if ratio > ALLOWED {
        return Err(Error::Violation(format!(
            "THE BUDGET DOES NOT HOLD: resident {:.0} MB is {ratio:.2} of the budget, more than {ALLOWED}",
            megabytes(peak)
        )));
    }
    Ok(())
}
