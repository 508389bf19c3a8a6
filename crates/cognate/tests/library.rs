//! The library inside a program.

use cognate::{Database, Error, TypeId};

fn database() -> (tempfile::TempDir, Database) {
    let folder = tempfile::tempdir().expect("a folder");
    let database = Database::open(folder.path().join("data")).expect("opened");
    (folder, database)
}

fn state(result: cognate::Result<impl std::fmt::Debug>) -> &'static str {
    result.expect_err("an error").sqlstate
}

#[test]
fn labels_of_enum_types_are_texts() {
    let (_folder, database) = database();
    let mut session = database.session().expect("a session");
    session
        .run_script("CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TABLE t (m mood, n int)")
        .expect("created");
    session.execute("INSERT INTO t VALUES ($1, $2)", &[&"happy", &1]).expect("inserted");
    let row = session.query_one("SELECT m, n FROM t WHERE m = $1", &[&"happy"]).expect("a row");
    assert_eq!(row.get::<String>("m").as_deref(), Ok("happy"));
    assert_eq!(row.text("m"), Ok(Some("happy".to_owned())));
    assert_eq!(row.get("n"), Ok(1));
    assert_eq!(state(session.execute("INSERT INTO t VALUES ($1, 2)", &[&"angry"])), "22P02");
}

#[test]
fn values_of_all_kinds_go_in_and_come_out() {
    let (_folder, database) = database();
    let mut session = database.session().expect("a session");
    session
        .run_script(
            "CREATE TABLE t (b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric(10,2), s text,
                             y bytea, u uuid, d date, z text)",
        )
        .expect("created");
    let insert = "INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let uuid = [7_u8; 16];
    let changed = session.execute(
        insert,
        &[
            &true,
            &-1_i16,
            &-2_i32,
            &-3_i64,
            &1.5_f32,
            &2.5_f64,
            &"12.34",
            &"text",
            &vec![0_u8, 255],
            &uuid,
            &"2024-02-29",
            &None::<String>,
        ],
    );
    assert_eq!(changed.expect("inserted"), 1);
    let row = session.query_one("SELECT * FROM t", &[]).expect("a row");
    assert_eq!(row.get("b"), Ok(true));
    assert_eq!((row.get("i2"), row.get("i4"), row.get("i8")), (Ok(-1_i16), Ok(-2_i32), Ok(-3_i64)));
    assert_eq!(row.get::<i64>("i2"), Ok(-1));
    assert_eq!((row.get("f4"), row.get("f8")), (Ok(1.5_f32), Ok(2.5_f64)));
    assert_eq!(row.text("n"), Ok(Some("12.34".to_owned())));
    assert_eq!(row.get::<String>("s").as_deref(), Ok("text"));
    assert_eq!(row.get("y"), Ok(vec![0_u8, 255]));
    assert_eq!(row.get("u"), Ok(uuid));
    assert_eq!(row.text("d"), Ok(Some("2024-02-29".to_owned())));
    assert_eq!(row.get::<Option<String>>("z"), Ok(None));
    assert_eq!(row.columns()[3].ty.id, TypeId::Int8);
    assert_eq!(state(row.get::<i32>("i8")), "42804");
    assert_eq!(state(row.get::<String>("z")), "42804");
    assert_eq!(state(row.get::<i32>("none")), "42703");
    assert_eq!(state(row.get::<i32>(12)), "42703");
}

#[test]
fn a_transaction_is_all_or_nothing() {
    let (_folder, database) = database();
    let mut session = database.session().expect("a session");
    let mut other = database.session().expect("a session");
    session.execute("CREATE TABLE t (id int PRIMARY KEY)", &[]).expect("created");
    let count = |session: &mut cognate::Session| -> i64 {
        session.query_one("SELECT count(*) FROM t", &[]).and_then(|row| row.get(0)).expect("a number")
    };

    let mut transaction = session.begin().expect("begun");
    transaction.execute("INSERT INTO t VALUES (1)", &[]).expect("inserted");
    assert_eq!((count(&mut transaction), count(&mut other)), (1, 0));
    transaction.commit().expect("committed");
    assert_eq!(count(&mut other), 1);

    let mut transaction = session.begin().expect("begun");
    transaction.execute("INSERT INTO t VALUES (2)", &[]).expect("inserted");
    drop(transaction);
    let mut transaction = session.begin().expect("begun again");
    transaction.execute("INSERT INTO t VALUES (3)", &[]).expect("inserted");
    transaction.rollback().expect("rolled back");
    assert_eq!(count(&mut other), 1);

    let mut transaction = session.begin().expect("begun");
    transaction.execute("INSERT INTO t VALUES (4)", &[]).expect("inserted");
    assert_eq!(state(transaction.execute("INSERT INTO t VALUES (1)", &[])), "23505");
    assert_eq!(state(transaction.execute("SELECT 1", &[])), "25P02");
    assert_eq!(state(transaction.commit()), "25P02");
    assert_eq!(count(&mut session), 1);
}

