//! Arrays: elements of one type in row-major order, with dimensions and lower bounds as PostgreSQL
//! has them.

use super::bounds::Meter;
use super::{Datum, TypeId};
use crate::error::{SqlError, sqlstate};

/// One dimension of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dimension {
    /// Number of elements along it.
    pub length: usize,
    /// Subscript of the first one, usually 1.
    pub lower: i32,
}

/// Most dimensions of an array.
pub(crate) const MAX_DIMENSIONS: usize = 6;

/// 54000 unless the subscript behind the last element is a number, too, along each dimension.
pub(super) fn check_bounds(dimensions: &[Dimension]) -> Result<(), SqlError> {
    let fits = |dimension: &Dimension| {
        i32::try_from(dimension.length).is_ok_and(|length| dimension.lower.checked_add(length).is_some())
    };
    match dimensions.iter().find(|dimension| !fits(dimension)) {
        None => Ok(()),
        Some(dimension) => Err(SqlError::new(
            sqlstate::PROGRAM_LIMIT_EXCEEDED,
            format!("array lower bound is too large: {}", dimension.lower),
        )),
    }
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

    /// The array, if it has a shape that arrays can have. 54000 for more dimensions than those, and
    /// for subscripts beyond integers.
    pub(crate) fn checked(self) -> Result<Array, SqlError> {
        let count = self.dimensions.len();
        if count > MAX_DIMENSIONS {
            let message = format!(
                "number of array dimensions ({count}) exceeds the maximum allowed ({MAX_DIMENSIONS})"
            );
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
        }
        check_bounds(&self.dimensions)?;
        Ok(self)
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

    /// The part between these subscripts, both included; without one the array's own. Dimensions
    /// that have none are taken whole. Its subscripts begin with 1. Empty if there are more bounds
    /// than dimensions, or nothing between them. 57014 once the statement should stop.
    pub fn slice(&self, limits: &[[Option<i32>; 2]]) -> Result<Array, SqlError> {
        let empty = Array { element: self.element, dimensions: vec![], elements: vec![] };
        if limits.len() > self.dimensions.len() {
            return Ok(empty);
        }
        let mut dimensions = Vec::with_capacity(self.dimensions.len());
        // Of each dimension: places left out before, places taken, and all that there are.
        let mut ranges = Vec::with_capacity(self.dimensions.len());
        for (place, dimension) in self.dimensions.iter().enumerate() {
            let [from, to] = limits.get(place).copied().unwrap_or_default();
            let lower = i64::from(dimension.lower);
            let upper = lower + dimension.length as i64 - 1;
            let from = from.map_or(lower, i64::from).max(lower);
            let to = to.map_or(upper, i64::from).min(upper);
            if from > to {
                return Ok(empty);
            }
            let (first, length) = ((from - lower) as usize, (to - from + 1) as usize);
            ranges.push([first, length, dimension.length]);
            dimensions.push(Dimension { length, lower: 1 });
        }
        let mut elements = Vec::with_capacity(dimensions.iter().map(|dimension| dimension.length).product());
        take_ranges(&self.elements, &ranges, &mut elements, &mut Meter::default())?;
        Ok(Array { element: self.element, dimensions, elements })
    }

    /// Arrays of one shape, stacked up to one with a dimension more. 22004 for NULL, 2202E for
    /// empty arrays and different shapes, 54000 for too many dimensions.
    pub fn stacked(element: TypeId, parts: Vec<Datum>) -> Result<Array, SqlError> {
        let mut stack = Array { element, dimensions: vec![], elements: vec![] };
        let count = parts.len();
        let mut shape: Option<Vec<Dimension>> = None;
        for part in parts {
            let Datum::Array(part) = part else {
                return Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "cannot accumulate null arrays"));
            };
            let problem = match &shape {
                _ if part.dimensions.is_empty() => Some("cannot accumulate empty arrays"),
                Some(shape) if *shape != part.dimensions => {
                    Some("cannot accumulate arrays of different dimensionality")
                }
                _ => None,
            };
            if let Some(problem) = problem {
                return Err(SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, problem));
            }
            stack.elements.extend_from_slice(&part.elements);
            shape.get_or_insert_with(|| part.dimensions.clone());
        }
        if let Some(shape) = shape {
            stack.dimensions.push(Dimension { length: count, lower: 1 });
            stack.dimensions.extend(shape);
        }
        stack.checked()
    }
}

/// Appends the elements within these ranges, one for each dimension: the places before it, its own,
/// and all that there are. 57014 once the statement should stop.
fn take_ranges(
    elements: &[Datum],
    ranges: &[[usize; 3]],
    out: &mut Vec<Datum>,
    meter: &mut Meter,
) -> Result<(), SqlError> {
    let Some(([first, length, all], inner)) = ranges.split_first() else { return Ok(()) };
    let block = elements.len() / all;
    let kept = &elements[first * block..(first + length) * block];
    if inner.is_empty() {
        for element in kept {
            meter.add(size_of::<Datum>())?;
            out.push(element.clone());
        }
        return Ok(());
    }
    kept.chunks(block).try_for_each(|part| take_ranges(part, inner, out, meter))
}
