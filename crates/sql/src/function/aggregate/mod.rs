//! Aggregates.
//!
//! An [`Accumulator`] takes the rows of one group one after the other and gives the result. Result types are exact as
//! PostgreSQL's: the sum of int4 is int8, of int8 numeric, the average of integers numeric.

mod collect;
mod extreme;
mod statistic;
mod sum;

use super::EvalContext;
use super::registry::{Function, aggregate};
use crate::error::SqlError;
use crate::types::{Datum, Type, TypeId};

/// The state of one aggregate over one group. DISTINCT, FILTER and ORDER BY within the call are the executor's.
pub trait Accumulator: Send {
    /// Takes one row's arguments (converted to the resolved types), NULLs included.
    fn add(&mut self, arguments: &[Datum], context: &EvalContext<'_>) -> Result<(), SqlError>;
    /// The result over what was added.
    fn finish(&mut self, context: &EvalContext<'_>) -> Result<Datum, SqlError>;
    /// Approximate memory held, in bytes.
    fn memory(&self) -> usize {
        0
    }
}

/// Makes a fresh accumulator for arguments of these types.
pub type AccumulatorMaker = fn(&[Type]) -> Box<dyn Accumulator>;

pub(super) static FUNCTIONS: &[Function] = {
    use TypeId::*;
    &[
        aggregate(0, "count", &[], Int8, sum::count_rows),
        aggregate(0, "count", &[Any], Int8, sum::count_values),
        aggregate(0, "sum", &[Int2], Int8, sum::sum_of_narrow),
        aggregate(0, "sum", &[Int4], Int8, sum::sum_of_narrow),
        aggregate(0, "sum", &[Int8], Numeric, sum::sum_of_wide),
        aggregate(0, "sum", &[Numeric], Numeric, sum::sum_of_numeric),
        aggregate(0, "sum", &[Float4], Float4, sum::sum_of_float),
        aggregate(0, "sum", &[Float8], Float8, sum::sum_of_float),
        aggregate(0, "sum", &[Interval], Interval, sum::sum_of_interval),
        aggregate(0, "avg", &[Int2], Numeric, sum::average_of_integer),
        aggregate(0, "avg", &[Int4], Numeric, sum::average_of_integer),
        aggregate(0, "avg", &[Int8], Numeric, sum::average_of_integer),
        aggregate(0, "avg", &[Numeric], Numeric, sum::average_of_numeric),
        aggregate(0, "avg", &[Float4], Float8, sum::average_of_float),
        aggregate(0, "avg", &[Float8], Float8, sum::average_of_float),
        aggregate(0, "avg", &[Interval], Interval, sum::average_of_interval),
        aggregate(0, "min", &[Int2], Int2, extreme::minimum),
        aggregate(0, "min", &[Int4], Int4, extreme::minimum),
        aggregate(0, "min", &[Int8], Int8, extreme::minimum),
        aggregate(0, "min", &[Float4], Float4, extreme::minimum),
        aggregate(0, "min", &[Float8], Float8, extreme::minimum),
        aggregate(0, "min", &[Numeric], Numeric, extreme::minimum),
        aggregate(0, "min", &[Text], Text, extreme::minimum),
        aggregate(0, "min", &[Bpchar], Bpchar, extreme::minimum),
        aggregate(0, "min", &[Oid], Oid, extreme::minimum),
        aggregate(0, "min", &[Date], Date, extreme::minimum),
        aggregate(0, "min", &[Time], Time, extreme::minimum),
        aggregate(0, "min", &[Timestamp], Timestamp, extreme::minimum),
        aggregate(0, "min", &[Timestamptz], Timestamptz, extreme::minimum),
        aggregate(0, "min", &[Interval], Interval, extreme::minimum),
        aggregate(0, "min", &[AnyArray], AnyArray, extreme::minimum),
        aggregate(0, "max", &[Int2], Int2, extreme::maximum),
        aggregate(0, "max", &[Int4], Int4, extreme::maximum),
        aggregate(0, "max", &[Int8], Int8, extreme::maximum),
        aggregate(0, "max", &[Float4], Float4, extreme::maximum),
        aggregate(0, "max", &[Float8], Float8, extreme::maximum),
        aggregate(0, "max", &[Numeric], Numeric, extreme::maximum),
        aggregate(0, "max", &[Text], Text, extreme::maximum),
        aggregate(0, "max", &[Bpchar], Bpchar, extreme::maximum),
        aggregate(0, "max", &[Oid], Oid, extreme::maximum),
        aggregate(0, "max", &[Date], Date, extreme::maximum),
        aggregate(0, "max", &[Time], Time, extreme::maximum),
        aggregate(0, "max", &[Timestamp], Timestamp, extreme::maximum),
        aggregate(0, "max", &[Timestamptz], Timestamptz, extreme::maximum),
        aggregate(0, "max", &[Interval], Interval, extreme::maximum),
        aggregate(0, "max", &[AnyArray], AnyArray, extreme::maximum),
        aggregate(0, "bool_and", &[Bool], Bool, extreme::all_true),
        aggregate(0, "every", &[Bool], Bool, extreme::all_true),
        aggregate(0, "bool_or", &[Bool], Bool, extreme::any_true),
        aggregate(0, "bit_and", &[Int2], Int2, extreme::bits_of_all),
        aggregate(0, "bit_and", &[Int4], Int4, extreme::bits_of_all),
        aggregate(0, "bit_and", &[Int8], Int8, extreme::bits_of_all),
        aggregate(0, "bit_or", &[Int2], Int2, extreme::bits_of_any),
        aggregate(0, "bit_or", &[Int4], Int4, extreme::bits_of_any),
        aggregate(0, "bit_or", &[Int8], Int8, extreme::bits_of_any),
        aggregate(0, "string_agg", &[Text, Text], Text, collect::string),
        aggregate(0, "string_agg", &[Bytea, Bytea], Bytea, collect::string),
        aggregate(0, "array_agg", &[AnyNonArray], AnyArray, collect::array),
        aggregate(0, "array_agg", &[AnyArray], AnyArray, collect::array_of_arrays),
        aggregate(0, "json_agg", &[AnyElement], Json, collect::json_array),
        aggregate(0, "jsonb_agg", &[AnyElement], Jsonb, collect::jsonb_array),
        aggregate(0, "json_object_agg", &[Any, Any], Json, collect::json_object),
        aggregate(0, "jsonb_object_agg", &[Any, Any], Jsonb, collect::jsonb_object),
        aggregate(0, "stddev", &[Int2], Numeric, statistic::sample_deviation),
        aggregate(0, "stddev", &[Int4], Numeric, statistic::sample_deviation),
        aggregate(0, "stddev", &[Int8], Numeric, statistic::sample_deviation),
        aggregate(0, "stddev", &[Numeric], Numeric, statistic::sample_deviation),
        aggregate(0, "stddev", &[Float4], Float8, statistic::float_sample_deviation),
        aggregate(0, "stddev", &[Float8], Float8, statistic::float_sample_deviation),
        aggregate(0, "stddev_samp", &[Int2], Numeric, statistic::sample_deviation),
        aggregate(0, "stddev_samp", &[Int4], Numeric, statistic::sample_deviation),
        aggregate(0, "stddev_samp", &[Int8], Numeric, statistic::sample_deviation),
        aggregate(0, "stddev_samp", &[Numeric], Numeric, statistic::sample_deviation),
        aggregate(0, "stddev_samp", &[Float4], Float8, statistic::float_sample_deviation),
        aggregate(0, "stddev_samp", &[Float8], Float8, statistic::float_sample_deviation),
        aggregate(0, "stddev_pop", &[Int2], Numeric, statistic::population_deviation),
        aggregate(0, "stddev_pop", &[Int4], Numeric, statistic::population_deviation),
        aggregate(0, "stddev_pop", &[Int8], Numeric, statistic::population_deviation),
        aggregate(0, "stddev_pop", &[Numeric], Numeric, statistic::population_deviation),
        aggregate(0, "stddev_pop", &[Float4], Float8, statistic::float_population_deviation),
        aggregate(0, "stddev_pop", &[Float8], Float8, statistic::float_population_deviation),
        aggregate(0, "variance", &[Int2], Numeric, statistic::sample_variance),
        aggregate(0, "variance", &[Int4], Numeric, statistic::sample_variance),
        aggregate(0, "variance", &[Int8], Numeric, statistic::sample_variance),
        aggregate(0, "variance", &[Numeric], Numeric, statistic::sample_variance),
        aggregate(0, "variance", &[Float4], Float8, statistic::float_sample_variance),
        aggregate(0, "variance", &[Float8], Float8, statistic::float_sample_variance),
        aggregate(0, "var_samp", &[Int2], Numeric, statistic::sample_variance),
        aggregate(0, "var_samp", &[Int4], Numeric, statistic::sample_variance),
        aggregate(0, "var_samp", &[Int8], Numeric, statistic::sample_variance),
        aggregate(0, "var_samp", &[Numeric], Numeric, statistic::sample_variance),
        aggregate(0, "var_samp", &[Float4], Float8, statistic::float_sample_variance),
        aggregate(0, "var_samp", &[Float8], Float8, statistic::float_sample_variance),
        aggregate(0, "var_pop", &[Int2], Numeric, statistic::population_variance),
        aggregate(0, "var_pop", &[Int4], Numeric, statistic::population_variance),
        aggregate(0, "var_pop", &[Int8], Numeric, statistic::population_variance),
        aggregate(0, "var_pop", &[Numeric], Numeric, statistic::population_variance),
        aggregate(0, "var_pop", &[Float4], Float8, statistic::float_population_variance),
        aggregate(0, "var_pop", &[Float8], Float8, statistic::float_population_variance),
    ]
};
