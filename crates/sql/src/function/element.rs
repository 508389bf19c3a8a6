//! Elements: assigning to one of an array (`SET a[i][j] = x`) or to those of a slice
//! (`SET a[i:j] = b`), and the characters of a name, which PostgreSQL's own clients ask for
//! (`typname[0] = '_'`).
//!
//! No call can name these functions; the binder makes them of subscripts.

use smallvec::SmallVec;

use super::array::copied;
use super::json::puts_part;
use super::registry::{Function, plain, typed};
use super::{EvalContext, ResolvedFunction};
use crate::error::{SqlError, sqlstate};
use crate::expr::Expr;
use crate::types::TypeId::{AnyArray, AnyElement, Int4, InternalChar, Name};
use crate::types::bounds::Meter;
use crate::types::{Array, Datum, Dimension, Type};

/// The elements that an array may have.
const MAX_ELEMENTS: usize = 10_000_000;

static PUT: Function =
    typed(0, "array_put", &[AnyArray, AnyElement, Int4], AnyArray, put).variadic().called_on_null();

/// The function for an array type with this element type, of the array, the value and so many
/// subscripts.
pub(crate) fn put_element(array: Type, element: Type, subscripts: usize) -> ResolvedFunction {
    let mut arguments = SmallVec::new();
    arguments.extend([array, element]);
    arguments.extend(std::iter::repeat_n(Type::new(Int4), subscripts));
    ResolvedFunction { function: &PUT, arguments, result: array, is_spread: false }
}

static PUT_SLICE: Function = typed(0, "array_put_slice", &[AnyArray, AnyArray, Int4], AnyArray, put_elements)
    .variadic()
    .called_on_null();

/// The function for an array type, of the array, the array that gives the new elements, which of
/// the bounds are given (a bit for each), and the lower and the upper bound of so many dimensions.
pub(crate) fn put_slice(array: Type, dimensions: usize) -> ResolvedFunction {
    let mut arguments = SmallVec::new();
    arguments.extend([array, array]);
    arguments.extend(std::iter::repeat_n(Type::new(Int4), 1 + 2 * dimensions));
    ResolvedFunction { function: &PUT_SLICE, arguments, result: array, is_spread: false }
}

static NAME_ELEMENT: Function = plain(0, "name_element", &[Name, Int4], InternalChar, character);

/// The function of a name and a place that gives the character there, from 0.
pub(crate) fn name_element() -> ResolvedFunction {
    let arguments = [Name, Int4].into_iter().map(Type::new).collect();
    ResolvedFunction { function: &NAME_ELEMENT, arguments, result: Type::new(InternalChar), is_spread: false }
}

/// A name takes 64 bytes, whatever its length: behind its end there are empty characters, and
/// behind those nothing.
fn character(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum, SqlError> {
    let name = arguments[0].as_str().unwrap_or_default();
    let place = arguments[1].as_i64().and_then(|place| usize::try_from(place).ok());
    let Some(place) = place.filter(|place| *place < 64) else { return Ok(Datum::Null) };
    Ok(name.get(place..=place).unwrap_or_default().into())
}

/// Whether an expression assigns to an element or a slice, or to a part of a document.
pub(crate) fn puts_element(expr: &Expr) -> bool {
    let Expr::Function(call) = expr else { return false };
    let is = |known: &Function| std::ptr::eq(call.function.function, known);
    is(&PUT) || is(&PUT_SLICE) || puts_part(call.function.function)
}

fn subscript_error(message: &'static str) -> SqlError {
    SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, message)
}

fn null_subscript() -> SqlError {
    let message = "array subscript in assignment must not be null";
    SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, message)
}

fn too_large() -> SqlError {
    let message = format!("array size exceeds the maximum allowed ({MAX_ELEMENTS})");
    SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message)
}

