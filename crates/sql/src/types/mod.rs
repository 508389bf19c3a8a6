//! Types and values: what a column can hold, how it reads and prints, compares, casts and travels.
//!
//! A [`Type`] is a [`TypeId`] and PostgreSQL's type modifier; a [`Datum`] is one value. Everything
//! follows PostgreSQL 15 with collation `C` (texts compare by their bytes).

mod array;
mod array_text;
pub(crate) mod bounds;
pub(crate) mod bytea;
mod containment;
mod context;
pub(crate) mod datetime;
mod datum;
mod domain;
mod enumeration;
pub(crate) mod float;
pub(crate) mod inet;
mod interval;
pub(crate) mod json;
mod malformed;
mod numeric;
pub(crate) mod object;
mod record;
pub(crate) mod snapshot;
mod text;
mod type_id;

mod binary;
pub mod cast;
mod compare;
pub(crate) mod input;
pub(crate) mod output;

pub(crate) use array::MAX_DIMENSIONS;
pub use array::{Array, Dimension};
pub use context::{ByteaOutput, DateOrder, DateStyle, FormatContext, IntervalStyle, ObjectNames};
pub use datetime::zone::{TimeZone, from_setting as time_zone};
pub use datum::Datum;
pub use domain::DomainUse;
pub use enumeration::EnumValue;
pub use inet::Inet;
pub use interval::Interval;
pub use numeric::{Arithmetic, Check, Numeric};
pub(crate) use numeric::{Moments, Word};
pub use record::{Record, Shape};
pub use text::{Text, pad};
pub(crate) use text::{keep_part, trimmed_length};
pub use type_id::{Category, Type, TypeId};
