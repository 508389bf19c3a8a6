//! The order of values: sorting, grouping and keys agree on it.
//!
//! What is gone through item after item asks on its way whether to go on, and gives up where it is
//! told to stop (`bounds`): then any answer will do. An order that is given up half-way is none for
//! the standard library's sort; `merge_sort` says who takes care of that.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use super::bounds::{hash_bytes, may_compare};
use super::text::trimmed_length;
use super::{Array, Datum, json};

/// Order of floats: -0 equals 0, NaN equals NaN and comes after everything.
fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

impl Datum {
    /// Orders two values of one type; NULL comes last and equals NULL. Integers and floats of
    /// different width compare by value; apart from those, values of different variants compare by
    /// variant, which has no meaning in SQL.
    #[inline]
    pub fn compare(&self, other: &Datum) -> Ordering {
        use Datum::*;
        match (self, other) {
            (Int4(a), Int4(b)) | (Date(a), Date(b)) => a.cmp(b),
            (Int8(a), Int8(b)) => a.cmp(b),
            (Text(a), Text(b)) => a.cmp(b),
            (Numeric(a), Numeric(b)) => a.cmp(b),
            _ => self.compare_other(other),
        }
    }

    fn compare_other(&self, other: &Datum) -> Ordering {
        use Datum::*;
        match (self, other) {
            (Bool(a), Bool(b)) => a.cmp(b),
            (Int2(a), Int2(b)) => a.cmp(b),
            (Float4(a), Float4(b)) => compare_floats(f64::from(*a), f64::from(*b)),
            (Float8(a), Float8(b)) => compare_floats(*a, *b),
            (Float4(a), Float8(b)) => compare_floats(f64::from(*a), *b),
            (Float8(a), Float4(b)) => compare_floats(*a, f64::from(*b)),
            (Bpchar(a), Bpchar(b)) => {
                let (a, b) = (a.as_bytes(), b.as_bytes());
                a[..trimmed_length(a)].cmp(&b[..trimmed_length(b)])
            }
            (Jsonb(a), Jsonb(b)) => json::compare(a.as_str(), b.as_str()),
            (Bytea(a), Bytea(b)) => a.cmp(b),
            (Time(a), Time(b)) | (Timestamp(a), Timestamp(b)) | (Timestamptz(a), Timestamptz(b)) => a.cmp(b),
            (Interval(a), Interval(b)) => a.cmp(b),
            (Uuid(a), Uuid(b)) => a.cmp(b),
            (Inet(a), Inet(b)) => a.cmp(b),
            (Enum(a), Enum(b)) => a.cmp(b),
            (Unsigned(a), Unsigned(b)) => a.cmp(b),
            (Array(a), Array(b)) => a.cmp(b),
            (Record(a), Record(b)) => a.cmp(b),
            _ => match (self.as_i64(), other.as_i64()) {
                (Some(a), Some(b)) => a.cmp(&b),
                _ => self.rank().cmp(&other.rank()),
            },
        }
    }

    /// Values of different ranks never compare equal; NULL has the last rank.
    fn rank(&self) -> u8 {
        match self {
            Datum::Bool(_) => 0,
            Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_) | Datum::Oid(_) => 1,
            Datum::Float4(_) | Datum::Float8(_) => 2,
            Datum::Numeric(_) => 3,
            Datum::Text(_) => 4,
            Datum::Bpchar(_) => 5,
            Datum::Jsonb(_) => 6,
            Datum::Bytea(_) => 7,
            Datum::Date(_) => 8,
            Datum::Time(_) => 9,
            Datum::Timestamp(_) => 10,
            Datum::Timestamptz(_) => 11,
            Datum::Interval(_) => 12,
            Datum::Uuid(_) => 13,
            Datum::Array(_) => 14,
            Datum::Record(_) => 15,
            Datum::Enum(_) => 16,
            Datum::Inet(_) => 17,
            Datum::Unsigned(_) => 18,
            Datum::Null => u8::MAX,
        }
    }
}

impl Ord for Datum {
    fn cmp(&self, other: &Datum) -> Ordering {
        self.compare(other)
    }
}

