//! What makes SERIALIZABLE so: each method permits what it must, and refuses what it must.

use cognate::{Database, Method, Options, Session, sqlstate};

fn database(method: Method) -> (tempfile::TempDir, Database) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = Options::new(folder.path().join("data"));
    options.serializable = method;
    let database = Database::open_with(options).expect("opened");
    let mut session = database.session().expect("a session");
    let script =
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT g, 0 FROM generate_series(1, 9) g";
    session.run_script(script).expect("filled");
    (folder, database)
}

fn sessions(database: &Database) -> (Session, Session, Session) {
    let session = || {
        let mut session = database.session().expect("a session");
        session.run_script("SET lock_timeout = '50ms'").expect("set");
        session
    };
    (session(), session(), session())
}

fn run(session: &mut Session, statements: &[&str]) -> Result<(), &'static str> {
    statements
        .iter()
        .try_for_each(|text| session.query(*text, &[]).map(|_| ()).map_err(|error| error.sqlstate))
}

/// Two transactions that each read both rows and write one.
fn write_skew(database: &Database) -> (Result<(), &'static str>, Result<(), &'static str>) {
    let (mut a, mut b, _) = sessions(database);
    let read = "SELECT sum(v) FROM t WHERE id IN (1, 2)";
    run(&mut a, &["BEGIN", read]).expect("read");
    run(&mut b, &["BEGIN", read]).expect("read");
    let a = run(&mut a, &["UPDATE t SET v = 1 WHERE id = 1", "COMMIT"]);
    (a, run(&mut b, &["UPDATE t SET v = 1 WHERE id = 2", "COMMIT"]))
}

/// T1 -rw-> T2 -rw-> T3, T3 first: no cycle.
fn harmless_chain(database: &Database) -> Result<(), &'static str> {
    let (mut first, mut second, mut third) = sessions(database);
    run(&mut first, &["BEGIN", "SELECT v FROM t WHERE id = 4"])?;
    run(&mut second, &["BEGIN", "SELECT v FROM t WHERE id = 5"])?;
    run(&mut third, &["BEGIN", "UPDATE t SET v = 1 WHERE id = 5", "COMMIT"])?;
    run(&mut second, &["UPDATE t SET v = 1 WHERE id = 4", "COMMIT"])?;
    run(&mut first, &["UPDATE t SET v = 1 WHERE id = 6", "COMMIT"])
}

#[test]
fn pssi_refuses_cycles_alone() {
    let (_folder, database) = database(Method::Pssi);
    assert_eq!(write_skew(&database), (Ok(()), Err(sqlstate::SERIALIZATION_FAILURE)));
    assert_eq!(harmless_chain(&database), Ok(()));
}

#[test]
fn ssi_refuses_dangerous_structures_too() {
    let (_folder, database) = database(Method::Ssi);
    assert_eq!(write_skew(&database), (Ok(()), Err(sqlstate::SERIALIZATION_FAILURE)));
    assert_eq!(harmless_chain(&database), Err(sqlstate::SERIALIZATION_FAILURE));
}

/// The third runs long and has read what the first replaces; the second begins after the first was
/// acknowledged, and reads what the third replaces. Serially: second, third, first.
fn out_of_time(database: &Database, second_reads: &[&str]) -> Result<(), String> {
    let (mut first, mut second, mut third) = sessions(database);
    run(&mut third, &["BEGIN", "SELECT v FROM t WHERE id = 1"]).expect("read");
    run(&mut first, &["UPDATE t SET v = v + 1 WHERE id = 1"]).expect("acknowledged");
    run(&mut second, second_reads).expect("acknowledged");
    run(&mut third, &["UPDATE t SET v = v + 1 WHERE id = 2"]).expect("nobody else wrote it");
    third.query("COMMIT", &[]).map(drop).map_err(|error| error.detail.clone().unwrap_or_default())
}

