//! Tables that are computed when they are read: the system catalogs and statistics views.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::expr::ReadContext;
use crate::types::{Datum, Type};

/// A table whose rows a function gives.
pub trait VirtualTable: Send + Sync {
    /// Oid, as in `pg_class`.
    fn oid(&self) -> u32;
    /// Name of its schema.
    fn schema(&self) -> &str;
    /// Its name.
    fn name(&self) -> &str;
    /// Names and types of its columns.
    fn columns(&self) -> &[(&'static str, Type)];
    /// All its rows, each with a value for every column.
    fn rows(&self, context: &ReadContext<'_>) -> Result<Vec<Vec<Datum>>>;
    /// The rows whose column `column` equals `value`, if the table can find them without computing
    /// all.
    fn rows_by_key(
        &self,
        column: usize,
        value: &Datum,
        context: &ReadContext<'_>,
    ) -> Option<Result<Vec<Vec<Datum>>>> {
        let _ = (column, value, context);
        None
    }
}

impl fmt::Debug for dyn VirtualTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema(), self.name())
    }
}

/// Finds virtual tables by name.
pub trait VirtualTables {
    /// The table of this name; without a schema, as found in `pg_catalog`, which is searched before
    /// all others.
    fn find(&self, schema: Option<&str>, name: &str) -> Option<Arc<dyn VirtualTable>>;
}

/// None at all.
pub struct NoVirtualTables;

impl VirtualTables for NoVirtualTables {
    fn find(&self, _: Option<&str>, _: &str) -> Option<Arc<dyn VirtualTable>> {
        None
    }
}
