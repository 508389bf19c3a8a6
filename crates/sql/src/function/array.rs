//! Arrays: measuring, searching, joining.

use std::collections::HashSet;
use std::sync::Arc;

use super::EvalContext;
use super::math::unexpected;
use super::operator::{Operator, infix, infix_typed};
use super::registry::{Function, plain, set, typed};
use crate::error::{SqlError, sqlstate};
use crate::types::TypeId::{
    AnyArray, AnyCompatible, AnyCompatibleArray, AnyElement, Bool, Int4, Int4Array, Int8, Interval, Numeric,
    Text as T, Timestamp, Timestamptz,
};
use crate::types::bounds::{Meter, check_size};
use crate::types::{Array, Datum, Dimension, Type, TypeId};

type Computed = Result<Datum, SqlError>;

/// The array of a datum.
pub(super) fn array_of(datum: &Datum) -> Result<&Arc<Array>, SqlError> {
    if let Datum::Array(array) = datum { Ok(array) } else { Err(unexpected(&[datum])) }
}

/// Some elements, as those of a new array.
pub(super) fn copied<'a>(elements: impl Iterator<Item = &'a Datum>) -> Result<Vec<Datum>, SqlError> {
    let mut meter = Meter::default();
    let expected = elements.size_hint().0;
    check_size(expected * size_of::<Datum>())?;
    let mut copies = Vec::with_capacity(expected);
    for element in elements {
        meter.add(size_of::<Datum>())?;
        copies.push(element.clone());
    }
    Ok(copies)
}

fn int4(value: usize) -> Computed {
    i32::try_from(value).map(Datum::Int4).map_err(|_| SqlError::out_of_range("integer"))
}

/// The dimension of this number, from 1.
fn dimension(arguments: &[Datum]) -> Result<Option<Dimension>, SqlError> {
    let number = arguments[1].as_i64().unwrap_or(0);
    let index = usize::try_from(number - 1).ok();
    Ok(index.and_then(|i| array_of(&arguments[0]).ok()?.dimensions.get(i).copied()))
}

fn array_length(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    dimension(arguments)?.map_or(Ok(Datum::Null), |d| int4(d.length))
}

fn array_lower(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(dimension(arguments)?.map_or(Datum::Null, |d| Datum::Int4(d.lower)))
}

fn array_upper(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(dimension(arguments)?.map_or(Datum::Null, |d| Datum::Int4(d.lower + d.length as i32 - 1)))
}

fn array_ndims(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let count = array_of(&arguments[0])?.dimensions.len();
    Ok(if count == 0 { Datum::Null } else { Datum::Int4(count as i32) })
}

fn array_dims(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let array = array_of(&arguments[0])?;
    if array.dimensions.is_empty() {
        return Ok(Datum::Null);
    }
    let dims = array
        .dimensions
        .iter()
        .map(|d| format!("[{}:{}]", d.lower, i64::from(d.lower) + d.length as i64 - 1));
    Ok(dims.collect::<String>().into())
}

fn cardinality(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    int4(array_of(&arguments[0])?.elements.len())
}

/// The rows of `generate_subscripts`.
pub(super) fn subscripts(arguments: &[Datum]) -> Result<Vec<Datum>, SqlError> {
    let Some(dimension) = dimension(arguments)? else { return Ok(vec![]) };
    let subscript = |offset: usize| Datum::Int4(dimension.lower + offset as i32);
    let mut all: Vec<Datum> = (0..dimension.length).map(subscript).collect();
    if arguments.get(2).and_then(Datum::as_bool) == Some(true) {
        all.reverse();
    }
    Ok(all)
}

#[cold]
fn incompatible(detail: String) -> SqlError {
    SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, "cannot concatenate incompatible arrays")
        .with_detail(detail)
}

/// Two arrays one after the other; one may be an element of the other's kind. What they are made of
/// has to have the same lengths, and the same lower bounds.
fn concatenate(a: &Arc<Array>, b: &Arc<Array>) -> Computed {
    if a.dimensions.is_empty() {
        return Ok(Datum::Array(b.clone()));
    }
    if b.dimensions.is_empty() {
        return Ok(Datum::Array(a.clone()));
    }
    let (m, n) = (a.dimensions.len(), b.dimensions.len());
    let mut dimensions;
    if m == n {
        if a.dimensions[1..] != b.dimensions[1..] {
            return Err(incompatible(
                "Arrays with differing element dimensions are not compatible for concatenation.".to_owned(),
            ));
        }
        dimensions = a.dimensions.clone();
        dimensions[0].length += b.dimensions[0].length;
    } else if m + 1 == n || n + 1 == m {
        let (outer, inner) = if m > n { (a, b) } else { (b, a) };
        if outer.dimensions[1..] != inner.dimensions[..] {
            return Err(incompatible(
                "Arrays with differing dimensions are not compatible for concatenation.".to_owned(),
            ));
        }
        dimensions = outer.dimensions.clone();
        dimensions[0].length += 1;
    } else {
        return Err(incompatible(format!(
            "Arrays of {m} and {n} dimensions are not compatible for concatenation."
        )));
    }
    let elements = copied(a.elements.iter().chain(&b.elements))?;
    Ok(Array { element: a.element, dimensions, elements }.checked()?.into())
}

