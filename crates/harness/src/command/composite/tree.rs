//! The paper's trees: its tables 2 and 3 beside ours, and its figures 4 and 5.

use std::time::Duration;

use serde_json::json;

use super::paper::{Published, TABLES};
use super::{Bench, WARMUP, client_threads};
use crate::chart::{Curve, Panel};
use crate::command::turn_about;
use crate::driver::Outcome;
use crate::error::{Error, Result};
use crate::median::mean_error;
use crate::report::{self, LatencyMs, align, number};
use crate::workload::composite::host::Components;
use crate::workload::composite::http::Posts;
use crate::workload::composite::place::{DatabaseKind, Place};
use crate::workload::composite::tree::{NAMES, Semantics, Shape, Tree, body, component};

const ONE: Shape = Shape { depth: 1, width: 1 };
const LARGEST: Shape = Shape { depth: 4, width: 2 };
/// What each component adds to the time before a window, if there are many clients: it opens a
/// connection for each of them. The first roots wait for those of all components, one after the
/// other; a window in which they end measures that.
const WARMUP_OF_COMPONENT: Duration = Duration::from_millis(200);
/// From this cardinality on the throughput in local transactions is to be the same.
const STEADY_FROM: usize = 3;

/// A tree, and whether calls wait for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Program {
    tree: Tree,
    waits: bool,
}

/// A program with so many clients: a row of the results.
struct Cell {
    program: Program,
    clients: u32,
    /// Mean response times in milliseconds, by round.
    means: Vec<f64>,
    /// Roots a second, by round.
    rates: Vec<f64>,
    /// Roots that were begun, and that were committed, at any time.
    begun: u64,
    committed: u64,
    all: Option<Outcome>,
}

impl Cell {
    fn new(program: Program, clients: u32) -> Cell {
        let (means, rates) = (Vec::new(), Vec::new());
        Cell { program, clients, means, rates, begun: 0, committed: 0, all: None }
    }

    fn is(&self, tree: Tree, waits: bool, clients: u32) -> bool {
        self.program == Program { tree, waits } && self.clients == clients
    }

    fn aborted_pct(&self) -> f64 {
        100.0 * (1.0 - self.committed as f64 / self.begun.max(1) as f64)
    }

    fn cardinality(&self) -> f64 {
        self.program.tree.shape.cardinality() as f64
    }

    fn per_s(&self) -> f64 {
        self.rates.iter().sum::<f64>() / self.rates.len().max(1) as f64
    }

    fn response_ms(&self) -> (f64, f64) {
        let latency = self.all.as_ref().map(|all| all.total().latency);
        latency.map_or((f64::NAN, f64::NAN), |latency| (latency.mean() / 1000.0, latency.stdev() / 1000.0))
    }

    fn case(&self, kind: DatabaseKind) -> String {
        let Program { tree, waits } = self.program;
        let mut case = format!("{}, {}", kind.name(), tree.shape.name());
        if tree.semantics != Semantics::AllConflict {
            case += &format!(" ({})", tree.semantics.name());
        }
        if tree.parallel {
            case += " with parallel calls";
        }
        case += &format!(", {} client{}", self.clients, if self.clients == 1 { "" } else { "s" });
        if !waits {
            case += ", without waiting";
        }
        case
    }
}

fn serial(shape: Shape, semantics: Semantics) -> Tree {
    Tree { shape, semantics, parallel: false }
}

/// The names of the trees, as the paper writes them.
pub(super) fn names() -> Vec<String> {
    let all = TABLES.iter().filter(|published| published.semantics == Semantics::AllConflict);
    all.map(|published| published.shape.name()).collect()
}

/// All programs of these trees (of all, if none is named): those of the paper, each with and
/// without waiting, and the wide ones with parallel calls.
fn programs(trees: &[String]) -> Vec<Program> {
    let mut all = Vec::new();
    for Published { shape, semantics, .. } in TABLES {
        if !trees.is_empty() && !trees.contains(&shape.name()) {
            continue;
        }
        for waits in [true, false] {
            all.push(Program { tree: serial(shape, semantics), waits });
        }
        if shape.width > 1 && semantics == Semantics::AllConflict {
            all.push(Program { tree: Tree { parallel: true, ..serial(shape, semantics) }, waits: true });
        }
    }
    all
}

/// Measures all of them in rounds.
pub(super) async fn measure(bench: &mut Bench<'_>, kind: DatabaseKind, place: &mut Place) -> Result<()> {
    let (many, programs) = (bench.args.clients, programs(&bench.args.trees));
    let mut cells: Vec<Cell> = Vec::new();
    for &program in &programs {
        cells.push(Cell::new(program, many));
        if program.waits && program.tree.semantics == Semantics::AllConflict && many != 1 {
            cells.push(Cell::new(program, 1));
        }
    }
    for round in 0..bench.args.rounds {
        for at in turn_about(round, programs.len()) {
            let program = programs[at];
            let of = cells.iter_mut().filter(|cell| cell.program == program).collect();
            one(bench, kind, place, program, of).await?;
        }
    }
    println!("{}", table(kind, &cells, many));
    bench.panels.extend(panels(kind, &cells, many));
    record(bench, kind, place, &cells);
    Ok(())
}

