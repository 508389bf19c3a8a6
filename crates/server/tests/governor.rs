//! Many connections, few slots.

use cognate_server::config::Settings;
use tokio_postgres::Client;

use crate::client::{RawClient, message, string};
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
    client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await.expect("BEGIN");
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

const UPDATE: &str = "UPDATE counter SET n = n + 1 WHERE id = 1";

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_slot_ends_by_timeout_cancel_and_departure() {
    let server = server("1").await;
    // Whoever holds this seat executes: nobody takes its slot away.
    let seat = server.running.database().engine().governor().seat();
    assert!(seat.try_go());
    let client = server.connect().await;
    client
        .batch_execute("SHOW cognate.active_limit; SET statement_timeout = 200")
        .await
        .expect("no slot needed");
    let state = |error: tokio_postgres::Error| error.code().map(|code| code.code().to_owned());
    let timed_out = client.batch_execute(UPDATE).await.expect_err("there is no slot");
    assert_eq!(state(timed_out).as_deref(), Some("57014"));
    client.batch_execute("RESET statement_timeout").await.expect("no slot needed");
    let token = client.cancel_token();
    let waiting = tokio::spawn(async move { client.batch_execute(UPDATE).await.expect_err("cancelled") });
    server.metric_becomes("cognate_governor_waiting", 1).await;
    token.cancel_query(tokio_postgres::NoTls).await.expect("a cancel request");
    assert_eq!(state(waiting.await.expect("an answer")).as_deref(), Some("57014"));
    let mut leaver = RawClient::connect(server.address()).await;
    leaver.send(&message(b'Q', &string(UPDATE))).await;
    server.metric_becomes("cognate_governor_waiting", 1).await;
    drop(leaver);
    server.metric_becomes("cognate_governor_waiting", 0).await;
    // One that waits on is served once the slot is free.
    let patient = server.connect().await;
    let waiting = tokio::spawn(async move { patient.batch_execute(UPDATE).await });
    server.metric_becomes("cognate_governor_waiting", 1).await;
    drop(seat);
    waiting.await.expect("an answer").expect("a slot");
    assert_eq!(sum(&server.connect().await).await, 1, "those that gave up changed nothing");
    server.metric_becomes("cognate_governor_active", 0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_behind_a_statement_that_computes_for_long() {
    let server = server("1").await;
    let (busy, other) = (server.connect().await, server.connect().await);
    let token = busy.cancel_token();
    let endless = tokio::spawn(async move {
        busy.batch_execute("SELECT count(*) FROM generate_series(1, 1000000000)")
            .await
            .expect_err("cancelled")
    });
    server.metric_becomes("cognate_governor_active", 1).await;
    assert_eq!(sum(&other).await, 0);
    token.cancel_query(tokio_postgres::NoTls).await.expect("a cancel request");
    endless.await.expect("an answer");
    server.stop().await;
}
