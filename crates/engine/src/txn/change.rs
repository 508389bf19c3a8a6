//! What writes changed of their rows, in a form that needs no knowledge of rows: for each write the
//! columns that it changed, and the codes of short columns before and after it (`columns` says what
//! is made of them).
//!
//! A transaction's [`Effects`] are one list of words; a write knows its place in it, from 1 on.
//! They go with the write set to the certifier, and could go to anybody else who judges by them. A
//! write without a place has changed everything.
//!
//! ```text
//! word 0   the columns that were changed
//! word 1   shape: bits 0-14, 15-29 which columns are known after the write, and which of them are NULL
//!                 bits 30-44, 45-59 the same before the write (of an update: of those that it changed)
//!                 bit 60 there is a row after it; bit 61 there was one before; bit 62 all this is known
//! then     the codes of what is known and not NULL: after, before, ascending by column
//! ```
//!
//! A key that is written twice in a transaction has changed what either write did; codes are not
//! kept of it.

use smallvec::SmallVec;

use super::columns::{Columns, Condition, Interest, Known};
use crate::spare::Spares;
use crate::sync::thread_local;

/// Columns from this one on have no codes.
const CODED: usize = 15;
const AFTER: u32 = 0;
const BEFORE: u32 = 30;
const IS_AFTER: u64 = 1 << 60;
const WAS_BEFORE: u64 = 1 << 61;
const DESCRIBED: u64 = 1 << 62;
/// Beyond so many words, further writes of a transaction are not described. Those of so large a
/// one are soon remembered as ranges anyway.
const WORDS_MAX: usize = 1 << 15;
/// So many words need no memory of their own: an update of a row with a dozen columns.
const INLINE: usize = 15;

/// What one write changes. Made by whoever knows rows.
#[derive(Debug, Clone)]
pub struct Change(SmallVec<[u64; INLINE]>);

/// Appends the codes of one side.
fn describe(
    words: &mut SmallVec<[u64; INLINE]>,
    side: u32,
    columns: impl Iterator<Item = usize>,
    known: impl Fn(usize) -> Known,
) {
    for column in columns.take_while(|column| *column < CODED) {
        let bit = 1 << (column as u32 + side);
        match known(column) {
            Known::Unknown => {}
            Known::Null => words[1] |= bit | bit << CODED,
            Known::Code(code) => {
                words[1] |= bit;
                words.push(code);
            }
        }
    }
}

impl Change {
    /// A new row of so many columns.
    pub fn insert(width: usize, after: impl Fn(usize) -> Known) -> Change {
        let mut words = SmallVec::from_slice(&[Columns::ALL.bits(), DESCRIBED | IS_AFTER]);
        describe(&mut words, AFTER, 0..width, after);
        Change(words)
    }

    /// A row of so many columns goes.
    pub fn delete(width: usize, before: impl Fn(usize) -> Known) -> Change {
        let mut words = SmallVec::from_slice(&[Columns::ALL.bits(), DESCRIBED | WAS_BEFORE]);
        describe(&mut words, BEFORE, 0..width, before);
        Change(words)
    }

    /// A row of so many columns gets other values in those that `changed` names.
    pub fn update(
        width: usize,
        changed: impl Fn(usize) -> bool,
        before: impl Fn(usize) -> Known,
        after: impl Fn(usize) -> Known,
    ) -> Change {
        let columns = (0..width).filter(|column| changed(*column)).fold(Columns::NONE, Columns::with);
        let mut words = SmallVec::from_slice(&[columns.bits(), DESCRIBED | WAS_BEFORE | IS_AFTER]);
        if columns != Columns::NONE {
            describe(&mut words, AFTER, 0..width, after);
            let changed = (0..width.min(CODED)).filter(|column| columns.meet(Columns::NONE.with(*column)));
            describe(&mut words, BEFORE, changed, before);
        }
        Change(words)
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * size_of::<u64>()
    }
}

/// One change of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effect<'a>(&'a [u64]);

