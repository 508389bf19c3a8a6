//! `cognate-bench pgbench`: stock pgbench against each system in turns; medians and ratios.
//!
//! Beside tpcb-like Cognate runs it once more with `cognate.durable_reads`, in the same turns: what
//! it costs that rows shown inside an open block are durable, too.

use clap::Args;
use serde_json::json;

use super::{OutputArgs, SystemArgs, client_threads, parameters, turn_about};
use crate::error::{Error, Result};
use crate::median::{median_ratio, ratio_error};
use crate::peer::System;
use crate::report::{self, Record};
use crate::workload::bookstore::Isolation;
use crate::workload::pgbench::{self, Measured, SCRIPTS, Script, Settings};

/// The arguments of pgbench.
#[derive(Clone, Debug, Args)]
pub struct PgbenchArgs {
    #[command(flatten)]
    systems: SystemArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Branches; each has 100,000 accounts.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    scale: u32,
    /// Length of one run, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Connections.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=290))]
    clients: u32,
    /// Runs of each script on each system, in turns; the median run is reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Which built-in scripts; all three if not given.
    #[arg(long = "script", value_enum)]
    scripts: Vec<Script>,
    /// The sessions' default isolation level; pgbench itself asks for none. READ COMMITTED is what
    /// its scripts were made for; above it, conflicts on the hot rows are retried.
    #[arg(long, value_enum, default_value_t = Isolation::ReadCommitted)]
    isolation: Isolation,
}

/// Runs the benchmark.
pub async fn run(args: &PgbenchArgs) -> Result<()> {
    let settings = Settings {
        scale: args.scale,
        clients: args.clients,
        threads: (client_threads() as u32).min(args.clients),
        seconds: args.seconds,
        isolation: args.isolation,
        durable_reads: false,
    };
    let systems = args.systems.start().await?;
    for system in &systems {
        pgbench::initialize(system, &settings).await?;
    }
    let scripts = if args.scripts.is_empty() { SCRIPTS.to_vec() } else { args.scripts.clone() };
    let mut records = Vec::new();
    for script in scripts {
        let ways = ways(&systems, script, &settings);
        let runs = rounds(args, &ways, script).await?;
        for (way, measured) in ways.iter().zip(&runs) {
            let mut record = record(args, way, measured);
            let plain = ways.iter().position(|plain| plain.system.name == way.system.name);
            if let (true, Some(plain)) = (way.settings.durable_reads, plain) {
                let (with, without) = (rates(measured), rates(&runs[plain]));
                let (ratio, error) = (median_ratio(&with, &without), ratio_error(&with, &without));
                record.measured("durable_reads_of_plain", ratio, error);
            }
            records.push(record);
        }
    }
    println!("{}", report::table(&records, "script"));
    if let [first, second] = &systems[..] {
        for (script, ratio) in report::ratios(&records, "script", &first.name, &second.name) {
            println!("ratio {} / {}, {script}: {ratio:.2}", first.name, second.name);
        }
    }
    let title = format!("pgbench, prepared, {} clients, scale {}", args.clients, args.scale);
    args.output.write(&title, &records, "script")?;
    for system in &systems {
        check(system).await?;
    }
    Ok(())
}

/// A row: how a script runs on a system.
struct Way<'a> {
    system: &'a System,
    settings: Settings,
    row: String,
}

fn ways<'a>(systems: &'a [System], script: Script, settings: &Settings) -> Vec<Way<'a>> {
    let row = script.name();
    let mut ways: Vec<Way<'a>> =
        systems.iter().map(|system| Way { system, settings: *settings, row: row.to_owned() }).collect();
    let ours = systems.iter().find(|system| system.name == "cognate");
    if let (Script::TpcbLike, Some(system)) = (script, ours) {
        let settings = Settings { durable_reads: true, ..*settings };
        ways.push(Way { system, settings, row: format!("{row}, durable reads") });
    }
    ways
}

fn rates(runs: &[Measured]) -> Vec<f64> {
    runs.iter().map(|run| run.tps).collect()
}

/// The runs of one script: for each way its measurements.
async fn rounds(args: &PgbenchArgs, ways: &[Way<'_>], script: Script) -> Result<Vec<Vec<Measured>>> {
    let mut runs = vec![Vec::new(); ways.len()];
    for round in 0..args.rounds {
        for index in turn_about(round, ways.len()) {
            let Way { system, settings, row } = &ways[index];
            let measured = pgbench::run(system, script, settings).await?;
            let tps = report::number(measured.tps);
            eprintln!("{}: {row} round {}: {tps} tps", system.name, round + 1);
            runs[index].push(measured);
        }
    }
    Ok(runs)
}

/// The median run, with the rates of all rounds as a parameter.
fn record(args: &PgbenchArgs, way: &Way<'_>, runs: &[Measured]) -> Record {
    let system = way.system;
    let mut sorted = runs.to_vec();
    sorted.sort_by(|a, b| a.tps.total_cmp(&b.tps));
    let median = sorted[sorted.len() / 2];
    let all = rates(runs);
    let params = parameters(
        system,
        &[
            ("script", json!(way.row)),
            ("protocol", json!("prepared")),
            ("clients", json!(args.clients)),
            ("scale", json!(args.scale)),
            ("seconds", json!(args.seconds)),
            ("isolation", json!(args.isolation.name())),
            ("tps_of_rounds", json!(all)),
        ],
    );
    Record {
        system: system.name.clone(),
        workload: "pgbench".to_owned(),
        params,
        committed_per_s: median.tps,
        aborted_pct: median.aborted_pct,
        latency_ms: median.latency,
    }
}

/// pgbench's own invariant: accounts, tellers and branches have received the same sums, and history
/// tells them too.
///
/// Simple-update leaves out tellers and branches, so these agree with each other, and accounts with
/// the history.
pub(super) async fn check(system: &System) -> Result<()> {
    use crate::error::DatabaseContext;
    let client = system.client().await?;
    let mut sums = Vec::new();
    for sql in [
        "SELECT COALESCE(SUM(abalance), 0)::bigint FROM pgbench_accounts",
        "SELECT COALESCE(SUM(delta), 0)::bigint FROM pgbench_history",
        "SELECT COALESCE(SUM(tbalance), 0)::bigint FROM pgbench_tellers",
        "SELECT COALESCE(SUM(bbalance), 0)::bigint FROM pgbench_branches",
    ] {
        let row = client.query_one(sql, &[]).await.at(&system.name, sql)?;
        sums.push(row.get::<_, i64>(0));
    }
    if sums[0] != sums[1] || sums[2] != sums[3] {
        return Err(Error::Violation(format!(
            "{}: THE BALANCES DO NOT AGREE: accounts {}, history {}, tellers {}, branches {}",
            system.name, sums[0], sums[1], sums[2], sums[3]
        )));
    }
    println!(
        "{}: sound: accounts and history sum to {}, tellers and branches to {}",
        system.name, sums[0], sums[2]
    );
    Ok(())
}
