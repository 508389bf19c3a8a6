//! `cognate-bench mixed`: point reads with and without a long analytic query beside them.
//!
//! The point readers are few enough to leave the machine some room when they are alone; the
//! analytic query joins a table with itself and runs over and over on one connection of its own
//! while the readers are measured again. What matters is the readers' 99th percentile: nobody
//! should wait behind the analytic query. The systems take turns, forwards and backwards, and both
//! are at the same isolation level, whatever they have as their default. A read that is refused
//! ends the benchmark with an error, once all is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tokio_postgres::{Config, NoTls};

use super::{OutputArgs, SystemArgs, client_threads, parameters, turn_about};
use crate::driver::{self, Outcome, Plan};
use crate::error::{DatabaseContext, Error, Result};
use crate::peer::{self, System};
use crate::report::{self, Record};
use crate::workload::bookstore::Isolation;
use crate::workload::keyed::{Keyed, KeyedReads};

/// The arguments of the mixed load.
#[derive(Clone, Debug, Args)]
pub struct MixedArgs {
    #[command(flatten)]
    systems: SystemArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Rows that point reads choose from.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(1..=100_000_000))]
    rows: i64,
    /// Rows that the analytic query joins with each other.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(i32).range(1000..=100_000_000))]
    readings: i32,
    /// Length of each measured part, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Rounds, in each of which every system has both parts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Point reading clients.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=290))]
    clients: u32,
    /// The sessions' default isolation level, of both systems: each of them has another by itself.
    #[arg(long, value_enum, default_value_t = Isolation::Serializable)]
    isolation: Isolation,
    /// Seed of the data and the reads.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The readings of one device, on average; the join makes this many times the readings.
const PER_DEVICE: i32 = 200;

const ANALYTIC: &str = "SELECT a.device % 100 AS district, count(*) AS pairs, sum(a.value * b.value) AS product \
    FROM reading a JOIN reading b ON b.device = a.device WHERE a.value <> b.value \
    GROUP BY a.device % 100 ORDER BY product DESC";

/// Runs the benchmark.
pub async fn run(args: &MixedArgs) -> Result<()> {
    let systems = args.systems.start().await?;
    let table = Keyed { rows: args.rows, payload: 100, seed: args.seed };
    for system in &systems {
        table.load(system).await?;
        load_readings(system, args.readings).await?;
    }
    let mut measured: Vec<Measured> = systems.iter().map(|_| Measured::default()).collect();
    for round in 0..u64::from(args.rounds) {
        for index in turn_about(round, systems.len()) {
            let (system, measured) = (&systems[index], &mut measured[index]);
            measured.alone.add(point_reads(args, system, table, 2 * round).await?);
            let analytic = Analytic::start(system, args.isolation).await?;
            measured.beside.add(point_reads(args, system, table, 2 * round + 1).await?);
            measured.queries.extend(analytic.stop().await?);
        }
    }
    let mut records = Vec::new();
    for (system, Measured { alone, beside, queries }) in systems.iter().zip(&measured) {
        records.extend(record(args, system, "alone", alone, queries));
        records.extend(record(args, system, "beside an analytic query", beside, queries));
        println!(
            "{}: the analytic query ran {} times to its end in that time{}",
            system.name,
            queries.len(),
            queries
                .first()
                .map_or(String::new(), |first| format!(", the first in {:.1} s", first.as_secs_f64()))
        );
    }
    println!("{}", report::table(&records, "point reads"));
    for pair in records.chunks(2) {
        let ratio = pair[1].latency_ms.p99 / pair[0].latency_ms.p99;
        println!("{}: p99 beside / alone: {ratio:.2}", pair[0].system);
    }
    args.output.write("Point reads beside an analytic query", &records, "point reads")?;
    sound(&systems, &measured)
}

/// Reads that are refused are no reads, however many of them a second.
fn sound(systems: &[System], measured: &[Measured]) -> Result<()> {
    for (system, Measured { alone, beside, .. }) in systems.iter().zip(measured) {
        for all in [alone, beside].iter().filter_map(|part| part.all.as_ref()) {
            let errors = all.total().errors_total();
            if errors > 0 {
                let first = all.first_error.as_deref().unwrap_or("none");
                let text = format!("{}: {errors} reads failed; first: {first}", system.name);
                return Err(Error::Violation(text));
            }
        }
    }
    Ok(())
}

/// What was measured of one system.
#[derive(Default)]
struct Measured {
    alone: Part,
    beside: Part,
    /// How long each analytic query took that came to its end.
    queries: Vec<Duration>,
}

/// Rounds of one part: all together, and what each had a second.
#[derive(Default)]
struct Part {
    all: Option<Outcome>,
    rates: Vec<f64>,
}

