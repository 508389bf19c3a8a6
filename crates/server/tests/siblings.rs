//! Sibling transactions over the wire: parameters, what an idle doomed client holds, and requests
//! that are handed back.

use std::time::Duration;

use cognate_client::application::{ApplicationServer, Branches, Failure, Options, Patience};
use cognate_client::etransaction::{Reply, Text};
use cognate_client::http;
use cognate_client::postgres::{PostgresConnection, PostgresSite};
use cognate_server::config::Settings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_postgres::Client;

use crate::client::{self, RawClient};
use crate::support::TestServer;

async fn lines(client: &Client, statement: &str) -> Vec<String> {
    told(client, statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"))
}

async fn told(client: &Client, statement: &str) -> Result<Vec<String>, tokio_postgres::Error> {
    let answers = client.simple_query(statement).await?;
    let row = |answer: tokio_postgres::SimpleQueryMessage| match answer {
        tokio_postgres::SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or("-").to_owned()).collect::<Vec<_>>().join("|"))
        }
        _ => None,
    };
    Ok(answers.into_iter().filter_map(row).collect())
}

/// Makes the table `t` with the rows (1, 0) and (2, 0).
async fn with_two_rows(client: &Client) {
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0), (2, 0)")
        .await
        .expect("made");
}

/// Dooms instance 1 of a family, which has written both rows: instance 2 writes the first one and
/// is prepared. Then row 2 is written, which is instance 1's alone: that ends only if it was
/// let go.
async fn doom(client: &Client, xid: &str) {
    let begin = format!("BEGIN MIP <{xid},2>; UPDATE t SET v = 2 WHERE id = 1");
    client.batch_execute(&begin).await.expect("begun");
    client.batch_execute(&format!("PREPARE MIP <{xid},2> 'req' 'two'")).await.expect("prepared");
    client.batch_execute("UPDATE t SET v = 9 WHERE id = 2").await.expect("not blocked for ever");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_works_with_parameters() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY, v int)").await.expect("created");
    let begin = client.prepare("SELECT * FROM cognate_mip_begin($1, $2)").await.expect("prepared");
    let prepare =
        client.prepare("SELECT * FROM cognate_mip_prepare($1, $2::bigint, $3, $4)").await.expect("prepared");
    let commit = client.prepare("SELECT cognate_mip_commit($1, $2)").await.expect("prepared");
    for number in 1..=3_i64 {
        let xid = format!("c/{number}, it's '");
        let begun = client.query(&begin, &[&xid, &number]).await.expect("begun");
        assert_eq!((begun[0].get::<_, &str>("state"), begun[0].get("decided")), ("active", false));
        client.execute("INSERT INTO t VALUES ($1, 0)", &[&(number as i32)]).await.expect("inserted");
        let table = client.query(&prepare, &[&xid, &number, &"req", &"res\u{e9}"]).await.expect("prepared");
        let row: (i64, &str, &str, &str) =
            (table[0].get(0), table[0].get(1), table[0].get(2), table[0].get(3));
        assert_eq!(row, (number, "prepared", "res\u{e9}", "req"));
        let table = client.query(&commit, &[&xid, &number]).await.expect("committed");
        assert_eq!(table[0].get::<_, &str>("state"), "committed");
        let late = client.query(&begin, &[&xid, &(number + 1)]).await.expect("told");
        assert_eq!((late[0].get::<_, &str>("result"), late[0].get("decided")), ("res\u{e9}", true));
        // It goes on all the same.
        let again = client.execute("INSERT INTO t VALUES (99, 0)", &[]).await.expect_err("decided");
        let again = again.as_db_error().expect("the server's");
        assert_eq!((again.code().code(), again.detail()), ("MI015", Some("Its result is: res\u{e9}")));
        client.batch_execute("ROLLBACK").await.expect("over");
    }
    assert_eq!(lines(&client, "SELECT count(*) FROM t").await, ["3"]);
    let error = client.query(&begin, &[&"x".repeat(201), &1_i64]).await.expect_err("too long");
    assert_eq!(error.code().map(|code| code.code()), Some("MI002"));
    server.stop().await;
}

