//! Every benchmark's result has one shape.

use std::time::{Duration, Instant};

use cognate_harness::chart::{self, Curve, Panel};
use cognate_harness::checker::history::Abort;
use cognate_harness::driver::{Counts, Outcome, Recorder, Window};
use cognate_harness::report::{self, Record, TOTAL};
use cognate_harness::results;
use cognate_harness::workload::pgbench::parse_output;
use serde_json::{Map, Value, json};

fn outcome(committed: u64) -> Outcome {
    let mut counts = Counts::new();
    counts.committed = committed;
    counts.aborted = 25;
    for n in 1..=100 {
        counts.latency.record(n * 1000).expect("a small value");
    }
    Outcome {
        seconds: 2.0,
        kinds: vec!["Home".to_owned(), "Buy Confirm".to_owned()],
        counts: vec![counts, Counts::new()],
        first_error: None,
    }
}

fn records() -> Vec<Record> {
    let mut params = Map::new();
    params.insert("clients".to_owned(), json!(80));
    let mut records = report::records("cognate", "bookstore", &params, &outcome(150));
    records.extend(report::records("postgres", "bookstore", &params, &outcome(75)));
    records
}

#[test]
fn json_has_the_promised_fields_and_no_others() {
    let text = serde_json::to_string(&records()).unwrap();
    let list: Vec<Map<String, Value>> = serde_json::from_str(&text).unwrap();
    assert_eq!(list.len(), 6, "two kinds and the total, on two systems");
    for record in &list {
        let mut keys: Vec<&str> = record.keys().map(String::as_str).collect();
        keys.sort_unstable();
        let expected = ["aborted_pct", "committed_per_s", "latency_ms", "params", "system", "workload"];
        assert_eq!(keys, expected);
        let latency = record["latency_ms"].as_object().unwrap();
        let mut keys: Vec<&str> = latency.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["mean", "p50", "p95", "p99"]);
        assert!(latency.values().all(Value::is_number));
    }
    let home = &list[0];
    assert_eq!(home["committed_per_s"], json!(75.0));
    assert_eq!(home["params"]["interaction"], json!("Home"));
    assert_eq!(home["params"]["clients"], json!(80));
    let aborted = home["aborted_pct"].as_f64().unwrap();
    assert!((aborted - 100.0 * 25.0 / 175.0).abs() < 1e-9);
}

#[test]
fn latencies_are_milliseconds() {
    let latency = records()[0].latency_ms;
    assert!((latency.mean - 50.5).abs() < 0.1, "{latency:?}");
    assert!((latency.p50 - 50.0).abs() < 0.1, "{latency:?}");
    assert!((latency.p95 - 95.0).abs() < 0.1, "{latency:?}");
    assert!((latency.p99 - 99.0).abs() < 0.1, "{latency:?}");
}

#[test]
fn the_table_and_the_ratios_name_every_row() {
    let table = report::table(&records(), "interaction");
    assert_eq!(table.lines().count(), 8, "{table}");
    let widths: Vec<usize> = table.lines().map(str::len).collect();
    assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
    let ratios = report::ratios(&records(), "interaction", "cognate", "postgres");
    assert_eq!(ratios, vec![("Home".to_owned(), 2.0), (TOTAL.to_owned(), 2.0)]);
}

#[test]
fn json_files_are_written_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/results.json");
    report::write_json(&path, &records()).unwrap();
    let back: Vec<Record> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(back, records());
}

#[test]
fn the_chart_is_an_svg_with_every_figure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.svg");
    report::write_svg(&path, "Bookstore", &records(), "interaction").unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("<svg") && text.contains("cognate Home") && text.contains("postgres total"));
    assert!(report::write_svg(&path, "Nothing", &[], "interaction").is_err());
}

#[test]
fn curves_are_an_svg_with_every_panel_and_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/curves.svg");
    let curve = |name: &str| Curve { name: name.to_owned(), points: vec![(1.0, 900.0), (80.0, 4000.0)] };
    let panel = |title: &str| Panel { title: title.to_owned(), curves: vec![curve("pssi"), curve("ssi")] };
    chart::write(&path, "s3u1", "clients", &[panel("committed/s"), panel("aborted")]).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    for part in ["<svg", "pssi", "ssi", "committed/s", "aborted", "clients", "s3u1"] {
        assert!(text.contains(part), "{part}");
    }
    let empty = Panel { title: "nothing".to_owned(), curves: Vec::new() };
    assert!(chart::write(&path, "nothing", "clients", &[empty]).is_err());
}