fn array_cat(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    match (&arguments[0], &arguments[1]) {
        (Datum::Null, other) | (other, Datum::Null) => Ok(other.clone()),
        (a, b) => concatenate(array_of(a)?, array_of(b)?),
    }
}

fn cat_operator(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    match (a, b) {
        (Datum::Null, other) | (other, Datum::Null) => Ok(other.clone()),
        (a, b) => concatenate(array_of(a)?, array_of(b)?),
    }
}

fn one_dimensional(array: &Array) -> Result<(), SqlError> {
    if array.dimensions.len() > 1 {
        return Err(SqlError::new(
            sqlstate::DATA_EXCEPTION,
            "argument must be empty or one-dimensional array",
        ));
    }
    Ok(())
}

/// An array with an element more, at the end or at the start. A NULL array is an empty one.
fn with_element(array: &Datum, element: &Datum, ty: TypeId, at_end: bool) -> Computed {
    let empty = Arc::new(Array::new(ty, vec![]));
    let old = if array.is_null() { &empty } else { array_of(array)? };
    one_dimensional(old)?;
    let (before, after) = if at_end { (None, Some(element)) } else { (Some(element), None) };
    let elements = copied(before.into_iter().chain(&old.elements).chain(after))?;
    let mut grown = Array { element: old.element, dimensions: old.dimensions.clone(), elements };
    // Prepending keeps the lower bound at what it was, too.
    let lower = grown.dimensions.first().map_or(1, |dimension| dimension.lower);
    grown.dimensions = vec![Dimension { length: grown.elements.len(), lower }];
    Ok(grown.checked()?.into())
}

fn array_append(arguments: &[Datum], types: &[Type], _: &EvalContext<'_>) -> Computed {
    with_element(&arguments[0], &arguments[1], types[1].id, true)
}

fn array_prepend(arguments: &[Datum], types: &[Type], _: &EvalContext<'_>) -> Computed {
    with_element(&arguments[1], &arguments[0], types[0].id, false)
}

fn append_operator(a: &Datum, b: &Datum, types: [Type; 2], _: &EvalContext<'_>) -> Computed {
    with_element(a, b, types[1].id, true)
}

fn prepend_operator(a: &Datum, b: &Datum, types: [Type; 2], _: &EvalContext<'_>) -> Computed {
    with_element(b, a, types[0].id, false)
}

fn array_position(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    if arguments[0].is_null() {
        return Ok(Datum::Null);
    }
    let array = array_of(&arguments[0])?;
    if array.dimensions.len() > 1 {
        return Err(SqlError::unsupported("searching for elements in multidimensional arrays"));
    }
    let lower = array.dimensions.first().map_or(1, |d| d.lower);
    let start = match arguments.get(2) {
        None => 0,
        Some(Datum::Null) => {
            return Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "initial position must not be null"));
        }
        Some(start) => usize::try_from(start.as_i64().unwrap_or(0) - i64::from(lower)).unwrap_or(0),
    };
    let mut meter = Meter::default();
    for (at, element) in array.elements.iter().enumerate().skip(start) {
        meter.add(0)?;
        if *element == arguments[1] {
            return Ok(Datum::Int4(lower + at as i32));
        }
    }
    Ok(Datum::Null)
}

fn array_positions(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    if arguments[0].is_null() {
        return Ok(Datum::Null);
    }
    let array = array_of(&arguments[0])?;
    if array.dimensions.len() > 1 {
        return Err(SqlError::unsupported("searching for elements in multidimensional arrays"));
    }
    let lower = array.dimensions.first().map_or(1, |d| d.lower);
    let (mut found, mut meter) = (vec![], Meter::default());
    for (at, element) in array.elements.iter().enumerate() {
        meter.add(0)?;
        if *element == arguments[1] {
            found.push(Datum::Int4(lower + at as i32));
        }
    }
    Ok(Array::new(Int4, found).into())
}

