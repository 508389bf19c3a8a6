//! A component's connections: HTTP/1.1, a task each. How many there are, and how long one may be
//! without a request, is bounded (`connections`).
//!
//! What cannot be read as the head of a request (more fields than a head may have, a head or a path
//! that is too long, what is none of HTTP's at all) never comes to the router: hyper answers it by
//! itself, with a status and nothing else. The contract has a problem for everything that is
//! refused, so an answer that says nothing is replaced on its way out. No answer of the router is
//! one of those: its problems have bodies.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::http::Request;
use axum::serve::Listener;
use bytes::{Buf, Bytes};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connections::{Connections, LIMITS, Limits};
use crate::problem::Problem;

/// Answers requests on a listener, for ever.
pub(crate) async fn serve<L: Listener>(listener: L, router: Router) {
    serve_within(listener, router, LIMITS).await;
}

/// The same with these limits.
async fn serve_within<L: Listener>(mut listener: L, router: Router, limits: Limits) {
    let connections = Connections::new(limits);
    loop {
        let (io, _) = listener.accept().await;
        let entered = connections.enter().await;
        let (known, router) = (Arc::clone(&entered.connection), TowerToHyperService::new(router.clone()));
        let service = service_fn(move |request: Request<Incoming>| {
            let (work, answering) = (known.work(), router.call(request));
            async move {
                let answered = answering.await;
                drop(work);
                answered
            }
        });
        let io = TokioIo::new(Explained { io, instead: None });
        // Who sends no more may still read: a request that is there as a whole is answered.
        let connection = http1::Builder::new().half_close(true).serve_connection(io, service);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!("a connection has ended: {error}");
                    }
                }
                () = entered.is_to_close() => tracing::debug!("a connection without a request is closed"),
            }
        });
    }
}

/// A connection on which no refusal is without a reason.
struct Explained<S> {
    io: S,
    /// What is left of an answer that is written instead of another one, of so many bytes.
    instead: Option<(Bytes, usize)>,
}

/// The answer that is written instead of this one, which refuses a request and does not say why.
fn explained(answer: &[u8]) -> Option<Bytes> {
    const EMPTY: &[u8] = b"\r\ncontent-length: 0\r\n";
    if !answer.starts_with(b"HTTP/1.1 4") || !answer.ends_with(b"\r\n\r\n") {
        return None;
    }
    if !answer.windows(EMPTY.len()).any(|bytes| bytes == EMPTY) {
        return None;
    }
    let why = match &answer[..12] {
        b"HTTP/1.1 431" => "the head of the request is too large",
        b"HTTP/1.1 414" => "the path of the request is too long",
        _ => "this is no request of HTTP/1.1",
    };
    let body = Problem::new(400, "arguments", why).body();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    Some(Bytes::from(answer))
}

