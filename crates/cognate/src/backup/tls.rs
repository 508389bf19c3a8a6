//! TLS to the server: it is believed if a given authority has signed its certificate for its name,
//! or if its certificate is the given one itself.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Makes connections to servers that are believed.
#[derive(Clone)]
pub(super) struct Encryption(Arc<ClientConfig>);

impl Encryption {
    /// Believes what the certificates of this PEM file vouch for. The error is one sentence that
    /// names the file.
    pub(super) fn to(file: &Path) -> Result<Encryption, String> {
        let wrong = |e: &dyn std::fmt::Display| format!("tls-ca: {}: {e}", file.display());
        let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let known: Vec<CertificateDer<'static>> = read.map_err(|e| wrong(&e))?;
        let mut roots = RootCertStore::empty();
        for certificate in &known {
            roots.add(certificate.clone()).map_err(|e| wrong(&e))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let signed = signed.build().map_err(|e| wrong(&e))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong(&e))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Believed { known, signed }))
            .with_no_client_auth();
        Ok(Encryption(Arc::new(config)))
    }
}

/// Whom to believe.
#[derive(Debug)]
struct Believed {
    known: Vec<CertificateDer<'static>>,
    signed: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Believed {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // One that signs itself is no authority's, and needs no name: it is this very server's.
        if self.known.iter().any(|known| known.as_ref() == end_entity.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        self.signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Encryption {
    type Stream = Encrypted<S>;
    type TlsConnect = Connecting;
    type Error = rustls_pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Connecting, Self::Error> {
        Ok(Connecting { config: Arc::clone(&self.0), name: ServerName::try_from(host)?.to_owned() })
    }
}

/// A connection that is about to be encrypted.
pub(super) struct Connecting {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connecting {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connecting = tokio_rustls::TlsConnector::from(self.config).connect(self.name, stream);
        Box::pin(async { Ok(Encrypted(connecting.await?)) })
    }
}

/// A connection that is encrypted.
pub(super) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
