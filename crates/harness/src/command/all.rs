//! `cognate-bench all`: every benchmark with the settings of the project's goals, one after the
//! other.

use std::path::PathBuf;

use clap::{Args, Parser};
use serde_json::json;

use super::ServerArgs;
use crate::cli::Cli;
use crate::error::{Error, IoContext, Result};
use crate::report::{self, Record};
use crate::results;

/// The arguments of the whole series.
#[derive(Clone, Debug, Args)]
pub struct AllArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Write each benchmark's results into this folder, one JSON file each.
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    json: PathBuf,
    /// Write the pages of results into this folder: results.md, and one page for each JSON file.
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,
    /// An older cognate binary, such as one from before clusters, to compare one node of this build
    /// with; left out without it.
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// A cognate binary that was built with `--features cognate-engine/protocol-alone`, to compare
    /// each protocol by the metaprotocol with that protocol alone; left out without it.
    #[arg(long, value_name = "FILE")]
    alone: Option<PathBuf>,
    /// Leave PostgreSQL and Galera out.
    #[arg(long)]
    without_peer: bool,
    /// Short runs that only show that everything works; their figures mean nothing.
    #[arg(long)]
    smoke: bool,
    /// Only these benchmarks.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
}

/// The benchmark of the protocols, which compares with a further binary.
const PROTOCOLS: &str = "replication-protocols";

/// A benchmark of the series.
struct Benchmark {
    /// Of its JSON file and its page.
    name: &'static str,
    /// The subcommand, with the settings of the goals.
    line: &'static str,
    /// The subcommand with settings for a smoke run.
    smoke: &'static str,
    has_peer: bool,
    /// Whether it is about an older binary and nothing else.
    is_before: bool,
    /// Whether it draws curves for its page.
    draws: bool,
}

impl Benchmark {
    /// The further binary that it compares with, with its option. One from before clusters is none
    /// for the protocols.
    fn binaries<'a>(&self, args: &'a AllArgs) -> Vec<(&'static str, &'a PathBuf)> {
        let before = args.before.as_ref().filter(|_| self.is_before);
        let alone = args.alone.as_ref().filter(|_| self.name == PROTOCOLS);
        let all = [("--before", before), ("--alone", alone)];
        all.into_iter().filter_map(|(option, binary)| Some((option, binary?))).collect()
    }
}

const fn benchmark(name: &'static str, line: &'static str, smoke: &'static str) -> Benchmark {
    Benchmark { name, line, smoke, has_peer: false, is_before: false, draws: false }
}

const fn against_peer(name: &'static str, line: &'static str, smoke: &'static str) -> Benchmark {
    Benchmark { has_peer: true, ..benchmark(name, line, smoke) }
}

const fn against_before(name: &'static str, line: &'static str, smoke: &'static str) -> Benchmark {
    Benchmark { is_before: true, ..benchmark(name, line, smoke) }
}

const fn drawing(benchmark: Benchmark) -> Benchmark {
    Benchmark { draws: true, ..benchmark }
}

