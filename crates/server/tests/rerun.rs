//! Statements that fail because of others before anything of their answer was sent: they are run
//! again, and the client sees one answer, with everything in it once. What was answered after them
//! cannot be taken back.

use crate::client::{Message, RawClient, bind, execute, message, named, parse, string, sync, tags};
use crate::support::TestServer;

/// Reads row 1 and writes row 2; [`OTHER`] does it the other way round. The second to commit closes
/// a cycle.
const SKEW: &str = "UPDATE t SET n = (SELECT n FROM t WHERE id = 1) + 1 WHERE id = 2 RETURNING n";
const OTHER: &str = "UPDATE t SET n = (SELECT n FROM t WHERE id = 2) + 100 WHERE id = 1";

fn rows(messages: &[Message]) -> Vec<String> {
    let rows = messages.iter().filter(|message| message.tag == 'D');
    rows.map(|row| row.values().into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join("|"))
        .collect()
}

/// Two sessions, and a table with the rows (1, 10) and (2, 20).
async fn two(server: &TestServer) -> (RawClient, RawClient) {
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE t (id int PRIMARY KEY, n int)").await;
    client.query("INSERT INTO t VALUES (1, 10), (2, 20)").await;
    (client, RawClient::connect(server.address()).await)
}

/// Waits until somebody has locked row 2.
async fn until_locked(watcher: &mut RawClient) {
    while !rows(&watcher.query("SELECT id FROM t WHERE id = 2 FOR UPDATE SKIP LOCKED").await).is_empty() {
        tokio::task::yield_now().await;
    }
}

/// Waits until somebody waits for a lock.
async fn until_waiting(watcher: &mut RawClient) {
    let waiting = "SELECT pid FROM cognate_transactions WHERE waits_for IS NOT NULL";
    while rows(&watcher.query(waiting).await).is_empty() {
        tokio::task::yield_now().await;
    }
}

/// Sends a message whose last statement waits for a row that the other session has changed, and
/// fails when that commits: the snapshot is older.
async fn overtaken(
    client: &mut RawClient,
    other: &mut RawClient,
    watcher: &mut RawClient,
    text: &str,
) -> Vec<Message> {
    other.query("BEGIN; UPDATE t SET n = n + 1 WHERE id = 2").await;
    client.send(&message(b'Q', &string(text))).await;
    until_waiting(watcher).await;
    other.query("COMMIT").await;
    client.until_ready().await
}

/// The states of the errors of an answer.
fn failures(answer: &[Message]) -> Vec<String> {
    answer.iter().filter(|message| message.tag == 'E').map(Message::sqlstate).collect()
}

