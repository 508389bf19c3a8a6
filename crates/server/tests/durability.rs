//! What leaves a connection while the log's flushes are held back: nothing that a crash could take
//! back, however it was asked for.
//!
//! Whether a session waits is asked of the log, which counts who does; so nothing here depends on
//! time.

use cognate_env::sim::{Loss, SimDisk};

use crate::client::{Message, RawClient, bind, execute, message, named, parse, string, sync, tags};
use crate::support::TestServer;

/// A server on a simulated disk with a table of one row, and a session that has changed the row
/// without its commit being durable.
struct Held {
    disk: SimDisk,
    server: TestServer,
    writer: RawClient,
}

impl Held {
    async fn new() -> Held {
        let disk = SimDisk::new(7);
        let server = TestServer::on(&disk).await;
        let mut writer = RawClient::connect(server.address()).await;
        writer.query("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10)").await;
        Held { disk, server, writer }
    }

    /// A client whose statements outside blocks read at the newest snapshot.
    async fn client(&self) -> RawClient {
        let mut client = RawClient::connect(self.server.address()).await;
        client.query("SET default_transaction_isolation = 'repeatable read'").await;
        client
    }

    fn waiting(&self) -> u64 {
        self.server.running.database().engine().statistics().log.waiting
    }

    /// From here on nothing becomes durable, and the row has a new value.
    async fn hold(&mut self, text: &str) {
        self.disk.hold_flushes();
        self.writer.send(&message(b'Q', &string(text))).await;
        while self.waiting() < 1 {
            tokio::task::yield_now().await;
        }
    }

    /// Sends, and sees that the session comes to wait for the log with nothing said but `before`.
    /// Then lets the flush go; the answers until ReadyForQuery follow.
    async fn waits(&mut self, client: &mut RawClient, bytes: &[u8], before: &str) -> Vec<Message> {
        let waiting = self.waiting();
        client.send(bytes).await;
        while self.waiting() == waiting {
            tokio::task::yield_now().await;
        }
        for expected in before.chars() {
            assert_eq!(client.message().await.tag, expected);
        }
        let mut byte = [0];
        let more = client.socket.try_read(&mut byte);
        assert!(
            more.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
            "an answer left before the flush: {more:?} {byte:?}"
        );
        self.disk.let_flushes_go();
        let answer = client.until_ready().await;
        assert_eq!(tags(&self.writer.until_ready().await), "CZ");
        answer
    }
}

