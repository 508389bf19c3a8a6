//! `cognate backup` and `cognate restore` of servers that are in use.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use bytes::Bytes;
use cognate_engine::{Contents, Intake};
use cognate_env::SplitMix;

use crate::cluster::{Cluster, retried};
use crate::process::{Process, command};
use crate::wire::{Wire, message};

const ACCOUNTS: u64 = 200;
/// Enough that no buffers between server and client hold it.
const BIG: &str = "SELECT i AS id, repeat('x', 1000) AS filling FROM generate_series(1, 40000) AS i";

/// Runs a command: what it prints, or what it says of its failure.
fn run(arguments: &[&str]) -> Result<String, String> {
    let output = command(arguments).output().expect("ran");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn back_up(from: SocketAddr, to: &Path) -> Result<String, String> {
    run(&["backup", "--from", &from.to_string(), "--to", utf8(to)])
}

fn restore(from: &Path, data: &Path) -> Result<String, String> {
    run(&["restore", "--from", utf8(from), "--data", utf8(data)])
}

fn operator(process: &Process) -> Wire {
    Wire::connect_as(process.address, "cognate").expect("connected")
}

fn one(wire: &mut Wire, query: &str) -> String {
    let rows = wire.query(query).unwrap_or_else(|failure| panic!("{query}: {failure:?}"));
    rows[0][0].clone().unwrap_or_default()
}

fn set_up(process: &Process) {
    let mut wire = operator(process);
    for statement in [
        "CREATE TABLE account (id int PRIMARY KEY, owner text UNIQUE, balance int NOT NULL)",
        "CREATE INDEX account_balance ON account (balance)",
        "CREATE INDEX account_poor ON account (id) WHERE balance < 90",
        "CREATE SEQUENCE ticket",
        "ALTER ROLE ann SET work_mem = '12345kB'",
        "BEGIN; INSERT INTO account VALUES (9999, 'prepared', 0); PREPARE TRANSACTION 'p'",
        "SELECT nextval('ticket')",
    ] {
        wire.query(statement).unwrap_or_else(|failure| panic!("{statement}: {failure:?}"));
    }
    let rows = format!("SELECT i, 'owner ' || i, 100 FROM generate_series(1, {ACCOUNTS}) AS i");
    wire.query(&format!("INSERT INTO account {rows}")).expect("inserted");
}

/// Moves money between accounts until it is told to stop.
fn transfer(address: SocketAddr, seed: u64, stop: &AtomicBool, done: &AtomicU64) {
    let mut random = SplitMix::new(seed);
    let mut wire = Wire::connect(address).expect("connected");
    while !stop.load(Ordering::Relaxed) {
        let (from, to) = (1 + random.below(ACCOUNTS), 1 + random.below(ACCOUNTS));
        let moved = wire.query(&format!(
            "BEGIN; UPDATE account SET balance = balance - 1 WHERE id = {from}; \
             UPDATE account SET balance = balance + 1 WHERE id = {to}; COMMIT"
        ));
        match moved {
            Ok(_) => {
                done.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                wire.query("ROLLBACK").expect("rolled back");
            }
        }
    }
}

/// Tells those who transfer to stop, also if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What was in the accounts is in them, whichever way they are looked at; the prepared transaction
/// is there and commits.
fn check(data: &Path) {
    let process = Process::serve(data, &[]);
    let mut wire = Wire::connect(process.address).expect("connected");
    let sum = (ACCOUNTS * 100).to_string();
    for query in [
        "SELECT sum(balance) FROM account",
        "SELECT sum(balance) FROM account WHERE balance BETWEEN -1000000 AND 1000000",
        "SELECT sum(balance) FROM account WHERE owner > ''",
    ] {
        assert_eq!(one(&mut wire, query), sum, "{query}");
    }
    assert_eq!(one(&mut wire, "SELECT string_agg(gid, ',') FROM pg_prepared_xacts"), "p");
    assert_eq!(one(&mut wire, "SELECT count(*) FROM account WHERE id = 9999"), "0");
    wire.query("COMMIT PREPARED 'p'").expect("committed");
    assert_eq!(one(&mut wire, "SELECT owner FROM account WHERE id = 9999"), "prepared");
    assert_eq!(one(&mut wire, "SHOW work_mem"), "12345kB");
    let next: u64 = one(&mut wire, "SELECT nextval('ticket')").parse().expect("a number");
    assert!(next > 1);
    wire.query("INSERT INTO account VALUES (10000, 'owner 10000', 1); DELETE FROM account WHERE id = 1")
        .expect("it goes on");
}

#[test]
fn a_backup_under_load_is_of_one_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let process = Process::serve(&at("data"), &[]);
    set_up(&process);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let after = |count: u64| {
        let goal = done.load(Ordering::Relaxed) + count;
        while done.load(Ordering::Relaxed) < goal {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for seed in 0..4 {
            let (address, stop, done) = (process.address, &stop, &done);
            scope.spawn(move || transfer(address, seed, stop, done));
        }
        after(20);
        // Two at once; transfers go on in the middle.
        let both = ["one", "two"].map(|name| {
            let (address, to) = (process.address, at(name));
            scope.spawn(move || back_up(address, &to))
        });
        for taken in both {
            let said = taken.join().expect("no panic").expect("taken");
            assert!(said.starts_with("backup of commit ") && said.contains("read back"), "{said}");
        }
        after(20);
    });
    drop(process);
    for name in ["one", "two"] {
        assert!(run(&["backup", "verify", utf8(&at(name))]).expect("sound").starts_with("sound: commit "));
        let data = at(&format!("{name}-data"));
        let said = restore(&at(name), &data).expect("restored");
        assert!(said.contains(" 200 rows of 1 tables and "), "{said}");
        assert!(said.contains(", 1 transactions are prepared"), "{said}");
        let again = restore(&at(name), &data).expect_err("it is not empty");
        assert!(again.contains("the folder is not empty"), "{again}");
        let inside = std::fs::read_dir(&data).expect("a folder").map(|entry| entry.expect("one").file_name());
        let mut inside: Vec<String> = inside.map(|name| name.to_string_lossy().into_owned()).collect();
        inside.sort();
        assert_eq!(inside, ["base", "lock", "log"], "nothing is left but what a database has");
        check(&data);
    }
}