/// An application server stalls between two statements; its instance is doomed. Its locks go at
/// once, though it says nothing, and though it has a savepoint: that brings nothing back.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_client_does_not_keep_the_locks_of_a_doomed_instance() {
    let server = TestServer::start().await;
    let (stalled, other) = (server.connect().await, server.connect().await);
    with_two_rows(&other).await;
    let stalls = ["", "; SAVEPOINT s", "; SAVEPOINT s; UPDATE t SET v = 3", "; SAVEPOINT s; SELECT 1/0"];
    for (round, stall) in stalls.into_iter().enumerate() {
        let begin = format!("BEGIN MIP <x/{round},1>; UPDATE t SET v = 1{stall}");
        let failure = stalled.batch_execute(&begin).await.err();
        let failure = failure.and_then(|error| error.code().map(|code| code.code().to_owned()));
        assert_eq!(failure.as_deref(), stall.ends_with("1/0").then_some("22012"), "{stall}");
        doom(&other, &format!("x/{round}")).await;
        for (statement, state) in [("SELECT 1", "25P02"), ("ROLLBACK TO s", "MI011"), ("SELECT 1", "25P02")] {
            let error = stalled.batch_execute(statement).await.expect_err("it is over");
            assert_eq!(error.code().map(|code| code.code()), Some(state), "{stall}");
        }
        let prepare = format!("PREPARE MIP <x/{round},1> 'req' 'one'");
        assert_eq!(lines(&stalled, &prepare).await, ["2|prepared|two|req"]);
        other.batch_execute(&format!("COMMIT MIP <x/{round},2>")).await.expect("committed");
        assert_eq!(lines(&other, "SELECT v FROM t ORDER BY id").await, ["2", "9"]);
        // What it was told before has nothing to do with what comes.
        stalled.batch_execute("BEGIN; SAVEPOINT s; ROLLBACK TO s; COMMIT").await.expect("another block");
    }
    server.stop().await;
}

/// Nor does one that has stopped in the middle of an answer, and reads no more of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_does_not_keep_the_locks_of_a_doomed_instance() {
    let server = TestServer::start().await;
    let other = server.connect().await;
    with_two_rows(&other).await;
    let mut stalled = RawClient::connect(server.address()).await;
    assert_eq!(client::tags(&stalled.query("BEGIN MIP <x,1>; UPDATE t SET v = 1").await), "TCC");
    // More than the buffers between take.
    let much = client::string("SELECT repeat('x', 1000000) FROM generate_series(1, 64)");
    stalled.send(&client::message(b'Q', &much)).await;
    assert_eq!((stalled.message().await.tag, stalled.message().await.tag), ('T', 'D'));
    doom(&other, "x").await;
    let answer = stalled.until_ready().await;
    assert!(client::tags(&answer).ends_with("EZ") && answer.len() < 64, "{}", client::tags(&answer));
    assert_eq!(answer[answer.len() - 2].sqlstate(), "MI011");
    assert_eq!(stalled.query("SELECT 1").await[0].sqlstate(), "25P02");
    assert_eq!(client::tags(&stalled.query("PREPARE MIP <x,1> 'req' 'one'").await), "TDC");
    other.batch_execute("COMMIT MIP <x,2>").await.expect("committed");
    assert_eq!(lines(&other, "SELECT v FROM t ORDER BY id").await, ["2", "9"]);
    server.stop().await;
}

