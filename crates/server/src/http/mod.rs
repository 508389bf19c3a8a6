//! HTTP beside the database port: `/health` for whoever decides where to send clients, `/metrics` for Prometheus.
//!
//! The port answers as soon as it is bound, also while the database is still being recovered: `/health` is 503 until
//! clients are accepted, and 503 again once the log refuses commits.

pub(crate) mod health;
pub(crate) mod metrics;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::server::Server;

/// The server, once it accepts clients.
pub(crate) type Ready = Arc<OnceLock<Arc<Server>>>;

/// Serves until `stop` becomes true.
pub(crate) async fn serve(listener: TcpListener, ready: Ready, mut stop: watch::Receiver<bool>) {
    let router =
        Router::new().route("/health", get(health)).route("/metrics", get(metrics)).with_state(ready);
    let stopped = async move {
        // An error means that the sender is gone, which is a stop, too.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
        tracing::error!("HTTP ended: {error}");
    }
}

async fn health(State(ready): State<Ready>) -> Response {
    let (well, body) = health::report(ready.get().map(|server| &**server));
    let status = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer(status, "application/json", body)
}

async fn metrics(State(ready): State<Ready>) -> Response {
    match ready.get() {
        Some(server) => answer(StatusCode::OK, "text/plain; version=0.0.4", metrics::text(server)),
        None => answer(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "starting\n".to_owned()),
    }
}

fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], body).into_response()
}
