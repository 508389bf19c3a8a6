//! Clusters of processes whose network is cut and slow, and whose nodes stand still or are killed,
//! one of them or all at once, while clients at all nodes go on by all protocols
//! ([`crate::cluster_histories`]).
//!
//! What happens, and to whom, is drawn from a seed, which is printed; `COGNATE_SEED` sets it, and
//! `COGNATE_ROUNDS` how much happens. Nothing here waits for a time: a fault lasts until those who
//! can go on have gone on, and those who cannot have been refused.

use std::thread;
use std::time::Duration;

use cognate_env::{Rng as _, SplitMix};

use crate::cluster::{Cluster, SIZE, rows};
use crate::cluster_histories::{Crew, PROTOCOLS};
use crate::proxies::Proxies;

/// How many transactions each client does before, during and after a fault.
const TIMES: usize = 8;

/// What is done to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It and the others do not hear each other.
    Cut,
    /// It does not hear the others, and they hear it.
    Deaf,
    /// The others do not hear it, and it hears them.
    Mute,
    /// Its process is stopped and continued.
    Still,
    /// Everything between all nodes is late.
    Slow,
    /// Its process is killed and started again.
    Killed,
    /// All processes are killed, in the middle of what they do, and started again.
    AllKilled,
}

const FAULTS: [Fault; 7] =
    [Fault::Cut, Fault::Deaf, Fault::Mute, Fault::Still, Fault::Slow, Fault::Killed, Fault::AllKilled];

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seed() -> u64 {
    let seed = from_environment("COGNATE_SEED").unwrap_or_else(|| cognate_env::RealRng.next_u64());
    println!("seed {seed}");
    seed
}

/// A cluster whose nodes reach each other over proxies only.
fn cluster() -> (Cluster, Proxies) {
    let mut cluster = Cluster::prepare();
    let proxies = Proxies::before(&cluster.between());
    cluster.lists = (1..=SIZE).map(|node| proxies.list(node)).collect();
    cluster.restart(&[1, 2, 3]);
    (cluster, proxies)
}

fn kill(cluster: &mut Cluster, crew: &Crew, node: usize) {
    crew.lose(node);
    cluster.kill(node);
}

/// Nobody ends before all are being killed.
fn kill_all(cluster: &mut Cluster, crew: &Crew) {
    (1..=SIZE).for_each(|node| crew.lose(node));
    (1..=SIZE).for_each(|node| cluster.signal_to(node, "KILL"));
    (1..=SIZE).for_each(|node| cluster.await_end(node));
}

fn start_again(cluster: &mut Cluster, crew: &Crew, nodes: &[usize]) {
    cluster.restart(nodes);
    nodes.iter().for_each(|node| crew.find(*node, cluster.address(*node)));
}

/// Does it to a node, lets everybody go on who can, and takes it back.
fn suffer(cluster: &mut Cluster, proxies: &Proxies, crew: &Crew, fault: Fault, node: usize) {
    let others: Vec<usize> = (1..=SIZE).filter(|other| *other != node).collect();
    // Somebody of the node is always at work when it begins.
    crew.allow(TIMES);
    match fault {
        Fault::Cut => {
            proxies.mute(node);
            proxies.deafen(node);
        }
        Fault::Deaf => proxies.deafen(node),
        Fault::Mute => proxies.mute(node),
        Fault::Still => cluster.signal_to(node, "STOP"),
        Fault::Slow => proxies.slow(Duration::from_millis(3)),
        Fault::Killed => kill(cluster, crew, node),
        Fault::AllKilled => kill_all(cluster, crew),
    }
    if fault != Fault::AllKilled {
        crew.go_on(TIMES, &others);
    }
    let mut state = Vec::new();
    if fault == Fault::Cut {
        crew.until_refused(node);
        let text = format!("SELECT state FROM cognate_nodes WHERE node = {node}");
        state = rows(&mut cluster.connect(node), &text);
    }
    match fault {
        Fault::Still => cluster.signal_to(node, "CONT"),
        Fault::Killed => start_again(cluster, crew, &[node]),
        Fault::AllKilled => start_again(cluster, crew, &[1, 2, 3]),
        Fault::Cut | Fault::Deaf | Fault::Mute | Fault::Slow => proxies.heal(),
    }
    crew.go_on(TIMES, &[1, 2, 3]);
    crew.assert_well();
    assert!(fault != Fault::Cut || state == [["minority"]], "{state:?}");
}

/// So many faults, of each kind one before any comes again; half of them happen to the leader.
fn history(level: &'static str, faults: &[Fault], rounds: usize) {
    let seed = seed();
    let mut random = SplitMix::new(seed);
    let (mut cluster, proxies) = cluster();
    let crew = Crew::new(&cluster, level);
    thread::scope(|scope| {
        let _alarm = crew.alarm();
        for node in (1..=SIZE).flat_map(|node| [node, node]) {
            crew.hire(scope, &cluster, node, &PROTOCOLS, seed);
        }
        crew.go_on(TIMES, &[1, 2, 3]);
        let mut left = Vec::new();
        for round in 0..rounds {
            if left.is_empty() {
                left = faults.to_vec();
            }
            let fault = left.swap_remove(random.below(left.len() as u64) as usize);
            let leader = cluster.leader(1);
            let node = match random.one_in(2) {
                true => leader,
                false => 1 + (leader + random.below(SIZE as u64 - 1) as usize) % SIZE,
            };
            println!("round {round}: {fault:?} of node {node}, node {leader} leads");
            suffer(&mut cluster, &proxies, &crew, fault, node);
        }
        crew.end();
    });
    crew.judge(&cluster);
}

fn rounds(usually: usize) -> usize {
    from_environment("COGNATE_ROUNDS").map_or(usually, |rounds| rounds as usize)
}

#[test]
fn cut_and_slow_networks_leave_one_serial_history() {
    history("serializable", &FAULTS, rounds(FAULTS.len()));
}

/// At the other levels, too: what was acknowledged is there once, whoever was killed.
#[test]
fn killed_nodes_lose_nothing_at_lower_levels() {
    for level in ["repeatable read", "read committed"] {
        history(level, &[Fault::Killed, Fault::AllKilled], rounds(2));
    }
}

#[test]
fn cut_and_slow_networks_leave_one_history_of_snapshots() {
    history("repeatable read", &FAULTS, rounds(2));
}

#[test]
fn cut_and_slow_networks_lose_nothing_at_read_committed() {
    history("read committed", &FAULTS, rounds(2));
}

/// Voters whose origin stands still are decided without it, and it finds out when it goes on; then
/// the same happens to the leader, whose clients use all protocols.
#[test]
fn an_origin_of_voters_and_a_leader_stand_still_and_go_on() {
    let seed = seed();
    let (mut cluster, proxies) = cluster();
    let crew = Crew::new(&cluster, "serializable");
    let leader = cluster.leader(1);
    let origin = 1 + leader % SIZE;
    thread::scope(|scope| {
        let _alarm = crew.alarm();
        for node in (1..=SIZE).flat_map(|node| [node, node]) {
            let protocols = if node == origin { &PROTOCOLS[2..3] } else { &PROTOCOLS[..] };
            crew.hire(scope, &cluster, node, protocols, seed);
        }
        crew.go_on(TIMES, &[1, 2, 3]);
        for node in [origin, leader, origin] {
            suffer(&mut cluster, &proxies, &crew, Fault::Still, node);
        }
        crew.end();
    });
    crew.judge(&cluster);
}
