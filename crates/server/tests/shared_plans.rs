//! Plans are shared by all sessions: not so what they see by their users and settings.

use tokio_postgres::NoTls;

use crate::support::TestServer;

#[tokio::test(flavor = "multi_thread")]
async fn the_same_words_of_two_users_are_about_their_own_tables() {
    let server = TestServer::start().await;
    let owner = server.connect().await;
    for user in ["eve", "bob"] {
        let text = format!(
            "CREATE SCHEMA {user}; CREATE TABLE {user}.t (x text); INSERT INTO {user}.t VALUES ('{user}''s')"
        );
        owner.batch_execute(&text).await.expect("made");
    }
    owner
        .batch_execute("CREATE TABLE t (x text); INSERT INTO t VALUES ('everybody''s')")
        .await
        .expect("made");
    for _ in 0..2 {
        for user in ["eve", "bob", "ann"] {
            let address = server.address();
            let place = format!("host={} port={} user={user} dbname=any", address.ip(), address.port());
            let (client, connection) = tokio_postgres::connect(&place, NoTls).await.expect("connected");
            tokio::spawn(connection);
            let row = client.query_one("SELECT x FROM t", &[]).await.expect("a row");
            let expected = if user == "ann" { "everybody's".to_owned() } else { format!("{user}'s") };
            assert_eq!(row.get::<_, String>(0), expected);
        }
    }
    // A schema that comes later is found by who prepares the words anew.
    owner
        .batch_execute("CREATE SCHEMA ann; CREATE TABLE ann.t (x text); INSERT INTO ann.t VALUES ('hers')")
        .await
        .expect("made");
    let row = owner.query_one("SELECT x FROM t", &[]).await.expect("a row");
    assert_eq!(row.get::<_, String>(0), "hers");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_two_users_have_prepared_find_what_each_of_them_finds_later() {
    let server = TestServer::start().await;
    let owner = server.connect().await;
    owner.batch_execute("CREATE TABLE t (x text); INSERT INTO t VALUES ('public')").await.expect("made");
    let mut sessions = Vec::new();
    for user in ["eve", "bob", "joe"] {
        let address = server.address();
        let place = format!("host={} port={} user={user} dbname=any", address.ip(), address.port());
        let (client, connection) = tokio_postgres::connect(&place, NoTls).await.expect("connected");
        tokio::spawn(connection);
        let statement = client.prepare("SELECT x FROM t").await.expect("prepared");
        sessions.push((user, client, statement));
    }
    async fn found(sessions: &[(&str, tokio_postgres::Client, tokio_postgres::Statement)]) -> Vec<String> {
        let mut found = Vec::new();
        for (_, client, statement) in sessions {
            found.push(client.query_one(statement, &[]).await.expect("a row").get(0));
        }
        found
    }
    assert_eq!(found(&sessions).await, ["public", "public", "public"]);
    for user in ["eve", "bob", "other"] {
        let text = format!("CREATE SCHEMA {user}; CREATE TABLE {user}.t AS SELECT '{user}'::text AS x");
        owner.batch_execute(&text).await.expect("made");
    }
    for _ in 0..2 {
        assert_eq!(found(&sessions).await, ["eve", "bob", "public"]);
    }
    sessions.reverse();
    owner.batch_execute("CREATE TABLE unrelated ()").await.expect("made");
    assert_eq!(found(&sessions).await, ["public", "bob", "eve"]);
    // So it is with a search_path that is set later, and set back.
    sessions[0].1.batch_execute("SET search_path = other").await.expect("set");
    assert_eq!(found(&sessions).await, ["other", "bob", "eve"]);
    sessions[0].1.batch_execute("RESET search_path").await.expect("set");
    for _ in 0..2 {
        assert_eq!(found(&sessions).await, ["public", "bob", "eve"]);
    }
    owner.batch_execute("DROP SCHEMA eve CASCADE").await.expect("dropped");
    assert_eq!(found(&sessions).await, ["public", "bob", "public"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn constants_are_written_as_each_session_has_it() {
    let server = TestServer::start().await;
    let (first, second) = (server.connect().await, server.connect().await);
    let other = "SET extra_float_digits = 0; SET intervalstyle = 'sql_standard'; SET bytea_output = 'escape'; \
        SET timezone = 'America/New_York'";
    second.batch_execute(other).await.expect("set");
    let texts = "SELECT (0.1::float8 / 3)::text, '1 day 2 hours'::interval::text, '\\x41ff'::bytea::text,
        'x' || 0.1::float8 / 3, array[interval '1 day']::text, '2024-01-01 00:00+00'::timestamptz::text";
    for _ in 0..2 {
        for (client, expected) in [
            (
                &first,
                [
                    "0.03333333333333333",
                    "1 day 02:00:00",
                    "\\x41ff",
                    "x0.03333333333333333",
                    "{\"1 day\"}",
                    "2024-01-01 00:00:00+00",
                ],
            ),
            (
                &second,
                [
                    "0.0333333333333333",
                    "1 2:00:00",
                    "A\\377",
                    "x0.0333333333333333",
                    "{\"1 0:00:00\"}",
                    "2023-12-31 19:00:00-05",
                ],
            ),
        ] {
            let row = client.query_one(texts, &[]).await.expect("a row");
            let found: Vec<String> = (0..expected.len()).map(|place| row.get(place)).collect();
            assert_eq!(found, expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn intervals_are_read_as_each_session_has_it() {
    let server = TestServer::start().await;
    let (first, second) = (server.connect().await, server.connect().await);
    second.batch_execute("SET intervalstyle = 'sql_standard'").await.expect("set");
    let hours = "SELECT extract(hour FROM interval '-1 2:00:00')::int,
        extract(hour FROM '-1 2:00:00'::text::interval)::int,
        extract(hour FROM ('{-1 2:00:00}'::interval[])[1])::int";
    for _ in 0..2 {
        for (client, expected) in [(&first, 2), (&second, -2)] {
            let row = client.query_one(hours, &[]).await.expect("a row");
            let found: Vec<i32> = (0..3).map(|place| row.get(place)).collect();
            assert_eq!(found, [expected; 3]);
        }
    }
}
