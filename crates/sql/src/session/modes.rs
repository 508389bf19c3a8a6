//! The modes of a transaction: isolation level, access, deferrable.

use cognate_engine::Isolation;
use sqlparser::ast;

use super::Session;
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

    /// 25001 once a query was run.
    pub(super) fn set_isolation(&mut self, isolation: Isolation) -> Result<()> {
        if self.open.is_some() && self.modes.isolation != isolation {
            return Err(SqlError::new(
                sqlstate::ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            ));
        }
        self.modes.isolation = isolation;
        Ok(())
    }

    /// 25001 if a transaction that was read-only is to write after its first query.
    pub(super) fn set_read_only(&mut self, read_only: bool) -> Result<()> {
        if self.open.is_some() && self.modes.read_only && !read_only {
            return Err(SqlError::new(
                sqlstate::ACTIVE_SQL_TRANSACTION,
                "transaction read-write mode must be set before any query",
            ));
        }
        self.modes.read_only = read_only;
        if let Some(open) = &mut self.open {
            open.state.read_only = read_only;
        }
        Ok(())
    }
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
