//! Datums to Arrow columns.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, FixedSizeBinaryBuilder,
    Float32Builder, Float64Builder, Int16Builder, Int32Builder, Int64Builder, IntervalMonthDayNanoBuilder,
    LargeStringBuilder, StringBuilder, Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano};

use super::mapping::{EPOCH_DAYS, EPOCH_MICROS, arrow_type};
use crate::error::{Result, SqlError, sqlstate};
use crate::types::{Datum, Numeric, Type, TypeId};

/// Builds one column.
pub(super) enum Builder {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Decimal(Decimal128Builder, u8, i8),
    /// A numeric by its digits.
    Digits(LargeStringBuilder),
    Text(StringBuilder),
    Bytea(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
    Uuid(FixedSizeBinaryBuilder),
}

macro_rules! each {
    ($self:expr, $builder:ident => $body:expr) => {
        match $self {
            Builder::Bool($builder) => $body,
            Builder::Int2($builder) => $body,
            Builder::Int4($builder) => $body,
            Builder::Int8($builder) => $body,
            Builder::Float4($builder) => $body,
            Builder::Float8($builder) => $body,
            Builder::Decimal($builder, ..) => $body,
            Builder::Digits($builder) => $body,
            Builder::Text($builder) => $body,
            Builder::Bytea($builder) => $body,
            Builder::Date($builder) => $body,
            Builder::Time($builder) => $body,
            Builder::Timestamp($builder) => $body,
            Builder::Interval($builder) => $body,
            Builder::Uuid($builder) => $body,
        }
    };
}

impl Builder {
    /// A builder for columns of `ty`, with room for `rows`.
    pub(super) fn new(ty: Type, rows: usize) -> Result<Builder> {
        let arrow = arrow_type(ty)?;
        Ok(match ty.id {
            TypeId::Bool => Builder::Bool(BooleanBuilder::with_capacity(rows)),
            TypeId::Int2 => Builder::Int2(Int16Builder::with_capacity(rows)),
            TypeId::Int4 => Builder::Int4(Int32Builder::with_capacity(rows)),
            TypeId::Int8 => Builder::Int8(Int64Builder::with_capacity(rows)),
            TypeId::Float4 => Builder::Float4(Float32Builder::with_capacity(rows)),
            TypeId::Float8 => Builder::Float8(Float64Builder::with_capacity(rows)),
            TypeId::Numeric => {
                let DataType::Decimal128(precision, scale) = arrow else {
                    return Ok(Builder::Digits(LargeStringBuilder::with_capacity(rows, rows * 8)));
                };
                let builder = Decimal128Builder::with_capacity(rows)
                    .with_precision_and_scale(precision, scale)
                    .map_err(|error| SqlError::internal(error.to_string()))?;
                Builder::Decimal(builder, precision, scale)
            }
            TypeId::Bytea => Builder::Bytea(BinaryBuilder::with_capacity(rows, rows * 16)),
            TypeId::Date => Builder::Date(Date32Builder::with_capacity(rows)),
            TypeId::Time => Builder::Time(Time64MicrosecondBuilder::with_capacity(rows)),
            TypeId::Timestamp | TypeId::Timestamptz => {
                Builder::Timestamp(TimestampMicrosecondBuilder::with_capacity(rows).with_data_type(arrow))
            }
            TypeId::Interval => Builder::Interval(IntervalMonthDayNanoBuilder::with_capacity(rows)),
            TypeId::Uuid => Builder::Uuid(FixedSizeBinaryBuilder::with_capacity(rows, 16)),
            _ => Builder::Text(StringBuilder::with_capacity(rows, rows * 16)),
        })
    }

    /// Appends one value.
    pub(super) fn append(&mut self, datum: &Datum) -> Result<()> {
        match (self, datum) {
            (builder, Datum::Null) => each!(builder, b => b.append_null()),
            (Builder::Bool(b), Datum::Bool(value)) => b.append_value(*value),
            (Builder::Int2(b), Datum::Int2(value)) => b.append_value(*value),
            (Builder::Int4(b), Datum::Int4(value)) => b.append_value(*value),
            (Builder::Int8(b), Datum::Int8(value)) => b.append_value(*value),
            (Builder::Float4(b), Datum::Float4(value)) => b.append_value(*value),
            (Builder::Float8(b), Datum::Float8(value)) => b.append_value(*value),
            (Builder::Decimal(b, precision, scale), Datum::Numeric(value)) => {
                b.append_value(decimal(value, *precision, *scale)?);
            }
            (Builder::Digits(b), Datum::Numeric(value)) => b.append_value(value.to_string()),
            (Builder::Text(b), datum) if datum.as_str().is_some() => {
                b.append_value(datum.as_str().unwrap_or_default());
            }
            (Builder::Bytea(b), Datum::Bytea(value)) => b.append_value(value),
            (Builder::Date(b), Datum::Date(value)) => {
                b.append_value(value.checked_add(EPOCH_DAYS).ok_or_else(infinite)?);
            }
            (Builder::Time(b), Datum::Time(value)) => b.append_value(*value),
            (Builder::Timestamp(b), Datum::Timestamp(value) | Datum::Timestamptz(value)) => {
                if *value == i64::MIN {
                    return Err(infinite());
                }
                b.append_value(value.checked_add(EPOCH_MICROS).ok_or_else(infinite)?);
            }
            (Builder::Interval(b), Datum::Interval(value)) => {
                let nanos =
                    value.micros.checked_mul(1_000).ok_or_else(|| SqlError::out_of_range("interval"))?;
                b.append_value(IntervalMonthDayNano::new(value.months, value.days, nanos));
            }
            (Builder::Uuid(b), Datum::Uuid(value)) => {
                b.append_value(value).map_err(|error| SqlError::internal(error.to_string()))?;
            }
            (_, other) => return Err(SqlError::internal(format!("a column holds {other:?}"))),
        }
        Ok(())
    }

    /// The column; the builder is empty again.
    pub(super) fn finish(&mut self) -> ArrayRef {
        each!(self, b => Arc::new(b.finish()) as ArrayRef)
    }
}

fn infinite() -> SqlError {
    SqlError::unsupported("infinite dates in this kind of query")
}

/// `value` as an integer of units of 10^-scale, exactly.
fn decimal(value: &Numeric, precision: u8, scale: i8) -> Result<i128> {
    let text = value.to_string();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.as_str()),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let scale = usize::try_from(scale).unwrap_or(0);
    let unfit = || {
        SqlError::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!(
                "numeric {text} does not fit numeric({precision},{scale}), which this kind of query computes with"
            ),
        )
    };
    if fraction.len() > scale || whole.trim_start_matches('0').len() + scale > usize::from(precision) {
        return Err(unfit());
    }
    let units: i128 = format!("{whole}{fraction:0<scale$}").parse().map_err(|_| unfit())?;
    Ok(sign * units)
}
