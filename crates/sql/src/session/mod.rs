//! Sessions: what one connection does with the database.
//!
//! A session splits text into statements, prepares them (plans are shared, see [`SqlDatabase`]), binds parameters to
//! get a [`Portal`], and fetches rows from it into a [`RowSink`]. It holds the open transaction, the settings, prepared
//! statements and cursors made by SQL. Nothing here blocks a thread: waits for locks and for the log are futures, and
//! dropping such a future leaves the session as a failed statement would.
//!
//! The wire's rules live here too: a statement outside a block opens an *implicit* transaction that lasts until
//! [`Session::sync`]; an error makes a block [`Failed`](TransactionStatus::Failed) and rolls an implicit transaction back.

mod database;
mod portal;
mod prepared;
pub mod settings;
mod sink;
mod statement;

use crate::error::{Result, SqlError};

pub use database::SqlDatabase;
pub use portal::{CommandTag, CopyFormat, CopyInFormat, Fetch, Portal};
pub use prepared::{OutputColumn, Prepared};
pub use sink::{Format, RowSink, SinkState};
pub use statement::Statement;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a connection says about itself at start.
#[derive(Clone, Debug, Default)]
pub struct SessionParameters {
    /// Role name: `current_user`.
    pub user: String,
    /// Database name as the client gave it: `current_database()`.
    pub database: String,
    /// `application_name`.
    pub application_name: String,
    /// Other settings of the startup packet, applied as session defaults.
    pub options: Vec<(String, String)>,
    /// `pg_backend_pid()`.
    pub process_id: i32,
}

/// The byte of ReadyForQuery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No block is open (`I`).
    Idle,
    /// In a block (`T`).
    InBlock,
    /// In a block that failed (`E`).
    Failed,
}

/// Interrupts the statement that its session runs. Any thread may use it.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle {
    state: Arc<CancelState>,
}

#[derive(Debug, Default)]
struct CancelState {
    requested: AtomicBool,
    wake: tokio::sync::Notify,
}

impl CancelHandle {
    /// Ends the running statement with 57014. Without one, nothing happens.
    pub fn cancel(&self) {
        self.state.requested.store(true, Ordering::Release);
        self.state.wake.notify_waiters();
    }
}

/// One connection's session.
pub struct Session {
    database: SqlDatabase,
    cancel: CancelHandle,
}

impl Session {
    /// A session with fresh settings. Fails if a startup option is not a valid setting.
    pub fn new(database: SqlDatabase, parameters: SessionParameters) -> Result<Session> {
        let _ = parameters;
        Ok(Session { database, cancel: CancelHandle::default() })
    }

    /// A handle to interrupt this session's statements.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Whether a block is open.
    pub fn status(&self) -> TransactionStatus {
        TransactionStatus::Idle
    }

    /// Notices and warnings since the last call, oldest first.
    pub fn take_notices(&mut self) -> Vec<SqlError> {
        Vec::new()
    }

    /// Settings to report with ParameterStatus: all reported settings at first, then those that changed.
    pub fn take_parameter_changes(&mut self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The statements of a simple query, possibly none. 42601 with position.
    pub fn split(&self, text: &str) -> Result<Vec<Statement>> {
        let _ = text;
        Err(SqlError::unsupported("SQL"))
    }

    /// Prepares the single statement of `text` (or none: an empty query). `parameter_oids` gives types by oid, 0 or
    /// absent where the server is to infer one.
    pub fn prepare(&mut self, text: &str, parameter_oids: &[u32]) -> Result<Arc<Prepared>> {
        let _ = (text, parameter_oids);
        Err(SqlError::unsupported("SQL"))
    }

    /// Prepares one statement of a simple query.
    pub fn prepare_statement(&mut self, statement: &Statement) -> Result<Arc<Prepared>> {
        let _ = statement;
        Err(SqlError::unsupported("SQL"))
    }

    /// Binds parameters (`None` is NULL). `formats` has none, one for all, or one for each parameter; `result_formats`
    /// the same for the output columns.
    pub fn bind(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: &[Option<&[u8]>],
        formats: &[Format],
        result_formats: &[Format],
    ) -> Result<Portal> {
        let _ = (prepared, parameters, formats, result_formats);
        Err(SqlError::unsupported("SQL"))
    }

    /// Runs the portal until it is done, has given `max_rows` rows (0 is no limit), or the sink is full.
    pub async fn fetch(
        &mut self,
        portal: &mut Portal,
        sink: &mut (dyn RowSink + Send),
        max_rows: u64,
    ) -> Result<Fetch> {
        let _ = (portal, sink, max_rows, &self.database);
        Err(SqlError::unsupported("SQL"))
    }

    /// Data of COPY FROM STDIN, cut anywhere.
    pub async fn copy_data(&mut self, data: &[u8]) -> Result<()> {
        let _ = data;
        Err(SqlError::unsupported("COPY"))
    }

    /// End of COPY FROM STDIN's data.
    pub async fn copy_done(&mut self) -> Result<CommandTag> {
        Err(SqlError::unsupported("COPY"))
    }

    /// The client gave up COPY FROM STDIN; returns the error to report.
    pub async fn copy_fail(&mut self, message: &str) -> SqlError {
        SqlError::new(crate::error::sqlstate::QUERY_CANCELED, format!("COPY from stdin failed: {message}"))
    }

    /// Ends the implicit transaction (Sync, or the end of a simple query): commits it and waits until it is durable.
    pub async fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    /// An error was reported: an open block becomes failed, an implicit transaction is rolled back.
    pub fn fail(&mut self) {}
}
