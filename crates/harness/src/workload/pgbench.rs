//! PostgreSQL's own benchmark program, unmodified, against any system.
//!
//! `pgbench` is run as its users run it: `-i` makes and fills its tables, then one of its built-in
//! scripts runs with prepared statements. Rates come from what it prints; latency percentiles from
//! its transaction log, sampled so that writing the log costs little.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::bookstore::Isolation;
use crate::error::{Error, IoContext, Result};
use crate::peer::child::run_to_end;
use crate::peer::{self, System, postgres};
use crate::report::LatencyMs;

/// A built-in script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Script {
    /// One point read.
    SelectOnly,
    /// Three updates, a read and an insert; hot on the few branches and tellers.
    TpcbLike,
    /// An update, a read and an insert; no hot rows.
    SimpleUpdate,
}

/// The scripts in report order.
pub const SCRIPTS: [Script; 3] = [Script::SelectOnly, Script::TpcbLike, Script::SimpleUpdate];

impl Script {
    /// The name that pgbench knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Script::SelectOnly => "select-only",
            Script::TpcbLike => "tpcb-like",
            Script::SimpleUpdate => "simple-update",
        }
    }
}

/// How pgbench is run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `-s`: branches; 100,000 accounts each.
    pub scale: u32,
    /// `-c`: connections.
    pub clients: u32,
    /// `-j`: threads of pgbench.
    pub threads: u32,
    /// `-T`: seconds of one run.
    pub seconds: u32,
    /// `default_transaction_isolation` of its sessions.
    pub isolation: Isolation,
    /// `cognate.durable_reads` of its sessions, which Cognate alone knows.
    pub durable_reads: bool,
}

/// What one run of a script showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Transactions a second, without the time to connect.
    pub tps: f64,
    /// Retries and failures in percent of all attempts.
    pub aborted_pct: f64,
    /// Latency of the logged transactions.
    pub latency: LatencyMs,
}

fn command(system: &System, settings: &Settings) -> Result<Command> {
    let config = system.config();
    let port = system.port().ok_or_else(|| Error::Usage("--connect must name a port".to_owned()))?;
    let mut command = Command::new(postgres::program("pgbench")?);
    let isolation = settings.isolation.sql().to_lowercase().replace(' ', "\\ ");
    let durable_reads = if settings.durable_reads { " -c cognate.durable_reads=on" } else { "" };
    command
        .env("PGHOST", "127.0.0.1")
        .env("PGPORT", port.to_string())
        .env("PGUSER", config.get_user().unwrap_or("postgres"))
        .env("PGDATABASE", config.get_dbname().unwrap_or("postgres"))
        .env("PGOPTIONS", format!("-c default_transaction_isolation={isolation}{durable_reads}"));
    Ok(command)
}

/// `pgbench -i`: makes the tables and fills them.
pub async fn initialize(system: &System, settings: &Settings) -> Result<()> {
    let folder = peer::fresh_folder(None)?;
    let limit = Duration::from_secs(120 + 20 * u64::from(settings.scale));
    let spinner = crate::progress::spinner(&format!("{}: pgbench -i -s {}", system.name, settings.scale));
    let done = run_to_end(
        command(system, settings)?.args(["-i", "-q", "-s", &settings.scale.to_string()]),
        folder.path(),
        limit,
    )
    .await;
    spinner.finish_and_clear();
    let client = system.client().await?;
    // So that no checkpoint owed to the load falls into a run; not every system has the statement.
    let _ = client.batch_execute("CHECKPOINT").await;
    done.map(drop)
}

/// One run of one script.
pub async fn run(system: &System, script: Script, settings: &Settings) -> Result<Measured> {
    let folder = peer::fresh_folder(None)?;
    let mut command = command(system, settings)?;
    command.args(["-n", "-M", "prepared", "-l", "--log-prefix=log", "--sampling-rate=0.1"]);
    command.args(["-b", script.name()]);
    command.args(["-c", &settings.clients.to_string(), "-j", &settings.threads.to_string()]);
    command.args(["-T", &settings.seconds.to_string()]);
    if settings.isolation != Isolation::ReadCommitted {
        command.arg("--max-tries=1000");
    }
    let limit = Duration::from_secs(u64::from(settings.seconds) + 60);
    let seconds = f64::from(settings.seconds);
    let bar = crate::progress::seconds(&format!("{}: {}", system.name, script.name()), seconds);
    bar.enable_steady_tick(Duration::from_millis(200));
    let output = run_to_end(&mut command, folder.path(), limit).await;
    bar.finish_and_clear();
    let output = output?;
    let (tps, aborted_pct) = parse_output(&output)
        .ok_or_else(|| Error::Server(format!("pgbench's output has changed; no rate found in\n{output}")))?;
    Ok(Measured { tps, aborted_pct, latency: read_logs(folder.path())? })
}

/// The rate and the aborted share from what pgbench prints.
pub fn parse_output(output: &str) -> Option<(f64, f64)> {
    let after = |label: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(label))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let tps = after("tps = ")?;
    let committed = after("number of transactions actually processed: ")?;
    let failed = after("number of failed transactions: ").unwrap_or(0.0);
    let aborted = after("total number of retries: ").unwrap_or(0.0) + failed;
    let attempts = committed + aborted;
    Some((tps, if attempts > 0.0 { 100.0 * aborted / attempts } else { 0.0 }))
}

/// Latency from all transaction logs in a folder: the third field of a line is microseconds, or
/// `failed`.
fn read_logs(folder: &Path) -> Result<LatencyMs> {
    let mut histogram: Histogram<u64> =
        Histogram::new(3).map_err(|error| Error::Usage(format!("making a histogram: {error}")))?;
    for entry in std::fs::read_dir(folder).doing("reading pgbench's logs")? {
        let path = entry.doing("reading pgbench's logs")?.path();
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log")) {
            continue;
        }
        let text = std::fs::read_to_string(&path).doing(format!("reading {}", path.display()))?;
        for micros in text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok()) {
            let _ = histogram.record(micros);
        }
    }
    Ok(LatencyMs::from_micros(&histogram))
}
