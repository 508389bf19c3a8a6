//! Functions of enum types.

use super::EvalContext;
use super::registry::{Function, typed};
use crate::error::{Result, SqlError, sqlstate};
use crate::types::TypeId::{Enum, Void};
use crate::types::{Datum, EnumValue, Type};

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

/// There are no arrays of enum types yet, which it would return.
fn enum_range(_: &[Datum], _: &[Type], _: &EvalContext<'_>) -> Result<Datum> {
    Err(SqlError::unsupported("function enum_range"))
}

pub(super) static FUNCTIONS: &[Function] = &[
    typed(3528, "enum_first", &[Enum], Enum, enum_first).called_on_null().stable(),
    typed(3529, "enum_last", &[Enum], Enum, enum_last).called_on_null().stable(),
    typed(3530, "enum_range", &[Enum, Enum], Void, enum_range).called_on_null().stable(),
    typed(3531, "enum_range", &[Enum], Void, enum_range).called_on_null().stable(),
];
