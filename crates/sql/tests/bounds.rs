//! Bounds on what a session keeps for its client.

#![allow(clippy::unwrap_used)]

use cognate_engine::{Database, Options};
use cognate_env::sim::SimDisk;
use cognate_sql::session::{Authority, Session, SessionParameters, SqlDatabase};

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

#[tokio::test]
async fn statements_that_are_kept_for_others_leave_them_memory() {
    let disk = SimDisk::new(1);
    let options = Options { disk: disk.handle(), ..Options::new("data") }.memory(4 << 20);
    let database = SqlDatabase::open(Database::open(options).unwrap()).unwrap();
    let mut session = Session::new(database.clone(), SessionParameters::default()).unwrap();
    // As programs have it that write lists of all lengths: none of them is in use any more.
    for count in 600..630 {
        let list: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        let prepared = session.prepare(&format!("SELECT 1 WHERE 7 IN ({})", list.join(",")), &[]);
        assert!(prepared.is_ok(), "{count}: {:?}", prepared.err());
    }
    for number in 0..2000 {
        let prepared = session.prepare(&format!("SELECT {number}"), &[]).unwrap();
        let named = session.name_statement("s".to_owned(), prepared);
        assert!(named.is_ok(), "{number}: {named:?}");
        session.forget_statement("s");
    }
    // Short ones are shared as before.
    let mut other = Session::new(database, SessionParameters::default()).unwrap();
    let [one, two] = [&mut session, &mut other].map(|session| session.prepare("SELECT 'x'", &[]).unwrap());
    assert!(std::sync::Arc::ptr_eq(&one, &two));
}

#[tokio::test]
async fn texts_that_a_block_makes_and_executes_take_the_memory_of_texts() {
    let disk = SimDisk::new(1);
    let options = Options { disk: disk.handle(), ..Options::new("data") }.memory(4 << 20);
    let database = SqlDatabase::open(Database::open(options).unwrap()).unwrap();
    let mut session = Session::new(database, SessionParameters::default()).unwrap();
    for (count, outcome) in [(20, "DO"), (20_000, "ERROR 53200"), (20, "DO")] {
        let text = format!("DO $$ BEGIN EXECUTE 'SELECT 1' || repeat(';', {count}); END $$");
        let answer = simple_query(&mut session, &text).await;
        assert!(answer.iter().any(|line| line.starts_with(outcome)), "{count}: {answer:?}");
    }
}

#[tokio::test]
async fn views_that_read_each_other_twice_are_refused_before_they_are_too_many() {
    let disk = SimDisk::new(1);
    let engine = Database::open(Options { disk: disk.handle(), ..Options::new("data") }).unwrap();
    let mut session = Session::new(SqlDatabase::open(engine).unwrap(), SessionParameters::default()).unwrap();
    simple_query(&mut session, "CREATE VIEW v0 AS SELECT 1 AS n").await;
    let mut refused = None;
    for level in 1..40 {
        let text = format!("CREATE VIEW v{level} AS SELECT count(*) AS n FROM v{0} a, v{0} b", level - 1);
        let answer = simple_query(&mut session, &text).await;
        refused = answer.into_iter().find(|line| line.starts_with("ERROR")).map(|line| (level, line));
        if refused.is_some() {
            break;
        }
    }
    let (level, error) = refused.unwrap();
    assert!(level > 8 && error.starts_with("ERROR 54001"), "{level}: {error}");
}

