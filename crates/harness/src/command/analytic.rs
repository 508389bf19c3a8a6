//! `cognate-bench analytic`: five long queries over one table, in turns on all systems.
//!
//! The table is loaded by the same statements everywhere. In each round every system answers a
//! query once, in turns forwards and backwards, on a connection of its own; the first round warms
//! up and does not count. The answers must be the same. What matters is the median of the rounds'
//! ratios: of each query, their geometric mean, and the worst.

use std::time::Instant;

use clap::Args;
use serde_json::json;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{OutputArgs, SystemArgs, parameters, turn_about};
use crate::error::{DatabaseContext, Error, Result};
use crate::median::{median, median_ratio, ratio_error};
use crate::peer::System;
use crate::report::{self, LatencyMs, Record};

/// The arguments of the analytic queries.
#[derive(Clone, Debug, Args)]
pub struct AnalyticArgs {
    #[command(flatten)]
    systems: SystemArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Rows of the table.
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    rows: u32,
    /// Rounds that count.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

const QUERIES: [(&str, &str); 5] = [
    (
        "grouped sums",
        "SELECT channel, status, sum(quantity), sum(price), sum(price * (1 - discount)), \
         sum(price * (1 - discount) * (1 + tax)), avg(quantity), avg(price), avg(discount), count(*) \
         FROM sale WHERE sold <= date '1998-09-02' GROUP BY channel, status ORDER BY channel, status",
    ),
    (
        "filtered sum",
        "SELECT sum(price * discount) FROM sale WHERE sold >= date '1994-01-01' AND sold < date '1995-01-01' \
         AND discount BETWEEN 0.05 AND 0.07 AND quantity < 24",
    ),
    (
        "groups of four, top three",
        "SELECT product, region, channel, status, count(*), sum(quantity) AS total FROM sale \
         GROUP BY product, region, channel, status ORDER BY total DESC, product, region, channel, status LIMIT 3",
    ),
    (
        "row_number by partition",
        "SELECT count(*), sum(price) FROM (SELECT price, row_number() OVER (PARTITION BY customer \
         ORDER BY price DESC, id) AS place FROM sale) AS ranked WHERE place <= 2",
    ),
    ("self join by key", "SELECT count(*), sum(a.quantity + b.tax) FROM sale a JOIN sale b ON b.id = a.id"),
];

/// Runs the benchmark.
pub async fn run(args: &AnalyticArgs) -> Result<()> {
    let systems = args.systems.start().await?;
    let mut clients = Vec::new();
    for system in &systems {
        let client = system.client().await?;
        system.execute_each(&client, &load(args.rows)).await?;
        // Whatever they have as their default.
        let level = "SET default_transaction_isolation = 'serializable'".to_owned();
        system.execute_each(&client, &[level]).await?;
        clients.push(client);
    }
    let mut records = Vec::new();
    let mut ratios = Vec::new();
    for (name, query) in QUERIES {
        let times = measure(args, &systems, &clients, name, query).await?;
        if let [ours, theirs] = times.as_slice() {
            ratios.push((median_ratio(ours, theirs), ratio_error(ours, theirs)));
        }
        let of_system = |(system, times): (&System, &Vec<f64>)| record(args, system, name, times);
        records.extend(systems.iter().zip(&times).map(of_system));
    }
    println!("{}", report::table(&records, "case"));
    for ((name, _), (ratio, _)) in QUERIES.iter().zip(&ratios) {
        println!("{name}: {ratio:.2} of {}", systems[1].name);
    }
    if let (Some(first), false) = (records.first_mut(), ratios.is_empty()) {
        let count = ratios.len() as f64;
        let mean = (ratios.iter().map(|(ratio, _)| ratio.ln()).sum::<f64>() / count).exp();
        // Relative errors add up as those of a mean of logarithms do.
        let error =
            ratios.iter().map(|(ratio, error)| (error / ratio).powi(2)).sum::<f64>().sqrt() / count * mean;
        first.measured("time_of_postgres", mean, error);
        println!("geometric mean: {mean:.2}");
        if let Some((worst, error)) = ratios.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0)) {
            first.measured("worst_of_postgres", worst, error);
        }
    }
    args.output.write("Long queries", &records, "case")
}

fn load(rows: u32) -> Vec<String> {
    let columns = "id integer PRIMARY KEY, customer integer NOT NULL, product integer NOT NULL, region integer NOT NULL, \
                   channel char(1) NOT NULL, status char(1) NOT NULL, sold date NOT NULL, quantity numeric(12,2) NOT NULL, \
                   price numeric(12,2) NOT NULL, discount numeric(12,2) NOT NULL, tax numeric(12,2) NOT NULL";
    let values = "i, (i::bigint * 7919 % 20011)::int, i % 7, (i::bigint * 31 % 11)::int, substr('ANR', i % 3 + 1, 1), \
                  substr('FO', i / 3 % 2 + 1, 1), date '1992-01-01' + i % 2557, i % 50 + 1, \
                  (i::bigint * 7919 % 10000019) / 100.0, i % 11 / 100.0, i % 9 / 100.0";
    vec![
        "DROP TABLE IF EXISTS sale".to_owned(),
        format!("CREATE TABLE sale ({columns})"),
        format!("INSERT INTO sale SELECT {values} FROM generate_series(1, {rows}) AS s (i)"),
        "VACUUM ANALYZE".to_owned(),
    ]
}

/// Milliseconds of each round on each system.
async fn measure(
    args: &AnalyticArgs,
    systems: &[System],
    clients: &[Client],
    name: &str,
    query: &str,
) -> Result<Vec<Vec<f64>>> {
    let mut times = vec![Vec::new(); systems.len()];
    for round in 0..=args.rounds {
        let mut answers = Vec::new();
        for place in turn_about(round, systems.len()) {
            let (system, client) = (&systems[place], &clients[place]);
            let started = Instant::now();
            let answer = client.simple_query(query).await.at(&system.name, name)?;
            if round > 0 {
                times[place].push(1000.0 * started.elapsed().as_secs_f64());
            }
            answers.push(lines(&answer));
        }
        if answers.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(Error::Violation(format!("{name}: the systems answer differently: {answers:?}")));
        }
    }
    Ok(times)
}

fn lines(answer: &[SimpleQueryMessage]) -> Vec<Vec<Option<String>>> {
    let rows = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.map(|row| (0..row.len()).map(|place| row.get(place).map(str::to_owned)).collect()).collect()
}

fn record(args: &AnalyticArgs, system: &System, name: &str, times: &[f64]) -> Record {
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let rates: Vec<f64> = times.iter().map(|time| 1000.0 / time).collect();
    let params = parameters(
        system,
        &[
            ("case", json!(name)),
            ("isolation", json!("serializable")),
            ("rows", json!(args.rows)),
            ("rounds", json!(args.rounds)),
            ("per_s_of_rounds", json!(rates)),
        ],
    );
    Record {
        system: system.name.clone(),
        workload: "analytic".to_owned(),
        params,
        committed_per_s: median(&rates),
        aborted_pct: 0.0,
        latency_ms: LatencyMs { mean, p50: median(times), p95: slowest, p99: slowest },
    }
}
