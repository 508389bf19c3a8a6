//! The oracle sees each planted anomaly and accepts each harmless look-alike; and it agrees with a
//! judge by brute force.

#![allow(clippy::unwrap_used)]

mod brute_force;
mod model;

use cognate_harness::checker::history::{Abort, Event, History, Outcome, writer};
use cognate_harness::checker::verdict::{Verdict, Violation};

use model::Step::{self, *};
use model::{Model, Snapshots, object};

const X: i64 = 1;
const Y: i64 = 2;
const Z: i64 = 3;

fn read(key: i64) -> Step {
    Keys(key, key)
}

/// Three rows, whose second columns are 10, 20 and 30.
fn model(steps: &[(u64, Step)]) -> Model {
    Model::run(&[(X, 10), (Y, 20), (Z, 30)], Snapshots::First, steps)
}

/// Judges twice: with commit numbers, and without, as a concurrent run is recorded.
fn verdict(model: &Model) -> Verdict {
    judged_twice(model, Verdict::of)
}

/// The same by any judge.
fn judged_twice(model: &Model, judge: fn(&History) -> Verdict) -> Verdict {
    let exact = judge(&model.history);
    let mut history = model.history.clone();
    for transaction in &mut history.transactions {
        transaction.commit = None;
    }
    let inferred = judge(&history);
    assert_eq!(exact.serializable(), inferred.serializable(), "{exact}\n{inferred}");
    assert_eq!(exact.strictly_serializable(), inferred.strictly_serializable(), "{exact}\n{inferred}");
    assert_eq!(exact.conflicts, inferred.conflicts, "{exact}\n{inferred}");
    assert_eq!(exact.needless, inferred.needless, "{exact}\n{inferred}");
    exact
}

fn assert_cycle(steps: &[(u64, Step)], expected: &str) {
    let verdict = verdict(&model(steps));
    let cycle = verdict.cycle.expect("a cycle").to_string();
    assert_eq!(cycle, expected);
    assert_eq!(verdict.violations, []);
}

fn assert_harmless(steps: &[(u64, Step)]) {
    let verdict = verdict(&model(steps));
    assert!(verdict.serializable(), "{verdict}");
}

#[test]
fn lost_update() {
    // Both read, then one after the other writes what it computed: READ COMMITTED lets the first
    // one's value go lost.
    let steps = [(1, read(X)), (2, read(X)), (1, Put(X, 11)), (1, Commit), (2, Put(X, 12)), (2, Commit)];
    let each = Model::run(&[(X, 10)], Snapshots::Each, &steps);
    let found = Verdict::of(&each.history);
    assert_eq!(found.cycle.unwrap().to_string(), "T1 -ww(table 0 key 1)→ T2 -rw(table 0 key 1)→ T1");
    let steps = [(1, read(X)), (1, Put(X, 11)), (1, Commit), (2, read(X)), (2, Put(X, 12)), (2, Commit)];
    assert_harmless(&steps);
}

#[test]
fn two_writers_of_one_version() {
    let steps = [(1, Put(X, 11)), (2, Put(X, 12)), (1, Commit), (2, Commit)];
    let mut model = model(&steps);
    // What a store without first-updater-wins and without locks would do.
    let first = model.history.loaded[0].stamp;
    if let Event::Write(write) = &mut model.history.transactions[1].events[0] {
        write.replaced = Some(first);
    }
    let found = Verdict::of(&model.history);
    assert_eq!(found.violations, [Violation::LostUpdate { object: object(X), writers: [1, 2] }]);
}

#[test]
fn write_skew() {
    assert_cycle(
        &[(1, read(X)), (2, read(Y)), (1, Put(Y, 21)), (2, Put(X, 11)), (1, Commit), (2, Commit)],
        "T1 -rw(table 0 key 1)→ T2 -rw(table 0 key 2)→ T1",
    );
    // One after the other, and with reads that do not meet the writes.
    assert_harmless(&[
        (1, read(X)),
        (1, Put(Y, 21)),
        (1, Commit),
        (2, read(Y)),
        (2, Put(X, 11)),
        (2, Commit),
    ]);
    assert_harmless(&[
        (1, read(X)),
        (2, read(Z)),
        (1, Put(Y, 21)),
        (2, Put(X, 11)),
        (1, Commit),
        (2, Commit),
    ]);
}

