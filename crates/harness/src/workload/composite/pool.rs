//! Connections for services that are written by hand: their statements are prepared once, and a
//! connection goes back only if it is known to be idle.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error, Row, Statement};

use super::CONNECTIONS;
use crate::peer;

/// What a connection is told first. Two transactions over several databases can wait for each other
/// where no database sees it.
const SETTINGS: &str = "SET lock_timeout = '1s'";

/// Parameters of a statement.
pub type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection with its statements.
#[derive(Debug)]
pub struct Session {
    client: Client,
    statements: Vec<Statement>,
}

impl Session {
    /// Opens one; statements are known by their places in the list.
    ///
    /// # Errors
    /// The database's.
    pub async fn open(config: &Config, statements: &[&str]) -> Result<Session, Error> {
        let client = peer::connect(config).await?;
        client.batch_execute(SETTINGS).await?;
        let mut prepared = Vec::new();
        for sql in statements {
            prepared.push(client.prepare(sql).await?);
        }
        Ok(Session { client, statements: prepared })
    }

    /// Runs a text without parameters.
    ///
    /// # Errors
    /// The database's.
    pub async fn text(&self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql).await
    }

    /// Runs a statement.
    ///
    /// # Errors
    /// The database's.
    pub async fn query(&self, place: usize, parameters: Parameters<'_>) -> Result<Vec<Row>, Error> {
        self.client.query(&self.statements[place], parameters).await
    }

    /// Runs a statement; answers how many rows it changed.
    ///
    /// # Errors
    /// The database's.
    pub async fn execute(&self, place: usize, parameters: Parameters<'_>) -> Result<u64, Error> {
        self.client.execute(&self.statements[place], parameters).await
    }

    /// Begins a transaction with a statement, in one round trip.
    ///
    /// # Errors
    /// The database's.
    pub async fn begin(&self, place: usize, parameters: Parameters<'_>) -> Result<u64, Error> {
        let (begun, changed) = tokio::join!(biased; self.text("BEGIN"), self.execute(place, parameters));
        begun?;
        changed
    }

    /// Ends a transaction with a statement and COMMIT, in one round trip.
    ///
    /// # Errors
    /// The database's.
    pub async fn commit_with(&self, place: usize, parameters: Parameters<'_>) -> Result<(), Error> {
        let (changed, committed) = tokio::join!(biased; self.execute(place, parameters), self.text("COMMIT"));
        changed?;
        committed
    }
}

/// Sessions that are kept for the next one.
pub struct Pool {
    config: Config,
    statements: &'static [&'static str],
    idle: Mutex<Vec<Session>>,
    permits: Arc<Semaphore>,
}

impl Pool {
    /// As many as a component has.
    pub fn new(config: Config, statements: &'static [&'static str]) -> Arc<Pool> {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        Arc::new(Pool { config, statements, idle: Mutex::default(), permits })
    }

    fn with_idle<T>(&self, work: impl FnOnce(&mut Vec<Session>) -> T) -> T {
        work(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A session that is idle.
    ///
    /// # Errors
    /// The database's, when a new one is opened.
    pub async fn take(self: &Arc<Self>) -> Result<Lease, Error> {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let session = match self.with_idle(Vec::pop) {
            Some(session) => session,
            None => Session::open(&self.config, self.statements).await?,
        };
        Ok(Lease { session, pool: Arc::clone(self), _permit: permit })
    }
}

/// A session that somebody has; dropped, it is closed.
pub struct Lease {
    session: Session,
    pool: Arc<Pool>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl std::ops::Deref for Lease {
    type Target = Session;
    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Lease {
    /// Returns the session, which is outside any transaction.
    pub fn give_back(self) {
        let Lease { session, pool, .. } = self;
        pool.with_idle(|idle| idle.push(session));
    }

    /// Rolls back and returns the session.
    pub async fn roll_back(self) {
        if self.text("ROLLBACK").await.is_ok() {
            self.give_back();
        }
    }
}
