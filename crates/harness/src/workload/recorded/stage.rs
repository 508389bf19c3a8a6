//! Sessions of one embedded database, driven by one task in an order that the caller gives.
//!
//! A step runs until it is answered or its transaction waits for a lock; which of the two is asked
//! of the engine's own list of transactions, never of a clock. Waiting for anything else (the log)
//! is waited out. So the same steps give the same history every time.
//!
//! ```text
//!   order 1 2 1 2 2:   T1 w(x)      T2 w(x) waits      T1 commit → T2's write fails or goes on      T2's turns
//! ```
//!
//! A turn of a session that waits is kept, and taken as soon as the wait is over.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use cognate::{Method, Options};
use cognate_env::sim::SimDisk;

use super::connection::{Connection, Embedded};
use super::recorder::{Counters, Recorder, Step};
use super::{SCHEMA, TABLES};
use crate::checker::history::{History, Object, Write, stamp};
use crate::error::{Error, Result};
use crate::workload::bookstore::Isolation;

type Running = Pin<Box<dyn Future<Output = (Recorder<Embedded>, Result<()>)>>>;

struct Player {
    idle: Option<Recorder<Embedded>>,
    running: Option<Running>,
    /// The engine's transaction that waits.
    waits: Option<u64>,
    /// Turns that came while it waited.
    turns: VecDeque<Step>,
}

/// The database and its sessions.
pub struct Stage {
    database: cognate::Database,
    counters: Arc<Counters>,
    players: Vec<Player>,
    loader: Embedded,
    history: History,
    loaded: u64,
}

/// An embedded database on a disk in memory, with the tables of the recorded load.
///
/// # Errors
/// Of the database.
pub async fn open(options: impl FnOnce(Options) -> Options) -> Result<cognate::Database> {
    let mut plain = Options::new(Path::new("data"));
    plain.disk = SimDisk::new(1).handle();
    let database = cognate::Database::open_with(options(plain)).map_err(failed)?;
    let mut session = database.session().map_err(failed)?;
    for statement in SCHEMA {
        session.execute_async(statement, &[]).await.map_err(failed)?;
    }
    Ok(database)
}

fn failed(error: cognate::Error) -> Error {
    Error::Server(error.to_string())
}

impl Stage {
    /// So many sessions at this isolation level.
    ///
    /// # Errors
    /// Of the database.
    pub fn new(database: &cognate::Database, sessions: usize, isolation: Isolation) -> Result<Stage> {
        let counters = Arc::new(Counters::default());
        let locking = database.sql().engine().serializable() == Method::TwoPhaseLocking;
        let player = |_| {
            let connection = Embedded::new(database, true).map_err(failed)?;
            let recorder = Recorder::new(connection, isolation, Arc::clone(&counters));
            let latest = locking && isolation == Isolation::Serializable;
            let recorder = if latest { recorder.reads_latest() } else { recorder };
            Ok(Player { idle: Some(recorder), running: None, waits: None, turns: VecDeque::new() })
        };
        let players = (0..sessions).map(player).collect::<Result<_>>()?;
        let loader = Embedded::new(database, true).map_err(failed)?;
        let (database, history) = (database.clone(), History::default());
        Ok(Stage { database, counters, players, loader, history, loaded: 0 })
    }

    /// Inserts rows (object, second column) before everything else.
    ///
    /// # Errors
    /// Of the database.
    pub async fn load(&mut self, rows: &[(Object, i64)]) -> Result<()> {
        for &(object, group) in rows {
            self.loaded += 1;
            let stamp = stamp(0, self.loaded);
            let text =
                format!("INSERT INTO {} (id, grp, ver) VALUES ($1, $2, $3)", TABLES[object.table as usize]);
            let args = [object.key, group, stamp];
            self.loader.query(&text, &args).await.map_err(|failure| Error::Server(failure.message))?;
            let row = Some(vec![object.key, group]);
            self.history.loaded.push(Write { object, stamp, replaced: None, row });
        }
        Ok(())
    }

    /// Whether this session has a transaction open.
    pub fn is_open(&self, player: usize) -> bool {
        self.players[player].idle.as_ref().is_none_or(Recorder::is_open)
    }

    /// Whether this session waits for a lock.
    pub fn waits(&self, player: usize) -> bool {
        self.players[player].waits.is_some()
    }

    /// Whether this session's open transaction has failed already.
    pub fn has_failed(&self, player: usize) -> bool {
        self.players[player].idle.as_ref().is_some_and(Recorder::has_failed)
    }

