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

#[tokio::test]
async fn savepoints_channels_and_notifications_take_memory_that_sessions_share() {
    let disk = SimDisk::new(1);
    let options = Options { disk: disk.handle(), ..Options::new("data") }.memory(4 << 20);
    let database = SqlDatabase::open(Database::open(options).unwrap()).unwrap();
    for step in ["SAVEPOINT s#", "LISTEN c#", "SELECT pg_notify('c', repeat('x', 4000) || '#')"] {
        let mut session = Session::new(database.clone(), SessionParameters::default()).unwrap();
        simple_query(&mut session, "BEGIN").await;
        let mut refused = None;
        for number in 0..100_000 {
            let answer = simple_query(&mut session, &step.replace('#', &number.to_string())).await;
            refused = answer.into_iter().find(|line| line.starts_with("ERROR"));
            if refused.is_some() {
                break;
            }
        }
        assert!(refused.unwrap().starts_with("ERROR 53200"), "{step}");
        // It comes back with the end of the transaction.
        simple_query(&mut session, "ROLLBACK; BEGIN").await;
        let answer = simple_query(&mut session, &step.replace('#', "0")).await;
        assert!(!answer.iter().any(|line| line.starts_with("ERROR")), "{step}: {answer:?}");
    }
}

#[tokio::test]
async fn channels_that_a_session_listens_on_go_with_it() {
    let disk = SimDisk::new(1);
    let options = Options { disk: disk.handle(), ..Options::new("data") }.memory(4 << 20);
    let database = SqlDatabase::open(Database::open(options).unwrap()).unwrap();
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut session = Session::new(database.clone(), SessionParameters::default()).unwrap();
        let mut number = 0;
        let refused = loop {
            let answer = simple_query(&mut session, &format!("LISTEN c{number}")).await;
            if let Some(refused) = answer.into_iter().find(|line| line.starts_with("ERROR")) {
                break refused;
            }
            number += 1;
        };
        assert!(refused.starts_with("ERROR 53200"), "{refused}");
        kept.push(number);
    }
    assert_eq!(kept[0], kept[1], "the second has all that the first one had");
}

#[tokio::test]
async fn a_lock_that_is_taken_again_and_again_takes_memory() {
    let disk = SimDisk::new(1);
    let options = Options { disk: disk.handle(), ..Options::new("data") }.memory(4 << 20);
    let database = SqlDatabase::open(Database::open(options).unwrap()).unwrap();
    let mut session = Session::new(database, SessionParameters::default()).unwrap();
    for function in ["pg_try_advisory_lock", "pg_try_advisory_xact_lock"] {
        let endless = format!("SELECT count({function}(1)) FROM generate_series(1, 1000000000)");
        let answer = simple_query(&mut session, &endless).await;
        assert!(answer.iter().any(|line| line.starts_with("ERROR 53200")), "{function}: {answer:?}");
        // What was taken is counted, and a few more fit.
        let answer = simple_query(&mut session, &format!("SELECT {function}(1)")).await;
        assert!(!answer.iter().any(|line| line.starts_with("ERROR")), "{function}: {answer:?}");
    }
}