/// Nor does one whose statement would go on for hours.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_runs_does_not_keep_the_locks_of_a_doomed_instance() {
    let server = TestServer::start().await;
    let other = server.connect().await;
    with_two_rows(&other).await;
    let mut busy = RawClient::connect(server.address()).await;
    let much = "SELECT count(*) FROM generate_series(1, 1000000000000000)";
    let statements = ["SELECT pg_sleep(100000)", much, "DO $$ BEGIN PERFORM pg_sleep(100000); END $$"];
    for (round, statement) in statements.into_iter().enumerate() {
        busy.query(&format!("BEGIN MIP <x/{round},1>; UPDATE t SET v = 1")).await;
        busy.send(&client::message(b'Q', &client::string(statement))).await;
        let running = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()";
        while lines(&other, running).await.is_empty() {
            tokio::task::yield_now().await;
        }
        doom(&other, &format!("x/{round}")).await;
        let answer = busy.until_ready().await;
        let failures = answer.iter().filter(|message| message.tag == 'E');
        assert_eq!(failures.map(client::Message::sqlstate).collect::<Vec<_>>(), ["MI011"], "{statement}");
        let prepare = format!("PREPARE MIP <x/{round},1> 'req' 'one'");
        assert_eq!(client::tags(&busy.query(&prepare).await), "TDC", "{statement}");
        other.batch_execute(&format!("COMMIT MIP <x/{round},2>")).await.expect("committed");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_may_write_unless_its_session_is_read_only() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.expect("made");
    client.batch_execute("SET default_transaction_read_only = on").await.expect("set");
    client.batch_execute("BEGIN MIP <x,1>").await.expect("begun");
    assert_eq!(lines(&client, "SHOW transaction_read_only").await, ["on"]);
    let refused = client.batch_execute("INSERT INTO t VALUES (1)").await.expect_err("it only reads");
    assert_eq!(refused.code().map(|code| code.code()), Some("25006"));
    client.batch_execute("ROLLBACK; RESET default_transaction_read_only").await.expect("ended");
    client.batch_execute("BEGIN MIP <x,2>; INSERT INTO t VALUES (1)").await.expect("written");
    client.batch_execute("ROLLBACK").await.expect("ended");
    server.stop().await;
}

/// What an application server answers is not looked at, and not kept: it may have no end.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_an_end_is_given_up() {
    const MEGABYTES_MAX: usize = 256;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let server = TestServer::start().await;
    let client = server.connect().await;
    client.batch_execute("BEGIN MIP <x,1>").await.expect("begun");
    client.batch_execute("PREPARE MIP <x,1> 'buy' 'order'").await.expect("prepared");
    client.batch_execute("SET cognate.in_doubt_push_after = '1ms'").await.expect("set");
    client.batch_execute(&format!("SET cognate.application_servers = '{url}'")).await.expect("set");
    let (mut socket, _) = listener.accept().await.expect("a caller");
    socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("answered");
    let (megabyte, mut sent) = (vec![b'x'; 1 << 20], 0);
    while sent < MEGABYTES_MAX && socket.write_all(&megabyte).await.is_ok() {
        sent += 1;
    }
    assert!(sent < MEGABYTES_MAX, "it was read to the end");
    server.stop().await;
}

/// Takes one HTTP request and answers it; the answer is its head and body.
async fn take_request(listener: &tokio::net::TcpListener) -> String {
    let (mut socket, _) = listener.accept().await.expect("a caller");
    let mut text = Vec::new();
    loop {
        let mut buffer = [0; 1024];
        let read = socket.read(&mut buffer).await.expect("read");
        text.extend_from_slice(&buffer[..read]);
        let so_far = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = so_far.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if Some(body.len()) == length.and_then(|length| length.parse().ok()) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                socket.write_all(answer).await.expect("answered");
                return so_far;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_left_prepared_is_handed_to_an_application_server() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let settings = Settings { site: Some(7), ..Settings::default() };
    let server = TestServer::with(settings).await;
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)")
        .await
        .expect("made");
    client.batch_execute("BEGIN MIP <c/9,1024>; UPDATE t SET v = 1").await.expect("begun");
    client.batch_execute("PREPARE MIP <c/9,1024> 'buy 1' 'order 5'").await.expect("prepared");
    assert_eq!(server.metric("cognate_in_doubt_families").await, 1);
    assert_eq!(server.metric("cognate_in_doubt_locks").await, 2);
    assert_eq!(lines(&client, "SHOW cognate.in_doubt_push_after").await, ["10s"]);
    client.batch_execute("SET cognate.in_doubt_push_after = '1ms'").await.expect("set");
    client.batch_execute(&format!("SET cognate.application_servers = '{url}/base'")).await.expect("set");
    let request = take_request(&listener).await;
    assert!(request.starts_with("POST /base/etx HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nidempotency-key: c/9\r\n"), "{request}");
    // Attempt 2 in lane 7.
    assert!(request.contains("\r\netx-instance: 2055\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\nbuy 1"), "{request}");
    assert!(server.metric("cognate_in_doubt_pushes_total").await >= 1);
    client.batch_execute("COMMIT MIP <c/9,1024>").await.expect("committed");
    assert_eq!(server.metric("cognate_in_doubt_families").await, 0);
    assert_eq!(server.metric("cognate_in_doubt_age_ms_max").await, 0);
    let wrong =
        client.batch_execute("SET cognate.application_servers = 'ftp://x'").await.expect_err("no URL");
    assert_eq!(wrong.code().map(|code| code.code()), Some("22023"));
    client.batch_execute("SET cognate.application_servers = DEFAULT").await.expect("set");
    assert_eq!(lines(&client, "SHOW cognate.application_servers").await, [""]);
    server.stop().await;
}

