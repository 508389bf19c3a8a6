//! A cluster of processes as who runs it works with it: nodes that start, that are restarted one
//! after the other, and defaults that change, while clients are at work.
//!
//! Nothing here waits for a time: who conducts goes on once so many transactions were acknowledged.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::{process, thread};

use crate::cluster::{Cluster, SIZE, free_port, retried, rows};
use crate::process::command;
use crate::wire::{Failure, Wire};

/// How many transactions are acknowledged between two things that happen.
const TIMES: usize = 30;

/// A node that waits for the others says so to its clients, and serves them once it has what it
/// waits for.
#[test]
fn who_comes_to_a_node_that_is_starting_is_told_so_at_once() {
    let mut cluster = Cluster::start();
    cluster.connect(1).query("CREATE TABLE item (id int PRIMARY KEY)").expect("made");
    (1..=SIZE).for_each(|node| cluster.kill(node));
    let address = free_port().local_addr().expect("an address");
    let (data, arguments, listen) = (cluster.data(1), cluster.arguments(1), address.to_string());
    let words = ["serve", "--data", data.to_str().expect("UTF-8"), "--listen", &listen];
    let words: Vec<&str> = words.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let mut alone = command(&words).stderr(process::Stdio::null()).spawn().expect("started");
    let mut reasons = BTreeSet::new();
    while !reasons.iter().any(|reason: &String| reason.contains("no way to a majority")) {
        assert!(alone.try_wait().expect("asked").is_none(), "it waits for the others");
        reasons.extend(refused_by(address));
    }
    cluster.restart(&[2, 3]);
    let mut wire = loop {
        assert!(alone.try_wait().expect("asked").is_none(), "it takes part");
        match Wire::connect(address) {
            Ok(wire) => break wire,
            Err(failure) => assert_eq!(failure.sqlstate(), "57P03", "{failure:?}"),
        }
    };
    retried(&mut wire, "INSERT INTO item VALUES (1)");
    assert_eq!(rows(&mut wire, "SELECT id FROM item"), [["1"]]);
    alone.kill().expect("killed");
    alone.wait().expect("waited");
}

/// Whoever is asked, and whoever leads: a node leaves also by its own word. It comes back with what
/// it has, also if that was begun before and not brought to its end.
#[test]
fn a_node_leaves_and_comes_back_with_its_data() {
    let cluster = Cluster::start();
    let mut one = cluster.connect(1);
    one.query("CREATE TABLE item (id int PRIMARY KEY)").expect("made");
    cluster.manage(3, &["remove", "3"]).expect("removed");
    retried(&mut one, "INSERT INTO item VALUES (1)");
    let removed = "SELECT node FROM cognate_nodes \
                   WHERE node = 3 AND role IS NULL AND reason LIKE 'it is no member of the cluster%'";
    while rows(&mut one, removed).is_empty() {}
    let answer = cluster.ask_for(1, "/cluster/nodes/3/add");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let said = cluster.manage(2, &["add", "3"]).expect("added");
    assert!(said.ends_with("node 3 takes part\n"), "{said}");
    // If it was behind when it was removed it is sent a state, and begins anew with that.
    let mut three = loop {
        if let Ok(wire) = Wire::connect(cluster.address(3)) {
            break wire;
        }
    };
    retried(&mut three, "INSERT INTO item VALUES (2)");
    assert_eq!(cluster.assert_equal("SELECT id FROM item ORDER BY id"), [["1"], ["2"]]);
    let again = cluster.manage(2, &["add", "3"]).expect_err("it votes");
    assert!(again.contains("a member already"), "{again}");
}

/// Why a node that starts takes nobody; nothing if it does not listen yet.
fn refused_by(address: SocketAddr) -> Option<String> {
    match Wire::connect(address) {
        Err(Failure::Error { sqlstate, message, detail }) => {
            assert_eq!(sqlstate, "57P03", "{message}");
            assert_eq!(message, "the database system is starting up");
            Some(detail)
        }
        Err(Failure::Broken) => None,
        Ok(_) => panic!("it serves without a majority"),
    }
}

