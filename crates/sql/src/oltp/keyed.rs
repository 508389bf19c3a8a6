//! A hash table whose keys are rows: of groups, of rows seen, of rows counted.
//!
//! Short keys are held as numbers ([`super::packed`]), which are hashed, moved and let go of in no
//! time; others as rows. A large table is divided: a hash table that grows moves all it has, and
//! with millions of keys a statement would hear of nothing meanwhile. A division that grows moves
//! its own keys only.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use super::hash::Seeded;
use crate::error::Result;
use crate::types::{Datum, bounds};

/// With so many keys a table is divided.
const UNDIVIDED: usize = 1 << 14;
const DIVISIONS: usize = 64;

/// Values by rows.
pub(super) struct Keyed<V> {
    seed: Seeded,
    packed: Divided<u128, V>,
    others: Divided<Box<[Datum]>, V>,
}

impl<V> Default for Keyed<V> {
    fn default() -> Keyed<V> {
        Keyed::new(&Seeded::default())
    }
}

impl<V> Keyed<V> {
    pub(super) fn new(seed: &Seeded) -> Keyed<V> {
        Keyed { seed: seed.clone(), packed: Divided::new(seed), others: Divided::new(seed) }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Keyed::new(&self.seed);
    }

    /// The same, and asks for each key that is given back by itself, and for each division. After
    /// an error the divisions behind are still there: whoever holds the table gives them back.
    pub(super) fn give_back(&mut self, mut go_on: impl FnMut() -> Result<()>) -> Result<()> {
        for map in &mut self.packed.maps {
            go_on()?;
            *map = HashMap::with_hasher(self.seed.clone());
        }
        for map in &mut self.others.maps {
            for entry in map.drain() {
                go_on()?;
                drop(entry);
            }
        }
        self.clear();
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packed.len == 0 && self.others.len == 0
    }

    /// The hash of a row, for who divides rows like this table.
    pub(super) fn hash(&self, row: &[Datum]) -> u64 {
        self.seed.hash_one(row)
    }

    /// The value of a key, which is only looked at if it has no number.
    #[inline]
    pub(super) fn get(&self, packed: Option<u128>, key: &[Datum]) -> Option<&V> {
        match packed {
            Some(packed) => self.packed.at(division(packed)).get(&packed),
            None if self.others.len == 0 => None,
            None => self.others.at(self.division(key)).get(key),
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, packed: Option<u128>, key: &[Datum]) -> Option<&mut V> {
        match packed {
            Some(packed) => self.packed.at_mut(division(packed)).get_mut(&packed),
            None if self.others.len == 0 => None,
            None => {
                let division = self.division(key);
                self.others.at_mut(division).get_mut(key)
            }
        }
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, packed: Option<u128>, key: &[Datum], value: V) {
        match packed {
            Some(packed) => self.packed.insert(packed, value, |packed| division(*packed)),
            None => {
                let seed = &self.seed;
                self.others
                    .insert(key.into(), value, |key| (seed.hash_one(&**key) >> 32) as usize % DIVISIONS);
            }
        }
    }

    fn division(&self, key: &[Datum]) -> usize {
        match self.others.maps.len() {
            1 => 0,
            _ => (self.seed.hash_one(key) >> 32) as usize % DIVISIONS,
        }
    }
}

/// Which of the divisions a number belongs to: who chooses numbers of one division only loses the
/// division.
#[inline]
fn division(packed: u128) -> usize {
    let folded = (packed ^ packed >> 64) as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
}

/// One hash table, or [`DIVISIONS`].
struct Divided<K, V> {
    maps: Vec<HashMap<K, V, Seeded>>,
    len: usize,
}

impl<K: Eq + Hash, V> Divided<K, V> {
    fn new(seed: &Seeded) -> Divided<K, V> {
        Divided { maps: vec![HashMap::with_hasher(seed.clone())], len: 0 }
    }

    #[inline]
    fn at(&self, division: usize) -> &HashMap<K, V, Seeded> {
        &self.maps[division & (self.maps.len() - 1)]
    }

    #[inline]
    fn at_mut(&mut self, division: usize) -> &mut HashMap<K, V, Seeded> {
        let last = self.maps.len() - 1;
        &mut self.maps[division & last]
    }

    fn insert(&mut self, key: K, value: V, division: impl Fn(&K) -> usize) {
        if self.len == UNDIVIDED {
            let seed = self.maps[0].hasher().clone();
            let all = std::mem::take(&mut self.maps);
            self.maps = (0..DIVISIONS).map(|_| HashMap::with_hasher(seed.clone())).collect();
            for (key, value) in all.into_iter().flatten() {
                let division = division(&key);
                self.at_mut(division).insert(key, value);
            }
        }
        let division = division(&key);
        let before = self.at_mut(division).insert(key, value);
        // Any two long keys may be equal once comparing some was given up.
        debug_assert!(before.is_none() || bounds::check().is_err(), "the key was there");
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::packed::pack;
    use super::*;
    use crate::error::{SqlError, sqlstate};

    /// Short ones and long ones: two of three are too long for a number.
    fn key(n: i64) -> Vec<Datum> {
        match n % 3 {
            0 => vec![Datum::Int8(n), Datum::text("a text that is long")],
            1 => vec![Datum::Int8(n)],
            _ => vec![Datum::text("another text of some length"), Datum::Int4(n as i32)],
        }
    }

    #[test]
    fn what_is_left_when_it_is_stopped_stays_with_the_table() {
        let count = 4 * UNDIVIDED as i64;
        let mut table = Keyed::default();
        for n in 0..count {
            let key = key(n);
            table.insert(pack(key.iter()), &key, n);
        }
        let held = |table: &Keyed<i64>| table.others.maps.iter().map(HashMap::len).sum::<usize>();
        let all = held(&table);
        let mut left = DIVISIONS + 10;
        let stopped = table.give_back(|| {
            left -= 1;
            if left == 0 { Err(SqlError::new(sqlstate::QUERY_CANCELED, "stopped")) } else { Ok(()) }
        });
        assert_eq!(stopped.expect_err("it was stopped").sqlstate, "57014");
        assert!(held(&table) > all / 2, "only the division that it was at has gone");
        table.clear();
        assert!(table.is_empty() && held(&table) == 0);
    }

    /// Of short keys and long ones, through the division and beyond.
    #[test]
    fn a_divided_table_has_what_was_put_in() {
        let count = 4 * UNDIVIDED as i64;
        let mut table = Keyed::default();
        assert!(table.is_empty());
        for n in 0..count {
            let key = key(n);
            let packed = pack(key.iter());
            assert_eq!(table.get(packed, &key), None);
            table.insert(packed, &key, n);
        }
        assert_eq!((table.packed.maps.len(), table.others.maps.len()), (DIVISIONS, DIVISIONS));
        for n in 0..count {
            let key = key(n);
            let packed = pack(key.iter());
            assert_eq!(table.get(packed, &key), Some(&n));
            *table.get_mut(packed, &key).unwrap() += 1;
            assert_eq!(table.get(packed, &key), Some(&(n + 1)));
        }
        assert_eq!(table.get(pack([Datum::Int8(-1)].iter()), &[Datum::Int8(-1)]), None);
        let mut asked = 0;
        let counting = || {
            asked += 1;
            Ok(())
        };
        table.give_back(counting).expect("nobody stops it");
        assert!(table.is_empty() && table.get(pack(key(1).iter()), &key(1)).is_none());
        // Two of three keys are too long for a number.
        assert_eq!(asked, DIVISIONS + (0..count).filter(|n| n % 3 != 1).count());
    }
}
