//! From Rust values to the values of catalog columns.

use crate::types::{Array, Datum, Dimension, Inet, Text, TypeId};

/// A value of a catalog column.
pub(super) trait IntoDatum {
    /// As a datum of the type that the variant stands for.
    fn into_datum(self) -> Datum;
}

macro_rules! into_datum {
    ($($source:ty => $variant:ident),*) => {
        $(impl IntoDatum for $source {
            fn into_datum(self) -> Datum {
                Datum::$variant(self)
            }
        })*
    };
}
into_datum!(bool => Bool, i16 => Int2, i32 => Int4, i64 => Int8, f32 => Float4, f64 => Float8, u32 => Oid,
    u64 => Unsigned);
into_datum!(Text => Text, Inet => Inet);

impl IntoDatum for Datum {
    fn into_datum(self) -> Datum {
        self
    }
}

impl IntoDatum for &'static str {
    fn into_datum(self) -> Datum {
        Datum::Text(Text::from_static(self))
    }
}

impl IntoDatum for String {
    fn into_datum(self) -> Datum {
        Datum::Text(self.into())
    }
}

/// A `"char"`.
impl IntoDatum for char {
    fn into_datum(self) -> Datum {
        Datum::Text((&*self.encode_utf8(&mut [0; 4])).into())
    }
}

impl<T: IntoDatum> IntoDatum for Option<T> {
    fn into_datum(self) -> Datum {
        self.map_or(Datum::Null, IntoDatum::into_datum)
    }
}

/// A value as its column has it: integer literals in definitions are of no particular width.
pub(super) fn fit<T: IntoDatum>(value: T, column: TypeId) -> Datum {
    match (value.into_datum(), column) {
        (Datum::Int4(number), TypeId::Int8) => Datum::Int8(number.into()),
        (Datum::Int4(number), TypeId::Int2) => i16::try_from(number).map_or(NULL, Datum::Int2),
        (Datum::Int4(number), id) if id.is_oid() || id == TypeId::Xid => {
            u32::try_from(number).map_or(NULL, Datum::Oid)
        }
        (datum, _) => datum,
    }
}

/// NULL of any type.
pub(super) const NULL: Datum = Datum::Null;

/// An array of this element type.
pub(super) fn array<T: IntoDatum>(element: TypeId, items: impl IntoIterator<Item = T>) -> Datum {
    Array::new(element, items.into_iter().map(IntoDatum::into_datum).collect()).into()
}

/// An int2vector or oidvector, whose subscripts begin at 0.
pub(super) fn vector<T: IntoDatum>(element: TypeId, items: impl IntoIterator<Item = T>) -> Datum {
    let elements: Vec<Datum> = items.into_iter().map(IntoDatum::into_datum).collect();
    let dimensions = vec![Dimension { length: elements.len(), lower: 0 }];
    Array { element, dimensions, elements }.into()
}

/// The attribute number of a column at this place.
pub(super) fn attribute_number(place: usize) -> i16 {
    i16::try_from(place + 1).unwrap_or(i16::MAX)
}
