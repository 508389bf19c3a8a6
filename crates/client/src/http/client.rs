//! The client's HTTP side: one answer to a request, from whichever application server has it.
//!
//! [`EtxClient::execute`] drives the pure [`Client`]: each attempt is a task; attempts that were
//! given up go on waiting for their replies, since an answer to any of them is the answer. An
//! [`Answer`] is handed over first and acknowledged afterwards, in the background: an
//! acknowledgement that is lost costs the sites a little room, one that comes too early would cost
//! the client its answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::header::InvalidHeaderValue;
use axum::http::{HeaderValue, Method, Request, StatusCode, Uri};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::wire::{IDEMPOTENCY_KEY, INSTANCE, decode};
use crate::backoff::Backoff;
use crate::etransaction::{Client, ClientEffect, ClientError, Finished, Reply, Text};
use crate::xid::{BadKey, Numbering, check_xid};

/// Most bytes of a response.
const RESPONSE_BYTES_MAX: usize = 8 << 20;

/// How a client works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientOptions {
    /// After so many attempts the client gives up.
    pub attempts_max: u32,
    /// Patience with answers, and pauses between attempts.
    pub backoff: Backoff,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions { attempts_max: 20, backoff: Backoff::default() }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EtxError {
    /// The XID is none. Nothing was sent.
    #[error("{0}")]
    Key(#[from] BadKey),
    /// HTTP cannot carry the XID: control characters, or blanks at an end. Nothing was sent.
    #[error("HTTP cannot carry this XID in a header")]
    Unsendable,
    /// No server is given, or it is no `http://host:port`.
    #[error("not an application server's address: {0:?}")]
    Address(String),
    /// The request has ended without a result.
    #[error("request {xid}: {error}{}", last.as_ref().map(|last| format!("; last heard: {last}")).unwrap_or_default())]
    Ended {
        /// The request's identifier.
        xid: String,
        /// The highest instance number sent or heard of: for [`EtxClient::resume`].
        highest: i64,
        /// How it ended.
        error: ClientError,
        /// What the last refusal or failure said.
        last: Option<Text>,
    },
}

struct Inner {
    servers: Vec<String>,
    http: Http<HttpConnector, Full<Bytes>>,
    numbering: Numbering,
    options: ClientOptions,
    acknowledgements: Mutex<JoinSet<()>>,
}

/// A client of a list of application servers. Cheap to clone; clones are the same client.
#[derive(Clone)]
pub struct EtxClient {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for EtxClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtxClient").field("servers", &self.inner.servers).finish_non_exhaustive()
    }
}

/// The answer to a request. As long as it is only looked at, the sites keep it.
#[derive(Debug)]
#[must_use = "an answer that is not acknowledged is kept by the sites for ever"]
pub struct Answer {
    xid: String,
    result: Text,
    client: EtxClient,
}

impl Answer {
    /// The request's identifier.
    pub fn xid(&self) -> &str {
        &self.xid
    }

    /// The result.
    pub fn result(&self) -> &str {
        &self.result
    }

    /// Takes the result, which is now safe with the caller, and lets the sites forget it, in the
    /// background.
    pub fn acknowledge(self) -> Text {
        self.client.acknowledge_later(self.xid);
        self.result
    }
}

impl EtxClient {
    /// A client of these servers (`http://host:port`, each), under a name that is new.
    ///
    /// # Errors
    /// `Address`.
    pub fn new<A: AsRef<str>>(
        servers: impl IntoIterator<Item = A>,
        options: ClientOptions,
    ) -> Result<EtxClient, EtxError> {
        EtxClient::named(&format!("{:032x}", rand::random::<u128>()), servers, options)
    }