const SERIES: &[Benchmark] = &[
    against_peer("pgbench", "pgbench --rounds 5", "pgbench --scale 1 --seconds 2 --rounds 1"),
    against_peer(
        "bookstore",
        "bookstore --rounds 4",
        "bookstore --seconds 4 --items 1000 --browsers 1 --clients 16",
    ),
    against_peer("mixed", "mixed", "mixed --seconds 3 --rounds 1 --rows 10000 --readings 20000"),
    against_peer("analytic", "analytic", "analytic --rows 5000 --rounds 2"),
    against_peer(
        "interrupt",
        "interrupt",
        "interrupt --rows 2000 --cancels 1 --after-ms 50 --seconds 1 --only sort,UPDATE",
    ),
    benchmark("point-read", "point-read", "point-read --rows 2000 --reads 2000"),
    benchmark("log", "log", "log --seconds 1"),
    benchmark("device", "device", "device --seconds 1 --rounds 1 --rows 2000 --clients 800"),
    drawing(benchmark(
        "governor",
        "governor --turns 16",
        "governor --seconds 1 --settle 1 --turns 1 --rows 2000 --clients 8,16 --limits 4,off --connected 100 --busy 8",
    )),
    benchmark("memory", "memory", "memory --memory 64MB --seconds 3"),
    drawing(benchmark(
        "mip-latency",
        "mip --goals latency --rounds 8 --milliseconds 400",
        "mip --goals latency --rounds 1 --milliseconds 200 --clients 1,4 --items 1000 --browsers 1",
    )),
    benchmark(
        "mip-failover",
        "mip --goals failover --rounds 4 --milliseconds 500",
        "mip --goals failover --rounds 1 --milliseconds 200 --clients 1,4 --items 1000 --browsers 1 --ahead 10",
    ),
    benchmark(
        "mip-retry",
        "mip --goals retry,storage,lookup --rounds 3",
        "mip --goals retry,storage,lookup --rounds 1 --items 1000 --browsers 1 --retries 20 --rows 1000 --families 10000",
    ),
    against_peer(
        "mip-crowd",
        "mip --goals crowd --rounds 12 --milliseconds 500",
        "mip --goals crowd --rounds 1 --milliseconds 200",
    ),
    against_peer(
        "mip-pairs",
        "mip --goals pairs --rounds 8 --milliseconds 400",
        "mip --goals pairs --rounds 1 --milliseconds 200",
    ),
    benchmark("snum", "snum --rounds 20 --seconds 20", "snum --seconds 1 --rounds 1 --rows 2000"),
    drawing(benchmark(
        "snum-sweep",
        "snum --sweep 1,5,20,40,80,160 --reads 5 --updates 1 --hot 100 --systems pssi,strict,ssi,si,postgres --seconds 4 --rounds 2",
        "snum --sweep 4,8 --reads 5 --updates 1 --hot 100 --systems pssi,strict,si --seconds 1 --rounds 1 --rows 2000",
    )),
    benchmark(
        "conflicts",
        "conflicts --systems pssi,strict,ssi,si,postgres",
        "conflicts --systems pssi,strict,ssi,si,postgres --loads tpcb-1,s3u1-hot,bookstore --seconds 1 --rounds 1 --rows 2000 --items 1000 --browsers 1 --clients 8 --pgbench-clients 4 --starts 1",
    ),
    drawing(benchmark(
        "composite",
        "composite --database embedded,postgres",
        "composite --database embedded,postgres --trees 1x1,2x2 --seconds 1 --rounds 1 --clients 5 --without-peers",
    )),
    benchmark(
        "replication",
        "replication --part peers,nodes,s3u1,latency,leader",
        "replication --part peers,nodes,s3u1,latency,leader --seconds 1 --rounds 1 --kills 1 --nodes 2 --connections 2 --clients 8 --rows 1000 --snum-rows 2000",
    ),
    benchmark(
        PROTOCOLS,
        "replication --part protocols",
        "replication --part protocols --seconds 1 --rounds 1 --connections 2 --rows 1000 --phase-seconds 1",
    ),
    against_before(
        "replication-before",
        "replication --part before --seconds 40 --rounds 8",
        "replication --part before --seconds 1 --rounds 1 --connections 2 --clients 8 --rows 1000 --snum-rows 2000",
    ),
    drawing(benchmark(
        "replication-paper",
        "replication --part paper",
        "replication --part paper --rows 1000 --loads 20,80 --load-seconds 1",
    )),
    benchmark(
        "replication-join",
        "replication --part join",
        "replication --part join --join-megabytes 8 --connections 2 --rows 1000",
    ),
    benchmark(
        "replication-away",
        "replication --part away",
        "replication --part away --away-seconds 3 --connections 2 --rows 1000",
    ),
    benchmark(
        "replication-apply",
        "replication --part apply --rounds 5",
        "replication --part apply --rounds 1",
    ),
    benchmark("recovery", "recovery", "recovery --megabytes 40 --rounds 1"),
    benchmark("crash", "crash", "crash --rounds 3"),
];

