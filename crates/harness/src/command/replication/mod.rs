//! `cognate-bench replication`: what a cluster does and costs, with the workload of the paper of
//! its protocols: 10,000 rows, 20 updates of distinct random rows a transaction, 10 connections a
//! node, all nodes on this machine.
//!
//! | part | what is measured |
//! |---|---|
//! | `peers` | three nodes against three of Galera, clients on all; and against PostgreSQL with two synchronous standbys, clients on one |
//! | `nodes` | one node, and clusters of two, three and four |
//! | `s3u1` | three reads and an update, uniform: three nodes against one |
//! | `before` | one node of this build against one of an older binary: updates, s3u1, ranges |
//! | `latency` | a commit of one client against two flushes and one loopback round trip |
//! | `leader` | `kill -9` of the leader under load: the longest time without commits |
//! | `protocols` | active, certification and weak voting alone and mixed, `auto`, a load that shifts, and one hot row against Galera |
//! | `paper` | the paper's figures: a fixed pace, two and four nodes, all mixtures |
//! | `join` | an empty node joins under half of the load that the others can bear: what they lose of it |
//! | `away` | a node is away for ten minutes: how far the log and the memory of the others grow |
//! | `apply` | how many requests of another node one node's applier can do |
//!
//! What is compared takes turns in one run, forwards and backwards, and ratios are medians over the
//! rounds. Cognate runs at REPEATABLE READ, which is the peers' level, and at SERIALIZABLE beside
//! it. Attempts that a system refuses are made again and counted. At the end of each part the sum
//! over the table tells that each acknowledged transaction happened once.
//!
//! | file | what it holds |
//! |---|---|
//! | `place` | servers with the table, Cognate's and others', and their check |
//! | `turns` | ways of loading them, in turns, and the records of them |
//! | `throughput` | the parts that compare rates |
//! | `latency`, `leader`, `protocols`, `paper`, `join`, `away`, `apply` | those parts |

mod apply;
mod away;
mod join;
mod latency;
mod leader;
mod paper;
mod place;
mod protocols;
mod throughput;
mod turns;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::{OutputArgs, ServerArgs};
use crate::error::{Error, Result};
use crate::report::{self, Record};
use crate::workload::updates::Shape;

/// Time before each measured window.
const WARMUP: Duration = Duration::from_millis(700);
/// Nodes of the cluster that is compared with other systems.
const NODES: usize = 3;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Galera, and PostgreSQL with standbys.
    Peers,
    /// One to four nodes.
    Nodes,
    /// Reads and an update.
    S3u1,
    /// An older binary.
    Before,
    /// One client.
    Latency,
    /// The leader's loss.
    Leader,
    /// The protocols, alone and mixed, and one hot row.
    Protocols,
    /// The paper's figures.
    Paper,
    /// An empty node joins.
    Join,
    /// A node is away.
    Away,
    /// One applier.
    Apply,
}

