//! What can go wrong while measuring, said so that the reader knows what to do about it.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io;

/// Any failure of a benchmark run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A database answered with an error, or the connection to it broke, where the run cannot go
    /// on.
    #[error("{system}: {doing}: {message}")]
    Database {
        /// The system under test, by its name in the report.
        system: String,
        /// What the harness was doing.
        doing: String,
        /// The server's message with its SQLSTATE, or the driver's.
        message: String,
    },
    /// A program or file that the run needs is not there; the text says what to install or pass.
    #[error("{0}")]
    Missing(String),
    /// A child server did not start, or ended by itself; the text holds the end of its output.
    #[error("{0}")]
    Server(String),
    /// A file or process operation failed.
    #[error("{doing}: {source}")]
    Io {
        /// What the harness was doing.
        doing: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The data are wrong: what the workload promises about them does not hold.
    #[error("{0}")]
    Violation(String),
    /// A request that makes no sense, such as a mix that does not exist.
    #[error("{0}")]
    Usage(String),
    /// The time that the run may take is over.
    #[error("{0}")]
    Timeout(String),
    /// The run was interrupted by Ctrl-C or a termination signal.
    #[error("interrupted")]
    Interrupted,
}

/// The harness' result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Adds what was being done to an I/O error.
pub trait IoContext<T> {
    /// Wraps the error with `doing`.
    fn doing(self, doing: impl Into<String>) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn doing(self, doing: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Io { doing: doing.into(), source })
    }
}

/// Adds the system and what was being done to a driver error.
pub trait DatabaseContext<T> {
    /// Wraps the error with the system's name and `doing`.
    fn at(self, system: &str, doing: impl Into<String>) -> Result<T>;
}

impl<T> DatabaseContext<T> for Result<T, tokio_postgres::Error> {
    fn at(self, system: &str, doing: impl Into<String>) -> Result<T> {
        self.map_err(|error| Error::Database {
            system: system.to_owned(),
            doing: doing.into(),
            message: describe(&error),
        })
    }
}

/// The driver's error with everything the server said: message, SQLSTATE, detail and hint.
pub fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let mut text = format!("{} ({})", db.message(), db.code().code());
        if let Some(detail) = db.detail() {
            let _ = write!(text, "; {detail}");
        }
        if let Some(hint) = db.hint() {
            let _ = write!(text, "; hint: {hint}");
        }
        return text;
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let _ = write!(text, ": {inner}");
        cause = inner.source();
    }
    text
}

/// The five-character SQLSTATE of an error; `08006` (connection failure) when the server did not
/// send one.
pub fn sqlstate(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("08006", |code| code.code())
}

/// True for the two states that ask the client to run the transaction again: serialization failure
/// and deadlock.
pub fn is_retryable(error: &tokio_postgres::Error) -> bool {
    matches!(sqlstate(error), "40001" | "40P01")
}
