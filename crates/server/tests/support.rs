//! A server of its own for each test, on ports that the system chooses.

use std::net::SocketAddr;

use cognate_env::sim::SimDisk;
use cognate_server::assemble::{self, Running};
use cognate_server::config::{Config, Settings};
use tempfile::TempDir;

/// A running server and its folder.
pub(crate) struct TestServer {
    pub(crate) running: Running,
    pub(crate) folder: TempDir,
}

impl TestServer {
    /// Starts one with default settings.
    pub(crate) async fn start() -> TestServer {
        TestServer::with(Settings::default()).await
    }

    /// Starts one with these settings; folder and ports are chosen here.
    pub(crate) async fn with(settings: Settings) -> TestServer {
        let folder = tempfile::tempdir().expect("a folder");
        let running = TestServer::open(settings, folder.path().join("data")).await;
        TestServer { running, folder }
    }

    /// Starts one on a simulated disk.
    pub(crate) async fn on(disk: &SimDisk) -> TestServer {
        let folder = tempfile::tempdir().expect("a folder");
        let config = TestServer::config(Settings::default(), folder.path().join("data"));
        let running = assemble::start_on(config, disk.handle()).await.expect("the server starts");
        TestServer { running, folder }
    }

    /// Starts one over a given folder.
    pub(crate) async fn open(settings: Settings, data: std::path::PathBuf) -> Running {
        assemble::start(TestServer::config(settings, data)).await.expect("the server starts")
    }

    fn config(settings: Settings, data: std::path::PathBuf) -> Config {
        let settings = Settings {
            data: Some(data),
            listen: Some("127.0.0.1:0".to_owned()),
            http: settings.http.or(Some("127.0.0.1:0".to_owned())),
            memory: settings.memory.or(Some("64MB".to_owned())),
            superuser: settings.superuser.or(Some("ann".to_owned())),
            ..settings
        };
        Config::resolve(settings).expect("valid settings")
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.running.listen()
    }

    /// Connects as a driver does.
    pub(crate) async fn connect(&self) -> tokio_postgres::Client {
        connect(self.address()).await
    }

    /// Body and status code of an HTTP request.
    pub(crate) async fn http(&self, path: &str) -> (u16, String) {
        self.http_with(path, "").await
    }

    /// The same with header lines, each with its end.
    pub(crate) async fn http_with(&self, path: &str, headers: &str) -> (u16, String) {
        let address = self.running.http().expect("HTTP is on");
        http(address, path, headers).await
    }

    /// All that comes back, head and body.
    pub(crate) async fn http_answer(&self, path: &str) -> String {
        exchange(self.running.http().expect("HTTP is on"), path, "").await
    }

    /// The value of a metric without labels.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let (status, text) = self.http("/metrics").await;
        assert_eq!(status, 200);
        let line = text.lines().find(|line| line.split(' ').next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("no metric {name} in\n{text}"));
        line.split(' ').nth(1).and_then(|value| value.parse().ok()).expect("a number")
    }

    /// Waits until a metric has a value.
    pub(crate) async fn metric_becomes(&self, name: &str, value: u64) {
        while self.metric(name).await != value {
            tokio::task::yield_now().await;
        }
    }

    /// Stops it in an orderly way and returns its folder.
    pub(crate) async fn stop(self) -> TempDir {
        self.running.stop().await.expect("an orderly stop");
        self.folder
    }
}

/// Connects to an address as a driver does.
pub(crate) async fn connect(address: SocketAddr) -> tokio_postgres::Client {
    let parameters = format!("host={} port={} user=ann dbname=any", address.ip(), address.port());
    let (client, connection) =
        tokio_postgres::connect(&parameters, tokio_postgres::NoTls).await.expect("connected");
    tokio::spawn(connection);
    client
}

async fn http(address: SocketAddr, path: &str, headers: &str) -> (u16, String) {
    let answer = exchange(address, path, headers).await;
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let body = answer.split_once("\r\n\r\n").expect("a body").1;
    (status, body.to_owned())
}

/// An HTTP request and all that comes back.
async fn exchange(address: SocketAddr, path: &str, headers: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut socket = tokio::net::TcpStream::connect(address).await.expect("connected");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    socket.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("received");
    answer
}
