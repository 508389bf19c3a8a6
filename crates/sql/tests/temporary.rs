//! Temporary tables: what they leave behind, and statements that clients prepare once and share.

#![allow(clippy::unwrap_used)]

use std::ops::Bound;

use cognate_engine::{Access, Database, Isolation, Options};
use cognate_env::sim::SimDisk;
use cognate_sql::session::{Fetch, Session, SessionParameters, SqlDatabase};

use crate::script::{Lines, simple_query};

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

/// Rows of a tree.
fn rows(sql: &SqlDatabase, tree: u32) -> usize {
    let transaction = sql.engine().begin(Isolation::Snapshot, Access::ReadWrite);
    let mut scan = transaction.scan(tree, Bound::Unbounded, Bound::Unbounded, false).unwrap();
    std::iter::from_fn(|| scan.next().unwrap()).count()
}

#[tokio::test]
async fn a_thousand_tables_leave_nothing() {
    let sql = open(&SimDisk::new(1));
    let (mut one, mut other) = (session(&sql), session(&sql));
    run(&mut other, "CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE q (n int); INSERT INTO q VALUES (1)")
        .await;
    run(&mut one, "CREATE TEMP TABLE first (n serial PRIMARY KEY)").await;
    let plan = other.prepare("SELECT id FROM p", &[]).unwrap();
    let (catalog, counters) = (rows(&sql, 1), rows(&sql, 2));
    for n in 0..1_000 {
        let text = match n % 4 {
            0 => {
                "CREATE TEMP TABLE t (n serial PRIMARY KEY, m int UNIQUE); INSERT INTO t (m) VALUES (1); DROP TABLE t"
            }
            1 => {
                "BEGIN; CREATE TEMP TABLE t (n serial, m int) ON COMMIT DROP; INSERT INTO t (m) VALUES (1); COMMIT"
            }
            2 => "BEGIN; CREATE TEMP TABLE t AS SELECT 1 AS n; ROLLBACK",
            _ => "CREATE TEMP SEQUENCE t; SELECT nextval('t'); DROP SEQUENCE t",
        };
        let answer = run(&mut one, text).await;
        assert!(!answer.contains("ERROR"), "{answer}");
    }
    assert_eq!((rows(&sql, 1), rows(&sql, 2)), (catalog, counters));
    let locks =
        run(&mut other, "SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND pid = 1").await;
    assert_eq!(locks, "count / 0 / SELECT 1");
    // Others go on with the plans that they have.
    assert!(std::sync::Arc::ptr_eq(&plan, &other.prepare("SELECT id FROM p", &[]).unwrap()));
    drop(one);
    assert_eq!(rows(&sql, 1), 2, "the tables of the other session");
    assert!(!sql.has_left_behind());
}

#[tokio::test]
async fn what_sessions_share_means_to_each_its_own() {
    let sql = open(&SimDisk::new(1));
    let mut sessions = [session(&sql), session(&sql), session(&sql)];
    run(&mut sessions[0], "CREATE TABLE t (n int); INSERT INTO t VALUES (0)").await;
    let text = "SELECT n FROM t";
    let prepared = sessions.each_mut().map(|session| session.prepare(text, &[]).unwrap());
    assert!(std::sync::Arc::ptr_eq(&prepared[0], &prepared[1]), "they share the statement");
    for (at, session) in sessions.iter_mut().enumerate().skip(1) {
        run(session, &format!("CREATE TEMP TABLE t (n int); INSERT INTO t VALUES ({at})")).await;
    }
    for round in 0..3 {
        for (at, session) in sessions.iter_mut().enumerate() {
            let statement =
                if round < 2 { prepared[at].clone() } else { session.prepare(text, &[]).unwrap() };
            let mut portal = session.bind(&statement, &[], &[], &[]).unwrap();
            let mut lines = Lines::default();
            let fetched = session.fetch(&mut portal, &mut lines, 0).await.unwrap();
            assert!(matches!(fetched, Fetch::Complete(_)));
            session.sync().await.unwrap();
            assert_eq!(lines.out, ["n".to_owned(), at.to_string()]);
        }
    }
}

