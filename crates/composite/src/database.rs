//! A component's local database: connections by PostgreSQL's protocol, to a server or to an engine
//! in this process.
//!
//! # Rules
//!
//! 1. *Known to be idle, or thrown away.* Only [`Lease::give_back`] returns a connection to the
//!    pool. A lease that is dropped, for whatever reason, has its statement cancelled and its
//!    connection closed.
//! 2. *Bounded.* At most `connections_max` at a time, and a few more for calls that others wait for
//!    who have a connection of their own here; who waits for one waits a bound of the pool's own.
//! 3. *Not waited for for ever* where the same can be said again: see [`Lease::in_time`].
//! 4. *Few answers.* BEGIN and the end of a transaction go along with statements (see `along`).
//! 5. *Told apart.* Connections are named after component and generation, so that a later process
//!    of the same component can end those of an earlier one. What else tells them apart is in
//!    [`Terms`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cognate_server::embedded::Embedded;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error, NoTls, Row, SimpleQueryMessage, Statement};

use crate::along::{Along, Beneath, Ended, Stream};
use crate::problem::Problem;

/// Most statements that a connection keeps prepared.
const STATEMENTS_MAX: usize = 256;
/// One connection more for so many, and at least one for such a call and one for the pool of slots,
/// which may have to grow.
const RESERVED: usize = 4;
const RESERVED_MIN: usize = 2;
/// How long an abandoned statement's cancellation may take.
const CANCEL: Duration = Duration::from_secs(2);
/// How long one waits for ROLLBACK, which is at once, but for a statement that is still under way.
const ROLL_BACK: Duration = Duration::from_millis(500);
/// When a connection to a server is taken for lost whose other side is silent on the network, if
/// its address says nothing of that: it is looked at after so long, so often, with such pauses.
const SILENT: Duration = Duration::from_secs(30);
const SILENT_LOOKS: u32 = 3;
const SILENT_PAUSE: Duration = Duration::from_secs(10);
/// How long one waits for a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one waits for the answer to a statement of ours that may as well be carried out late.
const ANSWER: Duration = Duration::from_secs(5);
/// What every connection begins with: waits that only the database sees are bounded here.
const SETTINGS: &str = "SET lock_timeout = '2s'; SET idle_in_transaction_session_timeout = '60s'";
/// On PostgreSQL itself: what BEGIN alone begins. Behind a pooler, or if a service says otherwise,
/// it begins what is at least as strict. Said with each BEGIN it would be a setting of that
/// transaction, and the end of one that has any goes through all settings that there are.
const READ_COMMITTED: &str = "SET default_transaction_isolation = 'read committed'";
/// COMMIT after a look at the generation, over connections that have none: nothing is committed.
const NO_FENCE: &str = "EXECUTE cognate_composite_fence; COMMIT";

/// What the connections of a component that was taken over begin with, and how they commit what
/// writes no slot (see `sessions`).
#[derive(Debug)]
pub(crate) struct Terms {
    /// On PostgreSQL: holds the connection's session for this generation, and prepares a statement
    /// that looks at nothing. It fails if there was a later start.
    pub(crate) hold: Option<String>,
    /// Prepares a look at the generation instead.
    pub(crate) look: String,
    /// The message that executes what was prepared, and commits.
    pub(crate) commit: String,
}

impl Terms {
    async fn set(&self, client: &Client) -> Result<(), Error> {
        if let Some(hold) = &self.hold {
            client.batch_execute(READ_COMMITTED).await?;
            if client.batch_execute(hold).await.is_ok() {
                return Ok(());
            }
            client.batch_execute("ROLLBACK").await?;
        }
        client.batch_execute(&self.look).await
    }
}

/// Parameters of a statement.
pub(crate) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Where a component's data are.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// A server.
    Server(Box<Config>),
    /// An engine in this process.
    Embedded(Embedded),
}

