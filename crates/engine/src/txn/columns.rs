//! Which part of a row was read, and which part of it a write changed.
//!
//! A key is read and written as a whole. What a statement *depends on* may be less: some columns of
//! the rows that meet some conditions. So a read may carry an [`Interest`], and a write what it
//! changed (`change`); a write concerns a reader only if it changed what the reader saw:
//!
//! ```text
//! concerns  =  changed columns ∩ columns of interest ≠ ∅
//!              and (the row before, or the row after, may meet all conditions)
//! ```
//!
//! *Presence*, that there is a row at all, counts as a column: whoever reads a row reads it; who
//! inserts or deletes a row changes it, and all other columns with it. Columns that a condition
//! looks at are columns of interest: a row that moves into the conditions, or out of them, is
//! noticed by that. A row that is not there meets no condition.
//!
//! # Why this is enough
//!
//! Let a reader have seen version `v0` of a row, and let `v1 v2 … vn` be the versions after it,
//! each by another writer. The answer that the reader got is a function of the version which yields
//! the same for `v0 … vi` if none of the writers of `v1 … vi` concerns it: each of them leaves the
//! row outside of the conditions, or leaves all that is read of it as it was. So the reader may
//! stand anywhere between the writer of `v0` and the first writer that concerns it, and must stand
//! before that one. That is what the dependency graph says: `wr` from the writer of `v0`, `rw` to
//! the first writer that concerns it. Later ones come behind that one by `ww`, as long as *every*
//! writer of a row is connected with the next one, whatever both changed; and they are, for a
//! version is written as a whole: its writer has carried over the columns that it did not change,
//! and so depends on whoever wrote them.
//!
//! `wr` edges are drawn from the writer of `v0`, whatever it changed, because what the reader saw
//! may be by an earlier writer, who is reached through the last one: `ww` leads from one to the
//! next, and `wr` from the last one on.
//!
//! # What is not known, concerns
//!
//! A write without a description changes everything, a read without an interest is interested in
//! everything. Values are compared by *codes*: 64 bits that order as the values do, equal for some
//! that differ. Who makes conditions makes them such that they hold for the code of each value that
//! the condition holds for. So what is not known, or not known exactly, can only add an edge.

use smallvec::SmallVec;

/// Columns of a row, and whether the row is there. Those from the 63rd on count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns(u64);

impl Columns {
    /// Nothing at all.
    pub const NONE: Columns = Columns(0);
    /// Whether the row is there.
    pub const PRESENCE: Columns = Columns(1);
    /// Everything.
    pub const ALL: Columns = Columns(u64::MAX);

    /// These and one more, by its place from 0.
    #[inline]
    #[must_use]
    pub fn with(self, column: usize) -> Columns {
        Columns(self.0 | 2 << column.min(62))
    }

    /// These and others.
    #[inline]
    #[must_use]
    pub(crate) fn and(self, others: Columns) -> Columns {
        Columns(self.0 | others.0)
    }

    /// Whether some are in both.
    #[inline]
    pub(crate) fn meet(self, others: Columns) -> bool {
        self.0 & others.0 != 0
    }

    /// Whether all of the others are among these.
    #[inline]
    pub(crate) fn cover(self, others: Columns) -> bool {
        others.0 & !self.0 == 0
    }

    /// As a number, to be kept or sent.
    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// From the number.
    #[inline]
    pub(crate) fn of_bits(bits: u64) -> Columns {
        Columns(bits)
    }
}

/// What is known of a column's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Nothing.
    Unknown,
    /// It is NULL.
    Null,
    /// It is not, and has this code.
    Code(u64),
}

/// How a condition compares a column with its constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// The column is less.
    Less,
    /// Less or equal.
    AtMost,
    /// Equal.
    Equal,
    /// Different.
    Different,
    /// Greater or equal.
    AtLeast,
    /// Greater.
    Greater,
    /// The column is NULL; there is no constant.
    IsNull,
    /// It is not.
    IsNotNull,
}

