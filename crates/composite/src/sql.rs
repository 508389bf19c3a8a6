//! The local transaction of a call, as its service uses it.
//!
//! It begins with the first statement, in the same round trip; it ends with the last statement of
//! ours (the slot) in the same round trip as COMMIT. A failed statement makes COMMIT a rollback, on
//! PostgreSQL as on Cognate, and then our own statement has failed before it: so a commit is never
//! believed that was none. Where no slot is written, our statement is in the same message as COMMIT
//! (see `slots`): if it fails, COMMIT is not even tried, and the block has to be rolled back.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use crate::database::{Connection, Lease, Parameters, Pool};
use crate::fault;
use crate::problem::{Error, Problem, Result};

/// How a local transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Reads and writes.
    Serializable,
    /// The same, by declaration: each statement sees what is committed when it begins.
    ReadCommitted,
    /// Only reads.
    ReadOnly,
}

impl Begin {
    fn statement(self, connection: &Connection) -> &'static str {
        match self {
            Begin::ReadCommitted if connection.is_read_committed() => "BEGIN",
            Begin::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE",
            Begin::ReadCommitted => "BEGIN ISOLATION LEVEL READ COMMITTED",
            Begin::ReadOnly => "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
        }
    }
}

/// How a COMMIT went wrong.
#[derive(Debug)]
pub(crate) enum NotCommitted {
    /// It is rolled back.
    RolledBack(Error),
    /// Its answer was lost.
    Unknown,
}

/// SQL in a local transaction.
#[derive(Debug)]
pub struct Sql {
    pool: Arc<Pool>,
    begin: Begin,
    is_within: bool,
    lease: Mutex<Option<Lease>>,
}

impl Sql {
    /// `is_within`: another call of the same root, which waits for this one, may have a connection.
    pub(crate) fn new(pool: &Arc<Pool>, begin: Begin, is_within: bool) -> Sql {
        Sql { pool: Arc::clone(pool), begin, is_within, lease: Mutex::new(None) }
    }

    /// In a local transaction that is under way on this connection.
    pub(crate) fn begun(pool: &Arc<Pool>, lease: Lease) -> Sql {
        let (begin, lease) = (Begin::Serializable, Mutex::new(Some(lease)));
        Sql { pool: Arc::clone(pool), begin, is_within: false, lease }
    }

    /// The connection, with whatever is under way on it.
    pub(crate) async fn take_lease(&self) -> Result<Lease> {
        let lease = self.lease.lock().await.take();
        lease.ok_or_else(|| Problem::new(503, "database", "the connection is gone").into())
    }

    /// A connection on which nothing is begun, and which has this statement prepared. It is not
    /// this local transaction's as long as BEGIN is not on its way: if the statement makes no
    /// sense, or whoever wants it goes away, and the service goes on all the same, its next
    /// statement would be committed by itself.
    async fn lease_for(&self, sql: &str) -> Result<Lease> {
        let lease = self.pool.take_as(self.is_within).await?;
        let prepared = lease.statement(sql).await;
        match prepared {
            Ok(_) => Ok(lease),
            Err(error) => {
                lease.give_back();
                Err(error.into())
            }
        }
    }

    /// All rows.
    ///
    /// # Errors
    /// The database's; the component's database is away.
    pub async fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>> {
        let mut slot = self.lease.lock().await;
        match &mut *slot {
            Some(lease) => Ok(lease.query(sql, parameters).await?),
            None => {
                let lease = slot.insert(self.lease_for(sql).await?);
                let begin = self.begin.statement(lease);
                let (begun, rows) = tokio::join!(
                    biased;
                    lease.batch(begin),
                    lease.query(sql, parameters),
                );
                if let Err(error) = begun {
                    drop(slot.take());
                    return Err(error.into());
                }
                Ok(rows?)
            }
        }
    }

    /// The number of rows that were changed.
    ///
    /// # Errors
    /// As [`Sql::query`].
    pub async fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Result<u64> {
        let mut slot = self.lease.lock().await;
        match &mut *slot {
            Some(lease) => Ok(lease.execute(sql, parameters).await?),
            None => {
                let lease = slot.insert(self.lease_for(sql).await?);
                let begin = self.begin.statement(lease);
                let (begun, changed) = tokio::join!(
                    biased;
                    lease.batch(begin),
                    lease.execute(sql, parameters),
                );
                if let Err(error) = begun {
                    drop(slot.take());
                    return Err(error.into());
                }
                Ok(changed?)
            }
        }
    }

