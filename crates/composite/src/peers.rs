//! The other components, found by their names, and what is said to them.
//!
//! Calls go one by one. Control messages about many roots share a request: while one is under way,
//! those that come meanwhile wait for the next one, as commits do for a flush.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use axum::http::{Method, Request, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::name::{CallId, Name, RootId};
use crate::participant::{No, Nonce, Origin, Outcome, Settled, Vote};
use crate::problem::Problem;
use crate::wire;

/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// How long a control message waits for its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most roots of a control message.
const BATCH_MAX: usize = 256;
/// Control messages of one kind that may be under way to one component.
const UNDER_WAY_MAX: usize = 4;

/// A kind of control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Prepare,
    Commit,
    Abort,
    Outcome,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Kind::Prepare => "/composite/prepare",
            Kind::Commit => "/composite/commit",
            Kind::Abort => "/composite/abort",
            Kind::Outcome => "/composite/outcome",
        }
    }
}

/// An entry of a control message, and who waits for its answer.
struct Waiting {
    root: RootId,
    entry: Value,
    answer: oneshot::Sender<Option<Value>>,
}

/// What waits to be sent to one component.
struct Courier {
    waiting: Mutex<Vec<Waiting>>,
    under_way: Semaphore,
}

/// The other components.
pub(crate) struct Peers {
    own: Name,
    /// Which database this component decides in, once that is known.
    origin: OnceLock<Origin>,
    token: Option<String>,
    addresses: RwLock<BTreeMap<Name, String>>,
    couriers: Mutex<HashMap<(Name, Kind), Arc<Courier>>>,
    http: Http<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").field("own", &self.own).finish_non_exhaustive()
    }
}

