//! A site that is reached by the PostgreSQL protocol.
//!
//! `mip` is how Cognate is spoken to, in MIP's own statements; `plain` is what plain PostgreSQL
//! allows, which is less. Which of them a server is shows when a connection is opened: only Cognate
//! has `cognate_mip_begin`.
//!
//! # Losses
//!
//! An error without SQLSTATE means that nothing is known of what was asked: `Unreachable`. The same
//! holds for a server that shuts down under a statement. A connection that is dropped while a
//! statement is under way asks the server to cancel it, so that no lock is kept for a reply that
//! nobody reads; then it is closed.

mod mip;
pub mod plain;

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error, NoTls, Row, Statement};

use crate::etransaction::{Refused, SiteReply, Table};
use crate::site::{Connection, Job, Look, Site, Trouble};

/// Most statements that a connection keeps prepared.
const STATEMENTS_MAX: usize = 256;
/// How long an abandoned statement's cancellation may take.
const CANCEL: Duration = Duration::from_secs(2);

/// An error in words, with the server's message and SQLSTATE if it has one.
pub fn in_words(error: &Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// The SQLSTATE of an error, or "" if the server did not send one.
fn state(error: &Error) -> &str {
    error.code().map_or("", |code| code.code())
}

/// Whether it is unknown what became of the statement.
fn is_lost(error: &Error) -> bool {
    let state = state(error);
    state.is_empty() || state.starts_with("08") || matches!(state, "57P01" | "57P02" | "57P03")
}

/// An error that has no meaning of its own.
fn failed(error: &Error) -> SiteReply {
    match is_lost(error) {
        true => SiteReply::Unreachable,
        false => SiteReply::Refused(Refused::Failed(in_words(error).into())),
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble(in_words(&error).into())
    }
}

/// A database to be reached by a PostgreSQL connection string or configuration, without TLS.
#[derive(Debug, Clone)]
pub struct PostgresSite {
    config: Config,
}

impl PostgresSite {
    /// From a configuration.
    pub fn new(config: Config) -> PostgresSite {
        PostgresSite { config }
    }
}

impl FromStr for PostgresSite {
    type Err = Error;

    /// From a connection string: `host=127.0.0.1 port=5433 user=shop dbname=postgres`, or a
    /// `postgresql://` URL.
    fn from_str(text: &str) -> Result<PostgresSite, Error> {
        let mut config: Config = text.parse()?;
        if config.get_application_name().is_none() {
            config.application_name("cognate-client");
        }
        Ok(PostgresSite::new(config))
    }
}

impl Site for PostgresSite {
    type Connection = PostgresConnection;

    async fn connect(&self) -> Result<PostgresConnection, Trouble> {
        let (client, connection) = self.config.connect(NoTls).await?;
        let io = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a site's connection ended: {}", in_words(&error));
            }
        });
        let statements = Mutex::new(HashMap::new());
        let kind = Kind::Mip;
        let mut opened = PostgresConnection { client, io, kind, statements, calls: AtomicUsize::new(0) };
        if !mip::is_spoken(&opened).await? {
            let version = plain::introduce(&opened).await?;
            opened.kind = Kind::Plain { version };
        }
        Ok(opened)
    }
}

#[derive(Debug)]
enum Kind {
    Mip,
    Plain { version: String },
}

/// A connection to a [`PostgresSite`], and what a request's logic executes SQL by: inside the
/// instance's transaction, which it must not end itself.
#[derive(Debug)]
pub struct PostgresConnection {
    client: Client,
    io: JoinHandle<()>,
    kind: Kind,
    statements: Mutex<HashMap<String, Statement>>,
    /// Statements under way, and those that nobody waits for any more.
    calls: AtomicUsize,
}

