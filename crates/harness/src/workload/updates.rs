//! Many updates in one transaction: twenty distinct random rows of ten thousand, as in the paper of
//! the replication protocols.
//!
//! Each statement is a message of its own. An attempt that the system refuses is rolled back,
//! counted, and made again with the same rows. Each update counts a row up, so the sum over the
//! table tells how many transactions committed: what was acknowledged must be there, and nothing
//! else.
//!
//! One client program speaks to PostgreSQL's and MariaDB's servers; how is in [`Target`] only. A
//! cluster's clients are spread over its nodes by [`Spread`].

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::{Config, Statement};

use super::pace::Pace;
use super::turns::Countable;
use crate::driver::{Client, Failure, Recorder, Window, Workload};
use crate::error::{DatabaseContext, Error, Result};
use crate::peer;
use crate::random::Random;

/// What a cluster answers when it takes no transaction for the moment, or cannot say how one ended:
/// clients go on.
pub(super) const PASSING: [&str; 3] = ["25006", "53400", UNKNOWN];
/// It is not known whether the transaction has committed.
pub(crate) const UNKNOWN: &str = "08007";
/// After such an answer: others come as soon as one asks.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

const UPDATE: &str = "UPDATE counters SET v = v + 1 WHERE k = $1";

/// How much is done to how many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows, numbered from 1.
    pub rows: i64,
    /// Rows that one transaction updates, all different.
    pub updates: usize,
    /// Of the keys.
    pub seed: u64,
}

impl Shape {
    /// Statements that make the table and fill it, for all systems alike.
    pub fn statements(&self) -> Vec<String> {
        let mut statements = vec![
            "DROP TABLE IF EXISTS counters".to_owned(),
            "CREATE TABLE counters (k int PRIMARY KEY, v int NOT NULL)".to_owned(),
        ];
        for first in (1..=self.rows).step_by(1_000) {
            let rows: Vec<String> =
                (first..=self.rows.min(first + 999)).map(|key| format!("({key},0)")).collect();
            statements.push(format!("INSERT INTO counters VALUES {}", rows.join(",")));
        }
        statements
    }

    /// The rows of one transaction, in the order of its updates.
    pub fn keys(&self, random: &mut Random) -> Vec<i32> {
        let mut keys = Vec::with_capacity(self.updates);
        while keys.len() < self.updates.min(self.rows as usize) {
            let key = random.between(1, self.rows) as i32;
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// A row that is none of these; none if there is no other one.
    fn key_besides(&self, keys: &[i32], random: &mut Random) -> Option<i32> {
        if keys.len() as i64 >= self.rows {
            return None;
        }
        loop {
            let key = random.between(1, self.rows) as i32;
            if !keys.contains(&key) {
                return Some(key);
            }
        }
    }
}

/// Where a client connects, and how.
#[derive(Clone, Debug)]
pub enum Target {
    /// By PostgreSQL's protocol: Cognate's or PostgreSQL's server.
    Postgres(Box<Config>),
    /// By MySQL's.
    #[cfg(feature = "galera")]
    Galera(mysql_async::Opts),
}

/// A message of a transaction.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Begins it.
    Begin,
    /// Counts a row up.
    Update(i32),
    /// Ends it.
    Commit,
    /// Ends it after a failure.
    Rollback,
}

/// A whole transaction as one message; `reads` is a row that it reads first.
pub(super) fn message(keys: &[i32], reads: Option<i32>) -> String {
    let read = reads.map(|key| format!("SELECT v FROM counters WHERE k = {key}"));
    let updates = keys.iter().map(|key| format!("UPDATE counters SET v = v + 1 WHERE k = {key}"));
    let statements: Vec<String> = read.into_iter().chain(updates).collect();
    match &statements[..] {
        [one] => one.clone(),
        many => format!("BEGIN; {}; COMMIT", many.join("; ")),
    }
}

impl Step {
    fn text(self) -> &'static str {
        match self {
            Step::Begin => "BEGIN",
            Step::Update(_) => UPDATE,
            Step::Commit => "COMMIT",
            Step::Rollback => "ROLLBACK",
        }
    }
}

/// An open connection, with the update prepared.
pub enum Connection {
    /// By PostgreSQL's protocol.
    Postgres(tokio_postgres::Client, Statement),
    /// By MySQL's.
    #[cfg(feature = "galera")]
    Galera(mysql_async::Conn, mysql_async::Statement),
}

