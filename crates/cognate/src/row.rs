//! Rows of a result.

use std::sync::Arc;

use cognate_sql::session::OutputColumn;
use cognate_sql::types::{Datum, FormatContext};

use crate::value::{self, FromValue};
use crate::{Error, Result, sqlstate};

/// One row. Its columns' names and types are shared with the other rows of the result.
#[derive(Clone, Debug)]
pub struct Row {
    columns: Arc<[OutputColumn]>,
    values: Box<[Datum]>,
}

/// A column by its place (from 0) or its name.
pub trait ColumnIndex {
    /// Its place, if there is such a column.
    fn place(&self, columns: &[OutputColumn]) -> Option<usize>;
    /// How an error calls it.
    fn describe(&self) -> String;
}

impl ColumnIndex for usize {
    fn place(&self, columns: &[OutputColumn]) -> Option<usize> {
        (*self < columns.len()).then_some(*self)
    }

    fn describe(&self) -> String {
        format!("number {self}")
    }
}

impl ColumnIndex for &str {
    fn place(&self, columns: &[OutputColumn]) -> Option<usize> {
        columns.iter().position(|column| column.name == *self)
    }

    fn describe(&self) -> String {
        format!("\"{self}\"")
    }
}

impl Row {
    pub(crate) fn new(columns: Arc<[OutputColumn]>, values: &[Datum]) -> Row {
        Row { columns, values: values.into() }
    }

    /// A column's value as a Rust type; `Option` for columns that may be NULL.
    ///
    /// # Errors
    /// If there is no such column, or its value cannot be taken as that type without loss.
    pub fn get<V: FromValue>(&self, column: impl ColumnIndex) -> Result<V> {
        let place = self.place(column)?;
        let OutputColumn { name, ty, .. } = &self.columns[place];
        value::take(&self.values[place], name, ty.id.sql_name())
    }

    /// A column's value in its text form, `None` for NULL.
    ///
    /// # Errors
    /// If there is no such column.
    pub fn text(&self, column: impl ColumnIndex) -> Result<Option<String>> {
        let place = self.place(column)?;
        let value = &self.values[place];
        let ty = self.columns[place].ty;
        Ok((!value.is_null()).then(|| value.to_text_string(ty, &FormatContext::default())))
    }

    /// All values, in order.
    pub fn values(&self) -> &[Datum] {
        &self.values
    }

    /// Names and types of the columns.
    pub fn columns(&self) -> &[OutputColumn] {
        &self.columns
    }

    fn place(&self, column: impl ColumnIndex) -> Result<usize> {
        column.place(&self.columns).ok_or_else(|| {
            Error::new(sqlstate::UNDEFINED_COLUMN, format!("the result has no column {}", column.describe()))
        })
    }
}
