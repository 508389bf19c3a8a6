//! Reads and writes that do not matter to each other, by the extended protocol: conditions whose
//! values are parameters.

use crate::client::{Message, RawClient, bind, execute, parse, sync};
use crate::support::TestServer;

async fn run(client: &mut RawClient, (text, values): (&str, &[&str])) -> Vec<Message> {
    client.send(&[parse("", text), bind("", "", values), execute("", 0), sync()].concat()).await;
    client.until_ready().await
}

fn error(messages: &[Message]) -> Option<String> {
    messages.iter().find(|message| message.tag == 'E').map(Message::sqlstate)
}

type Statement<'a> = (&'a str, &'a [&'a str]);

/// One transaction looks and writes a mark, another has read the mark and changes something:
/// whether that is a cycle.
async fn refused(clients: &mut (RawClient, RawClient), look: Statement<'_>, change: Statement<'_>) -> bool {
    let (one, other) = clients;
    let steps = [
        (true, ("DELETE FROM t", &[][..])),
        (true, ("INSERT INTO t VALUES (1, 1, 10, ''), (2, 2, 20, '')", &[])),
        (true, ("BEGIN ISOLATION LEVEL SERIALIZABLE", &[])),
        (false, ("BEGIN ISOLATION LEVEL SERIALIZABLE", &[])),
        (true, look),
        (false, ("SELECT v FROM mark WHERE id = $1", &["1"])),
        (true, ("UPDATE mark SET v = v + 1 WHERE id = $1", &["1"])),
        (false, change),
        (true, ("COMMIT", &[])),
    ];
    for (is_one, statement) in steps {
        let messages = run(if is_one { &mut *one } else { &mut *other }, statement).await;
        assert_eq!(error(&messages), None, "{statement:?}");
    }
    match error(&run(other, ("COMMIT", &[])).await).as_deref() {
        None => false,
        Some("40001") => true,
        Some(unexpected) => panic!("{unexpected}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_conditions_like_constants() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE t (id int PRIMARY KEY, category int, price int, note text)").await;
    client.query("CREATE TABLE mark (id int PRIMARY KEY, v int); INSERT INTO mark VALUES (1, 0)").await;
    let mut clients = (client, RawClient::connect(server.address()).await);
    let sum = ("SELECT sum(price) FROM t WHERE category = $1", &["1"][..]);
    let among = ("SELECT sum(price) FROM t WHERE category = ANY($1)", &["{1}"][..]);
    let point = ("SELECT price FROM t WHERE id = $1", &["1"][..]);
    let raise = "UPDATE t SET price = price + 1 WHERE category = $1";
    let insert = "INSERT INTO t VALUES (3, $1, 30, '')";
    for (look, change, matters) in [
        // Disjoint predicates without an index.
        (sum, (raise, &["2"][..]), false),
        (sum, (raise, &["1"]), true),
        (sum, (insert, &["2"]), false),
        (sum, (insert, &["1"]), true),
        (sum, ("UPDATE t SET category = $1 WHERE id = 2", &["1"]), true),
        (sum, ("DELETE FROM t WHERE category = $1", &["2"]), false),
        (among, (raise, &["2"]), false),
        (among, (raise, &["1"]), true),
        // A column that was not read.
        (point, ("UPDATE t SET note = $1 WHERE id = 1", &["new"]), false),
        (point, ("UPDATE t SET price = $1 WHERE id = 1", &["11"]), true),
        // What was there.
        (point, ("UPDATE t SET price = $1 WHERE id = 1", &["10"]), false),
    ] {
        assert_eq!(refused(&mut clients, look, change).await, matters, "{look:?} | {change:?}");
    }
    drop(clients);
    server.stop().await;
}

/// That a referenced key has gone is newer than the snapshot, and nothing keeps the key away until
/// the commit: what a savepoint catches would count as read after whoever makes it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_referenced_key_that_has_gone_is_a_conflict() {
    let server = TestServer::start().await;
    let mut one = RawClient::connect(server.address()).await;
    let mut other = RawClient::connect(server.address()).await;
    let steps = [
        (false, "CREATE TABLE parent (id int PRIMARY KEY)"),
        (false, "CREATE TABLE child (parent int REFERENCES parent)"),
        (false, "CREATE TABLE mark (id int PRIMARY KEY, v int)"),
        (false, "INSERT INTO parent VALUES (1)"),
        (false, "INSERT INTO mark VALUES (1, 0)"),
        (true, "BEGIN ISOLATION LEVEL SERIALIZABLE"),
        (true, "SELECT v FROM mark WHERE id = 1"),
        // The snapshot cannot move past this one.
        (false, "UPDATE mark SET v = 1 WHERE id = 1"),
        (false, "DELETE FROM parent WHERE id = 1"),
        (true, "SAVEPOINT s"),
    ];
    for (is_one, statement) in steps {
        let messages = if is_one { one.query(statement).await } else { other.query(statement).await };
        assert_eq!(error(&messages), None, "{statement}");
    }
    let refused = one.query("INSERT INTO child VALUES (1)").await;
    assert_eq!(error(&refused).as_deref(), Some("40001"));
    one.query("ROLLBACK").await;
    // What the snapshot does not show either is not there.
    let absent = one.query("BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO child VALUES (1)").await;
    assert_eq!(error(&absent).as_deref(), Some("23503"));
    server.stop().await;
}