impl Connection {
    /// Connects, makes the settings of the session, and prepares the update.
    ///
    /// # Errors
    /// If the server does not take it.
    pub async fn open(system: &str, target: &Target, settings: &[String]) -> Result<Connection> {
        match target {
            Target::Postgres(config) => {
                let client = peer::connect(config).await.at(system, "connecting a client")?;
                for setting in settings {
                    client.batch_execute(setting).await.at(system, setting.as_str())?;
                }
                let update = client.prepare(UPDATE).await.at(system, UPDATE)?;
                Ok(Connection::Postgres(client, update))
            }
            #[cfg(feature = "galera")]
            Target::Galera(opts) => {
                use mysql_async::prelude::Queryable;
                let mut client = peer::galera::connect(opts).await?;
                for setting in settings {
                    client
                        .query_drop(setting)
                        .await
                        .map_err(|error| peer::galera::failed(setting, &error))?;
                }
                let text = UPDATE.replace("$1", "?");
                let update = client.prep(text).await;
                let update = update.map_err(|error| peer::galera::failed(UPDATE, &error))?;
                Ok(Connection::Galera(client, update))
            }
        }
    }

    /// Sends a whole transaction as one message, and waits for its answer.
    ///
    /// # Errors
    /// What the server answers otherwise.
    pub async fn send_whole(&mut self, keys: &[i32], reads: Option<i32>) -> Result<(), Failure> {
        let text = message(keys, reads);
        match self {
            Connection::Postgres(client, _) => {
                client.batch_execute(&text).await.map_err(|error| Failure::from(&error))
            }
            #[cfg(feature = "galera")]
            Connection::Galera(client, _) => {
                use mysql_async::prelude::Queryable;
                client.query_drop(text).await.map_err(|error| refused(&error))
            }
        }
    }

    /// Sends a message of a transaction and waits for its answer.
    ///
    /// # Errors
    /// What the server answers otherwise.
    pub async fn send(&mut self, step: Step) -> Result<(), Failure> {
        match self {
            Connection::Postgres(client, update) => {
                let done = match step {
                    Step::Update(key) => client.execute(update, &[&key]).await.map(drop),
                    _ => client.batch_execute(step.text()).await,
                };
                done.map_err(|error| Failure::from(&error))
            }
            #[cfg(feature = "galera")]
            Connection::Galera(client, update) => {
                use mysql_async::prelude::Queryable;
                let done = match step {
                    Step::Update(key) => client.exec_drop(&*update, (key,)).await,
                    _ => client.query_drop(step.text()).await,
                };
                done.map_err(|error| refused(&error))
            }
        }
    }
}

/// What MariaDB means by its errors: a deadlock is also what it calls a transaction that met one
/// that came before it in the cluster's order.
#[cfg(feature = "galera")]
fn refused(error: &mysql_async::Error) -> Failure {
    use crate::checker::history::Abort;
    let message = error.to_string();
    let mysql_async::Error::Server(server) = error else {
        return Failure { state: "08006".to_owned(), message, abort: None, unknown: true };
    };
    let abort = match server.code {
        1020 => Some(Abort::FirstUpdater),
        1205 | 1213 => Some(Abort::Deadlock),
        _ => None,
    };
    Failure { state: server.state.clone(), message, abort, unknown: false }
}

/// Clients of one server.
#[derive(Clone, Debug)]
pub struct Updates {
    /// The system's name, for messages.
    pub system: String,
    /// Where they connect.
    pub target: Target,
    /// Statements that each session begins with.
    pub settings: Vec<String>,
    /// What they do.
    pub shape: Shape,
    /// Whether a transaction is one message.
    pub whole: bool,
    /// Whether such a message reads one more row first.
    pub reads: bool,
    /// Tells the clients of different rounds apart.
    pub round: u64,
    /// What transactions count as.
    pub kinds: Vec<String>,
    /// Which of them those of these clients are.
    pub kind: usize,
    /// When transactions are due; then those that are refused are not made again. None: one after
    /// the other.
    pub pace: Option<Arc<Pace>>,
}

/// One client.
pub struct UpdatesClient {
    system: String,
    connection: Connection,
    shape: Shape,
    whole: bool,
    reads: bool,
    random: Random,
    kind: usize,
    pace: Option<Arc<Pace>>,
}

impl Workload for Updates {
    type Client = UpdatesClient;

    fn kinds(&self) -> Vec<String> {
        self.kinds.clone()
    }