impl Test {
    /// All of them, in the order of their numbers.
    const ALL: [Test; 8] = [
        Test::Less,
        Test::AtMost,
        Test::Equal,
        Test::Different,
        Test::AtLeast,
        Test::Greater,
        Test::IsNull,
        Test::IsNotNull,
    ];

    /// As a number, to be kept or sent.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// From the number.
    pub(crate) fn of_number(number: u8) -> Option<Test> {
        Test::ALL.get(usize::from(number)).copied()
    }
}

/// A simple condition on one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// The column's place, from 0.
    pub column: u32,
    /// The comparison.
    pub test: Test,
    /// The constant's code.
    pub code: u64,
}

impl Condition {
    /// Whether a row with this value in the column may meet it. NULL compares with nothing.
    pub(crate) fn may_hold(&self, value: Known) -> bool {
        match (value, self.test) {
            (Known::Unknown, _) | (Known::Null, Test::IsNull) | (Known::Code(_), Test::IsNotNull) => true,
            (Known::Null, _) | (Known::Code(_), Test::IsNull) => false,
            (Known::Code(code), Test::Less) => code < self.code,
            (Known::Code(code), Test::AtMost) => code <= self.code,
            (Known::Code(code), Test::Equal) => code == self.code,
            (Known::Code(code), Test::Different) => code != self.code,
            (Known::Code(code), Test::AtLeast) => code >= self.code,
            (Known::Code(code), Test::Greater) => code > self.code,
        }
    }
}

/// What a reader of rows depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interest {
    columns: Columns,
    conditions: SmallVec<[Condition; 2]>,
}

impl Interest {
    /// In these columns of the rows that meet all of these conditions; whose columns are among
    /// them from now on.
    pub fn new(columns: Columns, conditions: impl IntoIterator<Item = Condition>) -> Interest {
        let conditions: SmallVec<[Condition; 2]> = conditions.into_iter().collect();
        let looked_at = |columns: Columns, one: &Condition| columns.with(one.column as usize);
        let columns = conditions.iter().fold(columns.and(Columns::PRESENCE), looked_at);
        Interest { columns, conditions }
    }

    /// Whether it is in everything.
    pub fn is_whole(&self) -> bool {
        self.columns == Columns::ALL && self.conditions.is_empty()
    }

    /// The columns.
    pub(crate) fn columns(&self) -> Columns {
        self.columns
    }

    /// The conditions.
    pub(crate) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        let spilled = if self.conditions.spilled() { self.conditions.len() } else { 0 };
        size_of::<Interest>() + spilled * size_of::<Condition>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_beyond_the_last_bit_count_as_one() {
        let of = |column| Columns::PRESENCE.with(column);
        assert!(!Columns::NONE.with(0).meet(Columns::PRESENCE));
        assert!(!Columns::NONE.with(61).meet(Columns::NONE.with(62)));
        assert!(Columns::NONE.with(62).meet(Columns::NONE.with(1599)));
        assert!(of(3).and(of(4)).cover(of(4)) && !of(3).cover(of(4)) && Columns::ALL.cover(of(62)));
    }

    #[test]
    fn what_is_not_known_may_hold() {
        let condition = |test| Condition { column: 0, test, code: 5 };
        for test in Test::ALL {
            assert!(condition(test).may_hold(Known::Unknown), "{test:?}");
            assert_eq!(condition(test).may_hold(Known::Null), test == Test::IsNull, "{test:?}");
            assert_eq!(Test::of_number(test.number()), Some(test));
        }
        let holds = |code| Test::ALL.map(|test| condition(test).may_hold(Known::Code(code)));
        assert_eq!(holds(4), [true, true, false, true, false, false, false, true]);
        assert_eq!(holds(5), [false, true, true, false, true, false, false, true]);
        assert_eq!(holds(6), [false, false, false, true, true, true, false, true]);
    }

    #[test]
    fn conditions_are_of_interest() {
        let interest =
            Interest::new(Columns::NONE.with(1), [Condition { column: 3, test: Test::Less, code: 1 }]);
        assert!(interest.columns().cover(Columns::PRESENCE.with(1).with(3)));
        assert!(!interest.is_whole() && Interest::new(Columns::ALL, []).is_whole());
    }
}
