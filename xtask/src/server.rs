//! A server of its own for each piece of work, on an empty folder and a port that the system
//! chooses.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Builds the server as the tests do, and returns its program.
pub(crate) fn build(root: &Path) -> Result<PathBuf, String> {
    super::cargo(root, "server", &["build", "-p", "cognate", "--locked"], &[])?;
    Ok(super::step::target(root).join("debug/cognate"))
}

fn failed(doing: &str, error: &std::io::Error) -> String {
    format!("{doing}: {error}")
}

/// Starts a server on a folder and a port that the system chooses, and waits until it is ready: the
/// child, which the caller ends, and its port, or why there is none.
pub(crate) fn spawn(
    program: &Path,
    data: &Path,
    memory: &str,
) -> Result<(Child, Result<String, String>), String> {
    let mut child = Command::new(program)
        .args(["serve", "--listen", "127.0.0.1:0", "--http", "off", "--log", "error", "--memory", memory])
        .arg("--data")
        .arg(data)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed("starting the server", &error))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(|error| failed("the server", &error))?;
    }
    // It says how to connect: `... -p PORT ...`.
    let port = line.split_whitespace().skip_while(|word| *word != "-p").nth(1);
    let port = port.map(str::to_owned).ok_or_else(|| format!("the server did not become ready: {line}"));
    Ok((child, port))
}

/// A server on an empty folder; both end with it.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: String,
    folder: PathBuf,
}

impl Server {
    /// Starts it and waits until it is ready. The folder's name says what it is for.
    pub(crate) fn start(program: &Path, purpose: &str) -> Result<Server, String> {
        let folder = std::env::temp_dir().join(format!("cognate-{purpose}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&folder));
        let (child, port) = spawn(program, &folder, "256MB")?;
        let mut server = Server { child, port: String::new(), folder };
        server.port = port?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}