    /// The same under a name of the caller's, which no other client has or had: its requests are
    /// `name/1`, `name/2`, …
    ///
    /// # Errors
    /// `Address`, `Key`, `Unsendable`.
    pub fn named<A: AsRef<str>>(
        name: &str,
        servers: impl IntoIterator<Item = A>,
        options: ClientOptions,
    ) -> Result<EtxClient, EtxError> {
        header(&format!("{name}/1"))?;
        let servers = servers.into_iter().map(|server| address(server.as_ref()));
        let servers = servers.collect::<Result<Vec<String>, EtxError>>()?;
        if servers.is_empty() {
            return Err(EtxError::Address(String::new()));
        }
        let http = Http::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(HttpConnector::new());
        let numbering = Numbering::new(name)?;
        let acknowledgements = Mutex::new(JoinSet::new());
        Ok(EtxClient { inner: Arc::new(Inner { servers, http, numbering, options, acknowledgements }) })
    }

    /// A fresh XID, for a caller who wants to write it down before the request is sent.
    pub fn fresh_xid(&self) -> String {
        self.inner.numbering.next()
    }

    /// Has a request executed, exactly once.
    ///
    /// # Errors
    /// `Ended`.
    pub async fn execute(&self, request: &str) -> Result<Answer, EtxError> {
        self.execute_as(&self.fresh_xid(), request).await
    }

    /// Has the request of this XID executed, if it was not yet; answers the same as before, if it
    /// was.
    ///
    /// # Errors
    /// `Key`, `Unsendable`, `Ended`.
    pub async fn execute_as(&self, xid: &str, request: &str) -> Result<Answer, EtxError> {
        self.resume(xid, request, 0).await
    }

    /// Takes up a request of which instances up to `highest` were sent before.
    ///
    /// # Errors
    /// `Key`, `Unsendable`, `Ended`.
    pub async fn resume(&self, xid: &str, request: &str, highest: i64) -> Result<Answer, EtxError> {
        let key = header(xid)?;
        let ClientOptions { attempts_max, backoff } = self.inner.options;
        let mut client = Client::resume(self.inner.servers.len(), attempts_max, backoff, highest);
        let (finished, last) = self.pursue(&mut client, &key, request.as_bytes().to_vec().into()).await;
        let xid = xid.to_owned();
        match finished {
            Ok(result) => Ok(Answer { xid, result, client: self.clone() }),
            Err(error) => Err(EtxError::Ended { xid, highest: client.highest(), error, last }),
        }
    }

    /// Does what the pure client wants done, until it has finished. Also answers what was last
    /// heard that was no answer.
    async fn pursue(
        &self,
        client: &mut Client,
        key: &HeaderValue,
        request: Bytes,
    ) -> (Finished, Option<Text>) {
        let mut attempts: JoinSet<(u32, Result<Reply, Text>)> = JoinSet::new();
        let mut last = None;
        let mut timer = (0, Instant::now());
        let mut effect = client.start(rand::random());
        loop {
            match effect.take() {
                Some(ClientEffect::Send { attempt, server, instance, pause, patience }) => {
                    timer = (attempt, Instant::now() + pause + patience);
                    let (this, key, request) = (self.clone(), key.clone(), request.clone());
                    attempts.spawn(async move {
                        sleep(pause).await;
                        (attempt, this.send(server, key, instance, request).await)
                    });
                }
                Some(ClientEffect::Finish(finished)) => return (finished, last),
                None => {}
            }
            effect = tokio::select! {
                Some(joined) = attempts.join_next() => match joined {
                    Ok((attempt, Ok(reply))) => {
                        if let Reply::Retry { reason, .. } | Reply::InDoubt { reason, .. } = &reply {
                            last = Some(reason.clone());
                        }
                        client.replied(attempt, reply, rand::random())
                    }
                    Ok((attempt, Err(why))) => {
                        last = Some(why);
                        client.timed_out(attempt, rand::random())
                    }
                    // Tasks are neither aborted nor do they panic; the timer would notice.
                    Err(_) => None,
                },
                () = sleep_until(timer.1) => client.timed_out(timer.0, rand::random()),
            };
        }
    }

    /// One attempt at one server: its reply, or why there is none.
    async fn send(
        &self,
        server: usize,
        key: HeaderValue,
        instance: i64,
        request: Bytes,
    ) -> Result<Reply, Text> {
        let server = &self.inner.servers[server];
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{server}/etx"))
            .header(IDEMPOTENCY_KEY, key)
            .header(INSTANCE, instance)
            .body(Full::new(request))
            .map_err(|error| Text::from(error.to_string()))?;
        let (status, reply, body) = self.exchange(server, request).await?;
        reply.ok_or_else(|| format!("{server}: {status}: {}", body.trim_end()).into())
    }

