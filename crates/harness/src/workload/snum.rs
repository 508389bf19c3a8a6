//! sNuM of the PSSI papers: each transaction reads N rows by key and updates M of them.
//!
//! The table has 100,000 rows. A key comes from a hot set of 200 rows with a given probability,
//! else from the whole table; a transaction's keys are different from each other. Every statement
//! is a message of its own. Nothing is tried again: an aborted transaction is counted, with its
//! reason, and the client goes on with another one.
//!
//! In the read-mostly variant nine transactions in ten sum up a range of 1,000 rows instead, so
//! that what reads cost the certifier shows.
//!
//! Clients run it through the wire ([`Wire`]) or in this process ([`Embedded`]).

use std::cell::RefCell;
use std::time::Instant;

use cognate::{Database, Session};
use tokio_postgres::{Config, Statement};

use crate::checker::history::Abort;
use crate::driver::{Client, Recorder, Workload};
use crate::error::{DatabaseContext, Error, Result};
use crate::peer;
use crate::random::Random;

use super::bookstore::Isolation;
use super::turns::Countable;

/// Rows of one range.
pub const RANGE: i64 = 1_000;

const READ: &str = "SELECT val FROM snum WHERE id = $1";
const UPDATE: &str = "UPDATE snum SET val = $2 WHERE id = $1";
const SCAN: &str = "SELECT count(*), sum(val)::int8 FROM snum WHERE id BETWEEN $1 AND $2";

/// Which rows there are, and what a transaction does with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows, numbered from 1.
    pub rows: i64,
    /// The first so many are hot.
    pub hot_rows: i64,
    /// Percent of the keys that are hot.
    pub hot_pct: u32,
    /// N.
    pub reads: usize,
    /// M.
    pub updates: usize,
    /// Whether nine transactions in ten scan a range instead.
    pub scans: bool,
    /// Of the keys.
    pub seed: u64,
}

/// Statements that make a table of so many rows, numbered from 1, with a counter each, and fill it.
pub(super) fn counters(table: &str, counter: &str, rows: i64) -> Vec<String> {
    let mut statements = vec![
        format!("DROP TABLE IF EXISTS {table}"),
        format!("CREATE TABLE {table} (id int8 PRIMARY KEY, {counter} int8 NOT NULL, filler text NOT NULL)"),
    ];
    for first in (1..=rows).step_by(20_000) {
        let last = rows.min(first + 19_999);
        statements.push(format!(
            "INSERT INTO {table} SELECT i, 0, repeat('x', 84) FROM generate_series({first}::int8, {last}::int8) AS g(i)"
        ));
    }
    statements
}

/// A row's number: one of the first `hot_rows` in `hot_pct` percent of the cases, else any.
pub(super) fn key(random: &mut Random, rows: i64, hot_rows: i64, hot_pct: u32) -> i64 {
    let hot = hot_pct > 0 && random.chance(hot_pct);
    random.between(1, if hot { hot_rows.min(rows) } else { rows })
}

impl Shape {
    /// Statements that make the table and fill it.
    pub fn statements(&self) -> Vec<String> {
        counters("snum", "val", self.rows)
    }