impl Effect<'_> {
    /// The columns that were changed.
    #[inline]
    pub(crate) fn columns(self) -> Columns {
        self.0.first().map_or(Columns::ALL, |bits| Columns::of_bits(*bits))
    }

    /// Whether a reader with this interest sees a difference.
    pub(crate) fn concerns(self, interest: &Interest) -> bool {
        self.columns().meet(interest.columns()) && self.may_meet(interest.conditions())
    }

    /// Whether the row may meet all conditions, before or after.
    pub(crate) fn may_meet(self, conditions: &[Condition]) -> bool {
        let shape = match self.0 {
            [_, shape, ..] if shape & DESCRIBED != 0 => *shape,
            _ => return true,
        };
        let met = |before: bool| conditions.iter().all(|one| one.may_hold(self.known(one.column, before)));
        shape & IS_AFTER != 0 && met(false) || shape & WAS_BEFORE != 0 && met(true)
    }

    /// What is known of a column of a change that is described.
    fn known(self, column: u32, before: bool) -> Known {
        if column as usize >= CODED {
            return Known::Unknown;
        }
        let is_update = self.0[1] & IS_AFTER != 0 && self.0[1] & WAS_BEFORE != 0;
        let kept = is_update && !self.columns().meet(Columns::NONE.with(column as usize));
        let (shape, side) = (self.0[1], if before && !kept { BEFORE } else { AFTER });
        let coded = |side: u32| (shape >> side) & !(shape >> (side + CODED as u32)) & ((1 << CODED) - 1);
        let bit = 1_u64 << column;
        if (shape >> side) & bit == 0 {
            return Known::Unknown;
        }
        if coded(side) & bit == 0 {
            return Known::Null;
        }
        let ahead = if side == BEFORE { coded(AFTER).count_ones() } else { 0 };
        let place = 2 + ahead + (coded(side) & (bit - 1)).count_ones();
        self.0.get(place as usize).map_or(Known::Unknown, |code| Known::Code(*code))
    }
}

/// What the writes of one transaction changed. A handle, as a read set is: what it points to goes
/// from the write set to the graph as it is, and is used again by whoever drops it.
#[derive(Debug, Default)]
pub(crate) struct Effects(Option<Box<Words>>);

/// Two lines of memory.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Words(SmallVec<[u64; INLINE]>);

const _: () = assert!(size_of::<Words>() == 2 * 64);

thread_local! {
    static SPARES: Spares<Words> = const { Spares::new() };
}

impl Drop for Effects {
    fn drop(&mut self) {
        if let Some(mut words) = self.0.take().filter(|words| !words.0.spilled()) {
            words.0.clear();
            SPARES.try_with(|spares| spares.keep(words)).ok();
        }
    }
}

impl Effects {
    fn words(&mut self) -> &mut SmallVec<[u64; INLINE]> {
        let spare = || SPARES.try_with(Spares::take).ok().flatten().unwrap_or_default();
        &mut self.0.get_or_insert_with(spare).0
    }

    /// Adds what a write changed that is the transaction's first of its key. Its place.
    pub(crate) fn add(&mut self, change: &Change) -> u32 {
        self.append(&change.0)
    }

    /// The place of what two writes of one key changed together: the one at `place`, and this one.
    pub(crate) fn join(&mut self, place: u32, change: &Change) -> u32 {
        if place == 0 {
            return 0;
        }
        let columns = self.at(place).columns().and(Effect(&change.0).columns());
        if columns == Columns::ALL { 0 } else { self.append(&[columns.bits(), 0]) }
    }

    fn append(&mut self, change: &[u64]) -> u32 {
        let words = self.words();
        if words.len() + change.len() > WORDS_MAX {
            return 0;
        }
        words.extend_from_slice(change);
        (words.len() - change.len() + 1) as u32
    }

    /// All of it, as one list.
    pub(crate) fn list(&self) -> &[u64] {
        self.0.as_ref().map_or(&[], |words| &words.0)
    }

    /// What [`Effects::list`] was of.
    pub(crate) fn of_list(list: &[u64]) -> Effects {
        let mut effects = Effects::default();
        if !list.is_empty() {
            effects.words().extend_from_slice(list);
        }
        effects
    }

