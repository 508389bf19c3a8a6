//! When an answer may be given: once all that it rests on is durable.
//!
//! A commit is seen by others before it is durable, so what a statement looks at may still be taken
//! back by a crash. It does not matter whether the statement gives rows: "no row has changed", "the
//! key is taken" and "could not serialize access" rest on others' commits just as well. So the
//! session carries one number along, the last commit that anything rests on which it has shown or
//! decided, and waits for it before it tells how a transaction ended: after COMMIT, ROLLBACK, an
//! error that ends it, and each statement outside a block.
//!
//! ```text
//! a: INSERT INTO t VALUES (1)                            commit 7; its flush takes a while
//! b: INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING     looks at commit 7: there is a row already
//!    ... waits until commit 7 is durable
//! > INSERT 0 0                                           stays true after any crash
//! ```
//!
//! Who raises the number: the engine's transaction, for its snapshot and for whatever it looks at
//! beyond it (`Transaction::rests_on`); the catalog, when a statement is planned with it;
//! sequences; the views of running, prepared and ended transactions.
//!
//! What is shown *inside* a block is provisional until its end: no wait there, unless
//! `cognate.durable_reads` says so.
//!
//! If the log fails while somebody waits, what the answer rests on is lost to this process, and the
//! answer is that failure (58030). The next start finds what has come to the medium whole: so the
//! failure's hint says that a commit may be there then.

use super::{Block, Session};
use crate::error::{Result, SqlError};

impl Session {
    /// Takes over what the open transaction knows to rest on.
    pub(super) fn note_rests(&mut self) {
        if let Some(open) = &self.open {
            self.facts.rest_on(open.engine.rests_on());
        }
    }

    /// A statement looks at the newest catalog.
    #[inline]
    pub(super) fn rest_on_catalog(&mut self) {
        let changed = self.changed_at();
        if changed > self.facts.rests_on() {
            self.rest_on_new_catalog(changed);
        }
    }

    #[cold]
    fn rest_on_new_catalog(&mut self, changed: u64) {
        let engine = self.database.engine();
        if changed > engine.durable() && engine.is_poisoned() {
            if let Err(error) = self.database.fall_back() {
                tracing::warn!(%error, "the durable catalog could not be read after a failure of the log");
            }
            if self.facts.temporary.changed_at() > engine.durable() {
                self.facts.temporary.forget_change();
            }
            self.facts.rest_on(self.changed_at());
        } else {
            self.facts.rest_on(changed);
        }
    }

    /// Waits until all is durable that was shown or decided so far, in the open transaction and
    /// before. 58030 if it is lost.
    pub(super) async fn await_durable(&mut self) -> Result<()> {
        let rests_on = match &self.open {
            Some(open) => open.engine.rests_on().max(self.facts.rests_on()),
            None => self.facts.rests_on(),
        };
        let engine = self.database.engine();
        if rests_on <= engine.durable() {
            return Ok(());
        }
        let waited = engine.wait_durable(rests_on).await;
        self.interrupts.has_waited();
        if waited.is_err() {
            // It is told now; what comes later rests on other things.
            self.facts.rest_on_nothing();
        }
        Ok(waited?)
    }

    /// Waits until what is about to be sent may be sent: nothing to wait for while a block is open,
    /// since its answers are provisional until it ends.
    ///
    /// # Errors
    /// 58030 if the log has failed, and what was to be sent rests on what is lost: it is the answer
    /// then.
    pub async fn settle_answers(&mut self) -> Result<()> {
        let is_open = match self.block {
            Block::None | Block::Implicit => false,
            Block::Explicit => true,
            // A block that was too late for its family has shown what is committed, and executes
            // nothing.
            Block::Decided => false,
            Block::Failed => self.open.is_some(),
        };
        if is_open && !self.effective.durable_reads {
            return Ok(());
        }
        self.await_durable().await
    }

    /// An error ends the statement: does what `Session::fail_by` does, and answers with what is to
    /// be reported once all is durable that the error rests on. That is the error itself, unless it
    /// rests on what is lost.
    pub async fn failed(&mut self, error: SqlError) -> SqlError {
        if error.is_of_others() {
            self.facts.rest_on_everything();
        }
        self.fail_by(&error);
        match self.settle_answers().await {
            Ok(()) => error,
            Err(lost) => lost,
        }
    }
}
