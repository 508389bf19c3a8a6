//! What checks take that wait for the end of a statement or a transaction, and how a long load gets
//! by with few of them.
//!
//! A check has the values that it looks for. All that wait are charged to the memory that
//! statements share, from [`FREE_BYTES`] on; 53200 if there is not so much. A statement that all
//! nodes of a cluster execute is not charged: how much others leave differs from node to node.
//!
//! A load of one table looks at its references while it runs, [`MANY`] at a time. A key that is
//! there is locked KEY SHARE, as it would be at the end, and so stays: the check is done. One that
//! is not there may still come, by the transaction's own rows at least, so its check waits for the
//! end of the statement, and is not tried again before. This needs a statement that cannot change
//! the referenced table itself: an INSERT without parts and without ON CONFLICT, or a COPY, and
//! another table than its own. Everywhere else the end of the statement could show another key than
//! its middle.

use std::sync::Arc;

use cognate_engine::TreeMode;

use super::foreign_key::{Check, References};
use super::memory::row_bytes;
use crate::budget::{Budget, Charge};
use crate::catalog::{Oid, Table};
use crate::error::Result;
use crate::function::Interrupt;
use crate::session::work::Work;

/// So much is for nothing.
const FREE_BYTES: usize = 64 << 10;
/// The charge grows by so much at least.
const STEP_BYTES: usize = 64 << 10;
/// So many checks are looked at together before the end.
const MANY: usize = 4096;
/// What there was no memory for.
const WHAT: &str = "What waits to be checked";

/// The memory of the checks that wait in a transaction.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    statement: Weight,
    transaction: Weight,
    /// So many of the statement's checks, the first ones, have been looked at in vain.
    tried: usize,
    /// Bytes that were charged.
    paid: usize,
    charge: Option<Charge>,
}

/// About what the checks of a queue take.
#[derive(Debug, Default)]
struct Weight {
    checks: usize,
    bytes: usize,
}

impl Weight {
    /// One more check comes to so many. If there were more before, they were as heavy as the rest;
    /// those that a savepoint has brought back are as heavy as the new one.
    fn add(&mut self, waiting: usize, bytes: usize) {
        self.lower(waiting);
        self.bytes += (waiting - self.checks + 1) * bytes;
        self.checks = waiting + 1;
    }

    /// There are so many left at most.
    fn lower(&mut self, waiting: usize) {
        if waiting < self.checks {
            self.bytes = self.bytes / self.checks * waiting;
            self.checks = waiting;
        }
    }
}

impl Pending {
    fn bytes(&self) -> usize {
        self.statement.bytes + self.transaction.bytes
    }

    /// Takes memory for what waits, if that is more than before.
    fn pay(&mut self, budget: &Arc<Budget>) -> Result<()> {
        let bytes = self.bytes();
        if bytes <= self.paid.max(FREE_BYTES) {
            return Ok(());
        }
        let bytes = bytes + STEP_BYTES;
        match &mut self.charge {
            Some(charge) => charge.resize(bytes, WHAT)?,
            None => self.charge = Some(budget.charge(bytes, WHAT)?),
        }
        self.paid = bytes;
        Ok(())
    }

    /// The statement's checks are done, and so many are left for the end of the transaction.
    fn end_statement(&mut self, deferred: usize) {
        (self.statement, self.tried) = (Weight::default(), 0);
        self.transaction.lower(deferred);
        let bytes = self.bytes();
        if bytes <= FREE_BYTES {
            (self.charge, self.paid) = (None, 0);
        } else if bytes + STEP_BYTES < self.paid
            && let Some(charge) = &mut self.charge
            && charge.resize(bytes + STEP_BYTES, WHAT).is_ok()
        {
            self.paid = bytes + STEP_BYTES;
        }
    }
}

impl Check {
    fn bytes(&self) -> usize {
        let values = match self {
            Check::Parent { values, .. } | Check::Unique { values, .. } => row_bytes(values),
            Check::Children { before, after, .. } => {
                row_bytes(before) + after.as_deref().map_or(0, row_bytes)
            }
        };
        size_of::<Check>() + values
    }
}

