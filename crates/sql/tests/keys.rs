//! Keys: their bytes, and that they order as the values do.

use std::cmp::Ordering;

use cognate_sql::keys::{self, KeyOrder};
use cognate_sql::types::{Datum, Type, TypeId};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::golden::{context, parse_value};
use crate::random::{self, config};

const ORDERS: [KeyOrder; 4] = [
    KeyOrder { descending: false, nulls_first: false },
    KeyOrder { descending: false, nulls_first: true },
    KeyOrder { descending: true, nulls_first: false },
    KeyOrder { descending: true, nulls_first: true },
];

fn encode(datum: &Datum, order: KeyOrder) -> Vec<u8> {
    let mut out = Vec::new();
    keys::encode_into(&mut out, datum, order);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Stored keys must keep their bytes: a value, ascending or descending, and its key.
#[test]
fn golden() {
    let format = context();
    let mut differences = Vec::new();
    for line in include_str!("golden/keys.txt").lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let fields: Vec<&str> = line.split(" | ").collect();
        let [value, order, expected] = fields.as_slice() else { panic!("{line}") };
        let (datum, _) = parse_value(value, &format).expect("a value");
        let got =
            hex(&encode(&datum, if *order == "asc" { KeyOrder::ASCENDING } else { KeyOrder::DESCENDING }));
        if got != *expected {
            differences.push(format!("{value} | {order} | {got}"));
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

/// What the order of two columns' keys must be.
fn expected(a: &Datum, b: &Datum, order: KeyOrder) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) => {
            if order.nulls_first {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (false, true) => {
            if order.nulls_first {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
        (false, false) if order.descending => b.compare(a),
        (false, false) => a.compare(b),
    }
}

fn pair(ty: Type) -> impl Strategy<Value = (Datum, Datum)> {
    (random::datum(ty), random::datum(ty))
}

#[test]
fn keys_order_as_values() {
    let strategy = random::key_type().prop_flat_map(|ty| (Just(ty), pair(ty)));
    let check = |(ty, (a, b)): (Type, (Datum, Datum))| {
        for order in ORDERS {
            let (x, y) = (encode(&a, order), encode(&b, order));
            prop_assert_eq!(
                x.cmp(&y),
                expected(&a, &b, order),
                "{} {:?} {:?} {:?}\n{}\n{}",
                ty,
                a,
                b,
                order,
                hex(&x),
                hex(&y)
            );
        }
        Ok(())
    };
    TestRunner::new(config(4_000)).run(&strategy, check).expect("keys order as values");
}

#[test]
fn keys_of_several_columns_order_column_by_column() {
    let column = random::key_type().prop_flat_map(|ty| (pair(ty), 0usize..4));
    let strategy = prop::collection::vec(column, 1..4);
    let check = |columns: Vec<((Datum, Datum), usize)>| {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        let mut wanted = Ordering::Equal;
        for ((a, b), order) in &columns {
            let order = ORDERS[*order];
            keys::encode_into(&mut x, a, order);
            keys::encode_into(&mut y, b, order);
            wanted = wanted.then(expected(a, b, order));
        }
        prop_assert_eq!(x.cmp(&y), wanted, "{:?}", columns);
        Ok(())
    };
    TestRunner::new(config(2_000)).run(&strategy, check).expect("keys order column by column");
}

#[test]
fn keys_read_back() {
    let strategy = random::key_type().prop_flat_map(|ty| (Just(ty), random::datum(ty), 0usize..4));
    let check = |(ty, datum, order): (Type, Datum, usize)| {
        let order = ORDERS[order];
        let mut key = encode(&datum, order);
        key.extend_from_slice(b"rest");
        let mut rest = key.as_slice();
        keys::skip(&mut rest, ty, order).expect("it can be skipped");
        prop_assert_eq!(rest, b"rest");
        if !matches!(ty.id, TypeId::Jsonb | TypeId::JsonbArray) {
            let mut rest = key.as_slice();
            let back = keys::decode(&mut rest, ty, order).expect("it reads back");
            prop_assert_eq!(rest, b"rest");
            prop_assert_eq!(&back, &datum);
            if keys::is_exact(ty) {
                prop_assert_eq!(random::exactly(&back), random::exactly(&datum), "{}", ty);
            }
        }
        Ok(())
    };
    TestRunner::new(config(2_000)).run(&strategy, check).expect("keys read back");
}

#[test]
fn any_bytes_are_read_without_panic() {
    let strategy =
        (random::key_type(), prop::collection::vec(prop_oneof![any::<u8>(), 0u8..4], 0..40), 0usize..4);
    let check = |(ty, bytes, order): (Type, Vec<u8>, usize)| {
        let mut rest = bytes.as_slice();
        let _ = keys::decode(&mut rest, ty, ORDERS[order]);
        let mut rest = bytes.as_slice();
        let _ = keys::skip(&mut rest, ty, ORDERS[order]);
        Ok(())
    };
    TestRunner::new(config(4_000)).run(&strategy, check).expect("no panic");
}

#[test]
fn text_prefixes_bound_their_texts() {
    let strategy = ("[ab\u{10ffff}\u{7f}é]{0,3}", "[ab\u{10ffff}\u{7f}é]{0,5}");
    let check = |(prefix, text): (String, String)| {
        let mut lower = Vec::new();
        keys::encode_text_prefix_into(&mut lower, &prefix);
        let upper = keys::next_prefix(&lower).expect("a marker is below ff");
        let key = encode(&text.as_str().into(), KeyOrder::ASCENDING);
        prop_assert_eq!(key >= lower && key < upper, text.starts_with(&prefix));
        Ok(())
    };
    TestRunner::new(config(3_000)).run(&strategy, check).expect("prefixes bound");
}

#[test]
fn next_prefixes() {
    assert_eq!(keys::next_prefix(&[1, 2]), Some(vec![1, 3]));
    assert_eq!(keys::next_prefix(&[1, 0xff, 0xff]), Some(vec![2]));
    assert_eq!(keys::next_prefix(&[0xff]), None);
    assert_eq!(keys::next_prefix(&[]), None);
}

/// What the fuzzer does, for a bounded time: any bytes, and sound keys with a byte changed, cut or
/// added.
#[test]
fn any_bytes_can_be_read_as_a_key() {
    let mut runner = TestRunner::new(config(2000));
    let bytes = proptest::collection::vec(any::<u8>(), 0..40);
    runner
        .run(&bytes, |bytes| {
            cognate_sql::fuzz::fuzz_key(&bytes);
            Ok(())
        })
        .expect("no panic");
    let format = context();
    let lines =
        include_str!("golden/keys.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let value = line.split(" | ").next().expect("a value");
        let (datum, _) = parse_value(value, &format).expect("a value");
        for (drawn, order) in ORDERS.iter().enumerate() {
            // The orders in the fuzzer's numbering.
            let drawn = [0, 2, 1, 3][drawn];
            let mut key = vec![drawn];
            keys::encode_into(&mut key, &datum, *order);
            (0..=key.len()).for_each(|end| cognate_sql::fuzz::fuzz_key(&key[..end]));
            for at in 1..key.len() {
                for mask in [1, 2, 16, 128, 255] {
                    key[at] ^= mask;
                    cognate_sql::fuzz::fuzz_key(&key);
                    key[at] ^= mask;
                }
            }
        }
    }
}
