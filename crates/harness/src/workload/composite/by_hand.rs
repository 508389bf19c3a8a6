//! The purchase by three services over HTTP that are written by hand, in the shape of the
//! components: the shop calls stock and payment at once, has both vote at once, decides, and tells
//! both at once.
//!
//! A participant keeps its transaction open from the call to the vote, in a table by the purchase's
//! name. Without atomicity each service commits its statement at once, and there are no votes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Deserialize;
use tokio_postgres::Config;

use super::direct::{DECIDE, Decision};
use super::host::Host;
use super::pool::{Lease, Parameters, Pool};
use super::purchase::{CHARGE, Charge, ENTER, Order, PRICE, Receipt, TAKE, Take};
use crate::error::{Result, is_retryable, sqlstate};

/// Whether a purchase is atomic, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomicity {
    /// By a two-phase commit.
    TwoPhase(Decision),
    /// Not at all.
    None,
}

/// Why a request fails: the status and words.
type Failure = (StatusCode, String);

fn failed(error: &tokio_postgres::Error) -> Failure {
    let status = match is_retryable(error) || sqlstate(error) == "55P03" {
        true => StatusCode::CONFLICT,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, error.to_string())
}

fn defect(why: &str) -> Failure {
    (StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
}

fn answer(text: Result<String, Failure>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(failure) => failure.into_response(),
    }
}

/// The header that names the purchase that a call is part of.
const PURCHASE: &str = "purchase";

/// The stock, or the payment.
struct Participant {
    pool: Arc<Pool>,
    site: &'static str,
    is_atomic: bool,
    open: Mutex<HashMap<String, Lease>>,
}