fn put(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Result<Datum, SqlError> {
    let [array, value, subscripts @ ..] = arguments else {
        return Err(SqlError::internal("an assignment without an element"));
    };
    let mut places = SmallVec::<[i32; 4]>::new();
    for subscript in subscripts {
        match subscript {
            Datum::Int4(place) => places.push(*place),
            _ => return Err(null_subscript()),
        }
    }
    match array {
        Datum::Array(array) if !array.dimensions.is_empty() => replaced(array, &places, value, context),
        _ => {
            let dimensions = places.iter().map(|&lower| Dimension { length: 1, lower }).collect();
            let elements = vec![value.clone()];
            Ok(Array { element: types[1].id, dimensions, elements }.checked()?.into())
        }
    }
}

/// The array with another element. One with one dimension grows to have it, with NULLs between.
fn replaced(
    array: &Array,
    places: &[i32],
    value: &Datum,
    context: &EvalContext<'_>,
) -> Result<Datum, SqlError> {
    if places.len() != array.dimensions.len() {
        return Err(subscript_error("wrong number of array subscripts"));
    }
    let mut array = array.clone();
    if let ([dimension], [place]) = (array.dimensions.as_mut_slice(), places) {
        let before = i64::from(dimension.lower) - i64::from(*place);
        let length = match usize::try_from(before) {
            Ok(missing) => dimension.length + missing,
            Err(_) => dimension.length.max(usize::try_from(1 - before).unwrap_or(usize::MAX)),
        };
        if length > MAX_ELEMENTS {
            return Err(too_large());
        }
        context.check_size(length * size_of::<Datum>())?;
        if before > 0 {
            let missing = std::iter::repeat_n(Datum::Null, length - dimension.length);
            array.elements.splice(0..0, missing);
            dimension.lower = *place;
        } else {
            array.elements.resize(length, Datum::Null);
        }
        dimension.length = length;
    }
    let mut index = 0;
    for (dimension, &place) in array.dimensions.iter().zip(places) {
        let offset = usize::try_from(i64::from(place) - i64::from(dimension.lower)).ok();
        match offset.filter(|offset| *offset < dimension.length) {
            Some(offset) => index = index * dimension.length + offset,
            None => return Err(subscript_error("array subscript out of range")),
        }
    }
    array.elements[index] = value.clone();
    Ok(array.checked()?.into())
}

/// The bounds of a slice's dimensions; none where the array's own holds.
type Limits = SmallVec<[[Option<i32>; 2]; 2]>;

fn put_elements(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Result<Datum, SqlError> {
    let [array, source, given, bounds @ ..] = arguments else {
        return Err(SqlError::internal("an assignment without a slice"));
    };
    let given = given.as_i64().unwrap_or(0);
    let mut limits = Limits::new();
    for (at, pair) in bounds.chunks_exact(2).enumerate() {
        let bound = |side: usize| match &pair[side] {
            _ if (given >> (2 * at + side)) & 1 == 0 => Ok(None),
            Datum::Int4(bound) => Ok(Some(*bound)),
            _ => Err(null_subscript()),
        };
        limits.push([bound(0)?, bound(1)?]);
    }
    let array = match array {
        Datum::Array(array) => Array::clone(array),
        _ => {
            let element = types.first().and_then(|ty| ty.element());
            let element = element.ok_or_else(|| SqlError::internal("an array type without elements"))?;
            Array::new(element.id, vec![])
        }
    };
    // As in PostgreSQL, where there is nothing to take elements from, nothing is assigned.
    let Datum::Array(source) = source else { return Ok(array.into()) };
    if array.dimensions.is_empty() {
        return new_slice(array, &limits, source);
    }
    replaced_slice(array, &limits, source, context)
}

/// An array of a slice's shape, of the first elements of another one.
fn new_slice(empty: Array, limits: &Limits, source: &Array) -> Result<Datum, SqlError> {
    let mut dimensions = Vec::with_capacity(limits.len());
    let mut count = 1usize;
    for limit in limits {
        let [Some(lower), Some(upper)] = *limit else {
            let error = subscript_error("array slice subscript must provide both boundaries");
            return Err(error.with_detail(
                "When assigning to a slice of an empty array value, slice boundaries must be fully specified.",
            ));
        };
        let length = usize::try_from(i64::from(upper) - i64::from(lower) + 1).map_err(|_| too_large())?;
        count = count.checked_mul(length).filter(|count| *count <= MAX_ELEMENTS).ok_or_else(too_large)?;
        dimensions.push(Dimension { length, lower });
    }
    if count == 0 {
        return Ok(empty.into());
    }
    let elements = source.elements.get(..count).ok_or_else(|| subscript_error("source array too small"))?;
    let elements = copied(elements.iter())?;
    Ok(Array { element: empty.element, dimensions, elements }.checked()?.into())
}

/// The array with the first elements of another one in a slice of it. One with one dimension grows
/// to have the slice, with NULLs between.
fn replaced_slice(
    mut array: Array,
    limits: &Limits,
    source: &Array,
    context: &EvalContext<'_>,
) -> Result<Datum, SqlError> {
    if limits.len() > array.dimensions.len() {
        return Err(subscript_error("wrong number of array subscripts"));
    }
    let grows = array.dimensions.len() == 1;
    let mut ranges = SmallVec::<[[i64; 2]; 2]>::new();
    let mut count = 1usize;
    for (at, dimension) in array.dimensions.iter().enumerate() {
        let [from, to] = limits.get(at).copied().unwrap_or_default();
        let first = i64::from(dimension.lower);
        let last = first + dimension.length as i64 - 1;
        let (from, to) = (from.map_or(first, i64::from), to.map_or(last, i64::from));
        if from > to {
            return Err(subscript_error("upper bound cannot be less than lower bound"));
        }
        if !grows && (from < first || to > last) {
            return Err(subscript_error("array subscript out of range"));
        }
        let length = usize::try_from(to - from + 1).map_err(|_| too_large())?;
        count = count.checked_mul(length).filter(|count| *count <= MAX_ELEMENTS).ok_or_else(too_large)?;
        ranges.push([from, to]);
    }
    if count > source.elements.len() {
        return Err(subscript_error("source array too small"));
    }
    if let ([dimension], [[from, to]]) = (array.dimensions.as_mut_slice(), ranges.as_slice()) {
        let first = i64::from(dimension.lower);
        let last = first + dimension.length as i64 - 1;
        let missing = usize::try_from(first - from).unwrap_or(0);
        let length = usize::try_from(last.max(*to) - first.min(*from) + 1).map_err(|_| too_large())?;
        if length > MAX_ELEMENTS {
            return Err(too_large());
        }
        context.check_size(length * size_of::<Datum>())?;
        array.elements.splice(0..0, std::iter::repeat_n(Datum::Null, missing));
        array.elements.resize(length, Datum::Null);
        dimension.lower -= missing as i32;
        dimension.length = length;
    }
    let mut meter = Meter::default();
    for (place, element) in source.elements.iter().take(count).enumerate() {
        meter.add(0)?;
        let (mut rest, mut index, mut stride) = (place, 0, 1);
        for (dimension, [from, to]) in array.dimensions.iter().zip(&ranges).rev() {
            let span = (to - from + 1) as usize;
            index += ((from - i64::from(dimension.lower)) as usize + rest % span) * stride;
            rest /= span;
            stride *= dimension.length;
        }
        array.elements[index] = element.clone();
    }
    Ok(array.checked()?.into())
}