/// Where the nodes are, which changes with each start.
struct Addresses(Mutex<Vec<SocketAddr>>);

impl Addresses {
    fn of(cluster: &Cluster) -> Addresses {
        Addresses(Mutex::new((1..=SIZE).map(|node| cluster.address(node)).collect()))
    }

    fn get(&self, node: usize) -> SocketAddr {
        self.0.lock().expect("no panic")[node - 1]
    }

    fn set(&self, node: usize, address: SocketAddr) {
        self.0.lock().expect("no panic")[node - 1] = address;
    }
}

/// A client that has a list of nodes, and goes on at the next one when its own closes the
/// connection.
struct Client<'a> {
    addresses: &'a Addresses,
    node: usize,
    wire: Wire,
}

impl<'a> Client<'a> {
    fn new(addresses: &'a Addresses, node: usize) -> Client<'a> {
        let wire = Wire::connect(addresses.get(node)).expect("connected");
        Client { addresses, node, wire }
    }

    fn reconnect(&mut self) {
        loop {
            self.node = 1 + self.node % SIZE;
            match Wire::connect(self.addresses.get(self.node)) {
                Ok(wire) => {
                    self.wire = wire;
                    return;
                }
                Err(failure) => assert!(is_reconnect(&failure), "refused: {failure:?}"),
            }
        }
    }

    /// One payment, until it is acknowledged.
    fn pay(&mut self, id: &str, from: usize, to: usize) {
        let text = format!(
            "BEGIN; INSERT INTO paid VALUES ('{id}'); \
             UPDATE account SET balance = balance - 1 WHERE id = {from}; \
             UPDATE account SET balance = balance + 1 WHERE id = {to}; COMMIT"
        );
        let mut may_have_happened = false;
        loop {
            let Err(failure) = self.wire.query(&text) else { return };
            match failure.sqlstate() {
                "40001" | "40P01" => drop(self.wire.query("ROLLBACK")),
                "23505" if may_have_happened => {
                    self.wire.query("ROLLBACK").expect("rolled back");
                    return;
                }
                _ if is_reconnect(&failure) => {
                    may_have_happened = true;
                    self.reconnect();
                }
                _ => panic!("refused: {failure:?}"),
            }
        }
    }
}

/// Whether a client that meets this connects again.
fn is_reconnect(failure: &Failure) -> bool {
    let state = failure.sqlstate();
    *failure == Failure::Broken || state.starts_with("08") || matches!(state, "57P01" | "57P02" | "57P03")
}

/// Pays until it is told to end; says so each time.
fn pay_on(mut client: Client<'_>, name: usize, is_over: &AtomicBool, done: &Sender<()>) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let id = format!("{name}-{number}");
        client.pay(&id, 1 + (number + name) % 10, 1 + (number * 7 + 3 + name) % 10);
        acknowledged.push(id);
        // Who conducts may have failed.
        let _ = done.send(());
    }
    acknowledged
}