/// A round of a program: a fresh start, its clients, and a look at what is there at the end.
async fn one(
    bench: &mut Bench<'_>,
    kind: DatabaseKind,
    place: &mut Place,
    program: Program,
    cells: Vec<&mut Cell>,
) -> Result<()> {
    let Program { tree, waits } = program;
    let nodes = (0..tree.shape.cardinality()).map(|node| {
        let component = component(tree, node);
        (NAMES[node], if waits { component } else { component.lock_wait(Duration::ZERO) })
    });
    let components = Components::start(place, "", client_threads(), nodes.collect()).await?;
    let mut acknowledged = 0;
    for cell in cells {
        let posts = Posts {
            name: NAMES[0].to_owned(),
            address: components.address(),
            path: "/services/buy",
            body,
            run: bench.next_run(),
        };
        let begun = components.roots_begun();
        let opening = match cell.clients {
            1 => Duration::ZERO,
            _ => WARMUP_OF_COMPONENT * tree.shape.cardinality() as u32,
        };
        let (clients, case) = (cell.clients, cell.case(kind));
        let driving = bench.drive_after(WARMUP + opening, std::sync::Arc::new(posts), clients, case);
        let outcome = driving.await?;
        components.settle().await?;
        let total = outcome.total();
        acknowledged += total.acknowledged;
        cell.begun += components.roots_begun() - begun;
        cell.committed += total.acknowledged;
        cell.means.push(LatencyMs::from_micros(&total.latency).mean);
        cell.rates.push(outcome.committed_per_s());
        match &mut cell.all {
            Some(all) => all.add(&outcome),
            none => *none = Some(outcome),
        }
    }
    for (name, bought) in components.ask_each("/services/total", "null").await? {
        if bought != json!(acknowledged) {
            return Err(Error::Violation(format!(
                "{}: {name}: {acknowledged} ROOTS ARE COMMITTED, AND {bought} ITEMS ARE BOUGHT",
                tree.shape.name()
            )));
        }
    }
    components.stop().await
}