    /// Gives a session its turn, then lets those go on that it may have set free.
    ///
    /// # Errors
    /// A failure that the load should not meet.
    pub async fn step(&mut self, player: usize, step: Step) -> Result<()> {
        self.players[player].turns.push_back(step);
        self.play(player).await?;
        loop {
            let waiting: Vec<usize> = (0..self.players.len()).filter(|&player| self.waits(player)).collect();
            let mut progress = false;
            for player in waiting {
                if self.poll(player).await? {
                    progress = true;
                    self.play(player).await?;
                }
            }
            if !progress {
                return Ok(());
            }
        }
    }

    /// Takes a session's turns until there is none left or it waits.
    async fn play(&mut self, player: usize) -> Result<()> {
        while !self.waits(player) {
            let Some(step) = self.players[player].turns.pop_front() else { return Ok(()) };
            let Some(mut recorder) = self.players[player].idle.take() else { return Ok(()) };
            self.players[player].running = Some(Box::pin(async move {
                let ran = recorder.step(step).await;
                (recorder, ran)
            }));
            self.poll(player).await?;
        }
        Ok(())
    }

    fn waiting(&self) -> Vec<u64> {
        let running = self.database.sql().engine().transactions().into_iter();
        running.filter(|running| running.waits_for.is_some()).map(|running| running.id).collect()
    }

    /// Runs a session's step until it is answered (true) or waits for a lock.
    async fn poll(&mut self, player: usize) -> Result<bool> {
        let Some(mut running) = self.players[player].running.take() else { return Ok(false) };
        let (before, known) = (self.waiting(), self.players[player].waits);
        let ended = std::future::poll_fn(|context| match running.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Ok(ended)),
            Poll::Pending => {
                let now = self.waiting();
                let mine = known.filter(|id| now.contains(id));
                match mine.or_else(|| now.into_iter().find(|id| !before.contains(id))) {
                    Some(id) => Poll::Ready(Err(id)),
                    None => Poll::Pending,
                }
            }
        })
        .await;
        let player = &mut self.players[player];
        match ended {
            Ok((recorder, ran)) => {
                (player.idle, player.waits) = (Some(recorder), None);
                ran.map(|()| true)
            }
            Err(id) => {
                (player.running, player.waits) = (Some(running), Some(id));
                Ok(false)
            }
        }
    }

    /// What was recorded since the last call; fails if a session still waits, since nobody is left
    /// to end its wait.
    ///
    /// # Errors
    /// `Violation` for a wait without end.
    pub fn take_history(&mut self) -> Result<History> {
        let mut history = std::mem::take(&mut self.history);
        for (number, player) in self.players.iter_mut().enumerate() {
            let Some(recorder) = &mut player.idle else {
                return Err(Error::Violation(format!("session {number} waits for a lock that nobody holds")));
            };
            history.transactions.append(&mut recorder.ended);
        }
        history.transactions.sort_by_key(|transaction| transaction.answered);
        Ok(history)
    }

    /// What failed transactions were told since the last call.
    pub fn take_failures(&mut self) -> Vec<(u64, super::connection::Failure)> {
        let recorders = self.players.iter_mut().filter_map(|player| player.idle.as_mut());
        recorders.flat_map(|recorder| std::mem::take(&mut recorder.failures)).collect()
    }

    /// What the statements of committed transactions did, counted since the last call.
    pub fn take_done(&mut self) -> BTreeMap<&'static str, usize> {
        let mut all = BTreeMap::new();
        for recorder in self.players.iter_mut().filter_map(|player| player.idle.as_mut()) {
            for (kind, count) in std::mem::take(&mut recorder.done) {
                *all.entry(kind).or_default() += count;
            }
        }
        all
    }

    /// The numbers of the next transaction and of everything that is asked and answered.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}

/// All orders in which sessions can take their turns, `turns[i]` of session `i`.
pub fn interleavings(turns: &[usize]) -> Vec<Vec<usize>> {
    fn extend(left: &mut [usize], order: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if left.iter().all(|turns| *turns == 0) {
            all.push(order.clone());
            return;
        }
        for session in 0..left.len() {
            if left[session] > 0 {
                left[session] -= 1;
                order.push(session);
                extend(left, order, all);
                order.pop();
                left[session] += 1;
            }
        }
    }
    let mut all = Vec::new();
    extend(&mut turns.to_vec(), &mut Vec::new(), &mut all);
    all
}