impl Part {
    fn add(&mut self, round: Outcome) {
        self.rates.push(round.total().committed as f64 / round.seconds.max(f64::MIN_POSITIVE));
        match &mut self.all {
            Some(all) => all.add(&round),
            None => self.all = Some(round),
        }
    }
}

/// How to connect so that each transaction is at the level that is measured.
fn at_level(system: &System, isolation: Isolation) -> Config {
    let mut config = system.config().clone();
    let level = isolation.sql().to_lowercase().replace(' ', "\\ ");
    config.options(format!("-c default_transaction_isolation={level}"));
    config
}

async fn load_readings(system: &System, readings: i32) -> Result<()> {
    let client = system.client().await?;
    let devices = (readings / PER_DEVICE).max(1);
    let mut statements = vec![
        "DROP TABLE IF EXISTS reading".to_owned(),
        "CREATE TABLE reading (id integer PRIMARY KEY, device integer NOT NULL, value double precision NOT NULL)"
            .to_owned(),
    ];
    let step = 10_000;
    for first in (1..=readings).step_by(step) {
        let last = readings.min(first + step as i32 - 1);
        let rows: Vec<String> = (first..=last)
            .map(|id| format!("({id}, {}, {})", id % devices, (i64::from(id) * 7919 % 10_007) as f64 / 8.0))
            .collect();
        statements.push(format!("INSERT INTO reading (id, device, value) VALUES {}", rows.join(", ")));
    }
    statements.push("VACUUM ANALYZE".to_owned());
    system.execute_each(&client, &statements).await
}

async fn point_reads(args: &MixedArgs, system: &System, table: Keyed, round: u64) -> Result<Outcome> {
    let reads =
        KeyedReads { system: system.name.clone(), config: at_level(system, args.isolation), table, round };
    let what = if round.is_multiple_of(2) { "point reads alone" } else { "point reads beside analytics" };
    let plan = Plan {
        label: format!("{}: {what}", system.name),
        clients: args.clients as usize,
        threads: client_threads(),
        warmup: Duration::from_secs(1),
        measured: Duration::from_secs(u64::from(args.seconds)),
    };
    driver::run(Arc::new(reads), &plan).await
}

/// The analytic query, over and over on a connection of its own.
struct Analytic {
    stop: Arc<AtomicBool>,
    cancel: tokio_postgres::CancelToken,
    task: tokio::task::JoinHandle<Result<Vec<Duration>>>,
}

impl Analytic {
    async fn start(system: &System, isolation: Isolation) -> Result<Analytic> {
        let name = system.name.clone();
        let client = peer::connect(&at_level(system, isolation)).await.at(&name, "connecting")?;
        // Fails here, and not silently, where a system cannot run the query at all.
        client.prepare(ANALYTIC).await.at(&name, "preparing the analytic query")?;
        let cancel = client.cancel_token();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut runs = Vec::new();
            while !stopped.load(Ordering::Acquire) {
                let started = Instant::now();
                match client.query(ANALYTIC, &[]).await {
                    Ok(_) => runs.push(started.elapsed()),
                    Err(_) if stopped.load(Ordering::Acquire) => {}
                    Err(error) => return Err(error).at(&name, "running the analytic query"),
                }
            }
            Ok(runs)
        });
        Ok(Analytic { stop, cancel, task })
    }

    /// Cancels the query and returns how long each complete run took.
    async fn stop(self) -> Result<Vec<Duration>> {
        self.stop.store(true, Ordering::Release);
        let _ = self.cancel.cancel_query(NoTls).await;
        match tokio::time::timeout(Duration::from_secs(60), self.task).await {
            Ok(Ok(runs)) => runs,
            Ok(Err(panic)) => Err(Error::Server(format!("the analytic client failed: {panic}"))),
            Err(_) => Err(Error::Timeout("the analytic query did not stop when cancelled".to_owned())),
        }
    }
}

fn record(
    args: &MixedArgs,
    system: &System,
    what: &str,
    part: &Part,
    queries: &[Duration],
) -> Option<Record> {
    let params = parameters(
        system,
        &[
            ("isolation", json!(args.isolation.name())),
            ("rows", json!(args.rows)),
            ("readings", json!(args.readings)),
            ("clients", json!(args.clients)),
            ("seconds", json!(args.seconds)),
            ("rounds", json!(args.rounds)),
            ("per_s_of_rounds", json!(part.rates)),
            ("analytic_queries", json!(queries.len())),
        ],
    );
    let mut records = report::records(&system.name, "mixed", &params, part.all.as_ref()?);
    let mut record = records.swap_remove(0);
    record.params.insert("point reads".to_owned(), json!(what));
    Some(record)
}
