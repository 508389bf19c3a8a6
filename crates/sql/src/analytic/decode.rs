//! Arrow batches to rows.

use bytes::Bytes;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};

use super::mapping::{EPOCH_DAYS, EPOCH_MICROS};
use crate::error::{Result, SqlError};
use crate::types::{Datum, Interval, Numeric, Type, TypeId};

/// The rows of a batch, whose columns have these SQL types.
pub(super) fn rows(batch: &RecordBatch, types: &[Type]) -> Result<Vec<Vec<Datum>>> {
    let mut rows: Vec<Vec<Datum>> = (0..batch.num_rows()).map(|_| Vec::with_capacity(types.len())).collect();
    for (values, ty) in batch.columns().iter().zip(types) {
        for (row, value) in rows.iter_mut().zip(column(values, *ty)?) {
            row.push(value);
        }
    }
    Ok(rows)
}

/// The values of a column, which has this SQL type.
pub(super) fn column(column: &ArrayRef, ty: Type) -> Result<Vec<Datum>> {
    let column = canonical(column, ty)?;
    // A column of no type has no values, but does not say so of each.
    if *column.data_type() == DataType::Null {
        return Ok(vec![Datum::Null; column.len()]);
    }
    (0..column.len())
        .map(|place| if column.is_null(place) { Ok(Datum::Null) } else { value(&column, place, ty) })
        .collect()
}

/// The column in the one Arrow type that [`value`] reads for `ty`.
fn canonical(column: &ArrayRef, ty: Type) -> Result<ArrayRef> {
    let wanted = match (ty.id, column.data_type()) {
        (_, DataType::Null) => return Ok(column.clone()),
        (TypeId::Int2, _) => DataType::Int16,
        (TypeId::Int4, _) => DataType::Int32,
        (TypeId::Int8, _) => DataType::Int64,
        (TypeId::Text | TypeId::Varchar | TypeId::Name | TypeId::Json | TypeId::Unknown, _) => DataType::Utf8,
        (TypeId::Numeric, from) if from.is_integer() => DataType::LargeUtf8,
        (TypeId::Bytea, _) => DataType::Binary,
        (TypeId::Time, _) => DataType::Time64(TimeUnit::Microsecond),
        (TypeId::Timestamp, _) => DataType::Timestamp(TimeUnit::Microsecond, None),
        (TypeId::Timestamptz, DataType::Timestamp(_, zone)) => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        (TypeId::Interval, _) => DataType::Interval(IntervalUnit::MonthDayNano),
        (_, other) => other.clone(),
    };
    if &wanted == column.data_type() {
        return Ok(column.clone());
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, &wanted, &options).map_err(|_| SqlError::out_of_range(ty.id.sql_name()))
}

fn value(column: &ArrayRef, place: usize, ty: Type) -> Result<Datum> {
    Ok(match ty.id {
        TypeId::Bool => Datum::Bool(column.as_boolean().value(place)),
        TypeId::Int2 => Datum::Int2(column.as_primitive::<Int16Type>().value(place)),
        TypeId::Int4 => Datum::Int4(column.as_primitive::<Int32Type>().value(place)),
        TypeId::Int8 => Datum::Int8(column.as_primitive::<Int64Type>().value(place)),
        TypeId::Float4 => Datum::Float4(column.as_primitive::<Float32Type>().value(place)),
        TypeId::Float8 => Datum::Float8(column.as_primitive::<Float64Type>().value(place)),
        TypeId::Numeric => {
            let text = match column.data_type() {
                DataType::LargeUtf8 => column.as_string::<i64>().value(place).to_owned(),
                DataType::Decimal256(..) => column.as_primitive::<Decimal256Type>().value_as_string(place),
                _ => column.as_primitive::<Decimal128Type>().value_as_string(place),
            };
            Datum::Numeric(text.parse::<Numeric>()?)
        }
        TypeId::Text | TypeId::Varchar | TypeId::Name | TypeId::Json | TypeId::Unknown => {
            Datum::text(column.as_string::<i32>().value(place))
        }
        TypeId::Bytea => Datum::Bytea(Bytes::copy_from_slice(column.as_binary::<i32>().value(place))),
        TypeId::Uuid => {
            let bytes = column.as_fixed_size_binary().value(place);
            Datum::Uuid(bytes.try_into().map_err(|_| SqlError::internal("a uuid has 16 bytes"))?)
        }
        TypeId::Date => Datum::Date(column.as_primitive::<Date32Type>().value(place) - EPOCH_DAYS),
        TypeId::Time => Datum::Time(column.as_primitive::<Time64MicrosecondType>().value(place)),
        TypeId::Timestamp => {
            Datum::Timestamp(column.as_primitive::<TimestampMicrosecondType>().value(place) - EPOCH_MICROS)
        }
        TypeId::Timestamptz => {
            Datum::Timestamptz(column.as_primitive::<TimestampMicrosecondType>().value(place) - EPOCH_MICROS)
        }
        TypeId::Interval => {
            let value = column.as_primitive::<IntervalMonthDayNanoType>().value(place);
            Datum::Interval(Interval {
                months: value.months,
                days: value.days,
                micros: value.nanoseconds.div_euclid(1_000),
            })
        }
        _ => return Err(SqlError::internal(format!("a result column of type {}", ty.format()))),
    })
}
