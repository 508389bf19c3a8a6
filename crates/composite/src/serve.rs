//! A component's connections: HTTP/1.1, a task each.
//!
//! What cannot be read as the head of a request (more fields than a head may have, a head or a path
//! that is too long, what is none of HTTP's at all) never comes to the router: hyper answers it by
//! itself, with a status and nothing else. The contract has a problem for everything that is
//! refused, so an answer that says nothing is replaced on its way out. No answer of the router is
//! one of those: its problems have bodies.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::serve::Listener;
use bytes::{Buf, Bytes};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::problem::Problem;

/// Answers requests on a listener, for ever.
pub(crate) async fn serve<L: Listener>(mut listener: L, router: Router) {
    loop {
        let (io, _) = listener.accept().await;
        let service = TowerToHyperService::new(router.clone());
        let io = TokioIo::new(Explained { io, instead: None });
        let connection = http1::Builder::new().serve_connection(io, service);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection has ended: {error}");
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
    use super::*;

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
