//! Roots of several shapes, in all interleavings, with a few faults each.

use std::collections::BTreeMap;

use cognate_composite_protocol::name::{CallId, RootId};

use crate::explore::{Explored, explore};
use crate::world::{Budget, Plan, World, matrix, plan_lines};

fn call(text: &str) -> CallId {
    CallId::new(text).expect("a call")
}

/// Lines such as `r.1:7 at 0 calls r.2:7 r.3:7`; roots are named before the dot, and begin with the
/// call `.1`.
pub(crate) fn plan(lines: &[&str]) -> Plan {
    let mut plan = Plan::default();
    for line in lines {
        let mut words = line.split(' ');
        let its = call(words.next().expect("a call"));
        assert_eq!(words.next(), Some("at"));
        let place = words.next().and_then(|word| word.parse().ok()).expect("a place");
        let mut calls = Vec::new();
        for word in words {
            match word {
                "calls" => {}
                "together" => drop(plan.at_once.insert(its.clone())),
                "refuses" => drop(plan.refusing.insert(its.clone())),
                "reads" => drop(plan.reading.insert(its.clone())),
                "tolerates" => drop(plan.tolerant.insert(its.clone())),
                "closed" => drop(plan.closed.insert(its.clone())),
                "ahead" => drop(plan.ahead.insert(its.clone())),
                callee => calls.push(call(callee)),
            }
        }
        let (root, rest) = its.as_str().split_once('.').expect("a root and a call");
        if rest.starts_with('1') {
            plan.beginnings.push((RootId::new(root).expect("a root"), its.clone()));
        }
        plan.calls.insert(its, (place, calls));
    }
    plan
}

pub(crate) fn run(places: usize, lines: &[&str], budget: Budget) -> Explored {
    let plan = plan(lines);
    let explored = explore(&plan, World::new(places, &matrix(&plan_lines()), budget));
    println!("{lines:?} {budget:?}: {explored:?}");
    explored
}

pub(crate) const NONE: Budget =
    Budget { lost: 0, duplicated: 0, crashed: 0, deadlines: 0, journals_lost: 0, failed: 0, knows: false };

/// shop calls stock and payment.
const FORK: [&str; 3] = ["r.1:1 at 0 calls r.2:2 r.3:3", "r.2:2 at 1", "r.3:3 at 2"];
/// Two ways lead to the third.
const DIAMOND: [&str; 4] =
    ["r.1:1 at 0 calls r.2:2 r.3:3", "r.2:2 at 1 calls r.4:4", "r.3:3 at 2", "r.4:4 at 2"];
/// The third calls the first.
const CYCLE: [&str; 4] =
    ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 calls r.3:3", "r.3:3 at 2 calls r.4:4", "r.4:4 at 0"];
/// Two components that are not the root's call each other.
const INNER_CYCLE: [&str; 4] =
    ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 calls r.3:3", "r.3:3 at 2 calls r.4:4", "r.4:4 at 1"];

/// One calls another.
pub(crate) const CHAIN: [&str; 2] = ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1"];

/// The same; the answer comes ahead of the commit.
pub(crate) const AHEAD: [&str; 2] = ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 ahead"];
/// Two calls of a component, of which the first one is answered ahead of its commit.
pub(crate) const BOTH_AHEAD: [&str; 3] = ["r.1:1 at 0 calls r.2:2 r.3:3", "r.2:2 at 1 ahead", "r.3:3 at 1"];

/// Shapes of which faults can be explored in seconds.
const SMALL: [&[&str]; 3] = [&CHAIN, &FORK, &CYCLE];
/// Shapes that take minutes: `cargo test --release -p cognate-composite-protocol -- --ignored
/// --nocapture`.
const LARGE: [&[&str]; 2] = [&INNER_CYCLE, &DIAMOND];

fn run_all(shapes: &[&[&str]], budget: Budget) {
    for shape in shapes {
        run(3, shape, budget);
    }
}

#[test]
fn without_faults_all_shapes_commit_in_every_order() {
    for shape in SMALL.iter().chain(&LARGE) {
        let explored = run(3, shape, NONE);
        assert_eq!(explored.committed, explored.ends, "{shape:?}");
        assert!(explored.ends > 0);
    }
}