#[test]
fn a_backup_goes_through_a_pipe() {
    let folder = tempfile::tempdir().expect("a folder");
    let (archive, data) = (folder.path().join("archive.tar"), folder.path().join("restored"));
    let process = Process::serve(&folder.path().join("data"), &[]);
    set_up(&process);
    let url = format!("postgres://cognate@{}/any", process.address);
    let mut taking = command(&["backup", "--from", &url, "--to", "-"]);
    taking.stdout(std::fs::File::create(&archive).expect("created"));
    let taken = taking.output().expect("ran");
    assert!(taken.status.success(), "{taken:?}");
    assert!(String::from_utf8_lossy(&taken.stderr).starts_with("backup of commit "), "{taken:?}");
    let restored = |archive: &Path| {
        let mut restoring = command(&["restore", "--from", "-", "--data", utf8(&data)]);
        restoring.stdin(std::fs::File::open(archive).expect("opened")).output().expect("ran")
    };
    // Cut short it is refused, and what it leaves does not open.
    let whole = std::fs::read(&archive).expect("read");
    let cut = folder.path().join("cut.tar");
    std::fs::write(&cut, &whole[..whole.len() / 2]).expect("written");
    let refused = restored(&cut);
    assert!(!refused.status.success());
    let (code, said) = crate::process::fails(&["check", "--data", utf8(&data)]);
    assert!(code == Some(1) && said.contains("a restore has not come to its end"), "{said}");
    std::fs::remove_dir_all(&data).expect("removed");
    let done = restored(&archive);
    assert!(done.status.success(), "{done:?}");
    check(&data);
}

