//! The purchase by other systems: Atomikos (XA transactions, in one JVM) and DBOS (durable
//! workflows, in Python).
//!
//! Each is a small program of our own over the system's library, in this crate's folder `peers`;
//! what it needs is fetched by Maven or pip into a folder that is gone at the end. Its clients are
//! threads of its own: the composite and others have HTTP to pay for, and these have not. It stays
//! between its windows, so that connections, plans and compiled code are kept, and its first window
//! is not measured.
//!
//! ```text
//! harness ◀── {"ready": "Java 17.0.15"}
//! harness ──▶ 1500 2000 7               warm-up and window in milliseconds, and a seed
//! harness ◀── {"acknowledged": 1712, "aborted": 0, "failed": {}, "micros": [24510, …]}
//! ```
//!
//! Other lines of what it prints are of no interest. What cannot be fetched or started is "not
//! measured", with the reason.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::driver::{Counts, Outcome};
use crate::error::{Error, IoContext, Result};
use crate::peer::child::run_to_end;
use crate::peer::{fresh_folder, in_path, tail};
use crate::progress;
use crate::workload::composite::ITEMS;
use crate::workload::composite::purchase::PRICE;

/// How long Maven or pip may take.
const FETCH: Duration = Duration::from_secs(600);
/// How long a program may take until it is ready, and after the end of a window.
const GRACE: Duration = Duration::from_secs(120);
/// The first window, in which code is compiled and connections are opened.
const FIRST: Duration = Duration::from_secs(5);
/// Python runs one thread at a time: its clients are spread over so many processes.
const PYTHONS: u32 = 5;

const POM: &str = include_str!("../../../peers/atomikos/pom.xml");
const JAVA: &str = include_str!("../../../peers/atomikos/Purchase.java");
const REQUIREMENTS: &str = include_str!("../../../peers/dbos/requirements.txt");
const PYTHON: &str = include_str!("../../../peers/dbos/purchase.py");

/// A system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// XA transactions.
    Atomikos,
    /// Durable workflows.
    Dbos,
}

impl Peer {
    /// All of them.
    pub(super) const ALL: [Peer; 2] = [Peer::Atomikos, Peer::Dbos];

    /// What it is called.
    pub(super) fn name(self) -> &'static str {
        match self {
            Peer::Atomikos => "Atomikos",
            Peer::Dbos => "DBOS",
        }
    }

    /// What the composite's record calls the ratio to it.
    pub(super) fn ratio(self) -> &'static str {
        match self {
            Peer::Atomikos => "of_atomikos",
            Peer::Dbos => "of_dbos",
        }
    }

    /// What the names of its databases begin with.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Peer::Atomikos => "atomikos_",
            Peer::Dbos => "dbos_",
        }
    }

    /// Fetches what it needs; answers the commands of its processes. The URLs are those of shop,
    /// stock and payment, and of a database of its own.
    async fn fetch(self, folder: &Path, urls: &[String; 4], clients: u32) -> Result<Vec<Command>> {
        match self {
            Peer::Atomikos => Ok(vec![atomikos(folder, urls, clients).await?]),
            Peer::Dbos => dbos(folder, urls, clients).await,
        }
    }
}

/// Where a program is.
fn needed(program: &str, packages: &str) -> Result<PathBuf> {
    in_path(program).ok_or_else(|| {
        Error::Missing(format!("there is no program {program}; on Debian: apt-get install {packages}"))
    })
}

fn place(folder: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::write(folder.join(name), text).doing(format!("writing {name}"))
}

/// A URL as JDBC's driver reads it.
fn jdbc(url: &str) -> String {
    format!("{}?user=postgres", url.replacen("postgresql://postgres@", "jdbc:postgresql://", 1))
}

async fn atomikos(folder: &Path, urls: &[String; 4], clients: u32) -> Result<Command> {
    let packages = "openjdk-17-jdk-headless maven";
    let (java, maven) = (needed("java", packages)?, needed("mvn", packages)?);
    place(folder, "pom.xml", POM)?;
    place(folder, "Purchase.java", JAVA)?;
    let mut fetch = Command::new(maven);
    fetch
        .args(["-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile=classpath"])
        .arg(format!("-Dmaven.repo.local={}", folder.join("repository").display()));
    run_to_end(&mut fetch, folder, FETCH).await?;
    let classpath = std::fs::read_to_string(folder.join("classpath")).doing("reading Maven's classpath")?;
    let mut command = Command::new(java);
    // Java compiles a program of one file by itself.
    command.args(["-Xmx512m", "-cp", classpath.trim(), "Purchase.java"]);
    command.args([clients.to_string(), ITEMS.to_string(), PRICE.to_string()]);
    command.args(urls.iter().take(3).map(|url| jdbc(url)));
    Ok(command)
}

