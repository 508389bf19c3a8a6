//! Nodes of a cluster as processes on loopback: one database, whichever node is asked, and whatever
//! a minority of them does.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::process::{Process, command, fails};
use crate::wire::{Failure, Rows, Wire, message};

/// Three nodes in folders of their own.
pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    peers: String,
    /// Where each node is said to find the others, if the lists differ.
    pub(crate) lists: Vec<String>,
    /// Where each node is managed.
    http: Vec<String>,
    nodes: Vec<Option<Process>>,
    /// Further words of every node's command line.
    more: Vec<String>,
}

pub(crate) const SIZE: usize = 3;

impl Cluster {
    pub(crate) fn start() -> Cluster {
        Cluster::start_with(|_| Vec::new())
    }

    /// The same with further words on every node's command line, which may name files of a folder.
    fn start_with(more: impl FnOnce(&Path) -> Vec<String>) -> Cluster {
        let mut cluster = Cluster::prepare();
        cluster.more = more(cluster.folder.path());
        cluster.restart(&[1, 2, 3]);
        cluster
    }

    /// Folders and addresses of nodes that do not run yet.
    pub(crate) fn prepare() -> Cluster {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("secret"), "a secret of tests\n").expect("written");
        // Held until all are chosen, so that no two are the same.
        let held: Vec<TcpListener> = (0..2 * SIZE).map(|_| free_port()).collect();
        let addresses: Vec<String> =
            held.iter().map(|socket| socket.local_addr().expect("an address").to_string()).collect();
        drop(held);
        let (peers, http) = addresses.split_at(SIZE);
        let peers: Vec<String> =
            peers.iter().enumerate().map(|(at, peer)| format!("{}={peer}", at + 1)).collect();
        let nodes = (0..SIZE).map(|_| None).collect();
        let (peers, http) = (peers.join(","), http.to_vec());
        Cluster { folder, peers, lists: Vec::new(), http, nodes, more: Vec::new() }
    }

    /// Adds words to every node's command line.
    pub(crate) fn say(&mut self, words: &[&str]) {
        self.more.extend(words.iter().map(|word| (*word).to_owned()));
    }

    /// Where the nodes listen for each other.
    pub(crate) fn between(&self) -> Vec<SocketAddr> {
        let address = |peer: &str| peer.split_once('=').expect("an entry").1.parse().expect("an address");
        self.peers.split(',').map(address).collect()
    }

    pub(crate) fn data(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("node{node}"))
    }

    pub(crate) fn arguments(&self, node: usize) -> Vec<String> {
        let secret = self.folder.path().join("secret");
        let peers = self.lists.get(node - 1).unwrap_or(&self.peers);
        let words = ["--node", &node.to_string(), "--peers", peers, "--cluster-secret-file"];
        let mut arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        arguments.push(secret.to_str().expect("UTF-8").to_owned());
        arguments.extend(["--http".to_owned(), self.http[node - 1].clone()]);
        arguments.extend(self.more.iter().cloned());
        arguments
    }

    /// Starts nodes side by side: one alone waits for a majority.
    pub(crate) fn restart(&mut self, which: &[usize]) {
        let started: Vec<(usize, Process)> = thread::scope(|scope| {
            let start = |&node: &usize| {
                let (data, arguments) = (self.data(node), self.arguments(node));
                scope.spawn(move || {
                    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
                    (node, Process::serve(&data, &words))
                })
            };
            let threads: Vec<_> = which.iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("started")).collect()
        });
        for (node, process) in started {
            self.nodes[node - 1] = Some(process);
        }
    }

    /// Starts one node with more in its environment.
    pub(crate) fn restart_in(&mut self, node: usize, environment: &[(&str, &str)]) {
        let arguments = self.arguments(node);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.nodes[node - 1] = Some(Process::serve_in(&self.data(node), &words, environment));
    }

    /// Says something to a node by `cognate node`.
    pub(crate) fn manage(&self, asked: usize, words: &[&str]) -> Result<String, String> {
        let arguments = [&["node"], words, &["--http", &self.http[asked - 1]]].concat();
        let output = command(&arguments).output().expect("ran");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// Starts a node that is ready only once it was added, and has that done by another one.
    pub(crate) fn restart_and_manage(&mut self, node: usize, asked: usize, words: &[&str]) -> String {
        let (data, arguments) = (self.data(node), self.arguments(node));
        let (process, said) = thread::scope(|scope| {
            let starting = scope.spawn(|| {
                let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
                Process::serve(&data, &words)
            });
            let said = self.manage(asked, words).expect("managed");
            (starting.join().expect("started"), said)
        });
        self.nodes[node - 1] = Some(process);
        said
    }

    /// What a node says at its HTTP port: a head, and JSON. `None`: it is not there yet.
    fn said_at(&self, node: usize, path: &str) -> Option<(String, serde_json::Value)> {
        let (head, body) = self.text_at(node, path)?;
        Some((head, serde_json::from_str(&body).ok()?))
    }

    /// The same in any form.
    fn text_at(&self, node: usize, path: &str) -> Option<(String, String)> {
        let mut socket = TcpStream::connect(&self.http[node - 1]).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.to_owned(), body.to_owned()))
    }

    /// Asks a node for a change of the nodes, and for nothing behind that. Its whole answer.
    pub(crate) fn ask_for(&self, node: usize, path: &str) -> String {
        let mut socket = TcpStream::connect(&self.http[node - 1]).expect("connected");
        let head = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0";
        socket.write_all(format!("POST {path} {head}\r\n\r\n").as_bytes()).expect("asked");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// What a node's live page draws.
    fn live(&self, node: usize) -> serde_json::Value {
        let (head, body) = self.said_at(node, "/live").expect("an answer");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        body
    }

    pub(crate) fn stop(&mut self, node: usize) {
        let process = self.nodes[node - 1].take().expect("it runs");
        process.signal("TERM");
        assert!(process.wait().success());
    }

    pub(crate) fn kill(&mut self, node: usize) {
        let process = self.nodes[node - 1].take().expect("it runs");
        process.signal("KILL");
        process.wait();
    }

    /// Sends a signal to a node that is not waited for.
    pub(crate) fn signal_to(&self, node: usize, signal: &str) {
        self.nodes[node - 1].as_ref().expect("it runs").signal(signal);
    }

    /// Waits for the end of a node that was sent a signal.
    pub(crate) fn await_end(&mut self, node: usize) {
        self.nodes[node - 1].take().expect("it ran").wait();
    }

    pub(crate) fn address(&self, node: usize) -> SocketAddr {
        self.nodes[node - 1].as_ref().expect("it runs").address
    }

    pub(crate) fn connect(&self, node: usize) -> Wire {
        Wire::connect(self.address(node)).expect("connected")
    }

    /// The leader, once the node that is asked knows one.
    pub(crate) fn leader(&self, asked: usize) -> usize {
        let mut wire = self.connect(asked);
        loop {
            let text = "SELECT node FROM cognate_nodes WHERE role = 'leader' AND state = 'serving'";
            if let [row] = &rows(&mut wire, text)[..] {
                return row[0].parse().expect("a number");
            }
        }
    }

    /// All nodes have the same rows and the same history.
    pub(crate) fn assert_equal(&self, text: &str) -> Vec<Vec<String>> {
        let token = rows(&mut self.committed(), "SHOW cognate.commit_token")[0][0].clone();
        let mut answers: Vec<(Vec<Vec<String>>, String)> = Vec::new();
        let position = token.split_once('/').expect("a token").1.to_owned();
        for node in 1..=SIZE {
            let mut wire = self.connect(node);
            wire.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
            let found = rows(&mut wire, text);
            let digest = rows(&mut wire, &format!("SELECT cognate_digest({position})"));
            answers.push((found, digest[0][0].clone()));
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
        answers.swap_remove(0).0
    }

    /// A session that has just committed something, at some node.
    fn committed(&self) -> Wire {
        let mut wire = self.connect(1);
        retried(&mut wire, "CREATE TABLE IF NOT EXISTS mark (at int)");
        retried(&mut wire, "INSERT INTO mark VALUES (1)");
        wire
    }
}

/// Ports that the system gives to nobody who lets it choose. Tests of other crates, which may run
/// at the same time, have others; a trial takes ports up to two hundred above its first, too.
const PORTS: Range<u16> = 10_000..17_500;

/// A port before a node listens there. None comes twice: a node that is down keeps its own.
pub(crate) fn free_port() -> TcpListener {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(61);
    loop {
        let place = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + (place % PORTS.len() as u32) as u16;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener;
        }
    }
}

