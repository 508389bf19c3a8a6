//! One session's transactions, recorded statement by statement.
//!
//! A transaction begins with its first operation. If a statement fails, the transaction is rolled
//! back at once and recorded as aborted, with the reason that SQLSTATE and message tell; what
//! follows until its end is passed over. With a savepoint, a constraint's refusal takes it back
//! only to there, and is recorded as what it told of other rows.
//!
//! A server may move a transaction's snapshot forward while a statement waits for a row or meets a
//! newer one. So after each statement that could, the snapshot is asked for again, and what the
//! statement read is recorded with that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::connection::{Connection, Failure};
use super::constraint;
use super::operation::{Operation, is_expected};
use crate::checker::history::{Abort, Event, Outcome, Transaction, stamp, standing};
use crate::error::{Error, Result};
use crate::workload::bookstore::Isolation;

/// What all sessions of a run share: the numbers of transactions, and the order of what was asked
/// and answered.
#[derive(Debug, Default)]
pub struct Counters {
    ids: AtomicU64,
    ticks: AtomicU64,
}

impl Counters {
    /// A number that no other transaction has.
    pub fn id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// One statement, or the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// How the next transaction begins, if not plainly.
    Begin(Mode),
    /// A statement of the transaction; it begins with its first.
    Run(Operation),
    /// SAVEPOINT; there is one at a time.
    Savepoint,
    /// ROLLBACK TO SAVEPOINT.
    RollbackTo,
    /// COMMIT.
    Commit,
    /// ROLLBACK.
    Rollback,
}

/// How a transaction begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// With its isolation level.
    #[default]
    Plain,
    /// READ ONLY.
    ReadOnly,
    /// READ ONLY, DEFERRABLE.
    Deferrable,
    /// With the age of the session's last aborted transaction: it locks what it reads, and reads
    /// what is newest.
    Aged,
}

/// The transaction that is open.
struct Open {
    id: u64,
    events: Vec<Event>,
    /// When its first statement was sent.
    began: u64,
    snapshot: u64,
    /// The snapshot at which it began, and when that was known.
    first: u64,
    placed: u64,
    count: u64,
    /// Its statements read what is newest when they are answered.
    reads_latest: bool,
    /// How many events there were at the savepoint.
    savepoint: Option<usize>,
    /// What its statements did.
    kinds: Vec<&'static str>,
    /// It was told that it failed, and is recorded as such.
    failed: bool,
}

/// One session and what its transactions did.
pub struct Recorder<C> {
    connection: C,
    isolation: Isolation,
    counters: Arc<Counters>,
    /// Statements read what is newest when they are answered, as under two-phase locking.
    reads_latest: bool,
    open: Option<Open>,
    mode: Mode,
    /// What the statements of committed transactions did, counted.
    pub done: BTreeMap<&'static str, usize>,
    /// Transactions that have ended.
    pub ended: Vec<Transaction>,
    /// What those that failed were told, by their numbers.
    pub failures: Vec<(u64, Failure)>,
}

impl<C: Connection> Recorder<C> {
    /// A session whose transactions all have this isolation level.
    pub fn new(connection: C, isolation: Isolation, counters: Arc<Counters>) -> Recorder<C> {
        let (ended, failures) = (Vec::new(), Vec::new());
        let (done, mode) = (BTreeMap::new(), Mode::Plain);
        Recorder {
            connection,
            isolation,
            counters,
            reads_latest: false,
            open: None,
            mode,
            done,
            ended,
            failures,
        }
    }

    /// Statements read what is newest when they are answered, not what a snapshot holds.
    pub fn reads_latest(self) -> Recorder<C> {
        Recorder { reads_latest: true, ..self }
    }

