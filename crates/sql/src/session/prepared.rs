//! Prepared statements.

use crate::types::Type;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    /// Name.
    pub name: String,
    /// Type.
    pub ty: Type,
    /// Oid of the table it comes from unchanged, else 0.
    pub table_oid: u32,
    /// Attribute number in that table, else 0.
    pub attribute_number: i16,
}

/// A statement that was parsed, bound and planned, to be executed any number of times.
#[derive(Debug)]
pub struct Prepared {
    parameter_types: Vec<Type>,
    columns: Option<Vec<OutputColumn>>,
}

impl Prepared {
    /// Types of `$1`, `$2`, ...
    pub fn parameter_types(&self) -> &[Type] {
        &self.parameter_types
    }

    /// The columns of the rows it returns, or `None` if it returns none.
    pub fn columns(&self) -> Option<&[OutputColumn]> {
        self.columns.as_deref()
    }

    /// The text held no statement at all.
    pub fn is_empty(&self) -> bool {
        false
    }
}