impl Target {
    /// From `embedded:DIR` or `postgresql://…`.
    pub(crate) async fn open(url: &str) -> Result<Target, String> {
        if let Some(folder) = url.strip_prefix("embedded:") {
            if folder.is_empty() {
                return Err("embedded: needs a folder".to_owned());
            }
            return Embedded::open(folder).await.map(Target::Embedded).map_err(|error| error.to_string());
        }
        if !url.starts_with("postgresql://") && !url.starts_with("postgres://") {
            // It is not repeated: there may be a password in it.
            return Err("not the address of a database (embedded:DIR or postgresql://…)".to_owned());
        }
        let mut config = Config::from_str(url).map_err(|error| unreadable(&error))?;
        if !url.contains("keepalives") {
            let config = config.keepalives_idle(SILENT).keepalives_interval(SILENT_PAUSE);
            config.keepalives_retries(SILENT_LOOKS);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENT + SILENT_LOOKS * SILENT_PAUSE);
        }
        Ok(Target::Server(Box::new(config)))
    }

    async fn connect(&self, application_name: &str, terms: Option<&Terms>) -> Result<Connection, String> {
        let (client, io, along) = match self {
            Target::Server(config) => {
                let mut config = config.as_ref().clone();
                config.application_name(application_name);
                let along = Along::of(&mut config);
                let (client, io) = match along.clone() {
                    Some(along) => {
                        let connecting = config.connect(Beneath(along)).await;
                        let (client, connection) = connecting.map_err(|error| in_words(&error))?;
                        (client, tokio::spawn(async move { drop(connection.await) }))
                    }
                    None => {
                        let connecting = config.connect(NoTls).await;
                        let (client, connection) = connecting.map_err(|error| in_words(&error))?;
                        (client, tokio::spawn(async move { drop(connection.await) }))
                    }
                };
                (client, io, along)
            }
            Target::Embedded(embedded) => {
                let pipe = embedded.connect().map_err(|error| error.to_string())?;
                let mut config = Config::new();
                config.user("cognate").dbname("postgres").application_name(application_name);
                let along = Along::default();
                let connecting = config.connect_raw(Stream::new(pipe, along.clone()), NoTls).await;
                let (client, connection) = connecting.map_err(|error| in_words(&error))?;
                (client, tokio::spawn(async move { drop(connection.await) }), Some(along))
            }
        };
        client.batch_execute(SETTINGS).await.map_err(|error| in_words(&error))?;
        if let Some(terms) = terms {
            terms.set(&client).await.map_err(|error| in_words(&error))?;
        }
        let is_read_committed = terms.is_some_and(|terms| terms.hold.is_some());
        let (statements, unanswered) = (Mutex::default(), AtomicUsize::default());
        Ok(Connection { client, io, along, unanswered, statements, is_read_committed })
    }

    /// Ends the database, if it is this component's own.
    pub(crate) async fn close(self) {
        if let Target::Embedded(embedded) = self
            && let Err(error) = embedded.close().await
        {
            tracing::error!("{error}");
        }
    }
}

/// An error in words, with the server's message and SQLSTATE if it has one.
pub(crate) fn in_words(error: &Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(db), _) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

/// Why an address cannot be read, without anything of it: there may be a password in it, in a place
/// where the parser looks for something else. Names of options that it knows are no part of that.
fn unreadable(error: &Error) -> String {
    let why = std::error::Error::source(error).map(|source| source.to_string());
    let why = why.filter(|why| why.starts_with("invalid value for option"));
    let why = why.unwrap_or_else(|| "it is not postgresql://USER:PASSWORD@HOST:PORT/NAME".to_owned());
    format!("the address of the database cannot be read: {why}")
}

/// Whether a statement has to be prepared anew, since its rows have other columns now. The message
/// may be in another language; what PostgreSQL's own function is called is not.
pub(crate) fn is_out_of_date(error: &Error) -> bool {
    error.as_db_error().is_some_and(|db| {
        *db.code() == SqlState::FEATURE_NOT_SUPPORTED
            && (db.message() == "cached plan must not change result type"
                || db.routine() == Some("RevalidateCachedQuery"))
    })
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    io: JoinHandle<()>,
    /// None over what nothing can be put beneath.
    along: Option<Along>,
    /// Statements whose answers are waited for, or were, until nobody did any more.
    unanswered: AtomicUsize,
    statements: Mutex<HashMap<String, Statement>>,
    is_read_committed: bool,
}

