//! SQL types and Arrow types.
//!
//! | SQL | Arrow | remark |
//! |---|---|---|
//! | bool, int2, int4, int8, float4, float8 | the same | |
//! | numeric(p,s), p at most 38 | Decimal128(p,s) | |
//! | numeric, and every computed numeric | LargeUtf8: its digits | [`call`](super::call) computes with it, [`key`](super::call::Call::key) orders by it |
//! | text, varchar(n), name, json | Utf8 | |
//! | uuid | FixedSizeBinary(16) | |
//! | bytea | Binary | |
//! | date, timestamp, timestamptz, time | Date32, Timestamp(µs), Timestamp(µs, UTC), Time64(µs) | Arrow counts from 1970 |
//! | interval | Interval(MonthDayNano) | |
//!
//! char(n) compares without trailing blanks and jsonb by structure; Arrow can do neither, so they are refused, as are arrays.

use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::ScalarValue;

use super::encode;
use crate::error::{Result, SqlError};
use crate::types::{Datum, Type, TypeId};

/// Days from 1970-01-01 to 2000-01-01.
pub(super) const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
pub(super) const EPOCH_MICROS: i64 = 10_957 * 86_400_000_000;

/// The Arrow type that holds `ty` exactly. 0A000 if there is none.
pub(super) fn arrow_type(ty: Type) -> Result<DataType> {
    Ok(match ty.id {
        TypeId::Bool => DataType::Boolean,
        TypeId::Int2 => DataType::Int16,
        TypeId::Int4 => DataType::Int32,
        TypeId::Int8 => DataType::Int64,
        TypeId::Float4 => DataType::Float32,
        TypeId::Float8 => DataType::Float64,
        TypeId::Numeric => match ty.precision_and_scale() {
            None => DataType::LargeUtf8,
            Some((precision, scale)) if (1..=38).contains(&precision) && (0..=precision).contains(&scale) => {
                DataType::Decimal128(precision as u8, scale as i8)
            }
            Some(_) => return Err(refused(ty)),
        },
        TypeId::Text | TypeId::Varchar | TypeId::Name | TypeId::Json | TypeId::Unknown => DataType::Utf8,
        TypeId::Bytea => DataType::Binary,
        TypeId::Date => DataType::Date32,
        TypeId::Time => DataType::Time64(TimeUnit::Microsecond),
        TypeId::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        TypeId::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        TypeId::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        TypeId::Uuid => DataType::FixedSizeBinary(16),
        _ => return Err(refused(ty)),
    })
}

fn refused(ty: Type) -> SqlError {
    SqlError::unsupported(format!("type {} in this kind of query", ty.format()))
}

/// The SQL type of a result column.
pub(super) fn sql_type(data_type: &DataType) -> Result<Type> {
    let plain = |id| Ok(Type { id, modifier: -1 });
    match data_type {
        DataType::Boolean => plain(TypeId::Bool),
        DataType::Int8 | DataType::Int16 => plain(TypeId::Int2),
        DataType::Int32 | DataType::UInt16 => plain(TypeId::Int4),
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => plain(TypeId::Int8),
        DataType::Float32 => plain(TypeId::Float4),
        DataType::Float64 => plain(TypeId::Float8),
        DataType::Decimal128(..) | DataType::Decimal256(..) | DataType::LargeUtf8 => plain(TypeId::Numeric),
        DataType::Utf8 | DataType::Utf8View | DataType::Null => plain(TypeId::Text),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => plain(TypeId::Bytea),
        DataType::FixedSizeBinary(16) => plain(TypeId::Uuid),
        DataType::Date32 => plain(TypeId::Date),
        DataType::Time64(_) => plain(TypeId::Time),
        DataType::Timestamp(_, None) => plain(TypeId::Timestamp),
        DataType::Timestamp(_, Some(_)) => plain(TypeId::Timestamptz),
        DataType::Interval(_) => plain(TypeId::Interval),
        other => Err(SqlError::unsupported(format!("a result of type {other}"))),
    }
}

/// A parameter's value for DataFusion.
pub(super) fn scalar(datum: &Datum, ty: Type) -> Result<ScalarValue> {
    let mut builder = encode::Builder::new(ty, 1)?;
    builder.append(datum)?;
    ScalarValue::try_from_array(&builder.finish(), 0).map_err(super::failure)
}

/// Whether Arrow tells values of this type apart exactly as PostgreSQL does. It takes the numerics 1.0 and 1.00 for different, `-0`
/// and `0` too, and one day and 24 hours.
pub(super) fn compares_alike(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::LargeUtf8 | DataType::Interval(_)) && !data_type.is_floating()
}
