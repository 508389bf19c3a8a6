//! Short keys as one number: what most queries group by are a few integers, dates and short texts,
//! and one number is hashed and compared in a few instructions.
//!
//! Each value is a mark, which says how many bytes follow, and these bytes; the last value is the
//! lowest. So two rows of values have one number exactly if they are equal as keys; `NULL` equals
//! `NULL`, and the trailing blanks of char(n) do not count.
//!
//! ```text
//! int4 7, char(3) 'a'      03 | 00 00 00 07 | 11 | 'a'      nine more bytes are free
//! ```

use crate::row::{Row, Stored};
use crate::types::{Datum, TypeId, trimmed_length};

/// Bytes of the number.
const BYTES: usize = size_of::<u128>();
/// Marks of values that are no text: NULL, and how many bytes a number has.
const NULL: u8 = 1;
const BOOL: u8 = 2;
const INTEGER: u8 = 3;
const WORD: u8 = 4;
/// The mark of an empty text; each byte makes it one more.
const TEXT: u8 = 0x10;

/// The values as one number; none if they are too long, or of types for which equality is more than
/// equal bytes.
#[inline]
pub(super) fn pack<'a>(values: impl Iterator<Item = &'a Datum>) -> Option<u128> {
    let mut packed = Packed { number: 0, bytes: 0 };
    for value in values {
        match value {
            Datum::Null => packed.push(NULL, 0, 0)?,
            Datum::Bool(value) => packed.push(BOOL, u64::from(*value), 1)?,
            // Integers of any width may be equal.
            Datum::Int2(value) => packed.integer(i64::from(*value))?,
            Datum::Int4(value) => packed.integer(i64::from(*value))?,
            Datum::Int8(value) => packed.integer(*value)?,
            Datum::Oid(value) => packed.integer(i64::from(*value))?,
            Datum::Date(value) => packed.integer(i64::from(*value))?,
            Datum::Time(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) => {
                packed.push(WORD, *value as u64, 8)?;
            }
            Datum::Text(text) => packed.text(text.as_bytes())?,
            Datum::Bpchar(text) => packed.text(&text.as_bytes()[..trimmed_length(text.as_bytes())])?,
            _ => return None,
        }
    }
    Some(packed.number)
}

/// Whether [`pack_stored`] knows values of a type.
pub(super) fn is_packed_stored(id: TypeId) -> bool {
    use TypeId::*;
    matches!(id, Bool | Int2 | Int4 | Int8 | Date | Time | Timestamp | Timestamptz | Text | Varchar | Bpchar)
}

/// Columns of a stored row as one number, the same that their values have. None too if the row
/// lacks some of them, or is damaged there.
#[inline]
pub(super) fn pack_stored(row: &Row<'_>, columns: &[usize]) -> Option<u128> {
    let mut packed = Packed { number: 0, bytes: 0 };
    for column in columns {
        let (id, bytes) = match row.stored(*column)? {
            Stored::Null => {
                packed.push(NULL, 0, 0)?;
                continue;
            }
            Stored::Bytes(id, bytes) => (id, bytes),
        };
        match id {
            TypeId::Int4 | TypeId::Date => {
                packed.integer(i64::from(i32::from_le_bytes(*bytes.first_chunk()?)))?;
            }
            TypeId::Int8 => packed.integer(i64::from_le_bytes(*bytes.first_chunk()?))?,
            TypeId::Int2 => packed.integer(i64::from(i16::from_le_bytes(*bytes.first_chunk()?)))?,
            TypeId::Bool => packed.push(BOOL, u64::from(*bytes.first()? != 0), 1)?,
            TypeId::Time | TypeId::Timestamp | TypeId::Timestamptz => {
                packed.push(WORD, u64::from_le_bytes(*bytes.first_chunk()?), 8)?;
            }
            TypeId::Text | TypeId::Varchar => packed.text(bytes)?,
            TypeId::Bpchar => packed.text(&bytes[..trimmed_length(bytes)])?,
            _ => return None,
        }
    }
    Some(packed.number)
}

/// Made in registers: bytes written one by one and read as one number right afterwards have to
/// wait.
struct Packed {
    number: u128,
    bytes: usize,
}

impl Packed {
    /// Adds a mark and the lowest bytes of a word.
    #[inline]
    fn push(&mut self, mark: u8, word: u64, bytes: usize) -> Option<()> {
        self.bytes += 1 + bytes;
        // Both with one shift of the number: each of them waits for the one before.
        let value = u128::from(mark) << (8 * bytes) | u128::from(word);
        self.number = self.number << (8 + 8 * bytes) | value;
        (self.bytes <= BYTES).then_some(())
    }

    /// As few bytes as the value needs: four or eight.
    #[inline]
    fn integer(&mut self, value: i64) -> Option<()> {
        match u32::try_from(value) {
            Ok(value) => self.push(INTEGER, u64::from(value), 4),
            Err(_) => self.push(WORD, value as u64, 8),
        }
    }