#[test]
fn read_only_anomaly() {
    // T1 withdraws by what it read of both, T2 deposits into y, T3 sees the deposit and not the
    // withdrawal.
    assert_cycle(
        &[
            (1, Keys(X, Y)),
            (2, read(Y)),
            (2, Put(Y, 21)),
            (2, Commit),
            (3, Keys(X, Y)),
            (3, Commit),
            (1, Put(X, 11)),
            (1, Commit),
        ],
        "T1 -rw(table 0 key 2)→ T2 -wr(table 0 key 2)→ T3 -rw(table 0 key 1)→ T1",
    );
    // Without the report T1 comes before T2. A dangerous structure closes no cycle by itself.
    let steps = [(1, Keys(X, Y)), (2, Put(Y, 21)), (2, Commit), (1, Put(X, 11)), (1, Commit)];
    assert_harmless(&steps);
}

#[test]
fn phantom_by_key_and_by_index() {
    assert_cycle(
        &[(1, Keys(4, 9)), (2, Keys(4, 9)), (1, Put(5, 0)), (2, Put(6, 0)), (1, Commit), (2, Commit)],
        "T1 -rw(table 0 key 6, phantom)→ T2 -rw(table 0 key 5, phantom)→ T1",
    );
    // A row that moves into a range of the second column.
    assert_cycle(
        &[(1, Groups(40, 49)), (2, read(Z)), (2, Put(X, 44)), (1, Put(Z, 33)), (1, Commit), (2, Commit)],
        "T1 -rw(table 0 key 1, phantom)→ T2 -rw(table 0 key 3)→ T1",
    );
    // Beside the range, and out of a range that nobody read.
    assert_harmless(&[
        (1, Keys(4, 9)),
        (2, Keys(4, 9)),
        (1, Put(15, 0)),
        (2, Put(6, 0)),
        (1, Commit),
        (2, Commit),
    ]);
    assert_harmless(&[
        (1, Groups(40, 49)),
        (2, read(Z)),
        (2, Put(X, 54)),
        (1, Put(Z, 33)),
        (1, Commit),
        (2, Commit),
    ]);
}

#[test]
fn a_deleted_row_was_there() {
    assert_cycle(
        &[(1, Keys(X, Y)), (2, read(Z)), (2, Delete(X)), (1, Delete(Z)), (1, Commit), (2, Commit)],
        "T1 -rw(table 0 key 1)→ T2 -rw(table 0 key 3)→ T1",
    );
    // T3 does not see x, which T2 deleted: it comes after T2, and before T1, which comes before T2.
    assert_cycle(
        &[
            (1, read(X)),
            (2, Delete(X)),
            (2, Commit),
            (3, read(X)),
            (3, read(Y)),
            (1, Put(Y, 21)),
            (1, Commit),
            (3, Commit),
        ],
        "T1 -rw(table 0 key 1)→ T2 -wr(table 0 key 1, phantom)→ T3 -rw(table 0 key 2)→ T1",
    );
}

#[test]
fn an_edge_between_transactions_that_were_not_concurrent() {
    // T1 committed before T3 began, and still T1 -rw→ T3: T3 replaced what T1 had read.
    let steps = [
        (2, read(Z)),
        (1, read(X)),
        (1, Put(Z, 31)),
        (1, Commit),
        (3, Put(X, 11)),
        (3, Put(Y, 21)),
        (3, Commit),
    ];
    assert_harmless(&[&steps[..], &[(2, Commit)]].concat());
    let mut model = model(&steps);
    // T2 read z before T1, and now sees what T3 wrote: only a store without snapshots does that.
    model.force_snapshot(2, 2);
    model.step(2, read(Y));
    model.step(2, Commit);
    let cycle = Verdict::of(&model.history).cycle.expect("a cycle").to_string();
    assert_eq!(cycle, "T1 -rw(table 0 key 1)→ T3 -wr(table 0 key 2)→ T2 -rw(table 0 key 3)→ T1");
}

