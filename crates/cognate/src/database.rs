//! The database as an embedding program opens it.

use std::path::PathBuf;
use std::sync::Arc;

use cognate_engine::Options;
use cognate_sql::session::{SessionParameters, SqlDatabase};

use crate::wait::Timers;
use crate::{Result, Session};

/// An open database. Clones are handles to the same one.
#[derive(Clone)]
pub struct Database {
    sql: SqlDatabase,
    timers: Arc<Timers>,
}

impl Database {
    /// Opens a folder, making an empty database if there is none, and recovers what was committed.
    /// Memory: 256 MB, see [`Database::open_with`].
    ///
    /// # Errors
    /// If the folder is open elsewhere, damaged (file and offset are named), or cannot be read or
    /// written.
    pub fn open(path: impl Into<PathBuf>) -> Result<Database> {
        Database::open_with(Options::new(path))
    }

    /// Opens a folder with other options.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn open_with(options: Options) -> Result<Database> {
        let engine = cognate_engine::Database::open(options)?;
        Ok(Database { sql: SqlDatabase::open(engine)?, timers: Arc::new(Timers::default()) })
    }

    /// A new session.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn session(&self) -> Result<Session> {
        let parameters = SessionParameters {
            user: "cognate".to_owned(),
            database: "postgres".to_owned(),
            application_name: "embedded".to_owned(),
            ..SessionParameters::default()
        };
        let session = cognate_sql::session::Session::new(self.sql.clone(), parameters)?;
        Ok(Session::new(session, self.timers.clone()))
    }

    /// The SQL layer below.
    pub fn sql(&self) -> &SqlDatabase {
        &self.sql
    }

    /// Checkpoints and closes, so that the next open has nothing to recover. Without it nothing is
    /// lost; sessions that are still used afterwards get errors.
    ///
    /// # Errors
    /// If the checkpoint cannot be written; what was committed stays in the log.
    pub fn close(self) -> Result<()> {
        self.sql.stop_gathering();
        Ok(self.sql.engine().close()?)
    }
}