    #[inline]
    fn text(&mut self, text: &[u8]) -> Option<()> {
        if text.len() >= BYTES {
            return None;
        }
        self.push(TEXT + text.len() as u8, 0, 0)?;
        for byte in text {
            self.number = self.number << 8 | u128::from(*byte);
        }
        self.bytes += text.len();
        (self.bytes <= BYTES).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::RowLayout;
    use crate::types::{Numeric, Type};

    /// Of all rows of one or two values from a list, those have one number that are equal, and no
    /// others.
    #[test]
    fn equal_keys_have_one_number_and_no_others() {
        let values = [
            Datum::Null,
            Datum::Bool(false),
            Datum::Bool(true),
            Datum::Int2(7),
            Datum::Int4(7),
            Datum::Int8(7),
            Datum::Int4(-1),
            Datum::Int8(i64::from(u32::MAX)),
            Datum::Int8(i64::MIN),
            Datum::Int4(0),
            Datum::text(""),
            Datum::text("\u{1}"),
            Datum::text("a"),
            Datum::text("a "),
            Datum::text("ab"),
        ];
        let mut rows: Vec<Vec<Datum>> = values.iter().map(|value| vec![value.clone()]).collect();
        for first in &values {
            rows.extend(values.iter().map(|second| vec![first.clone(), second.clone()]));
        }
        for a in &rows {
            for b in rows.iter().filter(|b| b.len() == a.len()) {
                let packed = (pack(a.iter()), pack(b.iter()));
                let (Some(x), Some(y)) = packed else {
                    // Two words do not fit.
                    assert!(a.len() == 2 || b.len() == 2, "{a:?} {b:?}");
                    continue;
                };
                assert_eq!(x == y, a == b, "{a:?} {b:?}");
            }
        }
        assert_eq!(
            pack([Datum::Bpchar("a ".into())].iter()),
            pack([Datum::Bpchar("a".into())].iter()),
            "blanks of char(n)"
        );
        assert!(pack([Datum::Numeric(Numeric::ZERO)].iter()).is_none());
        assert!(pack([Datum::text("sixteen bytes...")].iter()).is_none());
    }

    /// Of each column by itself, of all pairs of columns, and of a column that the row lacks.
    #[test]
    fn stored_columns_have_the_number_of_their_values() {
        let rows = [
            (TypeId::Bool, vec![Datum::Bool(false), Datum::Bool(true)]),
            (TypeId::Int2, vec![Datum::Int2(-1), Datum::Int2(7)]),
            (TypeId::Int4, vec![Datum::Int4(i32::MIN), Datum::Int4(0)]),
            (TypeId::Int8, vec![Datum::Int8(7), Datum::Int8(1 << 40)]),
            (TypeId::Date, vec![Datum::Date(-700), Datum::Date(i32::MAX)]),
            (TypeId::Time, vec![Datum::Time(0), Datum::Time(1 << 33)]),
            (TypeId::Timestamp, vec![Datum::Timestamp(i64::MIN), Datum::Timestamp(5)]),
            (TypeId::Timestamptz, vec![Datum::Timestamptz(-1), Datum::Timestamptz(i64::MAX)]),
            (TypeId::Text, vec![Datum::text(""), Datum::text("sixteen bytes...")]),
            (TypeId::Varchar, vec![Datum::text("a "), Datum::text("é\u{1}")]),
            (TypeId::Bpchar, vec![Datum::Bpchar("a ".into()), Datum::Bpchar("   ".into())]),
        ];
        assert!(rows.iter().all(|(id, _)| is_packed_stored(*id)));
        let types: Vec<Type> = rows.iter().map(|(id, _)| Type::new(*id)).collect();
        let layout = RowLayout::new(&types);
        for which in 0..3 {
            let value = |values: &Vec<Datum>| values.get(which).cloned().unwrap_or(Datum::Null);
            let values: Vec<Datum> = rows.iter().map(|(_, values)| value(values)).collect();
            let bytes = layout.encode(&values).expect("a row");
            let row = layout.open(&bytes).expect("the same row");
            for first in 0..values.len() {
                assert_eq!(pack_stored(&row, &[first]), pack([&values[first]].into_iter()));
                for second in 0..values.len() {
                    let pair = [&values[first], &values[second]];
                    assert_eq!(pack_stored(&row, &[first, second]), pack(pair.into_iter()), "{pair:?}");
                }
            }
        }
        let before = RowLayout::new(&types[..1]).encode(&[Datum::Bool(true)]).expect("a row");
        let row = layout.open(&before).expect("a row from before columns were added");
        assert!(pack_stored(&row, &[0]).is_some() && pack_stored(&row, &[1]).is_none());
    }
}
