//! Systems under test: servers that the harness starts itself, or one that already runs.
//!
//! A [`System`] owns what it started. Dropping it stops the server and removes its folder; that is
//! how Ctrl-C, an error and a panic all end without leaving a process behind.

pub mod child;
pub mod cluster;
pub mod cognate;
#[cfg(feature = "galera")]
pub mod galera;
pub mod memory;
mod owner;
pub mod postgres;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

use crate::error::{DatabaseContext, Error, IoContext, Result};

/// How long a server may take until it accepts connections.
pub const START_LIMIT: Duration = Duration::from_secs(60);

/// One database server that a workload can be run against.
#[derive(Debug)]
pub struct System {
    /// The name in tables and JSON: `cognate`, `postgres`, or what `--connect` was given.
    pub name: String,
    /// What the server calls itself in `server_version`.
    pub version: String,
    config: Config,
    server: Option<Server>,
}

/// A child process with its folder.
#[derive(Debug)]
enum Server {
    Cognate(cognate::CognateServer),
    Postgres(postgres::PostgresServer),
}

impl System {
    /// A server that runs already; it is used as it is and left running.
    pub async fn connect(url: &str) -> Result<System> {
        // It is not repeated: there may be a password in it.
        let config: Config = url.parse().map_err(|error| Error::Usage(format!("--connect: {error}")))?;
        System::new("connected", config, None).await
    }

    /// Starts Cognate on a fresh folder.
    pub async fn start_cognate(options: &cognate::CognateOptions) -> Result<System> {
        let server = cognate::CognateServer::start(options).await?;
        // The superuser: some benchmarks set what is the whole server's.
        let config = loopback(server.port(), "cognate", "bench");
        System::new("cognate", config, Some(Server::Cognate(server))).await
    }

    /// Starts a node of a cluster of Cognate, which accepts connections once it has a majority.
    async fn start_node(name: String, options: &cognate::CognateOptions) -> Result<System> {
        let server = cognate::CognateServer::start(options).await?;
        let config = loopback(server.port(), "cognate", "bench");
        System::new(&name, config, Some(Server::Cognate(server))).await
    }

    /// Starts PostgreSQL on a fresh folder, with durable settings.
    pub async fn start_postgres(options: &postgres::PostgresOptions) -> Result<System> {
        let server = postgres::PostgresServer::start(options).await?;
        let config = loopback(server.port(), "postgres", "postgres");
        System::new("postgres", config, Some(Server::Postgres(server))).await
    }

    /// Starts a PostgreSQL that is a standby of this one, and knows itself by this name there.
    pub async fn start_standby(&self, name: &str, options: &postgres::PostgresOptions) -> Result<System> {
        let primary = self.port().ok_or_else(|| Error::Usage(format!("{}: has no port", self.name)))?;
        let server = postgres::PostgresServer::start_standby(primary, name, options).await?;
        let config = loopback(server.port(), "postgres", "postgres");
        System::new(name, config, Some(Server::Postgres(server))).await
    }

    async fn new(name: &str, config: Config, server: Option<Server>) -> Result<System> {
        let mut system = System { name: name.to_owned(), version: String::new(), config, server };
        let client = system.client().await?;
        let row =
            client.query_one("SHOW server_version", &[]).await.at(name, "reading the server's version")?;
        system.version = row.get(0);
        Ok(system)
    }

    /// The driver's connection settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The port on loopback, when the system was started here or the URL names exactly one.
    pub fn port(&self) -> Option<u16> {
        self.config.get_ports().first().copied()
    }

    /// The Cognate server behind this system, when it is one that was started here.
    pub fn cognate(&mut self) -> Option<&mut cognate::CognateServer> {
        match &mut self.server {
            Some(Server::Cognate(server)) => Some(server),
            _ => None,
        }
    }

    /// The end of what the server printed; empty for a server that was not started here.
    pub fn log_tail(&self) -> String {
        match &self.server {
            Some(Server::Cognate(server)) => server.log_tail(),
            Some(Server::Postgres(server)) => server.log_tail(),
            None => String::new(),
        }
    }

    /// Opens a connection whose protocol work runs on the current runtime until the client is
    /// dropped.
    pub async fn client(&self) -> Result<Client> {
        connect(&self.config).await.at(&self.name, "connecting")
    }

    /// Runs statements without parameters, one after the other, each in its own transaction.
    pub async fn execute_each(&self, client: &Client, statements: &[String]) -> Result<()> {
        for statement in statements {
            let doing = statement.lines().next().unwrap_or_default().to_owned();
            client.batch_execute(statement).await.at(&self.name, doing)?;
        }
        Ok(())
    }
}

/// Opens one connection and leaves its protocol work to a task of the current runtime.
pub async fn connect(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(async move {
        // The client's own calls report a broken connection; here it only means that the task ends.
        let _ = connection.await;
    });
    Ok(client)
}

fn loopback(port: u16, user: &str, database: &str) -> Config {
    let mut config = Config::new();
    config.host("127.0.0.1").port(port).user(user).dbname(database).connect_timeout(START_LIMIT);
    config
}

/// A loopback port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    let ports = free_ports(1)?;
    Ok(ports[0])
}

/// So many of them, no two the same.
pub fn free_ports(count: usize) -> Result<Vec<u16>> {
    let doing = "looking for a free port";
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing(doing);
    // Held until all are chosen.
    let held = (0..count).map(bind).collect::<Result<Vec<TcpListener>>>()?;
    held.iter().map(|listener| Ok(listener.local_addr().doing(doing)?.port())).collect()
}

/// A fresh folder below `parent` (the system's temporary folder if none); removed when dropped.
pub fn fresh_folder(parent: Option<&Path>) -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("cognate-bench-");
    let made = match parent {
        Some(parent) => {
            std::fs::create_dir_all(parent).doing(format!("creating {}", parent.display()))?;
            builder.tempdir_in(parent)
        }
        None => builder.tempdir(),
    };
    made.doing("creating a temporary folder")
}

/// Tries to connect until it works, the child ends, or [`START_LIMIT`] is over.
async fn wait_until_ready(name: &str, port: u16, child: &mut Child, log: &Path) -> Result<()> {
    let config = loopback(port, "postgres", "postgres");
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().doing(format!("watching {name}"))? {
            return Err(Error::Server(format!("{name} ended at its start ({status})\n{}", tail(log))));
        }
        if let Ok(client) = connect(&config).await
            && client.batch_execute("SELECT 1").await.is_ok()
        {
            return Ok(());
        }
        if started.elapsed() > START_LIMIT {
            let limit = START_LIMIT.as_secs();
            return Err(Error::Server(format!("{name} was not ready within {limit} s\n{}", tail(log))));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The last lines of a server's log, for an error message.
pub fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// The first of the candidate paths that is a file.
pub(crate) fn first_file(candidates: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    candidates.into_iter().find(|path| path.is_file())
}

/// Where `program` is found along `PATH`.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    first_file(std::env::split_paths(&path).map(|folder| folder.join(program)))
}

/// Waits for a child for at most `limit`, then kills it.
pub(crate) fn reap(child: &mut Child, limit: Duration) {
    let started = Instant::now();
    while started.elapsed() < limit {
        match child.try_wait() {
            Ok(Some(_)) | Err(_) => return,
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Sends a child a signal by name, such as `TERM`, through the `kill` program.
pub(crate) fn signal(child: &Child, name: &str) {
    let _ = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(child.id().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}
