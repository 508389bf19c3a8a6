//! A database server in this process, and components in this process.

use std::net::SocketAddr;
use std::path::Path;

use cognate_composite::Running;
use cognate_server::assemble;
use cognate_server::config::{Config, Settings};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::process::{Answer, Failure, post, request};

/// Starts a server over a folder, as `cognate serve --data` does.
pub(crate) async fn serve(data: &Path) -> Result<assemble::Running, Failure> {
    let settings = Settings {
        data: Some(data.to_owned()),
        listen: Some("127.0.0.1:0".to_owned()),
        http: Some("127.0.0.1:0".to_owned()),
        memory: Some("64MB".to_owned()),
        ..Settings::default()
    };
    let server = assemble::start(Config::resolve(settings).map_err(|error| error.0)?).await;
    Ok(server.map_err(|error| error.0)?)
}

/// Where a server is found.
pub(crate) fn url(address: SocketAddr) -> String {
    format!("postgresql://cognate@{address}/cognate")
}

/// Serves a component of this process on a port of its own.
pub(crate) async fn open(running: &Running) -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(running.serve(listener));
    Ok(address)
}

/// Posts JSON from a task.
pub(crate) async fn posted(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> Result<Answer, Failure> {
    let path = path.to_owned();
    let headers: Vec<(String, String)> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let posting = tokio::task::spawn_blocking(move || {
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        post(to, &path, &headers, &body)
    });
    posting.await?
}

/// A component's status.
pub(crate) async fn status(of: SocketAddr) -> Result<Value, Failure> {
    let asking = tokio::task::spawn_blocking(move || request(of, "GET", "/status", &[], b""));
    Ok(asking.await??.1)
}
