//! Advisory locks where only the wire shows them: statements that wait in a thread, parameters of
//! the extended protocol, and clients that leave.

use crate::process::Process;
use crate::wire::{Wire, message};

struct Server {
    _folder: tempfile::TempDir,
    process: Process,
}

impl Server {
    fn start() -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let process = Process::serve(&folder.path().join("data"), &["--worker-threads", "1"]);
        Server { _folder: folder, process }
    }

    fn connect(&self) -> Wire {
        Wire::connect(self.process.address).expect("connected")
    }
}

fn send(wire: &mut Wire, text: &str) {
    wire.send(&message(b'Q', &[text.as_bytes(), b"\0"].concat())).expect("sent");
}

fn value(wire: &mut Wire, text: &str) -> String {
    wire.query(text).expect("answered")[0][0].clone().expect("a value")
}

/// Asks until so many sessions wait for advisory locks.
fn await_waiting(wire: &mut Wire, count: usize) {
    let text = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    while value(wire, text) != count.to_string() {}
}

/// One thread serves all sessions: whoever waits in the middle of a statement is relieved of the
/// others, also of the one that lets go of the lock.
#[test]
fn statements_wait_in_the_middle() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.query("CREATE TABLE t (id int PRIMARY KEY)").expect("created");
    holder.query("INSERT INTO t SELECT i FROM generate_series(1, 5) i").expect("inserted");
    holder.query("SELECT pg_advisory_lock(i) FROM generate_series(3, 4) i").expect("locked");
    let texts = [
        "INSERT INTO t SELECT 10 WHERE pg_advisory_xact_lock(3) IS NOT NULL RETURNING id",
        "UPDATE t SET id = id + 100 WHERE id = 1 AND pg_advisory_xact_lock(3) IS NOT NULL RETURNING id",
        "DELETE FROM t WHERE id = 2 AND pg_advisory_xact_lock(3) IS NOT NULL RETURNING id",
        "SELECT id, pg_advisory_xact_lock(id) FROM t WHERE id > 2 AND id < 6 ORDER BY id",
        "SELECT id FROM t WHERE id > 4 AND pg_advisory_xact_lock_shared(3) IS NOT NULL ORDER BY id LIMIT 1 FOR UPDATE",
        "SELECT id, pg_advisory_xact_lock(4) FROM t WHERE id = 4",
    ];
    let mut waiting: Vec<Wire> = texts.iter().map(|_| server.connect()).collect();
    for (at, (wire, text)) in waiting.iter_mut().zip(texts).enumerate() {
        send(wire, text);
        await_waiting(&mut holder, at + 1);
    }
    holder.query("SELECT pg_advisory_unlock(3)").expect("let go");
    let mut answers = Vec::new();
    for wire in &mut waiting[..3] {
        answers.push(wire.answer().expect("answered")[0][0].clone().expect("an id"));
    }
    assert_eq!(answers, ["10", "101", "2"]);
    await_waiting(&mut holder, 3);
    holder.query("SELECT pg_advisory_unlock(4)").expect("let go");
    let rows = waiting[3].answer().expect("answered");
    assert_eq!(rows.iter().map(|row| row[0].clone().expect("an id")).collect::<Vec<_>>(), ["3", "4", "5"]);
    assert_eq!(waiting[4].answer().expect("answered")[0][0].as_deref(), Some("5"));
    assert_eq!(waiting[5].answer().expect("answered")[0][0].as_deref(), Some("4"));
    await_waiting(&mut holder, 0);
}

/// Deadlocks, cancel requests and timeouts reach who waits in a thread.
#[test]
fn waits_in_the_middle_end_early() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    waiter.query("CREATE TABLE t (id int PRIMARY KEY)").expect("created");
    let process = value(&mut waiter, "SELECT pg_backend_pid()");
    let insert = "INSERT INTO t SELECT 1 WHERE pg_advisory_xact_lock(1) IS NOT NULL";
    holder.query("SELECT pg_advisory_lock(1)").expect("locked");
    send(&mut waiter, insert);
    await_waiting(&mut holder, 1);
    assert_eq!(value(&mut holder, &format!("SELECT pg_cancel_backend({process})")), "t");
    assert_eq!(waiter.answer().expect_err("cancelled").sqlstate(), "57014");
    waiter.query("SET lock_timeout = '1ms'").expect("set");
    assert_eq!(waiter.query(insert).expect_err("too late").sqlstate(), "55P03");
    waiter.query("SET lock_timeout = 0; SET statement_timeout = '1ms'").expect("set");
    assert_eq!(waiter.query(insert).expect_err("too late").sqlstate(), "57014");
    waiter.query("SET statement_timeout = 0; SELECT pg_advisory_lock(2)").expect("locked");
    send(&mut waiter, insert);
    await_waiting(&mut holder, 1);
    assert_eq!(holder.query("SELECT pg_advisory_lock(2)").expect_err("a cycle").sqlstate(), "40P01");
    holder.query("SELECT pg_advisory_unlock(1)").expect("let go");
    waiter.answer().expect("inserted");
    assert_eq!(value(&mut holder, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "1");
}