pub(crate) fn rows(wire: &mut Wire, text: &str) -> Vec<Vec<String>> {
    let rows: Rows = wire.query(text).unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
    rows.into_iter().map(|row| row.into_iter().map(Option::unwrap_or_default).collect()).collect()
}

pub(crate) fn sqlstate(result: Result<Rows, Failure>) -> String {
    match result {
        Ok(rows) => format!("rows: {rows:?}"),
        Err(failure) => failure.sqlstate().to_owned(),
    }
}

#[test]
fn three_processes_are_one_database() {
    let cluster = Cluster::start();
    let (mut one, mut two, mut three) = (cluster.connect(1), cluster.connect(2), cluster.connect(3));
    one.query("CREATE TABLE item (id serial PRIMARY KEY, name text UNIQUE)").expect("made at node 1");
    // The commit was acknowledged, so a majority has it; who wants to see it elsewhere says so.
    let token = rows(&mut one, "SHOW cognate.commit_token")[0][0].clone();
    for wire in [&mut two, &mut three] {
        wire.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    }
    two.query("INSERT INTO item (name) VALUES ('a'), ('b')").expect("inserted at node 2");
    three.query("INSERT INTO item (name) VALUES ('c')").expect("inserted at node 3");
    let token = rows(&mut two, "SHOW cognate.commit_token")[0][0].clone();
    three.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    assert_eq!(sqlstate(three.query("INSERT INTO item (name) VALUES ('a')")), "23505");
    three.query("CREATE TABLE part (item int REFERENCES item)").expect("made at node 3");
    three.query("INSERT INTO part SELECT id FROM item WHERE name = 'a'").expect("inserted");
    let token = rows(&mut three, "SHOW cognate.commit_token")[0][0].clone();
    one.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    assert_eq!(sqlstate(one.query("DELETE FROM item WHERE name = 'a'")), "23503");
    let all = cluster.assert_equal("SELECT id, name FROM item ORDER BY name");
    let ids: BTreeSet<&String> = all.iter().map(|row| &row[0]).collect();
    assert_eq!((all.len(), ids.len()), (3, 3), "numbers are given once in the whole cluster: {all:?}");
    let wrong = "SET cognate.read_after = '00112233445566778899aabbccddeeff/1'";
    one.query(wrong).expect("set");
    assert_eq!(sqlstate(one.query("SELECT 1 FROM item")), "22023", "of another cluster");
}

/// Sessions at the first two nodes, and an item that both see.
fn one_item(cluster: &Cluster) -> (Wire, Wire) {
    let (mut one, mut two) = (cluster.connect(1), cluster.connect(2));
    one.query("CREATE TABLE item (id int PRIMARY KEY, stock int)").expect("made");
    one.query("INSERT INTO item VALUES (1, 10)").expect("inserted");
    let token = rows(&mut one, "SHOW cognate.commit_token")[0][0].clone();
    two.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    (one, two)
}

