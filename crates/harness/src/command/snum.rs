//! `cognate-bench snum`: workload sNuM on Cognate's ways to serializability and on PostgreSQL, in
//! turns.
//!
//! Without options it measures the rows of the project's goals that concern it, each with what it
//! must reach. With options of a load it measures that load on the systems named. With `--sweep` it
//! draws throughput and aborts over the number of clients. The systems of one load run in short
//! rounds in turns, so that a machine that grows slower meanwhile grows slower for all; rows named
//! `-fresh` start their servers anew for each round, so that methods are compared and not two
//! processes.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::oracle::{self, OracleArgs};
use super::snum_systems::{Measured, Program, SystemName, Systems};
use super::{OutputArgs, ServerArgs};
use crate::chart::{self, Curve, Panel};
use crate::checker::history::Abort;
use crate::error::{Error, Result};
use crate::median::{median_ratio, ratio_error};
use crate::report::{LatencyMs, Record, align, number};
use crate::workload::bookstore::Isolation;
use crate::workload::snum::Shape;

use SystemName::{Postgres, Pssi, Si, Ssi, Strict};

/// Servers are started so often for a row, at most: that takes longer than what is measured.
const STARTS_MAX: u32 = 10;

/// The arguments of sNuM.
#[derive(Clone, Debug, Args)]
pub struct SnumArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// N: rows that a transaction reads.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    reads: Option<u32>,
    /// M: rows of those that it updates.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100))]
    updates: Option<u32>,
    /// Percent of the keys that come from the hot set of 200 rows.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100))]
    hot: Option<u32>,
    /// Connections or embedded sessions.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=290))]
    clients: Option<u32>,
    /// Read-mostly: nine transactions in ten sum up a range of 1,000 rows.
    #[arg(long)]
    range_scan: bool,
    /// In this process instead of through the wire.
    #[arg(long)]
    embedded: bool,
    /// The isolation level of every transaction.
    #[arg(long, value_enum, default_value_t = Isolation::Serializable)]
    isolation: Isolation,
    /// Only these systems.
    #[arg(long, value_enum, value_delimiter = ',')]
    systems: Vec<SystemName>,
    /// Measured seconds of each system and load, cut into rounds.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Rounds, in which the systems take turns; ratios of rates are medians over them.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Rows of the table.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(2_000..=100_000_000))]
    rows: i64,
    /// Only these rows of the goals: uniform, strict, embedded, hot, aborts, scans, uniform-fresh,
    /// strict-fresh, needless.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    goals: Vec<String>,
    /// Measure with these numbers of clients and draw the curves into --curves.
    #[arg(long, value_name = "CLIENTS", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=290))]
    sweep: Vec<u32>,
    /// Where the curves of --sweep are drawn.
    #[arg(long, value_name = "FILE", default_value = "docs/results/snum-sweep.svg")]
    curves: PathBuf,
    /// Seed of the keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What of two systems is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compared {
    /// Committed a second: at least.
    Rate,
    /// Aborts by the certifier in percent of all attempts: at most.
    CertifierAborts,
}

/// One row of the goals.
struct Goal {
    name: &'static str,
    what: &'static str,
    /// Reads, updates, percent hot, scans.
    load: (usize, usize, u32, bool),
    clients: usize,
    embedded: bool,
    /// On servers that are started for each round.
    fresh: bool,
    systems: &'static [SystemName],
    /// Of these two the ratio is taken.
    ratio: (SystemName, SystemName),
    compared: Compared,
    must: f64,
    /// The parameter that holds the ratio.
    parameter: &'static str,
}

