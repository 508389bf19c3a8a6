//! Cognate as its users run it: the `cognate serve` binary as a child process with a folder and
//! ports of its own.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{first_file, free_port, fresh_folder, reap, signal, tail, wait_until_ready};
use crate::error::{Error, IoContext, Result};

/// How Cognate is started.
#[derive(Clone, Debug, Default)]
pub struct CognateOptions {
    /// The `cognate` binary; beside the harness' own if none, and built when it is not there.
    pub binary: Option<PathBuf>,
    /// Where the folder of its data is made; the system's temporary folder if none.
    pub directory: Option<PathBuf>,
    /// The memory budget, as `--memory` takes it; the server's default if none.
    pub memory: Option<String>,
    /// Further arguments of `cognate serve`.
    pub extra: Vec<String>,
}

/// A running `cognate serve`; killed when dropped.
#[derive(Debug)]
pub struct CognateServer {
    child: Child,
    port: u16,
    http_port: u16,
    binary: PathBuf,
    options: CognateOptions,
    folder: TempDir,
}

impl CognateServer {
    /// Starts the server on a fresh folder and waits until it accepts connections. Somebody may
    /// take a port that was free a moment ago; then on others.
    pub async fn start(options: &CognateOptions) -> Result<CognateServer> {
        const TRIES: u32 = 5;
        for _ in 1..TRIES {
            match CognateServer::start_once(options).await {
                Err(Error::Server(why)) if why.contains("the port is in use") => {}
                started => return started,
            }
        }
        CognateServer::start_once(options).await
    }

    async fn start_once(options: &CognateOptions) -> Result<CognateServer> {
        let binary = find_binary(options.binary.as_deref())?;
        let folder = fresh_folder(options.directory.as_deref())?;
        let (port, http_port) = (free_port()?, free_port()?);
        let child = spawn(&binary, folder.path(), port, http_port, options)?;
        let mut server = CognateServer { child, port, http_port, binary, options: options.clone(), folder };
        server.wait_ready().await?;
        Ok(server)
    }

    /// The loopback port of the PostgreSQL protocol.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The loopback port of `/health` and `/metrics`.
    pub fn http_port(&self) -> u16 {
        self.http_port
    }

    /// The server's process id.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// The folder that holds the server's data.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The end of what the server printed.
    pub fn log_tail(&self) -> String {
        tail(&self.folder.path().join("server.log"))
    }

    /// Ends the process at once, as `kill -9` does, and waits until it is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().doing("killing the server")?;
        self.child.wait().doing("waiting for the killed server")?;
        Ok(())
    }

    /// Removes everything that the server has on disk. It must not run.
    pub fn wipe(&self) -> Result<()> {
        std::fs::remove_dir_all(self.data()).doing("removing a node's folder")
    }

    /// Says something to the server by `cognate node`, and waits for what comes of it.
    pub async fn manage(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command.arg("node").args(words).args(["--http", &format!("127.0.0.1:{}", self.http_port)]);
        let output = tokio::task::spawn_blocking(move || command.output()).await;
        let output = output.map_err(|panic| Error::Server(format!("cognate node: {panic}")))?;
        let output = output.doing("running cognate node")?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Error::Server(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }

    /// Asks the process to stop and waits for it, at most `limit`.
    pub fn stop(&mut self, limit: Duration) {
        signal(&self.child, "TERM");
        reap(&mut self.child, limit);
    }

    /// Starts the server again on the same folder and ports; returns the time until it accepted
    /// connections.
    pub async fn restart(&mut self) -> Result<Duration> {
        let started = Instant::now();
        self.child = spawn(&self.binary, self.folder.path(), self.port, self.http_port, &self.options)?;
        self.wait_ready().await?;
        Ok(started.elapsed())
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let log = self.folder.path().join("server.log");
        wait_until_ready("cognate", self.port, &mut self.child, &log).await
    }
}

impl Drop for CognateServer {
    fn drop(&mut self) {
        // The folder goes with the process, so there is nothing that a gentle stop would save.
        let _ = self.child.kill();
        reap(&mut self.child, Duration::from_secs(10));
    }
}

fn spawn(binary: &Path, folder: &Path, port: u16, http_port: u16, options: &CognateOptions) -> Result<Child> {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("server.log"))
        .doing("creating the server's log")?;
    let error_log = log.try_clone().doing("creating the server's log")?;
    let mut command = Command::new(binary);
    command
        .arg("serve")
        .arg("--data")
        .arg(folder.join("data"))
        .args(["--listen", &format!("127.0.0.1:{port}"), "--http", &format!("127.0.0.1:{http_port}")])
        .current_dir(folder)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(error_log);
    if let Some(memory) = &options.memory {
        command.args(["--memory", memory]);
    }
    command.args(&options.extra);
    command.spawn().doing(format!("starting {}", binary.display()))
}

/// The binary to run: the one given, the one beside the harness' own, or one built now.
fn find_binary(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(given) = given {
        return match given.is_file() {
            // Made absolute, since the server gets a working folder of its own.
            true => std::path::absolute(given).doing("resolving --cognate-binary"),
            false => Err(Error::Missing(format!("--cognate-binary {}: no such file", given.display()))),
        };
    }
    let me = std::env::current_exe().doing("finding the harness' own binary")?;
    let beside = |me: &Path| {
        let folder = me.parent().unwrap_or(Path::new("."));
        // Test binaries live one folder deeper, in `deps`.
        first_file([folder.join("cognate"), folder.join("../cognate")])
    };
    if let Some(found) = beside(&me) {
        return Ok(found);
    }
    eprintln!(
        "the cognate binary is not beside {}: building it (cargo build --release -p cognate)",
        me.display()
    );
    let status = Command::new("cargo")
        .args(["build", "--release", "-p", "cognate"])
        .status()
        .doing("running cargo build --release -p cognate")?;
    if !status.success() {
        return Err(Error::Missing("cargo build --release -p cognate failed".to_owned()));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    beside(&me).or_else(|| first_file([target.join("release/cognate")])).ok_or_else(|| {
        Error::Missing(
            "cargo built cognate, but its binary is not where it was expected; pass --cognate-binary"
                .to_owned(),
        )
    })
}