#[test]
fn a_refusal_below_undoes_everything() {
    let lines = ["r.1:1 at 0 calls r.2:2 r.3:3", "r.2:2 at 1", "r.3:3 at 2 refuses"];
    let explored = run(3, &lines, Budget { crashed: 1, ..NONE });
    assert_eq!(explored.committed, 0);
}

#[test]
fn a_message_is_lost_or_doubled() {
    run_all(&[&CHAIN, &CYCLE], Budget { lost: 1, duplicated: 1, ..NONE });
    run(3, &FORK, Budget { lost: 1, ..NONE });
}

#[test]
fn a_crash_anywhere() {
    run_all(&SMALL, Budget { crashed: 1, ..NONE });
    run(2, &CHAIN, Budget { crashed: 2, lost: 1, ..NONE });
}

/// What was promised waits for its parents, and nothing else.
#[test]
fn a_crash_after_which_it_is_known_who_was_promised() {
    let known = Budget { crashed: 1, knows: true, ..NONE };
    run_all(&SMALL, known);
    run(2, &CHAIN, Budget { crashed: 2, lost: 1, ..known });
    run(2, &CHAIN, Budget { duplicated: 1, ..known });
    run(2, &CHAIN, Budget { deadlines: 1, ..known });
    run(2, &AHEAD, Budget { duplicated: 1, ..known });
    // What was answered ahead of a commit that was lost comes once more.
    run(2, &BOTH_AHEAD, Budget { duplicated: 1, ..known });
    run(2, &["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 closed"], Budget { lost: 1, ..known });
    // One start knows it, and the next one has lost the journal.
    run(2, &CHAIN, Budget { crashed: 2, journals_lost: 1, ..known });
}

/// A call comes once more after its root was committed and forgotten, and its process has ended.
/// Its parent has not heard of the end, and says again that the root is committed: `World` has it
/// that he is not refused.
#[test]
fn a_late_duplicate_refuses_no_commit() {
    let explored = run(2, &CHAIN, Budget { crashed: 1, duplicated: 1, ..NONE });
    assert!(explored.committed > 0);
}

#[test]
fn a_crash_that_takes_the_journal() {
    run_all(&SMALL, Budget { crashed: 1, journals_lost: 1, ..NONE });
    run(2, &CHAIN, Budget { crashed: 2, journals_lost: 1, duplicated: 1, ..NONE });
}

#[test]
fn a_deadline_at_any_time() {
    run_all(&SMALL, Budget { deadlines: 1, ..NONE });
}

#[test]
fn two_roots_about_the_same_item() {
    let lines = ["r.1:1 at 0 calls r.2:7", "r.2:7 at 1", "q.1:2 at 0 calls q.2:7", "q.2:7 at 1"];
    run(2, &lines, NONE);
    // Each is answered ahead of its commit, which may fail.
    let lines = ["r.1:1 at 0 calls r.2:7", "r.2:7 at 1 ahead", "q.1:2 at 0 calls q.2:7", "q.2:7 at 1 ahead"];
    run(2, &lines, Budget { failed: 1, ..NONE });
}

#[test]
fn calls_that_only_read() {
    let lines = ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 reads"];
    run(2, &lines, Budget { crashed: 1, duplicated: 1, ..NONE });
}

#[test]
fn calls_without_undo() {
    let chain = ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 closed"];
    let explored = run(2, &chain, NONE);
    assert_eq!(explored.committed, explored.ends);
    run(2, &chain, Budget { crashed: 2, lost: 1, ..NONE });
    run(2, &chain, Budget { crashed: 1, journals_lost: 1, duplicated: 1, ..NONE });
    let fork = ["r.1:1 at 0 calls r.2:2 r.3:3", "r.2:2 at 1 closed", "r.3:3 at 2"];
    run(3, &fork, Budget { crashed: 1, ..NONE });
    run(3, &fork, Budget { deadlines: 1, ..NONE });
    // The one in the middle is closed, and calls back.
    let cycle = ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 calls r.3:3 closed", "r.3:3 at 0"];
    run(2, &cycle, Budget { crashed: 1, ..NONE });
}

