//! The e-Transaction protocol, explored exhaustively: the real state machines of client,
//! application servers (`cognate_client_protocol`) and sites (`cognate_engine::sibling`) in a
//! network that loses, repeats and delays, with crashes. `world` is one state and its steps,
//! `explorer` visits all of them breadth first, `heal` is how a state without further faults goes
//! on.
//!
//! # What can happen
//!
//! - *Pauses, slow messages, loss.* A message is processed at any later moment or never; so a run
//!   (an execution by an application server) stands still at any point, as long as it likes. A lost
//!   request or reply that is noticed is a step of its own.
//! - *Wrong suspicion.* The client times out at any moment, and sends its next attempt to the next
//!   server.
//! - *Repeated messages.* The client's message arrives twice, at two servers. COMMIT arrives again,
//!   and late. BEGIN and PREPARE go over a connection, which delivers once.
//! - *Crash of a server.* Its runs stop; what they have sent may still arrive.
//! - *Crash of a site.* What is active is lost, what is prepared, decided or forgotten stays.
//! - *Failures.* The logic of a request fails, or a site refuses a PREPARE, for whatever reason.
//! - *Shared rows.* Two requests write one row at each site. A site lets one wait for the other
//!   (and the wait ends when the logic's patience does), or refuses the PREPARE of one because the
//!   other is prepared ([`Rows`](world::Rows)).
//! - *Stub.* A site with something prepared and undecided pushes the request to a server, under a
//!   number of its lane.
//! - *Acknowledgement.* Once the client has its answer, sites forget, in any order and at any time.
//!
//! # Which histories are explored only once
//!
//! - A reply is handed to its run in the step that makes it: a run that has it and waits is the
//!   same as one whose next requests wait.
//! - What is active and whose run has stopped is released at once, unless its PREPARE is under way.
//!   Until then an active instance is to all others what one is that its site has lost in a crash:
//!   nothing is known of it. A BEGIN of a run that has stopped is never processed.
//! - A stub pushes to each server only while one of them may crash: nothing else tells them apart.
//! - A run is known by its instance and a counter of repetitions, not by the order in which runs
//!   began.
//!
//! # Properties
//!
//! Safety, in every step: **A1** no answer unless every site has committed; **A2** no site commits
//! two instances; **A3** no two sites decide differently (neither the instance nor its
//! result); **V1** the answer is what a run of the issued request computed; **V2** no commit unless
//! all sites had prepared, the same execution.
//!
//! Liveness, from every state: **T1** with no further fault, everything that is under way lost, and
//! all old runs dead, the clients' own retries bring the answers, one after the other, whoever
//! begins; **T2** the same with the clients dead: the stubs decide or withdraw what is prepared, at
//! every site that has prepared; **T3** of two requests: one attempt of each, in every
//! interleaving, leaves nothing in doubt of whoever is not answered. So an endless history without
//! an answer, in which nothing fails any more, would have to let the attempts overlap each time
//! anew, and pauses of random and growing length do not.
//!
//! # By command
//!
//! Three attempts and a stub, without further faults, and others that are as large: millions of
//! states, many minutes, some gigabytes. Each says how many states it has visited.
//!
//! ```text
//! cargo test --release -p cognate-client-protocol --test model -- --ignored --nocapture --exact three_attempts_and_a_stub
//! cargo test --release -p cognate-client-protocol --test model -- --ignored --nocapture --test-threads 1
//! ```

mod explorer;
mod heal;
mod world;

use explorer::{Explored, explore};
use world::Bounds;
use world::Rows::{Apart, Refuses, Waits};

fn report(name: &str, bounds: &Bounds, explored: &Explored) {
    println!(
        "{name}: {} states, {} steps, longest history {}, {} healings, {} together, {:.1} s; {bounds:?}",
        explored.states,
        explored.steps,
        explored.depth,
        explored.healings,
        explored.together,
        explored.elapsed.as_secs_f64()
    );
}

fn holds(name: &str, bounds: Bounds) {
    let explored = explore(&bounds, &|_| true);
    report(name, &bounds, &explored);
    if let Some(violation) = &explored.violation {
        panic!("{name}: {violation}");
    }
}

const QUIET: Bounds = Bounds {
    sites: &[Apart, Apart],
    servers: 2,
    attempts: &[1],
    pushes: 0,
    repeats: 0,
    losses: 0,
    failures: 0,
    server_crashes: 0,
    site_crashes: 0,
    has_tombstones: true,
    withdraws: true,
};

/// Every fault of this kind once, besides what needs no bound (pauses, wrong suspicions, slow and
/// lost messages, late COMMITs).
const FAULTY: Bounds = Bounds { losses: 1, server_crashes: 1, site_crashes: 1, ..QUIET };

#[test]
#[ignore = "millions of states: many minutes, gigabytes"]
fn three_attempts_with_crashes_and_losses() {
    holds("three attempts", Bounds { attempts: &[3], ..FAULTY });
}

#[test]
#[ignore = "millions of states: many minutes, gigabytes"]
fn two_attempts_and_a_stub_with_crashes_and_losses() {
    holds("two attempts, a stub", Bounds { attempts: &[2], pushes: 1, ..FAULTY });
}

