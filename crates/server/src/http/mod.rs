//! HTTP beside the database port: `/health` for whoever decides where to send clients, `/metrics`
//! for Prometheus.
//!
//! The port answers as soon as it is bound, also while the database is still being recovered:
//! `/health` is 503 until clients are accepted, and 503 again once the log refuses commits.
//!
//! Where a token is configured, metrics need it (`Authorization: Bearer TOKEN`; else 401), and so
//! do the details of health: without it there is only the status.

pub(crate) mod health;
pub(crate) mod metrics;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
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
    let router = Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .with_state(Shared { ready, expected });
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
        let mut refused = answer(StatusCode::UNAUTHORIZED, "text/plain", "a token is needed\n".to_owned());
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return refused;
    }
    match shared.ready.get() {
        Some(server) => answer(StatusCode::OK, "text/plain; version=0.0.4", metrics::text(server)),
        None => answer(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "starting\n".to_owned()),
    }
}

fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], body).into_response()
}