/// Adds 1 at both sites.
async fn add_one(_: Text, branches: Branches<PostgresConnection>) -> Result<String, Failure> {
    for site in 0..branches.sites() {
        branches.site(site).execute("UPDATE t SET v = v + 1 WHERE id = 1", &[]).await?;
    }
    Ok("added".to_owned())
}

/// The client is dead, and so is the server that prepared: the stub's pushes, over a real
/// application server, decide the families at both sites.
#[tokio::test(flavor = "multi_thread")]
async fn the_stub_and_an_application_server_decide_what_was_left_prepared() {
    let with = |site| TestServer::with(Settings { site: Some(site), ..Settings::default() });
    let sites = [with(1).await, with(2).await];
    let clients = [sites[0].connect().await, sites[1].connect().await];
    for client in &clients {
        client
            .batch_execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)")
            .await
            .expect("made");
    }
    // The first family is prepared at one site only, the second at both, by one execution.
    let stored = "00000000000000aa done";
    let left = [("c/1", 1), ("c/2", 2)].map(|(xid, prepared)| (xid, &clients[..prepared]));
    for (xid, prepared) in left {
        for client in prepared {
            client
                .batch_execute(&format!(
                    "BEGIN MIP <{xid},1024>; INSERT INTO t VALUES ({}, 10)",
                    xid.len() + prepared.len()
                ))
                .await
                .expect("begun");
            client
                .batch_execute(&format!("PREPARE MIP <{xid},1024> 'add' '{stored}'"))
                .await
                .expect("prepared");
        }
    }
    let address =
        |site: &TestServer| format!("host=127.0.0.1 port={} user=ann dbname=any", site.address().port());
    let reached = sites.each_ref().map(|site| address(site).parse::<PostgresSite>().expect("an address"));
    let router = http::router(ApplicationServer::new(reached, Options::default()), add_one);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let serving = tokio::spawn(http::serve(listener, router, std::future::pending()));
    for client in &clients {
        client.batch_execute("SET cognate.in_doubt_push_after = '1ms'").await.expect("set");
        client.batch_execute(&format!("SET cognate.application_servers = '{url}'")).await.expect("set");
    }
    // What is in doubt may be withdrawn first, for the push that is executed in its place.
    for client in &clients {
        let is_committed = |lines: Vec<String>| lines.iter().any(|line| line.contains("|committed|"));
        while !told(client, "SHOW MIPT c/1").await.is_ok_and(is_committed) {
            tokio::task::yield_now().await;
        }
    }
    for site in &sites {
        site.metric_becomes("cognate_in_doubt_families", 0).await;
    }
    serving.abort();
    for client in &clients {
        // The metric is as new as memory; this answer is given once that is durable, and so seen by
        // all that follow.
        assert_eq!(lines(client, "SELECT request FROM cognate_in_doubt").await, [""; 0]);
        // Of the first family nothing is left but what the push executed; of the second what was
        // prepared, and nothing was executed again.
        let rows = lines(client, "SELECT id, v FROM t ORDER BY id").await;
        assert_eq!(rows, ["1|1", "5|10"]);
        assert_eq!(lines(client, "SHOW MIPT c/2").await, [format!("1024|committed|{stored}|add")]);
        let decided = lines(client, "SHOW MIPT c/1").await;
        let winner: Vec<&String> = decided.iter().filter(|line| line.contains("|committed|")).collect();
        assert!(winner.len() == 1 && !winner[0].starts_with("1024|"), "{decided:?}");
        assert!(winner[0].ends_with(" added|add"), "{decided:?}");
    }
    for site in sites {
        site.stop().await;
    }
}

