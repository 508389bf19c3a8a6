//! The session and the governor: when a statement takes a slot.
//!
//! ```text
//! BEGIN                    no slot
//! SELECT …                 takes one; kept, unless the client takes its time
//! UPDATE …                 goes on; a wait for a row lock keeps it for a moment only
//! COMMIT                   needs none; given back once the commit is ordered, before the wait for its flush
//! ```
//!
//! Statements that only concern the session need none, so that a full server still answers SHOW,
//! and can be told another limit.

use sqlparser::ast;

use super::Session;
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::Command;

/// Whether a statement without a plan does work that the governor counts.
pub(super) fn executes(command: &Command) -> bool {
    use ast::Statement as S;
    let Command::Sql(sql) = command else { return !matches!(command, Command::Backup) };
    !matches!(
        sql.as_ref(),
        S::ShowVariable { .. }
            | S::Set(_)
            | S::Reset(_)
            | S::Discard { .. }
            | S::Prepare { .. }
            | S::Deallocate { .. }
            | S::Close { .. }
            | S::LISTEN { .. }
            | S::UNLISTEN { .. }
            | S::NOTIFY { .. }
    )
}

impl Session {
    /// A statement goes on: takes a slot, waiting for it if need be. Cancelling,
    /// `statement_timeout` and a sibling that is chosen end the wait.
    #[inline]
    pub(super) async fn go(&mut self) -> Result<()> {
        // Whose turn it is goes before all others.
        if self.is_ordered() || self.seat.try_go() {
            return Ok(());
        }
        let interrupts = self.interrupts();
        let resuming = self.open.is_some();
        Box::pin(interrupts.slot(resuming)).await
    }

    /// Tells the governor of an abort that more transactions at a time make more frequent.
    pub(super) fn note_conflict(&self, error: &SqlError) {
        if error.sqlstate == sqlstate::SERIALIZATION_FAILURE || error.sqlstate == sqlstate::DEADLOCK_DETECTED
        {
            self.seat.governor().note_conflict();
        }
    }
}
