//! Figures 3 to 8 of the metaprotocol's paper, as Cognate draws them: two and four nodes,
//! transactions of twenty updates that are due at a fixed pace, each protocol alone and all
//! mixtures with the same share of transactions each.
//!
//! As in the paper, a transaction waits for a connection that is free, which counts as a part of
//! its length, and one that is refused is not made again. The paper's loads, 20 to 80 transactions
//! a second, are the first four; those that follow go on to where the machine has no more to give.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::place::Place;
use super::protocols::MIXTURES;
use super::turns::{Load, Way};
use super::{Bench, WARMUP};
use crate::chart::{self, Curve, Panel};
use crate::command::client_threads;
use crate::driver::{self, Counts, Plan};
use crate::error::Result;
use crate::report;
use crate::workload::bookstore::Isolation::Serializable;
use crate::workload::pace::Pace;
use crate::workload::updates::Spread;

const SIZES: [usize; 2] = [2, 4];
/// Connections to each node: the paper's ten, and two more so that three protocols have the same
/// share.
const CONNECTIONS: u32 = 12;
/// What one transaction updates.
const UPDATES: usize = 20;

/// One mixture at one size.
struct Line {
    name: &'static str,
    protocols: &'static [&'static str],
    points: Vec<Point>,
}

/// What a load came to, by protocol.
struct Point {
    load: f64,
    seconds: f64,
    counts: Vec<Counts>,
}

/// See the module's prose.
pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let mut sizes = Vec::new();
    for nodes in SIZES {
        sizes.push((nodes, size(bench, nodes).await?));
    }
    if let Some(path) = &bench.args.curves {
        chart::write(
            path,
            "Figures 3 to 8 of the paper, by Cognate",
            "transactions/s that are due",
            &panels(&sizes),
        )?;
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}

async fn size(bench: &mut Bench<'_>, nodes: usize) -> Result<Vec<Line>> {
    let mut place = Place::cluster(bench.args, nodes).await?;
    place.fill(&bench.shape(UPDATES)).await?;
    let mut lines = Vec::new();
    // Without what the monitor makes of it, which is not the paper's.
    for (name, protocols) in MIXTURES.iter().take(7) {
        let mut points = Vec::new();
        for &load in &bench.args.loads {
            points.push(point(bench, &mut place, name, protocols, load).await?);
        }
        let line = Line { name, protocols, points };
        record(bench, &place, nodes, &line);
        lines.push(line);
    }
    place.check().await?;
    Ok(lines)
}

async fn point(
    bench: &mut Bench<'_>,
    place: &mut Place,
    name: &str,
    protocols: &'static [&'static str],
    load: f64,
) -> Result<Point> {
    let nodes = place.targets.len();
    let round = bench.next_run();
    let clients = CONNECTIONS * nodes as u32;
    let case = format!("{nodes} nodes, {name}, {load} a second");
    let settings = vec!["SET cognate.statement_retries = 0".to_owned()];
    let way = Way {
        protocols,
        settings,
        whole: true,
        ..Way::new(0, case.clone(), Serializable, clients, Load::Updates(UPDATES))
    };
    let share = load / (nodes * protocols.len()) as f64;
    let mut all = way.updates(bench, place, UPDATES, round);
    for (at, updates) in all.iter_mut().enumerate() {
        updates.kinds = protocols.iter().map(|name| (*name).to_owned()).collect();
        // Protocol by protocol, and each at all nodes.
        updates.kind = at / nodes;
        updates.pace = Some(Arc::new(Pace::new(Duration::from_secs_f64(1.0 / share))));
    }
    let plan = Plan {
        label: case,
        clients: clients as usize,
        threads: client_threads(),
        warmup: WARMUP,
        measured: Duration::from_secs(u64::from(bench.args.load_seconds)),
    };
    let outcome = driver::run(Arc::new(Spread(all)), &plan).await?;
    place.note(&outcome, UPDATES);
    if let Some(error) = &outcome.first_error {
        eprintln!("{}: an error: {error}", plan.label);
    }
    Ok(Point { load, seconds: outcome.seconds, counts: outcome.counts })
}

