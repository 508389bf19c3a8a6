//! `cognate-bench conflicts`: what serializability costs where transactions meet, and what its
//! aborts are.
//!
//! Each load runs at SERIALIZABLE by each of Cognate's methods and on PostgreSQL, and at READ
//! COMMITTED on both, in turns. The ratios that the project's goals name are medians over the
//! rounds. What a retry costs is in the throughput: pgbench and the bookstore try again until they
//! have committed; sNuM goes on with another transaction.
//!
//! The ratios of two of Cognate's methods are measured twice: on servers that run through all
//! rounds, and on such that are started for each (`snum_systems` says why).
//!
//! | file | what it holds |
//! |---|---|
//! | `load` | the loads, and one round of each |

mod load;

use clap::Args;
use serde_json::{Value, json};

use super::oracle::{self, OracleArgs};
use super::snum_systems::{FRESH_WARMUP, SystemName};
use super::{OutputArgs, ServerArgs, parameters, turn_about};
use crate::checker::history::Abort;
use crate::error::{Error, Result};
use crate::median::{median_ratio, ratio_error};
use crate::peer::System;
use crate::report::{self, Record};
use crate::workload::bookstore::Isolation;
use load::{LOADS, Load, Measured, WARMUP};

use Isolation::{ReadCommitted, Serializable};
use SystemName::{Postgres, Pssi, Si, Ssi, Strict};

/// How long transactions are recorded for the oracle.
const RECORDED_SECONDS: u32 = 5;

/// The arguments of conflicts.
#[derive(Clone, Debug, Args)]
pub struct ConflictsArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Only these loads: tpcb-1, tpcb-10, s3u1-uniform, s3u1-hot, s5u1-hot, bookstore.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    loads: Vec<String>,
    /// The systems.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "pssi,strict,ssi,si,postgres")]
    systems: Vec<SystemName>,
    /// Connections of sNuM and of the bookstore.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=290))]
    clients: u32,
    /// Connections of pgbench.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=290))]
    pgbench_clients: u32,
    /// Measured seconds of each system, level and load, cut into rounds of whole seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Rounds, in which the systems take turns.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// So often both servers of the ratios strict / PSSI are started anew; 0 leaves these rows out.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=99))]
    starts: u32,
    /// Rows of sNuM's table.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(2_000..=100_000_000))]
    rows: i64,
    /// Books of the bookstore.
    #[arg(long, default_value_t = 10_000)]
    items: i32,
    /// Size of its customer base in emulated browsers.
    #[arg(long, default_value_t = 10)]
    browsers: i32,
    /// Seed of the data and the transactions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A system and a level: one row of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    system: SystemName,
    isolation: Isolation,
}

impl Way {
    fn label(self) -> String {
        format!("{} at {}", self.system.label(), self.isolation.sql())
    }
}

/// What is measured. READ COMMITTED is the same by whatever method SERIALIZABLE is made.
const WAYS: [Way; 7] = [
    Way { system: Pssi, isolation: Serializable },
    Way { system: Strict, isolation: Serializable },
    Way { system: Ssi, isolation: Serializable },
    Way { system: Si, isolation: Serializable },
    Way { system: Pssi, isolation: ReadCommitted },
    Way { system: Postgres, isolation: Serializable },
    Way { system: Postgres, isolation: ReadCommitted },
];

/// What a goal takes of the measurements of a load: two ways, or one.
enum Figure {
    /// Committed a second, the first over the second.
    Rate(Way, Way),
    /// Aborted attempts, percentage points of the first above the second.
    Points(Way, Way),
    /// Aborted attempts in percent.
    Aborted(Way),
    /// The same of Buy Confirm.
    BuyConfirm(Way),
}

/// The figures that goals name: of which load, under which parameter.
const FIGURES: [(Load, &str, Figure); 12] = [
    (Load::Tpcb(1), "tpcb_of_read_committed", Figure::Rate(WAYS[0], WAYS[4])),
    (Load::Tpcb(1), "tpcb_of_postgres_default", Figure::Rate(WAYS[0], WAYS[6])),
    (Load::Tpcb(1), "tpcb_retried_pct", Figure::Aborted(WAYS[0])),
    (Load::Tpcb(10), "tpcb_10_of_read_committed", Figure::Rate(WAYS[0], WAYS[4])),
    (Load::Bookstore, "buy_confirm_aborted_pct", Figure::BuyConfirm(WAYS[0])),
    (Load::Bookstore, "bookstore_strict_of_pssi", Figure::Rate(WAYS[1], WAYS[0])),
    (Load::Bookstore, "bookstore_strict_points", Figure::Points(WAYS[1], WAYS[0])),
    (Load::Snum(3, 0), "s3u1_strict_of_pssi", Figure::Rate(WAYS[1], WAYS[0])),
    (Load::Snum(3, 0), "s3u1_strict_points", Figure::Points(WAYS[1], WAYS[0])),
    (Load::Snum(3, 100), "s3u1_hot_strict_of_pssi", Figure::Rate(WAYS[1], WAYS[0])),
    (Load::Snum(3, 100), "s3u1_hot_strict_points", Figure::Points(WAYS[1], WAYS[0])),
    (Load::Snum(3, 100), "s3u1_hot_aborted_pct", Figure::Aborted(WAYS[0])),
];