const CHANGE: &str = "UPDATE t SET v = v + 1 WHERE id = 1";

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_one_message_waits() {
    let mut held = Held::new().await;
    let mut client = held.client().await;
    held.hold(CHANGE).await;
    let query = message(b'Q', &string("SELECT v FROM t"));
    assert_eq!(tags(&held.waits(&mut client, &query, "").await), "TDCZ");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_before_a_flush_message_wait() {
    let mut held = Held::new().await;
    let mut client = held.client().await;
    held.hold(CHANGE).await;
    let flush = message(b'H', b"");
    let pipeline = [parse("", "SELECT v FROM t"), bind("", "", &[]), execute("", 0), flush, sync()].concat();
    let answer = held.waits(&mut client, &pipeline, "").await;
    assert_eq!(tags(&answer), "12DCZ");
    assert_eq!(answer[2].values(), [Some("11".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_fetched_in_parts_outside_a_block_waits() {
    let mut held = Held::new().await;
    let mut client = held.client().await;
    held.hold(CHANGE).await;
    let text = "SELECT v, n FROM t, generate_series(1, 3) AS s (n)";
    let parts =
        [parse("", text), bind("", "", &[]), execute("", 1), message(b'H', b""), execute("", 0), sync()];
    let answer = held.waits(&mut client, &parts.concat(), "").await;
    assert_eq!(tags(&answer), "12DsDDCZ");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_do_not_leave_before_their_end_is_safe() {
    for text in [
        "SELECT v, n FROM t, generate_series(1, 50000) AS s (n)",
        "COPY (SELECT v, n FROM t, generate_series(1, 50000) AS s (n)) TO STDOUT",
    ] {
        let mut held = Held::new().await;
        let mut client = held.client().await;
        held.hold(CHANGE).await;
        let answer = held.waits(&mut client, &message(b'Q', &string(text)), "").await;
        assert!(answer.len() > 50_000, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_a_pipeline_waits_for_what_was_shown_before_it() {
    let mut held = Held::new().await;
    let mut client = held.client().await;
    held.hold(CHANGE).await;
    let first = [parse("", "SELECT v FROM t"), bind("", "", &[]), execute("", 0)].concat();
    let second = [
        parse("", "SELECT 1 / v FROM t WHERE v = 0 UNION ALL SELECT 1 / 0"),
        bind("", "", &[]),
        execute("", 0),
    ];
    let answer = held.waits(&mut client, &[first, second.concat(), sync()].concat(), "").await;
    let error = answer.iter().find(|message| message.tag == 'E').expect("an error");
    assert_eq!(error.sqlstate(), "22012");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_of_the_catalog_waits() {
    let mut held = Held::new().await;
    let mut client = held.client().await;
    held.hold("CREATE TABLE fresh (a int, b text)").await;
    let describe = [parse("p", "SELECT * FROM fresh"), named(b'D', b'S', "p"), sync()].concat();
    assert_eq!(tags(&held.waits(&mut client, &describe, "").await), "1tTZ");
    held.hold("DROP TABLE fresh").await;
    let unknown = [parse("", "SELECT * FROM fresh WHERE a = 1"), sync()].concat();
    let answer = held.waits(&mut client, &unknown, "").await;
    assert_eq!((tags(&answer).as_str(), answer[0].sqlstate().as_str()), ("EZ", "42P01"));
}

/// Inside a block rows come at once; its end waits, in the same pipeline too.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_shows_what_its_end_makes_good() {
    for (end, tag) in [("COMMIT", "COMMIT"), ("ROLLBACK", "ROLLBACK")] {
        let mut held = Held::new().await;
        let mut client = held.client().await;
        held.hold(CHANGE).await;
        assert_eq!(tags(&client.query("BEGIN").await), "C");
        let rows = client.query("SELECT v FROM t").await;
        assert_eq!(rows[1].values(), [Some("11".to_owned())]);
        let answer = held.waits(&mut client, &message(b'Q', &string(end)), "").await;
        assert_eq!(answer[0].command_tag(), tag);
    }
    let mut held = Held::new().await;
    let mut client = held.client().await;
    held.hold(CHANGE).await;
    let one = |text| [parse("", text), bind("", "", &[]), execute("", 0), sync()].concat();
    let pipeline = [one("BEGIN"), one("SELECT v FROM t"), one("ROLLBACK")].concat();
    let answer = held.waits(&mut client, &pipeline, "12CZ12DCZ").await;
    assert_eq!(tags(&answer), "12CZ");
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_reads_wait_inside_a_block() {
    let mut held = Held::new().await;
    let mut client = held.client().await;
    client.query("SET cognate.durable_reads = on").await;
    client.query("BEGIN").await;
    held.hold(CHANGE).await;
    let query = message(b'Q', &string("SELECT v FROM t"));
    assert_eq!(tags(&held.waits(&mut client, &query, "").await), "TDCZ");
    client.query("ROLLBACK").await;
}

/// The log fails while an answer waits for it: the answer is that failure, and the session goes on
/// with what is durable.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_rests_on_what_is_lost_is_an_error() {
    let mut held = Held::new().await;
    let mut client = held.client().await;
    held.hold("CREATE TABLE fresh (a int); INSERT INTO t VALUES (2, 20)").await;
    let waiting = held.waiting();
    client.send(&message(b'Q', &string("BEGIN; SELECT count(*) FROM t; ROLLBACK"))).await;
    while held.waiting() == waiting {
        tokio::task::yield_now().await;
    }
    held.disk.fail_sync_after(0);
    held.disk.let_flushes_go();
    let answer = client.until_ready().await;
    let error = answer.iter().find(|message| message.tag == 'E').expect("an error");
    assert_eq!(error.sqlstate(), "58030", "{}", tags(&answer));
    let rows = client.query("SELECT count(*) FROM t").await;
    assert_eq!(rows[1].values(), [Some("1".to_owned())], "readers go on below what is lost");
    assert_eq!(client.query("SELECT * FROM fresh").await[0].sqlstate(), "42P01");
    held.disk.restart(Loss::Process);
}

/// What is lost is still in memory. Whoever must decide by the newest version of such a row cannot,
/// at any level; trying again with a new snapshot would never end, since readers are shown what is
/// durable.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_decides_by_a_row_that_is_lost() {
    let mut held = Held::new().await;
    let mut client = held.client().await;
    held.hold(&format!("BEGIN; {CHANGE}; INSERT INTO t VALUES (2, 20); COMMIT")).await;
    held.disk.fail_sync_after(0);
    held.disk.let_flushes_go();
    assert!(held.writer.until_ready().await.iter().any(|message| message.tag == 'E'));
    for level in ["read committed", "repeatable read", "serializable"] {
        client.query(&format!("SET default_transaction_isolation = '{level}'")).await;
        for text in [
            "SELECT v FROM t WHERE id = 1 FOR UPDATE",
            "SELECT v FROM t WHERE id = 1 FOR KEY SHARE SKIP LOCKED",
            "UPDATE t SET v = 0 WHERE id = 1 AND v < 0",
            "UPDATE t SET v = 0 WHERE id = 1",
            "DELETE FROM t WHERE id = 1 AND v = 11",
            "INSERT INTO t VALUES (2, 21) ON CONFLICT DO NOTHING",
            "INSERT INTO t VALUES (2, 21) ON CONFLICT (id) DO UPDATE SET v = 0",
            "INSERT INTO t VALUES (2, 21)",
        ] {
            let answer = client.query(text).await;
            // A row that no reader is shown is not found; and what finds it may not say so.
            let lost = answer.iter().find(|message| message.tag == 'E').map(|error| error.sqlstate());
            let found = tags(&answer);
            match text.contains("v < 0") || text.contains("v = 11") {
                true => assert!(
                    lost.as_deref() == Some("58030") || found == "C",
                    "{level}: {text}: {found} {lost:?}"
                ),
                false => assert_eq!(lost.as_deref(), Some("58030"), "{level}: {text}: {found}"),
            }
        }
        let rows = client.query("SELECT v FROM t").await;
        assert_eq!(rows[1].values(), [Some("10".to_owned())], "readers go on below what is lost");
    }
    held.disk.restart(Loss::Process);
}
