//! Arrays: elements of one type in row-major order, with dimensions and lower bounds as PostgreSQL has them.

use super::{Datum, TypeId};

/// One dimension of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dimension {
    /// Number of elements along it.
    pub length: usize,
    /// Subscript of the first one, usually 1.
    pub lower: i32,
}

/// An array value. No dimensions means empty.
#[derive(Clone, Debug)]
pub struct Array {
    /// Type of the elements.
    pub element: TypeId,
    /// Outermost first; the product of the lengths is the number of elements.
    pub dimensions: Vec<Dimension>,
    /// The elements, row-major.
    pub elements: Vec<Datum>,
}

impl Array {
    /// A one-dimensional array with lower bound 1 (or an empty one).
    pub fn new(element: TypeId, elements: Vec<Datum>) -> Array {
        let dimensions =
            if elements.is_empty() { vec![] } else { vec![Dimension { length: elements.len(), lower: 1 }] };
        Array { element, dimensions, elements }
    }

    /// An int2vector or oidvector: one dimension with lower bound 0.
    pub fn vector(element: TypeId, elements: Vec<Datum>) -> Array {
        let dimensions =
            if elements.is_empty() { vec![] } else { vec![Dimension { length: elements.len(), lower: 0 }] };
        Array { element, dimensions, elements }
    }

    /// The element at these subscripts, one for each dimension; NULL outside.
    pub fn get(&self, subscripts: &[i32]) -> Datum {
        if subscripts.len() != self.dimensions.len() {
            return Datum::Null;
        }
        let mut index = 0usize;
        for (dimension, &subscript) in self.dimensions.iter().zip(subscripts) {
            let Some(offset) = subscript.checked_sub(dimension.lower).and_then(|o| usize::try_from(o).ok())
            else {
                return Datum::Null;
            };
            if offset >= dimension.length {
                return Datum::Null;
            }
            index = index * dimension.length + offset;
        }
        self.elements.get(index).cloned().unwrap_or(Datum::Null)
    }
}