async fn dbos(folder: &Path, urls: &[String; 4], clients: u32) -> Result<Vec<Command>> {
    let python = needed("python3", "python3 python3-venv")?;
    place(folder, "requirements.txt", REQUIREMENTS)?;
    place(folder, "purchase.py", PYTHON)?;
    let venv = folder.join("venv");
    let mut make = Command::new(python);
    make.args(["-m", "venv"]).arg(&venv);
    run_to_end(&mut make, folder, FETCH).await?;
    let mut fetch = Command::new(venv.join("bin/pip"));
    fetch.args(["install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"]);
    run_to_end(&mut fetch, folder, FETCH).await?;
    let processes = PYTHONS.min(clients);
    let command = |process: u32| {
        let mut command = Command::new(venv.join("bin/python"));
        command.arg("purchase.py");
        command.args([process, share(clients, processes, process)].map(|number| number.to_string()));
        command.args([ITEMS.to_string(), PRICE.to_string()]).args(urls);
        command
    };
    Ok((0..processes).map(command).collect())
}

/// How many of the clients one of so many processes has.
fn share(clients: u32, processes: u32, process: u32) -> u32 {
    clients / processes + u32::from(process < clients % processes)
}

/// What a program says first.
#[derive(Debug, Deserialize)]
struct Ready {
    ready: String,
}

/// What a program says of a window.
#[derive(Debug, Deserialize)]
struct Told {
    /// Purchases that were made at any time.
    acknowledged: u64,
    /// Attempts within the window that met another transaction.
    aborted: u64,
    /// Other failures, at any time.
    failed: BTreeMap<String, u64>,
    /// What the purchases of the window took.
    micros: Vec<u64>,
}

impl Told {
    fn add_to(self, counts: &mut Counts) {
        counts.acknowledged += self.acknowledged;
        counts.aborted += self.aborted;
        counts.committed += self.micros.len() as u64;
        for (failure, times) in self.failed {
            *counts.errors.entry(failure).or_default() += times;
        }
        for micros in self.micros {
            // Fails only beyond what the histogram can ever grow to.
            let _ = counts.latency.record(micros);
        }
    }
}

/// A process; killed when dropped.
struct Process {
    child: Child,
    input: ChildStdin,
    lines: mpsc::UnboundedReceiver<String>,
    /// What it writes beside its answers.
    errors: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn start(command: &mut Command, folder: &Path, number: usize) -> Result<Process> {
        let errors = folder.join(format!("errors-{number}"));
        let log = File::create(&errors).doing("creating a program's output file")?;
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .doing(format!("running {name}"))?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (sender, lines) = mpsc::unbounded_channel();
        let (Some(input), Some(output)) = pipes else {
            let _ = child.kill();
            return Err(Error::Server(format!("{name} has no input or output")));
        };
        let process = Process { child, input, lines, errors };
        // It ends with the program's output.
        let read = move || {
            for line in BufReader::new(output).lines().map_while(|line| line.ok()) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name(format!("answers-{number}"))
            .spawn(read)
            .doing("starting a thread that reads answers")?;
        Ok(process)
    }

    /// The next answer.
    async fn answer<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T> {
        let said = async {
            loop {
                match self.lines.recv().await {
                    Some(line) if line.starts_with('{') => return Some(line),
                    Some(_) => {}
                    None => return None,
                }
            }
        };
        let said = timeout(limit, said).await;
        match said {
            Ok(Some(line)) => serde_json::from_str(&line)
                .map_err(|error| Error::Server(format!("its answer makes no sense: {error}"))),
            Ok(None) => Err(Error::Server(format!("it has ended\n{}", tail(&self.errors)))),
            Err(_) => Err(Error::Timeout(format!(
                "it did not answer in {} s\n{}",
                limit.as_secs(),
                tail(&self.errors)
            ))),
        }
    }
}

/// A system's processes with their clients.
pub(super) struct Program {
    name: &'static str,
    processes: Vec<Process>,
    /// What it calls itself.
    pub(super) version: String,
    /// Purchases of the first window, which no outcome counts.
    pub(super) warmed: u64,
    /// Goes after the processes.
    _folder: TempDir,
}

impl Program {
    /// Fetches a system, starts it, and lets it run for a while.
    ///
    /// # Errors
    /// In words, why it cannot be measured here.
    pub(super) async fn start(
        peer: Peer,
        urls: &[String; 4],
        clients: u32,
        directory: Option<&Path>,
    ) -> Result<Program> {
        let folder = fresh_folder(directory)?;
        let spinner = progress::spinner(&format!("{}: fetching and starting it", peer.name()));
        // Its processes have it as their working folder.
        let path = std::path::absolute(folder.path()).doing("finding a folder")?;
        let commands = peer.fetch(&path, urls, clients).await;
        let program = match commands {
            Ok(commands) => Program::of(peer.name(), commands, folder, FIRST).await,
            Err(error) => Err(error),
        };
        spinner.finish_and_clear();
        program
    }

    /// Starts these processes, one after the other: the first one may have tables to make.
    async fn of(
        name: &'static str,
        commands: Vec<Command>,
        folder: TempDir,
        first: Duration,
    ) -> Result<Program> {
        let (mut processes, mut version) = (Vec::new(), String::new());
        for (number, mut command) in commands.into_iter().enumerate() {
            let mut process = Process::start(&mut command, folder.path(), number)?;
            version = process.answer::<Ready>(GRACE).await?.ready;
            processes.push(process);
        }
        let mut program = Program { name, processes, version, warmed: 0, _folder: folder };
        program.warmed = program.window(Duration::ZERO, first, (0, 0)).await?.total().acknowledged;
        Ok(program)
    }

