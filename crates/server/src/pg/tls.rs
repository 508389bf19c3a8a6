//! TLS: the certificate and key of the listener.

use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Reads a PEM certificate chain and its PEM private key. The error is one sentence that names the
/// file.
pub fn acceptor(certificate_file: &Path, key_file: &Path) -> Result<TlsAcceptor, String> {
    let chain = CertificateDer::pem_file_iter(certificate_file)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
        .map_err(|e| format!("cannot read TLS certificate {}: {e}", certificate_file.display()))?;
    if chain.is_empty() {
        return Err(format!("TLS certificate {} holds no certificate", certificate_file.display()));
    }
    let key = PrivateKeyDer::from_pem_file(key_file)
        .map_err(|e| format!("cannot read TLS key {}: {e}", key_file.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS: {e}"))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|e| {
            let (certificate, key) = (certificate_file.display(), key_file.display());
            format!("TLS certificate {certificate} and key {key}: {e}")
        })?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
