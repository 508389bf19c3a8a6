//! Which of DataFusion's functions mean what PostgreSQL's of the same name mean.
//!
//! Only these are let through; any other is refused by name with 0A000, so that no query gets an answer that
//! PostgreSQL would not give.

/// Scalar functions.
const SCALAR: &[&str] = &[
    "abs",
    "ascii",
    "btrim",
    "ceil",
    "char_length",
    "character_length",
    "coalesce",
    "concat",
    "date_trunc",
    "exp",
    "floor",
    "greatest",
    "least",
    "left",
    "length",
    "lower",
    "lpad",
    "ltrim",
    "nullif",
    "octet_length",
    "position",
    "power",
    "replace",
    "reverse",
    "right",
    "rpad",
    "rtrim",
    "sqrt",
    "starts_with",
    "strpos",
    "substr",
    "substring",
    "translate",
    "trim",
    "upper",
];

/// Aggregates, also as window functions.
const AGGREGATE: &[&str] = &[
    "avg",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "first_value",
    "last_value",
    "max",
    "min",
    "nth_value",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "var_pop",
    "var_samp",
    "grouping",
];

/// Window functions.
const WINDOW: &[&str] = &[
    "cume_dist",
    "dense_rank",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "ntile",
    "percent_rank",
    "rank",
    "row_number",
];

/// Is the scalar function of this name let through?
pub(super) fn scalar(name: &str) -> bool {
    SCALAR.contains(&name)
}

/// Is the aggregate of this name let through?
pub(super) fn aggregate(name: &str) -> bool {
    AGGREGATE.contains(&name)
}

/// Is the window function of this name let through?
pub(super) fn window(name: &str) -> bool {
    WINDOW.contains(&name)
}
