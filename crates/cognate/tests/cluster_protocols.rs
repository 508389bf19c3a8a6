//! The protocols side by side at nodes that are processes, while one of them is killed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::cluster::{Cluster, SIZE, retried, rows, sqlstate};
use crate::wire::{Failure, Wire};

const PROTOCOLS: [&str; 3] = ["active", "weak_voting", "certification"];

/// A hot counter's updates, of two classes.
const HOT: [&str; 2] = [
    "UPDATE counter SET n = n + 1 WHERE id = 1",
    "BEGIN; SELECT n FROM counter; UPDATE counter SET n = n + 1 WHERE id = 1; COMMIT",
];

/// Updates at all nodes of one hot row: nobody who is executed everywhere fails for it.
#[test]
fn one_counter_is_counted_at_all_nodes_without_a_failure() {
    let cluster = Cluster::start();
    let mut setup = cluster.connect(1);
    setup.query("CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL)").expect("made");
    setup.query("INSERT INTO counter VALUES (1, 0)").expect("filled");
    let token = rows(&mut setup, "SHOW cognate.commit_token")[0][0].clone();
    thread::scope(|scope| {
        for client in 0..2 * SIZE {
            let (address, token) = (cluster.address(1 + client % SIZE), &token);
            scope.spawn(move || {
                let mut wire = Wire::connect(address).expect("connected");
                wire.query("SET cognate.statement_retries = 0").expect("set");
                wire.query("SET cognate.replication = active").expect("set");
                wire.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
                for _ in 0..25 {
                    wire.query("UPDATE counter SET n = n + 1 WHERE id = 1; SELECT n FROM counter")
                        .expect("counted");
                }
                assert_eq!(rows(&mut wire, "SHOW cognate.last_protocol"), [["active"]]);
            });
        }
    });
    let counted = (2 * SIZE * 25).to_string();
    assert_eq!(cluster.assert_equal("SELECT n FROM counter"), [[counted]]);
}

/// What a table has stored may be as deep as any: who executes for all has as much stack as who
/// serves.
#[test]
fn what_is_stored_deep_is_executed_at_every_node() {
    let cluster = Cluster::start();
    let mut wire = cluster.connect(1);
    let sum = " + 1".repeat(400);
    retried(&mut wire, &format!("CREATE TABLE deep (id int PRIMARY KEY CHECK (id{sum} > 0))"));
    wire.query("SET cognate.replication = active").expect("set");
    wire.query("INSERT INTO deep VALUES (1)").expect("inserted");
    wire.query("UPDATE deep SET id = id + 1; SELECT id FROM deep").expect("changed");
    assert_eq!(rows(&mut wire, "SHOW cognate.last_protocol"), [["active"]]);
    assert_eq!(cluster.assert_equal("SELECT id FROM deep"), [["2"]]);
}

/// Pays so often by all protocols in turn, each time until it is acknowledged.
fn pay(address: SocketAddr, token: &str, client: usize, times: usize) -> usize {
    let mut wire = Wire::connect(address).expect("connected");
    wire.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    for number in 0..times {
        let (from, to) = (1 + (number + client) % 10, 1 + (number * 7 + 3 + client) % 10);
        // What it reads besides is what a voter is asked about.
        let text = format!(
            "BEGIN; UPDATE account SET balance = balance - 1 WHERE id = {from} \
             AND (SELECT count(*) FROM account WHERE balance < -1000) = 0; \
             UPDATE account SET balance = balance + 1 WHERE id = {to}; COMMIT"
        );
        wire.query(&format!("SET cognate.replication = {}", PROTOCOLS[number % 3])).expect("set");
        loop {
            match wire.query(&text) {
                Ok(_) => break,
                Err(Failure::Error { sqlstate, .. })
                    if matches!(&sqlstate[..], "40001" | "40P01" | "25006") =>
                {
                    wire.query("ROLLBACK").expect("rolled back");
                }
                Err(failure) => panic!("{failure:?}"),
            }
        }
    }
    times
}

