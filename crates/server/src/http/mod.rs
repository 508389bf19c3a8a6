//! HTTP beside the database port: `/health` for whoever decides where to send clients, `/metrics`
//! for Prometheus, and a page for whoever wants to look: `/` ([`page`]), which draws `/live`
//! ([`live`]).
//!
//! The port answers as soon as it is bound, also while the database is still being recovered:
//! `/health` is 503 until clients are accepted, and 503 again once the log refuses commits. Of a
//! node of a cluster it says what that waits for ([`Starting`]).
//!
//! `/cluster` shows a cluster's nodes and changes who they are ([`members`]).
//!
//! Where a token is configured, metrics and `/live` need it (`Authorization: Bearer TOKEN`; else
//! 401), and so do the details of health: without it there is only the status. The page itself is
//! anybody's, for it has nothing to tell.
//!
//! Connections are few and not silent for long ([`visitors`]), and none of them keeps a stopped
//! server's database open.

pub(crate) mod health;
mod live;
mod members;
pub(crate) mod metrics;
mod page;
mod visitors;

use std::sync::{Arc, OnceLock, Weak};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use cognate_replication::order::TotalOrder;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::visitors::Visitors;
use crate::pg::registry::same;
use crate::server::Server;

/// The server, once it accepts clients. Who lingers at the port does not keep it: its folder is
/// free once it has stopped.
pub(crate) type Ready = Arc<OnceLock<Weak<Server>>>;

/// The order that a node takes part in while it starts, by which it can be said what it waits for.
/// Empty before and afterwards: it would keep the order's log open.
pub(crate) type Starting = Arc<Mutex<Option<TotalOrder>>>;

/// What the requests share.
#[derive(Clone)]
struct Shared {
    ready: Ready,
    starting: Starting,
    /// `Bearer TOKEN`.
    expected: Option<Arc<str>>,
    /// Only this machine reaches the port.
    is_local: bool,
}

impl Shared {
    /// The server, while it runs.
    fn server(&self) -> Option<Arc<Server>> {
        self.ready.get()?.upgrade()
    }

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
    (ready, starting): (Ready, Starting),
    token: Option<String>,
    mut stop: watch::Receiver<bool>,
) {
    let expected = token.map(|token| format!("Bearer {token}").into());
    let is_local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let router = Router::new()
        .route("/", get(page::show))
        .route("/live", get(live))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/cluster", get(cluster))
        .route("/cluster/nodes/{node}/{change}", post(change))
        .with_state(Shared { ready, starting, expected, is_local });
    let stopped = async move {
        // An error means that the sender is gone, which is a stop, too.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let visitors = Visitors::new(listener, visitors::PLACES);
    if let Err(error) = axum::serve(visitors, router).with_graceful_shutdown(stopped).await {
        tracing::error!("HTTP ended: {error}");
    }
}

async fn health(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let (server, starting) = (shared.server(), shared.starting.lock().clone());
    let report = told_apart(move || health::report(server.as_deref(), starting.as_ref())).await;
    let (well, body) = report.unwrap_or_else(|| (false, "{\"ready\":false}".to_owned()));
    let status = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = if shared.trusts(&headers) { body } else { format!("{{\"ready\":{well}}}") };
    answer(status, "application/json", body)
}

async fn metrics(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if !shared.trusts(&headers) {
        return unknown();
    }
    let text = match shared.server() {
        Some(server) => told_apart(move || metrics::text(&server)).await,
        None => None,
    };
    match text {
        Some(text) => answer(StatusCode::OK, "text/plain; version=0.0.4", text),
        None => answer(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "starting\n".to_owned()),
    }
}

async fn live(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if !shared.trusts(&headers) {
        return unknown();
    }
    let texts = shared.expected.is_some() || shared.is_local;
    let reading = match shared.server() {
        Some(server) => told_apart(move || live::reading(&server, texts)).await,
        None => None,
    };
    told(reading.ok_or_else(starting))
}

async fn cluster(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if !shared.trusts(&headers) {
        return unknown();
    }
    told(match shared.server() {
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
    // The address is this machine's for whatever page its browser shows, too.
    if shared.expected.is_none() && headers.contains_key(header::ORIGIN) {
        let why = "without a token the nodes are not changed by a page in a browser";
        return told(Err((403, why.to_owned())));
    }
    let Some(server) = shared.server() else { return told(Err(starting())) };
    told(members::change(&server, node, &change).await)
}

/// Looks at the server on a thread that may wait. Much of what is told is locked for as long as an
/// image of a node is made, and the threads here are those of its consensus.
async fn told_apart<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(look).await.ok()
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use cognate_engine::{Access as Rights, Isolation};
    use cognate_env::sim::SimDisk;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::assemble::{close_database, open_database, serving};
    use crate::config::{Config, Settings};
    use crate::server::Access;

    /// What `/live` says to somebody without a token.
    async fn heard(ready: &Ready, expected: Option<&str>, is_local: bool) -> (u16, String) {
        let (ready, expected) = (ready.clone(), expected.map(Into::into));
        let shared = Shared { ready, starting: Starting::default(), expected, is_local };
        let response = live(State(shared), HeaderMap::new()).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8(body.to_vec()).expect("UTF-8"))
    }

    /// A page that a browser on this machine shows may send a request here, and the browser says
    /// where the page is from.
    #[tokio::test]
    async fn without_a_token_a_page_in_a_browser_changes_no_nodes() {
        let (ready, starting) = (Ready::default(), Starting::default());
        let shared = Shared { ready, starting, expected: None, is_local: true };
        let asked = |headers: HeaderMap| {
            let (shared, path) = (State(shared.clone()), Path((4, "remove".to_owned())));
            async move { change(shared, headers, path).await.status().as_u16() }
        };
        assert_eq!(asked(HeaderMap::new()).await, 503, "it is starting");
        let mut headers = HeaderMap::new();
        headers.insert(header::ORIGIN, HeaderValue::from_static("http://elsewhere.example"));
        assert_eq!(asked(headers).await, 403);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn texts_are_not_for_everybody_and_starting_is_said() {
        let ready: Ready = Arc::default();
        let starting = (503, "{\"error\":\"this node is starting\"}".to_owned());
        assert_eq!(heard(&ready, None, true).await, starting);
        assert_eq!(heard(&ready, Some("Bearer x"), true).await.0, 401);
        let settings = Settings { data: Some("/data".into()), ..Settings::default() };
        let config = Config::resolve(settings).expect("valid settings");
        let database = open_database(&config, SimDisk::new(1).handle(), None).await.expect("opened");
        let tree = database.engine().allocate_tree();
        let mut transaction = database.engine().begin(Isolation::Snapshot, Rights::ReadWrite);
        transaction.put(tree, b"key", Bytes::new()).expect("written");
        transaction.prepare("a name", Bytes::new()).expect("prepared").durable.await.expect("durable");
        let access = Access::read(&config).expect("no files are named");
        let crew = Arc::new(crate::crew::Crew::start(Some(1)).expect("threads"));
        let server = serving(database, crew, access, &config, None);
        assert!(ready.set(Arc::downgrade(&server)).is_ok());
        let (status, body) = heard(&ready, None, true).await;
        assert!(status == 200 && body.contains("a name") && body.contains("\"texts\":true"), "{body}");
        let (status, body) = heard(&ready, None, false).await;
        assert!(status == 200 && !body.contains("a name") && body.contains("\"texts\":false"), "{body}");
        assert!(body.contains("\"prepared_count\":1"), "{body}");
        assert_eq!(heard(&ready, Some("Bearer x"), false).await.0, 401);
        close_database(&server).await.expect("closed");
    }
}