#[test]
fn all_databases_are_in_a_backup() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let process = Process::serve(&at("data"), &[]);
    let mut first = operator(&process);
    first.query("CREATE TABLE t (a int); INSERT INTO t VALUES (1)").expect("made");
    first.query("CREATE DATABASE shop").expect("made");
    let shop = |process: &Process| Wire::connect_to(process.address, "cognate", "shop").expect("connected");
    shop(&process)
        .query("CREATE TABLE t (b text PRIMARY KEY); INSERT INTO t VALUES ('x'), ('y')")
        .expect("made");
    back_up(process.address, &at("backup")).expect("taken");
    drop(process);
    let said = restore(&at("backup"), &at("restored")).expect("restored");
    assert!(said.contains(" 3 rows of 2 tables and "), "{said}");
    for data in ["data", "restored"] {
        let process = Process::serve(&at(data), &[]);
        let mut initial = Wire::connect_to(process.address, "cognate", "postgres").expect("connected");
        assert_eq!(one(&mut initial, "SELECT string_agg(a::text, ' ') FROM t"), "1", "{data}");
        assert_eq!(one(&mut shop(&process), "SELECT string_agg(b, ' ' ORDER BY b) FROM t"), "x y", "{data}");
        assert!(Wire::connect_to(process.address, "cognate", "cognate").is_err(), "{data}");
    }
}

/// Between a client and a server: lets so many bytes of the server's through, and then none.
struct Narrow {
    address: SocketAddr,
    over: std::sync::Arc<AtomicBool>,
}

impl Narrow {
    /// `ends`: the connection is closed then; otherwise it stays.
    fn before(server: SocketAddr, bytes: u64, ends: bool) -> Narrow {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let over = std::sync::Arc::new(AtomicBool::new(false));
        let until = over.clone();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("accepted");
            let mut there = TcpStream::connect(server).expect("connected");
            let copy = |socket: &TcpStream| socket.try_clone().expect("a copy");
            let (mut from, mut to) = (copy(&client), copy(&there));
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            let mut left = bytes;
            let mut portion = [0; 4096];
            while left > 0 {
                let count = there.read(&mut portion).unwrap_or(0).min(left as usize);
                if count == 0 || client.write_all(&portion[..count]).is_err() {
                    break;
                }
                left -= count as u64;
            }
            while !ends && !until.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            let _ = client.shutdown(std::net::Shutdown::Both);
            let _ = there.shutdown(std::net::Shutdown::Both);
        });
        Narrow { address, over }
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A backup that is being taken. Killed when dropped.
struct Taking(Child);