#[test]
fn all_protocols_go_on_while_a_node_is_killed() {
    let mut cluster = Cluster::start();
    let mut setup = cluster.connect(1);
    setup.query("CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)").expect("made");
    setup.query("INSERT INTO account SELECT n, 100 FROM generate_series(1, 10) n").expect("filled");
    let token = rows(&mut setup, "SHOW cognate.commit_token")[0][0].clone();
    let leader = cluster.leader(1);
    let killed = 1 + leader % SIZE;
    thread::scope(|scope| {
        // Whoever runs at the node that is killed leaves voters behind, perhaps, that nobody votes
        // about.
        let (address, lost) = (cluster.address(killed), token.clone());
        let (going, goes) = std::sync::mpsc::channel();
        let doomed = scope.spawn(move || {
            let mut wire = Wire::connect(address).expect("connected");
            wire.query(&format!("SET cognate.read_after = '{lost}'")).expect("set");
            wire.query("SET cognate.replication = weak_voting").expect("set");
            let text = "UPDATE account SET balance = balance WHERE id = 3 AND \
                        (SELECT count(*) FROM account WHERE balance < -1000) = 0";
            loop {
                match wire.query(text) {
                    // Whoever kills it has ended once it is gone.
                    Ok(_) => drop(going.send(())),
                    Err(Failure::Error { .. }) => {}
                    Err(_) => return,
                }
            }
        });
        let clients: Vec<_> = (1..=SIZE)
            .filter(|node| *node != killed)
            .flat_map(|node| [(node, 0), (node, 5)])
            .map(|(node, client)| {
                let (address, token) = (cluster.address(node), token.clone());
                scope.spawn(move || pay(address, &token, client, 30))
            })
            .collect();
        (0..20).for_each(|_| goes.recv().expect("it goes"));
        cluster.signal_to(killed, "KILL");
        assert_eq!(clients.into_iter().map(|client| client.join().expect("paid")).sum::<usize>(), 120);
        doomed.join().expect("its node is gone");
    });
    cluster.await_end(killed);
    cluster.restart(&[killed]);
    assert_eq!(cluster.assert_equal("SELECT sum(balance) FROM account"), [["1000"]]);
}

/// The default changes while a node is away: sessions that begin afterwards go by it, those that
/// are open by what they began with, and the node that comes back has executed what it missed.
#[test]
fn the_default_changes_while_a_node_is_away() {
    let mut cluster = Cluster::start();
    let mut setup = cluster.connect(1);
    setup.query("CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL, at timestamptz)").expect("made");
    setup.query("INSERT INTO counter VALUES (1, 0)").expect("filled");
    let away = 1 + cluster.leader(1) % SIZE;
    let there: Vec<usize> = (1..=SIZE).filter(|node| *node != away).collect();
    let mut open = cluster.connect(there[1]);
    cluster.signal_to(away, "KILL");
    cluster.await_end(away);
    let mut counted = 0;
    let mut count = |wire: &mut Wire, is_by: &str| {
        loop {
            match wire.query("UPDATE counter SET n = n + 1, at = now() WHERE id = 1; SELECT n FROM counter") {
                Ok(_) => break,
                // Others have to find out who leads.
                Err(Failure::Error { sqlstate, .. }) if matches!(&sqlstate[..], "40001" | "25006") => {}
                Err(failure) => panic!("{failure:?}"),
            }
        }
        counted += 1;
        assert_eq!(rows(wire, "SHOW cognate.last_protocol"), [[is_by]]);
    };
    for protocol in ["active", "weak_voting", "certification", "active"] {
        let mut setup = cluster.connect(there[0]);
        let text = format!("ALTER ROLE CURRENT_USER SET cognate.replication = {protocol}");
        loop {
            match setup.query(&text) {
                Ok(_) => break,
                Err(Failure::Error { sqlstate, .. }) if matches!(&sqlstate[..], "40001" | "25006") => {}
                Err(failure) => panic!("{failure:?}"),
            }
        }
        let token = rows(&mut setup, "SHOW cognate.commit_token")[0][0].clone();
        for node in &there {
            // What was committed there is known here once something waits for it.
            let mut first = cluster.connect(*node);
            first.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
            first.query("SELECT 1").expect("asked");
            let mut wire = cluster.connect(*node);
            assert_eq!(rows(&mut wire, "SHOW cognate.replication"), [[protocol]]);
            count(&mut wire, protocol);
        }
        assert_eq!(rows(&mut open, "SHOW cognate.replication"), [["auto"]]);
    }
    cluster.restart(&[away]);
    assert_eq!(cluster.assert_equal("SELECT n FROM counter"), [[counted.to_string()]]);
    let mut back = cluster.connect(away);
    assert_eq!(rows(&mut back, "SHOW cognate.replication"), [["active"]]);
}