    /// What the write with this place changed.
    #[inline]
    pub(crate) fn at(&self, place: u32) -> Effect<'_> {
        let words = self.0.as_ref().map_or(&[][..], |words| &words.0);
        let from = (place as usize).checked_sub(1);
        Effect(from.and_then(|from| words.get(from..)).unwrap_or_default())
    }

    /// Bytes of memory in use, approximately.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |words| size_of::<Words>() + words.0.len() * size_of::<u64>())
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::Test;
    use super::*;

    fn of(values: &[Option<u64>]) -> impl Fn(usize) -> Known + '_ {
        |column| values[column].map_or(Known::Null, Known::Code)
    }

    fn interest(columns: Columns, conditions: &[(u32, Test, u64)]) -> Interest {
        let condition = |&(column, test, code): &(u32, Test, u64)| Condition { column, test, code };
        Interest::new(columns, conditions.iter().map(condition))
    }

    fn update(before: &[Option<u64>], after: &[Option<u64>]) -> Change {
        Change::update(before.len(), |column| before[column] != after[column], of(before), of(after))
    }

    #[test]
    fn an_update_concerns_who_saw_what_it_changed() {
        let (before, after) = ([Some(1), Some(2), None, Some(4)], [Some(1), Some(7), Some(3), Some(4)]);
        let change = update(&before, &after);
        let concerns = |columns: &[usize], conditions: &[(u32, Test, u64)]| {
            let columns = columns.iter().copied().fold(Columns::NONE, Columns::with);
            Effect(&change.0).concerns(&interest(columns, conditions))
        };
        assert!(concerns(&[1], &[]) && concerns(&[0, 2], &[]) && !concerns(&[0, 3], &[]));
        // Conditions on what it left alone.
        assert!(concerns(&[1], &[(0, Test::Equal, 1)]) && !concerns(&[1], &[(0, Test::Equal, 2)]));
        assert!(concerns(&[1], &[(3, Test::AtLeast, 4)]) && !concerns(&[1], &[(3, Test::Greater, 4)]));
        // Rows that move into the conditions, out of them, or stay outside.
        assert!(concerns(&[], &[(1, Test::Equal, 7)]) && concerns(&[], &[(1, Test::Equal, 2)]));
        assert!(!concerns(&[], &[(1, Test::Equal, 5)]) && !concerns(&[1], &[(1, Test::Greater, 7)]));
        assert!(concerns(&[], &[(2, Test::IsNull, 0)]) && concerns(&[], &[(2, Test::Equal, 3)]));
        assert!(!concerns(&[], &[(2, Test::Equal, 0)]), "NULL equals nothing");
        // All conditions at once, of one of the two rows.
        assert!(!concerns(&[], &[(1, Test::Equal, 7), (2, Test::IsNull, 0)]));
        assert!(concerns(&[], &[(1, Test::Equal, 2), (2, Test::IsNull, 0)]));
    }

    #[test]
    fn rows_that_come_and_go_concern_who_would_have_seen_them() {
        let row = [Some(1), None];
        let all = interest(Columns::NONE, &[]);
        for change in [Change::insert(2, of(&row)), Change::delete(2, of(&row))] {
            let change = Effect(&change.0);
            assert!(change.concerns(&all) && change.concerns(&interest(Columns::NONE.with(9), &[])));
            assert!(change.concerns(&interest(Columns::NONE, &[(0, Test::Equal, 1)])));
            assert!(!change.concerns(&interest(Columns::NONE, &[(0, Test::Equal, 2)])));
            assert!(!change.concerns(&interest(Columns::NONE, &[(1, Test::IsNotNull, 0)])));
            // The row is not there on the other side, so that is not NULL there.
            assert!(change.concerns(&interest(Columns::NONE, &[(1, Test::IsNull, 0)])));
        }
    }

    #[test]
    fn a_write_of_what_was_there_concerns_nobody() {
        let row = [Some(1), None];
        let change = update(&row, &row);
        assert_eq!(Effect(&change.0).columns(), Columns::NONE);
        assert!(!Effect(&change.0).concerns(&interest(Columns::ALL, &[])));
    }

    #[test]
    fn columns_without_codes_may_have_any_value() {
        let before: Vec<Option<u64>> = (0..20).map(Some).collect();
        let mut after = before.clone();
        (after[3], after[17]) = (Some(30), Some(70));
        let change = update(&before, &after);
        let change = Effect(&change.0);
        assert!(change.concerns(&interest(Columns::NONE, &[(17, Test::Equal, 1)])));
        assert!(!change.concerns(&interest(Columns::NONE.with(17), &[(14, Test::Equal, 1)])));
        assert!(!change.concerns(&interest(Columns::NONE.with(16), &[])));
    }

    #[test]
    fn two_writes_of_a_key_change_what_either_did() {
        let mut changes = Effects::default();
        let (a, b, c) =
            ([Some(1), Some(1), Some(1)], [Some(2), Some(1), Some(1)], [Some(2), Some(2), Some(1)]);
        let first = changes.add(&update(&a, &b));
        let both = changes.join(first, &update(&b, &c));
        assert_eq!(changes.at(first).columns(), Columns::NONE.with(0));
        assert_eq!(changes.at(both).columns(), Columns::NONE.with(0).with(1));
        assert!(changes.at(both).concerns(&interest(Columns::NONE.with(1), &[(2, Test::Equal, 9)])));
        assert!(!changes.at(both).concerns(&interest(Columns::NONE.with(2), &[])));
        let gone = changes.join(both, &Change::delete(3, of(&c)));
        assert_eq!((gone, changes.at(gone).columns()), (0, Columns::ALL));
        assert_eq!(changes.join(0, &update(&b, &c)), 0);
    }

    #[test]
    fn very_many_writes_are_not_described_any_more() {
        let mut changes = Effects::default();
        let row = [Some(1); 10];
        let places: Vec<u32> = (0..5000).map(|_| changes.add(&Change::insert(10, of(&row)))).collect();
        assert!(places[0] == 1 && places[2000] > 0 && places[4999] == 0);
        assert!(changes.bytes() < 9 * WORDS_MAX);
    }
}