#[test]
fn mistakes_are_told_and_the_session_goes_on() {
    let (_folder, database) = database();
    let mut session = database.session().expect("a session");
    assert_eq!(state(session.execute("SELEC 1", &[])), "42601");
    assert_eq!(state(session.query("SELECT * FROM nowhere", &[])), "42P01");
    assert_eq!(state(session.query("SELECT $1::int", &[])), "08P01");
    assert_eq!(state(session.query("SELECT $1::int", &[&"x"])), "22P02");
    assert_eq!(state(session.query("SELECT 1/0", &[])), "22012");
    assert_eq!(state(session.query_one("SELECT 1 WHERE false", &[])), "P0002");
    assert_eq!(state(session.query_one("SELECT * FROM generate_series(1, 2)", &[])), "P0003");
    assert_eq!(session.query("", &[]).map(|rows| rows.len()), Ok(0));
    // Just the types, and NULL of any.
    let text = "SELECT $1::int8 + $2::int2 AS sum, $3::float8 IS NULL AS none";
    let row = session.query_one(text, &[&40_i64, &2_i16, &None::<i32>]).expect("a row");
    assert_eq!((row.get::<i64>("sum"), row.get::<bool>("none")), (Ok(42), Ok(true)));
    let row = session.query_one("SELECT $1::int + 1", &[&41_i64]).expect("a row");
    assert_eq!(row.get(0), Ok(42));
}

#[test]
fn what_was_committed_is_there_after_opening_again() {
    let (folder, database) = database();
    let mut session = database.session().expect("a session");
    session.execute("CREATE TABLE t (id int PRIMARY KEY)", &[]).expect("created");
    session.execute("INSERT INTO t VALUES ($1)", &[&1]).expect("inserted");
    drop(session);
    database.close().expect("closed");
    for _ in 0..2 {
        let database = Database::open(folder.path().join("data")).expect("opened again");
        let mut session = database.session().expect("a session");
        assert_eq!(session.query_one("SELECT id FROM t", &[]).and_then(|row| row.get(0)), Ok(1));
    }
}

#[test]
fn threads_wait_for_each_other_and_not_for_ever() {
    let (_folder, database) = database();
    let mut session = database.session().expect("a session");
    session
        .run_script("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)")
        .expect("made");
    let mut holder = session.begin().expect("begun");
    holder.execute("UPDATE t SET n = n + 1", &[]).expect("updated");

    let mut impatient = database.session().expect("a session");
    impatient.execute("SET lock_timeout = '10ms'", &[]).expect("set");
    assert_eq!(state(impatient.execute("UPDATE t SET n = n + 1", &[])), "55P03");

    let waiting = std::thread::spawn(move || -> Result<u64, Error> {
        impatient.execute("SET lock_timeout = 0; ", &[])?;
        impatient.execute("SET default_transaction_isolation = 'read committed'", &[])?;
        impatient.execute("UPDATE t SET n = n + 1", &[])
    });
    holder.commit().expect("committed");
    assert_eq!(waiting.join().expect("no panic"), Ok(1));
    assert_eq!(session.query_one("SELECT n FROM t", &[]).and_then(|row| row.get(0)), Ok(2));
}

#[tokio::test]
async fn the_same_inside_an_executor() {
    let (_folder, database) = database();
    let mut session = database.session().expect("a session");
    session.begin_async().await.expect("begun");
    assert_eq!(state(session.begin_async().await), "25001");
    session.execute_async("CREATE TABLE t (id int PRIMARY KEY)", &[]).await.expect("created");
    session.execute_async("INSERT INTO t VALUES (1), (2)", &[]).await.expect("inserted");
    session.execute_async("COMMIT", &[]).await.expect("committed");
    let rows = session.query_async("SELECT id FROM t ORDER BY id", &[]).await.expect("rows");
    assert_eq!(rows.iter().map(|row| row.get::<i32>(0)).collect::<Vec<_>>(), [Ok(1), Ok(2)]);
}
