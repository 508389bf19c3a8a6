//! `cargo xtask clients`: PostgreSQL drivers as their registries have them, against this server.
//!
//! Each folder of `xtask/clients/` is a client: a program, what its package manager needs, and
//! `client.toml`:
//!
//! ```toml
//! needs = ["node", "npm"]                # without these on the machine it is skipped, and that is said
//! install = [["npm", "install"]]         # commands, run in a copy of the folder
//! run = ["node", "pipeline.mjs"]         # fails by its exit code, or by not ending in time
//! seconds = 300                          # how long it may take, if that is long
//! first = true                           # it takes long, so it begins before the others
//! ```
//!
//! The copy is `target/clients/NAME`, and stays, so that a second run installs nothing. The program
//! gets a server of its own on an empty folder, and finds it as libpq's clients do: `PGHOST`,
//! `PGPORT`, `PGUSER`, `PGDATABASE`; `COGNATE` is the program, for whoever starts more of them. A
//! driver that hangs is ended after `seconds`, or after [`PATIENCE`].
//!
//! Of several clients two go on at the same time, since most of one is waiting: for a registry, or
//! for a timeout that it tries. What such a client says goes into `target/clients/NAME.log`, and is
//! printed whole when it ends.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::server::{self, Server};
use super::step;

/// A program may take so long; what is measured here is whether it ends at all.
const PATIENCE: Duration = Duration::from_secs(120);
/// A package manager, or a compiler, may take so long.
const INSTALL_PATIENCE: Duration = Duration::from_secs(600);
/// How often a program is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(20);
/// So many clients go on at the same time.
const BESIDE: usize = 2;

/// One client.
struct Client {
    name: String,
    folder: PathBuf,
    needs: Vec<String>,
    install: Vec<Vec<String>>,
    run: Vec<String>,
    patience: Duration,
    is_first: bool,
}

/// Runs the clients named, or all.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let (mut program, mut names) = (None, Vec::new());
    let mut arguments = arguments.iter();
    while let Some(&argument) = arguments.next() {
        match argument {
            "--server" => program = Some(arguments.next().map(PathBuf::from).ok_or("--server needs a path")?),
            name => names.push(name),
        }
    }
    let clients = clients(root, &names)?;
    let program = program.map_or_else(|| server::build(root), Ok)?;
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(client) = clients.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !client.report(root, &program, clients.len() > 1) {
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(client.name.clone());
            }
        }
    };
    std::thread::scope(|scope| (0..BESIDE).for_each(|_| drop(scope.spawn(work))));
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failures.is_empty() { Ok(()) } else { Err(format!("clients failed: {}", failures.join(", "))) }
}

/// The clients of these names, or all, in the order of their names, but for those that begin first.
fn clients(root: &Path, names: &[&str]) -> Result<Vec<Client>, String> {
    let folder = root.join("xtask/clients");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.retain(|folder| folder.join("client.toml").exists());
    folders.sort();
    let mut all: Vec<Client> = folders.into_iter().map(Client::read).collect::<Result<_, _>>()?;
    all.sort_by_key(|client| !client.is_first);
    for name in names {
        if !all.iter().any(|client| client.name == **name) {
            let known: Vec<&str> = all.iter().map(|client| client.name.as_str()).collect();
            return Err(format!("no client is called {name}; there are {}", known.join(", ")));
        }
    }
    Ok(all.into_iter().filter(|client| names.is_empty() || names.contains(&client.name.as_str())).collect())
}

