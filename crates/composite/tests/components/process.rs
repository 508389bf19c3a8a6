//! Processes of the purchase example, and requests to them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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

/// How long anything may take that is waited for: a safety net, far above what it takes.
pub(crate) const END: Duration = Duration::from_secs(120);
/// Ports that the system does not give to outgoing connections by itself, and that tests of other
/// crates, which may run at the same time, do not take.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// A port that is free, and stays so while its component is down: a connection that is attempted
/// meanwhile must not get it as its own end.
pub(crate) fn port() -> Result<SocketAddr, Failure> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = std::process::id() as usize * 61;
    for _ in PORTS {
        let place = begin + usize::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + (place % PORTS.len()) as u16;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return Ok(listener.local_addr()?);
        }
    }
    Err("no port is free".into())
}

/// The three components, each with a database of its own, an embedded one if nothing else is said.
pub(crate) struct Components {
    folder: tempfile::TempDir,
    /// Where each listens.
    addresses: Vec<SocketAddr>,
    /// Where the others find each.
    doors: Vec<SocketAddr>,
    processes: Vec<Option<Child>>,
    /// Where their databases are, unless they are embedded.
    databases: Vec<String>,
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
        let mut components = Components::prepare(tokens)?;
        components.without_undo = without_undo;
        components.start_all()
    }

    /// The same on these databases.
    pub(crate) fn start_on(databases: Vec<String>, without_undo: bool) -> Result<Components, Failure> {
        let mut components = Components::prepare(None)?;
        (components.databases, components.without_undo) = (databases, without_undo);
        components.start_all()
    }

    fn start_all(mut self) -> Result<Components, Failure> {
        (0..NAMES.len()).try_for_each(|place| self.restart(place))?;
        Ok(self)
    }

    /// None of them runs yet.
    pub(crate) fn prepare(tokens: Option<&str>) -> Result<Components, Failure> {
        let folder = tempfile::tempdir()?;
        let token = match tokens {
            Some(tokens) => {
                let file = folder.path().join("tokens");
                std::fs::write(&file, tokens)?;
                Some(file)
            }
            None => None,
        };
        let addresses = NAMES.iter().map(|_| port()).collect::<Result<Vec<_>, _>>()?;
        let (doors, processes) = (addresses.clone(), NAMES.iter().map(|_| None).collect());
        let databases = Vec::new();
        Ok(Components { folder, addresses, doors, processes, databases, token, without_undo: false })
    }

    /// The others find this component here from their next start on.
    pub(crate) fn set_door(&mut self, place: usize, door: SocketAddr) {
        self.doors[place] = door;
    }

    /// The component listens at another port from its next start on.
    pub(crate) fn move_away(&mut self, place: usize) -> Result<SocketAddr, Failure> {
        self.addresses[place] = port()?;
        Ok(self.addresses[place])
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
        match self.restart_with(place, None)? {
            None => Ok(()),
            Some(status) => Err(format!("{} did not start: {status}", NAMES[place]).into()),
        }
    }

    /// Starts a component with this fault. Returns once it answers, or has ended, and how.
    pub(crate) fn restart_with(
        &mut self,
        place: usize,
        fault: Option<&str>,
    ) -> Result<Option<ExitStatus>, Failure> {
        let (name, folder) = (NAMES[place], self.folder.path().join(NAMES[place]));
        let peers = NAMES.iter().zip(&self.doors).map(|(name, address)| format!("{name}=http://{address}"));
        let embedded = format!("embedded:{}", folder.join("database").display());
        let mut command = Command::new(example()?);
        command
            .arg(name)
            .args(["--listen", &self.addresses[place].to_string()])
            .args(["--database", self.databases.get(place).unwrap_or(&embedded)])
            .arg("--data")
            .arg(folder.join("journal"))
            .args(["--peers", &peers.collect::<Vec<_>>().join(",")])
            .env_remove("COGNATE_FAULT")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        if let Some(token) = &self.token {
            command.arg("--token-file").arg(token);
        }
        if self.without_undo && name == "payment" {
            command.arg("--without-undo");
        }
        if let Some(fault) = fault {
            command.env("COGNATE_FAULT", fault);
        }
        let mut process = command.spawn()?;
        let mut line = String::new();
        let output = process.stdout.take().ok_or("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        if !line.contains("listens on") {
            return Ok(Some(process.wait()?));
        }
        self.processes[place] = Some(process);
        Ok(None)
    }

    /// Whether a component was started, and not seen to end.
    pub(crate) fn runs(&self, place: usize) -> bool {
        self.processes[place].is_some()
    }

    /// How a component's process has ended, if it has.
    pub(crate) fn ended(&mut self, place: usize) -> Result<Option<ExitStatus>, Failure> {
        let Some(process) = &mut self.processes[place] else { return Ok(None) };
        let status = process.try_wait()?;
        if status.is_some() {
            self.processes[place] = None;
        }
        Ok(status)
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

/// Waits until no component has an open root.
pub(crate) fn settled(components: &Components) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let mut open = Vec::new();
        for name in NAMES {
            let (_, status) = request(components.address(name), "GET", "/status", &[], b"")?;
            assert_eq!(status["parked"], Value::Array(Vec::new()), "{name}");
            if status["roots"].as_array().is_none_or(|roots| !roots.is_empty()) {
                open.push(format!("{name}: {}", status["roots"]));
            } else {
                assert_eq!((&status["in_doubt"], &status["undo_backlog"]), (&0.into(), &0.into()), "{name}");
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > END {
            return Err(format!("roots do not end: {}", open.join("; ")).into());
        }
        thread::sleep(Duration::from_millis(50));
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
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let (_, answer) = exchange(to, format!("{head}\r\n").as_bytes(), body)?;
    Ok(answer)
}

/// Sends these bytes, and reads until the connection ends. Answers the head, too.
pub(crate) fn exchange(to: SocketAddr, head: &[u8], body: &[u8]) -> Result<(String, Answer), Failure> {
    let mut socket = TcpStream::connect(to)?;
    socket.set_read_timeout(Some(Duration::from_secs(90)))?;
    socket.write_all(head)?;
    // A server that has refused the head may not read the body.
    let _ = socket.write_all(body);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no answer")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
    let body = serde_json::from_slice(&answer[end + 4..]).unwrap_or(Value::Null);
    Ok((head, (status, body)))
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
