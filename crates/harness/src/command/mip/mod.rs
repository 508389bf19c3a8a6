//! `cognate-bench mip`: what sibling transactions cost and what they save, as in the evaluation of
//! their paper (DSN 2008, §4).
//!
//! | row | what is compared |
//! |---|---|
//! | `latency` | a request as MIP transaction, with PREPARE TRANSACTION, and with a plain COMMIT, over the number of clients |
//! | `failover` | requests a second with and without a first sibling that is left prepared |
//! | `storage` | bytes of a table filled by MIP transactions and by plain ones |
//! | `retry` | the time to an answer when the first instance is prepared and its server dead |
//! | `crowd` | purchases of hot items before and after a server dies between PREPARE and COMMIT |
//! | `pairs` | PREPARE TRANSACTION and COMMIT PREPARED against PostgreSQL's |
//! | `lookup` | finding a family among a few and among a million |
//!
//! What is compared takes turns in short rounds on one server, in an order that changes; ratios are
//! medians over the rounds.

mod crowd;
mod failover;
mod latency;
mod lookup;
mod pairs;
mod retry;
mod storage;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use super::{OutputArgs, Peer, ServerArgs, client_threads, parameters};
use crate::chart::{self, Panel};
use crate::driver::{self, Outcome, Plan};
use crate::error::{Error, Result};
use crate::median::{median, median_ratio};
use crate::peer::System;
use crate::report::{self, LatencyMs, Record, align, number};
use crate::workload::bookstore::Isolation;
use crate::workload::bookstore::generator::{self, Scale};
use crate::workload::mip::profile::Profile;
use crate::workload::mip::requests::Requests;
use crate::workload::mip::site::Way;

/// The arguments of the MIP benchmark.
#[derive(Clone, Debug, Args)]
pub struct MipArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Run the crowd and the pairs on this system too; without it the pairs are not compared.
    #[arg(long, value_name = "SYSTEM")]
    peer: Option<Peer>,
    /// Only these rows of the goals: latency, failover, storage, retry, crowd, pairs, lookup.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    goals: Vec<String>,
    /// Numbers of clients of the load curves.
    #[arg(long, value_delimiter = ',', default_value = "1,2,5,10,25,50", value_parser = clap::value_parser!(u32).range(1..=250))]
    clients: Vec<u32>,
    /// Rounds, in which what is compared takes turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Length of each measured part, in milliseconds.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(50..=600_000))]
    milliseconds: u32,
    /// Isolation level of the bookstore's transactions.
    #[arg(long, value_enum, default_value_t = Isolation::Serializable)]
    isolation: Isolation,
    /// Books on offer.
    #[arg(long, default_value_t = 10_000)]
    items: i32,
    /// Size of the customer base in emulated browsers: 2,880 customers each, with addresses and
    /// orders.
    #[arg(long, default_value_t = 10)]
    browsers: i32,
    /// First siblings that are prepared ahead for each of 25 clients.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    ahead: u32,
    /// Requests of the retry, each once plain and once retried.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    retries: u32,
    /// Rows of the table whose storage is compared.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    rows: u32,
    /// Forgotten families of the lookup; a tenth as many are live.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(10_000..=100_000_000))]
    families: u32,
    /// Seed of data and requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the load curves into this SVG file.
    #[arg(long, value_name = "FILE")]
    curves: Option<PathBuf>,
}

/// One row of the goals.
struct Goal {
    row: &'static str,
    what: &'static str,
    at_most: bool,
    must: f64,
    unit: &'static str,
    /// The parameter of a record that holds the value.
    parameter: &'static str,
}

const fn at_most(
    row: &'static str,
    what: &'static str,
    must: f64,
    unit: &'static str,
    parameter: &'static str,
) -> Goal {
    Goal { row, what, at_most: true, must, unit, parameter }
}

const GOALS: &[Goal] = &[
    at_most("latency", "Buy Confirm, MIP / two-phase: mean latency over the curve", 1.02, "×", latency::BC),
    at_most("latency", "Admin Confirm, MIP / two-phase: mean latency over the curve", 1.02, "×", latency::AC),
    at_most(
        "failover",
        "Buy Confirm, a first sibling left prepared by every request: requests a second lost",
        20.0,
        "%",
        failover::BC,
    ),
    at_most(
        "failover",
        "Admin Confirm, a first sibling left prepared by every request: requests a second lost",
        15.0,
        "%",
        failover::AC,
    ),
    at_most("storage", "bytes a row that MIP transactions cost", 0.0, "bytes", storage::BYTES),
    at_most("retry", "retry of a prepared request whose server is dead / a request", 2.0, "×", retry::RATIO),
    Goal {
        row: "crowd",
        what: "25 clients, ten hot items, one in doubt: third second / before",
        at_most: false,
        must: 0.9,
        unit: "×",
        parameter: crowd::RATIO,
    },
    Goal {
        row: "pairs",
        what: "PREPARE TRANSACTION and COMMIT PREPARED, 16 clients: Cognate / PostgreSQL",
        at_most: false,
        must: 2.0,
        unit: "×",
        parameter: pairs::RATIO,
    },
    at_most("lookup", "SHOW MIPT among a million forgotten ones / among a few", 1.1, "×", lookup::SHOW),
    at_most("lookup", "a fresh BEGIN among a million forgotten ones / among a few", 1.1, "×", lookup::BEGIN),
];

