//! The `cognate` command as a process of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// A running `cognate serve`. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    /// The line it printed when it was ready.
    pub(crate) ready: String,
    pub(crate) address: SocketAddr,
}

/// The command with an environment that does not depend on who runs the tests.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cognate"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("COGNATE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Process {
    /// Starts a server over a folder, on a port that the system chooses, and waits until it is
    /// ready. Its allocator gives memory back at once instead of a second later, so that its size
    /// is what it holds and does not depend on how quickly one statement follows another.
    pub(crate) fn serve(data: &Path, arguments: &[&str]) -> Process {
        Process::serve_in(data, arguments, &[])
    }

    /// The same with more in its environment.
    pub(crate) fn serve_in(data: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Process {
        let data = data.to_str().expect("UTF-8");
        let mut command = command(&["serve", "--data", data, "--listen", "127.0.0.1:0"]);
        if !arguments.contains(&"--http") {
            command.args(["--http", "off"]);
        }
        if !arguments.contains(&"--memory") {
            command.args(["--memory", "64MB"]);
        }
        command.env("MIMALLOC_PURGE_DELAY", "0").envs(environment.iter().copied());
        command.args(["--log", "warn"]).args(arguments).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("started");
        let mut ready = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut ready).expect("a line");
        assert!(ready.starts_with("ready  psql -h 127.0.0.1 -p "), "{ready:?}");
        let port = ready.split(' ').skip_while(|word| *word != "-p").nth(1).expect("a port");
        let address = format!("127.0.0.1:{port}").parse().expect("an address");
        Process { child, ready, address }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("waited")
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("connected")
    }

    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).expect("descriptors").count()
    }

    /// The largest resident size so far.
    pub(crate) fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("kilobytes") * 1024
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.id())).expect("statm");
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says that a test does nothing here, and why: past the test runner, which shows only the output
/// of tests that fail, so that it is in the log of whoever runs all of them.
pub(crate) fn skipped(why: &str) {
    // In one piece: other tests say something meanwhile.
    let said = format!("\nSKIPPED: {why}\n");
    let _ = std::io::stderr().write_all(said.as_bytes());
}

/// Runs a command that is to fail and returns what it said, with its exit code.
pub(crate) fn fails(arguments: &[&str]) -> (Option<i32>, String) {
    let output = command(arguments).output().expect("ran");
    (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
}

/// Everything a socket says until it is closed.
pub(crate) fn read_all(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset after the last byte is an end, too.
    let _ = socket.read_to_end(&mut bytes);
    bytes
}
