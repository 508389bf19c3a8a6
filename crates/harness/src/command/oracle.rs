//! `cognate-bench oracle`: the recorded random load with real concurrency, and the oracle's verdict
//! on it.

use std::time::Duration;

use clap::Args;
use cognate::{Database, Options};
use serde_json::json;

use super::snum_systems::SystemName;
use super::{OutputArgs, ServerArgs, client_threads};
use crate::checker::history::{Abort, History};
use crate::checker::verdict::Verdict;
use crate::error::{Error, Result};
use crate::peer::fresh_folder;
use crate::report::{LatencyMs, Record};
use crate::workload::bookstore::Isolation;
use crate::workload::recorded::generate::{Shape, Variety};
use crate::workload::recorded::run::{Plan, Target, run as record_run};

/// The arguments of the oracle.
#[derive(Clone, Debug, Args)]
pub struct OracleArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// How long transactions begin.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Sessions.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=290))]
    clients: u32,
    /// Keys of each of the two tables: the fewer, the more conflicts.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(i64).range(2..=1_000_000))]
    keys: i64,
    /// In this process instead of through the wire.
    #[arg(long)]
    embedded: bool,
    /// Also read ranges through window functions.
    #[arg(long)]
    windows: bool,
    /// Reads and writes only: no savepoints, ON CONFLICT, row locks or READ ONLY.
    #[arg(long)]
    plain: bool,
    /// Three rows by key and an update of one of them.
    #[arg(long, conflicts_with = "plain")]
    s3u1: bool,
    /// The isolation level of every transaction.
    #[arg(long, value_enum, default_value_t = Isolation::Serializable)]
    isolation: Isolation,
    /// How Cognate makes SERIALIZABLE so.
    #[arg(long, value_enum, default_value_t = SystemName::Pssi)]
    method: SystemName,
    /// Seed of the data and the transactions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl OracleArgs {
    /// The defaults, for so many seconds.
    pub fn of(server: &ServerArgs, seconds: u32) -> OracleArgs {
        OracleArgs {
            server: server.clone(),
            output: OutputArgs { json: None, svg: None },
            seconds: seconds.min(600),
            clients: 16,
            keys: 60,
            embedded: false,
            windows: false,
            plain: false,
            s3u1: false,
            isolation: Isolation::Serializable,
            method: SystemName::Pssi,
            seed: 1,
        }
    }

    /// s3u1 on 200 rows by so many clients.
    pub fn s3u1(server: &ServerArgs, seconds: u32, clients: u32) -> OracleArgs {
        OracleArgs { s3u1: true, keys: 200, clients, ..OracleArgs::of(server, seconds) }
    }

    fn plan(&self) -> Plan {
        let groups = (self.keys / 2).max(1);
        let variety = match () {
            () if self.s3u1 => Variety::S3u1,
            () if self.plain => Variety::Plain,
            () => Variety::Wide,
        };
        Plan {
            shape: Shape { keys: self.keys, groups, operations: 4, windows: self.windows, variety },
            clients: self.clients as usize,
            threads: client_threads(),
            time: Duration::from_secs(u64::from(self.seconds)),
            transactions: u64::MAX,
            isolation: self.isolation,
            seed: self.seed,
        }
    }
}

/// Runs the load and judges it.
pub async fn run(args: &OracleArgs) -> Result<()> {
    let record = measure(args).await?;
    args.output.write("The recorded load", &[record], "case")
}