    /// The keys that a transaction reads; it updates the first M of them.
    fn keys(&self, random: &mut Random) -> Vec<i64> {
        let mut keys = Vec::with_capacity(self.reads);
        while keys.len() < self.reads {
            let key = key(random, self.rows, self.hot_rows, self.hot_pct);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    fn next(&self, random: &mut Random) -> Request {
        if self.scans && random.chance(90) {
            let low = random.between(1, (self.rows - RANGE + 1).max(1));
            return Request::Scan(low, self.rows.min(low + RANGE - 1));
        }
        Request::Update(self.keys(random))
    }
}

/// One transaction.
enum Request {
    Update(Vec<i64>),
    Scan(i64, i64),
}

impl Request {
    fn kind(&self) -> usize {
        match self {
            Request::Update(_) => 0,
            Request::Scan(..) => 1,
        }
    }
}

fn kinds(shape: &Shape) -> Vec<String> {
    let kinds = ["update", "scan"];
    kinds[..if shape.scans { 2 } else { 1 }].iter().map(|&kind| kind.to_owned()).collect()
}

/// Through the wire, with prepared statements.
#[derive(Debug)]
pub struct Wire {
    /// For messages.
    pub system: String,
    /// How to connect.
    pub config: Config,
    /// What is done.
    pub shape: Shape,
    /// Of every transaction.
    pub isolation: Isolation,
    /// Tells the clients of different rounds apart.
    pub round: u64,
}

/// One connection.
pub struct WireClient {
    system: String,
    client: tokio_postgres::Client,
    begin: Statement,
    read: Statement,
    update: Statement,
    scan: Statement,
    commit: Statement,
    shape: Shape,
    random: Random,
}

impl Workload for Wire {
    type Client = WireClient;

    fn kinds(&self) -> Vec<String> {
        kinds(&self.shape)
    }

    async fn open(&self, index: usize) -> Result<WireClient> {
        let client = peer::connect(&self.config).await.at(&self.system, "connecting a client")?;
        let level = self.isolation.sql();
        let set = format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}");
        client.batch_execute(&set).await.at(&self.system, "choosing the isolation level")?;
        let prepare = async |sql: &str| client.prepare(sql).await.at(&self.system, sql);
        let (begin, commit) = (prepare("BEGIN").await?, prepare("COMMIT").await?);
        let (read, update, scan) = (prepare(READ).await?, prepare(UPDATE).await?, prepare(SCAN).await?);
        let random = Random::stream(self.shape.seed, 80 + self.round, index as u64);
        let system = self.system.clone();
        Ok(WireClient { system, client, begin, read, update, scan, commit, shape: self.shape, random })
    }
}

impl WireClient {
    async fn run(&self, request: &Request) -> Result<(), tokio_postgres::Error> {
        self.client.execute(&self.begin, &[]).await?;
        match request {
            Request::Scan(low, high) => {
                self.client.query_one(&self.scan, &[low, high]).await?;
            }
            Request::Update(keys) => {
                let mut values = Vec::with_capacity(keys.len());
                for key in keys {
                    values.push(self.client.query_one(&self.read, &[key]).await?.try_get::<_, i64>(0)?);
                }
                for (key, value) in keys.iter().zip(&values).take(self.shape.updates) {
                    self.client.execute(&self.update, &[key, &(value + 1)]).await?;
                }
            }
        }
        self.client.execute(&self.commit, &[]).await.map(drop)
    }
}

impl Client for WireClient {
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        let request = self.shape.next(&mut self.random);
        let since = Instant::now();
        match self.run(&request).await {
            Ok(()) => recorder.borrow_mut().committed(request.kind(), since),
            Err(error) => {
                recorder.borrow_mut().failed(request.kind(), &error);
                self.client.batch_execute("ROLLBACK").await.at(&self.system, "rolling back")?;
            }
        }
        Ok(())
    }
}

/// In this process, through the library.
pub struct Embedded {
    /// The database, loaded.
    pub database: Database,
    /// What is done.
    pub shape: Shape,
    /// Of every transaction.
    pub isolation: Isolation,
    /// Tells the clients of different rounds apart.
    pub round: u64,
}

/// One session.
pub struct EmbeddedClient {
    session: Session,
    shape: Shape,
    random: Random,
    /// What its transactions count as.
    kind: usize,
}

fn failed(error: cognate::Error) -> Error {
    Error::Server(error.to_string())
}

impl Workload for Embedded {
    type Client = EmbeddedClient;

    fn kinds(&self) -> Vec<String> {
        vec!["transaction".to_owned()]
    }

    async fn open(&self, index: usize) -> Result<EmbeddedClient> {
        let mut session = self.database.session().map_err(failed)?;
        let level = self.isolation.sql();
        let set = format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}");
        session.execute_async(set.as_str(), &[]).await.map_err(failed)?;
        let random = Random::stream(self.shape.seed, 80 + self.round, index as u64);
        Ok(EmbeddedClient { session, shape: self.shape, random, kind: 0 })
    }
}

impl EmbeddedClient {
    async fn run(&mut self, request: &Request) -> Result<(), cognate::Error> {
        self.session.execute_async("BEGIN", &[]).await?;
        match request {
            Request::Scan(low, high) => {
                self.session.query_one_async(SCAN, &[low, high]).await?;
            }
            Request::Update(keys) => {
                let mut values = Vec::with_capacity(keys.len());
                for key in keys {
                    values.push(self.session.query_one_async(READ, &[key]).await?.get::<i64>(0)?);
                }
                for (key, value) in keys.iter().zip(&values).take(self.shape.updates) {
                    self.session.execute_async(UPDATE, &[key, &(value + 1)]).await?;
                }
            }
        }
        self.session.execute_async("COMMIT", &[]).await.map(drop)
    }
}

impl Countable for EmbeddedClient {
    fn count_as(&mut self, kind: usize) {
        self.kind = kind;
    }
}

impl Client for EmbeddedClient {
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        let request = self.shape.next(&mut self.random);
        let since = Instant::now();
        match self.run(&request).await {
            Ok(()) => recorder.borrow_mut().committed(self.kind, since),
            Err(error) if matches!(error.sqlstate, "40001" | "40P01") => {
                let reason = Abort::classify(error.sqlstate, &error.message);
                recorder.borrow_mut().aborted(self.kind, reason);
                self.session.execute_async("ROLLBACK", &[]).await.map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        // The library runs statements on the caller's thread: others on it get their turn.
        tokio::task::yield_now().await;
        Ok(())
    }
}