    async fn exchange(
        &self,
        server: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Option<Reply>, String), Text> {
        let lost = |error: &dyn std::error::Error| match error.source() {
            Some(source) => Text::from(format!("{server}: {error}: {source}")),
            None => Text::from(format!("{server}: {error}")),
        };
        let response = self.inner.http.request(request).await.map_err(|error| lost(&error))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await.map_err(|error| lost(&*error))?;
        let body = String::from_utf8(body.to_bytes().into()).map_err(|error| lost(&error))?;
        Ok((head.status, decode(&head.headers, &body), body))
    }

    fn acknowledge_later(&self, xid: String) {
        let this = self.clone();
        self.with_acknowledgements(|tasks| {
            while tasks.try_join_next().is_some() {}
            tasks.spawn(async move { drop(this.acknowledge(&xid).await) });
        });
    }

    fn with_acknowledgements<T>(&self, work: impl FnOnce(&mut JoinSet<()>) -> T) -> T {
        work(&mut self.inner.acknowledgements.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets the sites forget a request whose answer is safe with whoever asked. Asks each server at
    /// most twice.
    ///
    /// # Errors
    /// No server could do it, in words. Nothing is lost by that but a little room at the sites.
    pub async fn acknowledge(&self, xid: &str) -> Result<(), Text> {
        let key = header(xid).map_err(|error| Text::from(error.to_string()))?;
        let mut last = Text::from("no server");
        let Inner { servers, options, .. } = &*self.inner;
        for (attempt, server) in (1..).zip(servers.iter().chain(servers)) {
            sleep(options.backoff.pause(attempt, rand::random())).await;
            let request = Request::builder()
                .method(Method::POST)
                .uri(format!("{server}/etx/ack"))
                .header(IDEMPOTENCY_KEY, key.clone())
                .body(Full::default())
                .map_err(|error| Text::from(error.to_string()))?;
            last = match timeout(options.backoff.patience(attempt), self.exchange(server, request)).await {
                Ok(Ok((StatusCode::OK, ..))) => return Ok(()),
                Ok(Ok((status, _, body))) => format!("{server}: {status}: {}", body.trim_end()).into(),
                Ok(Err(why)) => why,
                Err(_) => format!("{server}: no reply in time").into(),
            };
        }
        Err(last)
    }

    /// Waits until the acknowledgements under way have ended: before a program ends.
    pub async fn finish(&self) {
        let mut tasks = self.with_acknowledgements(std::mem::take);
        while tasks.join_next().await.is_some() {}
    }
}

/// A server's address without a slash at its end.
fn address(text: &str) -> Result<String, EtxError> {
    let bad = || EtxError::Address(text.to_owned());
    let uri: Uri = text.parse().map_err(|_| bad())?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http"), Some(_)) => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err(bad()),
    }
}

/// The XID as a header.
fn header(xid: &str) -> Result<HeaderValue, EtxError> {
    check_xid(xid)?;
    if xid.trim() != xid {
        return Err(EtxError::Unsendable);
    }
    HeaderValue::from_bytes(xid.as_bytes()).map_err(|_: InvalidHeaderValue| EtxError::Unsendable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_keys_are_checked_before_anything_is_sent() {
        assert_eq!(address("http://127.0.0.1:8080/"), Ok("http://127.0.0.1:8080".to_owned()));
        for bad in ["", "127.0.0.1:8080", "https://127.0.0.1", "ftp://x"] {
            assert_eq!(address(bad), Err(EtxError::Address(bad.to_owned())));
        }
        assert_eq!(header(" a"), Err(EtxError::Unsendable));
        assert_eq!(header("a\nb"), Err(EtxError::Unsendable));
        assert_eq!(header(""), Err(EtxError::Key(BadKey::Empty)));
        assert!(header("ü/1").is_ok());
    }
}