impl Connection {
    fn with_statements<T>(&self, work: impl FnOnce(&mut HashMap<String, Statement>) -> T) -> T {
        work(&mut self.statements.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether BEGIN alone begins a transaction at READ COMMITTED.
    pub(crate) fn is_read_committed(&self) -> bool {
        self.is_read_committed
    }

    /// Waits for the answer to a statement.
    async fn answered<T>(&self, answering: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let answer = answering.await;
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    /// Begins a transaction together with the statement that is sent next, if that can be.
    pub(crate) async fn begin(&self, begin: Cow<'static, str>) -> Result<(), Error> {
        match &self.along {
            Some(along) => {
                along.begin(begin);
                Ok(())
            }
            None => self.batch(&begin).await,
        }
    }

    /// Whether it has begun. Whoever has the answer to that statement, or its error, knows.
    pub(crate) fn has_begun(&self) -> bool {
        self.along.as_ref().is_none_or(Along::has_begun)
    }

    /// Has the last one of so many statements that come next end the transaction. Answers whether
    /// that can be: not behind a statement that was given up, which may not even have left, and
    /// would be taken for the last one of these.
    pub(crate) fn ends_with(&self, statements: usize, end: Cow<'static, str>) -> bool {
        let Some(along) = &self.along else { return false };
        if self.unanswered.load(Ordering::Relaxed) > 0 {
            return false;
        }
        along.end(statements, end);
        true
    }

    /// What has become of that.
    pub(crate) fn ended(&self) -> Ended {
        self.along.as_ref().map_or(Ended::No, Along::ended)
    }

    /// A statement that is prepared once.
    pub(crate) async fn statement(&self, sql: &str) -> Result<Statement, Error> {
        if let Some(known) = self.with_statements(|statements| statements.get(sql).cloned()) {
            return Ok(known);
        }
        let statement = self.answered(self.client.prepare(sql)).await?;
        self.with_statements(|statements| {
            if statements.len() >= STATEMENTS_MAX {
                statements.clear();
            }
            statements.insert(sql.to_owned(), statement.clone());
        });
        Ok(statement)
    }

    /// All rows.
    pub(crate) async fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Error> {
        let statement = self.statement(sql).await?;
        let rows = self.answered(self.client.query(&statement, parameters)).await;
        rows.inspect_err(|error| self.forget(sql, error))
    }

    /// All rows of a statement that is prepared: nothing else is sent.
    pub(crate) async fn query_prepared(
        &self,
        (sql, statement): (&str, &Statement),
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        let rows = self.answered(self.client.query(statement, parameters)).await;
        rows.inspect_err(|error| self.forget(sql, error))
    }

    /// The number of rows that were changed.
    pub(crate) async fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Result<u64, Error> {
        let statement = self.statement(sql).await?;
        let changed = self.answered(self.client.execute(&statement, parameters)).await;
        changed.inspect_err(|error| self.forget(sql, error))
    }

    /// A statement has failed. Its plan may be out of date; if that is why, others may be so, too,
    /// and whoever tries again would meet one after the other.
    fn forget(&self, sql: &str, error: &Error) {
        self.with_statements(|statements| match is_out_of_date(error) {
            true => statements.clear(),
            false => drop(statements.remove(sql)),
        });
    }

    /// All rows of a query without parameters, as texts.
    pub(crate) async fn texts(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
        let messages = self.client.simple_query(sql).await?;
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
            }
            _ => None,
        };
        Ok(messages.into_iter().filter_map(row).collect())
    }

    /// Statements without parameters and rows.
    pub(crate) async fn batch(&self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql).await
    }
}

/// Connections that are kept for the next one.
#[derive(Debug)]
pub(crate) struct Pool {
    target: Target,
    application_name: String,
    terms: Option<Terms>,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    /// For calls that are part of a call which has a connection: they must not wait for its end.
    reserve: Arc<Semaphore>,
}

impl Pool {
    pub(crate) fn new(target: Target, application_name: String, connections_max: usize) -> Arc<Pool> {
        Pool::on(None, target, application_name, connections_max)
    }

    /// The same; each connection is on these terms before it is used.
    pub(crate) fn on(
        terms: Option<Terms>,
        target: Target,
        application_name: String,
        connections_max: usize,
    ) -> Arc<Pool> {
        let permits = Arc::new(Semaphore::new(connections_max.max(1)));
        let reserve = Arc::new(Semaphore::new(connections_max / RESERVED + RESERVED_MIN));
        Arc::new(Pool { target, application_name, terms, idle: Mutex::default(), permits, reserve })
    }

