//! Composite values: the rows of tables and of `ROW(...)` where a single value is wanted.
//!
//! As text `(1,"a b",)`: fields with blanks, quotes, parentheses, commas or backslashes in quotes,
//! empty ones as `""`, NULL as nothing.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::bounds::Meter;
use super::compare::{compare_items, hash_items};
use super::{Datum, FormatContext, Type};
use crate::error::SqlError;

/// Names and types of a record's fields.
pub type Shape = Arc<[(String, Type)]>;

/// A composite value.
#[derive(Clone, Debug)]
pub struct Record {
    /// Names and types.
    pub shape: Shape,
    /// As many values.
    pub values: Vec<Datum>,
}

impl Record {
    /// The fields: name, type, value.
    pub fn fields(&self) -> impl Iterator<Item = (&str, Type, &Datum)> {
        self.shape.iter().zip(&self.values).map(|((name, ty), value)| (name.as_str(), *ty, value))
    }

    /// Appends the text form.
    pub(super) fn write_text(
        &self,
        context: &FormatContext,
        out: &mut Vec<u8>,
        meter: &mut Meter,
    ) -> Result<(), SqlError> {
        out.push(b'(');
        for (i, (_, ty, value)) in self.fields().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            if value.is_null() {
                continue;
            }
            let start = out.len();
            value.write(ty, context, out, meter)?;
            let field = &out[start..];
            let quote = field.is_empty()
                || field.iter().any(|byte| b"\"\\(),\x0b".contains(byte) || byte.is_ascii_whitespace());
            if quote {
                let field = out.split_off(start);
                out.push(b'"');
                for byte in field {
                    if byte == b'"' || byte == b'\\' {
                        out.push(byte);
                    }
                    out.push(byte);
                }
                out.push(b'"');
            }
            meter.wrote(out.len() - start, out)?;
        }
        out.push(b')');
        Ok(())
    }

    /// Appends the binary form: the number of fields, and of each the type's oid, the length (-1
    /// for NULL) and the binary form.
    pub(super) fn write_binary(
        &self,
        context: Option<&FormatContext>,
        out: &mut Vec<u8>,
        meter: &mut Meter,
    ) -> Result<(), SqlError> {
        out.extend_from_slice(&(self.values.len() as i32).to_be_bytes());
        for (_, ty, value) in self.fields() {
            out.extend_from_slice(&ty.oid().to_be_bytes());
            if value.is_null() {
                out.extend_from_slice(&(-1i32).to_be_bytes());
                continue;
            }
            let start = out.len();
            out.extend_from_slice(&[0; 4]);
            value.write_binary(ty, context, out, meter)?;
            let length = (out.len() - start - 4) as i32;
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
            meter.wrote(out.len() - start, out)?;
        }
        Ok(())
    }
}

impl Ord for Record {
    /// Field by field; names do not count.
    fn cmp(&self, other: &Record) -> Ordering {
        compare_items(&self.values, &other.values).then_with(|| self.values.len().cmp(&other.values.len()))
    }
}

impl PartialOrd for Record {
    fn partial_cmp(&self, other: &Record) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Record) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Record {}

impl Hash for Record {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_items(&self.values, state);
    }
}
