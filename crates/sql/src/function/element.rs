//! Elements: assigning to one of an array (`SET a[i][j] = x`), and the characters of a name, which
//! PostgreSQL's own clients ask for (`typname[0] = '_'`).
//!
//! No call can name these functions; the binder makes them of subscripts.

use std::sync::LazyLock;

use smallvec::SmallVec;

use super::json::puts_part;
use super::registry::{Body, Function, Volatility};
use super::{EvalContext, ResolvedFunction};
use crate::error::{SqlError, sqlstate};
use crate::expr::Expr;
use crate::types::TypeId::{AnyArray, AnyElement, Int4, InternalChar, Name};
use crate::types::{Array, Datum, Dimension, Type};

/// The elements that an array may have.
const MAX_ELEMENTS: usize = 10_000_000;

static PUT: LazyLock<Function> = LazyLock::new(|| Function {
    oid: 0,
    name: "array_put",
    arguments: &[AnyArray, AnyElement, Int4],
    variadic: true,
    optional: 0,
    names: &[],
    result: AnyArray,
    strict: false,
    volatility: Volatility::Immutable,
    body: Body::Typed(put),
});

/// The function for an array type with this element type, of the array, the value and so many
/// subscripts.
pub(crate) fn put_element(array: Type, element: Type, subscripts: usize) -> ResolvedFunction {
    let mut arguments = SmallVec::new();
    arguments.extend([array, element]);
    arguments.extend(std::iter::repeat_n(Type::new(Int4), subscripts));
    ResolvedFunction { function: &PUT, arguments, result: array, is_spread: false }
}

static NAME_ELEMENT: LazyLock<Function> = LazyLock::new(|| Function {
    oid: 0,
    name: "name_element",
    arguments: &[Name, Int4],
    variadic: false,
    optional: 0,
    names: &[],
    result: InternalChar,
    strict: true,
    volatility: Volatility::Immutable,
    body: Body::Plain(character),
});

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

/// Whether an expression assigns to an element, or to a part of a document.
pub(crate) fn puts_element(expr: &Expr) -> bool {
    let Expr::Function(call) = expr else { return false };
    std::ptr::eq(call.function.function, &*PUT) || puts_part(call.function.function)
}

fn put(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Result<Datum, SqlError> {
    let [array, value, subscripts @ ..] = arguments else {
        return Err(SqlError::internal("an assignment without an element"));
    };
    let mut places = SmallVec::<[i32; 4]>::new();
    for subscript in subscripts {
        match subscript {
            Datum::Int4(place) => places.push(*place),
            _ => {
                let message = "array subscript in assignment must not be null";
                return Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, message));
            }
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
        return Err(SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, "wrong number of array subscripts"));
    }
    let mut array = array.clone();
    if let ([dimension], [place]) = (array.dimensions.as_mut_slice(), places) {
        let before = i64::from(dimension.lower) - i64::from(*place);
        let length = match usize::try_from(before) {
            Ok(missing) => dimension.length + missing,
            Err(_) => dimension.length.max(usize::try_from(1 - before).unwrap_or(usize::MAX)),
        };
        if length > MAX_ELEMENTS {
            let message = format!("array size exceeds the maximum allowed ({MAX_ELEMENTS})");
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
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
            None => {
                let message = "array subscript out of range";
                return Err(SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, message));
            }
        }
    }
    array.elements[index] = value.clone();
    Ok(array.checked()?.into())
}
