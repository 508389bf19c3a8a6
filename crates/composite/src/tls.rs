//! TLS between components, and for their clients: a component's certificate, and whom it trusts.
//!
//! Tokens say who somebody is; TLS keeps them, and everything else, to themselves. A component that
//! has a certificate takes no plain connections, and calls those peers by TLS whose addresses say
//! `https`.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Most handshakes at a time.
const HANDSHAKES_MAX: usize = 1000;
/// Connections whose handshakes are done and that nobody has taken yet.
const READY_MAX: usize = 64;
/// How long to wait after the operating system has refused a connection.
const REFUSED: Duration = Duration::from_millis(50);

/// A component's certificate, and the authority that it trusts.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    trusted: ClientConfig,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file);
    match read.and_then(|found| found.collect::<Result<Vec<_>, _>>()) {
        Ok(found) if found.is_empty() => Err(format!("{}: holds no certificate", file.display())),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}

/// Whom to trust: nobody, without certificates.
fn trusting(authorities: Vec<CertificateDer<'static>>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| format!("a certificate of the authority: {error}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(config.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth())
}

/// What a component calls with that has no certificates: it reaches `http` addresses only.
pub(crate) fn untrusting() -> Result<ClientConfig, String> {
    trusting(Vec::new())
}

impl Tls {
    /// From PEM files: the component's certificate chain, its key, and the certificates of the
    /// authority that the other components' certificates come from.
    ///
    /// # Errors
    /// In words, with the file's name.
    pub fn from_files(certificate: &Path, key: &Path, authority: &Path) -> Result<Tls, String> {
        let chain = certificates(certificate)?;
        let secret =
            PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{}: {error}", key.display()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|error| format!("{} and {}: {error}", certificate.display(), key.display()))?;
        let trusted = trusting(certificates(authority)?)?;
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), trusted })
    }

    pub(crate) fn trusted(&self) -> ClientConfig {
        self.trusted.clone()
    }

    /// Takes connections by TLS, for [`Running::serve`](crate::Running::serve) or `axum::serve`.
    ///
    /// # Errors
    /// The listener has no address.
    pub fn listen(&self, listener: TcpListener) -> io::Result<TlsListener> {
        let address = listener.local_addr()?;
        let (sender, ready) = mpsc::channel(READY_MAX);
        tokio::spawn(accept(listener, self.acceptor.clone(), sender, (HANDSHAKES_MAX, HANDSHAKE)));
        Ok(TlsListener { ready, address })
    }
}

/// Connections whose handshakes are done. Handshakes run beside each other: a slow client keeps
/// nobody waiting.
#[derive(Debug)]
pub struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
}

/// Accepts connections, with so many handshakes at most, each of which may take so long. One more
/// ends the oldest: who only opens connections keeps nobody out.
async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    ready: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
    (most, time): (usize, Duration),
) {
    let mut under_way: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        // No more are let in while those that are ready are not taken. So the oldest handshake is
        // one that is not done, and not one that waits to be taken.
        if ready.reserve().await.is_err() {
            return;
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ready.closed() => return,
        };
        let Ok((socket, from)) = accepted else {
            sleep(REFUSED).await;
            continue;
        };
        let _ = socket.set_nodelay(true);
        under_way.retain(|handshake| !handshake.is_finished());
        if under_way.len() >= most
            && let Some(oldest) = under_way.pop_front()
        {
            oldest.abort();
        }
        let (acceptor, ready) = (acceptor.clone(), ready.clone());
        let handshake = tokio::spawn(async move {
            match timeout(time, acceptor.accept(socket)).await {
                Ok(Ok(stream)) => drop(ready.send((stream, from)).await),
                Ok(Err(error)) => tracing::debug!(%from, "no TLS: {error}"),
                Err(_) => tracing::debug!(%from, "no TLS in time"),
            }
        });
        under_way.push_back(handshake.abort_handle());
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The task that accepts ends only with this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::ServerName;
    use tokio::io::AsyncReadExt as _;
    use tokio_rustls::TlsConnector;

    use super::*;

    /// How long anything may take that is waited for: a safety net, far above what it takes.
    const END: Duration = Duration::from_secs(120);
    /// No handshake ends for having taken too long.
    const FOR_EVER: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn who_never_shakes_hands_makes_room_for_those_who_come_later() {
        let folder = tempfile::tempdir().unwrap();
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        std::fs::write(&certificate, certified.cert.pem()).unwrap();
        std::fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
        let tls = Tls::from_files(&certificate, &key, &certificate).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, mut ready) = mpsc::channel(1);
        tokio::spawn(accept(listener, tls.acceptor.clone(), sender, (2, FOR_EVER)));
        let mut silent = Vec::new();
        for _ in 0..2 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let socket = TcpStream::connect(address).await.unwrap();
        let connector = TlsConnector::from(Arc::new(tls.trusted()));
        let shaking = connector.connect(ServerName::try_from("localhost").unwrap(), socket);
        let (shaken, taken) = timeout(END, async { tokio::join!(shaking, ready.recv()) }).await.unwrap();
        assert!(shaken.is_ok() && taken.is_some());
        let closed = timeout(END, silent[0].read(&mut [0])).await.expect("it is not closed");
        // It may end by a reset.
        assert_eq!(closed.unwrap_or_default(), 0);
    }
}
