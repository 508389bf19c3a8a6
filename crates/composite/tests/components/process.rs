//! Processes of the purchase example, and requests to them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// Whatever goes wrong ends the test.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The names of the three.
pub(crate) const NAMES: [&str; 3] = ["shop", "stock", "payment"];

/// Where the example is: beside the test, which cargo builds together with it.
pub(crate) fn example() -> Result<PathBuf, Failure> {
    let test = std::env::current_exe()?;
    let folder = test.parent().and_then(Path::parent).ok_or("the test is nowhere")?;
    let example = folder.join("examples").join("purchase");
    match example.exists() {
        true => Ok(example),
        false => Err("the example is missing: cargo build -p cognate-composite --examples".into()),
    }
}

/// A port that is free now.
pub(crate) fn port() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// The three components, each with an embedded database of its own.
pub(crate) struct Components {
    folder: tempfile::TempDir,
    addresses: Vec<SocketAddr>,
    processes: Vec<Option<Child>>,
    token: Option<PathBuf>,
    without_undo: bool,
}

impl Components {
    /// Starts all of them.
    pub(crate) fn start() -> Result<Components, Failure> {
        Components::start_with(None, false)
    }

    /// Starts all of them; the payment has no undo.
    pub(crate) fn start_without_undo() -> Result<Components, Failure> {
        Components::start_with(None, true)
    }

    /// The same with these tokens, one a line.
    pub(crate) fn start_with(tokens: Option<&str>, without_undo: bool) -> Result<Components, Failure> {
        let folder = tempfile::tempdir()?;
        let token = match tokens {
            Some(tokens) => {
                let file = folder.path().join("tokens");
                std::fs::write(&file, tokens)?;
                Some(file)
            }
            None => None,
        };
        let addresses = NAMES.iter().map(|_| port()).collect::<Result<_, _>>()?;
        let processes = NAMES.iter().map(|_| None).collect();
        let mut components = Components { folder, addresses, processes, token, without_undo };
        for place in 0..NAMES.len() {
            components.restart(place)?;
        }
        Ok(components)
    }

    /// The folder of a component's journal.
    pub(crate) fn journal(&self, place: usize) -> PathBuf {
        self.folder.path().join(NAMES[place]).join("journal")
    }

    /// Where a component listens.
    pub(crate) fn address(&self, name: &str) -> SocketAddr {
        let place = NAMES.iter().position(|its| *its == name).expect("one of the three");
        self.addresses[place]
    }

    /// Starts a component, and returns once it answers.
    pub(crate) fn restart(&mut self, place: usize) -> Result<(), Failure> {
        let (name, folder) = (NAMES[place], self.folder.path().join(NAMES[place]));
        let peers =
            NAMES.iter().zip(&self.addresses).map(|(name, address)| format!("{name}=http://{address}"));
        let mut command = Command::new(example()?);
        command
            .arg(name)
            .args(["--listen", &self.addresses[place].to_string()])
            .args(["--database", &format!("embedded:{}", folder.join("database").display())])
            .arg("--data")
            .arg(folder.join("journal"))
            .args(["--peers", &peers.collect::<Vec<_>>().join(",")])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        if let Some(token) = &self.token {
            command.arg("--token-file").arg(token);
        }
        if self.without_undo && name == "payment" {
            command.arg("--without-undo");
        }
        let mut process = command.spawn()?;
        let mut line = String::new();
        let output = process.stdout.take().ok_or("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        if !line.contains("listens on") {
            process.wait()?;
            return Err(format!("{name} did not start: {line}").into());
        }
        self.processes[place] = Some(process);
        Ok(())
    }

    /// Kills a component.
    pub(crate) fn kill(&mut self, place: usize) -> Result<(), Failure> {
        if let Some(mut process) = self.processes[place].take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }
}

impl Drop for Components {
    fn drop(&mut self) {
        for place in 0..NAMES.len() {
            let _ = self.kill(place);
        }
    }
}

/// Status and body of an answer; a body that is no JSON is null.
pub(crate) type Answer = (u16, Value);

/// Sends a request, and waits for its answer.
pub(crate) fn request(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Answer, Failure> {
    let mut socket = TcpStream::connect(to)?;
    socket.set_read_timeout(Some(Duration::from_secs(90)))?;
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    socket.write_all(format!("{head}\r\n").as_bytes())?;
    // A server that has refused the head may not read the body.
    let _ = socket.write_all(body);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no answer")?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
    Ok((status, serde_json::from_slice(&answer[end + 4..]).unwrap_or(Value::Null)))
}

/// Posts JSON.
pub(crate) fn post(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Result<Answer, Failure> {
    let headers = [&[("Content-Type", "application/json")], headers].concat();
    request(to, "POST", path, &headers, body.to_string().as_bytes())
}
