//! Portals, cursors and named statements as the extended protocol meets them, where what they were
//! made of has changed or ended.

use crate::client::{Message, RawClient, bind, execute, message, named, parse, string, sync, tags};
use crate::support::TestServer;

fn rows(messages: &[Message]) -> Vec<String> {
    let rows = messages.iter().filter(|message| message.tag == 'D');
    rows.map(|row| row.values().into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join("|"))
        .collect()
}

/// A client in a block, with a portal that has given three rows.
async fn suspended(server: &TestServer, begin: &str) -> RawClient {
    let mut client = RawClient::connect(server.address()).await;
    client.query(begin).await;
    let text = "SELECT i FROM generate_series(1, 100) AS g (i)";
    client.send(&[parse("", text), bind("p", "", &[]), execute("p", 3), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "12DDDsZ");
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_plan_others_take_their_parameters() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("BEGIN").await.expect("a block");
    let text = "DECLARE c CURSOR FOR SELECT n FROM generate_series($1::int, $2::int) AS g (n) WHERE n <> $3";
    client.execute(text, &[&1_i32, &4_i32, &3_i32]).await.expect("declared");
    let rows = client.query("FETCH ALL FROM c", &[]).await.expect("rows");
    assert_eq!(rows.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [1, 2, 4]);
    let text = "CREATE TABLE made AS SELECT n, $2::text AS t FROM generate_series(1, $1::int) AS g (n)";
    assert_eq!(client.execute(text, &[&3_i32, &"x"]).await.expect("made"), 3);
    let row = client.query_one("SELECT count(*), min(t) FROM made", &[]).await.expect("a row");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, &str>(1)), (3, "x"));
    let plan = client.query("EXPLAIN SELECT * FROM made WHERE n = $1", &[&2_i32]).await.expect("a plan");
    assert!(!plan.is_empty());
    let plan = client.query("EXPLAIN ANALYZE SELECT * FROM made WHERE n > $1", &[&1_i32]).await;
    let plan = plan.expect("a plan with what came of it");
    let line = plan.first().expect("its node").get::<_, &str>(0);
    assert!(line.contains(" (actual time=") && line.ends_with(" rows=2 loops=1)"), "{line}");
    assert!(plan.iter().any(|line| line.get::<_, &str>(0).starts_with("Execution Time: ")));
    client.batch_execute("COMMIT").await.expect("the end");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_gives_nothing_in_a_block_that_has_failed() {
    let server = TestServer::start().await;
    for begin in ["BEGIN", "BEGIN; SAVEPOINT s"] {
        let mut client = suspended(&server, begin).await;
        client.query("SELECT 1/0").await;
        client.send(&[execute("p", 3), sync()].concat()).await;
        let answer = client.until_ready().await;
        assert_eq!((tags(&answer).as_str(), answer[0].sqlstate().as_str()), ("EZ", "25P02"), "{begin}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_statement_is_not_bound_in_a_block_that_has_failed() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("BEGIN; SELECT 1/0").await;
    client.send(&[parse("empty", ""), bind("", "empty", &[]), execute("", 0), sync()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), answer[1].sqlstate().as_str()), ("1EZ", "25P02"));
    client.query("ROLLBACK").await;
    client.send(&[bind("", "empty", &[]), execute("", 0), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "2IZ");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_gives_rows_is_described_in_a_block_that_has_failed() {
    let server = TestServer::start().await;
    let mut client = suspended(&server, "BEGIN; DECLARE c CURSOR FOR SELECT 1").await;
    client.send(&[parse("rows", "SELECT 1"), parse("none", "SET work_mem = 4096"), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "11Z");
    client.query("SELECT 1/0").await;
    for (target, name) in [(b'S', "rows"), (b'P', "p"), (b'P', "c")] {
        client.send(&[named(b'D', target, name), sync()].concat()).await;
        let answer = client.until_ready().await;
        assert_eq!((tags(&answer).as_str(), answer[0].sqlstate().as_str()), ("EZ", "25P02"), "{name}");
    }
    client.send(&[named(b'D', b'S', "none"), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "tnZ");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_that_is_executed_again_gives_no_more_rows_and_says_so() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE twice (a int)").await;
    let insert = "INSERT INTO twice VALUES (1), (2), (3) RETURNING a";
    let messages = [parse("", insert), bind("", "", &[]), execute("", 0), execute("", 0), sync()];
    client.send(&messages.concat()).await;
    let answer = client.until_ready().await;
    assert_eq!(tags(&answer), "12DDDCCZ");
    assert_eq!((answer[5].command_tag(), answer[6].command_tag()), ("INSERT 0 3", "INSERT 0 0"));
    let select = "SELECT a FROM twice";
    let messages = [parse("", select), bind("", "", &[]), execute("", 0), execute("", 0), sync()];
    client.send(&messages.concat()).await;
    let answer = client.until_ready().await;
    assert_eq!(tags(&answer), "12DDDCCZ");
    assert_eq!((answer[5].command_tag(), answer[6].command_tag()), ("SELECT 3", "SELECT 0"));
    server.stop().await;
}

/// The answer to each Execute counts the rows that it gave, whatever the statement has done.
#[tokio::test(flavor = "multi_thread")]
async fn a_portal_that_goes_on_tells_the_rows_of_each_execute() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE parts (a int)").await;
    client.query("BEGIN; DECLARE c CURSOR FOR SELECT generate_series(1, 9)").await;
    for (text, tag) in [
        ("INSERT INTO parts VALUES (1), (2), (3) RETURNING a", "INSERT 0 1"),
        ("UPDATE parts SET a = a + 1 RETURNING a", "UPDATE 1"),
        ("SELECT a FROM parts", "SELECT 1"),
        ("FETCH 3 FROM c", "FETCH 1"),
        ("DELETE FROM parts RETURNING a", "DELETE 1"),
    ] {
        let messages = [parse("", text), bind("p", "", &[]), execute("p", 2), execute("p", 0), sync()];
        client.send(&[messages.concat(), named(b'C', b'P', "p"), sync()].concat()).await;
        let answer = client.until_ready().await;
        assert_eq!(tags(&answer), "12DDsDCZ", "{text}");
        assert_eq!(answer[6].command_tag(), tag, "{text}");
        assert_eq!(tags(&client.until_ready().await), "3Z", "{text}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_ends_with_its_transaction_also_where_the_next_one_begins_at_once() {
    let server = TestServer::start().await;
    for end in ["COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "COMMIT; BEGIN; SELECT 1"] {
        let mut client = suspended(&server, "BEGIN").await;
        client.query(end).await;
        client.send(&[execute("p", 3), sync()].concat()).await;
        let answer = client.until_ready().await;
        assert_eq!((tags(&answer).as_str(), answer[0].sqlstate().as_str()), ("EZ", "34000"), "{end}");
        // Its name is free, also if nobody has asked for it.
        let mut client = suspended(&server, "BEGIN").await;
        client.query(end).await;
        client.send(&[parse("", "SELECT 1"), bind("p", "", &[]), execute("p", 0), sync()].concat()).await;
        assert_eq!(tags(&client.until_ready().await), "12DCZ", "{end}");
        // What is bound for the block that begins behind it stays.
        let chained = [
            parse("", "COMMIT AND CHAIN"),
            bind("", "", &[]),
            execute("", 0),
            parse("", "SELECT 2"),
            bind("q", "", &[]),
            sync(),
            execute("q", 0),
            sync(),
        ];
        client.send(&chained.concat()).await;
        assert_eq!(tags(&client.until_ready().await), "12C12Z", "{end}");
        assert_eq!(rows(&client.until_ready().await), ["2"], "{end}");
        // The portal that has ended the block was of it, too: its name is free.
        let chain = |portal: &str| [parse("", "COMMIT AND CHAIN"), bind(portal, "", &[]), execute(portal, 0)];
        let next = [parse("", "SELECT 3"), bind("c", "", &[]), execute("c", 0), sync()].concat();
        client.send(&[chain("c").concat(), next].concat()).await;
        assert_eq!(tags(&client.until_ready().await), "12C12DCZ", "{end}");
        client.send(&[chain("d").concat(), execute("d", 0), sync()].concat()).await;
        assert_eq!(client.until_ready().await[3].sqlstate(), "34000", "{end}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_ends_with_a_transaction_that_is_prepared() {
    let server = TestServer::start().await;
    let mut client = suspended(&server, "BEGIN").await;
    client.send(&[parse("", "SELECT 1"), bind("q", "", &[]), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "12Z");
    assert_eq!(tags(&client.query("PREPARE TRANSACTION 'prepared'; BEGIN; SELECT 1").await), "CCTDC");
    client.send(&[execute("q", 0), sync()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), answer[0].sqlstate().as_str()), ("EZ", "34000"));
    client.query("ROLLBACK").await;
    assert_eq!(tags(&client.query("ROLLBACK PREPARED 'prepared'").await), "C");
    server.stop().await;
}

/// The statement was prepared before: nothing but Bind comes behind what sets.
#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_read_by_settings_that_a_function_has_changed_in_the_block() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE seen (moment timestamptz)").await;
    client.send(&[parse("see", "INSERT INTO seen VALUES ($1)"), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "1Z");
    client.query("BEGIN").await;
    client.query("SELECT set_config('TimeZone', 'Asia/Tokyo', true)").await;
    client.send(&[bind("", "see", &["2024-01-01 00:00"]), execute("", 0), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "2CZ");
    client.query("COMMIT").await;
    let answer = client.query("SELECT moment AT TIME ZONE 'UTC' FROM seen").await;
    assert_eq!(rows(&answer), ["2023-12-31 15:00:00"]);
    // And ended by them.
    client.send(&[parse("rest", "SELECT pg_sleep(3600)"), sync()].concat()).await;
    client.until_ready().await;
    client.query("BEGIN; SELECT set_config('statement_timeout', '10', true)").await;
    client.send(&[bind("", "rest", &[]), execute("", 0), sync()].concat()).await;
    let answer = client.until_ready().await;
    let failure = answer.iter().find(|message| message.tag == 'E').map(Message::sqlstate);
    assert_eq!(failure.as_deref(), Some("57014"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_fetch_gives_the_rows_of_the_cursor_that_is_there() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("BEGIN; DECLARE c CURSOR FOR SELECT 1").await;
    let fetch = [bind("", "f", &[]), named(b'D', b'P', ""), execute("", 0), sync()].concat();
    client.send(&[parse("f", "FETCH ALL FROM c"), fetch.clone()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), rows(&answer)), ("12TDCZ", vec!["1".to_owned()]));
    client.query("CLOSE c; DECLARE c CURSOR FOR SELECT 2, 'b'").await;
    client.send(&fetch).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), rows(&answer)), ("2TDCZ", vec!["2|b".to_owned()]));
    // What a portal was bound for is what its client was told of.
    client.send(&[bind("g", "f", &[]), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "2Z");
    client.query("CLOSE c; DECLARE c CURSOR FOR SELECT 3").await;
    client.send(&[execute("g", 0), sync()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), answer[0].sqlstate().as_str()), ("EZ", "0A000"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_execute_gives_the_rows_of_the_statement_that_is_there() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("PREPARE q AS SELECT 1").await;
    let run = [bind("", "e", &[]), named(b'D', b'P', ""), execute("", 0), sync()].concat();
    client.send(&[parse("e", "EXECUTE q"), run.clone()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), rows(&answer)), ("12TDCZ", vec!["1".to_owned()]));
    client.query("DEALLOCATE q").await;
    client.query("PREPARE q AS SELECT 2, 'b'").await;
    client.send(&run).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), rows(&answer)), ("2TDCZ", vec!["2|b".to_owned()]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_execute_each_other_come_to_an_end() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    let circle = [
        parse("p", "SELECT 1"),
        parse("x", "EXECUTE p"),
        named(b'C', b'S', "p"),
        parse("p", "EXECUTE x"),
        bind("", "x", &[]),
        execute("", 0),
        sync(),
    ];
    client.send(&circle.concat()).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), answer[5].sqlstate().as_str()), ("11312EZ", "54001"));
    let answer = client.query("EXECUTE p").await;
    assert_eq!(answer.last().expect("an answer").sqlstate(), "54001");
    // A few are no circle.
    client.query("PREPARE q AS SELECT 7").await;
    client.send(&[parse("r", "EXECUTE q"), parse("s", "EXECUTE r"), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "11Z");
    assert_eq!(rows(&client.query("EXECUTE s").await), ["7"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_of_the_protocol_are_listed_until_they_are_closed() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.send(&[parse("one", "SELECT $1::int"), parse("", "SELECT 2"), sync()].concat()).await;
    client.until_ready().await;
    let list = "SELECT name, statement, parameter_types, from_sql FROM pg_prepared_statements";
    assert_eq!(rows(&client.query(list).await), ["one|SELECT $1::int|{integer}|f"]);
    client.send(&[named(b'C', b'S', "one"), sync()].concat()).await;
    client.until_ready().await;
    assert!(rows(&client.query(list).await).is_empty());
    server.stop().await;
}

/// The answer to messages that wait for somebody else's change of a table.
async fn meanwhile(
    server: &TestServer,
    client: &mut RawClient,
    messages: &[Vec<u8>],
    change: &str,
) -> Vec<Message> {
    let mut other = RawClient::connect(server.address()).await;
    let mut watcher = RawClient::connect(server.address()).await;
    other.query(&format!("BEGIN; {change}")).await;
    client.send(&messages.concat()).await;
    let waiting = "SELECT pid FROM cognate_transactions WHERE waits_for IS NOT NULL";
    while rows(&watcher.query(waiting).await).is_empty() {
        tokio::task::yield_now().await;
    }
    other.query("COMMIT").await;
    client.until_ready().await
}

fn simple(text: &str) -> Vec<u8> {
    message(b'Q', &string(text))
}

/// How many columns a RowDescription is of.
fn width(head: &Message) -> u16 {
    assert_eq!(head.tag, 'T', "{head:?}");
    u16::from_be_bytes([head.body[0], head.body[1]])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_for_a_change_of_its_table_gives_the_new_columns() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE t (a int)").await;
    client.query("INSERT INTO t VALUES (1)").await;
    client.query("SET default_transaction_isolation = 'read committed'").await;
    client.query("BEGIN").await;
    let select = [simple("SELECT * FROM t")];
    let answer = meanwhile(&server, &mut client, &select, "ALTER TABLE t ADD COLUMN b int").await;
    assert_eq!(tags(&answer), "TDCZ");
    assert_eq!((width(&answer[0]), rows(&answer)), (2, vec!["1|".to_owned()]));
    client.query("COMMIT").await;
    let insert = [simple("INSERT INTO t VALUES (2, 3) RETURNING *")];
    let answer = meanwhile(&server, &mut client, &insert, "ALTER TABLE t ADD COLUMN c int").await;
    assert_eq!(tags(&answer), "TDCZ");
    assert_eq!((width(&answer[0]), rows(&answer)), (3, vec!["2|3|".to_owned()]));
    client.query("BEGIN").await;
    let declare = [simple("DECLARE k CURSOR FOR SELECT * FROM t WHERE a = 1")];
    let answer = meanwhile(&server, &mut client, &declare, "ALTER TABLE t ADD COLUMN d int").await;
    assert_eq!(tags(&answer), "CZ");
    let answer = client.query("FETCH k").await;
    assert_eq!((width(&answer[0]), rows(&answer)), (4, vec!["1|||".to_owned()]));
    client.query("COMMIT").await;
    // The head is written once, also if there are no rows, and none if the statement did not begin.
    let none = [simple("DELETE FROM t WHERE a = 5 RETURNING *")];
    let answer = meanwhile(&server, &mut client, &none, "ALTER TABLE t ADD COLUMN e int").await;
    assert_eq!((tags(&answer).as_str(), width(&answer[0])), ("TCZ", 5));
    let gone = [simple("DELETE FROM t RETURNING a")];
    let answer = meanwhile(&server, &mut client, &gone, "ALTER TABLE t DROP COLUMN a").await;
    assert_eq!((tags(&answer).as_str(), answer[0].sqlstate().as_str()), ("EZ", "42703"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_takes_new_columns_as_long_as_its_client_was_told_of_none() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE t (a int)").await;
    client.query("SET default_transaction_isolation = 'read committed'").await;
    let insert = "INSERT INTO t VALUES (1) RETURNING *";
    let untold = [parse("", insert), bind("", "", &[]), execute("", 0), sync()];
    let answer = meanwhile(&server, &mut client, &untold, "ALTER TABLE t ADD COLUMN b int").await;
    assert_eq!((tags(&answer).as_str(), rows(&answer)), ("12DCZ", vec!["1|".to_owned()]));
    // The answer to a Describe just before the Execute waits with it.
    let described = [parse("", insert), bind("", "", &[]), named(b'D', b'P', ""), execute("", 0), sync()];
    let answer = meanwhile(&server, &mut client, &described, "ALTER TABLE t ADD COLUMN c int").await;
    assert_eq!((tags(&answer).as_str(), rows(&answer)), ("12TDCZ", vec!["1||".to_owned()]));
    assert_eq!(width(&answer[2]), 3);
    // Who was told of columns gets those, or an error.
    let told = [parse("", insert), named(b'D', b'S', ""), bind("", "", &[]), execute("", 0), sync()];
    let answer = meanwhile(&server, &mut client, &told, "ALTER TABLE t ADD COLUMN d int").await;
    assert_eq!((tags(&answer).as_str(), answer[4].sqlstate().as_str()), ("1tT2EZ", "0A000"));
    // So does who was told of them when the portal was bound already.
    let bound = [parse("", insert), bind("", "", &[]), named(b'D', b'S', ""), execute("", 0), sync()];
    let answer = meanwhile(&server, &mut client, &bound, "ALTER TABLE t ADD COLUMN e int").await;
    assert_eq!((tags(&answer).as_str(), answer[4].sqlstate().as_str()), ("12tTEZ", "0A000"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_described_portal_is_answered_before_another_one_that_is_executed() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    let other = [
        parse("q", "SELECT 1, 2"),
        bind("p", "q", &[]),
        parse("", "SELECT 3"),
        bind("", "", &[]),
        named(b'D', b'P', ""),
        execute("p", 0),
        execute("", 0),
        sync(),
    ];
    client.send(&other.concat()).await;
    let answer = client.until_ready().await;
    assert_eq!(tags(&answer), "1212TDCDCZ");
    assert_eq!(rows(&answer), ["1|2", "3"]);
    assert_eq!(width(&answer[4]), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_that_were_bound_behind_a_savepoint_go_with_it() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    let run = |portal: &str| [execute(portal, 0), sync()].concat();
    client.query("BEGIN").await;
    let text = "SELECT i FROM generate_series(1, 3) AS g (i)";
    client.send(&[parse("q", text), bind("before", "q", &[]), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "12Z");
    client.query("SAVEPOINT s").await;
    client.send(&[bind("within", "q", &[]), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "2Z");
    client.query("ROLLBACK TO s").await;
    client.send(&run("before")).await;
    assert_eq!(tags(&client.until_ready().await), "DDDCZ");
    client.send(&run("within")).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), answer[0].sqlstate().as_str()), ("EZ", "34000"));
    // What was released is part of what is around it.
    client.query("ROLLBACK TO s").await;
    client.query("SAVEPOINT r").await;
    client.send(&[bind("kept", "q", &[]), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "2Z");
    client.query("RELEASE r").await;
    client.query("SAVEPOINT u").await;
    client.query("ROLLBACK TO u").await;
    client.send(&run("kept")).await;
    assert_eq!(tags(&client.until_ready().await), "DDDCZ");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_executed_and_closed_like_a_portal() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    let declare = "BEGIN; DECLARE \"a \"\"c\" CURSOR FOR SELECT i FROM generate_series(1, 5) AS g (i)";
    let name = "a \"c";
    client.query(declare).await;
    client.send(&[execute(name, 2), execute(name, 0), execute(name, 0), sync()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!(tags(&answer), "DDsDDDCCZ");
    assert_eq!(rows(&answer), ["1", "2", "3", "4", "5"]);
    assert_eq!((answer[6].command_tag(), answer[7].command_tag()), ("SELECT 3", "SELECT 0"));
    // Its name is taken.
    client.send(&[parse("q", "SELECT 1"), bind(name, "q", &[]), sync()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), answer[1].sqlstate().as_str()), ("1EZ", "42P03"));
    client.query("ROLLBACK").await;
    client.query(declare).await;
    client.send(&[named(b'C', b'P', name), execute(name, 0), sync()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), answer[1].sqlstate().as_str()), ("3EZ", "34000"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_with_a_name_is_a_cursor_of_sql() {
    let server = TestServer::start().await;
    let mut client = suspended(&server, "BEGIN").await;
    let listed = client.query("SELECT name, statement, is_holdable, is_scrollable FROM pg_cursors").await;
    assert_eq!(rows(&listed), ["p|SELECT i FROM generate_series(1, 100) AS g (i)|f|f"]);
    // Whoever asks goes on where it stands.
    assert_eq!(rows(&client.query("FETCH 2 FROM p").await), ["4", "5"]);
    let moved = client.query("MOVE FORWARD 3 p").await;
    assert_eq!(moved[0].command_tag(), "MOVE 3");
    client.send(&[execute("p", 2), parse("f", "FETCH 1 FROM p"), bind("", "f", &[]), sync()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), rows(&answer).concat().as_str()), ("DDs12Z", "910"));
    client.send(&[bind("g", "f", &[]), execute("g", 0), sync()].concat()).await;
    assert_eq!(rows(&client.until_ready().await), ["11"]);
    let moved = client.query("MOVE ALL IN p").await;
    assert_eq!(moved[0].command_tag(), "MOVE 89");
    client.send(&[execute("p", 0), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "CZ");
    assert_eq!(client.query("CLOSE p").await[0].command_tag(), "CLOSE CURSOR");
    assert_eq!(rows(&client.query("SELECT name FROM pg_cursors ORDER BY name").await), ["g"]);
    client.query("CLOSE ALL").await;
    assert_eq!(rows(&client.query("SELECT name FROM pg_cursors").await), Vec::<String>::new());
    assert_eq!(client.query("FETCH 1 FROM p").await[0].sqlstate(), "34000");
    // It goes forwards only, its name is taken, and it ends with its block.
    for (text, sqlstate) in [("FETCH PRIOR FROM p", "55000"), ("DECLARE p CURSOR FOR SELECT 1", "42P03")] {
        let mut client = suspended(&server, "BEGIN").await;
        assert_eq!(client.query(text).await[0].sqlstate(), sqlstate, "{text}");
        client.query("ROLLBACK").await;
        assert_eq!(rows(&client.query("SELECT name FROM pg_cursors").await), Vec::<String>::new(), "{text}");
    }
    let mut client = RawClient::connect(server.address()).await;
    client.query("BEGIN").await;
    client.send(&[parse("", "SELECT 1 UNION ALL SELECT 2"), bind("p", "", &[]), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "12Z");
    assert_eq!(rows(&client.query("FETCH ALL FROM p").await), ["1", "2"]);
    server.stop().await;
}

/// From Bind on, executed or not, until it is closed; what changes rows has done so at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_portal_keeps_the_tables_that_it_reads_as_they_are() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1), (2)").await;
    let alter = "ALTER TABLE t ADD b int";
    let made = |text: &str| [parse("", text), bind("p", "", &[])].concat();
    let (query, insert) = (made("SELECT a FROM t"), made("INSERT INTO t VALUES (3) RETURNING a"));
    let (some, all, close) = (execute("p", 1), execute("p", 0), named(b'C', b'P', "p"));
    let refused = "55006";
    for (messages, sqlstate) in [
        (query.clone(), refused),
        ([query.as_slice(), &some].concat(), refused),
        ([query.as_slice(), &all].concat(), refused),
        ([query.as_slice(), &some, &close].concat(), ""),
        (insert.clone(), ""),
        ([insert.as_slice(), &some].concat(), ""),
    ] {
        client.query("BEGIN").await;
        client.send(&[messages, sync()].concat()).await;
        client.until_ready().await;
        let answer = client.query(alter).await;
        let found = if answer[0].tag == 'E' { answer[0].sqlstate() } else { String::new() };
        assert_eq!(found, sqlstate);
        client.query("ROLLBACK").await;
    }
    // The unnamed one, too, if what would change the table has a name; and outside of a block.
    let unnamed = [parse("", "SELECT a FROM t"), bind("", "", &[]), execute("", 1)].concat();
    let change = [parse("c", alter), bind("c", "c", &[]), execute("c", 0), sync()].concat();
    client.send(&[unnamed, change].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "12Ds12EZ");
    let change = [parse("", alter), bind("", "", &[]), execute("", 0), sync()].concat();
    client.send(&[query, some, change].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "12Ds12EZ");
    assert_eq!(client.query(alter).await[0].command_tag(), "ALTER TABLE");
    server.stop().await;
}

/// All that the client has bound, whatever they do, and the one that asks.
#[tokio::test(flavor = "multi_thread")]
async fn portals_are_listed_with_and_without_a_name() {
    let server = TestServer::start().await;
    let mut client = suspended(&server, "BEGIN").await;
    let ask = "SELECT name, statement FROM pg_cursors ORDER BY name";
    client.send(&[parse("", "SHOW work_mem"), bind("s", "", &[]), sync()].concat()).await;
    client.until_ready().await;
    client.send(&[parse("", ask), bind("", "", &[]), execute("", 0), sync()].concat()).await;
    let others = ["p|SELECT i FROM generate_series(1, 100) AS g (i)", "s|SHOW work_mem"];
    let itself = format!("|{ask}");
    let listed = rows(&client.until_ready().await);
    assert_eq!(listed, [itself.as_str(), others[0], others[1]]);
    assert_eq!(rows(&client.query(ask).await), others);
    // An unnamed one that is not done, beside one with a name.
    client.send(&[parse("", "SELECT 1"), bind("", "", &[]), sync()].concat()).await;
    client.until_ready().await;
    let ask = "SELECT count(*) FROM pg_cursors WHERE name IN ('', 'q')";
    client.send(&[parse("ask", ask), sync()].concat()).await;
    client.until_ready().await;
    client.send(&[bind("q", "ask", &[]), execute("q", 0), sync()].concat()).await;
    assert_eq!(rows(&client.until_ready().await), ["2"]);
    server.stop().await;
}
