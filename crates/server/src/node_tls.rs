//! TLS between nodes: each shows a certificate, and believes only those of one authority.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cognate_replication::net::tcp::Tls;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

/// The name that every node's certificate has: which node it is, is told inside the connection.
const NAME: &str = "cognate-node";

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => {
            Err(format!("cluster_tls: {} holds no certificate", file.display()))
        }
        Ok(certificates) => Ok(certificates),
        Err(e) => Err(format!("cluster_tls: cannot read {}: {e}", file.display())),
    }
}

/// Both sides of the connections between nodes, from certificate, key and authority. The error is
/// one sentence that names the file.
pub(crate) fn between_nodes([certificate, key, authority]: &[PathBuf; 3]) -> Result<Tls, String> {
    let chain = certificates(certificate)?;
    let read_key = || {
        PrivateKeyDer::from_pem_file(key)
            .map_err(|e| format!("cluster_tls: cannot read {}: {e}", key.display()))
    };
    let wrong = |e: &dyn std::fmt::Display| {
        format!("cluster_tls: {} and {}: {e}", certificate.display(), key.display())
    };
    let mut roots = RootCertStore::empty();
    for root in certificates(authority)? {
        roots.add(root).map_err(|e| format!("cluster_tls: {}: {e}", authority.display()))?;
    }
    let roots = Arc::new(roots);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
    let verifier = verifier.build().map_err(|e| format!("cluster_tls: {}: {e}", authority.display()))?;
    let acceptor = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(&e))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), read_key()?)
        .map_err(|e| wrong(&e))?;
    let connector = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(&e))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, read_key()?)
        .map_err(|e| wrong(&e))?;
    let name = ServerName::try_from(NAME).map_err(|e| wrong(&e))?;
    Ok(Tls { acceptor: Arc::new(acceptor).into(), connector: Arc::new(connector).into(), name })
}
