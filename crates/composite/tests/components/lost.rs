//! A component whose database goes away, comes back, or takes the answer of a COMMIT with it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cognate_composite::matrix::never;
use cognate_composite::{Call, Component, Result, Running, Service, service};
use cognate_server::assemble;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::process::{END, Failure};
use crate::server::{open, posted, serve, status, url};

const PUT: Service<i32, i64> = Service::named("solo", "put");

/// A door between a component and its database.
struct Door {
    address: SocketAddr,
    is_open: watch::Sender<bool>,
    /// Closes with the next COMMIT: its answer does not get through.
    takes_commit: AtomicBool,
}

impl Door {
    async fn before(database: SocketAddr) -> std::result::Result<Arc<Door>, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (is_open, _) = watch::channel(true);
        let address = listener.local_addr()?;
        let door = Arc::new(Door { address, is_open, takes_commit: AtomicBool::new(false) });
        let opened = Arc::clone(&door);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let is_open = *opened.is_open.borrow();
                if is_open && let Ok(server) = TcpStream::connect(database).await {
                    tokio::spawn(Arc::clone(&opened).pass(client, server));
                }
            }
        });
        Ok(door)
    }

    /// Passes bytes on in both directions, as long as the door is open.
    async fn pass(self: Arc<Door>, mut client: TcpStream, mut server: TcpStream) {
        let mut is_open = self.is_open.subscribe();
        let (mut from_client, mut from_server) = ([0; 16384], [0; 16384]);
        loop {
            let passed = tokio::select! {
                () = async { drop(is_open.wait_for(|is_open| !is_open).await) } => return,
                count = client.read(&mut from_client) => {
                    let Ok(count @ 1..) = count else { return };
                    let bytes = &from_client[..count];
                    let commits = bytes.windows(7).any(|seven| seven == b"COMMIT\0");
                    if commits && self.takes_commit.swap(false, Ordering::SeqCst) {
                        return self.take_commit(bytes, &mut server).await;
                    }
                    server.write_all(bytes).await
                }
                count = server.read(&mut from_server) => {
                    let Ok(count @ 1..) = count else { return };
                    client.write_all(&from_server[..count]).await
                }
            };
            if passed.is_err() {
                return;
            }
        }
    }

    /// The database commits; nobody hears of it.
    async fn take_commit(&self, bytes: &[u8], server: &mut TcpStream) {
        let (mut answers, mut piece) = (Vec::new(), [0; 4096]);
        let _ = server.write_all(bytes).await;
        while !answers.windows(7).any(|seven: &[u8]| seven == b"COMMIT\0") {
            let Ok(count @ 1..) = server.read(&mut piece).await else { break };
            answers.extend_from_slice(&piece[..count]);
        }
        self.is_open.send_replace(false);
    }
}

/// Enters a number, and answers how many there are.
async fn put(call: Call, n: i32) -> Result<i64> {
    call.sql().execute("INSERT INTO word VALUES ($1)", &[&n]).await?;
    Ok(call.sql().query_one("SELECT count(*) FROM word", &[]).await?.get(0))
}

fn component(database: &str, folder: &std::path::Path) -> Component {
    Component::named("solo")
        .database(database)
        .data(folder.join("journal"))
        .setup(["CREATE TABLE IF NOT EXISTS word (n int PRIMARY KEY)"])
        .serve(PUT, service(put).begins_only())
        .conflicts([never("put", "put")])
}

/// A component, its database, and the door between them.
struct Solo {
    _folder: tempfile::TempDir,
    _server: assemble::Running,
    _running: Running,
    door: Arc<Door>,
    address: SocketAddr,
}

impl Solo {
    async fn start() -> std::result::Result<Solo, Failure> {
        let folder = tempfile::tempdir()?;
        let server = serve(&folder.path().join("data")).await?;
        let door = Door::before(server.listen()).await?;
        let running = component(&url(door.address), folder.path()).start().await?;
        let address = open(&running).await?;
        Ok(Solo { _folder: folder, _server: server, _running: running, door, address })
    }

    async fn put(&self, headers: &[(&str, &str)], n: i32) -> std::result::Result<(u16, Value), Failure> {
        posted(self.address, "/services/put", headers, json!(n)).await
    }

    /// The same once its database is reached again.
    async fn put_again(&self, n: i32) -> std::result::Result<Value, Failure> {
        let begun = Instant::now();
        loop {
            match self.put(&[], n).await? {
                (200, answer) => return Ok(answer),
                (503, problem) if problem["reason"] == "database" && begun.elapsed() < END => {}
                (code, problem) => return Err(format!("{code} {problem}").into()),
            }
        }
    }
}

fn reason((code, problem): &(u16, Value)) -> (u16, Option<&str>) {
    (*code, problem["reason"].as_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_goes_away_is_found_again() -> std::result::Result<(), Failure> {
    let solo = Solo::start().await?;
    assert_eq!(solo.put(&[], 1).await?, (200, json!(1)));
    solo.door.is_open.send_replace(false);
    for _ in 0..3 {
        assert_eq!(reason(&solo.put(&[], 2).await?), (503, Some("database")));
        assert_eq!(reason(&solo.put(&[("Idempotency-Key", "k")], 2).await?), (503, Some("database")));
    }
    assert_eq!(status(solo.address).await?["roots"], json!([]));
    solo.door.is_open.send_replace(true);
    assert_eq!(solo.put_again(3).await?, json!(2));
    // What failed was not kept for its key.
    assert_eq!(solo.put(&[("Idempotency-Key", "k")], 2).await?, (200, json!(3)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_of_commit_is_unknown_without_a_key() -> std::result::Result<(), Failure> {
    let solo = Solo::start().await?;
    assert_eq!(solo.put(&[], 1).await?, (200, json!(1)));
    solo.door.takes_commit.store(true, Ordering::SeqCst);
    assert_eq!(reason(&solo.put(&[], 2).await?), (503, Some("unknown")));
    solo.door.is_open.send_replace(true);
    // It is the one answer that may leave something behind.
    assert_eq!(solo.put_again(3).await?, json!(3));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_answers_running_until_it_is_known() -> std::result::Result<(), Failure> {
    let solo = Arc::new(Solo::start().await?);
    assert_eq!(solo.put(&[], 1).await?, (200, json!(1)));
    solo.door.takes_commit.store(true, Ordering::SeqCst);
    let key = ("Idempotency-Key", "k");
    let asking = Arc::clone(&solo);
    let first = tokio::spawn(async move { asking.put(&[key, ("Cognate-Deadline-Ms", "300")], 2).await });
    solo.door.is_open.subscribe().wait_for(|is_open| !is_open).await?;
    assert_eq!(reason(&solo.put(&[key, ("Cognate-Deadline-Ms", "50")], 2).await?), (409, Some("running")));
    assert_eq!(reason(&first.await??), (503, Some("unknown")));
    assert_eq!(reason(&solo.put(&[key, ("Cognate-Deadline-Ms", "50")], 2).await?), (409, Some("running")));
    solo.door.is_open.send_replace(true);
    assert_eq!(solo.put(&[key], 2).await?, (200, json!(2)));
    assert_eq!(solo.put(&[], 3).await?, (200, json!(3)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_whose_commits_a_crash_takes_back_is_refused() -> std::result::Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let server = serve(&folder.path().join("data")).await?;
    let url = |setting| format!("{}?options=-c%20synchronous_commit%3D{setting}", url(server.listen()));
    let refused = component(&url("off"), folder.path()).start().await.err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|why| why.contains("synchronous_commit")), "{refused:?}");
    component(&url("local"), folder.path()).start().await?;
    Ok(())
}
