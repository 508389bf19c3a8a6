//! Statistics of columns that are gathered in the background. What ANALYZE gathers is in the script
//! `column_statistics`.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use cognate_engine::{Database, Options};
use cognate_env::sim::SimDisk;
use cognate_sql::session::{Session, SessionParameters, SqlDatabase};

use crate::script::simple_query;

async fn run(session: &mut Session, text: &str) -> String {
    simple_query(session, text).await.join(" / ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_large_table_is_read_when_a_plan_asks() {
    let options = Options { disk: SimDisk::new(1).handle(), ..Options::new("data") };
    let sql = SqlDatabase::open(Database::open(options).unwrap()).unwrap();
    let mut session = Session::new(sql.clone(), SessionParameters::default()).unwrap();
    run(&mut session, "CREATE TABLE item (id int PRIMARY KEY, kind int)").await;
    run(&mut session, "CREATE INDEX item_kind ON item (kind)").await;
    let fill = "INSERT INTO item SELECT i, i % 4 FROM generate_series(1, 110000) AS s (i)";
    assert_eq!(run(&mut session, fill).await, "INSERT 0 110000");
    let shown = "SELECT n_distinct FROM pg_stats WHERE attname = 'kind'";
    assert_eq!(run(&mut session, shown).await, "n_distinct / SELECT 0", "no plan has asked");

    let plan = "EXPLAIN SELECT * FROM item WHERE kind = 1";
    let without = run(&mut session, plan).await;
    assert!(without.contains("Index Scan using item_kind"), "{without}");
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
    assert!(with.contains("Seq Scan on item"), "{with}");
    let by = "SELECT last_analyze IS NULL AS none, last_autoanalyze IS NULL AS none FROM pg_stat_user_tables";
    assert_eq!(run(&mut session, by).await, "none|none / t|f / SELECT 1");
    sql.stop_gathering();
}
