//! `cognate-bench statements`: each statement of the bookstore on its own, side by side, one
//! connection.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{OutputArgs, SystemArgs, parameters};
use crate::error::Result;
use crate::report;
use crate::workload::bookstore::generator::{self, Scale};
use crate::workload::bookstore::statements;

/// The arguments of the statements.
#[derive(Clone, Debug, Args)]
pub struct StatementsArgs {
    #[command(flatten)]
    systems: SystemArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Time for each statement on each system, in milliseconds.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    each_ms: u64,
    /// Books on offer.
    #[arg(long, default_value_t = 10_000)]
    items: i32,
    /// Size of the customer base in emulated browsers.
    #[arg(long, default_value_t = 10)]
    browsers: i32,
    /// Only these statements.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Seed of the data and the arguments.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the measurement.
pub async fn run(args: &StatementsArgs) -> Result<()> {
    let scale = Scale::new(args.items, args.browsers, args.seed)?;
    let systems = args.systems.start().await?;
    let mut records = Vec::new();
    for system in &systems {
        generator::load(system, &scale).await?;
        let outcomes =
            statements::measure(system, &scale, Duration::from_millis(args.each_ms), &args.only).await?;
        for outcome in outcomes {
            let params =
                parameters(system, &[("items", json!(args.items)), ("browsers", json!(args.browsers))]);
            let mut both = report::records(&system.name, "statements", &params, &outcome);
            records.push(both.remove(0));
        }
    }
    println!("{}", report::table(&records, "interaction"));
    if let [first, second] = &systems[..] {
        for (statement, ratio) in report::ratios(&records, "interaction", &first.name, &second.name) {
            println!("ratio {} / {}, {statement}: {ratio:.2}", first.name, second.name);
        }
    }
    args.output.write("The bookstore's statements", &records, "interaction")
}
