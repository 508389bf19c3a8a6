//! `cognate-bench interrupt`: how soon a long statement ends when it is cancelled, and what others
//! wait for meanwhile.
//!
//! For each kind of long statement:
//!
//! 1. it is started, and cancelled a while later; from the request to the answer counts, the new
//!    connection of the request included. What has ended by then is shown as ended, and counts for
//!    nothing;
//! 2. two sessions run it over and over, and a third reads single rows by their key, one after the
//!    other, with a prepared statement.
//!
//! What matters is the longest of all these times: a server that answers nearly everybody at once
//! and one of ten thousand after a minute has stood still for a minute. A virtual machine may have
//! stood still itself, and everything on it: the longest time in which its host kept a processor
//! from it while single rows were read is shown beside ([`steal`](crate::steal)).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_postgres::{CancelToken, Client, NoTls};

use super::{OutputArgs, SystemArgs, parameters};
use crate::error::{DatabaseContext, Error, Result};
use crate::peer::System;
use crate::random::Random;
use crate::report::{LatencyMs, Record, TOTAL, align, number};
use crate::steal::{Stolen, Watch};

/// The arguments of the interrupted statements.
#[derive(Clone, Debug, Args)]
pub struct InterruptArgs {
    #[command(flatten)]
    systems: SystemArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Rows of the table.
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(i32).range(1000..=100_000_000))]
    rows: i32,
    /// How often each statement is cancelled.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    cancels: u32,
    /// From a statement's start to its cancellation, in milliseconds.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    after_ms: u64,
    /// How long single rows are read beside each statement, in seconds.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Only these statements.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Seed of the keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// How long a cancelled statement may take to answer before the benchmark gives up.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// Each kind of long statement over `big (id, v, note)`, which `filled` is a copy of.
const STATEMENTS: &[(&str, &str)] = &[
    (
        "cross join",
        "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b WHERE a + b < 0",
    ),
    ("sort", "SELECT n FROM generate_series(1, 20000000) n ORDER BY n % 1000003, n OFFSET 19999999"),
    ("sort of texts", "SELECT note FROM big ORDER BY md5(note) || note, id DESC OFFSET 299999"),
    (
        "window",
        "SELECT count(s) FROM (SELECT sum(v::float8) OVER (ORDER BY id ROWS BETWEEN 50000 PRECEDING AND 50000 FOLLOWING) s \
         FROM big) x",
    ),
    (
        "groups",
        "SELECT count(*) FROM (SELECT n % 3000017, count(*) FROM generate_series(1, 30000000) n GROUP BY 1) s",
    ),
    ("count of distinct", "SELECT count(DISTINCT n * 7) FROM generate_series(1, 30000000) n"),
    ("hash join", "SELECT count(*) FROM big a JOIN big b ON a.v = b.v JOIN big c ON c.v = b.v"),
    (
        "set operation",
        "SELECT count(*) FROM (SELECT generate_series(1, 9000000) EXCEPT SELECT generate_series(2, 9000000)) s",
    ),
    ("recursion", "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"),
    ("powers", "SELECT sum(scale((7 + n)::numeric ^ 500.5)) FROM generate_series(1, 100000) n"),
    (
        "one power",
        "SELECT length((7::numeric ^ 130000)::text) + length(exp((5000 + n % 900)::numeric)::text) FROM generate_series(1, 10000) n",
    ),
    // A base next to one takes many digits.
    ("logarithm", "SELECT sum(scale(log(1 + 1e-8000, n::numeric))) FROM generate_series(2, 100000) n"),
    (
        "md5 of 60 MB",
        "SELECT count(md5(x)) FROM (SELECT repeat('x', 60000000) x OFFSET 0) s, generate_series(1, 1000)",
    ),
    (
        "replacement",
        "SELECT count(replace(x, 'ab', 'c')) FROM (SELECT repeat('ab', 20000000) x OFFSET 0) s, generate_series(1, 1000)",
    ),
    (
        "regular expression",
        "SELECT count(regexp_replace(x, '(a|b)*c|ab', 'y', 'g')) FROM (SELECT repeat('ab', 9000000) x OFFSET 0) s, generate_series(1, 1000)",
    ),
    (
        "back reference",
        // No text of this form is twice the same, so all divisions are tried.
        "SELECT count(repeat('ab', 1500) || n || 'x' ~ '^(.+)(.+)(.+)\\1\\2\\3x$') FROM generate_series(1, 1000) n",
    ),
    (
        "LIKE",
        "SELECT count(*) FROM (SELECT repeat('ab', 20000000) x OFFSET 0) s, generate_series(1, 1000) n WHERE x LIKE '%a%b%a%b%c' || n",
    ),
    (
        "JSON",
        "SELECT sum(length((('[' || repeat('{\"a\": [1, 2]},', 100000) || n || ']')::jsonb)::text)) FROM generate_series(1, 1000) n",
    ),
    (
        "arrays",
        "SELECT count(*) FROM (SELECT array_fill(repeat('x', 5000), ARRAY[20000]) a OFFSET 0) s, generate_series(1, 100000) n \
         WHERE a || n::text < a || (-n)::text",
    ),
    (
        "order of JSON",
        "SELECT count(*) FROM (SELECT ('[' || repeat('1, ', 400000) || '0]')::jsonb a, ('[' || repeat('1, ', 400000) || '1]')::jsonb b OFFSET 0) s, \
         generate_series(1, 10000) n WHERE CASE WHEN n > 0 THEN a < b END",
    ),
    (
        "digits",
        "SELECT count(*) FROM (SELECT '.' || repeat('7', 16000) x OFFSET 0) s, generate_series(1, 10000000) n WHERE (n || x)::numeric < 0",
    ),
    (
        "aggregated texts",
        "SELECT count(length(s)) FROM (SELECT string_agg(note, ',') s FROM big, generate_series(1, 1000) n GROUP BY n) x",
    ),
    ("UPDATE", "UPDATE filled SET v = v + 1, note = note || 'x'"),
    ("DELETE", "DELETE FROM filled WHERE md5(note) > '0'"),
    ("INSERT", "INSERT INTO filled SELECT -n, n, repeat('x', 100) FROM generate_series(1, 50000000) n"),
    ("CREATE INDEX", "CREATE INDEX ON filled (note, v, id)"),
    ("rewrite", "ALTER TABLE filled ALTER v TYPE text USING md5(v::text) || note"),
    ("foreign key", "ALTER TABLE filled ADD FOREIGN KEY (v) REFERENCES big (id)"),
];

