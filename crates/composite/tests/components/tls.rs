//! Two components that call each other by TLS.

use cognate_composite::matrix::same_item;
use cognate_composite::{Call, Component, Result, Running, Service, Tls, Undo, service};
use serde_json::json;

use crate::process::Failure;

const ASK: Service<i32, i32> = Service::named("front", "ask");
const DOUBLE: Service<i32, i32> = Service::named("back", "double");

async fn ask(call: Call, n: i32) -> Result<i32> {
    call.call(DOUBLE, n).await
}

async fn double(call: Call, n: i32) -> Result<i32> {
    call.sql().execute("INSERT INTO doubled VALUES ($1)", &[&n]).await?;
    call.undo(&n)?;
    Ok(2 * n)
}

async fn halve(undo: Undo, n: i32) -> Result<()> {
    undo.sql().execute("DELETE FROM doubled WHERE n = $1", &[&n]).await.map(drop)
}

fn component(name: &str, folder: &std::path::Path) -> Component {
    let folder = folder.join(name);
    Component::named(name)
        .database(&format!("embedded:{}", folder.join("database").display()))
        .data(folder.join("journal"))
        .setup(["CREATE TABLE IF NOT EXISTS doubled (n int)"])
}

fn serve(listener: tokio::net::TcpListener, tls: &Tls, running: &Running) -> std::io::Result<()> {
    tokio::spawn(running.serve(tls.listen(listener)?));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_call_each_other_by_tls() -> std::result::Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, certified.cert.pem())?;
    std::fs::write(&key, certified.signing_key.serialize_pem())?;
    let tls = Tls::from_files(&certificate, &key, &certificate)?;
    assert!(Tls::from_files(&key, &key, &certificate).is_err(), "a key is no certificate");
    let (front_at, back_at) = (
        tokio::net::TcpListener::bind("127.0.0.1:0").await?,
        tokio::net::TcpListener::bind("127.0.0.1:0").await?,
    );
    let https = |listener: &tokio::net::TcpListener| {
        listener.local_addr().map(|address| format!("https://localhost:{}", address.port()))
    };
    let (to_front, to_back) = (https(&front_at)?, https(&back_at)?);
    let front = component("front", folder.path()).serve(ASK, service(ask).begins_only());
    let front = front.peer("back", &to_back).tls(tls.clone()).start().await?;
    let back = component("back", folder.path())
        .serve(DOUBLE, service(double).item(|n: &i32| *n).undo(halve))
        .conflicts([same_item("double", "double")]);
    let back = back.peer("front", &to_front).tls(tls.clone()).start().await?;
    serve(front_at, &tls, &front)?;
    serve(back_at, &tls, &back)?;
    // A component whose peers trust nobody does not reach them.
    let stranger = component("stranger", folder.path());
    const REACH: Service<i32, i32> = Service::named("stranger", "reach");
    let stranger = stranger.serve(REACH, service(ask).begins_only()).peer("back", &to_back).start().await?;
    let plainly = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let stranger_at = plainly.local_addr()?;
    tokio::spawn(axum::serve(plainly, stranger.router()).into_future());
    let refused = tokio::task::spawn_blocking(move || {
        crate::process::post(stranger_at, "/services/reach", &[], &json!(3))
    });
    let (status, problem) = refused.await??;
    assert_eq!((status, problem["reason"].as_str()), (503, Some("away")));
    // And the one with certificates does, from a plain door of its own.
    let plainly = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = plainly.local_addr()?;
    tokio::spawn(axum::serve(plainly, front.router()).into_future());
    let asked =
        tokio::task::spawn_blocking(move || crate::process::post(address, "/services/ask", &[], &json!(21)));
    assert_eq!(asked.await??, (200, json!(42)));
    Ok(())
}
