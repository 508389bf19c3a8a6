//! Rules of the total order that are left out, one at a time: the storms of the simulated network,
//! or a history that was made for the rule, must notice each within a bounded number of seeds.
//!
//! | rule of the log and the order | fault | noticed by |
//! |---|---|---|
//! | a vote is durable before it is told | `VotesUnflushed` | `forgotten_vote` |
//! | an entry is durable before it is confirmed | `ConfirmsUnflushed` | storms |
//! | nothing is acknowledged before a majority has it | `CountsTheSilent` | storms |
//! | what a log ends with is delivered only once it is settled | `DeliversTheTail` | `end_of_a_deposed_leader` |
//! | one request, one position; blanks and members take none | `BlanksTakePositions` | storms |
//! | what is settled is never cut, nor does a start cut it | `CutsTheSettled` | the log's own tests (`log::tests`) |
//! | who has lost what it confirmed is not the node it was | `MeetsAnybody` | the log's own tests |
//!
//! Those of verdicts, locks, images and requests are in the engine's `cluster_faults`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bytes::Bytes;
use cognate_env::sim::Loss;
use cognate_replication::{NodeNumber, Planted, Role, Weather, plant};

use crate::sim::{NODES, Storm, run, simulated};

/// Within so many seeds it must be found.
const SEEDS: u64 = 100;

/// What is to notice that a rule is left out.
fn history(fault: Planted, seed: u64) {
    match fault {
        Planted::VotesUnflushed => forgotten_vote(seed),
        Planted::DeliversTheTail => end_of_a_deposed_leader(seed),
        Planted::BlanksTakePositions => run(seed, 5),
        _ => run(seed, 60),
    }
}

/// A leader that reaches nobody orders something, loses its power, and comes back when another one
/// has ordered something else. Nobody has settled what its log ends with.
fn end_of_a_deposed_leader(seed: u64) {
    simulated(async {
        let mut storm = Storm::new(seed);
        for node in 1..=NODES {
            storm.start(node).await;
        }
        let first = storm.running[&1].order("before").await;
        for node in storm.running.values() {
            node.until(first).await;
        }
        let leads = |node: &NodeNumber| storm.running[node].order.role() == Role::Leader;
        let old = (1..=NODES).find(leads).unwrap();
        alone(&storm, old);
        let order = storm.running[&old].order.clone();
        tokio::spawn(async move { order.propose(Bytes::from_static(b"its end")).await });
        // It has it on its disk, and still leads: no election comes as early as this.
        tokio::time::sleep(Duration::from_millis(20)).await;
        storm.lose(old, Loss::Power).await;
        let other = old % NODES + 1;
        storm.running[&other].order("between").await;
        storm.start(old).await;
        storm.network.heal();
        let last = storm.running[&other].order("after").await;
        for node in storm.running.values() {
            node.until(last).await;
        }
        let histories: Vec<_> = storm.running.values().map(|node| node.recorder.history()).collect();
        assert!(histories.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}: {histories:?}");
        storm.end().await;
    });
}

/// A node votes for a new leader and loses its power before anything else is written; then it meets
/// the old leader, which knows of nothing. If the vote were forgotten, both would order something,
/// and both would have a majority.
fn forgotten_vote(seed: u64) {
    simulated(async {
        let mut storm = Storm::new(seed);
        for node in 1..=NODES {
            storm.start(node).await;
        }
        // So slow that it can be seen who is elected before that one has sent anything.
        storm.network.set_weather(Weather { delay_us: (2_000, 5_000), losses: 0, repetitions: 0 });
        let first = storm.running[&1].order("before").await;
        for node in storm.running.values() {
            node.until(first).await;
        }
        let leads = |storm: &Storm, node: NodeNumber| storm.running[&node].order.role() == Role::Leader;
        let old = (1..=NODES).find(|node| leads(&storm, *node)).unwrap();
        alone(&storm, old);
        let new = loop {
            tokio::time::sleep(Duration::from_micros(100)).await;
            if let Some(new) = (1..=NODES).find(|node| *node != old && leads(&storm, *node)) {
                break new;
            }
        };
        alone(&storm, new);
        let voter = (1..=NODES).find(|node| *node != old && *node != new).unwrap();
        storm.lose(voter, Loss::Power).await;
        // What the new leader has sent it meanwhile comes to nobody.
        tokio::time::sleep(Duration::from_millis(20)).await;
        storm.start(voter).await;
        storm.network.heal();
        alone(&storm, new);
        let between = storm.running[&old].order("between").await;
        storm.network.heal();
        let last = storm.running[&new].order("after").await;
        for node in storm.running.values() {
            node.until(last).await;
        }
        let histories: Vec<_> = storm.running.values().map(|node| node.recorder.history()).collect();
        assert!(histories.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}: {histories:?}");
        assert_eq!(histories[0][between as usize - 1], "between", "seed {seed}: {histories:?}");
        storm.end().await;
    });
}

/// Nothing comes from this node or to it any more.
fn alone(storm: &Storm, node: NodeNumber) {
    for other in (1..=NODES).filter(|other| *other != node) {
        storm.network.cut(node, other);
        storm.network.cut(other, node);
    }
}

#[test]
fn each_rule_of_the_order_that_is_left_out_is_noticed() {
    let mut unnoticed = Vec::new();
    for fault in Planted::ALL {
        plant(Some(fault));
        let found =
            (1..=SEEDS).find(|seed| catch_unwind(AssertUnwindSafe(|| history(fault, *seed))).is_err());
        plant(None);
        match found {
            Some(seed) => println!("{fault:?} is noticed with seed {seed}"),
            None => unnoticed.push(fault),
        }
    }
    assert!(unnoticed.is_empty(), "not noticed within {SEEDS} seeds: {unnoticed:?}");
}

#[test]
fn with_all_rules_of_the_order_nothing_is_noticed() {
    // The storms that are to notice this one are those of `ConfirmsUnflushed`, too.
    let is_alike = |fault: &Planted| *fault == Planted::CountsTheSilent;
    for fault in Planted::ALL.into_iter().filter(|fault| !is_alike(fault)) {
        (1..=10).for_each(|seed| history(fault, seed));
    }
}
