//! What the statements of a database's sessions have read and written, by table and index: for
//! `pg_stat_user_tables` and its kin.
//!
//! A statement counts for itself ([`Usage`]), and its transaction adds that up. As in PostgreSQL it
//! is seen by others once the transaction has ended, be it by a rollback; and what long ones have
//! used goes ahead if it is of many tables. There the counts lie in stripes, over which sessions
//! are spread by their process ids, so that they seldom meet: a transaction that has used anything
//! takes one mutex once, and who looks at the counts takes all, one after the other. It is the last
//! mutex that is taken, whatever else is held.
//!
//! The counts are those of the process since it was started, and belong to no transaction. What was
//! counted of relations that are gone is kept as one sum, which is part of the database's.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::catalog::{Catalog, Oid};
use crate::expr::{Counts, Usage};
use crate::pg_catalog::{CountsReset, DatabaseCounts};

const STRIPES: usize = 16;
/// With counts of more relations a transaction passes them on before its end.
const MOST_NOTED: usize = 64;
/// In a stripe of no more relations nobody looks for those that are gone.
const FEW: usize = 64;

/// The counts of a database.
#[derive(Default)]
pub(crate) struct DatabaseUsage {
    stripes: [Stripe; STRIPES],
    reset: Mutex<CountsReset>,
}

/// No two of them share a line of a processor's cache.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(Mutex<Counters>);

#[derive(Default)]
struct Counters {
    by_relation: HashMap<Oid, Counts>,
    /// Those of relations that are not in `by_relation` any more.
    others: Counts,
    /// How many relations were left when it was last looked for those that are gone.
    left: usize,
}

impl DatabaseUsage {
    /// Those of a table or an index.
    pub(crate) fn of(&self, relation: Oid) -> Counts {
        let mut sum = Counts::default();
        for stripe in &self.stripes {
            if let Some(counts) = stripe.0.lock().by_relation.get(&relation) {
                sum.add(counts);
            }
        }
        sum
    }

    /// Those of all relations together.
    pub(crate) fn sum(&self) -> DatabaseCounts {
        let mut sum = Counts::default();
        for stripe in &self.stripes {
            let counters = stripe.0.lock();
            sum.add(&counters.others);
            counters.by_relation.values().for_each(|counts| sum.add(counts));
        }
        DatabaseCounts { counts: sum, reset: *self.reset.lock() }
    }

    /// Counts a table or an index anew. What was counted of it stays in the sum.
    pub(crate) fn reset_relation(&self, relation: Oid, now: i64) {
        for stripe in &self.stripes {
            let mut counters = stripe.0.lock();
            if let Some(counts) = counters.by_relation.remove(&relation) {
                counters.others.add(&counts);
            }
        }
        self.reset.lock().at = Some(now);
    }

    /// Counts everything anew.
    pub(crate) fn reset(&self, reset: CountsReset) {
        for stripe in &self.stripes {
            *stripe.0.lock() = Counters::default();
        }
        *self.reset.lock() = reset;
    }

    /// The catalog has changed: forgets relations that are not in it, once they may be many.
    pub(super) fn forget_gone(&self, catalog: &Catalog) {
        for stripe in &self.stripes {
            let mut counters = stripe.0.lock();
            let Counters { by_relation, others, left } = &mut *counters;
            if by_relation.len() <= FEW.max(*left * 2) {
                continue;
            }
            by_relation.retain(|relation, counts| {
                let is_there = catalog.relation_by_oid(*relation).is_some();
                if !is_there {
                    others.add(counts);
                }
                is_there
            });
            *left = by_relation.len();
        }
    }
}

/// The way of a session's counts.
pub(crate) struct SessionUsage {
    database: Arc<DatabaseUsage>,
    stripe: usize,
}

impl SessionUsage {
    pub(super) fn new(database: &Arc<DatabaseUsage>, process_id: i32) -> SessionUsage {
        let stripe = process_id.unsigned_abs() as usize % STRIPES;
        SessionUsage { database: Arc::clone(database), stripe }
    }

    fn pass_on(&self, noted: &mut Usage) {
        if noted.is_empty() {
            return;
        }
        let mut counters = self.database.stripes[self.stripe].0.lock();
        for (relation, counts) in noted.take() {
            counters.by_relation.entry(relation).or_default().add(&counts);
        }
    }
}

/// What a transaction has used, and nobody was told yet. That is done when it is dropped.
pub(crate) struct TransactionUsage {
    session: Arc<SessionUsage>,
    /// A session's own, so nobody waits for it. Who has the transaction for himself does not take
    /// it.
    noted: Mutex<Usage>,
}

impl TransactionUsage {
    pub(super) fn new(session: &Arc<SessionUsage>) -> TransactionUsage {
        TransactionUsage { session: Arc::clone(session), noted: Mutex::default() }
    }

    /// The counts of a table or an index.
    #[inline]
    pub(crate) fn of(&mut self, relation: Oid) -> &mut Counts {
        self.noted.get_mut().of(relation)
    }

    /// Adds what a statement has used.
    #[inline]
    pub(crate) fn note(&self, used: Usage) {
        if used.is_empty() {
            return;
        }
        let mut noted = self.noted.lock();
        noted.add(used);
        if noted.len() > MOST_NOTED {
            self.session.pass_on(&mut noted);
        }
    }
}

impl Drop for TransactionUsage {
    fn drop(&mut self) {
        self.session.pass_on(self.noted.get_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(database: &Arc<DatabaseUsage>, process_id: i32) -> Arc<SessionUsage> {
        Arc::new(SessionUsage::new(database, process_id))
    }

    #[test]
    fn counts_are_seen_when_a_transaction_has_ended() {
        let database = Arc::default();
        let mut of_one = TransactionUsage::new(&session(&database, 1));
        let of_other = TransactionUsage::new(&session(&database, -2));
        of_one.of(7).inserted += 2;
        let mut used = Usage::default();
        used.of(7).read += 5;
        used.of(8).scans += 1;
        of_other.note(used);
        assert_eq!(database.of(7), Counts::default());
        drop(of_one);
        assert_eq!(database.of(7), Counts { inserted: 2, ..Counts::default() });
        drop(of_other);
        assert_eq!(database.of(7), Counts { inserted: 2, read: 5, ..Counts::default() });
        let sum = Counts { inserted: 2, read: 5, scans: 1, ..Counts::default() };
        assert_eq!(database.sum().counts, sum);
        database.reset_relation(7, 99);
        assert_eq!((database.of(7), database.of(8).scans), (Counts::default(), 1));
        assert_eq!((database.sum().counts, database.sum().reset.at), (sum, Some(99)));
        database.reset(CountsReset::default());
        assert_eq!((database.of(8), database.sum().counts), (Counts::default(), Counts::default()));
    }

    /// Of more than a few relations that are gone only the sum is kept.
    #[test]
    fn what_is_gone_is_forgotten_but_for_the_sum() {
        let database = Arc::default();
        let mut used = TransactionUsage::new(&session(&database, 1));
        let count = FEW as Oid + 1;
        (1..=count).for_each(|relation| used.of(relation).deleted += 1);
        drop(used);
        database.forget_gone(&Catalog::new(1, []));
        assert_eq!(database.of(1), Counts::default());
        assert_eq!(database.sum().counts.deleted, u64::from(count));
    }
}
