//! Runs the files: each statement on both servers, in step.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Plan;
use super::compare::{Class, compare};
use super::follow::{Doubts, Seen};
use super::script::{End, Script, Step};
use super::server::{Kind, Server, copy_folder, make_folder};
use super::wire::{Client, Outcome};

/// What became of one file.
#[derive(Default)]
pub(crate) struct FileResult {
    pub(crate) name: String,
    pub(crate) statements: usize,
    pub(crate) equal: usize,
    /// Meta commands that were left out.
    pub(crate) skipped: usize,
    pub(crate) differences: Vec<Difference>,
}

pub(crate) struct Difference {
    pub(crate) line: usize,
    pub(crate) sql: String,
    pub(crate) class: Class,
    pub(crate) told: String,
    /// The number of the earlier difference of the same file that it follows from.
    pub(crate) cause: Option<usize>,
}

/// Runs all files of the plan, each on fresh copies of what `test_setup` made.
pub(crate) fn all(plan: &Plan, scratch: &Path) -> Result<Vec<FileResult>, String> {
    std::fs::create_dir_all(scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let prepared = [scratch.join("postgres"), scratch.join("cognate")];
    let kinds = [&plan.postgres, &plan.cognate];
    for (kind, folder) in kinds.iter().zip(&prepared) {
        make_folder(kind, folder)?;
    }
    let mut results = vec![Pair::start(plan, prepared.clone())?.run("test_setup")?];
    for name in &plan.names {
        let folders = [scratch.join("postgres-now"), scratch.join("cognate-now")];
        for ((kind, from), to) in kinds.iter().zip(&prepared).zip(&folders) {
            if !matches!(kind, Kind::Address(_)) {
                drop(std::fs::remove_dir_all(to));
                copy_folder(from, to)?;
            }
        }
        let result = Pair::start(plan, folders)?.run(name)?;
        eprintln!("{name}: {} of {} equal", result.equal, result.statements);
        results.push(result);
    }
    Ok(results)
}

/// Both servers with a connection each.
struct Pair<'a> {
    plan: &'a Plan,
    folders: [PathBuf; 2],
    servers: [Server; 2],
    clients: [Client; 2],
    doubts: Doubts,
    result: FileResult,
}

fn connect(server: &Server, user: &str, timeout: Duration) -> Result<Client, String> {
    Client::connect(&server.address, user, timeout).map_err(|error| format!("connecting: {error}"))
}

impl<'a> Pair<'a> {
    fn start(plan: &'a Plan, folders: [PathBuf; 2]) -> Result<Pair<'a>, String> {
        let [left, right] = &folders;
        let servers = [Server::start(&plan.postgres, left)?, Server::start(&plan.cognate, right)?];
        let [left, right] = &servers;
        let clients = [connect(left, "postgres", plan.timeout)?, connect(right, "postgres", plan.timeout)?];
        Ok(Pair { plan, folders, servers, clients, doubts: Doubts::default(), result: FileResult::default() })
    }

    fn run(mut self, name: &str) -> Result<FileResult, String> {
        name.clone_into(&mut self.result.name);
        let path = self.plan.folder.join("sql").join(format!("{name}.sql"));
        let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut script = Script::new(&String::from_utf8_lossy(&bytes));
        while let Some(step) = script.next_step() {
            match step {
                Step::Statement { line, sql, end } => {
                    let wanted = self.statement(&mut script, line, &sql)?;
                    self.end(&mut script, line, &end, &wanted)?;
                }
                Step::Meta { name, arguments } => self.meta(&mut script, &name, &arguments)?,
            }
        }
        Ok(self.result)
    }

    /// Sends a statement to both; PostgreSQL's answer is what the script goes on with.
    fn statement(&mut self, script: &mut Script, line: usize, sql: &str) -> Result<Outcome, String> {
        let (sql, file) = self.data_from_file(sql)?;
        let data = file.clone().unwrap_or_else(|| script.see_data());
        let [postgres, cognate] = &mut self.clients;
        let before = (postgres.status, cognate.status);
        let wanted = postgres.query(&sql, Some(&data));
        let fed = postgres.copied_in;
        if fed && file.is_none() {
            script.take_data();
        }
        let got = cognate.query(&sql, fed.then_some(data.as_str()));
        script.standard_strings = postgres.standard_strings;
        let after = (postgres.status, cognate.status);
        let (class, told) = compare(&sql, &wanted, &got);
        let seen = Seen {
            sql: &sql,
            equal: class == Class::Equal,
            refused: (is_refused(&wanted), is_refused(&got)),
            before,
            after,
            number: self.result.differences.len(),
        };
        let cause = self.doubts.note(&seen);
        self.result.statements += 1;
        if class == Class::Equal {
            self.result.equal += 1;
        } else {
            self.result.differences.push(Difference { line, sql, class, told, cause });
        }
        self.revive(&wanted, &got)?;
        Ok(wanted)
    }

    /// COPY from a file of the folder becomes COPY FROM STDIN with its content: not every server
    /// may read files.
    fn data_from_file(&self, sql: &str) -> Result<(String, Option<String>), String> {
        let folder = format!("'{}/data/", self.plan.folder.display());
        let is_copy = sql.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("copy"));
        let Some((before, rest)) = sql.split_once(&folder).filter(|_| is_copy) else {
            return Ok((sql.to_owned(), None));
        };
        let (name, after) = rest.split_once('\'').unwrap_or((rest, ""));
        let path = self.plan.folder.join("data").join(name);
        let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok((format!("{before}STDIN{after}"), Some(String::from_utf8_lossy(&bytes).into_owned())))
    }