/// `auto` begins with certification, notices that a counter's updates lose to each other, and has
/// them executed at every node: statements of their own, and whole messages.
#[test]
fn the_monitor_has_a_hot_counter_executed_everywhere() {
    let cluster = Cluster::start();
    let mut setup = cluster.connect(1);
    setup.query("CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL)").expect("made");
    setup.query("INSERT INTO counter VALUES (1, 0)").expect("filled");
    let token = rows(&mut setup, "SHOW cognate.commit_token")[0][0].clone();
    let is_chosen = AtomicBool::new(false);
    let counted: usize = thread::scope(|scope| {
        let clients: Vec<_> = (0..3 * SIZE)
            .map(|client| {
                let (address, token, is_chosen) = (cluster.address(1 + client % SIZE), &token, &is_chosen);
                scope.spawn(move || {
                    let mut wire = Wire::connect(address).expect("connected");
                    wire.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
                    let mut counted = 0;
                    while !is_chosen.load(Ordering::SeqCst) {
                        match wire.query(HOT[client / SIZE % 2]) {
                            Ok(_) => counted += 1,
                            Err(Failure::Error { sqlstate, .. }) if sqlstate == "40001" => {
                                wire.query("ROLLBACK").expect("rolled back");
                            }
                            Err(failure) => panic!("{failure:?}"),
                        }
                    }
                    counted
                })
            })
            .collect();
        let text = "SELECT class FROM cognate_protocol_choice \
                    WHERE class LIKE '%UPDATE counter%' AND chosen = 'active'";
        while rows(&mut setup, text).len() < HOT.len() {}
        is_chosen.store(true, Ordering::SeqCst);
        clients.into_iter().map(|client| client.join().expect("counted")).sum()
    });
    for text in HOT {
        setup.query(text).expect("counted");
        assert_eq!(rows(&mut setup, "SHOW cognate.last_protocol"), [["active"]]);
    }
    assert_eq!(cluster.assert_equal("SELECT n FROM counter"), [[(counted + HOT.len()).to_string()]]);
}

/// Under `auto` a message of a class of which nothing is known yet begins where it was sent. It has
/// read the table when another node's update overtakes the one that it waits for: so it is refused,
/// and run again at every node, where that cannot happen a second time.
#[test]
fn what_was_refused_under_auto_is_run_again_at_every_node() {
    let cluster = Cluster::start();
    let (mut holder, mut other) = (cluster.connect(1), cluster.connect(2));
    retried(&mut holder, "CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL)");
    retried(&mut holder, "INSERT INTO counter VALUES (1, 0), (2, 0)");
    let token = rows(&mut holder, "SHOW cognate.commit_token")[0][0].clone();
    other.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    holder.query("BEGIN; UPDATE counter SET n = 100 WHERE id = 1").expect("held");
    let address = cluster.address(1);
    let asked = thread::spawn(move || {
        let mut wire = Wire::connect(address).expect("connected");
        let text = "BEGIN; SELECT sum(n) FROM counter; UPDATE counter SET n = n + 10 WHERE id = 1; COMMIT";
        let sums = rows(&mut wire, text);
        (sums, rows(&mut wire, "SHOW cognate.last_protocol"))
    });
    let mut watch = cluster.connect(1);
    while rows(&mut watch, "SELECT 1 FROM pg_locks WHERE NOT granted").is_empty() {}
    other.query("UPDATE counter SET n = 5 WHERE id = 1").expect("faster");
    let (sums, protocol) = asked.join().expect("answered");
    assert_eq!((sums, protocol), (vec![vec!["5".to_owned()]], vec![vec!["active".to_owned()]]));
    assert_eq!(sqlstate(holder.query("COMMIT")), "40001");
    assert_eq!(cluster.assert_equal("SELECT n FROM counter ORDER BY id"), [["15"], ["0"]]);
}