impl Participant {
    fn router(
        config: Config,
        site: &'static str,
        statements: &'static [&'static str],
        is_atomic: bool,
    ) -> Router {
        let (pool, open) = (Pool::new(config, statements), Mutex::default());
        let service = if site == "stock" { post(take) } else { post(charge) };
        Router::new()
            .route("/services/call", service)
            .route("/{purchase}/{end}", post(end))
            .with_state(Arc::new(Participant { pool, site, is_atomic, open }))
    }

    fn with_open<T>(&self, work: impl FnOnce(&mut HashMap<String, Lease>) -> T) -> T {
        work(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn call(&self, purchase: &str, parameters: Parameters<'_>) -> Result<String, Failure> {
        let lease = self.pool.take().await.map_err(|error| failed(&error))?;
        let changed = match self.is_atomic {
            true => lease.begin(0, parameters).await,
            false => lease.execute(0, parameters).await,
        };
        match changed {
            Ok(1) if self.is_atomic => {
                self.with_open(|open| open.insert(purchase.to_owned(), lease));
                Ok("null".to_owned())
            }
            Ok(1) => {
                lease.give_back();
                Ok("null".to_owned())
            }
            Ok(rows) => Err((StatusCode::BAD_REQUEST, format!("{rows} rows were changed"))),
            Err(error) => {
                lease.roll_back().await;
                Err(failed(&error))
            }
        }
    }

    async fn end(&self, purchase: &str, end: &str) -> Result<String, Failure> {
        let open = self.with_open(|open| open.remove(purchase));
        let lease = match (open, end) {
            (Some(lease), "abort") => {
                lease.roll_back().await;
                return Ok("null".to_owned());
            }
            (Some(lease), _) => lease,
            (None, "commit") => self.pool.take().await.map_err(|error| failed(&error))?,
            (None, "abort") => return Ok("null".to_owned()),
            (None, _) => return Err(defect("there is no such purchase")),
        };
        let text = match end {
            "prepare" => format!("PREPARE TRANSACTION '{purchase}-{}'", self.site),
            _ => format!("COMMIT PREPARED '{purchase}-{}'", self.site),
        };
        lease.text(&text).await.map_err(|error| failed(&error))?;
        lease.give_back();
        Ok("null".to_owned())
    }
}

fn purchase(headers: &axum::http::HeaderMap) -> &str {
    headers.get(PURCHASE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

async fn take(
    State(stock): State<Arc<Participant>>,
    headers: axum::http::HeaderMap,
    body: Bytes,
) -> Response {
    answer(match read::<Take>(&body) {
        Ok(Take { item }) => stock.call(purchase(&headers), &[&item]).await,
        Err(failure) => Err(failure),
    })
}

async fn charge(
    State(payment): State<Arc<Participant>>,
    headers: axum::http::HeaderMap,
    body: Bytes,
) -> Response {
    answer(match read::<Charge>(&body) {
        Ok(Charge { customer, price }) => payment.call(purchase(&headers), &[&customer, &price]).await,
        Err(failure) => Err(failure),
    })
}

async fn end(
    State(site): State<Arc<Participant>>,
    Path((purchase, end)): Path<(String, String)>,
) -> Response {
    answer(site.end(&purchase, &end).await)
}

/// The shop, which coordinates.
struct Shop {
    pool: Arc<Pool>,
    atomicity: Atomicity,
    /// Stock and payment.
    others: [String; 2],
    http: Http<HttpConnector, Full<Bytes>>,
    /// No two shops of one server give the same names.
    name: String,
    count: AtomicU64,
    /// Rows of decisions that no purchase under way needs.
    decisions: Mutex<Vec<i32>>,
    decisions_made: AtomicU64,
}

impl Shop {
    /// Posts to one of the others; the name of the purchase goes along.
    async fn post(&self, other: usize, path: &str, purchase: &str, body: String) -> Result<(), Failure> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.others[other]))
            .header(header::CONTENT_TYPE, "application/json")
            .header(PURCHASE, purchase)
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| defect(&error.to_string()))?;
        let response = self.http.request(request).await.map_err(|error| defect(&error.to_string()))?;
        let status = response.status();
        let body =
            response.into_body().collect().await.map_err(|error| defect(&error.to_string()))?.to_bytes();
        match status {
            StatusCode::OK => Ok(()),
            _ => Err((status, String::from_utf8_lossy(&body).into_owned())),
        }
    }

    /// The same message to both at once; the first failure of both.
    async fn both(&self, purchase: &str, end: &str) -> Result<(), Failure> {
        let path = format!("/{purchase}/{end}");
        let (stock, payment) = tokio::join!(
            self.post(0, &path, purchase, String::new()),
            self.post(1, &path, purchase, String::new())
        );
        stock.and(payment)
    }

    async fn buy(&self, order: Order) -> Result<String, Failure> {
        let purchase = format!("{}-{}", self.name, self.count.fetch_add(1, Ordering::Relaxed));
        let words = |error: serde_json::Error| defect(&error.to_string());
        let take = serde_json::to_string(&Take { item: order.item }).map_err(words)?;
        let charge =
            serde_json::to_string(&Charge { customer: order.customer, price: PRICE }).map_err(words)?;
        let (taken, charged) = tokio::join!(
            self.post(0, "/services/call", &purchase, take),
            self.post(1, "/services/call", &purchase, charge)
        );
        let bought = match taken.and(charged) {
            Ok(()) => self.finish(&purchase, order).await,
            Err(failure) => Err(failure),
        };
        if bought.is_err() && self.atomicity != Atomicity::None {
            self.both(&purchase, "abort").await?;
        }
        let id = bought?;
        serde_json::to_string(&Receipt { id }).map_err(words)
    }

    /// The shop's own part, once the others have done theirs.
    async fn finish(&self, purchase: &str, order: Order) -> Result<i64, Failure> {
        let sql = |error: tokio_postgres::Error| failed(&error);
        let lease = self.pool.take().await.map_err(sql)?;
        let Order { item, customer } = order;
        let enter: Parameters<'_> = &[&item, &customer, &PRICE];
        if self.atomicity != Atomicity::None {
            // In the same round trip as the statement.
            let (begun, rows) = tokio::join!(biased; lease.text("BEGIN"), lease.query(0, enter));
            begun.map_err(sql)?;
            let id = rows.map_err(sql)?.first().map_or(0, |row| row.get(0));
            let decision = self.decision();
            self.end(&lease, purchase, decision).await?;
            lease.give_back();
            self.decisions.lock().unwrap_or_else(PoisonError::into_inner).push(decision);
            return Ok(id);
        }
        let rows = lease.query(0, enter).await.map_err(sql)?;
        lease.give_back();
        Ok(rows.first().map_or(0, |row| row.get(0)))
    }

    /// A row of decisions that is nobody's.
    fn decision(&self) -> i32 {
        let free = self.decisions.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| self.decisions_made.fetch_add(1, Ordering::Relaxed) as i32)
    }

    /// Votes, the decision and the outcome.
    async fn end(&self, lease: &Lease, purchase: &str, decision: i32) -> Result<(), Failure> {
        let sql = |error: tokio_postgres::Error| failed(&error);
        if self.atomicity == Atomicity::TwoPhase(Decision::LastResource) {
            self.both(purchase, "prepare").await?;
            lease.commit_with(1, &[&decision, &purchase]).await.map_err(sql)?;
            return self.both(purchase, "commit").await;
        }
        let (own, all) = (format!("PREPARE TRANSACTION '{purchase}-shop'"), self.both(purchase, "prepare"));
        let (own, all) = tokio::join!(lease.text(&own), all);
        own.map_err(sql)?;
        all?;
        lease.execute(1, &[&decision, &purchase]).await.map_err(sql)?;
        let (own, all) = (format!("COMMIT PREPARED '{purchase}-shop'"), self.both(purchase, "commit"));
        let (own, all) = tokio::join!(lease.text(&own), all);
        own.map_err(sql)?;
        all
    }
}

async fn buy(State(shop): State<Arc<Shop>>, body: Bytes) -> Response {
    answer(match read::<Order>(&body) {
        Ok(order) => shop.buy(order).await,
        Err(failure) => Err(failure),
    })
}

/// Starts the three services on a host; answers where the shop listens.
///
/// # Errors
/// There is no port left.
pub async fn start(
    host: &Host,
    configs: [Config; 3],
    atomicity: Atomicity,
    name: &str,
) -> Result<std::net::SocketAddr> {
    let is_atomic = atomicity != Atomicity::None;
    let [shop, stock, payment] = configs;
    let stock = host.serve(Participant::router(stock, "stock", &[TAKE], is_atomic)).await?;
    let payment = host.serve(Participant::router(payment, "payment", &[CHARGE], is_atomic)).await?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let http = Http::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
    let statements: &'static [&'static str] = if is_atomic { &[ENTER, DECIDE] } else { &[ENTER] };
    let shop = Shop {
        pool: Pool::new(shop, statements),
        atomicity,
        others: [format!("http://{stock}"), format!("http://{payment}")],
        http,
        name: name.to_owned(),
        count: AtomicU64::new(0),
        decisions: Mutex::default(),
        decisions_made: AtomicU64::new(0),
    };
    host.serve(Router::new().route("/services/buy", post(buy)).with_state(Arc::new(shop))).await
}
