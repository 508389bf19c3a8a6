//! A component's HTTP side. `docs/composite-wire.md` has the contract.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::future::select_all;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::{Instant, timeout_at};

use crate::ahead::{Ahead, Said};
use crate::body::{Body, Read, compared};
use crate::fault;
use crate::headers::{bearer, deadline, is_ahead, place, speaks_of_root, text, trace};
use crate::matrix::{Matrix, kind};
use crate::name::{CallId, Name, RootId};
use crate::node::Node;
use crate::openapi;
use crate::participant::{Arrival, Effect, Event, No, Nonce, Outcome, Phase, Prepare, Settled, Vote};
use crate::problem::Problem;
use crate::run::{Key, Reply, Request, first_call, unknown};
use crate::slots::fenced;
use crate::votes::new_nonce;
use crate::whole::{Panicked, Whole};
use crate::wire::{self, Batch, OutcomeEntry, PrepareEntry, Questions, StateEntry, VoteEntry, Votes};

/// A root ends so long after its time at the latest, unless its database does not say what has
/// become of it: an abort is waited for so long, and a lock.
const LATE: Duration = Duration::from_secs(3);
/// Most bytes of a client's key.
const KEY_BYTES_MAX: usize = 255;
/// What the status page may load, and who may show it: nothing and nobody else.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What has to be shown to do anything.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    /// By other components.
    pub peer: Option<String>,
    /// By clients; a peer's token is good for them, too.
    pub client: Option<String>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

struct App {
    node: Arc<Node>,
    matrix: Arc<Matrix>,
    tokens: Tokens,
}

type Shared = State<Arc<App>>;

pub(crate) fn router(node: &Arc<Node>, matrix: &Arc<Matrix>, tokens: &Tokens) -> Router {
    let app = App { node: Arc::clone(node), matrix: Arc::clone(matrix), tokens: tokens.clone() };
    Router::new()
        .route("/services/{name}", post(service))
        .route("/composite/prepare", post(prepare))
        .route("/composite/commit", post(commit))
        .route("/composite/abort", post(abort))
        .route("/composite/outcome", post(outcome))
        .route("/composite/settle", post(settle))
        .route("/composite/resume", post(resume))
        .route("/", get(page))
        .route("/status", get(status))
        .route("/openapi.json", get(openapi))
        .route("/faults", get(|| async { axum::Json(fault::names()) }))
        .fallback(nowhere)
        .method_not_allowed_fallback(nowhere)
        .with_state(Arc::new(app))
}

/// Whoever is still sending comes to read that there is nothing, too.
async fn nowhere(_: Body) -> Problem {
    nothing().await
}

async fn nothing() -> Problem {
    Problem::new(404, "path", "there is nothing here")
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        (status, [(header::CONTENT_TYPE, "application/problem+json")], self.body()).into_response()
    }
}

/// Who a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Caller {
    Client,
    Peer,
}

impl App {
    fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let shown = bearer(headers);
        let is = |token: &Option<String>| match (token, shown) {
            (Some(token), Some(shown)) => same(token, shown),
            _ => false,
        };
        match &self.tokens {
            Tokens { peer: None, client: None } => Ok(Caller::Peer),
            tokens if is(&tokens.peer) => Ok(Caller::Peer),
            tokens if is(&tokens.client) => Ok(Caller::Client),
            _ => Err(Problem::new(401, "token", "a token is needed, as Authorization: Bearer")),
        }
    }

    fn peer(&self, headers: &HeaderMap) -> Result<(), Problem> {
        match self.caller(headers)? {
            // What an older process knows is not what the component knows.
            Caller::Peer if self.node.is_fenced.load(Ordering::SeqCst) => Err(fenced()),
            Caller::Peer => Ok(()),
            Caller::Client => Err(Problem::new(401, "token", "this needs the token of a component")),
        }
    }
}

/// Equality in a time that does not tell where a guess went wrong.
fn same(a: &str, b: &str) -> bool {
    Sha256::digest(a) == Sha256::digest(b)
}

fn json_body(body: Read) -> Result<Value, Problem> {
    serde_json::from_slice(&body?)
        .map_err(|error| Problem::new(400, "arguments", format!("not JSON: {error}")))
}

fn typed<T: DeserializeOwned>(body: Read) -> Result<T, Problem> {
    serde_json::from_slice(&body?).map_err(|error| match error.is_data() {
        true => Problem::new(400, "arguments", error.to_string()),
        false => Problem::new(400, "arguments", format!("not JSON: {error}")),
    })
}

