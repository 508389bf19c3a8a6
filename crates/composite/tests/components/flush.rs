//! What journals are flushed for: not for a root that nothing happens to, whose slots are votes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path as Of;
use axum::response::IntoResponse;
use axum::routing::post;
use cognate_composite::matrix::never;
use cognate_composite::{Call, Component, Result, Running, Service, Undo, service};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::process::{END, Failure};
use crate::server::posted;

/// Each calls the next one.
const NAMES: [&str; 3] = ["top", "middle", "bottom"];

fn put(place: usize) -> Service<i32, ()> {
    Service::named(NAMES[place], "put")
}

async fn enter(call: Call, n: i32, place: usize) -> Result<()> {
    if place + 1 < NAMES.len() {
        call.call(put(place + 1), n).await?;
    }
    call.sql().execute("INSERT INTO word VALUES ($1)", &[&n]).await?;
    call.undo(&n)
}

async fn leave(undo: Undo, n: i32) -> Result<()> {
    undo.sql().execute("DELETE FROM word WHERE n = $1", &[&n]).await.map(drop)
}

fn component(place: usize, folder: &Path, addresses: &[SocketAddr]) -> Component {
    let name = NAMES[place];
    let folder = folder.join(name);
    let handler = service(move |call: Call, n: i32| enter(call, n, place)).undo(leave).read_committed();
    let component = Component::named(name)
        .database(&format!("embedded:{}", folder.join("database").display()))
        .data(folder.join("journal"))
        .setup(["CREATE TABLE IF NOT EXISTS word (n int PRIMARY KEY)"])
        .serve(put(place), handler)
        .conflicts([never("put", "put")]);
    let others = NAMES.iter().zip(addresses).filter(|(peer, _)| **peer != name);
    others.fold(component, |component, (peer, address)| component.peer(peer, &format!("http://{address}")))
}

/// A component in another language: it does not announce what its yes will be known by.
async fn other() -> std::result::Result<SocketAddr, Failure> {
    async fn answer(Of(path): Of<String>, body: Bytes) -> impl IntoResponse {
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        let root = &asked["roots"][0]["root"];
        let said = match path.as_str() {
            "composite/prepare" => json!({ "roots": [{ "root": root, "vote": "yes", "nonce": 5 }] }),
            "composite/commit" => json!({ "roots": [{ "root": root, "state": "done" }] }),
            _ => Value::Null,
        };
        ([("Cognate-Generation", "1")], said.to_string())
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new().route("/{*path}", post(answer));
    tokio::spawn(axum::serve(listener, router).into_future());
    Ok(address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn journals_are_flushed_for_what_slots_do_not_say() -> std::result::Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for _ in NAMES {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        addresses.push(listener.local_addr()?);
        listeners.push(listener);
    }
    let mut parts = Vec::new();
    for (place, listener) in listeners.into_iter().enumerate() {
        let running = component(place, folder.path(), &addresses).start().await?;
        tokio::spawn(axum::serve(listener, running.router()).into_future());
        parts.push(running);
    }
    let flushes = || parts.iter().map(Running::journal_flushes).collect::<Vec<u64>>();
    let buy = |n: i32| posted(addresses[0], "/services/put", &[], json!(n));
    let (start, mut n) = (Instant::now(), 0);
    loop {
        assert!(start.elapsed() < END, "no two purchases follow each other at once");
        let begun = Instant::now();
        assert_eq!(buy(n).await?, (200, Value::Null));
        let before = flushes();
        assert_eq!(buy(n + 1).await?, (200, Value::Null));
        let after = flushes();
        n += 2;
        // After a lull the first vote is waited for.
        if begun.elapsed() < Duration::from_millis(90) {
            assert_eq!(after, before, "a vote in the middle, or at the bottom, was flushed");
            break;
        }
    }
    // The one in the middle cannot know by its slot which vote it was decided by.
    parts[1].set_peer("bottom", &format!("http://{}", other().await?))?;
    // What a lull writes is written then, and a vote that has a record is followed by nothing.
    sleep(Duration::from_secs(1)).await;
    let before = flushes();
    assert_eq!(buy(n).await?, (200, Value::Null));
    let begun = Instant::now();
    while flushes()[1] == before[1] {
        assert!(begun.elapsed() < END, "a vote that no slot names was not written");
        tokio::task::yield_now().await;
    }
    assert_eq!([flushes()[0], flushes()[2]], [before[0], before[2]]);
    Ok(())
}