/// Two sites: at the first R and C are refused because of each other (each reads what the other
/// writes), at the second they wait for each other.
struct Crossing {
    sites: [TestServer; 2],
    clients: [Client; 2],
    server: ApplicationServer<PostgresSite>,
}

/// What R and C do; R's row at the first site is 1, C's is 2.
async fn cross(request: Text, branches: Branches<PostgresConnection>) -> Result<String, Failure> {
    let own: i32 = if &*request == "R" { 1 } else { 2 };
    branches.site(0).query("SELECT sum(v) FROM t", &[]).await?;
    branches.site(0).execute("UPDATE t SET v = v + 1 WHERE id = $1", &[&own]).await?;
    branches.site(1).execute("UPDATE t SET v = v + 1 WHERE id = 1", &[]).await?;
    Ok(format!("{request} done"))
}

impl Crossing {
    /// R is prepared at the first site only, since its server has stopped; C at the second only,
    /// since the first has refused it, and then its server has stopped, too.
    async fn blocked() -> Crossing {
        let with = |site| TestServer::with(Settings { site: Some(site), ..Settings::default() });
        let sites = [with(1).await, with(2).await];
        let clients = [sites[0].connect().await, sites[1].connect().await];
        for client in &clients {
            with_two_rows(client).await;
        }
        let reached = sites.each_ref().map(|site| {
            let address = format!("host=127.0.0.1 port={} user=ann dbname=any", site.address().port());
            address.parse::<PostgresSite>().expect("an address")
        });
        let patience = Patience { logic: Duration::from_millis(700), ..Patience::default() };
        let server =
            ApplicationServer::new(reached, Options { patience, attempts_max: 30, ..Options::default() });
        let dead = [sites[0].connect().await, sites[1].connect().await];
        for (client, row) in dead.iter().zip([1, 1]) {
            client.batch_execute("BEGIN MIP <r/1,1024>; SELECT sum(v) FROM t").await.expect("begun");
            client.batch_execute(&format!("UPDATE t SET v = v + 1 WHERE id = {row}")).await.expect("R");
        }
        let stored = "00000000000000aa dead";
        dead[0].batch_execute(&format!("PREPARE MIP <r/1,1024> 'R' '{stored}'")).await.expect("prepared");
        drop(dead);
        let dead = [sites[0].connect().await, sites[1].connect().await];
        for (client, row) in dead.iter().zip([2, 1]) {
            client.batch_execute("BEGIN MIP <c/1,1024>; SELECT sum(v) FROM t").await.expect("begun");
            client.batch_execute(&format!("UPDATE t SET v = v + 1 WHERE id = {row}")).await.expect("C");
        }
        let prepare = format!("PREPARE MIP <c/1,1024> 'C' '{stored}'");
        dead[1].batch_execute(&prepare).await.expect("prepared");
        let refused = dead[0].batch_execute(&prepare).await.expect_err("R is prepared");
        assert_eq!(refused.code().map(|code| code.code()), Some("40001"));
        drop(dead);
        for (client, families) in clients.iter().zip(["r/1", "c/1"]) {
            assert_eq!(lines(client, "SELECT family FROM cognate_in_doubt").await, [families]);
        }
        Crossing { sites, clients, server }
    }

