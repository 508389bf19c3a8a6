//! The modes of a transaction: isolation level, access, deferrable.

use cognate_engine::{Access, Isolation};
use sqlparser::ast;

use super::{Open, Session};
use crate::error::{Result, SqlError, sqlstate};

/// What BEGIN and SET TRANSACTION say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modes {
    pub(crate) isolation: Isolation,
    pub(crate) read_only: bool,
    /// A read-only serializable transaction waits for a snapshot that no cycle can go through.
    pub(crate) deferrable: bool,
}

/// An isolation level by its name in settings.
pub(crate) fn isolation_of(name: &str) -> Isolation {
    match name {
        "serializable" => Isolation::Serializable,
        "repeatable read" => Isolation::Snapshot,
        _ => Isolation::ReadCommitted,
    }
}

/// The name of an isolation level in settings.
pub(crate) fn isolation_name(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Serializable => "serializable",
        Isolation::Snapshot => "repeatable read",
        Isolation::ReadCommitted => "read committed",
    }
}

impl Session {
    pub(super) fn set_modes(&mut self, modes: &[ast::TransactionMode]) -> Result<()> {
        for mode in modes {
            match mode {
                ast::TransactionMode::AccessMode(ast::TransactionAccessMode::ReadOnly) => {
                    self.set_read_only(true)?
                }
                ast::TransactionMode::AccessMode(ast::TransactionAccessMode::ReadWrite) => {
                    self.set_read_only(false)?
                }
                ast::TransactionMode::IsolationLevel(level) => self.set_isolation(isolation(level)?)?,
            }
        }
        Ok(())
    }

    /// Whether a query has taken the transaction's snapshot. What only locks tables or sets a
    /// savepoint takes none; an instance of a family is what it was begun as.
    fn has_queried(&self) -> bool {
        let has_queried = |open: &Open| !open.state.begun_ahead || open.engine.instance().is_some();
        self.open.as_ref().is_some_and(has_queried)
    }

    /// Whether a savepoint is open: what comes behind one is undone with it, and modes are not.
    fn is_behind_savepoint(&self) -> bool {
        self.open.as_ref().is_some_and(|open| !open.state.savepoints.is_empty())
    }

    /// 25001 once a query was run, and behind a savepoint.
    pub(super) fn set_isolation(&mut self, isolation: Isolation) -> Result<()> {
        if self.modes.isolation == isolation {
            return Ok(());
        }
        if self.has_queried() {
            return Err(too_late("SET TRANSACTION ISOLATION LEVEL must be called before any query"));
        }
        if self.is_behind_savepoint() {
            return Err(too_late("SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction"));
        }
        self.modes.isolation = isolation;
        self.change_ahead();
        Ok(())
    }

    /// 25001 if a transaction that was read-only is to write after its first query, or behind a
    /// savepoint.
    pub(super) fn set_read_only(&mut self, read_only: bool) -> Result<()> {
        let widens = self.modes.read_only && !read_only;
        if widens && self.is_behind_savepoint() {
            return Err(too_late("cannot set transaction read-write mode inside a read-only transaction"));
        }
        if widens && self.has_queried() {
            return Err(too_late("transaction read-write mode must be set before any query"));
        }
        self.modes.read_only = read_only;
        if let Some(open) = &mut self.open {
            open.state.read_only = read_only;
        }
        if widens {
            self.change_ahead();
        }
        Ok(())
    }

    /// 25001 once a query was run, and behind a savepoint, whatever it says.
    pub(super) fn set_deferrable(&mut self, deferrable: Option<bool>) -> Result<()> {
        let Some(deferrable) = deferrable else { return Ok(()) };
        if self.is_behind_savepoint() {
            let message = "SET TRANSACTION [NOT] DEFERRABLE cannot be called within a subtransaction";
            return Err(too_late(message));
        }
        if self.has_queried() {
            return Err(too_late("SET TRANSACTION [NOT] DEFERRABLE must be called before any query"));
        }
        self.modes.deferrable = deferrable;
        Ok(())
    }

    /// What was begun ahead of the first query becomes what the modes say now, and keeps its locks.
    fn change_ahead(&mut self) {
        let aged = self.asks_for_age();
        let (isolation, is_two_phase) = (self.engine_isolation(), self.is_two_phase());
        let writes = !self.modes.read_only || is_two_phase;
        let Some(open) = &mut self.open else { return };
        if writes && open.engine.access() == Access::ReadOnly {
            open.engine.allow_writes();
        }
        open.engine.set_isolation(isolation);
        open.state.aged = aged;
        open.state.locks_reads = aged || is_two_phase;
    }
}

fn too_late(message: &'static str) -> SqlError {
    SqlError::new(sqlstate::ACTIVE_SQL_TRANSACTION, message)
}

pub(super) fn isolation(level: &ast::TransactionIsolationLevel) -> Result<Isolation> {
    match level {
        ast::TransactionIsolationLevel::ReadUncommitted | ast::TransactionIsolationLevel::ReadCommitted => {
            Ok(Isolation::ReadCommitted)
        }
        ast::TransactionIsolationLevel::RepeatableRead => Ok(Isolation::Snapshot),
        ast::TransactionIsolationLevel::Serializable => Ok(Isolation::Serializable),
        ast::TransactionIsolationLevel::Snapshot => {
            Err(SqlError::syntax("syntax error at or near \"SNAPSHOT\""))
        }
    }
}
