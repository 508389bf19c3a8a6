//! Statistics of columns that are gathered in the background, or of an old snapshot, or of long
//! rows. What else ANALYZE gathers is in the script `column_statistics`.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use cognate_engine::{Database, Options};
use cognate_env::sim::SimDisk;
use cognate_sql::session::{Session, SessionParameters, SqlDatabase};

use crate::script::simple_query;

async fn run(session: &mut Session, text: &str) -> String {
    simple_query(session, text).await.join(" / ")
}

fn open() -> SqlDatabase {
    let options = Options { disk: SimDisk::new(1).handle(), ..Options::new("data") };
    SqlDatabase::open(Database::open(options).unwrap()).unwrap()
}

#[tokio::test]
async fn what_an_old_snapshot_shows_is_not_believed_of_a_table_that_has_grown_since() {
    let sql = open();
    let session = || Session::new(sql.clone(), SessionParameters::default()).unwrap();
    let (mut one, mut other) = (session(), session());
    run(&mut one, "CREATE TABLE late (id int PRIMARY KEY, kind int)").await;
    run(&mut one, "CREATE INDEX late_kind ON late (kind)").await;
    let fill = "INSERT INTO late SELECT i, i % 4 FROM generate_series(1, 1000) AS s (i)";
    assert_eq!(run(&mut one, fill).await, "INSERT 0 1000");

    run(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    let count = "SELECT count(*) FROM late";
    assert_eq!(run(&mut one, count).await, "count / 1000 / SELECT 1");
    let grow = "INSERT INTO late SELECT i, i FROM generate_series(1001, 5000) AS s (i)";
    assert_eq!(run(&mut other, grow).await, "INSERT 0 4000");
    assert_eq!(run(&mut one, "ANALYZE late").await, "ANALYZE");
    assert_eq!(run(&mut one, "COMMIT").await, "COMMIT");
    let shown = "SELECT n_distinct FROM pg_stats WHERE attname = 'kind'";
    assert_eq!(run(&mut one, shown).await, "n_distinct / 4 / SELECT 1", "it saw the first rows");

    let plan = run(&mut one, "EXPLAIN SELECT * FROM late WHERE kind = 2").await;
    assert!(plan.contains("Index Scan using late_kind"), "{plan}");
}

#[tokio::test]
async fn long_rows_are_not_read_without_a_look_whether_to_stop() {
    let mut session = Session::new(open(), SessionParameters::default()).unwrap();
    run(&mut session, "CREATE TABLE texts (id int PRIMARY KEY, t text)").await;
    let fill = "INSERT INTO texts SELECT i, repeat('x', 65536) FROM generate_series(1, 128) s (i)";
    assert_eq!(run(&mut session, fill).await, "INSERT 0 128");
    assert_eq!(run(&mut session, "ANALYZE texts").await, "ANALYZE");
    // No machine reads and hashes eight megabytes within it.
    assert_eq!(run(&mut session, "SET statement_timeout = 1").await, "SET");
    let answer = run(&mut session, "ANALYZE texts").await;
    assert!(answer.contains("ERROR 57014"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_large_table_is_read_when_a_plan_asks() {
    let sql = open();
    let mut session = Session::new(sql.clone(), SessionParameters::default()).unwrap();
    run(&mut session, "CREATE TABLE item (id int PRIMARY KEY, kind int, x int)").await;
    run(&mut session, "CREATE INDEX item_kind ON item (kind)").await;
    let fill = "INSERT INTO item SELECT i, i % 4, i FROM generate_series(1, 110000) AS s (i)";
    assert_eq!(run(&mut session, fill).await, "INSERT 0 110000");
    let shown = "SELECT n_distinct FROM pg_stats WHERE attname = 'kind'";
    assert_eq!(run(&mut session, shown).await, "n_distinct / SELECT 0", "no plan has asked");

    let plan = "EXPLAIN SELECT b.id FROM item a JOIN item b ON b.kind = a.x WHERE a.id = 1";
    let without = run(&mut session, plan).await;
    assert!(without.contains("using item_kind"), "{without}");
    let gathered = async {
        loop {
            let answer = run(&mut session, shown).await;
            if answer != "n_distinct / SELECT 0" {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let answer = tokio::time::timeout(Duration::from_secs(60), gathered).await.expect("it is gathered");
    assert_eq!(answer, "n_distinct / 4 / SELECT 1");
    let with = run(&mut session, plan).await;
    assert!(!with.contains("using item_kind"), "{with}");
    // Jobs that wait may be few at another time: all rows are read for them if ANALYZE was asked to
    // look, and not because the background has.
    let jobs = "EXPLAIN SELECT * FROM item WHERE kind = 1";
    let of_background = run(&mut session, jobs).await;
    assert!(of_background.contains("Index Scan using item_kind"), "{of_background}");
    let by = "SELECT last_analyze IS NULL AS none, last_autoanalyze IS NULL AS none FROM pg_stat_user_tables";
    assert_eq!(run(&mut session, by).await, "none|none / t|f / SELECT 1");
    assert_eq!(run(&mut session, "ANALYZE item").await, "ANALYZE");
    let asked = run(&mut session, jobs).await;
    assert!(asked.contains("Seq Scan on item"), "{asked}");
    sql.stop_gathering();
}
