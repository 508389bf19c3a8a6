//! Aggregates.
//!
//! An [`Accumulator`] takes the rows of one group one after the other and gives the result. Result
//! types are exact as PostgreSQL's: the sum of int4 is int8, of int8 numeric, the average of
//! integers numeric. Those that are exact whatever the order of additions can be computed in parts.

mod collect;
mod extreme;
mod ordered;
mod regression;
mod statistic;
mod sum;

pub(crate) use ordered::is_ordered_set;

use super::EvalContext;
use super::registry::{Function, aggregate};
use crate::error::SqlError;
use crate::types::{Datum, Numeric, Type, TypeId};

/// The state of one aggregate over one group. DISTINCT, FILTER and ORDER BY within the call are the
/// executor's.
pub trait Accumulator: Send {
    /// Takes one row's arguments (converted to the resolved types), NULLs included.
    fn add(&mut self, arguments: &[Datum], context: &EvalContext<'_>) -> Result<(), SqlError>;
    /// The result over what was added so far; more may follow.
    fn result(&self, context: &EvalContext<'_>) -> Result<Datum, SqlError>;
    /// The result when nothing follows: large ones are moved out instead of copied.
    fn finish(&mut self, context: &EvalContext<'_>) -> Result<Datum, SqlError> {
        self.result(context)
    }
    /// Of a sum, the average of what was added.
    fn average(&self, context: &EvalContext<'_>) -> Result<Datum, SqlError> {
        let _ = context;
        Err(SqlError::internal("the average of what is no sum"))
    }
    /// Takes back what was added first: the arguments of that row, for frames whose start moves.
    /// False if the state without that row cannot be told exactly; then the state is not to be used
    /// any more.
    fn remove(&mut self, arguments: &[Datum]) -> Result<bool, SqlError> {
        let _ = arguments;
        Ok(false)
    }
    /// What it has taken so far, to be put together with what others have taken. None if the result
    /// depends on more than that and the order of the others, as a sum of floats does.
    fn partial(&self) -> Option<Partial> {
        None
    }
    /// Takes what another accumulator of the same aggregate has taken, of rows that come after its
    /// own. Nothing can be taken back any more.
    fn absorb(&mut self, later: Partial) -> Result<(), SqlError> {
        let _ = later;
        Err(not_divisible())
    }
    /// For an aggregate whose result is one of its values, the one that no other takes the place
    /// of; NULLs are left out.
    fn successor(&self) -> Option<Successor> {
        None
    }
    /// Approximate memory held, in bytes.
    fn memory(&self) -> usize {
        0
    }
    /// Whether it keeps none of the values it takes, so that nobody need ask for its memory.
    fn is_flat(&self) -> bool {
        false
    }
}

/// What an accumulator has taken.
#[derive(Clone, Debug)]
pub enum Partial {
    /// So many rows.
    Rows(i64),
    /// The sum of integers, and their number.
    Integers(i128, i64),
    /// The sum of numerics, and their number.
    Numerics(Numeric, i64),
    /// The value that is left of all; NULL before the first.
    Value(Datum),
    /// How many were FALSE and TRUE.
    Truth([i64; 2]),
}

#[cold]
fn not_divisible() -> SqlError {
    SqlError::internal("an aggregate was to be put together from parts that are none")
}

/// Whether the second value, which came later, takes the place of the first; an order of all
/// values.
pub type Successor = fn(&Datum, &Datum) -> bool;

/// Makes a fresh accumulator for arguments of these types.
pub type AccumulatorMaker = fn(&[Type]) -> Box<dyn Accumulator>;

pub(super) static FUNCTIONS: &[Function] = {
    use TypeId::*;
    use regression::{Wanted, pairs};
    &[
        aggregate(2803, "count", &[], Int8, sum::count_rows),
        aggregate(2147, "count", &[Any], Int8, sum::count_values),
        aggregate(2109, "sum", &[Int2], Int8, sum::sum_of_narrow),
        aggregate(2108, "sum", &[Int4], Int8, sum::sum_of_narrow),
        aggregate(2107, "sum", &[Int8], Numeric, sum::sum_of_wide),
        aggregate(2114, "sum", &[Numeric], Numeric, sum::sum_of_numeric),
        aggregate(2110, "sum", &[Float4], Float4, sum::sum_of_float),
        aggregate(2111, "sum", &[Float8], Float8, sum::sum_of_float),
        aggregate(2113, "sum", &[Interval], Interval, sum::sum_of_interval),
        aggregate(2102, "avg", &[Int2], Numeric, sum::average_of_integer),
        aggregate(2101, "avg", &[Int4], Numeric, sum::average_of_integer),
        aggregate(2100, "avg", &[Int8], Numeric, sum::average_of_integer),
        aggregate(2103, "avg", &[Numeric], Numeric, sum::average_of_numeric),
        aggregate(2104, "avg", &[Float4], Float8, statistic::float_average),
        aggregate(2105, "avg", &[Float8], Float8, statistic::float_average),
        aggregate(2106, "avg", &[Interval], Interval, sum::average_of_interval),
        aggregate(2133, "min", &[Int2], Int2, extreme::minimum),
        aggregate(2132, "min", &[Int4], Int4, extreme::minimum),
        aggregate(2131, "min", &[Int8], Int8, extreme::minimum),
        aggregate(2135, "min", &[Float4], Float4, extreme::minimum),
        aggregate(2136, "min", &[Float8], Float8, extreme::minimum),
        aggregate(2146, "min", &[Numeric], Numeric, extreme::minimum),
        aggregate(2145, "min", &[Text], Text, extreme::minimum),
        aggregate(2245, "min", &[Bpchar], Bpchar, extreme::minimum),
        aggregate(2134, "min", &[Oid], Oid, extreme::minimum),
        aggregate(2138, "min", &[Date], Date, extreme::minimum),
        aggregate(2139, "min", &[Time], Time, extreme::minimum),
        aggregate(2142, "min", &[Timestamp], Timestamp, extreme::minimum),
        aggregate(2143, "min", &[Timestamptz], Timestamptz, extreme::minimum),
        aggregate(2144, "min", &[Interval], Interval, extreme::minimum),
        aggregate(2051, "min", &[AnyArray], AnyArray, extreme::minimum),
        aggregate(3527, "min", &[Enum], Enum, extreme::minimum),
        aggregate(3565, "min", &[Inet], Inet, extreme::minimum),
        aggregate(4190, "min", &[PgLsn], PgLsn, extreme::minimum),
        aggregate(0, "min", &[Xid8], Xid8, extreme::minimum),
        aggregate(2117, "max", &[Int2], Int2, extreme::maximum),
        aggregate(2116, "max", &[Int4], Int4, extreme::maximum),
        aggregate(2115, "max", &[Int8], Int8, extreme::maximum),
        aggregate(2119, "max", &[Float4], Float4, extreme::maximum),
        aggregate(2120, "max", &[Float8], Float8, extreme::maximum),
        aggregate(2130, "max", &[Numeric], Numeric, extreme::maximum),
        aggregate(2129, "max", &[Text], Text, extreme::maximum),
        aggregate(2244, "max", &[Bpchar], Bpchar, extreme::maximum),
        aggregate(2118, "max", &[Oid], Oid, extreme::maximum),
        aggregate(2122, "max", &[Date], Date, extreme::maximum),
        aggregate(2123, "max", &[Time], Time, extreme::maximum),
        aggregate(2126, "max", &[Timestamp], Timestamp, extreme::maximum),
        aggregate(2127, "max", &[Timestamptz], Timestamptz, extreme::maximum),
        aggregate(2128, "max", &[Interval], Interval, extreme::maximum),
        aggregate(2050, "max", &[AnyArray], AnyArray, extreme::maximum),
        aggregate(3526, "max", &[Enum], Enum, extreme::maximum),
        aggregate(3564, "max", &[Inet], Inet, extreme::maximum),
        aggregate(4189, "max", &[PgLsn], PgLsn, extreme::maximum),
        aggregate(0, "max", &[Xid8], Xid8, extreme::maximum),
        aggregate(2517, "bool_and", &[Bool], Bool, extreme::all_true),
        aggregate(2519, "every", &[Bool], Bool, extreme::all_true),
        aggregate(2518, "bool_or", &[Bool], Bool, extreme::any_true),
        aggregate(2236, "bit_and", &[Int2], Int2, extreme::bits_of_all),
        aggregate(2238, "bit_and", &[Int4], Int4, extreme::bits_of_all),
        aggregate(2240, "bit_and", &[Int8], Int8, extreme::bits_of_all),
        aggregate(2237, "bit_or", &[Int2], Int2, extreme::bits_of_any),
        aggregate(2239, "bit_or", &[Int4], Int4, extreme::bits_of_any),
        aggregate(2241, "bit_or", &[Int8], Int8, extreme::bits_of_any),
        aggregate(6164, "bit_xor", &[Int2], Int2, extreme::bits_of_odd),
        aggregate(6165, "bit_xor", &[Int4], Int4, extreme::bits_of_odd),
        aggregate(6166, "bit_xor", &[Int8], Int8, extreme::bits_of_odd),
        aggregate(3538, "string_agg", &[Text, Text], Text, collect::string),
        aggregate(3545, "string_agg", &[Bytea, Bytea], Bytea, collect::string),
        aggregate(2335, "array_agg", &[AnyNonArray], AnyArray, collect::array),
        aggregate(4053, "array_agg", &[AnyArray], AnyArray, collect::array_of_arrays),
        aggregate(3175, "json_agg", &[AnyElement], Json, collect::json_array),
        aggregate(3267, "jsonb_agg", &[AnyElement], Jsonb, collect::jsonb_array),
        aggregate(3197, "json_object_agg", &[Any, Any], Json, collect::json_object),
        aggregate(3270, "jsonb_object_agg", &[Any, Any], Jsonb, collect::jsonb_object),
        aggregate(2156, "stddev", &[Int2], Numeric, statistic::sample_deviation),
        aggregate(2155, "stddev", &[Int4], Numeric, statistic::sample_deviation),
        aggregate(2154, "stddev", &[Int8], Numeric, statistic::sample_deviation),
        aggregate(2159, "stddev", &[Numeric], Numeric, statistic::sample_deviation),
        aggregate(2157, "stddev", &[Float4], Float8, statistic::float_sample_deviation),
        aggregate(2158, "stddev", &[Float8], Float8, statistic::float_sample_deviation),
        aggregate(2714, "stddev_samp", &[Int2], Numeric, statistic::sample_deviation),
        aggregate(2713, "stddev_samp", &[Int4], Numeric, statistic::sample_deviation),
        aggregate(2712, "stddev_samp", &[Int8], Numeric, statistic::sample_deviation),
        aggregate(2717, "stddev_samp", &[Numeric], Numeric, statistic::sample_deviation),
        aggregate(2715, "stddev_samp", &[Float4], Float8, statistic::float_sample_deviation),
        aggregate(2716, "stddev_samp", &[Float8], Float8, statistic::float_sample_deviation),
        aggregate(2726, "stddev_pop", &[Int2], Numeric, statistic::population_deviation),
        aggregate(2725, "stddev_pop", &[Int4], Numeric, statistic::population_deviation),
        aggregate(2724, "stddev_pop", &[Int8], Numeric, statistic::population_deviation),
        aggregate(2729, "stddev_pop", &[Numeric], Numeric, statistic::population_deviation),
        aggregate(2727, "stddev_pop", &[Float4], Float8, statistic::float_population_deviation),
        aggregate(2728, "stddev_pop", &[Float8], Float8, statistic::float_population_deviation),
        aggregate(2150, "variance", &[Int2], Numeric, statistic::sample_variance),
        aggregate(2149, "variance", &[Int4], Numeric, statistic::sample_variance),
        aggregate(2148, "variance", &[Int8], Numeric, statistic::sample_variance),
        aggregate(2153, "variance", &[Numeric], Numeric, statistic::sample_variance),
        aggregate(2151, "variance", &[Float4], Float8, statistic::float_sample_variance),
        aggregate(2152, "variance", &[Float8], Float8, statistic::float_sample_variance),
        aggregate(2643, "var_samp", &[Int2], Numeric, statistic::sample_variance),
        aggregate(2642, "var_samp", &[Int4], Numeric, statistic::sample_variance),
        aggregate(2641, "var_samp", &[Int8], Numeric, statistic::sample_variance),
        aggregate(2646, "var_samp", &[Numeric], Numeric, statistic::sample_variance),
        aggregate(2644, "var_samp", &[Float4], Float8, statistic::float_sample_variance),
        aggregate(2645, "var_samp", &[Float8], Float8, statistic::float_sample_variance),
        aggregate(2720, "var_pop", &[Int2], Numeric, statistic::population_variance),
        aggregate(2719, "var_pop", &[Int4], Numeric, statistic::population_variance),
        aggregate(2718, "var_pop", &[Int8], Numeric, statistic::population_variance),
        aggregate(2723, "var_pop", &[Numeric], Numeric, statistic::population_variance),
        aggregate(2721, "var_pop", &[Float4], Float8, statistic::float_population_variance),
        aggregate(2722, "var_pop", &[Float8], Float8, statistic::float_population_variance),
        aggregate(2818, "regr_count", &[Float8, Float8], Int8, |_| pairs(Wanted::Count)),
        aggregate(2819, "regr_sxx", &[Float8, Float8], Float8, |_| pairs(Wanted::SquaresOfX)),
        aggregate(2820, "regr_syy", &[Float8, Float8], Float8, |_| pairs(Wanted::SquaresOfY)),
        aggregate(2821, "regr_sxy", &[Float8, Float8], Float8, |_| pairs(Wanted::Products)),
        aggregate(2822, "regr_avgx", &[Float8, Float8], Float8, |_| pairs(Wanted::AverageOfX)),
        aggregate(2823, "regr_avgy", &[Float8, Float8], Float8, |_| pairs(Wanted::AverageOfY)),
        aggregate(2824, "regr_r2", &[Float8, Float8], Float8, |_| pairs(Wanted::Determination)),
        aggregate(2825, "regr_slope", &[Float8, Float8], Float8, |_| pairs(Wanted::Slope)),
        aggregate(2826, "regr_intercept", &[Float8, Float8], Float8, |_| pairs(Wanted::Intercept)),
        aggregate(2827, "covar_pop", &[Float8, Float8], Float8, |_| pairs(Wanted::PopulationCovariance)),
        aggregate(2828, "covar_samp", &[Float8, Float8], Float8, |_| pairs(Wanted::SampleCovariance)),
        aggregate(2829, "corr", &[Float8, Float8], Float8, |_| pairs(Wanted::Correlation)),
        aggregate(3972, "percentile_disc", &[Float8, AnyElement], AnyElement, ordered::discrete),
        aggregate(3974, "percentile_cont", &[Float8, Float8], Float8, ordered::continuous),
        aggregate(3976, "percentile_cont", &[Float8, Interval], Interval, ordered::continuous),
        aggregate(3978, "percentile_disc", &[Float8Array, AnyElement], AnyArray, ordered::discrete),
        aggregate(3980, "percentile_cont", &[Float8Array, Float8], Float8Array, ordered::continuous),
        aggregate(3982, "percentile_cont", &[Float8Array, Interval], IntervalArray, ordered::continuous),
        aggregate(3984, "mode", &[AnyElement], AnyElement, ordered::mode),
    ]
};