impl Peers {
    pub(crate) fn new(own: Name, token: Option<String>, trusted: rustls::ClientConfig) -> Peers {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(2)));
        connector.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(trusted)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let http = Http::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(connector);
        let (addresses, couriers) = (RwLock::default(), Mutex::default());
        Peers { own, origin: OnceLock::new(), token, addresses, couriers, http }
    }

    /// This component has a database now.
    pub(crate) fn begin(&self, origin: Origin) {
        let _ = self.origin.set(origin);
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.get()
    }

    /// A component is, or has moved, here.
    pub(crate) fn set(&self, name: Name, address: &str) {
        let mut addresses = self.addresses.write().unwrap_or_else(PoisonError::into_inner);
        addresses.insert(name, address.trim_end_matches('/').to_owned());
    }

    /// A component is not there any more.
    pub(crate) fn remove(&self, name: &Name) {
        self.addresses.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn address(&self, name: &Name) -> Option<String> {
        self.addresses.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn request(&self, uri: &str) -> axum::http::request::Builder {
        let request =
            Request::builder().method(Method::POST).uri(uri).header(header::CONTENT_TYPE, "application/json");
        match &self.token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// Calls a service. Answers the text and the component's generation.
    #[expect(clippy::too_many_arguments, reason = "each is a header or a part of the address")]
    pub(crate) async fn call(
        &self,
        child: &Name,
        service: &str,
        root: &RootId,
        call: &CallId,
        (chain, trace): (&[CallId], &wire::Trace),
        deadline: Instant,
        body: String,
    ) -> Result<(String, u64), Problem> {
        let away = |why: String| Problem::new(503, "away", format!("{child}: {why}"));
        let Some(address) = self.address(child) else {
            return Err(away("no such component among the peers".to_owned()));
        };
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let ancestors: Vec<&str> = chain.iter().map(CallId::as_str).collect();
        let request = self.request(&format!("{address}/services/{service}"));
        let request = trace.iter().fold(request, |request, (name, value)| request.header(*name, value));
        let request = request
            .header(wire::ROOT, root.as_str())
            .header(wire::PARENT, self.own.as_str())
            .header(wire::CALL, call.as_str())
            .header(wire::ANCESTORS, ancestors.join(","))
            .header(wire::DEADLINE, left.to_string())
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| away(error.to_string()))?;
        let response = match timeout_at(deadline, self.http.request(request)).await {
            Err(_) => {
                return Err(
                    Problem::new(504, "deadline", format!("{child} did not answer in time")).began(true)
                );
            }
            // Nothing was sent.
            Ok(Err(error)) if error.is_connect() => return Err(away(in_words(&error))),
            Ok(Err(error)) => return Err(away(in_words(&error)).began(true)),
            Ok(Ok(response)) => response,
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect();
        let body = match timeout_at(deadline, body).await {
            Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            Ok(Err(_)) | Err(_) => return Err(away("the answer was cut".to_owned()).began(true)),
        };
        if head.status.is_success() {
            let generation = head.headers.get(wire::GENERATION).and_then(|text| text.to_str().ok());
            return Ok((body, generation.and_then(|text| text.parse().ok()).unwrap_or_default()));
        }
        Err(problem(child, head.status, &body))
    }

    /// Asks for a vote. No answer is a no; why it is one is said beside it.
    pub(crate) async fn prepare(
        self: &Arc<Self>,
        child: &Name,
        root: &RootId,
        calls: u32,
        generation: Option<u64>,
    ) -> (Vote, Option<Problem>) {
        let entry = json!({ "root": root, "parent": self.own, "calls": calls, "generation": generation, "origin": self.origin() });
        let Some(answer) = self.send(child, Kind::Prepare, root, entry).await else {
            let why = Problem::new(503, "away", format!("{child} does not answer the question for its vote"));
            return (Vote::No(No::Failed), Some(why));
        };
        match answer["vote"].as_str() {
            Some("yes") => (Vote::Yes(answer["nonce"].as_u64().unwrap_or_default()), None),
            _ => {
                let reason = answer["reason"].as_str().unwrap_or("without a reason");
                (
                    Vote::No(No::Child),
                    Some(Problem::new(409, "conflict", format!("{child} voted no: {reason}"))),
                )
            }
        }
    }

    /// Says that a root is committed. Nothing if there was no answer.
    pub(crate) async fn commit(
        self: &Arc<Self>,
        child: &Name,
        root: &RootId,
        nonce: Option<Nonce>,
    ) -> Option<Settled> {
        let entry = json!({ "root": root, "parent": self.own, "nonce": nonce });
        settled(&self.send(child, Kind::Commit, root, entry).await?)
    }

    /// Says that a root is aborted.
    pub(crate) async fn abort(self: &Arc<Self>, child: &Name, root: &RootId) -> Option<Settled> {
        let entry = json!({ "root": root, "parent": self.own });
        settled(&self.send(child, Kind::Abort, root, entry).await?)
    }

    /// Asks for the outcome of a root. Answers from which database it is known, too, if the parent
    /// says so.
    pub(crate) async fn outcome(
        self: &Arc<Self>,
        parent: &Name,
        root: &RootId,
        nonce: Option<Nonce>,
    ) -> Option<(Outcome, Option<Origin>)> {
        let entry = json!({ "root": root, "child": self.own, "nonce": nonce });
        let mut answer = self.send(parent, Kind::Outcome, root, entry).await?;
        let outcome = match answer["state"].as_str()? {
            "committed" => Outcome::Committed,
            "aborted" => Outcome::Aborted,
            "pending" => Outcome::Pending,
            _ => return None,
        };
        Some((outcome, serde_json::from_value(answer["origin"].take()).ok()))
    }

    /// Sends an entry together with others; answers what was said of this root.
    async fn send(self: &Arc<Self>, to: &Name, kind: Kind, root: &RootId, mut entry: Value) -> Option<Value> {
        if let Value::Object(fields) = &mut entry {
            fields.retain(|_, value| !value.is_null());
        }
        let courier = {
            let mut couriers = self.couriers.lock().unwrap_or_else(PoisonError::into_inner);
            let new =
                || Arc::new(Courier { waiting: Mutex::default(), under_way: Semaphore::new(UNDER_WAY_MAX) });
            Arc::clone(couriers.entry((to.clone(), kind)).or_insert_with(new))
        };
        let (sender, answer) = oneshot::channel();
        let waiting = Waiting { root: root.clone(), entry, answer: sender };
        courier.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(waiting);
        let (this, to) = (Arc::clone(self), to.clone());
        tokio::spawn(async move {
            let Ok(_permit) = courier.under_way.acquire().await else { return };
            let batch: Vec<Waiting> = {
                let mut waiting = courier.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let count = waiting.len().min(BATCH_MAX);
                waiting.drain(..count).collect()
            };
            // Somebody else has taken this one along.
            if !batch.is_empty() {
                this.deliver(&to, kind, batch).await;
            }
        });
        answer.await.ok().flatten()
    }

    async fn deliver(&self, to: &Name, kind: Kind, batch: Vec<Waiting>) {
        let (waiting, entries): (Vec<_>, Vec<Value>) =
            batch.into_iter().map(|waiting| ((waiting.root, waiting.answer), waiting.entry)).unzip();
        let answers =
            timeout(PATIENCE, self.post(to, kind, entries)).await.ok().flatten().unwrap_or_default();
        let mut answers: HashMap<String, Value> = answers
            .into_iter()
            .filter_map(|answer| Some((answer["root"].as_str()?.to_owned(), answer)))
            .collect();
        for (root, sender) in waiting {
            let _ = sender.send(answers.remove(root.as_str()));
        }
    }

    async fn post(&self, to: &Name, kind: Kind, entries: Vec<Value>) -> Option<Vec<Value>> {
        let address = self.address(to)?;
        let body = json!({ "roots": entries }).to_string();
        let request =
            self.request(&format!("{address}{}", kind.path())).body(Full::new(Bytes::from(body))).ok()?;
        let response = self.http.request(request).await.ok()?;
        if response.status() != StatusCode::OK {
            tracing::warn!(%to, "{} was answered {}", kind.path(), response.status());
            return None;
        }
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.ok()?.to_bytes();
        let mut answer: Value = serde_json::from_slice(&body).ok()?;
        match answer["roots"].take() {
            Value::Array(entries) => Some(entries),
            _ => None,
        }
    }
}

fn settled(answer: &Value) -> Option<Settled> {
    match answer["state"].as_str()? {
        "done" => Some(Settled::Done),
        "pending" => Some(Settled::Pending),
        "refused" => Some(Settled::Refused),
        _ => None,
    }
}

/// What a component answers, of all statuses; another one comes from something in between, or from
/// a defect.
const STATUSES: [u16; 9] = [400, 401, 404, 409, 413, 422, 503, 504, 508];

/// A problem as another component has written it. What it does not say is taken for the worse.
fn problem(child: &Name, status: StatusCode, body: &str) -> Problem {
    if !STATUSES.contains(&status.as_u16()) {
        return Problem::new(503, "away", format!("{child} was answered for with {status}")).began(true);
    }
    let left_nothing = matches!(status.as_u16(), 401 | 404 | 409 | 413 | 422 | 508);
    let said: Value = serde_json::from_str(body).unwrap_or_default();
    let began = said["began"].as_bool().unwrap_or(!left_nothing);
    let problem = serde_json::from_value(said).unwrap_or_else(|_| {
        Problem::new(status.as_u16(), "failed", body.chars().take(200).collect::<String>())
    });
    Problem { status: status.as_u16(), began, ..problem }
}

fn in_words(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Checks an address: `http://host:port`, or `https`.
pub(crate) fn check_address(text: &str) -> Result<(), String> {
    let uri: Uri = text.parse().map_err(|_| format!("not an address: {text:?}"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(_)) => Ok(()),
        _ => Err(format!("not an address: {text:?} (http://host:port or https://host:port)")),
    }
}