/// Runs the benchmark.
pub async fn run(args: &InterruptArgs) -> Result<()> {
    let chosen: Vec<_> = STATEMENTS
        .iter()
        .filter(|(name, _)| args.only.is_empty() || args.only.iter().any(|only| only == name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = STATEMENTS.iter().map(|(name, _)| *name).collect();
        return Err(Error::Usage(format!("--only: there are {}", names.join(", "))));
    }
    let systems = args.systems.start().await?;
    let mut records = Vec::new();
    for system in &systems {
        load(system, args.rows).await?;
        let bar = crate::progress::steps(&format!("{}: long statements", system.name), chosen.len() as u64);
        let mut found = Vec::new();
        for (name, text) in &chosen {
            found.push((*name, one(args, system, text).await?));
            bar.inc(1);
        }
        bar.finish_and_clear();
        records.extend(total(args, system, &found));
        records.extend(found.iter().map(|(name, measured)| record(args, system, name, measured)));
    }
    println!("{}", table(&records));
    args.output.write("Long statements, cancelled and beside others", &records, "case")
}

/// What one kind of statement showed.
struct Measured {
    /// From each request to cancel to the answer, of those that were running.
    cancels: Vec<Duration>,
    /// How often it had ended before, with what.
    ended: Vec<String>,
    /// Microseconds of the point reads.
    reads: Histogram<u64>,
    /// How the statements beside them ended: by SQLSTATE, or with rows.
    beside: Endings,
    /// What the machine's host took from it meanwhile.
    stolen: Option<Stolen>,
}

/// How often statements ended in which way.
type Endings = BTreeMap<String, u64>;

/// Of one that came to its end.
const ROWS: &str = "rows";
/// How a statement may end beside its like and still be the load that it is to be: it was
/// cancelled, or the other one was in its way.
const LOADED: [&str; 4] = [ROWS, "57014", "40001", "40P01"];

async fn load(system: &System, rows: i32) -> Result<()> {
    let client = system.client().await?;
    let fill = format!(
        "SELECT n, (n::bigint * 7919) % {rows} + 1, 'note ' || md5(n::text) FROM generate_series(1, {rows}) n"
    );
    let mut statements = Vec::new();
    for table in ["big", "filled"] {
        statements.push(format!("DROP TABLE IF EXISTS {table} CASCADE"));
        statements.push(format!("CREATE TABLE {table} (id integer PRIMARY KEY, v integer, note text)"));
        statements.push(format!("INSERT INTO {table} (id, v, note) {fill}"));
    }
    statements.push("VACUUM ANALYZE".to_owned());
    system.execute_each(&client, &statements).await
}

async fn one(args: &InterruptArgs, system: &System, text: &'static str) -> Result<Measured> {
    let mut measured = Measured {
        cancels: Vec::new(),
        ended: Vec::new(),
        beside: Endings::new(),
        stolen: None,
        reads: Histogram::new(3).map_err(|error| Error::Usage(error.to_string()))?,
    };
    for _ in 0..args.cancels {
        let client = system.client().await?;
        let token = client.cancel_token();
        let running = tokio::spawn(async move { execute(&client, text).await });
        tokio::time::sleep(Duration::from_millis(args.after_ms)).await;
        let asked = Instant::now();
        token.cancel_query(NoTls).await.at(&system.name, "cancelling")?;
        match answer(running).await? {
            Some(code) if code == "57014" => measured.cancels.push(asked.elapsed()),
            other => measured.ended.push(other.unwrap_or_else(|| ROWS.to_owned())),
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut loads = Vec::new();
    for _ in 0..2 {
        loads.push(again_and_again(system.client().await?, text, Arc::clone(&stop)));
    }
    let watch = Watch::start();
    let result = reads(args, system, &mut measured.reads).await;
    measured.stolen = watch.end();
    stop.store(true, Ordering::Release);
    for (token, running) in loads {
        // It may just have ended and begun again: it is asked until it has heard.
        while !running.is_finished() {
            token.cancel_query(NoTls).await.at(&system.name, "cancelling")?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for (ending, count) in answer(running).await? {
            *measured.beside.entry(ending).or_default() += count;
        }
    }
    result.map(|()| measured)
}

/// Runs a statement to its end; the SQLSTATE of an error. What it did is taken back.
async fn execute(client: &Client, text: &str) -> Result<Option<String>> {
    client.batch_execute("BEGIN").await.at("the server", "BEGIN")?;
    let code = match client.batch_execute(text).await {
        Ok(()) => None,
        Err(error) => match error.code() {
            Some(code) => Some(code.code().to_owned()),
            None => return Err(error).at("the server", text),
        },
    };
    // A late request to cancel may meet this one: once is enough, since each request ends one
    // statement.
    if client.batch_execute("ROLLBACK").await.is_err() {
        client.batch_execute("ROLLBACK").await.at("the server", "ROLLBACK")?;
    }
    Ok(code)
}

fn again_and_again(
    client: Client,
    text: &'static str,
    stop: Arc<AtomicBool>,
) -> (CancelToken, JoinHandle<Result<Endings>>) {
    let token = client.cancel_token();
    let running = tokio::spawn(async move {
        let mut endings = Endings::new();
        while !stop.load(Ordering::Acquire) {
            // Two of them may meet, and cancelling ends the load. Who is refused for another reason
            // is no load: what there was of that is told.
            let ending = execute(&client, text).await?.unwrap_or_else(|| ROWS.to_owned());
            *endings.entry(ending).or_default() += 1;
        }
        Ok(endings)
    });
    (token, running)
}

async fn answer<T>(running: JoinHandle<Result<T>>) -> Result<T> {
    match tokio::time::timeout(ANSWER_LIMIT, running).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => Err(Error::Server(format!("the client failed: {panic}"))),
        Err(_) => Err(Error::Timeout("a cancelled statement did not answer".to_owned())),
    }
}

/// Reads single rows, one after the other.
async fn reads(args: &InterruptArgs, system: &System, into: &mut Histogram<u64>) -> Result<()> {
    let client = system.client().await?;
    // By itself each system has another level.
    let level = "SET default_transaction_isolation = 'serializable'";
    client.batch_execute(level).await.at(&system.name, level)?;
    let text = "SELECT v FROM big WHERE id = $1";
    let read = client.prepare(text).await.at(&system.name, "preparing a read")?;
    let mut random = Random::stream(args.seed, 0, 0);
    let end = Instant::now() + Duration::from_secs(u64::from(args.seconds));
    while Instant::now() < end {
        let id = random.int(1, args.rows);
        let begun = Instant::now();
        client.query_one(&read, &[&id]).await.at(&system.name, text)?;
        // It grows with what is recorded: a histogram that does not would show its end for all that
        // is longer.
        into.record(begun.elapsed().as_micros() as u64).map_err(|error| Error::Usage(error.to_string()))?;
    }
    Ok(())
}

fn milliseconds(duration: &Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn longest(measured: &Measured) -> f64 {
    measured.cancels.iter().map(milliseconds).fold(0.0, f64::max)
}

fn of(args: &InterruptArgs, system: &System, name: &str, reads: &Histogram<u64>) -> Record {
    let params = parameters(
        system,
        &[
            ("case", json!(name)),
            ("rows", json!(args.rows)),
            ("cancelled_after_ms", json!(args.after_ms)),
            ("seconds", json!(args.seconds)),
            ("isolation", json!("serializable")),
            ("reads", json!(reads.len())),
        ],
    );
    Record {
        system: system.name.clone(),
        workload: "interrupt".to_owned(),
        params,
        committed_per_s: reads.len() as f64 / f64::from(args.seconds),
        aborted_pct: 0.0,
        latency_ms: LatencyMs::from_micros(reads),
    }
}

fn record(args: &InterruptArgs, system: &System, name: &str, measured: &Measured) -> Record {
    let mut record = of(args, system, name, &measured.reads);
    if !measured.cancels.is_empty() {
        record.params.insert("cancel_ms_max".to_owned(), json!(longest(measured)));
    }
    record.params.insert("read_ms_max".to_owned(), json!(measured.reads.max() as f64 / 1000.0));
    if let Some(stolen) = measured.stolen {
        record.params.insert("stolen_ms".to_owned(), json!(milliseconds(&stolen.total)));
        record.params.insert("stolen_ms_max".to_owned(), json!(milliseconds(&stolen.longest)));
    }
    if !measured.ended.is_empty() {
        record.params.insert("ended".to_owned(), json!(measured.ended.join(", ")));
    }
    record.params.insert("beside".to_owned(), json!(measured.beside));
    let refused = measured.beside.iter().filter(|(ending, _)| !LOADED.contains(&ending.as_str()));
    match refused.map(|(_, count)| count).sum::<u64>() {
        0 => {}
        refused => drop(record.params.insert("refused_beside".to_owned(), json!(refused))),
    }
    record
}

/// The worst of all.
fn total(args: &InterruptArgs, system: &System, found: &[(&str, Measured)]) -> Option<Record> {
    let mut reads = found.first()?.1.reads.clone();
    for (_, measured) in &found[1..] {
        reads.add(&measured.reads).ok()?;
    }
    let mut record = of(args, system, TOTAL, &reads);
    record.committed_per_s /= found.len() as f64;
    let cancel = found.iter().map(|(_, measured)| longest(measured)).fold(0.0, f64::max);
    let prefix = if system.name == "cognate" { "" } else { "peer_" };
    record.params.insert(format!("{prefix}worst_cancel_ms"), json!(cancel));
    record.params.insert(format!("{prefix}worst_read_ms"), json!(reads.max() as f64 / 1000.0));
    let stolen = found.iter().filter_map(|(_, measured)| measured.stolen.map(|stolen| stolen.longest)).max();
    if let Some(stolen) = stolen {
        record.params.insert(format!("{prefix}worst_stolen_ms"), json!(milliseconds(&stolen)));
    }
    Some(record)
}

fn table(records: &[Record]) -> String {
    let head = [
        "system",
        "statement",
        "cancelled within ms",
        "reads/s",
        "p50 ms",
        "p99 ms",
        "longest read ms",
        "longest stolen ms",
        "ended",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for record in records {
        let figure = |names: [&str; 3]| {
            let found = names.iter().find_map(|name| record.params.get(*name)?.as_f64());
            found.map_or(String::new(), number)
        };
        rows.push([
            record.system.clone(),
            record.param("case").to_owned(),
            figure(["cancel_ms_max", "worst_cancel_ms", "peer_worst_cancel_ms"]),
            number(record.committed_per_s),
            number(record.latency_ms.p50),
            number(record.latency_ms.p99),
            figure(["read_ms_max", "worst_read_ms", "peer_worst_read_ms"]),
            figure(["stolen_ms_max", "worst_stolen_ms", "peer_worst_stolen_ms"]),
            record.param("ended").to_owned(),
        ]);
    }
    align(&rows, 2)
}
