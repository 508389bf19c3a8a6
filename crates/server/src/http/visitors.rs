//! The connections of the HTTP port: so few that they cannot use up the descriptors that clients of
//! the database need, and none that is silent for ever, or takes no answer.
//!
//! A place is free again when its connection has ended; until then who comes waits to be accepted.
//! Who has said nothing yet is not waited for as long as who has asked: an answer may take its
//! time.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, Instant, Sleep, sleep};

/// Most connections at a time.
pub(super) const PLACES: usize = 128;
/// So long a connection may say nothing at all.
const FIRST_WORD: Duration = Duration::from_secs(10);
/// So long it may say nothing more, and take nothing: longer than anybody waits for an answer.
const SILENCE: Duration = Duration::from_secs(120);

/// The listening socket, and the places.
pub(super) struct Visitors {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

/// A connection, with its place.
pub(super) struct Visitor {
    socket: TcpStream,
    /// When it has been silent for too long.
    silence: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Visitors {
    /// With so many places.
    pub(super) fn new(listener: TcpListener, places: usize) -> Visitors {
        Visitors { listener, places: Arc::new(Semaphore::new(places)) }
    }
}

impl Listener for Visitors {
    type Io = Visitor;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visitor, SocketAddr) {
        // Nobody closes the semaphore, so there is a place.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (socket, address) = Listener::accept(&mut self.listener).await;
        (Visitor { socket, silence: Box::pin(sleep(FIRST_WORD)), _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Visitor {
    /// What became of a try to read or to write. One that has to wait goes on waiting until the
    /// connection has been silent for too long.
    fn unless_silent<T>(&mut self, tried: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if tried.is_ready() {
            self.silence.as_mut().reset(Instant::now() + SILENCE);
            return tried;
        }
        self.silence.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Visitor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.socket).poll_read(cx, buffer);
        self.unless_silent(read, cx)
    }
}

impl AsyncWrite for Visitor {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.unless_silent(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, pieces);
        self.unless_silent(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// With one place, and two who want it.
    async fn crowded() -> (Visitors, [TcpStream; 2]) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let connect = async || TcpStream::connect(address).await.expect("connected");
        let clients = [connect().await, connect().await];
        (Visitors::new(listener, 1), clients)
    }

    #[tokio::test]
    async fn who_finds_no_place_waits_for_one() {
        let (mut visitors, _clients) = crowded().await;
        let (first, _) = visitors.accept().await;
        tokio::select! {
            biased;
            _ = visitors.accept() => panic!("there is one place"),
            () = tokio::task::yield_now() => {}
        }
        drop(first);
        visitors.accept().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_loses_its_place() {
        let (mut visitors, _clients) = crowded().await;
        let (mut first, _) = visitors.accept().await;
        let error = first.read(&mut [0]).await.expect_err("nothing was said");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// Nothing more is read of a client that does not take what it has asked for.
    #[tokio::test(start_paused = true)]
    async fn who_takes_no_answer_loses_its_place() {
        let (mut visitors, _clients) = crowded().await;
        let (mut first, _) = visitors.accept().await;
        let error = loop {
            if let Err(error) = first.write_all(&[0; 1 << 16]).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