/// Of these loads the first ratio of rates is measured on fresh servers, too.
const FRESH: [(Load, &str); 3] = [
    (Load::Snum(3, 0), "s3u1_strict_of_pssi_fresh"),
    (Load::Snum(3, 100), "s3u1_hot_strict_of_pssi_fresh"),
    (Load::Bookstore, "bookstore_strict_of_pssi_fresh"),
];

impl Figure {
    /// The way in whose record it stands.
    fn of(&self) -> Way {
        match *self {
            Figure::Rate(way, _)
            | Figure::Points(way, _)
            | Figure::Aborted(way)
            | Figure::BuyConfirm(way) => way,
        }
    }

    /// Its value, and its standard error if there is one.
    fn value(&self, all: &[(Way, Measured)]) -> Option<(f64, f64)> {
        let of = |way: &Way| all.iter().find(|(known, _)| known == way).map(|(_, measured)| measured);
        match self {
            Figure::Rate(above, below) => {
                let (above, below) = (&of(above)?.rates, &of(below)?.rates);
                Some((median_ratio(above, below), ratio_error(above, below)))
            }
            Figure::Points(above, below) => {
                Some((of(above)?.aborted_pct() - of(below)?.aborted_pct(), f64::NAN))
            }
            Figure::Aborted(way) => Some((of(way)?.aborted_pct(), f64::NAN)),
            Figure::BuyConfirm(way) => Some((of(way)?.buy_confirm_aborted_pct()?, f64::NAN)),
        }
    }
}

/// Runs the benchmark.
pub async fn run(args: &ConflictsArgs) -> Result<()> {
    let known = |name: &&String| LOADS.iter().any(|(load, _)| load == name);
    if let Some(unknown) = args.loads.iter().find(|name| !known(name)) {
        let names = LOADS.map(|(name, _)| name).join(", ");
        return Err(Error::Usage(format!("--loads {unknown}: there are {names}")));
    }
    let mut records = Vec::new();
    for (name, load) in LOADS {
        if args.loads.is_empty() || args.loads.iter().any(|wanted| wanted == name) {
            // Boxed, since futures of many systems within each other are large types.
            records.extend(Box::pin(one_load(args, load)).await?);
            let fresh = FRESH.iter().find(|(of, _)| *of == load && args.compares_strict());
            if let Some((_, name)) = fresh {
                records.extend(Box::pin(on_fresh_servers(args, load, name)).await?);
            }
            if load == Load::Snum(3, 100) && args.systems.contains(&Pssi) {
                records.push(Box::pin(recorded(args)).await?);
            }
        }
    }
    println!("{}", report::table(&records, "case"));
    args.output.write("Where transactions meet", &records, "case")
}

/// s3u1 on the hot rows once more, recorded for the oracle: which of its aborts were justified.
async fn recorded(args: &ConflictsArgs) -> Result<Record> {
    let seconds = args.seconds.min(RECORDED_SECONDS);
    let mut record = oracle::measure(&OracleArgs::s3u1(&args.server, seconds, args.clients)).await?;
    record.workload = "conflicts".to_owned();
    let needless = ["needless", "first_updater_needless"];
    let needless = needless.iter().filter_map(|name| record.params.get(*name).and_then(Value::as_u64));
    let needless: u64 = needless.sum();
    record.params.insert("s3u1_hot_needless".to_owned(), json!(needless));
    Ok(record)
}

async fn one_load(args: &ConflictsArgs, load: Load) -> Result<Vec<Record>> {
    let ways: Vec<Way> = WAYS.into_iter().filter(|way| args.systems.contains(&way.system)).collect();
    let mut systems: Vec<(SystemName, System)> = Vec::new();
    for way in &ways {
        if !systems.iter().any(|(name, _)| *name == way.system) {
            let system = way.system.start(&args.server).await?;
            Box::pin(load.fill(&system, args)).await?;
            systems.push((way.system, system));
        }
    }
    let mut measured: Vec<(Way, Measured)> = ways.iter().map(|way| (*way, Measured::default())).collect();
    for round in 0..args.rounds {
        for index in turn_about(round, ways.len()) {
            let (way, sum) = &mut measured[index];
            let system = systems.iter().find(|(name, _)| *name == way.system).map(|(_, system)| system);
            let system = system.ok_or_else(|| Error::Missing(format!("{} was not started", way.label())))?;
            Box::pin(load.run(*way, system, args, round, WARMUP, sum)).await?;
            let rate = sum.rates.last().copied().unwrap_or_default();
            eprintln!("{}: {} round {}: {}/s", load.name(args), way.label(), round + 1, report::number(rate));
        }
    }
    for (name, system) in &systems {
        let ran: Vec<&Measured> =
            measured.iter().filter(|(way, _)| way.system == *name).map(|(_, sum)| sum).collect();
        Box::pin(load.check(system, args, &ran)).await?;
    }
    let version = |way: Way| systems.iter().find(|(name, _)| *name == way.system).map(|(_, system)| system);
    let records =
        measured.iter().filter_map(|(way, sum)| Some(record(args, load, *way, version(*way)?, sum)));
    let mut records: Vec<Record> = records.collect();
    for (_, name, figure) in FIGURES.iter().filter(|(of, ..)| *of == load) {
        let place = measured.iter().position(|(way, _)| *way == figure.of());
        if let (Some(place), Some((value, error))) = (place, figure.value(&measured)) {
            println!("{}: {name} {value:.3}", load.name(args));
            records[place].measured(name, value, error);
        }
    }
    Ok(records)
}

