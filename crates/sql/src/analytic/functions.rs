//! Which functions may be called here, and whose they are.
//!
//! Scalar functions and aggregates are the row executor's own ([`call`](super::call), [`aggregate`](super::aggregate)), save a few
//! that DataFusion must know by heart; window functions are DataFusion's. Any other is refused by name with 0A000.

use crate::function::{self, Body, Kind, Volatility};

/// Expressions that are written like functions. DataFusion's mean the same once their arguments are of one type.
const EXPRESSIONS: &[&str] = &["coalesce", "greatest", "least", "nullif"];

/// Aggregates of DataFusion.
const AGGREGATE: &[&str] = &["count", "first_value", "grouping", "last_value", "nth_value"];

/// Window functions of DataFusion.
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

/// Whose a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The row executor's.
    Ours,
    /// DataFusion's.
    Theirs,
    /// There is one, but not for this kind of query.
    Refused,
    /// There is none.
    Nobodys,
}

/// Whose scalar function of this name is called.
pub(super) fn scalar(name: &str) -> Whose {
    if is_expression(name) {
        return Whose::Ours;
    }
    whose(name, Kind::Scalar)
}

/// Is this the name of an expression that is written like a function?
pub(super) fn is_expression(name: &str) -> bool {
    EXPRESSIONS.contains(&name)
}

/// Whose aggregate of this name is called.
pub(super) fn aggregate(name: &str) -> Whose {
    if AGGREGATE.contains(&name) {
        return Whose::Theirs;
    }
    whose(name, Kind::Aggregate)
}

/// Is the window function of this name let through?
pub(super) fn window(name: &str) -> bool {
    WINDOW.contains(&name)
}

fn whose(name: &str, kind: Kind) -> Whose {
    let mut known = Whose::Nobodys;
    for function in function::all().filter(|function| function.name == name && function.kind() == kind) {
        let of_session = function::depends_on_session(name);
        let computed = matches!(function.body, Body::Plain(_) | Body::Typed(_) | Body::Aggregate(_));
        if of_session || !computed || function.volatility == Volatility::Volatile {
            return Whose::Refused;
        }
        known = Whose::Ours;
    }
    known
}
