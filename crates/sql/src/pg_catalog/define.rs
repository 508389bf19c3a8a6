//! How a virtual table is defined: each column with the expression that computes it, so that columns and values cannot
//! get out of step.

use super::Source;
use crate::types::{Datum, Type};

/// A relation whose rows are computed.
pub struct SystemTable {
    /// `pg_class.oid`.
    pub oid: u32,
    /// `pg_catalog` or `information_schema`.
    pub schema: &'static str,
    /// Name.
    pub name: &'static str,
    /// PostgreSQL has it as a view.
    pub view: bool,
    /// Names and types of the columns.
    pub columns: &'static [(&'static str, Type)],
    /// Makes the rows: one value for each column.
    pub rows: fn(&Source<'_>) -> Vec<Vec<Datum>>,
}

impl std::fmt::Debug for SystemTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// Defines a [`SystemTable`]:
///
/// ```text
/// system_table! {
///     static PG_AM = 2601 table "pg_catalog"."pg_am", |source| METHODS => |method: &Method|,
///     oid: Oid = method.oid,
///     amname: Name = method.name,
/// }
/// ```
///
/// The expression before `=>` gives the things that have a row each; `source` and the thing's name are in scope of
/// the columns' expressions, whose values go through [`fit`](super::value::fit).
macro_rules! system_table {
    (
        $visibility:vis static $table:ident = $oid:literal $kind:ident $schema:literal.$name:literal,
        |$source:ident| $items:expr => |$item:pat_param|,
        $($column:ident: $ty:ident = $value:expr),* $(,)?
    ) => {
        $visibility static $table: $crate::pg_catalog::SystemTable = $crate::pg_catalog::SystemTable {
            oid: $oid,
            schema: $schema,
            name: $name,
            view: system_table!(@is_view $kind),
            columns: &[$((stringify!($column), $crate::types::Type::new($crate::types::TypeId::$ty))),*],
            rows: |$source| {
                ($items)
                    .into_iter()
                    .map(|$item| vec![$($crate::pg_catalog::value::fit($value, $crate::types::TypeId::$ty)),*])
                    .collect()
            },
        };
    };
    (@is_view table) => { false };
    (@is_view view) => { true };
}

/// Defines a [`SystemTable`] without rows.
macro_rules! empty_table {
    ($table:ident = $oid:literal $kind:ident $schema:literal.$name:literal, $($column:ident: $ty:ident),* $(,)?) => {
        static $table: $crate::pg_catalog::SystemTable = $crate::pg_catalog::SystemTable {
            oid: $oid,
            schema: $schema,
            name: $name,
            view: system_table!(@is_view $kind),
            columns: &[$((stringify!($column), $crate::types::Type::new($crate::types::TypeId::$ty))),*],
            rows: |_| Vec::new(),
        };
    };
}