    async fn answered(&self, xid: &str, request: &str) {
        let reply = self.server.answer(xid, request, &cross).await.expect("the key is good");
        assert!(
            matches!(&reply, Reply::Done { result, .. } if **result == format!("{request} done")),
            "{reply:?}"
        );
    }

    /// Each of the two was executed once, at both sites.
    async fn end(self, first: &str, second: &str) {
        for (client, rows) in self.clients.iter().zip([first, second]) {
            assert_eq!(lines(client, "SELECT string_agg(v::text, ' ' ORDER BY id) FROM t").await, [rows]);
            assert_eq!(lines(client, "SELECT family FROM cognate_in_doubt").await, Vec::<String>::new());
        }
        for site in self.sites {
            site.stop().await;
        }
    }
}

/// Without withdrawal R's retries would wait for C, and C's be refused because of R, for ever.
#[tokio::test(flavor = "multi_thread")]
async fn two_requests_that_block_each_other_are_both_answered() {
    let crossing = Crossing::blocked().await;
    // R alone cannot go on: what C has prepared is C's. But it gets out of the way, and C's retry
    // does so before it begins.
    let alone = crossing.server.run("r/1", 2048, "R", &cross).await.expect("the key is good");
    assert!(matches!(alone, Reply::Retry { .. }), "{alone:?}");
    let mut shown = lines(&crossing.clients[0], "SHOW MIPT r/1").await;
    // A connection that was given up in the middle of a statement is rolled back a little later.
    while shown.iter().any(|line| line.contains("|active|")) {
        shown = lines(&crossing.clients[0], "SHOW MIPT r/1").await;
    }
    assert!(shown.iter().all(|line| line.contains("|aborted|")), "{shown:?}");
    crossing.answered("c/1", "C").await;
    let shown = lines(&crossing.clients[1], "SHOW MIPT c/1").await;
    assert!(shown[0].ends_with(" C done|C") && shown.len() == 1, "{shown:?}");
    crossing.answered("r/1", "R").await;
    crossing.end("1 1", "2 0").await;

    let crossing = Crossing::blocked().await;
    tokio::join!(crossing.answered("r/1", "R"), crossing.answered("c/1", "C"));
    crossing.end("1 1", "2 0").await;
}

/// Both clients are dead: the stubs' pushes withdraw or decide both, and strangers get the rows.
#[tokio::test(flavor = "multi_thread")]
async fn the_stubs_resolve_two_requests_that_block_each_other() {
    let crossing = Crossing::blocked().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let router = http::router(crossing.server.clone(), cross);
    let serving = tokio::spawn(http::serve(listener, router, std::future::pending()));
    for client in &crossing.clients {
        client.batch_execute("SET cognate.in_doubt_push_after = '1ms'").await.expect("set");
        client.batch_execute(&format!("SET cognate.application_servers = '{url}'")).await.expect("set");
    }
    for site in &crossing.sites {
        site.metric_becomes("cognate_in_doubt_families", 0).await;
    }
    serving.abort();
    for client in &crossing.clients {
        client.batch_execute("UPDATE t SET v = v + 1").await.expect("nobody holds a row");
    }
    for site in crossing.sites {
        site.stop().await;
    }
}

/// A prepared transaction outlives the server; the metric shows it.
#[tokio::test(flavor = "multi_thread")]
async fn prepared_transactions_outlive_the_server() {
    let server = TestServer::start().await;
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)")
        .await
        .expect("made");
    client.batch_execute("BEGIN; UPDATE t SET v = 1; PREPARE TRANSACTION 'x'").await.expect("prepared");
    let folder = server.stop().await;
    let running = TestServer::open(Settings::default(), folder.path().join("data")).await;
    let client = crate::support::connect(running.listen()).await;
    assert_eq!(lines(&client, "SELECT gid, owner, database FROM pg_prepared_xacts").await, ["x|ann|any"]);
    client.batch_execute("COMMIT PREPARED 'x'").await.expect("committed");
    assert_eq!(lines(&client, "SELECT v FROM t").await, ["1"]);
    running.stop().await.expect("an orderly stop");
}