#[test]
fn a_call_without_undo_keeps_its_lock_until_it_is_committed() {
    let lines = ["r.1:1 at 0 calls r.2:7", "r.2:7 at 1 closed", "q.1:2 at 0 calls q.2:7", "q.2:7 at 1"];
    run(2, &lines, NONE);
}

#[test]
fn who_conflicts_with_a_sibling_without_undo_is_refused() {
    let lines = ["r.1:1 at 0 calls r.2:7 r.3:7", "r.2:7 at 1 closed", "r.3:7 at 1"];
    let explored = run(2, &lines, Budget { crashed: 1, ..NONE });
    assert_eq!(explored.committed, 0);
    // It may wait when that one is kept prepared, or come before it.
    let lines = ["r.1:1 at 0 calls r.2:7 r.3:7 together", "r.2:7 at 1 closed", "r.3:7 at 1"];
    let explored = run(2, &lines, Budget { crashed: 1, ..NONE });
    assert!((1..explored.ends).contains(&explored.committed), "{explored:?}");
    // About another item it may follow, and what is undone waits for nothing that is kept prepared.
    let lines = ["r.1:1 at 0 calls r.2:7 r.3:8", "r.2:7 at 1 closed", "r.3:8 at 1"];
    assert!(run(2, &lines, Budget { crashed: 1, ..NONE }).committed > 0);
}

#[test]
fn a_component_calls_itself() {
    run(2, &["r.1:1 at 0 calls r.2:2", "r.2:2 at 0"], Budget { crashed: 1, ..NONE });
    let inner = ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 calls r.3:3", "r.3:3 at 1"];
    run(2, &inner, Budget { crashed: 1, ..NONE });
    run(2, &inner, Budget { deadlines: 1, lost: 1, ..NONE });
}

/// A handler that makes its calls at once; siblings that conflict follow each other all the same.
#[test]
fn calls_that_are_under_way_together() {
    let fork = ["r.1:1 at 0 calls r.2:2 r.3:3 together", "r.2:2 at 1", "r.3:3 at 2"];
    let explored = run(3, &fork, NONE);
    assert_eq!(explored.committed, explored.ends);
    run(3, &fork, Budget { crashed: 1, ..NONE });
    run(3, &fork, Budget { deadlines: 1, ..NONE });
    let refused = ["r.1:1 at 0 calls r.2:2 r.3:3 together", "r.2:2 at 1", "r.3:3 at 2 refuses"];
    assert_eq!(run(3, &refused, Budget { crashed: 1, ..NONE }).committed, 0);
    let siblings = ["r.1:1 at 0 calls r.2:7 r.3:7 together", "r.2:7 at 1", "r.3:7 at 1"];
    assert!(run(2, &siblings, Budget { crashed: 1, ..NONE }).committed > 0);
}

#[test]
#[ignore = "takes minutes"]
fn a_diamond_of_calls_that_are_under_way_together() {
    let lines =
        ["r.1:1 at 0 calls r.2:2 r.3:3 together", "r.2:2 at 1 calls r.4:4", "r.3:3 at 2", "r.4:4 at 2"];
    let explored = run(3, &lines, NONE);
    assert_eq!(explored.committed, explored.ends);
    run(3, &lines, Budget { crashed: 1, ..NONE });
    run(3, &lines, Budget { deadlines: 1, ..NONE });
}

#[test]
fn calls_are_answered_ahead_of_their_commits() {
    let line = ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 calls r.3:3 ahead", "r.3:3 at 2 ahead"];
    for shape in [&AHEAD[..], &BOTH_AHEAD, &line] {
        let explored = run(3, shape, NONE);
        assert_eq!(explored.committed, explored.ends, "{shape:?}");
        run(3, shape, Budget { failed: 1, ..NONE });
        run(3, shape, Budget { crashed: 1, ..NONE });
        run(3, shape, Budget { deadlines: 1, ..NONE });
    }
    run(2, &AHEAD, Budget { crashed: 1, duplicated: 1, ..NONE });
    run(2, &AHEAD, Budget { crashed: 1, failed: 1, lost: 1, ..NONE });
    run(2, &AHEAD, Budget { crashed: 1, journals_lost: 1, duplicated: 1, ..NONE });
}

