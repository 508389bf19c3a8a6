//! A PostgreSQL of its own: a fresh cluster from the installed binaries, durable, on a free
//! loopback port.
//!
//! The settings are those of a careful small installation: `fsync`, `synchronous_commit` and
//! `full_page_writes` on, 1 GB of shared buffers, room for 300 connections, a `max_wal_size` that
//! keeps checkpoints out of short runs, and a table of predicate locks that short transactions at
//! SERIALIZABLE beside a long one do not fill: with its default size they are refused (53200). A
//! standby is a copy of a running server that follows it. PostgreSQL refuses to run as root, so a
//! harness that runs as root starts it as user `postgres`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::owner::{Owner, own};
use super::{first_file, free_port, fresh_folder, in_path, reap, signal, tail, wait_until_ready};
use crate::error::{Error, IoContext, Result};

/// Predicate locks that there is room for, over all connections.
const PREDICATE_LOCKS: u32 = 300_000;
/// Locks of one relation's pages and rows that a transaction may have before it has one of the
/// whole relation. That many it is by default; by itself it would grow with the table of locks, and
/// rows of results that were measured before would mean something else.
const OF_ONE_RELATION: u32 = 64 / 2 - 1;

/// How PostgreSQL is started.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Where the folder of its data is made; the system's temporary folder if none.
    pub directory: Option<PathBuf>,
    /// `shared_buffers`; 1GB if none.
    pub shared_buffers: Option<String>,
    /// `max_prepared_transactions`; PostgreSQL's own default is 0: there are none.
    pub prepared_transactions: u32,
    /// `max_connections`; 300 if none.
    pub connections: Option<u32>,
}

/// A running PostgreSQL; stopped when dropped.
#[derive(Debug)]
pub struct PostgresServer {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl PostgresServer {
    /// Makes a cluster, starts it and waits until it accepts connections.
    pub async fn start(options: &PostgresOptions) -> Result<PostgresServer> {
        let (initdb, owner) = (program("initdb")?, owner()?);
        let folder = owned_folder(options, owner)?;
        let data = folder.path().join("data");
        make_cluster(&initdb, &data, folder.path(), owner)?;
        PostgresServer::run(folder, owner, options).await
    }

    /// Makes a standby of the server on this port, by a copy of it, and starts it. The primary
    /// knows it by its name.
    pub async fn start_standby(
        primary: u16,
        name: &str,
        options: &PostgresOptions,
    ) -> Result<PostgresServer> {
        let (basebackup, owner) = (program("pg_basebackup")?, owner()?);
        let folder = owned_folder(options, owner)?;
        let copied = command(&basebackup, owner, folder.path())
            .arg("-D")
            .arg(folder.path().join("data"))
            .args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-d"])
            .arg(format!("host=127.0.0.1 port={primary} user=postgres application_name={name}"))
            .stdin(Stdio::null())
            .output()
            .doing(format!("running {}", basebackup.display()))?;
        if !copied.status.success() {
            let said = String::from_utf8_lossy(&copied.stderr).into_owned();
            return Err(Error::Server(format!("pg_basebackup failed ({})\n{said}", copied.status)));
        }
        PostgresServer::run(folder, owner, options).await
    }

    /// Starts the server on the data in its folder.
    async fn run(folder: TempDir, owner: Option<Owner>, options: &PostgresOptions) -> Result<PostgresServer> {
        let postgres = program("postgres")?;
        let data = folder.path().join("data");
        let port = free_port()?;
        write_settings(&data, port, options)?;
        let log_path = folder.path().join("server.log");
        let log = std::fs::File::create(&log_path).doing("creating the server's log")?;
        let error_log = log.try_clone().doing("creating the server's log")?;
        let child = command(&postgres, owner, folder.path())
            .arg("-D")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(error_log)
            .spawn()
            .doing(format!("starting {}", postgres.display()))?;
        let mut server = PostgresServer { child, port, folder };
        wait_until_ready("PostgreSQL", port, &mut server.child, &log_path).await?;
        Ok(server)
    }

    /// The loopback port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The end of what the server wrote to its log.
    pub fn log_tail(&self) -> String {
        tail(&self.folder.path().join("server.log"))
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // QUIT is PostgreSQL's immediate shutdown: every process of it ends without a checkpoint.
        // The data go anyway.
        signal(&self.child, "QUIT");
        reap(&mut self.child, Duration::from_secs(10));
    }
}

/// Where one of PostgreSQL's programs is: where `pg_config` says, Debian's folders (newest first),
/// or `PATH`.
pub fn program(name: &str) -> Result<PathBuf> {
    let mut folders = Vec::new();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").stderr(Stdio::null()).output()
        && output.status.success()
    {
        folders.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    folders.extend(versions.into_iter().map(|(_, folder)| folder));
    first_file(folders.iter().map(|folder| folder.join(name))).or_else(|| in_path(name)).ok_or_else(|| {
        Error::Missing(format!(
            "PostgreSQL's program {name} was not found (asked pg_config, /usr/lib/postgresql/*/bin and PATH); \
             on Debian: apt-get install postgresql"
        ))
    })
}

fn owner() -> Result<Option<Owner>> {
    Owner::find("PostgreSQL", "postgres", "postgresql")
}

/// A fresh folder for data that only the server's user may enter.
fn owned_folder(options: &PostgresOptions, owner: Option<Owner>) -> Result<TempDir> {
    let folder = fresh_folder(options.directory.as_deref())?;
    if let Some(owner) = owner {
        owner.give(folder.path())?;
    }
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700))
        .doing("protecting a folder")?;
    Ok(folder)
}

fn command(program: &Path, owner: Option<Owner>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("LC_ALL", "C");
    own(&mut command, owner);
    command
}

fn make_cluster(initdb: &Path, data: &Path, folder: &Path, owner: Option<Owner>) -> Result<()> {
    let made = command(initdb, owner, folder)
        .arg("-D")
        .arg(data)
        .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
        .stdin(Stdio::null())
        .output()
        .doing(format!("running {}", initdb.display()))?;
    if made.status.success() {
        return Ok(());
    }
    Err(Error::Server(format!("initdb failed ({})\n{}", made.status, String::from_utf8_lossy(&made.stderr))))
}

fn write_settings(data: &Path, port: u16, options: &PostgresOptions) -> Result<()> {
    let shared_buffers = options.shared_buffers.as_deref().unwrap_or("1GB");
    let prepared_transactions = options.prepared_transactions;
    let connections = options.connections.unwrap_or(300);
    let predicate_locks = (PREDICATE_LOCKS / (connections + prepared_transactions).max(1)).max(64);
    let settings = format!(
        "listen_addresses = '127.0.0.1'\n\
         port = {port}\n\
         unix_socket_directories = ''\n\
         max_connections = {connections}\n\
         shared_buffers = {shared_buffers}\n\
         fsync = on\n\
         synchronous_commit = on\n\
         full_page_writes = on\n\
         max_wal_size = 4GB\n\
         max_pred_locks_per_transaction = {predicate_locks}\n\
         max_pred_locks_per_relation = {OF_ONE_RELATION}\n\
         max_prepared_transactions = {prepared_transactions}\n"
    );
    // Appended: of two values for one setting the later counts.
    let path = data.join("postgresql.conf");
    let mut text = std::fs::read_to_string(&path).doing("reading postgresql.conf")?;
    text.push_str(&settings);
    std::fs::write(&path, text).doing("writing postgresql.conf")
}
