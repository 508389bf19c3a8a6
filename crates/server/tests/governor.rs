//! Many connections, few slots.

use cognate_server::config::Settings;
use tokio_postgres::Client;

use crate::support::TestServer;

async fn server(limit: &str) -> TestServer {
    let settings = Settings { active_limit: Some(limit.to_owned()), ..Settings::default() };
    let server = TestServer::with(settings).await;
    let client = server.connect().await;
    client
        .batch_execute(
            "CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL);
             INSERT INTO counter SELECT i, 0 FROM generate_series(0, 9) AS g(i)",
        )
        .await
        .expect("a table");
    server
}

async fn sum(client: &Client) -> i64 {
    client.query_one("SELECT sum(n) FROM counter", &[]).await.expect("a sum").get(0)
}

/// A transaction with a turn of the client after each statement, on rows that others want too.
async fn count_up(client: &Client, worker: usize) {
    let (one, two) = (worker % 10, (worker + 3) % 10);
    let (one, two) = (one.min(two), one.max(two));
    client.batch_execute("BEGIN").await.expect("BEGIN");
    for row in [one, two] {
        let update = format!("UPDATE counter SET n = n + 1 WHERE id = {row}");
        client.batch_execute(&update).await.expect("a row");
    }
    client.batch_execute("COMMIT").await.expect("COMMIT");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_connections_share_four_slots_and_all_finish() {
    let server = server("4").await;
    // More of them than there are slots open a transaction, take a row each, and fall silent.
    let mut idle = Vec::new();
    for row in 100..106 {
        let client = server.connect().await;
        let insert = format!("BEGIN; INSERT INTO counter VALUES ({row}, 0)");
        client.batch_execute(&insert).await.expect("a row of its own");
        idle.push(client);
    }
    let mut clients = Vec::new();
    for worker in 0..200 {
        let client = server.connect().await;
        clients.push(tokio::spawn(async move {
            count_up(&client, worker).await;
            client
        }));
    }
    for client in clients {
        drop(client.await.expect("it finishes"));
    }
    for client in &idle {
        client.batch_execute("COMMIT").await.expect("it comes back after all");
    }
    let client = server.connect().await;
    assert_eq!(sum(&client).await, 400);
    assert_eq!(server.metric("cognate_governor_limit").await, 4);
    assert!(server.metric("cognate_governor_given_back_total").await > 0, "the silent ones lost theirs");
    assert_eq!(server.metric("cognate_governor_waiting").await, 0);
    server.metric_becomes("cognate_governor_active", 0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_slot_ends_with_its_statement() {
    let server = server("1").await;
    let (holder, other) = (server.connect().await, server.connect().await);
    // It computes on and on, so that its slot is taken away and given to others: nobody waits behind it.
    let long = tokio::spawn(async move {
        holder.batch_execute("SELECT count(*) FROM generate_series(1, 1000000)").await.expect("it ends");
    });
    other.batch_execute("SET statement_timeout = '60s'").await.expect("SET needs no slot");
    assert_eq!(sum(&other).await, 0);
    long.await.expect("it ends");
    // A client that leaves while it waits leaves no slot behind.
    for _ in 0..20 {
        let (one, two) = (server.connect().await, server.connect().await);
        let begun = one.batch_execute("BEGIN; UPDATE counter SET n = n WHERE id = 1");
        begun.await.expect("a transaction");
        let waiting = tokio::spawn(async move {
            let _ = two.batch_execute("UPDATE counter SET n = n WHERE id = 1").await;
        });
        waiting.abort();
        drop(one);
    }
    assert_eq!(sum(&other).await, 0);
    server.metric_becomes("cognate_governor_active", 0).await;
    server.stop().await;
}
