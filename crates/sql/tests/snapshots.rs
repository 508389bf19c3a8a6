//! Sessions that read the same, by a snapshot that one of them lends; and EXPLAIN of what is run.

#![allow(clippy::unwrap_used)]

use cognate_engine::{Database, Options};
use cognate_env::sim::SimDisk;
use cognate_sql::session::{Session, SessionParameters, SqlDatabase};

use crate::script::simple_query;

fn open(disk: &SimDisk) -> SqlDatabase {
    let engine = Database::open(Options { disk: disk.handle(), ..Options::new("data") }).unwrap();
    SqlDatabase::open(engine).unwrap()
}

fn session(sql: &SqlDatabase) -> Session {
    Session::new(sql.clone(), SessionParameters::default()).unwrap()
}

async fn run(session: &mut Session, text: &str) -> String {
    simple_query(session, text).await.join(" / ")
}

#[tokio::test]
async fn who_borrows_a_snapshot_reads_what_was_there() {
    let sql = open(&SimDisk::new(1));
    let (mut lender, mut borrower, mut writer) = (session(&sql), session(&sql), session(&sql));
    run(&mut writer, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    run(&mut lender, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY").await;
    let exported = run(&mut lender, "SELECT pg_export_snapshot()").await;
    let name = exported.split(" / ").nth(1).unwrap();
    run(&mut writer, "INSERT INTO t VALUES (2)").await;
    let borrow =
        format!("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET TRANSACTION SNAPSHOT '{name}'");
    assert_eq!(run(&mut borrower, &borrow).await, "BEGIN / SET", "{exported}");
    run(&mut writer, "INSERT INTO t VALUES (3); DELETE FROM t WHERE id = 1").await;
    for session in [&mut lender, &mut borrower] {
        assert_eq!(run(session, "LOCK TABLE t IN ACCESS SHARE MODE").await, "LOCK TABLE");
        assert_eq!(run(session, "SELECT id FROM t").await, "id / 1 / SELECT 1");
    }
    // What is borrowed stays when who has lent it goes, and nobody else borrows it any more.
    run(&mut lender, "COMMIT").await;
    assert_eq!(run(&mut borrower, "SELECT id FROM t").await, "id / 1 / SELECT 1");
    let refused = run(&mut lender, &borrow).await;
    assert!(refused.contains("ERROR 22023: invalid snapshot identifier"), "{refused}");
    run(&mut borrower, "COMMIT").await;
    assert_eq!(run(&mut borrower, "SELECT id FROM t ORDER BY id").await, "id / 2 / 3 / SELECT 2");
}

#[tokio::test]
async fn an_explained_execute_runs() {
    let sql = open(&SimDisk::new(2));
    let mut session = session(&sql);
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY)").await;
    run(&mut session, "PREPARE put (int) AS INSERT INTO t VALUES ($1)").await;
    let explained = run(&mut session, "EXPLAIN ANALYZE EXECUTE put(3 + 4)").await;
    assert!(explained.contains("Execution Time:"), "{explained}");
    assert_eq!(run(&mut session, "SELECT id FROM t").await, "id / 7 / SELECT 1");
    run(&mut session, "EXPLAIN EXECUTE put(8)").await;
    assert_eq!(run(&mut session, "SELECT count(*) FROM t").await, "count / 1 / SELECT 1");
}
