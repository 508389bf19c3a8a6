//! s3u1 of the PSSI paper (HPTS 2011): each transaction reads three rows by key and updates one of
//! them. Table and keys are those of `snum`; other than there, a transaction is tried again until
//! it commits.
//!
//! The keys are uniform over the table, or with some probability from a small hot set, which makes
//! conflicts as frequent as one likes. Every statement is a message of its own, as in the paper's
//! clients. The updates count up, so that the sum over the table tells how many transactions
//! committed: what was acknowledged must be there, and nothing else.
//!
//! Two kinds of client run it: [`Wire`] through a driver, [`Embedded`] through the library, as
//! thousands of tasks on few threads.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use cognate::{Database, Session};
use tokio_postgres::Config;

use crate::checker::history::Abort;
use crate::driver::{Client, Recorder, Workload};
use crate::error::{DatabaseContext, Error, Result};
use crate::peer::{self, System};
use crate::random::Random;

use super::snum;

/// Reads of a transaction; it updates the row that it read last.
const READS: usize = 3;

const SELECT: &str = "SELECT v FROM s3u1 WHERE id = $1";
const UPDATE: &str = "UPDATE s3u1 SET v = v + 1 WHERE id = $1";
const SERIALIZABLE: &str = "SET default_transaction_isolation = 'serializable'";
const SUM: &str = "SELECT sum(v)::bigint FROM s3u1";

/// Which rows there are and which are popular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Rows, numbered from 1.
    pub rows: i64,
    /// The first so many rows are hot.
    pub hot_rows: i64,
    /// Percent of the accesses that go to them.
    pub hot_pct: u32,
    /// Determines the keys.
    pub seed: u64,
}

impl Table {
    /// Statements that make the table and fill it.
    pub fn statements(&self) -> Vec<String> {
        snum::counters("s3u1", "v", self.rows)
    }

    fn keys(&self, random: &mut Random) -> [i64; READS] {
        std::array::from_fn(|_| snum::key(random, self.rows, self.hot_rows, self.hot_pct))
    }
}

/// For which part of a run the clients count at present, and what all of them have committed so
/// far. Whoever runs them changes the part under them.
#[derive(Debug)]
pub struct Stage {
    parts: usize,
    current: AtomicUsize,
    committed: AtomicU64,
}

impl Stage {
    /// A run of so many parts, at least one, at the beginning of the first.
    pub fn new(parts: usize) -> Stage {
        Stage { parts: parts.max(1), current: AtomicUsize::new(0), committed: AtomicU64::new(0) }
    }

    /// Goes to a part; beyond the last one, to the last.
    pub fn go_to(&self, part: usize) {
        self.current.store(part.min(self.parts - 1), Ordering::Relaxed);
    }

    /// Transactions committed so far, in all parts.
    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::Relaxed)
    }
}

/// Clients of a server.
#[derive(Debug)]
pub struct Wire {
    /// The system's name, for messages.
    pub system: String,
    /// How to connect.
    pub config: Config,
    /// What was loaded.
    pub table: Table,
    /// Tells the clients of different runs apart.
    pub round: u64,
    /// The parts of the run, each of which counts as a kind of request.
    pub stage: Arc<Stage>,
}

/// One connection.
#[derive(Debug)]
pub struct WireClient {
    system: String,
    client: tokio_postgres::Client,
    select: tokio_postgres::Statement,
    update: tokio_postgres::Statement,
    table: Table,
    random: Random,
    stage: Arc<Stage>,
}

impl Wire {
    /// The sum over the table.
    pub async fn sum(system: &System) -> Result<i64> {
        let client = system.client().await?;
        let row = client.query_one(SUM, &[]).await.at(&system.name, "adding up the table")?;
        Ok(row.get(0))
    }
}

impl Workload for Wire {
    type Client = WireClient;

    fn kinds(&self) -> Vec<String> {
        (0..self.stage.parts).map(|part| format!("part {part}")).collect()
    }

