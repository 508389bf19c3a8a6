//! `cognate-bench recovery`: how fast a killed server reads its log again.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{OutputArgs, ServerArgs, parameters};
use crate::error::{DatabaseContext, Error, Result};
use crate::peer::System;
use crate::report::{LatencyMs, Record};
use crate::workload::keyed::Keyed;

/// The arguments of the recovery benchmark.
#[derive(Clone, Debug, Args)]
pub struct RecoveryArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// How much data is written before the server is killed, in megabytes. The memory budget
    /// (unless --memory says otherwise) is made large enough that no checkpoint shortens the log.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    megabytes: u32,
    /// Bytes of each row's payload.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(i32).range(10..=100_000))]
    payload: i32,
    /// Kills and restarts; the median is reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Seed of the data.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the benchmark.
pub async fn run(args: &RecoveryArgs) -> Result<()> {
    let mut options = args.server.cognate();
    options.memory.get_or_insert_with(|| format!("{}MB", u64::from(args.megabytes) * 8));
    let rows = i64::from(args.megabytes) * (1 << 20) / i64::from(args.payload);
    let table = Keyed { rows, payload: args.payload, seed: args.seed };
    let mut system = System::start_cognate(&options).await?;
    table.load(&system).await?;
    // How long it took, what was replayed, and how large the log's folder was.
    let mut runs: Vec<(Duration, u64, u64)> = Vec::new();
    for round in 1..=args.rounds {
        let server = system
            .cognate()
            .ok_or_else(|| Error::Usage("only a server started here can be killed".to_owned()))?;
        server.kill()?;
        let log = log_bytes(&server.data());
        let took = server.restart().await?;
        let replayed = metric(server.http_port(), "cognate_recovered_bytes").await?;
        eprintln!(
            "round {round}: {:.0} MB of records replayed, answering after {:.2} s; the log's folder has {:.0} MB",
            megabytes(replayed),
            took.as_secs_f64(),
            megabytes(log),
        );
        runs.push((took, replayed, log));
        check(&system, &table).await?;
    }
    runs.sort();
    let (took, replayed, log) = runs[runs.len() / 2];
    let rate = megabytes(replayed) / took.as_secs_f64();
    println!(
        "{:.0} MB of records replayed and all rows back in {:.2} s: {rate:.0} MB/s (median of {} restarts after kill -9)",
        megabytes(replayed),
        took.as_secs_f64(),
        runs.len()
    );
    let all: Vec<f64> = runs.iter().map(|(took, ..)| took.as_secs_f64()).collect();
    let params = parameters(
        &system,
        &[
            ("log_mb", json!(megabytes(log))),
            ("replayed_mb", json!(megabytes(replayed))),
            ("rows", json!(rows)),
            ("seconds", json!(took.as_secs_f64())),
            ("seconds_of_rounds", json!(all)),
            ("mb_per_s", json!(rate)),
            ("step", json!("restart after kill -9")),
        ],
    );
    let record = Record {
        system: system.name.clone(),
        workload: "recovery".to_owned(),
        params,
        committed_per_s: 0.0,
        aborted_pct: 0.0,
        latency_ms: LatencyMs::default(),
    };
    args.output.write("Recovery", &[record], "step")
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A number of the server's `/metrics`.
async fn metric(http_port: u16, name: &str) -> Result<u64> {
    let address = ("127.0.0.1", http_port);
    let failed = |what: &str| Error::Violation(format!("/metrics of the server started here: {what}"));
    let mut socket = TcpStream::connect(address).await.map_err(|error| failed(&error.to_string()))?;
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    socket.write_all(request.as_bytes()).await.map_err(|error| failed(&error.to_string()))?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.map_err(|error| failed(&error.to_string()))?;
    let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).ok_or_else(|| failed(name))
}

/// The bytes of all files below folders named `log` in the data folder.
fn log_bytes(data: &Path) -> u64 {
    fn below(folder: &Path, in_log: bool) -> u64 {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .map(|entry| {
                let path = entry.path();
                let in_log = in_log || path.file_name().is_some_and(|name| name == "log");
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => below(&path, in_log),
                    Ok(metadata) if in_log => metadata.len(),
                    _ => 0,
                }
            })
            .sum()
    }
    below(data, false)
}

/// Every row is there, and a few are read in full.
async fn check(system: &System, table: &Keyed) -> Result<()> {
    let client = system.client().await?;
    let row = client.query_one("SELECT count(*) FROM keyed", &[]).await.at(&system.name, "counting rows")?;
    let found: i64 = row.get(0);
    if found != table.rows {
        return Err(Error::Violation(format!("{found} ROWS AFTER RECOVERY INSTEAD OF {}", table.rows)));
    }
    for id in [1, table.rows / 3, table.rows / 2, table.rows] {
        let sql = "SELECT payload FROM keyed WHERE id = $1";
        let row = client.query_one(sql, &[&id]).await.at(&system.name, "reading a row")?;
        if row.get::<_, &str>(0) != table.payload_of(id) {
            return Err(Error::Violation(format!("ROW {id} IS WRONG AFTER RECOVERY")));
        }
    }
    Ok(())
}
