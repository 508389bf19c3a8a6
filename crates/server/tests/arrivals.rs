//! Bytes that arrive while a statement waits, for a lock or for its own commit: they are answered
//! without any further byte. Every order of what can happen meanwhile is generated beside the loop
//! itself (`src/pg/conversation/tests.rs`); here are real sockets, real locks and real commits.

use std::future::Future;
use std::time::Duration;

use cognate_server::config::Settings;

use crate::client::{Message, RawClient, bind, execute, message, parse, string, sync, tags};
use crate::support::TestServer;

/// Fails instead of hanging. Far longer than any of this takes.
async fn answered<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("an answer without a further byte")
}

async fn with_rows() -> (TestServer, RawClient) {
    let settings = Settings { worker_threads: Some(1), ..Settings::default() };
    let server = TestServer::with(settings).await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE x (id int PRIMARY KEY, n int)").await;
    client.query("INSERT INTO x VALUES (1, 0), (2, 0)").await;
    (server, client)
}

fn statement(text: &str) -> Vec<u8> {
    [parse("", text), bind("", "", &[]), execute("", 0)].concat()
}

async fn number(client: &mut RawClient, text: &str) -> String {
    let answer = answered(client.query(text)).await;
    answer[1].values()[0].clone().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_during_a_lock_wait_is_answered_once_the_lock_is_granted() {
    let (server, mut holder) = with_rows().await;
    let mut waiter = RawClient::connect(server.address()).await;
    let update = statement("UPDATE x SET n = n + 1 WHERE id = 1");
    let select = [statement("SELECT n FROM x WHERE id = 1"), sync()].concat();
    for round in 1..=20 {
        holder.query("BEGIN; UPDATE x SET n = n + 1 WHERE id = 1").await;
        let waits = server.metric("cognate_lock_waits_total").await;
        waiter.send(&update).await;
        while server.metric("cognate_lock_waits_total").await == waits {
            tokio::task::yield_now().await;
        }
        // Whole messages in one round, and cut in the middle of a message in the other.
        let cut = if round % 2 == 0 { select.len() } else { select.len() - 7 };
        waiter.send(&select[..cut]).await;
        // One thread serves both, and hears of the bytes above before it hears of these.
        holder.query("SELECT 1").await;
        holder.query("COMMIT").await;
        waiter.send(&select[cut..]).await;
        let answer = answered(waiter.until_ready()).await;
        assert_eq!(tags(&answer), "12C12DCZ", "round {round}");
        assert_eq!(answer[5].values()[0], Some((2 * round).to_string()));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whom_a_session_waits_for_is_told() {
    let (server, mut holder) = with_rows().await;
    let mut waiter = RawClient::connect(server.address()).await;
    let holding = number(&mut holder, "SELECT pg_backend_pid()").await;
    let waiting = number(&mut waiter, "SELECT pg_backend_pid()").await;
    let asked = format!("SELECT pg_blocking_pids({waiting})");
    assert_eq!(number(&mut holder, &asked).await, "{}");
    holder.query("BEGIN; UPDATE x SET n = n + 1 WHERE id = 1").await;
    let update = [statement("UPDATE x SET n = n + 1 WHERE id = 1"), sync()].concat();
    waiter.send(&update).await;
    let told = answered(async {
        loop {
            let told = number(&mut holder, &asked).await;
            if told != "{}" {
                return told;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(told.await, format!("{{{holding}}}"));
    let asked = format!("SELECT pg_blocking_pids({holding})");
    assert_eq!(number(&mut holder, &asked).await, "{}");
    holder.query("COMMIT").await;
    assert_eq!(tags(&answered(waiter.until_ready()).await), "12CZ");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_in_a_packet_of_its_own_ends_what_waits_for_the_log() {
    let (server, mut client) = with_rows().await;
    for id in 10..110 {
        // The Query commits at once and waits for the log; Execute and Sync arrive meanwhile, in
        // three packets.
        client.send(&message(b'Q', &string(&format!("INSERT INTO x VALUES ({id}, 0)")))).await;
        client.send(&statement(&format!("INSERT INTO x VALUES (1{id}, 0)"))).await;
        tokio::task::yield_now().await;
        client.send(&sync()).await;
        assert_eq!(tags(&answered(client.until_ready()).await), "CZ");
        assert_eq!(tags(&answered(client.until_ready()).await), "12CZ");
    }
    assert_eq!(number(&mut client, "SELECT count(*) FROM x").await, "202");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_pipelined_inserts_are_all_answered() {
    let (server, mut client) = with_rows().await;
    let unit = |id: &str| [bind("", "i", &[id]), execute("", 0), sync()].concat();
    client.send(&[parse("i", "INSERT INTO x VALUES ($1::int, 0)"), sync()].concat()).await;
    answered(client.until_ready()).await;
    // One packet for each, as a driver's socket writes them.
    for id in 100..400 {
        client.send(&unit(&id.to_string())).await;
    }
    for id in 100..400 {
        assert_eq!(tags(&answered(client.until_ready()).await), "2CZ", "id {id}");
    }
    // And all in one piece, larger than what is read ahead.
    let many: Vec<u8> = (1_000..4_000).flat_map(|id| unit(&id.to_string())).collect();
    assert!(many.len() > 64 * 1024);
    client.send(&many).await;
    for id in 1_000..4_000 {
        assert_eq!(tags(&answered(client.until_ready()).await), "2CZ", "id {id}");
    }
    assert_eq!(number(&mut client, "SELECT count(*) FROM x").await, "3302");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_data_that_arrives_during_a_wait_is_taken() {
    let (server, mut client) = with_rows().await;
    for round in 0..20 {
        // Everything at once: the commit before it is waited for while the data arrive.
        client.send(&message(b'Q', &string(&format!("INSERT INTO x VALUES ({}, 0)", 10_000 + round)))).await;
        client.send(&message(b'Q', &string("COPY x FROM STDIN"))).await;
        for row in 0..50 {
            client.send(&message(b'd', format!("{}\t0\n", 100 + 50 * round + row).as_bytes())).await;
        }
        client.send(&message(b'c', b"")).await;
        assert_eq!(tags(&answered(client.until_ready()).await), "CZ");
        assert_eq!(tags(&answered(client.until_ready()).await), "GCZ");
    }
    assert_eq!(number(&mut client, "SELECT count(*) FROM x").await, "1022");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_ahead_before_terminate_is_done() {
    let (server, mut client) = with_rows().await;
    for id in 100..150 {
        let mut leaver = RawClient::connect(server.address()).await;
        leaver.send(&message(b'Q', &string(&format!("INSERT INTO x VALUES ({id}, 0)")))).await;
        tokio::task::yield_now().await;
        leaver.send(&message(b'Q', &string(&format!("INSERT INTO x VALUES (1{id}, 0)")))).await;
        leaver.send(&message(b'X', b"")).await;
    }
    server.metric_becomes("cognate_connections", 1).await;
    assert_eq!(number(&mut client, "SELECT count(*) FROM x").await, "102");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokio_postgres_pipelines_hundreds_of_inserts() {
    let (server, mut client) = with_rows().await;
    let driver = server.connect().await;
    let insert = driver.prepare("INSERT INTO x VALUES ($1, 0)").await.expect("prepared");
    let ids: Vec<i32> = (1_000..1_500).collect();
    // Futures of one client that are polled together are sent as one pipeline.
    let mut inserts = tokio::task::JoinSet::new();
    let driver = std::sync::Arc::new(driver);
    for id in ids {
        let (driver, insert) = (driver.clone(), insert.clone());
        inserts.spawn(async move { driver.execute(&insert, &[&id]).await });
    }
    while let Some(inserted) = answered(inserts.join_next()).await {
        assert_eq!(inserted.expect("joined").expect("inserted"), 1);
    }
    assert_eq!(number(&mut client, "SELECT count(*) FROM x").await, "502");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_behind_more_than_is_read_ahead_frees_its_locks() {
    let (server, mut holder) = with_rows().await;
    holder.query("BEGIN; UPDATE x SET n = 1 WHERE id = 1").await;
    let mut leaver = RawClient::connect(server.address()).await;
    leaver.query("BEGIN; INSERT INTO x VALUES (3, 0)").await;
    leaver.send(&statement("UPDATE x SET n = 2 WHERE id = 1")).await;
    let more = [statement("SELECT 1"), sync()].concat().repeat(2_200);
    // More than is read ahead, and no more than the system takes for a connection: what is on its
    // way hides the close.
    assert!((80_000..100_000).contains(&more.len()));
    leaver.send(&more).await;
    drop(leaver);
    // Its lock of the new row is free although the one that it waited for is not.
    let mut other = RawClient::connect(server.address()).await;
    let answer: Vec<Message> = answered(other.query("INSERT INTO x VALUES (3, 7)")).await;
    assert_eq!(tags(&answer), "C");
    server.stop().await;
}