#[test]
fn strict_keeps_real_time_too() {
    let point = "SELECT v FROM t WHERE id = 2";
    let reads: [&[&str]; 4] = [
        &[point],
        &["BEGIN READ ONLY", point, "COMMIT"],
        &["BEGIN", "SELECT sum(v) FROM t WHERE id IN (2, 3)", "UPDATE t SET v = 0 WHERE id = 9", "COMMIT"],
        &["BEGIN READ ONLY", "SELECT count(*) FROM t WHERE v >= 0 AND id BETWEEN 2 AND 3", "COMMIT"],
    ];
    let (_folder, pssi) = database(Method::Pssi);
    let (_folder, strict) = database(Method::Strict);
    for reads in reads {
        assert_eq!(out_of_time(&pssi, reads), Ok(()), "{reads:?}");
        let detail = out_of_time(&strict, reads).expect_err("an order, but not one of real time");
        let real_time = detail.split("; ").find(|edge| edge.contains(" -real time-> ")).expect("named");
        assert!(real_time.contains(" had committed before ") && real_time.ends_with(" began"), "{detail}");
        assert!(detail.contains(" -rw-> "), "{detail}");
    }
    assert_eq!(write_skew(&strict), (Ok(()), Err(sqlstate::SERIALIZATION_FAILURE)));
    assert_eq!(harmless_chain(&strict), Ok(()));
}

#[test]
fn snapshot_isolation_permits_write_skew() {
    let (_folder, database) = database(Method::Si);
    assert_eq!(write_skew(&database), (Ok(()), Ok(())));
    assert_eq!(harmless_chain(&database), Ok(()));
}

#[test]
fn two_phase_locking_makes_writers_wait_for_readers() {
    let (_folder, database) = database(Method::TwoPhaseLocking);
    // The first waits for the second's shared lock until its time is up, and gives its own back;
    // then the second is alone.
    assert_eq!(write_skew(&database), (Err(sqlstate::LOCK_NOT_AVAILABLE), Ok(())));
    let (mut a, mut b, mut c) = sessions(&database);
    // A range is locked against phantoms.
    run(&mut a, &["BEGIN", "SELECT count(*) FROM t WHERE id > 5"]).expect("read");
    assert_eq!(run(&mut b, &["INSERT INTO t VALUES (100, 0)"]), Err(sqlstate::LOCK_NOT_AVAILABLE));
    run(&mut a, &["COMMIT"]).expect("committed");
    run(&mut b, &["INSERT INTO t VALUES (100, 0)"]).expect("nobody is in the way");
    // Each statement sees the newest commits.
    run(&mut a, &["BEGIN", "SELECT v FROM t WHERE id = 7"]).expect("read");
    run(&mut b, &["UPDATE t SET v = 5 WHERE id = 8"]).expect("another row");
    let row = a.query_one("SELECT v FROM t WHERE id = 8", &[]).expect("read");
    assert_eq!(row.get::<i32>(0).expect("a number"), 5);
    // A row that is missing is locked as well.
    run(&mut a, &["SELECT v FROM t WHERE id = 50"]).expect("read");
    assert_eq!(run(&mut c, &["INSERT INTO t VALUES (50, 0)"]), Err(sqlstate::LOCK_NOT_AVAILABLE));
    run(&mut a, &["COMMIT"]).expect("committed");
    run(&mut c, &["INSERT INTO t VALUES (50, 0)"]).expect("nobody is in the way");
}

#[test]
fn a_deferrable_reader_waits_for_those_that_run() {
    use std::task::{Context, Poll, Waker};
    let (_folder, database) = database(Method::Pssi);
    let (mut running, mut reader, mut other) = sessions(&database);
    run(&mut running, &["BEGIN", "SELECT v FROM t WHERE id = 1"]).expect("read");
    // Now the running one has an older snapshot than the reader will have.
    run(&mut other, &["UPDATE t SET v = 1 WHERE id = 2"]).expect("written");
    run(&mut reader, &["BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE"]).expect("begun");
    let mut context = Context::from_waker(Waker::noop());
    let mut read = Box::pin(reader.query_async("SELECT v FROM t WHERE id = 2", &[]));
    assert!(
        read.as_mut().poll(&mut context).is_pending(),
        "somebody runs who could lead to before the snapshot"
    );
    run(&mut running, &["UPDATE t SET v = 1 WHERE id = 3", "COMMIT"]).expect("committed");
    let rows = loop {
        match read.as_mut().poll(&mut context) {
            Poll::Ready(rows) => break rows.expect("read"),
            Poll::Pending => std::thread::yield_now(),
        }
    };
    assert_eq!(rows[0].get::<i32>(0).expect("a number"), 1);
    drop(read);
    run(&mut reader, &["COMMIT"]).expect("it is in no cycle");
}

