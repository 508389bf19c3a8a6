//! Scalar functions, operators and aggregates, and how a call finds its own.
//!
//! Resolution follows PostgreSQL: exact match, then the candidate that needs the fewest conversions, preferring preferred types, with untyped literals
//! taken for what fits.

pub mod aggregate;
mod context;
pub mod operator;
mod registry;
mod resolve;

pub use aggregate::Accumulator;
pub use context::{EvalContext, NoSession, SessionView};
pub use registry::{Body, Function, Kind, PlainBody, TypedBody, Volatility};
pub use resolve::{ResolvedFunction, resolve};

/// Whether a function of this name is an aggregate.
pub fn is_aggregate(name: &str) -> bool {
    registry::named(name).any(|function| function.kind() == Kind::Aggregate)
}