impl Goal {
    fn tell(&self, records: &[Record]) -> String {
        let value = records.iter().find_map(|record| record.params.get(self.parameter)?.as_f64());
        let sign = if self.at_most { "≤" } else { "≥" };
        let Some(value) = value else { return format!("{}: not measured", self.what) };
        let holds = if self.at_most { value <= self.must } else { value >= self.must };
        let verdict = if holds { "holds" } else { "DOES NOT HOLD" };
        format!("{}: {value:.3} {} (must {sign} {}): {verdict}", self.what, self.unit, self.must)
    }
}

/// Runs the benchmark.
pub async fn run(args: &MipArgs) -> Result<()> {
    if let Some(unknown) = args.goals.iter().find(|name| !GOALS.iter().any(|goal| goal.row == **name)) {
        let mut rows: Vec<&str> = GOALS.iter().map(|goal| goal.row).collect();
        rows.dedup();
        return Err(Error::Usage(format!("--goals {unknown}: there are {}", rows.join(", "))));
    }
    let wanted = |name: &str| args.goals.is_empty() || args.goals.iter().any(|goal| goal == name);
    let mut bench = Bench::new(args)?;
    eprintln!("seed {}", args.seed);
    let measured = measure(&mut bench, &wanted).await;
    // Also if one row fails: what the others measured is not lost.
    println!("{}", table(&bench.records));
    for goal in GOALS.iter().filter(|goal| wanted(goal.row)) {
        println!("{}", goal.tell(&bench.records));
    }
    if let (Some(path), false) = (&args.curves, bench.panels.is_empty()) {
        chart::write(path, "Requests that are executed exactly once", "clients", &bench.panels)?;
        eprintln!("wrote {}", path.display());
    }
    args.output.write("MIP", &bench.records, "case")?;
    measured
}

async fn measure(bench: &mut Bench<'_>, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
    if wanted("latency") {
        latency::measure(bench).await?;
    }
    if wanted("failover") {
        failover::measure(bench).await?;
    }
    if wanted("retry") {
        retry::measure(bench).await?;
    }
    bench.check_orders().await?;
    bench.store = None;
    if wanted("storage") {
        storage::measure(bench).await?;
    }
    if wanted("crowd") || wanted("pairs") {
        let systems = bench.systems().await?;
        if wanted("crowd") {
            crowd::measure(bench, &systems).await?;
        }
        if wanted("pairs") {
            pairs::measure(bench, &systems).await?;
        }
    }
    if wanted("lookup") {
        lookup::measure(bench).await?;
    }
    Ok(())
}

/// What the rows share.
struct Bench<'a> {
    args: &'a MipArgs,
    scale: Scale,
    /// Cognate with the bookstore, once a row needs it.
    store: Option<System>,
    /// Runs so far; names the requests of each.
    run: u64,
    walk: Arc<AtomicU64>,
    /// Buy Confirms that were answered.
    bought: u64,
    records: Vec<Record>,
    panels: Vec<Panel>,
}

/// All rounds of one thing that is compared with others.
#[derive(Default)]
struct Cell {
    /// Mean latency in milliseconds, by round.
    means: Vec<f64>,
    /// Requests a second, by round.
    rates: Vec<f64>,
    all: Option<Outcome>,
}

impl Cell {
    fn add(&mut self, outcome: Outcome) {
        self.means.push(LatencyMs::from_micros(&outcome.total().latency).mean);
        self.rates.push(outcome.committed_per_s());
        match &mut self.all {
            Some(all) => all.add(&outcome),
            none => *none = Some(outcome),
        }
    }
}