#[test]
fn aborts_are_counted_by_reason() {
    let start = Instant::now();
    let window = Window { from: start, until: start + Duration::from_secs(100) };
    let mut recorder = Recorder::new(window, 1);
    recorder.aborted(0, Abort::Certifier);
    recorder.aborted(0, Abort::FirstUpdater);
    recorder.aborted(0, Abort::FirstUpdater);
    recorder.committed(0, start);
    let mut counts = recorder.counts()[0].clone();
    counts.add(&recorder.counts()[0]);
    assert_eq!((counts.aborted, counts.aborted_pct()), (6, 75.0));
    assert_eq!((counts.reason_pct(Abort::Certifier), counts.reason_pct(Abort::FirstUpdater)), (25.0, 50.0));
    assert_eq!(counts.reason_pct(Abort::Deadlock), 0.0);
}

#[test]
fn only_the_window_counts_as_measured() {
    let start = Instant::now();
    let (past, future) = (start - Duration::from_secs(10), start + Duration::from_secs(10));
    let mut before = Recorder::new(Window { from: future, until: future + Duration::from_secs(1) }, 1);
    before.committed(0, start);
    assert!(!before.is_over());
    let mut over = Recorder::new(Window { from: past, until: start - Duration::from_secs(1) }, 1);
    over.committed(0, past);
    assert!(over.is_over());
    let mut within = Recorder::new(Window { from: past, until: future }, 1);
    within.committed(0, past);
    let counts = [before, over, within].map(|recorder| {
        let counts = &recorder.counts()[0];
        (counts.committed, counts.acknowledged, counts.latency.len())
    });
    assert_eq!(counts, [(0, 1, 0), (0, 1, 0), (1, 1, 1)]);
}

#[test]
fn pgbench_output_is_understood() {
    let output = "transaction type: <builtin: TPC-B (sort of)>\nscaling factor: 10\nquery mode: prepared\n\
        number of transactions actually processed: 8000\nnumber of failed transactions: 100 (1.235%)\n\
        number of transactions retried: 900 (11.111%)\ntotal number of retries: 1900\n\
        latency average = 2.1 ms\ninitial connection time = 20.1 ms\n\
        tps = 1234.567890 (without initial connection time)\n";
    let (tps, aborted) = parse_output(output).unwrap();
    assert!((tps - 1234.56789).abs() < 1e-6);
    assert!((aborted - 20.0).abs() < 1e-9, "2000 of 10000 attempts");
    assert_eq!(parse_output("pgbench: error: connection refused"), None);
}

#[test]
fn results_compare_what_was_measured_with_the_goals() {
    let mut bookstore = records();
    for record in &mut bookstore {
        record.workload = "bookstore".to_owned();
        record.params.insert("command".to_owned(), json!("cognate-bench bookstore"));
    }
    let (json, docs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    report::write_json(&json.path().join("bookstore.json"), &bookstore).unwrap();
    std::fs::create_dir_all(docs.path().join("results")).unwrap();
    std::fs::write(docs.path().join("results/bookstore.svg"), "<svg/>").unwrap();
    results::write(&results::load(json.path()).unwrap(), docs.path()).unwrap();
    let read = |name: &str| std::fs::read_to_string(docs.path().join(name)).unwrap();
    let first = read("results.md");
    let row = "| [bookstore, ordering mix, 80 clients: Cognate / PostgreSQL](results/bookstore.md) |  | ≥ 1× | 2× | 2.00× | yes |";
    assert!(first.contains(row), "{first}");
    assert!(
        first.contains("| kill -9 rounds: transactions lost or too many | | ≤ 0 | 0 | not measured | |"),
        "{first}"
    );
    let page = read("results/bookstore.md");
    for part in
        ["    cognate-bench bookstore\n", "![bookstore](bookstore.svg)", "| postgres | Home |  | 37.5 |"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    std::fs::write(json.path().join("broken.json"), "{").unwrap();
    assert!(results::load(json.path()).is_err(), "a damaged file is no result");
}