/// What a session of a server that was killed has left is dropped at the next start, be it much.
#[tokio::test]
async fn a_start_drops_what_is_left() {
    let disk = SimDisk::new(1);
    let sql = open(&disk);
    let mut sessions: Vec<Session> = (0..5).map(|_| session(&sql)).collect();
    for session in &mut sessions {
        for n in 0..5 {
            run(session, &format!("CREATE TEMP TABLE t{n} (n serial PRIMARY KEY, m int UNIQUE)")).await;
        }
    }
    disk.restart(cognate_env::sim::Loss::Power);
    drop((sessions, sql));
    let sql = open(&disk);
    assert_eq!(rows(&sql, 1), 0);
    assert!(!sql.has_left_behind());
    let mut again = session(&sql);
    assert_eq!(run(&mut again, "CREATE TEMP TABLE t0 (n int)").await, "CREATE TABLE");
}

/// Others know that the objects are there, and can drop them; their rows are nobody else's.
#[tokio::test]
async fn others_see_and_cannot_read() {
    let sql = open(&SimDisk::new(1));
    let (mut one, mut other) = (session(&sql), session(&sql));
    run(
        &mut one,
        "CREATE TEMP TABLE t (n serial PRIMARY KEY); INSERT INTO t VALUES (1); CREATE TEMP VIEW v AS TABLE t",
    )
    .await;
    let named = run(&mut one, "SELECT current_schemas(true)").await;
    let schema = named.split(['{', ',']).find(|name| name.starts_with("pg_temp_")).unwrap();
    let refusal = "ERROR 0A000: cannot access temporary tables of other sessions";
    for text in [
        "SELECT * FROM {}.t",
        "SELECT * FROM {}.v",
        "SELECT * FROM {}.t_n_seq",
        "SELECT nextval('{}.t_n_seq')",
        "INSERT INTO {}.t VALUES (2)",
        "UPDATE {}.t SET n = 2",
        "DELETE FROM {}.t",
        "COPY {}.t FROM STDIN",
        "COPY {}.t TO STDOUT",
        "TRUNCATE {}.t",
        "ALTER TABLE {}.t ADD COLUMN m int",
        "CREATE INDEX ON {}.t (n)",
        "CREATE TABLE mine AS SELECT * FROM {}.t",
        "CREATE VIEW mine AS SELECT * FROM {}.t",
        "CREATE TABLE mine (n int REFERENCES {}.t)",
    ] {
        assert_eq!(run(&mut other, &text.replace("{}", schema)).await, refusal, "{text}");
    }
    for text in ["CREATE TABLE {}.mine (n int)", "CREATE VIEW {}.mine AS SELECT 1", "CREATE SEQUENCE {}.mine"]
    {
        let answer = run(&mut other, &text.replace("{}", schema)).await;
        let refusal = "ERROR 42P16: cannot create relations in temporary schemas of other sessions";
        assert_eq!(answer, refusal, "{text}");
    }
    // To its own session the schema's name is as good as pg_temp.
    assert_eq!(run(&mut one, &format!("SELECT n FROM {schema}.t")).await, "n / 1 / SELECT 1");
    run(&mut one, &format!("CREATE TABLE {schema}.more (n int)")).await;
    assert_eq!(run(&mut one, "TABLE more").await, "n / SELECT 0");
    // Dropped by somebody else, it is gone, also for who has a plan for it.
    assert_eq!(run(&mut other, &format!("DROP TABLE {schema}.more")).await, "DROP TABLE");
    assert_eq!(run(&mut one, "TABLE more").await, "ERROR 42P01: relation \"more\" does not exist");
    let dropped = run(&mut other, &format!("DROP SCHEMA {schema} CASCADE")).await;
    assert!(dropped.ends_with("DROP SCHEMA"), "{dropped}");
    assert!(run(&mut one, "TABLE t").await.starts_with("ERROR 42P01"));
    assert_eq!(run(&mut one, "CREATE TEMP TABLE t (n int); TABLE t").await, "CREATE TABLE / n / SELECT 0");
}
