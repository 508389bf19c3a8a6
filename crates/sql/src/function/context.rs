//! What functions may know of the session that calls them.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::catalog::Catalog;
use crate::error::{SqlError, sqlstate};
use crate::pg_catalog::{NoServer, ServerView};
use crate::types::{FormatContext, bounds};

/// The session as functions see it. Every method is cheap and does not block.
pub trait SessionView: Send + Sync {
    /// A setting by its lower-case name, as SHOW prints it; `None` if there is no such setting.
    fn setting(&self, name: &str) -> Option<String>;
    /// Sets a setting, for the transaction only if `local`; no value is DEFAULT. Gives back the
    /// value as SHOW prints it.
    fn set_setting(&self, name: &str, value: Option<&str>, local: bool) -> Result<String, SqlError>;
    /// Where a setting's value comes from, in the words of `pg_settings.source`, and what RESET
    /// would make of it, in its base unit; `None` if that is not known.
    fn setting_source(&self, name: &str) -> Option<(&'static str, String)> {
        let _ = name;
        None
    }
    /// `current_user`.
    fn user(&self) -> String;
    /// `session_user`.
    fn session_user(&self) -> String;
    /// `current_database()`.
    fn database(&self) -> String;
    /// Schemas searched, in order, those that exist; `implicit` adds `pg_catalog`.
    fn search_path(&self, implicit: bool) -> Vec<String>;
    /// `pg_backend_pid()`.
    fn process_id(&self) -> i32;
    /// Id of the transaction, assigning one if needed.
    fn transaction_id(&self) -> u64;
    /// Wall clock now, microseconds since 2000-01-01 UTC.
    fn clock(&self) -> i64;
    /// A uniform number in [0, 1), of the session's generator.
    fn random(&self) -> f64;
    /// Seeds the generator with a number in [-1, 1].
    fn set_seed(&self, seed: f64);
    /// Sixteen random bytes of cryptographic quality.
    fn random_bytes(&self) -> [u8; 16];
    /// Version text for `version()`.
    fn version(&self) -> String;
    /// The catalog that the running statement sees; none where there is no session.
    fn catalog(&self) -> Option<Arc<Catalog>> {
        None
    }
    /// A function begins, or ceases, to let time pass: others may look at that.
    fn note_pause(&self, _begins: bool) {}
    /// What is known of the server beyond this session.
    fn server(&self) -> &dyn ServerView {
        &NoServer
    }
}

/// A view for where there is no session: constants at planning, tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSession;

impl SessionView for NoSession {
    fn setting(&self, _name: &str) -> Option<String> {
        None
    }
    fn set_setting(&self, name: &str, _value: Option<&str>, _local: bool) -> Result<String, SqlError> {
        Err(SqlError::new(
            sqlstate::UNDEFINED_OBJECT,
            format!("unrecognized configuration parameter \"{name}\""),
        ))
    }
    fn user(&self) -> String {
        "cognate".to_owned()
    }
    fn session_user(&self) -> String {
        "cognate".to_owned()
    }
    fn database(&self) -> String {
        "cognate".to_owned()
    }
    fn search_path(&self, implicit: bool) -> Vec<String> {
        if implicit { vec!["pg_catalog".to_owned(), "public".to_owned()] } else { vec!["public".to_owned()] }
    }
    fn process_id(&self) -> i32 {
        0
    }
    fn transaction_id(&self) -> u64 {
        0
    }
    fn clock(&self) -> i64 {
        0
    }
    fn random(&self) -> f64 {
        0.5
    }
    fn set_seed(&self, _seed: f64) {}
    fn random_bytes(&self) -> [u8; 16] {
        [0; 16]
    }
    fn version(&self) -> String {
        "Cognate".to_owned()
    }
}

/// Tells a running statement to stop.
pub trait Interrupt: Sync {
    /// 57014 (or what else ends the statement) once it should stop; otherwise how long ago it was
    /// asked before, so that the caller can ask more or less often.
    fn check(&self) -> Result<Duration, SqlError>;

    /// So many steps were taken. 54000 once they are more than a program may take that every node
    /// executes. Whether they are counted: then questions come after so many steps, whatever the
    /// time, so that all nodes count the same.
    fn count(&self, steps: u32) -> Result<bool, SqlError> {
        let _ = steps;
        Ok(false)
    }

    /// A computation of some milliseconds that cannot ask begins: whoever waits for this thread
    /// need not.
    fn step_aside(&self) {}

    /// Lets time pass, unless the statement should stop before. 0A000 where nobody can wait.
    fn pause(&self, time: Duration) -> Result<(), SqlError> {
        let _ = time;
        Err(SqlError::unsupported("waiting in this place"))
    }
}

/// Never stops anything.
pub struct NeverInterrupted;

impl Interrupt for NeverInterrupted {
    fn check(&self) -> Result<Duration, SqlError> {
        Ok(Duration::ZERO)
    }
}

/// What evaluation depends on, beside the arguments. Dereferences to the [`FormatContext`], which
/// has the time zone and the transaction's time.
#[derive(Clone, Copy)]
pub struct EvalContext<'a> {
    /// Settings of reading and printing.
    pub format: &'a FormatContext,
    /// Start of the statement, microseconds since 2000-01-01 UTC.
    pub statement_time: i64,
    /// The session.
    pub session: &'a dyn SessionView,
    /// Bytes that a statement may hold: no value may need more.
    pub memory_limit: usize,
    /// Asked by what may compute for more than some milliseconds.
    pub interrupt: &'a dyn Interrupt,
}

impl<'a> EvalContext<'a> {
    /// A context without a session.
    pub fn without_session(format: &'a FormatContext) -> EvalContext<'a> {
        EvalContext {
            format,
            statement_time: format.transaction_time,
            session: &NoSession,
            memory_limit: usize::MAX,
            interrupt: &NeverInterrupted,
        }
    }
}

impl EvalContext<'_> {
    /// Asked by what computes for long: fails once the statement should stop.
    pub fn check_interrupt(&self) -> Result<(), SqlError> {
        bounds::check()?;
        self.interrupt.check().map(drop)
    }

    /// Asked before a value of so many bytes is made. 53200 beyond what a statement may hold.
    pub fn check_size(&self, bytes: usize) -> Result<(), SqlError> {
        if bytes <= self.memory_limit {
            return Ok(());
        }
        let detail = format!(
            "A value of {bytes} bytes is more than the {} kB that a statement may use.",
            self.memory_limit / 1024
        );
        Err(SqlError::new(sqlstate::OUT_OF_MEMORY, "out of memory").with_detail(detail))
    }
}

impl Deref for EvalContext<'_> {
    type Target = FormatContext;
    fn deref(&self) -> &FormatContext {
        self.format
    }
}