#[test]
fn long_fork() {
    let mut model = model(&[(1, Put(X, 11)), (2, Put(Y, 21)), (1, Commit), (2, Commit)]);
    // T3 sees T1's write only, T4 T2's only; snapshots of one sequence cannot do that, so T4's
    // record is bent.
    model.force_snapshot(3, 1);
    model.step(3, Keys(X, Y));
    model.step(3, Commit);
    model.force_snapshot(4, 2);
    model.step(4, Keys(X, Y));
    model.step(4, Commit);
    assert!(verdict(&model).serializable());
    let first = model.history.loaded[0].stamp;
    let fourth = model.history.transactions.iter_mut().find(|t| t.id == 4).unwrap();
    if let Event::Scan(scan) = &mut fourth.events[0] {
        scan.seen[0].1 = first;
    }
    let cycle = Verdict::of(&model.history).cycle.expect("a cycle").to_string();
    assert!(cycle.contains("T3 -rw") && cycle.contains("T4 -rw"), "{cycle}");
}

#[test]
fn dirty_and_intermediate_reads() {
    let mut model = model(&[(1, Put(X, 11)), (1, Put(X, 12)), (1, Commit), (2, read(X)), (2, Commit)]);
    let Event::Write(intermediate) = model.history.transactions[0].events[0].clone() else { panic!() };
    assert!(verdict(&model).serializable());
    if let Event::Scan(scan) = &mut model.history.transactions[1].events[0] {
        scan.seen[0].1 = intermediate.stamp;
    }
    let read = Violation::ReadOfUncommitted { reader: 2, writer: 1, object: object(X), known: true };
    assert_eq!(Verdict::of(&model.history).violations, std::slice::from_ref(&read));
    model.history.transactions[0].outcome = Outcome::Aborted(Abort::Client);
    assert_eq!(Verdict::of(&model.history).violations, [read]);
    assert_eq!(writer(intermediate.stamp), 1);
}

#[test]
fn a_row_that_a_scan_left_out() {
    let mut model = model(&[(1, Keys(X, Z)), (1, Commit)]);
    if let Event::Scan(scan) = &mut model.history.transactions[0].events[0] {
        scan.seen.remove(1);
    }
    let missed = Violation::RowMissed { reader: 1, object: object(Y) };
    assert_eq!(Verdict::of(&model.history).violations, [missed]);
}

#[test]
fn a_row_that_is_not_in_the_range() {
    for own in [false, true] {
        let steps = [(1, Put(X, 11)), (1, Groups(20, 20)), (1, Commit), (2, Groups(20, 20)), (2, Commit)];
        let mut model = model(&steps);
        let Event::Write(put) = model.history.transactions[0].events[0].clone() else { panic!() };
        let reader =
            if own { &mut model.history.transactions[0] } else { &mut model.history.transactions[1] };
        let id = reader.id;
        if let Some(Event::Scan(scan)) = reader.events.last_mut() {
            scan.seen.push((X, put.stamp));
        }
        let wrong = Violation::RowOutOfRange { reader: id, object: object(X) };
        assert_eq!(Verdict::of(&model.history).violations, [wrong]);
    }
}

/// A child's parent, and the parent's children: each transaction makes the other's check wrong.
#[test]
fn a_row_that_is_only_known_to_be_there() {
    let skew = [
        (1, There(X, false)),
        (2, There(Y, false)),
        (1, Delete(Y)),
        (2, Delete(X)),
        (1, Commit),
        (2, Commit),
    ];
    let found = Verdict::of(&model(&skew).history);
    let cycle = found.cycle.expect("a cycle").to_string();
    assert_eq!(cycle, "T1 -rw(table 0 key 1, phantom)→ T2 -rw(table 0 key 2, phantom)→ T1");
    // Another version of the row leaves it there.
    let steps = [
        (1, There(X, false)),
        (2, There(Y, false)),
        (1, Put(Y, 21)),
        (2, Put(X, 11)),
        (1, Commit),
        (2, Commit),
    ];
    assert!(Verdict::of(&model(&steps).history).serializable());
    // It does not where the row was read as it is.
    let steps = [
        (1, There(X, true)),
        (2, There(Y, true)),
        (1, Put(Y, 21)),
        (2, Put(X, 11)),
        (1, Commit),
        (2, Commit),
    ];
    assert!(Verdict::of(&model(&steps).history).cycle.is_some());
    // T3 knows a row that T1 brought, though T2 changed it since.
    let steps =
        [(1, Put(7, 70)), (1, Commit), (2, Put(7, 71)), (2, Commit), (3, There(7, false)), (3, Commit)];
    let mut model = model(&steps);
    assert!(Verdict::of(&model.history).serializable());
    let Event::Exists(exists) = &mut model.history.transactions[2].events[0] else { panic!() };
    exists.snapshot = 0;
    let nobody = Violation::NobodyThere { reader: 3, table: 0, low: 7 };
    assert_eq!(Verdict::of(&model.history).violations, [nobody]);
}