impl<'a> Bench<'a> {
    fn new(args: &'a MipArgs) -> Result<Bench<'a>> {
        let scale = Scale::new(args.items, args.browsers, args.seed)?;
        Ok(Bench {
            args,
            scale,
            store: None,
            run: 0,
            walk: Arc::default(),
            bought: 0,
            records: Vec::new(),
            panels: Vec::new(),
        })
    }

    fn window(&self) -> Duration {
        Duration::from_millis(u64::from(self.args.milliseconds))
    }

    /// A Cognate of its own.
    async fn start(&self) -> Result<System> {
        System::start_cognate(&self.args.server.cognate()).await
    }

    /// Cognate, and the peer if there is one.
    async fn systems(&self) -> Result<Vec<System>> {
        let mut systems = vec![self.start().await?];
        if self.args.peer == Some(Peer::Postgres) {
            let mut options = self.args.server.postgres();
            options.prepared_transactions = 300;
            systems.push(System::start_postgres(&options).await?);
        }
        Ok(systems)
    }

    /// The system with the bookstore; loaded the first time.
    async fn store(&mut self) -> Result<&System> {
        if self.store.is_none() {
            let system = self.start().await?;
            generator::load(&system, &self.scale).await?;
            self.store = Some(system);
        }
        self.store.as_ref().ok_or_else(|| Error::Missing("the bookstore".to_owned()))
    }

    /// Sets the governor's limit of the system with the bookstore.
    async fn govern(&mut self, limit: &str) -> Result<()> {
        let system = self.store().await?;
        let client = system.client().await?;
        system.execute_each(&client, &[format!("SET cognate.active_limit = '{limit}'")]).await
    }

    /// Requests of a fresh run in the bookstore.
    async fn requests(&mut self, way: Way, profile: Profile) -> Result<Requests> {
        self.run += 1;
        let (run, walk) = (self.run, Arc::clone(&self.walk));
        let (scale, isolation) = (self.scale, self.args.isolation);
        let system = self.store().await?;
        Ok(Requests::new(system, way, profile, scale, isolation, (run, &walk)))
    }

    /// Runs them, for a round, and cleans up after them.
    async fn measure(&mut self, requests: Requests, clients: u32, label: &str) -> Result<Outcome> {
        self.measure_for(requests, clients, label, self.window()).await
    }

    async fn measure_for(
        &mut self,
        requests: Requests,
        clients: u32,
        label: &str,
        measured: Duration,
    ) -> Result<Outcome> {
        let requests = Arc::new(requests);
        let plan = Plan {
            label: label.to_owned(),
            clients: clients as usize,
            threads: client_threads(),
            warmup: Duration::from_millis(200),
            measured,
        };
        let outcome = driver::run(Arc::new(Arc::clone(&requests)), &plan).await?;
        requests.clean_up().await?;
        let total = outcome.total();
        if total.committed == 0 || total.errors_total() > 0 {
            let first = outcome.first_error.as_deref().unwrap_or("no request was answered");
            return Err(Error::Violation(format!("{label}: {first}")));
        }
        if requests.profile == Profile::BuyConfirm {
            self.bought += total.acknowledged;
        }
        Ok(outcome)
    }

    /// Exactly once: there are as many orders as were loaded and answered, and nothing is in doubt.
    async fn check_orders(&self) -> Result<()> {
        use crate::error::DatabaseContext;
        let Some(system) = &self.store else { return Ok(()) };
        let client = system.client().await?;
        let count = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM pg_prepared_xacts)";
        let row = client.query_one(count, &[]).await.at(&system.name, "counting orders")?;
        let (orders, in_doubt): (i64, i64) = (row.get(0), row.get(1));
        let expected = i64::from(self.scale.orders()) + self.bought as i64;
        if orders != expected || in_doubt != 0 {
            return Err(Error::Violation(format!(
                "{expected} ORDERS SHOULD BE THERE, AND {orders} ARE; {in_doubt} TRANSACTIONS ARE IN DOUBT"
            )));
        }
        println!("{orders} orders: every answered request happened once\n");
        Ok(())
    }

    /// Adds what a cell measured.
    fn record(&mut self, system: &System, case: String, clients: u32, cell: &Cell) -> &mut Record {
        let params = parameters(
            system,
            &[
                ("case", json!(case)),
                ("clients", json!(clients)),
                ("isolation", json!(self.args.isolation.name())),
                ("milliseconds", json!(self.args.milliseconds)),
                ("rounds", json!(cell.rates.len())),
                ("seed", json!(self.args.seed)),
                ("mean_ms_of_rounds", json!(cell.means)),
                ("per_s_of_rounds", json!(cell.rates)),
            ],
        );
        let record = match &cell.all {
            Some(all) => report::records(&system.name, "mip", &params, all).remove(0),
            None => blank(&system.name, params),
        };
        self.push(record)
    }

    fn push(&mut self, record: Record) -> &mut Record {
        self.records.push(record);
        let last = self.records.len() - 1;
        &mut self.records[last]
    }
}

/// A record without a rate.
fn blank(system: &str, params: Map<String, Value>) -> Record {
    Record {
        system: system.to_owned(),
        workload: "mip".to_owned(),
        params,
        committed_per_s: 0.0,
        aborted_pct: 0.0,
        latency_ms: LatencyMs::default(),
    }
}

fn table(records: &[Record]) -> String {
    let mut rows =
        vec![["case", "system", "requests/s", "aborts %", "mean ms", "p50 ms", "p99 ms"].map(str::to_owned)];
    for record in records.iter().filter(|record| record.committed_per_s > 0.0) {
        rows.push([
            record.param("case").to_owned(),
            record.system.clone(),
            number(record.committed_per_s),
            format!("{:.2}", record.aborted_pct),
            number(record.latency_ms.mean),
            number(record.latency_ms.p50),
            number(record.latency_ms.p99),
        ]);
    }
    align(&rows, 2)
}
