//! Users who have schemas of their own names, under the default `search_path`.

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