async fn service(
    State(app): Shared,
    name: Result<Path<String>, PathRejection>,
    Body(body, headers, arrived): Body,
) -> Response {
    let generation = app.node.generation();
    let Ok(Path(name)) = name else { return nothing().await.into_response() };
    match serve(&app, &name, &headers, (body, arrived)).await {
        Ok((answer, nonce)) => {
            fault::point("reply-before");
            let headers = [
                (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
                (HeaderName::from_static(wire::GENERATION), HeaderValue::from(generation)),
            ];
            let mut response = (StatusCode::OK, headers, answer).into_response();
            if let Some(nonce) = nonce {
                response.headers_mut().insert(wire::NONCE, HeaderValue::from(nonce));
            }
            response
        }
        Err(problem) => problem.into_response(),
    }
}

/// An answer, and what a yes to its root will be known by.
type Answered = Result<(String, Option<Nonce>), Problem>;

async fn serve(app: &App, name: &str, headers: &HeaderMap, (body, arrived): (Read, Instant)) -> Answered {
    let caller = app.caller(headers)?;
    if speaks_of_root(headers) && caller != Caller::Peer {
        return Err(Problem::new(401, "token", "only components take part in roots that have begun"));
    }
    let place = place(headers)?;
    let Some(service) = app.matrix.service(name) else {
        return Err(Problem::new(404, "service", format!("no service {name:?} here")));
    };
    let deadline = deadline(headers, arrived)?;
    let origin = text(headers, wire::ORIGIN)?.map(wire::read_origin).transpose()?;
    let arguments = json_body(body)?;
    let key = match text(headers, wire::IDEMPOTENCY_KEY)? {
        Some(key) if key.is_empty() || key.len() > KEY_BYTES_MAX => {
            return Err(Problem::new(400, "arguments", format!("a key has 1 to {KEY_BYTES_MAX} bytes")));
        }
        key => key.map(|key| Key::new(key, name, &arguments)),
    };
    // A call may come again, and has the same ones then. What begins a root is given a new name.
    let hash = place.as_ref().map_or(0, |_| hash(&arguments));
    let entry = &app.node.services[usize::from(service)];
    let prepared = entry.prepared(arguments)?;
    let item = prepared.item.clone();
    let (node, trace) = (Arc::clone(&app.node), trace(headers));
    let is_ahead = is_ahead(headers)? && place.is_some();
    let request = |root: RootId, call: CallId, parent: Option<Name>, ancestors: Vec<CallId>| Request {
        arrival: Arrival { root, call, parent, ancestors, service, item, arguments: hash },
        prepared: Arc::new(prepared),
        deadline,
        origin,
        trace,
        key: None,
        is_ahead,
    };
    let (begins, (caller, said)) = (place.is_none(), oneshot::channel());
    // A client that goes away does not stop it halfway.
    let running = match place {
        Some((root, parent, call, ancestors)) => {
            if entry.declared.begins_only {
                return Err(Problem::new(409, "closed", format!("{name} only begins roots")));
            }
            let request = request(root, call, Some(parent), ancestors);
            let ahead = if is_ahead { Ahead::of(caller) } else { Ahead::default() };
            Whole::new(async move { node.execute(request, ahead).await })
        }
        None => {
            let root = RootId::new("new").map_err(|error| Problem::new(503, "name", error.to_string()))?;
            let request = request(root, first_call(), None, Vec::new());
            Whole::new(async move {
                match key {
                    Some(key) => node.once(request, key).await,
                    None => node.root(request).await,
                }
            })
        }
    };
    // Whoever has called knows by himself how long to wait; a client is told.
    let until = begins.then_some(deadline + LATE);
    ended(app, headers, until, (running, said)).await
}

/// Waits for the end of a call, for so long, or until it is answered ahead of it: then the rest
/// goes on by itself.
async fn ended(
    app: &App,
    headers: &HeaderMap,
    until: Option<Instant>,
    (mut running, said): (Whole<Reply>, oneshot::Receiver<Said>),
) -> Answered {
    let ended = match until {
        Some(until) => timeout_at(until, running).await,
        None => tokio::select! {
            biased;
            ended = &mut running => Ok(ended),
            Ok((answer, nonce)) = said => return Ok((answer, Some(nonce))),
        },
    };
    match ended {
        Ok(Ok(reply)) => reply.map(|answer| (answer, app.node.announced(headers))),
        Ok(Err(Panicked)) => {
            tracing::error!("a service has panicked");
            Err(Problem::new(503, "defect", "the service has failed").began(true))
        }
        // It goes on looking, and whoever asks with the same key waits for what it finds.
        Err(_) => Err(unknown()),
    }
}

/// A hash of arguments as they are compared.
fn hash(arguments: &Value) -> u64 {
    let digest = Sha256::digest(compared(arguments));
    u64::from_be_bytes(std::array::from_fn(|place| digest[place])) >> 1
}

fn answer<T: serde::Serialize>(entries: Vec<T>) -> Response {
    axum::Json(Batch { roots: entries }).into_response()
}

async fn prepare(State(app): Shared, Body(body, headers, _): Body) -> Response {
    let questions = match app.peer(&headers).and_then(|()| typed::<Questions>(body)) {
        Ok(questions) => questions,
        Err(problem) => return problem.into_response(),
    };
    // Calls that come after the question may wait for their locks.
    let (commits, is_told_further) = match questions.commits.is_empty() {
        true => (None, false),
        false => match told(&app, questions.commits, committed).await {
            Ok((states, is_told_further)) => (Some(states), is_told_further),
            Err(problem) => return problem.into_response(),
        },
    };
    // What is to be told further goes along with the questions that this one leads to. Whoever has
    // called nobody for these roots tells nobody, and lets no other task before this answer.
    if is_told_further {
        tokio::task::yield_now().await;
    }
    let ask = |entry: PrepareEntry| {
        let PrepareEntry { root, parent, calls, generation, origin } = entry;
        let prepare = Prepare { root: root.clone(), parent, calls, generation, nonce: new_nonce() };
        (root, app.node.vote(prepare, origin))
    };
    let asked: Vec<_> = questions.roots.into_iter().map(ask).collect();
    let roots = match questions.partly {
        true => first_votes(asked).await,
        false => all_votes(asked).await,
    };
    fault::point("vote-reply-before");
    axum::Json(Votes { roots, commits }).into_response()
}

/// A root, and who waits for its vote.
type Asked = (RootId, oneshot::Receiver<Vote>);

/// What is said for a vote that will never be there.
const NO_VOTE: Vote = Vote::No(No::Failed);

async fn all_votes(asked: Vec<Asked>) -> Vec<VoteEntry> {
    let mut votes = Vec::with_capacity(asked.len());
    for (root, vote) in asked {
        votes.push(VoteEntry::new(root, vote.await.unwrap_or(NO_VOTE)));
    }
    votes
}

/// The first vote that is there, and those that are there with it: one may wait for a commit, or
/// for the votes below it, and has nothing to do with the others.
async fn first_votes(mut asked: Vec<Asked>) -> Vec<VoteEntry> {
    if asked.len() < 2 {
        return all_votes(asked).await;
    }
    let (first, place, _) = select_all(asked.iter_mut().map(|(_, vote)| vote)).await;
    let first = first.unwrap_or(NO_VOTE);
    let mut votes = Vec::with_capacity(asked.len());
    for (at, (root, mut vote)) in asked.into_iter().enumerate() {
        let vote = match vote.try_recv() {
            _ if at == place => first,
            Ok(vote) => vote,
            Err(TryRecvError::Closed) => NO_VOTE,
            Err(TryRecvError::Empty) => continue,
        };
        votes.push(VoteEntry::new(root, vote));
    }
    votes
}

fn committed(entry: &OutcomeEntry, parent: Name) -> Event {
    Event::Commit(entry.root.clone(), parent, entry.nonce)
}

async fn commit(State(app): Shared, Body(body, headers, _): Body) -> Response {
    settled(&app, &headers, body, committed).await
}

async fn abort(State(app): Shared, Body(body, headers, _): Body) -> Response {
    settled(&app, &headers, body, |entry, parent| Event::Abort(entry.root.clone(), parent)).await
}

/// Takes an outcome of many roots, and answers it.
async fn settled(
    app: &App,
    headers: &HeaderMap,
    body: Read,
    event: impl Fn(&OutcomeEntry, Name) -> Event,
) -> Response {
    let batch = match app.peer(headers).and_then(|()| typed::<Batch<OutcomeEntry>>(body)) {
        Ok(batch) => batch,
        Err(problem) => return problem.into_response(),
    };
    match told(app, batch.roots, event).await {
        Ok((states, _)) => answer(states),
        Err(problem) => problem.into_response(),
    }
}

/// Whoever tells an outcome without saying who it is: the root's only parent, if it has one.
fn only_parent(app: &App, root: &RootId) -> Name {
    let parents = app.node.core().participant.parents(root);
    match <[Name; 1]>::try_from(parents) {
        Ok([parent]) => parent,
        Err(_) => app.node.name.clone(),
    }
}

/// Tells an outcome of many roots. Marks that this leaves are durable before the answer. Answers
/// whether others are told further because of it, too.
async fn told(
    app: &App,
    entries: Vec<OutcomeEntry>,
    event: impl Fn(&OutcomeEntry, Name) -> Event,
) -> Result<(Vec<StateEntry>, bool), Problem> {
    fault::point("outcome-take-before");
    let (mut is_marked, mut is_told_further) = (false, false);
    let tell = |entry: OutcomeEntry| {
        let parent = entry.parent.clone().unwrap_or_else(|| only_parent(app, &entry.root));
        let is_taken_over = entry
            .origin
            .as_ref()
            .is_some_and(|origin| !app.node.core().may_say(&entry.root, &parent, origin));
        let event = event(&entry, parent.clone());
        let is_commit = matches!(event, Event::Commit(..));
        if is_taken_over && matches!(event, Event::Abort(..)) {
            let state = wire::settled(Settled::Pending).to_owned();
            return (StateEntry { root: entry.root, state, origin: None }, false);
        }
        // Whoever says so again may come before the first one's mark is durable.
        is_marked |= matches!(event, Event::Abort(..));
        let (effects, has_committed) = {
            let mut core = app.node.core();
            let effects = core.participant.handle(event);
            app.node.perform(&mut core, &effects);
            (effects, core.participant.has_committed(&entry.root))
        };
        is_marked |= effects.iter().any(|effect| matches!(effect, Effect::Mark(..)));
        is_told_further |= effects.iter().any(|effect| matches!(effect, Effect::TellCommit(..)));
        let said = effects.iter().find_map(|effect| match effect {
            Effect::SendSettled(root, _, settled) if *root == entry.root => Some(*settled),
            _ => None,
        });
        if is_commit && said == Some(Settled::Refused) {
            // The parent says so, too; whoever looks after this one has another log.
            tracing::error!(root = %entry.root, %parent, "is said to be committed, which was not promised here, or was undone");
        }
        let is_of_another = match said {
            Some(Settled::Refused) => true,
            Some(Settled::Done) => !has_committed,
            Some(Settled::Pending) | None => false,
        };
        let state = wire::settled(said.unwrap_or(Settled::Pending)).to_owned();
        (StateEntry { root: entry.root, state, origin: None }, is_commit && is_of_another)
    };
    let (mut states, of_others): (Vec<StateEntry>, Vec<bool>) = entries.into_iter().map(tell).unzip();
    // What is committed is none of what was promised here, also if nothing is known of it: a later
    // process may have promised it. Its parent forgets it after this answer, and that one would
    // hear that it is aborted.
    if of_others.contains(&true) && !app.node.is_current().await {
        for (entry, _) in states.iter_mut().zip(of_others).filter(|(_, is_of_another)| *is_of_another) {
            wire::settled(Settled::Pending).clone_into(&mut entry.state);
        }
    }
    if is_marked && app.node.journal.written().await.is_err() {
        return Err(Problem::new(503, "journal", "the journal cannot be written"));
    }
    fault::point("outcome-take-after");
    Ok((states, is_told_further))
}

async fn outcome(State(app): Shared, Body(body, headers, _): Body) -> Response {
    let batch = match app.peer(&headers).and_then(|()| typed::<Batch<OutcomeEntry>>(body)) {
        Ok(batch) => batch,
        Err(problem) => return problem.into_response(),
    };
    let look = |entry: OutcomeEntry| {
        let OutcomeEntry { root, child, nonce, callers, .. } = entry;
        let child = child.unwrap_or_else(|| app.node.name.clone());
        let outcome = app.node.core().participant.outcome(&root, &child, nonce, &callers);
        let origin = app.node.peers().origin().cloned();
        StateEntry { root, state: wire::outcome(outcome).to_owned(), origin }
    };
    let known = batch.roots.into_iter().map(look).collect();
    fault::point("outcome-reply-before");
    answer(known)
}

#[derive(serde::Deserialize)]
struct Settle {
    root: RootId,
    outcome: String,
}

async fn settle(State(app): Shared, Body(body, headers, arrived): Body) -> Response {
    let read = app.peer(&headers).and_then(|()| Ok((typed::<Settle>(body)?, deadline(&headers, arrived)?)));
    let (settle, until) = match read {
        Ok(read) => read,
        Err(problem) => return problem.into_response(),
    };
    let outcome = match settle.outcome.as_str() {
        "committed" => Outcome::Committed,
        "aborted" => Outcome::Aborted,
        other => {
            return Problem::new(400, "arguments", format!("{other:?} is neither committed nor aborted"))
                .into_response();
        }
    };
    match app.node.settle(&settle.root, outcome, until).await {
        Ok(state) => {
            axum::Json(json!({ "root": settle.root, "state": wire::settled(state) })).into_response()
        }
        Err(problem) => problem.into_response(),
    }
}

#[derive(serde::Deserialize)]
struct Resume {
    slot: u32,
}

async fn resume(State(app): Shared, Body(body, headers, _): Body) -> Response {
    match app.peer(&headers).and_then(|()| typed::<Resume>(body)) {
        Ok(Resume { slot }) if app.node.resume(slot) => axum::Json(json!({ "slot": slot })).into_response(),
        Ok(Resume { slot }) => {
            Problem::new(404, "slot", format!("slot {slot} is not parked")).into_response()
        }
        Err(problem) => problem.into_response(),
    }
}

/// The page says nothing by itself: it asks for the status, with the token that it is given.
async fn page() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, include_str!("status.html")).into_response()
}