/// Runs the series; a benchmark that fails does not keep the others from running, but fails the
/// whole in the end.
pub async fn run(args: &AllArgs) -> Result<()> {
    let known = |name: &String| SERIES.iter().any(|benchmark| benchmark.name == name);
    if let Some(unknown) = args.only.iter().find(|name| !known(name)) {
        let names: Vec<&str> = SERIES.iter().map(|benchmark| benchmark.name).collect();
        return Err(Error::Usage(format!("--only {unknown}: there are {}", names.join(", "))));
    }
    let mut failed = Vec::new();
    for benchmark in SERIES {
        if !args.only.is_empty() && !args.only.iter().any(|only| only == benchmark.name) {
            continue;
        }
        if benchmark.is_before && args.before.is_none() {
            eprintln!("{}: left out, for there is no older binary; see --before", benchmark.name);
            continue;
        }
        if let Err(error) = one(args, benchmark).await {
            eprintln!("error: {error}");
            failed.push(format!("{}: {error}", benchmark.name));
        }
    }
    if let Some(docs) = &args.docs {
        results::write(&results::load(&args.json)?, docs)?;
        eprintln!("wrote {}", docs.join("results.md").display());
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Error::Violation(format!("{} benchmarks failed\n{}", failed.len(), failed.join("\n")))),
    }
}

async fn one(args: &AllArgs, benchmark: &Benchmark) -> Result<()> {
    let file = args.json.join(format!("{}.json", benchmark.name));
    let line = if args.smoke { benchmark.smoke } else { benchmark.line };
    let mut shown = vec!["cognate-bench".to_owned()];
    shown.extend(line.split_whitespace().map(str::to_owned));
    if args.without_peer {
        match benchmark.name {
            "snum" => shown.extend(["--systems".to_owned(), "pssi,strict,ssi,si,2pl".to_owned()]),
            "replication" | PROTOCOLS => shown.push("--without-peers".to_owned()),
            _ => shown.iter_mut().for_each(|word| *word = word.replace(",postgres", "")),
        }
    }
    if benchmark.has_peer && !args.without_peer {
        shown.extend(["--peer".to_owned(), "postgres".to_owned()]);
    }
    let mut line = shown.clone();
    for (option, binary) in benchmark.binaries(args) {
        shown.extend([option.to_owned(), "FILE".to_owned()]);
        line.extend([option.to_owned(), binary.display().to_string()]);
    }
    line.extend(["--json".to_owned(), file.display().to_string()]);
    if let (Some(docs), true) = (&args.docs, benchmark.draws) {
        let picture = docs.join("results").join(format!("{}.svg", benchmark.name));
        line.extend(["--curves".to_owned(), picture.display().to_string()]);
    }
    line.extend(args.server.as_arguments(&shown));
    eprintln!("\n{}", shown.join(" "));
    // What an earlier run left must not pass for this one's result.
    if file.exists() {
        std::fs::remove_file(&file).doing(format!("removing {}", file.display()))?;
    }
    let cli = Cli::try_parse_from(&line).map_err(|error| Error::Usage(error.to_string()))?;
    let outcome = Box::pin(cli.run_command()).await;
    if file.exists() {
        name_command(&file, &shown.join(" "))?;
    }
    outcome
}

/// Puts the benchmark's own command in the place of that of the whole series.
fn name_command(file: &std::path::Path, command: &str) -> Result<()> {
    let text = std::fs::read_to_string(file).doing(format!("reading {}", file.display()))?;
    let mut records: Vec<Record> = serde_json::from_str(&text)
        .map_err(|error| Error::Usage(format!("reading {}: {error}", file.display())))?;
    for record in &mut records {
        record.params.insert("command".to_owned(), json!(command));
    }
    report::write_json(file, &records)
}
