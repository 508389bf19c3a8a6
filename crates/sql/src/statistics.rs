//! What is known of the values in a table: of each column how many different ones it has, and how
//! many rows have none. The planner estimates equality and joins by it; results never depend on it.
//!
//! A `Gathering` takes in rows one by one and holds little of them, however many they are: up to
//! 1,024 different hashes of a column as they are, beyond that a *HyperLogLog* sketch (Flajolet,
//! Fusy, Gandouet, Meunier, 2007) with a standard error of 1.6 percent. Hashes are those of the
//! stored bytes, so that numerics of different scale (`1.0`, `1.00`) count as different values. The
//! hash has no seed: the same rows give the same numbers. As long as they are few, it is also
//! counted how many rows each has, to know how rare the rarest is.
//!
//! It is all pure: `session::gathering` reads the tables and keeps what comes of it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};

use bytes::Bytes;

use crate::bind::ColumnValues;
use crate::catalog::{IndexKey, Table};
use crate::error::Result;

/// As many different hashes of a column are counted exactly.
const EXACT: usize = 1024;
/// A sketch has 2 to the power of this many registers, one byte each.
const BITS: u32 = 12;
/// From this share of the values on that are not NULL, a sketch cannot tell whether they are all
/// different.
const NEARLY_ALL: f64 = 0.95;
/// A column with more different values than this share of the rows is taken to get more of them as
/// the table grows, as in PostgreSQL.
const GROWS_ALONG: f64 = 0.1;
/// What a smaller table has says little of what it will have: the planner takes no table to be
/// smaller, either.
const FEWEST_ROWS: u64 = 1000;
/// What was gathered is out of date when the table has become larger or smaller by this factor.
/// Plans are made anew at the same one.
const OUTGROWN: u64 = 4;
/// The rarest value is taken to have at least so many rows: some may have come, and more selective
/// than a key is taken to be by itself it need not be.
const FEWEST_SOUGHT: f64 = 30.0;
/// Share of the rows that somebody finds at most who looks for a value in a column of which it is
/// not known for sure what is rare there. An index still costs less than to read all rows, and any
/// other index is more selective.
///
/// So it is in a column that has but one value: what is looked for may be another that was not
/// there yet. And so it is, also with NULL, in what the background has seen, at a time that nobody
/// chose: half of the jobs wait then, later hardly any, and as the table is as large as before
/// nobody looks again.
const NOT_SURE: f64 = 0.1;

/// The different values of a column.
enum Sketch {
    /// Their hashes, and how many rows have each.
    Few(HashMap<u64, u64>),
    /// The registers of a HyperLogLog.
    Many(Vec<u8>),
}

impl Sketch {
    fn add(&mut self, hash: u64) {
        match self {
            Sketch::Few(hashes) => {
                *hashes.entry(hash).or_insert(0) += 1;
                if hashes.len() > EXACT {
                    let mut registers = vec![0; 1 << BITS];
                    hashes.keys().for_each(|hash| note(&mut registers, *hash));
                    *self = Sketch::Many(registers);
                }
            }
            Sketch::Many(registers) => note(registers, hash),
        }
    }

    /// How many rows have the rarest value; none if that was not counted.
    fn rarest(&self) -> Option<u64> {
        match self {
            Sketch::Few(hashes) => hashes.values().min().copied(),
            Sketch::Many(_) => None,
        }
    }

    /// How many different values were added, of so many.
    fn estimate(&self, values: u64) -> f64 {
        match self {
            Sketch::Few(hashes) => hashes.len() as f64,
            Sketch::Many(registers) => {
                let (estimate, values) = (count(registers).round(), values as f64);
                if estimate >= NEARLY_ALL * values { values } else { estimate }
            }
        }
    }
}

/// Notes a hash: its first bits choose the register, which keeps the longest run of zeros behind
/// them, and one.
fn note(registers: &mut [u8], hash: u64) {
    let place = (hash >> (64 - BITS)) as usize;
    // The one behind the hash's last bit ends the run.
    let zeros = ((hash << BITS) | (1 << (BITS - 1))).leading_zeros() as u8;
    registers[place] = registers[place].max(zeros + 1);
}

