//! Sessions that read the same: pg_export_snapshot and SET TRANSACTION SNAPSHOT, as programs have
//! them that copy a database by several connections.
//!
//! What is lent goes with the transaction that lends it. Who borrows is REPEATABLE READ and READ
//! ONLY: he reads what was committed then, and nothing that he does depends on what came later.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use cognate_engine::{Access, Exported, Isolation, Transaction};
use parking_lot::Mutex;
use sqlparser::ast;

use super::state::TransactionState;
use super::{Block, Open, Session};
use crate::error::{Result, SqlError, sqlstate};

/// The snapshots that transactions of a database lend, by the names that clients have for them.
#[derive(Default)]
pub(crate) struct Exports {
    known: Mutex<HashMap<String, Weak<Exported>>>,
}

impl Exports {
    /// Lends the snapshot of a transaction, of which commits up to `durable` are safe to show.
    pub(super) fn lend(&self, transaction: &Transaction, durable: u64) -> Result<String> {
        if transaction.access() != Access::ReadOnly && transaction.snapshot() > durable {
            return Err(SqlError::unsupported("pg_export_snapshot() in a transaction that is not READ ONLY"));
        }
        let name = format!("{:08X}-{:08X}-1", transaction.id(), transaction.snapshot());
        let mut known = self.known.lock();
        known.retain(|_, exported| exported.strong_count() > 0);
        known.entry(name.clone()).or_insert_with(|| transaction.export());
        Ok(name)
    }

    fn find(&self, name: &str) -> Option<Arc<Exported>> {
        self.known.lock().get(name)?.upgrade()
    }
}

impl Session {
    /// SET TRANSACTION SNAPSHOT.
    pub(super) fn borrow_snapshot(&mut self, name: &ast::Value) -> Result<()> {
        let name = match name {
            ast::Value::SingleQuotedString(name) => name,
            other => return Err(SqlError::syntax(format!("syntax error at or near \"{other}\""))),
        };
        if self.block != Block::Explicit {
            let message = "SET TRANSACTION can only be used in transaction blocks";
            self.notices.push(SqlError::warning(sqlstate::NO_ACTIVE_SQL_TRANSACTION, message));
            return Ok(());
        }
        if self.open.is_some() {
            let message = "SET TRANSACTION SNAPSHOT must be called before any query";
            return Err(SqlError::new(sqlstate::ACTIVE_SQL_TRANSACTION, message));
        }
        if self.modes.isolation == Isolation::ReadCommitted {
            let message =
                "a snapshot-importing transaction must have isolation level SERIALIZABLE or REPEATABLE READ";
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        if self.modes.isolation != Isolation::Snapshot || !self.modes.read_only {
            let what = "SET TRANSACTION SNAPSHOT in a transaction that is not REPEATABLE READ, READ ONLY";
            return Err(SqlError::unsupported(what));
        }
        let exported = self.database.exports().find(name).ok_or_else(|| {
            let message = format!("invalid snapshot identifier: \"{name}\"");
            SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
        })?;
        let mut engine = self.database.engine().begin(Isolation::Snapshot, Access::ReadOnly);
        engine.borrow_snapshot(&exported);
        self.facts.set_transaction_id(engine.id());
        // It does not begin later, whatever it waits for.
        let state = TransactionState::new(true, self.memory_limit, &self.facts.usage);
        let state = TransactionState { is_safe: true, ..state };
        self.open = Some(Open { engine, state });
        Ok(())
    }
}