fn array_remove(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    if arguments[0].is_null() {
        return Ok(Datum::Null);
    }
    let array = array_of(&arguments[0])?;
    if array.dimensions.len() > 1 {
        return Err(SqlError::unsupported("removing elements from multidimensional arrays"));
    }
    let kept = copied(array.elements.iter().filter(|element| **element != arguments[1]))?;
    let mut kept = Array::new(array.element, kept);
    // Where it begins stays.
    if let (Some(left), Some(before)) = (kept.dimensions.first_mut(), array.dimensions.first()) {
        left.lower = before.lower;
    }
    Ok(kept.into())
}

fn array_replace(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    if arguments[0].is_null() {
        return Ok(Datum::Null);
    }
    let array = array_of(&arguments[0])?;
    let (from, to) = (&arguments[1], &arguments[2]);
    let elements = copied(array.elements.iter().map(|element| if element == from { to } else { element }))?;
    Ok(Array { element: array.element, dimensions: array.dimensions.clone(), elements }.into())
}

/// The array without so many of the last elements along its first dimension.
fn trim_array(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let array = array_of(&arguments[0])?;
    let first = array.dimensions.first().copied().unwrap_or(Dimension { length: 0, lower: 1 });
    let (have, drop) = (first.length, arguments[1].as_i64().unwrap_or(0));
    let drop = usize::try_from(drop).ok().filter(|d| *d <= have).ok_or_else(|| {
        SqlError::new(
            sqlstate::ARRAY_SUBSCRIPT_ERROR,
            format!("number of elements to trim must be between 0 and {have}"),
        )
    })?;
    if drop == have {
        return Ok(Array::new(array.element, vec![]).into());
    }
    let last = i64::from(first.lower) + (have - drop) as i64 - 1;
    Ok(array.slice(&[[None, i32::try_from(last).ok()]])?.into())
}

/// How many of the thresholds, which grow, a value is not below.
fn width_bucket(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let array = array_of(&arguments[1])?;
    if array.dimensions.len() > 1 {
        let message = "thresholds must be one-dimensional array";
        return Err(SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, message));
    }
    if array.elements.iter().any(Datum::is_null) {
        let message = "thresholds array must not contain NULLs";
        return Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, message));
    }
    Ok(Datum::Int4(array.elements.partition_point(|threshold| *threshold <= arguments[0]) as i32))
}

#[cold]
fn wrong_subscripts(detail: &str) -> SqlError {
    SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, "wrong number of array subscripts").with_detail(detail)
}

/// The lengths or lower bounds that `array_fill` is told.
fn numbers(argument: &Datum) -> Result<Vec<i32>, SqlError> {
    let array = array_of(argument)?;
    if array.dimensions.len() > 1 {
        return Err(wrong_subscripts("Dimension array must be one dimensional."));
    }
    let number = |element: &Datum| match element {
        Datum::Int4(number) => Ok(*number),
        _ => Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "dimension values cannot be null")),
    };
    array.elements.iter().map(number).collect()
}

/// Arguments: the value, the lengths, perhaps the lower bounds.
fn array_fill(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    if arguments[1..].iter().any(Datum::is_null) {
        return Err(SqlError::new(
            sqlstate::NULL_VALUE_NOT_ALLOWED,
            "dimension array or low bound array cannot be null",
        ));
    }
    let lengths = numbers(&arguments[1])?;
    let lowers = arguments.get(2).map_or_else(|| Ok(vec![1; lengths.len()]), numbers)?;
    if lowers.len() != lengths.len() {
        return Err(wrong_subscripts("Low bound array has different size than dimensions array."));
    }
    let too_large = || {
        SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "array size exceeds the maximum allowed (10000000)")
    };
    let mut dimensions = Vec::with_capacity(lengths.len());
    for (length, lower) in lengths.into_iter().zip(lowers) {
        dimensions.push(Dimension { length: usize::try_from(length).map_err(|_| too_large())?, lower });
    }
    let total = dimensions.iter().try_fold(1usize, |n, d| n.checked_mul(d.length));
    let total = total.filter(|n| *n <= 10_000_000).ok_or_else(too_large)?;
    let shape = Array { element: types[0].id, dimensions, elements: vec![] }.checked()?;
    if shape.dimensions.is_empty() || total == 0 {
        return Ok(Array::new(types[0].id, vec![]).into());
    }
    context.check_size(total * size_of::<Datum>())?;
    let elements = copied(std::iter::repeat_n(&arguments[0], total))?;
    Ok(Array { elements, ..shape }.into())
}

/// Pairs of elements up to which comparing all is faster than hashing.
const FEW_PAIRS: usize = 1024;