const GOALS: &[Goal] = &[
    Goal {
        name: "uniform",
        what: "s3u1 uniform, 80 clients, wire",
        load: (3, 1, 0, false),
        clients: 80,
        embedded: false,
        fresh: false,
        systems: &[Pssi, Si],
        ratio: (Pssi, Si),
        compared: Compared::Rate,
        must: 0.95,
        parameter: "uniform_of_si",
    },
    Goal {
        name: "strict",
        what: "s3u1 uniform, 80 clients, wire, in the order of real time",
        load: (3, 1, 0, false),
        clients: 80,
        embedded: false,
        fresh: false,
        systems: &[Strict, Pssi],
        ratio: (Strict, Pssi),
        compared: Compared::Rate,
        must: 0.99,
        parameter: "strict_of_pssi",
    },
    Goal {
        name: "embedded",
        what: "s3u1 uniform, 80 clients, embedded",
        load: (3, 1, 0, false),
        clients: 80,
        embedded: true,
        fresh: false,
        systems: &[Pssi, Si],
        ratio: (Pssi, Si),
        compared: Compared::Rate,
        must: 0.95,
        parameter: "embedded_of_si",
    },
    Goal {
        name: "hot",
        what: "s3u1 hot, 80 clients, wire",
        load: (3, 1, 100, false),
        clients: 80,
        embedded: false,
        fresh: false,
        systems: &[Pssi, Postgres],
        ratio: (Pssi, Postgres),
        compared: Compared::Rate,
        must: 2.0,
        parameter: "hot_of_postgres",
    },
    Goal {
        name: "aborts",
        what: "s5u1 hot, 40 clients, wire: certifier's aborts",
        load: (5, 1, 100, false),
        clients: 40,
        embedded: false,
        fresh: false,
        systems: &[Pssi, Ssi, Si],
        ratio: (Pssi, Ssi),
        compared: Compared::CertifierAborts,
        must: 0.6,
        parameter: "certifier_aborts_of_ssi",
    },
    Goal {
        name: "scans",
        what: "read-mostly, ranges of 1,000 rows, 20 clients, wire",
        load: (3, 1, 0, true),
        clients: 20,
        embedded: false,
        fresh: false,
        systems: &[Pssi, Si],
        ratio: (Pssi, Si),
        compared: Compared::Rate,
        must: 0.9,
        parameter: "scans_of_si",
    },
    Goal {
        name: "uniform-fresh",
        what: "s3u1 uniform, 80 clients, wire, servers started for each round",
        load: (3, 1, 0, false),
        clients: 80,
        embedded: false,
        fresh: true,
        systems: &[Pssi, Si],
        ratio: (Pssi, Si),
        compared: Compared::Rate,
        must: 0.95,
        parameter: "uniform_of_si_fresh",
    },
    Goal {
        name: "strict-fresh",
        what: "s3u1 uniform, 80 clients, wire, in real time, servers started for each round",
        load: (3, 1, 0, false),
        clients: 80,
        embedded: false,
        fresh: true,
        systems: &[Strict, Pssi],
        ratio: (Strict, Pssi),
        compared: Compared::Rate,
        must: 0.99,
        parameter: "strict_of_pssi_fresh",
    },
];

impl Goal {
    fn ratio(&self, measured: &[(SystemName, Measured)]) -> Option<f64> {
        let of = |system: SystemName| {
            let (_, measured) = measured.iter().find(|(name, _)| *name == system)?;
            Some(measured)
        };
        let (above, below) = (of(self.ratio.0)?, of(self.ratio.1)?);
        match self.compared {
            Compared::Rate => {
                Some(median_ratio(&above.rounds, &below.rounds)).filter(|ratio| ratio.is_finite())
            }
            Compared::CertifierAborts => {
                let pct = |of: &Measured| of.counts.reason_pct(Abort::Certifier);
                (pct(below) > 0.0).then(|| pct(above) / pct(below))
            }
        }
    }

    /// The standard error of the mean of the rounds' ratios; of rates only.
    fn error(&self, measured: &[(SystemName, Measured)]) -> Option<f64> {
        let rounds = |system: SystemName| {
            measured.iter().find(|(name, _)| *name == system).map(|(_, measured)| &measured.rounds)
        };
        let error = ratio_error(rounds(self.ratio.0)?, rounds(self.ratio.1)?);
        (self.compared == Compared::Rate && error.is_finite()).then_some(error)
    }

