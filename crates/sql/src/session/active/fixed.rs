//! What a program that every node executes sees as the same everywhere: the time of where it was
//! asked for, and counters as they are stored when it is its turn.
//!
//! A counter's row says what may have been given out so far, at any node; blocks that nodes have
//! taken for themselves end there. So the program takes what comes behind, and leaves behind it
//! what it has taken.

use std::collections::BTreeMap;

use cognate_engine::{Database, ReadView, Transaction};
use parking_lot::Mutex;

use super::program::RULES;
use crate::catalog::Sequence;
use crate::error::Result;
use crate::sequence::{self, Stored};

/// See the module's prose.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// Microseconds since 2000-01-01 UTC.
    pub(crate) now: i64,
    /// Under which rules the program was found fit.
    pub(crate) rules: u32,
    engine: Database,
    stored: ReadView,
    /// Counters that were used, as they are to be stored.
    taken: Mutex<BTreeMap<u32, Stored>>,
}

impl Fixed {
    pub(crate) fn new(now: i64, engine: Database, stored: ReadView) -> Fixed {
        Fixed { now, rules: RULES, engine, stored, taken: Mutex::default() }
    }

    /// The same under these rules.
    pub(crate) fn under(self, rules: u32) -> Fixed {
        Fixed { rules, ..self }
    }

    /// nextval.
    pub(crate) fn next(&self, sequence: &Sequence) -> Result<i64> {
        let mut taken = self.taken.lock();
        let stored = match taken.get(&sequence.counter) {
            Some(taken) => Some(*taken),
            None => sequence::stored(&self.engine, &self.stored, sequence.counter)?,
        };
        let value = sequence::after(sequence, stored)?;
        taken.insert(sequence.counter, taken_up_to(value, stored));
        Ok(value)
    }

    /// The first of `count` row ids.
    pub(crate) fn row_ids(&self, count: u64) -> Result<u64> {
        let counter = sequence::ROW_ID_COUNTER;
        let mut taken = self.taken.lock();
        let stored = match taken.get(&counter) {
            Some(taken) => Some(*taken),
            None => sequence::stored(&self.engine, &self.stored, counter)?,
        };
        let first = stored.map_or(1, |stored| stored.last.unsigned_abs());
        taken.insert(counter, taken_up_to((first + count).cast_signed(), stored));
        Ok(first)
    }

    /// Writes down what was taken.
    pub(crate) fn write(&self, transaction: &mut Transaction) -> Result<()> {
        let taken = self.taken.lock();
        taken.iter().try_for_each(|(counter, stored)| sequence::put(transaction, *counter, *stored))
    }
}

/// A counter whose numbers were given out up to this one: that concerns no node's block.
fn taken_up_to(last: i64, before: Option<Stored>) -> Stored {
    Stored { last, is_called: true, sets: before.map_or(0, |before| before.sets) }
}
