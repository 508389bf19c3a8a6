//! A small script language for dialogues between sessions, and golden traces in it.
//!
//! A line is a session's name and a command; the trace repeats it and says below, indented, what
//! happened, to this session and to those that had been waiting.
//!
//! ```text
//! A begin [rc|si|ser] [ro]        A get TREE KEY           A lock TREE KEY ks|s|nx|x [nowait|skip]
//! A commit | A rollback           A put TREE KEY VALUE     A tree TREE read|write|share|exclusive|... [nowait|skip]
//! A refresh                       A delete TREE KEY        A check TREE KEY        may it be overwritten?
//! A save NAME | A back NAME       A scan TREE              A latest TREE KEY
//! A add TREE KEY NUMBER
//! A cancel                        give up waiting          locks                   print all locks
//! ```
//!
//! Run with `COGNATE_REWRITE=1` to write the traces anew; then read the difference.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use cognate_engine::{
    Access, Database, Edge, Error, Isolation, LockMode, LockOutcome, Savepoint, Transaction, TransactionId,
    TreeMode, WaitPolicy,
};

use cognate_env::sim::SimDisk;

use super::support::{all, in_simulation, value};

type LockResult = Option<Result<LockOutcome, Error>>;
type Waiting = Pin<Box<dyn Future<Output = (Transaction, LockResult)>>>;

#[expect(clippy::large_enum_variant, reason = "there are few")]
enum Session {
    Running(Transaction),
    /// Waits for a lock; the cell says to give up.
    Waiting(Waiting, Rc<Cell<bool>>),
}

pub(crate) struct Stage {
    database: Database,
    /// Added to the numbers of trees, so that one database is many empty ones.
    world: u32,
    sessions: BTreeMap<String, Session>,
    names: BTreeMap<TransactionId, String>,
    savepoints: BTreeMap<(String, String), Savepoint>,
}

enum Request {
    Row(LockMode),
    Tree(TreeMode),
}

impl Stage {
    pub(crate) fn new() -> Stage {
        let database = in_simulation(&SimDisk::new(0));
        let (sessions, names, savepoints) = Default::default();
        Stage { database, world: 0, sessions, names, savepoints }
    }

    /// Ends all sessions and goes on where no tree has anything in it.
    pub(crate) fn new_world(&mut self) {
        self.sessions.clear();
        self.savepoints.clear();
        self.world += 10;
    }

    /// Whether the session waits for a lock.
    pub(crate) fn waits(&self, name: &str) -> bool {
        matches!(self.sessions.get(name), Some(Session::Waiting(..)))
    }