    /// Whether a transaction is open, failed or not.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the open transaction has failed.
    pub fn has_failed(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.failed)
    }

    /// Runs one step.
    ///
    /// # Errors
    /// A failure that no transaction of this load should meet.
    pub async fn step(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Begin(mode) => {
                self.mode = mode;
                Ok(())
            }
            Step::Run(operation) => self.operate(operation).await,
            Step::Savepoint => self.savepoint().await,
            Step::RollbackTo => self.rollback_to().await,
            Step::Commit => self.commit().await,
            Step::Rollback => self.rollback().await,
        }
    }

    async fn begin(&mut self) -> Result<()> {
        let mode = std::mem::take(&mut self.mode);
        let how = match mode {
            Mode::Plain | Mode::Aged => "",
            Mode::ReadOnly => " READ ONLY",
            Mode::Deferrable => " READ ONLY, DEFERRABLE",
        };
        let text = format!("BEGIN ISOLATION LEVEL {}{how}", self.isolation.sql());
        self.connection.query(&text, &[]).await.map_err(unexpected)?;
        if mode == Mode::Aged {
            let last = self.ended.iter().rev().find(|ended| !ended.committed()).map_or(1, |ended| ended.id);
            let text = format!("SET LOCAL cognate.retry_of = '{last}'");
            self.connection.query(&text, &[]).await.map_err(unexpected)?;
        }
        let began = self.counters.tick();
        let snapshot = self.connection.snapshot().await.map_err(unexpected)?;
        let placed = self.counters.tick();
        let id = self.counters.id();
        let aged = mode == Mode::Aged && self.isolation == Isolation::Serializable;
        let kinds = match mode {
            Mode::Plain => Vec::new(),
            Mode::ReadOnly => vec!["read only"],
            Mode::Deferrable => vec!["deferrable"],
            Mode::Aged => vec!["aged"],
        };
        self.open = Some(Open {
            id,
            events: Vec::new(),
            began,
            snapshot,
            first: snapshot,
            placed,
            count: 0,
            reads_latest: self.reads_latest || aged,
            savepoint: None,
            kinds,
            failed: false,
        });
        Ok(())
    }

    async fn savepoint(&mut self) -> Result<()> {
        // The first operation takes the snapshot, so the transaction is not begun for a savepoint.
        let Some(open) = self.open.as_mut().filter(|open| !open.failed) else { return Ok(()) };
        self.connection.query("SAVEPOINT s", &[]).await.map_err(unexpected)?;
        open.savepoint = Some(open.events.len());
        Ok(())
    }

    /// Takes back the writes since the savepoint, if there is one.
    async fn rollback_to(&mut self) -> Result<()> {
        let Some(open) = self.open.as_mut().filter(|open| !open.failed) else { return Ok(()) };
        let Some(place) = open.savepoint else { return Ok(()) };
        self.connection.query("ROLLBACK TO SAVEPOINT s", &[]).await.map_err(unexpected)?;
        let wrote = open.events[place..].iter().any(|event| matches!(event, Event::Write(_)));
        open.events.push(Event::TakenBack(place));
        open.kinds.push(if wrote { "writes taken back" } else { "nothing taken back" });
        // What was taken back may be a statement that moved it and failed.
        if open.reads_latest { Ok(()) } else { self.note_snapshot().await }
    }

    async fn operate(&mut self, operation: Operation) -> Result<()> {
        if self.open.is_none() {
            self.begin().await?;
        } else if self.isolation == Isolation::ReadCommitted {
            let snapshot = self.connection.snapshot().await.map_err(unexpected)?;
            // What it read before needs no explanation: it takes part from here on.
            self.open.iter_mut().for_each(|open| (open.snapshot, open.first) = (snapshot, snapshot));
        }
        let Some(open) = self.open.as_mut().filter(|open| !open.failed) else { return Ok(()) };
        open.count += 1;
        let stamp = stamp(open.id, open.count);
        let (text, args) = operation.statement(stamp);
        let asked = self.counters.tick();
        match self.connection.query(&text, &args).await {
            Ok(rows) => {
                let latest = open.reads_latest;
                if latest || operation.locks() {
                    self.note_snapshot().await?;
                }
                let Some(open) = &mut self.open else { return Ok(()) };
                let events = operation.events(&rows, stamp, open.snapshot)?;
                open.kinds.push(operation.kind(&events));
                let learned = self.connection.last_commit().map(|now| constraint::held(&events, now));
                open.events.extend(events.into_iter().chain(learned.into_iter().flatten()));
                Ok(())
            }
            Err(failure) => {
                let now = self.connection.last_commit();
                if Abort::classify(&failure.sqlstate, &failure.message) == Abort::Certifier {
                    open.events.extend(constraint::contradicted(operation, &failure, now));
                }
                let now = now.filter(|_| open.savepoint.is_some());
                let learned = now.and_then(|now| constraint::refused(operation, &failure, now));
                let Some(learned) = learned else { return self.fail(failure, asked).await };
                open.events.extend(learned);
                open.kinds.push("refused after a savepoint");
                self.rollback_to().await
            }
        }
    }

    /// Asks for the snapshot that the open transaction has now.
    async fn note_snapshot(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let now = match () {
            () if open.reads_latest => self.connection.snapshot().await,
            // It is asked for before each statement.
            () if self.isolation == Isolation::ReadCommitted => return Ok(()),
            () => self.connection.snapshot_now().await,
        };
        let now = now.map_err(unexpected)?;
        if now != open.snapshot {
            if !open.reads_latest {
                open.kinds.push("snapshot moved");
            }
            open.snapshot = now;
        }
        Ok(())
    }

    /// Records the open transaction as aborted, and rolls it back.
    async fn fail(&mut self, failure: Failure, asked: u64) -> Result<()> {
        let answered = self.counters.tick();
        let reason = Abort::classify(&failure.sqlstate, &failure.message);
        if !is_expected(&failure) {
            return Err(unexpected(failure));
        }
        if let Some(open) = &mut self.open {
            open.failed = true;
            self.failures.push((open.id, failure));
        }
        self.record(Outcome::Aborted(reason), asked, answered, None);
        self.connection.query("ROLLBACK", &[]).await.map_err(unexpected)?;
        Ok(())
    }

    fn record(&mut self, outcome: Outcome, asked: u64, answered: u64, commit: Option<u64>) {
        if let Some(open) = &mut self.open {
            let events = std::mem::take(&mut open.events);
            let wrote = !standing(&events).is_empty();
            let commit = commit.filter(|_| wrote);
            let Open { id, began, snapshot, first, placed, .. } = *open;
            self.ended.push(Transaction {
                id,
                events,
                outcome,
                snapshot,
                first,
                commit,
                began,
                placed,
                asked,
                answered,
            });
        }
    }

    async fn commit(&mut self) -> Result<()> {
        if self.open.as_ref().is_some_and(|open| !open.failed) {
            let asked = self.counters.tick();
            match self.connection.query("COMMIT", &[]).await {
                Ok(_) => {
                    let answered = self.counters.tick();
                    for kind in self.open.iter().flat_map(|open| &open.kinds) {
                        *self.done.entry(kind).or_default() += 1;
                    }
                    self.record(Outcome::Committed, asked, answered, self.connection.last_commit());
                }
                Err(failure) => self.fail(failure, asked).await?,
            }
        }
        self.open = None;
        Ok(())
    }

    async fn rollback(&mut self) -> Result<()> {
        if self.open.as_ref().is_some_and(|open| !open.failed) {
            let asked = self.counters.tick();
            self.connection.query("ROLLBACK", &[]).await.map_err(unexpected)?;
            let answered = self.counters.tick();
            self.record(Outcome::Aborted(Abort::Client), asked, answered, None);
        }
        self.open = None;
        Ok(())
    }
}

fn unexpected(failure: Failure) -> Error {
    let Failure { sqlstate, message, detail } = failure;
    let detail = detail.map(|detail| format!("; {detail}")).unwrap_or_default();
    Error::Violation(format!("a recorded transaction met {sqlstate}: {message}{detail}"))
}