/// Every node is stopped as planned and started again, the leader among them: nobody who writes is
/// refused for it, and what was acknowledged is there once.
#[test]
fn a_rolling_restart_refuses_nobody_and_loses_nothing() {
    let mut cluster = Cluster::start();
    let mut setup = cluster.connect(1);
    setup.query("CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)").expect("made");
    setup.query("CREATE TABLE paid (id text PRIMARY KEY)").expect("made");
    setup.query("INSERT INTO account SELECT n, 100 FROM generate_series(1, 10) n").expect("filled");
    // Every node has them.
    cluster.assert_equal("SELECT count(*) FROM account");
    drop(setup);
    let (addresses, is_over) = (Addresses::of(&cluster), AtomicBool::new(false));
    let acknowledged: BTreeSet<String> = thread::scope(|scope| {
        let (done, dones) = std::sync::mpsc::channel();
        let clients: Vec<_> = (0..2 * SIZE)
            .map(|name| {
                let client = Client::new(&addresses, 1 + name % SIZE);
                let (is_over, done) = (&is_over, done.clone());
                scope.spawn(move || pay_on(client, name, is_over, &done))
            })
            .collect();
        // Then a wait ends when nobody is left.
        drop(done);
        let go_on = || (0..TIMES).for_each(|_| dones.recv().expect("they go on"));
        let over = Over(&is_over);
        for node in 1..=SIZE {
            go_on();
            cluster.stop(node);
            go_on();
            cluster.restart(&[node]);
            addresses.set(node, cluster.address(node));
        }
        go_on();
        drop(over);
        clients.into_iter().flat_map(|client| client.join().expect("paid")).collect()
    });
    assert_eq!(cluster.assert_equal("SELECT sum(balance) FROM account"), [["1000"]]);
    let paid: BTreeSet<String> = cluster.assert_equal("SELECT id FROM paid").into_iter().flatten().collect();
    assert_eq!(paid, acknowledged);
}

/// Ends the clients, also when who conducts them fails.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Defaults of a database and of a role change while sessions begin and write at all nodes: those
/// that begin afterwards go by them, and nobody is refused.
#[test]
fn defaults_of_a_database_and_of_a_role_change_under_load() {
    let cluster = Cluster::start();
    let mut setup = cluster.connect(1);
    setup.query("CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL)").expect("made");
    setup.query("INSERT INTO counter VALUES (1, 0)").expect("filled");
    // Every node has them.
    cluster.assert_equal("SELECT n FROM counter");
    let is_over = AtomicBool::new(false);
    let counted: usize = thread::scope(|scope| {
        let (done, dones) = std::sync::mpsc::channel();
        let clients: Vec<_> = (1..=SIZE)
            .map(|node| {
                let (address, is_over, done) = (cluster.address(node), &is_over, done.clone());
                scope.spawn(move || count_on(address, is_over, &done))
            })
            .collect();
        drop(done);
        let over = Over(&is_over);
        for (text, protocol) in [
            ("ALTER DATABASE ann SET cognate.replication = active", "active"),
            ("ALTER ROLE ann SET cognate.replication = weak_voting", "weak_voting"),
            // The role's is stronger.
            ("ALTER DATABASE ann SET cognate.replication = certification", "weak_voting"),
            ("ALTER ROLE ann RESET cognate.replication", "certification"),
            ("ALTER DATABASE ann RESET cognate.replication", "auto"),
        ] {
            (0..TIMES).for_each(|_| dones.recv().expect("they go on"));
            // Whose the whole server is.
            let mut wire = Wire::connect_to(cluster.address(1), "cognate", "ann").expect("connected");
            retried(&mut wire, text);
            let token = rows(&mut wire, "SHOW cognate.commit_token")[0][0].clone();
            for node in 1..=SIZE {
                // What was committed elsewhere is known here once something waits for it.
                let mut first = cluster.connect(node);
                first.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
                first.query("SELECT 1").expect("asked");
                let mut wire = cluster.connect(node);
                assert_eq!(rows(&mut wire, "SHOW cognate.replication"), [[protocol]], "{text}");
            }
        }
        drop(over);
        clients.into_iter().map(|client| client.join().expect("counted")).sum()
    });
    assert_eq!(cluster.assert_equal("SELECT n FROM counter"), [[counted.to_string()]]);
}

/// Counts until it is told to end, in sessions that are short. Says how often.
fn count_on(address: SocketAddr, is_over: &AtomicBool, done: &Sender<()>) -> usize {
    let mut counted = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut wire = Wire::connect(address).expect("connected");
        for _ in 0..3 {
            while let Err(failure) = wire.query("UPDATE counter SET n = n + 1 WHERE id = 1") {
                assert!(matches!(failure.sqlstate(), "40001" | "40P01"), "refused: {failure:?}");
            }
            counted += 1;
            let _ = done.send(());
        }
    }
    counted
}
