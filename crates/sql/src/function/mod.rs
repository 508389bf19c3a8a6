//! Scalar functions, operators and aggregates, and how a call finds its own.
//!
//! Resolution follows PostgreSQL: exact match, then the candidate that needs the fewest
//! conversions, preferring preferred types, with untyped literals taken for what fits.

mod absent;
pub mod aggregate;
mod arguments;
mod array;
mod behind;
mod context;
mod convert;
mod datetime;
mod element;
mod encoding;
mod enumeration;
mod extension;
mod json;
mod math;
mod network;
pub mod operator;
mod pattern;
mod regexp;
mod registry;
mod resolve;
mod select;
mod session;
pub mod set;
mod string;
mod to_char;
mod transaction;
mod window;

pub(crate) use aggregate::is_ordered_set;
pub use aggregate::{Accumulator, Partial, Successor};
pub use context::{EvalContext, Interrupt, NeverInterrupted, NoSession, SessionView};
pub(crate) use element::{name_element, put_element, put_slice, puts_element};
pub(crate) use encoding::is_encoding;
pub(crate) use json::{json_records, jsonb_put, jsonb_subscript};
pub use registry::{Body, Function, Kind, PlainBody, TypedBody, Volatility, all};
pub(crate) use resolve::{Found, ambiguous, find, resolve_spread, undefined, untyped};
pub use resolve::{ResolvedFunction, resolve};
pub use session::IDENTITY_NEXTVAL;
pub use window::{GROUPING, WindowFunction};

/// The function of this name whose arguments a call may name.
pub(crate) fn named_parameters(name: &str) -> Option<&'static Function> {
    registry::named(name).iter().find(|function| !function.names.is_empty()).copied()
}

/// Whether a function of this name returns a set.
pub(crate) fn returns_set(name: &str) -> bool {
    registry::named(name).iter().any(|function| function.kind() == Kind::SetReturning)
}

/// Whether a function of this name is an aggregate.
pub fn is_aggregate(name: &str) -> bool {
    registry::named(name).iter().any(|function| function.kind() == Kind::Aggregate)
}