/// A statement takes the first advisory lock of its session and then waits for a row: whoever has
/// the row and wants that lock would wait for ever.
#[test]
fn a_deadlock_with_the_lock_of_a_running_statement_is_found() {
    let server = Server::start();
    let (mut watcher, mut holder) = (server.connect(), server.connect());
    watcher.query("CREATE TABLE t (id int PRIMARY KEY, n int)").expect("created");
    watcher.query("INSERT INTO t VALUES (1, 0)").expect("inserted");
    // Only so that the test ends where the cycle is not found.
    holder.query("SET lock_timeout = '60s'").expect("set");
    let texts = [
        "UPDATE t SET n = 1 WHERE id = (SELECT 1 WHERE pg_try_advisory_xact_lock(7))",
        "SELECT n FROM t WHERE id = (SELECT 1 WHERE pg_try_advisory_xact_lock(7)) FOR UPDATE",
    ];
    for text in texts {
        holder.query("BEGIN; UPDATE t SET n = 2 WHERE id = 1").expect("updated");
        // Each has a session that has asked for no advisory lock before.
        let mut waiter = server.connect();
        send(&mut waiter, text);
        while value(&mut watcher, "SELECT count(*) FROM pg_locks WHERE NOT granted") != "1" {}
        let failure = holder.query("SELECT pg_advisory_xact_lock(7)").expect_err("a cycle");
        assert_eq!(failure.sqlstate(), "40P01", "{text}");
        waiter.answer().expect("the row is free");
        holder.query("ROLLBACK").expect("rolled back");
    }
}

/// Parse, Bind with one number in text, Execute and Sync.
fn extended(text: &str, number: &str) -> Vec<u8> {
    let mut bind = b"\0\0\0\0\0\x01".to_vec();
    bind.extend((number.len() as u32).to_be_bytes());
    bind.extend(number.as_bytes());
    bind.extend(b"\0\0");
    [
        message(b'P', &[b"\0", text.as_bytes(), b"\0\0\0"].concat()),
        message(b'B', &bind),
        message(b'E', b"\0\0\0\0\0"),
        message(b'S', b""),
    ]
    .concat()
}

#[test]
fn parameters_and_clients_that_leave() {
    let server = Server::start();
    let (mut watcher, mut holder) = (server.connect(), server.connect());
    holder.send(&extended("SELECT pg_advisory_lock($1)", "7")).expect("sent");
    assert_eq!(holder.answer().expect("locked"), [[Some(String::new())]]);
    let mut waiters: Vec<Wire> = (0..3).map(|_| server.connect()).collect();
    for (at, wire) in waiters.iter_mut().enumerate() {
        wire.send(&extended("SELECT pg_advisory_lock($1)", "7")).expect("sent");
        await_waiting(&mut watcher, at + 1);
    }
    // One of them leaves while it waits, then who holds it, then the next one.
    waiters.remove(1);
    await_waiting(&mut watcher, 2);
    drop(holder);
    assert_eq!(waiters.remove(0).answer().expect("locked"), [[Some(String::new())]]);
    let mut last = waiters.remove(0);
    assert_eq!(last.answer().expect("locked"), [[Some(String::new())]]);
    last.send(&extended("SELECT pg_advisory_unlock($1)", "7")).expect("sent");
    assert_eq!(last.answer().expect("let go"), [[Some("t".to_owned())]]);
    // A transaction's lock goes with the implicit transaction.
    last.send(&extended("SELECT pg_advisory_xact_lock($1)", "7")).expect("sent");
    last.answer().expect("locked");
    assert_eq!(value(&mut watcher, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "0");
}

/// Many more sessions wait than there are threads.
#[test]
fn many_sessions_wait_for_one_lock() {
    let server = Server::start();
    let mut holder = server.connect();
    holder.query("SELECT pg_advisory_lock(1)").expect("locked");
    let mut waiters: Vec<Wire> = (0..90).map(|_| server.connect()).collect();
    for wire in &mut waiters {
        send(wire, "SELECT pg_advisory_xact_lock(1)");
    }
    await_waiting(&mut holder, waiters.len());
    holder.query("SELECT pg_advisory_unlock(1)").expect("let go");
    for wire in &mut waiters {
        wire.answer().expect("locked");
    }
    assert_eq!(value(&mut holder, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "0");
}
