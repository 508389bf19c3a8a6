//! Portals, cursors and named statements as the extended protocol meets them, where what they were
//! made of has changed or ended.

use crate::client::{Message, RawClient, bind, execute, named, parse, sync, tags};
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
async fn a_portal_ends_with_its_transaction_also_where_the_next_one_begins_at_once() {
    let server = TestServer::start().await;
    for end in ["COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "COMMIT; BEGIN; SELECT 1"] {
        let mut client = suspended(&server, "BEGIN").await;
        client.query(end).await;
        client.send(&[execute("p", 3), sync()].concat()).await;
        let answer = client.until_ready().await;
        assert_eq!((tags(&answer).as_str(), answer[0].sqlstate().as_str()), ("EZ", "34000"), "{end}");
    }
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