#[test]
fn who_is_overtaken_by_another_node_is_told_by_whom() {
    let cluster = Cluster::start();
    let (mut one, mut two) = one_item(&cluster);
    one.query("BEGIN").expect("begun");
    one.query("UPDATE item SET stock = 9 WHERE id = 1").expect("changed");
    two.query("UPDATE item SET stock = 8 WHERE id = 1").expect("the first in the order");
    // Its client does nothing; what it held is free all the same.
    let token = rows(&mut two, "SHOW cognate.commit_token")[0][0].clone();
    let mut other = cluster.connect(1);
    other.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    other.query("UPDATE item SET stock = stock - 1 WHERE id = 1").expect("not blocked");
    match one.query("COMMIT") {
        Err(Failure::Error { sqlstate, message, detail }) => {
            assert_eq!(sqlstate, "40001");
            assert_eq!(message, "could not serialize access due to a transaction of another node");
            // Which one, whose, and where.
            let said = detail.strip_prefix("Transaction ").and_then(|rest| rest.split_once(' '));
            let (transaction, rest) = said.expect("a transaction");
            assert!(transaction.parse::<u64>().is_ok_and(|id| id > 0), "{detail}");
            assert_eq!(rest, "of node 2 was faster: key (id)=(1) of table \"item\".", "{detail}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(cluster.assert_equal("SELECT stock FROM item"), [["7"]]);
}

/// Who is overtaken while its client is elsewhere is not prepared, and the client is not left to
/// read that from the word ROLLBACK.
#[test]
fn who_is_overtaken_is_not_prepared_and_is_told_so() {
    let cluster = Cluster::start();
    let (mut one, mut two) = one_item(&cluster);
    for savepoint in ["", "SAVEPOINT s; "] {
        one.query(&format!("BEGIN; {savepoint}UPDATE item SET stock = 9 WHERE id = 1")).expect("changed");
        two.query("UPDATE item SET stock = 8 WHERE id = 1").expect("the first in the order");
        let token = rows(&mut two, "SHOW cognate.commit_token")[0][0].clone();
        // Once its node shows that, it is overtaken.
        let mut other = cluster.connect(1);
        other.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
        rows(&mut other, "SELECT stock FROM item");
        assert_eq!(sqlstate(one.query("PREPARE TRANSACTION 'p'")), "40001");
        assert_eq!(sqlstate(one.query("ROLLBACK PREPARED 'p'")), "42704");
    }
    assert_eq!(cluster.assert_equal("SELECT stock FROM item"), [["8"]]);
}

/// Commits a change of the item, and waits until node 1 shows it: whoever has changed it there, and
/// has not committed, is overtaken then.
fn overtake(two: &mut Wire, cluster: &Cluster) {
    two.query("UPDATE item SET stock = 8 WHERE id = 1").expect("the first in the order");
    let token = rows(two, "SHOW cognate.commit_token")[0][0].clone();
    let mut other = cluster.connect(1);
    other.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    rows(&mut other, "SELECT stock FROM item");
}

/// So is who has not ended his pipeline: what was answered before Sync is not committed, and what
/// comes behind it is not taken for all that there was.
#[test]
fn a_pipeline_that_is_overtaken_before_its_end_fails() {
    let cluster = Cluster::start();
    let (mut one, mut two) = one_item(&cluster);
    let run = |text: &str| {
        let parse = [b"\0", text.as_bytes(), b"\0\0\0"].concat();
        [message(b'P', &parse), message(b'B', &[0; 8]), message(b'E', &[0; 5])].concat()
    };
    let sync = message(b'S', b"");
    let more = [run("INSERT INTO item VALUES (2, 1)"), sync.clone()].concat();
    for rest in [sync, more, message(b'Q', b"INSERT INTO item VALUES (3, 1)\0")] {
        let first = [run("UPDATE item SET stock = 9 WHERE id = 1"), message(b'H', b"")].concat();
        one.send(&first).expect("sent");
        let answered: Vec<u8> = (0..3).map(|_| one.message().expect("an answer").0).collect();
        assert_eq!(answered, b"12C");
        overtake(&mut two, &cluster);
        one.send(&rest).expect("sent");
        assert_eq!(sqlstate(one.answer()), "40001");
    }
    // So is who sends the data of a COPY.
    for rest in [message(b'c', b""), message(b'd', b"5\t5\n")] {
        one.query("BEGIN").expect("begun");
        one.query("UPDATE item SET stock = 9 WHERE id = 1").expect("changed");
        one.send(&message(b'Q', b"COPY item FROM STDIN\0")).expect("sent");
        assert_eq!(one.message().expect("an answer").0, b'G');
        overtake(&mut two, &cluster);
        one.send(&rest).expect("sent");
        assert_eq!(sqlstate(one.answer()), "40001");
        one.query("ROLLBACK").expect("ended");
    }
    assert_eq!(cluster.assert_equal("SELECT id, stock FROM item"), [["1", "8"]]);
}

#[test]
fn a_node_s_live_page_has_all_nodes() {
    let mut cluster = Cluster::start();
    let mut two = cluster.connect(2);
    // A cluster that was never written to has nothing to compare yet.
    two.query("CREATE TABLE t (a int)").expect("made");
    let row = rows(&mut two, "SELECT log >= 0, paused_by IS NULL, paused_ms FROM cognate_replication");
    assert_eq!(row, [["t", "t", "0"]]);
    cluster.kill(3);
    // It is noticed sooner or later.
    let live = loop {
        let live = cluster.live(2);
        let (node, nodes) = (&live["node"], &live["nodes"]);
        let is_well = node["state"] == "serving" && node["accepts_writes"] == true;
        if is_well && nodes[1]["digest"].is_string() && nodes[2]["reason"].is_string() {
            break live;
        }
    };
    let node = &live["node"];
    assert!(node["number"] == 2 && node["why"].is_null(), "{node}");
    assert!(node["role"] == "leader" || node["role"] == "follower", "{node}");
    let nodes = &live["nodes"];
    assert_eq!(nodes.as_array().expect("a list").len(), SIZE);
    assert!(nodes[1]["applied"].is_u64() && nodes[1]["address"].is_string(), "{nodes}");
    assert!(nodes[2]["applied"].is_null() && nodes[2]["state"].is_null(), "{nodes}");
    assert!(live["marks"]["applied"].is_u64(), "{live}");
    for name in ["log", "tocommit", "c_pending", "w_pending", "paused_ms"] {
        assert!(live["replication"][name].is_u64(), "{name}: {live}");
    }
    assert!(live["replication"]["protocols"].is_array(), "{live}");
    let (_, metrics) = cluster.text_at(2, "/metrics").expect("an answer");
    for name in ["log", "tocommit", "c_pending", "w_pending", "paused", "paused_milliseconds"] {
        assert!(metrics.contains(&format!("\ncognate_replication_{name} ")), "{name}: {metrics}");
    }
    for protocol in ["active", "certification", "weak_voting"] {
        let counted = format!("\ncognate_protocol_commits_total{{protocol=\"{protocol}\"}} ");
        assert!(metrics.contains(&counted), "{protocol}: {metrics}");
    }
}

/// Transfers at all nodes while they are killed one after the other: the sum stays, and whatever
/// was acknowledged is there.
#[test]
fn kills_of_single_nodes_lose_nothing_and_stop_nothing() {
    let mut cluster = Cluster::start();
    let mut setup = cluster.connect(1);
    setup.query("CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)").expect("made");
    setup.query("CREATE TABLE paid (id text PRIMARY KEY)").expect("made");
    setup.query("INSERT INTO account SELECT n, 100 FROM generate_series(1, 10) n").expect("filled");
    let token = rows(&mut setup, "SHOW cognate.commit_token")[0][0].clone();
    for round in 0..2 {
        let killed = cluster.leader(1);
        let left: Vec<usize> = (1..=SIZE).filter(|node| *node != killed).collect();
        let acknowledged: Vec<String> = thread::scope(|scope| {
            let client = |&node: &usize| {
                let (address, token) = (cluster.address(node), token.clone());
                scope.spawn(move || pay(address, &token, &format!("{round}-{node}"), 30))
            };
            let clients: Vec<_> = left.iter().map(client).collect();
            // At some time within them.
            cluster.nodes[killed - 1].as_ref().expect("it runs").signal("KILL");
            clients.into_iter().flat_map(|client| client.join().expect("paid")).collect()
        });
        cluster.nodes[killed - 1].take().expect("it ran").wait();
        cluster.restart(&[killed]);
        let sum = cluster.assert_equal("SELECT sum(balance) FROM account");
        assert_eq!(sum, [["1000"]]);
        let paid: BTreeSet<String> =
            cluster.assert_equal("SELECT id FROM paid").into_iter().flatten().collect();
        let lost: Vec<&String> = acknowledged.iter().filter(|id| !paid.contains(*id)).collect();
        assert!(lost.is_empty(), "acknowledged, and not there: {lost:?}");
        assert_eq!(acknowledged.len(), 60, "what one node's loss refuses can be tried again");
    }
}

/// Pays so often, each time until it is acknowledged; an answer that was lost is looked for.
fn pay(address: SocketAddr, token: &str, name: &str, times: usize) -> Vec<String> {
    let mut wire = Wire::connect(address).expect("connected");
    wire.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    let mut done = Vec::new();
    for number in 0..times {
        let id = format!("{name}-{number}");
        let (from, to) = (1 + number % 10, 1 + (number * 7 + 3) % 10);
        loop {
            let text = format!(
                "BEGIN; UPDATE account SET balance = balance - 1 WHERE id = {from}; \
                 UPDATE account SET balance = balance + 1 WHERE id = {to}; \
                 INSERT INTO paid VALUES ('{id}'); COMMIT"
            );
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
        done.push(id);
    }
    done
}

#[test]
fn a_minority_refuses_writes_and_goes_on_reading() {
    let mut cluster = Cluster::start();
    let mut one = cluster.connect(1);
    one.query("CREATE TABLE item (id int PRIMARY KEY)").expect("made");
    one.query("INSERT INTO item VALUES (1)").expect("inserted");
    cluster.kill(2);
    cluster.kill(3);
    // Until it has noticed, a write waits for a bounded time, and may be on its way already: then
    // nobody knows yet what becomes of it.
    let mut refused = (100..).map(|id| sqlstate(one.query(&format!("INSERT INTO item VALUES ({id})"))));
    loop {
        match &refused.next().expect("there is always another one")[..] {
            "25006" => break,
            state => assert!(matches!(state, "40001" | "08007") || state.starts_with("rows"), "{state}"),
        }
    }
    drop(refused);
    assert_eq!(
        rows(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT id FROM item WHERE id = 1; COMMIT"),
        [["1"]]
    );
    let state = rows(&mut one, "SELECT state FROM cognate_nodes WHERE node = 1");
    assert_eq!(state, [["minority"]]);
    let (head, health) = cluster.said_at(1, "/health").expect("an answer");
    assert!(head.starts_with("HTTP/1.1 503"), "{head} {health}");
    assert!(health["node"]["state"] == "minority" && health["ready"] == false, "{health}");
    // At SERIALIZABLE a query of many rows is answered, too, although nobody can judge it.
    assert_eq!(rows(&mut one, "SELECT count(*) FROM item WHERE id < 100"), [["1"]]);
    // What is newest, nobody can say.
    one.query("SET default_transaction_isolation = 'read committed'").expect("set");
    one.query("SET cognate.read_consistency = linearizable").expect("set");
    assert_eq!(sqlstate(one.query("SELECT id FROM item WHERE id = 1")), "25006");
    one.query("SET cognate.read_consistency = local").expect("set");
    assert_eq!(rows(&mut one, "SELECT id FROM item WHERE id = 1"), [["1"]]);
    one.query("RESET default_transaction_isolation").expect("reset");
    cluster.restart(&[2, 3]);
    loop {
        match one.query("INSERT INTO item VALUES (3)") {
            Ok(_) => break,
            Err(failure) => assert!(matches!(failure.sqlstate(), "25006" | "40001"), "{failure:?}"),
        }
    }
    let all = cluster.assert_equal("SELECT id FROM item WHERE id < 100");
    assert_eq!(all.len(), 2);
}

#[test]
fn linearizable_reads_see_whatever_was_acknowledged_before() {
    let cluster = Cluster::start();
    let mut writers = [cluster.connect(1), cluster.connect(2), cluster.connect(3)];
    let mut readers = [cluster.connect(2), cluster.connect(3), cluster.connect(1)];
    for reader in &mut readers {
        reader.query("SET cognate.read_consistency = 'linearizable'").expect("set");
    }
    writers[0].query("CREATE TABLE item (id int PRIMARY KEY, v int)").expect("made");
    // Also what a statement is planned with.
    for reader in &mut readers {
        assert_eq!(rows(reader, "SELECT count(*) FROM item"), [["0"]]);
    }
    readers[0].query("INSERT INTO item VALUES (1, 0)").expect("inserted");
    readers[2].query("BEGIN ISOLATION LEVEL READ COMMITTED").expect("begun");
    for round in 1..=40 {
        let (writer, reader) = (round % 3, (round / 3) % 3);
        writers[writer].query("SET cognate.read_consistency = 'linearizable'").expect("set");
        writers[writer].query(&format!("UPDATE item SET v = {round}")).expect("updated");
        assert_eq!(rows(&mut readers[reader], "SELECT v FROM item"), [[round.to_string()]]);
    }
}

/// What a node needs that was away is in no log any more. It never makes an image itself here.
#[test]
fn a_node_that_was_away_for_long_is_sent_the_state_of_another_one() {
    let mut cluster = Cluster::start_with(|_| vec!["--cluster-log-kept".to_owned(), "1kB".to_owned()]);
    let mut one = cluster.connect(1);
    one.query("CREATE TABLE item (id serial PRIMARY KEY, name text)").expect("made");
    assert_eq!(rows(&mut one, "SHOW cognate.cluster_log_kept"), [["1kB"]]);
    let told = "SELECT count(*) FROM cognate_nodes WHERE node = 3 AND reason LIKE \
                '%; up to 1024 bytes of the log stay for it (cognate.cluster_log_kept)'";
    let images = cluster.data(3).join("images");
    let was_sent = || std::fs::read_dir(&images).is_ok_and(|mut files| files.next().is_some());
    for round in 0.. {
        cluster.kill(3);
        for _ in 0..20 {
            one.query("INSERT INTO item (name) VALUES (repeat('x', 1000))").expect("a majority is there");
        }
        while rows(&mut one, told) != [["1"]] {}
        for node in [1, 2] {
            cluster.connect(node).query("CHECKPOINT").expect("checkpointed");
        }
        cluster.restart(&[3]);
        let count = cluster.assert_equal("SELECT count(*), sum(length(name)) FROM item");
        assert_eq!(count[0][0], ((round + 1) * 20).to_string());
        if was_sent() {
            break;
        }
        // The log is cut a moment after a checkpoint.
        assert!(round < 100, "it was never sent a state");
    }
    let mut three = cluster.connect(3);
    three.query("INSERT INTO item (name) VALUES ('from node 3')").expect("it takes part");
    cluster.assert_equal("SELECT * FROM item ORDER BY id");
}

/// A leader that stands still is replaced; when it goes on it has lost nothing and disturbs nobody.
#[test]
fn nodes_that_stand_still_for_a_while_take_part_again() {
    let cluster = Cluster::start();
    cluster.connect(1).query("CREATE TABLE item (id serial PRIMARY KEY, name text)").expect("made");
    for round in 0..3 {
        let leader = cluster.leader(1);
        let mut held = cluster.connect(leader);
        held.query("BEGIN; INSERT INTO item (name) VALUES ('held')").expect("begun");
        cluster.nodes[leader - 1].as_ref().expect("it runs").signal("STOP");
        let other = if leader == 1 { 2 } else { 1 };
        let mut wire = cluster.connect(other);
        let text = format!("INSERT INTO item (name) VALUES ('round {round}')");
        loop {
            match wire.query(&text) {
                Ok(_) => break,
                Err(failure) => {
                    assert!(matches!(failure.sqlstate(), "25006" | "40001" | "08007"), "{failure:?}")
                }
            }
        }
        cluster.nodes[leader - 1].as_ref().expect("it runs").signal("CONT");
        // Whatever became of it, all nodes have the same of it.
        let _ = held.query("COMMIT");
    }
    let names = cluster.assert_equal("SELECT name FROM item ORDER BY id");
    for round in 0..3 {
        assert!(names.contains(&vec![format!("round {round}")]), "{names:?}");
    }
}

#[test]
fn a_node_whose_data_are_lost_is_rebuilt_while_writes_go_on() {
    let mut cluster = Cluster::start();
    let mut one = cluster.connect(1);
    one.query("CREATE TABLE item (id serial PRIMARY KEY, name text)").expect("made");
    one.query("INSERT INTO item (name) SELECT 'before' FROM generate_series(1, 100)").expect("inserted");
    let refused = cluster.manage(1, &["rebuild", "3"]).unwrap_err();
    assert!(refused.contains("node 3 is well"), "{refused}");
    cluster.kill(3);
    std::fs::remove_dir_all(cluster.data(3)).expect("lost");
    one.query("INSERT INTO item (name) VALUES ('meanwhile')").expect("a majority is there");
    let said = cluster.restart_and_manage(3, 2, &["rebuild", "3"]);
    assert!(said.ends_with("node 3 takes part\n"), "{said}");
    let mut three = cluster.connect(3);
    three.query("INSERT INTO item (name) VALUES ('after')").expect("it takes part");
    assert_eq!(cluster.assert_equal("SELECT count(*) FROM item")[0][0], "102");
    // It counts for a majority.
    cluster.kill(1);
    let mut two = cluster.connect(2);
    two.query("INSERT INTO item (name) VALUES ('with node 3')").expect("two of three");
}

#[test]
fn a_single_database_becomes_a_cluster_and_shrinks_again() {
    let mut cluster = Cluster::prepare();
    let data = cluster.data(1);
    let alone = Process::serve(&data, &[]);
    let mut wire = Wire::connect(alone.address).expect("connected");
    wire.query("CREATE TABLE item (id serial PRIMARY KEY, name text UNIQUE)").expect("made");
    wire.query("INSERT INTO item (name) VALUES ('a'), ('b')").expect("inserted");
    drop(wire);
    alone.signal("TERM");
    assert!(alone.wait().success());
    let folder = data.to_str().expect("UTF-8").to_owned();
    let arguments = cluster.arguments(1);
    let words: Vec<&str> = ["serve", "--data", &folder, "--listen", "127.0.0.1:0"]
        .into_iter()
        .chain(arguments.iter().map(String::as_str))
        .collect();
    assert!(fails(&words).1.contains("cognate node init"), "a single database is no node");
    let output = command(&["node", "init", "--data", &folder]).output().expect("ran");
    assert!(output.status.success(), "{output:?}");
    let again = fails(&["node", "init", "--data", &folder]).1;
    assert!(again.contains("a node of a cluster"), "{again}");
    let as_single = fails(&["serve", "--data", &folder, "--listen", "127.0.0.1:0", "--http", "off"]).1;
    assert!(as_single.contains("a node of a cluster"), "{as_single}");
    let checked = command(&["check", "--data", &folder]).output().expect("ran");
    assert!(checked.status.success(), "{checked:?}");
    // Alone first; then with the list of all.
    let all = cluster.peers.clone();
    cluster.peers = all.split(',').next().expect("a peer").to_owned();
    cluster.restart(&[1]);
    cluster.connect(1).query("INSERT INTO item (name) VALUES ('c')").expect("a cluster of one");
    let refused = cluster.manage(1, &["add", "2"]).unwrap_err();
    assert!(refused.contains("node 2 is not on the list"), "{refused}");
    cluster.stop(1);
    cluster.peers = all;
    cluster.restart(&[1]);
    for node in [2, 3] {
        cluster.restart_and_manage(node, 1, &["add", &node.to_string()]);
    }
    cluster.connect(3).query("INSERT INTO item (name) VALUES ('d')").expect("inserted at node 3");
    assert_eq!(sqlstate(cluster.connect(2).query("INSERT INTO item (name) VALUES ('a')")), "23505");
    let found = cluster.assert_equal("SELECT name FROM item ORDER BY name");
    assert_eq!(found, [["a"], ["b"], ["c"], ["d"]]);
    let status = cluster.manage(3, &["status"]).expect("shown");
    assert_eq!(status.lines().count(), 4, "{status}");
    for (words, why) in [
        (["add", "2"], "a member already"),
        (["add", "9"], "not on the list"),
        (["remove", "9"], "no member"),
    ] {
        let refused = cluster.manage(2, &words).unwrap_err();
        assert!(refused.contains(why), "{words:?}: {refused}");
    }
    cluster.manage(2, &["remove", "3"]).expect("removed");
    cluster.kill(3);
    cluster.connect(2).query("INSERT INTO item (name) VALUES ('e')").expect("two of two");
    cluster.connect(1).query("INSERT INTO item (name) VALUES ('f')").expect("two of two");
}

/// An authority, and a certificate of it for every node.
fn certificates(folder: &Path) -> Vec<String> {
    let authority = rcgen::KeyPair::generate().expect("a key");
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = parameters.self_signed(&authority).expect("a certificate");
    let issuer = rcgen::Issuer::new(parameters, authority);
    let key = rcgen::KeyPair::generate().expect("a key");
    let node = rcgen::CertificateParams::new(vec!["cognate-node".to_owned()]).expect("parameters");
    let certificate = node.signed_by(&key, &issuer).expect("a certificate");
    let files = [
        ("--cluster-tls-cert", "node.pem", certificate.pem()),
        ("--cluster-tls-key", "key.pem", key.serialize_pem()),
        ("--cluster-tls-ca", "root.pem", root.pem()),
    ];
    files
        .into_iter()
        .flat_map(|(option, name, content)| {
            let path = folder.join(name);
            std::fs::write(&path, content).expect("written");
            [option.to_owned(), path.to_str().expect("UTF-8").to_owned()]
        })
        .collect()
}

#[test]
fn nodes_speak_tls_with_each_other() {
    let mut cluster = Cluster::start_with(certificates);
    cluster.connect(1).query("CREATE TABLE item (id int PRIMARY KEY)").expect("made");
    cluster.assert_equal("SELECT * FROM item");
    // Who knows the secret and has no certificate of the authority is not let in.
    cluster.kill(3);
    let other = tempfile::tempdir().expect("a folder");
    let known = std::mem::replace(&mut cluster.more, certificates(other.path()));
    let (data, arguments) = (cluster.data(3), cluster.arguments(3));
    let data = data.to_str().expect("UTF-8");
    let words = ["serve", "--data", data, "--listen", "127.0.0.1:0"].map(str::to_owned);
    let words: Vec<String> = words.into_iter().chain(arguments).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut stranger = command(&words).stderr(std::process::Stdio::null()).spawn().expect("started");
    let mut one = cluster.connect(1);
    let reason = "SELECT reason FROM cognate_nodes WHERE node = 3 AND reason LIKE '%certificate%'";
    while rows(&mut one, reason).is_empty() {
        assert!(stranger.try_wait().expect("asked").is_none(), "it goes on trying");
    }
    stranger.kill().expect("killed");
    stranger.wait().expect("waited");
    cluster.more = known;
    cluster.restart(&[3]);
    cluster.connect(3).query("INSERT INTO item VALUES (1)").expect("it takes part");
    for (missing, why) in [("--cluster-tls-ca", "belong together"), ("--cluster-tls-key", "belong together")]
    {
        let at = words.iter().position(|word| *word == missing).expect("it is there");
        let fewer = [&words[..at], &words[at + 2..]].concat();
        assert!(fails(&fewer).1.contains(why), "without {missing}");
    }
}

#[test]
fn all_nodes_killed_at_once_come_back_with_everything() {
    let mut cluster = Cluster::start();
    let mut one = cluster.connect(1);
    one.query("CREATE TABLE item (id int PRIMARY KEY)").expect("made");
    for id in 0..20 {
        one.query(&format!("INSERT INTO item VALUES ({id})")).expect("inserted");
    }
    (1..=SIZE).for_each(|node| cluster.kill(node));
    cluster.restart(&[1, 2, 3]);
    assert_eq!(cluster.assert_equal("SELECT id FROM item").len(), 20);
}

/// A node that comes back alone is not ready, and says what it waits for.
#[test]
fn a_node_that_starts_without_a_majority_says_so() {
    let mut cluster = Cluster::start();
    (1..=SIZE).for_each(|node| cluster.kill(node));
    let (data, arguments) = (cluster.data(1), cluster.arguments(1));
    let words = ["serve", "--data", data.to_str().expect("UTF-8"), "--listen", "127.0.0.1:0"];
    let words: Vec<&str> = words.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let mut alone = command(&words).stderr(std::process::Stdio::null()).spawn().expect("started");
    let (head, health) = loop {
        assert!(alone.try_wait().expect("asked").is_none(), "it waits for the others");
        match cluster.said_at(1, "/health") {
            Some((head, health)) if health["node"]["state"] == "minority" => break (head, health),
            _ => {}
        }
    };
    assert!(head.starts_with("HTTP/1.1 503") && health["ready"] == false, "{head} {health}");
    alone.kill().expect("killed");
    alone.wait().expect("waited");
    cluster.restart(&[1, 2, 3]);
    retried(&mut cluster.connect(1), "CREATE TABLE item (id int PRIMARY KEY)");
}

/// A list that has forgotten members: the node neither dials them nor lets them in, and both sides
/// say so.
#[test]
fn a_node_whose_list_contradicts_the_members_names_them() {
    let mut cluster = Cluster::start();
    let mut one = cluster.connect(1);
    retried(&mut one, "CREATE TABLE item (id int PRIMARY KEY)");
    cluster.stop(3);
    let own = cluster.peers.split(',').next_back().expect("a peer").to_owned();
    cluster.lists = vec![cluster.peers.clone(), cluster.peers.clone(), own];
    let (data, arguments) = (cluster.data(3), cluster.arguments(3));
    let words = ["serve", "--data", data.to_str().expect("UTF-8"), "--listen", "127.0.0.1:0"];
    let words: Vec<&str> = words.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let mut alone = command(&words).stderr(std::process::Stdio::null()).spawn().expect("started");
    let said = |health: &serde_json::Value| health["node"]["reason"].as_str().unwrap_or("").to_owned();
    let reason = loop {
        assert!(alone.try_wait().expect("asked").is_none(), "it waits for the others");
        match cluster.said_at(3, "/health") {
            Some((head, health)) if said(&health).contains("list") => {
                assert!(head.starts_with("HTTP/1.1 503"), "{head}");
                break said(&health);
            }
            _ => {}
        }
    };
    for node in [1, 2] {
        let named = format!("node {node}: it is not on this node's list");
        assert!(reason.contains(&named), "{reason}");
    }
    let refused = "SELECT reason FROM cognate_nodes \
                   WHERE node = 3 AND reason LIKE '%node 1 is not on the list of node 3%'";
    while rows(&mut one, refused).is_empty() {}
    alone.kill().expect("killed");
    alone.wait().expect("waited");
    cluster.lists.clear();
    cluster.restart(&[3]);
    retried(&mut cluster.connect(3), "INSERT INTO item VALUES (1)");
    cluster.assert_equal("SELECT id FROM item");
}

#[test]
fn settings_that_make_no_cluster_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("UTF-8");
    let cases: [(&[&str], &str); 8] = [
        (&["--node", "1"], "node: the nodes of its cluster are missing: set peers"),
        (&["--peers", "1=127.0.0.1:1"], "peers: which of them is this one? Set node"),
        (&["--node", "2", "--peers", "1=127.0.0.1:1"], "node: 2 is not among the peers"),
        (&["--node", "1", "--peers", "1=127.0.0.1"], "peers: \"1=127.0.0.1\" is not NUMBER=HOST:PORT"),
        (&["--node", "1", "--peers", "1=a:1,1=b:1"], "peers: there are two nodes 1"),
        (&["--node", "1", "--peers", "16=a:1"], "peers: nodes are numbered from 1 to 15, not 16"),
        (
            &["--node", "1", "--peers", "1=10.0.0.1:1"],
            "peers: they can be reached from other machines, so a secret is needed: set --cluster-secret-file",
        ),
        (
            &["--node", "1", "--peers", "1=127.0.0.1:1", "--serializable", "si"],
            "node: nodes of a cluster certify by pssi and release locks early; serializable and lock_release cannot say otherwise",
        ),
    ];
    for (arguments, expected) in cases {
        let mut all = vec!["serve", "--data", data];
        all.extend(arguments);
        let (code, message) = fails(&all);
        assert_eq!(code, Some(1), "{arguments:?}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn a_request_that_its_client_names_commits_once_and_any_node_knows_its_outcome() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (cluster.connect(1), cluster.connect(2));
    one.query("CREATE TABLE item (id int PRIMARY KEY)").expect("made");
    let buy = |wire: &mut Wire, id: usize| {
        wire.query("BEGIN").expect("begun");
        wire.query("SET LOCAL cognate.request_id = 'order 7'").expect("set");
        wire.query(&format!("INSERT INTO item VALUES ({id})")).expect("inserted");
        wire.query("COMMIT")
    };
    buy(&mut one, 1).expect("committed");
    let token = rows(&mut one, "SHOW cognate.commit_token")[0][0].clone();
    two.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    assert_eq!(rows(&mut two, "SELECT count(*) FROM item"), [["1"]]);
    assert_eq!(rows(&mut two, "SELECT cognate_outcome('order 7')"), [["committed"]]);
    assert_eq!(rows(&mut two, "SELECT cognate_outcome('order 8')"), [["unknown"]]);
    assert_eq!(sqlstate(buy(&mut two, 2)), "42710", "it has happened already");
    assert_eq!(cluster.assert_equal("SELECT id FROM item"), [["1"]]);
    let name = "n".repeat(300);
    one.query(&format!("SET cognate.request_id = '{name}'")).expect("set");
    assert_eq!(sqlstate(one.query("INSERT INTO item VALUES (3)")), "22023");
}

/// A client loses its node, and does not know whether its COMMIT has come to anybody.
#[test]
fn a_request_that_was_lost_with_its_node_is_closed_and_stays_so() {
    let mut cluster = Cluster::start();
    let (mut one, mut two) = (cluster.connect(1), cluster.connect(2));
    one.query("CREATE TABLE item (id int PRIMARY KEY)").expect("made");
    one.query("BEGIN").expect("begun");
    one.query("SET LOCAL cognate.request_id = 'order 7'").expect("set");
    let token = rows(&mut one, "SELECT cognate_token()")[0][0].clone();
    one.query("INSERT INTO item VALUES (1)").expect("inserted");
    cluster.kill(1);
    // Before there is a leader nobody knows.
    let closing = format!("SELECT cognate_outcome('order 7', '{token}')");
    let told = loop {
        let told = rows(&mut two, &closing)[0][0].clone();
        if told != "unknown" {
            break told;
        }
    };
    assert_eq!(told, "aborted");
    cluster.restart(&[1]);
    for node in 1..=SIZE {
        let mut wire = cluster.connect(node);
        assert_eq!(rows(&mut wire, "SELECT cognate_outcome('order 7')"), [["aborted"]]);
        wire.query("BEGIN").expect("begun");
        wire.query("SET LOCAL cognate.request_id = 'order 7'").expect("set");
        wire.query("INSERT INTO item VALUES (1)").expect("inserted");
        assert_eq!(sqlstate(wire.query("COMMIT")), "55000");
        let wrong = "SELECT cognate_outcome('order 7', '00112233445566778899aabbccddeeff/1')";
        assert_eq!(sqlstate(wire.query(wrong)), "22023", "a token of another cluster");
    }
    retried(&mut cluster.connect(1), "INSERT INTO item VALUES (2)");
    assert_eq!(cluster.assert_equal("SELECT id FROM item"), [["2"]]);
}

#[test]
fn what_one_node_has_prepared_survives_it_and_is_decided_at_another() {
    let mut cluster = Cluster::start();
    let (mut one, mut two) = (cluster.connect(1), cluster.connect(2));
    one.query("CREATE TABLE item (id int PRIMARY KEY, stock int)").expect("made");
    one.query("INSERT INTO item VALUES (1, 10), (2, 10), (3, 10)").expect("inserted");
    for (name, id) in [("p", 1), ("q", 2)] {
        one.query("BEGIN").expect("begun");
        one.query(&format!("UPDATE item SET stock = stock - 1 WHERE id = {id}")).expect("changed");
        one.query(&format!("PREPARE TRANSACTION '{name}'")).expect("prepared");
    }
    one.query("BEGIN").expect("begun");
    one.query("UPDATE item SET stock = 0 WHERE id = 3").expect("changed");
    let token = rows(&mut one, "SHOW cognate.commit_token")[0][0].clone();
    cluster.kill(1);
    two.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    assert_eq!(
        rows(&mut two, "SELECT gid, prepared IS NOT NULL FROM pg_prepared_xacts ORDER BY gid"),
        [["p", "t"], ["q", "t"]]
    );
    // What was only running there is gone, and what is prepared is in the way.
    retried(&mut two, "UPDATE item SET stock = 7 WHERE id = 3");
    two.query("SET lock_timeout = '50ms'").expect("set");
    assert_eq!(sqlstate(two.query("UPDATE item SET stock = 0 WHERE id = 1")), "55P03");
    two.query("BEGIN").expect("begun");
    two.query("UPDATE item SET stock = 1 WHERE id = 3").expect("changed");
    assert_eq!(sqlstate(two.query("PREPARE TRANSACTION 'p'")), "42710");
    let mut three = cluster.connect(3);
    retried(&mut three, "COMMIT PREPARED 'p'");
    retried(&mut two, "ROLLBACK PREPARED 'q'");
    assert_eq!(sqlstate(three.query("COMMIT PREPARED 'q'")), "42704");
    cluster.restart(&[1]);
    let all = cluster.assert_equal("SELECT id, stock FROM item ORDER BY id");
    assert_eq!(all, [["1", "9"], ["2", "10"], ["3", "7"]]);
    assert!(cluster.assert_equal("SELECT gid FROM pg_prepared_xacts").is_empty());
}

#[test]
fn a_family_is_begun_at_two_nodes_and_answered_by_the_ones_that_are_left() {
    let mut cluster = Cluster::start();
    let (mut one, mut two) = (cluster.connect(1), cluster.connect(2));
    one.query("CREATE TABLE item (id int PRIMARY KEY, stock int)").expect("made");
    one.query("INSERT INTO item VALUES (1, 10)").expect("inserted");
    let token = rows(&mut one, "SHOW cognate.commit_token")[0][0].clone();
    two.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    for (wire, number) in [(&mut one, 1), (&mut two, 2)] {
        wire.query(&format!("BEGIN MIP <'c/1', {number}>")).expect("begun");
        wire.query(&format!("UPDATE item SET stock = stock - {number}")).expect("changed");
    }
    let prepare = |wire: &mut Wire, number| {
        rows(wire, &format!("PREPARE MIP <'c/1', {number}> 'buy' 'order {number}'"))
    };
    assert_eq!(prepare(&mut one, 1), [["1", "prepared", "order 1", "buy"]]);
    let both = [["1", "prepared", "order 1", "buy"], ["2", "prepared", "order 2", "buy"]];
    assert_eq!(prepare(&mut two, 2), both);
    cluster.kill(1);
    let mut three = cluster.connect(3);
    // Ordered, so it tells what was acknowledged; asked until there is a leader again.
    retried(&mut three, "SHOW MIPT 'c/1'");
    assert_eq!(rows(&mut three, "SHOW MIPT 'c/1'"), both);
    assert_eq!(rows(&mut three, "SELECT family, instances FROM cognate_in_doubt").len(), 1);
    retried(&mut three, "COMMIT MIP <'c/1', 2>");
    let decided = [["2", "committed", "order 2", "buy"]];
    assert_eq!(rows(&mut two, "COMMIT MIP <'c/1', 2>"), decided);
    assert_eq!(rows(&mut two, "BEGIN MIP <'c/1', 3>"), decided);
    two.query("ROLLBACK").expect("ended");
    cluster.restart(&[1]);
    let mut one = cluster.connect(1);
    assert_eq!(rows(&mut one, "SHOW MIPT 'c/1'"), decided);
    assert_eq!(cluster.assert_equal("SELECT stock FROM item"), [["8"]]);
    assert!(cluster.assert_equal("SELECT family FROM cognate_in_doubt").is_empty());
    one.query("FORGET MIP 'c/1'").expect("forgotten");
    assert_eq!(sqlstate(two.query("SHOW MIPT 'c/1'")), sqlstate(three.query("COMMIT MIP <'c/1', 2>")));
    assert_eq!(sqlstate(two.query("SHOW MIPT 'c/1'")), "MI032");
}

/// Until there is a leader, and whoever was faster has gone on.
pub(crate) fn retried(wire: &mut Wire, text: &str) {
    loop {
        match wire.query(text) {
            Ok(_) => return,
            Err(failure) => assert!(matches!(failure.sqlstate(), "25006" | "40001"), "{text}: {failure:?}"),
        }
    }
}