    fn tell(&self, ratio: Option<f64>, error: Option<f64>) -> String {
        let (above, below) = (self.ratio.0.name(), self.ratio.1.name());
        let (sign, holds) = match self.compared {
            Compared::Rate => ("≥", ratio.map(|ratio| ratio >= self.must)),
            Compared::CertifierAborts => ("≤", ratio.map(|ratio| ratio <= self.must)),
        };
        let measured = ratio.map_or("not measured".to_owned(), |ratio| format!("{ratio:.3}"));
        let error = error.map_or(String::new(), |error| format!(", standard error {error:.3}"));
        let holds = match holds {
            Some(true) => ": holds",
            Some(false) => ": DOES NOT HOLD",
            None => "",
        };
        format!("{}: {above} / {below}: {measured}{error} (must {sign} {}){holds}", self.what, self.must)
    }
}

/// Runs the benchmark.
pub async fn run(args: &SnumArgs) -> Result<()> {
    let known = |name: &String| name == "needless" || GOALS.iter().any(|goal| goal.name == name);
    if let Some(unknown) = args.goals.iter().find(|name| !known(name)) {
        let names: Vec<&str> = GOALS.iter().map(|goal| goal.name).collect();
        return Err(Error::Usage(format!("--goals {unknown}: there are {}, needless", names.join(", "))));
    }
    let mut systems = Systems::new(&args.server, args.rows, args.isolation);
    let mut records = Vec::new();
    if !args.sweep.is_empty() {
        sweep(args, &mut systems, &mut records).await?;
    } else if args.is_one_load() {
        let program = args.program(args.clients.unwrap_or(80) as usize);
        let measured = systems.measure(&args.chosen(&SystemName::ALL), &program).await?;
        records.extend(
            measured.iter().map(|(system, measured)| record(args, "load", *system, &program, measured)),
        );
    } else {
        goals(args, &mut systems, &mut records).await?;
    }
    println!("{}", table(&records));
    args.output.write("sNuM", &records, "case")
}

impl SnumArgs {
    fn is_one_load(&self) -> bool {
        self.goals.is_empty()
            && (self.range_scan
                || self.embedded
                || [self.reads, self.updates, self.hot, self.clients].iter().any(Option::is_some))
    }

    fn chosen(&self, from: &[SystemName]) -> Vec<SystemName> {
        let chosen = from.iter().filter(|system| self.systems.is_empty() || self.systems.contains(system));
        chosen.copied().collect()
    }

    fn program(&self, clients: usize) -> Program {
        let reads = self.reads.unwrap_or(3) as usize;
        let load = (reads, self.updates.unwrap_or(1) as usize, self.hot.unwrap_or(0), self.range_scan);
        self.program_of(load, clients, self.embedded)
    }

    fn program_of(&self, load: (usize, usize, u32, bool), clients: usize, embedded: bool) -> Program {
        let (reads, updates, hot_pct, scans) = load;
        let updates = updates.min(reads);
        let shape = Shape { rows: self.rows, hot_rows: 200, hot_pct, reads, updates, scans, seed: self.seed };
        Program { shape, clients, embedded, seconds: self.seconds, rounds: self.rounds }
    }
}

async fn goals(args: &SnumArgs, systems: &mut Systems, records: &mut Vec<Record>) -> Result<()> {
    let wanted = |name: &str| args.goals.is_empty() || args.goals.iter().any(|goal| goal == name);
    let mut told = Vec::new();
    for goal in GOALS.iter().filter(|goal| wanted(goal.name)) {
        let program = args.program_of(goal.load, goal.clients, goal.embedded);
        let program = if goal.fresh { program.of_starts(STARTS_MAX) } else { program };
        let chosen = args.chosen(goal.systems);
        let measured = match goal.fresh {
            true => Box::pin(systems.measure_fresh(&chosen, &program)).await?,
            false => systems.measure(&chosen, &program).await?,
        };
        let (ratio, error) = (goal.ratio(&measured), goal.error(&measured));
        for (system, measured) in &measured {
            let mut record = record(args, goal.what, *system, &program, measured);
            if let (true, Some(ratio)) = (*system == goal.ratio.0, ratio) {
                record.measured(goal.parameter, ratio, error.unwrap_or(f64::NAN));
            }
            records.push(record);
        }
        told.push(goal.tell(ratio, error));
    }
    if wanted("needless") {
        let record = oracle::measure(&OracleArgs::of(&args.server, args.seconds)).await?;
        let needless = record.params.get("needless").and_then(Value::as_u64).unwrap_or(0);
        told.push(format!(
            "needless aborts by the oracle: {needless} (must be 0){}",
            if needless == 0 { ": holds" } else { ": DOES NOT HOLD" }
        ));
        records.push(record);
    }
    println!("{}\n", told.join("\n"));
    Ok(())
}

