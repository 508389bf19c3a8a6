//! Passwords and encryption, with a driver on the other side.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use cognate_server::config::{AuthSettings, Settings, TlsSettings};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, TlsConnect};
use tokio_postgres::{Config, NoTls};

use crate::support::TestServer;

fn client_config(server: &TestServer, user: &str, password: &str) -> Config {
    let mut config = Config::new();
    config.host("127.0.0.1").port(server.address().port()).user(user).password(password).dbname("any");
    config
}

async fn try_connect(server: &TestServer, user: &str, password: &str) -> Result<(), String> {
    match client_config(server, user, password).connect(NoTls).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.code().map_or_else(|| error.to_string(), |state| state.code().to_owned())),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_for_all_or_for_each() {
    let anyone = AuthSettings { password: Some("geheim ß\u{ad}".to_owned()), ..AuthSettings::default() };
    let server = TestServer::with(Settings { auth: anyone, ..Settings::default() }).await;
    assert_eq!(try_connect(&server, "ann", "geheim ß\u{ad}").await, Ok(()));
    assert_eq!(try_connect(&server, "bob", "geheim ß").await, Ok(()), "soft hyphens are prepared away");
    assert_eq!(try_connect(&server, "ann", "other").await, Err("28P01".to_owned()));
    server.stop().await;

    let users = BTreeMap::from([("ann".to_owned(), "a".to_owned()), ("bob".to_owned(), "b".to_owned())]);
    let each = AuthSettings { users, ..AuthSettings::default() };
    let server = TestServer::with(Settings { auth: each, ..Settings::default() }).await;
    assert_eq!(try_connect(&server, "ann", "a").await, Ok(()));
    assert_eq!(try_connect(&server, "bob", "b").await, Ok(()));
    for (user, password) in [("ann", "b"), ("bob", "a"), ("eve", "a"), ("ann", "")] {
        assert!(try_connect(&server, user, password).await.is_err(), "{user} {password}");
    }
    server.metric_becomes("cognate_sockets", 0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_file_is_read_and_a_database_needs_no_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    std::fs::write(&file, "secret\n").expect("written");
    let auth = AuthSettings { password_file: Some(file), ..AuthSettings::default() };
    let server = TestServer::with(Settings { auth, ..Settings::default() }).await;
    assert_eq!(try_connect(&server, "ann", "secret").await, Ok(()));
    assert_eq!(try_connect(&server, "ann", "secret\n").await, Err("28P01".to_owned()));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_a_password() {
    let folder = tempfile::tempdir().expect("a folder");
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, certified.cert.pem()).expect("written");
    std::fs::write(&key, certified.signing_key.serialize_pem()).expect("written");
    let settings = Settings {
        tls: TlsSettings { cert: Some(cert), key: Some(key) },
        auth: AuthSettings { password: Some("secret".to_owned()), ..AuthSettings::default() },
        ..Settings::default()
    };
    let server = TestServer::with(settings).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certified.cert.der().clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut config = client_config(&server, "ann", "secret");
    config.ssl_mode(SslMode::Require);
    let socket = TcpStream::connect(server.address()).await.expect("connected");
    let (client, connection) =
        config.connect_raw(socket, Connector(Arc::new(tls))).await.expect("connected over TLS");
    let connection = tokio::spawn(connection);
    drop(client);
    connection.await.expect("no panic").expect("an orderly end");
    // Without encryption the door is open, too.
    assert_eq!(try_connect(&server, "ann", "secret").await, Ok(()));
    server.metric_becomes("cognate_sockets", 0).await;
    server.stop().await;
}

#[test]
fn bad_certificates_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing.pem");
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").expect("written");
    let error = |cert, key| cognate_server::pg::tls::acceptor(cert, key).err().expect("refused");
    assert!(error(&missing, &missing).contains("missing.pem"));
    assert!(error(&empty, &missing).contains("empty.pem holds no certificate"));
}

/// TLS for the driver.
struct Connector(Arc<rustls::ClientConfig>);

impl TlsConnect<TcpStream> for Connector {
    type Stream = Stream;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Stream>> + Send>>;

    fn connect(self, stream: TcpStream) -> Self::Future {
        let name = rustls_pki_types::ServerName::try_from("localhost").expect("a name");
        let connecting = tokio_rustls::TlsConnector::from(self.0).connect(name, stream);
        Box::pin(async { Ok(Stream(connecting.await?)) })
    }
}

struct Stream(tokio_rustls::client::TlsStream<TcpStream>);

impl tokio_postgres::tls::TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        b: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, b)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, b: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, b)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
