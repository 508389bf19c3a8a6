//! SQL over the engine: types, keys and rows, parsing and binding, the row executor, sessions.

#[cfg(feature = "analytic")]
pub mod analytic;
pub mod catalog;
pub mod error;
pub mod function;
pub mod keys;
pub mod parse;
pub mod row;
pub mod session;
pub mod types;

pub use error::{Result, Severity, SqlError, sqlstate};
