//! Bounds on connections, time and memory.

use tokio::io::AsyncReadExt as _;

use crate::client::{self, RawClient, message};
use crate::support::TestServer;
use cognate_server::config::Settings;

fn settings() -> Settings {
    Settings { max_connections: Some(3), ..Settings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_session_too_many_is_refused_until_another_leaves() {
    let server = TestServer::with(settings()).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(RawClient::connect(server.address()).await);
    }
    let mut refused = RawClient::started(server.address()).await;
    let answer = refused.until_end().await;
    assert_eq!(client::tags(&answer), "E");
    assert_eq!(answer[0].sqlstate(), "53300");
    assert_eq!(answer[0].field('M').as_deref(), Some("sorry, too many clients already"));
    clients.pop();
    server.metric_becomes("cognate_connections", 2).await;
    RawClient::connect(server.address()).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_who_say_nothing_are_limited_and_do_not_keep_users_out() {
    let server = TestServer::with(settings()).await;
    let mut silent = Vec::new();
    for _ in 0..60 {
        silent.push(RawClient::silent(server.address()).await);
    }
    server.metric_becomes("cognate_sockets", 60).await;
    let _user = RawClient::connect(server.address()).await;
    for _ in 0..42 {
        silent.push(RawClient::silent(server.address()).await);
    }
    server.metric_becomes("cognate_sockets", 103).await;
    let mut refused = RawClient::silent(server.address()).await;
    assert_eq!(refused.message().await.sqlstate(), "53300");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_authenticate_in_time_is_dropped() {
    let server =
        TestServer::with(Settings { authentication_timeout_s: Some(1), ..Settings::default() }).await;
    let mut silent = RawClient::silent(server.address()).await;
    assert_eq!(silent.socket.read(&mut [0; 10]).await.expect("an end"), 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_share_a_budget() {
    let settings = Settings {
        memory: Some("32MB".to_owned()),
        max_message: Some("4MB".to_owned()),
        ..Settings::default()
    };
    let server = TestServer::with(settings).await;
    // 16 MB for all: the unfinished messages of four clients fill it, the fifth is told.
    let begin = {
        let mut begin = message(b'Q', &[b' '; 4_000_000]);
        begin.truncate(3_990_000);
        begin
    };
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = RawClient::connect(server.address()).await;
        client.send(&begin).await;
        clients.push(client);
    }
    server.metric_becomes("cognate_message_bytes", 16 << 20).await;
    let mut fifth = RawClient::connect(server.address()).await;
    let sent = tokio::io::AsyncWriteExt::write_all(&mut fifth.socket, &begin);
    let _ = sent.await;
    let answer = fifth.until_end().await;
    assert_eq!(answer[0].sqlstate(), "53200");
    drop(clients);
    server.metric_becomes("cognate_message_bytes", 0).await;
    server.stop().await;
}