#[test]
fn what_was_taken_back_was_not_written_and_what_was_read_was_read() {
    // The write skew's second write is taken back.
    let steps = [
        (1, read(X)),
        (2, read(Y)),
        (1, Put(Y, 21)),
        (2, Save),
        (2, Put(X, 11)),
        (2, TakeBack),
        (1, Commit),
        (2, Commit),
    ];
    assert_harmless(&steps);
    // The reads are.
    let steps = [
        (2, read(Z)),
        (2, Save),
        (1, read(X)),
        (2, read(Y)),
        (2, TakeBack),
        (1, Put(Y, 21)),
        (2, Put(X, 11)),
        (1, Commit),
        (2, Commit),
    ];
    assert_cycle(&steps, "T1 -rw(table 0 key 1)→ T2 -rw(table 0 key 2)→ T1");
    // Nobody may read it, its writer reads what was there before.
    let steps =
        [(1, read(Z)), (1, Save), (1, Put(X, 11)), (1, read(X)), (1, TakeBack), (1, read(X)), (1, Commit)];
    let mut model = model(&[&steps[..], &[(2, read(X)), (2, Commit)]].concat());
    assert!(verdict(&model).serializable());
    let Event::Write(gone) = model.history.transactions[0].events[1].clone() else { panic!() };
    let Event::Scan(scan) = &mut model.history.transactions[1].events[0] else { panic!() };
    scan.seen[0].1 = gone.stamp;
    let wrong = Violation::ReadOfUncommitted { reader: 2, writer: 1, object: object(X), known: true };
    assert_eq!(verdict_of(&model), [wrong]);
}

fn verdict_of(model: &Model) -> Vec<Violation> {
    Verdict::of(&model.history).violations
}

fn needless(steps: &[(u64, Step)]) -> (usize, Vec<u64>) {
    let verdict = verdict(&model(steps));
    assert!(verdict.serializable(), "{verdict}");
    (verdict.justified, verdict.needless)
}

#[test]
fn an_abort_that_broke_a_cycle_is_justified() {
    let abort = Abort(Abort::Certifier);
    // Write skew.
    let steps = [(1, read(X)), (2, read(Y)), (1, Put(Y, 21)), (2, Put(X, 11)), (1, Commit), (2, abort)];
    assert_eq!(needless(&steps), (1, vec![]));
    // By a phantom, by an index.
    let steps =
        [(1, Groups(40, 49)), (2, read(Z)), (2, Put(X, 44)), (1, Put(Z, 33)), (1, Commit), (2, abort)];
    assert_eq!(needless(&steps), (1, vec![]));
    // The read-only anomaly: the withdrawal would have closed it.
    let steps = [
        (1, Keys(X, Y)),
        (2, Put(Y, 21)),
        (2, Commit),
        (3, Keys(X, Y)),
        (3, Commit),
        (1, Put(X, 11)),
        (1, abort),
    ];
    assert_eq!(needless(&steps), (1, vec![]));
}

