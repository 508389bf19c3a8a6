//! Bounds on connections, time and memory.

use tokio::io::AsyncReadExt as _;

use crate::client::{self, RawClient, bind, message, parse, sync};
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

/// Whoever has been told why his session ends need not have left yet.
#[tokio::test(flavor = "multi_thread")]
async fn the_place_of_a_session_that_was_ended_is_free_at_once() {
    let server = TestServer::with(settings()).await;
    let mut client = RawClient::connect(server.address()).await;
    let _others = [RawClient::connect(server.address()).await, RawClient::connect(server.address()).await];
    client.query("SET idle_session_timeout = '1ms'").await;
    assert_eq!(client.message().await.sqlstate(), "57P05");
    let mut next = RawClient::connect(server.address()).await;
    assert_eq!(client::tags(&next.query("SELECT 1").await), "TDC");
    drop(client);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_who_say_nothing_are_limited_and_do_not_keep_users_out() {
    let server = TestServer::with(settings()).await;
    let mut user = RawClient::connect(server.address()).await;
    let mut silent = Vec::new();
    for _ in 0..1_100 {
        silent.push(RawClient::silent(server.address()).await);
    }
    // Whoever comes next gets in, and those who have been silent for longest are gone.
    let mut other = RawClient::connect(server.address()).await;
    assert_eq!(client::tags(&other.query("SELECT 1").await), "TDC");
    assert_eq!(client::tags(&user.query("SELECT 1").await), "TDC");
    assert_eq!(silent[0].until_end().await, []);
    drop(other);
    server.metric_becomes("cognate_sockets", 31 + 1).await;
    assert_eq!(server.metric("cognate_connections_refused_total").await, 1_101 - 32);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_statement_goes_on_while_its_rows_are_sent() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("SET statement_timeout = '100ms'").await;
    let rows = "SELECT repeat('x', 1000) FROM generate_series(1, 400000)";
    let answer = client.query(rows).await;
    let end = answer.last().expect("an answer");
    assert_eq!(end.tag, 'E', "{} messages", answer.len());
    assert_eq!(end.sqlstate(), "57014");
    // Each statement has time of its own: more than one takes, also where much else goes on, and
    // less than all of them.
    client.query("SET statement_timeout = '400ms'").await;
    let sleeps = ["SELECT pg_sleep(0.15)"; 3].join("; ");
    assert_eq!(client::tags(&client.query(&sleeps).await), "TDCTDCTDC");
    // What is given to EXECUTE is computed in it.
    client.query("PREPARE p(int) AS SELECT $1").await;
    let answer = client.query("EXECUTE p(CASE WHEN pg_sleep(1) IS NULL THEN 1 END)").await;
    assert_eq!(answer.last().expect("an answer").sqlstate(), "57014");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_behind_a_loop_of_short_statements() {
    // One thread serves both.
    let settings = Settings { worker_threads: Some(1), ..Settings::default() };
    let server = TestServer::with(settings).await;
    let (busy, other) = (server.connect().await, server.connect().await);
    let token = busy.cancel_token();
    let endless = "DO $$ BEGIN LOOP PERFORM 1; END LOOP; END $$";
    let looping = tokio::spawn(async move { busy.batch_execute(endless).await.expect_err("cancelled") });
    // Who asks is answered while the loop runs, and more than once.
    let running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO %'";
    let mut seen = 0;
    while seen < 3 {
        seen += other.query_one(running, &[]).await.expect("a count").get::<_, i64>(0);
    }
    token.cancel_query(tokio_postgres::NoTls).await.expect("a cancel request");
    let error = looping.await.expect("an answer");
    assert_eq!(error.code(), Some(&tokio_postgres::error::SqlState::QUERY_CANCELED));
    server.stop().await;
}

/// What the client has sent behind it are statements of their own.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_one_statement_of_those_that_were_sent() {
    let server = TestServer::start().await;
    let (busy, other) = (server.connect().await, server.connect().await);
    let token = busy.cancel_token();
    let sleeps = busy.batch_execute("SELECT pg_sleep(600)");
    let behind = async { tokio::join!(busy.simple_query("SELECT 8"), busy.query_one("SELECT 9", &[])) };
    let cancels = async {
        let running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%(600)'";
        while other.query_one(running, &[]).await.expect("a count").get::<_, i64>(0) == 0 {}
        token.cancel_query(tokio_postgres::NoTls).await.expect("a cancel request");
    };
    let (slept, (eight, nine), ()) = tokio::join!(sleeps, behind, cancels);
    let code = slept.expect_err("cancelled").code().cloned();
    assert_eq!(code, Some(tokio_postgres::error::SqlState::QUERY_CANCELED));
    eight.expect("a statement of its own");
    assert_eq!(nine.expect("the third").get::<_, i32>(0), 9);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_session_is_ended_when_its_time_is_up_and_not_while_it_works() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("SET idle_session_timeout = '300ms'").await;
    // A statement that takes longer is not idleness.
    assert_eq!(client::tags(&client.query("SELECT pg_sleep(0.5)").await), "TDC");
    // Neither is a block, which has a limit of its own.
    client.query("BEGIN").await;
    assert_eq!(client::tags(&client.query("SELECT pg_sleep(0.5)").await), "TDC");
    client.query("COMMIT").await;
    let end = client.until_end().await;
    assert_eq!(end[0].sqlstate(), "57P05");
    assert_eq!(end[0].field('S').as_deref(), Some("FATAL"));
    let message = "terminating connection due to idle-session timeout";
    assert_eq!(end[0].field('M').as_deref(), Some(message));
    server.stop().await;
}

/// What it is told of others is nothing that it does.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_only_listens_is_idle_whatever_it_hears() {
    let server = TestServer::start().await;
    let mut listener = RawClient::connect(server.address()).await;
    let mut other = RawClient::connect(server.address()).await;
    listener.query("LISTEN news; SET idle_session_timeout = '300ms'").await;
    let listening = tokio::spawn(async move { listener.until_end().await });
    // It hears something all the time.
    while !listening.is_finished() {
        other.query("NOTIFY news").await;
    }
    let heard = listening.await.expect("no panic");
    assert_eq!(heard.last().expect("it is told why").sqlstate(), "57P05");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_idle_in_its_transaction_is_ended_and_its_locks_are_free() {
    let server = TestServer::start().await;
    let mut other = RawClient::connect(server.address()).await;
    other.query("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)").await;
    let update = "UPDATE t SET n = n + 1 WHERE id = 1";
    // In a block, in one that has failed but has a savepoint, and in the extended protocol before
    // its Sync.
    for round in 0..3 {
        let mut client = RawClient::connect(server.address()).await;
        client.query("SET idle_in_transaction_session_timeout = '300ms'").await;
        match round {
            0 => drop(client.query(&format!("BEGIN; {update}")).await),
            1 => drop(client.query(&format!("BEGIN; {update}; SAVEPOINT s; SELECT 1/0")).await),
            _ => {
                let unit = [client::parse("", update), client::bind("", "", &[]), client::execute("", 0)];
                client.send(&[unit.concat(), message(b'H', b"")].concat()).await;
                assert_eq!(client.message().await.tag, '1');
                assert_eq!(client.message().await.tag, '2');
                assert_eq!(client.message().await.tag, 'C');
            }
        }
        let end = client.until_end().await;
        assert_eq!(end[0].sqlstate(), "25P03", "round {round}");
        let message = "terminating connection due to idle-in-transaction timeout";
        assert_eq!(end[0].field('M').as_deref(), Some(message));
        assert_eq!(client::tags(&other.query(update).await), "C");
    }
    // Only the other's updates are there, and without a limit nobody is ended.
    let answer = other.query("SELECT n FROM t").await;
    assert_eq!(answer[1].values()[0].as_deref(), Some("3"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_data_is_not_idle_between_two_rows() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    let mut other = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE t (id int); SET idle_in_transaction_session_timeout = '20ms'").await;
    client.send(&message(b'Q', &client::string("COPY t FROM STDIN"))).await;
    assert_eq!(client.message().await.tag, 'G');
    // It takes longer for its next row than it may be idle.
    other.query("SELECT pg_sleep(0.2)").await;
    client.send(&[message(b'd', b"1\n"), message(b'c', b"")].concat()).await;
    assert_eq!(client::tags(&client.until_ready().await), "CZ");
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
    // 8 MB for all: the unfinished messages of two clients fill it, the third is told.
    let begin = {
        let mut begin = message(b'Q', &[b' '; 4_000_000]);
        begin.truncate(3_990_000);
        begin
    };
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = RawClient::connect(server.address()).await;
        client.send(&begin).await;
        clients.push(client);
    }
    server.metric_becomes("cognate_message_bytes", 8 << 20).await;
    let mut third = RawClient::connect(server.address()).await;
    let sent = tokio::io::AsyncWriteExt::write_all(&mut third.socket, &begin);
    let _ = sent.await;
    let answer = third.until_end().await;
    assert_eq!(answer[0].sqlstate(), "53200");
    drop(clients);
    server.metric_becomes("cognate_message_bytes", 0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_with_names_take_memory_however_small_they_are() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    let flush = message(b'H', b"");
    client.send(&[parse("q", "SELECT $1::text"), flush.clone()].concat()).await;
    assert_eq!(client.message().await.tag, '1');
    let mut refused = None;
    'rounds: for round in 0..100 {
        let binds = (0..1_000).map(|place| bind(&format!("p{round}_{place}"), "q", &["x"]));
        let messages: Vec<Vec<u8>> = binds.chain([flush.clone()]).collect();
        client.send(&messages.concat()).await;
        for _ in 0..1_000 {
            let answer = client.message().await;
            if answer.tag == 'E' {
                refused = Some(answer);
                break 'rounds;
            }
            assert_eq!(answer.tag, '2');
        }
    }
    assert_eq!(refused.expect("an end").sqlstate(), "53200");
    // With the transaction all of them go.
    client.send(&sync()).await;
    assert_eq!(client::tags(&client.until_ready().await), "Z");
    client.send(&[bind("p0_0", "q", &["x"]), sync()].concat()).await;
    assert_eq!(client::tags(&client.until_ready().await), "2Z");
    server.stop().await;
}
