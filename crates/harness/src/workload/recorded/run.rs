//! The random load with real concurrency: clients on a few threads, against the embedded library or
//! over the wire.
//!
//! Each client draws its transactions from its own stream of the seed; what they meet depends on
//! the machine. The oracle judges the whole history afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::connection::{Connection, Embedded, Wire};
use super::generate::Shape;
use super::recorder::{Counters, Recorder};
use super::{SCHEMA, TABLES};
use crate::checker::history::{History, Object, Transaction, Write, stamp};
use crate::error::{Error, Result};
use crate::peer;
use crate::random::Random;
use crate::workload::bookstore::Isolation;

/// What the load runs on.
#[derive(Clone)]
pub enum Target {
    /// A database in this process.
    Embedded(cognate::Database),
    /// A server.
    Wire(Box<tokio_postgres::Config>),
}

/// How long, by how many.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The data.
    pub shape: Shape,
    /// Sessions.
    pub clients: usize,
    /// Threads that they are spread over.
    pub threads: usize,
    /// How long new transactions begin ...
    pub time: Duration,
    /// ... and the most of each client.
    pub transactions: u64,
    /// Of every transaction.
    pub isolation: Isolation,
    /// Of the data and the transactions.
    pub seed: u64,
}

/// Makes and fills the tables, runs the load, and returns what was recorded.
///
/// # Errors
/// What the database answers that the load should not meet.
pub async fn run(target: &Target, plan: &Plan) -> Result<History> {
    let rows = plan.shape.rows(&mut Random::stream(plan.seed, 90, 0));
    let loaded = match target {
        Target::Embedded(database) => {
            load(&mut Embedded::new(database, false).map_err(failed)?, &rows).await?
        }
        Target::Wire(config) => load(&mut Wire::new(connect(config).await?), &rows).await?,
    };
    let counters = Arc::new(Counters::default());
    let until = Instant::now().checked_add(plan.time);
    let threads = plan.threads.clamp(1, plan.clients.max(1));
    let mut ended = Vec::new();
    for thread in 0..threads {
        let share: Vec<usize> = (thread..plan.clients).step_by(threads).collect();
        let (target, plan, counters) = (target.clone(), *plan, Arc::clone(&counters));
        let (send, receive) = oneshot::channel();
        std::thread::Builder::new()
            .name(format!("recorded-{thread}"))
            .spawn(move || drop(send.send(run_thread(&target, &plan, &share, &counters, until))))
            .map_err(|source| Error::Io { doing: "starting a client thread".to_owned(), source })?;
        ended.push(receive);
    }
    let mut history = History { loaded, transactions: Vec::new() };
    for thread in ended {
        let transactions = thread.await.map_err(|_| Error::Server("a client thread failed".to_owned()))??;
        history.transactions.extend(transactions);
    }
    history.transactions.sort_by_key(|transaction| transaction.answered);
    Ok(history)
}

fn failed(error: cognate::Error) -> Error {
    Error::Server(error.to_string())
}

async fn connect(config: &tokio_postgres::Config) -> Result<tokio_postgres::Client> {
    peer::connect(config).await.map_err(|error| Error::Server(crate::error::describe(&error)))
}

async fn load(connection: &mut impl Connection, rows: &[(Object, i64)]) -> Result<Vec<Write>> {
    let said = |failure: super::connection::Failure| Error::Server(failure.message);
    for table in TABLES.iter().rev() {
        connection.query(&format!("DROP TABLE IF EXISTS {table}"), &[]).await.map_err(said)?;
    }
    for statement in SCHEMA {
        connection.query(statement, &[]).await.map_err(said)?;
    }
    let mut loaded = Vec::new();
    for (count, &(object, group)) in rows.iter().enumerate() {
        let stamp = stamp(0, count as u64 + 1);
        let text =
            format!("INSERT INTO {} (id, grp, ver) VALUES ($1, $2, $3)", TABLES[object.table as usize]);
        connection.query(&text, &[object.key, group, stamp]).await.map_err(said)?;
        loaded.push(Write { object, stamp, replaced: None, row: Some(vec![object.key, group]) });
    }
    Ok(loaded)
}

fn run_thread(
    target: &Target,
    plan: &Plan,
    share: &[usize],
    counters: &Arc<Counters>,
    until: Option<Instant>,
) -> Result<Vec<Transaction>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::Io { doing: "starting a client runtime".to_owned(), source })?;
    LocalSet::new().block_on(&runtime, async {
        let mut clients = Vec::new();
        for &index in share {
            let random = Random::stream(plan.seed, 91, index as u64);
            let (plan, counters) = (*plan, Arc::clone(counters));
            match target {
                Target::Embedded(database) => {
                    let connection = Embedded::new(database, false).map_err(failed)?;
                    clients.push(tokio::task::spawn_local(client(connection, plan, counters, random, until)));
                }
                Target::Wire(config) => {
                    let connection = Wire::new(connect(config).await?);
                    clients.push(tokio::task::spawn_local(client(connection, plan, counters, random, until)));
                }
            }
        }
        let mut transactions = Vec::new();
        for client in clients {
            let ended = client.await.map_err(|panic| Error::Server(format!("a client failed: {panic}")))?;
            transactions.extend(ended?);
        }
        Ok(transactions)
    })
}

async fn client<C: Connection>(
    connection: C,
    plan: Plan,
    counters: Arc<Counters>,
    mut random: Random,
    until: Option<Instant>,
) -> Result<Vec<Transaction>> {
    let mut recorder = Recorder::new(connection, plan.isolation, counters);
    let mut left = plan.transactions;
    while left > 0 && until.is_none_or(|until| Instant::now() < until) {
        left -= 1;
        for step in plan.shape.transaction(&mut random) {
            recorder.step(step).await?;
        }
    }
    Ok(recorder.ended)
}
