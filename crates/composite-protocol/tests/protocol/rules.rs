//! Each rule of the protocol, left out: the exploration finds a history that goes wrong.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cognate_composite_protocol::participant::rule::{Rule, omit};

use crate::roots::{AHEAD, BOTH_AHEAD, CHAIN, NONE, run};
use crate::world::Budget;

/// With the rule all is well, without it something is found.
fn needs<T>(rule: Rule, explored: impl Fn() -> T) {
    explored();
    omit(Some(rule));
    let without = catch_unwind(AssertUnwindSafe(explored));
    omit(None);
    assert!(without.is_err(), "nobody notices that {rule:?} is left out");
}

/// One calls another, which calls a third.
const LINE: [&str; 3] = ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 calls r.3:3", "r.3:3 at 2"];
/// A handler that goes on when its call has failed.
const TOLERANT: [&str; 2] = ["r.1:1 at 0 calls r.2:2 tolerates", "r.2:2 at 1"];
/// One of the calls only reads.
const READS: [&str; 3] = ["r.1:1 at 0 calls r.2:2 r.3:3", "r.2:2 at 1", "r.3:3 at 1 reads"];

/// The shortest cycle: one that is not the root's calls itself.
const SELF: [&str; 3] = ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 calls r.3:3", "r.3:3 at 1"];

#[test]
fn a_root_is_forgotten_last() {
    needs(Rule::ForgetsLast, || run(2, &CHAIN, Budget { lost: 1, ..NONE }));
}

/// Also where a journal was lost.
#[test]
fn to_a_start_slots_are_votes() {
    for journals_lost in [0, 1] {
        let budget = Budget { crashed: 1, journals_lost, ..NONE };
        needs(Rule::SlotsAreVotes, || run(2, &CHAIN, budget));
    }
}

/// Where a start knows who was promised, it has to know all of them.
#[test]
fn promises_are_listed() {
    needs(Rule::PromisesAreListed, || run(2, &CHAIN, Budget { crashed: 1, knows: true, ..NONE }));
}

/// A call that comes late is executed once more by the process after the one that has committed it,
/// which ends, too. The next one asks.
#[test]
fn slots_say_what_their_vote_is_known_by() {
    let budget = Budget { crashed: 2, duplicated: 1, ..NONE };
    needs(Rule::SlotsNameVotes, || run(2, &CHAIN, budget));
}

/// A component loses a call that has called itself: all that is left would ask itself for ever.
#[test]
fn a_question_names_who_has_called() {
    needs(Rule::CallersAreNamed, || run(2, &SELF, Budget { crashed: 1, ..NONE }));
}

/// Where a root began another call of it is not in doubt: without the decision it is undone.
#[test]
fn the_slot_of_a_decision_is_freed_last() {
    let line = ["r.1:1 at 0 calls r.2:2", "r.2:2 at 0"];
    needs(Rule::DecisionsAreFreedLast, || run(2, &line, Budget { crashed: 1, ..NONE }));
}

#[test]
fn who_is_in_doubt_does_not_decide() {
    needs(Rule::InDoubtIsInDoubt, || run(2, &CHAIN, Budget { deadlines: 1, ..NONE }));
}

#[test]
fn who_was_sent_a_call_is_asked_and_a_failed_call_counts() {
    needs(Rule::FailedCallsCount, || run(2, &TOLERANT, Budget { lost: 1, ..NONE }));
}

#[test]
fn calls_are_counted() {
    needs(Rule::CallsAreCounted, || run(2, &READS, Budget { crashed: 1, ..NONE }));
}

#[test]
fn generations_are_compared() {
    let line = ["r.1:1 at 0 calls r.2:2", "r.2:2 at 1 reads"];
    let budget = Budget { crashed: 1, duplicated: 1, ..NONE };
    needs(Rule::GenerationsAreCompared, || run(2, &line, budget));
}

/// A call and its question are said twice, and come once more when the component has done its part
/// and lost its journal, with the mark of the root.
#[test]
fn nonces_are_compared() {
    let budget = Budget { duplicated: 2, crashed: 1, journals_lost: 1, ..NONE };
    needs(Rule::NoncesAreCompared, || run(2, &CHAIN, budget));
}

#[test]
fn slots_name_the_children() {
    needs(Rule::SlotsNameChildren, || run(3, &LINE, Budget { crashed: 1, ..NONE }));
}

#[test]
fn a_further_parent_does_not_wait() {
    needs(Rule::FurtherParentsNeedNotWait, || {
        let explored = run(2, &SELF, NONE);
        assert_eq!(explored.committed, explored.ends, "a cycle that nothing has happened to is committed");
    });
}

#[test]
fn votes_wait_for_commits() {
    needs(Rule::VotesWaitForCommits, || run(2, &AHEAD, NONE));
}

/// A call comes once more whose first execution was answered, and lost with its commit. Another
/// call of the root has its nonce known.
#[test]
fn a_failed_commit_ends_its_root() {
    let budget = Budget { duplicated: 1, failed: 1, ..NONE };
    needs(Rule::FailedCommitsEndRoots, || run(2, &BOTH_AHEAD, budget));
}

#[test]
fn ended_roots_are_marked() {
    let budget = Budget { deadlines: 1, duplicated: 1, ..NONE };
    needs(Rule::EndedRootsAreMarked, || run(2, &CHAIN, budget));
}
