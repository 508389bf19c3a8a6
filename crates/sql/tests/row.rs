//! Stored rows: their bytes, and that every column reads back.

use bytes::Bytes;
use cognate_sql::row::RowLayout;
use cognate_sql::types::{Datum, Text, Type, TypeId};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::random::{self, config, exactly};

fn columns(most: usize) -> impl Strategy<Value = (Vec<Type>, Vec<Datum>)> {
    let column = random::any_type().prop_flat_map(|ty| (Just(ty), random::datum(ty)));
    prop::collection::vec(column, 0..most).prop_map(|columns| columns.into_iter().unzip())
}

#[test]
fn bytes_of_a_row() {
    let layout = RowLayout::new(&[
        Type::new(TypeId::Int4),
        Type::new(TypeId::Text),
        Type::new(TypeId::Bool),
        Type::numeric(10, 2),
        Type::bpchar(5),
        Type::new(TypeId::Int8),
    ]);
    let row = layout
        .encode(&[
            Datum::Int4(1),
            "ab".into(),
            Datum::Bool(true),
            random::read(Type::numeric(10, 2), "12.50"),
            Datum::Bpchar("x    ".into()),
            Datum::Null,
        ])
        .expect("it fits");
    let head = [1, 6, 0, 0b10_0000];
    let fixed = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    // Ends of "ab", of 12.50 (its scale, then 1250 in two bytes), and of "x" without its padding.
    let offsets = [2, 0, 5, 0, 6, 0];
    let expected: Vec<u8> = [&head[..], &fixed, &offsets, b"ab", &[2, 0xe2, 0x04], b"x"].concat();
    assert_eq!(row.to_vec(), expected);
}

#[test]
fn rows_read_back() {
    let check = |(types, datums): (Vec<Type>, Vec<Datum>)| {
        let layout = RowLayout::new(&types);
        let bytes = layout.encode(&datums).expect("it encodes");
        let row = layout.open(&bytes).expect("it opens");
        for (i, datum) in datums.iter().enumerate() {
            let back = row.get(i).expect("it reads").expect("it is there");
            prop_assert_eq!(exactly(&back), exactly(datum), "{}", types[i]);
            prop_assert_eq!(row.is_null(i), datum.is_null());
        }
        Ok(())
    };
    TestRunner::new(config(1_500)).run(&columns(12), check).expect("rows read back");
}

#[test]
fn rows_written_before_a_column_was_added_are_readable() {
    let strategy = (columns(6), prop::collection::vec(random::any_type(), 0..4));
    let check = |((types, datums), added): ((Vec<Type>, Vec<Datum>), Vec<Type>)| {
        let bytes = RowLayout::new(&types).encode(&datums).expect("it encodes");
        let longer = RowLayout::new(&[types.clone(), added.clone()].concat());
        let row = longer.open(&bytes).expect("it opens");
        prop_assert_eq!(row.columns(), types.len());
        for (i, datum) in datums.iter().enumerate() {
            let back = row.get(i).expect("it reads").expect("it is there");
            prop_assert_eq!(exactly(&back), exactly(datum));
        }
        for i in types.len()..types.len() + added.len() {
            prop_assert!(row.get(i).expect("it reads").is_none());
        }
        Ok(())
    };
    TestRunner::new(config(1_000)).run(&strategy, check).expect("shorter rows are readable");
}

#[test]
fn any_bytes_are_read_without_panic() {
    let strategy = (
        prop::collection::vec(random::any_type(), 0..6),
        prop::collection::vec(prop_oneof![any::<u8>(), 0u8..4], 0..60),
    );
    // Texts are taken as they are: damage to them is the storage's to find.
    let readable = |ty: &Type| {
        !matches!(
            ty.id,
            TypeId::Text | TypeId::Varchar | TypeId::Name | TypeId::Json | TypeId::Jsonb | TypeId::Bpchar
        )
    };
    let check = |(types, mut bytes): (Vec<Type>, Vec<u8>)| {
        let types: Vec<Type> = types.into_iter().filter(readable).collect();
        if bytes.len() > 3 {
            bytes[0] = 1 | (bytes[0] & 0x80);
            bytes[1] = types.len() as u8;
            bytes[2] = 0;
        }
        let bytes = Bytes::from(bytes);
        let layout = RowLayout::new(&types);
        if let Ok(row) = layout.open(&bytes) {
            for i in 0..types.len() {
                let _ = row.get(i);
            }
        }
        Ok(())
    };
    TestRunner::new(config(4_000)).run(&strategy, check).expect("no panic");
}

#[test]
fn long_values_widen_the_offsets() {
    let layout = RowLayout::new(&[Type::new(TypeId::Text), Type::new(TypeId::Int4), Type::new(TypeId::Text)]);
    let long = "x".repeat(70_000);
    let row = [Datum::from(long.as_str()), Datum::Int4(7), Datum::from("end")];
    let bytes = layout.encode(&row).expect("it encodes");
    assert_eq!(bytes[0], 0x81);
    assert_eq!(layout.decode(&bytes).expect("it decodes"), row);
}

#[test]
fn long_texts_share_the_rows_memory() {
    let layout = RowLayout::new(&[Type::new(TypeId::Text)]);
    let shares = |content: &str| {
        let bytes = layout.encode(&[content.into()]).expect("it encodes");
        let Ok(Some(Datum::Text(text))) = layout.open(&bytes).and_then(|row| row.get(0)) else {
            panic!("a text")
        };
        assert_eq!(text, Text::from(content));
        bytes.as_ptr_range().contains(&Text::as_bytes(&text).as_ptr())
    };
    assert!(shares(&"hello ".repeat(10)));
    // A short one lies in the value itself, and keeps no row alive.
    assert!(!shares("hello"));
}

#[test]
fn a_value_of_another_type_is_refused() {
    let layout = RowLayout::new(&[Type::new(TypeId::Int4)]);
    assert_eq!(layout.encode(&[Datum::Int8(1)]).expect_err("int8 is no int4").sqlstate, "XX000");
    assert_eq!(layout.encode(&[]).expect_err("too few").sqlstate, "XX000");
}
