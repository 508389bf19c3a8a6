//! `cognate-bench bookstore`: the TPC-W bookstore, side by side.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{OutputArgs, SystemArgs, client_threads, parameters, turn_about};
use crate::driver::{self, Outcome, Plan};
use crate::error::{Error, Result};
use crate::peer::System;
use crate::report::{self, Record, TOTAL};
use crate::workload::bookstore::generator::{self, Scale};
use crate::workload::bookstore::invariants::{self, Acknowledged};
use crate::workload::bookstore::mix::{Interaction, Mix};
use crate::workload::bookstore::{Bookstore, Isolation};

/// The arguments of the bookstore.
#[derive(Clone, Debug, Args)]
pub struct BookstoreArgs {
    #[command(flatten)]
    systems: SystemArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Measured time on each system, in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Time before each measured window, in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=600))]
    warmup: u32,
    /// Emulated browsers at work, each with a connection.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=290))]
    clients: u32,
    /// Which of TPC-W's three mixes.
    #[arg(long, value_enum, default_value_t = Mix::Ordering)]
    mix: Mix,
    /// Books on offer.
    #[arg(long, default_value_t = 10_000)]
    items: i32,
    /// Size of the customer base in emulated browsers: 2,880 customers each, with addresses and
    /// orders.
    #[arg(long, default_value_t = 10)]
    browsers: i32,
    /// Isolation level of every transaction, on every system.
    #[arg(long, value_enum, default_value_t = Isolation::RepeatableRead)]
    isolation: Isolation,
    /// Rounds that the measured time is cut into; with a peer the systems take turns.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seed of all data and requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the benchmark.
pub async fn run(args: &BookstoreArgs) -> Result<()> {
    let scale = Scale::new(args.items, args.browsers, args.seed)?;
    let systems = args.systems.start().await?;
    for system in &systems {
        generator::load(system, &scale).await?;
    }
    let mut outcomes: Vec<Option<Outcome>> = vec![None; systems.len()];
    let mut rates = vec![Vec::new(); systems.len()];
    for round in 0..args.rounds {
        for index in turn_about(round, systems.len()) {
            let outcome = one_round(args, scale, &systems[index], round).await?;
            rates[index].push(outcome.committed_per_s());
            match &mut outcomes[index] {
                Some(all) => all.add(&outcome),
                none => *none = Some(outcome),
            }
        }
    }
    let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    finish(args, scale, &systems, &outcomes, &rates).await
}

async fn one_round(args: &BookstoreArgs, scale: Scale, system: &System, round: u32) -> Result<Outcome> {
    let plan = Plan {
        label: format!("{}: round {} of {}", system.name, round + 1, args.rounds),
        clients: args.clients as usize,
        threads: client_threads(),
        warmup: Duration::from_secs(u64::from(args.warmup)),
        measured: Duration::from_secs_f64(f64::from(args.seconds) / f64::from(args.rounds)),
    };
    let bookstore = Arc::new(Bookstore {
        system: system.name.clone(),
        config: system.config().clone(),
        scale,
        mix: args.mix,
        isolation: args.isolation,
        round: u64::from(round),
    });
    driver::run(bookstore, &plan).await
}

async fn finish(
    args: &BookstoreArgs,
    scale: Scale,
    systems: &[System],
    outcomes: &[Outcome],
    rates: &[Vec<f64>],
) -> Result<()> {
    let mut records = Vec::new();
    for ((system, outcome), rates) in systems.iter().zip(outcomes).zip(rates) {
        records.extend(system_records(args, system, outcome));
        if let Some(total) = records.last_mut() {
            total.params.insert("per_s_of_rounds".to_owned(), json!(rates));
        }
    }
    println!("{}", report::table(&records, "interaction"));
    print_errors(systems, outcomes);
    if let [first, second] = systems {
        print_ratios(&records, &first.name, &second.name);
    }
    let title = format!("TPC-W bookstore, {} mix, {} clients", args.mix.name(), args.clients);
    args.output.write(&title, &records, "interaction")?;
    let mut unsound = Vec::new();
    for (system, outcome) in systems.iter().zip(outcomes) {
        match invariants::verify(system, &scale, Some(&acknowledged(outcome))).await {
            Ok(contents) => println!(
                "{}: sound: stock of {} items, {} orders with lines and payments, {} carts",
                system.name,
                contents.stock.len(),
                contents.orders.len(),
                contents.carts.len()
            ),
            Err(error) => unsound.push(error.to_string()),
        }
    }
    if !unsound.is_empty() {
        return Err(Error::Violation(unsound.join("\n")));
    }
    // A load that fails is no measurement, however fast it failed.
    for (system, outcome) in systems.iter().zip(outcomes) {
        let total = outcome.total();
        if total.committed == 0 || total.errors_total() > 0 {
            return Err(Error::Violation(format!(
                "{}: {} committed, {} errors; first: {}",
                system.name,
                total.committed,
                total.errors_total(),
                outcome.first_error.as_deref().unwrap_or("none")
            )));
        }
    }
    Ok(())
}

fn acknowledged(outcome: &Outcome) -> Acknowledged {
    let counts = &outcome.counts[Interaction::BuyConfirm as usize];
    Acknowledged { orders: counts.acknowledged, unknown_orders: counts.unknown }
}

fn system_records(args: &BookstoreArgs, system: &System, outcome: &Outcome) -> Vec<Record> {
    let params = parameters(
        system,
        &[
            ("mix", json!(args.mix.name())),
            ("clients", json!(args.clients)),
            ("seconds", json!(args.seconds)),
            ("rounds", json!(args.rounds)),
            ("items", json!(args.items)),
            ("browsers", json!(args.browsers)),
            ("isolation", json!(args.isolation.name())),
            ("seed", json!(args.seed)),
        ],
    );
    report::records(&system.name, "bookstore", &params, outcome)
}

fn print_errors(systems: &[System], outcomes: &[Outcome]) {
    for (system, outcome) in systems.iter().zip(outcomes) {
        for (kind, counts) in outcome.kinds.iter().zip(&outcome.counts) {
            for (state, n) in &counts.errors {
                println!("{}: {kind}: {n} errors {state}", system.name);
            }
        }
        if let Some(error) = &outcome.first_error {
            println!("{}: first error: {error}", system.name);
        }
    }
}

fn print_ratios(records: &[Record], first: &str, second: &str) {
    for (row, ratio) in report::ratios(records, "interaction", first, second) {
        if row == TOTAL {
            println!("ratio {first} / {second}, committed/s: {ratio:.2}");
        }
    }
    let of = |system: &str| {
        records.iter().find(|record| record.system == system && record.param("interaction") == TOTAL)
    };
    if let (Some(mine), Some(theirs)) = (of(first), of(second)) {
        let ratio = mine.latency_ms.p95 / theirs.latency_ms.p95;
        println!("ratio {first} / {second}, p95 latency: {ratio:.2}\n");
    }
}
