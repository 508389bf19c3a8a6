//! Bounds on what a session keeps for its client.

#![allow(clippy::unwrap_used)]

use cognate_engine::{Database, Options};
use cognate_env::sim::SimDisk;
use cognate_sql::session::{Session, SessionParameters, SqlDatabase};

use crate::script::simple_query;

#[tokio::test]
async fn notices_of_a_statement_take_so_much_memory_and_no_more() {
    let disk = SimDisk::new(1);
    let engine = Database::open(Options { disk: disk.handle(), ..Options::new("data") }).unwrap();
    let database = SqlDatabase::open(engine).unwrap();
    let mut session = Session::new(database, SessionParameters::default()).unwrap();
    for (text, least, most) in [
        ("DO $$ BEGIN FOR i IN 1..40 LOOP RAISE NOTICE '%', repeat('x', 1000000); END LOOP; END $$", 10, 20),
        ("SELECT count(*) FROM generate_series(1, 50000) AS g (i) WHERE pg_advisory_unlock(i)", 10000, 40000),
    ] {
        let answer = simple_query(&mut session, text).await;
        let notices = answer.iter().filter(|line| line.starts_with("NOTICE") || line.starts_with("WARNING"));
        let number = notices.count();
        assert!((least..most).contains(&number), "{number} of {text}");
        assert!(answer.iter().any(|line| line.starts_with("ERROR 54000")), "{text}");
    }
    // What was told is not counted again.
    let block = "DO $$ BEGIN FOR i IN 1..10 LOOP RAISE NOTICE '%', repeat('x', 1000000); END LOOP; END $$";
    for _ in 0..3 {
        assert_eq!(simple_query(&mut session, block).await.last().unwrap(), "DO");
    }
}