/// One waits for the other's commit; none is answered ahead within another one.
#[test]
fn siblings_and_cycles_beside_commits_under_way() {
    let siblings = ["r.1:1 at 0 calls r.2:7 r.3:7", "r.2:7 at 1 ahead", "r.3:7 at 1 ahead"];
    assert!(run(2, &siblings, Budget { failed: 1, ..NONE }).committed > 0);
    run(2, &siblings, Budget { crashed: 1, ..NONE });
    let inner = ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 calls r.3:3 ahead", "r.3:3 at 1 ahead"];
    run(2, &inner, Budget { crashed: 1, ..NONE });
    let cycle = ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 calls r.3:3 ahead", "r.3:3 at 0 ahead"];
    let explored = run(2, &cycle, NONE);
    assert_eq!(explored.committed, explored.ends);
    run(2, &cycle, Budget { crashed: 1, ..NONE });
}

#[test]
#[ignore = "takes minutes"]
fn a_diamond_of_calls_that_are_answered_ahead() {
    let lines = [
        "r.1:1 at 0 calls r.2:2 r.3:3",
        "r.2:2 at 1 calls r.4:4 ahead",
        "r.3:3 at 2 ahead",
        "r.4:4 at 2 ahead",
    ];
    run(3, &lines, Budget { failed: 1, ..NONE });
    run(3, &lines, Budget { crashed: 1, ..NONE });
}

#[test]
#[ignore = "takes minutes"]
fn large_shapes_with_a_crash() {
    run_all(&LARGE, Budget { crashed: 1, ..NONE });
    run_all(&LARGE, Budget { crashed: 1, knows: true, ..NONE });
}

#[test]
#[ignore = "takes minutes"]
fn large_shapes_with_a_crash_that_takes_the_journal() {
    run_all(&LARGE, Budget { crashed: 1, journals_lost: 1, ..NONE });
}

#[test]
#[ignore = "takes minutes"]
fn large_shapes_with_a_deadline() {
    run_all(&LARGE, Budget { deadlines: 1, ..NONE });
}

#[test]
#[ignore = "takes minutes"]
fn large_shapes_with_a_lost_message() {
    run_all(&LARGE, Budget { lost: 1, ..NONE });
}

#[test]
#[ignore = "takes minutes"]
fn large_shapes_with_a_doubled_message() {
    run_all(&LARGE, Budget { duplicated: 1, ..NONE });
}

#[test]
#[ignore = "takes minutes"]
fn a_duplicate_and_a_crash() {
    run(3, &FORK, Budget { duplicated: 1, crashed: 1, ..NONE });
    let lines = ["r.1:1 at 0 calls r.2:2 r.3:3", "r.2:2 at 1 reads", "r.3:3 at 2"];
    run(3, &lines, Budget { crashed: 1, duplicated: 1, ..NONE });
}

#[test]
#[ignore = "takes minutes"]
fn two_roots_and_a_fault() {
    let lines = ["r.1:1 at 0 calls r.2:7", "r.2:7 at 1", "q.1:2 at 0 calls q.2:7", "q.2:7 at 1"];
    run(2, &lines, Budget { lost: 1, ..NONE });
    run(2, &lines, Budget { crashed: 1, ..NONE });
}

#[test]
fn a_plan_reads_as_it_is_written() {
    let plan = plan(&FORK);
    let calls: BTreeMap<CallId, usize> =
        plan.calls.iter().map(|(call, (place, _))| (call.clone(), *place)).collect();
    assert_eq!(calls, [(call("r.1:1"), 0), (call("r.2:2"), 1), (call("r.3:3"), 2)].into());
    assert_eq!(plan.beginnings, [(RootId::new("r").expect("a root"), call("r.1:1"))]);
}