    /// Does one line and answers what happened, one line each.
    pub(crate) fn step(&mut self, line: &str) -> Vec<String> {
        let mut answers = Vec::new();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["locks"] => answers.extend(self.locks()),
            [name, "begin", ref options @ ..] => self.begin(name, options),
            [name, "cancel"] => {
                let Some(Session::Waiting(_, give_up)) = self.sessions.get(name) else {
                    panic!("{name} does not wait")
                };
                give_up.set(true);
            }
            [name, ref command @ ..] => {
                let Some(Session::Running(t)) = self.sessions.remove(name) else {
                    panic!("{name} has no transaction that runs: {line}")
                };
                answers.extend(self.command(name, t, command));
            }
            [] => {}
        }
        answers.extend(self.poll());
        answers
    }

    fn begin(&mut self, name: &str, options: &[&str]) {
        let level = match options.first() {
            Some(&"rc") => Isolation::ReadCommitted,
            Some(&"ser") => Isolation::Serializable,
            _ => Isolation::Snapshot,
        };
        let access = if options.contains(&"ro") { Access::ReadOnly } else { Access::ReadWrite };
        let t = self.database.begin(level, access);
        self.names.insert(t.id(), name.into());
        self.sessions.insert(name.into(), Session::Running(t));
    }

    fn command(&mut self, name: &str, mut t: Transaction, command: &[&str]) -> Vec<String> {
        let tree = || self.world + command[1].parse::<u32>().expect("a tree's number");
        let key = || command[2].as_bytes();
        let text = |bytes: Option<cognate_engine::Value>| {
            bytes.map_or("nothing".into(), |b| String::from_utf8_lossy(&b).into_owned())
        };
        let done = |result: Result<(), Error>| result.err().map(|e| self.error(&e));
        let answer = match command[0] {
            "get" => Some(text(t.get(tree(), key()).unwrap())),
            "latest" => Some(text(t.get_latest(tree(), key()).unwrap().value)),
            "scan" => Some(Some(all(&t, tree())).filter(|rows| !rows.is_empty()).unwrap_or("empty".into())),
            "add" => {
                // From the newest version, as an UPDATE under read committed does after its wait;
                // else from the snapshot.
                let before = match (t.own(tree(), key()).unwrap(), t.isolation()) {
                    (Some(own), _) => own,
                    (None, Isolation::ReadCommitted) => t.get_latest(tree(), key()).unwrap().value,
                    (None, _) => t.get(tree(), key()).unwrap(),
                };
                let sum = text(before).parse::<i64>().unwrap_or(0) + command[3].parse::<i64>().unwrap();
                done(t.put(tree(), key(), value(&sum.to_string())))
            }
            "put" => done(t.put(tree(), key(), value(command[3]))),
            "delete" => done(t.delete(tree(), key())),
            "check" => Some(done(t.check_unchanged(tree(), key())).unwrap_or("unchanged".into())),
            "refresh" => {
                t.refresh_snapshot();
                None
            }
            "save" => {
                self.savepoints.insert((name.into(), command[1].into()), t.savepoint());
                None
            }
            "back" => {
                t.rollback_to(self.savepoints[&(name.into(), command[1].into())]);
                None
            }
            "commit" => match t.commit() {
                Ok(commit) => {
                    commit.durable.wait().unwrap();
                    return Vec::new();
                }
                Err(error) => return vec![self.error(&error)],
            },
            "rollback" => {
                t.rollback();
                return Vec::new();
            }
            "lock" | "tree" => {
                self.lock(name, t, command);
                return self.poll_one(name, true);
            }
            other => panic!("what is {other}?"),
        };
        self.sessions.insert(name.into(), Session::Running(t));
        answer.into_iter().collect()
    }

    fn lock(&mut self, name: &str, mut t: Transaction, command: &[&str]) {
        let tree = self.world + command[1].parse::<u32>().expect("a tree's number");
        let (key, request, rest) = match command[0] {
            "lock" => {
                let mode = match command[3] {
                    "x" => LockMode::Exclusive,
                    "nx" => LockMode::NoKeyExclusive,
                    "s" => LockMode::Shared,
                    _ => LockMode::KeyShared,
                };
                (command[2].as_bytes().to_vec(), Request::Row(mode), &command[4..])
            }
            _ => {
                let mode = match command[2] {
                    "read" => TreeMode::Read,
                    "row-share" => TreeMode::RowShare,
                    "write" => TreeMode::Write,
                    "share-update" => TreeMode::ShareUpdateExclusive,
                    "share" => TreeMode::Share,
                    "share-row" => TreeMode::ShareRowExclusive,
                    "readers-only" => TreeMode::ReadersOnly,
                    _ => TreeMode::Exclusive,
                };
                (Vec::new(), Request::Tree(mode), &command[3..])
            }
        };
        let policy = match rest {
            ["nowait"] => WaitPolicy::NoWait,
            ["skip"] => WaitPolicy::SkipLocked,
            _ => WaitPolicy::Block,
        };
        let give_up = Rc::new(Cell::new(false));
        let flag = Rc::clone(&give_up);
        let waiting = Box::pin(async move {
            let result = {
                let mut asked = Box::pin(async {
                    match request {
                        Request::Row(mode) => t.lock(tree, &key, mode, policy).await,
                        Request::Tree(mode) => t.lock_tree(tree, mode, policy).await,
                    }
                });
                std::future::poll_fn(|context| match flag.get() {
                    true => Poll::Ready(None),
                    false => asked.as_mut().poll(context).map(Some),
                })
                .await
            };
            (t, result)
        });
        self.sessions.insert(name.into(), Session::Waiting(waiting, give_up));
    }

    /// Lets everybody who waits look again, until nothing changes any more.
    fn poll(&mut self) -> Vec<String> {
        let mut answers = Vec::new();
        loop {
            let names: Vec<String> = self.sessions.keys().cloned().collect();
            let new: Vec<String> = names.iter().flat_map(|name| self.poll_one(name, false)).collect();
            if new.is_empty() {
                return answers;
            }
            answers.extend(new);
        }
    }

    fn poll_one(&mut self, name: &str, first: bool) -> Vec<String> {
        let Some(Session::Waiting(waiting, _)) = self.sessions.get_mut(name) else { return Vec::new() };
        let Poll::Ready((t, result)) = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            return if first { vec!["waits".into()] } else { Vec::new() };
        };
        self.sessions.insert(name.into(), Session::Running(t));
        let answer = match result {
            None => "gave up".into(),
            Some(Ok(LockOutcome::Granted { .. })) => "granted".into(),
            Some(Ok(LockOutcome::Skipped)) => "skipped".into(),
            Some(Err(error)) => self.error(&error),
        };
        vec![if first { answer } else { format!("{name} {answer}") }]
    }

    fn name(&self, id: TransactionId) -> &str {
        self.names.get(&id).map_or("?", |name| name)
    }

    fn error(&self, error: &Error) -> String {
        match error {
            Error::Deadlock { cycle, detail } => {
                let names: Vec<&str> = cycle.iter().map(|id| self.name(*id)).collect();
                assert_eq!(detail.lines().count(), cycle.len());
                format!("deadlock: {}", names.join(" waits for "))
            }
            Error::SerializationFailure { .. } => "changed by another".into(),
            Error::DependencyCycle { cycle } => {
                let edge =
                    |edge: &Edge| format!("-{}-> {}", edge.dependency.short_name(), self.name(edge.to));
                let edges: Vec<_> = cycle.edges.iter().map(edge).collect();
                format!("cycle: {} {}", self.name(cycle.victim), edges.join(" "))
            }
            Error::LockNotAvailable => "not available".into(),
            Error::ReadOnly => "read-only".into(),
            other => panic!("{other}"),
        }
    }

    fn locks(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .database
            .locks()
            .into_iter()
            .map(|lock| {
                let key = lock.key.map_or("*".into(), |k| String::from_utf8_lossy(&k).into_owned());
                let verb = if lock.granted { "holds" } else { "waits for" };
                let name = self.name(lock.transaction);
                format!("{name} {verb} {} on {}/{key}", lock.modes.join("+"), lock.tree - self.world)
            })
            .collect();
        lines.sort();
        lines
    }
}

/// Runs a script and answers its trace.
fn trace(script: &str) -> String {
    let mut stage = Stage::new();
    let mut trace = String::new();
    for line in script.lines() {
        if line.starts_with("  ") {
            continue;
        }
        writeln!(trace, "{line}").unwrap();
        if line.starts_with('#') || line.is_empty() {
            if line.starts_with("##") {
                stage.new_world();
            }
            continue;
        }
        for answer in stage.step(line) {
            writeln!(trace, "  {answer}").unwrap();
        }
    }
    trace
}

#[test]
fn the_traces_are_as_written() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let script = std::fs::read_to_string(&file).unwrap();
        let got = trace(&script);
        if std::env::var_os("COGNATE_REWRITE").is_some() {
            std::fs::write(&file, got).unwrap();
        } else {
            assert_eq!(got, script, "{}", file.display());
        }
    }
}