#[test]
fn two_attempts_and_a_stub_with_losses() {
    holds("two attempts, a stub, a loss", Bounds { attempts: &[2], pushes: 1, losses: 1, ..QUIET });
}

#[test]
fn one_attempt_that_arrives_twice_and_a_stub_with_crashes_and_losses() {
    holds("one attempt, repeated, a stub", Bounds { repeats: 1, pushes: 1, ..FAULTY });
}

#[test]
#[ignore = "millions of states: many minutes, gigabytes"]
fn two_attempts_of_which_one_arrives_twice_and_a_stub() {
    holds("two attempts, one repeated, a stub", Bounds { attempts: &[2], repeats: 1, pushes: 1, ..QUIET });
}

/// With two crashes two executions come to share an instance: see the head of the server's side.
#[test]
fn repeated_messages_and_two_crashes_of_sites() {
    holds("two attempts, one repeated", Bounds { attempts: &[2], repeats: 1, site_crashes: 2, ..QUIET });
}

#[test]
fn three_sites() {
    holds("three sites", Bounds { sites: &[Apart, Apart, Apart], attempts: &[2], site_crashes: 1, ..QUIET });
}

#[test]
#[ignore = "millions of states: many minutes, gigabytes"]
fn three_attempts_and_a_stub() {
    holds("three attempts, a stub", Bounds { attempts: &[3], pushes: 1, ..QUIET });
}

#[test]
#[ignore = "more than ten million states: many minutes, gigabytes"]
fn three_attempts_and_a_stub_with_a_crash() {
    holds("three attempts, a stub", Bounds { attempts: &[3], pushes: 1, site_crashes: 1, ..QUIET });
}

#[test]
#[ignore = "twelve million states: five minutes"]
fn a_repeated_attempt_and_a_stub_with_a_crash() {
    let bounds = Bounds { attempts: &[2], repeats: 1, pushes: 1, site_crashes: 1, ..QUIET };
    holds("two attempts, one repeated, a stub, a crash", bounds);
}

/// Logic that fails, and sites that refuse a PREPARE: what is in the way is refused and withdrawn.
#[test]
fn two_attempts_with_failures_losses_and_crashes() {
    holds("failures", Bounds { attempts: &[2], failures: 2, ..FAULTY });
}

#[test]
fn three_attempts_with_failures() {
    holds("three attempts, failures", Bounds { attempts: &[3], failures: 2, ..QUIET });
}

/// An abort that was told and then lost in a crash would be a proof of nothing.
#[test]
fn a_repeated_attempt_with_failures_and_a_crash_of_a_site() {
    holds("repeated, failures", Bounds { attempts: &[2], repeats: 1, failures: 1, site_crashes: 1, ..QUIET });
}

/// Two requests whose instances wait for each other at one site and are refused because of each
/// other at the other one.
const TWO: Bounds = Bounds { sites: &[Refuses, Waits], attempts: &[1, 1], losses: 1, ..QUIET };

#[test]
fn two_requests_over_shared_rows() {
    for sites in [&[Refuses, Waits], &[Waits, Waits], &[Refuses, Refuses]] {
        holds("two requests", Bounds { sites, ..TWO });
    }
}

#[test]
fn two_requests_one_of_which_is_tried_again() {
    holds("two requests, three attempts", Bounds { attempts: &[2, 1], losses: 0, server_crashes: 1, ..TWO });
}

/// What the sites' refusals are for: R is prepared at one site only, C at the other only; R's
/// retries wait for C, C's are refused because of R.
#[test]
fn without_withdrawal_two_requests_block_each_other_for_ever() {
    let bounds = Bounds { withdraws: false, ..TWO };
    let explored = explore(&bounds, &|broken| broken.contains("T1"));
    report("without withdrawal", &bounds, &explored);
    println!("{}", explored.violation.expect("it is needed"));
}

/// Why there are tombstones: two servers see different tables, and each commits what it saw
/// prepared everywhere.
#[test]
fn without_tombstones_two_sites_decide_differently() {
    let bounds = Bounds { attempts: &[2], has_tombstones: false, ..QUIET };
    for property in ["A3", "two decisions"] {
        let explored = explore(&bounds, &|broken| broken.contains(property));
        report("without tombstones", &bounds, &explored);
        let violation = explored.violation.expect("the rule is needed");
        println!("{violation}");
        // Two BEGINs and two PREPAREs of each, the time-out, the retry's two looks, two COMMITs:
        // all of it is needed.
        assert!(violation.contains("after 13 steps"), "{violation}");
    }
    holds("with tombstones", Bounds { has_tombstones: true, ..bounds });
}

/// Client and sites number instances by one rule, each in its own code.
#[test]
fn both_sides_number_in_the_same_way() {
    use cognate_client_protocol::etransaction::{LANE_BITS, instance_above};
    use cognate_engine::sibling::{self, Instance};
    assert_eq!(LANE_BITS, sibling::LANE_BITS);
    let step = 1 << LANE_BITS;
    for highest in [-1, 0, 1, step - 1, step, step + 1, 77 * step + 5, i64::MAX - step, i64::MAX] {
        assert_eq!(instance_above(highest), Instance::above(highest, 0).map(Instance::get), "{highest}");
    }
}
