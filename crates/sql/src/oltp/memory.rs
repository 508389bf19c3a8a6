//! How much memory rows take, roughly.

use crate::types::Datum;

/// Bytes of a row that is held, overhead included.
pub(crate) fn row_bytes(row: &[Datum]) -> usize {
    size_of::<Vec<Datum>>() + 16 + row.iter().map(datum_bytes).sum::<usize>()
}

/// Bytes of a value that is held.
pub(crate) fn datum_bytes(datum: &Datum) -> usize {
    let outside = match datum {
        Datum::Text(text) | Datum::Bpchar(text) | Datum::Jsonb(text) => text.len() + 32,
        Datum::Bytea(bytes) => bytes.len() + 32,
        Datum::Numeric(_) => 32,
        Datum::Array(array) => 64 + array.elements.iter().map(datum_bytes).sum::<usize>(),
        Datum::Record(record) => 64 + record.values.iter().map(datum_bytes).sum::<usize>(),
        _ => 0,
    };
    size_of::<Datum>() + outside
}
