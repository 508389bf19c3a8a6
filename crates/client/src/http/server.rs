//! The application server's HTTP side.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::routing::{delete, get, post};
use tokio::net::TcpListener;

use super::wire::{IDEMPOTENCY_KEY, INSTANCE, Parts, encode, said};
use crate::application::{Acknowledged, ApplicationServer, Logic};
use crate::etransaction::Reply;
use crate::site::Site;
use crate::xid::BadKey;

/// Most bytes of a request over HTTP: more than what sites take.
pub const BODY_BYTES_MAX: usize = 4 << 20;

struct App<S: Site, L> {
    server: ApplicationServer<S>,
    logic: L,
}

/// The routes of an application server. `logic` is what `POST /etx` executes.
pub fn router<S: Site, L: Logic<S::Connection>>(server: ApplicationServer<S>, logic: L) -> Router {
    Router::new()
        .route("/etx", post(execute::<S, L>))
        .route("/etx/ack", post(acknowledge_key::<S, L>).delete(acknowledge_ack::<S, L>))
        .route("/etx/{*xid}", delete(acknowledge_path::<S, L>))
        .route("/healthz", get(health::<S, L>))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::new(App { server, logic }))
}

/// Serves until `stop` is over; then what is under way is answered.
///
/// # Errors
/// The listener's.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

/// A request that is none: status and words.
struct Bad(StatusCode, String);

impl Bad {
    fn parts(self) -> Parts {
        match self {
            Bad(StatusCode::PAYLOAD_TOO_LARGE, words) => encode(&Reply::RequestTooLarge(words.into())),
            Bad(status, words) => said(status, None, words),
        }
    }
}

type Shared<S, L> = State<Arc<App<S, L>>>;

/// The text of a header, which may be there once.
fn text(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Bad> {
    let bad = |what: &str| Bad(StatusCode::BAD_REQUEST, format!("the header {name} {what}"));
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(bad("is given twice"));
    }
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| bad("is not UTF-8"))?;
    Ok(Some(text.trim().to_owned()))
}

fn key(headers: &HeaderMap) -> Result<String, Bad> {
    let missing = || Bad(StatusCode::BAD_REQUEST, "the header idempotency-key is missing".to_owned());
    text(headers, &IDEMPOTENCY_KEY)?.ok_or_else(missing)
}

fn instance(headers: &HeaderMap) -> Result<Option<i64>, Bad> {
    let Some(text) = text(headers, &INSTANCE)? else { return Ok(None) };
    let bad = |_| Bad(StatusCode::BAD_REQUEST, format!("{INSTANCE} is not a number: {text}"));
    text.parse().map(Some).map_err(bad)
}

fn request(body: Result<Bytes, BytesRejection>) -> Result<String, Bad> {
    let body = body.map_err(|rejection| match rejection.status() {
        status @ StatusCode::PAYLOAD_TOO_LARGE => {
            Bad(status, format!("the request has more than {BODY_BYTES_MAX} bytes"))
        }
        status => Bad(status, rejection.body_text()),
    })?;
    String::from_utf8(body.into())
        .map_err(|_| Bad(StatusCode::BAD_REQUEST, "the request is not UTF-8".to_owned()))
}

fn bad_key(error: &BadKey) -> Parts {
    said(StatusCode::BAD_REQUEST, None, error)
}

async fn execute<S: Site, L: Logic<S::Connection>>(
    State(app): Shared<S, L>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Parts {
    let read = || Ok::<_, Bad>((key(&headers)?, instance(&headers)?, request(body)?));
    let (xid, instance, request) = match read() {
        Ok(read) => read,
        Err(bad) => return bad.parts(),
    };
    // A task of its own: a client that goes away does not stop it halfway.
    let running = tokio::spawn(async move {
        match instance {
            Some(instance) => app.server.run(&xid, instance, &request, &app.logic).await,
            None => app.server.answer(&xid, &request, &app.logic).await,
        }
    });
    match running.await {
        Ok(Ok(reply)) => encode(&reply),
        Ok(Err(error)) => bad_key(&error),
        Err(error) => {
            tracing::error!("a run failed: {error}");
            said(StatusCode::INTERNAL_SERVER_ERROR, None, "the request's logic has failed; try again")
        }
    }
}

async fn acknowledge_key<S: Site, L: Logic<S::Connection>>(
    State(app): Shared<S, L>,
    headers: HeaderMap,
) -> Parts {
    match key(&headers) {
        Ok(xid) => acknowledge(&app.server, &xid).await,
        Err(bad) => bad.parts(),
    }
}

async fn acknowledge_path<S: Site, L: Logic<S::Connection>>(
    State(app): Shared<S, L>,
    Path(xid): Path<String>,
) -> Parts {
    acknowledge(&app.server, &xid).await
}

/// `DELETE /etx/ack`: of the XID `ack`.
async fn acknowledge_ack<S: Site, L: Logic<S::Connection>>(State(app): Shared<S, L>) -> Parts {
    acknowledge(&app.server, "ack").await
}

async fn acknowledge<S: Site>(server: &ApplicationServer<S>, xid: &str) -> Parts {
    match server.acknowledge(xid).await {
        Ok(Acknowledged::Forgotten) => said(StatusCode::OK, Some("forgotten"), "forgotten"),
        Ok(Acknowledged::Unknown) => {
            said(StatusCode::NOT_FOUND, Some("unknown"), "no site has heard of this request")
        }
        Ok(Acknowledged::NotDecided) => {
            let words = "the request is not decided at every site: acknowledge what you have an answer to";
            said(StatusCode::CONFLICT, Some("not-decided"), words)
        }
        Ok(Acknowledged::Retry(why)) => {
            said(StatusCode::SERVICE_UNAVAILABLE, None, format!("acknowledge again: {why}"))
        }
        Err(error) => bad_key(&error),
    }
}

async fn health<S: Site, L: Logic<S::Connection>>(State(app): Shared<S, L>) -> Parts {
    let described = app.server.describe().await;
    let status = match described.iter().all(Result::is_ok) {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let lines = described.iter().enumerate().map(|(site, described)| match described {
        Ok(text) => format!("site {site}: {text}"),
        Err(trouble) => trouble.to_string(),
    });
    said(status, None, lines.collect::<Vec<_>>().join("\n"))
}