    fn with_idle<T>(&self, work: impl FnOnce(&mut Vec<Connection>) -> T) -> T {
        work(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// The message that commits if no later process has taken the component over.
    pub(crate) fn fenced_commit(&self) -> &str {
        self.terms.as_ref().map_or(NO_FENCE, |terms| terms.commit.as_str())
    }

    /// A connection that is known to be idle.
    pub(crate) async fn take(self: &Arc<Self>) -> Result<Lease, Problem> {
        self.take_as(false).await
    }

    /// The same; `is_within` says that somebody waits for the taker who has a connection.
    pub(crate) async fn take_as(self: &Arc<Self>, is_within: bool) -> Result<Lease, Problem> {
        let away = |why: String| Problem::new(503, "database", why);
        let waiting = async {
            let first = Arc::clone(&self.permits).try_acquire_owned();
            match (first, is_within) {
                (Ok(permit), _) => Ok(permit),
                (Err(_), false) => Arc::clone(&self.permits).acquire_owned().await,
                (Err(_), true) => tokio::select! {
                    permit = Arc::clone(&self.permits).acquire_owned() => permit,
                    permit = Arc::clone(&self.reserve).acquire_owned() => permit,
                },
            }
        };
        let permit = timeout(PATIENCE, waiting).await;
        let permit = permit
            .map_err(|_| Problem::new(409, "conflict", "no connection to the database became free in time"))?
            .map_err(|_| away("the component has stopped".to_owned()))?;
        let idle = self.with_idle(|idle| {
            std::iter::from_fn(|| idle.pop()).find(|connection| !connection.client.is_closed())
        });
        let connection = match idle {
            Some(connection) => connection,
            None => {
                let connecting = self.target.connect(&self.application_name, self.terms.as_ref());
                timeout(PATIENCE, connecting)
                    .await
                    .map_err(|_| away("the component's database does not answer".to_owned()))?
                    .map_err(|error| away(format!("the component's database is away: {error}")))?
            }
        };
        Ok(Lease { connection: Some(connection), pool: Arc::clone(self), _permit: permit })
    }

    /// Closes what is idle: connections that are as old as one that turned out to be lost.
    pub(crate) fn close_idle(&self) {
        drop(self.with_idle(std::mem::take));
    }
}

/// A connection that somebody has. Dropped, it is closed, and what it was doing is cancelled.
#[derive(Debug)]
pub(crate) struct Lease {
    connection: Option<Connection>,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl std::ops::Deref for Lease {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("a lease has its connection until it ends")
    }
}

impl Lease {
    /// Returns the connection, which is outside any transaction and has answered all it was asked.
    pub(crate) fn give_back(mut self) {
        if let Some(mut connection) = self.connection.take()
            && !connection.client.is_closed()
        {
            *connection.unanswered.get_mut() = 0;
            self.pool.with_idle(|idle| idle.push(connection));
        }
    }

    /// Waits for the answer to a statement of ours. If none comes in time the caller drops the
    /// connection, and says the same again later on another one. What he has sent may be carried
    /// out at any time afterwards, so it has to be a statement to which that makes no difference.
    pub(crate) async fn in_time<T>(
        &self,
        answering: impl Future<Output = Result<T, Error>>,
    ) -> crate::problem::Result<T> {
        match timeout(ANSWER, answering).await {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                self.pool.close_idle();
                Err(Problem::new(503, "database", "the component's database does not answer").into())
            }
        }
    }

    /// Rolls back and returns the connection. One that does not answer soon is closed, and what it
    /// is doing cancelled: no COMMIT was sent, so none of it can happen any more.
    pub(crate) async fn roll_back(self) {
        let rolled_back = timeout(ROLL_BACK, self.batch("ROLLBACK")).await;
        if matches!(rolled_back, Ok(Ok(()))) {
            self.give_back();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return connection.io.abort() };
        let target = self.pool.target.clone();
        runtime.spawn(async move {
            let token = connection.client.cancel_token();
            let cancel = async {
                match &target {
                    Target::Server(_) => match connection.along {
                        Some(_) => drop(token.cancel_query(Beneath::default()).await),
                        None => drop(token.cancel_query(NoTls).await),
                    },
                    Target::Embedded(embedded) => {
                        if let Ok(pipe) = embedded.connect() {
                            drop(token.cancel_query_raw(pipe, NoTls).await);
                        }
                    }
                }
            };
            if timeout(CANCEL, cancel).await.is_err() {
                // Who does not answer that answers nothing else.
                connection.io.abort();
            }
            drop(connection);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how long a connection to a server that is silent is looked at, and given up.
    async fn silence(url: &str) -> (Duration, Option<Duration>) {
        let Ok(Target::Server(config)) = Target::open(url).await else { panic!("{url} is no server") };
        (config.get_keepalives_idle(), config.get_tcp_user_timeout().copied())
    }

    #[tokio::test]
    async fn a_server_that_is_silent_is_noticed_unless_its_address_says_otherwise() {
        let seconds = Duration::from_secs;
        assert_eq!(silence("postgresql://a@b/c").await, (seconds(30), Some(seconds(60))));
        let said = silence("postgresql://a@b/c?keepalives_idle=7&tcp_user_timeout=9").await;
        assert_eq!(said, (seconds(7), Some(seconds(9))));
    }

    #[tokio::test]
    async fn nothing_of_an_address_is_said_that_cannot_be_read() {
        let refused = async |url: &str| Target::open(url).await.err().unwrap_or_default();
        for url in [
            "mysql://shop:s3cret@db/shop",
            "shop:s3cret@db",
            "postgresql://shop:s3cret@db:port/shop",
            "postgresql://shop%ff:s3cret@db/shop",
            "postgresql://shop@db/shop?password=s3cret&s3cret=1",
            "postgresql://shop@db/shop?s3cret",
            "postgresql://shop:s3cret@[db/shop",
        ] {
            let why = refused(url).await;
            assert!(!why.is_empty(), "{url} is taken");
            assert!(["s3", "shop", "db/"].iter().all(|part| !why.contains(part)), "{url}: {why}");
        }
        let why = refused("postgresql://shop:s3cret@db/shop?sslmode=perhaps").await;
        assert!(why.ends_with("invalid value for option `sslmode`"), "{why}");
    }
}