impl Drop for Taking {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_interrupted_backup_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let process = Process::serve(&at("data"), &[]);
    let mut wire = operator(&process);
    wire.query(&format!("CREATE TABLE big AS {BIG}")).expect("made");
    let refused = |name: &str| {
        assert!(at(name).join("INCOMPLETE").exists());
        let said = restore(&at(name), &at("restored")).expect_err("refused");
        assert!(said.contains("was not completed"), "{said}");
        assert!(run(&["backup", "verify", utf8(&at(name))]).is_err());
        assert!(!at("restored").exists(), "nothing was begun");
    };
    // The connection breaks.
    let said = back_up(Narrow::before(process.address, 1 << 20, true).address, &at("broken"));
    assert!(said.as_ref().is_err_and(|said| said.contains("the backup is incomplete")), "{said:?}");
    refused("broken");
    // The client is killed.
    let narrow = Narrow::before(process.address, 1 << 20, false);
    let mut taking = command(&["backup", "--from", &narrow.address.to_string(), "--to", utf8(&at("killed"))]);
    let taking = Taking(taking.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started"));
    while !at("killed").join("INCOMPLETE").exists() {
        thread::yield_now();
    }
    drop(taking);
    refused("killed");
    // The server is killed.
    let narrow = Narrow::before(process.address, 1 << 20, false);
    let (from, to) = (narrow.address.to_string(), at("orphaned"));
    let mut taking = command(&["backup", "--from", &from, "--to", utf8(&to)]);
    let mut taking = Taking(taking.stderr(Stdio::null()).spawn().expect("started"));
    while !to.join("INCOMPLETE").exists() {
        thread::yield_now();
    }
    drop(process);
    drop(narrow);
    assert!(!taking.0.wait().expect("ended").success());
    refused("orphaned");
}

/// Begins BACKUP in a session, and reads no more than its beginning.
fn begin_backup(process: &Process) -> (Wire, Intake) {
    let mut wire = operator(process);
    wire.send(&message(b'Q', b"BACKUP\0")).expect("sent");
    assert_eq!(wire.message().expect("an answer").0, b'H');
    let (tag, first) = wire.message().expect("its beginning");
    assert_eq!(tag, b'd');
    let mut intake = Intake::looking();
    intake.put(first.into()).expect("a header");
    (wire, intake)
}

fn end_backup(wire: &mut Wire, mut intake: Intake) -> Contents {
    loop {
        match wire.message().expect("more") {
            (b'd', bytes) => intake.put(Bytes::from(bytes)).expect("a part"),
            (b'c', _) => break,
            (tag, body) => panic!("{tag} {}", String::from_utf8_lossy(&body)),
        }
    }
    assert_eq!(wire.message().expect("its tag"), (b'C', b"BACKUP\0".to_vec()));
    assert_eq!(wire.message().expect("ready").0, b'Z');
    intake.finish().expect("it is whole")
}

/// Waits until a file is gone.
fn until_gone(file: &Path) {
    while file.exists() {
        thread::yield_now();
    }
}

#[test]
fn files_stay_for_a_backup_and_go_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::serve(folder.path(), &[]);
    let mut wire = operator(&process);
    wire.query(&format!("CREATE TABLE big AS {BIG}")).expect("made");
    let (mut slow, intake) = begin_backup(&process);
    // Writes are not held up; what is loaded has the base merged, without the table that is
    // dropped.
    wire.query("DROP TABLE big").expect("dropped");
    wire.query(&format!("CREATE TABLE other AS {BIG}")).expect("made");
    let contents = end_backup(&mut slow, intake);
    let largest = contents.files.iter().max_by_key(|file| file.length).expect("a file");
    assert!(largest.length > 4 << 20, "{largest:?}");
    until_gone(&folder.path().join(&largest.name));
    // A client that goes takes its files with it.
    let (gone, _) = begin_backup(&process);
    let files = std::fs::read_dir(folder.path().join("base")).expect("a folder");
    let files = files.map(|entry| entry.expect("one"));
    let largest = files.max_by_key(|entry| entry.metadata().map_or(0, |metadata| metadata.len()));
    wire.query("DROP TABLE other").expect("dropped");
    wire.query(&format!("CREATE TABLE third AS {BIG}")).expect("made");
    drop(gone);
    until_gone(&largest.expect("a run").path());
    assert_eq!(one(&mut wire, "SELECT count(*) FROM third"), "40000");
}

#[test]
fn a_backup_is_the_superusers_and_stands_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("backup");
    let process = Process::serve(&folder.path().join("data"), &[]);
    let from = process.address.to_string();
    let said = run(&["backup", "--from", &from, "--user", "ann", "--to", utf8(&to)]).expect_err("refused");
    assert!(said.contains("permission denied to take a backup") && said.lines().count() == 1, "{said}");
    assert!(!to.exists(), "nothing was begun");
    let mut wire = operator(&process);
    for together in ["BEGIN; BACKUP", "SELECT 1; BACKUP"] {
        assert_eq!(wire.query(together).expect_err("refused").sqlstate(), "25001", "{together}");
        wire.query("ROLLBACK").expect("rolled back");
    }
    assert_eq!(one(&mut wire, "SELECT 1"), "1");
    for (arguments, expected) in [
        (vec!["backup", "--to", "x"], "--from"),
        (vec!["backup", "--from", &from], "--to"),
        (vec!["backup", "--from", "127.0.0.1:1", "--to", utf8(&to)], "error connecting"),
        (vec!["backup", "--from", "127.0.0.1:http", "--to", utf8(&to)], "is no HOST:PORT"),
        (vec!["backup", "verify", utf8(&to)], "no complete backup"),
        (vec!["restore", "--from", utf8(&to), "--data", utf8(&to)], "no complete backup"),
        (vec!["backup", "--from", &from, "--to", utf8(folder.path())], "the folder is not empty"),
    ] {
        let said = run(&arguments).expect_err("refused");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn a_backup_comes_over_tls_with_a_password() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    std::fs::write(at("cert.pem"), certified.cert.pem()).expect("written");
    std::fs::write(at("key.pem"), certified.signing_key.serialize_pem()).expect("written");
    std::fs::write(at("password"), "secret\n").expect("written");
    std::fs::write(at("wrong"), "other\n").expect("written");
    let (cert, key, password) = (at("cert.pem"), at("key.pem"), at("password"));
    let tls = ["--tls-cert", utf8(&cert), "--tls-key", utf8(&key), "--password-file", utf8(&password)];
    let process = Process::serve(&at("data"), &tls);
    let from = process.address.to_string();
    let take = |password: &Path, authority: &Path, to: &Path| {
        let who = ["--password-file", utf8(password), "--tls-ca", utf8(authority)];
        run(&[&["backup", "--from", &from, "--to", utf8(to)][..], &who].concat())
    };
    let said = take(&at("wrong"), &cert, &at("backup")).expect_err("refused");
    assert!(said.contains("password authentication failed"), "{said}");
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    std::fs::write(at("other.pem"), other.cert.pem()).expect("written");
    let said = take(&password, &at("other.pem"), &at("backup")).expect_err("refused");
    assert!(said.contains("certificate"), "{said}");
    take(&password, &cert, &at("backup")).expect("taken");
    restore(&at("backup"), &at("restored")).expect("restored");
}