    async fn open(&self, index: usize) -> Result<WireClient> {
        let client = peer::connect(&self.config).await.at(&self.system, "connecting a client")?;
        client.batch_execute(SERIALIZABLE).await.at(&self.system, SERIALIZABLE)?;
        let select = client.prepare(SELECT).await.at(&self.system, SELECT)?;
        let update = client.prepare(UPDATE).await.at(&self.system, UPDATE)?;
        let random = Random::stream(self.table.seed, 300 + self.round, index as u64);
        let (system, stage) = (self.system.clone(), Arc::clone(&self.stage));
        Ok(WireClient { system, client, select, update, table: self.table, random, stage })
    }
}

impl WireClient {
    async fn attempt(&self, keys: [i64; READS]) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute("BEGIN").await?;
        for key in keys {
            self.client.query_one(&self.select, &[&key]).await?;
        }
        self.client.execute(&self.update, &[&keys[READS - 1]]).await?;
        self.client.batch_execute("COMMIT").await
    }
}

impl Client for WireClient {
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        let since = Instant::now();
        let keys = self.table.keys(&mut self.random);
        loop {
            let result = self.attempt(keys).await;
            let part = self.stage.current.load(Ordering::Relaxed);
            let Err(error) = result else {
                self.stage.committed.fetch_add(1, Ordering::Relaxed);
                recorder.borrow_mut().committed(part, since);
                return Ok(());
            };
            if !recorder.borrow_mut().failed(part, &error) {
                return Err(error).at(&self.system, "running s3u1");
            }
            self.client.batch_execute("ROLLBACK").await.at(&self.system, "ROLLBACK")?;
            if recorder.borrow().is_over() {
                return Ok(());
            }
        }
    }
}

/// Clients of a database in this process.
pub struct Embedded {
    /// The database, with the table loaded.
    pub database: Database,
    /// What was loaded.
    pub table: Table,
    /// Tells the clients of different runs apart.
    pub round: u64,
}

/// One session, on the thread of its task.
pub struct EmbeddedClient {
    session: Session,
    table: Table,
    random: Random,
}

fn failed(error: cognate::Error) -> Error {
    Error::Server(error.to_string())
}

impl Embedded {
    /// Makes the table and fills it.
    pub fn load(database: &Database, table: Table) -> Result<()> {
        let mut session = database.session().map_err(failed)?;
        for statement in table.statements() {
            session.execute(statement.as_str(), &[]).map_err(failed)?;
        }
        session.execute("CHECKPOINT", &[]).map(drop).map_err(failed)
    }

    /// The sum over the table.
    pub fn sum(database: &Database) -> Result<i64> {
        let row = database.session().map_err(failed)?.query_one(SUM, &[]).map_err(failed)?;
        row.get(0).map_err(failed)
    }
}

impl Workload for Embedded {
    type Client = EmbeddedClient;

    fn kinds(&self) -> Vec<String> {
        vec!["s3u1".to_owned()]
    }

    async fn open(&self, index: usize) -> Result<EmbeddedClient> {
        let mut session = self.database.session().map_err(failed)?;
        session.execute_async(SERIALIZABLE, &[]).await.map_err(failed)?;
        let random = Random::stream(self.table.seed, 400 + self.round, index as u64);
        Ok(EmbeddedClient { session, table: self.table, random })
    }
}

impl EmbeddedClient {
    /// After each statement it is the others' turn: on a wire, the client would be waited for.
    async fn attempt(&mut self, keys: [i64; READS]) -> Result<(), cognate::Error> {
        self.session.execute_async("BEGIN", &[]).await?;
        for key in keys {
            self.session.query_one_async(SELECT, &[&key]).await?;
            tokio::task::yield_now().await;
        }
        self.session.execute_async(UPDATE, &[&keys[READS - 1]]).await?;
        tokio::task::yield_now().await;
        self.session.execute_async("COMMIT", &[]).await.map(drop)
    }
}

impl Client for EmbeddedClient {
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        let since = Instant::now();
        let keys = self.table.keys(&mut self.random);
        loop {
            let Err(error) = self.attempt(keys).await else {
                recorder.borrow_mut().committed(0, since);
                return Ok(());
            };
            if !matches!(error.sqlstate, "40001" | "40P01") {
                return Err(failed(error));
            }
            recorder.borrow_mut().aborted(0, Abort::classify(error.sqlstate, &error.message));
            self.session.execute_async("ROLLBACK", &[]).await.map_err(failed)?;
            if recorder.borrow().is_over() {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }
}
