//! Roles of the database as those who connect meet them: names, passwords, limits, and plans that
//! sessions of several roles share.

use std::collections::BTreeMap;

use cognate_server::config::{AuthSettings, Settings};
use tokio_postgres::{Client, Config, NoTls};

use crate::support::TestServer;

/// A connection of a user, or the SQLSTATE and message that it is refused with.
async fn connect(server: &TestServer, user: &str, password: &str) -> Result<Client, (String, String)> {
    let mut config = Config::new();
    config.host("127.0.0.1").port(server.address().port()).user(user).dbname("any");
    if !password.is_empty() {
        config.password(password);
    }
    match config.connect(NoTls).await {
        Ok((client, connection)) => {
            tokio::spawn(connection);
            Ok(client)
        }
        Err(error) => {
            let refused = error.as_db_error().map(|error| (error.code().code(), error.message()));
            let (code, message) = refused.unwrap_or(("", "the password is missing"));
            Err((code.to_owned(), message.to_owned()))
        }
    }
}

async fn refusal(server: &TestServer, user: &str, password: &str) -> (String, String) {
    connect(server, user, password).await.err().unwrap_or_default()
}

fn code(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("", |state| state.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_no_roles_get_in_until_there_are_some() {
    let server = TestServer::start().await;
    let ann = server.connect().await;
    let stranger = connect(&server, "stranger", "").await.expect("anybody");
    stranger.batch_execute("CREATE TABLE t (a int)").await.expect("all is permitted");
    let refused = stranger.batch_execute("CREATE ROLE mine").await.expect_err("no superuser");
    assert_eq!(code(&refused), "42501");
    ann.batch_execute("CREATE ROLE staff; CREATE ROLE bob LOGIN; CREATE ROLE one LOGIN CONNECTION LIMIT 1")
        .await
        .expect("made");
    let unknown = ("28000".to_owned(), "role \"stranger\" does not exist".to_owned());
    assert_eq!(refusal(&server, "stranger", "").await, unknown);
    let no_login = ("28000".to_owned(), "role \"staff\" is not permitted to log in".to_owned());
    assert_eq!(refusal(&server, "staff", "").await, no_login);
    // Who is there already is nobody any more.
    let refused = stranger.batch_execute("SELECT * FROM t").await.expect_err("no role");
    assert_eq!(code(&refused), "42501");
    connect(&server, "bob", "").await.expect("a role");
    let first = connect(&server, "one", "").await.expect("the first");
    assert_eq!(refusal(&server, "one", "").await.0, "53300");
    ann.batch_execute(
        "REVOKE CONNECT ON DATABASE \"any\" FROM PUBLIC; GRANT CONNECT ON DATABASE \"any\" TO one",
    )
    .await
    .expect("changed");
    let no_connect = ("42501".to_owned(), "permission denied for database \"any\"".to_owned());
    assert_eq!(refusal(&server, "bob", "").await, no_connect);
    drop(first);
    while refusal(&server, "one", "").await.0 == "53300" {
        tokio::task::yield_now().await;
    }
    connect(&server, "ann", "").await.expect("the superuser of the configuration");
    // The first CREATE ROLE made the one who gave it the owner of all.
    let owner =
        ann.query_one("SELECT rolname::text, oid FROM pg_roles WHERE rolsuper", &[]).await.expect("a row");
    assert_eq!((owner.get::<_, &str>(0), owner.get::<_, u32>(1)), ("ann", 10));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_its_role_whoever_has_the_name_later() {
    let server = TestServer::start().await;
    let ann = server.connect().await;
    ann.batch_execute(
        "CREATE TABLE t (a int); CREATE ROLE bob LOGIN; CREATE ROLE eve LOGIN; CREATE ROLE team",
    )
    .await
    .expect("made");
    ann.batch_execute("GRANT team TO eve").await.expect("a member");
    let (bob, eve) = (connect(&server, "bob", "").await, connect(&server, "eve", "").await);
    let (bob, eve) = (bob.expect("connected"), eve.expect("connected"));
    ann.batch_execute("DROP ROLE bob").await.expect("dropped");
    ann.batch_execute("ALTER ROLE eve RENAME TO former").await.expect("renamed");
    ann.batch_execute("CREATE ROLE bob LOGIN SUPERUSER; CREATE ROLE eve LOGIN SUPERUSER")
        .await
        .expect("made");
    // One was dropped, and is nobody.
    for statement in ["SELECT 1", "SELECT * FROM t", "CREATE ROLE mine SUPERUSER", "CREATE TABLE u (a int)"] {
        let refused = bob.batch_execute(statement).await.expect_err("no role");
        assert_eq!(code(&refused), "42704", "{statement}");
    }
    // The other has another name, and nothing of who has his old one.
    eve.batch_execute("SELECT 1").await.expect("a role");
    let refused = eve.batch_execute("SELECT * FROM t").await.expect_err("not his");
    assert_eq!(code(&refused), "42501");
    let refused = eve.batch_execute("SET ROLE bob").await.expect_err("no member");
    assert_eq!(code(&refused), "42501");
    ann.batch_execute("GRANT SELECT ON t TO former").await.expect("given");
    eve.batch_execute("SELECT * FROM t").await.expect("his right");
    // So has a role that a session was made.
    eve.batch_execute("SET ROLE team; SELECT 1").await.expect("a member");
    ann.batch_execute("DROP ROLE team").await.expect("dropped");
    ann.batch_execute("CREATE ROLE team SUPERUSER").await.expect("made");
    assert_eq!(code(&eve.batch_execute("SELECT * FROM t").await.expect_err("no role")), "42704");
    eve.batch_execute("RESET ROLE; SELECT * FROM t").await.expect("his right");
    server.stop().await;
}

/// How many keys of locks on `t`, and how many requests, a client is shown.
async fn shown_of_transactions(client: &Client) -> (i64, i64) {
    let locks = "SELECT count(relation), count(key) FROM cognate_locks WHERE relation = 't'";
    let locks = client.query_one(locks, &[]).await.expect("a row");
    let families = "SELECT count(family), count(request) FROM cognate_in_doubt";
    let families = client.query_one(families, &[]).await.expect("a row");
    assert!(locks.get::<_, i64>(0) >= 2, "that there are locks is no secret");
    assert_eq!(families.get::<_, i64>(0), 1, "nor that something is prepared");
    (locks.get(1), families.get(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_requests_are_shown_to_their_role_and_to_who_may_see_all() {
    let server = TestServer::start().await;
    let ann = server.connect().await;
    ann.batch_execute(
        "CREATE TABLE t (a int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 1), (2, 2); \
         CREATE ROLE bob LOGIN; CREATE ROLE eve LOGIN; GRANT SELECT, UPDATE ON t TO bob",
    )
    .await
    .expect("made");
    let (bob, eve) = (connect(&server, "bob", "").await, connect(&server, "eve", "").await);
    let (bob, eve) = (bob.expect("connected"), eve.expect("connected"));
    bob.batch_execute("BEGIN MIP <x,1>; UPDATE t SET b = 3 WHERE a = 1").await.expect("changed");
    bob.batch_execute("PREPARE MIP <x,1> 'pay 7' 'ok'").await.expect("prepared");
    bob.batch_execute("BEGIN; UPDATE t SET b = 3 WHERE a = 2").await.expect("changed");
    assert!(matches!(shown_of_transactions(&ann).await, (2.., 1)), "a superuser");
    assert!(matches!(shown_of_transactions(&bob).await, (2.., 1)), "his own");
    assert_eq!(shown_of_transactions(&eve).await, (0, 0));
    ann.batch_execute("GRANT pg_monitor TO eve").await.expect("given");
    assert!(matches!(shown_of_transactions(&eve).await, (2.., 1)), "who may see all");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_have_passwords_beside_those_of_the_configuration() {
    let users = BTreeMap::from([("ann".to_owned(), "a".to_owned()), ("joe".to_owned(), "j".to_owned())]);
    let auth = AuthSettings { users, ..AuthSettings::default() };
    let server = TestServer::with(Settings { auth, ..Settings::default() }).await;
    let ann = connect(&server, "ann", "a").await.expect("of the configuration");
    ann.batch_execute(
        "CREATE USER bob PASSWORD 'b ß'; CREATE USER joe PASSWORD 'other'; CREATE USER eve; \
         CREATE USER old PASSWORD 'o' VALID UNTIL '2001-01-01'; CREATE USER late PASSWORD 'l' VALID UNTIL 'infinity'",
    )
    .await
    .expect("made");
    let bob = connect(&server, "bob", "b ß").await.expect("of the database");
    connect(&server, "late", "l").await.expect("it counts");
    connect(&server, "joe", "j").await.expect("the configuration goes before");
    for (user, password) in [("bob", "x"), ("joe", "other"), ("eve", "a"), ("old", "o"), ("nobody", "b")] {
        assert_eq!(refusal(&server, user, password).await.0, "28P01", "{user}");
    }
    bob.batch_execute("ALTER ROLE bob PASSWORD 'new'").await.expect("his own");
    assert_eq!(refusal(&server, "bob", "b ß").await.0, "28P01");
    connect(&server, "bob", "new").await.expect("the new one");
    // A verifier is moved from one role to another, as dumps do.
    let stored =
        ann.query_one("SELECT rolpassword FROM pg_authid WHERE rolname = 'bob'", &[]).await.expect("a row");
    let verifier: String = stored.get(0);
    ann.batch_execute(&format!("ALTER ROLE eve PASSWORD '{verifier}'")).await.expect("taken over");
    connect(&server, "eve", "new").await.expect("the same password");
    let refused = bob.query("SELECT rolpassword FROM pg_authid", &[]).await.expect_err("not his to see");
    assert_eq!(code(&refused), "42501");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_of_a_role_is_asked_for_where_no_other_is() {
    let server = TestServer::start().await;
    let ann = server.connect().await;
    ann.batch_execute("CREATE USER bob PASSWORD 'b'; CREATE USER eve").await.expect("made");
    assert_eq!(refusal(&server, "bob", "").await.1, "the password is missing");
    assert_eq!(refusal(&server, "bob", "x").await.0, "28P01");
    connect(&server, "bob", "b").await.expect("his password");
    connect(&server, "eve", "").await.expect("she has none");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_roles_share_are_asked_of_each_when_they_run() {
    let server = TestServer::start().await;
    let ann = server.connect().await;
    ann.batch_execute(
        "CREATE TABLE t (a int); INSERT INTO t VALUES (1); CREATE ROLE bob LOGIN; CREATE ROLE eve LOGIN; \
         GRANT SELECT ON t TO bob",
    )
    .await
    .expect("made");
    let (bob, eve) = (connect(&server, "bob", "").await, connect(&server, "eve", "").await);
    let (bob, eve) = (bob.expect("connected"), eve.expect("connected"));
    let words = "SELECT a FROM t WHERE a = $1";
    let (of_bob, of_eve) =
        (bob.prepare(words).await.expect("planned"), eve.prepare(words).await.expect("planned"));
    let changed = bob.prepare("UPDATE t SET a = $1").await.expect("planned");
    for _ in 0..3 {
        assert_eq!(bob.query(&of_bob, &[&1]).await.expect("his right").len(), 1);
        assert_eq!(code(&eve.query(&of_eve, &[&1]).await.expect_err("not hers")), "42501");
        assert_eq!(code(&bob.execute(&changed, &[&2]).await.expect_err("not his")), "42501");
    }
    ann.batch_execute("REVOKE SELECT ON t FROM bob; GRANT SELECT ON t TO eve").await.expect("changed");
    let refused = bob.query(&of_bob, &[&1]).await.expect_err("not any more");
    assert_eq!(refused.as_db_error().map(|error| error.message()), Some("permission denied for table t"));
    assert_eq!(eve.query(&of_eve, &[&1]).await.expect("hers now").len(), 1);
    // A session that becomes another role asks anew.
    ann.batch_execute("GRANT eve TO bob").await.expect("given");
    assert_eq!(bob.query(&of_bob, &[&1]).await.expect("through eve").len(), 1);
    ann.batch_execute("ALTER ROLE bob NOINHERIT").await.expect("changed");
    assert_eq!(code(&bob.query(&of_bob, &[&1]).await.expect_err("not inherited")), "42501");
    bob.batch_execute("SET ROLE eve").await.expect("a member");
    assert_eq!(bob.query(&of_bob, &[&1]).await.expect("as eve").len(), 1);
    server.stop().await;
}