/// The harmonic mean that the sketch is known for; as long as registers are empty, by their number.
fn count(registers: &[u8]) -> f64 {
    let size = registers.len() as f64;
    let sum: f64 = registers.iter().map(|run| 2_f64.powi(-i32::from(*run))).sum();
    let mean = 0.7213 / (1.0 + 1.079 / size) * size * size / sum;
    let empty = registers.iter().filter(|run| **run == 0).count();
    if mean <= 2.5 * size && empty > 0 { size * (size / empty as f64).ln() } else { mean }
}

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// What has been seen of a column.
struct Seen {
    values: Sketch,
    nulls: u64,
    /// Of all values together.
    bytes: u64,
}

/// A table's rows, as far as they were taken in.
pub(crate) struct Gathering {
    rows: u64,
    columns: Vec<Seen>,
}

impl Gathering {
    /// No row of a table yet.
    pub(crate) fn new(table: &Table) -> Gathering {
        let nothing = |_| Seen { values: Sketch::Few(HashMap::new()), nulls: 0, bytes: 0 };
        Gathering { rows: 0, columns: table.columns.iter().map(nothing).collect() }
    }

    /// Takes in a stored row. XX001 if it is damaged.
    pub(crate) fn add(&mut self, table: &Table, stored: &Bytes) -> Result<()> {
        let row = table.layout().open(stored)?;
        self.rows += 1;
        for (place, (seen, column)) in self.columns.iter_mut().zip(&table.columns).enumerate() {
            match row.stored(place) {
                Some(stored) => seen.add(stored.value()),
                // Damaged, or stored before the column was added: then it is one value for all.
                None => {
                    let value = row.get(place)?.unwrap_or_else(|| column.missing.clone());
                    let one: &[u8] = &[];
                    seen.add((!value.is_null()).then_some(one));
                }
            }
        }
        Ok(())
    }

    /// What the rows have told. `approximate` is how many the engine believes there are, by which
    /// growth is measured.
    pub(crate) fn finish(self, table: &Table, approximate: u64, at: i64, automatic: bool) -> TableStatistics {
        let rows = self.rows;
        let of_column = |(place, seen): (usize, Seen)| {
            let values = rows - seen.nulls;
            let distinct = match is_unique(table, place) {
                true => values as f64,
                false => seen.values.estimate(values),
            };
            let null_share = seen.nulls as f64 / rows.max(1) as f64;
            let rarest = seen.values.rarest().map(|of_rarest| of_rarest as f64 / rows.max(1) as f64);
            let width = i32::try_from(seen.bytes / values.max(1)).unwrap_or(i32::MAX);
            ColumnStatistics { distinct, null_share, rarest, width }
        };
        let columns = self.columns.into_iter().enumerate().map(of_column).collect();
        TableStatistics { rows, columns, at, automatic, ordinal: 0, approximate: approximate.max(rows) }
    }
}

impl Seen {
    fn add(&mut self, value: Option<&[u8]>) {
        match value {
            Some(bytes) => {
                self.values.add(hash_of(bytes));
                self.bytes += bytes.len() as u64;
            }
            None => self.nulls += 1,
        }
    }
}

/// Whether an index lets no two rows have the same value in a column.
pub(crate) fn is_unique(table: &Table, place: usize) -> bool {
    let is_it = |key: IndexKey| key == IndexKey::Column(place);
    table
        .indexes
        .iter()
        .any(|index| index.is_key() && matches!(index.columns.as_slice(), [only] if is_it(only.key)))
}

/// What is known of a column.
#[derive(Clone, Copy, Debug)]
pub struct ColumnStatistics {
    /// How many different values it had.
    pub distinct: f64,
    /// Share of the rows that had NULL there.
    pub null_share: f64,
    /// Share of the rows that have the rarest value; none of a column with many.
    pub rarest: Option<f64>,
    /// Bytes of a value, on average, as it is stored.
    pub width: i32,
}

impl ColumnStatistics {
    /// As `pg_stats.n_distinct` has it, of so many rows: the number, or if it is taken to grow with
    /// the table, the negative share of the rows.
    pub fn shown_distinct(&self, rows: u64) -> f32 {
        let rows = rows as f64;
        (if self.distinct > GROWS_ALONG * rows { -self.distinct / rows } else { self.distinct }) as f32
    }
}

