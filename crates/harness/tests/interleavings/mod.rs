//! All interleavings of the classic anomalies and of their harmless look-alikes, through SQL,
//! judged by the oracle.
//!
//! A level that permits an anomaly must show it in some interleaving, or the test would prove
//! nothing. SERIALIZABLE must show none in any, and none of its aborts may be needless. Each
//! interleaving has keys of its own.

#![allow(clippy::unwrap_used)]

mod cases;

use cognate::{Database, Method, Options};
use cognate_harness::checker::history::Abort;
use cognate_harness::checker::verdict::Verdict;
use cognate_harness::workload::bookstore::Isolation;
use cognate_harness::workload::recorded::recorder::Step;
use cognate_harness::workload::recorded::stage::{self, Stage, interleavings};

use cases::Case;

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];

/// What all interleavings of a case came to at one level.
#[derive(Debug, Default)]
struct Tally {
    interleavings: usize,
    anomalies: usize,
    certifier: usize,
    first_updater: usize,
    deadlocks: usize,
    needless: Vec<String>,
    /// Interleavings with an abort by first updater wins that a later snapshot would have served.
    needless_conflicts: Vec<String>,
    example: String,
}

async fn tally(database: &Database, case: &Case, isolation: Isolation, base: &mut i64) -> Tally {
    let mut tally = Tally::default();
    let strict =
        isolation == Isolation::Serializable && database.sql().engine().serializable() == Method::Strict;
    let mut stage = Stage::new(database, case.scripts.len(), isolation).unwrap();
    let turns: Vec<usize> = case.scripts.iter().map(|script| script.len() + 1).collect();
    for order in interleavings(&turns) {
        *base += 1000;
        let rows: Vec<_> =
            case.rows.iter().map(|&(object, group)| cases::shifted(object, group, *base)).collect();
        stage.load(&rows).await.unwrap();
        let mut next = vec![0; turns.len()];
        for &session in &order {
            let script = case.scripts[session];
            let step = match script.get(next[session]) {
                Some(operation) => Step::Run(operation.shifted(*base)),
                None => Step::Commit,
            };
            next[session] += 1;
            stage
                .step(session, step)
                .await
                .unwrap_or_else(|error| panic!("{}: {order:?}: {error}", case.name));
        }
        let history =
            stage.take_history().unwrap_or_else(|error| panic!("{}: {order:?}: {error}", case.name));
        let verdict = if strict { Verdict::strictly(&history) } else { Verdict::of(&history) };
        tally.interleavings += 1;
        tally.certifier += verdict.aborted_by(Abort::Certifier);
        tally.first_updater += verdict.aborted_by(Abort::FirstUpdater);
        tally.deadlocks += verdict.aborted_by(Abort::Deadlock);
        let told: Vec<_> =
            stage.take_failures().into_iter().map(|(id, failure)| format!("T{id}: {failure:?}")).collect();
        if !verdict.serializable() || strict && !verdict.strictly_serializable() {
            tally.anomalies += 1;
            tally.example = format!("order {order:?}: {verdict}\n{told:?}\n{history:#?}");
        }
        if !verdict.needless.is_empty() {
            tally.needless.push(format!("order {order:?}: T{:?}; {told:?}", verdict.needless));
        }
        if !verdict.conflicts.needless.is_empty() {
            let told = format!("order {order:?}: T{:?}; {told:?}", verdict.conflicts.needless);
            tally.needless_conflicts.push(told);
        }
        let undecided = verdict.undecided + verdict.conflicts.undecided;
        assert_eq!(undecided, 0, "one statement at a time leaves nothing undecided");
    }
    tally
}

fn judge(case: &Case, isolation: Isolation, tally: &Tally) {
    let name = format!("{} at {}", case.name, isolation.sql());
    println!(
        "{name}: {} interleavings, {} anomalies; aborts: {} certifier, {} first updater, {} deadlock; {} with \
         an abort that a later snapshot would have spared",
        tally.interleavings,
        tally.anomalies,
        tally.certifier,
        tally.first_updater,
        tally.deadlocks,
        tally.needless_conflicts.len()
    );
    if isolation == Isolation::Serializable {
        assert_eq!(tally.anomalies, 0, "{name}: {}", tally.example);
        assert!(tally.needless.is_empty(), "{name}: needless aborts: {:#?}", tally.needless);
        assert!(
            !super::MOVES_SNAPSHOTS || tally.needless_conflicts.is_empty(),
            "{name}: a later snapshot would have served: {:#?}",
            tally.needless_conflicts
        );
        // What only READ COMMITTED permits may need no abort here: the snapshot moves.
        let must_abort = case.permitted.contains(&Isolation::RepeatableRead);
        assert!(!must_abort || tally.certifier + tally.first_updater + tally.deadlocks > 0, "{name}");
    } else {
        assert_eq!(tally.certifier, 0, "{name}: nobody is certified here");
        let permitted = case.permitted.contains(&isolation);
        assert_eq!(tally.anomalies > 0, permitted, "{name}: {}", tally.example);
    }
}