    /// Runs its clients for a window.
    ///
    /// # Errors
    /// It does not answer, or has made no purchase.
    pub(super) async fn window(
        &mut self,
        warmup: Duration,
        measured: Duration,
        (seed, run): (u64, u64),
    ) -> Result<Outcome> {
        // Small enough for a number of any language, and other than that of any other run.
        let seed = (seed % 1_000_000) * 1_000_000 + run % 1_000_000;
        let line = format!("{} {} {seed}\n", warmup.as_millis(), measured.as_millis());
        for process in &mut self.processes {
            let written = process.input.write_all(line.as_bytes()).and_then(|()| process.input.flush());
            written.doing(format!("telling {} its window", self.name))?;
        }
        let mut counts = Counts::new();
        for process in &mut self.processes {
            process.answer::<Told>(warmup + measured + GRACE).await?.add_to(&mut counts);
        }
        if counts.committed == 0 {
            return Err(Error::Server(format!("{}: nothing was bought: {:?}", self.name, counts.errors)));
        }
        let (seconds, kinds) = (measured.as_secs_f64(), vec![self.name.to_owned()]);
        Ok(Outcome { seconds, kinds, counts: vec![counts], first_error: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each window in the same words.
    fn program(answer: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!(
            "echo some words; echo '{{\"ready\":\"sh\"}}'; while read warmup measured seed; do echo '{answer}'; done"
        ));
        command
    }

    async fn start(answers: &[&str]) -> Result<Program> {
        let commands = answers.iter().map(|answer| program(answer)).collect();
        Program::of("sh", commands, fresh_folder(None)?, Duration::from_millis(1)).await
    }

    #[tokio::test]
    async fn what_all_processes_say_of_a_window_is_its_outcome() {
        let one = r#"{"acknowledged":5,"aborted":1,"failed":{"x":2},"micros":[1000,3000]}"#;
        let other = r#"{"acknowledged":1,"aborted":0,"failed":{},"micros":[2000]}"#;
        let mut program = start(&[one, other]).await.unwrap();
        assert_eq!((program.version.as_str(), program.warmed), ("sh", 6));
        let second = Duration::from_secs(1);
        let outcome = program.window(Duration::ZERO, second, (1, 7)).await.unwrap();
        let total = outcome.total();
        assert_eq!((total.committed, total.acknowledged, total.aborted), (3, 6, 1));
        assert_eq!(total.errors, BTreeMap::from([("x".to_owned(), 2)]));
        assert!((outcome.committed_per_s() - 3.0).abs() < 1e-9);
        assert!((total.latency.mean() - 2000.0).abs() < 10.0, "{}", total.latency.mean());
    }

    #[tokio::test]
    async fn a_program_that_ends_or_does_nothing_is_told_so() {
        let nothing = r#"{"acknowledged":0,"aborted":0,"failed":{"Refused":9},"micros":[]}"#;
        let why = start(&[nothing]).await.err().unwrap().to_string();
        assert!(why.contains("nothing was bought") && why.contains("Refused"), "{why}");
        let mut ends = Command::new("sh");
        ends.arg("-c").arg("echo 'there is no such library' >&2; exit 1");
        let folder = fresh_folder(None).unwrap();
        let why = Program::of("sh", vec![ends], folder, FIRST).await.err().unwrap().to_string();
        assert!(why.contains("there is no such library"), "{why}");
    }

    #[test]
    fn each_client_is_in_one_process() {
        let shares = |clients: u32| {
            let processes = PYTHONS.min(clients);
            (0..processes).map(|process| share(clients, processes, process)).collect::<Vec<u32>>()
        };
        assert_eq!(shares(25), [5; 5]);
        assert_eq!(shares(12), [3, 3, 2, 2, 2]);
        assert_eq!(shares(2), [1, 1]);
    }

    #[test]
    fn the_java_driver_is_told_the_user_behind_the_database() {
        let url = "postgresql://postgres@127.0.0.1:5432/atomikos_shop";
        assert_eq!(jdbc(url), "jdbc:postgresql://127.0.0.1:5432/atomikos_shop?user=postgres");
    }

    /// All systems execute the same statements, with parameters as their drivers write them.
    #[test]
    fn the_programs_have_the_statements_of_the_purchase() {
        use crate::workload::composite::purchase::{CHARGE, ENTER, TAKE};
        for (statement, program, mark) in [ENTER, TAKE, CHARGE]
            .into_iter()
            .flat_map(|statement| [(statement, JAVA, "?"), (statement, PYTHON, "%s")])
        {
            let theirs =
                ["$1", "$2", "$3"].iter().fold(statement.to_owned(), |text, name| text.replace(name, mark));
            assert!(program.contains(&theirs), "{theirs}");
        }
    }
}
