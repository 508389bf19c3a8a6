//! Functions of enum types.

use super::EvalContext;
use super::registry::{Function, typed};
use crate::error::{Result, SqlError, sqlstate};
use crate::types::TypeId::{Enum, EnumArray};
use crate::types::{Array, Datum, EnumValue, Type};

/// The type of the argument, whose value does not matter, and the positions of its labels.
fn positions(types: &[Type], context: &EvalContext<'_>) -> Result<(u32, Vec<i64>)> {
    let ty = types.first().and_then(|ty| ty.enum_oid()).ok_or_else(|| {
        SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "could not determine actual enum type")
    })?;
    let positions = context.format.objects.as_deref().map(|objects| objects.enum_positions(ty));
    Ok((ty, positions.unwrap_or_default()))
}

/// One of the labels; 55000 if there is none.
fn chosen(types: &[Type], context: &EvalContext<'_>, choose: fn(&[i64]) -> Option<&i64>) -> Result<Datum> {
    let (ty, positions) = positions(types, context)?;
    if let Some(&position) = choose(&positions) {
        return Ok(Datum::Enum(EnumValue { ty, position }));
    }
    let name = context.format.objects.as_deref().and_then(|objects| objects.type_name(ty));
    Err(SqlError::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("enum {} contains no values", name.unwrap_or_default()),
    ))
}

fn enum_first(_: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Result<Datum> {
    chosen(types, context, <[i64]>::first)
}

fn enum_last(_: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Result<Datum> {
    chosen(types, context, <[i64]>::last)
}

/// The labels from one to another, both included; without one, from the first or to the last.
fn enum_range(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Result<Datum> {
    let (ty, positions) = positions(types, context)?;
    let bound = |place: usize| match arguments.get(place) {
        Some(Datum::Enum(value)) => Some(value.position),
        _ => None,
    };
    let (from, to) = (bound(0).filter(|_| arguments.len() > 1), bound(1));
    let inside =
        |position: &i64| from.is_none_or(|from| *position >= from) && to.is_none_or(|to| *position <= to);
    let values = positions.into_iter().filter(inside);
    let values = values.map(|position| Datum::Enum(EnumValue { ty, position }));
    Ok(Array::new(Enum, values.collect()).into())
}

pub(super) static FUNCTIONS: &[Function] = &[
    typed(3528, "enum_first", &[Enum], Enum, enum_first).called_on_null().stable(),
    typed(3529, "enum_last", &[Enum], Enum, enum_last).called_on_null().stable(),
    typed(3530, "enum_range", &[Enum, Enum], EnumArray, enum_range).called_on_null().stable(),
    typed(3531, "enum_range", &[Enum], EnumArray, enum_range).called_on_null().stable(),
];