    async fn open(&self, index: usize) -> Result<UpdatesClient> {
        let connection = Connection::open(&self.system, &self.target, &self.settings).await?;
        let random = Random::stream(self.shape.seed, 500 + self.round, index as u64);
        let (system, shape, pace) = (self.system.clone(), self.shape, self.pace.clone());
        let (whole, reads, kind) = (self.whole, self.reads, self.kind);
        Ok(UpdatesClient { system, connection, shape, whole, reads, random, kind, pace })
    }
}

impl UpdatesClient {
    async fn attempt(&mut self, keys: &[i32], reads: Option<i32>) -> Result<(), Failure> {
        if self.whole {
            return self.connection.send_whole(keys, reads).await;
        }
        self.connection.send(Step::Begin).await?;
        for &key in keys {
            self.connection.send(Step::Update(key)).await?;
        }
        self.connection.send(Step::Commit).await
    }

    fn failed(&self, doing: &str, failure: Failure) -> Error {
        let message = format!("{} ({})", failure.message, failure.state);
        Error::Database { system: self.system.clone(), doing: doing.to_owned(), message }
    }
}

impl Countable for UpdatesClient {
    fn count_as(&mut self, kind: usize) {
        self.kind = kind;
    }
}

impl Client for UpdatesClient {
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        let (mut since, kind) = (Instant::now(), self.kind);
        if let Some(pace) = &self.pace {
            since = pace.take();
            tokio::time::sleep_until(since.into()).await;
            if recorder.borrow().is_over() {
                return Ok(());
            }
        }
        let keys = self.shape.keys(&mut self.random);
        let reads = self.reads.then(|| self.shape.key_besides(&keys, &mut self.random)).flatten();
        loop {
            let Err(mut failure) = self.attempt(&keys, reads).await else {
                recorder.borrow_mut().committed(kind, since);
                return Ok(());
            };
            failure.unknown |= failure.state == UNKNOWN;
            let is_passing = PASSING.contains(&failure.state.as_str());
            if !recorder.borrow_mut().failed_with(kind, &failure) && !is_passing {
                return Err(self.failed("counting rows up", failure));
            }
            if is_passing {
                tokio::time::sleep(PAUSE).await;
            }
            if let Err(failure) = self.connection.send(Step::Rollback).await {
                return Err(self.failed("ROLLBACK", failure));
            }
            if self.pace.is_some() || recorder.borrow().is_over() {
                return Ok(());
            }
        }
    }
}

/// Clients of several servers: each of the next one.
#[derive(Clone, Debug)]
pub struct Spread<W>(pub Vec<W>);

impl<W: Workload> Workload for Spread<W> {
    type Client = W::Client;

    fn kinds(&self) -> Vec<String> {
        self.0[0].kinds()
    }

    async fn open(&self, index: usize) -> Result<W::Client> {
        self.0[index % self.0.len()].open(index).await
    }

    fn begin(&self, window: Window) {
        self.0.iter().for_each(|one| one.begin(window));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_transaction_are_distinct_and_fall_everywhere() {
        let shape = Shape { rows: 40, updates: 20, seed: 1 };
        let mut random = Random::new(shape.seed);
        let mut seen = [0; 40];
        for _ in 0..100 {
            let keys = shape.keys(&mut random);
            let distinct: std::collections::BTreeSet<i32> = keys.iter().copied().collect();
            assert_eq!((keys.len(), distinct.len()), (20, 20));
            keys.iter().for_each(|key| seen[*key as usize - 1] += 1);
        }
        assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
    }

    #[test]
    fn what_is_read_is_not_what_is_updated() {
        let shape = Shape { rows: 4, updates: 3, seed: 1 };
        let mut random = Random::new(shape.seed);
        for _ in 0..20 {
            let keys = shape.keys(&mut random);
            let read = shape.key_besides(&keys, &mut random).unwrap();
            assert!((1..=4).contains(&read) && !keys.contains(&read), "{read} {keys:?}");
        }
        let update = "UPDATE counters SET v = v + 1 WHERE k = 1";
        assert_eq!(message(&[1], None), update);
        assert_eq!(
            message(&[1], Some(2)),
            format!("BEGIN; SELECT v FROM counters WHERE k = 2; {update}; COMMIT")
        );
    }

    #[test]
    fn a_table_smaller_than_a_transaction_is_updated_whole() {
        let shape = Shape { rows: 3, updates: 20, seed: 1 };
        let keys = shape.keys(&mut Random::new(1));
        assert_eq!((keys.len(), shape.key_besides(&keys, &mut Random::new(2))), (3, None));
        assert_eq!(shape.statements().len(), 3);
    }
}
