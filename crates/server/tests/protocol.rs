//! Conversations that keep to the protocol: what is answered, in what order, and when it is sent.

use crate::client::{Message, RawClient, bind, execute, message, named, parse, string, sync, tags};
use crate::support::TestServer;

fn rows(messages: &[Message]) -> Vec<String> {
    let rows = messages.iter().filter(|message| message.tag == 'D');
    rows.map(|row| row.values().into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join("|"))
        .collect()
}

async fn prepared(server: &TestServer) -> RawClient {
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE t (id int PRIMARY KEY, n int)").await;
    client.query("INSERT INTO t SELECT i, i * 10 FROM generate_series(1, 100) AS g(i)").await;
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_answers_tell_what_drivers_need() {
    let server = TestServer::start().await;
    let mut client = RawClient::started(server.address()).await;
    let answer = client.until_ready().await;
    let parameters: std::collections::BTreeMap<String, String> = answer
        .iter()
        .filter(|message| message.tag == 'S')
        .map(|message| {
            let mut parts = message.body.split(|&b| b == 0).map(|part| String::from_utf8(part.to_vec()));
            let mut next = || parts.next().expect("a string").expect("UTF-8");
            (next(), next())
        })
        .collect();
    for (name, value) in [
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("standard_conforming_strings", "on"),
        ("integer_datetimes", "on"),
        ("in_hot_standby", "off"),
        ("DateStyle", "ISO, MDY"),
        ("is_superuser", "on"),
        ("session_authorization", "ann"),
    ] {
        assert_eq!(parameters.get(name).map(String::as_str), Some(value), "{name}");
    }
    let version = parameters.get("server_version").expect("a version");
    assert!(version.split('.').next().and_then(|major| major.parse::<u32>().ok()) >= Some(14), "{version}");
    assert!(parameters.contains_key("TimeZone"));
    assert!(tags(&answer).ends_with("KZ"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_may_hold_many_statements_and_is_one_transaction() {
    let server = TestServer::start().await;
    let mut client = prepared(&server).await;
    let answer = client.query("SELECT 1; ; SELECT 2, 'x'").await;
    assert_eq!(tags(&answer), "TDCTDC");
    assert_eq!(rows(&answer), ["1", "2|x"]);
    assert_eq!(tags(&client.query("").await), "I");
    assert_eq!(tags(&client.query(" ; -- nothing").await), "I");
    let answer =
        client.query("INSERT INTO t VALUES (101, 0); SELECT 1/0; INSERT INTO t VALUES (102, 0)").await;
    assert_eq!(tags(&answer), "CTE");
    assert_eq!(answer[2].sqlstate(), "22012");
    assert_eq!(rows(&client.query("SELECT count(*) FROM t").await), ["100"]);
    let answer = client.query("SELECT x FROM t").await;
    assert_eq!(answer[0].sqlstate(), "42703");
    assert_eq!(answer[0].field('P').as_deref(), Some("8"));
    let answer = client.query("INSERT INTO t VALUES (101, 0); COMMIT; INSERT INTO t VALUES (101, 0)").await;
    assert_eq!(answer.last().expect("an answer").sqlstate(), "23505");
    assert_eq!(rows(&client.query("SELECT count(*) FROM t").await), ["101"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_has_no_parameters() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    for text in ["SELECT $1", "SELECT $1::int + 1", "EXPLAIN SELECT $1", "CREATE TABLE x AS SELECT $1"] {
        let answer = client.query(text).await;
        assert_eq!((tags(&answer).as_str(), answer[0].sqlstate().as_str()), ("E", "42P02"), "{text}");
    }
    assert_eq!(tags(&client.query("PREPARE q AS SELECT $1::int; EXECUTE q(1)").await), "CTDC");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_for_query_tells_the_state_of_the_block() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    for (text, status) in [
        ("SELECT 1", b'I'),
        ("BEGIN", b'T'),
        ("SELECT 1", b'T'),
        ("SELECT 1/0", b'E'),
        ("SELECT 1", b'E'),
        ("COMMIT", b'I'),
    ] {
        client.send(&message(b'Q', &string(text))).await;
        let answer = client.until_ready().await;
        assert_eq!(answer.last().expect("an answer").body, [status], "{text}");
        if text == "COMMIT" {
            assert_eq!(answer[0].command_tag(), "ROLLBACK");
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_block_keeps_locks_only_for_a_savepoint() {
    let server = TestServer::start().await;
    let (mut client, mut other) = (prepared(&server).await, RawClient::connect(server.address()).await);
    let lock = "SELECT n FROM t WHERE id = 2 FOR UPDATE NOWAIT";
    client.query("BEGIN; UPDATE t SET n = 0 WHERE id = 2; SELECT 1/0").await;
    assert_eq!(rows(&other.query(lock).await), ["20"]);
    client.query("ROLLBACK").await;
    client.query("BEGIN; UPDATE t SET n = 0 WHERE id = 2; SAVEPOINT s; SELECT 1/0").await;
    assert_eq!(other.query(lock).await.last().expect("an error").sqlstate(), "55P03");
    assert_eq!(tags(&client.query("ROLLBACK TO s; COMMIT").await), "CC");
    assert_eq!(rows(&other.query(lock).await), ["0"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_is_answered_in_order_and_an_error_skips_to_the_next_sync() {
    let server = TestServer::start().await;
    let mut client = prepared(&server).await;
    let unit = |id: &str| [bind("", "s", &[id]), execute("", 0), sync()].concat();
    let pipeline = [
        parse("s", "SELECT n FROM t WHERE id = $1::int"),
        named(b'D', b'S', "s"),
        unit("1"),
        unit("two"),
        unit("3"),
        [bind("", "s", &["4"]), named(b'D', b'P', ""), execute("", 0), bind("", "s", &["x"]), execute("", 0)]
            .concat(),
        sync(),
        unit("5"),
    ];
    client.send(&pipeline.concat()).await;
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(client.until_ready().await);
    }
    let seen: Vec<_> = answers.iter().map(|answer| tags(answer)).collect();
    assert_eq!(seen, ["1tT2DCZ", "EZ", "2DCZ", "2TDCEZ", "2DCZ"]);
    assert_eq!(answers[1][0].sqlstate(), "22P02");
    assert_eq!(rows(&answers.concat()), ["10", "30", "40", "50"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_of_the_pipeline_is_one_transaction() {
    let server = TestServer::start().await;
    let mut client = prepared(&server).await;
    let insert = |id: &str| [bind("", "i", &[id]), execute("", 0)].concat();
    let begin = parse("i", "INSERT INTO t VALUES ($1::int, 0)");
    client.send(&[begin, insert("201"), insert("202"), insert("1"), insert("203"), sync()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!(tags(&answer), "12C2C2EZ");
    assert_eq!(answer[6].sqlstate(), "23505");
    assert_eq!(rows(&client.query("SELECT count(*) FROM t").await), ["100"]);
    client.send(&[insert("201"), insert("202"), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "2C2CZ");
    assert_eq!(rows(&client.query("SELECT count(*) FROM t").await), ["102"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_be_alone_is_alone_in_its_unit_of_the_pipeline() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    let statement = |text: &str| [parse("", text), bind("", "", &[]), execute("", 0)].concat();
    client.send(&[statement("SELECT 1"), statement("DISCARD ALL"), sync()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!(tags(&answer), "12DC12EZ");
    assert_eq!(answer[6].sqlstate(), "25001");
    client.send(&[statement("SELECT 1"), sync(), statement("DISCARD ALL"), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "12DCZ");
    assert_eq!(tags(&client.until_ready().await), "12CZ");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flush_sends_what_is_there_and_nothing_is_sent_for_nobody() {
    let server = TestServer::start().await;
    let mut client = prepared(&server).await;
    let work = [parse("", "SELECT 7"), bind("", "", &[]), named(b'D', b'P', ""), execute("", 0)].concat();
    client.send(&[work, message(b'H', b"")].concat()).await;
    let mut seen = String::new();
    for _ in 0..5 {
        seen.push(client.message().await.tag);
    }
    assert_eq!(seen, "12TDC");
    client.send(&sync()).await;
    assert_eq!(tags(&client.until_ready().await), "Z");
    // An error does not wait for Sync: a client that flushed instead wants to know.
    client.send(&[parse("", "SELECT nothing"), named(b'D', b'S', ""), message(b'H', b"")].concat()).await;
    assert_eq!(client.message().await.sqlstate(), "42703");
    client.send(&sync()).await;
    assert_eq!(tags(&client.until_ready().await), "Z");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_stop_at_their_row_limit_and_go_on() {
    let server = TestServer::start().await;
    let mut client = prepared(&server).await;
    let open =
        [message(b'Q', &string("BEGIN")), parse("", "SELECT id FROM t ORDER BY id"), bind("p", "", &[])]
            .concat();
    client.send(&open).await;
    assert_eq!(tags(&client.until_ready().await), "CZ");
    client.send(&[execute("p", 3), execute("p", 2), sync()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!(tags(&answer), "12DDDsDDsZ");
    assert_eq!(rows(&answer), ["1", "2", "3", "4", "5"]);
    // The portal lives on with its block, and sees what it saw when it was made.
    client.query("DELETE FROM t WHERE id > 6").await;
    client.send(&[execute("p", 1000), sync()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!(rows(&answer).len(), 95);
    assert_eq!(answer[95].command_tag(), "SELECT 95");
    client.query("COMMIT").await;
    client.send(&[execute("p", 1), sync()].concat()).await;
    assert_eq!(client.until_ready().await[0].sqlstate(), "34000");
    // Outside a block the implicit transaction ends with Sync, and the portal with it.
    client.send(&[parse("", "SELECT 1"), bind("q", "", &[]), sync(), execute("q", 0), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "12Z");
    assert_eq!(client.until_ready().await[0].sqlstate(), "34000");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_that_is_done_changes_nothing_when_it_is_executed_again() {
    let server = TestServer::start().await;
    let mut client = prepared(&server).await;
    client.query("PREPARE reads AS SELECT 1").await;
    client.query("PREPARE inserts AS INSERT INTO t VALUES (103)").await;
    for (statement, expected) in [
        ("SELECT id FROM t WHERE id < 3", "12DDCCZ SELECT 0"),
        ("INSERT INTO t VALUES (101) RETURNING id", "12DCCZ INSERT 0 0"),
        ("SHOW work_mem", "12DCCZ SHOW"),
        ("INSERT INTO t VALUES (102)", "12CEZ 55000"),
        ("SET work_mem = '1MB'", "12CEZ 55000"),
        ("COPY (SELECT 1) TO STDOUT", "12HdcCEZ 55000"),
        ("EXECUTE reads", "12DCCZ SELECT 0"),
        ("EXECUTE inserts", "12CEZ 55000"),
        ("", "12IIZ "),
    ] {
        let twice = [parse("", statement), bind("p", "", &[]), execute("p", 0), execute("p", 0), sync()];
        client.send(&twice.concat()).await;
        let answer = client.until_ready().await;
        let last = &answer[answer.len() - 2];
        let end = match last.tag {
            'C' => last.command_tag().to_owned(),
            'E' => last.sqlstate(),
            _ => String::new(),
        };
        assert_eq!(format!("{} {end}", tags(&answer)), expected, "{statement}");
    }
    let found = client.query("SELECT id FROM t WHERE id > 100").await;
    assert_eq!(rows(&found), ["101"], "what failed the second time is rolled back");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_more_formats_than_values() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    // One parameter, `7`; so many formats of parameters, and of results.
    for (formats, results, expected) in [(0, 0, "12DCZ"), (1, 1, "12DCZ"), (3, 0, "1EZ"), (0, 3, "1EZ")] {
        let formats_of = |count: u8| [vec![0, count], vec![0; 2 * usize::from(count)]].concat();
        let value = [0, 1, 0, 0, 0, 1, b'7'];
        let body =
            [string(""), string(""), formats_of(formats), value.to_vec(), formats_of(results)].concat();
        let work = [parse("", "SELECT $1::int4"), message(b'B', &body), execute("", 0), sync()];
        client.send(&work.concat()).await;
        let answer = client.until_ready().await;
        assert_eq!(tags(&answer), expected, "{formats} and {results} formats");
        if let Some(error) = answer.iter().find(|message| message.tag == 'E') {
            assert_eq!(error.sqlstate(), "08P01");
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_without_a_plan_have_the_parameters_that_are_declared() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    let cases: &[(&str, &[u32], usize, &str)] = &[
        ("SET work_mem = '1MB'", &[23], 1, "12CZ "),
        ("PREPARE pz AS SELECT $1", &[23], 1, "12CZ "),
        ("", &[23], 1, "12IZ "),
        ("SET work_mem = '1MB'", &[23], 0, "1EZ 08P01"),
        ("SET work_mem = '1MB'", &[], 1, "1EZ 08P01"),
        ("SET work_mem = '1MB'", &[0], 1, "EZ 42P18"),
        ("CREATE VIEW v AS SELECT $1", &[23], 1, "12EZ 42P02"),
        ("CREATE VIEW v AS SELECT $1", &[], 0, "12EZ 42P02"),
        ("CREATE TABLE q (a int DEFAULT $1)", &[23], 1, "12EZ 42P02"),
        ("CREATE TABLE q (a int DEFAULT $1)", &[], 0, "12EZ 42P02"),
        ("COPY (SELECT $1) TO STDOUT", &[23], 1, "12EZ 42P02"),
        ("EXECUTE pz($1)", &[23], 1, "12EZ 42P02"),
        ("SET timezone TO $1", &[], 1, "EZ 42601"),
        ("SET TIME ZONE $1", &[25], 1, "EZ 42601"),
        ("BEGIN", &[23], 1, "12CZ "),
    ];
    for &(text, types, values, expected) in cases {
        let oids: Vec<u8> = types.iter().flat_map(|oid| oid.to_be_bytes()).collect();
        let count = (types.len() as u16).to_be_bytes().to_vec();
        let parse = message(b'P', &[string(""), string(text), count, oids].concat());
        let bind = bind("", "", &["1"][..values]);
        client.send(&[parse, bind, execute("", 0), sync()].concat()).await;
        let answer = client.until_ready().await;
        let error = answer.iter().find(|message| message.tag == 'E');
        let sqlstate = error.map(Message::sqlstate).unwrap_or_default();
        assert_eq!(format!("{} {sqlstate}", tags(&answer)), expected, "{text} {types:?}");
    }
    // A message of the simple protocol declares none.
    let answer = client.query("ROLLBACK; CREATE TABLE q (a int DEFAULT $1)").await;
    assert_eq!((tags(&answer).as_str(), answer[1].sqlstate().as_str()), ("CE", "42P02"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_taken_once_and_free_again_after_close() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.send(&[parse("a", "SELECT 1"), parse("a", "SELECT 2"), sync()].concat()).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), answer[1].sqlstate().as_str()), ("1EZ", "42P05"));
    client.send(&[named(b'C', b'S', "a"), parse("a", "SELECT 3"), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "31Z");
    client.send(&[bind("p", "a", &[]), bind("p", "a", &[]), sync()].concat()).await;
    assert_eq!(client.until_ready().await[1].sqlstate(), "42P03");
    client.query("DEALLOCATE ALL").await;
    client.send(&[bind("", "a", &[]), sync()].concat()).await;
    assert_eq!(client.until_ready().await[0].sqlstate(), "26000");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_come_in_text_or_binary_as_asked_column_by_column() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    let mut body = [string(""), string("")].concat();
    // Two parameters, the first in binary; two results, the second in binary.
    body.extend([0, 2, 0, 1, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 1, 0, 0, 0, 0, 1, b'7', 0, 2, 0, 0, 0, 1]);
    let work = [
        parse("", "SELECT $1::int4, $2::int4"),
        message(b'B', &body),
        named(b'D', b'P', ""),
        execute("", 0),
        sync(),
    ];
    client.send(&work.concat()).await;
    let answer = client.until_ready().await;
    assert_eq!(tags(&answer), "12TDCZ");
    assert_eq!(answer[3].body, b"\0\x02\0\0\0\x03256\0\0\0\x04\0\0\0\x07");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_results_stream_to_a_slow_reader() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    // 100 MB, far beyond what sockets and buffers hold.
    let text = "SELECT repeat('x', 10000), i FROM generate_series(1, 10000) AS g(i)";
    client.send(&message(b'Q', &string(text))).await;
    let mut other = RawClient::connect(server.address()).await;
    assert_eq!(tags(&other.query("SELECT 1").await), "TDC");
    let mut count = 0;
    loop {
        let message = client.message().await;
        match message.tag {
            'D' => count += 1,
            'Z' => break,
            _ => {}
        }
    }
    assert_eq!(count, 10_000);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_in_and_out() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE c (id int PRIMARY KEY, s text)").await;
    client.send(&message(b'Q', &string("COPY c FROM STDIN; SELECT count(*) FROM c"))).await;
    let opened = client.message().await;
    assert_eq!((opened.tag, opened.body.as_slice()), ('G', &b"\0\0\x02\0\0\0\0"[..]));
    // Cut anywhere; Flush and Sync do not matter.
    for part in ["1\ton", "e\n2\t", "two\n", "", "3\t\\N\n"] {
        client.send(&message(b'd', part.as_bytes())).await;
        client.send(&message(b'H', b"")).await;
    }
    client.send(&message(b'c', b"")).await;
    let answer = client.until_ready().await;
    assert_eq!((tags(&answer).as_str(), answer[0].command_tag()), ("CTDCZ", "COPY 3"));
    assert_eq!(rows(&answer), ["3"]);

    let answer = client.query("COPY c TO STDOUT").await;
    assert_eq!(tags(&answer), "HdddcC");
    let lines: Vec<_> = answer[1..4].iter().flat_map(|message| message.body.clone()).collect();
    assert_eq!(lines, b"1\tone\n2\ttwo\n3\t\\N\n");

    // A failure on either side ends the COPY and nothing of it stays.
    for (end, sqlstate) in [
        (message(b'f', b"no more\0"), "57014"),
        (message(b'd', b"8\n"), "22P04"),
        (message(b'd', b"nonsense\n"), "22P02"),
        (message(b'Q', b"SELECT 1\0"), "08P01"),
    ] {
        client
            .send(&[message(b'Q', &string("COPY c FROM STDIN")), message(b'd', b"9\tx\n"), end].concat())
            .await;
        client.send(&message(b'd', b"left over\n")).await;
        client.send(&message(b'c', b"")).await;
        let answer = client.until_ready().await;
        assert_eq!(answer[1].sqlstate(), sqlstate);
    }
    let copy = [parse("", "COPY c FROM STDIN"), bind("", "", &[]), execute("", 0), sync()].concat();
    client.send(&[copy, message(b'd', b"4\tfour\n"), message(b'c', b""), sync()].concat()).await;
    assert_eq!(tags(&client.until_ready().await), "12GCZ");
    assert_eq!(rows(&client.query("SELECT count(*) FROM c").await), ["4"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_change_are_reported() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    let answer = client.query("SET application_name = 'shop'").await;
    assert_eq!(tags(&answer), "CS");
    assert_eq!(answer[1].body, b"application_name\0shop\0");
    assert_eq!(tags(&client.query("SET application_name = 'shop'").await), "C");
    let answer = client.query("COMMIT").await;
    assert_eq!((tags(&answer).as_str(), answer[0].field('C').as_deref()), ("NC", Some("25P01")));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_gets_along_with_it() {
    let server = TestServer::start().await;
    let mut client = server.connect().await;
    client.batch_execute("CREATE TABLE d (id int8 PRIMARY KEY, s text, f float8)").await.expect("created");
    let insert = client.prepare("INSERT INTO d VALUES ($1, $2, $3)").await.expect("prepared");
    let transaction = client.transaction().await.expect("begun");
    for id in 0..10_i64 {
        transaction
            .execute(&insert, &[&id, &format!("row {id}"), &(id as f64 / 2.0)])
            .await
            .expect("inserted");
    }
    let portal = transaction.bind("SELECT id FROM d ORDER BY id", &[]).await.expect("bound");
    assert_eq!(transaction.query_portal(&portal, 4).await.expect("rows").len(), 4);
    assert_eq!(transaction.query_portal(&portal, 0).await.expect("rows").len(), 6);
    transaction.commit().await.expect("committed");
    let row = client.query_one("SELECT s, f FROM d WHERE id = $1", &[&7_i64]).await.expect("a row");
    assert_eq!((row.get::<_, &str>(0), row.get::<_, f64>(1)), ("row 7", 3.5));
    // Many at once over one connection: the driver pipelines them.
    let ids: Vec<i64> = (0..10).collect();
    let reads = ids.iter().map(|id| {
        let client = &client;
        async move {
            client.query_one("SELECT s FROM d WHERE id = $1", &[id]).await.map(|row| row.get::<_, String>(0))
        }
    });
    let mut found = Vec::new();
    for read in reads {
        found.push(read.await.expect("a row"));
    }
    assert_eq!(found[3], "row 3");
    let error = client.query("SELECT * FROM nowhere", &[]).await.expect_err("no such table");
    assert_eq!(error.code(), Some(&tokio_postgres::error::SqlState::UNDEFINED_TABLE));
    drop(client);
    server.metric_becomes("cognate_sockets", 0).await;
    server.stop().await;
}

/// The answers are PostgreSQL's.
#[tokio::test(flavor = "multi_thread")]
async fn several_copies_and_other_statements_share_a_message() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("CREATE TABLE a (x int); CREATE TABLE b (x int)").await;
    let data = |rows: &str| [message(b'd', rows.as_bytes()), message(b'c', b"")].concat();
    let fail = message(b'f', &string("no"));
    // A message, what is sent after each CopyInResponse, and the tags up to ReadyForQuery.
    let cases: [(&str, Vec<Vec<u8>>, &str); 11] = [
        ("COPY a FROM STDIN; COPY b FROM STDIN", vec![data("1\n"), data("2\n")], "GCGCZ"),
        ("COPY a FROM STDIN; SELECT count(*) FROM a", vec![data("3\n")], "GCTDCZ"),
        ("SELECT 1; COPY a FROM STDIN; SELECT 2", vec![data("4\n")], "TDCGCTDCZ"),
        ("COPY a TO STDOUT; COPY b FROM STDIN; COPY b TO STDOUT", vec![data("5\n")], "HdddcCGCHddcCZ"),
        ("COPY a TO STDOUT; COPY b TO STDOUT; SELECT 9", vec![], "HdddcCHddcCTDCZ"),
        ("COPY a FROM STDIN; SELECT 7", vec![fail], "GEZ"),
        ("COPY a FROM STDIN; COPY b FROM STDIN", vec![data("6\n"), data("x\n")], "GCGEZ"),
        ("COPY a FROM STDIN; COPY nope FROM STDIN", vec![data("8\n")], "GCEZ"),
        ("COPY a FROM STDIN; COMMIT; COPY a FROM STDIN", vec![data("9\n"), data("x\n")], "GCNCGEZ"),
        ("BEGIN; COPY a FROM STDIN; COPY b FROM STDIN; COMMIT", vec![data("10\n"), data("10\n")], "CGCGCCZ"),
        ("INSERT INTO a VALUES (20); COPY a FROM STDIN; ROLLBACK; SELECT 1", vec![data("21\n")], "CGCNCTDCZ"),
    ];
    for all_at_once in [false, true] {
        client.query("TRUNCATE a, b").await;
        for (text, answers, wanted) in &cases {
            let mut seen = String::new();
            let mut answers = answers.iter();
            client.send(&message(b'Q', &string(text))).await;
            if all_at_once {
                client.send(&answers.by_ref().flatten().copied().collect::<Vec<u8>>()).await;
            }
            while !seen.ends_with('Z') {
                let tag = client.message().await.tag;
                seen.push(tag);
                if tag == 'G' && !all_at_once {
                    client.send(answers.next().expect("no more data")).await;
                }
            }
            assert_eq!(&seen, wanted, "{text}");
        }
        assert_eq!(rows(&client.query("SELECT count(*) FROM a").await), ["5"]);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_a_block_ends_what_was_set_in_it() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    client.query("SET application_name = 'outside'").await;
    client.query("BEGIN; SET application_name = 'block'; SAVEPOINT s").await;
    client.query("SET application_name = 'savepoint'").await;
    for (text, expected) in [
        ("SELECT 1/0", Some("block")),
        ("SELECT 1", None),
        ("ROLLBACK TO s", None),
        ("SET LOCAL application_name = 'again'", Some("again")),
        ("SELECT 1/0", Some("block")),
        ("ROLLBACK", Some("outside")),
        ("BEGIN; SET application_name = 'block'", Some("block")),
        ("SELECT 1/0", Some("outside")),
        ("COMMIT", None),
    ] {
        let answer = client.query(text).await;
        let told = answer.iter().find(|message| message.tag == 'S').map(|message| message.body.clone());
        let expected = expected.map(|value| [string("application_name"), string(value)].concat());
        assert_eq!(told, expected, "{text}");
    }
    assert_eq!(rows(&client.query("SHOW application_name").await), ["outside"]);
    server.stop().await;
}