async fn sweep(args: &SnumArgs, systems: &mut Systems, records: &mut Vec<Record>) -> Result<()> {
    let chosen = args.chosen(&SystemName::ALL);
    let curves = || -> Vec<Curve> {
        chosen.iter().map(|system| Curve { name: system.name().to_owned(), points: Vec::new() }).collect()
    };
    let (mut rates, mut aborts) = (curves(), curves());
    for &clients in &args.sweep {
        let program = args.program(clients as usize);
        for (index, (system, measured)) in systems.measure(&chosen, &program).await?.iter().enumerate() {
            let x = f64::from(clients);
            rates[index].points.push((x, measured.committed_per_s()));
            aborts[index].points.push((x, measured.counts.aborted_pct()));
            records.push(record(args, &format!("{clients} clients"), *system, &program, measured));
        }
    }
    let shape = args.program(1).shape;
    let title = format!(
        "s{}u{}, {} % of the keys hot, {}",
        shape.reads,
        shape.updates,
        shape.hot_pct,
        if args.embedded { "embedded" } else { "through the wire" }
    );
    let panels = [
        Panel { title: "committed/s".to_owned(), curves: rates },
        Panel { title: "aborted, % of attempts".to_owned(), curves: aborts },
    ];
    chart::write(&args.curves, &title, "clients", &panels)?;
    eprintln!("wrote {}", args.curves.display());
    Ok(())
}

fn record(args: &SnumArgs, case: &str, system: SystemName, program: &Program, measured: &Measured) -> Record {
    let shape = program.shape;
    let mut params = serde_json::Map::new();
    let mut set = |name: &str, value: Value| params.insert(name.to_owned(), value);
    set("case", json!(case));
    set("reads", json!(shape.reads));
    set("updates", json!(shape.updates));
    set("hot_pct", json!(shape.hot_pct));
    set("range_scans", json!(shape.scans));
    set("rows", json!(shape.rows));
    set("clients", json!(program.clients));
    set("embedded", json!(program.embedded));
    set("isolation", json!(args.isolation.name()));
    set("seconds", json!(program.seconds));
    set("rounds", json!(program.rounds));
    let rates: Vec<f64> = measured.rounds.iter().map(|rate| rate.round()).collect();
    set("per_s_of_rounds", json!(rates));
    for (name, reason) in [
        ("certifier_pct", Abort::Certifier),
        ("first_updater_pct", Abort::FirstUpdater),
        ("deadlock_pct", Abort::Deadlock),
    ] {
        set(name, json!(measured.counts.reason_pct(reason)));
    }
    if !measured.counts.errors.is_empty() {
        set("errors", json!(measured.counts.errors));
    }
    Record {
        system: system.label().to_owned(),
        workload: "snum".to_owned(),
        params,
        committed_per_s: measured.committed_per_s(),
        aborted_pct: measured.counts.aborted_pct(),
        latency_ms: LatencyMs::from_micros(&measured.counts.latency),
    }
}

fn table(records: &[Record]) -> String {
    let head = [
        "case",
        "system",
        "committed/s",
        "aborts %",
        "certifier %",
        "first updater %",
        "deadlock %",
        "p50 ms",
        "p99 ms",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for record in records {
        let pct = |name: &str| {
            let value = record.params.get(name).and_then(Value::as_f64);
            value.map_or(String::new(), |value| format!("{value:.2}"))
        };
        rows.push([
            record.param("case").to_owned(),
            record.system.clone(),
            number(record.committed_per_s),
            format!("{:.2}", record.aborted_pct),
            pct("certifier_pct"),
            pct("first_updater_pct"),
            pct("deadlock_pct"),
            number(record.latency_ms.p50),
            number(record.latency_ms.p99),
        ]);
    }
    align(&rows, 2)
}
