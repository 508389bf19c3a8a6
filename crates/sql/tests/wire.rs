//! Text and binary forms: every value comes back, and no input makes the readers panic.

use cognate_sql::types::{
    DateOrder, DateStyle, Datum, FormatContext, IntervalStyle, Type, TypeId, time_zone,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::random::{self, config, exactly};

/// Zones in ISO style, and the other styles in UTC: abbreviations of zones are not those of one
/// moment only.
fn contexts() -> Vec<FormatContext> {
    let zones = ["UTC", "America/New_York", "Asia/Kathmandu"];
    let iso = zones.iter().map(|zone| FormatContext {
        time_zone: time_zone(zone).expect("a zone"),
        ..FormatContext::default()
    });
    let styles = [
        (DateStyle::Sql, DateOrder::Mdy, IntervalStyle::PostgresVerbose),
        (DateStyle::Sql, DateOrder::Dmy, IntervalStyle::SqlStandard),
        (DateStyle::Postgres, DateOrder::Mdy, IntervalStyle::Iso8601),
        (DateStyle::Postgres, DateOrder::Dmy, IntervalStyle::PostgresVerbose),
        (DateStyle::German, DateOrder::Dmy, IntervalStyle::SqlStandard),
    ];
    let styles = styles.into_iter().map(|(date_style, date_order, interval_style)| FormatContext {
        date_style,
        date_order,
        interval_style,
        ..FormatContext::default()
    });
    iso.chain(styles).collect()
}

fn value_and_type() -> impl Strategy<Value = (Type, Datum)> {
    random::any_type().prop_flat_map(|ty| (Just(ty), random::value(ty)))
}

/// Texts lose nothing but what a zone's change of clocks makes ambiguous, and interval fields
/// beyond their usual ranges.
#[test]
fn texts_read_back() {
    let check = |(ty, datum): (Type, Datum)| {
        for context in contexts() {
            let text = datum.to_text_string(ty, &context);
            let back = Datum::from_text(ty, &text, &context);
            let back = back.unwrap_or_else(|error| panic!("{ty} {datum:?} {text:?}: {error}"));
            let again = back.to_text_string(ty, &context);
            prop_assert_eq!(&again, &text, "{} {:?}", ty, datum);
            let has_zone = matches!(ty.id, TypeId::Timestamptz | TypeId::TimestamptzArray);
            if !has_zone {
                prop_assert_eq!(exactly(&back), exactly(&datum), "{}", ty);
            }
            prop_assert_eq!(&back, &datum, "{}", text);
        }
        Ok(())
    };
    TestRunner::new(config(2_000)).run(&value_and_type(), check).expect("texts read back");
}

#[test]
fn binary_forms_read_back() {
    let check = |(ty, datum): (Type, Datum)| {
        let mut bytes = Vec::new();
        datum.to_binary(ty, &mut bytes);
        // Infinities of numeric came with version 14; a scale of 0 is theirs.
        let back = Datum::from_binary(ty, &bytes).unwrap_or_else(|e| panic!("{ty} {datum:?}: {e}"));
        prop_assert_eq!(exactly(&back), exactly(&datum), "{}", ty);
        Ok(())
    };
    TestRunner::new(config(2_000)).run(&value_and_type(), check).expect("binary forms read back");
}

/// An array whose last element would have a subscript beyond all numbers is none, in both forms.
#[test]
fn subscripts_of_arrays_are_numbers() {
    let ty = Type::new(TypeId::Int4Array);
    let context = FormatContext::default();
    for (lower, length, fits) in [
        (i32::MAX - 2, 2, true),
        (i32::MAX - 1, 1, true),
        (i32::MIN, 2, true),
        (i32::MAX - 1, 2, false),
        (i32::MAX, 1, false),
    ] {
        let mut words = vec![1, 0, 23, length, lower];
        for element in 0..length {
            words.extend([4, element]);
        }
        let bytes: Vec<u8> = words.into_iter().flat_map(i32::to_be_bytes).collect();
        let upper = i64::from(lower) + i64::from(length) - 1;
        let elements: Vec<String> = (0..length).map(|element| element.to_string()).collect();
        let text = format!("[{lower}:{upper}]={{{}}}", elements.join(","));
        let received = Datum::receive(ty, &bytes, &context);
        assert_eq!(received.as_ref().err().map(|error| error.sqlstate), (!fits).then_some("54000"), "{text}");
        if upper <= i64::from(i32::MAX) {
            let read = Datum::from_text(ty, &text, &context);
            assert_eq!(read.as_ref().err().map(|error| error.sqlstate), (!fits).then_some("54000"), "{text}");
        }
        if let Ok(array) = received {
            assert_eq!(array.to_text_string(ty, &context), text);
        }
    }
}

/// What is wrong with an array is said in the order of its bytes, and none has any behind its end.
#[test]
fn malformed_arrays_are_refused() {
    let ty = Type::new(TypeId::Int4Array);
    let context = FormatContext::default();
    for (words, sqlstate) in [
        (vec![0, 0, 23, 5], "22P03"),
        (vec![1, 0, 23, 0, 1, 7], "22P03"),
        (vec![1, 0, 23, 1, 1, 4, 7, 8], "22P03"),
        (vec![7], "54000"),
        (vec![-1], "22P03"),
        (vec![1, 2], "22P03"),
        (vec![1, 0], "08P01"),
        (vec![1, 0, 23, 2, 1, 8], "22P03"),
        (vec![1, 0, 23, 2, 1, 4, 7], "08P01"),
    ] {
        let bytes: Vec<u8> = words.iter().copied().flat_map(i32::to_be_bytes).collect();
        let received = Datum::receive(ty, &bytes, &context);
        assert_eq!(received.err().map(|error| error.sqlstate), Some(sqlstate), "{words:?}");
    }
}

#[test]
fn any_input_is_read_without_panic() {
    let texts = prop_oneof![
        "\\PC{0,30}",
        "[-+0-9:./ TZPYMDHSdaysmon\\[\\]{},\"\\\\eE]{0,30}",
        "[0-9]{1,4}[-/. ][0-9]{1,3}[-/. ][0-9]{1,5}[ T]?[0-9:.]{0,12}[-+ ]?[0-9A-Za-z:/]{0,8}",
        "[{\\[]{0,4}[0-9\",:a-z\\\\ ]{0,12}[}\\]]{0,4}",
    ];
    let strategy = (random::any_type(), texts, prop::collection::vec(any::<u8>(), 0..40));
    let context = FormatContext::default();
    let check = |(ty, text, bytes): (Type, String, Vec<u8>)| {
        let _ = Datum::from_text(ty, &text, &context);
        let _ = Datum::from_binary(ty, &bytes);
        let _ = Datum::receive(ty, &bytes, &context);
        Ok(())
    };
    TestRunner::new(config(8_000)).run(&strategy, check).expect("no panic");
}

#[test]
fn equal_values_hash_equally() {
    use std::hash::{BuildHasher, RandomState};
    let state = RandomState::new();
    let strategy = random::key_type().prop_flat_map(|ty| (random::datum(ty), random::datum(ty)));
    let check = |(a, b): (Datum, Datum)| {
        if a == b {
            prop_assert_eq!(state.hash_one(&a), state.hash_one(&b), "{:?} {:?}", a, b);
        }
        prop_assert_eq!(a.compare(&b), b.compare(&a).reverse());
        Ok(())
    };
    TestRunner::new(config(4_000)).run(&strategy, check).expect("hashes agree");
}
