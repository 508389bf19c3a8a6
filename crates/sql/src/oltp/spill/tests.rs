use std::sync::Arc;

use super::codec::{put_row, take_row};
use crate::types::{Array, Datum, Dimension, Inet, Interval, Numeric, Record, Type, TypeId};

/// Shows also what equality hides: digits, blanks, dimensions.
fn shown(row: &[Datum]) -> String {
    format!("{row:?}")
}

#[test]
fn every_variant_comes_back_as_it_was() {
    let long = "x".repeat(100);
    let array = Array {
        element: TypeId::Int4,
        dimensions: vec![Dimension { length: 1, lower: -3 }, Dimension { length: 2, lower: 1 }],
        elements: vec![Datum::Int4(7), Datum::Null],
    };
    let shape: Arc<[(String, Type)]> = Arc::from([("a".to_owned(), Type::new(TypeId::Text))]);
    let record = Record { shape, values: vec![Datum::text("in a record")] };
    let numeric = |text: &str| Datum::Numeric(Numeric::parse(text).expect("a number"));
    let row = vec![
        Datum::Null,
        Datum::Bool(true),
        Datum::Bool(false),
        Datum::Int2(-2),
        Datum::Int4(i32::MIN),
        Datum::Int8(i64::MAX),
        Datum::Float4(-0.0),
        Datum::Float8(f64::INFINITY),
        numeric("1.500"),
        numeric("-123456789012345678901234567890123456789012345678901234567890.5"),
        Datum::Numeric(Numeric::NAN),
        Datum::text(""),
        Datum::text(long.as_str()),
        Datum::Bpchar("a   ".into()),
        Datum::Jsonb("{\"a\": 1}".into()),
        Datum::Bytea(bytes::Bytes::from_static(&[0, 255])),
        Datum::Date(i32::MAX),
        Datum::Time(5),
        Datum::Timestamp(i64::MIN),
        Datum::Timestamptz(-1),
        Datum::Interval(Interval { micros: -1, days: 2, months: 3 }),
        Datum::Uuid([9; 16]),
        Datum::Inet(Inet::v4([10, 0, 0, 1], 8).expect("an address")),
        Datum::Inet(Inet::v6([7; 16], 128).expect("an address")),
        Datum::Oid(u32::MAX),
        Datum::Unsigned(u64::MAX),
        Datum::Array(Arc::new(array)),
        Datum::Record(Arc::new(record)),
    ];
    let (mut shapes, mut bytes) = (vec![], vec![]);
    put_row(&row, &mut shapes, &mut bytes);
    put_row(&[], &mut shapes, &mut bytes);
    let mut rest = &bytes[..];
    let mut read = vec![];
    take_row(&mut rest, &shapes, &mut read).expect("a row");
    assert_eq!(shown(&read), shown(&row));
    take_row(&mut rest, &shapes, &mut read).expect("an empty row");
    assert!(read.is_empty() && rest.is_empty());
    for cut in 0..bytes.len() - 4 {
        assert!(take_row(&mut &bytes[..cut], &shapes, &mut read).is_none(), "cut at {cut}");
    }
}
