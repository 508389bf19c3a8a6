//! The live page and what it draws.

use cognate_server::config::Settings;
use serde_json::{Value, json};

use crate::client::{RawClient, tags};
use crate::support::TestServer;

async fn reading(server: &TestServer) -> Value {
    let (status, body) = server.http("/live").await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

fn count(reading: &Value, cause: &str) -> u64 {
    let causes = reading["aborts"].as_array().expect("a list");
    let found = causes.iter().find(|row| row["cause"] == cause).expect("every cause is there");
    found["count"].as_u64().expect("a number")
}

/// Two transactions each of which reads what the other one writes.
async fn write_skew(server: &TestServer) {
    let mut one = RawClient::connect(server.address()).await;
    let mut two = RawClient::connect(server.address()).await;
    one.query("CREATE TABLE account (id int PRIMARY KEY, balance int)").await;
    one.query("INSERT INTO account VALUES (1, 50), (2, 50)").await;
    for (client, id) in [(&mut one, 1), (&mut two, 2)] {
        client.query("BEGIN").await;
        client.query("SELECT sum(balance) FROM account").await;
        let update = format!("UPDATE account SET balance = balance - 60 WHERE id = {id}");
        assert_eq!(tags(&client.query(&update).await), "C");
    }
    assert_eq!(tags(&one.query("COMMIT").await), "C");
    assert_eq!(two.query("COMMIT").await[0].sqlstate(), "40001");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reading_has_all_that_the_page_draws() {
    let server = TestServer::start().await;
    let before = reading(&server).await;
    write_skew(&server).await;
    let mut client = RawClient::connect(server.address()).await;
    for text in [
        "BEGIN",
        "INSERT INTO account VALUES (3, 0)",
        "ROLLBACK",
        "BEGIN",
        "INSERT INTO account VALUES (3, 0)",
        "PREPARE TRANSACTION 'a <b>name</b>'",
        "BEGIN MIP <order-7, 1>",
        "INSERT INTO account VALUES (4, 0)",
        "PREPARE MIP <order-7, 1> 'buy' 'bought'",
    ] {
        let answer = client.query(text).await;
        assert!(!tags(&answer).contains('E'), "{text}: {answer:?}");
    }
    let after = reading(&server).await;

    assert_eq!(
        after["node"],
        json!({ "number": null, "role": null, "state": "serving", "accepts_writes": true, "why": null })
    );
    assert_eq!((&after["nodes"], &after["replication"]), (&json!([]), &Value::Null));
    assert_eq!(after["version"], env!("CARGO_PKG_VERSION"));
    assert!(after["uptime_ms"].as_u64() >= before["uptime_ms"].as_u64());
    let grew = |group: &str, name: &str| {
        let value = |reading: &Value| reading[group][name].as_u64().expect("a number");
        assert!(value(&after) > value(&before), "{group}.{name}: {before} {after}");
    };
    for name in ["commits", "rollbacks", "statements", "statement_us", "errors"] {
        grew("transactions", name);
    }
    for (group, name) in [("log", "bytes"), ("log", "flushes"), ("log", "flush_us"), ("governor", "admitted")]
    {
        grew(group, name);
    }
    for (group, name) in [
        ("transactions", "empty_commits"),
        ("transactions", "active"),
        ("transactions", "waiting"),
        ("transactions", "lock_waits"),
        ("transactions", "oldest_ms"),
        ("transactions", "sessions"),
        ("transactions", "sessions_max"),
        ("governor", "active"),
        ("governor", "waiting"),
        ("governor", "queued"),
        ("memory", "budget_bytes"),
        ("memory", "version_bytes"),
        ("memory", "certifier_bytes"),
        ("memory", "certifier_limit"),
        ("memory", "cache_bytes"),
        ("log", "replay_bytes"),
        ("log", "flush_us_max"),
        ("checkpoints", "count"),
        ("checkpoints", "base_bytes"),
        ("marks", "certified"),
        ("marks", "visible"),
        ("marks", "durable"),
    ] {
        assert!(after[group][name].is_u64(), "{group}.{name}: {after}");
    }
    assert_eq!(after["marks"]["applied"], Value::Null);

    assert_eq!((count(&before, "cycle"), count(&after, "cycle")), (0, 1));
    for cause in ["first updater wins", "another node", "deadlock", "changed table"] {
        assert_eq!(count(&after, cause), 0, "{cause}");
    }
    let failure = &after["failures"][0];
    assert_eq!((&failure["cause"], &failure["relation"]), (&json!("cycle"), &json!("account")));
    assert!(failure["detail"].as_str().is_some_and(|detail| detail.starts_with("Cycle: ")), "{failure}");
    assert!(failure["at_ms"].as_i64().is_some_and(|at| at > 1_577_836_800_000), "after 2019: {failure}");
    assert!(failure["transaction"].is_string(), "{failure}");

    let doubt = &after["in_doubt"];
    assert_eq!((&doubt["families_count"], &doubt["prepared_count"]), (&json!(1), &json!(1)));
    assert_eq!(doubt["families"][0]["family"], "order-7");
    assert_eq!(doubt["families"][0]["instances"], json!([1]));
    assert_eq!(doubt["families"][0]["request"], "buy");
    assert_eq!(doubt["prepared"][0]["name"], "a <b>name</b>");

    let nothing = client.query("SELECT * FROM cognate_replication").await;
    assert_eq!(tags(&nothing), "TC", "one row at a node only");
    let (_, metrics) = server.http("/metrics").await;
    assert!(metrics.contains("cognate_serialization_failures_total{cause=\"cycle\"} 1\n"), "{metrics}");
    assert!(!metrics.contains("cognate_replication_"), "{metrics}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_anybodys_and_the_reading_is_not() {
    let settings = Settings { http_token: Some("geheim ß".to_owned()), ..Settings::default() };
    let server = TestServer::with(settings).await;
    assert_eq!(server.http("/live").await.0, 401);
    assert_eq!(server.http_with("/live", "Authorization: Bearer geheim\r\n").await.0, 401);
    let (status, body) = server.http_with("/live", "Authorization: Bearer geheim ß\r\n").await;
    let reading: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, &reading["texts"]), (200, &json!(true)));
    let page = server.http_answer("/").await;
    let (head, page) = page.split_once("\r\n\r\n").expect("head and body");
    let head = head.to_lowercase();
    assert!(head.starts_with("http/1.1 200") && page.starts_with("<!doctype html>"), "{head}");
    let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: "));
    let policy = policy.expect("a policy");
    assert!(policy.contains("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(policy.contains("script-src 'sha256-") && !policy.contains("unsafe"), "{policy}");
    assert!(!page.contains("geheim"), "it has nothing to tell");
    let answer = server.http_answer("/live").await.to_lowercase();
    assert!(answer.contains("www-authenticate: bearer"), "{answer}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_other_pages() {
    let server = TestServer::start().await;
    for path in ["/live/", "/live.html", "/index.html", "//", "/..%2f"] {
        assert_eq!(server.http(path).await.0, 404, "{path}");
    }
    server.stop().await;
}