impl PartialOrd for Datum {
    fn partial_cmp(&self, other: &Datum) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Datum {
    fn eq(&self, other: &Datum) -> bool {
        self.compare(other) == Ordering::Equal
    }
}

impl Eq for Datum {}

impl Hash for Datum {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.rank());
        match self {
            Datum::Null => {}
            Datum::Bool(value) => value.hash(state),
            Datum::Int2(value) => state.write_i64(i64::from(*value)),
            Datum::Int4(value) => state.write_i64(i64::from(*value)),
            Datum::Int8(value) => state.write_i64(*value),
            Datum::Oid(value) => state.write_i64(i64::from(*value)),
            Datum::Float4(value) => hash_float(f64::from(*value), state),
            Datum::Float8(value) => hash_float(*value, state),
            Datum::Numeric(value) => value.hash(state),
            Datum::Text(text) => text.hash(state),
            Datum::Bpchar(text) => {
                hash_bytes(&text.as_bytes()[..trimmed_length(text.as_bytes())], state);
                state.write_u8(0xff);
            }
            Datum::Jsonb(text) => json::hash(text.as_str(), state),
            Datum::Bytea(bytes) => {
                state.write_usize(bytes.len());
                hash_bytes(bytes, state);
            }
            Datum::Date(value) => value.hash(state),
            Datum::Time(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) => value.hash(state),
            Datum::Interval(value) => value.hash(state),
            Datum::Uuid(value) => value.hash(state),
            Datum::Inet(value) => value.hash(state),
            Datum::Enum(value) => value.position.hash(state),
            Datum::Unsigned(value) => value.hash(state),
            Datum::Array(value) => value.hash(state),
            Datum::Record(value) => value.hash(state),
        }
    }
}

fn hash_float<H: Hasher>(value: f64, state: &mut H) {
    // One pattern for all NaNs and one for both zeros.
    let bits = if value.is_nan() {
        f64::NAN.to_bits()
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    };
    state.write_u64(bits);
}

impl Datum {
    /// Whether comparing it may be given up (`bounds`): it is gone through item after item.
    pub(crate) fn is_compared_at_length(&self) -> bool {
        matches!(self, Datum::Array(_) | Datum::Record(_) | Datum::Jsonb(_))
    }

    /// What comparing or hashing it takes as a part of a value that is compared at length, in bytes
    /// that are gone through. Parts that are compared at length count for themselves.
    pub(crate) fn compared_bytes(&self) -> usize {
        match self {
            Datum::Text(text) | Datum::Bpchar(text) => text.len(),
            Datum::Bytea(bytes) => bytes.len(),
            // Mantissas are brought to one scale.
            Datum::Numeric(number) => number.bits() as usize + number.scale() as usize,
            _ => 0,
        }
    }
}

/// Item by item. What both have in common decides nothing if it is equal, and also once the
/// comparison is given up.
pub(super) fn compare_items(a: &[Datum], b: &[Datum]) -> Ordering {
    for (a, b) in a.iter().zip(b) {
        if !may_compare(a.compared_bytes().max(b.compared_bytes())) {
            return Ordering::Equal;
        }
        let ordering = a.compare(b);
        if ordering != Ordering::Equal {
            return ordering;
        }
    }
    Ordering::Equal
}

/// Items that are equal hash equally, unless it is given up.
pub(super) fn hash_items<H: Hasher>(items: &[Datum], state: &mut H) {
    state.write_usize(items.len());
    for item in items {
        if !may_compare(item.compared_bytes()) {
            return;
        }
        item.hash(state);
    }
}

impl Ord for Array {
    /// Element by element; then the shorter one first, then fewer dimensions, then the dimensions.
    fn cmp(&self, other: &Array) -> Ordering {
        let ordering = compare_items(&self.elements, &other.elements);
        if ordering != Ordering::Equal {
            return ordering;
        }
        let lengths = |array: &Array| array.dimensions.iter().map(|d| d.length).collect::<Vec<_>>();
        let lowers = |array: &Array| array.dimensions.iter().map(|d| d.lower).collect::<Vec<_>>();
        (self.elements.len().cmp(&other.elements.len()))
            .then_with(|| self.dimensions.len().cmp(&other.dimensions.len()))
            .then_with(|| lengths(self).cmp(&lengths(other)))
            .then_with(|| lowers(self).cmp(&lowers(other)))
    }
}