async fn openapi(State(app): Shared, headers: HeaderMap) -> Response {
    if let Err(problem) = app.caller(&headers) {
        return problem.into_response();
    }
    let has_tokens = app.tokens != Tokens::default();
    let services: Vec<_> =
        app.node.services.iter().map(|service| (&service.declared, &service.takes)).collect();
    axum::Json(openapi::document(app.node.name.as_str(), &services, has_tokens)).into_response()
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Active => "active",
        Phase::Preparing => "preparing",
        Phase::Deciding => "deciding",
        Phase::Committed => "committed",
        Phase::Aborting => "aborting",
    }
}

async fn status(State(app): Shared, headers: HeaderMap) -> Response {
    if let Err(problem) = app.caller(&headers) {
        return problem.into_response();
    }
    let core = app.node.core();
    let (now, infos) = (Instant::now(), core.participant.roots());
    let age = |root: &RootId| {
        core.times.get(root).map_or(0, |(begun, _)| now.saturating_duration_since(*begun).as_millis() as u64)
    };
    let roots: Vec<Value> = infos
        .iter()
        .map(|info| {
            let state = if info.is_in_doubt { "in-doubt" } else { phase(info.phase) };
            let mut told =
                json!({ "root": info.root, "state": state, "age_ms": age(&info.root), "locks": info.locks });
            if let Some(parent) = core.forsaken.get(&info.root) {
                told["forsaken_by"] = json!(parent);
                told["settle"] = json!(format!(
                    "POST /composite/settle {}",
                    json!({ "root": info.root, "outcome": "committed|aborted" })
                ));
            }
            told
        })
        .collect();
    let parked: Vec<Value> = core
        .parked
        .iter()
        .map(|parked| {
            let resume = format!("POST /composite/resume {{\"slot\":{}}}", parked.slot);
            let settled = json!({ "root": parked.root, "outcome": "aborted" });
            let settle = format!("POST /composite/settle {settled}");
            json!({
                "root": parked.root, "call": parked.call, "slot": parked.slot, "why": parked.why,
                "resume": resume, "settle": settle
            })
        })
        .collect();
    let services = app.matrix.services();
    let matrix: Vec<Value> = (0..services.len())
        .map(|held| {
            let cells = (0..services.len()).map(|new| {
                let cell = app.matrix.cell(held as u16, new as u16);
                (services[new].name.clone(), Value::String(cell.to_string().trim().to_owned()))
            });
            json!({ "held": services[held].name, "kind": kind(&services[held]), "new": cells.collect::<serde_json::Map<_, _>>() })
        })
        .collect();
    axum::Json(json!({
        "component": app.node.name,
        "generation": app.node.generation(),
        "fenced": app.node.is_fenced.load(Ordering::SeqCst),
        "roots": roots,
        "in_doubt": infos.iter().filter(|info| info.is_in_doubt).count(),
        "undo_backlog": infos.iter().filter(|info| info.phase == Phase::Aborting).count(),
        "parked": parked,
        "matrix": matrix,
    }))
    .into_response()
}
