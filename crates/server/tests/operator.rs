//! What belongs to whoever operates the server: its settings, its figures, its configuration.

use cognate_server::config::{AuthSettings, Config, Settings, TlsSettings};

use crate::client::{RawClient, startup, tags};
use crate::support::TestServer;

async fn as_user(server: &TestServer, user: &str) -> RawClient {
    let mut client = RawClient::silent(server.address()).await;
    client.send(&startup(3 << 16, &[("user", user), ("database", "any")])).await;
    client.until_ready().await;
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_server_are_its_superusers() {
    let server = TestServer::start().await;
    let settings = [
        ("active_limit", "7"),
        ("certifier_memory", "2MB"),
        ("application_servers", "http://127.0.0.1:9"),
        ("in_doubt_push_after", "5min"),
    ];
    let mut eve = as_user(&server, "eve").await;
    for (name, value) in settings {
        let before = eve.query(&format!("SHOW cognate.{name}")).await[1].values();
        for text in [
            format!("SET cognate.{name} = '{value}'"),
            format!("SET COGNATE.{} = '{value}'", name.to_uppercase()),
            format!("SET LOCAL cognate.{name} = '{value}'"),
            format!("RESET cognate.{name}"),
            format!("SELECT set_config('cognate.{name}', '{value}', false)"),
        ] {
            let answer = eve.query(&text).await;
            let error = answer.last().expect("an answer");
            assert_eq!(error.sqlstate(), "42501", "{text}");
            let message = format!("permission denied to set parameter \"cognate.{name}\"");
            assert_eq!(error.field('M'), Some(message));
        }
        assert_eq!(eve.query(&format!("SHOW cognate.{name}")).await[1].values(), before);
    }
    // What a session resets of its own is not theirs.
    assert_eq!(tags(&eve.query("RESET ALL").await), "C");
    assert_eq!(tags(&eve.query("DISCARD ALL").await), "C");
    for statement in [
        "SHOW is_superuser",
        "SELECT CASE WHEN rolsuper THEN 'on' ELSE 'off' END FROM pg_roles WHERE rolname = current_user",
    ] {
        assert_eq!(eve.query(statement).await[1].values(), [Some("off".to_owned())]);
    }
    let mut ann = as_user(&server, "ann").await;
    for (name, value) in settings {
        assert_eq!(tags(&ann.query(&format!("SET cognate.{name} = '{value}'")).await), "C");
        let shown = eve.query(&format!("SHOW cognate.{name}")).await[1].values();
        assert_eq!(shown, [Some(value.to_owned())], "it is the whole server's");
    }
    assert_eq!(ann.query("SHOW is_superuser").await[1].values(), [Some("on".to_owned())]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_makes_himself_superuser_when_he_connects() {
    let server = TestServer::start().await;
    for options in ["-c is_superuser=on", "-c cognate.active_limit=3", "-c shared_buffers=1GB"] {
        let mut client = RawClient::silent(server.address()).await;
        client.send(&startup(3 << 16, &[("user", "eve"), ("options", options)])).await;
        assert_eq!(client.until_end().await[0].sqlstate(), "55P02", "{options}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_need_the_token_and_the_status_does_not() {
    let settings = Settings { http_token: Some("geheim".to_owned()), ..Settings::default() };
    let server = TestServer::with(settings).await;
    assert_eq!(server.http("/metrics").await.0, 401);
    for wrong in ["Bearer geheim2", "Bearer gehei", "geheim", "Basic geheim"] {
        assert_eq!(server.http_with("/metrics", &format!("Authorization: {wrong}\r\n")).await.0, 401);
    }
    let (status, text) = server.http_with("/metrics", "Authorization: Bearer geheim\r\n").await;
    assert!(status == 200 && text.contains("cognate_connections 0"), "{text}");
    assert_eq!(server.http("/health").await, (200, "{\"ready\":true}".to_owned()));
    let (status, text) = server.http_with("/health", "Authorization: Bearer geheim\r\n").await;
    assert!(status == 200 && text.contains("durable"), "{text}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_takes_over_passwords_certificate_and_settings() {
    let mut server = TestServer::start().await;
    let mut before = as_user(&server, "ann").await;
    let folder = tempfile::tempdir().expect("a folder");
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, certified.cert.pem()).expect("written");
    std::fs::write(&key, certified.signing_key.serialize_pem()).expect("written");
    let settings = Settings {
        active_limit: Some("9".to_owned()),
        superuser: Some("bob".to_owned()),
        tls: TlsSettings { cert: Some(cert.clone()), key: Some(key) },
        auth: AuthSettings { password: Some("secret".to_owned()), ..AuthSettings::default() },
        ..Settings::default()
    };
    server.running.reload(Config::resolve(settings.clone()).expect("valid")).expect("reloaded");
    // Who is in stays in; whoever comes needs the password, and can have encryption.
    assert_eq!(before.query("SHOW cognate.active_limit").await[1].values(), [Some("9".to_owned())]);
    let mut stranger = RawClient::started(server.address()).await;
    assert_eq!(stranger.message().await.tag, 'R');
    let mut encrypted = RawClient::silent(server.address()).await;
    encrypted.send(&crate::client::packet(&80_877_103_u32.to_be_bytes())).await;
    let mut answer = [0];
    tokio::io::AsyncReadExt::read_exact(&mut encrypted.socket, &mut answer).await.expect("an answer");
    assert_eq!(&answer, b"S");
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(server.address().port()).user("bob").password("secret").dbname("any");
    let (bob, connection) = config.connect(tokio_postgres::NoTls).await.expect("the new password");
    tokio::spawn(connection);
    bob.batch_execute("SET cognate.active_limit = DEFAULT").await.expect("the new superuser");
    // A certificate that cannot be read changes nothing.
    std::fs::write(&cert, "").expect("written");
    let broken = Settings { auth: AuthSettings::default(), ..settings };
    let error = server.running.reload(Config::resolve(broken).expect("valid")).expect_err("no certificate");
    assert!(error.0.contains("cert.pem holds no certificate"), "{error}");
    let mut stranger = RawClient::started(server.address()).await;
    assert_eq!(stranger.message().await.tag, 'R');
    drop((encrypted, stranger));
    server.stop().await;
}

/// The process id of a session.
async fn process_id(client: &mut RawClient) -> String {
    client.query("SELECT pg_backend_pid()").await[1].values()[0].clone().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_ended_by_their_role_and_by_the_operator() {
    let server = TestServer::start().await;
    let mut eve = as_user(&server, "eve").await;
    let mut bob = as_user(&server, "bob").await;
    let mut ann = as_user(&server, "ann").await;
    let (of_eve, of_bob) = (process_id(&mut eve).await, process_id(&mut bob).await);
    for (function, what) in
        [("cancel", "query is being canceled"), ("terminate", "process is being terminated")]
    {
        let answer = eve.query(&format!("SELECT pg_{function}_backend({of_bob})")).await;
        let error = answer.last().expect("an answer");
        assert_eq!(error.sqlstate(), "42501");
        assert!(error.field('M').is_some_and(|message| message.contains(what)));
        let nobody = eve.query(&format!("SELECT pg_{function}_backend(2147483647)")).await;
        assert_eq!(nobody[1].values(), [Some("f".to_owned())]);
    }
    // A statement under way is cancelled, and the session goes on.
    bob.send(&crate::client::message(b'Q', &crate::client::string("SELECT pg_sleep(3600)"))).await;
    let what = "query = 'SELECT pg_sleep(3600)' AND client_addr = '127.0.0.1' AND client_port > 0";
    let since = "query_start <= clock_timestamp() AND query_start >= backend_start";
    loop {
        let state = format!("SELECT state FROM pg_stat_activity WHERE pid = {of_bob} AND {what} AND {since}");
        // Until it has begun there is no such row.
        let answer = ann.query(&state).await;
        if answer[1].tag == 'D' && answer[1].values() == [Some("active".to_owned())] {
            break;
        }
    }
    assert_eq!(
        ann.query(&format!("SELECT pg_cancel_backend({of_bob})")).await[1].values(),
        [Some("t".to_owned())]
    );
    let answer = bob.until_ready().await;
    assert!(answer.iter().any(|message| message.tag == 'E' && message.sqlstate() == "57014"));
    let last = format!("SELECT state FROM pg_stat_activity WHERE pid = {of_bob} AND {what}");
    assert_eq!(ann.query(&last).await[1].values(), [Some("idle".to_owned())], "the last statement stays");
    // An idle session is ended with a word, and is gone.
    assert_eq!(
        ann.query(&format!("SELECT pg_terminate_backend({of_eve})")).await[1].values(),
        [Some("t".to_owned())]
    );
    let farewell = eve.until_end().await;
    assert!(farewell.iter().any(|message| message.tag == 'E' && message.sqlstate() == "57P01"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_a_block_is_shown_as_such_from_begin_on() {
    let server = TestServer::start().await;
    let mut bob = as_user(&server, "bob").await;
    let mut ann = as_user(&server, "ann").await;
    let of_bob = process_id(&mut bob).await;
    let state = format!("SELECT state FROM pg_stat_activity WHERE pid = {of_bob}");
    let began = format!("SELECT xact_start <= clock_timestamp() FROM pg_stat_activity WHERE pid = {of_bob}");
    for (statement, shown) in [
        ("SELECT 1", "idle"),
        ("BEGIN", "idle in transaction"),
        ("SELECT 1", "idle in transaction"),
        ("SELECT 1/0", "idle in transaction (aborted)"),
        ("SELECT 1", "idle in transaction (aborted)"),
        ("ROLLBACK", "idle"),
    ] {
        bob.query(statement).await;
        assert_eq!(ann.query(&state).await[1].values(), [Some(shown.to_owned())], "after {statement}");
        let expected = (shown != "idle").then(|| "t".to_owned());
        assert_eq!(ann.query(&began).await[1].values(), [expected], "after {statement}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_waits_for_is_shown() {
    let server = TestServer::start().await;
    let (mut holder, mut watcher) = (as_user(&server, "ann").await, as_user(&server, "ann").await);
    holder.query("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    holder.query("CREATE TABLE u (id int)").await;
    holder.query("BEGIN; SELECT * FROM t FOR UPDATE; LOCK TABLE u; SELECT pg_advisory_lock(7)").await;
    for (text, expected) in [
        ("DELETE FROM t", "Lock tuple"),
        ("BEGIN; LOCK TABLE u", "Lock relation"),
        ("SELECT pg_advisory_lock(7)", "Lock advisory"),
        ("SELECT pg_advisory_xact_lock(7)", "Lock advisory"),
        ("SELECT pg_sleep(3600)", "Timeout PgSleep"),
    ] {
        let mut waiter = as_user(&server, "ann").await;
        let id = process_id(&mut waiter).await;
        waiter.send(&crate::client::message(b'Q', &crate::client::string(text))).await;
        let asked = format!(
            "SELECT wait_event_type || ' ' || wait_event FROM pg_stat_activity \
             WHERE pid = {id} AND state = 'active' AND wait_event_type <> 'Client'"
        );
        let told = loop {
            let answer = watcher.query(&asked).await;
            if let Some(row) = answer.iter().find(|message| message.tag == 'D') {
                break row.values();
            }
        };
        assert_eq!(told, [Some(expected.to_owned())], "{text}");
        watcher.query(&format!("SELECT pg_cancel_backend({id})")).await;
        let answer = waiter.until_ready().await;
        let error = answer.iter().find(|message| message.tag == 'E').expect("it is canceled");
        assert_eq!(error.sqlstate(), "57014", "{text}");
        assert!(!watcher.query(&asked).await.iter().any(|message| message.tag == 'D'), "{text}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_do_is_shown_to_who_may_act_for_them() {
    let server = TestServer::start().await;
    let mut ann = as_user(&server, "ann").await;
    ann.query("CREATE ROLE bob LOGIN; CREATE ROLE eve LOGIN").await;
    ann.query("CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher").await;
    let mut watcher = as_user(&server, "watcher").await;
    let mut bob = as_user(&server, "bob").await;
    let mut eve = as_user(&server, "eve").await;
    bob.query("SELECT 'of bob'").await;
    let of_bob = process_id(&mut bob).await;
    let own =
        bob.query(&format!("SELECT query LIKE '%of bob%' FROM pg_stat_activity WHERE pid = {of_bob}")).await;
    assert_eq!(own[1].values(), [Some("t".to_owned())]);
    let asked = format!("SELECT query FROM pg_stat_activity WHERE pid = {of_bob}");
    assert_eq!(eve.query(&asked).await[1].values(), [Some("<insufficient privilege>".to_owned())]);
    let nothing = "state IS NULL AND client_addr IS NULL AND query_start IS NULL AND wait_event IS NULL";
    let hidden = format!("SELECT {nothing} FROM pg_stat_activity WHERE pid = {of_bob}");
    assert_eq!(eve.query(&hidden).await[1].values(), [Some("t".to_owned())]);
    let encrypted = format!("SELECT count(*) FROM pg_stat_ssl WHERE pid = {of_bob}");
    assert_eq!(eve.query(&encrypted).await[1].values(), [Some("0".to_owned())]);
    bob.query("SELECT 'of bob'").await;
    assert_eq!(ann.query(&asked).await[1].values(), [Some("SELECT 'of bob'".to_owned())]);
    assert_eq!(watcher.query(&asked).await[1].values(), [Some("SELECT 'of bob'".to_owned())]);
    ann.query("GRANT bob TO eve").await;
    assert_eq!(eve.query(&asked).await[1].values(), [Some("SELECT 'of bob'".to_owned())]);
    // Who acts as another one knows its own client all the same.
    ann.query("SET SESSION AUTHORIZATION eve").await;
    let own_client = "SELECT inet_client_addr() IS NOT NULL";
    assert_eq!(ann.query(own_client).await[1].values(), [Some("t".to_owned())]);
    server.stop().await;
}
