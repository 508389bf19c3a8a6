//! A component that calls itself, in this process: what waits for its own connection, or its own
//! lock.

use cognate_composite::matrix::{never, same_item};
use cognate_composite::{Call, Component, Result, Service, Undo, service};
use serde_json::json;

use crate::process::{Failure, post, request};

const TWICE: Service<i32, i64> = Service::named("solo", "twice");
const NOTE: Service<i32, ()> = Service::named("solo", "note");
const AGAIN: Service<i32, ()> = Service::named("solo", "again");

async fn enter(call: &Call, n: i32) -> Result<()> {
    call.sql().execute("INSERT INTO word VALUES ($1)", &[&n]).await.map(drop)
}

/// Has a local transaction open while it calls.
async fn twice(call: Call, n: i32) -> Result<i64> {
    enter(&call, n).await?;
    call.call(NOTE, n + 1).await?;
    let row = call.sql().query_one("SELECT count(*) FROM word", &[]).await?;
    Ok(row.get(0))
}

async fn note(call: Call, n: i32) -> Result<()> {
    enter(&call, n).await?;
    call.undo(&n)
}

async fn forget(undo: Undo, n: i32) -> Result<()> {
    undo.sql().execute("DELETE FROM word WHERE n = $1", &[&n]).await.map(drop)
}

/// Calls itself about the same item, so that the call is in its own way.
async fn again(call: Call, n: i32) -> Result<()> {
    call.call(AGAIN, n).await
}

async fn none(_: Undo, _: i32) -> Result<()> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_with_one_connection_calls_itself() -> std::result::Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let running = Component::named("solo")
        .database(&format!("embedded:{}", folder.path().join("database").display()))
        .data(folder.path().join("journal"))
        .setup(["CREATE TABLE IF NOT EXISTS word (n int PRIMARY KEY)"])
        .connections(1)
        .peer("solo", &format!("http://{address}"))
        .serve(TWICE, service(twice).item(|n: &i32| *n).begins_only())
        .serve(NOTE, service(note).item(|n: &i32| *n).undo(forget))
        .serve(AGAIN, service(again).item(|n: &i32| *n).undo(none))
        .conflicts([
            never("twice", "note"),
            same_item("note", "note"),
            same_item("again", "again"),
            never("again", "twice"),
            never("again", "note"),
        ])
        .start()
        .await?;
    tokio::spawn(axum::serve(listener, running.router()).into_future());
    tokio::task::spawn_blocking(move || {
        // Its own entry only: the other one is committed elsewhere in the order.
        let (status, answer) = post(address, "/services/twice", &[], &json!(1))?;
        assert_eq!(status, 200, "{answer}");
        let (status, problem) = post(address, "/services/again", &[], &json!(7))?;
        assert_eq!((status, problem["reason"].as_str()), (409, Some("ancestor")));
        loop {
            let (_, status) = request(address, "GET", "/status", &[], b"")?;
            if status["roots"] == json!([]) {
                return Ok(());
            }
        }
    })
    .await?
}
