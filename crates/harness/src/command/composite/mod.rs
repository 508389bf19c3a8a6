//! `cognate-bench composite`: what composite transactions cost, as in the evaluation of their paper
//! (VLDB 2000, §4), and against the same work written by hand.
//!
//! | part | what is measured |
//! |---|---|
//! | `tree` | the paper's ten trees of services and its three degrees of conflict: response time, throughput, aborts; with the default wait for a lock and without |
//! | `plain` | a tree of one service against the same handler with plain SQL |
//! | `entries` | an undo entry in a slot that is updated in place, against a row that is inserted and deleted |
//! | `purchase` | a purchase over three databases against two-phase commits written by hand, against none, and against Atomikos and DBOS |
//! | `commits` | commits of the databases and flushes of the journals for each subtransaction |
//!
//! All but the first one need PostgreSQL. Components and what they are compared with are in this
//! process and speak HTTP over loopback, but for the other systems, which are processes of their
//! own and are fetched when they are needed; what is compared takes turns. At the end of each run
//! the tables' sums tell that each committed root happened once at each component, and that nothing
//! is in doubt.

mod commits;
mod compare;
mod paper;
mod peers;
mod tree;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::{OutputArgs, ServerArgs, client_threads};
use crate::chart::{self, Panel};
use crate::driver::{self, Outcome, Plan, Workload};
use crate::error::{Error, Result};
use crate::report::{self, Record};
use crate::workload::composite::place::{DatabaseKind, Place};

/// Time before each measured window: connections are opened and slots are made.
const WARMUP: Duration = Duration::from_millis(1500);

/// How much is kept of why something could not be measured.
const WHY_CHARS_MAX: usize = 300;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The paper's trees.
    Tree,
    /// One service, and plain SQL.
    Plain,
    /// Undo entries in slots, and in rows.
    Entries,
    /// The purchase, and two-phase commits.
    Purchase,
    /// Commits and flushes.
    Commits,
}

/// The arguments of the benchmark of composite transactions.
#[derive(Clone, Debug, Args)]
pub struct CompositeArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Where components have their databases.
    #[arg(long, value_enum, value_name = "KIND", value_delimiter = ',', default_value = "embedded,postgres")]
    database: Vec<DatabaseKind>,
    /// Only these parts.
    #[arg(long = "part", value_enum, value_name = "NAME", value_delimiter = ',')]
    parts: Vec<Part>,
    /// Only these trees, such as 1x1,4x2: levels and calls.
    #[arg(long, value_name = "TREE", value_delimiter = ',')]
    trees: Vec<String>,
    /// Measured time of each configuration, all rounds together, in seconds; what is compared has
    /// twice as much.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Rounds that the measured time is cut into.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Clients, each with one root at a time.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=100))]
    clients: u32,
    /// Seed of all requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do not fetch and run Atomikos and DBOS.
    #[arg(long)]
    without_peers: bool,
    /// Draw response time and throughput over the cardinality into this SVG file.
    #[arg(long, value_name = "FILE")]
    curves: Option<PathBuf>,
}

/// What the parts share.
struct Bench<'a> {
    args: &'a CompositeArgs,
    /// Runs so far; each has requests of its own.
    run: u64,
    records: Vec<Record>,
    panels: Vec<Panel>,
    /// What could not be measured here, and why.
    missing: Vec<String>,
}

/// Runs the benchmark.
pub async fn run(args: &CompositeArgs) -> Result<()> {
    if let Some(unknown) = args.trees.iter().find(|tree| !tree::names().contains(tree)) {
        return Err(Error::Usage(format!("--trees {unknown}: there are {}", tree::names().join(", "))));
    }
    let mut bench = Bench { args, run: 0, records: Vec::new(), panels: Vec::new(), missing: Vec::new() };
    let measured = measure(&mut bench).await;
    // Also if a part fails: what the others measured is not lost.
    println!("{}", report::table(&bench.records, "case"));
    for why in &bench.missing {
        println!("not measured: {why}");
    }
    let missing = json!(bench.missing);
    for record in bench.records.iter_mut().filter(|_| missing != json!([])) {
        record.params.insert("not_measured".to_owned(), missing.clone());
    }
    if let (Some(path), false) = (&args.curves, bench.panels.is_empty()) {
        chart::write(path, "Composite transactions", "cardinality", &bench.panels)?;
        eprintln!("wrote {}", path.display());
    }
    args.output.write("Composite transactions", &bench.records, "case")?;
    measured
}

async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let args = bench.args;
    let wanted = |part: Part| args.parts.is_empty() || args.parts.contains(&part);
    for &kind in &args.database {
        let mut place = Place::open(kind, args.server.directory.as_deref()).await?;
        eprintln!("{}: version {}, seed {}", kind.name(), place.version(), args.seed);
        if wanted(Part::Tree) {
            tree::measure(bench, kind, &mut place).await?;
        }
        if kind == DatabaseKind::Postgres {
            if wanted(Part::Plain) {
                compare::plain(bench, &mut place).await?;
            }
            if wanted(Part::Entries) {
                compare::entries(bench, &mut place).await?;
            }
            if wanted(Part::Purchase) {
                compare::purchase(bench, &mut place).await?;
            }
            if wanted(Part::Commits) {
                commits::measure(bench, &mut place).await?;
            }
        }
    }
    Ok(())
}

impl Bench<'_> {
    /// What is measured of each thing in a round.
    fn window(&self) -> Duration {
        Duration::from_secs(u64::from(self.args.seconds)) / self.args.rounds
    }

    /// Goes on without another system, whatever is wrong with it, and notes that.
    fn goes_without(&mut self, system: &str, error: Error) -> Result<()> {
        if matches!(error, Error::Interrupted) {
            return Err(error);
        }
        // One line, and not a whole log.
        let words: String = error.to_string().split_whitespace().collect::<Vec<&str>>().join(" ");
        let why: String = words.chars().take(WHY_CHARS_MAX).collect();
        eprintln!("{system}: not measured: {error}");
        self.missing.push(format!("{system}: {why}"));
        Ok(())
    }

    /// The seed, and a number that no other run has.
    fn next_run(&mut self) -> (u64, u64) {
        self.run += 1;
        (self.args.seed, self.run)
    }

    /// Runs clients for one window.
    async fn drive<W: Workload>(&self, workload: W, clients: u32, label: String) -> Result<Outcome> {
        self.drive_after(WARMUP, workload, clients, label).await
    }

    /// The same with another time before it.
    async fn drive_after<W: Workload>(
        &self,
        warmup: Duration,
        workload: W,
        clients: u32,
        label: String,
    ) -> Result<Outcome> {
        let (clients, threads, measured) = (clients as usize, client_threads(), self.window());
        let plan = Plan { label, clients, threads, warmup, measured };
        let outcome = driver::run(Arc::new(workload), &plan).await?;
        match outcome.total().committed {
            0 => Err(Error::Violation(format!("{}: nothing was committed", plan.label))),
            _ => Ok(outcome),
        }
    }

    /// The parameters that every record has.
    fn parameters(&self, place: &Place, kind: DatabaseKind, pairs: &[(&str, Value)]) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("server_version".to_owned(), json!(place.version()));
        map.insert("database".to_owned(), json!(kind.name()));
        map.insert("isolation".to_owned(), json!("read-committed"));
        map.insert("seconds".to_owned(), json!(self.args.seconds));
        map.insert("rounds".to_owned(), json!(self.args.rounds));
        map.insert("seed".to_owned(), json!(self.args.seed));
        map.extend(pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        map
    }
}
