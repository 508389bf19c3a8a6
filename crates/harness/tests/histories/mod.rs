//! Random transactions through SQL, in an order that follows from the seed: every operation, every reason to abort.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use cognate::Database;
use cognate_harness::checker::history::Abort;
use cognate_harness::checker::verdict::Verdict;
use cognate_harness::random::Random;
use cognate_harness::workload::bookstore::Isolation;
use cognate_harness::workload::recorded::generate::Shape;
use cognate_harness::workload::recorded::recorder::Step;
use cognate_harness::workload::recorded::stage::{self, Stage};

const SESSIONS: usize = 5;
const TRANSACTIONS: usize = 60;

fn first_seed() -> u64 {
    let first = std::env::var("COGNATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("COGNATE_SEED={first}");
    first
}

/// One run; returns the verdict, and everything about the run for a message.
async fn history(database: &Database, isolation: Isolation, analytic: bool, seed: u64) -> (Verdict, String) {
    let shape = Shape { keys: 12, groups: 8, operations: 4, analytic };
    let mut random = Random::new(seed);
    let mut stage = Stage::new(database, SESSIONS, isolation).unwrap();
    stage.load(&shape.rows(&mut random)).await.unwrap();
    let mut scripts: Vec<VecDeque<Step>> = vec![VecDeque::new(); SESSIONS];
    let mut left = TRANSACTIONS;
    loop {
        let ready: Vec<usize> = (0..SESSIONS)
            .filter(|&session| !stage.waits(session) && (left > 0 || !scripts[session].is_empty()))
            .collect();
        if ready.is_empty() {
            break;
        }
        let session = random.pick(&ready);
        if scripts[session].is_empty() {
            scripts[session] = shape.transaction(&mut random).into();
            left -= 1;
        }
        if let Some(step) = scripts[session].pop_front() {
            stage.step(session, step).await.unwrap_or_else(|error| panic!("COGNATE_SEED={seed}: {error}"));
        }
    }
    let history = stage.take_history().unwrap_or_else(|error| panic!("COGNATE_SEED={seed}: {error}"));
    let verdict = Verdict::of(&history);
    let told: Vec<String> =
        stage.take_failures().into_iter().map(|(id, failure)| format!("T{id}: {failure:?}")).collect();
    let victims = history.transactions.iter().filter(|t| verdict.needless.contains(&t.id));
    let victims: Vec<String> = victims.map(|victim| format!("{victim:?}")).collect();
    let (told, victims) = (told.join("\n"), victims.join("\n"));
    let text = format!("COGNATE_SEED={seed}: {verdict}\n{told}\nneedlessly aborted:\n{victims}");
    (verdict, text)
}

/// Runs of many seeds, each on a database of its own; `judge` gets each verdict.
fn runs(isolation: Isolation, analytic: bool, seeds: u64, mut judge: impl FnMut(&Verdict, &str)) {
    let first = first_seed();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for seed in first..first + seeds {
            let database = stage::open(|options| options).await.unwrap();
            let (verdict, text) = history(&database, isolation, analytic, seed).await;
            judge(&verdict, &text);
        }
    });
}

#[test]
fn serializable_histories_are_and_abort_only_where_a_cycle_closes() {
    let (mut certified, mut committed) = (0, 0);
    let mut wrong = Vec::new();
    runs(Isolation::Serializable, false, 40, |verdict, text| {
        if !verdict.serializable() || !verdict.needless.is_empty() || verdict.undecided > 0 {
            wrong.push(text.to_owned());
        }
        certified += verdict.aborted_by(Abort::Certifier);
        committed += verdict.committed;
    });
    println!("{committed} committed, {certified} aborted by the certifier");
    assert!(wrong.is_empty(), "{} wrong runs:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(certified > 0, "no run ever closed a cycle");
}

/// The analytic executor reads whole tables, so what it reads may cost aborts that a range would not; never an anomaly.
#[test]
fn histories_with_analytic_reads_are_serializable() {
    runs(Isolation::Serializable, true, 25, |verdict, text| assert!(verdict.serializable(), "{text}"));
}

#[test]
fn snapshot_isolation_shows_anomalies_and_nothing_worse() {
    let mut anomalies = 0;
    runs(Isolation::RepeatableRead, true, 25, |verdict, text| {
        assert!(verdict.violations.is_empty(), "{text}");
        assert_eq!(verdict.aborted_by(Abort::Certifier), 0, "{text}");
        anomalies += usize::from(verdict.cycle.is_some());
    });
    println!("{anomalies} of the runs were not serializable");
    assert!(anomalies > 0, "the load would not find anything");
}

#[test]
fn equal_seeds_give_equal_histories() {
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..2 {
        runs(Isolation::RepeatableRead, true, 1, |_, text| seen.push(text.to_owned()));
    }
    assert_eq!(seen[0], seen[1]);
}