/// Whether one of the questions is (or, if `wanted` is false, is not) among the known elements.
/// NULL is never among them.
fn is_among(questions: &Array, known: &Array, wanted: bool) -> Result<bool, SqlError> {
    let mut meter = Meter::default();
    let hashed = known.elements.len().saturating_mul(questions.elements.len()) > FEW_PAIRS;
    let mut set: HashSet<&Datum> = HashSet::new();
    for element in known.elements.iter().filter(|_| hashed) {
        meter.add(4 * size_of::<usize>())?;
        set.insert(element);
    }
    for question in &questions.elements {
        meter.add(0)?;
        let found = if hashed { set.contains(question) } else { known.elements.contains(question) };
        if (found && !question.is_null()) == wanted {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether all parts are in the whole.
fn contains_all(whole: &Datum, parts: &Datum) -> Computed {
    Ok(Datum::Bool(!is_among(array_of(parts)?, array_of(whole)?, false)?))
}

fn contains(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    contains_all(a, b)
}

fn contained(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    contains_all(b, a)
}

fn overlaps(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    is_among(array_of(a)?, array_of(b)?, true).map(Datum::Bool)
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(2176, "array_length", &[AnyArray, Int4], Int4, array_length),
    plain(2091, "array_lower", &[AnyArray, Int4], Int4, array_lower),
    plain(2092, "array_upper", &[AnyArray, Int4], Int4, array_upper),
    plain(748, "array_ndims", &[AnyArray], Int4, array_ndims),
    plain(747, "array_dims", &[AnyArray], T, array_dims),
    plain(3179, "cardinality", &[AnyArray], Int4, cardinality),
    plain(383, "array_cat", &[AnyCompatibleArray, AnyCompatibleArray], AnyCompatibleArray, array_cat)
        .called_on_null(),
    typed(378, "array_append", &[AnyCompatibleArray, AnyCompatible], AnyCompatibleArray, array_append)
        .called_on_null(),
    typed(379, "array_prepend", &[AnyCompatible, AnyCompatibleArray], AnyCompatibleArray, array_prepend)
        .called_on_null(),
    plain(3277, "array_position", &[AnyCompatibleArray, AnyCompatible], Int4, array_position)
        .called_on_null(),
    plain(3278, "array_position", &[AnyCompatibleArray, AnyCompatible, Int4], Int4, array_position)
        .called_on_null(),
    plain(3279, "array_positions", &[AnyCompatibleArray, AnyCompatible], Int4Array, array_positions)
        .called_on_null(),
    plain(3167, "array_remove", &[AnyCompatibleArray, AnyCompatible], AnyCompatibleArray, array_remove)
        .called_on_null(),
    plain(
        3168,
        "array_replace",
        &[AnyCompatibleArray, AnyCompatible, AnyCompatible],
        AnyCompatibleArray,
        array_replace,
    )
    .called_on_null(),
    plain(6172, "trim_array", &[AnyArray, Int4], AnyArray, trim_array),
    plain(3218, "width_bucket", &[AnyCompatible, AnyCompatibleArray], Int4, width_bucket),
    typed(1193, "array_fill", &[AnyElement, Int4Array], AnyArray, array_fill).called_on_null(),
    typed(1286, "array_fill", &[AnyElement, Int4Array, Int4Array], AnyArray, array_fill).called_on_null(),
    set(2331, "unnest", &[AnyArray], AnyElement),
    set(1192, "generate_subscripts", &[AnyArray, Int4], Int4),
    set(1191, "generate_subscripts", &[AnyArray, Int4, Bool], Int4),
    set(6160, "string_to_table", &[T, T], T).called_on_null(),
    set(6161, "string_to_table", &[T, T, T], T).called_on_null(),
    set(1067, "generate_series", &[Int4, Int4], Int4),
    set(1066, "generate_series", &[Int4, Int4, Int4], Int4),
    set(1069, "generate_series", &[Int8, Int8], Int8),
    set(1068, "generate_series", &[Int8, Int8, Int8], Int8),
    set(3260, "generate_series", &[Numeric, Numeric], Numeric),
    set(3259, "generate_series", &[Numeric, Numeric, Numeric], Numeric),
    set(938, "generate_series", &[Timestamp, Timestamp, Interval], Timestamp),
    set(939, "generate_series", &[Timestamptz, Timestamptz, Interval], Timestamptz).stable(),
];

pub(super) fn operators() -> Vec<Operator> {
    vec![
        infix("||", AnyCompatibleArray, AnyCompatibleArray, AnyCompatibleArray, cat_operator)
            .called_on_null(),
        infix_typed("||", AnyCompatibleArray, AnyCompatible, AnyCompatibleArray, append_operator)
            .called_on_null(),
        infix_typed("||", AnyCompatible, AnyCompatibleArray, AnyCompatibleArray, prepend_operator)
            .called_on_null(),
        infix("@>", AnyArray, AnyArray, Bool, contains),
        infix("<@", AnyArray, AnyArray, Bool, contained),
        infix("&&", AnyArray, AnyArray, Bool, overlaps),
    ]
}