/// What is known of a table.
#[derive(Clone, Debug)]
pub struct TableStatistics {
    /// How many rows it had.
    pub rows: u64,
    /// Its columns by place.
    pub columns: Vec<ColumnStatistics>,
    /// When that was gathered, microseconds since 2000-01-01 UTC.
    pub at: i64,
    /// In the background, and not by ANALYZE.
    pub automatic: bool,
    /// Which it is of all that was gathered in the database.
    pub(crate) ordinal: u64,
    /// The rows that the engine believed there were.
    approximate: u64,
}

impl TableStatistics {
    /// What is to be expected of a column's values, now that the engine believes that there are so
    /// many rows. None of a column that was added later, of a table that was small, and if it is
    /// out of date: few values may have become many.
    pub(crate) fn values(&self, place: usize, rows: u64) -> Option<ColumnValues> {
        let column =
            self.columns.get(place).filter(|_| self.rows >= FEWEST_ROWS && !self.is_outgrown(rows))?;
        let grown = match column.distinct > GROWS_ALONG * self.rows as f64 {
            true => rows as f64 / self.approximate as f64,
            false => 1.0,
        };
        let distinct = column.distinct * grown;
        let most_sought = if self.automatic { NOT_SURE } else { 1.0 };
        let null_share = column.null_share;
        let mut values = ColumnValues { distinct, null_share, rarest: 1.0, most_sought };
        values.rarest = match column.rarest {
            _ if distinct <= 1.0 => NOT_SURE,
            Some(rarest) => rarest.max(FEWEST_SOUGHT / rows.max(1) as f64),
            None => values.share_of_one(),
        };
        Some(values)
    }

