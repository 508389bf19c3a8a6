//! Databases as those who connect meet them.

use cognate_server::config::Settings;
use tokio_postgres::{Client, Config, NoTls};

use crate::support::TestServer;

/// A connection to a database, or SQLSTATE, message and hint of the refusal.
async fn connect(
    server: &TestServer,
    user: &str,
    database: &str,
) -> Result<Client, (String, String, String)> {
    let mut config = Config::new();
    config.host("127.0.0.1").port(server.address().port()).user(user).dbname(database);
    match config.connect(NoTls).await {
        Ok((client, connection)) => {
            tokio::spawn(connection);
            Ok(client)
        }
        Err(error) => {
            let error = error.as_db_error().expect("an answer of the server");
            assert_eq!(error.severity(), "FATAL");
            let hint = error.hint().unwrap_or_default().to_owned();
            Err((error.code().code().to_owned(), error.message().to_owned(), hint))
        }
    }
}

async fn refusal(server: &TestServer, user: &str, database: &str) -> (String, String) {
    let (code, message, _) = connect(server, user, database).await.expect_err("it is refused");
    (code, message)
}

fn owned(code: &str, message: &str) -> (String, String) {
    (code.to_owned(), message.to_owned())
}

/// SQLSTATE and DETAIL of what a statement fails with.
async fn failure(client: &Client, statement: &str) -> (String, String) {
    let error = client.batch_execute(statement).await.expect_err(statement);
    let error = error.as_db_error().expect("an answer of the server");
    (error.code().code().to_owned(), error.detail().unwrap_or_default().to_owned())
}

async fn one(client: &Client, query: &str) -> String {
    client.query_one(query, &[]).await.expect(query).get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_databases_are_refused_once_there_are_several() {
    let server = TestServer::start().await;
    let any = connect(&server, "ann", "any").await.expect("an alias");
    any.batch_execute("CREATE TABLE t (a int)").await.expect("made");
    any.batch_execute("CREATE DATABASE shop").await.expect("made");
    let unknown = owned("3D000", "database \"any\" does not exist");
    assert_eq!(refusal(&server, "ann", "any").await, unknown);
    let (.., hint) = connect(&server, "ann", "any").await.expect_err("refused");
    assert!(hint.contains("\"postgres\""), "{hint}");
    let closed = owned("55000", "database \"template0\" is not currently accepting connections");
    assert_eq!(refusal(&server, "ann", "template0").await, closed);
    let shop = connect(&server, "ann", "shop").await.expect("it is there");
    assert_eq!(failure(&shop, "TABLE t").await.0, "42P01");
    assert_eq!(one(&shop, "SELECT current_database()::text").await, "shop");
    let initial = connect(&server, "ann", "postgres").await.expect("it is there");
    initial.batch_execute("TABLE t").await.expect("its own table");
    // Each session is shown with its database.
    let sessions = "SELECT string_agg(DISTINCT datname, ' ' ORDER BY datname)::text FROM pg_stat_activity";
    assert_eq!(one(&initial, sessions).await, "postgres shop");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_in_use_is_dropped_only_by_force() {
    let server = TestServer::start().await;
    let first = connect(&server, "ann", "postgres").await.expect("connected");
    first.batch_execute("CREATE DATABASE shop").await.expect("made");
    let shop = connect(&server, "ann", "shop").await.expect("connected");
    shop.batch_execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)").await.expect("made");
    let in_use = owned("55006", "There is 1 other session using the database.");
    assert_eq!(failure(&first, "DROP DATABASE shop").await, in_use);
    assert_eq!(failure(&first, "ALTER DATABASE shop RENAME TO stall").await, in_use);
    first.batch_execute("DROP DATABASE shop WITH (FORCE)").await.expect("dropped");
    assert!(shop.batch_execute("TABLE t").await.is_err());
    // Who has just left is waited for.
    first.batch_execute("CREATE DATABASE shop").await.expect("made again");
    let shop = connect(&server, "ann", "shop").await.expect("connected");
    assert_eq!(failure(&shop, "TABLE t").await.0, "42P01");
    drop(shop);
    first.batch_execute("ALTER DATABASE shop RENAME TO stall").await.expect("nobody is there");
    first.batch_execute("DROP DATABASE stall").await.expect("nobody is there");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_connect_is_said_for_each_database() {
    let server = TestServer::with(Settings::default()).await;
    let ann = server.connect().await;
    ann.batch_execute("CREATE ROLE bob LOGIN; CREATE ROLE eve LOGIN").await.expect("made");
    ann.batch_execute("CREATE DATABASE shop CONNECTION LIMIT 1").await.expect("made");
    ann.batch_execute("REVOKE CONNECT ON DATABASE shop FROM PUBLIC; GRANT CONNECT ON DATABASE shop TO bob")
        .await
        .expect("changed");
    let denied = owned("42501", "permission denied for database \"shop\"");
    assert_eq!(refusal(&server, "eve", "shop").await, denied);
    connect(&server, "eve", "postgres").await.expect("another database");
    let _bob = connect(&server, "bob", "shop").await.expect("he may");
    let full = owned("53300", "too many connections for database \"shop\"");
    assert_eq!(refusal(&server, "bob", "shop").await, full);
    ann.batch_execute("ALTER DATABASE shop ALLOW_CONNECTIONS false").await.expect("changed");
    let closed = owned("55000", "database \"shop\" is not currently accepting connections");
    assert_eq!(refusal(&server, "bob", "shop").await, closed);
    server.stop().await;
}
