//! Connections to other components: HTTP/1.1, plainly or by TLS, one request at a time on each.
//!
//! A connection has no task of its own. Whoever has a request on it drives it, and nobody else: so
//! an answer wakes one task, the one that waits for it. A connection without a request lies idle;
//! before its next one it is looked at whether the other side has closed it meanwhile.
//!
//! ```text
//! take an idle one, or connect ─▶ request ─▶ answer, whole ─▶ idle again
//!                                    └─ given up: the connection is closed
//! ```

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(2);
/// How long a connection lies idle before it is closed, and used no more. The other side closes it
/// after more than twice as long (`connections`).
const IDLE: Duration = Duration::from_secs(30);

/// What a connection runs over.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Nothing was sent.
    NotSent(String),
    /// The request may have been carried out.
    Lost(String),
}

/// A connection.
struct Link {
    sender: SendRequest<Full<Bytes>>,
    connection: Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>,
    is_over: bool,
    since: Instant,
}

impl Link {
    /// Waits for something that the connection brings about.
    async fn drive<T>(&mut self, waiting: impl Future<Output = T>) -> T {
        let mut waiting = pin!(waiting);
        std::future::poll_fn(|context| {
            if let Poll::Ready(brought) = waiting.as_mut().poll(context) {
                return Poll::Ready(brought);
            }
            if !self.is_over {
                self.is_over = Pin::new(&mut self.connection).poll(context).is_ready();
            }
            waiting.as_mut().poll(context)
        })
        .await
    }

    /// Whether a request can be sent: nothing was heard of the other side since the last one.
    async fn is_usable(&mut self) -> bool {
        let look = std::future::poll_fn(|context| {
            if !self.is_over {
                self.is_over = Pin::new(&mut self.connection).poll(context).is_ready();
            }
            Poll::Ready(!self.is_over && matches!(self.sender.poll_ready(context), Poll::Ready(Ok(()))))
        });
        look.await
    }
}

/// A place where a component is, and the connections to it that lie idle.
pub(crate) struct Place {
    /// With a scheme and a host.
    address: Uri,
    host: HeaderValue,
    /// What every path begins with.
    prefix: String,
    tls: Arc<rustls::ClientConfig>,
    idle: Mutex<Vec<Link>>,
}

impl Place {
    /// From `http://host:port`, or `https`.
    ///
    /// # Errors
    /// The text is no such thing.
    pub(crate) fn new(text: &str, tls: &Arc<rustls::ClientConfig>) -> Result<Place, String> {
        let bad = || match text.contains('@') {
            // There may be a password in it.
            true => "an address is http://host:port or https://host:port, and names no user".to_owned(),
            false => format!("not an address: {text:?} (http://host:port or https://host:port)"),
        };
        let address: Uri = text.parse().map_err(|_| bad())?;
        let (Some("http" | "https"), Some(authority)) = (address.scheme_str(), address.authority()) else {
            return Err(bad());
        };
        // It would be sent along as a part of the host.
        if authority.as_str().contains('@') {
            return Err(bad());
        }
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad())?;
        let prefix = address.path().trim_end_matches('/').to_owned();
        Ok(Place { host, prefix, tls: Arc::clone(tls), idle: Mutex::default(), address })
    }

    fn with_idle<T>(&self, work: impl FnOnce(&mut Vec<Link>) -> T) -> T {
        work(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Posts a request, whose path is made here, and waits for the whole answer.
    pub(crate) async fn post(
        &self,
        path: &str,
        request: axum::http::request::Builder,
        body: Bytes,
    ) -> Result<Answered, Unanswered> {
        let not_sent = |error: &dyn std::error::Error| Unanswered::NotSent(in_words(error));
        let request = request
            .method("POST")
            .uri(format!("{}{path}", self.prefix))
            .header(header::HOST, self.host.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body));
        let mut request = request.map_err(|error| not_sent(&error))?;
        loop {
            let (mut link, is_new) = match self.idle_link().await {
                Some(link) => (link, false),
                None => (self.connect().await.map_err(Unanswered::NotSent)?, true),
            };
            let sending = link.sender.try_send_request(request);
            match link.drive(sending).await {
                Ok(response) => return self.receive(link, response).await,
                Err(mut error) => match error.take_message() {
                    // It was closed before anything was sent.
                    Some(message) if !is_new => request = message,
                    Some(_) => return Err(not_sent(error.error())),
                    None => return Err(Unanswered::Lost(in_words(error.error()))),
                },
            }
        }
    }

    async fn receive(
        &self,
        mut link: Link,
        response: axum::http::Response<Incoming>,
    ) -> Result<Answered, Unanswered> {
        let (head, body) = response.into_parts();
        if !says_where_it_ends(&head.headers, &body) {
            return Err(Unanswered::Lost("the answer does not say where it ends".to_owned()));
        }
        let body = link.drive(Limited::new(body, ANSWER_BYTES_MAX).collect()).await;
        let body = body.map_err(|_| Unanswered::Lost("the answer was cut".to_owned()))?.to_bytes();
        self.put_back(link);
        Ok(Answered { status: head.status, headers: head.headers, body })
    }

    /// The connection that was used last, if the other side has not closed it, nor is about to:
    /// what is sent then may be lost.
    async fn idle_link(&self) -> Option<Link> {
        loop {
            let mut link = self.with_idle(Vec::pop)?;
            if link.since.elapsed() < IDLE && link.is_usable().await {
                return Some(link);
            }
        }
    }

    fn put_back(&self, mut link: Link) {
        if link.is_over {
            return;
        }
        link.since = Instant::now();
        let old = self.with_idle(|idle| {
            let old = match idle.first() {
                Some(first) if link.since >= first.since + IDLE => Some(idle.remove(0)),
                _ => None,
            };
            idle.push(link);
            old
        });
        drop(old);
    }

    async fn connect(&self) -> Result<Link, String> {
        let connected = timeout(CONNECT, self.open()).await;
        let stream = connected.map_err(|_| "the connection was not made in time".to_owned())??;
        let shaken = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| in_words(&error))?;
        Ok(Link { sender, connection, is_over: false, since: Instant::now() })
    }

    async fn open(&self) -> Result<Box<dyn Stream>, String> {
        let is_tls = self.address.scheme_str() == Some("https");
        let host = self.address.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.address.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await.map_err(|error| in_words(&error))?;
        stream.set_nodelay(true).map_err(|error| in_words(&error))?;
        if !is_tls {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|error| in_words(&error))?;
        let shaken = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
        Ok(Box::new(shaken.map_err(|error| in_words(&error))?))
    }
}

