//! `cognate-bench crash`: kill -9 under load, again and again, and judge what is left.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{OutputArgs, ServerArgs, parameters};
use crate::error::Result;
use crate::fault::crash::{self, CrashPlan, RoundResult};
use crate::fault::ledger::Ledger;
use crate::peer::System;
use crate::report::{self, LatencyMs, Record};

/// The arguments of the crash rounds.
#[derive(Clone, Debug, Args)]
pub struct CrashArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// How often the server is killed.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Clients under load.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(i32).range(1..=200))]
    clients: i32,
    /// Accounts; fewer mean more waiting for row locks.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(i32).range(2..=100_000))]
    accounts: i32,
    /// The longest time from the beginning of a round's load to the kill, in milliseconds.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(21..=60_000))]
    longest_ms: u64,
    /// Seed of the moments and the requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the rounds; the first violation ends them with an error.
pub async fn run(args: &CrashArgs) -> Result<()> {
    let plan = CrashPlan {
        rounds: args.rounds,
        clients: args.clients,
        accounts: args.accounts,
        longest: Duration::from_millis(args.longest_ms),
        seed: args.seed,
    };
    println!("seed {}", args.seed);
    let mut system = System::start_cognate(&args.server.cognate()).await?;
    crash::create(&system, &plan).await?;
    let mut ledgers: Vec<Ledger> = (1..=plan.clients).map(Ledger::new).collect();
    let head = ["round", "acknowledged", "in doubt", "of these committed", "entries", "restart s"];
    let mut rows = vec![head.map(str::to_owned)];
    let mut all = Vec::new();
    let bar = crate::progress::steps("kill -9 rounds", u64::from(plan.rounds));
    for number in 1..=plan.rounds {
        let result = crash::round(&mut system, &plan, number, &mut ledgers).await?;
        rows.push([
            number.to_string(),
            result.acknowledged.to_string(),
            result.in_doubt.to_string(),
            result.in_doubt_committed.to_string(),
            result.entries.to_string(),
            format!("{:.2}", result.restart_seconds),
        ]);
        all.push(result);
        bar.inc(1);
    }
    bar.finish_and_clear();
    println!("{}", report::align(&rows, 0));
    let acknowledged: u64 = all.iter().map(|round| round.acknowledged).sum();
    println!(
        "{} rounds: all {acknowledged} acknowledged transactions are there, nothing else is, balances and indexes agree",
        plan.rounds
    );
    let record = record(args, &system, &all);
    args.output.write("kill -9 under load", &[record], "clients")
}

fn record(args: &CrashArgs, system: &System, rounds: &[RoundResult]) -> Record {
    let sum = |of: fn(&RoundResult) -> u64| rounds.iter().map(of).sum::<u64>();
    let slowest = rounds.iter().map(|round| round.restart_seconds).fold(0.0, f64::max);
    let params = parameters(
        system,
        &[
            ("rounds", json!(args.rounds)),
            ("clients", json!(args.clients)),
            ("accounts", json!(args.accounts)),
            ("seed", json!(args.seed)),
            ("acknowledged", json!(sum(|round| round.acknowledged))),
            ("in_doubt", json!(sum(|round| round.in_doubt))),
            ("in_doubt_committed", json!(sum(|round| round.in_doubt_committed))),
            ("lost_or_extra", json!(0)),
            ("restart_s_max", json!(slowest)),
        ],
    );
    Record {
        system: system.name.clone(),
        workload: "crash".to_owned(),
        params,
        committed_per_s: 0.0,
        aborted_pct: 0.0,
        latency_ms: LatencyMs::default(),
    }
}
