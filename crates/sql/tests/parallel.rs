//! Tables that several threads read: what a transaction has read there counts as ever.

#![allow(clippy::unwrap_used)]

use cognate_engine::{Database, Options};
use cognate_env::sim::SimDisk;
use cognate_sql::session::{Session, SessionParameters, SqlDatabase};

use crate::script::simple_query;

/// More rows than a statement's thread reads alone.
const ROWS: u32 = 20_000;

const READ: &str = "SELECT count(*), sum(v), min(id) FROM wide WHERE v < 5";

async fn run(session: &mut Session, text: &str) -> String {
    simple_query(session, text).await.join(" / ")
}

/// Two sessions over one table, which may have so many helpers.
async fn two_sessions(helpers: &str) -> [Session; 2] {
    let disk = SimDisk::new(1);
    let engine = Database::open(Options { disk: disk.handle(), ..Options::new("data") }).unwrap();
    let database = SqlDatabase::open(engine).unwrap();
    let session = || Session::new(database.clone(), SessionParameters::default()).unwrap();
    let mut sessions = [session(), session()];
    let rows = format!("SELECT i, i % 10 FROM generate_series(1, {ROWS}) AS s (i)");
    let table = format!("CREATE TABLE wide (id int PRIMARY KEY, v int); INSERT INTO wide {rows}");
    assert_eq!(run(&mut sessions[0], &table).await, format!("CREATE TABLE / INSERT 0 {ROWS}"));
    for session in &mut sessions {
        let set = format!("SET max_parallel_workers_per_gather = {helpers}");
        assert_eq!(run(session, &set).await, "SET");
    }
    sessions
}

#[tokio::test]
async fn a_total_of_what_two_transactions_have_added_to_is_a_conflict_of_them() {
    for helpers in ["0", "2"] {
        let [mut one, mut other] = two_sessions(helpers).await;
        for session in [&mut one, &mut other] {
            run(session, "BEGIN ISOLATION LEVEL SERIALIZABLE").await;
            assert_eq!(run(session, READ).await, "count|sum|min / 10000|20000|1 / SELECT 1");
        }
        // Behind all rows that were read.
        run(&mut one, "INSERT INTO wide VALUES (100001, 1)").await;
        run(&mut other, "INSERT INTO wide VALUES (100002, 1)").await;
        assert_eq!(run(&mut one, "COMMIT").await, "COMMIT");
        let refused = run(&mut other, "COMMIT").await;
        assert!(refused.contains("ERROR 40001"), "{helpers} helpers: {refused}");
    }
}

#[tokio::test]
async fn a_transaction_reads_its_snapshot_and_what_it_has_written_itself() {
    for helpers in ["0", "2"] {
        let [mut one, mut other] = two_sessions(helpers).await;
        run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
        let before = run(&mut one, READ).await;
        run(&mut other, "DELETE FROM wide WHERE id % 3 = 0; UPDATE wide SET v = 1 WHERE id > 19000").await;
        assert_eq!(run(&mut one, READ).await, before, "{helpers} helpers");
        run(&mut one, "INSERT INTO wide VALUES (0, 4), (100001, 2)").await;
        let with_own = run(&mut one, READ).await;
        assert_eq!(with_own, "count|sum|min / 10002|20006|0 / SELECT 1", "{helpers} helpers");
        run(&mut one, "ROLLBACK").await;
        let after = run(&mut one, READ).await;
        assert_eq!(after, run(&mut other, READ).await, "{helpers} helpers");
        assert_ne!(after, before);
    }
}

#[tokio::test]
async fn the_error_of_the_first_row_that_has_one_is_the_statements() {
    for helpers in ["0", "2"] {
        let [mut one, _] = two_sessions(helpers).await;
        let first = "SELECT sum(1 / (id - 19000) + CASE WHEN id > 19500 THEN id * 1000000 ELSE 0 END) \
                     FROM wide";
        let answer = run(&mut one, first).await;
        assert!(answer.contains("ERROR 22012"), "{helpers} helpers: {answer}");
        let second = first.replace("19500", "18500");
        let answer = run(&mut one, &second).await;
        assert!(answer.contains("ERROR 22003"), "{helpers} helpers: {answer}");
        assert!(run(&mut one, READ).await.ends_with("SELECT 1"));
    }
}
