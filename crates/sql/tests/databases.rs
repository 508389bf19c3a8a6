//! Databases beside each other: what one of them has, another does not see.

#![allow(clippy::unwrap_used)]

use std::ops::Bound;

use cognate_engine::{Access, Database, Isolation, Options};
use cognate_env::sim::SimDisk;
use cognate_sql::session::{Session, SessionParameters, SqlDatabase};

use crate::script::simple_query;

fn open(disk: &SimDisk) -> SqlDatabase {
    let engine = Database::open(Options { disk: disk.handle(), ..Options::new("data") }).unwrap();
    SqlDatabase::open(engine).unwrap()
}

fn try_session(sql: &SqlDatabase, database: &str) -> Result<Session, cognate_sql::SqlError> {
    let parameters = SessionParameters {
        user: "ann".to_owned(),
        database: database.to_owned(),
        ..SessionParameters::default()
    };
    Session::new(sql.clone(), parameters)
}

fn session(sql: &SqlDatabase, database: &str) -> Session {
    try_session(sql, database).unwrap()
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
async fn names_of_one_database_mean_nothing_in_another() {
    let disk = SimDisk::new(1);
    let sql = open(&disk);
    let mut first = session(&sql, "postgres");
    run(&mut first, "CREATE TABLE t (id serial PRIMARY KEY, a text); INSERT INTO t (a) VALUES ('first')")
        .await;
    run(
        &mut first,
        "CREATE FUNCTION f() RETURNS int LANGUAGE SQL AS 'SELECT 1'; CREATE TYPE e AS ENUM ('x')",
    )
    .await;
    assert_eq!(run(&mut first, "CREATE DATABASE shop").await, "CREATE DATABASE");
    let mut other = session(&sql, "shop");
    for text in ["TABLE t", "SELECT f()", "SELECT 'x'::e", "SELECT nextval('t_id_seq')", "DROP TABLE t"] {
        let answer = run(&mut other, text).await;
        assert!(answer.starts_with("ERROR 42"), "{text}: {answer}");
    }
    let made =
        "CREATE TABLE t (id serial PRIMARY KEY, b int, c int DEFAULT 7); INSERT INTO t (b) VALUES (5), (6)";
    assert_eq!(run(&mut other, made).await, "CREATE TABLE / INSERT 0 2");
    // One text, two plans.
    for _ in 0..2 {
        assert_eq!(run(&mut first, "SELECT * FROM t").await, "id|a / 1|first / SELECT 1");
        assert_eq!(run(&mut other, "SELECT * FROM t").await, "id|b|c / 1|5|7 / 2|6|7 / SELECT 2");
    }
    let tables = "SELECT count(*) FROM pg_class WHERE relname = 't'";
    assert_eq!(run(&mut first, tables).await, "count / 1 / SELECT 1");
    let catalog = "SELECT DISTINCT table_catalog FROM information_schema.tables";
    assert_eq!(run(&mut other, catalog).await, "table_catalog / shop / SELECT 1");
    // Everything is there again after the next start.
    drop((first, other));
    sql.engine().close().unwrap();
    drop(sql);
    let sql = open(&disk);
    let sum = "SELECT sum(b) FROM t";
    assert_eq!(run(&mut session(&sql, "shop"), sum).await, "sum / 11 / SELECT 1");
    assert!(run(&mut session(&sql, "postgres"), sum).await.starts_with("ERROR 42703"));
    let read = sql.read_back().unwrap();
    assert_eq!((read.tables, read.rows), (2, 3));
}

#[tokio::test]
async fn any_name_leads_to_the_initial_database_until_there_is_another() {
    let sql = open(&SimDisk::new(1));
    let mut alias = session(&sql, "shop");
    run(&mut alias, "CREATE TABLE t (a int)").await;
    let name = "SELECT current_database()";
    assert_eq!(run(&mut alias, name).await, "current_database / shop / SELECT 1");
    let listed = "SELECT datname FROM pg_database ORDER BY oid";
    assert_eq!(run(&mut alias, listed).await, "datname / template1 / template0 / shop / SELECT 3");
    assert_eq!(run(&mut alias, "CREATE DATABASE shop").await, "CREATE DATABASE");
    assert_eq!(run(&mut alias, name).await, "current_database / postgres / SELECT 1");
    let refused = try_session(&sql, "stall").err().unwrap();
    assert_eq!((refused.sqlstate, refused.message.as_str()), ("3D000", "database \"stall\" does not exist"));
    assert!(refused.hint.as_deref().unwrap().contains("\"postgres\""));
    let mut new = session(&sql, "shop");
    assert!(run(&mut new, "TABLE t").await.starts_with("ERROR 42P01"));
    drop(new);
    assert_eq!(run(&mut alias, "DROP DATABASE shop").await, "DROP DATABASE");
    assert_eq!(run(&mut session(&sql, "stall"), "TABLE t").await, "a / SELECT 0");
    assert!(run(&mut session(&sql, "template1"), "TABLE t").await.starts_with("ERROR 42P01"));
}

#[tokio::test]
async fn what_is_dropped_leaves_nothing() {
    let disk = SimDisk::new(1);
    let sql = open(&disk);
    let mut first = session(&sql, "postgres");
    run(&mut first, "CREATE TABLE t (a int)").await;
    let catalog = rows(&sql, 1);
    run(&mut first, "CREATE DATABASE shop").await;
    let mut other = session(&sql, "shop");
    let made = "CREATE SCHEMA s; CREATE TABLE s.t (a int PRIMARY KEY); CREATE INDEX ON s.t ((a + 1)); \
                INSERT INTO s.t SELECT * FROM generate_series(1, 100); CREATE VIEW v AS SELECT * FROM s.t; \
                COMMENT ON SCHEMA public IS 'p'; CREATE DOMAIN d AS int; CREATE TEMP TABLE x (a int); \
                ALTER DATABASE shop SET work_mem = '5MB'; ALTER ROLE ann IN DATABASE shop SET work_mem = '6MB'";
    let answer = run(&mut other, made).await;
    assert!(!answer.contains("ERROR"), "{answer}");
    assert_eq!(run(&mut session(&sql, "shop"), "SHOW work_mem").await, "work_mem / 6MB / SHOW");
    assert_eq!(run(&mut session(&sql, "postgres"), "SHOW work_mem").await, "work_mem / 4MB / SHOW");
    let refused = run(&mut first, "DROP DATABASE shop").await;
    assert!(refused.starts_with("ERROR 55006: database \"shop\" is being accessed"), "{refused}");
    assert!(
        run(&mut other, "DROP DATABASE shop").await.starts_with("ERROR 55006: cannot drop the currently")
    );
    drop(other);
    assert_eq!(run(&mut first, "DROP DATABASE shop").await, "DROP DATABASE");
    assert_eq!(rows(&sql, 1), catalog);
    assert_eq!(run(&mut first, "TABLE t").await, "a / SELECT 0");
    let refused = run(&mut first, "DROP DATABASE shop").await;
    assert!(refused.starts_with("ERROR 3D000"), "{refused}");
    let read = sql.read_back().unwrap();
    assert_eq!((read.tables, read.rows), (1, 0));
}

#[tokio::test]
async fn locks_channels_and_prepared_transactions_are_of_one_database() {
    let sql = open(&SimDisk::new(1));
    let mut first = session(&sql, "postgres");
    run(&mut first, "CREATE DATABASE shop").await;
    let mut other = session(&sql, "shop");
    let lock = "SELECT pg_try_advisory_lock(1)";
    assert_eq!(run(&mut first, lock).await, "pg_try_advisory_lock / t / SELECT 1");
    assert_eq!(run(&mut other, lock).await, "pg_try_advisory_lock / t / SELECT 1");
    let held = "SELECT DISTINCT d.datname FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
                WHERE locktype = 'advisory' ORDER BY 1";
    assert_eq!(run(&mut first, held).await, "datname / postgres / shop / SELECT 2");
    run(&mut first, "LISTEN c").await;
    run(&mut other, "LISTEN c").await;
    run(&mut other, "NOTIFY c").await;
    assert_eq!((first.take_notifications().count(), other.take_notifications().count()), (0, 1));
    run(&mut other, "CREATE TABLE t (a int)").await;
    run(&mut other, "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'p'").await;
    let listed = "SELECT gid, database FROM pg_prepared_xacts";
    assert_eq!(run(&mut first, listed).await, "gid|database / p|shop / SELECT 1");
    for text in ["COMMIT PREPARED 'p'", "ROLLBACK PREPARED 'p'"] {
        let refused = run(&mut first, text).await;
        assert!(
            refused.starts_with("ERROR 0A000: prepared transaction belongs to another database"),
            "{refused}"
        );
    }
    drop(other);
    let refused = run(&mut first, "DROP DATABASE shop").await;
    assert!(refused.contains("There is 1 prepared transaction using the database."), "{refused}");
    assert_eq!(run(&mut session(&sql, "shop"), "COMMIT PREPARED 'p'").await, "COMMIT PREPARED");
    assert_eq!(run(&mut session(&sql, "shop"), "TABLE t").await, "a / 1 / SELECT 1");
}

/// A session of another node has prepared it while its database was dropped here: it has locked
/// nothing there that the drop could have met.
#[tokio::test]
async fn what_is_prepared_in_a_database_that_has_gone_is_decided_in_any_other() {
    let sql = open(&SimDisk::new(1));
    let mut first = session(&sql, "postgres");
    for (text, name) in [("COMMIT PREPARED", "p"), ("ROLLBACK PREPARED", "q")] {
        let note = ["ann", "shop", "999999", "10"].join("\0");
        let transaction = sql.engine().begin(Isolation::Snapshot, Access::ReadWrite);
        transaction.prepare(name, note.into()).unwrap();
        assert_eq!(run(&mut first, &format!("{text} '{name}'")).await, text);
    }
    let listed = "SELECT count(*) FROM pg_prepared_xacts";
    assert_eq!(run(&mut first, listed).await, "count / 0 / SELECT 1");
}

#[tokio::test]
async fn roles_are_shared_and_rights_are_not() {
    let sql = open(&SimDisk::new(1));
    let mut first = session(&sql, "postgres");
    run(&mut first, "CREATE ROLE bob; CREATE ROLE eve CREATEDB").await;
    run(&mut first, "CREATE DATABASE shop OWNER bob").await;
    let mut other = session(&sql, "shop");
    run(&mut other, "CREATE TABLE t (a int); ALTER TABLE t OWNER TO bob; CREATE ROLE tim").await;
    assert_eq!(
        run(&mut first, "SELECT count(*) FROM pg_roles WHERE rolname = 'tim'").await,
        "count / 1 / SELECT 1"
    );
    let refused = run(&mut first, "DROP ROLE bob").await;
    assert!(refused.contains("owner of database shop / 1 object in database shop"), "{refused}");
    run(&mut first, "SET ROLE eve").await;
    assert!(
        run(&mut first, "DROP DATABASE shop").await.contains("ERROR 42501: must be owner of database shop")
    );
    assert!(run(&mut first, "CREATE DATABASE eves").await.contains("CREATE DATABASE"));
    assert!(run(&mut first, "CREATE DATABASE x OWNER bob").await.contains("ERROR 42501"));
    run(&mut first, "SET ROLE bob").await;
    let refused = run(&mut first, "CREATE DATABASE x").await;
    assert!(refused.contains("ERROR 42501: permission denied to create database"), "{refused}");
    run(&mut first, "RESET ROLE; GRANT CREATE ON DATABASE shop TO eve").await;
    let has = "SELECT has_database_privilege('eve', 'shop', 'CREATE'), has_database_privilege('eve', 'postgres', 'CREATE')";
    assert!(run(&mut first, has).await.ends_with("t|f / SELECT 1"));
    drop(other);
    let gone = run(&mut first, "DROP DATABASE shop").await;
    assert_eq!(gone, "DROP DATABASE");
    assert_eq!(run(&mut first, "DROP ROLE bob").await, "DROP ROLE");
}