impl ConflictsArgs {
    /// Whether both servers of the ratios strict / PSSI are to be started anew.
    fn compares_strict(&self) -> bool {
        self.starts > 0 && [Strict, Pssi].iter().all(|system| self.systems.contains(system))
    }
}

/// Strict and PSSI on servers that are started, filled and checked for each round.
async fn on_fresh_servers(args: &ConflictsArgs, load: Load, name: &str) -> Result<Vec<Record>> {
    let mut measured = [WAYS[1], WAYS[0]].map(|way| (way, Measured::default()));
    let mut systems: Vec<(usize, System)> = Vec::new();
    for round in 0..args.starts {
        systems.clear();
        for index in turn_about(round, 2) {
            let system = measured[index].0.system.start(&args.server).await?;
            Box::pin(load.fill(&system, args)).await?;
            systems.push((index, system));
        }
        // Who was started first is not always measured first.
        systems.sort_by_key(|(index, _)| *index);
        if round / 2 % 2 == 1 {
            systems.reverse();
        }
        for (index, system) in &systems {
            let (way, sum) = &mut measured[*index];
            let mut ran = Measured::default();
            Box::pin(load.run(*way, system, args, round, FRESH_WARMUP, &mut ran)).await?;
            Box::pin(load.check(system, args, &[&ran])).await?;
            sum.join(ran);
            let rate = report::number(sum.rates.last().copied().unwrap_or_default());
            eprintln!("{}: {} start {}: {rate}/s", load.name(args), way.label(), round + 1);
        }
    }
    let mut records = Vec::new();
    for (index, (way, sum)) in measured.iter().enumerate() {
        let Some((_, system)) = systems.iter().find(|(of, _)| *of == index) else { continue };
        let mut record = record(args, load, *way, system, sum);
        let case = format!("{}, servers started for each round", load.name(args));
        let seconds = args.seconds_of_round() * args.starts;
        for (name, value) in
            [("case", json!(case)), ("rounds", json!(args.starts)), ("seconds", json!(seconds))]
        {
            record.params.insert(name.to_owned(), value);
        }
        records.push(record);
    }
    let (above, below) = (&measured[0].1.rates, &measured[1].1.rates);
    let (ratio, error) = (median_ratio(above, below), ratio_error(above, below));
    println!("{}: {name} {ratio:.3} ± {error:.3}", load.name(args));
    if let Some(record) = records.first_mut() {
        record.measured(name, ratio, error);
    }
    Ok(records)
}

fn record(args: &ConflictsArgs, load: Load, way: Way, system: &System, measured: &Measured) -> Record {
    let rates: Vec<f64> = measured.rates.iter().map(|rate| rate.round()).collect();
    let mut params = parameters(
        system,
        &[
            ("case", json!(load.name(args))),
            ("clients", json!(load.clients(args))),
            ("seconds", json!(args.seconds_of_round() * args.rounds)),
            ("rounds", json!(args.rounds)),
            ("isolation", json!(way.isolation.name())),
            ("per_s_of_rounds", json!(rates)),
            ("seed", json!(args.seed)),
        ],
    );
    let mut set = |name: &str, value: Value| params.insert(name.to_owned(), value);
    match load {
        Load::Tpcb(scale) => drop(set("scale", json!(scale))),
        Load::Snum(..) => drop(set("rows", json!(args.rows))),
        Load::Bookstore => {
            set("items", json!(args.items));
            set("browsers", json!(args.browsers));
            set("buy_confirm_pct", json!(measured.buy_confirm_aborted_pct()));
        }
    }
    if let Some(outcome) = &measured.outcome {
        let total = outcome.total();
        for (name, reason) in [
            ("certifier_pct", Abort::Certifier),
            ("first_updater_pct", Abort::FirstUpdater),
            ("deadlock_pct", Abort::Deadlock),
        ] {
            set(name, json!(total.reason_pct(reason)));
        }
    }
    Record {
        system: way.system.label().to_owned(),
        workload: "conflicts".to_owned(),
        params,
        committed_per_s: measured.per_s(),
        aborted_pct: measured.aborted_pct(),
        latency_ms: measured.latency(),
    }
}