impl<S: AsyncWrite + Unpin> Explained<S> {
    /// Writes what is written instead of another answer. Answers how long that one was.
    fn poll_instead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<usize>>> {
        let Some((answer, length)) = &mut self.instead else { return Poll::Ready(Ok(None)) };
        while answer.has_remaining() {
            match ready!(Pin::new(&mut self.io).poll_write(context, answer))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => answer.advance(written),
            }
        }
        let length = *length;
        self.instead = None;
        Poll::Ready(Ok(Some(length)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Explained<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Explained<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.instead.is_none() {
            self.instead = explained(bytes).map(|answer| (answer, bytes.len()));
        }
        match ready!(self.poll_instead(context))? {
            Some(length) => Poll::Ready(Ok(length)),
            None => Pin::new(&mut self.io).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match parts {
            // Such an answer is a head, and nothing is behind it.
            [only] => self.poll_write(context, only),
            _ => Pin::new(&mut self.io).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Semaphore;
    use tokio::time::timeout;

    use super::*;

    /// How long anything may take that is waited for: a safety net, far above what it takes.
    const END: Duration = Duration::from_secs(120);
    /// Nothing is ever closed for having waited.
    const FOR_EVER: Duration = Duration::from_secs(3600);

    /// What a request waits for.
    struct World {
        begun: Semaphore,
        go_on: Semaphore,
    }

    /// Answers `here` at once at `/`, and at `/later` when the world says so.
    async fn listen(waiting: Duration, most: usize, fresh: Duration) -> (SocketAddr, Arc<World>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let world = Arc::new(World { begun: Semaphore::new(0), go_on: Semaphore::new(0) });
        let its = Arc::clone(&world);
        let later = move || {
            let world = Arc::clone(&its);
            async move {
                world.begun.add_permits(1);
                world.go_on.acquire().await.unwrap().forget();
                "here"
            }
        };
        let router = Router::new().route("/", get(|| async { "here" })).route("/later", get(later));
        let limits = Limits { waiting, most, fresh, look: Duration::from_millis(5) };
        tokio::spawn(serve_within(listener, router, limits));
        (address, world)
    }

    async fn send(socket: &mut TcpStream, path: &str) {
        let head = format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
    }

    /// Reads an answer.
    async fn is_answered(socket: &mut TcpStream) {
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nhere") {
            let read = timeout(END, socket.read_buf(&mut answer)).await.expect("no answer").unwrap();
            assert_ne!(read, 0, "the answer is cut: {}", String::from_utf8_lossy(&answer));
        }
    }

    /// Reads until the connection is closed, which nothing comes before.
    async fn is_closed(socket: &mut TcpStream) {
        let mut answer = Vec::new();
        // It may end by a reset.
        let _ = timeout(END, socket.read_to_end(&mut answer)).await.expect("it is not closed");
        assert_eq!(answer, b"");
    }

    #[tokio::test]
    async fn half_a_head_is_not_waited_for_and_what_has_work_is() {
        let (address, world) = listen(Duration::from_millis(20), 8, FOR_EVER).await;
        let mut works = TcpStream::connect(address).await.unwrap();
        send(&mut works, "/later").await;
        world.begun.acquire().await.unwrap().forget();
        for half in ["", "GET / HTTP/1.1\r\nHost: he"] {
            let mut socket = TcpStream::connect(address).await.unwrap();
            socket.write_all(half.as_bytes()).await.unwrap();
            is_closed(&mut socket).await;
        }
        // It has been there for longer than these.
        world.go_on.add_permits(1);
        is_answered(&mut works).await;
        is_closed(&mut works).await;
    }

    #[tokio::test]
    async fn who_has_shut_down_its_sending_side_is_answered() {
        let (address, world) = listen(FOR_EVER, 8, FOR_EVER).await;
        let mut socket = TcpStream::connect(address).await.unwrap();
        send(&mut socket, "/later").await;
        socket.shutdown().await.unwrap();
        world.begun.acquire().await.unwrap().forget();
        // Another connection comes after the end of that one's sending, and is served after it.
        let mut other = TcpStream::connect(address).await.unwrap();
        send(&mut other, "/").await;
        is_answered(&mut other).await;
        world.go_on.add_permits(1);
        is_answered(&mut socket).await;
        is_closed(&mut socket).await;
    }

    #[tokio::test]
    async fn for_one_more_those_are_closed_first_that_have_never_asked() {
        let (address, _world) = listen(FOR_EVER, 2, Duration::ZERO).await;
        let mut asks = TcpStream::connect(address).await.unwrap();
        send(&mut asks, "/").await;
        is_answered(&mut asks).await;
        let mut silent = TcpStream::connect(address).await.unwrap();
        silent.write_all(b"GET / HT").await.unwrap();
        let mut more = TcpStream::connect(address).await.unwrap();
        send(&mut more, "/").await;
        is_answered(&mut more).await;
        is_closed(&mut silent).await;
        // Of those that have, the one goes that has waited longest.
        let mut most = TcpStream::connect(address).await.unwrap();
        send(&mut most, "/").await;
        is_answered(&mut most).await;
        is_closed(&mut asks).await;
        send(&mut more, "/").await;
        is_answered(&mut more).await;
    }

    #[tokio::test]
    async fn who_has_just_come_is_not_closed_for_one_more() {
        let (address, _world) = listen(FOR_EVER, 2, FOR_EVER).await;
        let mut idle = TcpStream::connect(address).await.unwrap();
        send(&mut idle, "/").await;
        is_answered(&mut idle).await;
        // A part of the head is there, and the rest on its way.
        let mut comes = TcpStream::connect(address).await.unwrap();
        comes.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let mut more = TcpStream::connect(address).await.unwrap();
        send(&mut more, "/").await;
        is_answered(&mut more).await;
        is_closed(&mut idle).await;
        comes.write_all(b"Host: here\r\n\r\n").await.unwrap();
        is_answered(&mut comes).await;
    }

    #[tokio::test]
    async fn one_more_waits_as_long_as_all_have_work() {
        let (address, world) = listen(FOR_EVER, 1, FOR_EVER).await;
        let mut works = TcpStream::connect(address).await.unwrap();
        send(&mut works, "/later").await;
        world.begun.acquire().await.unwrap().forget();
        let mut more = TcpStream::connect(address).await.unwrap();
        send(&mut more, "/").await;
        world.go_on.add_permits(1);
        is_answered(&mut works).await;
        is_answered(&mut more).await;
    }

    #[test]
    fn only_refusals_without_a_reason_are_replaced() {
        let bare = "content-length: 0\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";
        for status in ["400 Bad Request", "414 URI Too Long", "431 Request Header Fields Too Large"] {
            let answer = explained(format!("HTTP/1.1 {status}\r\n{bare}").as_bytes()).expect(status);
            let answer = String::from_utf8(answer.to_vec()).expect("text");
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
            assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{head}");
            let problem: Problem = serde_json::from_str(body).expect("a problem");
            assert_eq!((problem.status, problem.reason.as_str()), (400, "arguments"));
        }
        for answer in [
            format!("HTTP/1.1 200 OK\r\n{bare}"),
            format!("HTTP/1.1 503 Service Unavailable\r\n{bare}"),
            "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n".to_owned(),
            "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
            "HTTP/1.1 100 Continue\r\n\r\n".to_owned(),
            String::new(),
        ] {
            assert_eq!(explained(answer.as_bytes()), None, "{answer}");
        }
    }
}