    /// The only row, or none.
    ///
    /// # Errors
    /// As [`Sql::query`]; there are more rows.
    pub async fn query_opt(&self, sql: &str, parameters: Parameters<'_>) -> Result<Option<Row>> {
        let mut rows = self.query(sql, parameters).await?;
        match rows.len() {
            0 | 1 => Ok(rows.pop()),
            more => Err(Problem::new(400, "failed", format!("{more} rows where one was expected")).into()),
        }
    }

    /// The only row.
    ///
    /// # Errors
    /// As [`Sql::query`]; there is not exactly one row.
    pub async fn query_one(&self, sql: &str, parameters: Parameters<'_>) -> Result<Row> {
        let row = self.query_opt(sql, parameters).await?;
        row.ok_or_else(|| Problem::new(400, "failed", "no row where one was expected").into())
    }

    /// Runs our own statements and COMMIT, in one round trip.
    pub(crate) async fn commit(
        &self,
        statements: &[(&str, Parameters<'_>)],
    ) -> std::result::Result<(), NotCommitted> {
        self.end(statements, "COMMIT", false).await
    }

    /// The same, if no later process has taken the component over.
    pub(crate) async fn commit_fenced(
        &self,
        statements: &[(&str, Parameters<'_>)],
    ) -> std::result::Result<(), NotCommitted> {
        self.end(statements, self.pool.fenced_commit(), true).await
    }

    /// The same with another end: the statement that prepares the local transaction.
    pub(crate) async fn end_with(
        &self,
        statements: &[(&str, Parameters<'_>)],
        end: &str,
    ) -> std::result::Result<(), NotCommitted> {
        self.end(statements, end, false).await
    }

    /// `is_fenced`: the end begins with a statement of ours.
    async fn end(
        &self,
        statements: &[(&str, Parameters<'_>)],
        end: &str,
        is_fenced: bool,
    ) -> std::result::Result<(), NotCommitted> {
        let rolled_back = |error: Error| NotCommitted::RolledBack(error);
        let mut slot = self.lease.lock().await;
        let is_begun = slot.is_some();
        if !is_begun {
            if statements.is_empty() && !is_fenced {
                return Ok(());
            }
            *slot =
                Some(self.pool.take_as(self.is_within).await.map_err(|problem| rolled_back(problem.into()))?);
        }
        let Some(lease) = slot.take() else { return Ok(()) };
        for (sql, _) in statements {
            lease.statement(sql).await.map_err(|error| rolled_back(error.into()))?;
        }
        let begin = self.begin.statement(&lease);
        let begin = async { if is_begun { Ok(()) } else { lease.batch(begin).await } };
        let ours = futures_util::future::join_all(
            statements.iter().map(|(sql, parameters)| lease.query(sql, parameters)),
        );
        let commit = async {
            fault::point("commit-before");
            lease.batch(end).await
        };
        let (begun, ours, committed) = tokio::join!(biased; begin, ours, commit);
        fault::point("commit-after");
        let first = begun.err().or_else(|| ours.into_iter().find_map(|one| one.err()));
        match (first, committed) {
            (None, Ok(())) => {
                lease.give_back();
                Ok(())
            }
            // A statement failed, so COMMIT has rolled back; if its answer is lost, too, nothing is
            // committed anyway.
            (Some(error), Ok(())) if error.code().is_some() => {
                lease.give_back();
                Err(rolled_back(error.into()))
            }
            (Some(error), _) if error.code().is_some() => Err(rolled_back(error.into())),
            // Somebody has made the connection forget what was prepared on it: it is closed.
            (_, Err(error)) if error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME) => {
                Err(rolled_back(error.into()))
            }
            (_, Err(error)) if is_known(&error) => {
                match is_fenced {
                    true => lease.roll_back().await,
                    false => lease.give_back(),
                }
                Err(rolled_back(error.into()))
            }
            _ => Err(NotCommitted::Unknown),
        }
    }

    /// Rolls back, if anything was begun.
    pub(crate) async fn roll_back(&self) {
        let lease = self.lease.lock().await.take();
        if let Some(lease) = lease {
            lease.roll_back().await;
        }
    }
}

/// Whether an error of COMMIT says that it was rolled back.
fn is_known(error: &tokio_postgres::Error) -> bool {
    let Some(code) = error.code() else { return false };
    !code.code().starts_with("08") && !code.code().starts_with("57P") && !code.code().starts_with("58")
}