/// Runs, prints and returns the figures.
///
/// # Errors
/// `Violation` if what must be serializable, or strictly so, is not.
pub async fn measure(args: &OracleArgs) -> Result<Record> {
    let history = history(args).await?;
    let strict = args.method == SystemName::Strict;
    let verdict = if strict { Verdict::strictly(&history) } else { Verdict::of(&history) };
    println!("{verdict}");
    println!("seed {}", args.seed);
    let promised = args.isolation == Isolation::Serializable && args.method != SystemName::Si;
    if promised && !verdict.serializable() {
        return Err(Error::Violation(format!("THE HISTORY IS NOT SERIALIZABLE (seed {})", args.seed)));
    }
    if promised && strict && !verdict.strictly_serializable() {
        let why = format!("THE HISTORY IS NOT IN THE ORDER OF REAL TIME (seed {})", args.seed);
        return Err(Error::Violation(why));
    }
    if promised && (strict || args.method == SystemName::Pssi) {
        let needless = |id: &u64| verdict.needless.contains(id) || verdict.conflicts.needless.contains(id);
        let told = history.transactions.iter().filter(|t| needless(&t.id)).take(3);
        told.for_each(|victim| eprintln!("needless: {victim:?}"));
    }
    Ok(record(args, &verdict))
}

async fn history(args: &OracleArgs) -> Result<History> {
    if args.method == SystemName::Postgres {
        return Err(Error::Usage(
            "the oracle asks Cognate for its snapshots; PostgreSQL has no such view".into(),
        ));
    }
    if args.method == SystemName::TwoPhaseLocking && args.isolation == Isolation::Serializable {
        let why = "two-phase locking reads at no snapshot; all its interleavings are among the tests";
        return Err(Error::Usage(why.to_owned()));
    }
    let spinner = crate::progress::spinner("recording");
    let history = if args.embedded {
        let failed = |error: cognate::Error| Error::Server(error.to_string());
        let folder = fresh_folder(args.server.directory.as_deref())?;
        let mut options = Options::new(folder.path().join("data"));
        options.serializable = args.method.method().unwrap_or_default();
        let database = Database::open_with(options).map_err(failed)?;
        let history = record_run(&Target::Embedded(database.clone()), &args.plan()).await?;
        database.close().map_err(failed)?;
        history
    } else {
        let system = args.method.start(&args.server).await?;
        record_run(&Target::Wire(Box::new(system.config().clone())), &args.plan()).await?
    };
    spinner.finish_and_clear();
    Ok(history)
}

fn record(args: &OracleArgs, verdict: &Verdict) -> Record {
    let aborted: usize = verdict.aborted.values().sum();
    let attempts = (verdict.committed + aborted).max(1) as f64;
    let pct = |reason: Abort| 100.0 * verdict.aborted_by(reason) as f64 / attempts;
    let mut params = serde_json::Map::new();
    params.insert("case".to_owned(), json!(if args.s3u1 { "recorded s3u1" } else { "recorded load" }));
    params.insert("clients".to_owned(), json!(args.clients));
    params.insert("keys".to_owned(), json!(args.keys));
    params.insert("embedded".to_owned(), json!(args.embedded));
    params.insert("isolation".to_owned(), json!(args.isolation.name()));
    params.insert("seconds".to_owned(), json!(args.seconds));
    params.insert("serializable".to_owned(), json!(verdict.serializable()));
    params.insert("certifier_pct".to_owned(), json!(pct(Abort::Certifier)));
    params.insert("first_updater_pct".to_owned(), json!(pct(Abort::FirstUpdater)));
    params.insert("deadlock_pct".to_owned(), json!(pct(Abort::Deadlock)));
    params.insert("justified".to_owned(), json!(verdict.justified));
    params.insert("undecided".to_owned(), json!(verdict.undecided));
    params.insert("needless".to_owned(), json!(verdict.needless.len()));
    params.insert("strict".to_owned(), json!(verdict.strictly_serializable()));
    params.insert("first_updater_stale".to_owned(), json!(verdict.conflicts.stale));
    params.insert("first_updater_undecided".to_owned(), json!(verdict.conflicts.undecided));
    params.insert("first_updater_needless".to_owned(), json!(verdict.conflicts.needless.len()));
    Record {
        system: args.method.label().to_owned(),
        workload: "oracle".to_owned(),
        params,
        committed_per_s: verdict.committed as f64 / f64::from(args.seconds),
        aborted_pct: 100.0 * aborted as f64 / attempts,
        latency_ms: LatencyMs::default(),
    }
}
