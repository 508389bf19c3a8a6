//! TLS between components, and for their clients: a component's certificate, and whom it trusts.
//!
//! Tokens say who somebody is; TLS keeps them, and everything else, to themselves. A component that
//! has a certificate takes no plain connections, and calls those peers by TLS whose addresses say
//! `https`.

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
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
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
        tokio::spawn(accept(listener, self.acceptor.clone(), sender));
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

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    ready: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ready.closed() => return,
        };
        let Ok((socket, from)) = accepted else {
            sleep(REFUSED).await;
            continue;
        };
        let _ = socket.set_nodelay(true);
        let (acceptor, ready) = (acceptor.clone(), ready.clone());
        tokio::spawn(async move {
            match timeout(HANDSHAKE, acceptor.accept(socket)).await {
                Ok(Ok(stream)) => drop(ready.send((stream, from)).await),
                Ok(Err(error)) => tracing::debug!(%from, "no TLS: {error}"),
                Err(_) => tracing::debug!(%from, "no TLS in time"),
            }
        });
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