    /// Whether the table's size is so different by now that it should be looked at again.
    pub(crate) fn is_outgrown(&self, rows: u64) -> bool {
        rows / OUTGROWN > self.approximate || self.approximate / OUTGROWN > rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::MOST_TAKEN;

    fn sketch(numbers: std::ops::Range<u64>) -> Sketch {
        let mut sketch = Sketch::Few(HashMap::new());
        // Each comes twice: it is one value.
        numbers.clone().chain(numbers).for_each(|number| sketch.add(hash_of(&number.to_le_bytes())));
        sketch
    }

    #[test]
    fn few_values_are_counted_exactly() {
        for number in [0, 1, 17, EXACT as u64] {
            assert_eq!(sketch(0..number).estimate(2 * number), number as f64);
        }
    }

    #[test]
    fn many_values_are_counted_nearly() {
        // The last is five times the standard error; the hash has no seed, so it holds always or
        // never.
        for number in [EXACT as u64 + 1, 5_000, 12_000, 100_000] {
            let estimate = sketch(0..number).estimate(2 * number);
            assert!((estimate / number as f64 - 1.0).abs() < 0.08, "{estimate} of {number}");
        }
    }

    #[test]
    fn what_may_be_all_different_is_taken_to_be() {
        let all = sketch(0..20_000);
        let near = all.estimate(20_000);
        assert!(near == 20_000.0 || near < NEARLY_ALL * 20_000.0, "{near}");
        assert!(all.estimate(40_000) < 0.6 * 40_000.0);
    }

    fn table(rows: u64, distinct: f64) -> TableStatistics {
        let column = ColumnStatistics { distinct, null_share: 0.25, rarest: None, width: 4 };
        let columns = vec![column];
        TableStatistics { rows, columns, at: 0, automatic: false, ordinal: 1, approximate: rows }
    }

    #[test]
    fn many_values_grow_with_the_table_and_few_do_not() {
        let distinct = |table: &TableStatistics, rows| table.values(0, rows).map(|values| values.distinct);
        let (few, many) = (table(10_000, 40.0), table(10_000, 5_000.0));
        assert_eq!(distinct(&few, 30_000), Some(40.0));
        assert_eq!(distinct(&many, 30_000), Some(15_000.0));
        assert_eq!(few.columns[0].shown_distinct(10_000), 40.0);
        assert_eq!(many.columns[0].shown_distinct(10_000), -0.5);
    }

    #[test]
    fn small_tables_and_later_columns_tell_nothing() {
        assert_eq!(table(FEWEST_ROWS - 1, 10.0).values(0, 3_000), None);
        assert_eq!(table(FEWEST_ROWS, 10.0).values(1, 3_000), None);
        assert!(table(FEWEST_ROWS, 10.0).values(0, 3_000).is_some());
    }

    #[test]
    fn what_is_out_of_date_tells_nothing() {
        assert!(table(10_000, 1.0).values(0, 2_500).is_some());
        assert_eq!(table(10_000, 1.0).values(0, 2_499), None);
        assert_eq!(table(10_000, 1.0).values(0, 100_000), None);
    }

    #[test]
    fn a_value_that_is_looked_for_is_as_frequent_as_the_rarest() {
        let sought = |distinct, rarest| {
            let mut known = table(10_000, distinct);
            known.columns[0].rarest = rarest;
            known.values(0, 10_000).map(ColumnValues::share_of_sought)
        };
        assert_eq!(sought(3.0, Some(0.25)), Some(0.25));
        assert_eq!(sought(3.0, Some(0.01)), Some(0.01));
        // It is not taken to be rarer than what is looked up by a key, nor than the usual one.
        assert_eq!(sought(3.0, Some(0.0001)), Some(0.003));
        assert_eq!(sought(1_000.0, Some(0.0001)), Some(0.00075));
        assert_eq!(sought(5_000.0, None), Some(0.00015));
        assert_eq!(sought(1.0, Some(0.75)), Some(NOT_SURE));
        assert_eq!(sought(0.0, None), Some(NOT_SURE));
    }

    fn of_states(automatic: bool, distinct: f64, rarest: f64) -> ColumnValues {
        let mut known = table(10_000, distinct);
        (known.automatic, known.columns[0].rarest) = (automatic, Some(rarest));
        known.values(0, 10_000).expect("what is known")
    }

    #[test]
    fn what_the_background_has_seen_is_no_reason_to_read_all_rows_for_a_value() {
        let shares = |automatic, rarest| {
            let values = of_states(automatic, 3.0, rarest);
            (values.share_of_sought(), values.share_of_null(), values.share_of_one())
        };
        assert_eq!(shares(false, 0.25), (0.25, 0.25, 0.25));
        assert_eq!(shares(true, 0.25), (NOT_SURE, NOT_SURE, 0.25));
        assert_eq!(shares(true, 0.01), (0.01, NOT_SURE, 0.25));
        assert_eq!(of_states(false, 3.0, 0.25).share_of_list(2.0), 0.5);
        assert_eq!(of_states(true, 3.0, 0.25).share_of_list(2.0), 2.0 * NOT_SURE);
        assert_eq!(of_states(true, 3.0, 0.25).share_of_element(10.0), 0.25);
    }

    #[test]
    fn what_was_frequent_is_no_reason_to_read_all_rows_where_some_are_taken() {
        for automatic in [false, true] {
            let frequent = of_states(automatic, 3.0, 0.25).taken();
            assert_eq!((frequent.share_of_sought(), frequent.share_of_one()), (MOST_TAKEN, 0.25));
            assert_eq!(frequent.share_of_null(), MOST_TAKEN, "there were more");
            // Some of the states may have become rare, but not all that there are.
            assert_eq!(frequent.share_of_list(2.0), MOST_TAKEN);
            assert_eq!(frequent.share_of_list(3.0), 3.0 * MOST_TAKEN);
            assert_eq!(frequent.share_of_element(10.0), MOST_TAKEN / 10.0);
            assert_eq!(of_states(automatic, 3.0, 0.01).taken().share_of_sought(), 0.01);
            // Of many values many are not rare.
            assert_eq!(of_states(automatic, 75.0, 0.01).taken().share_of_list(50.0), 0.5);
        }
    }

    #[test]
    fn few_values_are_counted_each() {
        let mut sketch = Sketch::Few(HashMap::new());
        assert_eq!(sketch.rarest(), None);
        (0..9_u64).for_each(|number| sketch.add(hash_of(&[u8::from(number % 3 == 0)])));
        assert_eq!((sketch.rarest(), sketch.estimate(9)), (Some(3), 2.0));
        (0..=EXACT as u64).for_each(|number| sketch.add(number));
        assert_eq!(sketch.rarest(), None);
    }

    #[test]
    fn it_is_outgrown_by_growth_and_by_shrinking() {
        let known = table(10_000, 40.0);
        assert!(!known.is_outgrown(40_003) && !known.is_outgrown(2_500));
        assert!(known.is_outgrown(40_004) && known.is_outgrown(2_499));
    }
}