/// Parameters of a statement.
pub type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl PostgresConnection {
    /// All rows.
    ///
    /// # Errors
    /// The server's, or the connection is lost.
    pub async fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Error> {
        let work = async {
            let statement = self.statement(sql).await?;
            self.client.query(&statement, parameters).await
        };
        self.call(sql, work).await
    }

    /// The only row, or none.
    ///
    /// # Errors
    /// The server's; there are more rows; or the connection is lost.
    pub async fn query_opt(&self, sql: &str, parameters: Parameters<'_>) -> Result<Option<Row>, Error> {
        let work = async {
            let statement = self.statement(sql).await?;
            self.client.query_opt(&statement, parameters).await
        };
        self.call(sql, work).await
    }

    /// The only row.
    ///
    /// # Errors
    /// The server's; there is not exactly one row; or the connection is lost.
    pub async fn query_one(&self, sql: &str, parameters: Parameters<'_>) -> Result<Row, Error> {
        let work = async {
            let statement = self.statement(sql).await?;
            self.client.query_one(&statement, parameters).await
        };
        self.call(sql, work).await
    }

    /// The number of rows that were changed.
    ///
    /// # Errors
    /// The server's, or the connection is lost.
    pub async fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Result<u64, Error> {
        let work = async {
            let statement = self.statement(sql).await?;
            self.client.execute(&statement, parameters).await
        };
        self.call(sql, work).await
    }

    /// Statements without parameters and rows.
    async fn batch(&self, sql: &str) -> Result<(), Error> {
        self.call(sql, self.client.batch_execute(sql)).await
    }

    /// Counts a call as long as it is under way. If it is dropped before its end, it stays counted.
    async fn call<T>(&self, sql: &str, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let outcome = work.await;
        self.calls.fetch_sub(1, Ordering::Relaxed);
        if outcome.is_err() {
            // Its plan may be out of date.
            self.with_statements(|statements| statements.remove(sql));
        }
        outcome
    }

    fn with_statements<T>(&self, work: impl FnOnce(&mut HashMap<String, Statement>) -> T) -> T {
        work(&mut self.statements.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn statement(&self, sql: &str) -> Result<Statement, Error> {
        if let Some(known) = self.with_statements(|statements| statements.get(sql).cloned()) {
            return Ok(known);
        }
        let statement = self.client.prepare(sql).await?;
        self.with_statements(|statements| {
            if statements.len() >= STATEMENTS_MAX {
                statements.clear();
            }
            statements.insert(sql.to_owned(), statement.clone());
        });
        Ok(statement)
    }
}

impl Drop for PostgresConnection {
    fn drop(&mut self) {
        // Otherwise the end of the client ends the connection.
        if *self.calls.get_mut() == 0 {
            return;
        }
        let io = self.io.abort_handle();
        let cancel = self.client.cancel_token();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                let _ = tokio::time::timeout(CANCEL, cancel.cancel_query(NoTls)).await;
                io.abort();
            })),
            Err(_) => io.abort(),
        }
    }
}

impl Connection for PostgresConnection {
    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    fn describe(&self) -> String {
        match &self.kind {
            Kind::Mip => "Cognate: sibling transactions".to_owned(),
            Kind::Plain { version } => plain::described(version),
        }
    }

    async fn show(&self, xid: &str) -> SiteReply {
        match self.kind {
            Kind::Mip => mip::show(self, xid).await,
            Kind::Plain { .. } => SiteReply::Table(Table::default()),
        }
    }

    async fn begin(&self, job: &Job) -> SiteReply {
        match self.kind {
            Kind::Mip => mip::begin(self, job).await,
            Kind::Plain { .. } => plain::begin(self, job).await,
        }
    }

    async fn prepare(&self, job: &Job, stored: &str) -> SiteReply {
        match self.kind {
            Kind::Mip => mip::prepare(self, job, stored).await,
            Kind::Plain { .. } => plain::prepare(self, job, stored).await,
        }
    }

    async fn refuse(&self, job: &Job, upto: i64, stored: Option<&str>) -> SiteReply {
        match self.kind {
            Kind::Mip => mip::refuse(self, &job.xid, upto).await,
            Kind::Plain { .. } => plain::refuse(self, job, stored).await,
        }
    }

    async fn withdraw(&self, xid: &str, instance: i64, stored: &str) -> SiteReply {
        match self.kind {
            Kind::Mip => mip::withdraw(self, xid, instance).await,
            Kind::Plain { .. } => plain::withdraw(self, xid, instance, stored).await,
        }
    }

    async fn commit(&self, xid: &str, winner: i64) -> SiteReply {
        match self.kind {
            Kind::Mip => mip::commit(self, xid, winner).await,
            Kind::Plain { .. } => plain::commit(self, xid, winner).await,
        }
    }

    async fn rollback(&self) -> bool {
        self.batch("ROLLBACK").await.is_ok()
    }

    async fn look(&self, xid: &str) -> Result<Look, Trouble> {
        match self.kind {
            Kind::Mip => mip::look(self, xid).await,
            Kind::Plain { .. } => plain::look(self, xid).await,
        }
    }

    async fn forget(&self, xid: &str) -> Result<(), Trouble> {
        match self.kind {
            Kind::Mip => mip::forget(self, xid).await,
            Kind::Plain { .. } => plain::forget(self, xid).await,
        }
    }
}