#[test]
fn an_abort_that_broke_nothing_is_needless() {
    let abort = Abort(Abort::Certifier);
    // A dangerous structure without a cycle: T1 -rw→ T2 -rw→ T3.
    let steps =
        [(1, read(X)), (2, read(Y)), (3, Put(Y, 21)), (3, Commit), (2, Put(X, 11)), (1, Commit), (2, abort)];
    assert_eq!(needless(&steps), (0, vec![2]));
    // The other would have closed the cycle, but had not committed then.
    let steps = [(1, read(X)), (2, read(Y)), (1, Put(Y, 21)), (2, Put(X, 11)), (2, abort), (1, Commit)];
    assert_eq!(needless(&steps), (0, vec![2]));
    // The read-only anomaly without its reader.
    let steps = [(1, Keys(X, Y)), (2, Put(Y, 21)), (2, Commit), (1, Put(X, 11)), (1, abort)];
    assert_eq!(needless(&steps), (0, vec![1]));
}

#[test]
fn a_commit_in_flight_leaves_an_abort_undecided() {
    let steps = [
        (1, read(X)),
        (2, read(Y)),
        (1, Put(Y, 21)),
        (2, Put(X, 11)),
        (1, Commit),
        (2, Abort(Abort::Certifier)),
    ];
    let mut model = model(&steps);
    let victim = model.history.transactions[1].clone();
    // T1's commit was asked for before T2's abort was answered, and answered after it was asked
    // for.
    model.history.transactions[0].answered = victim.asked + 1;
    let found = Verdict::of(&model.history);
    assert_eq!((found.justified, found.undecided, found.needless), (0, 1, vec![]));
    model.history.transactions[0].asked = victim.answered + 1;
    let found = Verdict::of(&model.history);
    assert_eq!((found.justified, found.undecided, found.needless), (0, 0, vec![2]));
}

/// T3 runs long and reads x; T1 replaces x and is acknowledged; T2 begins, reads y, ends; T3
/// replaces y.
const OUT_OF_TIME: [(u64, Step); 7] = [
    (3, Keys(X, X)),
    (1, Put(X, 11)),
    (1, Commit),
    (2, Keys(Y, Y)),
    (2, Commit),
    (3, Put(Y, 21)),
    (3, Commit),
];

#[test]
fn real_time_is_an_order_of_its_own() {
    let found = verdict(&model(&OUT_OF_TIME));
    assert!(found.serializable() && !found.strictly_serializable(), "{found}");
    let cycle = found.strict_cycle.expect("a cycle").to_string();
    assert_eq!(cycle, "T1 -real time→ T2 -rw(table 0 key 2)→ T3 -rw(table 0 key 1)→ T1");
    // T2 began before T1 was answered.
    let mut steps = OUT_OF_TIME;
    steps.swap(2, 3);
    assert!(verdict(&model(&steps)).strictly_serializable());
    // Others end and begin between them.
    let others = [(7, read(Z)), (7, Commit), (8, read(Z)), (8, Commit)];
    let steps = [&OUT_OF_TIME[..3], &others, &OUT_OF_TIME[3..]].concat();
    let found = verdict(&model(&steps));
    assert_eq!(found.strict_cycle.expect("a cycle").to_string(), cycle);
}

#[test]
fn real_time_justifies_an_abort() {
    let mut steps = OUT_OF_TIME;
    steps[6].1 = Abort(Abort::Certifier);
    let model = model(&steps);
    let serially = verdict(&model);
    assert_eq!((serially.justified, serially.needless), (0, vec![3]));
    let strictly = judged_twice(&model, Verdict::strictly);
    assert!(strictly.strictly_serializable());
    assert_eq!((strictly.justified, strictly.needless), (1, vec![]));
    // T2's first statement was sent before T1 was answered, and its snapshot known afterwards:
    // nobody outside can tell.
    let mut history = model.history.clone();
    history.transactions.iter_mut().for_each(|transaction| transaction.commit = None);
    let answered = history.transactions.iter().find(|t| t.id == 1).unwrap().answered;
    let second = history.transactions.iter_mut().find(|t| t.id == 2).unwrap();
    (second.began, second.placed) = (answered - 1, answered + 1);
    let strictly = Verdict::strictly(&history);
    assert_eq!((strictly.justified, strictly.undecided, strictly.needless), (0, 1, vec![]));
}

