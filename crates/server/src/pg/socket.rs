//! What a connection has of the network: a stream of bytes in both directions, encrypted or not,
//! that also tells when the other side has closed.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use rustls::ProtocolVersion;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;

/// How often a socket that is not read is asked whether the other side has closed.
const LOOK: Duration = Duration::from_secs(1);

/// A stream of bytes in both directions. [`Socket`] is the real one; tests have one that follows a
/// script.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {
    /// Ready once the other side has closed, also while there are bytes to read. `look` lasts as
    /// long as the wait does.
    fn poll_closed(&self, look: &mut Look, cx: &mut Context<'_>) -> Poll<()>;
}

/// When a socket is asked next. The system tells of a close only together with bytes to read, which
/// are left where they are meanwhile.
pub(crate) type Look = Option<Pin<Box<Sleep>>>;

/// The socket, encrypted or not.
pub(crate) enum Socket {
    /// Plain TCP.
    Plain(TcpStream),
    /// TLS over it.
    Tls(Box<TlsStream<TcpStream>>),
    /// A pipe inside the process.
    Pipe(UnixStream),
}

impl Socket {
    /// Where the other end is, over a network.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Socket::Plain(stream) => stream.peer_addr().ok(),
            Socket::Tls(stream) => stream.get_ref().0.peer_addr().ok(),
            Socket::Pipe(_) => None,
        }
    }

    /// The version of TLS, if it is encrypted.
    pub(super) fn tls(&self) -> Option<&'static str> {
        match self {
            Socket::Tls(stream) => Some(match stream.get_ref().1.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "TLSv1.3",
            }),
            Socket::Plain(_) | Socket::Pipe(_) => None,
        }
    }

    /// What is known of it, without waiting: nobody is woken by this question.
    fn known(&self) -> Poll<io::Result<Ready>> {
        let mut cx = Context::from_waker(Waker::noop());
        match self {
            Socket::Plain(stream) => pin!(stream.ready(Interest::READABLE)).poll(&mut cx),
            Socket::Tls(stream) => pin!(stream.get_ref().0.ready(Interest::READABLE)).poll(&mut cx),
            Socket::Pipe(stream) => pin!(stream.ready(Interest::READABLE)).poll(&mut cx),
        }
    }
}

impl Stream for Socket {
    fn poll_closed(&self, look: &mut Look, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if matches!(self.known(), Poll::Ready(Ok(ready)) if ready.is_read_closed()) {
                return Poll::Ready(());
            }
            ready!(look.get_or_insert_with(|| Box::pin(sleep(LOOK))).as_mut().poll(cx));
            *look = None;
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            Socket::Pipe(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write(cx, data),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, data),
            Socket::Pipe(stream) => Pin::new(stream).poll_write(cx, data),
        }
    }

    /// TLS keeps records of its own; the others have nothing to flush.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(_) | Socket::Pipe(_) => Poll::Ready(Ok(())),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Pipe(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