fn run(cases: &[Case]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let database = stage::open(|options| options).await.unwrap();
        let mut base = 0;
        for case in cases {
            for isolation in LEVELS {
                let tally = tally(&database, case, isolation, &mut base).await;
                judge(case, isolation, &tally);
            }
        }
    });
}

/// The comparators have fewer promises: no anomaly, or (snapshot isolation) those of REPEATABLE
/// READ.
fn compare(method: Method) {
    let all = [
        cases::LOST_UPDATE,
        cases::WRITE_SKEW,
        cases::READ_ONLY,
        cases::PHANTOM_BY_RANGE,
        cases::PHANTOM_BY_INDEX,
        cases::PHANTOM_BY_AGGREGATE,
        cases::PHANTOM_BY_JOIN,
    ];
    let refreshed = [cases::FINISHED_READER, cases::STALE_READS, cases::MOVED_SNAPSHOTS];
    let refreshed = if method == Method::Strict { &refreshed[..] } else { &[] };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let database = stage::open(|options| Options { serializable: method, ..options }).await.unwrap();
        let (mut base, mut needless, mut wrong) = (0, 0, Vec::new());
        for case in all.iter().chain(refreshed).copied().flatten() {
            let tally = tally(&database, case, Isolation::Serializable, &mut base).await;
            let permitted = match method {
                Method::Si => case.permitted.contains(&Isolation::RepeatableRead),
                Method::TwoPhaseLocking | Method::Pssi | Method::Strict | Method::Ssi => false,
            };
            let spared = [&tally.needless[..], &tally.needless_conflicts[..]].concat();
            if method == Method::Strict && !spared.is_empty() {
                wrong.push(format!("{}: needless aborts: {spared:#?}", case.name));
            }
            if (tally.anomalies > 0) != permitted {
                wrong.push(format!("{}: {}", case.name, tally.example));
            }
            needless += tally.needless.len();
        }
        println!("{method:?}: {needless} interleavings with a needless abort");
        assert!(wrong.is_empty(), "{method:?}: {}", wrong.join("\n\n"));
    });
}

#[test]
fn strict_has_no_anomaly_and_keeps_real_time() {
    compare(Method::Strict);
}

#[test]
fn ssi_has_no_anomaly() {
    compare(Method::Ssi);
}

#[test]
fn two_phase_locking_has_no_anomaly() {
    compare(Method::TwoPhaseLocking);
}

#[test]
fn si_has_those_of_repeatable_read() {
    compare(Method::Si);
}

#[test]
fn lost_update() {
    run(cases::LOST_UPDATE);
}

#[test]
fn write_skew() {
    run(cases::WRITE_SKEW);
}

#[test]
fn read_only_anomaly() {
    run(cases::READ_ONLY);
}

#[test]
fn phantom_by_range() {
    run(cases::PHANTOM_BY_RANGE);
}

#[test]
fn phantom_by_index() {
    run(cases::PHANTOM_BY_INDEX);
}

#[test]
fn phantom_by_aggregate() {
    run(cases::PHANTOM_BY_AGGREGATE);
}

#[test]
fn phantom_by_join() {
    run(cases::PHANTOM_BY_JOIN);
}

#[test]
fn a_finished_reader_is_still_in_the_way() {
    run(cases::FINISHED_READER);
}

#[test]
fn a_read_that_was_replaced_ends_the_transaction() {
    run(cases::STALE_READS);
}

/// In every order nobody is aborted at all. READ COMMITTED has other anomalies there: an update
/// that waited for a delete finds nothing.
#[test]
fn snapshots_move_past_what_statements_meet() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let database = stage::open(|options| options).await.unwrap();
        let mut base = 0;
        for case in cases::MOVED_SNAPSHOTS {
            let tally = tally(&database, case, Isolation::Serializable, &mut base).await;
            judge(case, Isolation::Serializable, &tally);
            let aborts = tally.certifier + tally.first_updater + tally.deadlocks;
            assert_eq!(aborts, 0, "{}: {tally:?}", case.name);
        }
    });
}

#[test]
fn interleavings_are_all_there() {
    assert_eq!(interleavings(&[2, 1]), [vec![0, 0, 1], vec![0, 1, 0], vec![1, 0, 0]]);
    assert_eq!(interleavings(&[3, 3]).len(), 20);
    assert_eq!(interleavings(&[3, 2, 2]).len(), 210);
}