impl Client {
    fn read(folder: PathBuf) -> Result<Client, String> {
        let file = folder.join("client.toml");
        let wrong = |what: &str| format!("{}: {what}", file.display());
        let text = std::fs::read_to_string(&file).map_err(|error| wrong(&error.to_string()))?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| wrong(&error.to_string()))?;
        let words = |value: &toml::Value| -> Option<Vec<String>> {
            value.as_array()?.iter().map(|word| Some(word.as_str()?.to_owned())).collect()
        };
        let needs = table.get("needs").and_then(words).ok_or_else(|| wrong("needs: no list of words"))?;
        let run = table.get("run").and_then(words).ok_or_else(|| wrong("run: no list of words"))?;
        let install = table.get("install").and_then(|value| value.as_array()?.iter().map(words).collect());
        let install = install.ok_or_else(|| wrong("install: no list of commands"))?;
        let seconds = table.get("seconds").and_then(toml::Value::as_integer);
        let patience = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let patience = patience.map_or(PATIENCE, Duration::from_secs);
        let is_first = table.get("first").and_then(toml::Value::as_bool).unwrap_or(false);
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Client { name, folder, needs, install, run, patience, is_first })
    }

    /// Checks it and says how that went, and before that, if others go on meanwhile, all that it
    /// said. Whether it has not failed.
    fn report(&self, root: &Path, program: &Path, is_beside: bool) -> bool {
        let begin = Instant::now();
        let file = root.join("target/clients").join(format!("{}.log", self.name));
        let checked = match is_beside {
            true => log_to(&file).and_then(|log| self.check(root, program, Some(&log))),
            false => self.check(root, program, None),
        };
        let said = if is_beside { std::fs::read(&file).unwrap_or_default() } else { Vec::new() };
        let verdict = match &checked {
            Ok(None) => format!("{:.1} s", begin.elapsed().as_secs_f64()),
            Ok(Some(missing)) => format!("SKIPPED, {missing} is not on this machine"),
            Err(what) => format!("FAILED, {what}"),
        };
        let mut out = std::io::stdout().lock();
        // Who does not want to read it any more does not keep the others from ending.
        let _ = out.write_all(&said).and_then(|()| writeln!(out, "== {}: {verdict}", self.name));
        checked.is_ok()
    }

    /// Installs and runs it. `Some`: what it needs and is missing.
    fn check(&self, root: &Path, program: &Path, log: Option<&File>) -> Result<Option<&str>, String> {
        if let Some(missing) = self.needs.iter().find(|needed| !is_there(needed)) {
            return Ok(Some(missing));
        }
        let work = root.join("target/clients").join(&self.name);
        copy(&self.folder, &work)?;
        for command in &self.install {
            run_in(&work, command, &[], INSTALL_PATIENCE, log)?;
        }
        let server = Server::start(program, &format!("clients-{}", self.name))?;
        let program =
            std::path::absolute(program).map_err(|error| format!("{}: {error}", program.display()))?;
        let program = program.to_string_lossy();
        let environment = [
            ("PGHOST", "127.0.0.1"),
            ("PGPORT", server.port.as_str()),
            ("PGUSER", "cognate"),
            ("PGDATABASE", "cognate"),
            ("PGSSLMODE", "disable"),
            ("COGNATE", &*program),
        ];
        run_in(&work, &self.run, &environment, self.patience, log)?;
        Ok(None)
    }
}

/// An empty file, in a folder that is made if it is missing.
fn log_to(file: &Path) -> Result<File, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    file.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
    File::create(file).map_err(failed)
}

/// Whether a program of this name can be started.
fn is_there(program: &str) -> bool {
    // Go has a word for it where others have a flag.
    ["--version", "version"].iter().any(|question| {
        let mut asked = Command::new(program);
        asked.arg(question).stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        asked.status().is_ok_and(|status| status.success())
    })
}

/// Copies the files of a folder, over those that are there.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("copying {}: {error}", from.display());
    std::fs::create_dir_all(to).map_err(failed)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        std::fs::copy(entry.path(), to.join(entry.file_name())).map_err(failed)?;
    }
    Ok(())
}

/// Runs a command to its end, or ends it. What it says goes into the log, if there is one.
fn run_in(
    folder: &Path,
    command: &[String],
    environment: &[(&str, &str)],
    patience: Duration,
    log: Option<&File>,
) -> Result<(), String> {
    let line = command.join(" ");
    let (program, arguments) = command.split_first().ok_or("an empty command")?;
    // A program with a folder in its name is the client's own.
    let program = if program.contains('/') { folder.join(program) } else { PathBuf::from(program) };
    let failed = |error: std::io::Error| format!("`{line}` does not start: {error}");
    let mut started = Command::new(program);
    step::forget_package(&mut started);
    started.args(arguments).envs(environment.iter().copied());
    started.current_dir(folder).stdin(Stdio::null());
    if let Some(log) = log {
        started.stdout(log.try_clone().map_err(failed)?).stderr(log.try_clone().map_err(failed)?);
    }
    let mut child = started.spawn().map_err(failed)?;
    match wait(&mut child, patience).map_err(|error| format!("`{line}`: {error}"))? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("`{line}`: {status}")),
        None => Err(format!("`{line}` has not ended after {patience:?}")),
    }
}

/// Waits for its end; `None` if it had to be ended.
fn wait(child: &mut Child, patience: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    while begin.elapsed() < patience {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}
