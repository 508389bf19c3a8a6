//! Random transactions through SQL, in an order that follows from the seed: every operation, every
//! reason to abort.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cognate::{Database, Method, Options};
use cognate_harness::checker::history::Abort;
use cognate_harness::checker::verdict::Verdict;
use cognate_harness::random::Random;
use cognate_harness::workload::bookstore::Isolation;
use cognate_harness::workload::recorded::generate::{Shape, Variety};
use cognate_harness::workload::recorded::recorder::Step;
use cognate_harness::workload::recorded::run::{Plan, Target, run as record_run};
use cognate_harness::workload::recorded::stage::{self, Stage};

const SESSIONS: usize = 6;
const TRANSACTIONS: usize = 80;

/// What is run.
#[derive(Clone, Copy)]
struct Setup {
    isolation: Isolation,
    windows: bool,
    variety: Variety,
    method: Method,
    /// Memory of the certifier, if not the default.
    certifier_bytes: Option<u64>,
}

impl Setup {
    fn new(isolation: Isolation, variety: Variety) -> Setup {
        Setup { isolation, windows: false, variety, method: Method::Pssi, certifier_bytes: None }
    }
}

/// What one run came to.
struct Run {
    verdict: Verdict,
    /// Everything about it, for a message.
    text: String,
    /// What the committed transactions did.
    done: BTreeMap<&'static str, usize>,
    /// How often the certifier summarized.
    summaries: u64,
}

fn first_seed() -> u64 {
    let first = std::env::var("COGNATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("COGNATE_SEED={first}");
    first
}

async fn history(database: &Database, setup: Setup, seed: u64) -> Run {
    let Setup { isolation, windows, variety, .. } = setup;
    // Five tables are to be as hot as two.
    let (keys, groups, operations) = if variety == Variety::Exact { (5, 4, 7) } else { (12, 8, 4) };
    let shape = Shape { keys, groups, operations, windows, variety };
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
    let summaries = database.sql().engine().statistics().certifier.summaries;
    Run { verdict, text, done: stage.take_done(), summaries }
}

/// Runs of many seeds, each on a database of its own; `judge` gets each.
fn runs(setup: Setup, seeds: u64, mut judge: impl FnMut(&Run)) {
    let first = first_seed();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for seed in first..first + seeds {
            let options = |options: Options| Options {
                serializable: setup.method,
                certifier_bytes: setup.certifier_bytes.unwrap_or(options.certifier_bytes),
                ..options
            };
            let database = stage::open(options).await.unwrap();
            judge(&history(&database, setup, seed).await);
        }
    });
}

/// Runs that must be serializable, and must have no abort without a cycle; returns what was done in
/// them.
fn precise_runs(variety: Variety, seeds: u64) -> BTreeMap<&'static str, usize> {
    let (mut certified, mut committed) = (0, 0);
    let mut wrong = Vec::new();
    let mut done = BTreeMap::new();
    runs(Setup::new(Isolation::Serializable, variety), seeds, |run| {
        let verdict = &run.verdict;
        if !verdict.serializable() || !verdict.needless.is_empty() || verdict.undecided > 0 {
            wrong.push(run.text.clone());
        }
        certified += verdict.aborted_by(Abort::Certifier);
        committed += verdict.committed;
        add(&mut done, &run.done);
    });
    println!("{committed} committed, {certified} aborted by the certifier; {done:?}");
    assert!(wrong.is_empty(), "{} wrong runs:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(certified > 0, "no run ever closed a cycle");
    done
}

fn add(done: &mut BTreeMap<&'static str, usize>, more: &BTreeMap<&'static str, usize>) {
    for (kind, count) in more {
        *done.entry(kind).or_default() += count;
    }
}

#[track_caller]
fn assert_done(done: &BTreeMap<&'static str, usize>, kinds: &[&str]) {
    for kind in kinds {
        assert!(done.get(kind).is_some_and(|count| *count > 1), "never: {kind}; {done:?}");
    }
}

/// What only [`Variety::Exact`] has.
const CONSTRAINTS: [&str; 10] = [
    "DO NOTHING: inserted",
    "DO NOTHING: nothing",
    "aged",
    "change of a unique value",
    "child inserted",
    "child moved",
    "insert of a unique value",
    "parent deleted",
    "refused after a savepoint",
    "read only",
];

/// What [`Variety::Wide`] has, too.
const STATEMENTS: [&str; 9] = [
    "DO UPDATE: inserted",
    "DO UPDATE: updated",
    "FOR SHARE",
    "FOR UPDATE",
    "nothing taken back",
    "read only",
    "snapshot moved",
    "update by index",
    "writes taken back",
];