#[test]
fn a_nodes_backup_is_restored_alone_and_founds_a_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("secret"), "a secret of tests\n").expect("written");
    let free = TcpListener::bind("127.0.0.1:0").expect("bound");
    let peers = format!("1={}", free.local_addr().expect("an address"));
    drop(free);
    let secret = at("secret");
    let node = ["--node", "1", "--peers", &peers, "--cluster-secret-file", utf8(&secret)];
    let process = Process::serve(&at("node"), &node);
    set_up(&process);
    let said = back_up(process.address, &at("backup")).expect("taken");
    assert!(said.starts_with("backup of position "), "{said}");
    drop(process);
    restore(&at("backup"), &at("restored")).expect("restored");
    let said = run(&["node", "init", "--data", utf8(&at("restored"))]).expect_err("something is prepared");
    assert!(said.contains("prepared"), "{said}");
    check(&at("restored"));
    run(&["node", "init", "--data", utf8(&at("restored"))]).expect("founded");
    let process = Process::serve(&at("restored"), &node);
    let mut wire = Wire::connect(process.address).expect("connected");
    wire.query("CREATE TABLE later (id int PRIMARY KEY); INSERT INTO later VALUES (1)").expect("made");
    assert_eq!(one(&mut wire, "SELECT count(*) FROM account, later"), (ACCOUNTS + 1).to_string());
}

#[test]
fn a_cluster_s_backup_is_what_all_nodes_had_at_one_moment() {
    let (cluster, folder) = (Cluster::start(), tempfile::tempdir().expect("a folder"));
    let at = |name: &str| folder.path().join(name);
    let mut wire = cluster.connect(1);
    retried(&mut wire, "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)");
    let fill = format!("INSERT INTO account SELECT i, 100 FROM generate_series(1, {ACCOUNTS}) AS i");
    retried(&mut wire, &fill);
    // All of them have it.
    cluster.assert_equal("SELECT count(*) FROM account");
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for node in [1, 2] {
            let (address, stop, done) = (cluster.address(node), &stop, &done);
            scope.spawn(move || transfer(address, node as u64, stop, done));
        }
        for node in 1..=3 {
            // More than nothing is going on.
            let before = done.load(Ordering::Relaxed);
            while done.load(Ordering::Relaxed) < before + 5 {
                thread::yield_now();
            }
            let said = back_up(cluster.address(node), &at(&format!("of-{node}"))).expect("taken");
            assert!(said.starts_with("backup of position "), "{said}");
        }
    });
    for node in 1..=3 {
        let (backup, restored) = (at(&format!("of-{node}")), at(&format!("restored-{node}")));
        restore(&backup, &restored).expect("restored");
        let process = Process::serve(&restored, &[]);
        let mut wire = Wire::connect(process.address).expect("connected");
        assert_eq!(one(&mut wire, "SELECT sum(balance) FROM account"), (ACCOUNTS * 100).to_string());
    }
}