impl PartialOrd for Array {
    fn partial_cmp(&self, other: &Array) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Array {
    fn eq(&self, other: &Array) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Array {}

impl Hash for Array {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_items(&self.elements, state);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::Arc;

    use super::*;
    use crate::error::Result;
    use crate::types::bounds::tests::Questions;
    use crate::types::bounds::within;
    use crate::types::{Numeric, Record, TypeId};

    fn array(element: TypeId, items: Vec<Datum>) -> Datum {
        Array::new(element, items).into()
    }

    /// Pairs that are equal to the end, and take long in different ways.
    fn long_pairs() -> Vec<(&'static str, [Datum; 2])> {
        let numbers = || array(TypeId::Int4, (0..100_000).map(Datum::Int4).collect());
        let record = |values: Vec<Datum>| Datum::Record(Arc::new(Record { shape: Arc::new([]), values }));
        let pair = record(vec![Datum::Int4(1), Datum::text("x")]);
        let records = || array(TypeId::Text, vec![pair.clone(); 50_000]);
        // All elements share the bytes of one text.
        let shared = || array(TypeId::Text, vec![Datum::text("x".repeat(1 << 20)); 30]);
        let documents = |text: &str| array(TypeId::Jsonb, vec![Datum::Jsonb(text.into()); 50_000]);
        let digits = |scale: u32| Numeric::parse(&format!("1e-{scale}")).expect("a number");
        let small = |number: Numeric| array(TypeId::Numeric, vec![Datum::Numeric(number); 1000]);
        let wider = digits(16_000).add(&digits(16_001)).expect("a sum");
        let same = wider.add(&Numeric::new(0, 16_383)).expect("a sum");
        vec![
            ("numbers", [numbers(), numbers()]),
            ("shared texts", [shared(), shared()]),
            ("documents", [documents("[1]"), documents("[1.0]")]),
            ("scales", [small(wider), small(same)]),
            ("record", [record(vec![numbers()]), record(vec![numbers()])]),
            ("records", [records(), records()]),
        ]
    }

    /// What comes of it with so many questions, and how often it asked.
    fn asking<T>(left: usize, compute: impl Fn() -> T) -> (Result<T>, usize) {
        let questions = Questions::new(left, usize::MAX);
        (within(questions.clone(), || Ok(compute())), questions.asked())
    }

    fn stops_everywhere<T>(what: &str, compute: impl Fn() -> T) {
        let (_, asked) = asking(usize::MAX, &compute);
        assert!(asked >= 20, "{what}: {asked} questions");
        for left in [0, asked / 2, asked - 1] {
            let (stopped, asked) = asking(left, &compute);
            assert_eq!(stopped.err().map(|error| error.sqlstate), Some("57014"), "{what}");
            assert_eq!(asked, left + 1, "{what}: it goes on behind the answer");
        }
    }

    #[test]
    fn long_values_are_compared_and_hashed_until_it_is_enough() {
        let state = RandomState::new();
        for (what, [a, b]) in long_pairs() {
            assert!(a == b && state.hash_one(&a) == state.hash_one(&b), "{what}");
            stops_everywhere(what, || a.compare(&b));
            stops_everywhere(what, || state.hash_one(&a));
        }
        let text = Datum::text("x".repeat(1 << 21));
        stops_everywhere("a long text's hash", || state.hash_one(&text));
        let bytes = Datum::Bytea(vec![7; 1 << 21].into());
        stops_everywhere("long bytes' hash", || state.hash_one(&bytes));
    }

    #[test]
    fn short_values_are_compared_without_a_question() {
        let short = || array(TypeId::Int4, (0..500).map(Datum::Int4).collect());
        let (equal, asked) = asking(0, || short() == short());
        assert_eq!((equal.expect("nobody is asked"), asked), (true, 0));
        let text = || Datum::text("x".repeat(1 << 20));
        let (equal, asked) = asking(0, || text() == text());
        assert_eq!((equal.expect("nobody is asked"), asked), (true, 0));
    }
}