#[test]
fn serializable_histories_are_and_abort_only_where_a_cycle_closes() {
    let done = precise_runs(Variety::Plain, 40);
    // Many a transaction goes on where first updater wins would have ended it.
    assert!(done.get("snapshot moved").is_some_and(|count| *count > 40), "{done:?}");
}

/// Savepoints, ON CONFLICT, foreign keys, unique values, row locks, READ ONLY, and transactions
/// with an age.
#[test]
fn histories_with_constraints_and_savepoints_are_serializable_without_needless_aborts() {
    let done = precise_runs(Variety::Exact, 40);
    assert_done(&done, &CONSTRAINTS);
    assert_done(&done, &STATEMENTS);
}

/// With next to no memory the certifier summarizes all the time: that may cost needless aborts,
/// never an anomaly.
#[test]
fn histories_under_a_certifier_without_memory_are_serializable() {
    let (mut needless, mut summaries, mut committed) = (0, 0, 0);
    let mut done = BTreeMap::new();
    for variety in [Variety::Plain, Variety::Exact] {
        let certifier_bytes = Some(512);
        let setup = Setup { certifier_bytes, ..Setup::new(Isolation::Serializable, variety) };
        runs(setup, 25, |run| {
            assert!(run.verdict.serializable(), "{}", run.text);
            needless += run.verdict.needless.len();
            committed += run.verdict.committed;
            summaries += run.summaries;
            add(&mut done, &run.done);
        });
    }
    assert!(summaries > 100, "{summaries} summaries");
    println!("{committed} committed, {summaries} summaries, {needless} needless aborts");
    assert_done(&done, &CONSTRAINTS);
}

/// What a window function computes depends on what its rows were read by, and on nothing else.
#[test]
fn histories_with_windows_are_serializable() {
    for variety in [Variety::Plain, Variety::Exact] {
        let setup = Setup { windows: true, ..Setup::new(Isolation::Serializable, variety) };
        runs(setup, 25, |run| assert!(run.verdict.serializable(), "{}", run.text));
    }
}

/// The comparators abort more; they let nothing more through.
#[test]
fn histories_under_the_comparators_are_serializable() {
    for method in [Method::Ssi, Method::TwoPhaseLocking] {
        let (mut committed, mut needless) = (0, 0);
        let setup = Setup { method, ..Setup::new(Isolation::Serializable, Variety::Exact) };
        runs(setup, 15, |run| {
            assert!(run.verdict.serializable(), "{method:?}: {}", run.text);
            committed += run.verdict.committed;
            needless += run.verdict.needless.len();
        });
        println!("{method:?}: {committed} committed, {needless} needless aborts");
        assert!(committed > 100);
    }
}

/// Sessions on threads of their own: what the order is depends on the machine, that there is one
/// does not.
#[test]
fn concurrent_histories_with_safe_snapshots_are_serializable() {
    let seed = first_seed();
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("data")).unwrap();
    let shape = Shape { keys: 30, groups: 15, operations: 4, windows: false, variety: Variety::Wide };
    let plan = Plan {
        shape,
        clients: 8,
        threads: 4,
        time: Duration::MAX,
        transactions: 60,
        isolation: Isolation::Serializable,
        seed,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let history = runtime.block_on(record_run(&Target::Embedded(database.clone()), &plan)).unwrap();
    let verdict = Verdict::of(&history);
    println!("{verdict}");
    assert!(verdict.serializable() && verdict.needless.is_empty(), "COGNATE_SEED={seed}: {verdict}");
    assert_eq!(history.transactions.len(), 480);
    database.close().unwrap();
}

#[test]
fn snapshot_isolation_shows_anomalies_and_nothing_worse() {
    for variety in [Variety::Plain, Variety::Wide, Variety::Exact] {
        let mut anomalies = 0;
        let setup = Setup { windows: true, ..Setup::new(Isolation::RepeatableRead, variety) };
        runs(setup, 25, |run| {
            assert!(run.verdict.violations.is_empty(), "{}", run.text);
            assert_eq!(run.verdict.aborted_by(Abort::Certifier), 0, "{}", run.text);
            anomalies += usize::from(run.verdict.cycle.is_some());
        });
        println!("{variety:?}: {anomalies} of the runs were not serializable");
        assert!(anomalies > 0, "the load would not find anything");
    }
}

#[test]
fn equal_seeds_give_equal_histories() {
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..2 {
        let setup = Setup { windows: true, ..Setup::new(Isolation::RepeatableRead, Variety::Exact) };
        runs(setup, 1, |run| seen.push(run.text.clone()));
    }
    assert_eq!(seen[0], seen[1]);
}
