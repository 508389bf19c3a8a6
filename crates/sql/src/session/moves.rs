//! Rows that a transaction has moved to other keys, or deleted, while cursors were open.
//!
//! A cursor knows its rows by the keys that they had when it was declared. By now a row may have
//! another key, or another row that one: WHERE CURRENT OF follows the row from move to move, as
//! PostgreSQL does from version to version, and finds nothing if it was deleted. How many moves
//! there were before says which of them a cursor has seen, and what a savepoint or a statement that
//! is undone leaves.
//!
//! They are charged to the memory that statements share, from [`FREE_BYTES`] on: a row may move as
//! often as a transaction has statements.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::budget::{Budget, Charge};
use crate::catalog::Oid;
use crate::error::Result;

/// So much is for nothing, and the charge grows by so much.
const FREE_BYTES: usize = 64 << 10;
/// About what a move takes beside the keys.
const MOVE_BYTES: usize = 256;
/// What there was no memory for.
const WHAT: &str = "What cursors are to know of rows that have moved";

/// The moves of a transaction, in order.
#[derive(Default)]
pub(crate) struct Moves {
    moves: Vec<Move>,
    /// Where those from a key are, in order.
    places: HashMap<(Oid, Bytes), SmallVec<[usize; 1]>>,
    /// About what they take, and how much of that was charged.
    bytes: usize,
    paid: usize,
    charge: Option<Charge>,
}

/// A row of a table has got another key, or none any more.
struct Move {
    table: Oid,
    from: Bytes,
    to: Option<Bytes>,
}

impl Move {
    fn bytes(&self) -> usize {
        MOVE_BYTES + self.from.len() + self.to.as_ref().map_or(0, Bytes::len)
    }
}

impl Moves {
    /// How many there were.
    pub(crate) fn count(&self) -> usize {
        self.moves.len()
    }

    /// A row has got another key; none if it was deleted.
    pub(crate) fn note(&mut self, table: Oid, from: Bytes, to: Option<Bytes>) {
        self.places.entry((table, from.clone())).or_default().push(self.moves.len());
        let one = Move { table, from, to };
        self.bytes += one.bytes();
        self.moves.push(one);
    }

    /// Takes memory for what was noted, if that is more than before. 53200.
    pub(crate) fn pay(&mut self, budget: &Arc<Budget>) -> Result<()> {
        if self.bytes <= self.paid.max(FREE_BYTES) {
            return Ok(());
        }
        let bytes = self.bytes + FREE_BYTES;
        match &mut self.charge {
            Some(charge) => charge.resize(bytes, WHAT)?,
            None => self.charge = Some(budget.charge(bytes, WHAT)?),
        }
        self.paid = bytes;
        Ok(())
    }

    /// Forgets all but the first, which are undone.
    pub(crate) fn truncate(&mut self, count: usize) {
        while self.moves.len() > count
            && let Some(undone) = self.moves.pop()
        {
            self.bytes -= undone.bytes();
            if let Entry::Occupied(mut places) = self.places.entry((undone.table, undone.from)) {
                places.get_mut().pop();
                if places.get().is_empty() {
                    places.remove();
                }
            }
        }
    }

    /// The key that a row has by now which had another one after so many moves; none if it is gone.
    pub(crate) fn follow(&self, table: Oid, key: Bytes, mut known: usize) -> Option<Bytes> {
        let mut asked = (table, key);
        loop {
            let places = self.places.get(&asked).map_or(&[][..], SmallVec::as_slice);
            let since = places.partition_point(|place| *place < known);
            let Some(place) = places.get(since) else { return Some(asked.1) };
            asked.1 = self.moves.get(*place)?.to.clone()?;
            known = place + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Oid = 7;

    fn key(key: &'static str) -> Bytes {
        Bytes::from_static(key.as_bytes())
    }

    fn moves(all: &[(&'static str, Option<&'static str>)]) -> Moves {
        let mut moves = Moves::default();
        all.iter().for_each(|(from, to)| moves.note(TABLE, key(from), to.map(key)));
        moves
    }

    #[test]
    fn a_row_is_followed_and_not_who_has_its_key() {
        let moves = moves(&[("a", Some("b")), ("c", Some("a")), ("a", Some("d")), ("b", Some("a"))]);
        let now = |from, known| moves.follow(TABLE, key(from), known);
        assert_eq!((now("a", 0), now("c", 0)), (Some(key("a")), Some(key("d"))));
        // Who was declared in between knows the keys of then.
        assert_eq!((now("b", 1), now("a", 2), now("a", 3)), (Some(key("a")), Some(key("d")), Some(key("a"))));
        assert_eq!(moves.follow(TABLE + 1, key("a"), 0), Some(key("a")), "of another table");
    }

    #[test]
    fn a_row_that_was_deleted_is_gone_also_if_its_key_is_used_again() {
        let moves = moves(&[("a", Some("b")), ("b", None), ("c", Some("b"))]);
        assert_eq!(moves.follow(TABLE, key("a"), 0), None);
        assert_eq!(moves.follow(TABLE, key("c"), 0), Some(key("b")));
        assert_eq!(moves.follow(TABLE, key("b"), 3), Some(key("b")));
    }

    #[test]
    fn what_is_undone_is_forgotten() {
        let mut moves = moves(&[("a", Some("b")), ("b", Some("c")), ("a", None)]);
        moves.truncate(3);
        moves.truncate(1);
        assert_eq!((moves.count(), moves.places.len()), (1, 1));
        assert_eq!(moves.follow(TABLE, key("a"), 0), Some(key("b")));
        moves.note(TABLE, key("b"), None);
        assert_eq!(moves.follow(TABLE, key("a"), 0), None);
        moves.truncate(0);
        assert!(moves.places.is_empty() && moves.count() == 0);
        assert_eq!(moves.bytes, 0);
    }
}
