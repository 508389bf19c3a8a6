//! The rules of the paper that are about the database (§§3.5 and 3.7), sentence by sentence. The
//! others are in `composite-protocol/tests/protocol/paper.rs`.

use std::net::SocketAddr;
use std::time::Duration;

use cognate_composite::matrix::never;
use cognate_composite::{Call, Component, Result, Running, Service, Undo, service};
use cognate_server::assemble;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, NoTls};

use crate::contract::{one, part_of};
use crate::process::{END, Failure};
use crate::server::{open, posted, serve, status, url};

const WRITE: Service<Vec<i32>, ()> = Service::named("solo", "write");

/// Writes numbers, and pushes each for the undo.
async fn write(call: Call, numbers: Vec<i32>) -> Result<()> {
    for n in numbers {
        call.sql().execute("INSERT INTO word (n, what) VALUES ($1, 'written')", &[&n]).await?;
        call.undo(&n)?;
    }
    Ok(())
}

/// Notes what it undoes, in its order.
async fn note(undo: Undo, n: i32) -> Result<()> {
    undo.sql().execute("INSERT INTO word (n, what) VALUES ($1, 'undone')", &[&n]).await.map(drop)
}

struct Solo {
    _folder: tempfile::TempDir,
    _server: assemble::Running,
    running: Running,
    address: SocketAddr,
    client: Client,
}

impl Solo {
    async fn start() -> std::result::Result<Solo, Failure> {
        let folder = tempfile::tempdir()?;
        let server = serve(&folder.path().join("data")).await?;
        let running = Component::named("solo")
            .database(&url(server.listen()))
            .data(folder.path().join("journal"))
            .setup(["CREATE TABLE IF NOT EXISTS word
                (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int NOT NULL, what text NOT NULL)"])
            .serve(WRITE, service(write).undo(note))
            .conflicts([never("write", "write")])
            .start()
            .await?;
        let address = open(&running).await?;
        let (client, connection) = tokio_postgres::connect(&url(server.listen()), NoTls).await?;
        tokio::spawn(connection);
        Ok(Solo { _folder: folder, _server: server, running, address, client })
    }

    async fn write(&self, root: &str, numbers: &[i32]) -> std::result::Result<(), Failure> {
        let call = format!("{root}.1");
        let written = posted(self.address, "/services/write", &part_of(root, &call), json!(numbers)).await?;
        assert_eq!(written, (200, Value::Null));
        Ok(())
    }

    async fn told(&self, what: &str, root: &str) -> std::result::Result<Value, Failure> {
        let entry = json!({ "root": root, "parent": "shop", "calls": 1 });
        one(posted(self.address, &format!("/composite/{what}"), &[], json!({ "roots": [entry] })).await?)
    }

    async fn ends(&self) -> std::result::Result<(), Failure> {
        let begun = Instant::now();
        while status(self.address).await?["roots"] != json!([]) {
            assert!(begun.elapsed() < END, "a root does not end");
            sleep(std::time::Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Slots: all of them, and those in use.
    async fn slots(&self) -> std::result::Result<(i64, i64), Failure> {
        let count = "SELECT count(*), count(root) FROM cognate_composite.slot WHERE component = 'solo'";
        let row = self.client.query_one(count, &[]).await?;
        Ok((row.get(0), row.get(1)))
    }
}

/// §3.5: "As soon as a transaction commits locally, the log-table reflects the fact that the
/// transaction made local changes (needed after recovery). The undo-table contains the needed
/// parameters for executing a compensation if necessary. All this data is written in the same
/// transaction as the user's logic."
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slot_is_in_the_same_local_transaction() -> std::result::Result<(), Failure> {
    let solo = Solo::start().await?;
    let both = "SELECT (SELECT count(*) FROM word), (SELECT count(*) FROM cognate_composite.slot
        WHERE root = 'r' AND facts LIKE '%\"undo\":[\"5\",\"6\"]%')";
    let both = solo.client.prepare(both).await?;
    let looking = async {
        // Whoever looks sees both, or neither.
        loop {
            let row = solo.client.query_one(&both, &[]).await?;
            match (row.get::<_, i64>(0), row.get::<_, i64>(1)) {
                (0, 0) => {}
                seen => return Ok::<_, Failure>(seen),
            }
        }
    };
    let (written, seen) = tokio::join!(solo.write("r", &[5, 6]), looking);
    written?;
    assert_eq!(seen?, (2, 1));
    assert_eq!(solo.slots().await?.1, 1);
    Ok(())
}

/// §3.5: "A file based log is used to keep track of the two-phase commit status of a transaction
/// after it has been locally committed." Ours is not needed for a yes: all that it says is in the
/// slot, which a start takes for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_yes_is_in_its_slot_already() -> std::result::Result<(), Failure> {
    let solo = Solo::start().await?;
    // The first yes after a lull has the journal say that such are coming; the next ones write
    // nothing.
    let mut nth = 0;
    let (root, vote) = loop {
        nth += 1;
        assert!(nth < 1000, "no two votes follow each other at once");
        let [first, root] = ["a", "r"].map(|name| format!("{name}{nth}"));
        solo.write(&first, &[nth]).await?;
        solo.write(&root, &[nth]).await?;
        let begun = Instant::now();
        solo.told("prepare", &first).await?;
        let flushes = solo.running.journal_flushes();
        let vote = solo.told("prepare", &root).await?;
        let flushed = solo.running.journal_flushes();
        if begun.elapsed() < Duration::from_millis(90) {
            assert_eq!((vote["vote"].as_str(), flushed), (Some("yes"), flushes));
            break (root, vote);
        }
    };
    let facts = format!("SELECT facts FROM cognate_composite.slot WHERE root = '{root}'");
    let facts: Value = serde_json::from_str(solo.client.query_one(&facts, &[]).await?.get(0))?;
    assert!(vote["nonce"].is_u64() && vote["nonce"] == facts["nonce"], "{vote} {facts}");
    Ok(())
}

/// §3.7: "The programmer only needs to push any information needed for the undo into a stack
/// object. […] In case an abort occurs, the system restores the transaction's undo stack. The undo
/// operation can then read this object and proceed."
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_undo_stack_is_restored_and_read_from_its_top() -> std::result::Result<(), Failure> {
    let solo = Solo::start().await?;
    solo.write("r", &[1, 2, 3]).await?;
    solo.told("abort", "r").await?;
    solo.ends().await?;
    let rows = solo.client.query("SELECT n FROM word WHERE what = 'undone' ORDER BY id", &[]).await?;
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [3, 2, 1]);
    assert_eq!(solo.slots().await?.1, 0);
    Ok(())
}

/// §3.7: "CheeTah uses a pool of undo entries in a fixed-size table […]. The server component keeps
/// in RAM a list of available entries in the logging table, and allocates them to a transaction
/// when needed. Storing undo data is done by updating the log table, rather than inserting into
/// it."
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_are_a_pool_that_is_updated_in_place() -> std::result::Result<(), Failure> {
    let solo = Solo::start().await?;
    solo.write("first", &[0]).await?;
    let (pool, _) = solo.slots().await?;
    for n in 1..=2 * i32::try_from(pool)? {
        let root = format!("r{n}");
        solo.write(&root, &[n]).await?;
        let end = if n % 2 == 0 { "abort" } else { "commit" };
        if end == "commit" {
            solo.told("prepare", &root).await?;
        }
        solo.told(end, &root).await?;
    }
    solo.told("abort", "first").await?;
    solo.ends().await?;
    assert_eq!(solo.slots().await?, (pool, 0), "twice as many calls as slots, and none was added");
    Ok(())
}