/// Whether an answer has a length, or comes in pieces of which one is the last. If it ends with its
/// connection, the whole of it cannot be told from a part.
fn says_where_it_ends(headers: &HeaderMap, body: &Incoming) -> bool {
    let codings = headers.get_all(header::TRANSFER_ENCODING).iter().next_back();
    let last = codings.and_then(|codings| codings.to_str().ok()?.rsplit(',').next());
    let is_in_pieces = last.is_some_and(|coding| coding.trim().eq_ignore_ascii_case("chunked"));
    is_in_pieces || body.size_hint().exact().is_some()
}

fn in_words(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

    async fn listen() -> (TcpListener, Place) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/under/", listener.local_addr().unwrap());
        let tls = Arc::new(crate::tls::untrusting().unwrap());
        (listener, Place::new(&address, &tls).unwrap())
    }

    /// Reads a request, whose body is `{}`.
    async fn request(stream: &mut TcpStream) -> String {
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\n{}") {
            assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0, "the request is cut");
        }
        String::from_utf8(read).unwrap()
    }

    async fn post(place: &Place) -> Result<Answered, Unanswered> {
        place.post("/path", Request::builder(), Bytes::from_static(b"{}")).await
    }

    #[tokio::test]
    async fn one_connection_carries_one_request_after_the_other() {
        let (listener, place) = listen().await;
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            for answer in
                [ANSWER, b"HTTP/1.1 409 Conflict\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"]
            {
                let head = request(&mut stream).await.to_lowercase();
                assert!(head.starts_with("post /under/path http/1.1\r\n"), "{head}");
                assert!(head.contains("\r\nhost: 127.0.0.1:"), "{head}");
                stream.write_all(answer).await.unwrap();
            }
            stream
        };
        let client = async {
            let first = post(&place).await.unwrap();
            assert_eq!((first.status, first.body), (StatusCode::OK, Bytes::from_static(b"{}")));
            let second = post(&place).await.unwrap();
            assert_eq!((second.status, second.body), (StatusCode::CONFLICT, Bytes::from_static(b"x")));
        };
        tokio::join!(server, client);
    }

    #[tokio::test]
    async fn a_connection_that_the_other_side_has_closed_is_not_used_again() {
        let (listener, place) = listen().await;
        for _ in 0..2 {
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                request(&mut stream).await;
                stream.write_all(ANSWER).await.unwrap();
            };
            let (_, answered) = tokio::join!(server, post(&place));
            assert_eq!(answered.unwrap().status, StatusCode::OK);
            // That it was closed arrives some time.
            while let Some(link) = place.idle_link().await {
                place.put_back(link);
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn what_was_sent_and_not_answered_is_told_from_what_was_not_sent() {
        let (listener, place) = listen().await;
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await;
            stream.write_all(&ANSWER[..ANSWER.len() - 1]).await.unwrap();
        };
        let (_, cut) = tokio::join!(server, post(&place));
        assert!(matches!(cut, Err(Unanswered::Lost(_))), "{cut:?}");
        drop(listener);
        assert!(matches!(post(&place).await, Err(Unanswered::NotSent(_))));
    }

    #[tokio::test]
    async fn an_answer_that_ends_with_its_connection_is_none() {
        let (listener, place) = listen().await;
        let cases: [(&[u8], bool); 6] = [
            (b"HTTP/1.1 200 OK\r\n\r\n10", false),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n10", false),
            (b"HTTP/1.1 409 Conflict\r\n\r\n{}", false),
            (b"HTTP/1.1 204 No Content\r\n\r\n", true),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n2\r\n10\r\n0\r\n\r\n", true),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n10\r\n", false),
        ];
        for (answer, is_whole) in cases {
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                request(&mut stream).await;
                stream.write_all(answer).await.unwrap();
            };
            let (_, answered) = tokio::join!(server, post(&place));
            let is_lost = matches!(answered, Err(Unanswered::Lost(_)));
            assert_eq!((is_lost, answered.is_ok()), (!is_whole, is_whole), "{answered:?}");
            place.with_idle(Vec::clear);
        }
    }

    #[test]
    fn an_address_has_a_scheme_and_a_host() {
        let tls = Arc::new(crate::tls::untrusting().unwrap());
        for bad in ["stock", "stock:80", "ftp://stock", "http://", "/path"] {
            assert!(Place::new(bad, &tls).is_err(), "{bad}");
        }
        for bad in ["http://shop:s3cret@stock:80", "https://s3cret@stock", "shop:s3cret@stock"] {
            let why = Place::new(bad, &tls).err().unwrap_or_default();
            assert!(why.contains("no user") && !why.contains("s3cret"), "{bad}: {why}");
        }
        assert!(Place::new("https://stock.eu:8443", &tls).is_ok());
    }
}