    /// What hangs or has lost its connection gets a new one, and a server that has ended is started
    /// again. A block that only Cognate is in is ended.
    fn revive(&mut self, wanted: &Outcome, got: &Outcome) -> Result<(), String> {
        let lost =
            |outcome: &Outcome| !matches!(outcome, Outcome::Answers(_) | Outcome::Hang { cancelled: true });
        for (index, outcome) in [wanted, got].into_iter().enumerate() {
            let kind = if index == 0 { &self.plan.postgres } else { &self.plan.cognate };
            let (Some(server), Some(client)) = (self.servers.get_mut(index), self.clients.get_mut(index))
            else {
                continue;
            };
            if !lost(outcome) {
                continue;
            }
            // A server that has ended, or that lets nobody in any more, is started again.
            let client_again = connect(server, "postgres", self.plan.timeout);
            *client = match (client_again, self.folders.get(index)) {
                (Ok(client), _) => client,
                (Err(_), Some(folder)) if server.kill() => {
                    *server = Server::start(kind, folder)?;
                    connect(server, "postgres", self.plan.timeout)?
                }
                (Err(error), _) => return Err(error),
            };
        }
        let [postgres, cognate] = &mut self.clients;
        if postgres.status == b'I' && cognate.status != b'I' {
            cognate.query("ROLLBACK", None);
        }
        Ok(())
    }

    fn end(&mut self, script: &mut Script, line: usize, end: &End, wanted: &Outcome) -> Result<(), String> {
        let Outcome::Answers(answers) = wanted else { return Ok(()) };
        let Some(answer) = answers.last() else { return Ok(()) };
        match end {
            End::Plain => {}
            End::Set(prefix) => {
                let first = answer.rows.first().into_iter().flatten();
                for (column, value) in answer.columns.iter().zip(first) {
                    let name = format!("{prefix}{}", column.name);
                    script.variables.insert(name, value.clone().unwrap_or_default());
                }
            }
            End::Execute => {
                for sql in answer.rows.clone().into_iter().flatten().flatten() {
                    self.statement(script, line, &sql)?;
                }
            }
        }
        Ok(())
    }

    fn meta(&mut self, script: &mut Script, name: &str, arguments: &str) -> Result<(), String> {
        match name {
            "getenv" => {
                let mut words = arguments.split_whitespace();
                let (variable, of) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                let folder = self.plan.folder.display().to_string();
                let value = match of {
                    "PG_ABS_SRCDIR" => folder,
                    "PG_ABS_BUILDDIR" => std::env::temp_dir().display().to_string(),
                    "PG_LIBDIR" => "/nonexistent".to_owned(),
                    "PG_DLSUFFIX" => ".so".to_owned(),
                    _ => return Ok(()),
                };
                script.variables.insert(variable.to_owned(), value);
            }
            "c" | "connect" => {
                let user =
                    arguments.split_whitespace().nth(1).filter(|user| *user != "-").unwrap_or("postgres");
                let [postgres, cognate] = &self.servers;
                // A user that one of them does not know is a difference of the statements that
                // follow.
                if let Ok(client) = connect(postgres, user, self.plan.timeout) {
                    let other = connect(cognate, user, self.plan.timeout);
                    let other = other.or_else(|_| connect(cognate, "postgres", self.plan.timeout))?;
                    self.clients = [client, other];
                }
            }
            "copy" if arguments.contains("stdin") || arguments.contains("stdout") => {
                let line = script.line();
                self.statement(script, line, &format!("COPY {arguments}"))?;
            }
            _ => self.result.skipped += 1,
        }
        Ok(())
    }
}

fn is_refused(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Answers(answers) => answers.iter().any(|answer| answer.error.is_some()),
        _ => true,
    }
}
