//! HTTP beside the database port: `/health` for whoever decides where to send clients, `/metrics`
//! for Prometheus.
//!
//! The port answers as soon as it is bound, also while the database is still being recovered:
//! `/health` is 503 until clients are accepted, and 503 again once the log refuses commits.
//!
//! `/cluster` shows a cluster's nodes and changes who they are ([`members`]).
//!
//! Where a token is configured, metrics need it (`Authorization: Bearer TOKEN`; else 401), and so
//! do the details of health: without it there is only the status.

pub(crate) mod health;
mod members;
pub(crate) mod metrics;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::pg::registry::same;
use crate::server::Server;

/// The server, once it accepts clients.
pub(crate) type Ready = Arc<OnceLock<Arc<Server>>>;

/// What the requests share.
#[derive(Clone)]
struct Shared {
    ready: Ready,
    /// `Bearer TOKEN`.
    expected: Option<Arc<str>>,
    /// Only this machine reaches the port.
    is_local: bool,
}

impl Shared {
    /// Whether whoever asks may know all. The time that it takes does not tell where a guess went
    /// wrong.
    fn trusts(&self, headers: &HeaderMap) -> bool {
        let Some(expected) = &self.expected else { return true };
        let shown = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        same(expected.as_bytes(), shown)
    }
}

/// Serves until `stop` becomes true.
pub(crate) async fn serve(
    listener: TcpListener,
    ready: Ready,
    token: Option<String>,
    mut stop: watch::Receiver<bool>,
) {
    let expected = token.map(|token| format!("Bearer {token}").into());
    let is_local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let router = Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/cluster", get(cluster))
        .route("/cluster/nodes/{node}/{change}", post(change))
        .with_state(Shared { ready, expected, is_local });
    let stopped = async move {
        // An error means that the sender is gone, which is a stop, too.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
        tracing::error!("HTTP ended: {error}");
    }
}

async fn health(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let (well, body) = health::report(shared.ready.get().map(|server| &**server));
    let status = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = if shared.trusts(&headers) { body } else { format!("{{\"ready\":{well}}}") };
    answer(status, "application/json", body)
}

async fn metrics(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if !shared.trusts(&headers) {
        return unknown();
    }
    match shared.ready.get() {
        Some(server) => answer(StatusCode::OK, "text/plain; version=0.0.4", metrics::text(server)),
        None => answer(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "starting\n".to_owned()),
    }
}

async fn cluster(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if !shared.trusts(&headers) {
        return unknown();
    }
    told(match shared.ready.get().cloned() {
        Some(server) => members::describe(&server).await,
        None => Err(starting()),
    })
}

async fn change(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Path((node, change)): Path<(u16, String)>,
) -> Response {
    if !shared.trusts(&headers) {
        return unknown();
    }
    if shared.expected.is_none() && !shared.is_local {
        let why = "without a token the nodes are changed on the machine itself only";
        return told(Err((403, why.to_owned())));
    }
    let Some(server) = shared.ready.get().cloned() else { return told(Err(starting())) };
    told(members::change(&server, node, &change).await)
}

fn starting() -> members::Refusal {
    (503, "this node is starting".to_owned())
}

fn told(result: Result<serde_json::Value, members::Refusal>) -> Response {
    let (status, body) = match result {
        Ok(body) => (StatusCode::OK, body),
        Err((status, why)) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, serde_json::json!({ "error": why }))
        }
    };
    answer(status, "application/json", body.to_string())
}

fn unknown() -> Response {
    let mut refused = answer(StatusCode::UNAUTHORIZED, "text/plain", "a token is needed\n".to_owned());
    refused.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    refused
}

fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], body).into_response()
}