/// T2 has begun before T1 ended, and moves its snapshot behind it: serially T2, T3, T1, and nothing
/// of real time against that.
#[test]
fn a_moved_snapshot_is_no_later_beginning() {
    let run = |moves: bool| {
        let mut model = model(&[(3, read(X)), (1, Put(X, 11))]);
        if moves {
            model.step(2, read(Z));
        }
        model.step(1, Commit);
        if moves {
            model.refresh(2);
        }
        for (id, step) in [(2, read(Y)), (3, Put(Y, 21)), (3, Commit), (2, Abort(Abort::Certifier))] {
            model.step(id, step);
        }
        model
    };
    let judged = |moves: bool| judged_twice(&run(moves), Verdict::strictly);
    let (moved, later) = (judged(true), judged(false));
    assert_eq!((moved.justified, moved.undecided, moved.needless), (0, 0, vec![2]));
    assert_eq!((later.justified, later.undecided, later.needless), (1, 0, vec![]), "it began later");
}

#[test]
fn first_updater_wins_where_something_went_stale() {
    let abort = Abort(Abort::FirstUpdater);
    let of = |steps: &[(u64, Step)]| {
        let conflicts = verdict(&model(steps)).conflicts;
        (conflicts.stale, conflicts.undecided, conflicts.needless)
    };
    // T2 has read nothing, then another row, then the row itself.
    assert_eq!(of(&[(2, Keys(8, 9)), (1, Put(X, 11)), (1, Commit), (2, abort)]), (0, 0, vec![2]));
    assert_eq!(of(&[(2, read(Y)), (1, Put(X, 11)), (1, Commit), (2, abort)]), (0, 0, vec![2]));
    assert_eq!(of(&[(2, read(X)), (1, Put(X, 11)), (1, Commit), (2, abort)]), (1, 0, vec![]));
    // A row has come into what it has read.
    assert_eq!(of(&[(2, Keys(8, 9)), (1, Put(8, 11)), (1, Commit), (2, abort)]), (1, 0, vec![]));
    // Who was faster had not committed.
    assert_eq!(of(&[(2, read(X)), (1, Put(X, 11)), (2, abort), (1, Commit)]), (0, 0, vec![2]));
    // It replaced what it has read itself: nobody else could.
    let steps = [(2, read(X)), (2, Put(X, 12)), (1, Put(Y, 11)), (1, Commit), (2, abort)];
    assert_eq!(of(&steps), (0, 0, vec![2]));
}

#[test]
fn what_is_read_after_the_snapshot_moved_is_read_there() {
    // T2 reads y, meets the newer x, goes on at the newest snapshot, and reads z as T1 left it.
    let mut model = model(&[(2, read(Y)), (1, Put(X, 11)), (1, Put(Z, 31)), (1, Commit)]);
    model.refresh(2);
    for step in [Put(X, 12), Keys(Z, Z), Keys(7, 9), Commit] {
        model.step(2, step);
    }
    let found = verdict(&model);
    assert!(found.strictly_serializable(), "{found}");
    // A server that moves it although y has changed, too.
    let mut model = Model::run(
        &[(X, 10), (Y, 20), (Z, 30)],
        Snapshots::First,
        &[(2, read(Y)), (1, Put(X, 11)), (1, Put(Y, 21)), (1, Commit)],
    );
    model.refresh(2);
    model.step(2, Put(X, 12));
    model.step(2, Commit);
    let cycle = Verdict::of(&model.history).cycle.expect("a cycle").to_string();
    assert_eq!(cycle, "T1 -ww(table 0 key 1)→ T2 -rw(table 0 key 2)→ T1");
}

#[test]
fn reasons_are_told_apart_by_the_message() {
    let of = Abort::classify;
    assert_eq!(of("40001", "could not serialize access due to concurrent update"), Abort::FirstUpdater);
    assert_eq!(of("40001", "could not serialize access due to concurrent delete"), Abort::FirstUpdater);
    let certifier = "could not serialize access due to read/write dependencies among transactions";
    assert_eq!(of("40001", certifier), Abort::Certifier);
    assert_eq!(of("40P01", "deadlock detected"), Abort::Deadlock);
    assert_eq!(of("23505", "duplicate key value"), Abort::Client);
}