fn status_of<'m>(messages: &'m [Message], name: &str) -> Vec<&'m Message> {
    let prefix = string(name);
    messages.iter().filter(|message| message.tag == 'S' && message.body.starts_with(&prefix)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_commit_fails_is_run_again_at_sync() {
    for portal in ["", "a portal"] {
        let server = TestServer::start().await;
        let (mut client, mut other) = two(&server).await;
        client.send(&[parse("", SKEW), bind(portal, "", &[]), execute(portal, 0)].concat()).await;
        until_locked(&mut other).await;
        assert_eq!(tags(&other.query(OTHER).await), "C");
        client.send(&sync()).await;
        let answer = client.until_ready().await;
        assert_eq!(tags(&answer), "12DCZ", "{portal:?}");
        assert_eq!(rows(&answer), ["121"], "what the second run saw, and nothing of the first");
        assert_eq!(rows(&client.query("SELECT n FROM t ORDER BY id").await), ["120", "121"]);
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_run_again_once_a_later_message_was_answered() {
    for (later, its_tags) in [
        (parse("other", "SELECT 1"), "1"),
        (named(b'D', b'S', ""), "tT"),
        (named(b'C', b'P', "none"), "3"),
        (message(b'H', b""), ""),
    ] {
        let server = TestServer::start().await;
        let (mut client, mut other) = two(&server).await;
        client.send(&[parse("", SKEW), bind("", "", &[]), execute("", 0), later].concat()).await;
        until_locked(&mut other).await;
        assert_eq!(tags(&other.query(OTHER).await), "C");
        client.send(&sync()).await;
        let answer = client.until_ready().await;
        assert_eq!(tags(&answer), format!("12DC{its_tags}EZ"));
        assert_eq!(answer[answer.len() - 2].sqlstate(), "40001");
        assert_eq!(rows(&client.query("SELECT n FROM t ORDER BY id").await), ["120", "20"]);
        server.stop().await;
    }
}

/// What a client of its own is answered that is overtaken after a first message.
async fn conflict(server: &TestServer, before: &str) -> (RawClient, Vec<Message>) {
    let (mut client, mut other) = two(server).await;
    let mut watcher = RawClient::connect(server.address()).await;
    client.query(before).await;
    let text =
        "SET TimeZone TO 'Asia/Tokyo'; SELECT n FROM t WHERE id = 1; UPDATE t SET n = n * 2 WHERE id = 2";
    let answer = overtaken(&mut client, &mut other, &mut watcher, text).await;
    (client, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_run_again_reports_its_settings_once() {
    let server = TestServer::start().await;
    let (mut client, answer) = conflict(&server, "SELECT 1").await;
    assert_eq!(tags(&answer), "CTDCCSZ");
    assert_eq!(status_of(&answer, "TimeZone")[0].body, b"TimeZone\0Asia/Tokyo\0");
    assert_eq!(rows(&client.query("SELECT n FROM t WHERE id = 2").await), ["42"]);
    assert_eq!(rows(&client.query("SHOW TimeZone").await), ["Asia/Tokyo"]);
    server.stop().await;
}

/// An instance's number is used up once it was begun: a message that has begun one is not run
/// again, and says why it has failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_has_begun_an_instance_is_not_run_again() {
    let server = TestServer::start().await;
    let (mut client, mut other) = two(&server).await;
    let mut watcher = RawClient::connect(server.address()).await;
    let text = "BEGIN MIP <x,1>; SELECT n FROM t WHERE id = 1; UPDATE t SET n = n * 2 WHERE id = 2";
    let answer = overtaken(&mut client, &mut other, &mut watcher, text).await;
    assert_eq!(failures(&answer), ["40001"]);
    assert_eq!(tags(&client.query("ROLLBACK").await), "C");
    assert_eq!(rows(&client.query("SELECT n FROM t WHERE id = 2").await), ["21"]);
    server.stop().await;
}

/// Nor is one that has decided about what was prepared: a second time that would be a mistake, and
/// the client would take it for the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_has_decided_is_not_run_again() {
    let server = TestServer::start().await;
    let (mut client, mut other) = two(&server).await;
    let mut watcher = RawClient::connect(server.address()).await;
    for (xid, row) in [("rolled", 3), ("forgotten", 4)] {
        other.query(&format!("BEGIN MIP <{xid},1>; INSERT INTO t VALUES ({row}, 0)")).await;
        assert_eq!(tags(&other.query(&format!("PREPARE MIP <{xid},1> 'q' 'r'")).await), "TDC");
    }
    assert_eq!(tags(&other.query("COMMIT MIP <forgotten,1>").await), "TDC");
    other.query("BEGIN; INSERT INTO t VALUES (5, 0)").await;
    assert_eq!(tags(&other.query("PREPARE TRANSACTION 'p'").await), "C");
    for decision in ["ROLLBACK MIP <rolled,1>", "FORGET MIP forgotten", "ROLLBACK PREPARED 'p'"] {
        let text = format!("{decision}; SELECT n FROM t WHERE id = 2; UPDATE t SET n = n * 2 WHERE id = 2");
        let answer = overtaken(&mut client, &mut other, &mut watcher, &text).await;
        assert_eq!(failures(&answer), ["40001"], "{decision}");
    }
    assert_eq!(rows(&client.query("SELECT n FROM t WHERE id <> 1 ORDER BY id").await), ["23", "0"]);
    server.stop().await;
}

/// Nor is one that has changed of the session what no rollback takes back: names of statements,
/// where a cursor stands that has outlived its transaction, how often a lock is held.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_has_changed_the_session_for_good_is_not_run_again() {
    let server = TestServer::start().await;
    let (mut client, mut other) = two(&server).await;
    let mut watcher = RawClient::connect(server.address()).await;
    client.query("PREPARE known AS SELECT 1").await;
    client.query("DECLARE h CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY id").await;
    client.query("SELECT pg_advisory_lock(8), pg_advisory_lock(8)").await;
    let changes = [
        "PREPARE fresh AS SELECT 1",
        "DEALLOCATE known",
        "FETCH h",
        "MOVE h",
        "CLOSE h",
        "SELECT pg_advisory_lock(7); ROLLBACK",
        "SELECT pg_advisory_unlock(8); ROLLBACK",
        "DO $$ BEGIN EXECUTE 'PREPARE inner_one AS SELECT 1'; END $$",
    ];
    for change in changes {
        let text = format!("{change}; SELECT n FROM t WHERE id = 2; UPDATE t SET n = n * 2 WHERE id = 2");
        let answer = overtaken(&mut client, &mut other, &mut watcher, &text).await;
        assert_eq!(failures(&answer), ["40001"], "{change}");
    }
    for (lock, what) in [(7, "taken"), (8, "let go of")] {
        let unlock = format!("SELECT pg_advisory_unlock({lock}), pg_advisory_unlock({lock})");
        assert_eq!(rows(&client.query(&unlock).await), ["t|f"], "{lock} was {what} once");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_fails_for_good_changes_and_reports_no_settings() {
    let server = TestServer::start().await;
    let (mut client, answer) =
        conflict(&server, "SET TimeZone TO 'UTC'; SET cognate.statement_retries = 0").await;
    assert_eq!(tags(&answer), "CTDCEZ");
    assert_eq!(rows(&client.query("SHOW TimeZone").await), ["UTC"]);
    // The next change is told.
    let answer = client.query("SET TimeZone TO 'Asia/Tokyo'").await;
    assert_eq!(status_of(&answer, "TimeZone").len(), 1);
    server.stop().await;
}

/// What the message has committed stays, and is told, though the rest fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_the_message_committed_is_reported_with_the_failure() {
    let server = TestServer::start().await;
    let (mut client, mut other) = two(&server).await;
    let mut watcher = RawClient::connect(server.address()).await;
    let text = "SET TimeZone TO 'Asia/Tokyo'; COMMIT; \
                SELECT n FROM t WHERE id = 1; UPDATE t SET n = n * 2 WHERE id = 2";
    let answer = overtaken(&mut client, &mut other, &mut watcher, text).await;
    let errors = failures(&answer);
    assert!(errors.iter().all(|error| error == "40001"), "{answer:?}");
    assert_eq!(status_of(&answer, "TimeZone").len(), 1, "{}", tags(&answer));
    assert_eq!(rows(&client.query("SHOW TimeZone").await), ["Asia/Tokyo"]);
    let expected = if errors.is_empty() { "42" } else { "21" };
    assert_eq!(rows(&client.query("SELECT n FROM t WHERE id = 2").await), [expected]);
    server.stop().await;
}

/// A portal that rests between two rows reads on where it began, so the snapshot stays there; once
/// it is closed the snapshot moves past what the next statement meets.
#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_portal_keeps_the_snapshot() {
    let server = TestServer::start().await;
    let (mut client, mut other) = two(&server).await;
    for is_closed in [false, true] {
        client.query("BEGIN").await;
        let select = [parse("", "SELECT id FROM t ORDER BY id"), bind("p", "", &[]), execute("p", 1), sync()];
        client.send(&select.concat()).await;
        assert_eq!(tags(&client.until_ready().await), "12DsZ");
        other.query("UPDATE t SET n = n + 1 WHERE id = 2").await;
        if is_closed {
            client.send(&[named(b'C', b'P', "p"), sync()].concat()).await;
            client.until_ready().await;
        }
        let answer = client.query("UPDATE t SET n = n * 2 WHERE id = 2 RETURNING n").await;
        match is_closed {
            true => assert_eq!(rows(&answer), ["44"]),
            // The row is described before the statement fails.
            false => assert_eq!(answer.last().expect("an answer").sqlstate(), "40001"),
        }
        client.query("COMMIT").await;
    }
    server.stop().await;
}
