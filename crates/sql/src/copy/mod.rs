//! COPY's data formats, text, csv and binary: bytes to fields and fields to bytes.
//!
//! Nothing here knows tables or sessions. A [`CopyReader`] takes data cut anywhere and gives the
//! fields of one row at a time; a [`CopyWriter`] makes the lines. NULL is told from the empty
//! string as PostgreSQL does: by `\N` in text, by being unquoted in csv. [`BinaryReader`] and
//! [`BinaryWriter`] do the same in binary format, which has no lines.

mod binary;
mod lines;
mod options;
mod reader;
mod writer;

pub use binary::{BinaryReader, BinaryWriter};
pub use options::{CopyFileFormat, CopyOptions};
pub(crate) use reader::extra_data;
pub use reader::{CopyReader, Fields};
pub use writer::CopyWriter;
