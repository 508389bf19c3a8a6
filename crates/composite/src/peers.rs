//! The other components, found by their names, and what is said to them.
//!
//! Calls go one by one. Control messages about many roots share a request (see `courier` and
//! `messages`).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use axum::http::header::InvalidHeaderValue;
use axum::http::{HeaderValue, Request, StatusCode, header};
use bytes::Bytes;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use crate::courier::{Courier, When};
use crate::link::{Place, Unanswered};
use crate::messages::{Answer, Answers, Entry, Kind, Message};
use crate::name::{CallId, Name, RootId};
use crate::participant::{ANY_NONCE, No, Nonce, Origin, Outcome, Settled, Vote};
use crate::problem::{Problem, STATUSES};
use crate::wire::{self, OutcomeEntry, PrepareEntry};

/// How long a control message waits for its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The other components.
pub(crate) struct Peers {
    own: Name,
    /// Which database this component decides in, once that is known.
    origin: OnceLock<Origin>,
    /// As a header.
    token: Option<HeaderValue>,
    tls: Arc<rustls::ClientConfig>,
    places: RwLock<BTreeMap<Name, Arc<Place>>>,
    couriers: Mutex<HashMap<(Name, Kind), Arc<Courier>>>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").field("own", &self.own).finish_non_exhaustive()
    }
}

impl Peers {
    /// # Errors
    /// The token cannot be sent.
    pub(crate) fn new(
        own: Name,
        token: Option<&str>,
        trusted: rustls::ClientConfig,
    ) -> Result<Peers, String> {
        let bearer = |token: &str| {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
            // Whoever shows a request's headers does not show this one.
            value.set_sensitive(true);
            Ok::<_, InvalidHeaderValue>(value)
        };
        let token = token.map(bearer).transpose().map_err(|_| "no header can carry the token".to_owned())?;
        let (places, couriers) = (RwLock::default(), Mutex::default());
        Ok(Peers { own, origin: OnceLock::new(), token, tls: Arc::new(trusted), places, couriers })
    }

    /// This component has a database now.
    pub(crate) fn begin(&self, origin: Origin) {
        let _ = self.origin.set(origin);
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.get()
    }

    /// A component is, or has moved, here.
    ///
    /// # Errors
    /// No address.
    pub(crate) fn set(&self, name: Name, address: &str) -> Result<(), String> {
        let place = Arc::new(Place::new(address, &self.tls)?);
        self.places.write().unwrap_or_else(PoisonError::into_inner).insert(name, place);
        Ok(())
    }