/// The paper's tables beside ours.
fn table(kind: DatabaseKind, cells: &[Cell], many: u32) -> String {
    let head = [
        kind.name(),
        "nodes",
        "roots/min",
        "local/min",
        "ms",
        "± ms",
        "aborted %",
        "not waiting %",
        "paper: nodes",
        "roots/min",
        "local/min",
        "ms",
        "aborted %",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for published in &TABLES {
        let tree = serial(published.shape, published.semantics);
        let of = |waits: bool| cells.iter().find(|cell| cell.is(tree, waits, many));
        let (Some(waiting), Some(not_waiting)) = (of(true), of(false)) else { continue };
        let (mean, stdev) = waiting.response_ms();
        let per_minute = 60.0 * waiting.per_s();
        let name = match published.semantics {
            Semantics::AllConflict => published.shape.name(),
            semantics => format!("{} ({})", published.shape.name(), semantics.name()),
        };
        rows.push([
            name,
            number(waiting.cardinality()),
            number(per_minute),
            number(per_minute * waiting.cardinality()),
            number(mean),
            number(stdev),
            format!("{:.2}", waiting.aborted_pct()),
            format!("{:.2}", not_waiting.aborted_pct()),
            published.cardinality.to_string(),
            number(published.roots),
            number(published.overall),
            number(published.response_ms),
            format!("{:.2}", published.aborted_pct),
        ]);
    }
    align(&rows, 1)
}

/// The worst case of the paper, with so many clients, in the order of cardinality.
fn over_cardinality(cells: &[Cell], clients: u32) -> Vec<&Cell> {
    let is_worst = |cell: &&Cell| {
        let Program { tree, waits } = cell.program;
        waits && cell.clients == clients && tree == serial(tree.shape, Semantics::AllConflict)
    };
    let mut worst: Vec<&Cell> = cells.iter().filter(is_worst).collect();
    worst.sort_by_key(|cell| cell.program.tree.shape.cardinality());
    worst
}

fn panels(kind: DatabaseKind, cells: &[Cell], many: u32) -> [Panel; 2] {
    let curve = |clients: u32, name: &str, value: fn(&Cell) -> f64| {
        let points =
            over_cardinality(cells, clients).into_iter().map(|cell| (cell.cardinality(), value(cell)));
        Curve { name: name.to_owned(), points: points.collect() }
    };
    let of_many = format!("{many} clients");
    let response = |cell: &Cell| cell.response_ms().0;
    [
        Panel {
            title: format!("{}: response time, ms", kind.name()),
            curves: vec![curve(many, &of_many, response), curve(1, "1 client", response)],
        },
        Panel {
            title: format!("{}: {many} clients, a second", kind.name()),
            curves: vec![
                curve(many, "local transactions", |cell| cell.per_s() * cell.cardinality()),
                curve(many, "roots", Cell::per_s),
            ],
        },
    ]
}

/// The slope of the line with the least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let above: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let below: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    above / below
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// A figure for each round, from the cells' figures of that round.
fn by_round(rounds: u32, of: impl Fn(usize) -> Option<f64>) -> Vec<f64> {
    (0..rounds as usize).filter_map(of).collect()
}

/// The figures of the goals, each with its name.
fn summary(cells: &[Cell], rounds: u32, many: u32) -> Vec<(&'static str, Vec<f64>)> {
    let response = |clients: u32| {
        let worst = over_cardinality(cells, clients);
        by_round(rounds, |round| {
            let one = worst.iter().find(|cell| cell.program.tree.shape == ONE)?.means.get(round)?;
            let points = worst.iter().map(|cell| Some((cell.cardinality(), *cell.means.get(round)?)));
            Some(slope(&points.collect::<Option<Vec<_>>>()?) / one)
        })
    };
    let worst = over_cardinality(cells, many);
    let steady = by_round(rounds, |round| {
        let from = worst.iter().filter(|cell| cell.program.tree.shape.cardinality() >= STEADY_FROM);
        let rates = from.map(|cell| Some(cell.rates.get(round)? * cell.cardinality()));
        let rates = rates.collect::<Option<Vec<f64>>>()?;
        let lowest = rates.iter().copied().reduce(f64::min)?;
        Some(lowest / rates.iter().copied().reduce(f64::max)?)
    });
    let alone = over_cardinality(cells, 1);
    let parallel = by_round(rounds, |round| {
        let one = alone.iter().find(|cell| cell.program.tree.shape == ONE)?.means.get(round)?;
        let wide = cells.iter().filter(|cell| cell.program.tree.parallel && cell.clients == 1);
        let of_depth =
            wide.map(|cell| Some(cell.means.get(round)? / one / f64::from(cell.program.tree.shape.depth)));
        of_depth.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
    });
    vec![
        ("slope_many", response(many)),
        ("slope_one", response(1)),
        ("steady", steady),
        ("parallel_of_depth", parallel),
    ]
}

fn record(bench: &mut Bench<'_>, kind: DatabaseKind, place: &Place, cells: &[Cell]) {
    let (rounds, many) = (bench.args.rounds, bench.args.clients);
    let mut records = Vec::new();
    for cell in cells {
        let Some(all) = &cell.all else { continue };
        let Program { tree, waits } = cell.program;
        let params = bench.parameters(
            place,
            kind,
            &[
                ("case", json!(cell.case(kind))),
                ("clients", json!(cell.clients)),
                ("cardinality", json!(tree.shape.cardinality())),
                ("local_per_s", json!(cell.per_s() * cell.cardinality())),
                ("stdev_ms", json!(cell.response_ms().1)),
                ("waits", json!(waits)),
                ("per_s_of_rounds", json!(cell.rates)),
                ("mean_ms_of_rounds", json!(cell.means)),
            ],
        );
        let mut record = report::records("composite", "composite", &params, all).remove(0);
        record.aborted_pct = cell.aborted_pct();
        if cell.is(serial(LARGEST, Semantics::AllConflict), waits, many) {
            let name = if waits { "aborted_waiting" } else { "aborted_not_waiting" };
            record.measured(&format!("{}_{name}", kind.name()), cell.aborted_pct(), f64::NAN);
        }
        records.push(record);
    }
    if let Some(first) = records.first_mut() {
        for (name, values) in summary(cells, rounds, many) {
            if !values.is_empty() {
                first.measured(&format!("{}_{name}", kind.name()), mean(&values), mean_error(&values));
                println!("{}: {}: {}", kind.name(), name.replace('_', " "), number(mean(&values)));
            }
        }
    }
    bench.records.append(&mut records);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_slope() {
        assert!((slope(&[(1.0, 5.0), (2.0, 7.0), (4.0, 11.0)]) - 2.0).abs() < 1e-9);
        assert!((slope(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)]) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn each_tree_is_measured_with_and_without_waiting() {
        let programs = programs(&[]);
        assert_eq!(programs.iter().filter(|program| !program.waits).count(), TABLES.len());
        assert_eq!(programs.len(), 2 * TABLES.len() + 6, "six are wide");
    }
}