impl Work<'_> {
    /// Keeps a check for the end of the statement, or of the transaction. 53200.
    pub(super) fn keep_check(&mut self, check: Check, deferred: bool) -> Result<()> {
        let state = &mut *self.state;
        // A statement that is run again begins with an empty queue.
        state.pending.tried = state.pending.tried.min(state.checks.len());
        let (queue, weight) = match deferred {
            true => (&mut state.deferred, &mut state.pending.transaction),
            false => (&mut state.checks, &mut state.pending.statement),
        };
        weight.add(queue.len(), check.bytes());
        queue.push(check);
        match self.facts.fixed() {
            Some(_) => Ok(()),
            None => state.pending.pay(self.database.statement_budget()),
        }
    }

    /// The checks of a statement have been looked at.
    pub(super) fn end_checks(&mut self) {
        let deferred = self.state.deferred.len();
        self.state.pending.end_statement(deferred);
    }

    /// SET CONSTRAINTS ... IMMEDIATE: looks at what does not wait for the end of the transaction
    /// any more. What other constraints are to be asked of it still does.
    pub(crate) async fn run_due_checks(&mut self) -> Result<()> {
        let kept = std::mem::take(&mut self.state.deferred);
        let (waiting, due): (Vec<Check>, Vec<Check>) =
            kept.into_iter().partition(|check| self.still_waits(check));
        self.state.deferred = waiting;
        self.state.checks.extend(due);
        self.run_checks().await
    }

    /// Whether a check that was kept for the end of the transaction still waits for that. That of a
    /// constraint which is gone looks at nothing.
    fn still_waits(&self, check: &Check) -> bool {
        let state = &*self.state;
        let key = |table: &Table, key: Oid| table.foreign_key(key).is_some_and(|key| state.is_deferred(key));
        let known = |table: Oid| self.catalog.table_by_oid(table);
        match check {
            Check::Parent { table, key: of, .. } => key(table, *of),
            Check::Children { child, key: of, .. } => known(*child).is_some_and(|child| key(child, *of)),
            Check::Unique { table, index, .. } => {
                let index = known(*table).and_then(|table| table.index(*index));
                index.is_some_and(|index| state.is_unique_deferred(index))
            }
        }
    }

    /// A load has written a row: now and then looks at what its rows refer to.
    pub(crate) async fn check_load(&mut self) -> Result<()> {
        if self.state.checks.len() < self.state.pending.tried + MANY {
            return Ok(());
        }
        Box::pin(self.check_early()).await
    }

    /// Looks at the references that are new. What is not found is left for the end.
    async fn check_early(&mut self) -> Result<()> {
        let tried = self.state.pending.tried.min(self.state.checks.len());
        for check in self.state.checks.split_off(tried) {
            self.interrupts.check()?;
            if !self.refers_already(&check).await? {
                self.state.checks.push(check);
            }
        }
        let left = self.state.checks.len();
        self.state.pending.tried = left;
        self.state.pending.statement.lower(left);
        Ok(())
    }

    /// Whether a check is that of a reference to another table's row that is there, and locked from
    /// now on.
    async fn refers_already(&mut self, check: &Check) -> Result<bool> {
        let Check::Parent { table, key, values } = check else { return Ok(false) };
        let Some(key) = table.foreign_key(*key) else { return Ok(false) };
        if key.referenced_table == table.oid || References::of(key, values) != References::Key {
            return Ok(false);
        }
        self.join_table(key.referenced_table, TreeMode::RowShare).await?;
        let Some(parent) = self.catalog.table_by_oid(key.referenced_table).cloned() else {
            return Ok(false);
        };
        match self.shows_parent(table, &parent, key, values)? {
            true => self.lock_parent(table, &parent, key, values).await,
            false => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_paid_for_until_it_is_checked() {
        let budget = Budget::new(FREE_BYTES * 4);
        let mut pending = Pending::default();
        for waiting in 0..10 {
            pending.statement.add(waiting, FREE_BYTES / 10);
            pending.pay(&budget).expect("little is for nothing");
        }
        assert!(pending.charge.is_none());
        pending.transaction.add(0, FREE_BYTES);
        pending.pay(&budget).expect("there is room");
        assert_eq!(pending.paid, pending.bytes() + STEP_BYTES);
        pending.statement.add(10, FREE_BYTES * 4);
        let error = pending.pay(&budget).expect_err("there is no room");
        assert_eq!(error.sqlstate, crate::error::sqlstate::OUT_OF_MEMORY);
        pending.end_statement(1);
        assert_eq!((pending.bytes(), pending.paid), (FREE_BYTES, 0));
        // What waits for the end of the transaction stays paid for, and no more than that.
        pending.transaction.add(1, 1);
        pending.statement.add(0, FREE_BYTES);
        pending.pay(&budget).expect("there is room again");
        pending.end_statement(2);
        assert_eq!((pending.bytes(), pending.paid), (FREE_BYTES + 1, FREE_BYTES + 1 + STEP_BYTES));
        pending.end_statement(0);
        assert_eq!((pending.bytes(), pending.paid), (0, 0));
        drop(budget.charge(FREE_BYTES * 4, "Something else").expect("all came back"));
    }

    #[test]
    fn those_that_went_unseen_weigh_as_much_as_the_rest() {
        let mut weight = Weight::default();
        (0..100).for_each(|waiting| weight.add(waiting, 10));
        weight.add(50, 30);
        assert_eq!((weight.checks, weight.bytes), (51, 530));
        weight.add(0, 7);
        assert_eq!((weight.checks, weight.bytes), (1, 7));
        weight.lower(0);
        assert_eq!((weight.checks, weight.bytes), (0, 0));
        weight.add(3, 7);
        assert_eq!((weight.checks, weight.bytes), (4, 28));
    }
}
