//! Types and values: what a column can hold, how it reads and prints, compares, casts and travels.
//!
//! A [`Type`] is a [`TypeId`] and PostgreSQL's type modifier; a [`Datum`] is one value. Everything follows PostgreSQL 15
//! with `DateStyle = ISO`, `IntervalStyle = postgres` and collation `C` (texts compare by their bytes).

mod array;
mod context;
mod datum;
mod float;
mod interval;
pub(crate) mod json;
mod numeric;
mod text;
mod type_id;

mod binary;
pub mod cast;
mod compare;
mod input;
mod output;

pub use array::{Array, Dimension};
pub use context::{ByteaOutput, DateOrder, FormatContext, ObjectNames};
pub use datum::Datum;
pub use interval::Interval;
pub use numeric::Numeric;
pub use text::{Text, pad};
pub use type_id::{Category, Type, TypeId};