impl Point {
    /// Milliseconds of the committed transactions of a protocol, from when they were due.
    fn length_ms(&self, protocol: usize) -> Option<f64> {
        let latency = &self.counts[protocol].latency;
        (!latency.is_empty()).then(|| latency.mean() / 1000.0)
    }

    fn aborted_pct(&self, protocol: usize) -> Option<f64> {
        let counts = &self.counts[protocol];
        (counts.committed + counts.aborted > 0).then(|| counts.aborted_pct())
    }

    fn output(&self) -> f64 {
        self.counts.iter().map(|counts| counts.committed).sum::<u64>() as f64 / self.seconds
    }
}

fn record(bench: &mut Bench<'_>, place: &Place, nodes: usize, line: &Line) {
    let of = |figure: fn(&Point, usize) -> Option<f64>| -> Value {
        let protocols = line.protocols.iter().enumerate().map(|(at, protocol)| {
            let points: Vec<Option<f64>> = line
                .points
                .iter()
                .map(|point| figure(point, at).map(|value| (value * 100.0).round() / 100.0))
                .collect();
            ((*protocol).to_owned(), json!(points))
        });
        Value::Object(protocols.collect())
    };
    let loads: Vec<f64> = line.points.iter().map(|point| point.load).collect();
    let output: Vec<f64> = line.points.iter().map(|point| point.output().round()).collect();
    let pairs = [
        ("case", json!(format!("the paper's figures, {nodes} nodes, {}", line.name))),
        ("isolation", json!(Serializable.name())),
        ("durable", json!(place.durable)),
        ("nodes", json!(nodes)),
        ("clients", json!(CONNECTIONS * nodes as u32)),
        ("rows", json!(bench.args.rows)),
        ("updates", json!(UPDATES)),
        ("due_per_s", json!(loads)),
        ("committed_per_s_of_loads", json!(output)),
        ("length_ms", of(Point::length_ms)),
        ("aborted_pct_of_loads", of(Point::aborted_pct)),
    ];
    let params = bench.parameters(&place.version, &pairs);
    let Some(last) = line.points.last() else { return };
    let mut total = Counts::new();
    last.counts.iter().for_each(|counts| total.add(counts));
    let outcome = driver::Outcome {
        seconds: last.seconds,
        kinds: vec!["updates".to_owned()],
        counts: vec![total],
        first_error: None,
    };
    bench.records.push(report::records(place.system, "replication", &params, &outcome).remove(0));
}

/// The paper's panels.
fn panels(sizes: &[(usize, Vec<Line>)]) -> Vec<Panel> {
    let mut panels = Vec::new();
    let mut panel = |title: String,
                     nodes: usize,
                     protocol: &str,
                     figure: fn(&Point, usize) -> Option<f64>| {
        let lines = sizes.iter().filter(|(size, _)| *size == nodes).flat_map(|(_, lines)| lines);
        let curves = lines.filter_map(|line| {
            let at = line.protocols.iter().position(|of| *of == protocol)?;
            let point = |point: &Point| Some((point.load, figure(point, at)?));
            Some(Curve { name: line.name.to_owned(), points: line.points.iter().filter_map(point).collect() })
        });
        panels.push(Panel { title, curves: curves.collect() });
    };
    for (at, nodes) in SIZES.into_iter().enumerate() {
        panel(format!("Fig. 3: active, {nodes} nodes, ms"), nodes, "active", Point::length_ms);
        for (first, protocol) in [(4, "certification"), (6, "weak_voting")] {
            let number = first + at;
            panel(format!("Fig. {number}: {protocol}, {nodes} nodes, ms"), nodes, protocol, Point::length_ms);
            let title = format!("Fig. {number}: {protocol}, {nodes} nodes, % refused");
            panel(title, nodes, protocol, Point::aborted_pct);
        }
    }
    panels.sort_by(|a, b| a.title.cmp(&b.title));
    for (nodes, lines) in sizes {
        let curves = lines.iter().map(|line| Curve {
            name: line.name.to_owned(),
            points: line.points.iter().map(|point| (point.load, point.output())).collect(),
        });
        panels.push(Panel { title: format!("Fig. 8: {nodes} nodes, committed/s"), curves: curves.collect() });
    }
    panels
}