/// What comes before its first query takes no other snapshot than a safe one.
#[test]
fn a_deferrable_reader_waits_with_whatever_it_begins() {
    use std::task::{Context, Poll, Waker};
    let (_folder, database) = database(Method::Pssi);
    for first in ["SAVEPOINT s", "SET CONSTRAINTS ALL DEFERRED", "LOCK TABLE t IN ACCESS SHARE MODE"] {
        let (mut running, mut reader, mut other) = sessions(&database);
        run(&mut running, &["BEGIN", "SELECT v FROM t WHERE id = 1"]).expect("read");
        run(&mut other, &["UPDATE t SET v = v + 1 WHERE id = 2"]).expect("written");
        run(&mut reader, &["BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE"]).expect("begun");
        let mut context = Context::from_waker(Waker::noop());
        let mut begun = Box::pin(reader.query_async(first, &[]));
        let is_pending = begun.as_mut().poll(&mut context).is_pending();
        assert!(is_pending, "{first}: somebody runs who could lead to before the snapshot");
        run(&mut running, &["UPDATE t SET v = v + 1 WHERE id = 3", "COMMIT"]).expect("committed");
        loop {
            match begun.as_mut().poll(&mut context) {
                Poll::Ready(done) => break drop(done.expect(first)),
                Poll::Pending => std::thread::yield_now(),
            }
        }
        drop(begun);
        run(&mut reader, &["SELECT v FROM t WHERE id = 2", "COMMIT"]).expect("it is in no cycle");
    }
}

/// READ ONLY, by either executor and deferrable or not, locks what it reads under two-phase
/// locking: with early release, what is durable is no state that the locks protect.
#[test]
fn read_only_transactions_lock_as_well_under_two_phase_locking() {
    let (_folder, database) = database(Method::TwoPhaseLocking);
    let point = "SELECT v FROM t WHERE id = 1";
    let range = "SELECT count(*) FROM t WHERE id < 5";
    let window = "SELECT id, row_number() OVER (ORDER BY v) FROM t";
    for begin in ["BEGIN READ ONLY", "BEGIN READ ONLY DEFERRABLE"] {
        for read in [point, range, window] {
            let (mut reader, mut writer, _) = sessions(&database);
            run(&mut reader, &[begin, read]).expect("read");
            let waits = run(&mut writer, &["UPDATE t SET v = v + 1 WHERE id = 1"]);
            assert_eq!(waits, Err(sqlstate::LOCK_NOT_AVAILABLE), "{begin}; {read}");
            run(&mut reader, &["COMMIT"]).expect("nothing to refuse");
            run(&mut writer, &["UPDATE t SET v = v + 1 WHERE id = 1"]).expect("alone");
        }
    }
}

/// Nor does a savepoint give back what was read; under the other methods it does.
#[test]
fn a_savepoint_gives_back_locks_unless_they_are_what_makes_serializable() {
    for (method, kept) in [(Method::TwoPhaseLocking, true), (Method::Pssi, false), (Method::Si, false)] {
        let (_folder, database) = database(method);
        let (mut a, mut b, _) = sessions(&database);
        run(&mut a, &["BEGIN", "SAVEPOINT s", "SELECT v FROM t WHERE id = 1 FOR UPDATE", "ROLLBACK TO s"])
            .expect("undone");
        let waits = run(&mut b, &["UPDATE t SET v = 1 WHERE id = 1"]).is_err();
        assert_eq!(waits, kept, "{method:?}");
    }
}
