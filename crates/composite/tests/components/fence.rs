//! Two processes for one component, over one server: the later one has it, and the older one ends.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

use crate::contract::{one, part_of};
use crate::postgres::Postgres;
use crate::process::{END, Failure, example, port, post, request};
use crate::server::{serve, url};

/// A process that ends with its owner.
struct Stock {
    process: Child,
    address: SocketAddr,
}

impl Drop for Stock {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn stock(database: &str, journal: &Path) -> Result<Stock, Failure> {
    let address = port()?;
    let mut process = Command::new(example()?)
        .arg("stock")
        .args(["--listen", &address.to_string(), "--database", database])
        .arg("--data")
        .arg(journal)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(process.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let started = Stock { process, address };
    if line.contains("listens on") { Ok(started) } else { Err(format!("it did not start: {line}").into()) }
}

/// A vote of a root that was only read for.
fn vote(of: &Stock, root: &str) -> Result<(u16, serde_json::Value), Failure> {
    let prepare = json!({ "roots": [{ "root": root, "parent": "shop", "calls": 1 }] });
    post(of.address, "/composite/prepare", &[], &prepare)
}

fn take_over(database: &str, folder: &Path) -> Result<(), Failure> {
    let take = json!({ "item": 5 });
    let mut older = stock(database, &folder.join("older"))?;
    assert_eq!(post(older.address, "/services/take", &part_of("a", "a.1"), &take)?.0, 200);
    let later = stock(database, &folder.join("later"))?;
    // What it finds may have been voted for.
    let (_, status) = request(later.address, "GET", "/status", &[], b"")?;
    assert_eq!((status["generation"].as_u64(), status["in_doubt"].as_u64()), (Some(2), Some(1)));
    // Whatever the older one is asked to write, it cannot, and ends.
    let refused = loop {
        match post(older.address, "/services/take", &part_of("b", "b.1"), &take) {
            // Its connections were ended: it notices by that, and tries again on a new one.
            Ok((503, problem)) if problem["reason"] == "database" => {}
            Ok((status, problem)) => break Some((status, problem["reason"].clone())),
            Err(_) => break None,
        }
    };
    // Who asks hears why, before the process ends.
    assert!(refused.as_ref().is_none_or(|refused| *refused == (503, json!("fenced"))), "{refused:?}");
    assert!(!older.process.wait()?.success(), "it says why it ends");
    let about = json!({ "roots": [{ "root": "a", "parent": "shop" }] });
    let commit =
        || Ok::<_, Failure>(one(post(later.address, "/composite/commit", &[], &about)?)?["state"].clone());
    while commit()? != "done" {}
    assert_eq!(post(later.address, "/services/count", &[], &take)?, (200, json!(999)));
    Ok(())
}

/// What a call that only read has seen is protected by a lock in its process. A later process knows
/// nothing of it and lets others write, so the older one must not say yes any more.
fn promise_after_take_over(database: &str, folder: &Path) -> Result<(), Failure> {
    let item = json!({ "item": 5 });
    let mut older = stock(database, &folder.join("older"))?;
    for root in ["c", "d"] {
        let call = format!("{root}.1");
        let read = post(older.address, "/services/count", &part_of(root, &call), &item)?;
        assert_eq!(read, (200, json!(1000)));
    }
    assert_eq!(one(vote(&older, "c")?)?["vote"], "yes");
    let later = stock(database, &folder.join("later"))?;
    assert_eq!(post(later.address, "/services/take", &part_of("w", "w.1"), &item)?.0, 200);
    // It ends with the question, so the answer may be cut.
    if let Ok((status, answer)) = vote(&older, "d") {
        assert!(status == 503 || answer["roots"][0]["vote"] == "no", "{status} {answer}");
    }
    assert!(!older.process.wait()?.success(), "it says why it ends");
    Ok(())
}

/// What a later process has promised is neither done nor undone because the older one knows nothing
/// of the promise: its parent would forget it after such an answer.
fn commit_told_to_the_older(database: &str, folder: &Path) -> Result<(), Failure> {
    let item = json!({ "item": 5 });
    let older = stock(database, &folder.join("older"))?;
    assert_eq!(post(older.address, "/services/take", &part_of("g", "g.1"), &item)?.0, 200);
    let later = stock(database, &folder.join("later"))?;
    let yes = one(vote(&later, "g")?)?;
    assert_eq!(yes["vote"], "yes");
    let about = json!({ "roots": [{ "root": "g", "parent": "shop", "nonce": yes["nonce"] }] });
    // It ends with that, so the answer may be cut.
    if let Ok((status, answer)) = post(older.address, "/composite/commit", &[], &about) {
        assert!(status == 503 || answer["roots"][0]["state"] == "pending", "{status} {answer}");
    }
    while one(post(later.address, "/composite/commit", &[], &about)?)?["state"] != "done" {}
    assert_eq!(post(later.address, "/services/count", &[], &item)?, (200, json!(999)));
    Ok(())
}

/// Nor is it done because the older one has never heard of it, which it says of nothing else.
fn commit_told_to_the_older_that_never_heard_of_it(database: &str, folder: &Path) -> Result<(), Failure> {
    let item = json!({ "item": 5 });
    let older = stock(database, &folder.join("older"))?;
    let later = stock(database, &folder.join("later"))?;
    assert_eq!(post(later.address, "/services/take", &part_of("h", "h.1"), &item)?.0, 200);
    let yes = one(vote(&later, "h")?)?;
    assert_eq!(yes["vote"], "yes");
    let about = json!({ "roots": [{ "root": "h", "parent": "shop", "nonce": yes["nonce"] }] });
    // It ends with that, so the answer may be cut.
    if let Ok((status, answer)) = post(older.address, "/composite/commit", &[], &about) {
        assert!(status == 503 || answer["roots"][0]["state"] == "pending", "{status} {answer}");
    }
    while one(post(later.address, "/composite/commit", &[], &about)?)?["state"] != "done" {}
    assert_eq!(post(later.address, "/services/count", &[], &item)?, (200, json!(999)));
    // Who has the component says it of what he has never heard of: somebody else may have ended it.
    let unknown = json!({ "roots": [{ "root": "i", "parent": "shop", "nonce": 7 }] });
    assert_eq!(one(post(later.address, "/composite/commit", &[], &unknown)?)?["state"], "done");
    Ok(())
}

/// Also a call that only reads tells the older process that it is over.
fn read_after_take_over(database: &str, folder: &Path) -> Result<(), Failure> {
    let item = json!({ "item": 5 });
    let mut older = stock(database, &folder.join("older"))?;
    let read = |root: &str, call: &str| post(older.address, "/services/count", &part_of(root, call), &item);
    assert_eq!(read("e", "e.1")?, (200, json!(1000)));
    let _later = stock(database, &folder.join("later"))?;
    let refused = loop {
        match read("f", "f.1") {
            // As above: its connections were ended.
            Ok((503, problem)) if problem["reason"] == "database" => {}
            Ok((status, problem)) => break Some((status, problem["reason"].clone())),
            Err(_) => break None,
        }
    };
    assert!(matches!(&refused, None | Some((503, _))), "{refused:?}");
    assert!(!older.process.wait()?.success(), "it says why it ends");
    Ok(())
}

/// An older process that nobody asks for anything.
fn end_by_itself(database: &str, folder: &Path) -> Result<(), Failure> {
    let mut older = stock(database, &folder.join("older"))?;
    let _later = stock(database, &folder.join("later"))?;
    let begun = Instant::now();
    let status = loop {
        match older.process.try_wait()? {
            Some(status) => break status,
            None if begun.elapsed() < END => std::thread::sleep(Duration::from_millis(20)),
            None => return Err("it goes on although it was taken over".into()),
        }
    };
    assert!(!status.success(), "it says why it ends");
    Ok(())
}

/// Two processes with one folder for their journals: the later one asks the older one to end, and
/// begins when that has ended. Nobody asks the older one for anything.
fn one_folder(database: &str, folder: &Path) -> Result<(), Failure> {
    let take = json!({ "item": 5 });
    let mut older = stock(database, &folder.join("both"))?;
    assert_eq!(post(older.address, "/services/take", &part_of("a", "a.1"), &take)?.0, 200);
    assert_eq!(one(vote(&older, "a")?)?["vote"], "yes");
    let later = stock(database, &folder.join("both"))?;
    assert!(!older.process.wait()?.success(), "it says why it ends");
    let (_, status) = request(later.address, "GET", "/status", &[], b"")?;
    assert_eq!((status["generation"].as_u64(), status["in_doubt"].as_u64()), (Some(2), Some(1)));
    let about = json!({ "roots": [{ "root": "a", "parent": "shop" }] });
    while one(post(later.address, "/composite/commit", &[], &about)?)?["state"] != "done" {}
    assert_eq!(post(later.address, "/services/count", &[], &take)?, (200, json!(999)));
    Ok(())
}

/// A local transaction that an earlier process has left behind holds a row that the statements for
/// the tables look at. A start ends its session, and does not give up before.
fn start_against_what_was_left_behind(database: &str, folder: &Path) -> Result<(), Failure> {
    drop(stock(database, &folder.join("older"))?);
    let runtime = Runtime::new()?;
    let (client, connection) = runtime.block_on(tokio_postgres::connect(database, NoTls))?;
    let session = runtime.spawn(connection);
    runtime.block_on(async {
        client.batch_execute("SET application_name = 'cognate-composite:stock:1'").await?;
        client.batch_execute("BEGIN; UPDATE item SET stock = stock WHERE id = 5").await
    })?;
    let later = stock(database, &folder.join("later"))?;
    let counted = post(later.address, "/services/count", &[], &json!({ "item": 5 }))?;
    assert_eq!(counted, (200, json!(1000)));
    assert!(runtime.block_on(session)?.is_err(), "its session was ended");
    Ok(())
}

/// A row that the statements for the tables look at is held by somebody who has nothing to do with
/// the component: he is not ended, and the start gives up before it has ended the older process.
fn start_against_somebody_else(database: &str, folder: &Path) -> Result<(), Failure> {
    let older = stock(database, &folder.join("older"))?;
    let runtime = Runtime::new()?;
    let (client, connection) = runtime.block_on(tokio_postgres::connect(database, NoTls))?;
    let _session = runtime.spawn(connection);
    runtime.block_on(client.batch_execute("BEGIN; UPDATE item SET stock = stock WHERE id = 5"))?;
    assert!(stock(database, &folder.join("later")).is_err(), "it started over a row that is locked");
    runtime.block_on(client.batch_execute("COMMIT"))?;
    let (_, status) = request(older.address, "GET", "/status", &[], b"")?;
    assert_eq!(status["generation"].as_u64(), Some(1));
    let counted = post(older.address, "/services/count", &[], &json!({ "item": 5 }))?;
    assert_eq!(counted, (200, json!(1000)));
    Ok(())
}

/// Runs a part of a test that waits for processes, over a server of its own.
async fn over_a_server(part: fn(&str, &Path) -> Result<(), Failure>) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let server = serve(&folder.path().join("data")).await?;
    let (database, journals) = (url(server.listen()), folder.path().to_owned());
    tokio::task::spawn_blocking(move || part(&database, &journals)).await??;
    server.stop().await.map_err(|error| error.0)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_process_is_fenced_and_ends() -> Result<(), Failure> {
    over_a_server(take_over).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_process_ends_without_being_asked() -> Result<(), Failure> {
    over_a_server(end_by_itself).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_processes_with_one_folder_the_older_one_ends() -> Result<(), Failure> {
    over_a_server(one_folder).await
}

/// There the database has its folder to itself, too.
#[test]
fn of_two_processes_with_one_embedded_database_the_older_one_ends() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let database = format!("embedded:{}", folder.path().join("database").display());
    one_folder(&database, folder.path())?;
    // Journals of their own make no difference to who has the database.
    let mut older = stock(&database, &folder.path().join("older"))?;
    let later = stock(&database, &folder.path().join("later"))?;
    assert!(!older.process.wait()?.success(), "it says why it ends");
    assert_eq!(post(later.address, "/services/count", &[], &json!({ "item": 5 }))?, (200, json!(999)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_process_ends_with_a_call_that_reads() -> Result<(), Failure> {
    over_a_server(read_after_take_over).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_process_says_yes_to_nothing_that_it_has_only_read() -> Result<(), Failure> {
    over_a_server(promise_after_take_over).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_process_ends_no_promise_of_the_later_one() -> Result<(), Failure> {
    over_a_server(commit_told_to_the_older).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_process_ends_no_promise_that_it_never_heard_of() -> Result<(), Failure> {
    over_a_server(commit_told_to_the_older_that_never_heard_of_it).await
}

/// There a commit that writes no slot looks at nothing: a start ends the older sessions instead,
/// and waits for their ends.
#[test]
fn on_postgresql_the_older_process_is_fenced_and_ends_too() -> Result<(), Failure> {
    type Part = fn(&str, &Path) -> Result<(), Failure>;
    const PARTS: [(&str, Part); 9] = [
        ("take_over", take_over),
        ("commit_told_to_the_older", commit_told_to_the_older),
        ("commit_never_heard_of", commit_told_to_the_older_that_never_heard_of_it),
        ("promise_after_take_over", promise_after_take_over),
        ("read_after_take_over", read_after_take_over),
        ("end_by_itself", end_by_itself),
        ("one_folder", one_folder),
        ("left_behind", start_against_what_was_left_behind),
        ("somebody_else", start_against_somebody_else),
    ];
    let Some(mut server) = Postgres::start()? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    for (name, part) in PARTS {
        let database = server.database(name)?;
        part(&database, &folder.path().join(name)).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

/// Each locks its folder; still both may be given the same one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journal_and_embedded_database_may_have_one_folder() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("stock");
    let its = place.clone();
    let used = tokio::task::spawn_blocking(move || {
        let database = format!("embedded:{}/", its.display());
        // The second process finds the call of the first one.
        for _ in 0..2 {
            let process = stock(&database, &its)?;
            let taken = post(process.address, "/services/take", &part_of("a", "a.1"), &json!({ "item": 5 }))?;
            assert_eq!(taken.0, 200, "{taken:?}");
        }
        Ok::<_, Failure>(())
    });
    used.await??;
    // What is not the database's does not keep a server from opening it.
    let server = serve(&place).await?;
    server.stop().await.map_err(|error| error.0)?;
    Ok(())
}
