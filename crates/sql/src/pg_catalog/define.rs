//! How a virtual table is defined: each column with the expression that computes it, so that
//! columns and values cannot get out of step.

use super::Source;
use crate::types::{Datum, Type};

/// Rows of values.
pub type Rows = Vec<Vec<Datum>>;

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
    pub rows: fn(&Source<'_>) -> Rows,
    /// Makes only the rows whose column of this name has this oid, if it can do that without making
    /// all.
    pub rows_by_oid: fn(&Source<'_>, &str, u32) -> Option<Rows>,
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
///     static PG_AM = 2601 table "pg_catalog"."pg_am", |source| METHODS => |method|,
///     [by oid(key) => METHODS.iter().filter(|method| method.oid == key)],
///     oid: Oid = method.oid,
///     amname: Name = method.name,
/// }
/// ```
///
/// The expression before `=>` gives the things that have a row each; `source` and the thing's name
/// are in scope of the columns' expressions, whose values go through [`fit`](super::value::fit).
/// Lines with `by` give the things that have an oid in a column, for tables that clients join by
/// it.
macro_rules! system_table {
    (
        $visibility:vis static $table:ident = $oid:literal $kind:ident $schema:literal.$name:literal,
        |$source:ident| $items:expr => |$item:pat_param|,
        $([by $column_by:ident($key:ident) => $items_by:expr],)*
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
            rows_by_oid: |$source, column, key| system_table!(
                @by $source, column, key, $item,
                [$($crate::pg_catalog::value::fit($value, $crate::types::TypeId::$ty)),*],
                $($column_by $key $items_by;)*
            ),
        };
    };
    (@by $source:ident, $column:ident, $given:ident, $item:pat_param, $row:tt,) => {{
        let _ = ($source, $column, $given);
        None
    }};
    (@by $source:ident, $column:ident, $given:ident, $item:pat_param, $row:tt, $($by:ident $key:ident $items:expr;)+) => {
        match $column {
            $(stringify!($by) => {
                let $key = $given;
                Some(($items).into_iter().map(|$item| vec! $row).collect())
            })*
            _ => None,
        }
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
            rows_by_oid: |_, _, _| Some(Vec::new()),
        };
    };
}
