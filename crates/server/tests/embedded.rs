//! Servers without a listening socket: several of them in a process share their threads, and
//! nothing else.

use cognate_server::embedded::Embedded;
use tokio_postgres::{Client, Config, NoTls};

async fn connect(server: &Embedded) -> Client {
    let pipe = server.connect().expect("a pipe");
    let mut config = Config::new();
    config.user("cognate").dbname("postgres");
    let (client, connection) = config.connect_raw(pipe, NoTls).await.expect("connected");
    tokio::spawn(connection);
    client
}

async fn number(client: &Client) -> i32 {
    client.query_one("SELECT n FROM t", &[]).await.expect("answered").get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_closes_leaves_the_others_as_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = Embedded::open(folder.path().join("one")).await.expect("opened");
    let two = Embedded::open(folder.path().join("two")).await.expect("opened");
    let (of_one, of_two) = (connect(&one).await, connect(&two).await);
    for (client, n) in [(&of_one, 1), (&of_two, 2)] {
        client.batch_execute("CREATE TABLE t (n int NOT NULL)").await.expect("made");
        client.execute("INSERT INTO t VALUES ($1)", &[&n]).await.expect("inserted");
        assert_eq!(number(client).await, n);
    }
    one.close().await.expect("closed");
    assert!(of_one.simple_query("SELECT n FROM t").await.is_err(), "its sessions have ended");
    assert_eq!((number(&of_two).await, number(&connect(&two).await).await), (2, 2));
    two.close().await.expect("closed");
    // Threads are there again for whoever comes then.
    let three = Embedded::open(folder.path().join("three")).await.expect("opened");
    connect(&three).await.batch_execute("CREATE TABLE t (n int)").await.expect("made");
    three.close().await.expect("closed");
}