#[tokio::test]
async fn a_view_that_is_too_much_to_be_read_does_not_go_with_a_column() {
    let disk = SimDisk::new(1);
    let engine = Database::open(Options { disk: disk.handle(), ..Options::new("data") }).unwrap();
    let mut session = Session::new(SqlDatabase::open(engine).unwrap(), SessionParameters::default()).unwrap();
    let long = "x".repeat(100_000);
    let readings = |count: usize| (0..count).map(|n| format!("w w{n}")).collect::<Vec<_>>().join(", ");
    for text in [
        "CREATE TABLE t (n int, c int)".to_owned(),
        format!("CREATE VIEW w AS SELECT n, '{long}' AS x FROM t"),
        format!("CREATE VIEW v AS SELECT w0.n FROM {}", readings(15)),
        "CREATE VIEW u AS SELECT a.n FROM v a, v b".to_owned(),
        format!("CREATE OR REPLACE VIEW v AS SELECT w0.n FROM {}", readings(25)),
    ] {
        let answer = simple_query(&mut session, &text).await;
        assert!(!answer.iter().any(|line| line.starts_with("ERROR")), "{answer:?}");
    }
    let drop = "ALTER TABLE t DROP COLUMN c CASCADE";
    for text in ["SELECT count(*) FROM u", drop] {
        let answer = simple_query(&mut session, text).await;
        assert!(answer.iter().any(|line| line.starts_with("ERROR 54001")), "{text}: {answer:?}");
    }
    for (text, outcome) in [("DROP VIEW u", "DROP VIEW"), (drop, "ALTER TABLE")] {
        let answer = simple_query(&mut session, text).await;
        assert_eq!(answer.last().map(String::as_str), Some(outcome), "{answer:?}");
    }
    let left = simple_query(&mut session, "SELECT 1 / count(*) FROM pg_views WHERE viewname = 'v'").await;
    assert!(!left.iter().any(|line| line.starts_with("ERROR")), "{left:?}");
}

#[tokio::test]
async fn a_loop_with_nothing_in_it_can_be_stopped() {
    let disk = SimDisk::new(1);
    let engine = Database::open(Options { disk: disk.handle(), ..Options::new("data") }).unwrap();
    let mut session = Session::new(SqlDatabase::open(engine).unwrap(), SessionParameters::default()).unwrap();
    simple_query(&mut session, "SET statement_timeout = 50").await;
    for endless in ["LOOP", "WHILE true LOOP", "FOR i IN 1..2000000000 LOOP"] {
        let answer = simple_query(&mut session, &format!("DO $$ BEGIN {endless} END LOOP; END $$")).await;
        assert!(answer.iter().any(|line| line.starts_with("ERROR 57014")), "{endless}: {answer:?}");
    }
}

/// Each of them is let in before any of them has a session.
#[tokio::test]
async fn sessions_that_come_at_once_are_no_more_than_there_may_be() {
    let disk = SimDisk::new(1);
    let engine = Database::open(Options { disk: disk.handle(), ..Options::new("data") }).unwrap();
    let database = SqlDatabase::open(engine).unwrap();
    let parameters = |user: &str, name: &str, authority| SessionParameters {
        user: user.to_owned(),
        database: name.to_owned(),
        authority,
        ..SessionParameters::default()
    };
    let operator = parameters("ann", "postgres", Authority::Superuser);
    let mut session = Session::new(database.clone(), operator).unwrap();
    for text in [
        "CREATE ROLE bob LOGIN CONNECTION LIMIT 1",
        "CREATE ROLE eve LOGIN",
        "CREATE DATABASE shop CONNECTION LIMIT 1",
    ] {
        let answer = simple_query(&mut session, text).await;
        assert!(!answer.iter().any(|line| line.starts_with("ERROR")), "{answer:?}");
    }
    for (user, name) in [("bob", "postgres"), ("eve", "shop")] {
        database.admit(user, name, false).unwrap();
        database.admit(user, name, false).unwrap();
        let begin = || Session::new(database.clone(), parameters(user, name, Authority::Ordinary)).unwrap();
        let (first, second) = (begin(), begin());
        for session in [&first, &second] {
            assert_eq!(session.check_room().unwrap_err().sqlstate, "53300", "{user} in {name}");
        }
        drop(second);
        first.check_room().unwrap();
        assert_eq!(database.admit(user, name, false).unwrap_err().sqlstate, "53300");
    }
}
