//! Cancelled statements, clients that vanish, servers that stop: nothing is left half-done.

use cognate_server::config::Settings;

use crate::client::{self, RawClient, message, string, tags};
use crate::support::TestServer;

async fn count(server: &TestServer) -> String {
    let mut client = RawClient::connect(server.address()).await;
    let answer = client.query("SELECT count(*) FROM t").await;
    answer[1].values()[0].clone().expect("a number")
}

/// A server with a table, and a client that holds the lock of its row 1.
async fn with_held_row(settings: Settings) -> (TestServer, RawClient) {
    let server = TestServer::with(settings).await;
    let mut holder = RawClient::connect(server.address()).await;
    holder.query("CREATE TABLE t (id int PRIMARY KEY, n int)").await;
    holder.query("INSERT INTO t VALUES (1, 0)").await;
    holder.query("BEGIN").await;
    assert_eq!(tags(&holder.query("UPDATE t SET n = n + 1").await), "C");
    (server, holder)
}

async fn waits(server: &TestServer, many: u64) {
    // A wait that has begun is counted at once.
    while server.metric("cognate_lock_waits_total").await < many {
        tokio::task::yield_now().await;
    }
}

async fn cancel(server: &TestServer, process_id: i32, secret: &[u8]) {
    let mut request = RawClient::silent(server.address()).await;
    let code = 80_877_102_u32.to_be_bytes();
    request.send(&client::packet(&[&code[..], &process_id.to_be_bytes(), secret].concat())).await;
    assert_eq!(request.until_end().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_request_with_the_right_secret_ends_a_wait() {
    let (server, _holder) = with_held_row(Settings::default()).await;
    let mut waiter = RawClient::connect(server.address()).await;
    waiter.send(&message(b'Q', &string("UPDATE t SET n = n + 1"))).await;
    waits(&server, 1).await;
    let mut wrong = waiter.secret.clone();
    wrong[0] ^= 1;
    cancel(&server, waiter.process_id, &wrong).await;
    cancel(&server, waiter.process_id + 1_000, &waiter.secret).await;
    cancel(&server, waiter.process_id, &waiter.secret).await;
    let answer = waiter.until_ready().await;
    assert_eq!(tags(&answer), "EZ");
    assert_eq!(answer[0].sqlstate(), "57014");
    // One that comes when nothing runs hits nothing.
    cancel(&server, waiter.process_id, &waiter.secret).await;
    assert_eq!(tags(&waiter.query("SELECT 1").await), "TDC");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_request_ends_a_copy_that_waits_for_data() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE c (id int)").await;
    client.send(&message(b'Q', &string("COPY c FROM STDIN"))).await;
    assert_eq!(client.message().await.tag, 'G');
    client.send(&message(b'd', b"1\n")).await;
    cancel(&server, client.process_id, &client.secret).await;
    client.send(&message(b'c', b"")).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), answer[0].sqlstate().as_str()), ("EZ", "57014"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_in_a_block_or_in_a_wait_frees_its_locks() {
    let (server, holder) = with_held_row(Settings::default()).await;
    let mut waiter = RawClient::connect(server.address()).await;
    waiter.query("BEGIN").await;
    waiter.query("INSERT INTO t VALUES (2, 0)").await;
    waiter.send(&message(b'Q', &string("UPDATE t SET n = n + 1 WHERE id = 1"))).await;
    waits(&server, 1).await;
    drop(waiter);
    // Its lock of row 2 goes although it was waiting for somebody who is still there.
    let mut third = RawClient::connect(server.address()).await;
    assert_eq!(tags(&third.query("INSERT INTO t VALUES (2, 7)").await), "C");
    drop(holder);
    assert_eq!(tags(&third.query("UPDATE t SET n = n + 1 WHERE id = 1").await), "C");
    let answer = third.query("SELECT n FROM t ORDER BY id").await;
    assert_eq!(answer[1].values()[0].as_deref(), Some("1"), "the holder's update was rolled back");
    drop(third);
    server.metric_becomes("cognate_active_transactions", 0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_before_terminate_is_done() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE t (id int PRIMARY KEY, n int)").await;
    for id in 0..20 {
        let mut client = RawClient::connect(server.address()).await;
        let insert = message(b'Q', &string(&format!("INSERT INTO t VALUES ({id}, 0)")));
        client.send(&[insert, message(b'X', b"")].concat()).await;
    }
    server.metric_becomes("cognate_connections", 1).await;
    assert_eq!(count(&server).await, "20");
    server.stop().await;
}

/// A socket that is closed with answers in it is reset: nothing can be written to it any more.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_before_terminate_is_done_though_no_answer_was_read() {
    let (server, mut holder) = with_held_row(Settings::default()).await;
    let mut client = RawClient::connect(server.address()).await;
    let update = message(b'Q', &string("UPDATE t SET n = n + 10 WHERE id = 1"));
    client.send(&[message(b'Q', &string("SELECT 1")), update].concat()).await;
    waits(&server, 1).await;
    client.socket.peek(&mut [0]).await.expect("an answer");
    let insert = message(b'Q', &string("INSERT INTO t VALUES (2, 7)"));
    client.send(&[insert, message(b'X', b"")].concat()).await;
    drop(client);
    holder.query("ROLLBACK").await;
    server.metric_becomes("cognate_connections", 1).await;
    let answer = holder.query("SELECT n FROM t ORDER BY id").await;
    assert_eq!(tags(&answer), "TDDC");
    let rows = [answer[1].values(), answer[2].values()].concat();
    assert_eq!(rows, [Some("10".to_owned()), Some("7".to_owned())]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_earlier_units_do_not_wait_for_a_later_one() {
    let (server, mut holder) = with_held_row(Settings::default()).await;
    let mut client = RawClient::connect(server.address()).await;
    let both = [message(b'Q', &string("SELECT 1")), message(b'Q', &string("UPDATE t SET n = n + 1"))];
    client.send(&both.concat()).await;
    assert_eq!(tags(&client.until_ready().await), "TDCZ");
    holder.query("ROLLBACK").await;
    assert_eq!(tags(&client.until_ready().await), "CZ");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_tells_the_idle_at_once_and_lets_the_busy_finish() {
    let (server, mut holder) =
        with_held_row(Settings { shutdown_grace_s: Some(60), ..Settings::default() }).await;
    let mut idle = RawClient::connect(server.address()).await;
    let mut waiter = RawClient::connect(server.address()).await;
    waiter.send(&message(b'Q', &string("UPDATE t SET n = n + 1 WHERE id = 1"))).await;
    waits(&server, 1).await;
    let stopping = tokio::spawn(server.stop());
    assert_eq!(idle.until_end().await[0].sqlstate(), "57P01");
    // The holder was idle in its block: its end lets the waiter go on.
    assert_eq!(holder.until_end().await[0].sqlstate(), "57P01");
    let answer = waiter.until_end().await;
    assert_eq!(tags(&answer), "CZE");
    assert_eq!(answer[2].sqlstate(), "57P01");
    let folder = stopping.await.expect("stopped");
    let running = TestServer::open(Settings::default(), folder.path().join("data")).await;
    let server = TestServer { running, folder };
    assert_eq!(count(&server).await, "1");
    server.stop().await;
}

/// Whatever it has sent meanwhile is not answered, and does not cost it the last word either.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_client_hears_why_its_session_is_ended() {
    let server = TestServer::start().await;
    let mut other = RawClient::connect(server.address()).await;
    for _ in 0..25 {
        let mut busy = RawClient::connect(server.address()).await;
        let terminate = format!("SELECT pg_terminate_backend({})", busy.process_id);
        let working = tokio::spawn(async move {
            loop {
                busy.send(&message(b'Q', &string("SELECT 1"))).await;
                loop {
                    match busy.try_message().await {
                        Some(message) if message.tag == 'E' => return Some(message.sqlstate()),
                        Some(message) if message.tag == 'Z' => break,
                        Some(_) => {}
                        None => return None,
                    }
                }
            }
        });
        assert_eq!(tags(&other.query(&terminate).await), "TDC");
        assert_eq!(working.await.expect("no panic").as_deref(), Some("57P01"));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_without_patience_cancels() {
    let server = TestServer::with(Settings { shutdown_grace_s: Some(0), ..Settings::default() }).await;
    let mut busy = RawClient::connect(server.address()).await;
    let text = "SELECT count(*) FROM generate_series(1, 100000000000)";
    busy.send(&message(b'Q', &string(text))).await;
    server.metric_becomes("cognate_active_transactions", 1).await;
    let stopping = tokio::spawn(server.stop());
    let answer = busy.until_end().await;
    assert!(answer.iter().all(|m| m.tag != 'E' || m.sqlstate() == "57P01"), "{answer:?}");
    stopping.await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_metrics_tell_how_it_is() {
    let server = TestServer::start().await;
    let (status, body) = server.http("/health").await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("\"ready\":true") && body.contains("\"durable\":"), "{body}");
    let mut client = RawClient::connect(server.address()).await;
    client.query("SELECT 1").await;
    client.query("SELECT 1/0").await;
    assert_eq!(server.metric("cognate_connections").await, 1);
    assert_eq!(server.metric("cognate_errors_total").await, 1);
    assert_eq!(server.metric("cognate_statement_seconds_count").await, 2);
    assert_eq!(server.http("/nonsense").await.0, 404);
    server.stop().await;
}

/// Who has asked half a question over HTTP is not waited for, and does not keep the folder.
#[tokio::test(flavor = "multi_thread")]
async fn who_lingers_at_the_http_port_keeps_nothing_open() {
    let server = TestServer::start().await;
    let address = server.running.http().expect("HTTP is on");
    let mut lingering = tokio::net::TcpStream::connect(address).await.expect("connected");
    tokio::io::AsyncWriteExt::write_all(&mut lingering, b"GET /hea").await.expect("sent");
    // Clients are accepted in their order.
    assert_eq!(server.http("/health").await.0, 200);
    let folder = server.stop().await;
    let running = TestServer::open(Settings::default(), folder.path().join("data")).await;
    running.stop().await.expect("an orderly stop");
    drop(lingering);
}
