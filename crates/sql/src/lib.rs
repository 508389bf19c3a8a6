//! SQL over the engine: types, keys and rows, parsing and binding, the row executor, sessions.

pub mod bind;
mod blocking;
mod budget;
pub mod catalog;
pub mod copy;
mod ddl;
pub mod error;
mod explain;
pub mod expr;
pub mod function;
pub mod fuzz;
mod identifier;
pub mod keys;
mod merge_sort;
pub mod monitor;
pub mod oltp;
pub mod parse;
pub mod pg_catalog;
mod place;
pub mod plan;
mod plpgsql;
mod reclaim;
mod regex;
mod routine;
pub mod row;
pub mod scram;
mod sequence;
pub mod session;
pub mod statistics;
pub mod types;

pub use error::{Result, Severity, SqlError, sqlstate};
pub use identifier::MAX_NAME;