    /// A component is not there any more.
    pub(crate) fn remove(&self, name: &Name) {
        self.places.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn place(&self, name: &Name) -> Option<Arc<Place>> {
        self.places.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn request(&self) -> axum::http::request::Builder {
        match &self.token {
            Some(token) => Request::builder().header(header::AUTHORIZATION, token.clone()),
            None => Request::builder(),
        }
    }

    /// Calls a service. Answers the text, the component's generation, and what its yes will be
    /// known by, if it says so.
    #[expect(clippy::too_many_arguments, reason = "each is a header or a part of the address")]
    pub(crate) async fn call(
        &self,
        child: &Name,
        service: &str,
        root: &RootId,
        call: &CallId,
        (chain, trace, is_ahead): (&[CallId], &wire::Trace, bool),
        deadline: Instant,
        body: String,
    ) -> Result<(String, u64, Option<Nonce>), Problem> {
        let away = |why: String| Problem::new(503, "away", format!("{child}: {why}"));
        let unsent = |why: String| Problem { is_unsent: true, ..away(why) };
        let Some(place) = self.place(child) else {
            return Err(unsent("no such component among the peers".to_owned()));
        };
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let ancestors: Vec<&str> = chain.iter().map(CallId::as_str).collect();
        let request = self.request();
        let request = trace.iter().fold(request, |request, (name, value)| request.header(*name, value));
        let request = request
            .header(wire::ROOT, root.as_str())
            .header(wire::PARENT, self.own.as_str())
            .header(wire::CALL, call.as_str())
            .header(wire::ANCESTORS, ancestors.join(","))
            .header(wire::DEADLINE, left.to_string());
        let request = match self.origin().and_then(wire::origin_header) {
            Some(origin) => request.header(wire::ORIGIN, origin),
            None => request,
        };
        let request = if is_ahead { request.header(wire::AHEAD, "1") } else { request };
        let path = path_of(service);
        let posted = timeout_at(deadline, place.post(&path, request, Bytes::from(body)));
        let answered = match posted.await {
            Err(_) => {
                return Err(
                    Problem::new(504, "deadline", format!("{child} did not answer in time")).began(true)
                );
            }
            Ok(Err(Unanswered::NotSent(why))) => return Err(unsent(why)),
            Ok(Err(Unanswered::Lost(why))) => return Err(away(why).began(true)),
            Ok(Ok(answered)) => answered,
        };
        let body = String::from_utf8_lossy(&answered.body).into_owned();
        if answered.status.is_success() {
            let text = |name: &str| answered.headers.get(name).and_then(|text| text.to_str().ok());
            let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
            let nonce = number(wire::NONCE).filter(|nonce| *nonce != ANY_NONCE);
            return Ok((body, number(wire::GENERATION).unwrap_or_default(), nonce));
        }
        let problem = problem(child, answered.status, &body);
        if problem.reason == "conflict" {
            self.courier(child, Kind::Commit).has_met_a_lock();
        }
        Err(problem)
    }

    /// Asks for a vote. No answer is a no; why it is one is said beside it.
    pub(crate) async fn prepare(
        self: &Arc<Self>,
        child: &Name,
        root: &RootId,
        calls: u32,
        generation: Option<u64>,
    ) -> (Vote, Option<Problem>) {
        let entry = PrepareEntry {
            root: root.clone(),
            parent: self.own.clone(),
            calls,
            generation,
            origin: self.origin().cloned(),
        };
        let none = || {
            let why = Problem::new(503, "away", format!("{child} does not answer the question for its vote"));
            (Vote::No(No::Failed), Some(why))
        };
        let Some(answer) = self.send(child, Kind::Prepare, Entry::Prepare(entry), When::Now).await else {
            return none();
        };
        match (answer.vote.as_deref(), answer.nonce) {
            (Some("yes"), Some(nonce)) => (Vote::Yes(nonce), None),
            // Nothing would tell it from a yes to what was executed late.
            (Some("yes"), None) => none(),
            _ => {
                let reason = answer.reason.as_deref().unwrap_or("without a reason");
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
        when: When,
    ) -> Option<Settled> {
        let entry = Entry::Outcome(self.told(root, nonce));
        settled(&self.send(child, Kind::Commit, entry, when).await?)
    }

    /// Says that a root is aborted. Who has said yes to a later process of this component does not
    /// believe it.
    pub(crate) async fn abort(self: &Arc<Self>, child: &Name, root: &RootId) -> Option<Settled> {
        let entry = OutcomeEntry { origin: self.origin().cloned(), ..self.told(root, None) };
        settled(&self.send(child, Kind::Abort, Entry::Outcome(entry), When::Now).await?)
    }

    fn told(&self, root: &RootId, nonce: Option<Nonce>) -> OutcomeEntry {
        let parent = Some(self.own.clone());
        let (root, callers) = (root.clone(), Vec::new());
        OutcomeEntry { root, parent, child: None, nonce, callers, origin: None }
    }

    /// Asks for the outcome of a root for which these calls of the parent have called here. Answers
    /// from which database it is known, too, if the parent says so.
    pub(crate) async fn outcome(
        self: &Arc<Self>,
        parent: &Name,
        root: &RootId,
        nonce: Option<Nonce>,
        callers: Vec<CallId>,
    ) -> Option<(Outcome, Option<Origin>)> {
        let child = Some(self.own.clone());
        let root = root.clone();
        let entry = OutcomeEntry { root, parent: None, child, nonce, callers, origin: None };
        let entry = Entry::Outcome(entry);
        let answer = self.send(parent, Kind::Outcome, entry, When::Now).await?;
        let outcome = match answer.state.as_deref()? {
            "committed" => Outcome::Committed,
            "aborted" => Outcome::Aborted,
            "pending" => Outcome::Pending,
            _ => return None,
        };
        Some((outcome, answer.origin))
    }

    /// Sends an entry together with others; answers what was said of its root.
    async fn send(self: &Arc<Self>, to: &Name, kind: Kind, entry: Entry, when: When) -> Option<Answer> {
        self.courier(to, kind).send(self, entry, when).await
    }

    /// Who carries control messages of this kind.
    pub(crate) fn courier(&self, to: &Name, kind: Kind) -> Arc<Courier> {
        let mut couriers = self.couriers.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Courier::new(to.clone(), kind));
        Arc::clone(couriers.entry((to.clone(), kind)).or_insert_with(new))
    }

    /// Posts a control message. Nothing if there was no answer.
    pub(crate) async fn post(&self, to: &Name, kind: Kind, message: &Message) -> Option<Answers> {
        let place = self.place(to)?;
        let body = serde_json::to_vec(message).ok()?;
        let posted = timeout(PATIENCE, place.post(kind.path(), self.request(), Bytes::from(body))).await;
        let answered = posted.ok()?.ok()?;
        if answered.status != StatusCode::OK {
            tracing::warn!(%to, "{} was answered {}", kind.path(), answered.status);
            return None;
        }
        serde_json::from_slice(&answered.body).ok()
    }
}

/// The path of a service, whose name may have any letters: a `?` in it, for example, is none of a
/// query.
fn path_of(service: &str) -> String {
    let mut path = String::from("/services/");
    for byte in service.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            true => path.push(char::from(byte)),
            false => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

fn settled(answer: &Answer) -> Option<Settled> {
    match answer.state.as_deref()? {
        "done" => Some(Settled::Done),
        "pending" => Some(Settled::Pending),
        "refused" => Some(Settled::Refused),
        _ => None,
    }
}

/// A problem as another component has written it. What it does not say is taken for the worse.
fn problem(child: &Name, status: StatusCode, body: &str) -> Problem {
    if !STATUSES.contains(&status.as_u16()) {
        return Problem::new(503, "away", format!("{child} was answered for with {status}")).began(true);
    }
    let left_nothing = matches!(status.as_u16(), 401 | 404 | 409 | 413 | 422 | 508);
    let said: Value = serde_json::from_str(body).unwrap_or_default();
    let began = said["began"].as_bool().unwrap_or(!left_nothing);
    if status == StatusCode::UNAUTHORIZED {
        // Whoever has called here would take it for his own token. An earlier build passes on what
        // a third one has said, after calls of its own.
        let why = format!("{child} does not take the token of this component");
        return Problem::new(503, "away", why).began(began);
    }
    let problem = serde_json::from_value(said).unwrap_or_else(|_| {
        Problem::new(status.as_u16(), "failed", body.chars().take(200).collect::<String>())
    });
    Problem { status: status.as_u16(), began, ..problem }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// The vote of a component that answers the question for it so, and why it is a no.
    async fn voted(said: &str) -> (Vote, Option<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let [shop, stock] = ["shop", "stock"].map(|name| Name::new(name).unwrap());
        let peers = Arc::new(Peers::new(shop, None, crate::tls::untrusting().unwrap()).unwrap());
        peers.set(stock.clone(), &format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let body = format!(r#"{{"roots":[{said}]}}"#);
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = Vec::new();
            while !read.ends_with(b"]}") {
                assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0, "the question is cut");
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let root = RootId::new("r").unwrap();
        let (_, (vote, why)) = tokio::join!(server, peers.prepare(&stock, &root, 1, None));
        (vote, why.map(|why| why.reason))
    }

    #[tokio::test]
    async fn who_gives_no_vote_is_away_and_who_says_no_is_heard() {
        let yes = r#"{"root":"r","vote":"yes","nonce":5}"#;
        let no = r#"{"root":"r","vote":"no","reason":"count"}"#;
        assert_eq!(voted(yes).await, (Vote::Yes(5), None));
        assert_eq!(voted(no).await, (Vote::No(No::Child), Some("conflict".to_owned())));
        let (both, nameless) = (format!("{yes},{no}"), r#"{"root":"r","vote":"yes"}"#);
        for none in ["", r#"{"root":"s","vote":"yes","nonce":5}"#, nameless, both.as_str()] {
            assert_eq!(voted(none).await, (Vote::No(No::Failed), Some("away".to_owned())), "{none}");
        }
    }

    #[test]
    fn a_service_is_found_whatever_letters_its_name_has() {
        assert_eq!(path_of("take-2_x.y~"), "/services/take-2_x.y~");
        assert_eq!(path_of("take?a/b#c d%"), "/services/take%3Fa%2Fb%23c%20d%25");
        assert_eq!(path_of("größe"), "/services/gr%C3%B6%C3%9Fe");
    }
}