/// The arguments of the benchmark of clusters.
#[derive(Clone, Debug, Args)]
pub struct ReplicationArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Only these parts.
    #[arg(long = "part", value_enum, value_name = "NAME", value_delimiter = ',')]
    parts: Vec<Part>,
    /// Sizes of the clusters of the part `nodes`; one node is always beside them.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,3,4", value_parser = clap::value_parser!(u16).range(2..=15))]
    nodes: Vec<u16>,
    /// Connections to each node.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=90))]
    connections: u32,
    /// Connections of s3u1, over all nodes.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=290))]
    clients: u32,
    /// Rows of the table that transactions update.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(i64).range(100..=10_000_000))]
    rows: i64,
    /// Rows of the table of s3u1.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(2_000..=100_000_000))]
    snum_rows: i64,
    /// Measured seconds of each system and level, cut into rounds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Rounds, in which what is compared takes turns.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// How long a phase of the load that shifts is; a round has six.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    phase_seconds: u32,
    /// Transactions a second that are due over all nodes, in the paper's figures.
    #[arg(long, value_name = "RATE", value_delimiter = ',', default_value = "20,40,60,80,160,320,640,960", value_parser = clap::builder::TypedValueParser::map(clap::value_parser!(u32).range(1..=100_000), f64::from))]
    loads: Vec<f64>,
    /// Measured seconds of each of them.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    load_seconds: u32,
    /// Draw the paper's figures into this file.
    #[arg(long, value_name = "FILE")]
    curves: Option<PathBuf>,
    /// How often the leader is killed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    kills: u32,
    /// Megabytes that a node receives when it joins.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(8..=1_000_000))]
    join_megabytes: u32,
    /// How long a node is away, in seconds.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    away_seconds: u32,
    /// An older cognate binary, to compare one node of this build with.
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// A cognate binary that was built with `--features cognate-engine/protocol-alone`, to compare
    /// each protocol by the metaprotocol with that protocol alone.
    #[arg(long, value_name = "FILE")]
    alone: Option<PathBuf>,
    /// Leave Galera and PostgreSQL out.
    #[arg(long)]
    without_peers: bool,
    /// Nodes of a Galera cluster that runs already, instead of starting one, such as
    /// mysql://bench:bench@127.0.0.1:3306/bench (its table `counters` is replaced).
    #[arg(long, value_name = "URL", value_delimiter = ',', conflicts_with = "without_peers")]
    galera: Vec<String>,
    /// A PostgreSQL with synchronous standbys that runs already, by a superuser, instead of
    /// starting one, such as postgresql://postgres@127.0.0.1:5432/postgres (its table `counters` is
    /// replaced).
    #[arg(long, value_name = "URL", conflicts_with = "without_peers")]
    postgres: Option<String>,
    /// Seed of all transactions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What the parts share.
struct Bench<'a> {
    args: &'a ReplicationArgs,
    /// Runs so far; each has transactions of its own.
    run: u64,
    records: Vec<Record>,
    /// What could not be measured here, and why.
    missing: Vec<String>,
}

/// Runs the benchmark.
pub async fn run(args: &ReplicationArgs) -> Result<()> {
    let mut bench = Bench { args, run: 0, records: Vec::new(), missing: Vec::new() };
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
    args.output.write("A cluster", &bench.records, "case")?;
    measured
}

async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let parts = bench.args.parts.clone();
    let wanted = |part: Part| parts.is_empty() || parts.contains(&part);
    eprintln!("seed {}", bench.args.seed);
    if wanted(Part::Peers) {
        throughput::peers(bench).await?;
    }
    if wanted(Part::Nodes) {
        throughput::nodes(bench).await?;
    }
    if wanted(Part::S3u1) {
        throughput::s3u1(bench).await?;
    }
    if wanted(Part::Before) {
        throughput::before(bench).await?;
    }
    if wanted(Part::Latency) {
        latency::measure(bench).await?;
    }
    if wanted(Part::Leader) {
        leader::measure(bench).await?;
    }
    if wanted(Part::Protocols) {
        protocols::measure(bench).await?;
    }
    if wanted(Part::Paper) {
        paper::measure(bench).await?;
    }
    if wanted(Part::Join) {
        join::measure(bench).await?;
    }
    if wanted(Part::Away) {
        away::measure(bench).await?;
    }
    if wanted(Part::Apply) {
        apply::measure(bench).await?;
    }
    Ok(())
}

impl Bench<'_> {
    /// What is measured of each in a round.
    fn window(&self) -> Duration {
        Duration::from_secs(u64::from(self.args.seconds)) / self.args.rounds
    }

    /// The paper's transactions, or shorter ones.
    fn shape(&self, updates: usize) -> Shape {
        Shape { rows: self.args.rows, updates, seed: self.args.seed }
    }

    /// A number that no other run has.
    fn next_run(&mut self) -> u64 {
        self.run += 1;
        self.run
    }

    /// Notes what is missing here, and goes on without it; other failures end the run.
    fn unless_missing<T>(&mut self, what: &str, started: Result<T>) -> Result<Option<T>> {
        match started {
            Ok(started) => Ok(Some(started)),
            Err(Error::Missing(why)) => {
                eprintln!("{what}: not measured: {why}");
                self.missing.push(format!("{what}: {why}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The parameters that every record has.
    fn parameters(&self, version: &str, pairs: &[(&str, Value)]) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("server_version".to_owned(), json!(version));
        map.insert("seconds".to_owned(), json!(self.args.seconds));
        map.insert("rounds".to_owned(), json!(self.args.rounds));
        map.insert("seed".to_owned(), json!(self.args.seed));
        map.extend(pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        map
    }
}
