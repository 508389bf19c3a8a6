//! The order of values: sorting, grouping and keys agree on it.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

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
                state.write(&text.as_bytes()[..trimmed_length(text.as_bytes())]);
                state.write_u8(0xff);
            }
            Datum::Jsonb(text) => json::hash(text.as_str(), state),
            Datum::Bytea(bytes) => bytes.hash(state),
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

impl Ord for Array {
    /// Element by element; then the shorter one first, then fewer dimensions, then the dimensions.
    fn cmp(&self, other: &Array) -> Ordering {
        for (a, b) in self.elements.iter().zip(&other.elements) {
            let ordering = a.compare(b);
            if ordering != Ordering::Equal {
                return ordering;
            }
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
        self.elements.hash(state);
    }
}
