//! What a statement reads and writes of tables and indexes, for the views of statistics.
//!
//! Whoever reads counts rows in a variable of its own, and adds them here once for many of them: it
//! is a look at one or two entries, without a lock.

use smallvec::SmallVec;

use crate::catalog::Oid;

/// What was counted of a table or of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Readings of all rows of a table; of an index, keys and ranges that were looked for.
    pub scans: u64,
    /// Rows that these have met, or entries.
    pub read: u64,
    /// Rows that entries of an index have led to.
    pub fetched: u64,
    /// Rows that were inserted into a table, whatever became of the transaction.
    pub inserted: u64,
    /// Rows that were updated, likewise.
    pub updated: u64,
    /// Rows that were deleted, likewise.
    pub deleted: u64,
}

impl Counts {
    /// Counts a key that an index was asked for, and whether that has led to a row.
    pub(crate) fn add_key(&mut self, is_found: bool) {
        self.scans += 1;
        self.read += u64::from(is_found);
        self.fetched += u64::from(is_found);
    }

    /// Adds what was counted elsewhere.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.scans += other.scans;
        self.read += other.read;
        self.fetched += other.fetched;
        self.inserted += other.inserted;
        self.updated += other.updated;
        self.deleted += other.deleted;
    }
}

/// The counts of what was used, by oid. There are few: most statements use one index.
#[derive(Debug, Default)]
pub struct Usage(SmallVec<[(Oid, Counts); 2]>);

impl Usage {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Of how many tables and indexes there are counts.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The counts of a table or an index.
    pub(crate) fn of(&mut self, relation: Oid) -> &mut Counts {
        // What was used last is used next.
        let known = self.0.iter().rposition(|(known, _)| *known == relation);
        let place = known.unwrap_or_else(|| {
            self.0.push((relation, Counts::default()));
            self.0.len() - 1
        });
        &mut self.0[place].1
    }

    /// Adds what was counted elsewhere.
    pub(crate) fn add(&mut self, other: Usage) {
        for (relation, counts) in other.0 {
            self.of(relation).add(&counts);
        }
    }

    /// Gives all counts away.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (Oid, Counts)> + '_ {
        self.0.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_relation_come_together() {
        let (mut one, mut other) = (Usage::default(), Usage::default());
        for relation in [1, 2, 3, 1] {
            one.of(relation).read += 1;
        }
        other.of(3).read += 5;
        other.of(4).inserted += 1;
        one.add(other);
        assert_eq!(one.len(), 4);
        let all: Vec<_> =
            one.take().map(|(relation, counts)| (relation, counts.read, counts.inserted)).collect();
        assert_eq!(all, [(1, 2, 0), (2, 1, 0), (3, 6, 0), (4, 0, 1)]);
        assert!(one.is_empty());
    }
}
