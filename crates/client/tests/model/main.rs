//! The e-Transaction protocol, explored exhaustively: the real state machines of client, application servers (`cognate_client`) and sites
//! (`cognate_engine::sibling`) in a network that loses, repeats and delays, with crashes. `world` is one state and its steps, `explorer` visits all of them
//! breadth first, `heal` is how a state without further faults goes on.
//!
//! # What can happen
//!
//! - *Pauses, slow messages, loss.* A message is processed at any later moment or never; so a run (an execution by an application server) stands still at any point, as long
//!   as it likes. A lost request or reply that is noticed is a step of its own.
//! - *Wrong suspicion.* The client times out at any moment, and sends its next attempt to the next server.
//! - *Repeated messages.* The client's message arrives twice, at two servers. COMMIT arrives again, and late. BEGIN and PREPARE go over a connection, which delivers once.
//! - *Crash of a server.* Its runs stop; what they have sent may still arrive.
//! - *Crash of a site.* What is active is lost, what is prepared, decided or forgotten stays.
//! - *Stub.* A site with something prepared and undecided pushes the request to a server, under a number of its lane.
//! - *Acknowledgement.* Once the client has its answer, sites forget, in any order and at any time.
//!
//! # Which histories are explored only once
//!
//! - A reply is handed to its run in the step that makes it: a run that has it and waits is the same as one whose next requests wait.
//! - What is active and whose run has stopped is released at once: to all others an active instance and an abandoned one are the same, both are
//!   refused to who would begin them and end under a tombstone. For the same reason a BEGIN of a run that has stopped is never processed.
//! - A run is known by its instance and a counter of repetitions, not by the order in which runs began.
//!
//! # Properties
//!
//! Safety, in every step: **A1** no answer unless every site has committed; **A2** no site commits two instances; **A3** no two sites decide differently (neither the
//! instance nor its result); **V1** the answer is what a run of the issued request computed; **V2** no commit unless all sites had prepared, the same execution.
//!
//! Liveness, from every state: **T1** with no further fault, everything that is under way lost, and all old runs dead, the client's own retries bring the answer; **T2** the same
//! with the client dead: the stubs decide what is prepared, at every site that has prepared.

mod explorer;
mod heal;
mod world;

use explorer::{Explored, explore};
use world::Bounds;

fn report(name: &str, bounds: &Bounds, explored: &Explored) {
    println!(
        "{name}: {} states, {} steps, longest history {}, {} healings, {:.1} s; {bounds:?}",
        explored.states,
        explored.steps,
        explored.depth,
        explored.healings,
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
    sites: 2,
    servers: 2,
    attempts: 1,
    pushes: 0,
    repeats: 0,
    losses: 0,
    server_crashes: 0,
    site_crashes: 0,
    has_tombstones: true,
};

/// Every fault of this kind once, besides what needs no bound (pauses, wrong suspicions, slow and lost messages, late COMMITs).
const FAULTY: Bounds = Bounds { losses: 1, server_crashes: 1, site_crashes: 1, ..QUIET };

#[test]
fn three_attempts_with_crashes_and_losses() {
    holds("three attempts", Bounds { attempts: 3, ..FAULTY });
}

#[test]
fn two_attempts_and_a_stub_with_crashes_and_losses() {
    holds("two attempts, a stub", Bounds { attempts: 2, pushes: 1, ..FAULTY });
}

#[test]
fn two_attempts_of_which_one_arrives_twice_and_a_stub() {
    holds("two attempts, one repeated, a stub", Bounds { attempts: 2, repeats: 1, pushes: 1, ..QUIET });
}

/// With two crashes two executions come to share an instance: see the head of the server's side.
#[test]
fn repeated_messages_and_two_crashes_of_sites() {
    holds("two attempts, one repeated", Bounds { attempts: 2, repeats: 1, site_crashes: 2, ..QUIET });
}

#[test]
fn three_sites() {
    holds("three sites", Bounds { sites: 3, attempts: 2, site_crashes: 1, ..QUIET });
}

#[test]
#[ignore = "more than ten million states: many minutes, gigabytes"]
fn three_attempts_and_a_stub_with_a_crash() {
    holds("three attempts, a stub", Bounds { attempts: 3, pushes: 1, site_crashes: 1, ..QUIET });
}

#[test]
#[ignore = "twelve million states: five minutes"]
fn a_repeated_attempt_and_a_stub_with_a_crash() {
    let bounds = Bounds { attempts: 2, repeats: 1, pushes: 1, site_crashes: 1, ..QUIET };
    holds("two attempts, one repeated, a stub, a crash", bounds);
}

/// Why there are tombstones: two servers see different tables, and each commits what it saw prepared everywhere.
#[test]
fn without_tombstones_two_sites_decide_differently() {
    let bounds = Bounds { attempts: 2, has_tombstones: false, ..QUIET };
    for property in ["A3", "two decisions"] {
        let explored = explore(&bounds, &|broken| broken.contains(property));
        report("without tombstones", &bounds, &explored);
        let violation = explored.violation.expect("the rule is needed");
        println!("{violation}");
        // Two BEGINs and two PREPAREs of each, the time-out, the retry's two looks, two COMMITs: all of it is needed.
        assert!(violation.contains("after 13 steps"), "{violation}");
    }
    holds("with tombstones", Bounds { has_tombstones: true, ..bounds });
}

/// Client and sites number instances by one rule, each in its own code.
#[test]
fn both_sides_number_in_the_same_way() {
    use cognate_client::etransaction::{LANE_BITS, instance_above};
    use cognate_engine::sibling::{self, Instance};
    assert_eq!(LANE_BITS, sibling::LANE_BITS);
    let step = 1 << LANE_BITS;
    for highest in [-1, 0, 1, step - 1, step, step + 1, 77 * step + 5, i64::MAX - step, i64::MAX] {
        assert_eq!(instance_above(highest), Instance::above(highest, 0).map(Instance::get), "{highest}");
    }
}
